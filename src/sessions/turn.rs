//! A turn runs a prompt: it starts a run, sends the run's events as updates, and asks its
//! questions. Stopping the turn stops the run upstream.

mod show;
mod start;

use std::sync::Arc;
use std::time::Duration;

pub(super) use show::{UpdateFilter, has_conversation};

use agent_client_protocol_schema::v1::{Meta, PromptRequest};
use tokio::sync::OwnedMutexGuard;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::link::ClientLink;
use super::position::META;
use super::questions::{AfterQuestions, QuestionAnswers, expect_answerable};
use super::session::{ClientView, OpenQuestion, Session, SettingsLocation};
use super::waiting_prompts::WaitingPrompt;
use crate::metrics::{AcpMeter, PromptEnd};
use crate::sync::Mutex;
use crate::threads::{Refusal, ThreadReader};
use show::ShowEnd;
use start::{Started, TurnStart};
use threadway_translate::acp::choice::SessionRecord;
use threadway_translate::acp::notice::Notice;
use threadway_translate::acp::prompt::Prompt;
use threadway_translate::acp::rpc::Error;
use threadway_translate::acp::{PromptMessage, StopReason, Update, stop_reason};
use threadway_translate::run::{self, Ask, Failure, Outcome};

/// How long a stopped turn waits for its run to end. The client gets its response within a second.
const STOP_WAIT: Duration = Duration::from_millis(800);

/// How many runs of others a turn waits for before it gives up: someone starts them faster than
/// they end.
const MAX_WAITS: u32 = 8;

/// A prompt, or a run that is shown without one.
pub(super) struct PromptTurn {
    pub(super) link: ClientLink,
    pub(super) session: Arc<Session>,
    /// Stops the turn and its run.
    stop: CancellationToken,
    /// The run to stop with the turn, by LangGraph's id or by our own name for it.
    run: Mutex<Option<String>>,
    /// The client's id of the prompt, if it has one: the id of the person's message.
    prompt_id: Option<String>,
    /// The same until it has become the name of the prompt's first run.
    first_name: Mutex<Option<String>>,
    /// The prompt, if it has an id. Its client may have given it up.
    waiting: Option<WaitingPrompt>,
}

/// Whose run is shown. That decides whether stopping the turn stops the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// The turn's own run: it is stopped with the turn.
    Own,
    /// A run of others that a prompt waits for: it goes on.
    Others,
}

/// How a prompt ended.
enum PromptOver {
    /// It did not begin.
    NotAccepted(Error),
    Over(Result<StopReason, Error>),
    /// Its client has gone.
    Left,
}

/// `session/prompt`.
pub(super) async fn prompt(
    link: &ClientLink,
    session: Arc<Session>,
    request: &PromptRequest,
    stop: &CancellationToken,
) -> Result<StopReason, Error> {
    let mut meter = link.meter().map(AcpMeter::prompt);
    let over = run_prompt(link, Arc::clone(&session), request, stop).await;
    link.emit_position(&session);
    if let Some(meter) = &mut meter {
        meter.ended(over.counted());
    }
    match over {
        PromptOver::NotAccepted(error) => Err(error),
        PromptOver::Over(reason) => reason,
        PromptOver::Left => Ok(StopReason::Cancelled),
    }
}

async fn run_prompt(
    link: &ClientLink,
    session: Arc<Session>,
    request: &PromptRequest,
    stop: &CancellationToken,
) -> PromptOver {
    // At once: a stop must find the prompt, whatever the prompt waits for.
    let guard = match session.prompt(stop) {
        Ok(guard) => guard,
        Err(busy) => return PromptOver::NotAccepted(busy),
    };
    let prompt_id = prompt_id(request.meta.as_ref());
    let turn = PromptTurn::new(link.clone(), Arc::clone(&session), stop.clone(), prompt_id);
    let over = async {
        let accepts = async {
            guard.turn().await;
            link.accepts_in(&session, &request.prompt).await
        };
        let Some(accepts) = stop.run_until_cancelled(accepts).await else {
            return PromptOver::Over(Ok(StopReason::Cancelled));
        };
        let commands = &link.service().settings.commands;
        match Prompt::read(&request.prompt, accepts, commands) {
            Ok(prompt) => PromptOver::Over(Box::pin(turn.run(&prompt)).await),
            Err(error) => PromptOver::NotAccepted(error),
        }
    };
    // A client that has gone cannot answer questions. `on_owner_disconnect` decides about its runs.
    if let Some(over) = link.gone().run_until_cancelled(over).await {
        return over;
    }
    if link.stops_runs() {
        turn.stop_run();
    }
    PromptOver::Left
}

