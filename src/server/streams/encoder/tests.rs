//! A shared part of an event, and the same part copied, give the same bytes.

use std::sync::Arc;

use super::super::outgoing::SHARED_FROM;
use super::*;
use threadway_translate::agui::{ClientMessages, RunId};
use threadway_translate::json::{self, TextBuf};
use threadway_translate::run::{Content, Message, Role, Snapshot};

fn client(version: Version) -> Client {
    let (thread_id, run_id) = ("t".to_owned(), RunId::Unnamed);
    Client { thread_id, run_id, parent_run_id: None, version }
}

fn item(event: &RunEvent) -> EventToWrite<'_> {
    EventToWrite { event, key: None, skip: 0, raw: None }
}

/// A state and a conversation, each of this many bytes.
fn snapshots(bytes: usize) -> [RunEvent; 2] {
    let text = "x".repeat(bytes);
    let mut message = Message::new("m".into(), Role::User);
    message.content = Content::Text(TextBuf::from(&json::Text::new(&text)));
    let state = json::ObjectWriter::new().string("note", &text).finish();
    let conversation = Snapshot::from([Arc::new(message)]);
    [RunEvent::StateSnapshot(state), RunEvent::Messages(conversation)]
}

#[test]
fn a_shared_part_is_written_like_any_other() {
    for (wire, version) in [
        (Wire::Sse, Version::V1),
        (Wire::Sse, Version::Legacy),
        (Wire::Ndjson, Version::V1),
        (Wire::Events, Version::V1),
        (Wire::Chunks, Version::Legacy),
        (Wire::ChunkLines, Version::Legacy),
    ] {
        for (bytes, is_shared) in [(10, false), (SHARED_FROM, true)] {
            let events = snapshots(bytes);
            let mut expected = Vec::new();
            let mut projector = Projector::new(client(version), ClientMessages::Unknown);
            for event in &events {
                projector.project(event, &mut |event| {
                    let mut json = Vec::new();
                    event.write(&mut json);
                    match wire {
                        Wire::Sse => sse::encode(&mut expected, None, &json),
                        Wire::Ndjson => expected.extend([json, vec![b'\n']].concat()),
                        Wire::Events => expected.extend([json, vec![SEPARATOR]].concat()),
                        Wire::Chunks => expected
                            .extend([&br#"{"id":"","chunk":"#[..], &json, b"}\x1e"].concat()),
                        Wire::ChunkLines => {
                            expected.extend([&br#"{"id":"","chunk":"#[..], &json, b"}\n"].concat());
                        }
                        Wire::Proto => unreachable!("protobuf shares nothing"),
                    }
                });
            }
            let mut encoder =
                Encoder::new(wire, Projector::new(client(version), ClientMessages::Unknown));
            encoder.ids = Ids::None;
            let mut out = Outgoing::default();
            for event in &events {
                encoder.event(&item(event), &mut out);
            }
            assert_eq!(out.ready.len() > 1, is_shared, "{bytes} bytes");
            let written: Vec<_> = out.flatten().collect();
            assert!(written == expected, "{wire:?}, {version:?}, {bytes} bytes");
        }
    }
}

#[test]
fn two_streams_send_the_same_bytes_of_a_large_snapshot() {
    let [_, messages] = snapshots(SHARED_FROM);
    let parts = |encoder: &mut Encoder| {
        let mut out = Outgoing::default();
        encoder.event(&item(&messages), &mut out);
        out.map(|bytes| (bytes.as_ptr(), bytes)).max_by_key(|(_, bytes)| bytes.len()).unwrap()
    };
    let new = || Encoder::new(Wire::Sse, Projector::new(client(Version::V1), Vec::new()));
    let (one, _kept) = parts(&mut new());
    let (other, _) = parts(&mut new());
    assert_eq!(one, other);
}
