//! Events as one JSON array, for clients that cannot read a stream.
//!
//! The array is sent when the run has ended, when the client's wait is over, or when the array is
//! full. The response's `last-event-id` is the id that the client sends to get the next array.
//!
//! While the run goes on, an array ends with an event that can be resumed, if it has one. The
//! events after it are sent with the next array. So no event is lost, and none is sent twice.

use std::borrow::Cow;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderName, HeaderValue};
use http_body_util::BodyExt;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::body::RunBody;
use super::encoder::one_time_id;
use super::frames::Frames;
use crate::offload::offload;
use crate::runs::EventId;

/// An array of this size in bytes is sent although the run goes on. The snapshots that it begins
/// with do not count: nothing can be left out of them, and they are as large as the thread.
const MAX_ARRAY_BYTES: usize = 4 * 1024 * 1024;

/// The response header with the id of the array's last event.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The first events of an array with these types do not count towards [`MAX_ARRAY_BYTES`].
const UNCOUNTED: [&str; 3] = ["RUN_STARTED", "STATE_SNAPSHOT", "MESSAGES_SNAPSHOT"];

/// An event, as [`Wire::Chunks`](super::wire::Wire::Chunks) frames it.
#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(borrow)]
    chunk: &'a RawValue,
}

#[derive(Deserialize)]
struct EventType<'a> {
    #[serde(borrow, rename = "type")]
    name: Cow<'a, str>,
}

/// An array that is being filled.
#[derive(Default)]
struct Array {
    /// The array so far, without its closing bracket.
    json: Vec<u8>,
    frames: Frames,
    last_id: Option<String>,
    /// The length of the array up to its last event that can be resumed, and that event's id.
    resumable: Option<(usize, String)>,
    /// How many bytes count towards [`MAX_ARRAY_BYTES`].
    counted: usize,
}

/// Collects a stream until its end, or until `until`. `sent` is the `last-event-id` of the request.
pub(in crate::server) async fn collect(
    mut body: RunBody,
    until: Option<Instant>,
    sent: Option<HeaderValue>,
) -> Response {
    let mut array = Array::default();
    let mut is_whole = false;
    while !array.is_full() {
        let next = match until {
            // Events that are ready are taken even if the time is over.
            Some(until) => tokio::time::timeout_at(until, body.frame()).await,
            None => Ok(body.frame().await),
        };
        match next {
            Ok(Some(Ok(frame))) => {
                let bytes = frame.into_data().unwrap_or_default();
                offload(bytes.len(), || array.extend(bytes));
            }
            Ok(None | Some(Err(_))) => {
                is_whole = true;
                break;
            }
            Err(_) => break,
        }
    }
    let (json, id) = array.finish(is_whole);
    let sent = sent.filter(|sent| !sent.is_empty());
    let id = match id {
        Some(id) => HeaderValue::try_from(id).ok(),
        // No new event: the client keeps its id. Without an id its next POST would start a run.
        None => sent.or_else(|| HeaderValue::try_from(one_time_id()).ok()),
    };
    let mut response = Response::new(Body::from(json));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(id) = id {
        headers.insert(LAST_EVENT_ID, id);
    }
    response
}

// === impl Array ===

impl Array {
    fn is_full(&self) -> bool {
        self.counted >= MAX_ARRAY_BYTES
    }

    /// Appends bytes of frames, which may be cut anywhere.
    fn extend(&mut self, mut bytes: Bytes) {
        while let Some(frame) = self.frames.next(&mut bytes) {
            self.push(&frame);
        }
    }

    fn push(&mut self, frame: &[u8]) {
        let Ok(Chunk { id, chunk }) = serde_json::from_slice(frame) else {
            debug_assert!(false, "a frame is not a chunk");
            return;
        };
        self.json.push(if self.json.is_empty() { b'[' } else { b',' });
        self.json.extend_from_slice(chunk.get().as_bytes());
        let is_counted = self.counted > 0
            || serde_json::from_str(chunk.get())
                .is_ok_and(|EventType { name }| !UNCOUNTED.contains(&&*name));
        if is_counted {
            self.counted += frame.len();
        }
        if id.parse::<EventId>().is_ok() {
            self.resumable = Some((self.json.len(), id.clone().into_owned()));
        }
        self.last_id = Some(id.into_owned());
    }

    /// The array, and the id of its last event. Unless the stream `is_whole`, the array ends after
    /// the last event that can be resumed.
    fn finish(mut self, is_whole: bool) -> (Vec<u8>, Option<String>) {
        let mut id = self.last_id;
        if !is_whole && let Some((length, resumable)) = self.resumable {
            self.json.truncate(length);
            id = Some(resumable);
        }
        if self.json.is_empty() {
            self.json.push(b'[');
        }
        self.json.extend_from_slice(b"]\n");
        (self.json, id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESUMABLE: &str = "1.R.1.1-0.0.0000";

    fn frame(id: &str, kind: &str, bytes: usize) -> Vec<u8> {
        let text = "x".repeat(bytes);
        format!("{{\"id\":\"{id}\",\"chunk\":{{\"type\":\"{kind}\",\"x\":\n\"{text}\"}}}}\u{1e}")
            .into_bytes()
    }

    fn array(frames: &[Vec<u8>]) -> Array {
        let mut array = Array::default();
        for frame in frames {
            array.extend(frame.clone().into());
        }
        array
    }

    fn kinds(json: &[u8]) -> Vec<String> {
        let events: Vec<EventType<'_>> = serde_json::from_slice(json).unwrap();
        events.into_iter().map(|event| event.name.into_owned()).collect()
    }

    #[test]
    fn an_array_of_a_run_that_goes_on_ends_with_an_event_that_can_be_resumed() {
        let frames = [frame("0.1.1", "A", 1), frame(RESUMABLE, "B", 1), frame("0.1.2", "C", 1)];
        let (json, id) = array(&frames).finish(false);
        assert_eq!((kinds(&json), id.as_deref()), (vec!["A".into(), "B".into()], Some(RESUMABLE)));
        let (json, id) = array(&frames).finish(true);
        assert_eq!((kinds(&json).len(), id.as_deref()), (3, Some("0.1.2")));
        let (json, id) = array(&frames[..1]).finish(false);
        assert_eq!((kinds(&json).len(), id.as_deref()), (1, Some("0.1.1")));
        assert_eq!(array(&[]).finish(false), (b"[]\n".to_vec(), None));
    }

    #[test]
    fn frames_may_be_cut_anywhere() {
        let frames = [frame(RESUMABLE, "A", 1), frame("0.1.2", "B", 1)].concat();
        let expected = array(std::slice::from_ref(&frames)).finish(true);
        assert_eq!(kinds(&expected.0), ["A", "B"]);
        for at in 0..frames.len() {
            let (one, two) = frames.split_at(at);
            assert_eq!(array(&[one.to_vec(), two.to_vec()]).finish(true), expected, "{at}");
        }
    }

    #[test]
    fn an_array_is_full_by_the_events_after_the_first_snapshots() {
        let large = MAX_ARRAY_BYTES;
        let snapshots = [frame("0.1.1", "RUN_STARTED", 1), frame("0.1.2", "STATE_SNAPSHOT", large)];
        let mut array = array(&snapshots);
        assert!(!array.is_full());
        array.extend(frame("0.1.3", "CUSTOM", 1).into());
        assert!(!array.is_full());
        array.extend(frame("0.1.4", "STATE_SNAPSHOT", large).into());
        assert!(array.is_full());
    }
}
