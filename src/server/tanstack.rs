//! What `TanStack` AI's client reads with a GET of the run route: a thread as it is loaded, and a run
//! that the client joins.
//!
//! | query | answer |
//! |---|---|
//! | `?threadId=T[&limit=N][&before=CURSOR]` | the thread's messages, its live run, its questions, as JSON |
//! | `?runId=R&offset=-1[&threadId=T]` | the run as it stands, and the rest of it, as a stream |
//!
//! To join a run, the client names the run and not its thread. So the run of a thread that was loaded
//! here goes by a [`RunName`], which has both.

use std::borrow::Cow;

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, Method};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::Gateway;
use super::accept::{self, streamed};
use super::attach::LastEvent;
use super::auth::Streams;
use super::body::RunBody;
use super::observe::About;
use super::reject::Reject;
use super::request::ThreadName;
use super::threads::{Told, param};
use super::wire::Wire;
use crate::agents::Agent;
use crate::threads::{Thread, ThreadReader};
use crate::upstream::Caller;
use threadway_translate::agui::{self, Client, Projector, RunId, Version, Window};
use threadway_translate::json::{self, ObjectWriter};

/// How many messages a window may have.
const MAX_WINDOW: usize = 1_000;

/// How many threads with a run of one name are looked at.
const MAX_CANDIDATES: usize = 4;

/// The offset before the first event.
const FROM_START: &str = "-1";

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TanStack {
    /// A thread is loaded.
    Hydrate { thread_id: String, limit: Option<String>, before: Option<String> },
    /// A run is joined.
    Join { run_id: String, thread_id: Option<String>, offset: Option<String> },
}

/// A run and its thread, as one text: `threadId=..&runId=..`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RunName {
    pub(super) thread_id: String,
    pub(super) run_id: String,
}

// === impl TanStack ===

impl TanStack {
    /// What a request asks for, if it is of this client's.
    pub(super) fn asked(request: &Request) -> Option<Self> {
        if request.method() != Method::GET {
            return None;
        }
        Self::read(request.uri().query().unwrap_or_default())
    }

    fn read(query: &str) -> Option<Self> {
        let value = |name| param(query, name).filter(|value| !value.is_empty());
        let value = |name| value(name).map(Cow::into_owned);
        match (value("runId"), value("threadId")) {
            (Some(run_id), thread_id) => {
                Some(Self::Join { run_id, thread_id, offset: value("offset") })
            }
            (None, Some(thread_id)) => {
                let (limit, before) = (value("limit"), value("before"));
                Some(Self::Hydrate { thread_id, limit, before })
            }
            (None, None) => None,
        }
    }

    pub(super) async fn answer(
        self,
        gateway: &Gateway,
        caller: &Caller,
        streams: &Streams,
        name: &str,
        headers: &HeaderMap,
    ) -> Result<Response, Reject> {
        let agent = gateway.agent(name, caller)?;
        match self {
            Self::Hydrate { thread_id, limit, before } => {
                let _slot = streams.slot()?;
                hydrate(gateway, agent, &thread_id, limit.as_deref(), before.as_deref()).await
            }
            Self::Join { run_id, thread_id, offset } => {
                let last = LastEvent::sent(headers).unwrap_or_else(|| {
                    LastEvent::named(offset.as_deref().filter(|offset| *offset != FROM_START))
                });
                let place = RunPlace { asked: run_id, thread_id };
                join(gateway, streams, agent, place, &last, headers).await
            }
        }
    }
}

/// Where a run is that a client asks for.
struct RunPlace {
    /// As the client has named it.
    asked: String,
    thread_id: Option<String>,
}

