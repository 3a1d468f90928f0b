//! Plans the run that a client's request becomes. Only what the person wants changed goes up.
//!
//! A client of AG-UI sends its whole conversation and state with every request. A difference from
//! the thread is the person's wish, or the client's copy is old.
//!
//! ```text
//!  request --> intent --> run::plan::Turn, state --> Plan
//!                ^
//!                | run::plan::Conversation, evidence
//! ```
//! - `intent`: what the person wants: to go on, to fork, or to restore a lost thread. `form`: whether
//!   a client's copy of a message differs.
//! - `state`: the members of the state that go up.

mod form;
mod intent;
mod state;

use std::collections::{HashMap, HashSet, VecDeque};

use intent::{Comparison, Fork, Forked, Intent};
use state::{Changes, Earlier, Echoes, state_of};

use super::allowance::Allowance;
use super::client_keys::{CLIENT_KEYS, ClientProvided, client_context};
use super::input::Input;
use super::resume::{Answers, ResumeError, subjects};
use crate::json::{self, Json, Text};
use crate::langgraph::{self, InputKeys, MessagesKey, Start, ThreadState};
use crate::run::plan::{Conversation, OpenCall, Turn};
use crate::run::{
    self, Dropped, EmitOptions, Evidence, Message, Need, NewRun, Plan, PlanStep, Planner, Role,
    RunConfig, WhyDropped,
};

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
    pub emit: EmitOptions,
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

    fn bytes(&self) -> usize {
        self.input.bytes
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
    fn plan(&self, evidence: &Evidence<'_>, keys: &InputKeys) -> Result<PlanStep, ResumeError> {
        let thread = evidence.state;
        let input = self.input;
        let answers = match (input.resume.as_slice(), input.legacy_resume()) {
            ([], None) => {
                return Ok(self.plan_messages(evidence, keys).unwrap_or_else(PlanStep::Needs));
            }
            ([], Some(resume)) => Answers::of_legacy(resume, thread)?,
            (entries, _) => Answers::of(entries, thread)?,
        };
        let Some(answers) = answers else { return Ok(Plan::default().into()) };
        match self.plan_answers(answers, evidence, keys) {
            Ok(plan) => Ok(plan?.into()),
            Err(need) => Ok(PlanStep::Needs(need)),
        }
    }
}

