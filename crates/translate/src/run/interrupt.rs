//! A question that a graph asks a person before its run continues.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::commit::call_id_of;
use super::{Call, Id, Message, View};
use crate::json::{self, Json, Text, TextBuf};
use crate::langgraph::{self, Approval, ApprovalForm, ApprovalRequest, StoredDecision, copilotkit};

/// A question to a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// LangGraph's id, or one that this crate made: see [`is_unnamed`](Self::is_unnamed).
    pub id: Id,
    /// What the graph asks.
    pub ask: Ask,
}

/// What the graph asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// May these tools be called? LangChain's human-in-the-loop middleware and Agent Inbox ask so.
    Approval {
        /// The calls, at least one.
        actions: Vec<Action>,
        /// The form of the answer.
        form: ApprovalForm,
    },
    /// Any other value that a graph passes to `interrupt()`.
    Answer {
        /// That value.
        value: Json,
        /// The JSON schema of the answer.
        schema: Option<Json>,
    },
    /// Nothing: the run stopped at a static breakpoint.
    Breakpoint,
}

/// A tool call that waits for approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// The tool's name.
    pub name: Text,
    /// The arguments.
    pub args: Json,
    /// The text for the person.
    pub description: Option<Text>,
    /// The kinds of decision that a person may make, in the words of the form. The middleware has
    /// `approve`, `edit`, `reject` and `respond`; Agent Inbox has `accept`, `edit`, `ignore` and
    /// `response`. Empty if the graph does not say.
    pub decisions: Vec<Id>,
    /// The id of the call, if it was found.
    pub call_id: Option<Id>,
    /// The JSON schema of the decision, if the graph gives one.
    pub schema: Option<Json>,
    /// An object of the other members that the graph passes along.
    pub details: Option<Json>,
    /// The decision that was made before those on the other actions.
    pub kept: Option<EarlierDecision>,
}

/// A decision that the thread's metadata keep until all actions of the interrupt have one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlierDecision {
    /// The key in the metadata.
    pub key: Id,
    /// The decision, in the words of the interrupt's form.
    pub decision: Json,
}

/// The members in which graphs put the text of a question.
const QUESTION_KEYS: [&str; 4] = ["message", "question", "prompt", "description"];

