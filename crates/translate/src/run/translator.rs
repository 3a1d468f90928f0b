//! The state machine: what each part of LangGraph's stream means for the run.
//!
//! ```text
//!            start            on_part*                      on_end
//!   (new) ----------> running ---------> running ... ----------------> ended
//!                        |  second `metadata`: a new attempt, same run   ^
//!                        +-----------------------------------------------+
//! ```
//! Infallible and deterministic: the same parts give the same events with the same ids.
//!
//! The machines of the stream's dialects read what is said, and the [`Assembler`] puts it together.
//! The translator has what belongs to the run as a whole:
//!
//! - this file: the parts of a stream, and the states that are read beside it;
//! - `state`: the graph's state, and the conversation in it;
//! - `questions`: what the run asks before it goes on;
//! - `ending`: how a run ends. `shown`: a digest of what viewers hold then.

mod ending;
mod questions;
mod shown;
mod state;

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::value::RawValue;

use self::questions::Questions;
use super::assembler::{Assembler, Beginning};
use super::below::StatesBelow;
use super::commit::Conversation;
use super::{Harness, Id, Message, RunEvent, View};
use crate::json;
use crate::langgraph::dialect::Dialects;
use crate::langgraph::{
    MessagesKey, Part, PartPayload, RunError, StoredDecision, Task, ThreadState, Updates, Values,
    is_internal_node,
};

pub use self::ending::{LastRun, StreamEnd};

/// Translates one run.
#[derive(Debug)]
pub struct Translator {
    ids: RunIds,
    /// Under which key of its state the graph keeps its conversation.
    messages_key: MessagesKey,
    phase: Phase,
    attempt: Attempt,
    dialects: Dialects,
    assembler: Assembler,
    /// The conversation of the thread's last known state.
    conversation: Option<Conversation>,
    /// What subgraphs hold, by the stream.
    below: StatesBelow,
    /// What the tasks that wait hold, by the thread's state.
    waiting: StatesBelow,
    resumes: Resumes,
    questions: Questions,
    error: Option<RunError>,
}

/// How the run is called.
#[derive(Debug)]
struct RunIds {
    /// LangGraph's id of the thread.
    thread_id: Id,
    /// LangGraph's id of the run; `None` for an idle thread.
    run_id: Option<Id>,
    /// The name that clients are sent.
    name: Id,
}

/// How far the run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    New,
    Running {
        /// Whether this attempt has had a part.
        has_parts: bool,
    },
    Ended,
}

/// Whether the run goes on after a question. Clients then hold what subgraphs held that waited, and
/// the thread's state lacks it. Each of these subgraphs sends its state before anything else.
///
/// Nothing but the stream decides what is shown, so that each reader of the run makes the same events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resumes {
    No,
    /// It does. The conversation is withheld until the subgraphs have sent their states.
    Gathering,
    /// It does, and the conversation was shown.
    Shown,
}

/// An attempt at the run: the server starts a run again after a crash of its own.
#[derive(Debug)]
struct Attempt {
    /// 1 for the first that the stream shows.
    number: u32,
    /// Whether the attempt has sent the state.
    has_state: bool,
}

// === impl Translator ===

impl Translator {
    /// A translator for a run of a thread, both under LangGraph's ids.
    pub fn new(thread_id: &str, run_id: &str) -> Self {
        Self::named(thread_id, Some(run_id), run_id)
    }

    /// A translator for a run that has a name of its own, or for an idle thread.
    pub fn named(thread_id: &str, run_id: Option<&str>, name: &str) -> Self {
        Self {
            ids: RunIds {
                thread_id: Id::from(thread_id),
                run_id: run_id.map(Id::from),
                name: Id::from(name),
            },
            messages_key: MessagesKey::default(),
            phase: Phase::New,
            attempt: Attempt { number: 1, has_state: false },
            dialects: Dialects::default(),
            assembler: Assembler::default(),
            conversation: None,
            below: StatesBelow::default(),
            waiting: StatesBelow::default(),
            resumes: Resumes::No,
            questions: Questions::default(),
            error: None,
        }
    }

    /// Sets the key of the state under which the graph keeps its conversation. Parts and states
    /// must be parsed under the same key.
    #[must_use]
    pub fn under(self, messages_key: MessagesKey) -> Self {
        Self { messages_key, ..self }
    }

    /// Sets what becomes of the messages that nobody typed, and of the harness's own model calls.
    /// To be called before anything is read.
    #[must_use]
    pub fn showing(mut self, harness: Harness) -> Self {
        self.assembler.harness = harness;
        self
    }

