//! The values as given by key, from flags, the environment and a file.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use toml::{Table, Value};

use super::Acp;
use super::flags::Options;
use super::keys::{self, ConfigKey, KEYS, ValueKind};
use crate::nearest::nearest;
use crate::telemetry::{Log, NotALog};

/// The key under which flags and the environment give all caller keys in one value.
pub(super) const AUTH_KEYS: &str = "auth.keys";

/// Values by key, from one source or from several merged.
#[derive(Clone, Debug, Default)]
pub(super) struct Raw {
    pub(super) given: BTreeMap<String, Given>,
    /// The table `acp`, which only a file has.
    pub(super) acp: Acp,
    /// The upstreams of a file, as `upstream` or `upstreams.NAME`, in order.
    pub(super) upstreams: Vec<String>,
    /// The files that were read.
    pub(super) files: Vec<PathBuf>,
    /// The mistakes found so far.
    pub(super) mistakes: Vec<ConfigError>,
}

/// A value and where it was given.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) place: String,
    pub(super) value: String,
    pub(super) kind: ValueKind,
}

/// A mistake in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    pub(super) place: String,
    /// The given value; `None` if there is none or it may be a secret.
    pub(super) value: Option<String>,
    pub(super) expected: String,
}

// === impl Raw ===

impl Raw {
    /// The values of the flags. Clap has filled in the environment variables that stand in for
    /// them.
    pub(super) fn of_flags(options: &Options, log: Option<&str>) -> Self {
        // Compose files set a variable empty to leave it out.
        let values = options.values().chain(log.map(|log| ("log", log)));
        let given = values.filter(|(_, value)| !value.is_empty()).filter_map(|(name, value)| {
            let key = keys::find(name)?;
            let flag = key.flag_name()?;
            let place = format!("--{flag} ({})", keys::variable(flag));
            // A flag gives the values for all names at once.
            let name = name.trim_end_matches(".NAME").to_owned();
            Some((name, Given { place, value: value.to_owned(), kind: key.kind }))
        });
        Self { given: given.collect(), ..Self::default() }
    }

