//! WebSocket: many turns on one connection. `GET .../run` and `GET .../run/ws` open one.
//!
//! A socket has no rules of its own: each turn is sent through the gateway's routes as a
//! `POST .../run` with the headers of the request that opened the socket, and each abort as a
//! `POST .../stop/{thread}`. So who may call, how often, and what comes of it is the same for
//! both, also after a reload, and when a token has expired.
//!
//! ```text
//!  client                      socket                        routes
//!    | RunAgentInput  --------> |  POST .../run ------------> |
//!    | <-------- event by event | <------------------ a stream|
//!    | {type: "abort"} -------> |  POST .../stop/{thread} --> |
//! ```

mod frame;
mod session;

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::header::{
    ALLOW, AUTHORIZATION, CONNECTION, COOKIE, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

pub(super) use session::serve;
pub use session::{IDLE, PING, PONG_TIMEOUT};

use super::Gateway;
use super::auth::{self, Streams};
use super::connections::Peer;
use super::cors;
use super::rates::StreamSlot;
use super::reject::{self, Reject};
use super::request::InPath;
use super::tanstack::{self, TanStack};
use super::wire::Wire;
use crate::sync::Mutex;
use crate::upstream::{Caller, is_trace};

/// The subprotocol with a frame for each event, and nothing around it.
const EVENTS: &str = "threadway.events";

/// The subprotocol with `{"id": .., "chunk": <event>}` frames.
const CHUNKS: &str = "threadway.chunks";

/// What a token is sent behind as a subprotocol: a page cannot set a header on a WebSocket.
const BEARER: &str = "threadway.bearer.";

/// The version of RFC 6455.
const VERSION: &str = "13";

/// How long a `Sec-WebSocket-Key` is: 16 bytes in Base64.
const KEY_CHARS: usize = 24;

/// On a request that is a turn of a socket.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    pub(super) wire: Wire,
    /// The socket's place among the streams of its caller.
    pub(super) slot: StreamSlot,
    /// Only the rest of a run is wanted.
    pub(super) is_replay: bool,
}

/// Where a request leaves the socket that it opens, for its connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Opening(Arc<Mutex<Option<Opened>>>);

/// A socket that was opened.
#[derive(Debug)]
pub(super) struct Opened {
    wire: Wire,
    slot: StreamSlot,
    /// What each of its requests brings.
    headers: HeaderMap,
    peer: Option<Peer>,
    /// The agent's path, as the client wrote it.
    path: String,
    /// The largest message that is read.
    limit: usize,
    replay: Option<Replay>,
}

/// A run that a socket only reads to its end: `TanStack` AI names it in the query, and sends nothing.
#[derive(Debug)]
struct Replay {
    thread_id: String,
    run_id: String,
    offset: String,
}

/// Lets a page's token count as if it were in the header that a page cannot set.
pub(super) fn take_token(headers: &mut HeaderMap) {
    if !is_upgrade(headers) {
        return;
    }
    let tokens: Vec<_> = protocols(headers)
        .filter_map(|protocol| HeaderValue::try_from(format!("Bearer {}", token(protocol)?)).ok())
        .collect();
    for mut token in tokens {
        token.set_sensitive(true);
        // Beside another one it is one too many, and both are refused.
        headers.append(AUTHORIZATION, token);
    }
}

/// `GET .../run`: opens a socket, if that is asked for; or answers `TanStack` AI's client, which loads
/// a thread and joins a run here.
pub(super) async fn on_run_route(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<Caller>,
    Extension(streams): Extension<Streams>,
    name: InPath<String>,
    request: Request,
) -> Result<Response, Reject> {
    if is_upgrade(request.headers()) && request.method() == Method::GET {
        return open(&gateway, &caller, &streams, &name.0, Wire::Chunks, request);
    }
    if let Some(read) = TanStack::asked(&request) {
        let (parts, _) = request.into_parts();
        return Box::pin(read.answer(&gateway, &caller, &streams, &name.0, &parts.headers)).await;
    }
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let mut response = reject::wrong_method(method, uri).await.into_response();
    response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
    Ok(response)
}

/// `GET .../run/ws`: opens a socket.
pub(super) async fn on_own_route(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<Caller>,
    Extension(streams): Extension<Streams>,
    name: InPath<String>,
    request: Request,
) -> Result<Response, Reject> {
    open(&gateway, &caller, &streams, &name.0, Wire::Events, request)
}

