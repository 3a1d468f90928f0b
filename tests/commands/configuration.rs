//! Wrong configurations: each is refused with its place and what is expected.
//!
//! The tables beside this file have a row for each mistake. There is at least one for each key of
//! config.toml.example, and for each flag.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::path::Path;
use std::process::Output;

use super::first_steps::{Server, ended, stderr, stdout};
use crate::support::process::{File, Process};
use clap::CommandFactory;
use threadway::cli::Cli;
use threadway::config::{AppliesWhen, Config, ConfigKey, DefaultValue, KEYS, Options, variable};
use tokio::task::JoinSet;
use toml::{Table, Value};

/// The mistakes in the config file. The tables explain their columns and marks.
const OF_FILES: &str = include_str!("mistakes_of_files.txt");

/// The mistakes on the command line and in the environment.
const OF_FLAGS: &str = include_str!("mistakes_of_flags.txt");

const EXAMPLE: &str = include_str!("../../config.toml.example");

const PAGE: &str = include_str!("../../docs/configuration.md");

/// Flags that no value can make wrong: switches without a variable, and texts that may be any.
const NEVER_WRONG: [&str; 6] =
    ["--help", "--json", "--ndjson", "--once", "--run-id", "--thread-id"];

/// A row of a table.
#[derive(Clone, Copy)]
struct Row {
    /// The key or the flag; `-` for none.
    place: &'static str,
    input: &'static str,
    expected: &'static str,
}

fn rows(table: &'static str) -> Vec<Row> {
    let rows = table.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let row = |line: &'static str| {
        let mut columns = line.splitn(3, " | ");
        let mut next = || columns.next().unwrap_or_else(|| panic!("three columns: {line}"));
        Row { place: next(), input: next(), expected: next() }
    };
    rows.map(row).collect()
}

/// The places of a table's rows.
fn places(table: &'static str) -> BTreeSet<String> {
    let places = rows(table).into_iter().map(|row| row.place.to_owned());
    places.filter(|place| place != "-").collect()
}

/// What is wrong with the refusal of a row's input. `None` if it is refused as expected.
fn complaint(row: Row, expected: &str, output: &Output) -> Option<String> {
    let said = stderr(output) + &stdout(output);
    let is_expected = said.lines().any(|line| is_of(line, expected));
    let is_refused = matches!(output.status.code(), Some(1 | 64));
    (!is_expected || !is_refused)
        .then(|| format!("{}\n  expected {expected}\n  {} {said}", row.input, output.status))
}

fn assert_none(complaints: impl IntoIterator<Item = Option<String>>) {
    let complaints: Vec<_> = complaints.into_iter().flatten().collect();
    let count = complaints.len();
    assert!(complaints.is_empty(), "{count} rows:\n{}", complaints.join("\n"));
}

/// Whether a line has these words. ` .. ` stands for any text.
fn is_of(line: &str, words: &str) -> bool {
    let mut rest = Some(line);
    for piece in words.split(" .. ") {
        rest = rest.and_then(|rest| rest.split_once(piece)).map(|(_, rest)| rest);
    }
    rest.is_some()
}

/// The keys of a file as text, with their values. `NAME` stands for names that an operator chooses.
fn values(file: &str) -> BTreeMap<String, Value> {
    fn read(table: &Table, above: &str, found: &mut BTreeMap<String, Value>) {
        for (name, value) in table {
            let is_chosen = matches!(
                above,
                "upstreams."
                    | "agents."
                    | "auth.keys."
                    | "upstream.headers."
                    | "acp.modes."
                    | "acp.commands."
                    | "acp.context_windows."
                    | "acp.tool_kinds."
                    | "acp.permissions."
            );
            let name = if is_chosen { "NAME" } else { name };
            let key = format!("{above}{name}");
            if let Value::Table(inner) = value
                && !above.starts_with("acp.modes.NAME.")
            {
                read(inner, &format!("{key}."), found);
            } else {
                found.insert(key, value.clone());
            }
        }
    }
    let mut found = BTreeMap::new();
    read(&file.parse().unwrap(), "", &mut found);
    found
}

/// The keys of config.toml.example.
fn keys() -> BTreeSet<String> {
    values(&EXAMPLE.replace("#: ", "")).into_keys().collect()
}

/// The row of a key of the example, which may be in the table of one upstream or agent.
fn row(key: &str) -> &'static ConfigKey {
    let short = key.replace("upstreams.NAME.", "upstream.").replace("agents.NAME.emit.", "emit.");
    let found = KEYS.iter().find(|row| row.name == short);
    found.unwrap_or_else(|| panic!("src/config/keys.rs has no row for {key}"))
}

