//! Images, recordings, films and files in AG-UI's form, written and read.

use serde::Serialize;
use serde_json::value::RawValue;

use super::client::Version;
use crate::json::{self, Text};
use crate::langgraph::{Media, MediaKind, MediaSource};
use crate::run;

/// One part of a message's content.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names are the specification's, which defines them")]
pub enum WirePart<'a> {
    Text {
        text: &'a Text,
    },
    Image {
        source: WireSource<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        metadata: Option<WirePartMetadata<'a>>,
    },
    Audio {
        source: WireSource<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        metadata: Option<WirePartMetadata<'a>>,
    },
    Video {
        source: WireSource<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        metadata: Option<WirePartMetadata<'a>>,
    },
    Document {
        source: WireSource<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        metadata: Option<WirePartMetadata<'a>>,
    },
}

/// Where the bytes of a part are.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "the names are the specification's, which defines them")]
pub enum WireSource<'a> {
    Data {
        value: &'a Text,
        mime_type: Text,
    },
    Url {
        value: &'a Text,
        #[serde(skip_serializing_if = "Option::is_none")]
        mime_type: Option<&'a Text>,
    },
    File {
        value: &'a Text,
        #[serde(skip_serializing_if = "Option::is_none")]
        mime_type: Option<&'a Text>,
    },
}

/// The name of a part's file.
#[derive(Debug, Serialize)]
pub struct WirePartMetadata<'a> {
    filename: &'a Text,
}

// === impl WirePart ===

impl<'a> WirePart<'a> {
    /// `None` for a part that the client cannot take.
    pub(super) fn of(part: &'a run::ContentPart, version: Version) -> Option<Self> {
        let media = match part {
            run::ContentPart::Text(text) => return Some(Self::Text { text }),
            run::ContentPart::Media(media) => media,
            // Only attachments hold these, and they become activities.
            run::ContentPart::Block(_)
            | run::ContentPart::Annotations(_)
            | run::ContentPart::Notice(_) => return None,
        };
        if matches!(media.source, MediaSource::File(_)) && version == Version::Legacy {
            return None;
        }
        let source = source_of(media);
        let metadata = media.filename.as_ref().map(|filename| WirePartMetadata { filename });
        Some(match media.kind {
            MediaKind::Image => Self::Image { source, metadata },
            MediaKind::Audio => Self::Audio { source, metadata },
            MediaKind::Video => Self::Video { source, metadata },
            MediaKind::File => Self::Document { source, metadata },
        })
    }
}

/// Where the bytes of media are, in AG-UI's form.
pub(super) fn source_of(media: &Media) -> WireSource<'_> {
    let mime_type = media.mime_type.as_ref();
    match &media.source {
        MediaSource::Data(value) => {
            let default = || Text::new(media.kind.default_mime_type());
            WireSource::Data { value, mime_type: mime_type.cloned().unwrap_or_else(default) }
        }
        MediaSource::Url(value) => WireSource::Url { value, mime_type },
        MediaSource::File(value) => WireSource::File { value, mime_type },
    }
}

// === from the client ===

/// Reads a part that a client sends. `None` for a part that the graph cannot use: AG-UI demands
/// that such a part is skipped and does not fail the run.
pub(super) fn read_part(part: &RawValue) -> Option<run::ContentPart> {
    let members = json::members(part)?;
    let kind = match &*members.string("type")? {
        "text" => return members.text("text").map(run::ContentPart::Text),
        "image" => MediaKind::Image,
        "audio" => MediaKind::Audio,
        "video" => MediaKind::Video,
        "document" => MediaKind::File,
        "binary" => return read_binary(&members),
        _ => return None,
    };
    let source = json::members(members.get("source")?)?;
    let value = source.text("value")?;
    let filename = members.get("metadata").and_then(json::members).and_then(|m| m.text("filename"));
    Some(run::ContentPart::Media(Media {
        kind,
        source: match &*source.string("type")? {
            "data" => MediaSource::Data(value),
            "url" => MediaSource::Url(value),
            "file" => MediaSource::File(value),
            _ => return None,
        },
        mime_type: source.text("mimeType"),
        filename,
    }))
}

/// Reads a `binary` part. The specification has retired it, but older clients still send it.
fn read_binary(members: &json::Members<'_>) -> Option<run::ContentPart> {
    let mime_type = members.text("mimeType")?;
    let kind = MediaKind::of_mime_prefix(mime_type.decode().split('/').next());
    let source = members
        .text("data")
        .map(MediaSource::Data)
        .or_else(|| members.text("url").map(MediaSource::Url))
        .or_else(|| members.text("id").map(MediaSource::File))?;
    let filename = members.text("filename");
    Some(run::ContentPart::Media(Media { kind, source, mime_type: Some(mime_type), filename }))
}
