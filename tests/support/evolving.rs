//! A thread of LangGraph that changes, and the clients that hold older copies of it.
//!
//! The model knows what LangGraph does with a run's input: messages are appended, a known id replaces
//! its message, and every state becomes a checkpoint. It shares no code with the planner.

use std::collections::HashSet;

use serde_json::{Map, Value, json};
use threadway_translate::json::{Json, raw};
use threadway_translate::run::{MessagePast, SentMessage};

use super::plan::Past;

/// A state of the thread.
#[derive(Clone, Debug)]
pub(crate) struct Checkpoint {
    pub(crate) parent: Option<usize>,
    pub(crate) messages: Vec<Value>,
    pub(crate) state: Map<String, Value>,
}

/// What the graph does in a run, after it has stored the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Answers,
    /// The newest message of a person is rewritten under its id.
    Redacts,
    /// An older message of a person is rewritten.
    RewritesOld,
    /// All messages but the last are replaced by a summary.
    Summarises,
    /// The same by LangChain's harness, which marks the summary.
    HarnessSummarises,
    /// The harness adds a marked message before the answer.
    HarnessAdds,
    /// The harness adds a marked message after the answer.
    HarnessAddsLast,
    /// The oldest message of a person is removed.
    RemovesOldest,
    /// The newest message of a person is removed.
    RemovesNewest,
    RemovesAll,
    CallsItsTool,
    /// Calls two tools of the client.
    CallsClient,
    Fails,
    /// The conversation is summarised, and the run fails before the answer.
    SummarisesAndFails,
}

pub(crate) const TURNS: [Turn; 13] = [
    Turn::Answers,
    Turn::Redacts,
    Turn::RewritesOld,
    Turn::Summarises,
    Turn::HarnessSummarises,
    Turn::HarnessAdds,
    Turn::HarnessAddsLast,
    Turn::RemovesOldest,
    Turn::RemovesNewest,
    Turn::RemovesAll,
    Turn::CallsItsTool,
    Turn::CallsClient,
    Turn::Fails,
];

/// The thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Thread {
    pub(crate) checkpoints: Vec<Checkpoint>,
    pub(crate) head: Option<usize>,
    /// The inputs of its runs, the newest first.
    inputs: Vec<Value>,
    count: usize,
    /// Whether it has lost everything before.
    pub(crate) was_lost: bool,
}

fn id(message: &Value) -> &str {
    message["id"].as_str().unwrap_or_default()
}

fn is(message: &Value, kind: &str) -> bool {
    message["type"] == kind
}

/// Whether LangChain's harness has added a message, which nobody typed.
pub(crate) fn is_of_harness(message: &Value) -> bool {
    message["additional_kwargs"]["lc_source"].is_string()
}

fn marked(id: &str, text: &str) -> Value {
    json!({"type": "human", "id": id, "content": text,
        "additional_kwargs": {"lc_source": "summarization"}})
}

fn ids_of(sent: &[SentMessage]) -> Vec<&str> {
    sent.iter().map(|sent| &*sent.id).collect()
}

// === impl Thread ===

impl Thread {
    /// A name that nothing else has.
    pub(crate) fn fresh(&mut self, prefix: &str) -> String {
        self.count += 1;
        format!("{prefix}{}", self.count)
    }

    pub(crate) fn messages(&self) -> &[Value] {
        self.newest().map(|newest| &*newest.messages).unwrap_or_default()
    }

    /// The messages that every client gets.
    pub(crate) fn shown(&self) -> impl DoubleEndedIterator<Item = &Value> {
        self.messages().iter().filter(|message| !is_of_harness(message))
    }

    pub(crate) fn newest(&self) -> Option<&Checkpoint> {
        self.checkpoints.get(self.head?)
    }

    /// The JSON of a state, as LangGraph returns it.
    pub(crate) fn state_json(&self, at: Option<usize>) -> Value {
        let Some((at, state)) = at.and_then(|at| Some((at, self.checkpoints.get(at)?))) else {
            return json!({"values": {}, "next": []});
        };
        let mut values = state.state.clone();
        values.insert("messages".to_owned(), state.messages.clone().into());
        json!({"values": values, "next": [], "checkpoint": {"checkpoint_id": at.to_string()}})
    }

    /// Whether any state has ever had a message of this id.
    pub(crate) fn ever_had(&self, wanted: &str) -> bool {
        let mut all = self.checkpoints.iter().flat_map(|state| &state.messages);
        all.any(|message| id(message) == wanted)
    }