impl RequestPlanner<'_> {
    /// The plan for a request without answers to interrupts.
    fn plan_messages(&self, evidence: &Evidence<'_>, keys: &InputKeys) -> Result<PlanStep, Need> {
        let thread = evidence.state;
        let conversation = Conversation::of(thread);
        let compared = Comparison { planner: self, conversation: &conversation, evidence };
        if evidence.live.is_none() && compared.needs_runs() {
            return Err(Need::Runs);
        }
        let live = evidence.live.unwrap_or_default();
        let mut dropped = Vec::new();
        let intent = compared.intent(&mut dropped)?;
        if let Some(run) = compared.answered_by(&intent) {
            return Err(Need::Stop { run_id: run.id.clone() });
        }
        let is_asked = thread.is_some_and(|thread| !thread.interrupts.is_empty());
        match &intent {
            Intent::Continue(new) if is_asked => return Ok(self.answer_or_ask(new, thread).into()),
            Intent::Fork(fork) => return self.plan_fork(fork, &compared, keys).map(PlanStep::from),
            Intent::Continue(_) | Intent::Restore => {}
        }
        let mut turn = Turn::after(&conversation, live);
        // Another run may bring results of the same calls.
        let mut is_alone = false;
        if let Intent::Continue(new) = &intent {
            self.add_results(&mut turn, &compared, &conversation, &mut dropped);
            if !new.is_empty() && live.is_empty() {
                turn.abandon_calls();
            }
            is_alone = !turn.is_empty();
            for (at, message) in new {
                note(turn.say(message), *at, message.role, &mut dropped);
            }
            // A model's provider refuses a conversation whose calls have no results.
            let may_run = !live.is_empty() || !turn.has_open_calls();
            let is_wanted = dropped.is_empty() || compared.is_asking();
            if turn.is_empty() && !(is_wanted && may_run) {
                return Ok(Plan { dropped, ..Plan::default() }.into());
            }
        } else {
            self.restore(&mut turn, &mut dropped);
        }
        let echoes = Echoes::of(thread, earlier(&compared));
        let Changes { object, dropped: values } = self.changes(echoes, keys)?;
        dropped.extend(values);
        let input = object.raw(self.messages_key.as_str(), turn.to_json().get()).finish();
        let title = if thread.is_none() { self.title() } else { None };
        let hides = kept_keys(thread);
        let run = NewRun {
            title,
            forgets: hides.clone(),
            hides,
            is_alone,
            ..self.run(Start::Input(input))
        };
        Ok(Plan { dropped, ..run.into() }.into())
    }

    /// The plan for a fork. Its results are those of calls that are open at its checkpoint.
    fn plan_fork(
        &self,
        fork: &Fork<'_>,
        compared: &Comparison<'_>,
        keys: &InputKeys,
    ) -> Result<Plan, Need> {
        let evidence = compared.evidence;
        let past = evidence.past.and_then(|past| past.iter().find(|past| past.id == fork.before));
        let Some(past) = past else {
            // What was looked up before is still needed.
            let known = evidence.past.unwrap_or_default().iter().map(|past| past.id.clone());
            return Err(Need::Past([fork.before.to_owned()].into_iter().chain(known).collect()));
        };
        let before = past.before.as_deref();
        let before = before.and_then(|state| ThreadState::parse_under(self.messages_key, state));
        let conversation = Conversation::of(before.as_ref());
        let mut turn = Turn::after(&conversation, &[]);
        let mut dropped = Vec::new();
        // What the client holds of results after the fork is no news.
        self.add_results(&mut turn, compared, &conversation, &mut Vec::new());
        turn.abandon_calls();
        for (at, message) in &fork.messages {
            let said = match message {
                // A summary has no checkpoint without the messages that it stands for.
                _ if conversation.has(message.id()) => continue,
                Forked::Sent(message) => turn.say(message),
                Forked::Held(message, raw) => turn.say_raw(&message.id, Json::from(*raw)),
            };
            note(said, *at, message.role(), &mut dropped);
        }
        let echoes = Echoes::of(evidence.state, earlier(compared)).forking(before.as_ref());
        let Changes { object, dropped: values } = self.changes(echoes, keys)?;
        dropped.extend(values);
        let input = object.raw(self.messages_key.as_str(), turn.to_json().get()).finish();
        let hides = kept_keys(evidence.state);
        let fork_before = Some(fork.before.to_owned());
        let run =
            NewRun { fork_before, forgets: hides.clone(), hides, ..self.run(Start::Input(input)) };
        Ok(Plan { dropped, ..run.into() })
    }

    /// The plan for messages while a question is open: the question is sent again, or the actions
    /// that wait for approval are rejected.
    fn answer_or_ask(&self, new: &[(usize, &Message)], thread: Option<&ThreadState<'_>>) -> Plan {
        let answers = match self.on_message {
            OnMessage::AskAgain => None,
            OnMessage::Reject => typed(new).and_then(|reason| Answers::rejecting(&reason, thread)),
        };
        match answers {
            Some(Answers { start: Some(start), ids, .. }) => {
                self.answering(start, ids, thread).into()
            }
            _ => Plan::default(),
        }
    }

    /// The plan for answers to interrupts. What else is new goes up as an update of the state, which
    /// LangGraph writes before it resumes.
    ///
    /// A client such as CopilotKit stores its answer to a question as the result of the call that
    /// the question is about. That result is left out: it would answer the call twice.
    fn plan_answers(
        &self,
        answers: Answers,
        evidence: &Evidence<'_>,
        keys: &InputKeys,
    ) -> Result<Result<Plan, ResumeError>, Need> {
        let Answers { start, ids, keep } = answers;
        let thread = evidence.state;
        let conversation = Conversation::of(thread);
        let compared = Comparison { planner: self, conversation: &conversation, evidence };
        let mut dropped = Vec::new();
        let mut turn = Turn::after(&conversation, evidence.live.unwrap_or_default());
        // All messages of the client would look new to a graph that keeps no conversation.
        if conversation.is_kept() {
            let subjects = thread.map(subjects).unwrap_or_default();
            let is_asked = |call: &OpenCall| {
                subjects.iter().any(|subject| subject.is_about(&call.id, &call.tool))
            };
            turn.reserve(is_asked);
            self.add_results(&mut turn, &compared, &conversation, &mut dropped);
            let new = compared.beside_answer(&mut dropped)?;
            if !new.is_empty() && turn.has_open_calls() {
                return Ok(Err(ResumeError::MessagesBetweenCallAndResult));
            }
            for (at, message) in new {
                note(turn.say(message), at, message.role, &mut dropped);
            }
        }
        let Some(start) = start else {
            if !turn.is_empty() {
                return Ok(Err(ResumeError::MessagesWithPartialAnswer));
            }
            return Ok(Ok(Plan { keep, run: None, dropped }));
        };
        let Changes { object, dropped: values } =
            self.changes(Echoes::of(thread, earlier(&compared)), keys)?;
        dropped.extend(values);
        let update = if turn.is_empty() {
            object
        } else {
            object.raw(self.messages_key.as_str(), turn.to_json().get())
        };
        let update = (!update.is_empty()).then(|| update.finish());
        let run = NewRun { update, ..self.answering(start, ids, thread) };
        Ok(Ok(Plan { keep, run: Some(run), dropped }))
    }

    /// Adds the results of the client's tools whose calls wait for them.
    fn add_results(
        &self,
        turn: &mut Turn,
        compared: &Comparison<'_>,
        conversation: &Conversation<'_>,
        dropped: &mut Vec<Dropped>,
    ) {
        let from = compared.begins_anew_at();
        let ids = self.ids();
        let is_message = |id: &str| ids.contains(id);
        for (at, result) in self.input.messages.iter().enumerate() {
            if result.role != Role::Tool || conversation.knows(&result.id) {
                continue;
            }
            let wire = result.call_id.as_deref().unwrap_or_default();
            let call_id = run::langgraph_call_id(wire, is_message);
            let added = turn.answer(result, call_id, conversation, is_message);
            // The client may keep any number of old results, which runs have been sent before.
            if let Err(why) = added
                && (at >= from || conversation.has_call(call_id) || compared.is_fresh(result))
            {
                dropped.push(Dropped::Message { at, role: Role::Tool, why });
            }
        }
    }

    /// Adds the whole conversation of a lost thread, from the person's first words on.
    fn restore(&self, turn: &mut Turn, dropped: &mut Vec<Dropped>) {
        let sent = &self.input.messages;
        let first = sent.iter().position(|sent| sent.role == Role::User).unwrap_or_default();
        let ids = self.ids();
        let mut results: HashMap<_, VecDeque<_>> = HashMap::new();
        for result in sent.iter().filter(|sent| sent.role == Role::Tool) {
            if let Some(call_id) = &result.call_id {
                results.entry(&**call_id).or_default().push_back(&**result);
            }
        }
        for (at, message) in sent.iter().enumerate() {
            match message.role {
                Role::Assistant if at > first => {
                    turn.restore(message, &mut results, |id| ids.contains(id));
                }
                Role::User | Role::System | Role::Developer
                    if self.allowance.takes(message.role) =>
                {
                    note(turn.say(message), at, message.role, dropped);
                }
                Role::User
                | Role::System
                | Role::Developer
                | Role::Assistant
                | Role::Tool
                | Role::Reasoning
                | Role::Attachment => {}
            }
        }
    }

    /// The ids of the client's messages.
    fn ids(&self) -> HashSet<&str> {
        self.input.messages.iter().map(|sent| &*sent.id).collect()
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
            self.allowance.config(self.input).map_or(RunConfig::Not, RunConfig::Config);
        let multitask = self.allowance.multitask(self.input);
        NewRun { configured, multitask, ..NewRun::new(&*self.input.run_id, start) }
    }

    /// The title of a thread that begins with this request: the user's first words.
    fn title(&self) -> Option<String> {
        let mut sent = self.input.messages.iter().filter(|sent| sent.role == Role::User);
        sent.find_map(|sent| langgraph::headline(&sent.content.text().decode()))
    }
}

