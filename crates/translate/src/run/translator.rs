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

mod events;
mod nodes;
mod protocol;
mod tokens;
mod whole;

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::value::RawValue;

use super::brackets::Brackets;
use super::commit::{self, Conversation};
use super::speech::{Source, Speech};
use super::steps::Steps;
use super::usage::UsageByMessage;
use super::{Failure, Finish, Id, Interrupt, Loss, Message, Outcome, RunEvent, View};
use crate::json;
use crate::langgraph::{
    self, Body, KeptAnswer, MessagesKey, Origin, Part, RunError, ThreadState, Values,
};

/// Translates one run.
#[derive(Debug)]
pub struct Translator {
    thread_id: Id,
    run_id: Option<Id>,
    name: Id,
    /// Under which key of its state the graph keeps its conversation.
    messages_key: MessagesKey,
    phase: Phase,
    /// How often the run has begun, as far as the stream tells.
    attempt: u32,
    /// Whether this attempt has told the state.
    has_told_state: bool,
    beginning: Beginning,
    out: Brackets,
    speeches: HashMap<Id, Speech>,
    conversation: Option<Conversation>,
    steps: Steps,
    usage: UsageByMessage,
    interrupts: Vec<Interrupt>,
    /// What is kept of the answers to them.
    kept: Vec<KeptAnswer>,
    is_at_breakpoint: bool,
    error: Option<RunError>,
    /// Why the run's own model stopped the last time.
    finish: Finish,
    /// The origin of the last token, and the bytes that it was read from.
    origin: CachedOrigin,
    /// By message id, from `messages/metadata`.
    origins: HashMap<Id, Arc<Origin>>,
    /// By a chunk's id: the id of the message that it belongs to, where that is another.
    aliases: HashMap<Id, Id>,
    /// By task path: the last id that was a provider's own.
    first_ids: HashMap<String, Id>,
    /// By namespace: the message that the newer protocol's blocks go to.
    protocol: HashMap<String, Id>,
    /// The calls that this run has announced for its own agent.
    announced: Vec<Id>,
}

/// How far the run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    New,
    Running {
        /// Whether a part of this attempt has come.
        has_parts: bool,
    },
    Ended,
}

