//! The log: two lines for a run, without its content; refused requests, as many as a person can
//! read; warnings that an operator can act on.

#![cfg(test)]

mod support;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::HeaderMap;
use serde_json::{Value, json};
use support::clock::HeldClock;
use support::gateway::{
    Gateway, RUN, Response, THREAD, agents, input, part, post, run_request, serve, serve_as, token,
    values,
};
use support::upstream::Upstream;
use threadway::agents::{self as upstreams, Agents};
use threadway::server::Credentials;
use threadway::server::{Auth, Cors, Limits, REFUSALS_PER_SECOND, Settings};
use threadway::server::{MAX_LOGGED_ORIGINS, ORIGIN_LOG_PAUSE};
use threadway::upstream::{ADDRESS_PAUSE, Client, OUTAGE_FAILURES, OUTAGE_LOG_INTERVAL, Tls};
use tokio::task::JoinSet;
use tracing::Level;
use tracing::subscriber::DefaultGuard;

/// The captured log.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    /// Captures what this thread logs up to a level, while the guard exists.
    fn up_to(level: Level) -> (Self, DefaultGuard) {
        let lines = Self::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .with_max_level(level)
            .with_writer(move || writer.clone())
            .finish();
        (lines, tracing::subscriber::set_default(subscriber))
    }

    /// The lines with this message, each a JSON object.
    fn with(&self, message: &str) -> Vec<Value> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line["message"] == message).collect()
    }
}

