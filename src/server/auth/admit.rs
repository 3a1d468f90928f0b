//! The checks that each request passes before it is handled, and each turn on a socket.
//!
//! ```text
//!   a request -> connection -> host -> origin -> credentials -> rate -> its route
//!                400           400     403       401            429
//!                              403               400, 429, 503
//! ```
//!
//! Credentials are checked before failures are counted: good credentials are admitted, whatever
//! others have sent from behind the same proxy.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::{Arc, OnceLock};

use http::header::AUTHORIZATION;
use http::{HeaderMap, StatusCode};
use ring::hmac;
use tokio_util::sync::CancellationToken;

use super::accepted::AcceptedCredentials;
use super::isolation::IsolationProof;
use super::{Auth, CredentialError, UpstreamAuth};
use crate::audit::MAX_NAME_BYTES;
use crate::metrics::Memory;
use crate::server::browser::cors::{self, Cors};
use crate::server::browser::host::{self, HostName};
use crate::server::browser::refused::PageRefusals;
use crate::server::limits::caller_id::{CallerId, Fingerprint, fingerprint_key};
use crate::server::limits::rates::{
    Callers, Charge, Exceeded, Rates, RequestRate, SlotId, StreamSlot,
};
use crate::server::observe::request_log::RequestRecord;
use crate::server::reject::Reject;
use crate::server::request::forward::ForwardedHeaders;
use crate::server::request::head::RequestHead;
use crate::server::request::thread_name::ThreadNames;
use crate::upstream::{Caller, Until};

/// How often credentials from one network may fail before the network is refused. A person who
/// corrects a configuration needs a few tries, and nobody guesses a key at this rate.
pub const FAILURES: RequestRate = RequestRate {
    per_second: NonZeroU32::MIN,
    burst: match NonZeroU32::new(20) {
        Some(burst) => burst,
        None => NonZeroU32::MIN,
    },
};

/// The checks, and what they need.
#[derive(Clone, Debug)]
pub(in crate::server) struct Admission {
    pub(in crate::server) auth: Auth,
    pub(in crate::server) cors: Cors,
    pub(in crate::server) hosts: Vec<HostName>,
    pub(in crate::server) rates: Rates,
    pub(in crate::server) state: CallerState,
    pub(in crate::server) proof: IsolationProof,
    pub(in crate::server) forward: ForwardedHeaders,
    /// The memory for clients, of which each caller has a share.
    pub(in crate::server) memory: Memory,
    /// Cancelled when a reload sets another `auth.mode`.
    pub(in crate::server) replaced: CancellationToken,
}

/// What is known of callers. A reload keeps it.
#[derive(Clone, Debug)]
pub(in crate::server) struct CallerState {
    callers: Callers,
    /// Counts wrong credentials, by network.
    failed: Callers,
    /// Credentials that LangGraph has accepted, where it checks them.
    accepted: AcceptedCredentials,
    digest: hmac::Key,
    /// Limits log lines about refused pages, since anybody who opens a page can cause one.
    refused_pages: PageRefusals,
}

/// The streams that one caller may have.
#[derive(Clone, Debug)]
pub(in crate::server) struct Streams {
    identity: CallerId,
    rates: Rates,
    callers: Callers,
    /// The slot that this request has taken.
    taken: Arc<OnceLock<SlotId>>,
    /// The slot of the WebSocket that the request came on.
    of_socket: Option<StreamSlot>,
}

/// How a request arrives, for the limits of its caller.
#[derive(Clone, Debug)]
pub(in crate::server) enum Arrival {
    /// By itself.
    Alone,
    /// On a socket, whose place among the streams of its caller it uses.
    OnSocket(StreamSlot, Charge),
}

/// A request that was admitted as its caller's.
#[derive(Clone, Debug)]
pub(in crate::server) struct Admitted {
    pub(in crate::server) caller: Caller,
    pub(in crate::server) streams: Streams,
    /// The caller's names of threads.
    pub(in crate::server) names: ThreadNames,
    /// The credentials that LangGraph is going to check.
    credentials: Option<Fingerprint>,
    peer: Option<IpAddr>,
}

