//! The messages that a run begins with.
//!
//! A provider refuses a result without its call, a second result for a call, and a call that is
//! followed by anything but its results. A [`Turn`] cannot hold such messages: a result goes in only
//! while its call is open, and a person's words close the calls that are still open.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};

use super::conversation::{Conversation, OpenCall};
use crate::json::{self, Json, ObjectWriter};
use crate::langgraph;
use crate::run::{LiveRun, Message, WhyDropped};

/// The result of a call that a person has left unanswered.
const UNANSWERED: &str = "No result: the person went on without it.";

/// The messages of a run's input, as a legal continuation of a conversation.
#[derive(Debug)]
pub(crate) struct Turn {
    messages: Vec<Json>,
    ids: HashSet<String>,
    open: Vec<OpenCall>,
    /// The calls that the turn answers, or that a live run does.
    answered: Vec<String>,
    /// Calls that are open, but not the client's to answer here.
    reserved: bool,
}

// === impl Turn ===

impl Turn {
    /// A turn after this conversation. A call that a live run answers is not open.
    pub(crate) fn after(conversation: &Conversation<'_>, live: &[LiveRun]) -> Self {
        let results = live.iter().flat_map(|run| &run.messages);
        let results = results.filter_map(|message| langgraph::Message::parse(message));
        let answered: Vec<_> =
            results.filter_map(|m| m.tool_call_id().map(Cow::into_owned)).collect();
        let mut open = conversation.open_calls();
        open.retain(|call| !answered.contains(&call.id));
        Self { messages: Vec::new(), ids: HashSet::new(), open, answered, reserved: false }
    }

    /// Keeps calls out of the turn: an answer to an interrupt will give their results.
    pub(crate) fn reserve(&mut self, is_reserved: impl Fn(&OpenCall) -> bool) {
        let before = self.open.len();
        self.open.retain(|call| !is_reserved(call));
        self.reserved |= self.open.len() < before;
    }

    /// Whether a call still waits for its result.
    pub(crate) fn has_open_calls(&self) -> bool {
        self.reserved || !self.open.is_empty()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Adds the result of an open call.
    pub(crate) fn answer(
        &mut self,
        result: &Message,
        call_id: &str,
        conversation: &Conversation<'_>,
        is_message: impl Fn(&str) -> bool,
    ) -> Result<(), WhyDropped> {
        let Some(at) = self.open.iter().position(|call| call.id == call_id) else {
            let is_answered = self.answered.iter().any(|answered| *answered == *call_id);
            return Err(if is_answered || conversation.has_result(call_id) {
                WhyDropped::Answered
            } else if conversation.has_call(call_id) {
                WhyDropped::WentOn
            } else {
                WhyDropped::NoCall
            });
        };
        if !self.ids.insert(result.id.to_string()) {
            return Err(WhyDropped::Repeated);
        }
        self.answered.push(self.open.swap_remove(at).id);
        self.messages.push(result.to_langchain(is_message));
        Ok(())
    }

    /// Gives the calls that are still open a result, before the person's words follow.
    ///
    /// Without a result, the provider would refuse the conversation from then on. The id of the
    /// result contains that of the message, because models repeat the ids of calls.
    pub(crate) fn abandon_calls(&mut self) {
        for call in self.open.drain(..) {
            let id = call.message_id.map(|message| format!("{message}:{}:unanswered", call.id));
            let object = ObjectWriter::new().string("type", "tool");
            let object = match id {
                Some(id) => object.string("id", &id),
                None => object,
            };
            let result = object
                .string("content", UNANSWERED)
                .string("tool_call_id", &call.id)
                .string("status", "error")
                .finish();
            self.messages.push(result);
        }
    }

    /// Adds what a person said, or an instruction.
    pub(crate) fn say(&mut self, message: &Message) -> Result<(), WhyDropped> {
        self.say_raw(&message.id, message.to_langchain(|_| false))
    }

    /// Adds a message of this id that is in LangGraph's form already.
    pub(crate) fn say_raw(&mut self, id: &str, message: Json) -> Result<(), WhyDropped> {
        if !self.ids.insert(id.to_owned()) {
            return Err(WhyDropped::Repeated);
        }
        self.messages.push(message);
        Ok(())
    }

    /// Adds an agent's message of a lost thread, with the results of its calls. A call without a
    /// result is left out.
    pub(crate) fn restore(
        &mut self,
        message: &Message,
        results: &mut HashMap<&str, VecDeque<&Message>>,
        is_message: impl Fn(&str) -> bool + Copy,
    ) {
        if self.ids.contains(&*message.id) {
            return;
        }
        let mut ids = HashSet::from([message.id.to_string()]);
        let (mut seen, mut calls) = (HashSet::new(), Vec::new());
        for call in message.calls.iter().filter(|call| seen.insert(&call.id)) {
            let result = results.get_mut(&*call.id).and_then(VecDeque::pop_front);
            let Some((call, result)) = call.to_langchain(is_message).zip(result) else { continue };
            if !self.ids.contains(&*result.id) && ids.insert(result.id.to_string()) {
                calls.push((call, result.to_langchain(is_message)));
            }
        }
        let text = message.content.text();
        if calls.is_empty() && text.is_empty() {
            return;
        }
        self.ids.extend(ids);
        let object = ObjectWriter::new()
            .string("type", "ai")
            .string("id", &message.id)
            .text("content", &text)
            .optional("name", message.name.as_ref());
        let list = json::array(calls.iter().map(|(call, _)| call.get()));
        let object = if calls.is_empty() { object } else { object.raw("tool_calls", list.get()) };
        self.messages.push(object.finish());
        self.messages.extend(calls.into_iter().map(|(_, result)| result));
    }

    /// The messages as a JSON array.
    pub(crate) fn to_json(&self) -> Json {
        json::array(self.messages.iter().map(|message| message.get()))
    }
}
