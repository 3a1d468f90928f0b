//! Whether a tool may be called: by the operator's rules, by a person's earlier answers, or else by
//! the person's choice among the offered options.
//!
//! `form` is for answers that need a form.

mod form;

pub use form::{Form, answer_of_prompt};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Glob;
use crate::json::digest::Digest;
use crate::json::{self, Json, Text};
use crate::run::{Action, Decision};

/// How many answers a session remembers. The oldest is dropped first, because the thread's metadata
/// is always read whole.
pub const MAX_REMEMBERED: usize = 100;

/// The operator's rules. The first whose pattern matches the tool's name counts.
///
/// Rules cannot stop a tool for which the graph asks no approval.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules(pub Vec<(Glob, Rule)>);

/// What happens to a call that needs approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rule {
    /// The person is asked.
    Ask,
    /// The call is approved, if the graph allows that.
    Allow,
    /// The call is rejected, if the graph allows that.
    Reject,
}

/// An answer that holds for every later call of this tool with these arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    /// The tool.
    pub name: String,
    /// The arguments as JSON.
    pub args: String,
    /// The answer.
    pub decision: Always,
}

/// The answer to all later calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Always {
    /// They are approved.
    Allow,
    /// They are rejected.
    Reject,
}

/// An option that a person can choose. [`Offer::option`] has its ACP form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// Approve the call.
    Allow,
    /// Approve this call and all later ones with the same arguments.
    AllowAlways,
    /// Approve the call with other arguments, which a form asks for.
    Edit,
    /// Give the tool's answer, which a form asks for. The call does not take place.
    Respond,
    /// Reject the call.
    Reject,
    /// Reject this call and all later ones with the same arguments.
    RejectAlways,
}

/// An option in ACP's form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PermissionOption {
    option_id: &'static str,
    name: &'static str,
    kind: &'static str,
}

/// A kind of decision that a graph may allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DecisionKind {
    Approve,
    Edit,
    Reject,
    Respond,
}

// === impl Rules ===

impl Rules {
    /// The rule for a tool. `None` if no pattern matches.
    pub fn of(&self, tool: &str) -> Option<Rule> {
        self.0.iter().find(|(glob, _)| glob.matches(tool)).map(|(_, rule)| *rule)
    }
}

/// The decision about a call without asking: by a remembered answer, or else by the first matching
/// rule. `None` if the person must be asked.
pub fn decided(action: &Action, remembered: &[Remembered], rules: &[&Rules]) -> Option<Decision> {
    let tool = action.name.decode();
    let is_same =
        |known: &&Remembered| known.name == *tool && json::same(&known.args, action.args.get());
    let rule = match remembered.iter().rfind(is_same).map(|known| known.decision) {
        Some(Always::Allow) => Rule::Allow,
        Some(Always::Reject) => Rule::Reject,
        None => rules.iter().find_map(|rules| rules.of(&tool))?,
    };
    match rule {
        Rule::Ask => None,
        Rule::Allow => may(action, DecisionKind::Approve).then_some(Decision::Approve),
        Rule::Reject => {
            may(action, DecisionKind::Reject).then_some(Decision::Reject { message: None })
        }
    }
}

/// The options for a call. None if all need a form and the client has no forms.
pub fn offers(action: &Action, has_forms: bool) -> Vec<Offer> {
    let mut offers = Vec::new();
    if may(action, DecisionKind::Approve) {
        offers.extend([Offer::Allow, Offer::AllowAlways]);
    }
    if has_forms && may(action, DecisionKind::Edit) {
        offers.push(Offer::Edit);
    }
    // Some clients choose the first option of a kind, so the one without side effects comes first.
    if may(action, DecisionKind::Reject) {
        offers.extend([Offer::Reject, Offer::RejectAlways]);
    }
    if has_forms && may(action, DecisionKind::Respond) {
        offers.push(Offer::Respond);
    }
    offers
}

/// A rejection, if the graph allows one.
pub fn rejected(action: &Action) -> Option<Decision> {
    may(action, DecisionKind::Reject).then_some(Decision::Reject { message: None })
}