#[tokio::test]
async fn the_lines_of_a_run_tell_nothing_that_was_said() {
    let (lines, _logging) = Lines::up_to(Level::TRACE);
    let gateway = Gateway::start().await;

    let (mut response, mut run) = gateway.run().await;
    let sent = [
        token("a", "s3cret"),
        part("values", &values(&["hi", "s3cret"])),
        part("error", &json!({"error": "ValueError", "message": "s3cret"})),
    ];
    for part in &sent {
        run.send(part).await;
    }
    run.end().await;
    gateway.status("error").await;
    gateway.state(Some(json!({"values": values(&["hi"]), "metadata": {"run_id": RUN}}))).await;
    assert!(response.body().await.contains("RUN_ERROR"));
    gateway.settled().await;

    let ended = lines.with("run ended");
    let [line] = &*ended else { panic!("{ended:#?}") };
    assert_eq!(line["level"], "INFO");
    for (field, value) in [
        ("thread_id", json!(THREAD)),
        ("run_id", json!(RUN)),
        ("outcome", json!("failed")),
        ("code", json!("ValueError")),
        ("bytes", json!(sent.iter().map(String::len).sum::<usize>())),
    ] {
        assert_eq!(line[field], value, "{field} in {line}");
    }
    assert!(line["events"].as_u64().unwrap() > 3, "{line}");
    let hundredths = line["seconds"].as_f64().unwrap() * 100.0;
    assert!((0.0..6_000.0).contains(&hundredths), "{line}");
    assert!((hundredths - hundredths.round()).abs() < 1e-6, "{line}");
    // The gateway does not silence its libraries, such as hyper, and it also logs below `info`
    // itself.
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let ours = text.lines().filter(|line| line.contains(r#""target":"threadway"#));
    for line in ours {
        assert!(!line.contains("s3cret"), "{line}");
    }
}

#[tokio::test]
async fn the_lines_of_a_run_name_its_agent_its_thread_its_caller_and_its_tokens() {
    const KEY: &str = "0123456789abcdef";
    let (lines, _logging) = Lines::up_to(Level::INFO);
    let upstream = Upstream::bind().await;
    let agents = agents(&[("default", &upstream.url())], &[("helper", "agent")]);
    let auth = Auth::Bearer(format!("backend={KEY}").parse().unwrap());
    let settings = Settings { auth, ..Settings::default() };
    let (address, _stop, _serving, _server) = serve_as(agents, settings).await;

    let mut input = input(&["hi"]);
    input["threadId"] = json!(format!("chat 1{}", "x".repeat(1_000)));
    let headers = format!("authorization: Bearer {KEY}\r\n");
    let request = run_request("helper", &headers, &input.to_string());
    let script = async {
        upstream.next().await.json(404, r#"{"detail":"Thread not found"}"#).await;
        upstream.expect("POST /threads").await.json(200, "{}").await;
        let mut post = upstream.next().await;
        post.begin(&format!("content-location: /threads/T/runs/{RUN}\r\n")).await;
        post
    };
    let (mut response, mut run) = tokio::join!(Response::to(address, request.as_bytes()), script);
    let thread_id = run.line.split('/').nth(2).unwrap().to_owned();
    let answer = json!({
        "type": "ai", "id": "a", "content": "hello",
        "usage_metadata": {"input_tokens": 30, "output_tokens": 12, "total_tokens": 42},
    });
    let mut state = values(&["hi"]);
    state["messages"].as_array_mut().unwrap().push(answer);
    run.send(part("values", &values(&["hi"])) + &token("a", "hello")).await;
    run.send(part("values", &state)).await;
    run.end().await;
    let end = async {
        let record = json!({"run_id": RUN, "status": "success"}).to_string();
        upstream.next().await.json(200, &record).await;
        let state = json!({"values": state, "metadata": {"run_id": RUN}});
        upstream.next().await.json(200, &state.to_string()).await;
    };
    let (body, ()) = tokio::join!(response.body(), end);
    assert!(body.contains("RUN_FINISHED"), "{body}");

    let (started, ended) = (lines.with("run started"), lines.with("run ended"));
    let ([started], [ended]) = (&*started, &*ended) else { panic!("{started:#?} {ended:#?}") };
    for line in [started, ended] {
        assert_eq!(line["level"], "INFO");
        assert_eq!(line["agent"], "helper");
        let thread = line["thread"].as_str().unwrap();
        assert!(thread.starts_with("chat 1x") && thread.len() == 128, "{thread}");
        assert_eq!(line["thread_id"], thread_id.as_str());
        assert_eq!(line["run_id"], RUN);
        assert_eq!(line["caller"], "backend");
        assert!(!line.to_string().contains(KEY), "{line}");
    }
    assert_eq!(ended["origin"], "started");
    assert_eq!(ended["outcome"], "finished");
    assert_eq!((&ended["input_tokens"], &ended["output_tokens"]), (&json!(30), &json!(12)));
}

#[tokio::test]
async fn refused_requests_are_logged_as_many_as_a_person_reads() {
    const LEFT_OUT: &str = "more requests were refused in a second than are logged one by one";
    let (lines, _logging) = Lines::up_to(Level::INFO);
    let gateway = Gateway::start().await;
    let clock = HeldClock::pause();
    let ask = async |line: &str| {
        let request = format!("{line} HTTP/1.1\r\nhost: h\r\nx-odd: s3cret\r\n\r\n");
        Response::to(gateway.address, request.as_bytes()).await.head
    };
    for _ in 0..REFUSALS_PER_SECOND + 7 {
        ask("POST /agui/agent/helper/run?s3cret=1").await;
    }
    let refused = lines.with("request refused");
    assert_eq!(refused.len(), REFUSALS_PER_SECOND as usize);
    for (field, value) in [
        ("level", json!("INFO")),
        ("status", json!(415)),
        ("code", json!("not_json")),
        ("route", json!("run")),
        ("agent", json!("helper")),
        ("peer", json!("127.0.0.1")),
    ] {
        assert_eq!(refused[0][field], value, "{field}");
    }
    assert!(!format!("{refused:?}").contains("s3cret"));
    assert!(lines.with(LEFT_OUT).is_empty());

    // The next request, in a later second, logs how many there were, whatever its own outcome.
    clock.advance(Duration::from_secs(1)).await;
    assert!(ask("GET /healthz").await.starts_with("HTTP/1.1 200"));
    let left_out = lines.with(LEFT_OUT);
    assert_eq!(left_out.len(), 1, "{left_out:#?}");
    assert_eq!(left_out[0]["left_out"], 7);
    ask("GET /nothing").await;
    assert_eq!(lines.with("request refused").len(), REFUSALS_PER_SECOND as usize + 1);
    assert_eq!(lines.with(LEFT_OUT).len(), 1);
}

#[tokio::test]
async fn a_request_that_an_upstream_failed_is_a_warning_with_the_reason_and_the_server() {
    let (lines, _logging) = Lines::up_to(Level::INFO);
    let gateway = Gateway::acquainted().await;
    for (status, body, reason) in [
        (502, "<html>s3cret</html>", "the LangGraph server answered 502"),
        (500, r#"{"detail":"s3cret"}"#, "the LangGraph server answered 500"),
        (429, r#"{"detail":"s3cret"}"#, "the LangGraph server answered 429"),
        (
            200,
            "<html>s3cret</html>",
            "the LangGraph server's answer is not one of LangGraph: it is a web page, perhaps a login",
        ),
    ] {
        // A read before a start is repeated once, if a proxy does not reach the server.
        let reads = if status == 502 { 2 } else { 1 };
        let answer = async {
            for _ in 0..reads {
                gateway.upstream.next().await.answer(status, "text/html", body).await;
            }
        };
        let hi = input(&["hi"]);
        tokio::join!(gateway.post(&hi), answer);
        let refused = lines.with("request refused");
        let line = refused.last().unwrap();
        assert_eq!((&line["level"], &line["reason"]), (&json!("WARN"), &json!(reason)));
        assert_eq!(line["upstream"], gateway.upstream.url());
    }
    // A caller's own mistake is no warning.
    let mistaken = b"POST /agui/agent/agent/run HTTP/1.1\r\nhost: h\r\n\r\n";
    Response::to(gateway.address, mistaken).await;
    let refused = lines.with("request refused");
    let line = refused.last().unwrap();
    assert_eq!((&line["level"], &line["reason"]), (&json!("INFO"), &json!(null)));
    assert_eq!(refused.len(), 5);
    assert!(!format!("{refused:?}").contains("s3cret"));
}

#[tokio::test]
async fn a_page_that_is_refused_is_one_line_for_the_operator() {
    let (lines, _logging) = Lines::up_to(Level::INFO);
    let gateway = Gateway::start().await;
    // Any web page can make a browser send such requests without limit.
    for _ in 0..3 {
        let request =
            "GET /agui/info HTTP/1.1\r\nhost: evil.example\r\norigin: http://evil.example\r\n\r\n";
        let response = Response::to(gateway.address, request.as_bytes()).await;
        assert!(response.head.starts_with("HTTP/1.1 403 "), "{}", response.head);
    }
    let message = "a request from a web page was refused: its `host` has to be in `hosts` \
                   (--hosts NAME)";
    let told = lines.with(message);
    assert_eq!(told.len(), 1, "{told:#?}");
    assert_eq!((&told[0]["level"], &told[0]["code"]), (&json!("WARN"), &json!("wrong_host")));
    assert!(!told[0].to_string().contains("evil"), "{}", told[0]);
}

/// Runs the agent for a client with tools and context; its graph accepts these input keys.
async fn run_with_tools(gateway: &Gateway, schema: Option<&Value>) {
    let mut input = input(&["hi"]);
    input["tools"] = json!([{"name": "paint", "description": "Paints s3cret", "parameters": {}}]);
    input["context"] = json!([{"description": "s3cret", "value": "s3cret"}]);
    let script = async {
        gateway.state(None).await;
        if let Some(schema) = schema {
            let search = gateway.upstream.expect("POST /assistants/search").await;
            let id = "fe096781-5601-53d2-b2f6-0d3403f7e9ca";
            let assistant = json!({"assistant_id": id, "graph_id": "agent", "name": "agent",
                "metadata": {"created_by": "system"}});
            search.json(200, &json!([assistant]).to_string()).await;
            let read = gateway.upstream.expect(&format!("GET /assistants/{id}/schemas")).await;
            read.json(200, &json!({"input_schema": schema}).to_string()).await;
        }
        gateway.stream().await.end().await;
        gateway.record("interrupted").await;
    };
    let (mut response, ()) = tokio::join!(gateway.post(&input), script);
    response.body().await;
}

#[tokio::test]
async fn what_an_agent_cannot_take_is_a_warning_each_and_once() {
    let tools = "the tools of clients do not reach this graph: its input has none of the keys \
                 `tools`, `ag-ui`, `copilotkit`";
    let context = "the context of clients does not reach this graph: its input has none of the \
                   keys `ag-ui`, `copilotkit`";
    let unsaid = "the tools of clients do not reach this graph: its server does not say whether \
                  its input has one of the keys `tools`, `ag-ui`, `copilotkit`";
    let messages = "the messages of clients do not reach this graph: its input has no key \
                    `messages`, but `copilotkit`; set `messages_key` to the key of its conversation";
    for (schema, told) in [
        (json!({"properties": {"messages": {}}}), [1, 1, 0, 0]),
        (json!({"properties": {"messages": {}, "tools": {}}}), [0, 1, 0, 0]),
        (json!({"properties": {"messages": {}, "copilotkit": {}}}), [0, 0, 0, 0]),
        (json!({"properties": {"copilotkit": {}}}), [0, 0, 0, 1]),
        (json!({}), [0, 0, 1, 0]),
    ] {
        let (lines, _logging) = Lines::up_to(Level::INFO);
        let gateway = Gateway::start().await;
        run_with_tools(&gateway, Some(&schema)).await;
        run_with_tools(&gateway, None).await;
        let counts = [tools, context, unsaid, messages].map(|message| lines.with(message).len());
        assert_eq!(counts, told, "{schema}");
        for line in lines.with(tools) {
            assert_eq!((&line["level"], &line["agent"]), (&json!("WARN"), &json!("agent")));
        }
        assert!(!String::from_utf8(lines.0.lock().unwrap().clone()).unwrap().contains("s3cret"));
    }
}

/// A gateway that accepts pages of these origins.
async fn with_origins(origins: &[&str]) -> (SocketAddr, JoinSet<()>) {
    let cors = Cors::new(origins.iter().copied(), Credentials::Omitted).unwrap();
    let settings = Settings { cors, ..Settings::default() };
    let agents = agents(&[("default", "http://127.0.0.1:1")], &[]);
    let (address, _, serving, _) = serve_as(agents, settings).await;
    (address, serving)
}

/// Sends a request as a page of this origin, with a preflight first.
async fn ask_as(address: SocketAddr, origin: &str) {
    for (method, more) in [("OPTIONS", "access-control-request-method: GET\r\n"), ("GET", "")] {
        let request = format!(
            "{method} /agui/info HTTP/1.1\r\nhost: localhost\r\norigin: {origin}\r\n{more}\r\n"
        );
        let response = Response::to(address, request.as_bytes()).await;
        assert!(response.head.starts_with("HTTP/1.1 403 "), "{}", response.head);
    }
}

#[tokio::test]
async fn each_origin_that_is_refused_is_one_line_with_the_flag_that_lets_it_in() {
    let (lines, _logging) = Lines::up_to(Level::INFO);
    let (address, _serving) = with_origins(&["http://localhost:5199", "https://a.example"]).await;
    for origin in ["http://127.0.0.1:5199", "https://b.example", "http://127.0.0.1:5199"] {
        ask_as(address, origin).await;
    }
    let listed = "http://localhost:5199,https://a.example";
    let alike = format!(
        "a page of http://127.0.0.1:5199 was refused (http://localhost:5199 is allowed, and a \
         browser takes the two for different origins); to let it in, serve with --cors-origins \
         {listed},http://127.0.0.1:5199 (`cors.origins` in the config file)"
    );
    let other = format!(
        "a page of https://b.example was refused; to let it in, serve with --cors-origins \
         {listed},https://b.example (`cors.origins` in the config file)"
    );
    for message in [alike, other] {
        let told = lines.with(&message);
        assert_eq!(told.len(), 1, "{message}: {told:#?}");
        assert_eq!((&told[0]["level"], &told[0]["code"]), (&json!("WARN"), &json!("cross_origin")));
    }
}

#[tokio::test]
async fn invented_origins_fill_no_log() {
    let (lines, _logging) = Lines::up_to(Level::INFO);
    let (address, _serving) = with_origins(&[]).await;
    let _clock = HeldClock::pause();
    let count = || {
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        text.lines().filter(|line| line.contains(" was refused")).count()
    };
    for at in 0..MAX_LOGGED_ORIGINS + 10 {
        ask_as(address, &format!("https://{at}.example")).await;
    }
    assert_eq!(count(), MAX_LOGGED_ORIGINS);
    let full = format!(
        "pages of {MAX_LOGGED_ORIGINS} origins were refused within 10 minutes; no more are named"
    );
    assert_eq!(lines.with(&full).len(), 1);
    tokio::time::advance(ORIGIN_LOG_PAUSE).await;
    ask_as(address, "https://0.example").await;
    assert_eq!(count(), MAX_LOGGED_ORIGINS + 1);
}

#[tokio::test]
async fn an_agent_whose_keys_cannot_be_read_is_a_warning() {
    let (lines, _logging) = Lines::up_to(Level::INFO);
    let gateway = Gateway::start().await;
    let mut input = input(&["hi"]);
    input["tools"] = json!([{"name": "paint", "description": "Paints", "parameters": {}}]);
    let script = async {
        gateway.state(None).await;
        let search = gateway.upstream.expect("POST /assistants/search").await;
        search.json(500, r#"{"detail":"boom"}"#).await;
        let run = gateway.stream().await;
        let body: Value = serde_json::from_str(&run.body).unwrap();
        let sent = json!([{"type": "human", "id": "m0", "content": "hi"}]);
        assert_eq!(body["input"], json!({"messages": sent}));
        run.end().await;
        gateway.record("interrupted").await;
    };
    let (mut response, ()) = tokio::join!(gateway.post(&input), script);
    response.body().await;
    let message = "only messages are sent to this agent: the other keys of its input are unknown";
    let warned = lines.with(message);
    assert_eq!(warned.len(), 1, "{warned:#?}");
    assert_eq!((&warned[0]["level"], &warned[0]["agent"]), (&json!("WARN"), &json!("agent")));
}

/// The lines about a server's availability.
fn presence(lines: &Lines) -> Vec<(String, String)> {
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let told = lines.filter(|line| line["target"] == "threadway::upstream::availability");
    told.map(|line| (line["level"].to_string(), line["message"].to_string())).collect()
}

/// Requests the list of agents; returns the status line.
async fn list(address: SocketAddr) -> String {
    let request = "GET /agui/info HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let response = Response::to(address, request.as_bytes()).await;
    response.head.split(' ').nth(1).unwrap().to_owned()
}

#[tokio::test]
async fn a_server_that_goes_away_and_comes_back_is_a_line_each() {
    let (lines, _logging) = Lines::up_to(Level::INFO);
    let server = Upstream::bind().await;
    let url = server.url();
    let (address, _stop, _serving) =
        serve(agents(&[("default", &url)], &[]), Limits::default()).await;
    let server = server.leave().await;
    for _ in 0..7 {
        assert_eq!(list(address).await, "502");
        assert_eq!(
            post(address, "", &input(&["hi"]).to_string()).await.head.split(' ').nth(1),
            Some("502")
        );
    }
    let away = format!(
        "\"the LangGraph server at {url} is unavailable: the LangGraph server cannot be reached: "
    );
    let told = presence(&lines);
    let [(level, line)] = &*told else { panic!("{told:#?}") };
    assert!(level == "\"WARN\"" && line.starts_with(&away), "{told:#?}");

    let server = server.returns();
    for _ in 0..3 {
        let (status, ()) = tokio::join!(list(address), async {
            server.expect("POST /assistants/search").await.json(200, "[]").await;
        });
        assert_eq!(status, "200");
    }
    let told = presence(&lines);
    let [_, (level, line)] = &*told else { panic!("{told:#?}") };
    let back = format!("\"the LangGraph server at {url} is available again, after ");
    assert!(level == "\"INFO\"" && line.starts_with(&back) && line.ends_with(" s\""), "{told:#?}");
}

#[tokio::test]
async fn each_change_of_address_is_a_line_without_credentials() {
    let (lines, _logging) = Lines::up_to(Level::INFO);
    let (first, second) = (Upstream::bind().await, Upstream::bind().await);
    let urls = [first.url(), second.url()];
    let [base, other] = [&urls[0], &urls[1]].map(|url| url.parse().unwrap());
    let key = Some("s3cret-key".parse().unwrap());
    let client = Client::at(base, vec![other], key, HeaderMap::new(), &Tls::default()).unwrap();
    let agents = Agents::new(vec![upstreams::Upstream { name: "default".into(), client }], vec![]);
    let lists = async |address, server: &Upstream| {
        tokio::join!(list(address), async {
            server.expect("POST /assistants/search").await.json(200, "[]").await;
        });
    };
    let expected =
        format!("upstream default: requests go to {}; while it is away, to {}", urls[0], urls[1]);
    assert_eq!(agents.address_lines(), [expected]);
    let (address, _stop, _serving) = serve(agents, Limits::default()).await;
    let first = first.leave().await;
    for _ in 0..3 {
        lists(address, &second).await;
    }
    let failed = format!("requests now go to {} instead of {}", urls[1], urls[0]);
    let told = lines.with(&failed);
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!((&told[0]["level"], &told[0]["url"]), (&json!("WARN"), &json!(urls[1])));

    let clock = HeldClock::pause();
    let first = first.returns();
    clock.advance(ADDRESS_PAUSE).await;
    lists(address, &second).await;
    first.expect("GET /ok").await.json(200, "{}").await;
    let returned = format!("requests go to {} again instead of {}", urls[0], urls[1]);
    while lines.with(&returned).is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(lines.with(&returned)[0]["level"], "INFO");

    // The line about a run says where it is.
    let posted = input(&["hi"]).to_string();
    let script = async {
        first.next().await.json(404, "{}").await;
        let mut run = first.next().await;
        run.begin(&format!("content-location: /threads/{THREAD}/runs/{RUN}\r\n")).await;
        run
    };
    let (_response, _run) = tokio::join!(post(address, "", &posted), script);
    let told = lines.with("run started");
    assert_eq!(told[0]["url"], json!(urls[0]), "{told:?}");
    let all = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    assert!(!all.contains("s3cret-key"), "{all}");
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_away_after_a_few_requests() {
    let (lines, _logging) = Lines::up_to(Level::INFO);
    let server = Upstream::bind().await;
    let url = server.url();
    let (address, _stop, _serving) =
        serve(agents(&[("default", &url)], &[]), Limits::default()).await;
    let refused = async |status: u16| {
        tokio::join!(list(address), async {
            server.expect("POST /assistants/search").await.json(status, "{}").await;
        })
    };
    // A server that refuses is there.
    for _ in 0..OUTAGE_FAILURES {
        refused(500).await;
    }
    for _ in 1..OUTAGE_FAILURES {
        refused(503).await;
    }
    refused(404).await;
    let is_away =
        |told: &[(String, String)]| told.iter().any(|(_, line)| line.contains(" is unavailable: "));
    assert!(!is_away(&presence(&lines)));
    for _ in 0..OUTAGE_FAILURES {
        refused(503).await;
    }
    let told = presence(&lines);
    let away = format!(
        "\"the LangGraph server at {url} is unavailable: the LangGraph server answered 503\""
    );
    assert_eq!(told.iter().filter(|(_, line)| *line == away).count(), 1, "{told:#?}");

    // A server that keeps appearing and disappearing is logged only now and then.
    let _clock = HeldClock::pause();
    for _ in 0..3 {
        refused(404).await;
        for _ in 0..OUTAGE_FAILURES {
            refused(503).await;
        }
    }
    let count =
        || presence(&lines).iter().filter(|(_, line)| line.contains(" is unavailable: ")).count();
    assert_eq!(count(), 1);
    tokio::time::advance(OUTAGE_LOG_INTERVAL).await;
    refused(503).await;
    assert_eq!(count(), 2);
}
