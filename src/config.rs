//! What the operator has said, from three places, as what it means.
//!
//! A flag beats the environment, which beats the config file, which beats the default. All
//! mistakes are found before anything is done.

mod acp;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use toml::{Table, Value};
use tracing_subscriber::EnvFilter;

pub use acp::Acp;

use crate::cli;
use crate::runs::OwnerPolicy;
use crate::server::{Limits, MIN_HEADER_BYTES};
use crate::upstream::{ApiKey, BaseUrl, BaseUrlError, NotAKey};

/// Where the gateway listens: only this machine, until someone decides otherwise.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:8484";

/// What is logged: one line per run, and what went wrong.
pub const DEFAULT_LOG: &str = "info";

/// The name of an upstream that has none.
pub const DEFAULT_UPSTREAM: &str = "default";

/// The most that a limit in bytes may be: beyond it the limit would be none.
const MOST_BYTES: usize = 1024 * 1024 * 1024;

/// The most that a limit in seconds may be.
const MOST_SECONDS: usize = 3_600;

/// How long the owner of a run may be gone: a page reloads in seconds, a phone that changes its
/// network takes some more.
const DEFAULT_OWNER_GRACE_SECONDS: usize = 30;

/// The most connections that may be allowed: more than a system's ports and file descriptors.
const MOST_CONNECTIONS: usize = 1_000_000;

/// Every key that has one name; `upstreams.NAME.url`, `upstreams.NAME.api_key` and `agents.ALIAS`
/// are the others, beside the table `acp`, which has a form of its own.
const KEYS: [&str; 11] = [
    "listen",
    "log",
    "on_owner_disconnect",
    "upstream.url",
    "upstream.api_key",
    "limits.body_bytes",
    "limits.header_bytes",
    "limits.header_timeout_seconds",
    "limits.connections",
    "limits.log_bytes",
    "limits.owner_grace_seconds",
];

/// How the gateway is to serve.
#[derive(Debug)]
pub struct Config {
    /// Where to listen.
    pub listen: SocketAddr,
    /// The LangGraph servers, at least one.
    pub upstreams: Vec<Upstream>,
    /// Other names for agents: the alias, and the agent's own name.
    pub aliases: Vec<(String, String)>,
    /// What a client may ask at most.
    pub limits: Limits,
    /// How ACP shows the agents.
    pub acp: Acp,
    /// What to log.
    pub log: EnvFilter,
}

/// A LangGraph server.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// What its agents' names begin with, where there are several.
    pub name: String,
    /// Where it is.
    pub url: BaseUrl,
    /// The key that it wants.
    pub api_key: Option<ApiKey>,
}

/// What was given, by key, of one place or of several laid over each other.
#[derive(Clone, Debug, Default)]
struct Raw {
    given: BTreeMap<String, Given>,
    /// The table `acp`: only a file has it.
    acp: Acp,
}

/// A value, and where it was given.
#[derive(Clone, PartialEq, Eq)]
struct Given {
    place: String,
    value: String,
}

/// One thing that is wrong with the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    place: String,
    /// What was given; `None` if nothing was, or if it is a secret.
    value: Option<String>,
    expected: String,
}

/// The mistakes found so far.
#[derive(Debug, Default)]
struct Mistakes(Vec<Mistake>);

// === impl Config ===

impl Config {
    /// Reads the configuration; all mistakes at once.
    pub fn read(options: &cli::Options, log: Option<&str>) -> Result<Self, Vec<Mistake>> {
        let mut mistakes = Mistakes::default();
        let filed = match &options.config {
            Some(path) => Raw::read_file(path, &mut mistakes),
            None => Raw::default(),
        };
        if !mistakes.0.is_empty() && filed.given.is_empty() {
            // Without the file nothing can be said of what is missing.
            return Err(mistakes.0);
        }
        let config = Raw::typed(options, log).over(filed).check(&mut mistakes);
        match config {
            Some(config) if mistakes.0.is_empty() => Ok(config),
            Some(_) | None => Err(mistakes.0),
        }
    }
}

