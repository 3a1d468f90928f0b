//! A run whose stream is stored for clients that join, as far as a gateway can tell it from the
//! Python server's.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::{Sleep, sleep};

use crate::text::now;
use crate::upstream::{HEARTBEAT, RunBody, lock};

/// How many parts the server repeats at the end of a replay, because it subscribes before it reads
/// its store (24 to 26 at a pace of 20 ms). A run that has just begun has fewer.
const REPEATS: usize = 25;

/// How long the server is subscribed before it reads its store for a client that joins again. Parts
/// of that time are sent twice.
const LISTENS: Duration = Duration::from_millis(500);

/// After how many parts a replay has a pause for the server's other work, and how long. A busy
/// server on two cores replays 100,000 parts in about 7 s.
const GAP_AFTER: usize = 1_000;
const GAP: Duration = Duration::from_millis(20);

/// How a part with values begins.
pub(crate) const VALUES: &[u8] = b"event: values\r\ndata: ";

/// A run that a task of its own produces, with or without readers.
pub(crate) struct Kept {
    pub(crate) thread: String,
    pub(crate) run_id: String,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    parts: Vec<Bytes>,
    /// One id for each part.
    ids: Vec<u64>,
    is_over: bool,
    /// Whether only the last values are left.
    is_forgotten: bool,
    waiting: Vec<Waker>,
    joins: Vec<Replayed>,
}

/// When the first part of a join's replay was sent, and when the last; 0 before.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Replayed {
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// The upstream's report about a stored run.
#[derive(Serialize, Deserialize)]
pub(crate) struct Account {
    pub(crate) parts: usize,
    pub(crate) joins: Vec<Replayed>,
}

/// The stream of one reader.
pub(crate) struct KeptBody {
    run: Arc<Kept>,
    at: usize,
    replay: Option<Replay>,
}

/// The state of a join.
struct Replay {
    join: usize,
    /// The first part of the replay, and the one after its last, once the store is read.
    begin: usize,
    end: Option<usize>,
    /// The first part that is repeated.
    heard: usize,
    gap: Pin<Box<Sleep>>,
}

// === impl Kept ===

impl Kept {
    pub(crate) fn new(thread: &str, run_id: &str) -> Self {
        Self { thread: thread.to_owned(), run_id: run_id.to_owned(), told: Mutex::default() }
    }

    /// Produces the run to its end.
    pub(crate) async fn tell(self: Arc<Self>, mut run: RunBody) {
        // Ids are milliseconds. Tokens that are sent at once get ids one millisecond apart.
        let (mut past, mut id) = (run.said_at_once(), now() / 1_000_000);
        id = id.saturating_sub(past);
        while let Some(part) = poll_fn(|cx| run.poll_part(cx)).await {
            // A heartbeat is no part.
            if part == HEARTBEAT {
                continue;
            }
            id += 1;
            if past == 0 {
                id = id.max(now() / 1_000_000);
            }
            past = past.saturating_sub(1);
            self.add(stamped(&part, id), id);
        }
        let mut told = lock(&self.told);
        told.is_over = true;
        told.waiting.drain(..).for_each(Waker::wake);
    }

    fn add(&self, part: Bytes, id: u64) {
        let mut told = lock(&self.told);
        told.parts.push(part);
        told.ids.push(id);
        told.waiting.drain(..).for_each(Waker::wake);
    }

    /// The same run, with its last values alone. A reader of the whole stream keeps it.
    pub(crate) fn forgotten(&self) -> Self {
        let told = lock(&self.told);
        let last = told.parts.iter().rfind(|part| part.starts_with(VALUES)).cloned();
        let parts = last.into_iter().collect();
        let told = Told { parts, is_over: told.is_over, is_forgotten: true, ..Told::default() };
        Self { told: told.into(), ..Self::new(&self.thread, &self.run_id) }
    }

    pub(crate) fn is_forgotten(&self) -> bool {
        lock(&self.told).is_forgotten
    }

