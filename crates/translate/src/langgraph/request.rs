//! The request that starts a run.

use serde::Serialize;
use serde_json::value::RawValue;

use super::{Capabilities, copilotkit};
use crate::json::{self, Json, ObjectWriter};

/// The stream modes that the gateway asks for. docs/mapping.md says what each becomes.
const STREAM_MODES: [&str; 4] = ["values", "messages-tuple", "updates", "custom"];

/// The body of `POST /threads/{id}/runs/stream`.
#[derive(Clone, Debug, Serialize)]
pub struct RunRequest {
    assistant_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoint: Option<Json>,
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

// === impl RunRequest ===

impl RunRequest {
    /// About how many bytes the request's JSON has.
    pub fn bytes(&self) -> usize {
        let Self { input, command, config, context, metadata, .. } = self;
        let parts = [input, command, config, context].into_iter().flatten();
        parts.chain([metadata]).map(|part| part.get().len()).sum()
    }
}

/// What LangGraph does with a new run if the thread has another one. By default the Python server
/// lets the new run wait, and the JavaScript server refuses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Multitask {
    /// The new run is refused.
    Reject,
    /// The new run waits.
    Enqueue,
    /// The other run is cancelled, and keeps what it has committed.
    Interrupt,
    /// The other run is cancelled and undone. The Python server deletes it.
    Rollback,
}

/// The key of a run's metadata for the client's name of the run, so that every replica finds it.
pub(super) const CLIENT_RUN_ID: &str = "threadway_run_id";

/// The key of a run's metadata for the token of its start. Each request that starts a run has a token
/// of its own, also if two requests have the same client's name of the run.
///
/// LangGraph copies a thread's metadata to the runs of all programs. A thread's metadata has no
/// token, so a run with a token has its metadata from the gateway.
pub(super) const START: &str = "threadway_start";

/// The key of a run's metadata for the interrupts that it answers. The answers are not stored:
/// other callers of the server may read the metadata.
pub(super) const ANSWERS: &str = "threadway_answers";

/// The input of a run.
#[derive(Clone, Debug)]
pub enum Start {
    /// New input: the graph starts at its first node.
    Input(Json),
    /// Answers to interrupts, as `{interrupt id: answer}` or one bare answer.
    Resume(Json),
    /// None: the graph continues after a static breakpoint.
    Continue,
}

// === impl Multitask ===

impl Multitask {
    /// All values with LangGraph's names.
    pub const WORDS: [(&str, Self); 4] = [
        ("reject", Self::Reject),
        ("enqueue", Self::Enqueue),
        ("interrupt", Self::Interrupt),
        ("rollback", Self::Rollback),
    ];
}

// === impl RunRequest ===

impl RunRequest {
    /// A run of an assistant. `run_id` is the client's name of the run.
    pub fn new(assistant: &str, run_id: &str, start: Start) -> Self {
        let (input, command, checkpoint) = match start {
            Start::Input(input) => (Some(input), None, None),
            Start::Resume(answers) => {
                let command = ObjectWriter::new().raw("resume", answers.get()).finish();
                (None, Some(command), None)
            }
            // aegra refuses a run that has none of the three. For all servers an empty checkpoint
            // is the newest one.
            Start::Continue => (None, None, Some(Json::empty_object())),
        };
        Self {
            assistant_id: assistant.to_owned(),
            input,
            command,
            checkpoint,
            checkpoint_id: None,
            config: None,
            context: None,
            metadata: ObjectWriter::new().string(CLIENT_RUN_ID, run_id).finish(),
            stream_mode: &STREAM_MODES,
            stream_subgraphs: true,
            stream_resumable: true,
            on_disconnect: "continue",
            if_not_exists: "reject",
            multitask_strategy: None,
        }
    }

    /// Names the interrupts that the run answers in its metadata, and lets LangGraph refuse the run
    /// if the thread has another one.
    ///
    /// Otherwise the Python server would let a second answer wait, and then run the graph again
    /// with it.
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

    /// Does not copy these keys of the thread's metadata to the run. The servers copy all others to
    /// the run, to its traces, and to each of its checkpoints.
    #[must_use]
    pub(crate) fn hiding(mut self, keys: &[String]) -> Self {
        if keys.is_empty() {
            return self;
        }
        let metadata = self.metadata_writer();
        let hidden = keys.iter().fold(metadata, |object, key| object.raw(key, "null"));
        self.metadata = hidden.finish();
        self
    }

