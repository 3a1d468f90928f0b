//! `GET /agui/info`: the agents, in the form that CopilotKit's client reads; and
//! `GET /agui/agent/{agent}/capabilities`: what one agent can do.

use axum::response::Response;

use crate::server::gateway::Call;
use crate::server::reject::Reject;
use crate::server::request::query::InPath;
use crate::server::response::uncached_json;
use crate::server::service;

pub(super) async fn info(call: Call) -> Result<Response, Reject> {
    service::info::info(&call).await.map(|info| uncached_json(&info))
}

pub(super) async fn capabilities(
    call: Call,
    InPath(name): InPath<String>,
) -> Result<Response, Reject> {
    service::info::capabilities(&call, &name).await.map(|can| uncached_json(&can))
}
