//! A LangGraph server, and the credentials that requests to it carry.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::addresses::{Addresses, RoutingKey};
use super::choice::TRIAL_TIMEOUT;
use super::prepared_request::{CallMetrics, PreparedRequest, Target};
use super::turns::{QueueClass, QueueKey, QueuePermit, UpstreamQueue};
use super::{AnswerText, ApiKey, BaseUrl, Caller, Error, Identity, Purpose, Tls};
use crate::metrics::{Answer, Metrics, Operation};
use crate::sync::Mutex;
use threadway_translate::langgraph::MessagesKey;

/// The request header that carries a LangGraph server's key.
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// A LangGraph API server, for one caller. Clones share its connections.
#[derive(Clone, Debug)]
pub struct Client {
    addresses: Arc<Addresses>,
    /// The only address that requests go to, if they may not go to all.
    only: Option<usize>,
    /// The URL of the address `only`, or else of the first address, which identifies the upstream.
    base: BaseUrl,
    /// Shared by all clients of this configured upstream, so that a new key reaches them all.
    key: Arc<Mutex<Option<ApiKey>>>,
    /// Shared by all clients of this configured upstream.
    turns: Arc<UpstreamQueue>,
    metrics: Metrics,
    /// Headers that the configuration adds to every request.
    headers: HeaderMap,
    identity: Identity,
    messages_key: MessagesKey,
    caller: Caller,
    purpose: Purpose,
    /// Whether the server has rejected `select`, by what was listed.
    pub(super) rejects_columns: Arc<[AtomicBool; 2]>,
    /// Whether a read that is interrupted is repeated.
    repeats_reads: bool,
}

/// A client for probes, which does not keep its upstream in use. After a reload an upstream is in use
/// until the last stream that began before it has ended.
#[derive(Clone, Debug)]
pub(crate) struct WeakClient {
    addresses: Weak<Addresses>,
    only: Option<usize>,
    base: BaseUrl,
    key: Arc<Mutex<Option<ApiKey>>>,
    turns: Arc<UpstreamQueue>,
    headers: HeaderMap,
    identity: Identity,
}

/// The credentials of a request: those of the configured upstream, and the caller's. LangGraph
/// gives the same answer to requests with equal credentials.
///
/// Two configured upstreams may share a URL and differ in keys or headers. Their accesses are never
/// equal.
#[derive(Clone)]
pub(crate) struct UpstreamCredentials {
    /// Identifies the configured upstream, by the address of its key.
    configured: Arc<Mutex<Option<ApiKey>>>,
    caller: Caller,
}

/// The system's certificates could not be read, or TLS is not available.
#[derive(Debug, thiserror::Error)]
#[error("the HTTP client could not be set up: {0}")]
pub struct SetupError(pub(super) rustls::Error);

// === impl Client ===

impl Client {
    /// A client with default settings. It does not connect yet.
    pub fn new(base: BaseUrl, key: Option<ApiKey>) -> Result<Self, SetupError> {
        Self::with(base, key, HeaderMap::new(), &Tls::default())
    }

    /// A client that adds `headers` to each request. It does not connect yet.
    pub fn with(
        base: BaseUrl,
        key: Option<ApiKey>,
        headers: HeaderMap,
        tls: &Tls,
    ) -> Result<Self, SetupError> {
        Self::at(base, Vec::new(), key, headers, tls)
    }

    /// A client of a server with several addresses, in the order in which they are tried. All of them
    /// get the key and the headers. It does not connect yet.
    pub fn at(
        base: BaseUrl,
        others: Vec<BaseUrl>,
        key: Option<ApiKey>,
        headers: HeaderMap,
        tls: &Tls,
    ) -> Result<Self, SetupError> {
        Ok(Self {
            addresses: Arc::new(Addresses::new(base.clone(), others, tls)?),
            only: None,
            base,
            key: Arc::new(Mutex::new(key)),
            turns: Arc::new(UpstreamQueue::new()),
            metrics: Metrics::default(),
            headers,
            identity: Identity::default(),
            messages_key: MessagesKey::default(),
            caller: Caller::default(),
            purpose: Purpose::default(),
            rejects_columns: Arc::default(),
            repeats_reads: false,
        })
    }

    /// The same server for probes.
    pub(crate) fn downgrade(&self) -> WeakClient {
        let Self { addresses, only, base, key, turns, headers, identity, .. } = self.clone();
        let addresses = Arc::downgrade(&addresses);
        WeakClient { addresses, only, base, key, turns, headers, identity }
    }

    /// A client for each address of the server, in order. Each sends its requests to that address
    /// alone.
    pub(crate) fn each_address(&self) -> Vec<Self> {
        if self.only.is_some() {
            return vec![self.clone()];
        }
        let at = |(index, base): (usize, &BaseUrl)| Self {
            only: Some(index),
            base: base.clone(),
            ..self.clone()
        };
        self.addresses.urls().enumerate().map(at).collect()
    }

