//! A LangChain message, whole or a chunk of one, with every field left raw until it is asked for.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::block::Block;
use crate::json::{self, Text};

/// A message as either server writes it. Fields that the gateway does not use are ignored.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Message<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    role: Option<&'a RawValue>,
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    additional_kwargs: Option<&'a RawValue>,
    #[serde(borrow)]
    response_metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    usage_metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_calls: Option<&'a RawValue>,
    #[serde(borrow)]
    invalid_tool_calls: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_call_chunks: Option<&'a RawValue>,
    #[serde(borrow)]
    chunk_position: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_call_id: Option<&'a RawValue>,
    #[serde(borrow)]
    status: Option<&'a RawValue>,
}

/// The member in which LangChain's harness names the feature that adds a message, or calls a model:
/// of a message's `additional_kwargs`, and of a call's metadata.
pub(super) const HARNESS_SOURCE: &str = "lc_source";

/// Where providers tell why their model stopped.
const FINISH_REASONS: [&str; 4] = ["finish_reason", "stop_reason", "stopReason", "done_reason"];

/// Where LangChain repeats it in its own words, since langchain-core 1.8. Not every provider's
/// integration does.
const NORMALIZED_REASON: &str = "normalized_finish_reason";

/// Why a model stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Finish {
    /// It was through, or calls tools.
    #[default]
    Done,
    /// It came to the limit of its tokens.
    Length,
    /// It, or a filter in front of it, would not answer.
    Refused,
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageType {
    /// What a person said.
    Human,
    /// What a model said, whole.
    Ai,
    /// A piece of what a model says.
    AiChunk,
    /// What a tool answered.
    Tool,
    /// Instructions.
    System,
    /// Instructions of the developer.
    Developer,
    /// Takes a message out of the conversation.
    Remove,
    /// A kind that LangChain has for free use (`chat`, `function`, ..).
    Other,
}

/// A fragment of a streamed tool call.
#[derive(Clone, Debug)]
pub struct CallChunk<'a> {
    /// Which of the message's calls: the raw index, which some providers leave out.
    pub index: Option<&'a str>,
    /// The call's id; on its first fragment.
    pub id: Option<Cow<'a, str>>,
    /// The tool's name; on its first fragment.
    pub name: Option<Cow<'a, str>>,
    /// The fragment. It may end anywhere, and is never parsed.
    pub args: Option<Text>,
}

/// A whole tool call.
#[derive(Debug)]
pub struct WholeCall<'a> {
    /// The call's id.
    pub id: Cow<'a, str>,
    /// The tool's name.
    pub name: Cow<'a, str>,
    /// The arguments as the text of a JSON object, or as the model spelt them where they are none.
    pub args: Text,
    /// The list of the message that has it.
    list: CallList,
}

/// The lists in which a message has its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallList {
    /// `tool_calls`.
    Parsed,
    /// `invalid_tool_calls`: LangChain could not parse their arguments.
    Unparsed,
}

// === impl Message ===

impl<'a> Message<'a> {
    /// Reads a message; `None` if the value is no object.
    pub fn parse(value: &'a RawValue) -> Option<Self> {
        // The derived reader would take an array for the list of an object's members.
        let is_object = value.get().starts_with('{');
        let read = || serde_json::from_str(value.get()).ok();
        is_object.then(|| read().or_else(|| Self::with_odd_key(value))).flatten()
    }

    /// Reads a message that has a key with half a surrogate pair, which the derived reader refuses.
    fn with_odd_key(value: &'a RawValue) -> Option<Self> {
        let (members, _) = json::mended_members(value)?;
        let get = |name| members.get(name);
        Some(Self {
            id: get("id"),
            kind: get("type"),
            role: get("role"),
            name: get("name"),
            content: get("content"),
            additional_kwargs: get("additional_kwargs"),
            response_metadata: get("response_metadata"),
            usage_metadata: get("usage_metadata"),
            tool_calls: get("tool_calls"),
            invalid_tool_calls: get("invalid_tool_calls"),
            tool_call_chunks: get("tool_call_chunks"),
            chunk_position: get("chunk_position"),
            tool_call_id: get("tool_call_id"),
            status: get("status"),
        })
    }

    /// Whether a value looks like a message: an object with a type or a role.
    pub(crate) fn is_message(value: &RawValue) -> bool {
        Message::parse(value).is_some_and(|m| m.kind.or(m.role).and_then(json::string).is_some())
    }

