//! `POST /agui/agent/{agent}/connect`: sends a thread as it is, then its live run.
//!
//! After a run's last event the server answers 204, since an `EventSource` would reconnect for ever.

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;

use super::accept::EventsRequest;
use super::page::Page;
use crate::server::gateway::RequestContext;
use crate::server::reject::Reject;
use crate::server::request::query::PathParams;
use crate::server::service::connect::{self, ConnectResponse};
use crate::server::service::input::InputRequest;

pub(super) async fn connect(
    context: RequestContext,
    State(page): State<Page>,
    PathParams(name): PathParams<String>,
    request: Request,
) -> Result<Response, Reject> {
    let (events, request) =
        EventsRequest::read(&context, &name, page, request, connect::action).await?;
    respond(&context, &events, &request).await
}

/// Connects the client of a request to the thread that it names.
pub(super) async fn respond(
    context: &RequestContext,
    events: &EventsRequest,
    request: &InputRequest,
) -> Result<Response, Reject> {
    match connect::connect_to(context, request).await? {
        ConnectResponse::Events(stream) => {
            Box::pin(events.respond(&context.gateway.observer.metrics, *stream)).await
        }
        ConnectResponse::NoMoreEvents => Ok(StatusCode::NO_CONTENT.into_response()),
    }
}
