//! One stream about many threads: its marks, its list and its events are those of one caller.

use std::time::Duration;

use super::threads::{ALICE, BOB, Front, code, judged, tenants, thread};
use crate::support::clock::{HeldClock, within};
use crate::support::gateway::{Response, input, part, run_request, serve_as, token};
use crate::support::langgraph::{LangGraph, soon, state};
use serde_json::{Value, json};
use threadway::agents::{self, Agents};
use threadway::server::{Rates, Settings, ThreadRoutePolicy};
use threadway::upstream::Client;

/// The interval of polls, and some time for their answers.
const SOON: Duration = Duration::from_secs(5);

/// Several polls.
const WHILE: Duration = Duration::from_secs(9);

/// The id of this thread.
fn id(number: usize) -> String {
    format!("0f9cfe5e-7d44-4d4f-8aef-{number:012}")
}

async fn open(front: &Front, query: &str, headers: &str) -> Response {
    let request = format!("GET /agui/events?{query} HTTP/1.1\r\nhost: 127.0.0.1\r\n{headers}\r\n");
    Response::to(front.address, request.as_bytes()).await
}

/// The next message.
async fn message(clock: &HeldClock, response: &mut Response) -> Value {
    within(clock, SOON, response.next(1)).await.remove(0)
}

/// Lets time pass, in which no message comes.
async fn is_silent(clock: &HeldClock, response: &mut Response) {
    let silent = async {
        let more = tokio::time::timeout(WHILE, response.next(1)).await;
        assert!(more.is_err(), "{more:?}");
    };
    within(clock, WHILE * 2, silent).await;
}

fn mark(thread: &str, mark: &str) -> Value {
    json!({"threadId": thread, "mark": mark})
}

fn unknown(thread: &str) -> Value {
    json!({"threadId": thread, "error": "unknown_thread",
        "message": "LangGraph has no such thread, or does not show it with these credentials"})
}

/// Sets the status of the newest run of a thread, which somebody else has started.
fn run(server: &LangGraph, thread: &str, status: &str) {
    let mut books = server.books();
    let runs = &mut books.threads.get_mut(thread).unwrap().runs;
    if status == "running" {
        let id = format!("01a200b7-5ee6-7592-b13b-{:012}", runs.len() + 1);
        let created_at = format!("2026-11-22T10:00:00.{:06}+00:00", runs.len() + 1);
        runs.insert(
            0,
            json!({"run_id": id, "thread_id": thread, "status": status,
            "created_at": created_at, "metadata": {}, "kwargs": {"resumable": true}}),
        );
    } else {
        runs[0]["status"] = json!(status);
    }
}

#[tokio::test]
async fn a_run_of_somebody_else_begins_asks_and_ends() {
    let clock = HeldClock::pause();
    let server = tenants().await;
    let front = Front::of(&server, judged(), ThreadRoutePolicy::Off).await;
    let (one, two) = (thread(&server, 1, "alice"), thread(&server, 2, "alice"));
    let query = format!("agentId=agent&thread={one}&thread={two}");
    let mut response = open(&front, &query, ALICE).await;
    assert!(response.head.contains("content-type: text/event-stream"), "{}", response.head);
    assert_eq!(response.whole_frame().await, "retry: 3000\n\n");
    let first = response.whole_frame().await;
    let data = json!({"threads": [mark(&one, "idle"), mark(&two, "idle")]});
    assert!(
        first.starts_with("id: 0.") && first.ends_with(&format!("data: {data}\n\n")),
        "{first}"
    );

    run(&server, &two, "running");
    let changed = within(&clock, SOON, response.whole_frame()).await;
    // The id of the first message stays, so that a client that comes again starts over.
    assert_eq!(changed, format!("data: {}\n\n", mark(&two, "running")));
    let asked = state("r", &json!([]), &json!([{"id": "i1", "value": "sure?"}]));
    server.books().threads.get_mut(&two).unwrap().state = Some(asked);
    run(&server, &two, "success");
    assert_eq!(message(&clock, &mut response).await, mark(&two, "waiting"));
    run(&server, &one, "running");
    assert_eq!(message(&clock, &mut response).await, mark(&one, "running"));
    run(&server, &one, "error");
    assert_eq!(message(&clock, &mut response).await, mark(&one, "failed"));
    // A cancelled run leaves the thread `interrupted`, without a question.
    run(&server, &one, "running");
    assert_eq!(message(&clock, &mut response).await, mark(&one, "running"));
    run(&server, &one, "interrupted");
    assert_eq!(message(&clock, &mut response).await, mark(&one, "idle"));
    is_silent(&clock, &mut response).await;
}

