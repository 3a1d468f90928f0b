//! A model's message: the chunks that are streamed, and the whole that is stored.

use serde_json::{Value, json};

use super::{Act, End, Line, LineContent, NodeContext, object};
use crate::state::merged;

/// The length of a fragment of a tool call's arguments. Like real fragments they are cut anywhere.
const FRAGMENT_CHARS: usize = 7;

/// A message being written.
#[derive(Debug)]
pub(super) struct Speech {
    id: String,
    /// Beats before each chunk.
    beat: u32,
    lines: Vec<Line>,
    blocks: Vec<Value>,
    calls: Vec<Value>,
}

// === impl Speech ===

impl Speech {
    pub(super) fn new(node: &NodeContext<'_>, beat: u32) -> Self {
        Self { id: node.message_id(), beat, lines: vec![], blocks: vec![], calls: vec![] }
    }

    /// Adds reasoning.
    pub(super) fn think(self, text: &str) -> Self {
        self.block("reasoning", text)
    }

    /// Adds text.
    pub(super) fn say(self, text: &str) -> Self {
        self.block("text", text)
    }

    fn block(mut self, kind: &str, text: &str) -> Self {
        let index = self.blocks.len();
        let block = |text: &str| json!({"type": kind, kind: text, "index": index});
        for token in text.split_inclusive(' ') {
            self.chunk(json!({"content": [block(token)]}));
        }
        self.blocks.push(block(text));
        self
    }

    /// Adds tool calls: first the names, then fragments of the arguments, alternating between the
    /// calls.
    pub(super) fn call(mut self, node: &NodeContext<'_>, calls: &[(&str, Value)]) -> Self {
        let first = self.blocks.len();
        let mut fragments = vec![];
        for (at, (name, args)) in calls.iter().enumerate() {
            let id = format!("call_{}", node.clock.id().simple());
            self.chunk(json!({
                "tool_calls": [{"name": name, "args": {}, "id": id, "type": "tool_call"}],
                "tool_call_chunks": [
                    {"name": name, "args": "", "id": id, "index": first + at, "type": "tool_call_chunk"},
                ],
            }));
            self.calls.push(json!({"name": name, "args": args, "id": id, "type": "tool_call"}));
            let text: Vec<char> = args.to_string().chars().collect();
            let cut = text.chunks(FRAGMENT_CHARS).map(String::from_iter).enumerate();
            fragments.extend(cut.map(|(turn, fragment)| (turn, at, fragment)));
        }
        fragments.sort_by_key(|(turn, at, _)| (*turn, *at));
        for (_, at, fragment) in fragments {
            self.chunk(json!({
                "invalid_tool_calls": [{
                    "name": null, "args": fragment, "id": null, "error": null,
                    "type": "invalid_tool_call",
                }],
                "tool_call_chunks": [{
                    "name": null, "args": fragment, "id": null, "index": first + at,
                    "type": "tool_call_chunk",
                }],
            }));
        }
        self
    }

    /// Adds a chunk with these members.
    fn chunk(&mut self, special: Value) {
        let chunk = json!({
            "content": "", "additional_kwargs": {}, "response_metadata": {},
            "type": "AIMessageChunk", "name": null, "id": self.id, "tool_calls": [],
            "invalid_tool_calls": [], "usage_metadata": null, "tool_call_chunks": [],
            "chunk_position": null,
        });
        let chunk = merged(chunk, special);
        self.lines.push(Line { after: self.beat, content: LineContent::Chunk(chunk) });
    }

    /// The lines so far, for a model that breaks off.
    pub(super) fn broken_off(self) -> Vec<Line> {
        self.lines
    }

    /// Ends the message and the node.
    pub(super) fn end(mut self) -> Act {
        let output = self.lines.len();
        let usage = json!({
            "input_tokens": 17, "output_tokens": output, "total_tokens": 17 + output,
        });
        let response = json!({
            "finish_reason": if self.calls.is_empty() { "stop" } else { "tool_calls" },
            "model_name": "scripted-1", "model_provider": "threadway",
        });
        self.chunk(json!({
            "response_metadata": response, "usage_metadata": usage, "chunk_position": "last",
        }));
        let message = json!({
            "content": self.blocks, "additional_kwargs": {}, "response_metadata": response,
            "type": "ai", "name": null, "id": self.id, "tool_calls": self.calls,
            "invalid_tool_calls": [], "usage_metadata": usage,
        });
        let update = object(json!({"messages": [message]}));
        Act { lines: self.lines, pause: 0, end: End::Update(Some(update)) }
    }
}
