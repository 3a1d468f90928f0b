//! The conversation of a thread, as a plan sees it.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use serde_json::value::RawValue;

use crate::langgraph::{self, MessageType, ThreadState};
use crate::run::Id;

/// The messages of a thread's state.
#[derive(Default)]
pub(crate) struct Conversation<'a> {
    messages: Vec<Held<'a>>,
    by_id: HashMap<String, usize>,
    /// Messages without an id, by the end of the id that clients get: `<thread id>:m<place>`.
    without_id: HashMap<String, usize>,
    /// The ids of all calls, and of those with a result.
    calls: HashSet<String>,
    answered: HashSet<String>,
    /// The ids of the messages that subgraphs hold which wait for an answer.
    below: HashSet<String>,
    is_new: bool,
    is_kept: bool,
}

/// A message of the thread.
pub(crate) struct Held<'a> {
    /// Its place in the state's list.
    at: usize,
    pub(crate) raw: &'a RawValue,
    pub(crate) message: langgraph::Message<'a>,
    /// Whether it is a human message that nobody typed. A client may never have got it, so a client
    /// that lacks it is not behind, and has not removed it.
    pub(crate) is_notice: bool,
}

/// A tool call without a result, of the message that ends the conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpenCall {
    pub(crate) id: String,
    pub(crate) tool: String,
    /// The id of the message that makes the call.
    pub(crate) message_id: Option<String>,
}

// === impl Conversation ===

impl<'a> Conversation<'a> {
    pub(crate) fn of(state: Option<&ThreadState<'a>>) -> Self {
        let mut conversation = Self::default();
        let values = state.and_then(|state| state.values.as_ref());
        let messages = values.and_then(|values| values.messages.as_deref());
        conversation.is_kept = messages.is_some();
        // A state that is no object is one all the same.
        let is_empty = values.is_none_or(|values| values.state.as_ref().is_some_and(Vec::is_empty));
        conversation.is_new = !conversation.is_kept && is_empty;
        let below = state.iter().flat_map(|state| &state.waiting).flat_map(|task| &task.messages);
        let ids = below.filter_map(|raw| langgraph::Message::parse(raw)?.id().map(Cow::into_owned));
        conversation.below = ids.collect();
        let messages = messages.unwrap_or_default();
        for (at, raw) in messages.iter().enumerate() {
            let Some(message) = langgraph::Message::parse(raw) else { continue };
            let index = conversation.messages.len();
            let calls = message.calls().into_iter().map(|call| call.id.into_owned());
            conversation.calls.extend(calls);
            conversation.answered.extend(message.tool_call_id().map(Cow::into_owned));
            match message.id() {
                Some(id) => conversation.by_id.insert(id.into_owned(), index),
                None => conversation.without_id.insert(format!(":m{at}"), index),
            };
            let is_notice = message.notice_source().is_some();
            conversation.messages.push(Held { at, raw, message, is_notice });
        }
        conversation
    }

    /// Whether the thread has no values: it is new, or LangGraph has lost it.
    pub(crate) fn is_new(&self) -> bool {
        self.is_new
    }

    /// Whether the state has a list of messages, which may be empty.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// The message that a client knows by this id.
    pub(crate) fn get(&self, id: &str) -> Option<&Held<'a>> {
        let place = || self.without_id.get(id.get(id.rfind(":m")?..)?);
        self.messages.get(*self.by_id.get(id).or_else(place)?)
    }

    pub(crate) fn has(&self, id: &str) -> bool {
        self.get(id).is_some()
    }

    /// The messages that every client gets: all but the notices.
    fn shown(&self) -> impl DoubleEndedIterator<Item = &Held<'a>> {
        self.messages.iter().filter(|held| !held.is_notice)
    }

    /// Whether the thread has a message, or a subgraph of it that waits for an answer. Clients know
    /// both.
    pub(crate) fn knows(&self, id: &str) -> bool {
        self.has(id) || self.below.contains(id)
    }

    /// Whether the conversation goes on after a message.
    pub(crate) fn goes_on_after(&self, held: &Held<'a>) -> bool {
        self.shown().next_back().is_some_and(|last| last.at > held.at)
    }

    /// Whether a client that has these messages has all.
    pub(crate) fn is_all_in<'m>(&self, ids: impl Iterator<Item = &'m str>) -> bool {
        let places: HashSet<_> = ids.filter_map(|id| self.get(id)).map(|held| held.at).collect();
        self.shown().all(|held| places.contains(&held.at))
    }

    /// Whether a client that has these messages has the newest one, and the newest of an agent.
    ///
    /// The newest message may be the client's own, of a run that failed.
    pub(crate) fn ends_with<'m>(&self, ids: impl Iterator<Item = &'m str>) -> bool {
        let is_agents = |held: &&Held<'_>| held.message.kind() != MessageType::Human;
        let agents = self.messages.iter().rfind(is_agents);
        let newest = [self.shown().next_back(), agents].into_iter().flatten();
        let mut missing: Vec<_> = newest.map(|held| held.at).collect();
        for held in ids.filter_map(|id| self.get(id)) {
            missing.retain(|at| *at != held.at);
        }
        missing.is_empty()
    }

    /// Whether no later message is a person's.
    pub(crate) fn is_last_of_person(&self, held: &Held<'a>) -> bool {
        let mut after = self.shown().filter(|other| other.at > held.at);
        !after.any(|other| other.message.kind() == MessageType::Human)
    }

    /// The calls that wait for a result. Only results may stand between a call and its result, so
    /// these are calls of the last message that is no result.
    pub(crate) fn open_calls(&self) -> Vec<OpenCall> {
        let mut answered = Vec::new();
        for Held { message, .. } in self.messages.iter().rev() {
            if message.kind() == MessageType::Tool {
                answered.extend(message.tool_call_id());
                continue;
            }
            let message_id = message.id().map(Cow::into_owned);
            let calls = message.calls().into_iter();
            let open = calls.filter(|call| !answered.contains(&call.id));
            let read = |call: langgraph::WholeCall<'_>| OpenCall {
                id: call.id.into_owned(),
                tool: call.name.into_owned(),
                message_id: message_id.clone(),
            };
            return open.map(read).collect();
        }
        Vec::new()
    }

    /// Whether a call of this id has a result.
    pub(crate) fn has_result(&self, call_id: &str) -> bool {
        self.answered.contains(call_id)
    }

    /// Whether a message makes a call of this id.
    pub(crate) fn has_call(&self, call_id: &str) -> bool {
        self.calls.contains(call_id)
    }
}

/// The id of a message of an input.
pub(crate) fn id_of(message: &RawValue) -> Option<Id> {
    langgraph::Message::parse(message)?.id().map(|id| Id::from(&*id))
}
