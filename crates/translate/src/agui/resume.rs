//! Answers to what a thread asks: which of them go up, in which form, and whether each is one that
//! its question takes. All are checked before any is sent: the tools of one may have acted by the
//! time that the graph refuses another.

use serde_json::value::RawValue;

use super::input::{Resume, ResumeStatus};
use super::project;
use crate::json::schema::{self, Mismatch};
use crate::json::{self, Json, ObjectWriter, Text};
use crate::langgraph::{
    self, ApprovalForm, BatchDecision, Decision, MAX_KEPT_ACTIONS, MAX_KEPT_BYTES, Start,
    ThreadState,
};
use crate::run::{self, Action, Ask, DecisionFault, Interrupt};

/// The length of LangGraph's own ids of interrupts, in hexadecimal digits. An answer that is an
/// object with such keys alone answers by id, for LangGraph too.
const ID_DIGITS: usize = 32;

/// Answers to what a thread asks.
#[derive(Debug)]
pub(super) struct Answers {
    /// What a run begins with; `None` if no interrupt is answered whole.
    pub(super) start: Option<Start>,
    /// The interrupts that are answered, by LangGraph's ids.
    pub(super) ids: Vec<String>,
    /// The decisions that wait for those on the other actions of their interrupts.
    pub(super) keep: Vec<BatchDecision>,
}

/// What a request answers of an interrupt, beside what is kept.
enum Answered {
    /// All of it: the answer.
    Whole(Json),
    /// Some of its actions: the decisions that are not kept yet.
    Some(Vec<BatchDecision>),
}

/// Why answers cannot be sent. What was answered is not quoted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResumeError {
    /// A list of decisions has not one for each action of its approval, or some are answered of an
    /// approval whose answers cannot wait for the others.
    #[error(
        "`resume` answers {answered} of the {expected} actions of interrupt {id}; answer all of \
         them in one request"
    )]
    HalfAnswered {
        /// LangGraph's interrupt.
        id: String,
        /// How many answers there are.
        answered: usize,
        /// How many it takes.
        expected: usize,
    },
    /// An approval is answered with something that is no decision. What acts must not be had by
    /// an answer that we misread.
    #[error(
        "`resume` neither approves nor rejects interrupt {id}; send the payload \
         `{{\"approved\": true}}` or `{{\"approved\": false}}`, or a decision of LangChain's with its \
         `type`"
    )]
    NoDecision {
        /// The interrupt, or one action of it, as the client names it.
        id: String,
    },
    /// A decision that this approval does not allow.
    #[error(
        "`resume` answers interrupt {id} with a decision that it does not allow; it takes one of: \
         {}",
        allowed.join(", ")
    )]
    NotAllowed {
        /// The interrupt, or one action of it.
        id: String,
        /// What it takes.
        allowed: Vec<&'static str>,
    },
    /// A decision that lacks a part.
    #[error("`resume` answers interrupt {id} with a decision whose {part}")]
    Incomplete {
        /// The interrupt, or one action of it.
        id: String,
        /// Which part, and what it must be.
        part: &'static str,
    },
    /// An answer that the question's schema does not allow.
    #[error(
        "`resume` answers interrupt {id} with what its `responseSchema` does not allow: {mismatch}"
    )]
    Mismatch {
        /// The interrupt.
        id: String,
        /// What is wrong.
        mismatch: Mismatch,
    },
    /// An answer to one of several questions, to which LangGraph has given no id.
    #[error(
        "`resume` answers interrupt {id}, which has no id in LangGraph; while the thread asks \
         other questions too, LangGraph cannot tell which one is answered"
    )]
    Unnamed {
        /// Our name of the interrupt.
        id: String,
    },
    /// Beside the answers come messages that LangGraph would put between a call that waits and its
    /// result. A model's provider refuses such a conversation.
    #[error(
        "`resume` comes with new messages while tool calls wait for their results; send the answers \
         alone, and the messages when the run is over"
    )]
    MessagesBeside,
    /// A decision that is too long to wait for those on the other actions.
    #[error(
        "`resume` answers interrupt {id} with {bytes} bytes, and at most {MAX_KEPT_BYTES} can wait for \
         the answers to the other actions; answer all of them in one request"
    )]
    TooLongToKeep {
        /// One action of an interrupt.
        id: String,
        /// How long the decision is.
        bytes: usize,
    },
    /// New messages come beside answers that wait for others, which no run begins with.
    #[error(
        "`resume` comes with new messages, and the thread takes none before the other actions are \
         answered too; send the answers alone, and the messages when the run is over"
    )]
    MessagesBesideKept,
    /// Null or an empty object as the answer to a question to which LangGraph has given no id.
    #[error(
        "`resume` answers interrupt {id} with null or an empty object, which LangGraph takes only \
         with an id, and this interrupt has none; send another answer"
    )]
    UnnamedEmpty {
        /// Our name of the interrupt.
        id: String,
    },
}

