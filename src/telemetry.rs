//! What the process reports about itself: log lines on stderr, and traces to a collector.
//!
//! - `words`: the levels and modules that a log filter may name.

mod words;

use std::fmt;
use std::io::{self, IsTerminal};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry::Key;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{self, SdkTracer, SdkTracerProvider, SpanData};
use serde_json::json;
use tracing::Level;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use crate::nearest::nearest;
use crate::upstream::{BaseUrl, Tls};
use words::Word;

/// How long the collector may take for a batch of spans. Meanwhile up to 2,048 spans are kept; more
/// are dropped, so an unavailable collector never delays requests.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the last spans may take after the gateway has stopped. Together with the grace for
/// connections this is below the 30 s after which container platforms kill a process.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// The path of an OTLP collector for traces.
pub(crate) const TRACES_PATH: &str = "v1/traces";

/// The service name in traces, unless `OTEL_SERVICE_NAME` gives another.
const SERVICE_NAME: &str = "threadway";

/// The prefix of the SDK's name for a service that the environment does not name.
const UNKNOWN_SERVICE: &str = "unknown_service";

/// What to log, and in which format.
#[derive(Clone, Debug)]
pub struct Log {
    /// The levels by module.
    pub filter: EnvFilter,
    /// The format of a line.
    pub format: LogFormat,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people: time, level, module, message, fields.
    #[default]
    Text,
    /// For machines: one JSON object per line.
    Json,
}

/// Why a text is not a [`Log`]. Each text says what is expected instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotALog {
    /// The list is no filter, or names two formats.
    #[error(
        "a log filter such as `info` or `threadway=debug,warn`, and at most one of `text` and `json`"
    )]
    Form,
    /// There are two levels for all modules.
    #[error("one level for all modules, and levels for some, such as `threadway=debug,warn`")]
    TwoLevels,
    /// A word names no level and no module. It would silence the log.
    #[error(
        "a level (off, error, warn, info, debug or trace), or a module of threadway with its level, \
         such as `threadway=debug,warn`; `{word}` names neither{}",
        .near.as_ref().map(|near| format!(", perhaps `{near}` is meant")).unwrap_or_default()
    )]
    Unknown {
        /// The word.
        word: String,
        /// The known word that is most similar.
        near: Option<&'static str>,
    },
}

/// Exports traces. A thread of its own does that, so requests never wait for it.
pub struct Traces(SdkTracerProvider);

/// Exporting traces could not be set up.
#[derive(Debug, thiserror::Error)]
#[error("the trace exporter could not be set up: {0}")]
pub struct TracesError(String);

/// An exporter that logs when exports begin to fail and when they work again.
#[derive(Debug)]
struct Exporter {
    otlp: SpanExporter,
    is_failing: AtomicBool,
}

// === impl Log ===

impl Log {
    /// Starts logging to stderr. Stdout belongs to the protocol.
    pub fn to_stderr(self) {
        let Self { filter, format } = self;
        let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
        match format {
            LogFormat::Text => lines.with_ansi(io::stderr().is_terminal()).init(),
            LogFormat::Json => lines.json().flatten_event(true).init(),
        }
    }
}

impl FromStr for Log {
    type Err = NotALog;

    /// Reads a list of filters and at most one format. A format alone keeps the default filter.
    fn from_str(text: &str) -> Result<Self, NotALog> {
        let mut format = None;
        let mut has_level = false;
        let mut filters = Vec::new();
        for word in text.split(',').map(str::trim) {
            let named = match word {
                "text" => Some(LogFormat::Text),
                "json" => Some(LogFormat::Json),
                _ => None,
            };
            match (named, format) {
                (None, _) if word.is_empty() => return Err(NotALog::Form),
                (Some(_), Some(_)) => return Err(NotALog::Form),
                (Some(_), None) => format = named,
                (None, _) => {
                    match Word::of(word) {
                        Word::Level if has_level => return Err(NotALog::TwoLevels),
                        Word::Level => has_level = true,
                        Word::Module => {}
                        Word::Unknown => return Err(NotALog::unknown(word)),
                    }
                    filters.push(word);
                }
            }
        }
        let filters = if filters.is_empty() { "info".to_owned() } else { filters.join(",") };
        let filter = filters.parse().map_err(|_| NotALog::Form)?;
        Ok(Self { filter, format: format.unwrap_or_default() })
    }
}

impl NotALog {
    fn unknown(word: &str) -> Self {
        let name = word.split('=').next().unwrap_or(word);
        Self::Unknown { word: word.to_owned(), near: nearest(name, words::known()) }
    }
}

impl fmt::Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { filter, format } = self;
        match format {
            LogFormat::Text => write!(f, "{filter}"),
            LogFormat::Json => write!(f, "{filter},json"),
        }
    }
}

// === impl LogFormat ===

