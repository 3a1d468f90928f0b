//! Sends the reading's requests to the upstream.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::runs::credential_ring::{CredentialRing, Lender, still_refused};
use crate::runs::ending::{BodyEnd, EndStatus, Missing, ending, gather, has_shown_all};
use crate::runs::published::{Broadcast, RefusalCutoff};
use crate::runs::reading::{UpstreamAnswer, UpstreamRequest};
use crate::upstream::{Client, Error, RunStream};
use threadway_translate::run::StreamEnd;

/// The longest wait for the headers of a join. A server that was busy with 200 joins needed this
/// long.
const JOIN_TIMEOUT: Duration = Duration::from_secs(20);

/// The upstream's response to a request.
pub(super) enum Response {
    Stream(RunStream),
    UpstreamAnswer(UpstreamAnswer),
}

/// A response, and the wait that the upstream asks for before the next request.
pub(super) struct Reply {
    pub(super) response: Response,
    pub(super) retry_after: Option<Duration>,
}

/// The reply to a request, and the callers that it is not for.
pub(super) struct RoundResult {
    pub(super) reply: Reply,
    /// The credentials that the upstream refuses, while it has accepted others for this request.
    pub(super) barred: Vec<Lender>,
    /// Whether the run has ended, and its stream had shown all of it.
    pub(super) is_whole: bool,
}

/// A request that waits for its answer.
pub(super) type PendingResponse = Pin<Box<dyn Future<Output = RoundResult> + Send>>;

/// What the upstream refuses to one caller.
pub(super) struct Refusal {
    /// What it means if it refuses everybody.
    pub(super) answer: Box<UpstreamAnswer>,
    /// Whether it answers as for a thing that does not exist.
    pub(super) is_missing: bool,
}

/// Sends a request with the credentials of one caller after the other, until the upstream accepts
/// some. What it refuses to all is the answer.
pub(super) fn send(
    request: UpstreamRequest,
    run: Arc<Broadcast>,
    ring: Arc<CredentialRing<RefusalCutoff>>,
) -> PendingResponse {
    Box::pin(async move {
        let is_whole = matches!(&request, UpstreamRequest::EndStatus { seen, end } if has_shown_all(seen, end));
        match round(&request, &run, &ring).await {
            Ok((reply, refused)) => {
                let barred = still_refused(refused, &run.thread_id).await;
                // The record may lag behind a stream that has shown the whole run.
                let may_be_over = matches!(
                    reply.response,
                    Response::UpstreamAnswer(UpstreamAnswer::EndStatus(
                        EndStatus::Ended(_) | EndStatus::Running | EndStatus::Lagging
                    ))
                );
                RoundResult { reply, barred, is_whole: is_whole && may_be_over }
            }
            Err(refusal) => {
                // Without credentials nothing is hidden: what is missing was deleted.
                let is_personal = ring.lenders().iter().any(Lender::is_personal);
                let is_missing = refusal.is_missing && !is_personal;
                let answer =
                    if is_whole && !is_missing { unconfirmed(&run) } else { *refusal.answer };
                RoundResult { reply: answer.into(), barred: Vec::new(), is_whole: false }
            }
        }
    })
}

/// The end of a run of which the stream has shown everything but the end's confirmation, which the
/// upstream refuses to all callers.
fn unconfirmed(run: &Broadcast) -> UpstreamAnswer {
    let is_stopped = run.is_stopped();
    let end = if is_stopped { StreamEnd::Cancelled } else { StreamEnd::Succeeded };
    UpstreamAnswer::EndStatus(EndStatus::Unconfirmed(end))
}

