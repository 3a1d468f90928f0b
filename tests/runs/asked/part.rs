//! Some actions of a batch are answered now and the rest later: through another replica, twice, at
//! once, or never. LangGraph's own requests and the thread's metadata show the result.

use super::{ASKED, Front, OTHER, answers, approval, asked_ids, changes, connect, said, started};
use super::{body, outcome, waiting};
use crate::support::gateway::{Response, THREAD, events_request, part, refused};
use crate::support::langgraph::{LangGraph, soon, state};
use serde_json::{Value, json};
use threadway_translate::agui::OnMessage;

const KEY: &str = "threadway_answer:";

fn batch(id: &str) -> Value {
    let all = &["approve", "edit", "reject"][..];
    approval(id, &[("send", all), ("delete_file", all), ("mail", all)])
}

fn of(action: usize) -> String {
    format!("{ASKED}:{action}")
}

fn yes() -> Value {
    json!({"approved": true})
}

fn no() -> Value {
    json!({"approved": false, "reason": "no"})
}

/// An answer to one action of the batch.
fn one(action: usize, payload: Value) -> Value {
    answers(&[(&of(action), payload)])
}

fn decisions(of: &[&str]) -> Value {
    let decision = |kind: &&str| match *kind {
        "reject" => json!({"type": "reject", "message": "no"}),
        kind => json!({"type": kind}),
    };
    json!({"decisions": of.iter().map(decision).collect::<Vec<_>>()})
}

/// The decisions in the thread's metadata: the action's index and the kind of the decision.
fn kept(server: &LangGraph) -> Vec<(u64, String)> {
    let books = server.books();
    let metadata = books.threads[THREAD].metadata.as_object().unwrap();
    let mut kept: Vec<_> = metadata
        .iter()
        .filter(|(key, value)| key.starts_with(KEY) && !value.is_null())
        .map(|(_, value)| {
            let kind = value["decision"]["type"].as_str().unwrap().to_owned();
            (value["action"].as_u64().unwrap(), kind)
        })
        .collect();
    kept.sort();
    kept
}

fn keeps(server: &LangGraph, metadata: &[(&str, Value)]) {
    let mut books = server.books();
    let thread = books.threads.get_mut(THREAD).unwrap();
    for (place, value) in metadata {
        thread.metadata[format!("{KEY}{place}")] = value.clone();
    }
}

fn decided(action: usize, after: &str, kind: &str) -> Value {
    json!({"interrupt": ASKED, "action": action, "after": after, "decision": {"type": kind}})
}

async fn shown(gateway: &Front) -> Vec<String> {
    asked_ids(&connect(gateway).await.rest().await)
}

#[tokio::test]
async fn the_first_answers_wait_for_the_last_on_any_replica() {
    let mut server = LangGraph::start().await;
    waiting(&server, &json!([batch(ASKED)]));
    let (first, second) = (Front::of(&server).await, Front::of(&server).await);
    let events = first.asks(&one(1, no())).await.rest().await;
    assert_eq!(events[0]["type"], "RUN_STARTED");
    assert_eq!(asked_ids(&events), [of(0), of(2)]);
    assert_eq!(kept(&server), [(1, "reject".to_owned())]);
    assert_eq!(changes(&server), [format!("PATCH /threads/{THREAD}")]);
    for gateway in [&first, &second] {
        assert_eq!(shown(gateway).await, [of(0), of(2)]);
    }
    let events = second.asks(&one(2, yes())).await.rest().await;
    assert_eq!(asked_ids(&events), [of(0)]);
    assert_eq!(started(&server), Vec::<Value>::new());

    let last = one(0, yes());
    let (mut response, run) = tokio::join!(first.asks(&last), server.run());
    let resume = &run.body["command"]["resume"];
    assert_eq!(*resume, json!({ASKED: decisions(&["approve", "reject", "approve"])}));
    assert_eq!(run.body["metadata"]["threadway_answers"], json!([ASKED]));
    // LangGraph copies the thread's metadata to those of the run and of each checkpoint.
    let metadata = run.body["metadata"].as_object().unwrap();
    let hidden: Vec<_> = metadata.iter().filter(|(key, _)| key.starts_with(KEY)).collect();
    assert_eq!(hidden.len(), 2);
    assert!(hidden.iter().all(|(_, value)| value.is_null()), "{hidden:?}");
    run.ends_with(&json!([])).await;
    let events = soon("the end", response.rest()).await;
    assert_eq!(outcome(&events), "success");
    server.until("nothing is kept", |server| kept(server).is_empty()).await;
    assert_eq!(started(&server).len(), 1);
}

