//! Who may call, what counts against a caller, and which of its headers go up with what it asks.
//!
//! ```text
//!   a request -> connection -> host -> origin -> credentials -> rate -> its route
//!                400           400     403       401            429
//!                              403               400, 429, 503
//! ```
//!
//! Credentials are looked at before what has failed is counted: who shows the right ones gets in,
//! whatever others have tried from behind the same proxy.

mod accepted;
mod identity;
mod jwks;
mod jwt;
mod keys;

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::{Arc, OnceLock};

use aws_lc_rs::hmac;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{AUTHORIZATION, HOST};
use http::{HeaderMap, HeaderName, StatusCode, Version};

pub use jwks::{MAX_KEYS as MAX_KEY_SET_KEYS, NotAKeySet};
pub use jwt::{
    DEFAULT_SKEW, FETCH_PAUSE, FRESH, Jwt, JwtError, JwtSettings, KeysFrom, MAX_AGE, MAX_SKEW,
};
pub use keys::{Keys, KeysError, MAX_KEY_CHARS, MAX_KEYS, MIN_KEY_CHARS};

pub(super) use identity::Identity;

use super::Gateway;
use super::connections::Peer;
use super::cors::{self, Cors};
use super::deeds;
use super::foreign::RefusedPages;
use super::host::{self, HostName};
use super::isolation::Proof;
use super::rates::{Callers, Exceeded, Rates, RequestRate, SlotId, StreamSlot};
use super::reject::Reject;
use super::websocket::Turn;
use crate::audit::MAX_NAME_BYTES;
use crate::upstream::Caller;
use accepted::Accepted;
use identity::{Fingerprint, fingerprint_key, network};
use jwt::TokenError;

/// How often credentials may fail from one network before it is told to wait: a person who mends
/// a configuration takes a few tries, and nobody guesses a key at this pace.
pub const FAILURES: RequestRate = RequestRate {
    per_second: NonZeroU32::MIN,
    burst: match NonZeroU32::new(20) {
        Some(burst) => burst,
        None => NonZeroU32::MIN,
    },
};

/// Who may call.
#[derive(Clone, Debug, Default)]
pub enum Auth {
    /// Whoever can connect. A caller is the address that it comes from.
    #[default]
    None,
    /// Who shows one of these keys. A caller is the name of its key, which does not go up.
    Bearer(Keys),
    /// Who shows a token of an issuer that is believed. A caller is the token's subject.
    Jwt(Jwt),
    /// Who shows credentials, which LangGraph judges. A caller is its credentials.
    Upstream(Judged),
}

/// How callers are let in whom LangGraph judges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    /// The header by which LangGraph authenticates. `None` where the operator has not named it.
    pub credential: Option<HeaderName>,
    /// Whether anybody is let in before LangGraph is known to judge.
    pub trust: Trust,
}

/// Whether it must be known that LangGraph judges credentials before anybody is let in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// No: the gateway listens on a loopback address, or its operator has said `--insecure`.
    #[default]
    Given,
    /// Yes: LangGraph has to refuse invented credentials first.
    Proven,
}

/// What a request meets before its route.
#[derive(Clone, Debug)]
pub(super) struct Admission {
    pub(super) auth: Auth,
    pub(super) cors: Cors,
    pub(super) hosts: Vec<HostName>,
    pub(super) rates: Rates,
    pub(super) memory: Memory,
    /// `None` where nothing has to be proven.
    pub(super) proof: Option<Proof>,
}

/// What is remembered of callers, whatever the settings become.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    callers: Callers,
    /// Whose credentials have failed, by network.
    failed: Callers,
    /// What LangGraph has accepted, where it judges.
    accepted: Accepted,
    digest: hmac::Key,
    /// Pages that were refused: whoever opens a page can cause a line about it.
    refusals: RefusedPages,
}

/// What one caller may still have of streams.
#[derive(Clone, Debug)]
pub(super) struct Streams {
    identity: Identity,
    rates: Rates,
    callers: Callers,
    /// The place that was taken.
    taken: Arc<OnceLock<SlotId>>,
    /// The place of the socket that the request came on.
    of_socket: Option<StreamSlot>,
}

/// On a response that LangGraph was not asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unasked;

