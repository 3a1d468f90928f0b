//! Interrupts that ask whether tools may be called, and their answers.
//!
//! There are four forms: three of LangChain's human-in-the-loop middleware, and that of Agent
//! Inbox.

use serde_json::value::RawValue;

use super::RawInterrupt;
use crate::json::{self, Json, ObjectWriter, Text};

/// An interrupt that asks whether tools may be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    /// The calls, at least one.
    pub requests: Vec<ApprovalRequest>,
    /// The form of the answer.
    pub form: ApprovalForm,
}

/// A call that waits for approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalRequest {
    /// The tool's name.
    pub name: Text,
    /// The arguments.
    pub args: Json,
    /// The text for the person.
    pub description: Option<Text>,
    /// The kinds of decision that a person may make, in the words of the form. The middleware has
    /// `approve`, `edit`, `reject` and `respond`; Agent Inbox has `accept`, `edit`, `ignore` and
    /// `response`.
    pub decisions: Vec<String>,
    /// The id of the model's call, if the form has it.
    pub call_id: Option<String>,
    /// The JSON schema of the answer, if the form has one.
    pub schema: Option<Json>,
    /// An object of all members that no field here contains.
    pub details: Option<Json>,
}

/// A form of the interrupt and its answer (langchain 1.4.7 for Python, 1.5.14 for JavaScript).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalForm {
    /// All calls of a turn in one interrupt, in snake case.
    Python,
    /// All calls of a turn in one interrupt, in camel case.
    JavaScript,
    /// One interrupt per call: Python's `interrupt_mode="per_call"`.
    PerCall,
    /// LangGraph's `HumanInterrupt`, as Agent Inbox reads it. The answer is a list of
    /// `HumanResponse`.
    Inbox,
}

/// A person's decision about one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The tool may be called.
    Approve,
    /// The tool may be called with these arguments instead.
    Edit {
        /// All arguments.
        args: Json,
    },
    /// The tool may not be called.
    Reject {
        /// The reason, for the model.
        message: Option<Text>,
    },
    /// The tool is not called. The person gives its result.
    Respond {
        /// The result.
        message: Text,
    },
    /// A decision of a kind that only the graph knows.
    Other {
        /// The kind, in the graph's own word.
        kind: String,
        /// What the person adds.
        message: Option<Text>,
    },
}

// === impl Approval ===

