//! Runs, threads and assistants, as LangGraph's records tell of them.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde_json::value::RawValue;

use super::{Block, Message, MessageType, MessagesKey};
use crate::json::{self, Json};

/// How much of its first words names a conversation: what a list of them shows in a line.
const MAX_HEADLINE_CHARS: usize = 60;

/// The key of a thread's metadata that holds what people call the conversation.
pub const TITLE: &str = "title";

/// The key of a thread's metadata that says whether a person has put the thread away.
pub const ARCHIVED: &str = "archived";

/// The key of a thread's metadata that holds the client's name of the thread, for every replica.
pub const CLIENT_THREAD_ID: &str = "threadway_thread_id";

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
    /// Whether the record holds the request that the run was made of, as lists need not. Without,
    /// the following are the server's defaults.
    pub has_request: bool,
    /// Whether the server keeps its stream for replay.
    pub is_resumable: bool,
    /// Whether its stream carries the state.
    pub has_values: bool,
    /// What it begins with, if that is new input.
    pub input: Option<Json>,
    /// The interrupts that it answers, if a gateway started it for that.
    pub answers: Vec<String>,
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

/// A thread, as `GET /threads/{id}` and a search tell of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadRecord {
    /// LangGraph's id.
    pub id: String,
    /// What its clients and the server keep with it: an object.
    pub metadata: Json,
    /// Whether it rests, and on what.
    pub status: ThreadStatus,
    /// When it was made: a time in the form of RFC 3339, as all of these.
    pub created_at: Option<String>,
    /// When it was last changed, by a run or by hand.
    pub updated_at: Option<String>,
    /// When a run last changed its state. Only the Python server says so.
    pub state_updated_at: Option<String>,
    /// A headline of what was said first, if the record carries the state.
    begins: Option<String>,
}

