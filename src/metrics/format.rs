//! The text formats of `/metrics`.

/// The text format that a scraper reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `OpenMetrics` 1.0.
    OpenMetrics,
    /// Prometheus' own format, version 0.0.4.
    Prometheus,
}

impl Format {
    /// The format that an `Accept` header asks for.
    ///
    /// Prometheus asks for `OpenMetrics`. A browser or `curl` does not, and gets the older format,
    /// which every tool reads.
    pub(crate) fn accepted(accept: &str) -> Self {
        let is_open = |range: &str| {
            let media = range.split(';').next().unwrap_or_default().trim();
            media.eq_ignore_ascii_case("application/openmetrics-text")
        };
        if accept.split(',').any(is_open) { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// The media type.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Converts `OpenMetrics` text to the older format, in which a counter's family has the name of its
/// series, and units are left out.
pub(super) fn prometheus(text: &str) -> String {
    let is_counter = |line: &str| line.starts_with("# TYPE ") && line.ends_with(" counter");
    let mut lines = text.lines().peekable();
    let mut out = String::with_capacity(text.len());
    while let Some(line) = lines.next() {
        if line.starts_with("# UNIT ") {
            continue;
        }
        let names_counter = is_counter(line) || lines.peek().is_some_and(|next| is_counter(next));
        match line.splitn(4, ' ').collect::<Vec<_>>().as_slice() {
            ["#", kind, name, rest] if names_counter => {
                out.extend(["# ", kind, " ", name, "_total ", rest]);
            }
            _ => out.push_str(line),
        }
        out.push('\n');
    }
    out
}
