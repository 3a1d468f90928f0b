//! A LangGraph server on a real socket that answers by itself, with every fault that servers and
//! proxies have shown: it repeats, forgets, cuts, falls silent and restarts.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::task::TaskTracker;

use super::gateway::{RUN, THREAD};
use super::generate::{Progress, ScriptPart, Tale};

/// The interval of the Python server's heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// How long the JavaScript server keeps a stream open after its last event, and the Python server a
/// stream of a run that it does not know.
const TAIL: Duration = Duration::from_millis(500);

/// How long a server takes to process a join: at least one millisecond step of the ids.
const JOIN: Duration = Duration::from_millis(2);

/// The Python server's clock at the start, in milliseconds.
const EPOCH: u128 = 1_795_305_649_395;

/// How many connections may wait to be accepted.
const BACKLOG: u32 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Python,
    JavaScript,
}

/// The behaviour of a server, and its faults.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) kind: Kind,
    /// The gateway client's id of the run, if a client started it.
    pub(crate) name: Option<&'static str>,
    pub(crate) tale: Tale,
    pub(crate) end: End,
    /// The milliseconds before each part; the list repeats.
    pub(crate) paces: Vec<u64>,
    /// The fault of each stream, in the order of the requests.
    pub(crate) faults: Vec<Option<Fault>>,
    /// How many milliseconds a join reads from the store after it has subscribed to new parts. A
    /// Python server sends the parts of that time twice.
    pub(crate) overlaps: Vec<u64>,
    /// Whether responses have a `Date` header.
    pub(crate) has_dates: bool,
    pub(crate) outages: Vec<Outage>,
    /// The restarts between the attempts.
    pub(crate) restarts: Vec<Restart>,
    /// How many milliseconds the run is pending.
    pub(crate) waits: u64,
    /// How many milliseconds after the run's end the server forgets its stream, if it does.
    pub(crate) forgets: Option<u64>,
    /// For how long after the run's end the record still has the status `running`.
    pub(crate) lag: Duration,
}

/// How the run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Succeeded,
    /// The run is interrupted, and waits for an answer.
    Asked,
    Failed,
    Cancelled,
    /// The server has forgotten the run.
    Gone,
    /// The server has forgotten the run and its thread.
    AllGone,
}

/// How a stream ends too early.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    /// After how many bytes.
    pub(crate) after: usize,
    pub(crate) how: How,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Reset,
    /// The connection closes without the last chunk.
    Cut,
    /// The body ends in order, as if it were complete.
    Orderly,
    /// No more bytes arrive, and the connection stays open.
    Silent,
    /// A join is answered 500 or 503. A request that started a run is reset.
    Refused(u16),
    /// A join is not answered. A request that started a run falls silent.
    Unanswered,
}

/// A period in which no request is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outage {
    /// Milliseconds since the one before.
    pub(crate) after: u64,
    pub(crate) millis: u64,
    pub(crate) how: Out,
    /// Whether open streams are cut.
    pub(crate) cuts: bool,
}

/// How requests fail in such a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Out {
    /// Connections are refused.
    Refused,
    /// The server answers 503.
    Unavailable,
    /// The server never answers.
    Unanswered,
}

/// The end of one process, and the start of the next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Restart {
    /// The old process ends its streams in order, and lives on for this many milliseconds.
    pub(crate) lingers: Option<u64>,
    /// For how many milliseconds no process runs.
    pub(crate) down: u64,
    /// After how many further milliseconds the run starts again.
    pub(crate) pending: u64,
}

/// The server. All clones share one state.
#[derive(Clone, Debug)]
pub(crate) struct Hostile(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    script: Script,
    address: SocketAddr,
    store: Mutex<Store>,
    changed: watch::Sender<()>,
    tasks: TaskTracker,
}

