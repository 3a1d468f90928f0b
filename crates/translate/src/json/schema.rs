//! Whether a value breaks its JSON Schema.
//!
//! A graph writes these schemas, or a server that a graph uses, so they may be wrong or hostile.
//! The check fetches nothing, compiles no patterns, and has limits for each value.
//!
//! [`mismatch`] reports a mismatch only if every implementation of JSON Schema would. It checks
//! these keywords: `type`, `enum`, `const`, `required`, `properties`, `additionalProperties`,
//! `items`, `prefixItems`, `allOf`, `anyOf`, `oneOf` (at least one holds), `$ref` within the
//! schema, `minimum`, `maximum`, `exclusiveMinimum`, `exclusiveMaximum`, and the limits of lengths
//! and counts. It ignores all others.

use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// The longest schema that is checked, in bytes. A form of a hundred fields has about 10 KiB.
pub const MAX_SCHEMA_BYTES: usize = 64 * 1024;

/// How many subschemas, listed values and names are checked for one value. With schemas of
/// [`MAX_SCHEMA_BYTES`] this takes a few milliseconds. Anything beyond counts as valid.
const MAX_STEPS: usize = 20_000;

/// The deepest nesting of schemas. A schema may refer to itself without end.
const MAX_DEPTH: usize = 64;

/// The longest path that is reported, in characters.
const MAX_PATH_CHARS: usize = 200;

/// Doubles represent all whole numbers up to here.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// Where a value breaks its schema. The message quotes no values, and only names that the schema
/// contains or forbids.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{keyword}` does not hold for {}", place(path))]
pub struct Mismatch {
    /// A JSON pointer into the value. Empty for the value itself.
    pub path: String,
    /// The keyword that the value breaks.
    pub keyword: &'static str,
}

fn place(path: &str) -> String {
    if path.is_empty() { "the answer".to_owned() } else { format!("`{path}` of the answer") }
}

/// Finds where a value breaks a schema. `None` if it may be valid, and if the schema is too long or
/// cannot be parsed.
pub fn mismatch(schema: &RawValue, value: &RawValue) -> Option<Mismatch> {
    if schema.get().len() > MAX_SCHEMA_BYTES {
        return None;
    }
    let schema: Value = serde_json::from_str(schema.get()).ok()?;
    let value: Value = serde_json::from_str(value.get()).ok()?;
    let mut check = Check { root: &schema, steps: MAX_STEPS, depth: 0, path: Vec::new() };
    let keyword = check.failing(&schema, &value)?;
    let mut path = String::new();
    for segment in &check.path {
        path.push('/');
        path.push_str(&segment.replace('~', "~0").replace('/', "~1"));
    }
    if let Some((end, _)) = path.char_indices().nth(MAX_PATH_CHARS) {
        path.truncate(end);
        path.push('…');
    }
    Some(Mismatch { path, keyword })
}

/// The state of one check.
struct Check<'a> {
    root: &'a Value,
    /// How many more steps are allowed.
    steps: usize,
    depth: usize,
    /// The place in the value. Kept when a keyword fails.
    path: Vec<String>,
}

// === impl Check ===

impl<'a> Check<'a> {
    /// The keyword that the value breaks. `path` then says where.
    fn failing(&mut self, schema: &'a Value, value: &Value) -> Option<&'static str> {
        if !self.spend(1) || self.depth >= MAX_DEPTH {
            return None;
        }
        let schema = match schema {
            Value::Bool(false) => return Some("false"),
            Value::Object(schema) => schema,
            Value::Null
            | Value::Bool(true)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_) => return None,
        };
        self.depth += 1;
        let failing = self.failing_keyword(schema, value);
        self.depth -= 1;
        failing
    }

