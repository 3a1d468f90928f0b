//! An upstream with two addresses: where requests go when one of them is away.

use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use crate::support::clock::HeldClock;
use crate::support::gateway::{
    RUN, Response, THREAD, counted, data, events_request, finished, input, post, refusal, refused,
    run_request, serve_observed, started, timely, token, told, values,
};
use crate::support::upstream::{Exchange, Upstream};
use http::HeaderMap;
use serde_json::json;
use threadway::agents::{self, Agents};
use threadway::metrics::Metrics;
use threadway::server::{Observer, Settings};
use threadway::upstream::{ADDRESS_PAUSE, Client, LONGEST_ADDRESS_PAUSE, TRIAL_TIMEOUT, Tls};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// After how long a read goes to a second address too.
const HEDGE_AFTER: Duration = Duration::from_secs(3);

const KEY: &str = "of-the-gateway";
const LIST: &str = "POST /assistants/search";
const JOIN: &str = "GET /threads/0f9cfe5e-7d44-4d4f-8aef-a4e7c1d4a2a1/runs/01a200b7-5ee6-7592-b13b-546489e59c9e/stream";

/// A gateway in front of one LangGraph server with two addresses.
struct Gateway {
    address: SocketAddr,
    metrics: Metrics,
    _stop: CancellationToken,
    _serving: JoinSet<()>,
}

// === impl Gateway ===

impl Gateway {
    async fn before(first: &Upstream, second: &Upstream) -> Self {
        Self::at(&first.url(), &second.url()).await
    }

    async fn at(first: &str, second: &str) -> Self {
        let metrics = Metrics::default();
        let observer = Observer { metrics: metrics.clone(), tracer: None };
        let agents = agents_at(&[first, second], &metrics);
        let (address, stop, serving, _) =
            serve_observed(agents, Settings::default(), observer).await;
        Self { address, metrics, _stop: stop, _serving: serving }
    }

    async fn post(&self) -> Response {
        post(self.address, "", &input(&["hi"]).to_string()).await
    }

    /// Starts a run on a new thread at this address. Returns the open stream.
    async fn run_at(&self, upstream: &Upstream) -> (Response, Exchange) {
        let (mut response, run) = tokio::join!(self.post(), async {
            no_state(upstream).await;
            started_at(upstream).await
        });
        assert_eq!(response.frame().await, "retry: 3000\n\n");
        assert_eq!(response.frame().await, started());
        (response, run)
    }

    /// Lists the agents, which this address must be asked for.
    async fn lists_at(&self, upstream: &Upstream) {
        let listed = async { upstream.expect(LIST).await.json(200, "[]").await };
        let (status, ()) = tokio::join!(self.list(), listed);
        assert_eq!(status, "200");
    }

    /// Lists the agents. Returns the status.
    async fn list(&self) -> String {
        let request = "GET /agui/info HTTP/1.1\r\nhost: h\r\n\r\n";
        let response = Response::to(self.address, request.as_bytes()).await;
        response.head.split(' ').nth(1).unwrap().to_owned()
    }

    /// Lets the gateway do what is due, and then some time pass.
    async fn passes(&self, clock: &HeldClock) {
        let request = b"GET /healthz HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n";
        Response::to(self.address, request).await;
        clock.advance(Duration::from_millis(3)).await;
    }

    /// Waits until this many changes of address were counted.
    async fn has_changed(&self, reason: &str, times: u8) {
        let series = format!("upstream_address_changes_total{{reason=\"{reason}\"}}");
        while counted(&self.metrics, &series).total_cmp(&f64::from(times)).is_ne() {
            tokio::task::yield_now().await;
        }
    }
}

fn agents_at(urls: &[&str], metrics: &Metrics) -> Agents {
    let mut urls = urls.iter().map(|url| url.parse().unwrap());
    let (first, others) = (urls.next().unwrap(), urls.collect());
    let key = Some(KEY.parse().unwrap());
    let client = Client::at(first, others, key, HeaderMap::new(), &Tls::default()).unwrap();
    let upstream =
        agents::Upstream { name: "default".to_owned(), client: client.with_metrics(metrics) };
    Agents::new(vec![upstream], Vec::new())
}

/// A URL at which no server listens.
async fn closed() -> String {
    Upstream::bind().await.url()
}

