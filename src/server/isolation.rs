//! Whether LangGraph tells callers apart, where the gateway leaves that to it.
//!
//! A LangGraph server without `auth` in its langgraph.json ignores credentials: whoever shows any
//! sees every thread. Nothing in its answers to good credentials tells it from one that judges
//! them, so it is sent some that nobody has.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::join_all;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use tokio::sync::Mutex;
use tokio::time::Instant;
use uuid::Uuid;

use super::reject::Reject;
use super::{Auth, Forward, Settings};
use crate::agents::{Agents, Upstream};
use crate::metrics::Metrics;
use crate::upstream::{Caller, Client, Error, Identity, is_trace};

/// How long all probes of an upstream may take.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(4);

/// The pause after probes that have not shown that an upstream judges, while requests wait for that.
pub const PROBE_PAUSE: Duration = Duration::from_secs(5);

/// The pause before an upstream that could not be probed is probed again, where nobody waits.
const AWAY_PAUSE: Duration = Duration::from_secs(30);

/// A JSON Web Token up to its signature: `{"alg":"HS256","typ":"JWT"}`,
/// `{"sub":"threadway-probe","exp":4102444800}`. A server that reads tokens without checking their
/// signatures takes it.
const FORGED_TOKEN: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.\
                            eyJzdWIiOiJ0aHJlYWR3YXktcHJvYmUiLCJleHAiOjQxMDI0NDQ4MDB9";

/// How many characters the signature of such a token has.
const SIGNATURE_CHARS: usize = 43;

/// What an upstream does with credentials that nobody has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It refuses them.
    Refuses,
    /// It accepts them, so that callers are not told apart.
    Accepts {
        /// The headers that held them.
        headers: Vec<HeaderName>,
    },
}

/// Credentials that nobody has, as one request shows them.
#[derive(Clone, Debug)]
struct Invented(HeaderMap);

/// Whether every upstream is known to refuse invented credentials. The first request probes the
/// upstreams, and all later ones use the result.
#[derive(Clone, Debug)]
pub(super) struct Proof {
    agents: Agents,
    auth: Auth,
    forward: Forward,
    stake: Stake,
    is_proven: Arc<OnceLock<()>>,
    /// When it was tried last. Held while the upstreams are probed, so that they are probed once.
    tried: Arc<Mutex<Option<Instant>>>,
}

/// What waits until the upstreams are known to judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stake {
    /// Every request.
    Entry,
    /// The lists of threads.
    Threads,
}

/// Probes an upstream; `None` where the gateway judges callers by itself, or where the operator
/// has it that the upstream is not sent who they are.
///
/// The error says why the upstream's judgement is not known.
pub async fn judge(
    client: &Client,
    auth: &Auth,
    forward: &Forward,
) -> Option<Result<Judgement, Error>> {
    let invented = invented(auth, forward);
    if invented.is_empty() || client.identity() == Identity::Withheld {
        return None;
    }
    // An operator who watches for refusals means those of callers.
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

/// Probes each upstream until its judgement is known, and logs a warning for each that accepts
/// what nobody has.
pub async fn warn(agents: Agents, settings: Settings) {
    let Settings { auth, forward, .. } = settings;
    let mut unknown = agents.upstreams().to_vec();
    while !unknown.is_empty() {
        let mut away = Vec::new();
        for upstream in unknown {
            match judge(&upstream.client, &auth, &forward).await {
                None | Some(Ok(Judgement::Refuses)) => {}
                Some(Ok(accepts)) => {
                    tracing::warn!(
                        upstream = upstream.name,
                        "callers are not told apart: {accepts}"
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
            tokio::time::sleep(AWAY_PAUSE).await;
        }
    }
}

/// What to show an upstream: what callers could show it who have no credentials for it.
fn invented(auth: &Auth, forward: &Forward) -> Vec<Invented> {
    let names = || forward.names().iter().filter(|name| !is_trace(name));
    let mut probes = match auth {
        Auth::None | Auth::Bearer(_) => return Vec::new(),
        // A caller shows a token of the issuer's whatever else it shows.
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

    /// A token that only its signature could make good.
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

// === impl Proof ===

impl Proof {
    pub(super) fn new(agents: Agents, auth: Auth, forward: Forward, stake: Stake) -> Self {
        let (is_proven, tried) = Default::default();
        Self { agents, auth, forward, stake, is_proven, tried }
    }

    /// Whether every upstream is known to judge. Probes them if that was not tried lately.
    pub(super) async fn is_held(&self) -> bool {
        if self.is_proven.get().is_some() {
            return true;
        }
        let mut tried = self.tried.lock().await;
        if self.is_proven.get().is_some() {
            return true;
        }
        if tried.is_some_and(|tried| tried.elapsed() < PROBE_PAUSE) {
            return false;
        }
        let is_proven = self.prove().await;
        *tried = Some(Instant::now());
        if is_proven {
            // Nobody else sets it while this is held.
            let _ = self.is_proven.set(());
        }
        is_proven
    }

    /// Refuses until every upstream is known to judge.
    pub(super) async fn holds(&self) -> Result<(), Reject> {
        if self.is_held().await {
            return Ok(());
        }
        let message = "the gateway lets nobody in before LangGraph has refused invented \
                       credentials; try again, and have its operator look at its log";
        Err(Reject::new(StatusCode::SERVICE_UNAVAILABLE, "auth_unproven", message))
    }

    async fn prove(&self) -> bool {
        // All at once: a caller waits for this, and one that hangs takes as long as is allowed.
        let probes = self.agents.upstreams().iter().map(|Upstream { name, client }| async move {
            (name, judge(client, &self.auth, &self.forward).await)
        });
        let mut is_proven = true;
        for (name, judged) in join_all(probes).await {
            match judged {
                None | Some(Ok(Judgement::Refuses)) => continue,
                Some(Ok(accepts)) => match self.stake {
                    Stake::Entry => tracing::error!(
                        upstream = name,
                        "nobody is let in: {accepts}; or use --insecure"
                    ),
                    Stake::Threads => tracing::warn!(
                        upstream = name,
                        "no threads are listed: {accepts}; or set `thread_routes`"
                    ),
                },
                Some(Err(error)) => {
                    let waits = match self.stake {
                        Stake::Entry => "nobody is let in",
                        Stake::Threads => "no threads are listed",
                    };
                    tracing::warn!(
                        upstream = name,
                        %error,
                        "{waits}: whether the LangGraph server refuses invented credentials is \
                         not known"
                    );
                }
            }
            is_proven = false;
        }
        is_proven
    }
}
