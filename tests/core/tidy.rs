//! The house rules that no compiler checks: who imports whom, what the core may name, file names.
//!
//! The checks read lines, not syntax: they lean on rustfmt's layout. So that they cannot pass
//! because they see nothing, each is tested with a text that breaks its rule.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The files of a tree: paths relative to the package, and their text.
type Tree = BTreeMap<String, String>;

/// Every top module and its rank. A module imports lower ranks only.
const RANKS: &[(&str, u8)] = &[
    ("buffer", 0),
    ("json", 1),
    ("sync", 0),
    ("sse", 1),
    ("langgraph", 2),
    ("run", 3),
    ("agui", 4),
    ("acp", 4),
    ("metrics", 4),
    ("audit", 5),
    ("demo", 5),
    ("flights", 5),
    ("upstream", 5),
    ("agents", 6),
    ("credentials", 6),
    ("runs", 6),
    ("threads", 7),
    ("sessions", 8),
    ("server", 8),
    ("stdio", 9),
    ("config", SHELL),
    ("cli", SHELL),
    ("editors", SHELL),
    ("manual", SHELL),
    ("check", SHELL),
    ("commands", SHELL),
    ("reload", SHELL),
    ("telemetry", SHELL),
    ("terminal", SHELL),
    ("watch", SHELL),
    ("main", SHELL),
];

/// What a module must not import although its rank is lower: whoever serves clients leaves the
/// understanding of LangGraph to `threads`.
const SHIELDED: &[(&str, &str)] = &[("server", "langgraph"), ("sessions", "langgraph")];

/// Ranks up to this one are pure: no IO, no clock, no randomness.
const PURITY_LINE: u8 = 4;

/// The rank that ties everything together, and so may import all of it.
const SHELL: u8 = 10;

/// What a pure file must not name.
const IMPURE: &[&str] = &[
    "tokio",
    "tokio_util",
    "hyper",
    "hyper_util",
    "hyper_rustls",
    "rustls",
    "reqwest",
    "axum",
    "dashmap",
    "tracing",
    "rand",
    "new_v4",
    "Instant",
    "SystemTime",
];

/// Locks that only these modules name: `crate::sync` checks that a thread holds one at a time. The
/// demo is the other side of the wire.
const LOCKS: &[&str] = &["Mutex", "RwLock"];
const OWN_LOCKS: &[&str] = &["sync", "demo"];

/// Modules of `std` that a pure file must not name. Their names alone mean other things here.
const IMPURE_STD: &[&str] = &["env", "fs", "net", "thread"];

/// File names that say nothing.
const EMPTY_NAMES: &[&str] = &["util", "utils", "common", "helpers", "misc", "types", "prelude"];

/// Everything in the tree that breaks a rule.
fn complaints(tree: &Tree) -> Vec<String> {
    let files = tree.iter().flat_map(|(path, text)| check_file(path, text));
    check_reachable(tree).into_iter().chain(files).collect()
}

fn check_file(path: &str, text: &str) -> Vec<String> {
    let mut found = check_name(path);
    if !text.starts_with("//! ") {
        found.push(format!("{path}: line 1 is not a `//!` sentence"));
    }
    // The library's root holds the modules and imports none.
    if path.starts_with("src/") && path != "src/lib.rs" {
        found.extend(check_source(path, &without_comments(text)));
    }
    found
}

fn check_name(path: &str) -> Vec<String> {
    let is_empty = |part: &&str| EMPTY_NAMES.contains(part);
    let empty = path.trim_end_matches(".rs").split('/').find(is_empty);
    let mut found: Vec<_> =
        empty.map(|name| format!("{path}: the name `{name}` says nothing")).into_iter().collect();
    if path.starts_with("src/") && path.ends_with("/mod.rs") {
        found.push(format!("{path}: is to be `foo.rs`, not `foo/mod.rs`"));
    }
    found
}

