//! The session updates of ACP v1 as strict output types.
//!
//! An optional member that has no value is left out, never null. Updates are written for every
//! token, so they borrow what they can.

use std::borrow::Cow;

use serde::Serialize;

use crate::json::{Json, Text};

/// One update. It borrows from the run event that it projects.
#[derive(Debug, Serialize)]
#[serde(tag = "sessionUpdate", rename_all = "snake_case", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "the names are the specification's, which defines them")]
pub enum Update<'a> {
    UserMessageChunk {
        content: ContentBlock<'a>,
        message_id: &'a str,
    },
    AgentMessageChunk {
        content: ContentBlock<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        message_id: Option<&'a str>,
    },
    AgentThoughtChunk {
        content: ContentBlock<'a>,
        message_id: &'a str,
    },
    ToolCall(ToolCall<'a>),
    ToolCallUpdate(ToolCall<'a>),
    Plan {
        entries: &'a [PlanEntry],
    },
    PlanUpdate {
        plan: Plan<'a>,
    },
    PlanRemoved {
        plan_id: &'a str,
    },
    AvailableCommandsUpdate {
        available_commands: &'a [AvailableCommand],
    },
    CurrentModeUpdate {
        current_mode_id: &'a str,
    },
    ConfigOptionUpdate {
        config_options: &'a Json,
    },
    SessionInfoUpdate {
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        updated_at: Option<&'a str>,
    },
    UsageUpdate {
        used: u64,
        size: u64,
    },
    CompactionUpdate {
        compaction_id: &'a str,
        status: CompactionStatus,
        summary: Vec<ContentBlock<'a>>,
    },
    Notice {
        severity: NoticeSeverity,
        title: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        description: Option<&'a str>,
    },
    SubagentUpdate(SubagentUpdate<'a>),
    SessionMessage {
        message_id: &'a str,
        sender_session_id: &'a str,
        recipient_session_id: &'a str,
        content: Vec<ContentBlock<'a>>,
    },
    CursorUpdate {
        cursor_id: &'a str,
        capabilities: CursorCapabilities,
        anchor: &'a CursorAnchor,
    },
    /// No kind of its own: an update of a child session.
    #[serde(skip)]
    OfChild {
        session_id: &'a str,
        update: &'a Self,
    },
}

/// A plan with an id.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "the names are the specification's, which defines them")]
pub enum Plan<'a> {
    Items { plan_id: &'a str, entries: &'a [PlanEntry] },
}

/// A child session, and what has changed of it.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SubagentUpdate<'a> {
    /// The id of the child session.
    pub session_id: &'a str,
    /// The name of the subagent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<&'a str>,
    /// What it works on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<&'a str>,
    /// Whether it works.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<&'a SubagentState>,
}

/// Whether a subagent works, and why it stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "the names are the specification's, which defines them")]
pub enum SubagentState {
    Running,
    RequiresAction,
    Unknown,
    Idle {
        stop_reason: IdleReason,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<StateError>,
    },
}

/// Why a subagent stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are the specification's, which defines them")]
pub enum IdleReason {
    EndTurn,
    MaxTokens,
    MaxTurnRequests,
    Refusal,
    Cancelled,
    Error,
}

/// The failure that stopped a subagent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StateError {
    /// The code of a JSON-RPC error.
    pub code: i64,
    /// The text for a person.
    pub message: String,
}

/// How far the summary of a conversation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are the specification's, which defines them")]
pub enum CompactionStatus {
    Completed,
}

/// How serious a notice is. Editors choose its looks by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are the specification's, which defines them")]
pub enum NoticeSeverity {
    Info,
    Warning,
    Error,
}

/// One piece of content.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "the names are the specification's, which defines them")]
pub enum ContentBlock<'a> {
    Text {
        text: Cow<'a, Text>,
    },
    Image {
        data: Cow<'a, Text>,
        mime_type: Cow<'a, Text>,
    },
    Audio {
        data: Cow<'a, Text>,
        mime_type: Cow<'a, Text>,
    },
    ResourceLink {
        name: Cow<'a, Text>,
        uri: Cow<'a, Text>,
        #[serde(skip_serializing_if = "Option::is_none")]
        mime_type: Option<Cow<'a, Text>>,
    },
    Resource {
        resource: EmbeddedFile<'a>,
    },
}

/// A file that is embedded in the content.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the names are the specification's, which defines them")]
pub struct EmbeddedFile<'a> {
    pub uri: Cow<'a, Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<Cow<'a, Text>>,
    #[serde(flatten)]
    pub contents: FileContents<'a>,
}