/// Whether the stream is told from the run's beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beginning {
    Heard,
    /// The run was joined; a stream that begins with `metadata` is whole.
    Unsure {
        /// Whether it carries the state.
        has_values: bool,
    },
    /// Who speaks may have begun before we listened.
    Missed {
        has_values: bool,
        /// The superstep that was the first to speak.
        step: Option<u64>,
    },
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
    /// There was no run: the thread is at rest.
    Idle {
        /// Why its last run failed, if it did.
        error: Option<RunError>,
    },
    /// The run goes on without us, or its record is out of reach.
    Lost {
        /// Why the gateway cannot say how it goes on.
        loss: Loss,
        /// What happened.
        message: String,
    },
    /// The server has neither the run nor its thread any more.
    Gone,
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
        Self::named(thread_id, Some(run_id), run_id)
    }

    /// A translator for a run that has a name of its own, or for a thread at rest.
    pub fn named(thread_id: &str, run_id: Option<&str>, name: &str) -> Self {
        Self {
            thread_id: Id::from(thread_id),
            run_id: run_id.map(Id::from),
            name: Id::from(name),
            messages_key: MessagesKey::default(),
            phase: Phase::New,
            attempt: 1,
            has_told_state: false,
            beginning: Beginning::Heard,
            out: Brackets::default(),
            speeches: HashMap::new(),
            conversation: None,
            steps: Steps::default(),
            usage: UsageByMessage::default(),
            interrupts: Vec::new(),
            kept: Vec::new(),
            is_at_breakpoint: false,
            error: None,
            finish: Finish::default(),
            origin: CachedOrigin::default(),
            origins: HashMap::new(),
            aliases: HashMap::new(),
            first_ids: HashMap::new(),
            protocol: HashMap::new(),
            announced: Vec::new(),
        }
    }

    /// The graph keeps its conversation under this key. Its parts and states are to be parsed under
    /// the same one.
    #[must_use]
    pub fn under(self, messages_key: MessagesKey) -> Self {
        Self { messages_key, ..self }
    }

    /// What a client holds that has applied all events so far.
    pub fn view(&self) -> &View {
        self.out.view()
    }

    /// The view as it is now, to be kept. If the run goes on, the next event costs a copy of it.
    pub fn shared_view(&self) -> Arc<View> {
        self.out.shared_view()
    }

    /// The conversation of the thread's last known state; `None` before there is one.
    pub fn conversation(&self) -> Option<Vec<Arc<Message>>> {
        self.conversation.as_ref().map(Conversation::to_vec)
    }

    /// How often the run has begun, as far as the stream tells: the server starts it again after a
    /// crash of its own.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Whether the present attempt has told the run's state.
    pub fn has_told_state(&self) -> bool {
        self.has_told_state
    }

    /// Whether the run has asked a question, or stopped at a static breakpoint.
    pub fn is_interrupted(&self) -> bool {
        self.is_at_breakpoint || !self.interrupts.is_empty()
    }

    /// Whether the run asks about several actions at once, some of which may be answered.
    pub fn asks_batch(&self) -> bool {
        self.interrupts.iter().any(Interrupt::is_batch)
    }

    /// Why the run failed, as its stream tells it.
    pub fn error(&self) -> Option<&RunError> {
        self.error.as_ref()
    }

    /// The stream was joined, and carries the state or not. It may be that it does not tell the
    /// run from its beginning: its first part shows.
    ///
    /// A message whose beginning may be missing is withheld until it is committed, and then sent
    /// whole.
    #[must_use]
    pub fn joined(mut self, has_values: bool) -> Self {
        self.beginning = Beginning::Unsure { has_values };
        self
    }

    /// Whether the stream has begun in the middle of its run.
    pub fn has_missed_its_beginning(&self) -> bool {
        matches!(self.beginning, Beginning::Missed { .. })
    }

    /// Begins the run. What comes first begins it too; once is enough.
    pub fn start(&mut self, out: &mut Vec<RunEvent>) {
        if self.phase == Phase::New {
            self.phase = Phase::Running { has_parts: false };
            self.out.started(&self.thread_id, self.run_id.as_ref(), &self.name);
            self.out.drain_into(out);
        }
    }

    /// Translates a part. After the end there is nothing to say.
    pub fn on_part(&mut self, part: &Part<'_>, out: &mut Vec<RunEvent>) {
        self.start(out);
        if self.phase != Phase::Ended {
            self.note_beginning(&part.body);
            self.translate(part);
            self.note_boundary(part);
            self.phase = Phase::Running { has_parts: true };
            self.out.drain_into(out);
        }
    }

    /// The stream goes on, and something may be missing between what came and what comes. What is
    /// still being said cannot be gone on with; who speaks next may have begun in the gap.
    pub fn on_gap(&mut self, has_values: bool, out: &mut Vec<RunEvent>) {
        if matches!(self.phase, Phase::Running { .. }) {
            self.break_off();
            self.beginning = Beginning::Missed { has_values, step: None };
        }
        self.out.drain_into(out);
    }

    /// Takes in a state that was read beside the stream, of which it may lack some, or all: what
    /// the thread holds. Whether its questions are this run's is not known.
    pub fn on_base(&mut self, values: &Values<'_>, out: &mut Vec<RunEvent>) {
        self.start(out);
        if self.phase != Phase::Ended {
            self.take_in(values);
            if !self.view().is_based() {
                self.reconcile();
            }
        }
        self.out.drain_into(out);
    }

    /// Takes in a state that was read instead of a stream, and shows what has changed.
    pub fn on_checkpoint(&mut self, values: &Values<'_>, out: &mut Vec<RunEvent>) {
        self.start(out);
        if self.phase != Phase::Ended {
            self.take_in(values);
            self.reconcile();
        }
        self.out.drain_into(out);
    }

    /// Takes in the state that the run came to, read beside its stream after that has ended.
    pub fn on_state(&mut self, state: &ThreadState<'_>, out: &mut Vec<RunEvent>) {
        self.start(out);
        if self.phase == Phase::Ended {
            return;
        }
        self.collect(&state.interrupts);
        self.keep(&state.kept.current);
        if state.is_interrupted() && state.interrupts.is_empty() {
            self.is_at_breakpoint = true;
        }
        if let Some(values) = &state.values {
            self.take_in(values);
        }
        self.out.drain_into(out);
    }

    /// Takes in what the thread's metadata keep of the answers to what is asked.
    pub fn keep(&mut self, kept: &[KeptAnswer]) {
        self.kept.extend_from_slice(kept);
    }

    /// Shows, behind what the thread holds, what a run that waits for its turn will begin with.
    ///
    /// LangGraph names a message without an id when it takes it in; till then we do.
    pub fn on_input(&mut self, input: &RawValue, out: &mut Vec<RunEvent>) {
        let name = Arc::clone(&self.name);
        self.show_input(input, |at| Some(Id::from(format!("{name}:input:{at}"))), out);
    }

    /// Shows what a run has begun with, as far as LangGraph will call it so too.
    pub fn on_named_input(&mut self, input: &RawValue, out: &mut Vec<RunEvent>) {
        self.show_input(input, |_| None, out);
    }

    fn show_input(
        &mut self,
        input: &RawValue,
        name: impl Fn(usize) -> Option<Id>,
        out: &mut Vec<RunEvent>,
    ) {
        self.start(out);
        let key = self.messages_key.as_str();
        let messages = json::members(input).and_then(|members| members.get(key));
        let items = messages.map(|items| json::items(items).unwrap_or_else(|| vec![items]));
        let mut all = self.view().messages().to_vec();
        for (at, item) in items.unwrap_or_default().into_iter().enumerate() {
            let message = langgraph::Message::parse(item);
            let message = message.filter(|_| langgraph::Message::is_message(item));
            let id = message.as_ref().and_then(langgraph::Message::id);
            let id = id.map(|id| Id::from(&*id)).or_else(|| name(at));
            if let (Some(message), Some(id)) = (message, id)
                && self.view().message(&id).is_none()
            {
                let messages = Message::of_langchain(&message, &id);
                all.extend(messages.into_iter().map(Arc::new));
            }
        }
        if all.len() > self.view().messages().len() {
            self.out.messages(&all);
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
        let end = self.understand(end);
        self.out.close_all();
        if matches!(end, StreamEnd::Lost { .. }) {
            self.settle_order();
        } else {
            self.reconcile();
        }
        let outcome = self.outcome(end);
        self.out.ended(outcome, self.usage.sums());
        self.out.drain_into(out);
    }

    /// A state whose time is chance: told as a snapshot, never a delta.
    fn take_in(&mut self, values: &Values<'_>) {
        let json = values_json(values);
        let is_known =
            self.view().state().is_some_and(|held| json::same(held.to_json().get(), json.get()));
        if !is_known {
            self.out.state_snapshot(json);
        }
        if let Some(messages) = &values.messages {
            self.base(messages);
        }
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
                if namespace.is_empty() {
                    self.steps.on_updates();
                }
                for update in &updates.nodes {
                    self.on_update(namespace, update);
                    if updates.is_cached {
                        self.settle(update);
                    }
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

    /// A `metadata` behind other parts is a new attempt: what was not committed is void.
    fn on_metadata(&mut self) {
        if self.phase == (Phase::Running { has_parts: false }) {
            return;
        }
        self.attempt += 1;
        self.has_told_state = false;
        self.break_off();
        self.announced.clear();
        self.interrupts.clear();
        self.is_at_breakpoint = false;
        self.error = None;
        self.reconcile();
    }

    /// Closes what is open, and forgets who was speaking.
    fn break_off(&mut self) {
        self.out.close_all();
        self.steps.clear();
        self.speeches.clear();
        self.aliases.clear();
        self.first_ids.clear();
        self.protocol.clear();
    }

    fn on_interrupts(&mut self, interrupts: Option<&[langgraph::RawInterrupt<'_>]>) {
        match interrupts {
            // An empty list is a static breakpoint, which is an interrupt too.
            Some([]) => self.is_at_breakpoint = true,
            Some(interrupts) => self.collect(interrupts),
            None => {}
        }
    }

    fn collect(&mut self, interrupts: &[langgraph::RawInterrupt<'_>]) {
        for interrupt in interrupts {
            if self.interrupts.iter().all(|known| *known.id != *interrupt.id) {
                self.interrupts.push(Interrupt::of_langgraph(interrupt));
            }
        }
    }

    /// Where nobody could be asked, the stream itself has to tell.
    fn understand(&self, end: StreamEnd) -> StreamEnd {
        match end {
            StreamEnd::Complete => match &self.error {
                Some(error) => StreamEnd::Failed(error.clone()),
                None if self.is_mid_sentence() && !self.is_interrupted() => StreamEnd::Lost {
                    loss: Loss::Incomplete,
                    message: "the stream broke off in the middle of a message".to_owned(),
                },
                None => StreamEnd::Succeeded,
            },
            // The stream names the exception, which the record may not.
            StreamEnd::Failed(error) => StreamEnd::Failed(match self.error.clone() {
                Some(own) => RunError { reports: error.reports, ..own },
                None => error,
            }),
            end @ (StreamEnd::Succeeded
            | StreamEnd::Cancelled
            | StreamEnd::Idle { .. }
            | StreamEnd::Lost { .. }
            | StreamEnd::Gone) => end,
        }
    }

    fn outcome(&self, end: StreamEnd) -> Outcome {
        match end {
            StreamEnd::Lost { loss, message } => {
                Outcome::Failed(Failure::Gateway { loss, message })
            }
            StreamEnd::Gone => {
                let message = "LangGraph has neither the run nor its thread any more".to_owned();
                Outcome::Failed(Failure::Gateway { loss: Loss::Gone, message })
            }
            StreamEnd::Cancelled => Outcome::Cancelled,
            StreamEnd::Failed(error) if is_cancel(&error) => Outcome::Cancelled,
            StreamEnd::Failed(error) => Outcome::Failed(Failure::Graph(error)),
            StreamEnd::Complete | StreamEnd::Succeeded | StreamEnd::Idle { .. }
                if self.is_interrupted() =>
            {
                Outcome::Interrupted(self.questions())
            }
            StreamEnd::Idle { error } => Outcome::Idle { error },
            StreamEnd::Complete | StreamEnd::Succeeded => {
                let view = self.view();
                let pending = |id: &&Id| view.call(id).is_some() && !view.is_answered(id);
                let pending_calls = self.announced.iter().filter(pending).cloned().collect();
                Outcome::Finished { pending_calls, finish: self.finish }
            }
        }
    }

    /// What a subagent's model does is its caller's affair.
    fn note_finish(&mut self, finish: Option<Finish>, agent: Option<&Id>) {
        if let (Some(finish), None) = (finish, agent) {
            self.finish = finish;
        }
    }

    /// The interrupts of the run, each with the calls that it is about.
    fn questions(&self) -> Vec<Interrupt> {
        let mut questions = self.interrupts.clone();
        if questions.is_empty() {
            questions.push(Interrupt::breakpoint(&self.thread_id));
        }
        for question in &mut questions {
            question.keep(&self.kept);
            question.ask_some();
            question.find_calls(self.view());
        }
        questions
    }

    /// Whether somebody was still speaking: a step alone may be open for want of an end mark.
    fn is_mid_sentence(&self) -> bool {
        let open = self.view().open();
        !open.texts.is_empty() || !open.thoughts.is_empty() || !open.calls.is_empty()
    }

    /// Brings the client's conversation to LangGraph's, where the latter is known.
    fn reconcile(&mut self) {
        let Some(conversation) = &self.conversation else { return };
        let target = conversation.to_vec();
        let snapshots = commit::snapshots_for(self.view(), &target);
        if snapshots.is_empty() && !self.view().is_based() {
            self.out.messages(&target);
        }
        for snapshot in snapshots {
            self.out.messages(&snapshot);
        }
    }

    /// What LangGraph holds of a lost run is not known, so all that was said stays. Clients may hold
    /// it in different orders, of which the view's becomes everyone's.
    fn settle_order(&mut self) {
        let view = self.view();
        if !(view.is_scattered() && view.is_based()) {
            return;
        }
        let target = view.messages().to_vec();
        for snapshot in commit::snapshots_for(view, &target) {
            self.out.messages(&snapshot);
        }
    }

    fn on_values(&mut self, namespace: &str, values: &Values<'_>) {
        self.on_interrupts(values.interrupts.as_deref());
        // A subgraph's state is its own; the JavaScript server sends interrupts without a state.
        if !namespace.is_empty() || values.is_only_interrupts() {
            return;
        }
        while let Some(step) = self.steps.on_superstep() {
            self.finish_step(step);
        }
        self.out.state(values_json(values));
        self.has_told_state = true;
        if let Some(messages) = &values.messages {
            self.commit(messages);
        }
    }

    /// The conversation before anything was said in this run, or a later reading of it.
    fn base(&mut self, items: &[&RawValue]) {
        let thread_id = Arc::clone(&self.thread_id);
        let conversation = self.conversation.get_or_insert_with(|| Conversation::new(thread_id));
        conversation.update(items);
        if self.view().messages().is_empty() {
            self.show_base();
        }
    }

    /// Shows the base even if it is empty: a client may hold what LangGraph does not.
    fn show_base(&mut self) {
        let Some(conversation) = &self.conversation else { return };
        let messages = conversation.to_vec();
        self.out.messages(&messages);
    }

    /// Takes in the conversation of a superstep: adds what no token mode has carried.
    fn commit(&mut self, items: &[&RawValue]) {
        if self.conversation.is_none() && self.view().messages().is_empty() {
            return self.base(items);
        }
        let thread_id = Arc::clone(&self.thread_id);
        let conversation = self.conversation.get_or_insert_with(|| Conversation::new(thread_id));
        for committed in conversation.update(items) {
            let Some(id) = committed.id() else { continue };
            self.say_whole(&id, &committed.source, &committed.messages, None, None);
            self.speeches.remove(&id);
        }
    }

    fn note_beginning(&mut self, first: &Body<'_>) {
        if let Beginning::Unsure { has_values } = self.beginning {
            self.beginning = if matches!(first, Body::Metadata { .. }) {
                Beginning::Heard
            } else {
                Beginning::Missed { has_values, step: None }
            };
        }
    }

    /// Notes the first root `values` or `updates` after a join. Before it a message may lack its
    /// beginning; after a superstep every message is whole. Of parallel nodes `updates` show only
    /// one, so they count only if the stream has no `values`.
    fn note_boundary(&mut self, part: &Part<'_>) {
        let Beginning::Missed { has_values, .. } = self.beginning else { return };
        let is_boundary = matches!(part.body, Body::Values(_))
            || (matches!(part.body, Body::Updates(_)) && !has_values);
        if is_boundary && part.namespace.is_empty() {
            self.beginning = Beginning::Heard;
        }
    }

    /// Whether the beginning of what a speaker says may have been missed. Who speaks in a later
    /// superstep than the first that was heard has begun since.
    fn may_have_missed(&mut self, origin: &Origin) -> bool {
        let Beginning::Missed { step, .. } = &mut self.beginning else { return false };
        let of_root = origin.step.filter(|_| !origin.checkpoint_ns.contains('|'));
        if let (Some(first), Some(now)) = (*step, of_root)
            && now > first
        {
            self.beginning = Beginning::Heard;
            return false;
        }
        *step = step.or(of_root);
        true
    }
}

/// A state without what travels otherwise.
fn values_json(values: &Values<'_>) -> json::Json {
    match &values.state {
        Some(state) => json::ObjectWriter::with(state).finish(),
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
