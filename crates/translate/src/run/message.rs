//! A message of the conversation as a client holds it, and how LangChain's become these.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::Id;
use crate::json::{self, Json, Text, TextBuf};
use crate::langgraph::{self, Block, Media, MessageType, Reasoning};

/// A message. One of LangChain's may become several: its reasoning is a message of its own, and so
/// is each thing of an assistant that is no text.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// LangGraph's id.
    pub id: Id,
    /// Who speaks.
    pub role: Role,
    /// The speaker's name.
    pub name: Option<Text>,
    /// What is said.
    pub content: Content,
    /// The tools that an assistant calls.
    pub calls: Vec<Call>,
    /// The call that a tool message answers.
    pub call_id: Option<Id>,
    /// What a tool message tells of a failure.
    pub error: Option<Text>,
    /// The sealed form of a thought.
    pub sealed: Option<Text>,
    /// The subagent that speaks.
    pub agent: Option<Id>,
}

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A person.
    User,
    /// The agent.
    Assistant,
    /// A tool.
    Tool,
    /// Instructions.
    System,
    /// Instructions of the developer.
    Developer,
    /// The agent to itself.
    Reasoning,
    /// What a message of the agent holds besides its text. Its content has one part, or is absent
    /// once it is gone.
    Attachment,
}

/// What a message says.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// Nothing: an assistant that only calls tools.
    Absent,
    /// Text.
    Text(TextBuf),
    /// Text and media, or what an attachment holds.
    Parts(Arc<[ContentPart]>),
}

/// A piece of a message's content.
#[derive(Clone, Debug, PartialEq)]
pub enum ContentPart {
    /// Text.
    Text(Text),
    /// An image, a recording, a document.
    Media(Media),
    /// A block of a kind that has no form of ours, as it is. Only attachments hold one.
    Block(Json),
    /// Where the text of a message comes from: a list of annotations or citations, each as it is.
    /// Only attachments hold one.
    Annotations(Json),
}

/// A tool call.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Its id on our wires.
    pub id: Id,
    /// The tool.
    pub name: Id,
    /// The arguments, as far as they are known.
    pub args: TextBuf,
}

// === impl Message ===

