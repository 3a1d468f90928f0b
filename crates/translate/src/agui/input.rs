//! `RunAgentInput`: the request that starts a run.
//!
//! Null counts as absent. Unknown members, roles and parts are ignored. A known member must have
//! the form that the specification says. A thread's and a run's id must not be blank: all clients
//! with such an id would share one thread. A blank `parentRunId` names no run, and counts as absent.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::value::RawValue;

use super::client::{Client, RunId, Version};
use super::{copilotkit, message};
use crate::json::{self, Json, ObjectWriter};
use crate::run;

/// A request to run an agent.
#[derive(Debug)]
pub struct Input {
    /// The client's id of the thread.
    pub thread_id: String,
    /// The client's id of the run.
    pub run_id: String,
    /// The run that the client names as this run's parent.
    pub parent_run_id: Option<String>,
    /// The generation of the client.
    pub version: Version,
    /// The state that the client holds.
    pub state: Option<Json>,
    /// The client's conversation, without activities.
    pub messages: Vec<Arc<run::Message>>,
    /// The tools that the client runs, in LangChain's form.
    pub tools: Vec<Json>,
    /// What the application says about itself, each an object `{description, value}`.
    pub context: Vec<Json>,
    /// Answers to interrupts.
    pub resume: Vec<Resume>,
    /// `forwardedProps`: what the application passes to the agent.
    pub forwarded_props: Option<Json>,
    /// The size of the request's body in bytes.
    pub bytes: usize,
}

/// An answer to an interrupt.
#[derive(Clone, Debug)]
pub struct Resume {
    /// The id of the interrupt, or of one of its actions.
    pub interrupt_id: String,
    /// Whether the interrupt was answered.
    pub status: ResumeStatus,
    /// The answer itself.
    pub payload: Option<Json>,
}

/// Whether an interrupt was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResumeStatus {
    /// It was answered. A refusal is an answer.
    Resolved,
    /// It was abandoned.
    Cancelled,
}

/// Why a request cannot be read. Each message names the member and what it must be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// The body is not JSON.
    #[error("the body is not JSON: {0}")]
    NotJson(String),
    /// The body is not a JSON object.
    #[error("the body is not a JSON object; send a RunAgentInput")]
    NotAnObject,
    /// A required member is missing.
    #[error("`{0}` is missing; a RunAgentInput has one")]
    Missing(&'static str),
    /// A member has the wrong form.
    #[error("`{member}` is not {expected}")]
    Malformed {
        /// The path of the member.
        member: String,
        /// The form that it must have.
        expected: &'static str,
    },
}

// === impl Input ===

impl Input {
    /// Reads a request's body. Text that no server stores is mended: see [`json::mend`].
    pub fn parse(body: &[u8]) -> Result<Self, InputError> {
        let body = json::mend_bytes(body);
        let value: &RawValue =
            serde_json::from_slice(&body).map_err(|e| InputError::NotJson(e.to_string()))?;
        let members = json::members(value).ok_or(InputError::NotAnObject)?;
        let required = |name| match optional_string(&members, name)? {
            Some(value) if is_blank(&value) => {
                Err(malformed(name, "an id: it is blank; send the id of a thread or a run"))
            }
            Some(value) => Ok(value),
            None => Err(InputError::Missing(name)),
        };
        let version = match present(&members, "protocolVersion") {
            Some(_) => Version::V1,
            None => Version::Legacy,
        };
        Ok(Self {
            thread_id: required("threadId")?,
            run_id: required("runId")?,
            parent_run_id: optional_string(&members, "parentRunId")?.filter(|id| !is_blank(id)),
            version,
            state: present(&members, "state").map(Json::from),
            messages: Self::messages(&members)?,
            tools: Self::tools(&members)?,
            context: Self::context(&members)?,
            resume: Self::resume(&members)?,
            forwarded_props: present(&members, "forwardedProps").map(Json::from),
            bytes: body.len(),
        })
    }

    /// The client that starts the run.
    pub fn client(&self) -> Client {
        self.client_of(RunId::Own(self.run_id.clone()))
    }

    /// The client that watches the runs of others.
    pub fn viewer(&self) -> Client {
        let run_id = RunId::Watched(self.run_id.clone());
        Client { parent_run_id: None, ..self.client_of(run_id) }
    }

    fn client_of(&self, run_id: RunId) -> Client {
        Client {
            thread_id: self.thread_id.clone(),
            run_id,
            parent_run_id: self.parent_run_id.clone(),
            version: self.version,
        }
    }

