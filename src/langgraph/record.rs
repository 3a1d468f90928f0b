//! Runs and assistants, as LangGraph's records tell of them.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde_json::value::RawValue;

use crate::json::{self, Json};

/// A run, as `GET /threads/{id}/runs/{id}` tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRecord {
    /// LangGraph's id.
    pub id: String,
    /// How far it is.
    pub status: RunStatus,
    /// The client's name of it, if a gateway started it.
    pub client_id: Option<String>,
    /// When it was asked for; of one server's, the later compares greater. The Python server dates
    /// a delayed run to when it is due.
    pub created_at: String,
    /// Whether the server keeps its stream for replay.
    pub is_resumable: bool,
    /// Whether its stream carries the state.
    pub has_values: bool,
    /// What it begins with, if that is new input.
    pub input: Option<Json>,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunStatus {
    /// It waits for its turn.
    Pending,
    /// It runs.
    Running,
    /// It is through, or stopped to ask a question.
    Success,
    /// It failed. The JavaScript server says so of a cancelled run too.
    Error,
    /// The server stopped it at its time limit.
    Timeout,
    /// Somebody stopped it.
    Interrupted,
    /// A status that this version does not know.
    Unknown,
}

/// A graph, with a configuration of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assistant {
    /// LangGraph's id.
    pub id: String,
    /// The graph that it runs.
    pub graph_id: String,
    /// What people call it.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
    /// Whether the server made it for its graph, which then is its name too.
    pub is_of_graph: bool,
}

/// What a server says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// Its kind.
    pub kind: ServerKind,
    /// Its version.
    pub version: String,
}

/// Which of the LangGraph servers a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerKind {
    /// `langgraph-api` for Python.
    Python,
    /// `@langchain/langgraph-api` for JavaScript.
    JavaScript,
}

/// The keys that a graph takes as its input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum InputKeys {
    /// Its schema could not be read, or does not name them.
    #[default]
    Unknown,
    /// These.
    Known(HashSet<String>),
}

// === impl RunRecord ===

impl RunRecord {
    /// Reads one record. `None` if it is none.
    pub fn parse(body: &str) -> Option<Self> {
        Self::read(&serde_json::from_str(body).ok()?)
    }

    /// Reads a list of records, and puts the newest first. `None` if it is none.
    pub fn parse_list(body: &str) -> Option<Vec<Self>> {
        let items: Vec<&RawValue> = serde_json::from_str(body).ok()?;
        let records: Option<Vec<_>> =
            items.into_iter().map(|item| Self::read(&json::members(item)?)).collect();
        let mut records = records?;
        // The JavaScript server lists the oldest first (langgraph-api 2.0.0).
        records.sort_by(|a, b| b.created_at.cmp(&a.created_at));
        Some(records)
    }

    fn read(members: &json::Members<'_>) -> Option<Self> {
        let opened = |name| members.get(name).and_then(json::members).unwrap_or_default();
        let (metadata, kwargs) = (opened("metadata"), opened("kwargs"));
        let modes = kwargs
            .get("stream_mode")
            .map(|modes| json::items(modes).unwrap_or_else(|| vec![modes]));
        Some(Self {
            id: members.string("run_id")?.into_owned(),
            status: RunStatus::of(&members.string("status")?),
            client_id: metadata.string(super::request::CLIENT_RUN_ID).map(Cow::into_owned),
            created_at: members.string("created_at").unwrap_or_default().into_owned(),
            is_resumable: kwargs.get("resumable").is_some_and(|flag| flag.get() == "true"),
            // "Default values."
            has_values: modes.is_none_or(|modes| modes.iter().any(|m| m.get() == "\"values\"")),
            input: kwargs.get("input").filter(|input| input.get() != "null").map(Json::from),
        })
    }
}

// === impl RunStatus ===

impl RunStatus {
    fn of(status: &str) -> Self {
        match status {
            "pending" => Self::Pending,
            "running" => Self::Running,
            "success" => Self::Success,
            "error" => Self::Error,
            "timeout" => Self::Timeout,
            "interrupted" => Self::Interrupted,
            _ => Self::Unknown,
        }
    }

    /// Whether the run is still to come to its end.
    pub fn is_live(self) -> bool {
        matches!(self, Self::Pending | Self::Running)
    }
}

// === impl Assistant ===

impl Assistant {
    /// Reads a list of assistants. `None` if it is none.
    pub fn parse_list(body: &str) -> Option<Vec<Self>> {
        let items: Vec<&RawValue> = serde_json::from_str(body).ok()?;
        items.into_iter().map(Self::read).collect()
    }

    fn read(item: &RawValue) -> Option<Self> {
        let members = json::members(item)?;
        let string = |name| members.string(name).map(Cow::into_owned);
        let metadata = members.get("metadata").and_then(json::members).unwrap_or_default();
        let graph_id = string("graph_id")?;
        Some(Self {
            id: string("assistant_id")?,
            name: string("name").unwrap_or_else(|| graph_id.clone()),
            description: string("description"),
            is_of_graph: metadata.string("created_by").as_deref() == Some("system"),
            graph_id,
        })
    }
}

// === impl ServerInfo ===

impl ServerInfo {
    /// Reads the answer of `GET /info`. `None` if no LangGraph server says so.
    pub fn parse(body: &str) -> Option<Self> {
        let members: json::Members<'_> = serde_json::from_str(body).ok()?;
        let kind = if members.string("langgraph_py_version").is_some() {
            ServerKind::Python
        } else {
            members.string("langgraph_js_version").map(|_| ServerKind::JavaScript)?
        };
        Some(Self { kind, version: members.string("version")?.into_owned() })
    }
}

