//! From a client's request to a run of LangGraph's: only what is new goes up.

use std::collections::HashMap;

use serde_json::value::RawValue;

use super::input::{Input, InputMessage, Resume, ResumeStatus};
use super::message;
use super::project::Version;
use crate::json::{self, Json, ObjectWriter};
use crate::langgraph::{
    self, ApprovalForm, Decision, InputKeys, Kind, RunRequest, Start, ThreadState,
};
use crate::run::{self, Role};

/// Where a graph may have a place for the tools and the context of its client. All that such a
/// key holds is replaced with each turn: what the client no longer has, the agent must not call.
const CLIENT_KEYS: [&str; 3] = ["tools", "ag-ui", "copilotkit"];

/// A run to start for a client.
#[derive(Debug)]
pub struct Turn {
    /// What it begins with.
    pub start: Start,
    /// The message that the client has changed or wants answered again: the run begins at the
    /// thread's last checkpoint that does not hold it.
    pub fork_before: Option<String>,
    /// The configuration for the run.
    pub config: Option<Json>,
}

/// Why a request cannot become a run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TurnError {
    /// Some of the actions of an approval are answered, and some are not.
    #[error(
        "`resume` answers {answered} of the {expected} actions of interrupt {id}; answer all of \
         them in one request"
    )]
    HalfAnswered {
        /// LangGraph's interrupt.
        id: String,
        /// How many answers there are.
        answered: usize,
        /// How many it takes.
        expected: usize,
    },
    /// An approval is answered with something that is no decision. What acts must not be had by
    /// an answer that we misread.
    #[error(
        "`resume` neither approves nor rejects interrupt {id}; send the payload \
         `{{\"approved\": true}}` or `{{\"approved\": false}}`, or a decision of LangChain's with its \
         `type`"
    )]
    NoDecision {
        /// The interrupt, or one action of it, as the client names it.
        id: String,
    },
}

// === impl Turn ===

impl Turn {
    /// Whether it matters which keys the graph takes.
    pub fn needs_keys(input: &Input, thread: Option<&ThreadState<'_>>) -> bool {
        let sent = input.state.as_deref().and_then(json::members).unwrap_or_default();
        let held = thread.and_then(|thread| thread.values.as_ref()?.state.as_deref());
        !input.tools.is_empty()
            || !input.context.is_empty()
            || sent.0.iter().any(|(key, _)| &**key != "messages")
            || held.unwrap_or_default().iter().any(|(key, _)| CLIENT_KEYS.contains(&&**key))
    }

    /// What a request asks of a thread, given its state and the keys that the graph takes; no
    /// state for a thread that has none.
    pub fn plan(
        input: &Input,
        thread: Option<&ThreadState<'_>>,
        keys: &InputKeys,
    ) -> Result<Self, TurnError> {
        let config = input.forwarded_props.as_deref().and_then(allowed_config);
        let resume = match input.resume.as_slice() {
            [] => input.forwarded_props.as_deref().and_then(legacy_resume),
            entries => Some(answers(entries, thread)?),
        };
        if let Some(start) = resume {
            return Ok(Self { start, fork_before: None, config });
        }
        let known = thread.and_then(|thread| thread.values.as_ref());
        let (new, fork_before) = new_messages(input, known);
        let state = known.and_then(|values| values.state.as_deref()).unwrap_or_default();
        let start = Start::Input(input_json(input, state, keys, &new));
        Ok(Self { start, fork_before, config })
    }

    /// The run, at the checkpoint that the fork begins at.
    pub fn request(self, assistant: &str, run_id: &str, checkpoint: Option<String>) -> RunRequest {
        RunRequest::new(assistant, run_id, self.start)
            .at_checkpoint(checkpoint)
            .with_config(self.config)
    }
}

/// The messages that LangGraph does not know, and the known one to fork before.
///
/// A user message that is known with other content was edited; one that is the client's last,
/// with more behind it in the thread, is to be answered again. Both begin a fork, and go up anew.
/// What stands before the last known message is old, also where the thread has forgotten it.
fn new_messages<'a>(
    input: &'a Input,
    known: Option<&langgraph::Values<'_>>,
) -> (Vec<&'a InputMessage>, Option<String>) {
    let sent = &input.messages;
    let known = Known::of(known);
    let goes_up = |message: &&InputMessage| match message.message.role {
        // "Assistant messages that LangGraph does not know are never sent up."
        Role::Assistant | Role::Reasoning => false,
        Role::User | Role::Tool | Role::System | Role::Developer => true,
    };
    let is_edited = |sent: &InputMessage| {
        sent.message.role == Role::User
            && known.get(&sent.message.id).is_some_and(|known| !shows(known, sent, input.version))
    };
    if let Some(at) = sent.iter().position(is_edited) {
        let behind = sent.get(at..).unwrap_or_default();
        let fork = behind.first().map(|message| message.message.id.to_string());
        return (behind.iter().filter(goes_up).collect(), fork);
    }
    let is_known = |sent: &InputMessage| known.get(&sent.message.id).is_some();
    let behind = sent.iter().rposition(is_known).map_or(0, |last| last + 1);
    let new: Vec<_> = sent.iter().skip(behind).filter(goes_up).collect();
    if new.is_empty()
        && let Some(last) = sent.last().filter(|message| message.message.role == Role::User)
        && known.has_more_behind(&last.message.id)
    {
        return (vec![last], Some(last.message.id.to_string()));
    }
    (new, None)
}

