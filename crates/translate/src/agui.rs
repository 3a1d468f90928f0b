//! The AG-UI 1.0 wire: its 31 events as strict output types, and what becomes of a run on it.
//!
//! An optional member that has no value is left out, never null.
//! The specification is at <https://ag-ui.com/spec/1.0>; the official clients' reading of it is
//! what the types are tested against.

mod activity;
mod allowance;
mod beside;
mod capabilities;
mod input;
mod message;
mod project;
mod proto;
mod resume;
mod tanstack;
mod turn;

use serde::Serialize;

pub use activity::ActivityContent;
pub use allowance::{Allowance, DEFAULT_RECURSION_LIMIT, NotForClients, SystemMessages};
pub use capabilities::{Described, Offers, StateOffer, capabilities};
pub use input::{Input, InputError, InputMessage, Resume, ResumeStatus};
pub use message::{
    Content, ContentPart, FunctionCall, Message, Messages, PartMetadata, PartSource, ToolCall,
};
pub use project::{Client, Projector, RunId, Version};
pub use proto::ProtoEncoder;
pub use resume::ResumeError;
pub use tanstack::{NoSuchMessage, Window, window};
pub use turn::{Asking, Brought, OnMessage};

use crate::json::{Json, Text};
use crate::run::{ErrorReport, Operation};

/// The protocol version that we speak.
pub const PROTOCOL_VERSION: &str = "1.0";

/// One event. Borrows from the run event that it projects.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "SCREAMING_SNAKE_CASE", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "the names are the specification's, which defines them")]
pub enum Event<'a> {
    RunStarted {
        thread_id: &'a str,
        run_id: &'a str,
        protocol_version: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        parent_run_id: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        metadata: Option<Metadata<'a>>,
    },
    RunFinished {
        thread_id: &'a str,
        run_id: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<&'a Json>,
        #[serde(skip_serializing_if = "Option::is_none")]
        outcome: Option<Outcome<'a>>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        usage: Vec<TokenUsage<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        metadata: Option<Metadata<'a>>,
    },
    RunError {
        message: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        code: Option<&'a str>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        usage: Vec<TokenUsage<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        metadata: Option<Metadata<'a>>,
    },
    StepStarted {
        step_name: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        subagent_run_id: Option<&'a str>,
    },
    StepFinished {
        step_name: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        subagent_run_id: Option<&'a str>,
    },
    TextMessageStart {
        message_id: &'a str,
        role: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<&'a Text>,
        #[serde(skip_serializing_if = "Option::is_none")]
        subagent_run_id: Option<&'a str>,
    },
    TextMessageContent {
        message_id: &'a str,
        delta: &'a Text,
    },
    TextMessageEnd {
        message_id: &'a str,
    },
    TextMessageChunk {
        #[serde(skip_serializing_if = "Option::is_none")]
        message_id: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        role: Option<&'static str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        delta: Option<&'a Text>,
    },
    ToolCallStart {
        tool_call_id: &'a str,
        tool_call_name: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        parent_message_id: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        subagent_run_id: Option<&'a str>,
    },
    ToolCallArgs {
        tool_call_id: &'a str,
        delta: &'a Text,
    },
    ToolCallEnd {
        tool_call_id: &'a str,
    },
    ToolCallChunk {
        #[serde(skip_serializing_if = "Option::is_none")]
        tool_call_id: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        tool_call_name: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        parent_message_id: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        delta: Option<&'a Text>,
    },
    ToolCallResult {
        message_id: &'a str,
        tool_call_id: &'a str,
        content: Content<'a>,
        role: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        subagent_run_id: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        metadata: Option<ResultMetadata>,
    },
    StateSnapshot {
        snapshot: &'a Json,
    },
    StateDelta {
        delta: &'a [Operation],
    },
    MessagesSnapshot {
        messages: Messages<'a>,
    },
    ActivitySnapshot {
        message_id: &'a str,
        activity_type: &'a str,
        content: ActivityContent<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        replace: Option<bool>,
        #[serde(skip_serializing_if = "Option::is_none")]
        subagent_run_id: Option<&'a str>,
    },
    ActivityDelta {
        message_id: &'a str,
        activity_type: &'a str,
        patch: &'a [Operation],
    },
    Raw {
        event: &'a Json,
        #[serde(skip_serializing_if = "Option::is_none")]
        source: Option<&'a str>,
    },
    Custom {
        name: &'a str,
        value: &'a Json,
        #[serde(skip_serializing_if = "Option::is_none")]
        subagent_run_id: Option<&'a str>,
    },
    ReasoningStart {
        message_id: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        subagent_run_id: Option<&'a str>,
    },
    ReasoningMessageStart {
        message_id: &'a str,
        role: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        subagent_run_id: Option<&'a str>,
    },
    ReasoningMessageContent {
        message_id: &'a str,
        delta: &'a Text,
    },
    ReasoningMessageEnd {
        message_id: &'a str,
    },
    ReasoningMessageChunk {
        #[serde(skip_serializing_if = "Option::is_none")]
        message_id: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        delta: Option<&'a Text>,
    },
    ReasoningEnd {
        message_id: &'a str,
    },
    ReasoningEncryptedValue {
        subtype: &'static str,
        entity_id: &'a str,
        encrypted_value: &'a Text,
    },
    SubagentStarted {
        subagent_run_id: &'a str,
        name: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        description: Option<&'a Text>,
        #[serde(skip_serializing_if = "Option::is_none")]
        parent_subagent_run_id: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        parent_tool_call_id: Option<&'a str>,
    },
    SubagentFinished {
        subagent_run_id: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        outcome: Option<SubagentOutcome<'a>>,
    },
    SubagentError {
        subagent_run_id: &'a str,
        message: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        code: Option<&'a str>,
    },
}

