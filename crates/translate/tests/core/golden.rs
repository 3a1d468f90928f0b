//! Every recorded stream through the translator: exact bytes, and judges that know the wire only.
//!
//! `UPDATE_GOLDEN=1 cargo test --test core golden::` stores the translator's output. Read the
//! difference before you commit it.

use crate::support::capture::{self, Capture, Translated, Upstream};
use crate::support::judge;
use crate::support::schema::Schema;
use serde_json::{Value, json};
use threadway_translate::run::Role;

#[test]
fn every_capture_becomes_the_bytes_that_are_kept() {
    capture::check_kept("", "sse", |capture| capture.translate().bytes);
}

#[test]
fn every_capture_is_legal_and_true() {
    let schema = Schema::load();
    let captures = capture::all();
    assert!(captures.len() > 200, "only {} captures found", captures.len());
    let mut wrong = Vec::new();
    for capture in &captures {
        let translated = capture.translate();
        let upstream = capture.upstream();
        let verdicts = [
            judge::legal(&schema, &translated.events),
            says_every_token_once(&upstream, &translated),
            holds_what_langgraph_holds(&upstream, &translated),
            ends_as_the_run_did(&upstream, &translated),
        ];
        wrong.extend(verdicts.into_iter().filter_map(Result::err).map(|why| (&capture.name, why)));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The example run of docs/mapping.md: its parts, without `tasks` and `checkpoints`.
#[test]
fn the_worked_out_run_is_told_as_the_mapping_tells_it() {
    let mut capture = Capture::named("py-0.16.7/agent-combo");
    let text = String::from_utf8(capture.bytes).unwrap();
    let is_told = |block: &&str| {
        !block.starts_with("event: tasks") && !block.starts_with("event: checkpoints")
    };
    let blocks: Vec<_> = text.split("\r\n\r\n").filter(is_told).collect();
    capture.bytes = blocks.join("\r\n\r\n").into_bytes();
    let ai = "lc_run--01a200b7-62bb-7653-947d-348f32bfb2c6";
    let thought = format!("{ai}:reasoning:0");
    let answer = "lc_run--01a200b7-63ff-75b1-ba96-7effe4fc83bf";
    let mut told = Vec::new();
    for event in capture.translate().events {
        let name = event["type"].as_str().unwrap();
        let about = ["messageId", "toolCallId", "stepName", "snapshot"]
            .iter()
            .map(|key| &event[*key])
            .find(|value| !value.is_null());
        told.push((name.to_owned(), about.cloned().unwrap_or_default()));
    }
    let mut expected: Vec<(String, Value)> = Vec::new();
    let mut tell = |name: &str, about: Value| expected.push((name.to_owned(), about));
    tell("RUN_STARTED", Value::Null);
    tell("STATE_SNAPSHOT", json!({}));
    tell("STEP_STARTED", json!("model"));
    tell("REASONING_START", json!(thought));
    tell("REASONING_MESSAGE_START", json!(thought));
    (0..3).for_each(|_| tell("REASONING_MESSAGE_CONTENT", json!(thought)));
    tell("REASONING_MESSAGE_END", json!(thought));
    tell("REASONING_END", json!(thought));
    tell("TEXT_MESSAGE_START", json!(ai));
    (0..3).for_each(|_| tell("TEXT_MESSAGE_CONTENT", json!(ai)));
    tell("TEXT_MESSAGE_END", json!(ai));
    tell("TOOL_CALL_START", json!("call_w"));
    tell("TOOL_CALL_START", json!("call_s"));
    let fragments = "wswswswswssssss".chars().map(|c| json!(format!("call_{c}")));
    let fragments: Vec<_> = fragments.collect();
    for call in fragments {
        tell("TOOL_CALL_ARGS", call);
    }
    tell("TOOL_CALL_END", json!("call_w"));
    tell("ACTIVITY_SNAPSHOT", json!("call_w:activity"));
    tell("TOOL_CALL_END", json!("call_s"));
    tell("ACTIVITY_SNAPSHOT", json!("call_s:activity"));
    tell("STEP_FINISHED", json!("model"));
    tell("CUSTOM", Value::Null);
    tell("STEP_STARTED", json!("tools"));
    tell("TOOL_CALL_RESULT", json!("fe731d20-92c8-4c3e-b1e2-374d8dc38021"));
    tell("ACTIVITY_DELTA", json!("call_w:activity"));
    tell("STEP_STARTED", json!("tools (2)"));
    tell("TOOL_CALL_RESULT", json!("50bdf88e-3d7f-4f5c-aeb5-7d23a31190c8"));
    tell("ACTIVITY_DELTA", json!("call_s:activity"));
    tell("STEP_FINISHED", json!("tools"));
    tell("STEP_FINISHED", json!("tools (2)"));
    tell("STEP_STARTED", json!("model"));
    tell("TEXT_MESSAGE_START", json!(answer));
    (0..8).for_each(|_| tell("TEXT_MESSAGE_CONTENT", json!(answer)));
    tell("TEXT_MESSAGE_END", json!(answer));
    tell("STEP_FINISHED", json!("model"));
    tell("RUN_FINISHED", Value::Null);
    assert_eq!(told, expected);
}

fn says_every_token_once(upstream: &[Upstream], translated: &Translated) -> Result<(), String> {
    let streamed = judge::streamed_text(&translated.events);
    for (id, text) in judge::tokens(upstream) {
        if streamed.get(&id) != Some(&text) {
            return Err(format!("of {id} came {text:?}, told was {:?}", streamed.get(&id)));
        }
    }
    Ok(())
}

fn holds_what_langgraph_holds(
    upstream: &[Upstream],
    translated: &Translated,
) -> Result<(), String> {
    let Some((state, messages)) = judge::last_values(upstream) else { return Ok(()) };
    let held = translated.view.state().ok_or("no state was sent")?.to_json();
    let held: Value = serde_json::from_str(held.get()).unwrap();
    if held != state {
        return Err(format!("the state is {state}, held is {held}"));
    }
    let mut wire = None;
    for event in &translated.events {
        match event["type"].as_str().unwrap() {
            "STATE_SNAPSHOT" => wire = Some(event["snapshot"].clone()),
            "STATE_DELTA" => {
                let patch: json_patch::Patch =
                    serde_json::from_value(event["delta"].clone()).unwrap();
                json_patch::patch(wire.as_mut().ok_or("a delta of nothing")?, &patch)
                    .map_err(|error| error.to_string())?;
            }
            _ => {}
        }
    }
    if wire.as_ref() != Some(&state) {
        return Err(format!("the state is {state}, the wire tells {wire:?}"));
    }
    let held: Vec<_> = translated
        .view
        .messages()
        .iter()
        .filter(|message| !matches!(message.role, Role::Reasoning | Role::Attachment))
        .map(|message| {
            let role = match message.role {
                Role::User => "user",
                Role::Assistant => "assistant",
                Role::Tool => "tool",
                Role::System => "system",
                Role::Developer => "developer",
                Role::Reasoning | Role::Attachment => unreachable!("they are filtered out"),
            };
            let args = |call: &threadway_translate::run::Call| {
                serde_json::from_str(&call.args.to_text().decode()).unwrap_or_default()
            };
            let calls = message.calls.iter();
            let calls = calls.map(|c| (c.id.to_string(), c.name.to_string(), args(c))).collect();
            let text = message.content.text().decode().into_owned();
            let answers = message.call_id.as_deref().unwrap_or_default().to_owned();
            judge::Shown { id: message.id.to_string(), role, text, calls, answers }
        })
        .collect();
    let messages: Vec<_> = messages.iter().map(judge::shown).collect();
    // A subgraph that waits for an answer holds messages that the thread lacks.
    let waits = translated.events.last().unwrap()["outcome"]["type"] == "interrupt";
    let is_below = |id: &str| {
        waits && translated.view.message(id).is_some_and(|message| message.agent.is_some())
    };
    let is_of_thread = |shown: &judge::Shown| messages.iter().any(|m| m.id == shown.id);
    let held: Vec<_> =
        held.into_iter().filter(|shown| is_of_thread(shown) || !is_below(&shown.id)).collect();
    if held != messages {
        return Err(format!("the messages are {messages:#?}, held are {held:#?}"));
    }
    Ok(())
}

fn ends_as_the_run_did(upstream: &[Upstream], translated: &Translated) -> Result<(), String> {
    let end = translated.events.last().unwrap();
    let is_interrupt = |part: &Upstream| {
        part.data.get("__interrupt__").is_some()
            || part.event == "input.requested"
            || (part.event == "tasks"
                && part.data["interrupts"].as_array().is_some_and(|i| !i.is_empty()))
    };
    let error = upstream.iter().find(|part| part.event == "error");
    let expected = match error {
        // A refusal that was recorded instead of a stream.
        None if upstream.is_empty() => ("RUN_ERROR", json!("stream_incomplete")),
        Some(error) => ("RUN_ERROR", error.data["error"].clone()),
        None if upstream.iter().any(is_interrupt) => ("RUN_FINISHED", json!("interrupt")),
        None => ("RUN_FINISHED", json!("success")),
    };
    let told = match end["type"].as_str().unwrap() {
        "RUN_ERROR" => ("RUN_ERROR", end["code"].clone()),
        name => (
            if name == "RUN_FINISHED" { "RUN_FINISHED" } else { "" },
            end["outcome"]["type"].clone(),
        ),
    };
    if told == expected { Ok(()) } else { Err(format!("ended {told:?}, not {expected:?}")) }
}
