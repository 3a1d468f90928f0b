//! The values as given by key, from flags, the environment and a file.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use toml::{Table, Value};

use super::{Acp, emit, nearest};
use crate::cli;
use crate::telemetry::{Log, NotALog};

/// The keys with a fixed name, and the kind of value of each. Not among them: those of upstreams,
/// `emit`, `agents`, `auth.keys` and the table `acp`.
pub(super) const KEYS: &[(&str, ValueKind)] = &[
    ("listen", ValueKind::Text),
    ("admin_listen", ValueKind::Text),
    ("admin_insecure", ValueKind::Switch),
    ("insecure", ValueKind::Switch),
    ("log", ValueKind::Text),
    ("audit_log", ValueKind::Text),
    ("otlp_endpoint", ValueKind::Text),
    ("watch_config", ValueKind::Switch),
    ("error_detail", ValueKind::Text),
    ("on_owner_disconnect", ValueKind::Text),
    ("on_message_while_interrupted", ValueKind::Text),
    ("multitask_strategy", ValueKind::Text),
    ("compression", ValueKind::Text),
    ("page", ValueKind::Switch),
    ("thread_routes", ValueKind::Text),
    ("hosts", ValueKind::List),
    ("record.dir", ValueKind::Text),
    ("record.files", ValueKind::Number),
    ("record.bytes", ValueKind::Number),
    ("forward_headers", ValueKind::List),
    ("forward_configurable", ValueKind::List),
    ("forward_multitask_strategies", ValueKind::List),
    ("input.lost_thread", ValueKind::Text),
    ("input.system_messages", ValueKind::Text),
    ("auth.mode", ValueKind::Text),
    ("auth.keys_file", ValueKind::Text),
    ("auth.jwks", ValueKind::Text),
    ("auth.jwks_ca_file", ValueKind::Text),
    ("auth.issuer", ValueKind::Text),
    ("auth.audience", ValueKind::List),
    ("auth.clock_skew_seconds", ValueKind::Number),
    ("auth.unknown_threads", ValueKind::Text),
    ("auth.credential_header", ValueKind::Text),
    ("cors.origins", ValueKind::List),
    ("cors.credentials", ValueKind::Switch),
    ("limits.body_bytes", ValueKind::Number),
    ("limits.header_bytes", ValueKind::Number),
    ("limits.header_timeout_seconds", ValueKind::Number),
    ("limits.connections", ValueKind::Number),
    ("limits.connections_per_peer", ValueKind::Number),
    ("limits.log_bytes", ValueKind::Number),
    ("limits.memory_bytes", ValueKind::Number),
    ("limits.owner_grace_seconds", ValueKind::Number),
    ("limits.state_reads_per_second", ValueKind::Number),
    ("limits.requests_per_second", ValueKind::Number),
    ("limits.request_burst", ValueKind::Number),
    ("limits.streams_per_caller", ValueKind::Number),
    ("limits.recursion_limit", ValueKind::Number),
];

/// The keys of one upstream, as `upstream.KEY` or `upstreams.NAME.KEY`.
const OF_UPSTREAM: [(&str, ValueKind); 7] = [
    ("url", ValueKind::Text),
    ("urls", ValueKind::List),
    ("api_key", ValueKind::Secret),
    ("forward_identity", ValueKind::Switch),
    ("ca_file", ValueKind::Text),
    ("client_certificate_file", ValueKind::Text),
    ("messages_key", ValueKind::Text),
];

/// The key under which flags and the environment give all caller keys in one value.
pub(super) const AUTH_KEYS: &str = "auth.keys";

/// The kind of value that a key takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueKind {
    Text,
    /// A text that no message repeats.
    Secret,
    Number,
    /// `true` or `false`.
    Switch,
    /// Texts without commas.
    List,
}

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
}

/// A value and where it was given.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) place: String,
    pub(super) value: String,
}

/// A mistake in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    pub(super) place: String,
    /// The given value; `None` if there is none or it may be a secret.
    pub(super) value: Option<String>,
    pub(super) expected: String,
}

/// The mistakes found so far.
#[derive(Debug, Default)]
pub(super) struct Mistakes(pub(super) Vec<Mistake>);

// === impl Raw ===

