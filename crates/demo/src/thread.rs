//! A thread: its checkpoints, its runs, and how the API shows it.

use std::collections::VecDeque;
use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};
use uuid::Uuid;

use super::clock::{Clock, Moment};
use super::engine;
use super::run::{Run, Status};
use super::script::{Due, Graph};
use super::state::{self, Exception, Values, merged, size};
use super::wire::Refusal;
use super::{MAX_CHECKPOINT_BYTES, MAX_CHECKPOINTS, MAX_RUNS_KEPT};

/// A thread.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) id: Uuid,
    pub(super) created_at: Moment,
    pub(super) updated_at: Moment,
    pub(super) state_updated_at: Moment,
    pub(super) metadata: Values,
    pub(super) config: Value,
    /// How its last run left it; `None` before any.
    pub(super) rest: Option<Rest>,
    /// Oldest first. The last is the thread's state, also where it forked from an older one.
    checkpoints: VecDeque<Checkpoint>,
    /// Oldest first, with those that wait and the one that runs.
    pub(super) runs: VecDeque<Arc<Run>>,
    /// Whether a task plays its runs, one after the other.
    pub(super) is_served: bool,
}

/// How a run left its thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rest {
    pub(super) error: Option<Error>,
}

/// What kept the last run from its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Error {
    Raised(Exception),
    Stopped(Exception),
    RolledBack(Exception),
}

/// A state of a thread, as a superstep left it.
#[derive(Clone, Debug)]
pub(super) struct Checkpoint {
    pub(super) id: Uuid,
    pub(super) parent: Option<Uuid>,
    pub(super) run_id: Option<Uuid>,
    pub(super) values: Values,
    /// What is due from here.
    pub(super) tasks: Vec<Task>,
    pub(super) step: i64,
    source: &'static str,
    metadata: Values,
    created_at: Moment,
    bytes: usize,
}

/// A node that is due, or was.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) id: Uuid,
    pub(super) due: Due,
    pub(super) error: Option<String>,
    pub(super) interrupt: Option<Interrupt>,
    pub(super) result: Value,
}

/// A question to a human.
#[derive(Clone, Debug)]
pub(super) struct Interrupt {
    pub(super) id: String,
    pub(super) value: Value,
}

/// A checkpoint that is to be made.
#[derive(Debug)]
pub(super) struct Draft<'a> {
    pub(super) parent: Option<Uuid>,
    pub(super) values: Values,
    pub(super) due: Vec<Due>,
    pub(super) source: &'static str,
    pub(super) step: i64,
    pub(super) run: Option<&'a Run>,
}

// === impl Thread ===

impl Thread {
    pub(super) fn new(id: Uuid, metadata: Values, clock: &Clock) -> Self {
        let now = clock.now();
        Self {
            id,
            created_at: now,
            updated_at: now,
            state_updated_at: now,
            metadata,
            config: json!({}),
            rest: None,
            checkpoints: VecDeque::new(),
            runs: VecDeque::new(),
            is_served: false,
        }
    }

    pub(super) fn graph(&self) -> Option<Graph> {
        self.metadata.get("graph_id").and_then(Value::as_str).and_then(Graph::find)
    }

    /// The run that has its turn, or is next.
    pub(super) fn first_live(&self) -> Option<&Arc<Run>> {
        self.runs.iter().find(|run| !run.status().is_over())
    }

    pub(super) fn is_busy(&self) -> bool {
        self.first_live().is_some()
    }

    pub(super) fn add_run(&mut self, run: Arc<Run>) {
        self.runs.push_back(run);
        if self.runs.len() > MAX_RUNS_KEPT
            && let Some(oldest) = self.runs.iter().position(|run| run.status().is_over())
        {
            self.runs.remove(oldest);
        }
    }

    pub(super) fn run(&self, id: Uuid) -> Option<&Arc<Run>> {
        self.runs.iter().find(|run| run.id == id)
    }

    pub(super) fn checkpoint(&self, id: Uuid) -> Option<&Checkpoint> {
        self.checkpoints.iter().rfind(|checkpoint| checkpoint.id == id)
    }

    pub(super) fn newest(&self) -> Option<&Checkpoint> {
        self.checkpoints.back()
    }

    pub(super) fn newest_first(&self) -> impl Iterator<Item = &Checkpoint> {
        self.checkpoints.iter().rev()
    }

