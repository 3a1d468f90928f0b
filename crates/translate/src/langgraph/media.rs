//! Images, recordings, films and files in messages: read from every provider's form, and written in
//! LangChain's standard form.
//!
//! AG-UI and ACP read and write their own forms of [`Media`].

use crate::json::{self, Json, ObjectWriter, Text};

/// An image, a recording, a film or a file in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Media {
    /// What the bytes are.
    pub kind: MediaKind,
    /// Where the bytes are.
    pub source: MediaSource,
    /// The media type, if the block names one.
    pub mime_type: Option<Text>,
    /// The name of the file, if the block names one.
    pub filename: Option<Text>,
}

/// What the bytes of a media block are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MediaKind {
    /// An image.
    Image,
    /// A recording.
    Audio,
    /// A film.
    Video,
    /// Any other file.
    File,
}

/// Where the bytes of a media block are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MediaSource {
    /// In the block, as base64.
    Data(Text),
    /// At an address.
    Url(Text),
    /// At the model's provider, under an id.
    File(Text),
}

// === impl MediaKind ===

impl MediaKind {
    /// The `type` of LangChain's standard block.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Audio => "audio",
            Self::Video => "video",
            Self::File => "file",
        }
    }

    /// The kind of the first half of a media type (`image` of `image/png`). A file if there is
    /// none.
    pub fn of_mime_prefix(prefix: Option<&str>) -> Self {
        match prefix {
            Some("image") => Self::Image,
            Some("audio") => Self::Audio,
            Some("video") => Self::Video,
            Some(_) | None => Self::File,
        }
    }

    /// The media type that is assumed where a protocol demands one and the block names none.
    pub fn default_mime_type(self) -> &'static str {
        match self {
            Self::Image => "image/png",
            Self::Audio => "audio/wav",
            Self::Video => "video/mp4",
            Self::File => "application/octet-stream",
        }
    }

    /// The media type of a format that a provider names alone (`wav`, `png`).
    pub(super) fn mime_type_of_format(self, format: &str) -> Text {
        Text::new(&format!("{}/{format}", self.as_str()))
    }
}

// === impl MediaSource ===

impl MediaSource {
    /// The data, the address or the id.
    pub fn text(&self) -> &Text {
        let (Self::Data(text) | Self::Url(text) | Self::File(text)) = self;
        text
    }
}

// === impl Media ===

impl Media {
    /// How many bytes its data, address or id has.
    pub fn bytes(&self) -> usize {
        self.source.text().escaped().len()
    }

    /// The media as LangChain's standard block.
    pub fn to_langchain(&self) -> Json {
        let field = match self.source {
            MediaSource::Data(_) => "base64",
            MediaSource::Url(_) => "url",
            MediaSource::File(_) => "file_id",
        };
        ObjectWriter::new()
            .string("type", self.kind.as_str())
            .text(field, self.source.text())
            .optional("mime_type", self.mime_type.as_ref())
            .optional("filename", self.filename.as_ref())
            .finish()
    }

