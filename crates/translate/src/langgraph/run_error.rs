//! Why a run failed, as the different parts of LangGraph's API report it.

mod python;

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;

use super::ThreadState;
use crate::json::{self, Members};

/// The longest text that is kept, in characters. Enough for a stack trace of some hundred frames,
/// and a limit for messages that quote a whole prompt.
const MAX_TEXT_CHARS: usize = 16 * 1024;

/// The exception of both servers for a run that exceeds its limit of supersteps.
const RECURSION_LIMIT: &str = "GraphRecursionError";

/// Why a run failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunError {
    /// The name of the exception.
    pub code: String,
    /// The message of the exception. The Python server hides the messages of exceptions that it
    /// does not know.
    pub message: String,
    /// The stack trace, if the server sends one.
    pub trace: Option<String>,
    /// What each part of the API reports about the failure. Clients get it only with
    /// [`ErrorDetail::Full`].
    pub reports: Vec<ErrorReport>,
}

/// How much of a failure clients see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ErrorDetail {
    /// Everything that the server reports, with its source. Also the server's text when it refuses
    /// a request.
    Full,
    /// The exception's name and message, as LangGraph's own clients see them.
    #[default]
    Message,
    /// The exception's name.
    Code,
    /// Only that the run failed.
    None,
}

/// What one part of the API reports about a failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ErrorReport {
    /// The part of the API.
    source: ErrorSource,
    /// The node that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    /// The exception's name, if it is separate from the message.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    /// The error message.
    message: String,
    /// The stack trace. LangGraph's servers send none, but others with the same API may.
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<String>,
}

/// A part of the API that reports failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorSource {
    /// An `error` part of the run's stream.
    RunStream,
    /// `error` in the thread's record. Only the Python server has it.
    Thread,
    /// `tasks[].error` in the thread's state. Elsewhere the Python server hides the messages of
    /// most exceptions.
    ThreadState,
}

/// The stack trace in an error object, under any of its usual names.
fn trace(members: &Members<'_>) -> Option<String> {
    let names = ["traceback", "stacktrace", "stack", "trace"];
    let trace = names.into_iter().find_map(|name| members.string(name));
    trace.filter(|trace| !trace.is_empty()).map(|trace| bounded(&trace))
}

// === impl RunError ===

impl RunError {
    /// Reads `{"error": name, "message": text}`. The JavaScript server also sends a string, and for
    /// a task `{"name": name, "message": text}`. Python's servers store an exception of a task as
    /// Python prints it: `ValueError('no model')`.
    pub fn parse(data: &str) -> Self {
        let Ok(value) = serde_json::from_str::<&RawValue>(data) else {
            return python::exception(data).unwrap_or_else(|| Self::new("Error", data));
        };
        if let Some(message) = json::string(value) {
            return Self::new("Error", message);
        }
        let members = json::members(value).unwrap_or_default();
        let field = |name| members.string(name).map(Cow::into_owned);
        let code = field("error").or_else(|| field("name")).unwrap_or_else(|| "Error".to_owned());
        let message = field("message").unwrap_or_else(|| code.clone());
        let trace = trace(&members);
        Self { trace, ..Self::new(code, message) }
    }

    /// An error without a trace.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), trace: None, reports: Vec::new() }
    }

    /// Whether the error means that the run does not exist. Both servers answer 200 if a missing
    /// run is joined.
    pub fn is_missing_run(&self) -> bool {
        match &*self.code {
            "HTTPException" => {
                matches!(&*self.message, "404: Run not found" | "404: Thread not found")
            }
            "Error" => self.message == "Run not found",
            _ => false,
        }
    }

    /// Whether the run exceeded its limit of supersteps.
    pub fn is_recursion_limit(&self) -> bool {
        self.code == RECURSION_LIMIT
    }

    /// The error with no more than `detail` allows.
    #[must_use]
    pub fn redacted(self, detail: ErrorDetail) -> Self {
        match detail {
            ErrorDetail::Full => self,
            ErrorDetail::Message => Self::new(self.code, self.message),
            ErrorDetail::Code => Self::new(self.code, Self::unexplained().message),
            ErrorDetail::None => Self::unexplained(),
        }
    }

    /// The error of a run that failed for an unknown reason.
    pub fn unexplained() -> Self {
        Self::new("run_failed", "the run failed; LangGraph's log tells why")
    }
}

