//! What the operator has said, from three places, as what it means.
//!
//! A flag beats the environment, which beats the config file, which beats the default. All
//! mistakes are found before anything is done.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::str::FromStr;

use toml::{Table, Value};
use tracing_subscriber::EnvFilter;

use crate::cli;
use crate::upstream::{BaseUrl, BaseUrlError};

/// Where the gateway listens: only this machine, until someone decides otherwise.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:8484";

/// What is logged: one line per run, and what went wrong.
pub const DEFAULT_LOG: &str = "info";

/// How the gateway is to serve.
#[derive(Debug)]
pub struct Config {
    /// Where to listen.
    pub listen: SocketAddr,
    /// The LangGraph server.
    pub upstream: BaseUrl,
    /// What to log.
    pub log: EnvFilter,
}

/// What was typed, of one place or of several laid over each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct RawConfig {
    listen: Option<Given>,
    upstream: Option<Given>,
    log: Option<Given>,
}

/// A value, and where it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Given {
    key: String,
    value: String,
}

/// One thing that is wrong with the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    key: String,
    /// What was given; `None` if nothing was.
    value: Option<String>,
    expected: String,
}

// === impl Config ===

impl Config {
    /// Reads the configuration for `threadway serve`; all mistakes at once.
    pub fn read(serve: &cli::Serve, log: Option<&str>) -> Result<Self, Vec<Mistake>> {
        let mut mistakes = Vec::new();
        let typed = RawConfig::typed(serve, log);
        let filed = match &serve.config {
            Some(path) => RawConfig::read_file(path, &mut mistakes),
            None => RawConfig::default(),
        };
        let config = typed.over(filed).check(&mut mistakes);
        config.filter(|_| mistakes.is_empty()).ok_or(mistakes)
    }
}

/// What to log, if only the command line can say.
pub fn log_filter(log: Option<&str>) -> Result<EnvFilter, Mistake> {
    check_log(log.map(|value| Given::new("--log (THREADWAY_LOG)", value)))
}

fn check_log(log: Option<Given>) -> Result<EnvFilter, Mistake> {
    let log = log.unwrap_or_else(|| Given::new("the default", DEFAULT_LOG));
    log.parse("a log filter, as `info` or `threadway=debug,warn`")
}

// === impl RawConfig ===

impl RawConfig {
    /// Each of them may also come from the environment, under the flag's name.
    fn typed(serve: &cli::Serve, log: Option<&str>) -> Self {
        let given = |key, value: Option<&str>| value.map(|value| Given::new(key, value));
        Self {
            listen: given("--listen (THREADWAY_LISTEN)", serve.listen.as_deref()),
            upstream: given("--upstream (THREADWAY_UPSTREAM)", serve.upstream.as_deref()),
            log: given("--log (THREADWAY_LOG)", log),
        }
    }

    fn read_file(path: &Path, mistakes: &mut Vec<Mistake>) -> Self {
        let name = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Self::of_toml(&name, &text, mistakes),
            Err(error) => {
                mistakes.push(Mistake {
                    key: "--config (THREADWAY_CONFIG)".to_owned(),
                    value: Some(name),
                    expected: format!("a file that can be read ({error})"),
                });
                Self::default()
            }
        }
    }

    fn of_toml(name: &str, text: &str, mistakes: &mut Vec<Mistake>) -> Self {
        let table: Table = match text.parse() {
            Ok(table) => table,
            Err(error) => {
                let expected = format!("TOML ({})", error.to_string().trim_end());
                mistakes.push(Mistake { key: name.to_owned(), value: None, expected });
                return Self::default();
            }
        };
        let mut config = Self::default();
        for (key, value) in flatten(table, "") {
            let place = match key.as_str() {
                "listen" => Ok(&mut config.listen),
                "log" => Ok(&mut config.log),
                "upstream.url" => Ok(&mut config.upstream),
                _ => Err("one of the keys `listen`, `log`, `upstream.url`"),
            };
            let key = format!("`{key}` in {name}");
            match (place, value) {
                (Ok(place), Value::String(value)) => *place = Some(Given { key, value }),
                (place, value) => {
                    let expected = place.err().unwrap_or("a string").to_owned();
                    mistakes.push(Mistake { key, value: Some(shown(&value)), expected });
                }
            }
        }
        config
    }

    /// What this says, and else what the other does.
    fn over(self, other: Self) -> Self {
        Self {
            listen: self.listen.or(other.listen),
            upstream: self.upstream.or(other.upstream),
            log: self.log.or(other.log),
        }
    }

    fn check(self, mistakes: &mut Vec<Mistake>) -> Option<Config> {
        let Self { listen, upstream, log } = self;
        let listen = listen.unwrap_or_else(|| Given::new("the default", DEFAULT_LISTEN));
        let listen = listen.parse("an address and a port, as 127.0.0.1:8484 or [::1]:0");
        let log = check_log(log);
        let upstream = upstream.ok_or_else(missing_upstream).and_then(Given::url);
        let mut noted = |mistake| mistakes.push(mistake);
        let listen = listen.map_err(&mut noted).ok();
        let upstream = upstream.map_err(&mut noted).ok();
        let log = log.map_err(&mut noted).ok();
        Some(Config { listen: listen?, upstream: upstream?, log: log? })
    }
}

