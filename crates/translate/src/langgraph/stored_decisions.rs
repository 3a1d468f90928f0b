//! Decisions on some actions of an interrupt, which the thread's metadata keep until the others are
//! made.
//!
//! Each decision has its own key, because servers merge metadata by key: two replicas that store
//! decisions on different actions at once lose none. Servers cannot delete a key. So the keys are
//! few and used again, and the value says what the decision is about.

use std::collections::HashSet;

use serde_json::value::RawValue;

use super::{Approval, RawInterrupt, RunRecord, RunStatus, ThreadState};
use crate::json::{self, Json, ObjectWriter};

/// The prefix of the keys. Servers copy a thread's metadata to its runs, where `threadway_answers`
/// has another meaning.
const PREFIX: &str = "threadway_answer:";

/// The longest decision that is stored, in bytes. Servers send a thread's metadata in each list of
/// threads.
pub const MAX_KEPT_BYTES: usize = 16 * 1024;

/// The largest number of actions of an interrupt whose decisions are stored one by one.
pub const MAX_KEPT_ACTIONS: usize = 64;

/// How many decisions of a thread are read. Several interrupts may be open.
const MAX_READ: usize = 4 * MAX_KEPT_ACTIONS;

/// A text that each form of an approval of several actions contains.
const BATCH_WORDS: [&[u8]; 2] = [b"action_request", b"actionRequest"];

/// A decision on one of several actions, to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchDecision {
    /// LangGraph's id of the interrupt.
    pub interrupt: String,
    /// The index of the action.
    pub action: usize,
    /// The decision, in the words of the interrupt's form.
    pub decision: Json,
}

/// A decision that a thread's metadata keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredDecision {
    /// The key in the metadata.
    pub key: String,
    /// LangGraph's id of the interrupt.
    pub interrupt: String,
    /// The index of the action.
    pub action: usize,
    /// LangGraph's id of the thread's newest run at the time of the decision. Empty if there was
    /// none.
    after: String,
    /// The decision, in the words of the interrupt's form.
    pub decision: Json,
}

/// The decisions in a thread's metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredDecisions {
    /// Decisions on open interrupts.
    pub current: Vec<StoredDecision>,
    /// The keys of all other decisions.
    pub stale: Vec<String>,
}

// === impl StoredDecision ===

impl StoredDecision {
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

    /// Whether no later run has answered the interrupt. `runs` are the thread's newest runs, the
    /// newest first.
    ///
    /// The interrupt's id is not enough: a node that asks again uses the same id in the same
    /// checkpoint. A run that does not name the interrupts it answers may have answered this one.
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

// === impl StoredDecisions ===

impl StoredDecisions {
    /// Reads all decisions from a thread's metadata.
    pub fn read(metadata: &RawValue) -> Vec<StoredDecision> {
        let members = json::members(metadata).unwrap_or_default().0;
        let kept = members.iter().filter(|(key, _)| key.starts_with(PREFIX));
        kept.filter_map(|(key, value)| StoredDecision::read(key, value)).take(MAX_READ).collect()
    }

    /// Separates decisions on open interrupts from the others. Without `runs`, none counts as
    /// current.
    pub fn sort(
        all: Vec<StoredDecision>,
        state: &ThreadState<'_>,
        runs: Option<&NewestRuns>,
    ) -> Self {
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

    /// The update of the thread's metadata that stores `given`. `after` is the thread's newest run.
    ///
    /// A decision replaces an earlier one on the same action. Otherwise it takes a key without a
    /// current decision. For each open interrupt the search starts at another key.
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

    /// The update of the thread's metadata that clears these keys. Servers cannot delete them.
    pub fn forgetting(keys: &[String]) -> Json {
        keys.iter().fold(ObjectWriter::new(), |object, key| object.raw(key, "null")).finish()
    }
}

/// The newest runs of a thread that have started, the newest first.
#[derive(Clone, Debug, Default)]
pub struct NewestRuns {
    runs: Vec<RunRecord>,
    /// Whether these are all runs of the thread.
    is_all: bool,
}

// === impl NewestRuns ===

impl NewestRuns {
    /// How many runs to ask the server for.
    pub const LIMIT: usize = 100;

    /// Reads a list of [`LIMIT`](Self::LIMIT) runs. The outer `None` means that the body is not
    /// such a list. The inner `None` means that there may be newer runs: the JavaScript server
    /// lists the oldest first.
    ///
    /// A pending run is left out, because the Python server dates a delayed run to its due time.
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

    /// The newest run. `None` if the thread has none that has started.
    pub fn newest(&self) -> Option<&RunRecord> {
        self.runs.first()
    }
}

// === impl ThreadState ===

impl ThreadState<'_> {
    /// Whether a state may ask about several actions at once. A text search, which is cheaper than
    /// parsing a large state.
    pub fn may_have_batches(text: &str) -> bool {
        BATCH_WORDS.iter().any(|word| memchr::memmem::find(text.as_bytes(), word).is_some())
    }

    /// The open interrupts with an id that ask about several actions, and the number of actions of
    /// each.
    pub fn batches(&self) -> impl Iterator<Item = (&str, usize)> {
        self.interrupts.iter().filter_map(|open| {
            let actions = Approval::parse(open)?.requests.len();
            let is_batch = actions > 1 && !RawInterrupt::is_unnamed(&open.id);
            is_batch.then_some((&*open.id, actions))
        })
    }
}
