//! Changes to messages that the bridge passes on. Everything that it does not change keeps its
//! bytes.

use serde_json::value::RawValue;
use uuid::Uuid;

use crate::sessions::{EVENT_ID, IS_RESUMED, META};
use threadway_translate::acp::method::Method;
use threadway_translate::acp::rpc::{self, Code, Error, Id};
use threadway_translate::json::{self, Json, Members, ObjectWriter};

/// The object without this member.
pub(super) fn without_member(object: &RawValue, name: &str) -> Json {
    let Members(members) = json::members(object).unwrap_or_default();
    let rest = members.iter().filter(|(key, _)| **key != *name);
    rest.fold(ObjectWriter::new(), |rest, (key, value)| rest.raw(key, value.get())).finish()
}

/// The object with this text as a member.
pub(super) fn with_text(object: &RawValue, name: &str, text: &str) -> Json {
    json::with_member(object, name, &json::raw(serde_json::Value::from(text).to_string()))
}

/// The text of a member. `None` if there is none.
pub(super) fn text(object: &RawValue, name: &str) -> Option<String> {
    Some(json::members(object)?.string(name)?.into_owned())
}

/// A member of a member.
pub(super) fn nested<'a>(object: &'a RawValue, outer: &str, inner: &str) -> Option<&'a RawValue> {
    json::members(json::members(object)?.get(outer)?)?.get(inner)
}

/// The params of a prompt, with the id by which its run is found again.
pub(super) fn with_prompt_id(params: &RawValue, prompt_id: &str) -> Json {
    with_meta(params, ObjectWriter::new().string("promptId", prompt_id))
}

/// The params that load a session, with the id of the event after which it goes on.
pub(super) fn with_event_id(params: &RawValue, event_id: &str) -> Json {
    with_meta(params, ObjectWriter::new().string(EVENT_ID, event_id))
}

fn with_meta(params: &RawValue, ours: ObjectWriter) -> Json {
    let members = json::members(params).unwrap_or_default();
    let empty = Json::empty_object();
    let meta = members.get("_meta").filter(|meta| meta.get().starts_with('{')).unwrap_or(&empty);
    json::with_member(params, "_meta", &json::with_member(meta, META, &ours.finish()))
}

/// The id of a prompt: this bridge's `seed`, and a number that the bridge counts up.
pub(super) fn prompt_id(seed: Uuid, number: u64) -> Uuid {
    let mut bytes = seed.into_bytes();
    // The first of these bytes would share its bits with the UUID's variant.
    for (byte, of_number) in bytes.iter_mut().skip(9).zip(number.to_be_bytes().into_iter().skip(1))
    {
        *byte = of_number;
    }
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

/// The number of the prompt that an update repeats, if this bridge has sent that prompt.
pub(super) fn prompt_number(seed: Uuid, update: &RawValue) -> Option<u64> {
    let members = json::members(update)?;
    let id = members.string("messageId")?;
    if members.string("sessionUpdate")? != "user_message_chunk" {
        return None;
    }
    let id: Uuid = id.parse().ok()?;
    let number = id.into_bytes().into_iter().skip(9);
    let number = number.fold(0, |number, byte| number << 8 | u64::from(byte));
    (prompt_id(seed, number) == id).then_some(number)
}

/// The id of the event that an update was made of.
pub(super) fn event_id(update: &RawValue) -> Option<String> {
    text(nested(update, "_meta", META)?, EVENT_ID)
}

/// Whether an update has nothing but the id of an event.
pub(super) fn is_position(update: &RawValue) -> bool {
    let Members(members) = json::members(update).unwrap_or_default();
    members.iter().all(|(name, _)| matches!(&**name, "sessionUpdate" | "_meta"))
}

/// Whether the session goes on after the event that its load named, by the answer.
pub(super) fn is_resumed(answer: &RawValue) -> bool {
    let ours = nested(answer, "_meta", META).and_then(json::members).unwrap_or_default();
    ours.get(IS_RESUMED).is_some_and(|value| value.get() == "true")
}

/// What a gateway announces in its answer to `initialize`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Announced {
    /// Whether it finds the run of a prompt again.
    pub(super) finds_prompts: bool,
    /// The largest message that it takes, in bytes.
    pub(super) max_message_bytes: Option<usize>,
}

impl Announced {
    pub(super) fn in_answer(introduction: &RawValue) -> Self {
        let capabilities = json::members(introduction).unwrap_or_default();
        let meta = capabilities.get("agentCapabilities").and_then(|all| nested(all, "_meta", META));
        let ours = meta.and_then(json::members).unwrap_or_default();
        let prompt_end = ours.get("promptEnd");
        let max_message_bytes = ours.get("maxMessageBytes");
        Self {
            finds_prompts: prompt_end.is_some_and(|value| value.get().starts_with('{')),
            max_message_bytes: max_message_bytes.and_then(|bytes| bytes.get().parse().ok()),
        }
    }
}

