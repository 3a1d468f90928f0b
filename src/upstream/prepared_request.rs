//! One request to a LangGraph server: the addresses that it is sent to, its limits, its metrics, and
//! the three ways to read its answer.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Method, Request, Response};
use serde::Serialize;
use tokio::time::Instant;
use url::Url;

use super::addresses::{Addresses, PendingAttempt, RoutingKey, is_no_answer, may_go_on};
use super::http1;
use super::{
    ANSWER_TIMEOUT, AnswerText, Error, MAX_ANSWER_BYTES, RunStream, START_TIMEOUT, response,
};
use crate::metrics::{Answer, Metrics, Operation};

/// The pause before a read is repeated.
const READ_PAUSE: Duration = Duration::from_millis(200);

/// How long a read waits for the response of one address before the next address gets it too. A
/// healthy server takes less for all but the largest states.
const HEDGE_AFTER: Duration = Duration::from_secs(3);

/// A request that is ready to be sent.
pub(super) struct PreparedRequest {
    target: Box<Target>,
    request: Box<Request<Bytes>>,
    metrics: CallMetrics,
}

/// Where a request goes.
pub(super) struct Target {
    pub(super) addresses: Arc<Addresses>,
    /// The only address that the request may go to, if it may not go to all.
    pub(super) only: Option<usize>,
    /// The URL at the address `only`, or else at the first address.
    pub(super) url: Url,
    pub(super) concern: RoutingKey,
    /// Whether a read that is interrupted is repeated.
    pub(super) repeats: bool,
}

/// How a request is counted.
#[derive(Clone)]
pub(super) struct CallMetrics {
    operation: Operation,
    metrics: Metrics,
    /// Whether 404 is an expected answer, so that it does not count as a failure.
    allows_not_found: bool,
}

/// Whether a second address gets the request too, if the first is slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hedge {
    /// If the request changes nothing.
    Reads,
    Never,
}

/// The requests that have no answer yet.
#[derive(Default)]
struct Attempts {
    newest: Option<PendingAttempt>,
    /// The request to a slow address, if another address has got it too.
    slow: Option<PendingAttempt>,
}

/// Which of two addresses has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Winner {
    First,
    Second,
}

// === impl PreparedRequest ===

