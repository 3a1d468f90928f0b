//! `POST /agui/agent/{agent}/connect` and `GET /agui/agent/{agent}/threads/{thread}/events`: a
//! thread as it stands, and what happens on it.
//!
//! Who comes back with the id of an event goes on behind it, or starts over: the first event is
//! `RUN_STARTED` then. Behind the end of a run there is nothing, and 204 says so: an `EventSource`
//! would ask for ever.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{RawQuery, Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use super::Gateway;
use super::accept::{self, Asked, streamed};
use super::agui::parse;
use super::auth::{Streams, Unasked};
use super::body::{RETRY, RunBody};
use super::deeds::{self, Action};
use super::observe::About;
use super::rates::StreamSlot;
use super::reject::Reject;
use super::request::{InPath, read_json};
use super::wire::{Encoder, Wire};
use crate::metrics::Resume;
use crate::runs::EventId;
use crate::threads::{AtShutdown, Thread, ThreadReader};
use crate::upstream::Caller;
use threadway_translate::agui::{Client, ClientMessages, Input, Projector, RunId, Version};
use threadway_translate::run::Emit;

pub(super) async fn connect(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<Caller>,
    Extension(streams): Extension<Streams>,
    InPath(name): InPath<String>,
    request: Request,
) -> Result<Response, Reject> {
    let (parts, body) = request.into_parts();
    let asked = Asked::of(&parts)?;
    let body = read_json(&parts.headers, body, gateway.limits.body_bytes).await?;
    connect_to(&gateway, &caller, &streams, &name, &asked, &body).await
}

/// Connects the client of a request to the thread that it names.
pub(super) async fn connect_to(
    gateway: &Gateway,
    caller: &Caller,
    streams: &Streams,
    name: &str,
    asked: &Asked<'_>,
    body: &Bytes,
) -> Result<Response, Reject> {
    let input = parse(body)?;
    deeds::note(|deed| {
        deed.action = Some(Action::Connect);
        deed.thread = Some(input.thread_id.clone());
    });
    let asked = &asked.of_version(input.version)?;
    let agent = gateway.agent_inspected(name, caller, asked.inspects(gateway.page))?;
    let thread = gateway.thread(agent, &input.thread_id);
    let last = match LastEvent::sent(asked.headers) {
        Some(sent) if sent != LastEvent::None => sent,
        _ => LastEvent::named(input.last_event_id().as_deref()),
    };
    if last.is_end() {
        return nothing_more(gateway, &thread).await;
    }
    let slot = streams.slot()?;
    show(gateway, &thread, &input, asked, &last, slot).await
}

/// Shows a client its thread as it is, instead of a run that its request does not start.
pub(super) async fn present(
    gateway: &Gateway,
    thread: &Thread,
    input: &Input,
    asked: &Asked<'_>,
    slot: StreamSlot,
) -> Result<Response, Reject> {
    show(gateway, thread, input, asked, &LastEvent::None, slot).await
}

async fn show(
    gateway: &Gateway,
    thread: &Thread,
    input: &Input,
    asked: &Asked<'_>,
    last: &LastEvent,
    slot: StreamSlot,
) -> Result<Response, Reject> {
    let reader = attach(gateway, thread, Reach::Present, last).await?;
    let held = |client| Projector::new(client, input.held());
    let encoder = last.encoder(asked.wire(), input.viewer(), thread.agent().emit, held);
    let encoder = encoder.naming(asked.inspects(gateway.page) && thread.agent().emit.raw);
    let about = About { thread_id: thread.id().to_owned(), run_id: None };
    Ok(Box::pin(asked.answer(gateway, reader, encoder, slot, about)).await)
}

