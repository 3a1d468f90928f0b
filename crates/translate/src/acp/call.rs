//! What a client was told of the tool calls: each is announced once, and settled in the end.
//!
//! ```text
//!   pending ---allowed, or seen to run---> in progress ---result---> completed | failed
//!      |                                                                  ^
//!      +-------------------------------result-----------------------------+
//! ```
//! A status never goes back while its run lasts. Complete arguments do not mean that the tool
//! runs: the graph may ask a person first, and its stream does not report when a tool begins. So a
//! call stays pending until a person or a rule has allowed it, a subagent works for it, or its
//! result is known.
//!
//! A call whose run ends without a result is settled as failed. A result that is known later is
//! told all the same, and a later question about the call makes it pending again.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use super::asked;
use super::content;
use super::strict;
use super::tool::{self, Reader, Told};
use super::update::{ContentBlock, ToolCall, ToolContent, ToolKind, ToolStatus, Update};
use crate::json::{self, Text, TextBuf};
use crate::run::{self, Action, Content, Id};

/// The calls of a session.
#[derive(Debug, Default)]
pub(super) struct Calls {
    known: HashMap<Id, Call>,
    /// Those that wait for a result, and some that have it, in the order of their announcement.
    open: Vec<Id>,
    /// Results that came before their calls, in this run.
    early: HashMap<Id, (Content, bool)>,
    /// Counts the runs.
    run: u32,
}

/// What a person has decided about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    Allowed,
    /// It does not take place.
    Rejected,
}

/// What a tool has answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer<'a> {
    pub(super) content: &'a Content,
    pub(super) is_error: bool,
}

#[derive(Debug)]
struct Call {
    name: Id,
    kind: ToolKind,
    stage: Stage,
    /// The arguments, as far as the run has said them.
    args: TextBuf,
    /// Those that were told.
    told: Option<TextBuf>,
    /// Whether what was told shows what the call changes.
    has_diff: bool,
    /// Whether the client was shown, in the content, what was asked about the call.
    has_note: bool,
    /// Whether the client was last shown the call as over. It may begin anew since.
    is_over: bool,
    /// The fingerprint of the result that was told.
    result: u64,
    /// The last run that told of it.
    run: u32,
    origin: Origin,
}

/// Where a call comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// The conversation, which will hold its result.
    Conversation,
    /// A question about an action: no result will come.
    Question,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It waits: for its arguments, for a person, or for the graph to run it.
    Pending,
    /// A person or a rule has allowed it, or something was seen to run in it.
    InProgress,
    /// The turn was over before it had a result.
    GivenUp,
    Answered,
    /// It was answered, and the conversation does not hold that any more: it may be answered
    /// again.
    TakenBack,
}

// === impl Calls ===

impl Calls {
    /// Another run begins.
    pub(super) fn begin(&mut self) {
        self.run += 1;
        self.early.clear();
    }

    /// A call begins, or a second attempt makes it again.
    pub(super) fn start(
        &mut self,
        id: &Id,
        name: &Id,
        reader: Reader<'_>,
        emit: &mut dyn FnMut(&Update<'_>),
    ) {
        let run = self.run;
        let Some(call) = self.known.get_mut(id) else {
            let call = self.new_call(name, reader);
            emit(&Update::ToolCall(call.announcement(id)));
            return self.insert(id, call);
        };
        let is_again = std::mem::replace(&mut call.run, run) != run;
        match call.stage {
            // A run that is told again from its beginning: nothing of it is news.
            Stage::Answered => {}
            Stage::Pending | Stage::InProgress if !is_again => {}
            Stage::Pending | Stage::InProgress => call.args = TextBuf::default(),
            Stage::GivenUp | Stage::TakenBack => {
                call.stage = Stage::Pending;
                call.args = TextBuf::default();
                self.open.push(Arc::clone(id));
            }
        }
    }

    /// A piece of the arguments.
    pub(super) fn args(&mut self, id: &Id, delta: &Text) {
        if let Some(call) = self.known.get_mut(id).filter(|call| call.is_open()) {
            call.args.push(delta);
        }
    }

    /// The arguments are complete. Those that are not whole are told with the result: who reads
    /// the run may have missed some, and is told them yet.
    pub(super) fn end(&mut self, id: &Id, reader: Reader<'_>, emit: &mut dyn FnMut(&Update<'_>)) {
        let Some(call) = self.known.get_mut(id).filter(|call| call.is_open()) else { return };
        let is_whole = call.args.is_empty() || tool::is_complete(&call.args.to_text().decode());
        if is_whole && let Some(told) = call.read(reader) {
            emit(&Update::ToolCallUpdate(with_args(id, told)));
        }
        if let Some((content, is_error)) = self.early.remove(id) {
            let answer = Answer { content: &content, is_error };
            emit(&Update::ToolCallUpdate(call.answered(id, answer, reader)));
        }
    }

