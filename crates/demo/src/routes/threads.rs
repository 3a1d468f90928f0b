//! The routes of threads: create, search, change, delete, and read and update states.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::response::Response;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Query, contains};
use crate::request::CheckpointBody;
use crate::state::{Values, merged, size};
use crate::thread::Thread;
use crate::wire::{self, Refusal, answer, page, uuid};
use crate::{MAX_BODY_BYTES, Server};

/// The largest page of threads.
const MAX_PAGE: usize = 1_000;

#[derive(Debug, Deserialize)]
struct New {
    #[serde(default)]
    thread_id: Option<String>,
    #[serde(default)]
    metadata: Option<Values>,
    #[serde(default)]
    if_exists: Option<IfExists>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum IfExists {
    Raise,
    DoNothing,
}

#[derive(Debug, Deserialize)]
struct Search {
    #[serde(default)]
    ids: Option<Vec<String>>,
    #[serde(default)]
    metadata: Option<Values>,
    #[serde(default)]
    values: Option<Values>,
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    limit: Option<usize>,
    #[serde(default)]
    offset: Option<usize>,
    #[serde(default)]
    sort_by: Option<SortBy>,
    #[serde(default)]
    sort_order: Option<SortOrder>,
    #[serde(default)]
    select: Option<Vec<Field>>,
}

/// The members that a search can sort by.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SortBy {
    ThreadId,
    Status,
    CreatedAt,
    UpdatedAt,
    StateUpdatedAt,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SortOrder {
    Asc,
    Desc,
}

/// The members of a record that a search can select. Missing members are left out.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Field {
    ThreadId,
    CreatedAt,
    UpdatedAt,
    StateUpdatedAt,
    Metadata,
    Config,
    Status,
    Values,
    Interrupts,
}

#[derive(Debug, Deserialize)]
struct Change {
    #[serde(default)]
    metadata: Option<Values>,
}

#[derive(Debug, Deserialize)]
struct Update {
    #[serde(default)]
    values: Value,
    #[serde(default)]
    as_node: Option<String>,
    #[serde(default)]
    checkpoint_id: Option<String>,
    #[serde(default)]
    checkpoint: Option<CheckpointBody>,
}

#[derive(Debug, Deserialize)]
struct StateOf {
    checkpoint: CheckpointBody,
}

#[derive(Debug, Deserialize)]
struct History {
    #[serde(default)]
    limit: Option<usize>,
    #[serde(default)]
    before: Option<Before>,
    #[serde(default)]
    metadata: Option<Values>,
    #[serde(default)]
    checkpoint: Option<CheckpointBody>,
}

#[derive(Debug, Deserialize)]
struct Before {
    configurable: CheckpointBody,
}

pub(super) async fn create(
    State(server): State<Arc<Server>>,
    request: Request,
) -> Result<Response, Refusal> {
    let new: New = wire::read(request).await?;
    let id = match &new.thread_id {
        Some(id) => uuid("thread", id)?,
        None => server.clock.id(),
    };
    let mut store = server.store();
    if store.has(id) {
        if new.if_exists.unwrap_or(IfExists::Raise) == IfExists::Raise {
            return Err(Refusal::conflict(format!("Thread with ID {id} already exists")));
        }
        return Ok(answer(&store.thread(id)?.record()));
    }
    let thread = store.create(id, new.metadata.unwrap_or_default(), &server.clock)?;
    Ok(answer(&thread.record()))
}

pub(super) async fn copy(
    State(server): State<Arc<Server>>,
    Path(thread): Path<String>,
) -> Result<Response, Refusal> {
    let source = uuid("thread", &thread)?;
    let id = server.clock.id();
    Ok(answer(&server.store().copy(source, id, &server.clock)?.record()))
}

pub(super) async fn search(
    State(server): State<Arc<Server>>,
    request: Request,
) -> Result<Response, Refusal> {
    let search: Search = wire::read(request).await?;
    let limit = search.limit.unwrap_or(10);
    if !(1..=MAX_PAGE).contains(&limit) {
        return Err(Refusal::invalid(format!("limit: {limit} is not within 1 and {MAX_PAGE}")));
    }
    Ok(page(search.found(&server), search.offset.unwrap_or(0), limit))
}

