//! The state machine: what each part of LangGraph's stream means for the run.
//!
//! ```text
//!            start            on_part*                      on_end
//!   (new) ----------> running ---------> running ... ----------------> ended
//!                        |  second `metadata`: a new attempt, same run   ^
//!                        +-----------------------------------------------+
//! ```
//! Infallible and deterministic: the same parts give the same events with the same ids. Text
//! that two modes carry is said once: the first mode that speaks for a message keeps it, and what
//! comes whole afterwards only adds what is missing.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::value::RawValue;

use super::brackets::Brackets;
use super::commit::{self, Conversation};
use super::message::{self, Message, Role};
use super::speech::{Source, Speech};
use super::steps::Steps;
use super::usage::Ledger;
use super::{Content, Id, Interrupt, Outcome, RunEvent, View};
use crate::json::{self, Text};
use crate::langgraph::{
    self, Block, Body, CallChunk, Kind, ModelEvent, NodeUpdate, Origin, Part, ProtocolEvent,
    RunError, ThreadState, Values,
};

/// The code of a run whose stream broke off without telling how it ended.
pub const STREAM_INCOMPLETE: &str = "stream_incomplete";

/// Translates one run.
#[derive(Debug)]
pub struct Translator {
    thread_id: Id,
    run_id: Id,
    phase: Phase,
    out: Brackets,
    speeches: HashMap<Id, Speech>,
    conversation: Option<Conversation>,
    steps: Steps,
    ledger: Ledger,
    interrupts: Vec<Interrupt>,
    is_at_breakpoint: bool,
    error: Option<RunError>,
    /// The origin of the last token, and the bytes that it was read from.
    origin: CachedOrigin,
    /// By message id, from `messages/metadata`.
    origins: HashMap<Id, Arc<Origin>>,
    /// By namespace: the message that the newer protocol's blocks go to.
    protocol: HashMap<String, Id>,
    /// The calls that this run has announced for its own agent.
    announced: Vec<Id>,
}

/// How far the run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    New,
    Running { attempts: u64 },
    Ended,
}

/// How the stream of a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// The body ended, and nobody could be asked how the run ended.
    Complete,
    /// The body ended, and the run's record says that it succeeded.
    Succeeded,
    /// The body ended, and the run's record says that it failed.
    Failed(RunError),
    /// The body ended, and the run's record says that it was stopped.
    Cancelled,
    /// The run goes on without us, or its record is out of reach.
    Lost {
        /// A stable code.
        code: &'static str,
        /// What happened.
        message: String,
    },
}

#[derive(Debug, Default)]
struct CachedOrigin {
    bytes: String,
    tags: String,
    origin: Arc<Origin>,
}

// === impl Translator ===

impl Translator {
    /// A translator for a run of a thread, both under LangGraph's ids.
    pub fn new(thread_id: &str, run_id: &str) -> Self {
        Self {
            thread_id: Id::from(thread_id),
            run_id: Id::from(run_id),
            phase: Phase::New,
            out: Brackets::default(),
            speeches: HashMap::new(),
            conversation: None,
            steps: Steps::default(),
            ledger: Ledger::default(),
            interrupts: Vec::new(),
            is_at_breakpoint: false,
            error: None,
            origin: CachedOrigin::default(),
            origins: HashMap::new(),
            protocol: HashMap::new(),
            announced: Vec::new(),
        }
    }

    /// What a client holds that has applied all events so far.
    pub fn view(&self) -> &View {
        self.out.view()
    }

    /// Begins the run. What comes first begins it too; once is enough.
    pub fn start(&mut self, out: &mut Vec<RunEvent>) {
        if self.phase == Phase::New {
            self.phase = Phase::Running { attempts: 0 };
            self.out.started(&self.thread_id, &self.run_id);
            self.out.drain_into(out);
        }
    }

    /// Translates a part. After the end there is nothing to say.
    pub fn on_part(&mut self, part: &Part<'_>, out: &mut Vec<RunEvent>) {
        self.start(out);
        if self.phase != Phase::Ended {
            self.translate(part);
            self.out.drain_into(out);
        }
    }

