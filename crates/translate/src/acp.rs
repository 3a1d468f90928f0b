//! The ACP v1 wire: its session updates as strict output types, and what becomes of a run on it.
//!
//! The specification is at <https://agentclientprotocol.com/protocol/v1/overview>; the official
//! JSON schema is what the types are tested against.

pub mod asked;
pub mod choice;
pub mod mcp;
pub mod permission;
pub mod prompt;
pub mod rpc;

mod call;
mod content;
mod dialect;
mod ending;
mod glob;
mod plan;
mod project;
mod spoken;
mod strict;
mod tool;
mod update;

use serde::Serialize;

pub use call::Verdict;
pub use dialect::{Dialect, Paths, UnknownPaths};
pub use ending::{StopReason, result_of, stop_reason};
pub use glob::{Glob, GlobError};
pub use project::Projector;
pub use update::{
    Blob, Command, CommandInput, ContentBlock, Location, PlanEntry, PlanStatus, Priority, ToolCall,
    ToolContent, ToolKind, ToolStatus, UnknownKind, Update,
};

/// Writes an update of a session as one line: the whole `session/update`.
pub fn notification(session_id: &str, update: &Update<'_>, out: &mut Vec<u8>) {
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
    let params = Params { session_id, update };
    write_line(&Notification { jsonrpc: "2.0", method: "session/update", params }, out);
}

fn write_line(message: &impl Serialize, out: &mut Vec<u8>) {
    let before = out.len();
    // Strings, numbers and raw values always serialise. Were one not to, half a line must not go
    // out.
    match serde_json::to_writer(&mut *out, message) {
        Ok(()) => out.push(b'\n'),
        Err(_) => out.truncate(before),
    }
}