    /// Reads a block. `kind` is its `type`, with quotes; `None` if the block holds no media.
    pub(super) fn parse(kind: &str, members: &json::Members<'_>) -> Option<Self> {
        let (kind, default_mime) = match kind {
            "\"image\"" | "\"image_url\"" | "\"input_image\"" => (MediaKind::Image, None),
            "\"audio\"" | "\"input_audio\"" => (MediaKind::Audio, None),
            "\"video\"" => (MediaKind::Video, None),
            "\"file\"" | "\"document\"" => {
                (MediaKind::File, Some(MediaKind::File.default_mime_type()))
            }
            // An image that a model of OpenAI's Responses API has made.
            "\"image_generation_call\"" => return Self::generated(members),
            // Google's block of any kind.
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
            filename: filename(members),
        })
    }

    fn generated(members: &json::Members<'_>) -> Option<Self> {
        let source = MediaSource::Data(members.text("result").filter(|data| !data.is_empty())?);
        let mime_type = members
            .string("output_format")
            .map(|format| MediaKind::Image.mime_type_of_format(&format));
        Some(Self { kind: MediaKind::Image, source, mime_type, filename: None })
    }

    fn google(members: &json::Members<'_>) -> Option<Self> {
        let mime_type = either(members, "mime_type", "mimeType");
        let url = || either(members, "file_uri", "fileUri").map(MediaSource::Url);
        let source = members.text("data").map(MediaSource::Data).or_else(url)?;
        let decoded = mime_type.as_ref().map(Text::decode).unwrap_or_default();
        let kind = MediaKind::of_mime_prefix(decoded.split_once('/').map(|(prefix, _)| prefix));
        Some(Self { kind, source, mime_type, filename: filename(members) })
    }

    /// LangChain's standard forms, old (`source_type`) and new in both languages, and OpenAI's
    /// `image_url`.
    fn source(members: &json::Members<'_>) -> Option<(MediaSource, Option<Text>)> {
        if let Some(url) = members.get("image_url") {
            let url = Text::from_raw(url).or_else(|| json::members(url)?.text("url"))?;
            return Some(Self::from_url(&url));
        }
        // Anthropic's, and OpenAI's of a recording.
        if let Some(source) = members.get("source").and_then(json::members) {
            let is_data = source.string("type").as_deref() == Some("base64");
            let data = source.text("data").filter(|_| is_data).map(MediaSource::Data);
            let file = || source.text("file_id").map(MediaSource::File);
            return match source.text("url") {
                Some(url) => Some(Self::from_url(&url)),
                None => Some((data.or_else(file)?, source.text("media_type"))),
            };
        }
        if let Some(audio) = members.get("input_audio").and_then(json::members) {
            let format =
                audio.string("format").map(|format| MediaKind::Audio.mime_type_of_format(&format));
            return Some((MediaSource::Data(audio.text("data")?), format));
        }
        // `data` is words where the old form says so.
        let is_bytes = || members.get("source_type").is_none_or(|form| form.get() == "\"base64\"");
        let bytes = || members.text("data").filter(|_| is_bytes());
        if let Some(data) = members.text("base64").or_else(bytes) {
            return Some(if data.escaped().starts_with("data:") {
                Self::from_url(&data)
            } else {
                (MediaSource::Data(data), None)
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
        Some((MediaSource::File(id.or_else(|| members.text("id"))?), None))
    }

    /// A `data:` address holds the bytes themselves.
    fn from_url(url: &Text) -> (MediaSource, Option<Text>) {
        let inline = url.decode();
        let parts = inline.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
        match parts {
            Some((mime, data)) => (MediaSource::Data(Text::new(data)), Some(Text::new(mime))),
            None => (MediaSource::Url(url.clone()), None),
        }
    }
}

/// The name of a block's file, where LangChain reads it. OpenAI's form has it one level down.
fn filename(members: &json::Members<'_>) -> Option<Text> {
    let inner = |key| members.get(key).and_then(json::members)?.text("filename");
    let own = members.text("filename");
    let mut names = [own].into_iter().chain(["extras", "metadata", "file"].map(inner)).flatten();
    names.find(|name| !name.is_empty())
}

/// A member under its name in Python or in JavaScript.
fn either(members: &json::Members<'_>, python: &str, javascript: &str) -> Option<Text> {
    members.text(python).or_else(|| members.text(javascript))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::langgraph::Block;

    #[test]
    fn media_are_read_in_every_providers_form() {
        let png = Some("image/png");
        for (block, kind, source, mime) in [
            (
                r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA"}}"#,
                MediaKind::Image,
                MediaSource::Data(Text::new("AA")),
                png,
            ),
            (
                r#"{"type":"image","source":{"type":"url","url":"http://h/x"}}"#,
                MediaKind::Image,
                MediaSource::Url(Text::new("http://h/x")),
                None,
            ),
            (
                r#"{"type":"input_audio","input_audio":{"data":"AA","format":"wav"}}"#,
                MediaKind::Audio,
                MediaSource::Data(Text::new("AA")),
                Some("audio/wav"),
            ),
            (
                r#"{"type":"image_url","image_url":{"url":"data:image/png;base64,AA"}}"#,
                MediaKind::Image,
                MediaSource::Data(Text::new("AA")),
                png,
            ),
            (
                r#"{"type":"image","base64":"AA","mime_type":"image/png"}"#,
                MediaKind::Image,
                MediaSource::Data(Text::new("AA")),
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
