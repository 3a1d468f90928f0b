//! A question that a run asks before it goes on, in the forms that graphs use.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::{Id, Message, View};
use crate::json::{self, Json, Text, TextBuf};
use crate::langgraph;

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// LangGraph's id.
    pub id: Id,
    /// What is asked.
    pub ask: Ask,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Whether tools may be called: the human-in-the-loop middleware's form, one for all the
    /// calls of a turn.
    Approval(Vec<Action>),
    /// Anything else that a graph passes to `interrupt()`.
    Answer {
        /// What it passes.
        value: Json,
        /// The schema of the answer.
        schema: Option<Json>,
    },
    /// Nothing: the run stopped at a static breakpoint.
    Breakpoint,
}

/// A tool call that waits for approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// The tool.
    pub name: Text,
    /// The arguments.
    pub args: Json,
    /// What to tell the person.
    pub description: Option<Text>,
    /// `approve`, `edit`, `reject`, `respond`: what the person may answer.
    pub decisions: Vec<Id>,
    /// The call, where it could be told which it is.
    pub call_id: Option<Id>,
    /// The member of an `edit` decision that holds the edited call.
    pub edit: &'static str,
}

/// How the id of a static breakpoint ends: LangGraph gives it none.
const BREAKPOINT: &str = ":breakpoint";

/// Whether an interrupt's id is that of a static breakpoint.
pub fn is_breakpoint(id: &str) -> bool {
    id.ends_with(BREAKPOINT)
}

// === impl Interrupt ===

impl Interrupt {
    /// The interrupt of a static breakpoint, which has no id of its own.
    pub(super) fn breakpoint(thread_id: &Id) -> Self {
        Self { id: Id::from(format!("{thread_id}{BREAKPOINT}")), ask: Ask::Breakpoint }
    }

    /// An interrupt as LangGraph tells it.
    pub fn of_langgraph(interrupt: &langgraph::Interrupt<'_>) -> Self {
        let value = interrupt.value.unwrap_or(RawValue::NULL);
        let ask = approval(value).unwrap_or_else(|| Ask::Answer {
            value: Json::from(value),
            schema: interrupt.response_schema.map(Json::from),
        });
        Self { id: Id::from(&*interrupt.id), ask }
    }

    /// Finds the calls that wait for approval: those without an answer, by name and arguments.
    pub(super) fn find_calls(&mut self, view: &View) {
        let Ask::Approval(actions) = &mut self.ask else { return };
        let waits = |message: &&Message| {
            message.agent.is_none() && message.calls.iter().any(|c| !view.is_answered(&c.id))
        };
        let Some(message) = view.messages().iter().rev().find(waits) else { return };
        let mut calls: Vec<_> = message.calls.iter().collect();
        for action in actions {
            let args = Text::new(action.args.get());
            let found = calls.iter().position(|call| {
                TextBuf::from(&action.name).same(&Text::new(&call.name)) && call.has_args(&args)
            });
            action.call_id = found.map(|at| Arc::clone(&calls.remove(at).id));
        }
    }
}

/// How the human-in-the-loop middleware spells its form, and the edit of a call in its answer.
struct Spelling {
    requests: &'static str,
    configs: &'static str,
    name: &'static str,
    decisions: &'static str,
    edit: &'static str,
}

/// LangChain's for Python, and the one for JavaScript (langchain 1.4.7 and 1.5.14).
const SPELLINGS: [Spelling; 2] = [
    Spelling {
        requests: "action_requests",
        configs: "review_configs",
        name: "action_name",
        decisions: "allowed_decisions",
        edit: "edited_action",
    },
    Spelling {
        requests: "actionRequests",
        configs: "reviewConfigs",
        name: "actionName",
        decisions: "allowedDecisions",
        edit: "editedAction",
    },
];

/// `{"action_requests": [{name, args, description}], "review_configs": [{action_name,
/// allowed_decisions}]}`, the configs in the order of the requests or by name.
fn approval(value: &RawValue) -> Option<Ask> {
    let members = json::members(value)?;
    SPELLINGS.iter().find_map(|spelling| spelled_approval(&members, spelling))
}

fn spelled_approval(members: &json::Members<'_>, spelling: &Spelling) -> Option<Ask> {
    let requests = json::items(members.get(spelling.requests)?)?;
    let configs = members.get(spelling.configs).and_then(json::items).unwrap_or_default();
    let configs: Vec<_> = configs.into_iter().filter_map(json::members).collect();
    let decisions = |name: &str| {
        let named =
            |config: &&json::Members<'_>| config.string(spelling.name).is_some_and(|n| n == name);
        let allowed = configs.iter().find(named).and_then(|config| config.get(spelling.decisions));
        let allowed = allowed.and_then(json::items).unwrap_or_default();
        allowed.into_iter().filter_map(json::string).map(|d| Id::from(&*d)).collect()
    };
    let action = |request: &RawValue| {
        let members = json::members(request)?;
        let name = members.text("name").or_else(|| members.text("action"))?;
        let args = members.get("args").or_else(|| members.get("arguments"));
        Some(Action {
            decisions: decisions(&name.decode()),
            name,
            args: args.map_or_else(|| json::raw("{}".to_owned()), Json::from),
            description: members.text("description"),
            call_id: None,
            edit: spelling.edit,
        })
    };
    let actions: Option<Vec<_>> = requests.into_iter().map(action).collect();
    actions.filter(|actions| !actions.is_empty()).map(Ask::Approval)
}
