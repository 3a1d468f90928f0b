//! Starts runs: decides what a client's request becomes on the thread as it is, and sends that.

use std::sync::Arc;

use super::fork::{self, Point};
use super::interrupts::{answered_by_live_runs, has_live_run};
use super::partial_answers;
use super::reader::ThreadReader;
use super::refusal::Refusal;
use super::start_lock::StartLock;
use super::thread::Thread;
use crate::runs::{self, RunStart};
use threadway_translate::langgraph::{
    BatchDecision, Capabilities, InputKeys, NewestRuns, ThreadState,
};
use threadway_translate::run::{NewRun, Plan, Planner};

/// A run to start.
struct PlannedRun {
    run: NewRun,
    server: Capabilities,
    /// The checkpoint to fork at.
    checkpoint: Option<String>,
}

/// What to do next for a request.
enum Next {
    Start(Box<PlannedRun>),
    /// Look at the thread again after this step of storing decisions.
    LookAgain(Storing),
    /// Show the thread to the client, without a run.
    Show,
}

/// The steps of storing decisions on some actions of a batch.
enum Storing {
    /// Nothing was to be stored so far.
    NotNeeded,
    /// Decisions are to be stored. These runs came before them.
    Due(NewestRuns),
    Done,
}

// === impl Thread ===

impl Thread {
    /// Starts a run and reads it. The run also starts if the caller drops this future.
    pub async fn start(&self, run: NewRun) -> Result<ThreadReader, Refusal> {
        let guard = self.threads.shared.starts.begin(self.upstream(), &self.id, &run.name);
        let server = self.agent.capabilities().await;
        let lock = if server.keeps_runs_apart { None } else { Some(self.lock().await) };
        let checkpoint = match &run.fork_before {
            Some(message_id) => Some(self.fork_point(message_id).await?.checkpoint_id),
            None => None,
        };
        self.begin(PlannedRun { run, server, checkpoint }, (lock, guard)).await
    }

    /// Starts the run that a client's request becomes on the thread as it is, and reads it. `None`
    /// if the client is to see the thread instead.
    ///
    /// The answers of one caller to a thread are started one at a time, and so are all its runs on a
    /// server that does not keep them apart. LangGraph refuses an answer while another run is live.
    /// That run may already have taken the same answer, so the thread is looked at once more after a
    /// refusal.
    ///
    /// A decision on one of several actions is stored, and then the thread is looked at again. If
    /// two replicas store the last two decisions at the same time, at least one of them sees both.
    pub async fn ask(&self, request: &impl Planner) -> Result<Option<ThreadReader>, Refusal> {
        let start = self.threads.shared.starts.begin(self.upstream(), &self.id, request.name());
        let start = Arc::new(start);
        let mut lock = None;
        if request.is_answer() {
            lock = Some(Arc::new(self.lock().await));
        }
        let mut may_look_again = true;
        let mut storing = Storing::NotNeeded;
        loop {
            let planned = match Box::pin(self.plan(request, &storing)).await? {
                Next::Show => return Ok(None),
                Next::LookAgain(step) => {
                    storing = step;
                    continue;
                }
                Next::Start(planned) => *planned,
            };
            let is_answer = !planned.run.answers.is_empty();
            if lock.is_none() && !planned.server.keeps_runs_apart {
                lock = Some(Arc::new(self.lock().await));
            }
            match self.begin(planned, (lock.clone(), Arc::clone(&start))).await {
                Err(Refusal::Busy) if is_answer && may_look_again => may_look_again = false,
                begun => return begun.map(Some),
            }
        }
    }

    /// The lock under which this caller starts a run of the thread.
    async fn lock(&self) -> StartLock {
        self.threads.shared.start_locks.acquire(self.upstream(), &self.id).await
    }