impl Message {
    /// A message that says nothing yet.
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
        }
    }

    /// An attachment, the `at`th of a message.
    fn attachment(owner: &Id, at: usize, part: ContentPart) -> Self {
        let mut message = Self::new(Id::from(format!("{owner}{ATTACHED}{at}")), Role::Attachment);
        message.content = Content::Parts([part].into());
        message
    }

    /// The message that an attachment belongs to.
    pub fn owner(&self) -> Option<&str> {
        let is_attachment = self.role == Role::Attachment;
        self.id.rsplit_once(ATTACHED).filter(|_| is_attachment).map(|(owner, _)| owner)
    }

    /// What an attachment holds; `None` for one that is gone, and for other messages.
    pub fn attached(&self) -> Option<&ContentPart> {
        match &self.content {
            Content::Parts(parts) if self.role == Role::Attachment => parts.first(),
            Content::Parts(_) | Content::Absent | Content::Text(_) => None,
        }
    }

    /// Whether a client would show the same: ids, content and calls, whoever is credited.
    ///
    /// Arguments compare as JSON: a token stream keeps the model's spelling, a state LangGraph's.
    /// The speaker's name is credit too: the JavaScript agents give it to a message only when they
    /// commit it (langchain 1.5.14), and a name is not worth the whole conversation after each run.
    pub fn shows_same(&self, other: &Self) -> bool {
        let Self { id, role, name: _, content, calls, call_id, error, sealed, agent: _ } = self;
        *id == other.id
            && *role == other.role
            && content.shows_same(&other.content)
            && calls.len() == other.calls.len()
            && calls.iter().zip(&other.calls).all(|(a, b)| a.shows_same(b))
            && *call_id == other.call_id
            && *error == other.error
            && *sealed == other.sealed
    }

    /// A LangChain message as a client holds it under the given id: its thoughts, then itself, then
    /// what is attached to it.
    ///
    /// Calls keep LangGraph's ids here; the conversation makes them unique. A kind that has no
    /// counterpart becomes an assistant's text: dropping it would lose what it says.
    pub fn of_langchain(message: &langgraph::Message<'_>, id: &Id) -> Vec<Self> {
        Self::convert(message, id, Extent::Whole)
    }

    /// The same of a message that is not complete: without attachments, which may be cut anywhere.
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
        if role == Role::Assistant {
            let mut thoughts = Thoughts::default();
            for block in &blocks {
                match block {
                    Block::Reasoning(piece) => thoughts.add(id, piece, &mut messages),
                    Block::Text(_)
                    | Block::Media(_)
                    | Block::Annotations(_)
                    | Block::Call
                    | Block::Other(_) => thoughts.interrupt(),
                }
            }
        }
        let mut own = Self::new(Arc::clone(id), role);
        own.name = message.name().filter(|_| role != Role::Tool);
        let mut attached = Vec::new();
        own.content = if role == Role::Assistant {
            Content::of_assistant(blocks, &mut attached)
        } else {
            Content::from_blocks(blocks, role, message.content())
        };
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
    /// Whether a client would show the same. Nothing and no characters look alike.
    pub fn shows_same(&self, other: &Self) -> bool {
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

    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Absent => true,
            Self::Text(text) => text.is_empty(),
            Self::Parts(parts) => parts.is_empty(),
        }
    }

    /// The text of it, without its media.
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
                        | ContentPart::Annotations(_) => {}
                    }
                }
                text.to_text()
            }
        }
    }

    /// The text of an assistant, and apart from it all else that a person is to see. Annotations
    /// come last, in one list: they belong to the whole text.
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

    /// Text blocks are joined; with media beside them, people and tools keep the parts apart.
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
            // A tool may answer with any JSON; its text is shown rather than nothing.
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
        }
    }

    fn shows_same(&self, other: &Self) -> bool {
        self.id == other.id && self.name == other.name && self.has_args(&other.args.to_text())
    }

    /// Whether the arguments are these, as JSON. No arguments are an empty object.
    pub fn has_args(&self, args: &Text) -> bool {
        fn spelled(text: &str) -> &str {
            if text.is_empty() { "{}" } else { text }
        }
        self.args.same(args)
            || json::same(spelled(&self.args.to_text().decode()), spelled(&args.decode()))
    }
}

// === thoughts ===

/// The text between a message's id and the number of its attachment in the attachment's id.
const ATTACHED: &str = ":attachment:";

/// How much of a message is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    Whole,
    Prefix,
}

/// Which thoughts a message has shown so far: how a piece of reasoning finds its message.
///
/// Providers tell pieces apart by a block index, by an id of their own that only the first piece
/// carries, or not at all; a piece without either belongs to the thought before it.
#[derive(Clone, Debug, Default)]
pub(super) struct Thoughts {
    known: Vec<Thought>,
    /// The thought that an unmarked piece goes on with.
    current: Option<usize>,
}

#[derive(Clone, Debug)]
struct Thought {
    /// The blocks that belong to it: the parts of one provider's item may count as several.
    indices: Vec<String>,
    provider_id: Option<Id>,
    /// The id on our wires; given when there is something to show.
    id: Option<Id>,
    part: Option<u64>,
    /// Whether the next text begins another of its blocks.
    begins_block: bool,
    /// Whether it stands beside the content.
    is_beside: bool,
}

/// Where a piece of reasoning belongs.
pub(super) struct Placed {
    /// The thought's id on our wires.
    pub(super) id: Id,
    /// What to append: the piece, with a line break before it if a new part begins.
    pub(super) text: Option<Text>,
}

impl Thoughts {
    /// Something else was said: an unmarked piece is a new thought from here on.
    pub(super) fn interrupt(&mut self) {
        self.current = None;
    }