/// Who calls, as far as it is known before LangGraph is asked.
#[derive(Clone, Debug)]
struct Known {
    /// Whom the request counts against.
    identity: Identity,
    /// The credentials that LangGraph is going to judge.
    credentials: Option<Fingerprint>,
    /// What the operator's log calls it. It is no secret, and nothing of a token's.
    name: Option<Arc<str>>,
    /// The subject of its token, for the audit log alone.
    subject: Option<Arc<str>>,
}

/// Why credentials do not open the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unproven {
    /// There are none.
    Missing,
    /// They are not good.
    Wrong,
    /// They were good.
    Expired,
    /// Nobody can tell now.
    Unknown,
}

/// Lets a request in, as its caller; or tells why not.
pub(super) async fn admit(
    State(gateway): State<Arc<Gateway>>,
    mut request: Request,
    next: Next,
) -> Response {
    let Gateway { admission, forward, .. } = &*gateway;
    let peer = request.extensions().get::<Peer>().map(|Peer(peer)| peer.ip());
    let consumed = match admission.auth {
        Auth::Bearer(_) => &[AUTHORIZATION][..],
        Auth::None | Auth::Jwt(_) | Auth::Upstream(_) => &[],
    };
    let (head, body) = request.into_parts();
    let caller = forward.caller(&head.headers, consumed);
    let admitted = async {
        if let Some(name) = forward.dropped_by_connection(&head.headers) {
            return Err(Reject::invalid(format!(
                "`connection` names the header {name}, which every hop would have to drop; send \
                 `connection` without it"
            )));
        }
        let host = host(&head)?;
        admission.welcome(host, &head.headers)?;
        if let Some(name) = forward.repeated(&head.headers) {
            return Err(Reject::invalid(format!("the header {name} is there more than once")));
        }
        let known = admission.identify(peer, &head.headers, &caller).await?;
        deeds::note(|deed| {
            deed.caller.clone_from(&known.name);
            deed.subject = known.subject;
        });
        let of_socket = head.extensions.get::<Turn>().map(|turn| turn.slot.clone());
        let streams = admission.streams(known.identity, of_socket)?;
        Ok((streams, known.credentials, known.name))
    };
    let (streams, credentials, name) = match admitted.await {
        Ok(admitted) => admitted,
        Err(reject) => return reject.into_response(),
    };
    request = Request::from_parts(head, body);
    request.extensions_mut().insert(caller.named(name));
    request.extensions_mut().insert(streams.clone());
    let response = next.run(request).await;
    let status = response.status();
    if let Some(credentials) = credentials {
        if status == StatusCode::UNAUTHORIZED {
            admission.memory.accepted.remove(&credentials);
        } else if status.is_success() && response.extensions().get::<Unasked>().is_none() {
            admission.memory.accepted.insert(credentials);
            streams.transfer(&Identity::Fingerprint(credentials));
        }
    }
    if status != StatusCode::UNAUTHORIZED {
        return response;
    }
    // LangGraph's own refusal counts as ours would.
    admission.failed(peer).map_or_else(IntoResponse::into_response, |()| response)
}

/// The host that a request is for: `NAME` or `NAME:PORT`. HTTP/1.0 need not name one.
pub(super) fn host(head: &http::request::Parts) -> Result<Option<&str>, Reject> {
    let mut named = head.headers.get_all(HOST).iter();
    let (first, is_only) = (named.next(), named.next().is_none());
    let header = first.map(|host| host.to_str().map_err(|_| ())).transpose();
    match (header, head.uri.authority()) {
        (Ok(None), None) if head.version == Version::HTTP_10 => Ok(None),
        // RFC 9112: a target that names a host overrides the header.
        (Ok(Some(_)), Some(authority)) if is_only => Ok(Some(authority.as_str())),
        (Ok(Some(host)), None) if is_only => Ok(Some(host)),
        _ => Err(Reject::invalid("a request has one `host` header")),
    }
}

// === impl Admission ===

impl Admission {
    /// Refuses what a web page has its visitor's browser ask.
    fn welcome(&self, host: Option<&str>, headers: &HeaderMap) -> Result<(), Reject> {
        let is_open = matches!(self.auth, Auth::None);
        if is_open && host.is_some_and(|host| !host::is_safe(host, &self.hosts)) {
            return Err(self.refusals().of_host());
        }
        if cors::is_foreign(&self.cors, headers, host) {
            return Err(self.refusals().of_page(&self.cors, headers));
        }
        Ok(())
    }

