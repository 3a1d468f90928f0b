//! Reads any text as a config file, as the command line does. No error may quote a secret.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{Seek, Write};
use std::path::PathBuf;

use threadway::config::Config;
use threadway::config::Options;
use toml::{Table, Value};

use super::SECRET;

/// The first words of known keys. A value under another key may be a secret whose key is misspelt.
const KNOWN: [&str; 21] = [
    "acp",
    "admin_insecure",
    "admin_listen",
    "agents",
    "auth",
    "compression",
    "cors",
    "error_detail",
    "forward_configurable",
    "forward_headers",
    "hosts",
    "insecure",
    "limits",
    "listen",
    "log",
    "on_owner_disconnect",
    "on_message_while_interrupted",
    "otlp_endpoint",
    "upstream",
    "upstreams",
    "watch_config",
];

/// A file, written for each input, because the parser reads only from a path.
struct Written {
    path: PathBuf,
    file: File,
}

thread_local! {
    static FILE: RefCell<Written> = RefCell::new(Written::new());
}

pub(crate) fn check(text: &[u8]) {
    let (told, is_refused) = FILE.with_borrow_mut(|file| {
        file.write(text);
        let options = Options::new(Some(file.path.clone()));
        match Config::read(&options, None) {
            Ok(config) => (format!("{config:?}"), false),
            Err(mistakes) => {
                assert!(!mistakes.is_empty(), "a refusal has a reason");
                let told: Vec<_> = mistakes.iter().map(ToString::to_string).collect();
                (format!("{told:?} {mistakes:?}"), true)
            }
        }
    });
    if told.contains(SECRET) {
        let is_secret = is_secret(&String::from_utf8_lossy(text), is_refused);
        assert!(!is_secret, "the secret is in an error: {told}");
    }
}

/// Whether the secret occurs only in values that are kept secret, or in a file that cannot be
/// parsed.
fn is_secret(text: &str, is_refused: bool) -> bool {
    match text.parse::<Table>() {
        Ok(table) => flatten(table, "").iter().all(|(key, value)| is_kept(key, value, is_refused)),
        Err(_) => true,
    }
}

/// Whether a value does not contain the secret, or must not be printed.
fn is_kept(key: &str, value: &Value, is_refused: bool) -> bool {
    // Every error names its key.
    if key.contains(SECRET) {
        return false;
    }
    let (first, last) = (key.split('.').next().unwrap_or(key), key.rsplit('.').next());
    let is_secret = !KNOWN.contains(&first)
        || last == Some("api_key")
        || key.starts_with("auth.keys.")
        || (first.starts_with("upstream") && key.contains(".headers."));
    if is_secret && first != "acp" && first != "agents" {
        return true;
    }
    // Parsing a URL removes these characters.
    let text = serde_json::to_string(value).unwrap_or_default();
    let holds_it = ["\\t", "\\n", "\\r"].iter().fold(text, |text, gone| text.replace(gone, ""));
    let holds_it = holds_it.contains(SECRET);
    // A URL that is refused may have a password or a token elsewhere in it.
    let is_url = first == "otlp_endpoint" || (first.starts_with("upstream") && last == Some("url"));
    let is_hidden =
        is_refused && is_url && value.as_str().is_some_and(|text| text.contains(['@', '?', '#']));
    is_hidden || !holds_it
}

/// The values of a table and of its inner tables, by dotted key.
fn flatten(table: Table, prefix: &str) -> Vec<(String, Value)> {
    let flat = |(key, value)| {
        let key = format!("{prefix}{key}");
        if let Value::Table(inner) = value {
            flatten(inner, &format!("{key}."))
        } else {
            vec![(key, value)]
        }
    };
    table.into_iter().flat_map(flat).collect()
}

// === impl Written ===

impl Written {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("threadway-fuzz-{}.toml", std::process::id()));
        let file = File::create(&path).expect("the system's directory can be written to");
        Self { path, file }
    }

    fn write(&mut self, text: &[u8]) {
        let written = self
            .file
            .set_len(0)
            .and_then(|()| self.file.rewind())
            .and_then(|()| self.file.write_all(text));
        written.expect("a small file can be written");
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        // If this fails, the system cleans up the file.
        let _ = fs::remove_file(&self.path);
    }
}
