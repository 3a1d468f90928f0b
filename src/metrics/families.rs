//! Every metric: its name, help text and labels, once each, in the order in which they are exposed.

use std::fmt;
use std::hash::Hash;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry, Unit};

use super::label::{
    AddressChange, Answer, FailureKind, Held, Label, LookReason, Operation, Origin, Pair,
    PromptEnd, Protocol, RefusalReason, Rejoin, Reload, Resume, Resync, Route, RunEnd, StatusClass,
    StreamEnd, Transport,
};

/// Upper limits of the latency buckets, in seconds. A batch takes some 100 µs; a delay longer than
/// a frame of a screen is visible.
const LATENCY_BUCKETS: [f64; 12] =
    [50e-6, 100e-6, 200e-6, 400e-6, 800e-6, 1.6e-3, 3.2e-3, 6.4e-3, 16e-3, 64e-3, 0.25, 1.0];

/// Upper limits of the buckets for the upstream's headers, in seconds. 9 ms were measured, and a
/// run may take a minute.
const HEADERS_BUCKETS: [f64; 11] =
    [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 20.0, 60.0];

/// Upper limits of the buckets for the bytes of a stream: from an idle thread to a long run with a
/// large state.
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

/// Declares the struct of all metrics, and how each is registered.
macro_rules! families {
    ($($field:ident: $type:ty = $how:ident($($argument:expr),+ $(,)?);)+) => {
        pub(super) struct Families {
            pub(super) registry: Registry,
            $(pub(super) $field: $type,)+
        }

        impl Families {
            pub(super) fn register() -> Self {
                let mut registry = Registry::with_prefix("threadway");
                let build = Family::<Vec<(&str, &str)>, Gauge>::default();
                build.get_or_create(&vec![("version", env!("CARGO_PKG_VERSION"))]).set(1);
                registry.register("build_info", "The running version; always 1", build);
                let mut to = Registration(&mut registry);
                $(let $field = to.$how($($argument),+);)+
                Self { registry, $($field,)+ }
            }
        }
    };
}

families! {
    connections: Gauge = single("open_connections", "Open client connections");
    streams: Family<Protocol, Gauge> = with_zeros("active_streams", "Open streams to clients");
    viewers: Gauge = single("active_viewers", "Readers of runs and threads");
    runs: Gauge = single("active_runs", "Runs that are being read");
    threads: Gauge = single("followed_threads", "Threads that are being followed");
    held: Family<Held, Gauge> =
        with_zeros("held_bytes", "Bytes that are held for clients, of limits.memory_bytes");
    requests: Family<Pair<Route, StatusClass>, Counter> = single("requests", "Answered requests");
    requests_refused: Family<RefusalReason, Counter> =
        single("requests_refused", "Refused requests");
    connections_refused: Counter =
        single("connections_refused", "Connections refused because of the connection limit");
    streams_ended: Family<StreamEnd, Counter> =
        with_zeros("streams_ended", "Ended streams to clients");
    runs_started: Family<Origin, Counter> =
        with_zeros("runs_started", "Runs whose reading began");
    runs_ended: Family<RunEnd, Counter> = with_zeros("runs_ended", "Runs whose reading ended");
    resumes: Family<Resume, Counter> =
        with_zeros("resumes", "Clients that reconnected with an event id");
    resyncs: Family<Resync, Counter> =
        with_zeros("resyncs", "Readers that were sent a snapshot of a run");
    encoded_bytes: Counter = single(
        "encoded_bytes",
        "Bytes encoded for streams; other sent bytes were shared between streams",
    );
    keyframes: Counter =
        single("keyframes", "Frozen views of runs that were made for readers");
    missed_batches: Counter =
        single("missed_batches", "Batches of events skipped by readers that were too slow");
    upstream_requests: Family<Pair<Operation, Answer>, Counter> =
        single("upstream_requests", "Requests to upstreams");
    upstream_requests_open: Gauge = single(
        "upstream_requests_open",
        "Requests to upstreams that wait for an answer; for a stream, for its headers",
    );
    upstream_errors: Family<FailureKind, Counter> =
        failures("upstream_errors", "Failed requests to upstreams, and failed streams");
    upstream_rejoins: Family<Rejoin, Counter> =
        with_zeros("upstream_rejoins", "Run streams that were joined again");
    upstream_address_changes: Family<AddressChange, Counter> = with_zeros(
        "upstream_address_changes",
        "Changes of the address that requests to an upstream go to first",
    );
    looks: Family<LookReason, Counter> = with_zeros("looks", "Checks of followed threads");
    looks_waiting: Gauge =
        single("looks_waiting", "Checks of followed threads that wait for their turn");
    turns_waiting: Gauge = single(
        "turns_waiting",
        "Looks and starts of clients that wait for a turn at an upstream",
    );
    poll_lag: Histogram = histogram(
        "poll_lag",
        "Time from a poll of followed threads being due to its answer",
        Unit::Seconds,
        &HEADERS_BUCKETS,
    );
    acp_connections: Family<Transport, Gauge> =
        with_zeros("acp_open_connections", "Open connections of ACP clients");
    acp_sessions: Family<Transport, Gauge> =
        with_zeros("acp_open_sessions", "Open sessions of ACP clients");
    acp_prompts: Family<Transport, Gauge> =
        with_zeros("acp_active_prompts", "ACP prompts that are not answered yet");
    acp_prompts_ended: Family<Pair<Transport, PromptEnd>, Counter> =
        pairs("acp_prompts_ended", "Ended ACP prompts");
    acp_updates: Family<Transport, Counter> =
        with_zeros("acp_updates", "Session updates to ACP clients");
    reloads: Family<Reload, Counter> =
        with_zeros("config_reloads", "Reloads of the configuration");
    added_latency: Histogram = histogram(
        "added_latency",
        "Time from reading upstream bytes to handing over the client's bytes, for live events; \
         includes the wait for slow clients",
        Unit::Seconds,
        &LATENCY_BUCKETS,
    );
    stream_bytes: Histogram =
        histogram("stream", "Bytes sent on a stream", Unit::Bytes, &BYTES_BUCKETS);
    run_bytes: Histogram =
        histogram("upstream_run", "Bytes read of a run's streams", Unit::Bytes, &BYTES_BUCKETS);
    upstream_headers: Histogram = histogram(
        "upstream_headers",
        "Time from a request to an upstream to the headers of the answer",
        Unit::Seconds,
        &HEADERS_BUCKETS,
    );
}

