//! A trace from a client's `traceparent` to the upstream's, as an OTLP collector receives it.

use std::net::SocketAddr;

use crate::support::gateway::{Gateway, RUN, Response, THREAD, input};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::routing::post;
use http::HeaderMap;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message;
use threadway::server::{self, Limits};
use threadway::telemetry::Traces;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The client's trace id, and its span id.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";

/// An OTLP collector that stores the requests that it gets.
struct Collector {
    address: SocketAddr,
    received: mpsc::UnboundedReceiver<ExportTraceServiceRequest>,
    _serving: JoinSet<()>,
}

async fn receive(
    State(received): State<mpsc::UnboundedSender<ExportTraceServiceRequest>>,
    headers: HeaderMap,
    body: Bytes,
) {
    assert_eq!(headers["content-type"], "application/x-protobuf");
    received.send(ExportTraceServiceRequest::decode(body).unwrap()).unwrap();
}

impl Collector {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, received) = mpsc::unbounded_channel();
        let routes = Router::new().route("/v1/traces", post(receive)).with_state(sender);
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let stop = CancellationToken::new();
            server::serve(listener, routes, &Limits::default(), stop).await;
        });
        Self { address, received, _serving: serving }
    }

    /// All spans so far, with the names of their services.
    fn spans(&mut self) -> Vec<(String, Span)> {
        let mut spans = Vec::new();
        while let Ok(request) = self.received.try_recv() {
            for resource in request.resource_spans {
                let attributes = resource.resource.unwrap().attributes;
                let service = text(&attributes, "service.name").unwrap();
                let scopes = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
                spans.extend(scopes.map(|span| (service.clone(), span)));
            }
        }
        spans
    }
}

/// Exports traces to a collector.
async fn traces(collector: SocketAddr) -> Traces {
    let endpoint = format!("http://{collector}").parse().unwrap();
    tokio::task::spawn_blocking(move || Traces::to_collector(&endpoint).unwrap()).await.unwrap()
}

async fn finish(traces: Traces) {
    tokio::task::spawn_blocking(|| traces.finish()).await.unwrap();
}

fn text(attributes: &[KeyValue], key: &str) -> Option<String> {
    let found = attributes.iter().find(|attribute| attribute.key == key)?;
    let value = found.value.as_ref()?.value.as_ref()?;
    if let Value::IntValue(number) = value {
        return Some(number.to_string());
    }
    let Value::StringValue(text) = value else { panic!("{value:?}") };
    Some(text.clone())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

fn run_request(headers: &str) -> String {
    let body = input(&["hi s3cret"]).to_string();
    format!(
        "POST /agui/agent/agent/run?s3cret=1 HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\
         \r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Starts a run with these headers and ends it at once; returns the head of the upstream request
/// that started it.
async fn ran(gateway: &Gateway, headers: &str) -> String {
    let request = run_request(headers);
    let script = async {
        gateway.state(None).await;
        gateway.stream().await
    };
    let (mut response, run) =
        tokio::join!(Response::to(gateway.address, request.as_bytes()), script);
    let head = run.head.clone();
    run.end().await;
    gateway.record("interrupted").await;
    response.body().await;
    head
}

#[tokio::test]
async fn trace_goes_from_the_client_through_the_gateway_to_the_upstream() {
    let mut collector = Collector::start().await;
    let traces = traces(collector.address).await;
    let gateway = Gateway::traced(traces.tracer()).await;
    let headers = format!("traceparent: 00-{TRACE}-{SPAN}-01\r\ntracestate: vendor=1\r\n");
    let head = ran(&gateway, &headers).await;
    let upstream = header(&head, "traceparent").expect(&head);
    gateway.settled().await;
    finish(traces).await;

    let mut spans = collector.spans();
    spans.retain(|(_, span)| span.name.starts_with("POST"));
    let [(service, span)] = &*spans else { panic!("{spans:#?}") };
    assert_eq!(service, "threadway");
    assert_eq!(span.name, "POST /agui/agent/{agent}/run");
    assert_eq!(span.kind, i32::from(SpanKind::Server as u8));
    assert_eq!(hex(&span.trace_id), TRACE);
    assert_eq!(hex(&span.parent_span_id), SPAN);
    assert_eq!(span.trace_state, "vendor=1");
    // The span is the parent of the upstream request.
    assert_eq!(upstream, format!("00-{TRACE}-{}-01", hex(&span.span_id)));
    assert_eq!(header(&head, "tracestate"), Some("vendor=1"));
    for (key, value) in [
        ("http.request.method", "POST"),
        ("http.route", "/agui/agent/{agent}/run"),
        ("http.response.status_code", "200"),
        ("threadway.thread_id", THREAD),
        ("threadway.run_id", RUN),
    ] {
        assert_eq!(text(&span.attributes, key).as_deref(), Some(value), "{key}");
    }
    assert_eq!(span.attributes.len(), 5, "{span:#?}");
    assert!(!format!("{span:?}").contains("s3cret"));
    assert!(span.end_time_unix_nano > span.start_time_unix_nano);
}

#[tokio::test]
async fn traceparent_that_is_none_begins_a_trace_and_goes_no_further() {
    let mut collector = Collector::start().await;
    let traces = traces(collector.address).await;
    let gateway = Gateway::traced(traces.tracer()).await;
    let head = ran(&gateway, "traceparent: 00-nonsense-01\r\ntracestate: vendor=1\r\n").await;
    let upstream = header(&head, "traceparent").expect(&head).to_owned();
    assert_eq!(header(&head, "tracestate"), None, "{head}");
    gateway.settled().await;
    finish(traces).await;
    let spans = collector.spans();
    let (_, span) = spans.iter().find(|(_, span)| span.name.starts_with("POST")).unwrap();
    assert!(span.parent_span_id.is_empty());
    assert!(upstream.contains(&hex(&span.trace_id)), "{upstream}");
}

#[tokio::test]
async fn span_that_the_client_does_not_sample_is_passed_on_and_not_exported() {
    let mut collector = Collector::start().await;
    let traces = traces(collector.address).await;
    let gateway = Gateway::traced(traces.tracer()).await;
    let head = ran(&gateway, &format!("traceparent: 00-{TRACE}-{SPAN}-00\r\n")).await;
    let upstream = header(&head, "traceparent").expect(&head);
    assert!(upstream.starts_with(&format!("00-{TRACE}-")) && upstream.ends_with("-00"));
    gateway.settled().await;
    finish(traces).await;
    assert!(collector.spans().iter().all(|(_, span)| hex(&span.trace_id) != TRACE));
}

#[tokio::test]
async fn collector_that_is_away_costs_traces_and_no_request() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let away = listener.local_addr().unwrap();
    drop(listener);
    let traces = traces(away).await;
    let gateway = Gateway::traced(traces.tracer()).await;
    ran(&gateway, "").await;
    gateway.settled().await;
    finish(traces).await;
    ran(&gateway, "").await;
}
