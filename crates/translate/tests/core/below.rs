//! Subgraphs that ask a person: while a run waits, clients hold the thread's messages and those of
//! the tasks that wait, whether they have followed the run or come late.

use std::collections::HashSet;

use crate::support::acp;
use crate::support::capture;
use crate::support::generate::{self, ScriptPart};
use crate::support::reduce::Held;
use crate::support::verify::Verifier;
use proptest::prelude::*;
use serde_json::{Value, json};
use threadway_translate::agui::{Client, Input, Projector, Version};
use threadway_translate::langgraph::{MessagesKey, StatesBelow, ThreadState, with_state};
use threadway_translate::run::{
    self, Activity, Ask, LastRun, Outcome, RunEvent, StreamEnd, ToolStatus, Translator, View,
    Viewer,
};

/// How a subgraph is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It is a node, and goes on with the conversation of its graph.
    Node,
    /// A tool calls it, and gives it words of its own.
    Tool,
}

/// A subgraph: what it does after its first words.
#[derive(Clone, Debug)]
struct Plan {
    kind: Kind,
    asks: bool,
    children: Vec<Self>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Working,
    Asks,
    Done,
}

/// A graph of a thread, as the server has it.
#[derive(Clone, Debug)]
struct Graph {
    kind: Kind,
    asks: bool,
    name: String,
    id: String,
    namespace: String,
    messages: Vec<Value>,
    status: Status,
    /// Whether its graph has said what it has written.
    is_told: bool,
    children: Vec<Self>,
}

fn part(event: &str, namespace: &str, data: &Value) -> ScriptPart {
    let event =
        if namespace.is_empty() { event.to_owned() } else { format!("{event}|{namespace}") };
    ScriptPart { event, data: data.to_string() }
}

fn call(id: &str, name: &str, args: &Value) -> Value {
    json!({"id": id, "name": name, "args": args, "type": "tool_call"})
}

fn ai(id: &str, text: &str, calls: &[Value]) -> Value {
    json!({"type": "ai", "id": id, "content": text, "tool_calls": calls})
}

// === impl Graph ===

impl Graph {
    fn new(plan: &Plan, namespace: &str, number: &mut u32) -> Self {
        let uid = *number;
        *number += 1;
        let name = if plan.kind == Kind::Tool { "tools".to_owned() } else { format!("n{uid}") };
        let id = format!("t{uid}");
        let own = if uid == 0 { String::new() } else { format!("{name}:{id}") };
        let namespace = [namespace, &own].into_iter().filter(|part| !part.is_empty());
        let namespace = namespace.collect::<Vec<_>>().join("|");
        let children = plan.children.iter().map(|plan| Self::new(plan, &namespace, number));
        let children = children.collect();
        let (kind, asks, messages) = (plan.kind, plan.asks, Vec::new());
        let status = Status::Working;
        Self { kind, asks, name, id, namespace, messages, status, is_told: false, children }
    }

    fn question(&self) -> String {
        format!("{:0>32}", self.id)
    }

    /// Writes a message under this id, first as tokens and then whole.
    fn say(&mut self, id: &str, text: &str, calls: &[Value], parts: &mut Vec<ScriptPart>) {
        let ns = if self.namespace.is_empty() {
            format!("model:{id}")
        } else {
            format!("{}|model:{id}", self.namespace)
        };
        let origin = json!({"langgraph_node": "model", "langgraph_checkpoint_ns": ns});
        let chunks = calls.iter().enumerate().map(|(at, call)| {
            let args = call["args"].to_string();
            json!({"index": at, "id": call["id"], "name": call["name"], "args": args, "type": "tool_call_chunk"})
        });
        let chunk = json!({"type": "AIMessageChunk", "id": id, "content": text, "tool_call_chunks": chunks.collect::<Vec<_>>()});
        parts.push(part("messages", &self.namespace, &json!([chunk, origin])));
        let whole = ai(id, text, calls);
        let update = json!({"model": {"messages": [whole]}});
        parts.push(part("updates", &self.namespace, &update));
        self.messages.push(whole);
        self.tell_state(parts);
    }