/// A caller, as far as it is known before LangGraph is asked.
#[derive(Clone, Debug)]
struct Identified {
    /// The identity that the request counts against.
    identity: CallerId,
    /// The credentials that LangGraph is going to check.
    credentials: Option<Fingerprint>,
    /// The caller's name in the operator's log. It contains no secret, and nothing of a token.
    name: Option<Arc<str>>,
    /// The subject of the caller's token, for the audit log only.
    subject: Option<Arc<str>>,
    /// The caller's names of threads.
    names: ThreadNames,
    until: Until,
}

/// Whether a status says that a caller was served. A socket is opened with 101.
fn is_success(status: StatusCode) -> bool {
    status.is_success() || status == StatusCode::SWITCHING_PROTOCOLS
}

// === impl Admission ===

impl Admission {
    /// Admits a request as its caller's, or refuses it.
    pub(in crate::server) async fn admit(
        &self,
        head: RequestHead<'_>,
        arrival: Arrival,
        record: &RequestRecord,
    ) -> Result<Admitted, Reject> {
        let RequestHead { headers, peer, .. } = head;
        let consumed = match self.auth {
            Auth::Bearer(_) => &[AUTHORIZATION][..],
            Auth::None | Auth::Jwt(_) | Auth::Upstream(_) => &[],
        };
        let caller = self.forward.caller(headers, consumed);
        if let Some(name) = self.forward.dropped_by_connection(headers) {
            return Err(Reject::invalid(format!(
                "`connection` names the header {name}, which every hop would have to drop; send \
                 `connection` without it"
            )));
        }
        self.refuse_pages(host::named(&head)?, headers)?;
        if let Some(name) = self.forward.repeated(headers) {
            return Err(Reject::invalid(format!(
                "the header {name} is there more than once; send it once"
            )));
        }
        let identified = self.identify(peer, headers, &caller).await?;
        let Identified { identity, credentials, name, subject, names, until } = identified;
        record.note(|facts| {
            facts.caller.clone_from(&name);
            facts.subject = subject;
        });
        let streams = self.streams(identity, arrival)?;
        let caller = caller.named(name).admitted(until);
        // A caller whose credentials are not counted by themselves is known by its owner's
        // fingerprint.
        let holder = if streams.is_stranger(&self.auth) {
            self.memory.caller(&self.owner(&streams, &caller))
        } else {
            self.memory.caller(streams.identity())
        };
        Ok(Admitted { caller: caller.held_by(holder), streams, names, credentials, peer })
    }

    /// Refuses requests that a web page may not have its visitor's browser send.
    fn refuse_pages(&self, host: Option<&str>, headers: &HeaderMap) -> Result<(), Reject> {
        let is_open = matches!(self.auth, Auth::None);
        if is_open && host.is_some_and(|host| !host::is_safe(host, &self.hosts)) {
            return Err(self.refused_pages().refuse_host());
        }
        if cors::is_forbidden(&self.cors, headers, host) {
            return Err(self.refused_pages().refuse_page(&self.cors, headers));
        }
        Ok(())
    }

    pub(in crate::server) fn refused_pages(&self) -> &PageRefusals {
        &self.state.refused_pages
    }

