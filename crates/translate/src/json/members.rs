//! Objects and arrays, opened one level.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::Text;

/// A string. Borrows from the document if it has no escapes, and is decoded otherwise.
///
/// serde cannot borrow a `Cow` inside an `Option`; this type can.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Str<'a>(pub Cow<'a, str>);

/// The members of an object in their order. Values are not parsed.
#[derive(Debug, Default)]
pub struct Members<'a>(pub Vec<(Str<'a>, &'a RawValue)>);

/// Parses an object one level. `None` if the value is not an object.
pub fn members(value: &RawValue) -> Option<Members<'_>> {
    // A test of the first byte is cheap. `RawValue` has no white space around it.
    value.get().starts_with('{').then(|| serde_json::from_str(value.get()).ok()).flatten()
}

/// Parses an object one level, also if a key contains half a surrogate pair, which becomes U+FFFD.
/// `None` if the value is not an object. Also says whether a key was mended.
pub(crate) fn mended_members(value: &RawValue) -> Option<(Members<'_>, bool)> {
    if let Some(members) = members(value) {
        return Some((members, false));
    }
    let keyed: RawMembers<'_> =
        value.get().starts_with('{').then(|| serde_json::from_str(value.get()).ok()).flatten()?;
    let decoded = |(key, value)| (Str(decoded(key)), value);
    Some((Members(keyed.0.into_iter().map(decoded).collect()), true))
}

/// The members of an object, whose keys are not decoded.
struct RawMembers<'a>(Vec<(&'a RawValue, &'a RawValue)>);

/// The text of a key, in which half a surrogate pair is U+FFFD.
fn decoded(key: &RawValue) -> Cow<'_, str> {
    string(key).unwrap_or_else(|| {
        let key = Text::from_raw(key);
        Cow::Owned(key.map(|key| key.decode().into_owned()).unwrap_or_default())
    })
}

/// Parses an array one level. `None` if the value is not an array.
pub fn items(value: &RawValue) -> Option<Vec<&RawValue>> {
    value.get().starts_with('[').then(|| serde_json::from_str(value.get()).ok()).flatten()
}

/// The decoded string. `None` if the value is not a string, or contains half a surrogate pair.
pub fn string(value: &RawValue) -> Option<Cow<'_, str>> {
    value
        .get()
        .starts_with('"')
        .then(|| serde_json::from_str::<Str<'_>>(value.get()).ok().map(|s| s.0))
        .flatten()
}

// === impl Str ===

impl<'de: 'a, 'a> Deserialize<'de> for Str<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Borrow;
        impl<'de> Visitor<'de> for Borrow {
            type Value = Str<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E: Error>(self, v: &'de str) -> Result<Self::Value, E> {
                Ok(Str(Cow::Borrowed(v)))
            }

            fn visit_str<E: Error>(self, v: &str) -> Result<Self::Value, E> {
                Ok(Str(Cow::Owned(v.to_owned())))
            }
        }
        deserializer.deserialize_str(Borrow)
    }
}

impl std::ops::Deref for Str<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

// === impl Members ===

impl<'a> Members<'a> {
    /// The value of a member. If a name occurs twice, the last one counts.
    pub fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().rev().find(|(key, _)| &**key == name).map(|(_, value)| *value)
    }

    /// The decoded string of a member.
    pub fn string(&self, name: &str) -> Option<Cow<'a, str>> {
        self.get(name).and_then(string)
    }

    /// The text of a member, still escaped.
    pub fn text(&self, name: &str) -> Option<Text> {
        self.get(name).and_then(Text::from_raw)
    }

    /// An unsigned number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.get(name).and_then(|value| value.get().parse().ok())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Entries(PhantomData)).map(Self)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for RawMembers<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Entries(PhantomData)).map(Self)
    }
}

/// Collects the members of an object, with keys of one type.
struct Entries<K>(PhantomData<K>);

impl<'de, K: Deserialize<'de>> Visitor<'de> for Entries<K> {
    type Value = Vec<(K, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(entry) = map.next_entry::<K, &'de RawValue>()? {
            members.push(entry);
        }
        Ok(members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::raw;

    #[test]
    fn half_a_pair_in_a_key_costs_no_other_member() {
        let value = raw(r#"{"a\ud83d":1,"b\n":[1.10],"\ud83d\ude00":2}"#.to_owned());
        assert!(members(&value).is_none());
        let (members, is_mended) = mended_members(&value).unwrap();
        assert!(is_mended);
        let members: Vec<_> = members.0.iter().map(|(key, value)| (&**key, value.get())).collect();
        assert_eq!(members, [("a\u{fffd}", "1"), ("b\n", "[1.10]"), ("😀", "2")]);
        assert!(mended_members(&raw("[1]".to_owned())).is_none());
    }

    #[test]
    fn a_value_opens_one_level_and_keeps_its_bytes() {
        let value = raw(r#"{"a":1.10,"b":{"c":[12345678901234567890123]}}"#.to_owned());
        let members = members(&value).unwrap();
        assert_eq!(members.get("a").unwrap().get(), "1.10");
        assert_eq!(members.get("b").unwrap().get(), r#"{"c":[12345678901234567890123]}"#);
        assert!(items(&value).is_none());
    }
}
