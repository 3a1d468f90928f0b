//! Plays one run, superstep by superstep. Emits each step and stores it as a checkpoint.

use serde_json::{Value, json};
use uuid::Uuid;

use super::Server;
use super::request::{Begin, Mode, Order};
use super::run::Run;
use super::script::{Act, Due, End, Line, LineContent, NodeContext};
use super::state::{self, Exception, Values};
use super::thread::{Checkpoint, Interrupt, NewCheckpoint, Task, Thread};

/// A run that is being played.
#[derive(Clone, Copy)]
struct Play<'a> {
    server: &'a Server,
    run: &'a Run,
}

/// The current checkpoint of a run, and the tasks that are due.
struct Position {
    checkpoint: Uuid,
    values: Values,
    tasks: Vec<Task>,
    step: i64,
}

/// An event of a superstep.
enum Cue {
    Line(LineContent),
    End(End),
}

/// The results of a superstep's tasks, in order.
#[derive(Default)]
struct Outcome {
    updates: Vec<(usize, Values)>,
    calls: Option<Vec<Value>>,
    asked: Vec<Interrupt>,
}

/// Plays a run until it ends or asks a person.
pub(super) async fn play(server: &Server, run: &Run) -> Result<(), Exception> {
    let play = Play { server, run };
    let metadata = json!({"run_id": run.id.to_string(), "attempt": 1});
    run.push("metadata", &metadata.to_string(), &server.clock);
    let mut position = play.open()?;
    run.emit_values(&Value::Object(position.values.clone()), &server.clock);
    let mut answer = match &run.order.begin {
        Begin::Resume(answer) => Some(answer),
        Begin::Input(_) | Begin::Continue => None,
    };
    while !position.tasks.is_empty() {
        match play.superstep(&position, answer.take()).await? {
            Some(next) => position = next,
            None => break,
        }
    }
    Ok(())
}

// === impl Play ===

