//! Sends the reading's requests to the upstream.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::runs::credential_ring::{CredentialRing, Lender, still_refused};
use crate::runs::ending::{
    BodyEnd, EndQuery, EndStatus, LONGEST_RECORD_PAUSE, RECORD_PAUSE, RefusedEnd,
};
use crate::runs::feed::{Asks, Coverage};
use crate::runs::published::{Bar, Run};
use crate::runs::reading::Request;
use crate::runs::retry::{state_pauses, wait_as_asked};
use crate::upstream::{AnswerText, Backoff, Client, Error, RunStream, Seed};
use threadway_translate::langgraph::RunRecord;
use threadway_translate::run::StreamEnd;

/// The longest wait for the headers of a join. A server that was busy with 200 joins needed this
/// long.
const JOIN_TIMEOUT: Duration = Duration::from_secs(20);

/// How many times all callers' credentials are tried at the end of a stream that has shown the whole
/// run, before the run ends as its stream did. The server may refuse everybody for a moment.
const REFUSED_READS: u32 = 6;

/// The upstream's answer to a request.
pub(super) enum Response {
    Stream(Result<RunStream, BodyEnd>),
    State(Option<String>),
    Record(Result<RunRecord, BodyEnd>),
    EndStatus(EndStatus),
}

/// The answer to a request, and the callers that it is not for.
pub(super) struct Answered {
    pub(super) response: Response,
    /// The credentials that the upstream refuses, while it has accepted others for this request.
    pub(super) barred: Vec<Lender>,
    /// Whether the run has ended, and its stream had shown all of it.
    pub(super) is_whole: bool,
}

/// A request that waits for its answer.
pub(super) type PendingResponse = Pin<Box<dyn Future<Output = Answered> + Send>>;

/// What the upstream refuses to one caller.
pub(super) struct Refusal {
    /// What it means if it refuses everybody.
    pub(super) response: Box<Response>,
    /// Whether it answers as for a thing that does not exist.
    pub(super) is_missing: bool,
}

/// Sends a request with the credentials of one caller after the other, until the upstream accepts
/// some. What it refuses to all is the response.
pub(super) fn send(
    request: Request,
    run: Arc<Run>,
    ring: Arc<CredentialRing<Bar>>,
) -> PendingResponse {
    Box::pin(async move {
        let is_whole = is_whole(&request);
        let mut reads = if is_whole { REFUSED_READS } else { 1 };
        let mut pauses = Backoff::exact(RECORD_PAUSE, LONGEST_RECORD_PAUSE);
        let response = loop {
            match round(&request, &run, &ring).await {
                Ok((response, refused)) => {
                    let barred = still_refused(refused, &run.thread_id).await;
                    let has_ended = matches!(response, Response::EndStatus(EndStatus::Ended(_)));
                    return Answered { response, barred, is_whole: is_whole && has_ended };
                }
                Err(refusal) => {
                    reads -= 1;
                    // Without credentials nothing is hidden: what is missing was deleted.
                    let is_personal = ring.lenders().iter().any(Lender::is_personal);
                    let is_missing = refusal.is_missing && !is_personal;
                    if reads == 0 || is_missing {
                        break if is_whole && !is_missing {
                            confirmed_by_stream(&run)
                        } else {
                            *refusal.response
                        };
                    }
                }
            }
            tokio::time::sleep(pauses.next_pause()).await;
        };
        Answered { response, barred: Vec::new(), is_whole: false }
    })
}

/// Whether the request asks how a run ended of which the stream has shown everything.
fn is_whole(request: &Request) -> bool {
    matches!(
        request,
        Request::EndStatus { seen, end: BodyEnd::Clean }
            if seen.coverage == Coverage::Whole
                && seen.has_begun && seen.error.is_none() && seen.asks == Asks::Nothing
    )
}

/// The end of a run of which the stream has shown everything but the end's confirmation, which the
/// upstream refuses to all callers.
fn confirmed_by_stream(run: &Run) -> Response {
    let is_stopped = run.published().is_stopped;
    let end = if is_stopped { StreamEnd::Cancelled } else { StreamEnd::Succeeded };
    let run_id = run.id();
    let (thread_id, run_id) = (&run.thread_id, run_id.as_deref());
    tracing::info!(
        thread_id,
        run_id,
        "LangGraph refuses all callers at a run's end: the run ends as its stream did"
    );
    Response::EndStatus(EndStatus::Ended(end.into()))
}

/// Sends the request with one credential of the ring after the other. Returns the response, and the
/// credentials that the upstream refused before it accepted others.
async fn round(
    request: &Request,
    run: &Run,
    ring: &CredentialRing<Bar>,
) -> Result<(Response, Vec<Lender>), Refusal> {
    let mut refused = Vec::new();
    let mut refusal = Refusal { response: Box::new(untried(request)), is_missing: true };
    while let Some(lender) = ring.untried(&refused) {
        match attempt(request, &lender.upstream, run).await {
            Ok(response) => return Ok((response, refused)),
            Err(this) => {
                ring.refused(&lender);
                refused.push(lender);
                // What is missing for one caller may exist for another that only lacks access.
                if refusal.is_missing {
                    refusal = this;
                }
            }
        }
    }
    Err(refusal)
}

