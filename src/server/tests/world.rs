//! A small world: one LangGraph server, one or two gateways, a few callers and their threads.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use threadway_demo::{Demo, Pace};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_service::Service;

use super::client::{Asks, Client, Read};
use super::network::{BEGAN, Network};
use crate::agents::{Agents, Upstream};
use crate::server::{Observer, RETRY, Server, Settings};
use crate::sync::simulated::{self, Chance};
use crate::upstream;

pub(super) const THREADS: [&str; 3] = [
    "0f9cfe5e-7d44-4d4f-8aef-000000000001",
    "0f9cfe5e-7d44-4d4f-8aef-000000000002",
    "0f9cfe5e-7d44-4d4f-8aef-000000000003",
];

/// Who may see which thread. The last caller may see none of the first.
const SEEN_BY: [&[&str]; 3] = [&["alice", "carol"], &["bob"], &["alice", "bob"]];

const CALLERS: [&str; 3] = ["alice", "bob", "carol"];

/// How long the runs of a world may take after the last request of a client.
const PATIENCE: Duration = Duration::from_mins(10);

/// How long after the last run a follower may take until it holds what LangGraph holds, if nothing
/// has gone wrong. A client that has left returns after [`RETRY`], a followed thread is looked at
/// every 2 s, and the slowest cable brings the stream of a run in some seconds.
const IN_TIME: Duration = RETRY.saturating_add(Duration::from_secs(7));

/// The same after faults: the pauses before a server that has failed is asked again grow to 30 s.
const IN_TIME_AFTER_FAULTS: Duration = Duration::from_secs(90);

#[derive(Clone)]
pub(super) struct World {
    pub(super) network: Network,
    shared: Rc<Shared>,
}

struct Shared {
    gateways: RefCell<Vec<Gateway>>,
    /// LangGraph without its network.
    langgraph: Router,
    agents: [&'static str; 3],
    /// Each start of a run: the thread, the client's id, and the status of the response.
    posts: RefCell<Vec<(usize, String, StatusCode)>>,
    /// The client's ids of the runs that a stream of theirs has shown.
    shown: RefCell<BTreeSet<String>>,
    /// The actors that have not ended.
    actors: TaskTracker,
    watchers: TaskTracker,
    /// Cancelled when no run is live, and clients stay where they are.
    settling: CancellationToken,
    /// Cancelled when those who watch are to be through.
    leaving: CancellationToken,
    /// The last event id that a client of each thread was sent.
    ids: RefCell<[Option<String>; 3]>,
    /// The runs that were posted since carol may not see the first thread any more.
    hidden_runs: RefCell<Option<Vec<String>>>,
}

#[derive(Clone)]
struct Gateway {
    server: Arc<Server>,
    shutdown: CancellationToken,
}

// === impl Gateway ===

impl Gateway {
    fn new() -> Self {
        let shutdown = CancellationToken::new();
        let observer = Observer::default();
        let url = "http://langgraph:2024".parse().unwrap();
        let client = upstream::Client::new(url, None).unwrap().with_metrics(&observer.metrics);
        let upstreams = vec![Upstream { name: "only".to_owned(), client }];
        let agents = Agents::new(upstreams, vec![]);
        let server = Server::new(agents, Settings::default(), observer, shutdown.clone());
        Self { server: Arc::new(server), shutdown }
    }

    /// Stops the gateway. Everything of it must end.
    async fn stop(self) {
        self.shutdown.cancel();
        let runs = self.server.state.threads.runs();
        if tokio::time::timeout(Duration::from_mins(2), runs.drained()).await.is_err() {
            let waiting = simulated::waiting();
            simulated::fail(format!("a gateway does not stop: {waiting:?}"));
        }
    }
}

// === impl World ===

impl World {
    pub(super) fn agent_of(&self, thread: usize) -> &'static str {
        self.shared.agents[thread]
    }

    pub(super) fn may_see(&self, thread: usize, key: &str) -> bool {
        self.network.may_see(THREADS[thread], key)
    }

    pub(super) fn is_settling(&self) -> bool {
        self.shared.settling.is_cancelled()
    }

