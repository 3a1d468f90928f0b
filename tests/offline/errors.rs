//! Checks that docs/errors.md lists each code that a client can see, and no other.
//!
//! The codes are read from the source: from the calls that make refusals, and from the names of
//! failures. A refusal whose code is no literal would be missed, so it fails the test too.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

type Codes = BTreeSet<String>;

/// The functions that make the server's refusals.
const REFUSALS: [&str; 5] =
    ["Reject::new(", "Self::new(StatusCode", "too_many(", "bad_gateway(", "unauthorized("];

/// How many of them pass on a code that another function names: the last three.
const HANDED_ON: usize = 3;

/// The rows of a table for names that the gateway does not choose.
const OTHERS: [&str; 1] = ["ValueError"];

/// The text of a file without its tests.
fn source(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    text.split("#[cfg(test)]").next().unwrap().to_owned()
}

fn rust_files(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(source(&path));
        }
    }
}

/// The literal at the start of a call's arguments, after a status if there is one.
fn first_literal(arguments: &str) -> Option<&str> {
    let arguments = arguments.trim_start();
    let is_status = arguments.starts_with("StatusCode") || arguments.starts_with("::");
    let behind = if is_status { arguments.split_once(',')?.1 } else { arguments };
    let (code, _) = behind.trim_start().strip_prefix('"')?.split_once('"')?;
    let is_code = |c: char| c.is_ascii_lowercase() || c == '_';
    (!code.is_empty() && code.chars().all(is_code)).then_some(code)
}

/// The codes of refusals, and how many refusals have no literal code.
fn refusals(texts: &[String]) -> (Codes, usize) {
    let (mut codes, mut handed_on) = (Codes::new(), 0);
    for text in texts {
        // A call may span several lines.
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ").replace("( ", "(");
        for made_by in REFUSALS {
            let is_word = |c: char| c.is_alphanumeric() || c == '_';
            let calls = text.match_indices(made_by);
            for (at, _) in calls.filter(|(at, _)| !text[..*at].ends_with(is_word)) {
                let is_definition = text[..at].ends_with("fn ");
                match first_literal(&text[at + made_by.len()..]) {
                    Some(code) => {
                        codes.insert(code.to_owned());
                    }
                    None if is_definition => {}
                    None => handed_on += 1,
                }
            }
        }
    }
    (codes, handed_on)
}

/// The texts between each `before` and the next `after`.
fn between<'a>(text: &'a str, before: &'a str, after: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(before).skip(1).filter_map(move |rest| rest.split(after).next())
}

/// The codes of failed runs: the gateway's own, and those that it uses for LangGraph's failures.
fn failures(root: &Path) -> Codes {
    let mut texts = Vec::new();
    rust_files(&root.join("src"), &mut texts);
    rust_files(&root.join("crates/translate/src"), &mut texts);
    let mut codes: Codes = texts
        .iter()
        .flat_map(|text| between(text, "RunError::new(", ","))
        .filter_map(|argument| argument.trim().strip_prefix('"')?.strip_suffix('"'))
        .map(str::to_owned)
        .collect();
    let failure = source(&root.join("crates/translate/src/run/failure.rs"));
    codes.extend(between(&failure, "=> \"", "\"").map(str::to_owned));
    let langgraph = source(&root.join("crates/translate/src/langgraph/run_error.rs"));
    let error = langgraph.split("impl RunError {").nth(1).unwrap();
    let error = error.split("\n}").next().unwrap();
    codes.extend(between(error, "Self::new(\"", "\"").map(str::to_owned));
    codes.extend(between(&langgraph, "RECURSION_LIMIT: &str = \"", "\"").map(str::to_owned));
    let agui = source(&root.join("crates/translate/src/agui/project/end.rs"));
    codes.extend(between(&agui, "code = Some(\"", "\"").map(str::to_owned));
    codes
}

/// The numbers of the JSON-RPC errors.
fn numbers(root: &Path) -> Codes {
    let text = source(&root.join("crates/translate/src/acp/rpc.rs"));
    let number = text.split("fn number(self)").nth(1).unwrap().split("\n    }").next().unwrap();
    between(number, "=> -", ",").map(|number| format!("-{}", number.replace('_', ""))).collect()
}

/// The codes in the tables under a heading: the code spans in their first column.
fn listed(page: &str, heading: &str) -> Codes {
    let section = page.split(&format!("\n## {heading}\n")).nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let mut codes = Codes::new();
    for row in section.lines().filter_map(|line| line.strip_prefix("| ")) {
        let first = row.split('|').next().unwrap_or_default();
        for code in first.split('`').skip(1).step_by(2).filter(|code| !OTHERS.contains(code)) {
            assert!(codes.insert(code.to_owned()), "{heading}: `{code}` is there twice");
        }
    }
    codes
}

#[test]
fn each_code_of_the_source_is_on_the_page_and_no_other() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/errors.md")).unwrap();
    let mut texts = vec![source(&root.join("src/server.rs"))];
    rust_files(&root.join("src/server"), &mut texts);
    let (refused, handed_on) = refusals(&texts);
    assert_eq!(handed_on, HANDED_ON, "a refusal whose code is no literal");
    for (heading, of_source, least) in [
        ("Refused requests", refused, 34),
        ("Failed runs", failures(root), 12),
        ("ACP", numbers(root), 8),
    ] {
        assert!(of_source.len() >= least, "{heading}: only {of_source:?}");
        let of_page = listed(&page, heading);
        let missing: Vec<_> = of_source.difference(&of_page).collect();
        let unknown: Vec<_> = of_page.difference(&of_source).collect();
        assert!(
            missing.is_empty() && unknown.is_empty(),
            "{heading}: not on the page {missing:?}, not in the source {unknown:?}"
        );
    }
}

#[test]
fn the_codes_of_the_openapi_document_are_those_of_the_page() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/errors.md")).unwrap();
    let document = fs::read_to_string(root.join("src/server/openapi.json")).unwrap();
    let document: serde_json::Value = serde_json::from_str(&document).unwrap();
    let codes = &document["components"]["schemas"]["Refusal"]["properties"]["error"]["enum"];
    let codes = codes.as_array().unwrap().iter().map(|code| code.as_str().unwrap().to_owned());
    assert_eq!(codes.collect::<Codes>(), listed(&page, "Refused requests"));
}

#[test]
fn each_way_to_make_a_refusal_is_seen() {
    let text = "Reject::new(StatusCode::CONFLICT, \"a_b\", m);\nSelf::new(\n    \
                StatusCode::OK,\n    \"c\",\n m)\nReject::too_many(\"d\", m) bad_gateway(\n\"e\", m) \
                unauthorized(\n \"f\",\n m)\nReject::new(StatusCode::OK, code, m);\n\
                fn too_many(code: &str) { Self::new(StatusCode::OK, code, m) }";
    let (codes, handed_on) = refusals(&[text.to_owned()]);
    let found: Vec<_> = codes.iter().map(String::as_str).collect();
    assert_eq!(found, ["a_b", "c", "d", "e", "f"]);
    assert_eq!(handed_on, 2);
    let page =
        "# x\n\n## A\n| code | b |\n|---|---|\n| `a` | `b` |\n| `c` | d |\n\n## B\n| `e` | f |\n";
    assert_eq!(listed(page, "A"), Codes::from(["a".to_owned(), "c".to_owned()]));
}