    /// Makes a checkpoint, which becomes the thread's state; tells its id and what is due.
    pub(super) fn add_checkpoint(&mut self, draft: Draft<'_>, clock: &Clock) -> (Uuid, Vec<Task>) {
        let checkpoint = Checkpoint::new(draft, &self.metadata, clock);
        let made = (checkpoint.id, checkpoint.tasks.clone());
        self.state_updated_at = checkpoint.created_at;
        self.updated_at = checkpoint.created_at;
        self.checkpoints.push_back(checkpoint);
        let mut bytes: usize = self.checkpoints.iter().map(|checkpoint| checkpoint.bytes).sum();
        while self.checkpoints.len() > 1
            && (self.checkpoints.len() > MAX_CHECKPOINTS || bytes > MAX_CHECKPOINT_BYTES)
        {
            bytes -= self.checkpoints.pop_front().map_or(0, |dropped| dropped.bytes);
        }
        made
    }

    /// Changes what is known of a task, if its checkpoint is still kept.
    pub(super) fn note(&mut self, checkpoint: Uuid, task: Uuid, note: impl FnOnce(&mut Task)) {
        let checkpoint = self.checkpoints.iter_mut().rfind(|kept| kept.id == checkpoint);
        let tasks = checkpoint.map(|checkpoint| &mut checkpoint.tasks);
        if let Some(task) = tasks.and_then(|tasks| tasks.iter_mut().find(|t| t.id == task)) {
            note(task);
        }
    }

    /// Forgets all that a run has done.
    pub(super) fn roll_back(&mut self, run: Uuid) {
        self.checkpoints.retain(|checkpoint| checkpoint.run_id != Some(run));
        self.runs.retain(|kept| kept.id != run);
    }

    pub(super) fn status(&self) -> &'static str {
        let error = self.rest.as_ref().and_then(|rest| rest.error.as_ref());
        if self.is_busy() {
            return "busy";
        }
        match error {
            Some(Error::Raised(_)) => "error",
            Some(Error::Stopped(_)) => "interrupted",
            None if self.newest().is_some_and(|newest| newest.interrupts().next().is_some()) => {
                "interrupted"
            }
            Some(Error::RolledBack(_)) | None => "idle",
        }
    }

    /// As `GET /threads/{id}` shows it.
    pub(super) fn record(&self) -> Value {
        let newest = self.newest();
        let record = json!({
            "thread_id": self.id.to_string(),
            "created_at": self.created_at.to_string(),
            "updated_at": self.updated_at.to_string(),
            "state_updated_at": self.state_updated_at.to_string(),
            "metadata": self.metadata,
            "status": self.status(),
            "config": self.config,
            "values": newest.map(|newest| &newest.values),
        });
        let Some(rest) = &self.rest else { return record };
        let tasks = newest.map(|newest| newest.tasks.as_slice()).unwrap_or_default();
        let asked = tasks.iter().filter_map(|task| Some((task, task.interrupt.as_ref()?)));
        let interrupts: Values =
            asked.map(|(task, asked)| (task.id.to_string(), json!([asked.json()]))).collect();
        let error = rest.error.as_ref().map(|error| error.exception().json());
        merged(record, json!({"error": error, "interrupts": interrupts}))
    }

    /// A state as `GET /threads/{id}/state` shows it, or the form of one that is not there.
    pub(super) fn state(&self, checkpoint: Option<&Checkpoint>) -> Value {
        let Some(checkpoint) = checkpoint else {
            return json!({
                "values": {}, "next": [], "tasks": [], "metadata": null, "created_at": null,
                "checkpoint": null, "parent_checkpoint": null, "interrupts": [],
                "checkpoint_id": null, "parent_checkpoint_id": null,
            });
        };
        let place = |id: &Uuid| {
            let (id, thread_id) = (id.to_string(), self.id.to_string());
            json!({"checkpoint_id": id, "thread_id": thread_id, "checkpoint_ns": ""})
        };
        let parent = checkpoint.parent.as_ref();
        let next: Vec<_> = checkpoint.tasks.iter().map(|task| task.due.node).collect();
        json!({
            "values": checkpoint.values,
            "next": next,
            "tasks": checkpoint.tasks.iter().map(Task::json).collect::<Vec<_>>(),
            "metadata": checkpoint.metadata(self.id),
            "created_at": checkpoint.created_at.to_string(),
            "checkpoint": place(&checkpoint.id),
            "parent_checkpoint": parent.map(place),
            "interrupts": checkpoint.interrupts().map(Interrupt::json).collect::<Vec<_>>(),
            "checkpoint_id": checkpoint.id.to_string(),
            "parent_checkpoint_id": parent.map(Uuid::to_string),
        })
    }

    /// What the thread holds: its states, and what its runs were asked for.
    pub(super) fn bytes(&self) -> usize {
        let states: usize = self.checkpoints.iter().map(|checkpoint| checkpoint.bytes).sum();
        let runs: usize = self.runs.iter().map(|run| run.bytes).sum();
        states + runs + size(&self.metadata)
    }

    /// How many runs wait or run.
    pub(super) fn live_runs(&self) -> usize {
        let is_live = |run: &&Arc<Run>| matches!(run.status(), Status::Pending | Status::Running);
        self.runs.iter().filter(is_live).count()
    }
}

