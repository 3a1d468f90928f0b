//! The blocks of a message's content, in every provider's form that LangChain lets through.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::media::{Media, MediaKind, MediaSource};
use crate::json::{self, Text, TextBuf};

/// The index of all reasoning that stands beside the content: LangChain joins it under one key.
const BESIDE: &str = "kwargs";

/// One block.
#[derive(Debug)]
pub enum Block<'a> {
    /// Text.
    Text(Text),
    /// What the model thought, or the sealed form of it.
    Reasoning(Reasoning<'a>),
    /// An image, a recording, a film or a file.
    Media(Media),
    /// Where the text before it comes from: a list of annotations or citations, raw.
    Annotations(&'a RawValue),
    /// A tool call, which the message holds a second time in a form of its own.
    Call,
    /// A block of a kind that we do not know, raw.
    Other(&'a RawValue),
}

/// A piece of reasoning.
#[derive(Clone, Debug, Default)]
pub struct Reasoning<'a> {
    /// The provider's own id (`rs_..`).
    pub id: Option<Cow<'a, str>>,
    /// Which block of the message, as the provider counts; raw, a number or a string.
    pub index: Option<&'a str>,
    /// Which part of the block (a summary has several), as the provider counts.
    pub part: Option<u64>,
    /// The text.
    pub text: Option<Text>,
    /// The sealed form, or the signature, for the provider to have back.
    pub sealed: Option<Text>,
}

// === impl Block ===

impl<'a> Block<'a> {
    /// Reads a message's content: a string, or a list of strings and blocks.
    pub(super) fn push_content(content: &'a RawValue, blocks: &mut Vec<Self>) {
        if let Some(text) = Text::from_raw(content) {
            if !text.is_empty() {
                blocks.push(Self::Text(text));
            }
            return;
        }
        for item in json::items(content).unwrap_or_default() {
            Self::push_block(item, blocks);
        }
    }

    /// The reasoning that some providers keep in `additional_kwargs`. It is one thought, whatever
    /// is said between its pieces: LangChain joins it under one key.
    ///
    /// One text stands under several keys where a provider sends it twice: `OpenRouter`'s under
    /// `reasoning_content` and in `reasoning_details`. The longest is taken, of equals the first.
    /// LangChain joins each key for itself, so that what is taken of the chunks and what is taken
    /// of the whole message are the same text.
    pub(super) fn of_kwargs(kwargs: &'a RawValue) -> Vec<Self> {
        let members = json::members(kwargs).unwrap_or_default();
        let piece = |text| Reasoning { text: Some(text), ..Reasoning::default() };
        let of_key = |key| members.text(key).filter(|text| !text.is_empty()).map(piece);
        let (details, seals) = members.get("reasoning_details").map(details).unwrap_or_default();
        let mut said = Vec::new();
        for told in [
            Vec::from_iter(of_key("reasoning_content")),
            Vec::from_iter(of_key("reasoning")),
            details,
        ] {
            if length(&told) > length(&said) {
                said = told;
            }
        }
        let mut blocks: Vec<_> = said.into_iter().map(Self::Reasoning).collect();
        if let Some(reasoning) = members.get("reasoning").and_then(json::members) {
            push_summary(&reasoning, &mut blocks);
        }
        blocks.extend(seals.into_iter().map(Self::Reasoning));
        for block in &mut blocks {
            if let Self::Reasoning(piece) = block {
                piece.index = Some(BESIDE);
            }
        }
        blocks
    }

    /// What OpenAI's chat models, and Google's that speak, keep in `additional_kwargs` and not in
    /// the content: the words of a refusal, and a recording with the words that it says.
    pub(super) fn push_additional_kwargs(kwargs: &'a RawValue, blocks: &mut Vec<Self>) {
        let members = json::members(kwargs).unwrap_or_default();
        let has_text = blocks.iter().any(|block| matches!(block, Self::Text(_)));
        let words = |text: Option<Text>| text.filter(|text| !has_text && !text.is_empty());
        blocks.extend(words(members.text("refusal")).map(Self::Text));
        let Some(audio) = members.get("audio") else { return };
        let audio_members = json::members(audio).unwrap_or_default();
        blocks.extend(words(audio_members.text("transcript")).map(Self::Text));
        let data = Text::from_raw(audio).or_else(|| audio_members.text("data"));
        let has_audio = blocks
            .iter()
            .any(|block| matches!(block, Self::Media(media) if media.kind == MediaKind::Audio));
        if let Some(data) = data.filter(|data| !has_audio && !data.is_empty()) {
            blocks.push(Self::Media(Media {
                kind: MediaKind::Audio,
                source: MediaSource::Data(data),
                mime_type: audio_members
                    .string("format")
                    .map(|format| MediaKind::Audio.mime_type_of_format(&format)),
                filename: None,
            }));
        }
    }

    fn push_block(item: &'a RawValue, blocks: &mut Vec<Self>) {
        if let Some(text) = Text::from_raw(item) {
            blocks.push(Self::Text(text));
            return;
        }
        let Some(members) = json::members(item) else { return blocks.push(Self::Other(item)) };
        let block = match members.get("type").map_or("", RawValue::get) {
            "\"text\"" | "\"output_text\"" | "\"text_delta\"" | "\"text-plain\"" => {
                blocks.push(members.text("text").map_or(Self::Other(item), Self::Text));
                let lists = ["annotations", "citations"].map(|name| members.get(name));
                let is_list = |list: &&RawValue| list.get().starts_with('[') && list.get() != "[]";
                blocks.extend(lists.into_iter().flatten().filter(is_list).map(Self::Annotations));
                return;
            }
            "\"refusal\"" => members.text("refusal").map_or(Self::Other(item), Self::Text),
            "\"reasoning\"" if members.get("summary").is_some() => {
                return push_summary(&members, blocks);
            }
            "\"reasoning\"" => reasoning(&members, "reasoning", "encrypted_content"),
            "\"thinking\"" => thinking(&members),
            "\"redacted_thinking\"" => reasoning(&members, "", "data"),
            "\"reasoning_content\"" => {
                let inner = members.get("reasoning_content").and_then(json::members);
                let mut inner = inner.unwrap_or_default();
                let is_outside = |key: &str| matches!(key, "index" | "redactedContent");
                inner.0.extend(members.0.into_iter().filter(|(key, _)| is_outside(key)));
                let sealed = ["signature", "redacted_content", "redactedContent"];
                let sealed = sealed.into_iter().find(|key| inner.get(key).is_some());
                reasoning(&inner, "text", sealed.unwrap_or_default())
            }
            "\"tool_use\""
            | "\"tool_call\""
            | "\"tool_call_chunk\""
            | "\"invalid_tool_call\""
            | "\"input_json_delta\""
            | "\"function_call\""
            | "\"functionCall\""
            | "\"custom_tool_call\"" => Self::Call,
            kind => Media::parse(kind, &members).map_or(Self::Other(item), Self::Media),
        };
        blocks.push(block);
    }
}

fn reasoning<'a>(members: &json::Members<'a>, text: &str, sealed: &str) -> Block<'a> {
    Block::Reasoning(Reasoning {
        id: members.string("id").filter(|id| !id.is_empty()),
        index: members.get("index").map(RawValue::get),
        part: None,
        text: members.text(text).filter(|text| !text.is_empty()),
        sealed: members
            .text(sealed)
            // The JavaScript package for Bedrock keeps it in the standard form under its own name.
            .or_else(|| members.text("signature"))
            // LangChain's standard form keeps what it has no field for in `extras`.
            .or_else(|| members.get("extras").and_then(json::members)?.text("signature"))
            .filter(|sealed| !sealed.is_empty()),
    })
}

