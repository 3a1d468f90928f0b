//! A turn: a prompt becomes a run, its events become updates, its questions are asked, and what
//! stops it stops the run upstream.

use std::sync::Arc;
use std::time::Duration;

use agent_client_protocol_schema::v1::PromptRequest;
use tokio::sync::OwnedMutexGuard;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Service;
use super::link::Link;
use super::permit::{Answers, Settled, expect_answerable};
use super::session::{Session, Voice, Waiting};
use crate::sync::{Guard, Mutex};
use crate::threads::{Refusal, Thread, ThreadReader, Waits};
use threadway_translate::acp::prompt::Prompt;
use threadway_translate::acp::rpc::Error;
use threadway_translate::acp::{StopReason, ToolCall, ToolStatus, Update, result_of, stop_reason};
use threadway_translate::json::{self, Json, ObjectWriter};
use threadway_translate::run::{self, Ask, Configured, Loss, NewRun, Outcome, RunEvent, Start};

/// How long a stopped turn waits for its run to end: its client is told within a second.
pub const STOP_WAIT: Duration = Duration::from_millis(800);

/// How often a turn that another run of the thread is in the way of waits for that run, before it
/// gives up: somebody starts them faster than they end.
const MAX_WAITS: u32 = 8;

/// What is done at a session: a prompt, or a run that is shown without one.
pub(super) struct Turn {
    link: Link,
    session: Arc<Session>,
    /// Stops it, and its run.
    stop: CancellationToken,
    /// The run that it stops when it is stopped, by LangGraph's id or by our name of it.
    run: Mutex<Option<String>>,
}

/// Whose run is shown, which decides what stopping the turn does to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// The run that the turn is about: it is stopped with the turn.
    Own,
    /// A run of others that a prompt waits for: it goes on.
    Others,
}

/// Whether what a reader brings is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Telling {
    Aloud,
    /// The client holds it, so it is only noted. Calls that wait are sent all the same: their
    /// updates are sent here, and ACP wants each after its call.
    Silent,
}

/// How the showing of a run ended.
enum Shown {
    Over(Outcome),
    Stopped,
}

/// How a run came to be.
enum Started {
    Run(Box<ThreadReader>),
    /// Another run of the thread is in the way.
    Busy,
    Stopped,
}

/// A run that is being started. One that nobody waits for any more is stopped as soon as it has
/// started, if it is to be.
struct Starting<'a> {
    turn: &'a Turn,
    /// `None` once it has started.
    asked: Option<JoinHandle<Result<ThreadReader, Refusal>>>,
    name: &'a str,
}

/// `session/prompt`.
pub(super) async fn prompt(
    link: &Link,
    session: Arc<Session>,
    request: &PromptRequest,
    stop: &CancellationToken,
) -> Result<Json, Error> {
    let settings = &link.service().settings;
    let prompt = Prompt::read(&request.prompt, settings.accepts, &settings.commands)?;
    let _prompting = session.prompt(stop)?;
    let turn = Turn::new(link.clone(), Arc::clone(&session), stop.clone());
    // Without the client there is nobody to answer; its runs go on, or not, as configured.
    if let Some(reason) = link.gone().run_until_cancelled(turn.run(&prompt)).await {
        return result_of(reason?);
    }
    if link.stops_runs() {
        turn.stop_run();
    }
    result_of(StopReason::Cancelled)
}

impl Turn {
    pub(super) fn new(link: Link, session: Arc<Session>, stop: CancellationToken) -> Self {
        Self { link, session, stop, run: Mutex::default() }
    }

    /// Runs a prompt to its end.
    async fn run(&self, prompt: &Prompt) -> Result<StopReason, Error> {
        // A run of others that is being shown is shown to its end.
        let voice = Arc::clone(&self.session.voice).lock_owned();
        let Some(mut voice) = self.stop.run_until_cancelled(voice).await else {
            return Ok(StopReason::Cancelled);
        };
        let done = self.run_with(&mut voice, prompt).await;
        if done.is_err() {
            self.tell_rest(&mut voice);
        }
        done
    }

    async fn run_with(&self, voice: &mut Voice, prompt: &Prompt) -> Result<StopReason, Error> {
        let Some(questions) = self.stop.run_until_cancelled(self.catch_up(voice)).await else {
            return Ok(self.stopped(voice));
        };
        let mut questions = questions?;
        // Who goes on from a breakpoint with something new begins anew.
        questions.retain(|waiting| waiting.question.ask != Ask::Breakpoint);
        if !questions.is_empty() {
            expect_answerable(&questions)?;
            let has_forms = self.link.client().has_forms;
            let answer = Answers::of_prompt(questions, &prompt.text, has_forms);
            let start = match answer.start {
                Some(start) => start,
                // What waits is asked first, again: a prompt must not be taken for a yes or a no.
                None => match self.settle(voice, answer.left).await? {
                    Settled::Resume(start) => start,
                    Settled::ByPrompt => return Err(asks_first()),
                    Settled::Stopped => return Ok(self.stopped(voice)),
                },
            };
            self.link.decided(&self.session, voice, &answer.answered);
            let reason = self.go_on(voice, start).await?;
            if answer.is_used || reason != StopReason::EndTurn {
                return Ok(reason);
            }
            if !voice.waiting.is_empty() {
                return Err(asks_first());
            }
        }
        let asked = self.ask_graph(voice, prompt);
        match self.stop.run_until_cancelled(asked).await {
            Some(start) => self.go_on(voice, start?).await,
            None => Ok(self.stopped(voice)),
        }
    }

