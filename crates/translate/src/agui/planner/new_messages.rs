//! Which messages of a request are new to its thread.

use std::collections::HashMap;
use std::sync::Arc;

use super::RequestPlanner;
use crate::agui::client::Version;
use crate::agui::message::as_shown;
use crate::langgraph::{self, MessageType, ThreadState};
use crate::run::{Message, Role};

impl RequestPlanner<'_> {
    /// The messages that LangGraph does not know, and the message before which the run forks.
    ///
    /// Two user messages start a fork, and go up again: a known one whose content has changed, and
    /// the client's last one if the thread goes on after it. The second is to be answered again.
    pub(super) fn new_messages(
        &self,
        thread: Option<&ThreadState<'_>>,
    ) -> (Vec<&Message>, Option<String>) {
        let sent = &self.input.messages;
        let known = KnownMessages::of(thread.and_then(|thread| thread.values.as_ref()));
        let is_edited = |sent: &Arc<Message>| {
            let is_unchanged = |known| is_unchanged(known, sent, self.input.version);
            sent.role == Role::User && known.get(&sent.id).is_some_and(|known| !is_unchanged(known))
        };
        if let Some(at) = sent.iter().position(is_edited) {
            let rest = sent.get(at..).unwrap_or_default();
            let fork = rest.first().map(|message| message.id.to_string());
            return (self.allowed(rest).collect(), fork);
        }
        let new: Vec<_> = self.after_known(&known).collect();
        if new.is_empty()
            && let Some(last) = sent.last().filter(|message| message.role == Role::User)
            && known.has_more_after(&last.id)
        {
            return (vec![&**last], Some(last.id.to_string()));
        }
        (new, None)
    }

    /// The messages after the last known one. Earlier messages are old, even if the thread has
    /// deleted some of them.
    pub(in crate::agui) fn after_known(
        &self,
        known: &KnownMessages<'_>,
    ) -> impl Iterator<Item = &Message> {
        let sent = &self.input.messages;
        let is_known = |sent: &Arc<Message>| known.get(&sent.id).is_some();
        let first_new = sent.iter().rposition(is_known).map_or(0, |last| last + 1);
        self.allowed(sent.get(first_new..).unwrap_or_default())
    }

    /// The messages whose role the operator allows.
    fn allowed<'a>(&self, messages: &'a [Arc<Message>]) -> impl Iterator<Item = &'a Message> {
        let messages = messages.iter().map(|message| &**message);
        messages.filter(|message| self.allowance.takes(message.role))
    }
}

/// The messages of a thread, by the ids that a client knows them under.
#[derive(Default)]
pub(in crate::agui) struct KnownMessages<'a> {
    by_id: HashMap<String, (usize, langgraph::Message<'a>)>,
    /// Messages without an id, by the end of the id that clients get: `<thread id>:m<place>`.
    without_id: HashMap<String, (usize, langgraph::Message<'a>)>,
    count: usize,
}

impl<'a> KnownMessages<'a> {
    pub(in crate::agui) fn of(values: Option<&langgraph::Values<'a>>) -> Self {
        let mut known = Self::default();
        let messages = values.and_then(|values| values.messages.as_deref()).unwrap_or_default();
        known.count = messages.len();
        for (at, raw) in messages.iter().enumerate() {
            let Some(message) = langgraph::Message::parse(raw) else { continue };
            match message.id() {
                Some(id) => known.by_id.insert(id.into_owned(), (at, message)),
                None => known.without_id.insert(format!(":m{at}"), (at, message)),
            };
        }
        known
    }

    fn find(&self, id: &str) -> Option<&(usize, langgraph::Message<'a>)> {
        let place = || self.without_id.get(id.get(id.rfind(":m")?..)?);
        self.by_id.get(id).or_else(place)
    }

    fn get(&self, id: &str) -> Option<&langgraph::Message<'a>> {
        self.find(id).map(|(_, message)| message)
    }

    fn has_more_after(&self, id: &str) -> bool {
        self.find(id).is_some_and(|(at, _)| at + 1 < self.count)
    }
}

/// Whether a client that was sent a known message would send it back in this form.
fn is_unchanged(known: &langgraph::Message<'_>, sent: &Message, version: Version) -> bool {
    if known.kind() != MessageType::Human {
        return true;
    }
    let known = Message::of_langchain(known, &sent.id);
    let shown = |known: &Message| as_shown(&known.content, version);
    known.last().is_none_or(|known| shown(known).shows_same(&sent.content))
}