#[tokio::test]
async fn one_poll_serves_all_streams_of_a_caller_and_no_other_caller() {
    let clock = HeldClock::pause();
    let server = tenants().await;
    let front = Front::of(&server, judged(), ThreadRoutePolicy::Off).await;
    let mine: Vec<_> = (1..=3).map(|number| thread(&server, number, "alice")).collect();
    let his = thread(&server, 4, "bob");
    let mut responses = Vec::new();
    for (threads, headers) in [(&mine[..2], ALICE), (&mine[1..], ALICE), (&[his][..], BOB)] {
        let query = format!("agentId=agent&thread={}", threads.join("&thread="));
        let mut response = open(&front, &query, headers).await;
        assert_eq!(response.next(1).await[0]["threads"].as_array().unwrap().len(), threads.len());
        responses.push(response);
    }
    let searches = || server.asked("POST /threads/search");
    let before = searches().len();
    is_silent(&clock, &mut responses[0]).await;
    let polls = searches().split_off(before);
    let ids = |poll: &Value| poll["ids"].as_array().unwrap().len();
    // Each caller's poll has all of its threads, each once.
    assert!(polls.iter().all(|poll| matches!(ids(poll), 1 | 3)), "{polls:?}");
    let of_alice = polls.iter().filter(|poll| ids(poll) == 3).count();
    assert!((3..=5).contains(&of_alice) && polls.len() <= 2 * of_alice + 1, "{polls:?}");
    let asked = server.books().asked.clone();
    assert!(!asked.iter().any(|(line, _)| line.contains("/runs")), "{asked:?}");

    run(&server, &mine[1], "running");
    for response in &mut responses[..2] {
        assert_eq!(message(&clock, response).await, mark(&mine[1], "running"));
    }
    // Nobody polls for clients that have left.
    drop(responses);
    let query = format!("agentId=agent&thread={}", mine[0]);
    let mut response = open(&front, &query, ALICE).await;
    response.next(1).await;
    is_silent(&clock, &mut response).await;
    let last = searches().pop().unwrap();
    assert_eq!(last["ids"], json!([mine[0]]));
}

#[tokio::test]
async fn a_hidden_thread_ends_its_own_part_and_says_nothing_else() {
    let clock = HeldClock::pause();
    let server = tenants().await;
    let front = Front::of(&server, judged(), ThreadRoutePolicy::Off).await;
    let (hers, his) = (thread(&server, 1, "alice"), thread(&server, 2, "bob"));
    let other = thread(&server, 3, "alice");
    let query = format!("agentId=agent&thread={hers}&thread={his}&thread={other}&thread=new");
    let mut response = open(&front, &query, ALICE).await;
    let first = json!({"threads": [mark(&hers, "idle"), unknown(&his), mark(&other, "idle"), unknown("new")]});
    assert_eq!(response.next(1).await, [first]);
    run(&server, &his, "running");
    is_silent(&clock, &mut response).await;
    // What is hidden later ends, and the other thread goes on.
    server.books().threads.get_mut(&hers).unwrap().metadata["owner"] = json!("bob");
    assert_eq!(message(&clock, &mut response).await, unknown(&hers));
    run(&server, &hers, "running");
    run(&server, &other, "running");
    assert_eq!(message(&clock, &mut response).await, mark(&other, "running"));
    server.books().threads.remove(&other);
    assert_eq!(message(&clock, &mut response).await, unknown(&other));
    // Nothing is left, so the client connects again, and is refused.
    assert_eq!(within(&clock, SOON, response.body()).await, "");
    let mut again = open(&front, &query, &format!("{ALICE}last-event-id: 0.1.1\r\n")).await;
    assert!(again.head.starts_with("HTTP/1.1 404 "), "{}", again.head);
    assert!(again.body().await.contains("unknown_thread"));
}

