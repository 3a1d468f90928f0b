//! The caller of a client's request: the headers that are forwarded with each upstream request made
//! for it.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use http::HeaderMap;
use http::header::HeaderName;

use super::until::Until;
use crate::metrics::{ChargedTo, Memory};

/// Trace headers. They do not identify the caller.
const TRACE: [&str; 3] = ["traceparent", "tracestate", "baggage"];

/// The headers of W3C Trace Context, which even an upstream without identities gets. `baggage` may
/// hold personal data.
const TRACE_CONTEXT: [&str; 2] = ["traceparent", "tracestate"];

/// The caller of a request. Two callers are equal if LangGraph cannot distinguish them. Clones
/// share the headers.
#[derive(Clone, Default)]
pub struct Caller {
    headers: Arc<HeaderMap>,
    /// Overrides the default of [`Caller::unknown_thread`].
    unknown_thread: Option<OnThreadNotFound>,
    /// The name in log lines. LangGraph does not get it.
    name: Option<Arc<str>>,
    until: Until,
    /// Whose memory is used for what LangGraph sends this caller.
    holder: Option<ChargedTo>,
}

/// The agent and thread that a client is used for, as log lines name them. The upstream does not
/// get them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Purpose {
    /// The agent's name in the client's request.
    pub(crate) agent: Option<Arc<str>>,
    /// The client's id of the thread.
    pub(crate) thread: Option<Arc<str>>,
}

/// How to treat a thread that LangGraph does not find. LangGraph gives the same answer for a thread
/// that does not exist and for one that belongs to somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnThreadNotFound {
    /// The thread is new and empty. Every new chat asks for its thread.
    Empty,
    /// The thread may be somebody else's: the request is refused.
    Refused,
}

/// Whether an upstream gets the credentials of callers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Identity {
    /// The upstream gets all headers that the gateway forwards.
    #[default]
    Forwarded,
    /// The upstream gets the trace context alone. All callers look like the gateway.
    Withheld,
}

/// Whether a header belongs to a trace and does not identify the caller.
pub(crate) fn is_trace(name: &HeaderName) -> bool {
    TRACE.contains(&name.as_str())
}

// === impl Identity ===

impl Identity {
    /// Whether this caller's header is dropped.
    pub(super) fn withholds(self, name: &HeaderName) -> bool {
        match self {
            Self::Forwarded => false,
            Self::Withheld => !TRACE_CONTEXT.contains(&name.as_str()),
        }
    }
}

// === impl Caller ===

impl Caller {
    /// A caller whose headers are all forwarded.
    pub fn new(headers: HeaderMap) -> Self {
        Self { headers: Arc::new(headers), ..Self::default() }
    }

    /// Sets the name in log lines. The name does not take part in comparisons.
    #[must_use]
    pub fn named(self, name: Option<Arc<str>>) -> Self {
        Self { name, ..self }
    }

    /// Sets whose memory is used for what LangGraph sends this caller. It does not take part in
    /// comparisons.
    #[must_use]
    pub(crate) fn held_by(self, holder: ChargedTo) -> Self {
        Self { holder: Some(holder), ..self }
    }

    /// Whose memory is used for what LangGraph sends this caller.
    pub(crate) fn holder(&self, memory: &Memory) -> ChargedTo {
        self.holder.unwrap_or_else(|| memory.caller(self))
    }

    /// The name in log lines.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Sets until when the gateway admits the caller. It does not take part in comparisons.
    #[must_use]
    pub(crate) fn admitted(self, until: Until) -> Self {
        Self { until, ..self }
    }

    /// Until when the gateway admits the caller.
    pub(crate) fn until(&self) -> &Until {
        &self.until
    }

    /// Sets how unknown threads are treated. `None` is the default of
    /// [`unknown_thread`](Self::unknown_thread).
    #[must_use]
    pub(crate) fn with_unknown_thread(self, unknown_thread: Option<OnThreadNotFound>) -> Self {
        Self { unknown_thread, ..self }
    }

