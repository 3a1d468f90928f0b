//! JSON-RPC 2.0 as ACP uses it: one message a line, no batches. Ids are echoed byte for byte.

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::json::{self, Json, ObjectWriter};

/// The longest id of a request, in bytes as it is written. Ids are kept until the answer.
pub const MAX_ID_BYTES: usize = 1024;

/// The longest name of a method, in bytes. The answer to an unknown one quotes it.
const MAX_METHOD_BYTES: usize = 256;

/// The mark of UTF-8 at the beginning of a text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A message that came in on a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// A request of the other side.
    Request {
        /// The id to echo.
        id: Id,
        /// The method.
        method: String,
        /// The params, `{}` if the message has none.
        params: Json,
    },
    /// A notification of the other side.
    Notification {
        /// The method.
        method: String,
        /// The params, `{}` if the message has none.
        params: Json,
    },
    /// An answer to a request of ours.
    Response {
        /// The id of our request.
        id: Id,
        /// The answer, or the error.
        result: Result<Json, Error>,
    },
}

/// The id of a request as it was written: an integer, a string or null.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Id(String);

/// An error of JSON-RPC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The code.
    pub code: Code,
    /// The text for a person: what happened, to which input, and what to do.
    pub message: String,
    /// The graph's own words about it, on one line. A client gets them at the end of `message`,
    /// since several clients show nothing else. No log has them.
    pub reason: Option<String>,
    /// More text for a person, sent as `data` with the only member `details`. Zed shows the details
    /// of an internal error only if there is no other member.
    pub details: Option<String>,
}

/// The codes of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The line is not JSON.
    Parse,
    /// The line is no message, or one that is not allowed now.
    InvalidRequest,
    /// The method is unknown.
    MethodNotFound,
    /// The params do not have the method's form.
    InvalidParams,
    /// The request failed.
    Internal,
    /// `authenticate` must be called first.
    AuthRequired,
    /// The session does not exist.
    NotFound,
    /// The client has cancelled the request.
    Cancelled,
    /// Any other code that the other side sends.
    Other(i64),
}

/// Why a line is no message, and the id to answer to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The id of the request, or null if it could not be read.
    pub id: Id,
    /// The error to send.
    pub error: Error,
}

// === impl Incoming ===

impl Incoming {
    /// Reads a line. Errors do not quote the line, because it may hold secrets. Text that no server
    /// stores is mended: see [`json::mend`].
    pub fn parse(line: &[u8]) -> Result<Self, Malformed> {
        // Some programs begin what they write with the mark of its encoding.
        let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        let value: &RawValue = serde_json::from_slice(line).map_err(|error| {
            let at = error.column();
            Malformed::without_id(Error::new(
                Code::Parse,
                format!("the line is not JSON (byte {at})"),
            ))
        })?;
        if value.get().starts_with('[') {
            let message = "batches are no part of ACP; send one message a line";
            return Err(Malformed::without_id(Error::invalid(message)));
        }
        let Some(members) = json::members(value) else {
            return Err(Malformed::without_id(Error::invalid("the message is no object")));
        };
        let id = match members.get("id") {
            None => None,
            Some(id) if id.get().len() > MAX_ID_BYTES => {
                let message =
                    format!("`id` is longer than {MAX_ID_BYTES} bytes; send a shorter one");
                return Err(Malformed::without_id(Error::invalid(message)));
            }
            Some(id) => Some(Id::read(id).ok_or_else(|| {
                let message = "`id` is no whole number, string or null";
                Malformed::without_id(Error::invalid(message))
            })?),
        };
        let wrong = |message: &str| Malformed {
            id: id.clone().unwrap_or(Id::NULL),
            error: Error::invalid(message),
        };
        if members.get("jsonrpc").is_none_or(|version| version.get() != "\"2.0\"") {
            return Err(wrong("`jsonrpc` is not \"2.0\""));
        }
        // The id is not mended: the client expects its own back.
        let params = members.get("params").map_or_else(Json::empty_object, Json::mended);
        match (members.get("method"), &id) {
            (Some(method), _) => {
                let method = json::string(method).ok_or_else(|| wrong("`method` is no string"))?;
                let method = method.into_owned();
                if method.len() > MAX_METHOD_BYTES {
                    return Err(wrong(
                        "`method` is longer than 256 bytes; send the name of a method",
                    ));
                }
                Ok(match id {
                    Some(id) => Self::Request { id, method, params },
                    None => Self::Notification { method, params },
                })
            }
            (None, Some(_)) => {
                // Some libraries write both members, and null for the one that has no value.
                let error = members.get("error").filter(|error| error.get() != "null");
                let result = match (members.get("result"), error) {
                    (_, Some(error)) => Err(Error::read(error)),
                    (Some(result), None) => Ok(Json::mended(result)),
                    (None, None) => return Err(wrong("a message without method and result")),
                };
                Ok(Self::Response { id: id.unwrap_or(Id::NULL), result })
            }
            (None, None) => Err(wrong("a message without `method` and `id`")),
        }
    }
}

