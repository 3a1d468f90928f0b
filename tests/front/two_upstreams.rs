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
use threadway::server::{Acp, Auth, Settings, ThreadRoutes, Trust, UpstreamAuth};
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

    async fn get(&self, path: &str, headers: &str) -> (u16, Value) {
        get(self.address, path, headers).await
    }
}

async fn get(address: SocketAddr, path: &str, headers: &str) -> (u16, Value) {
    let request = format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{headers}\r\n");
    let mut response = Response::to(address, request.as_bytes()).await;
    let status = response.head.split(' ').nth(1).unwrap().parse().unwrap();
    let body = response.body().await;
    (status, serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}")))
}

fn listed() -> Settings {
    Settings { thread_routes: ThreadRoutes::All, ..Settings::default() }
}

#[tokio::test]
async fn agents_and_threads_of_the_upstream_that_is_there_are_listed() {
    for away_first in [true, false] {
        let front = Front::start(away_first, Identity::Withheld, listed()).await;
        front.up.books().key = Some("key-of-up".to_owned());
        front.thread();
        let (status, info) = front.get("/agui/info", "").await;
        assert_eq!(status, 200, "{info}");
        let agents: Vec<_> = info["agents"].as_object().unwrap().keys().collect();
        assert_eq!(agents, ["up:agent"]);
        assert_eq!(info["missingUpstreams"], json!({"away": "unreachable"}));

        let (status, page) = front.get("/agui/threads?agentId=up:agent", "").await;
        assert_eq!((status, &page["threads"][0]["id"]), (200, &json!(THREAD)), "{page}");
        let (status, refused) = front.get("/agui/threads?agentId=away:agent", "").await;
        assert_eq!((status, &refused["error"]), (502, &json!("upstream_unreachable")), "{refused}");

        let (status, ready) = front.get("/readyz", "").await;
        let expected = json!({"up": "ok", "away": "unreachable"});
        assert_eq!((status, &ready["upstreams"]), (200, &expected), "{ready}");
    }
}

#[tokio::test]
async fn upstreams_that_all_answer_leave_nothing_missing() {
    let server = LangGraph::start().await;
    let agents = crate::support::gateway::agents(&[("a", &server.url), ("b", &server.url)], &[]);
    let (address, _stop, _serving, _) = serve_as(agents, Settings::default()).await;
    let (status, info) = get(address, "/agui/info", "").await;
    assert_eq!((status, info.get("missingUpstreams")), (200, None));
}

#[tokio::test]
async fn callers_list_their_threads_although_another_upstream_has_proven_nothing() {
    let auth = Auth::Upstream(UpstreamAuth { credential: None, trust: Trust::Given });
    let settings = Settings { auth, ..Settings::default() };
    let settings = Settings { thread_routes: ThreadRoutes::Callers, ..settings };
    let front = Front::start(true, Identity::Forwarded, settings).await;
    front.up.books().tenants = [("alice".to_owned(), "alice".to_owned())].into();
    front.thread();
    let (status, page) = front.get("/agui/threads?agentId=up:agent", ALICE).await;
    assert_eq!((status, &page["threads"][0]["id"]), (200, &json!(THREAD)), "{page}");
    let (_, info) = front.get("/agui/info", ALICE).await;
    assert_eq!(info["threadEndpoints"]["list"], true, "{info}");
    // The other one may accept anybody.
    let (status, refused) = front.get("/agui/threads?agentId=away:agent", ALICE).await;
    assert_eq!((status, &refused["error"]), (503, &json!("auth_unproven")), "{refused}");
}

#[tokio::test]
async fn upstream_that_accepts_invented_credentials_lends_its_threads_to_nobody() {
    // Two servers: one ignores credentials, and one checks them.
    let (open, checked) = (LangGraph::start().await, LangGraph::start().await);
    checked.books().tenants = [("alice".to_owned(), "alice".to_owned())].into();
    let agents =
        crate::support::gateway::agents(&[("open", &open.url), ("checked", &checked.url)], &[]);
    let auth = Auth::Upstream(UpstreamAuth { credential: None, trust: Trust::Given });
    let settings = Settings { auth, ..Settings::default() };
    let settings = Settings { thread_routes: ThreadRoutes::Callers, ..settings };
    let (address, _stop, _serving, _) = serve_as(agents, settings).await;
    let (status, page) = get(address, "/agui/threads?agentId=checked:agent", ALICE).await;
    assert_eq!(status, 200, "{page}");
    let (status, refused) = get(address, "/agui/threads?agentId=open:agent", ALICE).await;
    assert_eq!((status, &refused["error"]), (503, &json!("auth_unproven")), "{refused}");
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
    let (status, info) = get(process.address, "/agui/info", "").await;
    assert_eq!((status, &info["missingUpstreams"]), (200, &json!({"away": "unreachable"})));
    let said = process.stop().await;
    assert!(said.contains(&format!("the LangGraph server at {away} is unavailable")), "{said}");
}
