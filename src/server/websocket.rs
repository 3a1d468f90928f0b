//! WebSocket: many turns on one connection. `GET .../run` and `GET .../run/ws` open one.
//!
//! - [`handshake`]: the request that opens a socket.
//! - [`session`]: one socket, from its opening to its end.
//! - [`socket`]: an open socket: frames, pings, the end. ACP's sockets use it too.
//! - [`turn`]: a turn on a socket. [`message`]: how each message is recorded and admitted.
//! - [`frame`]: what a client sends, and the frames that are no events of a run.
//!
//! A socket has no rules of its own. Each turn is recorded and admitted as a `POST .../run` is, with
//! the headers of the request that opened the socket, and each abort as a `POST .../stop/{thread}`.
//! So authentication, limits and refusals are the same as for HTTP, also after a reload, and after a
//! token has expired.
//!
//! ```text
//!  client                      socket                       service
//!    | RunAgentInput  --------> |  on_socket, run::start --> |
//!    | <-------- event by event | <----------- encoded events|
//!    | {type: "abort"} -------> |  on_socket, stop_thread --> |
//! ```

mod frame;
pub(in crate::server) mod handshake;
pub(in crate::server) mod message;
mod session;
pub(in crate::server) mod socket;
mod turn;

use std::borrow::Cow;

use axum::extract::Request;
use axum::response::Response;
use http::HeaderValue;
use http::header::SEC_WEBSOCKET_PROTOCOL;

pub use session::IDLE;
pub use socket::{PING, PONG_TIMEOUT};

use self::message::OpeningRequest;
use super::gateway::{Gateway, ReloadReceiver, RequestContext};
use super::reject::Reject;
use super::request::query::param;
use super::request::run_name::{RunName, id_param};
use super::response::UpstreamNotAsked;
use super::streams::unread::UnreadAnswers;
use super::streams::wire::Wire;
use super::upgrade::{Upgrade, protocols};
use crate::metrics::{Charge, Held};

/// The subprotocol whose frames are events, with nothing around them.
const EVENTS: &str = "threadway.events";

/// The subprotocol with `{"id": .., "chunk": <event>}` frames.
const CHUNKS: &str = "threadway.chunks";

/// A socket that was opened.
pub(super) struct OpenedWebSocket {
    gateway: ReloadReceiver<Gateway>,
    /// The client's name for the agent.
    agent: String,
    wire: Wire,
    opening: OpeningRequest,
    /// The largest message that is read, in bytes.
    limit: usize,
    /// What is read of a message counts as this does.
    charge: Charge,
    /// The caller's unread answers.
    answers: UnreadAnswers,
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

/// Opens a socket. Its frames are those of `wire`, unless the client offers another subprotocol.
pub(super) async fn open(
    context: &RequestContext,
    gateway: ReloadReceiver<Gateway>,
    agent: &str,
    wire: Wire,
    request: Request,
) -> Result<Response, Reject> {
    let (head, _) = request.into_parts();
    let mut response = match handshake::accept(&head) {
        Ok(response) => response,
        Err(refusal) => return Ok(*refusal),
    };
    handshake::expect_own_credentials(&context.gateway, &head)?;
    context.agent(agent)?;
    let replay = Replay::parse(head.uri.query().unwrap_or_default())?;
    let known = |protocol: &str| match protocol {
        EVENTS => Some((EVENTS, Wire::Events)),
        CHUNKS => Some((CHUNKS, Wire::Chunks)),
        _ => None,
    };
    let spoken = protocols(&head.headers).find_map(known);
    // A frame is read before LangGraph is asked anything for its turn.
    let holder = context.prove().await?;
    let slot = context.streams.slot()?;
    if let Some((protocol, _)) = spoken {
        let protocol = HeaderValue::from_static(protocol);
        response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    response.extensions_mut().insert(UpstreamNotAsked);
    let Some(upgrade) = head.extensions.get::<Upgrade>() else {
        return Err(Reject::invalid(
            "this connection cannot become a WebSocket; open it over HTTP/1.1",
        ));
    };
    let opened = OpenedWebSocket {
        gateway,
        agent: agent.to_owned(),
        wire: spoken.map_or(wire, |(_, wire)| wire),
        opening: handshake::opening(&head, slot),
        limit: context.gateway.limits.body_bytes,
        charge: context.gateway.observer.metrics.memory().charge(Held::Body, holder),
        answers: context.gateway.unread.of(holder),
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
