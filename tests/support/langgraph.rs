//! A LangGraph server that answers the minor requests by itself. The test answers the runs, and all
//! other requests that it holds.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::gateway::{part, token};
use super::upstream::{Exchange, Upstream};

/// The time limit of every wait; a build machine may stall.
const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) struct LangGraph {
    pub(crate) url: String,
    books: Arc<Mutex<Books>>,
    /// The requests that the test must answer.
    held: mpsc::UnboundedReceiver<Exchange>,
    /// Requests that arrived before the one that the test waited for.
    passed: Vec<Exchange>,
    serving: JoinSet<()>,
}

/// The data of the server.
#[derive(Debug)]
pub(crate) struct Books {
    pub(crate) threads: BTreeMap<String, Thread>,
    pub(crate) assistants: Vec<Value>,
    /// The answer to `GET /assistants/{id}/schemas`, or the answers by graph.
    pub(crate) schemas: Value,
    /// Whether `select` is refused in lists of threads, as by aegra.
    pub(crate) rejects_select: bool,
    /// Whether a hidden thread's list of runs is empty, as aegra's, and not missing.
    pub(crate) lists_no_hidden_runs: bool,
    /// If set, requests without this key are refused.
    pub(crate) key: Option<String>,
    /// Tenants by their keys. If there are any, each sees the threads whose metadata names it as
    /// `owner`, and requests with another key are refused.
    pub(crate) tenants: BTreeMap<String, String>,
    /// The requests that the test answers itself: substrings of the request line.
    pub(crate) held: Vec<String>,
    /// Every request: its line and its body.
    pub(crate) asked: Vec<(String, String)>,
    made: usize,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Thread {
    pub(crate) metadata: Value,
    /// The answer to `GET /threads/{id}/state`.
    pub(crate) state: Option<Value>,
    /// The thread's states, the newest first. If there are any, the server answers requests for
    /// them.
    pub(crate) past: Vec<Value>,
    /// The thread's runs, the newest first.
    pub(crate) runs: Vec<Value>,
    /// When the thread last changed, in seconds after ten o'clock.
    pub(crate) changed_at: usize,
}

/// A run that was started or joined.
pub(crate) struct Run {
    pub(crate) exchange: Exchange,
    pub(crate) thread: String,
    pub(crate) id: String,
    /// The body of the request that started the run.
    pub(crate) body: Value,
    books: Arc<Mutex<Books>>,
}

// === impl LangGraph ===

impl LangGraph {
    /// A Python server with one agent.
    pub(crate) async fn start() -> Self {
        Self::of(Upstream::bind().await)
    }

    /// A JavaScript server with one agent.
    pub(crate) async fn javascript() -> Self {
        Self::of(Upstream::javascript().await)
    }

    /// An aegra with one agent.
    pub(crate) async fn aegra() -> Self {
        let server = Self::of(Upstream::aegra().await);
        server.books().lists_no_hidden_runs = true;
        server
    }

    fn of(upstream: Upstream) -> Self {
        let books = Arc::new(Mutex::new(Books {
            threads: BTreeMap::new(),
            assistants: vec![assistant("agent")],
            schemas: json!({}),
            rejects_select: false,
            lists_no_hidden_runs: false,
            key: None,
            tenants: BTreeMap::new(),
            held: Vec::new(),
            asked: Vec::new(),
            made: 0,
        }));
        let (hold, to_answer) = mpsc::unbounded_channel();
        let url = upstream.url();
        let mut serving = JoinSet::new();
        serving.spawn(serve(upstream, Arc::clone(&books), hold));
        Self { url, books, held: to_answer, passed: Vec::new(), serving }
    }

    pub(crate) fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap()
    }

    /// From now on the test answers requests whose line contains this.
    pub(crate) fn hold(&self, what: &str) {
        self.books().held.push(what.to_owned());
    }

    pub(crate) fn let_go_of(&self, what: &str) {
        self.books().held.retain(|held| held != what);
    }

