//! `POST /agui/agent/{agent}/stop/{thread}`: stops a thread's live run.

use axum::extract::Request;
use axum::response::Response;

use crate::server::body::read_body;
use crate::server::gateway::RequestContext;
use crate::server::reject::Reject;
use crate::server::request::query::PathParams;
use crate::server::response::{about_thread, uncached_json};
use crate::server::service::stop::stop_thread;

/// The largest request body: it holds one id.
const MAX_BODY_BYTES: usize = 4 * 1024;

pub(super) async fn stop(
    context: RequestContext,
    PathParams((name, client_thread)): PathParams<(String, String)>,
    request: Request,
) -> Result<Response, Reject> {
    let (parts, body) = request.into_parts();
    let body = read_body(&context, &parts.headers, body, MAX_BODY_BYTES).await?;
    respond(&context, &name, &client_thread, &body).await
}

/// Stops the live run of the thread that the client calls `client_thread`.
pub(super) async fn respond(
    context: &RequestContext,
    name: &str,
    client_thread: &str,
    body: &[u8],
) -> Result<Response, Reject> {
    let (answer, ids) = stop_thread(context, name, client_thread, body).await?;
    Ok(about_thread(uncached_json(&answer), ids))
}