/// The messages of a thread, by the ids that a client knows them under.
#[derive(Default)]
struct Known<'a> {
    by_id: HashMap<String, (usize, langgraph::Message<'a>)>,
    /// Places of messages without an id, which a client knows as `<thread id>:m<place>`.
    nameless: HashMap<String, (usize, langgraph::Message<'a>)>,
    count: usize,
}

impl<'a> Known<'a> {
    fn of(values: Option<&langgraph::Values<'a>>) -> Self {
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

/// The graph's input: the state's changed keys, the client's tools and context, the new messages.
fn input_json(
    input: &Input,
    known: &[(json::Str<'_>, &RawValue)],
    keys: &InputKeys,
    new: &[&InputMessage],
) -> Json {
    // "A value equal to the thread's is an echo, and a key with an accumulating reducer would
    // double on every turn." A client's numbers are doubles.
    let is_echo = |key: &str, value: &RawValue| {
        let mut known = known.iter().filter(|(name, _)| &**name == key);
        known.any(|(_, known)| json::same_in_doubles(known.get(), value.get()))
    };
    let is_ours = |key: &str| CLIENT_KEYS.contains(&key) && keys.takes(key);
    let mut object = ObjectWriter::new();
    for (key, value) in input.state.as_deref().and_then(json::members).unwrap_or_default().0 {
        if &*key != "messages" && keys.may_take(&key) && !is_ours(&key) && !is_echo(&key, value) {
            object = object.raw(&key, value.get());
        }
    }
    for key in CLIENT_KEYS.into_iter().filter(|key| is_ours(key)) {
        let value = client_value(key, input);
        if !is_echo(key, &value) {
            object = object.raw(key, value.get());
        }
    }
    let messages: Vec<_> =
        new.iter().map(|message| to_langchain(message, &input.messages)).collect();
    let messages = json::array(messages.iter().map(|message| message.get()));
    object.raw("messages", messages.get()).finish()
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
        "copilotkit" => {
            ObjectWriter::new().raw("actions", tools.get()).raw("context", context.get()).finish()
        }
        _ => tools,
    }
}

fn to_langchain(sent: &InputMessage, all: &[InputMessage]) -> Json {
    let message = &sent.message;
    let kind = match message.role {
        Role::User | Role::Assistant | Role::Reasoning => "human",
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

/// The answers in LangGraph's native form, `{interrupt id: answer}`, which also answers some of
/// several. A static breakpoint takes no answer: the run goes on.
fn answers(entries: &[Resume], thread: Option<&ThreadState<'_>>) -> Result<Start, TurnError> {
    let open = thread.map(|thread| thread.interrupts.as_slice()).unwrap_or_default();
    let open: Vec<_> = open.iter().map(run::Interrupt::of_langgraph).collect();
    let mut answers = ObjectWriter::new();
    let mut answered: Vec<&str> = Vec::new();
    for entry in entries {
        if run::is_breakpoint(&entry.interrupt_id) {
            return Ok(Start::Continue);
        }
        let (id, _) = split_action(&entry.interrupt_id, &open);
        if answered.contains(&id) {
            continue;
        }
        answered.push(id);
        let interrupt = open.iter().find(|interrupt| *interrupt.id == *id);
        let answer = match interrupt.map(|interrupt| &interrupt.ask) {
            Some(run::Ask::Approval { actions, form }) => {
                decisions(id, actions, *form, entries, &open)?
            }
            Some(run::Ask::Answer { .. } | run::Ask::Breakpoint) | None => answer(entry),
        };
        answers = answers.raw(id, answer.get());
    }
    Ok(Start::Resume(answers.finish()))
}

/// LangGraph's interrupt of an entry, and which of its actions the entry answers.
fn split_action<'a>(id: &'a str, open: &[run::Interrupt]) -> (&'a str, usize) {
    let is_open = |id: &str| open.iter().any(|interrupt| *interrupt.id == *id);
    match id.rsplit_once(':').map(|(whole, action)| (whole, action.parse())) {
        Some((whole, Ok(action))) if !is_open(id) => (whole, action),
        _ => (id, 0),
    }
}

/// "cancelled = abandoned, no payload": the graph gets null, which it can tell from an answer.
fn answer(entry: &Resume) -> Json {
    let payload = entry.payload.clone().filter(|_| entry.status == ResumeStatus::Resolved);
    payload.unwrap_or_else(|| Json::from(RawValue::NULL))
}

/// The decisions on all actions of an approval, in their order.
fn decisions(
    id: &str,
    actions: &[run::Action],
    form: ApprovalForm,
    entries: &[Resume],
    open: &[run::Interrupt],
) -> Result<Json, TurnError> {
    let of = |at: usize| entries.iter().find(|e| split_action(&e.interrupt_id, open) == (id, at));
    let expected = actions.len();
    let found: Vec<_> = (0..expected).filter_map(of).collect();
    // The form's own answer answers all actions at once.
    if let Some(whole) = found.first().and_then(|entry| entry.payload.as_deref())
        && match form {
            ApprovalForm::Inbox => json::items(whole).is_some_and(|all| all.len() == expected),
            ApprovalForm::Python | ApprovalForm::JavaScript | ApprovalForm::PerCall => {
                json::members(whole).is_some_and(|members| members.get("decisions").is_some())
            }
        }
    {
        return Ok(Json::from(whole));
    }
    if found.len() < expected {
        let (id, answered) = (id.to_owned(), found.len());
        return Err(TurnError::HalfAnswered { id, answered, expected });
    }
    let found = found.into_iter().zip(actions);
    let decisions = found.map(|(entry, action)| decision(entry, action, form));
    Ok(form.answer(&decisions.collect::<Result<Vec<_>, _>>()?))
}

/// A decision: LangChain's own form, or AG-UI's `{approved, editedArgs?, reason?}`.
fn decision(entry: &Resume, action: &run::Action, form: ApprovalForm) -> Result<Json, TurnError> {
    let of = |decision| form.decision(&action.name, &decision);
    let none = || TurnError::NoDecision { id: entry.interrupt_id.clone() };
    let payload = match entry.status {
        ResumeStatus::Cancelled => return Ok(of(Decision::Reject { message: None })),
        ResumeStatus::Resolved => entry.payload.as_ref().ok_or_else(none)?,
    };
    let members = json::members(payload).unwrap_or_default();
    if members.get("type").is_some() {
        return Ok(payload.clone());
    }
    match members.get("approved").unwrap_or(payload).get() {
        "true" => match members.get("editedArgs").filter(|args| args.get() != "null") {
            // "Approve-with-edits: full replacement."
            Some(args) => Ok(of(Decision::Edit { args: Json::from(args) })),
            None => Ok(of(Decision::Approve)),
        },
        "false" => {
            let message = members.text("message").or_else(|| members.text("reason"));
            Ok(of(Decision::Reject { message }))
        }
        _ => Err(none()),
    }
}

/// `forwardedProps.command.resume`, as CopilotKit's older hook sends it.
fn legacy_resume(forwarded: &RawValue) -> Option<Start> {
    let command = json::members(json::members(forwarded)?.get("command")?)?;
    let resume = command.get("resume").filter(|resume| resume.get() != "null")?;
    // A string may hold JSON: the hook's callers print what they answer with.
    let inner = json::string(resume).filter(|s| s.starts_with(['{', '[']));
    let parsed = inner.and_then(|s| serde_json::from_str::<&RawValue>(&s).map(Json::from).ok());
    Some(Start::Resume(parsed.unwrap_or_else(|| Json::from(resume))))
}

/// The part of `forwardedProps.config` that a client may set.
///
/// The rest of the props is left out, not spread into the run: a browser that can name a webhook
/// makes the server call it.
fn allowed_config(forwarded: &RawValue) -> Option<Json> {
    let config = json::members(json::members(forwarded)?.get("config")?)?;
    let mut allowed = ObjectWriter::new();
    let limit = config.number("recursion_limit").or_else(|| config.number("recursionLimit"));
    if let Some(limit) = limit {
        allowed = allowed.raw("recursion_limit", &limit.to_string());
    }
    if let Some(configurable) = config.get("configurable").and_then(json::members) {
        let keys = configurable.0.iter().filter(|(key, _)| is_allowed(key));
        let keys = keys.fold(ObjectWriter::new(), |w, (key, value)| w.raw(key, value.get()));
        allowed = allowed.raw("configurable", keys.finish().get());
    }
    (!allowed.is_empty()).then(|| allowed.finish())
}

/// Not the keys that LangGraph itself acts on, another thread, another checkpoint, another user;
/// nor those under which a graph finds the headers of its request, which only a request can set.
fn is_allowed(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    let is_langgraphs = matches!(
        &*key,
        "thread_id" | "thread_ts" | "run_id" | "user_id" | "graph_id" | "assistant_id"
    );
    let beginnings = ["checkpoint", "langgraph_", "__", "x-"];
    !is_langgraphs && key != "authorization" && !beginnings.iter().any(|b| key.starts_with(b))
}