/// Reads the params of a method. Errors do not quote the params.
pub fn params<T: DeserializeOwned>(method: &str, params: &RawValue) -> Result<T, Error> {
    serde_json::from_str(params.get()).map_err(|error| {
        let why = without_values(&error.to_string());
        Error::new(Code::InvalidParams, format!("{method}: {why}"))
    })
}

/// An error text of serde without the values that it quotes, which may be secrets of a tool server.
fn without_values(why: &str) -> String {
    // "invalid type: string \"..\", expected .." or "unknown variant `..`, expected ..": the value
    // is before "expected".
    let why = why.rsplit_once(" at line ").map_or(why, |(why, _)| why);
    match (why.find(['"', '`']), why.rfind(", expected")) {
        (Some(from), Some(to)) if from < to => {
            let (before, after) = (why.get(..from), why.get(to..));
            format!("{}..{}", before.unwrap_or_default(), after.unwrap_or_default())
        }
        _ => why.to_owned(),
    }
}

// === messages to send, one a line ===

/// A notification as a line.
pub fn notification(method: &str, params: &impl Serialize) -> String {
    #[derive(Serialize)]
    struct Notification<'a, P> {
        jsonrpc: &'a str,
        method: &'a str,
        params: &'a P,
    }
    line(&Notification { jsonrpc: "2.0", method, params })
}

/// A request as a line.
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

/// The answer to a request as a line.
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
    /// The id for answers to a line whose id cannot be read.
    pub const NULL: Self = Self(String::new());

    /// The id of a request of ours.
    pub fn number(number: u64) -> Self {
        Self(number.to_string())
    }

    /// Reads an id. `None` if it is no integer, string or null.
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

    /// The id as it is written.
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
    fn without_id(error: Error) -> Self {
        Self { id: Id::NULL, error }
    }
}

// === impl Error ===

impl Error {
    /// An error without details.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), reason: None, details: None }
    }

    /// The error for an invalid request.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidRequest, message)
    }

    /// The error for a failure. Some editors show the details and others the message, so both hold
    /// the text.
    pub fn internal(what: impl Into<String>) -> Self {
        let message: String = what.into();
        Self { code: Code::Internal, details: Some(message.clone()), reason: None, message }
    }

    fn read(error: &RawValue) -> Self {
        let members = json::members(error).unwrap_or_default();
        let code = members.get("code").and_then(|code| code.get().parse().ok());
        let message = members.string("message").unwrap_or_default().into_owned();
        Self::new(code.map_or(Code::Internal, Code::of), message)
    }

    fn to_json(&self) -> Json {
        let message = match &self.reason {
            Some(reason) => Cow::Owned(format!("{}: {reason}", self.message)),
            None => Cow::Borrowed(&*self.message),
        };
        let error = ObjectWriter::new()
            .raw("code", &self.code.number().to_string())
            .string("message", &message);
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
    pub(super) fn number(self) -> i64 {
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
    fn a_null_error_beside_a_result_is_no_error() {
        let result = |rest: &str| {
            let line = format!(r#"{{"jsonrpc":"2.0","id":1,{rest}}}"#);
            match Incoming::parse(line.as_bytes()) {
                Ok(Incoming::Response { result, .. }) => {
                    Ok(result.map(|result| result.get().len()))
                }
                Ok(other) => panic!("{other:?}"),
                Err(malformed) => Err(malformed.error.code),
            }
        };
        assert_eq!(result(r#""result":{},"error":null"#), Ok(Ok(2)));
        assert_eq!(result(r#""error": null ,"result":null"#), Ok(Ok(4)));
        assert!(matches!(result(r#""result":null,"error":{"code":1,"message":"no"}"#), Ok(Err(_))));
        assert_eq!(result(r#""error":null"#), Err(Code::InvalidRequest));
    }

    #[test]
    fn a_byte_order_mark_before_a_line_is_passed_over() {
        let line = b"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}";
        assert!(matches!(Incoming::parse(line), Ok(Incoming::Request { .. })));
        assert!(Incoming::parse(b"\xef\xbb\xbf").is_err());
        assert!(Incoming::parse(&line[1..]).is_err());
    }

    #[test]
    fn text_that_no_server_stores_is_mended_and_an_id_is_not() {
        let line =
            r#"{"jsonrpc":"2.0","id":"\ud83d","method":"m","params":{"a":["\ud83d\u0000"]}}"#;
        let Incoming::Request { id, params, .. } = Incoming::parse(line.as_bytes()).unwrap() else {
            panic!("the line is a request")
        };
        assert_eq!(id.to_json().get(), r#""\ud83d""#);
        assert_eq!(params.get(), r#"{"a":["\ufffd\ufffd"]}"#);
        let line = r#"{"jsonrpc":"2.0","id":1,"result":{"a":"\ude00"}}"#;
        let Incoming::Response { result, .. } = Incoming::parse(line.as_bytes()).unwrap() else {
            panic!("the line is a response")
        };
        assert_eq!(result.unwrap().get(), r#"{"a":"\ufffd"}"#);
    }

    #[test]
    fn a_line_that_is_no_message_is_refused_by_the_right_code() {
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
    fn an_error_text_quotes_no_value() {
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