/// Whether an update shows a part of the conversation.
pub(super) fn is_conversation(update: &RawValue) -> bool {
    text(update, "sessionUpdate").is_some_and(|kind| {
        kind.ends_with("_message_chunk") || kind.ends_with("_thought_chunk") || kind == "tool_call"
    })
}

/// The notification that cancels a request.
pub(super) fn cancel_request(id: &Id) -> String {
    let params = ObjectWriter::new().raw("requestId", id.to_json().get()).finish();
    rpc::notification(Method::CancelRequest.name(), &params)
}

/// The notification that stops the prompt of a session.
pub(super) fn cancel_session(session: &str) -> String {
    let params = ObjectWriter::new().string("sessionId", session).finish();
    rpc::notification(Method::CancelPrompt.name(), &params)
}

/// The answer to a request that was cancelled before it was sent.
pub(super) fn cancelled(id: &Id, method: Option<Method>) -> String {
    let result = if method == Some(Method::Prompt) {
        Ok(ObjectWriter::new().string("stopReason", "cancelled").finish())
    } else {
        Err(Error::new(Code::Cancelled, "the request was cancelled"))
    };
    rpc::response(id, &result)
}

/// A frame of the gateway as a line. JSON has line breaks between its tokens only.
pub(super) fn line(frame: &str) -> String {
    let mut line = String::new();
    if frame.contains(['\n', '\r']) {
        json::compact(frame, &mut line);
    } else {
        line.reserve(frame.len() + 1);
        line.push_str(frame.trim());
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Json {
        json::raw(text.to_owned())
    }

    #[test]
    fn a_member_is_replaced_where_it_is_and_the_others_keep_their_bytes() {
        let object = raw(r#"{"a":1.10,"sessionId":"x","b":[1, 2],"sessionId":"y"}"#);
        let changed = with_text(&object, "sessionId", "z\"");
        assert_eq!(changed.get(), r#"{"a":1.10,"sessionId":"z\"","b":[1, 2]}"#);
        assert_eq!(without_member(&object, "sessionId").get(), r#"{"a":1.10,"b":[1, 2]}"#);
        assert_eq!(without_member(&raw("7"), "a").get(), "{}");
        assert_eq!(with_text(&raw("{}"), "a", "b").get(), r#"{"a":"b"}"#);
        assert_eq!(with_text(&raw("7"), "a", "b").get(), r#"{"a":"b"}"#);
    }

    #[test]
    fn the_id_of_a_prompt_is_added_to_what_the_editor_has_in_meta() {
        for (params, expected) in [
            (r#"{"sessionId":"s"}"#, r#"{"sessionId":"s","_meta":{"threadway":{"promptId":"p"}}}"#),
            (
                r#"{"_meta":{"traceparent":"t"},"sessionId":"s"}"#,
                r#"{"_meta":{"traceparent":"t","threadway":{"promptId":"p"}},"sessionId":"s"}"#,
            ),
            (r#"{"_meta":null}"#, r#"{"_meta":{"threadway":{"promptId":"p"}}}"#),
        ] {
            assert_eq!(with_prompt_id(&raw(params), "p").get(), expected);
        }
    }

    #[test]
    fn a_bridge_knows_its_own_prompts() {
        let seed = Uuid::from_u128(0x1234_5678_9abc_def0_1122_3344_5566_7788);
        let of = |seed: Uuid, kind: &str, id: &str| {
            let update = format!(r#"{{"sessionUpdate":"{kind}","messageId":"{id}"}}"#);
            prompt_number(seed, &raw(&update))
        };
        for number in [0, 1, 255, 256, (1 << 56) - 1] {
            let id = prompt_id(seed, number).to_string();
            assert_eq!(of(seed, "user_message_chunk", &id), Some(number));
            assert_eq!(of(seed, "agent_message_chunk", &id), None);
            assert_eq!(of(Uuid::nil(), "user_message_chunk", &id), None);
        }
        assert_eq!(of(seed, "user_message_chunk", "u0"), None);
    }

    #[test]
    fn a_frame_becomes_one_line() {
        assert_eq!(line("{\n \"a\": \"b c\"\r\n}"), "{\"a\":\"b c\"}\n");
        assert_eq!(line(" {\"a\": 1}"), "{\"a\": 1}\n");
    }

    #[test]
    fn a_gateway_announces_what_it_can_do() {
        let announced = |meta: &str| {
            Announced::in_answer(&raw(&format!(r#"{{"agentCapabilities":{{"_meta":{meta}}}}}"#)))
        };
        let expected = Announced { finds_prompts: true, max_message_bytes: Some(7) };
        let meta = r#"{"threadway":{"promptEnd":{},"maxMessageBytes":7}}"#;
        assert_eq!(announced(meta), expected);
        for meta in [
            r#"{"threadway":{"promptEnd":null,"maxMessageBytes":"7"}}"#,
            r#"{"threadway":{"maxMessageBytes":-1}}"#,
            "{}",
            "null",
        ] {
            assert_eq!(announced(meta), Announced::default(), "{meta}");
        }
        assert_eq!(Announced::in_answer(&raw("[]")), Announced::default());
    }
}
