//! How a client wants its answer, by its `Accept` header: a stream, or one array of events.
//!
//! | type | answer |
//! |---|---|
//! | `text/event-stream` | a stream; also where nothing is named |
//! | `application/x-ndjson` | a stream |
//! | `application/vnd.ag-ui.event+proto` | a stream, for a 1.0 client that names it |
//! | `application/json` | an array, once the run has ended or the client waits no longer |

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use tokio::time::Instant;

use super::Gateway;
use super::array;
use super::body::RunBody;
use super::observe::About;
use super::page::Page;
use super::rates::StreamSlot;
use super::reject::Reject;
use super::websocket::Turn;
use super::weighed::weighed;
use super::wire::{Encoder, Wire};
use crate::metrics::Protocol;
use crate::threads::ThreadReader;
use threadway_translate::agui::Version;

/// The header in which `TanStack` AI names the run that it asks for.
const RUN_ID: HeaderName = HeaderName::from_static("x-run-id");

/// The longest time that a client may ask to wait: proxies cut a silent answer after 60 s or more.
pub(super) const MAX_WAIT: Duration = Duration::from_mins(1);

/// A request for events, and how they are to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    pub(super) headers: &'a HeaderMap,
    answer: Answer,
    /// Nothing may be started: the client only wants the rest of a run.
    pub(super) is_replay: bool,
    query: Option<&'a str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Stream(Wire),
    /// Up to this moment, or the end of the run.
    Array {
        until: Option<Instant>,
    },
}

/// A media type that events are sent as.
struct Served {
    /// The part before the slash, and the part after it.
    media: (&'static str, &'static str),
    form: Form,
    /// Whether a client gets it that has not named it.
    is_for_any: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Stream(Wire),
    Array,
}

/// In the order of preference for a client that has named none of them.
const SERVED: [Served; 4] = [
    Served { media: ("text", "event-stream"), form: Form::Stream(Wire::Sse), is_for_any: true },
    Served {
        media: ("application", "x-ndjson"),
        form: Form::Stream(Wire::Ndjson),
        is_for_any: true,
    },
    Served {
        media: ("application", "vnd.ag-ui.event+proto"),
        form: Form::Stream(Wire::Proto),
        // By the specification `*/*` would ask for it too, and `curl` would get binary.
        is_for_any: false,
    },
    Served { media: ("application", "json"), form: Form::Array, is_for_any: true },
];

/// How well a range of an `Accept` header fits a type: the greatest is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Fit {
    /// What a client has named it reads; a wildcard is often its library's.
    is_named: bool,
    /// In thousandths.
    quality: u16,
    is_stream: bool,
}

/// One range of an `Accept` header.
struct Range<'a> {
    kind: &'a str,
    subtype: &'a str,
    quality: u16,
}

// === impl Asked ===

impl<'a> Asked<'a> {
    /// How a request for a run, or for what a thread holds, is to be answered.
    pub(super) fn of(parts: &'a Parts) -> Result<Self, Reject> {
        let headers = &parts.headers;
        if let Some(turn) = parts.extensions.get::<Turn>() {
            let answer = Answer::Stream(turn.wire);
            return Ok(Self { headers, answer, is_replay: turn.is_replay, query: None });
        }
        let answer = match chosen(headers, &SERVED)? {
            // TanStack AI resumes lines by the ids in them, and names its run in a header.
            Form::Stream(Wire::Ndjson) if headers.contains_key(RUN_ID) => {
                Answer::Stream(Wire::ChunkLines)
            }
            Form::Stream(wire) => Answer::Stream(wire),
            Form::Array => {
                let wait = wait(parts.uri.query().unwrap_or_default())?;
                Answer::Array { until: wait.map(|wait| Instant::now() + wait) }
            }
        };
        Ok(Self { headers, answer, is_replay: false, query: parts.uri.query() })
    }

    /// The same for a client of this version: the decoder of 0.0.59 ends the run at an event that
    /// it does not know, so that an older client gets the next type that it takes.
    pub(super) fn of_version(self, version: Version) -> Result<Self, Reject> {
        let is_older = version == Version::Legacy;
        if !is_older || self.answer != Answer::Stream(Wire::Proto) {
            return Ok(self);
        }
        let served = SERVED.iter().filter(|served| served.form != Form::Stream(Wire::Proto));
        let answer = match chosen(self.headers, served)? {
            Form::Stream(wire) => Answer::Stream(wire),
            Form::Array => Answer::Array { until: None },
        };
        Ok(Self { answer, ..self })
    }

    /// Whether it is for the inspector of the page.
    pub(super) fn inspects(&self, page: Page) -> bool {
        page.inspects(self.query)
    }

