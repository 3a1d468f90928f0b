//! What the gateway counts, and how Prometheus reads it.
//!
//! There is no global registry: [`Metrics`] is passed to whoever counts. It takes no clock; times
//! come from who measures them. Labels are closed sets of words, never ids or names.
//!
//! The guards ([`GaugeGuard`], [`StreamMeter`], [`RunMeter`]) count what there is at the moment, and how each
//! came to its end, when they are dropped: nothing is counted that is not uncounted again.

mod label;

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry, Unit};

pub use label::{
    Answer, LookReason, Operation, Origin, Protocol, Rejoin, Reload, Resume, Resync, Route, RunEnd,
    StatusClass, StreamEnd,
};
use label::{Both, Code, Kind, Label};

/// The limits of the buckets for added latency, in seconds: a batch takes some 100 µs, and what
/// takes longer than a frame of a screen is seen.
const LATENCY_BUCKETS: [f64; 12] =
    [50e-6, 100e-6, 200e-6, 400e-6, 800e-6, 1.6e-3, 3.2e-3, 6.4e-3, 16e-3, 64e-3, 0.25, 1.0];

/// The limits of the buckets for the upstream's headers, in seconds: 9 ms were measured, and a run
/// may take a minute.
const HEADERS_BUCKETS: [f64; 11] =
    [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 20.0, 60.0];

/// The limits of the buckets for the bytes of a stream: from a thread at rest to a long run with
/// a large state.
const BYTES_BUCKETS: [f64; 9] = [
    1024.0,
    4096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];

/// What the gateway counts. Clones count the same.
#[derive(Clone)]
pub struct Metrics(Arc<Families>);

/// The text that a scraper reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `OpenMetrics` 1.0.
    OpenMetrics,
    /// Prometheus' own, 0.0.4.
    Prometheus,
}

struct Families {
    registry: Registry,
    connections: Gauge,
    streams: Family<Protocol, Gauge>,
    viewers: Gauge,
    runs: Gauge,
    threads: Gauge,
    requests: Family<Both<Route, StatusClass>, Counter>,
    requests_refused: Family<Code, Counter>,
    connections_refused: Counter,
    streams_ended: Family<StreamEnd, Counter>,
    runs_started: Family<Origin, Counter>,
    runs_ended: Family<RunEnd, Counter>,
    resumes: Family<Resume, Counter>,
    resyncs: Family<Resync, Counter>,
    missed_batches: Counter,
    keyframes: Counter,
    encoded_bytes: Counter,
    upstream_requests: Family<Both<Operation, Answer>, Counter>,
    upstream_errors: Family<Kind, Counter>,
    upstream_rejoins: Family<Rejoin, Counter>,
    looks: Family<LookReason, Counter>,
    upstream_requests_open: Gauge,
    looks_waiting: Gauge,
    poll_lag: Histogram,
    reloads: Family<Reload, Counter>,
    added_latency: Histogram,
    stream_bytes: Histogram,
    run_bytes: Histogram,
    upstream_headers: Histogram,
}

/// One more of something that there is, until it is dropped.
#[derive(Debug)]
pub struct GaugeGuard(Gauge);

/// A stream to a client, until it is dropped.
#[derive(Debug)]
pub struct StreamMeter {
    metrics: Metrics,
    _held: GaugeGuard,
    bytes: u64,
    end: StreamEnd,
}

/// A run that is being read, until it is dropped.
#[derive(Debug)]
pub struct RunMeter {
    metrics: Metrics,
    _held: GaugeGuard,
    bytes: u64,
    end: RunEnd,
}

// === impl Metrics ===

impl Metrics {
    /// A request was answered.
    pub fn answered(&self, route: Route, status: StatusClass) {
        self.0.requests.get_or_create(&Both(route, status)).inc();
    }

    /// A request was refused, under this stable code.
    pub fn refused(&self, code: &'static str) {
        self.0.requests_refused.get_or_create(&Code(code)).inc();
    }

