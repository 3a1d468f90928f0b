//! A followed thread that rests: it is looked at again and again, and what changes is told.

#![cfg(test)]

mod support;

use std::cell::Cell;

use serde_json::{Value, json};
use support::gateway::{Gateway, Response, THREAD, events, values};

/// Answers all looks at a thread on which nothing runs.
async fn looks(gateway: &Gateway, rest: &Cell<(&str, &[&str])>) {
    loop {
        let exchange = gateway.upstream.next().await;
        match exchange.line.strip_prefix(&format!("GET /threads/{THREAD}")) {
            // This server has no bell.
            Some("/stream?stream_modes=lifecycle") => exchange.json(404, "{}").await,
            Some("/state") => {
                let (checkpoint, messages) = rest.get();
                let checkpoint = json!({"checkpoint_id": checkpoint});
                let state =
                    json!({"values": values(messages), "next": [], "checkpoint": checkpoint});
                exchange.json(200, &state.to_string()).await;
            }
            Some(runs) if runs.starts_with("/runs?") => exchange.json(200, "[]").await,
            _ => panic!("{}", exchange.line),
        }
    }
}

/// The events of one run of snapshots.
async fn told(response: &mut Response) -> Vec<Value> {
    let mut told = String::new();
    while !told.contains(r#""type":"RUN_FINISHED""#) {
        told += &response.frame().await;
    }
    events(told.strip_prefix("retry: 3000\n\n").unwrap_or(&told))
}

#[tokio::test]
async fn a_thread_that_had_not_changed_at_one_look_may_have_changed_at_the_next() {
    let gateway = Gateway::start().await;
    let request = format!(
        "GET /agui/agent/agent/threads/{THREAD}/events?follow=thread HTTP/1.1\r\nhost: h\r\n\r\n"
    );
    let rest = Cell::new(("c1", ["hi", "ho"].as_slice()));
    let watching = async {
        let mut watchers = Vec::new();
        // Each that comes has the thread looked at anew.
        for _ in 0..3 {
            let mut response = Response::to(gateway.address, request.as_bytes()).await;
            assert_eq!(told(&mut response).await[0]["runId"], "connect-c1");
            watchers.push(response);
        }
        rest.set(("c2", &["hi", "ho", "what now?"]));
        for response in &mut watchers {
            let changed = told(response).await;
            assert_eq!(changed[0]["runId"], "connect-c2");
            let is_snapshot = |event: &&Value| event["type"] == "MESSAGES_SNAPSHOT";
            let snapshot = changed.iter().rfind(is_snapshot).unwrap();
            assert_eq!(snapshot["messages"].as_array().unwrap().len(), 3);
        }
    };
    tokio::select! {
        () = watching => {}
        () = looks(&gateway, &rest) => {}
    }
}
