//! The signals that stop a command.

use std::io;

use tokio_util::sync::CancellationToken;

/// Waits for SIGTERM or ctrl-c. Signals are caught from the return of this function on.
#[cfg(unix)]
pub(super) fn stop() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Waits for ctrl-c, which is caught from the return of this function on.
#[cfg(windows)]
pub(super) fn stop() -> io::Result<impl Future<Output = ()>> {
    let mut interrupt = tokio::signal::windows::ctrl_c()?;
    Ok(async move {
        interrupt.recv().await;
    })
}

pub(super) async fn cancel_after(signal: impl Future<Output = ()>, shutdown: &CancellationToken) {
    signal.await;
    shutdown.cancel();
}
