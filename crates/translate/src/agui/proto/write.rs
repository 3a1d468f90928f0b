//! JSON values as protobuf fields.

use serde_json::value::RawValue;

use crate::json::{self, Members, Text};

/// How many levels of a value are written as messages. Deeper values are written as JSON text,
/// because decoders recurse, and the upstream must not decide how deep.
const MAX_DEPTH: usize = 64;

// The wire types of protobuf.
const VARINT: u64 = 0;
const DOUBLE: u64 = 1;
const BYTES: u64 = 2;

/// A member of an object: its name, the number of its field, and its kind.
///
/// Several fields may take the same member. Each takes only values of its kind.
pub(super) struct Field(pub(super) &'static str, pub(super) u32, pub(super) FieldKind);

/// The kind of a member, which decides how it is written.
pub(super) enum FieldKind {
    /// A string.
    Text,
    /// A non-negative integer.
    Count,
    Bool,
    /// Any JSON, as `google.protobuf.Value`.
    Value,
    /// An object, as `google.protobuf.Struct`.
    Struct,
    /// One of these names, written as its index.
    Name(&'static [&'static str]),
    /// An object with these members.
    Message(&'static [Field]),
    /// An object whose `type` is one of these names. Each name has a field of its own.
    Arms(&'static [Field]),
    /// Each item of an array.
    Many(&'static Self),
    /// A member of an object that is not written as a message.
    Within(&'static str, &'static Self),
}

// === impl FieldKind ===

impl FieldKind {
    /// Writes a value as a field. A value of another kind writes nothing.
    pub(super) fn write(&self, number: u32, value: &RawValue, out: &mut Vec<u8>) {
        match self {
            Self::Text => {
                if let Some(text) = Text::from_raw(value) {
                    bytes(number, text.decode().as_bytes(), out);
                }
            }
            Self::Count => {
                if let Ok(count) = value.get().parse() {
                    tag(number, VARINT, out);
                    varint(count, out);
                }
            }
            Self::Bool => {
                if let Ok(is) = value.get().parse::<bool>() {
                    tag(number, VARINT, out);
                    varint(is.into(), out);
                }
            }
            Self::Value => nested(number, out, |out| write_value(value, 0, out)),
            Self::Struct => {
                if let Some(members) = json::members(value) {
                    nested(number, out, |out| write_struct(&members, 0, out));
                }
            }
            Self::Name(names) => {
                let place = json::string(value)
                    .and_then(|name| names.iter().position(|known| *known == name));
                // Decoders assume 0.
                if let Some(place @ 1..) = place {
                    tag(number, VARINT, out);
                    varint(place as u64, out);
                }
            }
            Self::Message(fields) => {
                if let Some(members) = json::members(value) {
                    nested(number, out, |out| write_members(fields, &members, out));
                }
            }
            Self::Arms(arms) => {
                let name = json::members(value).and_then(|members| members.string("type"));
                let arm = name.and_then(|name| arms.iter().find(|arm| arm.0 == name));
                if let Some(Field(_, arm, kind)) = arm {
                    nested(number, out, |out| kind.write(*arm, value, out));
                }
            }
            Self::Many(kind) => {
                let items = json::items(value).into_iter().flatten();
                items.for_each(|item| kind.write(number, item, out));
            }
            Self::Within(name, kind) => {
                if let Some(value) = json::members(value).and_then(|members| members.get(name)) {
                    kind.write(number, value, out);
                }
            }
        }
    }
}

pub(super) fn write_members(fields: &[Field], members: &Members<'_>, out: &mut Vec<u8>) {
    for Field(name, number, kind) in fields {
        if let Some(value) = members.get(name) {
            kind.write(*number, value, out);
        }
    }
}

/// Writes a `google.protobuf.Value`.
fn write_value(value: &RawValue, depth: usize, out: &mut Vec<u8>) {
    // The fields of a `Value`.
    const NULL: u32 = 1;
    const NUMBER: u32 = 2;
    const STRING: u32 = 3;
    const BOOL: u32 = 4;
    const STRUCT: u32 = 5;
    const LIST: u32 = 6;
    let may_nest = depth < MAX_DEPTH;
    let text = value.get();
    if text == "null" {
        tag(NULL, VARINT, out);
        varint(0, out);
    } else if let Ok(is) = text.parse::<bool>() {
        tag(BOOL, VARINT, out);
        varint(is.into(), out);
    } else if let Some(string) = Text::from_raw(value) {
        bytes(STRING, string.decode().as_bytes(), out);
    } else if let Some(members) = may_nest.then(|| json::members(value)).flatten() {
        nested(STRUCT, out, |out| write_struct(&members, depth + 1, out));
    } else if let Some(items) = may_nest.then(|| json::items(value)).flatten() {
        nested(LIST, out, |out| {
            for item in items {
                nested(1, out, |out| write_value(item, depth + 1, out));
            }
        });
    } else if let Ok(number) = text.parse::<f64>() {
        tag(NUMBER, DOUBLE, out);
        out.extend_from_slice(&number.to_le_bytes());
    } else {
        bytes(STRING, text.as_bytes(), out);
    }
}

/// Writes a `google.protobuf.Struct`: a map, whose entries are messages.
fn write_struct(members: &Members<'_>, depth: usize, out: &mut Vec<u8>) {
    for (name, value) in &members.0 {
        nested(1, out, |out| {
            bytes(1, name.0.as_bytes(), out);
            nested(2, out, |out| write_value(value, depth, out));
        });
    }
}

/// Writes a message as a field.
pub(super) fn nested(number: u32, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    tag(number, BYTES, out);
    let start = out.len();
    write(out);
    let (length, count) = leb128((out.len() - start) as u64);
    out.splice(start..start, length.into_iter().take(count));
}

fn bytes(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    tag(number, BYTES, out);
    varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn tag(number: u32, wire_type: u64, out: &mut Vec<u8>) {
    varint(u64::from(number) << 3 | wire_type, out);
}

fn varint(number: u64, out: &mut Vec<u8>) {
    let (bytes, count) = leb128(number);
    out.extend(bytes.into_iter().take(count));
}

/// The LEB128 bytes of a number, and how many of them are used.
fn leb128(mut number: u64) -> ([u8; 10], usize) {
    let mut bytes = [0; 10];
    let mut count = 0;
    for to in &mut bytes {
        let [low, ..] = number.to_le_bytes();
        number >>= 7;
        count += 1;
        *to = if number == 0 { low & 0x7f } else { low | 0x80 };
        if number == 0 {
            break;
        }
    }
    (bytes, count)
}
