//! The options of `[emit]`: which events of a run its viewers see.

use std::fmt::Debug;

use serde_json::value::RawValue;

use super::{Content, ContentPart, raw_part};
use crate::json::{self, Json, ObjectWriter, Text, TextBuf};

/// Which events of a run its viewers see. By default they see all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option that stands for itself")]
pub struct EmitOptions {
    /// When viewers get the state.
    pub state: StateEvents,
    /// When viewers get the whole conversation.
    pub messages: MessageSnapshots,
    /// Whether tool results keep their content.
    pub tool_results: bool,
    /// The largest tool result in bytes. 0 means no limit.
    pub max_tool_result_bytes: usize,
    /// The largest value of a key of the state, and of a custom event, in bytes. 0 means no limit.
    pub max_event_bytes: usize,
    /// Whether viewers see the model's reasoning.
    pub reasoning: bool,
    /// Whether viewers see steps.
    pub steps: bool,
    /// Whether viewers see the plan and running tools as activities.
    pub activities: bool,
    /// How viewers see subgraphs and subagents.
    pub subagents: Subagents,
    /// Whether events carry the parts of LangGraph's stream that they are made of.
    pub raw: bool,
    /// How viewers see what LangChain's harness adds to a conversation.
    pub harness: Harness,
}

/// When viewers get the state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StateEvents {
    /// A snapshot first, then patches.
    #[default]
    Delta,
    /// The state at the start of the run, and no changes.
    Initial,
    /// The state at the end of the run.
    Final,
    /// A snapshot of every state.
    All,
    /// Never.
    None,
}

/// When viewers get the whole conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MessageSnapshots {
    /// When no shorter event can express a change.
    #[default]
    WhenNeeded,
    /// Also at the end of each run.
    Always,
    /// Never. Viewers do not see changes that only a snapshot can express.
    None,
}

/// How a run becomes events. All other options only remove some of them.
///
/// A run is read once for all viewers with the same rendering.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rendering {
    /// How viewers see what LangChain's harness adds to a conversation.
    pub harness: Harness,
    /// Whether events carry the parts of LangGraph's stream that they are made of.
    pub raw: bool,
}

/// How viewers see subgraphs and subagents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subagents {
    /// Each as an agent of its own.
    #[default]
    Attributed,
    /// As part of the run's own agent.
    Inline,
    /// Not at all. Messages that they leave in the thread are shown.
    Hidden,
}

/// How viewers see what LangChain's harness adds to a conversation: human messages that nobody typed,
/// such as a summary, and the model calls of its own work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Harness {
    /// The messages as notices, and the calls not at all.
    #[default]
    Notice,
    /// As a person's messages, and as the agent's.
    Show,
    /// Not at all. A message of a call that the thread keeps is shown.
    Hide,
}

/// The key of the marker that replaces a value which is too large. Its value gives the size in
/// bytes.
pub(crate) const TRUNCATED: &str = "threadway:truncated";

// === impl EmitOptions ===

impl Default for EmitOptions {
    fn default() -> Self {
        Self {
            state: StateEvents::default(),
            messages: MessageSnapshots::default(),
            tool_results: true,
            max_tool_result_bytes: 0,
            max_event_bytes: 0,
            reasoning: true,
            steps: true,
            activities: true,
            subagents: Subagents::default(),
            raw: false,
            harness: Harness::default(),
        }
    }
}

impl EmitOptions {
    /// The options that apply to editors.
    ///
    /// ACP has no state and no snapshots. An editor's plan is made of the state, so that is not
    /// filtered.
    #[must_use]
    pub fn for_editors(self) -> Self {
        let Self { tool_results, max_tool_result_bytes, reasoning, harness, .. } = self;
        Self { tool_results, max_tool_result_bytes, reasoning, harness, ..Self::default() }
    }

    /// The same options with `raw`, for tools that inspect a run. If the options hide anything,
    /// they stay as they are: raw parts would show it.
    #[must_use]
    pub fn inspected(self) -> Self {
        if self == Self::default() { Self { raw: true, ..self } } else { self }
    }

    /// The options that decide which events are made.
    pub fn rendering(self) -> Rendering {
        Rendering { harness: self.harness, raw: self.raw }
    }

    /// The options that remove events, and the default of the others.
    pub(super) fn hiding(self) -> Self {
        Self { raw: false, harness: Harness::default(), ..self }
    }

    /// A number that differs between sets of options that remove events, and is 0 if they remove
    /// none. Every replica computes the same one.
    pub fn seed(self) -> u32 {
        seed(&self.hiding())
    }

    /// A value as viewers see it. `None` if that is the value itself.
    pub fn cut(self, value: &RawValue) -> Option<Json> {
        cut(value, self.max_event_bytes, 0)
    }

    /// A state as viewers see it. Each key's value is replaced if it is too large.
    pub(super) fn cut_state(self, state: &Json) -> Json {
        cut_members(state, self.max_event_bytes, 0).unwrap_or_else(|| state.clone())
    }

