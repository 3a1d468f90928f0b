//! A run that a client wants to start, and how the thread's state decides what it becomes.

use std::fmt::Display;

use super::{Dropped, Evidence, PlanStep};
use crate::json::Json;
use crate::langgraph::{
    BatchDecision, Capabilities, InputKeys, Multitask, RunRequest, Start, ThreadState,
};

/// A run to start.
#[derive(Clone, Debug)]
pub struct NewRun {
    /// The client's name of the run. The run's record keeps it, so that every replica finds the
    /// run.
    pub name: String,
    /// The run's input.
    pub start: Start,
    /// The message that the client changed or wants answered again. The run starts at the thread's
    /// last checkpoint without that message.
    pub fork_before: Option<String>,
    /// The run's configuration.
    pub configured: RunConfig,
    /// The client's tools and context, for the context of the run.
    pub client_context: Option<Json>,
    /// LangGraph's ids of the interrupts that the run answers. An id that ends in `:breakpoint` is
    /// a static breakpoint.
    pub answers: Vec<String>,
    /// An object of state keys that are written before the graph continues.
    pub update: Option<Json>,
    /// The title of the thread, if it is created for this run.
    pub title: Option<String>,
    /// What happens if the thread has another run. `None` leaves that to the server.
    pub multitask: Option<Multitask>,
    /// Whether the run must not wait for another one: it has the results of calls, and the other run
    /// may bring results of the same calls. `multitask` then has no effect.
    pub is_alone: bool,
    /// Members of the thread's metadata that graphs read, as an object. They are sent to a server
    /// that does not itself give the thread's metadata to its runs.
    pub read_by_graphs: Option<Json>,
    /// The keys of the thread's metadata that must not be copied to the run: they keep decisions.
    pub hides: Vec<String>,
    /// Those keys of `hides` that are cleared once the run has started.
    pub forgets: Vec<String>,
}

/// What a client's request on a thread becomes. If nothing is kept and no run started, the client
/// gets the thread as it is.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The decisions to store until all actions of their interrupt have one.
    pub keep: Vec<BatchDecision>,
    /// The run to start after that.
    pub run: Option<NewRun>,
    /// What in the request does not go up.
    pub dropped: Vec<Dropped>,
}

/// The configuration of a run, in addition to its assistant's.
#[derive(Clone, Debug)]
pub enum RunConfig {
    /// None.
    Not,
    /// An object that becomes LangGraph's `config`.
    Config(Json),
    /// An object of fields of the graph's configuration.
    Choices(Json),
}

/// A client's request on a thread. The thread's state decides which run it becomes.
pub trait Planner: Sync {
    /// Why the request does not fit the thread.
    type Error: Display;

    /// The client's name of the run.
    fn name(&self) -> &str;

    /// The size of the request in bytes.
    fn bytes(&self) -> usize;

    /// Whether the request answers a question of the thread.
    fn is_answer(&self) -> bool;

    /// Whether the plan depends on the keys that the graph takes as input.
    fn needs_keys(&self, thread: Option<&ThreadState<'_>>) -> bool;

    /// What in the request does not reach the graph, as sentences for the operator's log.
    fn losses(&self, _keys: &InputKeys) -> Vec<String> {
        Vec::new()
    }

    /// The client's tools and context for the context of the run, if the graph takes them there.
    fn client_context(&self, _keys: &InputKeys) -> Option<Json> {
        None
    }

    /// The plan, given what is known of the thread and the graph's input keys. Or what must be known
    /// first: the planner is called again then.
    fn plan(&self, evidence: &Evidence<'_>, keys: &InputKeys) -> Result<PlanStep, Self::Error>;
}

// === impl Plan ===

impl From<NewRun> for Plan {
    fn from(run: NewRun) -> Self {
        Self { keep: Vec::new(), run: Some(run), dropped: Vec::new() }
    }
}

// === impl NewRun ===

impl NewRun {
    /// A run with this input and no other options.
    pub fn new(name: impl Into<String>, start: Start) -> Self {
        Self {
            name: name.into(),
            start,
            fork_before: None,
            configured: RunConfig::Not,
            client_context: None,
            answers: Vec::new(),
            update: None,
            title: None,
            multitask: None,
            is_alone: false,
            read_by_graphs: None,
            hides: Vec::new(),
            forgets: Vec::new(),
        }
    }

    /// Whether the run answers a question, or passes a breakpoint. Its record shows the same.
    pub fn resumes(&self) -> bool {
        matches!(self.start, Start::Resume(_)) || !self.answers.is_empty()
    }

    /// LangGraph's request body for this run of `assistant`. `checkpoint` is the one where a fork
    /// starts.
    pub fn request(
        self,
        assistant: &str,
        server: Capabilities,
        checkpoint: Option<String>,
    ) -> RunRequest {
        let request = RunRequest::new(assistant, &self.name, self.start)
            .answering(&self.answers)
            .hiding(&self.hides)
            .repeating(self.read_by_graphs.as_ref(), server)
            .when_busy(if self.is_alone { Some(Multitask::Reject) } else { self.multitask })
            .updating(self.update)
            .at_checkpoint(checkpoint);
        let request = match self.configured {
            RunConfig::Not => request,
            RunConfig::Config(config) => request.with_config(Some(config)),
            RunConfig::Choices(choices) => request.with_choices(&choices, server),
        };
        let request = request.with_client_context(self.client_context.as_ref(), server);
        request.leaving_fork(server).keeping_metadata(server)
    }
}
