//! The tasks of a thread that wait for an answer, and what their subgraphs hold.
//!
//! The root's state has nothing of a subgraph that waits: its messages are in the state of its task,
//! which has tasks of its own.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::has_no_result;
use crate::json::{self, Json, Members};
use crate::langgraph::{
    Approval, GraphLevel, Message, MessagesKey, RawInterrupt, Values, WholeCall,
};

/// How many levels of subgraphs are read. Real graphs have only a few.
const MAX_DEPTH: usize = 16;

/// A task that waits for an answer, and runs a subgraph; or one beside it that has ended, whose
/// messages no state has before the superstep is over.
#[derive(Debug)]
pub struct WaitingTask<'a> {
    /// The namespace of the graph that has the messages: `node:task|node:task`. That of the task's
    /// subgraph, or of the graph that an ended task belongs to; empty for the root.
    pub namespace: String,
    /// The name of the agent that the subgraph is, if its state has one.
    pub agent: Option<Cow<'a, str>>,
    /// The messages of the subgraph's state, or what the ended task has written.
    pub messages: Vec<&'a RawValue>,
    /// What they are.
    pub written: Written,
    /// The ids of the questions that wait inside of it.
    pub questions: Vec<Cow<'a, str>>,
}

/// What the messages beside a thread's own are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// A subgraph's whole conversation, which begins with what the subgraph was given.
    State,
    /// What an ended task adds to the conversation of its graph.
    Result,
}

/// Which states of subgraphs a thread's state lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatesBelow {
    /// None.
    Whole,
    /// The states of the waiting tasks' subgraphs. The server sends them with a state that is
    /// requested with `subgraphs`.
    Lacking,
    /// The states of these namespaces, which the server does not know to be subgraphs: a tool may have
    /// called an agent there, or the function of a node. The server sends each for its namespace.
    Hidden(Vec<String>),
}

// === impl WaitingTask ===

impl<'a> WaitingTask<'a> {
    pub(super) fn all(tasks: &[Members<'a>], key: &MessagesKey) -> Vec<Self> {
        let mut all = Vec::new();
        Self::collect(tasks, "", key, MAX_DEPTH, &mut all);
        all
    }

    fn collect(
        tasks: &[Members<'a>],
        outer: &str,
        key: &MessagesKey,
        depth: usize,
        all: &mut Vec<Self>,
    ) {
        if tasks.iter().any(|task| !questions(task).is_empty()) {
            all.extend(tasks.iter().filter_map(|task| Self::ended(task, outer, key)));
        }
        for task in tasks.iter().filter(|_| depth > 0) {
            let questions = questions(task);
            let state = state_of(task);
            let (false, Some(state), Some(namespace)) =
                (questions.is_empty(), state, namespace(task, outer))
            else {
                continue;
            };
            let values = state.get("values");
            let values = values.and_then(|values| Values::open(values, key, GraphLevel::Subgraph));
            let metadata = state.get("metadata").and_then(json::members);
            let agent = metadata.and_then(|metadata| metadata.string("lc_agent_name"));
            let inner = tasks_of(&state);
            all.push(Self {
                namespace: namespace.clone(),
                agent,
                messages: values.and_then(|values| values.messages).unwrap_or_default(),
                written: Written::State,
                questions: questions.into_iter().map(|question| question.id).collect(),
            });
            Self::collect(&inner, &namespace, key, depth - 1, all);
        }
    }

    /// What a task has written that has ended.
    fn ended(task: &Members<'a>, outer: &str, key: &MessagesKey) -> Option<Self> {
        let level = if outer.is_empty() { GraphLevel::Root } else { GraphLevel::Subgraph };
        let result = task.get("result").filter(|result| result.get() != "null")?;
        let messages = Values::open(result, key, level)?.messages?;
        let (namespace, questions) = (outer.to_owned(), Vec::new());
        Some(Self { namespace, agent: None, messages, written: Written::Result, questions })
    }
}

// === impl StatesBelow ===

impl StatesBelow {
    /// What the JSON of a thread's state lacks.
    ///
    /// A task whose question names an open call of its own graph asks by itself: it runs no
    /// subgraph.
    pub fn of(body: &str, key: &MessagesKey) -> Self {
        // Most threads wait for nothing, and their states may be large.
        if memchr::memmem::find(body.as_bytes(), b"\"interrupts\"").is_none() {
            return Self::Whole;
        }
        let state: Members<'_> = serde_json::from_str(body).unwrap_or_default();
        let mut hidden = Vec::new();
        if Self::search(&state, "", key, GraphLevel::Root, MAX_DEPTH, &mut hidden) {
            return Self::Lacking;
        }
        if hidden.is_empty() { Self::Whole } else { Self::Hidden(hidden) }
    }

    /// Collects the namespaces. True if the server knows a subgraph whose state is not there.
    fn search(
        state: &Members<'_>,
        outer: &str,
        key: &MessagesKey,
        level: GraphLevel,
        depth: usize,
        hidden: &mut Vec<String>,
    ) -> bool {
        let mut open = None;
        for task in tasks_of(state).iter().filter(|_| depth > 0) {
            let questions = questions(task);
            let (false, Some(namespace)) = (questions.is_empty(), namespace(task, outer)) else {
                continue;
            };
            if let Some(inner) = state_of(task) {
                if Self::search(&inner, &namespace, key, GraphLevel::Subgraph, depth - 1, hidden) {
                    return true;
                }
            } else if is_known(task) {
                return true;
            } else {
                let open = open.get_or_insert_with(|| OpenCalls::of(state, key, level));
                if questions.iter().any(|question| open.may_hide(question)) {
                    hidden.push(namespace);
                }
            }
        }
        false
    }
}

/// The calls of a graph's conversation that have no result: names and arguments.
struct OpenCalls(Vec<(String, String)>);

// === impl OpenCalls ===

impl OpenCalls {
    fn of(state: &Members<'_>, key: &MessagesKey, level: GraphLevel) -> Self {
        let values = state.get("values").and_then(|values| Values::open(values, key, level));
        let messages = values.and_then(|values| values.messages).unwrap_or_default();
        let messages: Vec<_> = messages.iter().filter_map(|raw| Message::parse(raw)).collect();
        let mut open: Vec<WholeCall<'_>> = Vec::new();
        for message in &messages {
            // Some models use the ids of earlier turns again: a result answers the newest call.
            if let Some(answered) = message.tool_call_id()
                && let Some(at) = open.iter().rposition(|call| call.id == answered)
            {
                open.remove(at);
            }
            open.extend(message.calls());
        }
        let read = |call: WholeCall<'_>| (call.name.into_owned(), call.args.decode().into_owned());
        Self(open.into_iter().map(read).collect())
    }

    /// Whether a question may come from a graph that the task runs: it names none of the calls.
    fn may_hide(&self, question: &RawInterrupt<'_>) -> bool {
        let is_of = |name: &str, args: &str| {
            self.0.iter().any(|(open, of)| open == name && json::same(of, args))
        };
        Approval::parse(question).is_none_or(|approval| {
            let mut asked = approval.requests.iter();
            !asked.any(|request| is_of(&request.name.decode(), request.args.get()))
        })
    }
}

/// The open questions of a task.
fn questions<'a>(task: &Members<'a>) -> Vec<RawInterrupt<'a>> {
    let questions = task.get("interrupts").filter(|_| has_no_result(task));
    questions.and_then(RawInterrupt::list).unwrap_or_default()
}

