//! Which runs a watcher has relayed, so that a run is not relayed in a loop.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::super::pace::LOOK_INTERVAL;
use crate::upstream::{Backoff, Seed};

/// The longest pause before a run is relayed again. The first pause is [`LOOK_INTERVAL`], and each
/// relay of the run doubles it. A list may keep naming a run that is gone, or whose stream cannot
/// be read.
const LONGEST_RELAY_PAUSE: Duration = Duration::from_mins(1);

/// How many runs are remembered.
const MAX_RELAYS: usize = 100;

/// The runs that were relayed last, newest at the end.
#[derive(Debug, Default)]
pub(super) struct RelayLog(VecDeque<Relay>);

#[derive(Debug)]
struct Relay {
    run_id: String,
    pauses: Backoff,
    /// When the run may be relayed again.
    again_at: Instant,
}

// === impl RelayLog ===

impl RelayLog {
    /// Notes that a relay which began at `since` has ended.
    pub(super) fn note(&mut self, run_id: &str, since: Instant) {
        let now = Instant::now();
        let index = self.0.iter().position(|relay| relay.run_id == run_id);
        let mut pauses = index.and_then(|index| self.0.remove(index)).map_or_else(
            || Backoff::new(LOOK_INTERVAL, LONGEST_RELAY_PAUSE, Seed::random()),
            |relay| relay.pauses,
        );
        // A relay that took so long is no loop.
        if now - since >= LONGEST_RELAY_PAUSE {
            pauses.reset();
        }
        let again_at = now + pauses.next_pause();
        self.0.push_back(Relay { run_id: run_id.to_owned(), pauses, again_at });
        if self.0.len() > MAX_RELAYS {
            self.0.pop_front();
        }
    }

    pub(super) fn has(&self, run_id: &str) -> bool {
        self.get(run_id).is_some()
    }

    pub(super) fn may_relay(&self, run_id: &str) -> bool {
        self.get(run_id).is_none_or(|relay| relay.again_at <= Instant::now())
    }

    fn get(&self, run_id: &str) -> Option<&Relay> {
        self.0.iter().find(|relay| relay.run_id == run_id)
    }
}
