//! Checks that docs/versioning.md shows the limits of aegra with which the integration skips tests,
//! and that each of them skips one.

use std::fs;
use std::path::Path;

use serde::Deserialize;

/// One entry of integration/client/limits.json.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    ability: String,
    servers: Vec<String>,
    limit: String,
    effect: String,
}

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

fn limits() -> Vec<Row> {
    serde_json::from_str(&read("integration/client/limits.json")).unwrap()
}

/// The rows of the table under a heading of docs/versioning.md.
fn rows(heading: &str) -> Vec<String> {
    let text = read("docs/versioning.md");
    let (_, section) = text.split_once(heading).unwrap();
    let section = section.split("\n### ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(str::to_owned).collect()
}

#[test]
fn the_limits_of_aegra_are_those_with_which_tests_are_skipped() {
    let aegra = limits().into_iter().filter(|limit| limit.servers == ["aegra"]);
    let expected: Vec<_> = aegra
        .map(|Row { ability, limit, effect, .. }| format!("| `{ability}` | {limit} | {effect} |"))
        .collect();
    assert!(!expected.is_empty());
    assert_eq!(rows("\n### aegra\n"), expected);
}

#[test]
fn each_limit_skips_a_test() {
    let mut tests = String::new();
    for folder in ["integration/client", "integration/copilot"] {
        for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.to_string_lossy().ends_with(".test.mjs") {
                tests.push_str(&fs::read_to_string(path).unwrap());
            }
        }
    }
    let asked: Vec<_> =
        tests.split("without(").skip(1).map(|rest| rest.split(')').next().unwrap()).collect();
    for Row { ability, .. } in limits() {
        let name = format!("\"{ability}\"");
        assert!(asked.iter().any(|asked| asked.contains(&name)), "no test needs {ability}");
    }
}