    /// A message of the person's, for the graph to begin with. Its client shows it already.
    async fn ask_graph(&self, voice: &mut Voice, prompt: &Prompt) -> Result<Start, Error> {
        let id = Uuid::new_v4().to_string();
        voice.projector.hold(&run::Id::from(&*id));
        self.entitle(prompt).await;
        let message = prompt.message(&id);
        let messages = json::array([message.get()]);
        let thread = self.link.thread(&self.session, &*self.session.desk.lock().await)?;
        let key = thread.agent().upstream.messages_key().as_str();
        Ok(Start::Input(ObjectWriter::new().raw(key, messages.get()).finish()))
    }

    /// Gives the session its title, and marks the thread as one, with its first prompt.
    async fn entitle(&self, prompt: &Prompt) {
        let Self { link, session, .. } = self;
        let mut desk = session.desk.lock().await;
        let is_news = desk.kept.title.is_none();
        if is_news {
            desk.kept.title = prompt.headline();
        }
        if let Some(title) = desk.kept.title.as_deref().filter(|_| is_news) {
            link.update(
                &session.id,
                &Update::SessionInfoUpdate { title: Some(title), updated_at: None },
            );
        }
        if is_news || !desk.is_kept {
            link.keep(session, &mut desk).await;
        }
    }

    /// Brings the client to what the thread holds, and tells what the thread waits for.
    async fn catch_up(&self, voice: &mut Voice) -> Result<Vec<Waiting>, Error> {
        if voice.is_based {
            let service = self.link.service();
            let waits = service.threads.waits(&service.upstream.client, &self.session.id).await;
            match waits.map_err(|error| self.link.failed(&error))? {
                Waits::ForNothing => {
                    voice.waiting.clear();
                    return Ok(Vec::new());
                }
                Waits::ForAnswers(open) => {
                    let waiting = std::mem::take(&mut voice.waiting);
                    let is_open =
                        |waiting: &Waiting| open.iter().any(|id| *id == *waiting.question.id);
                    if !waiting.is_empty() && waiting.iter().all(is_open) {
                        return Ok(waiting);
                    }
                }
                Waits::ForRun => voice.waiting.clear(),
            }
        }
        let Outcome::Interrupted(questions) = self.see_thread(voice).await? else {
            return Ok(Vec::new());
        };
        Ok(questions.into_iter().map(Waiting::from).collect())
    }

    /// Shows what the thread holds, and its live run to the end, which is that of others; the
    /// client of a resumed session holds the former. Gives how that run ended.
    async fn see_thread(&self, voice: &mut Voice) -> Result<Outcome, Error> {
        let reader = self.link.read(&self.session).await?;
        let telling = if voice.is_based { Telling::Aloud } else { Telling::Silent };
        let (mut reader, outcome) =
            self.tell_history(voice, reader, telling, Whose::Others).await?;
        match outcome {
            Some(outcome) => Ok(outcome),
            None => Ok(self.tell(voice, &mut reader, Whose::Others).await),
        }
    }

    /// Reads a thread until all that it holds was told; the outcome, if nothing runs.
    pub(super) async fn tell_history(
        &self,
        voice: &mut Voice,
        mut reader: ThreadReader,
        telling: Telling,
        whose: Whose,
    ) -> Result<(ThreadReader, Option<Outcome>), Error> {
        while let Some(events) = reader.next().await {
            self.link.outbox().room().await;
            let outcome = self.project(voice, &events, telling, whose);
            // A graph without messages tells its state alone.
            let is_told = |event: &RunEvent| {
                matches!(event, RunEvent::Messages(_) | RunEvent::StateSnapshot(_))
            };
            if outcome.is_some() || events.iter().any(is_told) {
                voice.is_based = true;
                return Ok((reader, outcome));
            }
        }
        voice.is_based = true;
        Ok((reader, Some(Outcome::Idle { error: None })))
    }

