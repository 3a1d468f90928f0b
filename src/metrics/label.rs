//! The labels of the metrics: closed sets of words, each a type of its own.
//!
//! What comes from outside (an id, an agent's name, a path) is never a label: whoever sends it
//! could make as many series as they like, and a metric would tell what only a thread may.

use std::fmt;

use prometheus_client::encoding::{EncodeLabel, EncodeLabelSet, LabelSetEncoder};

/// A label whose values are known beforehand.
pub(super) trait Label: Copy + 'static {
    /// The label's name.
    const NAME: &'static str;
    /// Every value.
    const ALL: &'static [Self];

    /// The value as it is written.
    fn text(self) -> &'static str;
}

/// Two labels of one series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Both<A, B>(pub(super) A, pub(super) B);

/// The stable code of a refusal: those of `server::Reject` are all there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Code(pub(super) &'static str);

/// What an answer is that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Kind(pub(super) Answer);

/// Declares a label: its name, and its values as they are named in the code and as they are
/// written.
macro_rules! label {
    ($(#[$doc:meta])* $name:ident($key:literal) {
        $($(#[$value_doc:meta])* $value:ident = $text:literal,)+
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$value_doc])* $value,)+
        }

        impl Label for $name {
            const NAME: &'static str = $key;
            const ALL: &'static [Self] = &[$(Self::$value),+];

            fn text(self) -> &'static str {
                match self {
                    $(Self::$value => $text,)+
                }
            }
        }

        impl EncodeLabelSet for $name {
            fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
                encode(*self, encoder)
            }
        }
    };
}

label! {
    /// What a stream to a client speaks.
    Protocol("protocol") {
        /// AG-UI as server-sent events.
        AguiSse = "agui_sse",
        /// AG-UI, one JSON document a line.
        AguiNdjson = "agui_ndjson",
        /// AG-UI, as one JSON array when it has ended or the client waits no longer.
        AguiJson = "agui_json",
        /// AG-UI on a WebSocket: one stream for each turn.
        AguiWebSocket = "agui_websocket",
        /// AG-UI in its binary binding.
        AguiProto = "agui_proto",
    }
}

label! {
    /// How a stream to a client ended.
    StreamEnd("outcome") {
        /// It told that its run finished, or the thread at rest.
        Finished = "finished",
        /// It told that its run asks a question.
        Interrupted = "interrupted",
        /// It told that its run was stopped.
        Cancelled = "cancelled",
        /// It told of a failure: of the run, of the upstream or of ours.
        Failed = "failed",
        /// It broke off between two events because the gateway stops.
        BrokenOff = "broken_off",
        /// Its client went away, or took no byte for too long.
        Left = "left",
    }
}

label! {
    /// What was asked for.
    Route("route") {
        /// A run is started.
        Run = "run",
        /// A thread is connected to.
        Connect = "connect",
        /// A thread's events, for an `EventSource`.
        Events = "events",
        /// A socket for runs is opened.
        WebSocket = "websocket",
        /// A run is stopped.
        Stop = "stop",
        /// What an agent can do.
        Capabilities = "capabilities",
        /// The agents.
        Info = "info",
        /// Threads are listed, changed or inspected.
        Threads = "threads",
        /// CopilotKit's single route.
        Envelope = "envelope",
        /// A file of the page.
        Page = "page",
        /// Whether the process is alive.
        Healthz = "healthz",
        /// Whether it is ready.
        Readyz = "readyz",
        /// The routes as `OpenAPI`.
        OpenApi = "openapi",
        /// Any other route.
        Other = "other",
        /// No route of ours.
        Unknown = "unknown",
    }
}

label! {
    /// The class of a response's status.
    StatusClass("status") {
        /// 100 to 199.
        Informational = "1xx",
        /// 200 to 299.
        Success = "2xx",
        /// 300 to 399.
        Redirection = "3xx",
        /// 400 to 499.
        ClientError = "4xx",
        /// 500 and above.
        ServerError = "5xx",
    }
}

label! {
    /// Who has started a run that is read.
    Origin("origin") {
        /// A client of this gateway's, just now.
        Started = "started",
        /// Somebody else, or another replica: it was joined.
        Joined = "joined",
    }
}

label! {
    /// How the reading of a run ended.
    RunEnd("outcome") {
        /// The run finished.
        Finished = "finished",
        /// It asks a question.
        Interrupted = "interrupted",
        /// It was stopped.
        Cancelled = "cancelled",
        /// It failed.
        Failed = "failed",
        /// It was lost sight of.
        Lost = "lost",
        /// The gateway stops.
        Shutdown = "shutdown",
        /// Nobody read it any more.
        Unread = "unread",
    }
}

label! {
    /// What a client got that came back with the id of an event.
    Resume("kind") {
        /// What is behind it in the run's log.
        Log = "log",
        /// What is behind it, of a replay by the upstream.
        Replay = "replay",
        /// The run or the thread as it stands.
        StartOver = "start_over",
        /// Nothing: it was the last event.
        Ended = "ended",
    }
}

label! {
    /// Why a reader was told a run as it stands.
    Resync("reason") {
        /// It has just come.
        Joined = "joined",
        /// It goes on with its thread's next run.
        NextRun = "next_run",
        /// It fell off the run's log.
        FellBehind = "fell_behind",
    }
}

