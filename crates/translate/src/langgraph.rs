//! One part of a LangGraph stream, typed by its SSE event name.
//!
//! A part borrows from its frame; opaque payloads stay raw.
//! Both servers are understood (`langgraph-api` 0.16 for Python, 2.0 for JavaScript), and the
//! newer streaming protocol's envelope where a join delivers it under a legacy name.

mod approval;
mod block;
mod config;
pub(crate) mod copilotkit;
mod cursor;
pub(crate) mod dialect;
mod fault;
mod kept;
mod message;
mod messages_key;
mod origin;
mod record;
mod replay;
mod request;
mod thread;

use std::borrow::Cow;
use std::collections::HashMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use uuid::Uuid;

pub use approval::{Approval, ApprovalForm, ApprovalRequest, Decision};
pub use block::{Block, Media, Reasoning, Source};
pub use config::{ConfigChoice, ConfigField, ConfigKind};
pub use cursor::{Cursor, NotACursor};
pub use dialect::Said;
pub use fault::{Account, Told};
pub use kept::{Given, KeptAnswer, KeptAnswers, MAX_KEPT_ACTIONS, MAX_KEPT_BYTES, NewestRuns};
pub use message::{CallChunk, Finish, Kind, Message, WholeCall};
pub use messages_key::{MessagesKey, NotAMessagesKey, Place};
pub(crate) use origin::{Mutes, Origin};
pub use record::{
    ARCHIVED, Assistant, CLIENT_THREAD_ID, InputKeys, RunRecord, RunStatus, ServerInfo, ServerKind,
    TITLE, ThreadMark, ThreadRecord, ThreadStatus, headline,
};
pub use replay::{Novelty, Replay};
pub use request::{Multitask, RunRequest, Start};
pub use thread::ThreadState;

use self::dialect::RawPart;
use crate::json::{self, Str};
use crate::sse::Frame;

/// One part of a run's stream.
#[derive(Debug)]
pub struct Part<'a> {
    /// The subgraph that this part comes from: `node:task|node:task`, empty for the root.
    pub namespace: Cow<'a, str>,
    /// What it says.
    pub body: Body<'a>,
}

/// What a part says, by the stream mode that made it.
#[derive(Debug)]
pub enum Body<'a> {
    /// `metadata`: which run this is, and the how-manieth attempt at it.
    Metadata {
        /// LangGraph's run id.
        run_id: Cow<'a, str>,
        /// 1 for the first; also 1 again after a graceful restart of the server.
        attempt: u64,
    },
    /// `values`: the whole state after a superstep.
    Values(Values<'a>),
    /// `updates`: what each finished node returned.
    Updates(Updates<'a>),
    /// A part that carries messages, in one of the stream's dialects.
    Said(Said<'a>),
    /// `custom`: what a node wrote to the stream.
    Custom(&'a RawValue),
    /// `tasks`: a node starts or ends.
    Task(Task<'a>),
    /// An interrupt in a part of its own (the newer protocol's `input.requested`).
    Interrupts(Vec<Interrupt<'a>>),
    /// `error`: the run failed. The Python server does not store this part for replay.
    Error(RunError),
    /// `checkpoints`, `debug` and the like: understood, and nothing to a client. They hold the
    /// server's request internals.
    Silent,
    /// A mode that this version does not know.
    Unknown,
    /// A known mode whose payload has not its form.
    Malformed(&'static str),
}

/// The state after a superstep, opened one level.
#[derive(Debug)]
pub struct Values<'a> {
    /// The whole payload.
    pub raw: &'a RawValue,
    /// The state's keys less that of the messages and `__interrupt__`; `None` where the state is no
    /// object.
    pub state: Option<Vec<(Str<'a>, &'a RawValue)>>,
    /// The conversation, if the state holds one.
    pub messages: Option<Vec<&'a RawValue>>,
    /// `__interrupt__`, if it is there. An empty list is a static breakpoint.
    pub interrupts: Option<Vec<Interrupt<'a>>>,
}

/// What each finished node returned.
#[derive(Debug)]
pub struct Updates<'a> {
    /// One entry per node; parallel tasks of one node come in parts of their own.
    pub nodes: Vec<NodeUpdate<'a>>,
    /// `__interrupt__`, if it is there. An empty list is a static breakpoint.
    pub interrupts: Option<Vec<Interrupt<'a>>>,
    /// Whether the nodes were through before this run: a resume tells again what an interrupted
    /// superstep had kept of them.
    pub is_cached: bool,
}

/// What one finished node returned.
#[derive(Debug)]
pub struct NodeUpdate<'a> {
    /// The node.
    pub node: Str<'a>,
    /// The messages that it returned.
    pub messages: Vec<Message<'a>>,
}

/// A question that the graph asks before it goes on.
#[derive(Clone, Debug)]
pub struct Interrupt<'a> {
    /// 32 hexadecimal digits; the same over resumes. LangGraph's older versions have no ids: see
    /// [`is_unnamed`](Self::is_unnamed).
    pub id: Cow<'a, str>,
    /// What the graph passed to `interrupt()`.
    pub value: Option<&'a RawValue>,
    /// The schema of the answer, where the graph gives one.
    pub response_schema: Option<&'a RawValue>,
}

/// A node starts (no result, no error) or ends.
#[derive(Debug, Deserialize)]
pub struct Task<'a> {
    /// The task: one execution of a node.
    #[serde(borrow)]
    pub id: Str<'a>,
    /// The node.
    #[serde(borrow)]
    pub name: Str<'a>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    #[serde(borrow)]
    triggers: Option<&'a RawValue>,
    #[serde(borrow)]
    interrupts: Option<&'a RawValue>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
}

/// The code of a run that took more supersteps than it may: both servers' exception.
pub const RECURSION_LIMIT: &str = "GraphRecursionError";

/// Why a run failed, in the server's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunError {
    /// The exception's name.
    pub code: String,
    /// Its message. The Python server hides that of exceptions it does not know.
    pub message: String,
    /// Its stack trace, if the server sends one.
    pub trace: Option<String>,
    /// What each place of the server has on the failure. Clients are sent it with
    /// [`ErrorDetail::Full`] alone.
    pub accounts: Vec<Account>,
}

