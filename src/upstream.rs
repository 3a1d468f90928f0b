//! The LangGraph API over HTTP: the only place in the gateway that names its HTTP client.
//!
//! No redirect is followed, and nothing is repeated that the server may have done: a second POST would start a second run.
//! Each answer is bounded in time and size, but for a run's stream, which may be silent for a
//! while and lasts as long as the run.

mod caller;
mod error;
mod http1;
mod key_set;
mod presence;
mod thread;
mod tls;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{
    CONTENT_LOCATION, CONTENT_TYPE, DATE, HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER,
};
use http::{Method, Request, Response};
use http_body_util::Full;
use serde::Serialize;
use tokio::time::Instant;
use url::Url;
use uuid::Uuid;

pub use caller::{Caller, Identity, Purpose, Unknown, is_trace};
pub use error::{Error, MAX_DETAIL_CHARS};
pub use key_set::{KEY_SET_TIMEOUT, KeySetUrl, KeySets, MAX_KEY_SET_BYTES, NotAKeySetUrl};
pub use presence::{FAILURES as AWAY_FAILURES, PAUSE as AWAY_PAUSE};
pub use thread::{MAX_THREAD_PAGE, ThreadSearch};
pub use tls::{NotTls, Tls};

use threadway_translate::json;
pub use threadway_translate::langgraph::ThreadRecord;

use crate::metrics::{Answer, Metrics, Operation};
use crate::sync::Mutex;
use http1::{BodyError, Http, SendError};
use presence::Presence;
use threadway_translate::langgraph::{
    Assistant, ConfigField, InputKeys, MessagesKey, NewestRuns, RunRecord, RunRequest, ServerInfo,
};
use threadway_translate::sse;

/// How long the upstream may take to accept a connection: enough for a slow network, and what a
/// client still waits for.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a run's stream may take to begin. Both servers send the headers as soon as the run is
/// recorded (9 ms measured), also where the run itself has to wait.
pub const START_TIMEOUT: Duration = Duration::from_mins(1);

/// How long a run's stream may be silent.
///
/// The Python server sends a sign of life every 5 s. The JavaScript one never does, and a tool
/// that is silent for five minutes is a healthy run there: twice that is taken for a dead
/// connection.
pub const SILENCE_TIMEOUT: Duration = Duration::from_mins(10);

/// How long any other answer may take, read to its end.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a connection is kept for the next request: less than the 5 s after which both servers
/// close an idle one, so that a POST does not meet a connection that is being closed.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(3);

/// The largest answer that is read: a state may be as large as the event that carries it.
pub const MAX_ANSWER_BYTES: usize = sse::MAX_EVENT_BYTES;

/// The header in which a LangGraph server looks for its key.
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The header with which a stream is joined.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// How much of an answer the server sends back.
const PREFER: HeaderName = HeaderName::from_static("prefer");

/// The largest error body that is read. Both servers' are some hundred bytes; some name every
/// graph of the server.
const MAX_ERROR_BYTES: usize = 64 * 1024;

/// How many live runs of a thread are looked at: one runs at a time, the rest wait.
const MAX_LIVE_RUNS: usize = 100;

/// What is asked of each run of a list. Its `kwargs` are not: they hold the whole input of the run,
/// and pictures in it.
const RUN_COLUMNS: [&str; 4] = ["run_id", "status", "created_at", "metadata"];

/// How many assistants are asked for at once: both servers allow more.
const ASSISTANT_PAGE: usize = 100;

/// How many pages of assistants are read: 1,000, more than a person would choose from.
const MAX_ASSISTANT_PAGES: usize = 10;

/// A LangGraph API server, as somebody calls it. Clones share its connections.
#[derive(Clone, Debug)]
pub struct Client {
    http: Http,
    base: BaseUrl,
    key: Arc<Mutex<Option<ApiKey>>>,
    metrics: Metrics,
    /// The configuration's own.
    headers: HeaderMap,
    identity: Identity,
    /// Under which key of their states its graphs keep their conversations.
    messages_key: MessagesKey,
    caller: Caller,
    purpose: Purpose,
    /// Whether the server has refused to choose the columns of a list of runs.
    refuses_columns: Arc<AtomicBool>,
    presence: Arc<Presence>,
}

/// The credentials that a request is sent with: a configured upstream's, and the caller's. LangGraph
/// answers requests with equal ones alike.
///
/// Two configured upstreams may have one URL and different keys or headers: their accesses are never
/// equal.
#[derive(Clone)]
pub struct Access {
    /// The place of the configured upstream's key, which its clients share.
    configured: Arc<Mutex<Option<ApiKey>>>,
    caller: Caller,
}