    fn failing_keyword(
        &mut self,
        schema: &'a Map<String, Value>,
        value: &Value,
    ) -> Option<&'static str> {
        let is_root = self.root.as_object().is_some_and(|root| std::ptr::eq(schema, root));
        if schema.contains_key("$id") && !is_root {
            // Its references are relative to another document.
            return None;
        }
        if value.is_null() && schema.get("nullable") == Some(&Value::Bool(true)) {
            // OpenAPI's keyword.
            return None;
        }
        if let Some(Value::String(reference)) = schema.get("$ref") {
            if let Some(target) = self.target(reference)
                && let Some(keyword) = self.failing(target, value)
            {
                return Some(keyword);
            }
            if self.is_of_old_draft() {
                // In those drafts other keywords beside `$ref` are ignored.
                return None;
            }
        }
        self.failing_value(schema, value)
            .or_else(|| self.failing_combination(schema, value))
            .or_else(|| match value {
                Value::Object(members) => self.failing_members(schema, members),
                Value::Array(items) => self.failing_items(schema, items),
                Value::String(text) => failing_text(schema, text),
                Value::Number(_) => failing_number(schema, value.as_f64()?),
                Value::Null | Value::Bool(_) => None,
            })
    }

    fn failing_value(
        &mut self,
        schema: &Map<String, Value>,
        value: &Value,
    ) -> Option<&'static str> {
        let is_type = |name: &Value| is_of_type(name, value);
        let has_type = match schema.get("type") {
            Some(Value::Array(names)) => names.iter().any(is_type),
            Some(name) => is_type(name),
            None => true,
        };
        if !has_type {
            return Some("type");
        }
        if let Some(Value::Array(allowed)) = schema.get("enum")
            && self.spend(allowed.len())
            && !allowed.iter().any(|allowed| is_same(allowed, value))
        {
            return Some("enum");
        }
        let is_other = |constant: &Value| !is_same(constant, value);
        schema.get("const").is_some_and(is_other).then_some("const")
    }

    fn failing_combination(
        &mut self,
        schema: &'a Map<String, Value>,
        value: &Value,
    ) -> Option<&'static str> {
        for schema in list(schema, "allOf") {
            if let Some(keyword) = self.failing(schema, value) {
                return Some(keyword);
            }
        }
        // A second match of `oneOf` is not an error here: keywords that are not checked may exclude
        // it.
        for keyword in ["anyOf", "oneOf"] {
            let choices = list(schema, keyword);
            let depth = self.path.len();
            let fails = |choice| {
                let fails = self.failing(choice, value).is_some();
                self.path.truncate(depth);
                fails
            };
            if !choices.is_empty() && choices.iter().all(fails) {
                return Some(keyword);
            }
        }
        None
    }

    fn failing_members(
        &mut self,
        schema: &'a Map<String, Value>,
        members: &Map<String, Value>,
    ) -> Option<&'static str> {
        let required = list(schema, "required");
        let is_there = |name: &Value| name.as_str().is_none_or(|name| members.contains_key(name));
        if self.spend(required.len()) && !required.iter().all(is_there) {
            return Some("required");
        }
        if let Some(keyword) =
            failing_count(schema, members.len(), "minProperties", "maxProperties")
        {
            return Some(keyword);
        }
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, schema) in properties.into_iter().flatten() {
            if let Some(value) = members.get(name)
                && let Some(keyword) = self.failing_at(name, schema, value)
            {
                return Some(keyword);
            }
        }
        let others = schema.get("additionalProperties")?;
        if schema.contains_key("patternProperties") {
            return None;
        }
        for (name, value) in members {
            let is_named = properties.is_some_and(|properties| properties.contains_key(name));
            if !is_named && let Some(keyword) = self.failing_at(name, others, value) {
                return Some(if keyword == "false" { "additionalProperties" } else { keyword });
            }
        }
        None
    }

    fn failing_items(
        &mut self,
        schema: &'a Map<String, Value>,
        items: &[Value],
    ) -> Option<&'static str> {
        if let Some(keyword) = failing_count(schema, items.len(), "minItems", "maxItems") {
            return Some(keyword);
        }
        // In older drafts `items` may be a list.
        let first = list(schema, "prefixItems").iter().chain(list(schema, "items"));
        let first: Vec<_> = first.collect();
        let rest = schema.get("items").filter(|rest| !rest.is_array());
        for (at, item) in items.iter().enumerate() {
            let Some(schema) = first.get(at).copied().or(rest) else { break };
            if let Some(keyword) = self.failing_at(&at.to_string(), schema, item) {
                return Some(keyword);
            }
        }
        None
    }

    fn failing_at(&mut self, name: &str, schema: &'a Value, value: &Value) -> Option<&'static str> {
        if self.steps == 0 {
            return None;
        }
        self.path.push(name.to_owned());
        let failing = self.failing(schema, value);
        if failing.is_none() {
            self.path.pop();
        }
        failing
    }

    /// The subschema that a reference within the schema points to.
    fn target(&mut self, reference: &str) -> Option<&'a Value> {
        let pointer = reference.strip_prefix('#')?;
        // A long pointer counts as several steps.
        if !self.spend(pointer.len() / 32) || pointer.contains('%') {
            return None;
        }
        self.root.pointer(pointer)
    }

    fn is_of_old_draft(&self) -> bool {
        let draft = self.root.get("$schema").and_then(Value::as_str);
        draft.is_some_and(|draft| draft.contains("draft-0"))
    }

    /// Whether that many steps are left.
    fn spend(&mut self, steps: usize) -> bool {
        let left = self.steps.checked_sub(steps);
        self.steps = left.unwrap_or(0);
        left.is_some()
    }
}