/// What a thread asks.
struct Open {
    interrupts: Vec<Interrupt>,
    /// Whether it waits at a static breakpoint.
    is_at_breakpoint: bool,
}

/// What an entry of `resume` answers.
#[derive(Clone, Copy)]
struct Target<'a> {
    interrupt: &'a Interrupt,
    /// Which of its actions.
    action: usize,
}

// === impl Answers ===

impl Answers {
    /// The answers in LangGraph's native form, `{interrupt id: answer}`, which also answers some of
    /// several; a bare answer to an only question without an id. Entries that name nothing open are left out; `None` if none is left.
    ///
    /// A static breakpoint takes no answer: the run goes on, unless the client gives it up.
    pub(super) fn of(
        entries: &[Resume],
        thread: Option<&ThreadState<'_>>,
    ) -> Result<Option<Self>, ResumeError> {
        let open = Open::of(thread);
        if open.is_at_breakpoint {
            let goes_on = |entry: &&Resume| {
                run::is_breakpoint(&entry.interrupt_id) && entry.status == ResumeStatus::Resolved
            };
            let entry = entries.iter().find(goes_on);
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
                Answered::Some(given) => keep.extend(given),
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
            // LangGraph keeps nothing of a run that a null alone has failed, so that it may be
            // tried. Beside other answers it may fail after their tools have acted.
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

    /// `forwardedProps.command.resume`, as CopilotKit's older hook sends it: one bare answer, or
    /// one by LangGraph's ids. `None` if nothing is open, or none that it names.
    pub(super) fn of_legacy(
        resume: &RawValue,
        thread: Option<&ThreadState<'_>>,
    ) -> Result<Option<Self>, ResumeError> {
        let open = Open::of(thread);
        // A string may hold JSON: the hook's callers print what they answer with.
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
            // LangGraph refuses a bare answer to several before anything acts. Its versions without
            // ids do not.
            several => {
                if let Some(unnamed) = several.iter().find(|open| open.is_unnamed()) {
                    return Err(ResumeError::Unnamed { id: unnamed.id.to_string() });
                }
            }
        }
        Ok(Some(Self::whole(Start::Resume(resume), ids)))
    }

    /// A rejection of all that waits for approval and may be rejected, for this reason. `None` if
    /// there is nothing of that kind. A decision that is kept stays as it is.
    pub(super) fn rejecting(reason: &Text, thread: Option<&ThreadState<'_>>) -> Option<Self> {
        let open = Open::of(thread);
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
        // What cannot be answered is asked again.
        open.answered_by(&rejections.collect::<Vec<_>>()).ok().flatten()
    }
}

fn is_empty(answer: &RawValue) -> bool {
    answer.get() == "null" || json::members(answer).is_some_and(|members| members.0.is_empty())
}

fn is_id(key: &str) -> bool {
    key.len() == ID_DIGITS && key.bytes().all(|byte| byte.is_ascii_hexdigit())
}

// === impl Open ===

impl Open {
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

