//! The decoder against an independent parser: `eventsource-client` must read the same from a
//! stream.
//!
//! Its parser is private, so the test drives it through its public client, over a transport that
//! returns scripted bytes. Intended differences are in a table below, and both sides of each are
//! asserted.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::generate;
use bytes::Bytes;
use eventsource_client::{Client, ClientBuilder, Event, ReconnectOptions, SSE};
use futures_util::{StreamExt, stream};
use launchdarkly_sdk_transport::{ByteStream, HttpTransport, ResponseFuture};
use proptest::collection::vec;
use proptest::prelude::*;
use threadway_translate::sse::{Decoder, Ending, Frame};

/// A parser's result for a stream, in the terms of `eventsource-client`.
#[derive(Debug, PartialEq)]
struct Reading {
    events: Vec<Event>,
    comments: u64,
    /// Whether bytes of an unfinished line or block were left, or the parser's error.
    end: Result<Ending, String>,
}

/// A transport that answers every request with the same body.
#[derive(Clone)]
struct Script(Vec<Bytes>);

// === impl Script ===

impl HttpTransport for Script {
    fn request(&self, _: http::Request<Option<Bytes>>) -> ResponseFuture {
        let chunks = self.0.clone().into_iter().map(Ok);
        let body: ByteStream = Box::pin(stream::iter(chunks));
        Box::pin(std::future::ready(Ok(http::Response::new(body))))
    }
}

/// Reads a stream with `eventsource-client`.
fn read_theirs(chunks: &[&[u8]]) -> Reading {
    let client = ClientBuilder::for_url("http://localhost/")
        .unwrap()
        .reconnect(ReconnectOptions::reconnect(false).build())
        .build_with_transport(Script(
            chunks.iter().map(|chunk| Bytes::copy_from_slice(chunk)).collect(),
        ));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let items: Vec<_> = runtime.block_on(client.stream().collect());

    let mut reading = Reading { events: Vec::new(), comments: 0, end: Ok(Ending::Clean) };
    for item in items {
        match item {
            Ok(SSE::Connected(_)) => {}
            Ok(SSE::Comment(_)) => reading.comments += 1,
            Ok(SSE::Event(event)) => reading.events.push(event),
            Err(eventsource_client::Error::Eof) => reading.end = Ok(Ending::Clean),
            Err(eventsource_client::Error::UnexpectedEof) => reading.end = Ok(CUT),
            Err(error) => reading.end = Err(error.to_string()),
        }
    }
    reading
}

/// Reads a stream with the gateway's decoder, in the form of `eventsource-client`: the first rows
/// of [`DIFFERENCES`] are applied.
fn read_ours(chunks: &[&[u8]]) -> Reading {
    let mut last_id = None;
    let (events, comments, end) = decode(chunks, |frame| {
        last_id = frame.id.as_deref().map(str::to_owned).or_else(|| last_id.take());
        let name = frame.event.as_deref().filter(|name| !name.is_empty());
        Some(Event {
            event_type: name.unwrap_or("message").to_owned(),
            data: frame.data?.into_owned(),
            id: last_id.clone(),
            retry: frame.retry,
        })
    });
    Reading { events: events.into_iter().flatten().collect(), comments, end: Ok(end) }
}

/// The frames of a stream from the gateway's decoder.
fn frames(chunks: &[&[u8]]) -> Vec<String> {
    let (frames, ..) = decode(chunks, |Frame { event, data, id, retry }| {
        let text =
            |field: Option<_>| field.map_or_else(|| "-".to_owned(), |text| format!("{text:?}"));
        let retry = retry.map_or_else(|| "-".to_owned(), |retry| retry.to_string());
        format!("{} {} {} {retry}", text(event), text(data), text(id))
    });
    frames
}

