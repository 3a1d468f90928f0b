//! Whether LangGraph checks callers' credentials, where the gateway leaves that to LangGraph.
//!
//! A LangGraph server without `auth` in its langgraph.json ignores credentials: any caller sees
//! every thread. Its answers to good credentials do not show that. So the gateway sends it invented
//! credentials, and looks whether it refuses them.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::join_all;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::Auth;
use crate::agents::{Agents, Upstream};
use crate::metrics::Metrics;
use crate::server::reject::Reject;
use crate::server::request::forward::ForwardedHeaders;
use crate::upstream::{Backoff, Caller, Client, Error, Identity, Seed, WeakClient, is_trace};

/// How long all probes of an address may take together.
const PROBE_TIMEOUT: Duration = Duration::from_secs(4);

/// The pause before an address is probed again that has failed or accepted invented credentials.
/// Where no request waits it doubles up to 30 s, and jitter shortens it by up to half.
pub const PROBE_PAUSE: Duration = Duration::from_secs(5);

/// The longest pause before an address is probed again.
const LONGEST_PROBE_PAUSE: Duration = Duration::from_secs(30);

/// A JSON Web Token up to its signature: `{"alg":"HS256","typ":"JWT"}`,
/// `{"sub":"threadway-probe","exp":4102444800}`. A server that does not check signatures accepts
/// it.
const FORGED_TOKEN: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.\
                            eyJzdWIiOiJ0aHJlYWR3YXktcHJvYmUiLCJleHAiOjQxMDI0NDQ4MDB9";

/// The length of such a token's signature, in characters.
const SIGNATURE_CHARS: usize = 43;

/// What an upstream does with invented credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialCheck {
    /// It refuses them, so it checks credentials.
    Refuses,
    /// It accepts them, so any caller sees every thread.
    Accepts {
        /// The headers that contained the credentials.
        headers: Vec<HeaderName>,
    },
}

/// What a probe has found. `None` if the upstream is sent no credentials.
type ProbeResult = Option<Result<CredentialCheck, Error>>;

/// Credentials that nobody has, as the headers of one request.
#[derive(Clone, Debug)]
struct FakeCredentials(HeaderMap);

/// Whether upstreams are known to refuse invented credentials. The first request that needs this
/// probes them. Once an address has refused, it is not probed again.
///
/// An address that has not refused gets no requests with callers' credentials, if another address
/// of its upstream has, or if all requests need the proof ([`Blocked::Requests`]).
#[derive(Clone, Debug)]
pub(in crate::server) struct IsolationProof(Arc<Proofs>);

#[derive(Debug)]
struct Proofs {
    upstreams: Box<[Arc<Candidate>]>,
    auth: Auth,
    forward: ForwardedHeaders,
    blocked: Blocked,
    /// The probes that requests wait for. A client that gives up does not end them.
    probes: TaskTracker,
    /// The task that probes what is left, once one has begun. It needs no request to do so.
    rest: OnceLock<JoinSet<()>>,
}

/// An upstream, and what is known of it.
#[derive(Debug)]
struct Candidate {
    name: String,
    client: WeakClient,
    is_probed: OnceLock<()>,
    /// Set once an address has refused, and none has accepted.
    is_proven: OnceLock<()>,
    /// Locked while the upstream is probed, so that requests at the same time share one probe.
    remaining: Mutex<Remaining>,
}

/// The addresses of an upstream that have not refused yet.
#[derive(Debug)]
struct Remaining {
    addresses: Vec<WeakClient>,
    probed_at: Option<Instant>,
}

/// What is refused until the upstreams are known to check credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Blocked {
    /// Every request.
    Requests,
    /// Requests that list, change or inspect threads.
    ThreadRoutePolicy,
}

