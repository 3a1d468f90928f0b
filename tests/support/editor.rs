//! An ACP client for tests. Checks every frame of both directions against the protocol's schema.
//!
//! `acp-v1.json` is the official schema. That schema accepts unknown members, and null for optional
//! ones. This client refuses both: an unknown member is a spelling mistake, and an optional member
//! is absent or has a value.
//!
//! `acp-v1-unstable.json` has what the agent has of the official schema of what is not stable yet:
//! `session/fork` and its capability, and session cursors.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

use jsonschema::Validator;
use serde_json::{Value, json};
use threadway::agents;
use threadway::bridge::{self, RemoteGateway};
use threadway::credentials::Credentials;
use threadway::metrics::Metrics;
use threadway::runs::{DEFAULT_LOG_BYTES, OwnerPolicy};
use threadway::sessions::{Authentication, Connection, Outbox, Service, ServiceOptions, Settings};
use threadway::stdio;
use threadway::threads::DEFAULT_STATE_READS_PER_SECOND;
use threadway::upstream::Client;
use threadway_translate::acp::choice::Mode;
use threadway_translate::acp::permission::Rules;
use threadway_translate::run::ErrorDetail;
use tokio::io::{
    AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf,
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::langgraph::{LangGraph, soon};

/// The capacity of the pipe, in bytes.
const PIPE_BYTES: usize = 64 * 1024;

/// The working directory of every session.
pub(crate) const CWD: &str = "/srv/app";

/// The client, connected to an agent of its own.
pub(crate) struct Editor {
    pub(crate) reader: BufReader<ReadHalf<DuplexStream>>,
    /// `None` after the client has closed its end.
    pub(crate) writer: Option<WriteHalf<DuplexStream>>,
    pub(crate) service: Arc<Service>,
    pub(crate) outbox: Outbox,
    serving: JoinSet<std::io::Result<()>>,
    frames: Frames,
    /// The id of the last request.
    last: u64,
}

/// The settings of an editor and its agent.
pub(crate) struct Setup {
    pub(crate) settings: Settings,
    pub(crate) owners: OwnerPolicy,
    /// The directory of the stored keys.
    pub(crate) directory: Option<std::path::PathBuf>,
    /// The capabilities that the client announces.
    pub(crate) capabilities: Value,
    pub(crate) log_bytes: usize,
    /// The agent of new sessions, and the state keys of each agent's conversation.
    pub(crate) agent: Option<String>,
    pub(crate) messages_keys: agents::MessagesKeys,
}

impl Setup {
    /// The defaults, with these modes in the configuration.
    pub(crate) fn with_modes(ids: &[&str]) -> Self {
        let mode = |id: &&str| Mode {
            id: (*id).to_owned(),
            name: (*id).to_owned(),
            description: None,
            assistant: None,
            configurable: None,
            permissions: Rules::default(),
        };
        let modes = ids.iter().map(mode).collect();
        Self { settings: Settings { modes, ..Settings::default() }, ..Self::default() }
    }
}

/// The frames of a connection, checked.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    /// The methods of the open requests, by id.
    sent: HashMap<String, String>,
    asked: HashMap<String, String>,
}

/// The frames up to the response to a request, and that response.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) updates: Vec<Value>,
    /// Requests to the client, and their cancellations.
    pub(crate) requests: Vec<Value>,
    pub(crate) response: Value,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            owners: OwnerPolicy::Continue,
            directory: None,
            capabilities: json!({}),
            log_bytes: DEFAULT_LOG_BYTES,
            agent: None,
            messages_keys: agents::MessagesKeys::default(),
        }
    }
}

// === impl Setup ===

impl Setup {
    /// An editor that can show forms.
    pub(crate) fn with_forms() -> Self {
        Self { capabilities: json!({"elicitation": {"form": {}}}), ..Self::default() }
    }

