//! Translates a recorded run. The upstream cannot be asked how the run ended.

use std::io::{self, Read};

use memchr::memmem;

use super::recorder::{ANSWERED, JOINED};
use super::{Events, RunDecoder};
use threadway_translate::run::{Failure, LossReason, Outcome, RunEvent, StreamEnd};
use threadway_translate::sse::{DecodeError, Ending};

/// How many bytes are read at once: as many as a pipe holds, so that events are passed on early.
const READ_BYTES: usize = 64 * 1024;

/// The longest comment of the recorder. Longer lines are passed on without waiting for their end.
const MAX_COMMENT_BYTES: usize = 1024;

/// Why a recording is incomplete.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the capture is incomplete: {0}")]
pub struct IncompleteCapture(String);

/// Reads a recorded run to its end, and passes its events to `each` as soon as they are made. The
/// outer error is one of reading or of `each`.
pub fn translate(
    input: &mut dyn Read,
    decoder: &mut RunDecoder,
    each: &mut dyn FnMut(&[RunEvent]) -> io::Result<()>,
) -> io::Result<Result<(), IncompleteCapture>> {
    let mut buffer = vec![0; READ_BYTES];
    let mut splitter = JoinSplitter::default();
    let mut events = Events::default();
    decoder.start(&mut events);
    let fault = loop {
        let count = match input.read(&mut buffer) {
            Ok(0) => {
                if let Err(error) = splitter.finish(decoder, &mut events) {
                    break Some(error.to_string());
                }
                each(&events)?;
                events.clear();
                if decoder.finish() != Ending::Clean {
                    break Some("it ends inside an event".to_owned());
                }
                let is_langgraph = decoder.is_langgraph();
                break (!is_langgraph).then(|| "it has no part of a LangGraph stream".to_owned());
            }
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let new = buffer.get(..count).unwrap_or_default();
        let pushed = splitter.read(new, decoder, &mut events);
        each(&events)?;
        events.clear();
        if let Err(error) = pushed {
            break Some(error.to_string());
        }
    };
    let end = match fault {
        Some(message) => StreamEnd::Lost { loss: LossReason::Incomplete, message },
        None => StreamEnd::Complete,
    };
    decoder.end(None, end, &mut events);
    each(&events)?;
    Ok(verdict(&events))
}

/// A stream may end at the end of an event, and still in the middle of a message.
fn verdict(events: &[RunEvent]) -> Result<(), IncompleteCapture> {
    match events.last() {
        Some(RunEvent::Ended {
            outcome: Outcome::Failed(Failure::Gateway { loss: LossReason::Incomplete, message }),
            ..
        }) => Err(IncompleteCapture(message.clone())),
        _ => Ok(()),
    }
}

/// Finds where each connection of a recording begins, by the recorder's comments. A recording by
/// another program has none, and is read as one connection.
#[derive(Debug)]
struct JoinSplitter {
    /// Bytes that may be the beginning of a comment.
    held: Vec<u8>,
    /// Whether `held` begins a line.
    is_line: bool,
}

// === impl JoinSplitter ===

impl JoinSplitter {
    /// Reads the next bytes. The decoder is prepared for each new connection.
    fn read(
        &mut self,
        new: &[u8],
        decoder: &mut RunDecoder,
        out: &mut Events,
    ) -> Result<(), DecodeError> {
        self.held.extend_from_slice(new);
        while let Some(at) = self.find() {
            let Some(end) = memchr::memchr(b'\n', self.held.get(at..).unwrap_or_default()) else {
                if self.held.len() - at > MAX_COMMENT_BYTES {
                    break;
                }
                return self.pass(at, decoder, out);
            };
            self.pass(at, decoder, out)?;
            let line = String::from_utf8_lossy(self.held.get(..end).unwrap_or_default());
            let answered_at = line.rsplit_once(ANSWERED).and_then(|(_, at)| at.trim().parse().ok());
            decoder.recorded_join(answered_at);
            self.pass(end + 1, decoder, out)?;
        }
        let held = self.tail();
        self.pass(self.held.len() - held, decoder, out)
    }

    /// Reads the bytes that are held.
    fn finish(&mut self, decoder: &mut RunDecoder, out: &mut Events) -> Result<(), DecodeError> {
        self.pass(self.held.len(), decoder, out)
    }

    /// Passes the first `count` held bytes to the decoder.
    fn pass(
        &mut self,
        count: usize,
        decoder: &mut RunDecoder,
        out: &mut Events,
    ) -> Result<(), DecodeError> {
        let rest = self.held.split_off(count);
        let passed = std::mem::replace(&mut self.held, rest);
        if let Some(last) = passed.last() {
            self.is_line = *last == b'\n';
        }
        decoder.read(&passed, out)
    }

    /// The position of the first comment that begins a line.
    fn find(&self) -> Option<usize> {
        let begins_line = |at: &usize| match at.checked_sub(1) {
            Some(before) => self.held.get(before) == Some(&b'\n'),
            None => self.is_line,
        };
        memmem::find_iter(&self.held, JOINED).find(begins_line)
    }

    /// How many bytes at the end may be the beginning of a comment.
    fn tail(&self) -> usize {
        let most = self.held.len().min(JOINED.len() - 1);
        let may_be = |count: &usize| {
            JOINED.as_bytes().get(..*count).is_some_and(|begin| self.held.ends_with(begin))
        };
        (1..=most).rev().find(may_be).unwrap_or(0)
    }
}

impl Default for JoinSplitter {
    fn default() -> Self {
        Self { held: Vec::new(), is_line: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives this many bytes at once.
    struct Slowly<'a>(&'a [u8], usize);

    impl Read for Slowly<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len());
            let (now, later) = self.0.split_at(count);
            buffer[..count].copy_from_slice(now);
            self.0 = later;
            Ok(count)
        }
    }

    fn texts(recording: &str, size: usize) -> Vec<String> {
        let mut texts = Vec::new();
        let mut decoder = RunDecoder::new("T", None, None);
        let read = &mut Slowly(recording.as_bytes(), size);
        let translated = translate(read, &mut decoder, &mut |events| {
            for event in events {
                if let RunEvent::TextDelta { delta, .. } = event {
                    texts.push(delta.decode().into_owned());
                }
            }
            Ok(())
        });
        translated.unwrap().unwrap();
        texts
    }

    #[test]
    fn repeats_of_a_joined_connection_are_translated_once_in_any_chunking() {
        let token = |id: &str, text: &str| {
            let last = if text == "two" { r#","chunk_position":"last""# } else { "" };
            let chunk =
                format!(r#"[{{"type":"AIMessageChunk","id":"m","content":"{text}"{last}}},{{}}]"#);
            format!("id: {id}\nevent: messages\ndata: {chunk}\n\n")
        };
        let recording = |comment: &str| {
            [
                ": threadway 0.1.0: run R of thread T\n\n",
                "id: 1-0\nevent: metadata\ndata: {\"run_id\":\"R\"}\n\n",
                &token("2-0", "one "),
                // A message may hold the words of the comment.
                &token("3-0", ": threadway joined the run after "),
                comment,
                &token("3-0", ": threadway joined the run after "),
                &token("4-0", "two"),
            ]
            .concat()
        };
        let with_keys = recording(": threadway joined the run after 2-0; answered at 5\n\n");
        let once = ["one ", ": threadway joined the run after ", "two"];
        for size in 1..with_keys.len() {
            assert_eq!(texts(&with_keys, size), once, "{size}");
        }
        // Without the comment the repeat is not recognised.
        assert_eq!(texts(&recording(": so\n\n"), 7).len(), 4);
    }
}