impl PromptOver {
    /// The same, as metrics count it.
    fn counted(&self) -> PromptEnd {
        match self {
            Self::NotAccepted(_) => PromptEnd::NotAccepted,
            Self::Left => PromptEnd::Left,
            Self::Over(Err(_)) => PromptEnd::Failed,
            Self::Over(Ok(reason)) => match reason {
                StopReason::EndTurn => PromptEnd::EndTurn,
                StopReason::MaxTokens => PromptEnd::MaxTokens,
                StopReason::MaxTurnRequests => PromptEnd::MaxTurnRequests,
                StopReason::Refusal => PromptEnd::Refusal,
                StopReason::Cancelled => PromptEnd::Cancelled,
            },
        }
    }
}

impl PromptTurn {
    pub(super) fn new(
        link: ClientLink,
        session: Arc<Session>,
        stop: CancellationToken,
        prompt_id: Option<String>,
    ) -> Self {
        let first_name = Mutex::new(prompt_id.clone());
        let waiting = &link.service().waiting_prompts;
        let waiting = prompt_id.as_ref().and_then(|id| waiting.begin(&session.id, id));
        Self { link, session, stop, run: Mutex::default(), prompt_id, first_name, waiting }
    }

    /// Runs a prompt to its end.
    async fn run(&self, prompt: &Prompt) -> Result<StopReason, Error> {
        // Waits for a run of others that is being shown.
        let view = Arc::clone(&self.session.view).lock_owned();
        let Some(mut view) = self.stop.run_until_cancelled(view).await else {
            return Ok(StopReason::Cancelled);
        };
        view.ended = None;
        let done = self.run_with(&mut view, prompt).await;
        match &done {
            Ok(reason) => self.announce_end(&view, *reason).await,
            Err(_) => self.settle_calls(&mut view),
        }
        done
    }

    async fn run_with(&self, view: &mut ClientView, prompt: &Prompt) -> Result<StopReason, Error> {
        let refreshed = Box::pin(self.link.refresh(&self.session));
        match self.stop.run_until_cancelled(refreshed).await {
            Some(refreshed) => refreshed?,
            None => return Ok(self.stopped(view)),
        }
        let Some(questions) = self.stop.run_until_cancelled(self.catch_up(view)).await else {
            return Ok(self.stopped(view));
        };
        let mut questions = questions?;
        // A prompt at a breakpoint starts a new run instead of continuing.
        questions.retain(|waiting| waiting.question.ask != Ask::Breakpoint);
        if !questions.is_empty() {
            expect_answerable(&questions)?;
            let has_forms = self.link.client().has_forms;
            let answer = QuestionAnswers::of_prompt(questions, &prompt.text, has_forms);
            let start = match answer.start {
                Some(start) => start,
                // Ask the open questions again: a prompt must not be taken as an approval or a
                // rejection.
                None => match self.settle(view, answer.left).await? {
                    AfterQuestions::Resume(start) => start,
                    AfterQuestions::ByPrompt => return Err(must_answer_first()),
                    AfterQuestions::Stopped => return Ok(self.stopped(view)),
                },
            };
            self.link.show_decisions(&self.session, view, &answer.answered);
            let reason = self.run_to_end(view, start).await?;
            if answer.is_used || reason != StopReason::EndTurn {
                return Ok(reason);
            }
            if !view.questions.is_empty() {
                return Err(must_answer_first());
            }
            self.announce_end(view, reason).await;
        }
        let message = self.message_of(view, prompt);
        match self.stop.run_until_cancelled(message).await {
            Some(message) => self.run_to_end(view, message?).await,
            None => Ok(self.stopped(view)),
        }
    }

    /// Announces the cursor of a turn that was not stopped.
    async fn announce_end(&self, view: &ClientView, reason: StopReason) {
        if reason != StopReason::Cancelled {
            let announced = self.link.announce_end(&self.session, view, reason);
            self.stop.run_until_cancelled(announced).await;
        }
    }

