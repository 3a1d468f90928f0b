//! Two runs that are read at the same time and share nothing but their gateway.

use crate::support::gateway::{agents, post, serve};
use crate::support::langgraph::{LangGraph, Run, soon};
use serde_json::{Value, json};
use threadway::server::Limits;

const THREADS: [&str; 2] =
    ["0f9cfe5e-7d44-4d4f-8aef-a4e7c1d4a2a1", "0f9cfe5e-7d44-4d4f-8aef-a4e7c1d4a2a2"];

/// How many tokens each run sends, alternating with the other.
const TURNS: usize = 20;

fn asks(thread: &str) -> String {
    json!({"threadId": thread, "runId": "r1", "protocolVersion": "1.0",
        "messages": [{"id": "u", "role": "user", "content": thread}]})
    .to_string()
}

/// The text that a client received under a message id.
fn said(events: &[Value], field: &str, id: &str) -> String {
    let told = events.iter().filter(|event| event[field] == id);
    told.filter_map(|event| event["delta"].as_str()).collect()
}

#[tokio::test]
async fn two_runs_with_the_same_ids_do_not_mix() {
    let mut server = LangGraph::start().await;
    let (address, _stop, _serving) =
        serve(agents(&[("default", &server.url)], &[]), Limits::default()).await;
    let (mut responses, mut runs) = (Vec::new(), Vec::<Run>::new());
    for thread in THREADS {
        server.thread(thread, json!({}), None);
        let body = asks(thread);
        let (response, run) = tokio::join!(post(address, "", &body), server.run());
        assert_eq!(run.thread, thread);
        responses.push(response);
        runs.push(run);
    }
    // The runs send the same message, call and run ids, alternately.
    for turn in 0..TURNS {
        for (at, run) in runs.iter_mut().enumerate() {
            run.says("m", &format!("{at}.{turn} ")).await;
        }
    }
    for (at, run) in runs.iter_mut().enumerate() {
        run.calls("m", "call", "look", &json!({"of": at})).await;
    }
    let text =
        |at: usize| (0..TURNS).map(|turn| format!("{at}.{turn} ")).collect::<Vec<_>>().concat();
    for (at, mut run) in runs.into_iter().enumerate() {
        let call = json!({"id": "call", "name": "look", "args": {"of": at}});
        let messages = json!([{"id": "u", "type": "human", "content": THREADS[at]},
            {"id": "m", "type": "ai", "content": text(at), "tool_calls": [call]}]);
        run.sends("values", &json!({"messages": messages, "of": at})).await;
        run.ends("success", None).await;
    }
    for (at, response) in responses.iter_mut().enumerate() {
        let events = soon("the end", response.rest()).await;
        assert_eq!(said(&events, "messageId", "m"), text(at));
        assert_eq!(said(&events, "toolCallId", "call"), format!("{{\"of\":{at}}}"));
        let states: Vec<_> = events.iter().filter_map(|event| event.get("snapshot")).collect();
        assert_eq!(states, [&json!({"of": at})]);
        let ends = [events.first(), events.last()].map(|event| event.unwrap()["threadId"].clone());
        assert_eq!(ends, [THREADS[at], THREADS[at]]);
    }
}
