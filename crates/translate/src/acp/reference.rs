//! References to files: URIs, the paths that they stand for, and how a text mentions them.

use std::borrow::Cow;
use std::fmt::Write as _;

const FILE: &str = "file:";

/// The name of a URI's resource, as a person writes it: the last segment of its path, decoded.
/// The whole URI if its path has no segment.
pub(super) fn name_of(uri: &str) -> Cow<'_, str> {
    let path = uri.split(['?', '#']).next().unwrap_or_default();
    let path = path.split_once("://").map_or(path, |(_, path)| path);
    let last = path.trim_end_matches('/').rsplit('/').next();
    last.filter(|name| !name.is_empty()).and_then(decoded).unwrap_or(Cow::Borrowed(uri))
}

/// A mention of a resource in Markdown. The name reads as it is, on one line; the URI stays encoded.
pub(super) fn mention(name: &str, uri: &str) -> String {
    let mut mention = "[".to_owned();
    for (at, word) in name.split_whitespace().enumerate() {
        if at > 0 {
            mention.push(' ');
        }
        for character in word.chars() {
            if matches!(character, '[' | ']' | '\\') {
                mention.push('\\');
            }
            mention.push(character);
        }
    }
    mention.push_str("](");
    // A bracket without its other would end the link, or not.
    let has_pairs = has_pairs(uri);
    for character in uri.chars() {
        let is_kept = !character.is_whitespace()
            && !character.is_control()
            && !matches!(character, '<' | '>')
            && (has_pairs || !matches!(character, '(' | ')'));
        if is_kept {
            mention.push(character);
        } else {
            let mut bytes = [0; 4];
            for byte in character.encode_utf8(&mut bytes).bytes() {
                // Writing to a string never fails.
                let _ = write!(mention, "%{byte:02X}");
            }
        }
    }
    mention.push(')');
    mention
}

/// A file on this machine that a URI names.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FilePath {
    pub(super) path: String,
    /// The line in its fragment, counted from one.
    pub(super) line: Option<u32>,
}

/// The file that a `file:` URI names. `None` for another text, and for a file of another machine.
pub(super) fn file_path(uri: &str) -> Option<FilePath> {
    let (scheme, rest) = uri.split_at_checked(FILE.len())?;
    if !scheme.eq_ignore_ascii_case(FILE) {
        return None;
    }
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let rest = rest.split('?').next().unwrap_or_default();
    let path = match rest.strip_prefix("//") {
        Some(rest) => {
            let (host, _) = rest.split_at(rest.find('/')?);
            if !host.is_empty() && !host.eq_ignore_ascii_case("localhost") {
                return None;
            }
            rest.get(host.len()..)?
        }
        None => rest,
    };
    let path = decoded(path).filter(|path| path.starts_with('/'))?;
    // `/C:/x` is `C:/x` on Windows.
    let path = match path.as_bytes() {
        [b'/', b'a'..=b'z' | b'A'..=b'Z', b':', b'/' | b'\\', ..] => path.get(1..)?.to_owned(),
        _ => path.into_owned(),
    };
    let digits = fragment.strip_prefix('L').unwrap_or_default();
    let end = digits.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(digits.len());
    let line = digits.get(..end).and_then(|line| line.parse().ok()).filter(|line| *line > 0);
    Some(FilePath { path, line })
}

/// A path as a person writes it: that of a `file:` URI, any other as it is.
pub(super) fn shown_path(path: Cow<'_, str>) -> Cow<'_, str> {
    match file_path(&path) {
        Some(file) => Cow::Owned(file.path),
        None => path,
    }
}

/// Decodes percent escapes. A `%` without two digits stays. `None` if the bytes are no text.
pub(super) fn decoded(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let digit = |at: usize| char::from(*after.get(at)?).to_digit(16);
        if let (b'%', Some(high), Some(low)) = (first, digit(0), digit(1)) {
            bytes.push(u8::try_from(high * 16 + low).unwrap_or_default());
            rest = after.get(2..).unwrap_or_default();
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

/// Whether each round bracket has its other.
fn has_pairs(text: &str) -> bool {
    let mut open = 0_u32;
    for character in text.chars() {
        match character {
            '(' => open += 1,
            ')' if open == 0 => return false,
            ')' => open -= 1,
            _ => {}
        }
    }
    open == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_reads_as_a_person_writes_it() {
        for (uri, name) in [
            ("file:///w/a.rs", "a.rs"),
            ("file:///w/a%20b.rs", "a b.rs"),
            ("file:///w/%C3%A9t%C3%A9/", "été"),
            ("file:///w/a.rs?v=1#L3", "a.rs"),
            ("file:///w/100%.txt", "100%.txt"),
            ("file:///w/%FF", "file:///w/%FF"),
            ("file:///", "file:///"),
            ("https://x.example", "x.example"),
            ("notes", "notes"),
            ("", ""),
        ] {
            assert_eq!(name_of(uri), name, "{uri}");
        }
    }

    #[test]
    fn a_mention_is_one_link_whatever_the_name_and_the_uri_hold() {
        for (name, uri, expected) in [
            ("a b.rs", "file:///w/a%20b.rs", "[a b.rs](file:///w/a%20b.rs)"),
            ("a]b\n c", "file:///w/x", "[a\\]b c](file:///w/x)"),
            ("[x](y)\\", "u:x", "[\\[x\\](y)\\\\](u:x)"),
            ("a", "file:///a b", "[a](file:///a%20b)"),
            ("a", "https://x/A_(b)", "[a](https://x/A_(b))"),
            ("a", "file:///a)(\n", "[a](file:///a%29%28%0A)"),
        ] {
            assert_eq!(mention(name, uri), expected);
        }
    }

    #[test]
    fn a_file_uri_is_a_path() {
        for (uri, path, line) in [
            ("file:///srv/app/y.rs", "/srv/app/y.rs", None),
            ("file://localhost/srv/y.rs", "/srv/y.rs", None),
            ("FILE:/srv/y.rs", "/srv/y.rs", None),
            ("file:///srv/a%20b%23.rs#L12:20", "/srv/a b#.rs", Some(12)),
            ("file:///srv/y.rs?symbol=x#L0", "/srv/y.rs", None),
            ("file:///C%3A/x.rs", "C:/x.rs", None),
        ] {
            assert_eq!(file_path(uri), Some(FilePath { path: path.to_owned(), line }), "{uri}");
        }
        for text in
            ["/srv/y.rs", "file://server/share/x", "file:x", "file://", "files:///x", "filé", ""]
        {
            assert_eq!(file_path(text), None, "{text}");
        }
    }
}
