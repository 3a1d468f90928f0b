//! How a turn ends: the answer to `session/prompt`.

use serde::Serialize;

use crate::langgraph::Finish;
use crate::run::Outcome;

/// The exception of a run that took more supersteps than it may.
const RECURSION_LIMIT: &str = "GraphRecursionError";

/// "Internal error", JSON-RPC's own code.
const INTERNAL_ERROR: i32 = -32603;

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

/// Why a turn failed, as a JSON-RPC error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// JSON-RPC's code.
    pub code: i32,
    /// What kind of failure it is.
    pub message: String,
    /// What happened.
    pub data: Details,
}

/// What happened. Editors show it where this is the only member of an error's data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Details {
    /// In words.
    pub details: String,
}

/// How the turn of a run ends that ended so.
///
/// A run that waits for a person has ended its turn: what it asks was asked in other ways. A
/// thread at rest has no turn; that its last run failed is history.
pub fn stop_reason(outcome: &Outcome) -> Result<StopReason, Failure> {
    match outcome {
        Outcome::Finished { finish: Finish::Done, .. }
        | Outcome::Interrupted(_)
        | Outcome::AtRest { .. } => Ok(StopReason::EndTurn),
        Outcome::Finished { finish: Finish::Length, .. } => Ok(StopReason::MaxTokens),
        Outcome::Finished { finish: Finish::Refused, .. } => Ok(StopReason::Refusal),
        Outcome::Cancelled => Ok(StopReason::Cancelled),
        Outcome::Failed { code, .. } if code == RECURSION_LIMIT => Ok(StopReason::MaxTurnRequests),
        Outcome::Failed { code, message } => Err(Failure {
            code: INTERNAL_ERROR,
            message: format!("the run failed: {code}"),
            data: Details { details: message.clone() },
        }),
    }
}

/// Writes the response to `session/prompt` as one line.
pub fn write_response(id: u64, end: &Result<StopReason, Failure>, out: &mut Vec<u8>) {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Answer {
        stop_reason: StopReason,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "lowercase")]
    enum Body<'a> {
        Result(Answer),
        Error(&'a Failure),
    }
    #[derive(Serialize)]
    struct Response<'a> {
        jsonrpc: &'static str,
        id: u64,
        #[serde(flatten)]
        body: Body<'a>,
    }
    let body = match end {
        Ok(stop_reason) => Body::Result(Answer { stop_reason: *stop_reason }),
        Err(failure) => Body::Error(failure),
    };
    super::write_line(&Response { jsonrpc: "2.0", id, body }, out);
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
        ];
        for (outcome, expected) in cases {
            let mut out = Vec::new();
            write_response(1, &stop_reason(&outcome), &mut out);
            let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":1,{expected}}}\n");
            assert_eq!(String::from_utf8(out).unwrap(), line);
        }
    }
}
