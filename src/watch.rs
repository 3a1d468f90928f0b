//! `threadway watch`: follows a thread in the terminal, through a gateway.
//!
//! This is an AG-UI client, so it shares no types of the protocol with the gateway.
//!
//! - `args`: headers and times from the command line.
//! - `transport`: HTTP for the event stream's client.
//! - `event`: AG-UI events as this client reads them.
//! - `print`: the text that a person reads. It does no IO.

mod args;
mod event;
mod print;
mod transport;

use std::io;
use std::time::Duration;

use eventsource_client::{Client, ClientBuilder, ReconnectOptions, SSE};
use futures_util::{FutureExt, StreamExt};
use http::{HeaderMap, StatusCode};
use tokio::io::{AsyncWrite, AsyncWriteExt};

pub use args::{MAX_TIMEOUT, NotHeaders, duration, headers};

use crate::terminal;
use crate::upstream::{BaseUrl, MAX_DETAIL_CHARS};
use event::{Event, Outcome};
use print::Printer;
use threadway_translate::json::{self, Members};
use transport::{Transport, last_cause};

/// The default gateway: this machine, at the default address of `serve`.
pub const DEFAULT_GATEWAY: &str = "http://127.0.0.1:8484";

/// The pause before the first attempt to reconnect; half of it is random. Each further pause is
/// twice as long, until a connection has lasted for a minute.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// The longest pause between attempts to reconnect.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// How long the gateway may take to list its agents, or to explain a refusal.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The largest agent list or refusal that is read.
const MAX_ANSWER_BYTES: usize = 1024 * 1024;

/// How many bytes of available output are written at once.
const BATCH_BYTES: usize = 64 * 1024;

/// What to follow, and how to print it.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    /// The gateway's URL.
    pub gateway: BaseUrl,
    /// An agent of the thread's server; `None` for the first that the gateway lists.
    pub agent: Option<String>,
    /// The thread's id.
    pub thread_id: String,
    /// Headers to send with each request, such as credentials.
    pub headers: HeaderMap,
    /// When to stop.
    pub until: Until,
    /// How to print events.
    pub format: Format,
}

/// When to stop following a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// When the process is stopped.
    Stopped,
    /// When everything in the thread was printed and its live run, if any, has ended.
    Ended,
}

/// How events are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// As text for a person: messages, tool calls and their results, questions, ends of runs.
    Text,
    /// As JSON, one event per line.
    Json,
}

/// Why following a thread ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system's certificates could not be read, or TLS could not be set up.
    #[error("the HTTP client could not be set up: {0}")]
    Setup(String),
    /// The connection failed before the stream began.
    #[error("the gateway at {gateway} cannot be reached: {reason}")]
    Unreachable {
        /// The gateway's URL.
        gateway: BaseUrl,
        /// The system's error.
        reason: String,
    },
    /// The gateway refused the request.
    #[error("the gateway answered {status}{}", suffix(detail))]
    Refused {
        /// The HTTP status.
        status: u16,
        /// Its message; may be empty.
        detail: String,
    },
    /// The server is not a gateway.
    #[error("{gateway} is not a threadway gateway: {reason}")]
    NotAGateway {
        /// The URL of the server.
        gateway: BaseUrl,
        /// What is wrong with its answer.
        reason: &'static str,
    },
    /// The gateway lists no agent through which the thread could be read.
    #[error("the gateway has no agents; `threadway check` shows why")]
    NoAgents,
    /// The request for the stream is invalid.
    #[error("the request for the stream failed: {0}")]
    Request(String),
    /// The thread does not exist or may not be seen, and `--once` does not wait.
    #[error("the thread {0} is unknown: it does not exist, or you may not see it")]
    NothingKnown(String),
    /// Writing to stdout failed.
    #[error("stdout: {0}")]
    Output(#[from] io::Error),
}

