//! The 31 events of AG-UI 1.0 as strict output types.
//!
//! An optional member that has no value is left out, never null.

use serde::Serialize;

use super::{ActivityContent, WireContent, WireMessages};
use crate::json::{Json, Text};
use crate::run::{ErrorReport, Operation};

/// One event. It borrows from the run event that it projects.
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
        outcome: Option<WireOutcome<'a>>,
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
        content: WireContent<'a>,
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
        messages: WireMessages<'a>,
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

/// The metadata of an event, under a name of our own.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Metadata<'a> {
    /// What LangGraph says of the run.
    pub langgraph: LangGraphMetadata<'a>,
}

/// The metadata of a failed tool call. `TOOL_CALL_RESULT` has no member for a failure.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ResultMetadata {
    /// What LangGraph says of the result.
    pub langgraph: ResultStatus,
}

/// The status of a tool message.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ResultStatus {
    /// `error`, as in LangGraph's tool message.
    pub status: &'static str,
}

/// LangGraph's ids of a run, or why it failed.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LangGraphMetadata<'a> {
    /// The thread's id. It differs from the client's id if that one is no UUID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<&'a str>,
    /// The run's id. `None` for an idle thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<&'a str>,
    /// Why the run failed, or the last run of an idle thread. An idle thread's is not sent as
    /// `RUN_ERROR`: released clients lose the whole thread if that comes when they connect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<LastError<'a>>,
}

/// Why a run failed.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LastError<'a> {
    /// The exception's name.
    pub code: &'a str,
    /// The exception's text.
    pub message: &'a str,
    /// What each place of LangGraph reports about the failure.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub sources: &'a [ErrorReport],
}

/// How a run ended.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "the names are the specification's, which defines them")]
pub enum WireOutcome<'a> {
    Success {
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pending_tool_call_ids: Vec<&'a str>,
    },
    Interrupt {
        interrupts: Vec<WireInterrupt<'a>>,
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
pub struct WireInterrupt<'a> {
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

/// The tokens that one model has used in a run.
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
        // Strings, numbers and raw values always serialise. If one did not, half an event must not
        // be sent.
        if serde_json::to_writer(&mut *out, self).is_err() {
            out.truncate(before);
        }
    }
}
