//! Messages as clients hold them, and how LangChain's messages become these.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::reasoning::ReasoningMatcher;
use super::{Harness, Id};
use crate::json::{self, Json, Text, TextBuf};
use crate::langgraph::{self, Block, Media, MessageType};

/// A message. One of LangChain's may become several: its reasoning is a message of its own, and so
/// is each part of an assistant's message that is not text.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// LangGraph's id.
    pub id: Id,
    /// Its author.
    pub role: Role,
    /// The author's name.
    pub name: Option<Text>,
    /// What is said.
    pub content: Content,
    /// The tool calls of an assistant.
    pub calls: Vec<Call>,
    /// The call whose result a tool message is.
    pub call_id: Option<Id>,
    /// The error text of a tool message that reports a failure.
    pub error: Option<Text>,
    /// Reasoning in encrypted form, which only the provider can read.
    pub sealed: Option<Text>,
    /// The subagent that wrote it. `None` for the run's own agent.
    pub agent: Option<Id>,
    /// What an assistant has done between pieces of its text, in order. Empty if that is not known.
    pub between: Arc<[Insertion]>,
}

/// What an assistant has done between two pieces of a message's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Insertion {
    /// How much of the text is before it, in bytes of its escaped form.
    pub at: usize,
    /// What it is.
    pub what: Inserted,
}

/// What an assistant does between pieces of its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// The reasoning with this message id.
    Reasoning(Id),
    /// The attachment with this message id.
    Attachment(Id),
    /// The call with this number among those of the message.
    Call(usize),
}

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A person.
    User,
    /// The agent.
    Assistant,
    /// A tool.
    Tool,
    /// System instructions.
    System,
    /// A developer's instructions.
    Developer,
    /// The model's reasoning.
    Reasoning,
    /// A part of an assistant's message that is not text, or a notice. Its content has one part, or
    /// is absent after the attachment was removed.
    Attachment,
}

/// What a message contains.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// Nothing, as in an assistant's message that only calls tools.
    Absent,
    /// Text.
    Text(TextBuf),
    /// Text and media, or the content of an attachment.
    Parts(Arc<[ContentPart]>),
}

/// A piece of a message's content.
#[derive(Clone, Debug, PartialEq)]
pub enum ContentPart {
    /// Text.
    Text(Text),
    /// An image, a recording, a document.
    Media(Media),
    /// A block of an unknown kind, byte for byte. Only attachments have one.
    Block(Json),
    /// Annotations or citations of a message's text, each byte for byte. Only attachments have
    /// them.
    Annotations(Json),
    /// A message that nobody typed. It is the whole content of an attachment.
    Notice(HarnessNotice),
}

/// A human message that LangChain's harness has added to the conversation, for the model to read.
#[derive(Clone, Debug, PartialEq)]
pub struct HarnessNotice {
    /// The feature that has added it: `summarization`, `pinned_skill`. A graph may have its own.
    pub source: Text,
    /// What the model reads.
    pub text: Text,
}

/// A tool call.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The id that clients know it by. It differs from LangGraph's if another message used that id
    /// before.
    pub id: Id,
    /// The tool's name.
    pub name: Id,
    /// The arguments that have arrived so far.
    pub args: TextBuf,
    /// Whether a tool can run it.
    pub form: CallForm,
}

/// Whether a tool can run a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallForm {
    /// It can, as far as is known: a call that streams has no other form.
    Valid,
    /// It cannot: the call has no name, or LangChain could not parse its arguments.
    Invalid,
}

/// Separates the message's id from the attachment's number in an attachment's id.
const ATTACHED: &str = ":attachment:";

/// Follows the message's id in a notice's id. A message of another kind may have had the id itself.
const NOTICE: &str = ":notice";

/// How much of a message has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    Whole,
    Prefix,
}

// === impl Message ===

impl Message {
    /// A message without content.
    pub fn new(id: Id, role: Role) -> Self {
        Self {
            id,
            role,
            name: None,
            content: Content::Absent,
            calls: Vec::new(),
            call_id: None,
            error: None,
            sealed: None,
            agent: None,
            between: Arc::default(),
        }
    }