impl Approval {
    /// Reads an interrupt. `None` if it asks something else.
    pub fn parse(interrupt: &RawInterrupt<'_>) -> Option<Self> {
        if let Some(requests) = inbox(interrupt.value?) {
            return Some(Self { requests, form: ApprovalForm::Inbox });
        }
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
/// allowed_decisions}]}`. The configs have the order of the requests, or are found by name.
fn batched(members: &json::Members<'_>, form: ApprovalForm) -> Option<Vec<ApprovalRequest>> {
    let (requests, configs, config_name, allowed) = match form {
        ApprovalForm::Python => {
            ("action_requests", "review_configs", "action_name", "allowed_decisions")
        }
        ApprovalForm::JavaScript => {
            ("actionRequests", "reviewConfigs", "actionName", "allowedDecisions")
        }
        ApprovalForm::PerCall | ApprovalForm::Inbox => return None,
    };
    let beside = |own: &json::Members<'_>, known: &[&str]| {
        details(&[(members, &[requests, configs]), (own, known)])
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
        let either = |one, other| if members.get(one).is_some() { one } else { other };
        let (name, args) = (either("name", "action"), either("args", "arguments"));
        Some(ApprovalRequest {
            decisions: decisions(&members.text(name)?.decode()),
            name: members.text(name)?,
            args: members.get(args).map_or_else(Json::empty_object, Json::from),
            description: described(&members),
            call_id: None,
            schema: None,
            details: beside(&members, &[name, args, DESCRIPTION]),
        })
    };
    let requests: Option<Vec<_>> = requests.into_iter().map(request).collect();
    requests.filter(|requests| !requests.is_empty())
}

const DESCRIPTION: &str = "description";

fn described(members: &json::Members<'_>) -> Option<Text> {
    members.text(DESCRIPTION).filter(|text| !text.is_empty())
}

/// An object of the members whose names are not in `known`. A description that is not a string is
/// included.
fn details(objects: &[(&json::Members<'_>, &[&str])]) -> Option<Json> {
    let mut details = ObjectWriter::new();
    for (members, known) in objects {
        let is_known = |name: &str, value: &RawValue| {
            known.contains(&name) && (name != DESCRIPTION || value.get().starts_with('"'))
        };
        for (name, value) in &members.0 {
            if !is_known(name, value) && value.get() != "null" {
                details = details.raw(name, value.get());
            }
        }
    }
    (!details.is_empty()).then(|| details.finish())
}

/// The kinds of decision of the human-in-the-loop middleware.
const DECISIONS: [&str; 4] = ["approve", "edit", "reject", "respond"];

/// The members of `HumanInterruptConfig`, and the kind of answer that each allows.
const INBOX: [(&str, &str); 4] = [
    ("allow_accept", "accept"),
    ("allow_edit", "edit"),
    ("allow_respond", "response"),
    ("allow_ignore", "ignore"),
];

/// `{"action_request": {action, args}, "config": {allow_accept, ..}, description}`, alone or in a
/// list. A request that allows no answer is no approval.
fn inbox(value: &RawValue) -> Option<Vec<ApprovalRequest>> {
    let request = |value: &RawValue| {
        let members = json::members(value)?;
        let action = json::members(members.get("action_request")?)?;
        let config = json::members(members.get("config")?)?;
        let is_allowed = |allows| config.get(allows).is_some_and(|is| is.get() == "true");
        let allowed = INBOX.into_iter().filter(|(allows, _)| is_allowed(allows));
        let decisions: Vec<_> = allowed.map(|(_, answer)| answer.to_owned()).collect();
        if decisions.is_empty() {
            return None;
        }
        Some(ApprovalRequest {
            name: action.text("action")?,
            args: action.get("args").map_or_else(Json::empty_object, Json::from),
            description: described(&members),
            decisions,
            call_id: None,
            schema: None,
            details: details(&[
                (&members, &["action_request", "config", DESCRIPTION]),
                (&action, &["action", "args"]),
            ]),
        })
    };
    let requests: Option<Vec<_>> = match json::items(value) {
        Some(items) => items.into_iter().map(request).collect(),
        None => request(value).map(|request| vec![request]),
    };
    requests.filter(|requests| !requests.is_empty())
}

/// `{"type": "tool_approval", tool_call_id, name, args, description}`. The schema lists the allowed
/// decisions.
fn single(members: &json::Members<'_>, schema: Option<&RawValue>) -> Option<ApprovalRequest> {
    members.string("type").filter(|kind| kind == "tool_approval")?;
    let call_id = members.string("tool_call_id")?.into_owned();
    Some(ApprovalRequest {
        name: members.text("name")?,
        args: members.get("args").map_or_else(Json::empty_object, Json::from),
        description: described(members),
        details: details(&[(members, &["type", "tool_call_id", "name", "args", DESCRIPTION])]),
        decisions: schema.map(allowed_by).unwrap_or_default(),
        call_id: Some(call_id),
        schema: schema.filter(|schema| schema.get() != "null").map(Json::from),
    })
}

/// The kinds of decision in a schema: a union discriminated by `type`, or an object schema if there
/// is only one.
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
    /// The member of an `edit` decision that contains the edited call.
    pub(crate) fn edit_key(self) -> &'static str {
        match self {
            Self::Python | Self::PerCall => "edited_action",
            Self::JavaScript => "editedAction",
            Self::Inbox => "args",
        }
    }

    /// All kinds of decision of the form.
    pub fn decisions(self) -> [&'static str; 4] {
        match self {
            Self::Python | Self::JavaScript | Self::PerCall => DECISIONS,
            Self::Inbox => INBOX.map(|(_, answer)| answer),
        }
    }

    /// The kind of decision that forbids the call.
    pub fn rejection(self) -> &'static str {
        match self {
            Self::Python | Self::JavaScript | Self::PerCall => "reject",
            Self::Inbox => "ignore",
        }
    }

    /// What is missing from a decision of this kind. `None` if it is complete.
    pub fn lacks(self, kind: &str, members: &json::Members<'_>) -> Option<&'static str> {
        match self {
            Self::Python | Self::JavaScript | Self::PerCall => {
                lacking_decision(kind, members, self)
            }
            Self::Inbox => lacking_response(kind, members),
        }
    }

    /// Writes a decision about a call of `tool`.
    pub fn decision(self, tool: &Text, decision: &Decision) -> Json {
        let of = |kind: &str| ObjectWriter::new().string("type", kind);
        if self == Self::Inbox {
            return inbox_response(tool, decision);
        }
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
            Decision::Other { kind, message } => {
                of(kind).optional("message", message.as_ref()).finish()
            }
        }
    }

