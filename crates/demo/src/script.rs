//! What each graph says and does, as data: the engine plays it.

mod agent;
mod approval;
mod failing;
mod speech;
mod watched;

use serde_json::{Value, json};
use uuid::Uuid;
pub(super) use watched::request as watched_request;

use super::clock::Clock;
use super::state::{Channel, Exception, Reducer, Values, messages, text};

/// The namespace under which the Python server derives an assistant's id from its graph's name.
const ASSISTANTS: Uuid = Uuid::from_u128(0x6ba7_b821_9dad_11d1_80b4_00c0_4fd4_30c8);

/// How much of a human's words is quoted.
const MAX_QUOTED_CHARS: usize = 200;

const MESSAGES: Channel = Channel { name: "messages", reducer: Reducer::Messages };

/// A graph of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Graph {
    Agent,
    Approval,
    Failing,
    Watched,
}

/// A node that is due, and what for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Due {
    pub(super) node: &'static str,
    /// What the node was sent: a tool call. Without it the node sees the whole state.
    pub(super) sent: Option<Sent>,
}

/// A tool call for a node: `Send` of LangGraph.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sent {
    pub(super) index: usize,
    pub(super) call: Value,
}

/// What a node sees while it acts.
#[derive(Debug)]
pub(super) struct Stage<'a> {
    pub(super) values: &'a Values,
    pub(super) clock: &'a Clock,
    /// The answer to what the node asked, if it did.
    pub(super) resume: Option<&'a Value>,
    pub(super) tokens: Tokens,
}

/// Whether the run's client asked for tokens. LangChain names messages by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tokens {
    Asked,
    Unasked,
}

/// What a node does: it says some lines, then it ends.
#[derive(Debug)]
pub(super) struct Act {
    pub(super) lines: Vec<Line>,
    /// Beats between the last line and the end.
    pub(super) rest: u32,
    pub(super) end: End,
}

/// One thing that a node says.
#[derive(Debug)]
pub(super) struct Line {
    /// Beats before it. A beat is the pause before a token.
    pub(super) after: u32,
    pub(super) word: Word,
}

#[derive(Debug)]
pub(super) enum Word {
    /// A piece of a message.
    Chunk(Value),
    /// A message that was not streamed.
    Message(Value),
    /// A payload of the graph's own.
    Custom(Value),
}

/// How a node ends.
#[derive(Debug)]
pub(super) enum End {
    /// With an update of the state, or without one.
    Update(Option<Values>),
    /// As `Update`, and names the tool calls that are to be executed.
    Send(Values, Vec<Value>),
    /// It asks a human, and is due again with the answer.
    Ask(Value),
    Raise(Exception),
}

// === impl Graph ===

impl Graph {
    pub(super) const ALL: [Self; 4] = [Self::Agent, Self::Approval, Self::Failing, Self::Watched];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Approval => "approval",
            Self::Failing => "failing",
            Self::Watched => "watched",
        }
    }

    /// The name and the description.
    pub(super) const fn told(self) -> (&'static str, &'static str) {
        (self.name(), self.description())
    }

    pub(super) const fn description(self) -> &'static str {
        match self {
            Self::Agent => "thinks, calls two tools at once, and answers",
            Self::Approval => "asks before it sends an email and deletes a file",
            Self::Failing => "says some words, then fails",
            Self::Watched => "reports on a service; runs by itself every 20 s",
        }
    }

    pub(super) fn assistant_id(self) -> Uuid {
        Uuid::new_v5(&ASSISTANTS, self.name().as_bytes())
    }

    /// The graph that an assistant's id or a graph's name means.
    pub(super) fn find(assistant: &str) -> Option<Self> {
        let id = Uuid::try_parse(assistant).ok();
        Self::ALL.into_iter().find(|g| g.name() == assistant || Some(g.assistant_id()) == id)
    }

    pub(super) fn channels(self) -> &'static [Channel] {
        match self {
            Self::Agent => agent::CHANNELS,
            Self::Approval | Self::Failing => &[MESSAGES],
            Self::Watched => watched::CHANNELS,
        }
    }

    /// What is due on new input.
    pub(super) fn entry(self) -> Due {
        Due::pull(match self {
            Self::Agent => agent::PLAN,
            Self::Approval => approval::MODEL,
            Self::Failing => failing::OPEN,
            Self::Watched => watched::MEASURE,
        })
    }

    /// What is due behind a node; `None` if the graph has no such node.
    pub(super) fn follow(self, node: &str, values: &Values) -> Option<Vec<Due>> {
        match self {
            Self::Agent => agent::follow(node, values),
            Self::Approval => approval::follow(node, values),
            Self::Failing => failing::follow(node),
            Self::Watched => watched::follow(node),
        }
    }

    /// What a node that is due does.
    pub(super) fn act(self, due: &Due, stage: &Stage<'_>) -> Act {
        match self {
            Self::Agent => agent::act(due, stage),
            Self::Approval => approval::act(due, stage),
            Self::Failing => failing::act(due, stage),
            Self::Watched => watched::act(due, stage),
        }
    }
}

