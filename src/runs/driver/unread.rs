//! How long nobody has read a run.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// Waits until the run has been without a reader for this long. The time begins anew whenever the
/// last reader leaves. The caller checks again, since a client may come at the last moment; the next
/// call then begins a whole time.
///
/// Cancel safe: the time when the last reader left is kept in the argument.
pub(super) async fn unread(
    changed: &watch::Sender<()>,
    patience: Duration,
    unread_since: &mut Option<Instant>,
) {
    if changed.receiver_count() > 0 {
        *unread_since = None;
    }
    changed.closed().await;
    let since = *unread_since.get_or_insert_with(Instant::now);
    tokio::time::sleep_until(since + patience).await;
    *unread_since = None;
}
