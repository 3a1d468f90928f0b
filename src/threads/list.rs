//! The threads of an agent that an upstream shows to a caller, a page at a time.
//!
//! LangGraph's pages are counted from the newest change, and begin elsewhere once a thread has changed
//! or is gone. So a page here goes on after the last thread of the page before, by the time of that
//! thread's last change, and looks back as far as is needed to find that place.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

use crate::agents::Agent;
use crate::upstream::{Error, ThreadRecord, ThreadSearch};
use threadway_translate::json::{Json, ObjectWriter};

/// How many searches one page may cost. A page that needs more is shorter, and has a cursor.
pub const MAX_SEARCHES: usize = 5;

/// By how many threads a page overlaps the one before: so many may have gone from above it.
const OVERLAP: usize = 20;

/// How many threads with one time a cursor names: with more of them, some may be listed again.
const MAX_NAMED: usize = 20;

/// What a cursor begins with.
const VERSION: &str = "t1";

/// Which threads are listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListQuery {
    /// How many at most.
    pub limit: usize,
    /// Whether threads that were put away are listed too.
    pub with_archived: bool,
    /// Behind which place.
    pub after: Option<ThreadCursor>,
}

/// Threads, the last changed first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadPage {
    /// The threads, without their states.
    pub threads: Vec<ThreadRecord>,
    /// Where the next page begins; `None` behind the last thread.
    pub next: Option<ThreadCursor>,
}

/// A place in a list of threads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadCursor {
    /// How many threads were before it when it was made.
    offset: usize,
    /// When the last of them was changed, as [`time_of`] writes it.
    time: String,
    /// Those of them that were changed at this time.
    ids: Vec<Uuid>,
}

/// A text is no [`ThreadCursor`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`cursor` is none of this gateway's; send the nextCursor of a list, or none")]
pub struct NotAThreadCursor;

/// A page of the threads on which an agent ran last, as its upstream shows them to its caller.
///
/// An agent that is named by its graph lists those of all assistants of the graph.
pub async fn list(agent: &Agent, query: &ListQuery) -> Result<ThreadPage, Error> {
    let metadata = mark_of(&agent.assistant);
    let limit = query.limit + OVERLAP + 1;
    let mut place = query.after.clone().unwrap_or_default();
    // Without a time only the count tells the place.
    let mut is_found = place.time.is_empty();
    let mut offset = if is_found { place.offset } else { place.offset.saturating_sub(OVERLAP) };
    let mut threads = Vec::new();
    for _ in 0..MAX_SEARCHES {
        let search = ThreadSearch { metadata: &metadata, limit, offset };
        let found = agent.upstream.dated_threads(&search).await?;
        let is_last = found.len() < limit;
        if !is_found && offset > 0 && found.first().is_none_or(|first| !place.is_behind(first)) {
            // More than the overlap has gone: the place is further up.
            offset = offset.saturating_sub(limit);
            continue;
        }
        is_found = true;
        for thread in found {
            if place.is_behind(&thread) {
                offset += 1;
                continue;
            }
            if threads.len() >= query.limit {
                place.offset = offset;
                return Ok(ThreadPage { threads, next: Some(place) });
            }
            offset += 1;
            place.pass(&thread);
            if query.with_archived || !thread.is_archived() {
                threads.push(thread);
            }
        }
        if is_last {
            return Ok(ThreadPage { threads, next: None });
        }
    }
    place.offset = offset;
    Ok(ThreadPage { threads, next: Some(place) })
}

/// What the metadata of a thread has on which this agent ran: an assistant's id, or a graph.
fn mark_of(assistant: &str) -> Json {
    let name = if Uuid::try_parse(assistant).is_ok() { "assistant_id" } else { "graph_id" };
    ObjectWriter::new().string(name, assistant).finish()
}

/// When a thread was last changed, so that the later compares greater: servers leave out the zeros
/// at the end of a second's fraction. Empty if the server does not say.
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
    /// Whether the place is behind a thread, so that the thread was listed already.
    fn is_behind(&self, thread: &ThreadRecord) -> bool {
        let time = time_of(thread);
        let is_named = || id_of(thread).is_some_and(|id| self.ids.contains(&id));
        (!self.time.is_empty() && time > self.time) || (time == self.time && is_named())
    }

    /// Goes on behind a thread.
    fn pass(&mut self, thread: &ThreadRecord) {
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
        // Both servers keep counts in 32 bits or more.
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
    fn a_place_is_behind_what_was_passed_and_what_has_changed_since() {
        let mut place = ThreadCursor::default();
        assert!(!place.is_behind(&thread(1, "2026-11-22T10:00:00Z")));
        for (number, time) in
            [(1, "2026-11-22T10:00:05Z"), (2, "2026-11-22T10:00:04Z"), (3, "2026-11-22T10:00:04Z")]
        {
            place.pass(&thread(number, time));
        }
        for (number, time, is_behind) in [
            (1, "2026-11-22T10:00:05Z", true),
            (2, "2026-11-22T10:00:04Z", true),
            (3, "2026-11-22T10:00:04Z", true),
            (4, "2026-11-22T10:00:04Z", false),
            (5, "2026-11-22T10:00:03Z", false),
            (5, "2026-11-22T10:00:06Z", true),
        ] {
            assert_eq!(place.is_behind(&thread(number, time)), is_behind, "{number} {time}");
        }
        assert_eq!(place.to_string().parse(), Ok(place));
    }

    #[test]
    fn other_texts_are_no_cursors() {
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
        assert_eq!("t1~7~".parse::<ThreadCursor>().map(|place| place.offset), Ok(7));
    }
}
