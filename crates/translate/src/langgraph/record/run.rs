//! A run, as its record describes it.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::value::RawValue;

use crate::json::{self, Json};
use crate::langgraph::MessagesKey;
use crate::langgraph::request::{ANSWERS, CLIENT_RUN_ID, START};

/// A run, as `GET /threads/{id}/runs/{id}` returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRecord {
    /// LangGraph's id.
    pub id: String,
    /// Its status.
    pub status: RunStatus,
    /// The token of the request that started the run, if a gateway
    /// started it. `None` for the runs of earlier gateways, which sent none.
    pub start: Option<String>,
    /// The client's name of the run. `None` without a token.
    pub client_id: Option<String>,
    /// When the run was created. Times of one server compare as texts. The Python server dates a
    /// delayed run to its due time.
    pub created_at: String,
    /// Whether the record contains the run's request. Lists may leave it out; the fields below then
    /// have the server's defaults.
    pub has_request: bool,
    /// Whether the server stores the stream for replay.
    pub is_resumable: bool,
    /// Whether the stream contains the state. `None` if the record does not show the stream modes:
    /// by default it does. aegra's records never show them.
    pub has_values: Option<bool>,
    /// The run's new input. `None` for a run that resumes.
    pub input: Option<Json>,
    /// Whether the request answers a question. aegra's records do not show it.
    pub resumes: bool,
    /// What was written to the state before the run resumed.
    pub update: Option<Json>,
    /// The interrupts that the run answers. Empty without a token.
    pub answers: Vec<String>,
}

/// The status of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunStatus {
    /// It waits for another run.
    Pending,
    /// It runs.
    Running,
    /// It ran to its end, or stopped to ask a question.
    Success,
    /// It failed. Before 1.4.4 the JavaScript server reports a cancelled run so too.
    Error,
    /// The server stopped it at its time limit.
    Timeout,
    /// Somebody cancelled it.
    Interrupted,
    /// A status that is unknown here.
    Unknown,
}

// === impl RunRecord ===

impl RunRecord {
    /// Reads one record. `None` if the body is not a run.
    pub fn parse(body: &str) -> Option<Self> {
        Self::read(&serde_json::from_str(body).ok()?)
    }

    /// Reads a list of records and sorts the newest first. `None` if the body is not a list of
    /// runs.
    pub fn parse_list(body: &str) -> Option<Vec<Self>> {
        let items: Vec<&RawValue> = serde_json::from_str(body).ok()?;
        let records: Option<Vec<_>> =
            items.into_iter().map(|item| Self::read(&json::members(item)?)).collect();
        let mut records = records?;
        // The JavaScript server lists the oldest first (langgraph-api 1.5.1).
        records.sort_by(|a, b| b.created_at.cmp(&a.created_at));
        let mut starts = HashSet::new();
        for record in records.iter_mut().rev() {
            // A program has started a later run with all metadata of an earlier one.
            if record.start.as_ref().is_some_and(|start| !starts.insert(start.clone())) {
                record.disown();
            }
        }
        Some(records)
    }

    /// The messages that the run has added to the conversation under `key`, before its graph ran.
    pub fn messages(&self, key: &MessagesKey) -> Vec<Json> {
        let added = [&self.input, &self.update].into_iter().flatten();
        let lists = added.filter_map(|added| json::members(added)?.get(key.as_str()));
        let items = lists.flat_map(|list| json::items(list).unwrap_or_else(|| vec![list]));
        items.map(Json::from).collect()
    }

    /// Whether the stream contains the state, as far as the record shows.
    pub fn may_have_values(&self) -> bool {
        self.has_values != Some(false)
    }

    /// Forgets what only a gateway's own run has.
    fn disown(&mut self) {
        (self.start, self.client_id, self.answers) = (None, None, Vec::new());
    }

