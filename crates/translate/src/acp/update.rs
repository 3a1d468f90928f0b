//! The session updates of ACP v1 as strict output types.
//!
//! An optional member that has no value is left out, never null. The updates are written for
//! every token, so that they borrow what they can.

use std::borrow::Cow;

use serde::Serialize;

use crate::json::{Json, Text};

/// One update. Borrows from the run event that it projects.
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
    AvailableCommandsUpdate {
        available_commands: &'a [Command],
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
}

/// A piece of what somebody says.
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
        resource: Blob<'a>,
    },
}

/// A file that travels with what is said.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the names are the specification's, which defines them")]
pub struct Blob<'a> {
    pub uri: Cow<'a, Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<Cow<'a, Text>>,
    pub blob: Cow<'a, Text>,
}

/// A tool call, or what is new of one: on the wire they differ in what must be there.
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

/// What kind of thing a tool does: editors choose an icon by it.
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

/// A name that no kind of tool has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no kind of tool: read, edit, delete, move, search, execute, think, fetch, \
     switch_mode, other"
)]
pub struct UnknownKind(String);

/// How far a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are the specification's, which defines them")]
pub enum ToolStatus {
    Pending,
    InProgress,
    Completed,
    Failed,
}

/// What a call shows of itself.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "the names are the specification's, which defines them")]
pub enum ToolContent<'a> {
    Content {
        content: ContentBlock<'a>,
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
    /// Absolute.
    pub path: String,
    /// Counted from one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

/// One thing that the agent means to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlanEntry {
    /// What.
    pub content: Text,
    /// How much it matters.
    pub priority: Priority,
    /// How far it is.
    pub status: PlanStatus,
}

/// How much an entry of a plan matters. Graphs do not tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// What is said of every entry.
    Medium,
}

/// How far an entry of a plan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are the specification's, which defines them")]
pub enum PlanStatus {
    Pending,
    InProgress,
    Completed,
}

/// A command that a person can give, as `/name`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Command {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// What may stand behind it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<CommandInput>,
}

/// What may stand behind a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CommandInput {
    /// Shown while nothing stands there.
    pub hint: String,
}

// === impl ContentBlock ===

impl ContentBlock<'_> {
    /// A text of our own.
    pub fn text(text: &str) -> Self {
        Self::Text { text: Cow::Owned(Text::new(text)) }
    }
}

// === impl ToolCall ===

impl ToolCall<'_> {
    /// A call of which nothing is told but its id.
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
