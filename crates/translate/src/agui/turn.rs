//! From a client's request to a run of LangGraph's: only what is new goes up.

use std::collections::HashMap;

use serde_json::value::RawValue;

use super::allowance::Allowance;
use super::beside;
use super::input::{Input, InputMessage};
use super::message;
use super::project::Version;
use super::resume::{Answers, ResumeError};
use crate::json::{self, Json, ObjectWriter, Text};
use crate::langgraph::{self, InputKeys, Kind, MessagesKey, Start, ThreadState, copilotkit};
use crate::run::{self, Configured, Emit, NewRun, Plan, Planner, Role, StateEvents};

/// Where a graph may have a place for the tools and the context of its client. All that such a
/// key holds is replaced with each turn: what the client no longer has, the agent must not call.
const CLIENT_KEYS: [&str; 3] = ["tools", "ag-ui", copilotkit::STATE_KEY];

/// What a request asks of its thread.
#[derive(Clone, Copy, Debug)]
pub struct Asking<'a> {
    /// The request.
    pub input: &'a Input,
    /// What becomes of a message while the thread asks something.
    pub on_message: OnMessage,
    /// How much of the request's configuration goes up.
    pub allowance: &'a Allowance,
    /// What the client was shown of the thread.
    pub emit: Emit,
    /// Under which key of its state the graph keeps its conversation. The thread's state is parsed
    /// under the same one.
    pub messages_key: &'a MessagesKey,
}

/// What a client brings along, for which a graph needs a place in its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Brought {
    /// Tools that the client runs.
    Tools,
    /// What the client knows of its user and its page.
    Context,
}

/// What becomes of a message that comes without an answer, while the thread asks for one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMessage {
    /// The question is asked again. The message is not sent.
    #[default]
    AskAgain,
    /// The text of the message rejects all that waits for approval.
    Reject,
}

// === impl Asking ===