impl Play<'_> {
    /// Finds the checkpoint at which the run begins, and applies the run's input.
    fn open(self) -> Result<Position, Exception> {
        let gone = |_| Exception { kind: "HTTPException", message: "404: Thread not found".into() };
        let mut store = self.server.store();
        let thread = store.thread_mut(self.run.thread_id).map_err(gone)?;
        let base = match self.run.order.checkpoint {
            Some(id) => thread.checkpoint(id),
            None => thread.newest(),
        };
        let base = base.cloned();
        match (&self.run.order.begin, base) {
            (Begin::Input(input), base) => {
                let started = self.enter(thread, base);
                self.take_in(thread, started, input.clone())
            }
            (Begin::Resume(_) | Begin::Continue, None) => {
                let message = "Received no input for __start__".to_owned();
                Err(Exception { kind: "EmptyInputError", message })
            }
            (Begin::Resume(_) | Begin::Continue, Some(base)) => {
                if let Some(input) = starting(&base) {
                    self.take_in(thread, Position::at(base), input)
                } else {
                    self.update(Position::at(base))
                }
            }
        }
    }

    /// Applies the `update` that was sent with an answer.
    fn update(self, at: Position) -> Result<Position, Exception> {
        let Order { graph, update, .. } = &self.run.order;
        let mut position = at;
        state::apply(&mut position.values, graph.channels(), update, &self.server.clock)?;
        state::fit(&position.values)?;
        Ok(position)
    }

    /// Stores the checkpoint before the input.
    fn enter(self, thread: &mut Thread, base: Option<Checkpoint>) -> Position {
        let step = base.as_ref().map_or(-1, |base| base.step + 1);
        let (parent, values) = match base {
            Some(base) => (Some(base.id), base.values),
            None => (None, empty()),
        };
        let draft = NewCheckpoint {
            parent,
            values: values.clone(),
            due: vec![Due::pull("__start__")],
            source: "input",
            step,
            run: Some(self.run),
        };
        let (checkpoint, tasks) = thread.add_checkpoint(draft, &self.server.clock);
        Position { checkpoint, values, tasks, step }
    }

    /// Applies the input.
    fn take_in(
        self,
        thread: &mut Thread,
        started: Position,
        input: Value,
    ) -> Result<Position, Exception> {
        let (graph, clock) = (self.run.order.graph, &self.server.clock);
        for task in &started.tasks {
            thread.update_task(started.checkpoint, task.id, |task| task.result = input.clone());
        }
        let Value::Object(update) = input else {
            let message = format!("Expected dict, got {input}");
            return Err(Exception { kind: "InvalidUpdateError", message });
        };
        let (mut values, step) = (started.values, started.step + 1);
        state::apply(&mut values, graph.channels(), &update, clock)?;
        state::fit(&values)?;
        let draft = NewCheckpoint {
            parent: Some(started.checkpoint),
            values: values.clone(),
            due: vec![graph.entry()],
            source: "loop",
            step,
            run: Some(self.run),
        };
        let (checkpoint, tasks) = thread.add_checkpoint(draft, clock);
        Ok(Position { checkpoint, values, tasks, step })
    }

    /// Plays all due tasks concurrently. `None` if the run stops to ask a person.
    async fn superstep(
        self,
        at: &Position,
        answer: Option<&Value>,
    ) -> Result<Option<Position>, Exception> {
        let graph = self.run.order.graph;
        let acts = at.tasks.iter().map(|task| {
            let resume = answer.and_then(|answer| answer_of(task, answer));
            let tokens = self.run.order.tokens();
            let node =
                NodeContext { values: &at.values, clock: &self.server.clock, resume, tokens };
            graph.act(&task.due, &node)
        });
        let cues = cues(acts.collect());
        let mut outcome = Outcome::default();
        let mut beat = 0;
        for (due, index, cue) in cues {
            self.server.pace.wait(due.saturating_sub(beat)).await;
            beat = due;
            let Some(task) = at.tasks.get(index) else { continue };
            match cue {
                Cue::Line(content) => self.emit(at, task, content),
                Cue::End(end) => self.end(at, index, task, end, &mut outcome)?,
            }
        }
        if outcome.asked.is_empty() {
            return self.commit(at, outcome).map(Some);
        }
        self.ask(at, &outcome.asked);
        Ok(None)
    }

    fn emit(self, at: &Position, task: &Task, content: LineContent) {
        let clock = &self.server.clock;
        match content {
            LineContent::Custom(payload) => {
                self.run.emit(Mode::Custom, &payload.to_string(), clock);
            }
            LineContent::Chunk(message) | LineContent::Message(message) => {
                let data = json!([message, self.origin(at, task)]);
                self.run.emit(Mode::Messages, &data.to_string(), clock);
            }
        }
    }

    /// The metadata that LangGraph sends with each message.
    fn origin(self, at: &Position, task: &Task) -> Value {
        let namespace = format!("{}:{}", task.due.node, task.id);
        let mut origin = self.run.metadata.clone();
        for (name, value) in [
            ("run_attempt", json!(1)),
            ("langgraph_version", json!(super::LANGGRAPH_VERSION)),
            ("langgraph_api_version", json!(super::API_VERSION)),
            ("langgraph_plan", json!("developer")),
            ("langgraph_host", json!("self-hosted")),
            ("thread_id", json!(self.run.thread_id.to_string())),
            ("run_id", json!(self.run.id.to_string())),
            ("langgraph_step", json!(at.step + 1)),
            ("langgraph_node", json!(task.due.node)),
            ("langgraph_triggers", json!([task.due.trigger()])),
            ("langgraph_path", task.due.path()),
            ("langgraph_checkpoint_ns", json!(namespace)),
            ("checkpoint_ns", json!(namespace)),
            ("ls_provider", json!("threadway")),
            ("ls_model_type", json!("chat")),
        ] {
            origin.insert(name.to_owned(), value);
        }
        Value::Object(origin)
    }

    /// Handles the end of a task.
    fn end(
        self,
        at: &Position,
        index: usize,
        task: &Task,
        end: End,
        outcome: &mut Outcome,
    ) -> Result<(), Exception> {
        let (update, calls) = match end {
            End::Update(update) => (update, None),
            End::Send(update, calls) => (Some(update), Some(calls)),
            End::Ask(value) => {
                let asked = Interrupt::new(task.id, value);
                self.update_task(at, task, |task| task.interrupt = Some(asked.clone()));
                outcome.asked.push(asked);
                return Ok(());
            }
            End::Raise(exception) => {
                self.update_task(at, task, |task| task.error = Some(exception.repr()));
                return Err(exception);
            }
        };
        let update_json = json!({task.due.node: update});
        self.run.emit(Mode::Updates, &update_json.to_string(), &self.server.clock);
        self.update_task(at, task, |task| task.result = json!(update.clone().unwrap_or_default()));
        outcome.updates.extend(update.map(|update| (index, update)));
        outcome.calls = outcome.calls.take().or(calls);
        Ok(())
    }

    fn update_task(self, at: &Position, task: &Task, update: impl FnOnce(&mut Task)) {
        // A deleted thread is not updated; its run is about to be stopped.
        if let Ok(thread) = self.server.store().thread_mut(self.run.thread_id) {
            thread.update_task(at.checkpoint, task.id, update);
        }
    }

    fn ask(self, at: &Position, asked: &[Interrupt]) {
        let asked: Vec<_> = asked.iter().map(Interrupt::streamed).collect();
        let update_json = json!({"__interrupt__": asked});
        self.run.emit(Mode::Updates, &update_json.to_string(), &self.server.clock);
        let mut values = at.values.clone();
        values.insert("__interrupt__".to_owned(), Value::Array(asked));
        self.run.emit_values(&Value::Object(values), &self.server.clock);
    }

    /// Merges the updates of the tasks, and stores the next checkpoint.
    fn commit(self, at: &Position, mut outcome: Outcome) -> Result<Position, Exception> {
        let graph = self.run.order.graph;
        let mut values = at.values.clone();
        outcome.updates.sort_by_key(|(index, _)| *index);
        for (_, update) in &outcome.updates {
            state::apply(&mut values, graph.channels(), update, &self.server.clock)?;
        }
        let mut due: Vec<Due> = vec![];
        for task in &at.tasks {
            let follows = match &outcome.calls {
                Some(calls) if !calls.is_empty() => Due::tools(calls.clone()),
                Some(_) | None => graph.follow(task.due.node, &values).unwrap_or_default(),
            };
            due.extend(follows.into_iter().filter(|next| !due.contains(next)).collect::<Vec<_>>());
        }
        let (checkpoint, tasks) = {
            let parent = Some(at.checkpoint);
            let (run, step) = (Some(self.run), at.step + 1);
            let kept = values.clone();
            let draft = NewCheckpoint { parent, values: kept, due, source: "loop", step, run };
            let mut store = self.server.store();
            let thread = store.thread_mut(self.run.thread_id);
            // The thread was deleted, so nothing more is due.
            thread.map_or_else(
                |_| (at.checkpoint, vec![]),
                |thread| thread.add_checkpoint(draft, &self.server.clock),
            )
        };
        if !outcome.updates.is_empty() {
            self.run.emit_values(&Value::Object(values.clone()), &self.server.clock);
        }
        Ok(Position { checkpoint, values, tasks, step: at.step + 1 })
    }
}