// === impl Checkpoint ===

impl Checkpoint {
    fn new(draft: Draft<'_>, thread: &Values, clock: &Clock) -> Self {
        let Draft { parent, values, due, source, step, run } = draft;
        let id = clock.id();
        let task = |(at, due): (usize, Due)| Task {
            id: Uuid::new_v5(&id, format!("{}:{at}", due.node).as_bytes()),
            due,
            error: None,
            interrupt: None,
            result: Value::Null,
        };
        let metadata = match run {
            Some(run) => {
                let configured = run.order.configurable();
                configured.into_iter().chain(run.metadata.clone()).collect()
            }
            None => thread.clone(),
        };
        Self {
            id,
            parent,
            run_id: run.map(|run| run.id),
            bytes: size(&values) + size(&metadata),
            values,
            tasks: due.into_iter().enumerate().map(task).collect(),
            step,
            source,
            metadata,
            created_at: clock.now(),
        }
    }

    pub(super) fn interrupts(&self) -> impl Iterator<Item = &Interrupt> {
        self.tasks.iter().filter_map(|task| task.interrupt.as_ref())
    }

    fn metadata(&self, thread_id: Uuid) -> Values {
        let mut metadata = self.metadata.clone();
        let run_id = self.run_id.map(|id| ("run_id", json!(id.to_string())));
        let rest = [
            ("thread_id", json!(thread_id.to_string())),
            ("source", json!(self.source)),
            ("step", json!(self.step)),
            ("parents", json!({})),
        ];
        metadata.extend(run_id.into_iter().chain(rest).map(|(name, v)| (name.to_owned(), v)));
        metadata
    }
}

// === impl Task ===

impl Task {
    fn json(&self) -> Value {
        let asked = self.interrupt.iter().map(Interrupt::json).collect::<Vec<_>>();
        json!({
            "id": self.id.to_string(), "name": self.due.node, "path": self.due.path(),
            "error": self.error, "interrupts": asked, "checkpoint": null, "state": null,
            "result": self.result,
        })
    }
}

// === impl Interrupt ===

impl Interrupt {
    /// The question of a task. A task asks once, so its id tells the question's.
    pub(super) fn new(task: Uuid, value: Value) -> Self {
        let id = Uuid::new_v5(&task, b"interrupt").simple().to_string();
        Self { id, value }
    }

    /// As records show it.
    pub(super) fn json(&self) -> Value {
        json!({"id": self.id, "value": self.value})
    }

    /// As streams show it.
    pub(super) fn streamed(&self) -> Value {
        json!({"value": self.value, "id": self.id, "response_schema": null})
    }
}

// === impl Error ===

impl Error {
    fn exception(&self) -> &Exception {
        match self {
            Self::Raised(exception) | Self::Stopped(exception) | Self::RolledBack(exception) => {
                exception
            }
        }
    }
}

/// The checkpoint that an update by hand makes of a thread's state, or of an older one.
pub(super) fn revise<'a>(
    thread: &Thread,
    graph: Graph,
    updates: Vec<Values>,
    as_node: Option<&str>,
    checkpoint: Option<Uuid>,
    clock: &Clock,
) -> Result<Draft<'a>, Refusal> {
    let base = match checkpoint {
        Some(id) => thread.checkpoint(id),
        None => thread.newest(),
    };
    let mut values = base.map(|base| base.values.clone()).unwrap_or_default();
    for update in updates {
        state::apply(&mut values, graph.channels(), &update, clock)
            .map_err(|exception| Refusal::invalid(exception.message))?;
    }
    engine::fit(&values).map_err(|exception| Refusal::invalid(exception.message))?;
    let due = if let Some(node) = as_node {
        graph.follow(node, &values).ok_or_else(|| {
            Refusal::new(StatusCode::BAD_REQUEST, format!("Node {node} does not exist"))
        })?
    } else {
        let tasks = base.map(|base| base.tasks.as_slice()).unwrap_or_default();
        tasks.iter().map(|task| task.due.clone()).collect()
    };
    let step = base.map_or(-1, |base| base.step + 1);
    Ok(Draft { parent: base.map(|base| base.id), values, due, source: "update", step, run: None })
}
