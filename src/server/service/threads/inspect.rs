//! What a thread contains, as CopilotKit's inspector reads it: its messages, its state, its events.

use bytes::Bytes;
use serde_json::value::RawValue;

use super::permitted;
use crate::agents::Agent;
use crate::offload::offload;
use crate::server::gateway::RequestContext;
use crate::server::observe::RunIds;
use crate::server::reject::Reject;
use crate::server::request::thread_name::viewer;
use crate::server::service::held_json;
use crate::server::streams::encoder::Encoder;
use crate::server::streams::outgoing::Outgoing;
use crate::server::streams::wire::Wire;
use crate::threads::ThreadReader;
use crate::upstream::QueueClass;
use threadway_translate::agui::{Client, Projector};
use threadway_translate::json::{self, Json, Members, ObjectWriter};

/// A part of a thread that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum ThreadPart {
    Messages,
    Events,
    State,
}

/// The AG-UI events of an idle thread, one a line.
#[derive(Debug)]
pub(in crate::server) struct ThreadEvents(Bytes);

/// A part of a thread. Without the name of an agent, that of the agent that ran last.
pub(in crate::server) async fn inspect(
    context: &RequestContext,
    client_thread: &str,
    part: ThreadPart,
    named: Option<&str>,
) -> Result<(Bytes, RunIds), Reject> {
    let agent = match named {
        Some(name) => permitted(context, name).await?,
        None => last_agent(context, client_thread).await?,
    };
    let thread = context.thread(agent, client_thread)?;
    // The agent that ran last may have been deleted.
    let held = match named {
        Some(_) => Box::pin(thread.of_known_agent(thread.snapshot())).await,
        None => Box::pin(thread.snapshot()).await,
    };
    let held = held.map_err(|refusal| context.refuse_read(&refusal, &thread))?;
    let _held = context.conversion().await;
    let events = ThreadEvents::read(held.reader, viewer(client_thread)).await;
    let answer = events.read_with(|events| match part {
        ThreadPart::Messages => events.messages_json(),
        ThreadPart::Events => events.events_json(),
        ThreadPart::State => events.state_json(),
    });
    drop(events);
    Ok((held_json(context, &answer)?, RunIds::of(&thread)))
}

/// The agent that ran last on a thread, since CopilotKit's inspector names no agent.
async fn last_agent(context: &RequestContext, client_thread: &str) -> Result<Agent, Reject> {
    let id = context.names.thread(client_thread)?.id;
    let mut refused = None;
    for upstream in context.gateway.agents.upstreams() {
        let client = upstream.client.called_by(&context.caller);
        if let Err(reject) = context.gateway.thread_access.expect(&client).await {
            refused = refused.or(Some(reject));
            continue;
        }
        let found = match client.in_turn(QueueClass::Looks, client.listed_thread(&id)).await {
            Ok(found) => found,
            // Another upstream may have the thread.
            Err(error) => {
                let reject = context.upstream_failed(&error, client.caller());
                refused = refused.or(Some(reject));
                continue;
            }
        };
        let Some(found) = found else { continue };
        let (graph, assistant) = found.ran();
        let own_name = graph.or(assistant).unwrap_or_default();
        let name = context.gateway.agents.name_at(&upstream.name, &own_name);
        return context.agent(&name);
    }
    Err(refused.unwrap_or_else(Reject::unknown_thread))
}

// === impl ThreadPart ===

impl ThreadPart {
    pub(in crate::server) fn named(name: &str) -> Option<Self> {
        match name {
            "messages" => Some(Self::Messages),
            "events" => Some(Self::Events),
            "state" => Some(Self::State),
            _ => None,
        }
    }
}

// === impl ThreadEvents ===

impl ThreadEvents {
    /// Reads an idle thread to its end, for a client that holds nothing.
    pub(in crate::server) async fn read(mut reader: ThreadReader, client: Client) -> Self {
        let mut encoder = Encoder::new(Wire::Ndjson, Projector::new(client, Vec::new()));
        let (mut out, mut all) = (Outgoing::default(), Vec::new());
        while let Some(batch) = reader.next().await {
            offload(batch.memory_bytes(), || {
                encoder.encode(&batch, &mut out);
                out.by_ref().for_each(|bytes| all.extend_from_slice(&bytes));
            });
        }
        Self(all.into())
    }

    /// Passes the events to `read`, outside the threads of the runtime if they are large.
    pub(in crate::server) fn read_with<T>(&self, read: impl FnOnce(&Self) -> T) -> T {
        offload(self.0.len(), || read(self))
    }

    fn events(&self) -> impl DoubleEndedIterator<Item = &str> {
        let text = std::str::from_utf8(&self.0).unwrap_or_default();
        text.lines().filter(|line| !line.is_empty())
    }

    /// A member of the last event of a type.
    pub(in crate::server) fn last(&self, kind: &str, member: &str) -> Option<&RawValue> {
        self.events().rev().find_map(|event| {
            let members: Members<'_> = serde_json::from_str(event).ok()?;
            if members.string("type").as_deref() != Some(kind) {
                return None;
            }
            members.get(member)
        })
    }

    /// The messages, in AG-UI's form.
    pub(in crate::server) fn messages(&self) -> Vec<&RawValue> {
        let messages = self.last("MESSAGES_SNAPSHOT", "messages");
        messages.and_then(json::items).unwrap_or_default()
    }

    /// `{"messages": [..]}`
    fn messages_json(&self) -> Json {
        let messages: Vec<_> = self.messages().into_iter().filter_map(message_json).collect();
        let messages = json::array(messages.iter().map(|message| message.get()));
        ObjectWriter::new().raw("messages", messages.get()).finish()
    }

    /// `{"events": [..]}`
    fn events_json(&self) -> Json {
        ObjectWriter::new().raw("events", json::array(self.events()).get()).finish()
    }

    /// `{"state": ..}`
    fn state_json(&self) -> Json {
        let state = self.last("STATE_SNAPSHOT", "snapshot");
        ObjectWriter::new().raw("state", state.map_or("null", RawValue::get)).finish()
    }
}

/// A message as CopilotKit's inspector shows it.
fn message_json(message: &RawValue) -> Option<Json> {
    let members = json::members(message)?;
    let mut json = ObjectWriter::new();
    for name in ["id", "role", "content", "toolCallId"] {
        if let Some(value) = members.get(name) {
            json = json.raw(name, value.get());
        }
    }
    let calls = members.get("toolCalls").and_then(json::items).unwrap_or_default();
    let calls: Vec<_> = calls.into_iter().filter_map(call_json).collect();
    if !calls.is_empty() {
        json = json.raw("toolCalls", json::array(calls.iter().map(|call| call.get())).get());
    }
    Some(json.finish())
}

fn call_json(call: &RawValue) -> Option<Json> {
    let members = json::members(call)?;
    let function = json::members(members.get("function")?)?;
    let json = ObjectWriter::new()
        .raw("id", members.get("id")?.get())
        .raw("name", function.get("name")?.get())
        .raw("args", function.get("arguments")?.get());
    Some(json.finish())
}
