//! A client that is cut and reconnects: its content, over any number of connections.

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use crate::client::{Fault, Target, post, send, thread_id};
use crate::lines::Lines;
use crate::text::Hearing;

/// A conversation with one answer, as an AG-UI client holds it.
#[derive(Clone)]
pub(crate) struct Held {
    thread: u64,
    answer: Hearing,
    /// Whether the answer is being streamed.
    is_open: bool,
    last_id: Option<String>,
    is_over: bool,
    connection: Connection,
}

/// The state of the current connection.
#[derive(Clone, Default)]
struct Connection {
    lines: Lines,
    /// The data of the frame whose end has not arrived.
    data: String,
    id: Option<String>,
    begun: Option<Begun>,
    bytes: u64,
}

/// How a response begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    /// The response resumes after the event that the client named.
    Behind,
    /// The response starts over, with the run's start and a snapshot.
    Over,
}

/// How a client sends its last event id.
#[derive(Clone, Copy)]
pub(crate) enum Asking {
    /// As an `EventSource` does.
    Header,
    /// As a page does that was reloaded.
    Query,
    /// As a client does that cannot set headers.
    Connect,
}

/// How far one connection has brought a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    /// To the target.
    There,
    /// To the cut.
    Cut,
    /// To the end of the response, although the run has not ended.
    End,
}

/// The members of an event that are read.
#[derive(Deserialize)]
struct Event<'a> {
    r#type: &'a str,
    #[serde(default)]
    delta: Option<Value>,
    #[serde(default)]
    messages: Vec<Message>,
}

/// The members of a snapshot's message that are read.
#[derive(Deserialize)]
struct Message {
    role: String,
    content: Option<String>,
}

// === impl Held ===

impl Held {
    /// A client of a thread that holds nothing yet.
    pub(crate) fn new(thread: u64) -> Self {
        Self {
            thread,
            answer: Hearing::default(),
            is_open: false,
            last_id: None,
            is_over: false,
            connection: Connection::default(),
        }
    }

    /// The id after which the client could resume.
    pub(crate) fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    /// How many tokens of the answer the client holds.
    pub(crate) fn tokens(&self) -> u64 {
        self.answer.tokens()
    }

    /// Whether the client has the end of the run.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// How the current response began, if anything arrived.
    pub(crate) fn begun(&self) -> Option<Begun> {
        self.connection.begun
    }

    /// How many bytes of the current response arrived.
    pub(crate) fn bytes(&self) -> u64 {
        self.connection.bytes
    }

    /// Reconnects after the last event that the client has, or after another id.
    pub(crate) async fn come_back(
        &self,
        target: Target,
        asking: Asking,
        last_id: Option<&str>,
    ) -> Result<Response<Incoming>, Fault> {
        let thread_id = thread_id(self.thread);
        let events = format!("/agui/agent/agent/threads/{thread_id}/events");
        let none = String::new;
        match (asking, last_id) {
            (Asking::Header, Some(id)) => {
                let request = Request::get(events).header("last-event-id", id);
                send(target.address, request, none()).await
            }
            (Asking::Query, Some(id)) => {
                let request = Request::get(format!("{events}?last_event_id={id}"));
                send(target.address, request, none()).await
            }
            (Asking::Header | Asking::Query, None) => {
                send(target.address, Request::get(events), none()).await
            }
            (Asking::Connect, id) => {
                let input = json!({
                    "protocolVersion": "1.0", "threadId": thread_id, "runId": "again",
                    "messages": [], "state": {}, "tools": [], "context": [],
                    "forwardedProps": id.map_or(json!({}), |id| json!({ "lastEventId": id })),
                });
                post(target.address, "/agui/agent/agent/connect", input.to_string()).await
            }
        }
    }

