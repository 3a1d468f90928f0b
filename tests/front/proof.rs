//! Which addresses and upstreams get the requests of callers, where each must first have refused
//! invented credentials.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::support::clock::HeldClock;
use crate::support::gateway::{Response, refused, serve_as};
use crate::support::upstream::{Exchange, Upstream};
use http::HeaderMap;
use threadway::agents::{self, Agents};
use threadway::server::isolation::PROBE_PAUSE;
use threadway::server::{Acp, Auth, Server, Settings, Trust, UpstreamAuth};
use threadway::upstream::{ADDRESS_PAUSE, Client, Tls};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const MINE: &str = "authorization: Bearer mine";
const LIST: &str = "POST /assistants/search";
const PROBE: &str = "POST /threads/search";

/// The probes of one address: each header alone, a well-formed token, and all headers at once.
const PROBES: usize = 4;

/// A gateway that leaves the check of credentials to LangGraph.
struct Front {
    address: SocketAddr,
    server: Arc<Server>,
    agents: Agents,
    _stop: CancellationToken,
    _serving: JoinSet<()>,
}

// === impl Front ===

impl Front {
    /// Each upstream has a name and addresses.
    async fn before(upstreams: &[(&str, &[String])]) -> Self {
        Self::with(upstreams, settings()).await
    }

    async fn with(upstreams: &[(&str, &[String])], settings: Settings) -> Self {
        let agents = agents_of(upstreams);
        let (address, stop, serving, server) = serve_as(agents.clone(), settings).await;
        Self { address, server, agents, _stop: stop, _serving: serving }
    }

    async fn get(&self, path: &str) -> Response {
        let request = format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{MINE}\r\n\r\n");
        Response::to(self.address, request.as_bytes()).await
    }

    async fn list(&self) -> Response {
        self.get("/agui/info").await
    }

    /// Lists the agents, which this upstream must be asked for.
    async fn lists_at(&self, upstream: &Upstream) -> Response {
        let (response, ()) = tokio::join!(self.list(), is_listed(upstream));
        assert!(response.head.starts_with("HTTP/1.1 200 "), "{}", response.head);
        response
    }

    /// Lists the agents for the first time; this upstream refuses the probes before.
    async fn is_proven_by(&self, upstream: &Upstream) {
        let proven = async {
            answers(upstream, PROBES, 401, 0).await;
            is_listed(upstream).await;
        };
        let (response, ()) = tokio::join!(self.list(), proven);
        assert!(response.head.starts_with("HTTP/1.1 200 "), "{}", response.head);
    }

    /// Lets the gateway note the answers that it got.
    async fn settles(&self, clock: &HeldClock) {
        let request = b"GET /healthz HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n";
        Response::to(self.address, request).await;
        clock.advance(Duration::from_millis(3)).await;
    }
}

fn agents_of(upstreams: &[(&str, &[String])]) -> Agents {
    let upstream = |(name, urls): &(&str, &[String])| {
        let mut urls = urls.iter().map(|url| url.parse().unwrap());
        let (first, others) = (urls.next().unwrap(), urls.collect());
        let client = Client::at(first, others, None, HeaderMap::new(), &Tls::default());
        agents::Upstream { name: (*name).to_owned(), client: client.unwrap() }
    };
    Agents::new(upstreams.iter().map(upstream).collect(), Vec::new())
}

fn settings() -> Settings {
    let auth = Auth::Upstream(UpstreamAuth { trust: Trust::Proven, ..UpstreamAuth::default() });
    Settings { auth, ..Settings::default() }
}

async fn is_listed(upstream: &Upstream) {
    let listed = upstream.expect(LIST).await;
    assert!(has_mine(&listed), "{}", listed.head);
    listed.json(200, "[]").await;
}

fn has_mine(exchange: &Exchange) -> bool {
    exchange.head.contains(&format!("\r\n{MINE}\r\n"))
}

