//! A gateway and its LangGraph server, as small as the bridge's tests allow, and an editor. A cut
//! loses what is on its way in both directions. Runs go on.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde_json::{Value, json};
use uuid::Uuid;

use super::super::{Machine, MachineAction};

/// How many pieces of text a run has.
const PIECES: usize = 4;

/// The thread that exists from the beginning.
pub(super) const OLD: &str = "old";

#[derive(Debug, Default)]
pub(super) struct Graph {
    pub(super) threads: BTreeMap<String, Thread>,
    made: usize,
}

#[derive(Debug, Default)]
pub(super) struct Thread {
    /// The kind, the id and the text of each message.
    pub(super) messages: Vec<(&'static str, String, String)>,
    /// The same in pieces. A piece's event id is its place, counted from one.
    log: Vec<(&'static str, String, String)>,
    /// The prompts whose runs were started.
    pub(super) runs: Vec<String>,
    /// How many pieces the live run has still to say.
    left: usize,
}

#[derive(Debug, Default)]
struct Connection {
    is_initialized: bool,
    /// Whether the client is shown a session's runs.
    sessions: HashMap<String, bool>,
    /// The requests that are answered at the end of the run of a session.
    waiting: Vec<(String, Value)>,
}

/// What the editor has.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub(super) answers: BTreeMap<u64, Vec<Value>>,
    /// The text of each message.
    pub(super) texts: BTreeMap<String, String>,
    pub(super) plans: Vec<String>,
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) machine: Machine,
    pub(super) graph: Graph,
    pub(super) held: Held,
    /// Every line that was sent to the gateway.
    pub(super) sent: Vec<Value>,
    /// Whether the gateway finds no event any more.
    pub(super) is_forgetful: bool,
    connection: Option<Connection>,
    /// What is on its way.
    to_gateway: VecDeque<Value>,
    from_gateway: VecDeque<Value>,
}

// === impl World ===

impl World {
    pub(super) fn new() -> Self {
        let mut graph = Graph::default();
        let messages = vec![
            ("user_message_chunk", "u0".to_owned(), "before".to_owned()),
            ("agent_message_chunk", "a0".to_owned(), "long ago".to_owned()),
        ];
        let old = Thread { log: messages.clone(), messages, ..Thread::default() };
        graph.threads.insert(OLD.to_owned(), old);
        Self {
            machine: Machine::new("http://gw".to_owned(), Uuid::from_u128(7)),
            graph,
            held: Held::default(),
            sent: Vec::new(),
            is_forgetful: false,
            connection: None,
            to_gateway: VecDeque::new(),
            from_gateway: VecDeque::new(),
        }
    }

    pub(super) fn request(&mut self, id: u64, method: &str, params: &Value) {
        let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.machine.editor_said(line.to_string().as_bytes());
        self.act();
    }

    pub(super) fn notify(&mut self, method: &str, params: &Value) {
        let line = json!({"jsonrpc": "2.0", "method": method, "params": params});
        self.machine.editor_said(line.to_string().as_bytes());
        self.act();
    }

    pub(super) fn connect(&mut self) {
        if self.connection.is_none() {
            self.connection = Some(Connection::default());
            self.machine.connected();
            self.act();
        }
    }

    pub(super) fn cut(&mut self) {
        if self.connection.take().is_some() {
            self.to_gateway.clear();
            self.from_gateway.clear();
            self.machine.lost();
            self.act();
        }
    }

    /// One line arrives at the gateway.
    pub(super) fn up(&mut self) -> bool {
        let Some(line) = self.to_gateway.pop_front() else { return false };
        self.gateway(&line);
        true
    }

    /// One frame arrives at the bridge.
    pub(super) fn down(&mut self) -> bool {
        let Some(frame) = self.from_gateway.pop_front() else { return false };
        self.machine.gateway_said(&frame.to_string());
        self.act();
        true
    }

