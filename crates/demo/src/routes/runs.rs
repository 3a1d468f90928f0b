//! The routes of runs: start, list, follow, stop.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use uuid::Uuid;

use super::Query;
use crate::Server;
use crate::listen::{Cursor, Listener, Output};
use crate::request::{OnDisconnect, RunBody};
use crate::run::{Action, Run, Stop};
use crate::wire::{self, Again, Refusal, answer, awaited, locate, streamed, uuid};

/// The members of a record that `select` can choose.
const COLUMNS: [&str; 10] = [
    "run_id",
    "thread_id",
    "assistant_id",
    "metadata",
    "status",
    "kwargs",
    "multitask_strategy",
    "created_at",
    "updated_at",
    "langsmith_session_name",
];

pub(super) async fn create(
    State(server): State<Arc<Server>>,
    Path(thread): Path<String>,
    request: Request,
) -> Result<Response, Refusal> {
    let (run, _) = start(&server, &thread, request).await?;
    let mut response = answer(&run.record());
    locate(&mut response, run.thread_id, run.id, None);
    Ok(response)
}

pub(super) async fn stream(
    State(server): State<Arc<Server>>,
    Path(thread): Path<String>,
    request: Request,
) -> Result<Response, Refusal> {
    let (run, on_disconnect) = start(&server, &thread, request).await?;
    Ok(follow(&server, run, Output::Parts(Cursor::first()), on_disconnect))
}

pub(super) async fn wait(
    State(server): State<Arc<Server>>,
    Path(thread): Path<String>,
    request: Request,
) -> Result<Response, Refusal> {
    let (run, on_disconnect) = start(&server, &thread, request).await?;
    Ok(follow(&server, run, Output::Result, on_disconnect))
}

async fn start(
    server: &Arc<Server>,
    thread: &str,
    request: Request,
) -> Result<(Arc<Run>, OnDisconnect), Refusal> {
    let id = uuid("thread", thread)?;
    let body: RunBody = wire::read(request).await?;
    let on_disconnect = body.on_disconnect.unwrap_or(OnDisconnect::Continue);
    Ok((server.start(id, body)?, on_disconnect))
}

pub(super) async fn list(
    State(server): State<Arc<Server>>,
    Path(thread): Path<String>,
    query: Query,
) -> Result<Response, Refusal> {
    let id = uuid("thread", &thread)?;
    let (limit, offset) = (query.number("limit", 10)?, query.number("offset", 0)?);
    let status = query.get("status");
    let columns: Vec<_> = query.all("select").collect();
    if let Some(other) = columns.iter().find(|column| !COLUMNS.contains(column)) {
        return Err(Refusal::invalid(format!("Invalid select columns: ['{other}']")));
    }
    let selected = |mut record: Value| {
        if let Some(members) = record.as_object_mut().filter(|_| !columns.is_empty()) {
            members.retain(|name, _| columns.contains(&&**name));
        }
        record
    };
    let store = server.store();
    let runs = store.thread(id)?.runs.iter().rev();
    let runs = runs.filter(|run| status.is_none_or(|status| status == run.status().as_str()));
    let page = runs.skip(offset).take(limit).map(|run| selected(run.record()));
    Ok(answer(&Value::Array(page.collect())))
}

pub(super) async fn one(
    State(server): State<Arc<Server>>,
    Path(ids): Path<(String, String)>,
) -> Result<Response, Refusal> {
    let run = find(&server, &ids)?.ok_or_else(|| Refusal::not_found("Not Found"))?;
    Ok(answer(&run.record()))
}

pub(super) async fn remove(
    State(server): State<Arc<Server>>,
    Path(ids): Path<(String, String)>,
) -> Result<Response, Refusal> {
    let run = find(&server, &ids)?.ok_or_else(|| Refusal::not_found("Run not found"))?;
    server.stop(&run, Stop { action: Action::Interrupt, reason: "the run was deleted" });
    server.wait(&run).await;
    if let Ok(thread) = server.store().thread_mut(run.thread_id) {
        thread.runs.retain(|kept| kept.id != run.id);
    }
    Ok(wire::empty(StatusCode::NO_CONTENT))
}