    fn tell_state(&self, parts: &mut Vec<ScriptPart>) {
        parts.push(part("values", &self.namespace, &json!({"messages": self.messages})));
    }

    fn start(&mut self, given: Vec<Value>, parts: &mut Vec<ScriptPart>) {
        self.messages = given;
        self.tell_state(parts);
        let mut calls = Vec::new();
        if self.asks {
            calls.push(call(&format!("k{}", self.id), "write", &json!({"path": "a"})));
        }
        for child in self.children.iter().filter(|child| child.kind == Kind::Tool) {
            let text = format!("task {}", child.id);
            calls.push(call(&format!("c{}", child.id), "task", &json!({"description": text})));
        }
        self.say(&format!("m{}", self.id), &format!("I am {}.", self.id), &calls, parts);
        if self.asks {
            self.status = Status::Asks;
            return self.ask(parts);
        }
        let mut told = Vec::new();
        for child in &mut self.children {
            let given = match child.kind {
                Kind::Node => self.messages.clone(),
                Kind::Tool => {
                    let text = format!("task {}", child.id);
                    vec![json!({"type": "human", "id": format!("h{}", child.id), "content": text})]
                }
            };
            let mut parts = Vec::new();
            child.start(given, &mut parts);
            told.push(parts);
        }
        parts.extend(interleaved(told));
        self.go_on(parts);
    }

    /// The interrupt that asks whether the call may run.
    fn interrupt(id: &str) -> Value {
        let request = json!({"name": "write", "args": {"path": "a"}});
        let config = json!({"action_name": "write", "allowed_decisions": ["approve", "reject"]});
        let value = json!({"action_requests": [request], "review_configs": [config]});
        json!({"id": id, "value": value})
    }

    fn ask(&self, parts: &mut Vec<ScriptPart>) {
        let interrupts = json!([Self::interrupt(&self.question())]);
        parts.push(part("updates", &self.namespace, &json!({"__interrupt__": interrupts})));
        let state = json!({"messages": self.messages, "__interrupt__": interrupts});
        parts.push(part("values", &self.namespace, &state));
    }

    /// What it has written for the graph that runs it, once it is done.
    fn written(&self) -> Vec<Value> {
        match self.kind {
            Kind::Tool => {
                let (id, call_id) = (format!("r{}", self.id), format!("c{}", self.id));
                vec![json!({"type": "tool", "id": id, "tool_call_id": call_id, "content": "done"})]
            }
            Kind::Node => self.messages.clone(),
        }
    }

    fn new_of(&self, written: Vec<Value>) -> Vec<Value> {
        let is_held = |m: &Value| self.messages.iter().any(|o| o["id"] == m["id"]);
        written.into_iter().filter(|message| !is_held(message)).collect()
    }

    /// Says what the children have finished. If all are done, takes that in, speaks, and is done too:
    /// the superstep is over.
    fn go_on(&mut self, parts: &mut Vec<ScriptPart>) {
        for at in 0..self.children.len() {
            let child = &mut self.children[at];
            if child.status != Status::Done || std::mem::replace(&mut child.is_told, true) {
                continue;
            }
            let written = child.written();
            if child.kind == Kind::Tool {
                let ns = child.namespace.clone();
                let origin = json!({"langgraph_node": "tools", "langgraph_checkpoint_ns": ns});
                parts.push(part("messages", &self.namespace, &json!([written[0], origin])));
            }
            let mut update = json!({});
            update[&self.children[at].name] = json!({"messages": self.new_of(written)});
            parts.push(part("updates", &self.namespace, &update));
        }
        if self.children.iter().all(|child| child.status == Status::Done) {
            for at in 0..self.children.len() {
                let new = self.new_of(self.children[at].written());
                self.messages.extend(new);
            }
            if !self.children.is_empty() {
                self.tell_state(parts);
            }
            self.say(&format!("f{}", self.id), &format!("{} is done.", self.id), &[], parts);
            self.status = Status::Done;
        }
    }

