//! Checks the commands of the documents: `.ci/run` runs the README's test command, the binary takes
//! each `threadway ..` command, and no package is named before its release.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;
use clap::error::ErrorKind;
use threadway::cli::Cli;

/// The folders whose Markdown is read, beside the root's own files.
const FOLDERS: [&str; 6] = ["docs", "examples", "integration", "bench", "fuzz", "packaging"];

/// Folders of installed files.
const FOREIGN: [&str; 3] = [".cache", "node_modules", ".venv"];

/// How a document starts the binary.
const BINARIES: [&str; 4] =
    ["threadway ", "target/release/threadway ", "cargo run --release -- ", "cargo run -- "];

/// Placeholders whose place takes certain words only, each with one of them.
const PLACEHOLDERS: [(&str, &str); 2] = [("COMMAND", "serve"), ("EDITOR", "zed")];

/// Stands for arguments that a document leaves out.
const ELLIPSIS: &str = "..";

/// The beginnings of commands that install a release.
const PACKAGES: [&str; 8] = [
    "npx threadway",
    "uvx threadway",
    "npm install --global threadway",
    "pip install threadway",
    "brew install threadway",
    "cargo binstall threadway",
    "cargo install --locked threadway",
    "ghcr.io/threadway/threadway",
];

/// The heading of docs/install.md under which packages may be named before the first release.
const AFTER_RELEASE: &str = "\n## After the first release\n";

/// The statement that there is no release, in the README and in docs/install.md.
const UNRELEASED: &str = "threadway is not released yet";

/// Documents about releases and about the past.
const OF_RELEASES: [&str; 4] =
    ["CHANGELOG.md", "docs/decisions.md", "docs/releasing.md", "docs/roadmap.md"];

/// A command of a document.
#[derive(Debug, PartialEq, Eq)]
struct Named {
    /// From 1.
    line: usize,
    /// The words after the binary's name.
    words: Vec<String>,
    /// Whether it is a line of a code block, which people paste.
    is_block: bool,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// The paths of all documents, relative to the root.
fn documents() -> Vec<String> {
    fn add(folder: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let is_ours = !FOREIGN.contains(&name);
            if path.is_dir() && folder != root() && is_ours {
                add(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                let path = path.strip_prefix(root()).unwrap().to_str().unwrap();
                found.push(path.replace('\\', "/"));
            }
        }
    }
    let mut found = Vec::new();
    add(&root(), &mut found);
    for folder in FOLDERS {
        add(&root().join(folder), &mut found);
    }
    found.sort();
    found
}

/// The commands of a document that start the binary.
fn commands(text: &str) -> Vec<Named> {
    let mut found = Vec::new();
    let mut is_block = false;
    let mut continued: Option<(usize, String)> = None;
    for (at, line) in text.lines().enumerate() {
        let trimmed = line.trim();
        if trimmed.starts_with("```") {
            is_block = !is_block;
            continue;
        }
        let spans: Vec<_> = if is_block {
            let (first, text) = continued.take().unwrap_or_default();
            let line = if text.is_empty() { at + 1 } else { first };
            let text = text + trimmed.strip_prefix("$ ").unwrap_or(trimmed);
            if let Some(text) = text.strip_suffix('\\') {
                continued = Some((line, text.to_owned()));
                continue;
            }
            vec![(line, text)]
        } else {
            line.split('`').skip(1).step_by(2).map(|span| (at + 1, span.to_owned())).collect()
        };
        for (line, text) in spans {
            if let Some(rest) = BINARIES.iter().find_map(|binary| text.strip_prefix(binary)) {
                found.push(Named { line, words: words(rest), is_block });
            }
        }
    }
    found
}

/// The words of a command, up to a comment, a pipe or a redirection.
fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = command.trim_start();
    while let Some(first) = rest.chars().next() {
        let (word, after) = if first == '\'' || first == '"' {
            rest[1..].split_once(first).unwrap_or_else(|| (&rest[1..], ""))
        } else if "#|<>&;".contains(first) {
            break;
        } else {
            rest.split_once(char::is_whitespace).unwrap_or((rest, ""))
        };
        words.push(word.to_owned());
        rest = after.trim_start();
    }
    words
}

/// Why the binary does not take a command.
fn refusal(command: &Named) -> Option<String> {
    let words: Vec<_> = command.words.iter().filter(|word| *word != ELLIPSIS).collect();
    // A sentence, and an ellipsis, may leave out arguments and the value of the last flag.
    let is_whole = command.is_block && words.len() == command.words.len();
    let ends_with_flag = words.last().is_some_and(|word| word.starts_with("--"));
    let words = words.into_iter().map(|word| {
        let filled = PLACEHOLDERS.iter().find(|(placeholder, _)| placeholder == word);
        filled.map_or(&**word, |(_, word)| *word)
    });
    let error = Cli::try_parse_from(std::iter::once("threadway").chain(words)).err()?;
    let kind = error.kind();
    let is_fine = matches!(kind, ErrorKind::DisplayHelp | ErrorKind::DisplayVersion)
        || !is_whole && kind == ErrorKind::MissingRequiredArgument
        || !is_whole && ends_with_flag && kind == ErrorKind::InvalidValue;
    (!is_fine).then(|| error.to_string())
}

