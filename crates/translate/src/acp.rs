//! The ACP v1 wire: its messages, and the projection of a run to session updates.
//!
//! The specification is at <https://agentclientprotocol.com/protocol/v1/overview>. The types are
//! tested against the official JSON schema.
//!
//! - [`rpc`]: JSON-RPC messages and errors.
//! - `update`: session updates. `project`: the events of a session's runs as updates.
//! - `call`: the state of tool calls. `tool`: what a call's arguments show. `sent_text`: the text
//!   of a message, sent once. `content`: messages and results as content blocks. `plan`: the
//!   graph's to-do list. `strict`: JSON that every parser accepts.
//! - `limit`: how much of an update is sent, so that every client can read it.
//! - `profile`: what the operator says about tools and models. `glob`: patterns for their names.
//! - `ending`: the result of a prompt. [`notice`]: what a person should know besides.
//! - [`prompt`]: what a person writes. `prompt_planner`: the run that it becomes. `file`: an attached
//!   file as text. `reference`: URIs and mentions of files. [`choice`]: modes and options. [`mcp`]:
//!   the client's servers. [`system_prompt`]: the client's instructions.
//! - [`cursor`]: the positions at which a session can be forked.
//! - [`method`]: what follows from each method. [`destination`]: the session that a message belongs
//!   to.
//! - [`permission`]: whether a tool may be called. [`question`]: questions as text.

pub mod choice;
pub mod cursor;
pub mod destination;
pub mod mcp;
pub mod method;
pub mod notice;
pub mod permission;
pub mod prompt;
pub mod question;
pub mod rpc;
pub mod system_prompt;

mod call;
mod content;
mod ending;
mod file;
mod glob;
mod limit;
mod plan;
mod profile;
mod project;
mod prompt_planner;
mod reference;
mod sent_text;
mod strict;
mod tool;
mod update;

use serde::Serialize;

pub use call::CallDecision;
pub use ending::{result_of, stop_reason};
pub use glob::{Glob, GlobError};
pub use limit::MAX_LINE_BYTES;
pub use profile::{GraphProfile, Paths, UnknownPaths};
pub use project::{NoticeForms, PlanForm, Projector};
pub use prompt_planner::{PromptMessage, PromptPlanner};
pub use update::{
    AvailableCommand, AvailableCommandInput, CompactionStatus, ContentBlock, CursorAnchor,
    CursorCapabilities, CursorPosition, EmbeddedFile, FileContents, IdleReason, Location,
    NoticeSeverity, Plan, PlanEntry, PlanStatus, Priority, StateError, StopReason, SubagentState,
    SubagentUpdate, ToolCall, ToolContent, ToolKind, ToolStatus, UnknownKind, Update,
};

/// Writes a `session/update` notification, as one line or several that are not too long for any
/// client: see [`MAX_LINE_BYTES`]. The update of a child session names the child.
pub fn notification(session_id: &str, update: &Update<'_>, out: &mut Vec<u8>) {
    limit::fitted(update, &mut |update| {
        let before = out.len();
        write_update(session_id, update, out);
        let written = out.len() - before;
        if written > MAX_LINE_BYTES {
            out.truncate(before);
            let note = format!("\n[cut: an update of {written} bytes is not shown]\n");
            let content = ContentBlock::text(&note);
            write_update(session_id, &Update::AgentMessageChunk { content, message_id: None }, out);
        }
    });
}

fn write_update(session_id: &str, update: &Update<'_>, out: &mut Vec<u8>) {
    #[derive(Serialize)]
    struct Notification<'a> {
        jsonrpc: &'static str,
        method: &'static str,
        params: Params<'a>,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Params<'a> {
        session_id: &'a str,
        update: &'a Update<'a>,
    }
    let params = if let Update::OfChild { session_id, update } = *update {
        Params { session_id, update }
    } else {
        Params { session_id, update }
    };
    write_line(&Notification { jsonrpc: "2.0", method: "session/update", params }, out);
}

/// The same, with the id of the event that the update was made of as `_meta.threadway.eventId` of the
/// update.
pub fn notification_with_id(
    session_id: &str,
    update: &Update<'_>,
    event_id: Option<&str>,
    out: &mut Vec<u8>,
) {
    const CLOSINGS: &[u8] = b"}}}\n";
    notification(session_id, update, out);
    let Some(event_id) = event_id else { return };
    // An update is written for each token, so the member is added to the written one.
    if out.ends_with(CLOSINGS) {
        out.truncate(out.len() - CLOSINGS.len());
        let id = serde_json::Value::from(event_id);
        let meta = format!(r#","_meta":{{"threadway":{{"eventId":{id}}}}}"#);
        out.extend_from_slice(meta.as_bytes());
        out.extend_from_slice(CLOSINGS);
    }
}

fn write_line(message: &impl Serialize, out: &mut Vec<u8>) {
    let before = out.len();
    // Strings, numbers and raw values always serialise. If one did not, half a line must not be
    // sent.
    match serde_json::to_writer(&mut *out, message) {
        Ok(()) => out.push(b'\n'),
        Err(_) => out.truncate(before),
    }
}
