//! Two upstreams, one of which is away: what callers get from the other.

use std::net::SocketAddr;

use crate::support::editor::CWD;
use crate::support::gateway::{Response, serve_as};
use crate::support::langgraph::{LangGraph, state};
use crate::support::process::{File, Process};
use crate::support::remote::RemoteEditor;
use crate::support::upstream::Upstream;
use http::HeaderMap;
use serde_json::{Value, json};
use threadway::agents::{self, Agents};
use threadway::server::{Acp, Auth, Settings, ThreadRoutePolicy, Trust, UpstreamAuth};
use threadway::upstream::{Client, Identity, Tls};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const ALICE: &str = "x-api-key: alice\r\n";
const THREAD: &str = "0f9cfe5e-7d44-4d4f-8aef-000000000001";

/// A gateway in front of an upstream `up` and an upstream `away`, at which no server listens.
struct Front {
    up: LangGraph,
    address: SocketAddr,
    _stop: CancellationToken,
    _serving: JoinSet<()>,
}

// === impl Front ===

impl Front {
    /// `away` is the first of the upstreams, or the last. Each has a key of its own, unless it is
    /// sent those of callers.
    async fn start(away_first: bool, identity: Identity, settings: Settings) -> Self {
        let up = LangGraph::start().await;
        let away = Upstream::bind().await.url();
        let upstream = |name: &str, url: &str| {
            let key = (identity == Identity::Withheld).then(|| format!("key-of-{name}"));
            let key = key.map(|key| key.parse().unwrap());
            let client =
                Client::with(url.parse().unwrap(), key, HeaderMap::new(), &Tls::default()).unwrap();
            agents::Upstream { name: name.to_owned(), client: client.with_identity(identity) }
        };
        let mut upstreams = vec![upstream("up", &up.url), upstream("away", &away)];
        if away_first {
            upstreams.reverse();
        }
        let (address, stop, serving, _) =
            serve_as(Agents::new(upstreams, Vec::new()), settings).await;
        Self { up, address, _stop: stop, _serving: serving }
    }

    /// Adds a thread of the agent to the upstream that is there.
    fn thread(&self) {
        let said = json!([{"id": "m1", "type": "human", "content": "hi"}]);
        let metadata = json!({
            "graph_id": "agent", "owner": "alice",
            "acp_session": true, "acp_assistant": "agent", "cwd": CWD
        });
        self.up.thread(THREAD, metadata, Some(state("r", &said, &json!([]))));
    }