fn list<'a>(schema: &'a Map<String, Value>, keyword: &str) -> &'a [Value] {
    schema.get(keyword).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// An unknown type accepts any value.
fn is_of_type(name: &Value, value: &Value) -> bool {
    match name.as_str() {
        Some("null") => value.is_null(),
        Some("boolean") => value.is_boolean(),
        Some("string") => value.is_string(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        Some("number") => value.is_number(),
        Some("integer") => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        Some(_) | None => true,
    }
}

/// JSON Schema has one kind of number: 1 equals 1.0.
fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            let is_in_b = |(name, a): (&String, &Value)| b.get(name).is_some_and(|b| is_same(a, b));
            a.len() == b.len() && a.iter().all(is_in_b)
        }
        _ => a == b,
    }
}

fn failing_count(
    schema: &Map<String, Value>,
    count: usize,
    least: &'static str,
    most: &'static str,
) -> Option<&'static str> {
    let limit = |keyword| schema.get(keyword).and_then(Value::as_u64);
    let count = count as u64;
    if limit(least).is_some_and(|least| count < least) {
        return Some(least);
    }
    limit(most).is_some_and(|limit| count > limit).then_some(most)
}

fn failing_text(schema: &Map<String, Value>, text: &str) -> Option<&'static str> {
    let is_limited = schema.contains_key("minLength") || schema.contains_key("maxLength");
    let count = if is_limited { text.chars().count() } else { return None };
    failing_count(schema, count, "minLength", "maxLength")
}

fn failing_number(schema: &Map<String, Value>, number: f64) -> Option<&'static str> {
    let limit = |keyword| schema.get(keyword).and_then(Value::as_f64);
    // Two large numbers that are equal as doubles may still differ.
    let is_equal = |limit: f64| (number - limit).abs() == 0.0 && number.abs() < MAX_EXACT;
    let fails = |keyword, fails: &dyn Fn(f64) -> bool| limit(keyword).is_some_and(fails);
    if fails("minimum", &|least| number < least) {
        return Some("minimum");
    }
    if fails("maximum", &|most| number > most) {
        return Some("maximum");
    }
    if fails("exclusiveMinimum", &|least| number < least || is_equal(least)) {
        return Some("exclusiveMinimum");
    }
    fails("exclusiveMaximum", &|most| number > most || is_equal(most)).then_some("exclusiveMaximum")
}