    /// The person's message for the graph. The client shows it already.
    async fn message_of(&self, view: &mut ClientView, prompt: &Prompt) -> Result<TurnStart, Error> {
        {
            let mut config = self.session.config.lock().await;
            let thread = self.link.thread(&self.session, &config)?;
            self.link.expect_messages(&mut config, thread.agent()).await?;
        }
        let id = self.prompt_id.clone().unwrap_or_else(|| Uuid::new_v4().to_string());
        view.projector.hold(&run::Id::from(&*id));
        let is_new = !self.session.has_thread().await;
        self.store(prompt).await?;
        let message = prompt.message(&id);
        let thread = self.link.thread(&self.session, &*self.session.config.lock().await)?;
        let messages_key = thread.agent().upstream.messages_key().clone();
        let prompt = PromptMessage { id, message, messages_key };
        // A new thread holds no calls, so the first prompt need not wait for a look at it.
        Ok(if is_new { prompt.input().into() } else { TurnStart::Prompt(prompt) })
    }

    /// With the first prompt: makes the session's thread, or marks a thread of others as a session,
    /// and gives the session its title. Later: saves what was not saved.
    async fn store(&self, prompt: &Prompt) -> Result<(), Error> {
        let Self { link, session, .. } = self;
        let mut config = session.config.lock().await;
        let before = &config.kept;
        let title = before.title.clone().or_else(|| prompt.headline());
        let kept = SessionRecord { is_session: true, title, ..before.clone() };
        let is_news = match &config.stored {
            SettingsLocation::NoThread => true,
            SettingsLocation::Thread { unsaved, .. } => kept != *before || !unsaved.is_empty(),
        };
        match &config.stored {
            SettingsLocation::NoThread => {
                config.kept = kept;
                link.make_thread(session, &mut config).await?;
            }
            SettingsLocation::Thread { .. } if before.is_session => {
                link.change(session, &mut config, kept).await?;
            }
            // The thread of another program becomes a session, with the whole record.
            SettingsLocation::Thread { .. } => {
                let all = kept.members();
                config.kept = kept;
                link.save(session, &mut config, all).await?;
            }
        }
        if let Some(title) = config.kept.title.as_deref().filter(|_| is_news) {
            link.update(
                &session.id,
                &Update::SessionInfoUpdate { title: Some(title), updated_at: None },
            );
        }
        Ok(())
    }

    /// Shows a run without a prompt to its end and asks its questions, until a prompt arrives.
    pub(super) async fn follow_without_prompt(
        &self,
        mut view: OwnedMutexGuard<ClientView>,
        reader: ThreadReader,
        outcome: Option<Outcome>,
    ) {
        let is_idle = outcome.as_ref().is_some_and(|outcome| end_of_idle(outcome).is_some());
        let ended = self.follow_to_end(&mut view, reader, outcome).await;
        if let Ok(reason) = &ended
            && !is_idle
        {
            self.announce_end(&view, *reason).await;
        }
        // Of a thread in which nothing ran, nothing has ended.
        view.ended = (!is_idle).then_some(ended);
        self.link.emit_position(&self.session);
    }

    async fn follow_to_end(
        &self,
        view: &mut ClientView,
        mut reader: ThreadReader,
        outcome: Option<Outcome>,
    ) -> Result<StopReason, Error> {
        let outcome = match outcome {
            Some(outcome) => outcome,
            None => match self.show(view, &mut reader).await {
                ShowEnd::Over(outcome) => outcome,
                ShowEnd::Stopped => return Ok(self.stopped(view)),
            },
        };
        let questions = match outcome {
            Outcome::Interrupted(questions) => questions,
            Outcome::Failed(_)
            | Outcome::Idle { .. }
            | Outcome::Finished { .. }
            | Outcome::Cancelled => {
                self.settle_calls(view);
                if let Some(notice) = Notice::of_outcome(&outcome) {
                    self.link.notice(&self.session, &notice);
                }
                return stop_reason(&outcome);
            }
        };
        let prompted = self.session.prompts.arrived.notified();
        let mut prompted = std::pin::pin!(prompted);
        prompted.as_mut().enable();
        if self.session.prompts.any() {
            return Ok(StopReason::EndTurn);
        }
        let waiting = questions.into_iter().map(OpenQuestion::from).collect();
        let settled = tokio::select! {
            biased;
            () = prompted => return Ok(StopReason::EndTurn),
            settled = self.settle(view, waiting) => settled,
        };
        let ended = match settled {
            Ok(AfterQuestions::Resume(start)) => self.run_to_end(view, start).await,
            Ok(AfterQuestions::ByPrompt) => Ok(StopReason::EndTurn),
            Ok(AfterQuestions::Stopped) => Ok(StopReason::Cancelled),
            Err(error) => Err(error),
        };
        ended.inspect_err(|error| {
            self.settle_calls(view);
            tracing::warn!(session_id = self.session.id, %error, "a resumed run failed");
        })
    }