    pub(super) fn note_id(&self, thread: usize, id: &str) {
        self.shared.ids.borrow_mut()[thread] = Some(id.to_owned());
    }

    pub(super) fn some_id(&self, thread: usize) -> Option<String> {
        self.shared.ids.borrow()[thread].clone()
    }

    /// Whether a text has what this caller must not see. Each run has a secret of its own.
    pub(super) fn is_secret(&self, thread: usize, key: &str, text: &str) -> bool {
        if self.may_see(thread, key) {
            return false;
        }
        let hidden = self.shared.hidden_runs.borrow();
        match &*hidden {
            Some(runs) if SEEN_BY[thread].contains(&key) => {
                runs.iter().any(|run| text.contains(&format!("secret of {run}!")))
            }
            _ => text.contains("secret of "),
        }
    }

    /// Whether an event of this run, if it names one, must not be sent to this caller.
    pub(super) fn is_hidden(&self, thread: usize, key: &str, run: &Value) -> bool {
        if !SEEN_BY[thread].contains(&key) {
            return true;
        }
        let hidden = self.shared.hidden_runs.borrow();
        let is_later = |runs: &Vec<String>| runs.iter().any(|id| run == id.as_str());
        !self.may_see(thread, key) && hidden.as_ref().is_some_and(is_later)
    }

    /// Notes that a client starts a run.
    pub(super) fn posts(&self, id: &str) {
        if let Some(hidden) = &mut *self.shared.hidden_runs.borrow_mut() {
            hidden.push(id.to_owned());
        }
    }

    /// The routes of one of the gateways.
    pub(super) fn routes(&self, chance: &mut Chance) -> Router {
        let gateways = self.shared.gateways.borrow();
        let at = chance.below(gateways.len() as u64);
        let gateway = &gateways[usize::try_from(at).unwrap()];
        gateway.server.newest.clients.borrow().routes.clone()
    }

    pub(super) fn posted(&self, thread: usize, id: &str, status: StatusCode) {
        self.shared.posts.borrow_mut().push((thread, id.to_owned(), status));
    }

    /// Notes that LangGraph has given a run an id.
    pub(super) fn has_begun(&self, id: &str) {
        self.shared.shown.borrow_mut().insert(id.to_owned());
    }

    /// An answer of LangGraph, without network.
    async fn langgraph(&self, path: &str) -> Option<Value> {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = self.shared.langgraph.clone().call(request).await.unwrap();
        let is_found = response.status() == StatusCode::OK;
        let body = response.into_body().collect().await.unwrap().to_bytes();
        is_found.then(|| serde_json::from_slice(&body).unwrap())
    }

    async fn runs(&self, thread: usize) -> Vec<Value> {
        let path = format!("/threads/{}/runs?limit=100", THREADS[thread]);
        let runs = self.langgraph(&path).await;
        runs.and_then(|runs| runs.as_array().cloned()).unwrap_or_default()
    }

    async fn has_live_run(&self) -> bool {
        for thread in 0..THREADS.len() {
            let runs = self.runs(thread).await;
            if runs.iter().any(|run| run["status"] == "pending" || run["status"] == "running") {
                return true;
            }
        }
        false
    }

    /// Checks what a client holds at the end of a run, if LangGraph has run nothing since.
    async fn check_after_run(&self, client: &Client) {
        let runs = self.runs(client.thread).await;
        let is_live = |run: &Value| run["status"] == "pending" || run["status"] == "running";
        let newest = runs.first().and_then(|run| run["run_id"].as_str());
        if newest.is_some() && newest == client.run.as_deref() && !runs.iter().any(is_live) {
            self.check(client).await;
        }
    }

