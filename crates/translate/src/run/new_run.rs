//! A run to start, and what a client asks of a thread before it is known which run that is.

use std::fmt::Display;

use crate::json::Json;
use crate::langgraph::{
    BatchDecision, InputKeys, Multitask, RunRequest, ServerKind, Start, ThreadState,
};

/// A run to start.
#[derive(Clone, Debug)]
pub struct NewRun {
    /// The client's name of it. The run's record keeps it, so that every replica finds the run.
    pub name: String,
    /// What it begins with.
    pub start: Start,
    /// The message that the client has changed or wants answered again: the run begins at the
    /// thread's last checkpoint that does not hold it.
    pub fork_before: Option<String>,
    /// How it is configured.
    pub configured: Configured,
    /// The interrupts that it answers, by LangGraph's ids; one that ends in `:breakpoint` is a
    /// static breakpoint.
    pub answers: Vec<String>,
    /// The keys of the state that are written before what was answered goes on, an object.
    pub update: Option<Json>,
    /// What becomes of it on a thread that has another run under way; `None` for what the server
    /// does by itself.
    pub multitask: Option<Multitask>,
    /// The members of the thread's metadata that the run is not to take over: the decisions that
    /// are kept there.
    pub hides: Vec<String>,
    /// Those of them that are to be forgotten once it has started.
    pub forgets: Vec<String>,
}

/// What becomes of a client's request on a thread. If nothing does, the client is to be shown the
/// thread as it is.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The decisions that are to be kept until those on the other actions of their batch have come.
    pub keep: Vec<BatchDecision>,
    /// The run to start, when they are kept.
    pub run: Option<NewRun>,
}

/// How a run is configured beside its assistant.
#[derive(Clone, Debug)]
pub enum Configured {
    /// It is not.
    Not,
    /// With this object as LangGraph's `config`.
    Config(Json),
    /// With these fields of its graph's configuration, an object.
    Choices(Json),
}

/// What a client asks of a thread. What the thread holds decides the run that it becomes.
pub trait Planner: Sync {
    /// Why it cannot become a run on the thread as it is.
    type Error: Display;

    /// The client's name of the run.
    fn name(&self) -> &str;

    /// Whether it answers what the thread asks.
    fn is_answer(&self) -> bool;

    /// Whether the plan depends on the keys that the graph takes as its input.
    fn needs_keys(&self, thread: Option<&ThreadState<'_>>) -> bool;

    /// What it brings along that does not reach the graph, as sentences for the operator.
    fn losses(&self, _keys: &InputKeys) -> Vec<String> {
        Vec::new()
    }

    /// What is to be done, given the thread's state and the graph's keys; no state for a thread that
    /// has none.
    fn plan(&self, thread: Option<&ThreadState<'_>>, keys: &InputKeys)
    -> Result<Plan, Self::Error>;

    /// What a planned run begins with if it forks the thread: `past` is the state of the checkpoint
    /// that the fork begins at.
    fn fork(
        &self,
        thread: Option<&ThreadState<'_>>,
        past: Option<&ThreadState<'_>>,
        keys: &InputKeys,
    ) -> Start;
}

// === impl Plan ===

impl From<NewRun> for Plan {
    fn from(run: NewRun) -> Self {
        Self { keep: Vec::new(), run: Some(run) }
    }
}

// === impl NewRun ===

impl NewRun {
    /// A run that begins with this, and nothing more.
    pub fn new(name: impl Into<String>, start: Start) -> Self {
        Self {
            name: name.into(),
            start,
            fork_before: None,
            configured: Configured::Not,
            answers: Vec::new(),
            update: None,
            multitask: None,
            hides: Vec::new(),
            forgets: Vec::new(),
        }
    }

    /// What LangGraph is asked for: the run of an assistant, on a server of this kind, at the
    /// checkpoint that the fork begins at.
    pub fn request(
        self,
        assistant: &str,
        server: Option<ServerKind>,
        checkpoint: Option<String>,
    ) -> RunRequest {
        let request = RunRequest::new(assistant, &self.name, self.start)
            .answering(&self.answers)
            .hiding(&self.hides)
            .when_busy(self.multitask)
            .updating(self.update)
            .at_checkpoint(checkpoint)
            .on(server);
        match self.configured {
            Configured::Not => request,
            Configured::Config(config) => request.with_config(Some(config)),
            Configured::Choices(choices) => request.with_choices(&choices, server),
        }
    }
}
