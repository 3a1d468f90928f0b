//! Events as one JSON array, for clients that cannot read a stream.
//!
//! The array is sent when the run has ended, when the client's wait is over, or when the array is
//! full. It has the id that the client sends to get the next array.
//!
//! While the run goes on, an array ends with an event that can be resumed, if it has one. The
//! events after it are sent with the next array. So no event is lost, and none is sent twice.

use std::collections::VecDeque;

use bytes::Bytes;
use tokio::time::Instant;

use super::frames::{EncodedEvent, EventFrames};
use super::outgoing::{Mark, Outgoing, SHARED_FROM};
use super::unread::UnreadAnswers;
use crate::metrics::Full;
use crate::offload::offload;
use crate::runs::EventId;

/// An array of this size in bytes is sent although the run goes on. The snapshots that it begins
/// with do not count: nothing can be left out of them, and they are as large as the thread.
const MAX_ARRAY_BYTES: usize = 4 * 1024 * 1024;

/// The first events of an array with these types do not count towards [`MAX_ARRAY_BYTES`].
const UNCOUNTED: [&str; 3] = ["RUN_STARTED", "STATE_SNAPSHOT", "MESSAGES_SNAPSHOT"];

/// The JSON before the id of an event, as [`Wire::Chunks`](super::wire::Wire::Chunks) frames it.
const BEFORE_ID: &[u8] = br#"{"id":"#;

/// The JSON between the id and the event.
const BEFORE_EVENT: &[u8] = br#","chunk":"#;

/// The JSON before the type of an event.
const BEFORE_TYPE: &[u8] = br#"{"type":""#;

/// An array that is being filled. Large parts of events are not copied: other readers have them too.
#[derive(Default)]
struct Array {
    /// The array so far, without its closing bracket.
    json: Outgoing,
    last_id: Option<String>,
    /// The end of the array's last event that can be resumed, and that event's id.
    resumable: Option<(Mark, String)>,
    /// How many bytes count towards [`MAX_ARRAY_BYTES`].
    counted: usize,
}

/// The head of a frame.
struct Head {
    id: String,
    /// Where the event begins.
    event: usize,
    is_snapshot: bool,
}

/// An array that was collected.
pub(in crate::server) struct Collected {
    /// The JSON, in parts that other readers share.
    pub(in crate::server) parts: VecDeque<Bytes>,
    /// The id of the array's last event. `None` for an empty array.
    pub(in crate::server) last_id: Option<String>,
}

/// Collects a stream until its end, or until `until`.
pub(in crate::server) async fn collect(
    mut events: EventFrames,
    until: Option<Instant>,
    answers: &UnreadAnswers,
) -> Result<Collected, Full> {
    let mut array = Array::default();
    let mut charge = answers.charge();
    let mut is_whole = false;
    while !array.is_full() {
        let next = match until {
            // Events that are ready are taken even if the time is over.
            Some(until) => tokio::time::timeout_at(until, events.next()).await,
            None => Ok(events.next().await),
        };
        match next {
            Ok(Some(Ok(events))) => {
                let length = events.iter().map(EncodedEvent::len).sum();
                offload(length, || events.into_iter().for_each(|event| array.push(event)));
                charge.set(array.json.own_bytes())?;
            }
            Ok(Some(Err(full))) => return Err(full),
            Ok(None) => {
                is_whole = true;
                break;
            }
            Err(_) => break,
        }
    }
    let (mut json, last_id) = array.finish(is_whole);
    drop((charge, events));
    offload(json.len(), || json.hold(answers))?;
    Ok(Collected { parts: json.into_parts(), last_id })
}

// === impl Head ===

impl Head {
    /// Reads the first part of a frame, and `next`, in which the event may begin.
    fn of(first: &[u8], next: &[u8]) -> Option<Self> {
        let rest = first.strip_prefix(BEFORE_ID)?;
        let mut ids = serde_json::Deserializer::from_slice(rest).into_iter::<String>();
        let id = ids.next()?.ok()?;
        let rest = rest.get(ids.byte_offset()..)?.strip_prefix(BEFORE_EVENT)?;
        let event = first.len() - rest.len();
        let begin = if rest.is_empty() { next } else { rest };
        let kind = begin.strip_prefix(BEFORE_TYPE).unwrap_or_default();
        let is_snapshot = UNCOUNTED.iter().any(|known| {
            kind.strip_prefix(known.as_bytes()).is_some_and(|rest| rest.starts_with(b"\""))
        });
        Some(Self { id, event, is_snapshot })
    }
}

// === impl Array ===

impl Array {
    fn is_full(&self) -> bool {
        self.counted >= MAX_ARRAY_BYTES
    }

    /// Appends an event.
    fn push(&mut self, event: EncodedEvent) {
        let length = event.len();
        let mut frame = event.into_parts();
        let head = |frame: &[Bytes]| match frame {
            [] => None,
            [only] => Head::of(only, &[]),
            [first, second, ..] => Head::of(first, second),
        };
        let mut found = head(&frame);
        if found.is_none() {
            // The head may be cut.
            frame = vec![frame.concat().into()];
            found = head(&frame);
        }
        let (Some(Head { id, event, is_snapshot }), Some(last)) = (found, frame.last_mut()) else {
            debug_assert!(false, "a frame is not a chunk");
            return;
        };
        last.truncate(last.len().saturating_sub(1));
        if let Some(first) = frame.first_mut() {
            let _ = first.split_to(event);
        }
        self.json.own().push(if self.last_id.is_none() { b'[' } else { b',' });
        for part in frame {
            if part.len() < SHARED_FROM {
                self.json.own().extend_from_slice(&part);
            } else {
                self.json.share(part);
            }
        }
        if self.counted > 0 || !is_snapshot {
            self.counted += length;
        }
        if id.parse::<EventId>().is_ok() {
            self.resumable = Some((self.json.mark(), id.clone()));
        }
        self.last_id = Some(id);
    }