/// The first member that contains the text of a question.
pub(crate) fn question_key(members: &json::Members<'_>) -> Option<&'static str> {
    let has_text = |key: &&str| members.text(key).is_some_and(|text| !text.is_empty());
    QUESTION_KEYS.into_iter().find(has_text)
}

/// What a graph asks, given the value that it passes to `interrupt()`. CopilotKit's SDK puts it beside
/// messages for its own runtime.
pub(crate) fn asked(value: &RawValue) -> &RawValue {
    let members = json::members(value);
    members.and_then(|members| members.get(copilotkit::INTERRUPT_KEY)).unwrap_or(value)
}

/// The suffix of a static breakpoint's id. LangGraph gives breakpoints no ids.
pub(crate) const BREAKPOINT: &str = ":breakpoint";

/// Whether an id is that of a static breakpoint.
pub(crate) fn is_breakpoint(id: &str) -> bool {
    id.ends_with(BREAKPOINT)
}

// === impl Interrupt ===

impl Interrupt {
    /// A static breakpoint of a thread.
    pub(super) fn breakpoint(thread_id: &Id) -> Self {
        Self { id: Id::from(format!("{thread_id}{BREAKPOINT}")), ask: Ask::Breakpoint }
    }

    /// Reads an interrupt as LangGraph sends it.
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

    /// Whether LangGraph has no id for it. Such an interrupt takes a bare value as its answer, and
    /// only while it is the only one of its thread.
    pub fn is_unnamed(&self) -> bool {
        langgraph::RawInterrupt::is_unnamed(&self.id)
    }

    /// Whether it asks about several actions at once.
    pub(super) fn is_batch(&self) -> bool {
        matches!(&self.ask, Ask::Approval { actions, .. } if actions.len() > 1)
    }

    /// Adds the decisions that the thread's metadata keep. A decision that its action does not
    /// accept is ignored: any client that may change the thread may have written it.
    pub fn keep(&mut self, kept: &[StoredDecision]) {
        let Ask::Approval { actions, form } = &mut self.ask else { return };
        let own = kept.iter().filter(|kept| kept.interrupt == *self.id);
        for StoredDecision { key, action, decision, .. } in own {
            if let Some(action) = actions.get_mut(*action)
                && action.check(*form, decision).is_ok()
            {
                action.kept =
                    Some(EarlierDecision { key: Id::from(&**key), decision: decision.clone() });
            }
        }
    }

    /// If all actions have a kept decision, forgets them all. The decisions were never sent, so the
    /// person is asked again, and the next decision sends all.
    pub(super) fn ask_some(&mut self) {
        let Ask::Approval { actions, .. } = &mut self.ask else { return };
        if actions.iter().all(|action| action.kept.is_some()) {
            for action in actions {
                action.kept = None;
            }
        }
    }

    /// The keys of the metadata that keep decisions on its actions.
    pub fn kept_keys(&self) -> impl Iterator<Item = String> {
        let actions = match &self.ask {
            Ask::Approval { actions, .. } => actions.as_slice(),
            Ask::Answer { .. } | Ask::Breakpoint => &[],
        };
        actions.iter().filter_map(|action| Some(action.kept.as_ref()?.key.to_string()))
    }

    /// Finds the calls that wait for approval. `agents` are the subagents that ask, the innermost
    /// first; the run's own agent comes after them.
    ///
    /// If the graph does not name a call, this is the one without a result that has the same name and
    /// arguments, among the newest calls of the agent that asks.
    pub(super) fn find_calls(&mut self, view: &View, agents: &[Id]) {
        let Ask::Approval { actions, .. } = &mut self.ask else { return };
        let askers: Vec<_> = agents.iter().map(Some).chain([None]).collect();
        let is_open = |call: &Call| !view.is_answered(&call.id);
        let named = actions.iter_mut().filter_map(|action| action.call_id.as_mut());
        for call_id in named {
            let of_message = |message: &Arc<Message>| {
                let is_meant =
                    |call: &&Call| call_id_of(&call.id, &message.id) == &**call_id && is_open(call);
                message.calls.iter().find(is_meant).map(|call| Arc::clone(&call.id))
            };
            // Subagents that run at once may use the same id.
            let by = |agent: Option<&Id>| {
                let mut own = view.messages().iter().rev().filter(|m| m.agent.as_ref() == agent);
                own.find_map(of_message)
            };
            let anyone = || view.messages().iter().rev().find_map(of_message);
            if let Some(wire) = askers.iter().copied().find_map(by).or_else(anyone) {
                *call_id = wire;
            }
        }
        for agent in askers {
            let waits = |message: &&Arc<Message>| {
                message.agent.as_ref() == agent && message.calls.iter().any(is_open)
            };
            let Some(message) = view.messages().iter().rev().find(waits) else { continue };
            let taken: Vec<_> =
                actions.iter().filter_map(|action| action.call_id.clone()).collect();
            let is_free = |call: &&Call| is_open(call) && !taken.contains(&call.id);
            let mut calls: Vec<_> = message.calls.iter().filter(is_free).collect();
            for action in actions.iter_mut().filter(|action| action.call_id.is_none()) {
                let args = Text::new(action.args.get());
                let found = calls.iter().position(|call| {
                    TextBuf::from(&action.name).same(&Text::new(&call.name)) && call.has_args(&args)
                });
                action.call_id = found.map(|at| Arc::clone(&calls.remove(at).id));
            }
        }
    }
}

// === impl Action ===

impl Action {
    /// The allowed decisions whose meaning only the graph knows.
    pub(crate) fn decisions_of_graph(&self) -> Vec<&str> {
        const KNOWN: [&str; 7] =
            ["approve", "accept", "edit", "reject", "ignore", "respond", "response"];
        let allowed = self.decisions.iter().map(|kind| &**kind);
        allowed.filter(|kind| !KNOWN.contains(kind)).collect()
    }
}

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
