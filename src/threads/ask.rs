//! Starts runs: decides what a client's request becomes on the thread as it is, and sends that.

use std::borrow::Cow;
use std::sync::Arc;

use super::create::ThreadOrigin;
use super::interrupts::{has_live_run, live_runs};
use super::partial_answers;
use super::past::{self, Past};
use super::reader::ThreadReader;
use super::refusal::Refusal;
use super::sent;
use super::start_lock::StartLock;
use super::thread::{IfAbsent, Thread};
use crate::offload::offload;
use crate::random;
use crate::runs::{self, Begins, RunStart, StartError};
use crate::upstream::{AnswerText, Client, QueueClass};
use threadway_translate::langgraph::{
    BatchDecision, Capabilities, InputKeys, NewestRuns, RunRecord, ThreadState,
};
use threadway_translate::run::{Dropped, Evidence, Need, NewRun, Plan, PlanStep, Planner};

/// How many runs are stopped for one request. Each stops a run of the message that is to be
/// answered again.
const MAX_STOPS: usize = 5;

/// How often a planner may ask for something. It asks for each thing once.
const MAX_LOOKS: usize = 8;

/// How many parts of a request one log line names.
const MAX_LOGGED_PARTS: usize = 8;

/// A run to start.
#[derive(Clone)]
struct PlannedRun {
    run: NewRun,
    server: Capabilities,
    /// The checkpoint to begin at. `None` for the newest.
    checkpoint: Option<String>,
    origin: ThreadOrigin,
}

/// The result of planning on the thread as it is.
enum PlanOutcome {
    Next(Next),
    /// The thread is planned anew with its live runs.
    AfterRuns,
    /// The thread is planned anew after this run has ended.
    AfterStop {
        run_id: String,
    },
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
    /// Decisions must be stored. Holds the newest runs from before them.
    Due(NewestRuns),
    Done,
}

fn is_answer(request: &impl Planner) -> bool {
    offload(request.bytes(), || request.is_answer())
}

// === impl Thread ===

impl Thread {
    /// Starts a run and reads it, whatever the thread holds. The run also starts if the caller drops
    /// this future. A thread that the server has lost is created again, unless it is
    /// [`existing`](Self::existing).
    pub async fn start(&self, run: NewRun) -> Result<ThreadReader, Refusal> {
        let guard = self.threads.shared.starts.begin(self.upstream(), &self.id, &run.name);
        let server = self.agent.capabilities().await;
        let lock = if server.keeps_runs_apart { None } else { Some(self.lock().await) };
        let planned = PlannedRun { run, server, checkpoint: None, origin: ThreadOrigin::Exists };
        let guards = Arc::new((lock, guard));
        let begun = self.begin(planned.clone(), Arc::clone(&guards)).await;
        // The thread may have been deleted, or the server may have lost it. The JavaScript server
        // then answers that the thread is busy.
        let may_lack_thread =
            matches!(begun, Err(Refusal::UnknownAssistant { .. } | Refusal::Busy));
        if !may_lack_thread {
            return begun;
        }
        let turn = self.upstream().turn(QueueClass::Starts).await?;
        if self.upstream().thread_state(&self.id).await?.is_some() {
            return begun;
        }
        if self.if_absent == IfAbsent::Refuse {
            return Err(Refusal::NoThread);
        }
        let origin = self.create(None).await?;
        drop(turn);
        self.begin(PlannedRun { origin, ..planned }, guards).await
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
        if is_answer(request) {
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
            let is_answer = planned.run.is_alone || !planned.run.answers.is_empty();
            if lock.is_none() && !planned.server.keeps_runs_apart {
                lock = Some(Arc::new(self.lock().await));
            }
            match self.begin(planned, (lock.clone(), Arc::clone(&start))).await {
                Err(Refusal::Busy) if is_answer && may_look_again => may_look_again = false,
                // The thread may have been deleted since it was read.
                Err(Refusal::UnknownAssistant { .. })
                    if self.if_absent == IfAbsent::Refuse
                        && self.reads().thread_state(&self.id).await?.is_none() =>
                {
                    return Err(Refusal::NoThread);
                }
                begun => return begun.map(Some),
            }
        }
    }

    /// The upstream for reads before a start. They are repeated, since nothing was started yet.
    fn reads(&self) -> Client {
        self.upstream().clone().repeating_reads()
    }

