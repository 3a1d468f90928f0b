//! A question that a run asks before it goes on, in the forms that graphs use.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::commit::call_id_of;
use super::{Call, Id, Message, View};
use crate::json::{self, Json, Text, TextBuf};
use crate::langgraph::{self, Approval, ApprovalForm, ApprovalRequest, KeptAnswer};

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// LangGraph's id, or a name of ours: see [`is_unnamed`](Self::is_unnamed).
    pub id: Id,
    /// What is asked.
    pub ask: Ask,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Whether tools may be called, as the human-in-the-loop middleware or Agent Inbox asks.
    Approval {
        /// The calls, at least one.
        actions: Vec<Action>,
        /// How the answer is to be spelled.
        form: ApprovalForm,
    },
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
    /// What the person may answer, in the words of the question's form: `approve`, `edit`,
    /// `reject`, `respond`; of Agent Inbox `accept`, `edit`, `ignore`, `response`.
    pub decisions: Vec<Id>,
    /// The call, where it could be told which it is.
    pub call_id: Option<Id>,
    /// The schema of the decision, where the graph gives one.
    pub schema: Option<Json>,
    /// What else the graph passes along about it: an object.
    pub details: Option<Json>,
    /// The decision that was made before those on the other actions, and is kept until then.
    pub kept: Option<KeptDecision>,
}

/// A decision that the thread's metadata keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptDecision {
    /// The member of the metadata.
    pub key: Id,
    /// The decision, in the words of the question's form.
    pub decision: Json,
}

/// Where graphs put the text of what they ask.
const QUESTION_KEYS: [&str; 4] = ["message", "question", "prompt", "description"];

/// The member of a value that holds the text of what is asked: the first that has some.
pub fn question_key(members: &json::Members<'_>) -> Option<&'static str> {
    let has_text = |key: &&str| members.text(key).is_some_and(|text| !text.is_empty());
    QUESTION_KEYS.into_iter().find(has_text)
}

/// How the id of a static breakpoint ends: LangGraph gives it none.
pub const BREAKPOINT: &str = ":breakpoint";

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
    pub fn of_langgraph(interrupt: &langgraph::RawInterrupt<'_>) -> Self {
        let ask = match Approval::parse(interrupt) {
            Some(Approval { requests, form }) => {
                Ask::Approval { actions: requests.into_iter().map(Action::from).collect(), form }
            }
            None => Ask::Answer {
                value: Json::from(interrupt.value.unwrap_or(RawValue::NULL)),
                schema: interrupt.response_schema.map(Json::from),
            },
        };
        Self { id: Id::from(&*interrupt.id), ask }
    }

    /// Whether it has no id in LangGraph. It is answered by a bare value, and only while it is the
    /// only question of its thread.
    pub fn is_unnamed(&self) -> bool {
        langgraph::RawInterrupt::is_unnamed(&self.id)
    }

    /// Whether it asks about several actions at once.
    pub(super) fn is_batch(&self) -> bool {
        matches!(&self.ask, Ask::Approval { actions, .. } if actions.len() > 1)
    }

    /// Takes in what is kept of its answer. A decision that its action does not take is none:
    /// anybody who may change the thread may have written it.
    pub fn keep(&mut self, kept: &[KeptAnswer]) {
        let Ask::Approval { actions, form } = &mut self.ask else { return };
        let of_it = kept.iter().filter(|kept| kept.interrupt == *self.id);
        for KeptAnswer { key, action, decision, .. } in of_it {
            if let Some(action) = actions.get_mut(*action)
                && action.check(*form, decision).is_ok()
            {
                action.kept =
                    Some(KeptDecision { key: Id::from(&**key), decision: decision.clone() });
            }
        }
    }

    /// Asks everything again if nothing is open: all decisions are kept, and were not sent. Any of
    /// them sends all.
    pub(super) fn ask_some(&mut self) {
        let Ask::Approval { actions, .. } = &mut self.ask else { return };
        if actions.iter().all(|action| action.kept.is_some()) {
            for action in actions {
                action.kept = None;
            }
        }
    }

    /// The members of the thread's metadata that keep decisions on its actions.
    pub fn kept_keys(&self) -> impl Iterator<Item = String> {
        let actions = match &self.ask {
            Ask::Approval { actions, .. } => actions.as_slice(),
            Ask::Answer { .. } | Ask::Breakpoint => &[],
        };
        actions.iter().filter_map(|action| Some(action.kept.as_ref()?.key.to_string()))
    }

    /// Finds the calls that wait for approval: those without an answer, by name and arguments
    /// where the graph does not name them.
    pub(super) fn find_calls(&mut self, view: &View) {
        let Ask::Approval { actions, .. } = &mut self.ask else { return };
        let named = actions.iter_mut().filter_map(|action| action.call_id.as_mut());
        for call_id in named {
            let of_message = |message: &Arc<Message>| {
                let is_meant = |call: &&Call| {
                    call_id_of(&call.id, &message.id) == &**call_id && !view.is_answered(&call.id)
                };
                message.calls.iter().find(is_meant).map(|call| Arc::clone(&call.id))
            };
            if let Some(wire) = view.messages().iter().rev().find_map(of_message) {
                *call_id = wire;
            }
        }
        let waits = |message: &&Arc<Message>| {
            message.agent.is_none() && message.calls.iter().any(|c| !view.is_answered(&c.id))
        };
        let Some(message) = view.messages().iter().rev().find(waits) else { return };
        let mut calls: Vec<_> = message.calls.iter().collect();
        for action in actions.iter_mut().filter(|action| action.call_id.is_none()) {
            let args = Text::new(action.args.get());
            let found = calls.iter().position(|call| {
                TextBuf::from(&action.name).same(&Text::new(&call.name)) && call.has_args(&args)
            });
            action.call_id = found.map(|at| Arc::clone(&calls.remove(at).id));
        }
    }
}

// === impl Action ===

impl From<ApprovalRequest> for Action {
    fn from(request: ApprovalRequest) -> Self {
        let ApprovalRequest { name, args, description, decisions, call_id, schema, details } =
            request;
        Self {
            name,
            args,
            description,
            decisions: decisions.iter().map(|decision| Id::from(&**decision)).collect(),
            call_id: call_id.as_deref().map(Id::from),
            schema,
            details,
            kept: None,
        }
    }
}
