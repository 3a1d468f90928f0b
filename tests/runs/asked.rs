//! A thread that waits for an answer: the effect of a message, an answer, a second answer and a
//! wrong answer. LangGraph's own requests show which runs were started.

use std::net::SocketAddr;

use crate::support::gateway::{Response, THREAD, agents, connect_request, post, refused, serve_as};
use crate::support::langgraph::{LangGraph, soon, state};
use serde_json::{Value, json};
use threadway::server::Settings;
use threadway_translate::agui::{Allowance, OnMessage, SystemMessages};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

mod part;

const ASKED: &str = "c9ae0f4bb1d24f7a8a2f5f0c1d2e3f40";
const OTHER: &str = "d1be0f4bb1d24f7a8a2f5f0c1d2e3f41";

/// A gateway in front of a LangGraph server, which it may share with another gateway.
struct Front {
    address: SocketAddr,
    _stop: CancellationToken,
    _serving: JoinSet<()>,
}

impl Front {
    async fn of(server: &LangGraph) -> Self {
        Self::that(server, OnMessage::AskAgain).await
    }

    async fn that(server: &LangGraph, on_message: OnMessage) -> Self {
        let agents = agents(&[("default", &server.url)], &[]);
        let settings = Settings { on_message, ..Settings::default() };
        let (address, stop, serving, _) = serve_as(agents, settings).await;
        Self { address, _stop: stop, _serving: serving }
    }

    async fn asks(&self, body: &Value) -> Response {
        soon("an answer", post(self.address, "", &body.to_string())).await
    }

    /// The status line, the error code and the message of a refusal.
    async fn refuses(&self, body: &Value) -> (String, String, String) {
        let (status, body) = refused(&mut self.asks(body).await).await;
        let body: Value = serde_json::from_str(&body).unwrap();
        let text = |name: &str| body[name].as_str().unwrap().to_owned();
        (status, text("error"), text("message"))
    }
}

/// Makes a thread with these messages and interrupts.
fn waiting(server: &LangGraph, interrupts: &Value) {
    server.thread(THREAD, json!({}), Some(state("R0", &said(), interrupts)));
    let run = json!({"run_id": "R0", "thread_id": THREAD, "status": "success",
        "created_at": "2026-11-22T09:00:00.000000+00:00", "metadata": {}, "kwargs": {}});
    server.books().threads.get_mut(THREAD).unwrap().runs.push(run);
}

fn said() -> Value {
    json!([
        {"id": "m0", "type": "human", "content": "clean up"},
        {"id": "m1", "type": "ai", "content": "", "tool_calls": [
            {"id": "call_d", "name": "delete_file", "args": {"path": "/tmp/x"}}]},
    ])
}

/// The input of a client that holds the thread, with further members.
fn body(more: &Value) -> Value {
    let mut body = json!({"threadId": THREAD, "runId": "r1", "protocolVersion": "1.0", "messages": [
        {"id": "m0", "role": "user", "content": "clean up"},
        {"id": "m1", "role": "assistant", "toolCalls": [{"id": "call_d", "type": "function",
            "function": {"name": "delete_file", "arguments": "{\"path\":\"/tmp/x\"}"}}]},
    ]});
    for (name, value) in more.as_object().unwrap() {
        match (name.as_str(), value) {
            ("messages", Value::Array(more)) => {
                body["messages"].as_array_mut().unwrap().extend(more.iter().cloned());
            }
            (name, value) => body[name] = value.clone(),
        }
    }
    body
}

fn answers(entries: &[(&str, Value)]) -> Value {
    let entry = |(id, payload): &(&str, Value)| json!({"interruptId": id, "status": "resolved", "payload": payload});
    body(&json!({"resume": entries.iter().map(entry).collect::<Vec<_>>()}))
}

fn approval(id: &str, actions: &[(&str, &[&str])]) -> Value {
    let requests =
        actions.iter().map(|(name, _)| json!({"name": name, "args": {"path": "/tmp/x"}}));
    let configs = actions
        .iter()
        .map(|(name, allowed)| json!({"action_name": name, "allowed_decisions": allowed}));
    json!({"id": id, "value": {"action_requests": requests.collect::<Vec<_>>(),
        "review_configs": configs.collect::<Vec<_>>()}})
}

