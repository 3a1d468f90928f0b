//! Graphs that keep their conversation under another state key, on real sockets: the upstream
//! requests, what a client gets of a run and of a thread, and the effect of a reload.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::support::gateway::{
    Response, THREAD, agents, connect_request, events_request, input, run_agent, serve_as,
};
use crate::support::langgraph::{LangGraph, Run, assistant, soon, state};
use serde_json::{Value, json};
use threadway::agents::{Agents, Upstream};
use threadway::server::{Server, Settings};
use threadway::upstream::Client;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const KEY: &str = "chat_history";

struct Front {
    address: SocketAddr,
    server: Arc<Server>,
    _stop: CancellationToken,
    _serving: JoinSet<()>,
}

impl Front {
    async fn of(agents: Agents) -> Self {
        let (address, stop, serving, server) = serve_as(agents, Settings::default()).await;
        Self { address, server, _stop: stop, _serving: serving }
    }

    async fn runs(&self, body: &Value) -> Response {
        soon("an answer", run_agent(self.address, "agent", body)).await
    }

    async fn connects(&self, agent: &str) -> Response {
        let request = connect_request("", &input(&[]));
        let request = request.replace("/agent/agent/", &format!("/agent/{agent}/"));
        soon("an answer", Response::to(self.address, request.as_bytes())).await
    }
}

/// All agents of a server, with this messages key.
fn keeping(server: &LangGraph) -> Agents {
    let client = Client::new(server.url.parse().unwrap(), None).unwrap();
    let client = client.with_messages_key(KEY.parse().unwrap());
    Agents::new(vec![Upstream { name: "default".to_owned(), client }], Vec::new())
}

/// Two agents of a server: `agent`, and `other`, which alone has the messages key.
fn two(server: &LangGraph) -> Agents {
    let keys = HashMap::from([("other".to_owned(), KEY.parse().unwrap())]);
    agents(&[("default", &server.url)], &[]).with_messages_keys(keys)
}

fn message(kind: &str, id: &str, text: &str) -> Value {
    json!({"type": kind, "id": id, "content": text})
}

/// A state with this conversation under the key, and an unrelated `messages`.
fn kept(conversation: &Value) -> Value {
    json!({"messages": [message("human", "draft", "a draft")], KEY: conversation, "n": 1})
}

fn kept_state(run_id: &str, conversation: &Value) -> Value {
    let mut whole = state(run_id, &json!([]), &json!([]));
    whole["values"] = kept(conversation);
    whole
}

async fn ends(mut run: Run, conversation: &Value) {
    run.sends("values", &kept(conversation)).await;
    let state = kept_state(&run.id, conversation);
    run.ends("success", Some(state)).await;
}

/// The texts of the last messages snapshot, and the last state, of a stream without deltas.
fn shown(events: &[Value]) -> (Vec<String>, Value) {
    let last = |kind: &str| {
        let event = events.iter().rev().find(|event| event["type"] == kind);
        event.unwrap_or_else(|| panic!("no {kind} in {events:#?}"))
    };
    let messages = last("MESSAGES_SNAPSHOT")["messages"].as_array().unwrap();
    let messages = messages.iter().filter(|message| message["role"] != "activity");
    let texts = messages.map(|message| message["content"].as_str().unwrap().to_owned());
    (texts.collect(), last("STATE_SNAPSHOT")["snapshot"].clone())
}