#[tokio::test]
async fn a_thread_of_the_future_is_absent_where_unknown_threads_are_empty() {
    let clock = HeldClock::pause();
    let server = LangGraph::start().await;
    let front = Front::of(&server, threadway::server::Auth::None, ThreadRoutePolicy::Off).await;
    let mut response =
        open(&front, "agentId=agent&thread=new+one", "accept: application/x-ndjson\r\n").await;
    assert!(response.head.contains("content-type: application/x-ndjson"), "{}", response.head);
    assert_eq!(response.next(1).await, [json!({"threads": [mark("new one", "absent")]})]);
    let started = server.books().asked.len();
    let search = server.asked("POST /threads/search").remove(0);
    let created = search["ids"][0].as_str().unwrap().to_owned();
    server.thread(&created, json!({"graph_id": "agent"}), None);
    assert_eq!(message(&clock, &mut response).await, mark("new one", "idle"));
    run(&server, &created, "running");
    assert_eq!(message(&clock, &mut response).await, mark("new one", "running"));
    server.books().threads.remove(&created);
    assert_eq!(message(&clock, &mut response).await, mark("new one", "absent"));
    assert!(server.books().asked.len() > started);
}

#[tokio::test]
async fn a_list_shows_what_comes_changes_and_goes() {
    let clock = HeldClock::pause();
    let server = tenants().await;
    let front = Front::of(&server, judged(), ThreadRoutePolicy::Callers).await;
    let (hers, his) = (thread(&server, 1, "alice"), thread(&server, 2, "bob"));
    let mut response = open(&front, "agentId=agent&threads=mine", ALICE).await;
    let with_archived = "agentId=agent&threads=mine&includeArchived=true";
    let mut all = open(&front, with_archived, ALICE).await;
    let (_, list) = front.ask("GET", "/threads?agentId=agent", ALICE, &Value::Null).await;
    let mut listed = json!({"threadId": hers, "mark": "idle", "thread": list["threads"][0]});
    for response in [&mut response, &mut all] {
        assert_eq!(response.next(1).await, [json!({"threads": [listed]})]);
    }
    run(&server, &his, "running");
    run(&server, &hers, "running");
    listed["mark"] = json!("running");
    assert_eq!(message(&clock, &mut response).await, listed);
    assert_eq!(message(&clock, &mut all).await, listed);

    let agent = json!({"agentId": "agent", "name": "Renamed"});
    let path = format!("/threads/{hers}");
    assert_eq!(front.ask("PATCH", &path, ALICE, &agent).await.0, 200);
    let renamed = message(&clock, &mut response).await;
    assert_eq!(
        (&renamed["thread"]["name"], &renamed["mark"]),
        (&json!("Renamed"), &json!("running"))
    );
    assert_eq!(message(&clock, &mut all).await, renamed);

    let new = thread(&server, 3, "alice");
    let came = message(&clock, &mut response).await;
    assert_eq!((&came["threadId"], &came["thread"]["id"]), (&json!(new), &json!(new)));
    assert_eq!(message(&clock, &mut all).await, came);

    let archive = format!("/threads/{new}/archive");
    assert_eq!(front.ask("POST", &archive, ALICE, &agent).await.0, 200);
    let gone = json!({"threadId": new, "removed": true});
    assert_eq!(message(&clock, &mut response).await, gone);
    assert_eq!(message(&clock, &mut all).await["thread"]["archived"], true);

    server.books().threads.remove(&hers);
    let gone = json!({"threadId": hers, "removed": true});
    assert_eq!(message(&clock, &mut response).await, gone);
    assert_eq!(message(&clock, &mut all).await, gone);
    is_silent(&clock, &mut response).await;
    // One request each serves two streams that ask for the same.
    let _second = open(&front, with_archived, ALICE).await;
    let before = server.asked("POST /threads/search").len();
    is_silent(&clock, &mut all).await;
    let polls = server.asked("POST /threads/search").len() - before;
    assert!((6..=12).contains(&polls), "{polls}");
}

#[tokio::test]
async fn a_request_is_refused_as_elsewhere() {
    let server = tenants().await;
    let front = Front::of(&server, judged(), ThreadRoutePolicy::Off).await;
    let one = thread(&server, 1, "alice");
    let of =
        |count: usize| (0..count).fold(String::new(), |query, at| format!("{query}&thread={at}"));
    for (query, headers, status, error) in [
        (format!("thread={one}"), ALICE, 400, "invalid_request"),
        ("agentId=agent".to_owned(), ALICE, 400, "invalid_request"),
        ("agentId=agent&thread=".to_owned(), ALICE, 400, "invalid_request"),
        (format!("agentId=agent{}", of(101)), ALICE, 400, "invalid_request"),
        (format!("agentId=agent&events=all{}", of(21)), ALICE, 400, "invalid_request"),
        ("agentId=agent&threads=mine".to_owned(), ALICE, 403, "threads_off"),
        (format!("agentId=agent&thread={one}"), BOB, 404, "unknown_thread"),
        (format!("agentId=agent&thread={one}"), "", 401, "unauthenticated"),
        (format!("agentId=agent&thread={one}"), "x-api-key: eve\r\n", 401, "unauthorized"),
        (format!("agentId=nobody&thread={one}"), ALICE, 404, "unknown_agent"),
        (
            format!("agentId=agent&thread={one}"),
            "x-api-key: alice\r\naccept: application/vnd.ag-ui.event+proto\r\n",
            406,
            "not_acceptable",
        ),
    ] {
        let path = format!("/events?{query}");
        let answer = front.ask("GET", &path, headers, &Value::Null);
        let answer = soon(&path, answer).await;
        assert_eq!(code(answer), (status, error.to_owned()), "{query} {headers}");
    }
}

