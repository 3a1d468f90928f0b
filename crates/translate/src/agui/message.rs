//! Messages on the AG-UI wire: as snapshots write them. `read` reads those that clients send.

mod read;

use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::activity::{ActivityContent, activity};
use super::client::Version;
use super::media::WirePart;
use crate::json::Text;
use crate::run;

pub(super) use read::{as_shown, read};

/// A message.
#[derive(Debug, Serialize)]
#[serde(tag = "role", rename_all = "lowercase", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "the names are the specification's, which defines them")]
pub enum WireMessage<'a> {
    User {
        id: &'a str,
        content: WireContent<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<&'a Text>,
        #[serde(skip_serializing_if = "Option::is_none")]
        subagent_run_id: Option<&'a str>,
    },
    Assistant {
        id: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        content: Option<Text>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<WireToolCall<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<&'a Text>,
        #[serde(skip_serializing_if = "Option::is_none")]
        subagent_run_id: Option<&'a str>,
    },
    Tool {
        id: &'a str,
        tool_call_id: &'a str,
        content: WireContent<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<&'a Text>,
        #[serde(skip_serializing_if = "Option::is_none")]
        subagent_run_id: Option<&'a str>,
    },
    System {
        id: &'a str,
        content: Text,
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<&'a Text>,
        #[serde(skip_serializing_if = "Option::is_none")]
        subagent_run_id: Option<&'a str>,
    },
    Developer {
        id: &'a str,
        content: Text,
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<&'a Text>,
        #[serde(skip_serializing_if = "Option::is_none")]
        subagent_run_id: Option<&'a str>,
    },
    Reasoning {
        id: &'a str,
        content: Text,
        #[serde(skip_serializing_if = "Option::is_none")]
        encrypted_value: Option<&'a Text>,
        #[serde(skip_serializing_if = "Option::is_none")]
        subagent_run_id: Option<&'a str>,
    },
    Activity {
        id: &'a str,
        activity_type: &'static str,
        content: ActivityContent<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        subagent_run_id: Option<&'a str>,
    },
}

/// A tool call of an assistant's message.
#[derive(Debug, Serialize)]
pub struct WireToolCall<'a> {
    id: &'a str,
    r#type: &'static str,
    function: WireFunction<'a>,
}

/// The tool of a call, and its arguments.
#[derive(Debug, Serialize)]
pub struct WireFunction<'a> {
    name: &'a str,
    arguments: Text,
}

/// The content of a user's or a tool's message.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum WireContent<'a> {
    /// A string.
    Text(Text),
    /// A list of texts and media.
    Parts(Vec<WirePart<'a>>),
}

/// The messages of a snapshot.
#[derive(Clone, Copy, Debug)]
pub struct WireMessages<'a> {
    list: &'a [Arc<run::Message>],
    shared: Option<&'a run::Snapshot>,
    version: Version,
}

// === impl WireMessages ===

impl<'a> WireMessages<'a> {
    /// The messages of `list`. `shared` is the run's snapshot, if it holds exactly these messages.
    pub(super) fn new(
        list: &'a [Arc<run::Message>],
        shared: Option<&'a run::Snapshot>,
        version: Version,
    ) -> Self {
        Self { list, shared, version }
    }

    /// An empty conversation.
    pub const fn none() -> Self {
        Self { list: &[], shared: None, version: Version::V1 }
    }

    /// The run's snapshot of exactly these messages, and the form that this client gets.
    ///
    /// Clients of one form are sent the same bytes, so the caller writes them once.
    pub fn shared(&self) -> Option<(&'a run::Snapshot, usize)> {
        let form = match self.version {
            Version::V1 => 0,
            Version::Legacy => 1,
        };
        Some((self.shared?, form))
    }
}

impl Serialize for WireMessages<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer
            .collect_seq(self.list.iter().map(|message| WireMessage::of(message, self.version)))
    }
}

// === impl WireMessage ===

impl<'a> WireMessage<'a> {
    pub(super) fn of(message: &'a run::Message, version: Version) -> Self {
        let id = &*message.id;
        let name = message.name.as_ref();
        let subagent_run_id = message.agent.as_deref();
        match message.role {
            run::Role::User => Self::User {
                id,
                content: WireContent::of(&message.content, version),
                name,
                subagent_run_id,
            },
            run::Role::Assistant => Self::Assistant {
                id,
                // Clients treat an absent and an empty content differently.
                content: match &message.content {
                    run::Content::Absent => None,
                    content @ (run::Content::Text(_) | run::Content::Parts(_)) => {
                        Some(content.text())
                    }
                },
                tool_calls: message.calls.iter().map(WireToolCall::of).collect(),
                name,
                subagent_run_id,
            },
            run::Role::Tool => Self::Tool {
                id,
                tool_call_id: message.call_id.as_deref().unwrap_or_default(),
                content: WireContent::of_tool(&message.content, version),
                error: message.error.as_ref(),
                subagent_run_id,
            },
            run::Role::System => {
                Self::System { id, content: message.content.text(), name, subagent_run_id }
            }
            run::Role::Developer => {
                Self::Developer { id, content: message.content.text(), name, subagent_run_id }
            }
            run::Role::Reasoning => Self::Reasoning {
                id,
                content: message.content.text(),
                encrypted_value: message.sealed.as_ref(),
                subagent_run_id,
            },
            run::Role::Attachment => {
                let (activity_type, content) = activity(message);
                Self::Activity { id, activity_type, content, subagent_run_id }
            }
        }
    }
}

// === impl WireToolCall ===

impl<'a> WireToolCall<'a> {
    fn of(call: &'a run::Call) -> Self {
        let function = WireFunction { name: &call.name, arguments: call.args.to_text() };
        Self { id: &call.id, r#type: "function", function }
    }
}

// === impl WireContent ===

impl<'a> WireContent<'a> {
    pub(super) fn of(content: &'a run::Content, version: Version) -> Self {
        match content {
            run::Content::Parts(all) => {
                Self::Parts(all.iter().filter_map(|part| WirePart::of(part, version)).collect())
            }
            run::Content::Absent | run::Content::Text(_) => Self::Text(content.text()),
        }
    }

    pub(super) fn of_tool(content: &'a run::Content, version: Version) -> Self {
        match version {
            Version::V1 => Self::of(content, version),
            Version::Legacy => Self::Text(content.text()),
        }
    }
}
