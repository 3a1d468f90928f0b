//! Plans the run that a client's request becomes. Only what is new in the request goes up.
//!
//! A client of AG-UI sends its whole conversation and state with every request. `new_messages`
//! finds the messages that the thread does not have, and `echoes` the values that the client sends
//! back unchanged.

mod echoes;
mod new_messages;

pub(super) use echoes::Echoes;
use echoes::state_of;
pub(super) use new_messages::KnownMessages;

use super::allowance::Allowance;
use super::client_keys::{CLIENT_KEYS, ClientProvided, client_context, client_value};
use super::input::Input;
use super::resume::{Answers, ResumeError};
use super::resume_update;
use crate::json::{self, Json, ObjectWriter, Text};
use crate::langgraph::{self, InputKeys, MessagesKey, Start, ThreadState};
use crate::run::{self, Configured, Emit, Message, NewRun, Plan, Planner, Role, StateEvents};

/// A request, and the settings that decide which run it becomes.
#[derive(Clone, Copy, Debug)]
pub struct RequestPlanner<'a> {
    /// The request.
    pub input: &'a Input,
    /// What happens to a new message while the thread waits for an answer.
    pub on_message: OnMessage,
    /// What a client may set.
    pub allowance: &'a Allowance,
    /// Which events the client was sent of the thread.
    pub emit: Emit,
    /// The key of the state that holds the graph's conversation. The thread's state must have been
    /// parsed with the same key.
    pub messages_key: &'a MessagesKey,
}

/// What happens to a message without an answer while the thread waits for one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMessage {
    /// The question is sent again. The message is not sent up.
    #[default]
    AskAgain,
    /// The message rejects all actions that wait for approval. Its text is the reason.
    Reject,
}

// === impl RequestPlanner ===

impl Planner for RequestPlanner<'_> {
    type Error = ResumeError;

    fn name(&self) -> &str {
        &self.input.run_id
    }

    fn is_answer(&self) -> bool {
        self.input.is_answer()
    }

    fn losses(&self, keys: &InputKeys) -> Vec<String> {
        let Input { tools, context, messages, .. } = self.input;
        let sent = [(ClientProvided::Tools, tools), (ClientProvided::Context, context)];
        let sent = sent.into_iter().filter(|(_, items)| !items.is_empty());
        let lost = sent.filter_map(|(what, _)| what.loss(keys));
        let messages = Some(self.messages_key).filter(|_| !messages.is_empty());
        messages.and_then(|key| keys.lost_messages(key)).into_iter().chain(lost).collect()
    }

    fn client_context(&self, keys: &InputKeys) -> Option<Json> {
        client_context(self.input, keys)
    }

    fn needs_keys(&self, thread: Option<&ThreadState<'_>>) -> bool {
        let sent = self.input.state.as_deref().and_then(json::members).unwrap_or_default();
        !self.input.tools.is_empty()
            || !self.input.context.is_empty()
            || sent.0.iter().any(|(key, _)| &**key != self.messages_key.as_str())
            || state_of(thread).iter().any(|(key, _)| CLIENT_KEYS.contains(&&**key))
    }

    /// An open question stays open until it is answered. A request that edits an earlier message,
    /// or wants it answered again, forks the thread before the question, and starts a run.
    fn plan(
        &self,
        thread: Option<&ThreadState<'_>>,
        keys: &InputKeys,
    ) -> Result<Plan, ResumeError> {
        let input = self.input;
        let answers = match (input.resume.as_slice(), input.legacy_resume()) {
            ([], None) => None,
            ([], Some(resume)) => Some(Answers::of_legacy(resume, thread)?),
            (entries, _) => Some(Answers::of(entries, thread)?),
        };
        if let Some(answers) = answers {
            let Some(Answers { start, ids, keep }) = answers else { return Ok(Plan::default()) };
            let run = match start {
                Some(start) => {
                    let update = resume_update::update(self, thread, keys)?;
                    Some(NewRun { update, ..self.answering(start, ids, thread) })
                }
                None if resume_update::has_messages(self, thread)? => {
                    return Err(ResumeError::MessagesWithPartialAnswer);
                }
                None => None,
            };
            return Ok(Plan { keep, run });
        }
        let (new, fork_before) = self.new_messages(thread);
        let is_asked = thread.is_some_and(|thread| !thread.interrupts.is_empty());
        if is_asked && fork_before.is_none() {
            let answers = match self.on_message {
                OnMessage::AskAgain => None,
                OnMessage::Reject => {
                    typed(&new).and_then(|reason| Answers::rejecting(&reason, thread))
                }
            };
            let Some(Answers { start: Some(start), ids, .. }) = answers else {
                return Ok(Plan::default());
            };
            return Ok(self.answering(start, ids, thread).into());
        }
        let start = Start::Input(self.input_json(&Echoes::of(thread), keys, &new));
        let hides = kept_keys(thread);
        let forgets = hides.clone();
        let title = if thread.is_none() { title(&new) } else { None };
        Ok(NewRun { fork_before, title, hides, forgets, ..self.run(start) }.into())
    }

    fn fork(
        &self,
        thread: Option<&ThreadState<'_>>,
        past: Option<&ThreadState<'_>>,
        keys: &InputKeys,
    ) -> Start {
        let (new, _) = self.new_messages(thread);
        let echoes = Echoes { past: Some(state_of(past)), ..Echoes::of(thread) };
        Start::Input(self.input_json(&echoes, keys, &new))
    }
}

