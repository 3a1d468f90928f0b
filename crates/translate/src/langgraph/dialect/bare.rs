//! The newer streaming protocol of the JavaScript server: what an envelope would contain, alone.
//!
//! A message's namespace ends with the task of its node. The server marks every node as it marks a
//! subgraph, so its `lifecycle` parts are not read.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::dialect_event::DialectEvent;
use super::protocol::{MessageEvent, Messages};
use super::{Context, Dialect, RawPart, Wrapping};
use crate::langgraph::Part;

/// The machine of the newer protocol without envelopes.
#[derive(Debug, Default)]
pub(super) struct Bare {
    messages: Messages,
}

/// A step in the life of a message.
#[derive(Debug)]
pub(super) struct BareEvent<'a> {
    /// The namespace with the task of the node.
    task: Cow<'a, str>,
    event: Box<MessageEvent<'a>>,
}

// === impl Bare ===

impl Dialect for Bare {
    type Part<'a> = BareEvent<'a>;

    // A join replays the run from its beginning.
    const STARTS_MESSAGES: bool = true;
    const MARKS_SUBGRAPHS: bool = false;

    fn read<'a>(raw: &RawPart<'_, 'a>) -> Option<Part<'a>> {
        // A tuple is a list.
        if raw.wrapping == Wrapping::Opened || raw.mode != "messages" || !raw.data.starts_with('{')
        {
            return None;
        }
        let task = raw.namespace.clone();
        let graph = task.rsplit_once('|').map_or("", |(graph, _)| graph).to_owned();
        let inner = RawPart { namespace: Cow::Owned(graph), ..*raw };
        let event = serde_json::from_str::<&RawValue>(raw.data).ok().and_then(MessageEvent::parse);
        Some(inner.said(event.map(|event| BareEvent { task, event: Box::new(event) }), "messages"))
    }

    fn translate(
        &mut self,
        part: &BareEvent<'_>,
        context: Context<'_>,
        emit: &mut dyn FnMut(DialectEvent<'_, '_>),
    ) {
        self.messages.translate(&part.event, &part.task, context.namespace, emit);
    }

    fn forget(&mut self) {
        self.messages.clear();
    }
}