    /// The agent of one editor, in front of a server.
    pub(crate) fn service(&self, url: &str) -> Arc<Service> {
        let client = Client::new(url.parse().unwrap(), None).unwrap();
        let upstream = agents::Upstream { name: "default".to_owned(), client };
        let credentials =
            Credentials::new(self.directory.as_deref().map(Path::new), upstream.client.base());
        if credentials.has_key() {
            upstream.client.use_key(credentials.key());
        }
        let agents = agents::Agents::new(vec![upstream.clone()], Vec::new());
        let agents = agents.with_messages_keys(self.messages_keys.clone());
        Arc::new(Service::new(ServiceOptions {
            agents,
            upstream,
            agent: self.agent.clone(),
            settings: self.settings.clone(),
            credentials,
            owners: self.owners,
            error_detail: ErrorDetail::default(),
            log_bytes: self.log_bytes,
            state_reads_per_second: DEFAULT_STATE_READS_PER_SECOND,
            metrics: Metrics::default(),
        }))
    }
}

/// A server, and an editor that is connected to an agent in front of it.
pub(crate) async fn open() -> (LangGraph, Editor) {
    open_with(Setup::default()).await
}

pub(crate) async fn open_with(setup: Setup) -> (LangGraph, Editor) {
    let server = LangGraph::start().await;
    let editor = Editor::initialized(&server.url, &setup).await;
    (server, editor)
}

// === impl Editor ===

impl Editor {
    /// An editor that has sent nothing yet.
    pub(crate) fn start(url: &str, setup: &Setup) -> Self {
        Self::of(setup.service(url))
    }

    /// Another client of an agent, which has sent nothing yet.
    pub(crate) fn of(service: Arc<Service>) -> Self {
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        let (reader, writer) = tokio::io::split(ours);
        let mut serving = JoinSet::new();
        let outbox = Outbox::new();
        serving.spawn(serve(Arc::clone(&service), outbox.clone(), theirs));
        let frames = Frames::default();
        let reader = BufReader::new(reader);
        Self { reader, writer: Some(writer), service, outbox, serving, frames, last: 0 }
    }