    fn waits(&self) -> bool {
        self.status == Status::Asks || self.children.iter().any(Self::waits)
    }

    /// The questions that are open in it.
    fn questions(&self) -> Vec<String> {
        let own = (self.status == Status::Asks).then(|| self.question());
        own.into_iter().chain(self.children.iter().flat_map(Self::questions)).collect()
    }

    /// The calls in it.
    fn calls(&self) -> Vec<String> {
        let calls = self.messages.iter().filter_map(|message| message["tool_calls"].as_array());
        let own = calls.flatten().filter_map(|call| Some(call["id"].as_str()?.to_owned()));
        own.chain(self.children.iter().flat_map(Self::calls)).collect()
    }

    /// The calls in it that wait for a question to be answered.
    fn open_calls(&self) -> Vec<String> {
        let own = (self.status == Status::Asks).then(|| format!("k{}", self.id));
        let runs = self.children.iter().filter(|child| child.waits());
        let called = runs.clone().filter(|child| child.kind == Kind::Tool);
        let called = called.map(|child| format!("c{}", child.id));
        own.into_iter().chain(called).chain(runs.flat_map(Self::open_calls)).collect()
    }

    /// Goes on after some questions were answered.
    fn resume(&mut self, answered: &HashSet<String>, parts: &mut Vec<ScriptPart>) {
        if !self.waits() {
            return;
        }
        self.tell_state(parts);
        if self.status == Status::Asks {
            if !answered.contains(&self.question()) {
                return self.ask(parts);
            }
            let (id, call_id) = (format!("w{}", self.id), format!("k{}", self.id));
            let result =
                json!({"type": "tool", "id": id, "tool_call_id": call_id, "content": "wrote"});
            parts.push(part("updates", &self.namespace, &json!({"tools": {"messages": [result]}})));
            self.messages.push(result);
            self.tell_state(parts);
            self.status = Status::Working;
            return self.go_on(parts);
        }
        let mut told = Vec::new();
        for child in &mut self.children {
            let mut parts = Vec::new();
            child.resume(answered, &mut parts);
            told.push(parts);
        }
        parts.extend(interleaved(told));
        self.go_on(parts);
    }

    /// The interrupts that the root's parts end with.
    fn interrupts(&self) -> Vec<Value> {
        self.questions().iter().map(|id| Self::interrupt(id)).collect()
    }

    /// Its state as the server sends it with those of its subgraphs.
    fn state(&self) -> Value {
        let mut tasks: Vec<_> = self.children.iter().map(|child| {
            let done = || json!({"messages": child.written()});
            let result = if child.status == Status::Done { done() } else { Value::Null };
            let state = if child.waits() { child.state() } else { Value::Null };
            json!({"id": child.id, "name": child.name, "interrupts": child.interrupts(), "checkpoint": null, "state": state, "result": result})
        }).collect();
        if self.status == Status::Asks {
            tasks.push(json!({"id": format!("q{}", self.id), "name": "ask", "interrupts": self.interrupts(), "checkpoint": null, "state": null, "result": null}));
        }
        if self.status == Status::Done {
            tasks.clear();
        }
        json!({"values": {"messages": self.messages}, "next": [], "tasks": tasks, "checkpoint": {"checkpoint_id": "k", "checkpoint_ns": self.namespace}})
    }

    /// What clients are to hold: the id and the subagent of each message.
    fn held(&self, out: &mut Vec<(String, Option<String>)>) {
        let agent = (!self.namespace.is_empty()).then(|| self.id.clone());
        // Clients are not shown the words that a tool makes up.
        let is_given = |message: &&Value| message["type"] == "human" && message["id"] != "h";
        let done = self.children.iter().filter(|child| child.status == Status::Done);
        let results: Vec<_> = done.flat_map(Self::written).collect();
        for message in self.messages.iter().filter(|message| !is_given(message)).chain(&results) {
            let id = message["id"].as_str().unwrap();
            if !out.iter().any(|(known, _)| known == id) {
                out.push((id.to_owned(), agent.clone()));
            }
        }
        for child in self.children.iter().filter(|child| child.waits()) {
            child.held(out);
        }
    }
}

