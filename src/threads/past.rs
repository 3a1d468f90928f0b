//! Looks at the earlier states of a thread: where a conversation forks, which forms a message has
//! had, and which values a key of the state has had.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::offload::offload;
use crate::upstream::{Client, Error};
use threadway_translate::json::{self, Json};
use threadway_translate::langgraph::{Message, MessagesKey, ThreadState};
use threadway_translate::run::MessagePast;

/// How many states one request reads. A turn of an agent with tools makes about five, so one page
/// has the last few turns.
const PAGE_STATES: usize = 20;

/// How many pages are read for a message: 1,000 states, or some hundred turns. An edit of an older
/// message is refused.
const MAX_PAGES: usize = 50;

/// How many states one request reads for values of the state, and for messages that a graph has made
/// and removed. A client that has missed nothing needs two.
const VALUE_STATES: usize = 5;

/// How many such pages are read: 100 states. A client that is further behind may bring older values
/// back.
const MAX_VALUE_PAGES: usize = 20;

/// How many messages are looked for at once. Others count as not changed by the person.
const MAX_MESSAGES: usize = 32;

/// Why a thread cannot be forked.
#[derive(Debug, thiserror::Error)]
pub(super) enum ForkError {
    /// Each checkpoint contains the message.
    #[error(
        "message {message_id} was changed, but the thread has no checkpoint from before it; \
         send it under a new id, or begin a new thread"
    )]
    NoneBefore {
        /// The message that was edited.
        message_id: String,
    },
    /// The message is older than the states that are read.
    #[error(
        "message {message_id} was changed, but it is more than {} checkpoints back; send it under \
         a new id, or begin a new thread",
        PAGE_STATES * MAX_PAGES
    )]
    TooFarBack {
        /// The message that was edited.
        message_id: String,
    },
}

/// The earlier states of a thread, as far as they have some messages.
#[derive(Debug)]
pub(super) struct Past {
    pub(super) messages: Vec<MessagePast>,
    /// Whether the whole history was read.
    is_whole: bool,
}

/// Whether a walk has passed the place where a message arrived: how many states without the message
/// it has visited, of those that the newest state descends from.
///
/// A run that forks stores a state without the message first. The branch that it leaves is older
/// than that state, and newer than its parent. Only the second such state is before both.
#[derive(Clone, Copy, Debug, Default)]
struct Arrival {
    states_before: u32,
}

/// A checkpoint in the thread's history.
#[derive(Debug)]
pub(super) struct Checkpoint<'a> {
    pub(super) id: String,
    parent: Option<String>,
    pub(super) state: &'a str,
    /// The wanted messages that the state has.
    messages: HashMap<String, &'a RawValue>,
}

// === impl Past ===

impl Past {
    /// Reads the states back to the last ones before these messages.
    ///
    /// The search goes from each checkpoint to its parent. The history also lists branches that
    /// earlier forks have left. A state of such a branch may lack a message without being a
    /// predecessor.
    pub(super) async fn of(
        upstream: &Client,
        thread_id: &str,
        ids: &[String],
    ) -> Result<Self, Error> {
        let ids = ids.get(..MAX_MESSAGES).unwrap_or(ids);
        let new = |id: &String| MessagePast { id: id.clone(), ..MessagePast::default() };
        let mut messages: Vec<_> = ids.iter().map(new).collect();
        let mut arrivals = vec![Arrival::default(); messages.len()];
        let pages = (MAX_PAGES, PAGE_STATES);
        let walked = walk(upstream, thread_id, ids, pages, |checkpoint, is_here| {
            checkpoint.add_to(&mut messages, is_here);
            for (past, arrival) in messages.iter().zip(&mut arrivals) {
                arrival.visit(checkpoint, is_here, &past.id);
            }
            arrivals.iter().all(|arrival| arrival.is_passed())
        });
        let is_whole = walked.await?;
        Ok(Self { messages, is_whole })
    }

    /// The id of the checkpoint before a message.
    pub(super) fn checkpoint_before(&self, message_id: &str) -> Result<String, ForkError> {
        let past = self.messages.iter().find(|past| past.id == *message_id);
        let before = past.and_then(|past| past.before.as_deref());
        let id = before
            .and_then(|before| offload(before.len(), || ThreadState::parse(before)?.checkpoint_id));
        let message_id = || message_id.to_owned();
        match id {
            Some(id) => Ok(id.into_owned()),
            None if self.is_whole => Err(ForkError::NoneBefore { message_id: message_id() }),
            None => Err(ForkError::TooFarBack { message_id: message_id() }),
        }
    }
}

/// Which of these values the keys of the state have had since the state in which a message arrived,
/// or in the newest states.
pub(super) async fn values(
    upstream: &Client,
    thread_id: &str,
    mut wanted: Vec<(String, Json)>,
    since: Option<&str>,
) -> Result<Vec<(String, Json)>, Error> {
    let mut found = Vec::new();
    let ids: Vec<_> = since.iter().map(|id| (*id).to_owned()).collect();
    let pages = (MAX_VALUE_PAGES, VALUE_STATES);
    let mut arrival = Arrival::default();
    let walked = walk(upstream, thread_id, &ids, pages, |checkpoint, is_here| {
        let state = ThreadState::parse_under(upstream.messages_key(), checkpoint.state);
        let state = state.and_then(|state| state.values?.state).unwrap_or_default();
        // A client may send any number of keys.
        let state: HashMap<_, _> = state.iter().map(|(key, held)| (&**key, *held)).collect();
        let is_held = |(key, value): &mut (String, Json)| {
            let held = state.get(&**key);
            held.is_some_and(|held| json::same_in_doubles(held.get(), value.get()))
        };
        found.extend(wanted.extract_if(.., is_held));
        if let Some(since) = since {
            arrival.visit(checkpoint, is_here, since);
        }
        wanted.is_empty() || arrival.is_passed()
    });
    walked.await?;
    Ok(found)
}

