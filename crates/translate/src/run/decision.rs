//! Whether an action takes a decision.

use serde_json::value::RawValue;

use super::Action;
use crate::json;
use crate::json::schema::{self, Mismatch};
use crate::langgraph::{ApprovalForm, Decision};

/// Why an action does not take a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecisionFault {
    /// It allows others.
    NotAllowed {
        /// What it takes.
        allowed: Vec<&'static str>,
    },
    /// A part is missing.
    Incomplete {
        /// Which part, and what it must be.
        part: &'static str,
    },
    /// Its schema does not allow it.
    Mismatch(Mismatch),
}

impl Action {
    /// The decisions that it takes. Where the graph names none, the middleware judges.
    pub fn allowed(&self, form: ApprovalForm) -> Vec<&'static str> {
        let kinds = form.decisions();
        let is_named = |kind: &&str| self.decisions.iter().any(|named| **named == **kind);
        let named: Vec<_> = kinds.into_iter().filter(is_named).collect();
        if self.decisions.is_empty() { kinds.to_vec() } else { named }
    }

    /// The decision that is kept.
    pub fn kept_decision(&self, form: ApprovalForm) -> Option<Decision> {
        form.read(&self.kept.as_ref()?.decision)
    }

    /// Whether it takes a decision in the form's words.
    pub fn check(&self, form: ApprovalForm, decision: &RawValue) -> Result<(), DecisionFault> {
        let members = json::members(decision).unwrap_or_default();
        let kind = members.string("type").unwrap_or_default();
        let allowed = self.allowed(form);
        if !allowed.contains(&&*kind) && !self.decisions.iter().any(|named| **named == *kind) {
            return Err(DecisionFault::NotAllowed { allowed });
        }
        if let Some(part) = form.lacks(&kind, &members) {
            return Err(DecisionFault::Incomplete { part });
        }
        let mismatch = self.schema.as_ref().and_then(|schema| schema::mismatch(schema, decision));
        mismatch.map_or(Ok(()), |mismatch| Err(DecisionFault::Mismatch(mismatch)))
    }
}
