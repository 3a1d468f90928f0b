//! The body of a run that we start.

use serde::Serialize;

use super::ServerKind;
use crate::json::{self, Json, ObjectWriter};

/// The stream modes of a run that the gateway starts; docs/mapping.md says what becomes of each.
const STREAM_MODES: [&str; 4] = ["values", "messages-tuple", "updates", "custom"];

/// What we ask of the JavaScript server, and of one whose kind is not known.
///
/// Nothing is made of `checkpoints`. Asked for subgraphs and `values` without it, that server fails
/// every run with a `TypeError` before its first node, over a part of its own that it takes for a
/// checkpoint (langgraph-api 2.0.0 with langgraph 1.7.3). Each costs the state once more.
const STREAM_MODES_OF_ANY: [&str; 5] =
    ["values", "messages-tuple", "updates", "custom", "checkpoints"];

/// A run to start: the body of `POST /threads/{id}/runs/stream`.
#[derive(Clone, Debug, Serialize)]
pub struct RunRequest {
    assistant_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoint_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<Json>,
    metadata: Json,
    stream_mode: &'static [&'static str],
    stream_subgraphs: bool,
    stream_resumable: bool,
    on_disconnect: &'static str,
    if_not_exists: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    multitask_strategy: Option<Multitask>,
}

/// What LangGraph does with a new run on a thread that has another under way. Without a word of
/// ours the Python server has the new one wait, and the JavaScript one refuses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Multitask {
    /// It refuses the new run.
    Reject,
    /// The new run waits for its turn.
    Enqueue,
    /// It stops the other run, which keeps what it has committed.
    Interrupt,
    /// It stops the other run and takes back what that has done; the Python server deletes it.
    Rollback,
}

/// The key of a run's metadata that holds the client's name of the run, for every replica.
pub(super) const CLIENT_RUN_ID: &str = "threadway_run_id";

/// The key of a run's metadata that names the interrupts which it answers. Not the answers: other
/// callers of the server may read it.
pub(super) const ANSWERS: &str = "threadway_answers";

/// What a run begins with.
#[derive(Clone, Debug)]
pub enum Start {
    /// New input: the graph begins at its start.
    Input(Json),
    /// Answers to interrupts, as `{interrupt id: answer}` or one bare answer.
    Resume(Json),
    /// Nothing: the graph goes on from a static breakpoint.
    Continue,
}

// === impl Multitask ===

impl Multitask {
    /// All of them, by LangGraph's words.
    pub const WORDS: [(&str, Self); 4] = [
        ("reject", Self::Reject),
        ("enqueue", Self::Enqueue),
        ("interrupt", Self::Interrupt),
        ("rollback", Self::Rollback),
    ];
}

// === impl RunRequest ===

impl RunRequest {
    /// A run of an assistant, which the client calls `run_id`.
    pub fn new(assistant: &str, run_id: &str, start: Start) -> Self {
        let (input, command) = match start {
            Start::Input(input) => (Some(input), None),
            Start::Resume(answers) => {
                let command = ObjectWriter::new().raw("resume", answers.get()).finish();
                (None, Some(command))
            }
            Start::Continue => (None, None),
        };
        Self {
            assistant_id: assistant.to_owned(),
            input,
            command,
            checkpoint_id: None,
            config: None,
            context: None,
            metadata: ObjectWriter::new().string(CLIENT_RUN_ID, run_id).finish(),
            stream_mode: &STREAM_MODES_OF_ANY,
            stream_subgraphs: true,
            stream_resumable: true,
            on_disconnect: "continue",
            if_not_exists: "create",
            multitask_strategy: None,
        }
    }

    /// For a run that answers these interrupts: LangGraph is not to start it while another run of
    /// the thread is under way, and its record names them.
    ///
    /// The Python server would let a second answer wait, and run the graph again with it.
    #[must_use]
    pub fn answering(mut self, interrupts: &[String]) -> Self {
        if interrupts.is_empty() {
            return self;
        }
        // Strings always serialise.
        let ids = serde_json::to_string(interrupts).unwrap_or_default();
        let metadata = self.metadata_writer();
        self.metadata = metadata.raw(ANSWERS, &ids).finish();
        self.multitask_strategy = Some(Multitask::Reject);
        self
    }

    /// Does not take these members of the thread's metadata over. The servers copy the others into
    /// the run's, into what is traced of it, and into each checkpoint that it makes.
    #[must_use]
    pub fn hiding(mut self, keys: &[String]) -> Self {
        if keys.is_empty() {
            return self;
        }
        let metadata = self.metadata_writer();
        let hidden = keys.iter().fold(metadata, |object, key| object.raw(key, "null"));
        self.metadata = hidden.finish();
        self
    }

    fn metadata_writer(&self) -> ObjectWriter {
        ObjectWriter::with(&json::members(&self.metadata).unwrap_or_default().0)
    }

    /// On a thread that has another run under way. A run that answers is refused there all the
    /// same.
    #[must_use]
    pub fn when_busy(mut self, multitask: Option<Multitask>) -> Self {
        self.multitask_strategy = self.multitask_strategy.or(multitask);
        self
    }