label! {
    /// What is asked of an upstream.
    Operation("operation") {
        /// Start a run.
        StartRun = "start_run",
        /// Join a run's stream.
        JoinRun = "join_run",
        /// Read a run's record.
        RunRecord = "run_record",
        /// List a thread's runs.
        Runs = "runs",
        /// Stop a run.
        CancelRun = "cancel_run",
        /// Hear when the runs of a thread begin and end.
        ThreadLifecycle = "thread_lifecycle",
        /// Read a thread's state.
        ThreadState = "thread_state",
        /// Read a thread's history.
        ThreadHistory = "thread_history",
        /// Create a thread.
        CreateThread = "create_thread",
        /// Read a thread's record.
        ThreadRecord = "thread_record",
        /// List threads.
        Threads = "threads",
        /// Ask which of the followed threads have moved.
        PollThreads = "poll_threads",
        /// Change a thread's metadata.
        ChangeThread = "change_thread",
        /// Delete a thread.
        DeleteThread = "delete_thread",
        /// List the assistants.
        Assistants = "assistants",
        /// Read one.
        Assistant = "assistant",
        /// Read what the server says of itself.
        Info = "info",
        /// Ask whether it is ready.
        Probe = "probe",
    }
}

label! {
    /// Why a followed thread is looked at, or many of them at once.
    LookReason("reason") {
        /// One request asks which threads have moved.
        Poll = "poll",
        /// A poll has seen the thread move.
        Moved = "moved",
        /// The server's lifecycle stream has named a run.
        Bell = "bell",
        /// A client wants to know how the thread is now.
        Asked = "asked",
        /// The run that was shown has ended.
        Ended = "ended",
        /// Time has passed.
        Interval = "interval",
    }
}

label! {
    /// What became of a request to an upstream, or of the stream that it got.
    Answer("outcome") {
        /// What was asked was done.
        Ok = "ok",
        /// No connection could be made.
        Unreachable = "unreachable",
        /// It took too long.
        Timeout = "timeout",
        /// The connection broke.
        Interrupted = "interrupted",
        /// 401 or 403.
        Unauthorized = "unauthorized",
        /// 404: also what a thread is that does not exist yet.
        NotFound = "not_found",
        /// 429.
        RateLimited = "rate_limited",
        /// Any other status of 4xx.
        Refused = "refused",
        /// A status of 5xx, or one that is none.
        Failed = "failed",
        /// An answer that is no LangGraph server's.
        NotUnderstood = "not_understood",
        /// An answer beyond the limit.
        TooLarge = "too_large",
    }
}

label! {
    /// Why a run's stream was joined again.
    Rejoin("reason") {
        /// The connection broke, or was refused.
        Cut = "cut",
        /// It was silent for too long.
        Silent = "silent",
        /// It ended in order, and the run goes on.
        Ended = "ended",
        /// What it brought may be a repeat.
        Doubtful = "doubtful",
        /// What it brought is no event stream.
        Unreadable = "unreadable",
    }
}

label! {
    /// What became of a new configuration.
    Reload("result") {
        /// It is in force.
        Done = "done",
        /// It is wrong, and the old one stays.
        Refused = "refused",
    }
}

fn encode<L: Label>(label: L, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
    (L::NAME, label.text()).encode(encoder.encode_label())
}

// === impl Both ===

impl<A: Label, B: Label> EncodeLabelSet for Both<A, B> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        encode(self.0, encoder)?;
        encode(self.1, encoder)
    }
}

// === impl Code ===

impl EncodeLabelSet for Code {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        ("reason", self.0).encode(encoder.encode_label())
    }
}

// === impl Kind ===

impl EncodeLabelSet for Kind {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        ("kind", self.0.text()).encode(encoder.encode_label())
    }
}

// === impl Answer ===

impl Answer {
    /// The word for it.
    pub fn word(self) -> &'static str {
        self.text()
    }
}

// === impl Origin ===

impl Origin {
    /// The word for it.
    pub fn word(self) -> &'static str {
        self.text()
    }
}

// === impl Route ===

impl Route {
    /// The word for it.
    pub fn word(self) -> &'static str {
        self.text()
    }
}

// === impl RunEnd ===

impl RunEnd {
    /// The word for it.
    pub fn word(self) -> &'static str {
        self.text()
    }
}

// === impl StatusClass ===

impl StatusClass {
    /// The class of a status code.
    pub fn of(status: u16) -> Self {
        match status {
            ..200 => Self::Informational,
            200..300 => Self::Success,
            300..400 => Self::Redirection,
            400..500 => Self::ClientError,
            500.. => Self::ServerError,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn is_a_set_of_words<L: Label>() {
        let words: HashSet<_> = L::ALL.iter().map(|label| label.text()).collect();
        assert_eq!(words.len(), L::ALL.len(), "{}", L::NAME);
        let is_word =
            |word: &str| word.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'));
        assert!(words.iter().all(|word| is_word(word)), "{words:?}");
    }

    #[test]
    fn each_label_has_words_of_its_own() {
        is_a_set_of_words::<Protocol>();
        is_a_set_of_words::<StreamEnd>();
        is_a_set_of_words::<Route>();
        is_a_set_of_words::<StatusClass>();
        is_a_set_of_words::<Origin>();
        is_a_set_of_words::<RunEnd>();
        is_a_set_of_words::<Resume>();
        is_a_set_of_words::<Resync>();
        is_a_set_of_words::<Operation>();
        is_a_set_of_words::<LookReason>();
        is_a_set_of_words::<Answer>();
        is_a_set_of_words::<Rejoin>();
        is_a_set_of_words::<Reload>();
    }

    #[test]
    fn a_status_has_the_class_of_its_first_digit() {
        for (status, class) in [
            (100, "1xx"),
            (204, "2xx"),
            (308, "3xx"),
            (404, "4xx"),
            (429, "4xx"),
            (500, "5xx"),
            (999, "5xx"),
        ] {
            assert_eq!(StatusClass::of(status).text(), class, "{status}");
        }
    }
}
