//! Whether a decision of a person is one that its action accepts.

use serde_json::value::RawValue;

use super::Action;
use crate::json;
use crate::json::schema::{self, Mismatch};
use crate::langgraph::{ApprovalForm, Decision};

/// Why an action does not accept a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecisionFault {
    /// The action does not allow this kind of decision.
    NotAllowed {
        /// The kinds that it allows.
        allowed: Vec<&'static str>,
    },
    /// A member of the decision is missing or has the wrong form.
    Incomplete {
        /// Which member, and what it must be.
        part: &'static str,
    },
    /// The decision does not match the action's JSON schema.
    Mismatch(Mismatch),
}

impl Action {
    /// The kinds of decision that the action allows. If the graph names none, these are all of the
    /// form: the graph's middleware then judges.
    pub fn allowed(&self, form: ApprovalForm) -> Vec<&'static str> {
        let kinds = form.decisions();
        let is_named = |kind: &&str| self.decisions.iter().any(|named| **named == **kind);
        let named: Vec<_> = kinds.into_iter().filter(is_named).collect();
        if self.decisions.is_empty() { kinds.to_vec() } else { named }
    }

    /// The decision that the thread's metadata keep for this action.
    pub fn kept_decision(&self, form: ApprovalForm) -> Option<Decision> {
        form.read(&self.kept.as_ref()?.decision)
    }

    /// Checks a decision in the words of the form.
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