/// Follows a thread until the gateway refuses or the reader of `stdout` closes it.
///
/// `report` gets a line whenever the connection breaks or is restored.
pub async fn watch(
    watch: &WatchOptions,
    mut stdout: impl AsyncWrite + Unpin,
    report: impl Fn(&str),
) -> Result<(), Error> {
    match follow(watch, &mut stdout, &report).await {
        // The reader of the pipe has closed it, as `head` does.
        Err(Error::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        followed => followed,
    }
}

async fn follow(
    watch: &WatchOptions,
    stdout: &mut (impl AsyncWrite + Unpin),
    report: &impl Fn(&str),
) -> Result<(), Error> {
    let WatchOptions { gateway, agent, thread_id, headers, until, format } = watch;
    let has_headers = !headers.is_empty();
    let transport =
        Transport::new(headers.clone()).map_err(|error| Error::Setup(last_cause(&*error)))?;
    let first = match agent {
        Some(_) => None,
        None => Some(first_agent(gateway, &transport).await?),
    };
    let agent = agent.as_ref().or(first.as_ref()).ok_or(Error::NoAgents)?;
    let url = events_url(gateway, agent, thread_id, *until);
    let reconnect = ReconnectOptions::reconnect(true)
        .delay(FIRST_PAUSE)
        .delay_max(LONGEST_PAUSE)
        .backoff_factor(2)
        .build();
    let client = ClientBuilder::for_url(&url)
        .map_err(|error| Error::Request(error.to_string()))?
        .reconnect(reconnect);
    // Credentials must not follow a redirect to another server.
    let client = if has_headers { client.redirect_limit(0) } else { client };
    let client = client.build_with_transport(transport);

    let mut stream = client.stream();
    // Without a printer events are printed as JSON.
    let mut printer = (*format == Format::Text).then(Printer::default);
    let mut out = String::new();
    // Whether there is a connection; `None` before the first.
    let mut is_connected = None;
    let mut first_run = FirstRun::default();
    while let Some(first) = stream.next().await {
        // Events that have already arrived are printed with it.
        let mut next = Some(first);
        while let Some(item) = next {
            match item {
                Ok(SSE::Connected(connection)) => {
                    let response = connection.response();
                    if response.status() == StatusCode::NO_CONTENT.as_u16() {
                        // After a 204 a client of event streams must not reconnect.
                        return Ok(());
                    }
                    if !is_event_stream(response) {
                        let reason = "it does not answer with an event stream";
                        return Err(Error::NotAGateway { gateway: gateway.clone(), reason });
                    }
                    if is_connected == Some(false) {
                        report("reconnected");
                    }
                    is_connected = Some(true);
                }
                Ok(SSE::Event(event)) => {
                    let event = take(printer.as_mut(), &event.data, &mut out);
                    if event.is_some_and(|event| first_run.is_unknown_thread(&event)) {
                        flush(stdout, &mut out).await?;
                        match until {
                            Until::Ended => return Err(Error::NothingKnown(thread_id.clone())),
                            Until::Stopped => report(&format!(
                                "the thread {thread_id} is unknown so far; waiting for its first \
                                 run (ctrl-c exits)"
                            )),
                        }
                    }
                }
                Ok(SSE::Comment(_)) => {}
                Err(error) => {
                    if let Some(printer) = &mut printer {
                        printer.pause(&mut out);
                    }
                    flush(stdout, &mut out).await?;
                    if *until == Until::Ended && first_run.is_over {
                        return Ok(());
                    }
                    let reason = judge(error, gateway, is_connected.is_none()).await?;
                    if is_connected == Some(true) {
                        report(&format!(
                            "the connection to {gateway} was lost ({reason}); reconnecting"
                        ));
                    }
                    is_connected = Some(false);
                }
            }
            next =
                if out.len() < BATCH_BYTES { stream.next().now_or_never().flatten() } else { None };
        }
        flush(stdout, &mut out).await?;
    }
    Ok(())
}

/// Prints an event and returns it. `None` if the data is not an event.
fn take(printer: Option<&mut Printer>, data: &str, out: &mut String) -> Option<Event> {
    let Some(event) = Event::read(data) else {
        tracing::warn!(bytes = data.len(), "an event that is not AG-UI was ignored");
        return None;
    };
    if let Some(printer) = printer {
        printer.print(&event, out);
    } else {
        // A line feed between JSON tokens is white space.
        out.extend(data.lines().map(terminal::harmless_json));
        out.push('\n');
    }
    Some(event)
}

async fn flush(stdout: &mut (impl AsyncWrite + Unpin), out: &mut String) -> io::Result<()> {
    if !out.is_empty() {
        stdout.write_all(out.as_bytes()).await?;
        stdout.flush().await?;
        out.clear();
    }
    Ok(())
}

/// Why the connection was lost, as a reason to print. Fails if another attempt is useless.
async fn judge(
    error: eventsource_client::Error,
    gateway: &BaseUrl,
    is_first: bool,
) -> Result<String, Error> {
    use eventsource_client::Error as Lost;
    let reason = match error {
        Lost::UnexpectedResponse(response, body) => {
            let status = response.status();
            let is_passing = matches!(status, 408 | 429 | 500..);
            if is_first || !is_passing {
                let body = body.into_stream().filter_map(async |chunk| chunk.ok());
                let detail = explanation(Box::pin(body)).await;
                return Err(Error::Refused { status, detail });
            }
            format!("it answered {status}")
        }
        Lost::Transport(error) => last_cause(error.inner()),
        Lost::HttpStream(error) => last_cause(&*error),
        Lost::TimedOut => "it was silent for too long".to_owned(),
        Lost::Eof | Lost::UnexpectedEof => "the stream ended".to_owned(),
        Lost::InvalidLine(_) | Lost::InvalidEvent => "it did not send an event stream".to_owned(),
        Lost::InvalidParameter(error) | Lost::MalformedLocationHeader(error) => {
            return Err(Error::Request(last_cause(&*error)));
        }
        error @ Lost::MaxRedirectLimitReached(_) => {
            return Err(Error::Request(error.to_string()));
        }
    };
    if is_first {
        return Err(Error::Unreachable { gateway: gateway.clone(), reason });
    }
    Ok(reason)
}

fn is_event_stream(response: &eventsource_client::Response) -> bool {
    let content_type = response.get_header_value("content-type").ok().flatten().unwrap_or_default();
    content_type.trim_start().to_ascii_lowercase().starts_with("text/event-stream")
}

/// The first agent that the gateway lists. Any agent of a server can read its threads.
async fn first_agent(gateway: &BaseUrl, transport: &Transport) -> Result<String, Error> {
    let unreachable = |error: &reqwest::Error| Error::Unreachable {
        gateway: gateway.clone(),
        reason: last_cause(error),
    };
    let response = transport
        .get(&format!("{gateway}/agui/info"))
        .timeout(ANSWER_TIMEOUT)
        .send()
        .await
        .map_err(|error| unreachable(&error))?;
    let status = response.status();
    let body = http::Response::<reqwest::Body>::from(response).into_body();
    let body = http_body_util::BodyExt::into_data_stream(body);
    let body = body.filter_map(async |chunk| chunk.ok());
    if !status.is_success() {
        let detail = explanation(Box::pin(body)).await;
        return Err(Error::Refused { status: status.as_u16(), detail });
    }
    let body = read(Box::pin(body)).await;
    let info: Option<Members<'_>> = serde_json::from_str(&body).ok();
    let agents = info.and_then(|info| json::members(info.get("agents")?)).ok_or_else(|| {
        let reason = "its /agui/info does not list agents";
        Error::NotAGateway { gateway: gateway.clone(), reason }
    })?;
    agents.0.first().map(|(agent, _)| agent.to_string()).ok_or(Error::NoAgents)
}

/// The URL of a thread's events. Names are escaped, so that they stay one segment of the path.
fn events_url(gateway: &BaseUrl, agent: &str, thread_id: &str, until: Until) -> String {
    let [agent, thread_id] = [agent, thread_id].map(segment);
    let query = match until {
        Until::Stopped => "?follow=thread",
        Until::Ended => "",
    };
    format!("{gateway}/agui/agent/{agent}/threads/{thread_id}/events{query}")
}

/// Escapes everything except unreserved characters.
fn segment(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.extend(['%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
    escaped
}

fn digit(value: u8) -> char {
    char::from_digit(value.into(), 16).unwrap_or_default().to_ascii_uppercase()
}

/// Whether a text can be a path segment. The others would change the path.
pub fn is_segment(text: &str) -> bool {
    !matches!(text, "" | "." | "..")
}

/// The message of a refusal.
async fn explanation(body: impl futures_util::Stream<Item = bytes::Bytes> + Unpin) -> String {
    let body = read(body).await;
    let members: Members<'_> = serde_json::from_str(&body).unwrap_or_default();
    let message = members.string("message").unwrap_or_default();
    message.chars().take(MAX_DETAIL_CHARS).collect()
}

/// A body as text, up to the time and size limits.
async fn read(mut body: impl futures_util::Stream<Item = bytes::Bytes> + Unpin) -> String {
    let mut bytes = Vec::new();
    let whole = async {
        while let Some(chunk) = body.next().await {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > MAX_ANSWER_BYTES {
                break;
            }
        }
    };
    // Part of an answer is useful too.
    let _ = tokio::time::timeout(ANSWER_TIMEOUT, whole).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

fn suffix(detail: &str) -> String {
    if detail.is_empty() { String::new() } else { format!(": {detail}") }
}

/// What the stream has shown of its first run.
#[derive(Debug, Default)]
struct FirstRun {
    has_content: bool,
    is_over: bool,
}

// === impl FirstRun ===

impl FirstRun {
    /// Takes the next event. Returns whether it ends the first run and that run showed nothing,
    /// which is how the gateway shows an unknown thread.
    fn is_unknown_thread(&mut self, event: &Event) -> bool {
        if self.is_over {
            return false;
        }
        self.is_over = matches!(event, Event::RunFinished { .. } | Event::RunError(_));
        let is_plain_end =
            matches!(event, Event::RunFinished { outcome: Outcome::Success, error: None, .. });
        let is_empty = if let Event::Messages(messages) = event {
            messages.is_empty()
        } else {
            is_plain_end || matches!(event, Event::RunStarted { .. } | Event::NoState)
        };
        self.has_content |= !is_empty;
        is_plain_end && !self.has_content
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_place_in_the_path() {
        let gateway: BaseUrl = "http://h:1/a/".parse().unwrap();
        let url = |agent, thread| events_url(&gateway, agent, thread, Until::Stopped);
        assert_eq!(
            url("up:agent", "../x?y#z\n%2e"),
            "http://h:1/a/agui/agent/up%3Aagent/threads/..%2Fx%3Fy%23z%0A%252e/events?follow=thread"
        );
        assert_eq!(
            url("a", "größe ~1"),
            "http://h:1/a/agui/agent/a/threads/gr%C3%B6%C3%9Fe%20~1/events?follow=thread"
        );
        for (text, expected) in [("", false), (".", false), ("..", false), ("...", true)] {
            assert_eq!(is_segment(text), expected, "{text}");
        }
    }

    #[test]
    fn an_event_is_one_line_of_json_and_garbage_is_none() {
        let mut out = String::new();
        for data in
            ["{\"type\":\n \"NEW\",\"x\":1.10}", "garbage", "[1]", "{\"type\":\"RAW\u{9b}\"}"]
        {
            take(None, data, &mut out);
        }
        assert_eq!(out, "{\"type\": \"NEW\",\"x\":1.10}\n{\"type\":\"RAW\\u009b\"}\n");
    }
}
