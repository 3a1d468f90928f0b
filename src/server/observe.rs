//! What each request is recorded in: a counter, the logs, and a span where traces are exported.
//!
//! - [`request_log`]: the operator's log and the audit log.
//!
//! A span lasts as long as its response, a stream's included. Its parent is the client's span. The
//! span's context replaces the request's `traceparent`, and is sent on like any other header that
//! is forwarded. So the upstream requests that this one causes are children of the span.

pub(super) mod request_log;

use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context as Polling, Poll};

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use http_body::{Frame, SizeHint};
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator};
use opentelemetry::trace::{SpanKind, Status, TraceContextExt, Tracer};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracer;

use self::request_log::{RequestEntry, RequestFacts, RequestLog, RequestRecord};
use super::peer::Peer;
use super::reject::Refused;
use crate::metrics::{Metrics, Route, StatusClass};
use crate::threads::Thread;

/// The headers that carry a span's context.
const TRACE_HEADERS: [HeaderName; 2] =
    [HeaderName::from_static("traceparent"), HeaderName::from_static("tracestate")];

/// Where requests are counted and traced.
#[derive(Clone, Default)]
pub struct Observer {
    /// The metrics that the gateway counts in.
    pub metrics: Metrics,
    /// Makes the spans of requests. `None` where no traces are exported.
    pub tracer: Option<SdkTracer>,
}

/// LangGraph's ids of the thread and the run that a response is about, for the span and the audit
/// log. A response that has them is a stream, or says something about a thread.
#[derive(Clone, Debug, Default)]
pub(super) struct RunIds {
    pub(super) thread_id: String,
    /// `None` while the run's id is not known.
    pub(super) run_id: Option<String>,
}

/// A response's body, and the span that ends with it.
struct Spanned {
    body: Body,
    _span: OpenSpan,
}

/// A request, as it is recorded.
pub(super) struct ObservedRequest<'a> {
    pub(super) method: &'a Method,
    /// The route's path, if there is one.
    pub(super) path: Option<&'a str>,
    pub(super) peer: Option<IpAddr>,
    /// What is known of the request at its beginning.
    pub(super) facts: RequestFacts,
}

/// A request that is being handled, and what it is recorded in.
pub(super) struct Observation {
    metrics: Metrics,
    entry: RequestEntry,
    span: Option<OpenSpan>,
}

/// The span of a request, which ends when this is dropped.
pub(super) struct OpenSpan(Context);

/// A request's headers, for the propagator to read and write.
struct Headers<'a>(&'a mut HeaderMap);

/// Counts a request, and writes it to the logs and to a span.
pub(super) async fn observe(
    State((observer, log)): State<(Observer, RequestLog)>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.extensions().get::<MatchedPath>().cloned();
    let path = path.as_ref().map(MatchedPath::as_str);
    let (mut head, body) = request.into_parts();
    let facts = RequestFacts::of(path, &mut head).await;
    let peer = head.extensions.get::<Peer>().map(Peer::ip);
    let asked = ObservedRequest { method: &head.method, path, peer, facts };
    let observation = Observation::begin(&observer, &log, asked, &mut head.headers);
    let mut request = Request::from_parts(head, body);
    request.extensions_mut().insert(observation.record());
    let mut response = next.run(request).await;
    let route = match response.status() {
        StatusCode::SWITCHING_PROTOCOLS if path != Some("/acp") => Route::WebSocket,
        _ => route(path),
    };
    let refused = response.extensions_mut().remove::<Refused>();
    let ids = response.extensions().get::<RunIds>();
    match observation.answered(route, response.status(), refused.as_ref(), ids) {
        Some(span) => response.map(|body| Body::new(Spanned { body, _span: span })),
        None => response,
    }
}

fn route(path: Option<&str>) -> Route {
    match path {
        Some("/agui/agent/{agent}/run") => Route::Run,
        Some("/agui/agent/{agent}/run/ws") => Route::WebSocket,
        Some("/agui/agent/{agent}/connect") => Route::Connect,
        Some("/agui/agent/{agent}/threads/{thread}/events" | "/agui/events") => Route::Events,
        Some("/agui/agent/{agent}/stop/{thread}") => Route::Stop,
        Some("/agui/agent/{agent}/capabilities") => Route::Capabilities,
        Some("/acp") => Route::Acp,
        Some("/agui/info") => Route::Info,
        Some(path) if path.starts_with("/agui/threads") => Route::Threads,
        Some("/agui" | "/agui/") => Route::Envelope,
        Some("/" | "/page/{file}") => Route::Page,
        Some("/healthz") => Route::Healthz,
        Some("/readyz") => Route::Readyz,
        Some("/openapi.json") => Route::OpenApi,
        Some(_) => Route::Other,
        None => Route::Unknown,
    }
}

