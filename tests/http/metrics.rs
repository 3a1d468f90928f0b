//! The metrics as a scraper reads them, and the answers of the admin listener.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::support::clock::HeldClock;
use crate::support::gateway::{
    COLUMNS, Gateway, RUN, Response, THREAD, agents, connect_request, counted, events_request,
    finished, input, part, serve_observed, token, told, values,
};
use crate::support::upstream::Exchange;
use serde_json::json;
use threadway::metrics::{Format, Metrics};
use threadway::server::{Limits, Observer, Settings};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

#[track_caller]
fn assert_values(metrics: &Metrics, expected: &[(&str, f64)]) {
    for (series, expected) in expected {
        let value = counted(metrics, series);
        assert!((value - expected).abs() < 0.5, "{series} is {value}, not {expected}");
    }
}

/// A part with its id in the server's store.
fn kept(id: &str, part: &str) -> String {
    format!("id: {id}\r\n{part}")
}

/// The parts of a run up to half of a message.
fn half() -> String {
    let metadata = part("metadata", &json!({"run_id": RUN, "attempt": 1}));
    let state = part("values", &values(&["hi"]));
    kept("1-0", &metadata) + &kept("2-0", &state) + &kept("3-0", &token("m1", "one"))
}

/// Starts such a run; also returns the id of its last event.
async fn half_told(gateway: &Gateway) -> (Response, Exchange, String) {
    let (mut response, mut run) = gateway.run().await;
    run.send(half()).await;
    loop {
        let frame = response.whole_frame().await;
        if frame.contains("one") {
            let id = frame.lines().find_map(|line| line.strip_prefix("id: ")).unwrap();
            return (response, run, id.to_owned());
        }
    }
}

/// Resumes after an event, on a thread that the upstream shows.
async fn shown(gateway: &Gateway, id: &str) -> Response {
    gateway.events(&format!("?last_event_id={id}")).await
}

// === metrics of runs and streams ===

