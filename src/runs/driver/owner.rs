//! Whether anybody still wants a run: its readers, and the client that started it.

use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::LINGER;

/// The client that started a run, where the run is to be cancelled when that client leaves.
pub(in crate::runs) enum Owner {
    /// The run goes on without its client.
    None,
    /// The client reads. The sender is dropped when it leaves.
    Present { left: oneshot::Receiver<()>, grace: Duration },
    /// The client has left, and may reconnect until then.
    Gone { until: Instant },
}

/// Why a run need not be read any longer.
pub(super) enum Unwanted {
    /// The last reader has left.
    Unread,
    /// The owner has left too, and the run is to be cancelled.
    Deserted,
}

/// Waits until the run seems unwanted. The caller checks again, since a client may reconnect.
///
/// Cancel safe: the owner's state and the time of the last reader are kept in the arguments.
pub(super) async fn unwanted(
    changed: &watch::Sender<()>,
    owner: &mut Owner,
    unread_since: &mut Option<Instant>,
) -> Unwanted {
    loop {
        match owner {
            Owner::None => {
                if changed.receiver_count() > 0 {
                    *unread_since = None;
                }
                changed.closed().await;
                let since = *unread_since.get_or_insert_with(Instant::now);
                tokio::time::sleep_until(since + LINGER).await;
                *unread_since = None;
                return Unwanted::Unread;
            }
            Owner::Present { left, grace } => {
                // Nothing is ever sent: the sender is dropped.
                let _ = left.await;
                *owner = Owner::Gone { until: Instant::now() + *grace };
            }
            Owner::Gone { until } => {
                tokio::time::sleep_until(*until).await;
                *owner = Owner::None;
                if changed.receiver_count() == 0 {
                    return Unwanted::Deserted;
                }
            }
        }
    }
}
