//! The keys of LangGraph servers that a person has typed, in a file that only that person can read.
//!
//! A key that the operator has set, by the environment or the configuration, comes first and is
//! never written here.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::upstream::{ApiKey, BaseUrl};

/// The file's name, in the directory that the system has for configurations.
const FILE: &str = "credentials.toml";

/// Where the key of one server is kept.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// `None` where the system tells no directory.
    file: Option<PathBuf>,
    server: String,
}

/// A key could not be kept, or not be forgotten.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// The system tells no directory for it.
    #[error("there is no directory for it: set XDG_CONFIG_HOME or HOME")]
    NoDirectory,
    /// The file cannot be read or written.
    #[error("{file}: {error}")]
    Io {
        /// The file.
        file: PathBuf,
        /// What the system says.
        error: io::Error,
    },
}

// === impl Credentials ===

impl Credentials {
    /// The credentials for a server, in a directory of the person's.
    pub fn new(directory: Option<&Path>, server: &BaseUrl) -> Self {
        let file = directory.map(|directory| directory.join("threadway").join(FILE));
        Self { file, server: server.to_string() }
    }

    /// The key, if one was typed. A file that cannot be read holds none.
    pub fn key(&self) -> Option<ApiKey> {
        let table = read(self.file.as_ref()?).ok()?;
        table.get(&self.server)?.as_str()?.parse().ok()
    }

    /// Whether a key was typed.
    pub fn has_key(&self) -> bool {
        self.key().is_some()
    }

    /// Keeps a key, in place of an older one.
    pub fn keep(&self, key: &str) -> Result<&Path, KeepError> {
        let key = Value::String(key.to_owned());
        self.change(|keys| {
            keys.insert(self.server.clone(), key);
        })
    }

    /// Forgets the key.
    pub fn forget(&self) -> Result<(), KeepError> {
        if !self.has_key() {
            return Ok(());
        }
        self.change(|keys| {
            keys.remove(&self.server);
        })?;
        Ok(())
    }

    fn change(&self, change: impl FnOnce(&mut Table)) -> Result<&Path, KeepError> {
        let file = self.file.as_deref().ok_or(KeepError::NoDirectory)?;
        let changed = || {
            let mut keys = read(file)?;
            change(&mut keys);
            write(file, &keys)
        };
        changed().map_err(|error| KeepError::Io { file: file.to_owned(), error })?;
        Ok(file)
    }
}

/// The directory that the system has for a person's configurations.
pub fn directory(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let is_set = |path: &PathBuf| path.is_absolute();
    if cfg!(windows) {
        return variable("APPDATA").filter(is_set);
    }
    let home = || Some(variable("HOME").filter(is_set)?.join(".config"));
    variable("XDG_CONFIG_HOME").filter(is_set).or_else(home)
}

fn read(file: &Path) -> io::Result<Table> {
    match fs::read_to_string(file) {
        // The parser's own text quotes the line, which holds a key.
        Ok(text) => {
            text.parse().map_err(|_| io::Error::other("this is not TOML; mend or delete it"))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Table::new()),
        Err(error) => Err(error),
    }
}

/// Beside the old file and then in its place, so that a full disk loses no keys.
fn write(file: &Path, keys: &Table) -> io::Result<()> {
    let directory = file.parent().unwrap_or(file);
    fs::create_dir_all(directory)?;
    let draft = file.with_extension(format!("{}.new", std::process::id()));
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    // URLs and keys are visible ASCII: JSON's strings are TOML's.
    let lines = keys.iter().filter_map(|(server, key)| {
        let [server, key] = [server, key.as_str()?].map(serde_json::Value::from);
        Some(format!("{server} = {key}\n"))
    });
    let text: String = lines.collect();
    let written = options.open(&draft).and_then(|mut draft| draft.write_all(text.as_bytes()));
    written.and_then(|()| fs::rename(&draft, file)).inspect_err(|_| {
        // Half a draft helps nobody.
        let _ = fs::remove_file(&draft);
    })
}