    /// Starts a run, shows it, asks its questions and resumes it, until it ends.
    pub(super) async fn run_to_end(
        &self,
        view: &mut ClientView,
        beginning: impl Into<TurnStart>,
    ) -> Result<StopReason, Error> {
        let mut beginning = beginning.into();
        let mut waits = 0;
        let mut kept = std::mem::take(&mut view.decision_keys);
        loop {
            let mut run = match self.start(beginning.clone(), &kept).await? {
                Started::Run(run) => *run,
                Started::Stopped => return Ok(self.stopped(view)),
                // The JavaScript server does not queue runs.
                Started::Busy if waits < MAX_WAITS => {
                    waits += 1;
                    match self.stop.run_until_cancelled(self.show_thread(view)).await {
                        Some(seen) => seen?,
                        None => return Ok(self.stopped(view)),
                    };
                    continue;
                }
                Started::Busy => return Err(self.link.refused(&Refusal::Busy)),
            };
            let questions = match self.show(view, &mut run).await {
                ShowEnd::Stopped => return Ok(self.stopped(view)),
                ShowEnd::Over(Outcome::Interrupted(questions)) => questions,
                ShowEnd::Over(outcome) => {
                    self.settle_calls(view);
                    return stop_reason(&outcome);
                }
            };
            let waiting = questions.into_iter().map(OpenQuestion::from).collect();
            match self.settle(view, waiting).await? {
                AfterQuestions::Resume(next) => {
                    beginning = next.into();
                    kept = std::mem::take(&mut view.decision_keys);
                }
                AfterQuestions::ByPrompt => return Ok(StopReason::EndTurn),
                AfterQuestions::Stopped => return Ok(self.stopped(view)),
            }
        }
    }

    /// Asks the questions of a run until they are answered or the turn is stopped.
    pub(super) async fn settle(
        &self,
        view: &mut ClientView,
        waiting: Vec<OpenQuestion>,
    ) -> Result<AfterQuestions, Error> {
        let settled = self.link.settle(&self.session, view, waiting);
        let settled = self.stop.run_until_cancelled(settled).await;
        // A client that failed to answer is not asked again in this turn.
        settled.unwrap_or(Ok(AfterQuestions::Stopped)).inspect_err(|_| self.settle_calls(view))
    }

    /// The response of a stopped turn. Settles its calls.
    fn stopped(&self, view: &mut ClientView) -> StopReason {
        self.settle_calls(view);
        StopReason::Cancelled
    }

    pub(super) fn settle_calls(&self, view: &mut ClientView) {
        self.link.emit(&self.session, |emit| view.projector.settle(emit));
    }
}

/// The end of the last run of an idle thread. `None` if the thread asks something, or is not idle.
pub(super) fn end_of_idle(outcome: &Outcome) -> Option<Result<StopReason, Error>> {
    match outcome {
        Outcome::Idle { error: None, .. } => Some(Ok(StopReason::EndTurn)),
        Outcome::Idle { error: Some(error), .. } => {
            let failed = Outcome::Failed(Failure::Graph(error.clone()));
            Some(stop_reason(&failed))
        }
        Outcome::Interrupted(_)
        | Outcome::Finished { .. }
        | Outcome::Cancelled
        | Outcome::Failed(_) => None,
    }
}

/// The id that a client has given to its prompt. `None` if it has none, or not a UUID.
fn prompt_id(meta: Option<&Meta>) -> Option<String> {
    let id = meta?.get(META)?.get("promptId")?.as_str()?;
    let uuid = Uuid::try_parse(id).ok()?.hyphenated().to_string();
    (uuid == id).then_some(uuid)
}

/// The response to a prompt that must not be lost as an answer to something else.
fn must_answer_first() -> Error {
    Error::internal(
        "the agent waits for an answer to its question; answer it, then send this again",
    )
}