    /// The values of a file.
    pub(super) fn read_file(path: &Path) -> Self {
        let name = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Self { files: vec![path.to_owned()], ..Self::of_toml(&name, &text) },
            Err(error) => Self::mistaken(ConfigError {
                place: "--config (THREADWAY_CONFIG)".to_owned(),
                value: Some(name),
                expected: format!("a file that can be read ({error})"),
            }),
        }
    }

    fn mistaken(mistake: ConfigError) -> Self {
        Self { mistakes: vec![mistake], ..Self::default() }
    }

    /// The values of a file's text. `name` is the file's name for messages.
    pub(super) fn of_toml(name: &str, text: &str) -> Self {
        let mut table: Table = match text.parse() {
            Ok(table) => table,
            Err(error) => {
                // The error's own text quotes the line, which may hold a secret.
                let before = error.span().and_then(|span| text.get(..span.start));
                let line = before.map_or(1, |before| before.lines().count().max(1));
                let expected = format!("TOML ({}, at line {line})", error.message().trim_end());
                return Self::mistaken(ConfigError {
                    place: name.to_owned(),
                    value: None,
                    expected,
                });
            }
        };
        let mut raw = Self::default();
        if let Some(acp) = table.remove("acp") {
            let read = Acp::read(acp).map_err(|expected| ConfigError {
                place: format!("`acp` in {name}"),
                value: None,
                expected,
            });
            raw.acp = raw.keep(read).unwrap_or_default();
        }
        for (path, value) in flatten(table, &[]) {
            let key = path.join(".");
            let place = format!("`{key}` in {name}");
            let upstream = match path.as_slice() {
                // A server's table may be empty, which is a mistake of its own.
                [upstreams, name, ..] if upstreams == "upstreams" && value.is_table() => {
                    Some(format!("upstreams.{name}"))
                }
                _ => of_upstream(&key).map(|(upstream, _)| upstream.to_owned()),
            };
            if let Some(upstream) = upstream
                && !raw.upstreams.contains(&upstream)
            {
                raw.upstreams.push(upstream);
            }
            if value.is_table() && is_table(&path) {
                continue;
            }
            match read(&path, &value) {
                Ok((kind, value)) => {
                    raw.given.insert(key, Given { place, value, kind });
                }
                Err((value, expected)) => raw.note(ConfigError { place, value, expected }),
            }
        }
        raw
    }

    /// Merges two sources; values of `self` win.
    ///
    /// An upstream in `self` replaces all upstreams of `other`, because a key must go only to the
    /// server it was given for. Caller keys replace all caller keys in the same way.
    pub(super) fn over(mut self, mut other: Self) -> Self {
        if self.given.contains_key("upstream.url") {
            let has_several = other.given.keys().any(|key| key.starts_with("upstreams."));
            let is_replaced = |key: &str| {
                key.starts_with("upstream") || (has_several && key.starts_with("agents."))
            };
            other.given.retain(|key, _| !is_replaced(key));
            other.upstreams.clear();
        }
        if self.given.keys().any(|key| key.starts_with(AUTH_KEYS)) {
            other.given.retain(|key, _| !key.starts_with(AUTH_KEYS));
        }
        other.given.append(&mut self.given);
        other.mistakes.append(&mut self.mistakes);
        other
    }

    /// Reads a file that a key names.
    pub(super) fn read_named<T>(
        &mut self,
        given: &Given,
        read: impl FnOnce(&Path) -> std::io::Result<T>,
    ) -> Result<T, ConfigError> {
        let path = PathBuf::from(&given.value);
        let text = read(&path);
        self.files.push(path);
        text.map_err(|error| given.clone().mistaken(format!("a file that can be read ({error})")))
    }

    pub(super) fn note(&mut self, mistake: ConfigError) {
        self.mistakes.push(mistake);
    }

    pub(super) fn keep<T>(&mut self, read: Result<T, ConfigError>) -> Option<T> {
        read.map_err(|mistake| self.note(mistake)).ok()
    }

    pub(super) fn take(&mut self, key: &str) -> Option<Given> {
        self.given.remove(key)
    }

    /// All values whose key begins with the prefix, with the rest of the key.
    pub(super) fn take_all(&mut self, prefix: &str) -> Vec<(String, Given)> {
        let rest = |key: &str| key.strip_prefix(prefix).map(str::to_owned);
        let keys: Vec<_> =
            self.given.keys().filter(|key| key.starts_with(prefix)).cloned().collect();
        keys.into_iter().filter_map(|key| Some((rest(&key)?, self.given.remove(&key)?))).collect()
    }

    /// Whether a switch is on.
    pub(super) fn is_on(&mut self, key: &str) -> bool {
        let given = self.take(key).map(|given| given.parse("`true` or `false`"));
        given.and_then(|given| self.keep(given)).unwrap_or(false)
    }

    /// A number within the bounds of its key.
    pub(super) fn number<T: TryFrom<u64>>(&mut self, key: &str) -> Option<T> {
        let given = self.take(key)?;
        self.keep(given.number())
    }

    /// What one of the words means.
    pub(super) fn word<T: Copy>(&mut self, key: &str, words: &[(&str, T)]) -> Option<T> {
        let given = self.take(key)?;
        self.keep(given.one_of(words))
    }
}

/// A value of the file as text. The error has what may be shown of the value, and what was
/// expected.
fn read(path: &[String], value: &Value) -> Result<(ValueKind, String), (Option<String>, String)> {
    let Some(ConfigKey { kind, .. }) = row(path) else {
        // The value of an unknown key may be a secret under a misspelt name.
        let expected = if is_table(path) {
            "a table, as in config.toml.example".to_owned()
        } else {
            let near = near(path).map(|near| format!(", such as `{near}`"));
            format!("a key of config.toml.example{}", near.unwrap_or_default())
        };
        return Err((None, expected));
    };
    let text = match (kind, value) {
        (_, Value::String(text)) => Some(text.clone()),
        (ValueKind::Number(..), Value::Integer(number)) => Some(number.to_string()),
        (ValueKind::Switch, Value::Boolean(is_on)) => Some(is_on.to_string()),
        (ValueKind::List, Value::Array(items)) => {
            let texts: Option<Vec<_>> = items.iter().map(Value::as_str).collect();
            texts.map(|texts| texts.join(","))
        }
        _ => None,
    };
    text.map(|text| (*kind, text)).ok_or_else(|| {
        let shown = serde_json::to_string(value).ok().filter(|_| *kind != ValueKind::Secret);
        let expected = match kind {
            ValueKind::Text | ValueKind::Secret | ValueKind::Acp => "a string",
            ValueKind::Number(..) => "a whole number",
            ValueKind::Switch => "`true` or `false`",
            ValueKind::List => "a list of strings",
        };
        (shown, expected.to_owned())
    })
}

