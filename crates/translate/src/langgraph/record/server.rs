//! Which server `GET /info` names, and what it can do.

use std::fmt;

use crate::json;

/// The answer of `GET /info`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    kind: Kind,
    /// The version of its API.
    pub version: String,
}

/// The servers that are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// `langgraph-api` for Python.
    Python,
    /// `@langchain/langgraph-api` for JavaScript.
    JavaScript,
    /// `aegra-api`.
    Aegra,
}

/// What a server can do, as far as servers differ in what the gateway needs.
///
/// The default is that of a server that is unknown. It can do what all known ones can, and needs
/// no workaround that only one of them needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact that depends on no other")]
pub struct Capabilities {
    /// How a run's stream can be joined.
    pub joins: Joins,
    /// Whether `GET /threads/{id}/runs` lists the newest runs first. Otherwise the oldest.
    pub lists_newest_runs_first: bool,
    /// Whether a silent stream has heartbeats, so that a longer silence means a lost connection.
    pub has_heartbeats: bool,
    /// Whether the stream of each run ends. Otherwise that of a run that is over may bring
    /// heartbeats for ever.
    pub ends_streams: bool,
    /// Whether `GET /threads/{id}/stream?stream_modes=lifecycle` reports runs.
    pub has_lifecycle_streams: bool,
    /// Whether a run's configuration must be sent both as `configurable` and as `context`. Other
    /// servers refuse a run that sets both, and pass either on as both.
    pub needs_context: bool,
    /// Whether later runs of a thread begin at the checkpoint of a fork again, unless they say
    /// otherwise: the server keeps the configuration of each run for the thread.
    pub keeps_fork_point: bool,
    /// Whether the description of a graph that declares no context lacks `context_schema`. Otherwise
    /// it is null.
    pub omits_context_schema: bool,
    /// Whether the server drops the metadata of runs. The gateway's own must then be in the run's
    /// configuration.
    pub drops_run_metadata: bool,
    /// Whether the server queues, refuses or replaces a second run of a thread, as
    /// `multitask_strategy` says. Otherwise it runs both at the same time.
    pub keeps_runs_apart: bool,
    /// Whether a run that stops to ask has the status `interrupted`, as a cancelled run has. Then
    /// the thread's status distinguishes them: that of a cancelled run's thread is `idle`.
    /// Otherwise such a run has the status `success`.
    pub interrupts_to_ask: bool,
    /// Whether the server copies threads, and a checkpoint of a thread to its end.
    pub copies_threads: bool,
    /// Whether `GET /assistants/{id}/schemas` fails with 500 for graphs whose state is no zod
    /// object.
    pub fails_to_describe: bool,
}

/// How a run's stream can be joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Joins {
    /// Only if the run's record says that its stream is stored. Each part of another stream goes to
    /// one reader only, and a join would take parts from the client that started the run.
    #[default]
    Stored,
    /// Always. Every reader gets each part.
    Live,
}

/// What some servers do not support. A refusal shows it, so an unknown server is understood too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsupported {
    /// `GET /ok`. aegra has `GET /health` instead.
    Probe,
    /// `select` in a list: only some of the columns.
    Columns,
    /// A run's states in its thread's history: `metadata.run_id` in a search. aegra passes an
    /// argument to LangGraph that LangGraph does not have (aegra-api 0.11.0).
    StatesOfRun,
    /// The state of a namespace without a checkpoint's id. aegra reads the namespace in another
    /// request.
    StateOfNamespace,
    /// This form of an id. The Python server accepts any form of UUID, the JavaScript server only
    /// hyphenated ones.
    FormOfId,
}

// === impl Unsupported ===

impl Unsupported {
    /// Whether an answer with this status may mean it. Other causes are excluded by the request.
    pub fn is_shown_by(self, status: u16) -> bool {
        match self {
            Self::Probe => status == 404,
            Self::Columns | Self::FormOfId => matches!(status, 400 | 422),
            Self::StatesOfRun => status == 500,
            Self::StateOfNamespace => status == 400,
        }
    }
}

// === impl Capabilities ===

impl Capabilities {
    /// Of `langgraph-api` 0.16.7.
    pub const PYTHON: Self = Self {
        joins: Joins::Live,
        lists_newest_runs_first: true,
        has_heartbeats: true,
        ends_streams: true,
        has_lifecycle_streams: true,
        needs_context: false,
        keeps_fork_point: false,
        omits_context_schema: false,
        drops_run_metadata: false,
        keeps_runs_apart: true,
        interrupts_to_ask: false,
        copies_threads: true,
        fails_to_describe: false,
    };
    /// Of `@langchain/langgraph-api` 1.5.1.
    pub const JAVASCRIPT: Self = Self {
        joins: Joins::Stored,
        lists_newest_runs_first: false,
        has_heartbeats: false,
        ends_streams: true,
        has_lifecycle_streams: false,
        needs_context: true,
        keeps_fork_point: true,
        omits_context_schema: true,
        drops_run_metadata: false,
        keeps_runs_apart: true,
        interrupts_to_ask: false,
        copies_threads: true,
        fails_to_describe: true,
    };
    /// Of `aegra-api` 0.11.0.
    pub const AEGRA: Self = Self {
        ends_streams: false,
        has_lifecycle_streams: false,
        drops_run_metadata: true,
        keeps_runs_apart: false,
        interrupts_to_ask: true,
        copies_threads: false,
        ..Self::PYTHON
    };

