//! The words of a log filter: which levels and modules there are. A filter for a module that does
//! not exist would silence the log without a word about it.

use tracing_subscriber::filter::LevelFilter;

/// The crates that log here, as log lines name them.
const CRATES: [&str; 3] = ["threadway", "threadway_demo", "hyper_util"];

/// The modules of `threadway` itself.
const MODULES: [&str; 26] = [
    "agents",
    "audit",
    "bridge",
    "check",
    "cli",
    "commands",
    "config",
    "credentials",
    "editors",
    "manual",
    "metrics",
    "nearest",
    "offload",
    "random",
    "reload",
    "runs",
    "server",
    "sessions",
    "single_flight",
    "stdio",
    "sync",
    "telemetry",
    "terminal",
    "threads",
    "upstream",
    "watch",
];

/// A word of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// A level for all modules.
    Level,
    /// A module that exists, with or without a level. Modules below the first level count as
    /// existing.
    Module,
    /// Neither.
    Unknown,
}

impl Word {
    pub(super) fn of(word: &str) -> Self {
        // An empty word would be read as `error`.
        if !word.is_empty() && word.parse::<LevelFilter>().is_ok() {
            return Self::Level;
        }
        // `MODULE[SPAN{FIELD}]=LEVEL`, of which each part may be missing.
        let module = word.split(['[', '=']).next().unwrap_or(word);
        let mut path = module.split("::");
        let is_known = match (path.next().unwrap_or_default(), path.next()) {
            ("", None) => word.starts_with('['),
            ("threadway", Some(module)) => MODULES.contains(&module),
            (name, _) => CRATES.contains(&name),
        };
        if is_known { Self::Module } else { Self::Unknown }
    }
}

/// The words that a misspelt one may stand for.
pub(super) fn known() -> impl Iterator<Item = &'static str> {
    ["off", "error", "warn", "info", "debug", "trace", "json", "text"].into_iter().chain(CRATES)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_modules_are_those_of_the_library_and_the_commands() {
        let library = include_str!("../lib.rs");
        let of_line = |line: &'static str| {
            line.strip_prefix("pub ").unwrap_or(line).strip_prefix("mod ")?.strip_suffix(';')
        };
        let expected: BTreeSet<_> =
            library.lines().filter_map(of_line).chain(["commands"]).collect();
        assert_eq!(BTreeSet::from(MODULES), expected);
    }

    /// Crates log here by `tracing`, so a crate that depends on it may log.
    #[test]
    fn the_crates_are_those_that_are_built_with_a_log() {
        // Of these, reqwest can be built with quinn, and is not; the others are the log itself.
        let silent =
            ["quinn", "quinn-proto", "quinn-udp", "tracing", "tracing-serde", "tracing-subscriber"];
        let lock: toml::Table = include_str!("../../Cargo.lock").parse().unwrap();
        let logs = |package: &&toml::Value| {
            let needs = package.get("dependencies").and_then(toml::Value::as_array);
            needs.into_iter().flatten().any(|name| name.as_str() == Some("tracing"))
        };
        let packages = lock["package"].as_array().unwrap().iter();
        let names: BTreeSet<_> = packages
            .filter(logs)
            .map(|package| package["name"].as_str().unwrap())
            .filter(|name| !silent.contains(name))
            .map(|name| name.replace('-', "_"))
            .collect();
        assert_eq!(names, CRATES.map(str::to_owned).into());
    }

    #[test]
    fn a_word_is_a_level_or_names_a_module() {
        for (word, expected) in [
            ("info", Word::Level),
            ("OFF", Word::Level),
            ("infoo", Word::Unknown),
            ("threadway", Word::Module),
            ("threadway=debug", Word::Module),
            ("threadway::runs::reading=debug", Word::Module),
            ("threadway::run=debug", Word::Unknown),
            ("threadwai=debug", Word::Unknown),
            ("threadway-demo=debug", Word::Unknown),
            ("hyper_util::client=trace", Word::Module),
            ("hyper=trace", Word::Unknown),
            ("[run]=debug", Word::Module),
            ("threadway[run{id}]=debug", Word::Module),
            ("=debug", Word::Unknown),
            ("info=threadway", Word::Unknown),
        ] {
            assert_eq!(Word::of(word), expected, "{word}");
        }
    }
}
