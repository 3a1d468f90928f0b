//! How a client wants its events, by its `Accept` header: a stream, or one array.
//!
//! | type | response |
//! |---|---|
//! | `text/event-stream` | a stream; also without an `Accept` header |
//! | `application/x-ndjson` | a stream |
//! | `application/vnd.ag-ui.event+proto` | a stream, for a 1.0 client that names the type |
//! | `application/json` | an array, when the run has ended or the client's wait is over |

use std::time::Duration;

use axum::extract::Request;
use axum::response::Response;
use http::header::ACCEPT;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use tokio::time::Instant;

use super::page::Page;
use crate::metrics::{Charge, Metrics, Protocol};
use crate::server::body::read_json;
use crate::server::gateway::RequestContext;
use crate::server::observe::request_log::AuditedAction;
use crate::server::reject::Reject;
use crate::server::request::query::param;
use crate::server::request::weights::weighed;
use crate::server::response;
use crate::server::service::input::{InputRequest, Viewing};
use crate::server::streams::array;
use crate::server::streams::event_stream::EventStream;
use crate::server::streams::last_event::LastEvent;
use crate::server::streams::wire::Wire;
use threadway_translate::agui::{Input, Version};

/// The header in which `TanStack` AI names the run that it reads.
const RUN_ID: HeaderName = HeaderName::from_static("x-run-id");

/// The longest wait that a client may ask for. Proxies cut a silent response after 60 s or more.
const MAX_WAIT: Duration = Duration::from_mins(1);

/// A request for events, and how they are sent. It has no `Debug`, which would print credentials.
pub(super) struct EventsRequest {
    headers: HeaderMap,
    uri: Uri,
    delivery: Delivery,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delivery {
    Stream(Wire),
    Array {
        /// The end of the client's wait. `None` waits for the end of the run.
        until: Option<Instant>,
    },
}

/// A media type that events are sent as.
struct EventMediaType {
    /// Type and subtype.
    media: (&'static str, &'static str),
    form: Form,
    /// Whether a wildcard accepts it.
    is_for_any: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Stream(Wire),
    Array,
}

/// In order of preference, for a client that names none of them.
const SERVED: [EventMediaType; 4] = [
    EventMediaType {
        media: ("text", "event-stream"),
        form: Form::Stream(Wire::Sse),
        is_for_any: true,
    },
    EventMediaType {
        media: ("application", "x-ndjson"),
        form: Form::Stream(Wire::Ndjson),
        is_for_any: true,
    },
    EventMediaType {
        media: ("application", "vnd.ag-ui.event+proto"),
        form: Form::Stream(Wire::Proto),
        // The specification has `*/*` accept it too, but then `curl` would print binary.
        is_for_any: false,
    },
    EventMediaType { media: ("application", "json"), form: Form::Array, is_for_any: true },
];

/// How well a range of an `Accept` header fits a type. The greatest is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Fit {
    /// A client can read a type that it names. A wildcard often comes from its HTTP library.
    is_named: bool,
    /// In thousandths.
    quality: u16,
    is_stream: bool,
}

/// One range of an `Accept` header.
struct MediaRange<'a> {
    kind: &'a str,
    subtype: &'a str,
    quality: u16,
}

// === impl EventsRequest ===

impl EventsRequest {
    /// Reads how the events are to be sent. `parts` is the head of the request.
    pub(super) fn of(parts: Parts) -> Result<Self, Reject> {
        let Parts { headers, uri, .. } = parts;
        let delivery = match chosen(&headers, &SERVED)? {
            // TanStack AI resumes by the ids in the lines, and names its run in a header.
            Form::Stream(Wire::Ndjson) if headers.contains_key(RUN_ID) => {
                Delivery::Stream(Wire::ChunkLines)
            }
            Form::Stream(wire) => Delivery::Stream(wire),
            Form::Array => {
                let wait = wait(uri.query().unwrap_or_default())?;
                Delivery::Array { until: wait.map(|wait| Instant::now() + wait) }
            }
        };
        Ok(Self { headers, uri, delivery })
    }

