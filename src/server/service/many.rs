//! What happens on many threads, in one stream.
//!
//! ```text
//!  {"threads": [..]}                       first: all threads, each as below
//!  {"threadId": T, "mark": ..}             a mark: running, waiting, idle, failed, absent
//!  {"threadId": T, "mark": .., "thread":}  the same, with what a list says of the thread
//!  {"threadId": T, "removed": true}        the thread is in the list no more
//!  {"threadId": T, "id": .., "event": ..}  an AG-UI event
//!  {"threadId": T, "error": .., "message"} the caller gets nothing more of this thread
//! ```
//! The first message makes a client that connects again forget what it had, so a stream without
//! events has no position.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::StreamExt;
use futures_util::stream::{self, select_all};
use tokio_util::sync::CancellationToken;

use super::connect::{self, ConnectMode};
use super::threads::list::{client_id, thread_json};
use super::threads::permitted;
use crate::agents::Agent;
use crate::metrics::Full;
use crate::server::gateway::RequestContext;
use crate::server::limits::rates::StreamSlot;
use crate::server::observe::RunIds;
use crate::server::reject::{Reject, SideEffect};
use crate::server::request::thread_name::{ThreadNames, viewer};
use crate::server::streams::event_stream::EventStream;
use crate::server::streams::last_event::LastEvent;
use crate::server::streams::many::{ManyBody, Message, Messages, events_of};
use crate::server::streams::wire::Wire;
use crate::threads::{self, AtShutdown, ListQuery, Mark, MarkReader, Refusal, Thread};
use crate::upstream::{ThreadActivity, ThreadRecord};
use threadway_translate::agui::{ClientMessages, Projector};
use threadway_translate::json::{self, Json, ObjectWriter};

/// How many of the caller's threads are listed: those that changed last.
const MAX_LISTED: usize = 50;

/// The longest list of names in a log line, in bytes.
const MAX_NAMES_BYTES: usize = 1024;

/// What a client reads of many threads.
pub(in crate::server) struct AskedMany {
    /// The client's name for the agent.
    pub(in crate::server) agent: String,
    pub(in crate::server) wanted: Wanted,
    pub(in crate::server) last: LastEvent,
    pub(in crate::server) wire: Wire,
}

#[derive(Debug, PartialEq, Eq)]
pub(in crate::server) enum Wanted {
    /// The threads with these names. Each is there once.
    Named { threads: Vec<String>, with_events: bool },
    /// The threads on which the agent ran last.
    Mine { with_archived: bool },
}

/// A thread of a stream.
struct Named {
    /// The client's name.
    name: String,
    /// Set with the last message about the thread.
    is_over: AtomicBool,
}

/// What the events of all threads of a stream need.
#[derive(Clone)]
struct Following {
    context: Arc<RequestContext>,
    last: LastEvent,
    wire: Wire,
    slot: StreamSlot,
    /// Ends the whole stream. The client connects again.
    ended: CancellationToken,
}

/// The stream that a client asks for.
pub(in crate::server) async fn many(
    context: RequestContext,
    asked: AskedMany,
) -> Result<ManyBody, Reject> {
    let AskedMany { agent: name, wanted, last, wire } = asked;
    let metrics = context.gateway.observer.metrics.clone();
    let slot = context.slot()?;
    let messages = match wanted {
        Wanted::Mine { with_archived } => mine(&context, &name, with_archived).await?,
        Wanted::Named { threads, with_events } => {
            let (agent, ended) = (context.agent(&name)?, CancellationToken::new());
            let context = Arc::new(context);
            let following = Following { context, last, wire, slot: slot.clone(), ended };
            named(following, agent, threads, with_events).await?
        }
    };
    Ok(ManyBody::new(messages, wire, &metrics, slot))
}

