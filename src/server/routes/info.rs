//! `GET /agui/info`: the agents, in the form that CopilotKit's client reads; and
//! `GET /agui/agent/{agent}/capabilities`: what one agent can do.

use axum::response::Response;

use crate::server::gateway::RequestContext;
use crate::server::reject::Reject;
use crate::server::request::query::PathParams;
use crate::server::response::uncached_json;
use crate::server::service;

pub(super) async fn info(context: RequestContext) -> Result<Response, Reject> {
    service::info::info(&context).await.map(|info| uncached_json(&info))
}

pub(super) async fn capabilities(
    context: RequestContext,
    PathParams(name): PathParams<String>,
) -> Result<Response, Reject> {
    service::info::capabilities(&context, &name).await.map(|can| uncached_json(&can))
}
