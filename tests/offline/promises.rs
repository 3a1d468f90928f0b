//! Checks that the files and tests that SECURITY.md, CONTRIBUTING.md and docs/adapter-faults.md
//! name exist.
//!
//! `` `path: name` `` names a test or another item of a file, in JavaScript the title of a test.
//! Each row of a table whose last column is "Shown by" names one, or says "not tested".

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The documents, and the least number of names in each: a reader that finds nothing must fail.
const DOCUMENTS: [(&str, usize); 3] =
    [("SECURITY.md", 100), ("CONTRIBUTING.md", 60), ("docs/adapter-faults.md", 90)];

/// The folders with which paths begin.
const FOLDERS: [&str; 10] = [
    ".github",
    "bench",
    "crates",
    "docs",
    "examples",
    "fuzz",
    "integration",
    "packaging",
    "src",
    "tests",
];

/// The heading of a column whose every row needs a test.
const SHOWN_BY: &str = "Shown by";

/// The text of a row whose claim has no test.
const NOT_TESTED: &str = "not tested";

/// A path, and an item of that file if one is named.
type Name = (String, Option<String>);

/// Reads a file of the tree; `None` if it does not exist. A folder reads as an empty text.
type Tree<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The faults of a document, and the number of its names.
fn check(document: &str, text: &str, tree: Tree<'_>) -> (Vec<String>, usize) {
    let mut found = Vec::new();
    let mut names = 0;
    let mut is_shown = false;
    for (at, line) in text.lines().enumerate() {
        let place = format!("{document}:{}", at + 1);
        for (path, item) in names_of(line) {
            names += 1;
            let Some(file) = tree(&path) else {
                found.push(format!("{place}: there is no {path}"));
                continue;
            };
            if let Some(item) = item.filter(|item| !holds(&path, &file, item)) {
                found.push(format!("{place}: {path} has no {item}"));
            }
        }
        let row = line.strip_prefix('|').and_then(|line| line.trim_end().strip_suffix('|'));
        let last = row.map(|row| row.rsplit('|').next().unwrap_or_default().trim());
        is_shown = last.is_some_and(|last| is_shown || last == SHOWN_BY);
        if let Some(last) = last.filter(|_| is_shown) {
            let is_rule = last == SHOWN_BY || last == "---";
            let is_shown = names_of(last).into_iter().any(|(path, item)| {
                item.zip(tree(&path)).is_some_and(|(name, text)| has_test(&path, &text, &name))
            });
            if !is_rule && !is_shown && !last.starts_with(NOT_TESTED) {
                found.push(format!("{place}: neither a test nor `{NOT_TESTED}`"));
            }
        }
    }
    (found, names)
}

/// The names in a line: in code spans and in the targets of links.
fn names_of(line: &str) -> Vec<Name> {
    let mut names: Vec<_> = line.split('`').skip(1).step_by(2).flat_map(names_of_code).collect();
    for link in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
        let path = link.split('#').next().unwrap_or_default();
        if !path.is_empty() && !path.contains("://") {
            names.push((path.to_owned(), None));
        }
    }
    names
}

/// `path: item`, or each path among the words of a command.
fn names_of_code(code: &str) -> Vec<Name> {
    if let Some((path, item)) = code.split_once(": ").filter(|(path, _)| is_path(path)) {
        return vec![(path.to_owned(), Some(item.to_owned()))];
    }
    let words = code.split_whitespace().map(|word| word.trim_matches([',', '\'', '"', '<']));
    let paths = words.filter(|word| is_path(word)).map(|word| {
        // `tests/captures/SERVER/NAME.sse` is checked up to the first placeholder.
        let known = word.split('/').take_while(|part| !is_made_up(part));
        known.collect::<Vec<_>>().join("/")
    });
    paths.map(|path| (path, None)).collect()
}

fn is_path(word: &str) -> bool {
    let (first, rest) = word.split_once('/').unwrap_or((word, ""));
    FOLDERS.contains(&first) && !rest.is_empty() && !word.contains(' ')
}

/// Whether a part of a path is a placeholder: it is in capitals, or has a star.
fn is_made_up(part: &str) -> bool {
    let stem = part.split('.').next().unwrap_or_default();
    let is_word = |c: char| c.is_ascii_uppercase() || c == '_';
    let is_name = !stem.is_empty() && stem != "README" && stem.chars().all(is_word);
    part.contains(['*', '{']) || is_name
}