/// Answers the request for the state of a thread that does not exist.
async fn no_state(upstream: &Upstream) {
    let get = upstream.expect(&format!("GET /threads/{THREAD}/state")).await;
    get.json(404, r#"{"detail":"Thread not found"}"#).await;
}

/// Accepts the start of the run, and begins its stream.
async fn started_at(upstream: &Upstream) -> Exchange {
    let mut post = upstream.expect(&format!("POST /threads/{THREAD}/runs/stream")).await;
    post.begin(&format!("content-location: /threads/{THREAD}/runs/{RUN}\r\n")).await;
    post
}

/// Accepts a join after this event.
async fn joined_at(upstream: &Upstream, after: &str) -> Exchange {
    let mut join = upstream.expect(JOIN).await;
    assert!(join.head.contains(&format!("\r\nlast-event-id: {after}\r\n")), "{}", join.head);
    join.begin("").await;
    join
}

/// Answers the request for the run's record.
async fn record_at(upstream: &Upstream, status: &str) {
    let get = upstream.expect(&format!("GET /threads/{THREAD}/runs/{RUN}")).await;
    get.json(200, &json!({"run_id": RUN, "status": status}).to_string()).await;
}

fn identified(id: &str, part: &str) -> String {
    format!("id: {id}\r\n{part}")
}

// === which address ===

#[tokio::test]
async fn a_run_is_started_at_the_next_address_if_the_first_accepts_no_connection() {
    let second = Upstream::bind().await;
    let gateway = Gateway::at(&closed().await, &second.url()).await;
    let (mut response, mut run) = gateway.run_at(&second).await;
    run.send(token("a", "one")).await;
    assert_eq!(response.frame().await + &response.frame().await, told("a", "one"));
    gateway.has_changed("failed", 1).await;
    // The failed attempt is counted, although its request was answered.
    let unreachable = counted(&gateway.metrics, r#"upstream_errors_total{kind="unreachable"}"#);
    assert!(unreachable >= 1.0, "{unreachable}");
    let started =
        counted(&gateway.metrics, r#"upstream_requests_total{operation="start_run",outcome="ok"}"#);
    assert!((started - 1.0).abs() < f64::EPSILON, "{started}");
}

#[tokio::test]
async fn a_run_whose_request_was_not_sent_is_started_at_the_next_address() {
    let (first, second) = (Upstream::bind().await, Upstream::bind().await);
    let gateway = Gateway::before(&first, &second).await;
    let script = async {
        let get = first.expect(&format!("GET /threads/{THREAD}/state")).await;
        drop(first);
        tokio::task::yield_now().await;
        get.json(404, r#"{"detail":"Thread not found"}"#).await;
        started_at(&second).await
    };
    let (mut response, _run) = tokio::join!(gateway.post(), script);
    assert_eq!(response.frame().await, "retry: 3000\n\n");
    assert_eq!(response.frame().await, started());
}

#[tokio::test]
async fn an_address_that_does_not_speak_tls_as_its_url_says_is_passed_over() {
    let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", plain.local_addr().unwrap());
    let mut answering = JoinSet::new();
    answering.spawn(async move {
        loop {
            let (mut socket, _) = plain.accept().await.unwrap();
            let mut hello = [0; 4096];
            assert_ne!(socket.read(&mut hello).await.unwrap(), 0);
            assert!(!String::from_utf8_lossy(&hello).contains(KEY));
            let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let second = Upstream::bind().await;
    let gateway = Gateway::at(&url, &second.url()).await;
    gateway.lists_at(&second).await;
    gateway.has_changed("failed", 1).await;
}

#[tokio::test]
async fn the_first_address_is_used_while_it_answers() {
    let (first, second) = (Upstream::bind().await, Upstream::bind().await);
    let gateway = Gateway::before(&first, &second).await;
    gateway.lists_at(&first).await;
    let (_response, _run) = gateway.run_at(&first).await;
    // An answer is an answer.
    let refuses = async { first.expect(LIST).await.json(500, "{}").await };
    assert_eq!(tokio::join!(gateway.list(), refuses).0, "502");
    gateway.lists_at(&first).await;
    second.is_untouched().await;
}

#[tokio::test]
async fn addresses_that_are_all_away_are_one_upstream_that_is_away() {
    let gateway = Gateway::at(&closed().await, &closed().await).await;
    let message = "the LangGraph server cannot be reached: Connection refused (os error 111); \
                   check that it runs, and the upstream's URL";
    let expected = refusal("502 Bad Gateway", "upstream_unreachable", message);
    for _ in 0..3 {
        assert_eq!(refused(&mut gateway.post().await).await, expected);
    }
}

#[tokio::test]
async fn an_address_that_returns_is_tried_and_then_used_again() {
    let (first, second) = (Upstream::bind().await, Upstream::bind().await);
    let gateway = Gateway::before(&first, &second).await;
    let clock = HeldClock::pause();
    let first = first.leave().await;
    gateway.lists_at(&second).await;
    let first = first.returns();
    // Nobody waits for the trial: it is made beside a request that another address answers.
    clock.advance(ADDRESS_PAUSE).await;
    gateway.lists_at(&second).await;
    let trial = first.expect("GET /ok").await;
    assert!(trial.head.contains(&format!("\r\nx-api-key: {KEY}\r\n")), "{}", trial.head);
    // There is one trial at a time.
    gateway.lists_at(&second).await;
    trial.json(503, "{}").await;
    gateway.lists_at(&second).await;
    clock.advance(2 * ADDRESS_PAUSE).await;
    gateway.lists_at(&second).await;
    first.expect("GET /ok").await.json(200, r#"{"ok":true}"#).await;
    gateway.has_changed("returned", 1).await;
    gateway.lists_at(&first).await;
    second.is_untouched().await;
}

#[tokio::test]
async fn an_address_that_does_not_answer_a_trial_is_tried_again_later() {
    let (first, second) = (Upstream::bind().await, Upstream::bind().await);
    let gateway = Gateway::before(&first, &second).await;
    let clock = HeldClock::pause();
    let first = first.leave().await;
    gateway.lists_at(&second).await;
    let first = first.returns();
    clock.advance(ADDRESS_PAUSE).await;
    gateway.lists_at(&second).await;
    let silent = first.expect("GET /ok").await;
    clock.advance(TRIAL_TIMEOUT).await;
    silent.closed().await;
    gateway.lists_at(&second).await;
    clock.advance(LONGEST_ADDRESS_PAUSE).await;
    gateway.lists_at(&second).await;
    first.expect("GET /ok").await.json(200, r#"{"ok":true}"#).await;
    gateway.has_changed("returned", 1).await;
    gateway.lists_at(&first).await;
}

#[tokio::test]
async fn it_is_ready_while_one_address_is() {
    let second = Upstream::bind().await;
    let gateway = Gateway::at(&closed().await, &second.url()).await;
    let ready = b"GET /readyz HTTP/1.1\r\nhost: h\r\n\r\n";
    let answers = async { second.expect("GET /ok").await.json(200, r#"{"ok":true}"#).await };
    let (mut response, ()) = tokio::join!(Response::to(gateway.address, ready), answers);
    assert!(response.head.starts_with("HTTP/1.1 200 OK\r\n"), "{}", response.head);
    assert_eq!(response.body().await, "{\"ready\":true,\"upstreams\":{\"default\":\"ok\"}}\n");

    let gateway = Gateway::at(&closed().await, &closed().await).await;
    let mut response = Response::to(gateway.address, ready).await;
    assert!(response.head.starts_with("HTTP/1.1 503 "), "{}", response.head);
    let expected = "{\"ready\":false,\"upstreams\":{\"default\":\"unreachable\"}}\n";
    assert_eq!(response.body().await, expected);
}

// === nothing is done twice ===

#[tokio::test]
async fn a_run_that_may_have_been_started_is_not_started_elsewhere() {
    let (first, second) = (Upstream::bind().await, Upstream::bind().await);
    let gateway = Gateway::before(&first, &second).await;
    for (fault, reason) in [
        (Exchange::reset as fn(_), "Connection reset by peer (os error 104)"),
        (Exchange::cut, "connection closed before message completed"),
    ] {
        let script = async {
            no_state(&first).await;
            fault(first.expect(&format!("POST /threads/{THREAD}/runs/stream")).await);
            first.has_no_such_run().await;
        };
        let posted = async { tokio::join!(gateway.post(), script) };
        let (mut response, ()) = timely(gateway.address, posted).await;
        let message = format!(
            "the connection to the LangGraph server broke: {reason}; it has no run of this \
             request; send the request again"
        );
        let expected = refusal("502 Bad Gateway", "run_not_started", &message);
        assert_eq!(refused(&mut response).await, expected);
        second.is_untouched().await;
    }
    // A proxy that does not reach the server may have sent it the request.
    for status in [502, 503, 504] {
        let script = async {
            no_state(&first).await;
            let post = first.expect(&format!("POST /threads/{THREAD}/runs/stream")).await;
            post.json(status, "{}").await;
            first.has_no_such_run().await;
        };
        let posted = async { tokio::join!(gateway.post(), script) };
        let (response, ()) = timely(gateway.address, posted).await;
        assert!(response.head.starts_with("HTTP/1.1 502 "), "{}", response.head);
        second.is_untouched().await;
    }
}

#[tokio::test]
async fn a_run_that_is_not_answered_is_not_started_elsewhere_and_the_next_one_is() {
    let (first, second) = (Upstream::bind().await, Upstream::bind().await);
    let gateway = Gateway::before(&first, &second).await;
    let script = async {
        no_state(&first).await;
        let post = first.expect(&format!("POST /threads/{THREAD}/runs/stream")).await;
        post.closed().await;
        // The first address is away, so the run is looked up at the second.
        second.has_no_such_run().await;
    };
    let posted = async { tokio::join!(gateway.post(), script) };
    let (mut response, ()) = timely(gateway.address, posted).await;
    let (status, body) = refused(&mut response).await;
    assert_eq!(status, "HTTP/1.1 502 Bad Gateway");
    assert!(body.contains("run_not_started"), "{body}");
    gateway.has_changed("failed", 1).await;
    gateway.lists_at(&second).await;
}

#[tokio::test]
async fn a_read_that_breaks_or_meets_a_proxy_without_its_server_goes_on_to_the_next_address() {
    let (first, second) = (Upstream::bind().await, Upstream::bind().await);
    let gateway = Gateway::before(&first, &second).await;
    for status in [None, Some(503)] {
        let script = async {
            let get = first.expect(&format!("GET /threads/{THREAD}/state")).await;
            match status {
                None => get.cut(),
                Some(status) => get.json(status, "{}").await,
            }
            no_state(&second).await;
            // One failure does not mean that the first address is away.
            started_at(&first).await
        };
        let (mut response, run) = tokio::join!(gateway.post(), script);
        assert_eq!(response.frame().await, "retry: 3000\n\n");
        assert_eq!(response.frame().await, started());
        run.end().await;
        record_at(&first, "interrupted").await;
        no_state(&first).await;
        response.body().await;
    }
}

// === live runs ===

#[tokio::test]
async fn a_run_goes_on_at_the_next_address_after_the_last_event() {
    let (first, second) = (Upstream::bind().await, Upstream::bind().await);
    let gateway = Gateway::before(&first, &second).await;
    let (mut response, mut run) = gateway.run_at(&first).await;
    run.send(identified("7-0", &token("a", "one"))).await;
    run.send(identified("8-0", &token("a", " two"))).await;
    assert_eq!(response.frame().await + &response.frame().await, told("a", "one"));
    let more = |text: &str| {
        data(&format!(r#"{{"type":"TEXT_MESSAGE_CONTENT","messageId":"a","delta":"{text}"}}"#))
    };
    assert_eq!(response.frame().await, more(" two"));
    drop(first);
    run.cut();
    // The gateway asks for the last part again, because it may be a repeat.
    let mut run = joined_at(&second, "7-0").await;
    run.send(identified("8-0", &token("a", " two")) + &identified("9-0", &token("a", " three")))
        .await;
    assert_eq!(response.frame().await, more(" three"));
    run.end().await;
    record_at(&second, "success").await;
    let state = json!({"values": values(&["hi", "one two three"]), "metadata": {"run_id": RUN}});
    let get = second.expect(&format!("GET /threads/{THREAD}/state")).await;
    get.json(200, &state.to_string()).await;
    let body = response.body().await;
    assert!(body.ends_with(&finished("success")), "{body}");
    assert!(!body.contains("RUN_ERROR"), "{body}");
}

#[tokio::test]
async fn a_run_that_the_next_address_does_not_know_is_gone() {
    let (first, second) = (Upstream::bind().await, Upstream::bind().await);
    let gateway = Gateway::before(&first, &second).await;
    let (mut response, mut run) = gateway.run_at(&first).await;
    run.send(token("a", "one")).await;
    drop(first);
    run.cut();
    // A server that keeps its runs in memory.
    let not_found = r#"{"detail":"Not Found"}"#;
    second.expect(JOIN).await.json(404, not_found).await;
    second.expect(&format!("GET /threads/{THREAD}/runs/{RUN}")).await.json(404, not_found).await;
    second.expect(&format!("GET /threads/{THREAD}/state")).await.json(404, not_found).await;
    let body = response.body().await;
    assert!(body.contains(r#""code":"run_gone""#), "{body}");
}

#[tokio::test]
async fn a_run_stays_at_its_address_while_that_answers() {
    let second = Upstream::bind().await;
    let gone = Upstream::bind().await;
    let gateway = Gateway::before(&gone, &second).await;
    let gone = gone.leave().await;
    let clock = HeldClock::pause();
    let (mut response, mut run) = gateway.run_at(&second).await;
    run.send(identified("7-0", &token("a", "one"))).await;
    assert_eq!(response.frame().await + &response.frame().await, told("a", "one"));

    // The first address is back.
    let first = gone.returns();
    clock.advance(ADDRESS_PAUSE).await;
    let list = async { second.expect(LIST).await.json(200, "[]").await };
    let trial = async { first.expect("GET /ok").await.json(200, r#"{"ok":true}"#).await };
    tokio::join!(gateway.list(), list, trial);
    gateway.has_changed("returned", 1).await;
    gateway.lists_at(&first).await;

    // The requests about the run, and a join after a cut, go where it is.
    let stop = format!(
        "POST /agui/agent/agent/stop/{THREAD} HTTP/1.1\r\nhost: h\r\ncontent-length: 0\r\n\r\n"
    );
    let stopped = async {
        let running = json!([{"run_id": RUN, "status": "running"}]).to_string();
        for runs in ["[]", &running] {
            let list = second.next().await;
            assert!(list.line.starts_with(&format!("GET /threads/{THREAD}/runs?status=")));
            list.json(200, runs).await;
        }
        let cancel = format!("POST /threads/{THREAD}/runs/{RUN}/cancel");
        second.expect(&cancel).await.json(200, "{}").await;
    };
    let (answer, ()) = tokio::join!(Response::to(gateway.address, stop.as_bytes()), stopped);
    assert!(answer.head.starts_with("HTTP/1.1 200 "), "{}", answer.head);
    run.cut();
    let mut joined = pin!(joined_at(&second, "-1"));
    let run = loop {
        tokio::select! {
            biased;
            run = &mut joined => break run,
            () = gateway.passes(&clock) => {}
        }
    };
    run.end().await;
    record_at(&second, "interrupted").await;
    let get = second.expect(&format!("GET /threads/{THREAD}/state")).await;
    get.json(404, "{}").await;
    response.body().await;

    // The run is over, so its thread is read at the first address again.
    while counted(&gateway.metrics, "active_runs") > 0.0 {
        tokio::task::yield_now().await;
    }
    let request = events_request("", "");
    let script = async {
        let list = first.next().await;
        assert!(list.line.starts_with(&format!("GET /threads/{THREAD}/runs?")), "{}", list.line);
        list.json(404, r#"{"detail":"Thread not found"}"#).await;
        no_state(&first).await;
        first.next().await
    };
    tokio::select! {
        _ = Response::to(gateway.address, request.as_bytes()) => {}
        more = script => panic!("{}", more.line),
    }
    second.is_untouched().await;
}

// === credentials ===

#[tokio::test]
async fn every_address_of_an_upstream_gets_its_credentials_and_no_other_server() {
    let (first, second, elsewhere) =
        (Upstream::bind().await, Upstream::bind().await, Upstream::bind().await);
    let gateway = Gateway::before(&first, &second).await;
    let credentials = "authorization: Bearer mine\r\n";
    let is_complete = |exchange: &Exchange| {
        let has = |header: &str| exchange.head.contains(&format!("\r\n{header}\r\n"));
        assert!(has("authorization: Bearer mine") && has(&format!("x-api-key: {KEY}")));
        let host = exchange.head.lines().find_map(|line| line.strip_prefix("host: "));
        host.unwrap().to_owned()
    };
    let request = run_request("agent", credentials, &input(&["hi"]).to_string());
    let script = async {
        let state = format!("GET /threads/{THREAD}/state");
        let get = first.expect(&state).await;
        assert_eq!(is_complete(&get), first.address().to_string());
        get.cut();
        let get = second.expect(&state).await;
        assert_eq!(is_complete(&get), second.address().to_string());
        get.redirect(307, &format!("{}/threads/{THREAD}/state", elsewhere.url())).await;
    };
    let asked = async {
        let (response, ()) =
            tokio::join!(Response::to(gateway.address, request.as_bytes()), script);
        response
    };
    let response = tokio::select! {
        response = asked => response,
        followed = elsewhere.accept() => panic!("the redirect was followed:\n{}", followed.head),
    };
    assert!(response.head.starts_with("HTTP/1.1 502 "), "{}", response.head);
    elsewhere.is_untouched().await;
}

#[tokio::test]
async fn a_path_and_a_query_are_the_same_at_each_address() {
    let (first, second) = (Upstream::bind().await, Upstream::bind().await);
    let urls = (format!("{}/a", first.url()), format!("{}/b/c/", second.url()));
    let gateway = Gateway::at(&urls.0, &urls.1).await;
    let script = async {
        first.expect("GET /a/info").await.json(200, "{}").await;
        let get = first.next().await;
        let line = get.line.replacen("/a/", "/b/c/", 1);
        assert!(line != get.line && line.contains("?limit="), "{}", get.line);
        get.cut();
        let again = second.next().await;
        assert_eq!(again.line, line);
        again.json(404, r#"{"detail":"Thread not found"}"#).await;
        first.next().await.json(404, r#"{"detail":"Thread not found"}"#).await;
    };
    let request = events_request("", "");
    tokio::join!(Response::to(gateway.address, request.as_bytes()), script);
}

#[tokio::test]
async fn a_read_is_sent_to_the_next_address_too_if_the_first_does_not_answer() {
    let clock = HeldClock::pause();
    let (first, second) = (Upstream::bind().await, Upstream::bind().await);
    let gateway = Gateway::before(&first, &second).await;
    let script = async {
        let silent = first.expect(LIST).await;
        clock.advance(HEDGE_AFTER).await;
        second.expect(LIST).await.json(200, "[]").await;
        silent
    };
    let (status, _silent) = tokio::join!(gateway.list(), script);
    assert_eq!(status, "200");
    // The first address counts as away at once.
    gateway.has_changed("failed", 1).await;
    gateway.lists_at(&second).await;
}

#[tokio::test]
async fn the_first_answer_counts_whichever_address_it_is_from() {
    let clock = HeldClock::pause();
    for (slow, status) in [(200, "200"), (403, "502")] {
        let (first, second) = (Upstream::bind().await, Upstream::bind().await);
        let gateway = Gateway::before(&first, &second).await;
        let script = async {
            let of_first = first.expect(LIST).await;
            clock.advance(HEDGE_AFTER).await;
            let of_second = second.expect(LIST).await;
            // A connection that breaks is no answer.
            drop(of_second);
            of_first.json(slow, "[]").await;
        };
        let (listed, ()) = tokio::join!(gateway.list(), script);
        assert_eq!(listed, status);
        gateway.lists_at(&first).await;
    }
}

#[tokio::test]
async fn a_start_is_never_sent_to_a_second_address() {
    let clock = HeldClock::pause();
    let (first, second) = (Upstream::bind().await, Upstream::bind().await);
    let gateway = Gateway::before(&first, &second).await;
    let (_response, _run) = tokio::join!(gateway.post(), async {
        no_state(&first).await;
        let run = first.expect(&format!("POST /threads/{THREAD}/runs/stream")).await;
        clock.advance(HEDGE_AFTER * 2).await;
        second.is_untouched().await;
        run.json(403, "{}").await;
    });
}
