//! Serves the demo's scripted LangGraph server alone, for `integration/sdk/check.py`, until
//! `threadway demo` can do that: it goes away then.
//!
//! `cargo run --example demo-server -- 127.0.0.1:2024`

use std::env;
use std::io;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use threadway::demo::{Demo, Pace};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> io::Result<()> {
    let address = env::args().nth(1).unwrap_or_else(|| "127.0.0.1:2024".to_owned());
    let listener = TcpListener::bind(address).await?;
    let shutdown = CancellationToken::new();
    let demo = Demo::new(Pace::HUMAN, shutdown.clone());
    let service = TowerToHyperService::new(demo.routes());
    let mut open = JoinSet::new();
    let background = {
        let demo = demo.clone();
        async move { demo.run_background().await }
    };
    open.spawn(background);
    loop {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => break,
            accepted = listener.accept() => {
                let (socket, _) = accepted?;
                let service = service.clone();
                open.spawn(async move {
                    let builder = auto::Builder::new(TokioExecutor::new());
                    // Clients come and go as they like.
                    let _ended = builder.serve_connection(TokioIo::new(socket), service).await;
                });
            }
        }
    }
    shutdown.cancel();
    demo.drain().await;
    Ok(())
}
