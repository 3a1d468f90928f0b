//! Words and constructions that are never right in the project's prose, each with a better word.
//!
//! The check reads Rust files, which have prose in comments and strings, and Markdown. It finds a
//! phrase also across a line break. Names such as `who_comes` are not read as prose.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// A phrase, and what to write instead. `..` in a phrase is one to three words.
const NEVER: &[(&str, &str)] = &[
    ("are told", "get, are sent, are shown"),
    ("as it stands", "as it is, in its present state"),
    ("brought back", "restored, resumed"),
    ("how-manieth", "the index, the position"),
    ("is let in", "is admitted"),
    ("are let in", "are admitted"),
    ("is told", "gets, is sent, is shown"),
    ("let go of", "released, dropped"),
    ("lets go of", "releases, drops"),
    ("lets everybody in", "admits everybody"),
    ("lets nobody in", "refuses everybody"),
    ("not told", "not sent, not shown"),
    ("out of sight", "hidden, not visible"),
    ("passed over", "ignored, skipped"),
    ("stands behind", "follows, comes after"),
    ("tell apart", "distinguish"),
    ("tell .. apart", "distinguish"),
    ("tells apart", "distinguishes"),
    ("tells .. apart", "distinguishes"),
    ("told apart", "distinguished"),
    ("turned away", "refused"),
    ("was told", "got, was sent, was shown"),
    ("were told", "got, were sent, were shown"),
    ("what stands", "the content, the present state"),
    ("who comes", "a caller, a viewer, a client that connects"),
    ("who tells", "which part reports, which part distinguishes"),
    ("whoever comes", "any caller, any viewer"),
];

/// The most words that `..` in a phrase may be.
const GAP_WORDS: usize = 3;

/// The directories whose Rust files are read.
const RUST: &[&str] = &["src", "crates", "tests", "bench"];

/// The directories whose Markdown is read, beside the root's own files.
const MARKDOWN: &[&str] =
    &["docs", "bench", "fuzz", "integration", "packaging", "examples", "crates"];

/// Directories of installed and built files.
const FOREIGN: &[&str] = &["node_modules", "target", "dist"];

/// This file names each phrase.
const THIS: &str = "tests/offline/prose.rs";

struct Word {
    text: String,
    /// From 1.
    line: usize,
    /// Whether only spaces, comment marks and the like separate it from the word before.
    continues: bool,
}

/// One line for each phrase of [`NEVER`] in the text.
fn complaints(path: &str, text: &str) -> Vec<String> {
    let words = words(text);
    // By their first word.
    let mut phrases: HashMap<_, Vec<_>> = HashMap::new();
    for (phrase, better) in NEVER {
        let mut parts = phrase.split([' ', '-']);
        let first = parts.next().unwrap_or_default();
        phrases.entry(first).or_default().push((parts.collect::<Vec<_>>(), phrase, better));
    }
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        for (rest, phrase, better) in phrases.get(&*word.text).into_iter().flatten() {
            if continues_with(&words[at + 1..], rest) {
                let line = word.line;
                found.push(format!("{path}:{line}: not \"{phrase}\", but: {better}"));
            }
        }
    }
    found
}

/// Whether the words begin with the rest of a phrase.
fn continues_with(words: &[Word], phrase: &[&str]) -> bool {
    let Some((part, rest)) = phrase.split_first() else { return true };
    if *part == ".." {
        let gap = words.iter().take(GAP_WORDS).take_while(|word| word.continues).count();
        return (1..=gap).any(|length| continues_with(&words[length..], rest));
    }
    words.split_first().is_some_and(|(word, words)| {
        word.continues && word.text == *part && continues_with(words, rest)
    })
}

fn words(text: &str) -> Vec<Word> {
    let mut words = Vec::new();
    let mut continues = false;
    for (index, line) in text.lines().enumerate() {
        // A new paragraph, list item, heading or table row is another sentence.
        let start = line.trim_start().trim_start_matches(['/', '!', '>']).trim_start();
        continues &= !start.is_empty() && !start.starts_with(['-', '*', '#', '|']);
        let mut rest = line;
        while let Some(begin) = rest.find(is_letter) {
            let word = &rest[begin..];
            continues &= rest[..begin].chars().all(is_filler);
            let end = word.find(|character| !is_letter(character)).unwrap_or(word.len());
            words.push(Word { text: word[..end].to_lowercase(), line: index + 1, continues });
            continues = true;
            rest = &word[end..];
        }
        continues &= rest.chars().all(is_filler);
    }
    words
}

fn is_letter(character: char) -> bool {
    character.is_alphanumeric() || character == '\''
}

/// Whether words on both sides of the character may belong to one phrase.
fn is_filler(character: char) -> bool {
    character.is_whitespace() || "/!\\-*>`".contains(character)
}

/// The paths of all files to read, relative to the root, and their text.
fn files() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().replace('\\', "/");
            let (top, is_in_root) =
                name.split_once('/').map_or((&*name, true), |(top, _)| (top, false));
            let last = name.rsplit('/').next().unwrap_or_default();
            if path.is_dir() {
                let is_ours = RUST.contains(&top) || MARKDOWN.contains(&top);
                if is_ours && !FOREIGN.contains(&last) && !last.starts_with('.') {
                    waiting.push(path);
                }
                continue;
            }
            let is_read = match path.extension().and_then(|extension| extension.to_str()) {
                Some("rs") => RUST.contains(&top) && name != THIS,
                Some("md") => is_in_root || MARKDOWN.contains(&top),
                _ => false,
            };
            if is_read {
                found.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn the_prose_has_no_word_that_is_never_right() {
    let files = files();
    for read in ["README.md", "docs/operate.md", "src/lib.rs", "crates/translate/README.md"] {
        assert!(files.iter().any(|(path, _)| path == read), "{read} was not read");
    }
    let found: Vec<_> = files.iter().flat_map(|(path, text)| complaints(path, text)).collect();
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

#[test]
fn each_phrase_is_found() {
    for (phrase, better) in NEVER {
        let text = format!("First.\n// So {}, say\n", phrase.replace("..", "all the callers"));
        let found = complaints("a.rs", &text);
        let expected = format!("a.rs:2: not \"{phrase}\", but: {better}");
        assert!(found.contains(&expected), "{text:?}: {found:?}");
    }
}

#[test]
fn a_phrase_is_found_wherever_it_is_written() {
    for (text, expected) in [
        ("/// One who\n/// comes late.", 1),
        ("x\n> those who come\n> and who comes", 3),
        ("\"callers are turned \\\n    away: {accepts}\"", 1),
        ("Nobody knows.\nWho Comes here?", 2),
        ("| mode | who *tells* |", 1),
        ("They tell the many callers apart.", 1),
    ] {
        let found = complaints("a.md", text);
        assert!(
            found.len() == 1 && found[0].starts_with(&format!("a.md:{expected}: ")),
            "{text:?}: {found:?}"
        );
    }
    for text in [
        "I know who. Comes the end.",
        "Ask who, comes what may.",
        "who\n\ncomes",
        "- the one who\n- comes to an end",
        "| who | comes |",
        "fn one_who_comes_late() {}",
        "whole comes",
        "They tell us that all the parts lie apart.",
    ] {
        assert_eq!(complaints("a.md", text), Vec::<String>::new(), "{text:?}");
    }
}