    /// A tool has answered. A call that is not known yet is told with its result.
    pub(super) fn answer(
        &mut self,
        id: &Id,
        answer: Answer<'_>,
        reader: Reader<'_>,
        emit: &mut dyn FnMut(&Update<'_>),
    ) {
        match self.known.get_mut(id) {
            Some(call) if call.stage == Stage::Answered => {}
            Some(call) => emit(&Update::ToolCallUpdate(call.answered(id, answer, reader))),
            None => {
                let answer = (answer.content.clone(), answer.is_error);
                self.early.insert(Arc::clone(id), answer);
            }
        }
    }

    /// A call as the conversation has it, with its result if it has one.
    pub(super) fn show(
        &mut self,
        call: &run::Call,
        answer: Option<Answer<'_>>,
        reader: Reader<'_>,
        emit: &mut dyn FnMut(&Update<'_>),
    ) {
        let id = &call.id;
        let is_whole = || tool::is_complete(&call.args.to_text().decode());
        let none = || ToolCall::of(id);
        let Some(known) = self.known.get_mut(id) else {
            let mut new = self.new_call(&call.name, reader);
            new.args.clone_from(&call.args);
            let ToolCall { title, name, kind, .. } = new.announcement(id);
            let shown = match answer {
                Some(answer) => new.answered(id, answer, reader),
                None if is_whole() => {
                    new.read(reader).map_or_else(none, |told| with_args(id, told))
                }
                None => none(),
            };
            let title = shown.title.clone().or(title);
            emit(&Update::ToolCall(ToolCall { title, name, kind, ..shown }));
            return self.insert(id, new);
        };
        known.run = self.run;
        let news = match (known.stage, answer) {
            (Stage::GivenUp, None) => None,
            (Stage::Answered | Stage::TakenBack, None) => {
                known.stage = Stage::TakenBack;
                None
            }
            (Stage::Answered | Stage::TakenBack, Some(answer))
                if known.result == answer.fingerprint() =>
            {
                known.stage = Stage::Answered;
                None
            }
            (Stage::Answered | Stage::TakenBack, Some(answer)) => {
                Some(known.answered(id, answer, reader))
            }
            (Stage::Pending | Stage::InProgress | Stage::GivenUp, Some(answer)) => {
                known.args.clone_from(&call.args);
                Some(known.answered(id, answer, reader))
            }
            (Stage::Pending | Stage::InProgress, None) => {
                known.args.clone_from(&call.args);
                // Whoever was asked may have changed what was told.
                let is_news = known.told.is_some() || is_whole();
                let told = if is_news { known.read(reader) } else { None };
                told.map(|told| with_args(id, told))
            }
        };
        if let Some(news) = news {
            emit(&Update::ToolCallUpdate(news));
        }
    }

    /// The conversation does not hold these calls any more: what they say begins anew.
    pub(super) fn take_back(&mut self, held: &HashSet<&Id>) {
        for (_, call) in self.known.iter_mut().filter(|(id, _)| !held.contains(id)) {
            match call.stage {
                Stage::Pending | Stage::InProgress => call.args = TextBuf::default(),
                Stage::Answered => call.stage = Stage::TakenBack,
                Stage::GivenUp | Stage::TakenBack => {}
            }
        }
    }

    /// The tool is seen to run.
    pub(super) fn run(&mut self, id: &str, emit: &mut dyn FnMut(&Update<'_>)) {
        let Some(call) = self.known.get_mut(id).filter(|call| call.waits()) else { return };
        call.stage = Stage::InProgress;
        let status = Some(ToolStatus::InProgress);
        emit(&Update::ToolCallUpdate(ToolCall { status, ..ToolCall::of(id) }));
    }

    /// A person is asked about a call: it is known now, and waits, unless it runs already. Gives
    /// the call with all that was asked about it.
    pub(super) fn ask(
        &mut self,
        id: &Id,
        action: &Action,
        reader: Reader<'_>,
        emit: &mut dyn FnMut(&Update<'_>),
    ) -> ToolCall<'static> {
        let is_new = !self.known.contains_key(id);
        let mut new = self.new_call(&Id::from(&*action.name.decode()), reader);
        if action.call_id.is_none() {
            new.origin = Origin::Question;
        }
        let call = self.known.entry(Arc::clone(id)).or_insert(new);
        if is_new || !call.is_open() {
            self.open.push(Arc::clone(id));
        }
        if !call.is_open() {
            call.stage = Stage::Pending;
        }
        let waits_again = std::mem::take(&mut call.is_over);
        call.args = TextBuf::from(&Text::new(action.args.get()));
        let news = call.read(reader).map(|told| with_args(id, told));
        if is_new {
            let ToolCall { title, name, kind, .. } = call.announcement(id);
            let news = news.unwrap_or_else(|| ToolCall::of(id));
            let title = news.title.clone().or(title);
            emit(&Update::ToolCall(ToolCall { title, name, kind, ..news }));
        } else if news.is_some() || waits_again {
            let news = news.unwrap_or_else(|| ToolCall::of(id));
            let status = waits_again.then_some(ToolStatus::Pending);
            emit(&Update::ToolCallUpdate(ToolCall { status, ..news }));
        }
        let status = match call.stage {
            Stage::InProgress => ToolStatus::InProgress,
            Stage::Pending | Stage::GivenUp | Stage::Answered | Stage::TakenBack => {
                ToolStatus::Pending
            }
        };
        let mut asked = with_args(id, call.told_args(reader));
        if let Some(note) = asked::about(action) {
            let note = ToolContent::Content { content: ContentBlock::text(&note) };
            asked.content.get_or_insert_default().insert(0, note);
            call.has_note = true;
        }
        ToolCall { kind: Some(call.kind), status: Some(status), ..asked }
    }

    /// A person has decided about a call that was asked about.
    pub(super) fn decide(&mut self, id: &str, verdict: Verdict, emit: &mut dyn FnMut(&Update<'_>)) {
        let Some(call) = self.known.get_mut(id).filter(|call| call.waits()) else { return };
        let status = match (verdict, call.origin) {
            (Verdict::Allowed, Origin::Conversation) => ToolStatus::InProgress,
            (Verdict::Allowed, Origin::Question) => ToolStatus::Completed,
            (Verdict::Rejected, Origin::Question) => ToolStatus::Failed,
            // Its result says so.
            (Verdict::Rejected, Origin::Conversation) => return,
        };
        call.stage = match call.origin {
            Origin::Conversation => Stage::InProgress,
            Origin::Question => Stage::Answered,
        };
        call.is_over = call.stage == Stage::Answered;
        emit(&Update::ToolCallUpdate(ToolCall { status: Some(status), ..ToolCall::of(id) }));
    }

    /// Nobody will answer what is open.
    pub(super) fn settle(&mut self, reader: Reader<'_>, emit: &mut dyn FnMut(&Update<'_>)) {
        for id in std::mem::take(&mut self.open) {
            let Some(call) = self.known.get_mut(&id).filter(|call| call.is_open()) else {
                continue;
            };
            let news = match call.read_rest(reader) {
                Some(told) => with_args(&id, told),
                None => ToolCall::of(&id),
            };
            emit(&Update::ToolCallUpdate(ToolCall { status: Some(ToolStatus::Failed), ..news }));
            call.stage = Stage::GivenUp;
            call.is_over = true;
        }
    }

    /// Forgets which calls were open of those that have their result.
    pub(super) fn tidy(&mut self) {
        self.open.retain(|id| self.known.get(id).is_some_and(Call::is_open));
    }

    fn new_call(&self, name: &Id, reader: Reader<'_>) -> Call {
        Call {
            name: Arc::clone(name),
            kind: reader.dialect.kind(name),
            stage: Stage::Pending,
            args: TextBuf::default(),
            told: None,
            has_diff: false,
            has_note: false,
            is_over: false,
            result: 0,
            run: self.run,
            origin: Origin::Conversation,
        }
    }

    fn insert(&mut self, id: &Id, call: Call) {
        if call.is_open() {
            self.open.push(Arc::clone(id));
        }
        self.known.insert(Arc::clone(id), call);
    }
}

// === impl Answer ===

impl Answer<'_> {
    /// A number that tells one answer from another, however it is escaped.
    fn fingerprint(self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.is_error.hash(&mut hasher);
        self.content.text().decode().hash(&mut hasher);
        hasher.finish()
    }
}

// === impl Call ===

impl Call {
    fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Pending | Stage::InProgress)
    }