/// How much is told of a failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ErrorDetail {
    /// All that the server has, and where it has it; what it says where it refuses a request, too.
    Full,
    /// A run's exception, with its message, as LangGraph's own clients are told.
    #[default]
    Message,
    /// The exception's name.
    Code,
    /// That it failed.
    None,
}

// === impl Part ===

impl<'a> Part<'a> {
    /// Types a frame of a graph that keeps its conversation under `messages`.
    ///
    /// The JavaScript server prints its JSON over many lines; `scratch` takes the compact form.
    pub fn parse(frame: &'a Frame<'_>, scratch: &'a mut String) -> Self {
        Self::parse_under(&MessagesKey::default(), frame, scratch)
    }

    /// The same of a graph that keeps its conversation under this key.
    pub fn parse_under(key: &MessagesKey, frame: &'a Frame<'_>, scratch: &'a mut String) -> Self {
        let event = frame.event.as_deref().unwrap_or_default();
        let (mode, namespace) = event.split_once('|').unwrap_or((event, ""));
        let data = frame.data.as_deref().unwrap_or_default();
        let data = if data.contains('\n') {
            json::compact(data, scratch);
            scratch.as_str()
        } else {
            data
        };
        let namespace = Cow::Borrowed(namespace);
        Self::read(&RawPart { mode, namespace, data, key, is_enveloped: false })
    }

    fn read(raw: &RawPart<'_, 'a>) -> Self {
        dialect::read(raw).unwrap_or_else(|| raw.with(body(raw)))
    }
}

/// Reads a part of a mode that no dialect has.
fn body<'a>(raw: &RawPart<'_, 'a>) -> Body<'a> {
    let (data, key, place) = (raw.data, raw.key, Place::of(&raw.namespace, ""));
    match raw.mode {
        "values" => with(data, |raw| Values::open(raw, key), Body::Values, "values"),
        "updates" => with(data, |raw| Updates::open(raw, key, place), Body::Updates, "updates"),
        "custom" => with(data, Some, Body::Custom, "custom"),
        "tasks" => serde_json::from_str(data).map_or(Body::Malformed("tasks"), Body::Task),
        "metadata" => run_metadata(data).unwrap_or(Body::Malformed("metadata")),
        "error" => Body::Error(RunError::parse(data)),
        "checkpoints" | "debug" | "tools" | "lifecycle" | "feedback" | "end" => Body::Silent,
        _ => Body::Unknown,
    }
}

