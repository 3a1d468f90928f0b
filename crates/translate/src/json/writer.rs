//! Writes objects and arrays from values that are JSON already.

use serde_json::value::RawValue;

use super::{Json, Members, Str, Text, members, raw};

/// Writes an object member by member. The values are JSON already.
#[derive(Debug)]
pub struct ObjectWriter(String);

// === impl ObjectWriter ===

impl ObjectWriter {
    /// An object without members.
    pub fn new() -> Self {
        Self("{".to_owned())
    }

    /// Starts with these members.
    pub fn with(members: &[(Str<'_>, &RawValue)]) -> Self {
        members.iter().fold(Self::new(), |object, (name, value)| object.raw(name, value.get()))
    }

    /// Adds a member; `value` is JSON.
    #[must_use]
    pub fn raw(mut self, name: &str, value: &str) -> Self {
        self.0.push_str(if self.0.len() > 1 { ",\"" } else { "\"" });
        self.0.push_str(Text::new(name).escaped());
        self.0.push_str("\":");
        self.0.push_str(value);
        self
    }

    /// Adds a string that is escaped already.
    #[must_use]
    pub fn text(self, name: &str, text: &Text) -> Self {
        self.raw(name, text.quoted())
    }

    /// Adds a string, and escapes it.
    #[must_use]
    pub fn string(self, name: &str, string: &str) -> Self {
        self.text(name, &Text::new(string))
    }

    /// Adds a string, if there is one.
    #[must_use]
    pub fn optional(self, name: &str, text: Option<&Text>) -> Self {
        match text {
            Some(text) => self.text(name, text),
            None => self,
        }
    }

    #[must_use]
    /// Adds members in their order.
    pub fn rest<'a>(self, members: impl IntoIterator<Item = (&'a str, Json)>) -> Self {
        members.into_iter().fold(self, |object, (name, value)| object.raw(name, value.get()))
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.0.len() == 1
    }

    /// The object.
    pub fn finish(mut self) -> Json {
        self.0.push('}');
        raw(self.0)
    }
}

impl Default for ObjectWriter {
    fn default() -> Self {
        Self::new()
    }
}

/// An array of values that are JSON already.
pub fn array<'a>(values: impl IntoIterator<Item = &'a str>) -> Json {
    let mut text = String::from("[");
    for value in values {
        text.push_str(if text.len() > 1 { "," } else { "" });
        text.push_str(value);
    }
    text.push(']');
    raw(text)
}

/// The object with this member, which replaces one of the same name. A value that is no object counts
/// as an empty one.
pub fn with_member(object: &RawValue, name: &str, value: &RawValue) -> Json {
    let Members(old) = members(object).unwrap_or_default();
    let mut is_there = false;
    let mut changed = ObjectWriter::new();
    for (key, old) in &old {
        if **key == *name {
            // If a name occurs twice, the last one counts; so all are replaced.
            if !std::mem::replace(&mut is_there, true) {
                changed = changed.raw(name, value.get());
            }
        } else {
            changed = changed.raw(key, old.get());
        }
    }
    if is_there { changed.finish() } else { changed.raw(name, value.get()).finish() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_replaced_in_its_place_or_added() {
        let with = |object: &str| {
            with_member(&raw(object.to_owned()), "a", &raw("2".to_owned())).get().to_owned()
        };
        assert_eq!(with(r#"{"a":1.10,"b":[1, 2],"a":7}"#), r#"{"a":2,"b":[1, 2]}"#);
        assert_eq!(with(r#"{"b":null}"#), r#"{"b":null,"a":2}"#);
        assert_eq!(with("7"), r#"{"a":2}"#);
    }
}
