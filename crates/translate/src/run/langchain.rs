//! Messages in LangChain's form, as a run's input carries them.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::{Call, Content, ContentPart, Harness, Message, Role, langgraph_call_id};
use crate::json::{self, Json, ObjectWriter, Text, TextBuf};
use crate::langgraph;

/// The content of a failed tool that says nothing. Anthropic refuses a failed result without content.
const UNEXPLAINED: &str = "the tool failed and said nothing";

// === impl Message ===

impl Message {
    /// The message as a run's input carries it. `is_message` says which ids are those of messages:
    /// the id of a call may contain one.
    pub fn to_langchain(&self, is_message: impl Fn(&str) -> bool) -> Json {
        let kind = match self.role {
            Role::User | Role::Assistant | Role::Reasoning | Role::Attachment => "human",
            Role::Tool => "tool",
            Role::System | Role::Developer => "system",
        };
        let mut object = ObjectWriter::new()
            .string("type", kind)
            .string("id", &self.id)
            .raw("content", self.content_with_error().to_langchain().get())
            .optional("name", self.name.as_ref());
        if self.role == Role::Developer {
            // LangChain's way to keep OpenAI's role.
            object = object.raw("additional_kwargs", "{\"__openai_role__\":\"developer\"}");
        }
        if let Some(call) = &self.call_id {
            let status = if self.error.is_some() { "error" } else { "success" };
            object = object
                .string("tool_call_id", langgraph_call_id(call, is_message))
                .string("status", status);
        }
        object.finish()
    }

    /// The content, which of a failed tool has the error's text at its end: a model reads nothing else
    /// of a result.
    fn content_with_error(&self) -> Cow<'_, Content> {
        match (&self.role, &self.error) {
            (Role::Tool, Some(error)) => Cow::Owned(self.content.with_error(error)),
            _ => Cow::Borrowed(&self.content),
        }
    }

    /// The message as clients would be sent it, if LangGraph stored it unchanged.
    ///
    /// LangChain knows more forms of one content than clients do, such as `data:` addresses.
    pub(crate) fn stored(&self) -> Self {
        let sent = self.to_langchain(|_| false);
        let read = langgraph::Message::parse(&sent);
        let read = read.and_then(|sent| Self::of_langchain(&sent, &self.id, Harness::Show).pop());
        read.unwrap_or_else(|| self.clone())
    }
}

// === impl Call ===

impl Call {
    /// The call in LangChain's form. `None` if its arguments are no JSON object.
    pub(crate) fn to_langchain(&self, is_message: impl Fn(&str) -> bool) -> Option<Json> {
        let args = self.args.to_text();
        let args = args.decode();
        let args = if args.trim().is_empty() { "{}".into() } else { args };
        let args =
            serde_json::from_str::<&RawValue>(&args).ok().filter(|a| json::members(a).is_some())?;
        Some(
            ObjectWriter::new()
                .string("type", "tool_call")
                .string("id", langgraph_call_id(&self.id, is_message))
                .string("name", &self.name)
                .raw("args", args.get())
                .finish(),
        )
    }
}

// === impl Content ===

impl Content {
    /// The content with an error's text at its end, unless it contains that text.
    fn with_error(&self, error: &Text) -> Self {
        let (said, error) = (self.text(), error.decode());
        let said = said.decode();
        let error = match error.trim() {
            "" if self.is_empty() => UNEXPLAINED,
            error if said.contains(error) => return self.clone(),
            _ => &*error,
        };
        let text = if said.trim().is_empty() { error.into() } else { format!("{said}\n{error}") };
        match self {
            Self::Parts(parts) if !parts.is_empty() => {
                let error = ContentPart::Text(Text::new(error));
                Self::Parts(parts.iter().cloned().chain([error]).collect())
            }
            Self::Absent | Self::Text(_) | Self::Parts(_) => {
                Self::Text(TextBuf::from(&Text::new(&text)))
            }
        }
    }

    /// A string, or a list of LangChain's standard blocks.
    fn to_langchain(&self) -> Json {
        match self {
            Self::Absent | Self::Text(_) => self.text().into(),
            Self::Parts(parts) => {
                let blocks: Vec<_> = parts.iter().map(ContentPart::to_langchain).collect();
                json::array(blocks.iter().map(|block| block.get()))
            }
        }
    }
}

// === impl ContentPart ===

impl ContentPart {
    fn to_langchain(&self) -> Json {
        match self {
            Self::Text(text) => {
                ObjectWriter::new().string("type", "text").text("text", text).finish()
            }
            Self::Media(media) => media.to_langchain(),
            Self::Block(json) | Self::Annotations(json) => json.clone(),
            Self::Notice(notice) => {
                ObjectWriter::new().string("type", "text").text("text", &notice.text).finish()
            }
        }
    }
}
