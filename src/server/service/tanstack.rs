//! What `TanStack` AI's client reads: a thread, or a run that the client joins.
//!
//! To join a run, the client sends the run's id without its thread. So the JSON of a thread names
//! its live run by a [`RunName`], which contains both.

use bytes::Bytes;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::held_json;
use super::threads::inspect::ThreadEvents;
use crate::agents::Agent;
use crate::server::gateway::RequestContext;
use crate::server::observe::RunIds;
use crate::server::reject::Reject;
use crate::server::request::run_name::RunName;
use crate::server::streams::event_stream::EventStream;
use crate::server::streams::last_event::LastEvent;
use crate::server::streams::wire::Wire;
use crate::threads::{Thread, ThreadReader};
use crate::upstream::QueueClass;
use threadway_translate::agui::{self, Client, Projector, RunId, Version, Window};
use threadway_translate::json::{self, ObjectWriter};

/// The largest `limit`, in messages.
const MAX_WINDOW: usize = 1_000;

/// How many threads with a run of one name are searched. Each caller may give its runs any name, so
/// the threads of others must not take the place of the caller's own.
const MAX_CANDIDATES: usize = 1_000;

/// How many threads one request asks for.
const CANDIDATES_AT_ONCE: usize = 100;

/// How many threads that the caller may see are read for the run.
const MAX_VISIBLE_CANDIDATES: usize = 4;

/// A run that was found for a client.
struct FoundRun {
    /// The client's name for the thread.
    client_thread: String,
    thread: Thread,
    reader: ThreadReader,
}

/// The JSON of a thread: its messages, its live run, and the questions that it asks.
pub(in crate::server) async fn load(
    context: &RequestContext,
    agent: Agent,
    client_thread: &str,
    limit: Option<&str>,
    before: Option<&str>,
) -> Result<(Bytes, RunIds), Reject> {
    let number = |text: &str| text.parse().ok().filter(|limit| (1..=MAX_WINDOW).contains(limit));
    let wrong = || Reject::invalid(format!("`limit` is not a number from 1 to {MAX_WINDOW}"));
    let limit = limit.map(|text| number(text).ok_or_else(wrong)).transpose()?;
    let thread = context.thread(agent, client_thread)?;
    let held = Box::pin(thread.of_known_agent(thread.snapshot())).await;
    let held = held.map_err(|refusal| context.refuse_read(&refusal, &thread))?;
    let client = client(client_thread.to_owned(), RunId::Unnamed);
    let _held = context.conversion().await;
    let events = ThreadEvents::read(held.reader, client).await;
    let answer = events.read_with(|events| {
        let window = agui::window(&events.messages(), limit, before);
        let Window { messages, cursor } = window.map_err(|_| {
            Reject::invalid(
                "`before` names no message of the thread; load the thread again without it",
            )
        })?;
        let messages = json::array(messages.iter().map(|message| message.get()));
        // Only the newest page has the live run and the questions.
        let is_newest = before.is_none();
        let active = held.live.as_ref().filter(|_| is_newest).map(|run_id| {
            let name = RunName { thread_id: client_thread.to_owned(), run_id: run_id.clone() };
            ObjectWriter::new().string("runId", &name.text()).finish()
        });
        let pending = questions(events).filter(|_| is_newest && held.live.is_none());
        let pending = pending.map(|pending| {
            let run_id = held.last.as_deref().unwrap_or(client_thread);
            ObjectWriter::new().string("runId", run_id).raw("pending", pending.get()).finish()
        });
        let page = match cursor {
            Some(cursor) => ObjectWriter::new().raw("truncated", "true").string("cursor", &cursor),
            None => ObjectWriter::new().raw("truncated", "false"),
        };
        let answer = ObjectWriter::new()
            .raw("messages", messages.get())
            .raw("activeRun", active.as_ref().map_or("null", |active| active.get()))
            .raw("interrupts", pending.as_ref().map_or("null", |pending| pending.get()))
            .raw("page", page.finish().get());
        Ok::<_, Reject>(answer.finish())
    })?;
    drop(events);
    Ok((held_json(context, &answer)?, RunIds::of(&thread)))
}