    /// The framing that its events are encoded in.
    pub(super) fn wire(&self) -> Wire {
        match self.answer {
            Answer::Stream(wire) => wire,
            Answer::Array { .. } => Wire::Chunks,
        }
    }

    /// Answers with what a reader reads.
    pub(super) async fn answer(
        &self,
        gateway: &Gateway,
        reader: ThreadReader,
        encoder: Encoder,
        slot: StreamSlot,
        about: About,
    ) -> Response {
        let metrics = &gateway.observer.metrics;
        let (wire, until) = match self.answer {
            Answer::Stream(wire) => {
                let body = RunBody::new(reader, encoder, metrics).holding(slot);
                return streamed(wire, Body::new(body), about);
            }
            Answer::Array { until } => (Wire::Chunks, until),
        };
        debug_assert_eq!(encoder.wire(), wire, "an array is made of chunks");
        let body = RunBody::counted_as(Protocol::AguiJson, reader, encoder, metrics).holding(slot);
        let sent = self.headers.get("last-event-id").cloned();
        let mut response = array::collected(body, until, sent).await;
        response.extensions_mut().insert(about);
        response
    }
}

/// The framing of a stream that may not end.
pub(super) fn stream(headers: &HeaderMap) -> Result<Wire, Reject> {
    let streams = SERVED.iter().filter(|served| matches!(served.form, Form::Stream(_)));
    match chosen(headers, streams)? {
        Form::Stream(wire) => Ok(wire),
        Form::Array => Ok(Wire::Sse),
    }
}

/// A response that no proxy may hold back, keep or change.
pub(super) fn streamed(wire: Wire, body: Body, about: About) -> Response {
    let mut response = Response::new(body);
    response.extensions_mut().insert(about);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, wire.content_type());
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    let buffering = HeaderName::from_static("x-accel-buffering");
    headers.insert(buffering, HeaderValue::from_static("no"));
    response
}

/// The form that a client takes, of those that are served.
fn chosen<'a>(
    headers: &HeaderMap,
    served: impl IntoIterator<Item = &'a Served> + Clone,
) -> Result<Form, Reject> {
    let lines: Vec<_> = headers.get_all(ACCEPT).iter().map(HeaderValue::as_bytes).collect();
    let accept = String::from_utf8_lossy(&lines.join(&b","[..])).into_owned();
    if let Some(form) = best(&accept, served.clone()) {
        return Ok(form);
    }
    let types =
        served.into_iter().map(|Served { media: (kind, subtype), .. }| format!("{kind}/{subtype}"));
    let message = format!(
        "`accept` takes none of the types that are served here; name one of {}",
        types.collect::<Vec<_>>().join(", ")
    );
    Err(Reject::new(StatusCode::NOT_ACCEPTABLE, "not_acceptable", message))
}

fn best<'a>(accept: &str, served: impl IntoIterator<Item = &'a Served>) -> Option<Form> {
    let ranges = weighed(accept).filter_map(|(name, quality)| {
        name.split_once('/').map(|(kind, subtype)| Range { kind, subtype, quality })
    });
    let ranges: Vec<_> = ranges.collect();
    let mut served = served.into_iter();
    if ranges.is_empty() && accept.chars().all(|char| char == ',' || char.is_whitespace()) {
        return served.next().map(|served| served.form);
    }
    let mut found: Option<((Fit, usize), Form)> = None;
    for served in served {
        let Some((at, range)) = served.range(&ranges) else { continue };
        let fit = Fit {
            is_named: range.is_exact(),
            quality: range.quality,
            is_stream: matches!(served.form, Form::Stream(_)),
        };
        // Of two that fit as well, the one that is named first.
        let is_better = |(other, first): (Fit, usize)| fit > other || (fit == other && at < first);
        if range.quality > 0 && found.is_none_or(|(other, _)| is_better(other)) {
            found = Some(((fit, at), served.form));
        }
    }
    found.map(|(_, form)| form)
}

/// How long a client waits at most, as its query says.
fn wait(query: &str) -> Result<Option<Duration>, Reject> {
    let mut waits = form_urlencoded::parse(query.as_bytes()).filter(|(key, _)| key == "wait");
    let Some((_, text)) = waits.next() else { return Ok(None) };
    let seconds = text.parse().ok().filter(|seconds| *seconds <= MAX_WAIT.as_secs());
    let wait = seconds.map(Duration::from_secs).ok_or_else(|| {
        let most = MAX_WAIT.as_secs();
        Reject::invalid(format!("`wait` is not a whole number of seconds from 0 to {most}"))
    })?;
    Ok(Some(wait))
}

// === impl Served ===