    /// Reads a request whose body is a `RunAgentInput`. `action` is what the audit log calls it.
    pub(super) async fn read(
        context: &RequestContext,
        agent: &str,
        page: Page,
        request: Request,
        action: fn(&Input) -> AuditedAction,
    ) -> Result<(Self, InputRequest), Reject> {
        let (parts, body) = request.into_parts();
        let events = Self::of(parts)?;
        let body =
            read_json(context, &events.headers, body, context.gateway.limits.body_bytes).await?;
        let (bytes, charge) = body.into_parts();
        events.with_input(context, agent, page, (&bytes, charge), action)
    }

    /// Reads an input that was taken out of the request's body.
    pub(super) fn with_input(
        mut self,
        context: &RequestContext,
        agent: &str,
        page: Page,
        body: (&[u8], Charge),
        action: fn(&Input) -> AuditedAction,
    ) -> Result<(Self, InputRequest), Reject> {
        let last = LastEvent::of_header(&self.headers).unwrap_or(LastEvent::None);
        let viewing = Viewing { last, is_inspected: page.inspects(self.uri.query()) };
        let wire = |version| {
            self.choose_for(version)?;
            Ok(self.wire())
        };
        let request = InputRequest::parse(context, agent, body, action, viewing, wire)?;
        Ok((self, request))
    }

    /// Chooses again for a client of this version. The protobuf decoder of 0.0.59 ends the run at
    /// an unknown event, so an older client gets the next type that it accepts.
    fn choose_for(&mut self, version: Version) -> Result<(), Reject> {
        let is_older = version == Version::Legacy;
        if !is_older || self.delivery != Delivery::Stream(Wire::Proto) {
            return Ok(());
        }
        let served = SERVED.iter().filter(|served| served.form != Form::Stream(Wire::Proto));
        self.delivery = match chosen(&self.headers, served)? {
            Form::Stream(wire) => Delivery::Stream(wire),
            Form::Array => Delivery::Array { until: None },
        };
        Ok(())
    }

    /// The framing that the events are encoded in.
    fn wire(&self) -> Wire {
        match self.delivery {
            Delivery::Stream(wire) => wire,
            Delivery::Array { .. } => Wire::Chunks,
        }
    }

    /// Sends a stream in the way that the client wants.
    pub(super) async fn respond(
        &self,
        metrics: &Metrics,
        stream: EventStream,
    ) -> Result<Response, Reject> {
        let until = match self.delivery {
            Delivery::Stream(_) => return response::events(stream, metrics).await,
            Delivery::Array { until } => until,
        };
        debug_assert_eq!(stream.encoder.wire(), Wire::Chunks, "an array is made of chunks");
        let (ids, answers) = (stream.ids.clone(), stream.answers.clone());
        let events = stream.into_frames_of(Protocol::Json, metrics);
        let events = array::collect(events, until, &answers).await?;
        let sent = self.headers.get("last-event-id").cloned();
        Ok(response::about_thread(response::array(events, sent), ids))
    }
}

/// The framing for a route whose stream may never end, so that it serves no array.
pub(super) fn stream(headers: &HeaderMap) -> Result<Wire, Reject> {
    let streams = SERVED.iter().filter(|served| matches!(served.form, Form::Stream(_)));
    match chosen(headers, streams)? {
        Form::Stream(wire) => Ok(wire),
        Form::Array => Ok(Wire::Sse),
    }
}

/// The framing for a route whose messages are no AG-UI events, so that it serves no protobuf.
pub(super) fn text_stream(headers: &HeaderMap) -> Result<Wire, Reject> {
    let is_text =
        |served: &&EventMediaType| matches!(served.form, Form::Stream(Wire::Sse | Wire::Ndjson));
    match chosen(headers, SERVED.iter().filter(is_text))? {
        Form::Stream(wire) => Ok(wire),
        Form::Array => Ok(Wire::Sse),
    }
}