    /// Whether any run's input had this content.
    pub(crate) fn was_sent(&self, content: &Value) -> bool {
        let mut all = self.inputs.iter().flat_map(|input| input.as_array().into_iter().flatten());
        all.any(|message| message["content"] == *content)
    }

    /// Whether the newest input of a message had this content.
    pub(crate) fn arrived_as(&self, wanted: &str, content: &str) -> bool {
        let mut all = self.inputs.iter().flat_map(|input| input.as_array().into_iter().flatten());
        all.find(|message| id(message) == wanted).is_some_and(|sent| sent["content"] == *content)
    }

    /// Loses everything, as a server does that is restarted without a database.
    pub(crate) fn lose(&mut self) {
        *self = Self { count: self.count, was_lost: true, ..Self::default() };
    }

    /// Runs the graph with this input, after the state of a checkpoint.
    pub(crate) fn run(&mut self, from: Option<usize>, input: &Value, turn: Turn) {
        let old = from.and_then(|at| self.checkpoints.get(at));
        let mut messages = old.map(|old| old.messages.clone()).unwrap_or_default();
        let mut state = old.map(|old| old.state.clone()).unwrap_or_default();
        for message in input["messages"].as_array().into_iter().flatten() {
            match messages.iter().position(|known| id(known) == id(message)) {
                Some(at) => messages[at] = message.clone(),
                None => messages.push(message.clone()),
            }
        }
        for (key, value) in input.as_object().into_iter().flatten() {
            if key != "messages" {
                state.insert(key.clone(), value.clone());
            }
        }
        self.inputs.insert(0, input["messages"].clone());
        self.store(from, &messages, &state);
        let human = |messages: &[Value], newest: bool| {
            let is_typed =
                |at: &usize| is(&messages[*at], "human") && !is_of_harness(&messages[*at]);
            let mut humans = (0..messages.len()).filter(is_typed);
            if newest { humans.next_back() } else { humans.next() }
        };
        match turn {
            Turn::Redacts | Turn::RewritesOld => {
                if let Some(at) = human(&messages, turn == Turn::Redacts) {
                    messages[at]["content"] = self.fresh("redacted ").into();
                }
            }
            Turn::Summarises | Turn::SummarisesAndFails | Turn::HarnessSummarises => {
                let last = messages.pop().filter(|last| !is(last, "tool"));
                let (id, text) = (self.fresh("s"), self.fresh("summary "));
                messages = if turn == Turn::HarnessSummarises {
                    vec![marked(&id, &text)]
                } else {
                    vec![json!({"type": "human", "id": id, "content": text})]
                };
                messages.extend(last);
            }
            Turn::HarnessAdds => {
                let (id, text) = (self.fresh("n"), self.fresh("notice "));
                messages.push(marked(&id, &text));
            }
            Turn::RemovesOldest | Turn::RemovesNewest => {
                if let Some(at) = human(&messages, turn == Turn::RemovesNewest) {
                    messages.remove(at);
                }
            }
            Turn::RemovesAll => messages.clear(),
            Turn::CallsItsTool => {
                let (call, message, result) = (self.fresh("c"), self.fresh("a"), self.fresh("t"));
                messages.push(json!({"type": "ai", "id": message, "content": "", "tool_calls":
                    [{"id": call, "name": "own", "args": {}}]}));
                messages.push(json!({"type": "tool", "id": result, "tool_call_id": call,
                    "content": "done"}));
            }
            Turn::Answers | Turn::HarnessAddsLast | Turn::CallsClient | Turn::Fails => {}
        }
        match turn {
            Turn::Fails => return,
            Turn::SummarisesAndFails => {}
            Turn::CallsClient => {
                let (one, two) = (self.fresh("c"), self.fresh("c"));
                let message = self.fresh("a");
                messages.push(json!({"type": "ai", "id": message, "content": "", "tool_calls": [
                    {"id": one, "name": "page", "args": {"n": 1}},
                    {"id": two, "name": "page", "args": {}}]}));
            }
            Turn::Answers
            | Turn::Redacts
            | Turn::RewritesOld
            | Turn::Summarises
            | Turn::HarnessSummarises
            | Turn::HarnessAdds
            | Turn::HarnessAddsLast
            | Turn::RemovesOldest
            | Turn::RemovesNewest
            | Turn::RemovesAll
            | Turn::CallsItsTool => {
                let (id, text) = (self.fresh("a"), self.fresh("answer "));
                messages.push(json!({"type": "ai", "id": id, "content": text}));
            }
        }
        if turn == Turn::HarnessAddsLast {
            let (id, text) = (self.fresh("n"), self.fresh("notice "));
            messages.push(marked(&id, &text));
        }
        let count = state.get("count").and_then(Value::as_u64).unwrap_or_default();
        state.insert("count".to_owned(), (count + 1).into());
        self.store(self.head, &messages, &state);
    }

