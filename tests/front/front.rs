//! Access on real sockets: authentication, the headers that are sent upstream, the pages that may
//! send requests, the limits of each caller, and the text of each refusal.

use std::net::{IpAddr, SocketAddr};
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use super::credentials::{KEY, OTHER_KEY, bearer, guarded, key_of, keys, tokens, tokens_of};
use crate::support::clock::HeldClock;
use crate::support::gateway::{
    RUN, Response, THREAD, agents, events, input, part, refusal, refused, serve_as, started,
};
use crate::support::issuer::{AUDIENCE, Signer, from_now, key_set};
use crate::support::upstream::{Exchange, Upstream};
use serde_json::json;
use threadway::server::Credentials;
use threadway::server::auth::{FAILURES, FETCH_PAUSE, FRESH, KeysFrom, MAX_AGE};
use threadway::server::isolation::PROBE_PAUSE;
use threadway::server::{
    Auth, Cors, ForwardedHeaders, Limits, Observer, RETRY, Rates, RequestRate, Server, Settings,
    Trust, UpstreamAuth,
};
use threadway::upstream::Tls;
use threadway_translate::agui::Allowance;
use threadway_translate::langgraph::{ErrorDetail, RunError};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const FAILED: &str = "your network has sent too many wrong credentials; wait, then send good ones";
const AWAY: &str =
    "the token cannot be checked, because its issuer's keys cannot be fetched now; try again";
const FOREIGN: &str = "the gateway does not answer pages of this origin; have its operator add the origin to \
     `cors.origins`";
const NOT_FOUND: &str = r#"{"detail":"Thread not found"}"#;

/// A gateway with some settings, and its upstream.
pub(super) struct Front {
    pub(super) upstream: Upstream,
    pub(super) address: SocketAddr,
    pub(super) server: Arc<Server>,
    stop: CancellationToken,
    _serving: JoinSet<()>,
}

// === impl Front ===

impl Front {
    pub(super) async fn with(settings: Settings) -> Self {
        let upstream = Upstream::bind().await;
        let agents = agents(&[("default", &upstream.url())], &[]);
        let (address, stop, serving, server) = serve_as(agents, settings).await;
        Self { upstream, address, server, stop, _serving: serving }
    }

    pub(super) async fn guarded(auth: Auth) -> Self {
        Self::with(guarded(auth)).await
    }

    pub(super) fn reload(&self, settings: Settings) {
        self.server.reload(agents(&[("default", &self.upstream.url())], &[]), settings);
    }

    /// Sends a request, to the address unless the headers name a host.
    async fn send(&self, line: &str, headers: &str, body: &str) -> Response {
        let host = if headers.contains("host: ") { "" } else { "host: 127.0.0.1\r\n" };
        let length = match body.len() {
            0 => String::new(),
            length => format!("content-type: application/json\r\ncontent-length: {length}\r\n"),
        };
        let request = format!("{line} HTTP/1.1\r\n{host}{headers}{length}\r\n{body}");
        Response::to(self.address, request.as_bytes()).await
    }

    /// Sends a harmless request, with further header lines.
    async fn ask(&self, headers: &str) -> Response {
        self.send("GET /agui/info", headers, "").await
    }

    async fn start_run(&self, headers: &str) -> Response {
        self.send("POST /agui/agent/agent/run", headers, &input(&["hi"]).to_string()).await
    }

    /// Answers the next upstream request, which has this line. Returns its head.
    async fn answers(&self, line: &str, status: u16, body: &str) -> String {
        let exchange = self.upstream.expect(line).await;
        let head = exchange.head.clone();
        exchange.json(status, body).await;
        head
    }

    async fn lists_agents(&self, status: u16) -> String {
        self.answers("POST /assistants/search", status, "[]").await
    }

    async fn answers_state(&self, status: u16, body: &str) {
        self.answers(&format!("GET /threads/{THREAD}/state"), status, body).await;
    }

    /// Waits for something while LangGraph answers as it does to everybody.
    pub(super) async fn answering<T>(&self, asked: impl Future<Output = T>) -> T {
        let answers = async {
            loop {
                self.upstream.next().await.json(200, "[]").await;
            }
        };
        tokio::select! {
            answered = asked => answered,
            () = answers => unreachable!(),
        }
    }

    /// Waits for a response, for which LangGraph may be asked for its agents.
    pub(super) async fn listed(
        &self,
        asked: impl Future<Output = Response>,
        status: u16,
    ) -> Response {
        let answers = async {
            loop {
                self.lists_agents(status).await;
            }
        };
        tokio::select! {
            response = asked => response,
            () = answers => unreachable!(),
        }
    }

    /// Sends a request that must be answered; returns the upstream request.
    async fn passes(&self, headers: &str) -> String {
        let (mut response, head) = tokio::join!(self.ask(headers), self.lists_agents(200));
        assert!(response.head.starts_with("HTTP/1.1 200 OK\r\n"), "{}", response.head);
        response.body().await;
        head
    }

    /// Sends a request that must be refused before any upstream request.
    async fn is_refused(&self, headers: &str) -> (String, (String, String)) {
        let mut response = tokio::select! {
            response = self.ask(headers) => response,
            asked = self.upstream.next() => panic!("{headers} passed: {}", asked.line),
        };
        let refused = refused(&mut response).await;
        self.upstream.is_untouched().await;
        (response.head, refused)
    }

    /// Sends a request that must be refused because of the caller's rate.
    async fn waits(&self, headers: &str) -> String {
        let (head, (_, body)) = self.is_refused(headers).await;
        assert!(head.starts_with("HTTP/1.1 429 ") && body.contains("too_many_requests"), "{head}");
        head
    }

    /// Answers the start of a run on a new thread.
    pub(super) async fn begins(&self) -> Exchange {
        self.answers_state(404, NOT_FOUND).await;
        let mut run = self.upstream.expect(&format!("POST /threads/{THREAD}/runs/stream")).await;
        run.begin(&format!("content-location: /threads/{THREAD}/runs/{RUN}\r\n")).await;
        run
    }

    /// Starts a run on a new thread. The client has its first event, and the upstream stream is
    /// open.
    pub(super) async fn run(&self, headers: &str) -> (Response, Exchange) {
        let (mut response, run) = tokio::join!(self.start_run(headers), self.begins());
        assert_eq!(response.frame().await, "retry: 3000\n\n");
        assert_eq!(response.frame().await, started());
        (response, run)
    }
}

/// So many requests a second for each caller.
fn rated(number: u32) -> Rates {
    let number = NonZeroU32::new(number).unwrap();
    Rates { requests: Some(RequestRate { per_second: number, burst: number }), streams: None }
}

/// The headers that are forwarded by default, and the tenant's.
fn with_tenant() -> ForwardedHeaders {
    let mut forward = ForwardedHeaders::default();
    forward.allow("x-tenant").unwrap();
    forward
}

fn too_many(code: &str, message: &str) -> (String, String) {
    refusal("429 Too Many Requests", code, message)
}

fn unavailable(code: &str, message: &str) -> (String, String) {
    refusal("503 Service Unavailable", code, message)
}

fn invalid(message: &str) -> (String, String) {
    refusal("400 Bad Request", "invalid_request", message)
}

fn foreign(message: &str) -> (String, String) {
    refusal("403 Forbidden", "cross_origin", message)
}

fn unauthorized(error: &str, message: &str) -> (String, String) {
    refusal("401 Unauthorized", error, message)
}

fn wants_a_key() -> (String, String) {
    unauthorized(
        "unauthenticated",
        "the gateway wants a key; send it as `authorization: Bearer KEY`",
    )
}

fn unknown_key() -> (String, String) {
    unauthorized("invalid_token", "the key is not one of the gateway's; send another")
}

fn wrong_token() -> (String, String) {
    unauthorized("invalid_token", "the token is not valid here; send another")
}

// === authentication ===

#[tokio::test]
async fn key_admits_its_caller_and_is_not_forwarded() {
    let front = Front::guarded(keys(&format!("web={KEY}\nops={OTHER_KEY}"))).await;
    for headers in [
        bearer(KEY),
        bearer(OTHER_KEY),
        format!("AUTHORIZATION: bearer   {KEY}\r\n"),
        format!("authorization: BEARER {KEY}\r\nx-api-key: mine\r\n"),
    ] {
        let head = front.passes(&headers).await;
        assert!(!head.contains("authorization") && !head.contains(KEY), "{head}");
        assert_eq!(head.contains("\r\nx-api-key: mine\r\n"), headers.contains("mine"), "{head}");
    }
}