/// The thread's messages, its live run, and what it asks.
async fn hydrate(
    gateway: &Gateway,
    agent: Agent,
    client_thread: &str,
    limit: Option<&str>,
    before: Option<&str>,
) -> Result<Response, Reject> {
    let number = |text: &str| text.parse().ok().filter(|limit| (1..=MAX_WINDOW).contains(limit));
    let wrong = || Reject::invalid(format!("`limit` is not a number from 1 to {MAX_WINDOW}"));
    let limit = limit.map(|text| number(text).ok_or_else(wrong)).transpose()?;
    let thread = gateway.thread(agent, client_thread);
    let held = Box::pin(thread.snapshot()).await;
    let held = held.map_err(|refusal| gateway.refuse(&refusal, &thread))?;
    let told = Told::read(held.reader, client(client_thread.to_owned(), RunId::Unnamed)).await;
    let window = agui::window(&told.messages(), limit, before);
    let Window { messages, cursor } = window.map_err(|_| {
        Reject::invalid("`before` names no message of the thread; load the thread again without it")
    })?;
    let messages = json::array(messages.iter().map(|message| message.get()));
    // What came before has neither.
    let is_newest = before.is_none();
    let active = held.live.as_ref().filter(|_| is_newest).map(|run_id| {
        let name = RunName { thread_id: client_thread.to_owned(), run_id: run_id.clone() };
        ObjectWriter::new().string("runId", &name.text()).finish()
    });
    let pending = questions(&told).filter(|_| is_newest && held.live.is_none());
    let pending = pending.map(|pending| {
        let run_id = held.last.as_deref().unwrap_or(client_thread);
        ObjectWriter::new().string("runId", run_id).raw("pending", pending.get()).finish()
    });
    let page = match cursor {
        Some(cursor) => ObjectWriter::new().raw("truncated", "true").string("cursor", &cursor),
        None => ObjectWriter::new().raw("truncated", "false"),
    };
    let answer = ObjectWriter::new()
        .raw("messages", messages.get())
        .raw("activeRun", active.as_ref().map_or("null", |active| active.get()))
        .raw("interrupts", pending.as_ref().map_or("null", |pending| pending.get()))
        .raw("page", page.finish().get());
    let headers = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
    let body = format!("{}\n", answer.finish().get());
    let mut response = (headers, body).into_response();
    let about = About { thread_id: thread.id().to_owned(), run_id: None };
    response.extensions_mut().insert(about);
    Ok(response)
}

/// The questions that a thread at rest asks.
fn questions(told: &Told) -> Option<&RawValue> {
    let outcome = json::members(told.last("RUN_FINISHED", "outcome")?)?;
    outcome.get("interrupts").filter(|_| outcome.string("type").as_deref() == Some("interrupt"))
}

/// Reads a run on, for a client that has lost it.
async fn join(
    gateway: &Gateway,
    streams: &Streams,
    agent: Agent,
    place: RunPlace,
    last: &LastEvent,
    headers: &HeaderMap,
) -> Result<Response, Reject> {
    let wire = match accept::stream(headers)? {
        Wire::Ndjson | Wire::ChunkLines => Wire::ChunkLines,
        // The binary binding is for clients that send a `protocolVersion`.
        Wire::Sse | Wire::Events | Wire::Chunks | Wire::Proto => Wire::Sse,
    };
    let RunPlace { asked, thread_id } = place;
    let name = RunName::of(&asked);
    let run_id = name.as_ref().map_or(&asked, |name| &name.run_id);
    let slot = streams.slot()?;
    let found = match name.as_ref().map(|name| &name.thread_id).or(thread_id.as_ref()) {
        Some(client_thread) => {
            let thread = gateway.thread(agent, client_thread);
            let reader = read(gateway, &thread, last, run_id).await?;
            reader.map(|reader| (client_thread.clone(), thread, reader))
        }
        // A name that clients choose is no secret: as a list of threads, it would lead to everybody's.
        None if gateway.thread_access.expect(&agent.upstream).await.is_err() => None,
        None => Box::pin(found(gateway, &agent, last, run_id)).await?,
    };
    let Some((client_thread, thread, reader)) = found else {
        return Err(if name.is_some() || thread_id.is_some() {
            Reject::unknown_run()
        } else {
            Reject::unplaced_run()
        });
    };
    tracing::debug!(thread_id = thread.id(), ?last, "a run is joined");
    // It goes by the name that the client has asked for.
    let client = client(client_thread, RunId::Own(asked));
    let for_new = |client| Projector::new(client, Vec::new()).resending_text();
    let encoder = last.encoder(wire, client, thread.agent().emit, for_new);
    let about = About { thread_id: thread.id().to_owned(), run_id: None };
    let body = RunBody::new(reader, encoder, &gateway.observer.metrics).holding(slot);
    Ok(streamed(wire, Body::new(body), about))
}