/// What to log, if only the command line can say.
pub fn log_filter(log: Option<&str>) -> Result<EnvFilter, Mistake> {
    let default = Given::new("the default", DEFAULT_LOG);
    log.map_or(default, |value| Given::new("--log (THREADWAY_LOG)", value)).log_filter()
}

// === impl Raw ===

impl Raw {
    /// Each of them may also come from the environment, under the flag's name.
    fn typed(options: &cli::Options, log: Option<&str>) -> Self {
        let cli::Options { upstream, upstream_api_key, listen, config: _, limits } = options;
        let cli::Limits {
            limit_body_bytes,
            limit_header_bytes,
            limit_header_timeout_seconds,
            limit_connections,
            limit_log_bytes,
        } = limits;
        let all = [
            ("listen", "listen", listen.as_deref()),
            ("log", "log", log),
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
        ];
        let given = all.into_iter().filter_map(|(key, flag, value)| {
            let variable = flag.replace('-', "_").to_uppercase();
            let place = format!("--{flag} (THREADWAY_{variable})");
            // An empty variable is how compose files leave one out.
            let value = value.filter(|value| !value.is_empty())?;
            Some((key.to_owned(), Given { place, value: value.to_owned() }))
        });
        Self { given: given.collect(), acp: Acp::default() }
    }

