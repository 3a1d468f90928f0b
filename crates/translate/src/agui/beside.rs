//! What a request brings beside its answers: changed state and new messages, as an update of the
//! state that LangGraph writes before what was answered goes on.
//!
//! LangGraph appends what it is sent to the conversation at once. While calls of the last message
//! wait for their results, nothing but results can stand there.

use serde_json::value::RawValue;

use super::input::InputMessage;
use super::resume::ResumeError;
use super::turn::{Asking, Echoes, Known, messages_json};
use crate::json::{self, Json};
use crate::langgraph::{InputKeys, Message, MessageType, ThreadState, WholeCall};
use crate::run::{self, Ask, Interrupt, Role};

/// A call without a result.
struct Waiting {
    id: String,
    tool: String,
}

/// The update of the state; `None` if the request brings nothing.
pub(super) fn update(
    asking: &Asking<'_>,
    thread: Option<&ThreadState<'_>>,
    keys: &InputKeys,
) -> Result<Option<Json>, ResumeError> {
    let input = asking.input;
    let update = asking.changes(&Echoes::of(thread), keys);
    let messages = messages(asking, thread)?;
    let update = if messages.is_empty() {
        update
    } else {
        update.raw(asking.messages_key.as_str(), messages_json(input, &messages).get())
    };
    Ok((!update.is_empty()).then(|| update.finish()))
}

/// Whether a request brings messages that would go up.
pub(super) fn has_messages(
    asking: &Asking<'_>,
    thread: Option<&ThreadState<'_>>,
) -> Result<bool, ResumeError> {
    Ok(!messages(asking, thread)?.is_empty())
}

/// The new messages that go up. A thread without a conversation takes none: all that the client
/// holds would look new.
///
/// The result of a call that an open question asks about is the client's own note of its answer,
/// as CopilotKit keeps it, and so is one that no call waits for: they would answer a call twice.
fn messages<'a>(
    asking: &'a Asking<'_>,
    thread: Option<&ThreadState<'_>>,
) -> Result<Vec<&'a InputMessage>, ResumeError> {
    let Some(thread) = thread else { return Ok(Vec::new()) };
    let values = thread.values.as_ref();
    let Some(list) = values.and_then(|values| values.messages.as_deref()) else {
        return Ok(Vec::new());
    };
    let mut waiting = waiting(list);
    let asked = asked(thread);
    let is_asked = |call: &Waiting| asked.iter().any(|asked| asked.is_about(call));
    let new: Vec<_> = asking.behind_known(&Known::of(values)).collect();
    let (results, said): (Vec<_>, Vec<_>) =
        new.into_iter().partition(|sent| sent.message.role == Role::Tool);
    let mut going_up = Vec::new();
    for result in results {
        let makes_calls =
            |id: &str| asking.input.messages.iter().any(|sent| *sent.message.id == *id);
        let wire = result.message.call_id.as_deref().unwrap_or_default();
        let id = run::langgraph_call_id(wire, makes_calls);
        let found = waiting.iter().position(|call| call.id == id && !is_asked(call));
        if let Some(at) = found {
            waiting.swap_remove(at);
            going_up.push(result);
        }
    }
    if !said.is_empty() && !waiting.is_empty() {
        return Err(ResumeError::MessagesBeside);
    }
    going_up.extend(said);
    Ok(going_up)
}

/// The calls without a result of the last message that makes any.
fn waiting(list: &[&RawValue]) -> Vec<Waiting> {
    let mut answered = Vec::new();
    for message in list.iter().rev().filter_map(|raw| Message::parse(raw)) {
        if message.kind() == MessageType::Tool {
            answered.extend(message.tool_call_id());
            continue;
        }
        let calls = message.calls();
        if !calls.is_empty() {
            let waits = |id: &str| !answered.iter().any(|answered| *answered == id);
            let calls = calls.into_iter().filter(|call| waits(&call.id));
            let read = |call: WholeCall<'_>| Waiting {
                id: call.id.into_owned(),
                tool: call.name.into_owned(),
            };
            return calls.map(read).collect();
        }
    }
    Vec::new()
}

/// What an open question asks about.
enum Asked {
    Call(String),
    Tool(String),
}

fn asked(thread: &ThreadState<'_>) -> Vec<Asked> {
    let mut asked = Vec::new();
    for interrupt in thread.interrupts.iter().map(Interrupt::of_langgraph) {
        match &interrupt.ask {
            Ask::Approval { actions, .. } => {
                asked.extend(actions.iter().map(|action| match &action.call_id {
                    Some(id) => Asked::Call(id.to_string()),
                    None => Asked::Tool(action.name.decode().into_owned()),
                }));
            }
            Ask::Answer { value, .. } => {
                let members = json::members(value).unwrap_or_default();
                let id = members.string("toolCallId").or_else(|| members.string("tool_call_id"));
                asked.extend(id.map(|id| Asked::Call(id.into_owned())));
            }
            Ask::Breakpoint => {}
        }
    }
    asked
}

// === impl Asked ===

impl Asked {
    fn is_about(&self, call: &Waiting) -> bool {
        match self {
            Self::Call(id) => *id == call.id,
            Self::Tool(name) => *name == call.tool,
        }
    }
}
