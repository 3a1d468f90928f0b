//! The options of `[emit]`: what viewers are shown of a run.

use serde_json::value::RawValue;

use super::{Content, ContentPart, raw_part};
use crate::json::{self, Json, ObjectWriter, Text, TextBuf};

/// What viewers are shown of a run. The default shows all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option that stands for itself")]
pub struct Emit {
    /// The state.
    pub state: StateEvents,
    /// Snapshots of the conversation.
    pub messages: MessageSnapshots,
    /// Whether tool results are shown with their content.
    pub tool_results: bool,
    /// The most bytes of a tool result; 0 for any.
    pub max_tool_result_bytes: usize,
    /// The most bytes of a value in the state, and of a custom event; 0 for any.
    pub max_event_bytes: usize,
    /// Whether thoughts are shown.
    pub reasoning: bool,
    /// Whether steps are shown.
    pub steps: bool,
    /// Whether the plan and the tools that run are shown as activities.
    pub activities: bool,
    /// How subgraphs and subagents are shown.
    pub subagents: Subagents,
    /// Whether events carry the parts of LangGraph's stream that they were made of.
    pub raw: bool,
}

/// When viewers are sent the state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StateEvents {
    /// A snapshot first, then what changes.
    #[default]
    Delta,
    /// The state that the run begins with, and no change of it.
    Initial,
    /// The state that the run ends with.
    Final,
    /// A snapshot of each state.
    All,
    /// Never.
    None,
}

/// When viewers are sent the conversation whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MessageSnapshots {
    /// Where nothing shorter makes it right.
    #[default]
    WhenNeeded,
    /// At the end of each run too.
    Always,
    /// Never. What only a snapshot can show is then not shown.
    None,
}

/// How subgraphs and subagents are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subagents {
    /// Each for itself.
    #[default]
    Attributed,
    /// As the run's own agent.
    Inline,
    /// Not, but for what they leave in the thread.
    Hidden,
}

/// The key of the marker that replaces a value that is too large. The marker gives the value's size.
pub const TRUNCATED: &str = "threadway:truncated";

// === impl Emit ===

impl Default for Emit {
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
        }
    }
}

impl Emit {
    /// The least in the order of options.
    pub const MIN: Self = Self {
        state: StateEvents::Delta,
        messages: MessageSnapshots::WhenNeeded,
        tool_results: false,
        max_tool_result_bytes: 0,
        max_event_bytes: 0,
        reasoning: false,
        steps: false,
        activities: false,
        subagents: Subagents::Attributed,
        raw: false,
    };

    /// The options that apply to editors.
    ///
    /// ACP has no state and no snapshots, and an editor's plan is made of the state.
    #[must_use]
    pub fn for_editors(self) -> Self {
        let Self { tool_results, max_tool_result_bytes, reasoning, .. } = self;
        Self { tool_results, max_tool_result_bytes, reasoning, ..Self::default() }
    }

    /// The same with the parts of LangGraph's stream, for who looks into a run. Where these options
    /// leave something out, the parts would show it: then these stay as they are.
    #[must_use]
    pub fn inspected(self) -> Self {
        if self == Self::default() { Self { raw: true, ..self } } else { self }
    }

    /// What tells the events of these options from those of others; 0 for the default.
    ///
    /// Two replicas with the same options make the same number.
    pub fn seed(self) -> u32 {
        if self == Self::default() { 0 } else { crc32fast::hash(format!("{self:?}").as_bytes()) }
    }

    /// A part of LangGraph's stream as it is shown; `None` if it is not.
    pub fn raw_part(self, event: Option<&str>, data: &str) -> Option<Json> {
        let raw = self.raw.then(|| raw_part(event, data)).flatten()?;
        Some(self.cut(&raw).unwrap_or(raw))
    }

    /// A value of the state or of an event, as it is shown; `None` if that is the value itself.
    pub(super) fn cut(self, value: &RawValue) -> Option<Json> {
        cut(value, self.max_event_bytes, 0)
    }

    /// A state as it is shown. What is too large is replaced at its key.
    pub(super) fn cut_state(self, state: &Json) -> Json {
        cut_members(state, self.max_event_bytes, 0).unwrap_or_else(|| state.clone())
    }

    /// A tool's result as it is shown; `None` if that is the result itself.
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

/// How many bytes a text has that its viewer reads.
fn decoded_len(text: &Text) -> usize {
    text.decode().len()
}

fn part_len(part: &ContentPart) -> usize {
    match part {
        ContentPart::Text(text) => decoded_len(text),
        ContentPart::Media(media) => media.bytes(),
        ContentPart::Block(json) | ContentPart::Annotations(json) => json.get().len(),
    }
}

/// The beginning of a text, cut between two characters.
fn cut_text(text: &Text, most: usize) -> Text {
    let text = text.decode();
    let end = text.floor_char_boundary(most);
    Text::new(text.get(..end).unwrap_or_default())
}

/// How deep a value that is too large is looked into for what makes it so.
const MAX_DEPTH: usize = 32;

/// The value with what is too large in it replaced; `None` if it is small enough.
fn cut(value: &RawValue, most: usize, depth: usize) -> Option<Json> {
    let bytes = value.get().len();
    if most == 0 || bytes <= most {
        return None;
    }
    // What is small enough without its largest members stays.
    let rest = cut_members(value, most, depth + 1).filter(|rest| rest.get().len() <= most);
    Some(rest.unwrap_or_else(|| {
        let size = ObjectWriter::new().raw("bytes", &bytes.to_string()).finish();
        ObjectWriter::new().raw(TRUNCATED, size.get()).finish()
    }))
}

/// The object with each member cut that is too large; `None` if none is, or if it is no object.
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
pub fn is_truncated(value: &RawValue) -> bool {
    value.get().contains(TRUNCATED)
}
