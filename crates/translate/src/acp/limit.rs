//! How much of an update is sent, so that every client can read its line.
//!
//! The text of a message is sent whole, in several updates if need be. Of a call and of a file that
//! is too large, a part is sent; a note in brackets marks each cut.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::update::{
    ContentBlock, EmbeddedFile, FileContents, Plan, PlanEntry, ToolCall, ToolContent, Update,
};
use crate::json::{self, Json, ObjectWriter, Text};

/// The longest line with an update, in bytes. The official client ends a connection at 32 MiB.
pub const MAX_LINE_BYTES: usize = 8 * 1024 * 1024;

/// The largest update, in bytes of its texts. The rest of a line is what encloses them.
const MAX_UPDATE_BYTES: usize = 7 * 1024 * 1024;

/// The longest text of an update, and of a call the longest result, side of a diff and arguments, in
/// bytes as they are sent.
const MAX_TEXT_BYTES: usize = 1024 * 1024;

/// The longest argument of a call whose arguments are too long, in bytes as it is sent.
const MAX_ARGUMENT_BYTES: usize = 64 * 1024;

/// Sends an update, or what every client can read of it.
pub(super) fn fitted(update: &Update<'_>, emit: &mut dyn FnMut(&Update<'_>)) {
    if size(update) <= MAX_TEXT_BYTES {
        return emit(update);
    }
    match update {
        Update::UserMessageChunk { content, message_id } => {
            pieces(content, |content| emit(&Update::UserMessageChunk { content, message_id }));
        }
        Update::AgentMessageChunk { content, message_id } => {
            let message_id = *message_id;
            pieces(content, |content| emit(&Update::AgentMessageChunk { content, message_id }));
        }
        Update::AgentThoughtChunk { content, message_id } => {
            pieces(content, |content| emit(&Update::AgentThoughtChunk { content, message_id }));
        }
        Update::ToolCall(known) => emit(&Update::ToolCall(call(known.clone()))),
        Update::ToolCallUpdate(known) => emit(&Update::ToolCallUpdate(call(known.clone()))),
        Update::CompactionUpdate { compaction_id, status, summary } => {
            let (compaction_id, status, summary) = (*compaction_id, *status, blocks(summary));
            emit(&Update::CompactionUpdate { compaction_id, status, summary });
        }
        Update::SessionMessage { message_id, sender_session_id, recipient_session_id, content } => {
            emit(&Update::SessionMessage {
                message_id,
                sender_session_id,
                recipient_session_id,
                content: blocks(content),
            });
        }
        Update::OfChild { session_id, update } => {
            fitted(update, &mut |update| emit(&Update::OfChild { session_id, update }));
        }
        Update::Notice { severity, title, description } => {
            let severity = *severity;
            let (title, description) = (
                cut(title, MAX_ARGUMENT_BYTES),
                description.map(|description| cut(description, MAX_TEXT_BYTES)),
            );
            let description = description.as_deref();
            emit(&Update::Notice { severity, title: &title, description });
        }
        Update::Plan { entries } => emit(&Update::Plan { entries: &plan(entries) }),
        Update::PlanUpdate { plan: Plan::Items { plan_id, entries } } => {
            emit(&Update::PlanUpdate { plan: Plan::Items { plan_id, entries: &plan(entries) } });
        }
        Update::PlanRemoved { .. }
        | Update::SubagentUpdate(_)
        | Update::AvailableCommandsUpdate { .. }
        | Update::CurrentModeUpdate { .. }
        | Update::ConfigOptionUpdate { .. }
        | Update::SessionInfoUpdate { .. }
        | Update::UsageUpdate { .. }
        | Update::CursorUpdate { .. } => emit(update),
    }
}

fn blocks<'a>(content: &[ContentBlock<'a>]) -> Vec<ContentBlock<'a>> {
    let mut room = MAX_UPDATE_BYTES;
    content.iter().map(|part| block(part.clone(), &mut room)).collect()
}