/// What we tell beside an event, under a name of our own.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Metadata<'a> {
    /// LangGraph's side of the run.
    pub langgraph: LangGraph<'a>,
}

/// What a tool's result says of itself. The event has no member for a failure.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ResultMetadata {
    /// LangGraph's side of the result.
    pub langgraph: ResultStatus,
}

/// How the tool has ended.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ResultStatus {
    /// `error`, as LangGraph's tool message has it.
    pub status: &'static str,
}

/// LangGraph's ids of a run, and what a thread at rest has to tell.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LangGraph<'a> {
    /// The thread, which is not the client's where that is no UUID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<&'a str>,
    /// The run; a thread at rest has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<&'a str>,
    /// Why a run failed: of a thread at rest its last one. Not a `RUN_ERROR` there: released clients
    /// lose the whole thread on one that comes as they connect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<LastError<'a>>,
}

/// Why a run failed.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LastError<'a> {
    /// The exception's name.
    pub code: &'a str,
    /// What it says.
    pub message: &'a str,
    /// What each place of LangGraph's has on it.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub sources: &'a [ErrorReport],
}

/// How a run ended.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "the names are the specification's, which defines them")]
pub enum Outcome<'a> {
    Success {
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pending_tool_call_ids: Vec<&'a str>,
    },
    Interrupt {
        interrupts: Vec<Interrupt<'a>>,
    },
    Cancelled,
}

/// How a subagent ended.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "the names are the specification's, which defines them")]
pub enum SubagentOutcome<'a> {
    Success,
    Suspended {
        #[serde(skip_serializing_if = "Vec::is_empty")]
        interrupt_ids: Vec<&'a str>,
    },
}

/// A question that the run asks before it goes on.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the names are the specification's, which defines them")]
pub struct Interrupt<'a> {
    pub id: String,
    pub reason: std::borrow::Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<std::borrow::Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_schema: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<std::borrow::Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Json>,
}

/// What one model has cost in a run.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the names are the specification's, which defines them")]
pub struct TokenUsage<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_input_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write_input_tokens: Option<u64>,
}

// === impl Event ===

impl Event<'_> {
    /// Writes the event as one line of JSON, without a line break.
    pub fn write(&self, out: &mut Vec<u8>) {
        let before = out.len();
        // Strings, numbers and raw values always serialise. Were one not to, half an event must
        // not go out.
        if serde_json::to_writer(&mut *out, self).is_err() {
            out.truncate(before);
        }
    }
}
