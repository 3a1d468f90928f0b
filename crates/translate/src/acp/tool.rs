//! What an editor shows of a call's arguments: a title, the files, and the changes to them.
//!
//! The arguments are read when they are complete.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::profile::{GraphProfile, Paths};
use super::reference;
use super::strict;
use super::update::{Location, ToolContent, ToolKind};
use crate::json::{self, Json, Members, Text};

/// The longest title in characters. It is one line in a list.
const MAX_TITLE_CHARS: usize = 120;

/// How many arguments a title shows after the tool's name, if no argument is known to be the
/// object.
const MAX_TITLE_ARGS: usize = 3;

/// The longest such argument in characters. Longer ones are not shown.
const MAX_TITLE_ARG_CHARS: usize = 60;

/// The longest path in bytes. No system accepts a longer one.
const MAX_PATH_BYTES: usize = 4096;

/// How many paths are read of one list.
const MAX_LOCATIONS: usize = 32;

/// The arguments that name a file.
const PATH: [&str; 9] = [
    "file_path",
    "filePath",
    "path",
    "filepath",
    "target_file",
    "absolute_path",
    "dir_path",
    "directory",
    "notebook_path",
];

/// The arguments that name the old and the new place of a moved file.
const FROM: [&str; 6] = ["source", "src", "old_path", "oldPath", "from", "source_path"];
const TO: [&str; 7] =
    ["destination", "dst", "dest", "new_path", "newPath", "to", "destination_path"];

const PATTERN: [&str; 3] = ["pattern", "query", "regex"];
const COMMAND: [&str; 4] = ["command", "cmd", "code", "script"];
const ADDRESS: [&str; 3] = ["url", "uri", "query"];

/// The arguments that name a line, counted from one.
const LINE: [&str; 4] = ["line", "start_line", "startLine", "line_number"];

const OLD_TEXT: [&str; 5] = ["old_string", "oldString", "old_str", "old_text", "oldText"];
const NEW_TEXT: [&str; 5] = ["new_string", "newString", "new_str", "new_text", "newText"];
const FILE_TEXT: [&str; 4] = ["content", "contents", "file_text", "text"];

/// The arguments that say where in a file a text is put.
const PLACE: [&str; 10] = [
    "line",
    "start_line",
    "startLine",
    "line_number",
    "end_line",
    "endLine",
    "insert_line",
    "insertLine",
    "position",
    "offset",
];

/// The words of a tool's name by which the text is put into a file.
const INSERTS: [&str; 4] = ["insert", "prepend", "add_to", "add_line"];

/// What an edit does with its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EditKind {
    /// The arguments have the whole file.
    Write,
    /// A part of the file becomes another, or it is not known what.
    Replace,
    /// A text is added at the file's end.
    Append,
    /// A text is added elsewhere, or takes the place of lines.
    Insert,
    /// The last edit is undone.
    Undo,
}

/// What the client gets of a call's arguments.
#[derive(Clone, Debug)]
pub(super) struct CallDetails {
    /// What the call does, as far as its arguments say it. `None` if the client knows it.
    pub(super) kind: Option<ToolKind>,
    pub(super) title: String,
    pub(super) locations: Vec<Location>,
    pub(super) diffs: Vec<ToolContent<'static>>,
    pub(super) raw_input: Json,
}

/// Reads arguments for a session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    pub(super) profile: &'a GraphProfile,
    pub(super) cwd: &'a str,
}

/// Whether arguments are a complete object.
pub(super) fn is_complete(args: &str) -> bool {
    serde_json::from_str::<&RawValue>(args).is_ok_and(|raw| raw.get().starts_with('{'))
}

/// The title of a call without its arguments.
pub(super) fn bare_title(name: &str, kind: ToolKind) -> String {
    title(name, kind, &Members::default())
}

// === impl Reader ===

