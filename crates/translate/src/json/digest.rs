//! Digests that every replica computes alike, after every start.
//!
//! A digest of 64 bits distinguishes what differs by chance. It is no protection against somebody
//! who looks for two values with the same one.

use super::string_end;
use super::text::decode;

/// An odd number whose product spreads a bit over all higher ones.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// A digest of numbers and texts in their order.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Digest(u64);

/// A value whose end has not come.
enum Frame {
    Array(Digest),
    Object {
        /// The sum of its members, so that their order does not count.
        members: u64,
        /// The key whose value comes next.
        key: Option<u64>,
    },
}

/// The digest of a JSON value. White space, escapes and the order of members do not count. Numbers
/// count as they are written.
pub(crate) fn of_json(json: &str) -> u64 {
    let mut open: Vec<Frame> = Vec::new();
    let mut rest = json;
    let mut whole = 0;
    while let Some(first) = rest.bytes().next() {
        let mut end = 1;
        let value = match first {
            b'{' => {
                open.push(Frame::Object { members: 0, key: None });
                None
            }
            b'[' => {
                open.push(Frame::Array(Digest::of(first)));
                None
            }
            b'}' | b']' => open.pop().map(Frame::finish),
            b'"' => {
                end = string_end(rest);
                let text = rest.get(1..end.saturating_sub(1)).unwrap_or_default();
                Some(of_string(&decode(text)))
            }
            b' ' | b'\n' | b'\r' | b'\t' | b',' | b':' => None,
            _ => {
                end = rest.find([',', ']', '}', ' ', '\n', '\r', '\t']).unwrap_or(rest.len());
                Some(Digest::of(b'0').text(rest.get(..end).unwrap_or_default()).finish())
            }
        };
        rest = rest.get(end..).unwrap_or_default();
        match (value, open.last_mut()) {
            (Some(value), Some(frame)) => frame.take(value),
            (Some(value), None) => whole = value,
            (None, _) => {}
        }
    }
    whole
}

/// The digest of an object with these members, in any order: [`of_json`] of its text.
pub(crate) fn of_object<'a>(members: impl Iterator<Item = (&'a str, u64)>) -> u64 {
    let members = members.map(|(key, value)| of_member(of_string(key), value));
    Frame::Object { members: members.fold(0, u64::wrapping_add), key: None }.finish()
}

/// The digest of an array with these items: [`of_json`] of its text.
pub(crate) fn of_array(items: impl Iterator<Item = u64>) -> u64 {
    Frame::Array(items.fold(Digest::of(b'['), Digest::number)).finish()
}

fn of_string(text: &str) -> u64 {
    Digest::of(b'"').text(text).finish()
}

fn of_member(key: u64, value: u64) -> u64 {
    Digest::of(b':').number(key).number(value).finish()
}

// === impl Digest ===

impl Digest {
    fn of(tag: u8) -> Self {
        Self::default().number(tag.into())
    }

    #[must_use]
    pub(crate) fn number(self, number: u64) -> Self {
        let mixed = (self.0 ^ number).wrapping_mul(FACTOR);
        Self(mixed ^ (mixed >> 32))
    }

    #[must_use]
    pub(crate) fn text(self, text: &str) -> Self {
        let (words, rest) = text.as_bytes().as_chunks::<8>();
        let mut last = [0; 8];
        for (to, byte) in last.iter_mut().zip(rest) {
            *to = *byte;
        }
        let own = self.number(text.len() as u64);
        words.iter().chain([&last]).fold(own, |own, word| own.number(u64::from_le_bytes(*word)))
    }

    /// Takes a text, or that there is none.
    #[must_use]
    pub(crate) fn optional(self, text: Option<&str>) -> Self {
        match text {
            Some(text) => self.number(1).text(text),
            None => self.number(0),
        }
    }

    #[must_use]
    pub(crate) fn json(self, json: &str) -> Self {
        self.number(of_json(json))
    }

    pub(crate) fn finish(self) -> u64 {
        self.number(0).number(1).0
    }
}

// === impl Frame ===

impl Frame {
    fn take(&mut self, value: u64) {
        match self {
            Self::Array(items) => *items = items.number(value),
            Self::Object { members, key } => match key.take() {
                Some(key) => *members = members.wrapping_add(of_member(key, value)),
                None => *key = Some(value),
            },
        }
    }

    fn finish(self) -> u64 {
        match self {
            Self::Array(items) => items.finish(),
            Self::Object { members, .. } => Digest::of(b'{').number(members).finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_that_of_the_value_however_it_is_written() {
        for (one, other) in [
            (r#"{"a":1,"b":[true,null]}"#, "{ \"b\" : [ true,\n null ], \"a\" : 1 }"),
            (r#"{"é":"naïve"}"#, r#"{"\u00e9":"na\u00efve"}"#),
            (r#"[{"a":{},"b":[]},"x"]"#, r#"[{"b":[],"a":{}},"x"]"#),
        ] {
            assert_eq!(of_json(one), of_json(other), "{one} {other}");
        }
    }

    #[test]
    fn values_that_differ_have_other_digests() {
        let all = [
            "null",
            "true",
            "false",
            "0",
            "-0",
            "0.0",
            "1e0",
            "\"\"",
            "\"0\"",
            "\"null\"",
            "{}",
            "[]",
            "[[]]",
            "[{}]",
            "[0]",
            "[0,0]",
            "[\"0\"]",
            "[1,2]",
            "[2,1]",
            "[[1],2]",
            "[[1,2]]",
            r#"{"a":0}"#,
            r#"{"a":"0"}"#,
            r#"{"a":null}"#,
            r#"{"0":"a"}"#,
            r#"{"a":{"b":0}}"#,
            r#"{"b":{"a":0}}"#,
            r#"{"a":0,"b":0}"#,
            r#"{"a":0,"b":1}"#,
            r#"{"a":1,"b":0}"#,
            r#"{"a":"b","c":"d"}"#,
            r#"{"a":"d","c":"b"}"#,
            r#"["a","b"]"#,
            r#"["ab",""]"#,
            r#"["abcdefgh",""]"#,
            r#"["abcdefgh\u0000",""]"#,
            "12345678901234567890123",
            "12345678901234567890124",
        ];
        for (at, one) in all.iter().enumerate() {
            for other in all.iter().skip(at + 1) {
                assert_ne!(of_json(one), of_json(other), "{one} {other}");
            }
        }
    }

    #[test]
    fn a_value_that_is_put_together_has_the_digest_of_its_text() {
        let items = || [of_json("1"), of_json("[]")].into_iter();
        assert_eq!(of_array(items()), of_json("[1,[]]"));
        let members = [("b\n", of_array(items())), ("a", of_json("\"x\""))];
        assert_eq!(of_object(members.into_iter()), of_json(r#"{"a":"x","b\n":[1,[]]}"#));
    }

    #[test]
    fn a_text_that_is_no_json_has_a_digest_too() {
        for text in ["", "{", "\"", "]", "{]", "\"\\", ":", "[1", "}{", "{\"a\"", "é", "\u{0}"] {
            of_json(text);
        }
    }

    /// Clients keep digests, so another release must compute the same ones.
    #[test]
    fn a_digest_is_the_one_that_is_written_down() {
        assert_eq!(
            of_json(r#"{"messages":[{"id":"m1","n":1.10}],"é":null}"#),
            0x1464_246d_0d29_054a
        );
    }
}
