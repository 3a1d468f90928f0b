//! Messages and tool results as content blocks.

use std::borrow::Cow;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::file::{self, TextPart};
use super::strict;
use super::update::{ContentBlock, EmbeddedFile, FileContents};
use crate::json::{self, Json, Text};
use crate::langgraph::{Media, MediaKind, MediaSource};
use crate::run::{Content, ContentPart, HarnessNotice};

/// The scheme of files without an address. An editor can show their names, but not open them.
const ATTACHMENT: &str = "attachment:";

/// How many bytes of JSON are shown of a block that ACP has no form for.
const MAX_SHOWN_BYTES: usize = 4096;

/// How many sources of a text are shown.
const MAX_SOURCES: usize = 100;

/// The blocks of a content.
pub(super) fn blocks(content: &Content) -> Vec<ContentBlock<'_>> {
    match content {
        Content::Absent => Vec::new(),
        Content::Text(text) if text.is_empty() => Vec::new(),
        Content::Text(text) => {
            let text = strict::text(&text.to_text()).into_owned();
            vec![ContentBlock::Text { text: Cow::Owned(text) }]
        }
        Content::Parts(parts) => {
            numbered(parts).flat_map(|(number, part)| part_blocks(part, number)).collect()
        }
    }
}

/// Parts, each with the number of those before it that are files without a name.
pub(super) fn numbered(parts: &[ContentPart]) -> impl Iterator<Item = (usize, &ContentPart)> {
    let is_nameless = |part: &ContentPart| {
        matches!(part, ContentPart::Media(media) if media.filename.is_none()
            && matches!(media.source, MediaSource::Data(_)))
    };
    let mut nameless = 0;
    parts.iter().map(move |part| {
        let number = nameless;
        nameless += usize::from(is_nameless(part));
        (number, part)
    })
}

/// The blocks of a part. A block that ACP has no form for becomes text, and the sources of a text
/// become links: editors do not show `_meta`. `number` distinguishes the files of a message that have
/// no name.
pub(super) fn part_blocks(part: &ContentPart, number: usize) -> Vec<ContentBlock<'_>> {
    match part {
        ContentPart::Text(text) if text.is_empty() => Vec::new(),
        ContentPart::Text(text) => vec![ContentBlock::Text { text: strict::text(text) }],
        ContentPart::Media(media) => vec![media_block(media, number)],
        ContentPart::Block(block) => vec![shown(block)],
        ContentPart::Annotations(list) => sources(list),
        // The projector sends it in a form of its own.
        ContentPart::Notice(_) => Vec::new(),
    }
}

/// The first [`MAX_SHOWN_BYTES`] of a JSON value as a code block, and how much was left out.
fn shown(value: &Json) -> ContentBlock<'static> {
    let all = value.get();
    let mut end = all.len().min(MAX_SHOWN_BYTES);
    while !all.is_char_boundary(end) {
        end -= 1;
    }
    let (head, rest) = all.split_at(end);
    let more = match rest.len() {
        0 => String::new(),
        rest => format!("\n… {rest} bytes more"),
    };
    ContentBlock::text(&format!("\n```json\n{head}{more}\n```\n"))
}

/// The sources of a text, at most [`MAX_SOURCES`]: a link for each address, and the titles of the
/// others as one text. A list without addresses and titles is shown as JSON.
fn sources(list: &Json) -> Vec<ContentBlock<'static>> {
    let mut known = HashSet::new();
    let (mut blocks, mut titles) = (Vec::new(), Vec::new());
    for annotation in json::items(list).unwrap_or_default() {
        let outer = json::members(annotation).unwrap_or_default();
        // LangChain wraps annotations that it does not know.
        let members = outer.get("value").and_then(json::members).unwrap_or(outer);
        let title = ["title", "document_title", "filename", "file_id"];
        let title = title.into_iter().find_map(|name| members.string(name));
        let title = title.filter(|title| !title.trim().is_empty());
        let url = members.text("url").filter(|url| !url.is_empty());
        if known.len() >= MAX_SOURCES {
            break;
        }
        match (url, title) {
            (Some(url), title) => {
                if known.insert(url.escaped().to_owned()) {
                    let name = title.map(|title| Cow::Owned(Text::new(&title)));
                    let name = name.unwrap_or_else(|| named_by(&url, "source"));
                    let uri = Cow::Owned(strict::text(&url).into_owned());
                    blocks.push(ContentBlock::ResourceLink { name, uri, mime_type: None });
                }
            }
            (None, Some(title)) => {
                if known.insert(title.to_string()) {
                    titles.push(title.into_owned());
                }
            }
            (None, None) => {}
        }
    }
    if !titles.is_empty() {
        blocks.push(ContentBlock::text(&format!("\n[{}]\n", titles.join("; "))));
    }
    if blocks.is_empty() {
        blocks.push(shown(list));
    }
    blocks
}