/// LangGraph's ids of the thread that a client calls `support-42`, by the caller's headers.
async fn ids_of_a_name<const N: usize>(front: &Front, headers: [String; N]) -> [String; N] {
    let mut ids = Vec::new();
    for headers in headers {
        let mut named = input(&["hi"]);
        named["threadId"] = json!("support-42");
        let body = named.to_string();
        let mut id = None;
        let answers = async {
            loop {
                let exchange = front.upstream.next().await;
                id = exchange.line.split('/').nth(2).map(str::to_owned);
                exchange.json(403, "{}").await;
            }
        };
        tokio::select! {
            response = front.send("POST /agui/agent/agent/run", &headers, &body) => drop(response),
            () = answers => {}
        }
        ids.push(id.unwrap());
    }
    ids.try_into().unwrap()
}

#[tokio::test]
async fn thread_name_is_its_callers_own_where_the_gateway_knows_the_caller() {
    // A key that is replaced keeps the name of its owner.
    let new_key = "00112233445566778899";
    let front = Front::guarded(keys(&format!("web={KEY}\nops={OTHER_KEY}\nweb={new_key}"))).await;
    let [web, ops, new] =
        ids_of_a_name(&front, [bearer(KEY), bearer(OTHER_KEY), bearer(new_key)]).await;
    assert!(web != ops && web == new, "{web} {ops} {new}");
    let signer = Signer::ed25519("k");
    let front = Front::guarded(tokens_of(&[&signer], &[AUDIENCE])).await;
    let of = |sub: &str, exp| bearer(&signer.token(&[("sub", json!(sub)), ("exp", from_now(exp))]));
    let [ada, bob, renewed] =
        ids_of_a_name(&front, [of("ada", 60), of("bob", 60), of("ada", 600)]).await;
    assert!(ada != bob && ada == renewed, "{ada} {bob} {renewed}");
    // Without `auth` all callers share the names.
    let front = Front::with(Settings::default()).await;
    let key = |key: &str| format!("x-api-key: {key}\r\n");
    let [one, other] = ids_of_a_name(&front, [key("ada"), key("bob")]).await;
    assert_eq!(one, other);
}

#[tokio::test]
async fn key_that_is_wrong_or_missing_is_refused() {
    let front = Front::guarded(key_of("web")).await;
    let (missing, wrong) = ("Bearer\r\n", "Bearer error=\"invalid_token\"\r\n");
    for (headers, challenge, expected) in [
        (String::new(), missing, wants_a_key()),
        (format!("x-api-key: {KEY}\r\n"), missing, wants_a_key()),
        (format!("cookie: authorization={KEY}\r\n"), missing, wants_a_key()),
        (bearer(OTHER_KEY), wrong, unknown_key()),
        (bearer(&KEY[1..]), wrong, unknown_key()),
        (bearer(&format!("{KEY}0")), wrong, unknown_key()),
        (bearer(""), wrong, unknown_key()),
        ("authorization: Bearer\r\n".to_owned(), wrong, unknown_key()),
        ("authorization:\r\n".to_owned(), wrong, unknown_key()),
        (format!("authorization: {KEY}\r\n"), wrong, unknown_key()),
        (format!("authorization: Basic {KEY}\r\n"), wrong, unknown_key()),
        (format!("authorization: Bearer {KEY},{KEY}\r\n"), wrong, unknown_key()),
        (format!("authorization: Bearer {KEY}\u{e9}\r\n"), wrong, unknown_key()),
    ] {
        let (head, refused) = front.is_refused(&headers).await;
        assert_eq!(refused, expected, "{headers}");
        assert!(head.contains(&format!("\r\nwww-authenticate: {challenge}")), "{head}");
    }
}

