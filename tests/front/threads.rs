//! Which threads are listed, changed and inspected: those that LangGraph shows to the caller. If
//! nothing distinguishes callers, none.

use std::net::SocketAddr;

use super::credentials::{KEY, bearer, key_of, tokens_of};
use crate::support::gateway::{Response, input, run_request, serve_as};
use crate::support::issuer::{AUDIENCE, Signer};
use crate::support::langgraph::{LangGraph, state};
use crate::support::process::File;
use serde_json::{Value, json};
use threadway::agents::{self, Agents};
use threadway::server::{Auth, Settings, ThreadRoutePolicy, Trust, UpstreamAuth};
use threadway::upstream::{Client, Identity};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub(super) const ALICE: &str = "x-api-key: alice\r\n";
pub(super) const BOB: &str = "x-api-key: bob\r\n";

/// A gateway in front of servers with two tenants each.
pub(super) struct Front {
    pub(super) address: SocketAddr,
    pub(super) stop: CancellationToken,
    _serving: JoinSet<()>,
}

/// A server that shows each tenant its own threads.
pub(super) async fn tenants() -> LangGraph {
    let server = LangGraph::start().await;
    let keys = [("alice", "alice"), ("bob", "bob")];
    server.books().tenants = keys.map(|(key, name)| (key.to_owned(), name.to_owned())).into();
    server
}

/// Adds a thread of a tenant.
pub(super) fn thread(server: &LangGraph, number: usize, owner: &str) -> String {
    let id = format!("0f9cfe5e-7d44-4d4f-8aef-{number:012}");
    let metadata = json!({"graph_id": "agent", "owner": owner, "title": format!("of {owner}")});
    let said = json!([{"id": "m1", "type": "human", "content": format!("words of {owner}")}]);
    server.thread(&id, metadata, Some(state("r", &said, &json!([]))));
    id
}

pub(super) fn judged() -> Auth {
    Auth::Upstream(UpstreamAuth { credential: None, trust: Trust::Given })
}

// === impl Front ===

impl Front {
    async fn before(
        upstreams: &[(&str, &LangGraph, Identity)],
        auth: Auth,
        routes: ThreadRoutePolicy,
    ) -> Self {
        let upstream = |(name, server, identity): &(&str, &LangGraph, Identity)| {
            let client = Client::new(server.url.parse().unwrap(), None).unwrap();
            agents::Upstream { name: (*name).to_owned(), client: client.with_identity(*identity) }
        };
        let agents = Agents::new(upstreams.iter().map(upstream).collect(), Vec::new());
        let settings = Settings { auth, thread_routes: routes, ..Settings::default() };
        let (address, stop, serving, _) = serve_as(agents, settings).await;
        Self { address, stop, _serving: serving }
    }

    pub(super) async fn of(server: &LangGraph, auth: Auth, routes: ThreadRoutePolicy) -> Self {
        Self::before(&[("default", server, Identity::Forwarded)], auth, routes).await
    }

    pub(super) async fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: &Value,
    ) -> (u16, Value) {
        ask(self.address, method, path, headers, body).await
    }

    async fn list(&self, headers: &str) -> (u16, Value) {
        self.ask("GET", "/threads?agentId=agent", headers, &Value::Null).await
    }

    /// The ids of the threads that a caller sees.
    async fn ids(&self, headers: &str) -> Vec<String> {
        let (status, page) = self.list(headers).await;
        assert_eq!(status, 200, "{page}");
        let threads = page["threads"].as_array().unwrap().iter();
        threads.map(|thread| thread["id"].as_str().unwrap().to_owned()).collect()
    }

    /// The members about threads in `/agui/info`.
    async fn endpoints(&self, headers: &str) -> Value {
        let (status, info) = self.ask("GET", "/info", headers, &Value::Null).await;
        assert_eq!(status, 200, "{info}");
        info["threadEndpoints"].clone()
    }
}