    /// What was logged of pages that were refused.
    pub(super) fn refusals(&self) -> &RefusedPages {
        &self.memory.refusals
    }

    /// Who calls, by what proves it.
    async fn identify(
        &self,
        peer: Option<IpAddr>,
        headers: &HeaderMap,
        caller: &Caller,
    ) -> Result<Known, Reject> {
        let digest = &self.memory.digest;
        let proven = match &self.auth {
            Auth::None => Ok((Identity::of_peer(peer), None, None)),
            Auth::Bearer(keys) => bearer(headers).and_then(|key| {
                let owner = keys.owner(key).ok_or(Unproven::Wrong)?;
                Ok((Identity::Key(Arc::clone(owner)), Some(Arc::clone(owner)), None))
            }),
            Auth::Jwt(jwt) => match bearer(headers) {
                Ok(token) => match jwt.verify(token).await {
                    Ok(claims) => {
                        let sub = claims.sub.get(..claims.sub.floor_char_boundary(MAX_NAME_BYTES));
                        let sub = sub.map(Arc::from);
                        let subject = Fingerprint::of(digest, [claims.iss, claims.sub]);
                        let name = Arc::from(subject.word("subject"));
                        Ok((Identity::Fingerprint(subject), Some(name), sub))
                    }
                    Err(error) => Err(error.into()),
                },
                Err(unproven) => Err(unproven),
            },
            Auth::Upstream(_) if !caller.is_personal() => Err(Unproven::Missing),
            Auth::Upstream(judged) => {
                if let Some(proof) = &self.proof {
                    proof.holds().await?;
                }
                return Ok(self.judged_by_langgraph(judged, peer, caller));
            }
        };
        let proven = proven.map(|(identity, name, subject)| Known {
            identity,
            credentials: None,
            name,
            subject,
        });
        proven.map_err(|unproven| {
            let reject = unproven.told(&self.auth);
            match unproven {
                Unproven::Wrong => self.failed(peer).err().unwrap_or(reject),
                Unproven::Missing | Unproven::Expired | Unproven::Unknown => reject,
            }
        })
    }

    /// Who calls where LangGraph judges: credentials that it has accepted, or else their address.
    ///
    /// Anybody can invent credentials, and add headers to good ones. So nothing counts as a caller
    /// of its own but the one header by which LangGraph authenticates, once it has.
    fn judged_by_langgraph(&self, judged: &Judged, peer: Option<IpAddr>, caller: &Caller) -> Known {
        let mut shown = caller.identifying_headers();
        let shown = match &judged.credential {
            Some(credential) => shown.find(|(name, _)| *name == credential),
            // With several nobody here knows which of them LangGraph goes by.
            None => shown.next().filter(|_| shown.next().is_none()),
        };
        let credentials = shown
            .map(|(name, value)| Fingerprint::of_credentials(&self.memory.digest, name, value));
        let accepted = credentials.filter(|shown| self.memory.accepted.contains(shown));
        let identity = accepted.map_or_else(|| Identity::of_peer(peer), Identity::Fingerprint);
        let name = credentials.map(|shown| Arc::from(shown.word("credentials")));
        Known { identity, credentials, name, subject: None }
    }

    /// Counts credentials that were not good.
    fn failed(&self, peer: Option<IpAddr>) -> Result<(), Reject> {
        let counted = self.memory.failed.admit(&Identity::of_peer(peer), FAILURES);
        counted.map_err(|exceeded| match exceeded {
            Exceeded::Requests { wait } => {
                let message = "too many credentials from your network were not good; wait, then \
                               send others";
                Reject::too_many("too_many_failures", message).after(wait)
            }
            Exceeded::Streams { .. } => exceeded.into(),
        })
    }

    /// Counts a request of a caller, who may then have streams.
    fn streams(
        &self,
        identity: Identity,
        of_socket: Option<StreamSlot>,
    ) -> Result<Streams, Reject> {
        let (rates, callers) = (self.rates, self.memory.callers.clone());
        if let Some(rate) = rates.requests {
            callers.admit(&identity, rate)?;
        }
        Ok(Streams { identity, rates, callers, taken: Arc::default(), of_socket })
    }
}

