//! What the dialects yield: one form for all of them.

use crate::json::{Members, Text};
use crate::langgraph::copilotkit::Emitted;
use crate::langgraph::{CallChunk, CallMetadata, Finish, Message, Reasoning};

/// One thing that a part says.
pub(crate) enum DialectEvent<'u, 'p> {
    /// Pieces of a message. They count only if the dialect owns the message.
    Pieces {
        producer: Producer<'u>,
        message: MessageId<'u>,
        /// In order. A message that has only begun has none.
        pieces: &'u mut dyn Iterator<Item = Piece<'p>>,
    },
    /// A message that came whole. The assembler adds what is missing of it, whichever dialect
    /// owns it.
    Whole { producer: Producer<'u>, message: &'u Message<'u> },
    /// A message, call, state or event that a graph sends outside of a model's call.
    Emitted { producer: Producer<'u>, emitted: Emitted<'u> },
    /// A node begins or ends.
    Node {
        /// The subgraph that the node belongs to; empty for the root.
        namespace: &'u str,
        /// The task that executes it.
        task: &'u str,
        node: &'u str,
        /// The name of the agent that the node belongs to.
        agent: Option<&'u str>,
        edge: Edge,
    },
    /// A subgraph begins or ends.
    Subgraph {
        /// The subgraph.
        namespace: &'u str,
        /// The name of the agent that it is.
        agent: Option<&'u str>,
        /// The tool call that started it, under LangGraph's id.
        call: Option<&'u str>,
        edge: Edge,
    },
}

/// The node or agent that a part comes from.
#[derive(Clone, Copy)]
pub(crate) struct Producer<'u> {
    /// The subgraph that the part names; empty for the root, and in modes that name none.
    pub(crate) namespace: &'u str,
    /// The metadata of the model or tool call.
    pub(crate) origin: &'u CallMetadata,
}

/// Which message a piece belongs to.
#[derive(Clone, Copy)]
pub(crate) enum MessageId<'u> {
    /// The message of this id.
    Own(&'u str),
    /// The message of one of LangChain's chunks.
    OfChunk {
        /// The chunk's id.
        id: &'u str,
        /// What that id says of its message.
        kind: ChunkId,
    },
}

/// What the id of one of LangChain's chunks says of its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkId {
    /// It is the message's, and the chunk has no content. LangChain's own id may be on the rest.
    Opening,
    /// It is the message's. aegra also sends whole messages as such a chunk.
    Message,
    /// LangChain made it up. The message has the id of its opening chunk, if there was one.
    MadeUp {
        /// Whether the chunk has no content.
        is_empty: bool,
    },
}

/// A piece of a message.
pub(crate) enum Piece<'p> {
    /// More text.
    Text(Text),
    /// More of a thought.
    Reasoning(Reasoning<'p>),
    /// A tool call begins, or more of its arguments.
    Call(CallChunk<'p>),
    /// The message as far as it is known.
    Prefix(&'p Message<'p>),
    /// The message, whole.
    Whole(&'p Message<'p>),
    /// The cost of the model's call.
    Cost(Cost<'p>),
    /// Why the model stopped.
    Finish(Finish),
    /// The message is complete.
    End,
}

/// The cost of a model's call, as a dialect counts it.
pub(crate) enum Cost<'p> {
    /// The tokens that a chunk adds, if it names any.
    Chunk(&'p Message<'p>),
    /// The cost of the whole message.
    Total {
        /// The tokens.
        usage: &'p Members<'p>,
        /// The provider's metadata, which name the model.
        metadata: Option<&'p Members<'p>>,
    },
}

/// Whether something begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edge {
    /// It begins.
    Start,
    /// It ends.
    End,
}
