//! Refuses unknown variables with the gateway's prefix. A misspelt variable would be ignored
//! silently.

use clap::{Command, CommandFactory};

use super::raw::Mistake;
use crate::cli::Cli;

/// The prefix of all variables that commands read.
const PREFIX: &str = "THREADWAY_";

/// Variables that only this repository's tests and tools read.
const OF_TESTS: [&str; 3] = ["THREADWAY_BIN", "THREADWAY_FREEZE_ROUNDS", "THREADWAY_SCHEDULES"];

/// The longest name that is compared with known names. All known names are shorter.
const MAX_NAME_BYTES: usize = 100;

/// A mistake for each variable with the prefix that no command reads. Values are not shown: a
/// secret may be under a misspelt name.
pub fn unknown_variables(given: impl IntoIterator<Item = (String, String)>) -> Vec<Mistake> {
    let known = known();
    let ours = given.into_iter().filter(|(name, _)| name.starts_with(PREFIX));
    let mut unknown: Vec<_> = ours
        .filter(|(name, value)| !is_of_kubernetes(name, value))
        .map(|(name, _)| name)
        .filter(|name| !OF_TESTS.contains(&name.as_str()) && !known.contains(name))
        .collect();
    unknown.sort_unstable();
    let mistake = |name: String| {
        let expected = match nearest(&name, &known) {
            Some(near) => format!("a variable that threadway reads, such as {near}"),
            None => "a variable that threadway reads; each command's --help lists its own".into(),
        };
        Mistake { place: name, value: None, expected }
    };
    unknown.into_iter().map(mistake).collect()
}

/// The variables that commands read.
fn known() -> Vec<String> {
    fn of(command: &Command) -> Vec<String> {
        let variables = command.get_arguments().filter_map(|argument| argument.get_env());
        let own = variables.map(|name| name.to_string_lossy().into_owned());
        own.chain(command.get_subcommands().flat_map(of)).collect()
    }
    let mut known = of(&Cli::command());
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

/// The known name that is most similar, if any is similar enough.
fn nearest<'a>(name: &str, known: &'a [String]) -> Option<&'a str> {
    let own = name.strip_prefix(PREFIX).filter(|own| own.len() <= MAX_NAME_BYTES)?;
    let distances = known.iter().filter_map(|known| {
        let of_known = known.strip_prefix(PREFIX)?;
        // A missing part counts like a small typing error.
        let is_part = own.len() > 2 && (of_known.contains(own) || own.contains(of_known));
        let distance = distance(own, of_known);
        let distance = if is_part { distance.min(2) } else { distance };
        (distance <= of_known.len() / 3 + 1).then_some((distance, known.as_str()))
    });
    distances.min().map(|(_, known)| known)
}

/// The Levenshtein distance of two texts, in bytes.
fn distance(one: &str, other: &str) -> usize {
    // The distance of each prefix of `other` from what was read of `one`.
    let mut distances: Vec<usize> = (0..=other.len()).collect();
    for (read, byte) in one.bytes().enumerate() {
        let mut next = vec![read + 1];
        let mut left = read + 1;
        for (pair, other_byte) in distances.windows(2).zip(other.bytes()) {
            let [diagonal, above] = pair else { continue };
            let replaced = diagonal + usize::from(byte != other_byte);
            left = replaced.min(left + 1).min(above + 1);
            next.push(left);
        }
        distances = next;
    }
    distances.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(names: &[&str]) -> Vec<String> {
        let given = names.iter().map(|name| ((*name).to_owned(), "tcp://10.0.0.1:80".to_owned()));
        let mistakes = unknown_variables(given);
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
        let long = format!("{PREFIX}{}", "X".repeat(MAX_NAME_BYTES + 1));
        assert_eq!(texts(&[&long]).len(), 1);
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
        assert_eq!(unknown_variables([port]).len(), 1);
    }
}