/// The token of an `Authorization: Bearer TOKEN`.
fn bearer(headers: &HeaderMap) -> Result<&str, Unproven> {
    let header = headers.get(AUTHORIZATION).ok_or(Unproven::Missing)?;
    let text = header.to_str().map_err(|_| Unproven::Wrong)?;
    let (scheme, token) = text.split_once(' ').ok_or(Unproven::Wrong)?;
    let is_bearer = scheme.eq_ignore_ascii_case("bearer");
    if is_bearer { Ok(token.trim_matches(' ')) } else { Err(Unproven::Wrong) }
}

// === impl Memory ===

impl Memory {
    pub(super) fn new() -> Self {
        let (callers, failed, accepted) = Default::default();
        Self {
            callers,
            failed,
            accepted,
            digest: fingerprint_key(),
            refusals: RefusedPages::default(),
        }
    }
}

// === impl Streams ===

impl Streams {
    /// Takes a place for one more stream, to be held until it ends. A turn on a socket streams in
    /// the socket's.
    pub(super) fn slot(&self) -> Result<StreamSlot, Reject> {
        let slot = match &self.of_socket {
            Some(slot) => slot.clone(),
            None => self.callers.stream(&self.identity, self.rates.streams)?,
        };
        // A request has one stream at most.
        let _ = self.taken.set(slot.id());
        Ok(slot)
    }

    /// Counts the request and its stream against this caller, whom LangGraph has just accepted.
    fn transfer(&self, accepted: &Identity) {
        if self.identity != *accepted {
            let slot = self.taken.get().copied();
            self.callers.transfer(&self.identity, accepted, self.rates.requests, slot);
        }
    }
}

// === impl Auth ===

impl Auth {
    /// Whether callers bring credentials that are LangGraph's to judge.
    pub fn is_for_langgraph(&self) -> bool {
        matches!(self, Self::Jwt(_) | Self::Upstream(_))
    }

    /// Goes on with what was learnt before a reload.
    #[must_use]
    pub(super) fn succeeding(self, old: &Self) -> Self {
        match (self, old) {
            (Self::Jwt(jwt), Self::Jwt(old)) => Self::Jwt(jwt.succeeding(old)),
            (auth, _) => auth,
        }
    }
}

// === impl Unproven ===

impl From<TokenError> for Unproven {
    fn from(error: TokenError) -> Self {
        match error {
            TokenError::Expired => Self::Expired,
            TokenError::Invalid => Self::Wrong,
            TokenError::NoKeys => Self::Unknown,
        }
    }
}

impl Unproven {
    /// As a client is told, who needs no help in making credentials up.
    fn told(self, auth: &Auth) -> Reject {
        let unauthorized = |code, message| Reject::new(StatusCode::UNAUTHORIZED, code, message);
        match (self, auth) {
            (Self::Missing, Auth::Upstream(_)) => unauthorized(
                "unauthenticated",
                "the gateway wants your credentials for LangGraph; send them in `authorization` \
                 or `x-api-key`",
            ),
            (Self::Missing, Auth::Jwt(_)) => unauthorized(
                "unauthenticated",
                "the gateway wants a token; send it as `authorization: Bearer TOKEN`",
            ),
            (Self::Missing, Auth::None | Auth::Bearer(_)) => unauthorized(
                "unauthenticated",
                "the gateway wants a key; send it as `authorization: Bearer KEY`",
            ),
            (Self::Expired, _) => {
                unauthorized("token_expired", "the token has expired; send a new one")
            }
            (Self::Wrong, Auth::Jwt(_)) => {
                unauthorized("invalid_token", "the token is not valid here; send another")
            }
            (Self::Wrong, _) => {
                unauthorized("invalid_token", "the key is none of the gateway's; send another")
            }
            (Self::Unknown, _) => Reject::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "auth_unavailable",
                "the keys of the tokens' issuer cannot be had now; try again",
            ),
        }
    }
}

// === impl Identity ===

impl Identity {
    /// The network that an address is of.
    pub(super) fn of_peer(peer: Option<IpAddr>) -> Self {
        Self::Peer(network(peer.unwrap_or(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED))))
    }
}