/// The questions that an idle thread asks.
fn questions(events: &ThreadEvents) -> Option<&RawValue> {
    let outcome = json::members(events.last("RUN_FINISHED", "outcome")?)?;
    outcome.get("interrupts").filter(|_| outcome.string("type").as_deref() == Some("interrupt"))
}

/// Streams a run from the start, or after the last event of a client that lost its connection.
/// `asked` is the client's name for the run.
pub(in crate::server) async fn join(
    context: &RequestContext,
    agent: Agent,
    asked: String,
    thread_id: Option<String>,
    (wire, last): (Wire, &LastEvent),
) -> Result<EventStream, Reject> {
    let name = RunName::parse(&asked);
    let run_id = name.as_ref().map_or(&asked, |name| &name.run_id);
    let slot = context.slot()?;
    let found = match name.as_ref().map(|name| &name.thread_id).or(thread_id.as_ref()) {
        Some(client_thread) => {
            let thread = context.thread(agent, client_thread)?;
            let reader = read(context, &thread, last, run_id).await?;
            let client_thread = client_thread.clone();
            reader.map(|reader| FoundRun { client_thread, thread, reader })
        }
        // Clients choose the names of runs, so a name is no secret. Searching by name shows as much
        // as a list of threads does, and has the same condition.
        None if context.gateway.thread_access.expect(&agent.upstream).await.is_err() => None,
        None => Box::pin(find(context, &agent, last, run_id)).await?,
    };
    let Some(FoundRun { client_thread, thread, reader }) = found else {
        return Err(if name.is_some() || thread_id.is_some() {
            Reject::unknown_run()
        } else {
            Reject::unplaced_run()
        });
    };
    tracing::debug!(thread_id = thread.id(), ?last, "a client joins a run");
    // The events name the run as the client does.
    let client = client(client_thread, RunId::Own(asked));
    let for_new = |client| Projector::new(client, Vec::new()).resending_text();
    let encoder = last.encoder(wire, client, thread.agent().emit, for_new);
    let (ids, answers) = (RunIds::of(&thread), context.answers());
    Ok(EventStream { reader, encoder, slot, ids, answers })
}

/// A reader of a run, which is named by its client's id or by LangGraph's.
async fn read(
    context: &RequestContext,
    thread: &Thread,
    last: &LastEvent,
    run_id: &str,
) -> Result<Option<ThreadReader>, Reject> {
    let refuse = |refusal| context.refuse_read(&refusal, thread);
    let found = thread.of_known_agent(thread.read_again(last.known(), run_id)).await;
    let found = found.map_err(refuse)?;
    if found.is_some() || Uuid::try_parse(run_id).is_err() {
        return Ok(found);
    }
    thread.read_by_id(run_id).await.map_err(refuse)
}

/// Searches the runs that this gateway reads for one whose thread the client has not named. Only
/// threads that LangGraph shows to the caller count.
async fn find(
    context: &RequestContext,
    agent: &Agent,
    last: &LastEvent,
    run_id: &str,
) -> Result<Option<FoundRun>, Reject> {
    let runs = context.gateway.threads.runs();
    let candidates = runs.threads_with(&agent.upstream, run_id, MAX_CANDIDATES);
    let candidates: Vec<_> = candidates.iter().map(String::as_str).collect();
    let mut visible = 0;
    for ids in candidates.chunks(CANDIDATES_AT_ONCE) {
        let listed =
            agent.upstream.in_turn(QueueClass::Looks, agent.upstream.listed_threads(ids)).await;
        let listed =
            listed.map_err(|error| context.upstream_failed(&error, agent.upstream.caller()))?;
        for listed in listed {
            visible += 1;
            if visible > MAX_VISIBLE_CANDIDATES {
                return Ok(None);
            }
            let is_its_own = |name: &String| context.names.is_of(&listed.id, name);
            let client_thread =
                listed.client_id().filter(is_its_own).unwrap_or_else(|| listed.id.clone());
            let thread = context.thread(agent.clone(), &client_thread)?;
            if let Some(reader) = read(context, &thread, last, run_id).await? {
                return Ok(Some(FoundRun { client_thread, thread, reader }));
            }
        }
    }
    Ok(None)
}

/// The client. It does not say which version of the protocol it speaks.
fn client(thread_id: String, run_id: RunId) -> Client {
    Client { thread_id, run_id, parent_run_id: None, version: Version::Legacy }
}