/// Answers so many probes, and a trial of the address if there is one.
async fn answers(upstream: &Upstream, probes: usize, status: u16, trials: usize) {
    for _ in 0..probes + trials {
        let exchange = upstream.accept().await;
        assert!(!has_mine(&exchange), "{}", exchange.head);
        match &*exchange.line {
            PROBE => exchange.json(status, "[]").await,
            "GET /ok" => exchange.json(200, r#"{"ok":true}"#).await,
            other => panic!("{other}"),
        }
    }
}

#[tokio::test]
async fn address_that_was_away_gets_no_caller_before_it_has_refused_invented_credentials() {
    let (first, second) = (Upstream::bind().await, Upstream::bind().await);
    let front = Front::before(&[("default", &[first.url(), second.url()])]).await;
    let clock = HeldClock::pause();
    let first = first.leave().await;
    front.is_proven_by(&second).await;

    // It returns without its `auth`.
    let first = first.returns();
    clock.advance(PROBE_PAUSE.max(ADDRESS_PAUSE)).await;
    let (_, ()) = tokio::join!(front.lists_at(&second), answers(&first, 1, 200, 1));
    front.settles(&clock).await;
    // It works, and it is the first; but it accepts anybody.
    front.lists_at(&second).await;
    first.is_untouched().await;

    clock.advance(2 * PROBE_PAUSE).await;
    answers(&first, PROBES, 401, 0).await;
    front.settles(&clock).await;
    front.lists_at(&first).await;
    second.is_untouched().await;
}

#[tokio::test]
async fn address_that_returns_after_a_reload_serves_what_began_before_it() {
    let (first, second) = (Upstream::bind().await, Upstream::bind().await);
    let urls = [first.url(), second.url()];
    let front = Front::before(&[("default", &urls)]).await;
    let clock = HeldClock::pause();
    let first = first.leave().await;
    front.is_proven_by(&second).await;
    let before = front.agents.clone();
    let agents = agents_of(&[("default", &urls)]);
    front.server.reload(agents, settings());
    drop(front.agents);

    let first = first.returns();
    clock.advance(PROBE_PAUSE).await;
    answers(&first, PROBES, 401, 0).await;
    // Nothing uses the addresses of the old configuration any more, which may lack one of them.
    drop(before);
    clock.advance(10 * PROBE_PAUSE).await;
    first.is_untouched().await;
}

#[tokio::test]
async fn client_that_gives_up_does_not_end_the_probe() {
    let upstream = Upstream::bind().await;
    let front = Front::before(&[("default", &[upstream.url()])]).await;
    let probe = tokio::select! {
        probe = upstream.expect(PROBE) => probe,
        _ = front.list() => panic!("the request was answered"),
    };
    probe.json(401, "[]").await;
    answers(&upstream, PROBES - 1, 401, 0).await;
    front.lists_at(&upstream).await;
}

#[tokio::test]
async fn editor_is_refused_by_an_upstream_that_has_not_refused_invented_credentials() {
    let (checks, open) = (Upstream::bind().await, Upstream::bind().await);
    let acp = Acp { agent: Some("open:agent".to_owned()), ..Acp::default() };
    let settings = Settings { acp, ..settings() };
    let front =
        Front::with(&[("checks", &[checks.url()]), ("open", &[open.url()])], settings).await;
    let connected = async {
        let request = format!(
            "GET /acp HTTP/1.1\r\nhost: 127.0.0.1\r\n{MINE}\r\nconnection: upgrade\r\n\
             upgrade: websocket\r\nsec-websocket-version: 13\r\n\
             sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        Response::to(front.address, request.as_bytes()).await
    };
    let (mut response, ..) =
        tokio::join!(connected, answers(&checks, PROBES, 401, 0), answers(&open, 1, 200, 0));
    let (status, body) = refused(&mut response).await;
    assert!(status.contains(" 503 ") && body.contains("auth_unproven"), "{status} {body}");
}

#[tokio::test]
async fn upstream_gets_no_caller_before_it_has_refused_whatever_the_other_does() {
    let (checks, open) = (Upstream::bind().await, Upstream::bind().await);
    let front = Front::before(&[("checks", &[checks.url()]), ("open", &[open.url()])]).await;
    let clock = HeldClock::pause();
    let proven = async {
        tokio::join!(answers(&checks, PROBES, 401, 0), answers(&open, 1, 200, 0));
        is_listed(&checks).await;
    };
    let (mut response, ()) = tokio::join!(front.list(), proven);
    assert!(response.head.starts_with("HTTP/1.1 200 "), "{}", response.head);
    let body = response.body().await;
    assert!(body.contains(r#""missingUpstreams":{"open":"unproven"}"#), "{body}");

    // During the pause the other one is not probed either.
    front.lists_at(&checks).await;
    let events = "/agui/agent/open:agent/threads/0f9cfe5e-7d44-4d4f-8aef-000000000001/events";
    let (status, body) = refused(&mut front.get(events).await).await;
    assert!(status.contains(" 503 ") && body.contains("auth_unproven"), "{status} {body}");
    open.is_untouched().await;

    // A caller of the first does not wait for the other's probe.
    clock.advance(PROBE_PAUSE).await;
    front.lists_at(&checks).await;
    answers(&open, PROBES, 403, 0).await;
    front.settles(&clock).await;
    tokio::join!(front.lists_at(&checks), is_listed(&open));
}
