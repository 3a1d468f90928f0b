//! What LangGraph has on a failed run, by the place of its API that has it.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;

use super::ThreadState;
use crate::json::{self, Members};

/// How much of one text is kept: a stack trace of some hundred frames, and an end to a message that
/// quotes a whole prompt.
const MAX_TEXT_CHARS: usize = 16 * 1024;

/// The exception of both servers for a run that took more supersteps than it may.
const RECURSION_LIMIT: &str = "GraphRecursionError";

/// Why a run failed, in the server's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunError {
    /// The exception's name.
    pub code: String,
    /// Its message. The Python server hides that of exceptions it does not know.
    pub message: String,
    /// Its stack trace, if the server sends one.
    pub trace: Option<String>,
    /// What each place of the server has on the failure. Clients are sent it with
    /// [`ErrorDetail::Full`] alone.
    pub reports: Vec<ErrorReport>,
}

/// How much is told of a failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ErrorDetail {
    /// All that the server has, and where it has it; what it says where it refuses a request, too.
    Full,
    /// A run's exception, with its message, as LangGraph's own clients are told.
    #[default]
    Message,
    /// The exception's name.
    Code,
    /// That it failed.
    None,
}

/// What one place of the server has on a failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ErrorReport {
    /// Which place.
    source: ErrorSource,
    /// The node that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    /// The exception's name, where it stands apart.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    /// What the place says.
    message: String,
    /// The stack trace. Neither server of LangGraph's sends one; others of its API may.
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<String>,
}

/// A place of the server that has something on a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorSource {
    /// The `error` part of the run's stream.
    RunStream,
    /// The thread's record, `error`: the Python server alone has it.
    Thread,
    /// The thread's state, `tasks[].error`. The Python server hides the messages of most exceptions
    /// everywhere else.
    ThreadState,
}

/// The stack trace among the members of a failure, under any of its usual names.
fn trace(members: &Members<'_>) -> Option<String> {
    let names = ["traceback", "stacktrace", "stack", "trace"];
    let trace = names.into_iter().find_map(|name| members.string(name));
    trace.filter(|trace| !trace.is_empty()).map(|trace| bounded(&trace))
}

// === impl RunError ===

impl RunError {
    /// `{"error": name, "message": text}`; or, from the JavaScript server, a bare string, and with a
    /// task `{"name": name, "message": text}`.
    pub fn parse(data: &str) -> Self {
        let Ok(value) = serde_json::from_str::<&RawValue>(data) else {
            return Self::new("Error", data);
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

    /// A failure of this name and message.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), trace: None, reports: Vec::new() }
    }

    /// Whether a stream says so that there is no such run: both servers answer 200 to a join of one.
    pub fn is_missing_run(&self) -> bool {
        match &*self.code {
            "HTTPException" => {
                matches!(&*self.message, "404: Run not found" | "404: Thread not found")
            }
            "Error" => self.message == "Run not found",
            _ => false,
        }
    }

    /// Whether the run took more supersteps than it may.
    pub fn is_recursion_limit(&self) -> bool {
        self.code == RECURSION_LIMIT
    }

    /// The failure, as it is told to clients that are to know so much.
    #[must_use]
    pub fn redacted(self, detail: ErrorDetail) -> Self {
        match detail {
            ErrorDetail::Full => self,
            ErrorDetail::Message => Self::new(self.code, self.message),
            ErrorDetail::Code => Self::new(self.code, Self::unexplained().message),
            ErrorDetail::None => Self::unexplained(),
        }
    }

    /// What is said of a failure that no server tells more of.
    pub fn unexplained() -> Self {
        Self::new("run_failed", "the run failed; LangGraph's log tells why")
    }
}

// === impl ErrorReport ===

impl ErrorReport {
    /// What the run's stream or the thread's record has.
    pub fn of(source: ErrorSource, error: &RunError) -> Self {
        Self {
            source,
            node: None,
            kind: Some(bounded(&error.code)),
            message: bounded(&error.message),
            trace: error.trace.clone(),
        }
    }

    /// What the failed task of a thread's state has, if one has failed.
    pub fn of_state(state: &ThreadState<'_>) -> Option<Self> {
        let text = state.error.as_deref()?;
        let node = state.failed_node.as_deref().map(bounded);
        let source = ErrorSource::ThreadState;
        // Python prints the exception as its `repr`, JavaScript as JSON.
        let is_object = serde_json::from_str::<Members<'_>>(text).is_ok();
        if is_object {
            return Some(Self { node, ..Self::of(source, &RunError::parse(text)) });
        }
        Some(Self { source, node, kind: None, message: bounded(text), trace: None })
    }

    /// It in one line, and its trace behind.
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

    /// How many bytes its texts have.
    pub fn weight(&self) -> usize {
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
        assert_eq!(ErrorReport::of_state(&ThreadState::parse("{}").unwrap()), None);
    }

    #[test]
    fn a_text_is_bounded() {
        let error = RunError::new("E", "ß".repeat(MAX_TEXT_CHARS + 7));
        let account = ErrorReport::of(ErrorSource::Thread, &error);
        assert_eq!(account.message.chars().count(), MAX_TEXT_CHARS + 1);
        assert!(account.weight() > account.message.len());
    }
}