/// What a thread is to the one who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// The server has shown it.
    Seen,
    /// The server has none of this name, or does not show it.
    Nothing,
}

/// The key that opens a LangGraph server. It is never printed.
#[derive(Clone)]
pub struct ApiKey(HeaderValue);

/// Where a LangGraph API server is: an http or https URL, with or without a path.
#[derive(Clone, PartialEq, Eq)]
pub struct BaseUrl(Url);

/// Why a text is no [`BaseUrl`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BaseUrlError {
    /// It is no URL at all.
    #[error("an absolute URL, as http://127.0.0.1:2024 ({0})")]
    NotAUrl(String),
    /// Its scheme is not one that we speak.
    #[error("a URL that begins with http:// or https://")]
    Scheme,
    /// It says more than where the server is.
    #[error("a URL without user, password, query and fragment")]
    Extra,
}

/// A text is no [`ApiKey`]. It is not repeated here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key: visible ASCII characters, at least one")]
pub struct NotAKey;

/// A client could not be set up: the system's certificates or TLS are out of reach.
#[derive(Debug, thiserror::Error)]
#[error("the HTTP client could not be set up: {0}")]
pub struct SetupError(rustls::Error);

/// A run that was started, and its stream.
#[derive(Debug)]
pub struct RunStream {
    /// LangGraph's id of the run, where the response's headers tell it.
    pub run_id: Option<String>,
    /// When the server answered, in milliseconds of its clock, to the second.
    pub date: Option<u64>,
    /// The stream.
    pub body: Body,
}

/// The bytes of a run's stream, as they come. Dropping it before its end closes the connection.
///
/// Not the response: its headers would keep the connection's first read buffer, 8 KiB a run.
pub struct Body(Source);

enum Source {
    Http(http1::Body),
    /// What a test makes up.
    #[cfg(test)]
    Made(http_body_util::combinators::BoxBody<Bytes, std::convert::Infallible>),
}

/// Which runs of a thread are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunFilter {
    /// Those that wait for their turn.
    Pending,
    /// The one that runs.
    Running,
    /// All.
    Any {
        /// How many at most.
        limit: usize,
    },
}

/// A request that is to be sent, and what is counted of it.
struct Asking {
    http: Http,
    url: Url,
    request: Box<Request<Full<Bytes>>>,
    count: Count,
}

/// What is counted of a request.
#[derive(Clone)]
struct Count {
    operation: Operation,
    metrics: Metrics,
    presence: Arc<Presence>,
    /// Whether 404 is an answer like any other: that there is no such thread, run or stream.
    may_be_absent: bool,
}

/// The body of `POST /assistants/search`.
#[derive(Serialize)]
struct AssistantSearch<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    graph_id: Option<&'a str>,
    limit: usize,
    offset: usize,
}

// === impl Client ===

impl Client {
    /// A client of the server at this URL, which may want a key. No connection is made yet.
    pub fn new(base: BaseUrl, key: Option<ApiKey>) -> Result<Self, SetupError> {
        Self::with(base, key, HeaderMap::new(), &Tls::default())
    }

    /// The same, which says these headers with all that it asks, over TLS as it is told.
    pub fn with(
        base: BaseUrl,
        key: Option<ApiKey>,
        headers: HeaderMap,
        tls: &Tls,
    ) -> Result<Self, SetupError> {
        let http = Http::new(tls)?;
        let (key, caller) = (Arc::new(Mutex::new(key)), Caller::default());
        let (metrics, identity) = (Metrics::default(), Identity::default());
        let messages_key = MessagesKey::default();
        let (purpose, refuses_columns) = Default::default();
        let presence = Arc::new(Presence::new(base.to_string()));
        Ok(Self {
            http,
            base,
            key,
            metrics,
            headers,
            identity,
            messages_key,
            caller,
            purpose,
            refuses_columns,
            presence,
        })
    }

    /// The same server, which is sent who its callers are, or not, from now on.
    #[must_use]
    pub fn identifying(self, identity: Identity) -> Self {
        Self { identity, ..self }
    }

    /// The same server, whose graphs keep their conversations under this key of their states.
    #[must_use]
    pub fn keeping_messages_under(self, messages_key: MessagesKey) -> Self {
        Self { messages_key, ..self }
    }

