//! What was given, by key, in each place: flags, the environment, a file.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use toml::{Table, Value};

use super::{Acp, emit};
use crate::cli;
use crate::telemetry::{Log, NotALog};

/// Every key that has one name, and what it takes. Those of the upstreams, of `emit`, of `agents`
/// and of `auth.keys` are the others, beside the table `acp`, which has a form of its own.
pub(super) const KEYS: &[(&str, Form)] = &[
    ("listen", Form::Text),
    ("admin_listen", Form::Text),
    ("insecure", Form::Switch),
    ("log", Form::Text),
    ("audit_log", Form::Text),
    ("otlp_endpoint", Form::Text),
    ("watch_config", Form::Switch),
    ("error_detail", Form::Text),
    ("on_owner_disconnect", Form::Text),
    ("on_message_while_interrupted", Form::Text),
    ("multitask_strategy", Form::Text),
    ("compression", Form::Text),
    ("page", Form::Switch),
    ("thread_routes", Form::Text),
    ("hosts", Form::List),
    ("record.dir", Form::Text),
    ("record.files", Form::Number),
    ("record.bytes", Form::Number),
    ("forward_headers", Form::List),
    ("forward_configurable", Form::List),
    ("forward_multitask_strategies", Form::List),
    ("input.system_messages", Form::Text),
    ("auth.mode", Form::Text),
    ("auth.keys_file", Form::Text),
    ("auth.jwks", Form::Text),
    ("auth.jwks_ca_file", Form::Text),
    ("auth.issuer", Form::Text),
    ("auth.audience", Form::List),
    ("auth.clock_skew_seconds", Form::Number),
    ("auth.unknown_threads", Form::Text),
    ("auth.credential_header", Form::Text),
    ("cors.origins", Form::List),
    ("cors.credentials", Form::Switch),
    ("limits.body_bytes", Form::Number),
    ("limits.header_bytes", Form::Number),
    ("limits.header_timeout_seconds", Form::Number),
    ("limits.connections", Form::Number),
    ("limits.connections_per_peer", Form::Number),
    ("limits.log_bytes", Form::Number),
    ("limits.owner_grace_seconds", Form::Number),
    ("limits.requests_per_second", Form::Number),
    ("limits.request_burst", Form::Number),
    ("limits.streams_per_caller", Form::Number),
    ("limits.recursion_limit", Form::Number),
];

/// What one server has, as `upstream.KEY` or `upstreams.NAME.KEY`.
const OF_UPSTREAM: [(&str, Form); 6] = [
    ("url", Form::Text),
    ("api_key", Form::Secret),
    ("forward_identity", Form::Switch),
    ("ca_file", Form::Text),
    ("client_certificate_file", Form::Text),
    ("messages_key", Form::Text),
];

/// The keys of callers, as the environment gives them: all at once.
pub(super) const AUTH_KEYS: &str = "auth.keys";

/// What a key takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Text,
    /// A text that is never repeated.
    Secret,
    Number,
    /// `true` or `false`.
    Switch,
    /// Texts without commas.
    List,
}

/// What was given, by key, of one place or of several laid over each other.
#[derive(Clone, Debug, Default)]
pub(super) struct Raw {
    pub(super) given: BTreeMap<String, Given>,
    /// The table `acp`: only a file has it.
    pub(super) acp: Acp,
    /// The upstreams of a file, as `upstream` or `upstreams.NAME`, in its order.
    pub(super) upstreams: Vec<String>,
    /// The files that were read.
    pub(super) files: Vec<PathBuf>,
}

/// A value, and where it was given.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) place: String,
    pub(super) value: String,
}

/// One thing that is wrong with the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    pub(super) place: String,
    /// What was given; `None` if nothing was, or if it is a secret.
    pub(super) value: Option<String>,
    pub(super) expected: String,
}

/// The mistakes found so far.
#[derive(Debug, Default)]
pub(super) struct Mistakes(pub(super) Vec<Mistake>);

// === impl Raw ===

