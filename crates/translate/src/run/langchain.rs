//! Messages in LangChain's form, as a run's input carries them.

use super::{Content, ContentPart, Message, Role, langgraph_call_id};
use crate::json::{self, Json, ObjectWriter};

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