#[derive(Debug)]
struct Store {
    begins_at: Option<Instant>,
    /// The number of the process.
    process: usize,
    /// The parts that the run has sent in this process.
    parts: Vec<Part>,
    status: &'static str,
    committed: Option<Progress>,
    commits: usize,
    over_at: Option<Instant>,
    is_settled: bool,
    /// How many causes there are to refuse connections.
    downs: usize,
    /// If set, how requests fail.
    out: Option<Out>,
    /// How often all streams were cut.
    cuts: usize,
    faults: VecDeque<Option<Fault>>,
    overlaps: VecDeque<u64>,
    /// The requests, and what was sent on streams.
    diary: Vec<String>,
    /// Requests that no client of this server may make.
    complaints: Vec<String>,
}

#[derive(Clone, Debug)]
struct Part {
    id: u128,
    /// The part's bytes on the wire.
    frame: Vec<u8>,
    /// Whether the server stores the part. The Python server does not store an error.
    is_kept: bool,
}

/// The connection of a stream.
struct Wire {
    socket: TcpStream,
    fault: Option<Fault>,
    sent: usize,
    /// The sent frames, printed after a failure.
    told: Vec<String>,
}

/// A stream's position among the parts to come.
struct Subscribed {
    at: usize,
    process: usize,
    cuts: usize,
    /// How long after that the store is read, if it is.
    overlap: Option<u64>,
}

/// The next step of a stream.
enum Next {
    Part(Part),
    Fails(How),
    Over,
    /// Nothing yet.
    None,
}

/// The stream is over, in order or not.
struct Over;

// === impl Hostile ===

