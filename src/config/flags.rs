//! The flags of `serve` and `check`, made of the rows of `keys`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use super::keys::{ConfigKey, DefaultValue, KEYS, ValueKind, variable};

/// The flags of `serve` and `check`. A flag beats the environment, which beats the config file.
#[derive(Clone, Default)]
pub struct Options {
    /// A config file.
    pub config: Option<PathBuf>,
    /// The values of flags, or of the variables that stand in for them, by key.
    values: BTreeMap<&'static str, String>,
}

/// The rows with a flag of `serve`. `--log` is a flag of all commands.
fn rows() -> impl Iterator<Item = (&'static ConfigKey, &'static str)> {
    KEYS.iter().filter(|key| key.name != "log").filter_map(|key| Some((key, key.flag_name()?)))
}

fn argument(key: &ConfigKey, name: &'static str) -> Arg {
    let doc = key.doc().trim_end_matches('.');
    let help = match key.absent {
        DefaultValue::Value(_) if key.kind == ValueKind::Switch => doc.to_owned(),
        DefaultValue::Value(absent) | DefaultValue::Words(absent) => {
            format!("{doc} [default: {absent}]")
        }
        DefaultValue::Unsaid => doc.to_owned(),
    };
    let argument = Arg::new(name).long(name).env(variable(name)).hide_env_values(true).help(help);
    let argument = match key.name.split_once('.') {
        Some(("limits", _)) => argument.help_heading("Limits"),
        Some(("upstream", _)) => argument,
        _ if key.name == "listen" => argument,
        _ => argument.help_heading("Operation"),
    };
    let flag = key.flag.unwrap_or_default();
    if let Some((_, words)) = flag.split_once('=') {
        let argument = argument.value_name(words).num_args(0..=1).require_equals(true);
        argument.default_missing_value("true")
    } else if let Some((_, value)) = flag.split_once(' ') {
        argument.value_name(value)
    } else {
        argument.action(ArgAction::SetTrue)
    }
}

// === impl Options ===

impl Options {
    /// No flags beside a config file.
    pub fn new(config: Option<PathBuf>) -> Self {
        Self { config, values: BTreeMap::new() }
    }

    /// Sets a key, as its flag does.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.values.insert(key, value.into());
        self
    }

    /// The given values by key.
    pub(super) fn values(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.values.iter().map(|(key, value)| (*key, &**value))
    }
}

impl Args for Options {
    fn augment_args(command: Command) -> Command {
        let config = Arg::new("config")
            .long("config")
            .env("THREADWAY_CONFIG")
            .hide_env_values(true)
            .value_name("FILE")
            .value_parser(clap::value_parser!(PathBuf))
            .help("A config file; config.toml.example lists its keys");
        let arguments = rows().map(|(key, name)| argument(key, name));
        let (first, others): (Vec<_>, Vec<_>) =
            arguments.partition(|argument| argument.get_help_heading().is_none());
        command.args(first).arg(config).args(others)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Options {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let value = |(key, name): (&ConfigKey, &str)| {
            let is_switch = key.flag == Some(name);
            let on = || matches.get_flag(name).then(|| "true".to_owned());
            let value = if is_switch { on() } else { matches.get_one::<String>(name).cloned() };
            Some((key.name, value?))
        };
        let values = rows().filter_map(value).collect();
        Ok(Self { config: matches.get_one("config").cloned(), values })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl fmt::Debug for Options {
    /// Values may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { config, values } = self;
        f.debug_struct("Options").field("config", config).field("keys", &values.keys()).finish()
    }
}