/// Opens a socket whose frames are `wire`'s, unless a subprotocol says otherwise.
fn open(
    gateway: &Gateway,
    caller: &Caller,
    streams: &Streams,
    name: &str,
    wire: Wire,
    request: Request,
) -> Result<Response, Reject> {
    let (head, _) = request.into_parts();
    let key = match handshake(&head) {
        Ok(key) => key,
        Err(reject) => {
            let mut response = reject.into_response();
            if response.status() == StatusCode::UPGRADE_REQUIRED {
                let headers = response.headers_mut();
                headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
                headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
                headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static(VERSION));
            }
            return Ok(response);
        }
    };
    expect_own_credentials(gateway, &head)?;
    gateway.agent(name, caller)?;
    let replay = Replay::asked(head.uri.query().unwrap_or_default())?;
    let known = |protocol: &str| match protocol {
        EVENTS => Some((EVENTS, Wire::Events)),
        CHUNKS => Some((CHUNKS, Wire::Chunks)),
        _ => None,
    };
    let spoken = protocols(&head.headers).find_map(known);
    let slot = streams.slot()?;
    let mut response = Response::new(axum::body::Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, key);
    if let Some((protocol, _)) = spoken {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
    }
    let path = head.uri.path();
    let path = path.strip_suffix("/ws").unwrap_or(path);
    let Some(opening) = head.extensions.get::<Opening>() else {
        return Err(Reject::invalid("this connection cannot become a WebSocket"));
    };
    opening.0.lock().replace(Opened {
        wire: spoken.map_or(wire, |(_, wire)| wire),
        slot,
        headers: of_turns(&head.headers),
        peer: head.extensions.get::<Peer>().copied(),
        path: path.strip_suffix("/run").unwrap_or(path).to_owned(),
        limit: gateway.limits.body_bytes,
        replay,
    });
    Ok(response)
}

/// The answer to a handshake's key.
fn handshake(head: &Parts) -> Result<HeaderValue, Reject> {
    let required =
        |message| Err(Reject::new(StatusCode::UPGRADE_REQUIRED, "no_websocket", message));
    let headers = &head.headers;
    if head.method != Method::GET || head.version < Version::HTTP_11 || !is_upgrade(headers) {
        return required("this is the address of a WebSocket; open one, or POST to `run`");
    }
    if headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|version| version != VERSION) {
        return required("the WebSocket's version is not 13; send `sec-websocket-version: 13`");
    }
    let mut keys = headers.get_all(SEC_WEBSOCKET_KEY).iter();
    let key = keys.next().map(HeaderValue::as_bytes).filter(|key| key.len() == KEY_CHARS);
    match (key, keys.next()) {
        (Some(key), None) => HeaderValue::try_from(derive_accept_key(key))
            .map_err(|_| Reject::invalid("`sec-websocket-key` has no answer")),
        _ => Err(Reject::invalid("`sec-websocket-key` is not 16 bytes in Base64")),
    }
}

/// Refuses a page of another origin that brings what it has not sent itself: a browser adds cookies
/// to any WebSocket, and a proxy may turn them into a caller. CORS would have kept them out.
fn expect_own_credentials(gateway: &Gateway, head: &Parts) -> Result<(), Reject> {
    let cors = &gateway.admission.cors;
    if cors.takes_credentials() || !cors::is_elsewhere(&head.headers, auth::host(head)?) {
        return Ok(());
    }
    let is_own_token = protocols(&head.headers).any(|protocol| token(protocol).is_some());
    let identifying = gateway
        .forward
        .names()
        .iter()
        .filter(|name| !(is_trace(name) || is_own_token && **name == AUTHORIZATION));
    if [&COOKIE].into_iter().chain(identifying).any(|name| head.headers.contains_key(name)) {
        let message = "a page of another origin opens this WebSocket with a cookie or a header \
                       that its browser or a proxy has added; have the page send a token as the \
                       subprotocol `threadway.bearer.TOKEN`, or have the gateway's operator set \
                       `cors.credentials`";
        return Err(Reject::new(StatusCode::FORBIDDEN, "cross_origin", message));
    }
    Ok(())
}

pub(super) fn is_upgrade(headers: &HeaderMap) -> bool {
    let has = |name: &HeaderName, wanted: &str| {
        let items = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        let mut items = items.flat_map(|value| value.split(','));
        items.any(|item| item.trim().eq_ignore_ascii_case(wanted))
    };
    has(&UPGRADE, "websocket") && has(&CONNECTION, "upgrade")
}

/// The subprotocols that a client offers.
fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    lines.filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(',')).map(str::trim)
}

