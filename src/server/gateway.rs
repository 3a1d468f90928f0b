//! What all requests share, and what a handler knows of the one that it handles.

use std::sync::Arc;

use axum::Extension;
use axum::extract::rejection::ExtensionRejection;
use axum::extract::{FromRef, FromRequestParts};
use http::request::Parts;
use tokio::sync::{Semaphore, SemaphorePermit, watch};

use super::auth::access::ThreadRouteAccess;
use super::auth::admit::{Admission, Admitted, Streams};
use super::limits::Limits;
use super::limits::caller_id::Fingerprint;
use super::limits::log_limiter::LogLimiter;
use super::limits::rates::StreamSlot;
use super::observe::Observer;
use super::observe::request_log::{RequestLog, RequestRecord};
use super::reject::{Reject, SideEffect};
use super::request::thread_name::{ThreadName, ThreadNames};
use super::streams::unread::{UnreadAnswers, UnreadParts};
use crate::agents::{Agent, Agents};
use crate::metrics::ChargedTo;
use crate::threads::{Refusal, Thread, Threads};
use crate::upstream::{Caller, Error};
use threadway_translate::agui::{Allowance, OnMessage};
use threadway_translate::run::ErrorDetail;

/// The graph that LangGraph is asked for to learn whether it accepts a caller. Whether it has that
/// graph does not matter.
const PROOF_GRAPH: &str = "agent";

/// What all requests share. A reload makes a new one.
#[derive(Debug)]
pub(super) struct Gateway {
    pub(super) agents: Agents,
    pub(super) threads: Threads,
    pub(super) limits: Limits,
    pub(super) error_detail: ErrorDetail,
    pub(super) on_message: OnMessage,
    pub(super) allowance: Allowance,
    /// Limits the log lines about settings that clients may not use, since any request can cause
    /// one.
    pub(super) disallowed_log: LogLimiter,
    pub(super) observer: Observer,
    pub(super) log: RequestLog,
    pub(super) admission: Admission,
    pub(super) thread_access: ThreadRouteAccess,
    pub(super) unread: UnreadParts,
    /// Admits the conversions of whole threads into one answer.
    pub(super) conversions: Semaphore,
}

/// A request that was admitted: the gateway, its caller, the streams that the caller may have, and
/// its record.
#[derive(Debug)]
pub(super) struct RequestContext {
    pub(super) gateway: Arc<Gateway>,
    pub(super) caller: Caller,
    pub(super) streams: Streams,
    pub(super) names: ThreadNames,
    /// What the logs are to know of the request.
    pub(super) record: RequestRecord,
}

/// The newest of what a reload replaces, for a socket that outlives it.
pub(super) type ReloadReceiver<T> = watch::Receiver<Arc<T>>;

impl<S> FromRequestParts<S> for RequestContext
where
    S: Send + Sync,
    Arc<Gateway>: FromRef<S>,
{
    type Rejection = ExtensionRejection;

    /// Fails only on a route that [`Admission::admit`] does not guard.
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ExtensionRejection> {
        let Extension(admitted) = Extension::from_request_parts(parts, state).await?;
        let Extension(record) = Extension::from_request_parts(parts, state).await?;
        Ok(Self::new(FromRef::from_ref(state), admitted, record))
    }
}

// === impl RequestContext ===

impl RequestContext {
    pub(super) fn new(gateway: Arc<Gateway>, admitted: Admitted, record: RequestRecord) -> Self {
        let Admitted { caller, streams, names, .. } = admitted;
        Self { gateway, caller, streams, names, record }
    }

    /// The agent of this name, if the caller may use it.
    pub(super) fn agent(&self, name: &str) -> Result<Agent, Reject> {
        let found = self.gateway.agents.find(name, &self.caller);
        found.map_err(|error| Reject::unknown_agent(&error))
    }

    /// The agent of this name. If `is_inspected`, its streams contain LangGraph's parts.
    pub(super) fn agent_inspected(&self, name: &str, is_inspected: bool) -> Result<Agent, Reject> {
        let mut agent = self.agent(name)?;
        if is_inspected {
            agent.emit = agent.emit.inspected();
        }
        Ok(agent)
    }

