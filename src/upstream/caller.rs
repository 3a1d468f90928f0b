//! Who asks: what of a client's request goes up with all that is asked for it.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use http::HeaderMap;
use http::header::HeaderName;

/// The headers that tell a trace, and nothing of who asks.
const TRACE: [&str; 3] = ["traceparent", "tracestate", "baggage"];

/// The headers of W3C Trace Context: they name a request, and nobody.
const TRACE_CONTEXT: [&str; 2] = ["traceparent", "tracestate"];

/// Who asks. Two are equal if LangGraph cannot tell them apart. Clones share the headers.
#[derive(Clone, Default)]
pub struct Caller {
    headers: Arc<HeaderMap>,
    /// What it is told whoever it is, if that is settled.
    unknown: Option<Unknown>,
    /// What the operator's log calls it. LangGraph is not sent it.
    name: Option<Arc<str>>,
}

/// What an upstream's client is used for, as log lines name it. Neither part is sent to the upstream.
#[derive(Clone, Debug, Default)]
pub struct Purpose {
    /// The name by which the agent was asked for.
    pub agent: Option<Arc<str>>,
    /// The client's name of the thread.
    pub thread: Option<Arc<str>>,
}

/// What a thread is to a caller that LangGraph does not find for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unknown {
    /// One that does not exist yet, and is empty: every new chat asks for its thread.
    Empty,
    /// Perhaps somebody else's: LangGraph says the same of both.
    Refused,
}

/// Whether an upstream is sent who its callers are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Identity {
    /// It is sent all headers that the gateway forwards.
    #[default]
    Forwarded,
    /// It is sent the trace context alone: every caller is the gateway to it.
    Withheld,
}

/// Whether a header tells a trace, and nothing of who asks.
pub fn is_trace(name: &HeaderName) -> bool {
    TRACE.contains(&name.as_str())
}

// === impl Identity ===

impl Identity {
    /// Whether a header of a caller is not sent.
    pub(super) fn withholds(self, name: &HeaderName) -> bool {
        match self {
            Self::Forwarded => false,
            Self::Withheld => !TRACE_CONTEXT.contains(&name.as_str()),
        }
    }
}

// === impl Caller ===

impl Caller {
    /// Whoever sent these headers, which are all to go up.
    pub fn new(headers: HeaderMap) -> Self {
        Self { headers: Arc::new(headers), unknown: None, name: None }
    }

    /// The same, under a name for log lines. Two callers may share a name, and are then as different
    /// as before.
    #[must_use]
    pub fn named(self, name: Option<Arc<str>>) -> Self {
        Self { name, ..self }
    }

    /// What log lines call it.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The same, who is to be told this of a thread that LangGraph does not find. Without it who
    /// shows credentials is refused, and to others the thread is empty.
    #[must_use]
    pub fn told(self, unknown: Option<Unknown>) -> Self {
        Self { unknown, ..self }
    }

    /// The same, less headers that will not reach the server: nobody is told apart by them.
    #[must_use]
    pub(super) fn without(&self, is_replaced: impl Fn(&HeaderName) -> bool) -> Self {
        if !self.headers.keys().any(&is_replaced) {
            return self.clone();
        }
        let kept = self.headers.iter().filter(|(name, _)| !is_replaced(name));
        let kept = kept.map(|(name, value)| (name.clone(), value.clone())).collect();
        Self { headers: Arc::new(kept), ..self.clone() }
    }

    /// What goes up.
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Whether LangGraph can tell this caller from another.
    pub fn is_personal(&self) -> bool {
        self.identifying().next().is_some()
    }

    /// What a thread is that LangGraph does not find.
    pub fn unknown(&self) -> Unknown {
        let by_itself = if self.is_personal() { Unknown::Refused } else { Unknown::Empty };
        self.unknown.unwrap_or(by_itself)
    }

    /// What LangGraph can tell it by: names, and values, which are secret.
    pub fn identifying(&self) -> impl Iterator<Item = (&HeaderName, &[u8])> {
        let headers = self.headers.iter().filter(|(name, _)| !is_trace(name));
        headers.map(|(name, value)| (name, value.as_bytes()))
    }
}

impl PartialEq for Caller {
    fn eq(&self, other: &Self) -> bool {
        self.unknown == other.unknown && self.identifying().eq(other.identifying())
    }
}

impl Eq for Caller {}

impl Hash for Caller {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.unknown.hash(state);
        for (name, value) in self.identifying() {
            name.hash(state);
            value.hash(state);
        }
    }
}

impl fmt::Debug for Caller {
    /// Names alone: a value may be a key.
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
    fn a_trace_tells_nothing_of_who_asks() {
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
    fn nobody_is_told_apart_by_what_does_not_arrive() {
        let bob = caller(&[("x-api-key", "bob"), ("traceparent", "00-1"), ("x-tenant", "a")]);
        let shown = bob.without(|name| *name == "x-api-key");
        assert_eq!(shown, caller(&[("x-tenant", "a")]));
        assert_eq!(shown.headers()["traceparent"], "00-1");
        assert_eq!((bob.unknown(), shown.unknown()), (Unknown::Refused, Unknown::Refused));
        let shown = shown.without(|name| *name == "x-tenant");
        assert_eq!(shown.unknown(), Unknown::Empty);
        assert_eq!(shown.told(Some(Unknown::Refused)).unknown(), Unknown::Refused);
    }

    #[test]
    fn a_name_makes_no_other_caller() {
        let alice = caller(&[("x-api-key", "alice")]);
        let named = alice.clone().named(Some("alice".into()));
        assert_eq!(named, alice);
        assert_eq!(named.without(|name| *name == "x-api-key").name(), Some("alice"));
    }

    #[test]
    fn what_a_caller_sends_is_not_printed() {
        let alice = caller(&[("x-api-key", "secret")]);
        assert_eq!(format!("{alice:?}"), "{\"x-api-key\"}");
    }
}