    fn read(members: &json::Members<'_>) -> Option<Self> {
        fn opened<'a>(of: &json::Members<'a>, name: &str) -> Option<json::Members<'a>> {
            json::members(of.get(name)?)
        }
        let kwargs = opened(members, "kwargs");
        // A record of aegra has the run's input, stores every stream, and does not show the stream
        // modes. It has no metadata, so the gateway puts its own into the configuration.
        let has_input = kwargs.is_none() && members.get("input").is_some();
        let metadata = match opened(members, "metadata") {
            None if has_input => opened(members, "config").and_then(|c| opened(&c, "metadata")),
            metadata => metadata,
        };
        let (has_request, metadata) = (kwargs.is_some() || has_input, metadata.unwrap_or_default());
        let kwargs = kwargs.unwrap_or_default();
        let modes = kwargs
            .get("stream_mode")
            .map(|modes| json::items(modes).unwrap_or_else(|| vec![modes]));
        // Earlier gateways let the metadata of a thread's first run become the thread's. LangGraph
        // copies them to the runs of all programs, so such a run may be anybody's.
        let start = metadata.string(START).map(Cow::into_owned);
        let own = if start.is_some() { metadata } else { json::Members::default() };
        let answers = own.get(ANSWERS).and_then(json::items).unwrap_or_default();
        Some(Self {
            id: members.string("run_id")?.into_owned(),
            status: RunStatus::of(&members.string("status")?),
            client_id: own.string(CLIENT_RUN_ID).map(Cow::into_owned),
            start,
            created_at: members.string("created_at").unwrap_or_default().into_owned(),
            has_request,
            is_resumable: has_input
                || kwargs.get("resumable").is_some_and(|flag| flag.get() == "true"),
            has_values: modes.map(|modes| modes.iter().any(|m| m.get() == "\"values\"")),
            input: if has_input { members } else { &kwargs }
                .get("input")
                .filter(|input| input.get() != "null")
                .map(Json::from),
            resumes: opened(&kwargs, "command")
                .is_some_and(|c| c.get("resume").is_some_and(|resume| resume.get() != "null")),
            update: opened(&kwargs, "command").and_then(|c| c.get("update").map(Json::from)),
            answers: answers.into_iter().filter_map(json::string).map(Cow::into_owned).collect(),
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

    /// Whether the run has not ended.
    pub fn is_live(self) -> bool {
        matches!(self, Self::Pending | Self::Running)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_ours_is_known_by_its_metadata() {
        let list = r#"[{"run_id":"R","status":"running",
            "metadata":{"threadway_run_id":"r1","threadway_start":"s"}},
            {"run_id":"S","status":"new one","metadata":null}]"#;
        let runs = RunRecord::parse_list(list).unwrap();
        let read: Vec<_> =
            runs.iter().map(|run| (&*run.id, run.status, run.client_id.as_deref())).collect();
        assert_eq!(read, [("R", RunStatus::Running, Some("r1")), ("S", RunStatus::Unknown, None)]);
        assert_eq!(RunRecord::parse_list(r#"[{"status":"running"}]"#), None);
        assert_eq!(RunRecord::parse("<html>"), None);
    }

    #[test]
    fn a_record_of_aegra_has_the_gateways_metadata_in_its_configuration() {
        let run = |config: &str| {
            let record = format!(
                r#"{{"run_id":"R","status":"running","input":{{"n":1}},"output":null,"config":{config},"created_at":"2026"}}"#
            );
            RunRecord::parse(&record).unwrap()
        };
        let own = run(
            r#"{"metadata":{"threadway_run_id":"r1","threadway_answers":["q"],"threadway_start":"s"}}"#,
        );
        assert_eq!((own.client_id.as_deref(), own.answers), (Some("r1"), vec!["q".to_owned()]));
        assert!(own.has_request && own.is_resumable && own.has_values.is_none());
        assert_eq!(own.input.unwrap().get(), r#"{"n":1}"#);
        let foreign = run("{}");
        assert_eq!((foreign.client_id, foreign.answers), (None, Vec::new()));
    }

    #[test]
    fn what_a_run_has_copied_is_not_its_own() {
        let record = |id: &str, at: u8, metadata: &str| {
            format!(
                r#"{{"run_id":"{id}","status":"running","created_at":"{at}","metadata":{metadata}}}"#
            )
        };
        // The thread of an earlier gateway.
        let thread = r#"{"threadway_run_id":"r1","threadway_answers":["q"]}"#;
        let copy = RunRecord::parse(&record("S", 2, thread)).unwrap();
        assert_eq!((copy.start, copy.client_id, copy.answers), (None, None, Vec::new()));

        // A program starts later runs with all metadata of a run of ours.
        let ours = r#"{"threadway_run_id":"r1","threadway_start":"s"}"#;
        let again = r#"{"threadway_run_id":"r1","threadway_start":"t"}"#;
        let runs = [record("A", 1, ours), record("C", 3, ours), record("B", 2, ours)];
        let named = |list: &[String]| {
            let runs = RunRecord::parse_list(&format!("[{}]", list.join(","))).unwrap();
            let ours = runs.into_iter().filter(|run| run.client_id.as_deref() == Some("r1"));
            ours.map(|run| run.id).collect::<Vec<_>>()
        };
        assert_eq!(named(&runs), ["A"]);
        // CopilotKit sends several runs under one id.
        let runs = [runs.as_slice(), &[record("D", 4, again)]].concat();
        assert_eq!(named(&runs), ["D", "A"]);
    }

    #[test]
    fn a_run_that_answers_is_known_by_its_metadata() {
        let read = |metadata: &str| {
            let record = format!(r#"{{"run_id":"R","status":"running","metadata":{metadata}}}"#);
            RunRecord::parse(&record).unwrap().answers
        };
        let own = r#"{"threadway_answers":["a","b\"",7],"threadway_start":"s"}"#;
        assert_eq!(read(own), ["a", "b\""]);
        let none = [
            "{}",
            "null",
            r#"{"threadway_answers":"a","threadway_start":"s"}"#,
            r#"{"threadway_answers":["a"]}"#,
            r#"{"threadway_answers":["a"],"threadway_start":null}"#,
        ];
        for none in none {
            assert_eq!(read(none), Vec::<String>::new(), "{none}");
        }
    }

    #[test]
    fn a_run_that_another_program_resumes_is_known_by_its_command() {
        let read = |kwargs: &str| {
            let record = format!(r#"{{"run_id":"R","status":"running","kwargs":{kwargs}}}"#);
            RunRecord::parse(&record).unwrap().resumes
        };
        assert!(read(r#"{"input":null,"command":{"resume":"yes"}}"#));
        for other in [
            "{}",
            r#"{"input":null,"command":null}"#,
            r#"{"command":{"resume":null,"update":{}}}"#,
            r#"{"input":{}}"#,
        ] {
            assert!(!read(other), "{other}");
        }
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
    fn a_record_says_how_its_run_can_be_joined() {
        let listed = RunRecord::parse(r#"{"run_id":"R","status":"running"}"#).unwrap();
        assert!(!listed.has_request);
        let read = |kwargs: &str| {
            let record = format!(r#"{{"run_id":"R","status":"running","kwargs":{kwargs}}}"#);
            let run = RunRecord::parse(&record).unwrap();
            assert!(run.has_request);
            (run.is_resumable, run.may_have_values(), run.input.map(|input| input.get().to_owned()))
        };
        assert_eq!(read("{}"), (false, true, None));
        let asked =
            r#"{"stream_mode":["messages-tuple","values"],"resumable":true,"input":{"a":1}}"#;
        assert_eq!(read(asked), (true, true, Some(r#"{"a":1}"#.to_owned())));
        let asked = r#"{"stream_mode":["updates"],"resumable":false,"input":null}"#;
        assert_eq!(read(asked), (false, false, None));
        assert_eq!(read(r#"{"stream_mode":"events"}"#), (false, false, None));
    }
}
