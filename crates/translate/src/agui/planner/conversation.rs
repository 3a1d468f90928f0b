//! The conversation of a thread, as a plan sees it.

use std::collections::HashMap;

use serde_json::value::RawValue;

use super::state::state_of;
use crate::agui::client::Version;
use crate::agui::message::as_shown;
use crate::langgraph::{self, MessageType, ThreadState};
use crate::run::{Id, Message, Role};

/// The messages of a thread's state.
#[derive(Default)]
pub(super) struct Conversation<'a> {
    messages: Vec<Held<'a>>,
    by_id: HashMap<String, usize>,
    /// Messages without an id, by the end of the id that clients get: `<thread id>:m<place>`.
    without_id: HashMap<String, usize>,
    is_new: bool,
    is_kept: bool,
}

/// A message of the thread.
pub(super) struct Held<'a> {
    /// Its place in the state's list.
    at: usize,
    pub(super) raw: &'a RawValue,
    message: langgraph::Message<'a>,
}

/// A tool call without a result, of the message that ends the conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OpenCall {
    pub(super) id: String,
    pub(super) tool: String,
    /// The id of the message that makes the call.
    pub(super) message_id: Option<String>,
}

// === impl Conversation ===

impl<'a> Conversation<'a> {
    pub(super) fn of(state: Option<&ThreadState<'a>>) -> Self {
        let mut conversation = Self::default();
        let values = state.and_then(|state| state.values.as_ref());
        let messages = values.and_then(|values| values.messages.as_deref());
        conversation.is_kept = messages.is_some();
        conversation.is_new = !conversation.is_kept && state_of(state).is_empty();
        let messages = messages.unwrap_or_default();
        for (at, raw) in messages.iter().enumerate() {
            let Some(message) = langgraph::Message::parse(raw) else { continue };
            let index = conversation.messages.len();
            match message.id() {
                Some(id) => conversation.by_id.insert(id.into_owned(), index),
                None => conversation.without_id.insert(format!(":m{at}"), index),
            };
            conversation.messages.push(Held { at, raw, message });
        }
        conversation
    }

    /// Whether the thread has no values: it is new, or LangGraph has lost it.
    pub(super) fn is_new(&self) -> bool {
        self.is_new
    }

    /// Whether the state has a list of messages, which may be empty.
    pub(super) fn is_kept(&self) -> bool {
        self.is_kept
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// The message that a client knows by this id.
    pub(super) fn get(&self, id: &str) -> Option<&Held<'a>> {
        let place = || self.without_id.get(id.get(id.rfind(":m")?..)?);
        self.messages.get(*self.by_id.get(id).or_else(place)?)
    }

    pub(super) fn has(&self, id: &str) -> bool {
        self.get(id).is_some()
    }

    /// Whether the conversation goes on after a message.
    pub(super) fn goes_on_after(&self, held: &Held<'a>) -> bool {
        self.messages.last().is_some_and(|last| last.at > held.at)
    }

    /// Whether a client that has these messages has the newest one, and the newest of an agent.
    ///
    /// The newest message may be the client's own, of a run that failed.
    pub(super) fn ends_with<'m>(&self, ids: impl Iterator<Item = &'m str>) -> bool {
        let is_agents = |held: &&Held<'_>| held.message.kind() != MessageType::Human;
        let agents = self.messages.iter().rfind(is_agents);
        let newest = [self.messages.last(), agents].into_iter().flatten();
        let mut missing: Vec<_> = newest.map(|held| held.at).collect();
        for held in ids.filter_map(|id| self.get(id)) {
            missing.retain(|at| *at != held.at);
        }
        missing.is_empty()
    }

    /// Whether no later message is a person's.
    pub(super) fn is_last_of_person(&self, held: &Held<'a>) -> bool {
        let after = self.messages.iter().filter(|other| other.at > held.at);
        !after.into_iter().any(|other| other.message.kind() == MessageType::Human)
    }

    /// The calls that wait for a result. Only results may stand between a call and its result, so
    /// these are calls of the last message that is no result.
    pub(super) fn open_calls(&self) -> Vec<OpenCall> {
        let mut answered = Vec::new();
        for Held { message, .. } in self.messages.iter().rev() {
            if message.kind() == MessageType::Tool {
                answered.extend(message.tool_call_id());
                continue;
            }
            let message_id = message.id().map(std::borrow::Cow::into_owned);
            let calls = message.calls().into_iter();
            let open = calls.filter(|call| !answered.iter().any(|id| *id == call.id));
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
    pub(super) fn has_result(&self, call_id: &str) -> bool {
        self.messages.iter().any(|held| held.message.tool_call_id().as_deref() == Some(call_id))
    }

    /// Whether a message makes a call of this id.
    pub(super) fn has_call(&self, call_id: &str) -> bool {
        self.messages.iter().any(|held| held.message.calls().iter().any(|c| c.id == call_id))
    }
}

// === impl Held ===

impl Held<'_> {
    /// Whether a client's copy has another content. Only copies of what a person said are compared.
    pub(super) fn differs_from(&self, sent: &Message, version: Version) -> bool {
        self.message.kind() == MessageType::Human && !is_form(&self.message, sent, version)
    }
}

/// Whether a client's message is this form of it: as LangGraph would return the client's content, or
/// as a client of this version is sent the form.
pub(super) fn is_form(form: &langgraph::Message<'_>, sent: &Message, version: Version) -> bool {
    let forms = Message::of_langchain(form, &sent.id);
    let Some(form) = forms.last().filter(|form| form.role == Role::User) else { return false };
    let (stored, shown) = (sent.stored().content, as_shown(&form.content, version));
    let is_sent = |form| stored.shows_same(form) || sent.content.shows_same(form);
    is_sent(&form.content) || is_sent(&shown)
}

/// The same for a form in JSON.
pub(super) fn is_form_of(form: &RawValue, sent: &Message, version: Version) -> bool {
    langgraph::Message::parse(form).is_some_and(|form| is_form(&form, sent, version))
}

/// The id of a message of an input.
pub(super) fn id_of(message: &RawValue) -> Option<Id> {
    langgraph::Message::parse(message)?.id().map(|id| Id::from(&*id))
}
