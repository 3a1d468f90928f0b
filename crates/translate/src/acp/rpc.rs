//! JSON-RPC 2.0 as ACP speaks it: one message a line, no batches, ids that are echoed as they came.

use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::json::{self, Json, ObjectWriter};

/// What came in on a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// Something is asked.
    Request {
        /// To be echoed.
        id: Id,
        /// What is asked.
        method: String,
        /// With what; `{}` where there is nothing.
        params: Json,
    },
    /// Something is told.
    Notification {
        /// What is told.
        method: String,
        /// With what; `{}` where there is nothing.
        params: Json,
    },
    /// Something that we asked is answered.
    Response {
        /// Of our request.
        id: Id,
        /// The answer.
        result: Result<Json, Error>,
    },
}

/// A request's id, as it is on the wire: an integer, a string, or null.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Id(String);

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// What kind.
    pub code: Code,
    /// For a person: what happened, which input, what to do.
    pub message: String,
    /// Sent as `{"details": ..}`. Zed shows that after an internal error only if it is the only
    /// member.
    pub details: Option<String>,
}

/// The codes that the protocol knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The line is not JSON.
    Parse,
    /// It is, but no message, or not one for now.
    InvalidRequest,
    /// Nobody knows the method.
    MethodNotFound,
    /// The params have not the method's form.
    InvalidParams,
    /// It failed.
    Internal,
    /// Nothing works before `authenticate`.
    AuthRequired,
    /// There is no such session.
    NotFound,
    /// The client has taken its request back.
    Cancelled,
    /// A code of the other side that we do not act on.
    Other(i64),
}

/// Why a line is no message, and whom to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The id of the request, if it could be read.
    pub id: Id,
    /// Why.
    pub error: Error,
}

// === impl Incoming ===

impl Incoming {
    /// Reads a line. The line itself is never repeated in an error: it may hold secrets.
    pub fn parse(line: &[u8]) -> Result<Self, Malformed> {
        let value: &RawValue = serde_json::from_slice(line).map_err(|error| {
            let at = error.column();
            Malformed::nameless(Error::new(
                Code::Parse,
                format!("the line is not JSON (byte {at})"),
            ))
        })?;
        if value.get().starts_with('[') {
            let message = "batches are no part of ACP; send one message a line";
            return Err(Malformed::nameless(Error::invalid(message)));
        }
        let Some(members) = json::members(value) else {
            return Err(Malformed::nameless(Error::invalid("the message is no object")));
        };
        let id = match members.get("id") {
            None => None,
            Some(id) => Some(Id::read(id).ok_or_else(|| {
                let message = "`id` is no whole number, string or null";
                Malformed::nameless(Error::invalid(message))
            })?),
        };
        let wrong = |message: &str| Malformed {
            id: id.clone().unwrap_or(Id::NULL),
            error: Error::invalid(message),
        };
        if members.get("jsonrpc").is_none_or(|version| version.get() != "\"2.0\"") {
            return Err(wrong("`jsonrpc` is not \"2.0\""));
        }
        let params = members.get("params").map_or_else(Json::empty_object, Json::from);
        match (members.get("method"), &id) {
            (Some(method), _) => {
                let method = json::string(method).ok_or_else(|| wrong("`method` is no string"))?;
                let method = method.into_owned();
                Ok(match id {
                    Some(id) => Self::Request { id, method, params },
                    None => Self::Notification { method, params },
                })
            }
            (None, Some(_)) => {
                let result = match (members.get("result"), members.get("error")) {
                    (_, Some(error)) => Err(Error::read(error)),
                    (Some(result), None) => Ok(Json::from(result)),
                    (None, None) => return Err(wrong("a message without method and result")),
                };
                Ok(Self::Response { id: id.unwrap_or(Id::NULL), result })
            }
            (None, None) => Err(wrong("a message without `method` and `id`")),
        }
    }
}

/// Reads the params of a method.
pub fn params<T: DeserializeOwned>(method: &str, params: &RawValue) -> Result<T, Error> {
    serde_json::from_str(params.get()).map_err(|error| {
        let why = without_values(&error.to_string());
        Error::new(Code::InvalidParams, format!("{method}: {why}"))
    })
}

