//! Pieces of messages, each added to what the client has of its message.

use std::sync::Arc;

use super::Assembler;
use super::streamed::Stage;
use crate::json::{Text, TextBuf};
use crate::langgraph::copilotkit::Emitted;
use crate::langgraph::copilotkit::PREDICT_STATE_EVENT;
use crate::langgraph::dialect::dialect_event::{Cost, Piece};
use crate::langgraph::{
    self, CallChunk, CallMetadata, Finish, Reasoning, Suppressed, SuppressedCalls,
};
use crate::run::message::Message;
use crate::run::{Id, Role, ToolStatus, commit, reasoning};

impl Assembler {
    /// Adds a piece to a message, unless the graph asked not to show it.
    pub(super) fn on_piece(
        &mut self,
        id: &Id,
        piece: Piece<'_>,
        agent: Option<&Id>,
        origin: &CallMetadata,
    ) {
        let suppressed = self.suppressed(origin);
        match piece {
            Piece::Text(text) if !suppressed.text && !text.is_empty() => {
                self.on_text(id, text, agent, origin);
            }
            Piece::Reasoning(piece) if !suppressed.text => self.on_reasoning(id, &piece, agent),
            Piece::Call(chunk) => self.on_call_chunk(id, chunk, agent, origin),
            Piece::Prefix(message) => self.on_prefix(id, message, agent, suppressed),
            Piece::Whole(message) => self.on_whole(message, agent, Some(origin)),
            Piece::Cost(cost) => {
                let usage = match cost {
                    Cost::Chunk(message) => self.usage.add_chunk(id, message, Some(origin)),
                    Cost::Total { usage, metadata } => {
                        Some(self.usage.set_finish(id, usage, metadata))
                    }
                };
                // The context window is that of the agent's own model.
                if let Some(usage) = usage
                    && !self.is_internal(origin)
                {
                    self.out.spent(id, usage, agent);
                }
            }
            Piece::Finish(finish) if !self.is_internal(origin) => self.note_finish(finish, agent),
            Piece::Text(_) | Piece::Reasoning(_) | Piece::Finish(_) => {}
            Piece::End => self.end_message(id),
        }
    }

    fn on_text(&mut self, id: &Id, text: Text, agent: Option<&Id>, origin: &CallMetadata) {
        self.close_reasoning(id);
        if let Some(streamed) = self.streamed.get_mut(id) {
            streamed.reasoning.interrupt();
        }
        if !self.view().open().texts.contains(id) {
            let name = origin.agent.as_deref().map(Text::new);
            self.out.open_text(id, Role::Assistant, name, agent);
        }
        self.out.text(id, text);
    }

    fn on_reasoning(&mut self, id: &Id, piece: &Reasoning<'_>, agent: Option<&Id>) {
        let Some(streamed) = self.streamed.get_mut(id) else { return };
        let view = self.out.view();
        let is_taken = |id: &str| view.message(id).is_some();
        let Some(placed) = streamed.reasoning.place(id, piece, is_taken) else { return };
        self.out.close_text(id);
        if !self.view().open().reasoning.contains(&placed.id) {
            self.close_reasoning(id);
        }
        self.open_reasoning(id, &placed.id, agent);
        if let Some(text) = placed.text {
            self.out.reasoning(&placed.id, text);
        }
        if let Some(sealed) = &piece.sealed {
            let before = self.view().message(&placed.id).and_then(|m| m.sealed.as_ref());
            let sealed = reasoning::join(before, sealed);
            self.out.sealed(&placed.id, sealed);
        }
    }

    fn on_call_chunk(
        &mut self,
        id: &Id,
        mut chunk: CallChunk<'_>,
        agent: Option<&Id>,
        origin: &CallMetadata,
    ) {
        let suppressed = self.suppressed(origin);
        if suppressed.calls == SuppressedCalls::All {
            return;
        }
        let Some(streamed) = self.streamed.get_mut(id) else { return };
        streamed.reasoning.interrupt();
        let is_predicted = streamed.is_predicted;
        let args = chunk.args.take();
        let Some(call) = streamed.call(&chunk) else { return };
        if let Some(wire) = &call.wire {
            let (wire, Some(args)) = (Arc::clone(wire), args) else { return };
            return self.out.call_args(&wire, args);
        }
        if let Some(args) = &args {
            call.early.push(args);
        }
        let (Some(raw_id), Some(name)) = (call.id.clone(), call.name.clone()) else { return };
        if suppressed.calls.has(&name) {
            call.early = TextBuf::default();
            return;
        }
        let early = call.early.to_text();
        if let (false, Some(predicted)) = (is_predicted, &origin.predict_state) {
            self.out.custom(PREDICT_STATE_EVENT, predicted.clone(), agent);
        }
        let wire = self.announce(id, &raw_id, &name, agent);
        if let Some(streamed) = self.streamed.get_mut(id) {
            streamed.is_predicted = true;
            if let Some(call) = streamed.call(&chunk) {
                call.wire = Some(Arc::clone(&wire));
            }
        }
        self.out.call_args(&wire, early);
    }