    /// Identifies the caller by its credentials.
    async fn identify(
        &self,
        peer: Option<IpAddr>,
        headers: &HeaderMap,
        caller: &Caller,
    ) -> Result<Identified, Reject> {
        let digest = &self.state.digest;
        let proven = match &self.auth {
            Auth::None => Ok(Identified {
                identity: CallerId::of_peer(peer),
                credentials: None,
                name: None,
                subject: None,
                names: ThreadNames::SHARED,
                until: self.until_replaced(),
            }),
            Auth::Bearer(keys) => bearer(headers).and_then(|key| {
                let (owner, removed) = keys.owner(key).ok_or(CredentialError::Wrong)?;
                Ok(Identified {
                    identity: CallerId::Key(Arc::clone(owner)),
                    credentials: None,
                    name: Some(Arc::clone(owner)),
                    subject: None,
                    names: ThreadNames::of_caller(&["key", owner]),
                    until: Until::new(removed.clone(), None),
                })
            }),
            Auth::Jwt(jwt) => match bearer(headers) {
                Ok(token) => match jwt.verify(token).await {
                    Ok((claims, until)) => {
                        let sub = claims.sub.get(..claims.sub.floor_char_boundary(MAX_NAME_BYTES));
                        let names = ThreadNames::of_caller(&["token", &claims.iss, &claims.sub]);
                        let subject = Fingerprint::of(digest, [&claims.iss, &claims.sub]);
                        Ok(Identified {
                            identity: CallerId::Fingerprint(subject),
                            credentials: None,
                            name: Some(Arc::from(subject.log_name("subject"))),
                            subject: sub.map(Arc::from),
                            names,
                            until,
                        })
                    }
                    Err(error) => Err(error.into()),
                },
                Err(error) => Err(error),
            },
            Auth::Upstream(_) if !caller.is_personal() => Err(CredentialError::Missing),
            Auth::Upstream(upstream_auth) => {
                self.proof.expect().await?;
                return Ok(self.identify_by_credentials(upstream_auth, peer, caller));
            }
        };
        proven.map_err(|error| {
            let reject = error.reject(&self.auth);
            match error {
                CredentialError::Wrong => self.failed(peer).err().unwrap_or(reject),
                CredentialError::Missing | CredentialError::Expired | CredentialError::NoKeys => {
                    reject
                }
            }
        })
    }

    /// Identifies a caller whose credentials LangGraph checks: by its credentials if LangGraph has
    /// accepted them, or else by its network.
    ///
    /// Anybody can invent credentials, and add headers to good ones. So only the one header counts
    /// by which LangGraph authenticates, and only after LangGraph has accepted it.
    fn identify_by_credentials(
        &self,
        upstream_auth: &UpstreamAuth,
        peer: Option<IpAddr>,
        caller: &Caller,
    ) -> Identified {
        let mut shown = caller.identifying_headers();
        let shown = match &upstream_auth.credential {
            Some(credential) => shown.find(|(name, _)| *name == credential),
            // Of several headers, it is not known which one LangGraph reads.
            None => shown.next().filter(|_| shown.next().is_none()),
        };
        let credentials =
            shown.map(|(name, value)| Fingerprint::of_credentials(&self.state.digest, name, value));
        let accepted = credentials.filter(|shown| self.state.accepted.contains(shown));
        let identity = accepted.map_or_else(|| CallerId::of_peer(peer), CallerId::Fingerprint);
        let name = credentials.map(|shown| Arc::from(shown.log_name("credentials")));
        let (names, until) = (ThreadNames::SHARED, self.until_replaced());
        Identified { identity, credentials, name, subject: None, names, until }
    }

    /// Until when a caller is admitted whose credentials the gateway does not check.
    fn until_replaced(&self) -> Until {
        Until::new(self.replaced.clone(), None)
    }

    /// Counts wrong credentials. Refuses a network that has sent too many.
    fn failed(&self, peer: Option<IpAddr>) -> Result<(), Reject> {
        let counted = self.state.failed.admit(&CallerId::of_peer(peer), FAILURES);
        counted.map_err(|exceeded| match exceeded {
            Exceeded::Requests { wait } => {
                let message = "your network has sent too many wrong credentials; wait, then send \
                               good ones";
                Reject::too_many("too_many_failures", message).after(wait)
            }
            Exceeded::Streams { .. } => exceeded.into(),
        })
    }

    /// Whom something belongs to that only its caller may use again. Two callers are equal if
    /// neither the gateway nor LangGraph can distinguish them. A token may be renewed: its issuer
    /// and subject count.
    ///
    /// Without `auth` the network does not count: a client may have two addresses.
    pub(in crate::server) fn owner(&self, streams: &Streams, caller: &Caller) -> Fingerprint {
        let (identity, is_renewed) = match (&self.auth, &streams.identity) {
            (Auth::Bearer(_), CallerId::Key(name)) => (name.as_bytes(), false),
            (Auth::Jwt(_), CallerId::Fingerprint(subject)) => (subject.as_ref(), true),
            (Auth::None | Auth::Upstream(_) | Auth::Bearer(_) | Auth::Jwt(_), _) => {
                (&[][..], false)
            }
        };
        let headers = caller.identifying_headers();
        let headers = headers.filter(|(name, _)| !(is_renewed && *name == AUTHORIZATION));
        let headers = headers.flat_map(|(name, value)| [name.as_str().as_bytes(), value]);
        Fingerprint::of(&self.state.digest, [identity].into_iter().chain(headers))
    }

