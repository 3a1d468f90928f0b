//! The question of LangChain's human-in-the-loop middleware, whether tools may be called, in its
//! three wire forms, and the answer that each form takes.

use serde_json::value::RawValue;

use super::Interrupt;
use crate::json::{self, Json, ObjectWriter, Text};

/// Whether these tools may be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    /// The calls, at least one.
    pub requests: Vec<ApprovalRequest>,
    /// How the answer is to be spelled.
    pub form: ApprovalForm,
}

/// One call that waits for approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalRequest {
    /// The tool.
    pub name: Text,
    /// The arguments.
    pub args: Json,
    /// What to tell the person.
    pub description: Option<Text>,
    /// `approve`, `edit`, `reject`, `respond`: what the person may answer.
    pub decisions: Vec<String>,
    /// The model's call, where the form names it.
    pub call_id: Option<String>,
    /// The schema of the answer, where the form has one.
    pub schema: Option<Json>,
}

/// A wire form (langchain 1.4.7 for Python, 1.5.14 for JavaScript).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalForm {
    /// All calls of a turn in one interrupt, in snake case.
    Python,
    /// All calls of a turn in one interrupt, in camel case.
    JavaScript,
    /// One interrupt per call: Python's `interrupt_mode="per_call"`.
    PerCall,
}

/// What a person has decided about one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It may be called.
    Approve,
    /// It may be called with these arguments instead.
    Edit {
        /// All of them.
        args: Json,
    },
    /// It may not.
    Reject {
        /// Why, for the model to read.
        message: Option<Text>,
    },
    /// It is not called: this is its result.
    Respond {
        /// The result.
        message: Text,
    },
}

// === impl Approval ===

impl Approval {
    /// Reads an interrupt. `None` if it asks something else.
    pub fn parse(interrupt: &Interrupt<'_>) -> Option<Self> {
        let members = json::members(interrupt.value?)?;
        let batched = |form| {
            let requests = batched(&members, form)?;
            Some(Self { requests, form })
        };
        batched(ApprovalForm::Python).or_else(|| batched(ApprovalForm::JavaScript)).or_else(|| {
            let request = single(&members, interrupt.response_schema)?;
            Some(Self { requests: vec![request], form: ApprovalForm::PerCall })
        })
    }
}

/// `{"action_requests": [{name, args, description}], "review_configs": [{action_name,
/// allowed_decisions}]}`, the configs in the order of the requests or by name.
fn batched(members: &json::Members<'_>, form: ApprovalForm) -> Option<Vec<ApprovalRequest>> {
    let (requests, configs, config_name, allowed) = match form {
        ApprovalForm::Python => {
            ("action_requests", "review_configs", "action_name", "allowed_decisions")
        }
        ApprovalForm::JavaScript => {
            ("actionRequests", "reviewConfigs", "actionName", "allowedDecisions")
        }
        ApprovalForm::PerCall => return None,
    };
    let requests = json::items(members.get(requests)?)?;
    let configs = members.get(configs).and_then(json::items).unwrap_or_default();
    let configs: Vec<_> = configs.into_iter().filter_map(json::members).collect();
    let decisions = |name: &str| {
        let is_named =
            |config: &&json::Members<'_>| config.string(config_name).is_some_and(|n| n == name);
        let allowed = configs.iter().find(is_named).and_then(|config| config.get(allowed));
        let allowed = allowed.and_then(json::items).unwrap_or_default();
        allowed.into_iter().filter_map(json::string).map(Into::into).collect()
    };
    let request = |request: &RawValue| {
        let members = json::members(request)?;
        let name = members.text("name").or_else(|| members.text("action"))?;
        let args = members.get("args").or_else(|| members.get("arguments"));
        Some(ApprovalRequest {
            decisions: decisions(&name.decode()),
            name,
            args: args.map_or_else(|| json::raw("{}".to_owned()), Json::from),
            description: members.text("description"),
            call_id: None,
            schema: None,
        })
    };
    let requests: Option<Vec<_>> = requests.into_iter().map(request).collect();
    requests.filter(|requests| !requests.is_empty())
}

/// `{"type": "tool_approval", tool_call_id, name, args, description}`; what may be answered stands
/// in the schema.
fn single(members: &json::Members<'_>, schema: Option<&RawValue>) -> Option<ApprovalRequest> {
    members.string("type").filter(|kind| kind == "tool_approval")?;
    let call_id = members.string("tool_call_id")?.into_owned();
    Some(ApprovalRequest {
        name: members.text("name")?,
        args: members.get("args").map_or_else(|| json::raw("{}".to_owned()), Json::from),
        description: members.text("description").filter(|text| !text.is_empty()),
        decisions: schema.map(allowed_by).unwrap_or_default(),
        call_id: Some(call_id),
        schema: schema.filter(|schema| schema.get() != "null").map(Json::from),
    })
}