    /// Reads a response until the client has reached the target, or until this time.
    pub(crate) async fn read(
        &mut self,
        response: Response<Incoming>,
        cut: Instant,
        is_there: impl FnMut(&Self) -> bool,
    ) -> Result<Reached, Fault> {
        let was_cut = self.last_id.clone();
        let read = self.read_to(response, cut, is_there).await;
        read.map_err(|fault| format!("{fault}; it had come back with {was_cut:?}").into())
    }

    async fn read_to(
        &mut self,
        mut response: Response<Incoming>,
        cut: Instant,
        mut is_there: impl FnMut(&Self) -> bool,
    ) -> Result<Reached, Fault> {
        self.connection = Connection::default();
        loop {
            let frame = match timeout_at(cut, response.body_mut().frame()).await {
                Err(_) => return Ok(Reached::Cut),
                Ok(None) => return Ok(Reached::End),
                Ok(Some(frame)) => frame?,
            };
            if let Ok(bytes) = frame.into_data()
                && self.bytes_came(&bytes, &mut is_there)?
            {
                return Ok(Reached::There);
            }
        }
    }

    /// Checks that the client has the whole run, and each token once; returns their number.
    pub(crate) fn finish(self) -> Result<u64, Fault> {
        let tokens = self.answer.tokens();
        self.answer.finish(None)?;
        Ok(tokens)
    }

    fn bytes_came(
        &mut self,
        bytes: &Bytes,
        is_there: &mut impl FnMut(&Self) -> bool,
    ) -> Result<bool, Fault> {
        let mut bytes = &**bytes;
        while let Some(line) = self.connection.lines.next(&mut bytes) {
            self.connection.bytes += line.len() as u64;
            if self.line(std::str::from_utf8(&line)?.trim_end_matches('\n'))? && is_there(self) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the line has ended an event.
    fn line(&mut self, line: &str) -> Result<bool, Fault> {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => value.clone_into(&mut self.connection.data),
            "id" => self.connection.id = Some(value.to_owned()),
            "" if line.is_empty() => {
                let (data, id) = (
                    std::mem::take(&mut self.connection.data),
                    std::mem::take(&mut self.connection.id),
                );
                if data.is_empty() {
                    return Ok(false);
                }
                self.event(&data)?;
                if let Some(id) = id {
                    self.last_id = Some(id).filter(|id| !id.is_empty());
                }
                return Ok(true);
            }
            // `retry`, or a comment.
            _ => {}
        }
        Ok(false)
    }

    fn event(&mut self, data: &str) -> Result<(), Fault> {
        let event: Event<'_> = serde_json::from_str(data)?;
        let is_start = event.r#type == "RUN_STARTED";
        match (self.connection.begun, is_start) {
            (None, true) => {
                self.connection.begun = Some(Begun::Over);
                self.is_open = false;
            }
            (None, false) if self.last_id.is_some() => self.connection.begun = Some(Begun::Behind),
            (Some(_), false) if !self.is_over => {}
            _ => return Err(format!("in the wrong place came {data}").into()),
        }
        match (event.r#type, self.is_open) {
            ("TEXT_MESSAGE_START", false) => self.is_open = true,
            ("TEXT_MESSAGE_END", true) => self.is_open = false,
            ("TEXT_MESSAGE_CONTENT", true) => {
                let delta = event.delta.as_ref().and_then(Value::as_str);
                self.answer.hear(delta.ok_or("a text without delta")?, 0)?;
            }
            ("MESSAGES_SNAPSHOT", _) => {
                let mut said = event.messages.iter().filter(|message| message.role == "assistant");
                let text = said.next_back().and_then(|message| message.content.as_deref());
                self.answer.hear_anew(text.unwrap_or_default())?;
            }
            ("RUN_FINISHED", false) if data.contains(r#""outcome":{"type":"success""#) => {
                self.is_over = true;
            }
            (
                "RUN_STARTED" | "STATE_SNAPSHOT" | "STATE_DELTA" | "STEP_STARTED" | "STEP_FINISHED",
                _,
            ) => {}
            (_, is_open) => return Err(format!("with the text open {is_open}: {data}").into()),
        }
        Ok(())
    }
}
