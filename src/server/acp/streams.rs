//! Streamable HTTP: messages come by POST, and go out on streams that the client reads by GET.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderName};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};

use super::remote::{ClientConnection, ReaderGuard};
use super::{CONNECTION_ID, Front, accepted, connect, door, is_checked_by_langgraph};
use crate::metrics::{Charge, Transport};
use crate::offload::offload;
use crate::server::body::read_json;
use crate::server::gateway::RequestContext;
use crate::server::reject::Reject;
use crate::server::request::weights::weighed;
use crate::server::response::UpstreamNotAsked;
use crate::server::streams::silence::KEEP_ALIVE;
use crate::sessions::{NotReadable, Outbox, StreamReader};
use threadway_translate::acp::destination::session_of;
use threadway_translate::acp::method::Method;
use threadway_translate::acp::rpc::{self, Incoming, Malformed};
use threadway_translate::sse;

/// The header that names a session.
const SESSION_ID: HeaderName = HeaderName::from_static("acp-session-id");

/// The longest id of a session whose stream can be read. Session ids are UUIDs.
const MAX_SESSION_ID_BYTES: usize = 64;

/// `POST /acp`, but not for a message on a socket.
pub(super) async fn message(
    context: &RequestContext,
    front: &Front,
    head: &Parts,
    body: Body,
) -> Result<Response, Reject> {
    let body = read_json(context, &head.headers, body, context.gateway.limits.body_bytes).await?;
    let (incoming, charge) = match offload(body.len(), || Incoming::parse(&body)) {
        Ok(incoming) => (incoming, body.into_charge()),
        Err(malformed) => return Ok(refused(malformed)),
    };
    let is_initialize = matches!(
        &incoming,
        Incoming::Request { method, .. } if Method::of(method) == Some(Method::Initialize)
    );
    match (header(&head.headers, &CONNECTION_ID)?, is_initialize) {
        (None, true) => initialize(context, front, incoming, charge).await,
        (None, false) => Err(no_connection()),
        (Some(_), true) => Err(Reject::invalid(
            "the connection is initialized already; send `initialize` without `acp-connection-id`",
        )),
        (Some(id), false) => {
            let remote = find(context, front, id)?;
            expect_one_session(&head.headers, &incoming)?;
            expect_reader(&remote, &incoming)?;
            remote.touch();
            door::admit(context, front, &remote, incoming, charge).await?;
            Ok(accepted())
        }
    }
}

/// `GET /acp` without an upgrade: streams the messages of a connection, or of one of its sessions.
pub(super) fn stream(
    context: &RequestContext,
    front: &Front,
    request: &Request,
) -> Result<Response, Reject> {
    let headers = request.headers();
    if !accepts_events(headers) {
        let message = "`accept` does not allow text/event-stream; name it to read a stream, or open \
                       a WebSocket";
        return Err(Reject::new(StatusCode::NOT_ACCEPTABLE, "not_acceptable", message));
    }
    let id = header(headers, &CONNECTION_ID)?.ok_or_else(no_connection)?;
    let remote = find(context, front, id)?;
    remote.connection().called_by(context.caller.clone());
    let read = match header(headers, &SESSION_ID)? {
        None => remote.outbox().read_connection(),
        Some(session) if session.len() > MAX_SESSION_ID_BYTES => return Err(unknown_session()),
        Some(session) => {
            let is_open = remote.connection().has_session(session);
            remote.outbox().read_session(session, is_open)
        }
    };
    let reader = read.map_err(|why| match why {
        NotReadable::IsRead => Reject::new(
            StatusCode::CONFLICT,
            "stream_taken",
            "the stream has a reader; end that one first, or open another connection",
        ),
        NotReadable::TooManyUnconfirmed => Reject::too_many(
            "too_many_streams",
            "the connection reads streams of too many sessions that are not open; load or resume \
             them, or end some of the streams",
        ),
    })?;
    Ok(streamed(&remote, reader))
}

/// `DELETE /acp`: closes a connection. Its runs go on.
pub(in crate::server) async fn close(
    context: RequestContext,
    State(front): State<Arc<Front>>,
    request: Request,
) -> Result<Response, Reject> {
    let id = header(request.headers(), &CONNECTION_ID)?.ok_or_else(no_connection)?;
    find(&context, &front, id)?.closed().cancel();
    Ok(accepted())
}

