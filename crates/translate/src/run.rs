//! What happens in a run, in words that belong to neither wire.
//!
//! Parts of LangGraph go in, run events come out, and each wire is a projection of those.
//! Only the [`Translator`] makes run events; the [`View`] is their fold.

mod activity;
mod arbiter;
mod brackets;
mod commit;
mod decision;
mod emit;
mod failure;
mod filter;
mod interrupt;
mod message;
mod name;
mod new_run;
mod open;
mod patch;
mod raw;
mod resync;
mod snapshot;
mod steps;
mod translator;
mod usage;
mod view;
mod weight;

use std::sync::Arc;

pub use crate::langgraph::{
    Account, ApprovalForm, Decision, ErrorDetail, Finish, Given, Multitask, RunError, Start,
};
pub use activity::{Activity, TODOS, Todos, ToolStatus};
pub use commit::{langgraph_call_id, snapshots, snapshots_for_anyone, snapshots_for_returning};
pub use decision::DecisionFault;
pub use emit::{Emit, MessageSnapshots, StateEvents, Subagents, TRUNCATED, is_truncated};
pub use failure::{Failure, Loss};
pub use filter::Filter;
pub use interrupt::{Action, Ask, BREAKPOINT, Interrupt, Kept, is_breakpoint, question_key};
pub use message::{Call, Content, ContentPart, Message, Role};
pub use new_run::{Configured, NewRun, Plan, Planner};
pub use open::Open;
pub use patch::{Operation, Patch, State};
pub use raw::raw_part;
pub use resync::{Holds, closings, resync};
pub use snapshot::{SNAPSHOT_FORMS, Snapshot};
pub use translator::{StreamEnd, Translator};
pub use usage::Usage;
pub use view::View;

use crate::json::{Json, Text};

/// An id: of a message, a call, a run, a subagent. Derived from LangGraph's, never random.
pub type Id = Arc<str>;

/// One thing that happens in a run.
///
/// ```text
/// Started ( Step | Text | Attached | Reasoning | Call | Result | State | Messages | Subagent | Custom | Activity | Raw )*
/// Ended
/// ```
/// What starts also ends before `Ended`; nothing follows it.
#[derive(Clone, Debug, PartialEq)]
pub enum RunEvent {
    /// The run is accepted.
    Started {
        /// LangGraph's thread.
        thread_id: Id,
        /// LangGraph's run; `None` for a thread at rest, which is told as a run of snapshots.
        run_id: Option<Id>,
        /// What it is called: as by the client that started it, else LangGraph's id.
        name: Id,
    },
    /// A node begins.
    StepStarted {
        /// The node's name, made unique among the open steps of its agent.
        name: Id,
        /// The subagent it belongs to; `None` for the run's own agent, here and below.
        agent: Option<Id>,
    },
    /// A node is through.
    StepFinished {
        /// As it started.
        name: Id,
        /// As it started.
        agent: Option<Id>,
    },
    /// A message begins, or a known one goes on.
    TextStarted {
        /// LangGraph's message id.
        message_id: Id,
        /// Who speaks.
        role: Role,
        /// The speaker's name.
        name: Option<Text>,
        /// The subagent that speaks.
        agent: Option<Id>,
    },
    /// A piece of a message.
    TextDelta {
        /// The message.
        message_id: Id,
        /// The piece, never empty.
        delta: Text,
    },
    /// A message rests.
    TextEnded {
        /// The message.
        message_id: Id,
    },
    /// A message of the agent holds something besides its text. It stands in the place of the
    /// attachment of this id, if there is one.
    Attached(Arc<Message>),
    /// A thought begins, or a known one goes on.
    ReasoningStarted {
        /// The thought's id, different from its message's.
        message_id: Id,
        /// The subagent that thinks.
        agent: Option<Id>,
    },
    /// A piece of a thought.
    ReasoningDelta {
        /// The thought.
        message_id: Id,
        /// The piece, never empty.
        delta: Text,
    },
    /// A thought rests.
    ReasoningEnded {
        /// The thought.
        message_id: Id,
    },
    /// The sealed form of a thought, whole.
    ReasoningSealed {
        /// The thought.
        message_id: Id,
        /// For the provider to have back.
        sealed: Text,
    },
    /// A tool is called.
    CallStarted {
        /// The call's id on our wires.
        call_id: Id,
        /// The tool.
        name: Id,
        /// The message that calls it.
        message_id: Id,
        /// The subagent that calls it.
        agent: Option<Id>,
    },
    /// A piece of a call's arguments.
    CallArgs {
        /// The call.
        call_id: Id,
        /// The piece, never empty, cut anywhere.
        delta: Text,
    },
    /// A call's arguments are complete.
    CallEnded {
        /// The call.
        call_id: Id,
    },
    /// A tool has answered.
    CallResult {
        /// The id of the tool message.
        message_id: Id,
        /// The call.
        call_id: Id,
        /// The answer.
        content: Content,
        /// Whether it tells of a failure.
        is_error: bool,
        /// The subagent whose call it was.
        agent: Option<Id>,
    },
    /// The state, whole, without its messages.
    StateSnapshot(Json),
    /// What changed in the state.
    StateDelta(Patch),
    /// The conversation, whole.
    Messages(Snapshot),
    /// What one call of a model has cost so far.
    Spent {
        /// The message that it makes.
        message_id: Id,
        /// The cost of this call alone.
        usage: Usage,
        /// The subagent whose model it is.
        agent: Option<Id>,
    },
    /// A subgraph begins to speak.
    SubagentStarted(Subagent),
    /// A subgraph is through.
    SubagentFinished {
        /// The subagent.
        id: Id,
    },
    /// What a node wrote to the stream.
    Custom {
        /// The kind of the event.
        name: Id,
        /// Its payload, untouched.
        value: Json,
        /// The subagent that wrote it.
        agent: Option<Id>,
    },
    /// Something begins to go on beside what is said, or changes.
    Activity {
        /// The activity.
        id: Id,
        /// What it is now.
        activity: Activity,
        /// What has changed in it; `None` for all that a viewer is to know of it.
        change: Option<Patch>,
        /// The subagent whose call it is.
        agent: Option<Id>,
    },
    /// A part of LangGraph's stream that has no meaning here, for those who want it all the same.
    Raw(Json),
    /// The run is over, or lost to us.
    Ended {
        /// How.
        outcome: Outcome,
        /// What it has cost, per model.
        usage: Vec<Usage>,
    },
}

/// A subgraph that speaks for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subagent {
    /// LangGraph's task id of the node that runs it.
    pub id: Id,
    /// The agent's name, else the node's.
    pub name: Id,
    /// The subagent it works for.
    pub parent: Option<Id>,
    /// The call that started it, where that is known.
    pub call_id: Option<Id>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It did what was asked.
    Finished {
        /// Calls that wait for the client to answer them.
        pending_calls: Vec<Id>,
        /// Why its model stopped the last time.
        finish: Finish,
    },
    /// It waits for a person.
    Interrupted(Vec<Interrupt>),
    /// Somebody stopped it.
    Cancelled,
    /// Nothing ran: what the thread holds was told.
    AtRest {
        /// Why the thread's last run failed, if it did.
        error: Option<RunError>,
    },
    /// It failed, or the gateway cannot say how it goes on.
    Failed(Failure),
}
