//! The gateway's metrics, for Prometheus.
//!
//! There is no global registry: [`Metrics`] is passed to the code that counts. It reads no clock;
//! the callers measure times. Labels are closed sets of words, never ids or names.
//!
//! The guards (`GaugeGuard`, `StreamMeter`, `RunMeter`, `PromptMeter`) count when they are made and
//! when they are dropped, so that no gauge is left raised.
//!
//! - `families`: every metric, with its name and help text.
//! - `label`: the labels and their values.
//! - `format`: the text formats.
//! - `memory`: what clients make the gateway hold, within one budget.

mod families;
mod format;
mod label;
mod memory;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use families::Families;
pub use format::Format;
pub(crate) use label::{
    AddressChange, Answer, Held, LookReason, Operation, Origin, PromptEnd, Protocol, Rejoin,
    Reload, Resume, Resync, Route, RunEnd, StatusClass, StreamEnd, Transport,
};
use label::{FailureKind, Pair, RefusalReason};
pub use memory::Full;
pub(crate) use memory::{Charge, ChargedTo, DEFAULT_MEMORY_BYTES, LARGE, Memory, SMALL};

/// The gateway's metrics. Clones share them.
#[derive(Clone)]
pub struct Metrics(Arc<Families>, Memory);

/// Raises a gauge by one until it is dropped.
#[derive(Debug)]
pub(crate) struct GaugeGuard(Gauge);

/// Counts a stream to a client, until it is dropped.
#[derive(Debug)]
pub(crate) struct StreamMeter {
    metrics: Metrics,
    _active: GaugeGuard,
    bytes: u64,
    end: StreamEnd,
}

/// Counts what happens on an ACP connection. Clones count for the same transport.
#[derive(Clone, Debug)]
pub(crate) struct AcpMeter {
    metrics: Metrics,
    transport: Transport,
    /// Looked up once, because updates are frequent.
    updates: Counter,
    /// Whose share of the memory for clients the connection uses.
    holder: ChargedTo,
}

/// Counts an ACP prompt, until it is dropped.
#[derive(Debug)]
pub(crate) struct PromptMeter {
    meter: AcpMeter,
    _active: GaugeGuard,
    end: PromptEnd,
}

/// Counts the reading of a run, until it is dropped.
#[derive(Debug)]
pub(crate) struct RunMeter {
    metrics: Metrics,
    _active: GaugeGuard,
    bytes: u64,
    end: RunEnd,
}

// === impl Metrics ===

impl Metrics {
    /// A request was answered.
    pub(crate) fn answered(&self, route: Route, status: StatusClass) {
        self.0.requests.get_or_create(&Pair(route, status)).inc();
    }

    /// A request was refused, with this stable code.
    pub fn refused(&self, code: &'static str) {
        self.0.requests_refused.get_or_create(&RefusalReason(code)).inc();
    }

    /// A connection was opened.
    pub(crate) fn connection(&self) -> GaugeGuard {
        GaugeGuard::new(&self.0.connections)
    }

    /// A connection was refused because of the connection limit.
    pub(crate) fn connection_refused(&self) {
        self.0.connections_refused.inc();
    }

    /// A client's stream begins.
    pub(crate) fn stream(&self, protocol: Protocol) -> StreamMeter {
        let active = GaugeGuard::new(&self.0.streams.get_or_create(&protocol));
        StreamMeter { metrics: self.clone(), _active: active, bytes: 0, end: StreamEnd::Left }
    }

    /// Counts for ACP connections of this transport.
    pub(crate) fn acp(&self, transport: Transport) -> AcpMeter {
        let updates = self.0.acp_updates.get_or_create(&transport).clone();
        AcpMeter { metrics: self.clone(), transport, updates, holder: ChargedTo::Stranger }
    }

    /// A reader of a run or a thread begins.
    pub(crate) fn viewer(&self) -> GaugeGuard {
        GaugeGuard::new(&self.0.viewers)
    }

    /// The reading of a run begins.
    pub(crate) fn reading(&self, origin: Origin) -> RunMeter {
        self.0.runs_started.get_or_create(&origin).inc();
        let active = GaugeGuard::new(&self.0.runs);
        RunMeter { metrics: self.clone(), _active: active, bytes: 0, end: RunEnd::Unread }
    }

    /// A thread is followed.
    pub(crate) fn following(&self) -> GaugeGuard {
        GaugeGuard::new(&self.0.threads)
    }

    /// A client reconnected with an event id.
    pub(crate) fn resumed(&self, kind: Resume) {
        self.0.resumes.get_or_create(&kind).inc();
    }

    /// A reader is sent a snapshot of a run.
    pub(crate) fn resynced(&self, reason: Resync) {
        self.0.resyncs.get_or_create(&reason).inc();
    }

    /// A keyframe of a run was made for a reader.
    pub(crate) fn keyframe_made(&self) {
        self.0.keyframes.inc();
    }

    /// A reader skipped this many batches of a run's events.
    pub(crate) fn missed(&self, batches: u64) {
        self.0.missed_batches.inc_by(batches);
    }

    /// A request to an upstream was answered, or failed.
    pub(crate) fn upstream_answered(&self, operation: Operation, answer: Answer) {
        self.0.upstream_requests.get_or_create(&Pair(operation, answer)).inc();
    }

    /// A request to an upstream, or a stream of its, failed. [`Answer::Ok`] is not counted.
    pub(crate) fn upstream_failed(&self, answer: Answer) {
        if answer != Answer::Ok {
            self.0.upstream_errors.get_or_create(&FailureKind(answer)).inc();
        }
    }

