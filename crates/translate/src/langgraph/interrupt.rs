//! An interrupt as LangGraph sends it.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::value::RawValue;
use uuid::Uuid;

use crate::json;

/// A question that the graph asks before it continues.
#[derive(Clone, Debug)]
pub struct RawInterrupt<'a> {
    /// 32 hexadecimal digits, which stay the same when the run resumes. Older versions of LangGraph
    /// give no ids: see [`is_unnamed`](Self::is_unnamed).
    pub id: Cow<'a, str>,
    /// What the graph passed to `interrupt()`.
    pub value: Option<&'a RawValue>,
    /// The JSON schema of the answer, if the graph gives one.
    pub response_schema: Option<&'a RawValue>,
}

// === impl RawInterrupt ===

/// The prefix of the ids that are made here, for interrupts without one.
const UNNAMED: &str = "unnamed-interrupt-";

/// The hexadecimal digits of such an id. A thread has few interrupts.
const UNNAMED_DIGITS: usize = 16;

impl<'a> RawInterrupt<'a> {
    /// Reads a list of interrupts. An interrupt without an id gets one.
    pub fn list(value: &'a RawValue) -> Option<Vec<Self>> {
        Some(Self::all(json::items(value)?))
    }

    /// Whether an id was made here. LangGraph does not know it, and accepts only a bare answer.
    pub fn is_unnamed(id: &str) -> bool {
        id.starts_with(UNNAMED)
    }

    /// The interrupts of one list, or of all tasks of a thread.
    ///
    /// An id that is made here is a digest of the question and its namespace. So the stream and the
    /// state give the same id, in any order of tasks. Equal ids get a number.
    pub(super) fn all(items: impl IntoIterator<Item = &'a RawValue>) -> Vec<Self> {
        let mut names: HashMap<String, usize> = HashMap::new();
        let parse = |item: &'a RawValue| {
            let members = json::members(item)?;
            let id = members.string("id").unwrap_or_else(|| {
                let name = Self::name(&members);
                let count = names.entry(name.clone()).or_default();
                *count += 1;
                Cow::Owned(if *count == 1 { name } else { format!("{name}-{count}") })
            });
            Some(Self {
                id,
                value: members.get("value"),
                response_schema: members.get("response_schema").filter(|s| s.get() != "null"),
            })
        };
        items.into_iter().filter_map(parse).collect()
    }

    /// `ns` is the namespace of the task, if the server sends it.
    fn name(members: &json::Members<'_>) -> String {
        let compact = |name| {
            let mut text = String::new();
            json::compact(members.get(name).unwrap_or(RawValue::NULL).get(), &mut text);
            text
        };
        let text = format!("{}\n{}", compact("ns"), compact("value"));
        let digest = Uuid::new_v5(&Uuid::NAMESPACE_OID, text.as_bytes()).simple().to_string();
        format!("{UNNAMED}{digest:.UNNAMED_DIGITS$}")
    }
}