/// The parts of tasks that run at once.
fn interleaved(told: Vec<Vec<ScriptPart>>) -> Vec<ScriptPart> {
    let longest = told.iter().map(Vec::len).max().unwrap_or_default();
    let mut queues: Vec<_> = told.into_iter().map(Vec::into_iter).collect();
    (0..longest)
        .flat_map(|_| queues.iter_mut().filter_map(Iterator::next).collect::<Vec<_>>())
        .collect()
}

fn plans() -> impl Strategy<Value = Vec<Plan>> {
    let kind = || prop_oneof![Just(Kind::Node), Just(Kind::Tool)];
    let leaf = (kind(), prop::bool::weighted(0.7));
    let leaf = leaf.prop_map(|(kind, asks)| Plan { kind, asks, children: Vec::new() });
    let tree = leaf.prop_recursive(3, 10, 3, move |inner| {
        (kind(), prop::collection::vec(inner, 1..4)).prop_map(|(kind, children)| Plan {
            kind,
            asks: false,
            children,
        })
    });
    prop::collection::vec(tree, 1..4)
}

/// A thread of this graph after its first run, and the parts of that run.
fn thread(plans: &[Plan]) -> (Graph, Vec<ScriptPart>) {
    let plan = Plan { kind: Kind::Node, asks: false, children: plans.to_vec() };
    let mut root = Graph::new(&plan, "", &mut 0);
    let mut parts = vec![part("metadata", "", &json!({"run_id": "R", "attempt": 1}))];
    root.start(vec![json!({"type": "human", "id": "h", "content": "go"})], &mut parts);
    end_run(&root, &mut parts);
    (root, parts)
}

fn end_run(root: &Graph, parts: &mut Vec<ScriptPart>) {
    let interrupts = root.interrupts();
    if !interrupts.is_empty() {
        parts.push(part("updates", "", &json!({"__interrupt__": interrupts})));
        root.tell_state(parts);
    }
}

fn run(
    translator: Translator,
    parts: &[ScriptPart],
    state: Option<&Graph>,
) -> (Translator, Vec<RunEvent>) {
    let (mut translator, mut out) = (translator, Vec::new());
    translator.start(&mut out);
    capture::feed(&mut translator, &generate::bytes(parts, false), &mut out);
    if let Some(state) = state {
        let state = state.state().to_string();
        translator.on_state(&ThreadState::parse(&state).unwrap(), &mut out);
    }
    translator.on_end(StreamEnd::Succeeded, &mut out);
    (translator, out)
}

/// A viewer of the idle thread.
fn late(root: &Graph) -> (Translator, Vec<RunEvent>) {
    let mut translator = Translator::named("T", None, "connect");
    let mut out = Vec::new();
    let state = root.state().to_string();
    translator.start(&mut out);
    translator.on_state(&ThreadState::parse(&state).unwrap(), &mut out);
    translator.on_end(StreamEnd::Idle { last: LastRun::Ended }, &mut out);
    (translator, out)
}

fn ids(view: &View) -> Vec<String> {
    view.messages().iter().map(|message| message.id.to_string()).collect()
}

fn wanted(root: &Graph) -> Vec<String> {
    let mut held = Vec::new();
    root.held(&mut held);
    held.into_iter().map(|(id, _)| id).collect()
}

/// The questions at a run's end, each with the call that it names.
fn asked(events: &[RunEvent]) -> Vec<(String, Option<String>)> {
    let Some(RunEvent::Ended { outcome: Outcome::Interrupted(questions), .. }) = events.last()
    else {
        return Vec::new();
    };
    let mut asked: Vec<_> = questions
        .iter()
        .map(|question| {
            let Ask::Approval { actions, .. } = &question.ask else { panic!("{question:?}") };
            (question.id.to_string(), actions[0].call_id.as_deref().map(str::to_owned))
        })
        .collect();
    asked.sort();
    asked
}