    /// The thread that the client calls `client_thread`, for an agent. A blank name is refused.
    pub(super) fn thread(&self, agent: Agent, client_thread: &str) -> Result<Thread, Reject> {
        let ThreadName { id, client_id } = self.names.thread(client_thread)?;
        self.record.note(|facts| {
            facts.agent = Some(agent.name.to_string());
            facts.thread = Some(client_thread.to_owned());
            facts.thread_id = Some(id.clone());
            facts.upstream = Some(agent.upstream.base().to_string());
        });
        Ok(self.gateway.threads.thread(agent, id, client_id.map(str::to_owned)))
    }

    /// The caller's unread answers. They are made of what LangGraph has sent for this call, so the
    /// caller is no stranger any more.
    pub(super) fn answers(&self) -> UnreadAnswers {
        self.gateway.unread.of(self.share())
    }

    /// Waits until a whole thread may be made into one answer: until what is returned is dropped. The
    /// thread is charged while it waits.
    pub(super) async fn conversion(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed, so this is never `None`.
        self.gateway.conversions.acquire().await.ok()
    }

    /// A slot for one more stream, if there is room for what its client may leave unread.
    pub(super) fn slot(&self) -> Result<StreamSlot, Reject> {
        self.gateway.observer.metrics.memory().has_room(self.share())?;
        self.streams.slot()
    }

    /// Whose share of the memory for clients this call uses.
    pub(super) fn holder(&self) -> ChargedTo {
        if self.streams.is_stranger(&self.gateway.admission.auth) {
            ChargedTo::Stranger
        } else {
            self.share()
        }
    }

    /// Fails unless the caller's credentials are accepted. Asks LangGraph, where it checks them and
    /// has not accepted them before. Returns the caller's share of the memory for clients.
    pub(super) async fn prove(&self) -> Result<ChargedTo, Reject> {
        if self.holder() != ChargedTo::Stranger {
            return Ok(self.share());
        }
        let mut refused = None;
        for upstream in self.gateway.agents.upstreams() {
            let client = upstream.client.called_by(&self.caller);
            let accepted = match client.search_any_thread().await {
                // Known callers may be forbidden to list threads.
                Err(Error::Status { code: 403, .. }) => {
                    client.shows_assistant_of(PROOF_GRAPH).await.map(drop)
                }
                accepted => accepted,
            };
            match accepted {
                Ok(()) => return Ok(self.share()),
                Err(error) => {
                    let reject = self.upstream_failed(&error, client.caller());
                    refused = refused.or(Some(reject));
                }
            }
        }
        Err(refused.unwrap_or_else(|| Reject::unknown_agent("the gateway has no upstream")))
    }

    /// The caller's own share, which is used once LangGraph has accepted it.
    pub(super) fn share(&self) -> ChargedTo {
        self.caller.holder(self.gateway.observer.metrics.memory())
    }

    /// Whom a connection belongs to that this call opens or uses.
    pub(super) fn owner(&self) -> Fingerprint {
        self.gateway.admission.owner(&self.streams, &self.caller)
    }

    /// The response to a request that failed on a thread, and may have changed something.
    pub(super) fn refuse(&self, refusal: &Refusal, thread: &Thread) -> Reject {
        let caller = thread.agent().upstream.caller();
        Reject::refusal(refusal, caller, self.gateway.error_detail, SideEffect::Possible)
    }

    /// The response to a request that could not read a thread, or start a run. It has changed
    /// nothing, unless the refusal says that it may have.
    pub(super) fn refuse_read(&self, refusal: &Refusal, thread: &Thread) -> Reject {
        let caller = thread.agent().upstream.caller();
        Reject::refusal(refusal, caller, self.gateway.error_detail, SideEffect::None)
    }

    /// The response to a request that could not start a run. No run was started, unless the refusal
    /// says that one may have been.
    pub(super) fn refuse_start(&self, refusal: &Refusal, thread: &Thread) -> Reject {
        let caller = thread.agent().upstream.caller();
        Reject::refusal(refusal, caller, self.gateway.error_detail, SideEffect::NoRun)
    }

    /// The response to a request for which `caller` could not read something of an upstream.
    pub(super) fn upstream_failed(&self, error: &Error, caller: &Caller) -> Reject {
        Reject::upstream(error, caller, self.gateway.error_detail, SideEffect::None)
    }
}
