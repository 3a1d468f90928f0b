//! An interrupt as LangGraph sends it.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::value::RawValue;
use uuid::Uuid;

use crate::json;

/// A question that the graph asks before it goes on.
#[derive(Clone, Debug)]
pub struct RawInterrupt<'a> {
    /// 32 hexadecimal digits; the same over resumes. LangGraph's older versions have no ids: see
    /// [`is_unnamed`](Self::is_unnamed).
    pub id: Cow<'a, str>,
    /// What the graph passed to `interrupt()`.
    pub value: Option<&'a RawValue>,
    /// The schema of the answer, where the graph gives one.
    pub response_schema: Option<&'a RawValue>,
}

// === impl RawInterrupt ===

/// How our names of interrupts begin that have no id in LangGraph.
const UNNAMED: &str = "unnamed-interrupt-";

/// How many hexadecimal digits of a digest such a name has: interrupts of one thread are few.
const UNNAMED_DIGITS: usize = 16;

impl<'a> RawInterrupt<'a> {
    /// A list of interrupts. One without an id gets a name of ours.
    pub fn list(value: &'a RawValue) -> Option<Vec<Self>> {
        Some(Self::all(json::items(value)?))
    }

    /// Whether an id is a name of ours. LangGraph does not know it, and takes a bare answer only.
    pub fn is_unnamed(id: &str) -> bool {
        id.starts_with(UNNAMED)
    }

    /// The interrupts of one list, or of all tasks of a thread.
    ///
    /// A name of ours is a digest of what is asked and where, so that stream and state give the
    /// same name whatever the order of their tasks. Equal ones are numbered.
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

    /// `ns` is the namespace of the task, where the server gives one.
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