/// A run of a thread, by what its client calls it, or by LangGraph's id.
async fn read(
    gateway: &Gateway,
    thread: &Thread,
    last: &LastEvent,
    run_id: &str,
) -> Result<Option<ThreadReader>, Reject> {
    let refuse = |refusal| gateway.refuse(&refusal, thread);
    let found = thread.read_again(last.known(), run_id).await.map_err(refuse)?;
    if found.is_some() || Uuid::try_parse(run_id).is_err() {
        return Ok(found);
    }
    thread.read_by_id(run_id).await.map_err(refuse)
}

/// A run of which the client does not say whose thread it is of: one that is read here, of a thread
/// that LangGraph shows to the caller.
async fn found(
    gateway: &Gateway,
    agent: &Agent,
    last: &LastEvent,
    run_id: &str,
) -> Result<Option<(String, Thread, ThreadReader)>, Reject> {
    let runs = gateway.threads.runs();
    for id in runs.threads_with(&agent.upstream, run_id, MAX_CANDIDATES) {
        let listed = agent.upstream.listed_thread(&id).await;
        let listed = listed.map_err(|error| {
            Reject::upstream(&error, agent.upstream.caller(), gateway.error_detail)
        })?;
        let Some(listed) = listed else { continue };
        let is_its_own = |name: &String| ThreadName::of(name).id == id;
        let client_thread = listed.client_id().filter(is_its_own).unwrap_or(id);
        let thread = gateway.thread(agent.clone(), &client_thread);
        if let Some(reader) = read(gateway, &thread, last, run_id).await? {
            return Ok(Some((client_thread, thread, reader)));
        }
    }
    Ok(None)
}

/// The client, which says nothing of the protocol that it speaks.
fn client(thread_id: String, run_id: RunId) -> Client {
    Client { thread_id, run_id, parent_run_id: None, version: Version::Legacy }
}

// === impl RunName ===

impl RunName {
    /// Reads a name. `None` if it is of another form: a run's own name.
    pub(super) fn of(text: &str) -> Option<Self> {
        let rest = text.starts_with("threadId=").then_some(text)?;
        let (thread_id, run_id) = (param(rest, "threadId")?, param(rest, "runId")?);
        Some(Self { thread_id: thread_id.into_owned(), run_id: run_id.into_owned() })
    }

    fn text(&self) -> String {
        let mut text = form_urlencoded::Serializer::new(String::new());
        text.append_pair("threadId", &self.thread_id).append_pair("runId", &self.run_id);
        text.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_loads_a_thread_or_joins_a_run() {
        let text = |text: &str| Some(text.to_owned());
        let hydrate =
            |limit, before| Some(TanStack::Hydrate { thread_id: "t".to_owned(), limit, before });
        let join =
            |thread_id, offset| Some(TanStack::Join { run_id: "r".to_owned(), thread_id, offset });
        for (query, expected) in [
            ("", None),
            ("limit=7", None),
            ("offset=-1", None),
            ("threadId=", None),
            ("threadId=t", hydrate(None, None)),
            ("threadId=t&limit=7&before=m", hydrate(text("7"), text("m"))),
            ("offset=-1&runId=r", join(None, text("-1"))),
            ("threadId=t&runId=r", join(text("t"), None)),
        ] {
            assert_eq!(TanStack::read(query), expected, "{query}");
        }
    }

    #[test]
    fn a_name_holds_a_run_and_its_thread() {
        for (thread_id, run_id) in [("t", "r"), ("a&runId=b é+", "threadId=x&runId=y"), ("", "")] {
            let name = RunName { thread_id: thread_id.to_owned(), run_id: run_id.to_owned() };
            assert_eq!(RunName::of(&name.text()), Some(name));
        }
        for other in ["", "r", "run-1-x", "runId=r&threadId=t", "threadId=t"] {
            assert_eq!(RunName::of(other), None, "{other}");
        }
    }
}
