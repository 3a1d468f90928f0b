//! Session cursors: the positions in a conversation at which a client can fork the session.
//!
//! They are unstable in ACP: see <https://agentclientprotocol.com/rfds/session-cursors>.

use std::sync::Arc;

use super::project::{NoticeForms, Projector};
use super::update::{CursorAnchor, CursorPosition, Update};
use crate::run::{Message, RunEvent};

/// The anchors in a conversation, in the order in which a client shows them. The last is that of a
/// cursor at the end.
pub fn anchors(messages: &[Arc<Message>], notice_forms: NoticeForms) -> Vec<CursorAnchor> {
    let mut projector = Projector::new(Arc::default(), "").noticing(notice_forms);
    let mut anchors = Vec::new();
    projector.project(&RunEvent::Messages(messages.into()), &mut |update: &Update<'_>| {
        let anchor = CursorAnchor::of(update);
        if anchor.is_some() && anchor.as_ref() != anchors.last() {
            anchors.extend(anchor);
        }
    });
    anchors
}

// === impl CursorAnchor ===

impl CursorAnchor {
    /// What an update begins or continues. `None` if no cursor can be beside it.
    fn of(update: &Update<'_>) -> Option<Self> {
        let position = CursorPosition::After;
        match update {
            Update::UserMessageChunk { message_id, .. } => {
                Some(Self::UserMessage { message_id: (*message_id).to_owned(), position })
            }
            Update::AgentMessageChunk { message_id, .. } => {
                Some(Self::AgentMessage { message_id: (*message_id)?.to_owned(), position })
            }
            Update::AgentThoughtChunk { message_id, .. } => {
                Some(Self::AgentThought { message_id: (*message_id).to_owned(), position })
            }
            Update::ToolCall(call) => {
                Some(Self::ToolCall { tool_call_id: call.tool_call_id.clone(), position })
            }
            Update::CompactionUpdate { compaction_id, .. } => {
                Some(Self::Compaction { compaction_id: (*compaction_id).to_owned(), position })
            }
            Update::ToolCallUpdate(_)
            | Update::Plan { .. }
            | Update::PlanUpdate { .. }
            | Update::PlanRemoved { .. }
            | Update::AvailableCommandsUpdate { .. }
            | Update::CurrentModeUpdate { .. }
            | Update::ConfigOptionUpdate { .. }
            | Update::SessionInfoUpdate { .. }
            | Update::UsageUpdate { .. }
            | Update::Notice { .. }
            | Update::SubagentUpdate(_)
            | Update::SessionMessage { .. }
            | Update::CursorUpdate { .. }
            | Update::OfChild { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::{Text, TextBuf};
    use crate::run::{Call, CallForm, Content, Role};
    use serde_json::json;

    fn message(id: &str, role: Role, text: &str) -> Message {
        let mut message = Message::new(id.into(), role);
        if !text.is_empty() {
            message.content = Content::Text(TextBuf::from(&Text::from_escaped(text)));
        }
        message
    }

    fn last(messages: Vec<Message>) -> serde_json::Value {
        let messages: Vec<_> = messages.into_iter().map(Arc::new).collect();
        let anchors = anchors(&messages, NoticeForms::default());
        serde_json::to_value(anchors.last()).unwrap()
    }

    #[test]
    fn a_cursor_follows_the_last_thing_that_a_client_shows() {
        let asked = || message("h", Role::User, "hi");
        assert_eq!(
            last(vec![asked()]),
            json!({"type": "user_message", "messageId": "h", "position": "after"})
        );
        assert_eq!(
            last(vec![asked(), message("a", Role::Assistant, "hello")]),
            json!({"type": "agent_message", "messageId": "a", "position": "after"})
        );
        assert_eq!(
            last(vec![asked(), message("t", Role::Reasoning, "hm")]),
            json!({"type": "agent_thought", "messageId": "t", "position": "after"})
        );
        let mut calls = message("a", Role::Assistant, "I look.");
        let args = TextBuf::from(&Text::from_escaped("{}"));
        calls.calls.push(Call { id: "c".into(), name: "look".into(), args, form: CallForm::Valid });
        let mut result = message("r", Role::Tool, "seen");
        result.call_id = Some("c".into());
        assert_eq!(
            last(vec![asked(), calls, result, message("s", Role::System, "be kind")]),
            json!({"type": "tool_call", "toolCallId": "c", "position": "after"})
        );
        assert_eq!(last(Vec::new()), json!(null));
    }
}
