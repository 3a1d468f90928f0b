//! Limits log lines that anybody can cause.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::sync::Mutex;

/// The pause after a line. The operator sees that something is refused, and nobody can fill the
/// disk.
const PAUSE: Duration = Duration::from_secs(10);

/// Allows one line in each [`PAUSE`]. Clones share their state.
#[derive(Clone, Default)]
pub(in crate::server) struct LogLimiter(Arc<Mutex<Option<Instant>>>);

// === impl LogLimiter ===

impl LogLimiter {
    /// Whether a line may be logged now.
    pub(in crate::server) fn is_due(&self) -> bool {
        let now = Instant::now();
        let mut last = self.0.lock();
        let is_due = last.is_none_or(|last| now >= last + PAUSE);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}

impl fmt::Debug for LogLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogLimiter")
    }
}
