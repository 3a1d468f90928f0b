//! AG-UI's protobuf binding: the bytes of `@ag-ui/proto` 1.0.0, and values that it cannot hold.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use threadway_translate::agui::ProtoEncoder;

/// Events of every type with every member, each after the bytes that the official encoder makes of
/// it. `integration/run proto` checks these bytes.
const OFFICIAL: &str = include_str!("../../../../tests/support/ag-ui-proto-1.0.0.txt");

fn examples() -> impl Iterator<Item = (Vec<u8>, &'static str)> {
    OFFICIAL.lines().map(|line| {
        let (hex, event) = line.split_once(' ').unwrap();
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        ((0..hex.len()).step_by(2).map(byte).collect(), event)
    })
}

fn frame(event: &str) -> Vec<u8> {
    frames([event])
}

fn frames<T: AsRef<str>>(events: impl IntoIterator<Item = T>) -> Vec<u8> {
    let (mut encoder, mut out) = (ProtoEncoder::default(), Vec::new());
    events.into_iter().for_each(|event| encoder.frame(event.as_ref().as_bytes(), &mut out));
    out
}

#[test]
fn events_have_the_bytes_of_the_official_encoder() {
    for (bytes, event) in examples() {
        let length = u32::try_from(bytes.len()).unwrap().to_be_bytes();
        let expected = [length.as_slice(), &bytes].concat();
        assert!(frame(event) == expected, "{event}\n{:02x?}\n{expected:02x?}", frame(event));
    }
}

#[test]
fn every_member_of_every_event_is_among_the_examples() {
    let schema: Value =
        serde_json::from_str(include_str!("../../../../tests/support/ag-ui-1.0.0.json")).unwrap();
    let mut seen = BTreeMap::<String, BTreeSet<String>>::new();
    for (_, event) in examples() {
        let event: Value = serde_json::from_str(event).unwrap();
        let members = event.as_object().unwrap().keys().cloned();
        seen.entry(event["type"].as_str().unwrap().to_owned()).or_default().extend(members);
    }
    let events = schema["Event"]["oneOf"].as_array().unwrap();
    assert_eq!(events.len(), seen.len());
    // One example is enough for these members, which all events have.
    let of_all = ["timestamp", "rawEvent", "metadata"];
    for event in events {
        let name = event["properties"]["type"]["const"].as_str().unwrap();
        for member in event["properties"].as_object().unwrap().keys() {
            // The gateway does not repeat a client's input.
            let is_left_out = (name, &**member) == ("RUN_STARTED", "input");
            let is_seen = seen[name].contains(member) || of_all.contains(&&**member);
            assert!(is_seen || is_left_out, "{name} has {member}");
        }
    }
}

#[test]
fn a_character_that_came_in_halves_is_sent_whole() {
    let delta = |kind: &str, id: &str, escaped: &str| {
        let of = if kind == "TOOL_CALL_ARGS" { "toolCallId" } else { "messageId" };
        format!(r#"{{"type":"{kind}","{of}":"{id}","delta":"{escaped}"}}"#)
    };
    for kind in ["TEXT_MESSAGE_CONTENT", "TOOL_CALL_ARGS", "REASONING_MESSAGE_CONTENT"] {
        for (halves, whole) in [
            (vec![("a", "x\\ud83d"), ("a", "\\ude00y")], vec![("a", "x"), ("a", "😀y")]),
            // Next to another text that is cut too, and one that is not.
            (
                vec![
                    ("a", "\\uD83D"),
                    ("b", "\\ud83c"),
                    ("c", "z"),
                    ("b", "\\udf0d"),
                    ("a", "\\uDE00"),
                ],
                vec![("a", ""), ("b", ""), ("c", "z"), ("b", "🌍"), ("a", "😀")],
            ),
            // Two cut characters in a row.
            (
                vec![("a", "\\ud83d"), ("a", "\\ude00\\ud83c"), ("a", "\\udf0d")],
                vec![("a", ""), ("a", "😀"), ("a", "🌍")],
            ),
            // These are no halves: a backslash, and text that looks like an escape.
            (vec![("a", "\\\\ud83d"), ("a", "x")], vec![("a", "\\\\ud83d"), ("a", "x")]),
            // Halves without the other half after them.
            (vec![("a", "\\ud83d"), ("a", "x")], vec![("a", ""), ("a", "\u{fffd}x")]),
        ] {
            let told = frames(halves.iter().map(|(id, text)| delta(kind, id, text)));
            let expected = frames(whole.iter().map(|(id, text)| delta(kind, id, text)));
            assert_eq!(told, expected, "{kind}: {halves:?}");
        }
    }
    // The half at the end of one text is not joined with the start of the next one.
    let end = r#"{"type":"TEXT_MESSAGE_END","messageId":"a"}"#;
    let content = |text: &str| delta("TEXT_MESSAGE_CONTENT", "a", text);
    let told = frames([content("\\ud83d"), end.to_owned(), content("x")]);
    assert_eq!(told, frames([content(""), end.to_owned(), content("x")]));
    // The number of halves that are held back has a limit, however many texts are cut.
    let cut = |at: usize| delta("TEXT_MESSAGE_CONTENT", &at.to_string(), "\\ud83d");
    let (all, some) = (frames((0..1000).map(cut)), frames((0..10).map(cut)));
    assert!(all.len() > 100 * some.len());
}

#[test]
fn a_value_of_any_depth_is_sent() {
    let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    let snapshot = |value: &str| format!(r#"{{"type":"STATE_SNAPSHOT","snapshot":{value}}}"#);
    let arrays = |value: &str, depth: usize| {
        snapshot(&format!("{}{value}{}", "[".repeat(depth), "]".repeat(depth)))
    };
    assert_ne!(frame(&snapshot(&nested(64))), frame(&arrays("\"1\"", 64)));
    // A deeper value is sent as its text.
    assert_eq!(frame(&snapshot(&nested(65))), frame(&arrays("\"[1]\"", 64)));
    let deep = frame(&snapshot(&nested(100_000)));
    assert_eq!(deep, frame(&arrays(&format!("\"{}\"", nested(100_000 - 64)), 64)));
}

#[test]
fn what_is_no_event_makes_no_frame() {
    for event in ["", "x", "null", "[]", "{}", r#"{"type":7}"#, r#"{"type":"UNKNOWN"}"#] {
        assert_eq!(frame(event), [] as [u8; 0], "{event}");
    }
    // A member of another type is omitted.
    let odd =
        json!({"type": "RUN_ERROR", "message": 7, "code": "E", "usage": {"a": 1}, "metadata": []});
    assert_eq!(frame(&odd.to_string()), frame(r#"{"type":"RUN_ERROR","code":"E"}"#));
}