#[tokio::test]
async fn run_is_counted_from_its_beginning_to_its_end() {
    let gateway = Gateway::start().await;
    let (mut response, mut run) = gateway.run().await;
    assert_values(
        &gateway.metrics,
        &[
            (r#"active_streams{protocol="agui_sse"}"#, 1.0),
            (r#"active_streams{protocol="agui_ndjson"}"#, 0.0),
            ("active_viewers", 1.0),
            ("active_runs", 1.0),
            ("open_connections", 1.0),
            (r#"runs_started_total{origin="started"}"#, 1.0),
            (r#"runs_ended_total{outcome="finished"}"#, 0.0),
            (r#"requests_total{route="run",status="2xx"}"#, 1.0),
            (r#"upstream_requests_total{operation="start_run",outcome="ok"}"#, 1.0),
            (r#"upstream_requests_total{operation="thread_state",outcome="not_found"}"#, 1.0),
            ("added_latency_seconds_count", 0.0),
            ("stream_bytes_count", 0.0),
        ],
    );
    let tokens = token("a", "one");
    run.send(&tokens).await;
    assert_eq!(response.frame().await + &response.frame().await, told("a", "one"));
    assert_values(&gateway.metrics, &[("added_latency_seconds_count", 1.0)]);
    assert!(counted(&gateway.metrics, "added_latency_seconds_sum") < 10.0);

    let committed = part("values", &values(&["hi"]));
    run.send(&committed).await;
    run.end().await;
    gateway.status("success").await;
    let state = json!({"values": values(&["hi"]), "metadata": {"run_id": RUN}});
    gateway.state(Some(state)).await;
    assert!(response.body().await.ends_with(&finished("success")));
    drop(response);
    gateway.watched_by(0).await;
    assert_values(
        &gateway.metrics,
        &[
            (r#"active_streams{protocol="agui_sse"}"#, 0.0),
            ("active_viewers", 0.0),
            ("active_runs", 0.0),
            ("open_connections", 0.0),
            (r#"streams_ended_total{outcome="finished"}"#, 1.0),
            (r#"streams_ended_total{outcome="left"}"#, 0.0),
            (r#"runs_ended_total{outcome="finished"}"#, 1.0),
            ("stream_bytes_count", 1.0),
            ("upstream_run_bytes_count", 1.0),
            #[expect(clippy::cast_precision_loss, reason = "some hundred bytes")]
            ("upstream_run_bytes_sum", (tokens.len() + committed.len()) as f64),
        ],
    );
    assert!(counted(&gateway.metrics, "stream_bytes_sum") > 300.0);
    assert!(counted(&gateway.metrics, "upstream_headers_seconds_count") > 2.0);
}

#[tokio::test]
async fn client_that_goes_away_is_told_from_one_that_was_told_the_end() {
    let gateway = Gateway::start().await;
    let (response, mut run) = gateway.run().await;
    drop(response);
    // The gateway notices the disconnect at its next write, at the latest.
    while counted(&gateway.metrics, r#"streams_ended_total{outcome="left"}"#) < 1.0 {
        run.send(token("a", "one")).await;
        gateway.settled().await;
    }
    assert_values(&gateway.metrics, &[("active_runs", 1.0), ("active_viewers", 0.0)]);

    let (response, _run) = gateway.run().await;
    gateway.stop.cancel();
    drop(response);
    gateway.stopped().await;
}

#[tokio::test]
async fn stop_is_counted_as_such() {
    let gateway = Gateway::start().await;
    let metrics = gateway.metrics.clone();
    let (mut response, _run) = gateway.run().await;
    gateway.stop.cancel();
    assert!(response.body().await.contains("gateway_shutdown"));
    gateway.stopped().await;
    assert_values(
        &metrics,
        &[
            (r#"runs_ended_total{outcome="shutdown"}"#, 1.0),
            (r#"streams_ended_total{outcome="failed"}"#, 1.0),
            ("active_runs", 0.0),
        ],
    );
}

#[tokio::test]
async fn client_that_comes_back_is_counted_by_what_it_is_sent() {
    let gateway = Gateway::start().await;
    let (mut response, mut run, id) = half_told(&gateway).await;
    let resumes = |log, start_over, ended, joined| {
        [
            (r#"resumes_total{kind="log"}"#, log),
            (r#"resumes_total{kind="replay"}"#, 0.0),
            (r#"resumes_total{kind="start_over"}"#, start_over),
            (r#"resumes_total{kind="ended"}"#, ended),
            (r#"resyncs_total{reason="joined"}"#, joined),
        ]
    };
    let latencies = counted(&gateway.metrics, "added_latency_seconds_count");
    let mut back = shown(&gateway, &id).await;
    assert_eq!(back.frame().await, "retry: 3000\n\n");
    gateway.settled().await;
    assert_values(&gateway.metrics, &resumes(1.0, 0.0, 0.0, 0.0));

    let script = async {
        let record = json!([{"run_id": RUN, "status": "running", "kwargs": {"resumable": true}}]);
        gateway.runs("limit=100", record).await;
    };
    let query = "?last_event_id=nonsense";
    let (mut over, ()) = tokio::join!(gateway.events(query), script);
    assert_eq!(over.frame().await, "retry: 3000\n\n");
    assert!(over.frame().await.contains("RUN_STARTED"));
    assert_values(&gateway.metrics, &resumes(1.0, 1.0, 0.0, 1.0));
    // The events that these viewers got were read before they connected.
    assert_values(&gateway.metrics, &[("added_latency_seconds_count", latencies)]);
    assert_values(
        &gateway.metrics,
        &[
            ("active_viewers", 3.0),
            ("active_runs", 1.0),
            (r#"requests_total{route="events",status="2xx"}"#, 2.0),
        ],
    );

    run.send(kept("4-0", &part("values", &values(&["hi"])))).await;
    run.end().await;
    gateway.status("success").await;
    let state = json!({"values": values(&["hi"]), "metadata": {"run_id": RUN}});
    gateway.state(Some(state)).await;
    let mut last = String::new();
    loop {
        let frame = response.whole_frame().await;
        if frame.is_empty() {
            break;
        }
        last = frame;
    }
    let id = last.lines().find_map(|line| line.strip_prefix("id: ")).unwrap();
    let ended = shown(&gateway, id).await;
    assert!(ended.head.starts_with("HTTP/1.1 204"), "{}", ended.head);
    assert_values(&gateway.metrics, &resumes(1.0, 1.0, 1.0, 1.0));
}

#[tokio::test]
async fn client_that_comes_back_to_another_replica_is_counted_as_a_replay() {
    let gateway = Gateway::start().await;
    let (_response, _run, id) = half_told(&gateway).await;
    let metrics = Metrics::default();
    let observer = Observer { metrics: metrics.clone(), tracer: None };
    let agents = agents(&[("default", &gateway.upstream.url())], &[]);
    let (replica, _stop, _serving, _) = serve_observed(agents, Settings::default(), observer).await;
    let script = async {
        let record = json!([{
            "run_id": RUN, "status": "running", "metadata": {"threadway_run_id": "r1", "threadway_start": "s1"},
            "kwargs": {"resumable": true, "stream_mode": ["values", "messages-tuple"]},
        }]);
        gateway.runs("limit=100", record).await;
        let mut join = gateway.joined_behind("-1").await;
        join.send(half() + &kept("4-0", &token("m1", "two"))).await;
        join
    };
    let request = events_request("", &format!("?last_event_id={id}"));
    let (mut response, _join) = tokio::join!(Response::to(replica, request.as_bytes()), script);
    assert_eq!(response.frame().await, "retry: 3000\n\n");
    let frame = response.frame().await;
    assert!(frame.contains(r#""delta":"two""#), "{frame}");
    assert_values(
        &metrics,
        &[
            (r#"resumes_total{kind="replay"}"#, 1.0),
            (r#"resumes_total{kind="log"}"#, 0.0),
            (r#"resyncs_total{reason="joined"}"#, 0.0),
            (r#"runs_started_total{origin="joined"}"#, 1.0),
            (r#"runs_started_total{origin="started"}"#, 0.0),
        ],
    );
}

#[tokio::test]
async fn answer_that_is_cut_is_a_failure_of_the_upstream() {
    let gateway = Gateway::acquainted().await;
    let kind = r#"upstream_errors_total{kind="not_understood"}"#;
    let cut = async |line: &str, body: &str| {
        gateway.upstream.expect(line).await.json(200, body).await;
    };
    let (state, runs) = (
        format!("GET /threads/{THREAD}/state"),
        format!("GET /threads/{THREAD}/runs?limit=100{COLUMNS}"),
    );
    let input = input(&["hi"]);
    let (_, ()) = tokio::join!(gateway.post(&input), cut(&state, r#"{"values":{"#));
    assert_values(&gateway.metrics, &[(kind, 1.0)]);
    let (_, ()) = tokio::join!(gateway.connect(&input), cut(&runs, r#"[{"run_id":"#));
    assert_values(&gateway.metrics, &[(kind, 2.0)]);
}

#[tokio::test]
async fn request_that_is_given_up_is_a_timeout_of_the_upstream() {
    let gateway = Gateway::acquainted().await;
    let request = b"GET /agui/info HTTP/1.1\r\nhost: h\r\n\r\n";
    let unanswered = async {
        let asked = gateway.upstream.expect("POST /assistants/search").await;
        let clock = HeldClock::pause();
        clock.advance(Duration::from_secs(4)).await;
        (asked, clock)
    };
    let (response, _open) = tokio::join!(Response::to(gateway.address, request), unanswered);
    assert!(response.head.starts_with("HTTP/1.1 504 "), "{}", response.head);
    assert_values(&gateway.metrics, &[(r#"upstream_errors_total{kind="timeout"}"#, 1.0)]);
}

#[tokio::test]
async fn stream_that_is_joined_again_is_counted_by_its_reason() {
    let gateway = Gateway::start().await;
    let (_response, run, _) = half_told(&gateway).await;
    run.cut();
    let line = format!("GET /threads/{THREAD}/runs/{RUN}/stream");
    let mut run = gateway.upstream.expect(&line).await;
    run.begin("").await;
    assert_values(
        &gateway.metrics,
        &[
            (r#"upstream_rejoins_total{reason="cut"}"#, 1.0),
            (r#"upstream_rejoins_total{reason="ended"}"#, 0.0),
            (r#"upstream_errors_total{kind="interrupted"}"#, 1.0),
        ],
    );
}

/// LangGraph answers 404 for a new chat, which is no error of the server.
#[tokio::test]
async fn new_chat_is_no_error_of_the_upstream() {
    let gateway = Gateway::start().await;
    let connect = connect_request("", &input(&[]));
    let script = async {
        for _ in 0..2 {
            gateway.upstream.next().await.json(404, r#"{"detail":"Thread not found"}"#).await;
        }
    };
    let (mut response, ()) =
        tokio::join!(Response::to(gateway.address, connect.as_bytes()), script);
    assert!(response.body().await.contains("RUN_FINISHED"));
    let (_response, _run) = gateway.run().await;
    assert_values(
        &gateway.metrics,
        &[
            (r#"upstream_requests_total{operation="thread_state",outcome="not_found"}"#, 2.0),
            (r#"upstream_requests_total{operation="runs",outcome="not_found"}"#, 1.0),
            (r#"upstream_errors_total{kind="not_found"}"#, 0.0),
        ],
    );
}

#[tokio::test]
async fn server_without_a_route_that_every_langgraph_has_is_an_error() {
    let gateway = Gateway::start().await;
    let info = b"GET /agui/info HTTP/1.1\r\nhost: h\r\n\r\n";
    let script = async {
        let search = gateway.upstream.expect("POST /assistants/search").await;
        search.json(404, r#"{"detail":"Not Found"}"#).await;
    };
    let (mut response, ()) = tokio::join!(Response::to(gateway.address, info), script);
    response.body().await;
    assert_values(&gateway.metrics, &[(r#"upstream_errors_total{kind="not_found"}"#, 1.0)]);
}

// === metrics of refusals ===

#[tokio::test]
async fn refusals_are_counted_by_their_codes_and_nothing_of_theirs_is_a_label() {
    let gateway = Gateway::start().await;
    let mut refused = gateway.post_raw("no JSON s3cret").await;
    refused.body().await;
    let odd = "GET /agui/s3cret?s3cret=1 HTTP/1.1\r\nhost: h\r\nx-s3cret: s3cret\r\n\r\n";
    Response::to(gateway.address, odd.as_bytes()).await.body().await;
    let odd = "DELETE /agui/agent/s3cret/run HTTP/1.1\r\nhost: h\r\n\r\n";
    Response::to(gateway.address, odd.as_bytes()).await;
    assert_values(
        &gateway.metrics,
        &[
            (r#"requests_refused_total{reason="invalid_request"}"#, 1.0),
            (r#"requests_refused_total{reason="unknown_route"}"#, 1.0),
            (r#"requests_refused_total{reason="wrong_method"}"#, 1.0),
            (r#"requests_total{route="run",status="4xx"}"#, 2.0),
            (r#"requests_total{route="unknown",status="4xx"}"#, 1.0),
        ],
    );
    for format in [Format::OpenMetrics, Format::Prometheus] {
        assert!(!gateway.metrics.text(format).contains("s3cret"));
    }
}

#[tokio::test]
async fn connection_beyond_the_limit_is_counted() {
    let gateway = Gateway::with(Limits { connections: 1, ..Limits::default() }).await;
    let (_response, _run) = gateway.run().await;
    let health = b"GET /healthz HTTP/1.1\r\nhost: h\r\n\r\n";
    let response = Response::to(gateway.address, health).await;
    assert!(response.head.starts_with("HTTP/1.1 503"), "{}", response.head);
    assert_values(&gateway.metrics, &[("connections_refused_total", 1.0)]);
}

// === the text format ===

#[test]
fn families_have_a_type_and_a_help_in_both_formats() {
    let metrics = Metrics::default();
    metrics.refused("invalid_request");
    let open = metrics.text(Format::OpenMetrics);
    assert!(open.ends_with("# EOF\n"));
    assert!(open.contains("# TYPE threadway_resumes counter\nthreadway_resumes_total{kind="));
    assert!(open.contains("# UNIT threadway_added_latency_seconds seconds\n"));
    let old = metrics.text(Format::Prometheus);
    assert!(old.contains("# TYPE threadway_resumes_total counter\nthreadway_resumes_total{kind="));
    assert!(old.contains("# HELP threadway_resumes_total Clients"));
    assert!(old.contains("# TYPE threadway_stream_bytes histogram\n"));
    assert!(!old.contains("# UNIT") && !old.contains("# EOF"));
    let version = env!("CARGO_PKG_VERSION");
    assert!(old.contains(&format!("threadway_build_info{{version=\"{version}\"}} 1\n")));
    let names = |text: &str, kind: &str| {
        text.lines().filter(|line| line.starts_with(&format!("# {kind} "))).count()
    };
    assert!(names(&open, "HELP") > 20);
    for text in [&open, &old] {
        assert_eq!(names(text, "HELP"), names(text, "TYPE"));
        assert_eq!(names(text, "HELP"), names(&open, "HELP"));
    }
}

// === the admin listener ===

struct Admin {
    address: SocketAddr,
    stop: CancellationToken,
    serving: JoinSet<()>,
}

impl Admin {
    async fn of(gateway: &Gateway) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let (server, on_stop) = (Arc::clone(&gateway.server), stop.clone());
        let mut serving = JoinSet::new();
        serving.spawn(async move { server.serve_admin(listener, on_stop).await });
        Self { address, stop, serving }
    }

    async fn get(&self, route: &str, headers: &str) -> Response {
        let request =
            format!("GET {route} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n{headers}\r\n");
        Response::to(self.address, request.as_bytes()).await
    }
}

#[tokio::test]
async fn admin_listener_tells_metrics_in_the_format_that_is_asked_for() {
    let gateway = Gateway::start().await;
    let admin = Admin::of(&gateway).await;
    let open = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let old = "text/plain; version=0.0.4; charset=utf-8";
    let prometheus = "accept: application/openmetrics-text;version=1.0.0;q=0.5,text/plain;\
                      version=0.0.4;q=0.3,*/*;q=0.1\r\n";
    for (accept, expected) in
        [(prometheus, open), ("accept: text/plain\r\n", old), ("accept: */*\r\n", old), ("", old)]
    {
        let mut response = admin.get("/metrics", accept).await;
        assert!(response.head.starts_with("HTTP/1.1 200"), "{}", response.head);
        assert!(response.head.contains(&format!("content-type: {expected}\r\n")), "{accept}");
        let body = response.body().await;
        assert_eq!(body.ends_with("# EOF\n"), expected == open, "{accept}");
        assert!(body.contains("threadway_build_info{"), "{body}");
    }
    let mut unknown = admin.get("/agui/info", "").await;
    assert!(unknown.head.starts_with("HTTP/1.1 404"), "{}", unknown.head);
    assert!(unknown.body().await.contains("/metrics"));
    // The clients' listener does not serve the metrics.
    let metrics = b"GET /metrics HTTP/1.1\r\nhost: h\r\n\r\n";
    let refused = Response::to(gateway.address, metrics).await;
    assert!(refused.head.starts_with("HTTP/1.1 404"), "{}", refused.head);
}

#[tokio::test]
async fn admin_listener_is_there_until_the_gateway_has_come_to_rest() {
    let gateway = Gateway::start().await;
    let mut admin = Admin::of(&gateway).await;
    let script = async {
        gateway.upstream.expect("GET /ok").await.json(200, r#"{"ok":true}"#).await;
    };
    let (mut ready, ()) = tokio::join!(admin.get("/readyz", ""), script);
    assert!(ready.head.starts_with("HTTP/1.1 200"), "{}", ready.head);
    assert_eq!(ready.body().await, "{\"ready\":true,\"upstreams\":{\"default\":\"ok\"}}\n");
    assert_eq!(admin.get("/healthz", "").await.body().await, "ok\n");
    gateway.stop.cancel();
    gateway.stopped().await;
    let draining = admin.get("/readyz", "").await;
    assert!(draining.head.starts_with("HTTP/1.1 503"), "{}", draining.head);
    assert!(admin.get("/metrics", "").await.head.starts_with("HTTP/1.1 200"));
    admin.stop.cancel();
    while let Some(ended) = admin.serving.join_next().await {
        ended.unwrap();
    }
}

#[tokio::test]
async fn admin_listener_answers_to_no_name_that_a_web_site_could_own() {
    let gateway = Gateway::start().await;
    let admin = Admin::of(&gateway).await;
    let port = admin.address.port();
    let own = [format!("127.0.0.1:{port}"), format!("localhost:{port}"), "[::1]".to_owned()];
    let own = own.iter().map(String::as_str).chain(["127.0.0.1", "localhost"]);
    let foreign = ["evil.example", "evil.example:80", "127.0.0.1.evil.example"];
    let all = own.map(|host| (host, "200")).chain(foreign.map(|host| (host, "403")));
    for (host, status) in all {
        let request = format!("GET /metrics HTTP/1.1\r\nhost: {host}\r\n\r\n");
        let response = Response::to(admin.address, request.as_bytes()).await;
        let expected = format!("HTTP/1.1 {status} ");
        assert!(response.head.starts_with(&expected), "{host}: {}", response.head);
    }
}

#[tokio::test]
async fn connections_that_say_nothing_do_not_keep_the_metrics_away() {
    let gateway = Gateway::start().await;
    let admin = Admin::of(&gateway).await;
    let mut silent = Vec::new();
    for _ in 0..300 {
        silent.push(TcpStream::connect(admin.address).await.unwrap());
    }
    let _clock = HeldClock::pause();
    assert!(admin.get("/metrics", "").await.head.starts_with("HTTP/1.1 200"));
}
