//! What each request is recorded in: a counter, the logs, and a span where traces are exported.
//!
//! - [`request_log`]: the operator's log and the audit log.
//!
//! A span lasts as long as its response, a stream's included. Its parent is the client's span. The
//! span's context replaces the request's `traceparent`, and is sent on like any other header that
//! is forwarded. So the upstream requests that this one causes are children of the span.

pub(super) mod request_log;

use std::fmt;
use std::pin::Pin;
use std::task::{Context as Polling, Poll};

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use http_body::{Frame, SizeHint};
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator};
use opentelemetry::trace::{SpanKind, Status, TraceContextExt, Tracer};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracer;

use self::request_log::RequestLog;
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
    span: Context,
}

/// A request's headers, for the propagator to read and write.
struct Headers<'a>(&'a mut HeaderMap);

/// Counts a request, and writes it to the logs and to a span.
pub(super) async fn observe(
    State((observer, log)): State<(Observer, RequestLog)>,
    mut request: Request,
    next: Next,
) -> Response {
    let path = request.extensions().get::<MatchedPath>().cloned();
    let path = path.as_ref().map(MatchedPath::as_str);
    let span = observer.tracer.as_ref().map(|tracer| begin(tracer, path, &mut request));
    let (mut head, body) = request.into_parts();
    let pending = log.begin(path, &mut head).await;
    let request = Request::from_parts(head, body);
    let mut response = pending.handle(next.run(request)).await;
    let status = StatusClass::of(response.status().as_u16());
    let route = match response.status() {
        StatusCode::SWITCHING_PROTOCOLS if path != Some("/acp") => Route::WebSocket,
        _ => route(path),
    };
    observer.metrics.answered(route, status);
    let refused = response.extensions_mut().remove::<Refused>();
    if let Some(refused) = &refused {
        observer.metrics.refused(refused.code);
    }
    let ids = response.extensions().get::<RunIds>();
    let status = refused.as_ref().map_or_else(|| response.status(), |refused| refused.status);
    pending.answered(route, status, refused.as_ref(), ids);
    match span {
        Some(span) => spanned(response, span),
        None => response,
    }
}

fn route(path: Option<&str>) -> Route {
    match path {
        Some("/agui/agent/{agent}/run") => Route::Run,
        Some("/agui/agent/{agent}/run/ws") => Route::WebSocket,
        Some("/agui/agent/{agent}/connect") => Route::Connect,
        Some("/agui/agent/{agent}/threads/{thread}/events") => Route::Events,
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
fn begin(tracer: &SdkTracer, path: Option<&str>, request: &mut Request) -> Context {
    let propagator = TraceContextPropagator::new();
    let method = request.method().as_str();
    // Neither the raw path nor the query is exported: both may contain private data.
    let name = path.map_or_else(|| method.to_owned(), |path| format!("{method} {path}"));
    let mut attributes = vec![KeyValue::new("http.request.method", method.to_owned())];
    attributes.extend(path.map(|path| KeyValue::new("http.route", path.to_owned())));
    let mut headers = Headers(request.headers_mut());
    let parent = propagator.extract_with_context(&Context::new(), &headers);
    let builder = tracer.span_builder(name).with_kind(SpanKind::Server).with_attributes(attributes);
    let span = parent.with_span(tracer.build_with_context(builder, &parent));
    // Headers that could not be parsed are not forwarded.
    for name in TRACE_HEADERS {
        headers.0.remove(name);
    }
    propagator.inject_context(&span, &mut headers);
    span
}

/// Ends a span with its response.
fn spanned(mut response: Response, context: Context) -> Response {
    let span = context.span();
    let status = response.status();
    span.set_attribute(KeyValue::new("http.response.status_code", i64::from(status.as_u16())));
    if status.is_server_error() {
        span.set_status(Status::error(""));
    }
    if let Some(RunIds { thread_id, run_id }) = response.extensions_mut().remove() {
        span.set_attribute(KeyValue::new("threadway.thread_id", thread_id));
        if let Some(run_id) = run_id {
            span.set_attribute(KeyValue::new("threadway.run_id", run_id));
        }
    }
    response.map(|body| Body::new(Spanned { body, span: context }))
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

impl Drop for Spanned {
    fn drop(&mut self) {
        self.span.span().end();
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