impl fmt::Display for ServerInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, version } = self;
        let kind = match kind {
            ServerKind::Python => "Python",
            ServerKind::JavaScript => "JavaScript",
        };
        write!(f, "a LangGraph server for {kind}, version {version}")
    }
}

// === impl InputKeys ===

impl InputKeys {
    /// Reads the answer of `GET /assistants/{id}/schemas`.
    pub fn parse(body: &str) -> Self {
        let schemas: json::Members<'_> = serde_json::from_str(body).unwrap_or_default();
        let schema = schemas.get("input_schema").and_then(json::members).unwrap_or_default();
        match schema.get("properties").and_then(json::members) {
            Some(keys) => {
                Self::Known(keys.0.iter().map(|(key, _)| key.0.clone().into_owned()).collect())
            }
            None => Self::Unknown,
        }
    }

    /// Whether a key may go up: also if nothing is known, since the graph passes over the rest.
    pub fn may_take(&self, key: &str) -> bool {
        match self {
            Self::Unknown => true,
            Self::Known(keys) => keys.contains(key),
        }
    }

    /// Whether the graph is known to take a key.
    pub fn takes(&self, key: &str) -> bool {
        match self {
            Self::Unknown => false,
            Self::Known(keys) => keys.contains(key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_ours_is_known_by_its_metadata() {
        let list = r#"[{"run_id":"R","status":"running","metadata":{"threadway_run_id":"r1"}},
            {"run_id":"S","status":"new one","metadata":null}]"#;
        let runs = RunRecord::parse_list(list).unwrap();
        let told: Vec<_> =
            runs.iter().map(|run| (&*run.id, run.status, run.client_id.as_deref())).collect();
        assert_eq!(told, [("R", RunStatus::Running, Some("r1")), ("S", RunStatus::Unknown, None)]);
        assert_eq!(RunRecord::parse_list(r#"[{"status":"running"}]"#), None);
        assert_eq!(RunRecord::parse("<html>"), None);
    }

    #[test]
    fn the_newest_run_comes_first_whatever_order_the_server_keeps() {
        let run = |id, at| format!(r#"{{"run_id":"{id}","status":"pending","created_at":"{at}"}}"#);
        let list = format!(
            "[{},{},{}]",
            run("b", "2026-11-22T08:11:26.906Z"),
            run("c", "2026-11-22T08:11:26.915Z"),
            run("a", "2026-11-22T08:11:25Z")
        );
        let ids = RunRecord::parse_list(&list).unwrap().into_iter().map(|run| run.id);
        assert_eq!(ids.collect::<Vec<_>>(), ["c", "b", "a"]);
    }

    #[test]
    fn a_record_tells_how_its_run_can_be_joined() {
        let read = |kwargs: &str| {
            let record = format!(r#"{{"run_id":"R","status":"running","kwargs":{kwargs}}}"#);
            let run = RunRecord::parse(&record).unwrap();
            (run.is_resumable, run.has_values, run.input.map(|input| input.get().to_owned()))
        };
        assert_eq!(read("{}"), (false, true, None));
        let asked =
            r#"{"stream_mode":["messages-tuple","values"],"resumable":true,"input":{"a":1}}"#;
        assert_eq!(read(asked), (true, true, Some(r#"{"a":1}"#.to_owned())));
        let asked = r#"{"stream_mode":["updates"],"resumable":false,"input":null}"#;
        assert_eq!(read(asked), (false, false, None));
        assert_eq!(read(r#"{"stream_mode":"events"}"#), (false, false, None));
    }

    #[test]
    fn the_assistant_of_a_graph_is_told_from_those_that_people_made() {
        let list = r#"[{"assistant_id":"A","graph_id":"agent","name":"agent","metadata":{"created_by":"system"}},
            {"assistant_id":"B","graph_id":"agent","name":"Tuned","description":"of mine","metadata":{}},
            {"assistant_id":"C","graph_id":"agent"}]"#;
        let read = Assistant::parse_list(list).unwrap();
        let told: Vec<_> = read.iter().map(|a| (&*a.name, a.is_of_graph)).collect();
        assert_eq!(told, [("agent", true), ("Tuned", false), ("agent", false)]);
        assert_eq!(read[1].description.as_deref(), Some("of mine"));
        assert_eq!(Assistant::parse_list("{}"), None);
    }

    #[test]
    fn a_server_tells_its_kind() {
        let told = |body| ServerInfo::parse(body).map(|info| info.to_string());
        assert_eq!(
            told(r#"{"version":"0.16.7","langgraph_py_version":"1.2.22","flags":{}}"#).as_deref(),
            Some("a LangGraph server for Python, version 0.16.7")
        );
        assert_eq!(
            told(r#"{"version":"2.0.0","langgraph_js_version":"1.7.3","context":"js"}"#).as_deref(),
            Some("a LangGraph server for JavaScript, version 2.0.0")
        );
        for other in [r#"{"version":"1"}"#, r#"{"langgraph_js_version":"1"}"#, "<html>", "[]"] {
            assert_eq!(told(other), None, "{other}");
        }
    }

    #[test]
    fn input_keys_are_the_schemas_properties() {
        let keys = InputKeys::parse(r#"{"input_schema":{"properties":{"messages":{},"a b":{}}}}"#);
        assert!(keys.takes("a b") && keys.may_take("messages"));
        assert!(!keys.takes("x") && !keys.may_take("x"));
        for unknown in ["{}", "<html>", r#"{"input_schema":null}"#, r#"{"input_schema":{}}"#] {
            let keys = InputKeys::parse(unknown);
            assert_eq!(keys, InputKeys::Unknown, "{unknown}");
            assert!(keys.may_take("x") && !keys.takes("x"));
        }
    }
}