    /// What a viewer or an operator notices of what the server lacks, a clause for each. Empty for
    /// [`PYTHON`](Self::PYTHON).
    pub fn limits(self) -> Vec<&'static str> {
        let Self {
            joins,
            lists_newest_runs_first,
            has_heartbeats,
            ends_streams: _,
            has_lifecycle_streams,
            needs_context: _,
            keeps_fork_point: _,
            omits_context_schema: _,
            drops_run_metadata,
            keeps_runs_apart,
            interrupts_to_ask: _,
            copies_threads,
            fails_to_describe,
        } = self;
        let limits = [
            (
                joins == Joins::Stored,
                "viewers see a run of another client step by step, without its tokens, unless \
                 the run's stream is stored (`stream_resumable`)",
            ),
            (
                !lists_newest_runs_first,
                "of a thread with over 100 runs, only the 100 oldest are listed",
            ),
            (
                !has_heartbeats,
                "a stream that is silent for 30 s is requested again, because it has no heartbeats",
            ),
            (
                !has_lifecycle_streams,
                "a follower sees a run up to 2 s after it began, because there is no stream of \
                 the runs of a thread",
            ),
            (
                drops_run_metadata,
                "the metadata of runs is sent in `config.metadata`, because it drops `metadata`",
            ),
            (
                !keeps_runs_apart,
                "a second run of a thread is refused, whatever its `multitask_strategy`; two \
                 callers or two replicas that start one at the same moment start both",
            ),
            (!copies_threads, "an editor cannot fork a session, because it copies no threads"),
            (
                fails_to_describe,
                "a graph that the server cannot describe gets every key of a client's state",
            ),
        ];
        limits.into_iter().filter(|(applies, _)| *applies).map(|(_, limit)| limit).collect()
    }
}

// === impl ServerInfo ===

impl ServerInfo {
    /// Reads the answer of `GET /info`. `None` if it is that of no known server.
    pub fn parse(body: &str) -> Option<Self> {
        let members: json::Members<'_> = serde_json::from_str(body).ok()?;
        let kind = if members.string("langgraph_py_version").is_some() {
            Kind::Python
        } else if members.string("langgraph_js_version").is_some() {
            Kind::JavaScript
        } else {
            members.string("name").filter(|name| name == "Aegra").map(|_| Kind::Aegra)?
        };
        Some(Self { kind, version: members.string("version")?.into_owned() })
    }

    /// What servers of this kind can do.
    pub fn capabilities(&self) -> Capabilities {
        match self.kind {
            Kind::Python => Capabilities::PYTHON,
            Kind::JavaScript => Capabilities::JAVASCRIPT,
            Kind::Aegra => Capabilities::AEGRA,
        }
    }
}

impl fmt::Display for ServerInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, version } = self;
        match kind {
            Kind::Python => write!(f, "a LangGraph server for Python, version {version}"),
            Kind::JavaScript => write!(f, "a LangGraph server for JavaScript, version {version}"),
            Kind::Aegra => write!(f, "an aegra server, version {version}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_able_server_has_the_most_limits() {
        let count = |server: Capabilities| server.limits().len();
        let [python, aegra, javascript, unknown] = [
            Capabilities::PYTHON,
            Capabilities::AEGRA,
            Capabilities::JAVASCRIPT,
            Capabilities::default(),
        ]
        .map(count);
        assert_eq!((python, aegra, javascript, unknown), (0, 4, 5, 6));
    }

    #[test]
    fn what_a_server_does_not_support_is_shown_by_the_status_that_it_answers() {
        for (lack, shown) in [
            (Unsupported::Probe, &[404][..]),
            (Unsupported::Columns, &[400, 422]),
            (Unsupported::StatesOfRun, &[500]),
            (Unsupported::StateOfNamespace, &[400]),
            (Unsupported::FormOfId, &[400, 422]),
        ] {
            let statuses = (100..600).filter(|status| lack.is_shown_by(*status));
            assert_eq!(statuses.collect::<Vec<_>>(), shown, "{lack:?}");
        }
    }

    #[test]
    fn a_server_is_known_by_its_members() {
        let described = |body| ServerInfo::parse(body).map(|info| info.to_string());
        assert_eq!(
            described(r#"{"version":"0.16.7","langgraph_py_version":"1.2.22","flags":{}}"#)
                .as_deref(),
            Some("a LangGraph server for Python, version 0.16.7")
        );
        assert_eq!(
            described(r#"{"version":"1.5.1","langgraph_js_version":"1.7.3","context":"js"}"#)
                .as_deref(),
            Some("a LangGraph server for JavaScript, version 1.5.1")
        );
        assert_eq!(
            described(r#"{"name":"Aegra","version":"0.11.0","status":"running","flags":{}}"#)
                .as_deref(),
            Some("an aegra server, version 0.11.0")
        );
        for other in [
            r#"{"version":"1"}"#,
            r#"{"name":"Another","version":"1"}"#,
            r#"{"langgraph_js_version":"1"}"#,
            r#"{"name":"Aegra"}"#,
            "<html>",
            "[]",
        ] {
            assert_eq!(described(other), None, "{other}");
        }
    }
}