    /// An editor behind a bridge to a gateway elsewhere.
    pub(crate) fn bridged(gateway: RemoteGateway) -> Self {
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        let (reader, writer) = tokio::io::split(ours);
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let (reader, writer) = tokio::io::split(theirs);
            bridge::relay(&gateway, reader, writer, &CancellationToken::new()).await
        });
        let reader = BufReader::new(reader);
        // The bridge has no service; nothing runs here.
        let service = Setup::default().service("http://127.0.0.1:1");
        let (outbox, frames) = (Outbox::new(), Frames::default());
        Self { reader, writer: Some(writer), service, outbox, serving, frames, last: 0 }
    }

    /// An editor that is initialised.
    pub(crate) async fn initialized(url: &str, setup: &Setup) -> Self {
        let mut editor = Self::start(url, setup);
        let params = json!({"protocolVersion": 1, "clientCapabilities": setup.capabilities});
        editor.call("initialize", params).await;
        editor
    }

    /// Sends bytes unchecked.
    pub(crate) async fn raw(&mut self, bytes: impl AsRef<[u8]>) {
        let writer = self.writer.as_mut().expect("the editor has hung up");
        soon("what is sent", writer.write_all(bytes.as_ref())).await.unwrap();
    }

    /// Sends a message after checking it.
    pub(crate) async fn send(&mut self, message: &Value) {
        self.frames.sends(message);
        self.raw(format!("{message}\n")).await;
    }

    /// Sends a request and returns its id.
    pub(crate) async fn request(&mut self, method: &str, params: Value) -> u64 {
        self.last += 1;
        let id = self.last;
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.send(&message).await;
        id
    }

    pub(crate) async fn notify(&mut self, method: &str, params: Value) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params})).await;
    }

    /// Answers a request from the agent.
    pub(crate) async fn reply(&mut self, request: &Value, result: Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": request["id"], "result": result})).await;
    }

    /// The next frame, checked.
    pub(crate) async fn next(&mut self) -> Value {
        let line = self.line().await;
        assert_ne!(line, "", "the agent has closed its end");
        self.frames.comes(&line)
    }

    /// The next line, unchecked; empty at the end.
    pub(crate) async fn line(&mut self) -> String {
        let mut line = String::new();
        soon("a line", self.reader.read_line(&mut line)).await.unwrap();
        line
    }

    /// The frames up to the response to this request.
    pub(crate) async fn until(&mut self, id: u64) -> Told {
        let (mut updates, mut requests) = (Vec::new(), Vec::new());
        loop {
            let frame = self.next().await;
            if frame["method"] == "session/update" {
                updates.push(frame["params"].clone());
            } else if frame.get("method").is_some() {
                requests.push(frame);
            } else {
                assert_eq!(frame["id"], id, "another response came first: {frame}");
                return Told { updates, requests, response: frame };
            }
        }
    }

    /// The updates up to the agent's next request, and that request.
    pub(crate) async fn until_asked(&mut self) -> (Vec<Value>, Value) {
        let mut updates = Vec::new();
        loop {
            let frame = self.next().await;
            match frame["method"].as_str() {
                Some("session/update") => updates.push(frame["params"]["update"].clone()),
                Some(_) => return (updates, frame),
                None => panic!("a response came first: {frame}"),
            }
        }
    }

    /// The next frame, for a request that was sent unchecked.
    pub(crate) async fn next_unchecked(&mut self) -> Value {
        let frame = serde_json::from_str(&self.line().await).unwrap();
        check_method(&frame);
        frame
    }

    /// Reads up to the chunk in which the agent has sent this text.
    pub(crate) async fn until_said(&mut self, text: &str) -> Vec<Value> {
        let mut updates = Vec::new();
        loop {
            let frame = self.next().await;
            assert_eq!(frame["method"], "session/update", "{frame}");
            updates.push(frame["params"]["update"].clone());
            if frame["params"]["update"]["content"]["text"] == text {
                return updates;
            }
        }
    }

    /// All frames up to the end of the connection.
    pub(crate) async fn rest(&mut self) -> String {
        let mut rest = String::new();
        soon("the end", self.reader.read_to_string(&mut rest)).await.unwrap();
        rest.lines().for_each(|line| check_method(&serde_json::from_str(line).expect(line)));
        rest
    }

    /// Sends a request and returns its result.
    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params).await;
        self.until(id).await.result()
    }

    /// Sends a request that must be refused; returns the error's code and message.
    pub(crate) async fn refused(&mut self, method: &str, params: Value) -> (i64, String) {
        let id = self.request(method, params).await;
        self.until(id).await.error()
    }

    /// Sends a line that must be refused; returns the response's id, the error's code and its
    /// message.
    pub(crate) async fn refused_line(&mut self, line: &str) -> (Value, i64, String) {
        self.raw(format!("{line}\n")).await;
        let frame = self.next().await;
        let (code, message) = refusal(&frame);
        (frame["id"].clone(), code, message)
    }

    /// Opens a session and returns its id.
    pub(crate) async fn session(&mut self) -> String {
        let made = self.call("session/new", json!({"cwd": CWD, "mcpServers": []})).await;
        made["sessionId"].as_str().unwrap().to_owned()
    }

    /// Sends a prompt and returns the id of the request.
    pub(crate) async fn prompt(&mut self, session: &str, text: &str) -> u64 {
        let prompt = json!([{"type": "text", "text": text}]);
        self.request("session/prompt", json!({"sessionId": session, "prompt": prompt})).await
    }

    /// Opens a session, and prompts it once, which makes its thread.
    pub(crate) async fn prompted_session(&mut self, server: &mut LangGraph, cwd: &str) -> String {
        let made = self.call("session/new", json!({"cwd": cwd, "mcpServers": []})).await;
        let session = made["sessionId"].as_str().unwrap().to_owned();
        let prompt = self.prompt(&session, "hi").await;
        server.run().await.ends("success", None).await;
        assert_eq!(self.until(prompt).await.stop_reason(), "end_turn");
        session
    }

    pub(crate) async fn cancel(&mut self, session: &str) {
        self.notify("session/cancel", json!({"sessionId": session})).await;
    }

    /// How many bytes wait to be read, without those in the pipe.
    pub(crate) fn waiting(&self) -> usize {
        let told = format!("{:?}", self.outbox);
        let number = told.split("waiting: ").nth(1).unwrap();
        number.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
    }

    /// Checks that the connection is alive, and that no frame is unread.
    pub(crate) async fn is_alive(&mut self) {
        let (code, message) = self.refused("session/cancel_all", json!({})).await;
        assert_eq!((code, &*message), (-32601, "unknown method `session/cancel_all`"));
    }

    /// Closes the client's end.
    pub(crate) async fn hang_up(&mut self) {
        if let Some(mut writer) = self.writer.take() {
            writer.shutdown().await.unwrap();
        }
    }

    /// Closes the client's end, and waits until the agent serves it no more.
    pub(crate) async fn left(&mut self) {
        self.hang_up().await;
        let ended = soon("the end", self.serving.join_next()).await;
        ended.unwrap().unwrap().unwrap();
    }

    /// Waits until the agent has ended.
    pub(crate) async fn ended(&mut self) {
        self.left().await;
        soon("the end of all chores", self.service.close()).await;
    }
}