fn missing_upstream() -> Mistake {
    Mistake {
        key: "--upstream".to_owned(),
        value: None,
        expected: "the URL of the LangGraph server, as --upstream http://127.0.0.1:2024 (or \
                   THREADWAY_UPSTREAM, or `upstream.url` in the config file)"
            .to_owned(),
    }
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

fn shown(value: &Value) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

// === impl Given ===

impl Given {
    fn new(key: &str, value: &str) -> Self {
        Self { key: key.to_owned(), value: value.to_owned() }
    }

    fn parse<T: FromStr>(self, expected: &str) -> Result<T, Mistake> {
        self.value.parse().map_err(|_| self.mistaken(expected.to_owned()))
    }

    fn url(self) -> Result<BaseUrl, Mistake> {
        self.value.parse().map_err(|error: BaseUrlError| self.mistaken(error.to_string()))
    }

    fn mistaken(self, expected: String) -> Mistake {
        Mistake { key: self.key, value: Some(self.value), expected }
    }
}

// === impl Mistake ===

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, value, expected } = self;
        match value {
            Some(value) => write!(f, "{key} is {value}; expected {expected}"),
            None => write!(f, "{key}: expected {expected}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = include_str!("../config.toml.example");

    fn of_toml(text: &str) -> (RawConfig, Vec<String>) {
        let mut mistakes = Vec::new();
        let raw = RawConfig::of_toml("f.toml", text, &mut mistakes);
        (raw, mistakes.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn the_example_holds_every_key_with_its_default() {
        let (raw, mistakes) = of_toml(EXAMPLE);
        assert_eq!(mistakes, [""; 0]);
        let RawConfig { listen, upstream, log } = raw.clone();
        assert_eq!(listen.unwrap().value, DEFAULT_LISTEN);
        assert_eq!(log.unwrap().value, DEFAULT_LOG);
        // It has no default; this is where `langgraph dev` listens.
        assert_eq!(upstream.unwrap().value, "http://127.0.0.1:2024");
        raw.check(&mut Vec::new()).unwrap();
    }

    #[test]
    fn a_flag_beats_the_file_and_the_file_beats_the_default() {
        let (file, _) = of_toml("listen = \"1.1.1.1:1\"\nupstream.url = \"http://file\"");
        let serve = cli::Serve { listen: Some("2.2.2.2:2".to_owned()), ..Default::default() };
        let config = RawConfig::typed(&serve, None).over(file).check(&mut Vec::new()).unwrap();
        assert_eq!(config.listen.to_string(), "2.2.2.2:2");
        assert_eq!(config.upstream.to_string(), "http://file");
        assert_eq!(config.log.to_string(), "info");
    }

    #[test]
    fn all_mistakes_are_told_at_once_each_with_its_key_value_and_what_was_expected() {
        let text = "listen = 8484\nlisten_on = \"x\"\n[upstream]\nurl = \"localhost\"\nkey = [1]\n";
        let (file, mut told) = of_toml(text);
        let mut mistakes = Vec::new();
        let serve = cli::Serve { listen: Some("here".to_owned()), ..Default::default() };
        let checked = RawConfig::typed(&serve, Some("a=b=c")).over(file).check(&mut mistakes);
        assert!(checked.is_none());
        told.extend(mistakes.iter().map(ToString::to_string));
        assert_eq!(
            told,
            [
                "`listen` in f.toml is 8484; expected a string",
                "`listen_on` in f.toml is \"x\"; expected one of the keys `listen`, `log`, \
                 `upstream.url`",
                "`upstream.key` in f.toml is [1]; expected one of the keys `listen`, `log`, \
                 `upstream.url`",
                "--listen (THREADWAY_LISTEN) is here; expected an address and a port, as \
                 127.0.0.1:8484 or [::1]:0",
                "`upstream.url` in f.toml is localhost; expected an absolute URL, as \
                 http://127.0.0.1:2024 (relative URL without a base)",
                "--log (THREADWAY_LOG) is a=b=c; expected a log filter, as `info` or \
                 `threadway=debug,warn`",
            ]
        );
    }

    #[test]
    fn what_is_no_toml_is_told_with_its_place() {
        let (raw, mistakes) = of_toml("listen = \"x");
        assert_eq!(raw, RawConfig::default());
        assert_eq!(mistakes.len(), 1);
        assert!(mistakes[0].starts_with("f.toml: expected TOML (TOML parse error at line 1"));
    }

    #[test]
    fn an_upstream_must_come_from_somewhere() {
        let mistakes = Config::read(&cli::Serve::default(), None).unwrap_err();
        let told = mistakes[0].to_string();
        assert_eq!(mistakes.len(), 1);
        assert!(told.starts_with("--upstream: expected the URL of the LangGraph server"), "{told}");
    }
}