/// An explanation without the values that it quotes, which may be a tool server's secrets.
fn without_values(why: &str) -> String {
    // "invalid type: string \"..\", expected ..", "unknown variant `..`, expected ..": what was
    // sent stands between.
    let why = why.rsplit_once(" at line ").map_or(why, |(why, _)| why);
    match (why.find(['"', '`']), why.rfind(", expected")) {
        (Some(from), Some(to)) if from < to => {
            let (before, after) = (why.get(..from), why.get(to..));
            format!("{}..{}", before.unwrap_or_default(), after.unwrap_or_default())
        }
        _ => why.to_owned(),
    }
}

// === what goes out, each as a line ===

/// A notification.
pub fn notification(method: &str, params: &impl Serialize) -> String {
    #[derive(Serialize)]
    struct Notification<'a, P> {
        jsonrpc: &'a str,
        method: &'a str,
        params: &'a P,
    }
    line(&Notification { jsonrpc: "2.0", method, params })
}

/// A request of ours.
pub fn request(id: &Id, method: &str, params: &impl Serialize) -> String {
    #[derive(Serialize)]
    struct Request<'a, P> {
        jsonrpc: &'a str,
        id: Json,
        method: &'a str,
        params: &'a P,
    }
    line(&Request { jsonrpc: "2.0", id: id.to_json(), method, params })
}

/// The answer to a request.
pub fn response(id: &Id, result: &Result<Json, Error>) -> String {
    let message = ObjectWriter::new().string("jsonrpc", "2.0").raw("id", id.to_json().get());
    let message = match result {
        Ok(result) => message.raw("result", result.get()),
        Err(error) => message.raw("error", error.to_json().get()),
    };
    let mut line = message.finish().get().to_owned();
    line.push('\n');
    line
}

fn line(message: &impl Serialize) -> String {
    // Structs of strings, numbers and raw values always serialise.
    let mut line = serde_json::to_string(message).unwrap_or_default();
    line.push('\n');
    line
}

/// A result as JSON.
pub fn result(result: &impl Serialize) -> Result<Json, Error> {
    serde_json::to_string(result)
        .map(json::raw)
        .map_err(|error| Error::internal(format!("the answer could not be written: {error}")))
}

// === impl Id ===

impl Id {
    /// Of a request that cannot be read.
    pub const NULL: Self = Self(String::new());

    /// An id of ours.
    pub fn number(number: u64) -> Self {
        Self(number.to_string())
    }

    /// Reads an id; `None` if it is of no allowed kind.
    pub fn read(id: &RawValue) -> Option<Self> {
        let text = id.get();
        match text {
            "null" => Some(Self::NULL),
            _ if text.starts_with('"') || text.parse::<i64>().is_ok() => {
                Some(Self(text.to_owned()))
            }
            _ => None,
        }
    }

    /// The id as it stands on the wire.
    pub fn to_json(&self) -> Json {
        json::raw(if self.0.is_empty() { "null".to_owned() } else { self.0.clone() })
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_json().get())
    }
}

// === impl Malformed ===

impl Malformed {
    fn nameless(error: Error) -> Self {
        Self { id: Id::NULL, error }
    }
}

// === impl Error ===

