//! Decisions on some actions of a batch, which the thread's metadata keep until the others have
//! come.
//!
//! Each decision has a member of its own, because a server merges metadata by their members: two
//! replicas that keep decisions on different actions at once keep both. No server can take a
//! member out again, so their names are few and are used again: what a decision is about stands in
//! its value.

use std::collections::HashSet;

use serde_json::value::RawValue;

use super::{Approval, RawInterrupt, RunRecord, RunStatus, ThreadState};
use crate::json::{self, Json, ObjectWriter};

/// How the members of a thread's metadata begin that hold a decision. Servers copy a thread's
/// metadata into those of its runs: there, `threadway_answers` is something else.
const PREFIX: &str = "threadway_answer:";

/// The longest decision that is kept. Servers send a thread's metadata with each list of threads.
pub const MAX_KEPT_BYTES: usize = 16 * 1024;

/// The largest batch of which some decisions are kept.
pub const MAX_KEPT_ACTIONS: usize = 64;

/// How many decisions of a thread are read: several batches may wait at once.
const MAX_READ: usize = 4 * MAX_KEPT_ACTIONS;

/// What each form of an approval of several actions has as a member's name, or in it.
const BATCH_WORDS: [&[u8]; 2] = [b"action_request", b"actionRequest"];

/// A decision on one action of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchDecision {
    /// The interrupt, by LangGraph's id.
    pub interrupt: String,
    /// Which of its actions.
    pub action: usize,
    /// The decision, in the words of the interrupt's form.
    pub decision: Json,
}

/// A decision that a thread's metadata keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptAnswer {
    /// The member of the metadata.
    pub key: String,
    /// The interrupt, by LangGraph's id.
    pub interrupt: String,
    /// Which of its actions.
    pub action: usize,
    /// The thread's newest run when the decision was made, by LangGraph's id; empty for none.
    after: String,
    /// The decision, in the words of the interrupt's form.
    pub decision: Json,
}

/// What a thread's metadata keep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptAnswers {
    /// The decisions on what is still open.
    pub current: Vec<KeptAnswer>,
    /// The members whose decisions are on nothing that is open.
    pub stale: Vec<String>,
}

// === impl KeptAnswer ===

impl KeptAnswer {
    fn read(key: &str, value: &RawValue) -> Option<Self> {
        let members = json::members(value)?;
        Some(Self {
            key: key.to_owned(),
            interrupt: members.string("interrupt")?.into_owned(),
            action: members.get("action")?.get().parse().ok()?,
            after: members.string("after")?.into_owned(),
            decision: Json::from(members.get("decision")?),
        })
    }

    fn is_on(&self, given: &BatchDecision) -> bool {
        self.interrupt == given.interrupt && self.action == given.action
    }

    /// Whether no run since has answered its interrupt, by the thread's newest runs, the newest
    /// first.
    ///
    /// The interrupt's id alone does not tell: a node that asks again has the same id, in the same
    /// checkpoint, and may ask the same. Of a run that does not name what it answers nothing is
    /// known.
    fn is_current(&self, runs: &NewestRuns) -> bool {
        for run in &runs.runs {
            if run.id == self.after {
                return true;
            }
            if run.answers.is_empty() || run.answers.contains(&self.interrupt) {
                return false;
            }
        }
        self.after.is_empty() && runs.is_all
    }
}

// === impl KeptAnswers ===

impl KeptAnswers {
    /// All decisions that a thread's metadata hold, on whatever.
    pub fn read(metadata: &RawValue) -> Vec<KeptAnswer> {
        let members = json::members(metadata).unwrap_or_default().0;
        let kept = members.iter().filter(|(key, _)| key.starts_with(PREFIX));
        kept.filter_map(|(key, value)| KeptAnswer::read(key, value)).take(MAX_READ).collect()
    }

    /// Which of these are on what a thread asks now; `None` for runs of which nothing is known.
    pub fn sort(all: Vec<KeptAnswer>, state: &ThreadState<'_>, runs: Option<&NewestRuns>) -> Self {
        let mut answers = Self::default();
        let mut seen = HashSet::new();
        let batches: Vec<_> = state.batches().collect();
        for kept in all {
            let is_open =
                batches.iter().any(|(id, actions)| *id == kept.interrupt && kept.action < *actions);
            let is_current = is_open && runs.is_some_and(|runs| kept.is_current(runs));
            if is_current && seen.insert((kept.interrupt.clone(), kept.action)) {
                answers.current.push(kept);
            } else {
                answers.stale.push(kept.key);
            }
        }
        answers
    }