    /// Counts a request of a caller.
    fn streams(&self, identity: CallerId, arrival: Arrival) -> Result<Streams, Reject> {
        let (of_socket, charge) = match arrival {
            Arrival::Alone => (None, Charge::Request),
            Arrival::OnSocket(slot, charge) => (Some(slot), charge),
        };
        let (rates, callers) = (self.rates, self.state.callers.clone());
        if let (Some(rate), Charge::Request) = (rates.requests, charge) {
            callers.admit(&identity, rate)?;
        }
        Ok(Streams { identity, rates, callers, taken: Arc::default(), of_socket })
    }
}

// === impl Admitted ===

impl Admitted {
    /// Keeps the books once the request has this status. `was_asked` if LangGraph has seen the
    /// caller's credentials. The error replaces the response to a network that has sent too many
    /// wrong ones.
    pub(in crate::server) fn settled(
        &self,
        admission: &Admission,
        status: StatusCode,
        was_asked: bool,
    ) -> Result<(), Reject> {
        if let Some(credentials) = self.credentials {
            if status == StatusCode::UNAUTHORIZED {
                admission.state.accepted.remove(&credentials);
            } else if is_success(status) && was_asked {
                admission.state.accepted.insert(credentials);
                self.streams.transfer(&CallerId::Fingerprint(credentials));
            }
        }
        // A refusal by LangGraph counts like one by the gateway.
        if status == StatusCode::UNAUTHORIZED { admission.failed(self.peer) } else { Ok(()) }
    }
}

/// The token of an `Authorization: Bearer TOKEN`.
fn bearer(headers: &HeaderMap) -> Result<&str, CredentialError> {
    let header = headers.get(AUTHORIZATION).ok_or(CredentialError::Missing)?;
    let text = header.to_str().map_err(|_| CredentialError::Wrong)?;
    let (scheme, token) = text.split_once(' ').ok_or(CredentialError::Wrong)?;
    let is_bearer = scheme.eq_ignore_ascii_case("bearer");
    if is_bearer { Ok(token.trim_matches(' ')) } else { Err(CredentialError::Wrong) }
}

// === impl CallerState ===

impl CallerState {
    pub(in crate::server) fn new() -> Self {
        let (callers, failed, accepted) = Default::default();
        let (digest, refused_pages) = (fingerprint_key(), PageRefusals::default());
        Self { callers, failed, accepted, digest, refused_pages }
    }
}

// === impl Streams ===

impl Streams {
    /// Whether LangGraph checks the caller's credentials, and has not accepted them yet.
    pub(in crate::server) fn is_stranger(&self, auth: &Auth) -> bool {
        matches!((auth, &self.identity), (Auth::Upstream(_), CallerId::Peer(_)))
    }

    pub(in crate::server) fn identity(&self) -> &CallerId {
        &self.identity
    }

    /// Takes a slot for one more stream, held until the stream ends. A turn on a WebSocket uses the
    /// socket's slot.
    pub(in crate::server) fn slot(&self) -> Result<StreamSlot, Reject> {
        let slot = match &self.of_socket {
            Some(slot) => slot.clone(),
            None => self.callers.stream(&self.identity, self.rates.streams)?,
        };
        // A request has one stream at most, so this is never set twice.
        let _ = self.taken.set(slot.id());
        Ok(slot)
    }

    /// Counts the request and its stream against `accepted`, whose credentials LangGraph has just
    /// accepted.
    fn transfer(&self, accepted: &CallerId) {
        if self.identity != *accepted {
            let slot = self.taken.get().copied();
            self.callers.transfer(&self.identity, accepted, self.rates.requests, slot);
        }
    }
}