impl Error {
    /// A refusal with a message.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: None }
    }

    /// A message that is none, or not one for now.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidRequest, message)
    }

    /// Something failed. Editors show the details, or the message, so both say it.
    pub fn internal(what: impl Into<String>) -> Self {
        let message: String = what.into();
        Self { code: Code::Internal, details: Some(message.clone()), message }
    }

    fn read(error: &RawValue) -> Self {
        let members = json::members(error).unwrap_or_default();
        let code = members.get("code").and_then(|code| code.get().parse().ok());
        let message = members.string("message").unwrap_or_default().into_owned();
        Self::new(code.map_or(Code::Internal, Code::of), message)
    }

    fn to_json(&self) -> Json {
        let error = ObjectWriter::new()
            .raw("code", &self.code.number().to_string())
            .string("message", &self.message);
        match &self.details {
            Some(details) => {
                let data = ObjectWriter::new().string("details", details).finish();
                error.raw("data", data.get()).finish()
            }
            None => error.finish(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

// === impl Code ===

impl Code {
    fn number(self) -> i64 {
        match self {
            Self::Parse => -32_700,
            Self::InvalidRequest => -32_600,
            Self::MethodNotFound => -32_601,
            Self::InvalidParams => -32_602,
            Self::Internal => -32_603,
            Self::AuthRequired => -32_000,
            Self::NotFound => -32_002,
            Self::Cancelled => -32_800,
            Self::Other(code) => code,
        }
    }

    fn of(number: i64) -> Self {
        let known = [
            Self::Parse,
            Self::InvalidRequest,
            Self::MethodNotFound,
            Self::InvalidParams,
            Self::Internal,
            Self::AuthRequired,
            Self::NotFound,
            Self::Cancelled,
        ];
        known.into_iter().find(|code| code.number() == number).unwrap_or(Self::Other(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(line: &str) -> (String, Code) {
        let malformed = Incoming::parse(line.as_bytes()).unwrap_err();
        (format!("{:?}", malformed.id), malformed.error.code)
    }

    #[test]
    fn a_line_is_a_request_a_notification_or_a_response() {
        let parse = |line: &str| Incoming::parse(line.as_bytes()).unwrap();
        let Incoming::Request { id, method, params } =
            parse(r#"{"jsonrpc":"2.0","id":"a\u0062","method":"m","params":{"x":1.0}}"#)
        else {
            panic!()
        };
        assert_eq!(
            (format!("{id:?}"), &*method, params.get()),
            (r#""a\u0062""#.into(), "m", r#"{"x":1.0}"#)
        );
        for id in ["0", "-9223372036854775808", "null"] {
            let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#);
            let Incoming::Request { id: read, .. } = parse(&line) else { panic!() };
            assert_eq!(
                response(&read, &Ok(Json::empty_object())),
                format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}\n")
            );
        }
        assert!(matches!(
            parse(r#"{"jsonrpc":"2.0","method":"session/cancel","params":{}}"#),
            Incoming::Notification { .. }
        ));
        assert!(matches!(
            parse(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}"#),
            Incoming::Response { result: Err(Error { code: Code::MethodNotFound, .. }), .. }
        ));
    }

    #[test]
    fn what_is_no_message_is_refused_by_the_right_code() {
        for (line, id, code) in [
            ("nonsense", "null", Code::Parse),
            ("", "null", Code::Parse),
            ("[]", "null", Code::InvalidRequest),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"m"}]"#, "null", Code::InvalidRequest),
            ("7", "null", Code::InvalidRequest),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"m"}"#, "null", Code::InvalidRequest),
            (r#"{"jsonrpc":"2.0","id":{},"method":"m"}"#, "null", Code::InvalidRequest),
            (r#"{"id":4,"method":"m"}"#, "4", Code::InvalidRequest),
            (r#"{"jsonrpc":"2.0","id":4,"method":5}"#, "4", Code::InvalidRequest),
            (r#"{"jsonrpc":"2.0","id":4}"#, "4", Code::InvalidRequest),
            (r#"{"jsonrpc":"2.0"}"#, "null", Code::InvalidRequest),
        ] {
            assert_eq!(refused(line), (id.to_owned(), code), "{line}");
        }
    }

    #[test]
    fn an_explanation_repeats_no_value() {
        #[derive(Debug, serde::Deserialize)]
        struct Form {
            #[expect(dead_code, reason = "only read")]
            key: u8,
        }
        #[derive(Debug, serde::Deserialize)]
        #[serde(rename_all = "snake_case")]
        enum Kind {
            A,
            B,
        }
        let raw = |text: &str| json::raw(text.to_owned());
        let error = params::<Form>("m", &raw(r#"{"key":"sec\"ret, expected"}"#)).unwrap_err();
        assert_eq!(error.code, Code::InvalidParams);
        assert!(!error.message.contains("ret") && error.message.ends_with("u8"), "{error}");
        for (sent, why) in [
            (r"{}", "m: missing field `key`"),
            (r#"{"key":81547}"#, "m: invalid value: integer .., expected u8"),
            (r#"{"key":" at line 1, expected"}"#, "m: invalid type: string .., expected u8"),
        ] {
            let error = params::<Form>("m", &raw(sent)).unwrap_err();
            assert_eq!(error.message, why, "{sent}");
        }
        let error = params::<Kind>("m", &raw(r#""s3cr3t""#)).unwrap_err();
        assert_eq!(error.message, "m: unknown variant .., expected `a` or `b`");
    }
}
