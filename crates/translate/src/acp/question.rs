//! A graph's questions as text for the person who answers, bounded in length and without control
//! characters.
//!
//! Clients show these texts as Markdown. A note in brackets marks each cut, so that no part of a
//! question is left out silently.

use std::fmt::Write as _;

use serde_json::value::RawValue;

use crate::json::{self, Members, Text};
use crate::run::{self, Action};

/// The longest question or description, in characters.
pub const MAX_QUESTION_CHARS: usize = 4_000;

/// The longest text of any other member, in characters.
pub const MAX_MEMBER_CHARS: usize = 2_000;

/// After this many characters, further members are only counted.
pub const MAX_ASKED_CHARS: usize = 16_000;

/// The longest name of a member, in characters.
const MAX_NAME_CHARS: usize = 100;

/// The deepest indentation of nested JSON, in levels.
const MAX_INDENT: usize = 16;

/// The text for an empty question.
const NO_QUESTION: &str = "The agent waits for an answer, and does not say to what.";

/// The text of a free question: the question, then all other members of the value that the graph
/// passes to `interrupt()`.
pub fn of_value(value: &RawValue) -> String {
    let value = run::asked(value);
    let mut text = QuestionText::default();
    match (json::members(value), json::items(value)) {
        (Some(members), _) => text.object(&members),
        (None, Some(items)) if items.iter().any(|item| is_nested(item)) => {
            for (at, item) in items.into_iter().enumerate() {
                if at > 0 {
                    text.part(|| "---".to_owned());
                }
                match json::members(item) {
                    Some(members) => text.object(&members),
                    None => text.part(|| plain(item)),
                }
            }
        }
        (None, _) if value.get() == "null" => {}
        (None, _) => text.part(|| plain(value)),
    }
    text.finish().unwrap_or_else(|| NO_QUESTION.to_owned())
}

/// The description and the details of a question about a call. `None` if there are none.
pub(super) fn about_call(action: &Action) -> Option<String> {
    let mut text = QuestionText::default();
    if let Some(description) = description(action) {
        text.part(|| description);
    }
    let details = action.details.as_deref().and_then(json::members).unwrap_or_default();
    text.members(&details, None);
    text.finish()
}

/// The question to a person whose answer replaces the tool's result.
pub(super) fn for_response(action: &Action) -> String {
    description(action).unwrap_or_else(|| {
        format!("What does {} answer?", bounded(&action.name.decode(), MAX_NAME_CHARS))
    })
}

/// The description of an action.
///
/// LangChain's own description ends with the arguments, which a model has written. Shown as
/// Markdown, a part of them could be hidden, as between `<!--` and `-->`. So they are shown as a
/// block of JSON instead.
fn description(action: &Action) -> Option<String> {
    match words_before_call(action) {
        Some(words) => Some(format!("{words}\n\n{}", called(action))),
        None => Some(bounded(&action.description.as_ref()?.decode(), MAX_QUESTION_CHARS)),
    }
}

/// What precedes the call in the description that LangChain makes for approvals (1.4.7, in Python
/// and in JavaScript). `None` for another description.
fn words_before_call(action: &Action) -> Option<String> {
    let description = action.description.as_ref()?.decode();
    let (words, call) = description.split_once("\n\nTool: ")?;
    let is_of_call = call.strip_prefix(&*action.name.decode())?.starts_with("\nArgs: ");
    is_of_call.then(|| bounded(words, MAX_QUESTION_CHARS))
}

/// The name of the action's tool, and the arguments.
fn called(action: &Action) -> String {
    member(&bounded(&action.name.decode(), MAX_NAME_CHARS), &action.args)
}