impl Hostile {
    /// A listening server whose run has not begun.
    pub(crate) fn start(script: Script) -> Self {
        let socket = bound("127.0.0.1:0".parse().unwrap());
        let store = Store {
            begins_at: None,
            process: 0,
            parts: Vec::new(),
            status: "pending",
            committed: None,
            commits: 0,
            over_at: None,
            is_settled: false,
            downs: 0,
            out: None,
            cuts: 0,
            faults: script.faults.iter().copied().collect(),
            overlaps: script.overlaps.iter().copied().collect(),
            diary: Vec::new(),
            complaints: Vec::new(),
        };
        let address = socket.local_addr().unwrap();
        let (changed, store) = (watch::Sender::new(()), Mutex::new(store));
        let tasks = TaskTracker::new();
        let server = Self(Arc::new(Shared { script, address, store, changed, tasks }));
        let listener = socket.listen(BACKLOG).unwrap();
        server.0.tasks.spawn(server.clone().listen(listener));
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.0.address)
    }

    /// Begins the run, and its faults.
    pub(crate) fn begin(&self) {
        let mut store = self.store();
        if store.begins_at.is_none() {
            store.begins_at = Some(Instant::now());
            let (run, world) = (self.clone(), self.clone());
            self.0.tasks.spawn(async move {
                let told = async {
                    run.run().await;
                    run.forget().await;
                };
                tokio::join!(told, world.outages());
                run.change(|store| store.is_settled = true);
            });
        }
    }

    /// Waits until the run is over, and no fault is left except those of single streams.
    pub(crate) async fn settled(&self) {
        self.until(|store| store.is_settled).await;
    }

    /// The requests, and what was sent on streams, in order.
    pub(crate) fn diary(&self) -> Vec<String> {
        self.store().diary.clone()
    }

    pub(crate) fn complaints(&self) -> Vec<String> {
        self.store().complaints.clone()
    }

    /// The final content of the thread; `None` if the thread is gone.
    pub(crate) fn truth(&self) -> Option<&Progress> {
        (self.0.script.end != End::AllGone).then_some(&self.0.script.tale.truth)
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.0.store.lock().unwrap()
    }

    fn change<T>(&self, act: impl FnOnce(&mut Store) -> T) -> T {
        let result = act(&mut self.store());
        self.0.changed.send_replace(());
        result
    }

    async fn until(&self, is_so: impl Fn(&Store) -> bool) {
        let mut changed = self.0.changed.subscribe();
        while !is_so(&self.store()) {
            changed.changed().await.unwrap();
        }
    }

    fn is_python(&self) -> bool {
        self.0.script.kind == Kind::Python
    }

    // --- what the server does ---

    async fn run(&self) {
        let script = &self.0.script;
        pause(script.waits).await;
        let mut paces = script.paces.iter().copied().cycle();
        for (number, attempt) in script.tale.attempts.iter().enumerate() {
            if let Some(restart) = number.checked_sub(1).map(|before| script.restarts[before]) {
                self.restart(restart, attempt.begins_with.clone()).await;
            }
            self.change(|store| store.status = "running");
            for step in &attempt.steps {
                pause(paces.next().unwrap_or(0)).await;
                self.tell(&step.part, step.commits.clone(), true);
                // A client that connects now connects between two parts of one millisecond.
                tokio::task::yield_now().await;
            }
        }
        pause(paces.next().unwrap_or(0)).await;
        match script.end {
            End::Succeeded => self.is_over("success"),
            End::Asked => {
                let asks = json!({"__interrupt__": [{"id": "i1", "value": "sure?"}]});
                self.tell(&ScriptPart::new("updates", &asks), None, true);
                if self.is_python() {
                    let truth = &script.tale.truth;
                    let mut values = truth.state.clone();
                    values["messages"] = json!(truth.messages);
                    values["__interrupt__"] = asks["__interrupt__"].clone();
                    self.tell(&ScriptPart::new("values", &values), None, true);
                } else {
                    self.tell(&ScriptPart::new("values", &asks), None, true);
                }
                self.is_over("success");
            }
            End::Failed => {
                let error = json!({"error": "ValueError", "message": "boom"});
                self.tell(&ScriptPart::new("error", &error), None, !self.is_python());
                self.is_over("error");
            }
            End::Cancelled if self.is_python() => self.is_over("interrupted"),
            End::Cancelled => {
                let error = json!({"error": "Error", "message": "interrupt"});
                self.tell(&ScriptPart::new("error", &error), None, true);
                self.is_over("error");
            }
            End::Gone | End::AllGone => {
                let restart = Restart { lingers: None, down: 300, pending: 0 };
                self.restart(restart, Some(script.tale.truth.clone())).await;
                self.is_over("gone");
            }
        }
    }

    /// Ends this process, and starts the next.
    async fn restart(&self, restart: Restart, committed: Option<Progress>) {
        self.change(|store| {
            store.process += 1;
            store.parts.clear();
            store.status = "pending";
            store.committed = committed;
            store.downs += usize::from(restart.lingers.is_none());
        });
        if let Some(lingers) = restart.lingers {
            pause(lingers).await;
            self.change(|store| store.downs += 1);
        }
        pause(restart.down).await;
        self.change(|store| store.downs -= 1);
        pause(restart.pending).await;
    }

    fn tell(&self, part: &ScriptPart, commits: Option<Progress>, is_kept: bool) {
        self.change(|store| {
            let elapsed = store.begins_at.unwrap().elapsed().as_millis();
            let id = if self.is_python() { EPOCH + elapsed } else { store.parts.len() as u128 };
            let data = part.data.replace("\"R\"", &format!("\"{RUN}\""));
            let frame = if self.is_python() {
                format!("event: {}\r\ndata: {data}\r\nid: {id}-0\r\n\r\n", part.event)
            } else {
                let data: Value = serde_json::from_str(&data).unwrap();
                let printed = serde_json::to_string_pretty(&data).unwrap();
                let lines: String =
                    printed.lines().flat_map(|line| ["data: ", line, "\n"]).collect();
                format!("event: {}\n{lines}id: {id}\n\n", part.event)
            };
            store.parts.push(Part { id, frame: frame.into_bytes(), is_kept });
            if let Some(commits) = commits {
                store.committed = Some(commits);
                store.commits += 1;
            }
        });
    }

    fn is_over(&self, status: &'static str) {
        self.change(|store| {
            store.status = status;
            store.over_at = Some(Instant::now());
        });
    }

    /// Forgets the stream of the run.
    async fn forget(&self) {
        if let Some(millis) = self.0.script.forgets {
            pause(millis).await;
            self.change(|store| {
                store.process += 1;
                store.parts.clear();
            });
        }
    }

    async fn outages(&self) {
        for outage in &self.0.script.outages {
            pause(outage.after).await;
            self.change(|store| {
                store.cuts += usize::from(outage.cuts);
                store.out = Some(outage.how);
                store.downs += usize::from(outage.how == Out::Refused);
            });
            pause(outage.millis).await;
            self.change(|store| {
                store.out = None;
                store.downs -= usize::from(outage.how == Out::Refused);
            });
        }
    }

    // --- what the server answers ---

    async fn listen(self, mut listener: TcpListener) {
        let mut changed = self.0.changed.subscribe();
        loop {
            while self.store().downs == 0 {
                tokio::select! {
                    biased;
                    told = changed.changed() => {
                        if told.is_err() {
                            return;
                        }
                    }
                    accepted = listener.accept() => {
                        let (socket, _) = accepted.unwrap();
                        self.0.tasks.spawn(self.clone().answer(socket));
                    }
                }
            }
            drop(listener);
            // A bound socket keeps the port and refuses connections.
            let socket = bound(self.0.address);
            self.until(|store| store.downs == 0).await;
            listener = socket.listen(BACKLOG).unwrap();
        }
    }

    async fn answer(self, mut socket: TcpStream) {
        let Some((line, leid)) = read_request(&mut socket).await else { return };
        let out = {
            let mut store = self.store();
            let behind = leid.as_ref().map(|id| format!(" behind {id}")).unwrap_or_default();
            let at = store.begins_at.map_or(0, |at| at.elapsed().as_millis());
            store.diary.push(format!("{at}: {line}{behind}"));
            store.out
        };
        let stream = format!("GET /threads/{THREAD}/runs/{RUN}/stream");
        if out == Some(Out::Unanswered) {
            left(&mut socket).await;
        } else if out.is_some() {
            write_answer(&mut socket, 503, "text/plain", "no").await;
        } else if line == format!("POST /threads/{THREAD}/runs/stream") {
            self.begin();
            self.stream(socket, true, leid).await;
        } else if line == stream {
            self.stream(socket, false, leid).await;
        } else {
            let (status, body) = self.record(&line);
            write_answer(&mut socket, status, "application/json", &body.to_string()).await;
        }
    }

    /// Answers a request for stored data.
    fn record(&self, line: &str) -> (u16, Value) {
        let missing = || (404, json!({"detail": "Not Found"}));
        let (thread, mut store) = (format!("/threads/{THREAD}"), self.store());
        let run = store.record(&self.0.script);
        let is_gone = self.0.script.end == End::AllGone && store.status == "gone";
        let Some(path) = line.split_once(&thread).map(|(_, path)| path) else {
            if line == "POST /threads" {
                return (200, json!({}));
            }
            if line == "GET /info" {
                let name =
                    if self.is_python() { "langgraph_py_version" } else { "langgraph_js_version" };
                return (200, json!({"version": "0", name: "1"}));
            }
            store.complaints.push(format!("asks for {line}"));
            return missing();
        };
        match path.split('?').next().unwrap() {
            _ if is_gone => missing(),
            "" => (200, store.thread(&self.0.script)),
            "/state" => (200, store.state(&self.0.script)),
            // The state of a namespace: no subgraph runs in this graph.
            "/state/checkpoint" => missing(),
            "/history" => {
                let made = store.committed.is_some();
                (200, if made { json!([store.state(&self.0.script)]) } else { json!([]) })
            }
            "/runs" => {
                let wanted =
                    path.split_once("status=").map(|(_, rest)| rest.split('&').next().unwrap());
                let is_wanted = |run: &Value| {
                    wanted.is_none_or(|wanted| run["status"].as_str() == Some(wanted))
                };
                (200, json!(run.into_iter().filter(is_wanted).collect::<Vec<_>>()))
            }
            path if path == format!("/runs/{RUN}") => run.map_or_else(missing, |run| (200, run)),
            "/stream" => missing(),
            _ => {
                store.complaints.push(format!("asks for {line}"));
                missing()
            }
        }
    }

    async fn stream(&self, socket: TcpStream, starts: bool, leid: Option<String>) {
        let fault = self.store().faults.pop_front().flatten();
        let mut wire = Wire { socket, fault, sent: 0, told: Vec::new() };
        // A stream that is over needs nothing more.
        let _ = self.tell_all(&mut wire, starts, leid.as_deref()).await;
        let mut store = self.store();
        let at = store.begins_at.map_or(0, |at| at.elapsed().as_millis());
        let behind = leid.unwrap_or_default();
        store.diary.push(format!("{at}: behind {behind:?} got: {}", wire.told.join(", ")));
    }

    async fn tell_all(
        &self,
        wire: &mut Wire,
        starts: bool,
        leid: Option<&str>,
    ) -> Result<(), Over> {
        match wire.fault {
            Some(Fault { how: How::Refused(status), .. }) if !starts => {
                write_answer(&mut wire.socket, status, "text/plain", "refused").await;
                return Err(Over);
            }
            Some(Fault { how: How::Refused(_), after }) => {
                wire.fault = Some(Fault { how: How::Reset, after });
            }
            Some(Fault { how: How::Unanswered, .. }) if !starts => {
                return wire.fail(How::Unanswered).await;
            }
            _ => {}
        }
        if !starts {
            sleep(JOIN).await;
        }
        let subscribed = self.subscribe(starts, leid);
        let Subscribed { mut at, process, cuts, overlap } = subscribed;
        wire.begin(starts, self.date()).await?;
        if let Some(overlap) = overlap {
            pause(overlap).await;
            for frame in self.stored(leid.unwrap_or_default(), &subscribed) {
                wire.send(&frame).await?;
            }
        }
        let mut changed = self.0.changed.subscribe();
        loop {
            match self.next(at, process, cuts) {
                Next::Part(part) => {
                    at += 1;
                    wire.send(&part.frame).await?;
                }
                Next::Fails(how) => return wire.fail(how).await,
                Next::Over => break,
                Next::None => tokio::select! {
                    biased;
                    told = changed.changed() => drop(told),
                    () = left(&mut wire.socket) => return Err(Over),
                    () = sleep(HEARTBEAT), if self.is_python() => {
                        wire.send(b": heartbeat\r\n\r\n").await?;
                    }
                },
            }
        }
        if !self.is_python() || (leid.is_none() && !starts) {
            pause(u64::try_from(TAIL.as_millis()).unwrap()).await;
        }
        wire.end().await
    }

    /// The next step of a stream of this process that was not cut before.
    fn next(&self, at: usize, process: usize, cuts: usize) -> Next {
        let store = self.store();
        if store.cuts != cuts {
            return Next::Fails(How::Cut);
        }
        if store.process != process {
            let restart = self.0.script.restarts.get(process);
            let is_orderly = restart.is_some_and(|restart| restart.lingers.is_some());
            return Next::Fails(if is_orderly { How::Orderly } else { How::Reset });
        }
        match store.parts.get(at) {
            Some(part) => Next::Part(part.clone()),
            None if store.over_at.is_some() => Next::Over,
            None => Next::None,
        }
    }

    /// The position from which a stream gets new parts.
    fn subscribe(&self, starts: bool, leid: Option<&str>) -> Subscribed {
        let mut store = self.store();
        let (process, cuts) = (store.process, store.cuts);
        if starts {
            return Subscribed { at: 0, process, cuts, overlap: None };
        }
        if leid.is_none() && !self.is_python() {
            store.complaints.push("joins a JavaScript server without a Last-Event-ID".to_owned());
        }
        let overlap = store.overlaps.pop_front().unwrap_or(0);
        let overlap = if self.is_python() && store.over_at.is_none() { overlap } else { 0 };
        let is_replayed = leid.is_some() || store.status == "gone";
        let overlap = is_replayed.then_some(overlap);
        Subscribed { at: store.parts.len(), process, cuts, overlap }
    }

    /// The frames from the store.
    fn stored(&self, leid: &str, subscribed: &Subscribed) -> Vec<Vec<u8>> {
        let store = self.store();
        if store.status == "gone" {
            let error = if self.is_python() {
                "event: error\r\ndata: {\"error\":\"HTTPException\",\"message\":\"404: Run not found\"}\r\n\r\n"
            } else {
                "event: error\ndata: \"Run not found\"\n\n"
            };
            return vec![error.as_bytes().to_vec()];
        }
        if store.process != subscribed.process {
            return Vec::new();
        }
        let behind = cursor(leid);
        let is_asked = |part: &&Part| part.is_kept && i128::try_from(part.id).unwrap() > behind;
        store.parts.iter().filter(is_asked).map(|part| part.frame.clone()).collect()
    }

    /// The `Date` header.
    fn date(&self) -> String {
        let begins_at = self.store().begins_at.filter(|_| self.0.script.has_dates);
        let Some(begins_at) = begins_at else { return String::new() };
        let millis = u64::try_from(EPOCH).unwrap();
        let date = UNIX_EPOCH + Duration::from_millis(millis) + begins_at.elapsed();
        format!("date: {}\r\n", httpdate::fmt_http_date(date))
    }
}

