//! Brings a viewer that missed part of a run to the run's current state.
//!
//! A viewer that may hold a text never gets it again from its beginning. It gets snapshots of the
//! view, which include unfinished messages, and an open message continues under its old id. Items
//! that are open for the viewer alone are closed, and items that are open in the run alone are
//! opened.
//!
//! A viewer that is known to hold the first messages of the conversation gets only the later ones,
//! as if they were streamed now. So the next run of a long thread costs as much as its new
//! messages.

use std::sync::Arc;

use super::commit::{self, ViewerMessages};
use super::emit_options::{EmitOptions, MessageSnapshots, StateEvents};
use super::open::Open;
use super::{Activity, Content, Id, Message, Role, RunEvent, Subagent, View};

/// What a viewer has been sent before it is brought to the current state of a run.
#[derive(Clone, Copy, Debug)]
pub enum Viewer<'a> {
    /// Nothing. Its projector knows what messages the client itself sent along.
    New,
    /// Everything that led to this view, so it holds exactly this.
    Holds(&'a View),
    /// Some of this run, but it missed events. These items are open for it.
    Lagging(&'a Open),
}

/// The events that bring a viewer to `view`. `emit` restricts which events may be used.
///
/// `None` if the view has messages but not the whole conversation: it cannot be made into a
/// snapshot. If the view has no messages at all, as for a graph without any, the viewer keeps what
/// it holds.
pub fn resync(view: &View, reader: Viewer<'_>, emit: EmitOptions) -> Option<Vec<RunEvent>> {
    if !view.is_based() && !view.messages().is_empty() {
        return None;
    }
    let mut open = match reader {
        Viewer::New | Viewer::Holds(_) => Open::default(),
        Viewer::Lagging(open) => open.clone(),
    };
    let mut out = Vec::new();
    close_ended(view.open(), &open, &mut out);
    out.extend(state(view, reader, emit.state));
    let subagents = begun(view, reader, &open);
    let is_over = |subagent: &&Subagent| !is_open(view.open(), subagent);
    let ended = subagents.iter().rev().filter(is_over);
    let ended = ended.map(|subagent| RunEvent::SubagentFinished { id: Arc::clone(&subagent.id) });
    let ended: Vec<_> = ended.collect();
    // Before their messages, so that a viewer knows whose these are.
    for event in subagents.into_iter().map(RunEvent::SubagentStarted).chain(ended) {
        open.apply(&event);
        out.push(event);
    }
    if view.is_based() {
        let messages = match reader {
            // Earlier messages could only be shown by a snapshot.
            _ if emit.messages == MessageSnapshots::None => Vec::new(),
            Viewer::New => as_events(vec![view.messages().to_vec()]),
            Viewer::Lagging(_) => {
                as_events(commit::snapshots(ViewerMessages::Unknown, view.messages()))
            }
            Viewer::Holds(held) => more(held, view)
                .unwrap_or_else(|| as_events(commit::snapshots_for(held, view.messages()))),
        };
        for event in &messages {
            open.apply(event);
        }
        out.extend(messages);
    }
    open_begun(view, &open, &mut out);
    out.extend(activities(view, reader));
    if let Viewer::New = reader {
        out.extend(view.last_usage());
    }
    Some(out)
}

/// The subagents that a viewer does not know: those that are open, and those that have written what
/// the viewer is sent. A viewer that has missed events may know the latter.
fn begun(view: &View, reader: Viewer<'_>, open: &Open) -> Vec<Subagent> {
    let is_known = |subagent: &Subagent| match reader {
        _ if is_open(view.open(), subagent) => is_open(open, subagent),
        Viewer::New => false,
        Viewer::Lagging(_) => true,
        Viewer::Holds(held) => {
            let own = view.messages().iter().filter(|m| m.agent.as_ref() == Some(&subagent.id));
            own.into_iter().all(|message| held.message(&message.id).is_some())
        }
    };
    let mut begun: Vec<Subagent> = Vec::new();
    for subagent in view.subagents().into_iter().filter(|subagent| !is_known(subagent)) {
        // The viewer may not know a parent that has ended.
        let is_begun = |parent: &Id| {
            view.open().subagents.iter().chain(&begun).any(|other| other.id == *parent)
        };
        let parent = subagent.parent.clone().filter(is_begun);
        begun.push(Subagent { parent, ..subagent.clone() });
    }
    begun
}

/// The plan and the run's tools, as far as the viewer does not hold them as they are.
fn activities(view: &View, reader: Viewer<'_>) -> Vec<RunEvent> {
    let is_news = |id: &Id, activity: &Activity| match reader {
        Viewer::Holds(held) => held.activity(id) != Some(activity),
        Viewer::New | Viewer::Lagging(_) => true,
    };
    let news = view.activities().filter(|(id, activity)| is_news(id, activity));
    news.map(|(id, activity)| RunEvent::Activity {
        id: Arc::clone(id),
        activity: activity.clone(),
        change: None,
        agent: None,
    })
    .collect()
}

fn as_events(snapshots: Vec<Vec<Arc<Message>>>) -> Vec<RunEvent> {
    snapshots.into_iter().map(|messages| RunEvent::Messages(messages.into())).collect()
}

/// The messages that the view has and the holder lacks, as if they were streamed now. `None` if the
/// conversation is not just longer, or if only a snapshot can express the change: media, a
/// subagent's message.
fn more(holder: &View, view: &View) -> Option<Vec<RunEvent>> {
    let held = holder.messages();
    let (same, new) = view.messages().split_at_checked(held.len())?;
    if new.is_empty() || !held.iter().zip(same).all(|(held, same)| commit::is_same(held, same)) {
        return None;
    }
    let mut out = Vec::new();
    for message in new {
        say(message, view, &mut out)?;
    }
    // A client inserts a tool's result after its call, so its order may differ from LangGraph's.
    let mut client = holder.clone();
    for event in &out {
        client.apply(event);
    }
    let is_complete = !client.is_scattered() && commit::shows(client.messages(), view.messages());
    is_complete.then_some(out)
}

/// Streams a message, and leaves open what is open in the run. `None` if only a snapshot can express
/// the message.
fn say(message: &Arc<Message>, view: &View, out: &mut Vec<RunEvent>) -> Option<()> {
    let now = view.open();
    let Message { id, role, name, content, calls, call_id, error, sealed, agent, between: _ } =
        &**message;
    if agent.is_some() {
        return None;
    }
    let message_id = Arc::clone(id);
    let text = match (role, content) {
        (Role::Attachment, _) => {
            out.push(RunEvent::Attached(Arc::clone(message)));
            return Some(());
        }
        // Only an activity or a snapshot marks the result as failed for an AG-UI client.
        (Role::Tool, _) if error.is_some() && !view.has_failed(call_id.as_ref()?) => return None,
        (Role::Tool, _) => {
            let (call_id, content) = (Arc::clone(call_id.as_ref()?), content.clone());
            let is_error = error.is_some();
            let result =
                RunEvent::CallResult { message_id, call_id, content, is_error, agent: None };
            out.push(result);
            return Some(());
        }
        (_, Content::Parts(_)) => return None,
        (_, Content::Absent | Content::Text(_)) => content.text(),
    };
    if *role == Role::Reasoning {
        out.push(RunEvent::ReasoningStarted { message_id: Arc::clone(id), agent: None });
        if !text.is_empty() {
            out.push(RunEvent::ReasoningDelta { message_id: Arc::clone(id), delta: text });
        }
        if let Some(sealed) = sealed {
            let sealed = sealed.clone();
            out.push(RunEvent::ReasoningSealed { message_id: Arc::clone(id), sealed });
        }
        if !now.reasoning.contains(id) {
            out.push(RunEvent::ReasoningEnded { message_id });
        }
        return Some(());
    }
    let is_open = now.texts.contains(id);
    if is_open || !text.is_empty() || calls.is_empty() {
        let name = name.clone();
        let message_id = Arc::clone(id);
        out.push(RunEvent::TextStarted { message_id, role: *role, name, agent: None });
        if !text.is_empty() {
            out.push(RunEvent::TextDelta { message_id: Arc::clone(id), delta: text });
        }
        if !is_open {
            out.push(RunEvent::TextEnded { message_id: Arc::clone(id) });
        }
    }
    for call in calls {
        let call_id = &call.id;
        let (message_id, name) = (Arc::clone(id), Arc::clone(&call.name));
        let call_id = || Arc::clone(call_id);
        out.push(RunEvent::CallStarted { call_id: call_id(), name, message_id, agent: None });
        let args = call.args.to_text();
        if !args.is_empty() {
            out.push(RunEvent::CallArgs { call_id: call_id(), delta: args });
        }
        if !now.calls.contains(&call.id) {
            out.push(RunEvent::CallEnded { call_id: call_id() });
        }
    }
    Some(())
}

/// The state, unless the viewer has it. A patch if that is shorter.
fn state(view: &View, reader: Viewer<'_>, emit: StateEvents) -> Option<RunEvent> {
    let state = view.state()?.to_json();
    let held = match reader {
        Viewer::Holds(held) => held.state(),
        Viewer::New | Viewer::Lagging(_) => None,
    };
    match held.and_then(|held| held.clone().diff(&state)) {
        Some(patch) if patch.is_empty() => None,
        Some(patch) if emit == StateEvents::Delta => Some(RunEvent::StateDelta(patch)),
        Some(_) | None => Some(RunEvent::StateSnapshot(state)),
    }
}

/// The events that close all items that are open for a reader.
pub fn closings(reader: &Open) -> Vec<RunEvent> {
    let mut out = Vec::new();
    close_ended(&Open::default(), reader, &mut out);
    out
}

/// Closes items that have ended in the run. A subagent ends after its messages.
fn close_ended(now: &Open, reader: &Open, out: &mut Vec<RunEvent>) {
    let Open { texts, reasoning, calls, steps, subagents } = reader;
    for id in reasoning.iter().filter(|id| !now.reasoning.contains(id)) {
        out.push(RunEvent::ReasoningEnded { message_id: Arc::clone(id) });
    }
    for id in texts.iter().filter(|id| !now.texts.contains(id)) {
        out.push(RunEvent::TextEnded { message_id: Arc::clone(id) });
    }
    for id in calls.iter().filter(|id| !now.calls.contains(id)) {
        out.push(RunEvent::CallEnded { call_id: Arc::clone(id) });
    }
    for (name, agent) in steps.iter().rev().filter(|step| !now.steps.contains(step)) {
        out.push(RunEvent::StepFinished { name: Arc::clone(name), agent: agent.clone() });
    }
    for subagent in subagents.iter().rev().filter(|s| !is_open(now, s)) {
        out.push(RunEvent::SubagentFinished { id: Arc::clone(&subagent.id) });
    }
}

/// Opens items that have started in the run, except for its subagents.
fn open_begun(view: &View, reader: &Open, out: &mut Vec<RunEvent>) {
    let Open { texts, reasoning, calls, steps, subagents: _ } = view.open();
    for (name, agent) in steps.iter().filter(|step| !reader.steps.contains(step)) {
        out.push(RunEvent::StepStarted { name: Arc::clone(name), agent: agent.clone() });
    }
    for id in reasoning.iter().filter(|id| !reader.reasoning.contains(id)) {
        let agent = view.message(id).and_then(|message| message.agent.clone());
        out.push(RunEvent::ReasoningStarted { message_id: Arc::clone(id), agent });
    }
    for id in texts.iter().filter(|id| !reader.texts.contains(id)) {
        let message = view.message(id);
        out.push(RunEvent::TextStarted {
            message_id: Arc::clone(id),
            role: message.map_or(Role::Assistant, |message| message.role),
            name: message.and_then(|message| message.name.clone()),
            agent: message.and_then(|message| message.agent.clone()),
        });
    }
    for id in calls.iter().filter(|id| !reader.calls.contains(id)) {
        if let Some((Message { id: message_id, agent, .. }, call)) = view.call(id) {
            out.push(RunEvent::CallStarted {
                call_id: Arc::clone(id),
                name: Arc::clone(&call.name),
                message_id: Arc::clone(message_id),
                agent: agent.clone(),
            });
        }
    }
}

fn is_open(open: &Open, subagent: &Subagent) -> bool {
    open.subagents.iter().any(|other| other.id == subagent.id)
}
