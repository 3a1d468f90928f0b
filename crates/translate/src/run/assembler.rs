//! Which dialect owns which message, and what is added to it.
//!
//! One message may come in several stream modes at once.
//! The first dialect that brings a message owns it: a second one would double its text.
//! A whole message, whichever mode brings it, adds what is missing and closes the message.
//!
//! - this file: which dialect owns a message;
//! - `beginning`: whether a message may lack its beginning, because the stream was joined late;
//! - `chunk_ids`: which message a chunk of LangChain's belongs to;
//! - `nodes`: the steps and subagents that messages belong to;
//! - `pieces`: adds each piece to its message;
//! - `streamed`: how far one message is.

mod beginning;
mod chunk_ids;
mod nodes;
mod pieces;
mod streamed;

use std::sync::Arc;

use self::chunk_ids::ChunkIds;
use self::streamed::{Owner, Stage, StreamedMessage, StreamedMessages, shared_id};
use super::commit;
use super::event_writer::EventWriter;
use super::message::Message;
use super::steps::Steps;
use super::usage::{Usage, UsageByMessage};
use super::{Content, Harness, Id, Role, View};
use crate::json::Text;
use crate::langgraph::dialect::DialectName;
use crate::langgraph::dialect::dialect_event::{DialectEvent, MessageId, Piece, Producer};
use crate::langgraph::dialect::is_made_up;
use crate::langgraph::{self, CallMetadata, Finish, Suppressed};

pub(super) use self::beginning::Beginning;

/// Merges the events of all dialects, and whole messages, into one view.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    pub(super) out: EventWriter,
    pub(super) steps: Steps,
    pub(super) beginning: Beginning,
    /// What becomes of the harness's messages and model calls.
    pub(super) harness: Harness,
    streamed: StreamedMessages,
    chunk_ids: ChunkIds,
    usage: UsageByMessage,
    /// Why the run's own model stopped the last time.
    finish: Finish,
}

// === impl Assembler ===

impl Assembler {
    /// What a client holds that has applied all events so far.
    pub(super) fn view(&self) -> &View {
        self.out.view()
    }

    /// Why the run's own model stopped the last time.
    pub(super) fn finish(&self) -> Finish {
        self.finish
    }

    /// The tokens that the run has used, per model.
    pub(super) fn cost(&self) -> Vec<Usage> {
        self.usage.sums()
    }

    /// Whether a message is not complete. The end of a complete message's call may be held back.
    pub(super) fn is_mid_sentence(&self) -> bool {
        let (view, open) = (self.view(), self.view().open());
        let is_complete = |call: &Id| {
            let streamed = view.call(call).and_then(|(message, _)| self.streamed.get(&message.id));
            streamed.is_some_and(StreamedMessage::is_complete)
        };
        !open.texts.is_empty() || !open.reasoning.is_empty() || !open.calls.iter().all(is_complete)
    }

    /// Closes what is open, and forgets which dialect owns which message.
    pub(super) fn break_off(&mut self) {
        self.out.close_all();
        self.steps.clear();
        self.streamed.clear();
        self.chunk_ids.clear();
    }

    /// Takes in what a dialect says.
    pub(super) fn take(&mut self, dialect: DialectName, event: DialectEvent<'_, '_>) {
        match event {
            DialectEvent::Pieces { producer, message, pieces } => {
                self.on_pieces(dialect, producer, message, pieces);
            }
            DialectEvent::Whole { producer, message } => {
                let agent = self.enter(producer);
                self.on_whole(message, agent.as_ref(), Some(producer.origin));
            }
            DialectEvent::Emitted { producer, emitted } => {
                let agent = self.enter(producer);
                self.on_emitted(emitted, agent.as_ref());
            }
            DialectEvent::Node { namespace, task, node, agent, edge } => {
                self.on_node(namespace, task, node, agent, edge);
            }
            DialectEvent::Subgraph { namespace, agent, call, edge } => {
                self.on_subgraph(namespace, agent, call, edge);
            }
        }
    }