impl Raw {
    /// What the command line says. Each of it may also come from the environment, under the flag's
    /// name.
    pub(super) fn typed(options: &cli::Options, log: Option<&str>) -> Self {
        let cli::Options { upstream, upstream_api_key, listen, config: _, front, limits } = options;
        let cli::Limits {
            limit_body_bytes,
            limit_header_bytes,
            limit_header_timeout_seconds,
            limit_connections,
            limit_log_bytes,
            limit_requests_per_second,
            limit_streams_per_caller,
        } = limits;
        let cli::Front {
            admin_listen,
            auth_mode,
            auth_keys,
            auth_keys_file,
            auth_jwks,
            auth_issuer,
            auth_audience,
            cors_origins,
            hosts,
            insecure,
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
            ("insecure", "insecure", switch(insecure)),
            ("log", "log", log),
            ("otlp_endpoint", "otlp-endpoint", otlp_endpoint.as_deref()),
            ("page", "page", page.as_deref()),
            ("audit_log", "audit-log", audit_log.as_deref()),
            ("record.dir", "record", record.as_deref()),
            ("watch_config", "watch-config", switch(watch_config)),
            ("error_detail", "error-detail", error_detail.as_deref()),
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
            // An empty variable is how compose files leave one out.
            let value = value.filter(|value| !value.is_empty())?;
            Some((key.to_owned(), Given { place, value: value.to_owned() }))
        });
        Self { given: given.collect(), ..Self::default() }
    }

    /// What a file says.
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

    /// What the text of a file of this name says.
    pub(super) fn of_toml(name: &str, text: &str, mistakes: &mut Mistakes) -> Self {
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
            if let Some((upstream, _)) = of_upstream(&key)
                && !raw.upstreams.iter().any(|known| known == upstream)
            {
                raw.upstreams.push(upstream.to_owned());
            }
            match read(&key, &value) {
                Ok(value) => {
                    raw.given.insert(key, Given { place, value });
                }
                Err((value, expected)) => mistakes.note(Mistake { place, value, expected }),
            }
        }
        raw
    }

    /// What this says, and else what the other does.
    ///
    /// An upstream that is given here takes the place of all of the other's: a key belongs to
    /// the server that it was given for, and an alias of several to those. So do keys of callers.
    pub(super) fn over(mut self, mut other: Self) -> Self {
        if self.given.contains_key("upstream.url") {
            let has_several = other.given.keys().any(|key| key.starts_with("upstreams."));
            let is_replaced = |key: &str| {
                key.starts_with("upstream") || (has_several && key.starts_with("agents."))
            };
            other.given.retain(|key, _| !is_replaced(key));
        }
        if self.given.keys().any(|key| key.starts_with(AUTH_KEYS)) {
            other.given.retain(|key, _| !key.starts_with(AUTH_KEYS));
        }
        other.given.append(&mut self.given);
        other
    }

    /// The text of a file that a key names.
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

    /// All whose key begins so, with the rest of it.
    pub(super) fn take_all(&mut self, prefix: &str) -> Vec<(String, Given)> {
        let rest = |key: &str| key.strip_prefix(prefix).map(str::to_owned);
        let keys: Vec<_> =
            self.given.keys().filter(|key| key.starts_with(prefix)).cloned().collect();
        keys.into_iter().filter_map(|key| Some((rest(&key)?, self.given.remove(&key)?))).collect()
    }

    /// Whether something is switched on.
    pub(super) fn is_on(&mut self, key: &str, mistakes: &mut Mistakes) -> bool {
        let given = self.take(key).map(|given| given.parse("`true` or `false`"));
        given.and_then(|given| mistakes.keep(given)).unwrap_or(false)
    }

    /// A number between two.
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

