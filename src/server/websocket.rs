//! WebSocket: many turns on one connection. `GET .../run` and `GET .../run/ws` open one.
//!
//! - [`handshake`]: the request that opens a socket.
//! - [`session`]: one socket, from its opening to its end.
//! - [`socket`]: an open socket: frames, pings, the end. ACP's sockets use it too.
//! - [`turn`]: a turn on a socket. [`routed`]: requests to the gateway's own routes.
//! - [`frame`]: what a client sends, and the frames that are no events of a run.
//!
//! A socket has no rules of its own. Each turn is sent through the gateway's routes as a
//! `POST .../run` with the headers of the request that opened the socket, and each abort as a
//! `POST .../stop/{thread}`. So authentication, limits and refusals are the same as for HTTP, also
//! after a reload, and after a token has expired.
//!
//! ```text
//!  client                      socket                        routes
//!    | RunAgentInput  --------> |  POST .../run ------------> |
//!    | <-------- event by event | <------------------ a stream|
//!    | {type: "abort"} -------> |  POST .../stop/{thread} --> |
//! ```

mod frame;
pub(in crate::server) mod handshake;
pub(in crate::server) mod routed;
mod session;
pub(in crate::server) mod socket;
mod turn;

use std::borrow::Cow;

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::header::{ALLOW, SEC_WEBSOCKET_PROTOCOL};
use http::{HeaderMap, HeaderValue, Method};

pub use session::IDLE;
pub use socket::{PING, PONG_TIMEOUT};

use super::auth::admit::UpstreamNotAsked;
use super::gateway::Call;
use super::limits::rates::StreamSlot;
use super::peer::Peer;
use super::reject::Reject;
use super::request::query::{InPath, param};
use super::routes::tanstack::{RunName, TanStackQuery, id_param};
use super::streams::unread::Answers;
use super::streams::wire::Wire;
use super::upgrade::{Upgrade, is_upgrade, protocols};
use crate::metrics::{Charge, Held};

/// The subprotocol whose frames are events, with nothing around them.
const EVENTS: &str = "threadway.events";

/// The subprotocol with `{"id": .., "chunk": <event>}` frames.
const CHUNKS: &str = "threadway.chunks";

/// Marks a request that is a turn on a socket.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    pub(super) wire: Wire,
    /// The socket's slot among the streams of its caller.
    pub(super) slot: StreamSlot,
    /// The client wants the rest of a run, and no run may be started.
    pub(super) is_replay: bool,
}

/// A socket that was opened.
pub(super) struct Opened {
    wire: Wire,
    slot: StreamSlot,
    /// The headers of each of its requests.
    headers: HeaderMap,
    peer: Option<Peer>,
    /// The agent's path, as the client wrote it.
    path: String,
    /// The largest message that is read, in bytes.
    limit: usize,
    /// What is read of a message counts as this does.
    charge: Charge,
    /// The caller's unread answers.
    answers: Answers,
    replay: Option<Replay>,
}

/// A run that a socket only reads to its end. `TanStack` AI names it in the query, and sends no
/// frame.
#[derive(Debug)]
struct Replay {
    thread_id: String,
    run_id: String,
    offset: String,
}

/// `GET .../run`: opens a socket if the request is an upgrade. Otherwise answers `TanStack` AI's
/// client, which loads threads and joins runs here.
pub(super) async fn on_run_route(
    call: Call,
    InPath(name): InPath<String>,
    request: Request,
) -> Result<Response, Reject> {
    if is_upgrade(request.headers()) && request.method() == Method::GET {
        return open(&call, &name, Wire::Chunks, request).await;
    }
    if let Some(query) = TanStackQuery::of(&request)? {
        let (parts, _) = request.into_parts();
        return Box::pin(query.respond(&call, &name, &parts.headers)).await;
    }
    let mut response = Reject::unnamed_run().into_response();
    response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
    Ok(response)
}