/// Whether a file has an item.
fn holds(path: &str, text: &str, item: &str) -> bool {
    // In a folder of tests an item must be a test, and no helper function.
    let is_of_tests = path.contains("tests/") && !path.starts_with("tests/support/");
    if is_of_tests || !is_rust(path) {
        return has_test(path, text, item);
    }
    let is_end = |c: char| !(c.is_alphanumeric() || c == '_');
    let is_there = |kind: &str| {
        let start = format!("{kind} {item}");
        text.match_indices(&start).any(|(at, _)| text[at + start.len()..].starts_with(is_end))
    };
    ["fn", "const", "enum", "struct", "type", "trait", "mod"].iter().any(|kind| is_there(kind))
}

/// Whether a file has a test: in Rust by its name, elsewhere by the beginning of its title.
fn has_test(path: &str, text: &str, name: &str) -> bool {
    if !is_rust(path) {
        return ['"', '`', '\''].iter().any(|quote| text.contains(&format!("test({quote}{name}")));
    }
    let mut is_test = false;
    for line in text.lines().map(str::trim) {
        let function = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
        let rest = function.and_then(|function| function.strip_prefix(name));
        if is_test && rest.is_some_and(|rest| rest.starts_with('(')) {
            return true;
        }
        is_test = line.starts_with("#[test]")
            || line.starts_with("#[tokio::test")
            || (is_test && line.starts_with("#["));
    }
    false
}

fn is_rust(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|extension| extension == "rs")
}

#[test]
fn every_name_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tree = |path: &str| {
        let path = root.join(path);
        if path.is_dir() { Some(String::new()) } else { fs::read_to_string(path).ok() }
    };
    let mut wrong = Vec::new();
    for (document, least) in DOCUMENTS {
        let text = tree(document).unwrap();
        let (found, names) = check(document, &text, &tree);
        wrong.extend(found);
        assert!(names >= least, "{document} has only {names} names");
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn each_broken_name_is_seen() {
    let files = BTreeMap::from([
        ("docs", ""),
        ("docs/a.md", ""),
        (
            "tests/front/a.rs",
            "fn help() {}\n#[tokio::test(flavor = \"x\")]\nasync fn a_test() {}\n",
        ),
        (
            "tests/offline/b.rs",
            "proptest! {\n    #[test]\n    fn a_property(\n        a in b) {}\n}\n",
        ),
        ("src/a.rs", "pub enum Body<'a> {}\nfn body(mode: &str) {}\n"),
        ("integration/client/a.test.mjs", "test(`sees nothing (${id})`);\ntest(\"one\");\n"),
    ]);
    let tree = |path: &str| files.get(path).map(|text| (*text).to_owned());
    for (text, expected, count) in [
        ("Nothing is named here, nor in `serve` or `a/b`.", &[][..], 0),
        ("`tests/front/a.rs: a_test`; `tests/offline/b.rs: a_property`", &[], 2),
        ("`src/a.rs: Body` and `src/a.rs: body`", &[], 2),
        ("`integration/client/a.test.mjs: sees nothing`, [a](docs/a.md#b)", &[], 2),
        ("`cargo test docs/a.md --x`, `docs/NAME.md`, `docs/*.md`, <https://a>", &[], 3),
        ("`tests/front/gone.rs: a_test`", &["there is no tests/front/gone.rs"], 1),
        ("`tests/front/a.rs: a_tes`", &["tests/front/a.rs has no a_tes"], 1),
        ("`tests/front/a.rs: a_test_more`", &["has no a_test_more"], 1),
        ("`tests/front/a.rs: help`", &["has no help"], 1),
        ("`src/a.rs: Bod`", &["src/a.rs has no Bod"], 1),
        ("`integration/client/a.test.mjs: sees all`", &["has no sees all"], 1),
        (
            "x\n`integration/gone`, [b](docs/b.md)",
            &["2: there is no integration/gone", "docs/b.md"],
            2,
        ),
        ("| a | Shown by |\n|---|---|\n| b | `tests/front/a.rs: a_test` |", &[], 1),
        ("| a | Shown by |\n|---|---|\n| b | not tested: no |\n\n| c | d |\n| e | f |", &[], 0),
        ("| a | Shown by |\n|---|---|\n| b | |", &["3: neither a test"], 0),
        ("| a | Shown by |\n|---|---|\n| b | `docs/a.md` |", &["3: neither a test"], 1),
        ("| a | Shown by |\n|---|---|\n| b | `src/a.rs: body` |", &["3: neither a test"], 1),
    ] {
        let (found, names) = check("A.md", text, &tree);
        let is_as_expected = found.len() == expected.len()
            && found.iter().zip(expected).all(|(found, part)| found.contains(part));
        assert!(is_as_expected, "{text}\nfound {found:#?}\nexpected {expected:#?}");
        assert_eq!(names, count, "{text}");
    }
}