    /// Repeats members of the thread's metadata in the run's, for a server that gives its graphs no
    /// metadata of threads. The other servers do so themselves.
    #[must_use]
    pub(crate) fn repeating(mut self, members: Option<&Json>, server: Capabilities) -> Self {
        if server.drops_run_metadata
            && let Some(members) = members.and_then(|members| json::members(members))
        {
            let given = self.metadata;
            self.metadata = members
                .0
                .iter()
                .fold(given, |metadata, (name, value)| json::with_member(&metadata, name, value));
        }
        self
    }

    /// Lets LangGraph create the thread, with this metadata. By default LangGraph refuses a run of a
    /// thread that does not exist.
    ///
    /// LangGraph gives a thread that a run creates the metadata of that run, and copies them to all
    /// later runs of the thread. So the run loses its own metadata. Neither the client's name of it
    /// nor its token is stored.
    #[must_use]
    pub fn creating_thread(mut self, metadata: &Json, server: Capabilities) -> Self {
        self.if_not_exists = "create";
        if !server.drops_run_metadata {
            self.metadata = metadata.clone();
        }
        self
    }

    /// Adds the token of the request. [`RunRecord::start`](super::RunRecord::start) has it.
    #[must_use]
    pub fn with_token(mut self, token: &str, server: Capabilities) -> Self {
        self.metadata = self.metadata_writer().string(START, token).finish();
        self.keeping_metadata(server)
    }

    fn metadata_writer(&self) -> ObjectWriter {
        ObjectWriter::with(&json::members(&self.metadata).unwrap_or_default().0)
    }

    /// Sets what happens if the thread has another run. A run that answers interrupts is always
    /// refused.
    #[must_use]
    pub fn when_busy(mut self, multitask: Option<Multitask>) -> Self {
        self.multitask_strategy = self.multitask_strategy.or(multitask);
        self
    }

    /// Writes these keys of the state before the graph continues. Both servers accept an update
    /// together with answers, and alone after a static breakpoint. A run with new input ignores it.
    #[must_use]
    pub(crate) fn updating(mut self, update: Option<Json>) -> Self {
        let Some(update) = update.filter(|_| self.input.is_none()) else { return self };
        let command = self.command.as_deref().and_then(json::members).unwrap_or_default();
        let command = ObjectWriter::with(&command.0);
        self.command = Some(command.raw("update", update.get()).finish());
        self
    }

    /// Starts the run at an earlier checkpoint of the thread.
    #[must_use]
    pub(crate) fn at_checkpoint(mut self, checkpoint_id: Option<String>) -> Self {
        self.checkpoint_id = checkpoint_id;
        self
    }

    /// Starts the run at the newest checkpoint, on a server that would begin at that of the thread's
    /// last fork (langgraph-api 1.5.1).
    #[must_use]
    pub(crate) fn leaving_fork(mut self, server: Capabilities) -> Self {
        if server.keeps_fork_point && self.checkpoint_id.is_none() {
            let config = self.config.unwrap_or_else(Json::empty_object);
            let members = json::members(&config).unwrap_or_default();
            let configurable =
                members.get("configurable").map_or_else(Json::empty_object, Json::from);
            let configurable = json::with_member(&configurable, "checkpoint_id", RawValue::NULL);
            self.config = Some(json::with_member(&config, "configurable", &configurable));
        }
        self
    }

    /// Adds a configuration, which the server merges into the assistant's.
    #[must_use]
    pub(crate) fn with_config(mut self, config: Option<Json>) -> Self {
        self.config = config;
        self
    }

    /// Adds the fields of the configuration that a person has chosen.
    ///
    /// The Python server passes each field to the graph both as `configurable` and as `context`,
    /// and refuses a run that sets both. The JavaScript server passes each only as it was sent, and
    /// keeps `configurable` for later runs of the thread. So the choices are sent with each run.
    #[must_use]
    pub(crate) fn with_choices(mut self, chosen: &Json, server: Capabilities) -> Self {
        self.config = Some(ObjectWriter::new().raw("configurable", chosen.get()).finish());
        self.context = server.needs_context.then(|| chosen.clone());
        self
    }

    /// Adds the client's tools and context under CopilotKit's key to what agents read of the run: its
    /// context, and on servers that pass either on as both, its `configurable`.
    ///
    /// The Python server refuses a run that sets both, and aegra ignores `configurable` as context
    /// then. So the value joins the member that the run already has.
    #[must_use]
    pub(crate) fn with_client_context(
        mut self,
        value: Option<&Json>,
        server: Capabilities,
    ) -> Self {
        let Some(value) = value else { return self };
        let config = self.config.as_deref().and_then(json::members).unwrap_or_default();
        let configurable = config
            .get("configurable")
            .filter(|fields| json::members(fields).is_some_and(|fields| !fields.0.is_empty()));
        match (configurable, &self.config) {
            (Some(fields), Some(config)) if !server.needs_context => {
                let fields = json::with_member(fields, copilotkit::STATE_KEY, value);
                self.config = Some(json::with_member(config, "configurable", &fields));
            }
            _ => {
                let context = self.context.unwrap_or_else(Json::empty_object);
                self.context = Some(json::with_member(&context, copilotkit::STATE_KEY, value));
            }
        }
        self
    }