    /// A tool's result as viewers see it. `None` if that is the result itself.
    pub(super) fn cut_result(self, message_id: &str, content: &Content) -> Option<Content> {
        if !self.tool_results {
            let empty = content.is_empty();
            return (!empty).then(|| Content::Text(TextBuf::default()));
        }
        if self.max_tool_result_bytes == 0 {
            return None;
        }
        let mut left = self.max_tool_result_bytes;
        let total = match content {
            Content::Absent => return None,
            Content::Text(text) => decoded_len(&text.to_text()),
            Content::Parts(parts) => parts.iter().map(part_len).sum(),
        };
        if total <= left {
            return None;
        }
        let note = Text::new(&format!(
            "\n[{} of {total} bytes left out by the gateway; message {message_id} of the thread \
             holds all of them]",
            total - left,
        ));
        let parts: &[ContentPart] = match content {
            Content::Absent => return None,
            Content::Text(text) => {
                let mut cut = TextBuf::from(&cut_text(&text.to_text(), left));
                cut.push(&note);
                return Some(Content::Text(cut));
            }
            Content::Parts(parts) => parts,
        };
        let mut shown = Vec::new();
        for part in parts {
            let len = part_len(part);
            if len <= left {
                shown.push(part.clone());
            } else if let ContentPart::Text(text) = part {
                shown.push(ContentPart::Text(cut_text(text, left)));
            }
            left = left.saturating_sub(len);
        }
        shown.push(ContentPart::Text(note));
        Some(Content::Parts(shown.into()))
    }
}

// === impl Rendering ===

impl Rendering {
    /// A number that differs between renderings, and is 0 for the default. Every replica computes
    /// the same one.
    pub fn seed(self) -> u32 {
        seed(&self)
    }

    /// A part of LangGraph's stream, for events that carry it.
    pub fn raw_part(self, event: Option<&str>, data: &str) -> Option<Json> {
        self.raw.then(|| raw_part(event, data)).flatten()
    }
}

fn seed<T: Debug + Default + PartialEq>(options: &T) -> u32 {
    if *options == T::default() { 0 } else { crc32fast::hash(format!("{options:?}").as_bytes()) }
}

/// The length in bytes of the decoded text.
fn decoded_len(text: &Text) -> usize {
    text.decode().len()
}

fn part_len(part: &ContentPart) -> usize {
    match part {
        ContentPart::Text(text) => decoded_len(text),
        ContentPart::Media(media) => media.bytes(),
        ContentPart::Block(json) | ContentPart::Annotations(json) => json.get().len(),
        ContentPart::Notice(notice) => decoded_len(&notice.text),
    }
}

/// The start of a text, cut between two characters.
fn cut_text(text: &Text, most: usize) -> Text {
    let text = text.decode();
    let end = text.floor_char_boundary(most);
    Text::new(text.get(..end).unwrap_or_default())
}

/// How deep a value is searched for the member that makes it too large.
const MAX_DEPTH: usize = 32;

/// The value with its large members replaced. `None` if it is small enough.
fn cut(value: &RawValue, most: usize, depth: usize) -> Option<Json> {
    let bytes = value.get().len();
    if most == 0 || bytes <= most {
        return None;
    }
    // If the rest is small enough without the largest members, it is kept.
    let rest = cut_members(value, most, depth + 1).filter(|rest| rest.get().len() <= most);
    Some(rest.unwrap_or_else(|| {
        let size = ObjectWriter::new().raw("bytes", &bytes.to_string()).finish();
        ObjectWriter::new().raw(TRUNCATED, size.get()).finish()
    }))
}

/// The object with its large members replaced. `None` if it has none, or is no object.
fn cut_members(value: &RawValue, most: usize, depth: usize) -> Option<Json> {
    if most == 0 || value.get().len() <= most || depth > MAX_DEPTH {
        return None;
    }
    let members = json::members(value)?;
    let mut is_cut = false;
    let write = |writer: ObjectWriter, (key, value): &(json::Str<'_>, &RawValue)| match cut(
        value, most, depth,
    ) {
        Some(cut) => {
            is_cut = true;
            writer.raw(key, cut.get())
        }
        None => writer.raw(key, value.get()),
    };
    let object = members.0.iter().fold(ObjectWriter::new(), write).finish();
    is_cut.then_some(object)
}

/// Whether a value is the marker of a value that was too large, or contains one.
fn is_truncated(value: &RawValue) -> bool {
    value.get().contains(TRUNCATED)
}

/// A client's value, with the thread's values in the place of their markers. `None` if the thread
/// has no value in the place of a marker.
///
/// Only members of objects are replaced by markers, so no marker is looked for inside of a list.
pub(crate) fn untruncated(
    value: &RawValue,
    whole: Option<&RawValue>,
    depth: usize,
) -> Option<Json> {
    if !is_truncated(value) {
        return Some(Json::from(value));
    }
    let members = json::members(value)?;
    if let [(key, _)] = &*members.0
        && **key == *TRUNCATED
    {
        return whole.map(Json::from);
    }
    if depth > MAX_DEPTH {
        return None;
    }
    let held = whole.and_then(json::members).unwrap_or_default();
    let mut object = ObjectWriter::new();
    for (key, value) in &members.0 {
        object = object.raw(key, untruncated(value, held.get(key), depth + 1)?.get());
    }
    Some(object.finish())
}