/// The decisions of a schema: "a union discriminated by `type`; a one-decision tool gets that
/// decision's plain object schema".
fn allowed_by(schema: &RawValue) -> Vec<String> {
    fn opened(value: Option<&RawValue>) -> json::Members<'_> {
        value.and_then(json::members).unwrap_or_default()
    }
    let schema = opened(Some(schema));
    let mapping = opened(opened(schema.get("discriminator")).get("mapping")).0;
    if !mapping.is_empty() {
        return mapping.into_iter().map(|(kind, _)| kind.0.into_owned()).collect();
    }
    let kind = opened(opened(schema.get("properties")).get("type"));
    kind.string("const").map(Into::into).into_iter().collect()
}

// === impl ApprovalForm ===

impl ApprovalForm {
    /// The member of an `edit` decision that holds the edited call.
    pub fn edit_key(self) -> &'static str {
        match self {
            Self::Python | Self::PerCall => "edited_action",
            Self::JavaScript => "editedAction",
        }
    }

    /// A decision about the call of a tool.
    pub fn decision(self, tool: &Text, decision: &Decision) -> Json {
        let of = |kind| ObjectWriter::new().string("type", kind);
        match decision {
            Decision::Approve => of("approve").finish(),
            Decision::Edit { args } => {
                let edited = ObjectWriter::new().text("name", tool).raw("args", args.get());
                of("edit").raw(self.edit_key(), edited.finish().get()).finish()
            }
            Decision::Reject { message } => {
                of("reject").optional("message", message.as_ref()).finish()
            }
            Decision::Respond { message } => of("respond").text("message", message).finish(),
        }
    }

    /// The answer to the interrupt, from the decisions on its calls in their order.
    pub fn answer(self, decisions: &[Json]) -> Json {
        match (self, decisions) {
            (Self::PerCall, [only]) => only.clone(),
            (Self::PerCall | Self::Python | Self::JavaScript, all) => {
                let decisions = json::array(all.iter().map(|decision| decision.get()));
                ObjectWriter::new().raw("decisions", decisions.get()).finish()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &str, schema: Option<&str>) -> Option<Approval> {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let (value, schema) = (raw(value), schema.map(raw));
        Approval::parse(&Interrupt {
            id: "i".into(),
            value: Some(&value),
            response_schema: schema.as_deref(),
        })
    }

    #[test]
    fn an_approval_of_one_call_tells_its_decisions_by_its_schema() {
        let value = r#"{"type":"tool_approval","tool_call_id":"call_1","name":"send","args":{"to":"x"},"description":""}"#;
        let union = r##"{"oneOf":[],"discriminator":{"mapping":{"approve":"#/$defs/A","reject":"#/$defs/R"},"propertyName":"type"}}"##;
        let one = r#"{"properties":{"type":{"const":"approve","type":"string"}},"type":"object"}"#;
        for (schema, expected) in [
            (Some(union), &["approve", "reject"][..]),
            (Some(one), &["approve"]),
            (Some("null"), &[]),
            (None, &[]),
        ] {
            let approval = read(value, schema).unwrap();
            assert_eq!(approval.form, ApprovalForm::PerCall);
            let [request] = &*approval.requests else { panic!("{approval:?}") };
            assert_eq!(request.decisions, expected, "{schema:?}");
            assert_eq!(request.call_id.as_deref(), Some("call_1"));
            assert_eq!(request.description, None);
        }
        assert_eq!(read(r#"{"type":"tool_approval","name":"send"}"#, None), None);
        assert_eq!(read(r#"{"type":"question","tool_call_id":"c","name":"x"}"#, None), None);
    }

    #[test]
    fn each_form_has_its_own_answer() {
        let tool = Text::new("send");
        let edit = Decision::Edit { args: json::raw(r#"{"to":"y"}"#.to_owned()) };
        let reject = Decision::Reject { message: Some(Text::new("no")) };
        for (form, decision, expected) in [
            (ApprovalForm::Python, &Decision::Approve, r#"{"decisions":[{"type":"approve"}]}"#),
            (
                ApprovalForm::JavaScript,
                &edit,
                r#"{"decisions":[{"type":"edit","editedAction":{"name":"send","args":{"to":"y"}}}]}"#,
            ),
            (
                ApprovalForm::PerCall,
                &edit,
                r#"{"type":"edit","edited_action":{"name":"send","args":{"to":"y"}}}"#,
            ),
            (ApprovalForm::PerCall, &reject, r#"{"type":"reject","message":"no"}"#),
            (
                ApprovalForm::PerCall,
                &Decision::Respond { message: Text::new("42") },
                r#"{"type":"respond","message":"42"}"#,
            ),
        ] {
            let answer = form.answer(&[form.decision(&tool, decision)]);
            assert_eq!(answer.get(), expected);
        }
    }
}