/// A block of Anthropic's or Google's; Mistral's holds a list of texts instead of one.
fn thinking<'a>(members: &json::Members<'a>) -> Block<'a> {
    let mut block = reasoning(members, "thinking", "signature");
    if let Block::Reasoning(piece) = &mut block
        && let Some(items) = members.get("thinking").and_then(json::items)
    {
        let mut text = TextBuf::default();
        for item in items.into_iter().filter_map(json::members) {
            if let Some(more) = item.text("text") {
                text.push(&more);
            }
        }
        piece.text = Some(text.to_text()).filter(|text| !text.is_empty());
    }
    block
}

/// `OpenRouter`'s list: its texts, and its sealed forms.
///
/// An item is read by its members and not by its type. Python's LangChain merges items of one
/// index whatever they are: a summary then holds the sealed form as well. Its ids are ignored,
/// because only the sealed form, which comes last, has them.
fn details(raw: &RawValue) -> (Vec<Reasoning<'_>>, Vec<Reasoning<'_>>) {
    let (mut texts, mut seals) = (Vec::new(), Vec::new());
    for item in json::items(raw).unwrap_or_default().into_iter().filter_map(json::members) {
        let part = item.number("index");
        for (key, value) in &item.0 {
            let text = || Text::from_raw(value).filter(|text| !text.is_empty());
            match &**key {
                "text" | "summary" => {
                    texts.extend(text().map(|text| Reasoning {
                        part,
                        text: Some(text),
                        ..Reasoning::default()
                    }));
                }
                "signature" | "data" => {
                    seals.extend(
                        text().map(|text| Reasoning { sealed: Some(text), ..Reasoning::default() }),
                    );
                }
                _ => {}
            }
        }
    }
    (texts, seals)
}

/// The length of what pieces say, in bytes as they came.
fn length(pieces: &[Reasoning<'_>]) -> usize {
    pieces.iter().filter_map(|piece| piece.text.as_ref()).map(|text| text.escaped().len()).sum()
}

/// A block of summary parts, each a piece of its own.
fn push_summary<'a>(members: &json::Members<'a>, blocks: &mut Vec<Block<'a>>) {
    let parts = members.get("summary").and_then(json::items).unwrap_or_default();
    let whole = |part, text, sealed| {
        Block::Reasoning(Reasoning {
            id: members.string("id").filter(|id| !id.is_empty()),
            index: members.get("index").map(RawValue::get),
            part,
            text,
            sealed,
        })
    };
    let sealed = members.text("encrypted_content").filter(|sealed| !sealed.is_empty());
    if parts.is_empty() || sealed.is_some() {
        // The carrier of the id, or of the sealed form.
        blocks.push(whole(None, None, sealed));
    }
    for (at, part) in parts.into_iter().filter_map(json::members).enumerate() {
        let at = part.number("index").or_else(|| u64::try_from(at).ok());
        blocks.push(whole(at, part.text("text").filter(|text| !text.is_empty()), None));
    }
}

// === impl Reasoning ===

impl Reasoning<'_> {
    /// Whether it stands beside the content.
    pub fn is_beside(&self) -> bool {
        self.index == Some(BESIDE)
    }
}
