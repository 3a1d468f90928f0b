//! `GET /agui/agent/{agent}/threads/{thread}/events`: connects an `EventSource` to a thread.
//!
//! With `?follow=thread` the stream does not end with the live run: it goes on with every later
//! run.

use axum::body::Body;
use axum::extract::{RawQuery, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::CONNECTION;
use http::{HeaderMap, Method, StatusCode};

use super::accept;
use super::page::Page;
use crate::metrics::Metrics;
use crate::server::gateway::RequestContext;
use crate::server::reject::{Refused, Reject};
use crate::server::request::query::{PathParams, param};
use crate::server::response::{self, unbuffered};
use crate::server::service::connect::{ConnectMode, ConnectResponse};
use crate::server::service::events::{self, ThreadReadRequest};
use crate::server::streams::last_event::LastEvent;
use crate::server::streams::retry::RetryJitter;
use crate::server::streams::wire::Wire;

pub(in crate::server) async fn events(
    context: RequestContext,
    State(page): State<Page>,
    PathParams((name, client_thread)): PathParams<(String, String)>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Reject> {
    let wire = accept::stream(&headers)?;
    let query = query.unwrap_or_default();
    let asked = ThreadReadRequest {
        agent: &name,
        client_thread: &client_thread,
        scope: scope(&query)?,
        last: LastEvent::of_request(&headers, &query),
        wire,
        is_inspected: page.inspects(Some(&query)),
    };
    match events::events(&context, asked).await? {
        ConnectResponse::Events(stream) => {
            response::events(*stream, &context.gateway.observer.metrics).await
        }
        ConnectResponse::NoMoreEvents => Ok(StatusCode::NO_CONTENT.into_response()),
    }
}

/// Answers a client that resumes a stream with an empty one, in place of a refusal that passes by
/// itself. An `EventSource` never reconnects after another status than 200, but it does after a
/// stream that ends. This layer is in front of everything that refuses requests.
pub(in crate::server) async fn defer(
    State(metrics): State<Metrics>,
    request: Request,
    next: Next,
) -> Response {
    let is_resumption = is_resumption(&request);
    let mut refusal = next.run(request).await;
    let status = refusal.status();
    let is_passing = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
    if !is_resumption || !is_passing {
        return refusal;
    }
    let refused = refusal.extensions_mut().remove::<Refused>();
    tracing::debug!(?refused, "a client is sent an empty stream, so that it reconnects later");
    let wire = Wire::Sse;
    let spread = RetryJitter::of(metrics.sse_clients());
    let mut empty = unbuffered(wire, Body::from(wire.beginning(spread)));
    if let Some(refused) = refused {
        empty.extensions_mut().insert(refused);
    }
    // At a shutdown, the next connection leads to another replica.
    if let Some(connection) = refusal.headers_mut().remove(CONNECTION) {
        empty.headers_mut().insert(CONNECTION, connection);
    }
    empty
}

/// Whether a client resumes an event stream of one thread, or of many.
fn is_resumption(request: &Request) -> bool {
    let (uri, headers) = (request.uri(), request.headers());
    let is_of_one = uri.path().starts_with("/agui/agent/") && uri.path().ends_with("/events");
    let is_here = is_of_one || uri.path() == "/agui/events";
    request.method() == Method::GET
        && is_here
        && LastEvent::of_request(headers, uri.query().unwrap_or_default()) != LastEvent::None
        && matches!(accept::stream(headers), Ok(Wire::Sse))
}

/// The scope that a query asks for.
fn scope(query: &str) -> Result<ConnectMode, Reject> {
    match param(query, "follow").as_deref() {
        None => Ok(ConnectMode::Once),
        Some("thread") => Ok(ConnectMode::Follow),
        Some(_) => Err(Reject::invalid(
            "the only value of `follow` is `thread`; send `follow=thread`, or leave `follow` out \
             to read the live run only",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_asks_for_the_live_run_or_for_the_whole_thread() {
        for (query, expected) in [
            ("", Some(ConnectMode::Once)),
            ("x=1", Some(ConnectMode::Once)),
            ("x=1&follow=thread", Some(ConnectMode::Follow)),
            ("follow=run", None),
            ("follow=", None),
        ] {
            assert_eq!(scope(query).ok(), expected, "{query}");
        }
    }
}