pub(super) async fn events(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<Caller>,
    Extension(streams): Extension<Streams>,
    InPath((name, client_thread)): InPath<(String, String)>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Reject> {
    let wire = accept::stream(&headers)?;
    let query = query.unwrap_or_default();
    let reach = Reach::asked(&query)?;
    let last = LastEvent::asked(&headers, &query);
    let inspects = gateway.page.inspects(Some(&query));
    let agent = gateway.agent_inspected(&name, &caller, inspects)?;
    let thread = gateway.thread(agent, &client_thread);
    let about = About { thread_id: thread.id().to_owned(), run_id: None };
    let attached = if last.is_end() && reach == Reach::Present {
        nothing_more(&gateway, &thread).await.map(Attached::NothingMore)
    } else {
        match streams.slot() {
            Ok(slot) => {
                let reader = attach(&gateway, &thread, reach, &last).await;
                reader.map(|reader| Attached::Reads(Box::new(reader), slot))
            }
            Err(reject) => Err(reject),
        }
    };
    let (reader, slot) = match attached {
        Ok(Attached::Reads(reader, slot)) => (reader, slot),
        Ok(Attached::NothingMore(answer)) => return Ok(answer),
        // It was here before, and an `EventSource` that is refused never comes again.
        Err(reject) if last != LastEvent::None && wire == Wire::Sse && reject.is_passing() => {
            tracing::debug!(thread_id = thread.id(), ?reject, "a client is to come again later");
            let mut later = streamed(wire, Body::from(wire.beginning(RETRY)), about);
            later.extensions_mut().insert(Unasked);
            return Ok(later);
        }
        Err(reject) => return Err(reject),
    };
    let client = Client {
        thread_id: client_thread.clone(),
        run_id: RunId::Unnamed,
        parent_run_id: None,
        version: Version::V1,
    };
    let for_new = |client| Projector::new(client, ClientMessages::Unknown);
    let encoder = last.encoder(wire, client, thread.agent().emit, for_new);
    let encoder = encoder.naming(inspects && thread.agent().emit.raw);
    let reader = reader.at_shutdown(AtShutdown::BreakOff);
    let body = RunBody::new(reader, encoder, &gateway.observer.metrics).holding(slot);
    Ok(streamed(wire, Body::new(body), about))
}

/// The answer to a request that starts a run, if the client has sent it before and has lost the
/// answer: the rest of that run. Returns `None` if the request has no `Last-Event-ID`, or the
/// thread has no such run; then a run is to be started.
///
/// Only the header decides. An application may set `forwardedProps` once for all its requests, and
/// CopilotKit sends several runs under one `runId`.
pub(super) async fn asked_again(
    gateway: &Gateway,
    thread: &Thread,
    input: &Input,
    asked: &Asked<'_>,
) -> Result<Option<(ThreadReader, Encoder)>, Reject> {
    let last = LastEvent::sent(asked.headers).unwrap_or(LastEvent::None);
    if last == LastEvent::None {
        return Ok(None);
    }
    let again = thread.read_again(last.known(), &input.run_id).await;
    let reader = again.map_err(|refusal| gateway.refuse(&refusal, thread))?;
    tracing::debug!(
        thread_id = thread.id(),
        ?last,
        is_found = reader.is_some(),
        "a run asked again"
    );
    let encoder = Encoder::returning(asked.wire(), input.viewer(), thread.agent().emit);
    let encoder = encoder.naming(asked.inspects(gateway.page) && thread.agent().emit.raw);
    Ok(reader.map(|reader| (reader, encoder)))
}

/// There is nothing behind the end of a run, for one who may see its thread.
async fn nothing_more(gateway: &Gateway, thread: &Thread) -> Result<Response, Reject> {
    thread.check_visibility().await.map_err(|refusal| gateway.refuse(&refusal, thread))?;
    gateway.observer.metrics.resumed(Resume::Ended);
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// What a client gets that may see the thread.
enum Attached {
    Reads(Box<ThreadReader>, StreamSlot),
    NothingMore(Response),
}

/// What a client names as the last event that it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LastEvent {
    None,
    Known(EventId),
    /// It is none of ours, or of another version.
    Unknown,
}

/// How much of a thread is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// What there is, and the run that is live.
    Present,
    /// All that comes, too.
    Future,
}

// === impl LastEvent ===

impl LastEvent {
    /// The header, as a client sends it when it comes back, if there is one.
    pub(super) fn sent(headers: &HeaderMap) -> Option<Self> {
        let header = headers.get("last-event-id")?;
        Some(Self::named(Some(header.to_str().unwrap_or("?"))))
    }

    /// The header; else the query's `last_event_id`, as an `EventSource` sends it whose page was
    /// loaded again.
    fn asked(headers: &HeaderMap, query: &str) -> Self {
        if let Some(last) = Self::sent(headers) {
            return last;
        }
        let mut pairs = form_urlencoded::parse(query.as_bytes());
        let named = pairs.find(|(key, _)| key == "last_event_id");
        Self::named(named.as_ref().map(|(_, id)| &**id))
    }

    pub(super) fn named(id: Option<&str>) -> Self {
        match id {
            None | Some("") => Self::None,
            Some(id) => id.parse().map_or(Self::Unknown, Self::Known),
        }
    }

    pub(super) fn known(&self) -> Option<&EventId> {
        match self {
            Self::Known(id) => Some(id),
            Self::None | Self::Unknown => None,
        }
    }

    /// Writes for the client: for one that comes back, what it holds by now is what it was told,
    /// and half of a message may be of that.
    pub(super) fn encoder(
        &self,
        wire: Wire,
        client: Client,
        emit: Emit,
        for_new: impl FnOnce(Client) -> Projector,
    ) -> Encoder {
        match self {
            Self::None => Encoder::new(wire, for_new(client)),
            Self::Known(_) | Self::Unknown => Encoder::returning(wire, client, emit),
        }
    }

    fn is_end(&self) -> bool {
        self.known().is_some_and(EventId::is_terminal)
    }
}

// === impl Reach ===

impl Reach {
    fn asked(query: &str) -> Result<Self, Reject> {
        let mut follows =
            form_urlencoded::parse(query.as_bytes()).filter(|(key, _)| key == "follow");
        match follows.next().as_ref().map(|(_, value)| &**value) {
            None => Ok(Self::Present),
            Some("thread") => Ok(Self::Future),
            Some(_) => Err(Reject::invalid(
                "`follow` is not `thread`; send `follow=thread`, or leave it out to see the \
                 present run",
            )),
        }
    }
}

async fn attach(
    gateway: &Gateway,
    thread: &Thread,
    reach: Reach,
    last: &LastEvent,
) -> Result<ThreadReader, Reject> {
    tracing::debug!(thread_id = thread.id(), ?reach, ?last, "a client attaches");
    let reader = match reach {
        Reach::Present => thread.connect(last.known()).await,
        Reach::Future => thread.follow(last.known()).await,
    };
    if *last == LastEvent::Unknown {
        gateway.observer.metrics.resumed(Resume::StartOver);
    }
    reader.map_err(|refusal| gateway.refuse(&refusal, thread))
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