    /// Attachment number `at` of a message.
    fn attachment(owner: &Id, at: usize, part: ContentPart) -> Self {
        let mut message = Self::new(attachment_id(owner, at), Role::Attachment);
        message.content = Content::Parts([part].into());
        message
    }

    /// The notice that a human message becomes which nobody typed.
    fn notice(id: &str, source: &str, content: &Content) -> Self {
        let notice = HarnessNotice { source: Text::new(source), text: content.text() };
        let mut message = Self::new(Id::from(format!("{id}{NOTICE}")), Role::Attachment);
        message.content = Content::Parts([ContentPart::Notice(notice)].into());
        message
    }

    /// The id of LangGraph's message that is shown as this notice.
    pub(super) fn noticed(&self) -> Option<&str> {
        match self.attached() {
            Some(ContentPart::Notice(_)) => self.id.strip_suffix(NOTICE),
            _ => None,
        }
    }

    /// The id of the message that an attachment belongs to. A notice belongs to none.
    pub fn owner(&self) -> Option<&str> {
        let is_attachment = self.role == Role::Attachment;
        self.id.rsplit_once(ATTACHED).filter(|_| is_attachment).map(|(owner, _)| owner)
    }

    /// The number of an attachment among those of its message; 0 for other messages.
    pub fn number(&self) -> usize {
        let number = self.owner().and_then(|owner| self.id.get(owner.len() + ATTACHED.len()..));
        number.and_then(|number| number.parse().ok()).unwrap_or_default()
    }

    /// The content of an attachment. `None` if it was removed, and for other messages.
    pub fn attached(&self) -> Option<&ContentPart> {
        match &self.content {
            Content::Parts(parts) if self.role == Role::Attachment => parts.first(),
            Content::Parts(_) | Content::Absent | Content::Text(_) => None,
        }
    }

    /// Whether a client would show the same, regardless of the subagent and the author's name.
    ///
    /// Arguments are compared as JSON: a stream keeps the model's spelling, and a state has
    /// LangGraph's. The name is not compared because the JavaScript agents add it only when they
    /// commit a message (langchain 1.5.14). A name is not worth a snapshot of the whole
    /// conversation after each run.
    pub(crate) fn shows_same(&self, other: &Self) -> bool {
        let Self {
            id,
            role,
            name: _,
            content,
            calls,
            call_id,
            error,
            sealed,
            agent: _,
            between: _,
        } = self;
        *id == other.id
            && *role == other.role
            && content.shows_same(&other.content)
            && calls.len() == other.calls.len()
            && calls.iter().zip(&other.calls).all(|(a, b)| a.shows_same(b))
            && *call_id == other.call_id
            && *error == other.error
            && *sealed == other.sealed
    }

    /// Whether another message says the same, whatever its id is. A node may have trimmed its text.
    pub(super) fn says_same(&self, other: &Self) -> bool {
        let says_same = || match (&self.content, &other.content) {
            (Content::Text(a), Content::Text(b)) => a.decode().trim() == b.decode().trim(),
            _ => false,
        };
        self.role == other.role
            && (self.content.shows_same(&other.content) || says_same())
            && self.calls.len() == other.calls.len()
            && self.calls.iter().zip(&other.calls).all(|(a, b)| a.shows_same(b))
            && self.sealed == other.sealed
    }

    /// Converts a LangChain message. The result is its reasoning, the message itself under `id`,
    /// and its attachments.
    ///
    /// Calls keep LangGraph's ids here; `commit` makes them unique. A message type without a
    /// counterpart becomes an assistant's, so that its text is not lost.
    ///
    /// A human message that nobody typed becomes what `harness` says.
    pub(crate) fn of_langchain(
        message: &langgraph::Message<'_>,
        id: &Id,
        harness: Harness,
    ) -> Vec<Self> {
        let source = match harness {
            Harness::Show => None,
            Harness::Notice | Harness::Hide => message.notice_source(),
        };
        match (source, harness) {
            (Some(_), Harness::Hide) => Vec::new(),
            (Some(source), _) => {
                let content = Content::from_blocks(message.blocks(), Role::User, None);
                vec![Self::notice(id, &source, &content)]
            }
            (None, _) => Self::convert(message, id, Extent::Whole),
        }
    }