    /// `forwardedProps.lastEventId`: the id of the last event that the client has received. It
    /// takes the place of the header for clients that cannot send one.
    pub fn last_event_id(&self) -> Option<Cow<'_, str>> {
        json::members(self.forwarded_props.as_deref()?)?.string("lastEventId")
    }

    /// Whether the request answers an interrupt.
    pub fn is_answer(&self) -> bool {
        !self.resume.is_empty() || self.legacy_resume().is_some()
    }

    /// The answer in the form of CopilotKit's older hook.
    pub(super) fn legacy_resume(&self) -> Option<&RawValue> {
        copilotkit::resume(self.forwarded_props.as_deref()?)
    }

    /// The client's conversation, shared.
    pub fn held(&self) -> Vec<Arc<run::Message>> {
        self.messages.clone()
    }

    fn messages(members: &json::Members<'_>) -> Result<Vec<Arc<run::Message>>, InputError> {
        let list = present(members, "messages").ok_or(InputError::Missing("messages"))?;
        let items = json::items(list).ok_or_else(|| malformed("messages", "an array"))?;
        let mut messages = Vec::with_capacity(items.len());
        for (at, item) in items.into_iter().enumerate() {
            let path = || format!("messages[{at}]");
            let members = json::members(item)
                .ok_or_else(|| malformed(path(), "an object with id and role"))?;
            if members.string("id").is_none() || members.string("role").is_none() {
                return Err(malformed(path(), "a message with a string `id` and a string `role`"));
            }
            messages.extend(message::read(&members).map(Arc::new));
        }
        Ok(messages)
    }

    /// Reads tools and writes them in OpenAI's form, which LangChain binds to any model. The name
    /// is also a member of the outer object, as in the official adapters.
    fn tools(members: &json::Members<'_>) -> Result<Vec<Json>, InputError> {
        let Some(list) = present(members, "tools") else { return Ok(Vec::new()) };
        let items = json::items(list).ok_or_else(|| malformed("tools", "an array"))?;
        let read = |(at, item): (usize, &RawValue)| {
            let wrong = || malformed(format!("tools[{at}]"), "a tool with a string `name`");
            let members = json::members(item).ok_or_else(wrong)?;
            let name = members.text("name").ok_or_else(wrong)?;
            let mut function = ObjectWriter::new()
                .text("name", &name)
                .optional("description", members.text("description").as_ref());
            if let Some(parameters) = present(&members, "parameters") {
                function = function.raw("parameters", parameters.get());
            }
            let function = function.finish();
            Ok(ObjectWriter::new()
                .string("type", "function")
                .text("name", &name)
                .raw("function", function.get())
                .finish())
        };
        items.into_iter().enumerate().map(read).collect()
    }

    fn context(members: &json::Members<'_>) -> Result<Vec<Json>, InputError> {
        let Some(list) = present(members, "context") else { return Ok(Vec::new()) };
        let items = json::items(list).ok_or_else(|| malformed("context", "an array"))?;
        let read = |(at, item): (usize, &RawValue)| {
            let wrong = || malformed(format!("context[{at}]"), "an object");
            json::members(item).map(|_| Json::from(item)).ok_or_else(wrong)
        };
        items.into_iter().enumerate().map(read).collect()
    }

    fn resume(members: &json::Members<'_>) -> Result<Vec<Resume>, InputError> {
        let Some(list) = present(members, "resume") else { return Ok(Vec::new()) };
        let items = json::items(list).ok_or_else(|| malformed("resume", "an array"))?;
        let read = |(at, item): (usize, &RawValue)| {
            let wrong = |expected| malformed(format!("resume[{at}]"), expected);
            let members = json::members(item).ok_or_else(|| wrong("an object"))?;
            let interrupt_id = members
                .string("interruptId")
                .ok_or_else(|| wrong("an entry with a string `interruptId`"))?;
            if interrupt_id.is_empty() {
                return Err(wrong("an entry with a non-empty `interruptId`"));
            }
            let status = match members.string("status").as_deref() {
                Some("resolved") => ResumeStatus::Resolved,
                Some("cancelled") => ResumeStatus::Cancelled,
                _ => return Err(wrong("an entry with `status` \"resolved\" or \"cancelled\"")),
            };
            let payload = present(&members, "payload").map(Json::from);
            Ok(Resume { interrupt_id: interrupt_id.into_owned(), status, payload })
        };
        items.into_iter().enumerate().map(read).collect()
    }
}

/// Whether an id names nothing: it is empty, or white space only.
fn is_blank(id: &str) -> bool {
    id.trim().is_empty()
}

/// A member that is not null.
fn present<'a>(members: &json::Members<'a>, name: &str) -> Option<&'a RawValue> {
    members.get(name).filter(|value| value.get() != "null")
}

fn optional_string(
    members: &json::Members<'_>,
    name: &'static str,
) -> Result<Option<String>, InputError> {
    match present(members, name) {
        None => Ok(None),
        Some(value) => match json::string(value) {
            Some(string) => Ok(Some(string.into_owned())),
            None => Err(malformed(name, "a string")),
        },
    }
}

fn malformed(member: impl Into<String>, expected: &'static str) -> InputError {
    InputError::Malformed { member: member.into(), expected }
}