/// Checks one file's imports and, below the purity line, what it names.
fn check_source(path: &str, code: &str) -> Vec<String> {
    let module = path.trim_start_matches("src/").trim_end_matches(".rs");
    let depth = module.split('/').count();
    let top = module.split('/').next().unwrap_or(module);
    let Some(rank) = rank(top) else {
        return vec![format!("{path}: `{top}` has no rank in tests/core/tidy.rs")];
    };
    // Only tests may name everything, but they too import lower ranks only.
    let (code, tests) = if module.ends_with("/tests") { ("", code) } else { split_tests(code) };
    let mut found = check_imports(path, top, rank, code, depth);
    found.extend(check_imports(path, top, rank, tests, depth + 1));
    if !OWN_LOCKS.contains(&top) {
        // Tests may lock as they like.
        let children = children(code, "std::sync::");
        let locks = LOCKS.iter().filter(|name| children.contains(*name));
        found.extend(locks.map(|name| format!("{path}: names `std::sync::{name}`")));
    }
    if rank <= PURITY_LINE {
        let words: BTreeSet<_> = code.split(|character| !is_word(character)).collect();
        let impure = IMPURE.iter().filter(|name| words.contains(**name)).map(ToString::to_string);
        let children = children(code, "std::");
        let impure_std = IMPURE_STD.iter().filter(|name| children.contains(*name));
        let named = impure.chain(impure_std.map(|name| format!("std::{name}")));
        found.extend(named.map(|name| format!("{path}: is pure, but names `{name}`")));
    }
    found
}

/// Checks what `code` imports through the crate's root, to which `depth` times `super` leads too.
fn check_imports(path: &str, top: &str, rank: u8, code: &str, depth: usize) -> Vec<String> {
    let mut imported = children(code, "crate::");
    imported.extend(children(code, &"super::".repeat(depth)));
    let is_allowed = |name: &&str| {
        let is_lower = || self::rank(name).is_some_and(|other| other < rank);
        let is_shielded = || SHIELDED.contains(&(top, *name));
        *name == top || rank == SHELL || (is_lower() && !is_shielded())
    };
    imported
        .into_iter()
        .filter(|name| !is_allowed(name))
        .map(|name| format!("{path}: `{top}` must not import `{name}`"))
        .collect()
}

fn rank(module: &str) -> Option<u8> {
    RANKS.iter().find(|(name, _)| *name == module).map(|(_, rank)| *rank)
}

/// The names that directly follow `prefix`: one, or those of a `{}` group.
fn children<'a>(code: &'a str, prefix: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices(prefix) {
        // Not a longer path or name that only ends in the prefix.
        if code[..at].ends_with(|character| is_word(character) || character == ':') {
            continue;
        }
        let rest = &code[at + prefix.len()..];
        let Some(group) = rest.strip_prefix('{') else {
            found.insert(first_word(rest));
            continue;
        };
        let mut depth = 1;
        let mut starts_item = true;
        for (at, character) in group.char_indices() {
            match character {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' => starts_item = depth == 1,
                _ if starts_item && !character.is_whitespace() => {
                    found.insert(first_word(&group[at..]));
                    starts_item = false;
                }
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
    }
    found
}

fn first_word(text: &str) -> &str {
    text.split(|character| !is_word(character)).next().unwrap_or_default()
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

fn without_comments(text: &str) -> String {
    text.lines().map(|line| line.split("//").next().unwrap_or_default().to_owned() + "\n").collect()
}

/// Splits the tests at the bottom of a file from the rest.
fn split_tests(code: &str) -> (&str, &str) {
    code.find("#[cfg(test)]\nmod ").map_or((code, ""), |at| code.split_at(at))
}

/// Every file of `src` belongs to the crate: `mod` leads to it.
fn check_reachable(tree: &Tree) -> Vec<String> {
    let mut reached = BTreeSet::new();
    let mut waiting = vec!["src/lib.rs".to_owned(), "src/main.rs".to_owned()];
    while let Some(path) = waiting.pop() {
        let Some(text) = tree.get(&path) else { continue };
        let directory = match path.as_str() {
            "src/lib.rs" | "src/main.rs" => "src",
            module => module.trim_end_matches(".rs"),
        };
        for line in without_comments(text).lines() {
            let words: Vec<_> = line.split_whitespace().collect();
            if let [.., "mod", name] = words[..]
                && let Some(name) = name.strip_suffix(';')
            {
                waiting.push(format!("{directory}/{name}.rs"));
            }
        }
        reached.insert(path);
    }
    let lost = tree.keys().filter(|path| path.starts_with("src/") && !reached.contains(*path));
    lost.map(|path| format!("{path}: no `mod` leads to it")).collect()
}

/// Reads the Rust files of the package.
fn read_tree() -> Tree {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut tree = Tree::new();
    let mut waiting: Vec<_> = ["src", "tests", "bench"].map(|name| root.join(name)).into();
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().replace('\\', "/");
                tree.insert(name, fs::read_to_string(&path).unwrap());
            }
        }
    }
    tree
}