    /// The same server, and what is asked of it is counted there.
    #[must_use]
    pub fn counted_in(self, metrics: &Metrics) -> Self {
        Self { metrics: metrics.clone(), ..self }
    }

    /// The same server, as this caller may use it. What of the caller's headers the configuration
    /// has values of its own for does not go up, and so tells nothing of who asks. Nor does an
    /// identity that is withheld from this server.
    #[must_use]
    pub fn called_by(&self, caller: &Caller) -> Self {
        let key = self.has_key().then_some(API_KEY);
        let is_replaced =
            |name: &HeaderName| self.headers.contains_key(name) || key.as_ref() == Some(name);
        let stays = |name: &HeaderName| is_replaced(name) || self.identity.withholds(name);
        Self { caller: caller.without(stays), ..self.clone() }
    }

    /// The same server, used for this.
    #[must_use]
    pub fn used_for(self, purpose: Purpose) -> Self {
        Self { purpose, ..self }
    }

    /// What it is used for.
    pub fn purpose(&self) -> &Purpose {
        &self.purpose
    }

    /// Whether it is sent who its callers are.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Under which key of their states its graphs keep their conversations.
    pub fn messages_key(&self) -> &MessagesKey {
        &self.messages_key
    }

    /// Who asks it.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The credentials that its requests are sent with.
    pub fn access(&self) -> Access {
        Access { configured: Arc::clone(&self.key), caller: self.caller.clone() }
    }

    /// What of its requests is secret: its key, its headers, and what tells who asks.
    pub fn secrets(&self) -> Vec<Vec<u8>> {
        let key = self.key.lock().as_ref().map(|key| key.0.as_bytes().to_vec());
        let own = self.headers.values().map(HeaderValue::as_bytes);
        let callers = self.caller.identifying().map(|(_, value)| value);
        // Without the scheme: a token may stand elsewhere without it.
        let bare =
            |value: &[u8]| value.rsplit(|byte| *byte == b' ').next().unwrap_or_default().to_vec();
        key.into_iter().chain(own.chain(callers).map(bare)).collect()
    }

    /// Whether it has a key.
    pub fn has_key(&self) -> bool {
        self.key.lock().is_some()
    }

    /// Takes another key, or none, from now on; clones do too.
    pub fn use_key(&self, key: Option<ApiKey>) {
        *self.key.lock() = key;
    }

    /// Where the server is.
    pub fn base(&self) -> &BaseUrl {
        &self.base
    }

    /// Starts a run. It goes on upstream whatever becomes of the stream.
    pub async fn start_run(
        &self,
        thread_id: &str,
        request: &RunRequest,
    ) -> Result<RunStream, Error> {
        let post = self.request(
            Operation::StartRun,
            Method::POST,
            &["threads", thread_id, "runs", "stream"],
        );
        streamed(with_json(post, request)).await
    }

    /// Joins the stream of a run that is under way, from behind an event id; `-1` is the
    /// beginning.
    pub async fn join_run(
        &self,
        thread_id: &str,
        run_id: &str,
        last_event_id: &str,
    ) -> Result<RunStream, Error> {
        let get = self.request(
            Operation::JoinRun,
            Method::GET,
            &["threads", thread_id, "runs", run_id, "stream"],
        );
        let mut stream = streamed(get.header(LAST_EVENT_ID, last_event_id)?).await?;
        // The JavaScript server names it only where it was started.
        stream.run_id = Some(run_id.to_owned());
        Ok(stream)
    }

    /// The record of a run.
    pub async fn run_record(&self, thread_id: &str, run_id: &str) -> Result<RunRecord, Error> {
        let body = self.get(Operation::RunRecord, &["threads", thread_id, "runs", run_id]).await?;
        RunRecord::parse(&body).ok_or(Error::NotUnderstood { what: "a run" })
    }