/// Serves one client of an agent.
pub(crate) async fn serve(
    service: Arc<Service>,
    outbox: Outbox,
    stream: DuplexStream,
) -> std::io::Result<()> {
    let (reader, writer) = tokio::io::split(stream);
    let connection = Connection::new(service, Authentication::Key, outbox.clone());
    stdio::serve(&connection, &outbox, reader, writer, &CancellationToken::new()).await
}

// === impl Told ===

impl Told {
    pub(crate) fn result(&self) -> Value {
        assert!(self.response.get("error").is_none(), "{}", self.response);
        self.response["result"].clone()
    }

    pub(crate) fn error(&self) -> (i64, String) {
        refusal(&self.response)
    }

    pub(crate) fn stop_reason(&self) -> String {
        self.result()["stopReason"].as_str().unwrap().to_owned()
    }

    /// The updates of one session.
    pub(crate) fn of(&self, session: &str) -> Vec<Value> {
        let own = self.updates.iter().filter(|params| params["sessionId"] == session);
        own.map(|params| params["update"].clone()).collect()
    }

    /// The agent's chunks: the message id and the text of each.
    pub(crate) fn said(&self) -> Vec<(String, String)> {
        let updates: Vec<_> = self.updates.iter().map(|params| params["update"].clone()).collect();
        said(&updates)
    }
}

pub(crate) fn said(updates: &[Value]) -> Vec<(String, String)> {
    let is_said = |update: &&Value| update["sessionUpdate"] == "agent_message_chunk";
    let chunk = |update: &Value| {
        let string = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (string(&update["messageId"]), string(&update["content"]["text"]))
    };
    updates.iter().filter(is_said).map(chunk).collect()
}

/// Updates in short form: the kind, and the members that matter for that kind.
pub(crate) fn outline(updates: &[Value]) -> Vec<String> {
    // An update with nothing but an event id changes nothing.
    let is_position = |update: &&Value| {
        update
            .as_object()
            .is_some_and(|all| all.keys().all(|key| key == "_meta" || key == "sessionUpdate"))
    };
    updates
        .iter()
        .filter(|update| !is_position(update))
        .map(|update| {
            let string = |name: &str| update[name].as_str().unwrap_or("-").to_owned();
            let kind = string("sessionUpdate");
            match &*kind {
                "tool_call" | "tool_call_update" => {
                    format!("{kind} {} {}", string("toolCallId"), string("status"))
                }
                "agent_message_chunk" | "user_message_chunk" | "agent_thought_chunk" => {
                    let text = update["content"]["text"].as_str().unwrap_or("-");
                    format!("{kind} {} {text}", string("messageId"))
                }
                "cursor_update" => {
                    let anchor = update["anchor"].as_object().unwrap();
                    let beside = |(name, value): (&String, &Value)| {
                        name.ends_with("Id").then(|| value.as_str().unwrap().to_owned())
                    };
                    let beside = anchor.iter().find_map(beside).unwrap();
                    format!("{kind} {} after {beside}", string("cursorId"))
                }
                _ => kind,
            }
        })
        .collect()
}

fn refusal(frame: &Value) -> (i64, String) {
    let error = &frame["error"];
    assert!(error.is_object(), "the frame is no refusal: {frame}");
    (error["code"].as_i64().unwrap(), error["message"].as_str().unwrap().to_owned())
}

// === impl Frames ===

