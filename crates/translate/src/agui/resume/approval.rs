//! Decisions on the actions of an approval: read from a request, and checked.

use serde_json::value::RawValue;

use super::{Answered, ResumeError, Target};
use crate::agui::input::{Resume, ResumeStatus};
use crate::json::schema;
use crate::json::{self, Json};
use crate::langgraph::{
    self, ApprovalForm, BatchDecision, Decision, MAX_KEPT_ACTIONS, MAX_KEPT_BYTES,
};
use crate::run::{Action, DecisionFault};

/// The decisions on the actions of an approval, in their order: the request's, or else the stored
/// ones.
pub(super) fn decisions(
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
    // An answer in LangGraph's own form answers all actions at once.
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
        None => partial(id, actions, form, given).map(Answered::Partial),
    }
}

/// Decisions on some actions of an approval, to be stored until the others arrive.
fn partial(
    id: &str,
    actions: &[Action],
    form: ApprovalForm,
    given: Vec<Option<Json>>,
) -> Result<Vec<BatchDecision>, ResumeError> {
    let expected = actions.len();
    // The next question with the same content gets the same id from the gateway.
    if langgraph::RawInterrupt::is_unnamed(id) || expected > MAX_KEPT_ACTIONS {
        let (id, answered) = (id.to_owned(), given.iter().flatten().count());
        return Err(ResumeError::HalfAnswered { id, answered, expected });
    }
    let mut partial = Vec::new();
    for (at, (decision, action)) in given.into_iter().zip(actions).enumerate() {
        let Some(decision) = decision else { continue };
        let of_action = format!("{id}:{at}");
        check_decision(&of_action, &decision, action, form)?;
        let bytes = decision.get().len();
        if bytes > MAX_KEPT_BYTES {
            return Err(ResumeError::TooLongToKeep { id: of_action, bytes });
        }
        if action.kept.as_ref().is_none_or(|kept| kept.decision != decision) {
            partial.push(BatchDecision { interrupt: id.to_owned(), action: at, decision });
        }
    }
    Ok(partial)
}

/// Reads a decision in LangChain's own form, or in AG-UI's `{approved, editedArgs?, reason?}`.
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
            // The edited arguments replace all arguments of the call.
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

// === checks ===

/// Checks an answer in LangGraph's form.
pub(super) fn check_approval(
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

/// Checks the answer to a free question.
pub(super) fn check_schema(
    id: &str,
    schema: Option<&Json>,
    answer: &RawValue,
) -> Result<(), ResumeError> {
    match schema.and_then(|schema| schema::mismatch(schema, answer)) {
        Some(mismatch) => Err(ResumeError::Mismatch { id: id.to_owned(), mismatch }),
        None => Ok(()),
    }
}
