//! The threads of an agent, for CopilotKit's client.
//!
//! | route | for |
//! |---|---|
//! | `GET /agui/threads?agentId=A` | a page of the threads on which an agent ran last |
//! | `PATCH /agui/threads/{thread}` | name a thread, archive it, or restore it |
//! | `POST /agui/threads/{thread}/archive` | archive a thread |
//! | `DELETE /agui/threads/{thread}` | delete a thread, and stop its run |
//! | `GET /agui/threads/{thread}/messages`, `/events`, `/state` | read a thread |
//!
//! `auth/access.rs` says which callers may use these routes. LangGraph gets every request with the
//! caller's own credentials.

use std::borrow::Cow;

use axum::extract::{RawQuery, Request};
use axum::response::Response;
use http::Method;

use crate::server::body::read_json;
use crate::server::gateway::RequestContext;
use crate::server::observe::RunIds;
use crate::server::observe::request_log::AuditedAction;
use crate::server::reject::{self, Reject};
use crate::server::request::query::{PathParams, param};
use crate::server::response::{about_thread, large_json, uncached_json};
use crate::server::service::threads::inspect::{self, ThreadPart};
use crate::server::service::threads::{change, list, no_agent};
use crate::threads::{ListQuery, ThreadCursor};
use threadway_translate::json::{self, Json};

/// How many threads a page has by default.
const DEFAULT_PAGE: usize = 100;

/// The largest `limit`: how many threads a page may have.
const MAX_PAGE: usize = 200;

/// The largest request body: it holds a name.
const MAX_BODY_BYTES: usize = 16 * 1024;

pub(super) async fn list(
    context: RequestContext,
    RawQuery(query): RawQuery,
) -> Result<Response, Reject> {
    listed(&context, &query.unwrap_or_default()).await
}

/// Serves the page that a query asks for.
async fn listed(context: &RequestContext, query: &str) -> Result<Response, Reject> {
    let param = |name| param(query, name);
    let agent = param("agentId").ok_or_else(no_agent)?;
    let number = |text: &str| text.parse().ok().filter(|limit| (1..=MAX_PAGE).contains(limit));
    let limit = match param("limit") {
        None => DEFAULT_PAGE,
        Some(text) => number(&text).ok_or_else(|| {
            Reject::invalid(format!("`limit` is not a number from 1 to {MAX_PAGE}"))
        })?,
    };
    let after = param("cursor").filter(|cursor| !cursor.is_empty());
    let after = after.map(|cursor| cursor.parse::<ThreadCursor>()).transpose();
    let after = after.map_err(|error| Reject::invalid(error.to_string()))?;
    let with_archived = param("includeArchived").as_deref() == Some("true");
    let query = ListQuery { limit, with_archived, after };
    list::list(context, &agent, &query).await.map(|list| uncached_json(&list))
}

pub(super) async fn change(
    context: RequestContext,
    PathParams(client_thread): PathParams<String>,
    request: Request,
) -> Result<Response, Reject> {
    answered(change::change(&context, &client_thread, &read(&context, request).await?).await)
}

pub(super) async fn archive(
    context: RequestContext,
    PathParams(client_thread): PathParams<String>,
    request: Request,
) -> Result<Response, Reject> {
    answered(change::archive(&context, &client_thread, &read(&context, request).await?).await)
}

pub(super) async fn delete(
    context: RequestContext,
    PathParams(client_thread): PathParams<String>,
    request: Request,
) -> Result<Response, Reject> {
    answered(change::delete(&context, &client_thread, &read(&context, request).await?).await)
}

/// The body of a request, which is JSON. A page may cut a thread's name in the middle of an emoji.
async fn read(context: &RequestContext, request: Request) -> Result<Vec<u8>, Reject> {
    let (parts, body) = request.into_parts();
    let body = read_json(context, &parts.headers, body, MAX_BODY_BYTES).await?;
    Ok(json::mend_bytes(&body).into_owned())
}

