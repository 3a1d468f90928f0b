//! Messages in LangChain's form, as a run's input carries them.

use serde_json::value::RawValue;

use super::{Call, Content, ContentPart, Message, Role, langgraph_call_id};
use crate::json::{self, Json, ObjectWriter};
use crate::langgraph;

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
            .raw("content", self.content.to_langchain().get())
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

    /// The message as clients would be sent it, if LangGraph stored it unchanged.
    ///
    /// LangChain knows more forms of one content than clients do, such as `data:` addresses.
    pub(crate) fn stored(&self) -> Self {
        let sent = self.to_langchain(|_| false);
        let read = langgraph::Message::parse(&sent);
        let read = read.and_then(|sent| Self::of_langchain(&sent, &self.id).pop());
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
        }
    }
}