    /// Sets whether the addresses of this client get requests with the credentials of callers. A
    /// client of a single address sends them nevertheless, so that the address can be probed. Applies
    /// to all clients of this configured upstream. At first each address gets them.
    pub(crate) fn entrust(&self, is_trusted: bool) {
        match self.only {
            Some(index) => self.addresses.entrust(index, is_trusted),
            None => self.addresses.entrust_all(is_trusted),
        }
    }

    /// Sets whether the server gets the credentials of callers.
    #[must_use]
    pub fn with_identity(self, identity: Identity) -> Self {
        Self { identity, ..self }
    }

    /// Sets the key of a graph's state that holds the conversation.
    #[must_use]
    pub fn with_messages_key(self, messages_key: MessagesKey) -> Self {
        Self { messages_key, ..self }
    }

    /// Sets where requests are counted.
    #[must_use]
    pub fn with_metrics(self, metrics: &Metrics) -> Self {
        Self { metrics: metrics.clone(), ..self }
    }

    /// The same server for this caller.
    ///
    /// A caller's header is dropped if the configuration sets one of its name, or if the upstream
    /// must not get it. Dropped headers do not distinguish callers either.
    #[must_use]
    pub(crate) fn called_by(&self, caller: &Caller) -> Self {
        let key = self.has_key().then_some(API_KEY);
        let is_replaced =
            |name: &HeaderName| self.headers.contains_key(name) || key.as_ref() == Some(name);
        let is_dropped = |name: &HeaderName| is_replaced(name) || self.identity.withholds(name);
        Self { caller: caller.without(is_dropped), ..self.clone() }
    }

    /// Sets the agent and thread that log lines name.
    #[must_use]
    pub(crate) fn used_for(self, purpose: Purpose) -> Self {
        Self { purpose, ..self }
    }

    /// Repeats a read once whose connection breaks, or that is answered 502, 503 or 504.
    #[must_use]
    pub(crate) fn repeating_reads(self) -> Self {
        Self { repeats_reads: true, ..self }
    }

    /// The agent and thread that log lines name.
    pub(crate) fn purpose(&self) -> &Purpose {
        &self.purpose
    }

    /// Whether the server gets the credentials of callers.
    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    /// The key of a graph's state that holds the conversation.
    pub(crate) fn messages_key(&self) -> &MessagesKey {
        &self.messages_key
    }

    /// The caller, without the headers that this server does not get.
    pub(crate) fn caller(&self) -> &Caller {
        &self.caller
    }

    pub(super) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Whether the server can distinguish this client's requests from those of others.
    pub(crate) fn sends_credentials(&self) -> bool {
        let has_key = self.key.lock().is_some();
        has_key || !self.headers.is_empty() || self.caller.is_personal()
    }

    /// The credentials of this client's requests.
    pub(crate) fn access(&self) -> UpstreamCredentials {
        UpstreamCredentials { configured: Arc::clone(&self.key), caller: self.caller.clone() }
    }

    /// Waits for a turn at the server, in which the caller's requests are sent. Fails with
    /// [`Error::Crowded`] if too many wait. Cancel safe.
    ///
    /// A task that has a turn must not wait for another one.
    pub(crate) async fn turn(&self, line: QueueClass) -> Result<QueuePermit, Error> {
        let name = self.caller.name().map(Arc::from);
        let key = QueueKey { access: self.access(), name };
        Box::pin(self.turns.turn(line, key, &self.metrics)).await
    }

    /// Makes a request in a [`turn`](Self::turn) of its own.
    pub(crate) async fn in_turn<T>(
        &self,
        line: QueueClass,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let _turn = self.turn(line).await?;
        request.await
    }

    /// Sets when nothing waits for a turn any more, for all clients of this configured upstream.
    /// Later calls have no effect.
    pub(crate) fn stop_waiting_at(&self, shutdown: &CancellationToken) {
        self.turns.stop_waiting_at(shutdown);
    }

    /// The secrets in this client's requests: the key, configured headers, and the caller's
    /// credentials. An authentication scheme such as `Bearer` is cut off, since the token alone may
    /// occur elsewhere.
    pub(crate) fn secrets(&self) -> Vec<Vec<u8>> {
        let key = self.key.lock().as_ref().map(|key| key.header_value().as_bytes().to_vec());
        let configured = self.headers.values().map(HeaderValue::as_bytes);
        let callers = self.caller.identifying_headers().map(|(_, value)| value);
        let bare =
            |value: &[u8]| value.rsplit(|byte| *byte == b' ').next().unwrap_or_default().to_vec();
        key.into_iter().chain(configured.chain(callers).map(bare)).collect()
    }

    /// Whether the gateway has a key of its own for this server.
    pub fn has_key(&self) -> bool {
        self.key.lock().is_some()
    }

    /// Replaces or removes the key, for clones too.
    pub fn use_key(&self, key: Option<ApiKey>) {
        *self.key.lock() = key;
    }

    /// The server's URL. With several addresses, that of the first.
    pub fn base(&self) -> &BaseUrl {
        &self.base
    }