/// The block of an image, a recording, a film or a file.
fn media_block(media: &Media, number: usize) -> ContentBlock<'_> {
    let mime_type = media.mime_type.as_ref().map(strict::text);
    let name = || match &media.filename {
        Some(name) => strict::text(name),
        None => Cow::Owned(Text::new(media.kind.as_str())),
    };
    let required_mime_type = || {
        let default = || Cow::Owned(Text::new(media.kind.default_mime_type()));
        mime_type.clone().unwrap_or_else(default)
    };
    match (&media.source, media.kind) {
        (MediaSource::Data(data), MediaKind::Image) => {
            ContentBlock::Image { data: strict::text(data), mime_type: required_mime_type() }
        }
        (MediaSource::Data(data), MediaKind::Audio) => {
            ContentBlock::Audio { data: strict::text(data), mime_type: required_mime_type() }
        }
        (MediaSource::Data(data), MediaKind::Video | MediaKind::File) => ContentBlock::Resource {
            resource: EmbeddedFile {
                uri: Cow::Owned(Text::new(&match (&media.filename, number) {
                    (None, 1..) => format!("{ATTACHMENT}{}-{}", media.kind.as_str(), number + 1),
                    _ => format!("{ATTACHMENT}{}", name().decode()),
                })),
                mime_type,
                contents: FileContents::Blob(strict::text(data)),
            },
        },
        (MediaSource::Url(url), _) => ContentBlock::ResourceLink {
            name: if media.filename.is_some() {
                name()
            } else {
                named_by(url, media.kind.as_str())
            },
            uri: strict::text(url),
            mime_type,
        },
        (MediaSource::File(id), _) => ContentBlock::ResourceLink {
            name: name(),
            uri: Cow::Owned(Text::new(&format!("{ATTACHMENT}{}", id.decode()))),
            mime_type,
        },
    }
}

/// The blocks of a piece of a person's text: attached files are resources.
pub(super) fn person_blocks(text: Cow<'_, Text>) -> Vec<ContentBlock<'_>> {
    let decoded = text.decode();
    let parts = file::split(&decoded);
    if let [] | [TextPart::Text(_)] = *parts {
        drop(parts);
        drop(decoded);
        return vec![ContentBlock::Text { text }];
    }
    let block = |part| match part {
        TextPart::Text(text) => ContentBlock::text(text),
        TextPart::File { uri, text } => ContentBlock::Resource {
            resource: EmbeddedFile {
                uri: Cow::Owned(strict::text(&uri).into_owned()),
                mime_type: None,
                contents: FileContents::Text(Cow::Owned(Text::new(&text))),
            },
        },
    };
    parts.into_iter().map(block).collect()
}

/// The file name in an address, or else the kind.
fn named_by(url: &Text, kind: &str) -> Cow<'static, Text> {
    let url = url.decode();
    let path = url.split(['?', '#']).next().unwrap_or_default();
    let path = path.split_once("://").map_or("", |(_, path)| path);
    let last = path.split_once('/').and_then(|(_, path)| path.rsplit('/').next());
    Cow::Owned(Text::new(last.filter(|name| !name.is_empty()).unwrap_or(kind)))
}

/// A hash of a part, to recognise it without keeping its bytes.
pub(super) fn fingerprint(part: &ContentPart) -> u64 {
    let mut hasher = DefaultHasher::new();
    match part {
        ContentPart::Text(text) => text.escaped().hash(&mut hasher),
        ContentPart::Media(media) => {
            media.kind.hash(&mut hasher);
            media.source.text().escaped().hash(&mut hasher);
        }
        ContentPart::Block(json) | ContentPart::Annotations(json) => {
            json.get().hash(&mut hasher);
        }
        ContentPart::Notice(notice) => return fingerprint_of_notice(notice),
    }
    hasher.finish()
}

/// The same for a notice.
pub(super) fn fingerprint_of_notice(notice: &HarnessNotice) -> u64 {
    let mut hasher = DefaultHasher::new();
    (notice.source.escaped(), notice.text.escaped()).hash(&mut hasher);
    hasher.finish()
}