/// Which of these messages the newest states have, with their newest forms.
pub(super) async fn find_messages(
    upstream: &Client,
    thread_id: &str,
    ids: &[String],
) -> Result<Vec<(String, Json)>, Error> {
    let ids = ids.get(..MAX_MESSAGES).unwrap_or(ids);
    let mut found: Vec<(String, Json)> = Vec::new();
    let pages = (MAX_VALUE_PAGES, VALUE_STATES);
    walk(upstream, thread_id, ids, pages, |checkpoint, _| {
        for (id, raw) in &checkpoint.messages {
            if !found.iter().any(|(known, _)| known == id) {
                found.push((id.clone(), Json::from(*raw)));
            }
        }
        found.len() == ids.len()
    })
    .await?;
    Ok(found)
}

/// Visits the states of a thread, the newest first, until `visit` returns true or all were visited.
/// Returns whether it did not end early, because of `max_pages`.
///
/// `visit` gets the wanted messages of each state, and whether the newest state descends from it.
pub(super) async fn walk(
    upstream: &Client,
    thread_id: &str,
    ids: &[String],
    (max_pages, size): (usize, usize),
    mut visit: impl FnMut(&Checkpoint<'_>, bool) -> bool,
) -> Result<bool, Error> {
    let mut wanted: Option<String> = None;
    let mut before: Option<String> = None;
    for _ in 0..max_pages {
        let page = upstream.history_page(thread_id, before.as_deref(), size).await?;
        let visited = page.read(|page| {
            let page = read_page(page, upstream.messages_key(), ids)?;
            let is_last = page.len() < size;
            before = page.last().map(|checkpoint| checkpoint.id.clone());
            for checkpoint in page {
                let is_here = wanted.as_ref().is_none_or(|wanted| *wanted == checkpoint.id);
                if visit(&checkpoint, is_here) {
                    return Some(true);
                }
                if is_here {
                    // No checkpoint has an empty id: after the first state, all others are
                    // elsewhere.
                    wanted = Some(checkpoint.parent.unwrap_or_default());
                }
            }
            Some(is_last)
        });
        if upstream.understood(visited, "a thread's history")? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Parses a page of the history. `None` if it, or a checkpoint of it, is malformed.
///
/// The Python server also has the ids as members of their own, but the JavaScript server does not.
fn read_page<'a>(page: &'a str, key: &MessagesKey, ids: &[String]) -> Option<Vec<Checkpoint<'a>>> {
    let items: Vec<&'a RawValue> = serde_json::from_str(page).ok()?;
    let read = |item: &&'a RawValue| {
        let members = json::members(item)?;
        let id_of = |name| {
            let checkpoint = members.get(name).and_then(json::members)?;
            Some(checkpoint.string("checkpoint_id")?.into_owned())
        };
        Some(Checkpoint {
            id: id_of("checkpoint")?,
            parent: id_of("parent_checkpoint"),
            state: item.get(),
            messages: messages_of(item.get(), key, ids),
        })
    };
    items.iter().map(read).collect()
}

/// The wanted messages of a state.
fn messages_of<'a>(
    state: &'a str,
    key: &MessagesKey,
    ids: &[String],
) -> HashMap<String, &'a RawValue> {
    if ids.is_empty() {
        return HashMap::new();
    }
    let state = ThreadState::parse_under(key, state);
    let messages = state.and_then(|state| state.values).and_then(|values| values.messages);
    let wanted = |raw: &'a RawValue| {
        let id = Message::parse(raw)?.id()?.into_owned();
        ids.contains(&id).then_some((id, raw))
    };
    messages.unwrap_or_default().into_iter().filter_map(wanted).collect()
}

// === impl Arrival ===

impl Arrival {
    fn visit(&mut self, checkpoint: &Checkpoint<'_>, is_here: bool, message_id: &str) {
        self.states_before += u32::from(is_here && !checkpoint.messages.contains_key(message_id));
    }

    fn is_passed(self) -> bool {
        self.states_before >= 2
    }
}

// === impl Checkpoint ===

impl Checkpoint<'_> {
    /// Adds the forms of the messages in this state. `is_here` if the newest state descends from it.
    fn add_to(&self, messages: &mut [MessagePast], is_here: bool) {
        for past in messages {
            match self.messages.get(&past.id) {
                Some(raw) => {
                    let forms = if is_here { &mut past.here } else { &mut past.elsewhere };
                    if !forms.iter().any(|form| form.get() == raw.get()) {
                        forms.push(Json::from(*raw));
                    }
                }
                None if is_here && past.before.is_none() => {
                    past.before = Some(Arc::from(self.state));
                }
                None => {}
            }
        }
    }
}