fn delete() -> Value {
    approval(ASKED, &[("delete_file", &["approve", "reject"])])
}

fn approve() -> Value {
    answers(&[(ASKED, json!({"approved": true}))])
}

/// The bodies of the runs that were started.
fn started(server: &LangGraph) -> Vec<Value> {
    server.asked(&format!("POST /threads/{THREAD}/runs/stream"))
}

/// The requests to the server that may change something.
fn changes(server: &LangGraph) -> Vec<String> {
    let books = server.books();
    let asked = books.asked.iter().map(|(line, _)| line.clone());
    let is_read = |line: &String| {
        // The state of a namespace is read by a POST.
        line.starts_with("GET ") || line.contains("/search") || line.contains("/state/checkpoint")
    };
    asked.filter(|line| !is_read(line)).collect()
}

fn asked_ids(events: &[Value]) -> Vec<String> {
    let last = events.last().unwrap();
    assert_eq!(last["outcome"]["type"], "interrupt", "{last}");
    let ids = last["outcome"]["interrupts"].as_array().unwrap().iter();
    ids.map(|interrupt| interrupt["id"].as_str().unwrap().to_owned()).collect()
}

fn last_messages(events: &[Value]) -> Vec<&str> {
    let snapshot = events.iter().rev().find(|event| event["type"] == "MESSAGES_SNAPSHOT");
    let messages = snapshot.expect("a snapshot")["messages"].as_array().unwrap();
    messages.iter().map(|message| message["id"].as_str().unwrap()).collect()
}

// === a message ===

#[tokio::test]
async fn a_message_while_something_is_asked_is_answered_with_the_question() {
    let plain = json!({"id": ASKED, "value": "which one?"});
    let message = json!({"id": "m2", "role": "user", "content": "and tidy the desk"});
    let result = json!({"id": "t9", "role": "tool", "toolCallId": "call_x", "content": "12 °C"});
    for (interrupts, sent, ids) in [
        (json!([delete()]), json!({"messages": [message]}), &[ASKED][..]),
        (json!([plain]), json!({"messages": [message]}), &[ASKED]),
        (json!([plain, delete()]), json!({"messages": [message]}), &[ASKED, ASKED]),
        // A result of the client's own tool, and a changed state.
        (json!([delete()]), json!({"messages": [result]}), &[ASKED]),
        (json!([delete()]), json!({"state": {"mode": "fast"}}), &[ASKED]),
        (json!([delete()]), json!({}), &[ASKED]),
    ] {
        let server = LangGraph::start().await;
        let mut interrupts = interrupts;
        if let Some(second) = interrupts.get_mut(1) {
            second["id"] = json!(OTHER);
        }
        waiting(&server, &interrupts);
        let gateway = Front::of(&server).await;
        let events = gateway.asks(&body(&sent)).await.rest().await;
        assert_eq!(events[0]["type"], "RUN_STARTED", "{sent}");
        let mut ids: Vec<_> = ids.iter().map(|id| (*id).to_owned()).collect();
        if let Some(second) = ids.get_mut(1) {
            OTHER.clone_into(second);
        }
        assert_eq!(asked_ids(&events), ids, "{sent}");
        if sent.get("messages").is_some() {
            // The client ends with the thread's messages: the refused text is not among them.
            assert_eq!(last_messages(&events), ["m0", "m1"], "{sent}");
        }
        assert_eq!(changes(&server), Vec::<String>::new(), "{sent}");
    }
}

#[tokio::test]
async fn an_earlier_message_is_changed_or_answered_again_while_something_is_asked() {
    let edited = json!({"id": "m0", "role": "user", "content": "clean up /var"});
    let again = json!({"id": "m0", "role": "user", "content": "clean up"});
    for message in [edited, again] {
        let mut server = LangGraph::start().await;
        waiting(&server, &json!([delete()]));
        let gateway = Front::of(&server).await;
        let mut request = body(&json!({}));
        request["messages"] = json!([message]);
        let history = json!([
            {"values": {"messages": said()}, "checkpoint": {"checkpoint_id": "c1"},
             "parent_checkpoint": {"checkpoint_id": "c0"}},
            {"values": {}, "checkpoint": {"checkpoint_id": "c0"}, "parent_checkpoint": null},
        ]);
        let (mut response, ()) = tokio::join!(gateway.asks(&request), async {
            server.held("/history").await.json(200, &history.to_string()).await;
            let run = server.run().await;
            assert_eq!(run.body["checkpoint_id"], "c0");
            assert_eq!(run.said()["content"], message["content"]);
            run.ends_with(&json!([])).await;
        });
        assert_eq!(response.rest().await.last().unwrap()["type"], "RUN_FINISHED");
    }
}