    fn read_file(path: &Path, mistakes: &mut Mistakes) -> Self {
        let name = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Self::of_toml(&name, &text, mistakes),
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

    fn of_toml(name: &str, text: &str, mistakes: &mut Mistakes) -> Self {
        let mut table: Table = match text.parse() {
            Ok(table) => table,
            Err(error) => {
                // Not the error's own text, which quotes the line: it may hold a secret.
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
        for (key, value) in flatten(table, "") {
            let place = format!("`{key}` in {name}");
            // What stands under a key that is not known may be a secret with a slip in its name.
            let is_open = is_known(&key) && !key.ends_with(".api_key");
            let shown = serde_json::to_string(&value).ok().filter(|_| is_open);
            if !is_known(&key) {
                let keys = KEYS.map(|key| format!("`{key}`")).join(", ");
                let expected = format!(
                    "one of the keys {keys}, `upstreams.NAME.url`, `upstreams.NAME.api_key`, \
                     `agents.ALIAS`, or in the table `acp`"
                );
                mistakes.note(Mistake { place, value: shown, expected });
                continue;
            }
            let is_limit = key.starts_with("limits.");
            let text = match value {
                Value::String(text) => Some(text),
                Value::Integer(number) if is_limit => Some(number.to_string()),
                Value::Integer(_)
                | Value::Float(_)
                | Value::Boolean(_)
                | Value::Datetime(_)
                | Value::Array(_)
                | Value::Table(_) => None,
            };
            let Some(value) = text else {
                let expected = if is_limit { "a whole number" } else { "a string" }.to_owned();
                mistakes.note(Mistake { place, value: shown, expected });
                continue;
            };
            raw.given.insert(key, Given { place, value });
        }
        raw
    }

    /// What this says, and else what the other does.
    ///
    /// An upstream that is given here takes the place of all of the other's: a key belongs to
    /// the server that it was given for, and an alias of several to those.
    fn over(mut self, mut other: Self) -> Self {
        if self.given.contains_key("upstream.url") {
            let has_several = other.given.keys().any(|key| key.starts_with("upstreams."));
            let is_replaced = |key: &str| {
                key.starts_with("upstream") || (has_several && key.starts_with("agents."))
            };
            other.given.retain(|key, _| !is_replaced(key));
        }
        other.given.append(&mut self.given);
        other
    }

    fn check(mut self, mistakes: &mut Mistakes) -> Option<Config> {
        let listen = self.take("listen").unwrap_or_else(|| Given::new("", DEFAULT_LISTEN));
        let listen = mistakes.keep(listen.address());
        let upstreams = self.upstreams(mistakes);
        let aliases = self.aliases(&upstreams, mistakes);
        let limits = self.limits(mistakes);
        let log = self.take("log").unwrap_or_else(|| Given::new("", DEFAULT_LOG));
        let log = mistakes.keep(log.log_filter());
        let acp = self.acp;
        Some(Config { listen: listen?, upstreams, aliases, limits, acp, log: log? })
    }

    fn take(&mut self, key: &str) -> Option<Given> {
        self.given.remove(key)
    }

    fn upstreams(&mut self, mistakes: &mut Mistakes) -> Vec<Upstream> {
        let names = self.given.keys().filter_map(|key| upstream_name(key));
        let mut names: Vec<_> = names.map(str::to_owned).collect();
        names.dedup();
        let prefix = |name: &str| format!("upstreams.{name}");
        let mut prefixes: Vec<_> = names.into_iter().map(|name| (prefix(&name), name)).collect();
        if self.given.keys().any(|key| key.starts_with("upstream.")) {
            if let Some((_, name)) = prefixes.first() {
                mistakes.note(Mistake {
                    place: format!("`upstreams.{name}`"),
                    value: None,
                    expected: "either `upstream` or `upstreams.NAME`, not both".to_owned(),
                });
            }
            prefixes.insert(0, ("upstream".to_owned(), DEFAULT_UPSTREAM.to_owned()));
        }
        if prefixes.is_empty() {
            mistakes.note(missing_upstream());
        }
        let read = |(prefix, name): (String, String)| self.upstream(&prefix, name, mistakes);
        prefixes.into_iter().filter_map(read).collect()
    }

    fn upstream(
        &mut self,
        prefix: &str,
        name: String,
        mistakes: &mut Mistakes,
    ) -> Option<Upstream> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if !name.bytes().all(is_plain) {
            let expected = "a name of letters, digits, `-` and `_`".to_owned();
            mistakes.note(Mistake { place: format!("`{prefix}`"), value: None, expected });
        }
        let url = match self.take(&format!("{prefix}.url")) {
            Some(url) => mistakes.keep(url.url()),
            None if prefix == "upstream" => mistakes.keep(Err(missing_upstream())),
            None => {
                let place = format!("`{prefix}.url`");
                let expected = "the URL of the LangGraph server".to_owned();
                mistakes.keep(Err(Mistake { place, value: None, expected }))
            }
        };
        let api_key = self.take(&format!("{prefix}.api_key")).map(Given::api_key);
        let api_key = api_key.and_then(|api_key| mistakes.keep(api_key));
        Some(Upstream { name, url: url?, api_key })
    }

    fn aliases(
        &mut self,
        upstreams: &[Upstream],
        mistakes: &mut Mistakes,
    ) -> Vec<(String, String)> {
        let own_name = |value: &str| match upstreams {
            [] | [_] => true,
            several => value
                .split_once(':')
                .is_some_and(|(name, _)| several.iter().any(|upstream| upstream.name == name)),
        };
        let mut aliases = Vec::new();
        for (key, given) in &self.given {
            let Some(alias) = key.strip_prefix("agents.") else { continue };
            if alias.is_empty() || alias.contains('/') {
                let expected = "a name without `/`".to_owned();
                let place = given.place.clone();
                mistakes.note(Mistake { place, value: None, expected });
            } else if own_name(&given.value) {
                aliases.push((alias.to_owned(), given.value.clone()));
            } else {
                let names = upstreams.iter().map(|upstream| format!("`{}:..`", upstream.name));
                let names = names.collect::<Vec<_>>().join(" or ");
                mistakes.note(given.clone().mistaken(format!("an agent of an upstream: {names}")));
            }
        }
        aliases
    }

    fn limits(&mut self, mistakes: &mut Mistakes) -> Limits {
        let default = Limits::default();
        let cancels = self.take("on_owner_disconnect").map(Given::cancels);
        let cancels = cancels.and_then(|cancels| mistakes.keep(cancels)).unwrap_or(false);
        let mut number = |key: &str, least: usize, most: usize, default: usize| {
            let given = self.take(&format!("limits.{key}"));
            given.and_then(|given| mistakes.keep(given.between(least, most))).unwrap_or(default)
        };
        let timeout = usize::try_from(default.header_timeout.as_secs()).unwrap_or(usize::MAX);
        let timeout = number("header_timeout_seconds", 1, MOST_SECONDS, timeout);
        Limits {
            body_bytes: number("body_bytes", 1, MOST_BYTES, default.body_bytes),
            header_bytes: number(
                "header_bytes",
                MIN_HEADER_BYTES,
                MOST_BYTES,
                default.header_bytes,
            ),
            header_timeout: Duration::from_secs(timeout as u64),
            connections: number("connections", 1, MOST_CONNECTIONS, default.connections),
            log_bytes: number("log_bytes", 0, MOST_BYTES, default.log_bytes),
            owners: {
                let seconds =
                    number("owner_grace_seconds", 0, MOST_SECONDS, DEFAULT_OWNER_GRACE_SECONDS);
                let grace = Duration::from_secs(seconds as u64);
                if cancels { OwnerPolicy::Cancel { grace } } else { OwnerPolicy::Continue }
            },
        }
    }
}

/// An address that only the command line can say.
pub fn address(place: &str, value: &str) -> Result<SocketAddr, Mistake> {
    Given::new(place, value).address()
}

fn missing_upstream() -> Mistake {
    Mistake {
        place: "--upstream".to_owned(),
        value: None,
        expected: "the URL of the LangGraph server, as --upstream http://127.0.0.1:2024 (or \
                   THREADWAY_UPSTREAM, or `upstream.url` in the config file)"
            .to_owned(),
    }
}

fn is_known(key: &str) -> bool {
    KEYS.contains(&key) || key.starts_with("agents.") || upstream_name(key).is_some()
}

/// The name in `upstreams.NAME.url` and `upstreams.NAME.api_key`.
fn upstream_name(key: &str) -> Option<&str> {
    let rest = key.strip_prefix("upstreams.")?;
    rest.strip_suffix(".url").or_else(|| rest.strip_suffix(".api_key"))
}

/// The values of a table and of those in it, by dotted key.
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

// === impl Given ===

impl Given {
    fn new(place: &str, value: &str) -> Self {
        Self { place: place.to_owned(), value: value.to_owned() }
    }

    fn parse<T: FromStr>(self, expected: &str) -> Result<T, Mistake> {
        self.value.parse().map_err(|_| self.mistaken(expected.to_owned()))
    }

    fn address(self) -> Result<SocketAddr, Mistake> {
        self.parse("an address and a port, as 127.0.0.1:8484 or [::1]:0")
    }

    fn url(self) -> Result<BaseUrl, Mistake> {
        self.value.parse().map_err(|error: BaseUrlError| match error {
            // What is too much in it may be a password.
            BaseUrlError::Extra => {
                Mistake { place: self.place, value: None, expected: error.to_string() }
            }
            BaseUrlError::NotAUrl(_) | BaseUrlError::Scheme => self.mistaken(error.to_string()),
        })
    }

    fn log_filter(self) -> Result<EnvFilter, Mistake> {
        self.parse("a log filter, as `info` or `threadway=debug,warn`")
    }

    /// Whether a run is cancelled that its owner has left.
    fn cancels(self) -> Result<bool, Mistake> {
        match &*self.value {
            "continue" => Ok(false),
            "cancel" => Ok(true),
            _ => Err(self.mistaken("`continue` or `cancel`".to_owned())),
        }
    }

    fn between(self, least: usize, most: usize) -> Result<usize, Mistake> {
        match self.value.parse() {
            Ok(value) if (least..=most).contains(&value) => Ok(value),
            Ok(_) | Err(_) => {
                Err(self.mistaken(format!("a whole number between {least} and {most}")))
            }
        }
    }

    fn api_key(self) -> Result<ApiKey, Mistake> {
        let Self { place, value } = self;
        value.parse().map_err(|error: NotAKey| Mistake {
            place,
            value: None,
            expected: error.to_string(),
        })
    }

    fn mistaken(self, expected: String) -> Mistake {
        Mistake { place: self.place, value: Some(self.value), expected }
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
    fn note(&mut self, mistake: Mistake) {
        self.0.push(mistake);
    }

    fn keep<T>(&mut self, read: Result<T, Mistake>) -> Option<T> {
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

#[cfg(test)]
mod tests;
