//! A proxy between the gateways and their upstream that can reset all its connections at once.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::client::Fault;
use crate::upstream::lock;

/// Forwards connections until it is dropped.
pub(crate) struct Pipe {
    address: SocketAddr,
    /// Cancelled to reset the current connections.
    reset: Arc<Mutex<CancellationToken>>,
    _passing: JoinSet<()>,
}

// === impl Pipe ===

impl Pipe {
    pub(crate) async fn to(upstream: SocketAddr) -> Result<Self, Fault> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let reset = Arc::<Mutex<CancellationToken>>::default();
        let mut passing = JoinSet::new();
        let token = Arc::clone(&reset);
        passing.spawn(async move {
            let mut open = JoinSet::new();
            loop {
                tokio::select! {
                    Some(_) = open.join_next() => {}
                    accepted = listener.accept() => {
                        let Ok((socket, _)) = accepted else { continue };
                        let reset = lock(&token).child_token();
                        open.spawn(async move { drop(pass(socket, upstream, reset).await) });
                    }
                }
            }
        });
        Ok(Self { address, reset, _passing: passing })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Resets all connections.
    pub(crate) fn reset(&self) {
        std::mem::take(&mut *lock(&self.reset)).cancel();
    }
}

async fn pass(
    mut socket: TcpStream,
    upstream: SocketAddr,
    reset: CancellationToken,
) -> Result<(), Fault> {
    let mut upstream = TcpStream::connect(upstream).await?;
    socket.set_nodelay(true)?;
    upstream.set_nodelay(true)?;
    tokio::select! {
        _ = copy_bidirectional(&mut socket, &mut upstream) => {}
        () = reset.cancelled() => socket.set_zero_linger()?,
    }
    Ok(())
}
