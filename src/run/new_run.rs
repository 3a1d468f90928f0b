//! A run to start, and what a client asks of a thread before it is known which run that is.

use std::fmt::Display;

use crate::json::Json;
use crate::langgraph::{InputKeys, Multitask, RunRequest, ServerKind, Start, ThreadState};

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

    /// The run to start, given the thread's state and the graph's keys; no state for a thread that
    /// has none. `None` if no run is to be started: the client is to be shown the thread as it is.
    fn plan(
        &self,
        thread: Option<&ThreadState<'_>>,
        keys: &InputKeys,
    ) -> Result<Option<NewRun>, Self::Error>;

    /// What a planned run begins with if it forks the thread: `past` is the state of the checkpoint
    /// that the fork begins at.
    fn fork(
        &self,
        thread: Option<&ThreadState<'_>>,
        past: Option<&ThreadState<'_>>,
        keys: &InputKeys,
    ) -> Start;
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