    /// Checks that a client holds what LangGraph holds.
    async fn check(&self, client: &Client) {
        let path = format!("/threads/{}/state", THREADS[client.thread]);
        let Some(state) = self.langgraph(&path).await else { return };
        let mut values = state["values"].clone();
        let Some(members) = values.as_object_mut() else { return };
        let messages = members.remove("messages").unwrap_or(json!([]));
        let messages: Vec<_> = messages.as_array().unwrap().iter().map(stored).collect();
        let is_shown =
            |message: &&Value| message["role"] != "activity" && message["role"] != "reasoning";
        let held: Vec<_> = client.held.messages.iter().filter(is_shown).map(held).collect();
        if held != messages {
            simulated::fail(format!("{} holds {held:?}, LangGraph {messages:?}", client.name));
        }
        if client.held.state != values {
            let held = &client.held.state;
            simulated::fail(format!("{} holds the state {held}, LangGraph {values}", client.name));
        }
        for (id, grown) in &client.grown {
            let Some(whole) = messages.iter().find(|(of, ..)| of == id) else { continue };
            for text in grown.iter().filter(|text| !whole.2.starts_with(&***text)) {
                simulated::fail(format!("{} was sent {text:?} of {:?}", client.name, whole.2));
            }
        }
    }
}

/// The id, the role, the text, the calls and the answered call of a message.
type Shown = (String, String, String, Vec<(String, String, Value)>, String);

fn text_of(content: &Value) -> String {
    if let Some(text) = content.as_str() {
        return text.to_owned();
    }
    let blocks = content.as_array().into_iter().flatten();
    blocks.filter(|block| block["type"] == "text").map(|block| string(&block["text"])).collect()
}

fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A message as LangGraph stores it.
fn stored(message: &Value) -> Shown {
    let role = match message["type"].as_str().unwrap_or_default() {
        "human" => "user",
        "ai" => "assistant",
        other => other,
    };
    let calls = message["tool_calls"].as_array().into_iter().flatten();
    let calls =
        calls.map(|call| (string(&call["id"]), string(&call["name"]), call["args"].clone()));
    let (id, answers) = (string(&message["id"]), string(&message["tool_call_id"]));
    (id, role.to_owned(), text_of(&message["content"]), calls.collect(), answers)
}

/// A message as a client holds it.
fn held(message: &Value) -> Shown {
    let calls = message["toolCalls"].as_array().into_iter().flatten();
    let calls = calls.map(|call| {
        let function = &call["function"];
        let arguments = string(&function["arguments"]);
        let arguments = serde_json::from_str(&arguments).unwrap_or(Value::String(arguments));
        (string(&call["id"]), string(&function["name"]), arguments)
    });
    let (id, answers) = (string(&message["id"]), string(&message["toolCallId"]));
    (id, string(&message["role"]), text_of(&message["content"]), calls.collect(), answers)
}

/// One schedule of a world.
pub(super) async fn world() {
    let mut chance = simulated::chance();
    let seen_by = THREADS.into_iter().zip(SEEN_BY);
    let seen_by = seen_by.map(|(thread, by)| (thread.to_owned(), by.to_vec()));
    let network = Network::new(seen_by.collect::<BTreeMap<_, _>>());
    let beat = [0, 3, 30][usize::try_from(chance.below(3)).unwrap()];
    let demo = Demo::at(BEGAN, Pace::new(Duration::from_millis(beat)), CancellationToken::new());
    let guarded = network.guarded(demo.routes());
    let of_network = network.clone();
    simulated::connect_by(move |_| of_network.dial(&guarded));
    let agents = THREADS.map(|_| if chance.one_of(3) { "approval" } else { "agent" });
    let gateways = (0..=chance.below(2)).map(|_| Gateway::new()).collect();
    let shared = Shared {
        gateways: RefCell::new(gateways),
        langgraph: demo.routes(),
        agents,
        posts: RefCell::default(),
        shown: RefCell::default(),
        actors: TaskTracker::new(),
        watchers: TaskTracker::new(),
        settling: CancellationToken::new(),
        leaving: CancellationToken::new(),
        ids: RefCell::default(),
        hidden_runs: RefCell::default(),
    };
    let world = World { network, shared: Rc::new(shared) };
    let threads = 1 + chance.below(3);
    for number in 0..=chance.below(4) {
        let (thread, chance) = (chance.below(threads), simulated::chance());
        world.start_actor(number, usize::try_from(thread).unwrap(), chance);
    }
    if chance.one_of(4) {
        let (world, chance) = (world.clone(), simulated::chance());
        let tracker = world.shared.actors.clone();
        simulated::start("restart", tracker.track_future(restarts(world, chance)));
    }
    if chance.one_of(4) {
        let (network, shared) = (world.network.clone(), Rc::clone(&world.shared));
        let delay = chance.below(6_000);
        simulated::start("revocation", async move {
            tokio::time::sleep(Duration::from_millis(delay)).await;
            simulated::note(|| "carol may not see the first thread any more".to_owned());
            network.faults().seen_by.insert(THREADS[0].to_owned(), vec!["alice"]);
            shared.hidden_runs.replace(Some(Vec::new()));
        });
    }
    world.through().await;
}