/// What viewers hold after the end, as the id of the end has it.
fn digest(translator: &Translator, events: &[RunEvent]) -> u64 {
    let Some(RunEvent::Ended { outcome, .. }) = events.last() else { panic!("no end") };
    translator.shown(None, outcome)
}

/// The calls whose tools are shown as waiting.
fn waiting(view: &View, root: &Graph) -> HashSet<String> {
    let waits = |call: &String| {
        let activity = view.activity(&format!("{call}:activity"));
        matches!(activity, Some(Activity::Tool { status: ToolStatus::Waiting, .. }))
    };
    root.calls().into_iter().filter(waits).collect()
}

fn named(root: &Graph) -> Vec<(String, Option<String>)> {
    let call = |id: &String| format!("k{}", id.trim_start_matches('0'));
    let mut named: Vec<_> =
        root.questions().iter().map(|id| (id.clone(), Some(call(id)))).collect();
    named.sort();
    named
}

fn is_legal(events: &[Value]) -> Result<(), String> {
    let mut verifier = Verifier::new();
    for event in events {
        verifier.check(event).map_err(|why| format!("{event}: {why}"))?;
    }
    verifier.finish()
}

/// The messages of a client of a version that has applied these events, over those that it held.
fn client(version: Version, held: Held, sent: &Value, events: &[RunEvent]) -> Held {
    let mut input = json!({"threadId": "T", "runId": "r", "messages": sent});
    if version == Version::V1 {
        input["protocolVersion"] = json!("1.0");
    }
    let input = Input::parse(input.to_string().as_bytes()).unwrap();
    let client = Client { version, ..input.client() };
    let told = capture::project(events, Projector::new(client, input.held()));
    assert_eq!(is_legal(&told.events), Ok(()));
    if version == Version::Legacy {
        let is_new = |event: &&Value| event["type"].as_str().unwrap().starts_with("SUBAGENT_");
        assert_eq!(told.events.iter().find(is_new), None);
    }
    let mut held = held;
    for event in &told.events {
        held.apply(event).unwrap();
    }
    held
}

/// What a client sends along: its messages without activities.
fn sent(held: &Held) -> Value {
    let is_sent = |message: &&Value| message["role"] != "activity";
    held.messages.iter().filter(is_sent).cloned().collect()
}

fn shown(held: &Held) -> Vec<String> {
    let sent = sent(held);
    sent.as_array().unwrap().iter().map(|m| m["id"].as_str().unwrap().to_owned()).collect()
}

const CASES: u32 = 96;