/// The form that a client accepts, of those that are served.
fn chosen<'a>(
    headers: &HeaderMap,
    served: impl IntoIterator<Item = &'a EventMediaType> + Clone,
) -> Result<Form, Reject> {
    let lines: Vec<_> = headers.get_all(ACCEPT).iter().map(HeaderValue::as_bytes).collect();
    let accept = String::from_utf8_lossy(&lines.join(&b","[..])).into_owned();
    if let Some(form) = best(&accept, served.clone()) {
        return Ok(form);
    }
    let types = served
        .into_iter()
        .map(|EventMediaType { media: (kind, subtype), .. }| format!("{kind}/{subtype}"));
    let message = format!(
        "`accept` allows none of the types that this route serves; name one of {}",
        types.collect::<Vec<_>>().join(", ")
    );
    Err(Reject::new(StatusCode::NOT_ACCEPTABLE, "not_acceptable", message))
}

fn best<'a>(accept: &str, served: impl IntoIterator<Item = &'a EventMediaType>) -> Option<Form> {
    let ranges = weighed(accept).filter_map(|(name, quality)| {
        name.split_once('/').map(|(kind, subtype)| MediaRange { kind, subtype, quality })
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
        // Of two that fit equally well, the first in the header is chosen.
        let is_better = |(other, first): (Fit, usize)| fit > other || (fit == other && at < first);
        if range.quality > 0 && found.is_none_or(|(other, _)| is_better(other)) {
            found = Some(((fit, at), served.form));
        }
    }
    found.map(|(_, form)| form)
}

/// The `wait` of a query: how long the client waits for an array.
fn wait(query: &str) -> Result<Option<Duration>, Reject> {
    let Some(text) = param(query, "wait") else { return Ok(None) };
    let seconds = text.parse().ok().filter(|seconds| *seconds <= MAX_WAIT.as_secs());
    let wait = seconds.map(Duration::from_secs).ok_or_else(|| {
        let most = MAX_WAIT.as_secs();
        Reject::invalid(format!("`wait` is not a whole number of seconds from 0 to {most}"))
    })?;
    Ok(Some(wait))
}

// === impl EventMediaType ===

impl EventMediaType {
    /// The range that names this type most exactly, and its position.
    fn range<'r, 'a>(&self, ranges: &'r [MediaRange<'a>]) -> Option<(usize, &'r MediaRange<'a>)> {
        let (kind, subtype) = self.media;
        let is = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
        let named = |range: &MediaRange<'_>| is(range.kind, kind) && is(range.subtype, subtype);
        let of_kind = |range: &MediaRange<'_>| is(range.kind, kind) && range.subtype == "*";
        let any = |range: &MediaRange<'_>| range.kind == "*" && range.subtype == "*";
        let find = |fits: &dyn Fn(&MediaRange<'_>) -> bool| {
            ranges.iter().enumerate().find(|(_, range)| fits(range))
        };
        let wide = || find(&of_kind).or_else(|| find(&any)).filter(|_| self.is_for_any);
        find(&named).or_else(wide)
    }
}

// === impl MediaRange ===

impl MediaRange<'_> {
    fn is_exact(&self) -> bool {
        self.subtype != "*"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_type_is_preferred_to_one_that_a_wildcard_accepts() {
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
            // A client that accepts a stream gets one.
            ("application/json, text/event-stream", SSE),
            ("application/json, application/x-ndjson, text/event-stream", NDJSON),
            // A quality of 0 refuses a type.
            ("text/event-stream;q=0", None),
            ("text/event-stream;q=0.000, */*", NDJSON),
            ("text/event-stream; q=0, application/x-ndjson ;Q=0.0, */*;q=0.1", ARRAY),
            ("*/*;q=0", None),
            ("text/*;q=0, text/event-stream", SSE),
            // A malformed quality is ignored.
            ("text/event-stream;q=none", SSE),
            ("text/event-stream;q=0.0000", SSE),
            ("text/html", None),
            ("text/html, image/*;q=0.8", None),
            ("json", None),
            ("*", None),
            ("*/json", None),
            ("application/vnd.x+json", None),
            // A client gets the binary binding only if it names it.
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
    fn several_header_lines_are_one_list() {
        let mut headers = HeaderMap::new();
        headers.append(ACCEPT, HeaderValue::from_static("text/html"));
        assert!(chosen(&headers, &SERVED).is_err());
        headers.append(ACCEPT, HeaderValue::from_static("application/json"));
        assert_eq!(chosen(&headers, &SERVED).ok(), Some(Form::Array));
        // A stream that may never end is not served as an array.
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
