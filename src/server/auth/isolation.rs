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
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use tokio::sync::Mutex;
use tokio::time::Instant;
use uuid::Uuid;

use super::Auth;
use crate::agents::{Agents, Upstream};
use crate::metrics::Metrics;
use crate::server::Settings;
use crate::server::reject::Reject;
use crate::server::request::forward::Forward;
use crate::upstream::{Caller, Client, Error, Identity, is_trace};

/// How long all probes of an upstream may take together.
const PROBE_TIMEOUT: Duration = Duration::from_secs(4);

/// The pause before probing again after a probe has failed or was accepted, while requests wait for
/// the proof.
pub const PROBE_PAUSE: Duration = Duration::from_secs(5);

/// The pause before probing an unreachable upstream again, where no request waits.
const UNREACHABLE_PAUSE: Duration = Duration::from_secs(30);

/// A JSON Web Token up to its signature: `{"alg":"HS256","typ":"JWT"}`,
/// `{"sub":"threadway-probe","exp":4102444800}`. A server that does not check signatures accepts
/// it.
const FORGED_TOKEN: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.\
                            eyJzdWIiOiJ0aHJlYWR3YXktcHJvYmUiLCJleHAiOjQxMDI0NDQ4MDB9";

/// The length of such a token's signature, in characters.
const SIGNATURE_CHARS: usize = 43;

/// What an upstream does with invented credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It refuses them, so it checks credentials.
    Refuses,
    /// It accepts them, so any caller sees every thread.
    Accepts {
        /// The headers that contained the credentials.
        headers: Vec<HeaderName>,
    },
}

/// Credentials that nobody has, as the headers of one request.
#[derive(Clone, Debug)]
struct Invented(HeaderMap);

/// Whether upstreams are known to refuse invented credentials. The first request that needs this
/// probes them. Once an upstream has refused, it is not probed again.
#[derive(Clone, Debug)]
pub(in crate::server) struct IsolationProof {
    upstreams: Arc<[Unproven]>,
    auth: Auth,
    forward: Forward,
    blocked: Blocked,
}

/// An upstream, and what is known of it.
#[derive(Debug)]
struct Unproven {
    upstream: Upstream,
    is_proven: OnceLock<()>,
    /// When the upstream was probed last. Locked while it is probed, so that requests at the same
    /// time share one probe.
    probed_at: Mutex<Option<Instant>>,
}

/// What is refused until the upstreams are known to check credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Blocked {
    /// Every request.
    Requests,
    /// Requests that list, change or inspect threads.
    ThreadRoutes,
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
    forward: &Forward,
) -> Option<Result<Judgement, Error>> {
    let addresses = client.each_address();
    let judged = addresses.iter().map(|address| judge_address(address, auth, forward));
    // An address that accepts invented credentials comes first, then one that refuses them.
    let rank = |judged: &Result<Judgement, Error>| match judged {
        Ok(Judgement::Accepts { .. }) => 0,
        Ok(Judgement::Refuses) => 1,
        Err(_) => 2,
    };
    join_all(judged).await.into_iter().flatten().min_by_key(rank)
}

async fn judge_address(
    client: &Client,
    auth: &Auth,
    forward: &Forward,
) -> Option<Result<Judgement, Error>> {
    let invented = invented(auth, forward);
    if invented.is_empty() || client.identity() == Identity::Withheld {
        return None;
    }
    // The refusals of a probe must not count as refusals of callers.
    let client = client.clone().with_metrics(&Metrics::default());
    let judged = async {
        for Invented(headers) in invented {
            let names = headers.keys().cloned().collect();
            if client.called_by(&Caller::new(headers)).allows_thread_search().await? {
                return Ok(Judgement::Accepts { headers: names });
            }
        }
        Ok(Judgement::Refuses)
    };
    let judged = tokio::time::timeout(PROBE_TIMEOUT, judged).await;
    Some(judged.unwrap_or(Err(Error::Timeout { waited: PROBE_TIMEOUT })))
}

