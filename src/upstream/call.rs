//! One request to a LangGraph server: its limits, its metrics, and the three ways to read its
//! answer.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Request, Response};
use http_body_util::Full;
use serde::Serialize;
use tokio::time::Instant;
use url::Url;

use super::availability::Availability;
use super::http1::{self, Http};
use super::{ANSWER_TIMEOUT, Error, MAX_ANSWER_BYTES, RunStream, START_TIMEOUT, response};
use crate::metrics::{Answer, Metrics, Operation};

/// A request that is ready to be sent.
pub(super) struct Call {
    http: Http,
    url: Url,
    request: Box<Request<Full<Bytes>>>,
    metrics: CallMetrics,
}

/// How a request is counted.
#[derive(Clone)]
pub(super) struct CallMetrics {
    operation: Operation,
    metrics: Metrics,
    availability: Arc<Availability>,
    /// Whether 404 is an expected answer, so that it does not count as a failure.
    allows_not_found: bool,
}

// === impl Call ===

impl Call {
    pub(super) fn new(
        http: Http,
        url: Url,
        request: Box<Request<Full<Bytes>>>,
        metrics: CallMetrics,
    ) -> Self {
        Self { http, url, request, metrics }
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
        let metrics = self.metrics.clone();
        let answer = async {
            // The time limit covers the body of a refusal too.
            let response = within(START_TIMEOUT, self.send()).await?;
            RunStream::new(response)
        };
        metrics.count(Box::pin(answer)).await
    }

    /// Sends the request and reads the answer to its end, at most [`MAX_ANSWER_BYTES`].
    pub(super) async fn text(self) -> Result<String, Error> {
        let metrics = self.metrics.clone();
        let answer = async {
            let mut response = self.send().await?;
            let mut body = Vec::new();
            response::read(response.body_mut(), MAX_ANSWER_BYTES, &mut body).await?;
            let is_page =
                response::is_html(response.headers()) && body.trim_ascii_start().starts_with(b"<");
            if is_page {
                return Err(Error::page());
            }
            let text = String::from_utf8(body);
            Ok(text.unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
        };
        metrics.count(Box::pin(within(ANSWER_TIMEOUT, answer))).await
    }

    /// Sends the request and waits until the server confirms it. The body is not read.
    pub(super) async fn confirmed(self) -> Result<(), Error> {
        let metrics = self.metrics.clone();
        let answer = async {
            let response = self.send().await?;
            if response::is_html(response.headers()) { Err(Error::page()) } else { Ok(()) }
        };
        metrics.count(Box::pin(within(ANSWER_TIMEOUT, answer))).await
    }

    /// Sends the request and waits for the headers of a successful response.
    async fn send(self) -> Result<Response<http1::Body>, Error> {
        let Self { http, url, request, metrics } = self;
        let sent_at = Instant::now();
        let response = http.send(*request, &url).await?;
        metrics.metrics.upstream_headers(sent_at.elapsed());
        response::successful(response).await
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
    pub(super) fn new(
        operation: Operation,
        metrics: Metrics,
        availability: Arc<Availability>,
    ) -> Self {
        Self { operation, metrics, availability, allows_not_found: false }
    }

    /// Counts the request as open until `answer` is there, and then its result.
    async fn count<T>(&self, answer: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let (open, pending) =
            (self.metrics.upstream_request(), self.availability.begin_request(&self.metrics));
        let answer = answer.await;
        drop(open);
        pending.finish(&answer);
        let result = answer.as_ref().map_or_else(Error::answer, |_| Answer::Ok);
        self.metrics.upstream_answered(self.operation, result);
        if !(self.allows_not_found && result == Answer::NotFound) {
            self.metrics.upstream_failed(result);
        }
        answer
    }
}
