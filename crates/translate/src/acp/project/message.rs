//! One message: what the client was sent of it.

use super::EmitOptions;
use crate::acp::content;
use crate::acp::sent_text::{Piece, SentText};
use crate::acp::update::{ContentBlock, Update};
use crate::run::{Content, ContentPart, Id, Message, Role};

/// What the client knows of a message.
#[derive(Debug)]
pub(super) enum MessageState {
    /// The client wrote the message.
    Own,
    /// The message is not sent.
    Hidden,
    /// The message is sent.
    Shown(SentMessage),
    /// The message is a notice, of which this fingerprint was sent.
    Notice(u64),
}

/// A message as it was sent.
#[derive(Debug)]
pub(super) struct SentMessage {
    pub(super) kind: ChunkKind,
    pub(super) text: SentText,
    /// The fingerprints of the images, files and other blocks that were sent.
    media: Vec<u64>,
    /// The last run that had the message.
    pub(super) run: u32,
}

/// The update that carries a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChunkKind {
    User,
    Agent,
    Thought,
}

/// The update that carries a message of a role. `None` for messages that no person reads.
pub(super) fn chunk_kind(role: Role) -> Option<ChunkKind> {
    match role {
        Role::User => Some(ChunkKind::User),
        Role::Assistant | Role::Attachment => Some(ChunkKind::Agent),
        Role::Reasoning => Some(ChunkKind::Thought),
        Role::Tool | Role::System | Role::Developer => None,
    }
}

// === impl SentMessage ===

impl SentMessage {
    pub(super) fn new(kind: ChunkKind, id: &Id, run: u32) -> Self {
        Self { kind, text: SentText::new(id), media: Vec::new(), run }
    }

    /// Whether exactly this message was sent, under whichever id.
    pub(super) fn is(&self, message: &Message) -> bool {
        chunk_kind(message.role) == Some(self.kind)
            && self.media.is_empty()
            && matches!(&message.content, Content::Text(text) if self.text.was_sent(text))
    }

    /// Sends what is new in a whole content. `number` is that of the message, if it is an attachment.
    pub(super) fn show(
        &mut self,
        id: &Id,
        content: &Content,
        number: usize,
        emit: EmitOptions<'_>,
    ) {
        let parts = match content {
            Content::Text(text) if self.text.is_sent(text) => return,
            Content::Absent | Content::Text(_) => &[],
            Content::Parts(parts) => &**parts,
        };
        let is_new = self.media.is_empty() && !self.text.has_begun();
        if !is_new || parts.is_empty() {
            let piece = self.text.set(id, &content.text());
            self.emit(piece, emit);
        }
        for (nameless, part) in content::numbered(parts) {
            match part {
                ContentPart::Text(text) if is_new => {
                    let piece = self.text.push(id, text);
                    self.emit(piece, emit);
                }
                ContentPart::Text(_) => {}
                ContentPart::Media(_)
                | ContentPart::Block(_)
                | ContentPart::Annotations(_)
                | ContentPart::Notice(_) => {
                    let fingerprint = content::fingerprint(part);
                    if !self.media.contains(&fingerprint) {
                        self.media.push(fingerprint);
                        for block in content::part_blocks(part, number + nameless) {
                            self.chunk(block, emit);
                        }
                    }
                }
            }
        }
    }

    /// Sends a piece of the text, if there is one.
    pub(super) fn emit(&self, piece: Piece<'_>, emit: EmitOptions<'_>) {
        let Some(text) = piece else { return };
        match self.kind {
            ChunkKind::User => {
                for block in content::person_blocks(text) {
                    self.chunk(block, emit);
                }
            }
            ChunkKind::Agent | ChunkKind::Thought => {
                self.chunk(ContentBlock::Text { text }, emit);
            }
        }
    }

    fn chunk(&self, content: ContentBlock<'_>, emit: EmitOptions<'_>) {
        let message_id = self.text.wire_id();
        emit(&match self.kind {
            ChunkKind::User => Update::UserMessageChunk { content, message_id },
            ChunkKind::Agent => Update::AgentMessageChunk { content, message_id: Some(message_id) },
            ChunkKind::Thought => Update::AgentThoughtChunk { content, message_id },
        });
    }
}