    /// Converts a message that is not complete. It gets no attachments, which may be cut anywhere.
    pub(super) fn of_prefix(message: &langgraph::Message<'_>, id: &Id) -> Vec<Self> {
        Self::convert(message, id, Extent::Prefix)
    }

    fn convert(message: &langgraph::Message<'_>, id: &Id, extent: Extent) -> Vec<Self> {
        let role = match message.kind() {
            MessageType::Human => Role::User,
            MessageType::Ai | MessageType::AiChunk | MessageType::Other => Role::Assistant,
            MessageType::Tool => Role::Tool,
            MessageType::System => Role::System,
            MessageType::Developer => Role::Developer,
            MessageType::Remove => return Vec::new(),
        };
        let blocks = message.blocks();
        let mut messages = Vec::new();
        let mut between = Vec::new();
        if role == Role::Assistant {
            let mut reasoning = ReasoningMatcher::default();
            let (mut at, mut calls, mut attachments) = (0, 0_usize, 0_usize);
            for block in &blocks {
                let before = messages.len();
                let what = match block {
                    Block::Reasoning(piece) => {
                        reasoning.add(id, piece, &mut messages);
                        let new = messages.get(before);
                        between.extend(new.map(|new| {
                            let what = Inserted::Reasoning(Arc::clone(&new.id));
                            Insertion { at, what }
                        }));
                        continue;
                    }
                    Block::Text(text) => {
                        at += text.escaped().len();
                        None
                    }
                    Block::Call => {
                        calls += 1;
                        Some(Inserted::Call(calls - 1))
                    }
                    Block::Other(raw) if raw.get() == "null" => None,
                    Block::Media(_) | Block::Other(_) => {
                        attachments += 1;
                        Some(Inserted::Attachment(attachment_id(id, attachments - 1)))
                    }
                    Block::Annotations(_) => None,
                };
                reasoning.interrupt();
                between.extend(what.map(|what| Insertion { at, what }));
            }
            // A provider may say in its content less, or more, than LangChain reads as calls.
            let all_calls = message.calls().len();
            let is_meant =
                |what: &Inserted| !matches!(what, Inserted::Call(_)) || calls == all_calls;
            // Attachments follow the text, as they do live, unless some are in the middle of it.
            let is_attached = |part: &Insertion| matches!(part.what, Inserted::Attachment(_));
            let is_in_text = |part: &Insertion| 0 < part.at && part.at < at;
            let mixed = between.iter().any(|part| is_attached(part) && is_in_text(part));
            between.retain(|part| {
                is_meant(&part.what) && if is_attached(part) { mixed } else { part.at > 0 }
            });
        }
        let mut own = Self::new(Arc::clone(id), role);
        own.name = message.name().filter(|_| role != Role::Tool);
        let mut attached = Vec::new();
        own.content = if role == Role::Assistant {
            Content::of_assistant(blocks, &mut attached)
        } else {
            Content::from_blocks(blocks, role, message.content())
        };
        own.between = between.into();
        if role == Role::Assistant {
            own.calls = message.calls().iter().map(Call::from_whole).collect();
        }
        if role == Role::Tool {
            own.call_id = message.tool_call_id().map(|id| Id::from(&*id));
            own.error = message.is_error().then(|| own.content.text());
        }
        messages.push(own);
        if extent == Extent::Whole {
            let attached = attached.into_iter().enumerate();
            messages.extend(attached.map(|(at, part)| Self::attachment(id, at, part)));
        }
        messages
    }
}

// === impl Content ===