    /// The next held request whose line contains this.
    pub(crate) async fn held(&mut self, what: &str) -> Exchange {
        if let Some(at) = self.passed.iter().position(|exchange| exchange.line.contains(what)) {
            return self.passed.remove(at);
        }
        loop {
            let exchange = soon(what, self.held.recv()).await.expect("the server has gone");
            if exchange.line.contains(what) {
                return exchange;
            }
            self.passed.push(exchange);
        }
    }

    /// Waits for the next start of a run, and begins its stream.
    pub(crate) async fn run(&mut self) -> Run {
        let exchange = self.held("/runs/stream").await;
        self.begin(exchange).await
    }

    /// Waits for the next start of a run, and sends all of a recorded stream.
    pub(crate) async fn replay(&mut self, bytes: &[u8]) {
        let exchange = self.held("/runs/stream").await;
        let text = String::from_utf8_lossy(bytes);
        let id = text.split("run_id").nth(1).unwrap().split('"').nth(2).unwrap().to_owned();
        let mut run = self.begin_as(exchange, Some(id)).await;
        run.exchange.send(bytes).await;
        run.ends("success", None).await;
    }

    /// Begins the stream of a run whose start was held.
    pub(crate) async fn begin(&self, exchange: Exchange) -> Run {
        self.begin_as(exchange, None).await
    }

    async fn begin_as(&self, mut exchange: Exchange, id: Option<String>) -> Run {
        let thread = exchange.line.split('/').nth(2).unwrap().to_owned();
        let body: Value = serde_json::from_str(&exchange.body).unwrap();
        let id = {
            let mut books = self.books();
            books.made += 1;
            let id = id.unwrap_or_else(|| format!("01a200b7-5ee6-7592-b13b-{:012}", books.made));
            let created_at = format!("2026-11-22T10:00:00.{:06}+00:00", books.made);
            let may_create = body["if_not_exists"] == "create";
            assert!(may_create || books.threads.contains_key(&thread), "there is no {thread}");
            let of_thread = books.threads.entry(thread.clone());
            let of_thread = of_thread.or_insert_with(|| Thread::created_by(&body));
            // The servers copy a thread's metadata to each run.
            let mut metadata = of_thread.metadata.as_object().cloned().unwrap_or_default();
            metadata.extend(body["metadata"].as_object().cloned().unwrap_or_default());
            let run = json!({"run_id": id, "thread_id": thread, "status": "running",
                "created_at": created_at, "metadata": metadata, "kwargs": {"resumable": true}});
            of_thread.runs.insert(0, run);
            id
        };
        exchange.begin(&format!("content-location: /threads/{thread}/runs/{id}\r\n")).await;
        Run { exchange, thread, id, body, books: Arc::clone(&self.books) }
    }

    /// Waits for the next join of a run, and begins its stream.
    pub(crate) async fn joined(&mut self) -> Run {
        let mut exchange = self.held("/stream").await;
        let parts: Vec<_> = exchange.line.split('/').map(str::to_owned).collect();
        let [_, _, thread, _, id, _] = &*parts else { panic!("{}", exchange.line) };
        exchange.begin("").await;
        let books = Arc::clone(&self.books);
        let (thread, id) = (thread.clone(), id.clone());
        Run { exchange, thread, id, body: Value::Null, books }
    }

    /// The bodies of the requests so far whose line begins with this.
    pub(crate) fn asked(&self, line: &str) -> Vec<Value> {
        let books = self.books();
        let asked = books.asked.iter().filter(|(asked, _)| asked.starts_with(line));
        asked.map(|(_, body)| serde_json::from_str(body).unwrap_or_default()).collect()
    }

    /// The ids of the runs for which a cancel was requested.
    pub(crate) fn cancelled(&self) -> Vec<String> {
        let books = self.books();
        let cancels = books.asked.iter().filter_map(|(line, _)| line.strip_suffix("/cancel"));
        cancels.map(|line| line.rsplit('/').next().unwrap().to_owned()).collect()
    }