impl Reader<'_> {
    /// Reads arguments as the model wrote them.
    pub(super) fn read(self, name: &str, args: &Text) -> CallDetails {
        let spelled = args.decode();
        let spelled = if spelled.trim().is_empty() { Cow::Borrowed("{}") } else { spelled };
        let raw_input = strict::value(&spelled);
        let raw_input = raw_input.unwrap_or_else(|| strict::text(args).into_owned().into());
        let members = json::members(&raw_input).unwrap_or_default();
        let kind = self.profile.kind_of_call(name, members.string("command").as_deref());
        let is_edit = kind == ToolKind::Edit;
        let diffs = is_edit.then(|| self.diffs(edit(name, &members), &members));
        let diffs = diffs.unwrap_or_default();
        CallDetails {
            kind: Some(kind),
            title: title(name, kind, &members),
            locations: self.locations(kind, &members),
            diffs,
            raw_input: raw_input.clone(),
        }
    }

    fn locations(self, kind: ToolKind, args: &Members<'_>) -> Vec<Location> {
        let names: &[&[&str]] = match kind {
            ToolKind::Read | ToolKind::Edit | ToolKind::Delete | ToolKind::Search => &[&PATH],
            ToolKind::Move => &[&PATH, &FROM, &TO],
            ToolKind::Execute
            | ToolKind::Think
            | ToolKind::Fetch
            | ToolKind::SwitchMode
            | ToolKind::Other => return Vec::new(),
        };
        let one = |names: &&[&str]| {
            first(args, names)
                .and_then(|path| self.location(&path))
                .map(|found| Location { line: line(args).or(found.line), ..found })
        };
        let mut locations: Vec<_> = names.iter().filter_map(one).collect();
        for list in ["paths", "file_paths"].iter().filter_map(|name| args.get(name)) {
            let paths = json::items(list).unwrap_or_default().into_iter().take(MAX_LOCATIONS);
            let paths = paths.filter_map(json::string);
            locations.extend(paths.filter_map(|path| self.location(&path)));
        }
        locations
    }

    /// What is known of the changes. A text that is put into a file is no diff, because the text
    /// around it was not read.
    fn diffs(self, edit: EditKind, args: &Members<'_>) -> Vec<ToolContent<'static>> {
        let Some(Location { path, .. }) = first(args, &PATH).and_then(|path| self.location(&path))
        else {
            return Vec::new();
        };
        let diff =
            |old_text, new_text| ToolContent::Diff { path: path.clone(), old_text, new_text };
        let replaced = |edit: &Members<'_>| {
            let new = || text(edit, &NEW_TEXT).unwrap_or_else(|| Text::new(""));
            text(edit, &OLD_TEXT).map(|old| diff(Some(old), new()))
        };
        let edits = args.get("edits").and_then(json::items).unwrap_or_default();
        let mut diffs: Vec<_> =
            edits.iter().filter_map(|edit| replaced(&json::members(edit)?)).collect();
        match edit {
            // A file that is written whole has no old text, because it was not read.
            EditKind::Write => diffs.extend(text(args, &FILE_TEXT).map(|new| diff(None, new))),
            EditKind::Replace => diffs.extend(replaced(args)),
            EditKind::Append | EditKind::Insert | EditKind::Undo => {}
        }
        diffs
    }

    /// The place in a file, with the absolute path on the editor's disk. `None` for a text that is
    /// no path.
    fn location(self, path: &str) -> Option<Location> {
        let paths = self.profile.paths;
        let Some(file) = reference::file_path(path) else {
            return Some(Location { path: self.absolute(paths, path)?, line: None });
        };
        // A person has mentioned a file of the session by its path on the editor's disk.
        let inside = file.path.strip_prefix(self.cwd.trim_end_matches('/'));
        let is_of_session = inside.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let paths = if is_of_session { Paths::Host } else { paths };
        Some(Location { path: self.absolute(paths, &file.path)?, line: file.line })
    }

    /// The absolute path on the editor's disk. `None` for a text that is no path.
    fn absolute(self, paths: Paths, path: &str) -> Option<String> {
        let is_path = !path.is_empty()
            && path.len() <= MAX_PATH_BYTES
            && !path.contains("://")
            && !path.starts_with('~')
            && !path.contains(|character: char| character.is_control());
        if !is_path {
            return None;
        }
        let is_windows = |path: &str| {
            matches!(path.as_bytes(), [b'a'..=b'z' | b'A'..=b'Z', b':', b'/' | b'\\', ..])
                || path.starts_with("\\\\")
        };
        match paths {
            Paths::Host if path.starts_with('/') || is_windows(path) => Some(path.to_owned()),
            Paths::Host => Some(join(self.cwd, path, Bounds::None)),
            // The graph's own file system is inside the session's directory.
            Paths::Virtual => Some(join(self.cwd, path, Bounds::Base)),
        }
    }
}

