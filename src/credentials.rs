//! The file of servers and keys that a person has typed. Only that person can read it.
//!
//! What the environment or the configuration names takes precedence and is never written here.

use std::fmt;
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

/// The name under which the file has the typed server. All other names are URLs, those of keys.
const UPSTREAM: &str = "upstream";

/// The file of typed servers and keys.
#[derive(Clone, Debug)]
pub struct Store {
    /// `None` if the system has no configuration directory.
    file: Option<PathBuf>,
}

/// The stored key of one server.
#[derive(Clone, Debug)]
pub struct Credentials {
    store: Store,
    server: String,
    origin: UrlSource,
}

/// The key that is stored with a server.
#[derive(Clone)]
pub enum NewKey {
    /// The one that a person has typed.
    Typed(String),
    /// The server needs none: an older one is deleted.
    None,
    /// The configuration has the key, so the file is not read for it.
    Unchanged,
}

/// Where the server's URL comes from, and so how a person corrects it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UrlSource {
    /// A flag, the environment or the config file.
    Named,
    /// [`Store::typed_upstream`].
    Typed,
}

/// Why a key or a server could not be stored or deleted.
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

// === impl Store ===

impl Store {
    /// The file in the user's configuration directory.
    pub fn new(directory: Option<&Path>) -> Self {
        Self::in_file(directory, FILE)
    }

    fn in_file(directory: Option<&Path>, file: &str) -> Self {
        Self { file: directory.map(|directory| directory.join("threadway").join(file)) }
    }

    /// The server that a person has typed, for agents that are started without one. A file that
    /// cannot be read counts as empty.
    pub fn typed_upstream(&self) -> Option<BaseUrl> {
        let table = read(self.file.as_ref()?).ok()?;
        table.get(UPSTREAM)?.as_str()?.parse().ok()
    }

    /// The key of a server that a flag, the environment or the config file names.
    pub fn named(&self, server: &BaseUrl) -> Credentials {
        Credentials { store: self.clone(), server: server.to_string(), origin: UrlSource::Named }
    }

    /// The key of the server that a person has typed.
    pub fn typed(&self, server: &BaseUrl) -> Credentials {
        Credentials { origin: UrlSource::Typed, ..self.named(server) }
    }

    /// Stores a typed server in place of an older one, and its key. Returns the file.
    pub fn store_upstream(&self, server: &BaseUrl, key: &NewKey) -> Result<&Path, StoreError> {
        let server = server.to_string();
        self.change(|table| {
            match key {
                NewKey::Typed(key) => {
                    table.insert(server.clone(), Value::String(key.clone()));
                }
                NewKey::None => {
                    table.remove(&server);
                }
                NewKey::Unchanged => {}
            }
            table.insert(UPSTREAM.to_owned(), Value::String(server));
        })
    }

    fn change(&self, change: impl FnOnce(&mut Table)) -> Result<&Path, StoreError> {
        let file = self.file.as_deref().ok_or(StoreError::NoDirectory)?;
        let changed = || {
            let mut table = read(file)?;
            change(&mut table);
            write(file, &table)
        };
        changed().map_err(|error| StoreError::Io { file: file.to_owned(), error })?;
        Ok(file)
    }
}

// === impl Credentials ===

impl Credentials {
    /// The stored key of a named server, in the user's configuration directory.
    pub fn new(directory: Option<&Path>, server: &BaseUrl) -> Self {
        Store::new(directory).named(server)
    }

    /// The stored token for a gateway, in a file of its own.
    pub fn of_gateway(directory: Option<&Path>, gateway: &BaseUrl) -> Self {
        Store::in_file(directory, GATEWAYS_FILE).named(gateway)
    }

    /// The key, if one is stored. A file that cannot be read counts as empty.
    pub fn key(&self) -> Option<ApiKey> {
        let table = read(self.store.file.as_ref()?).ok()?;
        table.get(&self.server)?.as_str()?.parse().ok()
    }

    /// Whether a key is stored.
    pub fn has_key(&self) -> bool {
        self.key().is_some()
    }

    /// Whether a person has typed the server's URL, so that logging in can change it.
    pub(crate) fn is_server_typed(&self) -> bool {
        self.origin == UrlSource::Typed
    }

    /// The command that asks for the key, for messages.
    pub fn login_command(&self) -> String {
        match self.origin {
            UrlSource::Named => format!("threadway acp --upstream {} --login", self.server),
            UrlSource::Typed => "threadway acp --login".to_owned(),
        }
    }

    /// How to name another server, for messages.
    pub(crate) fn correction(&self) -> &'static str {
        match self.origin {
            UrlSource::Named => "correct --upstream",
            UrlSource::Typed => "log in again with its present URL (`threadway acp --login`)",
        }
    }

    /// Stores a key, and replaces an older one. Returns the file.
    pub fn store(&self, key: &str) -> Result<&Path, StoreError> {
        let key = Value::String(key.to_owned());
        self.store.change(|table| {
            table.insert(self.server.clone(), key);
        })
    }

    /// Deletes the key. A typed server stays.
    pub fn delete(&self) -> Result<(), StoreError> {
        if !self.has_key() {
            return Ok(());
        }
        self.store.change(|table| {
            table.remove(&self.server);
        })?;
        Ok(())
    }
}

// === impl NewKey ===

impl fmt::Debug for NewKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
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
fn write(file: &Path, table: &Table) -> io::Result<()> {
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
    let lines = table.iter().filter_map(|(name, value)| {
        let [name, value] = [name, value.as_str()?].map(serde_json::Value::from);
        Some(format!("{name} = {value}\n"))
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
    fn the_typed_server_is_stored_beside_the_keys() {
        let directory = scratch("typed");
        let store = Store::new(Some(&directory));
        assert_eq!(store.typed_upstream(), None);
        let [a, b]: [BaseUrl; 2] = ["http://a/", "http://b:1/x"].map(|url| url.parse().unwrap());
        let file = store.store_upstream(&a, &NewKey::Typed("key".to_owned())).unwrap().to_owned();
        assert_eq!(store.typed_upstream(), Some(a.clone()));
        assert!(store.typed(&a).has_key());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        }
        // Another server takes its place, and the key of the first stays.
        store.store_upstream(&b, &NewKey::None).unwrap();
        let kept = fs::read_to_string(&file).unwrap();
        assert_eq!(kept, "\"http://a\" = \"key\"\n\"upstream\" = \"http://b:1/x\"\n");
        store.named(&b).store("other").unwrap();
        store.store_upstream(&b, &NewKey::Unchanged).unwrap();
        assert!(store.named(&b).has_key());
        store.store_upstream(&b, &NewKey::None).unwrap();
        assert!(!store.named(&b).has_key(), "an empty key replaces an older one");
        store.typed(&a).delete().unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "\"upstream\" = \"http://b:1/x\"\n");
        // A name or a value that is no URL is no server.
        fs::write(&file, "upstream = \"b\"\n").unwrap();
        assert_eq!(store.typed_upstream(), None);
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
