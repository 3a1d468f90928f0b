//! How far a message of this run is, whichever dialect carries it.

use std::collections::HashMap;
use std::sync::Arc;

use crate::json::TextBuf;
use crate::langgraph::dialect::DialectName;
use crate::langgraph::{CallChunk, Suppressed};
use crate::run::Id;
use crate::run::reasoning::ReasoningMatcher;

/// The messages of this run, by id.
pub(super) type StreamedMessages = HashMap<Id, StreamedMessage>;

/// How far a message of this run is.
#[derive(Debug)]
pub(super) struct StreamedMessage {
    /// Which dialect owns the message.
    pub(super) owner: Owner,
    /// The task that streams it.
    pub(super) task: Option<String>,
    /// Which of its pieces of reasoning belong together.
    pub(super) reasoning: ReasoningMatcher,
    /// The ids of its reasoning messages on our wires.
    pub(super) reasoning_ids: Vec<Id>,
    /// Its tool calls, in the order of their first fragments.
    pub(super) calls: Vec<StreamedCall>,
    /// Whether a call was announced. The first one also announces which arguments predict the state.
    pub(super) is_predicted: bool,
    /// Which of its pieces the graph asked not to show.
    pub(super) suppressed: Suppressed,
    pub(super) stage: Stage,
}

/// How far a message has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(super) enum Stage {
    /// The model streams it.
    Streaming,
    /// The model has finished, or its node has ended.
    Finished,
    /// It came whole.
    Whole,
}

/// Which dialect owns a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// The first that did.
    Dialect(DialectName),
    /// None: the message came whole, the client holds it already, or its beginning may be missing.
    Nobody,
}

/// A streamed tool call.
#[derive(Debug, Default)]
pub(super) struct StreamedCall {
    index: Option<String>,
    /// LangGraph's id.
    pub(super) id: Option<Id>,
    /// The tool.
    pub(super) name: Option<Id>,
    /// Arguments that came before the name.
    pub(super) early: TextBuf,
    /// The id on our wires, once the call is announced.
    pub(super) wire: Option<Id>,
}

/// The form of a message's id that the messages share, or a new one.
pub(super) fn shared_id(streamed: &StreamedMessages, id: &str) -> Id {
    match streamed.get_key_value(id) {
        Some((known, _)) => Arc::clone(known),
        None => Id::from(id),
    }
}

// === impl StreamedMessage ===

impl StreamedMessage {
    pub(super) fn new(owner: Owner, task: Option<String>, suppressed: Suppressed) -> Self {
        Self {
            owner,
            task,
            reasoning: ReasoningMatcher::default(),
            reasoning_ids: Vec::new(),
            calls: Vec::new(),
            is_predicted: false,
            suppressed,
            stage: Stage::Streaming,
        }
    }

    /// Whether the model was through once.
    pub(super) fn is_complete(&self) -> bool {
        self.stage > Stage::Streaming
    }

    /// Whether it may be a message that comes whole under another id.
    pub(super) fn may_be_another(&self) -> bool {
        self.owner != Owner::Nobody && self.stage < Stage::Whole
    }

    /// Notes how far the message has come. It never goes back.
    pub(super) fn reach(&mut self, stage: Stage) {
        if self.stage < stage {
            self.stage = stage;
        }
    }

    /// The call that a fragment belongs to.
    ///
    /// The index distinguishes fragments; a second id under one index is a second call. A fragment
    /// without an index continues the call of its id, and without an id the last call.
    pub(super) fn call(&mut self, chunk: &CallChunk<'_>) -> Option<&mut StreamedCall> {
        let may_be = |call: &StreamedCall| match (&call.id, &chunk.id) {
            (Some(known), Some(id)) => **known == **id,
            (None, _) | (_, None) => true,
        };
        let has_id =
            |call: &StreamedCall| chunk.id.is_some() && call.id.as_deref() == chunk.id.as_deref();
        let last = || self.calls.len().checked_sub(1);
        let candidate = match chunk.index {
            Some(index) => self.calls.iter().rposition(|call| call.index.as_deref() == Some(index)),
            None => self.calls.iter().rposition(has_id).or_else(last),
        };
        let found = candidate.filter(|at| self.calls.get(*at).is_some_and(may_be));
        let at = found.unwrap_or_else(|| {
            let index = chunk.index.map(str::to_owned);
            self.calls.push(StreamedCall { index, ..StreamedCall::default() });
            self.calls.len() - 1
        });
        let call = self.calls.get_mut(at)?;
        if let (None, Some(id)) = (&call.id, &chunk.id) {
            call.id = Some(Id::from(&**id));
        }
        if let (None, Some(name)) = (&call.name, &chunk.name) {
            call.name = Some(Id::from(&**name));
        }
        Some(call)
    }
}
