//! Questions of a run as AG-UI's interrupts.

use std::borrow::Cow;

use crate::agui::WireInterrupt;
use crate::json::{self, Json, ObjectWriter, Text};
use crate::langgraph::ApprovalForm;
use crate::run::{self, Ask};

/// The interrupts of a question: one for each action of an approval that waits for a decision, and
/// one for any other question.
pub(super) fn interrupts(interrupt: &run::Interrupt) -> Vec<WireInterrupt<'_>> {
    match &interrupt.ask {
        Ask::Approval { actions, form } if actions.len() == 1 => {
            actions.iter().map(|action| action_interrupt(&interrupt.id, action, *form)).collect()
        }
        Ask::Approval { actions, form } => actions
            .iter()
            .enumerate()
            .filter(|(_, action)| action.kept.is_none())
            .map(|(at, action)| action_interrupt(&format!("{}:{at}", interrupt.id), action, *form))
            .collect(),
        Ask::Answer { value, schema } => {
            vec![answer_interrupt(&interrupt.id, value, schema.as_ref())]
        }
        Ask::Breakpoint => vec![WireInterrupt {
            id: interrupt.id.to_string(),
            reason: Cow::Borrowed("langgraph:breakpoint"),
            message: None,
            tool_call_id: None,
            response_schema: None,
            expires_at: None,
            metadata: None,
        }],
    }
}

fn action_interrupt<'a>(
    id: &str,
    action: &'a run::Action,
    form: ApprovalForm,
) -> WireInterrupt<'a> {
    let decisions: Vec<_> = action.decisions.iter().map(|decision| &**decision).collect();
    let schema = action.schema.clone();
    WireInterrupt {
        id: id.to_owned(),
        reason: Cow::Borrowed(if action.call_id.is_some() { "tool_call" } else { "confirmation" }),
        message: action.description.clone(),
        tool_call_id: action.call_id.as_deref().map(Cow::Borrowed),
        response_schema: schema.or_else(|| Some(decision_schema(&decisions, form))),
        expires_at: None,
        metadata: Some(action_metadata(action, &decisions)),
    }
}

/// The schema of the answer to an approval: LangChain's decision or Agent Inbox's response, of the
/// kinds that the action allows.
fn decision_schema(decisions: &[&str], form: ApprovalForm) -> Json {
    let of = |kind| ObjectWriter::new().string("type", kind).finish();
    let kinds = ObjectWriter::new().raw("enum", to_json(&decisions).get()).finish();
    let properties = ObjectWriter::new().raw("type", kinds.get());
    let properties = match form {
        ApprovalForm::Inbox => {
            properties.raw(form.edit_key(), r#"{"type":["string","object","null"]}"#)
        }
        ApprovalForm::Python | ApprovalForm::JavaScript | ApprovalForm::PerCall => {
            properties.raw("message", of("string").get()).raw(form.edit_key(), of("object").get())
        }
    };
    let properties = properties.finish();
    ObjectWriter::new()
        .string("type", "object")
        .raw("properties", properties.get())
        .raw("required", "[\"type\"]")
        .finish()
}

fn action_metadata(action: &run::Action, decisions: &[&str]) -> Json {
    #[derive(serde::Serialize)]
    struct Outer<'a> {
        langgraph: Inner<'a>,
    }
    #[derive(serde::Serialize)]
    struct Inner<'a> {
        action: &'a Text,
        args: &'a Json,
        allowed_decisions: &'a [&'a str],
        #[serde(skip_serializing_if = "Option::is_none")]
        details: Option<&'a Json>,
    }
    let inner = Inner {
        action: &action.name,
        args: &action.args,
        allowed_decisions: decisions,
        details: action.details.as_ref(),
    };
    to_json(&Outer { langgraph: inner })
}

/// The interrupt of a free question. The value's members fill the fields that AG-UI has for them.
/// The metadata carries the whole value.
fn answer_interrupt<'a>(id: &str, value: &'a Json, schema: Option<&Json>) -> WireInterrupt<'a> {
    #[derive(serde::Serialize)]
    struct Outer<'a> {
        langgraph: Inner<'a>,
    }
    #[derive(serde::Serialize)]
    struct Inner<'a> {
        value: &'a Json,
    }
    let asked = run::asked(value);
    let members = json::members(asked).unwrap_or_default();
    let string = |name, other| members.string(name).or_else(|| members.string(other));
    WireInterrupt {
        id: id.to_owned(),
        reason: members.string("reason").unwrap_or(Cow::Borrowed("langgraph:interrupt")),
        message: Text::from_raw(asked)
            .or_else(|| run::question_key(&members).and_then(|key| members.text(key))),
        tool_call_id: string("toolCallId", "tool_call_id"),
        response_schema: response_schema(value, schema),
        expires_at: string("expiresAt", "expires_at"),
        metadata: Some(to_json(&Outer { langgraph: Inner { value } })),
    }
}

/// The schema of an answer: LangGraph's, or else the one in the question's value.
pub(in crate::agui) fn response_schema(value: &Json, schema: Option<&Json>) -> Option<Json> {
    let members = json::members(run::asked(value)).unwrap_or_default();
    let member = || members.get("responseSchema").or_else(|| members.get("response_schema"));
    let schema = schema.cloned().or_else(|| member().map(Json::from));
    schema.filter(|schema| schema.get().starts_with('{'))
}

fn to_json(value: &impl serde::Serialize) -> Json {
    json::raw(serde_json::to_string(value).unwrap_or_default())
}
