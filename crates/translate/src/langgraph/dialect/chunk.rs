//! LangChain's messages and chunks, which are the same in several modes.

use std::iter;

use super::dialect_event::{ChunkId, Cost, DialectEvent, MessageId, Piece, Producer};
use crate::langgraph::{Block, Message, MessageType};

/// How the ids begin that LangChain makes up for chunks: the rest names its own run. The second is
/// that of langchain-core 0.3.
const MADE_UP: [&str; 2] = ["lc_run--", "run--"];

/// Whether LangChain has made up the id of a chunk.
pub(crate) fn is_made_up(id: &str) -> bool {
    MADE_UP.iter().any(|prefix| id.starts_with(prefix))
}

/// Yields a chunk, or a message that came whole.
pub(super) fn translate(
    message: &Message<'_>,
    producer: Producer<'_>,
    emit: &mut dyn FnMut(DialectEvent<'_, '_>),
) {
    match message.kind() {
        MessageType::AiChunk => translate_chunk(message, producer, emit),
        MessageType::Ai
        | MessageType::Human
        | MessageType::Tool
        | MessageType::System
        | MessageType::Developer
        | MessageType::Remove
        | MessageType::Other => translate_whole(message, producer, emit),
    }
}

/// Yields a message that came whole.
pub(super) fn translate_whole(
    message: &Message<'_>,
    producer: Producer<'_>,
    emit: &mut dyn FnMut(DialectEvent<'_, '_>),
) {
    if message.kind() != MessageType::Remove {
        emit(DialectEvent::Whole { producer, message });
    }
}

/// Yields a chunk. A chunk without an id names no message, which is shown once it is committed.
pub(super) fn translate_chunk(
    chunk: &Message<'_>,
    producer: Producer<'_>,
    emit: &mut dyn FnMut(DialectEvent<'_, '_>),
) {
    let Some(id) = chunk.id() else { return };
    let kind = match (is_made_up(&id), chunk.is_empty()) {
        (true, is_empty) => ChunkId::MadeUp { is_empty },
        (false, true) => ChunkId::Opening,
        (false, false) => ChunkId::Message,
    };
    let message = MessageId::OfChunk { id: &id, kind };
    emit(DialectEvent::Pieces { producer, message, pieces: &mut pieces(chunk) });
}

/// The pieces of a chunk. Nothing of a chunk is parsed before its piece is asked for.
fn pieces<'p>(chunk: &'p Message<'p>) -> impl Iterator<Item = Piece<'p>> {
    let blocks = iter::once_with(|| chunk.blocks()).flatten().filter_map(piece);
    let calls = iter::once_with(|| chunk.call_chunks()).flatten().map(Piece::Call);
    let cost = iter::once(Piece::Cost(Cost::Chunk(chunk)));
    let finish = iter::once_with(|| chunk.finish()).flatten().map(Piece::Finish);
    let end = iter::once_with(|| chunk.is_last().then_some(Piece::End)).flatten();
    blocks.chain(calls).chain(cost).chain(finish).chain(end)
}

/// The piece that a block is; `None` for attachments and calls. An attachment may be cut by the
/// chunk's end, and comes with the whole message. The chunk holds its calls a second time, as
/// fragments.
pub(super) fn piece(block: Block<'_>) -> Option<Piece<'_>> {
    match block {
        Block::Text(text) => Some(Piece::Text(text)),
        Block::Reasoning(piece) => Some(Piece::Reasoning(piece)),
        Block::Media(_) | Block::Annotations(_) | Block::Call | Block::Other(_) => None,
    }
}
