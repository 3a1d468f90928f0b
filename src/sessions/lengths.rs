//! How long the texts may be that a client sends and a session keeps.

use threadway_translate::acp::rpc::{Code, Error};
use threadway_translate::json::{self, Json};

/// The members of params whose length is limited, in bytes. A text counts as UTF-8, and a list as
/// JSON.
///
/// The longest path on Linux has 4,095 bytes. The ids of modes, settings and choices come from the
/// gateway, and those of sessions are UUIDs.
const LIMITS: [(&str, usize); 9] = [
    ("sessionId", 128),
    ("cwd", 4096),
    ("additionalDirectories", 128 * 1024),
    ("mcpServers", 64 * 1024),
    ("modeId", 1024),
    ("configId", 1024),
    ("value", 1024),
    ("methodId", 1024),
    ("cursor", 1024),
];

/// Refuses params with a member that is too long. The error does not quote it.
pub(super) fn check(method: &str, params: &Json) -> Result<(), Error> {
    let shortest = LIMITS.iter().map(|(_, limit)| *limit).min().unwrap_or_default();
    if params.get().len() <= shortest {
        return Ok(());
    }
    let members = json::members(params).unwrap_or_default();
    for (name, limit) in LIMITS {
        let Some(value) = members.get(name) else { continue };
        let is_long =
            value.get().len() > limit && json::string(value).is_none_or(|text| text.len() > limit);
        if is_long {
            let message = format!("{method}: `{name}` is longer than {limit} bytes; send less");
            return Err(Error::new(Code::InvalidParams, message));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use threadway_translate::json::ObjectWriter;

    #[test]
    fn each_text_has_a_limit_that_its_error_names() {
        for (name, limit) in LIMITS {
            for text in ["a", "\u{e9}", "\n"] {
                let params = |length: usize| {
                    let text = text.repeat(length / text.len());
                    ObjectWriter::new().string("x", "y").string(name, &text).finish()
                };
                assert_eq!(check("m", &params(limit)), Ok(()), "{name}");
                let error = check("m", &params(limit + 2)).unwrap_err();
                let expected = format!("m: `{name}` is longer than {limit} bytes; send less");
                assert_eq!((error.code, error.message), (Code::InvalidParams, expected));
            }
        }
    }
}