#[tokio::test]
async fn a_stream_takes_a_slot_of_its_caller_whatever_threads_it_has() {
    let server = LangGraph::start().await;
    server.thread(&id(1), json!({"graph_id": "agent"}), None);
    server.thread(&id(2), json!({"graph_id": "agent"}), None);
    let client = Client::new(server.url.parse().unwrap(), None).unwrap();
    let upstream = agents::Upstream { name: "default".to_owned(), client };
    let rates = Rates { streams: std::num::NonZeroUsize::new(1), ..Rates::default() };
    let settings = Settings { rates, ..Settings::default() };
    let (address, _stop, _serving, _) =
        serve_as(Agents::new(vec![upstream], Vec::new()), settings).await;
    let events = format!("agentId=agent&events=all&thread={}&thread={}", id(1), id(2));
    let ask = async |headers: &str| {
        let request =
            format!("GET /agui/events?{events} HTTP/1.1\r\nhost: 127.0.0.1\r\n{headers}\r\n");
        Response::to(address, request.as_bytes()).await
    };
    let mut first = ask("").await;
    assert_eq!(first.next(1).await[0]["threads"].as_array().unwrap().len(), 2);
    let mut second = ask("").await;
    assert!(second.head.starts_with("HTTP/1.1 429 "), "{}", second.head);
    assert!(second.body().await.contains("too_many_streams"));
    // An `EventSource` that comes again survives it.
    let mut again = ask("last-event-id: 0.1.1\r\n").await;
    assert!(again.head.starts_with("HTTP/1.1 200 "), "{}", again.head);
    assert!(again.body().await.starts_with("retry: "));
}

/// The events of a thread, until this text.
async fn until(clock: &HeldClock, response: &mut Response, thread: &str, text: &str) -> Vec<Value> {
    let mut events = Vec::new();
    loop {
        let next = message(clock, response).await;
        if next["threadId"] == thread && next.get("event").is_some() {
            let is_last = next["event"]["delta"] == text;
            events.push(next);
            if is_last {
                return events;
            }
        }
    }
}

