//! `watched` measures an imaginary service and reports, slowly enough to be joined.

use serde_json::{Value, json};

use super::speech::Speech;
use super::{Act, Channel, Due, End, Line, LineContent, MESSAGES, NodeContext, Reducer, object};
use crate::state::messages;

pub(super) const MEASURE: &str = "measure";
const MODEL: &str = "model";

pub(super) const CHANNELS: &[Channel] =
    &[MESSAGES, Channel { name: "health", reducer: Reducer::Last }];

/// How many beats come before a token of the report. At the usual pace a report takes about 7 of
/// the 20 s between two runs.
const BEAT: u32 = 4;

/// How many reports the thread keeps. Without a limit it would grow forever.
const MAX_REPORTS: usize = 10;

pub(super) fn follow(node: &str) -> Option<Vec<Due>> {
    match node {
        "__start__" => Some(vec![Due::pull(MEASURE)]),
        MEASURE => Some(vec![Due::pull(MODEL)]),
        MODEL => Some(vec![]),
        _ => None,
    }
}

pub(super) fn act(due: &Due, node: &NodeContext<'_>) -> Act {
    if due.node == MEASURE { measure(node) } else { report(node) }
}

/// The input of the next background run: a request, and removals of the oldest messages.
pub(crate) fn request(held: &[Value]) -> Value {
    let kept = 2 * (MAX_REPORTS - 1);
    let old = held.iter().take(held.len().saturating_sub(kept));
    let removals = old.map(|message| json!({"type": "remove", "id": message["id"]}));
    let request = json!({"type": "human", "content": "Check the service."});
    json!({"messages": removals.chain([request]).collect::<Vec<_>>()})
}

fn checks(node: &NodeContext<'_>) -> u64 {
    let health = node.values.get("health");
    health.and_then(|health| health["checks"].as_u64()).unwrap_or_default()
}

fn measure(node: &NodeContext<'_>) -> Act {
    let checks = checks(node) + 1;
    let lines = vec![
        Line {
            after: 4,
            content: LineContent::Custom(json!({"status": "measuring", "done": 0.5})),
        },
        Line {
            after: 8,
            content: LineContent::Custom(json!({"status": "measuring", "done": 1.0})),
        },
    ];
    let health = json!({
        "checks": checks,
        "status": "up",
        "latency_ms": 20 + checks * 7 % 40,
        "regions": {"eu": "up", "us": if checks.is_multiple_of(3) { "slow" } else { "up" }},
    });
    Act { lines, pause: 0, end: End::Update(Some(object(json!({"health": health})))) }
}

fn report(node: &NodeContext<'_>) -> Act {
    let health = node.values.get("health").unwrap_or(&Value::Null);
    let regions = &health["regions"];
    let region = |name| regions.get(name).and_then(Value::as_str).unwrap_or_default();
    let asked = messages(node.values).iter().filter(|message| message["type"] == "human").count();
    let text = format!(
        "Report {}. The service is up: it answered within {} ms, {} in Europe and {} in America. \
         Nobody asked me for this: I run by myself every 20 s, also while no client looks. \
         This thread shows the last {asked} of my reports.",
        checks(node),
        health["latency_ms"],
        region("eu"),
        region("us"),
    );
    Speech::new(node, BEAT).say(&text).end()
}