// === impl Due ===

impl Due {
    pub(super) fn pull(node: &'static str) -> Self {
        Self { node, sent: None }
    }

    fn push(node: &'static str, calls: Vec<Value>) -> Vec<Self> {
        let sent = |(index, call)| Self { node, sent: Some(Sent { index, call }) };
        calls.into_iter().enumerate().map(sent).collect()
    }

    /// The tools that are due for these calls.
    pub(super) fn tools(calls: Vec<Value>) -> Vec<Self> {
        Self::push("tools", calls)
    }

    /// How LangGraph names the way to the task.
    pub(super) fn path(&self) -> Value {
        match &self.sent {
            Some(sent) => json!(["__pregel_push", sent.index, false]),
            None => json!(["__pregel_pull", self.node]),
        }
    }

    pub(super) fn trigger(&self) -> String {
        match &self.sent {
            Some(_) => "__pregel_push".to_owned(),
            None => format!("branch:to:{}", self.node),
        }
    }

    /// The tool call that was sent to the node.
    fn call(&self) -> &Value {
        self.sent.as_ref().map_or(&Value::Null, |sent| &sent.call)
    }
}

// === impl Stage ===

impl Stage<'_> {
    /// The last words of a human, cut to what is quoted.
    fn words(&self) -> String {
        let human = messages(self.values).iter().rfind(|message| message["type"] == "human");
        let words = human.map(text).unwrap_or_default();
        let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
        match words.char_indices().nth(MAX_QUOTED_CHARS) {
            Some((end, _)) => format!("{}...", words.get(..end).unwrap_or_default()),
            None => words,
        }
    }

    /// How many humans have spoken: which turn this is.
    fn turn(&self) -> usize {
        messages(self.values).iter().filter(|message| message["type"] == "human").count()
    }

    /// An id for a message of the model.
    fn message_id(&self) -> String {
        let id = self.clock.id();
        match self.tokens {
            Tokens::Asked => format!("lc_run--{id}"),
            Tokens::Unasked => format!("lc_run--{id}-0"),
        }
    }

    /// What a tool gives back for a call.
    fn tool_message(&self, call: &Value, content: &str, status: &str) -> Value {
        json!({
            "content": content, "additional_kwargs": {}, "response_metadata": {}, "type": "tool",
            "name": call["name"], "id": self.clock.id().to_string(), "tool_call_id": call["id"],
            "artifact": null, "status": status,
        })
    }
}

// === impl Act ===

impl Act {
    /// A node that only changes the state.
    fn silent(update: Option<Values>) -> Self {
        Self { lines: vec![], rest: 0, end: End::Update(update) }
    }
}

/// The object of a JSON literal.
fn object(value: Value) -> Values {
    match value {
        Value::Object(object) => object,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Values::new()
        }
    }
}

/// The tool calls of the model's last message that no tool has answered; `None` if it made none.
fn open_calls(values: &Values) -> Option<Vec<Value>> {
    let messages = messages(values);
    let speaker = messages.iter().rposition(|message| message["type"] == "ai")?;
    let (message, answers) = messages.get(speaker..)?.split_first()?;
    let calls = message["tool_calls"].as_array().filter(|calls| !calls.is_empty())?;
    let is_open =
        |call: &&Value| !answers.iter().any(|answer| answer["tool_call_id"] == call["id"]);
    Some(calls.iter().filter(is_open).cloned().collect())
}

/// An argument of a call that is a text.
fn arg<'a>(call: &'a Value, name: &str) -> Option<&'a str> {
    call.get("args")?.get(name)?.as_str()
}
