//! Messages that come whole: what is missing of them is said, and they are closed.

use std::sync::Arc;

use super::Translator;
use crate::json::Text;
use crate::langgraph::{self, Mutes, Origin};
use crate::run::message::Message;
use crate::run::speech::{Source, Speech};
use crate::run::{Content, Id, Role, commit};

impl Translator {
    /// A message that came whole: adds what is missing of it, and closes it.
    pub(super) fn on_whole(
        &mut self,
        message: &langgraph::Message<'_>,
        agent: Option<&Id>,
        origin: Option<&Arc<Origin>>,
    ) {
        let Some(id) = message.id().map(|id| self.id(&id)) else { return };
        let mut messages = Message::of_langchain(message, &id);
        // A state names the calls of its tool messages as it goes; here the view does.
        if let Some(call) = messages.iter_mut().find_map(|message| message.call_id.as_mut()) {
            *call = self.out.wire_call_id(call);
        }
        let messages: Vec<_> = messages.into_iter().map(Arc::new).collect();
        self.say_whole(&id, message, &messages, agent, origin);
    }

    pub(super) fn say_whole(
        &mut self,
        id: &Id,
        source: &langgraph::Message<'_>,
        messages: &[Arc<Message>],
        agent: Option<&Id>,
        origin: Option<&Arc<Origin>>,
    ) {
        let is_new = !self.speeches.contains_key(id);
        let was_held = is_new && self.view().message(id).is_some();
        let mutes = match self.speeches.get(id) {
            Some(speech) => speech.mutes,
            None if was_held => Mutes::default(),
            None => origin.map(|origin| origin.mutes).unwrap_or_default(),
        };
        for part in messages {
            match part.role {
                Role::Reasoning if mutes.text => {}
                Role::Reasoning => {
                    self.top_up_thought(id, part, agent);
                    self.out.close_thought(&part.id);
                }
                Role::Tool => self.say_result(part, agent),
                Role::User | Role::Assistant | Role::System | Role::Developer => {
                    self.say_text(part, agent, mutes);
                }
                Role::Attachment => {}
            }
        }
        // What the client held before this run was paid for before this run.
        if !was_held {
            let usage = self.usage.set_whole(id, source, origin.map(|origin| &**origin));
            if let Some(usage) = usage {
                self.out.spent(id, usage, agent);
            }
            self.note_finish(source.finish(), agent);
        }
        self.close_message(id);
        if !mutes.text {
            for part in messages.iter().filter(|part| part.role == Role::Attachment) {
                self.out.attach(part, agent);
            }
        }
        if is_new && !was_held {
            let task = origin.and_then(|origin| origin.task()).map(str::to_owned);
            self.speeches.insert(Arc::clone(id), Speech::new(Source::Whole, task, mutes));
        }
    }

    pub(super) fn say_text(&mut self, part: &Message, agent: Option<&Id>, mutes: Mutes) {
        // Only a snapshot can carry media: the end of the run brings them.
        if matches!(part.content, Content::Parts(_)) {
            return;
        }
        let is_silent = part.content.text().is_empty() && part.calls.is_empty();
        if is_silent && !mutes.text && self.view().message(&part.id).is_none() {
            self.out.open_text(&part.id, part.role, part.name.clone(), agent);
        }
        if !mutes.text {
            self.top_up_text(part, agent);
        }
        for call in part.calls.iter().filter(|_| !mutes.calls) {
            let wire = match self.call_of(&part.id, &call.id) {
                Some(wire) => wire,
                None => self.announce(&part.id, &call.id, &call.name, agent),
            };
            let held = self.view().call(&wire).is_some_and(|(_, held)| !held.args.is_empty());
            let args = call.args.to_text();
            if !held && !args.is_empty() {
                self.out.open_call(&wire, &call.name, &part.id, agent);
                self.out.call_args(&wire, args);
            }
            self.out.close_call(&wire);
        }
    }

    pub(super) fn say_result(&mut self, part: &Message, agent: Option<&Id>) {
        let Some(call_id) = &part.call_id else { return };
        // Never a second time for a tool message that the reader already holds.
        if self.view().message(&part.id).is_none() {
            let agent = match self.view().call(call_id) {
                Some((owner, _)) => owner.agent.clone(),
                None => agent.cloned(),
            };
            let is_error = part.error.is_some();
            self.out.result(&part.id, call_id, part.content.clone(), is_error, agent.as_ref());
        }
    }

    /// What the client lacks of a message's text. A text that went another way waits for a
    /// snapshot.
    fn missing_of(&self, part: &Message) -> Option<Text> {
        let whole = part.content.text();
        let missing = match self.view().message(&part.id).map(|held| &held.content) {
            Some(Content::Text(held)) => held.rest_of(&whole),
            Some(Content::Absent) | None => Some(whole),
            Some(Content::Parts(_)) => None,
        };
        missing.filter(|missing| !missing.is_empty())
    }

    /// Says what is missing of a text.
    pub(super) fn top_up_text(&mut self, part: &Message, agent: Option<&Id>) {
        if let Some(missing) = self.missing_of(part) {
            self.out.open_text(&part.id, part.role, part.name.clone(), agent);
            self.out.text(&part.id, missing);
        }
    }

    pub(super) fn top_up_thought(&mut self, id: &Id, part: &Message, agent: Option<&Id>) {
        let held = self.view().message(&part.id);
        let is_known = held.is_some();
        let sealed = held.and_then(|held| held.sealed.clone());
        let missing = self.missing_of(part);
        if !is_known || missing.is_some() {
            self.open_thought(id, &part.id, agent);
        }
        if let Some(missing) = missing {
            self.out.thought(&part.id, missing);
        }
        if let Some(new) = part.sealed.clone().filter(|new| sealed.as_ref() != Some(new)) {
            self.out.sealed(&part.id, new);
        }
    }

    pub(super) fn open_thought(&mut self, id: &Id, thought: &Id, agent: Option<&Id>) {
        if let Some(speech) = self.speeches.get_mut(id)
            && !speech.thought_ids.contains(thought)
        {
            speech.thought_ids.push(Arc::clone(thought));
        }
        self.out.open_thought(thought, agent);
    }

    /// A message is through: closes its thoughts, its text and its calls.
    pub(super) fn close_message(&mut self, id: &Id) {
        if let Some(speech) = self.speeches.get_mut(id) {
            speech.is_over = true;
        }
        self.close_thoughts(id);
        self.out.close_text(id);
        let open: Vec<Id> = match self.view().message(id) {
            Some(message) => message.calls.iter().map(|call| Arc::clone(&call.id)).collect(),
            None => return,
        };
        for call in &open {
            self.out.close_call(call);
        }
    }

    pub(super) fn close_thoughts(&mut self, id: &Id) {
        if self.view().open().thoughts.is_empty() {
            return;
        }
        let Some(speech) = self.speeches.get(id) else { return };
        let ids = speech.thought_ids.clone();
        for thought in &ids {
            self.out.close_thought(thought);
        }
    }

    /// The id on our wires of a message's call, if the message is known to make it.
    pub(super) fn call_of(&self, id: &Id, call_id: &Id) -> Option<Id> {
        let qualified = commit::qualified_call_id(call_id, id);
        let calls = &self.view().message(id)?.calls;
        let known = calls.iter().find(|call| call.id == *call_id || call.id == qualified);
        known.map(|call| Arc::clone(&call.id))
    }

    /// The shared form of an id, so that a token costs no allocation for it.
    pub(super) fn id(&self, id: &str) -> Id {
        match self.speeches.get_key_value(id) {
            Some((known, _)) => Arc::clone(known),
            None => Id::from(id),
        }
    }
}