    /// What an id of ours names: an interrupt, or one action of several.
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

    /// These answers in the form that LangGraph takes; `None` if there are none.
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
            // For LangGraph null is no answer, and `{}` answers none of several.
            (Some((id, answer)), [_]) if is_empty(answer) => {
                return Err(ResumeError::UnnamedEmpty { id: (*id).to_owned() });
            }
            (Some((_, answer)), [_]) => answer.clone(),
            (Some((id, _)), _) => return Err(ResumeError::Unnamed { id: (*id).to_owned() }),
        };
        let ids = answers.iter().map(|(id, _)| (*id).to_owned()).collect();
        Ok(Some(Answers::whole(Start::Resume(start), ids)))
    }

    /// Whether an interrupt takes an answer.
    fn check(&self, id: &str, answer: &Json) -> Result<(), ResumeError> {
        let Some(interrupt) = self.interrupts.iter().find(|interrupt| *interrupt.id == *id) else {
            return Ok(());
        };
        match &interrupt.ask {
            Ask::Approval { actions, form } => check_approval(id, actions, *form, answer),
            Ask::Answer { value, schema } => {
                let shown = project::response_schema(value, schema.as_ref());
                check_schema(id, shown.as_ref(), answer)
            }
            Ask::Breakpoint => Ok(()),
        }
    }
}

/// What the graph gets: the payload of a resolved entry, null for a cancelled one.
fn answer(entry: &Resume) -> Json {
    let payload = entry.payload.clone().filter(|_| entry.status == ResumeStatus::Resolved);
    payload.unwrap_or_else(|| Json::from(RawValue::NULL))
}