// === impl Store ===

impl Store {
    /// The status in the run's record.
    fn told_status(&self, script: &Script) -> &'static str {
        let lags = self.over_at.is_some_and(|at| at.elapsed() < script.lag);
        if lags && self.status != "gone" { "running" } else { self.status }
    }

    fn record(&self, script: &Script) -> Option<Value> {
        let status = self.told_status(script);
        let (modes, input) = (["values", "messages-tuple"], Progress::default().messages);
        let input = json!({"messages": input});
        let kwargs = json!({"resumable": true, "stream_mode": modes, "input": input});
        (status != "gone").then(|| {
            let metadata = json!({"threadway_run_id": script.name, "threadway_start": RUN});
            json!({"run_id": RUN, "thread_id": THREAD, "status": status, "kwargs": kwargs,
                "metadata": metadata,
                "created_at": "2026-11-22T11:16:55.890000+00:00"})
        })
    }

    fn state(&self, script: &Script) -> Value {
        let Some(committed) = &self.committed else {
            return json!({"values": null, "next": [], "tasks": [], "metadata": null});
        };
        let mut values = committed.state.clone();
        values["messages"] = json!(committed.messages);
        let task = |error: Value, interrupts: Value| json!([{"id": "t", "name": "model", "error": error, "interrupts": interrupts}]);
        let (next, tasks) = match (self.over_at, script.end) {
            (Some(_), End::Succeeded) => (json!([]), json!([])),
            (Some(_), End::Asked) => {
                (json!(["model"]), task(Value::Null, json!([{"id": "i1", "value": "sure?"}])))
            }
            (Some(_), End::Failed) => {
                (json!(["model"]), task(json!("ValueError('boom')"), json!([])))
            }
            _ => (json!(["model"]), task(Value::Null, json!([]))),
        };
        json!({"values": values, "next": next, "tasks": tasks, "metadata": {"run_id": RUN},
            "checkpoint": {"checkpoint_id": format!("c{}", self.commits)}})
    }

    fn thread(&self, script: &Script) -> Value {
        let failed = self.over_at.is_some() && script.end == End::Failed;
        let error = json!({"error": "ValueError", "message": "boom"});
        let error = if failed && script.kind == Kind::Python { error } else { Value::Null };
        let status = if self.over_at.is_some() { "idle" } else { "busy" };
        json!({"thread_id": THREAD, "status": status, "error": error, "metadata": {}})
    }
}