    /// Decides what to do for a request on the thread as it is.
    async fn plan<P: Planner>(&self, request: &P, storing: &Storing) -> Result<Next, Refusal> {
        let answered_now = async || answered_by_live_runs(self.upstream(), &self.id).await;
        // Listed before the state is read: a run that has ended by then has made its state.
        let mut answered = if request.is_answer() { answered_now().await? } else { Vec::new() };
        let state = self.upstream().thread_state(&self.id);
        let (body, server) = tokio::join!(state, self.agent.capabilities());
        let body = body?;
        let messages_key = self.upstream().messages_key();
        let mut state = match &body {
            Some(body) => {
                let state = ThreadState::parse_under(messages_key, body);
                Some(self.upstream().understood(state, "a thread's state")?)
            }
            None => None,
        };
        if let Some(state) = &mut state {
            if !request.is_answer() && !state.interrupts.is_empty() {
                answered = answered_now().await?;
            }
            // An interrupt that a live run answers is no longer open, and the nodes that the run
            // executes are no breakpoint.
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
        let known = self.agent.known_input_keys();
        self.agent.log_losses(request.losses(known.as_deref().unwrap_or(&keys)));
        let planned = request.plan(state.as_ref(), &keys);
        let Plan { keep, run } =
            planned.map_err(|error| Refusal::CannotResume(error.to_string()))?;
        if let Some(step) = self.store(state.as_ref(), &keep, storing).await? {
            return Ok(Next::LookAgain(step));
        }
        let Some(mut run) = run else { return Ok(Next::Show) };
        run.client_context = request.client_context(&keys);
        if let (None, Some(client_id)) = (&state, &self.client_id) {
            let title = run.title.take();
            self.upstream().create_thread(&self.id, client_id, title.as_deref()).await?;
        }
        let mut checkpoint = None;
        if let Some(message_id) = &run.fork_before {
            let point = self.fork_point(message_id).await?;
            let past = ThreadState::parse_under(messages_key, &point.state);
            run.start = request.fork(state.as_ref(), past.as_ref(), &keys);
            checkpoint = Some(point.checkpoint_id);
        }
        Ok(Next::Start(Box::new(PlannedRun { run, server, checkpoint })))
    }

    /// Takes the next step of storing decisions. `None` if there is no step left.
    ///
    /// The runs before the decisions are listed first, and then the thread is looked at again,
    /// because that look decides which interrupt the decisions answer.
    async fn store(
        &self,
        state: Option<&ThreadState<'_>>,
        given: &[BatchDecision],
        storing: &Storing,
    ) -> Result<Option<Storing>, Refusal> {
        let Some(state) = state.filter(|_| !given.is_empty()) else { return Ok(None) };
        match storing {
            Storing::NotNeeded => {
                let before = partial_answers::runs_before(self.upstream(), &self.id).await?;
                Ok(Some(Storing::Due(before)))
            }
            Storing::Due(before) => {
                let upstream = self.upstream();
                partial_answers::store(upstream, &self.id, state, given, before).await?;
                Ok(Some(Storing::Done))
            }
            // Another request has stored something else in the meantime.
            Storing::Done => Ok(None),
        }
    }

    async fn fork_point(&self, message_id: &str) -> Result<Point, Refusal> {
        Ok(fork::point(self.upstream(), &self.id, message_id).await?)
    }

    /// Starts a run. Drops `guards` when the server has answered and the run can be found.
    async fn begin(
        &self,
        planned: PlannedRun,
        guards: impl Send + 'static,
    ) -> Result<ThreadReader, Refusal> {
        self.expect_no_shutdown()?;
        let PlannedRun { run, server, checkpoint } = planned;
        if !server.keeps_runs_apart && has_live_run(self.upstream(), &self.id).await? {
            return Err(Refusal::Busy);
        }
        let (name, forgets) = (run.name.clone(), run.forgets.clone());
        let request = run.request(&self.agent.assistant, server, checkpoint);
        let runs = self.threads.runs();
        let new = RunStart { server, thread_id: &self.id, name: &name, request };
        match runs.start(self.upstream(), new, guards).await {
            Ok(reader) => {
                self.threads.delete_stored(self.upstream(), &self.id, &forgets);
                Ok(reader.into())
            }
            Err(error) if error.is_unknown_assistant() => {
                Err(Refusal::UnknownAssistant { assistant: self.agent.assistant.clone() })
            }
            Err(error) => Err(error.into()),
        }
    }
}