    /// The array, and the id of its last event. Unless the stream `is_whole`, the array ends after
    /// the last event that can be resumed.
    fn finish(mut self, is_whole: bool) -> (Outgoing, Option<String>) {
        let mut id = self.last_id;
        if id.is_none() {
            self.json.own().push(b'[');
        }
        if !is_whole && let Some((end, resumable)) = self.resumable {
            self.json.truncate(end);
            id = Some(resumable);
        }
        self.json.own().extend_from_slice(b"]\n");
        (self.json, id)
    }
}

#[cfg(test)]
mod tests {
    use super::super::frames::Frames;
    use super::*;

    const RESUMABLE: &str = "2.R.AAAKAQAA";

    fn frame(id: &str, kind: &str, bytes: usize) -> Vec<u8> {
        let text = "x".repeat(bytes);
        format!("{{\"id\":\"{id}\",\"chunk\":{{\"type\":\"{kind}\",\"x\":\n\"{text}\"}}}}\u{1e}")
            .into_bytes()
    }

    fn json(json: Outgoing) -> Vec<u8> {
        json.into_parts().iter().flatten().copied().collect()
    }

    impl Array {
        /// Appends the events of a stream, whose bytes may be cut anywhere.
        fn extend(&mut self, parts: impl IntoIterator<Item = Bytes>) {
            let mut frames = Frames::default();
            for mut part in parts {
                while let Some(event) = frames.next(&mut part) {
                    self.push(event);
                }
            }
        }
    }

    /// The whole array and its id.
    fn finished(array: Array, is_whole: bool) -> (Vec<u8>, Option<String>) {
        let (parts, id) = array.finish(is_whole);
        (json(parts), id)
    }

    fn array(frames: &[Vec<u8>]) -> Array {
        let mut array = Array::default();
        array.extend(frames.iter().cloned().map(Bytes::from));
        array
    }

    fn kinds(json: &[u8]) -> Vec<String> {
        let events: Vec<serde_json::Value> = serde_json::from_slice(json).unwrap();
        events.iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn an_array_of_a_run_that_goes_on_ends_with_an_event_that_can_be_resumed() {
        let frames = [frame("0.1.1", "A", 1), frame(RESUMABLE, "B", 1), frame("0.1.2", "C", 1)];
        let (json, id) = finished(array(&frames), false);
        assert_eq!((kinds(&json), id.as_deref()), (vec!["A".into(), "B".into()], Some(RESUMABLE)));
        let (json, id) = finished(array(&frames), true);
        assert_eq!((kinds(&json).len(), id.as_deref()), (3, Some("0.1.2")));
        let (json, id) = finished(array(&frames[..1]), false);
        assert_eq!((kinds(&json).len(), id.as_deref()), (1, Some("0.1.1")));
        assert_eq!(finished(array(&[]), false), (b"[]\n".to_vec(), None));
    }

    #[test]
    fn frames_may_be_cut_anywhere() {
        let frames = [frame(RESUMABLE, "A", 1), frame("0.1.2", "B", 1)].concat();
        let expected = finished(array(std::slice::from_ref(&frames)), true);
        assert_eq!(kinds(&expected.0), ["A", "B"]);
        for at in 0..frames.len() {
            let (one, two) = frames.split_at(at);
            assert_eq!(finished(array(&[one.to_vec(), two.to_vec()]), true), expected, "{at}");
        }
    }

    #[test]
    fn a_large_part_of_an_event_is_not_copied() {
        let large = Bytes::from(vec![b'x'; SHARED_FROM]);
        let mut array = Array::default();
        array.extend([
            Bytes::from_static(b"{\"id\":\"2.R.AAAKAQAA\",\"chunk\":{\"type\":\"A\",\"x\":\""),
            large.clone(),
            Bytes::from_static(b"\"}}\x1e{\"id\":\"0.1.1\",\"chunk\":{\"type\":\"B\"}}\x1e"),
        ]);
        let (parts, id) = array.finish(false);
        assert_eq!(id.as_deref(), Some(RESUMABLE));
        let parts = parts.into_parts();
        assert_eq!(parts[1].as_ptr(), large.as_ptr());
        assert_eq!((&parts[0][..], &parts[2][..]), (&br#"[{"type":"A","x":""#[..], &b"\"}]\n"[..]));
    }

    #[test]
    fn an_array_is_full_by_the_events_after_the_first_snapshots() {
        let large = MAX_ARRAY_BYTES;
        let snapshots = [frame("0.1.1", "RUN_STARTED", 1), frame("0.1.2", "STATE_SNAPSHOT", large)];
        let mut array = array(&snapshots);
        assert!(!array.is_full());
        array.extend([frame("0.1.3", "CUSTOM", 1).into()]);
        assert!(!array.is_full());
        array.extend([frame("0.1.4", "STATE_SNAPSHOT", large).into()]);
        assert!(array.is_full());
    }
}