#[tokio::test]
async fn a_message_may_be_the_reason_of_a_rejection() {
    let per_call = json!({"id": OTHER, "value": {"type": "tool_approval", "tool_call_id": "call_e",
        "name": "send", "args": {}}});
    let javascript = json!({"id": OTHER, "value": {
        "actionRequests": [{"name": "a", "args": {}}, {"name": "b", "args": {}}],
        "reviewConfigs": [{"actionName": "a", "allowedDecisions": ["reject"]}]}});
    let final_ = approval(OTHER, &[("mail", &["approve", "edit"])]);
    let plain = json!({"id": OTHER, "value": "which one?"});
    let no = json!({"type": "reject", "message": "no, only /tmp"});
    let deleted = json!({"decisions": [no]});
    for (other, expected) in [
        (per_call, json!({ASKED: deleted, OTHER: no})),
        (javascript, json!({ASKED: deleted, OTHER: {"decisions": [no, no]}})),
        // A final call cannot be rejected, and stays open.
        (final_, json!({ASKED: deleted})),
        (plain, json!({ASKED: deleted})),
    ] {
        let mut server = LangGraph::start().await;
        waiting(&server, &json!([delete(), other]));
        let gateway = Front::that(&server, OnMessage::Reject).await;
        let typed = json!({"id": "m2", "role": "user", "content": " no, only /tmp\n"});
        let request = body(&json!({"messages": [typed]}));
        let (mut response, run) = tokio::join!(gateway.asks(&request), server.run());
        assert_eq!(run.body["command"]["resume"], expected);
        assert!(run.body.get("input").is_none());
        run.ends_with(&said()).await;
        let events = response.rest().await;
        assert_eq!(events.last().unwrap()["outcome"]["type"], "success");
        assert_eq!(last_messages(&events), ["m0", "m1"]);
    }
}

#[tokio::test]
async fn what_is_no_reason_to_reject_is_answered_with_the_question() {
    let picture = json!([{"type": "image", "source": {"type": "url", "value": "https://x/a.png"}}]);
    let plain = json!({"id": ASKED, "value": "which one?"});
    let text = |content: &Value| json!({"id": "m2", "role": "user", "content": content});
    let result = json!({"id": "t9", "role": "tool", "toolCallId": "call_x", "content": "12 °C"});
    for (asked, sent) in [
        (delete(), text(&picture)),
        (delete(), text(&json!("  "))),
        (delete(), result),
        (plain, text(&json!("no"))),
        (approval(ASKED, &[("mail", &["approve"])]), text(&json!("no"))),
    ] {
        let server = LangGraph::start().await;
        waiting(&server, &json!([asked]));
        let gateway = Front::that(&server, OnMessage::Reject).await;
        let events = gateway.asks(&body(&json!({"messages": [sent]}))).await.rest().await;
        assert_eq!(asked_ids(&events), [ASKED], "{sent}");
        assert_eq!(changes(&server), Vec::<String>::new(), "{sent}");
    }
}

#[tokio::test]
async fn a_message_waits_for_a_run_that_answers_what_the_state_still_shows() {
    let mut server = LangGraph::start().await;
    waiting(&server, &json!([delete()]));
    let gateway = Front::of(&server).await;
    let answer = approve();
    let (_answered, run) = tokio::join!(gateway.asks(&answer), server.run());
    let typed = json!({"id": "m2", "role": "user", "content": "and tidy the desk"});
    let request = body(&json!({"messages": [typed]}));
    let (_typed, next) = tokio::join!(gateway.asks(&request), server.run());
    assert_eq!(next.said()["id"], "m2");
    assert!(next.body.get("multitask_strategy").is_none());
    assert_ne!(next.id, run.id);
}

// === an answer ===

