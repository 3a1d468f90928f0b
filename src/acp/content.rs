//! What messages and tools say, as content blocks.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::strict;
use super::update::{Blob, ContentBlock};
use crate::json::Text;
use crate::langgraph::{Media, Source};
use crate::run::{Content, ContentPart};

/// The scheme of files that have no address: an editor can name them, not open them.
const ATTACHMENT: &str = "attachment:";

/// The blocks of a content, one for each of its parts.
pub(super) fn blocks(content: &Content) -> Vec<ContentBlock<'_>> {
    match content {
        Content::Absent => Vec::new(),
        Content::Text(text) if text.is_empty() => Vec::new(),
        Content::Text(text) => {
            let text = strict::text(&text.to_text()).into_owned();
            vec![ContentBlock::Text { text: Cow::Owned(text) }]
        }
        Content::Parts(parts) => parts.iter().filter_map(block).collect(),
    }
}

fn block(part: &ContentPart) -> Option<ContentBlock<'_>> {
    match part {
        ContentPart::Text(text) if text.is_empty() => None,
        ContentPart::Text(text) => Some(ContentBlock::Text { text: strict::text(text) }),
        ContentPart::Media(media) => Some(media_block(media)),
    }
}

/// The block of an image, a recording, a document.
pub(super) fn media_block(media: &Media) -> ContentBlock<'_> {
    let mime_type = media.mime_type.as_ref().map(strict::text);
    let name = || match &media.filename {
        Some(name) => strict::text(name),
        None => Cow::Owned(Text::new(media.kind)),
    };
    let or = |default: &str| mime_type.clone().unwrap_or_else(|| Cow::Owned(Text::new(default)));
    match (&media.source, media.kind) {
        (Source::Data(data), "image") => {
            ContentBlock::Image { data: strict::text(data), mime_type: or("image/png") }
        }
        (Source::Data(data), "audio") => {
            ContentBlock::Audio { data: strict::text(data), mime_type: or("audio/wav") }
        }
        (Source::Data(data), _) => ContentBlock::Resource {
            resource: Blob {
                uri: Cow::Owned(Text::new(&format!("{ATTACHMENT}{}", name().decode()))),
                mime_type,
                blob: strict::text(data),
            },
        },
        (Source::Url(url), _) => ContentBlock::ResourceLink {
            name: if media.filename.is_some() { name() } else { named_by(url, media.kind) },
            uri: strict::text(url),
            mime_type,
        },
        (Source::File(id), _) => ContentBlock::ResourceLink {
            name: name(),
            uri: Cow::Owned(Text::new(&format!("{ATTACHMENT}{}", id.decode()))),
            mime_type,
        },
    }
}

/// What an address calls its file.
fn named_by(url: &Text, kind: &str) -> Cow<'static, Text> {
    let url = url.decode();
    let path = url.split(['?', '#']).next().unwrap_or_default();
    let path = path.split_once("://").map_or("", |(_, path)| path);
    let last = path.split_once('/').and_then(|(_, path)| path.rsplit('/').next());
    Cow::Owned(Text::new(last.filter(|name| !name.is_empty()).unwrap_or(kind)))
}

/// A number that tells one media block from another, without keeping its bytes.
pub(super) fn fingerprint(media: &Media) -> u64 {
    let mut hasher = DefaultHasher::new();
    media.kind.hash(&mut hasher);
    let (Source::Data(text) | Source::Url(text) | Source::File(text)) = &media.source;
    text.escaped().hash(&mut hasher);
    hasher.finish()
}
