//! The state and the messages that a request sends together with answers. LangGraph writes them to
//! the state before it resumes.
//!
//! LangGraph appends new messages to the conversation at once. While tool calls of the last message
//! wait for their results, only such results may follow.

use serde_json::value::RawValue;

use super::planner::{Echoes, KnownMessages, RequestPlanner, messages_json};
use super::resume::ResumeError;
use crate::json::{self, Json};
use crate::langgraph::{self, InputKeys, MessageType, ThreadState, WholeCall};
use crate::run::{self, Ask, Interrupt, Message, Role};

/// A tool call without a result.
struct OpenCall {
    id: String,
    tool: String,
}

/// The members of the state to write. `None` if the request changes nothing.
pub(super) fn update(
    request: &RequestPlanner<'_>,
    thread: Option<&ThreadState<'_>>,
    keys: &InputKeys,
) -> Result<Option<Json>, ResumeError> {
    let input = request.input;
    let update = request.changes(&Echoes::of(thread), keys);
    let messages = messages(request, thread)?;
    let update = if messages.is_empty() {
        update
    } else {
        update.raw(request.messages_key.as_str(), messages_json(input, &messages).get())
    };
    Ok((!update.is_empty()).then(|| update.finish()))
}

/// Whether a request has new messages that would go up.
pub(super) fn has_messages(
    request: &RequestPlanner<'_>,
    thread: Option<&ThreadState<'_>>,
) -> Result<bool, ResumeError> {
    Ok(!messages(request, thread)?.is_empty())
}

/// The new messages that go up. None for a thread without a conversation, where all of the client's
/// messages would look new.
///
/// A client such as CopilotKit stores its answer to a question as the result of the call that the
/// question is about. That result is left out, like one that no call waits for: it would answer the
/// call twice.
fn messages<'a>(
    request: &'a RequestPlanner<'_>,
    thread: Option<&ThreadState<'_>>,
) -> Result<Vec<&'a Message>, ResumeError> {
    let Some(thread) = thread else { return Ok(Vec::new()) };
    let values = thread.values.as_ref();
    let Some(list) = values.and_then(|values| values.messages.as_deref()) else {
        return Ok(Vec::new());
    };
    let mut open_calls = open_calls(list);
    let subjects = subjects(thread);
    let is_asked = |call: &OpenCall| subjects.iter().any(|subject| subject.is_about(call));
    let new: Vec<_> = request.after_known(&KnownMessages::of(values)).collect();
    let (results, others): (Vec<_>, Vec<_>) =
        new.into_iter().partition(|sent| sent.role == Role::Tool);
    let mut going_up = Vec::new();
    for result in results {
        let is_message = |id: &str| request.input.messages.iter().any(|sent| *sent.id == *id);
        let wire = result.call_id.as_deref().unwrap_or_default();
        let id = run::langgraph_call_id(wire, is_message);
        let found = open_calls.iter().position(|call| call.id == id && !is_asked(call));
        if let Some(at) = found {
            open_calls.swap_remove(at);
            going_up.push(result);
        }
    }
    if !others.is_empty() && !open_calls.is_empty() {
        return Err(ResumeError::MessagesBetweenCallAndResult);
    }
    going_up.extend(others);
    Ok(going_up)
}

/// The calls without a result, of the last message that has calls.
fn open_calls(list: &[&RawValue]) -> Vec<OpenCall> {
    let mut answered = Vec::new();
    for message in list.iter().rev().filter_map(|raw| langgraph::Message::parse(raw)) {
        if message.kind() == MessageType::Tool {
            answered.extend(message.tool_call_id());
            continue;
        }
        let calls = message.calls();
        if !calls.is_empty() {
            let waits = |id: &str| !answered.iter().any(|answered| *answered == id);
            let calls = calls.into_iter().filter(|call| waits(&call.id));
            let read = |call: WholeCall<'_>| OpenCall {
                id: call.id.into_owned(),
                tool: call.name.into_owned(),
            };
            return calls.map(read).collect();
        }
    }
    Vec::new()
}

/// The subject of an open question: a call, or all calls of a tool.
enum Subject {
    Call(String),
    Tool(String),
}

fn subjects(thread: &ThreadState<'_>) -> Vec<Subject> {
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
                let members = json::members(value).unwrap_or_default();
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
    fn is_about(&self, call: &OpenCall) -> bool {
        match self {
            Self::Call(id) => *id == call.id,
            Self::Tool(name) => *name == call.tool,
        }
    }
}
