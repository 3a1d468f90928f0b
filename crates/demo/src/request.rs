//! The bodies of requests. Members that are not listed here are ignored.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::script::{Graph, Tokens};
use super::state::Values;
use super::wire::{Refusal, uuid};

/// The body of a request that starts a run.
#[derive(Debug, Deserialize)]
pub(super) struct RunBody {
    pub(super) assistant_id: String,
    #[serde(default)]
    pub(super) input: Value,
    #[serde(default)]
    pub(super) command: Value,
    #[serde(default)]
    pub(super) stream_mode: Value,
    #[serde(default)]
    pub(super) stream_resumable: Option<bool>,
    #[serde(default)]
    pub(super) stream_subgraphs: Option<bool>,
    #[serde(default)]
    pub(super) metadata: Option<Values>,
    #[serde(default)]
    pub(super) config: Option<Values>,
    #[serde(default)]
    pub(super) context: Option<Values>,
    #[serde(default)]
    pub(super) checkpoint_id: Option<String>,
    #[serde(default)]
    pub(super) checkpoint: Option<CheckpointBody>,
    #[serde(default)]
    pub(super) multitask_strategy: Option<Multitask>,
    #[serde(default)]
    pub(super) on_disconnect: Option<OnDisconnect>,
    #[serde(default)]
    pub(super) if_not_exists: Option<IfNotExists>,
    #[serde(default)]
    after_seconds: Option<f64>,
    #[serde(default)]
    interrupt_before: Value,
    #[serde(default)]
    interrupt_after: Value,
    #[serde(default)]
    webhook: Option<String>,
    #[serde(default)]
    feedback_keys: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct CheckpointBody {
    #[serde(default)]
    pub(super) checkpoint_id: Option<String>,
}

/// What happens to a new run on a busy thread.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Multitask {
    /// The run is refused.
    Reject,
    /// The run is queued.
    Enqueue,
    /// Earlier runs are stopped, and their checkpoints remain.
    Interrupt,
    /// Earlier runs are stopped and removed.
    Rollback,
}

/// What happens to a run when its client disconnects.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum OnDisconnect {
    Cancel,
    Continue,
}

/// What happens to a run for an unknown thread.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum IfNotExists {
    Create,
    Reject,
}

/// A validated request for a run.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) graph: Graph,
    pub(super) begin: Begin,
    /// An update of the state before the run resumes.
    pub(super) update: Values,
    pub(super) checkpoint: Option<Uuid>,
    pub(super) modes: Modes,
    pub(super) is_resumable: bool,
    pub(super) multitask: Multitask,
    pub(super) metadata: Values,
    pub(super) config: Values,
    pub(super) context: Values,
    pub(super) subgraphs: bool,
}

/// What a run begins with.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Begin {
    /// New input for the start of the graph.
    Input(Value),
    /// The answer to the question of the thread's last run.
    Resume(Value),
    /// Nothing: the due tasks are run again.
    Continue,
}

/// The requested stream modes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Modes(Vec<Mode>);

/// A stream mode that the demo supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Values,
    Updates,
    /// `messages-tuple`, whose parts are called `messages`.
    Messages,
    Custom,
}

// === impl RunBody ===

impl RunBody {
    /// Validates the request. Refuses what the demo does not support.
    pub(super) fn order(self) -> Result<Order, Refusal> {
        self.check_left_out()?;
        let graph = Graph::find(&self.assistant_id).ok_or_else(|| unknown(&self.assistant_id))?;
        let resume = self.command.get("resume").cloned();
        let update = self.command.get("update").filter(|update| !update.is_null());
        let update = match update {
            None => Values::new(),
            Some(Value::Object(update)) => update.clone(),
            Some(_) => return Err(left_out("an `update` that is no object")),
        };
        if self.command.get("goto").is_some_and(|goto| !goto.is_null()) {
            return Err(left_out("`goto`"));
        }
        let begin = match (resume, self.input) {
            (Some(answer), _) => Begin::Resume(answer),
            (None, Value::Null) => Begin::Continue,
            (None, _) if !update.is_empty() => Begin::Continue,
            (None, input) => Begin::Input(input),
        };
        let checkpoint = self.checkpoint.and_then(|checkpoint| checkpoint.checkpoint_id);
        let checkpoint = self.checkpoint_id.or(checkpoint);
        Ok(Order {
            graph,
            begin,
            update,
            checkpoint: checkpoint.map(|id| uuid("checkpoint", &id)).transpose()?,
            modes: Modes::parse(&self.stream_mode)?,
            is_resumable: self.stream_resumable.unwrap_or(false),
            multitask: self.multitask_strategy.unwrap_or(Multitask::Enqueue),
            metadata: self.metadata.unwrap_or_default(),
            config: self.config.unwrap_or_default(),
            context: self.context.unwrap_or_default(),
            subgraphs: self.stream_subgraphs.unwrap_or(false),
        })
    }

