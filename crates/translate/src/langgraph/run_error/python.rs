//! Exceptions as Python's `repr` prints them.

use super::RunError;

/// Reads an exception: `ValueError('no model')`. Its only argument is the message, if that is a
/// text; otherwise the message is all that Python has printed. `None` for a text of another form:
/// classes may print themselves as they like.
pub(super) fn exception(repr: &str) -> Option<RunError> {
    let (name, rest) = repr.split_once('(')?;
    let arguments = rest.strip_suffix(')')?;
    let is_name = name.starts_with(|first: char| first.is_alphabetic() || first == '_')
        && name.chars().all(|letter| letter.is_alphanumeric() || letter == '_');
    is_name.then(|| RunError::new(name, text(arguments).unwrap_or_else(|| repr.to_owned())))
}

/// Reads the literal of a text, as `repr` writes it: one line in either quote.
fn text(literal: &str) -> Option<String> {
    let quote = literal.chars().next().filter(|quote| matches!(quote, '\'' | '"'))?;
    let mut rest = literal.strip_prefix(quote)?.strip_suffix(quote)?.chars();
    let mut text = String::with_capacity(literal.len());
    while let Some(letter) = rest.next() {
        text.push(match letter {
            '\\' => match rest.next()? {
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'x' => code_point(&mut rest, 2)?,
                'u' => code_point(&mut rest, 4)?,
                'U' => code_point(&mut rest, 8)?,
                escaped @ ('\\' | '\'' | '"') => escaped,
                _ => return None,
            },
            // A second argument follows.
            end if end == quote => return None,
            letter => letter,
        });
    }
    Some(text)
}

fn code_point(rest: &mut std::str::Chars<'_>, digits: usize) -> Option<char> {
    let tail = rest.as_str();
    let code = tail.get(..digits)?;
    *rest = tail.get(digits..)?.chars();
    char::from_u32(u32::from_str_radix(code, 16).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exception_with_one_text_is_read() {
        for (repr, name, message) in [
            ("ValueError('no model')", "ValueError", "no model"),
            (r#"KeyError("it's")"#, "KeyError", "it's"),
            (
                r"Boom_2('\'a\' \\ \x1b\u2028\U000e0001\n\r\t')",
                "Boom_2",
                "'a' \\ \u{1b}\u{2028}\u{e0001}\n\r\t",
            ),
            ("Été('é (1)')", "Été", "é (1)"),
            ("TimeoutError()", "TimeoutError", "TimeoutError()"),
            ("ValueError('')", "ValueError", ""),
        ] {
            assert_eq!(exception(repr), Some(RunError::new(name, message)), "{repr}");
        }
    }

    #[test]
    fn arguments_that_are_no_single_text_stay_as_they_are() {
        for arguments in [
            "2, 'No such file'",
            "'a', 'b'",
            "b'a'",
            "'",
            r"'\x1'",
            r"'\xé'",
            r"'\ud800'",
            r"'\q'",
            r"'\'",
        ] {
            let repr = format!("OSError({arguments})");
            assert_eq!(exception(&repr), Some(RunError::new("OSError", &*repr)), "{repr}");
        }
    }

    #[test]
    fn a_text_of_another_form_is_not_an_exception() {
        for text in [
            "",
            "boom",
            "ValueError",
            "ValueError(",
            "ValueError('a'",
            "2a('b')",
            "a b('c')",
            "('a')",
            "<E('a')>",
        ] {
            assert_eq!(exception(text), None, "{text}");
        }
    }
}
