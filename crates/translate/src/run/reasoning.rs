//! How pieces of a model's reasoning become messages of their own.

use std::sync::Arc;

use super::{Content, Id, Message, Role};
use crate::json::{Text, TextBuf};
use crate::langgraph::Reasoning;

/// The reasoning messages of one message so far. A piece of reasoning is matched to one of them.
///
/// Providers mark pieces by a block index, or by an id that only the first piece carries, or not at
/// all. A piece without either belongs to the reasoning before it.
#[derive(Clone, Debug, Default)]
pub(super) struct ReasoningMatcher {
    known: Vec<ReasoningMessage>,
    /// Where a piece without a mark goes.
    current: Option<usize>,
}

#[derive(Clone, Debug)]
struct ReasoningMessage {
    /// The indices of its blocks. A provider may count the parts of one item as several blocks.
    indices: Vec<String>,
    provider_id: Option<Id>,
    /// The id that clients know it by. Given with the first text or signature.
    id: Option<Id>,
    part: Option<u64>,
    /// Whether the next text starts another of its blocks.
    begins_block: bool,
    /// Whether the provider keeps it outside the message's content.
    is_beside: bool,
}

/// The reasoning message that a piece belongs to.
pub(super) struct Placed {
    /// The id that clients know the message by.
    pub(super) id: Id,
    /// The text to append. It starts with a line break if a new part begins.
    pub(super) text: Option<Text>,
}

impl ReasoningMatcher {
    /// Something else follows. The next piece without a mark starts a new reasoning message.
    pub(super) fn interrupt(&mut self) {
        self.current = None;
    }

    /// Finds the reasoning message of a piece. `None` while there is nothing to show.
    ///
    /// A provider's id that something else uses is ignored. Reasoning outside the content is
    /// ignored once the content has had some: of a whole message only the content's is read.
    /// LangChain's JavaScript package for OpenAI sends every piece in both places.
    pub(super) fn place(
        &mut self,
        message_id: &Id,
        piece: &Reasoning<'_>,
        is_taken: impl Fn(&str) -> bool,
    ) -> Option<Placed> {
        let is_shown = |message: &ReasoningMessage| message.id.is_some() && !message.is_beside;
        if piece.is_beside() && self.known.iter().any(is_shown) {
            return None;
        }
        let at = self.find(piece);
        self.current = Some(at);
        let shown = self.known.iter().filter(|message| message.id.is_some()).count();
        let provider_id = self.known.get(at)?.provider_id.clone();
        let provider_id = provider_id.filter(|id| {
            !is_taken(id) && self.known.iter().all(|message| message.id.as_ref() != Some(id))
        });
        let message = self.known.get_mut(at)?;
        if piece.text.is_none() && piece.sealed.is_none() {
            return None;
        }
        let id = message.id.get_or_insert_with(|| {
            provider_id.unwrap_or_else(|| Id::from(format!("{message_id}:reasoning:{shown}")))
        });
        let id = Arc::clone(id);
        let text = piece.text.as_ref().map(|text| message.continue_with(piece.part, text));
        Some(Placed { id, text })
    }

    /// Adds a piece to a list of whole messages.
    pub(super) fn add(
        &mut self,
        message_id: &Id,
        piece: &Reasoning<'_>,
        messages: &mut Vec<Message>,
    ) {
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
            self.known.iter().position(|message| message.provider_id.as_deref() == Some(id))
        };
        let by_index = |index: &str| {
            self.known.iter().position(|message| message.indices.iter().any(|i| i == index))
        };
        let known = match (&piece.id, piece.index) {
            (Some(id), index) => by_id(id).or_else(|| index.and_then(by_index)),
            (None, Some(index)) => by_index(index),
            (None, None) => self.current,
        };
        let at = known.unwrap_or_else(|| {
            self.known.push(ReasoningMessage {
                indices: Vec::new(),
                provider_id: piece.id.as_deref().map(Id::from),
                id: None,
                part: None,
                begins_block: false,
                is_beside: piece.is_beside(),
            });
            self.known.len() - 1
        });
        if let (Some(message), Some(index)) = (self.known.get_mut(at), piece.index)
            && !message.indices.iter().any(|known| known == index)
        {
            message.begins_block = !message.indices.is_empty();
            message.indices.push(index.to_owned());
        }
        at
    }
}

impl ReasoningMessage {
    /// The parts of a summary are paragraphs of one reasoning message.
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

/// Both texts as one.
pub(super) fn join(before: Option<&Text>, text: &Text) -> Text {
    let Some(before) = before else { return text.clone() };
    let mut joined = TextBuf::from(before);
    joined.push(text);
    joined.to_text()
}
