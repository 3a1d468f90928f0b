//! The same message in each dialect yields the same events.

use super::dialect_event::{Cost, DialectEvent, MessageId, Piece};
use super::{DialectName, Dialects};
use crate::json::Text;
use crate::langgraph::{MessagesKey, Part, PartPayload};
use crate::sse::Decoder;

/// What a stream yields: the dialect, the namespace, and what is said.
fn events_of(parts: &[(&str, &str)]) -> Vec<(DialectName, String, String)> {
    let (mut decoder, mut scratch) = (Decoder::new(), String::new());
    for (mode, data) in parts {
        decoder.push(format!("event: {mode}\ndata: {data}\n\n").as_bytes());
    }
    let (mut dialects, mut events) = (Dialects::default(), Vec::new());
    while let Some(frame) = decoder.next_frame().unwrap() {
        let part = Part::parse(&frame, &mut scratch);
        let PartPayload::Said(said) = &part.body else { panic!("no dialect has {part:?}") };
        let key = MessagesKey::default();
        dialects.translate(said, &part.namespace, &key, |dialect, event| {
            let (namespace, said) = described(event);
            events.push((dialect, namespace, said));
        });
    }
    events
}

fn described(event: DialectEvent<'_, '_>) -> (String, String) {
    match event {
        DialectEvent::Pieces { producer, message, pieces } => {
            let (MessageId::Own(id) | MessageId::OfChunk { id, .. }) = message;
            let pieces: Vec<_> = pieces.filter_map(described_piece).collect();
            let suppressed = if producer.origin.suppressed.text { " (suppressed)" } else { "" };
            (producer.namespace.to_owned(), format!("{id}: {}{suppressed}", pieces.join(", ")))
        }
        DialectEvent::Whole { producer, message } => {
            let id = message.id().unwrap_or_default();
            (producer.namespace.to_owned(), format!("{id} whole"))
        }
        DialectEvent::Emitted { producer, .. } => {
            (producer.namespace.to_owned(), "emitted".to_owned())
        }
        DialectEvent::Node { namespace, node, edge, .. } => {
            (namespace.to_owned(), format!("{node} {edge:?}"))
        }
        DialectEvent::Subgraph { namespace, edge, .. } => {
            (namespace.to_owned(), format!("{edge:?}"))
        }
    }
}

fn described_piece(piece: Piece<'_>) -> Option<String> {
    let plain = |text: Option<&Text>| text.map(|text| text.decode().into_owned());
    match piece {
        Piece::Text(text) => plain(Some(&text)),
        Piece::Reasoning(piece) => Some(format!("thought {:?}", plain(piece.text.as_ref()))),
        Piece::Call(chunk) => Some(format!("call {:?}", chunk.name)),
        Piece::Prefix(_) => Some("prefix".to_owned()),
        Piece::Whole(_) => Some("whole".to_owned()),
        Piece::Cost(Cost::Chunk(chunk)) => chunk.usage().map(|_| "cost".to_owned()),
        Piece::Cost(Cost::Total { .. }) => Some("cost".to_owned()),
        Piece::Finish(finish) => Some(format!("{finish:?}")),
        Piece::End => Some("end".to_owned()),
    }
}

const CHUNK: &str = r#"{"id":"m1","type":"AIMessageChunk","content":"Hi"}"#;
const LAST: &str = r#"{"id":"m1","type":"AIMessageChunk","content":"","usage_metadata":{"input_tokens":1},"response_metadata":{"finish_reason":"length"},"chunk_position":"last"}"#;
const TEXT_DELTA: &str =
    r#"{"event":"content-block-delta","index":0,"delta":{"type":"text-delta","text":"Hi"}}"#;
const FINISH: &str = r#"{"event":"message-finish","usage":{"input_tokens":1},"metadata":{"finish_reason":"length"}}"#;
const NODE: &str = r#"{"langgraph_node":"agent"}"#;

fn envelope(namespace: &str, data: &str) -> String {
    format!(
        r#"{{"type":"event","method":"messages","params":{{"namespace":[{namespace}],"timestamp":1,"data":{data}}}}}"#
    )
}