    /// Shows a run without a prompt to its end, and asks what it asks, until a prompt comes.
    pub(super) async fn go_on_alone(
        &self,
        mut voice: OwnedMutexGuard<Voice>,
        mut reader: ThreadReader,
        outcome: Option<Outcome>,
    ) {
        let outcome = match outcome {
            Some(outcome) => outcome,
            None => match self.show(&mut voice, &mut reader).await {
                Shown::Over(outcome) => outcome,
                Shown::Stopped => return self.tell_rest(&mut voice),
            },
        };
        let Outcome::Interrupted(questions) = outcome else {
            return self.tell_rest(&mut voice);
        };
        let prompted = self.session.prompted.notified();
        let mut prompted = std::pin::pin!(prompted);
        prompted.as_mut().enable();
        if self.session.is_prompted() {
            return;
        }
        let waiting = questions.into_iter().map(Waiting::from).collect();
        let settled = tokio::select! {
            biased;
            () = prompted => return,
            settled = self.settle(&mut voice, waiting) => settled,
        };
        let done = match settled {
            Ok(Settled::Resume(start)) => self.go_on(&mut voice, start).await.map(|_| ()),
            Ok(Settled::ByPrompt | Settled::Stopped) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = done {
            self.tell_rest(&mut voice);
            tracing::warn!(session_id = self.session.id, %error, "a run that was resumed failed");
        }
    }

    /// Starts a run, shows it, asks what it asks, and so on to the end.
    async fn go_on(&self, voice: &mut Voice, mut start: Start) -> Result<StopReason, Error> {
        let mut waits = 0;
        let mut kept = std::mem::take(&mut voice.kept);
        loop {
            let mut run = match self.start(start.clone(), &kept).await? {
                Started::Run(run) => *run,
                Started::Stopped => return Ok(self.stopped(voice)),
                // The JavaScript server does not queue runs.
                Started::Busy if waits < MAX_WAITS => {
                    waits += 1;
                    match self.stop.run_until_cancelled(self.see_thread(voice)).await {
                        Some(seen) => seen?,
                        None => return Ok(self.stopped(voice)),
                    };
                    continue;
                }
                Started::Busy => return Err(self.link.refused(&Refusal::Busy)),
            };
            let questions = match self.show(voice, &mut run).await {
                Shown::Stopped => return Ok(self.stopped(voice)),
                Shown::Over(Outcome::Interrupted(questions)) => questions,
                Shown::Over(outcome) => {
                    self.tell_rest(voice);
                    return stop_reason(&outcome);
                }
            };
            let waiting = questions.into_iter().map(Waiting::from).collect();
            match self.settle(voice, waiting).await? {
                Settled::Resume(next) => {
                    start = next;
                    kept = std::mem::take(&mut voice.kept);
                }
                Settled::ByPrompt => return Ok(StopReason::EndTurn),
                Settled::Stopped => return Ok(self.stopped(voice)),
            }
        }
    }

    /// Asks what a run asks, until it is answered or the turn is stopped.
    async fn settle(&self, voice: &mut Voice, waiting: Vec<Waiting>) -> Result<Settled, Error> {
        let settled = self.link.settle(&self.session, voice, waiting);
        let settled = self.stop.run_until_cancelled(settled).await;
        // A client that cannot be asked is not asked again in this turn.
        settled.unwrap_or(Ok(Settled::Stopped)).inspect_err(|_| self.tell_rest(voice))
    }

    /// Starts a run, unless the turn is stopped meanwhile.
    async fn start(&self, start: Start, kept: &[String]) -> Result<Started, Error> {
        let Some(due) = self.stop.run_until_cancelled(self.due(start, kept)).await else {
            return Ok(Started::Stopped);
        };
        let (thread, run) = due?;
        let name = run.name.clone();
        let asked = self.link.service().chores.spawn(async move { thread.start(run).await });
        let mut starting = Starting { turn: self, asked: Some(asked), name: &name };
        let Some(started) = self.stop.run_until_cancelled(starting.started()).await else {
            return Ok(Started::Stopped);
        };
        match started? {
            Ok(reader) => {
                let run_id = reader.run_id().as_deref().map(str::to_owned);
                *self.running() = Some(run_id.unwrap_or_else(|| name.clone()));
                Ok(Started::Run(Box::new(reader)))
            }
            Err(Refusal::Busy) => Ok(Started::Busy),
            Err(Refusal::UnknownAssistant { assistant }) => Err(Error::internal(format!(
                "LangGraph knows no agent `{assistant}`, or no thread {}",
                self.session.id
            ))),
            Err(refusal) => Err(self.link.refused(&refusal)),
        }
    }

    /// The run to start, which answers with what is kept there, and its thread.
    async fn due(&self, start: Start, kept: &[String]) -> Result<(Thread, NewRun), Error> {
        let desk = self.session.desk.lock().await;
        let thread = self.link.thread(&self.session, &desk)?;
        let servers = self.link.service().settings.mcp_key.as_deref();
        let servers = servers.zip(self.session.servers.as_ref());
        let chosen = desk.kept.choices.configurable(&desk.menu, servers);
        let configured = chosen.map_or(Configured::Not, Configured::Choices);
        let (hides, forgets) = (kept.to_vec(), kept.to_vec());
        let new = NewRun::new(Uuid::new_v4().to_string(), start);
        let run = NewRun { configured, hides, forgets, ..new };
        Ok((thread, run))
    }

    /// Shows the turn's own run to its end, or to where the turn is stopped, and the run with it.
    async fn show(&self, voice: &mut Voice, run: &mut ThreadReader) -> Shown {
        let told = self.stop.run_until_cancelled(self.tell(voice, run, Whose::Own)).await;
        if let Some(outcome) = told {
            return Shown::Over(outcome);
        }
        self.stop_run();
        // What it still says is told, if it ends soon: its last words, and how its calls ended.
        let _ = tokio::time::timeout(STOP_WAIT, self.tell(voice, run, Whose::Own)).await;
        Shown::Stopped
    }

    async fn tell(&self, voice: &mut Voice, run: &mut ThreadReader, whose: Whose) -> Outcome {
        loop {
            self.link.outbox().room().await;
            let Some(events) = run.next().await else {
                return Outcome::Idle { error: None };
            };
            match self.project(voice, &events, Telling::Aloud, whose) {
                None => {}
                // The run goes on: what was missed of it is told from the thread.
                Some(outcome) if is_too_slow(&outcome) => {
                    match Box::pin(self.link.read(&self.session)).await {
                        Ok(again) => *run = again,
                        Err(_) => return outcome,
                    }
                }
                Some(outcome) => return outcome,
            }
        }
    }

    /// Tells a batch of events; the outcome, if they end the run.
    fn project(
        &self,
        voice: &mut Voice,
        events: &[RunEvent],
        telling: Telling,
        whose: Whose,
    ) -> Option<Outcome> {
        let Self { link, session, .. } = self;
        if let (Whose::Own, Some(RunEvent::Started { run_id: Some(run_id), .. })) =
            (whose, events.first())
        {
            *self.running() = Some(run_id.to_string());
        }
        match telling {
            Telling::Silent => link.emit(session, |emit| {
                for event in events {
                    voice.projector.project(event, &mut |update| {
                        if is_open_call(update) {
                            emit(update);
                        }
                    });
                }
            }),
            Telling::Aloud => link.emit(session, |emit| {
                for event in events {
                    voice.projector.project(event, emit);
                }
            }),
        }
        match events.last() {
            Some(RunEvent::Ended { outcome, .. }) => Some(outcome.clone()),
            _ => None,
        }
    }

    /// Stops the run upstream, though nobody waits for that.
    fn stop_run(&self) {
        let Some(run) = self.running().clone() else { return };
        let service = Arc::clone(self.link.service());
        let thread_id = self.session.id.clone();
        let chores = service.chores.clone();
        chores.spawn(async move { stop_run(&service, &thread_id, &run).await });
    }

    fn running(&self) -> Guard<'_, Option<String>> {
        self.run.lock()
    }