impl Planner for Asking<'_> {
    type Error = ResumeError;

    fn name(&self) -> &str {
        &self.input.run_id
    }

    fn is_answer(&self) -> bool {
        self.input.is_answer()
    }

    fn losses(&self, keys: &InputKeys) -> Vec<String> {
        let Input { tools, context, .. } = self.input;
        let brought = [(Brought::Tools, tools), (Brought::Context, context)];
        let brought = brought.into_iter().filter(|(_, items)| !items.is_empty());
        brought.filter_map(|(what, _)| what.loss(keys)).collect()
    }

    fn needs_keys(&self, thread: Option<&ThreadState<'_>>) -> bool {
        let sent = self.input.state.as_deref().and_then(json::members).unwrap_or_default();
        !self.input.tools.is_empty()
            || !self.input.context.is_empty()
            || sent.0.iter().any(|(key, _)| &**key != self.messages_key.as_str())
            || state_of(thread).iter().any(|(key, _)| CLIENT_KEYS.contains(&&**key))
    }

    /// A question that is open stays open until it is answered. To change an earlier message, or
    /// to have it answered again, is to go back before the question: that starts a run.
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
                    let update = beside::update(self, thread, keys)?;
                    Some(NewRun { update, ..self.answering(start, ids, thread) })
                }
                None if beside::has_messages(self, thread)? => {
                    return Err(ResumeError::MessagesBesideKept);
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
        Ok(NewRun { fork_before, hides, forgets, ..self.run(start) }.into())
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

impl Asking<'_> {
    /// The graph's input: the state's changed keys, the client's tools and context, the new messages.
    fn input_json(&self, echoes: &Echoes<'_>, keys: &InputKeys, new: &[&InputMessage]) -> Json {
        let messages = messages_json(self.input, new);
        self.changes(echoes, keys).raw(self.messages_key.as_str(), messages.get()).finish()
    }

    /// The state's changed keys, and the client's tools and context where they have changed.
    pub(super) fn changes(&self, echoes: &Echoes<'_>, keys: &InputKeys) -> ObjectWriter {
        let input = self.input;
        let conversation = self.messages_key.as_str();
        let is_ours =
            |key: &str| CLIENT_KEYS.contains(&key) && key != conversation && keys.takes(key);
        let mut object = ObjectWriter::new();
        let state = input.state.as_deref().filter(|_| !self.is_outdated(echoes));
        for (key, value) in state.and_then(json::members).unwrap_or_default().0 {
            let is_new = &*key != conversation && keys.may_take(&key) && !is_ours(&key);
            // The client was sent a marker for a value that was too large: LangGraph keeps the value.
            if is_new && !echoes.has(&key, value) && !run::is_truncated(value) {
                object = object.raw(&key, value.get());
            }
        }
        for key in CLIENT_KEYS.into_iter().filter(|key| is_ours(key)) {
            let value = client_value(key, input);
            if !echoes.has_ours(key, &value) {
                object = object.raw(key, value.get());
            }
        }
        object
    }

    /// Whether the client's state is older than the thread's: it was shown the one that its last
    /// run began with.
    fn is_outdated(&self, echoes: &Echoes<'_>) -> bool {
        self.emit.state == StateEvents::Initial && !echoes.newest.is_empty()
    }

    /// A run that begins with answers to these interrupts.
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

    /// A run that begins with this, with as much of the client's configuration as it may set.
    fn run(&self, start: Start) -> NewRun {
        let configured =
            self.allowance.config(self.input).map_or(Configured::Not, Configured::Config);
        let multitask = self.allowance.multitask(self.input);
        NewRun { configured, multitask, ..NewRun::new(&*self.input.run_id, start) }
    }

    /// The messages that LangGraph does not know, and the known one to fork before.
    ///
    /// A user message that is known with other content was edited; one that is the client's last,
    /// with more behind it in the thread, is to be answered again. Both begin a fork, and go up
    /// anew.
    fn new_messages(
        &self,
        thread: Option<&ThreadState<'_>>,
    ) -> (Vec<&InputMessage>, Option<String>) {
        let sent = &self.input.messages;
        let known = Known::of(thread.and_then(|thread| thread.values.as_ref()));
        let is_edited = |sent: &InputMessage| {
            let shows = |known| shows(known, sent, self.input.version);
            sent.message.role == Role::User
                && known.get(&sent.message.id).is_some_and(|known| !shows(known))
        };
        if let Some(at) = sent.iter().position(is_edited) {
            let behind = sent.get(at..).unwrap_or_default();
            let fork = behind.first().map(|message| message.message.id.to_string());
            return (self.going_up(behind).collect(), fork);
        }
        let new: Vec<_> = self.behind_known(&known).collect();
        if new.is_empty()
            && let Some(last) = sent.last().filter(|message| message.message.role == Role::User)
            && known.has_more_behind(&last.message.id)
        {
            return (vec![last], Some(last.message.id.to_string()));
        }
        (new, None)
    }

    /// The messages after the last known one. Messages before that one are old, also where the thread
    /// has forgotten it.
    pub(super) fn behind_known(&self, known: &Known<'_>) -> impl Iterator<Item = &InputMessage> {
        let sent = &self.input.messages;
        let is_known = |sent: &InputMessage| known.get(&sent.message.id).is_some();
        let behind = sent.iter().rposition(is_known).map_or(0, |last| last + 1);
        self.going_up(sent.get(behind..).unwrap_or_default())
    }

    fn going_up<'a>(&self, messages: &'a [InputMessage]) -> impl Iterator<Item = &'a InputMessage> {
        messages.iter().filter(|message| self.allowance.takes(message.message.role))
    }
}

/// The members of a thread's metadata that keep decisions.
fn kept_keys(thread: Option<&ThreadState<'_>>) -> Vec<String> {
    let Some(ThreadState { kept, .. }) = thread else { return Vec::new() };
    kept.current.iter().map(|kept| &kept.key).chain(&kept.stale).cloned().collect()
}

