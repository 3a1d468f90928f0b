//! The rules of the code base that no compiler checks: imports, what the core may name, file names.
//!
//! The checks read lines, not syntax: they rely on rustfmt's layout. Each is also tested with a
//! text that breaks its rule, so that none passes because it finds nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The files of a tree: paths relative to the package, and their text.
pub(super) type Tree = BTreeMap<String, String>;

/// A package of the workspace.
struct Package {
    /// The directory of its sources.
    source: &'static str,
    /// Its top modules, each with its rank. A module imports lower ranks only.
    ranks: &'static [(&'static str, u8)],
    /// The modules and items of `std` that it must not name. Its `Cargo.toml` lists its other
    /// dependencies.
    impure: &'static [&'static str],
    /// The files that may name a lock of `std`.
    locks: &'static [&'static str],
}

/// Its `Cargo.toml` names no runtime, no socket and no clock. It must not name those of `std`
/// either.
const TRANSLATE: Package = Package {
    source: "crates/translate/src/",
    ranks: &[
        ("buffer", 0),
        ("json", 1),
        ("sse", 1),
        ("langgraph", 2),
        ("run", 3),
        ("agui", 4),
        ("acp", 4),
    ],
    impure: &["env", "fs", "net", "process", "thread", "Instant", "SystemTime"],
    // Held only for an instant, and never together with another lock.
    locks: &["run/snapshot.rs"],
};

/// The scripted LangGraph server: routes over an engine over a store.
const DEMO: Package =
    Package { source: "crates/demo/src/", ranks: &[], impure: &[], locks: &["lib.rs", "run.rs"] };

const GATEWAY: Package = Package {
    source: "src/",
    ranks: &[
        ("sync", 0),
        ("offload", 1),
        ("random", 1),
        ("metrics", 4),
        ("audit", 5),
        ("single_flight", 5),
        ("upstream", 5),
        ("agents", 6),
        ("credentials", 6),
        ("runs", 6),
        ("threads", 7),
        ("sessions", 8),
        ("server", 9),
        ("stdio", 9),
        ("bridge", SHELL),
        ("config", SHELL),
        ("cli", SHELL),
        ("editors", SHELL),
        ("manual", SHELL),
        ("nearest", SHELL),
        ("check", SHELL),
        ("commands", SHELL),
        ("reload", SHELL),
        ("telemetry", SHELL),
        ("terminal", SHELL),
        ("watch", SHELL),
        ("main", SHELL),
    ],
    impure: &[],
    // `crate::sync` checks that a thread holds one lock at a time.
    locks: &["sync.rs"],
};

const PACKAGES: [&Package; 3] = [&TRANSLATE, &DEMO, &GATEWAY];

/// Imports of the gateway that the ranks allow and that are forbidden nevertheless: only `threads`
/// and lower modules understand LangGraph.
const SHIELDED: &[(&str, &str)] = &[("server", "langgraph"), ("sessions", "langgraph")];

/// The rank of the modules that may import all others.
const SHELL: u8 = 10;

const LOCKS: &[&str] = &["Mutex", "RwLock"];

/// File names that say nothing.
const EMPTY_NAMES: &[&str] = &["util", "utils", "common", "helpers", "misc", "types", "prelude"];

/// All violations of the rules in the tree.
fn complaints(tree: &Tree) -> Vec<String> {
    let files = tree.iter().flat_map(|(path, text)| check_file(path, text));
    check_reachable(tree).into_iter().chain(files).collect()
}

fn check_file(path: &str, text: &str) -> Vec<String> {
    let mut found = check_name(path);
    if !text.starts_with("//! ") {
        found.push(format!("{path}: line 1 is not a `//!` sentence"));
    }
    // The root of the library declares the modules and imports none.
    if let Some(package) = Package::of(path)
        && path != format!("{}lib.rs", package.source)
    {
        found.extend(check_source(package, path, &without_comments(text)));
    }
    found
}

