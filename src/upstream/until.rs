//! Until when a caller is admitted.

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// Until when a caller is admitted. What stays open for a caller across runs ends then: a client
/// with other credentials connects again. The default has no end. Clones end at the same time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Until {
    /// Cancelled when the gateway does not accept these credentials any more.
    withdrawn: CancellationToken,
    expires: Option<Instant>,
}

// === impl Until ===

impl Until {
    pub(crate) fn new(withdrawn: CancellationToken, expires: Option<Instant>) -> Self {
        Self { withdrawn, expires }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.withdrawn.is_cancelled() || self.expires.is_some_and(|at| Instant::now() >= at)
    }

    /// Waits for the end. Cancel safe.
    pub(crate) async fn over(&self) {
        let withdrawn = self.withdrawn.cancelled();
        match self.expires {
            None => withdrawn.await,
            Some(at) => tokio::select! {
                biased;
                () = withdrawn => {}
                () = sleep_until(at) => {}
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::future::poll_immediate;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_ends_when_it_is_withdrawn_or_when_it_expires() {
        assert!(!Until::default().is_over());
        let withdrawn = CancellationToken::new();
        let at = Instant::now() + Duration::from_mins(5);
        let (first, second) =
            (Until::new(withdrawn.clone(), None), Until::new(CancellationToken::new(), Some(at)));
        for until in [&first, &second] {
            assert!(!until.is_over() && poll_immediate(until.over()).await.is_none());
        }
        withdrawn.cancel();
        first.over().await;
        assert!(first.is_over() && first.clone().is_over());
        second.over().await;
        assert!(second.is_over() && Instant::now() >= at);
    }
}