// === impl Wire ===

impl Wire {
    async fn begin(&mut self, starts: bool, date: String) -> Result<(), Over> {
        let location = if starts {
            format!("content-location: /threads/{THREAD}/runs/{RUN}\r\n")
        } else {
            String::new()
        };
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n{location}{date}\
             transfer-encoding: chunked\r\nconnection: close\r\n\r\n"
        );
        self.socket.write_all(head.as_bytes()).await.map_err(|_| Over)
    }

    /// Sends bytes as one chunk, as far as the fault lets them pass.
    async fn send(&mut self, bytes: &[u8]) -> Result<(), Over> {
        let left = self.fault.map(|fault| (fault, fault.after.saturating_sub(self.sent)));
        let (through, fault) = match left {
            Some((fault, left)) if left < bytes.len() => (left, Some(fault.how)),
            _ => (bytes.len(), None),
        };
        // A body that ends in order is complete for HTTP.
        let length = if fault == Some(How::Orderly) { through } else { bytes.len() };
        if through > 0 || fault.is_none() {
            let chunk = [format!("{length:x}\r\n").as_bytes(), &bytes[..through]].concat();
            self.socket.write_all(&chunk).await.map_err(|_| Over)?;
            if through == length {
                self.socket.write_all(b"\r\n").await.map_err(|_| Over)?;
            }
        }
        self.sent += through;
        self.told.push(name_of(bytes));
        match fault {
            Some(how) => self.fail(how).await,
            None => Ok(()),
        }
    }

    async fn fail(&mut self, how: How) -> Result<(), Over> {
        self.told.push(format!("{how:?}"));
        match how {
            How::Orderly => drop(self.end().await),
            How::Silent | How::Unanswered => left(&mut self.socket).await,
            How::Reset => drop(self.socket.set_zero_linger()),
            How::Cut | How::Refused(_) => {}
        }
        Err(Over)
    }

    async fn end(&mut self) -> Result<(), Over> {
        self.socket.write_all(b"0\r\n\r\n").await.map_err(|_| Over)
    }
}

