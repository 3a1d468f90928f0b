//! Activities: what AG-UI has no other place for, as events and as messages of a snapshot.
//!
//! An assistant's message on this wire is a string. Its images, files and citations are activity
//! messages of our own types, which follow it.

use serde::Serialize;

use super::message::{PartSource, part_source};
use crate::json::{Json, Text};
use crate::run::{self, ContentPart};

/// What an activity shows.
#[derive(Debug, Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
pub enum ActivityContent<'a> {
    /// An image, a recording, a film, a file of a message, in the form of AG-UI's parts.
    Media {
        /// The message that it belongs to.
        message_id: &'a str,
        /// Where the bytes are.
        source: PartSource<'a>,
        /// The name of the file.
        #[serde(skip_serializing_if = "Option::is_none")]
        filename: Option<&'a Text>,
    },
    /// Where the text of a message comes from.
    Annotations {
        /// The message.
        message_id: &'a str,
        /// The provider's annotations or citations, each as it is.
        annotations: &'a Json,
    },
    /// A block of a message that AG-UI has no form for.
    Block {
        /// The message that it belongs to.
        message_id: &'a str,
        /// The block, as it is.
        block: &'a Json,
    },
    /// Any object.
    Json(&'a Json),
    /// Nothing: what was attached is gone.
    Nothing {},
}

/// The type and the content of the activity that an attachment is.
pub(super) fn activity(attachment: &run::Message) -> (&'static str, ActivityContent<'_>) {
    let message_id = attachment.owner().unwrap_or_default();
    match attachment.attached() {
        Some(ContentPart::Media(media)) => {
            let kind = match media.kind {
                "image" => "threadway.image",
                "audio" => "threadway.audio",
                "video" => "threadway.video",
                _ => "threadway.file",
            };
            let (source, filename) = (part_source(media), media.filename.as_ref());
            (kind, ActivityContent::Media { message_id, source, filename })
        }
        Some(ContentPart::Annotations(annotations)) => {
            ("threadway.annotations", ActivityContent::Annotations { message_id, annotations })
        }
        Some(ContentPart::Block(block)) => {
            ("threadway.block", ActivityContent::Block { message_id, block })
        }
        Some(ContentPart::Text(_)) | None => ("threadway.empty", ActivityContent::Nothing {}),
    }
}