fn token(protocol: &str) -> Option<&str> {
    protocol.strip_prefix(BEARER)
}

/// What the requests of a socket bring of the headers of the one that opened it: all but what
/// concerns that one alone.
fn of_turns(headers: &HeaderMap) -> HeaderMap {
    const NOT: [&str; 7] = [
        "accept",
        "connection",
        "content-length",
        "content-type",
        "last-event-id",
        "transfer-encoding",
        "upgrade",
    ];
    let is_own = |name: &HeaderName| {
        NOT.contains(&name.as_str()) || name.as_str().starts_with("sec-websocket-")
    };
    let kept = headers.iter().filter(|(name, _)| !is_own(name));
    let mut of_turns = HeaderMap::new();
    for (name, value) in kept {
        of_turns.append(name.clone(), value.clone());
    }
    of_turns
}

// === impl Opening ===

impl Opening {
    /// The socket that was opened, once.
    pub(super) fn take(&self) -> Option<Opened> {
        self.0.lock().take()
    }
}

// === impl Replay ===

impl Replay {
    /// What `?offset=ID&threadId=T&runId=R` asks for.
    fn asked(query: &str) -> Result<Option<Self>, Reject> {
        let value = |name| {
            let mut pairs = form_urlencoded::parse(query.as_bytes());
            pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
        };
        let Some(offset) = value("offset").filter(|offset| !offset.is_empty()) else {
            return Ok(None);
        };
        let run_id = value("runId").unwrap_or_default();
        let (thread_id, run_id) = match tanstack::RunName::of(&run_id) {
            Some(name) => (Some(name.thread_id), name.run_id),
            None => (value("threadId"), run_id),
        };
        let Some(thread_id) = thread_id else {
            return Err(Reject::invalid(
                "`offset` stands without `threadId`; name the thread in the URL's query, since \
                 the id of an event does not",
            ));
        };
        Ok(Some(Self { thread_id, run_id, offset }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            map.append(*name, HeaderValue::from_static(value));
        }
        map
    }

    const UPGRADES: [(&str, &str); 2] =
        [("connection", "keep-alive, Upgrade"), ("upgrade", "WebSocket")];

    #[test]
    fn an_upgrade_is_asked_for_in_both_headers() {
        assert!(is_upgrade(&headers(&UPGRADES)));
        assert!(!is_upgrade(&headers(&UPGRADES[..1])));
        assert!(!is_upgrade(&headers(&UPGRADES[1..])));
        assert!(!is_upgrade(&headers(&[("connection", "upgrade"), ("upgrade", "h2c")])));
    }

    #[test]
    fn a_token_among_the_subprotocols_counts_as_a_header_of_a_socket_alone() {
        let offered = ("sec-websocket-protocol", "threadway.chunks, threadway.bearer.a-key");
        let mut upgrade = headers(&[UPGRADES[0], UPGRADES[1], offered]);
        take_token(&mut upgrade);
        assert_eq!(upgrade.get(AUTHORIZATION).unwrap(), "Bearer a-key");
        let mut other = headers(&[offered]);
        take_token(&mut other);
        assert_eq!(other.get(AUTHORIZATION), None);
        let mut twice = headers(&[UPGRADES[0], UPGRADES[1], offered, ("authorization", "Basic x")]);
        take_token(&mut twice);
        assert_eq!(twice.get_all(AUTHORIZATION).iter().count(), 2);
    }

    #[test]
    fn what_concerns_the_opening_alone_is_left_out_of_the_turns() {
        let lines = [
            UPGRADES[0],
            UPGRADES[1],
            ("sec-websocket-protocol", "threadway.bearer.a-key"),
            ("last-event-id", "x"),
            ("accept", "text/html"),
            ("x-tenant", "a"),
            ("host", "h"),
            ("origin", "http://h"),
        ];
        let kept = of_turns(&headers(&lines));
        let names: Vec<_> = kept.keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["x-tenant", "host", "origin"]);
    }

    #[test]
    fn a_replay_names_its_thread() {
        let asked = |query| Replay::asked(query).map(|replay| replay.map(|replay| replay.offset));
        assert_eq!(asked("").ok(), Some(None));
        assert_eq!(asked("runId=r").ok(), Some(None));
        assert_eq!(asked("offset=&runId=r").ok(), Some(None));
        assert!(asked("offset=-1&runId=r").is_err());
        assert_eq!(asked("threadId=t&offset=1.R").ok(), Some(Some("1.R".to_owned())));
    }
}
