//! The threads of an agent: CopilotKit's client lists, renames, archives, deletes and inspects
//! them.

use std::net::SocketAddr;

use crate::support::gateway::{Response, agents, serve_as};
use crate::support::langgraph::{LangGraph, state};
use serde_json::{Value, json};
use threadway::server::{MAX_NAME_CHARS, Settings, ThreadRoutePolicy};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The LangGraph id of `my thread`.
const MINE: &str = "e817c419-7e64-5f51-8a5c-c4cf14d1fb2d";

const LIST: &str = "/threads?agentId=agent";

/// A gateway in front of a server with threads.
struct Page {
    server: LangGraph,
    address: SocketAddr,
    _stop: CancellationToken,
    _serving: JoinSet<()>,
}

// === impl Page ===

impl Page {
    async fn with(thread_routes: ThreadRoutePolicy) -> Self {
        let server = LangGraph::start().await;
        let settings = Settings { thread_routes, ..Settings::default() };
        let agents = agents(&[("default", &server.url)], &[]);
        let (address, stop, serving, _) = serve_as(agents, settings).await;
        Self { server, address, _stop: stop, _serving: serving }
    }

    async fn open() -> Self {
        Self::with(ThreadRoutePolicy::All).await
    }

    /// Adds a thread of the agent, last changed at this second.
    fn thread(&self, number: usize, changed_at: usize, metadata: &Value) -> String {
        let id = format!("0f9cfe5e-7d44-4d4f-8aef-{number:012}");
        let mut all = json!({"graph_id": "agent", "assistant_id": "id-of-agent"});
        all.as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        self.server.thread(&id, all, None);
        self.server.books().threads.get_mut(&id).unwrap().changed_at = changed_at;
        id
    }

    /// Sends a request on a plain route and in an envelope; both must get the same answer.
    async fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        answer(self.address, &request(method, &format!("/agui{path}"), body)).await
    }

    async fn ask_in_envelope(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let envelope = json!({
            "method": "resource/request",
            "params": {"path": path, "httpMethod": method},
            "body": body,
        });
        answer(self.address, &request("POST", "/agui", &envelope)).await
    }

    async fn get(&self, path: &str) -> Value {
        let (status, answer) = self.ask("GET", path, &Value::Null).await;
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }

    /// The ids of a page of the list, and its cursor.
    async fn ids(&self, query: &str) -> (Vec<String>, Option<String>) {
        let page = self.get(&format!("{LIST}{query}")).await;
        let ids = page["threads"].as_array().unwrap().iter();
        let ids = ids.map(|thread| thread["id"].as_str().unwrap().to_owned()).collect();
        (ids, page["nextCursor"].as_str().map(str::to_owned))
    }
}