/// Probes an upstream at each of its addresses. Returns `None` where the gateway checks credentials
/// itself, or where the upstream is not sent any.
///
/// An address that is away says nothing. All addresses have one configuration, so those that answer
/// speak for it.
///
/// # Errors
/// The request that failed, so that it is not known whether the upstream checks credentials.
pub async fn judge(
    client: &Client,
    auth: &Auth,
    forward: &ForwardedHeaders,
) -> Option<Result<CredentialCheck, Error>> {
    let addresses = client.each_address();
    let judged = addresses.iter().map(|address| judge_address(address, auth, forward));
    // An address that accepts invented credentials comes first, then one that refuses them.
    let rank = |judged: &Result<CredentialCheck, Error>| match judged {
        Ok(CredentialCheck::Accepts { .. }) => 0,
        Ok(CredentialCheck::Refuses) => 1,
        Err(_) => 2,
    };
    join_all(judged).await.into_iter().flatten().min_by_key(rank)
}

async fn judge_address(client: &Client, auth: &Auth, forward: &ForwardedHeaders) -> ProbeResult {
    let invented = invented(auth, forward);
    if invented.is_empty() || client.identity() == Identity::Withheld {
        return None;
    }
    // The refusals of a probe must not count as refusals of callers.
    let client = client.clone().with_metrics(&Metrics::default());
    let judged = async {
        for FakeCredentials(headers) in invented {
            let names = headers.keys().cloned().collect();
            if client.called_by(&Caller::new(headers)).allows_thread_search().await? {
                return Ok(CredentialCheck::Accepts { headers: names });
            }
        }
        Ok(CredentialCheck::Refuses)
    };
    let judged = tokio::time::timeout(PROBE_TIMEOUT, judged).await;
    Some(judged.unwrap_or(Err(Error::Timeout { waited: PROBE_TIMEOUT })))
}

fn refuses(found: &ProbeResult) -> bool {
    matches!(found, None | Some(Ok(CredentialCheck::Refuses)))
}

/// Probes each address of each upstream until the result is known, and logs a warning for each that
/// accepts invented credentials.
pub async fn warn(agents: Agents, auth: Auth, forward: ForwardedHeaders) {
    let at = |upstream: &Upstream| {
        let name = upstream.name.clone();
        let addresses = upstream.client.each_address().into_iter();
        addresses.map(move |client| Upstream { name: name.clone(), client })
    };
    let mut unknown: Vec<_> = agents.upstreams().iter().flat_map(at).collect();
    while !unknown.is_empty() {
        let mut away = Vec::new();
        for upstream in unknown {
            match judge(&upstream.client, &auth, &forward).await {
                None | Some(Ok(CredentialCheck::Refuses)) => {}
                Some(Ok(accepts)) => {
                    tracing::warn!(
                        upstream = upstream.name,
                        url = %upstream.client.base(),
                        "callers are not distinguished: {accepts}"
                    );
                }
                Some(Err(error)) => {
                    tracing::debug!(upstream = upstream.name, %error, "an upstream was not probed");
                    away.push(upstream);
                }
            }
        }
        unknown = away;
        if !unknown.is_empty() {
            tokio::time::sleep(LONGEST_PROBE_PAUSE).await;
        }
    }
}

/// The credentials to probe with: all that a caller could send without having good ones.
fn invented(auth: &Auth, forward: &ForwardedHeaders) -> Vec<FakeCredentials> {
    let names = || forward.names().iter().filter(|name| !is_trace(name));
    let mut probes = match auth {
        Auth::None | Auth::Bearer(_) => return Vec::new(),
        // Every request carries a token of the issuer, so other headers alone are not probed.
        Auth::Jwt(_) => vec![FakeCredentials::of([&AUTHORIZATION])],
        Auth::Upstream(_) => {
            let each = names().map(|name| FakeCredentials::of([name]));
            each.chain([FakeCredentials::token()]).collect()
        }
    };
    probes.push(FakeCredentials::of(names()));
    probes
}

// === impl FakeCredentials ===

