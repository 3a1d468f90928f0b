//! `POST /agui/agent/{agent}/run`: starts a run and streams it. `GET` opens a WebSocket, or answers
//! `TanStack` AI's client.

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::header::ALLOW;
use http::{HeaderValue, Method};

use super::accept::EventsRequest;
use super::page::Page;
use super::tanstack::TanStackQuery;
use crate::server::gateway::{Gateway, ReloadReceiver, RequestContext};
use crate::server::reject::Reject;
use crate::server::request::query::PathParams;
use crate::server::service::run::{self, RunIntent};
use crate::server::streams::wire::Wire;
use crate::server::upgrade::is_upgrade;
use crate::server::websocket;

pub(super) async fn run(
    context: RequestContext,
    State(page): State<Page>,
    PathParams(name): PathParams<String>,
    request: Request,
) -> Result<Response, Reject> {
    let (events, request) =
        EventsRequest::read(&context, &name, page, request, run::action).await?;
    let stream = run::start(&context, &request, RunIntent::Run).await?;
    Box::pin(events.respond(&context.gateway.observer.metrics, stream)).await
}

/// `GET .../run`: opens a socket if the request is an upgrade. Otherwise answers `TanStack` AI's
/// client, which loads threads and joins runs here.
pub(super) async fn socket_or_query(
    context: RequestContext,
    State(newest): State<ReloadReceiver<Gateway>>,
    PathParams(name): PathParams<String>,
    request: Request,
) -> Result<Response, Reject> {
    if is_upgrade(request.headers()) && request.method() == Method::GET {
        return websocket::open(&context, newest, &name, Wire::Chunks, request).await;
    }
    if let Some(query) = TanStackQuery::of(&request)? {
        let (parts, _) = request.into_parts();
        return Box::pin(query.respond(&context, &name, &parts.headers)).await;
    }
    let mut response = Reject::unnamed_run().into_response();
    response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
    Ok(response)
}

/// `GET .../run/ws`: opens a socket.
pub(super) async fn socket(
    context: RequestContext,
    State(newest): State<ReloadReceiver<Gateway>>,
    PathParams(name): PathParams<String>,
    request: Request,
) -> Result<Response, Reject> {
    websocket::open(&context, newest, &name, Wire::Events, request).await
}
