//! A request's answers to the open questions of its thread, in the form that LangGraph takes.
//!
//! All answers are checked before any is sent. Otherwise the tools of one may have acted before the
//! graph refuses another. `approval` reads and checks decisions.

mod approval;
mod error;
mod subject;

use serde_json::value::RawValue;

use approval::{check_approval, check_schema, decisions};
pub use error::ResumeError;
pub(super) use subject::subjects;

use super::input::{Resume, ResumeStatus};
use super::project::response_schema;
use crate::json::{self, Json, ObjectWriter, Text};
use crate::langgraph::{self, BatchDecision, Decision, Start, ThreadState};
use crate::run::{self, Ask, Interrupt};

/// The number of hexadecimal digits in LangGraph's ids of interrupts. An object whose keys are all
/// such ids answers by id. LangGraph reads it the same way.
const ID_DIGITS: usize = 32;

/// Answers to the open questions of a thread.
#[derive(Debug)]
pub(super) struct Answers {
    /// What the run begins with. `None` if no interrupt is answered completely.
    pub(super) start: Option<Start>,
    /// LangGraph's ids of the interrupts that are answered completely.
    pub(super) ids: Vec<String>,
    /// The decisions that are stored until those on the other actions arrive.
    pub(super) keep: Vec<BatchDecision>,
}

/// A request's answer to one interrupt.
enum Answered {
    /// A complete answer, with the stored decisions.
    Whole(Json),
    /// Decisions on some actions, without those that are stored already.
    Partial(Vec<BatchDecision>),
}

/// The open questions of a thread.
struct OpenQuestions {
    interrupts: Vec<Interrupt>,
    /// Whether the thread waits at a static breakpoint.
    is_at_breakpoint: bool,
}

/// The action or the question that an entry of `resume` answers.
#[derive(Clone, Copy)]
struct Target<'a> {
    interrupt: &'a Interrupt,
    /// The index of the action; 0 for a question without actions.
    action: usize,
}

// === impl Answers ===

impl Answers {
    /// Reads the entries of `resume`. Entries that name no open question are left out. `None` if no
    /// entry is left.
    ///
    /// LangGraph gets `{interrupt id: answer}`, which can answer some of several questions. A
    /// single question without an id gets its answer bare. A static breakpoint takes no answer: the
    /// run resumes unless the client cancels it.
    pub(super) fn of(
        entries: &[Resume],
        thread: Option<&ThreadState<'_>>,
    ) -> Result<Option<Self>, ResumeError> {
        let open = OpenQuestions::of(thread);
        if open.is_at_breakpoint {
            let resumes = |entry: &&Resume| {
                run::is_breakpoint(&entry.interrupt_id) && entry.status == ResumeStatus::Resolved
            };
            let entry = entries.iter().find(resumes);
            let ids = entry.map(|entry| vec![entry.interrupt_id.clone()]);
            return Ok(ids.map(|ids| Self::whole(Start::Continue, ids)));
        }
        let targets: Vec<_> = entries
            .iter()
            .filter_map(|entry| Some((entry, open.target(&entry.interrupt_id)?)))
            .collect();
        if targets.is_empty() {
            return Ok(None);
        }
        let (mut answers, mut keep, mut seen) = (Vec::new(), Vec::new(), Vec::new());
        for (entry, Target { interrupt, .. }) in &targets {
            let id = &*interrupt.id;
            if seen.contains(&id) {
                continue;
            }
            seen.push(id);
            let answered = match &interrupt.ask {
                Ask::Approval { actions, form } => decisions(id, actions, *form, &targets)?,
                Ask::Answer { .. } | Ask::Breakpoint => Answered::Whole(answer(entry)),
            };
            match answered {
                Answered::Whole(answer) => answers.push((id, answer)),
                Answered::Partial(given) => keep.extend(given),
            }
        }
        let is_abandoned = |id: &str| {
            let of_it = targets.iter().find(|(_, target)| *target.interrupt.id == *id);
            of_it.is_some_and(|(entry, target)| {
                let is_question = matches!(target.interrupt.ask, Ask::Answer { .. });
                is_question && entry.status == ResumeStatus::Cancelled
            })
        };
        for (id, answer) in &answers {
            // A null that the graph refuses is harmless if it is the only answer: LangGraph keeps
            // nothing of such a run. With other answers, the run may fail after their tools have
            // acted.
            if answers.len() > 1 || !is_abandoned(id) {
                open.check(id, answer)?;
            }
        }
        let whole = open.answered_by(&answers)?;
        let nothing = Self { start: None, ids: Vec::new(), keep: Vec::new() };
        Ok(Some(Self { keep, ..whole.unwrap_or(nothing) }))
    }