#[tokio::test]
async fn messages_go_up_and_come_back_under_the_key() {
    let mut server = LangGraph::start().await;
    server.books().schemas =
        json!({"input_schema": {"properties": {KEY: {}, "messages": {}, "n": {}}}});
    server.thread(THREAD, json!({}), None);
    let gateway = Front::of(keeping(&server)).await;
    let mut body = input(&["hi"]);
    // The client sends back the state that it got and has changed, with a value of its own for the
    // key.
    body["state"] = json!({"messages": "a draft", KEY: ["mine"], "n": 2});
    let (mut response, ()) = tokio::join!(gateway.runs(&body), async {
        let mut run = server.run().await;
        let said = json!([message("human", "m0", "hi")]);
        assert_eq!(run.body["input"], json!({"messages": "a draft", "n": 2, KEY: said}));
        run.sends("values", &kept(&said)).await;
        run.sends(
            "messages",
            &json!([{"type": "AIMessageChunk", "id": "a", "content": "yes"}, {}]),
        )
        .await;
        // The text that no token has carried.
        let last = message("ai", "b", "and no");
        ends(run, &json!([said[0], message("ai", "a", "yes"), last])).await;
    });
    let events = response.rest().await;
    let told: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(
        told,
        [
            "RUN_STARTED",
            "STATE_SNAPSHOT",
            "TEXT_MESSAGE_START",
            "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_END",
            "TEXT_MESSAGE_START",
            "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_END",
            "RUN_FINISHED"
        ]
    );
    // The graph's own names.
    let draft = message("human", "draft", "a draft");
    assert_eq!(events[1]["snapshot"], json!({"messages": [draft], "n": 1}));
    assert_eq!((&events[3]["delta"], &events[6]["delta"]), (&json!("yes"), &json!("and no")));
}

#[tokio::test]
async fn an_edited_message_forks_before_the_state_whose_key_holds_it() {
    let mut server = LangGraph::start().await;
    let said = json!([message("human", "m0", "hi"), message("ai", "m1", "you")]);
    server.thread(THREAD, json!({}), Some(kept_state("R0", &said)));
    let gateway = Front::of(keeping(&server)).await;
    // An unrelated `messages` with a message of this id makes it a known message too.
    let past = json!({"messages": [message("human", "m0", "hi")], KEY: []});
    let checkpoint = |id: &str| json!({"checkpoint_id": id});
    let history = json!([
        {"values": kept(&said), "checkpoint": checkpoint("c1"), "parent_checkpoint": checkpoint("c0")},
        {"values": past, "checkpoint": checkpoint("c0"), "parent_checkpoint": null},
    ]);
    let edited = input(&["ho"]);
    let (mut response, ()) = tokio::join!(gateway.runs(&edited), async {
        server.held("/history").await.json(200, &history.to_string()).await;
        let run = server.run().await;
        assert_eq!(run.body["checkpoint_id"], "c0");
        let sent = json!([message("human", "m0", "ho")]);
        assert_eq!(run.body["input"], json!({KEY: sent}));
        ends(run, &sent).await;
    });
    assert_eq!(response.rest().await.last().unwrap()["type"], "RUN_FINISHED");
}

/// All clients of an agent share one read of a thread. Agents with another key read it again.
#[tokio::test]
async fn each_agent_reads_a_thread_at_rest_under_its_own_key() {
    let mut server = LangGraph::start().await;
    server.books().assistants.push(assistant("other"));
    let said = json!([message("human", "m0", "hi"), message("ai", "m1", "you")]);
    server.thread(THREAD, json!({}), Some(kept_state("R0", &said)));
    let run = json!({"run_id": "R0", "thread_id": THREAD, "status": "success",
        "created_at": "2026-11-22T09:00:00.000000+00:00", "metadata": {}, "kwargs": {}});
    server.books().threads.get_mut(THREAD).unwrap().runs.push(run);
    let gateway = Front::of(two(&server)).await;
    server.hold("/state");
    let (mut plain, mut other, ()) =
        tokio::join!(gateway.connects("agent"), gateway.connects("other"), async {
            let looks = [server.held("/state").await, server.held("/state").await];
            for look in looks {
                look.json(200, &kept_state("R0", &said).to_string()).await;
            }
        });
    let draft = message("human", "draft", "a draft");
    let seen = shown(&other.rest().await);
    assert_eq!(
        seen,
        (vec!["hi".to_owned(), "you".to_owned()], json!({"messages": [draft], "n": 1}))
    );
    let seen = shown(&plain.rest().await);
    assert_eq!(seen, (vec!["a draft".to_owned()], json!({KEY: said, "n": 1})));
}

