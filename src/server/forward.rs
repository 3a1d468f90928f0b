//! What of a client's request goes up: an allow-list of headers, and nothing else.

use http::header::{AUTHORIZATION, CONNECTION};
use http::{HeaderMap, HeaderName};

use crate::upstream::{Caller, UnknownThread, is_trace};

/// What always may: who asks, as both servers and their platform know it, and what traces it.
const ALWAYS: [HeaderName; 5] = [
    AUTHORIZATION,
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
    HeaderName::from_static("baggage"),
];

/// Headers that concern this hop alone: they never go up.
const HOP: [&str; 8] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "upgrade",
];

/// Headers that the gateway reads itself, and that never go up: they describe this message, or
/// belong to the gateway's own site.
const OWN: [&str; 9] = [
    "content-encoding",
    "content-length",
    "content-type",
    "cookie",
    "expect",
    "host",
    "last-event-id",
    "prefer",
    "transfer-encoding",
];

/// Headers that the gateway reads itself, and that an operator may have it send up too.
const READ: [&str; 3] = ["accept", "origin", "sec-fetch-site"];

/// Which headers of a request go up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    names: Vec<HeaderName>,
    unknown: Option<UnknownThread>,
}

/// A name is none of a header that may go up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the name of a header that tells who asks, as x-tenant")]
pub struct NotForwarded;

// === impl Forward ===

impl Forward {
    /// Lets one more header go up.
    pub fn allow(&mut self, name: &str) -> Result<(), NotForwarded> {
        let name = name.parse::<HeaderName>().map_err(|_| NotForwarded)?;
        if HOP.iter().chain(&OWN).any(|never| name == *never) {
            return Err(NotForwarded);
        }
        if !self.names.contains(&name) {
            self.names.push(name);
        }
        Ok(())
    }

    /// Tells all callers this of a thread that LangGraph does not find. Unless it is said, a thread
    /// is empty to those who bring nothing by which LangGraph could tell them apart, and refused to
    /// all others.
    pub fn tell_unknown(&mut self, unknown: UnknownThread) {
        self.unknown = Some(unknown);
    }

    /// The headers that may go up.
    pub(super) fn names(&self) -> &[HeaderName] {
        &self.names
    }

    /// Whether LangGraph may tell callers apart by this header.
    pub fn identifies_by(&self, name: &HeaderName) -> bool {
        self.names.contains(name) && !is_trace(name)
    }

    /// A header that tells who asks, and stands in the request more than once: who reads the first
    /// and who reads the last would take it for two callers.
    pub(super) fn repeated(&self, request: &HeaderMap) -> Option<&HeaderName> {
        let mut names = self.names.iter().filter(|name| !is_trace(name));
        names.find(|name| request.get_all(*name).iter().nth(1).is_some())
    }

    /// A header that `Connection` names although the gateway checks it or sends it up.
    ///
    /// RFC 9110 has each hop drop what `Connection` names. A gateway that checked a header and then
    /// dropped it would have LangGraph answer another caller than the one that was checked.
    pub(super) fn dropped_by_connection(&self, request: &HeaderMap) -> Option<&str> {
        let lines = request.get_all(CONNECTION).iter();
        let options = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
        let mut options = options.map(<[u8]>::trim_ascii);
        options.find_map(|option| {
            let names = self.names.iter().map(HeaderName::as_str).chain(OWN).chain(READ);
            names.into_iter().find(|name| option.eq_ignore_ascii_case(name.as_bytes()))
        })
    }

    /// Who asks, by the headers of a request, less those that were meant for the gateway.
    pub(super) fn caller(&self, request: &HeaderMap, consumed: &[HeaderName]) -> Caller {
        let mut headers = HeaderMap::new();
        for name in self.names.iter().filter(|name| !consumed.contains(name)) {
            for value in request.get_all(name) {
                let mut value = value.clone();
                value.set_sensitive(true);
                headers.append(name.clone(), value);
            }
        }
        Caller::new(headers).with_unknown_thread(self.unknown)
    }
}

impl Default for Forward {
    fn default() -> Self {
        Self { names: ALWAYS.to_vec(), unknown: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tells_how_a_message_travels_never_goes_up() {
        let mut forward = Forward::default();
        for name in HOP.into_iter().chain(OWN).chain(["Transfer-Encoding", "", "a b"]) {
            assert_eq!(forward.allow(name), Err(NotForwarded), "{name}");
        }
        assert_eq!(forward.allow("X-Tenant"), Ok(()));
        let names = ["x-tenant", "cookie", "x-other", "x-api-key"];
        let sent = names.map(|name| (HeaderName::from_static(name), "v".parse().unwrap()));
        let caller = forward.caller(&HeaderMap::from_iter(sent), &[]);
        let mut up: Vec<_> = caller.headers().keys().map(HeaderName::as_str).collect();
        up.sort_unstable();
        assert_eq!(up, ["x-api-key", "x-tenant"]);
    }
}