    fn whole(start: Start, ids: Vec<String>) -> Self {
        Self { start: Some(start), ids, keep: Vec::new() }
    }

    /// Reads the answer of CopilotKit's older hook: one bare answer, or answers by LangGraph's ids.
    /// `None` if it answers no open question.
    pub(super) fn of_legacy(
        resume: &RawValue,
        thread: Option<&ThreadState<'_>>,
    ) -> Result<Option<Self>, ResumeError> {
        let open = OpenQuestions::of(thread);
        // Callers of the hook may have stringified their answer.
        let inner = json::string(resume).filter(|s| s.starts_with(['{', '[']));
        let parsed = inner.and_then(|s| serde_json::from_str::<&RawValue>(&s).map(Json::from).ok());
        let resume = parsed.unwrap_or_else(|| Json::from(resume));
        let members = json::members(&resume).unwrap_or_default().0;
        if !members.is_empty() && members.iter().all(|(key, _)| is_id(key)) {
            let is_open = |id: &str| open.interrupts.iter().any(|open| *open.id == *id);
            let answers = members.iter().filter(|(id, _)| is_open(id));
            let answers: Vec<_> =
                answers.map(|(id, answer)| (&**id, Json::from(*answer))).collect();
            for (id, answer) in &answers {
                open.check(id, answer)?;
            }
            return open.answered_by(&answers);
        }
        let ids: Vec<_> = open.interrupts.iter().map(|open| open.id.to_string()).collect();
        match open.interrupts.as_slice() {
            [] if open.is_at_breakpoint => {
                let ids = vec![run::BREAKPOINT.to_owned()];
                return Ok(Some(Self::whole(Start::Resume(resume), ids)));
            }
            [] => return Ok(None),
            [only] => open.check(&only.id, &resume)?,
            // LangGraph refuses a bare answer to several questions before anything acts. Versions
            // that give no ids accept it.
            several => {
                if let Some(unnamed) = several.iter().find(|open| open.is_unnamed()) {
                    return Err(ResumeError::Unnamed { id: unnamed.id.to_string() });
                }
            }
        }
        Ok(Some(Self::whole(Start::Resume(resume), ids)))
    }

    /// Rejects all actions that wait for approval and can be rejected, for this reason. Stored
    /// decisions stay. `None` if there is no such action.
    pub(super) fn rejecting(reason: &Text, thread: Option<&ThreadState<'_>>) -> Option<Self> {
        let open = OpenQuestions::of(thread);
        let reject = |interrupt: &Interrupt| {
            let Ask::Approval { actions, form } = &interrupt.ask else { return None };
            let rejected = Decision::Reject { message: Some(reason.clone()) };
            let decisions = actions.iter().map(|action| match &action.kept {
                Some(kept) => Some(kept.decision.clone()),
                None => action
                    .allowed(*form)
                    .contains(&form.rejection())
                    .then(|| form.decision(&action.name, &rejected)),
            });
            Some(form.answer(&decisions.collect::<Option<Vec<_>>>()?))
        };
        let rejections = open.interrupts.iter().filter_map(|open| Some((&*open.id, reject(open)?)));
        // A question that cannot be answered is sent to the client again.
        open.answered_by(&rejections.collect::<Vec<_>>()).ok().flatten()
    }
}