// === impl Position ===

impl Position {
    fn at(checkpoint: Checkpoint) -> Self {
        let Checkpoint { id, values, tasks, step, .. } = checkpoint;
        Self { checkpoint: id, values, tasks, step }
    }
}

/// The state of a new thread.
fn empty() -> Values {
    Values::from_iter([("messages".to_owned(), json!([]))])
}

/// The input that follows a checkpoint.
fn starting(base: &Checkpoint) -> Option<Value> {
    let start = base.tasks.iter().find(|task| task.due.node == "__start__")?;
    Some(start.result.clone())
}

/// The answer to a task's question: one for all tasks, or by the question's id.
fn answer_of<'a>(task: &Task, answer: &'a Value) -> Option<&'a Value> {
    let asked = task.interrupt.as_ref()?;
    let is_id = |key: &String| key.len() == 32 && key.bytes().all(|byte| byte.is_ascii_hexdigit());
    match answer.as_object().filter(|answers| !answers.is_empty() && answers.keys().all(is_id)) {
        Some(answers) => answers.get(&asked.id),
        None => Some(answer),
    }
}

/// All lines and ends in time order. Tasks run concurrently, each at its own pace.
fn cues(acts: Vec<Act>) -> Vec<(u32, usize, Cue)> {
    let mut cues = vec![];
    for (index, Act { lines, pause, end }) in acts.into_iter().enumerate() {
        let mut beat = 0;
        for Line { after, content } in lines {
            beat += after;
            cues.push((beat, index, Cue::Line(content)));
        }
        cues.push((beat + pause, index, Cue::End(end)));
    }
    cues.sort_by_key(|(beat, _, _)| *beat);
    cues
}