    /// A connection is open.
    pub fn connection(&self) -> GaugeGuard {
        GaugeGuard::one(&self.0.connections)
    }

    /// A connection was one too many.
    pub fn connection_refused(&self) {
        self.0.connections_refused.inc();
    }

    /// A client's stream begins.
    pub fn stream(&self, protocol: Protocol) -> StreamMeter {
        let held = GaugeGuard::one(&self.0.streams.get_or_create(&protocol));
        StreamMeter { metrics: self.clone(), _held: held, bytes: 0, end: StreamEnd::Left }
    }

    /// A reader of a run or a thread has come.
    pub fn viewer(&self) -> GaugeGuard {
        GaugeGuard::one(&self.0.viewers)
    }

    /// A run is being read.
    pub fn reading(&self, origin: Origin) -> RunMeter {
        self.0.runs_started.get_or_create(&origin).inc();
        let held = GaugeGuard::one(&self.0.runs);
        RunMeter { metrics: self.clone(), _held: held, bytes: 0, end: RunEnd::Unread }
    }

    /// A thread is followed.
    pub fn following(&self) -> GaugeGuard {
        GaugeGuard::one(&self.0.threads)
    }

    /// A client has come back with the id of an event.
    pub fn resumed(&self, kind: Resume) {
        self.0.resumes.get_or_create(&kind).inc();
    }

    /// A reader is told a run as it stands.
    pub fn resynced(&self, reason: Resync) {
        self.0.resyncs.get_or_create(&reason).inc();
    }

    /// A run was frozen as it keyframe_made, for a reader.
    pub fn keyframe_made(&self) {
        self.0.keyframes.inc();
    }

    /// A reader has missed so many batches of a run's events.
    pub fn missed(&self, batches: u64) {
        self.0.missed_batches.inc_by(batches);
    }

    /// An upstream has answered what was asked of it, or has not.
    pub fn asked(&self, operation: Operation, answer: Answer) {
        self.0.upstream_requests.get_or_create(&Both(operation, answer)).inc();
    }

    /// An upstream's answer, or a stream of its, is a failure unless it is [`Answer::Ok`].
    pub fn upstream_failed(&self, answer: Answer) {
        if answer != Answer::Ok {
            self.0.upstream_errors.get_or_create(&Kind(answer)).inc();
        }
    }

    /// The head of an upstream's answer has come after this time.
    pub fn headers_came(&self, after: Duration) {
        self.0.upstream_headers.observe(after.as_secs_f64());
    }

    /// A run's stream is joined again.
    pub fn rejoined(&self, reason: Rejoin) {
        self.0.upstream_rejoins.get_or_create(&reason).inc();
    }

    /// A followed thread is looked at, or many of them at once.
    pub fn looked(&self, reason: LookReason) {
        self.0.looks.get_or_create(&reason).inc();
    }

    /// A request to an upstream waits for its answer.
    pub fn asks(&self) -> GaugeGuard {
        GaugeGuard::one(&self.0.upstream_requests_open)
    }

    /// A look waits for its turn.
    pub fn look_waits(&self) -> GaugeGuard {
        GaugeGuard::one(&self.0.looks_waiting)
    }

    /// A poll was answered after this time from when it was due.
    pub fn polled(&self, after: Duration) {
        self.0.poll_lag.observe(after.as_secs_f64());
    }

    /// A new configuration was read.
    pub fn reloaded(&self, result: Reload) {
        self.0.reloads.get_or_create(&result).inc();
    }