/// The contents of an embedded file.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the names are the specification's, which defines them")]
pub enum FileContents<'a> {
    Text(Cow<'a, Text>),
    /// Bytes in base64.
    Blob(Cow<'a, Text>),
}

/// A tool call, or a change of one. On the wire, the two differ only in which members are required.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the names are the specification's, which defines them")]
pub struct ToolCall<'a> {
    pub tool_call_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<ToolKind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<ToolStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<Vec<ToolContent<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locations: Option<Vec<Location>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw_input: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw_output: Option<Json>,
}

/// What a tool does. Editors choose an icon by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are the specification's, which defines them")]
pub enum ToolKind {
    Read,
    Edit,
    Delete,
    Move,
    Search,
    Execute,
    Think,
    Fetch,
    SwitchMode,
    Other,
}

/// A word that names no [`ToolKind`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no kind of tool: read, edit, delete, move, search, execute, think, fetch, \
     switch_mode, other"
)]
pub struct UnknownKind(String);

/// The progress of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are the specification's, which defines them")]
pub enum ToolStatus {
    Pending,
    InProgress,
    Completed,
    Failed,
}

/// The content of a call: its result, or the change that it makes to a file.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "the names are the specification's, which defines them")]
pub enum ToolContent<'a> {
    Content {
        content: ContentBlock<'a>,
    },
    Session {
        session_id: String,
    },
    Diff {
        path: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        old_text: Option<Text>,
        new_text: Text,
    },
}

/// A file that a call touches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Location {
    /// The absolute path.
    pub path: String,
    /// The line, counted from one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

/// One entry of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlanEntry {
    /// What is to be done.
    pub content: Text,
    /// The priority.
    pub priority: Priority,
    /// The progress.
    pub status: PlanStatus,
}

/// The priority of a plan entry. Graphs give none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// The priority of every entry.
    Medium,
}

/// The progress of a plan entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are the specification's, which defines them")]
pub enum PlanStatus {
    Pending,
    InProgress,
    Completed,
}

/// A command that a person can type as `/name`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AvailableCommand {
    /// The name, without the slash.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The input that may follow the name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<AvailableCommandInput>,
}

/// The input of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AvailableCommandInput {
    /// The placeholder that is shown while the input is empty.
    pub hint: String,
}

/// The methods that accept a cursor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CursorCapabilities {
    fork: Supported,
}

/// The empty object by which ACP says that something is supported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Supported {}

/// What a client shows immediately before a cursor.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "the names are the specification's, which defines them")]
pub enum CursorAnchor {
    UserMessage { message_id: String, position: CursorPosition },
    AgentMessage { message_id: String, position: CursorPosition },
    AgentThought { message_id: String, position: CursorPosition },
    ToolCall { tool_call_id: String, position: CursorPosition },
    Compaction { compaction_id: String, position: CursorPosition },
}

/// On which side of its anchor a cursor is. A turn ends after something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are the specification's, which defines them")]
pub enum CursorPosition {
    After,
}

/// Why a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are the specification's, which defines them")]
pub enum StopReason {
    EndTurn,
    MaxTokens,
    MaxTurnRequests,
    Refusal,
    Cancelled,
}

// === impl ContentBlock ===

impl ContentBlock<'_> {
    /// A text block.
    pub fn text(text: &str) -> Self {
        Self::Text { text: Cow::Owned(Text::new(text)) }
    }
}

// === impl SubagentState ===

impl SubagentState {
    /// The state of a subagent that has stopped.
    pub fn ended(reason: StopReason) -> Self {
        let stop_reason = match reason {
            StopReason::EndTurn => IdleReason::EndTurn,
            StopReason::MaxTokens => IdleReason::MaxTokens,
            StopReason::MaxTurnRequests => IdleReason::MaxTurnRequests,
            StopReason::Refusal => IdleReason::Refusal,
            StopReason::Cancelled => IdleReason::Cancelled,
        };
        Self::Idle { stop_reason, error: None }
    }
}

// === impl ToolCall ===

impl ToolCall<'_> {
    /// A call, or a change of one, with nothing but its id.
    pub fn of(id: &str) -> Self {
        Self { tool_call_id: id.to_owned(), ..Self::default() }
    }
}

// === impl ToolKind ===

impl std::str::FromStr for ToolKind {
    type Err = UnknownKind;

    fn from_str(name: &str) -> Result<Self, UnknownKind> {
        Ok(match name {
            "read" => Self::Read,
            "edit" => Self::Edit,
            "delete" => Self::Delete,
            "move" => Self::Move,
            "search" => Self::Search,
            "execute" => Self::Execute,
            "think" => Self::Think,
            "fetch" => Self::Fetch,
            "switch_mode" => Self::SwitchMode,
            "other" => Self::Other,
            _ => return Err(UnknownKind(name.to_owned())),
        })
    }
}
