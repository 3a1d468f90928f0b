//! Run events as session updates, for one client: what it was told already is not told again.
//!
//! One projector lives as long as its session. A replay is a snapshot for a client that was told
//! nothing, so that ids and final forms are those of the live stream by construction.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use indexmap::IndexSet;

use super::call::{Answer, Calls, Verdict};
use super::content;
use super::dialect::Dialect;
use super::plan::Plan;
use super::spoken::{Say, Spoken};
use super::tool::Reader;
use super::update::{ContentBlock, ToolCall, Update};
use crate::json::Text;
use crate::run::{
    Action, Content, ContentPart, Id, Message, Outcome, Role, RunEvent, Subagent, Usage,
};

/// Projects the events of a session's runs, one after the other.
#[derive(Debug)]
pub struct Projector {
    dialect: Arc<Dialect>,
    cwd: String,
    voices: HashMap<Id, Voice>,
    /// The texts of which it is not settled what they say.
    unsettled: IndexSet<Id>,
    calls: Calls,
    subagents: HashMap<Id, Part>,
    /// What subagents have said that nobody has introduced yet.
    strangers: Vec<Message>,
    plan: Plan,
    /// What the model's window was last said to hold.
    used: Option<(u64, u64)>,
    /// Counts the runs.
    run: u32,
}

/// A message's text on the wire.
#[derive(Debug)]
enum Voice {
    /// The client's own: it has it.
    Held,
    /// It is not told.
    Silent,
    /// It is told.
    Aloud(Speech),
}

#[derive(Debug)]
struct Speech {
    speaker: Speaker,
    text: Spoken,
    /// Fingerprints of the images, files and other blocks of it that the client was sent.
    media: Vec<u64>,
    /// The last run that told of it.
    run: u32,
}

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speaker {
    Person,
    Agent,
    Thought,
}

/// The part that a subagent plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// It works for a tool call: what it says is the call's affair.
    Inner,
    /// It is a piece of the agent itself.
    Outer,
}