impl Raw {
    /// The values of the flags. Clap has filled in the environment variables that stand in for
    /// them.
    pub(super) fn of_flags(options: &cli::Options, log: Option<&str>) -> Self {
        let cli::Options { upstream, upstream_api_key, listen, config: _, front, limits } = options;
        let cli::Limits {
            limit_body_bytes,
            limit_header_bytes,
            limit_header_timeout_seconds,
            limit_connections,
            limit_log_bytes,
            limit_memory_bytes,
            limit_requests_per_second,
            limit_streams_per_caller,
        } = limits;
        let cli::Front {
            admin_listen,
            admin_insecure,
            auth_mode,
            auth_keys,
            auth_keys_file,
            auth_jwks,
            auth_issuer,
            auth_audience,
            cors_origins,
            hosts,
            insecure,
            system_messages,
            error_detail,
            otlp_endpoint,
            page,
            audit_log,
            record,
            watch_config,
        } = front;
        let switch = |is_on: &bool| is_on.then_some("true");
        let all = [
            ("listen", "listen", listen.as_deref()),
            ("admin_listen", "admin-listen", admin_listen.as_deref()),
            ("admin_insecure", "admin-insecure", switch(admin_insecure)),
            ("insecure", "insecure", switch(insecure)),
            ("log", "log", log),
            ("otlp_endpoint", "otlp-endpoint", otlp_endpoint.as_deref()),
            ("page", "page", page.as_deref()),
            ("audit_log", "audit-log", audit_log.as_deref()),
            ("record.dir", "record", record.as_deref()),
            ("watch_config", "watch-config", switch(watch_config)),
            ("error_detail", "error-detail", error_detail.as_deref()),
            ("input.system_messages", "system-messages", system_messages.as_deref()),
            ("auth.mode", "auth-mode", auth_mode.as_deref()),
            (AUTH_KEYS, "auth-keys", auth_keys.as_deref()),
            ("auth.keys_file", "auth-keys-file", auth_keys_file.as_deref()),
            ("auth.jwks", "auth-jwks", auth_jwks.as_deref()),
            ("auth.issuer", "auth-issuer", auth_issuer.as_deref()),
            ("auth.audience", "auth-audience", auth_audience.as_deref()),
            ("cors.origins", "cors-origins", cors_origins.as_deref()),
            ("hosts", "hosts", hosts.as_deref()),
            ("upstream.url", "upstream", upstream.as_deref()),
            ("upstream.api_key", "upstream-api-key", upstream_api_key.as_deref()),
            ("limits.body_bytes", "limit-body-bytes", limit_body_bytes.as_deref()),
            ("limits.header_bytes", "limit-header-bytes", limit_header_bytes.as_deref()),
            (
                "limits.header_timeout_seconds",
                "limit-header-timeout-seconds",
                limit_header_timeout_seconds.as_deref(),
            ),
            ("limits.connections", "limit-connections", limit_connections.as_deref()),
            ("limits.log_bytes", "limit-log-bytes", limit_log_bytes.as_deref()),
            ("limits.memory_bytes", "limit-memory-bytes", limit_memory_bytes.as_deref()),
            (
                "limits.requests_per_second",
                "limit-requests-per-second",
                limit_requests_per_second.as_deref(),
            ),
            (
                "limits.streams_per_caller",
                "limit-streams-per-caller",
                limit_streams_per_caller.as_deref(),
            ),
        ];
        let given = all.into_iter().filter_map(|(key, flag, value)| {
            let variable = flag.replace('-', "_").to_uppercase();
            let place = format!("--{flag} (THREADWAY_{variable})");
            // Compose files set a variable empty to leave it out.
            let value = value.filter(|value| !value.is_empty())?;
            Some((key.to_owned(), Given { place, value: value.to_owned() }))
        });
        Self { given: given.collect(), ..Self::default() }
    }