fn is_empty(answer: &RawValue) -> bool {
    answer.get() == "null" || json::members(answer).is_some_and(|members| members.0.is_empty())
}

fn is_id(key: &str) -> bool {
    key.len() == ID_DIGITS && key.bytes().all(|byte| byte.is_ascii_hexdigit())
}

// === impl OpenQuestions ===

impl OpenQuestions {
    fn of(thread: Option<&ThreadState<'_>>) -> Self {
        let interrupts = thread.map(|thread| thread.interrupts.as_slice()).unwrap_or_default();
        let mut interrupts: Vec<_> = interrupts.iter().map(Interrupt::of_langgraph).collect();
        let kept = thread.map(|thread| thread.kept.current.as_slice()).unwrap_or_default();
        for interrupt in &mut interrupts {
            interrupt.keep(kept);
        }
        let is_interrupted = thread.is_some_and(ThreadState::is_interrupted);
        Self { is_at_breakpoint: is_interrupted && interrupts.is_empty(), interrupts }
    }

    /// The interrupt of an id, or the action of an id `<interrupt>:<index>`.
    fn target(&self, id: &str) -> Option<Target<'_>> {
        let find = |id: &str| self.interrupts.iter().find(|interrupt| *interrupt.id == *id);
        if let Some(interrupt) = find(id) {
            return Some(Target { interrupt, action: 0 });
        }
        let (whole, action) = id.rsplit_once(':')?;
        let (interrupt, action) = (find(whole)?, action.parse().ok()?);
        let Ask::Approval { actions, .. } = &interrupt.ask else { return None };
        (action < actions.len()).then_some(Target { interrupt, action })
    }

    /// The answers in the form that LangGraph takes. `None` if there are none.
    fn answered_by(&self, answers: &[(&str, Json)]) -> Result<Option<Answers>, ResumeError> {
        if answers.is_empty() {
            return Ok(None);
        }
        let unnamed = answers.iter().find(|(id, _)| langgraph::RawInterrupt::is_unnamed(id));
        let start = match (unnamed, self.interrupts.as_slice()) {
            (None, _) => {
                let object = ObjectWriter::new();
                let add = |object: ObjectWriter, (id, answer): &(&str, Json)| {
                    object.raw(id, answer.get())
                };
                answers.iter().fold(object, add).finish()
            }
            // LangGraph takes null as no answer, and `{}` as answers to no question.
            (Some((id, answer)), [_]) if is_empty(answer) => {
                return Err(ResumeError::UnnamedEmpty { id: (*id).to_owned() });
            }
            (Some((_, answer)), [_]) => answer.clone(),
            (Some((id, _)), _) => return Err(ResumeError::Unnamed { id: (*id).to_owned() }),
        };
        let ids = answers.iter().map(|(id, _)| (*id).to_owned()).collect();
        Ok(Some(Answers::whole(Start::Resume(start), ids)))
    }

    /// Checks the answer to an interrupt.
    fn check(&self, id: &str, answer: &Json) -> Result<(), ResumeError> {
        let Some(interrupt) = self.interrupts.iter().find(|interrupt| *interrupt.id == *id) else {
            return Ok(());
        };
        match &interrupt.ask {
            Ask::Approval { actions, form } => check_approval(id, actions, *form, answer),
            Ask::Answer { value, schema } => {
                let schema = response_schema(value, schema.as_ref());
                check_schema(id, schema.as_ref(), answer)
            }
            Ask::Breakpoint => Ok(()),
        }
    }
}

/// The answer that the graph gets: the payload of a resolved entry, null for a cancelled one.
fn answer(entry: &Resume) -> Json {
    let payload = entry.payload.clone().filter(|_| entry.status == ResumeStatus::Resolved);
    payload.unwrap_or_else(|| Json::from(RawValue::NULL))
}
