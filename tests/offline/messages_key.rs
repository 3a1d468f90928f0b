//! Graphs that keep their conversation under another state key than `messages`.
//!
//! The expected result is that of the same run with the key renamed: its client gets the same
//! bytes.

use crate::support::capture::{self, Capture};
use crate::support::generate::{self, ScriptPart};
use crate::support::plan::plan;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};
use threadway::runs::{Events, RunDecoder};
use threadway_translate::agui::{Allowance, Input, OnMessage, Projector, RequestPlanner};
use threadway_translate::langgraph::{
    Capabilities, InputKeys, MessagesKey, Part, ThreadRecord, ThreadState,
};
use threadway_translate::run::{self, RunEvent, StreamEnd, Translator};
use threadway_translate::sse::Decoder;

const KEY: &str = "chat_history";

fn key() -> MessagesKey {
    KEY.parse().unwrap()
}

/// Translates parts with this messages key; also returns the id of each event, if it has one.
fn told(parts: &[ScriptPart], key: MessagesKey) -> (Vec<RunEvent>, Events) {
    let mut decoder = RunDecoder::new("T", None, Some("r1")).with_messages_key(key);
    let mut events = Events::default();
    decoder.start(&mut events);
    decoder.read(&generate::bytes(parts, false), &mut events).unwrap();
    decoder.end(None, StreamEnd::Complete, &mut events);
    (events.to_vec(), events)
}

/// Renames the messages key of the parts, in the graphs that `is_renamed` picks by their namespace.
fn renamed(parts: &[ScriptPart], to: &str, is_renamed: impl Fn(&str) -> bool) -> Vec<ScriptPart> {
    let rename = |part: &ScriptPart| {
        let ScriptPart { event, data } = part;
        let Ok(mut data) = serde_json::from_str::<Value>(data) else { return part.clone() };
        let (mode, namespace) = event.split_once('|').unwrap_or((event, ""));
        if data["type"] == "event" && data["params"].is_object() {
            let segments = data["params"]["namespace"].as_array().cloned().unwrap_or_default();
            let namespace: Vec<_> = segments.iter().filter_map(Value::as_str).collect();
            let method = data["method"].as_str().unwrap_or_default().to_owned();
            if is_renamed(&namespace.join("|")) {
                rename_in(&method, &mut data["params"]["data"], to);
            }
        } else {
            let path = data["metadata"]["langgraph_checkpoint_ns"].as_str().unwrap_or_default();
            let place = if mode == "events" && path.contains('|') { path } else { namespace };
            if is_renamed(place) {
                rename_in(mode, &mut data, to);
            }
        }
        ScriptPart::new(event, &data)
    };
    parts.iter().map(rename).collect()
}

fn rename_in(mode: &str, data: &mut Value, to: &str) {
    match mode {
        "values" => rename_member(data, to),
        "updates" => {
            data.as_object_mut().into_iter().flatten().for_each(|(_, delta)| in_delta(delta, to));
        }
        "events" if data["event"] != "on_custom_event" => {
            let Some(output) = data.pointer_mut("/data/output") else { return };
            if let Some(update) = output.get_mut("update") {
                rename_member(update, to);
            }
            in_delta(output, to);
        }
        _ => {}
    }
}

