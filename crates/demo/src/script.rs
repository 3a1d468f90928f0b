//! The scripts of the graphs, as data that the engine plays. Each graph has a file.

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

/// How many characters of a person's message are quoted.
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

/// A node that is due, and the call it is due for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Due {
    pub(super) node: &'static str,
    /// The tool call sent to the node. Without one the node gets the whole state.
    pub(super) sent: Option<Sent>,
}

/// A tool call for a node: LangGraph's `Send`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sent {
    pub(super) index: usize,
    pub(super) call: Value,
}

/// The input of a node.
#[derive(Debug)]
pub(super) struct NodeContext<'a> {
    pub(super) values: &'a Values,
    pub(super) clock: &'a Clock,
    /// The answer to the node's question, if there is one.
    pub(super) resume: Option<&'a Value>,
    pub(super) tokens: Tokens,
}

/// Whether the client asked for tokens. LangChain's message ids depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tokens {
    Asked,
    Unasked,
}

/// What a node does: it emits some lines, and then it ends.
#[derive(Debug)]
pub(super) struct Act {
    pub(super) lines: Vec<Line>,
    /// Beats between the last line and the end.
    pub(super) pause: u32,
    pub(super) end: End,
}

/// Something that a node emits.
#[derive(Debug)]
pub(super) struct Line {
    /// Beats before it. A beat is the pause before a token.
    pub(super) after: u32,
    pub(super) content: LineContent,
}

#[derive(Debug)]
pub(super) enum LineContent {
    /// A piece of a message.
    Chunk(Value),
    /// A message that was not streamed.
    Message(Value),
    /// A custom payload of the graph.
    Custom(Value),
}

/// How a node ends.
#[derive(Debug)]
pub(super) enum End {
    /// The node ends, with or without an update of the state.
    Update(Option<Values>),
    /// As `Update`, followed by these tool calls.
    Send(Values, Vec<Value>),
    /// The node asks a person, and is due again with the answer.
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

    pub(super) const fn name_and_description(self) -> (&'static str, &'static str) {
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

    /// The graph with this name or assistant id.
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

    /// The first node for new input.
    pub(super) fn entry(self) -> Due {
        Due::pull(match self {
            Self::Agent => agent::PLAN,
            Self::Approval => approval::MODEL,
            Self::Failing => failing::OPEN,
            Self::Watched => watched::MEASURE,
        })
    }

    /// The nodes that follow a node; `None` if the graph has no such node.
    pub(super) fn follow(self, node: &str, values: &Values) -> Option<Vec<Due>> {
        match self {
            Self::Agent => agent::follow(node, values),
            Self::Approval => approval::follow(node, values),
            Self::Failing => failing::follow(node),
            Self::Watched => watched::follow(node),
        }
    }

    /// The script of a due node.
    pub(super) fn act(self, due: &Due, node: &NodeContext<'_>) -> Act {
        match self {
            Self::Agent => agent::act(due, node),
            Self::Approval => approval::act(due, node),
            Self::Failing => failing::act(due, node),
            Self::Watched => watched::act(due, node),
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

    /// The tool nodes for these calls.
    pub(super) fn tools(calls: Vec<Value>) -> Vec<Self> {
        Self::push("tools", calls)
    }

    /// The task's path, as LangGraph writes it.
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

// === impl NodeContext ===

impl NodeContext<'_> {
    /// The last message of a person, cut for quoting.
    fn words(&self) -> String {
        let human = messages(self.values).iter().rfind(|message| message["type"] == "human");
        let words = human.map(text).unwrap_or_default();
        let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
        match words.char_indices().nth(MAX_QUOTED_CHARS) {
            Some((end, _)) => format!("{}...", words.get(..end).unwrap_or_default()),
            None => words,
        }
    }

    /// The number of this turn: how many messages people have sent.
    fn turn(&self) -> usize {
        messages(self.values).iter().filter(|message| message["type"] == "human").count()
    }

    /// A new id for a message of the model.
    fn message_id(&self) -> String {
        let id = self.clock.id();
        match self.tokens {
            Tokens::Asked => format!("lc_run--{id}"),
            Tokens::Unasked => format!("lc_run--{id}-0"),
        }
    }

    /// The result of a tool call.
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
        Self { lines: vec![], pause: 0, end: End::Update(update) }
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

/// The unanswered tool calls of the model's last message; `None` if it made no calls.
fn open_calls(values: &Values) -> Option<Vec<Value>> {
    let messages = messages(values);
    let speaker = messages.iter().rposition(|message| message["type"] == "ai")?;
    let (message, answers) = messages.get(speaker..)?.split_first()?;
    let calls = message["tool_calls"].as_array().filter(|calls| !calls.is_empty())?;
    let is_open =
        |call: &&Value| !answers.iter().any(|answer| answer["tool_call_id"] == call["id"]);
    Some(calls.iter().filter(is_open).cloned().collect())
}

/// An argument of a call, if it is a string.
fn arg<'a>(call: &'a Value, name: &str) -> Option<&'a str> {
    call.get("args")?.get(name)?.as_str()
}
