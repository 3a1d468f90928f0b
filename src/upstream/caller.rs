//! Who asks: what of a client's request goes up with all that is asked for it.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use http::HeaderMap;
use http::header::HeaderName;

/// The headers that tell a trace, and nothing of who asks.
const TRACE: [&str; 3] = ["traceparent", "tracestate", "baggage"];

/// Who asks. Two are equal if LangGraph cannot tell them apart. Clones share the headers.
#[derive(Clone, Default)]
pub struct Caller {
    headers: Arc<HeaderMap>,
    unknown: Unknown,
}

/// What a thread is to a caller that LangGraph does not find for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Unknown {
    /// One that is still to be, and empty till then: "every new chat asks".
    #[default]
    Empty,
    /// Perhaps somebody else's: LangGraph says the same of both.
    Refused,
}

/// Whether a header tells a trace, and nothing of who asks.
pub fn is_trace(name: &HeaderName) -> bool {
    TRACE.contains(&name.as_str())
}

// === impl Caller ===

impl Caller {
    /// Whoever sent these headers, which are all to go up.
    pub fn new(headers: HeaderMap) -> Self {
        Self { headers: Arc::new(headers), unknown: Unknown::default() }
    }

    /// The same, who is to be told this of a thread that LangGraph does not find.
    #[must_use]
    pub fn told(self, unknown: Unknown) -> Self {
        Self { unknown, ..self }
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
        self.unknown
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
    fn what_a_caller_sends_is_not_printed() {
        let alice = caller(&[("x-api-key", "secret")]);
        assert_eq!(format!("{alice:?}"), "{\"x-api-key\"}");
    }
}