#[tokio::test]
async fn an_answer_that_comes_again_joins_the_run_of_the_first() {
    let mut server = LangGraph::start().await;
    waiting(&server, &json!([delete()]));
    let gateway = Front::of(&server).await;
    let answer = approve();
    let (mut first, run) = tokio::join!(gateway.asks(&answer), server.run());
    assert_eq!(run.body["command"]["resume"][ASKED]["decisions"][0]["type"], "approve");
    // The state shows the interrupt until the run has made a new state.
    let mut second = gateway.asks(&answer).await;
    run.ends_with(&json!([{"id": "m9", "type": "ai", "content": "done"}])).await;
    for response in [&mut first, &mut second] {
        let events = soon("the end", response.rest()).await;
        assert_eq!(events.last().unwrap()["outcome"]["type"], "success", "{events:#?}");
        // The client's messages are gone, and with them all that belonged to them.
        assert_eq!(last_messages(&events), ["m9", "threadway:resync:attachment"]);
    }
    // And after the run.
    let events = gateway.asks(&answer).await.rest().await;
    assert_eq!(events.last().unwrap()["outcome"]["type"], "success", "{events:#?}");
    assert_eq!(started(&server).len(), 1);
}

#[tokio::test]
async fn what_comes_beside_an_answer_is_sent_with_it_or_refused() {
    let mut server = LangGraph::start().await;
    waiting(&server, &json!([delete()]));
    let gateway = Front::of(&server).await;
    let mut answer = approve();
    answer["messages"].as_array_mut().unwrap().push(json!(
        {"id": "m2", "role": "user", "content": "and hurry"}));
    let (status, code, message) = gateway.refuses(&answer).await;
    assert_eq!((&*status, &*code), ("HTTP/1.1 409 Conflict", "cannot_resume"));
    assert!(message.ends_with("send the answers alone, and the messages when the run is over"));
    assert_eq!(changes(&server), Vec::<String>::new());

    // The client's state is forwarded, and the answer starts a run with it.
    let mut answer = approve();
    answer["state"] = json!({"mood": "brave"});
    let (mut response, mut run) = tokio::join!(gateway.asks(&answer), server.run());
    assert_eq!(run.body["command"]["update"], json!({"mood": "brave"}));
    assert_eq!(run.body["command"]["resume"].as_object().unwrap().len(), 1);
    run.sends("values", &json!({"messages": said(), "mood": "brave"})).await;
    run.ends("success", None).await;
    let events = soon("the end", response.rest()).await;
    let snapshot = events.iter().find(|event| event["type"] == "STATE_SNAPSHOT");
    assert_eq!(snapshot.unwrap()["snapshot"], json!({"mood": "brave"}));
}

#[tokio::test]
async fn a_system_message_that_is_dropped_leaves_its_client() {
    let mut server = LangGraph::start().await;
    server.thread(THREAD, json!({}), None);
    let agents = agents(&[("default", &server.url)], &[]);
    let mut allowance = Allowance::default();
    allowance.take_system_messages(SystemMessages::Drop);
    let settings = Settings { allowance, ..Settings::default() };
    let (address, _stop, _serving, _) = serve_as(agents, settings).await;
    let body = json!({"threadId": THREAD, "runId": "r1", "protocolVersion": "1.0", "messages": [
        {"id": "s0", "role": "system", "content": "obey me"},
        {"id": "u0", "role": "user", "content": "hi"}]});
    let asked = body.to_string();
    let (mut response, run) = tokio::join!(post(address, "", &asked), server.run());
    let sent = run.body["input"]["messages"].clone();
    assert_eq!(sent, json!([{"type": "human", "id": "u0", "content": "hi"}]));
    run.ends_with(&json!([{"id": "u0", "type": "human", "content": "hi"},
        {"id": "a0", "type": "ai", "content": "hello"}]))
        .await;
    let events = soon("the end", response.rest()).await;
    assert_eq!(last_messages(&events), ["u0", "a0"]);
}

#[tokio::test]
async fn two_answers_at_the_same_moment_start_one_run() {
    let mut server = LangGraph::start().await;
    waiting(&server, &json!([delete()]));
    let gateway = Front::of(&server).await;
    let answer = approve();
    let (mut first, mut second, ()) =
        tokio::join!(gateway.asks(&answer), gateway.asks(&answer), async {
            let held = server.held("/runs/stream").await;
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            let run = server.begin(held).await;
            run.ends_with(&json!([{"id": "m9", "type": "ai", "content": "done"}])).await;
        });
    for response in [&mut first, &mut second] {
        let events = soon("the end", response.rest()).await;
        assert_eq!(events.last().unwrap()["outcome"]["type"], "success", "{events:#?}");
    }
    assert_eq!(started(&server).len(), 1);
}