pub(super) async fn count(
    State(server): State<Arc<Server>>,
    request: Request,
) -> Result<Response, Refusal> {
    let search: Search = wire::read(request).await?;
    Ok(answer(&json!(search.found(&server).len())))
}

pub(super) async fn one(
    State(server): State<Arc<Server>>,
    Path(thread): Path<String>,
) -> Result<Response, Refusal> {
    let id = uuid("thread", &thread)?;
    Ok(answer(&server.store().thread(id)?.record()))
}

pub(super) async fn change(
    State(server): State<Arc<Server>>,
    Path(thread): Path<String>,
    request: Request,
) -> Result<Response, Refusal> {
    let id = uuid("thread", &thread)?;
    let is_minimal = request.headers().get("prefer").is_some_and(|value| value == "return=minimal");
    let change: Change = wire::read(request).await?;
    let now = server.clock.now();
    let mut store = server.store();
    // Here the real server answers with a shorter text than elsewhere.
    let thread = store.thread_mut(id).map_err(|_| Refusal::not_found("Not Found"))?;
    let added = change.metadata.unwrap_or_default();
    if size(&thread.metadata) + size(&added) > MAX_BODY_BYTES {
        return Err(Refusal::invalid(format!("metadata of more than {MAX_BODY_BYTES} bytes")));
    }
    thread.metadata.extend(added);
    thread.updated_at = now;
    if is_minimal {
        return Ok(wire::empty(StatusCode::NO_CONTENT));
    }
    Ok(answer(&thread.record()))
}

pub(super) async fn remove(
    State(server): State<Arc<Server>>,
    Path(thread): Path<String>,
) -> Result<Response, Refusal> {
    server.remove_thread(uuid("thread", &thread)?)?;
    Ok(wire::empty(StatusCode::NO_CONTENT))
}

pub(super) async fn state(
    State(server): State<Arc<Server>>,
    Path(thread): Path<String>,
) -> Result<Response, Refusal> {
    let id = uuid("thread", &thread)?;
    let store = server.store();
    let thread = store.thread(id)?;
    Ok(answer(&thread.state(thread.newest())))
}

pub(super) async fn state_at(
    State(server): State<Arc<Server>>,
    Path((thread, checkpoint)): Path<(String, String)>,
) -> Result<Response, Refusal> {
    let state = state_there(&server, &thread, &checkpoint)?;
    // Here the real server leaves the namespace out of the checkpoint.
    let place = json!({"checkpoint_id": state.get("checkpoint_id"), "thread_id": thread});
    Ok(answer(&merged(state, json!({"checkpoint": place}))))
}

pub(super) async fn state_of(
    State(server): State<Arc<Server>>,
    Path(thread): Path<String>,
    request: Request,
) -> Result<Response, Refusal> {
    let asked: StateOf = wire::read(request).await?;
    let checkpoint = asked.checkpoint.checkpoint_id.unwrap_or_default();
    Ok(answer(&state_there(&server, &thread, &checkpoint)?))
}

/// The state at a checkpoint. For an unknown checkpoint only the id is set.
fn state_there(server: &Server, thread: &str, checkpoint: &str) -> Result<Value, Refusal> {
    let (id, checkpoint) = (uuid("thread", thread)?, uuid("checkpoint", checkpoint)?);
    let store = server.store();
    let thread = store.thread(id)?;
    let name = json!({"checkpoint_id": checkpoint.to_string()});
    Ok(merged(thread.state(thread.checkpoint(checkpoint)), name))
}

pub(super) async fn update(
    State(server): State<Arc<Server>>,
    Path(thread): Path<String>,
    request: Request,
) -> Result<Response, Refusal> {
    let id = uuid("thread", &thread)?;
    let update: Update = wire::read(request).await?;
    let values = match update.values {
        Value::Null => vec![],
        Value::Object(values) => vec![values],
        Value::Array(list) => list
            .into_iter()
            .map(serde_json::from_value)
            .collect::<Result<_, _>>()
            .map_err(|error| Refusal::invalid(error.to_string()))?,
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            return Err(Refusal::invalid("`values` is neither an object nor a list of them"));
        }
    };
    let checkpoint = update.checkpoint.and_then(|checkpoint| checkpoint.checkpoint_id);
    let checkpoint = update.checkpoint_id.or(checkpoint);
    let checkpoint = checkpoint.map(|id| uuid("checkpoint", &id)).transpose()?;
    let made = server.update_state(id, values, update.as_node.as_deref(), checkpoint)?;
    Ok(answer(&made))
}

