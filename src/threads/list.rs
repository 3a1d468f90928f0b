//! Lists threads that a caller may see, page by page.
//!
//! LangGraph's pages have an offset from the newest change. The offset of a thread moves when
//! another thread changes or is deleted. A page here therefore continues after the last thread of
//! the previous page, by the time of that thread's change, and searches backwards for that position
//! if necessary.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

use crate::upstream::{Client, Error, QueueClass, ThreadRecord, ThreadSearch};
use threadway_translate::json::{Json, ObjectWriter};

/// How many requests one page may take. A page that needs more is shorter, and has a cursor.
const MAX_SEARCHES: usize = 5;

/// By how many threads a page overlaps the previous one. As many threads before it may disappear
/// without another request.
const OVERLAP: usize = 20;

/// How many threads with the same time a cursor contains. If there are more, some are listed twice.
const MAX_NAMED: usize = 20;

/// The first part of a cursor.
const VERSION: &str = "t1";

/// Which threads are listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListQuery {
    /// The largest number of threads.
    pub limit: usize,
    /// Whether archived threads are listed too.
    pub with_archived: bool,
    /// The end of the previous page.
    pub after: Option<ThreadCursor>,
}

/// A page of threads, last changed first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadPage {
    /// The threads, without their states.
    pub threads: Vec<ThreadRecord>,
    /// The start of the next page. `None` after the last thread.
    pub next: Option<ThreadCursor>,
}

/// A position in a list of threads. Its text is opaque to clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadCursor {
    /// How many threads were before this position when the cursor was made.
    offset: usize,
    /// When the last of them changed, in the form of [`time_of`].
    time: String,
    /// Those of them that changed at this time.
    ids: Vec<Uuid>,
}

/// The text is not a [`ThreadCursor`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`cursor` is not one of this gateway's; send the nextCursor of a list, or none")]
pub struct NotAThreadCursor;

/// Lists the threads whose metadata has these members and that the caller may see.
pub async fn list(
    upstream: &Client,
    metadata: &Json,
    query: &ListQuery,
) -> Result<ThreadPage, Error> {
    let _turn = upstream.turn(QueueClass::Looks).await?;
    read_page(upstream, metadata, query, Columns::Dated).await
}

/// What is read of each thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Columns {
    Dated,
    /// Also whether a question is open, which is as large as the question.
    Active,
}

/// Reads a page as [`list`] does, without a turn.
pub(super) async fn read_page(
    upstream: &Client,
    metadata: &Json,
    query: &ListQuery,
    columns: Columns,
) -> Result<ThreadPage, Error> {
    let limit = query.limit + OVERLAP + 1;
    let mut cursor = query.after.clone().unwrap_or_default();
    // Without a time, the offset is all there is.
    let mut is_found = cursor.time.is_empty();
    let mut offset = if is_found { cursor.offset } else { cursor.offset.saturating_sub(OVERLAP) };
    let mut threads = Vec::new();
    for _ in 0..MAX_SEARCHES {
        let search = ThreadSearch { metadata, limit, offset };
        let found = match columns {
            Columns::Dated => upstream.dated_threads(&search).await?,
            Columns::Active => upstream.active_threads(&search).await?,
        };
        let is_last = found.len() < limit;
        if !is_found && offset > 0 && found.first().is_none_or(|first| !cursor.is_after(first)) {
            // More threads than the overlap have disappeared, so the position is further up.
            offset = offset.saturating_sub(limit);
            continue;
        }
        is_found = true;
        for thread in found {
            if cursor.is_after(&thread) {
                offset += 1;
                continue;
            }
            if threads.len() >= query.limit {
                cursor.offset = offset;
                return Ok(ThreadPage { threads, next: Some(cursor) });
            }
            offset += 1;
            cursor.advance(&thread);
            if query.with_archived || !thread.is_archived() {
                threads.push(thread);
            }
        }
        if is_last {
            return Ok(ThreadPage { threads, next: None });
        }
    }
    cursor.offset = offset;
    Ok(ThreadPage { threads, next: Some(cursor) })
}

/// The metadata of threads on which this agent ran last. For an agent that is named by its graph,
/// these are the threads of all assistants of the graph.
pub fn metadata_of_runs(assistant: &str) -> Json {
    let name = if Uuid::try_parse(assistant).is_ok() { "assistant_id" } else { "graph_id" };
    ObjectWriter::new().string(name, assistant).finish()
}

/// When a thread last changed, in a form in which a later time compares greater: servers leave out
/// trailing zeros of a second's fraction. Empty if the record has no time.
fn time_of(thread: &ThreadRecord) -> String {
    const SECONDS: usize = "0000-00-00T00:00:00".len();
    let text = thread.updated_at.as_deref().unwrap_or_default();
    let Some((seconds, rest)) = text.split_at_checked(SECONDS) else { return String::new() };
    let fraction = rest.strip_prefix('.').unwrap_or_default();
    let fraction: String = fraction.chars().take_while(char::is_ascii_digit).take(9).collect();
    format!("{seconds}.{fraction:0<9}")
}