#[tokio::test]
async fn route_requires_the_key() {
    let front = Front::guarded(key_of("web")).await;
    for line in [
        "POST /agui/agent/a/run",
        "POST /agui/agent/a/connect",
        "POST /agui/agent/a/stop/t",
        "POST /agui",
        "POST /agui/",
        "GET /agui/agent/a/threads/t/events",
        "GET /agui/agent/a/threads/t/events?access_token=0123456789abcdef",
        "GET /agui/info",
        "GET /agui/agent/a/capabilities",
        "HEAD /agui/info",
    ] {
        let body = if line.starts_with("POST") { "{}" } else { "" };
        let mut response = front.send(line, "", body).await;
        assert!(response.head.starts_with("HTTP/1.1 401 "), "{line} {}", response.head);
        if !line.starts_with("HEAD") {
            assert_eq!(refused(&mut response).await, wants_a_key(), "{line}");
        }
    }
    // The health routes need no key.
    assert_eq!(front.send("GET /healthz", "", "").await.body().await, "ok\n");
    let (mut response, _) = tokio::join!(
        front.send("GET /readyz", "", ""),
        front.answers("GET /ok", 200, r#"{"ok":true}"#)
    );
    assert!(response.head.starts_with("HTTP/1.1 200 "), "{}", response.head);
    let told = "{\"ready\":true,\"upstreams\":{\"default\":\"ok\"}}\n";
    assert_eq!(response.body().await, told);
    front.upstream.is_untouched().await;
}

#[tokio::test]
async fn wrong_keys_make_their_network_wait_and_the_right_key_does_not() {
    let front = Front::guarded(key_of("web")).await;
    let _clock = HeldClock::pause();
    for _ in 0..FAILURES.burst.get() {
        // A request without a key does not count as a failed attempt.
        assert_eq!(front.is_refused("").await.1, wants_a_key());
        assert_eq!(front.is_refused(&bearer(OTHER_KEY)).await.1, unknown_key());
    }
    let (head, told) = front.is_refused(&bearer(OTHER_KEY)).await;
    assert_eq!(told, too_many("too_many_failures", FAILED));
    assert!(head.contains("\r\nretry-after: 1\r\n"), "{head}");
    front.passes(&bearer(KEY)).await;
    assert_eq!(front.is_refused("").await.1, wants_a_key());
}

#[tokio::test]
async fn reload_changes_the_keys_and_ends_no_stream() {
    let front = Front::guarded(keys(&format!("old={KEY}"))).await;
    let (mut response, mut run) = front.run(&bearer(KEY)).await;
    front.reload(guarded(keys(&format!("old={KEY}\nnew={OTHER_KEY}"))));
    front.passes(&bearer(KEY)).await;
    front.passes(&bearer(OTHER_KEY)).await;
    front.reload(guarded(keys(&format!("new={OTHER_KEY}"))));
    assert_eq!(front.is_refused(&bearer(KEY)).await.1, unknown_key());
    run.send(crate::support::gateway::token("a", "still here")).await;
    response.frame().await;
    assert!(response.frame().await.contains("still here"));
}

#[tokio::test]
async fn upstream_mode_sends_credentials_and_returns_the_refusal() {
    let front = Front::guarded(Auth::Upstream(UpstreamAuth::default())).await;
    let message = "the gateway wants your credentials for LangGraph; send them in `authorization` \
                   or `x-api-key`";
    for headers in ["", "cookie: a=b\r\n", "traceparent: 00-1-2-3\r\n", "x-tenant: t\r\n"] {
        let (head, told) = front.is_refused(headers).await;
        assert_eq!(told, unauthorized("unauthenticated", message), "{headers}");
        assert!(head.contains("\r\nwww-authenticate: Bearer\r\n"), "{head}");
    }
    for headers in ["authorization: Bearer a\r\n", "authorization: Basic b\r\n", "x-api-key: c\r\n"]
    {
        let head = front.passes(headers).await;
        assert!(head.contains(&format!("\r\n{headers}")), "{head}");
    }
    // A key that LangGraph refuses is refused, and counts as a failed attempt.
    let (response, _run) = front.run("x-api-key: right\r\n").await;
    drop(response);
    let _clock = HeldClock::pause();
    for attempt in 0..=FAILURES.burst.get() {
        let (mut response, ()) = tokio::join!(
            front.start_run("x-api-key: wrong\r\n"),
            front.answers_state(401, r#"{"detail":"secret words"}"#)
        );
        let told = refused(&mut response).await;
        let expected = if attempt < FAILURES.burst.get() {
            let message = "LangGraph does not accept these credentials; send others";
            unauthorized("unauthorized", message)
        } else {
            too_many("too_many_failures", FAILED)
        };
        assert_eq!(told, expected, "{attempt}");
    }
}

// === tokens ===

fn jwt_of_url(issuer: &Upstream) -> Auth {
    let url = format!("{}/keys", issuer.url()).parse().unwrap();
    tokens(KeysFrom::Url { url, tls: Tls::default() }, &[AUDIENCE])
}

#[tokio::test]
async fn token_of_the_issuer_is_admitted_and_forwarded() {
    let signers = [Signer::ed25519("e"), Signer::p256("p"), Signer::rsa("r")];
    let front = Front::guarded(tokens_of(&signers.each_ref(), &[AUDIENCE])).await;
    for signer in &signers {
        for changes in [
            &[][..],
            &[("aud", json!(["x", AUDIENCE]))],
            &[("exp", from_now(-50))],
            &[("nbf", from_now(50))],
        ] {
            let token = signer.token(changes);
            let head = front.passes(&bearer(&token)).await;
            assert!(head.contains(&format!("\r\nauthorization: Bearer {token}\r\n")), "{head}");
        }
    }
}

#[tokio::test]
async fn token_that_is_wrong_or_missing_is_refused() {
    let [known, unknown] = [Signer::ed25519("k"), Signer::ed25519("k")];
    let [rsa, stranger] = [Signer::rsa("r"), Signer::p256("s")];
    let front = Front::guarded(tokens_of(&[&known, &rsa], &[AUDIENCE])).await;
    let expired = unauthorized("token_expired", "the token has expired; send a new one");
    let wants = "the gateway wants a token; send it as `authorization: Bearer TOKEN`";
    let good = known.token(&[]);
    let body = good.split('.').nth(1).unwrap();
    for (headers, expected) in [
        (String::new(), unauthorized("unauthenticated", wants)),
        (bearer(&known.token(&[("exp", from_now(-70))])), expired),
        (bearer(&known.token(&[("nbf", from_now(70))])), wrong_token()),
        (bearer(&known.token(&[("exp", json!(null))])), wrong_token()),
        (bearer(&known.token(&[("iss", json!("https://other"))])), wrong_token()),
        (bearer(&known.token(&[("aud", json!("other"))])), wrong_token()),
        (bearer(&known.token(&[("aud", json!(null))])), wrong_token()),
        (bearer(&known.token(&[("sub", json!(null))])), wrong_token()),
        (bearer(&unknown.token(&[])), wrong_token()),
        (bearer(&unknown.token(&[("exp", from_now(-70))])), wrong_token()),
        (bearer(&stranger.token(&[])), wrong_token()),
        (bearer(&known.confused()), wrong_token()),
        (bearer(&rsa.confused()), wrong_token()),
        // {"alg":"none"}
        (bearer(&format!("eyJhbGciOiJub25lIn0.{body}.")), wrong_token()),
        (bearer("a.b.c"), wrong_token()),
        (format!("authorization: Basic {good}\r\n"), wrong_token()),
        (format!("authorization: {good}\r\n"), wrong_token()),
    ] {
        assert_eq!(front.is_refused(&headers).await.1, expected, "{headers}");
    }
}

#[tokio::test]
async fn issuer_keys_are_fetched_when_they_are_needed_and_change() {
    let [old, new] = [Signer::ed25519("old"), Signer::ed25519("new")];
    let issuer = Upstream::bind().await;
    let front = Front::guarded(jwt_of_url(&issuer)).await;
    let clock = HeldClock::pause();
    let fetched = async |keys: String| {
        let fetch = issuer.accept().await;
        assert_eq!(fetch.line, "GET /keys");
        fetch.json(200, &keys).await;
    };
    // Several requests at the same time cause one fetch of the key set.
    let (old_token, new_token) = (bearer(&old.token(&[])), bearer(&new.token(&[])));
    let both = async {
        let (first, second) = tokio::join!(front.ask(&old_token), front.ask(&old_token));
        (first.head, second.head)
    };
    let answered = async {
        fetched(key_set(&[&old])).await;
        front.lists_agents(200).await;
        front.lists_agents(200).await;
    };
    let ((first, second), ()) = tokio::join!(both, answered);
    assert!(first.starts_with("HTTP/1.1 200 ") && second.starts_with("HTTP/1.1 200 "));
    // Unknown key ids cause a fetch only once in a while.
    for _ in 0..5 {
        assert_eq!(front.is_refused(&new_token).await.1, wrong_token());
    }
    issuer.is_untouched().await;
    clock.advance(FETCH_PAUSE).await;
    tokio::join!(front.passes(&new_token), fetched(key_set(&[&old, &new])));
    // A withdrawn key is accepted no longer than until the next fetch.
    clock.advance(FRESH).await;
    tokio::join!(front.passes(&old_token), fetched(key_set(&[&new])));
    clock.advance(FETCH_PAUSE).await;
    let (refused, ()) = tokio::join!(front.is_refused(&old_token), fetched(key_set(&[&new])));
    assert_eq!(refused.1, wrong_token());
}

#[tokio::test]
async fn issuer_keys_stay_in_use_while_the_issuer_is_away() {
    let signer = Signer::ed25519("k");
    let issuer = Upstream::bind().await;
    let front = Front::guarded(jwt_of_url(&issuer)).await;
    let clock = HeldClock::pause();
    let token = bearer(&signer.token(&[]));
    let away = unavailable("auth_unavailable", AWAY);
    for answer in [(500, "{}"), (200, "<html>"), (200, r#"{"keys":[]}"#), (302, "{}")] {
        let (refused, ()) = tokio::join!(front.is_refused(&token), async {
            issuer.accept().await.json(answer.0, answer.1).await;
        });
        assert_eq!(refused.1, away, "{answer:?}");
        // The gateway does not ask the issuer again for a while.
        let (head, refused) = front.is_refused(&token).await;
        assert_eq!(refused, away);
        assert!(head.contains("\r\nretry-after: 5\r\n"), "{head}");
        clock.advance(FETCH_PAUSE).await;
    }
    tokio::join!(front.passes(&token), async {
        issuer.accept().await.json(200, &key_set(&[&signer])).await;
    });
    // No request waits for newer keys, so a fetch may fail as slowly as it likes.
    clock.advance(FRESH).await;
    front.passes(&token).await;
    let fetch = issuer.accept().await;
    front.passes(&token).await;
    fetch.json(503, "{}").await;
    // After a reload the gateway keeps the known keys.
    front.reload(guarded(jwt_of_url(&issuer)));
    front.passes(&token).await;
    issuer.accept().await.json(503, "{}").await;
    clock.advance(MAX_AGE).await;
    let (refused, ()) = tokio::join!(front.is_refused(&token), async {
        issuer.accept().await.json(503, "{}").await;
    });
    assert_eq!(refused.1, away);
}

#[tokio::test]
async fn issuer_keys_are_not_fetched_from_where_a_redirect_leads() {
    let signer = Signer::ed25519("k");
    let [issuer, elsewhere] = [Upstream::bind().await, Upstream::bind().await];
    let front = Front::guarded(jwt_of_url(&issuer)).await;
    let clock = HeldClock::pause();
    let token = bearer(&signer.token(&[]));
    let away = unavailable("auth_unavailable", AWAY);
    for status in [301, 302, 303, 307, 308] {
        let script = async {
            let fetch = issuer.accept().await;
            assert_eq!(fetch.line, "GET /keys");
            fetch.redirect(status, &format!("{}/keys", elsewhere.url())).await;
        };
        let answered = async { tokio::join!(front.is_refused(&token), script) };
        let ((_, told), ()) = tokio::select! {
            answered = answered => answered,
            followed = elsewhere.accept() => panic!("{status} was followed:\n{}", followed.head),
        };
        assert_eq!(told, away, "{status}");
        elsewhere.is_untouched().await;
        issuer.is_untouched().await;
        clock.advance(FETCH_PAUSE).await;
    }
}

// === headers that are sent upstream ===

#[tokio::test]
async fn headers_that_are_forwarded_are_on_the_list() {
    let front = Front::with(Settings { forward: with_tenant(), ..Settings::default() }).await;
    let sent = "authorization: Bearer a\r\nx-api-key: b\r\ntraceparent: c\r\ntracestate: d=1\r\n\
                tracestate: e=2\r\nbaggage: f=3\r\nx-tenant: g\r\n";
    let kept = "cookie: secret-1\r\nproxy-authorization: secret-2\r\nx-other: secret-3\r\n\
                x-forwarded-for: secret-4\r\nforwarded: for=secret-5\r\nuser-agent: secret-6\r\n\
                te: secret-7\r\nkeep-alive: secret-8\r\nlast-event-id: secret-9\r\n\
                prefer: secret-10\r\nreferer: http://secret-11\r\nvia: secret-12\r\n";
    let head = front.passes(&format!("{kept}{sent}")).await;
    for line in sent.lines() {
        assert!(head.contains(&format!("\r\n{line}\r\n")), "{line} is not in {head}");
    }
    assert!(!head.contains("secret"), "{head}");
}

#[tokio::test]
async fn connection_header_names_no_header_that_is_checked_or_forwarded() {
    let signer = Signer::ed25519("k");
    let modes = [
        (Auth::None, String::new()),
        (key_of("web"), bearer(KEY)),
        (tokens_of(&[&signer], &[AUDIENCE]), bearer(&signer.token(&[]))),
        (Auth::Upstream(UpstreamAuth::default()), bearer("mine")),
    ];
    for (auth, credentials) in modes {
        let mode = format!("{auth:?}");
        let forward = with_tenant();
        let front = Front::with(Settings { auth, forward, ..Settings::default() }).await;
        for (lines, name) in [
            ("connection: authorization", "authorization"),
            ("Connection:Authorization", "authorization"),
            ("connection: keep-alive, X-Api-Key", "x-api-key"),
            ("connection: keep-alive\r\nconnection: x-other ,\tX-TENANT\t, close", "x-tenant"),
            ("connection: ,,cookie,", "cookie"),
            ("connection: traceparent", "traceparent"),
            ("connection: baggage", "baggage"),
            ("connection: origin", "origin"),
            ("connection: host", "host"),
            ("connection: last-event-id", "last-event-id"),
            ("connection: sec-fetch-site", "sec-fetch-site"),
            ("connection: content-length", "content-length"),
            ("connection: content-type", "content-type"),
        ] {
            let told = front.is_refused(&format!("{credentials}{lines}\r\n")).await.1;
            let message = format!(
                "`connection` names the header {name}, which every hop would have to drop; send \
                 `connection` without it"
            );
            assert_eq!(told, invalid(&message), "{mode}: {lines}");
        }
        // This check comes first: even wrong credentials are not looked at before it.
        let (_, told) =
            front.is_refused("authorization: Bearer x\r\nconnection: authorization\r\n").await;
        assert!(told.0.starts_with("HTTP/1.1 400 "), "{mode}: {told:?}");
        for line in ["keep-alive", "Keep-Alive, x-other", "close", "upgrade", "te, trailer", ""] {
            let lines = format!("{credentials}connection: {line}\r\nx-other: 1\r\n");
            let head = front.passes(&lines).await;
            assert!(!head.contains("x-other"), "{head}");
        }
    }
}

#[tokio::test]
async fn configurable_is_forwarded_as_the_operator_allows() {
    let mut allowance = Allowance::default();
    allowance.allow("model").unwrap();
    for (allowance, expected) in [
        (Allowance::default(), json!({"recursion_limit": 1000})),
        (allowance, json!({"recursion_limit": 1000, "configurable": {"model": "m"}})),
    ] {
        let front = Front::with(Settings { allowance, ..Settings::default() }).await;
        let mut body = input(&["hi"]);
        body["forwardedProps"] = json!({"config": {
            "recursion_limit": 1_000_000_000,
            "configurable": {"model": "m", "tenant_id": "other"},
        }});
        let body = body.to_string();
        let (_response, run) =
            tokio::join!(front.send("POST /agui/agent/agent/run", "", &body), front.begins());
        let sent: serde_json::Value = serde_json::from_str(&run.body).unwrap();
        assert_eq!(sent["config"], expected);
    }
}

#[tokio::test]
async fn key_that_is_not_forwarded_says_nothing_of_its_caller() {
    let upstream = Upstream::bind().await;
    let agents = agents(&[("default", &upstream.url())], &[]);
    agents.upstreams()[0].client.use_key(Some("ours".parse().unwrap()));
    let (address, _stop, _serving, _) = serve_as(agents, Settings::default()).await;
    let events = format!(
        "GET /agui/agent/agent/threads/{THREAD}/events HTTP/1.1\r\nhost: 127.0.0.1\r\n\
         x-api-key: stray\r\n\r\n"
    );
    let answered = async |status, body: &str| {
        let looked = upstream.next().await;
        assert_eq!(looked.key(), Some("ours"));
        assert!(!looked.head.contains("stray"), "{}", looked.head);
        looked.json(status, body).await;
    };
    // LangGraph refuses the gateway's own key: the caller has no better one.
    let (mut response, ()) =
        tokio::join!(Response::to(address, events.as_bytes()), answered(401, "{}"));
    let message = "the LangGraph server answered 401; send the credentials that it wants, or have \
                   the gateway's operator set `upstream.api_key` to a key that it accepts";
    let expected = refusal("502 Bad Gateway", "upstream_unauthorized", message);
    assert_eq!(refused(&mut response).await, expected);
    // No thread can be hidden from this caller: a thread that does not exist is a new chat's.
    let (response, ()) = tokio::join!(Response::to(address, events.as_bytes()), async {
        // The thread's runs, and its state.
        for _ in 0..2 {
            answered(404, NOT_FOUND).await;
        }
    });
    assert!(response.head.starts_with("HTTP/1.1 200 OK\r\n"), "{}", response.head);
}

#[tokio::test]
async fn credentials_that_are_repeated_are_refused() {
    let front = Front::with(Settings { forward: with_tenant(), ..Settings::default() }).await;
    for name in ["authorization", "x-api-key", "x-tenant"] {
        let told = front.is_refused(&format!("{name}: a\r\n{name}: b\r\n")).await.1;
        let message = format!("the header {name} is there more than once; send it once");
        assert_eq!(told, invalid(&message));
    }
}

// === errors that clients see ===

#[tokio::test]
async fn error_detail_limits_what_a_failure_says() {
    const CODE: &str = "ValueError";
    const WORDS: &str = "boom after 3 tokens";
    // Only the state has this text: elsewhere the Python server hides the message of most
    // exceptions.
    const HIDDEN: &str = "ValueError('boom after 3 tokens, with a secret')";
    let untold = RunError::unexplained();
    for (error_detail, code, message) in [
        (ErrorDetail::None, &*untold.code, &*untold.message),
        (ErrorDetail::Code, CODE, &*untold.message),
        (ErrorDetail::Message, CODE, WORDS),
        (ErrorDetail::Full, CODE, WORDS),
    ] {
        let front = Front::with(Settings { error_detail, ..Settings::default() }).await;
        let told = |source: &str| {
            let mut error = json!({"message": message, "code": code});
            if error_detail == ErrorDetail::Full {
                error["sources"] = json!([
                    {"source": source, "type": CODE, "message": WORDS},
                    {"source": "thread_state", "node": "model", "message": HIDDEN},
                ]);
            }
            error
        };
        let expect_detail = |body: &str| {
            let has = [HIDDEN, CODE, WORDS].map(|text| body.contains(text));
            let expected = [error_detail == ErrorDetail::Full, code == CODE, message == WORDS];
            assert_eq!(has, expected, "{error_detail:?}: {body}");
        };
        let task = json!({"id": "t", "name": "model", "error": HIDDEN});
        let state = json!({"values": {}, "next": ["model"], "tasks": [task],
            "metadata": {"run_id": RUN}});
        let mut expected = json!({"type": "RUN_ERROR", "message": message, "code": code});
        if error_detail == ErrorDetail::Full {
            expected["metadata"] = json!({"langgraph": {"error": told("run_stream")}});
        }
        // A run that fails, for the client that started it.
        let (mut response, mut run) = front.run("").await;
        run.send(part("error", &json!({"error": CODE, "message": WORDS}))).await;
        run.end().await;
        let record = json!({"run_id": RUN, "status": "error"});
        let line = format!("GET /threads/{THREAD}/runs/{RUN}");
        front.answers(&line, 200, &record.to_string()).await;
        front.answers_state(200, &state.to_string()).await;
        let body = response.body().await;
        assert_eq!(events(&body).last(), Some(&expected), "{error_detail:?}");
        expect_detail(&body);

        // The same run, for a client that connects after its end.
        let hi = input(&["hi"]).to_string();
        let script = async {
            front.upstream.next().await.json(200, &json!([record]).to_string()).await;
            front.answers_state(200, &state.to_string()).await;
            let thread = json!({"error": {"error": CODE, "message": WORDS}}).to_string();
            front.answers(&format!("GET /threads/{THREAD}"), 200, &thread).await;
        };
        let (mut response, ()) =
            tokio::join!(front.send("POST /agui/agent/agent/connect", "", &hi), script);
        let body = response.body().await;
        let shown = events(&body).pop().unwrap()["metadata"]["langgraph"]["error"].take();
        assert_eq!(shown, told("thread"), "{error_detail:?}");
        expect_detail(&body);

        // A request that LangGraph refuses.
        let (mut response, ()) =
            tokio::join!(front.start_run(""), front.answers_state(500, r#"{"detail":"boom"}"#));
        let words = if error_detail == ErrorDetail::Full { ": boom" } else { "" };
        let message =
            format!("the LangGraph server answered 500{words}; the server's log may tell more");
        let expected = refusal("502 Bad Gateway", "upstream_refused", &message);
        assert_eq!(refused(&mut response).await, expected, "{error_detail:?}");
    }
}

// === web pages ===

#[tokio::test]
async fn preflight_says_why_a_page_is_refused() {
    let listed = ["https://chat.example.com", "http://localhost:5199"];
    let listed = Cors::new(listed, Credentials::Omitted).unwrap();
    let unlisted = |origin: &str| {
        format!(
            "the gateway does not answer pages of {origin}; have its operator allow them with \
             --cors-origins {origin} (`cors.origins`)"
        )
    };
    let other = |allowed: &str, origin: &str| {
        format!(
            "{allowed} is allowed; this page came from {origin}, which is another origin to a \
             browser; open the page at {allowed}, or have the gateway's operator add {origin} to \
             --cors-origins (`cors.origins`)"
        )
    };
    let alike = |allowed: &str, origin: &'static str| (origin, other(allowed, origin));
    let localhost = "http://localhost:5199";
    let chat = "https://chat.example.com";
    let none = "a page without an origin (`Origin: null`: a file, or a sandboxed frame) cannot be \
                allowed; serve it over http, and have the gateway's operator add that origin to \
                `cors.origins`";
    for (cors, (origin, message)) in [
        (Cors::Off, (localhost, unlisted(localhost))),
        (listed.clone(), alike(localhost, "http://127.0.0.1:5199")),
        (listed.clone(), alike(localhost, "http://[::1]:5199")),
        (listed.clone(), alike(localhost, "http://localhost:5200")),
        (listed.clone(), alike(localhost, "https://localhost:5199")),
        (listed.clone(), alike(chat, "http://chat.example.com")),
        (listed.clone(), alike(chat, "https://chat.example.com:8443")),
        (listed.clone(), ("https://evil.example", unlisted("https://evil.example"))),
        (listed.clone(), ("null", none.to_owned())),
        // An invalid origin is not repeated in the refusal.
        (listed.clone(), ("https://user@chat.example.com", FOREIGN.to_owned())),
        (listed, ("https://chat.example.com/s3cret", FOREIGN.to_owned())),
    ] {
        let auth = key_of("web");
        let front = Front::with(Settings { cors, auth, ..Settings::default() }).await;
        for path in ["/agui/info", "/agui", "/agui/agent/a/run", "/agui/agent/a/threads/t/events"] {
            let preflight = format!("origin: {origin}\r\naccess-control-request-method: POST\r\n");
            let mut response = front.send(&format!("OPTIONS {path}"), &preflight, "").await;
            assert_eq!(refused(&mut response).await, foreign(&message), "{path} {origin}");
            assert!(!response.head.contains("access-control"), "{}", response.head);
        }
        // The request itself is refused with the same text, where a client shows it.
        let (_, told) = front.is_refused(&format!("origin: {origin}\r\n")).await;
        assert_eq!(told, foreign(&message), "{origin}");
    }
}

#[tokio::test]
async fn page_of_another_origin_is_refused_unless_it_is_allowed() {
    let origins = ["https://chat.example.com", "http://localhost:3000"];
    let listed = Cors::new(origins, Credentials::Omitted).unwrap();
    for (cors, origin, is_welcome) in [
        (Cors::Off, "https://chat.example.com", false),
        (Cors::Off, "null", false),
        // The gateway's own page.
        (Cors::Off, "http://127.0.0.1", true),
        (Cors::Off, "https://127.0.0.1", true),
        (Cors::Off, "evil://127.0.0.1", false),
        (Cors::Off, "chrome-extension://127.0.0.1", false),
        (listed.clone(), "https://chat.example.com", true),
        (listed.clone(), "http://localhost:3000", true),
        (listed.clone(), "http://localhost:3001", false),
        (listed.clone(), "http://chat.example.com", false),
        (listed.clone(), "https://chat.example.com.evil.example", false),
        (listed, "null", false),
        (Cors::Any, "https://chat.example.com", true),
        (Cors::Any, "null", true),
    ] {
        let front = Front::with(Settings { cors: cors.clone(), ..Settings::default() }).await;
        let headers = format!("origin: {origin}\r\n");
        if is_welcome {
            front.passes(&headers).await;
        } else {
            let (head, told) = front.is_refused(&headers).await;
            assert_eq!(told.0, "HTTP/1.1 403 Forbidden", "{cors:?} {origin}");
            assert!(told.1.starts_with(r#"{"error":"cross_origin","#), "{}", told.1);
            assert!(!head.contains("access-control-allow-origin"), "{head}");
            // Nor can the page stop a run, although a stop accepts any content type.
            let plain = format!("{headers}content-type: text/plain\r\ncontent-length: 0\r\n");
            let stop = format!("POST /agui/agent/a/stop/{THREAD}");
            assert_eq!(refused(&mut front.send(&stop, &plain, "").await).await, told);
            front.upstream.is_untouched().await;
        }
    }
}

#[tokio::test]
async fn page_of_another_site_is_refused_without_an_origin_too() {
    let foreign = foreign(FOREIGN);
    let listed = Cors::new(["https://chat.example.com"], Credentials::Omitted).unwrap();
    let listed_page = "origin: https://chat.example.com\r\n";
    for (cors, auth) in [
        (Cors::Off, Auth::None),
        (listed.clone(), Auth::None),
        (Cors::Any, key_of("web")),
        (listed, Auth::Upstream(UpstreamAuth::default())),
    ] {
        let is_listed = matches!(cors, Cors::Origins { .. });
        let front = Front::with(Settings { cors, auth, ..Settings::default() }).await;
        let key = bearer(KEY);
        let events = format!("GET /agui/agent/agent/threads/{THREAD}/events?follow=thread");
        for fetch in [
            "sec-fetch-site: cross-site\r\n",
            "sec-fetch-site: same-site\r\n",
            // A link, a frame and an image.
            "sec-fetch-site: cross-site\r\nsec-fetch-mode: navigate\r\nsec-fetch-dest: document\r\n",
            "sec-fetch-site: cross-site\r\nsec-fetch-mode: navigate\r\nsec-fetch-dest: iframe\r\n",
            "sec-fetch-site: cross-site\r\nsec-fetch-mode: no-cors\r\nsec-fetch-dest: image\r\n",
        ] {
            let mut response = front.send(&events, &format!("{key}{fetch}"), "").await;
            assert_eq!(refused(&mut response).await, foreign, "{fetch}");
            assert_eq!(front.is_refused(&format!("{key}{fetch}")).await.1, foreign, "{fetch}");
        }
        // The gateway's own pages, and an address typed by the user.
        for site in ["same-origin", "none"] {
            front.passes(&format!("{key}sec-fetch-site: {site}\r\n")).await;
        }
        if is_listed {
            front.passes(&format!("{key}{listed_page}sec-fetch-site: cross-site\r\n")).await;
        }
    }
}

/// A non-loopback address of this machine; `None` without a network.
fn address_in_a_network() -> Option<IpAddr> {
    // Nothing is sent: the system only chooses the source address.
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|address| !address.is_loopback())
}

#[tokio::test]
async fn host_name_counts_wherever_a_request_comes_from() {
    let Some(own) = address_in_a_network() else { return };
    let upstream = Upstream::bind().await;
    let listener = tokio::net::TcpListener::bind("0.0.0.0:0").await.unwrap();
    let address = SocketAddr::new(own, listener.local_addr().unwrap().port());
    let settings =
        Settings { hosts: vec!["chat.example.com".parse().unwrap()], ..Settings::default() };
    let agents = agents(&[("default", &upstream.url())], &[]);
    let stop = CancellationToken::new();
    let server = Arc::new(Server::new(agents, settings, Observer::default(), stop.clone()));
    let mut serving = JoinSet::new();
    serving.spawn(async move { server.serve(listener).await });
    for (host, is_safe) in [
        (address.to_string(), true),
        ("chat.example.com".to_owned(), true),
        ("threadway:8484".to_owned(), true),
        ("evil.example".to_owned(), false),
    ] {
        let request =
            format!("GET /agui/info HTTP/1.1\r\nhost: {host}\r\norigin: http://{host}\r\n\r\n");
        let asked = Response::to(address, request.as_bytes());
        if is_safe {
            let (response, ()) = tokio::join!(asked, async {
                upstream.expect("POST /assistants/search").await.json(200, "[]").await;
            });
            assert!(response.head.starts_with("HTTP/1.1 200 "), "{host} {}", response.head);
        } else {
            let (status, body) = refused(&mut asked.await).await;
            assert!(status.ends_with(" 403 Forbidden") && body.contains("wrong_host"), "{body}");
            upstream.is_untouched().await;
        }
    }
}

#[tokio::test]
async fn cors_headers_are_sent_to_an_allowed_page() {
    let origins = ["https://chat.example.com"];
    let with = |cors| Settings {
        cors,
        forward: with_tenant(),
        auth: key_of("web"),
        ..Settings::default()
    };
    let vary = "vary: origin, access-control-request-method, access-control-request-headers\r\n";
    let may = "access-control-allow-methods: GET,POST,PATCH,DELETE\r\n\
               access-control-allow-headers: \
               accept,authorization,content-type,last-event-id,x-run-id,acp-connection-id,acp-session-id,x-api-key,traceparent,tracestate,\
               baggage,x-tenant\r\naccess-control-max-age: 600\r\n";
    for (credentials, told) in [
        (Credentials::Omitted, ""),
        (Credentials::Included, "access-control-allow-credentials: true\r\n"),
    ] {
        let front = Front::with(with(Cors::new(origins, credentials).unwrap())).await;
        // A preflight has no key.
        let preflight = async |origin: &str, path: &str| {
            let headers = format!(
                "origin: {origin}\r\naccess-control-request-method: POST\r\n\
                 access-control-request-headers: content-type,authorization\r\n"
            );
            front.send(&format!("OPTIONS {path}"), &headers, "").await
        };
        for path in [
            "/agui",
            "/agui/info",
            "/agui/agent/a/run",
            "/agui/agent/a/threads/t/events",
            "/agui/threads",
            "/agui/threads/t",
        ] {
            let response = preflight("https://chat.example.com", path).await;
            let origin = "access-control-allow-origin: https://chat.example.com\r\n";
            let lines = response.head.split_inclusive('\n');
            let head: String = lines.filter(|line| !line.starts_with("allow: ")).collect();
            assert_eq!(
                head,
                format!("HTTP/1.1 200 OK\r\n{told}{vary}{may}{origin}content-length: 0\r\n\r\n")
            );
            let response = preflight("https://other.example.com", path).await;
            assert!(!response.head.contains("allow-origin"), "{}", response.head);
        }
        // The page may read the response, and the text of a refusal.
        let origin = "origin: https://chat.example.com\r\n";
        let (head, refused) = front.is_refused(origin).await;
        assert_eq!(refused, wants_a_key());
        for line in [
            "access-control-allow-origin: https://chat.example.com\r\n",
            "access-control-expose-headers: retry-after,last-event-id,acp-connection-id\r\n",
            vary,
            told,
        ] {
            assert!(head.contains(line), "{line} is not in {head}");
        }
        assert!(!head.contains("allow-headers"), "{head}");
        front.passes(&format!("{origin}{}", bearer(KEY))).await;
    }
    let front = Front::with(with(Cors::Any)).await;
    let (head, _) = front.is_refused("origin: https://anywhere.example\r\n").await;
    assert!(head.contains("\r\naccess-control-allow-origin: *\r\n"), "{head}");
    assert!(!head.contains("allow-credentials"), "{head}");
}

#[tokio::test]
async fn host_name_that_others_could_have_is_refused_without_keys() {
    let message = "a gateway without `auth` does not answer under a name that any web page could \
                   have; call it by its address or `localhost`, or have its operator add the name \
                   to `hosts`";
    let wrong_host = refusal("403 Forbidden", "wrong_host", message);
    let hosts = vec!["chat.example.com".parse().unwrap()];
    let one_host = invalid("a request must have one `host` header");
    // A page that has taken over the gateway's address (DNS rebinding) claims to have the same origin.
    let claims = |host: &str| format!("HTTP/1.1\r\nhost: {host}\r\norigin: http://{host}\r\n");
    let lines = |lines: &str| format!("HTTP/1.1\r\n{lines}");
    let (wrong, info) = (Some(&wrong_host), "/agui/info");
    for (target, rest, expected) in [
        (info, claims("127.0.0.1:8484"), None),
        (info, claims("localhost:8484"), None),
        (info, claims("threadway:8484"), None),
        (info, claims("chat.example.com"), None),
        (info, claims("evil.example.com"), wrong),
        (info, claims("evil.example.com:8484"), wrong),
        // If the request target names a host, that host counts.
        ("http://evil.example.com/agui/info", lines("host: localhost\r\n"), wrong),
        ("http://localhost/agui/info", lines("host: evil.example.com\r\n"), None),
        (info, lines(""), Some(&one_host)),
        (info, lines("host: a\r\nhost: a\r\n"), Some(&one_host)),
        (info, lines("host: a\r\nhost: b\r\n"), Some(&one_host)),
        (info, "HTTP/1.0\r\n".to_owned(), None),
    ] {
        for auth in [Auth::None, key_of("web")] {
            // With keys, no name is wrong.
            let expected =
                expected.filter(|&told| *told != wrong_host || matches!(auth, Auth::None));
            let settings = Settings { auth, hosts: hosts.clone(), ..Settings::default() };
            let front = Front::with(settings).await;
            let request = format!("GET {target} {rest}{}\r\n", bearer(KEY));
            let asked = Response::to(front.address, request.as_bytes());
            let mut response = front.listed(asked, 200).await;
            if let Some(told) = expected {
                assert_eq!(refused(&mut response).await, *told, "{request}");
            } else {
                assert!(response.head.contains(" 200 OK\r\n"), "{request}{}", response.head);
            }
        }
    }
}

// === limits ===

#[tokio::test]
async fn caller_who_sends_too_many_requests_waits() {
    let rate =
        RequestRate { per_second: NonZeroU32::new(2).unwrap(), burst: NonZeroU32::new(3).unwrap() };
    let rates = Rates { requests: Some(rate), streams: None };
    let auth = keys(&format!("a={KEY}\nb={OTHER_KEY}"));
    let front = Front::with(Settings { rates, auth, ..Settings::default() }).await;
    let clock = HeldClock::pause();
    for _ in 0..3 {
        front.passes(&bearer(KEY)).await;
    }
    let message = "you have sent more requests than you may; wait, then send the request again";
    let (head, told) = front.is_refused(&bearer(KEY)).await;
    assert_eq!(told, too_many("too_many_requests", message));
    assert!(head.contains("\r\nretry-after: 1\r\n"), "{head}");
    // Other callers are not limited, nor are requests that need no key.
    front.passes(&bearer(OTHER_KEY)).await;
    assert_eq!(front.send("GET /healthz", "", "").await.body().await, "ok\n");
    clock.advance(Duration::from_millis(500)).await;
    front.passes(&bearer(KEY)).await;
    front.waits(&bearer(KEY)).await;
    // A reload does not reset the counts.
    let auth = keys(&format!("a={KEY}"));
    front.reload(Settings { rates, auth, ..Settings::default() });
    front.waits(&bearer(KEY)).await;
}

/// Callers whose credentials LangGraph checks, identified by this header if it is named. Each may
/// send one request a second.
fn judged(credential: Option<&'static str>) -> Settings {
    let rates = Rates { streams: NonZeroUsize::new(1), ..rated(1) };
    let credential = credential.map(http::HeaderName::from_static);
    let auth = Auth::Upstream(UpstreamAuth { credential, ..UpstreamAuth::default() });
    Settings { rates, auth, forward: with_tenant(), ..Settings::default() }
}

/// What becomes of a request of a caller who may send one a second.
enum Sent {
    Passes,
    Waits,
    /// The same a second later.
    Later,
}

#[tokio::test]
async fn caller_is_what_the_gateway_knows_of_it() {
    use Sent::{Later, Passes, Waits};
    let signer = Signer::ed25519("k");
    let token = |claim, value| signer.token(&[(claim, value)]);
    let [ada, bob, renewed] =
        [("sub", json!("ada")), ("sub", json!("bob")), ("exp", from_now(700))]
            .map(|(claim, value)| bearer(&token(claim, value)));
    let limited = |auth| Settings { auth, rates: rated(1), ..Settings::default() };
    let upstream = Auth::Upstream(UpstreamAuth::default());
    for (caller, settings, requests) in [
        (
            "its address, without keys",
            limited(Auth::None),
            vec![(Passes, "x-api-key: a"), (Waits, "x-api-key: b")],
        ),
        (
            "its credentials, where LangGraph checks them",
            limited(upstream),
            vec![
                (Passes, "x-api-key: a"),
                (Passes, "x-api-key: b"),
                (Passes, "authorization: a"),
                (Waits, "x-api-key: a\r\ntraceparent: 1"),
            ],
        ),
        (
            "the named one of its headers, whatever it adds",
            judged(Some("authorization")),
            vec![
                (Passes, "authorization: Bearer a"),
                (Waits, "authorization: Bearer a"),
                (Waits, "authorization: Bearer a\r\nx-api-key: 1"),
                (Waits, "authorization: Bearer a\r\nx-api-key: 2\r\nx-tenant: 2"),
                (Waits, "authorization: bearer  a\r\nx-tenant: 3"),
                (Passes, "authorization: Bearer b\r\nx-api-key: 1"),
                (Waits, "authorization: Bearer b"),
            ],
        ),
        (
            "its address, with several credentials and no named header; else the only one",
            judged(None),
            vec![
                (Passes, "authorization: Bearer a\r\nx-api-key: 1"),
                (Waits, "authorization: Bearer a\r\nx-api-key: 2"),
                (Waits, "x-api-key: 2\r\nx-tenant: 3"),
                (Later, "authorization: Bearer a\r\ntraceparent: 1"),
                (Passes, "x-tenant: a"),
                (Waits, "authorization: Bearer a"),
            ],
        ),
        (
            "the subject of its token, whatever token it sends",
            limited(tokens_of(&[&signer], &[AUDIENCE])),
            vec![(Passes, ada.trim()), (Passes, bob.trim()), (Waits, renewed.trim())],
        ),
    ] {
        println!("{caller}");
        let front = Front::with(settings).await;
        let clock = HeldClock::pause();
        for (sent, headers) in requests {
            let headers = format!("{headers}\r\n");
            if let Later = sent {
                clock.advance(Duration::from_secs(1)).await;
            }
            if let Waits = sent {
                front.waits(&headers).await;
            } else {
                front.passes(&headers).await;
            }
        }
        drop(clock);
        tokio::time::resume();
    }
}

#[tokio::test]
async fn credentials_that_langgraph_has_not_accepted_count_against_their_address() {
    let front = Front::with(judged(None)).await;
    let clock = HeldClock::pause();
    let invented = async |at: u32| {
        let headers = format!("authorization: Bearer invented-{at}\r\n");
        let mut response = front.listed(front.ask(&headers), 401).await;
        refused(&mut response).await
    };
    let refused_by_langgraph = invented(0).await;
    assert!(refused_by_langgraph.0.ends_with(" 401 Unauthorized"), "{refused_by_langgraph:?}");
    for at in 1..50 {
        let told = invented(at).await;
        assert!(told.1.contains("too_many_requests"), "{at}: {told:?}");
    }
    front.upstream.is_untouched().await;
    // Accepted credentials do not count against the address, nor the address against them.
    clock.advance(Duration::from_secs(1)).await;
    front.passes("authorization: Bearer a\r\n").await;
    front.passes("authorization: Bearer b\r\n").await;
    clock.advance(Duration::from_secs(1)).await;
    assert!(invented(50).await.0.ends_with(" 401 Unauthorized"));
    front.passes("authorization: Bearer a\r\n").await;
    assert!(invented(51).await.1.contains("too_many_requests"));
    // Credentials that LangGraph no longer accepts count like invented ones.
    clock.advance(Duration::from_secs(1)).await;
    let (mut response, _) =
        tokio::join!(front.ask("authorization: Bearer b\r\n"), front.lists_agents(401));
    assert!(refused(&mut response).await.0.ends_with(" 401 Unauthorized"));
    assert!(invented(52).await.0.ends_with(" 401 Unauthorized"));
    front.waits("authorization: Bearer b\r\n").await;
}

#[tokio::test]
async fn stream_counts_for_its_caller_once_langgraph_has_accepted_it() {
    let front = Front::with(judged(Some("authorization"))).await;
    let clock = HeldClock::pause();
    let (_a, _run_of_a) = front.run("authorization: Bearer a\r\n").await;
    // The address has its slot back, and the caller has used its own.
    let (_b, _run_of_b) = front.run("authorization: Bearer b\r\n").await;
    clock.advance(Duration::from_secs(1)).await;
    let mut response = front.start_run("authorization: Bearer a\r\nx-api-key: 1\r\n").await;
    let told = refused(&mut response).await;
    assert!(told.1.contains("too_many_streams"), "{told:?}");
    front.upstream.is_untouched().await;
    front.stop.cancel();
}

#[tokio::test]
async fn callers_are_refused_until_langgraph_has_refused_invented_credentials() {
    let auth = Auth::Upstream(UpstreamAuth { trust: Trust::Proven, ..UpstreamAuth::default() });
    let front = Front::guarded(auth).await;
    let clock = HeldClock::pause();
    let message = "the gateway refuses requests until LangGraph has refused invented credentials; \
                   try again, and have its operator look at its log";
    let unproven = unavailable("auth_unproven", message);
    let probed = async |status: u16| {
        let probe = front.upstream.expect("POST /threads/search").await;
        assert!(!probe.head.contains("Bearer mine"), "{}", probe.head);
        let head = probe.head.clone();
        probe.json(status, "[]").await;
        head
    };
    for status in [200, 503, 404] {
        let asked = front.ask("authorization: Bearer mine\r\n");
        let (mut response, _) = tokio::join!(asked, probed(status));
        assert_eq!(refused(&mut response).await, unproven, "{status}");
        // A request during the pause gets the known answer, without another probe.
        assert_eq!(front.is_refused("authorization: Bearer mine\r\n").await.1, unproven);
        clock.advance(PROBE_PAUSE).await;
    }
    let asked = front.ask("authorization: Bearer mine\r\n");
    let (response, heads) = tokio::join!(asked, async {
        let mut heads = Vec::new();
        // Each header alone, a well-formed token, and all at once.
        for status in [401, 403, 401, 401] {
            heads.push(probed(status).await);
        }
        front.lists_agents(200).await;
        heads
    });
    assert!(response.head.starts_with("HTTP/1.1 200 "), "{}", response.head);
    let shows = |name: &str| -> Vec<bool> {
        heads.iter().map(|head| head.contains(&format!("\r\n{name}: "))).collect()
    };
    assert_eq!(shows("authorization"), [true, false, true, true]);
    assert_eq!(shows("x-api-key"), [false, true, false, true]);
    // The gateway does not ask LangGraph again.
    front.passes("authorization: Bearer mine\r\n").await;
}

#[tokio::test]
async fn streams_beyond_a_callers_limit_are_refused() {
    let rates = Rates { requests: None, streams: NonZeroUsize::new(1) };
    let auth = keys(&format!("a={KEY}\nb={OTHER_KEY}"));
    let front = Front::with(Settings { rates, auth, ..Settings::default() }).await;
    // The stream stays open: one that breaks off would be requested again.
    let (response, _run) = front.run(&bearer(KEY)).await;
    let message = "you may have 1 streams at once, and have them; end one, then try again";
    let too_many = too_many("too_many_streams", message);
    let key = bearer(KEY);
    let hi = input(&["hi"]);
    let envelope = json!({"method": "agent/run", "params": {"agentId": "agent"}, "body": hi});
    let events = format!("GET /agui/agent/agent/threads/{THREAD}/events");
    for (line, body) in [
        ("POST /agui/agent/agent/run", hi.to_string()),
        ("POST /agui/agent/agent/connect", hi.to_string()),
        (&*events, String::new()),
        ("POST /agui", envelope.to_string()),
    ] {
        let mut response = front.send(line, &key, &body).await;
        assert_eq!(refused(&mut response).await, too_many, "{line}");
        assert!(response.head.contains("\r\nretry-after: 5\r\n"), "{}", response.head);
    }
    // A refused `EventSource` would never reconnect.
    let again = format!("{key}last-event-id: x\r\naccept: text/event-stream\r\n");
    let mut later = front.send(&events, &again, "").await;
    assert_eq!(later.body().await, format!("retry: {}\n\n", RETRY.as_millis()));
    front.upstream.is_untouched().await;
    // A request that is no stream is accepted.
    front.passes(&key).await;
    // Streams of another caller do not count.
    let (other, _other_run) = front.run(&bearer(OTHER_KEY)).await;
    drop(other);
    // A slot is free when its stream is over, even if the client disconnected.
    drop(response);
    settled(&front).await;
    front.run(&key).await;
    front.stop.cancel();
}

/// Waits until the gateway has noticed closed connections: it answers connections that came later.
async fn settled(front: &Front) {
    for _ in 0..3 {
        let mut response = front.send("GET /healthz", "connection: close\r\n", "").await;
        assert_eq!(response.body().await, "ok\n");
    }
}

#[tokio::test]
async fn run_that_was_not_started_holds_no_slot() {
    let rates = Rates { requests: None, streams: NonZeroUsize::new(1) };
    let front = Front::with(Settings { rates, ..Settings::default() }).await;
    // From here on the gateway knows the server's kind.
    let (response, _run) = front.run("").await;
    drop(response);
    settled(&front).await;
    for _ in 0..3 {
        let (response, ()) = tokio::join!(front.start_run(""), front.answers_state(500, "{}"));
        assert!(response.head.starts_with("HTTP/1.1 502 "), "{}", response.head);
    }
    front.run("").await;
}

// === clients that resume a stream ===

/// Gateways that refuse a caller for a while: the status and the code, the caller's headers, and how
/// many requests use up the caller's limits before.
fn refusing() -> [(&'static str, &'static str, String, Settings, u32); 6] {
    let often = |settings| Settings { rates: rated(1), ..settings };
    let url = "http://127.0.0.1:9/keys".parse().unwrap();
    let unreachable = tokens(KeysFrom::Url { url, tls: Tls::default() }, &[AUDIENCE]);
    let token = Signer::ed25519("k").token(&[]);
    let unproven = Auth::Upstream(UpstreamAuth { credential: None, trust: Trust::Proven });
    let limits = Limits { connections: 0, ..Limits::default() };
    let full = Settings { limits, ..Settings::default() };
    let (none, key) = (String::new(), "x-api-key: good\r\n".to_owned());
    let (web, failures) = (|| guarded(key_of("web")), FAILURES.burst.get());
    let (busy, away) = ("429 Too Many Requests", "503 Service Unavailable");
    [
        (busy, "too_many_requests", none.clone(), often(Settings::default()), 1),
        (busy, "too_many_requests", bearer(KEY), often(web()), 1),
        (busy, "too_many_failures", bearer(OTHER_KEY), web(), failures),
        (away, "auth_unproven", key, guarded(unproven), 0),
        (away, "auth_unavailable", bearer(&token), guarded(unreachable), 0),
        (away, "too_many_connections", none, full, 0),
    ]
}

#[tokio::test]
async fn event_source_survives_each_refusal_that_passes() {
    const EVENTS: &str = "/agui/agent/agent/threads/t/events";
    let page = "origin: http://page.example.com\r\n";
    let cors = || Cors::Origins {
        origins: vec!["http://page.example.com".parse().unwrap()],
        credentials: Credentials::Omitted,
    };
    let _clock = HeldClock::pause();
    for (status, code, headers, settings, before) in refusing() {
        let agents = agents(&[("default", "http://127.0.0.1:9")], &[]);
        let settings = Settings { cors: cors(), ..settings };
        let (address, _stop, _serving, _server) = serve_as(agents, settings).await;
        let get = async |path: &str, more: &str| {
            let request =
                format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{page}{headers}{more}\r\n");
            Response::to(address, request.as_bytes()).await
        };
        for _ in 0..before {
            get("/agui/info", "").await;
        }
        let sse = "accept: text/event-stream\r\n";
        let last = "last-event-id: x\r\n";
        for (path, more) in [
            (EVENTS.to_owned(), format!("{sse}{last}")),
            (EVENTS.to_owned(), last.to_owned()),
            (format!("{EVENTS}?follow=thread"), format!("{sse}{last}")),
            (format!("{EVENTS}?last_event_id=x"), sse.to_owned()),
        ] {
            let mut response = get(&path, &more).await;
            let head = response.head.clone();
            assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{code} {path}: {head}");
            for header in [
                "content-type: text/event-stream\r\n",
                "cache-control: no-cache, no-transform\r\n",
                "access-control-allow-origin: http://page.example.com\r\n",
            ] {
                assert!(head.contains(header), "{code} {path}: {head}");
            }
            assert_eq!(response.body().await, "retry: 3000\n\n", "{code} {path}");
        }
        // Everybody else is refused.
        let lines = format!("accept: application/x-ndjson\r\n{last}");
        for (path, more) in [
            (EVENTS, sse),
            ("/agui/info", last),
            (EVENTS, &*lines),
            ("/agui/agent/agent/threads/t/other", &*format!("{sse}{last}")),
        ] {
            let mut response = get(path, more).await;
            if path.ends_with("other") && !code.contains("connections") {
                assert!(response.head.starts_with("HTTP/1.1 404 "), "{}", response.head);
                continue;
            }
            let (told, body) = refused(&mut response).await;
            assert_eq!(told, format!("HTTP/1.1 {status}"), "{path} {more}");
            assert!(body.starts_with(&format!("{{\"error\":\"{code}\"")), "{path}: {body}");
        }
    }
}

#[tokio::test]
async fn event_source_survives_a_network_with_too_many_connections() {
    let connections_per_peer = NonZeroUsize::new(1);
    let limits = Limits { connections_per_peer, ..Limits::default() };
    let front = Front::with(Settings { limits, cors: Cors::Any, ..Settings::default() }).await;
    let mut kept = front.send("GET /healthz", "", "").await;
    assert_eq!(kept.body().await, "ok\n");
    let page = "origin: http://page.example.com\r\naccept: text/event-stream\r\n";
    for (more, status) in [("last-event-id: x\r\n", "200"), ("", "429")] {
        let headers = format!("{page}{more}");
        let response = front.send("GET /agui/agent/agent/threads/t/events", &headers, "").await;
        let head = &response.head;
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
        assert!(head.contains("access-control-allow-origin: *\r\n"), "{head}");
        assert!(head.contains("connection: close\r\n"), "{head}");
    }
    front.upstream.is_untouched().await;
}

// === caches ===

#[tokio::test]
async fn caches_keep_nothing_that_depends_on_the_caller() {
    let front = Front::guarded(key_of("web")).await;
    let thread = format!("/agui/threads/{THREAD}");
    for path in [
        "/agui/info".to_owned(),
        "/agui/agent/agent/capabilities".to_owned(),
        "/agui/agent/agent/run?threadId=t".to_owned(),
        "/agui/agent/agent/run?runId=r".to_owned(),
        "/agui/agent/agent/run".to_owned(),
        "/agui/agent/agent/run/ws".to_owned(),
        "/agui/agent/agent/threads/t/events".to_owned(),
        "/acp".to_owned(),
        "/agui/threads".to_owned(),
        format!("{thread}/messages"),
        format!("{thread}/state"),
        format!("{thread}/events"),
        "/nowhere".to_owned(),
    ] {
        for headers in [String::new(), bearer(OTHER_KEY), bearer(KEY)] {
            let line = format!("GET {path}");
            let response = front.answering(front.send(&line, &headers, "")).await;
            let is_uncached = ["no-store", "no-cache"]
                .iter()
                .any(|word| response.head.contains(&format!("cache-control: {word}")));
            assert!(is_uncached, "{path}: {}", response.head);
        }
    }
}
