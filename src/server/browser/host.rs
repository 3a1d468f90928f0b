//! The names that the gateway answers to while it has no `auth`.
//!
//! A web site can make its own name resolve to this machine while its page is open (DNS rebinding).
//! The browser then takes the gateway for that site, and CORS does not apply. Only the name in the
//! request shows it. So a gateway without `auth` answers only to an IP address, or to a name that
//! nobody on the internet can register. The peer's address proves nothing: in a container, or
//! behind a forwarded port, no peer is loopback.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use http::Version;
use http::header::HOST;

use crate::server::reject::Reject;
use crate::server::request::head::RequestHead;

/// Endings that no registered name has: RFC 6761, and ICANN's ending for private networks.
const PRIVATE_ENDINGS: [&str; 2] = [".localhost", ".internal"];

/// A name of the gateway, such as `chat.example.com`, without a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostName(String);

/// A text is not a [`HostName`]. The text of this error says what is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a name such as chat.example.com, without scheme, port and path")]
pub struct NotAHostName;

/// Refuses requests from this machine to a name that a web site could own. For a listener that asks
/// nobody for credentials. Other machines may know it by any name.
pub fn under_safe_names(routes: Router, own: Vec<HostName>) -> Router {
    let own = std::sync::Arc::<[HostName]>::from(own);
    routes.layer(middleware::from_fn(move |request: Request, next: Next| {
        let own = std::sync::Arc::clone(&own);
        async move { refuse_unsafe(&own, request, next).await }
    }))
}

/// The host that a request names: `NAME` or `NAME:PORT`. An HTTP/1.0 request may name none.
pub(in crate::server) fn named<'a>(head: &RequestHead<'a>) -> Result<Option<&'a str>, Reject> {
    let mut named = head.headers.get_all(HOST).iter();
    let (first, is_only) = (named.next(), named.next().is_none());
    let header = first.map(|host| host.to_str().map_err(|_| ())).transpose();
    match (header, head.authority) {
        (Ok(None), None) if head.version == Version::HTTP_10 => Ok(None),
        // RFC 9112: a target that names a host overrides the header.
        (Ok(Some(_)), Some(authority)) if is_only => Ok(Some(authority.as_str())),
        (Ok(Some(host)), None) if is_only => Ok(Some(host)),
        _ => Err(Reject::invalid("a request must have one `host` header")),
    }
}

async fn refuse_unsafe(own: &[HostName], request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let head = RequestHead::of(&parts);
    if head.peer.is_some_and(|peer| peer.to_canonical().is_loopback()) {
        match named(&head) {
            Ok(host) if host.is_none_or(|host| is_safe(host, own)) => {}
            Ok(_) => return Reject::wrong_host().into_response(),
            Err(reject) => return reject.into_response(),
        }
    }
    next.run(Request::from_parts(parts, body)).await
}

/// Whether no foreign web page can send a request to this host: `NAME` or `NAME:PORT`.
pub(in crate::server) fn is_safe(host: &str, own: &[HostName]) -> bool {
    let host = host.to_ascii_lowercase();
    let (name, _) = split_port(&host);
    let is_address = match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => name.parse::<Ipv4Addr>().is_ok(),
    };
    // A name without a dot belongs to this machine or to its network.
    let is_private = is_name(name)
        && (!name.contains('.') || PRIVATE_ENDINGS.iter().any(|ending| name.ends_with(ending)));
    is_address || is_private || own.iter().any(|own| own.0 == name)
}

/// Splits `HOST:PORT`. The colons within the brackets of an IPv6 address do not count.
pub(super) fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    }
}

fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !name.is_empty() && !name.starts_with('.') && name.bytes().all(is_plain)
}

// === impl HostName ===

impl FromStr for HostName {
    type Err = NotAHostName;

    fn from_str(text: &str) -> Result<Self, NotAHostName> {
        let name = text.to_ascii_lowercase();
        if is_name(&name) { Ok(Self(name)) } else { Err(NotAHostName) }
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_anybody_could_have_is_not_safe() {
        let own = ["Chat.example.com".parse().unwrap()];
        for (host, expected) in [
            ("127.0.0.1:8484", true),
            ("127.0.0.1", true),
            ("192.0.2.1:1", true),
            ("[::1]:8484", true),
            ("[::1]", true),
            ("localhost", true),
            ("LOCALHOST:8484", true),
            ("app.localhost:8484", true),
            ("threadway:8484", true),
            ("host.docker.internal:8484", true),
            ("chat.example.com", true),
            ("CHAT.example.com:443", true),
            ("evil.example.com:8484", false),
            ("x.chat.example.com", false),
            ("localhost.example.com", false),
            ("127.0.0.1.example.com", false),
            ("127.0.0.1.", false),
            ("localhost.", false),
            ("evilinternal.com", false),
            (".internal", false),
            ("", false),
            (":8484", false),
            ("::1", false),
            ("[evil.example.com]", false),
            ("a@b", false),
        ] {
            assert_eq!(is_safe(host, &own), expected, "{host}");
        }
    }

    #[test]
    fn a_host_name_is_a_name_alone() {
        for text in ["a", "chat.example.com", "xn--bcher-kva.example"] {
            assert_eq!(text.parse::<HostName>().unwrap().to_string(), text);
        }
        for text in ["", "http://a", "a:1", "a/b", "*", "a b", ".a"] {
            assert!(text.parse::<HostName>().is_err(), "{text}");
        }
    }
}