    fn on_pieces(
        &mut self,
        dialect: DialectName,
        producer: Producer<'_>,
        message: MessageId<'_>,
        pieces: &mut dyn Iterator<Item = Piece<'_>>,
    ) {
        let origin = producer.origin;
        let id = match message {
            MessageId::Own(id) => self.id(id),
            MessageId::OfChunk { id, kind } => {
                self.chunk_ids.message_of(id, kind, origin, &self.streamed)
            }
        };
        // A dialect that marks subgraphs opens none for a message that another one owns.
        let entered = (!dialect.marks_subgraphs()).then(|| self.enter(producer));
        if self.owns(&id, dialect, origin) {
            let agent = entered.unwrap_or_else(|| self.enter(producer));
            for piece in pieces {
                self.on_piece(&id, piece, agent.as_ref(), origin);
            }
        }
    }

    /// Whether a dialect owns a message: it was the first to bring it, and the client did not hold
    /// the message before.
    fn owns(&mut self, id: &Id, dialect: DialectName, origin: &CallMetadata) -> bool {
        if let Some(streamed) = self.streamed.get(id) {
            return streamed.owner == Owner::Dialect(dialect);
        }
        // A message that may lack its beginning is withheld until it comes whole.
        let is_withheld = !dialect.starts_messages() && self.beginning.may_lack(origin);
        let is_held = self.view().message(id).is_some();
        let owner = if is_withheld || is_held { Owner::Nobody } else { Owner::Dialect(dialect) };
        let task = origin.task().map(str::to_owned);
        let suppressed = self.suppressed(origin).clone();
        self.streamed.insert(Arc::clone(id), StreamedMessage::new(owner, task, suppressed));
        owner == Owner::Dialect(dialect)
    }

    /// Whether a model's call is the harness's own, and is not shown.
    fn is_internal(&self, origin: &CallMetadata) -> bool {
        origin.is_harness && self.harness != Harness::Show
    }