/// Renames the key in the update of a node, which has one write or several.
fn in_delta(delta: &mut Value, to: &str) {
    match delta {
        Value::Array(writes) => writes.iter_mut().for_each(|write| in_delta(write, to)),
        Value::Object(members) => {
            if let Some(update) = members.get_mut("update") {
                rename_member(update, to);
            }
            rename_member(delta, to);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn rename_member(object: &mut Value, to: &str) {
    if let Value::Object(members) = object {
        let rename = |(name, value): (String, Value)| {
            (if name == "messages" { to.to_owned() } else { name }, value)
        };
        *members = std::mem::take(members).into_iter().map(rename).collect::<Map<_, _>>();
    }
}

/// The parts of a capture, each on one line.
fn parts_of(capture: &Capture) -> Vec<ScriptPart> {
    let mut decoder = Decoder::new();
    decoder.push(&capture.bytes);
    let mut parts = Vec::new();
    while let Some(frame) = decoder.next_frame().unwrap() {
        let data = frame.data.as_deref().unwrap_or_default();
        let event = frame.event.as_deref().unwrap_or_default();
        parts.push(match serde_json::from_str::<Value>(data) {
            Ok(data) => ScriptPart::new(event, &data),
            Err(_) => ScriptPart { event: event.to_owned(), data: data.to_owned() },
        });
    }
    parts
}

fn wire(events: &[RunEvent], input: &Value) -> Vec<u8> {
    let input = Input::parse(input.to_string().as_bytes()).unwrap();
    capture::project(events, Projector::new(input.client(), input.held())).bytes
}

#[test]
fn every_capture_with_its_key_renamed_becomes_the_same_bytes() {
    let (mut wrong, mut renamed_ones, mut told_otherwise) = (Vec::new(), 0, 0);
    for capture in capture::all() {
        let parts = parts_of(&capture);
        let (input, expected) = (capture.input(), told(&parts, MessagesKey::MESSAGES).0);
        for is_renamed in [|_: &str| true, |namespace: &str| namespace.is_empty()] {
            let other = renamed(&parts, KEY, is_renamed);
            let (events, _) = told(&other, key());
            if events != expected || wire(&events, &input) != wire(&expected, &input) {
                wrong.push(capture.name.clone());
            }
            let has_key = other.iter().zip(&parts).any(|(a, b)| a.data != b.data);
            renamed_ones += usize::from(has_key);
            let unread = told(&other, MessagesKey::MESSAGES).0;
            told_otherwise += usize::from(has_key && unread != expected);
        }
    }
    assert!(wrong.is_empty(), "these differ under another key: {wrong:#?}");
    // Almost all captures have the key, and their translation is wrong without the option. So the
    // test cannot pass by accident.
    assert!(renamed_ones > 200, "only {renamed_ones} captures were renamed");
    assert!(told_otherwise > 200, "only {told_otherwise} captures need the option");
}

#[test]
fn an_unrelated_messages_is_state_as_any_other() {
    let message = json!({"type": "ai", "id": "a", "content": "hi"});
    let other = json!({"type": "human", "id": "x", "content": "a draft"});
    let state = json!({"messages": [other], "n": 1, KEY: [message]});
    let parts = [
        ScriptPart::new("values", &json!({"messages": [], "n": 0, KEY: []})),
        ScriptPart::new("updates", &json!({"model": {"messages": [other], KEY: [message]}})),
        ScriptPart::new("values", &state),
    ];
    let view = generate::fold(&told(&parts, key()).0);
    let ids: Vec<_> = view.messages().iter().map(|message| message.id.to_string()).collect();
    assert_eq!(ids, ["a"]);
    let held: Value = serde_json::from_str(view.state().unwrap().to_json().get()).unwrap();
    assert_eq!(held, json!({"messages": [other], "n": 1}));
}

#[test]
fn a_list_of_other_things_under_the_key_is_state() {
    let parts = [ScriptPart::new("values", &json!({KEY: ["a", "b"]}))];
    let view = generate::fold(&told(&parts, key()).0);
    let held: Value = serde_json::from_str(view.state().unwrap().to_json().get()).unwrap();
    assert_eq!(held, json!({KEY: ["a", "b"]}));
}

/// A client that resumes after an event of another key's stream starts over.
#[test]
fn the_events_of_each_key_have_ids_of_their_own() {
    let parts = [
        ScriptPart::new("metadata", &json!({"run_id": "R", "attempt": 1})),
        ScriptPart::new(
            "messages",
            &json!([{"type": "AIMessageChunk", "id": "a", "content": "x"}, {}]),
        ),
    ];
    let (events, marked) = told(&parts, MessagesKey::MESSAGES);
    let (same, others) = told(&parts, key());
    assert_eq!(events, same);
    assert_ne!(marked, others, "their marks differ");
    assert_eq!(marked, told(&parts, "messages".parse().unwrap()).1);
}

#[test]
fn an_input_is_shown_from_under_the_key() {
    let mut translator = Translator::new("T", "R").under(key());
    let input = json!({"messages": [{"type": "human", "id": "x", "content": "no"}],
        KEY: {"type": "human", "content": "yes"}});
    let input = serde_json::value::to_raw_value(&input).unwrap();
    let mut events = Vec::new();
    translator.on_input(&input, &mut events);
    let view = generate::fold(&events);
    let shown: Vec<_> =
        view.messages().iter().map(|m| m.content.text().decode().into_owned()).collect();
    assert_eq!(shown, ["yes"]);
}

#[test]
fn a_thread_without_a_title_is_called_by_what_was_said_first_under_the_key() {
    let record = json!({"thread_id": "T", "values": {
        "messages": [{"type": "human", "content": "a draft"}],
        KEY: [{"type": "human", "content": "hello"}]}})
    .to_string();
    let title = |key: &MessagesKey| ThreadRecord::parse_under(key, &record).unwrap().title();
    assert_eq!(title(&key()).as_deref(), Some("hello"));
    assert_eq!(title(&MessagesKey::MESSAGES).as_deref(), Some("a draft"));
}

/// The body of the upstream run for a request on a thread with this state.
fn goes_up(input: &Value, state: &Value, keys: &InputKeys) -> Value {
    let mut body = json!({"threadId": "t", "runId": "r", "messages": []});
    body.as_object_mut().unwrap().extend(input.as_object().unwrap().clone());
    let input = Input::parse(body.to_string().as_bytes()).unwrap();
    let (state, key, allowance) = (state.to_string(), key(), Allowance::default());
    let asking = RequestPlanner {
        input: &input,
        on_message: OnMessage::AskAgain,
        allowance: &allowance,
        emit: run::EmitOptions::default(),
        messages_key: &key,
    };
    let thread = ThreadState::parse_under(&key, &state);
    let run = plan(&asking, thread.as_ref(), keys).unwrap().run.expect("a run is started");
    let fork = run.fork_before.clone();
    let mut body =
        serde_json::to_value(run.request("agent", Capabilities::default(), None)).unwrap();
    body["fork"] = json!(fork);
    body
}

#[test]
fn only_new_messages_go_up_and_under_the_key() {
    let known = json!({"type": "human", "id": "u1", "content": "hello"});
    let answer = json!({"type": "ai", "id": "a1", "content": "hi"});
    let thread = json!({"values": {KEY: [known, answer], "messages": ["a"], "n": 1}});
    let messages = json!([
        {"id": "u1", "role": "user", "content": "hello"},
        {"id": "a1", "role": "assistant", "content": "hi"},
        {"id": "u2", "role": "user", "content": "more"},
    ]);
    // The graph's other `messages` is an ordinary key: it is forwarded only if the client changed
    // it.
    let state = |messages: Value| json!({"messages": messages, KEY: [], "n": 2});
    let sent = |state: Value| {
        let input = json!({"messages": messages, "state": state});
        goes_up(&input, &thread, &InputKeys::Undescribed)["input"].clone()
    };
    let new = json!([{"type": "human", "id": "u2", "content": "more"}]);
    assert_eq!(sent(state(json!(["a"]))), json!({"n": 2, KEY: new}));
    assert_eq!(sent(state(json!(["b"]))), json!({"messages": ["b"], "n": 2, KEY: new}));
}

#[test]
fn a_changed_message_forks_a_thread_whose_conversation_lies_elsewhere() {
    let thread = json!({"values": {KEY: [{"type": "human", "id": "u1", "content": "hello"}]}});
    let input = json!({"messages": [{"id": "u1", "role": "user", "content": "hullo"}]});
    let body = goes_up(&input, &thread, &InputKeys::Unknown);
    assert_eq!(body["fork"], "u1");
    assert_eq!(body["input"][KEY][0]["content"], "hullo");
}

#[test]
fn what_is_new_beside_an_answer_goes_up_under_the_key() {
    let thread = json!({
        "values": {KEY: [{"type": "human", "id": "u1", "content": "hello"}]},
        "next": ["ask"],
        "tasks": [{"id": "t", "interrupts": [{"id": "i1", "value": "sure?"}]}],
    });
    let input = json!({
        "messages": [
            {"id": "u1", "role": "user", "content": "hello"},
            {"id": "u2", "role": "user", "content": "one more thing"},
        ],
        "resume": [{"interruptId": "i1", "status": "resolved", "payload": true}],
    });
    let body = goes_up(&input, &thread, &InputKeys::Unknown);
    let new = json!([{"type": "human", "id": "u2", "content": "one more thing"}]);
    assert_eq!(body["command"]["update"], json!({KEY: new}));
}

proptest! {
    #![proptest_config(generate::config(256))]

    /// Arbitrary parts, and a state that is read after them.
    #[test]
    fn any_parts_are_told_the_same_under_any_key(
        parts in generate::any_parts(),
        state in generate::values(),
        to in select(&["chat_history", "a", "tools", "é\"\\", "Messages"][..]),
        is_deep in any::<bool>(),
    ) {
        let key: MessagesKey = to.parse().unwrap();
        // A state may already have a key of this name, which makes it another graph.
        let is_taken = |part: &ScriptPart| {
            serde_json::from_str::<Value>(&part.data).is_ok_and(|data| has_member(&data, to))
        };
        prop_assume!(!parts.iter().any(is_taken) && !has_member(&state, to));
        let run = |parts: &[ScriptPart], state: &Value, key: &MessagesKey| {
            let mut translator = Translator::new("T", "R").under(key.clone());
            let (mut events, mut scratch, mut decoder) = (Vec::new(), String::new(), Decoder::new());
            decoder.push(&generate::bytes(parts, false));
            while let Some(frame) = decoder.next_frame().unwrap() {
                let part = Part::parse_under(key, &frame, &mut scratch);
                translator.on_part(&part, &mut events);
            }
            let body = json!({"values": state}).to_string();
            translator.on_state(&ThreadState::parse_under(key, &body).unwrap(), &mut events);
            translator.on_end(StreamEnd::Succeeded, &mut events);
            events
        };
        let mut renamed_state = state.clone();
        rename_member(&mut renamed_state, to);
        let other = renamed(&parts, to, |namespace| is_deep || namespace.is_empty());
        prop_assert_eq!(
            run(&other, &renamed_state, &key),
            run(&parts, &state, &MessagesKey::MESSAGES)
        );
    }
}

/// Whether an object inside a value has this member, at any depth.
fn has_member(value: &Value, name: &str) -> bool {
    match value {
        Value::Array(items) => items.iter().any(|item| has_member(item, name)),
        Value::Object(members) => {
            members.iter().any(|(key, value)| key == name || has_member(value, name))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