    /// Every live run says a piece.
    pub(super) fn tick(&mut self) -> bool {
        let mut is_live = false;
        let mut told = Vec::new();
        for (id, thread) in &mut self.graph.threads {
            if thread.left == 0 {
                continue;
            }
            is_live = true;
            let piece = format!("{} ", PIECES - thread.left);
            thread.left -= 1;
            let (_, message, text) = thread.messages.last_mut().unwrap();
            text.push_str(&piece);
            let message = message.clone();
            thread.log.push(("agent_message_chunk", message.clone(), piece.clone()));
            told.push((id.clone(), message, piece, thread.log.len(), thread.left == 0));
        }
        for (session, message, piece, at, is_over) in told {
            let Some(connection) = &mut self.connection else { continue };
            if connection.sessions.get(&session) == Some(&true) {
                let said = chunk(&session, "agent_message_chunk", &message, &piece);
                self.from_gateway.push_back(with_id(said, at));
            }
            if is_over {
                connection.waiting.retain(|(of, id)| {
                    let is_of = *of == session;
                    if is_of {
                        self.from_gateway.push_back(result(id, &json!({"stopReason": "end_turn"})));
                    }
                    !is_of
                });
            }
        }
        is_live
    }

    /// Lets everything arrive and end, over a connection that lasts.
    pub(super) fn settle(&mut self) {
        self.connect();
        while self.up() || self.down() || self.tick() {}
    }

    fn act(&mut self) {
        for action in self.machine.actions() {
            match action {
                MachineAction::ToGateway(line) => {
                    assert!(line.ends_with('\n') && line.matches('\n').count() == 1, "{line}");
                    let line: Value = serde_json::from_str(&line).unwrap();
                    self.sent.push(line.clone());
                    if self.connection.is_some() {
                        self.to_gateway.push_back(line);
                    }
                }
                MachineAction::ToEditor(line) => self.editor(&line),
                MachineAction::Warn(_) => {}
                MachineAction::Disconnect(_) => self.cut(),
            }
        }
    }

    fn editor(&mut self, line: &str) {
        assert!(line.ends_with('\n') && line.matches('\n').count() == 1, "{line}");
        let line: Value = serde_json::from_str(line).unwrap();
        if let Some(id) = line["id"].as_u64() {
            return self.held.answers.entry(id).or_default().push(line);
        }
        let update = &line["params"]["update"];
        if update["sessionUpdate"] == "plan" {
            return self.held.plans.push(line["params"]["sessionId"].to_string());
        }
        let id = update["messageId"].as_str().unwrap_or_else(|| panic!("{line}")).to_owned();
        let text = update["content"]["text"].as_str().unwrap();
        self.held.texts.entry(id).or_default().push_str(text);
    }

    // --- the gateway ---