#[test]
fn each_key_and_each_flag_has_a_row() {
    let keys = keys();
    assert!(keys.len() > 80, "{keys:?}");
    let of_rows = places(OF_FILES);
    let missing: Vec<_> = keys.difference(&of_rows).collect();
    assert!(missing.is_empty(), "keys without a row in mistakes_of_files.txt: {missing:?}");
    let unknown: Vec<_> = of_rows.difference(&keys).collect();
    assert!(unknown.is_empty(), "keys that config.toml.example does not have: {unknown:?}");

    let command = Cli::command();
    let all = std::iter::once(&command).chain(command.get_subcommands());
    let flags = all.flat_map(clap::Command::get_arguments).filter_map(clap::Arg::get_long);
    let flags: BTreeSet<_> = flags.map(|flag| format!("--{flag}")).collect();
    let mut known = places(OF_FLAGS);
    known.extend(NEVER_WRONG.map(str::to_owned));
    let missing: Vec<_> = flags.difference(&known).collect();
    assert!(missing.is_empty(), "flags without a row in mistakes_of_flags.txt: {missing:?}");
}

#[test]
fn the_example_has_each_key_with_the_default_of_its_row() {
    let (set, all) = (values(EXAMPLE), values(&EXAMPLE.replace("#: ", "")));
    let known: BTreeSet<_> = all.keys().map(|key| row(key).name).collect();
    let missing: Vec<_> = KEYS.iter().filter(|row| !known.contains(row.name)).collect();
    assert!(missing.is_empty(), "keys that config.toml.example does not have: {missing:?}");
    for (key, value) in &all {
        let value =
            value.as_str().map_or_else(|| serde_json::to_string(value).unwrap(), str::to_owned);
        match row(key).absent {
            DefaultValue::Value(default) => {
                assert!(value == default || key.contains("NAME"), "{key}");
            }
            // The URL has no default; this is where `langgraph dev` listens.
            DefaultValue::Words(_) | DefaultValue::Unsaid => {
                assert!(key == "upstream.url" || !set.contains_key(key), "{key}");
            }
        }
    }
    let (_, late) = EXAMPLE.split_once("These keys take effect only after a restart:").unwrap();
    let (late, _) = late.split_once(". Changes").unwrap();
    let table = |name: &str| format!("`[{}]`", name.split('.').next().unwrap());
    for row in KEYS {
        let is_late = late.contains(&format!("`{}`", row.name)) || late.contains(&table(row.name));
        assert_eq!(is_late, row.applies == AppliesWhen::Restart, "{}", row.name);
    }
}

/// The row of a key in docs/configuration.md.
fn page_row(row: &ConfigKey) -> String {
    let flag = row.flag_name().map(|name| {
        let flag = row.flag.unwrap().replace("page=", "page[=").replace("|false", "|false]");
        format!("`--{flag}`, `{}`", variable(name)).replace('|', "\\|")
    });
    let absent = match row.absent {
        DefaultValue::Value(value) => format!("`{value}`"),
        DefaultValue::Words(words) => words.to_owned(),
        DefaultValue::Unsaid => String::new(),
    };
    let late = if row.applies == AppliesWhen::Restart { " Needs a restart." } else { "" };
    let page = |see: &str| format!(" [{}]({see}).", see.split('#').next().unwrap());
    let see = row.see.map(page).unwrap_or_default();
    let (flag, doc) = (flag.unwrap_or_default(), row.doc());
    let line = format!("| `{}` | {flag} | {absent} | {doc}{late}{see} |", row.name);
    line.replace("|  |", "| |").replace("|  |", "| |")
}

#[test]
fn the_page_has_the_rows_of_the_keys() {
    let parts = PAGE.split_inclusive("|---|---|---|---|\n").collect::<Vec<_>>();
    let mut page = parts[0].to_owned();
    for part in &parts[1..] {
        let old = part.lines().take_while(|line| line.starts_with('|')).collect::<Vec<_>>();
        let first = old[0].split('`').nth(1).unwrap();
        let table = |name: &str| match name.split('.').next().unwrap() {
            "upstream" | "agents" => "upstream".to_owned(),
            table @ ("emit" | "limits" | "acp") => table.to_owned(),
            _ => String::new(),
        };
        for row in KEYS.iter().filter(|row| table(row.name) == table(first)) {
            page.push_str(&page_row(row));
            page.push('\n');
        }
        page.push_str(&part[old.iter().map(|line| line.len() + 1).sum()..]);
    }
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/configuration.md");
        std::fs::write(path, &page).unwrap();
        return;
    }
    let differs = PAGE.lines().zip(page.lines()).find(|(old, new)| old != new);
    assert!(PAGE == page, "UPDATE_GOLDEN=1 writes the rows; the first that differs: {differs:?}");
}

