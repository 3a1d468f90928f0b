//! The LangGraph API over HTTP. Only this module of the gateway uses the HTTP client.
//!
//! Redirects are not followed. A request that may have had an effect is not repeated, because a
//! second POST would start a second run. Each answer is limited in time and size. A run's stream is
//! not: it may pause for a while, and lasts as long as the run.
//!
//! - `client`: a server, and the credentials that requests to it carry.
//! - `addresses`: where a server with several addresses is asked. `choice`: in which order.
//!   `backoff`: pauses between attempts.
//! - `run`, `thread`, `assistant`: the operations of [`Client`]. `list`: lists, in parts if they are
//!   large.
//! - `turns`: how many requests of clients are sent at once, and in which order.
//! - `prepared_request`: one request, its limits, and its metrics. `response`: the headers and bodies of
//!   answers. `answer_text`: a body that was read.
//! - `stream`: the response body of a run.
//! - `http1`: HTTP/1.1. `dial`: its connections, and those of a WebSocket. `tls`: certificates.
//! - `error`: why a request failed. `transport_error`: why HTTP itself failed. `availability`: log lines for outages.
//! - `caller`: the client's headers that are forwarded. `until`: how long it is admitted.
//! - `base_url`, `api_key`: checked settings. `key_set`: the public keys of a token issuer.

mod addresses;
mod answer_text;
mod api_key;
mod assistant;
mod availability;
mod backoff;
mod base_url;
mod caller;
mod choice;
mod client;
mod dial;
mod error;
mod http1;
mod key_set;
mod list;
mod prepared_request;
mod response;
mod run;
mod state_text;
mod states_below;
mod stream;
mod thread;
mod tls;
mod transport_error;
mod turns;
mod until;

use std::time::Duration;

use threadway_translate::sse;

pub(crate) use addresses::Affinity;
pub(crate) use addresses::MAX_ADDRESSES;
pub(crate) use answer_text::AnswerText;
pub use api_key::{ApiKey, NotAKey};
pub use availability::{OUTAGE_FAILURES, OUTAGE_LOG_INTERVAL};
pub(crate) use backoff::{Backoff, Seed};
pub use base_url::{BaseUrl, BaseUrlError};
pub use caller::{Caller, Identity, OnThreadNotFound};
pub(crate) use caller::{Purpose, is_trace};
pub use choice::{ADDRESS_PAUSE, LONGEST_ADDRESS_PAUSE, TRIAL_TIMEOUT};
pub(crate) use client::UpstreamCredentials;
pub(crate) use client::WeakClient;
pub use client::{Client, SetupError};
pub(crate) use dial::Dialer;
pub use error::Error;
pub(crate) use error::MAX_DETAIL_CHARS;
pub(crate) use key_set::KeySets;
pub use key_set::{KeySetUrl, NotAKeySetUrl};
pub(crate) use response::retry_after;
pub(crate) use run::{RunFilter, Visibility};
pub(crate) use state_text::StateText;
pub use stream::{Body, RunStream};
pub(crate) use thread::MAX_THREAD_PAGE;
pub use thread::ThreadSearch;
pub(crate) use threadway_translate::langgraph::{ThreadActivity, ThreadRecord};
pub use tls::{NotTls, Tls};
pub use turns::{MAX_LOOK_TURNS, MAX_START_TURNS, TURN_TIMEOUT};
pub(crate) use turns::{QueueClass, QueuePermit};
pub(crate) use until::Until;

/// How long connecting to a server may take. A slow network needs less, and a client still waits
/// this long. Several addresses of one server share this time.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the headers of a run's stream may take. Both servers send them as soon as the run is
/// recorded (9 ms measured), even if the run itself has to wait.
pub(crate) const START_TIMEOUT: Duration = Duration::from_mins(1);

/// How long a run's stream may send nothing before the connection counts as dead.
///
/// The Python server sends a heartbeat every 5 s. The JavaScript server sends none, and one of its
/// tools may be busy for five minutes. This is twice that.
pub const SILENCE_TIMEOUT: Duration = Duration::from_mins(10);

/// How long any other answer may take, including its body.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// How long an unused connection is kept for the next request. Both servers close an idle
/// connection after 5 s, and a POST must not meet a connection that is being closed.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(3);

/// The largest answer, in bytes. A state may be as large as the event that carries it.
pub const MAX_ANSWER_BYTES: usize = sse::MAX_EVENT_BYTES;