    fn gateway(&mut self, line: &Value) {
        let Some(connection) = &mut self.connection else { return };
        let (id, params) = (&line["id"], &line["params"]);
        let method = line["method"].as_str().unwrap();
        let session = params["sessionId"].as_str().unwrap_or_default().to_owned();
        let out = &mut self.from_gateway;
        if method == "initialize" {
            assert!(!connection.is_initialized, "initialised twice");
            connection.is_initialized = true;
            let meta = json!({"threadway": {"promptEnd": {}}});
            let answer = json!({"protocolVersion": 1, "agentCapabilities": {"_meta": meta}});
            return out.push_back(result(id, &answer));
        }
        assert!(connection.is_initialized, "{method} before initialize");
        let is_open = connection.sessions.contains_key(&session);
        match method {
            "session/new" => {
                self.graph.made += 1;
                let made = format!("new-{}", self.graph.made);
                connection.sessions.insert(made.clone(), true);
                out.push_back(result(id, &json!({"sessionId": made})));
            }
            "session/load" => {
                let Some(thread) = self.graph.threads.get(&session) else {
                    return out.push_back(refused(id, -32002));
                };
                let after = params["_meta"]["threadway"]["eventId"].as_str();
                let after = after.filter(|_| !self.is_forgetful);
                out.extend(loaded(thread, &session, id, after));
                connection.sessions.insert(session, true);
            }
            "session/resume" => {
                if !self.graph.threads.contains_key(&session) {
                    return out.push_back(refused(id, -32002));
                }
                connection.sessions.insert(session, false);
                out.push_back(result(id, &json!({})));
            }
            "session/fork" => {
                let thread = self.graph.threads.get(&session);
                if thread.is_none() && !is_open {
                    return out.push_back(refused(id, -32002));
                }
                let messages = thread.map(|thread| thread.messages.clone());
                self.graph.made += 1;
                let made = format!("fork-{}", self.graph.made);
                if let Some(messages) = messages {
                    let copy = Thread { messages, ..Thread::default() };
                    self.graph.threads.insert(made.clone(), copy);
                }
                connection.sessions.insert(made.clone(), true);
                out.push_back(result(id, &json!({"sessionId": made})));
            }
            "session/prompt" if !is_open => out.push_back(refused(id, -32002)),
            "session/prompt" => {
                let thread = self.graph.threads.entry(session.clone()).or_default();
                if thread.left > 0 {
                    return out.push_back(refused(id, -32600));
                }
                let prompt = params["_meta"]["threadway"]["promptId"].as_str().unwrap().to_owned();
                let own = ("user_message_chunk", prompt.clone(), "hi".to_owned());
                thread.log.push(own.clone());
                thread.messages.push(own);
                let said = format!("of-{prompt}");
                thread.messages.push(("agent_message_chunk", said, String::new()));
                thread.runs.push(prompt);
                thread.left = PIECES;
                connection.sessions.insert(session.clone(), true);
                connection.waiting.push((session, id.clone()));
            }
            "_threadway/prompt_end" => {
                assert!(is_open, "the end of a prompt in a session that is not open");
                let thread = self.graph.threads.get(&session);
                let prompt = params["promptId"].as_str().unwrap();
                match thread.filter(|thread| thread.runs.iter().any(|run| run == prompt)) {
                    None => out.push_back(refused(id, -32002)),
                    Some(thread) if thread.left > 0 => {
                        connection.waiting.push((session, id.clone()));
                    }
                    Some(_) => out.push_back(result(id, &json!({"stopReason": "end_turn"}))),
                }
            }
            "session/cancel" => {}
            "session/close" => {
                connection.sessions.remove(&session);
                out.push_back(result(id, &json!({})));
            }
            "session/set_mode" if is_open => out.push_back(result(id, &json!({}))),
            "session/set_mode" => out.push_back(refused(id, -32002)),
            "session/list" => out.push_back(result(id, &json!({"sessions": []}))),
            other => panic!("{other}"),
        }
    }
}

fn told(session: &str, update: &Value) -> Value {
    let params = json!({"sessionId": session, "update": update});
    json!({"jsonrpc": "2.0", "method": "session/update", "params": params})
}

/// The frames that load a session after an event, or from its beginning.
fn loaded(thread: &Thread, session: &str, id: &Value, after: Option<&str>) -> Vec<Value> {
    let mut out = Vec::new();
    if let Some(after) = after {
        let at = after.parse().unwrap();
        for (number, (kind, message, text)) in thread.log.iter().enumerate().skip(at) {
            out.push(with_id(chunk(session, kind, message, text), number + 1));
        }
    } else {
        let messages = thread.messages.iter();
        out.extend(messages.map(|(kind, message, text)| chunk(session, kind, message, text)));
        out.push(told(session, &json!({"sessionUpdate": "plan", "entries": []})));
    }
    let position = told(session, &json!({"sessionUpdate": "session_info_update"}));
    out.push(with_id(position, thread.log.len()));
    let meta = json!({"threadway": {"isResumed": after.is_some()}});
    out.push(result(id, &json!({"_meta": meta})));
    out
}

fn with_id(mut update: Value, at: usize) -> Value {
    let meta = json!({"threadway": {"eventId": at.to_string()}});
    update["params"]["update"]["_meta"] = meta;
    update
}

fn chunk(session: &str, kind: &str, message: &str, text: &str) -> Value {
    let content = json!({"type": "text", "text": text});
    told(session, &json!({"sessionUpdate": kind, "content": content, "messageId": message}))
}

fn result(id: &Value, result: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

fn refused(id: &Value, code: i64) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": "no"}})
}