/// Where updates go.
type Emit<'a> = &'a mut dyn FnMut(&Update<'_>);

// === impl Projector ===

impl Projector {
    /// For a client that was told nothing, in whose directory `cwd` the session is.
    pub fn new(dialect: Arc<Dialect>, cwd: &str) -> Self {
        Self {
            dialect,
            cwd: cwd.to_owned(),
            voices: HashMap::new(),
            unsettled: IndexSet::new(),
            calls: Calls::default(),
            subagents: HashMap::new(),
            strangers: Vec::new(),
            plan: Plan::default(),
            used: None,
            run: 0,
        }
    }

    /// The client has this message, which is its own prompt: it is not told.
    pub fn hold(&mut self, message_id: &Id) {
        self.voices.insert(Arc::clone(message_id), Voice::Held);
    }

    /// Projects one event.
    pub fn project(&mut self, event: &RunEvent, emit: Emit<'_>) {
        let reader = Reader { dialect: &self.dialect, cwd: &self.cwd };
        match event {
            RunEvent::TextDelta { message_id, delta }
            | RunEvent::ReasoningDelta { message_id, delta } => self.push(message_id, delta, emit),
            RunEvent::TextStarted { message_id, role, name: _, agent } => {
                self.start(message_id, *role, agent.as_ref());
            }
            RunEvent::Attached(attachment) => self.message(attachment, emit),
            RunEvent::ReasoningStarted { message_id, agent } => {
                self.start(message_id, Role::Reasoning, agent.as_ref());
            }
            RunEvent::TextEnded { message_id } | RunEvent::ReasoningEnded { message_id } => {
                self.rest(message_id, emit);
            }
            RunEvent::CallStarted { call_id, name, message_id, agent } => {
                self.calls.start(call_id, name, reader, emit);
                // Who calls has begun to speak, whatever went by this id before.
                if matches!(self.voices.get(message_id), None | Some(Voice::Silent)) {
                    self.start(message_id, Role::Assistant, agent.as_ref());
                }
            }
            RunEvent::CallArgs { call_id, delta } => self.calls.args(call_id, delta),
            RunEvent::CallEnded { call_id } => self.calls.end(call_id, reader, emit),
            RunEvent::CallResult { message_id: _, call_id, content, is_error, agent: _ } => {
                let answer = Answer { content, is_error: *is_error };
                self.calls.answer(call_id, answer, reader, emit);
            }
            RunEvent::StateSnapshot(state) => {
                if let Some(entries) = self.plan.set(state) {
                    emit(&Update::Plan { entries });
                }
            }
            RunEvent::StateDelta(patch) => {
                if let Some(entries) = self.plan.change(patch) {
                    emit(&Update::Plan { entries });
                }
            }
            RunEvent::Messages(messages) => self.messages(messages, emit),
            RunEvent::Spent { message_id: _, usage, agent } => {
                self.spent(usage, agent.as_ref(), emit);
            }
            RunEvent::SubagentStarted(subagent) => self.introduce(subagent, emit),
            RunEvent::Started { .. } => {
                self.run += 1;
                self.calls.begin();
                self.subagents.clear();
                self.strangers.clear();
            }
            RunEvent::Ended { outcome, usage: _ } => self.ended(outcome, emit),
            RunEvent::ReasoningSealed { .. }
            | RunEvent::StepStarted { .. }
            | RunEvent::StepFinished { .. }
            | RunEvent::SubagentFinished { .. }
            | RunEvent::Custom { .. }
            | RunEvent::Activity { .. }
            | RunEvent::Raw(_) => {}
        }
    }

    /// An approval is asked for: the call that it is about is announced if it was not, and waits.
    /// Gives the call, under the id that it goes by: an action that is no call of the conversation
    /// is named after its question.
    pub fn ask(
        &mut self,
        interrupt_id: &Id,
        at: usize,
        action: &Action,
        emit: Emit<'_>,
    ) -> ToolCall<'static> {
        let reader = Reader { dialect: &self.dialect, cwd: &self.cwd };
        self.calls.ask(&call_id_of(interrupt_id, at, action), action, reader, emit)
    }

    /// A person or a rule has decided about a call, and the decision goes up.
    pub fn decide(
        &mut self,
        interrupt_id: &Id,
        at: usize,
        action: &Action,
        verdict: Verdict,
        emit: Emit<'_>,
    ) {
        self.calls.decide(&call_id_of(interrupt_id, at, action), verdict, emit);
    }

    /// The turn is over without an answer to what is open: settles it as failed.
    pub fn settle(&mut self, emit: Emit<'_>) {
        for id in std::mem::take(&mut self.unsettled) {
            self.rest(&id, emit);
        }
        let reader = Reader { dialect: &self.dialect, cwd: &self.cwd };
        self.calls.settle(reader, emit);
    }

    fn start(&mut self, id: &Id, role: Role, agent: Option<&Id>) {
        let speaker = speaker(role).filter(|_| self.part(agent) == Some(Part::Outer));
        let voice = self.voices.entry(Arc::clone(id)).or_insert(Voice::Silent);
        match (&mut *voice, speaker) {
            (Voice::Silent, Some(speaker)) => {
                *voice = Voice::Aloud(Speech::new(speaker, id, self.run));
            }
            // A run that has not shown yet what the conversation holds says it from its beginning.
            (Voice::Aloud(speech), _) if speech.run != self.run => {
                speech.run = self.run;
                speech.text.take_back();
            }
            (Voice::Held | Voice::Silent | Voice::Aloud(_), _) => {}
        }
    }

    fn push(&mut self, id: &Id, piece: &Text, emit: Emit<'_>) {
        let Some(Voice::Aloud(speech)) = self.voices.get_mut(id) else { return };
        let say = speech.text.push(id, piece);
        speech.say(say, emit);
        if speech.text.is_unsettled() {
            self.unsettled.insert(Arc::clone(id));
        }
    }

    /// Tells what is left of a text that says no more.
    fn rest(&mut self, id: &Id, emit: Emit<'_>) {
        let Some(Voice::Aloud(speech)) = self.voices.get_mut(id) else { return };
        loop {
            match speech.text.rest(id) {
                Say::Nothing => return,
                say @ Say::More(_) => speech.say(say, emit),
            }
        }
    }

    /// The conversation is this now. What it does not hold any more may be said again.
    fn messages(&mut self, messages: &[Arc<Message>], emit: Emit<'_>) {
        let ids: HashSet<_> = messages.iter().map(|message| &message.id).collect();
        let owns_thoughts = messages.iter().any(|message| message.role == Role::Reasoning);
        for (id, voice) in &mut self.voices {
            if let Voice::Aloud(speech) = voice
                && !ids.contains(id)
                && (owns_thoughts || speech.speaker != Speaker::Thought)
            {
                speech.text.take_back();
            }
        }
        let calls = messages.iter().flat_map(|message| &message.calls);
        self.calls.take_back(&calls.map(|call| &call.id).collect());
        let mut answers = HashMap::new();
        for message in messages.iter().filter(|message| message.role == Role::Tool) {
            if let Some(call_id) = &message.call_id {
                let (content, is_error) = (&message.content, message.error.is_some());
                answers.entry(call_id).or_insert(Answer { content, is_error });
            }
        }
        for message in messages {
            self.message(message, emit);
            let reader = Reader { dialect: &self.dialect, cwd: &self.cwd };
            for call in &message.calls {
                self.calls.show(call, answers.get(&call.id).copied(), reader, emit);
            }
        }
        self.calls.tidy();
    }

    /// Tells what a message of the conversation says, as far as it was not told.
    fn message(&mut self, message: &Message, emit: Emit<'_>) {
        let id = &message.id;
        let Some(speaker) = speaker(message.role) else { return };
        match self.part(message.agent.as_ref()) {
            Some(Part::Outer) => {}
            Some(Part::Inner) => {
                self.voices.entry(Arc::clone(id)).or_insert(Voice::Silent);
                return;
            }
            None => {
                self.strangers.retain(|stranger| stranger.id != *id);
                return self.strangers.push(message.clone());
            }
        }
        let voice = self.voices.entry(Arc::clone(id)).or_insert(Voice::Silent);
        if matches!(voice, Voice::Silent) {
            *voice = Voice::Aloud(Speech::new(speaker, id, self.run));
        }
        let Voice::Aloud(speech) = voice else { return };
        speech.run = self.run;
        speech.show(id, &message.content, emit);
        if speech.text.is_unsettled() {
            self.unsettled.insert(Arc::clone(id));
        }
    }

    /// A subagent that was started by a tool call works for that call, and so do those below it.
    fn introduce(&mut self, subagent: &Subagent, emit: Emit<'_>) {
        let parent = self.part(subagent.parent.as_ref());
        let part = match (&subagent.call_id, parent) {
            (Some(_), _) | (None, Some(Part::Inner)) => Part::Inner,
            (None, Some(Part::Outer) | None) => Part::Outer,
        };
        self.subagents.insert(Arc::clone(&subagent.id), part);
        if let Some(call_id) = &subagent.call_id {
            self.calls.run(call_id, emit);
        }
        let (known, strangers) = std::mem::take(&mut self.strangers)
            .into_iter()
            .partition(|stranger| stranger.agent.as_ref() == Some(&subagent.id));
        self.strangers = strangers;
        let known: Vec<_> = known;
        for message in &known {
            self.message(message, emit);
        }
    }

    /// The part of who speaks; `None` for one that nobody has introduced.
    fn part(&self, agent: Option<&Id>) -> Option<Part> {
        agent.map_or(Some(Part::Outer), |agent| self.subagents.get(agent).copied())
    }

    fn spent(&mut self, usage: &Usage, agent: Option<&Id>, emit: Emit<'_>) {
        if self.part(agent) != Some(Part::Outer) {
            return;
        }
        let window = usage.model.as_ref().and_then(|model| self.dialect.window(model));
        let (Some(size), Some(input)) = (window, usage.input) else { return };
        let used = input.saturating_add(usage.output.unwrap_or(0));
        if self.used.replace((used, size)) != Some((used, size)) {
            emit(&Update::UsageUpdate { used, size });
        }
    }

    /// A run that waits for a person goes on: what is open in it stays so.
    fn ended(&mut self, outcome: &Outcome, emit: Emit<'_>) {
        match outcome {
            Outcome::Interrupted(_) => {
                for id in std::mem::take(&mut self.unsettled) {
                    self.rest(&id, emit);
                }
            }
            Outcome::Finished { .. }
            | Outcome::Cancelled
            | Outcome::Idle { .. }
            | Outcome::Failed(_) => self.settle(emit),
        }
        self.subagents.clear();
        self.strangers.clear();
    }
}