    /// Adds what a message's prefix has more than the client.
    fn on_prefix(
        &mut self,
        id: &Id,
        message: &langgraph::Message<'_>,
        agent: Option<&Id>,
        suppressed: &Suppressed,
    ) {
        let messages = Message::of_prefix(message, id);
        for part in messages.iter().filter(|_| !suppressed.text) {
            if part.role == Role::Reasoning {
                self.top_up_reasoning(id, part, agent);
            } else if !part.content.text().is_empty() {
                self.close_reasoning(id);
                self.top_up_text(part, agent);
            }
        }
        // The arguments are a guess until the message is complete; the names are not.
        for call in messages.iter().flat_map(|message| &message.calls) {
            let is_shown = !call.name.is_empty() && !suppressed.calls.has(&call.name);
            if is_shown && self.call_of(id, &call.id).is_none() {
                self.announce(id, &call.id, &call.name, agent);
            }
        }
    }

    /// Shows what a graph sends by itself, unless the client holds it.
    pub(super) fn on_emitted(&mut self, emitted: Emitted<'_>, agent: Option<&Id>) {
        match emitted {
            Emitted::Message { id, text } => {
                let id = self.id(&id);
                if self.view().message(&id).is_none() {
                    self.out.open_text(&id, Role::Assistant, None, agent);
                    self.out.text(&id, text);
                    self.out.close_text(&id);
                }
            }
            Emitted::Call { id, name, args } => {
                let (id, name) = (Id::from(&*id), Id::from(&*name));
                if self.view().call(&id).is_none() {
                    let wire = self.announce(&id, &id, &name, agent);
                    self.out.call_args(&wire, args);
                    self.out.close_call(&wire);
                }
            }
            Emitted::State(state) => self.out.state(state),
            Emitted::Custom(name, value) => self.out.custom(name, value, agent),
            Emitted::Malformed => {}
        }
    }

    /// Opens a call under an id that no other message's or owner's call has; returns that id.
    pub(super) fn announce(&mut self, id: &Id, raw_id: &Id, name: &Id, agent: Option<&Id>) -> Id {
        self.close_reasoning(id);
        self.out.close_text(id);
        let mut wire = Arc::clone(raw_id);
        // Once for another message's call, and once for each other owner that this message had.
        while !self.out.may_call(&wire, id, agent) {
            wire = commit::qualified_call_id(&wire, id);
        }
        self.out.open_call(&wire, name, id, agent);
        wire
    }

    pub(super) fn open_reasoning(&mut self, id: &Id, reasoning_id: &Id, agent: Option<&Id>) {
        if let Some(streamed) = self.streamed.get_mut(id)
            && !streamed.reasoning_ids.contains(reasoning_id)
        {
            streamed.reasoning_ids.push(Arc::clone(reasoning_id));
        }
        self.out.open_reasoning(reasoning_id, agent);
    }

    pub(super) fn close_reasoning(&mut self, id: &Id) {
        if self.view().open().reasoning.is_empty() {
            return;
        }
        let Some(streamed) = self.streamed.get(id) else { return };
        let ids = streamed.reasoning_ids.clone();
        for reasoning_id in &ids {
            self.out.close_reasoning(reasoning_id);
        }
    }

    /// The model has finished a message. A call without arguments stays open: they may come with the
    /// whole message. Its tool runs all the same.
    fn end_message(&mut self, id: &Id) {
        for (call, has_args) in self.close_texts(id) {
            if has_args {
                self.out.close_call(&call);
            } else {
                self.out.tool(&call, ToolStatus::Running);
            }
        }
    }

    /// Nothing of a message is to come: closes its reasoning, its text and its calls.
    pub(super) fn close_message(&mut self, id: &Id) {
        for (call, _) in self.close_texts(id) {
            self.out.close_call(&call);
        }
    }

    /// Closes the reasoning and the text of a message. Returns its open calls, and whether they have
    /// arguments.
    pub(super) fn close_texts(&mut self, id: &Id) -> Vec<(Id, bool)> {
        if let Some(streamed) = self.streamed.get_mut(id) {
            streamed.reach(Stage::Finished);
        }
        self.close_reasoning(id);
        self.out.close_text(id);
        let (view, open) = (self.view(), &self.view().open().calls);
        let calls = view.message(id).map(|message| message.calls.as_slice()).unwrap_or_default();
        let calls = calls.iter().filter(|call| open.contains(&call.id));
        calls.map(|call| (Arc::clone(&call.id), !call.args.is_empty())).collect()
    }

    /// Notes why the run's own model stopped. A subagent's model is its caller's affair.
    pub(super) fn note_finish(&mut self, finish: Finish, agent: Option<&Id>) {
        if agent.is_none() {
            self.finish = finish;
        }
    }
}