proptest! {
    #![proptest_config(generate::config(CASES))]

    #[test]
    fn who_follows_and_who_comes_late_hold_what_the_thread_and_its_waiting_tasks_have(
        plans in plans(),
        answers in prop::collection::vec(any::<u16>(), 4),
        missed in any::<(prop::sample::Index, prop::sample::Index)>(),
    ) {
        let (mut root, mut parts) = thread(&plans);
        let mut translator = Translator::new("T", "R");
        let mut clients = [(Version::V1, Held::default()), (Version::Legacy, Held::default())];
        let mut editor = (acp::newcomer(), acp::Session::default());
        for answer in answers {
            let (run, events) = run(translator, &parts, root.waits().then_some(&root));
            let view = run.view();
            prop_assert_eq!(ids(view), wanted(&root));
            prop_assert_eq!(asked(&events), named(&root));
            let open: HashSet<_> = root.open_calls().into_iter().collect();
            prop_assert_eq!(waiting(view, &root), open.clone());
            for (version, held) in &mut clients {
                let before = sent(held);
                *held = client(*version, held.clone(), &before, &events);
                prop_assert_eq!(shown(held), wanted(&root));
            }
            let more = acp::project(&mut editor.0, &events);
            editor.1.extend(more);
            prop_assert_eq!(editor.1.check(), Ok(()));

            // The idle thread, and the end of the run, for somebody who holds nothing.
            let (thread, late_events) = late(&root);
            let idle = thread.view();
            prop_assert_eq!(ids(idle), wanted(&root));
            prop_assert_eq!(asked(&late_events), named(&root));
            prop_assert_eq!(waiting(idle, &root), open);
            prop_assert_eq!(digest(&thread, &late_events), digest(&run, &events));
            for view in [idle, view] {
                let resync = run::resync(view, Viewer::New, run::EmitOptions::default()).unwrap();
                let mut all = vec![events[0].clone()];
                all.extend(resync);
                all.push(events.last().unwrap().clone());
                for version in [Version::V1, Version::Legacy] {
                    let held = client(version, Held::default(), &json!([]), &all);
                    prop_assert_eq!(shown(&held), wanted(&root));
                }
            }
            // Whoever has missed some of the run.
            if let Some(seen) = generate::with_a_gap(&events, missed) {
                prop_assert_eq!(ids(&generate::fold(&seen)), wanted(&root));
            }
            if !root.waits() {
                return Ok(());
            }
            translator = Translator::new("T", "R").resuming();
            let open = root.questions();
            let chosen = |at: &usize| open.len() == 1 || answer >> (at % 16) & 1 == 1;
            let answered = (0..open.len()).filter(chosen).map(|at| open[at].clone()).collect();
            parts = vec![part("metadata", "", &json!({"run_id": "R", "attempt": 1}))];
            root.resume(&answered, &mut parts);
            end_run(&root, &mut parts);
        }
    }

    #[test]
    fn a_state_lacks_what_the_server_does_not_say_and_takes_it_in(plans in plans()) {
        let (root, _) = thread(&plans);
        let key = MessagesKey::default();
        let whole = root.state();
        let mut bare = whole.clone();
        let mut removed = Vec::new();
        for (at, child) in root.children.iter().enumerate().filter(|(_, child)| child.waits()) {
            bare["tasks"][at]["state"] = Value::Null;
            if child.kind == Kind::Node {
                bare["tasks"][at]["checkpoint"] = json!({"checkpoint_ns": child.namespace});
            }
            removed.push(child);
        }
        let below = StatesBelow::of(&bare.to_string(), &key);
        if removed.iter().any(|child| child.kind == Kind::Node) {
            prop_assert_eq!(below, StatesBelow::Lacking);
            return Ok(());
        }
        let hidden: Vec<_> = removed.iter().map(|child| child.namespace.clone()).collect();
        let expected =
            if hidden.is_empty() { StatesBelow::Whole } else { StatesBelow::Hidden(hidden) };
        prop_assert_eq!(below, expected);
        let mut text = bare.to_string();
        for child in removed {
            text = with_state(&text, &child.namespace, &child.state().to_string()).unwrap();
        }
        prop_assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), whole);
    }
}

// === single graphs ===

fn subgraph(kind: Kind, asks: bool, children: &[Plan]) -> Plan {
    Plan { kind, asks, children: children.to_vec() }
}

/// Graphs in which something asks below the root.
fn asking() -> Vec<(&'static str, Vec<Plan>)> {
    let node = subgraph(Kind::Node, true, &[]);
    let tool = subgraph(Kind::Tool, true, &[]);
    let done = subgraph(Kind::Tool, false, &[]);
    vec![
        ("an agent that is a node", vec![node.clone()]),
        ("an agent that a tool calls", vec![tool.clone()]),
        ("an agent in an agent", vec![subgraph(Kind::Node, false, std::slice::from_ref(&node))]),
        (
            "a node of a tool's agent",
            vec![subgraph(Kind::Tool, false, std::slice::from_ref(&node))],
        ),
        ("two tools' agents with equal calls", vec![tool.clone(), tool.clone()]),
        ("two nodes at once", vec![node.clone(), node]),
        ("beside one that is done", vec![done, tool]),
    ]
}