/// The parts of a document that may name no package before the first release.
fn before_release<'a>(path: &str, text: &'a str) -> &'a str {
    let is_about = OF_RELEASES.contains(&path) || path.starts_with("packaging/");
    let (before, _) = text.split_once(AFTER_RELEASE).unwrap_or((text, ""));
    match path {
        _ if is_about => "",
        "docs/install.md" => before,
        _ => text,
    }
}

/// The packages that a text names.
fn packages(text: &str) -> Vec<&'static str> {
    PACKAGES.into_iter().filter(|package| text.contains(package)).collect()
}

/// Whether a changelog has a section with a date.
fn has_release(changelog: &str) -> bool {
    let sections =
        changelog.lines().filter_map(|line| line.strip_prefix("## [")?.split_once("] - "));
    sections.into_iter().any(|(_, date)| date.starts_with(|c: char| c.is_ascii_digit()))
}

#[test]
fn ci_runs_the_test_command_of_the_readme() {
    let readme = read("README.md");
    let (_, after) =
        readme.split_once("\n## Try it\n").expect("the README has a section \"Try it\"");
    let block = after.split("```").nth(1).unwrap();
    let script = read(".ci/run");
    let last = script.lines().rfind(|line| !line.trim().is_empty()).unwrap();
    let command = last.strip_prefix("exec ").unwrap_or(last);
    assert!(
        block.lines().any(|line| line == command),
        ".ci/run runs `{command}`, and the first block of \"Try it\" in README.md has:{block}"
    );
}

#[test]
fn the_binary_takes_each_command_of_the_documents() {
    let mut wrong = Vec::new();
    let mut in_blocks = 0;
    for path in documents() {
        for command in commands(&read(&path)) {
            in_blocks += usize::from(command.is_block);
            if let Some(refusal) = refusal(&command) {
                wrong.push(format!("{path}:{}: {}", command.line, refusal.trim_end()));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
    assert!(in_blocks >= 30, "only {in_blocks} commands were found in code blocks");
}

#[test]
fn no_package_is_named_before_the_first_release() {
    let is_released = has_release(&read("CHANGELOG.md"));
    for path in ["README.md", "docs/install.md"] {
        assert_eq!(read(path).contains(UNRELEASED), !is_released, "{path}: \"{UNRELEASED}\"");
    }
    if is_released {
        return;
    }
    assert!(!packages(&read("docs/install.md")).is_empty(), "docs/install.md names no package");
    for path in documents() {
        let named = packages(before_release(&path, &read(&path)));
        assert!(named.is_empty(), "{path} names {named:?}, and nothing is released yet");
    }
}

#[test]
fn commands_are_found_and_wrong_ones_are_seen() {
    let text = "Run `threadway serve --upstrem U`.\n```sh\n$ threadway acp \\\n  --agent 'a b'   # c\n\
                threadway: not a command\n```\n`threadway watch`, `threadway COMMAND --help`\n\
                ```\nthreadway watch\ncargo run -- translate --to agui < a.sse\n\
                threadway man $c > x\n```\n`threadway acp --upstream ..`\n";
    let found = commands(text);
    let lines: Vec<_> = found.iter().map(|command| (command.line, command.is_block)).collect();
    let expected = [
        (1, false),
        (3, true),
        (7, false),
        (7, false),
        (9, true),
        (10, true),
        (11, true),
        (13, false),
    ];
    assert_eq!(lines, expected);
    assert_eq!(found[1].words, ["acp", "--agent", "a b"]);
    let refused: Vec<_> = found.iter().filter(|command| refusal(command).is_some()).collect();
    let refused: Vec<_> = refused.into_iter().map(|command| command.line).collect();
    assert_eq!(refused, [1, 9]);
}

#[test]
fn packages_and_releases_are_seen() {
    assert_eq!(packages("run `uvx threadway@1` or npx other"), ["uvx threadway"]);
    let page = format!("npx threadway{AFTER_RELEASE}uvx threadway");
    assert_eq!(packages(before_release("docs/install.md", &page)), ["npx threadway"]);
    assert_eq!(packages(before_release("docs/a.md", &page)).len(), 2);
    assert_eq!(packages(before_release("packaging/npm/README.md", &page)).len(), 0);
    assert!(has_release("x\n## [0.1.0] - 2026-12-01\n"));
    assert!(!has_release("x\n## [0.1.0] - unreleased\n"));
}
