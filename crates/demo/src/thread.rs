//! A thread: its checkpoints, its runs, and how the API shows it.

use std::collections::VecDeque;
use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};
use uuid::Uuid;

use super::clock::{Clock, Moment};
use super::run::{Run, Status};
use super::script::{Due, Graph};
use super::state::{self, Exception, Values, merged, size};
use super::wire::Refusal;
use super::{MAX_CHECKPOINT_BYTES, MAX_CHECKPOINTS, MAX_RUNS_KEPT};

#[derive(Debug)]
pub(super) struct Thread {
    pub(super) id: Uuid,
    pub(super) created_at: Moment,
    pub(super) updated_at: Moment,
    pub(super) state_updated_at: Moment,
    pub(super) metadata: Values,
    pub(super) config: Value,
    /// The end of its last run; `None` before the first.
    pub(super) last_run: Option<LastRun>,
    /// Oldest first. The last one is the thread's state, also after a fork from an older one.
    checkpoints: VecDeque<Checkpoint>,
    /// Oldest first, including pending and running ones.
    pub(super) runs: VecDeque<Arc<Run>>,
    /// Whether a task plays its runs.
    pub(super) has_worker: bool,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LastRun {
    pub(super) error: Option<Error>,
}

/// Why the last run did not finish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Error {
    Raised(Exception),
    Stopped(Exception),
    RolledBack(Exception),
}

/// The state of a thread after a superstep.
#[derive(Clone, Debug)]
pub(super) struct Checkpoint {
    pub(super) id: Uuid,
    pub(super) parent: Option<Uuid>,
    pub(super) run_id: Option<Uuid>,
    pub(super) values: Values,
    /// The tasks that are due next.
    pub(super) tasks: Vec<Task>,
    pub(super) step: i64,
    source: &'static str,
    metadata: Values,
    created_at: Moment,
    bytes: usize,
}

/// A node that is or was due.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) id: Uuid,
    pub(super) due: Due,
    pub(super) error: Option<String>,
    pub(super) interrupt: Option<Interrupt>,
    pub(super) result: Value,
}

/// A question to a person.
#[derive(Clone, Debug)]
pub(super) struct Interrupt {
    pub(super) id: String,
    pub(super) value: Value,
}

/// The parts of a new checkpoint.
#[derive(Debug)]
pub(super) struct NewCheckpoint<'a> {
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
            last_run: None,
            checkpoints: VecDeque::new(),
            runs: VecDeque::new(),
            has_worker: false,
        }
    }

    pub(super) fn graph(&self) -> Option<Graph> {
        self.metadata.get("graph_id").and_then(Value::as_str).and_then(Graph::find)
    }

    /// A copy with another id: the checkpoints and the metadata, without the runs.
    pub(super) fn copy(&self, id: Uuid, clock: &Clock) -> Self {
        let checkpoints = self.checkpoints.clone();
        Self { checkpoints, ..Self::new(id, self.metadata.clone(), clock) }
    }

    /// The running or next run.
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

    /// Adds a checkpoint, which becomes the thread's state. Returns its id and the due tasks.
    pub(super) fn add_checkpoint(
        &mut self,
        draft: NewCheckpoint<'_>,
        clock: &Clock,
    ) -> (Uuid, Vec<Task>) {
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

    /// Updates a task, if its checkpoint is still stored.
    pub(super) fn update_task(
        &mut self,
        checkpoint: Uuid,
        task: Uuid,
        update: impl FnOnce(&mut Task),
    ) {
        let checkpoint = self.checkpoints.iter_mut().rfind(|kept| kept.id == checkpoint);
        let tasks = checkpoint.map(|checkpoint| &mut checkpoint.tasks);
        if let Some(task) = tasks.and_then(|tasks| tasks.iter_mut().find(|t| t.id == task)) {
            update(task);
        }
    }

    /// Removes a run and its checkpoints.
    pub(super) fn roll_back(&mut self, run: Uuid) {
        self.checkpoints.retain(|checkpoint| checkpoint.run_id != Some(run));
        self.runs.retain(|kept| kept.id != run);
    }

    pub(super) fn status(&self) -> &'static str {
        let error = self.last_run.as_ref().and_then(|last| last.error.as_ref());
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

    /// The thread as `GET /threads/{id}` shows it.
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
        let Some(last_run) = &self.last_run else { return record };
        let tasks = newest.map(|newest| newest.tasks.as_slice()).unwrap_or_default();
        let asked = tasks.iter().filter_map(|task| Some((task, task.interrupt.as_ref()?)));
        let interrupts: Values =
            asked.map(|(task, asked)| (task.id.to_string(), json!([asked.json()]))).collect();
        let error = last_run.error.as_ref().map(|error| error.exception().json());
        merged(record, json!({"error": error, "interrupts": interrupts}))
    }

    /// A state as `GET /threads/{id}/state` shows it; an empty one if there is no checkpoint.
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

    /// The size of its states and of the requests of its runs.
    pub(super) fn bytes(&self) -> usize {
        let states: usize = self.checkpoints.iter().map(|checkpoint| checkpoint.bytes).sum();
        let runs: usize = self.runs.iter().map(|run| run.bytes).sum();
        states + runs + size(&self.metadata)
    }

    /// How many runs are pending or running.
    pub(super) fn live_runs(&self) -> usize {
        let is_live = |run: &&Arc<Run>| matches!(run.status(), Status::Pending | Status::Running);
        self.runs.iter().filter(is_live).count()
    }
}

// === impl Checkpoint ===

impl Checkpoint {
    fn new(draft: NewCheckpoint<'_>, thread: &Values, clock: &Clock) -> Self {
        let NewCheckpoint { parent, values, due, source, step, run } = draft;
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
    /// The question of a task. A task asks only once, so the question's id follows from the task's.
    pub(super) fn new(task: Uuid, value: Value) -> Self {
        let id = Uuid::new_v5(&task, b"interrupt").simple().to_string();
        Self { id, value }
    }

    /// The question as records show it.
    pub(super) fn json(&self) -> Value {
        json!({"id": self.id, "value": self.value})
    }

    /// The question as streams show it.
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

/// The checkpoint that a manual update makes of the thread's state, or of an older checkpoint.
pub(super) fn revise<'a>(
    thread: &Thread,
    graph: Graph,
    updates: Vec<Values>,
    as_node: Option<&str>,
    checkpoint: Option<Uuid>,
    clock: &Clock,
) -> Result<NewCheckpoint<'a>, Refusal> {
    let base = match checkpoint {
        Some(id) => thread.checkpoint(id),
        None => thread.newest(),
    };
    let mut values = base.map(|base| base.values.clone()).unwrap_or_default();
    for update in updates {
        state::apply(&mut values, graph.channels(), &update, clock)
            .map_err(|exception| Refusal::invalid(exception.message))?;
    }
    state::fit(&values).map_err(|exception| Refusal::invalid(exception.message))?;
    let due = if let Some(node) = as_node {
        graph.follow(node, &values).ok_or_else(|| {
            Refusal::new(StatusCode::BAD_REQUEST, format!("Node {node} does not exist"))
        })?
    } else {
        let tasks = base.map(|base| base.tasks.as_slice()).unwrap_or_default();
        tasks.iter().map(|task| task.due.clone()).collect()
    };
    let step = base.map_or(-1, |base| base.step + 1);
    Ok(NewCheckpoint {
        parent: base.map(|base| base.id),
        values,
        due,
        source: "update",
        step,
        run: None,
    })
}