/// How far up `..` may lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bounds {
    None,
    Base,
}

/// Joins a path to a directory, and resolves `.` and `..`.
fn join(base: &str, path: &str, bounds: Bounds) -> String {
    let separator = if base.contains('\\') && !base.contains('/') { '\\' } else { '/' };
    let mut joined = base.trim_end_matches(separator).to_owned();
    let floor = if bounds == Bounds::Base { joined.len() } else { 0 };
    let is_separator = |character| character == '/' || character == separator;
    for part in path.split(is_separator) {
        match part {
            "" | "." => {}
            ".." => {
                let parent = joined.rfind(separator).unwrap_or(0);
                joined.truncate(parent.max(floor));
            }
            part => {
                joined.push(separator);
                joined.push_str(part);
            }
        }
    }
    if joined.is_empty() { separator.to_string() } else { joined }
}

/// What an edit does, by the tool's name and its arguments.
fn edit(name: &str, args: &Members<'_>) -> EditKind {
    let name = name.to_ascii_lowercase();
    let mode = args.string("mode");
    let is_mode = |modes: &[&str]| mode.as_deref().is_some_and(|mode| modes.contains(&mode));
    match args.string("command").as_deref() {
        Some("create") => return EditKind::Write,
        Some("insert") => return EditKind::Insert,
        Some("undo_edit") => return EditKind::Undo,
        Some(_) | None => {}
    }
    let appends = name.contains("append")
        || args.get("append").is_some_and(|append| append.get() == "true")
        || is_mode(&["a", "a+", "ab", "at", "append"]);
    let inserts = INSERTS.iter().any(|word| name.contains(word))
        || PLACE.iter().any(|place| args.number(place).is_some())
        || is_mode(&["insert", "prepend"]);
    if text(args, &OLD_TEXT).is_some() {
        EditKind::Replace
    } else if appends {
        EditKind::Append
    } else if inserts {
        EditKind::Insert
    } else if text(args, &FILE_TEXT).is_some() && !name.contains("patch") {
        EditKind::Write
    } else {
        EditKind::Replace
    }
}

fn text(args: &Members<'_>, names: &[&str]) -> Option<Text> {
    names.iter().find_map(|name| args.text(name))
}

fn first<'a>(args: &Members<'a>, names: &[&str]) -> Option<Cow<'a, str>> {
    names.iter().find_map(|name| args.string(name).filter(|value| !value.is_empty()))
}

/// The first line that a call is about, counted from one. An offset is the number of lines to skip,
/// and a text is inserted after a number of lines.
fn line(args: &Members<'_>) -> Option<u32> {
    let skipped = ["offset", "insert_line", "insertLine"];
    let behind = || skipped.iter().find_map(|name| args.number(name))?.checked_add(1);
    let range = || {
        let range = args.get("view_range").and_then(json::items)?;
        range.first()?.get().parse().ok()
    };
    let line = LINE.iter().find_map(|name| args.number(name)).or_else(range).or_else(behind)?;
    u32::try_from(line).ok().filter(|line| *line > 0)
}

/// A short line for a person: the action and its object.
fn title(name: &str, kind: ToolKind, args: &Members<'_>) -> String {
    let named_path = |names| first(args, names).map(reference::shown_path);
    let path = || named_path(&PATH[..]);
    let with = |verb: &str, what: Option<Cow<'_, str>>| what.map(|what| format!("{verb} {what}"));
    let text = match kind {
        ToolKind::Read => with("Read", path()),
        ToolKind::Edit => {
            let verb = match edit(name, args) {
                EditKind::Write => "Write",
                EditKind::Replace => "Edit",
                EditKind::Append => "Append to",
                EditKind::Insert => "Insert into",
                EditKind::Undo => "Undo the last edit of",
            };
            with(verb, path())
        }
        ToolKind::Delete => with("Delete", path()),
        ToolKind::Move => {
            let from = named_path(&FROM[..]).or_else(path);
            match (from, named_path(&TO[..])) {
                (Some(from), Some(to)) => Some(format!("Move {from} to {to}")),
                (Some(from), None) => Some(format!("Move {from}")),
                (None, _) => None,
            }
        }
        ToolKind::Search => match (first(args, &PATTERN), path()) {
            (Some(pattern), Some(path)) => Some(format!("Search for {pattern} in {path}")),
            (Some(pattern), None) => Some(format!("Search for {pattern}")),
            (None, path) => with("List", path),
        },
        ToolKind::Execute => with("Run", first(args, &COMMAND).or_else(|| command(args))),
        ToolKind::Fetch => with("Fetch", first(args, &ADDRESS)),
        ToolKind::Think if name == "write_todos" => Some("Update the plan".to_owned()),
        ToolKind::Think | ToolKind::SwitchMode | ToolKind::Other => None,
    };
    one_line(&text.unwrap_or_else(|| named(name, kind, args)), MAX_TITLE_CHARS)
}

