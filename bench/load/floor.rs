//! The pass-through: a gateway that forwards the upstream's bytes as they come, and does nothing
//! else. Its cost is the floor for any gateway.

use std::net::SocketAddr;

use crate::client::Fault;
use crate::listen::{connect, serve};

/// Forwards each request to the upstream, and each response to the client.
pub(crate) async fn run(upstream: SocketAddr) -> Result<(), Fault> {
    serve(move |request| async move { Ok(connect(upstream).await?.send_request(request).await?) })
        .await
}
