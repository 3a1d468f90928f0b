//! A session's directories as text.
//!
//! An editor and the agent may run on different systems, so a path of either form is accepted
//! everywhere.

use std::path::{Path, PathBuf};

use threadway_translate::acp::rpc::{Code, Error};

/// The most additional directories of a session.
const MAX_ADDITIONAL: usize = 64;

/// The most bytes of a session's additional directories together. Servers send a thread's metadata
/// in each list of threads.
const MAX_ADDITIONAL_BYTES: usize = 16 * 1024;

/// The directories that a client names when it opens a session.
#[derive(Debug)]
pub(super) struct Directories {
    /// The base of relative paths.
    pub(super) cwd: String,
    /// The other directories, in the client's order, each once.
    pub(super) additional: Vec<String>,
}

// === impl Directories ===

impl Directories {
    /// Reads the directories of a request, each in the form of [`absolute`].
    pub(super) fn read(cwd: &Path, additional: &[PathBuf]) -> Result<Self, Error> {
        let cwd = absolute(cwd)?;
        if additional.len() > MAX_ADDITIONAL {
            let message = format!("additionalDirectories has more than {MAX_ADDITIONAL} paths");
            return Err(Error::new(Code::InvalidParams, message));
        }
        let mut all = Vec::new();
        for path in additional {
            let text = path.to_string_lossy();
            let path = normal(&text).ok_or_else(|| {
                let message =
                    format!("additionalDirectories has `{text}`, which is not an absolute path");
                Error::new(Code::InvalidParams, message)
            })?;
            if !all.contains(&path) {
                all.push(path);
            }
        }
        if all.iter().map(String::len).sum::<usize>() > MAX_ADDITIONAL_BYTES {
            let message = format!(
                "additionalDirectories has more than {MAX_ADDITIONAL_BYTES} bytes of paths"
            );
            return Err(Error::new(Code::InvalidParams, message));
        }
        Ok(Self { cwd, additional: all })
    }
}

/// The stored additional directories that are absolute paths. Others write to the metadata too.
pub(super) fn listed(stored: &[String]) -> Vec<PathBuf> {
    stored.iter().filter_map(|stored| normal(stored)).map(PathBuf::from).collect()
}

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
    fn additional_directories_keep_their_order_and_are_limited() {
        let read = |paths: &[String]| {
            let paths: Vec<_> = paths.iter().map(PathBuf::from).collect();
            Directories::read(Path::new("/ws/"), &paths).map(|read| read.additional)
        };
        let texts = |paths: &[&str]| paths.iter().map(|&path| path.to_owned()).collect::<Vec<_>>();
        let given = texts(&["/lib/", "/a/./b", "/lib", "c:/x", "/ws"]);
        assert_eq!(read(&given), Ok(texts(&["/lib", "/a/b", r"C:\x", "/ws"])));
        let refusal = |paths: &[String]| read(paths).unwrap_err().message;
        let relative = "additionalDirectories has `lib`, which is not an absolute path";
        assert_eq!(refusal(&texts(&["/a", "lib"])), relative);
        let many: Vec<_> = (0..=MAX_ADDITIONAL).map(|n| format!("/{n}")).collect();
        assert_eq!(refusal(&many), "additionalDirectories has more than 64 paths");
        assert_eq!(read(&many[1..]).map(|read| read.len()), Ok(MAX_ADDITIONAL));
        let long = format!("/{}", "a".repeat(MAX_ADDITIONAL_BYTES));
        assert_eq!(refusal(&[long]), "additionalDirectories has more than 16384 bytes of paths");
        assert_eq!(listed(&texts(&["/a/", "b", ""])), [PathBuf::from("/a")]);
    }

    #[test]
    fn a_relative_path_is_refused() {
        for text in ["", ".", "ws", "./ws", "~/ws", "C:", "C:ws", r"\ws", "1:/ws"] {
            assert!(absolute(Path::new(text)).is_err(), "{text}");
            assert_eq!(normalized(text), text);
        }
    }
}
