//! The end of a turn: the answer to `session/prompt`.

use serde::Serialize;

use super::rpc::{self, Code, Error};
use crate::json::Json;
use crate::langgraph::Finish;
use crate::run::{ErrorReport, Failure, Outcome};

/// Why a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are the specification's, which defines them")]
pub enum StopReason {
    EndTurn,
    MaxTokens,
    MaxTurnRequests,
    Refusal,
    Cancelled,
}

/// The stop reason for a run's outcome, or the error for a failed run.
///
/// A run that waits for a person ends its turn: its questions were sent before. For an idle thread,
/// the failure of its last run is history.
pub fn stop_reason(outcome: &Outcome) -> Result<StopReason, Error> {
    match outcome {
        Outcome::Finished { finish: Finish::Done, .. }
        | Outcome::Interrupted(_)
        | Outcome::Idle { .. } => Ok(StopReason::EndTurn),
        Outcome::Finished { finish: Finish::Length, .. } => Ok(StopReason::MaxTokens),
        Outcome::Finished { finish: Finish::Refused, .. } => Ok(StopReason::Refusal),
        Outcome::Cancelled => Ok(StopReason::Cancelled),
        Outcome::Failed(Failure::Graph(error)) if error.is_recursion_limit() => {
            Ok(StopReason::MaxTurnRequests)
        }
        Outcome::Failed(failure) => {
            let (code, message) = (failure.code(), failure.message());
            // An exception may have no message.
            let text = if message.is_empty() { code } else { message };
            let lines: Vec<_> = failure.reports().iter().map(ErrorReport::line).collect();
            let details = [&[text.to_owned()][..], &lines].concat().join("\n");
            Err(Error {
                code: Code::Internal,
                message: format!("the run failed: {code}"),
                details: Some(details),
            })
        }
    }
}

/// The result of `session/prompt`.
pub fn result_of(stop_reason: StopReason) -> Result<Json, Error> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct PromptResponse {
        stop_reason: StopReason,
    }
    rpc::result(&PromptResponse { stop_reason })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::langgraph::ErrorSource;
    use crate::run::RunError;

    #[test]
    fn a_turn_ends_as_its_run_did() {
        let finished = |finish| Outcome::Finished { pending_calls: Vec::new(), finish };
        let with = |code: &str, message: &str| {
            Outcome::Failed(Failure::Graph(RunError::new(code, message)))
        };
        let failed = |code| with(code, "m");
        let full = {
            let error = RunError::new("ValueError", "m");
            let reports = vec![ErrorReport::of(ErrorSource::RunStream, &error)];
            Outcome::Failed(Failure::Graph(RunError { reports, ..error }))
        };
        let cases = [
            (finished(Finish::Done), r#""result":{"stopReason":"end_turn"}"#),
            (finished(Finish::Length), r#""result":{"stopReason":"max_tokens"}"#),
            (finished(Finish::Refused), r#""result":{"stopReason":"refusal"}"#),
            (Outcome::Cancelled, r#""result":{"stopReason":"cancelled"}"#),
            (
                Outcome::Idle { pending_calls: Vec::new(), error: None },
                r#""result":{"stopReason":"end_turn"}"#,
            ),
            (Outcome::Interrupted(Vec::new()), r#""result":{"stopReason":"end_turn"}"#),
            (failed("GraphRecursionError"), r#""result":{"stopReason":"max_turn_requests"}"#),
            (
                failed("ValueError"),
                r#""error":{"code":-32603,"message":"the run failed: ValueError","data":{"details":"m"}}"#,
            ),
            (
                full,
                r#""error":{"code":-32603,"message":"the run failed: ValueError","data":{"details":"m\nthe run's stream: ValueError: m"}}"#,
            ),
            (
                with("Boom", ""),
                r#""error":{"code":-32603,"message":"the run failed: Boom","data":{"details":"Boom"}}"#,
            ),
        ];
        for (outcome, expected) in cases {
            let result = stop_reason(&outcome).and_then(result_of);
            let response = rpc::response(&rpc::Id::number(1), &result);
            assert_eq!(response, format!("{{\"jsonrpc\":\"2.0\",\"id\":1,{expected}}}\n"));
        }
    }
}