    /// What an answer was parsed as. An answer that could not be parsed counts as a failure of the
    /// server: a proxy may have cut it, or answered in the server's place.
    pub(crate) fn understood<T>(&self, parsed: Option<T>, what: &'static str) -> Result<T, Error> {
        parsed.ok_or_else(|| {
            self.metrics.upstream_failed(Answer::NotUnderstood);
            Error::NotUnderstood { what }
        })
    }

    /// Reads an answer that always exists.
    pub(super) async fn get(
        &self,
        operation: Operation,
        path: &[&str],
    ) -> Result<AnswerText, Error> {
        self.call(operation, Method::GET, path).text().await
    }

    /// Reads an answer that may be missing: 404 is then not counted as a failure.
    pub(super) async fn find(
        &self,
        operation: Operation,
        path: &[&str],
    ) -> Result<AnswerText, Error> {
        self.call(operation, Method::GET, path).allow_not_found().text().await
    }

    pub(super) fn call(
        &self,
        operation: Operation,
        method: Method,
        path: &[&str],
    ) -> PreparedRequest {
        let call = self.call_url(operation, method, self.base.join(path));
        match path {
            ["threads", "search"] => call,
            ["threads", thread_id, ..] => call.about_thread(thread_id),
            _ => call,
        }
    }

    pub(super) fn call_url(
        &self,
        operation: Operation,
        method: Method,
        url: Url,
    ) -> PreparedRequest {
        self.probe_failed_address();
        // A configured header replaces the caller's of the same name.
        let mut headers = self.caller.headers().clone();
        headers.extend(self.headers.clone());
        if let Some(key) = &*self.key.lock() {
            headers.insert(API_KEY, key.header_value().clone());
        }
        let mut request = Box::new(Request::new(Bytes::new()));
        *request.method_mut() = method;
        *request.headers_mut() = headers;
        let metrics = CallMetrics::new(operation, self.metrics.clone());
        let addresses = Arc::clone(&self.addresses);
        let concern = RoutingKey { thread: None, has_credentials: self.caller.is_personal() };
        let repeats = self.repeats_reads;
        PreparedRequest::new(
            Target { addresses, only: self.only, url, concern, repeats },
            request,
            metrics,
        )
    }

    /// Tries an address that has failed, if it is time. No request waits for that: an address that
    /// accepts no connection would delay it.
    fn probe_failed_address(&self) {
        if self.only.is_some() {
            return;
        }
        let Some(index) = self.addresses.take_trial() else { return };
        let (Ok(runtime), Some(client)) =
            (Handle::try_current(), self.each_address().into_iter().nth(index))
        else {
            return;
        };
        // The trial is nobody's request.
        let client = client.called_by(&Caller::default());
        runtime.spawn(async move {
            // The result is noted like that of any request.
            let _ = tokio::time::timeout(TRIAL_TIMEOUT, client.probe()).await;
        });
    }
}

// === impl WeakClient ===

impl WeakClient {
    /// `None` once the upstream has no other client.
    pub(crate) fn upgrade(&self) -> Option<Client> {
        let Self { addresses, only, base, key, turns, headers, identity } = self.clone();
        Some(Client {
            addresses: addresses.upgrade()?,
            only,
            base,
            key,
            turns,
            metrics: Metrics::default(),
            headers,
            identity,
            messages_key: MessagesKey::default(),
            caller: Caller::default(),
            purpose: Purpose::default(),
            rejects_columns: Arc::default(),
            repeats_reads: false,
        })
    }

    /// Whether it is of the same configured upstream.
    pub(crate) fn is_of_upstream(&self, client: &Client) -> bool {
        Arc::ptr_eq(&self.key, &client.key)
    }
}

// === impl UpstreamCredentials ===

impl PartialEq for UpstreamCredentials {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.configured, &other.configured) && self.caller == other.caller
    }
}

impl Eq for UpstreamCredentials {}

impl Hash for UpstreamCredentials {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.configured).hash(state);
        self.caller.hash(state);
    }
}

impl fmt::Debug for UpstreamCredentials {
    /// Omits the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Access").field(&self.caller).finish()
    }
}

#[cfg(test)]
mod tests {
    use http::header::AUTHORIZATION;

    use super::*;

    #[test]
    fn configured_upstreams_with_one_url_have_accesses_of_their_own() {
        let client = || Client::new("http://h:1".parse().unwrap(), None).unwrap();
        let caller = |key: &'static str| {
            let value = HeaderValue::from_static(key);
            Caller::new(HeaderMap::from_iter([(AUTHORIZATION, value)]))
        };
        let (one, other) = (client(), client());
        let alice = one.called_by(&caller("alice"));
        assert_eq!(alice.access(), one.called_by(&caller("alice")).access());
        assert_ne!(alice.access(), one.called_by(&caller("bob")).access());
        assert_ne!(alice.access(), other.called_by(&caller("alice")).access());
        assert_ne!(one.access(), other.access());
    }
}
