//! The headers of a client's request that are sent on to LangGraph: an allow-list.

use http::header::{AUTHORIZATION, CONNECTION};
use http::{HeaderMap, HeaderName};

use crate::upstream::{Caller, OnThreadNotFound, is_trace};

/// Headers that are always forwarded: the credentials that LangGraph's servers and its platform
/// know, and those of tracing.
const ALWAYS: [HeaderName; 5] = [
    AUTHORIZATION,
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
    HeaderName::from_static("baggage"),
];

/// Headers that concern one hop, and are never forwarded.
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

/// Headers that the gateway reads, and that are never forwarded: they describe this message, or
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

/// Headers that the gateway reads, and that an operator may have forwarded too.
const READ: [&str; 3] = ["accept", "origin", "sec-fetch-site"];

/// Which headers of a request are forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardedHeaders {
    names: Vec<HeaderName>,
    unknown: Option<OnThreadNotFound>,
}

/// A name is not that of a header that may be forwarded. The text of this error says what is
/// expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the name of a header that identifies the caller, such as x-tenant")]
pub struct NotForwarded;

// === impl ForwardedHeaders ===

impl ForwardedHeaders {
    /// Forwards one more header.
    ///
    /// # Errors
    /// `name` is no header name, or is one of a header that must not be forwarded.
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

    /// Sets what all callers get for a thread that LangGraph does not find. By default it is empty
    /// for callers without credentials for LangGraph, and refused to all others.
    pub fn set_unknown(&mut self, unknown: OnThreadNotFound) {
        self.unknown = Some(unknown);
    }

    /// The headers that are forwarded.
    pub(in crate::server) fn names(&self) -> &[HeaderName] {
        &self.names
    }

    /// Whether LangGraph may identify callers by this header.
    pub(crate) fn identifies_by(&self, name: &HeaderName) -> bool {
        self.names.contains(name) && !is_trace(name)
    }

    /// Finds a header that identifies the caller, and is in the request more than once. Software
    /// that reads the first value and software that reads the last would see two callers.
    pub(in crate::server) fn repeated(&self, request: &HeaderMap) -> Option<&HeaderName> {
        let mut names = self.names.iter().filter(|name| !is_trace(name));
        names.find(|name| request.get_all(*name).iter().nth(1).is_some())
    }

    /// Finds a header that `Connection` names although the gateway reads or forwards it.
    ///
    /// RFC 9110 has each hop drop the headers that `Connection` names. If the gateway checked such
    /// a header and then dropped it, LangGraph would answer another caller than the one that was
    /// checked.
    pub(in crate::server) fn dropped_by_connection(&self, request: &HeaderMap) -> Option<&str> {
        let lines = request.get_all(CONNECTION).iter();
        let options = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
        let mut options = options.map(<[u8]>::trim_ascii);
        options.find_map(|option| {
            let names = self.names.iter().map(HeaderName::as_str).chain(OWN).chain(READ);
            names.into_iter().find(|name| option.eq_ignore_ascii_case(name.as_bytes()))
        })
    }

    /// The caller, with the headers that are forwarded for it. `consumed` are headers that were
    /// meant for the gateway.
    pub(in crate::server) fn caller(&self, request: &HeaderMap, consumed: &[HeaderName]) -> Caller {
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

impl Default for ForwardedHeaders {
    fn default() -> Self {
        Self { names: ALWAYS.to_vec(), unknown: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_of_one_hop_is_never_forwarded() {
        let mut forward = ForwardedHeaders::default();
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