    /// Finds the thought of a piece; `None` while there is nothing to show of it.
    ///
    /// A provider's id that something else has already is passed over. Reasoning beside the
    /// content is passed over once the content has told a thought: of a whole message only that is
    /// read, and LangChain's JavaScript package for OpenAI has every piece in both places.
    pub(super) fn place(
        &mut self,
        message_id: &Id,
        piece: &Reasoning<'_>,
        is_taken: impl Fn(&str) -> bool,
    ) -> Option<Placed> {
        let is_told = |thought: &Thought| thought.id.is_some() && !thought.is_beside;
        if piece.is_beside() && self.known.iter().any(is_told) {
            return None;
        }
        let at = self.find(piece);
        self.current = Some(at);
        let shown = self.known.iter().filter(|thought| thought.id.is_some()).count();
        let provider_id = self.known.get(at)?.provider_id.clone();
        let provider_id = provider_id.filter(|id| {
            !is_taken(id) && self.known.iter().all(|thought| thought.id.as_ref() != Some(id))
        });
        let thought = self.known.get_mut(at)?;
        if piece.text.is_none() && piece.sealed.is_none() {
            return None;
        }
        let id = thought.id.get_or_insert_with(|| {
            provider_id.unwrap_or_else(|| Id::from(format!("{message_id}:reasoning:{shown}")))
        });
        let id = Arc::clone(id);
        let text = piece.text.as_ref().map(|text| thought.continue_with(piece.part, text));
        Some(Placed { id, text })
    }

    /// Adds a piece to a list of whole messages.
    fn add(&mut self, message_id: &Id, piece: &Reasoning<'_>, messages: &mut Vec<Message>) {
        let Some(placed) = self.place(message_id, piece, |_| false) else { return };
        let at = messages.iter().position(|message| message.id == placed.id);
        let at = at.unwrap_or_else(|| {
            messages.push(Message::new(placed.id, Role::Reasoning));
            messages.len() - 1
        });
        let Some(message) = messages.get_mut(at) else { return };
        if matches!(message.content, Content::Absent) {
            message.content = Content::Text(TextBuf::default());
        }
        if let (Content::Text(text), Some(piece)) = (&mut message.content, &placed.text) {
            text.push(piece);
        }
        if let Some(sealed) = &piece.sealed {
            message.sealed = Some(join(message.sealed.as_ref(), sealed));
        }
    }

    fn find(&mut self, piece: &Reasoning<'_>) -> usize {
        let by_id = |id: &str| {
            self.known.iter().position(|thought| thought.provider_id.as_deref() == Some(id))
        };
        let by_index = |index: &str| {
            self.known.iter().position(|thought| thought.indices.iter().any(|i| i == index))
        };
        let known = match (&piece.id, piece.index) {
            (Some(id), index) => by_id(id).or_else(|| index.and_then(by_index)),
            (None, Some(index)) => by_index(index),
            (None, None) => self.current,
        };
        let at = known.unwrap_or_else(|| {
            self.known.push(Thought {
                indices: Vec::new(),
                provider_id: piece.id.as_deref().map(Id::from),
                id: None,
                part: None,
                begins_block: false,
                is_beside: piece.is_beside(),
            });
            self.known.len() - 1
        });
        if let (Some(thought), Some(index)) = (self.known.get_mut(at), piece.index)
            && !thought.indices.iter().any(|known| known == index)
        {
            thought.begins_block = !thought.indices.is_empty();
            thought.indices.push(index.to_owned());
        }
        at
    }
}

impl Thought {
    /// The parts of a summary are paragraphs of one thought.
    fn continue_with(&mut self, part: Option<u64>, text: &Text) -> Text {
        let begins_part = part.is_some() && self.part.is_some() && part != self.part;
        self.part = part.or(self.part);
        if std::mem::take(&mut self.begins_block) || begins_part {
            join(Some(&Text::new("\n")), text)
        } else {
            text.clone()
        }
    }
}

/// One text after the other.
pub(super) fn join(before: Option<&Text>, text: &Text) -> Text {
    let Some(before) = before else { return text.clone() };
    let mut joined = TextBuf::from(before);
    joined.push(text);
    joined.to_text()
}
