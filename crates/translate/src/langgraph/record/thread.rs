//! A thread, as its record describes it, and as a search lists it.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::json::{self, Json};
use crate::langgraph::{Block, Message, MessagesKey};

/// The longest headline in characters, so that a list shows it on one line.
const MAX_HEADLINE_CHARS: usize = 60;

/// How much of a text is read for its headline.
const MAX_HEADLINE_BYTES: usize = 4096;

/// The key of a thread's metadata for the conversation's title.
pub const TITLE: &str = "title";

/// aegra's own name for a thread: the start of the first human message.
const AEGRA_NAME: &str = "thread_name";

/// The key of a thread's metadata that is true if a person has archived the thread.
pub const ARCHIVED: &str = "archived";

/// The key of a thread's metadata for the client's name of the thread, so that every replica finds
/// it.
pub const CLIENT_THREAD_ID: &str = "threadway_thread_id";

/// A thread, as `GET /threads/{id}` and a search return it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadRecord {
    /// LangGraph's id.
    pub id: String,
    /// The thread's metadata, an object.
    pub metadata: Json,
    /// Its status.
    pub status: ThreadStatus,
    /// When the thread was created, in the form of RFC 3339 like the times below.
    pub created_at: Option<String>,
    /// When a run or a client last changed the thread.
    pub updated_at: Option<String>,
    /// When a run last changed the state. Only the Python server sends it.
    pub state_updated_at: Option<String>,
    /// What happens on the thread.
    pub activity: ThreadActivity,
    /// A headline of the first message, if the record contains the state.
    begins: Option<String>,
}

/// A thread in a list. Its mark changes whenever anything happens on the thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadMark {
    /// LangGraph's id.
    pub id: String,
    /// Its status.
    pub status: ThreadStatus,
    /// What happens on the thread.
    pub activity: ThreadActivity,
    /// The status and the times of the last changes, as the server writes them.
    pub mark: String,
    /// When a run or a client last changed the thread, as the server writes it. Empty if it does
    /// not.
    pub updated_at: String,
}

/// What happens on a thread, for a list of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadActivity {
    /// A run is active, or waits for its turn.
    Running,
    /// A question is open.
    Waiting,
    /// The thread waits for the next message.
    Idle,
    /// The last run failed.
    Failed,
}

/// The status of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadStatus {
    /// No run, and nothing to answer.
    Idle,
    /// A run is active or pending.
    Busy,
    /// A question is open, or the last run was cancelled.
    Interrupted,
    /// Its last run failed.
    Error,
    /// A status that is unknown here.
    Unknown,
}

// === impl ThreadRecord ===

impl ThreadRecord {
    /// Reads one record. `None` if the body is not a thread.
    pub fn parse(body: &str) -> Option<Self> {
        Self::parse_under(&MessagesKey::default(), body)
    }

    /// Reads one record of a thread whose graph keeps its messages under `key`.
    pub fn parse_under(key: &MessagesKey, body: &str) -> Option<Self> {
        Self::read(key, &serde_json::from_str(body).ok()?)
    }

    /// Reads a list of records without states, in the server's order. `None` if the body is not a
    /// list of threads.
    pub fn parse_list(body: &str) -> Option<Vec<Self>> {
        let items: Vec<&RawValue> = serde_json::from_str(body).ok()?;
        let read = |item| Self::read(&MessagesKey::default(), &json::members(item)?);
        items.into_iter().map(read).collect()
    }

    fn read(key: &MessagesKey, members: &json::Members<'_>) -> Option<Self> {
        let mut metadata = "{}".to_owned();
        if let Some(object) = members.get("metadata").filter(|object| object.get().starts_with('{'))
        {
            // A server may print JSON over many lines.
            json::compact(object.get(), &mut metadata);
        }
        let time = |name| {
            let time = members.string(name).filter(|time| is_rfc3339(time));
            time.map(Cow::into_owned)
        };
        Some(Self {
            id: members.string("thread_id")?.into_owned(),
            metadata: json::raw(metadata),
            status: ThreadStatus::of(&members.string("status").unwrap_or_default()),
            activity: ThreadActivity::of(members),
            created_at: time("created_at"),
            updated_at: time("updated_at"),
            state_updated_at: time("state_updated_at"),
            begins: members.get("values").and_then(|values| first_words(values, key)),
        })
    }

    /// The title in the metadata. Without one, a headline of the first message, if the server has
    /// named the thread by it, or if the record contains the state.
    pub fn title(&self) -> Option<String> {
        let title = self.text(TITLE).filter(|title| !title.trim().is_empty());
        let named = || self.text(AEGRA_NAME).as_deref().and_then(headline);
        title.or_else(named).or_else(|| self.begins.clone())
    }

    /// The client's name of the thread, if LangGraph needs another id. Any client that may change
    /// the thread's metadata can set it.
    pub fn client_id(&self) -> Option<String> {
        self.text(CLIENT_THREAD_ID)
    }

