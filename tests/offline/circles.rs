//! The order within a module: the files and folders that it consists of import each other in one
//! direction only.
//!
//! A folder counts as one with the file of its name. A file may also use what the file above it
//! declares. Tests at the bottom of a file may import anything, and so may a line that only tests
//! compile.

use std::collections::{BTreeMap, BTreeSet};

use super::tidy::{Tree, children, is_tests, package_of, read_tree, split_tests, without_comments};

/// The rooms of the server, from the ground up. A room imports only rooms of lower floors.
const SERVER: &[&[&str]] = &[
    &["peer", "upgrade", "limits"],
    &["reject"],
    &["request"],
    &["browser", "observe"],
    &["auth", "streams"],
    &["gateway", "response"],
    &["body", "connections", "service"],
    &["websocket"],
    &["acp"],
    &["routes"],
];

/// What each part of a module imports of the other parts.
type Imports<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// The imports between the parts of each module, by the module's folder.
fn imports(tree: &Tree) -> BTreeMap<String, Imports<'_>> {
    let mut modules: BTreeMap<String, Imports<'_>> = BTreeMap::new();
    for (path, text) in tree {
        let Some(source) = package_of(path) else { continue };
        let module = path[source.len()..].trim_end_matches(".rs");
        if is_tests(module) {
            continue;
        }
        let code = without_comments(text);
        let (code, _) = split_tests(&code);
        let code = &without_test_lines(code);
        let parts: Vec<_> = module.split('/').collect();
        for depth in 0..parts.len() {
            let mut above = "crate::".to_owned();
            parts[..depth].iter().for_each(|part| above.extend([*part, "::"]));
            let mut named = children(code, &above);
            named.extend(children(code, &"super::".repeat(parts.len() - depth)));
            let mut folder = source.trim_end_matches('/').to_owned();
            parts[..depth].iter().for_each(|part| folder.extend(["/", *part]));
            let part = parts[depth];
            let others = named.into_iter().filter_map(|name| {
                let (other, _) = tree.get_key_value(&format!("{folder}/{name}.rs"))?;
                let other = &other[folder.len() + 1..other.len() - ".rs".len()];
                (other != part).then_some(other)
            });
            let others: BTreeSet<_> = others.collect();
            modules.entry(folder).or_default().entry(part).or_default().extend(others);
        }
    }
    modules
}

/// The code without the lines that follow `#[cfg(test)]`.
fn without_test_lines(code: &str) -> String {
    let mut parts = code.split("#[cfg(test)]\n");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    kept.extend(parts.filter_map(|part| Some(part.split_once('\n')?.1)));
    kept
}

/// The parts that a part imports, by others too.
fn reached<'a>(imports: &Imports<'a>, part: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut waiting = vec![part];
    while let Some(part) = waiting.pop() {
        for other in imports.get(part).into_iter().flatten() {
            if reached.insert(*other) {
                waiting.push(other);
            }
        }
    }
    reached
}

/// The parts of a module that import each other in a circle.
fn circle<'a>(imports: &Imports<'a>) -> Vec<&'a str> {
    imports.keys().filter(|part| reached(imports, part).contains(**part)).copied().collect()
}

/// A complaint for each module with a circle, and for each import of the server that goes up.
fn complaints(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for (folder, imports) in imports(tree) {
        let circle = circle(&imports);
        if !circle.is_empty() {
            found.push(format!("{folder}: {} import each other in a circle", circle.join(", ")));
        }
        if folder == "src/server" {
            found.extend(up(&imports));
        }
    }
    found
}

/// The imports of the server that do not go down.
fn up(imports: &Imports<'_>) -> Vec<String> {
    let floor = |room: &str| SERVER.iter().position(|floor| floor.contains(&room));
    let mut found = Vec::new();
    for (room, others) in imports {
        let Some(of_room) = floor(room) else {
            found.push(format!("src/server: `{room}` has no floor in tests/offline/circles.rs"));
            continue;
        };
        let above = others.iter().filter(|other| floor(other).is_none_or(|of| of >= of_room));
        found.extend(above.map(|other| format!("src/server/{room}: must not import `{other}`")));
    }
    found
}

#[test]
fn imports_within_a_module_go_one_way() {
    let found = complaints(&read_tree());
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

#[test]
fn a_circle_within_a_module_is_seen() {
    let tree = |files: &[(&str, &str)]| -> Tree {
        files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
    };
    let rooms = [("src/server/limits.rs", ""), ("src/server/reject.rs", ""), ("src/runs/a.rs", "")];
    for (path, text, expected) in [
        ("src/server/reject/a.rs", "use crate::server::limits::Limits;", None),
        ("src/server/reject/a.rs", "use super::super::limits::Limits;", None),
        ("src/server/limits/a.rs", "// use crate::server::reject::Reject;", None),
        (
            "src/server/limits/a.rs",
            "#[cfg(test)]\nmod tests {\n    use super::super::reject;",
            None,
        ),
        ("src/server/limits/a.rs", "use super::super::reject;", Some("`reject`")),
        ("src/server/limits.rs", "fn a() -> super::reject::Reject {}", Some("`reject`")),
        ("src/server/limits.rs", "use super::{reject, sync};", Some("`reject`")),
        ("src/server/attic.rs", "", Some("`attic` has no floor")),
    ] {
        let mut tree = tree(&rooms);
        tree.insert(path.to_owned(), text.to_owned());
        let found = complaints(&tree);
        assert_eq!(found.len(), usize::from(expected.is_some()), "{path}: {text}: {found:?}");
        assert!(expected.is_none_or(|part| found[0].contains(part)), "{found:?}");
    }
    let circle = [
        ("src/threads/a.rs", "use super::b::B;"),
        ("src/threads/b/c.rs", "use crate::threads::d;"),
        ("src/threads/b.rs", "mod c;"),
        ("src/threads/d.rs", "use crate::threads::{a, e};"),
        ("src/threads/e.rs", ""),
    ];
    let expected = ["src/threads: a, b, d import each other in a circle"];
    assert_eq!(complaints(&tree(&circle)), expected);
    assert_eq!(complaints(&tree(&circle[1..])), [""; 0]);
}