/// Sends the request with one credential of the ring after the other. Returns the reply, and the
/// credentials that the upstream refused before it accepted others.
async fn round(
    request: &UpstreamRequest,
    run: &Broadcast,
    ring: &CredentialRing<RefusalCutoff>,
) -> Result<(Reply, Vec<Lender>), Refusal> {
    let mut refused = Vec::new();
    let mut refusal = Refusal { answer: Box::new(untried(request)), is_missing: true };
    while let Some(lender) = ring.untried(&refused) {
        match attempt(request, &lender.upstream, run).await {
            Ok(reply) => return Ok((reply, refused)),
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

/// The answer if no credentials were tried. A ring is never empty.
fn untried(request: &UpstreamRequest) -> UpstreamAnswer {
    let why = "nobody reads the run".to_owned();
    match request {
        UpstreamRequest::Stream { .. } => UpstreamAnswer::NoStream(BodyEnd::Cut(why)),
        UpstreamRequest::State => UpstreamAnswer::State(None),
        UpstreamRequest::Record { .. } => UpstreamAnswer::Record(Err(BodyEnd::Cut(why))),
        UpstreamRequest::EndStatus { .. } => UpstreamAnswer::EndStatus(EndStatus::Unknown(why)),
    }
}

/// Sends a request with the credentials of one caller.
async fn attempt(
    request: &UpstreamRequest,
    upstream: &Client,
    run: &Broadcast,
) -> Result<Reply, Refusal> {
    #[cfg(test)]
    if let Some(reply) = super::tests::asked(request, upstream).await {
        return reply;
    }
    let thread_id = &*run.thread_id;
    match request {
        UpstreamRequest::Stream { run_id, cursor, again: _ } => {
            let joining = upstream.join_run(thread_id, run_id, cursor);
            match tokio::time::timeout(JOIN_TIMEOUT, joining).await {
                Ok(Ok(opened)) => {
                    Ok(Reply { response: Response::Stream(opened), retry_after: None })
                }
                Ok(Err(error)) => failed(&error, UpstreamAnswer::NoStream(body_end(&error))),
                Err(_) => {
                    let seconds = JOIN_TIMEOUT.as_secs();
                    let end = BodyEnd::Cut(format!("no answer within {seconds} s"));
                    Ok(UpstreamAnswer::NoStream(end).into())
                }
            }
        }
        UpstreamRequest::State => match upstream.thread_state(thread_id).await {
            Ok(Some(state)) => Ok(UpstreamAnswer::State(Some(state.into_string())).into()),
            Ok(None) => {
                Err(Refusal { answer: Box::new(UpstreamAnswer::State(None)), is_missing: true })
            }
            Err(error) if is_transient(&error) => {
                failed(&error, UpstreamAnswer::NoState(error.to_string()))
            }
            Err(error) => {
                tracing::warn!(thread_id, %error, "could not read a run's thread state");
                failed(&error, UpstreamAnswer::State(None))
            }
        },
        UpstreamRequest::Record { run_id } => match upstream.run_record(thread_id, run_id).await {
            Ok(record) => Ok(UpstreamAnswer::Record(Ok(record)).into()),
            Err(error) => failed(&error, UpstreamAnswer::Record(Err(body_end(&error)))),
        },
        UpstreamRequest::EndStatus { seen, end } => {
            let is_stopped = run.is_stopped();
            match gather(upstream, thread_id, seen, end, is_stopped).await {
                Ok((record, facts)) => match ending(seen, end, &record, facts) {
                    Ok(status) => Ok(UpstreamAnswer::EndStatus(status).into()),
                    Err(Missing(ending)) => {
                        let answer = UpstreamAnswer::EndStatus(EndStatus::Ended(*ending)).into();
                        Err(Refusal { answer, is_missing: true })
                    }
                },
                Err(error) => {
                    let status = EndStatus::Unknown(error.to_string());
                    let reply = failed(&error, UpstreamAnswer::EndStatus(status));
                    // What is missing beside the run's record is hidden, not deleted.
                    reply.map_err(|refusal| Refusal { is_missing: false, ..refusal })
                }
            }
        }
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

/// The reply that a failed request means; or the refusal, if another caller's request may succeed.
fn failed(error: &Error, answer: UpstreamAnswer) -> Result<Reply, Refusal> {
    if error.depends_on_caller() {
        return Err(Refusal { answer: Box::new(answer), is_missing: error.is_not_found() });
    }
    Ok(Reply { response: Response::UpstreamAnswer(answer), retry_after: error.retry_after() })
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

// === impl Reply ===

impl From<UpstreamAnswer> for Reply {
    fn from(answer: UpstreamAnswer) -> Self {
        Self { response: Response::UpstreamAnswer(answer), retry_after: None }
    }
}
