//! The threads of an agent: CopilotKit's client lists, names, archives, deletes and inspects them.
//!
//! | route | for |
//! |---|---|
//! | `GET /agui/threads?agentId=A` | a page of the threads on which an agent ran last |
//! | `PATCH /agui/threads/{thread}` | name a thread, or take it out of the archive |
//! | `POST /agui/threads/{thread}/archive` | put a thread away |
//! | `DELETE /agui/threads/{thread}` | delete it, and stop its run |
//! | `GET /agui/threads/{thread}/messages`, `/events`, `/state` | what it holds |
//!
//! All of it is asked of LangGraph with the caller's own credentials.

mod access;
mod inspect;

use std::borrow::Cow;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{RawQuery, Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{Method, StatusCode};
use serde_json::value::RawValue;

pub(super) use access::Access;
pub use access::ThreadRoutes;
pub(super) use inspect::Told;

use super::Gateway;
use super::auth::Streams;
use super::deeds::{self, Action};
use super::observe::About;
use super::reject::Reject;
use super::request::{InPath, ThreadName, read_json};
use crate::agents::Agent;
use crate::threads::{self, Change, ListQuery, Thread, ThreadCursor};
use crate::upstream::{Caller, ThreadRecord};
use threadway_translate::agui::{Client, RunId, Version};
use threadway_translate::json::{self, Json, Members, ObjectWriter};

/// How many threads a page has if the request gives no `limit`.
pub const DEFAULT_PAGE: usize = 100;

/// How many threads a page may have.
pub const MAX_PAGE: usize = 200;

/// The longest name of a thread, in characters.
pub const MAX_NAME_CHARS: usize = 1_000;

/// The largest body that is read: it holds a name.
const MAX_BODY_BYTES: usize = 16 * 1024;

/// What is asked of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Messages,
    Events,
    State,
}

pub(super) async fn list(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Response, Reject> {
    listed(&gateway, &caller, &query.unwrap_or_default()).await
}

pub(super) async fn change(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<Caller>,
    InPath(client_thread): InPath<String>,
    request: Request,
) -> Result<Response, Reject> {
    let body = read(request).await?;
    changed(&gateway, &caller, &client_thread, &body).await
}

pub(super) async fn archive(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<Caller>,
    InPath(client_thread): InPath<String>,
    request: Request,
) -> Result<Response, Reject> {
    let body = read(request).await?;
    archived(&gateway, &caller, &client_thread, &body).await
}

pub(super) async fn delete(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<Caller>,
    InPath(client_thread): InPath<String>,
    request: Request,
) -> Result<Response, Reject> {
    let body = read(request).await?;
    deleted(&gateway, &caller, &client_thread, &body).await
}

/// The body of a request, which is JSON.
async fn read(request: Request) -> Result<Bytes, Reject> {
    let (parts, body) = request.into_parts();
    read_json(&parts.headers, body, MAX_BODY_BYTES).await
}

pub(super) async fn inspect(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<Caller>,
    Extension(streams): Extension<Streams>,
    InPath((client_thread, part)): InPath<(String, String)>,
    RawQuery(query): RawQuery,
    request: Request,
) -> Result<Response, Reject> {
    let Some(part) = Part::named(&part) else {
        return Err(super::reject::unknown_route(request.uri().clone()).await);
    };
    // What is read for it may be as large as what a stream sends.
    let _slot = streams.slot()?;
    inspected(&gateway, &caller, &client_thread, part, &query.unwrap_or_default()).await
}

/// What an envelope of CopilotKit's single route asks of a thread: answered as its plain route
/// answers.
pub(super) async fn resource(
    gateway: &Gateway,
    caller: &Caller,
    streams: &Streams,
    method: &str,
    path: &str,
    body: &[u8],
) -> Result<Response, Reject> {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let segments: Option<Vec<_>> =
        path.strip_prefix('/').map(|path| path.split('/').map(decoded).collect());
    let segments: Vec<&str> = segments.iter().flatten().map(|segment| &**segment).collect();
    let Ok(method) = Method::from_bytes(method.to_ascii_uppercase().as_bytes()) else {
        return Err(Reject::wrong_resource_method());
    };
    let is_part = matches!(*segments, ["threads", _, _]);
    deeds::note(|deed| {
        deed.action = Action::on_threads(&method, is_part);
        if let ["threads", thread, ..] = *segments {
            deed.thread = Some(thread.to_owned());
        }
    });
    match (&method, &*segments) {
        (&Method::GET, ["threads"]) => listed(gateway, caller, query).await,
        (&Method::PATCH, ["threads", thread]) => changed(gateway, caller, thread, body).await,
        (&Method::DELETE, ["threads", thread]) => deleted(gateway, caller, thread, body).await,
        (&Method::POST, ["threads", thread, "archive"]) => {
            archived(gateway, caller, thread, body).await
        }
        (method, ["threads", thread, part]) if let Some(part) = Part::named(part) => {
            if method != Method::GET {
                return Err(Reject::wrong_resource_method());
            }
            let _slot = streams.slot()?;
            inspected(gateway, caller, thread, part, query).await
        }
        (_, ["threads"] | ["threads", _] | ["threads", _, "archive"]) => {
            Err(Reject::wrong_resource_method())
        }
        _ => Err(Reject::unknown_resource()),
    }
}

/// A segment of a path, with its escapes read.
fn decoded(segment: &str) -> Cow<'_, str> {
    // A form reads `+` as a space, and `=` and `&` as what parts it.
    let escaped = segment.replace('+', "%2B").replace('=', "%3D").replace('&', "%26");
    let mut pairs = form_urlencoded::parse(escaped.as_bytes());
    pairs.next().map_or(Cow::Borrowed(""), |(text, _)| Cow::Owned(text.into_owned()))
}