/// The response if no credentials were tried. A ring is never empty.
fn untried(request: &Request) -> Response {
    let why = "nobody reads the run".to_owned();
    match request {
        Request::Stream { .. } => Response::Stream(Err(BodyEnd::Cut(why))),
        Request::State { .. } => Response::State(None),
        Request::Record { .. } => Response::Record(Err(BodyEnd::Cut(why))),
        Request::EndStatus { .. } => Response::EndStatus(EndStatus::Unknown(why)),
    }
}

/// Sends a request with the credentials of one caller.
async fn attempt(request: &Request, upstream: &Client, run: &Run) -> Result<Response, Refusal> {
    #[cfg(test)]
    if let Some(response) = super::tests::asked(request, upstream).await {
        return response;
    }
    let thread_id = &*run.thread_id;
    match request {
        Request::Stream { run_id, cursor, again: _ } => {
            let joining = upstream.join_run(thread_id, run_id, cursor);
            match tokio::time::timeout(JOIN_TIMEOUT, joining).await {
                Ok(Ok(opened)) => Ok(Response::Stream(Ok(opened))),
                Ok(Err(error)) => failed(&error, |end| Response::Stream(Err(end))).await,
                Err(_) => {
                    let seconds = JOIN_TIMEOUT.as_secs();
                    let end = BodyEnd::Cut(format!("no answer within {seconds} s"));
                    Ok(Response::Stream(Err(end)))
                }
            }
        }
        Request::State { patience } => match state(upstream, thread_id, *patience).await {
            Ok(Some(state)) => Ok(Response::State(Some(state.into_string()))),
            Ok(None) => {
                Err(Refusal { response: Box::new(Response::State(None)), is_missing: true })
            }
            Err(error) => {
                tracing::warn!(thread_id, %error, "could not read a run's thread state");
                failed(&error, |_| Response::State(None)).await
            }
        },
        Request::Record { run_id } => match upstream.run_record(thread_id, run_id).await {
            Ok(record) => Ok(Response::Record(Ok(record))),
            Err(error) => failed(&error, |end| Response::Record(Err(end))).await,
        },
        Request::EndStatus { seen, end } => {
            let is_stopped = run.published().is_stopped;
            let query = EndQuery { upstream, thread_id, seen, end, is_stopped };
            match query.send().await {
                Ok(status) => Ok(Response::EndStatus(status)),
                Err(RefusedEnd { status, is_missing }) => {
                    Err(Refusal { response: Box::new(Response::EndStatus(status)), is_missing })
                }
            }
        }
    }
}

/// The thread's state. A read that fails for a moment is repeated for this long.
async fn state(
    upstream: &Client,
    thread_id: &str,
    patience: Duration,
) -> Result<Option<AnswerText>, Error> {
    let until = Instant::now() + patience;
    let mut pauses = state_pauses(Seed::random());
    loop {
        let error = match upstream.thread_state(thread_id).await {
            Err(error) if is_transient(&error) && Instant::now() < until => error,
            answer => return answer,
        };
        tracing::debug!(thread_id, %error, "a run's thread state is read again");
        wait_as_asked(&error).await;
        tokio::time::sleep(pauses.next_pause()).await;
    }
}

/// Whether the same request may succeed a moment later.
fn is_transient(error: &Error) -> bool {
    matches!(
        error,
        Error::Unreachable { .. }
            | Error::Timeout { .. }
            | Error::Interrupted { .. }
            | Error::Status { code: 429 | 500.., .. }
    )
}

/// The response that a failed request means, after the wait that the server asks for; or the
/// refusal, if another caller's request may succeed.
async fn failed(
    error: &Error,
    response: impl FnOnce(BodyEnd) -> Response,
) -> Result<Response, Refusal> {
    if error.depends_on_caller() {
        let response = Box::new(response(body_end(error)));
        let is_missing = error.is_not_found();
        return Err(Refusal { response, is_missing });
    }
    wait_as_asked(error).await;
    Ok(response(body_end(error)))
}

/// How a failed request counts as the end of a stream. A 4xx status is the server's decision; anything else
/// may be a server that is away.
fn body_end(error: &Error) -> BodyEnd {
    match error {
        Error::Status { code: 400..500, .. } => BodyEnd::Refused,
        Error::Status { .. }
        | Error::Unreachable { .. }
        | Error::Unproven
        | Error::Crowded
        | Error::Timeout { .. }
        | Error::NotAnEventStream { .. }
        | Error::NotUnderstood { .. }
        | Error::TooLarge { .. }
        | Error::NoRoom(_)
        | Error::Interrupted { .. } => BodyEnd::Cut(error.to_string()),
    }
}
