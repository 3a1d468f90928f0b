//! Messages as they stream: tokens, prefixes, and the origin that the server tells beside them.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::Translator;
use crate::json::{self, Text};
use crate::langgraph::{self, Block, CallChunk, MessageType, Origin};
use crate::run::speech::{Source, Speech};
use crate::run::{Id, Role, commit};
use crate::run::{Message, reasoning};

impl Translator {
    pub(super) fn on_message(
        &mut self,
        namespace: &str,
        message: &langgraph::Message<'_>,
        origin: &Arc<Origin>,
        source: Source,
    ) {
        match message.kind() {
            MessageType::AiChunk if source != Source::Partial => {
                self.on_chunk(namespace, message, origin, source);
            }
            MessageType::Remove => {}
            MessageType::Ai
            | MessageType::AiChunk
            | MessageType::Human
            | MessageType::Tool
            | MessageType::System
            | MessageType::Developer
            | MessageType::Other => {
                let agent = self.enter(namespace, origin);
                self.on_whole(message, agent.as_ref(), Some(origin));
            }
        }
    }

    /// A token.
    pub(super) fn on_chunk(
        &mut self,
        namespace: &str,
        message: &langgraph::Message<'_>,
        origin: &Arc<Origin>,
        source: Source,
    ) {
        // Without an id it cannot be told whose token this is: it is shown once committed.
        let Some(id) = message.id().map(|id| self.spoken_id(&id, origin)) else { return };
        let agent = self.enter(namespace, origin);
        if !self.claims(&id, source, origin) {
            return;
        }
        for block in message.blocks() {
            self.on_block(&id, &block, agent.as_ref(), origin);
        }
        if !origin.mutes.calls {
            for chunk in message.call_chunks() {
                self.on_call_chunk(&id, &chunk, agent.as_ref(), origin);
            }
        }
        if let Some(usage) = self.usage.add_chunk(&id, message, Some(origin)) {
            self.out.spent(&id, usage, agent.as_ref());
        }
        self.note_finish(message.finish(), agent.as_ref());
        if message.is_last() {
            self.close_message(&id);
        }
    }

    /// The message that a chunk belongs to.
    ///
    /// LangChain names the chunks of a call after its own run, but leaves a provider's id on the
    /// first chunk that brings one, and gives that id to the whole message.
    fn spoken_id(&mut self, id: &str, origin: &Origin) -> Id {
        if let Some(first) = self.aliases.get(id) {
            return Arc::clone(first);
        }
        let id = self.id(id);
        if origin.checkpoint_ns.is_empty() || self.speeches.contains_key(&id) {
            return id;
        }
        if !id.starts_with("lc_run--") {
            self.first_ids.insert(origin.checkpoint_ns.clone(), Arc::clone(&id));
            return id;
        }
        let first = self.first_ids.get(&origin.checkpoint_ns);
        let is_under_way = |first: &&Id| self.speeches.get(*first).is_some_and(|s| !s.is_over);
        match first.filter(is_under_way).map(Arc::clone) {
            Some(first) => {
                self.aliases.insert(id, Arc::clone(&first));
                first
            }
            None => id,
        }
    }

    /// Whether a mode speaks for a message: it was the first to, and the client did not hold the
    /// message before.
    pub(super) fn claims(&mut self, id: &Id, source: Source, origin: &Origin) -> bool {
        if let Some(speech) = self.speeches.get(id) {
            return speech.source == source;
        }
        // A prefix tells its message from the beginning, and so does the newer protocol.
        let is_withheld =
            matches!(source, Source::Tuple | Source::Events) && self.may_have_missed(origin);
        let is_held = self.view().message(id).is_some();
        let claim = if is_withheld || is_held { Source::Whole } else { source };
        let task = origin.task().map(str::to_owned);
        self.speeches.insert(Arc::clone(id), Speech::new(claim, task, origin.mutes));
        claim == source
    }

    pub(super) fn on_block(
        &mut self,
        id: &Id,
        block: &Block<'_>,
        agent: Option<&Id>,
        origin: &Origin,
    ) {
        if origin.mutes.text {
            return;
        }
        match block {
            Block::Text(text) if !text.is_empty() => {
                self.close_thoughts(id);
                if let Some(speech) = self.speeches.get_mut(id) {
                    speech.thoughts.interrupt();
                }
                if !self.view().open().texts.contains(id) {
                    let name = origin.agent.as_deref().map(Text::new);
                    self.out.open_text(id, Role::Assistant, name, agent);
                }
                self.out.text(id, text.clone());
            }
            Block::Reasoning(piece) => {
                let Some(speech) = self.speeches.get_mut(id) else { return };
                let view = self.out.view();
                let is_taken = |id: &str| view.message(id).is_some();
                let Some(placed) = speech.thoughts.place(id, piece, is_taken) else { return };
                self.out.close_text(id);
                if !self.view().open().thoughts.contains(&placed.id) {
                    self.close_thoughts(id);
                }
                self.open_thought(id, &placed.id, agent);
                if let Some(text) = placed.text {
                    self.out.thought(&placed.id, text);
                }
                if let Some(sealed) = &piece.sealed {
                    let before = self.view().message(&placed.id).and_then(|m| m.sealed.as_ref());
                    let sealed = reasoning::join(before, sealed);
                    self.out.sealed(&placed.id, sealed);
                }
            }
            // A chunk may hold a part of an attachment: the whole message has all of it.
            Block::Text(_)
            | Block::Media(_)
            | Block::Annotations(_)
            | Block::Call
            | Block::Other(_) => {}
        }
    }

