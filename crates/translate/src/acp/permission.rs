//! Whether a tool may be called: what the operator's rules and the person's earlier answers say,
//! what is asked else, and what an answer means.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Glob, asked};
use crate::json::{self, Json, ObjectWriter, Text};
use crate::run::{Action, Decision};

/// How many answers are remembered in a session; the oldest goes first. Each is kept in the
/// thread's metadata, which is read whole.
pub const MAX_REMEMBERED: usize = 100;

/// The operator's rules: the first whose pattern fits the tool's name counts.
///
/// They cannot stop a tool that the graph does not ask about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules(pub Vec<(Glob, Rule)>);

/// What becomes of a call that the graph asks about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rule {
    /// The person is asked.
    Ask,
    /// It is approved, where that is allowed.
    Allow,
    /// It is rejected, where that is allowed.
    Reject,
}

/// An answer that holds for every later call of this tool with these arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    /// The tool.
    pub name: String,
    /// The arguments, as JSON text.
    pub args: String,
    /// Yes or no.
    pub decision: Always,
}

/// Yes or no, for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Always {
    /// Yes.
    Allow,
    /// No.
    Reject,
}

/// An answer that a person may choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// Yes.
    Allow,
    /// Yes, for good.
    AllowAlways,
    /// Yes, with other arguments; a form asks for them.
    Edit,
    /// No: the person gives the tool's answer; a form asks for it.
    Respond,
    /// No.
    Reject,
    /// No, for good.
    RejectAlways,
}

/// An answer as the client is offered it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PermissionOption {
    option_id: &'static str,
    name: &'static str,
    kind: &'static str,
}

/// What a person may do about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Allowed {
    Approve,
    Edit,
    Reject,
    Respond,
}

// === impl Rules ===

impl Rules {
    /// What becomes of a tool's call; `None` where no rule fits.
    pub fn of(&self, tool: &str) -> Option<Rule> {
        self.0.iter().find(|(glob, _)| glob.matches(tool)).map(|(_, rule)| *rule)
    }
}

/// What is decided about a call without asking: what was answered for good, else what the first
/// of these rules says.
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
        Rule::Allow => may(action, Allowed::Approve).then_some(Decision::Approve),
        Rule::Reject => may(action, Allowed::Reject).then_some(Decision::Reject { message: None }),
    }
}

/// What a person may be offered about a call; nothing where only a form could ask, and the client
/// has none.
pub fn offers(action: &Action, has_forms: bool) -> Vec<Offer> {
    let mut offers = Vec::new();
    if may(action, Allowed::Approve) {
        offers.extend([Offer::Allow, Offer::AllowAlways]);
    }
    if has_forms && may(action, Allowed::Edit) {
        offers.push(Offer::Edit);
    }
    // Who decides by kinds takes the first: that is to be the plain one.
    if may(action, Allowed::Reject) {
        offers.extend([Offer::Reject, Offer::RejectAlways]);
    }
    if has_forms && may(action, Allowed::Respond) {
        offers.push(Offer::Respond);
    }
    offers
}

/// A no, where that is allowed.
pub fn rejected(action: &Action) -> Option<Decision> {
    may(action, Allowed::Reject).then_some(Decision::Reject { message: None })
}

/// What a prompt means about a call of which nothing could be offered: of a tool that asks the
/// person, the answer; else the arguments. `None` where neither is allowed.
pub fn answered_by_prompt(action: &Action, prompt: &str) -> Option<Decision> {
    if may(action, Allowed::Respond) {
        Some(Decision::Respond { message: Text::new(prompt) })
    } else if may(action, Allowed::Edit) {
        let args: &RawValue = serde_json::from_str(prompt).ok()?;
        json::members(args).map(|_| Decision::Edit { args: Json::from(args) })
    } else {
        None
    }
}

/// A graph that does not say takes yes and no.
fn may(action: &Action, what: Allowed) -> bool {
    // LangChain's word, and Agent Inbox's.
    let names = match what {
        Allowed::Approve => ["approve", "accept"],
        Allowed::Edit => ["edit"; 2],
        Allowed::Reject => ["reject", "ignore"],
        Allowed::Respond => ["respond", "response"],
    };
    let is_default = matches!(what, Allowed::Approve | Allowed::Reject);
    (action.decisions.is_empty() && is_default)
        || action.decisions.iter().any(|allowed| names.contains(&&**allowed))
}

// === impl Remembered ===

impl Remembered {
    /// Remembers an answer about a call.
    pub fn new(action: &Action, decision: Always) -> Self {
        let (name, args) = (action.name.decode().into_owned(), action.args.get().to_owned());
        Self { name, args, decision }
    }