    /// The stream was joined, and carries the state or not. Its first part shows whether it begins
    /// with the run.
    ///
    /// If it does not, a message whose beginning may be missing is withheld until it is committed,
    /// and then sent whole.
    #[must_use]
    pub fn joined(mut self, has_values: bool) -> Self {
        self.assembler.beginning = Beginning::Unsure { has_values };
        self
    }

    /// What a client holds that has applied all events so far.
    pub fn view(&self) -> &View {
        self.assembler.view()
    }

    /// The view as it is now, to be kept. If the run goes on, the next event costs a copy of it.
    pub fn shared_view(&self) -> Arc<View> {
        self.assembler.out.shared_view()
    }

    /// The conversation of the thread's last known state; `None` before there is one.
    pub fn conversation(&self) -> Option<Vec<Arc<Message>>> {
        self.conversation.as_ref().map(Conversation::to_vec)
    }

    /// How often the run has begun, as far as the stream shows: the server starts a run again after
    /// a crash of its own.
    pub fn attempt(&self) -> u32 {
        self.attempt.number
    }

    /// Whether the present attempt has sent the run's state.
    pub fn has_sent_state(&self) -> bool {
        self.attempt.has_state
    }

    /// Whether the run has asked a question, or stopped at a static breakpoint.
    pub fn is_interrupted(&self) -> bool {
        self.questions.is_open()
    }

    /// Whether something may ask below the root, or beside a task that has ended. The stream then
    /// lacks what finished tasks have written, which the thread's state has.
    pub fn asks_below(&self) -> bool {
        let is_uncommitted = |view: &View| {
            let committed = self.conversation().unwrap_or_default();
            let committed: HashSet<_> = committed.iter().map(|message| &message.id).collect();
            view.messages().iter().any(|message| !committed.contains(&message.id))
        };
        let view = self.view();
        self.is_interrupted() && (!view.open().subagents.is_empty() || is_uncommitted(view))
    }

    /// Whether the run asks about several actions at once, some of which may be answered.
    pub fn asks_batch(&self) -> bool {
        self.questions.has_batch()
    }

    /// Why the run failed, according to its stream.
    pub fn error(&self) -> Option<&RunError> {
        self.error.as_ref()
    }

    /// Whether the stream has begun in the middle of its run.
    pub fn has_missed_its_beginning(&self) -> bool {
        matches!(self.assembler.beginning, Beginning::Missed { .. })
    }

    /// Begins the run. The other inputs begin it too; a second call does nothing.
    pub fn start(&mut self, out: &mut Vec<RunEvent>) {
        if self.phase == Phase::New {
            self.phase = Phase::Running { has_parts: false };
            let RunIds { thread_id, run_id, name } = &self.ids;
            self.assembler.out.started(thread_id, run_id.as_ref(), name);
            self.assembler.out.drain_into(out);
        }
    }

    /// Translates a part. A part after the end is ignored.
    pub fn on_part(&mut self, part: &Part<'_>, out: &mut Vec<RunEvent>) {
        self.start(out);
        if self.phase != Phase::Ended {
            self.assembler.beginning.note_first(&part.body);
            self.translate(part);
            self.assembler.beginning.note_boundary(part);
            self.phase = Phase::Running { has_parts: true };
            self.assembler.out.drain_into(out);
        }
    }

    /// The stream goes on, and parts may be missing in between. Messages under way are closed, and
    /// the next producers may have begun in the gap.
    pub fn on_gap(&mut self, has_values: bool, out: &mut Vec<RunEvent>) {
        if matches!(self.phase, Phase::Running { .. }) {
            self.break_off();
            self.assembler.beginning = Beginning::missed(has_values);
        }
        self.assembler.out.drain_into(out);
    }

    /// Takes in a state that was read beside the stream: the thread's, which may lack some of the
    /// run, or all of it. Its questions are left out, since they may be an earlier run's.
    pub fn on_base(&mut self, values: &Values<'_>, out: &mut Vec<RunEvent>) {
        self.start(out);
        if self.phase != Phase::Ended {
            self.take_in(values);
            if !self.view().is_based() {
                self.reconcile();
            }
        }
        self.assembler.out.drain_into(out);
    }

    /// Takes in a state that was read instead of a stream, and shows what has changed.
    pub fn on_checkpoint(&mut self, values: &Values<'_>, out: &mut Vec<RunEvent>) {
        self.start(out);
        if self.phase != Phase::Ended {
            self.take_in(values);
            self.reconcile();
        }
        self.assembler.out.drain_into(out);
    }

    /// Takes in the state that the run came to, read after the end of its stream.
    pub fn on_state(&mut self, state: &ThreadState<'_>, out: &mut Vec<RunEvent>) {
        self.start(out);
        if self.phase == Phase::Ended {
            return;
        }
        self.questions.on_state(state);
        self.waiting = StatesBelow::of(state);
        if let Some(values) = &state.values {
            self.take_in(values);
        }
        self.assembler.out.drain_into(out);
    }