#[tokio::test]
async fn the_events_of_all_threads_come_in_one_stream_with_their_names_and_ids() {
    let clock = HeldClock::pause();
    let mut server = tenants().await;
    let front = Front::of(&server, judged(), ThreadRoutePolicy::Off).await;
    let (one, two) = (thread(&server, 1, "alice"), thread(&server, 2, "alice"));
    let his = thread(&server, 3, "bob");
    let query = format!("agentId=agent&events=all&thread={one}&thread={two}&thread={his}");
    let mut response = open(&front, &query, ALICE).await;
    let first = json!({"threads": [mark(&one, "idle"), mark(&two, "idle"), unknown(&his)]});
    assert_eq!(response.next(1).await, [first]);
    // Both threads are shown as they are.
    let mut shown = Vec::new();
    while shown.len() < 2 {
        let next = message(&clock, &mut response).await;
        if let Some(said) = next["event"]["messages"][0]["content"].as_str() {
            assert_eq!(said, "words of alice");
            shown.push(next["threadId"].clone());
        }
    }
    shown.sort_by_key(Value::to_string);
    assert_eq!(shown, [json!(one), json!(two)]);

    // Somebody starts a run on one of them.
    server.hold("/runs/stream");
    let mut input = input(&["hi"]);
    input["threadId"] = json!(two);
    let request = run_request("agent", ALICE, &input.to_string());
    let (_posted, mut started) = tokio::join!(
        within(&clock, SOON, Response::to(front.address, request.as_bytes())),
        server.run(),
    );
    let held = json!([{"id": "m1", "type": "human", "content": "words of alice"}, started.said()]);
    // The ids are those of the server's store.
    let mut last = 0;
    let mut kept = |part: String| {
        last += 1;
        format!("id: {last}-0\r\n{part}")
    };
    let metadata = part("metadata", &json!({"run_id": started.id, "attempt": 1}));
    started.exchange.send(kept(metadata)).await;
    started.exchange.send(kept(part("values", &json!({"messages": held})))).await;
    started.exchange.send(kept(token("m2", "Hello"))).await;
    until(&clock, &mut response, &two, "Hello").await;
    // A client can resume after what is no part of a snapshot.
    started.exchange.send(kept(token("m2", " there"))).await;
    let said = until(&clock, &mut response, &two, " there").await.pop().unwrap();
    assert_eq!(said["event"]["type"], "TEXT_MESSAGE_CONTENT");
    let position = said["id"].as_str().unwrap();

    // A client that comes again goes on in that thread, and the other one is shown anew.
    let headers = format!("{ALICE}last-event-id: {position}\r\n");
    let mut again = open(&front, &query, &headers).await;
    let first = within(&clock, SOON, again.next(1)).await;
    assert_eq!(first[0]["threads"][1], mark(&two, "running"));
    let shown = message(&clock, &mut again).await;
    assert_eq!(
        (&shown["threadId"], &shown["event"]["type"]),
        (&json!(one), &json!("RUN_STARTED")),
        "{position}"
    );
    started.exchange.send(kept(token("m2", " again"))).await;
    let events = until(&clock, &mut again, &two, " again").await;
    assert_eq!(events.len(), 1, "{events:#?}");
    until(&clock, &mut response, &two, " again").await;
}

#[tokio::test]
async fn a_shutdown_breaks_the_stream_off() {
    let clock = HeldClock::pause();
    let server = tenants().await;
    let front = Front::of(&server, judged(), ThreadRoutePolicy::Callers).await;
    let one = thread(&server, 1, "alice");
    let queries = [
        format!("agentId=agent&thread={one}"),
        "agentId=agent&threads=mine".to_owned(),
        format!("agentId=agent&events=all&thread={one}"),
    ];
    let mut responses = Vec::new();
    for query in queries {
        let mut response = open(&front, &query, ALICE).await;
        response.next(1).await;
        responses.push(response);
    }
    front.stop.cancel();
    for mut response in responses {
        let rest = within(&clock, SOON, response.body()).await;
        assert!(!rest.contains("error") && !rest.contains("RUN_ERROR"), "{rest}");
    }
}

#[tokio::test]
async fn a_server_that_cannot_list_by_ids_is_asked_for_each_thread_once() {
    let clock = HeldClock::pause();
    let server = tenants().await;
    server.books().rejects_select = true;
    let front = Front::of(&server, judged(), ThreadRoutePolicy::Off).await;
    let (hers, his) = (thread(&server, 1, "alice"), thread(&server, 2, "bob"));
    run(&server, &hers, "running");
    let query = format!("agentId=agent&thread={hers}&thread={his}");
    let mut response = open(&front, &query, ALICE).await;
    assert_eq!(
        response.next(1).await,
        [json!({"threads": [mark(&hers, "running"), unknown(&his)]})]
    );
    run(&server, &hers, "success");
    assert_eq!(message(&clock, &mut response).await, mark(&hers, "idle"));
    let records = server.asked(&format!("GET /threads/{hers}")).len();
    is_silent(&clock, &mut response).await;
    assert_eq!(server.asked(&format!("GET /threads/{hers}")).len(), records);
}

#[tokio::test]
async fn a_caller_that_langgraph_refuses_later_connects_again_and_learns_why() {
    let clock = HeldClock::pause();
    let server = tenants().await;
    let front = Front::of(&server, judged(), ThreadRoutePolicy::Callers).await;
    let one = thread(&server, 1, "alice");
    let queries = [format!("agentId=agent&thread={one}"), "agentId=agent&threads=mine".to_owned()];
    let mut responses = Vec::new();
    for query in &queries {
        let mut response = open(&front, query, ALICE).await;
        response.next(1).await;
        responses.push(response);
    }
    server.books().tenants.remove("alice");
    for mut response in responses {
        assert_eq!(within(&clock, SOON, response.body()).await, "");
    }
    for query in &queries {
        let refused = open(&front, query, ALICE).await;
        assert!(refused.head.starts_with("HTTP/1.1 401 "), "{}", refused.head);
    }
}