    /// Adds an answer to those of a session, in place of an older one about the same call.
    pub fn add_to(self, remembered: &mut Vec<Self>) {
        let is_same = |known: &Self| known.name == self.name && json::same(&known.args, &self.args);
        remembered.retain(|known| !is_same(known));
        remembered.push(self);
        let surplus = remembered.len().saturating_sub(MAX_REMEMBERED);
        remembered.drain(..surplus);
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

    /// The offer that a client has chosen by its id.
    pub fn chosen(offers: &[Self], id: &str) -> Option<Self> {
        let known = Self::ALL.into_iter().find(|offer| offer.option().option_id == id)?;
        offers.contains(&known).then_some(known)
    }

    /// The offer as it is told.
    pub fn option(self) -> PermissionOption {
        let (option_id, name, kind) = match self {
            Self::Allow => ("allow", "Allow", "allow_once"),
            Self::AllowAlways => ("allow_always", "Always allow exactly this call", "allow_always"),
            // The kinds are hints for an icon; there is none for these two.
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

// === forms ===

/// A form that a client shows, which is a flat JSON schema, and how its content is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    /// What is asked.
    pub message: String,
    /// The schema of the content.
    pub schema: Json,
    reading: Reading,
}

/// How a form's content becomes an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    /// It is the answer.
    Whole,
    /// Its only field is.
    Field,
    /// Its only field holds the answer, written as JSON.
    Written,
}

/// The only field of a form that has but one.
const FIELD: &str = "answer";

/// The keys of a property that both a schema of LangGraph's and a form have, with the kind of JSON
/// that each must be.
const PROPERTY_KEYS: [&str; 13] = [
    "title",
    "description",
    "default",
    "enum",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "minimum",
    "maximum",
    "minItems",
    "maxItems",
    "items",
];

impl Form {
    /// For what a graph asks by `interrupt()`.
    pub fn of_question(value: &RawValue, schema: Option<&RawValue>) -> Self {
        let message = asked::question(value);
        let schema = schema.filter(|schema| schema.get() != "null");
        let Some(schema) = schema.map(|schema| json::members(schema).unwrap_or_default()) else {
            return Self::of_field(
                message,
                r#"{"type":"string","title":"Answer"}"#,
                Reading::Field,
            );
        };
        if let Some(schema) = flat_object(&schema) {
            return Self { message, schema, reading: Reading::Whole };
        }
        match property(&schema) {
            Some(property) => Self::of_field(message, property.get(), Reading::Field),
            None => Self::of_field(message, WRITTEN, Reading::Written),
        }
    }

    /// For the arguments of a call.
    pub fn of_edit(action: &Action) -> Self {
        let tool = action.name.decode();
        let message = format!("Change what {tool} is called with.");
        let args = json::members(&action.args).unwrap_or_default();
        let fields: Option<Vec<_>> =
            args.0.iter().map(|(name, value)| Some((&**name, prefilled(value)?))).collect();
        if let Some(fields) = fields.filter(|fields| !fields.is_empty()) {
            let names = json::array(
                fields
                    .iter()
                    .map(|(name, _)| *name)
                    .map(Text::new)
                    .map(Json::from)
                    .collect::<Vec<_>>()
                    .iter()
                    .map(|name| name.get()),
            );
            let properties = fields
                .iter()
                .fold(ObjectWriter::new(), |object, (name, field)| object.raw(name, field.get()))
                .finish();
            let schema = object_schema(properties.get(), names.get());
            return Self { message, schema, reading: Reading::Whole };
        }
        let field = ObjectWriter::new()
            .string("type", "string")
            .string("title", "Arguments")
            .string("description", "a JSON object")
            .string("default", action.args.get())
            .finish();
        Self::of_field(message, field.get(), Reading::Written)
    }

    /// For the answer that a person gives in a tool's place.
    pub fn of_response(action: &Action) -> Self {
        let message = asked::in_place_of(action);
        Self::of_field(message, r#"{"type":"string","title":"Answer"}"#, Reading::Field)
    }

    fn of_field(message: String, field: &str, reading: Reading) -> Self {
        let properties = ObjectWriter::new().raw(FIELD, field).finish();
        let schema = object_schema(properties.get(), &format!("[\"{FIELD}\"]"));
        Self { message, schema, reading }
    }

    /// The answer that a form's content gives; `None` if it has not the form's fields.
    pub fn read(&self, content: &RawValue) -> Option<Json> {
        let members = json::members(content)?;
        let field = || members.get(FIELD);
        match self.reading {
            Reading::Whole => Some(Json::from(content)),
            Reading::Field => field().map(Json::from),
            Reading::Written => {
                let text = json::string(field()?)?;
                let value: &RawValue = serde_json::from_str(&text).ok()?;
                Some(Json::from(value))
            }
        }
    }
}

const WRITTEN: &str = r#"{"type":"string","title":"Answer","description":"as JSON"}"#;

fn object_schema(properties: &str, required: &str) -> Json {
    ObjectWriter::new()
        .string("type", "object")
        .raw("properties", properties)
        .raw("required", required)
        .finish()
}

/// What a prompt means as the answer to a graph's question.
pub fn answer_of_prompt(prompt: &str, schema: Option<&RawValue>) -> Json {
    let text = || Json::from(Text::new(prompt));
    let Some(schema) = schema.and_then(json::members) else { return text() };
    let written = || serde_json::from_str::<&RawValue>(prompt).map(Json::from);
    match schema.string("type").as_deref() {
        Some("string") => text(),
        Some("boolean") => match prompt.trim().to_ascii_lowercase().as_str() {
            "yes" | "y" | "true" | "ok" => json::raw("true".to_owned()),
            "no" | "n" | "false" => json::raw("false".to_owned()),
            _ => text(),
        },
        Some("object") => {
            let properties = schema.get("properties").and_then(json::members).unwrap_or_default();
            match (written(), properties.0.as_slice()) {
                (Ok(value), _) if json::members(&value).is_some() => value,
                (_, [(only, property)]) => {
                    let value = answer_of_prompt(prompt, Some(property));
                    ObjectWriter::new().raw(only, value.get()).finish()
                }
                _ => text(),
            }
        }
        _ => written().unwrap_or_else(|_| text()),
    }
}

/// A schema of LangGraph's as a form's, if it is flat.
fn flat_object(schema: &json::Members<'_>) -> Option<Json> {
    schema.string("type").filter(|kind| kind == "object")?;
    let properties = json::members(schema.get("properties")?)?;
    if properties.0.is_empty() {
        return None;
    }
    let mut flat = ObjectWriter::new();
    for (name, value) in &properties.0 {
        flat = flat.raw(name, property(&json::members(value)?)?.get());
    }
    let required = schema.get("required").map_or("[]", RawValue::get);
    Some(object_schema(flat.finish().get(), required))
}

/// One property of a form; `None` if a form has nothing of the kind.
fn property(schema: &json::Members<'_>) -> Option<Json> {
    let kind = match schema.string("type") {
        Some(kind) => kind,
        None => schema.get("enum").map(|_| "string".into())?,
    };
    let has_strings = |name| {
        let items = schema.get(name).and_then(json::items);
        items.is_none_or(|items| items.iter().all(|item| json::string(item).is_some()))
    };
    match &*kind {
        "string" if has_strings("enum") => {}
        "number" | "integer" | "boolean" if schema.get("enum").is_none() => {}
        "array" => {
            let items = json::members(schema.get("items")?)?;
            items.get("enum").filter(|_| items.string("type").as_deref() == Some("string"))?;
        }
        _ => return None,
    }
    let mut property = ObjectWriter::new().string("type", &kind);
    for key in PROPERTY_KEYS {
        let value = schema.get(key).filter(|value| value.get() != "null");
        let is_known = |value: &&RawValue| match key {
            "format" => {
                matches!(value.get(), "\"email\"" | "\"uri\"" | "\"date\"" | "\"date-time\"")
            }
            _ => true,
        };
        if let Some(value) = value.filter(is_known) {
            property = property.raw(key, value.get());
        }
    }
    Some(property.finish())
}

/// A field that holds what an argument is; `None` for what no field holds.
fn prefilled(value: &RawValue) -> Option<Json> {
    let kind = match value.get().as_bytes().first()? {
        b'"' => "string",
        b't' | b'f' => "boolean",
        b'-' | b'0'..=b'9' if value.get().parse::<i64>().is_ok() => "integer",
        b'-' | b'0'..=b'9' => "number",
        _ => return None,
    };
    Some(ObjectWriter::new().string("type", kind).raw("default", value.get()).finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Id;

    fn action(decisions: &[&str], args: &str) -> Action {
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
        let mut remembered = Vec::new();
        Remembered::new(&call, Always::Reject).add_to(&mut remembered);
        Remembered::new(&call, Always::Allow).add_to(&mut remembered);
        assert_eq!(remembered.len(), 1);
        let spelled_otherwise = action(&[], r#"{"n": 1, "to": "a"}"#);
        let reject = rules(&[("*", Rule::Reject)]);
        assert_eq!(decided(&spelled_otherwise, &remembered, &[&reject]), Some(Decision::Approve));
        assert_eq!(decided(&action(&[], r#"{"to":"b","n":1}"#), &remembered, &[]), None);
        for at in 0..MAX_REMEMBERED {
            let call = action(&[], &format!(r#"{{"at":{at}}}"#));
            Remembered::new(&call, Always::Allow).add_to(&mut remembered);
        }
        assert_eq!(remembered.len(), MAX_REMEMBERED);
        assert_eq!(decided(&call, &remembered, &[]), None);
    }

    #[test]
    fn what_is_offered_is_what_the_graph_takes() {
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
    fn a_prompt_answers_what_nothing_could_be_offered_for() {
        let of = |decisions: &[&str], prompt| answered_by_prompt(&action(decisions, "{}"), prompt);
        let answer = Some(Decision::Respond { message: Text::new("42") });
        assert_eq!(of(&["respond"], "42"), answer);
        assert!(matches!(of(&["edit"], r#"{"a":1}"#), Some(Decision::Edit { .. })));
        assert_eq!(of(&["edit"], "no object"), None);
        assert_eq!(of(&["approve"], "use b"), None);
    }

    #[test]
    fn a_flat_schema_is_a_form_and_any_other_is_one_field() {
        let raw = |text: &str| json::raw(text.to_owned());
        let form = |value: &str, schema: &str| {
            let form = Form::of_question(&raw(value), Some(&raw(schema)));
            (form.message.clone(), form.schema.get().to_owned(), form)
        };
        let flat = r#"{"type":"object","title":"T","required":["how"],"properties":{
            "how":{"type":"string","enum":["a","b"],"title":"How"},"n":{"type":"integer","minimum":1,"x":1},
            "all":{"type":"array","items":{"type":"string","enum":["x"]}}}}"#;
        let (message, schema, form_) = form(r#"{"question":"How?"}"#, flat);
        assert_eq!(message, "How?");
        assert_eq!(
            schema,
            concat!(
                r#"{"type":"object","properties":{"how":{"type":"string","title":"How","enum":["a","b"]},"#,
                r#""n":{"type":"integer","minimum":1},"#,
                r#""all":{"type":"array","items":{"type":"string","enum":["x"]}}},"required":["how"]}"#
            )
        );
        assert_eq!(form_.read(&raw(r#"{"how":"a"}"#)).unwrap().get(), r#"{"how":"a"}"#);

        let (_, schema, form_) = form("\"Sure?\"", r#"{"type":"boolean"}"#);
        assert!(schema.contains(r#""answer":{"type":"boolean"}"#), "{schema}");
        assert_eq!(form_.read(&raw(r#"{"answer":true}"#)).unwrap().get(), "true");
        assert_eq!(form_.read(&raw("{}")), None);

        let nested = r#"{"type":"object","properties":{"a":{"type":"object"}}}"#;
        let (_, _, form_) = form("1", nested);
        assert_eq!(form_.read(&raw(r#"{"answer":"{\"a\":1}"}"#)).unwrap().get(), r#"{"a":1}"#);
        assert_eq!(form_.read(&raw(r#"{"answer":"no json"}"#)), None);

        let plain = Form::of_question(&raw("\"Who?\""), None);
        assert_eq!(plain.read(&raw(r#"{"answer":"me"}"#)).unwrap().get(), "\"me\"");
    }

    #[test]
    fn an_edit_begins_with_what_is_there() {
        let form = Form::of_edit(&action(&[], r#"{"to":"x","n":1,"f":1.5,"b":true}"#));
        assert_eq!(
            form.schema.get(),
            concat!(
                r#"{"type":"object","properties":{"to":{"type":"string","default":"x"},"n":{"type":"integer","default":1},"#,
                r#""f":{"type":"number","default":1.5},"b":{"type":"boolean","default":true}},"#,
                r#""required":["to","n","f","b"]}"#
            )
        );
        let form = Form::of_edit(&action(&[], r#"{"list":[1]}"#));
        assert!(form.schema.get().contains(r#""default":"{\"list\":[1]}""#), "{form:?}");
    }

    #[test]
    fn a_prompt_answers_a_question_in_its_schemas_kind() {
        let raw = |text: &str| json::raw(text.to_owned());
        for (prompt, schema, expected) in [
            ("left", None, "\"left\""),
            ("{\"a\":1}", None, r#""{\"a\":1}""#),
            ("7", Some(r#"{"type":"string"}"#), "\"7\""),
            ("7", Some(r#"{"type":"integer"}"#), "7"),
            ("Yes", Some(r#"{"type":"boolean"}"#), "true"),
            (
                "me",
                Some(r#"{"type":"object","properties":{"who":{"type":"string"}}}"#),
                r#"{"who":"me"}"#,
            ),
            (r#"{"who":1}"#, Some(r#"{"type":"object","properties":{"who":{}}}"#), r#"{"who":1}"#),
            ("me", Some(r#"{"type":"object","properties":{"a":{},"b":{}}}"#), "\"me\""),
        ] {
            let schema = schema.map(raw);
            assert_eq!(answer_of_prompt(prompt, schema.as_deref()).get(), expected, "{prompt}");
        }
    }
}
