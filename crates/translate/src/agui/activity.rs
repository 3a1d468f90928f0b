//! Activities, as events and as messages of a snapshot. They carry what AG-UI has no other form
//! for.
//!
//! The content of an assistant's message is a string in AG-UI. Its images, files and citations
//! follow it as activity messages of our own types.

use serde::Serialize;

use super::Event;
use super::media::{WireSource, source_of};
use crate::json::{Json, Text};
use crate::langgraph::MediaKind;
use crate::run::{self, ContentPart};

/// The content of an activity.
#[derive(Debug, Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
pub enum ActivityContent<'a> {
    /// An image, a recording, a film or a file, in the form of AG-UI's parts.
    Media {
        /// The message that holds it.
        message_id: &'a str,
        /// Where the bytes are.
        source: WireSource<'a>,
        /// The name of the file.
        #[serde(skip_serializing_if = "Option::is_none")]
        filename: Option<&'a Text>,
    },
    /// The sources of a message's text.
    Annotations {
        /// The message.
        message_id: &'a str,
        /// The provider's annotations or citations, unchanged.
        annotations: &'a Json,
    },
    /// A block of a message that AG-UI has no form for.
    Block {
        /// The message that holds it.
        message_id: &'a str,
        /// The block, unchanged.
        block: &'a Json,
    },
    /// A message that nobody typed.
    Notice {
        /// The feature that has added it.
        source: &'a Text,
        /// Its text.
        text: &'a Text,
    },
    /// Any object.
    Json(&'a Json),
    /// The attachment was deleted.
    Nothing {},
}

/// The activity type and the content of an attachment.
pub(super) fn activity(attachment: &run::Message) -> (&'static str, ActivityContent<'_>) {
    let message_id = attachment.owner().unwrap_or_default();
    match attachment.attached() {
        Some(ContentPart::Media(media)) => {
            let kind = match media.kind {
                MediaKind::Image => "threadway.image",
                MediaKind::Audio => "threadway.audio",
                MediaKind::Video => "threadway.video",
                MediaKind::File => "threadway.file",
            };
            let (source, filename) = (source_of(media), media.filename.as_ref());
            (kind, ActivityContent::Media { message_id, source, filename })
        }
        Some(ContentPart::Annotations(annotations)) => {
            ("threadway.annotations", ActivityContent::Annotations { message_id, annotations })
        }
        Some(ContentPart::Block(block)) => {
            ("threadway.block", ActivityContent::Block { message_id, block })
        }
        Some(ContentPart::Notice(run::HarnessNotice { source, text })) => {
            ("threadway.notice", ActivityContent::Notice { source, text })
        }
        Some(ContentPart::Text(_)) | None => ("threadway.empty", ActivityContent::Nothing {}),
    }
}

/// Emits an activity, or its change.
pub(super) fn emit_activity(
    message_id: &str,
    activity: &run::Activity,
    change: Option<&run::Patch>,
    emit: &mut dyn FnMut(&Event<'_>),
) {
    let activity_type = match activity {
        run::Activity::Tool { .. } => "threadway.tool",
        run::Activity::Plan { .. } => "threadway.plan",
    };
    if let Some(change) = change {
        let patch = change.operations();
        emit(&Event::ActivityDelta { message_id, activity_type, patch });
    } else {
        emit(&Event::ActivitySnapshot {
            message_id,
            activity_type,
            content: ActivityContent::Json(&activity.content()),
            // The default. Clients before 1.0 expect the member.
            replace: Some(true),
            subagent_run_id: None,
        });
    }
}

/// Emits an attachment as an activity.
pub(super) fn emit_attachment(attachment: &run::Message, emit: &mut dyn FnMut(&Event<'_>)) {
    let (activity_type, content) = activity(attachment);
    emit(&Event::ActivitySnapshot {
        message_id: &attachment.id,
        activity_type,
        content,
        // The default. Clients before 1.0 expect the member.
        replace: Some(true),
        subagent_run_id: attachment.agent.as_deref(),
    });
}
