//! Sends the reading's requests to the upstream.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::runs::ending::{BodyEnd, EndQuery, EndStatus};
use crate::runs::published::Run;
use crate::runs::reading::Request;
use crate::runs::retry::wait_as_asked;
use crate::upstream::{AnswerText, Client, Error, RunStream};
use threadway_translate::langgraph::RunRecord;

/// The longest wait for the headers of a join. A server that was busy with 200 joins needed this
/// long.
const JOIN_TIMEOUT: Duration = Duration::from_secs(20);

/// The upstream's answer to a request.
pub(super) enum Response {
    Stream(Result<RunStream, BodyEnd>),
    State(Option<String>),
    Record(Result<RunRecord, BodyEnd>),
    EndStatus(EndStatus),
}

/// A request that waits for its answer.
pub(super) type PendingResponse = Pin<Box<dyn Future<Output = Response> + Send>>;

pub(super) fn send(request: Request, upstream: Client, run: Arc<Run>) -> PendingResponse {
    #[cfg(test)]
    if let Some(response) = super::tests::asked(&request) {
        return response;
    }
    Box::pin(async move {
        let thread_id = &*run.thread_id;
        match request {
            Request::Stream { run_id, cursor, again: _ } => {
                let joining = upstream.join_run(thread_id, &run_id, &cursor);
                Response::Stream(match tokio::time::timeout(JOIN_TIMEOUT, joining).await {
                    Ok(Ok(opened)) => Ok(opened),
                    Ok(Err(error)) => Err(failed(&error).await),
                    Err(_) => {
                        let seconds = JOIN_TIMEOUT.as_secs();
                        Err(BodyEnd::Cut(format!("no answer within {seconds} s")))
                    }
                })
            }
            Request::State => {
                let state = upstream.thread_state(thread_id).await.unwrap_or_else(|error| {
                    tracing::warn!(thread_id, %error, "could not read a run's thread state");
                    None
                });
                Response::State(state.map(AnswerText::into_string))
            }
            Request::Record { run_id } => {
                Response::Record(match upstream.run_record(thread_id, &run_id).await {
                    Ok(record) => Ok(record),
                    Err(error) => Err(failed(&error).await),
                })
            }
            Request::EndStatus { seen, end } => {
                let is_stopped = run.published().is_stopped;
                let upstream = &upstream;
                let query = EndQuery { upstream, thread_id, seen: &seen, end: &end, is_stopped };
                Response::EndStatus(query.send().await)
            }
        }
    })
}

/// The end of a stream that a failed request means, after the wait that the server asks for.
async fn failed(error: &Error) -> BodyEnd {
    wait_as_asked(error).await;
    body_end(error)
}

/// How a failed request counts as the end of a stream. A 4xx status is the server's decision; anything else
/// may be a server that is away.
fn body_end(error: &Error) -> BodyEnd {
    match error {
        Error::Status { code: 400..500, .. } => BodyEnd::Refused,
        Error::Status { .. }
        | Error::Unreachable { .. }
        | Error::Unproven
        | Error::Timeout { .. }
        | Error::NotAnEventStream { .. }
        | Error::NotUnderstood { .. }
        | Error::TooLarge { .. }
        | Error::NoRoom(_)
        | Error::Interrupted { .. } => BodyEnd::Cut(error.to_string()),
    }
}