/// The decisions on the actions of an approval, in their order: those of the request, else those
/// that are kept.
fn decisions(
    id: &str,
    actions: &[Action],
    form: ApprovalForm,
    targets: &[(&Resume, Target<'_>)],
) -> Result<Answered, ResumeError> {
    let of = |at: usize| {
        let is_it = |target: &Target<'_>| *target.interrupt.id == *id && target.action == at;
        targets.iter().find(|(_, target)| is_it(target)).map(|(entry, _)| *entry)
    };
    let found: Vec<_> = (0..actions.len()).map(of).collect();
    // The form's own answer answers all actions at once.
    let is_whole = |payload: &RawValue| match form {
        ApprovalForm::Inbox => json::items(payload).is_some(),
        ApprovalForm::Python | ApprovalForm::JavaScript | ApprovalForm::PerCall => {
            json::members(payload).is_some_and(|members| members.get("decisions").is_some())
        }
    };
    let first = found.iter().flatten().next();
    if let Some(whole) = first.and_then(|entry| entry.payload.as_deref())
        && is_whole(whole)
    {
        return Ok(Answered::Whole(Json::from(whole)));
    }
    let mut given = Vec::with_capacity(actions.len());
    for (entry, action) in found.into_iter().zip(actions) {
        given.push(entry.map(|entry| decision(entry, action, form)).transpose()?);
    }
    let kept = actions.iter().map(|action| action.kept.as_ref().map(|kept| &kept.decision));
    let all: Option<Vec<_>> =
        given.iter().zip(kept).map(|(given, kept)| given.as_ref().or(kept).cloned()).collect();
    match all {
        Some(all) => Ok(Answered::Whole(form.answer(&all))),
        None => some(id, actions, form, given).map(Answered::Some),
    }
}

/// Decisions on some of the actions of an approval, as they can wait for the others.
fn some(
    id: &str,
    actions: &[Action],
    form: ApprovalForm,
    given: Vec<Option<Json>>,
) -> Result<Vec<BatchDecision>, ResumeError> {
    let expected = actions.len();
    // A name of ours is that of the next question that asks the same, too.
    if langgraph::RawInterrupt::is_unnamed(id) || expected > MAX_KEPT_ACTIONS {
        let (id, answered) = (id.to_owned(), given.iter().flatten().count());
        return Err(ResumeError::HalfAnswered { id, answered, expected });
    }
    let mut some = Vec::new();
    for (at, (decision, action)) in given.into_iter().zip(actions).enumerate() {
        let Some(decision) = decision else { continue };
        let of_action = format!("{id}:{at}");
        check_decision(&of_action, &decision, action, form)?;
        let bytes = decision.get().len();
        if bytes > MAX_KEPT_BYTES {
            return Err(ResumeError::TooLongToKeep { id: of_action, bytes });
        }
        if action.kept.as_ref().is_none_or(|kept| kept.decision != decision) {
            some.push(BatchDecision { interrupt: id.to_owned(), action: at, decision });
        }
    }
    Ok(some)
}

/// A decision: LangChain's own form, or AG-UI's `{approved, editedArgs?, reason?}`.
fn decision(entry: &Resume, action: &Action, form: ApprovalForm) -> Result<Json, ResumeError> {
    let of = |decision| form.decision(&action.name, &decision);
    let none = || ResumeError::NoDecision { id: entry.interrupt_id.clone() };
    let payload = match entry.status {
        ResumeStatus::Cancelled => return Ok(of(Decision::Reject { message: None })),
        ResumeStatus::Resolved => entry.payload.as_ref().ok_or_else(none)?,
    };
    let members = json::members(payload).unwrap_or_default();
    if members.get("type").is_some() {
        return Ok(payload.clone());
    }
    match members.get("approved").unwrap_or(payload).get() {
        "true" => match members.get("editedArgs").filter(|args| args.get() != "null") {
            // The edited arguments replace all of the call's.
            Some(args) => Ok(of(Decision::Edit { args: Json::from(args) })),
            None => Ok(of(Decision::Approve)),
        },
        "false" => {
            let message = members.text("message").or_else(|| members.text("reason"));
            Ok(of(Decision::Reject { message }))
        }
        _ => Err(none()),
    }
}

// === what is allowed ===

fn check_approval(
    id: &str,
    actions: &[Action],
    form: ApprovalForm,
    answer: &Json,
) -> Result<(), ResumeError> {
    let decisions = match form {
        ApprovalForm::PerCall => vec![&**answer],
        ApprovalForm::Inbox => json::items(answer).unwrap_or_default(),
        ApprovalForm::Python | ApprovalForm::JavaScript => {
            let members = json::members(answer).unwrap_or_default();
            members.get("decisions").and_then(json::items).unwrap_or_default()
        }
    };
    if decisions.len() != actions.len() {
        let (id, answered, expected) = (id.to_owned(), decisions.len(), actions.len());
        return Err(ResumeError::HalfAnswered { id, answered, expected });
    }
    for (at, (decision, action)) in decisions.into_iter().zip(actions).enumerate() {
        let id = if actions.len() == 1 { id.to_owned() } else { format!("{id}:{at}") };
        check_decision(&id, decision, action, form)?;
    }
    Ok(())
}

fn check_decision(
    id: &str,
    decision: &RawValue,
    action: &Action,
    form: ApprovalForm,
) -> Result<(), ResumeError> {
    let id = id.to_owned();
    action.check(form, decision).map_err(|fault| match fault {
        DecisionFault::NotAllowed { allowed } => ResumeError::NotAllowed { id, allowed },
        DecisionFault::Incomplete { part } => ResumeError::Incomplete { id, part },
        DecisionFault::Mismatch(mismatch) => ResumeError::Mismatch { id, mismatch },
    })
}

fn check_schema(id: &str, schema: Option<&Json>, answer: &RawValue) -> Result<(), ResumeError> {
    match schema.and_then(|schema| schema::mismatch(schema, answer)) {
        Some(mismatch) => Err(ResumeError::Mismatch { id: id.to_owned(), mismatch }),
        None => Ok(()),
    }
}