fn check_name(path: &str) -> Vec<String> {
    let is_empty = |part: &&str| EMPTY_NAMES.contains(part);
    let empty = path.trim_end_matches(".rs").split('/').find(is_empty);
    empty.map(|name| format!("{path}: the name `{name}` says nothing")).into_iter().collect()
}

/// Checks what one file of a package imports and names.
fn check_source(package: &Package, path: &str, code: &str) -> Vec<String> {
    let file = path.strip_prefix(package.source).unwrap();
    let module = file.trim_end_matches(".rs");
    let depth = module.split('/').count();
    let top = module.split('/').next().unwrap_or(module);
    // Tests may name everything, but import lower ranks only.
    let (code, tests) = if is_tests(module) { ("", code) } else { split_tests(code) };
    let mut found = Vec::new();
    if !package.ranks.is_empty() {
        let Some(rank) = package.rank(top) else {
            return vec![format!("{path}: `{top}` has no rank in tests/offline/tidy.rs")];
        };
        found.extend(package.check_imports(path, (top, rank), code, depth));
        found.extend(package.check_imports(path, (top, rank), tests, depth + 1));
    }
    if !package.locks.contains(&file) {
        // Tests may use any lock.
        let children = children(code, "std::sync::");
        let locks = LOCKS.iter().filter(|name| children.contains(*name));
        found.extend(locks.map(|name| format!("{path}: names `std::sync::{name}`")));
    }
    let children: BTreeSet<_> =
        ["std::", "std::time::"].iter().flat_map(|prefix| children(code, prefix)).collect();
    let impure = package.impure.iter().filter(|name| children.contains(*name));
    found.extend(impure.map(|name| format!("{path}: is pure, but names `{name}` of `std`")));
    found
}

// === impl Package ===

impl Package {
    /// The package whose sources contain this file.
    fn of(path: &str) -> Option<&'static Self> {
        PACKAGES.into_iter().find(|package| path.starts_with(package.source))
    }

    fn rank(&self, module: &str) -> Option<u8> {
        self.ranks.iter().find(|(name, _)| *name == module).map(|(_, rank)| *rank)
    }

    /// Checks what `code` imports through the root of the package, which `super`, repeated `depth`
    /// times, also names. Also checks what the gateway imports of the core.
    fn check_imports(
        &self,
        path: &str,
        (top, rank): (&str, u8),
        code: &str,
        depth: usize,
    ) -> Vec<String> {
        let mut imported = children(code, "crate::");
        imported.extend(children(code, &"super::".repeat(depth)));
        let is_allowed = |name: &&str| {
            let is_lower = || self.rank(name).is_some_and(|other| other < rank);
            *name == top || rank == SHELL || is_lower()
        };
        let upward = imported.into_iter().filter(|name| !is_allowed(name));
        let of_core = children(code, "threadway_translate::");
        let shielded = of_core.into_iter().filter(|name| SHIELDED.contains(&(top, *name)));
        upward
            .chain(shielded)
            .map(|name| format!("{path}: `{top}` must not import `{name}`"))
            .collect()
    }
}

/// The directory of the sources that contain this file.
pub(super) fn package_of(path: &str) -> Option<&'static str> {
    Package::of(path).map(|package| package.source)
}

/// Whether a module is a file of tests alone.
pub(super) fn is_tests(module: &str) -> bool {
    module.split('/').skip(1).any(|part| part == "tests")
}

