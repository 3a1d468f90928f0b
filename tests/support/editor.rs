//! An ACP client: the other end of a connection, that checks every frame both ways against the
//! schema of the protocol.
//!
//! `acp-v1.json` is the official schema. It lets unknown members pass, and optional ones be null.
//! Here an unknown member is a spelling mistake, and what we send is absent or has a value.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

use jsonschema::Validator;
use serde_json::{Value, json};
use threadway::agents;
use threadway::credentials::Credentials;
use threadway::metrics::Metrics;
use threadway::runs::{DEFAULT_LOG_BYTES, OwnerPolicy};
use threadway::sessions::{Connection, Outbox, Service, ServiceOptions, Settings};
use threadway::stdio;
use threadway::upstream::Client;
use threadway_translate::run::ErrorDetail;
use tokio::io::{
    AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf,
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::langgraph::{LangGraph, soon};

/// How much a pipe holds.
const PIPE_BYTES: usize = 64 * 1024;

/// The directory of every session.
pub(crate) const CWD: &str = "/srv/app";

/// The client, and the agent that it has.
pub(crate) struct Editor {
    pub(crate) reader: BufReader<ReadHalf<DuplexStream>>,
    /// `None` after the end.
    pub(crate) writer: Option<WriteHalf<DuplexStream>>,
    pub(crate) service: Arc<Service>,
    pub(crate) outbox: Outbox,
    serving: JoinSet<std::io::Result<()>>,
    frames: Frames,
    /// The number of the last request.
    last: u64,
}

/// How an editor is set up.
pub(crate) struct Setup {
    pub(crate) settings: Settings,
    pub(crate) owners: OwnerPolicy,
    /// Where keys are kept.
    pub(crate) directory: Option<std::path::PathBuf>,
    /// What the client says that it can do.
    pub(crate) capabilities: Value,
    pub(crate) log_bytes: usize,
    /// The agent of new sessions, and the keys under which agents keep their conversations.
    pub(crate) agent: Option<String>,
    pub(crate) messages_keys: agents::MessagesKeys,
}

/// What goes over a connection, checked.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    /// The methods of the requests that are not answered, by id.
    sent: HashMap<String, String>,
    asked: HashMap<String, String>,
}

/// What came until a response did, and that.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) updates: Vec<Value>,
    /// Requests to the client, and what takes them back.
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
    /// An editor that shows forms.
    pub(crate) fn with_forms() -> Self {
        Self { capabilities: json!({"elicitation": {"form": {}}}), ..Self::default() }
    }

    /// The agent that an editor gets of a server.
    pub(crate) fn service(&self, url: &str) -> Arc<Service> {
        let client = Client::new(url.parse().unwrap(), None).unwrap();
        let upstream = agents::Upstream { name: "default".to_owned(), client };
        let credentials =
            Credentials::new(self.directory.as_deref().map(Path::new), upstream.client.base());
        if credentials.has_key() {
            upstream.client.use_key(credentials.key());
        }
        let agents = agents::Agents::new(vec![upstream.clone()], Vec::new());
        let agents = agents.keeping_messages_under(self.messages_keys.clone());
        Arc::new(Service::new(ServiceOptions {
            agents,
            upstream,
            agent: self.agent.clone(),
            settings: self.settings.clone(),
            credentials,
            owners: self.owners,
            error_detail: ErrorDetail::default(),
            log_bytes: self.log_bytes,
            metrics: Metrics::default(),
        }))
    }
}