/// The tool's name and its first short texts, such as `get_weather Lisbon`. Without a text, its
/// first numbers.
fn named(name: &str, kind: ToolKind, args: &Members<'_>) -> String {
    let mut named = name.to_owned();
    match kind {
        // Their texts are whole files or thoughts.
        ToolKind::Edit | ToolKind::Think => return named,
        ToolKind::Read
        | ToolKind::Delete
        | ToolKind::Move
        | ToolKind::Search
        | ToolKind::Execute
        | ToolKind::Fetch
        | ToolKind::SwitchMode
        | ToolKind::Other => {}
    }
    let values = || args.0.iter().map(|(_, value)| *value);
    let texts: Vec<_> = values().filter_map(short_text).take(MAX_TITLE_ARGS).collect();
    // A number beside a text is seldom what the call is about: `{"city": "Paris", "days": 3}`.
    let numbers = values().filter(|_| texts.is_empty()).filter_map(short_number);
    for value in texts.iter().map(|text| &**text).chain(numbers.take(MAX_TITLE_ARGS)) {
        named.push(' ');
        named.push_str(value);
    }
    named
}

/// A text that fits in a title. `None` for all else.
fn short_text(value: &RawValue) -> Option<Cow<'_, str>> {
    let text = json::string(value)?;
    let text = reference::shown_path(text);
    (is_short(&text) && !text.trim().is_empty()).then_some(text)
}

/// A number that fits in a title. `None` for all else.
fn short_number(value: &RawValue) -> Option<&str> {
    let number = value.get();
    let is_number = number.starts_with(|first: char| first == '-' || first.is_ascii_digit());
    (is_number && is_short(number)).then_some(number)
}

fn is_short(text: &str) -> bool {
    text.chars().nth(MAX_TITLE_ARG_CHARS).is_none()
}