    /// The stream of the client that started the run.
    pub(crate) fn from_start(self: Arc<Self>) -> KeptBody {
        KeptBody { run: self, at: 0, replay: None }
    }

    /// The stream of a client that joins: all parts after an id, and then the new ones.
    pub(crate) fn join(self: Arc<Self>, from: u64) -> KeptBody {
        let (at, replay) = {
            let mut told = lock(&self.told);
            told.joins.push(Replayed::default());
            let begin = told.ids.partition_point(|id| *id <= from);
            let (join, said) = (told.joins.len() - 1, told.parts.len());
            let (heard, listens) = if from > 0 {
                (said, LISTENS)
            } else {
                (
                    said.checked_sub(REPEATS).filter(|at| *at >= REPEATS).unwrap_or(said),
                    Duration::ZERO,
                )
            };
            let end = listens.is_zero().then_some(said);
            (begin, Replay { join, begin, heard, end, gap: Box::pin(sleep(listens)) })
        };
        KeptBody { run: self, at, replay: Some(replay) }
    }

    /// The run's record, with this status.
    pub(crate) fn record(&self, status: &str) -> Value {
        let modes = ["values", "messages-tuple", "updates", "custom"];
        json!({
            "run_id": self.run_id, "thread_id": self.thread, "status": status,
            "created_at": "2026-11-22T08:00:00.000000+00:00", "metadata": {},
            "kwargs": { "resumable": true, "stream_mode": modes },
        })
    }

    /// The state of the run's thread.
    pub(crate) fn state(&self) -> Value {
        let told = lock(&self.told);
        let values = told.parts.iter().rev().find_map(|part| {
            let part = std::str::from_utf8(part.strip_prefix(VALUES)?).ok()?;
            serde_json::from_str::<Value>(part.lines().next()?).ok()
        });
        let next: &[&str] = if told.is_over { &[] } else { &["model"] };
        json!({
            "values": values, "next": next, "tasks": [],
            "metadata": { "run_id": self.run_id },
            "checkpoint": { "checkpoint_id": format!("{}-{}", self.run_id, told.is_over) },
        })
    }

    pub(crate) fn account(&self) -> Account {
        let told = lock(&self.told);
        Account { parts: told.parts.len(), joins: told.joins.clone() }
    }
}

/// The milliseconds of a `Last-Event-ID`: the client asks for the parts after them.
pub(crate) fn behind(id: &str) -> Option<u64> {
    if id == "-1" { Some(0) } else { id.split_once('-')?.0.parse().ok() }
}

/// A part with another id.
fn stamped(part: &[u8], id: u64) -> Bytes {
    let before = memchr::memmem::rfind(part, b"\r\nid: ").expect("each part has an id");
    let (before, _) = part.split_at(before);
    [before, format!("\r\nid: {id}-0\r\n\r\n").as_bytes()].concat().into()
}

// === impl KeptBody ===

impl Body for KeptBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Self { run, at, replay } = self.get_mut();
        if let Some(replay) = replay {
            ready!(replay.gap.as_mut().poll(cx));
        }
        let mut told = lock(&run.told);
        if let Some(Replay { end, heard, .. }) = replay
            && *at >= *end.get_or_insert(told.parts.len())
        {
            // The replay is over.
            *at = *heard;
            *replay = None;
        }
        let Some(part) = told.parts.get(*at).cloned() else {
            if told.is_over {
                return Poll::Ready(None);
            }
            told.waiting.push(cx.waker().clone());
            return Poll::Pending;
        };
        *at += 1;
        if let Some(Replay { join, begin, end, heard: _, gap }) = replay
            && let Some(times) = told.joins.get_mut(*join)
        {
            if *at == *begin + 1 {
                times.first = now();
            }
            if *at % GAP_AFTER == 0 {
                gap.set(sleep(GAP));
            }
            if Some(*at) == *end {
                times.last = now();
            }
        }
        Poll::Ready(Some(Ok(Frame::data(part))))
    }
}