/// The marks of the threads with these names, and their events.
async fn named(
    following: Following,
    agent: Agent,
    names: Vec<String>,
    with_events: bool,
) -> Result<Messages, Reject> {
    let context = &following.context;
    let ids = names.iter().map(|name| context.names.thread(name).map(|thread| thread.id));
    let ids: Vec<_> = ids.collect::<Result<_, _>>()?;
    context.record.note(|facts| {
        let mut all = names.join(",");
        all.truncate(all.floor_char_boundary(MAX_NAMES_BYTES));
        facts.agent = Some(agent.name.to_string());
        facts.thread = Some(all);
        facts.upstream = Some(agent.upstream.base().to_string());
    });
    let marks = context.gateway.threads.marks(&agent.upstream, &ids);
    let reader = of_known(context, &agent, marks).await?;
    if reader.marks().all(|mark| mark == Mark::Refused) {
        return Err(Reject::unknown_thread());
    }
    let begun = |(name, mark)| Named { name, is_over: AtomicBool::new(mark == Mark::Refused) };
    let threads: Arc<[_]> = names.into_iter().zip(reader.marks()).map(begun).collect();
    let marks: Vec<_> =
        reader.marks().zip(&*threads).map(|(mark, thread)| mark_json(&thread.name, mark)).collect();
    let first = first_message(&marks);
    let mut parts = vec![marks_of(reader, Arc::clone(&threads), following.ended.clone())];
    if with_events {
        for (at, thread) in threads.iter().enumerate() {
            if !thread.is_over.load(Ordering::Relaxed) {
                let of_thread = context.thread(agent.clone(), &thread.name)?;
                parts.push(events(following.clone(), of_thread, Arc::clone(&threads), at));
            }
        }
    }
    let ended = following.ended.cancelled_owned();
    let rest = select_all(parts).take_until(Box::pin(ended));
    Ok(Box::pin(stream::once(async { Ok(vec![first]) }).chain(rest)))
}

/// The threads on which an agent ran last.
async fn mine(
    context: &RequestContext,
    name: &str,
    with_archived: bool,
) -> Result<Messages, Reject> {
    let agent = permitted(context, name).await?;
    context.record.note(|facts| {
        facts.agent = Some(agent.name.to_string());
        facts.upstream = Some(agent.upstream.base().to_string());
    });
    let query = ListQuery { limit: MAX_LISTED, with_archived, after: None };
    let metadata = threads::metadata_of_runs(&agent.assistant);
    let newest = context.gateway.threads.newest(&agent.upstream, metadata, query);
    let reader = of_known(context, &agent, newest).await?;
    let (name, names) = (name.to_owned(), context.names);
    let listed: Vec<_> =
        reader.page().iter().map(|thread| listed_json(thread, &name, names)).collect();
    let first = first_message(&listed);
    let rest = stream::unfold((reader, name, names), async |(mut reader, name, names)| {
        let before = Arc::clone(reader.page());
        let page = reader.next().await?;
        Some((Ok(page_changes(&before, &page, &name, names)), (reader, name, names)))
    });
    Ok(Box::pin(stream::once(async { Ok(vec![first]) }).chain(rest)))
}

/// What was read of threads, or the refusal if the server does not have the agent.
async fn of_known<T>(
    context: &RequestContext,
    agent: &Agent,
    read: impl Future<Output = Result<T, Refusal>>,
) -> Result<T, Reject> {
    let caller = agent.upstream.caller();
    let (is_absent, read) = tokio::join!(Box::pin(agent.is_absent()), Box::pin(read));
    if is_absent {
        return Err(Reject::unknown_assistant(&agent.assistant, caller));
    }
    let detail = context.gateway.error_detail;
    read.map_err(|refusal| Reject::refusal(&refusal, caller, detail, SideEffect::None))
}

/// The marks of threads as they change.
fn marks_of(reader: MarkReader, threads: Arc<[Named]>, ended: CancellationToken) -> Messages {
    let state = (reader, threads, ended);
    Box::pin(stream::unfold(state, async |(mut reader, threads, ended)| {
        // A client that connects again gets a refusal if it may see none of the threads.
        let is_over = threads.iter().all(|thread| thread.is_over.load(Ordering::Relaxed));
        let changes = if is_over { None } else { reader.next().await };
        let Some(changes) = changes else {
            ended.cancel();
            return None;
        };
        let messages = changes.into_iter().filter_map(|(at, mark)| {
            let thread = threads.get(at)?;
            let was_over = thread.is_over.fetch_or(mark == Mark::Refused, Ordering::Relaxed);
            (!was_over).then(|| Message::new(&mark_json(&thread.name, mark)))
        });
        Some((Ok(messages.collect()), (reader, threads, ended)))
    }))
}

