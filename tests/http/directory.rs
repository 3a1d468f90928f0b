//! The gateway's answers about itself and its agents: info, readiness, names, capabilities, input
//! keys.

use std::net::SocketAddr;
use std::time::Duration;

use crate::support::clock::HeldClock;
use crate::support::gateway::{
    Gateway, Response, THREAD, agents, input, post, refusal, refused, run_agent, serve, values,
};
use crate::support::schema::Schema;
use crate::support::upstream::{Exchange, Upstream};
use serde_json::{Value, json};
use threadway::agents::{FACTS_AGE, FACTS_TIMEOUT, PROBE_TIMEOUT};
use threadway::server::{Limits, PROBE_AGE};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const HEALTH: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: h\r\n\r\n";

/// A gateway in front of two servers.
struct Two {
    a: Upstream,
    b: Upstream,
    address: SocketAddr,
    _stop: CancellationToken,
    _serving: JoinSet<()>,
}

impl Two {
    async fn start() -> Self {
        let (a, b) = (Upstream::bind().await, Upstream::bind().await);
        let aliases = [("helper", "b:agent"), ("ghost", "b:nobody")];
        let agents = agents(&[("a", &a.url()), ("b", &b.url())], &aliases);
        let (address, stop, serving) = serve(agents, Limits::default()).await;
        Self { a, b, address, _stop: stop, _serving: serving }
    }
}

/// Sends a GET; returns the status line and the body of the response.
async fn get(address: SocketAddr, route: &str) -> (String, String) {
    let request = format!("GET {route} HTTP/1.1\r\nhost: h\r\n\r\n");
    refused(&mut Response::to(address, request.as_bytes()).await).await
}

fn ok(body: &str) -> (String, String) {
    ("HTTP/1.1 200 OK".to_owned(), format!("{body}\n"))
}

fn unavailable(body: &str) -> (String, String) {
    ("HTTP/1.1 503 Service Unavailable".to_owned(), format!("{body}\n"))
}

// === health and readiness ===

