//! The blocks of a message's content, in every provider's form that LangChain lets through.

use std::borrow::Cow;

use serde_json::value::RawValue;

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
    /// An image, a recording, a document.
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

/// A block that is no text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Media {
    /// `image`, `audio`, `video` or `file`.
    pub kind: &'static str,
    /// Where the bytes are.
    pub source: Source,
    /// The media type.
    pub mime_type: Option<Text>,
    /// The name of the file.
    pub filename: Option<Text>,
}

/// Where the bytes of a media block are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// In base64.
    Data(Text),
    /// At an address.
    Url(Text),
    /// With the provider, under an id.
    File(Text),
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
    pub(super) fn push_beside(kwargs: &'a RawValue, blocks: &mut Vec<Self>) {
        let members = json::members(kwargs).unwrap_or_default();
        let has_text = blocks.iter().any(|block| matches!(block, Self::Text(_)));
        let words = |text: Option<Text>| text.filter(|text| !has_text && !text.is_empty());
        blocks.extend(words(members.text("refusal")).map(Self::Text));
        let Some(audio) = members.get("audio") else { return };
        let audio_members = json::members(audio).unwrap_or_default();
        blocks.extend(words(audio_members.text("transcript")).map(Self::Text));
        let data = Text::from_raw(audio).or_else(|| audio_members.text("data"));
        let has_audio =
            blocks.iter().any(|block| matches!(block, Self::Media(media) if media.kind == "audio"));
        if let Some(data) = data.filter(|data| !has_audio && !data.is_empty()) {
            blocks.push(Self::Media(Media {
                kind: "audio",
                source: Source::Data(data),
                mime_type: audio_members.string("format").map(|format| mime("audio", &format)),
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
/// index whatever they are: a summary then holds the sealed form as well. Its ids are passed
/// over, for they stand on the sealed form alone, which comes last.
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

// === impl Media ===

impl Media {
    /// How many bytes its data or address has.
    pub fn bytes(&self) -> usize {
        let (Source::Data(text) | Source::Url(text) | Source::File(text)) = &self.source;
        text.escaped().len()
    }

    fn parse(kind: &str, members: &json::Members<'_>) -> Option<Self> {
        let (kind, default_mime) = match kind {
            "\"image\"" | "\"image_url\"" | "\"input_image\"" => ("image", None),
            "\"audio\"" | "\"input_audio\"" => ("audio", None),
            "\"video\"" => ("video", None),
            "\"file\"" | "\"document\"" => ("file", Some("application/octet-stream")),
            // What a model of OpenAI's Responses API has drawn.
            "\"image_generation_call\"" => return Self::drawn(members),
            // Google's, of any kind.
            "\"media\"" => return Self::google(members),
            "\"inline_data\"" | "\"inlineData\"" => {
                let inner = members.get("inline_data").or_else(|| members.get("inlineData"))?;
                return Self::google(&json::members(inner)?);
            }
            _ => return None,
        };
        let (source, mime_type) = Self::source(members)?;
        Some(Self {
            kind,
            source,
            mime_type: mime_type
                .or_else(|| either(members, "mime_type", "mimeType"))
                .or_else(|| default_mime.map(Text::new)),
            filename: members
                .text("filename")
                .or_else(|| members.get("metadata").and_then(json::members)?.text("filename")),
        })
    }

    fn drawn(members: &json::Members<'_>) -> Option<Self> {
        let source = Source::Data(members.text("result").filter(|data| !data.is_empty())?);
        let mime_type = members.string("output_format").map(|format| mime("image", &format));
        Some(Self { kind: "image", source, mime_type, filename: None })
    }

    fn google(members: &json::Members<'_>) -> Option<Self> {
        let mime_type = either(members, "mime_type", "mimeType");
        let url = || either(members, "file_uri", "fileUri").map(Source::Url);
        let source = members.text("data").map(Source::Data).or_else(url)?;
        let kind = match mime_type.as_ref().map(Text::decode).as_deref() {
            Some(mime) if mime.starts_with("image/") => "image",
            Some(mime) if mime.starts_with("audio/") => "audio",
            Some(mime) if mime.starts_with("video/") => "video",
            Some(_) | None => "file",
        };
        Some(Self { kind, source, mime_type, filename: members.text("filename") })
    }

    /// LangChain's standard forms, old (`source_type`) and new in both languages, and OpenAI's
    /// `image_url`.
    fn source(members: &json::Members<'_>) -> Option<(Source, Option<Text>)> {
        if let Some(url) = members.get("image_url") {
            let url = Text::from_raw(url).or_else(|| json::members(url)?.text("url"))?;
            return Some(Self::from_url(&url));
        }
        // Anthropic's, and OpenAI's of a recording.
        if let Some(source) = members.get("source").and_then(json::members) {
            let is_data = source.string("type").as_deref() == Some("base64");
            let data = source.text("data").filter(|_| is_data).map(Source::Data);
            let file = || source.text("file_id").map(Source::File);
            return match source.text("url") {
                Some(url) => Some(Self::from_url(&url)),
                None => Some((data.or_else(file)?, source.text("media_type"))),
            };
        }
        if let Some(audio) = members.get("input_audio").and_then(json::members) {
            let format = audio.string("format").map(|format| mime("audio", &format));
            return Some((Source::Data(audio.text("data")?), format));
        }
        // `data` is words where the old form says so.
        let is_bytes = || members.get("source_type").is_none_or(|form| form.get() == "\"base64\"");
        let bytes = || members.text("data").filter(|_| is_bytes());
        if let Some(data) = members.text("base64").or_else(bytes) {
            return Some(if data.escaped().starts_with("data:") {
                Self::from_url(&data)
            } else {
                (Source::Data(data), None)
            });
        }
        if let Some(url) = members.text("url") {
            return Some(Self::from_url(&url));
        }
        // OpenAI's form keeps the rest one level down; no form goes deeper.
        let inner = members.get("file").and_then(json::members).unwrap_or_default();
        if let Some(data) = inner.text("file_data") {
            return Some(Self::from_url(&data));
        }
        let id = either(members, "file_id", "fileId").or_else(|| inner.text("file_id"));
        Some((Source::File(id.or_else(|| members.text("id"))?), None))
    }

    /// A `data:` address holds the bytes themselves.
    fn from_url(url: &Text) -> (Source, Option<Text>) {
        let inline = url.decode();
        let parts = inline.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
        match parts {
            Some((mime, data)) => (Source::Data(Text::new(data)), Some(Text::new(mime))),
            None => (Source::Url(url.clone()), None),
        }
    }
}

/// A member under its name in Python or in JavaScript.
fn either(members: &json::Members<'_>, python: &str, javascript: &str) -> Option<Text> {
    members.text(python).or_else(|| members.text(javascript))
}

/// The media type of a format that a provider names alone (`wav`, `png`).
fn mime(kind: &str, format: &str) -> Text {
    Text::new(&format!("{kind}/{format}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_are_read_in_every_providers_form() {
        let png = Some("image/png");
        for (block, kind, source, mime) in [
            (
                r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA"}}"#,
                "image",
                Source::Data(Text::new("AA")),
                png,
            ),
            (
                r#"{"type":"image","source":{"type":"url","url":"http://h/x"}}"#,
                "image",
                Source::Url(Text::new("http://h/x")),
                None,
            ),
            (
                r#"{"type":"input_audio","input_audio":{"data":"AA","format":"wav"}}"#,
                "audio",
                Source::Data(Text::new("AA")),
                Some("audio/wav"),
            ),
            (
                r#"{"type":"image_url","image_url":{"url":"data:image/png;base64,AA"}}"#,
                "image",
                Source::Data(Text::new("AA")),
                png,
            ),
            (
                r#"{"type":"image","base64":"AA","mime_type":"image/png"}"#,
                "image",
                Source::Data(Text::new("AA")),
                png,
            ),
        ] {
            let content = json::raw(format!("[{block}]"));
            let mut blocks = Vec::new();
            Block::push_content(&content, &mut blocks);
            let [Block::Media(media)] = &*blocks else { panic!("{block}: {blocks:?}") };
            assert_eq!((media.kind, &media.source), (kind, &source), "{block}");
            assert_eq!(media.mime_type, mime.map(Text::new), "{block}");
        }
        let text = r#"[{"type":"document","source":{"type":"text","data":"words"}}]"#;
        let content = json::raw(text.to_owned());
        let mut blocks = Vec::new();
        Block::push_content(&content, &mut blocks);
        assert!(matches!(&*blocks, [Block::Other(_)]), "{blocks:?}");
    }
}