/// A command that is given as a list of words.
fn command(args: &Members<'_>) -> Option<Cow<'static, str>> {
    let words = COMMAND.iter().find_map(|name| args.get(name).and_then(json::items))?;
    let words: Vec<_> = words.into_iter().filter_map(json::string).collect();
    (!words.is_empty()).then(|| Cow::Owned(words.join(" ")))
}

/// The beginning of a text on one line, at most so many characters.
pub(super) fn one_line(text: &str, max_chars: usize) -> String {
    // A command may be a whole program, so only its beginning is looked at.
    let start: String = text.chars().take(max_chars.saturating_mul(4)).collect();
    let is_gap = |character: char| {
        character.is_whitespace() || character.is_control() || turns_text(character)
    };
    let words = start.split(is_gap).filter(|word| !word.is_empty());
    let line = words.collect::<Vec<_>>().join(" ");
    let is_cut = line.chars().count() > max_chars || start.len() < text.len();
    if !is_cut {
        return line;
    }
    let mut cut: String = line.chars().take(max_chars.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// Whether a character changes the direction of the text after it, so that a person reads another
/// command than the one that runs.
fn turns_text(character: char) -> bool {
    matches!(
        character,
        '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const CWD: &str = "/srv/app";

    fn read(paths: Paths, name: &str, args: &str) -> CallDetails {
        let profile = GraphProfile { paths, ..GraphProfile::default() };
        let reader = Reader { profile: &profile, cwd: CWD };
        reader.read(name, &Text::new(args))
    }

    fn paths(details: &CallDetails) -> Vec<(&str, Option<u32>)> {
        details.locations.iter().map(|location| (&*location.path, location.line)).collect()
    }

    #[test]
    fn a_title_is_one_line_with_the_action_and_its_object() {
        let cases = [
            ("read_file", r#"{"file_path":"src/main.rs"}"#, "Read src/main.rs"),
            ("edit_file", r#"{"file_path":"a","old_string":"x","new_string":"y"}"#, "Edit a"),
            ("write_file", r#"{"file_path":"a","content":""}"#, "Write a"),
            ("execute", r#"{"command":"cargo test \\\n  --all"}"#, "Run cargo test \\ --all"),
            ("bash", r#"{"command":["ls","-l"]}"#, "Run ls -l"),
            ("grep", r#"{"pattern":"fn","path":"src"}"#, "Search for fn in src"),
            ("ls", r#"{"path":"/"}"#, "List /"),
            ("mv", r#"{"source":"a","destination":"b"}"#, "Move a to b"),
            ("web_search", r#"{"query":"rust"}"#, "Fetch rust"),
            ("write_todos", r#"{"todos":[]}"#, "Update the plan"),
            ("get_weather", r#"{"city":"Lisbon"}"#, "get_weather Lisbon"),
            ("weather", r#"{"path":"/tmp"}"#, "weather /tmp"),
            (
                "book",
                r#"{"a":"x","b":-1.5,"c":true,"d":null,"e":{},"f":"y","g":"z"}"#,
                "book x y z",
            ),
            ("add", r#"{"a":2,"b":-1.5,"c":true,"d":[3]}"#, "add 2 -1.5"),
            ("t", r#"{"a":"x\u0000\n\u001b[2J","b":" ","c":"\u202eoc"}"#, "t x [2J oc"),
            ("query_db", r#"{"sql":"SELECT 1"}"#, "query_db SELECT 1"),
            ("mcp__filesystem__read_file", r#"{"path":"a.rs"}"#, "Read a.rs"),
            ("write_file", r#"{"content":"x"}"#, "write_file"),
            ("think", r#"{"thought":"x"}"#, "think"),
            ("append_file", r#"{"path":"a","content":"x"}"#, "Append to a"),
            ("write_file", r#"{"file_path":"a","text":"x","append":true}"#, "Append to a"),
            ("insert_edit", r#"{"path":"a","content":"x"}"#, "Insert into a"),
            ("write_file", r#"{"path":"a","content":"x","start_line":3}"#, "Insert into a"),
            ("str_replace_editor", r#"{"command":"view","path":"a"}"#, "Read a"),
            ("str_replace_editor", r#"{"command":"create","path":"a","file_text":"x"}"#, "Write a"),
            (
                "str_replace_editor",
                r#"{"command":"insert","path":"a","new_str":"x"}"#,
                "Insert into a",
            ),
            (
                "str_replace_editor",
                r#"{"command":"undo_edit","path":"a"}"#,
                "Undo the last edit of a",
            ),
            ("memory", r#"{"command":"rename","old_path":"a","new_path":"b"}"#, "Move a to b"),
            ("edit_file", r#"{"path":"file:///w/a%20b.rs#L3","old_string":"x"}"#, "Edit /w/a b.rs"),
            ("mv", r#"{"source":"file:///w/a%20b","destination":"c"}"#, "Move /w/a b to c"),
            ("weigh", r#"{"what":"file:///w/a%20b"}"#, "weigh /w/a b"),
            ("read_file", "", "read_file"),
            ("read_file", r#"{"file_path":"#, "read_file"),
        ];
        for (name, args, expected) in cases {
            assert_eq!(read(Paths::Host, name, args).title, expected, "{name} {args}");
        }
        let bound = "x".repeat(MAX_TITLE_ARG_CHARS);
        let args = format!(r#"{{"a":"{bound}x","b":"{bound}"}}"#);
        assert_eq!(read(Paths::Host, "t", &args).title, format!("t {bound}"));
        let long = format!(r#"{{"command":"{}"}}"#, "é ".repeat(100_000));
        assert_eq!(read(Paths::Host, "bash", &long).title.chars().count(), MAX_TITLE_CHARS);
    }

    #[test]
    fn locations_are_absolute_and_only_of_file_tools() {
        let details = |paths, name, path: &str| {
            let args = format!(r#"{{"file_path":{path:?},"offset":9}}"#);
            read(paths, name, &args)
        };
        let host = [
            ("/etc/x", "/etc/x"),
            ("src/x", "/srv/app/src/x"),
            ("./src/../x", "/srv/app/x"),
            ("../../../../x", "/x"),
            ("C:\\x", "C:\\x"),
        ];
        for (path, expected) in host {
            assert_eq!(paths(&details(Paths::Host, "read_file", path)), [(expected, Some(10))]);
        }
        let own = [("/x", "/srv/app/x"), ("/../x", "/srv/app/x"), ("/", "/srv/app")];
        for (path, expected) in own {
            assert_eq!(paths(&details(Paths::Virtual, "read_file", path)), [(expected, Some(10))]);
        }
        for path in ["https://x/y", "~/x", "a\nb", "file:///a%0Ab", "file://host/x"] {
            assert!(paths(&details(Paths::Host, "read_file", path)).is_empty(), "{path}");
        }
        let uris = [
            (Paths::Host, "file:///etc/a%20b", "/etc/a b"),
            (Paths::Host, "file:///C:/x", "C:/x"),
            (Paths::Virtual, "file:///srv/app/x", "/srv/app/x"),
            (Paths::Virtual, "file:///srv/application/x", "/srv/app/srv/application/x"),
        ];
        for (kind, path, expected) in uris {
            assert_eq!(paths(&details(kind, "read_file", path)), [(expected, Some(10))]);
        }
        let lines = [
            ("read_file", r#"{"path":"file:///x#L7"}"#, 7),
            ("str_replace_editor", r#"{"command":"view","path":"/x","view_range":[4,-1]}"#, 4),
            ("str_replace_editor", r#"{"command":"insert","path":"/x","insert_line":4}"#, 5),
        ];
        for (name, args, line) in lines {
            assert_eq!(paths(&read(Paths::Host, name, args)), [("/x", Some(line))], "{args}");
        }
        assert!(paths(&details(Paths::Host, "weather", "/x")).is_empty());
        assert!(paths(&details(Paths::Host, "fetch", "/x")).is_empty());
    }

    #[test]
    fn an_edit_is_a_diff_and_a_new_file_has_no_old_text() {
        let of = |name: &str, args: &str| {
            serde_json::to_string(&read(Paths::Virtual, name, args).diffs).unwrap()
        };
        assert_eq!(
            of("edit_file", r#"{"file_path":"/a","old_string":"x","new_string":"\u00e9"}"#),
            r#"[{"type":"diff","path":"/srv/app/a","oldText":"x","newText":"\u00e9"}]"#
        );
        assert_eq!(
            of("write_file", r#"{"file_path":"/a","content":"x"}"#),
            r#"[{"type":"diff","path":"/srv/app/a","newText":"x"}]"#
        );
        assert_eq!(
            of(
                "multi_edit",
                r#"{"path":"a","edits":[{"old_str":"1","new_str":"2"},{"old_str":"3"}]}"#
            ),
            r#"[{"type":"diff","path":"/srv/app/a","oldText":"1","newText":"2"},{"type":"diff","path":"/srv/app/a","oldText":"3","newText":""}]"#
        );
        assert_eq!(of("read_file", r#"{"file_path":"/a","content":"x"}"#), "[]");
        assert_eq!(
            of("str_replace_editor", r#"{"command":"create","path":"/a","file_text":"x"}"#),
            r#"[{"type":"diff","path":"/srv/app/a","newText":"x"}]"#
        );
        for (name, args) in [
            ("append_file", r#"{"path":"/a","content":"x"}"#),
            ("write_file", r#"{"path":"/a","content":"x","mode":"a"}"#),
            ("insert_edit", r#"{"path":"/a","content":"x"}"#),
            ("modify_file", r#"{"path":"/a","content":"x","start_line":1,"end_line":2}"#),
            ("apply_patch", r#"{"path":"/a","content":"@@"}"#),
            ("multi_edit", r#"{"path":"/a","edits":[{"line":3,"content":"x"}]}"#),
            (
                "str_replace_editor",
                r#"{"command":"insert","path":"/a","insert_line":1,"new_str":"x"}"#,
            ),
            ("str_replace_editor", r#"{"command":"view","path":"/a"}"#),
        ] {
            assert_eq!(of(name, args), "[]", "{name} {args}");
        }
        assert_eq!(of("write_file", r#"{"content":"x"}"#), "[]");
    }

    #[test]
    fn arguments_that_are_no_json_are_a_string() {
        let input = |args: &str| read(Paths::Host, "t", args).raw_input.get().to_owned();
        assert_eq!(input("{ \"a\" : 1.10 }"), r#"{"a":1.10}"#);
        assert_eq!(input(""), "{}");
        assert_eq!(input("{\"a\":"), r#""{\"a\":""#);
    }
}