// === impl ErrorReport ===

impl ErrorReport {
    /// The report of the run's stream or of the thread's record.
    pub fn of(source: ErrorSource, error: &RunError) -> Self {
        Self {
            source,
            node: None,
            kind: Some(bounded(&error.code)),
            message: bounded(&error.message),
            trace: error.trace.clone(),
        }
    }

    /// The report of the failed task in a thread's state. `None` if no task failed.
    pub fn of_state(state: &ThreadState<'_>) -> Option<Self> {
        let text = state.error.as_deref()?;
        let node = state.failed_node.as_deref().map(bounded);
        let source = ErrorSource::ThreadState;
        // Python prints the exception's `repr`, JavaScript an object.
        let is_object = serde_json::from_str::<Members<'_>>(text).is_ok();
        if is_object {
            return Some(Self { node, ..Self::of(source, &RunError::parse(text)) });
        }
        Some(Self { source, node, kind: None, message: bounded(text), trace: None })
    }

    /// The report in one line, followed by the trace.
    pub fn line(&self) -> String {
        let mut line = match self.source {
            ErrorSource::RunStream => "the run's stream",
            ErrorSource::Thread => "the thread",
            ErrorSource::ThreadState => "the thread's state",
        }
        .to_owned();
        if let Some(node) = &self.node {
            line = format!("{line}, node `{node}`");
        }
        line.push_str(": ");
        if let Some(kind) = &self.kind {
            line = format!("{line}{kind}: ");
        }
        line.push_str(&self.message);
        if let Some(trace) = &self.trace {
            line = format!("{line}\n{trace}");
        }
        line
    }

    /// The length of its texts in bytes.
    pub fn memory_bytes(&self) -> usize {
        let texts = [&self.node, &self.kind, &self.trace];
        self.message.len() + texts.into_iter().flatten().map(String::len).sum::<usize>()
    }
}

fn bounded(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT_CHARS) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_has_on_a_failure_is_read_from_each_place() {
        let json = |account: &ErrorReport| serde_json::to_string(account).unwrap();
        let error =
            RunError::parse(r#"{"error":"CustomBoom","message":"hidden","traceback":"File a"}"#);
        assert_eq!(
            json(&ErrorReport::of(ErrorSource::RunStream, &error)),
            r#"{"source":"run_stream","type":"CustomBoom","message":"hidden","trace":"File a"}"#
        );
        let of_task = |error: &str| {
            let body = format!(r#"{{"tasks":[{{"name":"model","error":{error}}}]}}"#);
            ErrorReport::of_state(&ThreadState::parse(&body).unwrap()).unwrap()
        };
        let python = of_task(r#""CustomBoom('no \"key\"')""#);
        assert_eq!(
            json(&python),
            r#"{"source":"thread_state","node":"model","message":"CustomBoom('no \"key\"')"}"#
        );
        assert_eq!(python.line(), "the thread's state, node `model`: CustomBoom('no \"key\"')");
        let javascript = of_task(r#""{\"message\":\"boom\",\"name\":\"TypeError\"}""#);
        assert_eq!(javascript.line(), "the thread's state, node `model`: TypeError: boom");
        // A JavaScript graph of the Python server.
        assert_eq!(of_task(r#"{"message":"boom","name":"TypeError"}"#), javascript);
        assert_eq!(ErrorReport::of_state(&ThreadState::parse("{}").unwrap()), None);
    }

    #[test]
    fn a_text_is_bounded() {
        let error = RunError::new("E", "ß".repeat(MAX_TEXT_CHARS + 7));
        let account = ErrorReport::of(ErrorSource::Thread, &error);
        assert_eq!(account.message.chars().count(), MAX_TEXT_CHARS + 1);
        assert!(account.memory_bytes() > account.message.len());
    }
}