    /// What it is. The JavaScript server says `ai` for chunks too; they have `tool_call_chunks`.
    pub fn kind(&self) -> MessageType {
        match self.kind.or(self.role).map_or("", RawValue::get) {
            "\"AIMessageChunk\"" => MessageType::AiChunk,
            "\"ai\"" if self.tool_call_chunks.is_some() => MessageType::AiChunk,
            "\"ai\"" | "\"assistant\"" => MessageType::Ai,
            "\"human\"" | "\"user\"" | "\"HumanMessageChunk\"" => MessageType::Human,
            "\"tool\"" | "\"ToolMessageChunk\"" => MessageType::Tool,
            "\"system\"" if self.is_of_developer() => MessageType::Developer,
            "\"system\"" | "\"SystemMessageChunk\"" => MessageType::System,
            "\"developer\"" => MessageType::Developer,
            "\"remove\"" => MessageType::Remove,
            _ => MessageType::Other,
        }
    }

    /// LangChain's way to keep OpenAI's role: both servers call such a message a system's.
    fn is_of_developer(&self) -> bool {
        let kwargs = self.additional_kwargs.and_then(json::members);
        let role = kwargs.as_ref().and_then(|kwargs| kwargs.string("__openai_role__"));
        role.is_some_and(|role| role == "developer")
    }

    /// Which feature of LangChain's harness has added a human message that nobody typed.
    ///
    /// A tool's result has the mark too if a person decided about its call. It is a result all the
    /// same.
    pub fn notice_source(&self) -> Option<Cow<'a, str>> {
        let kwargs = self.additional_kwargs.filter(|kwargs| kwargs.get() != "{}")?;
        let source = json::members(kwargs)?.string(HARNESS_SOURCE)?;
        (self.kind() == MessageType::Human).then_some(source)
    }

    /// Whether it is what a person typed.
    pub fn is_typed(&self) -> bool {
        self.kind() == MessageType::Human && self.notice_source().is_none()
    }

    /// The id. Some messages of hand-written graphs have none.
    pub fn id(&self) -> Option<Cow<'a, str>> {
        self.id.and_then(json::string).filter(|id| !id.is_empty())
    }

    /// The author's name.
    pub fn name(&self) -> Option<Text> {
        self.name.and_then(Text::from_raw).filter(|name| !name.is_empty())
    }

    /// The content, block by block; a plain string is one text block.
    ///
    /// Reasoning that a provider keeps beside the content comes first, as the model thought first.
    pub fn blocks(&self) -> Vec<Block<'a>> {
        let mut blocks = Vec::new();
        if let Some(content) = self.content {
            Block::push_content(content, &mut blocks);
        }
        let kwargs = self.additional_kwargs.filter(|kwargs| kwargs.get() != "{}");
        let Some(kwargs) = kwargs else { return blocks };
        Block::push_additional_kwargs(kwargs, &mut blocks);
        // Only if the content holds no reasoning: LangChain's standard form has it in both places.
        if !blocks.iter().any(|block| matches!(block, Block::Reasoning(_))) {
            blocks.splice(0..0, Block::of_kwargs(kwargs));
        }
        blocks
    }

    /// The content, raw.
    pub fn content(&self) -> Option<&'a RawValue> {
        self.content
    }

    /// The fragments of tool calls on this chunk.
    pub(crate) fn call_chunks(&self) -> Vec<CallChunk<'a>> {
        let chunks = self.tool_call_chunks.filter(|chunks| chunks.get() != "[]");
        let items = chunks.and_then(json::items).unwrap_or_default();
        items.into_iter().filter_map(json::members).map(|m| CallChunk::from_members(&m)).collect()
    }

    /// Whether a chunk holds neither content nor a piece of a call. It may still name its message.
    pub(crate) fn is_empty(&self) -> bool {
        let is_empty = |raw: &RawValue| matches!(raw.get(), "\"\"" | "[]" | "null");
        self.content.is_none_or(is_empty) && self.tool_call_chunks.is_none_or(is_empty)
    }

    /// The tool calls of a whole message: those that LangChain could parse, then the others.
    pub fn calls(&self) -> Vec<WholeCall<'a>> {
        let lists =
            [(self.tool_calls, CallList::Parsed), (self.invalid_tool_calls, CallList::Unparsed)];
        let read = |(calls, list): (Option<&'a RawValue>, CallList)| {
            let items = calls.filter(|calls| calls.get() != "[]").and_then(json::items);
            let items = items.into_iter().flatten();
            items.filter_map(move |call| WholeCall::parse(call, list))
        };
        lists.into_iter().flat_map(read).collect()
    }

    /// The tool call that a tool message answers.
    pub fn tool_call_id(&self) -> Option<Cow<'a, str>> {
        self.tool_call_id.and_then(json::string)
    }

    /// Whether a tool message tells of a failure.
    pub fn is_error(&self) -> bool {
        self.status.is_some_and(|status| status.get() == "\"error\"")
    }

    /// Whether the model has said that this is its last chunk.
    ///
    /// Python says so on the chunk. Elsewhere the provider's reason to stop is the sign; what
    /// comes on the same chunk or after it still counts.
    pub fn is_last(&self) -> bool {
        if self.chunk_position.is_some_and(|position| position.get() == "\"last\"") {
            return true;
        }
        let metadata = self.response_metadata.filter(|m| m.get() != "{}").and_then(json::members);
        metadata.is_some_and(|m| {
            FINISH_REASONS.iter().any(|reason| m.get(reason).is_some_and(|r| r.get() != "null"))
        })
    }

    /// Why the model stopped, where the provider tells.
    pub fn finish(&self) -> Option<Finish> {
        let metadata = self.response_metadata.filter(|m| m.get() != "{}").and_then(json::members);
        Finish::of(&metadata?)
    }

    /// The tokens that the call has cost.
    pub fn usage(&self) -> Option<json::Members<'a>> {
        self.usage_metadata.and_then(json::members)
    }

    /// The provider and the model, as the provider's answer names them.
    pub fn model(&self) -> (Option<Cow<'a, str>>, Option<Cow<'a, str>>) {
        let metadata = self.response_metadata.filter(|m| m.get() != "{}").and_then(json::members);
        let metadata = metadata.unwrap_or_default();
        let model = metadata.string("model_name").or_else(|| metadata.string("model"));
        (metadata.string("model_provider"), model)
    }
}