    /// The run goes on after a question: clients keep what its subgraphs held that waited.
    #[must_use]
    pub fn resuming(self) -> Self {
        Self { resumes: Resumes::Gathering, ..self }
    }

    /// Takes in the answers that the thread's metadata keep.
    pub fn keep(&mut self, kept: &[StoredDecision]) {
        self.questions.keep(kept);
    }

    /// Shows, after the thread's conversation, the input of a run that waits for its turn.
    ///
    /// A message without an id gets a name until LangGraph takes it in and gives it an id.
    pub fn on_input(&mut self, input: &RawValue, out: &mut Vec<RunEvent>) {
        let name = Arc::clone(&self.ids.name);
        self.show_input(input, |at| Some(Id::from(format!("{name}:input:{at}"))), out);
    }

    /// Shows the messages of a run's input that have ids, which LangGraph keeps.
    pub fn on_named_input(&mut self, input: &RawValue, out: &mut Vec<RunEvent>) {
        self.show_input(input, |_| None, out);
    }

    /// Ends the run: closes what is open, brings the client to what LangGraph holds, and says how
    /// the run ended. A second end does nothing.
    pub fn on_end(&mut self, end: StreamEnd, out: &mut Vec<RunEvent>) {
        self.start(out);
        if self.phase == Phase::Ended {
            return;
        }
        self.phase = Phase::Ended;
        let end = self.understand(end);
        self.settle_waiting(&end);
        self.assembler.out.close_all();
        if matches!(end, StreamEnd::Lost { .. }) {
            self.settle_order();
        } else {
            self.reconcile();
        }
        let open = self.open_calls();
        let outcome = self.outcome(end, &open);
        self.assembler.out.ended(outcome, &open, self.assembler.cost());
        self.assembler.out.drain_into(out);
    }

    fn translate(&mut self, part: &Part<'_>) {
        let namespace = &*part.namespace;
        let may_gather = match &part.body {
            PartPayload::Values(_) => !namespace.is_empty(),
            PartPayload::Said(_)
            | PartPayload::Updates(_)
            | PartPayload::Custom(_)
            | PartPayload::Error(_) => false,
            PartPayload::Task(_)
            | PartPayload::Interrupts(_)
            | PartPayload::Metadata { .. }
            | PartPayload::Silent
            | PartPayload::Unknown
            | PartPayload::Malformed(_) => true,
        };
        if !may_gather {
            self.show_gathered();
        }
        match &part.body {
            PartPayload::Said(said) => {
                let assembler = &mut self.assembler;
                self.dialects.translate(said, namespace, &self.messages_key, |dialect, event| {
                    assembler.take(dialect, event);
                });
            }
            PartPayload::Values(values) => self.on_values(namespace, values),
            PartPayload::Updates(updates) => self.on_updates(namespace, updates),
            PartPayload::Custom(value) => {
                let Assembler { steps, out, .. } = &mut self.assembler;
                let agent = steps.enter_subgraph(namespace, None, out);
                out.custom("langgraph.custom", json::Json::from(*value), agent.as_ref());
            }
            PartPayload::Task(task) => self.on_task(namespace, task),
            PartPayload::Interrupts(interrupts) => {
                self.questions.on_list(namespace, Some(interrupts));
            }
            PartPayload::Error(error) => self.error = Some(error.clone()),
            PartPayload::Metadata { .. } => self.on_metadata(),
            PartPayload::Silent | PartPayload::Unknown | PartPayload::Malformed(_) => {}
        }
    }

    fn on_updates(&mut self, namespace: &str, updates: &Updates<'_>) {
        self.assembler.steps.on_updates();
        for update in &updates.nodes {
            self.assembler.on_update(namespace, update);
            if updates.is_cached {
                self.assembler.settle(update);
            }
        }
        self.questions.on_list(namespace, updates.interrupts.as_deref());
    }

    fn on_task(&mut self, namespace: &str, task: &Task<'_>) {
        if is_internal_node(&task.name) {
            return;
        }
        self.assembler.on_task(namespace, task);
        if !task.is_start() {
            self.questions.add(namespace, &task.interrupts());
        }
    }

    /// A `metadata` after other parts is a new attempt: what was not committed is void.
    fn on_metadata(&mut self) {
        if self.phase == (Phase::Running { has_parts: false }) {
            return;
        }
        self.attempt = Attempt { number: self.attempt.number + 1, has_state: false };
        self.break_off();
        self.questions.clear();
        self.below = StatesBelow::default();
        self.error = None;
        self.reconcile();
    }

    /// Closes what is open, and forgets which messages were under way.
    fn break_off(&mut self) {
        self.assembler.break_off();
        self.dialects.forget();
    }
}