async fn listed(gateway: &Gateway, caller: &Caller, query: &str) -> Result<Response, Reject> {
    let param = |name| param(query, name);
    let name = param("agentId").ok_or_else(no_agent)?;
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
    let agent = permitted(gateway, caller, &name).await?;
    let query = ListQuery { limit, with_archived, after };
    let page = threads::list(&agent, &query).await;
    let page = page
        .map_err(|error| Reject::upstream(&error, agent.upstream.caller(), gateway.error_detail))?;
    let threads: Vec<_> = page.threads.iter().map(|thread| told(thread, &name)).collect();
    let answer = ObjectWriter::new()
        .raw("threads", json::array(threads.iter().map(|thread| thread.get())).get());
    let answer = match page.next {
        Some(next) => answer.string("nextCursor", &next.to_string()),
        None => answer.raw("nextCursor", "null"),
    };
    Ok(answered(&answer.finish(), None))
}

/// A thread as CopilotKit's client reads it. The members that LangGraph has nothing for are empty.
fn told(thread: &ThreadRecord, agent: &str) -> Json {
    // Whoever may change the metadata could name another thread there.
    let is_its_own = |name: &String| ThreadName::of(name).id == thread.id;
    let id = thread.client_id().filter(is_its_own).unwrap_or_else(|| thread.id.clone());
    let time = |time: &Option<String>| time.clone().unwrap_or_default();
    let told = ObjectWriter::new()
        .string("id", &id)
        .string("organizationId", "")
        .string("agentId", agent)
        .string("createdById", "");
    let told = match thread.title() {
        Some(name) => told.string("name", &name),
        None => told.raw("name", "null"),
    };
    let told = told
        .raw("archived", if thread.is_archived() { "true" } else { "false" })
        .string("createdAt", &time(&thread.created_at))
        .string("updatedAt", &time(&thread.updated_at));
    match &thread.state_updated_at {
        Some(time) => told.string("lastRunAt", time),
        None => told,
    }
    .finish()
}

