//! Events as they stand in a stream, each with its id: what a client that resumes works with.

use super::gateway::Response;
use serde_json::Value;

/// Whether a frame is an event, with its id before its data.
fn is_event(frame: &str) -> bool {
    frame
        .strip_prefix("id: ")
        .is_some_and(|frame| frame.lines().nth(1).is_some_and(|line| line.starts_with("data: ")))
}

/// The id line of a frame.
pub(crate) fn id(frame: &str) -> Option<&str> {
    frame.lines().find_map(|line| line.strip_prefix("id: "))
}

pub(crate) fn event(frame: &str) -> Value {
    let data = frame.lines().find_map(|line| line.strip_prefix("data: "));
    serde_json::from_str(data.expect(frame)).unwrap()
}

pub(crate) fn kind(frame: &str) -> String {
    event(frame)["type"].as_str().unwrap().to_owned()
}

pub(crate) fn kinds(frames: &[String]) -> Vec<String> {
    frames.iter().map(|frame| kind(frame)).collect()
}

impl Response {
    /// The next events, each a whole frame.
    pub(crate) async fn frames(&mut self, count: usize) -> Vec<String> {
        let mut frames = Vec::new();
        while frames.len() < count {
            let frame = self.whole_frame().await;
            assert_ne!(frame, "", "the stream ended after {frames:#?}");
            if is_event(&frame) {
                frames.push(frame);
            }
        }
        frames
    }

    /// The events from here to the end.
    pub(crate) async fn rest_of_frames(&mut self) -> Vec<String> {
        let mut frames = Vec::new();
        loop {
            let frame = self.whole_frame().await;
            if frame.is_empty() {
                return frames;
            }
            if is_event(&frame) {
                frames.push(frame);
            }
        }
    }
}