/// Begins the span of a request, and puts the span's context into the request's headers.
fn begin(
    tracer: &SdkTracer,
    method: &Method,
    path: Option<&str>,
    headers: &mut HeaderMap,
) -> OpenSpan {
    let propagator = TraceContextPropagator::new();
    let method = method.as_str();
    // Neither the raw path nor the query is exported: both may contain private data.
    let name = path.map_or_else(|| method.to_owned(), |path| format!("{method} {path}"));
    let mut attributes = vec![KeyValue::new("http.request.method", method.to_owned())];
    attributes.extend(path.map(|path| KeyValue::new("http.route", path.to_owned())));
    let mut headers = Headers(headers);
    let parent = propagator.extract_with_context(&Context::new(), &headers);
    let builder = tracer.span_builder(name).with_kind(SpanKind::Server).with_attributes(attributes);
    let span = parent.with_span(tracer.build_with_context(builder, &parent));
    // Headers that could not be parsed are not forwarded.
    for name in TRACE_HEADERS {
        headers.0.remove(name);
    }
    propagator.inject_context(&span, &mut headers);
    OpenSpan(span)
}

// === impl Observation ===

impl Observation {
    /// Begins to observe a request. The context of its span replaces that of its `headers`.
    pub(super) fn begin(
        observer: &Observer,
        log: &RequestLog,
        asked: ObservedRequest<'_>,
        headers: &mut HeaderMap,
    ) -> Self {
        let ObservedRequest { method, path, peer, facts } = asked;
        let span = observer.tracer.as_ref().map(|tracer| begin(tracer, method, path, headers));
        Self { metrics: observer.metrics.clone(), entry: log.begin(facts, peer), span }
    }

    /// What is known of the request, for whoever handles it.
    pub(super) fn record(&self) -> RequestRecord {
        self.entry.record.clone()
    }

    /// Counts the request, and writes it to the logs. Returns its span, which lasts as long as what
    /// is still sent.
    pub(super) fn answered(
        self,
        route: Route,
        status: StatusCode,
        refused: Option<&Refused>,
        ids: Option<&RunIds>,
    ) -> Option<OpenSpan> {
        self.metrics.answered(route, StatusClass::of(status.as_u16()));
        if let Some(refused) = refused {
            self.metrics.refused(refused.code);
        }
        let logged = refused.map_or(status, |refused| refused.status);
        self.entry.answered(route, logged, refused, ids);
        let open = self.span?;
        let span = open.0.span();
        span.set_attribute(KeyValue::new("http.response.status_code", i64::from(status.as_u16())));
        if status.is_server_error() {
            span.set_status(Status::error(""));
        }
        if let Some(RunIds { thread_id, run_id }) = ids {
            span.set_attribute(KeyValue::new("threadway.thread_id", thread_id.clone()));
            if let Some(run_id) = run_id {
                span.set_attribute(KeyValue::new("threadway.run_id", run_id.clone()));
            }
        }
        Some(open)
    }
}

// === impl OpenSpan ===

impl Drop for OpenSpan {
    fn drop(&mut self) {
        self.0.span().end();
    }
}

// === impl RunIds ===

impl RunIds {
    pub(super) fn of(thread: &Thread) -> Self {
        Self { thread_id: thread.id().to_owned(), run_id: None }
    }
}

// === impl Observer ===

impl fmt::Debug for Observer {
    /// Leaves the tracer out: it would print its exporter, with the exporter's headers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").field("traces", &self.tracer.is_some()).finish_non_exhaustive()
    }
}

// === impl Spanned ===

impl http_body::Body for Spanned {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Polling<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

// === impl Headers ===

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}

impl Injector for Headers<'_> {
    fn set(&mut self, key: &str, value: String) {
        let name = HeaderName::from_bytes(key.as_bytes());
        // An empty tracestate is not added.
        if let (Ok(name), Ok(value), false) =
            (name, HeaderValue::from_str(&value), value.is_empty())
        {
            self.0.insert(name, value);
        }
    }
}
