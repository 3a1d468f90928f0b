//! The stream about many threads: each message is a JSON object that names its thread.
//!
//! Marks are small, and are written here. Events come from the streams of single threads, whose
//! large parts are shared and not copied.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::stream::BoxStream;
use http_body::{Body, Frame};
use memchr::{memchr2, memmem};
use tokio::time::Instant;

use super::encoder::one_time_id;
use super::event_stream::EventStream;
use super::frames::EncodedEvent;
use super::outgoing::Outgoing;
use super::silence::Silence;
use super::wire::Wire;
use crate::metrics::{Full, Metrics, Protocol, StreamEnd, StreamMeter};
use crate::server::limits::rates::StreamSlot;
use threadway_translate::json::{Json, ObjectWriter};
use threadway_translate::sse;

/// Where the id of an event ends in a frame of [`Wire::Chunks`].
const AFTER_ID: &[u8] = br#"","chunk":"#;

/// Where the id begins.
const BEFORE_ID: &[u8] = br#"{"id":""#;

/// A message about one thread, or the first message, about all of them.
pub(in crate::server) struct Message {
    /// The id for a client that resumes. `None` leaves the client with the one before.
    id: Option<String>,
    /// JSON in parts. Large parts are shared.
    parts: Vec<Bytes>,
}

/// Messages that are ready, in order.
pub(in crate::server) type Messages = BoxStream<'static, Result<Vec<Message>, Full>>;

/// The body of a stream about many threads.
pub(in crate::server) struct ManyBody {
    messages: Messages,
    is_over: bool,
    wire: Wire,
    out: Outgoing,
    silence: Silence,
    meter: StreamMeter,
    /// The caller's slot, released when the body is dropped.
    _slot: StreamSlot,
}

/// The events of one thread, as messages of a stream about many.
pub(in crate::server) fn events_of(
    thread_id: &str,
    stream: EventStream,
    wire: Wire,
    metrics: &Metrics,
) -> Messages {
    debug_assert_eq!(stream.encoder.wire(), Wire::Chunks, "a message is made of a chunk");
    let frames = stream.into_frames_of(protocol(wire), metrics);
    let begin = ObjectWriter::new().string("threadId", thread_id).finish();
    Box::pin(futures_util::stream::unfold((frames, begin), async |(mut frames, begin)| {
        let events = frames.next().await?;
        let messages = events.map(|events| {
            events.into_iter().filter_map(|event| Message::of_event(event, &begin)).collect()
        });
        Some((messages, (frames, begin)))
    }))
}

fn protocol(wire: Wire) -> Protocol {
    if wire == Wire::Sse { Protocol::Sse } else { Protocol::Ndjson }
}

// === impl Message ===

impl Message {
    /// The first message of a stream. A client that sends its id starts over.
    pub(in crate::server) fn first(json: &Json) -> Self {
        Self { id: Some(one_time_id()), ..Self::new(json) }
    }

    pub(in crate::server) fn new(json: &Json) -> Self {
        Self { id: None, parts: vec![Bytes::copy_from_slice(json.get().as_bytes())] }
    }