    /// Takes in a state of the thread that was read beside the stream, and that belongs to this
    /// run: its base before it has said anything, or what it came to at its end.
    pub fn on_state(&mut self, state: &ThreadState<'_>, out: &mut Vec<RunEvent>) {
        self.start(out);
        if self.phase == Phase::Ended {
            return;
        }
        self.collect(&state.interrupts);
        if state.is_interrupted() && state.interrupts.is_empty() {
            self.is_at_breakpoint = true;
        }
        if let Some(values) = &state.values {
            let json = values_json(values);
            let is_known = self
                .view()
                .state()
                .is_some_and(|held| json::same(held.to_json().get(), json.get()));
            // When this was read is chance: a snapshot, never a delta.
            if !is_known {
                self.out.state_snapshot(json);
            }
            self.base(values.messages.as_deref().unwrap_or_default());
        }
        self.out.drain_into(out);
    }

    /// Ends the run: closes what is open, brings the client to what LangGraph holds, and tells
    /// how it ended. A second end says nothing.
    pub fn on_end(&mut self, end: StreamEnd, out: &mut Vec<RunEvent>) {
        self.start(out);
        if self.phase == Phase::Ended {
            return;
        }
        self.phase = Phase::Ended;
        let outcome = self.outcome(end);
        self.out.close_all();
        match &outcome {
            // What LangGraph holds in the end is not known: what was said stays.
            Outcome::Failed { .. } if self.error.is_none() => {}
            Outcome::Finished { .. }
            | Outcome::Interrupted(_)
            | Outcome::Cancelled
            | Outcome::Failed { .. } => self.reconcile(),
        }
        let outcome = self.complete(outcome);
        self.out.ended(outcome, self.ledger.sums());
        self.out.drain_into(out);
    }

    fn translate(&mut self, part: &Part<'_>) {
        let namespace = &*part.namespace;
        match &part.body {
            Body::Message { message, metadata } => {
                let origin = self.origin.read(metadata, "");
                self.on_message(namespace, message, &origin, Source::Tuple);
            }
            Body::Protocol(event) => self.on_protocol(namespace, event),
            Body::Event(event) => self.on_event(namespace, event),
            Body::Values(values) => self.on_values(namespace, values),
            Body::Updates(updates) => {
                for update in &updates.nodes {
                    self.on_update(namespace, update);
                }
                self.on_interrupts(updates.interrupts.as_deref());
            }
            Body::Partial(messages) => {
                for message in messages {
                    self.on_partial(namespace, message);
                }
            }
            Body::Complete(messages) => {
                for message in messages {
                    let origin = self.origin_of(message);
                    self.on_message(namespace, message, &origin, Source::Partial);
                }
            }
            Body::MessageMetadata(by_id) => self.on_message_metadata(by_id),
            Body::Custom(value) => {
                let agent = self.steps.enter_subgraph(namespace, None, &mut self.out);
                self.out.custom("langgraph.custom", json::Json::from(*value), agent.as_ref());
            }
            Body::Task(task) => self.on_task(namespace, task),
            Body::Lifecycle(lifecycle) => self.on_lifecycle(namespace, lifecycle),
            Body::Interrupts(interrupts) => self.on_interrupts(Some(interrupts)),
            Body::Error(error) => self.error = Some(error.clone()),
            Body::Metadata { .. } => self.on_metadata(),
            Body::Silent | Body::Unknown | Body::Malformed(_) => {}
        }
    }

    // --- run boundaries ---

    /// A second `metadata` is a new attempt: what was not committed is void.
    fn on_metadata(&mut self) {
        let Phase::Running { attempts } = &mut self.phase else { return };
        *attempts += 1;
        if *attempts == 1 {
            return;
        }
        self.out.close_all();
        self.steps.clear();
        self.speeches.clear();
        self.protocol.clear();
        self.interrupts.clear();
        self.is_at_breakpoint = false;
        self.error = None;
        self.reconcile();
    }