    /// The turn was stopped: its calls are settled.
    fn stopped(&self, voice: &mut Voice) -> StopReason {
        self.tell_rest(voice);
        StopReason::Cancelled
    }

    fn tell_rest(&self, voice: &mut Voice) {
        self.link.emit(&self.session, |emit| voice.projector.settle(emit));
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
        let service = Arc::clone(turn.link.service());
        let (thread_id, name) = (turn.session.id.clone(), (*name).to_owned());
        let chores = service.chores.clone();
        chores.spawn(async move {
            if let Ok(Ok(reader)) = asked.await {
                drop(reader);
                stop_run(&service, &thread_id, &name).await;
            }
        });
    }
}

/// Stops a run, by LangGraph's id or by our name of it.
async fn stop_run(service: &Service, thread_id: &str, run: &str) {
    match service.threads.stop(&service.upstream.client, thread_id, Some(run)).await {
        Ok(Some(_)) => tracing::info!(thread_id, run_id = run, "run stopped"),
        Ok(None) => tracing::debug!(thread_id, run_id = run, "the run was over already"),
        Err(error) => tracing::warn!(thread_id, run_id = run, %error, "a run was not stopped"),
    }
}

fn is_too_slow(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed(failure) if failure.loss() == Some(Loss::TooSlow))
}

fn is_open_call(update: &Update<'_>) -> bool {
    matches!(
        update,
        Update::ToolCall(ToolCall { status, .. })
            if !matches!(status, Some(ToolStatus::Completed | ToolStatus::Failed))
    )
}

/// A prompt that must not be lost in an answer to something else.
fn asks_first() -> Error {
    Error::internal("the agent asks something first; answer it, and then send this again")
}
