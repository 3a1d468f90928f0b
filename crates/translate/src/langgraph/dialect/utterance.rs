//! What the dialects yield, in words of none of them.

use std::borrow::Cow;

use crate::json::{Json, Members, Text};
use crate::langgraph::{CallChunk, Finish, Message, Origin, Reasoning};

/// One thing that a part says.
pub(crate) enum Utterance<'u, 'p> {
    /// Pieces of a message. They count only if the dialect is the one that speaks for the message.
    Pieces {
        /// Who says them.
        speaker: Speaker<'u>,
        /// The message.
        message: MessageId<'u>,
        /// What is said, in order. There may be no piece yet.
        pieces: &'u mut dyn Iterator<Item = Piece<'p>>,
    },
    /// A message that came whole. Whoever speaks for it, what is missing of it is added.
    Whole {
        /// Who says it.
        speaker: Speaker<'u>,
        /// The message.
        message: &'u Message<'u>,
    },
    /// What a graph sends by itself, outside of a model's call.
    Emitted {
        /// Who sends it.
        speaker: Speaker<'u>,
        /// What it sends.
        emitted: Emitted<'u>,
    },
    /// A node begins or ends.
    Node {
        /// The subgraph that the node belongs to; empty for the root.
        namespace: &'u str,
        /// The task that executes it.
        task: &'u str,
        /// The node.
        node: &'u str,
        /// The name of the agent that the node belongs to.
        agent: Option<&'u str>,
        /// Which of the two.
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
        /// Which of the two.
        edge: Edge,
    },
}

/// Who speaks.
#[derive(Clone, Copy)]
pub(crate) struct Speaker<'u> {
    /// The subgraph that the part names; empty for the root, and in modes that name none.
    pub(crate) namespace: &'u str,
    /// The metadata of the call that speaks.
    pub(crate) origin: &'u Origin,
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
        /// Whether LangChain made the id up. The message then keeps the id of its first chunk, if
        /// that is its provider's.
        is_made_up: bool,
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
    /// What the model's call costs.
    Cost(Cost<'p>),
    /// Why the model stopped.
    Finish(Finish),
    /// The message is complete.
    End,
}

/// What a model's call costs, as a dialect counts it.
pub(crate) enum Cost<'p> {
    /// What a chunk adds, if it says anything.
    Chunk(&'p Message<'p>),
    /// The cost of the whole message.
    Total {
        /// The tokens.
        usage: &'p Members<'p>,
        /// The provider's metadata, which name the model.
        metadata: Option<&'p Members<'p>>,
    },
}

/// What a graph sends by itself.
pub(crate) enum Emitted<'u> {
    /// A message of the assistant.
    Message {
        /// Its id.
        id: Cow<'u, str>,
        /// Its text.
        text: Text,
    },
    /// A tool call, which is also a message of its own.
    Call {
        /// The id of both.
        id: Cow<'u, str>,
        /// The tool.
        name: Cow<'u, str>,
        /// The arguments, as JSON.
        args: Text,
    },
    /// The state.
    State(Json),
    /// Anything else, under its name.
    Custom(&'u str, Json),
    /// An event without the members that its name promises. Its speaker has begun all the same.
    Malformed,
}

/// Whether something begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edge {
    /// It begins.
    Start,
    /// It ends.
    End,
}