fn with<'a, T>(
    data: &'a str,
    open: impl FnOnce(&'a RawValue) -> Option<T>,
    wrap: impl FnOnce(T) -> Body<'a>,
    mode: &'static str,
) -> Body<'a> {
    let value = serde_json::from_str::<&RawValue>(data).ok();
    value.and_then(open).map_or(Body::Malformed(mode), wrap)
}

fn run_metadata(data: &str) -> Option<Body<'_>> {
    let members: json::Members<'_> = serde_json::from_str(data).ok()?;
    // The thread stream's end mark has a status and no attempt.
    match members.get("status") {
        Some(_) => Some(Body::Silent),
        None => Some(Body::Metadata {
            run_id: members.string("run_id")?,
            attempt: members.number("attempt").unwrap_or(1),
        }),
    }
}

// === impl Values ===

impl<'a> Values<'a> {
    /// Opens a state that holds its conversation under this key.
    pub fn open(raw: &'a RawValue, key: &MessagesKey) -> Option<Self> {
        let Some(members) = json::members(raw) else {
            return Some(Self { raw, state: None, messages: None, interrupts: None });
        };
        let mut messages = None;
        let mut interrupts = None;
        let mut state = members.0;
        state.retain(|(name, value)| match &**name {
            name if name == key.as_str() => {
                messages = conversation(value);
                messages.is_none()
            }
            "__interrupt__" => {
                interrupts = Interrupt::list(value);
                false
            }
            _ => true,
        });
        Some(Self { raw, state: Some(state), messages, interrupts })
    }

    /// Whether this carries interrupts only: the JavaScript server then sends no state with them.
    pub fn is_only_interrupts(&self) -> bool {
        self.interrupts.is_some()
            && self.messages.is_none()
            && self.state.as_ref().is_some_and(Vec::is_empty)
    }
}

/// The elements of a list, if each looks like a message; a list of other things is state.
fn conversation(value: &RawValue) -> Option<Vec<&RawValue>> {
    let items = json::items(value)?;
    items.iter().all(|item| Message::is_message(item)).then_some(items)
}

// === impl Updates ===

impl<'a> Updates<'a> {
    fn open(raw: &'a RawValue, key: &MessagesKey, place: Place) -> Option<Self> {
        let mut updates = Self { nodes: Vec::new(), interrupts: None, is_cached: false };
        for (node, delta) in json::members(raw)?.0 {
            match &*node {
                "__interrupt__" => updates.interrupts = Interrupt::list(delta),
                // `{"cached": true}`
                "__metadata__" => {
                    let cached = json::members(delta).and_then(|members| members.get("cached"));
                    updates.is_cached = cached.is_some_and(|cached| cached.get() == "true");
                }
                _ => {
                    let messages = messages_of(delta, key, place);
                    updates.nodes.push(NodeUpdate { node, messages });
                }
            }
        }
        Some(updates)
    }
}

/// The messages that a node returned: `{"messages": [..]}`, one message, or several writes.
fn messages_of<'a>(delta: &'a RawValue, key: &MessagesKey, place: Place) -> Vec<Message<'a>> {
    let written = |delta| written_messages(delta, key, place);
    if let Some(writes) = json::items(delta) {
        return writes.into_iter().filter_map(json::members).flat_map(written).collect();
    }
    json::members(delta).map(written).unwrap_or_default()
}

fn written_messages<'a>(
    delta: json::Members<'a>,
    key: &MessagesKey,
    place: Place,
) -> Vec<Message<'a>> {
    // A `Command` among the writes, as the event stream prints it: `{"graph", "update", ..}`.
    let is_command = delta.get("graph").is_some() || delta.get("goto").is_some();
    let update = || delta.get("update").filter(|_| is_command).and_then(json::members);
    let delta = update().unwrap_or(delta);
    let Some(messages) = key.find(&delta, place) else { return Vec::new() };
    match json::items(messages) {
        Some(items) => items.into_iter().filter_map(Message::parse).collect(),
        None => Message::parse(messages).into_iter().collect(),
    }
}

// === impl Interrupt ===

/// How our names of interrupts begin that have no id in LangGraph.
const UNNAMED: &str = "unnamed-interrupt-";

/// How many hexadecimal digits of a digest such a name has: interrupts of one thread are few.
const UNNAMED_DIGITS: usize = 16;

impl<'a> Interrupt<'a> {
    /// A list of interrupts. One without an id gets a name of ours.
    pub fn list(value: &'a RawValue) -> Option<Vec<Self>> {
        Some(Self::all(json::items(value)?))
    }