fn plan(entries: &[PlanEntry]) -> Vec<PlanEntry> {
    let mut room = MAX_UPDATE_BYTES;
    let entry = |entry: &PlanEntry| {
        let content = cut_text(&entry.content, MAX_ARGUMENT_BYTES);
        room = room.checked_sub(content.escaped().len())?;
        Some(PlanEntry { content, ..entry.clone() })
    };
    entries.iter().map_while(entry).collect()
}

/// The parts of a call that every client can read.
pub(super) fn call(call: ToolCall<'_>) -> ToolCall<'_> {
    if size_of_call(&call) <= MAX_TEXT_BYTES {
        return call;
    }
    let mut room = MAX_UPDATE_BYTES;
    let raw_input = call.raw_input.map(|input| arguments(&input));
    let raw_output = call.raw_output.filter(|output| output.get().len() <= MAX_TEXT_BYTES);
    for json in [&raw_input, &raw_output].into_iter().flatten() {
        room = room.saturating_sub(json.get().len());
    }
    let content = call.content.map(|parts| {
        let count = parts.len();
        let fits = |part| {
            let part = match part {
                ToolContent::Content { content } => {
                    ToolContent::Content { content: block(content, &mut room) }
                }
                ToolContent::Diff { path, old_text, new_text } => ToolContent::Diff {
                    path,
                    old_text: old_text.map(|text| cut_text(&text, MAX_TEXT_BYTES)),
                    new_text: cut_text(&new_text, MAX_TEXT_BYTES),
                },
                ToolContent::Session { .. } => part,
            };
            if let ToolContent::Diff { .. } = &part {
                room = room.checked_sub(size_of_content(&part))?;
            }
            (room > 0).then_some(part)
        };
        let mut shown: Vec<_> = parts.into_iter().map_while(fits).collect();
        if shown.len() < count {
            let note = format!("[cut: {} more parts are not shown]", count - shown.len());
            shown.push(ToolContent::Content { content: ContentBlock::text(&note) });
        }
        shown
    });
    ToolCall { content, raw_input, raw_output, ..call }
}

/// The first bytes of a text, with a note if there are more.
pub(super) fn cut(text: &str, max_bytes: usize) -> Cow<'_, str> {
    match text.get(..fitting_len(text, max_bytes)) {
        Some(shown) if shown.len() < text.len() => {
            let (some, all) = (shown.len(), text.len());
            Cow::Owned(format!("{shown}\n\n[cut: the first {some} of {all} bytes are shown]"))
        }
        _ => Cow::Borrowed(text),
    }
}

fn cut_text(text: &Text, max_bytes: usize) -> Text {
    if text.escaped().len() <= max_bytes {
        return text.clone();
    }
    let decoded = text.decode();
    // Other escapes may have made it long.
    Text::new(&cut(&decoded, max_bytes))
}

/// How many bytes of a text take at most this many in JSON.
fn fitting_len(text: &str, max_bytes: usize) -> usize {
    let mut room = max_bytes;
    let end = text.char_indices().find(|(_, character)| {
        let size = match character {
            '"' | '\\' => 2,
            '\u{0}'..='\u{1f}' => 6,
            _ => character.len_utf8(),
        };
        match room.checked_sub(size) {
            Some(left) => {
                room = left;
                false
            }
            None => true,
        }
    });
    end.map_or(text.len(), |(at, _)| at)
}

/// A message's block as one or several.
fn pieces(content: &ContentBlock<'_>, mut emit: impl FnMut(ContentBlock<'_>)) {
    let ContentBlock::Text { text } = content else {
        return emit(block(content.clone(), &mut { MAX_UPDATE_BYTES }));
    };
    let decoded = text.decode();
    let mut rest = &*decoded;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(fitting_len(rest, MAX_TEXT_BYTES));
        emit(ContentBlock::text(piece));
        rest = after;
    }
}