/// Opens a connection. The answer to `initialize` is the body.
async fn initialize(
    context: &RequestContext,
    front: &Front,
    incoming: Incoming,
    charge: Charge,
) -> Result<Response, Reject> {
    let outbox = Outbox::apart();
    let meter = context.gateway.observer.metrics.acp(Transport::Http);
    let counted = meter.connection();
    let (remote, works) = connect(context, front, outbox.clone(), meter).await?;
    let slot = context.streams.slot()?;
    front.registry.insert(&remote, context.gateway.limits.connections)?;
    let (registry, shutdown) = (front.registry.clone(), front.shutdown.clone());
    front.tasks.spawn(registry.serve(remote.clone(), works, shutdown, (slot, counted)));
    let Ok(reader) = outbox.read_connection() else { return Err(door::unknown_connection()) };
    door::admit(context, front, &remote, incoming, charge).await?;
    let mut answer = Vec::new();
    // Nothing else is sent before.
    tokio::select! {
        biased;
        () = reader.take(&mut answer) => {}
        () = remote.closed().cancelled() => return Err(door::unknown_connection()),
    }
    drop(reader);
    let is_refused = matches!(
        Incoming::parse(answer.trim_ascii_end()),
        Ok(Incoming::Response { result: Err(_), .. })
    );
    let mut response = json(StatusCode::OK, answer);
    if is_refused {
        remote.closed().cancel();
        *response.status_mut() = StatusCode::BAD_REQUEST;
        return Ok(response);
    }
    response.headers_mut().insert(CONNECTION_ID, remote.header());
    if !is_checked_by_langgraph(context) {
        response.extensions_mut().insert(UpstreamNotAsked);
    }
    Ok(response)
}

/// The caller's connection of this id. Another caller's is unknown.
fn find(context: &RequestContext, front: &Front, id: &str) -> Result<ClientConnection, Reject> {
    front.registry.find(id, context).ok_or_else(door::unknown_connection)
}

/// The response to what is no message.
fn refused(malformed: Malformed) -> Response {
    let answer = rpc::response(&malformed.id, &Err(malformed.error));
    json(StatusCode::BAD_REQUEST, answer.into_bytes())
}

fn json(status: StatusCode, body: Vec<u8>) -> Response {
    let headers = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
    (status, headers, body).into_response()
}

/// Refuses a message whose header and params name two sessions. Clients of some SDKs leave the
/// header out.
fn expect_one_session(headers: &HeaderMap, incoming: &Incoming) -> Result<(), Reject> {
    match (header(headers, &SESSION_ID)?, session_of(incoming)) {
        (Some(named), Some(meant)) if named != meant => Err(Reject::invalid(
            "`acp-session-id` and the message's `sessionId` differ; send the same id in both",
        )),
        _ => Ok(()),
    }
}

/// Refuses a request of a client that does not read its messages. Its answers and notifications are
/// taken, because they add no message.
fn expect_reader(remote: &ClientConnection, incoming: &Incoming) -> Result<(), Reject> {
    match incoming {
        Incoming::Request { .. } if remote.outbox().is_overfull() => Err(Reject::too_many(
            "too_many_requests",
            "too many messages wait to be read on the connection's streams; read them, then send \
             the request again",
        )),
        Incoming::Request { .. } | Incoming::Notification { .. } | Incoming::Response { .. } => {
            Ok(())
        }
    }
}

/// A header that may come once.
fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Reject> {
    let mut values = headers.get_all(name).iter();
    match (values.next().map(HeaderValue::to_str), values.next()) {
        (None, _) => Ok(None),
        (Some(Ok(value)), None) => Ok(Some(value)),
        (Some(_), _) => Err(Reject::invalid(format!("`{name}` is no single id; send one"))),
    }
}

/// Whether the client names the type. ACP's draft wants it named, so a wildcard is not enough.
fn accepts_events(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(ACCEPT).iter().filter_map(|line| line.to_str().ok());
    let mut ranges = lines.flat_map(weighed);
    ranges.any(|(range, weight)| weight > 0 && range.eq_ignore_ascii_case("text/event-stream"))
}

fn no_connection() -> Reject {
    Reject::invalid(
        "`acp-connection-id` is missing; send the id from the response to `initialize`, or send \
         `initialize` first",
    )
}

fn unknown_session() -> Reject {
    Reject::new(
        StatusCode::NOT_FOUND,
        "unknown_thread",
        "`acp-session-id` is no session's id; send one that `session/new` or `session/list` has",
    )
}

/// A response with the messages of one stream, each as an event.
fn streamed(remote: &ClientConnection, reader: StreamReader) -> Response {
    let reading = remote.reading();
    let events = stream::unfold((reader, reading), |(reader, reading)| async move {
        let bytes = next(&reader, &reading).await?;
        Some((Ok::<_, std::convert::Infallible>(bytes), (reader, reading)))
    });
    let mut response = Response::new(Body::from_stream(events));
    response.extensions_mut().insert(UpstreamNotAsked);
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_TYPE, "text/event-stream"),
        (CACHE_CONTROL, "no-cache, no-transform"),
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// The next events of a stream, or a comment after a silence. `None` at its end.
async fn next(reader: &StreamReader, guard: &ReaderGuard) -> Option<Bytes> {
    let (mut lines, mut events) = (Vec::new(), Vec::new());
    tokio::select! {
        biased;
        () = reader.take(&mut lines) => {
            for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                sse::encode(&mut events, None, line);
            }
        }
        () = guard.ended() => return None,
        () = tokio::time::sleep(KEEP_ALIVE) => sse::encode_comment(&mut events, ""),
    }
    Some(events.into())
}