    /// Whether an id is a name of ours. LangGraph does not know it, and takes a bare answer only.
    pub fn is_unnamed(id: &str) -> bool {
        id.starts_with(UNNAMED)
    }

    /// The interrupts of one list, or of all tasks of a thread.
    ///
    /// A name of ours is a digest of what is asked and where, so that stream and state give the
    /// same name whatever the order of their tasks. Equal ones are numbered.
    fn all(items: impl IntoIterator<Item = &'a RawValue>) -> Vec<Self> {
        let mut names: HashMap<String, usize> = HashMap::new();
        let parse = |item: &'a RawValue| {
            let members = json::members(item)?;
            let id = members.string("id").unwrap_or_else(|| {
                let name = Self::name(&members);
                let count = names.entry(name.clone()).or_default();
                *count += 1;
                Cow::Owned(if *count == 1 { name } else { format!("{name}-{count}") })
            });
            Some(Self {
                id,
                value: members.get("value"),
                response_schema: members.get("response_schema").filter(|s| s.get() != "null"),
            })
        };
        items.into_iter().filter_map(parse).collect()
    }

    /// `ns` is the namespace of the task, where the server gives one.
    fn name(members: &json::Members<'_>) -> String {
        let compact = |name| {
            let mut text = String::new();
            json::compact(members.get(name).unwrap_or(RawValue::NULL).get(), &mut text);
            text
        };
        let text = format!("{}\n{}", compact("ns"), compact("value"));
        let digest = Uuid::new_v5(&Uuid::NAMESPACE_OID, text.as_bytes()).simple().to_string();
        format!("{UNNAMED}{digest:.UNNAMED_DIGITS$}")
    }
}

// === impl Task ===

impl<'a> Task<'a> {
    /// Whether this is the start of the task, not its result.
    pub fn is_start(&self) -> bool {
        self.triggers.is_some()
    }

    /// What it asked before it stopped.
    pub fn interrupts(&self) -> Vec<Interrupt<'a>> {
        self.interrupts.and_then(Interrupt::list).unwrap_or_default()
    }

    /// The name of the agent that the node belongs to.
    pub fn agent(&self) -> Option<Cow<'a, str>> {
        json::members(self.metadata?)?.string("lc_agent_name")
    }

    /// The one tool call that this task executes: `create_agent` starts a task per call.
    pub fn tool_call(&self) -> Option<Cow<'a, str>> {
        match json::items(self.input?)?.as_slice() {
            [call] => json::members(call)?.string("id"),
            _ => None,
        }
    }
}

// === impl RunError ===

impl RunError {
    /// `{"error": name, "message": text}`; or, from the JavaScript server, a bare string, and with a
    /// task `{"name": name, "message": text}`.
    pub fn parse(data: &str) -> Self {
        let Ok(value) = serde_json::from_str::<&RawValue>(data) else {
            return Self::new("Error", data);
        };
        if let Some(message) = json::string(value) {
            return Self::new("Error", message);
        }
        let members = json::members(value).unwrap_or_default();
        let field = |name| members.string(name).map(Cow::into_owned);
        let code = field("error").or_else(|| field("name")).unwrap_or_else(|| "Error".to_owned());
        let message = field("message").unwrap_or_else(|| code.clone());
        let trace = fault::trace(&members);
        Self { trace, ..Self::new(code, message) }
    }

    /// A failure of this name and message.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), trace: None, accounts: Vec::new() }
    }

    /// Whether a stream says so that there is no such run: both servers answer 200 to a join of one.
    pub fn is_missing_run(&self) -> bool {
        match &*self.code {
            "HTTPException" => {
                matches!(&*self.message, "404: Run not found" | "404: Thread not found")
            }
            "Error" => self.message == "Run not found",
            _ => false,
        }
    }

    /// The failure, as it is told to clients that are to know so much.
    #[must_use]
    pub fn told(self, detail: ErrorDetail) -> Self {
        match detail {
            ErrorDetail::Full => self,
            ErrorDetail::Message => Self::new(self.code, self.message),
            ErrorDetail::Code => Self::new(self.code, Self::untold().message),
            ErrorDetail::None => Self::untold(),
        }
    }

    /// What is said of a failure that no server tells more of.
    pub fn untold() -> Self {
        Self::new("run_failed", "the run failed; LangGraph's log tells why")
    }
}