    /// What is not streamed of a model's call.
    fn suppressed<'o>(&self, origin: &'o CallMetadata) -> &'o Suppressed {
        if self.is_internal(origin) { Suppressed::ALL } else { &origin.suppressed }
    }

    /// The shared form of a message's id, so that a token costs no allocation for it.
    fn id(&self, id: &str) -> Id {
        shared_id(&self.streamed, id)
    }

    // --- whole messages ---

    /// A message came whole in a stream: adds what is missing of it, and closes it.
    pub(super) fn on_whole(
        &mut self,
        message: &langgraph::Message<'_>,
        agent: Option<&Id>,
        origin: Option<&CallMetadata>,
    ) {
        let Some(id) = message.id().map(|id| self.id(&id)) else { return };
        let messages = self.converted(message, &id);
        match self.streamed_as(&id, &messages) {
            None => self.complete(&id, message, &messages, agent, origin),
            Some(id) => self.complete(&id, message, &self.converted(message, &id), agent, origin),
        }
    }

    /// The messages that a LangChain message becomes under this id.
    fn converted(&self, message: &langgraph::Message<'_>, id: &Id) -> Vec<Arc<Message>> {
        let mut messages = Message::of_langchain(message, id, self.harness);
        // `Conversation` renames the calls of a state's tool messages; here the view names them.
        if let Some(call) = messages.iter_mut().find_map(|message| message.call_id.as_mut()) {
            *call = self.out.wire_call_id(call);
        }
        messages.into_iter().map(Arc::new).collect()
    }

    /// A superstep has committed a message, which may stream anew in the next one.
    pub(super) fn on_committed(
        &mut self,
        id: &Id,
        source: &langgraph::Message<'_>,
        messages: &[Arc<Message>],
    ) {
        match self.streamed_as(id, messages) {
            None => self.commit(id, source, messages),
            Some(id) => self.commit(&id, source, &self.converted(source, &id)),
        }
    }

    fn commit(&mut self, id: &Id, source: &langgraph::Message<'_>, messages: &[Arc<Message>]) {
        self.complete(id, source, messages, None, None);
        self.adopt(messages);
        self.streamed.remove(id);
    }

    /// The id under which a whole message has streamed, if that is another: a made-up id, of a message
    /// with the same text and calls that has not come whole itself.
    ///
    /// Clients hold the message under that id until the snapshot at the run's end.
    fn streamed_as(&mut self, id: &Id, messages: &[Arc<Message>]) -> Option<Id> {
        if let Some(known) = self.chunk_ids.streamed_as(id) {
            return Some(known);
        }
        let view = self.view();
        let own = messages.iter().find(|message| message.role == Role::Assistant)?;
        let is_silent = own.content.is_empty() && own.calls.is_empty();
        if is_silent || view.message(id).is_some() {
            return None;
        }
        let is_it = |(other, streamed): &(&Id, &StreamedMessage)| {
            is_made_up(other)
                && streamed.may_be_another()
                && view.message(other).is_some_and(|held| held.says_same(own))
        };
        // Of equal messages the earliest is taken. A map has no order of its own.
        let equal = self.streamed.iter().filter(is_it).map(|(other, _)| other);
        let streamed = Arc::clone(equal.min_by_key(|other| view.place_of(other))?);
        self.chunk_ids.note(id, &streamed);
        Some(streamed)
    }

    /// The run's own conversation has these messages. Those that a subagent wrote for a call are no
    /// longer a part of that call's work.
    fn adopt(&mut self, messages: &[Arc<Message>]) {
        for message in messages {
            let author = self.view().message(&message.id).and_then(|held| held.agent.as_ref());
            if author.is_some_and(|author| self.steps.is_callee(author)) {
                self.out.adopt(message);
            }
        }
    }

    /// Adds what is missing of a LangChain message and of what it became, and closes it.
    fn complete(
        &mut self,
        id: &Id,
        source: &langgraph::Message<'_>,
        messages: &[Arc<Message>],
        agent: Option<&Id>,
        origin: Option<&CallMetadata>,
    ) {
        let is_new = !self.streamed.contains_key(id);
        let was_held = is_new && self.view().message(id).is_some();
        let suppressed = match self.streamed.get(id) {
            Some(streamed) => streamed.suppressed.clone(),
            None if was_held => Suppressed::default(),
            None => origin.map(|origin| self.suppressed(origin).clone()).unwrap_or_default(),
        };
        for part in messages {
            match part.role {
                Role::Reasoning if suppressed.text => {}
                Role::Reasoning => {
                    self.top_up_reasoning(id, part, agent);
                    self.out.close_reasoning(&part.id);
                }
                Role::Tool => self.top_up_result(part, agent),
                Role::User | Role::Assistant | Role::System | Role::Developer => {
                    self.top_up_message(part, agent, &suppressed);
                }
                Role::Attachment => {}
            }
        }
        // An earlier run has paid for what the client held before this one.
        if !was_held {
            let is_internal = origin.is_some_and(|origin| self.is_internal(origin));
            if let Some(usage) = self.usage.set_whole(id, source, origin)
                && !is_internal
            {
                self.out.spent(id, usage, agent);
            }
            if let Some(finish) = source.finish()
                && !is_internal
            {
                self.note_finish(finish, agent);
            }
        }
        self.close_message(id);
        if let Some(streamed) = self.streamed.get_mut(id) {
            streamed.reach(Stage::Whole);
        }
        if !suppressed.text {
            for part in messages.iter().filter(|part| part.role == Role::Attachment) {
                self.out.attach(part, agent);
            }
        }
        if is_new && !was_held {
            let task = origin.and_then(CallMetadata::task).map(str::to_owned);
            let mut streamed = StreamedMessage::new(Owner::Nobody, task, suppressed);
            streamed.reach(Stage::Whole);
            self.streamed.insert(Arc::clone(id), streamed);
        }
    }

    fn top_up_message(&mut self, part: &Message, agent: Option<&Id>, suppressed: &Suppressed) {
        // Only a snapshot can carry media: the end of the run brings them.
        if matches!(part.content, Content::Parts(_)) {
            return;
        }
        let is_silent = part.content.text().is_empty() && part.calls.is_empty();
        if is_silent && !suppressed.text && self.view().message(&part.id).is_none() {
            self.out.open_text(&part.id, part.role, part.name.clone(), agent);
        }
        if !suppressed.text {
            self.top_up_text(part, agent);
        }
        for call in part.calls.iter().filter(|call| !suppressed.calls.has(&call.name)) {
            let wire = match self.call_of(&part.id, &call.id) {
                Some(wire) => wire,
                None => self.announce(&part.id, &call.id, &call.name, agent),
            };
            let held = self.view().call(&wire).is_some_and(|(_, held)| !held.args.is_empty());
            if !held {
                self.out.call_args(&wire, call.args.to_text());
            }
            self.out.close_call_of(&wire, call.form);
        }
    }

    fn top_up_result(&mut self, part: &Message, agent: Option<&Id>) {
        let Some(call_id) = &part.call_id else { return };
        // A client that holds the tool message gets no second result.
        if self.view().message(&part.id).is_none() {
            let agent = match self.view().call(call_id) {
                Some((owner, _)) => owner.agent.clone(),
                None => agent.cloned(),
            };
            let is_error = part.error.is_some();
            self.out.result(&part.id, call_id, part.content.clone(), is_error, agent.as_ref());
        }
    }

    fn top_up_text(&mut self, part: &Message, agent: Option<&Id>) {
        if let Some(missing) = self.missing_of(part) {
            self.out.open_text(&part.id, part.role, part.name.clone(), agent);
            self.out.text(&part.id, missing);
        }
    }

    fn top_up_reasoning(&mut self, id: &Id, part: &Message, agent: Option<&Id>) {
        if self.has_streamed_reasoning(id, part) {
            return;
        }
        let held = self.view().message(&part.id);
        let is_known = held.is_some();
        let sealed = held.and_then(|held| held.sealed.clone());
        let missing = self.missing_of(part);
        if !is_known || missing.is_some() {
            self.open_reasoning(id, &part.id, agent);
        }
        if let Some(missing) = missing {
            self.out.reasoning(&part.id, missing);
        }
        if let Some(new) = part.sealed.clone().filter(|new| sealed.as_ref() != Some(new)) {
            self.out.sealed(&part.id, new);
        }
    }

    /// Whether new reasoning of a whole message has streamed in the same task, as that of a message
    /// under another id.
    fn has_streamed_reasoning(&mut self, id: &Id, part: &Message) -> bool {
        let view = self.out.view();
        if view.message(&part.id).is_some() {
            return false;
        }
        let Some(streamed) = self.streamed.get(id) else { return false };
        if streamed.reasoning_ids.contains(&part.id) {
            return true;
        }
        let Some(task) = streamed.task.clone() else { return false };
        let says_it =
            |reasoning_id: &Id| view.message(reasoning_id).is_some_and(|held| held.says_same(part));
        let mut others = self.streamed.iter_mut().filter(|(other, streamed)| {
            *other != id && streamed.may_be_another() && streamed.task.as_ref() == Some(&task)
        });
        let found = others.find(|(_, streamed)| streamed.reasoning_ids.iter().any(says_it));
        let Some((_, other)) = found else { return false };
        // It is not dropped as a part of a failed attempt.
        other.reach(Stage::Whole);
        if let Some(streamed) = self.streamed.get_mut(id) {
            streamed.reasoning_ids.push(Arc::clone(&part.id));
        }
        true
    }

    /// The rest of a message's text that the client lacks. `None` if the client's text is no
    /// beginning of it: only a snapshot can mend that.
    fn missing_of(&self, part: &Message) -> Option<Text> {
        let whole = part.content.text();
        let missing = match self.view().message(&part.id).map(|held| &held.content) {
            Some(Content::Text(held)) => held.rest_of(&whole),
            Some(Content::Absent) | None => Some(whole),
            Some(Content::Parts(_)) => None,
        };
        missing.filter(|missing| !missing.is_empty())
    }

    /// The id on our wires of a message's call, if the message is known to make it.
    fn call_of(&self, id: &Id, call_id: &Id) -> Option<Id> {
        let qualified = commit::qualified_call_id(call_id, id);
        let calls = &self.view().message(id)?.calls;
        let known = calls.iter().find(|call| call.id == *call_id || call.id == qualified);
        known.map(|call| Arc::clone(&call.id))
    }
}
