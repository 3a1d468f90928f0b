//! A run read from recorded bytes, with nobody to ask how it ended.

use std::io::{self, Read};

use super::{Events, Feed};
use crate::run::{Failure, Loss, Outcome, RunEvent, StreamEnd};
use crate::sse::Ending;

/// How much is read at once: a recording is passed on as it comes, and a pipe holds this much.
const READ_BYTES: usize = 64 * 1024;

/// What is wrong with a recording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the capture is not whole: {0}")]
pub struct Fault(String);

/// Reads a recorded run to its end. Events are handed on as soon as they can be made.
pub fn translate(
    input: &mut dyn Read,
    mut feed: Feed,
    each: &mut dyn FnMut(&[RunEvent]) -> io::Result<()>,
) -> io::Result<Result<(), Fault>> {
    let mut buffer = vec![0; READ_BYTES];
    let mut events = Events::default();
    feed.start(&mut events);
    let fault = loop {
        let count = match input.read(&mut buffer) {
            Ok(0) if feed.finish() != Ending::Clean => {
                break Some("it ends inside an event".to_owned());
            }
            Ok(0) if !feed.is_langgraph() => {
                break Some("it holds no part of a LangGraph stream".to_owned());
            }
            Ok(0) => break None,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let pushed = feed.read(buffer.get(..count).unwrap_or_default(), &mut events);
        each(&events)?;
        events.clear();
        if let Err(error) = pushed {
            break Some(error.to_string());
        }
    };
    let end = match fault {
        Some(message) => StreamEnd::Lost { loss: Loss::Incomplete, message },
        None => StreamEnd::Complete,
    };
    feed.end(None, end, &mut events);
    each(&events)?;
    Ok(verdict(&events))
}

/// A stream may be whole in its form, and still break off in the middle of a message.
fn verdict(events: &[RunEvent]) -> Result<(), Fault> {
    match events.last() {
        Some(RunEvent::Ended {
            outcome: Outcome::Failed(Failure::Gateway { loss: Loss::Incomplete, message }),
            ..
        }) => Err(Fault(message.clone())),
        _ => Ok(()),
    }
}