    /// The lock under which this caller starts a run of the thread.
    async fn lock(&self) -> StartLock {
        self.threads.shared.start_locks.acquire(self.upstream(), &self.id).await
    }

    /// Decides what to do for a request on the thread as it is.
    async fn plan<P: Planner>(&self, request: &P, storing: &Storing) -> Result<Next, Refusal> {
        // Listed before the state is read: a run that has ended by then has made its state.
        let upstream = self.reads();
        let list =
            async || upstream.in_turn(QueueClass::Starts, live_runs(&upstream, &self.id)).await;
        let mut listed = if is_answer(request) { Some(list().await?) } else { None };
        let mut stops = 0;
        loop {
            let run_id = match self.plan_now(request, storing, listed.take(), stops > 0).await? {
                PlanOutcome::Next(next) => return Ok(next),
                PlanOutcome::AfterRuns => {
                    listed = Some(list().await?);
                    continue;
                }
                PlanOutcome::AfterStop { run_id } if stops < MAX_STOPS => run_id,
                PlanOutcome::AfterStop { .. } => return Err(Refusal::Busy),
            };
            stops += 1;
            tracing::info!(
                thread_id = self.id,
                run_id,
                "a run is stopped, because the client wants its message answered again"
            );
            if !self.threads.end(self.upstream(), &self.id, &run_id).await? {
                return Err(Refusal::Busy);
            }
            listed = Some(list().await?);
        }
    }

    /// Reads the thread, and plans. The planner is called again with each thing that it asks for.
    ///
    /// `is_after_stop` is whether a run was stopped for this request. aegra may commit the rest of
    /// such a run after its record says that it has ended. So the new run begins at the checkpoint
    /// that was read, and leaves a later one behind. Not on the JavaScript server, where later runs of
    /// other programs would begin there too.
    async fn plan_now<P: Planner>(
        &self,
        request: &P,
        storing: &Storing,
        mut listed: Option<Vec<RunRecord>>,
        is_after_stop: bool,
    ) -> Result<PlanOutcome, Refusal> {
        let upstream = &self.reads();
        let _turn = upstream.turn(QueueClass::Starts).await?;
        let state = upstream.thread_state(&self.id);
        let (body, server) = tokio::join!(state, self.agent.capabilities());
        let body = body?;
        let messages_key = upstream.messages_key();
        let mut state = match &body {
            Some(body) => {
                let state = body.read(|body| ThreadState::parse_under(messages_key, body));
                Some(upstream.understood(state, "a thread's state")?)
            }
            None if self.if_absent == IfAbsent::Refuse => return Err(Refusal::NoThread),
            None => None,
        };
        if let Some(state) = &mut state {
            if listed.is_none() && !state.interrupts.is_empty() {
                listed = Some(live_runs(upstream, &self.id).await?);
            }
            // An interrupt that a live run answers is no longer open, and the nodes that the run
            // executes are no breakpoint.
            let answered: Vec<_> = listed.iter().flatten().flat_map(|run| &run.answers).collect();
            state.interrupts.retain(|open| !answered.iter().any(|id| ***id == *open.id));
            if !answered.is_empty() {
                state.next.clear();
            }
        }
        let kept = runs::stored_decisions(upstream, &self.id, state.as_ref()).await?;
        if let Some(state) = &mut state {
            state.kept = kept;
        }
        let bytes = request.bytes() + body.as_ref().map_or(0, AnswerText::len);
        let keys = if offload(bytes, || request.needs_keys(state.as_ref())) {
            self.agent.input_keys().await
        } else {
            InputKeys::Unknown.into()
        };
        let known = self.agent.known_input_keys();
        let losses = || request.losses(known.as_deref().unwrap_or(&keys));
        self.agent.log_losses(offload(request.bytes(), losses));
        let live = match listed {
            Some(listed) => Some(sent::live_runs(upstream, &self.id, listed).await?),
            None => None,
        };
        let (mut sent, mut past, mut values) = (None, None::<Past>, None);
        let mut plan = None;
        for _ in 0..MAX_LOOKS {
            let evidence = Evidence {
                state: state.as_ref(),
                live: live.as_deref(),
                sent: sent.as_deref(),
                past: past.as_ref().map(|past| &*past.messages),
                values: values.as_deref(),
            };
            let step = offload(bytes + evidence.bytes(), || request.plan(&evidence, &keys));
            match step.map_err(|error| Refusal::CannotResume(error.to_string()))? {
                PlanStep::Plan(planned) => {
                    plan = Some(*planned);
                    break;
                }
                PlanStep::Needs(Need::Runs) => return Ok(PlanOutcome::AfterRuns),
                PlanStep::Needs(Need::Sent { ids, made }) => {
                    sent = Some(sent::messages(upstream, &self.id, &ids, made).await?);
                }
                PlanStep::Needs(Need::Past(ids)) => {
                    past = Some(Past::of(upstream, &self.id, &ids).await?);
                }
                PlanStep::Needs(Need::Values { wanted, since }) => {
                    let found = past::values(upstream, &self.id, wanted, since.as_deref());
                    values = Some(found.await?);
                }
                PlanStep::Needs(Need::Stop { run_id }) => {
                    return Ok(PlanOutcome::AfterStop { run_id });
                }
            }
        }
        let Some(Plan { keep, run, dropped }) = plan else {
            let message = "the thread's past does not show what the request changes; load the \
                           thread anew, then send the request again";
            return Err(Refusal::CannotResume(message.to_owned()));
        };
        self.log_dropped(&dropped);
        if let Some(step) = self.store(state.as_ref(), &keep, storing).await? {
            return Ok(PlanOutcome::Next(Next::LookAgain(step)));
        }
        let Some(mut run) = run else { return Ok(PlanOutcome::Next(Next::Show)) };
        run.client_context = offload(request.bytes(), || request.client_context(&keys));
        let origin = match &state {
            Some(_) => ThreadOrigin::Exists,
            None => self.create(run.title.as_deref()).await?,
        };
        let checkpoint = match (&run.fork_before, past) {
            (Some(message_id), Some(past)) => Some(past.checkpoint_before(message_id)?),
            (Some(_), None) | (None, _) if is_after_stop && !server.keeps_fork_point => {
                state.and_then(|state| state.checkpoint_id).map(Cow::into_owned)
            }
            (Some(_), None) | (None, _) => None,
        };
        Ok(PlanOutcome::Next(Next::Start(Box::new(PlannedRun { run, server, checkpoint, origin }))))
    }