/// Waits until the client has closed the connection.
async fn left(socket: &mut TcpStream) {
    let mut byte = [0];
    while matches!(socket.read(&mut byte).await, Ok(1..)) {}
}

/// A frame's id and event name.
fn name_of(frame: &[u8]) -> String {
    let text = String::from_utf8_lossy(frame);
    let field = |name| text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    format!("{} {}", field("id: "), field("event: "))
}

/// A socket that keeps its port, and refuses connections until it listens.
fn bound(address: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(address).unwrap();
    socket
}

/// The number in a `Last-Event-ID`. Any other text counts as a position after all events.
fn cursor(id: &str) -> i128 {
    id.strip_suffix("-0").unwrap_or(id).parse().unwrap_or(i128::MAX)
}

async fn pause(millis: u64) {
    if millis > 0 {
        sleep_until(Instant::now() + Duration::from_millis(millis)).await;
    }
}

/// Reads a whole request: its line, and its `Last-Event-ID`.
async fn read_request(socket: &mut TcpStream) -> Option<(String, Option<String>)> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if matches!(socket.read_buf(&mut bytes).await, Ok(0) | Err(_)) {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..head_end].to_vec()).unwrap();
    let field = |name| head.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
    let length: usize = field("content-length: ").map_or(0, |length| length.parse().unwrap());
    while bytes.len() < head_end + length {
        if matches!(socket.read_buf(&mut bytes).await, Ok(0) | Err(_)) {
            return None;
        }
    }
    let line = head.lines().next()?.strip_suffix(" HTTP/1.1")?.to_owned();
    Some((line, field("last-event-id: ")))
}

/// Answers, unless the client has disconnected.
async fn write_answer(socket: &mut TcpStream, status: u16, content_type: &str, body: &str) {
    let answer = format!(
        "HTTP/1.1 {status} Status\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{body}",
        body.len()
    );
    let _ = socket.write_all(answer.as_bytes()).await;
}