#[test]
fn the_house_is_tidy() {
    let tree = read_tree();
    for path in ["src/lib.rs", "src/sse/decode.rs", "tests/core/tidy.rs"] {
        assert!(tree.contains_key(path), "{path} was not read");
    }
    let found = complaints(&tree);
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

#[test]
fn each_broken_rule_is_seen() {
    let cases: &[(&str, &str, &[&str])] = &[
        // Imports.
        ("src/run/a.rs", "use crate::langgraph::Part;", &[]),
        ("src/run/a.rs", "use crate::run::RunEvent;", &[]),
        ("src/run/a.rs", "use super::RunEvent;", &[]),
        ("src/run/a.rs", "let part = crate::json::items(value);", &[]),
        ("src/main.rs", "use crate::cli::Args;", &[]),
        ("src/config.rs", "use crate::server;", &[]),
        ("src/json.rs", "use crate::sse::Frame;", &["`json` must not import `sse`"]),
        ("src/agui.rs", "use crate::acp::SessionUpdate;", &["`agui` must not import `acp`"]),
        ("src/run/a.rs", "pub(crate) use crate::agui::Event;", &["must not import `agui`"]),
        ("src/run/a.rs", "crate::runs::RunLog::new()", &["must not import `runs`"]),
        ("src/run.rs", "use crate::metrics::Metrics;", &["must not import `metrics`"]),
        ("src/runs/log.rs", "use crate::config::Config;", &["must not import `config`"]),
        ("src/run.rs", "use crate::Nothing;", &["must not import `Nothing`"]),
        (
            "src/run/a.rs",
            "use crate::{\n    agui::{Event, sse},\n    json,\n    server::{self, Config},\n};",
            &["must not import `agui`", "must not import `server`"],
        ),
        ("src/server/a.rs", "use crate::langgraph::Part;", &["must not import `langgraph`"]),
        ("src/threads/a.rs", "use crate::langgraph::Part;", &[]),
        ("src/sse.rs", "use super::json;", &["`sse` must not import `json`"]),
        ("src/sse/decode.rs", "use super::super::json;", &["`sse` must not import `json`"]),
        ("src/sse/decode.rs", "use super::json;", &[]),
        (
            "src/sse.rs",
            "#[cfg(test)]\nmod tests {\n    use super::json;\n    use super::super::run;\n}",
            &["`sse` must not import `run`"],
        ),
        ("src/sse.rs", "#[cfg(test)]\nmod tests {\n    use crate::run;\n}", &["`run`"]),
        ("src/sse/tests.rs", "use crate::run;\nuse tokio::time;", &["must not import `run`"]),
        ("src/sse.rs", "// As crate::run does.\n/// See [`crate::run`].", &[]),
        ("src/gadget.rs", "", &["`gadget` has no rank"]),
        // Purity.
        ("src/acp.rs", "use tokio::sync::mpsc;", &["names `tokio`"]),
        ("src/sse.rs", "fn f(_: &tokio_util::sync::CancellationToken) {}", &["`tokio_util`"]),
        ("src/run.rs", "tracing::warn!(\"x\");", &["names `tracing`"]),
        ("src/run.rs", "use std::time::{Duration, Instant};", &["names `Instant`"]),
        ("src/run.rs", "std::time::SystemTime::now()", &["names `SystemTime`"]),
        ("src/run.rs", "use std::{collections, env};", &["names `std::env`"]),
        ("src/run.rs", "std::fs::read(path)", &["names `std::fs`"]),
        ("src/run.rs", "use std::net::IpAddr;", &["names `std::net`"]),
        ("src/run.rs", "std::thread::sleep(pause)", &["names `std::thread`"]),
        ("src/run.rs", "let id = Uuid::new_v4();", &["names `new_v4`"]),
        ("src/run.rs", "use rand::Rng;", &["names `rand`"]),
        ("src/run.rs", "use std::time::Duration;\nlet thread = fs.net(env);", &[]),
        ("src/run.rs", "let operand = brand;", &[]),
        ("src/run.rs", "// No tokio here.\n", &[]),
        ("src/run.rs", "#[cfg(test)]\nmod tests {\n    use std::fs;\n}", &[]),
        ("src/run.rs", "use std::fs;\n#[cfg(test)]\nmod tests {\n}", &["names `std::fs`"]),
        ("src/runs.rs", "use dashmap::DashMap;\nuse std::time::Instant;", &[]),
        // Locks.
        ("src/runs.rs", "use std::sync::{Arc, Mutex};", &["names `std::sync::Mutex`"]),
        ("src/runs/a.rs", "std::sync::RwLock::new(1)", &["names `std::sync::RwLock`"]),
        ("src/runs.rs", "use crate::sync::{Guard, Mutex};\nuse tokio::sync::Mutex;", &[]),
        ("src/runs.rs", "#[cfg(test)]\nmod tests {\n    use std::sync::Mutex;\n}", &[]),
        ("src/demo.rs", "use std::sync::Mutex;", &[]),
        ("src/sync.rs", "use std::sync::Mutex;", &[]),
        // Names.
        ("tests/support/common.rs", "", &["the name `common` says nothing"]),
        ("src/run/util/a.rs", "", &["the name `util` says nothing"]),
        ("src/run/mod.rs", "", &["not `foo/mod.rs`"]),
        ("tests/support/mod.rs", "", &[]),
    ];
    for (path, text, expected) in cases {
        let found = check_file(path, &format!("//! Owns a thing.\n\n{text}\n"));
        assert_complaints(&found, expected);
    }
}

#[test]
fn a_file_that_does_not_say_what_it_owns_is_seen() {
    for (path, text, expected) in [
        ("tests/a.rs", "//! Owns a thing.\n", vec![]),
        ("tests/a.rs", "", vec!["tests/a.rs: line 1"]),
        ("tests/a.rs", "// A comment.\n", vec!["tests/a.rs: line 1"]),
        ("tests/a.rs", "\n//! Too late.\n", vec!["tests/a.rs: line 1"]),
        ("bench/a.rs", "//!\n", vec!["bench/a.rs: line 1"]),
        ("src/lib.rs", "pub mod a;\n", vec!["src/lib.rs: line 1"]),
    ] {
        assert_complaints(&check_file(path, text), &expected);
    }
}

#[test]
fn a_file_that_no_mod_leads_to_is_seen() {
    let tree = |files: &[(&str, &str)]| {
        let with_line_1 = |text| format!("//! Owns a thing.\n{text}\n");
        files.iter().map(|(path, text)| ((*path).to_owned(), with_line_1(text))).collect()
    };
    let reachable = [
        ("src/lib.rs", "pub mod run;"),
        ("src/main.rs", "mod cli;"),
        ("src/cli.rs", ""),
        ("src/run.rs", "mod a;\n#[cfg(test)]\nmod tests;"),
        ("src/run/a.rs", "pub(super) mod b;"),
        ("src/run/a/b.rs", ""),
        ("src/run/tests.rs", ""),
    ];
    assert_complaints(&complaints(&tree(&reachable)), &[]);
    let unreachable = [
        ("src/lib.rs", "// pub mod run;\npub mod sse;"),
        ("src/run.rs", "mod a;"),
        ("src/run/a.rs", ""),
        ("src/sse.rs", ""),
        ("src/sse/a.rs", ""),
    ];
    let expected = ["src/run.rs: no", "src/run/a.rs: no", "src/sse/a.rs: no"];
    assert_complaints(&complaints(&tree(&unreachable)), &expected);
}

/// Each complaint has the expected part, in order, and there are no others.
fn assert_complaints(found: &[String], expected: &[&str]) {
    let is_as_expected = found.len() == expected.len()
        && found.iter().zip(expected).all(|(complaint, part)| complaint.contains(part));
    assert!(is_as_expected, "found {found:#?}\nexpected {expected:#?}");
}
