//! `threadway watch`: follows a thread in the terminal, through a gateway.
//!
//! It is a client: the other side of the AG-UI wire, and shares no understanding of it with the
//! gateway. What a person reads is made by the printer, which is pure.

mod asked;
mod event;
mod print;
mod state;
mod transport;

use std::io;
use std::time::Duration;

use eventsource_client::{Client, ClientBuilder, ReconnectOptions, SSE};
use futures_util::{FutureExt, StreamExt};
use http::{HeaderMap, StatusCode};
use tokio::io::{AsyncWrite, AsyncWriteExt};

pub use asked::{MAX_TIMEOUT, NotHeaders, duration, headers};
pub use print::MAX_KEPT_BYTES;
pub use transport::SILENCE_TIMEOUT;

use crate::upstream::{BaseUrl, MAX_DETAIL_CHARS};
use event::{Event, Outcome};
use print::Printer;
use threadway_translate::json::{self, Members};
use transport::{Transport, last_cause};

/// The gateway that is meant if none is named: one on this machine, as it listens by default.
pub const DEFAULT_GATEWAY: &str = "http://127.0.0.1:8484";

/// The pause before the first attempt to reconnect, of which half is random. Each next one is
/// twice as long, until a connection has held for a minute.
pub const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// The longest pause before an attempt to reconnect.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// How long the gateway may take to list its agents, or to explain a refusal.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The largest list of agents, or explanation of a refusal, that is read.
const MAX_ANSWER_BYTES: usize = 1024 * 1024;

/// How much is printed at once of what has come already.
const BATCH_BYTES: usize = 64 * 1024;

/// What is to be followed, and how it is shown.
#[derive(Clone, Debug)]
pub struct Watch {
    /// Where the gateway is.
    pub gateway: BaseUrl,
    /// The agent by whose server the thread is read; the first one if none is named.
    pub agent: Option<String>,
    /// The thread.
    pub thread_id: String,
    /// What each request says beside, such as credentials.
    pub headers: HeaderMap,
    /// Until when it is followed.
    pub until: Until,
    /// How it is shown.
    pub format: Format,
}

/// Until when a thread is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Until somebody stops it.
    Stopped,
    /// Until what is there was shown, or the run that is under way has ended.
    Ended,
}

/// How events are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// As text for a person.
    Text {
        /// Whether the terminal shows colours.
        has_colours: bool,
    },
    /// As they came, one on each line.
    Json,
}

/// Why a thread is not followed any more.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system's certificates or TLS are out of reach.
    #[error("the HTTP client could not be set up: {0}")]
    Setup(String),
    /// No connection could be made, or it broke before the stream began.
    #[error("the gateway at {gateway} cannot be reached: {reason}")]
    Unreachable {
        /// Where it should be.
        gateway: BaseUrl,
        /// What the system says.
        reason: String,
    },
    /// The gateway refused.
    #[error("the gateway answered {status}{}", said(detail))]
    Refused {
        /// The HTTP status.
        status: u16,
        /// Its explanation; may be empty.
        detail: String,
    },
    /// What answers is no gateway.
    #[error("{gateway} is no threadway gateway: {reason}")]
    NotAGateway {
        /// What was asked.
        gateway: BaseUrl,
        /// What it does that a gateway does not.
        reason: &'static str,
    },
    /// There is nobody to ask for the thread.
    #[error("the gateway has no agents; `threadway check` tells more")]
    NoAgents,
    /// The stream cannot be asked for.
    #[error("the stream cannot be asked for: {0}")]
    Request(String),
    /// The thread has nothing to show, and nothing is waited for.
    #[error("nothing is known of the thread {0}: it is not there, or is not shown to you")]
    NothingKnown(String),
    /// What is told cannot be written.
    #[error("stdout: {0}")]
    Output(#[from] io::Error),
}

/// What events become.
enum Sink {
    Text(Box<Printer>),
    Json,
}