/// The decision that a prompt gives about a call without options. The prompt is the tool's answer
/// if the graph allows one, or else the new arguments, or the name of a decision that only the graph
/// knows. If that is the only decision, the prompt is its message. `None` if the prompt is no answer.
pub fn answered_by_prompt(action: &Action, prompt: &str) -> Option<Decision> {
    let known = if may(action, DecisionKind::Respond) {
        Some(Decision::Respond { message: Text::new(prompt) })
    } else if may(action, DecisionKind::Edit) {
        let args: Option<&RawValue> = serde_json::from_str(prompt).ok();
        args.filter(|args| json::members(args).is_some())
            .map(|args| Decision::Edit { args: Json::from(args) })
    } else {
        None
    };
    known.or_else(|| {
        let only_its = decisions_of_graph(action);
        let named = only_its.iter().find(|kind| kind.eq_ignore_ascii_case(prompt.trim()));
        let other = |kind: &str, message| Decision::Other { kind: kind.to_owned(), message };
        match (named, &*only_its, &*action.decisions) {
            (Some(kind), ..) => Some(other(kind, None)),
            (None, [only], [_]) => Some(other(only, Some(Text::new(prompt)))),
            (None, ..) => None,
        }
    })
}

/// The allowed decisions whose meaning only the graph knows.
pub(super) fn decisions_of_graph(action: &Action) -> Vec<&str> {
    const KNOWN: [&str; 7] =
        ["approve", "accept", "edit", "reject", "ignore", "respond", "response"];
    let allowed = action.decisions.iter().map(|kind| &**kind);
    allowed.filter(|kind| !KNOWN.contains(kind)).collect()
}

/// Whether a graph allows a kind of decision. A graph that names none allows approval and
/// rejection.
fn may(action: &Action, what: DecisionKind) -> bool {
    // LangChain's name, then Agent Inbox's.
    let names = match what {
        DecisionKind::Approve => ["approve", "accept"],
        DecisionKind::Edit => ["edit"; 2],
        DecisionKind::Reject => ["reject", "ignore"],
        DecisionKind::Respond => ["respond", "response"],
    };
    let is_default = matches!(what, DecisionKind::Approve | DecisionKind::Reject);
    (action.decisions.is_empty() && is_default)
        || action.decisions.iter().any(|allowed| names.contains(&&**allowed))
}

// === impl Remembered ===

impl Remembered {
    /// The answer to calls like this one.
    pub fn new(action: &Action, decision: Always) -> Self {
        let (name, args) = (action.name.decode().into_owned(), action.args.get().to_owned());
        Self { name, args, decision }
    }

    /// A text that two answers share if they are about the same calls.
    pub(super) fn key(&self) -> String {
        format!("{:016x}", Digest::default().text(&self.name).json(&self.args).finish())
    }
}

// === impl Offer ===

impl Offer {
    const ALL: [Self; 6] = [
        Self::Allow,
        Self::AllowAlways,
        Self::Edit,
        Self::Respond,
        Self::Reject,
        Self::RejectAlways,
    ];

    /// The offer that a client has chosen by its id. `None` if it was not offered.
    pub fn chosen(offers: &[Self], id: &str) -> Option<Self> {
        let known = Self::ALL.into_iter().find(|offer| offer.option().option_id == id)?;
        offers.contains(&known).then_some(known)
    }

