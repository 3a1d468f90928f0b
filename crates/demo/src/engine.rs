//! Plays one run: superstep after superstep, each told as it happens and kept as a checkpoint.

use serde_json::{Value, json};
use uuid::Uuid;

use super::request::{Begin, Mode, Order};
use super::run::Run;
use super::script::{Act, Due, End, Line, Stage, Word};
use super::state::{self, Exception, Values};
use super::thread::{Checkpoint, Draft, Interrupt, Task, Thread};
use super::{MAX_STATE_BYTES, Server};

/// A run that is being played.
#[derive(Clone, Copy)]
struct Play<'a> {
    server: &'a Server,
    run: &'a Run,
}

/// Where a run is: a checkpoint, and what is due from it.
struct Position {
    checkpoint: Uuid,
    values: Values,
    tasks: Vec<Task>,
    step: i64,
}

/// What happens at some beat of a superstep.
enum Cue {
    Line(Word),
    End(End),
}

/// What the tasks of a superstep have come to, in their order.
#[derive(Default)]
struct Outcome {
    updates: Vec<(usize, Values)>,
    calls: Option<Vec<Value>>,
    asked: Vec<Interrupt>,
}

/// Plays a run to its end, which is also where it asks a human.
pub(super) async fn play(server: &Server, run: &Run) -> Result<(), Exception> {
    let play = Play { server, run };
    let metadata = json!({"run_id": run.id.to_string(), "attempt": 1});
    run.push("metadata", &metadata.to_string(), &server.clock);
    let mut position = play.open()?;
    run.say_values(&Value::Object(position.values.clone()), &server.clock);
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
    /// Finds where the run begins, and lays its input over the state there.
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

    /// Lays what comes beside an answer over the state.
    fn update(self, at: Position) -> Result<Position, Exception> {
        let Order { graph, update, .. } = &self.run.order;
        let mut position = at;
        state::apply(&mut position.values, graph.channels(), update, &self.server.clock)?;
        fit(&position.values)?;
        Ok(position)
    }

    /// Makes the checkpoint that is about to take the input.
    fn enter(self, thread: &mut Thread, base: Option<Checkpoint>) -> Position {
        let step = base.as_ref().map_or(-1, |base| base.step + 1);
        let (parent, values) = match base {
            Some(base) => (Some(base.id), base.values),
            None => (None, empty()),
        };
        let draft = Draft {
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

    /// Lays the input over the state.
    fn take_in(
        self,
        thread: &mut Thread,
        started: Position,
        input: Value,
    ) -> Result<Position, Exception> {
        let (graph, clock) = (self.run.order.graph, &self.server.clock);
        for task in &started.tasks {
            thread.note(started.checkpoint, task.id, |task| task.result = input.clone());
        }
        let Value::Object(update) = input else {
            let message = format!("Expected dict, got {input}");
            return Err(Exception { kind: "InvalidUpdateError", message });
        };
        let (mut values, step) = (started.values, started.step + 1);
        state::apply(&mut values, graph.channels(), &update, clock)?;
        fit(&values)?;
        let draft = Draft {
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

    /// Lets all that is due act, at once; `None` if the run stops there to ask.
    async fn superstep(
        self,
        at: &Position,
        answer: Option<&Value>,
    ) -> Result<Option<Position>, Exception> {
        let graph = self.run.order.graph;
        let acts = at.tasks.iter().map(|task| {
            let resume = answer.and_then(|answer| answer_of(task, answer));
            let tokens = self.run.order.tokens();
            let stage = Stage { values: &at.values, clock: &self.server.clock, resume, tokens };
            graph.act(&task.due, &stage)
        });
        let cues = cues(acts.collect());
        let mut outcome = Outcome::default();
        let mut beat = 0;
        for (due, index, cue) in cues {
            self.server.pace.wait(due.saturating_sub(beat)).await;
            beat = due;
            let Some(task) = at.tasks.get(index) else { continue };
            match cue {
                Cue::Line(word) => self.say(at, task, word),
                Cue::End(end) => self.end(at, index, task, end, &mut outcome)?,
            }
        }
        if outcome.asked.is_empty() {
            return self.commit(at, outcome).map(Some);
        }
        self.ask(at, &outcome.asked);
        Ok(None)
    }

    fn say(self, at: &Position, task: &Task, word: Word) {
        let clock = &self.server.clock;
        match word {
            Word::Custom(payload) => self.run.say(Mode::Custom, &payload.to_string(), clock),
            Word::Chunk(message) | Word::Message(message) => {
                let data = json!([message, self.origin(at, task)]);
                self.run.say(Mode::Messages, &data.to_string(), clock);
            }
        }
    }

    /// Where a message comes from, as LangGraph tells it beside each.
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

    /// A task is through.
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
                self.note(at, task, |task| task.interrupt = Some(asked.clone()));
                outcome.asked.push(asked);
                return Ok(());
            }
            End::Raise(exception) => {
                self.note(at, task, |task| task.error = Some(exception.repr()));
                return Err(exception);
            }
        };
        let told = json!({task.due.node: update});
        self.run.say(Mode::Updates, &told.to_string(), &self.server.clock);
        self.note(at, task, |task| task.result = json!(update.clone().unwrap_or_default()));
        outcome.updates.extend(update.map(|update| (index, update)));
        outcome.calls = outcome.calls.take().or(calls);
        Ok(())
    }

    fn note(self, at: &Position, task: &Task, note: impl FnOnce(&mut Task)) {
        // A thread that is gone takes no notes; its run is about to be stopped.
        if let Ok(thread) = self.server.store().thread_mut(self.run.thread_id) {
            thread.note(at.checkpoint, task.id, note);
        }
    }

    fn ask(self, at: &Position, asked: &[Interrupt]) {
        let asked: Vec<_> = asked.iter().map(Interrupt::streamed).collect();
        let told = json!({"__interrupt__": asked});
        self.run.say(Mode::Updates, &told.to_string(), &self.server.clock);
        let mut values = at.values.clone();
        values.insert("__interrupt__".to_owned(), Value::Array(asked));
        self.run.say_values(&Value::Object(values), &self.server.clock);
    }

    /// Merges what the tasks have changed, and makes the next checkpoint of it.
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
            let draft = Draft { parent, values: kept, due, source: "loop", step, run };
            let mut store = self.server.store();
            let thread = store.thread_mut(self.run.thread_id);
            // A thread that is gone has nothing left to do either.
            thread.map_or_else(
                |_| (at.checkpoint, vec![]),
                |thread| thread.add_checkpoint(draft, &self.server.clock),
            )
        };
        if !outcome.updates.is_empty() {
            self.run.say_values(&Value::Object(values.clone()), &self.server.clock);
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

/// The state of a thread that has none yet.
fn empty() -> Values {
    Values::from_iter([("messages".to_owned(), json!([]))])
}

/// The input that a checkpoint was about to take.
fn starting(base: &Checkpoint) -> Option<Value> {
    let start = base.tasks.iter().find(|task| task.due.node == "__start__")?;
    Some(start.result.clone())
}

/// Whether a thread may hold this much.
pub(super) fn fit(values: &Values) -> Result<(), Exception> {
    let bytes = state::size(values);
    if bytes <= MAX_STATE_BYTES {
        return Ok(());
    }
    Err(Exception::value_error(format!(
        "the thread would hold {bytes} bytes; the demo keeps {MAX_STATE_BYTES}: begin a new thread"
    )))
}

/// The answer to what a task asked: one for all, or by the id of the question.
fn answer_of<'a>(task: &Task, answer: &'a Value) -> Option<&'a Value> {
    let asked = task.interrupt.as_ref()?;
    let is_id = |key: &String| key.len() == 32 && key.bytes().all(|byte| byte.is_ascii_hexdigit());
    match answer.as_object().filter(|answers| !answers.is_empty() && answers.keys().all(is_id)) {
        Some(answers) => answers.get(&asked.id),
        None => Some(answer),
    }
}

/// What happens when: all tasks act at once, each at its own pace.
fn cues(acts: Vec<Act>) -> Vec<(u32, usize, Cue)> {
    let mut cues = vec![];
    for (index, Act { lines, rest, end }) in acts.into_iter().enumerate() {
        let mut beat = 0;
        for Line { after, word } in lines {
            beat += after;
            cues.push((beat, index, Cue::Line(word)));
        }
        cues.push((beat + rest, index, Cue::End(end)));
    }
    cues.sort_by_key(|(beat, _, _)| *beat);
    cues
}