// === impl Finish ===

impl Finish {
    /// Reads a provider's metadata: LangChain's words, then OpenAI's, Anthropic's, Google's,
    /// Mistral's. A normalized reason that says no more than that the model stopped gives way to the
    /// provider's own.
    pub fn of(metadata: &json::Members<'_>) -> Option<Self> {
        let normalized = metadata.string(NORMALIZED_REASON).map(|reason| Self::read(&reason));
        if let Some(Self::Length | Self::Refused) = normalized {
            return normalized;
        }
        let reason = FINISH_REASONS.iter().find_map(|name| metadata.string(name));
        reason.map(|reason| Self::read(&reason)).or(normalized)
    }

    fn read(reason: &str) -> Self {
        match reason.to_ascii_lowercase().as_str() {
            "length"
            | "max_tokens"
            | "max_output_tokens"
            | "model_length"
            | "model_context_window_exceeded" => Self::Length,
            "content_filter"
            | "refusal"
            | "safety"
            | "recitation"
            | "blocklist"
            | "prohibited_content"
            | "spii"
            | "guardrail_intervened"
            | "content_filtered" => Self::Refused,
            _ => Self::Done,
        }
    }
}

// === impl CallChunk ===

impl<'a> CallChunk<'a> {
    fn from_members(members: &json::Members<'a>) -> Self {
        Self {
            index: members.get("index").map(RawValue::get).filter(|index| *index != "null"),
            id: members.string("id").filter(|id| !id.is_empty()),
            name: members.string("name").filter(|name| !name.is_empty()),
            args: members.text("args").filter(|args| !args.is_empty()),
        }
    }
}

// === impl WholeCall ===

impl<'a> WholeCall<'a> {
    /// Whether a tool can run it.
    pub fn is_valid(&self) -> bool {
        self.list == CallList::Parsed && !self.name.is_empty()
    }

    fn parse(call: &'a RawValue, list: CallList) -> Option<Self> {
        let members = json::members(call)?;
        let id = members.string("id").filter(|id| !id.is_empty())?;
        // OpenAI's own form, in states that hold dictionaries.
        let members = members.get("function").and_then(json::members).unwrap_or(members);
        let args = members.get("args").or_else(|| members.get("arguments"));
        Some(Self {
            id,
            name: members.string("name").unwrap_or_default(),
            args: args
                .and_then(Text::from_raw)
                .unwrap_or_else(|| Text::new(args.map_or("{}", RawValue::get))),
            list,
        })
    }
}