/// The path as rows have it: `NAME` for a name that the operator chooses, and the path of the table
/// that the tables of an upstream and of an agent stand for.
fn general<'a>(path: &[&'a str]) -> Vec<&'a str> {
    match path {
        ["upstreams"] => vec!["upstream"],
        ["upstreams", _, rest @ ..] => general(&[&["upstream"][..], rest].concat()),
        ["upstream", "headers", _, ..] => vec!["upstream", "headers", "NAME"],
        ["agents", _, "emit", rest @ ..] => [&["emit"][..], rest].concat(),
        ["agents", _, rest @ ..] => [&["agents", "NAME"][..], rest].concat(),
        ["auth", "keys", name, ..] if !name.is_empty() => vec!["auth", "keys", "NAME"],
        _ => path.to_vec(),
    }
}

/// The row of the key at this path. `None` for an unknown key.
fn row(path: &[String]) -> Option<&'static ConfigKey> {
    let parts: Vec<_> = path.iter().map(String::as_str).collect();
    let found = match *parts.as_slice() {
        ["agents", _] => keys::find("agents.NAME.agent"),
        _ => keys::find(&general(&parts).join(".")),
    };
    // A name may hold dots.
    let with_dots = || {
        let joined = path.join(".");
        let (_, rest) = of_upstream(&joined)?;
        let parts: Vec<_> = ["upstream"].into_iter().chain(rest.split('.')).collect();
        keys::find(&general(&parts).join("."))
    };
    // Serde reads the table `acp`: a quoted key outside of it is none of its keys.
    found.or_else(with_dots).filter(|key| key.kind != ValueKind::Acp)
}

/// The known key that an unknown one at this path probably stands for.
fn near(path: &[String]) -> Option<String> {
    let (last, table) = path.split_last()?;
    let parts: Vec<_> = table.iter().map(String::as_str).collect();
    let rows = KEYS.iter().map(|key| key.name);
    match *parts.as_slice() {
        ["emit" | "upstream"] | ["agents" | "upstreams", _] | ["agents", _, "emit"] => {
            let table = general(&parts).join(".");
            let below = |name: &'static str| {
                name.strip_prefix(&*table)?.strip_prefix('.')?.split('.').next()
            };
            let of_agent = matches!(*parts, ["agents", _]).then_some("emit");
            let found = nearest(last, rows.filter_map(below).chain(of_agent))?;
            Some([parts.as_slice(), &[found]].concat().join("."))
        }
        _ => {
            let is_elsewhere = |name: &&str| {
                ["upstream.", "agents.", "emit.", "acp."].iter().any(|t| name.starts_with(t))
                    || name.contains("NAME")
            };
            nearest(&path.join("."), rows.filter(|name| !is_elsewhere(name))).map(str::to_owned)
        }
    }
}

/// Whether the path is that of a table with known keys.
fn is_table(path: &[String]) -> bool {
    let parts: Vec<_> = path.iter().map(String::as_str).collect();
    let table = general(&parts).join(".") + ".";
    KEYS.iter().any(|key| key.name.starts_with(&table))
}

/// Splits a key of an upstream into the prefix, `upstream` or `upstreams.NAME`, and the rest.
pub(super) fn of_upstream(key: &str) -> Option<(&str, &str)> {
    if let Some(rest) = key.strip_prefix("upstream.") {
        return Some(("upstream", rest));
    }
    let rest = key.strip_prefix("upstreams.")?;
    // A name may hold dots, and so may the rest: the first known key ends the name.
    let known = KEYS.iter().filter_map(|key| key.name.strip_prefix("upstream."));
    let ends = known.filter_map(|known| rest.strip_suffix(known)?.strip_suffix('.'));
    let before_headers = rest.split_once(".headers.").map(|(name, _)| name);
    let name = before_headers.or_else(|| { ends }.next())?;
    let at = "upstreams.".len() + name.len();
    Some((key.get(..at)?, key.get(at + 1..)?))
}