/// The names that directly follow `prefix`: one, or those of a `{}` group.
pub(super) fn children<'a>(code: &'a str, prefix: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices(prefix) {
        // A longer path or name that only ends in the prefix does not count.
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

pub(super) fn without_comments(text: &str) -> String {
    text.lines().map(|line| line.split("//").next().unwrap_or_default().to_owned() + "\n").collect()
}

/// Splits the tests at the bottom of a file from the rest.
pub(super) fn split_tests(code: &str) -> (&str, &str) {
    code.find("#[cfg(test)]\nmod ").map_or((code, ""), |at| code.split_at(at))
}

/// Checks that every file of a package belongs to it: a `mod` leads to it.
fn check_reachable(tree: &Tree) -> Vec<String> {
    let mut reached = BTreeSet::new();
    let roots = PACKAGES
        .iter()
        .flat_map(|package| ["lib.rs", "main.rs"].map(|root| format!("{}{root}", package.source)));
    let mut waiting: Vec<_> = roots.collect();
    while let Some(path) = waiting.pop() {
        let Some(text) = tree.get(&path) else { continue };
        let module = path.trim_end_matches(".rs");
        let is_root = module.ends_with("src/lib") || module.ends_with("src/main");
        let directory = if is_root { module.rsplit_once('/').unwrap().0 } else { module };
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
    let lost = tree.keys().filter(|path| Package::of(path).is_some() && !reached.contains(*path));
    lost.map(|path| format!("{path}: no `mod` leads to it")).collect()
}

/// Reads the Rust files of the workspace.
pub(super) fn read_tree() -> Tree {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut tree = Tree::new();
    let mut waiting: Vec<_> =
        ["src", "crates", "tests", "bench"].map(|name| root.join(name)).into();
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
    for path in ["src/lib.rs", "crates/translate/src/sse/decode.rs", "tests/offline/tidy.rs"] {
        assert!(tree.contains_key(path), "{path} was not read");
    }
    let found = complaints(&tree);
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

/// A file's path, its content, and the complaints about it.
const BROKEN: &[(&str, &str, &[&str])] = &[
    // Imports.
    ("crates/translate/src/run/a.rs", "use crate::langgraph::Part;", &[]),
    ("crates/translate/src/run/a.rs", "use crate::run::RunEvent;", &[]),
    ("crates/translate/src/run/a.rs", "use super::RunEvent;", &[]),
    ("crates/translate/src/run/a.rs", "let part = crate::json::items(value);", &[]),
    ("src/main.rs", "use crate::cli::Args;", &[]),
    ("src/config.rs", "use crate::server;", &[]),
    ("crates/translate/src/json.rs", "use crate::sse::Frame;", &["`json` must not import `sse`"]),
    (
        "crates/translate/src/agui.rs",
        "use crate::acp::SessionUpdate;",
        &["`agui` must not import `acp`"],
    ),
    (
        "crates/translate/src/run/a.rs",
        "pub(crate) use crate::agui::Event;",
        &["must not import `agui`"],
    ),
    ("crates/translate/src/run/a.rs", "crate::runs::RunLog::new()", &["must not import `runs`"]),
    ("crates/translate/src/run.rs", "use crate::metrics::Metrics;", &["must not import `metrics`"]),
    ("src/runs/log.rs", "use crate::config::Config;", &["must not import `config`"]),
    ("crates/translate/src/run.rs", "use crate::Nothing;", &["must not import `Nothing`"]),
    (
        "crates/translate/src/run/a.rs",
        "use crate::{\n    agui::{Event, sse},\n    json,\n    server::{self, Config},\n};",
        &["must not import `agui`", "must not import `server`"],
    ),
    (
        "src/server/a.rs",
        "use threadway_translate::langgraph::Part;",
        &["must not import `langgraph`"],
    ),
    ("src/threads/a.rs", "use threadway_translate::langgraph::Part;", &[]),
    ("crates/translate/src/sse.rs", "use super::json;", &["`sse` must not import `json`"]),
    (
        "crates/translate/src/sse/decode.rs",
        "use super::super::json;",
        &["`sse` must not import `json`"],
    ),
    ("crates/translate/src/sse/decode.rs", "use super::json;", &[]),
    (
        "crates/translate/src/sse.rs",
        "#[cfg(test)]\nmod tests {\n    use super::json;\n    use super::super::run;\n}",
        &["`sse` must not import `run`"],
    ),
    (
        "crates/translate/src/sse.rs",
        "#[cfg(test)]\nmod tests {\n    use crate::run;\n}",
        &["`run`"],
    ),
    (
        "crates/translate/src/sse/tests.rs",
        "use crate::run;\nuse std::fs;",
        &["must not import `run`"],
    ),
    ("crates/translate/src/sse.rs", "// As crate::run does.\n/// See [`crate::run`].", &[]),
    ("src/gadget.rs", "", &["`gadget` has no rank"]),
    // Purity.
    ("crates/translate/src/run.rs", "use std::time::{Duration, Instant};", &["names `Instant`"]),
    ("crates/translate/src/run.rs", "std::time::SystemTime::now()", &["names `SystemTime`"]),
    ("crates/translate/src/run.rs", "use std::{collections, env};", &["names `env`"]),
    ("crates/translate/src/run.rs", "std::fs::read(path)", &["names `fs`"]),
    ("crates/translate/src/run.rs", "use std::net::IpAddr;", &["names `net`"]),
    ("crates/translate/src/run.rs", "std::thread::sleep(pause)", &["names `thread`"]),
    ("crates/translate/src/run.rs", "use std::time::Duration;\nlet thread = fs.net(env);", &[]),
    ("crates/translate/src/run.rs", "#[cfg(test)]\nmod tests {\n    use std::fs;\n}", &[]),
    ("crates/translate/src/run.rs", "use std::fs;\n#[cfg(test)]\nmod tests {\n}", &["names `fs`"]),
    ("src/runs.rs", "use std::time::Instant;", &[]),
    // Locks.
    ("src/runs.rs", "use std::sync::{Arc, Mutex};", &["names `std::sync::Mutex`"]),
    ("src/runs/a.rs", "std::sync::RwLock::new(1)", &["names `std::sync::RwLock`"]),
    ("src/runs.rs", "use crate::sync::{Guard, Mutex};\nuse tokio::sync::Mutex;", &[]),
    ("src/runs.rs", "#[cfg(test)]\nmod tests {\n    use std::sync::Mutex;\n}", &[]),
    ("crates/demo/src/run.rs", "use std::sync::Mutex;", &[]),
    ("src/sync.rs", "use std::sync::Mutex;", &[]),
    // Names.
    ("tests/support/common.rs", "", &["the name `common` says nothing"]),
    ("crates/translate/src/run/util/a.rs", "", &["the name `util` says nothing"]),
];

#[test]
fn each_broken_rule_is_seen() {
    for (path, text, expected) in BROKEN {
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
        ("crates/demo/src/lib.rs", "pub mod a;\n", vec!["src/lib.rs: line 1"]),
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
        ("src/lib.rs", "pub mod runs;"),
        ("src/main.rs", "mod cli;"),
        ("src/cli.rs", ""),
        ("src/runs.rs", "mod a;\n#[cfg(test)]\nmod tests;"),
        ("src/runs/a.rs", "pub(super) mod b;"),
        ("src/runs/a/b.rs", ""),
        ("src/runs/tests.rs", ""),
        ("crates/demo/src/lib.rs", "mod clock;"),
        ("crates/demo/src/clock.rs", ""),
    ];
    assert_complaints(&complaints(&tree(&reachable)), &[]);
    let unreachable = [
        ("src/lib.rs", "// pub mod runs;\npub mod server;"),
        ("src/runs.rs", "mod a;"),
        ("src/runs/a.rs", ""),
        ("src/server.rs", ""),
        ("src/server/a.rs", ""),
    ];
    let expected = ["src/runs.rs: no", "src/runs/a.rs: no", "src/server/a.rs: no"];
    assert_complaints(&complaints(&tree(&unreachable)), &expected);
}

/// Each complaint has the expected part, in order, and there are no others.
fn assert_complaints(found: &[String], expected: &[&str]) {
    let is_as_expected = found.len() == expected.len()
        && found.iter().zip(expected).all(|(complaint, part)| complaint.contains(part));
    assert!(is_as_expected, "found {found:#?}\nexpected {expected:#?}");
}
