//! `watched`: it measures a service that is not there and reports, slowly enough to be joined.

use serde_json::{Value, json};

use super::speech::Speech;
use super::{Act, Channel, Due, End, Line, MESSAGES, Reducer, Stage, Word, object};
use crate::state::messages;

pub(super) const MEASURE: &str = "measure";
const MODEL: &str = "model";

pub(super) const CHANNELS: &[Channel] =
    &[MESSAGES, Channel { name: "health", reducer: Reducer::Last }];

/// Beats before a token of the report: with the usual beat the report takes about 7 s of the 20 s
/// between two of them.
const BEAT: u32 = 4;

/// How many reports the thread keeps: it would grow for ever.
const MAX_REPORTS: usize = 10;

pub(super) fn follow(node: &str) -> Option<Vec<Due>> {
    match node {
        "__start__" => Some(vec![Due::pull(MEASURE)]),
        MEASURE => Some(vec![Due::pull(MODEL)]),
        MODEL => Some(vec![]),
        _ => None,
    }
}

pub(super) fn act(due: &Due, stage: &Stage<'_>) -> Act {
    if due.node == MEASURE { measure(stage) } else { report(stage) }
}

/// The input of the next background run: a request, and the oldest messages taken back.
pub(crate) fn request(held: &[Value]) -> Value {
    let kept = 2 * (MAX_REPORTS - 1);
    let old = held.iter().take(held.len().saturating_sub(kept));
    let removals = old.map(|message| json!({"type": "remove", "id": message["id"]}));
    let request = json!({"type": "human", "content": "Check the service."});
    json!({"messages": removals.chain([request]).collect::<Vec<_>>()})
}

fn checks(stage: &Stage<'_>) -> u64 {
    let health = stage.values.get("health");
    health.and_then(|health| health["checks"].as_u64()).unwrap_or_default()
}

fn measure(stage: &Stage<'_>) -> Act {
    let checks = checks(stage) + 1;
    let lines = vec![
        Line { after: 4, word: Word::Custom(json!({"status": "measuring", "done": 0.5})) },
        Line { after: 8, word: Word::Custom(json!({"status": "measuring", "done": 1.0})) },
    ];
    let health = json!({
        "checks": checks,
        "status": "up",
        "latency_ms": 20 + checks * 7 % 40,
        "regions": {"eu": "up", "us": if checks.is_multiple_of(3) { "slow" } else { "up" }},
    });
    Act { lines, rest: 0, end: End::Update(Some(object(json!({"health": health})))) }
}

fn report(stage: &Stage<'_>) -> Act {
    let health = stage.values.get("health").unwrap_or(&Value::Null);
    let regions = &health["regions"];
    let region = |name| regions.get(name).and_then(Value::as_str).unwrap_or_default();
    let asked = messages(stage.values).iter().filter(|message| message["type"] == "human").count();
    let text = format!(
        "Report {}. The service is up: it answered within {} ms, {} in Europe and {} in America. \
         Nobody asked me for this: I run by myself every 20 s, also while no client looks. \
         This thread shows the last {asked} of my reports.",
        checks(stage),
        health["latency_ms"],
        region("eu"),
        region("us"),
    );
    Speech::new(stage, BEAT).say(&text).end()
}