    /// A chunk `{"id":..,"chunk":..}` as `{"threadId":..,"id":..,"event":..}`. `begin` is an object
    /// with the thread's id. `None` if the event is not a chunk.
    fn of_event(event: EncodedEvent, begin: &Json) -> Option<Self> {
        let mut parts = event.into_parts();
        let first = parts.first_mut()?;
        let end = memmem::find(first, AFTER_ID)?;
        let id = first.get(BEFORE_ID.len()..end)?;
        let id = std::str::from_utf8(id).ok()?.to_owned();
        let begin = begin.get().strip_suffix('}')?;
        let head = format!(r#"{begin},"id":"{id}","event":"#);
        let event = first.slice(end + AFTER_ID.len()..);
        *first = event;
        parts.insert(0, head.into());
        Some(Self { id: Some(id), parts })
    }

    /// Appends the message in one line.
    fn write(self, wire: Wire, out: &mut Outgoing) {
        let is_sse = wire == Wire::Sse;
        if is_sse {
            sse::encode_start(out.own(), self.id.as_deref());
        }
        for part in self.parts {
            // A break is between two tokens: in a string of JSON it would be escaped.
            if memchr2(b'\n', b'\r', &part).is_some() {
                let is_break = |byte: &u8| matches!(byte, b'\n' | b'\r');
                out.own().extend(part.iter().map(|byte| if is_break(byte) { b' ' } else { *byte }));
            } else {
                out.append(part);
            }
        }
        out.own().extend_from_slice(if is_sse { sse::END } else { b"\n" });
    }
}

// === impl ManyBody ===

impl ManyBody {
    /// `wire` is SSE or NDJSON.
    pub(in crate::server) fn new(
        messages: Messages,
        wire: Wire,
        metrics: &Metrics,
        slot: StreamSlot,
    ) -> Self {
        let meter = metrics.stream(protocol(wire));
        let mut out = Outgoing::default();
        let silence = Silence::begin(wire, metrics, &mut out);
        Self { messages, is_over: false, wire, out, silence, meter, _slot: slot }
    }

    fn poll_messages(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Full>> {
        while self.out.is_empty() && !self.is_over {
            match ready!(self.messages.as_mut().poll_next(cx)) {
                Some(Ok(messages)) => {
                    for message in messages {
                        message.write(self.wire, &mut self.out);
                    }
                }
                Some(Err(full)) => {
                    self.is_over = true;
                    return Poll::Ready(Err(full));
                }
                None => self.is_over = true,
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Body for ManyBody {
    type Data = Bytes;
    type Error = Full;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Full>>> {
        let this = &mut *self;
        let mut is_waiting = false;
        match this.poll_messages(cx) {
            Poll::Ready(Ok(())) => {}
            // The client learns that something is missing, because the connection is cut.
            Poll::Ready(Err(full)) => return Poll::Ready(Some(Err(full))),
            Poll::Pending => {
                is_waiting = true;
                this.silence.poll(cx, &this.meter, &mut this.out);
            }
        }
        match this.out.next() {
            Some(bytes) => {
                this.silence.restart(Instant::now());
                this.meter.sent(bytes.len(), None);
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            None if is_waiting => Poll::Pending,
            None => {
                this.meter.ended(StreamEnd::BrokenOff);
                Poll::Ready(None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(message: Message, wire: Wire) -> String {
        let mut out = Outgoing::default();
        message.write(wire, &mut out);
        String::from_utf8(out.into_bytes().to_vec()).unwrap()
    }

    #[test]
    fn an_event_is_wrapped_with_its_thread_and_its_id_on_one_line() {
        let begin = ObjectWriter::new().string("threadId", "my \"thread\"").finish();
        let event = |text: &'static str| {
            let mut bytes = Bytes::from_static(text.as_bytes());
            let event = super::super::frames::Frames::default().next(&mut bytes).unwrap();
            Message::of_event(event, &begin)
        };
        let chunk = "{\"id\":\"r.1\",\"chunk\":{\"type\":\"X\",\n\"chunk\":1}}\u{1e}";
        let json = r#"{"threadId":"my \"thread\"","id":"r.1","event":{"type":"X", "chunk":1}}"#;
        assert_eq!(written(event(chunk).unwrap(), Wire::Sse), format!("id: r.1\ndata: {json}\n\n"));
        assert_eq!(written(event(chunk).unwrap(), Wire::Ndjson), format!("{json}\n"));
        assert!(event("{}\u{1e}").is_none());
    }

    #[test]
    fn only_the_first_mark_replaces_the_clients_last_id() {
        let json = ObjectWriter::new().string("threadId", "T").finish();
        assert!(written(Message::first(&json), Wire::Sse).starts_with("id: 0."));
        let mark = written(Message::new(&json), Wire::Sse);
        assert_eq!(mark, "data: {\"threadId\":\"T\"}\n\n");
    }
}
