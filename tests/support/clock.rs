//! The paused clock of a test that reads real sockets.

use std::io::{self, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// How long a test may hold the clock, in real time. Such tests take less than a second; one that
/// waits for what never comes has no other clock to end it.
const PATIENCE: Duration = Duration::from_mins(3);

/// Keeps the paused clock where it is: it would move by itself while sockets are waited for.
pub(crate) struct HeldClock {
    _release: mpsc::Sender<()>,
}

// === impl HeldClock ===

impl HeldClock {
    pub(crate) fn pause() -> Self {
        let (release, released) = mpsc::channel::<()>();
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        // The clock does not move by itself while a blocking task runs.
        tokio::task::spawn_blocking(move || {
            if released.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                // Not by `eprintln`, whose words a test keeps until it ends.
                let _ = writeln!(io::stderr(), "{test} hangs: it held the clock for {PATIENCE:?}");
                std::process::abort();
            }
        });
        tokio::time::pause();
        Self { _release: release }
    }

    pub(crate) async fn advance(&self, duration: Duration) {
        // Timers go off at the next whole millisecond.
        tokio::time::advance(duration + Duration::from_millis(1)).await;
    }
}
