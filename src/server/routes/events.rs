//! `GET /agui/agent/{agent}/threads/{thread}/events`: connects an `EventSource` to a thread.
//!
//! With `?follow=thread` the stream does not end with the live run: it goes on with every later
//! run.

use axum::body::Body;
use axum::extract::RawQuery;
use axum::response::Response;
use http::HeaderMap;

use super::connect::{self, Scope};
use crate::server::auth::admit::UpstreamNotAsked;
use crate::server::gateway::Call;
use crate::server::limits::rates::StreamSlot;
use crate::server::observe::RunIds;
use crate::server::reject::Reject;
use crate::server::request::accept;
use crate::server::request::last_event::LastEvent;
use crate::server::request::query::{InPath, param};
use crate::server::request::thread_name;
use crate::server::streams::event_stream::{EventStream, streamed};
use crate::server::streams::wire::Wire;
use crate::threads::{AtShutdown, Thread, ThreadReader};
use threadway_translate::agui::{ClientMessages, Projector};

/// What a client gets that may see the thread.
enum Connected {
    Reader(Box<ThreadReader>, StreamSlot),
    NoMoreEvents(Response),
}

pub(in crate::server) async fn events(
    call: Call,
    InPath((name, client_thread)): InPath<(String, String)>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Reject> {
    let wire = accept::stream(&headers)?;
    let query = query.unwrap_or_default();
    let scope = scope(&query)?;
    let last = LastEvent::of_request(&headers, &query);
    let is_inspected = call.gateway.page.inspects(Some(&query));
    let agent = call.agent_inspected(&name, is_inspected)?;
    let thread = call.thread(agent, &client_thread)?;
    let ids = RunIds::of(&thread);
    let (reader, slot) = match open(&call, &thread, scope, &last).await {
        Ok(Connected::Reader(reader, slot)) => (reader, slot),
        Ok(Connected::NoMoreEvents(response)) => return Ok(response),
        // The client was connected before. An `EventSource` never reconnects after an error status,
        // but it does after a stream that ends.
        Err(reject) if last != LastEvent::None && wire == Wire::Sse && reject.is_passing() => {
            tracing::debug!(
                thread_id = thread.id(),
                ?reject,
                "a client is sent an empty stream, so that it reconnects later"
            );
            let mut empty = streamed(wire, Body::from(wire.beginning()), ids);
            empty.extensions_mut().insert(UpstreamNotAsked);
            return Ok(empty);
        }
        Err(reject) => return Err(reject),
    };
    let client = thread_name::viewer(&client_thread);
    let for_new = |client| Projector::new(client, ClientMessages::Unknown);
    let encoder = last
        .encoder(wire, client, thread.agent().emit, for_new)
        .with_comments(is_inspected && thread.agent().emit.raw);
    let reader = reader.at_shutdown(AtShutdown::BreakOff);
    let stream = EventStream { reader, encoder, slot, ids, answers: call.answers() };
    Ok(stream.into_response(&call.gateway.observer.metrics))
}

async fn open(
    call: &Call,
    thread: &Thread,
    scope: Scope,
    last: &LastEvent,
) -> Result<Connected, Reject> {
    if last.is_end() && scope == Scope::Present {
        return connect::no_more_events(call, thread).await.map(Connected::NoMoreEvents);
    }
    let slot = call.slot()?;
    let reader = connect::read(call, thread, scope, last).await?;
    Ok(Connected::Reader(Box::new(reader), slot))
}

/// The scope that a query asks for.
fn scope(query: &str) -> Result<Scope, Reject> {
    match param(query, "follow").as_deref() {
        None => Ok(Scope::Present),
        Some("thread") => Ok(Scope::Follow),
        Some(_) => Err(Reject::invalid(
            "the only value of `follow` is `thread`; send `follow=thread`, or leave `follow` out \
             to read the live run only",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_asks_for_the_live_run_or_for_the_whole_thread() {
        for (query, expected) in [
            ("", Some(Scope::Present)),
            ("x=1", Some(Scope::Present)),
            ("x=1&follow=thread", Some(Scope::Follow)),
            ("follow=run", None),
            ("follow=", None),
        ] {
            assert_eq!(scope(query).ok(), expected, "{query}");
        }
    }
}