impl PreparedRequest {
    pub(super) fn new(target: Target, request: Box<Request<Bytes>>, metrics: CallMetrics) -> Self {
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
            Ok(RunStream { affinity: addresses.affinity(thread, address), ..stream })
        };
        // A stream may have one reader only, so no second address is asked for it.
        Box::pin(self.answered(START_TIMEOUT, Hedge::Never, read)).await
    }

    /// Sends the request and reads the answer to its end, at most [`MAX_ANSWER_BYTES`].
    pub(super) async fn text(self) -> Result<AnswerText, Error> {
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
            Ok(AnswerText::of(body))
        };
        Box::pin(self.answered(ANSWER_TIMEOUT, Hedge::Reads, read)).await
    }

    /// Sends the request and waits until the server confirms it. The body is not read.
    pub(super) async fn confirmed(self) -> Result<(), Error> {
        let read = async |response: Response<http1::Body>, _| {
            if response::is_html(response.headers()) { Err(Error::page()) } else { Ok(()) }
        };
        Box::pin(self.answered(ANSWER_TIMEOUT, Hedge::Reads, read)).await
    }

    /// Sends the request and reads its answer, both within `limit`. `read` gets the response, and the
    /// address that it came from. Counts the request as open until then, and notes the result.
    async fn answered<T>(
        self,
        limit: Duration,
        hedge: Hedge,
        read: impl AsyncFnOnce(Response<http1::Body>, usize) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let metrics = self.metrics.clone();
        let open = metrics.metrics.upstream_request();
        // Dropped with the future, which notes that the caller gave up.
        let mut attempts = Attempts::default();
        let answer = within(limit, async {
            let (response, address) = self.send(hedge, &mut attempts).await?;
            read(response, address).await
        });
        let answer = answer.await;
        drop(open);
        attempts.finish(&answer);
        metrics.answered(&answer);
        answer
    }

    /// Sends the request and waits for the headers of a successful response. Returns also the address
    /// that has answered. `attempts` are the requests that have no answer yet.
    async fn send(
        self,
        hedge: Hedge,
        attempts: &mut Attempts,
    ) -> Result<(Response<http1::Body>, usize), Error> {
        let Self { target, mut request, metrics } = self;
        let Target { addresses, only, url, concern, repeats } = *target;
        let base = &addresses.get(only.unwrap_or(0)).url;
        let mut order = match only {
            Some(only) => vec![only],
            None => addresses.order(&concern),
        }
        .into_iter();
        let mut index = order.next().ok_or(Error::Unproven)?;
        let is_read = metrics.is_read(request.method());
        let mut may_repeat = repeats && is_read;
        let exchange = async |index: usize, request: Box<Request<Bytes>>| {
            let (address, sent_at) = (addresses.get(index), Instant::now());
            match address.http.send(*request, &address.url_of(base, &url)).await {
                Ok(response) => {
                    metrics.metrics.upstream_headers(sent_at.elapsed());
                    response::successful(response).await
                }
                Err(error) => Err(error.into()),
            }
        };
        loop {
            let next = order.next().map(|next| (next, request.clone()));
            let again = (may_repeat && next.is_none()).then(|| request.clone());
            attempts.newest = Some(PendingAttempt::begin(&addresses, index, &metrics.metrics));
            let mut first = pin!(exchange(index, request));
            let is_hedged = hedge == Hedge::Reads && is_read;
            let answer = match next.as_ref().filter(|_| is_hedged) {
                None => first.await,
                Some((other, copy)) => tokio::select! {
                    biased;
                    answer = &mut first => answer,
                    () = tokio::time::sleep(HEDGE_AFTER) => {
                        let second = PendingAttempt::begin(&addresses, *other, &metrics.metrics);
                        attempts.hedge(second);
                        let second = pin!(exchange(*other, copy.clone()));
                        let (answer, winner) = either(first, second).await;
                        attempts.keep(winner);
                        let address = if winner == Winner::First { index } else { *other };
                        return answer.map(|response| (response, address));
                    }
                },
            };
            match (answer, next) {
                (Err(error), Some((next, again))) if may_go_on(again.method(), &error) => {
                    metrics.metrics.upstream_failed(error.answer());
                    attempts.finish(&Err::<(), _>(error));
                    (index, request) = (next, again);
                }
                (Err(error), None)
                    if error.is_lost()
                        && let Some(again) = again =>
                {
                    metrics.metrics.upstream_failed(error.answer());
                    attempts.finish(&Err::<(), _>(error));
                    tokio::time::sleep(READ_PAUSE).await;
                    (may_repeat, request) = (false, again);
                }
                (answer, _) => return answer.map(|response| (response, index)),
            }
        }
    }
}

/// The first of two answers. An answer that says nothing about the request, such as a broken
/// connection, counts only if the other is one too.
async fn either<T>(
    mut first: Pin<&mut impl Future<Output = Result<T, Error>>>,
    mut second: Pin<&mut impl Future<Output = Result<T, Error>>>,
) -> (Result<T, Error>, Winner) {
    tokio::select! {
        biased;
        answer = &mut first => match answer {
            Err(error) if is_no_answer(&error) => (second.await, Winner::Second),
            answer => (answer, Winner::First),
        },
        answer = &mut second => match answer {
            Err(error) if is_no_answer(&error) => (first.await, Winner::First),
            answer => (answer, Winner::Second),
        },
    }
}

// === impl Attempts ===

impl Attempts {
    /// The newest request is slow, and another address gets it too.
    fn hedge(&mut self, second: PendingAttempt) {
        self.slow = self.newest.replace(second);
    }

    /// One of two addresses has answered.
    fn keep(&mut self, winner: Winner) {
        match winner {
            Winner::First => {
                if let Some(second) = std::mem::replace(&mut self.newest, self.slow.take()) {
                    second.withdraw();
                }
            }
            Winner::Second => {
                if let Some(first) = self.slow.take() {
                    first.count_as_away();
                }
            }
        }
    }

    /// Notes what the answer says about the addresses.
    fn finish<T>(&mut self, answer: &Result<T, Error>) {
        for attempt in [self.slow.take(), self.newest.take()].into_iter().flatten() {
            attempt.finish(answer);
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

    /// Whether a request of this method changes nothing.
    fn is_read(&self, method: &Method) -> bool {
        let searches = [
            Operation::Assistants,
            Operation::PollThreads,
            Operation::ThreadHistory,
            Operation::Threads,
        ];
        method == Method::GET || searches.contains(&self.operation)
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