/// The methods of the protocol, with the types of their params and of their results.
const METHODS: &[(&str, &str, &str)] = &[
    ("initialize", "InitializeRequest", "InitializeResponse"),
    ("authenticate", "AuthenticateRequest", "AuthenticateResponse"),
    ("logout", "LogoutRequest", "LogoutResponse"),
    ("session/new", "NewSessionRequest", "NewSessionResponse"),
    ("session/load", "LoadSessionRequest", "LoadSessionResponse"),
    ("session/list", "ListSessionsRequest", "ListSessionsResponse"),
    ("session/delete", "DeleteSessionRequest", "DeleteSessionResponse"),
    ("session/resume", "ResumeSessionRequest", "ResumeSessionResponse"),
    ("session/fork", "ForkSessionRequest", "ForkSessionResponse"),
    ("session/close", "CloseSessionRequest", "CloseSessionResponse"),
    ("session/set_mode", "SetSessionModeRequest", "SetSessionModeResponse"),
    (
        "session/set_config_option",
        "SetSessionConfigOptionRequest",
        "SetSessionConfigOptionResponse",
    ),
    ("session/prompt", "PromptRequest", "PromptResponse"),
    ("session/request_permission", "RequestPermissionRequest", "RequestPermissionResponse"),
    ("elicitation/create", "CreateElicitationRequest", "CreateElicitationResponse"),
    ("session/cancel", "CancelNotification", ""),
    ("$/cancel_request", "CancelRequestNotification", ""),
];

/// The requests that an agent may send. `fs/*` would read and write the client's files, and
/// `terminal/*` would run commands there, so the gateway sends neither.
const AGENT_REQUESTS: [&str; 2] = ["session/request_permission", "elicitation/create"];

/// The notifications that an agent may send.
const AGENT_NOTIFICATIONS: [&str; 2] = ["session/update", "$/cancel_request"];

/// Fails for a frame of the agent that is neither a response nor one of these methods.
fn check_method(frame: &Value) {
    let Some(method) = frame.get("method") else { return };
    let is_request = frame.get("id").is_some();
    let known = if is_request { &AGENT_REQUESTS } else { &AGENT_NOTIFICATIONS };
    assert!(known.iter().any(|known| method == known), "an agent sends no {method}: {frame}");
}

impl Frames {
    /// Checks a message from the client.
    pub(crate) fn sends(&mut self, message: &Value) {
        match (message["method"].as_str(), message.get("id")) {
            (Some(method), id) => {
                let known = METHODS.iter().find(|known| known.0 == method);
                if let Some((_, params, _)) = known.filter(|known| !known.1.is_empty()) {
                    check(params, &message["params"]);
                }
                if let Some(id) = id {
                    self.sent.insert(id.to_string(), method.to_owned());
                }
            }
            (None, id) => {
                let asked = self.asked.remove(&id.unwrap().to_string());
                let asked = asked.as_deref().unwrap_or_default();
                let known = METHODS.iter().find(|known| known.0 == asked);
                if let (Some((_, _, result)), Some(told)) = (known, message.get("result")) {
                    check(result, told);
                }
            }
        }
    }

    /// Checks a line from the agent.
    pub(crate) fn comes(&mut self, line: &str) -> Value {
        let whole = line.strip_suffix('\n').expect("a whole line");
        // The parser is strict: it refuses half a surrogate pair.
        let message: Value = serde_json::from_str(whole).expect(line);
        let members = message.as_object().expect(line);
        assert_eq!(message["jsonrpc"], "2.0", "{line}");
        check_method(&message);
        let has = |names: &[&str]| {
            members.len() == names.len() && names.iter().all(|name| members.contains_key(*name))
        };
        if let Some(method) = message["method"].as_str() {
            let is_request = has(&["jsonrpc", "id", "method", "params"]);
            assert!(is_request || has(&["jsonrpc", "method", "params"]), "{line}");
            if method == "session/update" {
                let params = message["params"].as_object().unwrap();
                assert!(params.len() == 2 && params["sessionId"].is_string(), "{line}");
                check_update(&params["update"]);
            } else {
                let known = METHODS.iter().find(|known| known.0 == method).expect(line);
                check(known.1, &message["params"]);
                assert_eq!(is_request, !known.2.is_empty(), "{line}");
            }
            has_no_null(&message["params"], line);
            if is_request {
                let id = message["id"].to_string();
                assert_eq!(self.asked.insert(id, method.to_owned()), None, "{line}");
            }
            return message;
        }
        let method = self.sent.remove(&message["id"].to_string());
        if has(&["jsonrpc", "id", "error"]) {
            check("Error", &message["error"]);
            has_no_null(&message["error"], line);
        } else {
            assert!(has(&["jsonrpc", "id", "result"]), "{line}");
            let method = method.expect("a response to what was asked, once");
            let known = METHODS.iter().find(|known| known.0 == method).expect(line);
            check(known.2, &message["result"]);
            has_no_null(&message["result"], line);
        }
        message
    }
}

