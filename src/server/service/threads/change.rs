//! Names, archives and deletes a thread.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::{no_agent, permitted};
use crate::server::gateway::RequestContext;
use crate::server::observe::RunIds;
use crate::server::reject::Reject;
use crate::server::service::bool_json;
use crate::threads::{Change, Thread};
use threadway_translate::json::{self, Json, Members, ObjectWriter};

/// The longest name of a thread, in characters.
pub const MAX_NAME_CHARS: usize = 1_000;

/// The body of a request that changes a thread.
struct ChangeBody<'a> {
    agent: Cow<'a, str>,
    members: Members<'a>,
}

pub(in crate::server) async fn change(
    context: &RequestContext,
    client_thread: &str,
    body: &[u8],
) -> Result<(Json, RunIds), Reject> {
    let body = ChangeBody::parse(body)?;
    let name = match body.members.get("name") {
        None => None,
        Some(name) if name.get() == "null" => Some(None),
        Some(name) => {
            let name = json::string(name).filter(|name| name.chars().count() <= MAX_NAME_CHARS);
            let wrong = || {
                Reject::invalid(format!(
                    "`name` is not a text of at most {MAX_NAME_CHARS} characters, or null"
                ))
            };
            Some(Some(name.ok_or_else(wrong)?.into_owned()))
        }
    };
    let is_archived = match body.members.get("archived").map(RawValue::get) {
        None => None,
        Some("true") => Some(true),
        Some("false") => Some(false),
        Some(_) => return Err(Reject::invalid("`archived` is not true or false")),
    };
    let change = Change { name, is_archived };
    if change == Change::default() {
        return Err(Reject::invalid("nothing is to be changed; send `name` or `archived`"));
    }
    let thread = body.thread(context, client_thread).await?;
    apply(context, &thread, &change).await?;
    let mut answer = ObjectWriter::new().string("threadId", client_thread);
    if let Some(name) = &change.name {
        answer = match name {
            Some(name) => answer.string("name", name),
            None => answer.raw("name", "null"),
        };
    }
    if let Some(is_archived) = change.is_archived {
        answer = answer.raw("archived", bool_json(is_archived));
    }
    Ok((answer.finish(), RunIds::of(&thread)))
}

pub(in crate::server) async fn archive(
    context: &RequestContext,
    client_thread: &str,
    body: &[u8],
) -> Result<(Json, RunIds), Reject> {
    let thread = ChangeBody::parse(body)?.thread(context, client_thread).await?;
    apply(context, &thread, &Change { name: None, is_archived: Some(true) }).await?;
    let answer = ObjectWriter::new().string("threadId", client_thread).raw("archived", "true");
    Ok((answer.finish(), RunIds::of(&thread)))
}

async fn apply(context: &RequestContext, thread: &Thread, change: &Change) -> Result<(), Reject> {
    match thread.change(change).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(Reject::unknown_thread()),
        Err(refusal) => Err(context.refuse(&refusal, thread)),
    }
}

pub(in crate::server) async fn delete(
    context: &RequestContext,
    client_thread: &str,
    body: &[u8],
) -> Result<(Json, RunIds), Reject> {
    let body = ChangeBody::parse(body)?;
    let thread = body.thread(context, client_thread).await?;
    match thread.delete().await {
        Ok(true) => {}
        Ok(false) => return Err(Reject::unknown_thread()),
        Err(refusal) => return Err(context.refuse(&refusal, &thread)),
    }
    tracing::info!(agent = &*body.agent, thread_id = thread.id(), "thread deleted");
    let answer = ObjectWriter::new().string("threadId", client_thread).raw("deleted", "true");
    Ok((answer.finish(), RunIds::of(&thread)))
}

// === impl ChangeBody ===

impl<'a> ChangeBody<'a> {
    fn parse(body: &'a [u8]) -> Result<Self, Reject> {
        let value: &RawValue = serde_json::from_slice(body)
            .map_err(|error| Reject::invalid(format!("the body is not JSON: {error}")))?;
        let members = json::members(value).unwrap_or_default();
        let agent = members.string("agentId").ok_or_else(no_agent)?;
        Ok(Self { agent, members })
    }

    /// The thread, if the caller may change it.
    async fn thread(
        &self,
        context: &RequestContext,
        client_thread: &str,
    ) -> Result<Thread, Reject> {
        let agent = permitted(context, &self.agent).await?;
        context.thread(agent, client_thread)
    }
}