    /// The change of a thread's metadata that keeps these, on a thread whose newest run is `after`.
    ///
    /// A decision takes the place of an earlier one on the same action, else a member that holds
    /// nothing current. Batches that are open at once begin to look for one at different places.
    pub fn keeping(
        &self,
        given: &[BatchDecision],
        state: &ThreadState<'_>,
        after: Option<&RunRecord>,
    ) -> Json {
        let after = after.map_or("", |run| &run.id);
        let mut used: HashSet<String> = self.current.iter().map(|kept| kept.key.clone()).collect();
        let mut metadata = ObjectWriter::new();
        let batches: Vec<_> = state.batches().collect();
        for given in given {
            let known = self.current.iter().find(|kept| kept.is_on(given));
            let key = known.map_or_else(
                || {
                    let rank = batches.iter().position(|(id, _)| *id == given.interrupt);
                    let mut names = (rank.unwrap_or_default()..)
                        .map(|group| format!("{PREFIX}{group}:{}", given.action));
                    names.find(|name| !used.contains(name)).unwrap_or_default()
                },
                |kept| kept.key.clone(),
            );
            let action = given.action.to_string();
            let value = ObjectWriter::new()
                .string("interrupt", &given.interrupt)
                .raw("action", &action)
                .string("after", after)
                .raw("decision", given.decision.get());
            metadata = metadata.raw(&key, value.finish().get());
            used.insert(key);
        }
        metadata.finish()
    }

    /// The change of a thread's metadata that forgets these members. None can be taken out.
    pub fn forgetting(keys: &[String]) -> Json {
        keys.iter().fold(ObjectWriter::new(), |object, key| object.raw(key, "null")).finish()
    }
}

/// The newest runs of a thread that have begun, the newest first.
#[derive(Clone, Debug, Default)]
pub struct NewestRuns {
    runs: Vec<RunRecord>,
    /// Whether the thread has no others.
    is_all: bool,
}

// === impl NewestRuns ===

impl NewestRuns {
    /// How many runs are to be asked for.
    pub const LIMIT: usize = 100;

    /// Reads a list of [`LIMIT`](Self::LIMIT) runs. The outer `None` if it is none; the inner one
    /// if there may be newer runs: the JavaScript server lists the oldest first.
    ///
    /// A run that waits is left out: the Python server dates a delayed one to when it is due.
    pub fn parse(body: &str) -> Option<Option<Self>> {
        let items: Vec<&RawValue> = serde_json::from_str(body).ok()?;
        let time = |item: Option<&&RawValue>| {
            let members = json::members(item?)?;
            Some(members.string("created_at")?.into_owned())
        };
        let is_all = items.len() < Self::LIMIT;
        if !is_all && time(items.first()) <= time(items.last()) {
            return Some(None);
        }
        let mut runs = RunRecord::parse_list(body)?;
        runs.retain(|run| run.status != RunStatus::Pending);
        Some(Some(Self { runs, is_all }))
    }

    /// The newest one.
    pub fn newest(&self) -> Option<&RunRecord> {
        self.runs.first()
    }
}

// === impl ThreadState ===

impl ThreadState<'_> {
    /// Whether a state may ask about several actions at once, by its text: what is large is not
    /// parsed for nothing.
    pub fn may_have_batches(text: &str) -> bool {
        BATCH_WORDS.iter().any(|word| memchr::memmem::find(text.as_bytes(), word).is_some())
    }

    /// The open interrupts that ask about several actions at once and have an id in LangGraph, each
    /// with how many actions.
    pub fn batches(&self) -> impl Iterator<Item = (&str, usize)> {
        self.interrupts.iter().filter_map(|open| {
            let actions = Approval::parse(open)?.requests.len();
            let is_batch = actions > 1 && !RawInterrupt::is_unnamed(&open.id);
            is_batch.then_some((&*open.id, actions))
        })
    }
}
