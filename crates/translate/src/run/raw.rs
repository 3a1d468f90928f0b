//! A part of LangGraph's stream as `[emit] raw` shows it, without anything about the request.

use serde_json::value::RawValue;

use crate::json::{self, Json, ObjectWriter, Text};

/// Members that contain the request's metadata or configuration, or the caller. LangGraph stores
/// headers and users there.
///
/// Errors are withheld too: `error_detail` decides how much of them clients see.
const WITHHELD: [&str; 8] =
    ["metadata", "config", "configurable", "context", "headers", "kwargs", "auth", "error"];

/// Prefixes of members that LangGraph's servers add about a request.
const WITHHELD_PREFIXES: [&str; 2] = ["langgraph_", "__"];

/// How deep a part is searched. Everything below becomes `null`.
const MAX_DEPTH: usize = 32;

/// The part as an object. `None` for an error, which `error_detail` covers.
pub fn raw_part(event: Option<&str>, data: &str) -> Option<Json> {
    let event = event.unwrap_or("message");
    if event == "error" || event.starts_with("error|") {
        return None;
    }
    let data = match serde_json::from_str::<&RawValue>(data) {
        Ok(value) => harmless(value, 0),
        Err(_) => Json::from(Text::new(data)),
    };
    Some(ObjectWriter::new().string("event", event).raw("data", data.get()).finish())
}

fn harmless(value: &RawValue, depth: usize) -> Json {
    if depth > MAX_DEPTH {
        return json::raw("null".to_owned());
    }
    if let Some(members) = json::members(value) {
        let mut object = ObjectWriter::new();
        for (key, value) in members.0.iter().filter(|(key, _)| !is_withheld(key)) {
            object = object.raw(key, harmless(value, depth + 1).get());
        }
        return object.finish();
    }
    let Some(items) = json::items(value) else { return Json::from(value) };
    // The second item of a `messages` part is metadata without a name.
    let items = items.into_iter().filter(|item| !is_metadata(item));
    let items: Vec<_> = items.map(|item| harmless(item, depth + 1)).collect();
    json::array(items.iter().map(|item| item.get()))
}

fn is_withheld(key: &str) -> bool {
    WITHHELD.contains(&key) || WITHHELD_PREFIXES.iter().any(|prefix| key.starts_with(prefix))
}

fn is_metadata(item: &RawValue) -> bool {
    let members = json::members(item).unwrap_or_default();
    members.0.iter().any(|(key, _)| key.starts_with("langgraph_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_shown_without_what_it_was_asked_with() {
        for (event, data, expected) in [
            (
                "messages",
                r#"[{"content":"hi","id":"m"},{"langgraph_node":"n","x-api-key":"secret"}]"#,
                Some(r#"{"event":"messages","data":[{"content":"hi","id":"m"}]}"#),
            ),
            (
                "debug",
                r#"{"payload":{"config":{"configurable":{"key":"secret"}},"values":{"a":1}}}"#,
                Some(r#"{"event":"debug","data":{"payload":{"values":{"a":1}}}}"#),
            ),
            (
                "on",
                r#"{"metadata":{"langgraph_auth_user":"secret"},"langgraph_auth_user":1,"n":1.50}"#,
                Some(r#"{"event":"on","data":{"n":1.50}}"#),
            ),
            (
                "tasks",
                r#"{"name":"n","error":"ValueError('secret')","result":{}}"#,
                Some(r#"{"event":"tasks","data":{"name":"n","result":{}}}"#),
            ),
            ("odd", "no JSON \"", Some(r#"{"event":"odd","data":"no JSON \""}"#)),
            ("error", r#"{"error":"E","message":"secret"}"#, None),
            ("error|child:t", r#"{"error":"E"}"#, None),
        ] {
            let raw = raw_part(Some(event), data);
            assert_eq!(raw.as_ref().map(|raw| raw.get()), expected);
            assert!(raw.is_none_or(|raw| !raw.get().contains("secret")));
        }
        let deep = format!("{}1{}", "[".repeat(40), "]".repeat(40));
        assert!(raw_part(None, &deep).unwrap().get().contains("null"));
    }
}
