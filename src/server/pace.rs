//! How often a line is logged that anybody can cause.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::sync::Mutex;

/// The pause after such a line: an operator sees that something is refused, and no one fills a disk.
const PAUSE: Duration = Duration::from_secs(10);

/// Lets one line through in each [`PAUSE`]. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Pace(Arc<Mutex<Option<Instant>>>);

// === impl Pace ===

impl Pace {
    /// Whether a line may be logged now.
    pub(super) fn is_due(&self) -> bool {
        let now = Instant::now();
        let mut last = self.0.lock();
        let is_due = last.is_none_or(|last| now >= last + PAUSE);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}

impl fmt::Debug for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pace")
    }
}