fn tasks_of<'a>(state: &Members<'a>) -> Vec<Members<'a>> {
    let tasks = state.get("tasks").and_then(json::items).unwrap_or_default();
    tasks.into_iter().filter_map(json::members).collect()
}

/// The state of a task's subgraph. aegra puts the place of the state there if it was not asked for
/// the states of subgraphs.
fn state_of<'a>(task: &Members<'a>) -> Option<Members<'a>> {
    let state = task.get("state").and_then(json::members);
    state.filter(|state| state.get("values").is_some())
}

/// Whether the server says that a task runs a subgraph.
fn is_known(task: &Members<'_>) -> bool {
    let is_there = |key| task.get(key).is_some_and(|known| known.get() != "null");
    is_there("checkpoint") || is_there("state")
}

/// The namespace of a task's subgraph.
fn namespace(task: &Members<'_>, outer: &str) -> Option<String> {
    let (name, id) = (task.string("name")?, task.string("id")?);
    Some(if outer.is_empty() { format!("{name}:{id}") } else { format!("{outer}|{name}:{id}") })
}

/// The JSON of a thread's state, with the state of the task whose subgraph has this namespace.
/// `None` if there is no such task.
pub fn with_state(body: &str, namespace: &str, state: &str) -> Option<String> {
    let whole: &RawValue = serde_json::from_str(body).ok()?;
    let state: &RawValue = serde_json::from_str(state).ok()?;
    inserted(whole, namespace, state).map(|whole| whole.get().to_owned())
}

fn inserted(whole: &RawValue, namespace: &str, state: &RawValue) -> Option<Json> {
    let (segment, rest) = match namespace.split_once('|') {
        Some((segment, rest)) => (segment, Some(rest)),
        None => (namespace, None),
    };
    let mut tasks: Vec<_> = json::items(json::members(whole)?.get("tasks")?)?;
    let is_meant = |task: &&RawValue| {
        let task = json::members(task);
        task.and_then(|task| self::namespace(&task, "")).is_some_and(|own| own == segment)
    };
    let at = tasks.iter().position(is_meant)?;
    let task = *tasks.get(at)?;
    let inner = match rest {
        Some(rest) => inserted(json::members(task)?.get("state")?, rest, state)?,
        None => Json::from(state),
    };
    let task = json::with_member(task, "state", &inner);
    *tasks.get_mut(at)? = &task;
    let tasks = json::array(tasks.iter().map(|task| task.get()));
    Some(json::with_member(whole, "tasks", &tasks))
}
