//! One run: its record, the log of its parts, and how it is stopped.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::MAX_LOG_BYTES;
use super::clock::{Clock, Moment};
use super::request::{Mode, Order};
use super::state::{Exception, Values, size};
use super::wire;

/// A run.
///
/// ```text
///           turn            end          success, error
/// Pending --------> Running -----------> Success, Error
///    |                 | stop, then end
///    `-----------------+---------------> Interrupted
/// ```
#[derive(Debug)]
pub(super) struct Run {
    pub(super) id: Uuid,
    pub(super) thread_id: Uuid,
    pub(super) order: Order,
    /// The metadata of the thread, the graph and the request, merged.
    pub(super) metadata: Values,
    /// The size of the request and the metadata.
    pub(super) bytes: usize,
    created_at: Moment,
    /// A std mutex: it is never held across an await.
    progress: Mutex<Progress>,
    changed: watch::Sender<()>,
    stop: CancellationToken,
}

#[derive(Debug)]
struct Progress {
    status: Status,
    updated_at: Moment,
    stop: Option<Stop>,
    log: Log,
    /// The last state that the run emitted.
    values: Value,
    error: Option<Exception>,
}

/// The parts of a run's stream, from its `start`-th part on.
#[derive(Debug, Default)]
struct Log {
    start: usize,
    bytes: usize,
    parts: VecDeque<Part>,
}

/// One part of a run's stream.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) event: &'static str,
    pub(super) frame: String,
    /// The part's id, if the run can be replayed.
    pub(super) id: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Pending,
    Running,
    Success,
    Error,
    Interrupted,
}

/// How and why a run is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stop {
    pub(super) action: Action,
    pub(super) reason: &'static str,
}

/// What remains of a stopped run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Its checkpoints remain.
    Interrupt,
    /// Its checkpoints and its record are removed.
    Rollback,
}

/// The result of reading the log at a position.
#[derive(Debug)]
pub(super) enum LogRead {
    Part(Part),
    /// There is no further part yet.
    Pending,
    /// The run has ended, and there is no further part.
    End,
}

// === impl Run ===

impl Run {
    pub(super) fn new(
        id: Uuid,
        thread_id: Uuid,
        order: Order,
        metadata: Values,
        clock: &Clock,
    ) -> Self {
        let now = clock.now();
        let progress = Progress {
            status: Status::Pending,
            updated_at: now,
            stop: None,
            log: Log::default(),
            values: json!({}),
            error: None,
        };
        Self {
            id,
            thread_id,
            bytes: size(&metadata) + order.size(),
            order,
            metadata,
            created_at: now,
            progress: Mutex::new(progress),
            changed: watch::Sender::new(()),
            stop: CancellationToken::new(),
        }
    }

    /// The run as `GET /threads/{id}/runs/{id}` shows it.
    pub(super) fn record(&self) -> Value {
        let (status, updated_at) = {
            let progress = self.progress();
            (progress.status, progress.updated_at)
        };
        let assistant_id = self.order.graph.assistant_id().to_string();
        json!({
            "run_id": self.id.to_string(),
            "thread_id": self.thread_id.to_string(),
            "assistant_id": assistant_id,
            "metadata": self.metadata,
            "status": status.as_str(),
            "kwargs": self.order.kwargs(self.configurable(), &self.metadata),
            "multitask_strategy": self.order.multitask.as_str(),
            "created_at": self.created_at.to_string(),
            "updated_at": updated_at.to_string(),
            "langsmith_session_name": null,
        })
    }

    /// The client's configuration, with the members that the server adds.
    pub(super) fn configurable(&self) -> Values {
        let mut configurable = self.order.configurable();
        for (name, value) in [
            ("run_id", self.id.to_string()),
            ("thread_id", self.thread_id.to_string()),
            ("graph_id", self.order.graph.name().to_owned()),
            ("assistant_id", self.order.graph.assistant_id().to_string()),
            ("user_id", String::new()),
        ] {
            configurable.insert(name.to_owned(), Value::String(value));
        }
        configurable
    }

    pub(super) fn status(&self) -> Status {
        self.progress().status
    }

    pub(super) fn begin(&self, clock: &Clock) {
        let mut progress = self.progress();
        progress.status = Status::Running;
        progress.updated_at = clock.now();
    }

    /// Ends the run. Listeners get the remaining parts and then the end.
    pub(super) fn end(&self, status: Status, error: Option<Exception>, clock: &Clock) {
        {
            let mut progress = self.progress();
            progress.status = status;
            progress.updated_at = clock.now();
            progress.error = error;
        }
        self.changed.send_replace(());
    }

    /// Emits a part of a stream mode, if the request asked for that mode.
    pub(super) fn emit(&self, mode: Mode, data: &str, clock: &Clock) {
        if self.order.modes.has(mode) {
            self.push(mode.event(), data, clock);
        }
    }

    /// Emits the state, and stores it as the run's result.
    pub(super) fn emit_values(&self, values: &Value, clock: &Clock) {
        self.progress().values = values.clone();
        self.emit(Mode::Values, &values.to_string(), clock);
    }

    /// Emits a part that belongs to no mode: `metadata` or `error`.
    pub(super) fn push(&self, event: &'static str, data: &str, clock: &Clock) {
        // Like the Python server's, ids have the resolution of a millisecond and may repeat.
        let id = self.order.is_resumable.then(|| format!("{}-0", clock.now().millis()));
        let frame = wire::frame(event, data, id.as_deref());
        self.progress().log.push(Part { event, frame, id });
        self.changed.send_replace(());
    }

    /// The position after the last part.
    pub(super) fn log_end(&self) -> usize {
        let progress = self.progress();
        progress.log.start + progress.log.parts.len()
    }

    /// The part at a position, or the first later one that is stored, and the position after it.
    pub(super) fn read(&self, at: usize) -> (LogRead, usize) {
        let progress = self.progress();
        let at = at.max(progress.log.start);
        match progress.log.parts.get(at - progress.log.start) {
            Some(part) => (LogRead::Part(part.clone()), at + 1),
            None if progress.status.is_over() => (LogRead::End, at),
            None => (LogRead::Pending, at),
        }
    }

    /// Is notified of every change from now on.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The last state, or the error.
    pub(super) fn result(&self) -> Value {
        let progress = self.progress();
        match &progress.error {
            Some(exception) => json!({"__error__": exception.json()}),
            None => progress.values.clone(),
        }
    }

    /// Drops the log, because the number of runs that can be replayed is limited.
    pub(super) fn drop_log(&self) {
        let mut progress = self.progress();
        let log = &mut progress.log;
        log.start += log.parts.len();
        log.parts.clear();
        log.bytes = 0;
    }

    /// Asks the run to stop. The first reason counts.
    pub(super) fn stop(&self, stop: Stop) {
        self.progress().stop.get_or_insert(stop);
        self.stop.cancel();
    }

    pub(super) async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    pub(super) fn why_stopped(&self) -> Option<Stop> {
        self.progress().stop
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Log ===

impl Log {
    fn push(&mut self, part: Part) {
        self.bytes += part.frame.len();
        self.parts.push_back(part);
        while self.bytes > MAX_LOG_BYTES
            && let Some(dropped) = self.parts.pop_front()
        {
            self.start += 1;
            self.bytes -= dropped.frame.len();
        }
    }
}

// === impl Status ===

impl Status {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Success => "success",
            Self::Error => "error",
            Self::Interrupted => "interrupted",
        }
    }

    pub(super) fn is_over(self) -> bool {
        match self {
            Self::Pending | Self::Running => false,
            Self::Success | Self::Error | Self::Interrupted => true,
        }
    }
}
