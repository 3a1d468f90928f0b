//! The file of keys that a person has typed for LangGraph servers. Only that person can read it.
//!
//! A key from the environment or the configuration takes precedence and is never written here.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::upstream::{ApiKey, BaseUrl};

/// The file's name, below the user's configuration directory.
const FILE: &str = "credentials.toml";

/// The file with the tokens of gateways. A token is never sent to a LangGraph server of the same
/// URL, nor a key to a gateway.
const GATEWAYS_FILE: &str = "gateways.toml";

/// The stored key of one server.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// `None` if the system has no configuration directory.
    file: Option<PathBuf>,
    server: String,
}

/// Why a key could not be stored or deleted.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The system has no configuration directory.
    #[error("there is no directory for the key; set XDG_CONFIG_HOME or HOME")]
    NoDirectory,
    /// The file cannot be read or written.
    #[error("{file}: {error}")]
    Io {
        /// The file.
        file: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
}

// === impl Credentials ===

impl Credentials {
    /// The stored key of a server, in the user's configuration directory.
    pub fn new(directory: Option<&Path>, server: &BaseUrl) -> Self {
        Self::in_file(directory, FILE, server)
    }

    /// The stored token for a gateway, in a file of its own.
    pub fn of_gateway(directory: Option<&Path>, gateway: &BaseUrl) -> Self {
        Self::in_file(directory, GATEWAYS_FILE, gateway)
    }

    fn in_file(directory: Option<&Path>, file: &str, server: &BaseUrl) -> Self {
        let file = directory.map(|directory| directory.join("threadway").join(file));
        Self { file, server: server.to_string() }
    }

    /// The key, if one is stored. A file that cannot be read counts as empty.
    pub fn key(&self) -> Option<ApiKey> {
        let table = read(self.file.as_ref()?).ok()?;
        table.get(&self.server)?.as_str()?.parse().ok()
    }

    /// Whether a key is stored.
    pub fn has_key(&self) -> bool {
        self.key().is_some()
    }

    /// Stores a key, and replaces an older one. Returns the file.
    pub fn store(&self, key: &str) -> Result<&Path, StoreError> {
        let key = Value::String(key.to_owned());
        self.change(|keys| {
            keys.insert(self.server.clone(), key);
        })
    }

    /// Deletes the key.
    pub fn delete(&self) -> Result<(), StoreError> {
        if !self.has_key() {
            return Ok(());
        }
        self.change(|keys| {
            keys.remove(&self.server);
        })?;
        Ok(())
    }

    fn change(&self, change: impl FnOnce(&mut Table)) -> Result<&Path, StoreError> {
        let file = self.file.as_deref().ok_or(StoreError::NoDirectory)?;
        let changed = || {
            let mut keys = read(file)?;
            change(&mut keys);
            write(file, &keys)
        };
        changed().map_err(|error| StoreError::Io { file: file.to_owned(), error })?;
        Ok(file)
    }
}

/// The user's configuration directory, from environment variables.
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
        // The parser's message would quote the line, which has a key.
        Ok(text) => {
            text.parse().map_err(|_| io::Error::other("the file is not TOML; correct or delete it"))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Table::new()),
        Err(error) => Err(error),
    }
}

/// Writes a new file and renames it over the old one, so that a full disk loses no keys.
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
    // URLs and keys are visible ASCII, for which a JSON string is also a TOML string.
    let lines = keys.iter().filter_map(|(server, key)| {
        let [server, key] = [server, key.as_str()?].map(serde_json::Value::from);
        Some(format!("{server} = {key}\n"))
    });
    let text: String = lines.collect();
    let written = options.open(&draft).and_then(|mut draft| draft.write_all(text.as_bytes()));
    written.and_then(|()| fs::rename(&draft, file)).inspect_err(|_| {
        // Failing to remove the draft does not matter.
        let _ = fs::remove_file(&draft);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A new directory for a test.
    fn scratch(name: &str) -> PathBuf {
        let directory = format!("threadway-credentials-{}-{name}", std::process::id());
        let directory = std::env::temp_dir().join(directory);
        let _ = fs::remove_dir_all(&directory);
        directory
    }

    fn of(directory: &Path, server: &str) -> Credentials {
        Credentials::new(Some(directory), &server.parse().unwrap())
    }

    #[test]
    fn each_server_has_its_own_key() {
        let directory = scratch("each");
        let (a, b) = (of(&directory, "http://a"), of(&directory, "http://b"));
        assert!(!a.has_key());
        a.delete().unwrap();
        assert!(!directory.exists(), "deleting no key writes no file");
        a.store("first \"key\"\\").unwrap();
        let file = b.store("other").unwrap().to_owned();
        a.store("second").unwrap();
        let kept = fs::read_to_string(&file).unwrap();
        assert_eq!(kept, "\"http://a\" = \"second\"\n\"http://b\" = \"other\"\n");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        }
        let gateway = Credentials::of_gateway(Some(&directory), &"http://b".parse().unwrap());
        assert!(!gateway.has_key(), "a gateway does not get the key of a LangGraph server");
        a.delete().unwrap();
        assert!(!a.has_key() && b.has_key());
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_malformed_file_is_neither_changed_nor_quoted() {
        let directory = scratch("garbage");
        let ours = of(&directory, "http://a");
        let file = ours.store("x").unwrap().to_owned();
        fs::write(&file, "\"http://a\" = \"secret").unwrap();
        assert!(!ours.has_key());
        let error = ours.store("y").unwrap_err().to_string();
        assert!(error.contains("not TOML") && !error.contains("secret"), "{error}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "\"http://a\" = \"secret");
        let nowhere = Credentials::new(None, &"http://a".parse().unwrap());
        assert!(matches!(nowhere.store("x"), Err(StoreError::NoDirectory)));
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_directory_is_absolute() {
        let of = |xdg: Option<&str>, home: Option<&str>| {
            directory(|name| match name {
                "XDG_CONFIG_HOME" => xdg.map(PathBuf::from),
                "HOME" => home.map(PathBuf::from),
                _ => None,
            })
        };
        if cfg!(not(windows)) {
            assert_eq!(of(Some("/x"), Some("/h")), Some(PathBuf::from("/x")));
            assert_eq!(of(Some("x"), Some("/h")), Some(PathBuf::from("/h/.config")));
            assert_eq!(of(None, None), None);
        }
    }
}
