//! Whether a tool may be called: by the operator's rules, by a person's earlier answers, or else by
//! the person's choice among the offered options.
//!
//! `form` is for answers that need a form.

mod form;

use std::borrow::Cow;

pub use form::{Form, answer_of_prompt};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::update::ToolKind;
use super::{Glob, GraphProfile, tool};
use crate::json::digest::Digest;
use crate::json::{self, Json, Text};
use crate::run::{Action, Decision};

/// How many answers a session remembers. The oldest is dropped first, because the thread's metadata
/// is always read whole.
pub const MAX_REMEMBERED: usize = 100;

/// The longest name of a tool in an option, in characters.
const MAX_TOOL_CHARS: usize = 60;

/// The largest arguments that a form shows, in bytes of JSON.
const MAX_FORM_BYTES: usize = 256 * 1024;

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

/// An answer that holds for later calls of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RememberedAnswer {
    /// The tool.
    pub name: String,
    /// The arguments as JSON. Empty if they do not matter.
    pub args: String,
    /// Which calls of the tool.
    #[serde(default)]
    pub calls: CallScope,
    /// The answer.
    pub decision: Always,
}

/// The calls of a tool that an answer holds for. A stored answer that does not say so holds for the
/// same arguments only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CallScope {
    /// Those with the same arguments.
    #[default]
    Same,
    /// All, if the operator does not exclude the tool.
    All,
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
    /// Approve this call and all later ones of the tool.
    AllowTool,
    /// Approve the call with other arguments, which a form asks for.
    Edit,
    /// Give the tool's answer, which a form asks for. The call does not take place.
    Respond,
    /// Reject the call.
    Reject,
    /// Reject this call and all later ones with the same arguments.
    RejectAlways,
    /// Reject this call and all later ones of the tool.
    RejectTool,
}

/// An option in ACP's form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PermissionOption {
    option_id: &'static str,
    name: Cow<'static, str>,
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

/// Whether an answer may hold for all calls of a tool: `always_by_tool` names it. Without that
/// setting, each tool that neither runs commands nor deletes, as far as its name and its arguments
/// say.
pub fn may_cover_tool(action: &Action, profile: &GraphProfile) -> bool {
    let name = action.name.decode();
    let args = json::members(&action.args).unwrap_or_default();
    if let Some(patterns) = &profile.always_by_tool {
        return patterns.iter().any(|pattern| pattern.matches(&name));
    }
    let of_call = profile.kind_of_call(&name, args.string("command").as_deref());
    let is_safe = |kind| !matches!(kind, ToolKind::Execute | ToolKind::Delete);
    is_safe(profile.kind(&name)) && is_safe(of_call)
}