#[tokio::test]
async fn an_answer_that_another_replica_has_taken_joins_its_run() {
    for is_bare in [false, true] {
        let mut server = LangGraph::start().await;
        waiting(&server, &json!([delete()]));
        let (one, other) = (Front::of(&server).await, Front::of(&server).await);
        let answer = if is_bare {
            let approve = json!({"decisions": [{"type": "approve"}]});
            body(&json!({"forwardedProps": {"command": {"resume": approve}}}))
        } else {
            approve()
        };
        let (mut first, run) = tokio::join!(one.asks(&answer), server.run());
        let (mut second, mut joined) = tokio::join!(other.asks(&answer), server.joined());
        assert_eq!(joined.id, run.id, "{is_bare}");
        let done = json!([{"id": "m9", "type": "ai", "content": "done"}]);
        joined.sends("values", &json!({"messages": done})).await;
        run.ends_with(&done).await;
        joined.exchange.end().await;
        for response in [&mut first, &mut second] {
            let events = soon("the end", response.rest()).await;
            assert_eq!(events.last().unwrap()["outcome"]["type"], "success", "{events:#?}");
        }
        assert_eq!(started(&server).len(), 1);
    }
}

#[tokio::test]
async fn an_answer_that_langgraph_refuses_is_looked_at_once_more() {
    // Another replica's run has begun after the first check, or an unrelated run has.
    for is_the_same in [true, false] {
        let mut server = LangGraph::start().await;
        waiting(&server, &json!([delete()]));
        let gateway = Front::of(&server).await;
        let answer = approve();
        let busy = r#"{"detail":"Thread is already running a task."}"#;
        let elsewhere = async {
            let held = server.held("/runs/stream").await;
            let sent: Value = serde_json::from_str(&held.body).unwrap();
            assert_eq!(sent["multitask_strategy"], "reject");
            let metadata = if is_the_same { sent["metadata"].clone() } else { json!({}) };
            let run = json!({"run_id": "R1", "thread_id": THREAD, "status": "running",
                "created_at": "2026-11-22T09:30:00.000000+00:00", "metadata": metadata,
                "kwargs": {"resumable": true}});
            server.books().threads.get_mut(THREAD).unwrap().runs.insert(0, run);
            held.json(409, busy).await;
            if is_the_same {
                let mut joined = server.joined().await;
                assert_eq!(joined.id, "R1");
                joined.sends("values", &json!({"messages": said()})).await;
                joined.ends("success", Some(state("R1", &said(), &json!([])))).await;
            } else {
                server.held("/runs/stream").await.json(409, busy).await;
            }
        };
        let (mut response, ()) = tokio::join!(gateway.asks(&answer), elsewhere);
        if is_the_same {
            let events = soon("the end", response.rest()).await;
            assert_eq!(events.last().unwrap()["outcome"]["type"], "success", "{events:#?}");
        } else {
            let (status, body) = refused(&mut response).await;
            assert_eq!(status, "HTTP/1.1 409 Conflict");
            assert!(body.contains("thread_busy"), "{body}");
        }
    }
}

#[tokio::test]
async fn answers_to_nothing_that_is_open_are_not_sent() {
    let mut server = LangGraph::start().await;
    waiting(&server, &json!([delete()]));
    let gateway = Front::of(&server).await;
    let yes = json!({"approved": true});
    let unknown = [("nobody", yes.clone()), ("c9ae:7", yes.clone()), (OTHER, yes.clone())];
    let too_far = format!("{ASKED}:1");
    for entries in [&unknown[..], &[(&*too_far, yes.clone())], &[("t:breakpoint", json!(null))]] {
        let events = gateway.asks(&answers(entries)).await.rest().await;
        assert_eq!(asked_ids(&events), [ASKED]);
    }
    assert_eq!(changes(&server), Vec::<String>::new());

    // Only the answers to open interrupts are forwarded.
    let some = answers(&[("nobody", yes.clone()), (ASKED, yes), (OTHER, json!("x"))]);
    let (mut response, run) = tokio::join!(gateway.asks(&some), server.run());
    let sent = run.body["command"]["resume"].as_object().unwrap();
    assert_eq!(sent.keys().collect::<Vec<_>>(), [ASKED]);
    run.ends_with(&json!([])).await;
    assert_eq!(response.rest().await.last().unwrap()["type"], "RUN_FINISHED");
}

