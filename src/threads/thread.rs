//! One thread, as a caller names it for one agent: all that a server or a session does with it.

use std::sync::Arc;

use super::Threads;
use super::fork::{self, Point};
use super::kept;
use super::questions::answered_now;
use super::reader::ThreadReader;
use super::refusal::Refusal;
use crate::agents::Agent;
use crate::runs::{self, EventId, RunStart};
use crate::upstream::{Client, Error, Purpose};
use threadway_translate::langgraph::{Given, InputKeys, NewestRuns, ServerKind, ThreadState};
use threadway_translate::run::{NewRun, Plan, Planner};

/// A thread, and the agent that runs on it, for one caller.
#[derive(Clone, Debug)]
pub struct Thread {
    pub(super) threads: Threads,
    pub(super) agent: Agent,
    pub(super) id: String,
    /// The client's name of the thread, where LangGraph needs another.
    pub(super) client_id: Option<String>,
}

/// A run that a thread can take.
struct Planned {
    run: NewRun,
    /// For what kind of server.
    server: Option<ServerKind>,
    checkpoint: Option<String>,
}

/// What a request becomes.
enum Next {
    /// A run.
    Start(Box<Planned>),
    /// A look at the thread: some of it is kept, or is to be.
    Keep(Keeping),
    /// A look at the thread by its client.
    Show,
}

/// How far the decisions are that wait for others.
enum Keeping {
    /// Nothing has come that is to be kept.
    Nothing,
    /// Something has, after these runs.
    Due(NewestRuns),
    /// It is kept.
    Done,
}

// === impl Thread ===

impl Thread {
    /// LangGraph's id of it.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What log lines call it, and its agent.
    pub fn purpose(&self) -> &Purpose {
        self.agent.upstream.purpose()
    }

    /// The agent that runs on it.
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// Reads the live run, from where it is, to its end; without one, what the thread holds. See
    /// [`Threads::connect`].
    pub async fn connect(&self, after: Option<&EventId>) -> Result<ThreadReader, Refusal> {
        self.expect_no_shutdown()?;
        let server = self.agent.server_kind();
        Ok(self.threads.connect(self.upstream(), server, &self.id, after).await?)
    }

    /// Reads the thread as [`connect`](Self::connect) does, and then all that comes. See
    /// [`Threads::follow`].
    pub async fn follow(&self, after: Option<&EventId>) -> Result<ThreadReader, Refusal> {
        self.expect_no_shutdown()?;
        let server = self.agent.server_kind();
        self.threads.follow(self.upstream(), server, &self.id, after).await
    }

    /// Reads the run that the caller has asked for before. See [`Threads::read_again`].
    pub async fn read_again(
        &self,
        after: Option<&EventId>,
        name: &str,
    ) -> Result<Option<ThreadReader>, Refusal> {
        self.expect_no_shutdown()?;
        let server = self.agent.server_kind().await;
        Ok(self.threads.read_again(self.upstream(), server, &self.id, after, name).await?)
    }

    /// Reads a run by LangGraph's id of it. See [`Threads::read_by_id`].
    pub async fn read_by_id(&self, run_id: &str) -> Result<Option<ThreadReader>, Refusal> {
        self.expect_no_shutdown()?;
        let server = self.agent.server_kind().await;
        Ok(self.threads.read_by_id(self.upstream(), server, &self.id, run_id).await?)
    }

    /// Whether the server shows the thread to the caller, or says of it what it says of one that
    /// is not there: anything else is an error.
    pub async fn see(&self) -> Result<(), Refusal> {
        self.threads.shared.see(self.upstream(), &self.id).await?;
        Ok(())
    }

    /// Stops the live run, or the one that is wanted. See [`Threads::stop`].
    pub async fn stop(&self, wanted: Option<&str>) -> Result<Option<String>, Refusal> {
        Ok(self.threads.stop(self.upstream(), &self.id, wanted).await?)
    }

    /// Starts a run, and reads it. A caller that does not wait for the answer leaves its run: it
    /// starts all the same.
    pub async fn start(&self, run: NewRun) -> Result<ThreadReader, Refusal> {
        let held = self.threads.shared.starts.begin(self.upstream(), &self.id, &run.name);
        let server = self.agent.server_kind().await;
        let checkpoint = match &run.fork_before {
            Some(message_id) => Some(self.fork_point(message_id).await?.checkpoint_id),
            None => None,
        };
        self.begin(Planned { run, server, checkpoint }, held).await
    }

    /// Starts the run that a client's request becomes on the thread as it is, and reads it. `None`
    /// if the client is to be shown the thread instead.
    ///
    /// Answers of one caller to a thread are started one after the other. LangGraph refuses an
    /// answer while another run of the thread is under way, and that run may be the one that has
    /// just taken the same answer elsewhere: the thread is looked at once more.
    ///
    /// A decision on one of several actions is kept first, and then the thread is looked at again:
    /// of two replicas that keep the last two decisions at once, at least one sees them all.
    pub async fn ask(&self, request: &impl Planner) -> Result<Option<ThreadReader>, Refusal> {
        let start = self.threads.shared.starts.begin(self.upstream(), &self.id, request.name());
        let start = Arc::new(start);
        let mut turn = None;
        if request.is_answer() {
            let turns = &self.threads.shared.turns;
            turn = Some(Arc::new(turns.turn(self.upstream(), &self.id).await));
        }
        let mut may_look_again = true;
        let mut keeping = Keeping::Nothing;
        loop {
            let planned = match Box::pin(self.plan(request, &keeping)).await? {
                Next::Show => return Ok(None),
                Next::Keep(further) => {
                    keeping = further;
                    continue;
                }
                Next::Start(planned) => *planned,
            };
            let is_answer = !planned.run.answers.is_empty();
            match self.begin(planned, (turn.clone(), Arc::clone(&start))).await {
                Err(Refusal::Busy) if is_answer && may_look_again => may_look_again = false,
                begun => return begun.map(Some),
            }
        }
    }