async fn ask(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: &Value,
) -> (u16, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let request = format!(
        "{method} /agui{path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
         {headers}content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut response = Response::to(address, request.as_bytes()).await;
    let status = response.head.split(' ').nth(1).unwrap().parse().unwrap();
    let body = response.body().await;
    (status, serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}")))
}

pub(super) fn code((status, body): (u16, Value)) -> (u16, String) {
    (status, body["error"].as_str().unwrap_or_default().to_owned())
}

fn endpoints(is_there: bool) -> Value {
    json!({"list": is_there, "inspect": is_there, "mutations": is_there, "realtimeMetadata": false})
}

#[tokio::test]
async fn tenant_lists_changes_and_inspects_its_own_threads_alone() {
    let server = tenants().await;
    let front = Front::of(&server, judged(), ThreadRoutePolicy::Callers).await;
    let (hers, his) = (thread(&server, 1, "alice"), thread(&server, 2, "bob"));
    assert_eq!(front.ids(ALICE).await, std::slice::from_ref(&hers));
    assert_eq!(front.ids(BOB).await, std::slice::from_ref(&his));
    assert_eq!(front.endpoints(BOB).await, endpoints(true));
    let before = server.books().threads.clone();
    let agent = json!({"agentId": "agent"});
    let renamed = json!({"agentId": "agent", "name": "mine now"});
    for (method, path, body) in [
        ("PATCH", format!("/threads/{hers}"), &renamed),
        ("PATCH", format!("/threads/{hers}"), &json!({"agentId": "agent", "archived": true})),
        ("POST", format!("/threads/{hers}/archive"), &agent),
        ("DELETE", format!("/threads/{hers}"), &agent),
        ("GET", format!("/threads/{hers}/messages"), &Value::Null),
        ("GET", format!("/threads/{hers}/state?agentId=agent"), &Value::Null),
        ("GET", format!("/threads/{hers}/events?agentId=agent"), &Value::Null),
    ] {
        let (status, told) = front.ask(method, &path, BOB, body).await;
        assert_eq!((status, &told["error"]), (404, &json!("unknown_thread")), "{method} {path}");
        assert!(!told.to_string().contains("alice"), "{told}");
        let envelope = json!({"method": "resource/request", "body": body,
            "params": {"path": path, "httpMethod": method}});
        let in_envelope = front.ask("POST", "", BOB, &envelope).await;
        assert_eq!(code(in_envelope), (404, "unknown_thread".to_owned()), "{envelope}");
    }
    assert_eq!(format!("{:?}", server.books().threads), format!("{before:?}"));
    for (method, path, body) in [
        ("PATCH", format!("/threads/{his}"), &renamed),
        ("GET", format!("/threads/{his}/messages"), &Value::Null),
        ("DELETE", format!("/threads/{his}"), &agent),
    ] {
        let (status, told) = front.ask(method, &path, BOB, body).await;
        assert_eq!(status, 200, "{method} {path}: {told}");
    }
    assert_eq!(front.ids(BOB).await, Vec::<String>::new());
    assert_eq!(front.ids(ALICE).await, [hers]);
    assert_eq!(code(front.list("x-api-key: eve\r\n").await), (401, "unauthorized".to_owned()));
    assert_eq!(code(front.list("").await), (401, "unauthenticated".to_owned()));
}

#[tokio::test]
async fn threads_are_not_listed_before_langgraph_has_refused_invented_credentials() {
    // The server ignores credentials: every caller would see all threads.
    let server = LangGraph::start().await;
    thread(&server, 1, "alice");
    let front = Front::of(&server, judged(), ThreadRoutePolicy::Callers).await;
    assert_eq!(code(front.list(BOB).await), (503, "auth_unproven".to_owned()));
    assert_eq!(front.endpoints(BOB).await, endpoints(false));
    let agent = json!({"agentId": "agent"});
    let id = "0f9cfe5e-7d44-4d4f-8aef-000000000001";
    let deleted = front.ask("DELETE", &format!("/threads/{id}"), BOB, &agent).await;
    assert_eq!(code(deleted), (503, "auth_unproven".to_owned()));
    assert!(server.books().threads.contains_key(id));
    // An operator may allow this.
    let front = Front::of(&server, judged(), ThreadRoutePolicy::All).await;
    assert_eq!(front.ids(BOB).await, [id]);
}

#[tokio::test]
async fn token_lists_the_threads_that_langgraph_shows_to_it() {
    let signer = Signer::ed25519("k");
    let token = |subject: &str| bearer(&signer.token(&[("sub", json!(subject))]));
    let server = tenants().await;
    let (hers, _) = (thread(&server, 1, "alice"), thread(&server, 2, "bob"));
    let front =
        Front::of(&server, tokens_of(&[&signer], &[AUDIENCE]), ThreadRoutePolicy::Callers).await;
    // The scripted server identifies its tenants by another header, which is forwarded too.
    let alice = token("alice") + ALICE;
    assert_eq!(front.ids(&alice).await, [hers]);
    assert_eq!(front.endpoints(&alice).await, endpoints(true));
}

#[tokio::test]
async fn keys_and_addresses_tell_langgraph_nothing() {
    let server = LangGraph::start().await;
    thread(&server, 1, "alice");
    let shown = bearer(KEY);
    for (auth, headers) in [(key_of("web"), &*shown), (Auth::None, ""), (Auth::None, BOB)] {
        // As if the configuration had left this open.
        let front = Front::of(&server, auth, ThreadRoutePolicy::Callers).await;
        assert_eq!(code(front.list(headers).await), (403, "threads_off".to_owned()));
        assert_eq!(front.endpoints(headers).await, endpoints(false));
    }
    let front = Front::of(&server, key_of("web"), ThreadRoutePolicy::All).await;
    assert_eq!(front.ids(&shown).await.len(), 1);
}

#[tokio::test]
async fn upstream_that_is_not_sent_its_callers_lists_nothing() {
    let (first, second) = (tenants().await, LangGraph::start().await);
    let hers = thread(&first, 1, "alice");
    let other = thread(&second, 2, "alice");
    let upstreams = [("a", &first, Identity::Forwarded), ("b", &second, Identity::Withheld)];
    let front = Front::before(&upstreams, judged(), ThreadRoutePolicy::Callers).await;
    let list = async |agent: &str| {
        front.ask("GET", &format!("/threads?agentId={agent}"), ALICE, &Value::Null).await
    };
    assert_eq!(list("a:agent").await.1["threads"][0]["id"], json!(hers));
    assert_eq!(code(list("b:agent").await), (403, "threads_off".to_owned()));
    assert_eq!(code(list("agent").await), (404, "unknown_agent".to_owned()));
    // Without an agent's name, the thread is searched on the upstreams that distinguish callers.
    let inspect = async |id: &str| {
        front.ask("GET", &format!("/threads/{id}/messages"), ALICE, &Value::Null).await
    };
    assert_eq!(inspect(&hers).await.0, 200);
    assert_eq!(code(inspect(&other).await), (403, "threads_off".to_owned()));
    assert!(second.asked("POST /threads").is_empty());
    assert_eq!(front.endpoints(ALICE).await, endpoints(true));
}

#[tokio::test]
async fn thread_that_a_web_page_begins_is_listed_under_its_first_words() {
    let mut server = LangGraph::start().await;
    server.hold("/runs/stream");
    let front = Front::of(&server, Auth::None, ThreadRoutePolicy::All).await;
    let names = async || {
        let (status, page) = front.list("").await;
        assert_eq!(status, 200, "{page}");
        let threads = page["threads"].as_array().unwrap().iter();
        threads.map(|thread| (thread["id"].clone(), thread["name"].clone())).collect::<Vec<_>>()
    };
    let (uuid, words) = ("0f9cfe5e-7d44-4d4f-8aef-000000000007", "what is \"this\"?");
    for thread in [uuid, "my thread"] {
        let before = server.asked("POST /threads").len();
        for said in [words, "and that?"] {
            let mut input = input(&[said]);
            input["threadId"] = json!(thread);
            input["messages"][0]["id"] = json!(said);
            let request = run_request("agent", "", &input.to_string());
            let (mut response, sent) = tokio::join!(
                async { Response::to(front.address, request.as_bytes()).await },
                async {
                    let run = server.run().await;
                    let (sent, said) = (run.body["metadata"]["title"].clone(), run.said());
                    // LangGraph writes this when a run starts.
                    for thread in server.books().threads.values_mut() {
                        thread.metadata["graph_id"] = json!("agent");
                    }
                    run.ends_with(&json!([said])).await;
                    sent
                }
            );
            assert!(response.body().await.contains("RUN_FINISHED"));
            // The request that creates the thread has the title.
            assert_eq!(sent, Value::Null, "{thread}: {said}");
            // The name of the thread is there for every other client.
            let listed = names().await;
            assert!(listed.contains(&(json!(thread), json!(words))), "{listed:?}");
        }
        let created: Vec<_> = server.asked("POST /threads").drain(before..).collect();
        let created = created.iter().filter(|body| body["if_exists"].is_string()).count();
        assert_eq!(created, 1, "{thread}");
    }
    assert!(server.asked("PATCH").is_empty());
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn thread_routes_setting_decides_who_lists() {
    use crate::support::process::Process;

    let server = LangGraph::start().await;
    let keyed = format!("auth = {{mode = \"bearer\", keys = {{web = \"{KEY}\"}}}}\n");
    let all = "thread_routes = \"all\"\n";
    let open = &["--listen", "0.0.0.0:0", "--insecure"][..];
    let shown = bearer(KEY);
    for (options, text, headers, is_there) in [
        (&[][..], String::new(), "", true),
        (&[], "thread_routes = \"off\"\n".to_owned(), "", false),
        (open, String::new(), "", false),
        (open, all.to_owned(), "", true),
        (&[], keyed.clone(), &*shown, false),
        (&[], all.to_owned() + &keyed, &*shown, true),
    ] {
        let file = File::new(&format!("{text}upstream.url = \"{}\"\n", server.url));
        let process = Process::serve(&[&["--config", file.path()][..], options].concat()).await;
        let address = SocketAddr::from(([127, 0, 0, 1], process.address.port()));
        let (status, info) = ask(address, "GET", "/info", headers, &Value::Null).await;
        let told = (status, &info["threadEndpoints"]);
        assert_eq!(told, (200, &endpoints(is_there)), "{options:?} {text}");
        let listed = ask(address, "GET", "/threads?agentId=agent", headers, &Value::Null).await;
        assert_eq!(listed.0, if is_there { 200 } else { 403 }, "{options:?} {text}");
        process.stop().await;
    }
}
