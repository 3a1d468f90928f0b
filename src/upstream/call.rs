//! One request to a LangGraph server: the addresses that it is sent to, its limits, its metrics, and
//! the three ways to read its answer.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Request, Response};
use http_body_util::Full;
use serde::Serialize;
use tokio::time::Instant;
use url::Url;

use super::addresses::{Addresses, Attempt, Concern, may_go_on};
use super::http1;
use super::{ANSWER_TIMEOUT, Error, MAX_ANSWER_BYTES, RunStream, START_TIMEOUT, response};
use crate::metrics::{Answer, Metrics, Operation};

/// A request that is ready to be sent.
pub(super) struct Call {
    target: Box<Target>,
    request: Box<Request<Full<Bytes>>>,
    metrics: CallMetrics,
}

/// Where a request goes.
pub(super) struct Target {
    pub(super) addresses: Arc<Addresses>,
    /// The only address that the request may go to, if it may not go to all.
    pub(super) only: Option<usize>,
    /// The URL at the address `only`, or else at the first address.
    pub(super) url: Url,
    pub(super) concern: Concern,
}

/// How a request is counted.
#[derive(Clone)]
pub(super) struct CallMetrics {
    operation: Operation,
    metrics: Metrics,
    /// Whether 404 is an expected answer, so that it does not count as a failure.
    allows_not_found: bool,
}

// === impl Call ===

impl Call {
    pub(super) fn new(
        target: Target,
        request: Box<Request<Full<Bytes>>>,
        metrics: CallMetrics,
    ) -> Self {
        Self { target: Box::new(target), request, metrics }
    }

    /// Names the thread that the request concerns. A thread with a live run stays at its address.
    pub(super) fn about_thread(mut self, thread_id: &str) -> Self {
        let are_several = self.target.addresses.are_several();
        self.target.concern.thread = are_several.then(|| Arc::from(thread_id));
        self
    }

    /// Expects that the thread, run or stream may not exist: 404 does not count as a failure of the
    /// upstream. Each new chat asks for its thread, and callers may ask for threads of others.
    pub(super) fn allow_not_found(mut self) -> Self {
        self.metrics.allows_not_found = true;
        self
    }

    pub(super) fn header(mut self, name: HeaderName, value: &str) -> Result<Self, Error> {
        let value = HeaderValue::from_str(value);
        let value =
            value.map_err(|_| Error::NotUnderstood { what: "an event id that fits a header" })?;
        self.request.headers_mut().insert(name, value);
        Ok(self)
    }

    pub(super) fn json(mut self, body: &impl Serialize) -> Self {
        // Strings and raw values always serialise. The server would reject an empty body.
        let body = serde_json::to_vec(body).unwrap_or_default();
        let json = HeaderValue::from_static("application/json");
        self.request.headers_mut().insert(CONTENT_TYPE, json);
        *self.request.body_mut() = body.into();
        self
    }

    /// Sends the request and returns the event stream that answers it.
    pub(super) async fn stream(self) -> Result<RunStream, Error> {
        let (addresses, thread) =
            (Arc::clone(&self.target.addresses), self.target.concern.thread.clone());
        // The time limit covers the body of a refusal too.
        let read = async |response, address| {
            let stream = RunStream::new(response)?;
            Ok(RunStream { stay: addresses.stay(thread, address), ..stream })
        };
        Box::pin(self.answered(START_TIMEOUT, read)).await
    }

    /// Sends the request and reads the answer to its end, at most [`MAX_ANSWER_BYTES`].
    pub(super) async fn text(self) -> Result<String, Error> {
        let metrics = self.metrics.metrics.clone();
        let read = async |mut response: Response<http1::Body>, _| {
            let mut body = Vec::new();
            let memory = Some(metrics.memory());
            response::read(response.body_mut(), MAX_ANSWER_BYTES, memory, &mut body).await?;
            let is_page =
                response::is_html(response.headers()) && body.trim_ascii_start().starts_with(b"<");
            if is_page {
                return Err(Error::page());
            }
            let text = String::from_utf8(body);
            Ok(text.unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
        };
        Box::pin(self.answered(ANSWER_TIMEOUT, read)).await
    }

    /// Sends the request and waits until the server confirms it. The body is not read.
    pub(super) async fn confirmed(self) -> Result<(), Error> {
        let read = async |response: Response<http1::Body>, _| {
            if response::is_html(response.headers()) { Err(Error::page()) } else { Ok(()) }
        };
        Box::pin(self.answered(ANSWER_TIMEOUT, read)).await
    }

    /// Sends the request and reads its answer, both within `limit`. `read` gets the response, and the
    /// address that it came from. Counts the request as open until then, and notes the result.
    async fn answered<T>(
        self,
        limit: Duration,
        read: impl AsyncFnOnce(Response<http1::Body>, usize) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let metrics = self.metrics.clone();
        let open = metrics.metrics.upstream_request();
        // Dropped with the future, which notes that the caller gave up.
        let mut attempt = None;
        let answer = within(limit, async {
            let (response, address) = self.send(&mut attempt).await?;
            read(response, address).await
        });
        let answer = answer.await;
        drop(open);
        if let Some(attempt) = attempt {
            attempt.finish(&answer);
        }
        metrics.answered(&answer);
        answer
    }

    /// Sends the request and waits for the headers of a successful response. Returns also the address
    /// that has answered. `attempt` is the request to the last address that was tried.
    async fn send(
        self,
        attempt: &mut Option<Attempt>,
    ) -> Result<(Response<http1::Body>, usize), Error> {
        let Self { target, mut request, metrics } = self;
        let Target { addresses, only, url, concern } = *target;
        let base = &addresses.get(only.unwrap_or(0)).url;
        let mut order = match only {
            Some(only) => vec![only],
            None => addresses.order(&concern),
        }
        .into_iter();
        let mut index = order.next().ok_or(Error::Unproven)?;
        loop {
            let next = order.next().map(|next| (next, request.clone()));
            let sent = Attempt::begin(Arc::clone(&addresses), index, metrics.metrics.clone());
            *attempt = Some(sent);
            let (address, sent_at) = (addresses.get(index), Instant::now());
            let answer = match address.http.send(*request, &address.url_of(base, &url)).await {
                Ok(response) => {
                    metrics.metrics.upstream_headers(sent_at.elapsed());
                    response::successful(response).await
                }
                Err(error) => Err(error.into()),
            };
            match (answer, next) {
                (Err(error), Some((next, again))) if may_go_on(again.method(), &error) => {
                    metrics.metrics.upstream_failed(error.answer());
                    if let Some(attempt) = attempt.take() {
                        attempt.finish(&Err::<(), _>(error));
                    }
                    (index, request) = (next, again);
                }
                (answer, _) => return answer.map(|response| (response, index)),
            }
        }
    }
}

/// Fails with [`Error::Timeout`] if the answer takes longer than `limit`.
pub(super) async fn within<T>(
    limit: Duration,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let answered = tokio::time::timeout(limit, answer).await;
    answered.unwrap_or(Err(Error::Timeout { waited: limit }))
}

// === impl CallMetrics ===

impl CallMetrics {
    pub(super) fn new(operation: Operation, metrics: Metrics) -> Self {
        Self { operation, metrics, allows_not_found: false }
    }

    /// Counts the result of the request.
    fn answered<T>(&self, answer: &Result<T, Error>) {
        let result = answer.as_ref().map_or_else(Error::answer, |_| Answer::Ok);
        self.metrics.upstream_answered(self.operation, result);
        if !(self.allows_not_found && result == Answer::NotFound) {
            self.metrics.upstream_failed(result);
        }
    }
}