    /// The option in ACP's form.
    pub fn option(self) -> PermissionOption {
        let (option_id, name, kind) = match self {
            Self::Allow => ("allow", "Allow", "allow_once"),
            Self::AllowAlways => ("allow_always", "Always allow exactly this call", "allow_always"),
            // Kinds are hints for an icon. No kind fits these two.
            Self::Edit => ("edit", "Allow with changes…", "allow_once"),
            Self::Respond => ("respond", "Answer it myself…", "reject_once"),
            Self::Reject => ("reject", "Reject", "reject_once"),
            Self::RejectAlways => {
                ("reject_always", "Always reject exactly this call", "reject_always")
            }
        };
        PermissionOption { option_id, name, kind }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acp::choice::PermanentAnswers;
    use crate::run::Id;

    pub(super) fn action(decisions: &[&str], args: &str) -> Action {
        Action {
            name: Text::new("send_mail"),
            args: json::raw(args.to_owned()),
            description: None,
            decisions: decisions.iter().map(|decision| Id::from(*decision)).collect(),
            call_id: None,
            schema: None,
            details: None,
            kept: None,
        }
    }

    fn rules(rules: &[(&str, Rule)]) -> Rules {
        Rules(rules.iter().map(|(glob, rule)| (glob.parse().unwrap(), *rule)).collect())
    }

    #[test]
    fn the_first_rule_that_fits_counts_within_what_is_allowed() {
        let mode = rules(&[("send_*", Rule::Ask)]);
        let all = rules(&[("send_mail", Rule::Allow), ("*", Rule::Reject)]);
        let any = action(&[], "{}");
        assert_eq!(decided(&any, &[], &[&all]), Some(Decision::Approve));
        assert_eq!(decided(&any, &[], &[&mode, &all]), None);
        assert_eq!(decided(&action(&["reject"], "{}"), &[], &[&all]), None);
        let reject = rules(&[("*", Rule::Reject)]);
        assert_eq!(decided(&action(&["approve"], "{}"), &[], &[&reject]), None);
        assert_eq!(decided(&any, &[], &[]), None);
    }

    #[test]
    fn an_answer_for_good_holds_for_exactly_these_arguments() {
        let call = action(&[], r#"{"to":"a","n":1}"#);
        let mut remembered = PermanentAnswers::default();
        remembered.add(Remembered::new(&call, Always::Reject));
        remembered.add(Remembered::new(&call, Always::Allow));
        assert_eq!(remembered.all().len(), 1);
        let spelled_otherwise = action(&[], r#"{"n": 1, "to": "a"}"#);
        let reject = rules(&[("*", Rule::Reject)]);
        let decided_about = |call, rules: &[&Rules]| decided(call, remembered.all(), rules);
        assert_eq!(decided_about(&spelled_otherwise, &[&reject]), Some(Decision::Approve));
        assert_eq!(decided_about(&action(&[], r#"{"to":"b","n":1}"#), &[]), None);
        for at in 0..MAX_REMEMBERED {
            let call = action(&[], &format!(r#"{{"at":{at}}}"#));
            remembered.add(Remembered::new(&call, Always::Allow));
        }
        assert_eq!(remembered.all().len(), MAX_REMEMBERED);
        assert_eq!(decided(&call, remembered.all(), &[]), None);
    }

    #[test]
    fn the_offers_are_what_the_graph_allows() {
        use Offer::{Allow, AllowAlways, Edit, Reject, RejectAlways, Respond};
        for (decisions, has_forms, expected) in [
            (&[][..], true, vec![Allow, AllowAlways, Reject, RejectAlways]),
            (&["approve"], true, vec![Allow, AllowAlways]),
            (&["approve", "edit", "reject"], false, vec![Allow, AllowAlways, Reject, RejectAlways]),
            (
                &["approve", "edit", "reject"],
                true,
                vec![Allow, AllowAlways, Edit, Reject, RejectAlways],
            ),
            (&["respond"], true, vec![Respond]),
            (&["respond"], false, vec![]),
            (
                &["accept", "edit", "ignore", "response"],
                true,
                vec![Allow, AllowAlways, Edit, Reject, RejectAlways, Respond],
            ),
            (&["response"], false, vec![]),
        ] {
            assert_eq!(offers(&action(decisions, "{}"), has_forms), expected, "{decisions:?}");
        }
        assert_eq!(Offer::chosen(&[Allow, Reject], "reject"), Some(Reject));
        assert_eq!(Offer::chosen(&[Allow, Reject], "edit"), None);
        assert_eq!(Offer::chosen(&[Allow], "made up"), None);
    }

    #[test]
    fn a_prompt_decides_about_a_call_without_offers() {
        let of = |decisions: &[&str], prompt| answered_by_prompt(&action(decisions, "{}"), prompt);
        let answer = Some(Decision::Respond { message: Text::new("42") });
        assert_eq!(of(&["respond"], "42"), answer);
        assert!(matches!(of(&["edit"], r#"{"a":1}"#), Some(Decision::Edit { .. })));
        assert_eq!(of(&["edit"], "no object"), None);
        assert_eq!(of(&["approve"], "use b"), None);
        // Decisions whose meaning only the graph knows.
        let other = |kind: &str, message: Option<&str>| {
            let message = message.map(Text::new);
            Some(Decision::Other { kind: kind.to_owned(), message })
        };
        assert_eq!(of(&["later"], "Later"), other("later", None));
        assert_eq!(of(&["later"], "go on"), other("later", Some("go on")));
        assert_eq!(of(&["later", "escalate"], " escalate "), other("escalate", None));
        assert_eq!(of(&["later", "escalate"], "go on"), None);
        assert_eq!(of(&["edit", "later"], "later"), other("later", None));
        assert_eq!(of(&["edit", "later"], "go on"), None);
    }
}