fn id_of(thread: &ThreadRecord) -> Option<Uuid> {
    Uuid::try_parse(&thread.id).ok()
}

// === impl ThreadCursor ===

impl ThreadCursor {
    /// Whether this position is after a thread, so that the thread was listed already.
    fn is_after(&self, thread: &ThreadRecord) -> bool {
        let time = time_of(thread);
        let is_named = || id_of(thread).is_some_and(|id| self.ids.contains(&id));
        (!self.time.is_empty() && time > self.time) || (time == self.time && is_named())
    }

    /// Moves the position after a thread.
    fn advance(&mut self, thread: &ThreadRecord) {
        let time = time_of(thread);
        if time != self.time {
            self.time = time;
            self.ids.clear();
        }
        if self.ids.len() >= MAX_NAMED {
            self.ids.remove(0);
        }
        self.ids.extend(id_of(thread));
    }
}

impl fmt::Display for ThreadCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offset, time, ids } = self;
        write!(f, "{VERSION}~{offset}~{time}")?;
        ids.iter().try_for_each(|id| write!(f, "~{}", id.simple()))
    }
}

impl FromStr for ThreadCursor {
    type Err = NotAThreadCursor;

    fn from_str(text: &str) -> Result<Self, NotAThreadCursor> {
        let mut parts = text.split('~');
        let (Some(VERSION), Some(offset), Some(time)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(NotAThreadCursor);
        };
        // Both servers accept offsets of 32 bits.
        let offset = offset.parse::<u32>().ok().and_then(|offset| usize::try_from(offset).ok());
        let ids: Result<Vec<_>, _> = parts.take(MAX_NAMED + 1).map(Uuid::try_parse).collect();
        let ids = ids.ok().filter(|ids| ids.len() <= MAX_NAMED);
        let (Some(offset), Some(ids)) = (offset, ids) else { return Err(NotAThreadCursor) };
        Ok(Self { offset, time: time.to_owned(), ids })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(number: u128, updated_at: &str) -> ThreadRecord {
        let id = Uuid::from_u128(number);
        let record = format!(r#"{{"thread_id":"{id}","updated_at":"{updated_at}"}}"#);
        ThreadRecord::parse(&record).unwrap()
    }

    #[test]
    fn the_later_of_two_times_is_greater_however_many_digits_it_has() {
        let ordered = [
            "2026-11-22T10:00:00+00:00",
            "2026-11-22T10:00:00.000001+00:00",
            "2026-11-22T10:00:00.01Z",
            "2026-11-22T10:00:00.1Z",
            "2026-11-22T10:00:01Z",
        ];
        let times = ordered.map(|time| time_of(&thread(1, time)));
        assert!(times.is_sorted_by(|a, b| a < b), "{times:?}");
        assert_eq!(time_of(&thread(1, "yesterday")), "");
    }

    #[test]
    fn a_cursor_is_after_what_was_listed_and_what_has_changed_since() {
        let mut cursor = ThreadCursor::default();
        assert!(!cursor.is_after(&thread(1, "2026-11-22T10:00:00Z")));
        for (number, time) in
            [(1, "2026-11-22T10:00:05Z"), (2, "2026-11-22T10:00:04Z"), (3, "2026-11-22T10:00:04Z")]
        {
            cursor.advance(&thread(number, time));
        }
        for (number, time, is_after) in [
            (1, "2026-11-22T10:00:05Z", true),
            (2, "2026-11-22T10:00:04Z", true),
            (3, "2026-11-22T10:00:04Z", true),
            (4, "2026-11-22T10:00:04Z", false),
            (5, "2026-11-22T10:00:03Z", false),
            (5, "2026-11-22T10:00:06Z", true),
        ] {
            assert_eq!(cursor.is_after(&thread(number, time)), is_after, "{number} {time}");
        }
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
    }

    #[test]
    fn other_texts_are_not_cursors() {
        let id = Uuid::from_u128(7);
        let many = format!("~{id}").repeat(MAX_NAMED + 1);
        for other in [
            "",
            "7",
            "t1",
            "t1~7",
            "t2~7~",
            "t1~-1~",
            "t1~99999999999~",
            "t1~7~~x",
            &format!("t1~7~{many}"),
        ] {
            assert_eq!(other.parse::<ThreadCursor>(), Err(NotAThreadCursor), "{other}");
        }
        assert_eq!("t1~7~".parse::<ThreadCursor>().map(|cursor| cursor.offset), Ok(7));
    }
}