    fn on_interrupts(&mut self, interrupts: Option<&[langgraph::Interrupt<'_>]>) {
        match interrupts {
            // "an empty list is a static breakpoint, which is an interrupt too"
            Some([]) => self.is_at_breakpoint = true,
            Some(interrupts) => self.collect(interrupts),
            None => {}
        }
    }

    fn collect(&mut self, interrupts: &[langgraph::Interrupt<'_>]) {
        for interrupt in interrupts {
            if self.interrupts.iter().all(|known| *known.id != *interrupt.id) {
                self.interrupts.push(Interrupt::read(interrupt));
            }
        }
    }

    fn outcome(&self, end: StreamEnd) -> Outcome {
        let failed = |error: &RunError| {
            if is_cancel(error) {
                return Outcome::Cancelled;
            }
            Outcome::Failed { code: error.code.clone(), message: error.message.clone() }
        };
        match end {
            StreamEnd::Lost { code, message } => {
                Outcome::Failed { code: code.to_owned(), message }
            }
            StreamEnd::Cancelled => Outcome::Cancelled,
            StreamEnd::Failed(error) => failed(self.error.as_ref().unwrap_or(&error)),
            StreamEnd::Complete | StreamEnd::Succeeded => match &self.error {
                Some(error) => failed(error),
                None if self.is_at_breakpoint || !self.interrupts.is_empty() => {
                    Outcome::Interrupted(self.interrupts.clone())
                }
                None if end == StreamEnd::Complete && self.is_mid_sentence() => Outcome::Failed {
                    code: STREAM_INCOMPLETE.to_owned(),
                    message: "the stream broke off in the middle of a message".to_owned(),
                },
                None => Outcome::Finished { pending_calls: Vec::new() },
            },
        }
    }

    /// Whether somebody was still speaking: a step alone may be open for want of an end mark.
    fn is_mid_sentence(&self) -> bool {
        let open = self.view().open();
        !open.texts.is_empty() || !open.thoughts.is_empty() || !open.calls.is_empty()
    }

    /// Adds what only the reconciled view can tell.
    fn complete(&self, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::Finished { .. } => {
                let view = self.view();
                let pending = |id: &&Id| view.call(id).is_some() && !view.is_answered(id);
                let pending_calls = self.announced.iter().filter(pending).cloned().collect();
                Outcome::Finished { pending_calls }
            }
            Outcome::Interrupted(mut interrupts) => {
                if interrupts.is_empty() {
                    interrupts.push(Interrupt::breakpoint(&self.thread_id));
                }
                for interrupt in &mut interrupts {
                    interrupt.find_calls(self.view());
                }
                Outcome::Interrupted(interrupts)
            }
            outcome @ (Outcome::Cancelled | Outcome::Failed { .. }) => outcome,
        }
    }

    /// Brings the client's conversation to LangGraph's, where the latter is known.
    fn reconcile(&mut self) {
        let Some(conversation) = &self.conversation else { return };
        let target = conversation.to_vec();
        for snapshot in commit::snapshots(self.view().messages(), &target) {
            self.out.messages(&snapshot);
        }
    }

    // --- state ---

    fn on_values(&mut self, namespace: &str, values: &Values<'_>) {
        self.on_interrupts(values.interrupts.as_deref());
        // A subgraph's state is its own; the JavaScript server sends interrupts without a state.
        if !namespace.is_empty() || values.is_only_interrupts() {
            return;
        }
        self.out.state(values_json(values));
        if let Some(messages) = &values.messages {
            self.commit(messages);
        }
    }

    /// The conversation before anything was said in this run, or a later reading of it.
    fn base(&mut self, items: &[&RawValue]) {
        let thread_id = Arc::clone(&self.thread_id);
        let conversation =
            self.conversation.get_or_insert_with(|| Conversation::new(thread_id));
        conversation.update(items);
        if self.view().messages().is_empty() {
            self.show_base();
        }
    }

    /// Takes in the conversation of a superstep: adds what no token mode has carried.
    fn commit(&mut self, items: &[&RawValue]) {
        if self.conversation.is_none() && self.view().messages().is_empty() {
            return self.base(items);
        }
        let thread_id = Arc::clone(&self.thread_id);
        let conversation =
            self.conversation.get_or_insert_with(|| Conversation::new(thread_id));
        for committed in conversation.update(items) {
            let Some(id) = committed.messages.last().map(|message| Arc::clone(&message.id)) else {
                continue;
            };
            self.say_whole(&id, &committed.source, committed.messages, None, None);
            self.speeches.remove(&id);
        }
    }

    /// Shows the base even if it is empty: a client may hold what LangGraph does not.
    fn show_base(&mut self) {
        let Some(conversation) = &self.conversation else { return };
        let messages = conversation.to_vec();
        self.out.messages(&messages);
    }

    // --- nodes ---

    fn on_update(&mut self, namespace: &str, update: &NodeUpdate<'_>) {
        let agent = match update.messages.is_empty() {
            true => None,
            false => self.steps.enter_subgraph(namespace, None, &mut self.out),
        };
        let mut tasks: Vec<String> = Vec::new();
        for message in &update.messages {
            if let Some(id) = message.id() {
                let speech = self.speeches.get(&*id);
                tasks.extend(speech.and_then(|speech| speech.task.clone()));
            }
            self.on_whole(message, agent.as_ref(), None);
        }
        if !self.steps.end_with_updates() || update.node.starts_with("__") {
            return;
        }
        let spoke = |task: &str| tasks.iter().any(|known| known == task);
        match self.steps.of_node(namespace, &update.node, spoke) {
            Some(step) => self.finish_step(step),
            None => self.steps.pass(namespace, &update.node, &mut self.out),
        }
    }

    /// Ends a step, and before it what its task was saying.
    fn finish_step(&mut self, step: usize) {
        let task = self.steps.task(step);
        let spoken = self.speeches.iter().filter(|(_, s)| s.task.is_some() && s.task.as_deref() == task);
        let open = self.view().open();
        let is_open = |(id, speech): &(&Id, &Speech)| {
            open.texts.contains(id)
                || speech.thought_ids.iter().any(|id| open.thoughts.contains(id))
                || speech.calls.iter().any(|c| c.wire.as_ref().is_some_and(|id| open.calls.contains(id)))
        };
        let mut spoken: Vec<Id> = spoken.filter(is_open).map(|(id, _)| Arc::clone(id)).collect();
        // A map has no order of its own.
        spoken.sort();
        spoken.iter().for_each(|id| self.close_message(id));
        self.steps.finish(step, &mut self.out);
    }

    fn on_task(&mut self, namespace: &str, task: &langgraph::Task<'_>) {
        if task.name.starts_with("__") {
            return;
        }
        let segment = format!("{}:{}", &*task.name, &*task.id);
        if task.is_start() {
            if let Some(call) = task.tool_call() {
                let call = self.wire_call_id(&call);
                self.steps.executes(&segment, call);
            }
            let agent = task.agent();
            let name = &task.name;
            self.steps.start_task(namespace, &segment, name, agent.as_deref(), &mut self.out);
        } else {
            if let Some(step) = self.steps.of_task(namespace, &segment) {
                self.finish_step(step);
            }
            self.collect(&task.interrupts());
        }
    }

    /// Enters the speaker's path. A mode that names no subgraph in its event name (`events`)
    /// still names the path in the metadata.
    fn enter(&mut self, namespace: &str, origin: &Origin) -> Option<Id> {
        let agent_name = origin.agent.as_deref();
        if origin.checkpoint_ns.is_empty() {
            return self.steps.enter_subgraph(namespace, agent_name, &mut self.out);
        }
        let (path, node) = (&origin.checkpoint_ns, origin.node.as_deref());
        self.steps.enter(path, node, agent_name, &mut self.out)
    }

    // --- messages ---

    fn on_message(
        &mut self,
        namespace: &str,
        message: &langgraph::Message<'_>,
        origin: &Arc<Origin>,
        source: Source,
    ) {
        match message.kind() {
            Kind::AiChunk if source != Source::Partial => {
                self.on_chunk(namespace, message, origin, source);
            }
            Kind::Remove => {}
            Kind::Ai | Kind::AiChunk | Kind::Human | Kind::Tool | Kind::System
            | Kind::Developer | Kind::Other => {
                let agent = self.enter(namespace, origin);
                self.on_whole(message, agent.as_ref(), Some(origin));
            }
        }
    }

    /// A token.
    fn on_chunk(
        &mut self,
        namespace: &str,
        message: &langgraph::Message<'_>,
        origin: &Arc<Origin>,
        source: Source,
    ) {
        // Without an id it cannot be told whose token this is: it is shown once committed.
        let Some(id) = message.id().map(|id| self.id(&id)) else { return };
        let agent = self.enter(namespace, origin);
        if !self.claims(&id, source, origin) {
            return;
        }
        for block in message.blocks() {
            self.on_block(&id, &block, agent.as_ref(), origin);
        }
        if !origin.mutes_calls {
            for chunk in message.call_chunks() {
                self.on_call_chunk(&id, &chunk, agent.as_ref(), origin);
            }
        }
        self.ledger.add_chunk(&id, message, Some(origin));
        if message.is_last() {
            self.close_message(&id);
        }
    }

    /// Whether a mode speaks for a message: it was the first to, and the client did not hold the
    /// message before.
    fn claims(&mut self, id: &Id, source: Source, origin: &Origin) -> bool {
        if let Some(speech) = self.speeches.get(id) {
            return speech.source == source;
        }
        let claim = match self.view().message(id) {
            Some(_) => Source::Whole,
            None if origin.mutes_text && origin.mutes_calls => Source::Muted,
            None => source,
        };
        let task = origin.task().map(str::to_owned);
        self.speeches.insert(Arc::clone(id), Speech::new(claim, task));
        claim == source
    }

    fn on_block(&mut self, id: &Id, block: &Block<'_>, agent: Option<&Id>, origin: &Origin) {
        if origin.mutes_text {
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
                    let sealed = message::join(before, sealed);
                    self.out.sealed(&placed.id, sealed);
                }
            }
            Block::Text(_) | Block::Media(_) | Block::Call | Block::Other => {}
        }
    }

    fn on_call_chunk(
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

    /// Announces a call under an id that no other message's call has.
    fn announce(&mut self, id: &Id, raw_id: &Id, name: &Id, agent: Option<&Id>) -> Id {
        self.close_thoughts(id);
        self.out.close_text(id);
        let wire = match self.out.caller(raw_id) {
            Some(caller) if caller != id => commit::qualified_call_id(raw_id, id),
            _ => Arc::clone(raw_id),
        };
        self.out.open_call(&wire, name, id, agent);
        if agent.is_none() && !self.announced.contains(&wire) {
            self.announced.push(Arc::clone(&wire));
        }
        wire
    }

    /// The id on our wires of the last call that has an id of LangGraph's.
    fn wire_call_id(&self, raw_id: &str) -> Id {
        let last = self.view().messages().iter().rev().find_map(|message| {
            let qualified = commit::qualified_call_id(raw_id, &message.id);
            let known = |call: &&super::Call| *call.id == *raw_id || call.id == qualified;
            message.calls.iter().find(known).map(|call| Arc::clone(&call.id))
        });
        last.unwrap_or_else(|| Id::from(raw_id))
    }

    /// A message's prefix so far.
    fn on_partial(&mut self, namespace: &str, message: &langgraph::Message<'_>) {
        let Some(id) = message.id().map(|id| self.id(&id)) else { return };
        let origin = self.origin_of(message);
        if !matches!(message.kind(), Kind::Ai | Kind::AiChunk) {
            return self.on_message(namespace, message, &origin, Source::Partial);
        }
        let agent = self.enter(namespace, &origin);
        if !self.claims(&id, Source::Partial, &origin) {
            return;
        }
        if message.is_last() {
            return self.on_whole(message, agent.as_ref(), Some(&origin));
        }
        let messages = Message::convert(message, &id);
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

    /// A message that came whole: adds what is missing of it, and closes it.
    fn on_whole(
        &mut self,
        message: &langgraph::Message<'_>,
        agent: Option<&Id>,
        origin: Option<&Arc<Origin>>,
    ) {
        let Some(id) = message.id().map(|id| self.id(&id)) else { return };
        let mut messages = Message::convert(message, &id);
        // A state names the calls of its tool messages as it goes; here the view does.
        if let Some(call) = messages.iter_mut().find_map(|message| message.call_id.as_mut()) {
            *call = self.wire_call_id(call);
        }
        self.say_whole(&id, message, messages, agent, origin);
    }

    fn say_whole(
        &mut self,
        id: &Id,
        source: &langgraph::Message<'_>,
        messages: Vec<Message>,
        agent: Option<&Id>,
        origin: Option<&Arc<Origin>>,
    ) {
        let is_muted = |speech: &Speech| speech.source == Source::Muted;
        let mutes = origin.is_some_and(|o| o.mutes_text && o.mutes_calls && self.view().message(id).is_none());
        let is_new = !self.speeches.contains_key(id);
        if mutes || self.speeches.get(id).is_some_and(is_muted) {
            if is_new {
                self.speeches.insert(Arc::clone(id), Speech::new(Source::Muted, None));
            }
            return;
        }
        let was_held = is_new && self.view().message(id).is_some();
        for part in messages {
            match part.role {
                Role::Reasoning => {
                    self.top_up_thought(id, &part, agent);
                    self.out.close_thought(&part.id);
                }
                Role::Tool => self.say_result(&part, agent),
                Role::User | Role::Assistant | Role::System | Role::Developer => {
                    self.say_text(&part, agent);
                }
            }
        }
        // What the client held before this run was paid for before this run.
        if !was_held {
            self.ledger.set_whole(id, source, origin.map(|origin| &**origin));
        }
        self.close_message(id);
        if is_new && !was_held {
            let task = origin.and_then(|origin| origin.task()).map(str::to_owned);
            self.speeches.insert(Arc::clone(id), Speech::new(Source::Whole, task));
        }
    }

    fn say_text(&mut self, part: &Message, agent: Option<&Id>) {
        // Only a snapshot can carry media: the end of the run brings them.
        if matches!(part.content, Content::Parts(_)) {
            return;
        }
        let is_silent = part.content.text().is_empty() && part.calls.is_empty();
        if is_silent && self.view().message(&part.id).is_none() {
            self.out.open_text(&part.id, part.role, part.name.clone(), agent);
        }
        self.top_up_text(part, agent);
        for call in &part.calls {
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

    fn say_result(&mut self, part: &Message, agent: Option<&Id>) {
        let Some(call_id) = &part.call_id else { return };
        // "never for a tool message that the reader already holds"
        if self.view().message(&part.id).is_none() {
            let agent = match self.view().call(call_id) {
                Some((owner, _)) => owner.agent.clone(),
                None => agent.cloned(),
            };
            let is_error = part.error.is_some();
            self.out.result(&part.id, call_id, part.content.clone(), is_error, agent.as_ref());
        }
    }

    /// Says what is missing of a text. A text that went another way waits for a snapshot.
    fn top_up_text(&mut self, part: &Message, agent: Option<&Id>) {
        let whole = part.content.text();
        let missing = match self.view().message(&part.id).map(|held| &held.content) {
            Some(Content::Text(held)) => held.rest_of(&whole),
            Some(Content::Absent) | None => Some(whole),
            Some(Content::Parts(_)) => None,
        };
        if let Some(missing) = missing.filter(|missing| !missing.is_empty()) {
            self.out.open_text(&part.id, part.role, part.name.clone(), agent);
            self.out.text(&part.id, missing);
        }
    }

    fn top_up_thought(&mut self, id: &Id, part: &Message, agent: Option<&Id>) {
        let whole = part.content.text();
        let held = self.view().message(&part.id);
        let is_known = held.is_some();
        let sealed = held.and_then(|held| held.sealed.clone());
        let missing = match held.map(|held| &held.content) {
            Some(Content::Text(held)) => held.rest_of(&whole),
            Some(Content::Absent) | None => Some(whole),
            Some(Content::Parts(_)) => None,
        };
        let missing = missing.filter(|missing| !missing.is_empty());
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

    fn open_thought(&mut self, id: &Id, thought: &Id, agent: Option<&Id>) {
        if let Some(speech) = self.speeches.get_mut(id)
            && !speech.thought_ids.contains(thought)
        {
            speech.thought_ids.push(Arc::clone(thought));
        }
        self.out.open_thought(thought, agent);
    }

    /// A message is through: closes its thoughts, its text and its calls.
    fn close_message(&mut self, id: &Id) {
        self.close_thoughts(id);
        self.out.close_text(id);
        let open: Vec<Id> = match self.view().message(id) {
            Some(message) => message.calls.iter().map(|call| Arc::clone(&call.id)).collect(),
            None => return,
        };
        open.iter().for_each(|call| self.out.close_call(call));
    }

    fn close_thoughts(&mut self, id: &Id) {
        if self.view().open().thoughts.is_empty() {
            return;
        }
        let Some(speech) = self.speeches.get(id) else { return };
        let ids = speech.thought_ids.clone();
        ids.iter().for_each(|thought| self.out.close_thought(thought));
    }

    /// The id on our wires of a message's call, if the message is known to make it.
    fn call_of(&self, id: &Id, call_id: &Id) -> Option<Id> {
        let qualified = commit::qualified_call_id(call_id, id);
        let calls = &self.view().message(id)?.calls;
        let known = calls.iter().find(|call| call.id == *call_id || call.id == qualified);
        known.map(|call| Arc::clone(&call.id))
    }

    /// The shared form of an id, so that a token costs no allocation for it.
    fn id(&self, id: &str) -> Id {
        match self.speeches.get_key_value(id) {
            Some((known, _)) => Arc::clone(known),
            None => Id::from(id),
        }
    }

    // --- `messages/metadata` ---

    fn on_message_metadata(&mut self, by_id: &[(json::Str<'_>, &RawValue)]) {
        for (id, value) in by_id {
            let metadata = json::members(value).and_then(|members| members.get("metadata"));
            if let Some(metadata) = metadata {
                let origin = self.origin.read(metadata.get(), "");
                self.origins.insert(Id::from(&**id), origin);
            }
        }
    }

    fn origin_of(&self, message: &langgraph::Message<'_>) -> Arc<Origin> {
        let known = message.id().and_then(|id| self.origins.get(&*id));
        known.map(Arc::clone).unwrap_or_default()
    }

    // --- `events` ---

    fn on_event(&mut self, namespace: &str, event: &ModelEvent<'_>) {
        let (metadata, tags) = event.origin_bytes();
        let origin = self.origin.read_with(metadata, tags, || event.origin());
        let is_node = origin.node.as_deref().is_some_and(|node| event.name.as_deref() == Some(node));
        match &*event.event {
            "on_chat_model_stream" | "on_llm_stream" => {
                if let Some(chunk) = event.chunk() {
                    self.on_chunk(namespace, &chunk, &origin, Source::Events);
                }
            }
            "on_chat_model_end" => {
                if let Some(message) = event.output() {
                    let agent = self.enter(namespace, &origin);
                    self.on_whole(&message, agent.as_ref(), Some(&origin));
                }
            }
            "on_tool_end" => {
                let output = event.output().filter(|message| message.kind() == Kind::Tool);
                for message in output.into_iter().chain(event.command_messages()) {
                    self.on_message(namespace, &message, &origin, Source::Events);
                }
            }
            "on_custom_event" => self.on_custom_event(namespace, event, &origin),
            "on_chain_start" if is_node => self.on_node(&origin, Edge::Start),
            "on_chain_end" if is_node => {
                for message in event.node_messages() {
                    let agent = self.enter(namespace, &origin);
                    self.on_whole(&message, agent.as_ref(), Some(&origin));
                }
                self.on_node(&origin, Edge::End);
            }
            _ => {}
        }
    }

    fn on_node(&mut self, origin: &Origin, edge: Edge) {
        let (Some(node), Some(task)) = (origin.node.as_deref(), origin.task()) else { return };
        let (namespace, _) = origin.checkpoint_ns.rsplit_once('|').unwrap_or_default();
        match edge {
            _ if node.starts_with("__") => {}
            Edge::Start => {
                let agent = origin.agent.as_deref();
                self.steps.start_task(namespace, task, node, agent, &mut self.out);
            }
            Edge::End => {
                if let Some(step) = self.steps.of_task(namespace, task) {
                    self.finish_step(step);
                }
            }
        }
    }

    /// Events that a node dispatches. Some names are CopilotKit's, and are more than an event.
    fn on_custom_event(&mut self, namespace: &str, event: &ModelEvent<'_>, origin: &Origin) {
        let agent = self.enter(namespace, origin);
        let name = event.name.as_deref().unwrap_or("langgraph.custom");
        let payload = event.payload().unwrap_or(RawValue::NULL);
        let members = json::members(payload).unwrap_or_default();
        match name.strip_prefix("copilotkit_").unwrap_or(name) {
            "manually_emit_message" => self.emit_message(&members, agent.as_ref()),
            "manually_emit_tool_call" => self.emit_call(&members, agent.as_ref()),
            "manually_emit_state" | "manually_emit_intermediate_state" => {
                self.out.state(json::Json::from(payload));
            }
            "exit" => self.out.custom("Exit", json::raw("true".to_owned()), agent.as_ref()),
            _ => self.out.custom(name, json::Json::from(payload), agent.as_ref()),
        }
    }

    fn emit_message(&mut self, members: &json::Members<'_>, agent: Option<&Id>) {
        let (Some(id), Some(text)) = (members.string("message_id"), members.text("message")) else {
            return;
        };
        let id = self.id(&id);
        if self.view().message(&id).is_none() {
            self.out.open_text(&id, Role::Assistant, None, agent);
            self.out.text(&id, text);
            self.out.close_text(&id);
        }
    }

    fn emit_call(&mut self, members: &json::Members<'_>, agent: Option<&Id>) {
        let (Some(id), Some(name)) = (members.string("id"), members.string("name")) else { return };
        let (id, name) = (Id::from(&*id), Id::from(&*name));
        if self.view().call(&id).is_some() {
            return;
        }
        let args = members.get("args");
        let args = args.and_then(Text::from_raw).or_else(|| args.map(|args| Text::new(args.get())));
        let wire = self.announce(&id, &id, &name, agent);
        self.out.call_args(&wire, args.unwrap_or_else(|| Text::new("{}")));
        self.out.close_call(&wire);
    }

    // --- the newer protocol ---

    fn on_protocol(&mut self, namespace: &str, event: &ProtocolEvent<'_>) {
        match event {
            // A tool's answer comes whole in `values`; its namespace names a call, not a task.
            ProtocolEvent::MessageStart { role, id } if role != "tool" => {
                let id = self.id(id);
                self.protocol.insert(namespace.to_owned(), id);
            }
            ProtocolEvent::MessageStart { .. } => {
                self.protocol.remove(namespace);
            }
            ProtocolEvent::Repeat => {}
            ProtocolEvent::Block(_) | ProtocolEvent::Call(_) | ProtocolEvent::MessageFinish { .. } => {
                let Some(id) = self.protocol.get(namespace).map(Arc::clone) else { return };
                let origin = Origin::default();
                if !self.claims(&id, Source::Protocol, &origin) {
                    return;
                }
                let agent = self.steps.enter_subgraph(namespace, None, &mut self.out);
                self.on_protocol_piece(&id, event, agent.as_ref(), &origin);
            }
        }
    }

    fn on_lifecycle(&mut self, namespace: &str, lifecycle: &langgraph::Lifecycle<'_>) {
        if namespace.is_empty() {
            return;
        }
        if !lifecycle.is_start {
            return self.steps.leave_subgraph(namespace, &mut self.out);
        }
        if let (Some(call), Some(task)) = (&lifecycle.tool_call, namespace.rsplit('|').next()) {
            let call = self.wire_call_id(call);
            self.steps.executes(task, call);
        }
        let agent = lifecycle.agent.as_deref();
        self.steps.enter_subgraph(namespace, agent, &mut self.out);
    }

    fn on_protocol_piece(
        &mut self,
        id: &Id,
        event: &ProtocolEvent<'_>,
        agent: Option<&Id>,
        origin: &Origin,
    ) {
        match event {
            ProtocolEvent::Block(blocks) => {
                blocks.iter().for_each(|block| self.on_block(id, block, agent, origin));
            }
            ProtocolEvent::Call(chunk) => self.on_call_chunk(id, chunk, agent, origin),
            ProtocolEvent::MessageFinish { usage, metadata } => {
                if let Some(usage) = usage {
                    let metadata = metadata.as_ref();
                    self.ledger.set_finish(id, usage, metadata.unwrap_or(&json::Members::default()));
                }
                self.close_message(id);
            }
            ProtocolEvent::MessageStart { .. } | ProtocolEvent::Repeat => {}
        }
    }
}

/// Where in a node's life an event stands.
#[derive(Clone, Copy, Debug)]
enum Edge {
    Start,
    End,
}

/// A state without what travels otherwise.
fn values_json(values: &Values<'_>) -> json::Json {
    match &values.state {
        Some(state) => message::object(state),
        None => json::Json::from(values.raw),
    }
}

/// How the JavaScript server tells a joined stream that its run was stopped, and how the Python
/// server records it.
fn is_cancel(error: &RunError) -> bool {
    matches!(error.code.as_str(), "UserInterrupt" | "UserRollback")
        || (error.code == "Error" && matches!(error.message.as_str(), "interrupt" | "rollback"))
}

// === impl CachedOrigin ===

impl CachedOrigin {
    /// The origin that the metadata tells: the last one, if the bytes are the same.
    fn read(&mut self, metadata: &str, tags: &str) -> Arc<Origin> {
        self.read_with(metadata, tags, || Origin::parse(metadata))
    }

    fn read_with(
        &mut self,
        metadata: &str,
        tags: &str,
        parse: impl FnOnce() -> Origin,
    ) -> Arc<Origin> {
        if self.bytes != metadata || self.tags != tags {
            metadata.clone_into(&mut self.bytes);
            tags.clone_into(&mut self.tags);
            self.origin = Arc::new(parse());
        }
        Arc::clone(&self.origin)
    }
}

