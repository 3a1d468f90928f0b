//! Threads as sessions use them: made, found, changed and deleted, and the options of an agent.

use crate::support::clock::HeldClock;
use crate::support::upstream::Upstream;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};
use threadway::agents::{self, Agents};
use threadway::server::{self, Limits};
use threadway::upstream::{ANSWER_TIMEOUT, Caller, Client, Error, MAX_ANSWER_BYTES, ThreadSearch};
use threadway_demo::{Demo, Pace};
use threadway_translate::json::{Json, raw};
use threadway_translate::langgraph::{ConfigKind, ThreadRecord, ThreadStatus};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const THREAD: &str = "0f9cfe5e-7d44-4d4f-8aef-a4e7c1d4a2a1";
const OTHER: &str = "0f9cfe5e-7d44-4d4f-8aef-a4e7c1d4a2a2";
const NOBODYS: &str = "0f9cfe5e-7d44-4d4f-8aef-a4e7c1d4a2a3";
const ASSISTANT: &str = "5f1b1d1e-0000-4000-8000-000000000001";

/// The responses of both servers to an invalid id, and to an unknown thread.
const NO_SUCH_THREAD: [(u16, &str); 4] = [
    (404, r#"{"detail":"Thread with ID T not found"}"#),
    (404, "Thread not found"),
    (422, r#"{"detail":"Invalid thread ID: must be a UUID"}"#),
    (400, r#"{"success":false,"error":{"issues":[{"message":"Invalid uuid"}]}}"#),
];

fn client(url: &str) -> Client {
    Client::new(url.parse().unwrap(), None).unwrap()
}

/// A server that a test scripts, and its client.
async fn scripted() -> (Upstream, Client) {
    let upstream = Upstream::bind().await;
    let client = client(&upstream.url());
    (upstream, client)
}

fn object(value: &Value) -> Json {
    raw(value.to_string())
}

fn record(metadata: &Value) -> String {
    json!({"thread_id": THREAD, "updated_at": "2026-11-22T11:17:10.639Z", "status": "idle",
           "metadata": metadata, "config": {}})
    .to_string()
}

fn refusal(code: u16, detail: &str) -> Error {
    Error::Status { code, detail: detail.to_owned(), retry_after: None }
}

// === one thread ===

#[tokio::test]
async fn a_thread_is_made_with_its_id_and_metadata() {
    let (upstream, client) = scripted().await;
    let metadata = json!({"acp_session": true, "cwd": "/w"});
    let script = async {
        let post = upstream.expect("POST /threads").await;
        let body: Value = serde_json::from_str(&post.body).unwrap();
        let expected = json!({"thread_id": THREAD, "if_exists": "do_nothing",
            "metadata": {"acp_session": true, "cwd": "/w"}});
        assert_eq!(body, expected);
        post.json(200, &record(&metadata)).await;
    };
    let metadata = object(&metadata);
    let (made, ()) = tokio::join!(client.new_thread(THREAD, &metadata), script);
    let made = made.unwrap();
    assert_eq!((&*made.id, made.status), (THREAD, ThreadStatus::Idle));
    assert_eq!(made.metadata, metadata);

    let script = async { upstream.expect("POST /threads").await.json(200, "{}").await };
    let (made, ()) = tokio::join!(client.new_thread(THREAD, &metadata), script);
    assert_eq!(made, Err(Error::NotUnderstood { what: "a thread" }));
}

#[tokio::test]
async fn a_thread_is_read_or_is_not_there() {
    let (upstream, client) = scripted().await;
    let get = format!("GET /threads/{THREAD}");
    let script = async {
        let state = json!({"messages": [{"type": "human", "content": "hello there"}]});
        let mut found: Value = serde_json::from_str(&record(&json!({}))).unwrap();
        found["values"] = state;
        upstream.expect(&get).await.json(200, &found.to_string()).await;
    };
    let (found, ()) = tokio::join!(client.thread(THREAD), script);
    assert_eq!(found.unwrap().unwrap().title().as_deref(), Some("hello there"));

    for (status, body) in NO_SUCH_THREAD {
        let script = async { upstream.expect(&get).await.json(status, body).await };
        let (found, ()) = tokio::join!(client.thread(THREAD), script);
        assert_eq!(found, Ok(None), "{status} {body}");
    }
    for (status, body, error) in [
        (500, "boom", refusal(500, "boom")),
        (403, r#"{"detail":"no"}"#, refusal(403, "no")),
        (200, "[]", Error::NotUnderstood { what: "a thread" }),
    ] {
        let script = async { upstream.expect(&get).await.json(status, body).await };
        let (found, ()) = tokio::join!(client.thread(THREAD), script);
        assert_eq!(found, Err(error), "{status} {body}");
    }
}

#[tokio::test]
async fn an_id_of_any_form_stays_in_its_place() {
    let (upstream, client) = scripted().await;
    let script = async {
        upstream.expect("GET /threads/..%2Fok%3Fx").await.json(422, "{}").await;
    };
    let (found, ()) = tokio::join!(client.thread("../ok?x"), script);
    assert_eq!(found, Ok(None));
}

#[tokio::test]
async fn a_change_asks_for_no_state_in_return_and_reads_none() {
    let (upstream, client) = scripted().await;
    let (patch, title) = (format!("PATCH /threads/{THREAD}"), object(&json!({"title": "Mine"})));
    let change = || client.change_thread(THREAD, &title);
    let script = async {
        let asked = upstream.expect(&patch).await;
        assert_eq!(asked.body, r#"{"metadata":{"title":"Mine"}}"#);
        assert!(asked.head.contains("\r\nprefer: return=minimal\r\n"), "{}", asked.head);
        asked.answer(204, "application/json", "").await;
    };
    assert_eq!(tokio::join!(change(), script).0, Ok(true));

    // The JavaScript server returns the whole state, which may have any size.
    let script = async {
        let mut asked = upstream.expect(&patch).await;
        asked.begin_answer(200, "application/json", "{", MAX_ANSWER_BYTES + 1).await;
        asked.closed().await;
    };
    assert_eq!(tokio::join!(change(), script).0, Ok(true));

    for (status, body, expected) in [
        (404, r#"{"detail":"Not Found"}"#, Ok(false)),
        (404, "Thread not found", Ok(false)),
        // For this request the body may be the cause of a 422.
        (422, r#"{"detail":"odd"}"#, Err(refusal(422, "odd"))),
    ] {
        let script = async { upstream.expect(&patch).await.json(status, body).await };
        assert_eq!(tokio::join!(change(), script).0, expected, "{status} {body}");
    }
}

#[tokio::test]
async fn a_thread_is_deleted_or_was_not_there() {
    let (upstream, client) = scripted().await;
    let delete = format!("DELETE /threads/{THREAD}");
    let script = async { upstream.expect(&delete).await.answer(204, "text/plain", "").await };
    assert_eq!(tokio::join!(client.delete_thread(THREAD), script).0, Ok(true));
    for (status, body) in NO_SUCH_THREAD {
        let script = async { upstream.expect(&delete).await.json(status, body).await };
        let (deleted, ()) = tokio::join!(client.delete_thread(THREAD), script);
        assert_eq!(deleted, Ok(false), "{status} {body}");
    }
    let script = async { upstream.expect(&delete).await.json(409, "busy").await };
    let (deleted, ()) = tokio::join!(client.delete_thread(THREAD), script);
    assert_eq!(deleted, Err(refusal(409, "busy")));
}

#[tokio::test]
async fn a_thread_is_copied_or_is_not_there() {
    let (upstream, client) = scripted().await;
    let copy = format!("POST /threads/{THREAD}/copy");
    let script = async {
        let asked = upstream.expect(&copy).await;
        assert_eq!(asked.body, "");
        asked.json(200, &record(&json!({"cwd": "/w"})).replace(THREAD, OTHER)).await;
    };
    let (copied, ()) = tokio::join!(client.copy_thread(THREAD), script);
    let copied = copied.unwrap().unwrap();
    assert_eq!((&*copied.id, copied.metadata.get()), (OTHER, r#"{"cwd":"/w"}"#));
    for (status, body, expected) in [
        (409, r#"{"detail":"Thread not found"}"#, Ok(None)),
        // The server has no such route.
        (404, "Not Found", Err(refusal(404, "Not Found"))),
        (200, "[]", Err(Error::NotUnderstood { what: "a thread" })),
    ] {
        let script = async { upstream.expect(&copy).await.json(status, body).await };
        let (copied, ()) = tokio::join!(client.copy_thread(THREAD), script);
        assert_eq!(copied, expected, "{status} {body}");
    }
}

#[tokio::test]
async fn an_answer_that_does_not_begin_is_waited_for_no_longer_than_any() {
    let (upstream, client) = scripted().await;
    let clock = HeldClock::pause();
    let script = async {
        let asked = upstream.expect(&format!("DELETE /threads/{THREAD}")).await;
        clock.advance(ANSWER_TIMEOUT).await;
        asked.closed().await;
    };
    let (deleted, ()) = tokio::join!(client.delete_thread(THREAD), script);
    assert_eq!(deleted, Err(Error::Timeout { waited: ANSWER_TIMEOUT }));
}

// === many threads ===

#[tokio::test]
async fn threads_are_listed_without_their_states() {
    let (upstream, client) = scripted().await;
    let metadata = object(&json!({"acp_session": true}));
    for (limit, asked) in [(50, 50), (0, 1), (usize::MAX, 1000)] {
        let search = ThreadSearch { metadata: &metadata, limit, offset: 7 };
        let script = async {
            let post = upstream.expect("POST /threads/search").await;
            let expected = json!({
                "metadata": {"acp_session": true}, "limit": asked, "offset": 7,
                "sort_by": "updated_at", "sort_order": "desc",
                "select": ["thread_id", "metadata", "status", "updated_at"],
            });
            assert_eq!(serde_json::from_str::<Value>(&post.body).unwrap(), expected);
            let page = format!("[{}]", record(&json!({"title": "Mine"})));
            post.json(200, &page).await;
        };
        let (found, ()) = tokio::join!(client.threads(&search), script);
        let titles: Vec<_> = found.unwrap().iter().map(ThreadRecord::title).collect();
        assert_eq!(titles, [Some("Mine".to_owned())]);
    }
    let search = ThreadSearch { metadata: &metadata, limit: 1, offset: 0 };
    let script = async { upstream.expect("POST /threads/search").await.json(200, "{}").await };
    let (found, ()) = tokio::join!(client.threads(&search), script);
    assert_eq!(found, Err(Error::NotUnderstood { what: "a list of threads" }));
}

// === options of an agent ===

#[tokio::test]
async fn the_fields_of_an_assistant_are_told_with_what_it_has_set() {
    let (upstream, client) = scripted().await;
    let assistant = json!({"assistant_id": ASSISTANT, "context": {"model": "deep"}});
    let schemas = json!({"config_schema": {"properties": {
        "model": {"enum": ["fast", "deep"], "default": "fast"}, "limit": {"type": "integer"},
        "verbose": {"type": "boolean", "description": "Says more."},
    }}});
    let script = async {
        // The requests arrive in any order.
        for _ in 0..2 {
            let asked = upstream.next().await;
            let answer = match asked.line.strip_prefix(&format!("GET /assistants/{ASSISTANT}")) {
                Some("") => &assistant,
                Some("/schemas") => &schemas,
                _ => panic!("{}", asked.line),
            };
            asked.json(200, &answer.to_string()).await;
        }
    };
    let (fields, ()) = tokio::join!(client.config_fields(ASSISTANT), script);
    let fields = fields.unwrap();
    let told: Vec<_> = fields.iter().map(|field| (&*field.key, field.default.get())).collect();
    assert_eq!(told, [("model", "\"deep\""), ("verbose", "false")]);
    assert_eq!(fields[1].kind, ConfigKind::Switch);
    assert_eq!(fields[1].description.as_deref(), Some("Says more."));

    // A JavaScript server that cannot read the graph's types.
    let script = async {
        for _ in 0..2 {
            let asked = upstream.next().await;
            if asked.line.ends_with("/schemas") {
                asked.answer(500, "text/plain", "Internal Server Error").await;
            } else {
                asked.json(200, &assistant.to_string()).await;
            }
        }
    };
    let (fields, ()) = tokio::join!(client.config_fields(ASSISTANT), script);
    assert_eq!(fields, Err(refusal(500, "Internal Server Error")));
}

#[tokio::test]
async fn the_fields_of_an_assistant_are_cached_for_the_caller_that_read_them() {
    let (upstream, client) = scripted().await;
    let agents =
        Agents::new(vec![agents::Upstream { name: "default".to_owned(), client }], Vec::new());
    let keys_for = async |token: &'static str, schemas: Option<&Value>| {
        let token = HeaderValue::from_static(token);
        let caller = Caller::new(HeaderMap::from_iter([(AUTHORIZATION, token)]));
        let agent = agents.find(ASSISTANT, &caller).unwrap();
        let script = async {
            let Some(schemas) = schemas else { return };
            for _ in 0..2 {
                let asked = upstream.next().await;
                let is_schemas = asked.line.ends_with("/schemas");
                let assistant = json!({"assistant_id": ASSISTANT});
                let answer = if is_schemas { schemas } else { &assistant };
                asked.json(200, &answer.to_string()).await;
            }
        };
        let (fields, ()) = tokio::join!(agent.config_fields(), script);
        fields.into_iter().map(|field| field.key).collect::<Vec<_>>()
    };
    let with = |key: &str| json!({"config_schema": {"properties": {key: {"enum": ["a", "b"]}}}});
    assert_eq!(keys_for("alice", Some(&with("hers"))).await, ["hers"]);
    assert_eq!(keys_for("alice", None).await, ["hers"]);
    assert_eq!(keys_for("bob", Some(&with("his"))).await, ["his"]);
}

// === a server that answers by itself ===

#[tokio::test]
async fn the_scripted_server_does_all_this() {
    let stop = CancellationToken::new();
    let demo = Demo::new(Pace::NONE, stop.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = client(&format!("http://{}", listener.local_addr().unwrap()));
    let (routes, on_stop) = (demo.routes(), stop.clone());
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        server::serve(listener, routes, &Limits::default(), on_stop).await;
    });

    let of = |cwd: &str| object(&json!({"acp_session": true, "cwd": cwd}));
    let first = client.new_thread(THREAD, &of("/a")).await.unwrap();
    let second = client.new_thread(OTHER, &of("/b")).await.unwrap();
    client.new_thread(NOBODYS, &object(&json!({}))).await.unwrap();
    let title = object(&json!({"title": "Mine", "cwd": "/c"}));
    assert_eq!(client.change_thread(&first.id, &title).await, Ok(true));

    let all = object(&json!({"acp_session": true}));
    let page = async |metadata: &Json, limit, offset| {
        let search = ThreadSearch { metadata, limit, offset };
        client.threads(&search).await.unwrap()
    };
    let found = page(&all, 10, 0).await;
    let ids: Vec<_> = found.iter().map(|thread| &*thread.id).collect();
    assert_eq!(ids, [&*first.id, &*second.id]);
    assert_eq!(page(&all, 1, 1).await, found[1..]);
    assert_eq!(page(&of("/b"), 10, 0).await, found[1..]);
    assert_eq!(found[0].title().as_deref(), Some("Mine"));
    assert!(found[0].updated_at > first.updated_at, "{found:?}");

    let whole = client.thread(&first.id).await.unwrap().unwrap();
    // A list omits the times at which a thread and its state were made.
    let mut listed = whole.clone();
    (listed.created_at, listed.state_updated_at) = (None, None);
    assert_eq!(listed, found[0]);
    let metadata: Value = serde_json::from_str(whole.metadata.get()).unwrap();
    assert_eq!(metadata, json!({"acp_session": true, "cwd": "/c", "title": "Mine"}));

    let copy = client.copy_thread(&first.id).await.unwrap().unwrap();
    assert_ne!(copy.id, first.id);
    assert_eq!(copy.metadata, whole.metadata);
    assert_eq!(client.copy_thread(ASSISTANT).await, Ok(None));

    assert_eq!(client.delete_thread(&first.id).await, Ok(true));
    for id in [&*first.id, "no UUID"] {
        assert_eq!(client.thread(id).await, Ok(None));
        assert_eq!(client.delete_thread(id).await, Ok(false));
    }
    assert_eq!(client.change_thread(&first.id, &title).await, Ok(false));

    let assistants = client.assistants(Some("agent")).await.unwrap();
    assert_eq!(client.config_fields(&assistants[0].id).await, Ok(Vec::new()));
    stop.cancel();
    serving.join_all().await;
}