pub(super) async fn history(
    State(server): State<Arc<Server>>,
    Path(thread): Path<String>,
    query: Query,
) -> Result<Response, Refusal> {
    let id = uuid("thread", &thread)?;
    let limit = query.number("limit", 1)?;
    past(&server, id, limit, query.get("before"), None)
}

pub(super) async fn history_of(
    State(server): State<Arc<Server>>,
    Path(thread): Path<String>,
    request: Request,
) -> Result<Response, Refusal> {
    let id = uuid("thread", &thread)?;
    let asked: History = wire::read(request).await?;
    let at = asked.checkpoint.and_then(|checkpoint| checkpoint.checkpoint_id);
    if at.is_some() {
        return Err(Refusal::invalid(
            "the demo does not support a history by `checkpoint`; use `before`",
        ));
    }
    let before = asked.before.and_then(|before| before.configurable.checkpoint_id);
    past(&server, id, asked.limit.unwrap_or(1), before.as_deref(), asked.metadata.as_ref())
}

/// A thread's states, newest first, starting after `before`.
fn past(
    server: &Server,
    id: Uuid,
    limit: usize,
    before: Option<&str>,
    metadata: Option<&Values>,
) -> Result<Response, Refusal> {
    let before = before.map(|id| uuid("checkpoint", id)).transpose()?;
    let store = server.store();
    let thread = store.thread(id)?;
    let mut checkpoints = thread.newest_first();
    if let Some(before) = before {
        // An unknown checkpoint has no predecessors.
        checkpoints.find(|checkpoint| checkpoint.id == before);
    }
    let states = checkpoints.map(|checkpoint| thread.state(Some(checkpoint)));
    let states = states.filter(|state| contains(&state["metadata"], metadata));
    Ok(answer(&Value::Array(states.take(limit).collect())))
}

// === impl Search ===

impl Search {
    /// The matching threads. By default the last changed one comes first.
    fn found(&self, server: &Server) -> Vec<Value> {
        let store = server.store();
        let is_found = |thread: &&Thread| {
            self.ids.as_ref().is_none_or(|ids| ids.contains(&thread.id.to_string()))
                && self.status.as_deref().is_none_or(|status| status == thread.status())
        };
        let mut found: Vec<_> = store.threads().filter(is_found).collect();
        found.sort_by(|a, b| {
            let order = match self.sort_by.unwrap_or(SortBy::UpdatedAt) {
                SortBy::ThreadId => a.id.cmp(&b.id),
                SortBy::Status => a.status().cmp(b.status()),
                SortBy::CreatedAt => a.created_at.cmp(&b.created_at),
                SortBy::UpdatedAt => a.updated_at.cmp(&b.updated_at),
                SortBy::StateUpdatedAt => a.state_updated_at.cmp(&b.state_updated_at),
            };
            match self.sort_order.unwrap_or(SortOrder::Desc) {
                SortOrder::Asc => order.then(a.id.cmp(&b.id)),
                SortOrder::Desc => order.reverse().then(b.id.cmp(&a.id)),
            }
        });
        let records = found.into_iter().map(Thread::record);
        let has = |record: &Value| {
            contains(&record["metadata"], self.metadata.as_ref())
                && contains(&record["values"], self.values.as_ref())
        };
        records.filter(has).map(|record| self.selected(record)).collect()
    }

    /// The selected members of a record.
    fn selected(&self, mut record: Value) -> Value {
        if let (Some(select), Some(members)) = (&self.select, record.as_object_mut())
            && !select.is_empty()
        {
            members.retain(|name, _| select.iter().any(|field| field.name() == name));
        }
        record
    }
}

// === impl Field ===

impl Field {
    fn name(self) -> &'static str {
        match self {
            Self::ThreadId => "thread_id",
            Self::CreatedAt => "created_at",
            Self::UpdatedAt => "updated_at",
            Self::StateUpdatedAt => "state_updated_at",
            Self::Metadata => "metadata",
            Self::Config => "config",
            Self::Status => "status",
            Self::Values => "values",
            Self::Interrupts => "interrupts",
        }
    }
}