#[test]
fn a_message_is_the_same_pieces_in_every_dialect() {
    let tuple = |chunk: &str| format!("[{chunk},{NODE}]");
    let event = |chunk: &str| {
        format!(
            r#"{{"event":"on_chat_model_stream","data":{{"chunk":{chunk}}},"tags":[],"metadata":{NODE}}}"#
        )
    };
    let start = envelope("", r#"{"event":"message-start","role":"ai","id":"m1"}"#);
    let (text, finish) = (envelope("", TEXT_DELTA), envelope("", FINISH));
    let streams = [
        (DialectName::Tuples, vec![("messages", tuple(CHUNK)), ("messages", tuple(LAST))]),
        (DialectName::Events, vec![("events", event(CHUNK)), ("events", event(LAST))]),
        (
            DialectName::Protocol,
            vec![("messages", start), ("messages", text), ("messages", finish)],
        ),
        (
            DialectName::Bare,
            vec![
                ("messages|agent:t1", r#"{"event":"message-start","id":"m1"}"#.to_owned()),
                ("messages|agent:t1", TEXT_DELTA.to_owned()),
                ("messages|agent:t1", r#"{"event":"usage","usage":{"input_tokens":1}}"#.to_owned()),
                ("messages|agent:t1", FINISH.to_owned()),
            ],
        ),
    ];
    for (dialect, parts) in streams {
        let parts: Vec<_> = parts.iter().map(|(mode, data)| (*mode, data.as_str())).collect();
        let said = |text: &str| (dialect, String::new(), text.to_owned());
        assert_eq!(events_of(&parts), [said("m1: Hi"), said("m1: cost, Length, end")]);
    }
}

/// LangChain's own word for why a model stopped, beside the provider's or instead of it.
#[test]
fn a_normalized_reason_to_stop_counts_in_every_dialect() {
    for (reasons, expected) in [
        (r#""finish_reason":"END","normalized_finish_reason":"length""#, "Length"),
        (r#""normalized_finish_reason":"refusal""#, "Refused"),
        (r#""normalized_finish_reason":"content_filter""#, "Refused"),
        (r#""finish_reason":"max_tokens","normalized_finish_reason":"other""#, "Length"),
        (r#""finish_reason":"END","normalized_finish_reason":"tool_call""#, "Done"),
        (r#""normalized_finish_reason":null,"stop_reason":"end_turn""#, "Done"),
    ] {
        let start = envelope("", r#"{"event":"message-start","role":"ai","id":"m1"}"#);
        let beside = envelope("", &format!(r#"{{"event":"message-finish",{reasons}}}"#));
        let inside = format!(r#"{{"event":"message-finish","metadata":{{{reasons}}}}}"#);
        let inside = envelope("", &inside);
        let chunk = format!(
            r#"[{{"id":"m1","type":"AIMessageChunk","content":"","response_metadata":{{{reasons}}},"chunk_position":"last"}},{NODE}]"#
        );
        for parts in [
            vec![("messages", &*start), ("messages", &*beside)],
            vec![("messages", &*start), ("messages", &*inside)],
            vec![("messages", &*chunk)],
        ] {
            let events = events_of(&parts);
            let (_, _, said) = events.last().unwrap();
            assert!(said.contains(expected), "{reasons}: {said}");
        }
    }
}

#[test]
fn a_prefix_is_a_piece_until_it_is_whole() {
    let (prefix, last) = (format!("[{CHUNK}]"), format!("[{LAST}]"));
    let parts = [
        ("messages/partial|a:t1", &*prefix),
        ("messages/partial|a:t1", &*last),
        ("messages/complete", r#"[{"id":"t1","type":"tool","content":"22"}]"#),
    ];
    let said =
        |namespace: &str, text: &str| (DialectName::Partial, namespace.to_owned(), text.to_owned());
    assert_eq!(
        events_of(&parts),
        [said("a:t1", "m1: prefix"), said("a:t1", "m1: whole"), said("", "t1 whole")],
    );
}

#[test]
fn blocks_belong_to_the_message_that_their_namespace_has_begun() {
    let start =
        |namespace, id| envelope(namespace, &format!(r#"{{"event":"message-start","id":"{id}"}}"#));
    let block = |namespace| {
        envelope(
            namespace,
            r#"{"event":"content-block-start","content":{"type":"text","text":"Hi"}}"#,
        )
    };
    let parts = [start("", "m1"), start(r#""a:t1""#, "m2"), block(""), block(r#""a:t1""#)];
    let parts = parts.each_ref().map(|data| ("messages", data.as_str()));
    let said = |namespace: &str, text: &str| {
        (DialectName::Protocol, namespace.to_owned(), text.to_owned())
    };
    assert_eq!(events_of(&parts), [said("", "m1: Hi"), said("a:t1", "m2: Hi")]);
}

#[test]
fn tags_are_read_where_each_dialect_has_them() {
    let metadata = r#"{"langgraph_node":"agent","tags":["nostream"]}"#;
    let event = format!(
        r#"{{"event":"on_chat_model_stream","data":{{"chunk":{CHUNK}}},"metadata":{metadata}}}"#
    );
    let tuple = format!("[{CHUNK},{metadata}]");
    let said = events_of(&[("events", &*event), ("messages", &*tuple)]);
    let texts: Vec<_> = said.iter().map(|(.., text)| text.as_str()).collect();
    assert_eq!(texts, ["m1: Hi", "m1: Hi (suppressed)"]);
}

#[test]
fn without_envelopes_messages_of_nodes_at_once_are_told_apart_and_a_persons_is_not_said() {
    let start = |id: &str, role: &str| {
        format!(r#"{{"event":"message-start","role":"{role}","id":"{id}"}}"#)
    };
    let [left, right, human] = [start("l", "ai"), start("r", "ai"), start("h", "human")];
    let parts = [
        ("messages|child:1|left:2", &*left),
        ("messages|child:1|right:3", &*right),
        ("messages|child:1|left:2", TEXT_DELTA),
        ("messages|child:1|right:3", TEXT_DELTA),
        ("messages|said:4", &*human),
        ("messages|said:4", TEXT_DELTA),
    ];
    let said = |text: &str| (DialectName::Bare, "child:1".to_owned(), text.to_owned());
    assert_eq!(events_of(&parts), [said("l: Hi"), said("r: Hi")]);
}