#[tokio::test]
async fn healthz_says_that_the_gateway_is_alive() {
    let gateway = Gateway::start().await;
    let mut response = Response::to(gateway.address, HEALTH).await;
    assert!(response.head.starts_with("HTTP/1.1 200 OK\r\n"), "{}", response.head);
    assert_eq!(response.body().await, "ok\n");
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn readiness_lasts_until_no_upstream_has_been_ready_for_three_probes() {
    let two = Two::start().await;
    let clock = HeldClock::pause();
    let told =
        |a: &str, b: &str| format!(r#"{{"ready":true,"upstreams":{{"a":"{a}","b":"{b}"}}}}"#);
    let not_ready = r#"{"ready":false,"upstreams":{"a":"timeout","b":"failed"}}"#;
    for (a, b, expected) in [
        (Some(500), Some(200), ok(&told("failed", "ok"))),
        (Some(200), None, ok(&told("ok", "timeout"))),
        // An upstream that was ready stays ready until it has failed three times in a row.
        (None, Some(500), ok(&told("timeout", "failed"))),
        (None, Some(500), ok(&told("timeout", "failed"))),
        (None, Some(500), unavailable(not_ready)),
        (None, Some(500), unavailable(not_ready)),
        (None, Some(200), ok(&told("timeout", "ok"))),
        (None, Some(500), ok(&told("timeout", "failed"))),
    ] {
        // Earlier results are the answer while a probe is under way.
        let asks = async {
            get(two.address, "/readyz").await;
        };
        let script = async {
            let asked = tokio::join!(two.a.expect("GET /ok"), two.b.expect("GET /ok"));
            let mut silent = Vec::new();
            for (probe, status) in [(asked.0, a), (asked.1, b)] {
                match status {
                    Some(status) => probe.answer(status, "text/plain", "boom").await,
                    None => silent.push(probe),
                }
            }
            // A response on another connection proves that the gateway has read these.
            Response::to(two.address, HEALTH).await;
            clock.advance(PROBE_TIMEOUT).await;
            for probe in silent {
                probe.closed().await;
            }
        };
        tokio::join!(asks, script);
        // The results come a moment after the last answer.
        while get(two.address, "/readyz").await != expected {}
        clock.advance(PROBE_AGE).await;
    }
}

#[tokio::test]
async fn readiness_waits_for_no_probe_but_the_first() {
    let two = Two::start().await;
    let ready = |b: &str| ok(&format!(r#"{{"ready":true,"upstreams":{{"a":"ok","b":"{b}"}}}}"#));
    let script = async {
        let asked = tokio::join!(two.a.expect("GET /ok"), two.b.expect("GET /ok"));
        asked.0.answer(200, "text/plain", "ok").await;
        asked.1.answer(200, "text/plain", "ok").await;
    };
    let (told, ()) = tokio::join!(get(two.address, "/readyz"), script);
    assert_eq!(told, ready("ok"));
    let clock = HeldClock::pause();
    clock.advance(PROBE_AGE).await;
    let script = async {
        let asked = tokio::join!(two.a.expect("GET /ok"), two.b.expect("GET /ok"));
        asked.0.answer(200, "text/plain", "ok").await;
        // Kubernetes waits for a second.
        clock.advance(Duration::from_millis(100)).await;
        asked.1
    };
    let (told, silent) = tokio::join!(get(two.address, "/readyz"), script);
    assert_eq!(told, ready("ok"));
    clock.advance(PROBE_TIMEOUT).await;
    silent.closed().await;
    while get(two.address, "/readyz").await != ready("timeout") {}
}

#[tokio::test]
async fn upstream_that_nobody_serves_is_not_ready() {
    let url = Upstream::bind().await.url();
    let agents = agents(&[("default", &url)], &[]);
    let (address, _stop, _serving) = serve(agents, Limits::default()).await;
    let expected = r#"{"ready":false,"upstreams":{"default":"unreachable"}}"#;
    assert_eq!(get(address, "/readyz").await, unavailable(expected));
}

#[tokio::test]
async fn upstream_is_not_ready_before_its_first_success() {
    let gateway = Gateway::start().await;
    let clock = HeldClock::pause();
    let not_ready = unavailable(r#"{"ready":false,"upstreams":{"default":"failed"}}"#);
    let ready = ok(r#"{"ready":true,"upstreams":{"default":"ok"}}"#);
    for (status, expected) in [(500, &not_ready), (503, &not_ready), (200, &ready)] {
        let script = async {
            gateway.upstream.expect("GET /ok").await.json(status, r#"{"detail":"s3cret"}"#).await;
        };
        let (told, ()) = tokio::join!(get(gateway.address, "/readyz"), script);
        assert_eq!(&told, expected);
        clock.advance(PROBE_AGE).await;
    }
}

#[tokio::test]
async fn upstream_is_asked_once_in_5_seconds_however_many_ask() {
    let gateway = Gateway::start().await;
    let clock = HeldClock::pause();
    let ready = ok(r#"{"ready":true,"upstreams":{"default":"ok"}}"#);
    let script = async {
        let probe = gateway.upstream.expect("GET /ok").await;
        // The other request has arrived by now, and waits for this answer.
        gateway.upstream.is_untouched().await;
        probe.json(200, r#"{"ok":true}"#).await;
    };
    let ask = || get(gateway.address, "/readyz");
    let (first, second, ()) = tokio::join!(ask(), ask(), script);
    assert_eq!([first, second], [ready.clone(), ready.clone()]);

    clock.advance(PROBE_AGE.saturating_sub(Duration::from_millis(10))).await;
    assert_eq!(ask().await, ready);
    gateway.upstream.is_untouched().await;

    clock.advance(Duration::from_millis(10)).await;
    let script = async {
        gateway.upstream.expect("GET /ok").await.json(500, "{}").await;
    };
    let (third, ()) = tokio::join!(ask(), script);
    assert_eq!(third, ok(r#"{"ready":true,"upstreams":{"default":"failed"}}"#));
}

#[tokio::test]
async fn readiness_ends_at_a_shutdown() {
    let gateway = Gateway::start().await;
    let script = async {
        let probe = gateway.upstream.expect("GET /ok").await;
        gateway.stop.cancel();
        probe.json(200, r#"{"ok":true}"#).await;
    };
    let (told, ()) = tokio::join!(get(gateway.address, "/readyz"), script);
    assert_eq!(told, unavailable(r#"{"ready":false,"upstreams":{"default":"ok"}}"#));
    gateway.stopped().await;
}

// === the list of agents ===

/// Two assistants of a server: the one of the graph, and one that a user has made.
fn assistants() -> String {
    json!([
        {"assistant_id": "5f1b1d1e-0000-4000-8000-000000000001", "graph_id": "agent",
         "name": "Tuned \"mine\"", "description": "of mine", "metadata": {}},
        {"assistant_id": "5f1b1d1e-0000-4000-8000-000000000002", "graph_id": "agent",
         "name": "agent", "description": null, "metadata": {"created_by": "system"}},
    ])
    .to_string()
}

async fn lists(upstream: &Upstream) {
    let search = upstream.expect("POST /assistants/search").await;
    assert_eq!(search.body, r#"{"limit":100,"offset":0}"#);
    search.json(200, &assistants()).await;
}

/// The `/agui/info` for these agents.
fn info(agents: &[String]) -> (String, String) {
    partial_info(agents, "")
}

/// The agents, and the end of the object.
fn partial_info(agents: &[String], end: &str) -> (String, String) {
    let threads = r#"{"list":false,"inspect":false,"mutations":false,"realtimeMetadata":false}"#;
    ok(&format!(
        r#"{{"version":"{}","agents":{{{}}},"audioFileTranscriptionEnabled":false,"mode":"sse","threadEndpoints":{threads},"singleRoute":{{"resourceOperations":true,"threadEndpoints":{threads}}}{end}}}"#,
        env!("CARGO_PKG_VERSION"),
        agents.join(",")
    ))
}

fn told(id: &str, name: &str, description: &str) -> String {
    let capabilities = capable(name, description, "");
    format!(
        r#""{id}":{{"name":"{name}","className":"LangGraphAgent","description":"{description}","capabilities":{capabilities}}}"#
    )
}

/// The capabilities of an agent of the graph `agent`, with the known facts about its tools.
fn capable(name: &str, description: &str, tools: &str) -> String {
    let is_for = if description.is_empty() {
        String::new()
    } else {
        format!(r#""description":"{description}","#)
    };
    [
        &format!(r#"{{"identity":{{"name":"{name}","type":"langgraph",{is_for}"#),
        r#""metadata":{"langgraph":{"graph_id":"agent"}}},"#,
        r#""transport":{"streaming":true,"websocket":true,"httpBinary":true,"#,
        r#""pushNotifications":false,"resumable":true},"#,
        tools,
        r#""state":{"snapshots":true,"deltas":true,"persistentState":true},"#,
        r#""humanInTheLoop":{"supported":true,"interrupts":true,"approveWithEdits":true}}"#,
    ]
    .concat()
}

/// The agents of a server, whose names have this prefix.
fn both(prefix: &str) -> [String; 2] {
    [
        told(&format!("{prefix}agent"), "agent", ""),
        told(
            &format!("{prefix}5f1b1d1e-0000-4000-8000-000000000001"),
            r#"Tuned \"mine\""#,
            "of mine",
        ),
    ]
}

#[tokio::test]
async fn agents_of_one_upstream_go_by_their_own_names() {
    let gateway = Gateway::start().await;
    let script = lists(&gateway.upstream);
    let (info_told, ()) = tokio::join!(get(gateway.address, "/agui/info"), script);
    assert_eq!(info_told, info(&both("")));
}

#[tokio::test]
async fn agents_of_two_upstreams_go_by_both_names_and_their_aliases() {
    let two = Two::start().await;
    let script = async { tokio::join!(lists(&two.a), lists(&two.b)) };
    let (info_told, _) = tokio::join!(get(two.address, "/agui/info"), script);
    let alias = [told("helper", "agent", "")];
    assert_eq!(info_told, info(&[&both("a:")[..], &alias, &both("b:")].concat()));
}

#[tokio::test]
async fn upstream_that_does_not_tell_its_agents_is_left_out_unless_none_does() {
    let two = Two::start().await;
    let fails = async |upstream: &Upstream, why: &str| {
        upstream.expect("POST /assistants/search").await.answer(500, "text/plain", why).await;
    };
    let script = async { tokio::join!(lists(&two.a), fails(&two.b, "boom")) };
    let (info_told, _) = tokio::join!(get(two.address, "/agui/info"), script);
    let missing = |name: &str| format!(r#","missingUpstreams":{{"{name}":"failed"}}"#);
    assert_eq!(info_told, partial_info(&both("a:"), &missing("b")));

    let script = async { tokio::join!(fails(&two.a, "boom"), lists(&two.b)) };
    let (info_told, _) = tokio::join!(get(two.address, "/agui/info"), script);
    let alias = [told("helper", "agent", "")];
    let agents = [&alias[..], &both("b:")].concat();
    assert_eq!(info_told, partial_info(&agents, &missing("a")));

    let script = async { tokio::join!(fails(&two.a, "boom"), fails(&two.b, "bang")) };
    let (info_told, _) = tokio::join!(get(two.address, "/agui/info"), script);
    let message = "the LangGraph server answered 500; the server's log may tell more";
    assert_eq!(info_told, refusal("502 Bad Gateway", "upstream_refused", message));
}

// === names of agents ===

/// Accepts a run; returns the body of its start.
async fn begins(upstream: &Upstream) -> Value {
    let state = format!("GET /threads/{THREAD}/state");
    upstream.expect(&state).await.json(404, "{}").await;
    started(upstream).await
}

async fn started(upstream: &Upstream) -> Value {
    let mut run = upstream.expect(&format!("POST /threads/{THREAD}/runs/stream")).await;
    run.begin("").await;
    serde_json::from_str(&run.body).unwrap()
}

#[tokio::test]
async fn agent_runs_where_its_name_says() {
    let two = Two::start().await;
    let hi = input(&["hi"]);
    for (name, runs_on, other) in
        [("a:agent", &two.a, &two.b), ("b:other", &two.b, &two.a), ("helper", &two.b, &two.a)]
    {
        let (response, body) = tokio::join!(run_agent(two.address, name, &hi), begins(runs_on));
        assert!(response.head.starts_with("HTTP/1.1 200 OK\r\n"), "{}", response.head);
        let assistant = if name == "b:other" { "other" } else { "agent" };
        assert_eq!(body["assistant_id"], assistant);
        other.is_untouched().await;
    }
}

#[tokio::test]
async fn name_that_no_upstream_can_have_is_refused_with_what_to_do() {
    let two = Two::start().await;
    for name in ["agent", "c:agent", "", "A:agent"] {
        let message = format!(
            "there is no agent `{name}`; with several upstreams an agent's name begins with its \
             upstream's and a colon: `a:..`, `b:..`"
        );
        let expected = refusal("404 Not Found", "unknown_agent", &message);
        let mut response = run_agent(two.address, name, &input(&["hi"])).await;
        if name.is_empty() {
            // A path without a name matches no route.
            assert!(response.head.starts_with("HTTP/1.1 404 Not Found\r\n"), "{}", response.head);
            continue;
        }
        assert_eq!(refused(&mut response).await, expected);
        let stop = format!(
            "POST /agui/agent/{name}/stop/{THREAD} HTTP/1.1\r\nhost: h\r\ncontent-length: 0\r\n\r\n"
        );
        let mut response = Response::to(two.address, stop.as_bytes()).await;
        assert_eq!(refused(&mut response).await, expected);
    }
    two.a.is_untouched().await;
    two.b.is_untouched().await;
}

// === capabilities ===

/// The capabilities of an agent that does not accept tools of clients.
const NO_TOOLS: &str = r#""tools":{"clientProvided":false},"#;

/// Requests the capabilities of an agent.
async fn asks_for_capabilities(gateway: &Gateway, agent: &str) -> (String, String) {
    get(gateway.address, &format!("/agui/agent/{agent}/capabilities")).await
}

#[tokio::test]
async fn capabilities_are_what_the_schema_tells_and_one_value_everywhere() {
    let schema_of_capabilities = Schema::load();
    let clock = HeldClock::pause();
    for (input_schema, tools) in [
        (
            json!({"properties": {"messages": {}, "tools": {}}}),
            r#""tools":{"clientProvided":true},"#,
        ),
        (json!({"properties": {"ag-ui": {}}}), r#""tools":{"clientProvided":true},"#),
        (json!({"properties": {"messages": {}}}), NO_TOOLS),
        // An agent without a description of its input gets no tools.
        (json!({}), NO_TOOLS),
    ] {
        let gateway = Gateway::start().await;
        let script = async {
            lists(&gateway.upstream).await;
            let schemas = json!({"input_schema": input_schema}).to_string();
            schema(&gateway.upstream).await.json(200, &schemas).await;
        };
        let (asked, ()) = tokio::join!(asks_for_capabilities(&gateway, "agent"), script);
        assert_eq!(asked, ok(&capable("agent", "", tools)));
        let value = serde_json::from_str(&asked.1).unwrap();
        schema_of_capabilities.check_capabilities(&value).unwrap();
        // The list requests no schema, and contains what is known.
        let known = asked.1.trim_end();
        let (info, ()) = tokio::join!(get(gateway.address, "/agui/info"), lists(&gateway.upstream));
        let listed: Value = serde_json::from_str(&info.1).unwrap();
        assert_eq!(listed["agents"]["agent"]["capabilities"].to_string(), known);
        // The schema is requested again when it may have changed.
        clock.advance(FACTS_AGE).await;
        let (info, ()) = tokio::join!(get(gateway.address, "/agui/info"), lists(&gateway.upstream));
        let listed: Value = serde_json::from_str(&info.1).unwrap();
        let told = listed["agents"]["agent"]["capabilities"].to_string();
        assert_eq!(told, capable("agent", "", ""));
        gateway.upstream.is_untouched().await;
    }
}

#[tokio::test]
async fn inputs_that_do_not_reach_an_agent_are_told_beside_its_capabilities() {
    let clock = HeldClock::pause();
    let tools = "the tools of clients do not reach this graph: its input has none of the keys \
                 `tools`, `ag-ui`, `copilotkit`";
    let context = "the context of clients does not reach this graph: its input has none of the \
                   keys `ag-ui`, `copilotkit`";
    let messages = "the messages of clients do not reach this graph: its input has no key \
                    `messages`, but `ag-ui`, `turns`; set `messages_key` to the key of its \
                    conversation";
    for (properties, expected) in [
        (json!({"messages": {}}), json!({"warnings": [tools, context]})),
        (json!({"messages": {}, "tools": {}}), json!({"warnings": [context]})),
        (json!({"messages": {}, "ag-ui": {}}), Value::Null),
        (json!({"turns": {}, "ag-ui": {}}), json!({"warnings": [messages]})),
    ] {
        let gateway = Gateway::start().await;
        let listed = async || {
            let (info, ()) =
                tokio::join!(get(gateway.address, "/agui/info"), lists(&gateway.upstream));
            let info: Value = serde_json::from_str(&info.1).unwrap();
            info["agents"]["agent"]["threadway"].clone()
        };
        assert_eq!(listed().await, Value::Null, "nothing is known");
        let script = async {
            lists(&gateway.upstream).await;
            let schemas = json!({"input_schema": {"properties": properties}}).to_string();
            schema(&gateway.upstream).await.json(200, &schemas).await;
        };
        tokio::join!(asks_for_capabilities(&gateway, "agent"), script);
        assert_eq!(listed().await, expected);
        // A page that is opened later gets the capabilities too, without a request for a schema.
        clock.advance(FACTS_AGE).await;
        assert_eq!(listed().await, expected);
        gateway.upstream.is_untouched().await;
    }
}

#[tokio::test]
async fn agent_that_is_not_shown_has_no_capabilities() {
    let gateway = Gateway::start().await;
    let unknown = "LangGraph knows no agent `nobody`; name a graph of the server's langgraph.json \
                   or an assistant's id";
    let (asked, ()) =
        tokio::join!(asks_for_capabilities(&gateway, "nobody"), lists(&gateway.upstream));
    assert_eq!(asked, refusal("404 Not Found", "unknown_agent", unknown));
    // An assistant's id is a name too.
    let id = "5f1b1d1e-0000-4000-8000-000000000002";
    let script = async {
        lists(&gateway.upstream).await;
        let asked = gateway.upstream.expect(&format!("GET /assistants/{id}/schemas")).await;
        asked.json(200, "{}").await;
    };
    let (asked, ()) = tokio::join!(asks_for_capabilities(&gateway, id), script);
    assert_eq!(asked, ok(&capable("agent", "", NO_TOOLS)));
    // A caller that LangGraph refuses is refused.
    let request = b"GET /agui/agent/agent/capabilities HTTP/1.1\r\nhost: h\r\nx-api-key: k\r\n\r\n";
    let refuse = async {
        let search = gateway.upstream.expect("POST /assistants/search").await;
        assert_eq!(search.key(), Some("k"));
        search.json(403, "{}").await;
    };
    let (mut response, ()) = tokio::join!(Response::to(gateway.address, request), refuse);
    assert_eq!(refused(&mut response).await.0, "HTTP/1.1 403 Forbidden");
    let method =
        b"POST /agui/agent/agent/capabilities HTTP/1.1\r\nhost: h\r\ncontent-length: 0\r\n\r\n";
    let mut response = Response::to(gateway.address, method).await;
    assert_eq!(refused(&mut response).await.0, "HTTP/1.1 405 Method Not Allowed");
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn capabilities_of_one_of_several_upstreams_are_asked_of_that_one() {
    let two = Two::start().await;
    let script = async {
        lists(&two.b).await;
        schema(&two.b).await.json(200, "{}").await;
    };
    let (asked, ()) = tokio::join!(get(two.address, "/agui/agent/helper/capabilities"), script);
    assert_eq!(asked, ok(&capable("agent", "", NO_TOOLS)));
    two.a.is_untouched().await;
}

// === input keys ===

fn with_tools() -> Value {
    let mut input = input(&["hi"]);
    input["tools"] = json!([{"name": "paint", "description": "Paints", "parameters": {}}]);
    input["context"] = json!([{"description": "where", "value": "here"}]);
    input
}

/// Answers the request for the agent's input keys, as a server whose agent accepts tools.
async fn schema(upstream: &Upstream) -> Exchange {
    let search = upstream.expect("POST /assistants/search").await;
    assert_eq!(search.body, r#"{"graph_id":"agent","limit":100,"offset":0}"#);
    search.json(200, &assistants()).await;
    let id = "5f1b1d1e-0000-4000-8000-000000000002";
    upstream.expect(&format!("GET /assistants/{id}/schemas")).await
}

#[tokio::test]
async fn tools_and_context_go_up_under_the_keys_that_the_agent_takes() {
    let tool = json!({"type": "function", "name": "paint", "function":
        {"name": "paint", "description": "Paints", "parameters": {}}});
    let context = json!([{"description": "where", "value": "here"}]);
    for (keys, expected) in [
        (json!({"messages": {}, "tools": {}}), json!({"tools": [tool]})),
        (
            json!({"messages": {}, "ag-ui": {}}),
            json!({"ag-ui": {"tools": [tool], "context": context}}),
        ),
        (
            json!({"messages": {}, "copilotkit": {}}),
            json!({"copilotkit": {"actions": [tool], "context": context}}),
        ),
        (json!({"messages": {}}), json!({})),
    ] {
        let gateway = Gateway::start().await;
        let script = async {
            let state = format!("GET /threads/{THREAD}/state");
            gateway.upstream.expect(&state).await.json(404, "{}").await;
            let schemas = json!({"input_schema": {"properties": keys}}).to_string();
            schema(&gateway.upstream).await.json(200, &schemas).await;
            started(&gateway.upstream).await
        };
        let with_tools = with_tools();
        let (_response, body) = tokio::join!(gateway.post(&with_tools), script);
        let mut sent = body["input"].as_object().unwrap().clone();
        sent.remove("messages");
        assert_eq!(Value::Object(sent), expected);
    }
}

#[tokio::test]
async fn keys_are_asked_for_once_a_minute_and_only_if_they_matter() {
    let gateway = Gateway::start().await;
    let clock = HeldClock::pause();
    let state = format!("GET /threads/{THREAD}/state");
    let asked = async |keys: Value| {
        gateway.upstream.expect(&state).await.json(404, "{}").await;
        let schemas = json!({"input_schema": {"properties": keys}}).to_string();
        schema(&gateway.upstream).await.json(200, &schemas).await;
        started(&gateway.upstream).await
    };
    let (plain, with_tools) = (input(&["hi"]), with_tools());
    // This request does not need the input keys.
    let (_response, _) = tokio::join!(gateway.post(&plain), begins(&gateway.upstream));
    let (_response, body) =
        tokio::join!(gateway.post(&with_tools), asked(json!({"messages": {}, "tools": {}})));
    assert_eq!(body["input"]["tools"][0]["name"], "paint");
    // The input keys are still known.
    clock.advance(FACTS_AGE.saturating_sub(Duration::from_millis(10))).await;
    let (_response, body) = tokio::join!(gateway.post(&with_tools), begins(&gateway.upstream));
    assert_eq!(body["input"]["tools"][0]["name"], "paint");
    // The input keys may have changed.
    clock.advance(Duration::from_millis(10)).await;
    let (_response, body) = tokio::join!(gateway.post(&with_tools), asked(json!({"messages": {}})));
    assert_eq!(body["input"].get("tools"), None);
}

#[tokio::test]
async fn fork_is_given_what_the_checkpoint_that_it_begins_at_lacks() {
    let tool = json!({"type": "function", "name": "paint", "function":
        {"name": "paint", "description": "Paints", "parameters": {}}});
    // The first message was sent with all of this. The graph has made `log` and `note`.
    let mut newest = values(&["hi", "yo"]);
    newest["tools"] = json!([tool]);
    newest["theme"] = json!("dark");
    newest["log"] = json!(["said hi"]);
    newest["note"] = json!("made by the graph");
    let mut past = values(&[]);
    past["log"] = json!([]);
    past["kept"] = json!(1);
    let checkpoint =
        |id: &str, values: &Value| json!({"values": values, "checkpoint": {"checkpoint_id": id}});
    let mut newest_checkpoint = checkpoint("c2", &newest);
    newest_checkpoint["parent_checkpoint"] = json!({"checkpoint_id": "c1"});
    let history = json!([newest_checkpoint, checkpoint("c1", &past)]);
    let keys = json!({"input_schema": {"properties":
        {"messages": {}, "tools": {}, "theme": {}, "log": {}, "note": {}, "kept": {}}}});

    let gateway = Gateway::start().await;
    let script = async {
        gateway.state(Some(newest_checkpoint.clone())).await;
        schema(&gateway.upstream).await.json(200, &keys.to_string()).await;
        gateway.no_runs(newest_checkpoint.clone()).await;
        gateway.no_inputs().await;
        let path = format!("GET /threads/{THREAD}/history?limit=20");
        gateway.upstream.expect(&path).await.json(200, &history.to_string()).await;
        started(&gateway.upstream).await
    };
    // The client edits the message and the note, and sends the rest back unchanged.
    let mut request = input(&["HI"]);
    request["tools"] = json!([{"name": "paint", "description": "Paints", "parameters": {}}]);
    request["state"] = json!({
        "theme": "dark", "log": ["said hi"], "note": "edited", "kept": 1,
    });
    request["forwardedProps"] = json!({"config": {"recursion_limit": 7}});
    let (_response, body) = tokio::join!(gateway.post(&request), script);
    assert_eq!(body["checkpoint_id"], "c1");
    assert_eq!(body["config"]["recursion_limit"], 7);
    // The checkpoint has a log and the stored values. If the log were sent again, a graph that
    // appends to it would have it twice.
    let message = json!({"type": "human", "id": "m0", "content": "HI"});
    let expected =
        json!({"theme": "dark", "note": "edited", "tools": [tool], "messages": [message]});
    assert_eq!(body["input"], expected);
}

/// The input of a client that sends state.
fn with_state() -> Value {
    let mut input = input(&["hi"]);
    input["state"] = json!({"note": "x", "internal_role": "admin"});
    input
}

/// The client's state in the upstream request. `search` and `schemas` are the answers, if they are
/// requested.
async fn state_sent(
    gateway: &Gateway,
    caller: &str,
    search: Option<Value>,
    schemas: Option<(u16, Value)>,
) -> Value {
    let script = async {
        let state = format!("GET /threads/{THREAD}/state");
        gateway.upstream.expect(&state).await.json(404, "{}").await;
        if let Some(found) = search {
            let search = gateway.upstream.expect("POST /assistants/search").await;
            assert_eq!(search.key(), Some(caller));
            search.json(200, &found.to_string()).await;
        }
        if let Some((status, body)) = schemas {
            let asked = gateway.upstream.next().await;
            assert!(asked.line.ends_with("/schemas"), "{}", asked.line);
            assert_eq!(asked.key(), Some(caller));
            asked.json(status, &body.to_string()).await;
        }
        started(&gateway.upstream).await
    };
    let (headers, body) = (format!("x-api-key: {caller}\r\n"), with_state().to_string());
    let (_response, run) = tokio::join!(post(gateway.address, &headers, &body), script);
    let mut sent = run["input"].as_object().unwrap().clone();
    sent.remove("messages");
    Value::Object(sent)
}

fn found() -> Value {
    serde_json::from_str(&assistants()).unwrap()
}

fn noted() -> Value {
    json!({"input_schema": {"properties": {"messages": {}, "note": {}}}})
}

#[tokio::test]
async fn agent_that_one_caller_is_not_shown_is_described_to_others() {
    let gateway = Gateway::start().await;
    // This caller may not see the agent.
    assert_eq!(state_sent(&gateway, "stranger", Some(json!([])), None).await, json!({}));
    let sent = state_sent(&gateway, "alice", Some(found()), Some((200, noted()))).await;
    assert_eq!(sent, json!({"note": "x"}));
    // The server's description of an agent is the same for all callers.
    assert_eq!(state_sent(&gateway, "bob", None, None).await, json!({"note": "x"}));
}

#[tokio::test]
async fn agent_of_which_nothing_is_known_gets_messages_alone_and_is_asked_about_again() {
    let gateway = Gateway::start().await;
    for status in [500, 502, 401, 403] {
        let refused = Some((status, json!({"detail": "boom"})));
        let sent = state_sent(&gateway, "alice", Some(found()), refused).await;
        assert_eq!(sent, json!({}), "{status}");
    }
    let garbage = Some((200, json!("<html>")));
    assert_eq!(state_sent(&gateway, "alice", Some(found()), garbage).await, json!({}));
    let sent = state_sent(&gateway, "alice", Some(found()), Some((200, noted()))).await;
    assert_eq!(sent, json!({"note": "x"}));
}

#[tokio::test]
async fn server_without_schemas_is_asked_for_them_once_in_a_while_by_each_caller() {
    let gateway = Gateway::start().await;
    for status in [404, 405, 501] {
        let caller = format!("caller-{status}");
        let refused = Some((status, json!({"detail": "Not Found"})));
        assert_eq!(state_sent(&gateway, &caller, Some(found()), refused).await, json!({}));
        assert_eq!(state_sent(&gateway, &caller, None, None).await, json!({}));
    }
    // The server may have hidden the agent from those callers only.
    let sent = state_sent(&gateway, "alice", Some(found()), Some((200, noted()))).await;
    assert_eq!(sent, json!({"note": "x"}));
}

#[tokio::test]
async fn agent_that_its_server_cannot_describe_gets_all_state_of_those_who_were_told_so() {
    let gateway = Gateway::javascript().await;
    let all = with_state()["state"].clone();
    let fails = || Some((500, json!("Internal Server Error")));
    assert_eq!(state_sent(&gateway, "alice", Some(found()), fails()).await, all);
    assert_eq!(state_sent(&gateway, "alice", None, None).await, all);
    // The answer may have been a failure, so other callers get their own.
    let sent = state_sent(&gateway, "bob", Some(found()), Some((200, noted()))).await;
    assert_eq!(sent, json!({"note": "x"}));
}

#[tokio::test]
async fn javascript_graph_that_the_python_server_cannot_describe_gets_all_state() {
    // The first is of a graph whose file cannot be read, the second of an image that was built
    // without that graph's schema.
    for detail in [
        "Failed to extract schema for \"slow\": TypeError: Cannot read properties of undefined \
         (reading 'flags')",
        "Failed to locate schema for \"slow\"",
    ] {
        let gateway = Gateway::start().await;
        let all = with_state()["state"].clone();
        let fails = || Some((500, json!({"detail": detail})));
        assert_eq!(state_sent(&gateway, "alice", Some(found()), fails()).await, all, "{detail}");
        assert_eq!(state_sent(&gateway, "alice", None, None).await, all, "{detail}");
        let sent = state_sent(&gateway, "bob", Some(found()), Some((200, noted()))).await;
        assert_eq!(sent, json!({"note": "x"}), "{detail}");
    }
}

#[tokio::test]
async fn kind_that_one_caller_is_not_told_is_asked_for_by_the_next() {
    let gateway = Gateway::start().await;
    let hi = input(&["hi"]).to_string();
    let asks = async |caller: &str, status: Option<u16>| {
        let script = async {
            let (mut kinds, mut lists) = (0, 0);
            loop {
                let asked = gateway.upstream.accept().await;
                if asked.line == "GET /info" {
                    kinds += 1;
                    let info = r#"{"version":"0.16.7","langgraph_py_version":"1.2.22"}"#;
                    asked.json(status.unwrap_or(200), info).await;
                } else if asked.line.starts_with("GET ") {
                    // The live runs are listed before a server of unknown kind gets one.
                    lists += i32::from(asked.line.contains("/runs?status="));
                    asked.json(404, "{}").await;
                } else if asked.line == "POST /threads" {
                    asked.json(200, "{}").await;
                } else {
                    let mut run = asked;
                    run.begin("").await;
                    return (kinds, lists > 0);
                }
            }
        };
        let headers = format!("x-api-key: {caller}\r\n");
        let (_response, seen) = tokio::join!(post(gateway.address, &headers, &hi), script);
        seen
    };
    // The request is repeated twice, and its failure is remembered for this caller.
    assert_eq!(asks("stranger", Some(500)).await, (3, true));
    assert_eq!(asks("stranger", Some(500)).await, (0, true));
    assert_eq!(asks("alice", None).await, (1, false));
    // The server's kind is the same for all callers.
    assert_eq!(asks("stranger", Some(500)).await, (0, false));
    assert_eq!(asks("bob", Some(500)).await, (0, false));
}

#[tokio::test]
async fn keys_that_do_not_come_hold_a_run_for_5_seconds_and_are_asked_for_again() {
    let gateway = Gateway::acquainted().await;
    let clock = HeldClock::pause();
    let script = async {
        let state = format!("GET /threads/{THREAD}/state");
        gateway.upstream.expect(&state).await.json(404, "{}").await;
        let hanging = schema(&gateway.upstream).await;
        clock.advance(FACTS_TIMEOUT.saturating_sub(Duration::from_millis(10))).await;
        gateway.upstream.is_untouched().await;
        clock.advance(Duration::from_millis(10)).await;
        hanging.closed().await;
        started(&gateway.upstream).await
    };
    let with_tools = with_tools();
    let (response, body) = tokio::join!(gateway.post(&with_tools), script);
    assert!(response.head.starts_with("HTTP/1.1 200 OK\r\n"), "{}", response.head);
    assert_eq!(body["input"].get("tools"), None);
    let script = async {
        let state = format!("GET /threads/{THREAD}/state");
        gateway.upstream.expect(&state).await.json(404, "{}").await;
        let schemas = json!({"input_schema": {"properties": {"tools": {}}}}).to_string();
        schema(&gateway.upstream).await.json(200, &schemas).await;
        started(&gateway.upstream).await
    };
    let (_response, body) = tokio::join!(gateway.post(&with_tools), script);
    assert_eq!(body["input"]["tools"][0]["name"], "paint");
}

#[tokio::test]
async fn javascript_server_that_is_late_with_a_schema_gets_all_state() {
    let gateway = Gateway::javascript().await;
    // The gateway knows the server's kind.
    let hi = input(&["hi"]);
    let (_response, _) = tokio::join!(gateway.post(&hi), begins(&gateway.upstream));
    let clock = HeldClock::pause();
    let script = async {
        let state = format!("GET /threads/{THREAD}/state");
        gateway.upstream.expect(&state).await.json(404, "{}").await;
        let hanging = schema(&gateway.upstream).await;
        clock.advance(FACTS_TIMEOUT).await;
        hanging.closed().await;
        started(&gateway.upstream).await
    };
    let with_state = with_state();
    let (_response, body) = tokio::join!(gateway.post(&with_state), script);
    assert_eq!(body["input"]["note"], "x");
    // The caller's next run does not wait.
    let (_response, body) = tokio::join!(gateway.post(&with_state), begins(&gateway.upstream));
    assert_eq!(body["input"]["note"], "x");
}

#[tokio::test]
async fn server_that_does_not_tell_its_kind_holds_a_run_for_5_seconds_and_the_next_not_at_all() {
    let gateway = Gateway::start().await;
    let clock = HeldClock::pause();
    let run = async || {
        // A server of unknown kind may run two runs of a thread at once.
        for status in ["pending", "running"] {
            let asked = gateway.upstream.next().await;
            let line = format!("GET /threads/{THREAD}/runs?status={status}&limit=100");
            assert!(asked.line.starts_with(&line), "{}", asked.line);
            asked.json(200, "[]").await;
        }
        let mut run = gateway.upstream.expect(&format!("POST /threads/{THREAD}/runs/stream")).await;
        run.begin("").await;
    };
    let script = async {
        // The two requests arrive in any order.
        let (first, second) = (gateway.upstream.accept().await, gateway.upstream.accept().await);
        let (state, kind) =
            if first.line == "GET /info" { (second, first) } else { (first, second) };
        assert_eq!(kind.line, "GET /info");
        state.json(404, "{}").await;
        clock.advance(FACTS_TIMEOUT).await;
        kind.closed().await;
        run().await;
    };
    let hi = input(&["hi"]);
    tokio::join!(gateway.post(&hi), script);
    let script = async {
        let state = gateway.upstream.accept().await;
        assert_eq!(state.line, format!("GET /threads/{THREAD}/state"));
        state.json(404, "{}").await;
        run().await;
    };
    tokio::join!(gateway.post(&hi), script);
}