impl LogFormat {
    /// The format that a log filter names, even if the rest of the filter is mistaken.
    pub fn named_in(filter: &str) -> Self {
        let is_json = filter.split(',').any(|word| word.trim() == "json");
        if is_json { Self::Json } else { Self::Text }
    }

    /// A line, without its end, that a command prints whatever the log filter is. As JSON it has the
    /// fields of a log line.
    pub fn line(self, level: Level, text: &str) -> String {
        match self {
            Self::Text => text.to_owned(),
            Self::Json => {
                let mut timestamp = String::new();
                // Writing to a string does not fail.
                let _ = SystemTime.format_time(&mut Writer::new(&mut timestamp));
                let target = env!("CARGO_PKG_NAME");
                json!({
                    "timestamp": timestamp,
                    "level": level.as_str(),
                    "message": text,
                    "target": target,
                })
                .to_string()
            }
        }
    }
}

// === impl Traces ===

impl Traces {
    /// Exports traces to an OTLP collector, over HTTP with protobuf. The environment sets sampling,
    /// more resource attributes and headers: `OTEL_TRACES_SAMPLER`, `OTEL_RESOURCE_ATTRIBUTES`,
    /// `OTEL_EXPORTER_OTLP_HEADERS`.
    ///
    /// Do not call this in a task: setting up the exporter's HTTP client blocks.
    pub fn to_collector(endpoint: &BaseUrl) -> Result<Self, TracesError> {
        let failed = |error: &dyn fmt::Display| TracesError(error.to_string());
        let tls = Tls::default().config().map_err(|error| failed(&error))?;
        let http = reqwest::blocking::Client::builder()
            .tls_backend_preconfigured(tls)
            .timeout(EXPORT_TIMEOUT)
            .build()
            .map_err(|error| failed(&error))?;
        let otlp = SpanExporter::builder()
            .with_http()
            .with_http_client(http)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("{endpoint}/{TRACES_PATH}"))
            .with_timeout(EXPORT_TIMEOUT)
            .build()
            .map_err(|error| failed(&error))?;
        let exporter = Exporter { otlp, is_failing: AtomicBool::new(false) };
        let detected = Resource::builder().build();
        let is_named = detected
            .get(&Key::from_static_str("service.name"))
            .is_some_and(|name| !name.as_str().starts_with(UNKNOWN_SERVICE));
        let resource = if is_named {
            detected
        } else {
            Resource::builder().with_service_name(SERVICE_NAME).build()
        };
        let provider = SdkTracerProvider::builder()
            .with_resource(resource)
            .with_batch_exporter(exporter)
            .build();
        Ok(Self(provider))
    }

    /// Makes the spans.
    pub fn tracer(&self) -> SdkTracer {
        self.0.tracer(SERVICE_NAME)
    }

    /// Exports the remaining spans, for at most 5 s. Blocks.
    pub fn finish(self) {
        if self.0.shutdown_with_timeout(FLUSH_TIMEOUT).is_err() {
            let seconds = FLUSH_TIMEOUT.as_secs();
            tracing::warn!("the last traces were not exported within {seconds} s");
        }
    }
}

impl fmt::Debug for Traces {
    /// The exporter would print its headers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Traces")
    }
}

// === impl Exporter ===

impl trace::SpanExporter for Exporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let exported = self.otlp.export(batch).await;
        let is_failing = exported.is_err();
        // The collector's error may quote one of our headers.
        match (self.is_failing.swap(is_failing, Ordering::Relaxed), is_failing) {
            (false, true) => {
                tracing::warn!(spans, "traces are lost: the collector does not accept them");
            }
            (true, false) => tracing::info!("the collector accepts traces again"),
            (true, true) | (false, false) => {}
        }
        exported
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.otlp.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.otlp.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.otlp.set_resource(resource);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_a_filter_and_a_format() {
        for (text, filter, format) in [
            ("info", "info", LogFormat::Text),
            ("json", "info", LogFormat::Json),
            ("text", "info", LogFormat::Text),
            ("json,threadway=debug", "threadway=debug", LogFormat::Json),
            ("threadway=debug, json,warn", "threadway=debug,warn", LogFormat::Json),
        ] {
            let log: Log = text.parse().unwrap();
            assert_eq!((log.filter.to_string().as_str(), log.format), (filter, format), "{text}");
        }
        let unknown = |word: &str, near| NotALog::Unknown { word: word.to_owned(), near };
        for (text, expected) in [
            ("json,text", NotALog::Form),
            ("json,json", NotALog::Form),
            ("threadway=loud", NotALog::Form),
            ("=", unknown("=", None)),
            ("", NotALog::Form),
            ("info,", NotALog::Form),
            ("info,warn", NotALog::TwoLevels),
            ("infoo", unknown("infoo", Some("info"))),
            ("warn,threadwai=debug", unknown("threadwai=debug", Some("threadway"))),
            ("jsn,info", unknown("jsn", Some("json"))),
        ] {
            assert_eq!(text.parse::<Log>().unwrap_err(), expected, "{text}");
        }
    }
}
