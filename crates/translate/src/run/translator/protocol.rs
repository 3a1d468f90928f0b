//! The newer streaming protocol, as a join of such a run delivers it.

use std::sync::Arc;

use super::Translator;
use crate::langgraph::{self, Origin, ProtocolEvent};
use crate::run::speech::Source;
use crate::run::{Finish, Id};

impl Translator {
    pub(super) fn on_protocol(&mut self, namespace: &str, event: &ProtocolEvent<'_>) {
        match event {
            // A tool's answer comes whole in `values`; its namespace names a call, not a task.
            ProtocolEvent::MessageStart { role, id } if role != "tool" => {
                let id = self.id(id);
                self.protocol.insert(namespace.to_owned(), id);
            }
            ProtocolEvent::MessageStart { .. } => {
                self.protocol.remove(namespace);
            }
            ProtocolEvent::Repeat => {}
            ProtocolEvent::Block(_)
            | ProtocolEvent::Call(_)
            | ProtocolEvent::MessageFinish { .. } => {
                let Some(id) = self.protocol.get(namespace).map(Arc::clone) else { return };
                let origin = Origin::default();
                if !self.claims(&id, Source::Protocol, &origin) {
                    return;
                }
                let agent = self.steps.enter_subgraph(namespace, None, &mut self.out);
                self.on_protocol_piece(&id, event, agent.as_ref(), &origin);
            }
        }
    }

    pub(super) fn on_lifecycle(&mut self, namespace: &str, lifecycle: &langgraph::Lifecycle<'_>) {
        if namespace.is_empty() {
            return;
        }
        if !lifecycle.is_start {
            return self.steps.leave_subgraph(namespace, &mut self.out);
        }
        if let (Some(call), Some(task)) = (&lifecycle.tool_call, namespace.rsplit('|').next()) {
            let call = self.out.wire_call_id(call);
            self.steps.executes(task, call);
        }
        let agent = lifecycle.agent.as_deref();
        self.steps.enter_subgraph(namespace, agent, &mut self.out);
    }

    pub(super) fn on_protocol_piece(
        &mut self,
        id: &Id,
        event: &ProtocolEvent<'_>,
        agent: Option<&Id>,
        origin: &Origin,
    ) {
        match event {
            ProtocolEvent::Block(blocks) => {
                for block in blocks {
                    self.on_block(id, block, agent, origin);
                }
            }
            ProtocolEvent::Call(chunk) => self.on_call_chunk(id, chunk, agent, origin),
            ProtocolEvent::MessageFinish { usage, metadata } => {
                if let Some(usage) = usage {
                    let usage = self.usage.set_finish(id, usage, metadata.as_ref());
                    self.out.spent(id, usage, agent);
                }
                self.note_finish(metadata.as_ref().and_then(Finish::of), agent);
                self.close_message(id);
            }
            ProtocolEvent::MessageStart { .. } | ProtocolEvent::Repeat => {}
        }
    }
}