/// An action as text, for a client that gets it in no other form.
pub fn of_action(action: &Action) -> String {
    let mut text = QuestionText::default();
    text.part(|| for_response(action));
    let details = action.details.as_deref().and_then(json::members).unwrap_or_default();
    text.members(&details, None);
    // The client already shows a call of the conversation, or the description shows it.
    if action.call_id.is_none() && words_before_call(action).is_none() {
        text.part(|| called(action));
    }
    match &*action.decisions_of_graph() {
        [] => {}
        [only] if action.decisions.len() == 1 => {
            text.part(|| {
                format!("Your next message answers this, as the decision {}.", name(only))
            });
        }
        several => text.part(|| {
            let names: Vec<_> = several.iter().map(|kind| name(kind)).collect();
            format!("Answer with the name of a decision: {}.", names.join(", "))
        }),
    }
    text.finish().unwrap_or_default()
}

/// The name of a decision, as it is typed.
fn name(decision: &str) -> String {
    format!("`{}`", bounded(decision, MAX_NAME_CHARS))
}

/// The paragraphs of a text.
#[derive(Default)]
struct QuestionText {
    text: String,
    /// The length of the text.
    chars: usize,
    left_out: usize,
}

impl QuestionText {
    /// Adds a paragraph, or only counts it if the text is long enough.
    fn part(&mut self, part: impl FnOnce() -> String) {
        if self.chars > MAX_ASKED_CHARS {
            self.left_out += 1;
            return;
        }
        if !self.text.is_empty() {
            self.text.push_str("\n\n");
            self.chars += 2;
        }
        let part = part();
        self.chars += part.chars().count();
        self.text.push_str(&part);
    }

    /// Adds the question in an object, then the other members.
    fn object(&mut self, members: &Members<'_>) {
        let key = run::question_key(members);
        if let Some(question) = key.and_then(|key| members.text(key)) {
            self.part(|| bounded(&question.decode(), MAX_QUESTION_CHARS));
        }
        self.members(members, key);
    }

    /// Adds the members of an object except one.
    fn members(&mut self, members: &Members<'_>, but: Option<&str>) {
        let is_news = |name: &str, value: &RawValue| Some(name) != but && value.get() != "null";
        for (name, value) in members.0.iter().filter(|(name, value)| is_news(name, value)) {
            self.part(|| member(&bounded(name, MAX_NAME_CHARS), value));
        }
    }

    fn finish(mut self) -> Option<String> {
        if self.left_out > 0 {
            // Writing to a string never fails.
            let _ = write!(self.text, "\n\n[cut: {} more parts are not shown]", self.left_out);
        }
        (!self.text.is_empty()).then_some(self.text)
    }
}

/// A member and its name.
fn member(name: &str, value: &RawValue) -> String {
    let text = plain(value);
    let is_block = text.contains('\n') || text.starts_with("- ");
    let gap = if is_block { "\n\n" } else { " " };
    format!("{name}:{gap}{text}")
}

/// A value as text: a string as it is, simple values as a list, anything else as a block of JSON.
fn plain(value: &RawValue) -> String {
    if let Some(text) = Text::from_raw(value) {
        return bounded(&text.decode(), MAX_MEMBER_CHARS);
    }
    match json::items(value) {
        Some(items) if !items.is_empty() && !items.iter().any(|item| is_nested(item)) => {
            let lines: Vec<_> = items
                .into_iter()
                .map(|item| match Text::from_raw(item) {
                    Some(text) => format!("- {}", text.decode()),
                    None => format!("- {}", item.get()),
                })
                .collect();
            bounded(&lines.join("\n"), MAX_MEMBER_CHARS)
        }
        Some(_) | None if is_nested(value) && value.get().len() > "{}".len() => block(value),
        Some(_) | None => bounded(value.get(), MAX_MEMBER_CHARS),
    }
}

fn is_nested(value: &RawValue) -> bool {
    value.get().starts_with(['{', '['])
}

/// A block of JSON. No line can begin with the fence that ends the block: each begins with a
/// bracket, a quote, a digit or a word.
fn block(value: &RawValue) -> String {
    let (text, is_whole) = pretty(value.get(), MAX_MEMBER_CHARS);
    let block = format!("```json\n{}\n```", harmless(&text));
    if is_whole {
        return block;
    }
    let bytes = value.get().len();
    format!("{block}\n\n[cut: the first {MAX_MEMBER_CHARS} characters are shown, of {bytes} bytes]")
}