    /// Waits until the server's data fulfil a condition.
    pub(crate) async fn until(&self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        soon(what, async {
            while !is_so(self) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    /// Adds a thread that another process has left.
    pub(crate) fn thread(&self, id: &str, metadata: Value, state: Option<Value>) {
        let thread = Thread { metadata, state, ..Thread::default() };
        self.books().threads.insert(id.to_owned(), thread);
    }

    /// Stops accepting connections.
    pub(crate) async fn gone(&mut self) {
        self.serving.shutdown().await;
    }
}

/// Fails if the future takes longer than the time limit.
pub(crate) async fn soon<T>(what: &str, happens: impl Future<Output = T>) -> T {
    let happens = tokio::time::timeout(PATIENCE, happens).await;
    happens.unwrap_or_else(|_| panic!("{what} did not happen"))
}

pub(crate) fn assistant(graph_id: &str) -> Value {
    json!({"assistant_id": format!("id-of-{graph_id}"), "graph_id": graph_id, "name": graph_id,
        "metadata": {"created_by": "system"}})
}

/// A state with these messages, and with these interrupts of one task.
pub(crate) fn state(run_id: &str, messages: &Value, interrupts: &Value) -> Value {
    let is_open = interrupts.as_array().is_some_and(|list| !list.is_empty());
    let task = json!({"id": "t", "name": "ask", "interrupts": interrupts, "result": null});
    json!({
        "values": {"messages": messages},
        "next": if is_open { vec!["ask"] } else { Vec::new() },
        "tasks": if is_open { vec![task] } else { Vec::new() },
        "metadata": {"run_id": run_id},
        "checkpoint": {"checkpoint_id": format!("after-{run_id}")},
    })
}

async fn serve(
    upstream: Upstream,
    books: Arc<Mutex<Books>>,
    hold: mpsc::UnboundedSender<Exchange>,
) {
    loop {
        let exchange = upstream.next_or_creation().await;
        let answer = books.lock().unwrap().answer(&exchange);
        match answer {
            Some((status, body)) => exchange.json_if_there(status, &body).await,
            None if hold.send(exchange).is_err() => return,
            None => {}
        }
    }
}

// === impl Books ===

impl Books {
    /// The answer to a request; `None` if the test answers it.
    #[expect(clippy::too_many_lines, reason = "a table of routes")]
    fn answer(&mut self, exchange: &Exchange) -> Option<(u16, String)> {
        let Exchange { line, head, body, .. } = exchange;
        self.asked.push((line.clone(), body.clone()));
        if self.held.iter().any(|held| line.contains(&**held)) {
            return None;
        }
        let is_allowed = |key: &String| head.contains(&format!("x-api-key: {key}\r\n"));
        let key = head.lines().find_map(|line| line.strip_prefix("x-api-key: "));
        let tenant = key.and_then(|key| self.tenants.get(key).cloned());
        let is_known = self.tenants.is_empty() || tenant.is_some();
        if !is_known || !self.key.as_ref().is_none_or(is_allowed) {
            return Some((401, r#"{"detail":"Not authenticated"}"#.to_owned()));
        }
        let body: Value = serde_json::from_str(body).unwrap_or_default();
        let (method, path) = line.split_once(' ').unwrap();
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let segments: Vec<_> = path.trim_start_matches('/').split('/').collect();
        let missing = || Some((404, json!({"detail": "Thread or assistant not found."})));
        let answer = match (method, &*segments) {
            ("GET", ["ok"]) => Some((200, json!({"ok": true}))),
            ("POST", ["assistants", "search"]) => {
                let wanted = body.get("graph_id").and_then(Value::as_str);
                let is_wanted =
                    |known: &&Value| wanted.is_none_or(|graph| known["graph_id"] == graph);
                Some((200, self.assistants.iter().filter(is_wanted).cloned().collect()))
            }
            ("GET", ["assistants", id, "schemas"]) => {
                let own = self.schemas.get(id.trim_start_matches("id-of-"));
                Some((200, own.unwrap_or(&self.schemas).clone()))
            }
            ("GET", ["assistants", id]) => {
                let known = self
                    .assistants
                    .iter()
                    .find(|known| known["graph_id"] == **id || known["assistant_id"] == **id);
                known.map_or_else(missing, |known| Some((200, known.clone())))
            }
            ("POST", ["threads"]) => {
                let id = body["thread_id"].as_str().expect("the gateway chooses the id").to_owned();
                assert_eq!(body["if_exists"], "do_nothing");
                let metadata = body["metadata"].clone();
                let new = Thread { metadata, ..Thread::default() };
                let thread = self.threads.entry(id.clone()).or_insert(new);
                Some((200, thread.record(&id)))
            }
            ("POST", ["threads", "search"])
                if self.rejects_select && body.get("select").is_some() =>
            {
                Some((422, json!({"detail": "select projection is not supported"})))
            }
            ("POST", ["threads", "search"]) => Some((200, self.found(&body, tenant.as_deref()))),
            ("POST", ["threads", id, "copy"]) => Some(self.copy(id, tenant.as_deref())),
            ("GET", ["threads", id, "runs"])
                if self.lists_no_hidden_runs
                    && !(self.threads.contains_key(*id)
                        && self.is_shown(id, tenant.as_deref())) =>
            {
                Some((200, json!([])))
            }
            (_, ["threads", id, ..]) if !self.is_shown(id, tenant.as_deref()) => missing(),
            (_, ["threads", id, rest @ ..]) => match (self.threads.get_mut(*id), method, rest) {
                // Older servers have no stream of a thread's lifecycle, and these graphs no subgraphs.
                (None, ..)
                | (Some(_), "GET", ["stream"])
                | (Some(_), "POST", ["state", "checkpoint"]) => missing(),
                (Some(thread), "GET", []) => Some((200, thread.record(id))),
                (Some(thread), "PATCH", []) => {
                    self.made += 1;
                    // Later than any time that a test sets.
                    thread.changed_at = 40 + self.made;
                    for (name, value) in body["metadata"].as_object().unwrap() {
                        thread.metadata[name] = value.clone();
                    }
                    Some((200, json!({})))
                }
                (Some(_), "DELETE", []) => {
                    self.threads.remove(*id);
                    Some((204, Value::Null))
                }
                (Some(thread), "GET", ["state"]) => {
                    let none = json!({"values": {}, "next": [], "tasks": [], "metadata": {}});
                    Some((200, thread.state.clone().unwrap_or(none)))
                }
                (Some(thread), "GET", ["state", checkpoint]) => {
                    Some((200, thread.state_at(checkpoint)))
                }
                (Some(_), "POST", ["history"]) => Some((200, json!([]))),
                (Some(thread), "GET", ["history"]) if !thread.past.is_empty() => {
                    Some((200, thread.page(query)))
                }
                (Some(thread), "POST", ["state"]) => {
                    self.made += 1;
                    Some(thread.copy_checkpoint(&body, self.made))
                }
                (Some(thread), "GET", ["runs"]) => {
                    let wanted = query.split('&').find_map(|pair| pair.strip_prefix("status="));
                    let is_wanted =
                        |run: &&Value| wanted.is_none_or(|wanted| run["status"] == wanted);
                    Some((200, thread.runs.iter().filter(is_wanted).cloned().collect()))
                }
                (Some(thread), "GET", ["runs", run]) => {
                    let run = thread.runs.iter().find(|known| known["run_id"] == **run);
                    run.map_or_else(missing, |run| Some((200, run.clone())))
                }
                (Some(thread), "POST", ["runs", run, "cancel"]) => {
                    let mut runs = thread.runs.iter_mut();
                    match runs.find(|known| known["run_id"] == **run) {
                        Some(run) => {
                            run["status"] = json!("interrupted");
                            Some((202, Value::Null))
                        }
                        None => missing(),
                    }
                }
                _ => None,
            },
            _ => panic!("an unknown request: {line}"),
        };
        answer.map(|(status, body)| {
            (status, if body.is_null() { String::new() } else { body.to_string() })
        })
    }

    /// Both servers answer 409 for a thread that does not exist, or that they hide.
    fn copy(&mut self, id: &str, tenant: Option<&str>) -> (u16, Value) {
        let source = self.threads.get(id).filter(|_| self.is_shown(id, tenant));
        let Some(copy) = source.map(Thread::copy) else {
            return (409, json!({"detail": "Thread not found"}));
        };
        self.made += 1;
        let id = format!("01a200b7-5ee6-7592-b13b-c{:011}", self.made);
        let record = copy.record(&id);
        self.threads.insert(id, copy);
        (200, record)
    }

    /// Whether a thread exists and this tenant may see it.
    fn is_shown(&self, id: &str, tenant: Option<&str>) -> bool {
        let thread = self.threads.get(id);
        thread.is_none_or(|thread| tenant.is_none_or(|tenant| thread.metadata["owner"] == tenant))
    }

    fn found(&self, search: &Value, tenant: Option<&str>) -> Value {
        let wanted = search["metadata"].as_object();
        let ids = search["ids"].as_array();
        let has = |id: &str, thread: &Thread| {
            wanted.is_none_or(|wanted| {
                wanted.iter().all(|(name, value)| thread.metadata.get(name) == Some(value))
            }) && ids.is_none_or(|ids| ids.iter().any(|wanted| wanted == id))
        };
        let number = |name: &str| usize::try_from(search[name].as_u64().unwrap_or(0)).unwrap();
        let mut found: Vec<_> = self
            .threads
            .iter()
            .filter(|(id, thread)| has(id, thread) && self.is_shown(id, tenant))
            .collect();
        if search["sort_by"] == "updated_at" {
            found.sort_by_key(|(_, thread)| std::cmp::Reverse(thread.changed_at));
        }
        let page = found.into_iter().skip(number("offset")).take(number("limit"));
        page.map(|(id, thread)| thread.record(id)).collect()
    }
}

// === impl Thread ===

impl Thread {
    /// The thread that the start of a run creates. The servers copy the run's metadata to it.
    fn created_by(body: &Value) -> Self {
        Self { metadata: body["metadata"].clone(), ..Self::default() }
    }

    /// A copy, without the runs.
    fn copy(&self) -> Self {
        let Self { metadata, state, past, .. } = self.clone();
        Self { metadata, state, past, ..Self::default() }
    }

    fn page(&self, query: &str) -> Value {
        let given = |name| query.split('&').find_map(|pair| pair.strip_prefix(name));
        let is_before = |state: &&Value| {
            let id = state["checkpoint"]["checkpoint_id"].as_str();
            given("before=") != id
        };
        let limit = given("limit=").unwrap().parse().unwrap();
        let skipped = match given("before=") {
            Some(_) => self.past.iter().take_while(is_before).count() + 1,
            None => 0,
        };
        self.past.iter().skip(skipped).take(limit).cloned().collect()
    }

    /// Both servers answer for an unknown checkpoint too.
    fn state_at(&self, checkpoint: &str) -> Value {
        let mut states = self.past.iter();
        let known = states.find(|state| state["checkpoint"]["checkpoint_id"] == *checkpoint);
        known.cloned().unwrap_or_else(|| {
            json!({"values": {}, "next": [], "tasks": [], "metadata": null, "created_at": null,
                "checkpoint": {"checkpoint_id": checkpoint}, "parent_checkpoint": null})
        })
    }

    /// A copy has the state and the parent of its checkpoint, and nothing of its tasks.
    fn copy_checkpoint(&mut self, body: &Value, number: usize) -> (u16, Value) {
        assert_eq!((&body["values"], &body["as_node"]), (&Value::Null, &json!("__copy__")));
        let wanted = &body["checkpoint_id"];
        let mut states = self.past.iter();
        let Some(state) = states.find(|state| state["checkpoint"]["checkpoint_id"] == *wanted)
        else {
            return (400, json!({"detail": "Cannot copy a non-existent checkpoint"}));
        };
        let mut copy = state.clone();
        copy["checkpoint"]["checkpoint_id"] =
            json!(format!("1f1ea71a-c337-6ffe-8009-{number:012}"));
        copy["metadata"] = json!({"source": "fork"});
        copy["tasks"] = json!([]);
        self.state = Some(copy.clone());
        self.past.insert(0, copy);
        (200, json!({"checkpoint": self.past[0]["checkpoint"]}))
    }

    fn record(&self, id: &str) -> Value {
        let values = self.state.as_ref().map_or(Value::Null, |state| state["values"].clone());
        let updated_at = format!("2026-11-22T10:00:{:02}.000000+00:00", self.changed_at);
        let is_live = |run: &Value| run["status"] == "running" || run["status"] == "pending";
        let mut interrupts = json!({});
        for task in self.state.iter().filter_map(|state| state["tasks"].as_array()).flatten() {
            if task["interrupts"].as_array().is_some_and(|open| !open.is_empty()) {
                interrupts[task["id"].as_str().unwrap()] = task["interrupts"].clone();
            }
        }
        // A cancelled run leaves the thread `interrupted` too.
        let is_cancelled = self.runs.first().is_some_and(|run| run["status"] == "interrupted");
        let status = match self.runs.first() {
            _ if self.runs.iter().any(is_live) => "busy",
            Some(run) if run["status"] == "error" => "error",
            _ if interrupts != json!({}) || is_cancelled => "interrupted",
            _ => "idle",
        };
        json!({"thread_id": id, "metadata": self.metadata, "status": status,
            "interrupts": interrupts,
            "created_at": "2026-11-22T09:00:00.000000+00:00", "updated_at": updated_at,
            "state_updated_at": "2026-11-22T09:30:00.000000+00:00", "values": values})
    }
}

// === impl Run ===

impl Run {
    /// Sends a token.
    pub(crate) async fn says(&mut self, message_id: &str, text: &str) {
        self.exchange.send(token(message_id, text)).await;
    }

    /// Sends an event.
    pub(crate) async fn sends(&mut self, event: &str, data: &Value) {
        self.exchange.send(part(event, data)).await;
    }

    /// Sends a tool call, its name and its arguments in separate chunks.
    pub(crate) async fn calls(&mut self, message_id: &str, id: &str, name: &str, args: &Value) {
        let chunk = |id: &Value, name: &Value, args: &str| {
            let fragment = json!({"index": 0, "id": id, "name": name, "args": args,
                "type": "tool_call_chunk"});
            json!([{"type": "AIMessageChunk", "id": message_id, "content": "",
                "tool_call_chunks": [fragment]}, {}])
        };
        self.sends("messages", &chunk(&json!(id), &json!(name), "")).await;
        self.sends("messages", &chunk(&Value::Null, &Value::Null, &args.to_string())).await;
    }

    /// Ends the run with this status, and leaves the thread in this state.
    pub(crate) async fn ends(self, status: &str, state: Option<Value>) {
        self.record(status, state);
        self.exchange.end().await;
    }

    /// Sets the run's status and the thread's state, without ending the stream.
    pub(crate) fn record(&self, status: &str, state: Option<Value>) {
        let mut books = self.books.lock().unwrap();
        let thread = books.threads.get_mut(&self.thread).unwrap();
        if let Some(run) = thread.runs.iter_mut().find(|run| run["run_id"] == *self.id) {
            run["status"] = json!(status);
        }
        if let Some(state) = state {
            thread.state = Some(state);
        }
    }

    /// Sends interrupts, and ends the run.
    pub(crate) async fn asks(mut self, messages: &Value, interrupts: &Value) {
        for interrupt in interrupts.as_array().unwrap() {
            self.sends("updates", &json!({"__interrupt__": [interrupt]})).await;
        }
        self.sends("values", &json!({"messages": messages, "__interrupt__": interrupts})).await;
        let state = state(&self.id, messages, interrupts);
        self.ends("success", Some(state)).await;
    }

    /// Ends the run in order, with these messages in the state.
    pub(crate) async fn ends_with(mut self, messages: &Value) {
        self.sends("values", &json!({"messages": messages})).await;
        let state = state(&self.id, messages, &json!([]));
        self.ends("success", Some(state)).await;
    }

    /// The user's message that started the run.
    pub(crate) fn said(&self) -> Value {
        self.body["input"]["messages"][0].clone()
    }
}