pub(super) async fn inspect(
    context: RequestContext,
    PathParams((client_thread, part)): PathParams<(String, String)>,
    RawQuery(query): RawQuery,
    request: Request,
) -> Result<Response, Reject> {
    let Some(part) = ThreadPart::named(&part) else {
        return Err(reject::unknown_route(request.uri().clone()).await);
    };
    // The thread may be as large as what a stream sends, so reading it takes a slot.
    let _slot = context.slot()?;
    inspected(&context, &client_thread, part, &query.unwrap_or_default()).await
}

/// Serves what the single route asks of a thread, as the plain route does. `path` is below `/agui`.
pub(super) async fn resource(
    context: &RequestContext,
    method: &str,
    path: &str,
    body: &[u8],
) -> Result<Response, Reject> {
    let body = &*json::mend_bytes(body);
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let segments: Option<Vec<_>> =
        path.strip_prefix('/').map(|path| path.split('/').map(decoded).collect());
    let segments: Vec<&str> = segments.iter().flatten().map(|segment| &**segment).collect();
    let Ok(method) = Method::from_bytes(method.to_ascii_uppercase().as_bytes()) else {
        return Err(Reject::wrong_resource_method());
    };
    let is_part = matches!(*segments, ["threads", _, _]);
    context.record.note(|facts| {
        facts.action = AuditedAction::on_threads(&method, is_part);
        if let ["threads", thread, ..] = *segments {
            facts.thread = Some(thread.to_owned());
        }
    });
    match (&method, &*segments) {
        (&Method::GET, ["threads"]) => listed(context, query).await,
        (&Method::PATCH, ["threads", thread]) => {
            answered(change::change(context, thread, body).await)
        }
        (&Method::DELETE, ["threads", thread]) => {
            answered(change::delete(context, thread, body).await)
        }
        (&Method::POST, ["threads", thread, "archive"]) => {
            answered(change::archive(context, thread, body).await)
        }
        (method, ["threads", thread, part]) if let Some(part) = ThreadPart::named(part) => {
            if method != Method::GET {
                return Err(Reject::wrong_resource_method());
            }
            let _slot = context.slot()?;
            inspected(context, thread, part, query).await
        }
        (_, ["threads"] | ["threads", _] | ["threads", _, "archive"]) => {
            Err(Reject::wrong_resource_method())
        }
        _ => Err(Reject::unknown_resource()),
    }
}

/// Decodes the percent escapes of a segment of a path.
fn decoded(segment: &str) -> Cow<'_, str> {
    // The decoder is one for forms: it would read `+` as a space, and split at `=` and `&`.
    let escaped = segment.replace('+', "%2B").replace('=', "%3D").replace('&', "%26");
    let mut pairs = form_urlencoded::parse(escaped.as_bytes());
    pairs.next().map_or(Cow::Borrowed(""), |(text, _)| Cow::Owned(text.into_owned()))
}

/// The response to a change of a thread.
fn answered(changed: Result<(Json, RunIds), Reject>) -> Result<Response, Reject> {
    changed.map(|(answer, ids)| about_thread(uncached_json(&answer), ids))
}

/// Serves what a thread contains.
async fn inspected(
    context: &RequestContext,
    client_thread: &str,
    part: ThreadPart,
    query: &str,
) -> Result<Response, Reject> {
    let agent = param(query, "agentId");
    let read = inspect::inspect(context, client_thread, part, agent.as_deref()).await;
    read.map(|(document, ids)| about_thread(large_json(document), ids))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_decoded_as_a_path_and_not_as_a_form() {
        for (segment, text) in [
            ("my%20thread", "my thread"),
            ("a+b", "a+b"),
            ("a=b&c", "a=b&c"),
            ("a%2Fb%3D", "a/b="),
            ("%C3%A9", "é"),
            ("", ""),
        ] {
            assert_eq!(decoded(segment), text, "{segment}");
        }
    }
}