/// What a person has typed; `None` if that is nothing, or no text.
fn typed(new: &[&InputMessage]) -> Option<Text> {
    let texts = new.iter().filter(|sent| sent.message.role == Role::User);
    let texts: Vec<_> = texts.map(|sent| sent.message.content.text()).collect();
    let texts: Vec<_> = texts.iter().map(Text::decode).collect();
    let text = texts.iter().map(|text| text.trim()).filter(|text| !text.is_empty());
    let text = text.collect::<Vec<_>>().join("\n\n");
    (!text.is_empty()).then(|| Text::new(&text))
}

/// The messages of a thread, by the ids that a client knows them under.
#[derive(Default)]
pub(super) struct Known<'a> {
    by_id: HashMap<String, (usize, langgraph::Message<'a>)>,
    /// Places of messages without an id, which a client knows as `<thread id>:m<place>`.
    nameless: HashMap<String, (usize, langgraph::Message<'a>)>,
    count: usize,
}

impl<'a> Known<'a> {
    pub(super) fn of(values: Option<&langgraph::Values<'a>>) -> Self {
        let mut known = Self::default();
        let messages = values.and_then(|values| values.messages.as_deref()).unwrap_or_default();
        known.count = messages.len();
        for (at, raw) in messages.iter().enumerate() {
            let Some(message) = langgraph::Message::parse(raw) else { continue };
            match message.id() {
                Some(id) => known.by_id.insert(id.into_owned(), (at, message)),
                None => known.nameless.insert(format!(":m{at}"), (at, message)),
            };
        }
        known
    }

    fn find(&self, id: &str) -> Option<&(usize, langgraph::Message<'a>)> {
        let place = || self.nameless.get(id.get(id.rfind(":m")?..)?);
        self.by_id.get(id).or_else(place)
    }

    fn get(&self, id: &str) -> Option<&langgraph::Message<'a>> {
        self.find(id).map(|(_, message)| message)
    }

    fn has_more_behind(&self, id: &str) -> bool {
        self.find(id).is_some_and(|(at, _)| at + 1 < self.count)
    }
}

/// Whether a client that was shown a known message would send it as it did.
fn shows(known: &langgraph::Message<'_>, sent: &InputMessage, version: Version) -> bool {
    if known.kind() != Kind::Human {
        return true;
    }
    let known = run::Message::of_langchain(known, &sent.message.id);
    let shown = |known: &run::Message| message::as_shown(&known.content, version.parts());
    known.last().is_none_or(|known| shown(known).says_the_same(&sent.message.content))
}

/// The keys of a thread's state, without its messages.
type State<'a> = &'a [(json::Str<'a>, &'a RawValue)];

fn state_of<'a>(thread: Option<&'a ThreadState<'_>>) -> State<'a> {
    thread.and_then(|thread| thread.values.as_ref()?.state.as_deref()).unwrap_or_default()
}

/// What a run need not be sent, because the state that it begins with has it.
pub(super) struct Echoes<'a> {
    /// The thread's newest state, which the client was shown.
    newest: State<'a>,
    /// The state that a fork begins with.
    past: Option<State<'a>>,
}

impl<'a> Echoes<'a> {
    pub(super) fn of(thread: Option<&'a ThreadState<'_>>) -> Self {
        Self { newest: state_of(thread), past: None }
    }

    /// Whether a client's value is an echo. Sent up, it would double on every turn if its key has
    /// an accumulating reducer.
    ///
    /// What a client was shown and has not changed is an echo in a fork too, unless the state that
    /// the fork begins with has no such key: what later runs have made of a key must not leak into
    /// the fork.
    fn has(&self, key: &str, value: &RawValue) -> bool {
        let Some(past) = self.past else { return holds(self.newest, key, value) };
        let is_unchanged =
            || past.iter().any(|(name, _)| &**name == key) && holds(self.newest, key, value);
        holds(past, key, value) || is_unchanged()
    }

    /// The same of a value that is made from the client's tools and context, which no run makes.
    fn has_ours(&self, key: &str, value: &RawValue) -> bool {
        holds(self.past.unwrap_or(self.newest), key, value)
    }
}

