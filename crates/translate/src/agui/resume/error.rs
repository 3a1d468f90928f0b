//! Why answers cannot be sent to LangGraph.

use crate::json::schema::Mismatch;
use crate::langgraph::MAX_KEPT_BYTES;

/// Why answers cannot be sent to LangGraph. The texts do not quote the answers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResumeError {
    /// A list of decisions has a wrong length. Or only some actions are answered, of an approval
    /// whose decisions cannot be stored until the others arrive.
    #[error(
        "`resume` answers {answered} of the {expected} actions of interrupt {id}; answer all of \
         them in one request"
    )]
    HalfAnswered {
        /// The interrupt.
        id: String,
        /// The number of answers.
        answered: usize,
        /// The number of actions.
        expected: usize,
    },
    /// The answer to an approval is no decision. A misread answer must not approve anything.
    #[error(
        "`resume` neither approves nor rejects interrupt {id}; send the payload \
         `{{\"approved\": true}}` or `{{\"approved\": false}}`, or a decision of LangChain's with its \
         `type`"
    )]
    NoDecision {
        /// The client's id of the interrupt or the action.
        id: String,
    },
    /// The approval does not allow the decision.
    #[error(
        "`resume` answers interrupt {id} with a decision that it does not allow; it takes one of: \
         {}",
        allowed.join(", ")
    )]
    NotAllowed {
        /// The interrupt, or one of its actions.
        id: String,
        /// The decisions that it allows.
        allowed: Vec<&'static str>,
    },
    /// The decision lacks a part.
    #[error("`resume` answers interrupt {id} with a decision whose {part}")]
    Incomplete {
        /// The interrupt, or one of its actions.
        id: String,
        /// Which part is missing, and what it must be.
        part: &'static str,
    },
    /// The question's schema does not allow the answer.
    #[error(
        "`resume` answers interrupt {id} with what its `responseSchema` does not allow: {mismatch}"
    )]
    Mismatch {
        /// The interrupt.
        id: String,
        /// How the answer differs from the schema.
        mismatch: Mismatch,
    },
    /// One of several questions is answered, and LangGraph has given it no id.
    #[error(
        "`resume` answers interrupt {id}, which has no id in LangGraph; while the thread asks \
         other questions too, LangGraph cannot tell which one is answered"
    )]
    Unnamed {
        /// The gateway's id of the interrupt.
        id: String,
    },
    /// The request has new messages, which LangGraph would put between a tool call and its result.
    /// Model providers refuse such a conversation.
    #[error(
        "`resume` comes with new messages while tool calls wait for their results; send the answers \
         alone, and the messages when the run is over"
    )]
    MessagesBetweenCallAndResult,
    /// The decision is too long to be stored until those on the other actions arrive.
    #[error(
        "`resume` answers interrupt {id} with {bytes} bytes, and at most {MAX_KEPT_BYTES} can wait for \
         the answers to the other actions; answer all of them in one request"
    )]
    TooLongToKeep {
        /// The action.
        id: String,
        /// The length of the decision in bytes.
        bytes: usize,
    },
    /// The request has new messages, but its answers are only stored, and start no run.
    #[error(
        "`resume` comes with new messages, and the thread takes none before the other actions are \
         answered too; send the answers alone, and the messages when the run is over"
    )]
    MessagesWithPartialAnswer,
    /// A question to which LangGraph has given no id is answered with null or an empty object.
    #[error(
        "`resume` answers interrupt {id} with null or an empty object, which LangGraph takes only \
         with an id, and this interrupt has none; send another answer"
    )]
    UnnamedEmpty {
        /// The gateway's id of the interrupt.
        id: String,
    },
}
