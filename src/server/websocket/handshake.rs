//! The request that opens a socket.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{
    AUTHORIZATION, CONNECTION, COOKIE, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::message::OpeningRequest;
use crate::server::browser::{cors, host};
use crate::server::gateway::Gateway;
use crate::server::limits::rates::StreamSlot;
use crate::server::peer::Peer;
use crate::server::reject::Reject;
use crate::server::request::head::RequestHead;
use crate::server::upgrade::{is_upgrade, protocols, token};
use crate::upstream::is_trace;

/// The version of RFC 6455.
const VERSION: &str = "13";

/// The length of a `Sec-WebSocket-Key`: 16 bytes in Base64.
const KEY_CHARS: usize = 24;

/// The response that opens a socket. The error is the response to a request that opens none.
pub(in crate::server) fn accept(head: &Parts) -> Result<Response, Box<Response>> {
    let upgrade = [
        (UPGRADE, HeaderValue::from_static("websocket")),
        (CONNECTION, HeaderValue::from_static("upgrade")),
    ];
    match accept_key(head) {
        Ok(key) => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            response.headers_mut().extend(upgrade);
            response.headers_mut().insert(SEC_WEBSOCKET_ACCEPT, key);
            Ok(response)
        }
        Err(reject) => {
            let mut response = reject.into_response();
            if response.status() == StatusCode::UPGRADE_REQUIRED {
                response.headers_mut().extend(upgrade);
                let version = HeaderValue::from_static(VERSION);
                response.headers_mut().insert(SEC_WEBSOCKET_VERSION, version);
            }
            Err(Box::new(response))
        }
    }
}

/// The `Sec-WebSocket-Accept` that answers a handshake.
fn accept_key(head: &Parts) -> Result<HeaderValue, Reject> {
    let required =
        |message| Err(Reject::new(StatusCode::UPGRADE_REQUIRED, "no_websocket", message));
    let headers = &head.headers;
    if head.method != Method::GET || head.version < Version::HTTP_11 || !is_upgrade(headers) {
        return required("this route opens WebSockets; open one, or POST to `run`");
    }
    if headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|version| version != VERSION) {
        return required("the WebSocket's version is not 13; send `sec-websocket-version: 13`");
    }
    let mut keys = headers.get_all(SEC_WEBSOCKET_KEY).iter();
    let key = keys.next().map(HeaderValue::as_bytes).filter(|key| key.len() == KEY_CHARS);
    match (key, keys.next()) {
        (Some(key), None) => HeaderValue::try_from(derive_accept_key(key)).map_err(|_| {
            Reject::invalid("`sec-websocket-key` is malformed; send 16 bytes in Base64")
        }),
        _ => Err(Reject::invalid("`sec-websocket-key` is not 16 bytes in Base64")),
    }
}

/// Refuses a page of another origin whose request carries credentials that the page has not sent
/// itself. A browser adds cookies to any WebSocket, and a proxy may turn them into a caller. CORS,
/// which protects other requests from this, does not apply here.
pub(in crate::server) fn expect_own_credentials(
    gateway: &Gateway,
    head: &Parts,
) -> Result<(), Reject> {
    let cors = &gateway.admission.cors;
    if cors.takes_credentials()
        || !cors::is_cross_origin(&head.headers, host::named(&RequestHead::of(head))?)
    {
        return Ok(());
    }
    let is_own_token = protocols(&head.headers).any(|protocol| token(protocol).is_some());
    let identifying = gateway
        .admission
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

/// What a socket keeps of the request that opened it.
pub(in crate::server) fn opening(head: &Parts, slot: StreamSlot) -> OpeningRequest {
    let peer = head.extensions.get::<Peer>().map(Peer::ip);
    OpeningRequest { headers: headers_of_turns(&head.headers), peer, slot }
}

/// The headers of a socket's turns: those of the request that opened the socket, without those that
/// concern that request alone.
fn headers_of_turns(headers: &HeaderMap) -> HeaderMap {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::upgrade::tests::{UPGRADES, headers};

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
        let kept = headers_of_turns(&headers(&lines));
        let names: Vec<_> = kept.keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["x-tenant", "host", "origin"]);
    }
}
