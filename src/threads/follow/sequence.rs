//! The runs that a watcher has relayed, in order.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::runs::Run;
use crate::upstream::Error;

/// How many runs are kept for followers that still read an earlier one. A slower follower misses
/// some runs, and gets what they led to with the next one.
const MAX_KEPT_RUNS: usize = 4;

/// The runs that a watcher has relayed, in order.
#[derive(Debug, Default)]
pub(super) struct Sequence {
    /// `None` replaces an idle thread that another idle thread followed: the later one has
    /// everything.
    runs: VecDeque<Option<Arc<Run>>>,
    /// The position of the first kept run.
    first: u64,
    pub(super) last_look: LastLook,
    /// How many looks have begun.
    pub(super) looks: u64,
}

/// The result of the last look. `look` is the number of the look.
#[derive(Clone, Debug, Default)]
pub(super) enum LastLook {
    #[default]
    None,
    /// A run is live: the last one of the sequence.
    Running,
    /// No run is live.
    Idle {
        look: u64,
        run: Arc<Run>,
    },
    Failed {
        look: u64,
        error: Arc<Error>,
    },
}

// === impl Sequence ===

impl Sequence {
    /// The position after the newest run.
    pub(super) fn end(&self) -> u64 {
        self.first + self.runs.len() as u64
    }

    pub(super) fn last(&self) -> Option<&Arc<Run>> {
        self.runs.back()?.as_ref()
    }

    /// The runs that are kept, newest first, each with its position.
    pub(super) fn newest_first(&self) -> Vec<(u64, Arc<Run>)> {
        let runs = (self.first..).zip(&self.runs);
        let runs = runs.filter_map(|(position, run)| Some((position, Arc::clone(run.as_ref()?))));
        let mut runs: Vec<_> = runs.collect();
        runs.reverse();
        runs
    }

    /// The first run at this position or later, with its position.
    pub(super) fn next_from(&self, position: u64) -> Option<(u64, Arc<Run>)> {
        let position = position.max(self.first);
        let index = usize::try_from(position - self.first).ok()?;
        let mut runs = self.runs.iter().enumerate().skip(index);
        runs.find_map(|(index, run)| Some((self.first + index as u64, Arc::clone(run.as_ref()?))))
    }

    pub(super) fn push(&mut self, run: Arc<Run>) {
        if run.is_idle()
            && let Some(last) = self.runs.back_mut()
        {
            last.take_if(|last| last.is_idle());
        }
        self.runs.push_back(Some(run));
        if self.runs.len() > MAX_KEPT_RUNS {
            self.runs.pop_front();
            self.first += 1;
        }
    }
}