/// Fails for a null member. The inputs and outputs of tools are not the gateway's, and may have
/// null.
fn has_no_null(value: &Value, line: &str) {
    match value {
        Value::Null => panic!("a null: {line}"),
        Value::Array(items) => items.iter().for_each(|item| has_no_null(item, line)),
        Value::Object(members) => {
            for (name, value) in members {
                if !matches!(name.as_str(), "rawInput" | "rawOutput" | "requestId") {
                    has_no_null(value, line);
                }
            }
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The validators, each compiled at its first use.
static SCHEMAS: OnceLock<Mutex<HashMap<String, Arc<Validator>>>> = OnceLock::new();

fn check(name: &str, value: &Value) {
    let schema = || json!({"$ref": format!("#/$defs/{name}"), "unevaluatedProperties": false});
    check_by(name, value, schema);
}

/// Checks an update by the schema of its kind alone, because a test may send 200,000 updates.
fn check_update(update: &Value) {
    let kind = update["sessionUpdate"].as_str().expect("an update has a kind");
    check_by(kind, update, || {
        let kinds = definitions()["SessionUpdate"]["oneOf"].as_array().unwrap();
        let is_it = |schema: &&Value| schema["properties"]["sessionUpdate"]["const"] == kind;
        let mut schema = kinds.iter().find(is_it).expect("a kind of update").clone();
        schema["unevaluatedProperties"] = json!(false);
        schema
    });
}

fn check_by(name: &str, value: &Value, schema: impl FnOnce() -> Value) {
    let validator = {
        let mut known = SCHEMAS.get_or_init(Mutex::default).lock().unwrap();
        let validator = known.entry(name.to_owned()).or_insert_with(|| {
            let mut schema = schema();
            schema["$defs"] = definitions().clone();
            Arc::new(jsonschema::draft202012::new(&schema).expect("the schema is valid"))
        });
        Arc::clone(validator)
    };
    let errors: Vec<_> = validator
        .iter_errors(value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{name} {value}: {}", errors.join("; "));
}

fn definitions() -> &'static Value {
    static DEFINITIONS: OnceLock<Value> = OnceLock::new();
    DEFINITIONS.get_or_init(|| {
        let document: Value = serde_json::from_str(include_str!("acp-v1.json")).unwrap();
        let mut definitions = document["$defs"].clone();
        let unstable: Value = serde_json::from_str(include_str!("acp-v1-unstable.json")).unwrap();
        for (name, schema) in unstable["$defs"].as_object().unwrap() {
            definitions[name] = schema.clone();
        }
        definitions["SessionCapabilities"]["properties"]["fork"] = unstable["fork"].clone();
        definitions["ClientSessionCapabilities"]["properties"]["cursors"] =
            unstable["cursors"].clone();
        let updates = definitions["SessionUpdate"]["oneOf"].as_array_mut().unwrap();
        updates.push(unstable["cursorUpdate"].clone());
        close(&mut definitions);
        definitions
    })
}

/// Closes the objects inside a schema. The schema itself is closed by the one that refers to it.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            // JSON Schema does not know ACP's formats of numbers.
            if members.get("format").is_some_and(Value::is_string) {
                members.remove("format");
            }
            for (name, value) in members {
                match (name.as_str(), &mut *value) {
                    ("properties", Value::Object(properties)) => {
                        properties.values_mut().for_each(close_object);
                    }
                    ("items", items) => close_object(items),
                    _ => {}
                }
                close(value);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn close_object(schema: &mut Value) {
    let is_open = ["$ref", "allOf", "anyOf", "oneOf", "properties"];
    if is_open.iter().any(|name| !schema[*name].is_null()) {
        schema["unevaluatedProperties"] = json!(false);
    }
}
