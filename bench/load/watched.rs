//! One run that is read by the gateway's own code for any number of viewers: it has no route yet
//! that joins a run.

use std::io::{self, Write};
use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::post;
use http::StatusCode;
use serde_json::json;
use threadway::agui::{Client, Projector, RunId, Version};
use threadway::langgraph::{RunRequest, Start};
use threadway::run::RunEvent;
use threadway::runs::{DEFAULT_LOG_BYTES, OwnerPolicy, Runs};
use threadway::server::{self, Encoder, Limits, RunBody, Wire};
use threadway::{json, upstream};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::client::Fault;
use crate::script::Script;

/// Where a viewer joins.
pub(crate) const VIEW: &str = "/view";

/// Starts a run that says nothing, and serves its viewers until stdin is closed.
pub(crate) async fn run(upstream: SocketAddr) -> Result<(), Fault> {
    let client = upstream::Client::new(format!("http://{upstream}").parse()?, None)?;
    let thread = Uuid::from_u128(u128::MAX).to_string();
    let text = serde_json::to_string(&Script::idle())?;
    let input = json!({ "messages": [{ "type": "human", "content": text, "id": "m1" }] });
    let request = RunRequest::new("agent", "r1", Start::Input(json::raw(input.to_string())));
    let stream = client.start_run(&thread, &request).await?;
    let run_id = stream.run_id.clone().ok_or("the upstream named no run")?;

    let stop = CancellationToken::new();
    let runs = Runs::new(DEFAULT_LOG_BYTES, OwnerPolicy::Continue, stop.clone());
    let mut first = runs.start(client, &thread, "r1", stream);
    // Viewers come to a run whose conversation is known.
    let tells_base = |event: &RunEvent| matches!(event, RunEvent::Messages(_));
    while !first.next().await.ok_or("the run ended")?.iter().any(tells_base) {}

    let view = {
        let runs = runs.clone();
        async move || {
            let Some(reader) = runs.attach(&run_id) else { return Err(StatusCode::GONE) };
            let version = Version::V1;
            let client = Client {
                thread_id: thread.clone(),
                run_id: RunId::Unnamed,
                parent_run_id: None,
                version,
            };
            let encoder = Encoder::new(Wire::Sse, Projector::new(client, Vec::new()));
            Ok(Response::new(Body::new(RunBody::new(reader, encoder))))
        }
    };
    let routes = Router::new().route(VIEW, post(view));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    writeln!(io::stderr(), "listening on http://{}", listener.local_addr()?)?;
    let (mut stdin, mut byte) = (tokio::io::stdin(), [0]);
    let limits = Limits::default();
    tokio::select! {
        () = server::serve(listener, routes, &limits, stop) => {}
        _ = stdin.read(&mut byte) => {}
        // Reads on to the end, as the client that started the run would.
        () = async { while first.next().await.is_some() {} std::future::pending().await } => {}
    }
    Ok(())
}