    /// Whether it waits, also as the client sees it.
    fn waits(&self) -> bool {
        self.stage == Stage::Pending && !self.is_over
    }

    fn announcement(&self, id: &str) -> ToolCall<'static> {
        ToolCall {
            title: Some(tool::bare_title(&self.name, self.kind)),
            name: Some(self.name.to_string()),
            kind: Some(self.kind),
            ..ToolCall::of(id)
        }
    }

    /// What the arguments tell.
    fn told_args(&self, reader: Reader<'_>) -> Told {
        reader.read(&self.name, self.kind, &self.args.to_text())
    }

    /// What the arguments tell, if that is news.
    fn read(&mut self, reader: Reader<'_>) -> Option<Told> {
        if self.told.as_ref().is_some_and(|told| is_same(told, &self.args)) {
            return None;
        }
        let told = self.told_args(reader);
        self.has_diff = !told.diffs.is_empty();
        self.told = Some(self.args.clone());
        Some(told)
    }

    /// The same for a call that says no more: of arguments that never came nothing is told.
    fn read_rest(&mut self, reader: Reader<'_>) -> Option<Told> {
        if self.args.is_empty() { None } else { self.read(reader) }
    }

    /// The call with its result, and what was not told of it.
    fn answered<'a>(&mut self, id: &str, answer: Answer<'a>, reader: Reader<'_>) -> ToolCall<'a> {
        let Answer { content, is_error } = answer;
        // What was asked gives way to what came of it.
        let is_stale = std::mem::take(&mut self.has_note) && self.has_diff;
        let told = match self.read_rest(reader) {
            None if is_stale => Some(self.told_args(reader)),
            told => told,
        };
        let news = told.map_or_else(|| ToolCall::of(id), |told| with_args(id, told));
        self.stage = Stage::Answered;
        self.is_over = true;
        self.result = answer.fingerprint();
        self.args = TextBuf::default();
        self.told = None;
        // What an edit has changed says more than that it has.
        let shown = if self.has_diff && !is_error {
            news.content
        } else {
            let blocks = content::blocks(content).into_iter();
            Some(blocks.map(|content| ToolContent::Content { content }).collect())
        };
        ToolCall {
            status: Some(if is_error { ToolStatus::Failed } else { ToolStatus::Completed }),
            content: shown,
            raw_output: Some(strict::value_or_string(&content.text())),
            ..news
        }
    }
}

fn with_args(id: &str, told: Told) -> ToolCall<'static> {
    let Told { title, locations, diffs, raw_input } = told;
    ToolCall {
        title: Some(title),
        locations: (!locations.is_empty()).then_some(locations),
        content: (!diffs.is_empty()).then_some(diffs),
        raw_input: Some(raw_input),
        ..ToolCall::of(id)
    }
}

/// Whether arguments are the same as JSON. None are an empty object.
fn is_same(a: &TextBuf, b: &TextBuf) -> bool {
    fn spelled(text: &str) -> &str {
        if text.is_empty() { "{}" } else { text }
    }
    a.escaped() == b.escaped()
        || json::same(spelled(&a.to_text().decode()), spelled(&b.to_text().decode()))
}
