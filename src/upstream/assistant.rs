//! Assistants and their schemas, and the server itself, over HTTP.

use futures_util::future::select_ok;
use http::Method;
use serde::Serialize;

use super::{AnswerText, Client, Error};
use crate::metrics::Operation;
use threadway_translate::langgraph::{
    Assistant, ConfigField, InputKeys, ModelInput, ServerInfo, Unsupported,
};

/// How many assistants one request lists. Both servers allow more.
const PAGE_SIZE: usize = 100;

/// How many pages of assistants are read: 1,000, more than a person would choose from.
const MAX_PAGES: usize = 10;

/// The body of `POST /assistants/search`.
#[derive(Serialize)]
struct AssistantSearch<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    graph_id: Option<&'a str>,
    limit: usize,
    offset: usize,
}

// === impl Client ===

impl Client {
    /// The assistants of the server, or those of one graph.
    pub async fn assistants(&self, graph_id: Option<&str>) -> Result<Vec<Assistant>, Error> {
        let mut all = Vec::new();
        for page in 0..MAX_PAGES {
            let search = AssistantSearch { graph_id, limit: PAGE_SIZE, offset: page * PAGE_SIZE };
            let call = self.call(Operation::Assistants, Method::POST, &["assistants", "search"]);
            let body = call.json(&search).text().await?;
            let assistants =
                self.understood(body.read(Assistant::parse_list), "a list of assistants")?;
            let is_last = assistants.len() < PAGE_SIZE;
            all.extend(assistants);
            if is_last {
                break;
            }
        }
        Ok(all)
    }

    /// Whether the server shows an assistant of this graph to the caller. The Python server answers a
    /// name that is no graph with 404 (langgraph-api 0.16.7), the others with an empty list.
    pub(crate) async fn shows_assistant_of(&self, graph_id: &str) -> Result<bool, Error> {
        let search = AssistantSearch { graph_id: Some(graph_id), limit: 1, offset: 0 };
        let call = self.call(Operation::Assistants, Method::POST, &["assistants", "search"]);
        let body = call.json(&search).allow_not_found().text().await?;
        let found = self.understood(body.read(Assistant::parse_list), "a list of assistants")?;
        Ok(!found.is_empty())
    }

    /// Succeeds if the server shows the assistant of this id to the caller.
    pub(crate) async fn find_assistant(&self, assistant_id: &str) -> Result<(), Error> {
        self.find(Operation::Assistant, &["assistants", assistant_id]).await.map(drop)
    }

    /// The keys of an assistant's input. Takes the assistant's id, not the name of its graph.
    pub(crate) async fn input_keys(&self, assistant_id: &str) -> Result<InputKeys, Error> {
        let body = self.get(Operation::Assistant, &["assistants", assistant_id, "schemas"]).await?;
        self.understood(body.read(InputKeys::parse), "the schemas of an assistant")
    }

    /// The settings of an assistant that a person can choose. Takes the assistant's id, not the
    /// name of its graph.
    ///
    /// The JavaScript server fails with 500 for every graph whose schema is no zod object, unless
    /// the package `typescript` is installed beside it (langgraph-api 1.5.1).
    pub async fn config_fields(&self, assistant_id: &str) -> Result<Vec<ConfigField>, Error> {
        let (one, schemas) =
            (["assistants", assistant_id], ["assistants", assistant_id, "schemas"]);
        let (assistant, schemas) = tokio::try_join!(
            self.get(Operation::Assistant, &one),
            self.get(Operation::Assistant, &schemas)
        )?;
        Ok(schemas
            .read(|schemas| assistant.read(|assistant| ConfigField::list(schemas, assistant))))
    }

    /// What an assistant's model takes besides text. Takes the assistant's id, not the name of its
    /// graph. A server that describes no graph may still name the model in the assistant.
    pub(crate) async fn model_input(&self, assistant_id: &str) -> Result<ModelInput, Error> {
        let (one, schemas) =
            (["assistants", assistant_id], ["assistants", assistant_id, "schemas"]);
        let (assistant, schemas) = tokio::join!(
            self.get(Operation::Assistant, &one),
            self.get(Operation::Assistant, &schemas)
        );
        let schemas = match schemas {
            Err(Error::Status { code: 500, .. }) => AnswerText::default(),
            schemas => schemas?,
        };
        let assistant = assistant?;
        let read =
            |schemas| assistant.read(|assistant| ModelInput::of_assistant(schemas, assistant));
        Ok(schemas.read(read))
    }

    /// The server's kind and version.
    pub(crate) async fn info(&self) -> Result<ServerInfo, Error> {
        let body = self.get(Operation::Info, &["info"]).await?;
        self.understood(body.read(ServerInfo::parse), "that of a LangGraph server")
    }

    /// Succeeds if the server is ready at one of its addresses. All are asked at the same time, so
    /// that one that is away delays nothing.
    pub async fn probe(&self) -> Result<(), Error> {
        let addresses = self.each_address();
        let probes = addresses.iter().map(|address| Box::pin(address.probe_address()));
        select_ok(probes).await.map(drop)
    }

    /// Probes the only address of this client.
    async fn probe_address(&self) -> Result<(), Error> {
        match self.find(Operation::Probe, &["ok"]).await {
            Err(error) if error.shows(Unsupported::Probe) => {
                self.get(Operation::Probe, &["health"]).await
            }
            answer => answer,
        }
        .map(drop)
    }
}