    /// Logs what does not go up. The client's own words and ids are not logged.
    fn log_dropped(&self, dropped: &[Dropped]) {
        if dropped.is_empty() {
            return;
        }
        let listed: Vec<_> =
            dropped.iter().take(MAX_LOGGED_PARTS).map(ToString::to_string).collect();
        tracing::info!(
            thread_id = self.id,
            parts = dropped.len(),
            "parts of a client's request were not sent to LangGraph; the client is corrected: {}",
            listed.join("; ")
        );
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
                let before = partial_answers::runs_before(&self.reads(), &self.id).await?;
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

    /// Starts a run. Drops `guards` when the server has answered and the run can be found.
    async fn begin(
        &self,
        planned: PlannedRun,
        guards: impl Send + 'static,
    ) -> Result<ThreadReader, Refusal> {
        self.expect_no_shutdown()?;
        let PlannedRun { run, server, checkpoint, origin } = planned;
        let reads = self.reads();
        let turn = reads.turn(QueueClass::Starts).await?;
        if !server.keeps_runs_apart && has_live_run(&reads, &self.id).await? {
            return Err(Refusal::Busy);
        }
        let (name, forgets) = (run.name.clone(), run.forgets.clone());
        let begins = if run.resumes() { Begins::AfterQuestion } else { Begins::Anew };
        let request = run.request(&self.agent.assistant, server, checkpoint);
        let (request, token) = match origin {
            ThreadOrigin::Exists => {
                let token = random::uuid().to_string();
                (request.with_token(&token, server), Some(token))
            }
            ThreadOrigin::Run(metadata) => (request.creating_thread(&metadata, server), None),
        };
        let runs = self.threads.runs();
        let new = RunStart { server, thread_id: &self.id, name: &name, token, request, begins };
        // The request goes on if the client leaves, and so does its turn.
        match runs.start(self.upstream(), new, (guards, turn)).await {
            Ok(reader) => {
                self.threads.delete_stored(self.upstream(), &self.id, &forgets);
                Ok(reader.into())
            }
            Err(StartError::Refused(error)) if error.is_unknown_assistant() => {
                Err(Refusal::UnknownAssistant { assistant: self.agent.assistant.clone() })
            }
            Err(error) => Err(error.into()),
        }
    }
}