/// The values of a table and of its tables, each with its path. An empty table is a value.
fn flatten(table: Table, above: &[String]) -> Vec<(Vec<String>, Value)> {
    let flat = |(key, value)| {
        let path = [above, &[key]].concat();
        match value {
            Value::Table(inner) if !inner.is_empty() => flatten(inner, &path),
            value @ (Value::String(_)
            | Value::Integer(_)
            | Value::Float(_)
            | Value::Boolean(_)
            | Value::Datetime(_)
            | Value::Array(_)
            | Value::Table(_)) => vec![(path, value)],
        }
    };
    table.into_iter().flat_map(flat).collect()
}

// === impl Given ===

impl Given {
    pub(super) fn new(place: &str, value: &str) -> Self {
        Self { place: place.to_owned(), value: value.to_owned(), kind: ValueKind::Text }
    }

    pub(super) fn parse<T: FromStr>(self, expected: &str) -> Result<T, ConfigError> {
        self.value.parse().map_err(|_| self.mistaken(expected.to_owned()))
    }

    /// An address and a port. A port alone, or with `localhost`, is on the loopback address.
    pub(super) fn address(self) -> Result<SocketAddr, ConfigError> {
        let rest = self.value.strip_prefix("localhost").unwrap_or(&self.value);
        let port = rest.strip_prefix(':').or_else(|| (rest == self.value).then_some(rest));
        let is_number = |port: &&str| port.bytes().all(|byte| byte.is_ascii_digit());
        if let Some(Ok(port)) = port.filter(is_number).map(str::parse) {
            return Ok((Ipv4Addr::LOCALHOST, port).into());
        }
        self.parse("an address and a port, such as 127.0.0.1:8484 or [::1]:0, or a port alone")
    }

    pub(super) fn log(self) -> Result<Log, ConfigError> {
        self.value.parse().map_err(|error: NotALog| self.mistaken(error.to_string()))
    }

    pub(super) fn one_of<T: Copy>(self, words: &[(&str, T)]) -> Result<T, ConfigError> {
        let found = words.iter().find(|(word, _)| *word == self.value);
        found.map(|(_, meaning)| *meaning).ok_or_else(|| {
            let words: Vec<_> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
            self.mistaken(words.join(" or "))
        })
    }

    /// A number within the bounds of its key.
    pub(super) fn number<T: TryFrom<u64>>(self) -> Result<T, ConfigError> {
        let (least, most) = match self.kind {
            ValueKind::Number(least, most) => (least, most),
            ValueKind::Text
            | ValueKind::Secret
            | ValueKind::Switch
            | ValueKind::List
            | ValueKind::Acp => (0, u64::MAX),
        };
        let number = self.value.parse().ok().filter(|number| (least..=most).contains(number));
        number
            .and_then(|number| T::try_from(number).ok())
            .ok_or_else(|| self.mistaken(format!("a whole number between {least} and {most}")))
    }

    /// The items of a comma-separated list.
    pub(super) fn items(&self) -> impl Iterator<Item = &str> {
        self.value.split(',').map(str::trim).filter(|item| !item.is_empty())
    }

    /// A mistake that shows the value.
    pub(super) fn mistaken(self, expected: impl Into<String>) -> ConfigError {
        ConfigError { place: self.place, value: Some(self.value), expected: expected.into() }
    }

    /// A mistake that hides the value, which may be a secret.
    pub(super) fn hidden(self, expected: impl Into<String>) -> ConfigError {
        ConfigError { place: self.place, value: None, expected: expected.into() }
    }
}

impl fmt::Debug for Given {
    /// The value may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, value: _, kind: _ } = self;
        f.debug_struct("Given").field("place", place).finish_non_exhaustive()
    }
}

// === impl ConfigError ===

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, value, expected } = self;
        match value {
            Some(value) => write!(f, "{place} is {value}; expected {expected}"),
            None => write!(f, "{place}: expected {expected}"),
        }
    }
}