    async fn shows(&self, headers: &str, rows: &[Row<'_>]) {
        shows(self.address, headers, rows).await;
    }
}

async fn get(address: SocketAddr, path: &str, headers: &str) -> (u16, Value) {
    let request = format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{headers}\r\n");
    let mut response = Response::to(address, request.as_bytes()).await;
    let status = response.head.split(' ').nth(1).unwrap().parse().unwrap();
    let body = response.body().await;
    (status, serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}")))
}

/// A path, the status of its answer, and a member of the answer with its value.
type Row<'a> = (&'a str, u16, &'a str, Value);

async fn shows(address: SocketAddr, headers: &str, rows: &[Row<'_>]) {
    for (path, status, member, expected) in rows {
        let (answered, body) = get(address, path, headers).await;
        let told = (answered, body.pointer(member).unwrap_or(&Value::Null));
        assert_eq!(told, (*status, expected), "{path}: {body}");
    }
}

fn listed() -> Settings {
    Settings { thread_routes: ThreadRoutePolicy::All, ..Settings::default() }
}

/// LangGraph checks the credentials of callers, who list their threads.
fn judged() -> Settings {
    let auth = Auth::Upstream(UpstreamAuth { credential: None, trust: Trust::Given });
    Settings { auth, thread_routes: ThreadRoutePolicy::Callers, ..Settings::default() }
}

#[tokio::test]
async fn agents_and_threads_of_the_upstream_that_is_there_are_listed() {
    for away_first in [true, false] {
        let front = Front::start(away_first, Identity::Withheld, listed()).await;
        front.up.books().key = Some("key-of-up".to_owned());
        front.thread();
        let (_, info) = get(front.address, "/agui/info", "").await;
        assert!(info["agents"].as_object().unwrap().keys().eq(["up:agent"]), "{info}");
        let away = json!("unreachable");
        let rows = [
            ("/agui/info", 200, "/missingUpstreams", json!({"away": away})),
            ("/agui/threads?agentId=up:agent", 200, "/threads/0/id", json!(THREAD)),
            ("/agui/threads?agentId=away:agent", 502, "/error", json!("upstream_unreachable")),
            ("/readyz", 200, "/upstreams", json!({"up": "ok", "away": away})),
        ];
        front.shows("", &rows).await;
    }
}

#[tokio::test]
async fn upstreams_that_all_answer_leave_nothing_missing() {
    let server = LangGraph::start().await;
    let agents = crate::support::gateway::agents(&[("a", &server.url), ("b", &server.url)], &[]);
    let (address, _stop, _serving, _) = serve_as(agents, Settings::default()).await;
    shows(address, "", &[("/agui/info", 200, "/missingUpstreams", Value::Null)]).await;
}

#[tokio::test]
async fn callers_list_their_threads_although_another_upstream_has_proven_nothing() {
    let front = Front::start(true, Identity::Forwarded, judged()).await;
    front.up.books().tenants = [("alice".to_owned(), "alice".to_owned())].into();
    front.thread();
    let rows = [
        ("/agui/threads?agentId=up:agent", 200, "/threads/0/id", json!(THREAD)),
        ("/agui/info", 200, "/threadEndpoints/list", json!(true)),
        // The other one may accept anybody.
        ("/agui/threads?agentId=away:agent", 503, "/error", json!("auth_unproven")),
    ];
    front.shows(ALICE, &rows).await;
}

#[tokio::test]
async fn upstream_that_accepts_invented_credentials_lends_its_threads_to_nobody() {
    // Two servers: one ignores credentials, and one checks them.
    let (open, checked) = (LangGraph::start().await, LangGraph::start().await);
    checked.books().tenants = [("alice".to_owned(), "alice".to_owned())].into();
    let agents =
        crate::support::gateway::agents(&[("open", &open.url), ("checked", &checked.url)], &[]);
    let (address, _stop, _serving, _) = serve_as(agents, judged()).await;
    let rows = [
        ("/agui/threads?agentId=checked:agent", 200, "/error", Value::Null),
        ("/agui/threads?agentId=open:agent", 503, "/error", json!("auth_unproven")),
    ];
    shows(address, ALICE, &rows).await;
}

#[tokio::test]
async fn editor_lists_its_sessions_while_another_upstream_is_away() {
    for (agent, is_there) in [("up:agent", true), ("away:agent", false)] {
        let acp = Acp { agent: Some(agent.to_owned()), ..Acp::default() };
        let settings = Settings { acp, ..listed() };
        let front = Front::start(true, Identity::Withheld, settings).await;
        front.thread();
        let mut editor = RemoteEditor::initialized(front.address, &[]).await;
        if is_there {
            let listed = editor.call("session/list", json!({})).await;
            assert_eq!(listed["sessions"][0]["sessionId"], THREAD, "{listed}");
            let loaded = editor.load(THREAD).await;
            assert!(loaded.response.get("result").is_some(), "{:?}", loaded.response);
        } else {
            let (_, message) = editor.refused("session/list", json!({})).await;
            assert!(message.contains("cannot be reached"), "{message}");
        }
    }
}

#[tokio::test]
async fn gateway_starts_while_one_upstream_is_away_and_names_it() {
    let up = LangGraph::start().await;
    let away = Upstream::bind().await.url();
    let file = File::new(&format!(
        "[upstreams.away]\nurl = \"{away}\"\n[upstreams.up]\nurl = \"{}\"\n",
        up.url
    ));
    let mut process = Process::serve(&["--config", file.path()]).await;
    let said = process.says("upstream away: ").await;
    assert!(said.contains("its agents are served once it answers"), "{said}");
    process.says("up:agent").await;
    let missing = json!({"away": "unreachable"});
    shows(process.address, "", &[("/agui/info", 200, "/missingUpstreams", missing)]).await;
    let said = process.stop().await;
    assert!(said.contains(&format!("the LangGraph server at {away} is unavailable")), "{said}");
}