impl RequestPlanner<'_> {
    /// The graph's input: the changed members of the state, the client's tools and context, and the
    /// new messages.
    fn input_json(&self, echoes: &Echoes<'_>, keys: &InputKeys, new: &[&Message]) -> Json {
        let messages = messages_json(self.input, new);
        self.changes(echoes, keys).raw(self.messages_key.as_str(), messages.get()).finish()
    }

    /// The changed members of the state, with the client's tools and context if those have changed.
    pub(super) fn changes(&self, echoes: &Echoes<'_>, keys: &InputKeys) -> ObjectWriter {
        let input = self.input;
        let conversation = self.messages_key.as_str();
        let is_client_key =
            |key: &str| CLIENT_KEYS.contains(&key) && key != conversation && keys.takes(key);
        let mut object = ObjectWriter::new();
        let state = input.state.as_deref().filter(|_| !self.is_outdated(echoes));
        for (key, value) in state.and_then(json::members).unwrap_or_default().0 {
            let is_new = &*key != conversation && keys.may_take(&key) && !is_client_key(&key);
            // The client was sent a marker in place of a large value, which LangGraph keeps.
            if is_new && !echoes.has(&key, value) && !run::is_truncated(value) {
                object = object.raw(&key, value.get());
            }
        }
        for key in CLIENT_KEYS.into_iter().filter(|key| is_client_key(key)) {
            let value = client_value(key, input);
            if !echoes.has_client_value(key, &value) {
                object = object.raw(key, value.get());
            }
        }
        object
    }

    /// Whether the client's state is older than the thread's. With `StateEvents::Initial` the
    /// client was only sent the state that its last run began with.
    fn is_outdated(&self, echoes: &Echoes<'_>) -> bool {
        self.emit.state == StateEvents::Initial && !echoes.newest.is_empty()
    }

    /// A run that begins with answers to the interrupts `ids`.
    fn answering(
        &self,
        start: Start,
        ids: Vec<String>,
        thread: Option<&ThreadState<'_>>,
    ) -> NewRun {
        let hides = kept_keys(thread);
        let current = thread.map(|thread| thread.kept.current.as_slice()).unwrap_or_default();
        let waits = |key: &String| {
            current.iter().any(|kept| kept.key == *key && !ids.contains(&kept.interrupt))
        };
        let forgets = hides.iter().filter(|key| !waits(key)).cloned().collect();
        NewRun { answers: ids, hides, forgets, ..self.run(start) }
    }

    /// A run with the part of the client's configuration that it may set.
    fn run(&self, start: Start) -> NewRun {
        let configured =
            self.allowance.config(self.input).map_or(Configured::Not, Configured::Config);
        let multitask = self.allowance.multitask(self.input);
        NewRun { configured, multitask, ..NewRun::new(&*self.input.run_id, start) }
    }
}

/// The members of a thread's metadata that hold decisions.
fn kept_keys(thread: Option<&ThreadState<'_>>) -> Vec<String> {
    let Some(ThreadState { kept, .. }) = thread else { return Vec::new() };
    kept.current.iter().map(|kept| &kept.key).chain(&kept.stale).cloned().collect()
}

/// The title of a thread that begins with these messages: the user's first words.
fn title(new: &[&Message]) -> Option<String> {
    let mut sent = new.iter().filter(|sent| sent.role == Role::User);
    sent.find_map(|sent| langgraph::headline(&sent.content.text().decode()))
}

/// The text of the user's new messages. `None` if there is none.
fn typed(new: &[&Message]) -> Option<Text> {
    let texts = new.iter().filter(|sent| sent.role == Role::User);
    let texts: Vec<_> = texts.map(|sent| sent.content.text()).collect();
    let texts: Vec<_> = texts.iter().map(Text::decode).collect();
    let text = texts.iter().map(|text| text.trim()).filter(|text| !text.is_empty());
    let text = text.collect::<Vec<_>>().join("\n\n");
    (!text.is_empty()).then(|| Text::new(&text))
}

/// Messages in LangChain's form.
pub(super) fn messages_json(input: &Input, new: &[&Message]) -> Json {
    let is_message = |id: &str| input.messages.iter().any(|sent| *sent.id == *id);
    let messages: Vec<_> = new.iter().map(|message| message.to_langchain(is_message)).collect();
    json::array(messages.iter().map(|message| message.get()))
}
