//! Messages on the AG-UI wire, both ways: as snapshots write them and as clients send them.

use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::activity::{ActivityContent, activity};
use crate::json::{self, Json, ObjectWriter, Text, TextBuf};
use crate::langgraph::{Media, Source};
use crate::run;

/// A message.
#[derive(Debug, Serialize)]
#[serde(tag = "role", rename_all = "lowercase", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "the names are the specification's, which defines them")]
pub enum Message<'a> {
    User {
        id: &'a str,
        content: Content<'a>,
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
        tool_calls: Vec<ToolCall<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<&'a Text>,
        #[serde(skip_serializing_if = "Option::is_none")]
        subagent_run_id: Option<&'a str>,
    },
    Tool {
        id: &'a str,
        tool_call_id: &'a str,
        content: Content<'a>,
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

/// A tool call of an assistant.
#[derive(Debug, Serialize)]
pub struct ToolCall<'a> {
    id: &'a str,
    r#type: &'static str,
    function: FunctionCall<'a>,
}

/// What is called.
#[derive(Debug, Serialize)]
pub struct FunctionCall<'a> {
    name: &'a str,
    arguments: Text,
}

/// What a person or a tool says.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Content<'a> {
    /// Text.
    Text(Text),
    /// Text and media.
    Parts(Vec<ContentPart<'a>>),
}

/// A piece of content.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names are the specification's, which defines them")]
pub enum ContentPart<'a> {
    Text {
        text: &'a Text,
    },
    Image {
        source: PartSource<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        metadata: Option<PartMetadata<'a>>,
    },
    Audio {
        source: PartSource<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        metadata: Option<PartMetadata<'a>>,
    },
    Video {
        source: PartSource<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        metadata: Option<PartMetadata<'a>>,
    },
    Document {
        source: PartSource<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        metadata: Option<PartMetadata<'a>>,
    },
}

/// Where the bytes of a part are.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "the names are the specification's, which defines them")]
pub enum PartSource<'a> {
    Data {
        value: &'a Text,
        mime_type: Text,
    },
    Url {
        value: &'a Text,
        #[serde(skip_serializing_if = "Option::is_none")]
        mime_type: Option<&'a Text>,
    },
    File {
        value: &'a Text,
        #[serde(skip_serializing_if = "Option::is_none")]
        mime_type: Option<&'a Text>,
    },
}

/// What a part tells of itself.
#[derive(Debug, Serialize)]
pub struct PartMetadata<'a> {
    filename: &'a Text,
}

/// What the client's generation can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parts {
    /// Parts wherever 1.0 allows them.
    All,
    /// A tool's text parts are concatenated, without a placeholder for others. No `file` sources.
    Legacy,
}

/// The messages of a snapshot.
#[derive(Clone, Copy, Debug)]
pub struct Messages<'a> {
    list: &'a [Arc<run::Message>],
    shared: Option<&'a run::Snapshot>,
    parts: Parts,
}

// === impl Messages ===

impl<'a> Messages<'a> {
    /// These messages; `shared` holds just these, if anything does.
    pub(super) fn new(
        list: &'a [Arc<run::Message>],
        shared: Option<&'a run::Snapshot>,
        parts: Parts,
    ) -> Self {
        Self { list, shared, parts }
    }

    /// None.
    pub const fn none() -> Self {
        Self { list: &[], shared: None, parts: Parts::All }
    }

    /// What holds just these messages, to share what is written of them; and in which form.
    pub fn shared(&self) -> Option<(&'a run::Snapshot, usize)> {
        let form = match self.parts {
            Parts::All => 0,
            Parts::Legacy => 1,
        };
        Some((self.shared?, form))
    }
}

impl Serialize for Messages<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.list.iter().map(|message| Message::of(message, self.parts)))
    }
}

// === impl Message ===

