//! One tool call: what the client was sent of it.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::acp::content;
use crate::acp::strict;
use crate::acp::tool::{self, CallDetails, Reader};
use crate::acp::update::{ToolCall, ToolContent, ToolKind, ToolStatus};
use crate::json::{self, TextBuf};
use crate::run::{Content, Id};

/// The result of a tool call.
#[derive(Clone, Copy, Debug)]
pub(in crate::acp) struct CallResult<'a> {
    pub(in crate::acp) content: &'a Content,
    pub(in crate::acp) is_error: bool,
}

/// A tool call, as the client knows it.
#[derive(Debug)]
pub(super) struct SentCall {
    pub(super) name: Id,
    /// The kind that the client was sent.
    pub(super) kind: ToolKind,
    pub(super) stage: Stage,
    /// The arguments that the run has streamed so far.
    pub(super) args: TextBuf,
    /// The arguments that the client was sent.
    pub(super) sent_args: Option<TextBuf>,
    /// The arguments that a person was asked about and has replaced. The conversation has them until
    /// the graph writes the others, if it does.
    pub(super) replaced: Option<TextBuf>,
    /// Whether the client was sent a diff.
    pub(super) has_diff: bool,
    /// Whether the content that the client shows holds the question about the call.
    pub(super) has_note: bool,
    /// Whether the last status that the client was sent is final. The call may have started again
    /// since.
    pub(super) is_over: bool,
    /// The fingerprint of the result that the client was sent.
    pub(super) result: u64,
    /// The last run that had the call.
    pub(super) run: u32,
    pub(super) origin: CallOrigin,
}

/// The origin of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallOrigin {
    /// The conversation, which will hold the result.
    Conversation,
    /// A question about an action. It gets no result.
    Question,
}

/// The progress of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The call waits for its arguments, for a person, or for the graph to run it.
    Pending,
    /// A person or a rule has allowed the call, or a subagent works for it.
    InProgress,
    /// The turn ended before the call had a result.
    Abandoned,
    /// The call has a result.
    Answered,
    /// The conversation does not hold the result any more. The call may get another.
    Retracted,
}

// === impl CallResult ===

impl CallResult<'_> {
    /// A hash of the result, the same for each way to escape the text.
    pub(super) fn fingerprint(self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.is_error.hash(&mut hasher);
        self.content.text().decode().hash(&mut hasher);
        hasher.finish()
    }
}

// === impl SentCall ===

impl SentCall {
    pub(super) fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Pending | Stage::InProgress)
    }

    /// Whether the call waits, and the client was last sent no final status.
    pub(super) fn waits(&self) -> bool {
        self.stage == Stage::Pending && !self.is_over
    }

    pub(super) fn announcement(&self, id: &str) -> ToolCall<'static> {
        ToolCall {
            title: Some(tool::bare_title(&self.name, self.kind)),
            name: Some(self.name.to_string()),
            kind: Some(self.kind),
            ..ToolCall::of(id)
        }
    }

    /// What the client gets of the arguments.
    pub(super) fn details(&mut self, reader: Reader<'_>) -> CallDetails {
        let details = reader.read(&self.name, &self.args.to_text());
        let kind = details.kind.filter(|kind| *kind != self.kind);
        self.kind = kind.unwrap_or(self.kind);
        CallDetails { kind, ..details }
    }

    /// Takes over the arguments that the conversation has.
    pub(super) fn set_args(&mut self, args: &TextBuf) {
        let is_past = self.replaced.as_ref().is_some_and(|replaced| is_same(replaced, args));
        if !is_past {
            self.args.clone_from(args);
        }
    }

    /// What the client gets of the arguments, if they are new to it.
    pub(super) fn read(&mut self, reader: Reader<'_>) -> Option<CallDetails> {
        if self.sent_args.as_ref().is_some_and(|sent| is_same(sent, &self.args)) {
            return None;
        }
        let details = self.details(reader);
        self.has_diff = !details.diffs.is_empty();
        self.sent_args = Some(self.args.clone());
        Some(details)
    }

    /// The same for a call whose arguments are over. `None` if none came.
    pub(super) fn read_rest(&mut self, reader: Reader<'_>) -> Option<CallDetails> {
        if self.args.is_empty() { None } else { self.read(reader) }
    }

    /// Sets the result. Returns the update with the result and with what the client lacks of the
    /// call.
    pub(super) fn answered<'a>(
        &mut self,
        id: &str,
        result: CallResult<'a>,
        reader: Reader<'_>,
    ) -> ToolCall<'a> {
        let CallResult { content, is_error } = result;
        // The result takes the place of the question in the content.
        let is_stale = std::mem::take(&mut self.has_note) && self.has_diff;
        let details = match self.read_rest(reader) {
            None if is_stale => Some(self.details(reader)),
            details => details,
        };
        let news = details.map_or_else(|| ToolCall::of(id), |details| with_details(id, details));
        self.stage = Stage::Answered;
        self.is_over = true;
        self.result = result.fingerprint();
        self.args = TextBuf::default();
        self.sent_args = None;
        // The diff of an edit says more than its result, which is sent beside it if it is an object.
        // Any other result is sent once, as text: editors show no more than that.
        let (shown, raw_output) = if self.has_diff && !is_error {
            (news.content, strict::object(&content.text()))
        } else {
            let blocks = content::blocks(content).into_iter();
            (Some(blocks.map(|content| ToolContent::Content { content }).collect()), None)
        };
        ToolCall {
            status: Some(if is_error { ToolStatus::Failed } else { ToolStatus::Completed }),
            content: shown,
            raw_output,
            ..news
        }
    }
}

/// An update with the details of a call.
pub(super) fn with_details(id: &str, details: CallDetails) -> ToolCall<'static> {
    let CallDetails { kind, title, locations, diffs, raw_input } = details;
    ToolCall {
        kind,
        title: Some(title),
        locations: (!locations.is_empty()).then_some(locations),
        content: (!diffs.is_empty()).then_some(diffs),
        raw_input: Some(raw_input),
        ..ToolCall::of(id)
    }
}

/// Whether arguments are the same as JSON. No arguments are an empty object.
fn is_same(a: &TextBuf, b: &TextBuf) -> bool {
    fn spelled(text: &str) -> &str {
        if text.is_empty() { "{}" } else { text }
    }
    a.escaped() == b.escaped()
        || json::same(spelled(&a.to_text().decode()), spelled(&b.to_text().decode()))
}
