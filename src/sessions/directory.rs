//! A session's directory as text.
//!
//! An editor and the agent may run on different systems, so a path of either form is accepted
//! everywhere.

use std::path::Path;

use threadway_translate::acp::rpc::{Code, Error};

/// Returns the `cwd` without `.`, repeated and trailing separators. A Windows path has `\` between its
/// names, and a drive in upper case. Sessions are searched by this text. ACP requires an absolute
/// path; another one is refused.
///
/// `..` stays, because its meaning depends on links.
pub(super) fn absolute(cwd: &Path) -> Result<String, Error> {
    let text = cwd.to_string_lossy();
    normal(&text).ok_or_else(|| {
        Error::new(Code::InvalidParams, format!("cwd `{text}` is not an absolute path"))
    })
}

/// Returns a stored `cwd` in the form of [`absolute`]. A text that is no absolute path stays as it
/// is.
pub(super) fn normalized(stored: &str) -> String {
    normal(stored).unwrap_or_else(|| stored.to_owned())
}

fn normal(text: &str) -> Option<String> {
    let is_separator = |c| matches!(c, '/' | '\\');
    let names = |rest: &str| {
        let names = rest.split(is_separator).filter(|name| !matches!(*name, "" | "."));
        names.collect::<Vec<_>>().join("\\")
    };
    if text.starts_with(r"\\?\") || text.starts_with(r"\\.\") {
        // Windows reads the rest of such a path literally.
        return Some(text.to_owned());
    }
    if text.starts_with(r"\\") || (cfg!(windows) && text.starts_with("//")) {
        return Some(format!(r"\\{}", names(text)));
    }
    if let [drive, b':', b'\\' | b'/', ..] = text.as_bytes()
        && drive.is_ascii_alphabetic()
    {
        let drive = char::from(drive.to_ascii_uppercase());
        return Some(format!(r"{drive}:\{}", names(text.get(3..).unwrap_or_default())));
    }
    let rest = text.strip_prefix('/')?;
    let names = rest.split('/').filter(|name| !matches!(*name, "" | "."));
    Some(format!("/{}", names.collect::<Vec<_>>().join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_spelling_of_a_directory_gives_one_text() {
        for (text, spellings) in [
            ("/", &["/", "/.", "/./"][..]),
            ("/ws", &["/ws", "/ws/", "//ws/.".get(1..).unwrap(), "/./ws//"]),
            ("/ws/..", &["/ws/..", "/ws/../"]),
            (r"C:\", &[r"C:\", "c:/"]),
            (r"C:\ws\a", &[r"C:\ws\a", "c:/ws//a/", r"C:/ws\a\."]),
            (r"\\server\share\ws", &[r"\\server\share\ws", r"\\server/share\ws\"]),
            (r"\\?\C:\ws\", &[r"\\?\C:\ws\"]),
        ] {
            for spelling in spellings {
                assert_eq!(absolute(Path::new(spelling)).as_deref(), Ok(text), "{spelling}");
            }
            assert_eq!(normalized(text), text);
        }
    }

    #[test]
    fn a_relative_path_is_refused() {
        for text in ["", ".", "ws", "./ws", "~/ws", "C:", "C:ws", r"\ws", "1:/ws"] {
            assert!(absolute(Path::new(text)).is_err(), "{text}");
            assert_eq!(normalized(text), text);
        }
    }
}