impl World {
    fn start_actor(&self, number: u64, thread: usize, mut chance: Chance) {
        let key = if chance.one_of(5) {
            CALLERS[usize::try_from(chance.below(3)).unwrap()]
        } else {
            SEEN_BY[thread][usize::try_from(chance.below(SEEN_BY[thread].len() as u64)).unwrap()]
        };
        let (kind, name) = match chance.below(10) {
            0..=3 => (0, format!("poster {number} {key}")),
            4 | 5 => (1, format!("follower {number} {key}")),
            6 => (2, format!("visitor {number} {key}")),
            7 | 8 => (4, format!("thief {number}")),
            _ => (3, format!("stopper {number} {key}")),
        };
        // Whoever is alone starts something.
        let kind = if number == 0 { 0 } else { kind };
        let stranger = CALLERS.into_iter().rfind(|key| !SEEN_BY[thread].contains(key));
        let key = stranger.filter(|_| kind == 4).unwrap_or(key);
        let client = Client::new(self, &name, key, thread, chance);
        let world = self.clone();
        match kind {
            0 => {
                let tracker = self.shared.actors.clone();
                let task = tracker.track_future(posts(world, client, number));
                simulated::start(name, task);
            }
            1 => {
                let task = self.shared.watchers.track_future(follows(world, client));
                simulated::start(name, task);
            }
            2 => {
                let task = self.shared.actors.track_future(visits(client));
                simulated::start(name, task);
            }
            4 => {
                let task = self.shared.actors.track_future(steals(client));
                simulated::start(name, task);
            }
            _ => {
                let task = self.shared.actors.track_future(stops(client));
                simulated::start(name, task);
            }
        }
    }