    /// The values of a file.
    pub(super) fn read_file(path: &Path, mistakes: &mut Mistakes) -> Self {
        let name = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => {
                Self { files: vec![path.to_owned()], ..Self::of_toml(&name, &text, mistakes) }
            }
            Err(error) => {
                mistakes.note(Mistake {
                    place: "--config (THREADWAY_CONFIG)".to_owned(),
                    value: Some(name),
                    expected: format!("a file that can be read ({error})"),
                });
                Self::default()
            }
        }
    }

    /// The values of a file's text. `name` is the file's name for messages.
    pub(super) fn of_toml(name: &str, text: &str, mistakes: &mut Mistakes) -> Self {
        let mut table: Table = match text.parse() {
            Ok(table) => table,
            Err(error) => {
                // The error's own text quotes the line, which may hold a secret.
                let before = error.span().and_then(|span| text.get(..span.start));
                let line = before.map_or(1, |before| before.lines().count().max(1));
                let expected = format!("TOML ({}, at line {line})", error.message().trim_end());
                mistakes.note(Mistake { place: name.to_owned(), value: None, expected });
                return Self::default();
            }
        };
        let mut raw = Self::default();
        if let Some(acp) = table.remove("acp") {
            let read = Acp::read(acp).map_err(|expected| Mistake {
                place: format!("`acp` in {name}"),
                value: None,
                expected,
            });
            raw.acp = mistakes.keep(read).unwrap_or_default();
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
                Ok(value) => {
                    raw.given.insert(key, Given { place, value });
                }
                Err((value, expected)) => mistakes.note(Mistake { place, value, expected }),
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
        other
    }

    /// Reads a file that a key names.
    pub(super) fn read_named<T>(
        &mut self,
        given: &Given,
        read: impl FnOnce(&Path) -> std::io::Result<T>,
    ) -> Result<T, Mistake> {
        let path = PathBuf::from(&given.value);
        let text = read(&path);
        self.files.push(path);
        text.map_err(|error| given.clone().mistaken(format!("a file that can be read ({error})")))
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
    pub(super) fn is_on(&mut self, key: &str, mistakes: &mut Mistakes) -> bool {
        let given = self.take(key).map(|given| given.parse("`true` or `false`"));
        given.and_then(|given| mistakes.keep(given)).unwrap_or(false)
    }

    pub(super) fn number(
        &mut self,
        key: &str,
        least: usize,
        most: usize,
        mistakes: &mut Mistakes,
    ) -> Option<usize> {
        let given = self.take(key)?;
        mistakes.keep(given.between(least, most))
    }
}

/// A value of the file as text. The error has what may be shown of the value, and what was
/// expected.
fn read(path: &[String], value: &Value) -> Result<String, (Option<String>, String)> {
    let Some(form) = kind_of(path) else {
        // The value of an unknown key may be a secret under a misspelt name.
        let expected = if is_table(path) {
            "a table, as in config.toml.example".to_owned()
        } else {
            let near = near(path).map(|near| format!(", such as `{near}`"));
            format!("a key of config.toml.example{}", near.unwrap_or_default())
        };
        return Err((None, expected));
    };
    let text = match (form, value) {
        (_, Value::String(text)) => Some(text.clone()),
        (ValueKind::Number, Value::Integer(number)) => Some(number.to_string()),
        (ValueKind::Switch, Value::Boolean(is_on)) => Some(is_on.to_string()),
        (ValueKind::List, Value::Array(items)) => {
            let texts: Option<Vec<_>> = items.iter().map(Value::as_str).collect();
            texts.map(|texts| texts.join(","))
        }
        _ => None,
    };
    text.ok_or_else(|| {
        let shown = serde_json::to_string(value).ok().filter(|_| form != ValueKind::Secret);
        let expected = match form {
            ValueKind::Text | ValueKind::Secret => "a string",
            ValueKind::Number => "a whole number",
            ValueKind::Switch => "`true` or `false`",
            ValueKind::List => "a list of strings",
        };
        (shown, expected.to_owned())
    })
}

/// The kind of value that the key at this path takes. `None` for an unknown key.
fn kind_of(path: &[String]) -> Option<ValueKind> {
    let parts: Vec<_> = path.iter().map(String::as_str).collect();
    match *parts.as_slice() {
        ["emit", option] | ["agents", _, "emit", option] => return emit::kind_of(option),
        // An alias, or a table of an agent. Names of agents may hold dots.
        ["agents", _] | ["agents", _, "agent" | "messages_key"] => return Some(ValueKind::Text),
        ["auth", "keys", name, ..] if !name.is_empty() => return Some(ValueKind::Secret),
        _ => {}
    }
    let key = path.join(".");
    if let Some((_, form)) = KEYS.iter().find(|(known, _)| *known == key) {
        return Some(*form);
    }
    let (_, key) = of_upstream(&key)?;
    if key.strip_prefix("headers.").is_some_and(|name| !name.is_empty()) {
        return Some(ValueKind::Secret);
    }
    OF_UPSTREAM.iter().find(|(known, _)| *known == key).map(|(_, form)| *form)
}

/// The known key that an unknown one at this path probably stands for.
fn near(path: &[String]) -> Option<String> {
    let of_upstream = || OF_UPSTREAM.iter().map(|(key, _)| *key).chain(["headers"]);
    let (last, table) = path.split_last()?;
    let parts: Vec<_> = table.iter().map(String::as_str).collect();
    let found = match *parts.as_slice() {
        ["emit"] | ["agents", _, "emit"] => nearest(last, emit::KEYS.map(|(key, _)| key)),
        ["agents", _] => nearest(last, ["agent", "messages_key", "emit"]),
        ["upstream"] | ["upstreams", _] => nearest(last, of_upstream()),
        _ => return nearest(&path.join("."), KEYS.iter().map(|(key, _)| *key)).map(str::to_owned),
    };
    found.map(|found| [parts.as_slice(), &[found]].concat().join("."))
}

/// Whether the path is that of a table with known keys.
fn is_table(path: &[String]) -> bool {
    let parts: Vec<_> = path.iter().map(String::as_str).collect();
    let is_first = |name: &str| {
        KEYS.iter().any(|(key, _)| key.split_once('.').is_some_and(|(table, _)| table == name))
    };
    match *parts.as_slice() {
        ["upstream" | "upstreams" | "emit" | "agents" | "acp"]
        | ["auth", "keys"]
        | ["upstream", "headers"]
        | ["upstreams" | "agents", _]
        | ["upstreams", _, "headers"]
        | ["agents", _, "emit"] => true,
        [name] => is_first(name),
        _ => false,
    }
}

/// Splits a key of an upstream into the prefix, `upstream` or `upstreams.NAME`, and the rest.
pub(super) fn of_upstream(key: &str) -> Option<(&str, &str)> {
    if let Some(rest) = key.strip_prefix("upstream.") {
        return Some(("upstream", rest));
    }
    let rest = key.strip_prefix("upstreams.")?;
    // A name may hold dots, and so may the rest: the first known key ends the name.
    let ends =
        OF_UPSTREAM.iter().filter_map(|(known, _)| rest.strip_suffix(known)?.strip_suffix('.'));
    let before_headers = rest.split_once(".headers.").map(|(name, _)| name);
    let name = before_headers.or_else(|| ends.into_iter().next())?;
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
        Self { place: place.to_owned(), value: value.to_owned() }
    }

    pub(super) fn parse<T: FromStr>(self, expected: &str) -> Result<T, Mistake> {
        self.value.parse().map_err(|_| self.mistaken(expected.to_owned()))
    }

    /// An address and a port. A port alone, or with `localhost`, is on the loopback address.
    pub(super) fn address(self) -> Result<SocketAddr, Mistake> {
        let rest = self.value.strip_prefix("localhost").unwrap_or(&self.value);
        let port = rest.strip_prefix(':').or_else(|| (rest == self.value).then_some(rest));
        let is_number = |port: &&str| port.bytes().all(|byte| byte.is_ascii_digit());
        if let Some(Ok(port)) = port.filter(is_number).map(str::parse) {
            return Ok((Ipv4Addr::LOCALHOST, port).into());
        }
        self.parse("an address and a port, such as 127.0.0.1:8484 or [::1]:0, or a port alone")
    }

    pub(super) fn log(self) -> Result<Log, Mistake> {
        self.value.parse().map_err(|error: NotALog| self.mistaken(error.to_string()))
    }

    pub(super) fn one_of<T: Copy>(self, words: &[(&str, T)]) -> Result<T, Mistake> {
        let found = words.iter().find(|(word, _)| *word == self.value);
        found.map(|(_, meaning)| *meaning).ok_or_else(|| {
            let words: Vec<_> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
            self.mistaken(words.join(" or "))
        })
    }

    pub(super) fn between(self, least: usize, most: usize) -> Result<usize, Mistake> {
        match self.value.parse() {
            Ok(value) if (least..=most).contains(&value) => Ok(value),
            Ok(_) | Err(_) => {
                Err(self.mistaken(format!("a whole number between {least} and {most}")))
            }
        }
    }

    /// The items of a comma-separated list.
    pub(super) fn items(&self) -> impl Iterator<Item = &str> {
        self.value.split(',').map(str::trim).filter(|item| !item.is_empty())
    }

    /// A mistake that shows the value.
    pub(super) fn mistaken(self, expected: impl Into<String>) -> Mistake {
        Mistake { place: self.place, value: Some(self.value), expected: expected.into() }
    }

    /// A mistake that hides the value, which may be a secret.
    pub(super) fn hidden(self, expected: impl Into<String>) -> Mistake {
        Mistake { place: self.place, value: None, expected: expected.into() }
    }
}

impl fmt::Debug for Given {
    /// The value may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, value: _ } = self;
        f.debug_struct("Given").field("place", place).finish_non_exhaustive()
    }
}

// === impl Mistakes ===

impl Mistakes {
    pub(super) fn note(&mut self, mistake: Mistake) {
        self.0.push(mistake);
    }

    pub(super) fn keep<T>(&mut self, read: Result<T, Mistake>) -> Option<T> {
        read.map_err(|mistake| self.note(mistake)).ok()
    }
}

// === impl Mistake ===

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, value, expected } = self;
        match value {
            Some(value) => write!(f, "{place} is {value}; expected {expected}"),
            None => write!(f, "{place}: expected {expected}"),
        }
    }
}