    /// Moves the run's metadata into its configuration, if the server drops the metadata. aegra also
    /// refuses lists in it.
    #[must_use]
    pub(crate) fn keeping_metadata(mut self, server: Capabilities) -> Self {
        if server.drops_run_metadata {
            let own = std::mem::replace(&mut self.metadata, Json::empty_object());
            let config = self.config.unwrap_or_else(Json::empty_object);
            let given = json::members(&config).unwrap_or_default();
            let given = given.get("metadata").map_or_else(Json::empty_object, Json::from);
            let own = json::members(&own).unwrap_or_default();
            let metadata = own
                .0
                .iter()
                .fold(given, |metadata, (name, value)| json::with_member(&metadata, name, value));
            self.config = Some(json::with_member(&config, "metadata", &metadata));
        }
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
    fn a_run_always_says_where_it_begins_and_that_a_disconnect_does_not_cancel_it() {
        let sent = |start| {
            let body = serde_json::to_value(RunRequest::new("agent", "r", start)).unwrap();
            assert_eq!(body["on_disconnect"], "continue");
            let given = ["input", "command", "checkpoint"].map(|name| body.get(name).cloned());
            given.map(|member| member.map_or_else(|| "-".to_owned(), |member| member.to_string()))
        };
        let input = json::raw(r#"{"a":1}"#.to_owned());
        assert_eq!(sent(Start::Input(input.clone())), [r#"{"a":1}"#, "-", "-"]);
        assert_eq!(sent(Start::Resume(input)), ["-", r#"{"resume":{"a":1}}"#, "-"]);
        assert_eq!(sent(Start::Continue), ["-", "-", "{}"]);
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
    fn a_server_that_drops_metadata_gets_it_in_the_configuration() {
        let config = |server, config: Option<&str>| {
            let request = RunRequest::new("agent", "r", Start::Continue)
                .with_config(config.map(|config| json::raw(config.to_owned())))
                .keeping_metadata(server);
            let request = serde_json::to_value(request).unwrap();
            (request["metadata"].to_string(), request["config"].to_string())
        };
        let own = r#"{"threadway_run_id":"r"}"#.to_owned();
        assert_eq!(config(Capabilities::PYTHON, None), (own, "null".to_owned()));
        let aegra = |given| {
            let (metadata, config) = config(Capabilities::AEGRA, given);
            assert_eq!(metadata, "{}");
            config
        };
        assert_eq!(aegra(None), r#"{"metadata":{"threadway_run_id":"r"}}"#);
        assert_eq!(
            aegra(Some(r#"{"metadata":{"threadway_run_id":"x","a":1},"recursion_limit":5}"#)),
            r#"{"metadata":{"threadway_run_id":"r","a":1},"recursion_limit":5}"#
        );
    }

    #[test]
    fn a_clients_tools_join_the_context_or_the_configuration_that_the_run_has() {
        let sent = |server, config: Option<&str>| {
            let tools = json::raw(r#"{"actions":[1]}"#.to_owned());
            let request = RunRequest::new("agent", "r", Start::Continue)
                .with_config(config.map(|config| json::raw(config.to_owned())))
                .with_client_context(Some(&tools), server);
            let request = serde_json::to_value(request).unwrap();
            let member =
                |name| request.get(name).map_or_else(|| "-".to_owned(), ToString::to_string);
            (member("context"), member("config"))
        };
        let tools = r#"{"copilotkit":{"actions":[1]}}"#;
        let servers = [Capabilities::PYTHON, Capabilities::JAVASCRIPT, Capabilities::AEGRA];
        for server in servers {
            assert_eq!(sent(server, None), (tools.to_owned(), "-".to_owned()));
            let empty = r#"{"recursion_limit":5,"configurable":{}}"#;
            assert_eq!(sent(server, Some(empty)), (tools.to_owned(), empty.to_owned()));
        }
        let given = r#"{"configurable":{"model":"m"}}"#;
        let both = r#"{"configurable":{"model":"m","copilotkit":{"actions":[1]}}}"#;
        let [python, javascript, aegra] = servers.map(|server| sent(server, Some(given)));
        assert_eq!(python, ("-".to_owned(), both.to_owned()));
        assert_eq!(aegra, python);
        assert_eq!(javascript, (tools.to_owned(), given.to_owned()));
    }

    #[test]
    fn what_graphs_read_of_a_thread_is_repeated_where_the_server_does_not_pass_it_on() {
        let sent = |server| {
            let members = json::raw(r#"{"cwd":"/srv","dirs":["/a"]}"#.to_owned());
            let request = RunRequest::new("agent", "r", Start::Continue)
                .repeating(Some(&members), server)
                .keeping_metadata(server);
            let request = serde_json::to_value(request).unwrap();
            (request["metadata"].to_string(), request["config"].to_string())
        };
        let own = r#"{"threadway_run_id":"r"}"#.to_owned();
        assert_eq!(sent(Capabilities::PYTHON), (own.clone(), "null".to_owned()));
        assert_eq!(sent(Capabilities::JAVASCRIPT), (own, "null".to_owned()));
        let all = r#"{"metadata":{"threadway_run_id":"r","cwd":"/srv","dirs":["/a"]}}"#.to_owned();
        assert_eq!(sent(Capabilities::AEGRA), ("{}".to_owned(), all));
    }

    #[test]
    fn a_run_has_a_token_and_never_creates_its_thread() {
        let sent = |server| {
            let request = RunRequest::new("agent", "r", Start::Continue)
                .keeping_metadata(server)
                .with_token("t", server);
            let request = serde_json::to_value(request).unwrap();
            assert_eq!(request["if_not_exists"], "reject");
            (request["metadata"].to_string(), request["config"].to_string())
        };
        let own = r#"{"threadway_run_id":"r","threadway_start":"t"}"#;
        assert_eq!(sent(Capabilities::PYTHON), (own.to_owned(), "null".to_owned()));
        assert_eq!(sent(Capabilities::JAVASCRIPT), (own.to_owned(), "null".to_owned()));
        let kept = format!(r#"{{"metadata":{own}}}"#);
        assert_eq!(sent(Capabilities::AEGRA), ("{}".to_owned(), kept));
    }

    #[test]
    fn a_run_that_creates_its_thread_carries_nothing_but_what_is_the_threads() {
        let sent = |server| {
            let request = RunRequest::new("agent", "r", Start::Continue)
                .answering(&["q".to_owned()])
                .hiding(&["hidden".to_owned()])
                .keeping_metadata(server);
            let thread = json::raw(r#"{"title":"say \"hi\""}"#.to_owned());
            let request = request.creating_thread(&thread, server);
            let request = serde_json::to_value(request).unwrap();
            assert_eq!(request["if_not_exists"], "create");
            (request["metadata"].to_string(), request["config"].to_string())
        };
        let titled = (r#"{"title":"say \"hi\""}"#.to_owned(), "null".to_owned());
        assert_eq!(sent(Capabilities::PYTHON), titled);
        assert_eq!(sent(Capabilities::JAVASCRIPT), titled);
        // aegra's threads get no metadata of runs.
        let (metadata, config) = sent(Capabilities::AEGRA);
        assert_eq!(metadata, "{}");
        assert!(config.contains("threadway_run_id"), "{config}");
    }

    #[test]
    fn a_run_after_a_fork_begins_at_the_newest_checkpoint_again() {
        let config = |checkpoint: Option<&str>, server, given: Option<&str>| {
            let request = RunRequest::new("agent", "r", Start::Continue)
                .at_checkpoint(checkpoint.map(str::to_owned))
                .with_config(given.map(|given| json::raw(given.to_owned())))
                .leaving_fork(server);
            serde_json::to_value(request).unwrap()["config"].to_string()
        };
        let (js, none) = (Capabilities::JAVASCRIPT, "null".to_owned());
        let newest = r#"{"configurable":{"checkpoint_id":null}}"#;
        assert_eq!(config(None, js, None), newest);
        assert_eq!(
            config(None, js, Some(r#"{"configurable":{"model":"m"},"recursion_limit":5}"#)),
            r#"{"configurable":{"model":"m","checkpoint_id":null},"recursion_limit":5}"#
        );
        assert_eq!(config(Some("c"), js, None), none);
        assert_eq!(config(None, Capabilities::PYTHON, None), none);
        assert_eq!(config(None, Capabilities::AEGRA, None), none);
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
        assert_eq!(sent(Capabilities::default()), (config.clone(), None));
        assert_eq!(sent(Capabilities::PYTHON), (config.clone(), None));
        let context = Some(r#"{"model":"deep"}"#.to_owned());
        assert_eq!(sent(Capabilities::JAVASCRIPT), (config, context));
    }
}