#[tokio::test]
async fn a_later_decision_on_the_same_action_takes_the_place_of_the_first() {
    let mut server = LangGraph::start().await;
    waiting(&server, &json!([batch(ASKED)]));
    let gateway = Front::of(&server).await;
    for (sent, kind) in [(yes(), "approve"), (no(), "reject"), (no(), "reject")] {
        let events = gateway.asks(&one(1, sent)).await.rest().await;
        assert_eq!(asked_ids(&events), [of(0), of(2)]);
        assert_eq!(kept(&server), [(1, kind.to_owned())]);
    }
    // Sending the same answer again changes nothing.
    assert_eq!(changes(&server).len(), 2);
    let rest = answers(&[(&of(0), yes()), (&of(2), yes()), (&of(1), yes())]);
    let (_response, run) = tokio::join!(gateway.asks(&rest), server.run());
    let resume = &run.body["command"]["resume"];
    assert_eq!(*resume, json!({ASKED: decisions(&["approve", "approve", "approve"])}));
}

#[tokio::test]
async fn two_answers_at_once_through_two_replicas_start_one_run() {
    let mut server = LangGraph::start().await;
    waiting(&server, &json!([batch(ASKED)]));
    keeps(&server, &[("0:0", decided(0, "R0", "approve"))]);
    let (one_of, other) = (Front::of(&server).await, Front::of(&server).await);
    // Both replicas see two open actions before either stores its decision.
    server.hold("PATCH");
    let (left, right) = (one(1, yes()), one(2, no()));
    let both = async { tokio::join!(one_of.asks(&left), other.asks(&right)) };
    let (responses, run) = tokio::join!(both, async {
        let (first, second) = (server.held("PATCH").await, server.held("PATCH").await);
        server.let_go_of("PATCH");
        for patch in [first, second] {
            let change: Value = serde_json::from_str(&patch.body).unwrap();
            for (name, value) in change["metadata"].as_object().unwrap() {
                let mut books = server.books();
                books.threads.get_mut(THREAD).unwrap().metadata[name] = value.clone();
            }
            patch.json(200, "{}").await;
        }
        let held = server.held("/runs/stream").await;
        let begun = server.begin(held).await;
        // The other replica finds that its answer is in progress, or is refused and reads the state
        // again.
        let next = server.held("/stream").await;
        if next.line.starts_with("POST") {
            next.json(409, r#"{"detail":"Thread is already running a task."}"#).await;
        } else {
            let mut joined = next;
            joined.begin("").await;
            let done = json!({"messages": []});
            joined.send(part("values", &done)).await;
            joined.end().await;
            return begun;
        }
        let mut joined = server.joined().await;
        joined.sends("values", &json!({"messages": []})).await;
        joined.exchange.end().await;
        begun
    });
    let resume = &run.body["command"]["resume"];
    assert_eq!(*resume, json!({ASKED: decisions(&["approve", "approve", "reject"])}));
    let id = run.id.clone();
    run.ends_with(&json!([])).await;
    let (mut left, mut right) = responses;
    for response in [&mut left, &mut right] {
        let events = soon("the end", response.rest()).await;
        assert_eq!(outcome(&events), "success", "{events:#?}");
    }
    let books = server.books();
    let runs: Vec<_> = books.threads[THREAD].runs.iter().map(|run| &run["run_id"]).collect();
    assert_eq!(runs, [&json!(id), &json!("R0")]);
}

#[tokio::test]
async fn an_answer_to_an_earlier_question_is_none_to_a_later_one() {
    let asks = json!({"run_id": "R1", "thread_id": THREAD, "status": "success", "metadata": {},
        "created_at": "2026-11-22T09:10:00.000000+00:00", "kwargs": {}});
    let mut answering = asks.clone();
    answering["metadata"] = json!({"threadway_answers": [ASKED], "threadway_start": "s1"});
    let mut others = asks.clone();
    others["metadata"] = json!({"threadway_answers": [OTHER], "threadway_start": "s2"});
    for (later, open) in [
        (None, &[1, 2][..]),
        // The same node has raised the same interrupt again, under the same id.
        (Some(answering), &[0, 1, 2]),
        // A client that does not identify itself may have answered.
        (Some(asks), &[0, 1, 2]),
        (Some(others), &[1, 2]),
    ] {
        let server = LangGraph::start().await;
        waiting(&server, &json!([batch(ASKED)]));
        keeps(&server, &[("0:0", decided(0, "R0", "approve"))]);
        if let Some(later) = &later {
            let mut books = server.books();
            books.threads.get_mut(THREAD).unwrap().runs.insert(0, later.clone());
        }
        let gateway = Front::of(&server).await;
        let expected: Vec<_> = open.iter().map(|action| of(*action)).collect();
        assert_eq!(shown(&gateway).await, expected, "{later:?}");
        // And the rest of the answers does not repeat it.
        let rest = answers(&[(&of(1), yes()), (&of(2), yes())]);
        if open.len() == 3 {
            let events = gateway.asks(&rest).await.rest().await;
            assert_eq!(asked_ids(&events), [of(0)]);
            assert_eq!(shown(&gateway).await, [of(0)]);
            assert_eq!(started(&server), Vec::<Value>::new());
        }
    }
}

#[tokio::test]
async fn another_interrupt_asks_everything() {
    let server = LangGraph::start().await;
    waiting(&server, &json!([batch(OTHER)]));
    keeps(&server, &[("0:0", decided(0, "R0", "approve"))]);
    let gateway = Front::of(&server).await;
    let all: Vec<_> = (0..3).map(|action| format!("{OTHER}:{action}")).collect();
    assert_eq!(shown(&gateway).await, all);
}

#[tokio::test]
async fn what_is_decided_and_was_not_sent_is_asked_again_and_any_answer_sends_all() {
    let mut server = LangGraph::start().await;
    waiting(&server, &json!([batch(ASKED)]));
    keeps(
        &server,
        &[
            ("0:0", decided(0, "R0", "approve")),
            ("0:1", decided(1, "R0", "approve")),
            ("0:2", decided(2, "R0", "approve")),
        ],
    );
    let gateway = Front::of(&server).await;
    assert_eq!(shown(&gateway).await, [of(0), of(1), of(2)]);
    let last = one(1, no());
    let (_response, run) = tokio::join!(gateway.asks(&last), server.run());
    let resume = &run.body["command"]["resume"];
    assert_eq!(*resume, json!({ASKED: decisions(&["approve", "reject", "approve"])}));
}

#[tokio::test]
async fn an_answer_that_langgraph_does_not_keep_is_refused_and_can_be_sent_again() {
    for (status, expected, code) in [
        (403, "HTTP/1.1 502 Bad Gateway", "upstream_unauthorized"),
        (404, "HTTP/1.1 404 Not Found", "unknown_thread"),
        (500, "HTTP/1.1 502 Bad Gateway", "upstream_refused"),
    ] {
        let mut server = LangGraph::start().await;
        waiting(&server, &json!([batch(ASKED)]));
        let gateway = Front::of(&server).await;
        server.hold("PATCH");
        let sent = one(0, yes());
        let (mut response, ()) = tokio::join!(gateway.asks(&sent), async {
            server.held("PATCH").await.json(status, r#"{"detail":"no"}"#).await;
        });
        let (line, refusal) = refused(&mut response).await;
        let refusal: Value = serde_json::from_str(&refusal).unwrap();
        assert_eq!((&*line, &refusal["error"]), (expected, &json!(code)));
        let message = refusal["message"].as_str().unwrap();
        assert!(message.starts_with("LangGraph did not store the answer"), "{message}");
        assert!(message.ends_with("or answer all actions in one request"), "{message}");
        // No action is lost: all are still open, and the same answer may be sent again.
        assert_eq!(shown(&gateway).await, [of(0), of(1), of(2)]);
        server.let_go_of("PATCH");
        let events = gateway.asks(&sent).await.rest().await;
        assert_eq!(asked_ids(&events), [of(1), of(2)]);
    }
}

#[tokio::test]
async fn a_run_that_langgraph_refuses_loses_no_answer() {
    let mut server = LangGraph::start().await;
    waiting(&server, &json!([batch(ASKED)]));
    let gateway = Front::of(&server).await;
    let some = answers(&[(&of(0), yes()), (&of(1), no())]);
    assert_eq!(asked_ids(&gateway.asks(&some).await.rest().await), [of(2)]);
    let last = one(2, yes());
    let (mut response, ()) = tokio::join!(gateway.asks(&last), async {
        server.held("/runs/stream").await.json(500, "{}").await;
    });
    let (line, _) = refused(&mut response).await;
    assert_eq!(line, "HTTP/1.1 502 Bad Gateway");
    assert_eq!(kept(&server).len(), 2);
    assert_eq!(shown(&gateway).await, [of(2)]);
    let (_response, run) = tokio::join!(gateway.asks(&last), server.run());
    let resume = &run.body["command"]["resume"];
    assert_eq!(*resume, json!({ASKED: decisions(&["approve", "reject", "approve"])}));
}

#[tokio::test]
async fn of_two_interrupts_one_is_answered_whole_and_the_other_in_part() {
    let mut server = LangGraph::start().await;
    let plain = json!({"id": OTHER, "value": "which one?"});
    let both = json!([plain, batch(ASKED)]);
    waiting(&server, &both);
    let gateway = Front::of(&server).await;
    let sent = answers(&[(&of(1), no()), (OTHER, json!("this"))]);
    let (mut response, run) = tokio::join!(gateway.asks(&sent), server.run());
    assert_eq!(run.body["command"]["resume"], json!({OTHER: "this"}));
    assert_eq!(kept(&server), [(1, "reject".to_owned())]);
    // The run ends with the actions that are still open, for its starter and for clients that
    // connect later.
    run.asks(&said(), &json!([batch(ASKED)])).await;
    let events = soon("the end", response.rest()).await;
    assert_eq!(asked_ids(&events), [of(0), of(2)]);
    assert_eq!(shown(&gateway).await, [of(0), of(2)]);
    let rest = answers(&[(&of(0), yes()), (&of(2), yes())]);
    let (_response, run) = tokio::join!(gateway.asks(&rest), server.run());
    let resume = &run.body["command"]["resume"];
    assert_eq!(*resume, json!({ASKED: decisions(&["approve", "reject", "approve"])}));
}

#[tokio::test]
async fn one_who_follows_the_thread_sees_what_is_still_open() {
    let server = LangGraph::start().await;
    waiting(&server, &json!([batch(ASKED)]));
    let (gateway, replica) = (Front::of(&server).await, Front::of(&server).await);
    let request = events_request("", "?follow=thread");
    let mut follower = Response::to(replica.address, request.as_bytes()).await;
    let end = async |follower: &mut Response| loop {
        let [event] = &*follower.next(1).await else { panic!("one") };
        if event["type"] == "RUN_FINISHED" {
            return asked_ids(std::slice::from_ref(event));
        }
    };
    assert_eq!(soon("the thread", end(&mut follower)).await, [of(0), of(1), of(2)]);
    gateway.asks(&one(1, yes())).await.rest().await;
    assert_eq!(soon("a change", end(&mut follower)).await, [of(0), of(2)]);
}

#[tokio::test]
async fn a_message_instead_of_the_rest_is_answered_with_the_rest() {
    let mut server = LangGraph::start().await;
    waiting(&server, &json!([batch(ASKED)]));
    let (gateway, rejecting) =
        (Front::of(&server).await, Front::that(&server, OnMessage::Reject).await);
    gateway.asks(&one(0, yes())).await.rest().await;
    let message = json!({"id": "m2", "role": "user", "content": "no"});
    let sent = body(&json!({"messages": [message]}));
    assert_eq!(asked_ids(&gateway.asks(&sent).await.rest().await), [of(1), of(2)]);
    assert_eq!(kept(&server).len(), 1);
    // Or the client rejects the rest, and the earlier decision stays.
    let (_response, run) = tokio::join!(rejecting.asks(&sent), server.run());
    let resume = &run.body["command"]["resume"];
    assert_eq!(*resume, json!({ASKED: decisions(&["approve", "reject", "reject"])}));
}

#[tokio::test]
async fn a_fork_forgets_what_was_decided() {
    let mut server = LangGraph::start().await;
    waiting(&server, &json!([batch(ASKED)]));
    let gateway = Front::of(&server).await;
    gateway.asks(&one(0, yes())).await.rest().await;
    let mut request = body(&json!({}));
    request["messages"] = json!([{"id": "m0", "role": "user", "content": "clean up /var"}]);
    let history = json!([
        {"values": {"messages": said()}, "checkpoint": {"checkpoint_id": "c1"},
         "parent_checkpoint": {"checkpoint_id": "c0"}},
        {"values": {}, "checkpoint": {"checkpoint_id": "c0"}, "parent_checkpoint": null},
    ]);
    let (mut response, run) = tokio::join!(gateway.asks(&request), async {
        server.held("/history").await.json(200, &history.to_string()).await;
        server.run().await
    });
    assert_eq!(run.body["checkpoint_id"], "c0");
    // The run raises the same interrupt, which was never answered.
    run.asks(&said(), &json!([batch(ASKED)])).await;
    let events = soon("the end", response.rest()).await;
    assert_eq!(asked_ids(&events), [of(0), of(1), of(2)]);
    assert_eq!(shown(&gateway).await, [of(0), of(1), of(2)]);
    server.until("nothing is kept", |server| kept(server).is_empty()).await;
}

#[tokio::test]
async fn a_thread_whose_newest_runs_are_unknown_takes_all_answers_at_once() {
    let mut server = LangGraph::javascript().await;
    waiting(&server, &json!([batch(ASKED)]));
    {
        let mut books = server.books();
        let runs = &mut books.threads.get_mut(THREAD).unwrap().runs;
        *runs = (0..100)
            .map(|at| {
                json!({"run_id": format!("R{at}"), "thread_id": THREAD, "status": "success",
                    "created_at": format!("2026-11-22T09:{:02}:{:02}.000Z", at / 60, at % 60),
                    "metadata": {}, "kwargs": {}})
            })
            .collect();
    }
    let gateway = Front::of(&server).await;
    let (status, code, message) = gateway.refuses(&one(0, yes())).await;
    assert_eq!((&*status, &*code), ("HTTP/1.1 409 Conflict", "cannot_resume"));
    assert!(message.ends_with("answer all actions in one request"), "{message}");
    assert_eq!(changes(&server), Vec::<String>::new());
    let all = answers(&[(&of(0), yes()), (&of(1), yes()), (&of(2), yes())]);
    let (_response, run) = tokio::join!(gateway.asks(&all), server.run());
    let resume = &run.body["command"]["resume"];
    assert_eq!(*resume, json!({ASKED: decisions(&["approve", "approve", "approve"])}));
}

#[tokio::test]
async fn metadata_are_read_only_where_several_actions_are_asked_about() {
    for (interrupt, reads) in
        [(json!({"id": ASKED, "value": "which one?"}), 0), (super::delete(), 0), (batch(ASKED), 1)]
    {
        let server = LangGraph::start().await;
        waiting(&server, &json!([interrupt]));
        let gateway = Front::of(&server).await;
        shown(&gateway).await;
        let line = format!("GET /threads/{THREAD}");
        let books = server.books();
        assert_eq!(books.asked.iter().filter(|(asked, _)| *asked == line).count(), reads);
    }
}

#[tokio::test]
async fn a_run_of_its_own_end_is_no_place_for_answers_of_before() {
    // A run that answers nothing and raises an interrupt: the gateway can store nothing of it.
    let mut server = LangGraph::start().await;
    server.thread(THREAD, json!({}), Some(state("R0", &json!([]), &json!([]))));
    let gateway = Front::of(&server).await;
    let request = body(&json!({}));
    let (mut response, run) = tokio::join!(gateway.asks(&request), server.run());
    run.asks(&said(), &json!([batch(ASKED)])).await;
    let events = soon("the end", response.rest()).await;
    assert_eq!(asked_ids(&events), [of(0), of(1), of(2)]);
    let line = format!("GET /threads/{THREAD}");
    assert!(server.books().asked.iter().all(|(asked, _)| *asked != line));
}
