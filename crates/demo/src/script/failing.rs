//! `failing`: it begins well, says some words, and raises.

use serde_json::json;

use super::speech::Speech;
use super::{Act, Due, End, Line, Stage, Word, object};
use crate::state::Exception;

pub(super) const OPEN: &str = "open";
const MODEL: &str = "model";

pub(super) fn follow(node: &str) -> Option<Vec<Due>> {
    match node {
        "__start__" => Some(vec![Due::pull(OPEN)]),
        OPEN => Some(vec![Due::pull(MODEL)]),
        MODEL => Some(vec![]),
        _ => None,
    }
}

pub(super) fn act(due: &Due, stage: &Stage<'_>) -> Act {
    if due.node == OPEN {
        return open(stage);
    }
    let speech = Speech::new(stage, 1).say("The first page says that the meeting is on ");
    let cut = Exception::value_error("the model's connection was cut after 9 tokens");
    Act { lines: speech.broken_off(), rest: 8, end: End::Raise(cut) }
}

/// A message that no model streams, and that the thread keeps.
fn open(stage: &Stage<'_>) -> Act {
    let message = json!({
        "content": "I have opened the report.", "additional_kwargs": {}, "response_metadata": {},
        "type": "ai", "name": null, "id": stage.clock.id().to_string(), "tool_calls": [],
        "invalid_tool_calls": [], "usage_metadata": null,
    });
    let line = Line { after: 4, word: Word::Message(message.clone()) };
    let update = object(json!({"messages": [message]}));
    Act { lines: vec![line], rest: 0, end: End::Update(Some(update)) }
}
