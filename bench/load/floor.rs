//! The floor: a gateway that passes the upstream's bytes on as they come, and does nothing else.

use std::net::SocketAddr;

use crate::client::Fault;
use crate::listen::{connect, serve};

/// Passes each request on to the upstream, and each response back.
pub(crate) async fn run(upstream: SocketAddr) -> Result<(), Fault> {
    serve(move |request| async move { Ok(connect(upstream).await?.send_request(request).await?) })
        .await
}