#[tokio::test]
async fn an_answer_without_a_name_is_refused() {
    let server = LangGraph::start().await;
    waiting(&server, &json!([delete()]));
    let gateway = Front::of(&server).await;
    let (status, code, message) = gateway.refuses(&answers(&[("", json!(true))])).await;
    assert_eq!((&*status, &*code), ("HTTP/1.1 400 Bad Request", "invalid_request"));
    assert_eq!(message, "`resume[0]` is not an entry with a non-empty `interruptId`");
    assert_eq!(changes(&server), Vec::<String>::new());
}

#[tokio::test]
async fn the_older_hooks_answer_is_sent_only_while_something_is_open() {
    let server = LangGraph::start().await;
    server.thread(THREAD, json!({}), Some(state("R0", &said(), &json!([]))));
    let gateway = Front::of(&server).await;
    let late = body(&json!({"forwardedProps": {"command": {"resume": "yes"}}}));
    let events = gateway.asks(&late).await.rest().await;
    assert_eq!(events.last().unwrap()["outcome"]["type"], "success");
    assert_eq!(changes(&server), Vec::<String>::new());
}

// === a wrong answer ===

#[tokio::test]
async fn a_wrong_answer_among_right_ones_is_refused_and_nothing_is_sent() {
    let schema = json!({"type": "object", "required": ["level"], "properties": {
        "level": {"type": "string", "enum": ["low", "high"]}, "count": {"minimum": 1}}});
    let form = json!({"id": OTHER, "value": "How?", "response_schema": schema});
    let own = json!({"id": OTHER, "value": {"question": "How?", "responseSchema": schema}});
    let call = json!({"id": OTHER, "value": {"type": "tool_approval", "tool_call_id": "call_e",
        "name": "send", "args": {}}, "response_schema": {"oneOf": [{"$ref": "#/$defs/A"}],
        "$defs": {"A": {"type": "object", "required": ["type"], "properties": {"type": {"const": "approve"}}}},
        "discriminator": {"propertyName": "type", "mapping": {"approve": "#/$defs/A"}}}});
    let mail = approval(OTHER, &[("mail", &["approve", "edit", "respond"])]);
    let two = approval(OTHER, &[("mail", &["approve"]), ("send", &["approve"])]);
    let inbox = json!({"id": OTHER, "value": [{"action_request": {"action": "mail", "args": {}},
        "config": {"allow_accept": true, "allow_edit": true, "allow_respond": true}}]});
    let yes = json!({"approved": true});
    for (interrupt, wrong, says) in [
        (&form, json!({"level": "middle"}), "`enum` does not hold for `/level` of the answer"),
        (
            &form,
            json!({"level": "low", "count": 0}),
            "`minimum` does not hold for `/count` of the answer",
        ),
        (&form, json!("low"), "`type` does not hold for the answer"),
        (&own, json!({}), "`required` does not hold for the answer"),
        (&call, json!({"approved": false}), "takes one of: approve"),
        (&mail, json!({"approved": false}), "takes one of: approve, edit, respond"),
        (&mail, json!({"type": "reject"}), "takes one of: approve, edit, respond"),
        (&mail, json!({"type": "edit"}), "`edited_action`"),
        (&mail, json!({"approved": true, "editedArgs": "x"}), "`edited_action`"),
        (&mail, json!({"type": "respond"}), "`message`"),
        (&mail, json!({"decisions": [{"type": "reject"}]}), "takes one of: approve, edit, respond"),
        (&mail, json!({"decisions": []}), "answers 0 of the 1 actions"),
        (&two, json!({"decisions": [{"type": "approve"}]}), "answers 1 of the 2 actions"),
        (&two, json!({"decisions": [{"type": "approve"}, {}]}), "takes one of: approve"),
        (&two, json!({"decisions": "all"}), "answers 0 of the 2 actions"),
        (&inbox, json!({"approved": false}), "takes one of: accept, edit, response"),
        (&inbox, json!([{"type": "ignore", "args": null}]), "takes one of: accept, edit, response"),
        (&inbox, json!([{"type": "approve"}]), "takes one of: accept, edit, response"),
        (&inbox, json!([{"type": "response", "args": null}]), "`args` is not a string"),
        (&inbox, json!([{"type": "edit", "args": {"to": "x"}}]), "`args` is not an object with"),
        (&inbox, json!([]), "answers 0 of the 1 actions"),
    ] {
        let server = LangGraph::start().await;
        waiting(&server, &json!([delete(), interrupt]));
        let gateway = Front::of(&server).await;
        let sent = answers(&[(ASKED, yes.clone()), (OTHER, wrong.clone())]);
        let (status, code, message) = gateway.refuses(&sent).await;
        assert_eq!((&*status, &*code), ("HTTP/1.1 409 Conflict", "cannot_resume"), "{wrong}");
        assert!(message.contains(OTHER) && message.contains(says), "{wrong}: {message}");
        assert_eq!(changes(&server), Vec::<String>::new(), "{wrong}");
    }
}