/// A server, and an editor that is connected to an agent of it.
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
    /// An editor that has said nothing yet.
    pub(crate) fn start(url: &str, setup: &Setup) -> Self {
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        let (reader, writer) = tokio::io::split(ours);
        let service = setup.service(url);
        let mut serving = JoinSet::new();
        let outbox = Outbox::new();
        serving.spawn(serve(Arc::clone(&service), outbox.clone(), theirs));
        let frames = Frames::default();
        let reader = BufReader::new(reader);
        Self { reader, writer: Some(writer), service, outbox, serving, frames, last: 0 }
    }

    /// An editor that has been answered.
    pub(crate) async fn initialized(url: &str, setup: &Setup) -> Self {
        let mut editor = Self::start(url, setup);
        let params = json!({"protocolVersion": 1, "clientCapabilities": setup.capabilities});
        editor.call("initialize", params).await;
        editor
    }

    /// Sends bytes as they stand.
    pub(crate) async fn raw(&mut self, bytes: impl AsRef<[u8]>) {
        let writer = self.writer.as_mut().expect("the editor has hung up");
        soon("what is sent", writer.write_all(bytes.as_ref())).await.unwrap();
    }

    /// Sends a message, which must be valid.
    pub(crate) async fn send(&mut self, message: &Value) {
        self.frames.sends(message);
        self.raw(format!("{message}\n")).await;
    }

    /// Asks; the id of the request.
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

    /// Answers a request of the agent's.
    pub(crate) async fn reply(&mut self, request: &Value, result: Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": request["id"], "result": result})).await;
    }

    /// The next frame, which must be valid.
    pub(crate) async fn next(&mut self) -> Value {
        let line = self.line().await;
        assert_ne!(line, "", "the agent has closed its end");
        self.frames.comes(&line)
    }

    /// The next line as it stands; empty at the end.
    pub(crate) async fn line(&mut self) -> String {
        let mut line = String::new();
        soon("a line", self.reader.read_line(&mut line)).await.unwrap();
        line
    }

    /// What comes until this request is answered.
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

    /// What comes until the agent asks something: the updates, and the request.
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

    /// The next frame, whose request was not checked either.
    pub(crate) async fn next_unchecked(&mut self) -> Value {
        let frame = serde_json::from_str(&self.line().await).unwrap();
        check_method(&frame);
        frame
    }

    /// Reads until the agent has said this.
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

    /// What comes until the end.
    pub(crate) async fn rest(&mut self) -> String {
        let mut rest = String::new();
        soon("the end", self.reader.read_to_string(&mut rest)).await.unwrap();
        rest.lines().for_each(|line| check_method(&serde_json::from_str(line).expect(line)));
        rest
    }

    /// Asks, and is given what was asked for.
    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params).await;
        self.until(id).await.result()
    }

    /// Asks, and is refused: the code and the message.
    pub(crate) async fn refused(&mut self, method: &str, params: Value) -> (i64, String) {
        let id = self.request(method, params).await;
        self.until(id).await.error()
    }

    /// Sends a line, and is refused: the id, the code and the message.
    pub(crate) async fn refused_line(&mut self, line: &str) -> (Value, i64, String) {
        self.raw(format!("{line}\n")).await;
        let frame = self.next().await;
        let (code, message) = refusal(&frame);
        (frame["id"].clone(), code, message)
    }

    /// A new session.
    pub(crate) async fn session(&mut self) -> String {
        let made = self.call("session/new", json!({"cwd": CWD, "mcpServers": []})).await;
        made["sessionId"].as_str().unwrap().to_owned()
    }

    /// Prompts a session; the id of the request.
    pub(crate) async fn prompt(&mut self, session: &str, text: &str) -> u64 {
        let prompt = json!([{"type": "text", "text": text}]);
        self.request("session/prompt", json!({"sessionId": session, "prompt": prompt})).await
    }

    pub(crate) async fn cancel(&mut self, session: &str) {
        self.notify("session/cancel", json!({"sessionId": session})).await;
    }

    /// How much waits to be read, beside what the pipe holds.
    pub(crate) fn waiting(&self) -> usize {
        let told = format!("{:?}", self.outbox);
        let number = told.split("waiting: ").nth(1).unwrap();
        number.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
    }

    /// Makes sure that the connection is alive, and that nothing came that nobody has read.
    pub(crate) async fn is_alive(&mut self) {
        let (code, message) = self.refused("session/cancel_all", json!({})).await;
        assert_eq!((code, &*message), (-32601, "unknown method `session/cancel_all`"));
    }

    /// Closes its end.
    pub(crate) async fn hang_up(&mut self) {
        if let Some(mut writer) = self.writer.take() {
            writer.shutdown().await.unwrap();
        }
    }

    /// Waits until the agent has ended.
    pub(crate) async fn ended(&mut self) {
        self.hang_up().await;
        let ended = soon("the end", self.serving.join_next()).await;
        ended.unwrap().unwrap().unwrap();
        soon("the end of all chores", self.service.close()).await;
    }
}

