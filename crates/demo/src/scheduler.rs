//! Starts, ends and stops runs. One task per busy thread plays its runs, one after the other.

use std::sync::Arc;

use serde_json::{Value, json};
use uuid::Uuid;

use super::request::{IfNotExists, Multitask, RunBody};
use super::run::{Action, Run, Status, Stop};
use super::script::{Graph, watched_request};
use super::state::{Exception, Values, merged, messages};
use super::thread::{Error, LastRun, Thread};
use super::wire::Refusal;
use super::{MAX_LIVE_RUNS, Server, WATCHED_ID, engine};

/// How playing a run ended.
enum Ended {
    Through,
    Raised(Exception),
    /// A request stopped it.
    Stopped,
    /// The demo shuts down, and the run stays as it is.
    GoingDown,
}

impl Server {
    /// Adds a run to its thread's queue.
    pub(super) fn start(self: &Arc<Self>, id: Uuid, body: RunBody) -> Result<Arc<Run>, Refusal> {
        let if_not_exists = body.if_not_exists.unwrap_or(IfNotExists::Reject);
        let order = body.order()?;
        let mut store = self.store();
        if store.live_runs() >= MAX_LIVE_RUNS {
            return Err(Refusal::full(format!(
                "the demo plays at most {MAX_LIVE_RUNS} runs at once; wait for one to end"
            )));
        }
        if !store.has(id) {
            if if_not_exists == IfNotExists::Reject {
                return Err(Refusal::not_found("Thread or assistant not found."));
            }
            store.create(id, order.metadata.clone(), &self.clock)?;
        }
        store.make_room_for(id)?;
        let thread = store.thread_mut(id)?;
        self.make_room(thread, order.multitask)?;
        let graph = order.graph;
        thread.config = merged(Value::Object(order.config.clone()), json!({"configurable": {}}));
        let mut metadata = Values::from_iter([("created_by".to_owned(), json!("system"))]);
        metadata.extend(thread.metadata.clone());
        for (name, value) in [
            ("graph_id", json!(graph.name())),
            ("assistant_id", json!(graph.assistant_id().to_string())),
        ] {
            thread.metadata.insert(name.to_owned(), value.clone());
            metadata.insert(name.to_owned(), value);
        }
        metadata.extend(order.metadata.clone());
        let run = Arc::new(Run::new(self.clock.id(), id, order, metadata, &self.clock));
        thread.updated_at = self.clock.now();
        thread.add_run(Arc::clone(&run));
        if !thread.has_worker {
            thread.has_worker = true;
            let worker = Arc::clone(self).play_runs(Arc::clone(&run));
            self.tasks.spawn(worker);
        }
        Ok(run)
    }

    /// Applies a new run's multitask strategy to the runs of a busy thread.
    fn make_room(&self, thread: &mut Thread, multitask: Multitask) -> Result<(), Refusal> {
        let action = match multitask {
            Multitask::Reject if thread.is_busy() => {
                return Err(Refusal::conflict(
                    "Thread is already running a task. Wait for it to finish or choose a \
                     different multitask strategy.",
                ));
            }
            Multitask::Reject | Multitask::Enqueue => return Ok(()),
            Multitask::Interrupt => Action::Interrupt,
            Multitask::Rollback => Action::Rollback,
        };
        let reason = "a newer run took the thread (multitask_strategy)";
        let live: Vec<_> =
            thread.runs.iter().filter(|run| !run.status().is_over()).cloned().collect();
        for run in live {
            self.stop_on(thread, &run, Stop { action, reason });
        }
        Ok(())
    }

    /// Starts the next background run, unless the last one is still live.
    pub(super) fn start_watched(self: &Arc<Self>) {
        let graph = Graph::Watched;
        let held = self
            .store()
            .thread(WATCHED_ID)
            .ok()
            .and_then(Thread::newest)
            .map(|newest| messages(&newest.values).to_vec());
        let cron_id = Uuid::new_v5(&WATCHED_ID, b"cron").to_string();
        let body = json!({
            "assistant_id": graph.name(),
            "input": watched_request(&held.unwrap_or_default()),
            "metadata": {"cron_id": cron_id},
            "config": {"configurable": {"cron_id": cron_id}},
            "stream_mode": ["values", "messages-tuple", "updates", "custom"],
            "stream_resumable": true,
            "multitask_strategy": "reject",
            "if_not_exists": "create",
        });
        let started = serde_json::from_value(body)
            .map_err(|error| Refusal::invalid(error.to_string()))
            .and_then(|body| self.start(WATCHED_ID, body));
        if let Err(refusal) = started {
            tracing::info!(?refusal, "a background run was skipped");
        }
    }

    /// Plays a thread's runs until none is left.
    async fn play_runs(self: Arc<Self>, first: Arc<Run>) {
        let mut next = Some(first);
        while let Some(run) = next {
            let ended = if self.begin(&run) {
                tokio::select! {
                    biased;
                    () = self.shutdown.cancelled() => Ended::GoingDown,
                    () = run.stopped() => Ended::Stopped,
                    played = engine::play(&self, &run) => match played {
                        Ok(()) => Ended::Through,
                        Err(exception) => Ended::Raised(exception),
                    },
                }
            } else {
                // The run was stopped while it was pending.
                Ended::Stopped
            };
            next = self.end(&run, ended);
        }
    }