/// The example has each key of the table `acp`: serde lists them all when it meets another one.
#[test]
fn the_example_has_each_key_of_editors() {
    let keys = keys();
    for (table, above) in [
        ("acp.x = 1", "acp."),
        ("acp.commands.a = {description = '', x = 1}", "acp.commands.NAME."),
        ("acp.modes.a.x = 1", "acp.modes.NAME."),
    ] {
        let file = File::new(&format!("upstream.url = 'http://127.0.0.1:1'\n{table}"));
        let options = Options::new(Some(file.0.clone()));
        let mistakes = Config::read(&options, None).unwrap_err();
        let said = mistakes[0].to_string();
        let (_, listed) = said.split_once("expected one of ").unwrap();
        let names: Vec<_> = listed.split('`').skip(1).step_by(2).collect();
        let has = |name: &&str| {
            keys.iter().any(|key| {
                key.strip_prefix(above).is_some_and(|rest| rest.split('.').next() == Some(name))
            })
        };
        let missing: Vec<_> =
            names.iter().filter(|name| !name.contains('.') && !has(name)).collect();
        assert!(names.len() > 2 && missing.is_empty(), "{said}: {missing:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_mistake_of_a_file_is_refused_by_check_and_at_the_start() {
    let server = Server::answering(200).await;
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let mut running = JoinSet::new();
    for row in rows(OF_FILES) {
        let names_server = row.input.replace("'upstream'", "").contains("upstream");
        let server_first = if names_server { "" } else { "upstream.url = '$URL'\n" };
        let text = format!("{server_first}{}", row.input.replace("\\n", "\n"));
        let file = File::new("");
        let filled = |text: &str| text.replace("$URL", &server.url).replace("$FILE", file.path());
        file.write(&filled(&text));
        let (expected, taken) = (filled(row.expected), taken.clone());
        running.spawn(async move {
            let output = ended(&["check", "--config", file.path()], &[]).await;
            let of_check = complaint(row, &expected, &output);
            // A name that no agent has keeps no gateway from starting. Rows about the gateway's own
            // address need that one; for the others somebody else has it, so that `serve` ends.
            let is_of_upstream = stdout(&output).contains("upstream default (");
            if is_of_upstream || expected.contains("listen") || text.contains("8484") {
                return [of_check, None];
            }
            let serve = ["serve", "--config", file.path(), "--listen", &taken];
            let output = ended(&serve, &[]).await;
            [of_check, complaint(row, &expected, &output).map(|said| format!("serve: {said}"))]
        });
    }
    assert_none(running.join_all().await.into_iter().flatten());
}

#[tokio::test(flavor = "multi_thread")]
async fn each_mistake_of_a_flag_is_refused() {
    let server = Server::answering(200).await;
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let mut running = JoinSet::new();
    for row in rows(OF_FLAGS) {
        let input = row.input.replace("$URL", &server.url).replace("$TAKEN", &taken);
        let server = server.url.clone();
        running.spawn(async move {
            let (variables, command) = input.split_once("threadway ").unwrap();
            let variables: Vec<_> =
                variables.split_whitespace().map(|set| set.split_once('=').unwrap()).collect();
            let mut arguments: Vec<_> = command.split(' ').collect();
            let names_server = ["--upstream", "--config"].iter().any(|f| arguments.contains(f));
            if arguments[0] == "check" && !names_server {
                arguments.extend(["--upstream", &server]);
            }
            complaint(row, row.expected, &ended(&arguments, &variables).await)
        });
    }
    assert_none(running.join_all().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_created_by_a_try() {
    let server = Server::answering(200).await;
    let file = File::new("");
    std::fs::remove_file(&file.0).unwrap();
    std::fs::create_dir(&file.0).unwrap();
    let (audit, record) = (format!("{}/audit", file.path()), format!("{}/a/b", file.path()));
    let arguments =
        ["check", "--upstream", &server.url, "--audit-log", &audit, "--record", &record];
    let output = ended(&arguments, &[]).await;
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    assert_eq!(std::fs::read_dir(&file.0).unwrap().count(), 0);
    std::fs::remove_dir(&file.0).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn serve_warns_of_agents_and_keys_that_do_not_exist() {
    let server = Server::answering(200).await;
    let file = File::new(&format!(
        "upstream.url = '{}'\n[agents.agnt.emit]\nreasoning = 'hide'\n[agents.agent]\n\
         messages_key = 'nope'\n",
        server.url
    ));
    let mut process = Process::serve(&["--config", file.path()]).await;
    let said = process.says("agents.agnt: there is no agent `agnt`").await;
    assert!(said.contains("WARN") && said.contains("the nearest name is `agent`"), "{said}");
    let said = process.says("its input has no key `nope`, but `messages`").await;
    assert!(said.contains("WARN") && said.contains("agent=\"agent\""), "{said}");
    process.stop().await;
}