impl Content {
    /// Whether a client would show the same. Absent content and empty text look the same.
    pub(crate) fn shows_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Parts(a), Self::Parts(b)) => {
                a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| a.shows_same(b))
            }
            (Self::Parts(_), _) | (_, Self::Parts(_)) => false,
            (Self::Absent, Self::Absent) => true,
            (Self::Absent, Self::Text(text)) | (Self::Text(text), Self::Absent) => text.is_empty(),
            (Self::Text(a), Self::Text(b)) => a.same(&b.to_text()),
        }
    }

    /// Whether there is no content.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Absent => true,
            Self::Text(text) => text.is_empty(),
            Self::Parts(parts) => parts.is_empty(),
        }
    }

    /// All text of the content, without its media.
    pub fn text(&self) -> Text {
        match self {
            Self::Absent => Text::new(""),
            Self::Text(text) => text.to_text(),
            Self::Parts(parts) => {
                let mut text = TextBuf::default();
                for part in parts.iter() {
                    match part {
                        ContentPart::Text(piece) => text.push(piece),
                        ContentPart::Media(_)
                        | ContentPart::Block(_)
                        | ContentPart::Annotations(_)
                        | ContentPart::Notice(_) => {}
                    }
                }
                text.to_text()
            }
        }
    }

    /// The text of an assistant. Everything else that a person should see goes to `attached`.
    /// Annotations come last, in one list, since they belong to the whole text.
    fn of_assistant(blocks: Vec<Block<'_>>, attached: &mut Vec<ContentPart>) -> Self {
        let mut text = TextBuf::default();
        let mut annotations = Vec::new();
        for block in blocks {
            match block {
                Block::Text(piece) => text.push(&piece),
                Block::Media(media) => attached.push(ContentPart::Media(media)),
                Block::Other(raw) if raw.get() == "null" => {}
                Block::Other(raw) => attached.push(ContentPart::Block(Json::from(raw))),
                Block::Annotations(list) => {
                    annotations.extend(json::items(list).unwrap_or_default());
                }
                Block::Reasoning(_) | Block::Call => {}
            }
        }
        if !annotations.is_empty() {
            let list = json::array(annotations.iter().map(|annotation| annotation.get()));
            attached.push(ContentPart::Annotations(list));
        }
        Self::Text(text)
    }

    /// Joins text blocks. Users and tools keep the parts separate if any of them is media.
    fn from_blocks(blocks: Vec<Block<'_>>, role: Role, raw: Option<&RawValue>) -> Self {
        let mut parts = Vec::with_capacity(blocks.len());
        for block in blocks {
            match block {
                Block::Text(text) => parts.push(ContentPart::Text(text)),
                Block::Media(media) => parts.push(ContentPart::Media(media)),
                Block::Reasoning(_) | Block::Annotations(_) | Block::Call | Block::Other(_) => {}
            }
        }
        let has_media = parts.iter().any(|part| matches!(part, ContentPart::Media(_)));
        if has_media && matches!(role, Role::User | Role::Tool) {
            return Self::Parts(parts.into());
        }
        if parts.is_empty() && matches!(role, Role::Tool) {
            // A tool may return any JSON. Its text is better than nothing.
            return Self::Text(raw.map(json_as_text).unwrap_or_default());
        }
        let content = Self::Parts(parts.into());
        Self::Text(TextBuf::from(&content.text()))
    }
}

// === impl ContentPart ===

impl ContentPart {
    fn shows_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Block(a), Self::Block(b)) | (Self::Annotations(a), Self::Annotations(b)) => {
                json::same(a.get(), b.get())
            }
            (one, other) => one == other,
        }
    }
}

fn attachment_id(owner: &Id, at: usize) -> Id {
    Id::from(format!("{owner}{ATTACHED}{at}"))
}

fn json_as_text(raw: &RawValue) -> TextBuf {
    match raw.get() {
        "null" | "\"\"" | "[]" => TextBuf::default(),
        json => TextBuf::from(&Text::new(json)),
    }
}

// === impl Call ===

impl Call {
    fn from_whole(call: &langgraph::WholeCall<'_>) -> Self {
        Self {
            id: Id::from(&*call.id),
            name: Id::from(&*call.name),
            args: TextBuf::from(&call.args),
            form: if call.is_valid() { CallForm::Valid } else { CallForm::Invalid },
        }
    }

    fn shows_same(&self, other: &Self) -> bool {
        self.id == other.id && self.name == other.name && self.has_args(&other.args.to_text())
    }

    /// Whether the arguments are equal as JSON. No arguments count as an empty object.
    pub(crate) fn has_args(&self, args: &Text) -> bool {
        fn spelled(text: &str) -> &str {
            if text.is_empty() { "{}" } else { text }
        }
        self.args.same(args)
            || json::same(spelled(&self.args.to_text().decode()), spelled(&args.decode()))
    }
}