impl Served {
    /// The range that says how much a client wants this type: the one that names it most exactly.
    fn range<'r, 'a>(&self, ranges: &'r [Range<'a>]) -> Option<(usize, &'r Range<'a>)> {
        let (kind, subtype) = self.media;
        let is = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
        let named = |range: &Range<'_>| is(range.kind, kind) && is(range.subtype, subtype);
        let of_kind = |range: &Range<'_>| is(range.kind, kind) && range.subtype == "*";
        let any = |range: &Range<'_>| range.kind == "*" && range.subtype == "*";
        let find = |fits: &dyn Fn(&Range<'_>) -> bool| {
            ranges.iter().enumerate().find(|(_, range)| fits(range))
        };
        let wide = || find(&of_kind).or_else(|| find(&any)).filter(|_| self.is_for_any);
        find(&named).or_else(wide)
    }
}

// === impl Range ===

impl Range<'_> {
    fn is_exact(&self) -> bool {
        self.subtype != "*"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_what_it_names_and_else_what_it_takes() {
        const SSE: Option<Form> = Some(Form::Stream(Wire::Sse));
        const NDJSON: Option<Form> = Some(Form::Stream(Wire::Ndjson));
        const ARRAY: Option<Form> = Some(Form::Array);
        for (accept, expected) in [
            ("", SSE),
            (" , ", SSE),
            ("*/*", SSE),
            ("text/*", SSE),
            ("application/*", NDJSON),
            ("text/event-stream", SSE),
            ("Text/Event-Stream; charset=utf-8", SSE),
            ("application/x-ndjson", NDJSON),
            ("application/json", ARRAY),
            // A name counts more than a wildcard, and then the quality, and then the place.
            ("text/html, Application/X-NDJSON;q=0.9, */*", NDJSON),
            ("application/json, text/plain, */*", ARRAY),
            ("text/event-stream, application/x-ndjson", SSE),
            ("application/x-ndjson, text/event-stream", NDJSON),
            ("text/event-stream;q=0.5, application/x-ndjson;q=0.55", NDJSON),
            ("text/event-stream;q=0.5, application/json;q=0.501", ARRAY),
            // Who takes a stream gets one.
            ("application/json, text/event-stream", SSE),
            ("application/json, application/x-ndjson, text/event-stream", NDJSON),
            // What a quality of 0 refuses.
            ("text/event-stream;q=0", None),
            ("text/event-stream;q=0.000, */*", NDJSON),
            ("text/event-stream; q=0, application/x-ndjson ;Q=0.0, */*;q=0.1", ARRAY),
            ("*/*;q=0", None),
            ("text/*;q=0, text/event-stream", SSE),
            // A quality that is none is not read.
            ("text/event-stream;q=none", SSE),
            ("text/event-stream;q=0.0000", SSE),
            ("text/html", None),
            ("text/html, image/*;q=0.8", None),
            ("json", None),
            ("*", None),
            ("*/json", None),
            ("application/vnd.x+json", None),
            // The binary binding is for those that name it.
            ("application/vnd.ag-ui.event+proto", Some(Form::Stream(Wire::Proto))),
            (
                "application/vnd.ag-ui.event+proto, text/event-stream",
                Some(Form::Stream(Wire::Proto)),
            ),
            ("text/event-stream, application/vnd.ag-ui.event+proto", SSE),
            ("application/vnd.ag-ui.event+proto;q=0, application/x-ndjson", NDJSON),
        ] {
            assert_eq!(best(accept, &SERVED), expected, "{accept}");
        }
    }

    #[test]
    fn several_lines_are_one_list() {
        let mut headers = HeaderMap::new();
        headers.append(ACCEPT, HeaderValue::from_static("text/html"));
        assert!(chosen(&headers, &SERVED).is_err());
        headers.append(ACCEPT, HeaderValue::from_static("application/json"));
        assert_eq!(chosen(&headers, &SERVED).ok(), Some(Form::Array));
        // A stream that may not end is no array.
        assert!(stream(&headers).is_err());
        headers.append(ACCEPT, HeaderValue::from_bytes(b"\xff, */*").unwrap());
        assert_eq!(stream(&headers).ok(), Some(Wire::Sse));
    }

    #[test]
    fn a_wait_is_a_number_of_seconds_within_the_limit() {
        for (query, expected) in [
            ("", Some(None)),
            ("waits=1", Some(None)),
            ("x=1&wait=0", Some(Some(0))),
            ("wait=60", Some(Some(60))),
            ("wait=61", None),
            ("wait=", None),
            ("wait=1.5", None),
            ("wait=-1", None),
            ("wait=99999999999999999999", None),
        ] {
            let expected = expected.map(|wait| wait.map(Duration::from_secs));
            assert_eq!(wait(query).ok(), expected, "{query}");
        }
    }
}