impl FakeCredentials {
    fn of<'a>(names: impl IntoIterator<Item = &'a HeaderName>) -> Self {
        let invented = |name: &HeaderName| {
            let secret = format!("threadway-probe-{}", Uuid::new_v4().simple());
            let value = if name == AUTHORIZATION { format!("Bearer {secret}") } else { secret };
            Some((name.clone(), HeaderValue::try_from(value).ok()?))
        };
        Self(names.into_iter().filter_map(invented).collect())
    }

    /// A token whose only fault is its signature.
    fn token() -> Self {
        let [one, other] = [Uuid::new_v4(), Uuid::new_v4()].map(|part| part.simple().to_string());
        let signature: String = one.chars().chain(other.chars()).take(SIGNATURE_CHARS).collect();
        let value = HeaderValue::try_from(format!("Bearer {FORGED_TOKEN}.{signature}"));
        Self(value.into_iter().map(|value| (AUTHORIZATION, value)).collect())
    }
}

// === impl CredentialCheck ===

impl fmt::Display for CredentialCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refuses => f.write_str("the LangGraph server refuses invented credentials"),
            Self::Accepts { headers } => {
                let names: Vec<_> = headers.iter().map(HeaderName::as_str).collect();
                write!(
                    f,
                    "the LangGraph server accepts invented credentials in {}, so every caller sees \
                     every thread; give it an `auth` in its langgraph.json that refuses them",
                    names.join(" and ")
                )
            }
        }
    }
}

// === impl IsolationProof ===

impl IsolationProof {
    /// `tasks` runs the probes that requests wait for.
    pub(in crate::server) fn new(
        agents: &Agents,
        auth: Auth,
        forward: ForwardedHeaders,
        blocked: Blocked,
        tasks: TaskTracker,
    ) -> Self {
        if blocked == Blocked::Requests {
            for upstream in agents.upstreams() {
                upstream.client.entrust(false);
            }
        }
        let candidate = |upstream| Arc::new(Candidate::new(upstream));
        let upstreams = agents.upstreams().iter().map(candidate).collect();
        let rest = OnceLock::new();
        Self(Arc::new(Proofs { upstreams, auth, forward, blocked, probes: tasks, rest }))
    }

    /// Whether an upstream is known to check credentials. Probes it, but not within
    /// [`PROBE_PAUSE`] of the last probe.
    pub(in crate::server) async fn is_held_by(&self, client: &Client) -> bool {
        let mut candidates = self.0.upstreams.iter();
        match candidates.find(|candidate| candidate.client.is_of_upstream(client)) {
            Some(candidate) => self.holds(candidate).await,
            None => false,
        }
    }

    /// Refuses until one upstream is known to check credentials, if all requests need the proof.
    /// The others get callers' credentials once they are known to, too.
    pub(super) async fn expect(&self) -> Result<(), Reject> {
        let upstreams = &self.0.upstreams;
        let are_all_proven = upstreams.iter().all(|candidate| candidate.is_proven());
        if self.0.blocked == Blocked::ThreadRoutePolicy || are_all_proven {
            return Ok(());
        }
        let is_one_proven = upstreams.iter().any(|candidate| candidate.is_proven());
        if is_one_proven {
            self.probe_rest();
        }
        // All at once, since a caller waits, and an upstream that hangs takes its whole timeout.
        let held = join_all(upstreams.iter().map(async |candidate| {
            // Whoever calls one upstream does not wait for another that is away.
            if is_one_proven && candidate.is_probed.get().is_some() {
                return candidate.is_proven();
            }
            self.holds(candidate).await
        }));
        if held.await.contains(&true) { Ok(()) } else { Err(Reject::unproven()) }
    }

    async fn holds(&self, candidate: &Arc<Candidate>) -> bool {
        if !candidate.is_proven() {
            let (proof, probed) = (self.clone(), Arc::clone(candidate));
            let probe = self.0.probes.spawn(async move {
                let mut remaining = probed.remaining.lock().await;
                if probed.is_proven() || !remaining.is_due() {
                    return;
                }
                proof.0.probe(&probed, &mut remaining).await;
                if probed.is_proven() && !remaining.addresses.is_empty() {
                    proof.probe_rest();
                }
            });
            // A probe that panics proves nothing.
            let _ = probe.await;
        }
        candidate.is_proven()
    }

    /// Probes what is left, until each address has refused, or nothing uses its upstream any more.
    fn probe_rest(&self) {
        self.0.rest.get_or_init(|| {
            let mut tasks = JoinSet::new();
            tasks.spawn(Arc::clone(&self.0).complete());
            tasks
        });
    }
}

