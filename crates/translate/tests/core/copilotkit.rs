//! The names and types that CopilotKit's SDK writes into metadata and questions.

use crate::support::capture::{self, Translated};
use crate::support::generate::{self, ScriptPart};
use crate::support::judge;
use crate::support::schema::Schema;
use serde_json::{Value, json};
use threadway_translate::acp::question;
use threadway_translate::agui::Projector;
use threadway_translate::json::raw;
use threadway_translate::run::{StreamEnd, Translator};

/// The events of a run that succeeded, for a client that holds nothing. All of them are legal.
fn told(parts: &[(&str, Value)]) -> Translated {
    let parts: Vec<_> = parts
        .iter()
        .map(|(event, data)| ScriptPart { event: (*event).to_owned(), data: data.to_string() })
        .collect();
    let mut translator = Translator::new("T", "R");
    let mut out = Vec::new();
    translator.start(&mut out);
    capture::feed(&mut translator, &generate::bytes(&parts, false), &mut out);
    translator.on_end(StreamEnd::Succeeded, &mut out);
    let told = capture::project(&out, Projector::new(capture::newcomer(), Vec::new()));
    judge::legal(&Schema::load(), &told.events).unwrap();
    told
}

fn metadata(key: &str, value: &Value) -> Value {
    json!({"langgraph_node": "model", "langgraph_checkpoint_ns": "model:1", key: value})
}

/// A message with text and two calls in each dialect. No state holds it.
fn spoken(metadata: &Value) -> Vec<Vec<(&'static str, Value)>> {
    let chunk = |content: &str, index: u32, id: &str, name: &str| {
        json!({"type": "AIMessageChunk", "id": "a1", "content": content, "tool_call_chunks":
            [{"index": index, "id": id, "name": name, "args": "{\"n\":1}"}]})
    };
    let chunks = [chunk("words", 0, "c1", "plan"), chunk("", 1, "c2", "search")];
    let call = |id: &str, name: &str| json!({"id": id, "name": name, "args": {"n": 1}});
    let whole = json!({"type": "ai", "id": "a1", "content": "words",
        "tool_calls": [call("c1", "plan"), call("c2", "search")]});
    let event = |event: &str, data: Value| {
        ("events", json!({"event": event, "name": "Fake", "data": data, "metadata": metadata}))
    };
    vec![
        chunks.iter().map(|chunk| ("messages", json!([chunk, metadata]))).collect(),
        vec![("messages", json!([whole, metadata]))],
        vec![
            ("messages/metadata", json!({"a1": {"metadata": metadata}})),
            ("messages/partial", json!([whole])),
            ("messages/complete", json!([whole])),
        ],
        chunks.iter().map(|c| event("on_chat_model_stream", json!({"chunk": c}))).collect(),
        vec![event("on_chat_model_end", json!({"output": whole}))],
    ]
}

#[test]
fn the_flags_of_calls_and_messages_have_the_types_of_the_sdk() {
    let (both, none) = (vec!["plan", "search"], Vec::new());
    for (key, value, has_text, calls) in [
        ("emit-tool-calls", json!(true), true, both.clone()),
        ("emit-tool-calls", json!(null), true, both.clone()),
        ("emit-tool-calls", json!(false), true, none.clone()),
        ("emit-tool-calls", json!("search"), true, vec!["search"]),
        ("emit-tool-calls", json!("neither"), true, none.clone()),
        ("emit-tool-calls", json!(["search"]), true, vec!["search"]),
        ("emit-tool-calls", json!(["search", "plan"]), true, both.clone()),
        ("emit-tool-calls", json!([]), true, none.clone()),
        ("emit-messages", json!(true), true, both.clone()),
        ("emit-messages", json!(false), false, both.clone()),
        ("emit-messages", json!("model"), true, both.clone()),
        ("emit-messages", json!(["model"]), true, both.clone()),
        ("emit-messages", json!([]), false, both),
    ] {
        for key in [key.to_owned(), format!("copilotkit:{key}")] {
            for stream in spoken(&metadata(&key, &value)) {
                let mut parts = vec![("values", json!({"messages": []}))];
                parts.extend(stream.clone());
                let told = told(&parts);
                let starts = told.events.iter().filter(|e| e["type"] == "TOOL_CALL_START");
                let names: Vec<_> = starts.map(|e| e["toolCallName"].as_str().unwrap()).collect();
                assert_eq!(names, calls, "{key} {value} {stream:?}");
                let texts = judge::streamed_text(&told.events);
                assert_eq!(texts.contains_key("a1"), has_text, "{key} {value} {stream:?}");
            }
        }
    }
}

#[test]
fn the_state_that_arguments_predict_is_announced_under_both_keys() {
    let entry = |key: &str| json!({"state_key": key, "tool": "plan", "tool_argument": key});
    for key in ["predict_state", "copilotkit:emit-intermediate-state"] {
        for list in [json!([entry("a")]), json!([entry("a"), entry("b")])] {
            for at in [0, 3] {
                let stream = spoken(&metadata(key, &list)).remove(at);
                let mut parts = vec![("values", json!({"messages": []}))];
                parts.extend(stream);
                let told = told(&parts);
                let custom: Vec<_> = told.events.iter().filter(|e| e["type"] == "CUSTOM").collect();
                assert_eq!(custom.len(), 1, "{key}");
                assert_eq!(custom[0]["name"], "PredictState");
                assert_eq!(custom[0]["value"], list);
                let of = |kind: &str| told.events.iter().position(|e| e["type"] == kind).unwrap();
                assert!(of("CUSTOM") < of("TOOL_CALL_START"));
            }
        }
        for nothing in [json!([]), json!(null)] {
            let mut parts = vec![("values", json!({"messages": []}))];
            parts.extend(spoken(&metadata(key, &nothing)).remove(0));
            assert!(told(&parts).events.iter().all(|event| event["type"] != "CUSTOM"));
        }
    }
}

#[test]
fn a_question_of_the_sdk_has_its_message() {
    let own = json!([{"type": "ai", "id": "ck", "content": "for CopilotKit's runtime"}]);
    for (asked, message, words) in [
        (json!("How old are you?"), Some("How old are you?"), "How old are you?"),
        (json!({"message": "How old?", "min": 1}), Some("How old?"), "How old?"),
        (json!({"question": "How old?"}), Some("How old?"), "How old?"),
        (json!({"action": "ask_age", "args": {"min": 1}}), None, "ask_age"),
    ] {
        let value =
            json!({"__copilotkit_interrupt_value__": asked, "__copilotkit_messages__": own});
        let interrupt = json!([{"value": value, "id": "0123456789abcdef0123456789abcdef"}]);
        let told = told(&[
            ("values", json!({"messages": []})),
            ("updates", json!({"__interrupt__": interrupt})),
            ("values", json!({"messages": [], "__interrupt__": interrupt})),
        ]);
        let interrupts = &told.events.last().unwrap()["outcome"]["interrupts"];
        assert_eq!(interrupts.as_array().unwrap().len(), 1);
        assert_eq!(interrupts[0]["message"].as_str(), message, "{asked}");
        assert_eq!(interrupts[0]["metadata"]["langgraph"]["value"], value);
        let text = question::of_value(&raw(value.to_string()));
        assert!(text.contains(words), "{text}");
        assert!(!text.contains("copilotkit") && !text.contains("CopilotKit"), "{text}");
    }
}
