//! `POST /agui/agent/{agent}/connect` and `GET /agui/agent/{agent}/threads/{thread}/events`: a
//! thread as it stands, and what happens on it.

use axum::extract::{RawQuery, Request, State};
use axum::response::Response;
use bytes::Bytes;
use http::HeaderMap;

use super::Gateway;
use super::agui::{accepted, parse, streamed};
use super::body::RunBody;
use super::reject::Reject;
use super::request::{InPath, Thread, read_json};
use super::wire::Encoder;
use crate::agents::Agent;
use crate::agui::{Client, Projector, RunId, Version};
use crate::runs::{AtShutdown, ThreadReader};

pub(super) async fn connect(
    State(gateway): State<Gateway>,
    InPath(name): InPath<String>,
    request: Request,
) -> Result<Response, Reject> {
    let (parts, body) = request.into_parts();
    let body = read_json(&parts.headers, body, gateway.limits.body_bytes).await?;
    connect_to(&gateway, &name, &parts.headers, &body).await
}

/// Connects the client of a request to the thread that it names.
pub(super) async fn connect_to(
    gateway: &Gateway,
    name: &str,
    headers: &HeaderMap,
    body: &Bytes,
) -> Result<Response, Reject> {
    let input = parse(body)?;
    let agent = gateway.agents.find(name).map_err(|error| Reject::unknown_agent(&error))?;
    let thread = Thread::of(&input.thread_id);
    let reader = attach(gateway, &agent, &thread, Reach::Present).await?;
    let wire = accepted(headers);
    let encoder = Encoder::new(wire, Projector::new(input.viewer(), input.held()));
    Ok(streamed(wire, RunBody::new(reader, encoder)))
}

pub(super) async fn events(
    State(gateway): State<Gateway>,
    InPath((name, client_thread)): InPath<(String, String)>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Reject> {
    let reach = Reach::asked(query.as_deref().unwrap_or_default())?;
    let agent = gateway.agents.find(&name).map_err(|error| Reject::unknown_agent(&error))?;
    let thread = Thread::of(&client_thread);
    let reader = attach(&gateway, &agent, &thread, reach).await?;
    let client = Client {
        thread_id: client_thread.clone(),
        run_id: RunId::Unnamed,
        parent_run_id: None,
        version: Version::V1,
    };
    let wire = accepted(&headers);
    let encoder = Encoder::new(wire, Projector::for_anyone(client));
    Ok(streamed(wire, RunBody::new(reader.at_shutdown(AtShutdown::BreakOff), encoder)))
}

/// How much of a thread is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// What there is, and the run that is live.
    Present,
    /// All that comes, too.
    Future,
}

// === impl Reach ===

impl Reach {
    fn asked(query: &str) -> Result<Self, Reject> {
        let mut follows =
            form_urlencoded::parse(query.as_bytes()).filter(|(key, _)| key == "follow");
        match follows.next().as_ref().map(|(_, value)| &**value) {
            None => Ok(Self::Present),
            Some("thread") => Ok(Self::Future),
            Some(other) => Err(Reject::invalid(format!(
                "`follow` is {other:?}; send `follow=thread`, or leave it out to see the present run"
            ))),
        }
    }
}

async fn attach(
    gateway: &Gateway,
    agent: &Agent,
    thread: &Thread<'_>,
    reach: Reach,
) -> Result<ThreadReader, Reject> {
    if gateway.shutdown.is_cancelled() {
        return Err(Reject::shutting_down());
    }
    let server = gateway.agents.server_kind(agent).await;
    let (runs, upstream, thread_id) = (&gateway.runs, &agent.upstream, &*thread.id);
    tracing::debug!(thread_id, ?reach, "a client attaches");
    match reach {
        Reach::Present => {
            let reader = runs.connect(upstream, server, thread_id).await;
            reader.map_err(|error| Reject::from(&error))
        }
        Reach::Future => {
            let reader = runs.follow(upstream, server, thread_id).await;
            reader.map_err(|error| Reject::from(&error))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_follows_the_thread_if_it_is_asked_to() {
        for (query, reach) in [
            ("", Some(Reach::Present)),
            ("x=1", Some(Reach::Present)),
            ("x=1&follow=thread", Some(Reach::Future)),
            ("follow=run", None),
            ("follow=", None),
        ] {
            assert_eq!(Reach::asked(query).ok(), reach, "{query}");
        }
    }
}
