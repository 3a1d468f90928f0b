//! What a planner knows of a thread, and what it may ask to be looked up.
//!
//! A planner has no IO. If the thread's newest state does not decide what a request means, the
//! planner returns a [`Need`], and is called again with its result.

use std::fmt;
use std::sync::Arc;

use super::{Plan, Role};
use crate::json::Json;
use crate::langgraph::ThreadState;

/// What is known of a thread. The fields that are `None` were not looked up.
#[derive(Clone, Copy, Debug, Default)]
pub struct Evidence<'a> {
    /// The newest state. `None` for a thread that LangGraph does not have.
    pub state: Option<&'a ThreadState<'a>>,
    /// The runs that are pending or running: the result of [`Need::Runs`].
    pub live: Option<&'a [LiveRun]>,
    /// The result of [`Need::Sent`].
    pub sent: Option<&'a [SentMessage]>,
    /// The result of [`Need::Past`].
    pub past: Option<&'a [MessagePast]>,
    /// The result of [`Need::Values`]: the wanted ones that the thread has had.
    pub values: Option<&'a [(String, Json)]>,
}

/// A run that is pending or running.
#[derive(Clone, Debug, Default)]
pub struct LiveRun {
    /// LangGraph's id.
    pub id: String,
    /// The messages of its input, and those that were sent beside answers.
    pub messages: Vec<Json>,
}

/// A message in the input of a recent run, or in a recent state.
#[derive(Clone, Debug)]
pub struct SentMessage {
    /// Its id.
    pub id: String,
    /// The message as it was sent.
    pub message: Json,
    /// Whether the thread has stored it. A run that was cancelled before it began stored nothing.
    pub is_stored: bool,
}

/// The forms that a message has had in its thread.
#[derive(Clone, Debug, Default)]
pub struct MessagePast {
    /// Its id.
    pub id: String,
    /// Its forms in the states that led to the newest one.
    pub here: Vec<Json>,
    /// Its forms on branches that forks have left.
    pub elsewhere: Vec<Json>,
    /// The JSON of the last state before it. `None` if there is none.
    pub before: Option<Arc<str>>,
}

/// What must be looked up, or done, before a request can be planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// The live runs. The state is read anew after them: a run that has ended by then has made it.
    Runs,
    /// The messages of these ids in the inputs of the newest runs, the newest first.
    Sent {
        /// The ids.
        ids: Vec<String>,
        /// Those of them that a graph may have made. If no input has one, it is looked for in the
        /// newest states.
        made: Vec<String>,
    },
    /// The earlier states, back to the last one without any of these messages. If they are too many,
    /// the first of them are looked for.
    Past(Vec<String>),
    /// Which of these values the keys of the state have had since the state in which the message
    /// arrived. Without a message, in the newest states.
    Values {
        /// The keys with the values.
        wanted: Vec<(String, Json)>,
        /// The id of the newest message that the client has.
        since: Option<String>,
    },
    /// The end of this run, which is to be stopped: the request wants its message answered again.
    /// Then everything is looked up anew.
    Stop {
        /// LangGraph's id of the run.
        run_id: String,
    },
}

/// A plan, or what it needs.
#[derive(Clone, Debug)]
pub enum PlanStep {
    /// The plan.
    Plan(Box<Plan>),
    /// The planner must be called again with the result.
    Needs(Need),
}

/// A part of a request that does not go up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// A message.
    Message {
        /// Its index in the request.
        at: usize,
        /// Its author.
        role: Role,
        /// Why it is left out.
        why: WhyDropped,
    },
    /// The value of a key of the state.
    Value(WhyDropped),
}

/// Why a part of a request does not go up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyDropped {
    /// A result whose call has a result already.
    Answered,
    /// A result whose call no longer waits: the conversation has gone on without it.
    WentOn,
    /// A result whose call the thread does not have.
    NoCall,
    /// A message that the thread had, and no longer has.
    Removed,
    /// A message of a thread that the client no longer shares.
    NotShared,
    /// A second message of the same id.
    Repeated,
    /// A value that the thread had before, which the client has kept.
    Outdated,
    /// A value that contains the marker of a shortened one where the thread has none.
    Shortened,
}

// === impl Evidence ===

impl Evidence<'_> {
    /// The size in bytes of what was looked up beside the state.
    pub fn bytes(&self) -> usize {
        let of = |json: &Json| json.get().len();
        let live = self.live.into_iter().flatten().flat_map(|run| &run.messages).map(of);
        let sent = self.sent.into_iter().flatten().map(|sent| of(&sent.message));
        let past = self.past.into_iter().flatten();
        let past = past.flat_map(|past| past.here.iter().chain(&past.elsewhere)).map(of);
        let values = self.values.into_iter().flatten().map(|(_, value)| of(value));
        live.chain(sent).chain(past).chain(values).sum()
    }
}

// === impl PlanStep ===

impl From<Plan> for PlanStep {
    fn from(plan: Plan) -> Self {
        Self::Plan(Box::new(plan))
    }
}

// === impl Dropped ===

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message { at, role, why } => {
                let role = match role {
                    Role::Tool => "a tool's result",
                    Role::User => "a user's message",
                    Role::System | Role::Developer => "an instruction",
                    Role::Assistant | Role::Reasoning | Role::Attachment => "an agent's message",
                };
                write!(f, "messages[{at}], {role}: {why}")
            }
            Self::Value(why) => write!(f, "a value of the state: {why}"),
        }
    }
}

impl fmt::Display for WhyDropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Answered => "its call has a result already",
            Self::WentOn => "its call no longer waits, because the conversation went on",
            Self::NoCall => "the thread does not have its call",
            Self::Removed => "the thread had it before, and removed it",
            Self::NotShared => "it is older than the client's newest turn, and the thread lacks it",
            Self::Repeated => "the request has two messages of its id",
            Self::Outdated => "the thread had this value before, and has changed it since",
            Self::Shortened => "it holds the marker of a shortened value where the thread has none",
        })
    }
}