// === impl Proofs ===

impl Proofs {
    /// Keeps these proofs after a reload too: what began before it may still need an address that
    /// is away.
    async fn complete(self: Arc<Self>) {
        let mut pauses = Backoff::new(PROBE_PAUSE, LONGEST_PROBE_PAUSE, Seed::random());
        loop {
            tokio::time::sleep(pauses.next_pause()).await;
            let left = join_all(self.upstreams.iter().map(async |candidate| {
                let mut remaining = candidate.remaining.lock().await;
                self.probe(candidate, &mut remaining).await;
                remaining.addresses.len()
            }));
            if left.await.into_iter().all(|left| left == 0) {
                return;
            }
        }
    }

    /// Probes the remaining addresses. Cancel safe.
    async fn probe(&self, candidate: &Candidate, remaining: &mut Remaining) {
        let addresses: Vec<_> =
            remaining.addresses.iter().filter_map(WeakClient::upgrade).collect();
        let judged = addresses.iter().map(|at| judge_address(at, &self.auth, &self.forward));
        let found = join_all(judged).await;
        let accepts =
            found.iter().any(|found| matches!(found, Some(Ok(CredentialCheck::Accepts { .. }))));
        // An address that accepts speaks for all, unless the others have refused before.
        let is_proven = candidate.is_proven() || (!accepts && found.iter().any(refuses));
        remaining.addresses.clear();
        for (address, found) in addresses.into_iter().zip(found) {
            let is_trusted = is_proven && refuses(&found);
            if is_proven || self.blocked == Blocked::Requests {
                address.entrust(is_trusted);
            }
            self.report(&candidate.name, &address, &found, is_proven);
            if !is_trusted {
                remaining.addresses.push(address.downgrade());
            }
        }
        remaining.probed_at = Some(Instant::now());
        // Nobody else sets them while `remaining` is locked.
        let _ = candidate.is_probed.set(());
        if is_proven {
            let _ = candidate.is_proven.set(());
        }
    }

    /// Logs what an address does with invented credentials. `is_proven` says whether its upstream is
    /// known to check credentials.
    fn report(&self, upstream: &str, address: &Client, found: &ProbeResult, is_proven: bool) {
        let url = address.base();
        let effect = match self.blocked {
            _ if is_proven => "this address gets no requests of callers",
            Blocked::Requests => "requests of callers are refused",
            Blocked::ThreadRoutePolicy => "no threads are listed",
        };
        match (found, self.blocked) {
            (None | Some(Ok(CredentialCheck::Refuses)), _) => {
                tracing::debug!(upstream, %url, "{}", CredentialCheck::Refuses);
            }
            (Some(Ok(accepts)), Blocked::Requests) => {
                tracing::error!(upstream, %url, "{effect}: {accepts}; or use --insecure");
            }
            (Some(Ok(accepts)), Blocked::ThreadRoutePolicy) => {
                tracing::warn!(upstream, %url, "{effect}: {accepts}; or set `thread_routes`");
            }
            // The log has a line that the address is away.
            (Some(Err(error)), _) if is_proven => {
                tracing::debug!(upstream, %url, %error, "{effect}");
            }
            (Some(Err(error)), _) => tracing::warn!(
                upstream,
                %url,
                %error,
                "{effect}: whether the LangGraph server refuses invented credentials is not known"
            ),
        }
    }
}

// === impl Candidate ===

impl Candidate {
    fn new(Upstream { name, client }: &Upstream) -> Self {
        let addresses = client.each_address().iter().map(Client::downgrade).collect();
        Self {
            name: name.clone(),
            client: client.downgrade(),
            is_probed: OnceLock::new(),
            is_proven: OnceLock::new(),
            remaining: Mutex::new(Remaining { addresses, probed_at: None }),
        }
    }

    fn is_proven(&self) -> bool {
        self.is_proven.get().is_some()
    }
}

// === impl Remaining ===

impl Remaining {
    fn is_due(&self) -> bool {
        self.probed_at.is_none_or(|at| at.elapsed() >= PROBE_PAUSE)
    }
}
