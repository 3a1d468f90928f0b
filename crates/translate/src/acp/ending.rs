//! The end of a turn: the answer to `session/prompt`.

use serde::Serialize;

use super::limit;
use super::rpc::{self, Code, Error};
use super::tool::one_line;
use super::update::StopReason;
use crate::json::Json;
use crate::langgraph::Finish;
use crate::run::{ErrorReport, Failure, Outcome};

/// The longest message of a failed run's error, in characters.
const MAX_MESSAGE_CHARS: usize = 500;

/// The longest part of it that is not the graph's reason, in characters.
const MAX_CODE_CHARS: usize = 200;

/// The longest details of a failed run's error, in bytes.
const MAX_DETAILS_BYTES: usize = 64 * 1024;

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
            let error = one_line(&format!("the run failed: {code}"), MAX_CODE_CHARS);
            let rest = MAX_MESSAGE_CHARS.saturating_sub(error.chars().count() + ": ".len());
            Err(Error {
                code: Code::Internal,
                reason: reason(code, message).map(|reason| one_line(reason, rest)),
                message: error,
                details: Some(limit::cut(&details, MAX_DETAILS_BYTES).into_owned()),
            })
        }
    }
}

/// The first line of an exception's message, without the exception's name. `None` if that is all.
fn reason<'a>(code: &str, message: &'a str) -> Option<&'a str> {
    let line = message.lines().map(str::trim).find(|line| !line.is_empty())?;
    let line = line.strip_prefix(code).map_or(line, |rest| rest.trim_start_matches([':', ' ']));
    (!line.is_empty()).then_some(line)
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
                r#""error":{"code":-32603,"message":"the run failed: ValueError: m","data":{"details":"m"}}"#,
            ),
            (
                full,
                r#""error":{"code":-32603,"message":"the run failed: ValueError: m","data":{"details":"m\nthe run's stream: ValueError: m"}}"#,
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

    #[test]
    fn a_failed_run_says_why_on_one_line() {
        let message = |code: &str, message: &str| {
            let error = stop_reason(&Outcome::Failed(Failure::Graph(RunError::new(code, message))));
            let error = error.unwrap_err();
            // A log has nothing of the graph's words.
            assert!(!error.to_string().contains("paper"), "{error}");
            let line = rpc::response(&rpc::Id::number(1), &Err(error));
            let line: serde_json::Value = serde_json::from_str(&line).unwrap();
            line["error"]["message"].as_str().unwrap().to_owned()
        };
        for (code, said, expected) in [
            ("E", "429 rate limit", "the run failed: E: 429 rate limit"),
            ("E", "\n\n no\tpaper \u{1b}[1m\nsecond", "the run failed: E: no paper [1m"),
            ("E", "E: no paper", "the run failed: E: no paper"),
            ("E", "E", "the run failed: E"),
            ("E", " \n", "the run failed: E"),
        ] {
            assert_eq!(message(code, said), expected);
        }
        for (code, said) in [("E", "é".repeat(2000)), (&*"E".repeat(2000), "x".repeat(2000))] {
            let message = message(code, &said);
            assert_eq!(message.chars().count(), 500, "{message}");
        }
        let long = RunError::new("E", "paper\n".repeat(100_000));
        let error = stop_reason(&Outcome::Failed(Failure::Graph(long))).unwrap_err();
        assert!(error.details.unwrap().len() < MAX_DETAILS_BYTES + 100);
    }
}