async fn changed(
    gateway: &Gateway,
    caller: &Caller,
    client_thread: &str,
    body: &[u8],
) -> Result<Response, Reject> {
    let body = Body::parse(body)?;
    let name = match body.members.get("name") {
        None => None,
        Some(name) if name.get() == "null" => Some(None),
        Some(name) => {
            let name = json::string(name).filter(|name| name.chars().count() <= MAX_NAME_CHARS);
            let wrong = || {
                Reject::invalid(format!(
                    "`name` is not a text of at most {MAX_NAME_CHARS} characters, or null"
                ))
            };
            Some(Some(name.ok_or_else(wrong)?.into_owned()))
        }
    };
    let is_archived = match body.members.get("archived").map(RawValue::get) {
        None => None,
        Some("true") => Some(true),
        Some("false") => Some(false),
        Some(_) => return Err(Reject::invalid("`archived` is not true or false")),
    };
    let change = Change { name, is_archived };
    if change == Change::default() {
        return Err(Reject::invalid("nothing is to be changed; send `name` or `archived`"));
    }
    let thread = body.thread(gateway, caller, client_thread).await?;
    make(gateway, &thread, &change).await?;
    let mut answer = ObjectWriter::new().string("threadId", client_thread);
    if let Some(name) = &change.name {
        answer = match name {
            Some(name) => answer.string("name", name),
            None => answer.raw("name", "null"),
        };
    }
    if let Some(is_archived) = change.is_archived {
        answer = answer.raw("archived", if is_archived { "true" } else { "false" });
    }
    Ok(answered(&answer.finish(), Some(&thread)))
}

async fn archived(
    gateway: &Gateway,
    caller: &Caller,
    client_thread: &str,
    body: &[u8],
) -> Result<Response, Reject> {
    let thread = Body::parse(body)?.thread(gateway, caller, client_thread).await?;
    make(gateway, &thread, &Change { name: None, is_archived: Some(true) }).await?;
    let answer = ObjectWriter::new().string("threadId", client_thread).raw("archived", "true");
    Ok(answered(&answer.finish(), Some(&thread)))
}

async fn make(gateway: &Gateway, thread: &Thread, change: &Change) -> Result<(), Reject> {
    match thread.change(change).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(Reject::unknown_thread()),
        Err(refusal) => Err(gateway.refuse(&refusal, thread)),
    }
}

async fn deleted(
    gateway: &Gateway,
    caller: &Caller,
    client_thread: &str,
    body: &[u8],
) -> Result<Response, Reject> {
    let body = Body::parse(body)?;
    let thread = body.thread(gateway, caller, client_thread).await?;
    match thread.delete().await {
        Ok(true) => {}
        Ok(false) => return Err(Reject::unknown_thread()),
        Err(refusal) => return Err(gateway.refuse(&refusal, &thread)),
    }
    tracing::info!(agent = &*body.agent, thread_id = thread.id(), "thread deleted");
    let answer = ObjectWriter::new().string("threadId", client_thread).raw("deleted", "true");
    Ok(answered(&answer.finish(), Some(&thread)))
}

async fn inspected(
    gateway: &Gateway,
    caller: &Caller,
    client_thread: &str,
    part: Part,
    query: &str,
) -> Result<Response, Reject> {
    let agent = match param(query, "agentId") {
        Some(name) => permitted(gateway, caller, &name).await?,
        None => agent_of(gateway, caller, client_thread).await?,
    };
    let thread = gateway.thread(agent, client_thread);
    let held = Box::pin(thread.snapshot()).await;
    let held = held.map_err(|refusal| gateway.refuse(&refusal, &thread))?;
    let told = Told::read(held.reader, viewer(client_thread)).await;
    let answer = match part {
        Part::Messages => told.inspected_messages(),
        Part::Events => told.inspected_events(),
        Part::State => told.inspected_state(),
    };
    Ok(answered(&answer, Some(&thread)))
}

/// A client that reads a thread, and has no name for its runs.
pub(super) fn viewer(client_thread: &str) -> Client {
    Client {
        thread_id: client_thread.to_owned(),
        run_id: RunId::Unnamed,
        parent_run_id: None,
        version: Version::V1,
    }
}