    /// Writes these keys of the state, an object, before what waits for the answers goes on. Both
    /// servers take that beside the answers, and as a command of its own where the run goes on from
    /// a static breakpoint.
    #[must_use]
    pub fn updating(mut self, update: Option<Json>) -> Self {
        let Some(update) = update.filter(|_| self.input.is_none()) else { return self };
        let command = self.command.as_deref().and_then(json::members).unwrap_or_default();
        let command = ObjectWriter::with(&command.0);
        self.command = Some(command.raw("update", update.get()).finish());
        self
    }

    /// Forks the thread: the run begins at a checkpoint of its past.
    #[must_use]
    pub fn at_checkpoint(mut self, checkpoint_id: Option<String>) -> Self {
        self.checkpoint_id = checkpoint_id;
        self
    }

    /// For a server whose kind is known.
    #[must_use]
    pub fn on(mut self, server: Option<ServerKind>) -> Self {
        self.stream_mode = match server {
            Some(ServerKind::Python) => &STREAM_MODES,
            Some(ServerKind::JavaScript) | None => &STREAM_MODES_OF_ANY,
        };
        self
    }

    /// With a configuration, which the server lays over the assistant's.
    #[must_use]
    pub fn with_config(mut self, config: Option<Json>) -> Self {
        self.config = config;
        self
    }

    /// With what a person has chosen of the assistant's configuration: an object of such fields.
    ///
    /// The Python server gives a graph each field both as `configurable` and as `context`, and
    /// refuses a run that names both. The JavaScript one gives it each only as it came, and keeps
    /// `configurable` for the thread's later runs: what is chosen has to be sent with each run.
    #[must_use]
    pub fn with_choices(mut self, chosen: &Json, server: Option<ServerKind>) -> Self {
        self.config = Some(ObjectWriter::new().raw("configurable", chosen.get()).finish());
        self.context = match server {
            Some(ServerKind::JavaScript) => Some(chosen.clone()),
            Some(ServerKind::Python) | None => None,
        };
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_answers_names_what_it_answers_and_waits_for_none() {
        let sent = |ids: &[&str]| {
            let ids: Vec<_> = ids.iter().map(|id| (*id).to_owned()).collect();
            let request = RunRequest::new("agent", "r", Start::Continue).answering(&ids);
            serde_json::to_value(request).unwrap()
        };
        let body = sent(&["a\"b", "c"]);
        let metadata =
            serde_json::json!({"threadway_run_id": "r", "threadway_answers": ["a\"b", "c"]});
        assert_eq!(body["metadata"], metadata);
        assert_eq!(body["multitask_strategy"], "reject");
        assert_eq!(sent(&[]).get("multitask_strategy"), None);
    }

    #[test]
    fn a_busy_thread_is_handled_as_is_said_unless_the_run_answers() {
        let sent = |ids: &[String], multitask| {
            let request = RunRequest::new("agent", "r", Start::Continue);
            let request = request.answering(ids).when_busy(multitask);
            serde_json::to_value(request).unwrap().get("multitask_strategy").cloned()
        };
        for (multitask, word) in [
            (Multitask::Reject, "reject"),
            (Multitask::Enqueue, "enqueue"),
            (Multitask::Interrupt, "interrupt"),
            (Multitask::Rollback, "rollback"),
        ] {
            assert_eq!(sent(&[], Some(multitask)), Some(word.into()));
            assert_eq!(sent(&["a".to_owned()], Some(multitask)), Some("reject".into()));
        }
        assert_eq!(sent(&[], None), None);
    }

    #[test]
    fn what_comes_beside_answers_is_an_update_of_the_state() {
        let sent = |start| {
            let update = Some(json::raw(r#"{"a":1}"#.to_owned()));
            let request = RunRequest::new("agent", "r", start).updating(update);
            serde_json::to_value(request).unwrap()["command"].to_string()
        };
        let answers = json::raw(r#"{"i":true}"#.to_owned());
        assert_eq!(sent(Start::Resume(answers)), r#"{"resume":{"i":true},"update":{"a":1}}"#);
        assert_eq!(sent(Start::Continue), r#"{"update":{"a":1}}"#);
        assert_eq!(sent(Start::Input(json::raw("{}".to_owned()))), "null");
    }

    #[test]
    fn what_is_chosen_reaches_the_graph_on_either_server() {
        let sent = |server| {
            let chosen = json::raw(r#"{"model":"deep"}"#.to_owned());
            let request = RunRequest::new("agent", "r", Start::Continue);
            let body = serde_json::to_value(request.with_choices(&chosen, server)).unwrap();
            (body["config"].to_string(), body.get("context").map(ToString::to_string))
        };
        let config = r#"{"configurable":{"model":"deep"}}"#.to_owned();
        assert_eq!(sent(None), (config.clone(), None));
        assert_eq!(sent(Some(ServerKind::Python)), (config.clone(), None));
        let context = Some(r#"{"model":"deep"}"#.to_owned());
        assert_eq!(sent(Some(ServerKind::JavaScript)), (config, context));
    }
}