#[test]
fn a_question_below_the_root_leaves_the_words_and_names_the_call() {
    for (what, plans) in asking() {
        let (root, parts) = thread(&plans);
        let (run, events) = run(Translator::new("T", "R"), &parts, Some(&root));
        let (idle, idle_events) = late(&root);
        for (view, events) in [(run.view(), &events), (idle.view(), &idle_events)] {
            assert_eq!(ids(view), wanted(&root), "{what}");
            assert_eq!(asked(events), named(&root), "{what}");
            let open: HashSet<_> = root.open_calls().into_iter().collect();
            assert_eq!(waiting(view, &root), open, "{what}");
        }
    }
}

#[test]
fn an_editor_gets_one_card_for_the_call_that_a_question_is_about() {
    for (what, plans) in asking() {
        let (root, parts) = thread(&plans);
        let (_, events) = run(Translator::new("T", "R"), &parts, Some(&root));
        let session = acp::project(&mut acp::newcomer(), &events);
        assert_eq!(session.check(), Ok(()), "{what}");
        let shown = session.calls();
        for (question, call) in asked(&events) {
            let call = call.unwrap();
            assert!(shown.contains_key(&call), "{what}: {question} names {call}");
        }
        assert_eq!(shown.len(), root.calls().len(), "{what}: {:?}", shown.keys());
    }
}

#[test]
fn a_client_without_a_version_gets_no_subagents_and_no_steps_of_them() {
    for (what, plans) in asking() {
        let (root, parts) = thread(&plans);
        let (_, events) = run(Translator::new("T", "R"), &parts, Some(&root));
        let input = json!({"threadId": "T", "runId": "r", "messages": []}).to_string();
        let input = Input::parse(input.as_bytes()).unwrap();
        let told = capture::project(&events, Projector::new(input.client(), input.held()));
        for event in &told.events {
            let kind = event["type"].as_str().unwrap();
            let is_step = kind.starts_with("STEP_") && event.get("subagentRunId").is_some();
            assert!(!kind.starts_with("SUBAGENT_") && !is_step, "{what}: {event}");
        }
    }
}

/// A run of a root agent that calls a tool, and of a subgraph that goes on after it. The subgraph
/// may answer the call.
fn handed_off(answers: bool) -> Vec<ScriptPart> {
    let mut messages = vec![
        json!({"type": "human", "id": "h", "content": "refund"}),
        ai("a", "", &[call("c", "to_billing", &json!({"topic": "refund"}))]),
    ];
    let mut parts = vec![
        part("metadata", "", &json!({"run_id": "R", "attempt": 1})),
        part("values", "", &json!({"messages": messages[..1]})),
        part("updates", "", &json!({"assistant": {"messages": [messages[1]]}})),
        part("values", "", &json!({"messages": messages})),
        part("values", "billing:2", &json!({"messages": messages})),
    ];
    if answers {
        let result = json!({"type": "tool", "id": "t", "tool_call_id": "c", "content": "yours"});
        parts.push(part("updates", "billing:2", &json!({"enter": {"messages": [result]}})));
        messages.push(result);
        parts.push(part("values", "billing:2", &json!({"messages": messages})));
    }
    let origin = json!({"langgraph_node": "model", "langgraph_checkpoint_ns": "billing:2|model:3"});
    for text in ["Your refund ", "is on its way."] {
        let chunk = json!({"type": "AIMessageChunk", "id": "b", "content": text});
        parts.push(part("messages", "billing:2", &json!([chunk, origin])));
    }
    messages.push(ai("b", "Your refund is on its way.", &[]));
    let spoken = json!({"model": {"messages": [messages.last()]}});
    parts.push(part("updates", "billing:2", &spoken));
    parts.push(part("updates", "", &json!({"billing": {"messages": messages}})));
    parts.push(part("values", "", &json!({"messages": messages})));
    parts
}

