//! Who may list, change and inspect threads.
//!
//! A list shows a caller every thread that LangGraph shows to its credentials. Where LangGraph cannot
//! tell callers apart, that is everybody's.

use http::StatusCode;

use super::super::auth::Auth;
use super::super::forward::Forward;
use super::super::isolation::{Proof, Stake};
use super::super::reject::Reject;
use crate::agents::Agents;
use crate::upstream::{Client, Identity};

/// For whom threads are listed, changed and inspected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThreadRoutes {
    /// For nobody.
    #[default]
    Off,
    /// For callers whose own credentials LangGraph judges, once it is known that it does.
    Callers,
    /// For whoever may call.
    All,
}

/// The same, and what is known of the upstreams.
#[derive(Clone, Debug)]
pub(in crate::server) struct Access {
    routes: ThreadRoutes,
    agents: Agents,
    proof: Proof,
}

// === impl Access ===

impl Access {
    pub(in crate::server) fn new(
        routes: ThreadRoutes,
        agents: &Agents,
        auth: &Auth,
        forward: &Forward,
    ) -> Self {
        // Where the gateway judges by itself nothing can be proven.
        let is_unproven = routes == ThreadRoutes::Callers && !auth.is_for_langgraph();
        let routes = if is_unproven { ThreadRoutes::Off } else { routes };
        let proof = Proof::new(agents.clone(), auth.clone(), forward.clone(), Stake::Threads);
        Self { routes, agents: agents.clone(), proof }
    }

    /// Whether there are threads to be listed for a caller, on any upstream.
    pub(in crate::server) async fn is_granted(&self) -> bool {
        match self.routes {
            ThreadRoutes::Off => false,
            ThreadRoutes::All => true,
            ThreadRoutes::Callers => {
                let mut upstreams = self.agents.upstreams().iter();
                upstreams.any(|upstream| upstream.client.identity() == Identity::Forwarded)
                    && self.proof.is_held().await
            }
        }
    }

    /// Refuses unless the caller of this upstream may list its threads there.
    pub(in crate::server) async fn expect(&self, upstream: &Client) -> Result<(), Reject> {
        let refused = |message: &str| Reject::new(StatusCode::FORBIDDEN, "threads_off", message);
        match self.routes {
            ThreadRoutes::All => Ok(()),
            ThreadRoutes::Off => Err(refused(
                "this gateway lists, changes and inspects no threads: LangGraph could not tell its \
                 callers apart, or `thread_routes` is off; have its operator read docs/front.md",
            )),
            ThreadRoutes::Callers if !is_told_apart(upstream) => Err(refused(
                "the gateway does not send this agent's server who its callers are, so that it \
                 lists, changes and inspects no threads there",
            )),
            ThreadRoutes::Callers if self.proof.is_held().await => Ok(()),
            ThreadRoutes::Callers => Err(Reject::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "auth_unproven",
                "threads are listed, changed and inspected only once LangGraph has refused invented \
                 credentials; try again, and have the gateway's operator look at its log",
            )),
        }
    }
}

/// Whether LangGraph is sent something by which it can tell this caller from another.
fn is_told_apart(upstream: &Client) -> bool {
    upstream.identity() == Identity::Forwarded && upstream.caller().is_personal()
}