/// Probes each address of each upstream until the result is known, and logs a warning for each that
/// accepts invented credentials.
pub async fn warn(agents: Agents, settings: Settings) {
    let Settings { auth, forward, .. } = settings;
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
                None | Some(Ok(Judgement::Refuses)) => {}
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
            tokio::time::sleep(UNREACHABLE_PAUSE).await;
        }
    }
}

/// The credentials to probe with: all that a caller could send without having good ones.
fn invented(auth: &Auth, forward: &Forward) -> Vec<Invented> {
    let names = || forward.names().iter().filter(|name| !is_trace(name));
    let mut probes = match auth {
        Auth::None | Auth::Bearer(_) => return Vec::new(),
        // Every request carries a token of the issuer, so other headers alone are not probed.
        Auth::Jwt(_) => vec![Invented::of([&AUTHORIZATION])],
        Auth::Upstream(_) => {
            let each = names().map(|name| Invented::of([name]));
            each.chain([Invented::token()]).collect()
        }
    };
    probes.push(Invented::of(names()));
    probes
}

// === impl Invented ===

impl Invented {
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

// === impl Judgement ===

impl fmt::Display for Judgement {
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
    pub(in crate::server) fn new(
        agents: &Agents,
        auth: Auth,
        forward: Forward,
        blocked: Blocked,
    ) -> Self {
        let unproven = |upstream: &Upstream| Unproven {
            upstream: upstream.clone(),
            is_proven: OnceLock::new(),
            probed_at: Mutex::default(),
        };
        Self {
            upstreams: agents.upstreams().iter().map(unproven).collect(),
            auth,
            forward,
            blocked,
        }
    }

    /// Whether an upstream is known to check credentials. Probes it, but not within
    /// [`PROBE_PAUSE`] of the last probe.
    pub(in crate::server) async fn is_held_by(&self, client: &Client) -> bool {
        let mut upstreams = self.upstreams.iter();
        match upstreams.find(|unproven| unproven.upstream.client.is_of_upstream(client)) {
            Some(unproven) => self.holds(unproven).await,
            None => false,
        }
    }

    /// Refuses until every upstream is known to check credentials.
    pub(super) async fn expect(&self) -> Result<(), Reject> {
        // All at once, since a caller waits, and an upstream that hangs takes its whole timeout.
        let held = join_all(self.upstreams.iter().map(|unproven| self.holds(unproven))).await;
        if held.into_iter().all(|is_held| is_held) {
            return Ok(());
        }
        let message = "the gateway refuses all requests until LangGraph has refused invented \
                       credentials; try again, and have its operator look at its log";
        Err(Reject::new(StatusCode::SERVICE_UNAVAILABLE, "auth_unproven", message))
    }

    async fn holds(&self, unproven: &Unproven) -> bool {
        let Unproven { upstream, is_proven, probed_at } = unproven;
        if is_proven.get().is_some() {
            return true;
        }
        let mut probed_at = probed_at.lock().await;
        if is_proven.get().is_some() {
            return true;
        }
        if probed_at.is_some_and(|at| at.elapsed() < PROBE_PAUSE) {
            return false;
        }
        let has_proven = self.prove(upstream).await;
        *probed_at = Some(Instant::now());
        if has_proven {
            // Nobody else sets it while `probed_at` is locked.
            let _ = is_proven.set(());
        }
        has_proven
    }

    async fn prove(&self, Upstream { name, client }: &Upstream) -> bool {
        match judge(client, &self.auth, &self.forward).await {
            None | Some(Ok(Judgement::Refuses)) => return true,
            Some(Ok(accepts)) => match self.blocked {
                Blocked::Requests => tracing::error!(
                    upstream = name,
                    "all requests are refused: {accepts}; or use --insecure"
                ),
                Blocked::ThreadRoutes => tracing::warn!(
                    upstream = name,
                    "no threads are listed: {accepts}; or set `thread_routes`"
                ),
            },
            Some(Err(error)) => {
                let waits = match self.blocked {
                    Blocked::Requests => "all requests are refused",
                    Blocked::ThreadRoutes => "no threads are listed",
                };
                tracing::warn!(
                    upstream = name,
                    %error,
                    "{waits}: whether the LangGraph server refuses invented credentials is \
                     not known"
                );
            }
        }
        false
    }
}
