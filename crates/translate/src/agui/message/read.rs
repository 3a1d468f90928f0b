//! Messages that clients send along.

use std::sync::Arc;

use serde_json::value::RawValue;

use crate::agui::client::Version;
use crate::agui::media::read_part;
use crate::json::{self, Text, TextBuf};
use crate::langgraph::{Media, MediaSource};
use crate::run;

/// Reads a message that a client sends along.
///
/// `None` for activities and for roles that only the client uses. An activity that belongs to a
/// message is made again from that message.
pub(in crate::agui) fn read(members: &json::Members<'_>) -> Option<run::Message> {
    let role = match &*members.string("role")? {
        "user" => run::Role::User,
        "assistant" => run::Role::Assistant,
        "tool" => run::Role::Tool,
        "system" => run::Role::System,
        "developer" => run::Role::Developer,
        "reasoning" => run::Role::Reasoning,
        _ => return None,
    };
    let mut message = run::Message::new(run::Id::from(&*members.string("id")?), role);
    message.name = members.text("name");
    message.content = members.get("content").map_or(run::Content::Absent, read_content);
    message.sealed = members.text("encryptedValue");
    message.error = members.text("error");
    message.call_id = members.string("toolCallId").map(|id| run::Id::from(&*id));
    let calls = members.get("toolCalls").and_then(json::items).unwrap_or_default();
    message.calls = calls.into_iter().filter_map(read_call).collect();
    Some(message)
}

fn read_call(call: &RawValue) -> Option<run::Call> {
    let members = json::members(call)?;
    let function = json::members(members.get("function")?)?;
    Some(run::Call {
        id: run::Id::from(&*members.string("id")?),
        name: run::Id::from(&*function.string("name")?),
        args: function.text("arguments").map(|args| TextBuf::from(&args)).unwrap_or_default(),
        form: run::CallForm::Valid,
    })
}

fn read_content(content: &RawValue) -> run::Content {
    if let Some(text) = Text::from_raw(content) {
        return run::Content::Text(TextBuf::from(&text));
    }
    let Some(items) = json::items(content) else { return run::Content::Absent };
    joined(items.into_iter().filter_map(read_part).collect())
}

/// The content that a client holds after this one was sent to it.
pub(in crate::agui) fn as_shown(content: &run::Content, version: Version) -> run::Content {
    let run::Content::Parts(all) = content else { return content.clone() };
    let shown = all.iter().filter_map(|part| match part {
        run::ContentPart::Text(_) => Some(part.clone()),
        run::ContentPart::Block(_)
        | run::ContentPart::Annotations(_)
        | run::ContentPart::Notice(_) => None,
        run::ContentPart::Media(media) => match &media.source {
            MediaSource::File(_) if version == Version::Legacy => None,
            MediaSource::Data(_) if media.mime_type.is_none() => {
                let mime_type = Some(Text::new(media.kind.default_mime_type()));
                Some(run::ContentPart::Media(Media { mime_type, ..media.clone() }))
            }
            MediaSource::Data(_) | MediaSource::Url(_) | MediaSource::File(_) => Some(part.clone()),
        },
    });
    joined(shown.collect())
}

/// Joins parts if all of them are text, as LangGraph's text blocks are joined for clients.
fn joined(parts: Arc<[run::ContentPart]>) -> run::Content {
    let is_text = parts.iter().all(|part| matches!(part, run::ContentPart::Text(_)));
    let content = run::Content::Parts(parts);
    if is_text { run::Content::Text(TextBuf::from(&content.text())) } else { content }
}
