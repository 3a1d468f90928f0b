//! `failing` emits some text, and then raises an exception.

use serde_json::json;

use super::speech::Speech;
use super::{Act, Due, End, Line, LineContent, NodeContext, object};
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

pub(super) fn act(due: &Due, node: &NodeContext<'_>) -> Act {
    if due.node == OPEN {
        return open(node);
    }
    let speech = Speech::new(node, 1).say("The first page says that the meeting is on ");
    let cut = Exception::value_error("the model's connection was cut after 9 tokens");
    Act { lines: speech.broken_off(), pause: 8, end: End::Raise(cut) }
}

/// A message that is not streamed by a model, and is stored in the thread.
fn open(node: &NodeContext<'_>) -> Act {
    let message = json!({
        "content": "I have opened the report.", "additional_kwargs": {}, "response_metadata": {},
        "type": "ai", "name": null, "id": node.clock.id().to_string(), "tool_calls": [],
        "invalid_tool_calls": [], "usage_metadata": null,
    });
    let line = Line { after: 4, content: LineContent::Message(message.clone()) };
    let update = object(json!({"messages": [message]}));
    Act { lines: vec![line], pause: 0, end: End::Update(Some(update)) }
}