    /// Waits for all to end, and checks what is left.
    async fn through(&self) {
        let shared = &*self.shared;
        shared.actors.close();
        if tokio::time::timeout(PATIENCE, shared.actors.wait()).await.is_err() {
            simulated::fail(format!("actors wait for ever: {:?}", simulated::waiting()));
        }
        self.network.heal();
        let ended = async {
            while self.has_live_run().await {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        if tokio::time::timeout(PATIENCE, ended).await.is_err() {
            simulated::fail("a run does not end".to_owned());
        }
        shared.settling.cancel();
        let has_failed = self.network.has_failed();
        tokio::time::sleep(if has_failed { IN_TIME_AFTER_FAULTS } else { IN_TIME }).await;
        shared.leaving.cancel();
        shared.watchers.close();
        if tokio::time::timeout(PATIENCE, shared.watchers.wait()).await.is_err() {
            simulated::fail(format!("watchers wait for ever: {:?}", simulated::waiting()));
        }
        self.check_starts().await;
        // Watchers notice that nobody follows.
        tokio::time::sleep(Duration::from_secs(30)).await;
        let gateways = shared.gateways.borrow().clone();
        for gateway in &gateways {
            let left = gateway.server.state.threads.runs().count();
            if left > 0 {
                let waiting = simulated::waiting();
                simulated::fail(format!("{left} tasks are left: {waiting:?}"));
            }
        }
        for gateway in gateways {
            gateway.stop().await;
        }
    }

    /// Checks that each run was started once.
    async fn check_starts(&self) {
        let posts = self.shared.posts.borrow().clone();
        for (thread, id, status) in posts {
            let runs = self.runs(thread).await;
            let of_client = |run: &&Value| run["metadata"]["threadway_run_id"] == id;
            let count = runs.iter().filter(of_client).count();
            // A message is answered without a run while the thread asks something.
            let has_begun = self.shared.shown.borrow().contains(&id);
            let is_right = if has_begun { count == 1 } else { count <= 1 };
            if !is_right {
                simulated::fail(format!("the run {id}, answered {status}, is there {count} times"));
            }
        }
    }
}

/// Starts runs, leaves and comes back.
async fn posts(world: World, mut client: Client, number: u64) {
    tokio::time::sleep(Duration::from_millis(client.chance.below(3_000))).await;
    for turn in 0..=client.chance.below(2) {
        let id = format!("r{number}.{turn}");
        let asks = if client.questions.is_empty() {
            let (id, text) = (format!("m{number}.{turn}"), format!("secret of {id}!"));
            Asks::Message(json!({"id": id, "role": "user", "content": text}))
        } else {
            let decision = json!({"approved": client.chance.one_of(2)});
            let answers = client.questions.iter().map(|question| {
                json!({"interruptId": question, "status": "resolved", "payload": decision})
            });
            Asks::Answers(answers.collect())
        };
        let leaves = client.chance.one_of(2).then(|| client.chance.below(60));
        let mut read = client.run(&id, asks, leaves).await;
        while matches!(read, Read::Cut | Read::Left) {
            client.pause().await;
            let leaves = client.chance.one_of(4).then(|| client.chance.below(60));
            read = client.events(false, leaves).await;
        }
        if read == Read::End && client.is_finished {
            world.check_after_run(&client).await;
        }
        tokio::time::sleep(Duration::from_millis(client.chance.below(3_000))).await;
    }
    if client.chance.one_of(2) {
        let watching = world.shared.watchers.track_future(follows(world.clone(), client));
        simulated::start("poster that follows", watching);
    }
}

/// Follows a thread to the end of the world.
async fn follows(world: World, mut client: Client) {
    tokio::time::sleep(Duration::from_millis(client.chance.below(5_000))).await;
    let leaving = world.shared.leaving.clone();
    while !leaving.is_cancelled() {
        let leaves = client.chance.one_of(2).then(|| client.chance.below(80));
        let reading = leaving.run_until_cancelled(client.events(true, leaves));
        match Box::pin(reading).await {
            Some(_) => {
                leaving.run_until_cancelled(client.pause()).await;
            }
            None => break,
        }
    }
    if world.may_see(client.thread, client.key) {
        if client.is_in_run {
            simulated::fail(format!("{} waits for the end of a run", client.name));
        }
        if !client.has_seen
            && world.langgraph(&format!("/threads/{}", THREADS[client.thread])).await.is_some()
        {
            simulated::fail(format!("{} has seen nothing", client.name));
        }
        world.check(&client).await;
    }
}

/// Reads a thread as it is.
async fn visits(mut client: Client) {
    tokio::time::sleep(Duration::from_millis(client.chance.below(5_000))).await;
    let leaves = client.chance.one_of(2).then(|| client.chance.below(60));
    client.connect(leaves).await;
}

/// Tries to get what others are sent, with their event ids.
async fn steals(mut client: Client) {
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(client.chance.below(600))).await;
        client.steal_id();
        let (is_following, leaves) = (client.chance.one_of(2), Some(client.chance.below(20)));
        let read = client.events(is_following, leaves);
        // What is refused for a moment is an empty stream.
        let _ = tokio::time::timeout(Duration::from_secs(1), read).await;
    }
}

async fn stops(mut client: Client) {
    tokio::time::sleep(Duration::from_millis(client.chance.below(6_000))).await;
    client.stop().await;
}

/// Replaces one of the gateways.
async fn restarts(world: World, mut chance: Chance) {
    tokio::time::sleep(Duration::from_millis(chance.below(6_000))).await;
    simulated::note(|| "a gateway restarts".to_owned());
    let old = std::mem::replace(&mut world.shared.gateways.borrow_mut()[0], Gateway::new());
    old.stop().await;
}