/// The first `limit` characters of a text, with a note if there are more.
fn bounded(text: &str, limit: usize) -> String {
    let Some((at, _)) = text.char_indices().nth(limit) else { return harmless(text) };
    let (shown, all) = (text.get(..at).unwrap_or_default(), text.chars().count());
    format!("{}\n\n[cut: the first {limit} of {all} characters are shown]", harmless(shown))
}

/// Text in which characters that move a cursor, colour a terminal or reorder the text are written
/// as `\u{..}`.
fn harmless(text: &str) -> String {
    let is_bidi = |c: char| matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let is_harmful = |c: char| is_bidi(c) || (c.is_control() && !matches!(c, '\n' | '\t'));
    let mut shown = String::with_capacity(text.len());
    for character in text.replace("\r\n", "\n").chars() {
        if is_harmful(character) {
            shown.extend(character.escape_unicode());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// The first `limit` characters of JSON with a line for each value, and whether that is all of it.
/// The values keep their bytes.
fn pretty(json: &str, limit: usize) -> (String, bool) {
    let mut compact = String::new();
    json::compact(json, &mut compact);
    let mut out = String::new();
    let mut depth = 0_usize;
    let (mut in_string, mut is_escaped) = (false, false);
    let mut characters = compact.chars().peekable();
    let mut written = 0;
    while let Some(character) = characters.next() {
        if written >= limit {
            return (out, false);
        }
        let before = out.len();
        let is_inside = in_string;
        match character {
            '"' if !is_escaped => in_string = !in_string,
            '}' | ']' if !in_string => {
                depth = depth.saturating_sub(1);
                let is_empty = out.ends_with(['{', '[']);
                if !is_empty {
                    break_line(depth, &mut out);
                }
            }
            _ => {}
        }
        is_escaped = is_inside && character == '\\' && !is_escaped;
        out.push(character);
        match character {
            '{' | '[' if !in_string => {
                depth += 1;
                if !matches!(characters.peek(), Some('}' | ']')) {
                    break_line(depth, &mut out);
                }
            }
            ',' if !in_string => break_line(depth, &mut out),
            ':' if !in_string => out.push(' '),
            _ => {}
        }
        written += out.get(before..).unwrap_or_default().chars().count();
    }
    (out, true)
}

fn break_line(depth: usize, out: &mut String) {
    out.push('\n');
    out.push_str(&"  ".repeat(depth.min(MAX_INDENT)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Json;

    fn raw(text: &str) -> Json {
        json::raw(text.to_owned())
    }

    fn action(description: Option<&str>, details: Option<&str>) -> Action {
        Action {
            name: Text::new("send_mail"),
            args: raw(r#"{"to":["a"]}"#),
            description: description.map(Text::new),
            decisions: Vec::new(),
            call_id: None,
            schema: None,
            details: details.map(raw),
            kept: None,
        }
    }

    #[test]
    fn a_question_comes_with_everything_that_was_passed_along() {
        for (value, expected) in [
            (r#""Sure?""#, "Sure?"),
            ("true", "true"),
            ("null", NO_QUESTION),
            ("{}", NO_QUESTION),
            (r#"{"question":"Which?","node":"a","seed":null}"#, "Which?\n\nnode: a"),
            (
                r#"{"choices":["a","b"],"llm_output":"one\ntwo","question":"Good?"}"#,
                "Good?\n\nchoices:\n\n- a\n- b\n\nllm_output:\n\none\ntwo",
            ),
            (r#"{"message":"M","question":"Q"}"#, "M\n\nquestion: Q"),
            (r#"{"question":7,"n":1.10}"#, "question: 7\n\nn: 1.10"),
            (r#"["a",2]"#, "- a\n- 2"),
            (r#"[{"question":"A?"},{"x":"y"}]"#, "A?\n\n---\n\nx: y"),
            (
                r#"{"args":{"to":"x:{,}\"","n":[1,{}],"e":[]}}"#,
                "args:\n\n```json\n{\n  \"to\": \"x:{,}\\\"\",\n  \"n\": [\n    1,\n    {}\n  ],\n  \"e\": []\n}\n```",
            ),
        ] {
            assert_eq!(of_value(&raw(value)), expected, "{value}");
        }
    }

    #[test]
    fn an_action_is_shown_with_what_was_asked_about_it() {
        assert_eq!(about_call(&action(None, None)), None);
        let asked = action(Some("Not to be undone."), Some(r#"{"risk":"high"}"#));
        assert_eq!(about_call(&asked).unwrap(), "Not to be undone.\n\nrisk: high");
        let args = "send_mail:\n\n```json\n{\n  \"to\": [\n    \"a\"\n  ]\n}\n```";
        assert_eq!(of_action(&asked), format!("Not to be undone.\n\nrisk: high\n\n{args}"));
        let known = Action { call_id: Some(run::Id::from("c")), ..action(None, None) };
        assert_eq!(of_action(&known), "What does send_mail answer?");
    }

    #[test]
    fn nothing_in_the_arguments_of_an_approval_is_read_as_markdown() {
        let description =
            "Please check\n\nTool: send_mail\nArgs: {\"to\": [\"a\"], \"cc\": \"<!-- x -->\"}";
        let asked = Action {
            args: raw(r#"{"to":["a"],"cc":"<!-- x -->"}"#),
            ..action(Some(description), None)
        };
        let args = "```json\n{\n  \"to\": [\n    \"a\"\n  ],\n  \"cc\": \"<!-- x -->\"\n}\n```";
        let shown = format!("Please check\n\nsend_mail:\n\n{args}");
        assert_eq!(about_call(&asked).unwrap(), shown);
        assert_eq!(of_action(&asked), shown);
        // The description of another tool is the graph's own text.
        let other = "Please check\n\nTool: send_mails\nArgs: {}";
        assert_eq!(about_call(&action(Some(other), None)).unwrap(), other);
    }

    #[test]
    fn a_cut_is_announced_and_hides_no_other_member() {
        let long = "é".repeat(MAX_QUESTION_CHARS + 1);
        let value = format!(r#"{{"question":"{long}","risk":"high"}}"#);
        let shown = of_value(&raw(&value));
        assert!(
            shown.ends_with("\n\n[cut: the first 4000 of 4001 characters are shown]\n\nrisk: high"),
            "{shown}"
        );
        let value = format!(r#"{{"a":[{}1],"risk":"high"}}"#, "{},".repeat(100_000));
        let shown = of_value(&raw(&value));
        let note = "[cut: the first 2000 characters are shown, of 300003 bytes]\n\nrisk: high";
        assert!(shown.ends_with(note) && shown.contains("\n```\n\n["), "{shown}");
        let members: Vec<_> = (0..10_000).map(|at| format!(r#""n{at}":"value {at}""#)).collect();
        let shown = of_value(&raw(&format!("{{{}}}", members.join(","))));
        assert!(shown.chars().count() < MAX_ASKED_CHARS + 100, "{}", shown.len());
        let parts = shown.matches(": value ").count();
        let note = format!("\n\n[cut: {} more parts are not shown]", 10_000 - parts);
        assert!(shown.ends_with(&note), "{shown}");
        // Nothing grows beyond what is shown of it, however deep it is.
        let deep = format!("{}1{}", "[".repeat(50_000), "]".repeat(50_000));
        assert!(of_value(&raw(&format!(r#"{{"deep":{deep}}}"#))).len() < 3_000);
    }

    #[test]
    fn nothing_moves_a_cursor_or_turns_the_text_around() {
        let shown =
            of_value(&raw(r#"{"question":"a\u001b[2Jb\r\nc\rd\u202ee","k\u0007":["\u009b"]}"#));
        assert_eq!(shown, "a\\u{1b}[2Jb\nc\\u{d}d\\u{202e}e\n\nk\\u{7}:\n\n- \\u{9b}");
    }
}
