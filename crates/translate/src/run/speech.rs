//! What one message has said so far in this run, whichever stream mode carries it.

use super::Id;
use super::reasoning::Thoughts;
use crate::json::TextBuf;
use crate::langgraph::{CallChunk, Mutes};

/// A message of this run.
#[derive(Debug)]
pub(super) struct Speech {
    /// Which mode speaks for it.
    pub(super) source: Source,
    /// The task that speaks.
    pub(super) task: Option<String>,
    /// Which of its pieces of reasoning belong together.
    pub(super) thoughts: Thoughts,
    /// The ids of its thoughts on our wires.
    pub(super) thought_ids: Vec<Id>,
    /// Its tool calls, in the order of their first fragments.
    pub(super) calls: Vec<CallSpeech>,
    /// Whether it was told that its arguments foretell the state.
    pub(super) is_foretold: bool,
    /// What of it is not to be shown as it comes.
    pub(super) mutes: Mutes,
    /// Whether it was through once.
    pub(super) is_over: bool,
}

/// Which mode speaks for a message. The first that does keeps it: a second one would double it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// Tokens in `messages` tuples.
    Tuple,
    /// Prefixes in `messages/partial`.
    Partial,
    /// Tokens in `events`.
    Events,
    /// Blocks of the newer protocol.
    Protocol,
    /// The message came whole, or the client holds it already: only what is missing is added.
    Whole,
}

/// A streamed tool call.
#[derive(Debug, Default)]
pub(super) struct CallSpeech {
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

// === impl Speech ===

impl Speech {
    pub(super) fn new(source: Source, task: Option<String>, mutes: Mutes) -> Self {
        Self {
            source,
            task,
            thoughts: Thoughts::default(),
            thought_ids: Vec::new(),
            calls: Vec::new(),
            is_foretold: false,
            mutes,
            is_over: false,
        }
    }

    /// The call that a fragment belongs to.
    ///
    /// Fragments are told apart by index; a second id under one index is a second call. A fragment
    /// without an index goes on with the call of its id, and without an id with the last one.
    pub(super) fn call(&mut self, chunk: &CallChunk<'_>) -> Option<&mut CallSpeech> {
        let may_be = |call: &CallSpeech| match (&call.id, &chunk.id) {
            (Some(known), Some(id)) => **known == **id,
            (None, _) | (_, None) => true,
        };
        let has_id =
            |call: &CallSpeech| chunk.id.is_some() && call.id.as_deref() == chunk.id.as_deref();
        let last = || self.calls.len().checked_sub(1);
        let candidate = match chunk.index {
            Some(index) => self.calls.iter().rposition(|call| call.index.as_deref() == Some(index)),
            None => self.calls.iter().rposition(has_id).or_else(last),
        };
        let found = candidate.filter(|at| self.calls.get(*at).is_some_and(may_be));
        let at = found.unwrap_or_else(|| {
            let index = chunk.index.map(str::to_owned);
            self.calls.push(CallSpeech { index, ..CallSpeech::default() });
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