/// `GET .../run/ws`: opens a socket.
pub(super) async fn on_own_route(
    call: Call,
    InPath(name): InPath<String>,
    request: Request,
) -> Result<Response, Reject> {
    open(&call, &name, Wire::Events, request).await
}

/// Opens a socket. Its frames are those of `wire`, unless the client offers another subprotocol.
async fn open(call: &Call, name: &str, wire: Wire, request: Request) -> Result<Response, Reject> {
    let (head, _) = request.into_parts();
    let mut response = match handshake::accept(&head) {
        Ok(response) => response,
        Err(refusal) => return Ok(*refusal),
    };
    handshake::expect_own_credentials(&call.gateway, &head)?;
    call.agent(name)?;
    let replay = Replay::parse(head.uri.query().unwrap_or_default())?;
    let known = |protocol: &str| match protocol {
        EVENTS => Some((EVENTS, Wire::Events)),
        CHUNKS => Some((CHUNKS, Wire::Chunks)),
        _ => None,
    };
    let spoken = protocols(&head.headers).find_map(known);
    // A frame is read before LangGraph is asked anything for its turn.
    let holder = call.prove().await?;
    let slot = call.streams.slot()?;
    if let Some((protocol, _)) = spoken {
        let protocol = HeaderValue::from_static(protocol);
        response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    response.extensions_mut().insert(UpstreamNotAsked);
    let path = head.uri.path();
    let path = path.strip_suffix("/ws").unwrap_or(path);
    let Some(upgrade) = head.extensions.get::<Upgrade>() else {
        return Err(Reject::invalid(
            "this connection cannot become a WebSocket; open it over HTTP/1.1",
        ));
    };
    let opened = Opened {
        wire: spoken.map_or(wire, |(_, wire)| wire),
        slot,
        headers: handshake::headers_of_turns(&head.headers),
        peer: head.extensions.get::<Peer>().copied(),
        path: path.strip_suffix("/run").unwrap_or(path).to_owned(),
        limit: call.gateway.limits.body_bytes,
        charge: call.gateway.observer.metrics.memory().charge(Held::Body, holder),
        answers: call.gateway.unread.of(holder),
        replay,
    };
    upgrade.put(|upgraded| session::serve(opened, upgraded));
    Ok(response)
}

// === impl Replay ===

impl Replay {
    /// Reads `?offset=ID&threadId=T&runId=R`. Returns `None` without an `offset`. Without a `runId`
    /// the offset alone names the run.
    fn parse(query: &str) -> Result<Option<Self>, Reject> {
        let offset = param(query, "offset").filter(|offset| !offset.is_empty());
        let Some(offset) = offset.map(Cow::into_owned) else { return Ok(None) };
        let run_id = id_param(query, "runId")?.unwrap_or_else(|| offset.clone());
        let (thread_id, run_id) = match RunName::parse(&run_id) {
            Some(name) => (Some(name.thread_id), name.run_id),
            None => (id_param(query, "threadId")?, run_id),
        };
        let Some(thread_id) = thread_id else {
            return Err(Reject::invalid(
                "the query has `offset`, but no `threadId`; name the thread in it too, since the \
                 id of an event does not",
            ));
        };
        Ok(Some(Self { thread_id, run_id, offset }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_names_its_thread() {
        let parsed = |query| Replay::parse(query).map(|replay| replay.map(|replay| replay.offset));
        assert_eq!(parsed("").ok(), Some(None));
        assert_eq!(parsed("runId=r").ok(), Some(None));
        assert_eq!(parsed("offset=&runId=r").ok(), Some(None));
        assert!(parsed("offset=-1&runId=r").is_err());
        assert_eq!(parsed("threadId=t&offset=1.R").ok(), Some(Some("1.R".to_owned())));
        for blank in ["threadId=", "threadId=t&runId=", "threadId=%20&runId=r"] {
            assert!(Replay::parse(&format!("offset=1.R&{blank}")).is_err(), "{blank}");
        }
    }
}