/// Notes a message that the turn does not take.
fn note(said: Result<(), WhyDropped>, at: usize, role: Role, dropped: &mut Vec<Dropped>) {
    if let Err(why) = said {
        dropped.push(Dropped::Message { at, role, why });
    }
}

/// The members of a thread's metadata that hold decisions.
fn kept_keys(thread: Option<&ThreadState<'_>>) -> Vec<String> {
    let Some(ThreadState { kept, .. }) = thread else { return Vec::new() };
    kept.current.iter().map(|kept| &kept.key).chain(&kept.stale).cloned().collect()
}

/// The text of the user's new messages. `None` if there is none.
fn typed(new: &[(usize, &Message)]) -> Option<Text> {
    let texts = new.iter().filter(|(_, sent)| sent.role == Role::User);
    let texts: Vec<_> = texts.map(|(_, sent)| sent.content.text()).collect();
    let texts: Vec<_> = texts.iter().map(Text::decode).collect();
    let text = texts.iter().map(|text| text.trim()).filter(|text| !text.is_empty());
    let text = text.collect::<Vec<_>>().join("\n\n");
    (!text.is_empty()).then(|| Text::new(&text))
}

/// The earlier values that the client's state is compared with.
///
/// The state of a graph without a conversation is the client's to change.
fn earlier<'e>(compared: &Comparison<'e>) -> Earlier<'e> {
    if !compared.conversation.is_kept() {
        return Earlier::NotNeeded;
    }
    let known = compared.evidence.values;
    let (since, is_behind) = (compared.last_learnt(), compared.is_behind());
    known.map_or(Earlier::Needed { since, is_behind }, Earlier::Known)
}