/// The events of one thread of a stream.
fn events(following: Following, thread: Thread, threads: Arc<[Named]>, at: usize) -> Messages {
    let begun = async move {
        let Following { context, last, wire, slot, ended } = following;
        let name = threads.get(at).map(|thread| thread.name.clone()).unwrap_or_default();
        let reader = match connect::read(&context, &thread, ConnectMode::Follow, &last).await {
            Ok(reader) => reader.at_shutdown(AtShutdown::BreakOff),
            Err(reject) => return last_of(&reject, &threads, at, &ended),
        };
        let for_new = |client| Projector::new(client, ClientMessages::Unknown);
        let emit = thread.agent().emit;
        let encoder = last.encoder(Wire::Chunks, viewer(&name), emit, for_new);
        let (ids, answers) = (RunIds::of(&thread), context.answers());
        let events = EventStream { reader, encoder, slot, ids, answers };
        let metrics = context.gateway.observer.metrics.clone();
        let end = async move {
            // The reader does not say why it has ended.
            match thread.check_visibility().await {
                Ok(()) => {
                    ended.cancel();
                    stream::empty().boxed()
                }
                Err(refusal) => {
                    last_of(&context.refuse_read(&refusal, &thread), &threads, at, &ended)
                }
            }
        };
        events_of(&name, events, wire, &metrics).chain(stream::once(end).flatten()).boxed()
    };
    stream::once(begun).flatten().boxed()
}

/// The last message about a thread. A shutdown ends the whole stream instead, so that the client
/// connects to another replica.
fn last_of(reject: &Reject, threads: &[Named], at: usize, ended: &CancellationToken) -> Messages {
    if reject.is_shutdown() {
        ended.cancel();
        return stream::empty().boxed();
    }
    let thread = threads.get(at).filter(|thread| !thread.is_over.swap(true, Ordering::Relaxed));
    let message = thread.map(|thread| Message::new(&error_json(&thread.name, reject)));
    let messages = message.map(|message| Ok::<_, Full>(vec![message]));
    stream::iter(messages).boxed()
}

/// How a list of threads has changed.
fn page_changes(
    before: &[ThreadRecord],
    page: &[ThreadRecord],
    agent: &str,
    names: ThreadNames,
) -> Vec<Message> {
    let removed = before
        .iter()
        .filter(|old| page.iter().all(|new| new.id != old.id))
        .map(|old| ObjectWriter::new().string("threadId", &client_id(old, names)))
        .map(|json| Message::new(&json.raw("removed", "true").finish()));
    let changed = page
        .iter()
        .filter(|new| !before.contains(new))
        .map(|new| Message::new(&listed_json(new, agent, names)));
    removed.chain(changed).collect()
}

fn first_message(threads: &[Json]) -> Message {
    let threads = json::array(threads.iter().map(|thread| thread.get()));
    Message::first(&ObjectWriter::new().raw("threads", threads.get()).finish())
}

fn listed_json(thread: &ThreadRecord, agent: &str, names: ThreadNames) -> Json {
    let id = client_id(thread, names);
    ObjectWriter::new()
        .string("threadId", &id)
        .string("mark", word(thread.activity))
        .raw("thread", thread_json(thread, &id, agent).get())
        .finish()
}

fn mark_json(name: &str, mark: Mark) -> Json {
    let word = match mark {
        Mark::Shown(activity) => word(activity),
        Mark::Absent => "absent",
        Mark::Refused => return error_json(name, &Reject::unknown_thread()),
    };
    ObjectWriter::new().string("threadId", name).string("mark", word).finish()
}

fn error_json(name: &str, reject: &Reject) -> Json {
    ObjectWriter::new()
        .string("threadId", name)
        .string("error", reject.code())
        .string("message", reject.message())
        .finish()
}

fn word(activity: ThreadActivity) -> &'static str {
    match activity {
        ThreadActivity::Running => "running",
        ThreadActivity::Waiting => "waiting",
        ThreadActivity::Idle => "idle",
        ThreadActivity::Failed => "failed",
    }
}