/// Registers metrics. Help texts have no full stop: the encoding adds it.
struct Registration<'a>(&'a mut Registry);

impl Registration<'_> {
    /// A metric; of a family, no series yet.
    fn single<M: Metric + Clone + Default>(&mut self, name: &str, help: &str) -> M {
        let metric = M::default();
        self.0.register(name, help, metric.clone());
        metric
    }

    /// A family with all its series at zero, so that a query finds what has not happened yet.
    fn with_zeros<L, M>(&mut self, name: &str, help: &str) -> Family<L, M>
    where
        L: Label + EncodeLabelSet + Eq + Hash + fmt::Debug + Send + Sync,
        M: Metric + Clone + Default,
        Family<L, M>: Metric,
    {
        let family: Family<L, M> = self.single(name, help);
        for label in L::ALL {
            drop(family.get_or_create(label));
        }
        family
    }

    /// A family with a series at zero for each pair of labels.
    fn pairs<A, B>(&mut self, name: &str, help: &str) -> Family<Pair<A, B>, Counter>
    where
        A: Label + Eq + Hash + fmt::Debug + Send + Sync,
        B: Label + Eq + Hash + fmt::Debug + Send + Sync,
    {
        let family: Family<Pair<A, B>, Counter> = self.single(name, help);
        for (a, b) in A::ALL.iter().flat_map(|a| B::ALL.iter().map(move |b| (*a, *b))) {
            drop(family.get_or_create(&Pair(a, b)));
        }
        family
    }

    /// A family with a series at zero for each kind of failure.
    fn failures(&mut self, name: &str, help: &str) -> Family<FailureKind, Counter> {
        let family: Family<FailureKind, Counter> = self.single(name, help);
        for answer in Answer::ALL.iter().filter(|answer| **answer != Answer::Ok) {
            drop(family.get_or_create(&FailureKind(*answer)));
        }
        family
    }

    fn histogram(&mut self, name: &str, help: &str, unit: Unit, buckets: &[f64]) -> Histogram {
        let histogram = Histogram::new(buckets.iter().copied());
        self.0.register_with_unit(name, help, unit, histogram.clone());
        histogram
    }
}