fn decode<T>(chunks: &[&[u8]], mut take: impl FnMut(Frame<'_>) -> T) -> (Vec<T>, u64, Ending) {
    let mut decoder = Decoder::new();
    let mut taken = Vec::new();
    for chunk in chunks {
        decoder.push(chunk);
        while let Some(frame) = decoder.next_frame().unwrap() {
            taken.push(take(frame));
        }
    }
    let comments = decoder.comments();
    let ending = match decoder.finish() {
        Ending::Partial { .. } => CUT,
        Ending::Clean => Ending::Clean,
    };
    (taken, comments, ending)
}

/// `eventsource-client` does not say how many bytes were left.
const CUT: Ending = Ending::Partial { bytes: 0 };

/// A known difference: the result of each side for a stream.
///
/// A frame of the gateway is written as event, data, id and retry, `-` where absent. Frames of
/// `eventsource-client` are written the same way, followed by how the stream ended.
struct Difference {
    what: &'static str,
    stream: &'static [u8],
    ours: &'static [&'static str],
    theirs: &'static [&'static str],
}

const DIFFERENCES: &[Difference] = &[
    Difference {
        what: "theirs names an event without a name, ours leaves it absent",
        stream: b"data: a\n\nevent:\ndata: b\n\n",
        ours: &[r#"- "a" - -"#, r#""" "b" - -"#],
        theirs: &[r#""message" "a" - -"#, r#""message" "b" - -"#, "clean"],
    },
    Difference {
        what: "theirs gives each event the last id seen, ours only its own",
        stream: b"id: 1\ndata: a\n\ndata: b\n\n",
        ours: &[r#"- "a" "1" -"#, r#"- "b" - -"#],
        theirs: &[r#""message" "a" "1" -"#, r#""message" "b" "1" -"#, "clean"],
    },
    Difference {
        what: "theirs hides blocks without data, as the standard does; LangGraph's client does not",
        stream: b"event: end\n\nid: 1\n\nretry: 5\n\ndata:\n\n",
        ours: &[r#""end" - - -"#, r#"- - "1" -"#, "- - - 5", r#"- "" - -"#],
        theirs: &[r#""message" "" "1" -"#, "clean"],
    },
    Difference {
        what: "theirs ends the stream at a block of unknown fields, ours ignores them",
        stream: b"foo: 1\n\ndata: a\n\n",
        ours: &[r#"- "a" - -"#],
        theirs: &["invalid event"],
    },
    Difference {
        what: "so it does at a block whose only field is not valid",
        stream: b"id: \0\n\ndata: a\n\n",
        ours: &[r#"- "a" - -"#],
        theirs: &["invalid event"],
    },
    Difference {
        what: "and at a block whose only field is an empty event name",
        stream: b"event:\n\ndata: a\n\n",
        ours: &[r#""" - - -"#, r#"- "a" - -"#],
        theirs: &["invalid event"],
    },
    Difference {
        what: "but not once an id was seen",
        stream: b"id: 1\ndata: a\n\nfoo: 1\n\ndata: b\n\n",
        ours: &[r#"- "a" "1" -"#, r#"- "b" - -"#],
        theirs: &[r#""message" "a" "1" -"#, r#""message" "b" "1" -"#, "clean"],
    },
    Difference {
        what: "theirs ends the stream at invalid UTF-8, ours replaces it as the standard does",
        stream: b"data: a\xFF\n\ndata: b\n\n",
        ours: &["- \"a\u{FFFD}\" - -", r#"- "b" - -"#],
        theirs: &[
            "invalid line: malformed value: Utf8Error { valid_up_to: 1, error_len: Some(1) }",
        ],
    },
    Difference {
        what: "theirs takes a plus sign for a digit of retry",
        stream: b"retry: +5\ndata: a\n\n",
        ours: &[r#"- "a" - -"#],
        theirs: &[r#""message" "a" - 5"#, "clean"],
    },
    Difference {
        what: "theirs sees a cut only inside a line, ours inside a block",
        stream: b"data: a\n\ndata: b\n",
        ours: &[r#"- "a" - -"#, "cut"],
        theirs: &[r#""message" "a" - -"#, "clean"],
    },
];

#[test]
fn the_known_differences_are_as_listed() {
    for Difference { what, stream, ours, theirs } in DIFFERENCES {
        let mut written = frames(&[stream]);
        let (.., end) = decode(&[stream], |_| ());
        written.extend((end == CUT).then(|| "cut".to_owned()));
        assert_eq!(written, *ours, "ours: {what}");

        let reading = read_theirs(&[stream]);
        let mut written: Vec<_> = reading
            .events
            .iter()
            .map(|Event { event_type, data, id, retry }| {
                let id = id.as_ref().map_or_else(|| "-".to_owned(), |id| format!("{id:?}"));
                let retry = retry.map_or_else(|| "-".to_owned(), |retry| retry.to_string());
                format!("{event_type:?} {data:?} {id} {retry}")
            })
            .collect();
        written.push(match reading.end {
            Ok(Ending::Clean) => "clean".to_owned(),
            Ok(Ending::Partial { .. }) => "cut".to_owned(),
            Err(error) => error,
        });
        assert_eq!(written, *theirs, "theirs: {what}");
    }
}

#[test]
fn every_capture_is_read_alike() {
    let captures = captures(&crate::support::capture::root().join("captures"));
    assert!(!captures.is_empty(), "no captures found");
    for path in captures {
        let stream = fs::read(&path).unwrap();
        let ours = read_ours(&[&stream]);
        // Some captures are a refusal: a JSON body, which is no event stream to either parser.
        assert_eq!(ours.events.is_empty(), stream.starts_with(b"{"), "{}", path.display());
        assert_eq!(ours, read_theirs(&[&stream]), "{}", path.display());
        for size in [7, 1_400] {
            let chunks: Vec<_> = stream.chunks(size).collect();
            assert_eq!(read_ours(&chunks), ours, "{} in chunks of {size}", path.display());
        }
    }
}

/// Every `.sse` file under `directory`.
fn captures(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(captures(&path));
        } else if path.extension().is_some_and(|extension| extension == "sse") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// A line of a well-formed block. The first line of a block is a known, valid field.
fn known_line() -> impl Strategy<Value = String> {
    prop_oneof![
        1 => Just("data".to_owned()),
        3 => "data:[^\r\n]{0,20}",
        3 => "data: [^\r\n]{0,20}",
        1 => "event: ?[a-z|é]{1,8}",
        1 => "id: ?[^\r\n\0]{0,8}",
        1 => "retry: ?[0-9]{1,9}",
    ]
}

fn any_line() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => known_line(),
        1 => ":[^\r\n]{0,12}",
        1 => "(foo|Data|eventx| id)(:[^\r\n]{0,6})?",
        1 => "id: 1\0",
        1 => "retry: [a-z]{0,3}",
    ]
}

/// Well-formed streams with every kind of line end.
fn stream_text() -> impl Strategy<Value = String> {
    let block = (known_line(), vec(any_line(), 0..6), vec(":[^\r\n]{0,6}", 0..2));
    let end = prop::sample::select(vec!["\n", "\r\n", "\r"]);
    (any::<bool>(), vec((block, end), 0..8), "(: ?x?)?").prop_map(|(bom, blocks, rest)| {
        let mut text = String::from(if bom { "\u{FEFF}" } else { "" });
        for ((first, lines, comments), end) in blocks {
            for line in comments.iter().chain([&first]).chain(&lines) {
                text.extend([line, end]);
            }
            text.push_str(end);
        }
        text + &rest
    })
}

proptest! {
    #![proptest_config(generate::config(2_000))]

    #[test]
    fn well_formed_streams_are_read_alike(text in stream_text(), sizes in vec(1..40_usize, 1..6)) {
        let mut chunks = Vec::new();
        let mut rest = text.as_bytes();
        for size in sizes.into_iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (chunk, later) = rest.split_at(size.min(rest.len()));
            chunks.push(chunk);
            rest = later;
        }
        prop_assert_eq!(read_ours(&chunks), read_theirs(&chunks));
    }
}