pub(super) async fn join(
    State(server): State<Arc<Server>>,
    Path(ids): Path<(String, String)>,
    query: Query,
) -> Result<Response, Refusal> {
    let Some(run) = find(&server, &ids)? else {
        let error = json!({"__error__": not_found()});
        return missing(&ids, awaited(Body::from(error.to_string())), Again::Join);
    };
    Ok(follow(&server, run, Output::Result, on_disconnect_of(&query)))
}

pub(super) async fn join_stream(
    State(server): State<Arc<Server>>,
    Path(ids): Path<(String, String)>,
    query: Query,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let Some(run) = find(&server, &ids)? else {
        let frame = wire::frame("error", &not_found().to_string(), None);
        return missing(&ids, streamed(Body::from(frame)), Again::Stream);
    };
    let last_event_id = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let cursor = Cursor::join(&run, last_event_id, modes(&query));
    Ok(follow(&server, run, Output::Parts(cursor), on_disconnect_of(&query)))
}

pub(super) async fn cancel(
    State(server): State<Arc<Server>>,
    Path(ids): Path<(String, String)>,
    query: Query,
) -> Result<Response, Refusal> {
    let run = find(&server, &ids)?.ok_or_else(|| Refusal::not_found("No runs found to cancel."))?;
    if run.status().is_over() {
        return Err(Refusal::not_found(
            "No matching runs to cancel. Please verify the thread ID and run IDs are correct, and \
             the runs haven't been deleted or completed.",
        ));
    }
    let (action, reason) = match query.get("action") {
        Some("rollback") => (
            Action::Rollback,
            "rollback requested via POST /threads/{thread_id}/runs/{run_id}/cancel",
        ),
        Some("interrupt") | None => (
            Action::Interrupt,
            "interrupt requested via POST /threads/{thread_id}/runs/{run_id}/cancel",
        ),
        Some(other) => return Err(Refusal::invalid(format!("Invalid action {other}"))),
    };
    server.stop(&run, Stop { action, reason });
    if !query.is_set("wait") {
        return Ok(wire::empty(StatusCode::ACCEPTED));
    }
    Ok(follow(&server, run, Output::End, OnDisconnect::Continue))
}

/// The response that follows a run.
fn follow(
    server: &Arc<Server>,
    run: Arc<Run>,
    output: Output,
    on_disconnect: OnDisconnect,
) -> Response {
    let (thread, id) = (run.thread_id, run.id);
    let is_stream = matches!(output, Output::Parts(_));
    let body = Listener::new(server, run, output, on_disconnect).body();
    let (mut response, again) =
        if is_stream { (streamed(body), Again::Stream) } else { (awaited(body), Again::Join) };
    locate(&mut response, thread, id, Some(again));
    response
}

/// The run, if the thread has it.
fn find(server: &Server, ids: &(String, String)) -> Result<Option<Arc<Run>>, Refusal> {
    let (thread, run) = parse(ids)?;
    Ok(server.store().thread(thread).ok().and_then(|thread| thread.run(run)).cloned())
}

fn parse((thread, run): &(String, String)) -> Result<(Uuid, Uuid), Refusal> {
    Ok((uuid("thread", thread)?, uuid("run", run)?))
}

fn not_found() -> Value {
    json!({"error": "HTTPException", "message": "404: Run not found"})
}

/// For a stream of an unknown run, the error is in the stream.
fn missing(
    ids: &(String, String),
    mut response: Response,
    again: Again,
) -> Result<Response, Refusal> {
    let (thread, run) = parse(ids)?;
    locate(&mut response, thread, run, Some(again));
    Ok(response)
}

/// The parts that a joining client selects: `stream_mode` is a mode, or a JSON list of modes.
fn modes(query: &Query) -> Option<Vec<String>> {
    let asked = query.get("stream_mode")?;
    let list = serde_json::from_str(asked).unwrap_or_else(|_| vec![asked.to_owned()]);
    let event = |mode: String| if mode == "messages-tuple" { "messages".to_owned() } else { mode };
    Some(list.into_iter().map(event).collect())
}

fn on_disconnect_of(query: &Query) -> OnDisconnect {
    if query.is_set("cancel_on_disconnect") { OnDisconnect::Cancel } else { OnDisconnect::Continue }
}