/// Whether a graph takes the tools that clients bring, where that is known.
pub(super) fn takes_client_tools(keys: &InputKeys) -> Option<bool> {
    Brought::Tools.is_taken(keys)
}

impl Brought {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Tools, Self::Context];

    /// The keys of a graph's input that have a place for it.
    fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Tools => &CLIENT_KEYS,
            Self::Context => CLIENT_KEYS.get(1..).unwrap_or_default(),
        }
    }

    /// Whether it reaches a graph; `None` while nothing is known of the graph. What a server does not
    /// describe is sent none.
    fn is_taken(self, keys: &InputKeys) -> Option<bool> {
        match keys {
            InputKeys::Unknown => None,
            InputKeys::Undescribed => Some(false),
            InputKeys::Known(_) => Some(self.keys().iter().any(|key| keys.takes(key))),
        }
    }

    /// Why it does not reach a graph, for whoever misses it there; `None` if it does, or if nothing
    /// is known of the graph.
    pub fn loss(self, keys: &InputKeys) -> Option<String> {
        if self.is_taken(keys) != Some(false) {
            return None;
        }
        let what = match self {
            Self::Tools => "the tools of clients do not reach this graph",
            Self::Context => "the context of clients does not reach this graph",
        };
        let names: Vec<_> = self.keys().iter().map(|key| format!("`{key}`")).collect();
        let names = names.join(", ");
        Some(if let InputKeys::Undescribed = keys {
            format!("{what}: its server does not say whether its input has one of the keys {names}")
        } else {
            format!("{what}: its input has none of the keys {names}")
        })
    }
}

/// A client's numbers are doubles.
fn holds(state: State<'_>, key: &str, value: &RawValue) -> bool {
    let mut held = state.iter().filter(|(name, _)| &**name == key);
    held.any(|(_, held)| json::same_in_doubles(held.get(), value.get()))
}

/// Messages in LangChain's form.
pub(super) fn messages_json(input: &Input, new: &[&InputMessage]) -> Json {
    let messages: Vec<_> =
        new.iter().map(|message| to_langchain(message, &input.messages)).collect();
    json::array(messages.iter().map(|message| message.get()))
}

/// The client's tools and context in the form that is read under a key: `tools` is a convention
/// of agents with client tools, the others are AG-UI's and CopilotKit's own.
fn client_value(key: &str, input: &Input) -> Json {
    let tools = json::array(input.tools.iter().map(|tool| tool.get()));
    let context = json::array(input.context.iter().map(|entry| entry.get()));
    match key {
        "ag-ui" => {
            ObjectWriter::new().raw("tools", tools.get()).raw("context", context.get()).finish()
        }
        copilotkit::STATE_KEY => ObjectWriter::new()
            .raw(copilotkit::ACTIONS_KEY, tools.get())
            .raw("context", context.get())
            .finish(),
        _ => tools,
    }
}

fn to_langchain(sent: &InputMessage, all: &[InputMessage]) -> Json {
    let message = &sent.message;
    let kind = match message.role {
        Role::User | Role::Assistant | Role::Reasoning | Role::Attachment => "human",
        Role::Tool => "tool",
        Role::System | Role::Developer => "system",
    };
    let mut object = ObjectWriter::new()
        .string("type", kind)
        .string("id", &message.id)
        .raw("content", sent.content.get())
        .optional("name", message.name.as_ref());
    if message.role == Role::Developer {
        // LangChain's way to keep OpenAI's role.
        object = object.raw("additional_kwargs", "{\"__openai_role__\":\"developer\"}");
    }
    if let Some(call) = &message.call_id {
        let makes_calls = |id: &str| all.iter().any(|sent| *sent.message.id == *id);
        let status = if message.error.is_some() { "error" } else { "success" };
        object = object
            .string("tool_call_id", run::langgraph_call_id(call, makes_calls))
            .string("status", status);
    }
    object.finish()
}