    /// All of it, as a scraper reads it.
    pub fn text(&self, format: Format) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode_registry(&mut text, &self.0.registry);
        match format {
            Format::OpenMetrics => {
                let _ = encode_eof(&mut text);
                text
            }
            Format::Prometheus => prometheus(&text),
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self(Arc::new(Families::register()))
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

// === impl Format ===

impl Format {
    /// The format that an `Accept` header asks for.
    ///
    /// Prometheus names `OpenMetrics` where it reads it; what does not, as a browser or `curl`,
    /// gets the older one, which everything reads.
    pub fn accepted(accept: &str) -> Self {
        let is_open = |range: &str| {
            let media = range.split(';').next().unwrap_or_default().trim();
            media.eq_ignore_ascii_case("application/openmetrics-text")
        };
        if accept.split(',').any(is_open) { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// The media type.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// The same in the older format: there a counter's family is called as its series are, and a unit
/// is not told.
fn prometheus(text: &str) -> String {
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

// === impl Families ===

impl Families {
    fn register() -> Self {
        let mut registry = Registry::with_prefix("threadway");
        let build = Family::<Vec<(&str, &str)>, Gauge>::default();
        build.get_or_create(&vec![("version", env!("CARGO_PKG_VERSION"))]).set(1);
        registry.register("build_info", "The version that runs; always 1", build);
        let mut to = Registration(&mut registry);
        let connections = to.count("open_connections", "Connections of clients");
        let streams = to.family("active_streams", "Streams to clients");
        let viewers = to.count("active_viewers", "Readers of runs and threads");
        let runs = to.count("active_runs", "Runs that are being read");
        let threads = to.count("followed_threads", "Threads that are being followed");
        let requests = to.bare("requests", "Requests that were answered");
        let requests_refused = to.bare("requests_refused", "Requests that were refused");
        let connections_refused =
            to.count("connections_refused", "Connections beyond the limit, each told so");
        let streams_ended = to.family("streams_ended", "Streams to clients that are over");
        let runs_started = to.family("runs_started", "Runs whose reading began");
        let runs_ended = to.family("runs_ended", "Runs whose reading ended");
        let resumes = to.family("resumes", "Clients that came back with the id of an event");
        let resyncs = to.family("resyncs", "Readers that were told a run as it stands");
        let encoded_bytes = to.count(
            "encoded_bytes",
            "Bytes that were made for streams; what streams sent beyond these was shared",
        );
        let keyframes = to.count(
            "standings",
            "Runs that were frozen as they keyframe_made, for readers to be shown",
        );
        let missed_batches =
            to.count("missed_batches", "Batches of events that readers fell too far behind for");
        let upstream_requests = to.bare("upstream_requests", "Requests to upstreams");
        let upstream_requests_open = to.count(
            "upstream_requests_open",
            "Requests to upstreams that wait for their answer; of a stream, for its beginning",
        );
        let upstream_errors =
            to.bare("upstream_errors", "Requests to upstreams, and streams of theirs, that failed");
        for answer in Answer::ALL.iter().filter(|answer| **answer != Answer::Ok) {
            drop(upstream_errors.get_or_create(&Kind(*answer)));
        }
        let upstream_rejoins = to.family("upstream_rejoins", "Streams of runs joined again");
        let looks = to.family("looks", "Looks at followed threads");
        let looks_waiting =
            to.count("looks_waiting", "Looks that wait for their turn at an upstream");
        let poll_lag = to.histogram(
            "poll_lag",
            "From when a poll of followed threads is due to its answer",
            Unit::Seconds,
            &HEADERS_BUCKETS,
        );
        let reloads = to.family("config_reloads", "Configurations that were read again");
        let added_latency = to.histogram(
            "added_latency",
            "From reading an upstream's bytes to handing over what a client gets of them, for \
             live events; what a slow client takes counts",
            Unit::Seconds,
            &LATENCY_BUCKETS,
        );
        let stream_bytes =
            to.histogram("stream", "What a stream sent its client", Unit::Bytes, &BYTES_BUCKETS);
        let run_bytes = to.histogram(
            "upstream_run",
            "What was read of a run's streams",
            Unit::Bytes,
            &BYTES_BUCKETS,
        );
        let upstream_headers = to.histogram(
            "upstream_headers",
            "From asking an upstream to the head of its answer",
            Unit::Seconds,
            &HEADERS_BUCKETS,
        );
        Self {
            registry,
            connections,
            streams,
            viewers,
            runs,
            threads,
            requests,
            requests_refused,
            connections_refused,
            streams_ended,
            runs_started,
            runs_ended,
            resumes,
            resyncs,
            missed_batches,
            keyframes,
            encoded_bytes,
            upstream_requests,
            upstream_errors,
            upstream_rejoins,
            looks,
            upstream_requests_open,
            looks_waiting,
            poll_lag,
            reloads,
            added_latency,
            stream_bytes,
            run_bytes,
            upstream_headers,
        }
    }
}

/// Registers metrics. Help texts are sentences; their dot comes with the encoding.
struct Registration<'a>(&'a mut Registry);

impl Registration<'_> {
    fn count<M: Metric + Clone + Default>(&mut self, name: &str, help: &str) -> M {
        let metric = M::default();
        self.0.register(name, help, metric.clone());
        metric
    }

    /// A family without series.
    fn bare<S>(&mut self, name: &str, help: &str) -> Family<S, Counter>
    where
        S: EncodeLabelSet + Clone + Eq + Hash + fmt::Debug + Send + Sync + 'static,
    {
        self.count(name, help)
    }

    /// A family with all its series, at zero: what has not happened yet is told too.
    fn family<L, M>(&mut self, name: &str, help: &str) -> Family<L, M>
    where
        L: Label + EncodeLabelSet + Eq + Hash + fmt::Debug + Send + Sync,
        M: Metric + Clone + Default,
        Family<L, M>: Metric,
    {
        let family: Family<L, M> = self.count(name, help);
        for label in L::ALL {
            drop(family.get_or_create(label));
        }
        family
    }

    fn histogram(&mut self, name: &str, help: &str, unit: Unit, buckets: &[f64]) -> Histogram {
        let histogram = Histogram::new(buckets.iter().copied());
        self.0.register_with_unit(name, help, unit, histogram.clone());
        histogram
    }
}

// === impl GaugeGuard ===

impl GaugeGuard {
    fn one(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

// === impl StreamMeter ===

impl StreamMeter {
    /// So many bytes are handed to the client's connection; if they tell what is live, so long
    /// after it was read.
    pub fn sent(&mut self, bytes: usize, after: Option<Duration>) {
        self.bytes += bytes as u64;
        if let Some(after) = after {
            self.metrics.0.added_latency.observe(after.as_secs_f64());
        }
    }

    /// So many bytes were made for it. What it sends beyond these was made by other streams.
    pub fn encoded(&mut self, bytes: u64) {
        self.metrics.0.encoded_bytes.inc_by(bytes);
    }

    /// It is over, in this way.
    pub fn ended(&mut self, end: StreamEnd) {
        self.end = end;
    }
}

impl Drop for StreamMeter {
    fn drop(&mut self) {
        let Families { streams_ended, stream_bytes, .. } = &*self.metrics.0;
        streams_ended.get_or_create(&self.end).inc();
        stream_bytes.observe(float(self.bytes));
    }
}

// === impl RunMeter ===

impl RunMeter {
    /// So many bytes of the run's stream were read.
    pub fn read(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// How many bytes of the run's streams were read.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// It is over, in this way.
    pub fn ended(&mut self, end: RunEnd) {
        self.end = end;
    }
}

impl Drop for RunMeter {
    fn drop(&mut self) {
        let Families { runs_ended, run_bytes, .. } = &*self.metrics.0;
        runs_ended.get_or_create(&self.end).inc();
        run_bytes.observe(float(self.bytes));
    }
}

#[expect(clippy::cast_precision_loss, reason = "a sum of bytes may be off by one in 2^53")]
fn float(bytes: u64) -> f64 {
    bytes as f64
}