    fn begin(&self, run: &Run) -> bool {
        // A pending run is only stopped with the store locked.
        let _store = self.store();
        let is_due = run.status() == Status::Pending;
        if is_due {
            run.begin(&self.clock);
        }
        is_due
    }

    /// Ends a run. Returns the next run of its thread.
    fn end(&self, run: &Arc<Run>, ended: Ended) -> Option<Arc<Run>> {
        let mut store = self.store();
        let thread = store.thread_mut(run.thread_id).ok();
        // The thread may have been deleted and created again.
        let mut thread = thread.filter(|thread| thread.run(run.id).is_some());
        if !run.status().is_over() {
            let (status, raised) = match ended {
                Ended::GoingDown => return None,
                Ended::Through => (Status::Success, None),
                Ended::Raised(exception) => (Status::Error, Some(exception)),
                Ended::Stopped => (Status::Interrupted, None),
            };
            if let Some(exception) = &raised {
                run.push("error", &exception.json().to_string(), &self.clock);
            }
            if let Some(thread) = &mut thread {
                self.finish(thread, run, raised.clone());
            }
            run.end(status, raised, &self.clock);
        }
        let next = thread.and_then(|thread| {
            let next = thread.first_live().cloned();
            thread.has_worker = next.is_some();
            next
        });
        store.keep_replay(run);
        next
    }

    /// Records how a run ended in its thread.
    fn finish(&self, thread: &mut Thread, run: &Run, raised: Option<Exception>) {
        let stop = run.why_stopped().filter(|_| raised.is_none());
        let error = match (raised, stop) {
            (Some(exception), _) => Some(Error::Raised(exception)),
            (None, None) => None,
            (None, Some(Stop { action: Action::Interrupt, reason })) => {
                let due = thread.newest().filter(|newest| newest.run_id == Some(run.id)).cloned();
                for task in due.iter().flat_map(|newest| &newest.tasks) {
                    thread.update_task(
                        due.as_ref().map_or(task.id, |newest| newest.id),
                        task.id,
                        |task| {
                            if task.result.is_null() {
                                task.error = Some("CancelledError()".to_owned());
                            }
                        },
                    );
                }
                let message = reason.to_owned();
                Some(Error::Stopped(Exception { kind: "UserInterrupt", message }))
            }
            (None, Some(Stop { action: Action::Rollback, reason })) => {
                thread.roll_back(run.id);
                let message = reason.to_owned();
                Some(Error::RolledBack(Exception { kind: "UserRollback", message }))
            }
        };
        thread.last_run = Some(LastRun { error });
        thread.updated_at = self.clock.now();
    }

    /// Stops a run: a pending one at once, a running one at its next pause.
    pub(super) fn stop(&self, run: &Run, stop: Stop) {
        let mut store = self.store();
        match store.thread_mut(run.thread_id) {
            Ok(thread) => self.stop_on(thread, run, stop),
            Err(_) => run.stop(stop),
        }
    }

    fn stop_on(&self, thread: &mut Thread, run: &Run, stop: Stop) {
        run.stop(stop);
        if run.status() == Status::Pending {
            run.end(Status::Interrupted, None, &self.clock);
            if stop.action == Action::Rollback {
                thread.roll_back(run.id);
            }
        }
    }

    /// Waits until a run has ended.
    pub(super) async fn wait(&self, run: &Run) {
        let mut changed = run.changes();
        while !run.status().is_over() {
            tokio::select! {
                () = self.shutdown.cancelled() => return,
                // The sender cannot be gone: it belongs to the run.
                _ = changed.changed() => {}
            }
        }
    }

    /// Deletes a thread and its runs.
    pub(super) fn remove_thread(&self, id: Uuid) -> Result<(), Refusal> {
        let mut thread = self.store().remove(id)?;
        let stop = Stop { action: Action::Interrupt, reason: "the thread was deleted" };
        for run in thread.runs.clone() {
            self.stop_on(&mut thread, &run, stop);
        }
        Ok(())
    }

    /// Updates a thread's state without a run.
    pub(super) fn update_state(
        &self,
        id: Uuid,
        updates: Vec<Values>,
        as_node: Option<&str>,
        checkpoint: Option<Uuid>,
    ) -> Result<Value, Refusal> {
        let mut store = self.store();
        let thread = store.thread_mut(id)?;
        let Some(graph) = thread.graph() else {
            return Err(Refusal::new(
                http::StatusCode::BAD_REQUEST,
                format!(
                    "Thread '{id}' has no assigned graph ID. Please ensure a run has been made for the thread."
                ),
            ));
        };
        if thread.is_busy() {
            return Err(Refusal::conflict(format!("Thread {id} has in-flight runs")));
        }
        let draft =
            super::thread::revise(thread, graph, updates, as_node, checkpoint, &self.clock)?;
        let (made, _) = thread.add_checkpoint(draft, &self.clock);
        let place = json!({
            "thread_id": id.to_string(), "checkpoint_ns": "", "checkpoint_id": made.to_string(),
        });
        Ok(json!({
            "checkpoint": place, "configurable": place, "checkpoint_id": made.to_string(),
        }))
    }
}
