//! The labels of the metrics: closed sets of words, each a type of its own.
//!
//! A value from outside (an id, an agent's name, a path) is never a label. Its sender could make any
//! number of series, and a metric would show what only a viewer of the thread may see.

use std::fmt;

use prometheus_client::encoding::{EncodeLabel, EncodeLabelSet, LabelSetEncoder};

/// A label whose values are known beforehand.
pub(super) trait Label: Copy + 'static {
    const NAME: &'static str;
    const ALL: &'static [Self];

    /// The value's text.
    fn word(self) -> &'static str;
}

/// Two labels of one series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pair<A, B>(pub(super) A, pub(super) B);

/// The stable code of a refusal: one of `server::Reject`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct RefusalReason(pub(super) &'static str);

/// Why an upstream request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FailureKind(pub(super) Answer);

/// Declares a label: its name, and each value with its text.
macro_rules! label {
    ($(#[$doc:meta])* $name:ident($key:literal) {
        $($(#[$value_doc:meta])* $value:ident = $text:literal,)+
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum $name {
            $($(#[$value_doc])* $value,)+
        }

        impl $name {
            /// The value's text.
            pub(crate) fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $text,)+
                }
            }
        }

        impl Label for $name {
            const NAME: &'static str = $key;
            const ALL: &'static [Self] = &[$(Self::$value),+];

            fn word(self) -> &'static str {
                self.as_str()
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
    /// The framing of an AG-UI stream to a client.
    Protocol("protocol") {
        /// AG-UI as server-sent events.
        Sse = "agui_sse",
        /// AG-UI, one JSON document a line.
        Ndjson = "agui_ndjson",
        /// AG-UI, as one JSON array at the end of the run or of the client's wait.
        Json = "agui_json",
        /// AG-UI on a WebSocket: one stream for each turn.
        WebSocket = "agui_websocket",
        /// AG-UI in its binary binding.
        Proto = "agui_proto",
    }
}

label! {
    /// What is held for clients.
    Held("what") {
        /// Bodies of requests and messages, until they are handled.
        Body = "body",
        /// Answers that their clients have not read yet.
        Answer = "answer",
        /// What open ACP sessions keep of their clients' requests.
        Session = "session",
        /// States of idle threads, until they are sent, or while the threads are followed.
        Thread = "thread",
    }
}

label! {
    /// How an ACP client is connected.
    Transport("transport") {
        /// By a WebSocket.
        WebSocket = "websocket",
        /// By streamable HTTP.
        Http = "http",
    }
}

label! {
    /// How an ACP prompt ended.
    PromptEnd("outcome") {
        /// With the end of its run, or with a question that the next prompt answers.
        EndTurn = "end_turn",
        /// At the model's limit of tokens.
        MaxTokens = "max_tokens",
        /// At the graph's limit of steps.
        MaxTurnRequests = "max_turn_requests",
        /// With a refusal by the model.
        Refusal = "refusal",
        /// By the client.
        Cancelled = "cancelled",
        /// With a failure of the run, the upstream or the gateway.
        Failed = "failed",
        /// At once: its content is not accepted, or its session is busy.
        NotAccepted = "not_accepted",
        /// Without an answer, because its client left or the gateway is shutting down.
        Left = "left",
    }
}

label! {
    /// How a stream to a client ended.
    StreamEnd("outcome") {
        /// With the run's end, or an idle thread.
        Finished = "finished",
        /// With a question of the run.
        Interrupted = "interrupted",
        /// With a cancelled run.
        Cancelled = "cancelled",
        /// With a failure of the run, the upstream or the gateway.
        Failed = "failed",
        /// Between two events, because the gateway is shutting down.
        BrokenOff = "broken_off",
        /// Because its client left, or took no byte for too long.
        Left = "left",
    }
}

label! {
    /// The kind of route that was requested.
    Route("route") {
        /// Start a run.
        Run = "run",
        /// Connect to a thread.
        Connect = "connect",
        /// A thread's events, for an `EventSource`.
        Events = "events",
        /// A WebSocket for runs.
        WebSocket = "websocket",
        /// Stop a run.
        Stop = "stop",
        /// An agent's capabilities.
        Capabilities = "capabilities",
        /// ACP, for clients elsewhere.
        Acp = "acp",
        /// The list of agents.
        Info = "info",
        /// List, change or inspect threads.
        Threads = "threads",
        /// CopilotKit's single route.
        Envelope = "envelope",
        /// A file of the built-in page.
        Page = "page",
        /// The liveness probe.
        Healthz = "healthz",
        /// The readiness probe.
        Readyz = "readyz",
        /// The `OpenAPI` document.
        OpenApi = "openapi",
        /// Any other route.
        Other = "other",
        /// No known route.
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
    /// Who started a run that is read.
    Origin("origin") {
        /// A client of this gateway.
        Started = "started",
        /// Another program or another replica: the run was joined.
        Joined = "joined",
    }
}

label! {
    /// How the reading of a run ended.
    RunEnd("outcome") {
        /// The run finished.
        Finished = "finished",
        /// The run asks a question.
        Interrupted = "interrupted",
        /// The run was cancelled.
        Cancelled = "cancelled",
        /// The run failed.
        Failed = "failed",
        /// The run was out of reach for too long.
        Lost = "lost",
        /// The gateway is shutting down.
        Shutdown = "shutdown",
        /// The last reader left.
        Unread = "unread",
    }
}

label! {
    /// How a client that reconnected with an event id was served.
    Resume("kind") {
        /// The events after it, from the run's log. After a run's end, a follower gets those of the
        /// later runs.
        Log = "log",
        /// The events after it, from a replay by the upstream.
        Replay = "replay",
        /// A snapshot of the run or the thread.
        StartOver = "start_over",
        /// Nothing: the client has the last event.
        Ended = "ended",
    }
}

label! {
    /// Why a reader was sent a snapshot of a run.
    Resync("reason") {
        /// The reader is new.
        Joined = "joined",
        /// The reader continues with its thread's next run.
        NextRun = "next_run",
        /// The reader fell off the run's log.
        FellBehind = "fell_behind",
    }
}

label! {
    /// The kind of a request to an upstream.
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
        /// Read a thread's lifecycle stream: when its runs begin and end.
        ThreadLifecycle = "thread_lifecycle",
        /// Read a thread's state.
        ThreadState = "thread_state",
        /// Read a thread's history.
        ThreadHistory = "thread_history",
        /// Create a thread.
        CreateThread = "create_thread",
        /// Copy a thread.
        CopyThread = "copy_thread",
        /// Copy a checkpoint of a thread to its end.
        CopyCheckpoint = "copy_checkpoint",
        /// Read a thread's record.
        ThreadRecord = "thread_record",
        /// List threads.
        Threads = "threads",
        /// Ask which of the followed threads have changed.
        PollThreads = "poll_threads",
        /// Change a thread's metadata.
        ChangeThread = "change_thread",
        /// Delete a thread.
        DeleteThread = "delete_thread",
        /// List the assistants.
        Assistants = "assistants",
        /// Read an assistant.
        Assistant = "assistant",
        /// Read the server's description of itself.
        Info = "info",
        /// Ask whether the server is ready.
        Probe = "probe",
    }
}

label! {
    /// Why a followed thread is checked, or many of them at once.
    LookReason("reason") {
        /// One request asks which threads have changed.
        Poll = "poll",
        /// A poll has seen a change of the thread.
        Changed = "moved",
        /// The server's lifecycle stream has named a run.
        Lifecycle = "lifecycle",
        /// A client asks for the thread as it is now.
        Requested = "asked",
        /// The run that was shown has ended.
        Ended = "ended",
        /// The interval has passed.
        Interval = "interval",
    }
}

label! {
    /// The result of a request to an upstream, or of its stream.
    Answer("outcome") {
        /// The request succeeded.
        Ok = "ok",
        /// No connection could be made.
        Unreachable = "unreachable",
        /// No request was made: the server has not refused invented credentials yet.
        Unproven = "unproven",
        /// No request was made: too many waited.
        Crowded = "crowded",
        /// The answer took too long.
        Timeout = "timeout",
        /// The connection broke.
        Interrupted = "interrupted",
        /// 401 or 403.
        Unauthorized = "unauthorized",
        /// 404. A thread that does not exist yet is one too.
        NotFound = "not_found",
        /// 429.
        RateLimited = "rate_limited",
        /// Any other status of 4xx.
        Refused = "refused",
        /// A status of 5xx, or an invalid one.
        Failed = "failed",
        /// An answer that no LangGraph server gives.
        NotUnderstood = "not_understood",
        /// An answer larger than the limit.
        TooLarge = "too_large",
        /// An answer for which there was no room in `limits.memory_bytes`.
        NoRoom = "no_room",
    }
}

label! {
    /// Why requests to an upstream go to another of its addresses.
    AddressChange("reason") {
        /// The address does not answer.
        Failed = "failed",
        /// An address that is tried before it answers again.
        Returned = "returned",
    }
}

label! {
    /// Why a run's stream was joined again.
    Rejoin("reason") {
        /// The connection broke, or was refused.
        Cut = "cut",
        /// The connection was silent for too long.
        Silent = "silent",
        /// The stream ended cleanly, and the run goes on.
        Ended = "ended",
        /// A part may be a repeat.
        Doubtful = "doubtful",
        /// The bytes are not an event stream.
        Unreadable = "unreadable",
    }
}

label! {
    /// The result of a reload of the configuration.
    Reload("result") {
        /// The new configuration is in force.
        Done = "done",
        /// The new configuration is invalid, and the old one stays.
        Refused = "refused",
    }
}

fn encode<L: Label>(label: L, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
    (L::NAME, label.word()).encode(encoder.encode_label())
}

// === impl Pair ===

impl<A: Label, B: Label> EncodeLabelSet for Pair<A, B> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        encode(self.0, encoder)?;
        encode(self.1, encoder)
    }
}

// === impl RefusalReason ===

impl EncodeLabelSet for RefusalReason {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        ("reason", self.0).encode(encoder.encode_label())
    }
}

// === impl FailureKind ===

impl EncodeLabelSet for FailureKind {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        ("kind", self.0.word()).encode(encoder.encode_label())
    }
}

// === impl StatusClass ===

impl StatusClass {
    /// The class of a status code.
    pub(crate) fn of(status: u16) -> Self {
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
        let words: HashSet<_> = L::ALL.iter().map(|label| label.word()).collect();
        assert_eq!(words.len(), L::ALL.len(), "{}", L::NAME);
        let is_word =
            |word: &str| word.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'));
        assert!(words.iter().all(|word| is_word(word)), "{words:?}");
    }

    #[test]
    fn each_label_has_words_of_its_own() {
        is_a_set_of_words::<Protocol>();
        is_a_set_of_words::<StreamEnd>();
        is_a_set_of_words::<Held>();
        is_a_set_of_words::<Transport>();
        is_a_set_of_words::<PromptEnd>();
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
            assert_eq!(StatusClass::of(status).word(), class, "{status}");
        }
    }
}
