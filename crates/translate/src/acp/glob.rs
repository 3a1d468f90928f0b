//! Patterns for names: `*` matches any characters, `?` any single one.

use std::str::FromStr;

/// The longest pattern, in bytes. Names of tools and models are shorter.
const MAX_PATTERN_BYTES: usize = 256;

/// A pattern for the names of tools or models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob(Box<str>);

/// Why a text is no pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GlobError {
    /// The text is empty.
    #[error("a pattern is not empty")]
    Empty,
    /// The text is too long.
    #[error("a pattern has at most {MAX_PATTERN_BYTES} bytes")]
    TooLong,
}

// === impl Glob ===

impl Glob {
    /// Whether the pattern matches a whole name.
    ///
    /// Only the last `*` is tried again, because it can take all that an earlier one could. The
    /// time is therefore bounded by the product of the two lengths.
    pub fn matches(&self, name: &str) -> bool {
        let (mut pattern, mut rest) = (self.0.chars(), name.chars());
        let mut retry: Option<(std::str::Chars<'_>, std::str::Chars<'_>)> = None;
        loop {
            let (mut next_pattern, mut next_rest) = (pattern.clone(), rest.clone());
            match (next_pattern.next(), next_rest.next()) {
                (Some('*'), _) => {
                    retry = Some((next_pattern.clone(), rest.clone()));
                    pattern = next_pattern;
                }
                (None, None) => return true,
                (Some(wanted), Some(found)) if wanted == '?' || wanted == found => {
                    (pattern, rest) = (next_pattern, next_rest);
                }
                _ => {
                    let Some((after_star, from)) = &mut retry else { return false };
                    if from.next().is_none() {
                        return false;
                    }
                    (pattern, rest) = (after_star.clone(), from.clone());
                }
            }
        }
    }
}

impl FromStr for Glob {
    type Err = GlobError;

    fn from_str(pattern: &str) -> Result<Self, GlobError> {
        match pattern.len() {
            0 => Err(GlobError::Empty),
            length if length > MAX_PATTERN_BYTES => Err(GlobError::TooLong),
            _ => Ok(Self(pattern.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_any_characters_and_a_question_mark_is_one() {
        let cases = [
            ("read_file", "read_file", true),
            ("read_file", "read_files", false),
            ("read_*", "read_", true),
            ("*_file", "write_file", true),
            ("*_file", "write_file2", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b*", "xxbxxaxx", false),
            ("gpt-?o", "gpt-4o", true),
            ("gpt-?o", "gpt-o", false),
            ("?", "é", true),
            ("*", "", true),
            ("a.c", "abc", false),
            ("[ab]", "a", false),
        ];
        for (pattern, name, expected) in cases {
            let glob: Glob = pattern.parse().unwrap();
            assert_eq!(glob.matches(name), expected, "{pattern} of {name}");
        }
    }

    #[test]
    fn many_stars_are_matched_fast() {
        let glob: Glob = "*a".repeat(100).parse().unwrap();
        assert!(!glob.matches(&"a".repeat(99)));
        assert!(!glob.matches(&format!("{}b", "a".repeat(20_000))));
    }

    #[test]
    fn a_pattern_is_neither_empty_nor_too_long() {
        assert_eq!("".parse::<Glob>(), Err(GlobError::Empty));
        assert_eq!("a".repeat(257).parse::<Glob>(), Err(GlobError::TooLong));
    }
}
