//! A thread's state, as `GET /threads/{id}/state` returns it.
//!
//! `waiting` has the tasks that wait for an answer, and what their subgraphs hold.

mod waiting;

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::{GraphLevel, MessagesKey, RawInterrupt, StoredDecisions, Values};
use crate::json;

pub use waiting::{StatesBelow, WaitingTask, Written, with_state};

/// A checkpoint of a thread.
#[derive(Debug)]
pub struct ThreadState<'a> {
    /// The state. `None` for a new thread.
    pub values: Option<Values<'a>>,
    /// The nodes that would run next.
    pub next: Vec<Cow<'a, str>>,
    /// The open questions.
    pub interrupts: Vec<RawInterrupt<'a>>,
    /// The tasks that wait for an answer and run a subgraph whose state is known, and the tasks beside
    /// them that have ended. A task comes before those of its subgraph.
    pub waiting: Vec<WaitingTask<'a>>,
    /// Decisions in the thread's metadata. The state itself does not contain them, so the caller
    /// sets this field.
    pub kept: StoredDecisions,
    /// The run that created this checkpoint.
    pub run_id: Option<Cow<'a, str>>,
    /// How the checkpoint was made.
    pub source: CheckpointSource,
    /// The checkpoint's id. `None` for a new thread.
    pub checkpoint_id: Option<Cow<'a, str>>,
    /// The namespace that the checkpoint belongs to; empty for the root graph.
    pub namespace: Option<Cow<'a, str>>,
    /// The error of a failed task, as the graph library prints it.
    pub error: Option<Cow<'a, str>>,
    /// The node of the failed task.
    pub failed_node: Option<Cow<'a, str>>,
}

/// How a checkpoint was made, as its metadata says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointSource {
    /// A run has taken in its input. The checkpoint before it ends another run.
    Input,
    /// Another checkpoint was copied.
    Fork,
    /// A step of a run, or a change of the state.
    Other,
}

// === impl CheckpointSource ===

impl CheckpointSource {
    fn of(source: Option<&str>) -> Self {
        match source {
            Some("input") => Self::Input,
            Some("fork") => Self::Fork,
            _ => Self::Other,
        }
    }
}

// === impl ThreadState ===

impl<'a> ThreadState<'a> {
    /// Reads the server's answer. `None` if it is not an object.
    ///
    /// The messages in `values` are found only under `messages`. See
    /// [`parse_under`](Self::parse_under) for other keys.
    pub fn parse(body: &'a str) -> Option<Self> {
        Self::parse_under(&MessagesKey::default(), body)
    }

    /// Reads the state of a graph that keeps its messages under `key`.
    pub fn parse_under(key: &MessagesKey, body: &'a str) -> Option<Self> {
        let members: json::Members<'a> = serde_json::from_str(body).ok()?;
        let tasks = members.get("tasks").and_then(json::items).unwrap_or_default();
        let tasks: Vec<_> = tasks.into_iter().filter_map(json::members).collect();
        let next = members.get("next").and_then(json::items).unwrap_or_default();
        let checkpoint = members.get("checkpoint").and_then(json::members);
        let metadata = members.get("metadata").and_then(json::members);
        let failed = tasks.iter().find(|task| error_of(task).is_some());
        let checkpoint_id =
            checkpoint.as_ref().and_then(|checkpoint| checkpoint.string("checkpoint_id"));
        // Without a checkpoint the servers send null, an empty object, or an empty list. With one, the
        // state may be any value: the functional API's is what its entrypoint has returned.
        let has_state =
            |values: &&RawValue| checkpoint_id.is_some() || values.get().starts_with('{');
        Some(Self {
            values: members
                .get("values")
                .filter(has_state)
                .and_then(|values| Values::open(values, key, GraphLevel::Root)),
            next: next.into_iter().filter_map(json::string).collect(),
            interrupts: Self::interrupts(&tasks),
            waiting: WaitingTask::all(&tasks, key),
            kept: StoredDecisions::default(),
            source: CheckpointSource::of(
                metadata.as_ref().and_then(|metadata| metadata.string("source")).as_deref(),
            ),
            run_id: metadata.and_then(|metadata| metadata.string("run_id")),
            checkpoint_id,
            namespace: checkpoint.and_then(|checkpoint| checkpoint.string("checkpoint_ns")),
            error: failed.and_then(error_of),
            failed_node: failed.and_then(|task| task.string("name")),
        })
    }

    /// A task with a result has been answered. The JavaScript server keeps its question until the
    /// other tasks of the superstep are answered (langgraph-api 1.5.1).
    fn interrupts(tasks: &[json::Members<'a>]) -> Vec<RawInterrupt<'a>> {
        let waits = |task: &&json::Members<'a>| has_no_result(task);
        let of = |task: &json::Members<'a>| task.get("interrupts").and_then(json::items);
        RawInterrupt::all(tasks.iter().filter(waits).filter_map(of).flatten())
    }

    /// Whether the last run stopped before its end, at a question or a static breakpoint.
    pub fn is_interrupted(&self) -> bool {
        !self.interrupts.is_empty() || (!self.next.is_empty() && self.error.is_none())
    }
}

fn has_no_result(task: &json::Members<'_>) -> bool {
    task.get("result").is_none_or(|result| result.get() == "null")
}

/// Why a task failed: a text, or from a JavaScript graph of the Python server an object.
fn error_of<'a>(task: &json::Members<'a>) -> Option<Cow<'a, str>> {
    let error = task.get("error").filter(|error| error.get() != "null")?;
    json::string(error).or_else(|| error.get().starts_with('{').then(|| error.get().into()))
}