    /// Removes headers that will not reach the server, so that they do not distinguish callers.
    #[must_use]
    pub(super) fn without(&self, is_dropped: impl Fn(&HeaderName) -> bool) -> Self {
        if !self.headers.keys().any(&is_dropped) {
            return self.clone();
        }
        let kept = self.headers.iter().filter(|(name, _)| !is_dropped(name));
        let kept = kept.map(|(name, value)| (name.clone(), value.clone())).collect();
        Self { headers: Arc::new(kept), ..self.clone() }
    }

    /// The headers to forward.
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Whether LangGraph can distinguish this caller from others.
    pub(crate) fn is_personal(&self) -> bool {
        self.identifying_headers().next().is_some()
    }

    /// How a thread that LangGraph does not find is treated. By default a caller with credentials
    /// is refused, and others get an empty thread.
    pub(crate) fn unknown_thread(&self) -> OnThreadNotFound {
        let default =
            if self.is_personal() { OnThreadNotFound::Refused } else { OnThreadNotFound::Empty };
        self.unknown_thread.unwrap_or(default)
    }

    /// The headers by which LangGraph can identify the caller. The values are secret.
    pub(crate) fn identifying_headers(&self) -> impl Iterator<Item = (&HeaderName, &[u8])> {
        let headers = self.headers.iter().filter(|(name, _)| !is_trace(name));
        headers.map(|(name, value)| (name, value.as_bytes()))
    }
}

impl PartialEq for Caller {
    fn eq(&self, other: &Self) -> bool {
        self.unknown_thread == other.unknown_thread
            && self.identifying_headers().eq(other.identifying_headers())
    }
}

impl Eq for Caller {}

impl Hash for Caller {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.unknown_thread.hash(state);
        for (name, value) in self.identifying_headers() {
            name.hash(state);
            value.hash(state);
        }
    }
}

impl fmt::Debug for Caller {
    /// Prints the names alone, since a value may be a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.headers.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(headers: &[(&'static str, &'static str)]) -> Caller {
        let headers = headers.iter().map(|&(name, value)| {
            (HeaderName::from_static(name), http::HeaderValue::from_static(value))
        });
        Caller::new(headers.collect())
    }

    #[test]
    fn a_trace_does_not_identify_a_caller() {
        let traced = caller(&[("traceparent", "00-1"), ("baggage", "a=b")]);
        assert_eq!(traced, Caller::default());
        assert!(!traced.is_personal());
        let alice = caller(&[("x-api-key", "alice"), ("traceparent", "00-2")]);
        assert!(alice.is_personal());
        assert_eq!(alice, caller(&[("x-api-key", "alice")]));
        assert_ne!(alice, caller(&[("x-api-key", "bob")]));
        assert_ne!(alice, caller(&[("authorization", "alice")]));
    }

    #[test]
    fn dropped_headers_do_not_distinguish_callers() {
        let bob = caller(&[("x-api-key", "bob"), ("traceparent", "00-1"), ("x-tenant", "a")]);
        let shown = bob.without(|name| *name == "x-api-key");
        assert_eq!(shown, caller(&[("x-tenant", "a")]));
        assert_eq!(shown.headers()["traceparent"], "00-1");
        assert_eq!(
            (bob.unknown_thread(), shown.unknown_thread()),
            (OnThreadNotFound::Refused, OnThreadNotFound::Refused)
        );
        let shown = shown.without(|name| *name == "x-tenant");
        assert_eq!(shown.unknown_thread(), OnThreadNotFound::Empty);
        let shown = shown.with_unknown_thread(Some(OnThreadNotFound::Refused));
        assert_eq!(shown.unknown_thread(), OnThreadNotFound::Refused);
    }

    #[test]
    fn a_name_does_not_distinguish_callers() {
        let alice = caller(&[("x-api-key", "alice")]);
        let named = alice.clone().named(Some("alice".into()));
        assert_eq!(named, alice);
        assert_eq!(named.without(|name| *name == "x-api-key").name(), Some("alice"));
    }

    #[test]
    fn header_values_are_not_printed() {
        let alice = caller(&[("x-api-key", "secret")]);
        assert_eq!(format!("{alice:?}"), "{\"x-api-key\"}");
    }
}
