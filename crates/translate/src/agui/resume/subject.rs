//! What open questions are about.

use crate::json;
use crate::langgraph::ThreadState;
use crate::run::{self, Ask, Interrupt};

/// The subject of an open question: a call, or all calls of a tool.
#[derive(Debug)]
pub(in crate::agui) enum Subject {
    Call(String),
    Tool(String),
}

pub(in crate::agui) fn subjects(thread: &ThreadState<'_>) -> Vec<Subject> {
    let mut subjects = Vec::new();
    for interrupt in thread.interrupts.iter().map(Interrupt::of_langgraph) {
        match &interrupt.ask {
            Ask::Approval { actions, .. } => {
                subjects.extend(actions.iter().map(|action| match &action.call_id {
                    Some(id) => Subject::Call(id.to_string()),
                    None => Subject::Tool(action.name.decode().into_owned()),
                }));
            }
            Ask::Answer { value, .. } => {
                let members = json::members(run::asked(value)).unwrap_or_default();
                let id = members.string("toolCallId").or_else(|| members.string("tool_call_id"));
                subjects.extend(id.map(|id| Subject::Call(id.into_owned())));
            }
            Ask::Breakpoint => {}
        }
    }
    subjects
}

// === impl Subject ===

impl Subject {
    /// Whether the question is about the call of this id, to this tool.
    pub(in crate::agui) fn is_about(&self, call_id: &str, tool: &str) -> bool {
        match self {
            Self::Call(id) => *id == *call_id,
            Self::Tool(name) => *name == *tool,
        }
    }
}
