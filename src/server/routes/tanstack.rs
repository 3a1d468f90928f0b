//! What `TanStack` AI's client reads with a GET of the run route: a thread, or a run that the
//! client joins.
//!
//! | query | response |
//! |---|---|
//! | `?threadId=T[&limit=N][&before=CURSOR]` | the thread's messages, live run and questions, as JSON |
//! | `?runId=R&offset=-1[&threadId=T]` | the run so far, and the rest of it, as a stream |

use std::borrow::Cow;

use axum::extract::Request;
use axum::response::Response;
use http::{HeaderMap, Method};

use super::accept;
use crate::server::gateway::RequestContext;
use crate::server::reject::Reject;
use crate::server::request::query::param;
use crate::server::request::run_name::id_param;
use crate::server::response::{self, about_thread, large_json};
use crate::server::service::tanstack::{join, load};
use crate::server::streams::last_event::LastEvent;
use crate::server::streams::wire::Wire;

/// The offset before the first event.
const FROM_START: &str = "-1";

/// What a query asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TanStackQuery {
    /// Load a thread.
    Load { thread_id: String, limit: Option<String>, before: Option<String> },
    /// Join a run.
    Join { run_id: String, thread_id: Option<String>, offset: Option<String> },
}

// === impl TanStackQuery ===

impl TanStackQuery {
    /// Reads a request. Returns `None` for a request that no client of `TanStack` AI sends.
    pub(super) fn of(request: &Request) -> Result<Option<Self>, Reject> {
        if request.method() != Method::GET {
            return Ok(None);
        }
        Self::parse(request.uri().query().unwrap_or_default())
    }

    fn parse(query: &str) -> Result<Option<Self>, Reject> {
        let value = |name| param(query, name).filter(|value| !value.is_empty());
        let value = |name| value(name).map(Cow::into_owned);
        Ok(match (id_param(query, "runId")?, id_param(query, "threadId")?) {
            (Some(run_id), thread_id) => {
                Some(Self::Join { run_id, thread_id, offset: value("offset") })
            }
            (None, Some(thread_id)) => {
                let (limit, before) = (value("limit"), value("before"));
                Some(Self::Load { thread_id, limit, before })
            }
            (None, None) => None,
        })
    }

    pub(super) async fn respond(
        self,
        context: &RequestContext,
        name: &str,
        headers: &HeaderMap,
    ) -> Result<Response, Reject> {
        let agent = context.agent(name)?;
        match self {
            Self::Load { thread_id, limit, before } => {
                let _slot = context.slot()?;
                let (limit, before) = (limit.as_deref(), before.as_deref());
                let (document, ids) = load(context, agent, &thread_id, limit, before).await?;
                Ok(about_thread(large_json(document), ids))
            }
            Self::Join { run_id, thread_id, offset } => {
                let last = LastEvent::of_header(headers).unwrap_or_else(|| {
                    LastEvent::parse(offset.as_deref().filter(|offset| *offset != FROM_START))
                });
                let wire = match accept::stream(headers)? {
                    Wire::Ndjson | Wire::ChunkLines => Wire::ChunkLines,
                    // The binary binding is for clients that send a `protocolVersion`.
                    Wire::Sse | Wire::Events | Wire::Chunks | Wire::Proto => Wire::Sse,
                };
                let stream = join(context, agent, run_id, thread_id, (wire, &last)).await?;
                response::events(stream, &context.gateway.observer.metrics).await
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_loads_a_thread_or_joins_a_run() {
        let text = |text: &str| Some(text.to_owned());
        let load =
            |limit, before| Some(TanStackQuery::Load { thread_id: "t".to_owned(), limit, before });
        let join = |thread_id, offset| {
            Some(TanStackQuery::Join { run_id: "r".to_owned(), thread_id, offset })
        };
        for (query, expected) in [
            ("", None),
            ("limit=7", None),
            ("offset=-1", None),
            ("threadId=t", load(None, None)),
            ("threadId=t&limit=7&before=m", load(text("7"), text("m"))),
            ("offset=-1&runId=r", join(None, text("-1"))),
            ("threadId=t&runId=r", join(text("t"), None)),
        ] {
            assert_eq!(TanStackQuery::parse(query).unwrap(), expected, "{query}");
        }
        for blank in ["threadId=", "runId=", "runId=%20&threadId=t", "runId=r&threadId=+"] {
            assert!(TanStackQuery::parse(blank).is_err(), "{blank}");
        }
    }
}