fn request(method: &str, path: &str, body: &Value) -> String {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    format!(
        "{method} {path} HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

async fn answer(address: SocketAddr, request: &str) -> (u16, Value) {
    let mut response = Response::to(address, request.as_bytes()).await;
    let status = response.head.split(' ').nth(1).unwrap().parse().unwrap();
    let body = response.body().await;
    (status, serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}")))
}

fn code((status, answer): (u16, Value)) -> (u16, String) {
    let Value::Object(mut answer) = answer else { panic!("{answer}") };
    (status, answer.remove("error").unwrap().as_str().unwrap().to_owned())
}

#[tokio::test]
async fn list_has_what_the_client_reads() {
    let page = Page::open().await;
    let named = json!({"title": "Holidays", "archived": false, "threadway_thread_id": "my thread"});
    page.thread(1, 3, &json!({}));
    let mut metadata = named.clone();
    metadata["graph_id"] = json!("agent");
    page.server.thread(MINE, metadata, None);
    page.server.books().threads.get_mut(MINE).unwrap().changed_at = 4;
    page.server.thread("0f9cfe5e-7d44-4d4f-8aef-000000000009", json!({"graph_id": "other"}), None);
    let thread = |id: &str, name: Value, second: u8| {
        json!({
            "id": id, "organizationId": "", "agentId": "agent", "createdById": "", "name": name,
            "archived": false, "createdAt": "2026-11-22T09:00:00.000000+00:00",
            "updatedAt": format!("2026-11-22T10:00:{second:02}.000000+00:00"),
            "lastRunAt": "2026-11-22T09:30:00.000000+00:00",
        })
    };
    let expected = json!({
        "threads": [
            thread("my thread", json!("Holidays"), 4),
            thread("0f9cfe5e-7d44-4d4f-8aef-000000000001", Value::Null, 3),
        ],
        "nextCursor": null,
    });
    assert_eq!(page.get(LIST).await, expected);
    let in_envelope = page.ask_in_envelope("GET", LIST, &Value::Null).await;
    assert_eq!(in_envelope, (200, expected));
    let search = page.server.asked("POST /threads/search").remove(0);
    let columns =
        ["thread_id", "metadata", "status", "created_at", "updated_at", "state_updated_at"];
    assert_eq!(
        search,
        json!({"metadata": {"graph_id": "agent"}, "limit": 121, "offset": 0,
            "sort_by": "updated_at", "sort_order": "desc", "select": columns})
    );
}

#[tokio::test]
async fn server_that_rejects_columns_is_asked_for_them_once() {
    let page = Page::open().await;
    page.thread(1, 1, &json!({}));
    page.server.books().rejects_select = true;
    for _ in 0..2 {
        let listed = page.get(LIST).await;
        assert_eq!(listed["threads"].as_array().unwrap().len(), 1, "{listed}");
    }
    let searches = page.server.asked("POST /threads/search");
    let selects: Vec<_> = searches.iter().map(|search| search.get("select").is_some()).collect();
    assert_eq!(selects, [true, false, false]);
}

#[tokio::test]
async fn assistant_lists_the_threads_that_it_ran() {
    let page = Page::open().await;
    let assistant = "5f1b1d1e-0000-4000-8000-000000000001";
    let known = json!({"assistant_id": assistant, "graph_id": "agent"});
    page.server.books().assistants.push(known);
    page.thread(1, 1, &json!({"assistant_id": assistant}));
    page.thread(2, 2, &json!({}));
    let listed = page.get(&format!("/threads?agentId={assistant}")).await;
    let threads = listed["threads"].as_array().unwrap();
    assert_eq!(threads.len(), 1, "{listed}");
    assert_eq!(threads[0]["agentId"], assistant);
}

#[tokio::test]
async fn pages_lose_and_repeat_nothing_while_threads_change_and_go() {
    let page = Page::open().await;
    let mut all: Vec<_> = (1..=30).map(|n| page.thread(n, n, &json!({}))).collect();
    all.reverse();
    let (first, cursor) = page.ids("&limit=10").await;
    assert_eq!(first, all[..10]);
    // Two of these threads are deleted, and the last one of all moves to the top.
    for id in &first[..2] {
        let (status, _) =
            page.ask("DELETE", &format!("/threads/{id}"), &json!({"agentId": "agent"})).await;
        assert_eq!(status, 200);
    }
    let renamed = json!({"agentId": "agent", "name": "moved"});
    page.ask("PATCH", &format!("/threads/{}", all[29]), &renamed).await;
    let (second, cursor) = page.ids(&format!("&limit=10&cursor={}", cursor.unwrap())).await;
    assert_eq!(second, all[10..20]);
    let (third, cursor) = page.ids(&format!("&limit=10&cursor={}", cursor.unwrap())).await;
    assert_eq!((third.as_slice(), cursor), (&all[20..29], None));
}

#[tokio::test]
async fn page_is_found_also_where_more_threads_have_gone_than_pages_overlap() {
    let page = Page::open().await;
    let mut all: Vec<_> = (1..=59).map(|n| page.thread(n, n, &json!({}))).collect();
    all.reverse();
    let (_, cursor) = page.ids("&limit=50").await;
    for id in &all[..45] {
        page.server.books().threads.remove(id);
    }
    let (rest, _) = page.ids(&format!("&limit=50&cursor={}", cursor.unwrap())).await;
    assert_eq!(rest, all[50..]);
}

#[tokio::test]
async fn threads_that_were_changed_at_one_moment_are_all_listed() {
    let page = Page::open().await;
    let mut all: Vec<_> = (1..=7).map(|n| page.thread(n, 5, &json!({}))).collect();
    let (mut listed, mut cursor) = page.ids("&limit=3").await;
    while let Some(place) = cursor {
        let (more, next) = page.ids(&format!("&limit=3&cursor={place}")).await;
        listed.extend(more);
        cursor = next;
    }
    listed.sort();
    all.sort();
    assert_eq!(listed, all);
}

#[tokio::test]
async fn archived_threads_are_left_out_over_pages_and_a_page_costs_few_searches() {
    let page = Page::open().await;
    let is_kept = |n: usize| n.is_multiple_of(10);
    let mut all: Vec<_> =
        (1..=59).map(|n| page.thread(n, n, &json!({"archived": !is_kept(n)}))).collect();
    all.reverse();
    let kept = all.iter().enumerate().filter(|(at, _)| is_kept(59 - at));
    let kept: Vec<_> = kept.map(|(_, id)| id.clone()).collect();
    assert_eq!(page.ids("").await, (kept.clone(), None));
    assert_eq!(page.ids("&includeArchived=true").await, (all.clone(), None));
    let (mut listed, mut cursor) = page.ids("&limit=2").await;
    assert_eq!(listed, kept[..2]);
    while let Some(place) = cursor {
        let (more, next) = page.ids(&format!("&limit=2&cursor={place}")).await;
        listed.extend(more);
        cursor = next;
    }
    assert_eq!(listed, kept);

    // A page of the list does not read all threads of a server whose threads are archived.
    for number in 1_000..1_400 {
        page.thread(number, 59, &json!({"archived": true}));
    }
    let before = page.server.asked("POST /threads/search").len();
    let (none, cursor) = page.ids("&limit=1").await;
    assert!(none.is_empty() && cursor.is_some(), "{none:?} {cursor:?}");
    assert_eq!(page.server.asked("POST /threads/search").len() - before, 5);
}

#[tokio::test]
async fn thread_is_named_archived_taken_back_and_deleted() {
    for in_envelope in [false, true] {
        let page = Page::open().await;
        let metadata = json!({"graph_id": "agent", "threadway_thread_id": "my thread"});
        page.server.thread(MINE, metadata, None);
        let ask = async |method: &str, path: &str, more: Value| {
            let mut body = json!({"agentId": "agent"});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let path = format!("/threads/my%20thread{path}");
            let answer = if in_envelope {
                page.ask_in_envelope(method, &path, &body).await
            } else {
                page.ask(method, &path, &body).await
            };
            assert_eq!(answer.0, 200, "{}", answer.1);
            answer.1
        };
        let listed =
            async || page.get(&format!("{LIST}&includeArchived=true")).await["threads"][0].clone();
        let told = ask("PATCH", "", json!({"name": "A \"name\""})).await;
        assert_eq!(told, json!({"threadId": "my thread", "name": "A \"name\""}));
        assert_eq!(listed().await["name"], "A \"name\"");
        let told = ask("POST", "/archive", json!({})).await;
        assert_eq!(told, json!({"threadId": "my thread", "archived": true}));
        assert_eq!(listed().await["archived"], true);
        assert_eq!(page.ids("").await.0, Vec::<String>::new());
        let told = ask("PATCH", "", json!({"archived": false})).await;
        assert_eq!(told, json!({"threadId": "my thread", "archived": false}));
        assert_eq!(page.ids("").await.0, ["my thread"]);
        ask("PATCH", "", json!({"name": null})).await;
        assert_eq!(listed().await["name"], Value::Null);
        let told = ask("DELETE", "", json!({})).await;
        assert_eq!(told, json!({"threadId": "my thread", "deleted": true}));
        assert!(page.server.books().threads.is_empty());
        // The other members of the metadata are unchanged.
        let patched = page.server.asked("PATCH /threads");
        assert_eq!(patched[0], json!({"metadata": {"title": "A \"name\""}}));
        assert_eq!(patched[1], json!({"metadata": {"archived": true}}));
    }
}

#[tokio::test]
async fn name_that_is_cut_in_the_middle_of_an_emoji_is_taken() {
    let page = Page::open().await;
    let id = page.thread(1, 1, &json!({}));
    let path = format!("/threads/{id}");
    let body = json!({"agentId": "agent", "name": "cut: HALF"});
    let envelope = json!({
        "method": "resource/request", "params": {"path": path, "httpMethod": "PATCH"}, "body": body,
    });
    for (method, path, body) in
        [("PATCH", format!("/agui{path}"), body), ("POST", "/agui".to_owned(), envelope)]
    {
        // The escape has two bytes more.
        let request = request(method, &path, &body).replace("HALF", "\\ud83d");
        let request = request.replace(
            &format!("content-length: {}", body.to_string().len()),
            &format!("content-length: {}", body.to_string().len() + 2),
        );
        let (status, answer) = answer(page.address, &request).await;
        assert_eq!((status, &answer["name"]), (200, &json!("cut: \u{fffd}")), "{answer}");
    }
}

#[tokio::test]
async fn live_run_is_stopped_before_its_thread_is_deleted() {
    let page = Page::open().await;
    let id = page.thread(1, 1, &json!({}));
    page.server.books().threads.get_mut(&id).unwrap().runs =
        vec![json!({"run_id": "01a200b7-5ee6-7592-b13b-000000000001", "status": "running"})];
    let (status, _) =
        page.ask("DELETE", &format!("/threads/{id}"), &json!({"agentId": "agent"})).await;
    assert_eq!(status, 200);
    let books = page.server.books();
    let lines: Vec<_> = books.asked.iter().map(|(line, _)| line.as_str()).collect();
    let place = |what: &str| lines.iter().position(|line| line.contains(what)).unwrap();
    assert!(place("/cancel") < place("DELETE"), "{lines:?}");
}

#[tokio::test]
async fn thread_is_inspected() {
    let page = Page::open().await;
    let id = page.thread(1, 1, &json!({}));
    let messages = json!([
        {"id": "m1", "type": "human", "content": "hi"},
        {"id": "m2", "type": "ai", "content": "one moment",
         "tool_calls": [{"id": "c1", "name": "look", "args": {"at": 1}}]},
        {"id": "m3", "type": "tool", "tool_call_id": "c1", "content": "seen"},
    ]);
    let mut held = state("r", &messages, &json!([]));
    held["values"]["n"] = json!(1);
    page.server.books().threads.get_mut(&id).unwrap().state = Some(held);
    let expected = json!({"messages": [
        {"id": "m1", "role": "user", "content": "hi"},
        {"id": "m2", "role": "assistant", "content": "one moment",
         "toolCalls": [{"id": "c1", "name": "look", "args": "{\"at\":1}"}]},
        {"id": "m3", "role": "tool", "content": "seen", "toolCallId": "c1"},
    ]});
    // CopilotKit's inspector does not name the agent of a thread.
    for query in ["", "?agentId=agent"] {
        let path = format!("/threads/{id}/messages{query}");
        assert_eq!(page.get(&path).await, expected, "{query}");
        assert_eq!(page.ask_in_envelope("GET", &path, &Value::Null).await, (200, expected.clone()));
    }
    assert_eq!(page.get(&format!("/threads/{id}/state")).await, json!({"state": {"n": 1}}));
    let events = page.get(&format!("/threads/{id}/events")).await;
    let types: Vec<_> = events["events"].as_array().unwrap().iter().map(|e| &e["type"]).collect();
    assert_eq!(types, ["RUN_STARTED", "STATE_SNAPSHOT", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]);
    let gone = page.ask("GET", "/threads/nothing/messages", &Value::Null).await;
    assert_eq!(code(gone), (404, "unknown_thread".to_owned()));
}

#[tokio::test]
async fn request_that_cannot_be_done_is_refused() {
    let page = Page::open().await;
    let id = page.thread(1, 1, &json!({}));
    let (thread, archive) = (format!("/threads/{id}"), format!("/threads/{id}/archive"));
    let long = "x".repeat(MAX_NAME_CHARS + 1);
    let agent = json!({"agentId": "agent"});
    let with = |name: &str, value: Value| json!({"agentId": "agent", name: value});
    let bad = |code: &str| (400, code.to_owned());
    for (method, path, body, expected) in [
        ("GET", "/threads", Value::Null, bad("invalid_request")),
        ("GET", "/threads?agentId=agent&limit=0", Value::Null, bad("invalid_request")),
        ("GET", "/threads?agentId=agent&limit=201", Value::Null, bad("invalid_request")),
        ("GET", "/threads?agentId=agent&limit=x", Value::Null, bad("invalid_request")),
        ("GET", "/threads?agentId=agent&cursor=7", Value::Null, bad("invalid_request")),
        ("PATCH", &thread, json!({"name": "x"}), bad("invalid_request")),
        ("PATCH", &thread, agent.clone(), bad("invalid_request")),
        ("PATCH", &thread, with("name", json!(7)), bad("invalid_request")),
        ("PATCH", &thread, with("name", json!(long)), bad("invalid_request")),
        ("PATCH", &thread, with("archived", json!("yes")), bad("invalid_request")),
        ("POST", &archive, json!({}), bad("invalid_request")),
        ("DELETE", &thread, json!([]), bad("invalid_request")),
        ("PATCH", "/threads/none", with("name", json!("x")), (404, "unknown_thread".to_owned())),
        ("DELETE", "/threads/none", agent.clone(), (404, "unknown_thread".to_owned())),
        ("POST", "/threads", agent.clone(), (405, "wrong_method".to_owned())),
        ("GET", &archive, Value::Null, (405, "wrong_method".to_owned())),
        ("GET", &format!("{thread}/memories"), Value::Null, (404, "unknown_route".to_owned())),
        ("GET", "/memories", Value::Null, (404, "unknown_route".to_owned())),
    ] {
        let plain = page.ask(method, path, &body).await;
        assert_eq!(code(plain), expected, "{method} {path} {body}");
        let in_envelope = page.ask_in_envelope(method, path, &body).await;
        assert_eq!(code(in_envelope), expected, "in an envelope: {method} {path} {body}");
    }
    for path in ["threads", "http://h/threads", "//h/threads", "/threads/a/b/c", "/agent/a/run"] {
        let refused = page.ask_in_envelope("GET", path, &Value::Null).await;
        assert_eq!(code(refused), (404, "unknown_route".to_owned()), "{path}");
    }
    let refused = page.ask_in_envelope("G T", LIST, &Value::Null).await;
    assert_eq!(code(refused), (405, "wrong_method".to_owned()));
    // A form of a foreign page can send this request without a preflight.
    let form = format!("DELETE /agui{thread} HTTP/1.1\r\nhost: h\r\ncontent-length: 0\r\n\r\n");
    assert_eq!(code(answer(page.address, &form).await), (415, "not_json".to_owned()));
    assert_eq!(page.server.books().threads.len(), 1);
}

#[tokio::test]
async fn thread_routes_that_are_off_ask_nothing_of_langgraph() {
    let page = Page::with(ThreadRoutePolicy::Off).await;
    let id = page.thread(1, 1, &json!({}));
    let agent = json!({"agentId": "agent"});
    for (method, path, body) in [
        ("GET", LIST.to_owned(), Value::Null),
        ("PATCH", format!("/threads/{id}"), json!({"agentId": "agent", "name": "x"})),
        ("POST", format!("/threads/{id}/archive"), agent.clone()),
        ("DELETE", format!("/threads/{id}"), agent.clone()),
        ("GET", format!("/threads/{id}/messages"), Value::Null),
        ("GET", format!("/threads/{id}/events?agentId=agent"), Value::Null),
    ] {
        let expected = (403, "threads_off".to_owned());
        assert_eq!(code(page.ask(method, &path, &body).await), expected, "{method} {path}");
        let in_envelope = page.ask_in_envelope(method, &path, &body).await;
        assert_eq!(code(in_envelope), expected, "in an envelope: {method} {path}");
    }
    assert!(page.server.books().asked.is_empty());
}

#[tokio::test]
async fn info_says_truly_whether_there_are_threads() {
    for (routes, is_there) in [(ThreadRoutePolicy::All, true), (ThreadRoutePolicy::Off, false)] {
        let page = Page::with(routes).await;
        let told = json!({"list": is_there, "inspect": is_there, "mutations": is_there,
            "realtimeMetadata": false});
        let info = page.get("/info").await;
        assert_eq!(info["threadEndpoints"], told);
        assert_eq!(
            info["singleRoute"],
            json!({"resourceOperations": true, "threadEndpoints": told})
        );
    }
}
