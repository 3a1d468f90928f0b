//! Finds the checkpoint at which to fork a thread whose user edited a message: the last one before
//! that message.

use serde_json::value::RawValue;

use crate::upstream::{Client, Error};
use threadway_translate::json;
use threadway_translate::langgraph::{Message, MessagesKey, ThreadState};

/// How many states one request reads. A turn of an agent with tools makes about five, so one page
/// has the last few turns.
const PAGE_STATES: usize = 20;

/// How many pages are read: 1,000 states, or some hundred turns. An edit of an older message is
/// refused.
const MAX_PAGES: usize = 50;

/// Why a thread cannot be forked.
#[derive(Debug, thiserror::Error)]
pub(super) enum ForkError {
    /// The history could not be read.
    #[error(transparent)]
    Upstream(#[from] Error),
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

/// A checkpoint to fork at.
#[derive(Debug)]
pub(super) struct Point {
    /// The id of the checkpoint.
    pub(super) checkpoint_id: String,
    /// The JSON of the thread's state at the checkpoint.
    pub(super) state: String,
}

/// A checkpoint in the thread's history.
#[derive(Debug)]
struct Checkpoint<'a> {
    id: String,
    parent: Option<String>,
    state: &'a str,
    holds_message: bool,
}

/// Finds the last checkpoint before a message.
///
/// The search goes from each checkpoint to its parent. The history also lists branches that earlier
/// forks have left. A state of such a branch may lack the message without being a predecessor.
pub(super) async fn point(
    upstream: &Client,
    thread_id: &str,
    message_id: &str,
) -> Result<Point, ForkError> {
    let none_before = || ForkError::NoneBefore { message_id: message_id.to_owned() };
    let mut wanted: Option<String> = None;
    let mut before: Option<String> = None;
    for _ in 0..MAX_PAGES {
        let page = upstream.history_page(thread_id, before.as_deref(), PAGE_STATES).await?;
        let page = read_page(&page, upstream.messages_key(), message_id);
        let page = upstream.understood(page, "a thread's history")?;
        let is_last = page.len() < PAGE_STATES;
        before = page.last().map(|checkpoint| checkpoint.id.clone());
        for checkpoint in page {
            if wanted.as_ref().is_some_and(|wanted| *wanted != checkpoint.id) {
                continue;
            }
            if !checkpoint.holds_message {
                let state = checkpoint.state.to_owned();
                return Ok(Point { checkpoint_id: checkpoint.id, state });
            }
            wanted = Some(checkpoint.parent.ok_or_else(none_before)?);
        }
        if is_last {
            return Err(none_before());
        }
    }
    Err(ForkError::TooFarBack { message_id: message_id.to_owned() })
}

/// Parses a page of the history. `None` if it, or a checkpoint of it, is malformed.
///
/// The Python server also has the ids as members of their own, but the JavaScript server does not.
fn read_page<'a>(
    page: &'a str,
    key: &MessagesKey,
    message_id: &str,
) -> Option<Vec<Checkpoint<'a>>> {
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
            holds_message: holds(item.get(), key, message_id),
        })
    };
    items.iter().map(read).collect()
}

/// Whether a state contains the message.
fn holds(state: &str, key: &MessagesKey, message_id: &str) -> bool {
    let state = ThreadState::parse_under(key, state);
    let messages = state.and_then(|state| state.values).and_then(|values| values.messages);
    let is_it = |raw: &&RawValue| {
        Message::parse(raw).and_then(|message| message.id()).is_some_and(|id| id == message_id)
    };
    messages.unwrap_or_default().iter().any(is_it)
}