/// One watcher reads a followed thread for all clients that get the same form of it.
#[tokio::test]
async fn each_agent_follows_a_thread_under_its_own_key() {
    let server = LangGraph::start().await;
    server.books().assistants.push(assistant("other"));
    server.hold("/threads/search");
    let said = json!([message("human", "m0", "hi"), message("ai", "m1", "you")]);
    server.thread(THREAD, json!({}), Some(kept_state("R0", &said)));
    let gateway = Front::of(two(&server)).await;
    let follows = async |agent: &str| {
        let request = events_request("", "?follow=thread");
        let request = request.replace("/agent/agent/", &format!("/agent/{agent}/"));
        let mut response =
            soon("an answer", Response::to(gateway.address, request.as_bytes())).await;
        let mut events = Vec::new();
        while events.last().is_none_or(|event: &Value| event["type"] != "RUN_FINISHED") {
            events.extend(soon("an event", response.next(1)).await);
        }
        (response, shown(&events))
    };
    let (_plain, seen) = follows("agent").await;
    assert_eq!(seen, (vec!["a draft".to_owned()], json!({KEY: said, "n": 1})));
    let (_other, seen) = follows("other").await;
    let draft = message("human", "draft", "a draft");
    let texts = vec!["hi".to_owned(), "you".to_owned()];
    assert_eq!(seen, (texts, json!({"messages": [draft], "n": 1})));
}

#[tokio::test]
async fn a_run_that_waits_for_its_turn_shows_its_input_from_under_the_key() {
    let mut server = LangGraph::start().await;
    let asked =
        json!({"messages": [message("human", "x", "no")], KEY: [message("human", "m2", "more")]});
    let said = json!([message("human", "m0", "hi"), message("ai", "m1", "you")]);
    server.thread(THREAD, json!({}), Some(kept_state("R0", &said)));
    let run = json!({"run_id": "01a200b7-5ee6-7592-b13b-000000000009", "thread_id": THREAD,
        "status": "pending", "created_at": "2026-11-22T09:00:00.000000+00:00", "metadata": {},
        "kwargs": {"resumable": true, "stream_mode": ["values"], "input": asked}});
    server.books().threads.get_mut(THREAD).unwrap().runs.push(run);
    let gateway = Front::of(keeping(&server)).await;
    let (mut response, run) = tokio::join!(gateway.connects("agent"), server.joined());
    let events = response.next(4).await;
    let (texts, state) = shown(&events);
    assert_eq!(texts, ["hi", "you", "more"]);
    assert_eq!(state["messages"][0]["content"], "a draft");
    drop(run);
}

/// Clients that connect after the reload get a new reading of the run.
#[tokio::test]
async fn a_reload_that_changes_the_key_changes_what_is_read_from_then_on() {
    let mut server = LangGraph::start().await;
    server.thread(THREAD, json!({}), None);
    let gateway = Front::of(agents(&[("default", &server.url)], &[])).await;
    let hi = input(&["hi"]);
    let (mut owner, mut run) = tokio::join!(gateway.runs(&hi), server.run());
    assert_eq!(run.body["input"], json!({"messages": [message("human", "m0", "hi")]}));
    let said = json!([message("human", "m0", "hi"), message("ai", "m1", "you")]);
    let values = kept(&said);
    run.sends("values", &values).await;
    let (_, state) = shown(&owner.next(3).await);
    assert_eq!(state, json!({KEY: said, "n": 1}));

    gateway.server.reload(keeping(&server), Settings::default());
    let (mut viewer, mut joined) = tokio::join!(gateway.connects("agent"), server.joined());
    joined.sends("metadata", &json!({"run_id": run.id, "attempt": 1})).await;
    joined.sends("values", &values).await;
    let (texts, state) = shown(&viewer.next(3).await);
    assert_eq!(texts, ["hi", "you"]);
    let draft = message("human", "draft", "a draft");
    assert_eq!(state, json!({"messages": [draft], "n": 1}));
    drop((run, joined));
}
