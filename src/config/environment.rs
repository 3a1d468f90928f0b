//! Refuses unknown variables with the gateway's prefix. A misspelt variable would be ignored
//! silently.

use clap::Command;

use super::raw::ConfigError;
use crate::nearest::nearest;

/// The prefix of all variables that commands read.
const PREFIX: &str = "THREADWAY_";

/// Variables that only this repository's tests and tools read.
const OF_TESTS: [&str; 4] =
    ["THREADWAY_BIN", "THREADWAY_FREEZE_ROUNDS", "THREADWAY_SCHEDULES", "THREADWAY_SEED"];

/// A mistake for each variable with the prefix that neither the command nor one of its commands
/// reads. Values are not shown: a
/// secret may be under a misspelt name.
pub fn unknown_variables(
    given: impl IntoIterator<Item = (String, String)>,
    command: &Command,
) -> Vec<ConfigError> {
    let known = known(command);
    let ours = given.into_iter().filter(|(name, _)| name.starts_with(PREFIX));
    let mut unknown: Vec<_> = ours
        .filter(|(name, value)| !is_of_kubernetes(name, value))
        .map(|(name, _)| name)
        .filter(|name| !OF_TESTS.contains(&name.as_str()) && !known.contains(name))
        .collect();
    unknown.sort_unstable();
    let mistake = |name: String| {
        let expected = match nearest(own(&name), known.iter().map(|name| own(name))) {
            Some(near) => format!("a variable that threadway reads, such as {PREFIX}{near}"),
            None => "a variable that threadway reads; each command's --help lists its own".into(),
        };
        ConfigError { place: name, value: None, expected }
    };
    unknown.into_iter().map(mistake).collect()
}

fn own(name: &str) -> &str {
    name.strip_prefix(PREFIX).unwrap_or_default()
}

/// The variables that commands read.
fn known(command: &Command) -> Vec<String> {
    fn of(command: &Command) -> Vec<String> {
        let variables = command.get_arguments().filter_map(|argument| argument.get_env());
        let own = variables.map(|name| name.to_string_lossy().into_owned());
        own.chain(command.get_subcommands().flat_map(of)).collect()
    }
    let mut known = of(command);
    known.retain(|name| name.starts_with(PREFIX));
    known.sort_unstable();
    known.dedup();
    known
}

/// Whether Kubernetes sets this variable. In each pod it sets some for every service, and the names
/// of services may begin with `threadway`: `THREADWAY_SERVICE_HOST`, `THREADWAY_PORT_80_TCP_ADDR`,
/// and `THREADWAY_PORT` as a URL.
fn is_of_kubernetes(name: &str, value: &str) -> bool {
    let is_port = |rest: &str| {
        let mut parts = rest.split('_');
        let number = parts.next().unwrap_or_default();
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        is_number && matches!(parts.next(), Some("TCP" | "UDP" | "SCTP"))
    };
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.ends_with("_PORT") && value.contains("://")
        || name.split("_PORT_").skip(1).any(is_port)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    fn texts(names: &[&str]) -> Vec<String> {
        let given = names.iter().map(|name| ((*name).to_owned(), "tcp://10.0.0.1:80".to_owned()));
        let mistakes = unknown_variables(given, &Cli::command());
        mistakes.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_misspelt_variable_is_reported_with_the_nearest_name() {
        for (name, near) in [
            ("THREADWAY_CORS_ORIGIN", "THREADWAY_CORS_ORIGINS"),
            ("THREADWAY_CORSORIGINS", "THREADWAY_CORS_ORIGINS"),
            ("THREADWAY_UPSTREAM_APIKEY", "THREADWAY_UPSTREAM_API_KEY"),
            ("THREADWAY_UPSTREAM_URL", "THREADWAY_UPSTREAM"),
            ("THREADWAY_LISTENS", "THREADWAY_LISTEN"),
            ("THREADWAY_LOG_LEVEL", "THREADWAY_LOG"),
            ("THREADWAY_ORIGINS", "THREADWAY_CORS_ORIGINS"),
        ] {
            let expected =
                format!("{name}: expected a variable that threadway reads, such as {near}");
            assert_eq!(texts(&[name]), [expected]);
        }
        let far = "THREADWAY_QQQQQQQQ: expected a variable that threadway reads; each command's \
                   --help lists its own";
        assert_eq!(texts(&["THREADWAY_QQQQQQQQ"]), [far]);
    }

    #[test]
    fn known_and_foreign_variables_are_accepted() {
        let names = [
            "PATH",
            "THREADWAY",
            "THREADWAY_UPSTREAM",
            "THREADWAY_AGENT",
            "THREADWAY_GATEWAY",
            "THREADWAY_LOG",
            "THREADWAY_BIN",
            // Kubernetes, beside services `threadway` and `threadway-admin`.
            "THREADWAY_SERVICE_HOST",
            "THREADWAY_SERVICE_PORT",
            "THREADWAY_SERVICE_PORT_HTTP",
            "THREADWAY_PORT",
            "THREADWAY_PORT_80_TCP",
            "THREADWAY_PORT_80_TCP_PROTO",
            "THREADWAY_PORT_80_TCP_ADDR",
            "THREADWAY_ADMIN_SERVICE_HOST",
            "THREADWAY_ADMIN_PORT_9484_UDP_PORT",
        ];
        assert_eq!(texts(&names), [""; 0]);
        assert_eq!(texts(&["THREADWAY_PORT_X_TCP"]).len(), 1);
        let port = ("THREADWAY_PORT".to_owned(), "8484".to_owned());
        assert_eq!(unknown_variables([port], &Cli::command()).len(), 1);
    }
}