/// The decision about a call without asking. A remembered answer about the same call comes first,
/// then one about the tool, then the first matching rule. A rule that rejects comes before an answer
/// that allows the tool. `None` if the person must be asked.
pub fn decided(
    action: &Action,
    profile: &GraphProfile,
    remembered: &[RememberedAnswer],
    rules: &[&Rules],
) -> Option<Decision> {
    let tool = action.name.decode();
    let known = |calls: CallScope| {
        let is_meant = |known: &&RememberedAnswer| {
            known.calls == calls
                && known.name == *tool
                && (calls == CallScope::All || json::same(&known.args, action.args.get()))
        };
        remembered.iter().rfind(is_meant).map(|known| known.decision)
    };
    let of_rules = rules.iter().find_map(|rules| rules.of(&tool));
    let of_tool = || known(CallScope::All).filter(|_| may_cover_tool(action, profile));
    let rule = match known(CallScope::Same) {
        Some(always) => Rule::from(always),
        None => match (of_tool(), of_rules) {
            (Some(Always::Allow), Some(Rule::Reject)) => Rule::Reject,
            (Some(always), _) => Rule::from(always),
            (None, of_rules) => of_rules?,
        },
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
pub fn offers(action: &Action, profile: &GraphProfile, has_forms: bool) -> Vec<Offer> {
    let mut offers = Vec::new();
    let by_tool = may_cover_tool(action, profile);
    // Some clients choose the first option of a kind, so the one without side effects comes first,
    // and of two that are permanent the narrower.
    if may(action, DecisionKind::Approve) {
        offers.extend([Offer::Allow, Offer::AllowAlways]);
    }
    // A form that shows a part of the arguments would lose the rest.
    let fits = action.args.get().len() <= MAX_FORM_BYTES;
    if has_forms && fits && may(action, DecisionKind::Edit) {
        offers.push(Offer::Edit);
    }
    if by_tool && may(action, DecisionKind::Approve) {
        offers.push(Offer::AllowTool);
    }
    if may(action, DecisionKind::Reject) {
        offers.extend([Offer::Reject, Offer::RejectAlways]);
        offers.extend(by_tool.then_some(Offer::RejectTool));
    }
    if has_forms && may(action, DecisionKind::Respond) {
        offers.push(Offer::Respond);
    }
    offers
}

/// Whether a person can choose an option. If not, the next prompt answers.
pub fn has_offers(action: &Action, has_forms: bool) -> bool {
    !offers(action, &GraphProfile::default(), has_forms).is_empty()
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
        let only_its = action.decisions_of_graph();
        let named = only_its.iter().find(|kind| kind.eq_ignore_ascii_case(prompt.trim()));
        let other = |kind: &str, message| Decision::Other { kind: kind.to_owned(), message };
        match (named, &*only_its, &*action.decisions) {
            (Some(kind), ..) => Some(other(kind, None)),
            (None, [only], [_]) => Some(other(only, Some(Text::new(prompt)))),
            (None, ..) => None,
        }
    })
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

// === impl RememberedAnswer ===

impl RememberedAnswer {
    /// The answer to calls like this one.
    pub fn new(action: &Action, calls: CallScope, decision: Always) -> Self {
        let args = match calls {
            CallScope::Same => action.args.get().to_owned(),
            CallScope::All => String::new(),
        };
        Self { name: action.name.decode().into_owned(), args, calls, decision }
    }

    /// A text that two answers share if they are about the same calls.
    pub(super) fn key(&self) -> String {
        let tool = Digest::default().text(&self.name);
        let calls = match self.calls {
            CallScope::Same => tool.json(&self.args),
            CallScope::All => tool,
        };
        format!("{:016x}", calls.finish())
    }
}

// === impl Rule ===

impl From<Always> for Rule {
    fn from(always: Always) -> Self {
        match always {
            Always::Allow => Self::Allow,
            Always::Reject => Self::Reject,
        }
    }
}

// === impl Offer ===

impl Offer {
    /// The offer that a client has chosen by its id. `None` if it was not offered.
    pub fn chosen(offers: &[Self], id: &str) -> Option<Self> {
        offers.iter().copied().find(|offer| offer.id() == id)
    }

    /// What the offer remembers of a call. `None` if it is about this call only.
    pub fn remembers(self, action: &Action) -> Option<RememberedAnswer> {
        let (calls, always) = match self {
            Self::AllowAlways => (CallScope::Same, Always::Allow),
            Self::AllowTool => (CallScope::All, Always::Allow),
            Self::RejectAlways => (CallScope::Same, Always::Reject),
            Self::RejectTool => (CallScope::All, Always::Reject),
            Self::Allow | Self::Edit | Self::Respond | Self::Reject => return None,
        };
        Some(RememberedAnswer::new(action, calls, always))
    }

    /// The option in ACP's form.
    pub fn option(self, action: &Action) -> PermissionOption {
        let of_tool = |verb| {
            let tool = tool::one_line(&action.name.decode(), MAX_TOOL_CHARS);
            Cow::Owned(format!("Always {verb} {tool} in this session"))
        };
        let (name, kind) = match self {
            Self::Allow => ("Allow".into(), "allow_once"),
            Self::AllowAlways => ("Always allow exactly this call".into(), "allow_always"),
            Self::AllowTool => (of_tool("allow"), "allow_always"),
            // Kinds are hints for an icon. No kind fits these two.
            Self::Edit => ("Allow with changes…".into(), "allow_once"),
            Self::Respond => ("Answer it myself…".into(), "reject_once"),
            Self::Reject => ("Reject".into(), "reject_once"),
            Self::RejectAlways => ("Always reject exactly this call".into(), "reject_always"),
            Self::RejectTool => (of_tool("reject"), "reject_always"),
        };
        PermissionOption { option_id: self.id(), name, kind }
    }

    fn id(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::AllowAlways => "allow_always",
            Self::AllowTool => "allow_always_tool",
            Self::Edit => "edit",
            Self::Respond => "respond",
            Self::Reject => "reject",
            Self::RejectAlways => "reject_always",
            Self::RejectTool => "reject_always_tool",
        }
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

    fn decided(action: &Action, known: &[RememberedAnswer], rules: &[&Rules]) -> Option<Decision> {
        super::decided(action, &GraphProfile::default(), known, rules)
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
        remembered.add(RememberedAnswer::new(&call, CallScope::Same, Always::Reject));
        remembered.add(RememberedAnswer::new(&call, CallScope::Same, Always::Allow));
        assert_eq!(remembered.all().len(), 1);
        let spelled_otherwise = action(&[], r#"{"n": 1, "to": "a"}"#);
        let reject = rules(&[("*", Rule::Reject)]);
        let decided_about = |call, rules: &[&Rules]| decided(call, remembered.all(), rules);
        assert_eq!(decided_about(&spelled_otherwise, &[&reject]), Some(Decision::Approve));
        assert_eq!(decided_about(&action(&[], r#"{"to":"b","n":1}"#), &[]), None);
        for at in 0..MAX_REMEMBERED {
            let call = action(&[], &format!(r#"{{"at":{at}}}"#));
            remembered.add(RememberedAnswer::new(&call, CallScope::Same, Always::Allow));
        }
        assert_eq!(remembered.all().len(), MAX_REMEMBERED);
        assert_eq!(decided(&call, remembered.all(), &[]), None);
    }

    #[test]
    fn the_offers_are_what_the_graph_allows() {
        use Offer::{Allow, AllowAlways, Edit, Reject, RejectAlways, Respond};
        // No tool at all.
        let profile = GraphProfile { always_by_tool: Some(Vec::new()), ..GraphProfile::default() };
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
            let offered = offers(&action(decisions, "{}"), &profile, has_forms);
            assert_eq!(offered, expected, "{decisions:?}");
        }
        let large = format!(r#"{{"a":"{}"}}"#, "x".repeat(MAX_FORM_BYTES));
        assert_eq!(offers(&action(&["edit"], &large), &profile, true), []);
        assert_eq!(Offer::chosen(&[Allow, Reject], "reject"), Some(Reject));
        assert_eq!(Offer::chosen(&[Allow, Reject], "edit"), None);
        assert_eq!(Offer::chosen(&[Allow], "made up"), None);
    }

    #[test]
    fn an_answer_about_a_tool_holds_for_all_its_calls_and_for_no_other_tool() {
        let call = |tool: &str, args: &str| {
            let name = Text::new(tool);
            Action { name, ..action(&[], args) }
        };
        let of_tool = |always| RememberedAnswer::new(&call("pay", "{}"), CallScope::All, always);
        let of_call =
            RememberedAnswer::new(&call("pay", r#"{"n":1}"#), CallScope::Same, Always::Reject);
        let reject = rules(&[("pay", Rule::Reject)]);
        let ask = rules(&[("*", Rule::Ask)]);
        let allow = rules(&[("*", Rule::Allow)]);
        let (yes, no) = (Some(Decision::Approve), Some(Decision::Reject { message: None }));
        for (tool, args, known, rule, expected) in [
            ("pay", r#"{"n":1}"#, vec![of_tool(Always::Allow)], &ask, &yes),
            ("pay", r#"{"n":2}"#, vec![of_tool(Always::Reject)], &allow, &no),
            ("payout", "{}", vec![of_tool(Always::Allow)], &ask, &None),
            // What is known of the very call comes first.
            ("pay", r#"{"n":1}"#, vec![of_call.clone(), of_tool(Always::Allow)], &ask, &no),
            ("pay", r#"{"n":2}"#, vec![of_call, of_tool(Always::Allow)], &ask, &yes),
            // A mode that rejects is not left by an answer that was given in another mode.
            ("pay", "{}", vec![of_tool(Always::Allow)], &reject, &no),
            // An answer about all calls has no arguments, also none that are empty.
            (
                "pay",
                "",
                vec![RememberedAnswer { calls: CallScope::Same, ..of_tool(Always::Allow) }],
                &ask,
                &None,
            ),
        ] {
            let args = if args.is_empty() { "{}" } else { args };
            assert_eq!(
                decided(&call(tool, args), &known, &[rule]),
                *expected,
                "{tool} {args} {known:?}"
            );
        }
        let mut known = PermanentAnswers::default();
        known.add(of_tool(Always::Allow));
        known.add(of_tool(Always::Reject));
        let known = known.all();
        assert_eq!(known, [of_tool(Always::Reject)]);
        let stored = serde_json::to_string(known).unwrap();
        assert_eq!(stored, r#"[{"name":"pay","args":"","calls":"all","decision":"reject"}]"#);
        assert_eq!(serde_json::from_str::<Vec<RememberedAnswer>>(&stored).unwrap(), known);
    }

    #[test]
    fn the_operator_says_which_tools_an_answer_may_cover() {
        let profile = |patterns: Option<&[&str]>| GraphProfile {
            always_by_tool: patterns
                .map(|patterns| patterns.iter().map(|pattern| pattern.parse().unwrap()).collect()),
            ..GraphProfile::default()
        };
        let (default, chosen, none) =
            (profile(None), profile(Some(&["rm", "get_*"])), profile(Some(&[])));
        for (tool, args, by_default, by_choice) in [
            ("transfer_money", "{}", true, false),
            ("get_weather", "{}", true, true),
            ("edit_file", "{}", true, false),
            ("rm", "{}", false, true),
            ("bash", "{}", false, false),
            ("mcp__files__delete_file", "{}", false, false),
            ("memory", r#"{"command":"view"}"#, true, false),
            ("memory", r#"{"command":"delete"}"#, false, false),
        ] {
            let action = Action { name: Text::new(tool), ..action(&[], args) };
            for (profile, expected) in
                [(&default, by_default), (&chosen, by_choice), (&none, false)]
            {
                let offered = offers(&action, profile, false);
                let by_tool =
                    [Offer::AllowTool, Offer::RejectTool].map(|offer| offered.contains(&offer));
                assert_eq!(by_tool, [expected; 2], "{tool} {args}");
                // An answer that was stored earlier does not hold for a tool that is excluded now.
                let known = [RememberedAnswer::new(&action, CallScope::All, Always::Allow)];
                let decided = super::decided(&action, profile, &known, &[]);
                assert_eq!(decided.is_some(), expected, "{tool} {args}");
            }
        }
        let action = Action { name: Text::new("delete_file\n"), ..action(&[], "{}") };
        let options = [Offer::AllowTool, Offer::RejectTool].map(|offer| offer.option(&action));
        assert_eq!(
            serde_json::to_value(options).unwrap(),
            serde_json::json!([
                {"optionId": "allow_always_tool", "name": "Always allow delete_file in this session", "kind": "allow_always"},
                {"optionId": "reject_always_tool", "name": "Always reject delete_file in this session", "kind": "reject_always"},
            ])
        );
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
