//! Which callers may list, change and inspect threads.
//!
//! A list shows a caller every thread that LangGraph shows to the caller's credentials. Where
//! LangGraph cannot distinguish callers, these are the threads of all callers.

use futures_util::future::join_all;
use http::StatusCode;

use super::Auth;
use super::isolation::IsolationProof;
use crate::agents::Agents;
use crate::server::reject::Reject;
use crate::upstream::{Client, Identity};

/// Which callers may list, change and inspect threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThreadRoutePolicy {
    /// None.
    #[default]
    Off,
    /// Callers with credentials for LangGraph, once LangGraph is known to check credentials.
    Callers,
    /// All.
    All,
}

/// Checks whether a caller may use the routes of threads.
#[derive(Clone, Debug)]
pub(in crate::server) struct ThreadRouteAccess {
    routes: ThreadRoutePolicy,
    agents: Agents,
    proof: IsolationProof,
}

// === impl ThreadRouteAccess ===

impl ThreadRouteAccess {
    pub(in crate::server) fn new(
        routes: ThreadRoutePolicy,
        agents: &Agents,
        auth: &Auth,
        proof: IsolationProof,
    ) -> Self {
        // Where the gateway checks credentials itself, LangGraph gets none to check.
        let is_unproven = routes == ThreadRoutePolicy::Callers && !auth.is_for_langgraph();
        let routes = if is_unproven { ThreadRoutePolicy::Off } else { routes };
        Self { routes, agents: agents.clone(), proof }
    }

    /// Whether a caller may list threads of any upstream.
    pub(in crate::server) async fn is_granted(&self) -> bool {
        match self.routes {
            ThreadRoutePolicy::Off => false,
            ThreadRoutePolicy::All => true,
            ThreadRoutePolicy::Callers => {
                let upstreams = self.agents.upstreams().iter().map(|upstream| &upstream.client);
                let upstreams = upstreams.filter(|client| client.identity() == Identity::Forwarded);
                let held = join_all(upstreams.map(|client| self.proof.is_held_by(client))).await;
                held.into_iter().any(|is_held| is_held)
            }
        }
    }

    /// Refuses a caller that may not list its threads of this upstream.
    pub(in crate::server) async fn expect(&self, upstream: &Client) -> Result<(), Reject> {
        let refused = |message: &str| Reject::new(StatusCode::FORBIDDEN, "threads_off", message);
        match self.routes {
            ThreadRoutePolicy::All => Ok(()),
            ThreadRoutePolicy::Off => Err(refused(
                "this gateway lists, changes and inspects no threads: LangGraph cannot distinguish \
                 its callers, or `thread_routes` is off; have its operator read docs/front.md",
            )),
            ThreadRoutePolicy::Callers if !is_told_apart(upstream) => Err(refused(
                "the gateway does not send this agent's server who its callers are, so that it \
                 lists, changes and inspects no threads there",
            )),
            ThreadRoutePolicy::Callers if self.proof.is_held_by(upstream).await => Ok(()),
            ThreadRoutePolicy::Callers => Err(Reject::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "auth_unproven",
                "threads are listed, changed and inspected only once LangGraph has refused invented \
                 credentials; try again, and have the gateway's operator look at its log",
            )),
        }
    }
}

/// Whether LangGraph is sent credentials of this caller.
fn is_told_apart(upstream: &Client) -> bool {
    upstream.identity() == Identity::Forwarded && upstream.caller().is_personal()
}
