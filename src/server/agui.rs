//! The AG-UI endpoints: a request in, a run started, its stream out.

use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use uuid::Uuid;

use super::Gateway;
use super::body::RunBody;
use super::reject::Reject;
use super::wire::{Encoder, Wire};
use crate::agui::{Input, Projector, Turn};
use crate::langgraph::{RunRequest, ThreadState};
use crate::runs::{self, ForkError, RunReader};

/// The largest request that is read: a long conversation with some pictures in it.
pub const MAX_BODY_BYTES: usize = 10 * 1024 * 1024;

/// How long a client may take to send its request.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The namespace of the thread ids that are made from clients' own. It must never change: the
/// threads would be lost to their clients.
const THREAD_NAMESPACE: Uuid = Uuid::from_u128(0x5d1c_e0ab_93f2_4c3e_8f0a_2b7d_64e1_97c5);

/// A thread, as LangGraph calls it and as the client does.
#[derive(Debug, PartialEq, Eq)]
struct Thread<'a> {
    id: String,
    /// The client's name for it, where that is no UUID.
    client_id: Option<&'a str>,
}

/// `POST /agui/agent/{agent}/run`: starts a run and streams it.
pub(super) async fn run(
    State(gateway): State<Gateway>,
    agent: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, Reject> {
    let Path(agent) = agent.map_err(|error| Reject::invalid(error.body_text()))?;
    let (parts, body) = request.into_parts();
    expect_json(&parts.headers)?;
    let body = read_body(&parts.headers, body).await?;
    let input = Input::parse(&body).map_err(|error| Reject::invalid(error.to_string()))?;
    let accept = parts.headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    let wire = accept.map_or(Wire::Sse, Wire::accepted);

    let thread = Thread::of(&input.thread_id);
    let request = Box::pin(plan(&gateway, &agent, &input, &thread)).await?;
    let stream = gateway.upstream.start_run(&thread.id, &request).await;
    let stream = stream.map_err(|error| Reject::not_started(&error, &agent))?;
    tracing::info!(agent, thread_id = thread.id, run_id = stream.run_id, "run started");

    let Gateway { upstream, shutdown } = gateway;
    let reader = RunReader::new(upstream, &thread.id, &input.run_id, stream, shutdown);
    let encoder = Encoder::new(wire, Projector::new(input.client(), input.held()));
    Ok(streamed(wire, RunBody::new(reader, encoder)))
}

/// The run that a request asks for, given what its thread holds.
async fn plan(
    gateway: &Gateway,
    agent: &str,
    input: &Input,
    thread: &Thread<'_>,
) -> Result<RunRequest, Reject> {
    let upstream = &gateway.upstream;
    let body = upstream.thread_state(&thread.id).await.map_err(|error| Reject::from(&error))?;
    let state = match &body {
        Some(body) => Some(ThreadState::parse(body).ok_or_else(|| {
            Reject::not_langgraph("the LangGraph server's answer about the thread is no state")
        })?),
        None => None,
    };
    if let (None, Some(client_id)) = (&state, thread.client_id) {
        let created = upstream.create_thread(&thread.id, client_id).await;
        created.map_err(|error| Reject::from(&error))?;
    }
    let turn = Turn::plan(input, state.as_ref())
        .map_err(|error| Reject::new(StatusCode::CONFLICT, "cannot_resume", error.to_string()))?;
    let checkpoint = match &turn.fork_before {
        Some(message_id) => Some(
            runs::fork_point(upstream, &thread.id, message_id)
                .await
                .map_err(|error| cannot_fork(&error))?,
        ),
        None => None,
    };
    Ok(turn.request(agent, &input.run_id, checkpoint))
}

fn cannot_fork(error: &ForkError) -> Reject {
    match error {
        ForkError::Upstream(error) => error.into(),
        ForkError::Unreadable => Reject::not_langgraph(error),
        ForkError::NoneBefore { .. } | ForkError::TooFarBack { .. } => {
            Reject::new(StatusCode::CONFLICT, "cannot_fork", error.to_string())
        }
    }
}

/// A web page may send anything but JSON to any address without asking first: what starts runs
/// must not be had that way.
fn expect_json(headers: &HeaderMap) -> Result<(), Reject> {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media = content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if media.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let message = format!("the content-type is `{media}`; send application/json");
    Err(Reject::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", message))
}

async fn read_body(headers: &HeaderMap, body: Body) -> Result<Bytes, Reject> {
    let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if length.is_some_and(|length: usize| length > MAX_BODY_BYTES) {
        return Err(too_large());
    }
    let read = Limited::new(body, MAX_BODY_BYTES).collect();
    match tokio::time::timeout(BODY_TIMEOUT, read).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(error)) => Err(Reject::invalid(format!("the body broke off: {error}"))),
        Err(_) => {
            let message = format!("the body did not come within {} s", BODY_TIMEOUT.as_secs());
            Err(Reject::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", message))
        }
    }
}

fn too_large() -> Reject {
    let message = format!(
        "the body is longer than {MAX_BODY_BYTES} bytes; send attachments by URL, or begin a new \
         thread"
    );
    Reject::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
}

/// A response that no proxy may hold back, keep or change.
fn streamed(wire: Wire, body: RunBody) -> Response {
    let mut response = Response::new(Body::new(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, wire.content_type());
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    let buffering = HeaderName::from_static("x-accel-buffering");
    headers.insert(buffering, HeaderValue::from_static("no"));
    response
}

// === impl Thread ===

impl<'a> Thread<'a> {
    /// "A UUID is used as it is; any other string maps to a `UUIDv5`." LangGraph writes UUIDs in
    /// small letters.
    fn of(client_id: &'a str) -> Self {
        match Uuid::try_parse(client_id) {
            Ok(id) if client_id.len() == uuid::fmt::Hyphenated::LENGTH => {
                Self { id: id.to_string(), client_id: None }
            }
            Ok(_) | Err(_) => {
                let id = Uuid::new_v5(&THREAD_NAMESPACE, client_id.as_bytes());
                Self { id: id.to_string(), client_id: Some(client_id) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_a_thread_of_its_own_and_anything_else_gets_one() {
        for (client_id, id, is_named) in [
            ("01a200b7-5ee5-70e2-95e8-b76fe45c0278", "01a200b7-5ee5-70e2-95e8-b76fe45c0278", false),
            ("01A200B7-5EE5-70E2-95E8-B76FE45C0278", "01a200b7-5ee5-70e2-95e8-b76fe45c0278", false),
            ("01a200b75ee570e295e8b76fe45c0278", "c9910a76-2c3a-5cec-8952-fea3e1ebd5fb", true),
            ("my thread", "e817c419-7e64-5f51-8a5c-c4cf14d1fb2d", true),
            ("", "7f5b744d-5886-5daf-b4df-014a8704e229", true),
        ] {
            let thread = Thread::of(client_id);
            assert_eq!(thread.id, id, "{client_id}");
            assert_eq!(thread.client_id.is_some(), is_named, "{client_id}");
        }
    }
}