    /// The headers of an upstream's answer came after this time.
    pub(crate) fn upstream_headers(&self, after: Duration) {
        self.0.upstream_headers.observe(after.as_secs_f64());
    }

    /// Requests to an upstream go to another of its addresses.
    pub(crate) fn address_changed(&self, reason: AddressChange) {
        self.0.upstream_address_changes.get_or_create(&reason).inc();
    }

    /// A run's stream is joined again.
    pub(crate) fn rejoined(&self, reason: Rejoin) {
        self.0.upstream_rejoins.get_or_create(&reason).inc();
    }

    /// A followed thread is checked, or many of them at once.
    pub(crate) fn looked(&self, reason: LookReason) {
        self.0.looks.get_or_create(&reason).inc();
    }

    /// A request to an upstream waits for its answer.
    pub(crate) fn upstream_request(&self) -> GaugeGuard {
        GaugeGuard::new(&self.0.upstream_requests_open)
    }

    /// A check of a followed thread waits for its turn.
    pub(crate) fn look_waiting(&self) -> GaugeGuard {
        GaugeGuard::new(&self.0.looks_waiting)
    }

    /// A look or a start waits for its turn at an upstream.
    pub(crate) fn turn_waiting(&self) -> GaugeGuard {
        GaugeGuard::new(&self.0.turns_waiting)
    }

    /// How many clients have an SSE stream, or may wait for one.
    pub(crate) fn sse_clients(&self) -> u32 {
        let streams = self.0.streams.get_or_create(&Protocol::Sse).get();
        u32::try_from(streams.saturating_add(self.0.turns_waiting.get())).unwrap_or_default()
    }

    /// A poll was answered this long after it was due.
    pub(crate) fn polled(&self, after: Duration) {
        self.0.poll_lag.observe(after.as_secs_f64());
    }

    /// A configuration was reloaded.
    pub(crate) fn reloaded(&self, result: Reload) {
        self.0.reloads.get_or_create(&result).inc();
    }

    /// The budget for what clients make the gateway hold.
    pub(crate) fn memory(&self) -> &Memory {
        &self.1
    }

    /// All metrics, as a scraper reads them.
    pub fn text(&self, format: Format) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode_registry(&mut text, &self.0.registry);
        match format {
            Format::OpenMetrics => {
                let _ = encode_eof(&mut text);
                text
            }
            Format::Prometheus => format::prometheus(&text),
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let families = Families::register();
        let memory = Memory::new(&families.held);
        Self(Arc::new(families), memory)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

// === impl GaugeGuard ===

impl GaugeGuard {
    fn new(gauge: &Gauge) -> Self {
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
    /// Bytes were handed to the client's connection. For live events, `after` is the time since the
    /// upstream's bytes were read.
    pub(crate) fn sent(&mut self, bytes: usize, after: Option<Duration>) {
        self.bytes += bytes as u64;
        if let Some(after) = after {
            self.metrics.0.added_latency.observe(after.as_secs_f64());
        }
    }

    /// How many clients have an SSE stream, or may wait for one.
    pub(crate) fn sse_clients(&self) -> u32 {
        self.metrics.sse_clients()
    }

    /// Bytes were encoded for this stream. Other bytes that it sends were encoded by other streams.
    pub(crate) fn encoded(&mut self, bytes: u64) {
        self.metrics.0.encoded_bytes.inc_by(bytes);
    }

    /// Sets how the stream ended. The default is [`StreamEnd::Left`].
    pub(crate) fn ended(&mut self, end: StreamEnd) {
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

// === impl AcpMeter ===

impl AcpMeter {
    /// Counts what is held against this share.
    pub(crate) fn held_by(self, holder: ChargedTo) -> Self {
        Self { holder, ..self }
    }

    /// A charge of no bytes yet.
    pub(crate) fn charge(&self, kind: Held) -> Charge {
        self.metrics.memory().charge(kind, self.holder)
    }

    /// A client has connected.
    pub(crate) fn connection(&self) -> GaugeGuard {
        GaugeGuard::new(&self.metrics.0.acp_connections.get_or_create(&self.transport))
    }

    /// A session is open.
    pub(crate) fn session(&self) -> GaugeGuard {
        GaugeGuard::new(&self.metrics.0.acp_sessions.get_or_create(&self.transport))
    }

    /// A prompt begins.
    pub(crate) fn prompt(&self) -> PromptMeter {
        let active = GaugeGuard::new(&self.metrics.0.acp_prompts.get_or_create(&self.transport));
        PromptMeter { meter: self.clone(), _active: active, end: PromptEnd::Left }
    }

    /// This many updates are sent.
    pub(crate) fn updates(&self, count: u64) {
        self.updates.inc_by(count);
    }
}

// === impl PromptMeter ===

impl PromptMeter {
    /// Sets how the prompt ended. The default is [`PromptEnd::Left`].
    pub(crate) fn ended(&mut self, end: PromptEnd) {
        self.end = end;
    }
}

impl Drop for PromptMeter {
    fn drop(&mut self) {
        let AcpMeter { metrics, transport, .. } = &self.meter;
        metrics.0.acp_prompts_ended.get_or_create(&Pair(*transport, self.end)).inc();
    }
}

// === impl RunMeter ===

impl RunMeter {
    /// Bytes of the run's stream were read.
    pub(crate) fn read(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// How many bytes of the run's streams were read.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Sets how the reading ended. The default is [`RunEnd::Unread`].
    pub(crate) fn ended(&mut self, end: RunEnd) {
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