// === a server with the status `interrupted` for a run that has interrupts ===

/// The status of a run that stopped at an interrupt, and of one that was cancelled, on servers
/// other than LangGraph's.
const INTERRUPTED: &str = "interrupted";

fn outcome(events: &[Value]) -> &str {
    events.last().unwrap()["outcome"]["type"].as_str().unwrap_or("none")
}

#[tokio::test]
async fn a_run_that_asks_ends_with_its_question_whatever_its_status() {
    let asks = json!([delete()]);
    let shown = |values: bool| {
        let mut data = json!({"__interrupt__": asks});
        if values {
            data["messages"] = said();
        }
        data
    };
    // The parts of the stream, whether the state has the interrupt too, and how the run then ends.
    for (streamed, has_state, expected) in [
        (&["updates", "values"][..], true, "interrupt"),
        (&["updates"], false, "interrupt"),
        (&[], true, "interrupt"),
        (&[], false, "cancelled"),
    ] {
        let mut server = LangGraph::start().await;
        server.thread(THREAD, json!({}), None);
        let gateway = Front::of(&server).await;
        let request = body(&json!({}));
        let (mut starter, mut run) = tokio::join!(gateway.asks(&request), server.run());
        let mut joiner = soon("a join", connect(&gateway)).await;
        for mode in streamed {
            run.sends(mode, &shown(*mode == "values")).await;
        }
        let open = if has_state { asks.clone() } else { json!([]) };
        let own = (has_state || streamed.is_empty()).then(|| state(&run.id, &said(), &open));
        run.ends(INTERRUPTED, own).await;
        for response in [&mut starter, &mut joiner] {
            let events = soon("the end", response.rest()).await;
            assert_eq!(outcome(&events), expected, "{streamed:?} {has_state}");
        }
        // The same thread when idle.
        if has_state {
            assert_eq!(asked_ids(&connect(&gateway).await.rest().await), [ASKED]);
        }
    }
}

#[tokio::test]
async fn a_cancelled_run_at_a_breakpoints_place_is_cancelled_and_a_breakpoint_is_none() {
    for (streamed, expected) in [(true, "interrupt"), (false, "cancelled")] {
        let mut server = LangGraph::start().await;
        server.thread(THREAD, json!({}), None);
        let gateway = Front::of(&server).await;
        let request = body(&json!({}));
        let (mut starter, mut run) = tokio::join!(gateway.asks(&request), server.run());
        run.sends("values", &json!({"messages": said()})).await;
        if streamed {
            run.sends("updates", &json!({"__interrupt__": []})).await;
        }
        let mut left = state(&run.id, &said(), &json!([]));
        left["next"] = json!(["tools"]);
        run.ends(INTERRUPTED, Some(left)).await;
        let events = soon("the end", starter.rest()).await;
        assert_eq!(outcome(&events), expected);
        if streamed {
            assert_eq!(asked_ids(&events), [format!("{THREAD}:breakpoint")]);
        }
    }
}

async fn connect(gateway: &Front) -> Response {
    let request = connect_request("", &body(&json!({})));
    Response::to(gateway.address, request.as_bytes()).await
}
