//! Checks that docs/troubleshooting.md has the texts of the code. tests/commands, tests/acp,
//! tests/front and tests/logs.rs show when each text is printed. This test fails when a text
//! changes and the page does not.

use std::fs;
use std::path::Path;

/// The page's placeholders.
const FILLED: [&str; 9] =
    ["ORIGIN", "URL", "DETAIL", "REASON", "NAME", "TEXT", "12.3 s", "403", "401"];

/// Where two texts of the code may meet in one text of the page.
const JOINTS: [&str; 7] = [" (", ")", ": ", "; ", ", ", " `", "expected "];

/// The least number of words of a piece that is searched: shorter pieces prove nothing.
const FEWEST_WORDS: usize = 3;

/// The code without its tests, each string on one line.
fn code(folder: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            text += &code(&path);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let file = fs::read_to_string(&path).unwrap();
            text += file.split("#[cfg(test)]").next().unwrap();
        }
    }
    text
}

/// Joins a string that continues after a backslash at the end of a line.
fn joined(text: &str) -> String {
    let mut pieces = text.split("\\\n");
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |joined, piece| joined + piece.trim_start())
}

/// Replaces each placeholder by `@`: `{..}` in the code, and a word in capitals or a URL on the
/// page.
fn blank(text: &str) -> String {
    let mut blank = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', 'h', 'T']) {
        let (before, from) = rest.split_at(at);
        blank += before;
        let end = if from.starts_with('{') {
            // A block of code in braces is no placeholder.
            let is_argument = |c: char| c.is_ascii_alphanumeric() || "_.:?#".contains(c);
            let end = from.find(|c: char| c != '{' && !is_argument(c));
            end.filter(|end| from[*end..].starts_with('}')).map(|end| end + 1)
        } else if from.starts_with("http://") || from.starts_with("THREADWAY_") {
            let of_url = if from.starts_with("http://") { ":/." } else { "_" };
            let is_part = |c: char| c.is_ascii_alphanumeric() || of_url.contains(c);
            from.find(|c: char| !is_part(c)).or(Some(from.len())).filter(|end| *end > 8)
        } else {
            None
        };
        let (filled, after) = from.split_at(end.unwrap_or(1));
        blank += if end.is_some() { "@" } else { filled };
        rest = after;
    }
    blank += rest;
    FILLED.iter().fold(blank, |text, word| text.replace(word, "@"))
}

/// The texts of the page: the last column of each row of its messages.
fn texts(page: &str) -> Vec<&str> {
    let (_, messages) = page.split_once("\n## Messages\n").expect("a section of messages");
    let rows = messages.lines().filter_map(|line| line.trim_end().strip_suffix("` |"));
    rows.map(|row| row.rsplit_once("| `").unwrap().1).collect()
}

/// The pieces of a text that are long enough to be searched.
fn pieces(text: &str) -> Vec<String> {
    let mut pieces = vec![blank(text)];
    for joint in JOINTS {
        pieces = pieces.iter().flat_map(|piece| piece.split(joint)).map(str::to_owned).collect();
    }
    let is_word = |word: &&str| word.bytes().all(|byte| byte.is_ascii_lowercase());
    pieces.retain(|piece| piece.split(' ').filter(is_word).count() >= FEWEST_WORDS);
    pieces
}

#[test]
fn each_text_of_the_page_is_the_codes_own() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/troubleshooting.md")).unwrap();
    let code = code(&root.join("src")) + &code(&root.join("crates/translate/src"));
    let code = blank(&joined(&code));
    let texts = texts(&page);
    assert!(texts.len() >= 20, "{} rows", texts.len());
    for text in texts {
        let pieces = pieces(text);
        assert!(!pieces.is_empty(), "nothing of this can be compared: {text}");
        for piece in pieces {
            let piece = piece.trim().trim_matches('`');
            assert!(code.contains(piece), "the code does not say `{piece}`, of: {text}");
        }
    }
}

#[test]
fn a_text_that_the_code_does_not_have_is_noticed() {
    let code = blank(&joined("\"a page of {origin} was \\\n     refused by {x:?} here\""));
    let pieces =
        pieces("a page of ORIGIN was refused by http://localhost:1 here; this is new text");
    let found: Vec<_> = pieces.iter().map(|piece| code.contains(piece)).collect();
    assert_eq!(found, [true, false]);
}