/// Follows a thread until the gateway refuses, or nobody reads `stdout` any more.
///
/// `say` tells a person what became of the connection.
pub async fn watch(
    watch: &Watch,
    mut stdout: impl AsyncWrite + Unpin,
    say: impl Fn(&str),
) -> Result<(), Error> {
    match follow(watch, &mut stdout, &say).await {
        // Who reads has seen enough.
        Err(Error::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        followed => followed,
    }
}

async fn follow(
    watch: &Watch,
    stdout: &mut (impl AsyncWrite + Unpin),
    say: &impl Fn(&str),
) -> Result<(), Error> {
    let Watch { gateway, agent, thread_id, headers, until, format } = watch;
    let has_headers = !headers.is_empty();
    let transport =
        Transport::new(headers.clone()).map_err(|error| Error::Setup(last_cause(&error)))?;
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
    // Credentials are for the gateway that was named, and for no place that it names.
    let client = if has_headers { client.redirect_limit(0) } else { client };
    let client = client.build_with_transport(transport);

    let mut stream = client.stream();
    let mut sink = Sink::new(*format);
    let mut out = String::new();
    // Whether there is a connection; `None` before the first.
    let mut is_connected = None;
    let mut first_run = FirstRun::default();
    while let Some(first) = stream.next().await {
        // What has come already is printed with it.
        let mut next = Some(first);
        while let Some(item) = next {
            match item {
                Ok(SSE::Connected(connection)) => {
                    let response = connection.response();
                    if response.status() == StatusCode::NO_CONTENT.as_u16() {
                        // A client of event streams is told so not to come back.
                        return Ok(());
                    }
                    if !is_event_stream(response) {
                        let reason = "it does not answer with an event stream";
                        return Err(Error::NotAGateway { gateway: gateway.clone(), reason });
                    }
                    if is_connected == Some(false) {
                        say("connected again");
                    }
                    is_connected = Some(true);
                }
                Ok(SSE::Event(event)) => {
                    let event = sink.take(&event.data, &mut out);
                    if event.is_some_and(|event| first_run.is_nothing(&event)) {
                        flush(stdout, &mut out).await?;
                        match until {
                            Until::Ended => return Err(Error::NothingKnown(thread_id.clone())),
                            Until::Stopped => say(&format!(
                                "nothing is known of the thread {thread_id} yet; waiting for its \
                                 first run (ctrl-c ends this)"
                            )),
                        }
                    }
                }
                Ok(SSE::Comment(_)) => {}
                Err(error) => {
                    sink.pause(&mut out);
                    flush(stdout, &mut out).await?;
                    if *until == Until::Ended && first_run.is_over {
                        return Ok(());
                    }
                    let reason = judge(error, gateway, is_connected.is_none()).await?;
                    if is_connected == Some(true) {
                        say(&format!(
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

async fn flush(stdout: &mut (impl AsyncWrite + Unpin), out: &mut String) -> io::Result<()> {
    if !out.is_empty() {
        stdout.write_all(out.as_bytes()).await?;
        stdout.flush().await?;
        out.clear();
    }
    Ok(())
}

/// What an error of the stream means: why the connection was lost, or that there is no use in
/// another attempt.
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
        Lost::InvalidLine(_) | Lost::InvalidEvent => "it sent what is no event stream".to_owned(),
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

/// The first agent that the gateway names: any agent of a server can read its threads.
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

/// Where a thread's events are. The names come from outside, and must not leave their places.
fn events_url(gateway: &BaseUrl, agent: &str, thread_id: &str, until: Until) -> String {
    let [agent, thread_id] = [agent, thread_id].map(segment);
    let query = match until {
        Until::Stopped => "?follow=thread",
        Until::Ended => "",
    };
    format!("{gateway}/agui/agent/{agent}/threads/{thread_id}/events{query}")
}

/// Escapes all but what has no meaning in a URL.
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

/// Whether a text can stand in a path: these would be taken for a way through it.
pub fn is_segment(text: &str) -> bool {
    !matches!(text, "" | "." | "..")
}

/// What a refusal says of itself.
async fn explanation(body: impl futures_util::Stream<Item = bytes::Bytes> + Unpin) -> String {
    let body = read(body).await;
    let members: Members<'_> = serde_json::from_str(&body).unwrap_or_default();
    let message = members.string("message").unwrap_or_default();
    message.chars().take(MAX_DETAIL_CHARS).collect()
}

/// A body as text, as far as it comes in time and within the limit.
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
    // Half an answer tells something too.
    let _ = tokio::time::timeout(ANSWER_TIMEOUT, whole).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

fn said(detail: &str) -> String {
    if detail.is_empty() { String::new() } else { format!(": {detail}") }
}

/// What the stream has told before the end of its first run.
#[derive(Debug, Default)]
struct FirstRun {
    has_content: bool,
    is_over: bool,
}

// === impl FirstRun ===

impl FirstRun {
    /// Takes the next event. Whether it ends the first run, and there was nothing in it: so the
    /// gateway shows a thread that is not there.
    fn is_nothing(&mut self, event: &Event) -> bool {
        if self.is_over {
            return false;
        }
        self.is_over = matches!(event, Event::RunFinished { .. } | Event::RunError(_));
        let is_plain_end =
            matches!(event, Event::RunFinished { outcome: Outcome::Success, error: None, .. });
        let is_empty = if let Event::Messages(messages) = event {
            messages.is_empty()
        } else if let Event::State(state) = event {
            state.get() == "{}"
        } else {
            is_plain_end || matches!(event, Event::RunStarted { .. })
        };
        self.has_content |= !is_empty;
        is_plain_end && !self.has_content
    }
}

// === impl Sink ===

impl Sink {
    fn new(format: Format) -> Self {
        match format {
            Format::Text { has_colours } => Self::Text(Box::new(Printer::new(has_colours))),
            Format::Json => Self::Json,
        }
    }

    /// Shows an event, and returns it; `None` for what is none.
    fn take(&mut self, data: &str, out: &mut String) -> Option<Event> {
        let Some(event) = Event::read(data) else {
            tracing::warn!(bytes = data.len(), "what is no AG-UI event was passed over");
            return None;
        };
        match self {
            Self::Text(printer) => printer.print(&event, out),
            Self::Json => {
                // A line feed in JSON is white space.
                out.extend(data.lines());
                out.push('\n');
            }
        }
        Some(event)
    }

    fn pause(&mut self, out: &mut String) {
        match self {
            Self::Text(printer) => printer.pause(out),
            Self::Json => {}
        }
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
        let mut sink = Sink::new(Format::Json);
        let mut out = String::new();
        for data in ["{\"type\":\n \"NEW\",\"x\":1.10}", "garbage", "[1]", "{\"type\":\"RAW\"}"] {
            sink.take(data, &mut out);
        }
        assert_eq!(out, "{\"type\": \"NEW\",\"x\":1.10}\n{\"type\":\"RAW\"}\n");
    }
}
