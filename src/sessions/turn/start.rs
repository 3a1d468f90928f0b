//! Starts and stops the run of a turn.

use std::sync::Arc;

use tokio::task::JoinHandle;
use uuid::Uuid;

use super::PromptTurn;
use crate::sessions::Service;
use crate::sync::Guard;
use crate::threads::{Refusal, Thread, ThreadReader};
use crate::upstream::Client;
use threadway_translate::acp::rpc::Error;
use threadway_translate::acp::{PromptMessage, PromptPlanner};
use threadway_translate::run::{NewRun, RunConfig, Start};

/// What a turn's run begins with.
#[derive(Clone)]
pub(in crate::sessions) enum TurnStart {
    /// This, whatever the thread holds: answers, or the first prompt of a new thread.
    Fixed(Start),
    /// A prompt. The thread decides what goes up with it.
    Prompt(PromptMessage),
}

/// The result of starting a run.
pub(super) enum Started {
    Run(Box<ThreadReader>),
    /// Another run of the thread is in progress.
    Busy,
    Stopped,
}

/// A run that is being started. If the turn stops meanwhile, the run is stopped as soon as it has
/// started.
struct Starting<'a> {
    turn: &'a PromptTurn,
    /// `None` once the run has started.
    asked: Option<JoinHandle<Result<ThreadReader, Refusal>>>,
    name: &'a str,
}

impl PromptTurn {
    /// Starts a run, unless the turn is stopped first.
    pub(super) async fn start(
        &self,
        beginning: TurnStart,
        kept: &[String],
    ) -> Result<Started, Error> {
        let new = self.new_run(beginning.start(), kept);
        let Some(due) = self.stop.run_until_cancelled(new).await else {
            return Ok(Started::Stopped);
        };
        let (thread, run) = due?;
        if self.waiting.as_ref().is_some_and(|prompt| !prompt.may_start()) {
            return Ok(Started::Stopped);
        }
        let name = run.name.clone();
        let started = async move {
            match beginning {
                TurnStart::Fixed(_) => thread.start(run).await,
                TurnStart::Prompt(prompt) => {
                    let started = thread.ask(&PromptPlanner { prompt, run }).await?;
                    // Without a run, the thread is shown first, as one with another run is.
                    started.ok_or(Refusal::Busy)
                }
            }
        };
        let asked = self.link.service().tasks.spawn(started);
        let mut starting = Starting { turn: self, asked: Some(asked), name: &name };
        let Some(started) = self.stop.run_until_cancelled(starting.started()).await else {
            return Ok(Started::Stopped);
        };
        match started? {
            Ok(reader) => {
                let run_id = reader.run_id().as_deref().map(str::to_owned);
                *self.running() = Some(run_id.unwrap_or_else(|| name.clone()));
                self.first_name.lock().take();
                Ok(Started::Run(Box::new(reader)))
            }
            Err(Refusal::Busy) => Ok(Started::Busy),
            Err(Refusal::NoThread) => Err(self.session.deleted()),
            Err(Refusal::UnknownAssistant { assistant }) => Err(Error::internal(format!(
                "LangGraph does not know the agent `{assistant}`, or the thread {}",
                self.session.id
            ))),
            Err(refusal) => Err(self.link.refused(&refusal)),
        }
    }

    /// The run to start, with its thread. `kept` names the saved decisions that it answers with.
    async fn new_run(&self, start: Start, kept: &[String]) -> Result<(Thread, NewRun), Error> {
        let config = self.session.config.lock().await;
        let thread = self.link.thread(&self.session, &config)?;
        let settings = &self.link.service().settings;
        let servers = settings.mcp_key.as_deref();
        let servers = servers.zip(self.session.servers.forwarded.as_ref());
        let prompt = settings.system_prompt_key.as_deref();
        let prompt = prompt.zip(self.session.servers.system_prompt.as_ref());
        let given = servers.into_iter().chain(prompt);
        let chosen = config.kept.choices.configurable(&config.menu, given);
        let configured = chosen.map_or(RunConfig::Not, RunConfig::Choices);
        let (hides, forgets) = (kept.to_vec(), kept.to_vec());
        let name = self.first_name.lock().clone();
        let new = NewRun::new(name.unwrap_or_else(|| Uuid::new_v4().to_string()), start);
        let read_by_graphs = Some(config.kept.write_directories());
        let run = NewRun { configured, read_by_graphs, hides, forgets, ..new };
        Ok((thread, run))
    }

    /// Stops the run upstream in the background.
    pub(super) fn stop_run(&self) {
        let Some(run) = self.running().clone() else { return };
        let (service, upstream) = (Arc::clone(self.link.service()), self.link.upstream());
        let thread_id = self.session.id.clone();
        let tasks = service.tasks.clone();
        tasks.spawn(async move { stop_run(&service, &upstream, &thread_id, &run).await });
    }

    pub(super) fn running(&self) -> Guard<'_, Option<String>> {
        self.run.lock()
    }
}

// === impl TurnStart ===

impl TurnStart {
    /// The start of a run that begins with this alone.
    fn start(&self) -> Start {
        match self {
            Self::Fixed(start) => start.clone(),
            Self::Prompt(prompt) => prompt.input(),
        }
    }
}

impl From<Start> for TurnStart {
    fn from(start: Start) -> Self {
        Self::Fixed(start)
    }
}

// === impl Starting ===

impl Starting<'_> {
    async fn started(&mut self) -> Result<Result<ThreadReader, Refusal>, Error> {
        let Some(asked) = &mut self.asked else {
            return Err(Error::internal("the run was started twice"));
        };
        let started = asked.await;
        self.asked = None;
        started.map_err(|error| Error::internal(format!("the run's task failed: {error}")))
    }
}

impl Drop for Starting<'_> {
    fn drop(&mut self) {
        let Self { turn, asked, name } = self;
        let Some(asked) = asked.take() else { return };
        if !turn.stop.is_cancelled() && !turn.link.stops_runs() {
            return;
        }
        let (service, upstream) = (Arc::clone(turn.link.service()), turn.link.upstream());
        let (thread_id, name) = (turn.session.id.clone(), (*name).to_owned());
        let tasks = service.tasks.clone();
        tasks.spawn(async move {
            if let Ok(Ok(reader)) = asked.await {
                drop(reader);
                stop_run(&service, &upstream, &thread_id, &name).await;
            }
        });
    }
}

/// Stops a run, by LangGraph's id or by our own name for it.
async fn stop_run(service: &Service, upstream: &Client, thread_id: &str, run: &str) {
    match service.threads.stop(upstream, thread_id, Some(run)).await {
        Ok(Some(_)) => tracing::info!(thread_id, run_id = run, "run stopped"),
        Ok(None) => tracing::debug!(thread_id, run_id = run, "the run had already ended"),
        Err(error) => tracing::warn!(thread_id, run_id = run, %error, "a run could not be stopped"),
    }
}