    fn check_left_out(&self) -> Result<(), Refusal> {
        let is_asked = |value: &Value| match value {
            Value::Null => false,
            Value::Array(nodes) => !nodes.is_empty(),
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => true,
        };
        let asked = [
            ("after_seconds", self.after_seconds.is_some_and(|seconds| seconds > 0.0)),
            ("interrupt_before", is_asked(&self.interrupt_before)),
            ("interrupt_after", is_asked(&self.interrupt_after)),
            ("webhook", self.webhook.is_some()),
            ("feedback_keys", self.feedback_keys.as_ref().is_some_and(|keys| !keys.is_empty())),
        ];
        match asked.iter().find(|(_, is_asked)| *is_asked) {
            Some((name, _)) => Err(left_out(&format!("`{name}`"))),
            None => Ok(()),
        }
    }
}

fn left_out(what: &str) -> Refusal {
    Refusal::invalid(format!("the demo does not support {what}; a LangGraph server does"))
}

fn unknown(assistant: &str) -> Refusal {
    if Uuid::try_parse(assistant).is_ok() {
        return Refusal::not_found("Thread or assistant not found.");
    }
    let graphs: Vec<_> = Graph::ALL.into_iter().map(Graph::name).collect();
    Refusal::invalid(format!(
        "Invalid assistant: '{assistant}'. Must be either:\n- A valid assistant UUID, or\n- One of \
         the registered graphs: {}",
        graphs.join(", ")
    ))
}

// === impl Order ===

impl Order {
    /// The request as a run's record shows it.
    pub(super) fn kwargs(&self, configurable: Map<String, Value>, metadata: &Values) -> Value {
        let update = Some(&self.update).filter(|update| !update.is_empty());
        let (input, command) = match (&self.begin, update) {
            (Begin::Input(input), _) => (input.clone(), Value::Null),
            (Begin::Resume(answer), None) => (Value::Null, json!({"resume": answer})),
            (Begin::Resume(answer), Some(update)) => {
                (Value::Null, json!({"resume": answer, "update": update}))
            }
            (Begin::Continue, Some(update)) => (Value::Null, json!({"update": update})),
            (Begin::Continue, None) => (Value::Null, Value::Null),
        };
        let mut config = self.config.clone();
        config.insert("configurable".to_owned(), Value::Object(configurable));
        config.insert("metadata".to_owned(), Value::Object(metadata.clone()));
        json!({
            "input": input, "command": command, "config": config, "context": self.context,
            "stream_mode": self.modes.names(), "interrupt_before": null, "interrupt_after": null,
            "webhook": null, "feedback_keys": null, "temporary": false,
            "subgraphs": self.subgraphs, "resumable": self.is_resumable,
            "checkpoint_during": true, "durability": "async",
        })
    }

    /// The client's `configurable`.
    pub(super) fn configurable(&self) -> Values {
        let own = self.config.get("configurable").and_then(Value::as_object);
        own.cloned().unwrap_or_default()
    }

    pub(super) fn size(&self) -> usize {
        self.kwargs(Values::new(), &self.metadata).to_string().len()
    }

    pub(super) fn tokens(&self) -> Tokens {
        if self.modes.has(Mode::Messages) { Tokens::Asked } else { Tokens::Unasked }
    }
}

// === impl Modes ===

impl Modes {
    fn parse(asked: &Value) -> Result<Self, Refusal> {
        if asked.is_null() {
            return Ok(Self(vec![Mode::Values]));
        }
        let names = asked.as_array().map_or_else(|| vec![asked], |names| names.iter().collect());
        let mode = |name: &Value| match name.as_str().unwrap_or_default() {
            "values" => Ok(Mode::Values),
            "updates" => Ok(Mode::Updates),
            "messages-tuple" => Ok(Mode::Messages),
            "custom" => Ok(Mode::Custom),
            "messages" | "events" | "tasks" | "checkpoints" | "debug" => {
                Err(left_out(&format!("the stream mode {name}")))
            }
            _ => Err(Refusal::invalid(format!("{name} is not a stream mode"))),
        };
        names.into_iter().map(mode).collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn has(&self, mode: Mode) -> bool {
        self.0.contains(&mode)
    }

    fn names(&self) -> Vec<&'static str> {
        let name = |mode: &Mode| match mode {
            Mode::Values => "values",
            Mode::Updates => "updates",
            Mode::Messages => "messages-tuple",
            Mode::Custom => "custom",
        };
        self.0.iter().map(name).collect()
    }
}

// === impl Mode ===

impl Mode {
    /// The event name of its parts.
    pub(super) fn event(self) -> &'static str {
        match self {
            Self::Values => "values",
            Self::Updates => "updates",
            Self::Messages => "messages",
            Self::Custom => "custom",
        }
    }
}

// === impl Multitask ===

impl Multitask {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Reject => "reject",
            Self::Enqueue => "enqueue",
            Self::Interrupt => "interrupt",
            Self::Rollback => "rollback",
        }
    }
}