    /// The record of a run of a thread, by an id that a client has sent. `None` if the thread has
    /// no such run, or the server does not show it to the caller.
    pub async fn find_run(
        &self,
        thread_id: &str,
        run_id: &str,
    ) -> Result<Option<RunRecord>, Error> {
        // LangGraph's run ids are UUIDs. Another text may change the URL's path, as `..` does.
        if Uuid::try_parse(run_id).is_err() {
            return Ok(None);
        }
        let path = ["threads", thread_id, "runs", run_id];
        match self.find(Operation::RunRecord, &path).await {
            Ok(body) => {
                let members: json::Members<'_> = serde_json::from_str(&body).unwrap_or_default();
                let is_of_thread =
                    members.string("thread_id").is_none_or(|thread| thread == thread_id);
                let record = RunRecord::parse(&body);
                let record = record.ok_or(Error::NotUnderstood { what: "a run" })?;
                Ok(Some(record).filter(|record| is_of_thread && record.id == run_id))
            }
            // The Python server takes UUIDs in any form, and the JavaScript one those with dashes.
            Err(Error::Status { code: 400 | 404 | 422, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether the server shows a thread to the caller.
    ///
    /// A thread that it does not show is an error to a caller to whom it may be somebody else's.
    pub async fn see(&self, thread_id: &str) -> Result<Sight, Error> {
        match self.listed_runs(thread_id, None, 1, &["run_id"]).await {
            Ok(_) => Ok(Sight::Seen),
            Err(Error::Status { code: 404, .. }) if self.caller.unknown() == Unknown::Empty => {
                Ok(Sight::Nothing)
            }
            Err(error) => Err(error),
        }
    }

    /// The newest runs of a thread, newest first; none for a thread that is not there, unless that
    /// may be somebody else's.
    ///
    /// The JavaScript server gives the oldest first (langgraph-api 2.0.0): there, the newest of a
    /// thread with more runs than are asked for are not among them, unless they are still to end.
    ///
    /// What each was asked for is left out where the server can do so, which the JavaScript one
    /// cannot: see [`Client::whole_run`].
    pub async fn runs(&self, thread_id: &str, filter: RunFilter) -> Result<Vec<RunRecord>, Error> {
        let (status, limit) = match filter {
            RunFilter::Pending => (Some("pending"), MAX_LIVE_RUNS),
            RunFilter::Running => (Some("running"), MAX_LIVE_RUNS),
            RunFilter::Any { limit } => (None, limit),
        };
        Ok(self.runs_with(thread_id, status, limit).await?.unwrap_or_default())
    }

    /// The newest runs of a thread, as [`runs`](Self::runs) lists them, and whether the server shows
    /// the thread to the caller, as [`see`](Self::see) does: `None` if it does not.
    pub async fn seen_runs(
        &self,
        thread_id: &str,
        limit: usize,
    ) -> Result<Option<Vec<RunRecord>>, Error> {
        self.runs_with(thread_id, None, limit).await
    }

    async fn runs_with(
        &self,
        thread_id: &str,
        status: Option<&str>,
        limit: usize,
    ) -> Result<Option<Vec<RunRecord>>, Error> {
        match self.listed_runs(thread_id, status, limit, &RUN_COLUMNS).await {
            Ok(body) => {
                let runs = RunRecord::parse_list(&body);
                runs.ok_or(Error::NotUnderstood { what: "a list of runs" }).map(Some)
            }
            Err(Error::Status { code: 404, .. }) if self.caller.unknown() == Unknown::Empty => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The newest runs of a thread that have begun, whatever the server's order; `None` if they
    /// cannot be told from the others.
    pub async fn newest_runs(&self, thread_id: &str) -> Result<Option<NewestRuns>, Error> {
        let body = self.listed_runs(thread_id, None, NewestRuns::LIMIT, &RUN_COLUMNS).await?;
        NewestRuns::parse(&body).ok_or(Error::NotUnderstood { what: "a list of runs" })
    }

    /// The record of a listed run, with the run's input. If the server has no such record any more,
    /// this returns the run as it was listed, and reading the run reports that it is gone.
    pub async fn whole_run(&self, thread_id: &str, listed: RunRecord) -> Result<RunRecord, Error> {
        if listed.has_request {
            return Ok(listed);
        }
        match self.run_record(thread_id, &listed.id).await {
            Err(Error::Status { code: 404, .. }) => Ok(listed),
            record => record,
        }
    }

    /// A list of runs with these columns. A server that refuses to choose them lists all.
    async fn listed_runs(
        &self,
        thread_id: &str,
        status: Option<&str>,
        limit: usize,
        columns: &[&str],
    ) -> Result<String, Error> {
        let list = async |columns: &[&str]| {
            let url = self.runs_url(thread_id, status, limit, columns);
            let get = self.request_to(Operation::Runs, Method::GET, url);
            answer(get.that_may_be_absent()).await
        };
        if self.refuses_columns.load(Ordering::Relaxed) {
            return list(&[]).await;
        }
        match list(columns).await {
            // Or it refuses the thread's id: then it does so again.
            Err(Error::Status { code: 400 | 422, .. }) => {
                let runs = list(&[]).await?;
                tracing::debug!(upstream = %self.base, "the server does not choose columns of runs");
                self.refuses_columns.store(true, Ordering::Relaxed);
                Ok(runs)
            }
            runs => runs,
        }
    }

    /// The Python server wants each column in a `select` of its own, and refuses a list with
    /// commas (langgraph-api 0.16.7).
    fn runs_url(
        &self,
        thread_id: &str,
        status: Option<&str>,
        limit: usize,
        columns: &[&str],
    ) -> Url {
        let mut url = self.url(&["threads", thread_id, "runs"]);
        let mut query = url.query_pairs_mut();
        if let Some(status) = status {
            query.append_pair("status", status);
        }
        query.append_pair("limit", &limit.to_string());
        query.extend_pairs(columns.iter().map(|column| ("select", column)));
        drop(query);
        url
    }

    /// Listens for the runs of a thread that begin and end; `None` where the server has no such
    /// stream, as the JavaScript one.
    pub async fn thread_lifecycle(&self, thread_id: &str) -> Result<Option<Body>, Error> {
        let mut url = self.url(&["threads", thread_id, "stream"]);
        url.query_pairs_mut().append_pair("stream_modes", "lifecycle");
        let get = self.request_to(Operation::ThreadLifecycle, Method::GET, url);
        match streamed(get.that_may_be_absent()).await {
            Ok(stream) => Ok(Some(stream.body)),
            Err(Error::Status { code: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Stops a run; whether it was there to be stopped. What it has committed stays.
    pub async fn cancel_run(&self, thread_id: &str, run_id: &str) -> Result<bool, Error> {
        // No `wait`: the JavaScript server takes any value of it for yes.
        let post = self.request(
            Operation::CancelRun,
            Method::POST,
            &["threads", thread_id, "runs", run_id, "cancel"],
        );
        match answer(post.that_may_be_absent()).await {
            Ok(_) => Ok(true),
            Err(Error::Status { code: 404, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// All assistants of the server, or those of one graph.
    pub async fn assistants(&self, graph_id: Option<&str>) -> Result<Vec<Assistant>, Error> {
        let mut all = Vec::new();
        for page in 0..MAX_ASSISTANT_PAGES {
            let offset = page * ASSISTANT_PAGE;
            let search = AssistantSearch { graph_id, limit: ASSISTANT_PAGE, offset };
            let post = self.request(Operation::Assistants, Method::POST, &["assistants", "search"]);
            let body = answer(with_json(post, &search)).await?;
            let assistants = Assistant::parse_list(&body)
                .ok_or(Error::NotUnderstood { what: "a list of assistants" })?;
            let is_last = assistants.len() < ASSISTANT_PAGE;
            all.extend(assistants);
            if is_last {
                break;
            }
        }
        Ok(all)
    }

    /// The keys that an assistant, named by its id, takes as its input.
    pub async fn input_keys(&self, assistant_id: &str) -> Result<InputKeys, Error> {
        let body = self.get(Operation::Assistant, &["assistants", assistant_id, "schemas"]).await?;
        InputKeys::parse(&body).ok_or(Error::NotUnderstood { what: "the schemas of an assistant" })
    }

    /// What a person can choose of the configuration of an assistant, named by its id.
    ///
    /// The JavaScript server fails with 500 for every graph whose schema is no zod object, unless
    /// the package `typescript` is installed beside it (langgraph-api 2.0.0).
    pub async fn config_fields(&self, assistant_id: &str) -> Result<Vec<ConfigField>, Error> {
        let (one, schemas) =
            (["assistants", assistant_id], ["assistants", assistant_id, "schemas"]);
        let (assistant, schemas) = tokio::try_join!(
            self.get(Operation::Assistant, &one),
            self.get(Operation::Assistant, &schemas)
        )?;
        Ok(ConfigField::list(&schemas, &assistant))
    }

    /// What the server says of itself.
    pub async fn info(&self) -> Result<ServerInfo, Error> {
        let body = self.get(Operation::Info, &["info"]).await?;
        ServerInfo::parse(&body).ok_or(Error::NotUnderstood { what: "a LangGraph server's" })
    }

    /// Whether the server is ready.
    pub async fn probe(&self) -> Result<(), Error> {
        self.get(Operation::Probe, &["ok"]).await?;
        Ok(())
    }

    async fn get(&self, operation: Operation, path: &[&str]) -> Result<String, Error> {
        answer(self.request(operation, Method::GET, path)).await
    }

    /// Gets what need not be there.
    async fn find(&self, operation: Operation, path: &[&str]) -> Result<String, Error> {
        answer(self.request(operation, Method::GET, path).that_may_be_absent()).await
    }

    fn request(&self, operation: Operation, method: Method, path: &[&str]) -> Asking {
        self.request_to(operation, method, self.url(path))
    }

    fn request_to(&self, operation: Operation, method: Method, url: Url) -> Asking {
        // A configured header replaces the caller's of the same name.
        let mut headers = self.caller.headers().clone();
        headers.extend(self.headers.clone());
        if let Some(ApiKey(key)) = &*self.key.lock() {
            headers.insert(API_KEY, key.clone());
        }
        let mut request = Box::new(Request::new(Full::default()));
        *request.method_mut() = method;
        *request.headers_mut() = headers;
        let (metrics, presence) = (self.metrics.clone(), Arc::clone(&self.presence));
        let count = Count { operation, metrics, presence, may_be_absent: false };
        Asking { http: self.http.clone(), url, request, count }
    }

    /// Each segment is escaped: ids come from outside.
    fn url(&self, path: &[&str]) -> Url {
        let mut url = self.base.0.clone();
        // A URL with http or https always has a path.
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        url
    }
}

/// Begins to read a stream.
async fn streamed(asking: Asking) -> Result<RunStream, Error> {
    let count = asking.count.clone();
    count.counted(Box::pin(begun(asking))).await
}

async fn begun(asking: Asking) -> Result<RunStream, Error> {
    // A refusal is read to its end within the same time.
    let response = within(START_TIMEOUT, async { successful(asking.send().await?).await }).await?;
    let content_type = header(response.headers(), &CONTENT_TYPE).unwrap_or_default();
    if !content_type.trim_start().to_ascii_lowercase().starts_with("text/event-stream") {
        return Err(Error::NotAnEventStream { content_type: content_type.to_owned() });
    }
    let (run_id, date) = (run_id(response.headers()), date(response.headers()));
    Ok(RunStream { run_id, date, body: Body(Source::Http(response.into_body())) })
}

/// Reads one bounded answer to its end.
async fn answer(asking: Asking) -> Result<String, Error> {
    let count = asking.count.clone();
    count.counted(Box::pin(within(ANSWER_TIMEOUT, read_answer(asking)))).await
}

async fn read_answer(asking: Asking) -> Result<String, Error> {
    let mut response = successful(asking.send().await?).await?;
    let mut body = Vec::new();
    read(response.body_mut(), MAX_ANSWER_BYTES, &mut body).await?;
    Ok(String::from_utf8(body)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// Waits until the server has done what was asked. What it says of it is not read.
async fn answered(asking: Asking) -> Result<(), Error> {
    let count = asking.count.clone();
    let head = async { successful(asking.send().await?).await };
    count.counted(Box::pin(within(ANSWER_TIMEOUT, head))).await.map(drop)
}

async fn within<T>(
    patience: Duration,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let late = |_| Err(Error::Timeout { waited: patience });
    tokio::time::timeout(patience, answer).await.unwrap_or_else(late)
}

/// The response, if the server does what was asked; else what it says instead.
async fn successful(mut response: Response<http1::Body>) -> Result<Response<http1::Body>, Error> {
    if response.status().is_success() {
        return Ok(response);
    }
    let code = response.status().as_u16();
    let wait = retry_after(response.headers());
    let mut body = Vec::new();
    if let Err(error) = read(response.body_mut(), MAX_ERROR_BYTES, &mut body).await {
        // Half an error text is better than none.
        tracing::debug!(code, %error, "a refusal was not read to its end");
    }
    Err(Error::status(code, &String::from_utf8_lossy(&body)).asking_to_wait(wait))
}

/// Reads a body to its end. What came before an error stays.
async fn read(source: &mut http1::Body, limit: usize, body: &mut Vec<u8>) -> Result<(), Error> {
    let mut chunks = Vec::new();
    while source.chunks(&mut chunks).await? {
        for chunk in chunks.drain(..) {
            let length = body.len() + chunk.len();
            if length > limit {
                return Err(Error::TooLarge { limit });
            }
            if length > body.capacity() {
                // Doubled as a vector does by itself, but never beyond the limit.
                let capacity = body.capacity().saturating_mul(2).clamp(length, limit);
                body.reserve_exact(capacity - body.len());
            }
            body.extend_from_slice(&chunk);
        }
    }
    Ok(())
}

fn with_json(asking: Asking, body: &impl Serialize) -> Asking {
    // Strings and raw values always serialise; an empty body is refused by the server.
    let body = serde_json::to_vec(body).unwrap_or_default();
    let mut asking = asking;
    asking.request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    *asking.request.body_mut() = body.into();
    asking
}

/// The run's id: the Python server sends both headers, the JavaScript one `Content-Location` only.
fn run_id(headers: &HeaderMap) -> Option<String> {
    let location = header(headers, &CONTENT_LOCATION).or_else(|| header(headers, &LOCATION))?;
    let mut segments = location.split(['/', '?']);
    segments.find(|segment| *segment == "runs")?;
    segments.next().filter(|id| !id.is_empty()).map(str::to_owned)
}

fn date(headers: &HeaderMap) -> Option<u64> {
    let date = time(headers, &DATE)?;
    u64::try_from(date.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()
}

/// After how long the server wants to be asked again. Seconds, or a time of the clock that the
/// answer is dated by.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let wait = header(headers, &RETRY_AFTER)?.trim();
    if let Ok(seconds) = wait.parse() {
        return Some(Duration::from_secs(seconds));
    }
    time(headers, &RETRY_AFTER)?.duration_since(time(headers, &DATE)?).ok()
}

fn time(headers: &HeaderMap, name: &HeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(header(headers, name)?).ok()
}

fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

impl From<SendError> for Error {
    fn from(error: SendError) -> Self {
        let reason = error.to_string();
        match error {
            // Nothing was asked, also where the time ran out.
            SendError::Connect(_) | SendError::ConnectTimeout => Self::Unreachable { reason },
            SendError::Broken(_) => Self::Interrupted { reason },
        }
    }
}

impl From<BodyError> for Error {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::Broken(_) => Self::Interrupted { reason: error.to_string() },
            BodyError::Silent => Self::Timeout { waited: SILENCE_TIMEOUT },
        }
    }
}

// === impl Access ===

impl PartialEq for Access {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.configured, &other.configured) && self.caller == other.caller
    }
}

impl Eq for Access {}

impl Hash for Access {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.configured).hash(state);
        self.caller.hash(state);
    }
}

impl fmt::Debug for Access {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Access").field(&self.caller).finish()
    }
}

// === impl Asking ===

impl Asking {
    /// The same, of something that need not be there: 404 is then no error of the upstream's. Each
    /// new chat asks for its thread, and callers may ask for threads that are not theirs.
    fn that_may_be_absent(mut self) -> Self {
        self.count.may_be_absent = true;
        self
    }

    fn header(mut self, name: HeaderName, value: &str) -> Result<Self, Error> {
        let value = HeaderValue::from_str(value);
        let value = value.map_err(|_| Error::NotUnderstood { what: "fit for a header" })?;
        self.request.headers_mut().insert(name, value);
        Ok(self)
    }

    /// Sends it, and waits for the head of the response.
    async fn send(self) -> Result<Response<http1::Body>, Error> {
        let Self { http, url, request, count } = self;
        let asked_at = Instant::now();
        let response = http.send(*request, &url).await?;
        count.metrics.upstream_headers(asked_at.elapsed());
        Ok(response)
    }
}

// === impl Count ===

impl Count {
    /// Counts the request until it is answered, and what came of it.
    async fn counted<T>(&self, answer: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let (open, waiting) = (self.metrics.upstream_request(), self.presence.waits());
        let answer = answer.await;
        drop(open);
        waiting.ended(&answer);
        let counted = answer.as_ref().map_or_else(Error::answer, |_| Answer::Ok);
        self.metrics.upstream_answered(self.operation, counted);
        if !(self.may_be_absent && counted == Answer::NotFound) {
            self.metrics.upstream_failed(counted);
        }
        answer
    }
}

// === impl Body ===

impl Body {
    /// A stream that a test makes up.
    #[cfg(test)]
    pub(crate) fn of<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes, Error = std::convert::Infallible> + Send + Sync + 'static,
    {
        Self(Source::Made(http_body_util::combinators::BoxBody::new(body)))
    }

    /// Takes the bytes that have come, and waits for the first. Returns whether there may be more:
    /// at the end nothing is taken. May be dropped while it waits.
    pub async fn chunks(&mut self, taken: &mut Vec<Bytes>) -> Result<bool, Error> {
        match &mut self.0 {
            Source::Http(body) => Ok(body.chunks(taken).await?),
            #[cfg(test)]
            Source::Made(body) => {
                let frame = http_body_util::BodyExt::frame(body).await;
                let chunk = frame.and_then(|Ok(frame)| frame.into_data().ok());
                taken.extend(chunk.clone());
                Ok(chunk.is_some())
            }
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Body")
    }
}

// === impl ApiKey ===

impl FromStr for ApiKey {
    type Err = NotAKey;

    fn from_str(text: &str) -> Result<Self, NotAKey> {
        let mut key = HeaderValue::from_str(text).map_err(|_| NotAKey)?;
        key.set_sensitive(true);
        if key.is_empty() { Err(NotAKey) } else { Ok(Self(key)) }
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

// === impl BaseUrl ===

impl FromStr for BaseUrl {
    type Err = BaseUrlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let url = Url::parse(text).map_err(|error| BaseUrlError::NotAUrl(error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(BaseUrlError::Scheme);
        }
        let has_user = !url.username().is_empty() || url.password().is_some();
        if has_user || url.query().is_some() || url.fragment().is_some() {
            return Err(BaseUrlError::Extra);
        }
        Ok(Self(url))
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str().trim_end_matches('/'))
    }
}

impl fmt::Debug for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use http::header;

    use super::*;

    #[test]
    fn the_run_id_is_read_from_either_header() {
        for (name, value, expected) in [
            (CONTENT_LOCATION, "/threads/T/runs/R", Some("R")),
            (LOCATION, "/threads/T/runs/R/stream", Some("R")),
            (CONTENT_LOCATION, "https://h/prefix/threads/T/runs/R?x=1", Some("R")),
            (CONTENT_LOCATION, "/runs/R", Some("R")),
            (CONTENT_LOCATION, "/threads/T/runs/", None),
            (CONTENT_LOCATION, "/elsewhere", None),
            (CONTENT_TYPE, "/threads/T/runs/R", None),
        ] {
            let headers = HeaderMap::from_iter([(name, value.parse().unwrap())]);
            assert_eq!(run_id(&headers).as_deref(), expected, "{value}");
        }
    }

    #[test]
    fn a_wait_is_read_in_seconds_and_as_a_date() {
        let read = |wait: &str, date: Option<&str>| {
            let mut headers = HeaderMap::from_iter([(RETRY_AFTER, wait.parse().unwrap())]);
            headers.extend(date.map(|date| (DATE, date.parse().unwrap())));
            retry_after(&headers).map(|wait| wait.as_secs())
        };
        let now = "Sun, 22 Nov 2026 08:00:00 GMT";
        assert_eq!(read("30", None), Some(30));
        assert_eq!(read("Sun, 22 Nov 2026 08:00:30 GMT", Some(now)), Some(30));
        assert_eq!(read("Sun, 22 Nov 2026 07:59:30 GMT", Some(now)), None);
        for other in ["", "-1", "soon", "Sun, 22 Nov 2026 08:00:30 GMT"] {
            assert_eq!(read(other, None), None, "{other}");
        }
    }

    #[test]
    fn configured_upstreams_with_one_url_have_accesses_of_their_own() {
        let client = || Client::new("http://h:1".parse().unwrap(), None).unwrap();
        let caller = |key: &'static str| {
            let value = HeaderValue::from_static(key);
            Caller::new(HeaderMap::from_iter([(header::AUTHORIZATION, value)]))
        };
        let (one, other) = (client(), client());
        let alice = one.called_by(&caller("alice"));
        assert_eq!(alice.access(), one.called_by(&caller("alice")).access());
        assert_ne!(alice.access(), one.called_by(&caller("bob")).access());
        assert_ne!(alice.access(), other.called_by(&caller("alice")).access());
        assert_ne!(one.access(), other.access());
    }

    #[test]
    fn ids_cannot_leave_their_place_in_the_path() {
        let client = Client::new("http://h:1/a/".parse().unwrap(), None).unwrap();
        let url = |id| client.url(&["threads", id, "state"]).to_string();
        assert_eq!(url("T"), "http://h:1/a/threads/T/state");
        assert_eq!(url("../x?y#z"), "http://h:1/a/threads/..%2Fx%3Fy%23z/state");
    }

    #[test]
    fn a_base_url_says_where_and_no_more() {
        for text in ["http://127.0.0.1:2024", "https://h/prefix/", "http://[::1]:1/"] {
            let url: BaseUrl = text.parse().unwrap();
            assert_eq!(url.to_string(), text.trim_end_matches('/'));
        }
        for text in ["", "localhost:2024", "ftp://h", "http://u:p@h", "http://h?x", "http://h#x"] {
            assert!(text.parse::<BaseUrl>().is_err(), "{text}");
        }
    }
}