    /// Whether a person has archived the thread.
    pub fn is_archived(&self) -> bool {
        let metadata = json::members(&self.metadata).unwrap_or_default();
        metadata.get(ARCHIVED).is_some_and(|flag| flag.get() == "true")
    }

    /// The graph and the assistant of the last run.
    pub fn ran(&self) -> (Option<String>, Option<String>) {
        (self.text("graph_id"), self.text("assistant_id"))
    }

    fn text(&self, name: &str) -> Option<String> {
        json::members(&self.metadata)?.string(name).map(Cow::into_owned)
    }
}

/// A headline of the first human message in a state.
fn first_words(values: &RawValue, key: &MessagesKey) -> Option<String> {
    let messages = json::items(json::members(values)?.get(key.as_str())?)?;
    let mut messages = messages.into_iter().filter_map(Message::parse);
    let first = messages.find(Message::is_typed)?;
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

/// A title for a conversation that starts with this text: its beginning on one line, at most 60
/// characters. A link is its words only. `None` if it has no visible characters.
///
/// Threads of web pages and sessions of editors get their titles from it.
pub fn headline(text: &str) -> Option<String> {
    let text = without_links(text);
    let spaced = text.split_whitespace().flat_map(|word| [" ", word]).skip(1);
    let mut shown = spaced.flat_map(str::chars).filter(|char| !char.is_control());
    let mut line: String = shown.by_ref().take(MAX_HEADLINE_CHARS).collect();
    if shown.next().is_some() {
        line.pop();
        line.truncate(line.trim_end().len());
        line.push('…');
    }
    (!line.is_empty()).then_some(line)
}

/// The beginning of a text, with each Markdown link as its words.
fn without_links(text: &str) -> String {
    let text = text.trim_start();
    let mut rest = text.get(..text.floor_char_boundary(MAX_HEADLINE_BYTES)).unwrap_or_default();
    let mut plain = String::new();
    while let Some(at) = rest.find('[') {
        let (before, from) = rest.split_at(at);
        if let Some((words, after)) = link(from) {
            plain.push_str(before.strip_suffix('!').unwrap_or(before));
            plain.push_str(&words);
            rest = after;
        } else {
            plain.push_str(before);
            plain.push('[');
            rest = from.get(1..).unwrap_or_default();
        }
    }
    plain + rest
}

/// The words of the link that a text begins with, and what follows it. What has no address in its
/// round brackets is no link but code: `calls[i](x)`.
fn link(text: &str) -> Option<(String, &str)> {
    let mut words = String::new();
    let mut characters = text.char_indices().skip(1);
    let end = loop {
        match characters.next()? {
            (_, '\\') => words.push(characters.next()?.1),
            (end, ']') => break end,
            (_, '[') => return None,
            (_, character) => words.push(character),
        }
    };
    let rest = text.get(end..)?.strip_prefix("](")?;
    let mut depth = 1_u32;
    let close = rest.find(|character: char| {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        depth == 0 || character.is_whitespace()
    })?;
    let (address, after) = rest.split_at(close);
    let is_address = address.contains(':') || address.starts_with(['/', '.', '#']);
    (is_address && !words.is_empty()).then_some(())?;
    Some((words, after.strip_prefix(')')?))
}

/// Whether a text is a time as both servers write it (`2026-11-22T11:16:55.89+00:00`,
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
    /// Reads a list of records in the server's order. `None` if the body is not a list of threads.
    pub fn parse_list(body: &str) -> Option<Vec<Self>> {
        let items: Vec<&RawValue> = serde_json::from_str(body).ok()?;
        items.into_iter().map(|item| Self::read(&json::members(item)?)).collect()
    }

    fn read(members: &json::Members<'_>) -> Option<Self> {
        let mark = ["status", "updated_at", "state_updated_at"]
            .map(|name| members.get(name).map_or("", RawValue::get));
        Some(Self {
            id: members.string("thread_id")?.into_owned(),
            status: ThreadStatus::of(&members.string("status").unwrap_or_default()),
            activity: ThreadActivity::of(members),
            mark: mark.join(" "),
            updated_at: members.string("updated_at").unwrap_or_default().into_owned(),
        })
    }

    /// Whether a list begins with the threads that changed last. One without times does not.
    pub fn are_newest_first(marks: &[Self]) -> bool {
        let are_dated = marks.iter().all(|mark| is_rfc3339(&mark.updated_at));
        are_dated && marks.is_sorted_by(|newer, older| !newer.is_older_than(older))
    }

    /// Whether this thread changed before another.
    pub fn is_older_than(&self, other: &Self) -> bool {
        self.time() < other.time()
    }

    /// The time in a form whose order as a text is that of times. Servers write UTC, and leave out
    /// a fraction that is zero.
    fn time(&self) -> &str {
        let time = self.updated_at.as_str();
        time.strip_suffix('Z').or_else(|| time.strip_suffix("+00:00")).unwrap_or(time)
    }
}