    pub(super) fn on_call_chunk(
        &mut self,
        id: &Id,
        chunk: &CallChunk<'_>,
        agent: Option<&Id>,
        origin: &Origin,
    ) {
        let Some(speech) = self.speeches.get_mut(id) else { return };
        speech.thoughts.interrupt();
        let is_foretold = std::mem::replace(&mut speech.is_foretold, true);
        let Some(call) = speech.call(chunk) else { return };
        if let Some(wire) = &call.wire {
            let (wire, Some(args)) = (Arc::clone(wire), chunk.args.clone()) else { return };
            let name = call.name.clone().unwrap_or_else(|| Id::from(""));
            // Arguments after the call was taken for complete: it goes on.
            self.out.open_call(&wire, &name, id, agent);
            return self.out.call_args(&wire, args);
        }
        if let Some(args) = &chunk.args {
            call.early.push(args);
        }
        let (Some(raw_id), Some(name)) = (call.id.clone(), call.name.clone()) else { return };
        let early = call.early.to_text();
        if let (false, Some(foretold)) = (is_foretold, &origin.predict_state) {
            self.out.custom("PredictState", foretold.clone(), agent);
        }
        let wire = self.announce(id, &raw_id, &name, agent);
        if let Some(call) = self.speeches.get_mut(id).and_then(|speech| speech.call(chunk)) {
            call.wire = Some(Arc::clone(&wire));
        }
        self.out.call_args(&wire, early);
    }

    /// Announces a call under an id that no other message's or owner's call has.
    pub(super) fn announce(&mut self, id: &Id, raw_id: &Id, name: &Id, agent: Option<&Id>) -> Id {
        self.close_thoughts(id);
        self.out.close_text(id);
        let mut wire = Arc::clone(raw_id);
        // Once for another message's call, and once for each other owner that this message had.
        while !self.out.may_call(&wire, id, agent) {
            wire = commit::qualified_call_id(&wire, id);
        }
        self.out.open_call(&wire, name, id, agent);
        if agent.is_none() && !self.announced.contains(&wire) {
            self.announced.push(Arc::clone(&wire));
        }
        wire
    }

    /// A message's prefix so far.
    pub(super) fn on_partial(&mut self, namespace: &str, message: &langgraph::Message<'_>) {
        let Some(id) = message.id().map(|id| self.id(&id)) else { return };
        let origin = self.origin_of(message);
        if !matches!(message.kind(), MessageType::Ai | MessageType::AiChunk) {
            return self.on_message(namespace, message, &origin, Source::Partial);
        }
        let agent = self.enter(namespace, &origin);
        if !self.claims(&id, Source::Partial, &origin) {
            return;
        }
        if message.is_last() {
            return self.on_whole(message, agent.as_ref(), Some(&origin));
        }
        let messages = Message::of_prefix(message, &id);
        for part in &messages {
            if part.role == Role::Reasoning {
                self.top_up_thought(&id, part, agent.as_ref());
            } else if !part.content.text().is_empty() {
                self.close_thoughts(&id);
                self.top_up_text(part, agent.as_ref());
            }
        }
        // The arguments are a guess until the message is complete; the names are not.
        for call in messages.iter().flat_map(|message| &message.calls) {
            if !call.name.is_empty() && self.call_of(&id, &call.id).is_none() {
                self.announce(&id, &call.id, &call.name, agent.as_ref());
            }
        }
    }

    pub(super) fn on_message_metadata(&mut self, by_id: &[(json::Str<'_>, &RawValue)]) {
        for (id, value) in by_id {
            let metadata = json::members(value).and_then(|members| members.get("metadata"));
            if let Some(metadata) = metadata {
                let origin = self.origin.read(metadata.get(), "");
                self.origins.insert(Id::from(&**id), origin);
            }
        }
    }

    pub(super) fn origin_of(&self, message: &langgraph::Message<'_>) -> Arc<Origin> {
        let known = message.id().and_then(|id| self.origins.get(&*id));
        known.map(Arc::clone).unwrap_or_default()
    }
}
