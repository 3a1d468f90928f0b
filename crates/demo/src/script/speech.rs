//! A message of a model: the chunks that a client hears, and the whole that the thread keeps.

use serde_json::{Value, json};

use super::{Act, End, Line, Stage, Word, object};
use crate::state::merged;

/// How long a fragment of a tool call's arguments is: they are cut anywhere, as real ones.
const FRAGMENT_CHARS: usize = 7;

/// A message that is being written.
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
    pub(super) fn new(stage: &Stage<'_>, beat: u32) -> Self {
        Self { id: stage.message_id(), beat, lines: vec![], blocks: vec![], calls: vec![] }
    }

    /// Thinks aloud.
    pub(super) fn think(self, text: &str) -> Self {
        self.block("reasoning", text)
    }

    /// Says a text.
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

    /// Calls tools at once: first their names, then their arguments in fragments, in turns.
    pub(super) fn call(mut self, stage: &Stage<'_>, calls: &[(&str, Value)]) -> Self {
        let first = self.blocks.len();
        let mut fragments = vec![];
        for (at, (name, args)) in calls.iter().enumerate() {
            let id = format!("call_{}", stage.clock.id().simple());
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

    /// Adds a chunk with what is special about it.
    fn chunk(&mut self, special: Value) {
        let chunk = json!({
            "content": "", "additional_kwargs": {}, "response_metadata": {},
            "type": "AIMessageChunk", "name": null, "id": self.id, "tool_calls": [],
            "invalid_tool_calls": [], "usage_metadata": null, "tool_call_chunks": [],
            "chunk_position": null,
        });
        let chunk = merged(chunk, special);
        self.lines.push(Line { after: self.beat, word: Word::Chunk(chunk) });
    }

    /// The lines so far, for a model that gets no further.
    pub(super) fn broken_off(self) -> Vec<Line> {
        self.lines
    }

    /// Ends the message, and the node with it.
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
        Act { lines: self.lines, rest: 0, end: End::Update(Some(update)) }
    }
}