/// What a value of the file says; else what may be told of it, and what was expected.
fn read(key: &str, value: &Value) -> Result<String, (Option<String>, String)> {
    let Some(form) = form(key) else {
        // What stands under a key that is not known may be a secret with a slip in its name.
        let expected = "a key that config.toml.example shows".to_owned();
        return Err((None, expected));
    };
    let text = match (form, value) {
        (_, Value::String(text)) => Some(text.clone()),
        (Form::Number, Value::Integer(number)) => Some(number.to_string()),
        (Form::Switch, Value::Boolean(is_on)) => Some(is_on.to_string()),
        (Form::List, Value::Array(items)) => {
            let texts: Option<Vec<_>> = items.iter().map(Value::as_str).collect();
            texts.map(|texts| texts.join(","))
        }
        _ => None,
    };
    text.ok_or_else(|| {
        let shown = serde_json::to_string(value).ok().filter(|_| form != Form::Secret);
        let expected = match form {
            Form::Text | Form::Secret => "a string",
            Form::Number => "a whole number",
            Form::Switch => "`true` or `false`",
            Form::List => "a list of strings",
        };
        (shown, expected.to_owned())
    })
}

fn form(key: &str) -> Option<Form> {
    if let Some((_, form)) = KEYS.iter().find(|(known, _)| *known == key) {
        return Some(*form);
    }
    if let Some(option) = key.strip_prefix("emit.") {
        return emit::form(option);
    }
    if let Some(key) = key.strip_prefix("agents.") {
        let is_option = key.contains(".emit.");
        let option = emit::of_agent(key).and_then(|(_, option)| emit::form(option));
        return if is_option { option } else { Some(Form::Text) };
    }
    if key.strip_prefix("auth.keys.").is_some_and(|name| !name.is_empty()) {
        return Some(Form::Secret);
    }
    let (_, key) = of_upstream(key)?;
    if key.strip_prefix("headers.").is_some_and(|name| !name.is_empty()) {
        return Some(Form::Secret);
    }
    OF_UPSTREAM.iter().find(|(known, _)| *known == key).map(|(_, form)| *form)
}

/// The prefix of a server's keys, as `upstream` or `upstreams.NAME`, and the key behind it.
pub(super) fn of_upstream(key: &str) -> Option<(&str, &str)> {
    if let Some(rest) = key.strip_prefix("upstream.") {
        return Some(("upstream", rest));
    }
    let rest = key.strip_prefix("upstreams.")?;
    // A name may hold dots, and so may what follows it: the first of the known ends it.
    let ends =
        OF_UPSTREAM.iter().filter_map(|(known, _)| rest.strip_suffix(known)?.strip_suffix('.'));
    let before_headers = rest.split_once(".headers.").map(|(name, _)| name);
    let name = before_headers.or_else(|| ends.into_iter().next())?;
    let at = "upstreams.".len() + name.len();
    Some((key.get(..at)?, key.get(at + 1..)?))
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
    pub(super) fn new(place: &str, value: &str) -> Self {
        Self { place: place.to_owned(), value: value.to_owned() }
    }

    pub(super) fn parse<T: FromStr>(self, expected: &str) -> Result<T, Mistake> {
        self.value.parse().map_err(|_| self.mistaken(expected.to_owned()))
    }

    /// An address and a port. A port without an address, or of `localhost`, is one of this machine.
    pub(super) fn address(self) -> Result<SocketAddr, Mistake> {
        let rest = self.value.strip_prefix("localhost").unwrap_or(&self.value);
        let port = rest.strip_prefix(':').or_else(|| (rest == self.value).then_some(rest));
        let is_number = |port: &&str| port.bytes().all(|byte| byte.is_ascii_digit());
        if let Some(Ok(port)) = port.filter(is_number).map(str::parse) {
            return Ok((Ipv4Addr::LOCALHOST, port).into());
        }
        self.parse("an address and a port, as 127.0.0.1:8484 or [::1]:0, or a port alone")
    }

    pub(super) fn log(self) -> Result<Log, Mistake> {
        self.value.parse().map_err(|error: NotALog| self.mistaken(error.to_string()))
    }

    /// One of some words.
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

    /// The items of a list.
    pub(super) fn items(&self) -> impl Iterator<Item = &str> {
        self.value.split(',').map(str::trim).filter(|item| !item.is_empty())
    }

    /// What is wrong with it, with its value.
    pub(super) fn mistaken(self, expected: impl Into<String>) -> Mistake {
        Mistake { place: self.place, value: Some(self.value), expected: expected.into() }
    }

    /// What is wrong with it, which may be a secret.
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
