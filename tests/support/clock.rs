//! A paused clock for tests with real sockets.

use std::io::{self, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::task::Poll;
use std::time::Duration;

/// How long, in real time, a test may hold the clock. Such tests take less than a second. A test
/// that waits for an event that never comes has no other time limit.
const PATIENCE: Duration = Duration::from_mins(3);

/// Stops the paused clock. Otherwise tokio advances it while a test waits for a socket.
pub(crate) struct HeldClock {
    _release: mpsc::Sender<()>,
}

// === impl HeldClock ===

impl HeldClock {
    pub(crate) fn pause() -> Self {
        let (release, released) = mpsc::channel::<()>();
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        // tokio does not advance the clock while a blocking task runs.
        tokio::task::spawn_blocking(move || {
            if released.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                // `eprintln` would not do: the test harness captures its output until the test
                // ends.
                let _ = writeln!(io::stderr(), "{test} hangs: it held the clock for {PATIENCE:?}");
                std::process::abort();
            }
        });
        tokio::time::pause();
        Self { _release: release }
    }

    pub(crate) async fn advance(&self, duration: Duration) {
        // Timers fire at the next whole millisecond.
        tokio::time::advance(duration + Duration::from_millis(1)).await;
    }
}

/// Fails if the future is not ready before the clock has advanced this far.
pub(crate) async fn within<T>(
    clock: &HeldClock,
    limit: Duration,
    happens: impl Future<Output = T>,
) -> T {
    const STEP: Duration = Duration::from_millis(50);
    let mut happens = std::pin::pin!(happens);
    let mut passed = Duration::ZERO;
    loop {
        // Bytes on the way arrive.
        for _ in 0..2_000 {
            if let Poll::Ready(happened) = futures_util::poll!(&mut happens) {
                return happened;
            }
            tokio::task::yield_now().await;
        }
        assert!(passed + STEP < limit, "nothing happened within {limit:?}");
        clock.advance(STEP).await;
        passed += STEP + Duration::from_millis(1);
    }
}