#[test]
fn the_words_of_a_subgraph_that_goes_on_after_a_call_stream_to_an_editor() {
    for answers in [true, false] {
        let mut translator = Translator::new("T", "R");
        let (mut editor, mut session) = (acp::newcomer(), acp::Session::default());
        let mut lengths = Vec::new();
        for script in handed_off(answers) {
            let mut out = Vec::new();
            capture::feed(&mut translator, &generate::bytes(&[script], false), &mut out);
            session.extend(acp::project(&mut editor, &out));
            lengths.push(session.text_of("b").unwrap_or_default().len());
        }
        lengths.dedup();
        assert_eq!(lengths, [0, 12, 26], "answered: {answers}");
        let mut out = Vec::new();
        translator.on_end(StreamEnd::Succeeded, &mut out);
        session.extend(acp::project(&mut editor, &out));
        assert_eq!(session.text_of("b").as_deref(), Some("Your refund is on its way."));
    }
}

#[test]
fn the_steps_of_agents_that_are_the_first_nodes_end_with_their_nodes() {
    let steps = |names: &[&str]| {
        let mut parts = vec![part("metadata", "", &json!({"run_id": "R", "attempt": 1}))];
        for node in ["model", "tools", "model"] {
            for name in names {
                let ns = format!("{name}:1|{node}:{name}");
                let origin = json!({"langgraph_node": node, "langgraph_checkpoint_ns": ns});
                let id = format!("{name}{}", parts.len());
                let chunk = json!({"type": "AIMessageChunk", "id": id, "content": "x"});
                let ns = format!("{name}:1");
                parts.push(part("messages", &ns, &json!([chunk, origin])));
                let update = json!({ node: {"messages": [ai(&id, "x", &[])]} });
                parts.push(part("updates", &ns, &update));
            }
        }
        let (_, events) = run(Translator::new("T", "R"), &parts, None);
        let mut open = HashSet::new();
        let mut most = 0;
        for event in &events {
            if let RunEvent::StepStarted { name, agent: Some(agent) } = event {
                assert!(open.insert((name, agent)), "{name} is open already");
                assert!(!name.contains('('), "a step of that node was open: {name}");
                most = most.max(open.len());
            } else if let RunEvent::StepFinished { name, agent: Some(agent) } = event {
                open.remove(&(name, agent));
            }
        }
        most
    };
    assert_eq!(steps(&["one"]), 1);
    assert_eq!(steps(&["one", "two", "three"]), 1, "each part ends its step");
}

#[test]
fn a_place_of_a_state_is_no_state_and_a_result_answers_the_newest_call_of_its_id() {
    let key = MessagesKey::default();
    let task = |more: &Value| {
        let mut task = json!({"id": "t", "name": "tools", "interrupts": [Graph::interrupt("q")],
            "checkpoint": null, "state": null, "result": null});
        task.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        task
    };
    let state =
        |messages: &Value, task: Value| json!({"values": {"messages": messages}, "tasks": [task]});
    // So aegra sends it.
    let place = json!({"state": {"configurable": {"checkpoint_ns": "tools:t"}}});
    let body = state(&json!([]), task(&place)).to_string();
    assert_eq!(StatesBelow::of(&body, &key), StatesBelow::Lacking);
    // The model has used the id of an earlier turn again.
    let called = |id: &str| ai(id, "", &[call("c", "task", &json!({"description": "x"}))]);
    let result = json!({"type": "tool", "id": "r", "tool_call_id": "c", "content": "done"});
    let hidden = || StatesBelow::Hidden(vec!["tools:t".to_owned()]);
    let asks = json!({"interrupts": [{"id": "q", "value": {
        "action_requests": [{"name": "task", "args": {"description": "x"}}],
        "review_configs": [{"action_name": "task", "allowed_decisions": ["approve"]}]}}]});
    for (messages, about_the_call) in [
        (json!([called("a"), result, called("b")]), StatesBelow::Whole),
        (json!([called("a"), result]), hidden()),
    ] {
        let body = state(&messages, task(&asks)).to_string();
        assert_eq!(StatesBelow::of(&body, &key), about_the_call);
        // A question that names no call may come from a graph that a function has called.
        let body = state(&messages, task(&json!({}))).to_string();
        assert_eq!(StatesBelow::of(&body, &key), hidden());
    }
}
