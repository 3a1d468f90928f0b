//! How a turn ends: the answer to `session/prompt`.

use serde::Serialize;

use super::rpc::{self, Code, Error};
use crate::json::Json;
use crate::langgraph::{Finish, RECURSION_LIMIT};
use crate::run::Outcome;

/// Why a turn is over.
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

/// How the turn of a run ends that ended so.
///
/// A run that waits for a person has ended its turn: what it asks was asked in other ways. A
/// thread at rest has no turn; that its last run failed is history.
pub fn stop_reason(outcome: &Outcome) -> Result<StopReason, Error> {
    match outcome {
        Outcome::Finished { finish: Finish::Done, .. }
        | Outcome::Interrupted(_)
        | Outcome::AtRest { .. } => Ok(StopReason::EndTurn),
        Outcome::Finished { finish: Finish::Length, .. } => Ok(StopReason::MaxTokens),
        Outcome::Finished { finish: Finish::Refused, .. } => Ok(StopReason::Refusal),
        Outcome::Cancelled => Ok(StopReason::Cancelled),
        Outcome::Failed { code, .. } if code == RECURSION_LIMIT => Ok(StopReason::MaxTurnRequests),
        Outcome::Failed { code, message } => Err(Error {
            code: Code::Internal,
            message: format!("the run failed: {code}"),
            // An exception may say nothing.
            details: Some(if message.is_empty() { code.clone() } else { message.clone() }),
        }),
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

    #[test]
    fn a_turn_ends_as_its_run_did() {
        let finished = |finish| Outcome::Finished { pending_calls: Vec::new(), finish };
        let failed =
            |code: &str| Outcome::Failed { code: code.to_owned(), message: "m".to_owned() };
        let cases = [
            (finished(Finish::Done), r#""result":{"stopReason":"end_turn"}"#),
            (finished(Finish::Length), r#""result":{"stopReason":"max_tokens"}"#),
            (finished(Finish::Refused), r#""result":{"stopReason":"refusal"}"#),
            (Outcome::Cancelled, r#""result":{"stopReason":"cancelled"}"#),
            (Outcome::AtRest { error: None }, r#""result":{"stopReason":"end_turn"}"#),
            (Outcome::Interrupted(Vec::new()), r#""result":{"stopReason":"end_turn"}"#),
            (failed("GraphRecursionError"), r#""result":{"stopReason":"max_turn_requests"}"#),
            (
                failed("ValueError"),
                r#""error":{"code":-32603,"message":"the run failed: ValueError","data":{"details":"m"}}"#,
            ),
            (
                Outcome::Failed { code: "Boom".to_owned(), message: String::new() },
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