    /// Reads a decision. `None` if its kind is unknown.
    pub fn read(self, decision: &RawValue) -> Option<Decision> {
        let members = json::members(decision)?;
        let kind = members.string("type")?;
        let args = |key| Some(Json::from(json::members(members.get(key)?)?.get("args")?));
        Some(match (self, &*kind) {
            (Self::Inbox, "accept") => Decision::Approve,
            (Self::Inbox, "edit") => Decision::Edit { args: args("args")? },
            (Self::Inbox, "ignore") => Decision::Reject { message: members.text("args") },
            (Self::Inbox, "response") => Decision::Respond { message: members.text("args")? },
            (Self::Inbox, _) => return None,
            (_, "approve") => Decision::Approve,
            (_, "edit") => Decision::Edit { args: args(self.edit_key())? },
            (_, "reject") => Decision::Reject { message: members.text("message") },
            (_, "respond") => Decision::Respond { message: members.text("message")? },
            (_, _) => return None,
        })
    }

    /// The answer to the interrupt, given the decisions on its calls in their order.
    pub fn answer(self, decisions: &[Json]) -> Json {
        match (self, decisions) {
            (Self::PerCall, [only]) => only.clone(),
            (Self::Inbox, all) => json::array(all.iter().map(|decision| decision.get())),
            (Self::PerCall | Self::Python | Self::JavaScript, all) => {
                let decisions = json::array(all.iter().map(|decision| decision.get()));
                ObjectWriter::new().raw("decisions", decisions.get()).finish()
            }
        }
    }
}

/// LangGraph's `HumanResponse`. `args` is null, a text, or the action with other arguments.
fn inbox_response(tool: &Text, decision: &Decision) -> Json {
    let of = |kind: &str, args: &str| {
        ObjectWriter::new().string("type", kind).raw("args", args).finish()
    };
    match decision {
        Decision::Approve => of("accept", "null"),
        Decision::Edit { args } => {
            let action = ObjectWriter::new().text("action", tool).raw("args", args.get());
            of("edit", action.finish().get())
        }
        Decision::Reject { message: None } => of("ignore", "null"),
        Decision::Reject { message: Some(message) } => {
            of("ignore", Json::from(message.clone()).get())
        }
        Decision::Respond { message } => of("response", Json::from(message.clone()).get()),
        Decision::Other { kind, message } => {
            let args = message.clone().map(Json::from);
            of(kind, args.as_ref().map_or("null", |args| args.get()))
        }
    }
}

/// What is missing from a decision of the middleware.
fn lacking_decision(
    kind: &str,
    members: &json::Members<'_>,
    form: ApprovalForm,
) -> Option<&'static str> {
    match kind {
        "edit" => {
            let is_whole = is_edited(members.get(form.edit_key()), "name");
            (!is_whole).then_some(if form == ApprovalForm::JavaScript {
                "`editedAction` is not an object with a string `name` and an object `args`"
            } else {
                "`edited_action` is not an object with a string `name` and an object `args`"
            })
        }
        "respond" => (!has_text(members, "message")).then_some("`message` is not a string"),
        "reject" => {
            let is_wrong = members.get("message").is_some() && !has_text(members, "message");
            is_wrong.then_some("`message` is not a string")
        }
        _ => None,
    }
}

/// What is missing from a response of Agent Inbox.
fn lacking_response(kind: &str, members: &json::Members<'_>) -> Option<&'static str> {
    match kind {
        "edit" => (!is_edited(members.get("args"), "action"))
            .then_some("`args` is not an object with a string `action` and an object `args`"),
        "response" => (!has_text(members, "args")).then_some("`args` is not a string"),
        _ => None,
    }
}

/// Whether the value is an action with a name under this key, and arguments.
fn is_edited(value: Option<&RawValue>, name: &str) -> bool {
    let edited = value.and_then(json::members).unwrap_or_default();
    edited.get("args").is_some_and(|args| args.get().starts_with('{'))
        && edited.string(name).is_some()
}

fn has_text(members: &json::Members<'_>, name: &str) -> bool {
    members.get(name).is_some_and(|text| text.get().starts_with('"'))
}

#[cfg(test)]
mod tests;