    /// What a request becomes on the thread as it is.
    async fn plan<P: Planner>(&self, request: &P, keeping: &Keeping) -> Result<Next, Refusal> {
        let answered_now = async || answered_now(self.upstream(), &self.id).await;
        // Before the state is read: a run that is not under way any more has made its state.
        let mut answered = if request.is_answer() { answered_now().await? } else { Vec::new() };
        let state = self.upstream().thread_state(&self.id);
        let (body, server) = tokio::join!(state, self.agent.server_kind());
        let body = body?;
        let messages_key = self.upstream().messages_key();
        let mut state = match &body {
            Some(body) => Some(
                ThreadState::parse_under(messages_key, body)
                    .ok_or(Error::NotUnderstood { what: "a thread's state" })?,
            ),
            None => None,
        };
        if let Some(state) = &mut state {
            if !request.is_answer() && !state.interrupts.is_empty() {
                answered = answered_now().await?;
            }
            // What a live run answers is not open any more, and the nodes that it runs are no
            // breakpoint's.
            state.interrupts.retain(|open| !answered.iter().any(|id| **id == *open.id));
            if !answered.is_empty() {
                state.next.clear();
            }
        }
        let kept = runs::kept_answers(self.upstream(), &self.id, state.as_ref()).await?;
        if let Some(state) = &mut state {
            state.kept = kept;
        }
        let keys = if request.needs_keys(state.as_ref()) {
            self.agent.input_keys().await
        } else {
            InputKeys::Unknown.into()
        };
        self.agent.tell_losses(request.losses(&keys));
        let planned = request.plan(state.as_ref(), &keys);
        let Plan { keep, run } =
            planned.map_err(|error| Refusal::CannotResume(error.to_string()))?;
        if let Some(further) = self.keep(state.as_ref(), &keep, keeping).await? {
            return Ok(Next::Keep(further));
        }
        let Some(mut run) = run else { return Ok(Next::Show) };
        if let (None, Some(client_id)) = (&state, &self.client_id) {
            self.upstream().create_thread(&self.id, client_id).await?;
        }
        let mut checkpoint = None;
        if let Some(message_id) = &run.fork_before {
            let point = self.fork_point(message_id).await?;
            let past = ThreadState::parse_under(messages_key, &point.state);
            run.start = request.fork(state.as_ref(), past.as_ref(), &keys);
            checkpoint = Some(point.checkpoint_id);
        }
        Ok(Next::Start(Box::new(Planned { run, server, checkpoint })))
    }

    /// Keeps decisions that wait for others; `None` if there are none, or they are kept. The runs
    /// that they come after are listed before the look at the thread that decides what they answer.
    async fn keep(
        &self,
        state: Option<&ThreadState<'_>>,
        given: &[Given],
        keeping: &Keeping,
    ) -> Result<Option<Keeping>, Refusal> {
        let Some(state) = state.filter(|_| !given.is_empty()) else { return Ok(None) };
        match keeping {
            Keeping::Nothing => {
                let before = kept::runs_before(self.upstream(), &self.id).await?;
                Ok(Some(Keeping::Due(before)))
            }
            Keeping::Due(before) => {
                kept::keep(self.upstream(), &self.id, state, given, before).await?;
                Ok(Some(Keeping::Done))
            }
            // Others have kept something else meanwhile.
            Keeping::Done => Ok(None),
        }
    }

    async fn fork_point(&self, message_id: &str) -> Result<Point, Refusal> {
        Ok(fork::point(self.upstream(), &self.id, message_id).await?)
    }

    /// Starts a run, and drops `held` when the server has answered and the run can be found.
    async fn begin(
        &self,
        planned: Planned,
        held: impl Send + 'static,
    ) -> Result<ThreadReader, Refusal> {
        self.expect_no_shutdown()?;
        let Planned { run, server, checkpoint } = planned;
        let (name, forgets) = (run.name.clone(), run.forgets.clone());
        let request = run.request(&self.agent.assistant, server, checkpoint);
        let runs = self.threads.runs();
        let new = RunStart { server, thread_id: &self.id, name: &name, request };
        match runs.start(self.upstream(), new, held).await {
            Ok(reader) => {
                self.threads.forget(self.upstream(), &self.id, &forgets);
                Ok(reader.into())
            }
            Err(error) if error.is_unknown_assistant() => {
                Err(Refusal::UnknownAssistant { assistant: self.agent.assistant.clone() })
            }
            Err(error) => Err(error.into()),
        }
    }

    fn upstream(&self) -> &Client {
        &self.agent.upstream
    }

    pub(super) fn expect_no_shutdown(&self) -> Result<(), Refusal> {
        if self.threads.runs().is_shutting_down() { Err(Refusal::ShuttingDown) } else { Ok(()) }
    }
}