impl<'a> Message<'a> {
    pub(super) fn of(message: &'a run::Message, parts: Parts) -> Self {
        let id = &*message.id;
        let name = message.name.as_ref();
        let subagent_run_id = message.agent.as_deref();
        match message.role {
            run::Role::User => Self::User {
                id,
                content: Content::of(&message.content, parts),
                name,
                subagent_run_id,
            },
            run::Role::Assistant => Self::Assistant {
                id,
                // Absent is not empty: a client tells them apart.
                content: match &message.content {
                    run::Content::Absent => None,
                    content @ (run::Content::Text(_) | run::Content::Parts(_)) => {
                        Some(content.text())
                    }
                },
                tool_calls: message.calls.iter().map(ToolCall::of).collect(),
                name,
                subagent_run_id,
            },
            run::Role::Tool => Self::Tool {
                id,
                tool_call_id: message.call_id.as_deref().unwrap_or_default(),
                content: Content::of_tool(&message.content, parts),
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

// === impl ToolCall ===

impl<'a> ToolCall<'a> {
    fn of(call: &'a run::Call) -> Self {
        let function = FunctionCall { name: &call.name, arguments: call.args.to_text() };
        Self { id: &call.id, r#type: "function", function }
    }
}

// === impl Content ===

impl<'a> Content<'a> {
    pub(super) fn of(content: &'a run::Content, parts: Parts) -> Self {
        match content {
            run::Content::Parts(all) => {
                Self::Parts(all.iter().filter_map(|part| ContentPart::of(part, parts)).collect())
            }
            run::Content::Absent | run::Content::Text(_) => Self::Text(content.text()),
        }
    }

    pub(super) fn of_tool(content: &'a run::Content, parts: Parts) -> Self {
        match parts {
            Parts::All => Self::of(content, parts),
            Parts::Legacy => Self::Text(content.text()),
        }
    }
}

// === impl ContentPart ===

impl<'a> ContentPart<'a> {
    fn of(part: &'a run::ContentPart, parts: Parts) -> Option<Self> {
        let media = match part {
            run::ContentPart::Text(text) => return Some(Self::Text { text }),
            run::ContentPart::Media(media) => media,
            // Only attachments hold these.
            run::ContentPart::Block(_) | run::ContentPart::Annotations(_) => return None,
        };
        if matches!(media.source, Source::File(_)) && parts == Parts::Legacy {
            return None;
        }
        let source = part_source(media);
        let metadata = media.filename.as_ref().map(|filename| PartMetadata { filename });
        Some(match media.kind {
            "image" => Self::Image { source, metadata },
            "audio" => Self::Audio { source, metadata },
            "video" => Self::Video { source, metadata },
            _ => Self::Document { source, metadata },
        })
    }
}

/// Where the bytes of media are, in AG-UI's form.
pub(super) fn part_source(media: &Media) -> PartSource<'_> {
    let mime_type = media.mime_type.as_ref();
    match &media.source {
        Source::Data(value) => {
            let default = || Text::new(default_mime(media.kind));
            PartSource::Data { value, mime_type: mime_type.cloned().unwrap_or_else(default) }
        }
        Source::Url(value) => PartSource::Url { value, mime_type },
        Source::File(value) => PartSource::File { value, mime_type },
    }
}

/// The media type of bytes whose block names none.
fn default_mime(kind: &str) -> &'static str {
    match kind {
        "image" => "image/png",
        "audio" => "audio/wav",
        "video" => "video/mp4",
        _ => "application/octet-stream",
    }
}

// === from the client ===

/// Reads a message as a client holds it; `None` for roles that are the client's own affair, and for
/// activities: what of them is a message's comes with the message.
pub(super) fn read(members: &json::Members<'_>) -> Option<run::Message> {
    let role = match &*members.string("role")? {
        "user" => run::Role::User,
        "assistant" => run::Role::Assistant,
        "tool" => run::Role::Tool,
        "system" => run::Role::System,
        "developer" => run::Role::Developer,
        "reasoning" => run::Role::Reasoning,
        _ => return None,
    };
    let mut message = run::Message::new(run::Id::from(&*members.string("id")?), role);
    message.name = members.text("name");
    message.content = members.get("content").map_or(run::Content::Absent, read_content);
    message.sealed = members.text("encryptedValue");
    message.error = members.text("error");
    message.call_id = members.string("toolCallId").map(|id| run::Id::from(&*id));
    let calls = members.get("toolCalls").and_then(json::items).unwrap_or_default();
    message.calls = calls.into_iter().filter_map(read_call).collect();
    Some(message)
}

fn read_call(call: &RawValue) -> Option<run::Call> {
    let members = json::members(call)?;
    let function = json::members(members.get("function")?)?;
    Some(run::Call {
        id: run::Id::from(&*members.string("id")?),
        name: run::Id::from(&*function.string("name")?),
        args: function.text("arguments").map(|args| TextBuf::from(&args)).unwrap_or_default(),
    })
}

fn read_content(content: &RawValue) -> run::Content {
    if let Some(text) = Text::from_raw(content) {
        return run::Content::Text(TextBuf::from(&text));
    }
    let Some(items) = json::items(content) else { return run::Content::Absent };
    joined(items.into_iter().filter_map(read_part).collect())
}

/// `None` for a part that the graph cannot use. It is skipped: AG-UI forbids that it fails the run.
fn read_part(part: &RawValue) -> Option<run::ContentPart> {
    let members = json::members(part)?;
    let kind = match &*members.string("type")? {
        "text" => return members.text("text").map(run::ContentPart::Text),
        "image" => "image",
        "audio" => "audio",
        "video" => "video",
        "document" => "file",
        "binary" => return read_binary(&members),
        _ => return None,
    };
    let source = json::members(members.get("source")?)?;
    let value = source.text("value")?;
    let filename = members.get("metadata").and_then(json::members).and_then(|m| m.text("filename"));
    Some(run::ContentPart::Media(Media {
        kind,
        source: match &*source.string("type")? {
            "data" => Source::Data(value),
            "url" => Source::Url(value),
            "file" => Source::File(value),
            _ => return None,
        },
        mime_type: source.text("mimeType"),
        filename,
    }))
}

/// The retired `binary` part, which older clients still send.
fn read_binary(members: &json::Members<'_>) -> Option<run::ContentPart> {
    let mime_type = members.text("mimeType")?;
    let kind = match mime_type.decode().split('/').next() {
        Some("image") => "image",
        Some("audio") => "audio",
        Some("video") => "video",
        _ => "file",
    };
    let source = members
        .text("data")
        .map(Source::Data)
        .or_else(|| members.text("url").map(Source::Url))
        .or_else(|| members.text("id").map(Source::File))?;
    let filename = members.text("filename");
    Some(run::ContentPart::Media(Media { kind, source, mime_type: Some(mime_type), filename }))
}

/// A content as a client has it that was shown it on the wire.
pub(super) fn as_shown(content: &run::Content, parts: Parts) -> run::Content {
    let run::Content::Parts(all) = content else { return content.clone() };
    let shown = all.iter().filter_map(|part| match part {
        run::ContentPart::Text(_) => Some(part.clone()),
        run::ContentPart::Block(_) | run::ContentPart::Annotations(_) => None,
        run::ContentPart::Media(media) => match &media.source {
            Source::File(_) if parts == Parts::Legacy => None,
            Source::Data(_) if media.mime_type.is_none() => {
                let mime_type = Some(Text::new(default_mime(media.kind)));
                Some(run::ContentPart::Media(Media { mime_type, ..media.clone() }))
            }
            Source::Data(_) | Source::Url(_) | Source::File(_) => Some(part.clone()),
        },
    });
    joined(shown.collect())
}

/// LangGraph's blocks of mere text are shown joined: so are the client's.
fn joined(parts: Arc<[run::ContentPart]>) -> run::Content {
    let is_text = parts.iter().all(|part| matches!(part, run::ContentPart::Text(_)));
    let content = run::Content::Parts(parts);
    if is_text { run::Content::Text(TextBuf::from(&content.text())) } else { content }
}

/// A content as LangChain's standard blocks.
pub(super) fn to_langchain(content: &run::Content) -> Json {
    match content {
        run::Content::Absent | run::Content::Text(_) => content.text().into(),
        run::Content::Parts(parts) => {
            let blocks: Vec<_> = parts.iter().map(part_to_langchain).collect();
            json::array(blocks.iter().map(|block| block.get()))
        }
    }
}

fn part_to_langchain(part: &run::ContentPart) -> Json {
    let media = match part {
        run::ContentPart::Text(text) => {
            return ObjectWriter::new().string("type", "text").text("text", text).finish();
        }
        run::ContentPart::Block(json) | run::ContentPart::Annotations(json) => return json.clone(),
        run::ContentPart::Media(media) => media,
    };
    let (field, value) = match &media.source {
        Source::Data(value) => ("base64", value),
        Source::Url(value) => ("url", value),
        Source::File(value) => ("file_id", value),
    };
    ObjectWriter::new()
        .string("type", media.kind)
        .text(field, value)
        .optional("mime_type", media.mime_type.as_ref())
        .optional("filename", media.filename.as_ref())
        .finish()
}