// === impl ThreadActivity ===

impl ThreadActivity {
    /// Reads a record. A cancelled run leaves a thread `interrupted` too, without interrupts. aegra's
    /// records have no `interrupts`, and a cancelled run leaves a thread `idle` there.
    fn of(members: &json::Members<'_>) -> Self {
        let is_empty = |interrupts: &RawValue| {
            let text = interrupts.get();
            let inside = text.get(1..text.len().saturating_sub(1)).unwrap_or_default();
            text == "null" || inside.trim().is_empty()
        };
        match ThreadStatus::of(&members.string("status").unwrap_or_default()) {
            ThreadStatus::Busy => Self::Running,
            ThreadStatus::Interrupted if !members.get("interrupts").is_some_and(is_empty) => {
                Self::Waiting
            }
            ThreadStatus::Error => Self::Failed,
            ThreadStatus::Interrupted | ThreadStatus::Idle | ThreadStatus::Unknown => Self::Idle,
        }
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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_thread_waits_if_it_has_a_question_and_not_after_a_cancelled_run() {
        for (members, activity) in [
            (r#""status":"busy","interrupts":{}"#, ThreadActivity::Running),
            (r#""status":"interrupted","interrupts":{"t":[{"id":"i"}]}"#, ThreadActivity::Waiting),
            (r#""status":"interrupted","interrupts":{}"#, ThreadActivity::Idle),
            ("\"status\":\"interrupted\",\"interrupts\":{\n}", ThreadActivity::Idle),
            (r#""status":"interrupted","interrupts":[]"#, ThreadActivity::Idle),
            (r#""status":"interrupted","interrupts":null"#, ThreadActivity::Idle),
            (r#""status":"interrupted","interrupts":7"#, ThreadActivity::Idle),
            (r#""status":"interrupted""#, ThreadActivity::Waiting),
            (r#""status":"error","interrupts":{}"#, ThreadActivity::Failed),
            (r#""status":"idle","interrupts":{}"#, ThreadActivity::Idle),
            (r#""status":"new""#, ThreadActivity::Idle),
        ] {
            let list = format!(r#"[{{"thread_id":"T",{members}}}]"#);
            assert_eq!(ThreadMark::parse_list(&list).unwrap()[0].activity, activity, "{members}");
            let record = ThreadRecord::parse_list(&list).unwrap().remove(0);
            assert_eq!(record.activity, activity, "{members}");
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
        let messages = r#"[{"type":"system","content":"be brief"},{"type":"ai","content":"hello"},
            {"type":"human","content":[{"type":"image_url","image_url":"u"},
             {"type":"text","text":"what is\n this"},{"type":"text","text":"here?"}]},
            {"type":"human","content":"second"}]"#;
        assert_eq!(read(r#"{"title":"Mine"}"#, messages).as_deref(), Some("Mine"));
        for untitled in ["{}", "null", r#"{"title":" "}"#, r#"{"title":7}"#] {
            assert_eq!(
                read(untitled, messages).as_deref(),
                Some("what is this here?"),
                "{untitled}"
            );
        }
        let aegra = r#"{"thread_name":" what\nis this "}"#;
        assert_eq!(read(aegra, "[]").as_deref(), Some("what is this"));
        let both = r#"{"title":"Mine","thread_name":"what is this"}"#;
        assert_eq!(read(both, "[]").as_deref(), Some("Mine"));
        for silent in ["[]", "{}", "7", r#"[{"type":"human","content":" "}]"#] {
            assert_eq!(read("{}", silent), None, "{silent}");
        }
    }

    #[test]
    fn a_headline_has_at_most_60_characters() {
        let whole = "é".repeat(60);
        assert_eq!(headline(&whole).as_deref(), Some(&*whole));
        assert_eq!(headline(&format!("{whole}!")), Some("é".repeat(59) + "…"));
        assert_eq!(headline(&format!(" {}\n\tb c", "a".repeat(58))), Some("a".repeat(58) + "…"));
        assert_eq!(headline("\u{1b}[1mbold\u{7}").as_deref(), Some("[1mbold"));
        assert_eq!(headline(" \n"), None);
    }

    #[test]
    fn a_headline_has_the_words_of_a_link_without_its_address() {
        for (text, expected) in [
            ("See [a b.rs](file:///w/a%20b.rs), please", "See a b.rs, please"),
            ("[a\\]b](file:///w/ab)![x](https://x/(1))", "a]bx"),
            ("call fns[i](x) or [1, [2]](y)", "call fns[i](x) or [1, [2]](y)"),
            ("[](u:x) [open", "[](u:x) [open"),
            ("[a](u:b c)", "[a](u:b c)"),
        ] {
            assert_eq!(headline(text).as_deref(), Some(expected));
        }
        let long = format!("[{}](file:///{})", "n".repeat(20), "x".repeat(200));
        assert_eq!(headline(&long), Some("n".repeat(20)));
    }
}
