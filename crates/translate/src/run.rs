//! What happens in a run, in the terms of neither LangGraph nor a client's protocol.
//!
//! [`Translator`] takes the parts of one run's stream, and makes [`RunEvent`]s of them. A projector
//! of [`agui`](crate::agui) or [`acp`](crate::acp) turns run events into what one client is sent.
//! [`View`] holds what a client has after the events so far: its messages, its state, and what is
//! open. [`resync`] makes the events for a client that joins late.
//!
//! The files:
//!
//! - `translator`: the run as a whole, as a state machine. `assembler`: which dialect owns which
//!   message. `langchain`: messages as a run's input carries them.
//! - `event_writer`: makes all run events, and closes what it opens. `open`: what is open. `steps`: the
//!   nodes and subagents that run.
//! - `view`: messages and state after the events so far. `commit`: the conversation as LangGraph
//!   holds it. `below`: the states of subgraphs, which are a part of it while they wait. `resync`: from a view to a late client.
//! - `message`, `reasoning`, `snapshot`: messages. `state`, `patch`: the state, and its changes.
//! - `activity`: running tools and the plan. `usage`: tokens.
//! - `interrupt`, `decision`: questions to a person, and which answers fit.
//! - `new_run`: a run that a client wants to start. `evidence`: what its plan knows of the thread.
//!   `plan`: the thread's conversation, and how a run's input continues it.
//! - `emit`, `filter`: which events viewers see. `raw`: parts of LangGraph's stream as viewers may
//!   see them.
//! - `failure`: why a run failed. `name`, `memory`: what a run event is called, and how much memory
//!   it takes.

mod activity;
mod assembler;
mod below;
mod commit;
mod decision;
mod emit_options;
mod event_writer;
mod evidence;
mod failure;
mod filter;
mod interrupt;
mod langchain;
mod memory;
mod message;
mod name;
mod new_run;
mod open;
mod patch;
pub(crate) mod plan;
mod raw;
mod reasoning;
mod resync;
mod snapshot;
mod state;
mod steps;
mod translator;
mod usage;
mod view;

use std::sync::Arc;

pub use crate::langgraph::{
    ApprovalForm, BatchDecision, Decision, ErrorDetail, ErrorReport, Finish, Multitask, RunError,
    Start,
};
pub(crate) use activity::Todos;
pub use activity::{Activity, ToolStatus};
pub(crate) use commit::langgraph_call_id;
pub use commit::{ViewerMessages, snapshots};
pub use decision::DecisionFault;
pub(crate) use emit_options::untruncated;
pub use emit_options::{EmitOptions, Harness, MessageSnapshots, Rendering, StateEvents, Subagents};
pub use evidence::{
    Dropped, Evidence, LiveRun, MessagePast, Need, PlanStep, SentMessage, WhyDropped,
};
pub use failure::{Failure, LossReason};
pub use filter::Filter;
pub use interrupt::{Action, Ask, EarlierDecision, Interrupt};
pub(crate) use interrupt::{BREAKPOINT, asked, is_breakpoint, question_key};
pub use message::{
    Call, CallForm, Content, ContentPart, HarnessNotice, Inserted, Insertion, Message, Role,
};
pub use new_run::{NewRun, Plan, Planner, RunConfig};
pub use open::Open;
pub use patch::{Operation, Patch};
pub use raw::raw_part;
pub use resync::{Viewer, closings, resync};
pub use snapshot::Snapshot;
pub use state::State;
pub use translator::{LastRun, StreamEnd, Translator};
pub use usage::Usage;
pub use view::View;

use crate::json::{Json, Text};

/// An id of a message, a call, a run or a subagent. It is derived from LangGraph's ids, never
/// random.
pub type Id = Arc<str>;