/// The call that an action is about. An action that is no call of the conversation is named after
/// its question.
fn call_id_of(interrupt_id: &Id, at: usize, action: &Action) -> Id {
    match &action.call_id {
        Some(id) => Arc::clone(id),
        None => Id::from(format!("{interrupt_id}:{at}")),
    }
}

/// Who says what a message says; `None` for what no person is to read.
fn speaker(role: Role) -> Option<Speaker> {
    match role {
        Role::User => Some(Speaker::Person),
        Role::Assistant | Role::Attachment => Some(Speaker::Agent),
        Role::Reasoning => Some(Speaker::Thought),
        Role::Tool | Role::System | Role::Developer => None,
    }
}

// === impl Speech ===

impl Speech {
    fn new(speaker: Speaker, id: &Id, run: u32) -> Self {
        Self { speaker, text: Spoken::new(id), media: Vec::new(), run }
    }

    /// Tells what of a whole content was not told.
    fn show(&mut self, id: &Id, content: &Content, emit: Emit<'_>) {
        let parts = match content {
            Content::Text(text) if self.text.is_told(text) => return,
            Content::Absent | Content::Text(_) => &[],
            Content::Parts(parts) => &**parts,
        };
        let is_new = self.media.is_empty() && !self.text.has_begun();
        if !is_new || parts.is_empty() {
            let say = self.text.set(id, &content.text());
            self.say(say, emit);
        }
        for part in parts {
            match part {
                ContentPart::Text(text) if is_new => {
                    let say = self.text.push(id, text);
                    self.say(say, emit);
                }
                ContentPart::Text(_) => {}
                ContentPart::Media(_) | ContentPart::Block(_) | ContentPart::Annotations(_) => {
                    let fingerprint = content::fingerprint(part);
                    if !self.media.contains(&fingerprint) {
                        self.media.push(fingerprint);
                        for block in content::part_blocks(part) {
                            self.chunk(block, emit);
                        }
                    }
                }
            }
        }
    }

    fn say(&self, say: Say<'_>, emit: Emit<'_>) {
        match say {
            Say::Nothing => {}
            Say::More(text) => self.chunk(ContentBlock::Text { text }, emit),
        }
    }

    fn chunk(&self, content: ContentBlock<'_>, emit: Emit<'_>) {
        let message_id = self.text.wire_id();
        emit(&match self.speaker {
            Speaker::Person => Update::UserMessageChunk { content, message_id },
            Speaker::Agent => Update::AgentMessageChunk { content, message_id: Some(message_id) },
            Speaker::Thought => Update::AgentThoughtChunk { content, message_id },
        });
    }
}
