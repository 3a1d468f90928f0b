//! The upstream's threads that have a conversation before any client connects.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::watch;
use uuid::Uuid;

use crate::upstream::lock;

/// The threads by their ids.
#[derive(Default)]
pub(crate) struct Threads(Mutex<HashMap<String, Stored>>);

/// The requested content of threads; the body of `POST /stored`.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Wanted {
    /// The number of the first thread, and how many there are.
    pub(crate) first: u64,
    pub(crate) count: u64,
    /// How many messages each thread has, and the length of each message.
    pub(crate) messages: usize,
    pub(crate) message_bytes: usize,
    /// The size of the state without the messages.
    pub(crate) state_bytes: usize,
    /// How many runs have ended, and the size of each input.
    pub(crate) runs: usize,
    pub(crate) input_bytes: usize,
}

/// How the upstream answers from now on; the body of `POST /mood`.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Mood {
    /// The delay of each answer.
    pub(crate) delay_ms: u64,
    /// How many requests of LangGraph's API are answered in a second, in order. Those whose client
    /// has left count too.
    pub(crate) per_second: Option<u32>,
    /// The status that is answered instead, with `Retry-After: 30`.
    pub(crate) refusal: Option<u16>,
}

/// One thread.
struct Stored {
    values: Value,
    /// The answer to `GET /threads/{id}/state`, ready to be sent.
    state: Bytes,
    runs: Vec<Value>,
    last_run: Option<String>,
    is_busy: bool,
    /// How often the thread changed, and how often its state did.
    moves: u64,
    changes: u64,
    /// Notified when a run begins or ends.
    bell: watch::Sender<u64>,
}

/// The id of the thread with this number.
pub(crate) fn thread_id(thread: u64) -> String {
    Uuid::from_u128(u128::from(thread)).to_string()
}

// === impl Wanted ===

impl Wanted {
    /// One thread with this many messages of 200 bytes.
    pub(crate) const fn conversation(thread: u64, messages: usize) -> Self {
        Self {
            first: thread,
            count: 1,
            messages,
            message_bytes: 200,
            state_bytes: 0,
            runs: 0,
            input_bytes: 0,
        }
    }

    fn values(&self) -> Value {
        let text = "x".repeat(self.message_bytes);
        let messages: Vec<_> = (0..self.messages)
            .map(|at| {
                let kind = if at % 2 == 0 { "human" } else { "ai" };
                json!({ "type": kind, "id": format!("stored-{at}"), "content": text })
            })
            .collect();
        json!({ "messages": messages, "note": "y".repeat(self.state_bytes), "changes": 0 })
    }
}

// === impl Mood ===

impl Mood {
    pub(crate) fn delay(self) -> Duration {
        Duration::from_millis(self.delay_ms)
    }
}

// === impl Threads ===

impl Threads {
    /// Makes threads.
    pub(crate) fn store(&self, wanted: Wanted) {
        let values = wanted.values();
        let input =
            json!({ "messages": [{ "type": "human", "content": "z".repeat(wanted.input_bytes) }] });
        let mut threads = lock(&self.0);
        for thread in wanted.first..wanted.first + wanted.count {
            let runs = (0..wanted.runs).map(|run| {
                let run_id = Uuid::from_u128(u128::from(thread) << 64 | run as u128);
                json!({
                    "run_id": run_id.to_string(), "thread_id": thread_id(thread),
                    "status": "success", "metadata": {},
                    "created_at": format!("2026-11-22T07:{:02}:00.000000+00:00", run % 60),
                    "kwargs": { "input": input, "stream_mode": ["values"] },
                })
            });
            let mut stored = Stored {
                values: values.clone(),
                state: Bytes::new(),
                runs: runs.collect(),
                last_run: None,
                is_busy: false,
                moves: 0,
                changes: 0,
                bell: watch::Sender::new(0),
            };
            stored.last_run =
                stored.runs.last().and_then(|run| Some(run.get("run_id")?.as_str()?.to_owned()));
            stored.render();
            threads.insert(thread_id(thread), stored);
        }
    }

    /// The messages of a thread as a JSON array; `None` if there is no such thread.
    pub(crate) fn conversation(&self, thread: &str) -> Option<String> {
        let threads = lock(&self.0);
        let messages = threads.get(thread)?.values.get("messages")?.to_string();
        Some(messages.trim_start_matches('[').trim_end_matches(']').to_owned())
    }

    /// A thread's state, ready to be sent.
    pub(crate) fn state(&self, thread: &str) -> Option<Bytes> {
        Some(lock(&self.0).get(thread)?.state.clone())
    }

    /// The ended runs of a thread, the newest first, with these columns or all of them.
    pub(crate) fn runs(&self, thread: &str, columns: &[&str]) -> Vec<Value> {
        let threads = lock(&self.0);
        let Some(stored) = threads.get(thread) else { return Vec::new() };
        let chosen = |run: &Value| {
            let Some(members) = run.as_object().filter(|_| !columns.is_empty()) else {
                return run.clone();
            };
            let chosen = members.iter().filter(|(name, _)| columns.contains(&name.as_str()));
            Value::Object(chosen.map(|(name, value)| (name.clone(), value.clone())).collect())
        };
        stored.runs.iter().rev().map(chosen).collect()
    }

    /// The answer to `POST /threads/search` for these threads.
    pub(crate) fn search(&self, ids: &[String]) -> Value {
        let threads = lock(&self.0);
        let found = ids.iter().filter_map(|id| Some((id, threads.get(id)?)));
        found.map(|(id, stored)| stored.record(id)).collect()
    }

    /// Changes the state of a thread without a run.
    pub(crate) fn change(&self, thread: &str) {
        if let Some(stored) = lock(&self.0).get_mut(thread) {
            stored.changes += 1;
            stored.moves += 1;
            if let Some(values) = stored.values.as_object_mut() {
                values.insert("changes".to_owned(), stored.changes.into());
            }
            stored.render();
        }
    }

    /// Marks the thread as running.
    pub(crate) fn begin(&self, thread: &str) {
        if let Some(stored) = lock(&self.0).get_mut(thread) {
            stored.is_busy = true;
            stored.moves += 1;
            stored.bell.send_modify(|rung| *rung += 1);
        }
    }

    /// Marks the run as ended, and stores these values.
    pub(crate) fn end(&self, thread: &str, run_id: &str, values: Option<Value>) {
        if let Some(stored) = lock(&self.0).get_mut(thread) {
            stored.is_busy = false;
            stored.moves += 1;
            stored.changes += 1;
            stored.last_run = Some(run_id.to_owned());
            if let Some(values) = values {
                stored.values = values;
            }
            stored.render();
            stored.bell.send_modify(|rung| *rung += 1);
        }
    }

    /// Notified when a run of the thread begins or ends.
    pub(crate) fn bell(&self, thread: &str) -> Option<watch::Receiver<u64>> {
        Some(lock(&self.0).get(thread)?.bell.subscribe())
    }
}

// === impl Stored ===

impl Stored {
    fn render(&mut self) {
        let state = json!({
            "values": self.values, "next": [], "tasks": [],
            "metadata": { "run_id": self.last_run },
            "checkpoint": { "checkpoint_id": format!("checkpoint-{}", self.changes) },
        });
        self.state = state.to_string().into();
    }

    fn record(&self, id: &str) -> Value {
        let time = |count: u64| format!("2026-11-22T08:00:00.{count:06}+00:00");
        json!({
            "thread_id": id, "status": if self.is_busy { "busy" } else { "idle" }, "metadata": {},
            "updated_at": time(self.moves), "state_updated_at": time(self.changes),
        })
    }
}