/// A block that takes no more than the room that is left. What cannot be cut is named instead.
fn block<'a>(content: ContentBlock<'a>, room: &mut usize) -> ContentBlock<'a> {
    let size = size_of_block(&content);
    let text_limit = MAX_TEXT_BYTES.min(*room);
    let content = if size <= text_limit {
        content
    } else if let Some(part) = part(&content, text_limit) {
        part
    } else if size <= *room {
        content
    } else {
        let what = match content {
            ContentBlock::Image { .. } => "an image",
            ContentBlock::Audio { .. } => "a recording",
            ContentBlock::Resource { .. } => "a file",
            ContentBlock::ResourceLink { .. } => "a link",
            ContentBlock::Text { .. } => "a text",
        };
        ContentBlock::text(&format!("[cut: {what} of {size} bytes is not shown]"))
    };
    *room = room.saturating_sub(size_of_block(&content));
    content
}

/// The beginning of a block. `None` for a block that is useless without its end.
fn part<'a>(content: &ContentBlock<'a>, max_bytes: usize) -> Option<ContentBlock<'a>> {
    match content {
        ContentBlock::Text { text } => {
            Some(ContentBlock::Text { text: Cow::Owned(cut_text(text, max_bytes)) })
        }
        ContentBlock::Resource { resource: EmbeddedFile { uri, mime_type, contents } } => {
            let FileContents::Text(text) = contents else { return None };
            let contents = FileContents::Text(Cow::Owned(cut_text(text, max_bytes)));
            let (uri, mime_type) = (uri.clone(), mime_type.clone());
            let is_short = uri.escaped().len() <= MAX_ARGUMENT_BYTES;
            is_short.then_some(ContentBlock::Resource {
                resource: EmbeddedFile { uri, mime_type, contents },
            })
        }
        ContentBlock::Image { .. }
        | ContentBlock::Audio { .. }
        | ContentBlock::ResourceLink { .. } => None,
    }
}

/// Arguments of which each is short, and all together too.
fn arguments(input: &RawValue) -> Json {
    if input.get().len() <= MAX_TEXT_BYTES {
        return Json::from(input);
    }
    let shortened = |value: &RawValue| match Text::from_raw(value) {
        _ if value.get().len() <= MAX_ARGUMENT_BYTES => Json::from(value),
        Some(text) => Json::from(cut_text(&text, MAX_ARGUMENT_BYTES)),
        None => {
            let bytes = value.get().len();
            Json::from(Text::new(&format!("[cut: {bytes} bytes of JSON are not shown]")))
        }
    };
    let Some(members) = json::members(input) else { return shortened(input) };
    let (mut shown, mut room) = (ObjectWriter::new(), MAX_TEXT_BYTES);
    for (at, (name, value)) in members.0.iter().enumerate() {
        let value = shortened(value);
        // A name may be all escapes.
        let Some(left) = room.checked_sub(name.len() * 6 + value.get().len()) else {
            let note = format!("{} more members are not shown", members.0.len() - at);
            return shown.string("[cut]", &note).finish();
        };
        room = left;
        shown = shown.raw(name, value.get());
    }
    shown.finish()
}

/// The bytes of an update's texts.
fn size(update: &Update<'_>) -> usize {
    match update {
        Update::UserMessageChunk { content, .. }
        | Update::AgentMessageChunk { content, .. }
        | Update::AgentThoughtChunk { content, .. } => size_of_block(content),
        Update::ToolCall(call) | Update::ToolCallUpdate(call) => size_of_call(call),
        Update::CompactionUpdate { summary, .. } => summary.iter().map(size_of_block).sum(),
        Update::Notice { title, description, .. } => {
            // A character may be an escape of six bytes.
            6 * (title.len() + description.map_or(0, str::len))
        }
        Update::SessionMessage { content, .. } => content.iter().map(size_of_block).sum(),
        Update::OfChild { update, .. } => size(update),
        Update::Plan { entries } | Update::PlanUpdate { plan: Plan::Items { entries, .. } } => {
            entries.iter().map(|entry| entry.content.escaped().len()).sum()
        }
        Update::PlanRemoved { .. }
        | Update::SubagentUpdate(_)
        | Update::AvailableCommandsUpdate { .. }
        | Update::CurrentModeUpdate { .. }
        | Update::ConfigOptionUpdate { .. }
        | Update::SessionInfoUpdate { .. }
        | Update::UsageUpdate { .. }
        | Update::CursorUpdate { .. } => 0,
    }
}