    fn store(&mut self, parent: Option<usize>, messages: &[Value], state: &Map<String, Value>) {
        let (messages, state) = (messages.to_vec(), state.clone());
        self.checkpoints.push(Checkpoint { parent, messages, state });
        self.head = Some(self.checkpoints.len() - 1);
    }

    fn is_here(&self, checkpoint: usize) -> bool {
        let mut at = self.head;
        while let Some(here) = at {
            if here == checkpoint {
                return true;
            }
            at = self.checkpoints[here].parent;
        }
        false
    }

    /// The calls that wait for a result at the end of a conversation.
    pub(crate) fn open_calls(messages: &[Value]) -> Vec<String> {
        let results = messages.iter().rev().take_while(|message| is(message, "tool"));
        let answered: HashSet<_> = results.map(|result| result["tool_call_id"].clone()).collect();
        let last = messages.iter().rev().find(|message| !is(message, "tool"));
        let calls = last.and_then(|last| last["tool_calls"].as_array()).into_iter().flatten();
        let ids = calls.map(|call| call["id"].clone()).filter(|id| !answered.contains(id));
        ids.map(|id| id.as_str().unwrap().to_owned()).collect()
    }

    /// What a provider refuses in the conversation. Calls at its end may wait.
    pub(crate) fn refused(messages: &[Value]) -> Option<String> {
        let (mut open, mut ids) = (HashSet::new(), HashSet::new());
        for message in messages {
            if !ids.insert(id(message)) {
                return Some(format!("{} twice", id(message)));
            }
            if is(message, "tool") {
                if !open.remove(&message["tool_call_id"]) {
                    return Some(format!("{} answers no open call", id(message)));
                }
                continue;
            }
            if !open.is_empty() {
                return Some(format!("{} comes before the results of {open:?}", id(message)));
            }
            let calls = message["tool_calls"].as_array().into_iter().flatten();
            open.extend(calls.map(|call| call["id"].clone()));
        }
        None
    }
}

impl Past for Thread {
    fn sent(&self, ids: &[String], made: &[String]) -> Vec<SentMessage> {
        let all = self.inputs.iter().flat_map(|input| input.as_array().into_iter().flatten());
        let wanted = all.filter(|message| ids.iter().any(|wanted| *wanted == id(message)));
        let read = |message: &Value| SentMessage {
            id: id(message).to_owned(),
            message: raw(message.to_string()),
            is_stored: true,
        };
        let mut sent: Vec<_> = wanted.map(read).collect();
        for made in made {
            let all = self.checkpoints.iter().flat_map(|state| &state.messages);
            let mut all = all;
            let found = all.find(|message| id(message) == made);
            sent.extend(found.filter(|_| !ids_of(&sent).contains(&&**made)).map(read));
        }
        sent
    }

    fn past(&self, ids: &[String]) -> Vec<MessagePast> {
        let of = |wanted: &String| {
            let mut past = MessagePast { id: wanted.clone(), ..MessagePast::default() };
            for (at, state) in self.checkpoints.iter().enumerate().rev() {
                let form = state.messages.iter().find(|message| id(message) == wanted);
                match form {
                    Some(form) if self.is_here(at) => past.here.push(raw(form.to_string())),
                    Some(form) => past.elsewhere.push(raw(form.to_string())),
                    None if self.is_here(at) && past.before.is_none() => {
                        past.before = Some(self.state_json(Some(at)).to_string().into());
                    }
                    None => {}
                }
            }
            past
        };
        ids.iter().map(of).collect()
    }

    fn values(&self, mut wanted: Vec<(String, Json)>, since: Option<&str>) -> Vec<(String, Json)> {
        let mut found = Vec::new();
        for (at, state) in self.checkpoints.iter().enumerate().rev() {
            let is_held = |(key, value): &mut (String, Json)| {
                let value: Value = serde_json::from_str(value.get()).unwrap();
                state.state.get(key).is_some_and(|held| *held == value)
            };
            found.extend(wanted.extract_if(.., is_held));
            let has = |wanted: &str| state.messages.iter().any(|message| id(message) == wanted);
            if self.is_here(at) && since.is_some_and(|since| !has(since)) {
                break;
            }
        }
        found
    }
}