/// One event of a run.
///
/// ```text
/// Started ( Step | Text | Attached | Adopted | Reasoning | Call | Result | State | Messages | Subagent | Custom | Activity | Raw )*
/// Ended
/// ```
/// Everything that starts also ends before `Ended`. Nothing follows `Ended`.
#[derive(Clone, Debug, PartialEq)]
pub enum RunEvent {
    /// The run is accepted.
    Started {
        /// LangGraph's thread.
        thread_id: Id,
        /// LangGraph's run. `None` for an idle thread, which viewers get as a run of snapshots.
        run_id: Option<Id>,
        /// The name that the client gave the run. Without one, LangGraph's id.
        name: Id,
    },
    /// A node starts.
    StepStarted {
        /// The node's name, made unique among the open steps of its agent.
        name: Id,
        /// The subagent that the step belongs to. `None` stands for the run's own agent, here and
        /// below.
        agent: Option<Id>,
    },
    /// A node has finished.
    StepFinished {
        /// The name in `StepStarted`.
        name: Id,
        /// The subagent in `StepStarted`.
        agent: Option<Id>,
    },
    /// A new message starts, or a known one continues.
    TextStarted {
        /// LangGraph's message id.
        message_id: Id,
        /// Its author.
        role: Role,
        /// The author's name.
        name: Option<Text>,
        /// The subagent that writes the message.
        agent: Option<Id>,
    },
    /// A piece of a message.
    TextDelta {
        /// The message.
        message_id: Id,
        /// The text to append. Never empty.
        delta: Text,
    },
    /// A message is complete for now. A later `TextStarted` may continue it.
    TextEnded {
        /// The message.
        message_id: Id,
    },
    /// An assistant's message contains something besides text. The attachment replaces an earlier
    /// one with the same id.
    Attached(Arc<Message>),
    /// The run's own conversation has taken in a message that a subagent wrote for a call. Clients
    /// hold it already, under that subagent; one that was not shown it is shown it now.
    Adopted(Arc<Message>),
    /// A new reasoning message starts, or a known one continues.
    ReasoningStarted {
        /// The id of the reasoning message, which differs from that of the message it belongs to.
        message_id: Id,
        /// The subagent whose model reasons.
        agent: Option<Id>,
    },
    /// A piece of reasoning.
    ReasoningDelta {
        /// The reasoning message.
        message_id: Id,
        /// The text to append. Never empty.
        delta: Text,
    },
    /// A reasoning message is complete for now.
    ReasoningEnded {
        /// The reasoning message.
        message_id: Id,
    },
    /// A reasoning message in its encrypted form, whole.
    ReasoningSealed {
        /// The reasoning message.
        message_id: Id,
        /// The encrypted form, which only the provider can read.
        sealed: Text,
    },
    /// A tool is called.
    CallStarted {
        /// The call's id as clients see it.
        call_id: Id,
        /// The tool's name.
        name: Id,
        /// The message that contains the call.
        message_id: Id,
        /// The subagent that makes the call.
        agent: Option<Id>,
    },
    /// A piece of a call's arguments.
    CallArgs {
        /// The call.
        call_id: Id,
        /// The text to append. Never empty. It may end anywhere in the JSON.
        delta: Text,
    },
    /// A call's arguments are complete.
    CallEnded {
        /// The call.
        call_id: Id,
    },
    /// A tool has returned its result.
    CallResult {
        /// The id of the tool message.
        message_id: Id,
        /// The call.
        call_id: Id,
        /// The result.
        content: Content,
        /// Whether the result reports a failure.
        is_error: bool,
        /// The subagent that made the call.
        agent: Option<Id>,
    },
    /// The whole state, without its messages.
    StateSnapshot(Json),
    /// A change of the state.
    StateDelta(Patch),
    /// The whole conversation.
    Messages(Snapshot),
    /// The tokens that one model call has used so far.
    Spent {
        /// The message that the call produces.
        message_id: Id,
        /// The usage of this call alone.
        usage: Usage,
        /// The subagent that called the model.
        agent: Option<Id>,
    },
    /// A subgraph produces its first event.
    SubagentStarted(Subagent),
    /// A subgraph has finished.
    SubagentFinished {
        /// The subagent.
        id: Id,
    },
    /// A value that a node wrote to the stream.
    Custom {
        /// The kind of the event.
        name: Id,
        /// The value, byte for byte.
        value: Json,
        /// The subagent that wrote it.
        agent: Option<Id>,
    },
    /// A tool or the plan has a new status.
    Activity {
        /// The activity.
        id: Id,
        /// The activity as it is now.
        activity: Activity,
        /// What has changed since the last event of this activity. `None` means that a viewer needs
        /// the whole activity.
        change: Option<Patch>,
        /// The subagent that made the call.
        agent: Option<Id>,
    },
    /// A part of LangGraph's stream, passed along as it is.
    Raw(Json),
    /// The run has ended, or the gateway has lost it.
    Ended {
        /// How it ended.
        outcome: Outcome,
        /// The tokens that the run has used, for each model.
        usage: Vec<Usage>,
    },
}

/// A subgraph whose events are shown as those of an agent of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subagent {
    /// LangGraph's task id of the node that runs it.
    pub id: Id,
    /// The agent's name. Without one, the node's.
    pub name: Id,
    /// The subagent that contains this one.
    pub parent: Option<Id>,
    /// The tool call that started it, if known.
    pub call_id: Option<Id>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It ran to its end.
    Finished {
        /// The calls that wait for a result, which the client has to give.
        pending_calls: Vec<Id>,
        /// Why the run's model stopped the last time.
        finish: Finish,
    },
    /// It waits for a person to answer these questions.
    Interrupted(Vec<Interrupt>),
    /// Somebody cancelled it.
    Cancelled,
    /// Nothing ran: the events show what an idle thread holds.
    Idle {
        /// The calls that wait for a result since the thread's last run.
        pending_calls: Vec<Id>,
        /// Why the thread's last run failed, if it did.
        error: Option<RunError>,
    },
    /// It failed, or the gateway cannot follow it any further.
    Failed(Failure),
}
