//! The routes of assistants. Each graph has one assistant of its name.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use super::contains;
use crate::Server;
use crate::script::Graph;
use crate::state::{Reducer, Values};
use crate::wire::{self, Refusal, answer, page};

/// The body of a search.
#[derive(Debug, Deserialize)]
pub(super) struct Search {
    #[serde(default)]
    graph_id: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    metadata: Option<Values>,
    #[serde(default)]
    limit: Option<usize>,
    #[serde(default)]
    offset: Option<usize>,
}

pub(super) async fn search(
    State(server): State<Arc<Server>>,
    request: Request,
) -> Result<Response, Refusal> {
    let search: Search = wire::read(request).await?;
    if let Some(graph) = &search.graph_id
        && !Graph::ALL.iter().any(|known| known.name() == graph)
    {
        return Err(Refusal::not_found(format!("Graph '{graph}' not found.")));
    }
    Ok(page(search.found(&server), search.offset.unwrap_or(0), search.limit.unwrap_or(10)))
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
    Path(assistant): Path<String>,
) -> Result<Response, Refusal> {
    Ok(answer(&record(find(&assistant)?, &server)))
}

pub(super) async fn schemas(Path(assistant): Path<String>) -> Result<Response, Refusal> {
    let graph = find(&assistant)?;
    let schema = schema(graph);
    Ok(answer(&json!({
        "graph_id": graph.name(), "input_schema": schema, "output_schema": schema,
        "state_schema": schema, "config_schema": {}, "context_schema": null,
    })))
}

/// The real server accepts only ids here.
fn find(assistant: &str) -> Result<Graph, Refusal> {
    let id = wire::uuid("assistant", assistant)?;
    Graph::find(&id.to_string()).ok_or_else(|| Refusal::not_found("Not Found"))
}

fn record(graph: Graph, server: &Server) -> Value {
    let began = server.began.to_string();
    json!({
        "assistant_id": graph.assistant_id().to_string(), "graph_id": graph.name(), "config": {},
        "context": {}, "metadata": {"created_by": "system"}, "name": graph.name(),
        "created_at": began, "updated_at": began, "version": 1,
        "description": graph.description(),
    })
}

fn schema(graph: Graph) -> Value {
    let property = |reducer| match reducer {
        Reducer::Messages | Reducer::Append => json!({"type": "array"}),
        Reducer::Last => json!({}),
    };
    let properties: Values = graph
        .channels()
        .iter()
        .map(|channel| (channel.name.to_owned(), property(channel.reducer)))
        .collect();
    json!({"title": graph.name(), "type": "object", "properties": properties})
}

// === impl Search ===

impl Search {
    fn found(&self, server: &Server) -> Vec<Value> {
        let is_found = |graph: &Graph| {
            self.graph_id.as_deref().is_none_or(|id| id == graph.name())
                && self.name.as_deref().is_none_or(|name| graph.name().contains(name))
        };
        let graphs = Graph::ALL.into_iter().filter(is_found);
        let records = graphs.map(|graph| record(graph, server));
        records.filter(|found| contains(&found["metadata"], self.metadata.as_ref())).collect()
    }
}