/// The agent that ran last on a thread: CopilotKit's inspector does not name it.
async fn agent_of(
    gateway: &Gateway,
    caller: &Caller,
    client_thread: &str,
) -> Result<Agent, Reject> {
    let id = ThreadName::of(client_thread).id;
    let mut refused = None;
    for upstream in gateway.agents.upstreams() {
        let client = upstream.client.called_by(caller);
        if let Err(reject) = gateway.thread_access.expect(&client).await {
            refused = refused.or(Some(reject));
            continue;
        }
        let found = match client.listed_thread(&id).await {
            Ok(found) => found,
            // The thread may be another upstream's.
            Err(error) => {
                let reject = Reject::upstream(&error, client.caller(), gateway.error_detail);
                refused = refused.or(Some(reject));
                continue;
            }
        };
        let Some(found) = found else { continue };
        let (graph, assistant) = found.ran();
        let own_name = graph.or(assistant).unwrap_or_default();
        let name = gateway.agents.name_at(upstream, &own_name);
        return gateway.agent(&name, caller);
    }
    Err(refused.unwrap_or_else(Reject::unknown_thread))
}

/// The agent of a name, whose threads the caller may list.
async fn permitted(gateway: &Gateway, caller: &Caller, name: &str) -> Result<Agent, Reject> {
    let agent = gateway.agent(name, caller)?;
    gateway.thread_access.expect(&agent.upstream).await?;
    Ok(agent)
}

fn answered(answer: &Json, thread: Option<&Thread>) -> Response {
    let headers = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
    let body = format!("{}\n", answer.get());
    let mut response = (StatusCode::OK, headers, body).into_response();
    if let Some(thread) = thread {
        let about = About { thread_id: thread.id().to_owned(), run_id: None };
        response.extensions_mut().insert(about);
    }
    response
}

/// The first value of a name in a query.
pub(super) fn param<'a>(query: &'a str, name: &str) -> Option<Cow<'a, str>> {
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    pairs.find(|(key, _)| key == name).map(|(_, value)| value)
}

fn no_agent() -> Reject {
    Reject::invalid("`agentId` is missing; name the agent whose threads are meant")
}

/// The body of a request that changes a thread.
struct Body<'a> {
    agent: Cow<'a, str>,
    members: Members<'a>,
}

// === impl Body ===

impl<'a> Body<'a> {
    fn parse(body: &'a [u8]) -> Result<Self, Reject> {
        let value: &RawValue = serde_json::from_slice(body)
            .map_err(|error| Reject::invalid(format!("the body is not JSON: {error}")))?;
        let members = json::members(value).unwrap_or_default();
        let agent = members.string("agentId").ok_or_else(no_agent)?;
        Ok(Self { agent, members })
    }

    /// The thread that is meant, if the caller may change it.
    async fn thread(
        &self,
        gateway: &Gateway,
        caller: &Caller,
        client_thread: &str,
    ) -> Result<Thread, Reject> {
        let agent = permitted(gateway, caller, &self.agent).await?;
        Ok(gateway.thread(agent, client_thread))
    }
}

// === impl Part ===

impl Part {
    fn named(name: &str) -> Option<Self> {
        match name {
            "messages" => Some(Self::Messages),
            "events" => Some(Self::Events),
            "state" => Some(Self::State),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_of_a_path_is_read_as_a_path_is() {
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

    #[test]
    fn a_thread_goes_by_its_clients_name_only_if_that_is_its_own() {
        let listed = |id: &str, client_id: &str| {
            let metadata = ObjectWriter::new().string("threadway_thread_id", client_id).finish();
            let record = format!(r#"{{"thread_id":"{id}","metadata":{}}}"#, metadata.get());
            let told = told(&ThreadRecord::parse(&record).unwrap(), "agent");
            json::members(&told).unwrap().string("id").unwrap().into_owned()
        };
        let (id, other) =
            ("e817c419-7e64-5f51-8a5c-c4cf14d1fb2d", "01a200b7-5ee5-70e2-95e8-b76fe45c0278");
        assert_eq!(listed(id, "my thread"), "my thread");
        assert_eq!(listed(id, "another's"), id);
        assert_eq!(listed(id, other), id);
        assert_eq!(listed(other, "my thread"), other);
    }
}