async fn serve(service: Arc<Service>, outbox: Outbox, stream: DuplexStream) -> std::io::Result<()> {
    let (reader, writer) = tokio::io::split(stream);
    let connection = Connection::new(service, outbox.clone());
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

    /// The updates of a session.
    pub(crate) fn of(&self, session: &str) -> Vec<Value> {
        let own = self.updates.iter().filter(|params| params["sessionId"] == session);
        own.map(|params| params["update"].clone()).collect()
    }

    /// What the agent said, chunk by chunk: its id and its text.
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

/// Updates in short: the kind, and what is particular to it.
pub(crate) fn outline(updates: &[Value]) -> Vec<String> {
    updates
        .iter()
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
                _ => kind,
            }
        })
        .collect()
}

fn refusal(frame: &Value) -> (i64, String) {
    let error = &frame["error"];
    assert!(error.is_object(), "this is no refusal: {frame}");
    (error["code"].as_i64().unwrap(), error["message"].as_str().unwrap().to_owned())
}

// === impl Frames ===

/// The methods of the protocol: what its params are, and what its result is.
const METHODS: &[(&str, &str, &str)] = &[
    ("initialize", "InitializeRequest", "InitializeResponse"),
    ("authenticate", "AuthenticateRequest", "AuthenticateResponse"),
    ("logout", "LogoutRequest", "LogoutResponse"),
    ("session/new", "NewSessionRequest", "NewSessionResponse"),
    ("session/load", "LoadSessionRequest", "LoadSessionResponse"),
    ("session/list", "ListSessionsRequest", "ListSessionsResponse"),
    ("session/delete", "DeleteSessionRequest", "DeleteSessionResponse"),
    ("session/resume", "ResumeSessionRequest", "ResumeSessionResponse"),
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

/// The requests of an agent. It has no others: `fs/*` would read and write the client's files, and
/// `terminal/*` would run commands there.
const AGENT_REQUESTS: [&str; 2] = ["session/request_permission", "elicitation/create"];

/// The notifications of an agent.
const AGENT_NOTIFICATIONS: [&str; 2] = ["session/update", "$/cancel_request"];

/// Fails for a frame of an agent that is neither a response nor one of these.
fn check_method(frame: &Value) {
    let Some(method) = frame.get("method") else { return };
    let is_request = frame.get("id").is_some();
    let known = if is_request { &AGENT_REQUESTS } else { &AGENT_NOTIFICATIONS };
    assert!(known.iter().any(|known| method == known), "an agent sends no {method}: {frame}");
}

impl Frames {
    /// A message of the client's.
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

    /// A line of the agent's.
    pub(crate) fn comes(&mut self, line: &str) -> Value {
        let whole = line.strip_suffix('\n').expect("a whole line");
        // A strict parser: half a surrogate pair is an error to it.
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

/// What we send is absent or has a value; what tools are given and give is theirs.
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

/// The schemas, made when they are first needed.
static SCHEMAS: OnceLock<Mutex<HashMap<String, Arc<Validator>>>> = OnceLock::new();

fn check(name: &str, value: &Value) {
    let schema = || json!({"$ref": format!("#/$defs/{name}"), "unevaluatedProperties": false});
    check_by(name, value, schema);
}

/// An update, by the one schema that its kind has: there may be 200,000 of them.
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
        close(&mut definitions);
        definitions
    })
}

/// Closes the objects inside a schema; where it is used, it is closed by the one who uses it.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            // Numbers have formats that JSON Schema does not know.
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