fn size_of_call(call: &ToolCall<'_>) -> usize {
    let of_json = |json: &Option<Json>| json.as_ref().map_or(0, |json| json.get().len());
    let content = call.content.iter().flatten().map(size_of_content);
    content.sum::<usize>() + of_json(&call.raw_input) + of_json(&call.raw_output)
}

fn size_of_content(content: &ToolContent<'_>) -> usize {
    match content {
        ToolContent::Content { content } => size_of_block(content),
        ToolContent::Session { .. } => 0,
        ToolContent::Diff { path, old_text, new_text } => {
            let old = old_text.as_ref().map_or(0, |text| text.escaped().len());
            path.len() + old + new_text.escaped().len()
        }
    }
}

fn size_of_block(block: &ContentBlock<'_>) -> usize {
    let of = |text: &Text| text.escaped().len();
    match block {
        ContentBlock::Text { text } => of(text),
        ContentBlock::Image { data, mime_type } | ContentBlock::Audio { data, mime_type } => {
            of(data) + of(mime_type)
        }
        ContentBlock::ResourceLink { name, uri, mime_type } => {
            of(name) + of(uri) + mime_type.as_deref().map_or(0, of)
        }
        ContentBlock::Resource { resource: EmbeddedFile { uri, mime_type, contents } } => {
            let (FileContents::Text(text) | FileContents::Blob(text)) = contents;
            of(uri) + of(text) + mime_type.as_deref().map_or(0, of)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acp::notification;
    use crate::acp::update::{CompactionStatus, NoticeSeverity, PlanStatus, Priority};

    /// Texts whose escaped forms are longer than they are, and one that is not.
    const UNITS: [&str; 4] = ["a", "é", "\u{1}", "\"\\\n"];

    fn lines(update: &Update<'_>) -> Vec<serde_json::Value> {
        let mut out = Vec::new();
        notification("s", update, &mut out);
        let lines: Vec<_> = out.split_inclusive(|byte| *byte == b'\n').collect();
        assert!(!lines.is_empty());
        for line in &lines {
            assert!(line.len() <= MAX_LINE_BYTES, "{}", line.len());
        }
        let update = |line: &&[u8]| {
            let line: serde_json::Value = serde_json::from_slice(line).unwrap();
            line["params"]["update"].clone()
        };
        lines.iter().map(update).collect()
    }

    fn long(unit: &str, bytes: usize) -> Text {
        Text::new(&unit.repeat(bytes / Text::new(unit).escaped().len()))
    }

    #[test]
    fn a_message_is_sent_whole_in_lines_that_can_be_read() {
        for unit in UNITS {
            let text = long(unit, 9 * 1024 * 1024);
            let content = ContentBlock::Text { text: Cow::Borrowed(&text) };
            let update = Update::AgentMessageChunk { content, message_id: Some("m") };
            let lines = lines(&update);
            assert!(lines.len() > 8);
            let pieces = lines.iter().map(|line| {
                assert_eq!(line["messageId"], "m");
                line["content"]["text"].as_str().unwrap()
            });
            assert_eq!(pieces.collect::<String>(), text.decode());
        }
    }

    #[test]
    fn what_cannot_be_split_is_cut_with_a_note() {
        for unit in ["é", "\u{1}"] {
            let text = long(unit, MAX_LINE_BYTES);
            let text = || Cow::Borrowed(&text);
            let file = |contents| ContentBlock::Resource {
                resource: EmbeddedFile {
                    uri: Cow::Owned(Text::new("u:x")),
                    mime_type: None,
                    contents,
                },
            };
            let blocks = [
                ContentBlock::Text { text: text() },
                ContentBlock::Image { data: text(), mime_type: Cow::Owned(Text::new("image/png")) },
                file(FileContents::Text(text())),
                file(FileContents::Blob(text())),
                ContentBlock::ResourceLink { name: text(), uri: text(), mime_type: None },
            ];
            let raw_input = ObjectWriter::new()
                .string("path", "/a")
                .text("content", &text())
                .raw("list", &format!("[{}1]", "1,".repeat(500_000)))
                .raw(&text().decode(), "1")
                .string("last", "")
                .finish();
            let diff = || ToolContent::Diff {
                path: "/a".to_owned(),
                old_text: Some(text().into_owned()),
                new_text: text().into_owned(),
            };
            let mut content: Vec<_> =
                blocks.iter().cloned().map(|content| ToolContent::Content { content }).collect();
            content.extend([diff(), diff(), diff(), diff()]);
            let call = ToolCall {
                content: Some(content),
                raw_output: Some(raw_input.clone()),
                raw_input: Some(raw_input),
                ..ToolCall::of("c")
            };
            let shown = lines(&Update::ToolCallUpdate(call));
            let [shown] = &*shown else { panic!("{} lines", shown.len()) };
            assert_eq!(shown["rawInput"]["path"], "/a");
            assert!(shown["rawInput"]["content"].as_str().unwrap().ends_with(" bytes are shown]"));
            let list = shown["rawInput"]["list"].as_str().unwrap();
            assert_eq!(list, "[cut: 1000003 bytes of JSON are not shown]");
            assert_eq!(shown["rawInput"]["[cut]"], "2 more members are not shown");
            assert!(shown["rawOutput"].is_null());
            let text = shown["content"][0]["content"]["text"].as_str().unwrap();
            assert!(text.ends_with(" bytes are shown]"));
            let image = shown["content"][1]["content"]["text"].as_str().unwrap();
            assert!(image.starts_with("[cut: an image of "), "{image}");
            let note = shown["content"].as_array().unwrap().last().unwrap();
            let note = note["content"]["text"].as_str().unwrap();
            assert!(note.ends_with(" more parts are not shown]"), "{note}");
            for content in blocks {
                lines(&Update::UserMessageChunk { content, message_id: "m" });
            }
        }
    }

    #[test]
    fn other_updates_are_cut_too() {
        let text = "\u{1}".repeat(2 * 1024 * 1024);
        let (title, description) = (&*text, Some(&*text));
        lines(&Update::Notice { severity: NoticeSeverity::Info, title, description });
        let summary = vec![ContentBlock::text(&text), ContentBlock::text(&text)];
        let status = CompactionStatus::Completed;
        lines(&Update::CompactionUpdate { compaction_id: "c", status, summary });
        let entry = PlanEntry {
            content: long("\u{1}", 2 * MAX_ARGUMENT_BYTES),
            priority: Priority::Medium,
            status: PlanStatus::Pending,
        };
        lines(&Update::Plan { entries: &vec![entry; 150] });
        let options = json::raw(format!("[\"{}\"]", "x".repeat(MAX_LINE_BYTES)));
        let left_out = lines(&Update::ConfigOptionUpdate { config_options: &options });
        assert!(left_out[0]["content"]["text"].as_str().unwrap().contains("[cut: an update of "));
    }

    #[test]
    fn what_fits_is_sent_as_it_is() {
        let text = long("a", MAX_TEXT_BYTES);
        let part = || ToolContent::Content {
            content: ContentBlock::Text { text: Cow::Owned(text.clone()) },
        };
        let call = ToolCall { content: Some(vec![part()]), ..ToolCall::of("c") };
        let shown = lines(&Update::ToolCall(call));
        assert_eq!(shown[0]["content"][0]["content"]["text"], *text.decode());
        let image: Cow<'_, Text> = Cow::Owned(long("A", 6 * 1024 * 1024));
        let mime_type = Cow::Owned(Text::new("image/png"));
        let content = ContentBlock::Image { data: image.clone(), mime_type };
        let shown = lines(&Update::UserMessageChunk { content, message_id: "m" });
        assert_eq!(shown[0]["content"]["data"], *image.decode());
    }
}