/// A thread as a search lists it. Its mark changes whenever something happens on the thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadMark {
    /// LangGraph's id.
    pub id: String,
    /// Whether it rests, and on what.
    pub status: ThreadStatus,
    /// The status and the times of the last changes, as the server writes them.
    pub mark: String,
}

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadStatus {
    /// Nothing.
    Idle,
    /// A run is under way, or waits for its turn.
    Busy,
    /// It waits for an answer, or its last run was cancelled.
    Interrupted,
    /// Its last run failed.
    Error,
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
    /// Nothing is known: the agent is not shown to its caller, or its schema was not read.
    #[default]
    Unknown,
    /// The server has answered, and does not describe what the graph takes.
    Undescribed,
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
        let answers = metadata.get(super::request::ANSWERS).and_then(json::items);
        let answers = answers.unwrap_or_default();
        Some(Self {
            id: members.string("run_id")?.into_owned(),
            status: RunStatus::of(&members.string("status")?),
            client_id: metadata.string(super::request::CLIENT_RUN_ID).map(Cow::into_owned),
            created_at: members.string("created_at").unwrap_or_default().into_owned(),
            has_request: members.get("kwargs").is_some(),
            is_resumable: kwargs.get("resumable").is_some_and(|flag| flag.get() == "true"),
            // Without the member the server streams `values`.
            has_values: modes.is_none_or(|modes| modes.iter().any(|m| m.get() == "\"values\"")),
            input: kwargs.get("input").filter(|input| input.get() != "null").map(Json::from),
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

    /// Whether the run is still to come to its end.
    pub fn is_live(self) -> bool {
        matches!(self, Self::Pending | Self::Running)
    }
}

// === impl ThreadRecord ===

impl ThreadRecord {
    /// Reads one record. `None` if it is none.
    pub fn parse(body: &str) -> Option<Self> {
        Self::parse_under(&MessagesKey::default(), body)
    }

    /// The same, of a thread whose graph keeps its conversation under this key.
    pub fn parse_under(key: &MessagesKey, body: &str) -> Option<Self> {
        Self::read(key, &serde_json::from_str(body).ok()?)
    }

    /// Reads a list of records without states, in the server's order. `None` if it is none.
    pub fn parse_list(body: &str) -> Option<Vec<Self>> {
        let items: Vec<&RawValue> = serde_json::from_str(body).ok()?;
        let read = |item| Self::read(&MessagesKey::default(), &json::members(item)?);
        items.into_iter().map(read).collect()
    }

    fn read(key: &MessagesKey, members: &json::Members<'_>) -> Option<Self> {
        let mut metadata = "{}".to_owned();
        if let Some(told) = members.get("metadata").filter(|told| told.get().starts_with('{')) {
            // The JavaScript server prints over many lines.
            json::compact(told.get(), &mut metadata);
        }
        let time = |name| {
            let time = members.string(name).filter(|time| is_rfc3339(time));
            time.map(Cow::into_owned)
        };
        Some(Self {
            id: members.string("thread_id")?.into_owned(),
            metadata: json::raw(metadata),
            status: ThreadStatus::of(&members.string("status").unwrap_or_default()),
            created_at: time("created_at"),
            updated_at: time("updated_at"),
            state_updated_at: time("state_updated_at"),
            begins: members.get("values").and_then(|values| first_words(values, key)),
        })
    }

    /// What people call the conversation: the metadata's `title`, else the headline of what was
    /// said first, if the record carries the state.
    pub fn title(&self) -> Option<String> {
        let metadata = json::members(&self.metadata).unwrap_or_default();
        let title = metadata.string(TITLE).filter(|title| !title.trim().is_empty());
        title.map(Cow::into_owned).or_else(|| self.begins.clone())
    }

    /// What the client calls the thread, where LangGraph needs another name. Whoever may change the
    /// thread's metadata may have written it.
    pub fn client_id(&self) -> Option<String> {
        self.text(CLIENT_THREAD_ID)
    }

    /// Whether a person has put it away.
    pub fn is_archived(&self) -> bool {
        let metadata = json::members(&self.metadata).unwrap_or_default();
        metadata.get(ARCHIVED).is_some_and(|flag| flag.get() == "true")
    }

    /// The graph that ran on it last, and the assistant.
    pub fn ran(&self) -> (Option<String>, Option<String>) {
        (self.text("graph_id"), self.text("assistant_id"))
    }

    fn text(&self, name: &str) -> Option<String> {
        json::members(&self.metadata)?.string(name).map(Cow::into_owned)
    }
}

/// The headline of what a person said first in a state.
fn first_words(values: &RawValue, key: &MessagesKey) -> Option<String> {
    let messages = json::items(json::members(values)?.get(key.as_str())?)?;
    let mut messages = messages.into_iter().filter_map(Message::parse);
    let first = messages.find(|message| message.kind() == MessageType::Human)?;
    let texts = first.blocks().into_iter().filter_map(|block| match block {
        Block::Text(text) => Some(text.decode().into_owned()),
        Block::Reasoning(_)
        | Block::Media(_)
        | Block::Annotations(_)
        | Block::Call
        | Block::Other(_) => None,
    });
    headline(&texts.collect::<Vec<_>>().join(" "))
}

/// A name for a conversation that begins with this text: its first 60 characters, on one line.
/// `None` if there is nothing to be seen.
pub fn headline(text: &str) -> Option<String> {
    let spaced = text.split_whitespace().flat_map(|word| [" ", word]).skip(1);
    let mut shown = spaced.flat_map(str::chars).filter(|char| !char.is_control());
    let mut line: String = shown.by_ref().take(MAX_HEADLINE_CHARS).collect();
    if shown.next().is_some() {
        line.truncate(line.trim_end().len());
        line.push('…');
    }
    (!line.is_empty()).then_some(line)
}

/// Whether a text has the form of a time as both servers write it (`2026-11-22T11:16:55.89+00:00`,
/// `2026-11-22T11:16:55.890Z`).
fn is_rfc3339(text: &str) -> bool {
    const TIME: &str = "0000-00-00T00:00:00";
    let fits = |text: &str, form: &str| {
        let fits = |(a, b): (u8, u8)| if b == b'0' { a.is_ascii_digit() } else { a == b };
        text.len() == form.len() && text.bytes().zip(form.bytes()).all(fits)
    };
    let Some((time, rest)) = text.split_at_checked(TIME.len()) else { return false };
    let zone = rest
        .strip_prefix('.')
        .map_or(rest, |fraction| fraction.trim_start_matches(|char: char| char.is_ascii_digit()));
    fits(time, TIME) && (zone == "Z" || fits(zone, "+00:00") || fits(zone, "-00:00"))
}

// === impl ThreadMark ===

impl ThreadMark {
    /// Reads a list of records, in the server's order. `None` if it is none.
    pub fn parse_list(body: &str) -> Option<Vec<Self>> {
        let items: Vec<&RawValue> = serde_json::from_str(body).ok()?;
        items.into_iter().map(|item| Self::read(&json::members(item)?)).collect()
    }

    fn read(members: &json::Members<'_>) -> Option<Self> {
        let told = ["status", "updated_at", "state_updated_at"].map(|name| members.get(name));
        let told = told.map(|told| told.map_or("", RawValue::get));
        Some(Self {
            id: members.string("thread_id")?.into_owned(),
            status: ThreadStatus::of(&members.string("status").unwrap_or_default()),
            mark: told.join(" "),
        })
    }
}

// === impl ThreadStatus ===

impl ThreadStatus {
    fn of(status: &str) -> Self {
        match status {
            "idle" => Self::Idle,
            "busy" => Self::Busy,
            "interrupted" => Self::Interrupted,
            "error" => Self::Error,
            _ => Self::Unknown,
        }
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
    /// Reads the answer of `GET /assistants/{id}/schemas`. `None` if it is none.
    pub fn parse(body: &str) -> Option<Self> {
        let schemas: json::Members<'_> = serde_json::from_str(body).ok()?;
        let schema = schemas.get("input_schema").and_then(json::members).unwrap_or_default();
        Some(match schema.get("properties").and_then(json::members) {
            Some(keys) => {
                Self::Known(keys.0.iter().map(|(key, _)| key.0.clone().into_owned()).collect())
            }
            None => Self::Undescribed,
        })
    }

    /// Whether a key of a client's state may go up. A graph without a description may take any,
    /// and passes over the rest; of an unknown one nothing is assumed.
    pub fn may_take(&self, key: &str) -> bool {
        match self {
            Self::Unknown => false,
            Self::Undescribed => true,
            Self::Known(keys) => keys.contains(key),
        }
    }

    /// Whether the graph is known to take a key.
    pub fn takes(&self, key: &str) -> bool {
        match self {
            Self::Unknown | Self::Undescribed => false,
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
    fn a_run_that_answers_is_known_by_its_metadata() {
        let read = |metadata: &str| {
            let record = format!(r#"{{"run_id":"R","status":"running","metadata":{metadata}}}"#);
            RunRecord::parse(&record).unwrap().answers
        };
        assert_eq!(read(r#"{"threadway_answers":["a","b\"",7]}"#), ["a", "b\""]);
        for none in ["{}", "null", r#"{"threadway_answers":"a"}"#] {
            assert_eq!(read(none), Vec::<String>::new(), "{none}");
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
    fn a_record_tells_how_its_run_can_be_joined() {
        let listed = RunRecord::parse(r#"{"run_id":"R","status":"running"}"#).unwrap();
        assert!(!listed.has_request);
        let read = |kwargs: &str| {
            let record = format!(r#"{{"run_id":"R","status":"running","kwargs":{kwargs}}}"#);
            let run = RunRecord::parse(&record).unwrap();
            assert!(run.has_request);
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
    fn a_thread_is_read_as_either_server_writes_it() {
        let python = r#"{"thread_id":"T","created_at":"2026-11-22T11:16:55.891419+00:00",
            "updated_at":"2026-11-22T11:16:55.892578+00:00","metadata":{"cwd":"/w","n":1.10},
            "status":"interrupted","config":{},"values":null}"#;
        let read = ThreadRecord::parse(python).unwrap();
        assert_eq!((&*read.id, read.status), ("T", ThreadStatus::Interrupted));
        assert_eq!(read.metadata.get(), r#"{"cwd":"/w","n":1.10}"#);
        assert_eq!(read.updated_at.as_deref(), Some("2026-11-22T11:16:55.892578+00:00"));
        assert_eq!(read.title(), None);

        let javascript = "[\n  {\n    \"thread_id\": \"T\",\n    \"updated_at\": \
            \"2026-11-22T11:17:10.639Z\",\n    \"metadata\": {\n      \"a b\": [\n        1\n      ]\n    \
            },\n    \"status\": \"idle\"\n  }\n]";
        let read = ThreadRecord::parse_list(javascript).unwrap().remove(0);
        assert_eq!(read.metadata.get(), r#"{"a b":[1]}"#);
        assert_eq!(read.updated_at.as_deref(), Some("2026-11-22T11:17:10.639Z"));

        let least = ThreadRecord::parse(r#"{"thread_id":"T","metadata":null}"#).unwrap();
        assert_eq!((least.metadata.get(), least.status), ("{}", ThreadStatus::Unknown));
        for other in ["{}", "[]", "<html>", r#"{"thread_id":7}"#] {
            assert_eq!(ThreadRecord::parse(other), None, "{other}");
        }
        assert_eq!(ThreadRecord::parse_list(r#"[{"status":"idle"}]"#), None);
        assert_eq!(ThreadRecord::parse_list("[]"), Some(Vec::new()));
    }

    #[test]
    fn a_mark_is_another_where_one_of_its_members_is() {
        let read = |members: &str| {
            let list = format!(r#"[{{"thread_id":"T",{members}}}]"#);
            ThreadMark::parse_list(&list).unwrap().remove(0)
        };
        let rests = read(r#""status":"idle","updated_at":"1","state_updated_at":"1""#);
        assert_eq!((&*rests.id, rests.status), ("T", ThreadStatus::Idle));
        for other in [
            r#""status":"busy","updated_at":"1","state_updated_at":"1""#,
            r#""status":"idle","updated_at":"2","state_updated_at":"1""#,
            r#""status":"idle","updated_at":"1","state_updated_at":"2""#,
            r#""status":"idle","updated_at":"1""#,
            r#""status":"idle","state_updated_at":"1""#,
        ] {
            assert_ne!(read(other).mark, rests.mark, "{other}");
        }
        for other in ["{}", "[7]", r#"[{"status":"idle"}]"#, "<html>"] {
            assert_eq!(ThreadMark::parse_list(other), None, "{other}");
        }
    }

    #[test]
    fn a_time_of_another_form_is_none() {
        let read = |time: &str| {
            let record = format!(r#"{{"thread_id":"T","updated_at":"{time}"}}"#);
            ThreadRecord::parse(&record).unwrap().updated_at
        };
        for time in ["2026-11-22T11:17:10Z", "2026-11-22T11:17:10.5-01:30"] {
            assert_eq!(read(time).as_deref(), Some(time));
        }
        let local = "2026-11-22T11:17:10.123";
        for time in ["", "yesterday", local, "2026-11-22 11:17:10Z", "2026-11-22T11:17:1éZ"] {
            assert_eq!(read(time), None, "{time}");
        }
    }

    #[test]
    fn a_thread_is_called_by_its_title_or_by_what_was_said_first() {
        let read = |metadata: &str, messages: &str| {
            let record = format!(
                r#"{{"thread_id":"T","metadata":{metadata},"values":{{"messages":{messages}}}}}"#
            );
            ThreadRecord::parse(&record).unwrap().title()
        };
        let said = r#"[{"type":"system","content":"be brief"},{"type":"ai","content":"hello"},
            {"type":"human","content":[{"type":"image_url","image_url":"u"},
             {"type":"text","text":"what is\n this"},{"type":"text","text":"here?"}]},
            {"type":"human","content":"second"}]"#;
        assert_eq!(read(r#"{"title":"Mine"}"#, said).as_deref(), Some("Mine"));
        for untitled in ["{}", "null", r#"{"title":" "}"#, r#"{"title":7}"#] {
            assert_eq!(read(untitled, said).as_deref(), Some("what is this here?"), "{untitled}");
        }
        for silent in ["[]", "{}", "7", r#"[{"type":"human","content":" "}]"#] {
            assert_eq!(read("{}", silent), None, "{silent}");
        }
    }

    #[test]
    fn a_headline_is_cut_after_60_characters() {
        let whole = "é".repeat(60);
        assert_eq!(headline(&whole).as_deref(), Some(&*whole));
        assert_eq!(headline(&format!("{whole}!")), Some(format!("{whole}…")));
        assert_eq!(headline(&format!(" {}\n\tb c", "a".repeat(59))), Some("a".repeat(59) + "…"));
        assert_eq!(headline("\u{1b}[1mbold\u{7}").as_deref(), Some("[1mbold"));
        assert_eq!(headline(" \n"), None);
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
        let keys = keys.unwrap();
        assert!(keys.takes("a b") && keys.may_take("messages"));
        assert!(!keys.takes("x") && !keys.may_take("x"));
        for none in ["{}", r#"{"input_schema":null}"#, r#"{"input_schema":{}}"#] {
            let keys = InputKeys::parse(none).unwrap();
            assert_eq!(keys, InputKeys::Undescribed, "{none}");
            assert!(keys.may_take("x") && !keys.takes("x"));
        }
        for no_answer in ["", "<html>", "[]", "null", "7"] {
            assert_eq!(InputKeys::parse(no_answer), None, "{no_answer}");
        }
        let unknown = InputKeys::Unknown;
        assert!(!unknown.may_take("x") && !unknown.takes("x"));
    }
}
