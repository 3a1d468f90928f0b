//! Forms that a client shows, which are flat JSON schemas, and the answers that they give.

use serde_json::value::RawValue;

use super::MAX_FORM_BYTES;
use crate::acp::question;
use crate::json::{self, Json, ObjectWriter, Text};
use crate::run::Action;

/// A form that a client shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    /// The question.
    pub message: String,
    /// The flat schema of the content.
    pub schema: Json,
    answer: AnswerForm,
}

/// How an answer is read from a form's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnswerForm {
    /// The content is the answer.
    Whole,
    /// The only field is the answer.
    Field,
    /// The only field holds the answer as JSON text.
    Written,
}

/// The name of the only field of a form with one field.
const FIELD: &str = "answer";

/// The keys of a property that a form takes over from LangGraph's schema.
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
    /// The form for a free question, which a graph asks by `interrupt()`.
    pub fn of_question(value: &RawValue, schema: Option<&RawValue>) -> Self {
        let message = question::of_value(value);
        let schema = schema.filter(|schema| schema.get() != "null");
        if schema.is_some_and(|schema| schema.get().len() > MAX_FORM_BYTES) {
            return Self::of_field(message, WRITTEN, AnswerForm::Written);
        }
        let Some(schema) = schema.map(|schema| json::members(schema).unwrap_or_default()) else {
            return Self::of_field(
                message,
                r#"{"type":"string","title":"Answer"}"#,
                AnswerForm::Field,
            );
        };
        if let Some(schema) = flat_object(&schema) {
            return Self { message, schema, answer: AnswerForm::Whole };
        }
        match property(&schema) {
            Some(property) => Self::of_field(message, property.get(), AnswerForm::Field),
            None => Self::of_field(message, WRITTEN, AnswerForm::Written),
        }
    }

    /// The form for other arguments of a call.
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
            return Self { message, schema, answer: AnswerForm::Whole };
        }
        let field = ObjectWriter::new()
            .string("type", "string")
            .string("title", "Arguments")
            .string("description", "a JSON object")
            .string("default", action.args.get())
            .finish();
        Self::of_field(message, field.get(), AnswerForm::Written)
    }

    /// The form for a tool's answer that a person gives.
    pub fn of_response(action: &Action) -> Self {
        let message = question::for_response(action);
        Self::of_field(message, r#"{"type":"string","title":"Answer"}"#, AnswerForm::Field)
    }

    fn of_field(message: String, field: &str, answer: AnswerForm) -> Self {
        let properties = ObjectWriter::new().raw(FIELD, field).finish();
        let schema = object_schema(properties.get(), &format!("[\"{FIELD}\"]"));
        Self { message, schema, answer }
    }

    /// Reads the answer from the content. `None` if the content does not have the form's fields.
    pub fn read(&self, content: &RawValue) -> Option<Json> {
        let members = json::members(content)?;
        let field = || members.get(FIELD);
        match self.answer {
            AnswerForm::Whole => Some(Json::from(content)),
            AnswerForm::Field => field().map(Json::from),
            AnswerForm::Written => {
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

/// The answer that a prompt gives to a free question.
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

/// LangGraph's schema as the schema of a form. `None` if it is not flat.
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

/// One property of a form. `None` if forms have no such property.
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

/// A field whose default is the argument's value. `None` for a list or an object.
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
    use crate::acp::permission::tests::action;

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
