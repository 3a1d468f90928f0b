//! Threads and their states, over HTTP.

use http::Method;
use serde::Serialize;
use serde_json::value::RawValue;

use super::{Client, Error, PREFER, answer, answered, with_json};
use crate::metrics::Operation;
use threadway_translate::json::{self, Json, ObjectWriter};
use threadway_translate::langgraph::{CLIENT_THREAD_ID, RunError, ThreadMark, ThreadRecord};

/// The largest page of threads: both servers refuse to look for more.
pub const MAX_THREAD_PAGE: usize = 1_000;

/// Which threads are looked for.
#[derive(Clone, Copy, Debug)]
pub struct ThreadSearch<'a> {
    /// What their metadata has: an object, each member of which is to be there with this value.
    pub metadata: &'a Json,
    /// How many at most; within 1 and [`MAX_THREAD_PAGE`].
    pub limit: usize,
    /// How many are passed over.
    pub offset: usize,
}

/// The body of `POST /threads/search`.
#[derive(Serialize)]
struct ThreadSearchBody<'a> {
    metadata: &'a Json,
    limit: usize,
    offset: usize,
    sort_by: &'static str,
    sort_order: &'static str,
    select: &'static [&'static str],
}

/// What is asked of each thread of a page: not its state, which may be large.
const COLUMNS: [&str; 4] = ["thread_id", "metadata", "status", "updated_at"];

/// The same, with all times. The JavaScript server knows no `state_updated_at` and leaves it out.
const DATED_COLUMNS: [&str; 6] =
    ["thread_id", "metadata", "status", "created_at", "updated_at", "state_updated_at"];

/// The body of `POST /threads/search` for threads of these ids.
#[derive(Serialize)]
struct ThreadMarks<'a> {
    ids: &'a [&'a str],
    select: [&'static str; 4],
    limit: usize,
}

/// The body of `POST /threads/search` for any thread at all.
#[derive(Serialize)]
struct AnyThread {
    limit: usize,
}

/// A thread's metadata: the body of a POST and of a PATCH.
#[derive(Serialize)]
struct Metadata<'a> {
    metadata: &'a Json,
}

/// The body of `POST /threads/{id}/history`.
#[derive(Serialize)]
struct HistorySearch<'a> {
    limit: usize,
    metadata: RunMetadata<'a>,
}

#[derive(Serialize)]
struct RunMetadata<'a> {
    run_id: &'a str,
}

/// The body of `POST /threads` for a thread that the client has named.
#[derive(Serialize)]
struct NewThread<'a> {
    thread_id: &'a str,
    if_exists: &'static str,
    metadata: Json,
}

// === impl Client ===

impl Client {
    /// Why the last run of a thread failed, where the server keeps it: only the Python one does.
    pub async fn thread_error(&self, thread_id: &str) -> Result<Option<RunError>, Error> {
        let body = self.get(Operation::ThreadRecord, &["threads", thread_id]).await?;
        let members: json::Members<'_> = serde_json::from_str(&body).unwrap_or_default();
        let error = members.get("error").filter(|error| error.get() != "null");
        Ok(error.map(|error| RunError::parse(error.get())))
    }

    /// The thread's newest state as the server sends it; `None` for a thread that is not there.
    pub async fn thread_state(&self, thread_id: &str) -> Result<Option<String>, Error> {
        match self.find(Operation::ThreadState, &["threads", thread_id, "state"]).await {
            Ok(body) => Ok(Some(one_line(body))),
            Err(Error::Status { code: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// How far these threads are, of those that the server shows to the caller: at most
    /// [`MAX_THREAD_PAGE`] ids, each a UUID, and at least one, since the servers take an empty list
    /// for no condition.
    ///
    /// The JavaScript server knows no `state_updated_at` and leaves it out.
    pub async fn thread_marks(&self, ids: &[&str]) -> Result<Vec<ThreadMark>, Error> {
        let body = ThreadMarks {
            ids,
            select: ["thread_id", "status", "updated_at", "state_updated_at"],
            limit: ids.len(),
        };
        let post = self.request(Operation::PollThreads, Method::POST, &["threads", "search"]);
        let body = answer(with_json(post, &body)).await?;
        ThreadMark::parse_list(&body).ok_or(Error::NotUnderstood { what: "a list of threads" })
    }

    /// Whether the server lets the caller look for threads. What it finds is not read.
    pub async fn lets_in(&self) -> Result<bool, Error> {
        let post = self.request(Operation::Threads, Method::POST, &["threads", "search"]);
        match answered(with_json(post, &AnyThread { limit: 1 })).await {
            Ok(()) => Ok(true),
            Err(error) if error.is_unauthorized() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The last state that a run has made, as the server sends it.
    pub async fn last_state_of(
        &self,
        thread_id: &str,
        run_id: &str,
    ) -> Result<Option<String>, Error> {
        let search = HistorySearch { limit: 1, metadata: RunMetadata { run_id } };
        let post = self.request(
            Operation::ThreadHistory,
            Method::POST,
            &["threads", thread_id, "history"],
        );
        let body = answer(with_json(post, &search)).await?;
        let states: Vec<&RawValue> = serde_json::from_str(&body)
            .map_err(|_| Error::NotUnderstood { what: "a list of states" })?;
        Ok(states.first().map(|state| one_line(state.get().to_owned())))
    }

    /// Creates a thread, if it is not there, that remembers the client's name for it.
    pub async fn create_thread(
        &self,
        thread_id: &str,
        client_thread_id: &str,
    ) -> Result<(), Error> {
        let thread = NewThread {
            thread_id,
            if_exists: "do_nothing",
            metadata: ObjectWriter::new().string(CLIENT_THREAD_ID, client_thread_id).finish(),
        };
        let request = self.request(Operation::CreateThread, Method::POST, &["threads"]);
        match answer(with_json(request, &thread)).await {
            Ok(_) => Ok(()),
            // It is somebody else's, which elsewhere is not found.
            Err(Error::Status { code: 409, detail, retry_after }) => {
                Err(Error::Status { code: 404, detail, retry_after })
            }
            Err(error) => Err(error),
        }
    }

    /// A page of the thread's states as the server sends it, newest first, from the one before
    /// `before` on.
    pub async fn history_page(
        &self,
        thread_id: &str,
        before: Option<&str>,
        limit: usize,
    ) -> Result<String, Error> {
        // As a GET: in a POST's body the Python server wants `before` as an object, and the
        // JavaScript one as a string (langgraph-api 0.16.7 and 2.0.0).
        let mut url = self.url(&["threads", thread_id, "history"]);
        url.query_pairs_mut().append_pair("limit", &limit.to_string());
        if let Some(before) = before {
            url.query_pairs_mut().append_pair("before", before);
        }
        answer(self.request_to(Operation::ThreadHistory, Method::GET, url)).await
    }

    /// Creates a thread with this metadata, an object. The server gives it its id.
    pub async fn new_thread(&self, metadata: &Json) -> Result<ThreadRecord, Error> {
        let request = self.request(Operation::CreateThread, Method::POST, &["threads"]);
        let body = answer(with_json(request, &Metadata { metadata })).await?;
        ThreadRecord::parse(&body).ok_or(Error::NotUnderstood { what: "a thread" })
    }

    /// The record of a thread; `None` for one that is not there.
    ///
    /// The server sends its whole state along: [`Client::threads`] does without.
    pub async fn thread(&self, thread_id: &str) -> Result<Option<ThreadRecord>, Error> {
        match self.find(Operation::ThreadRecord, &["threads", thread_id]).await {
            Ok(body) => match ThreadRecord::parse_under(&self.messages_key, &body) {
                Some(thread) => Ok(Some(thread)),
                None => Err(Error::NotUnderstood { what: "a thread" }),
            },
            Err(error) if is_no_thread(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A page of the threads with some metadata, the last changed first, without their states.
    pub async fn threads(&self, search: &ThreadSearch<'_>) -> Result<Vec<ThreadRecord>, Error> {
        self.searched(search, &COLUMNS).await
    }

    /// The same, with the time at which each was made, and at which a run last changed its state.
    pub async fn dated_threads(
        &self,
        search: &ThreadSearch<'_>,
    ) -> Result<Vec<ThreadRecord>, Error> {
        self.searched(search, &DATED_COLUMNS).await
    }

    /// The thread of an id, which is a UUID, without its state; `None` if the server has none, or
    /// does not show it to the caller.
    pub async fn listed_thread(&self, thread_id: &str) -> Result<Option<ThreadRecord>, Error> {
        let body = ThreadMarks { ids: &[thread_id], select: COLUMNS, limit: 1 };
        let post = self.request(Operation::Threads, Method::POST, &["threads", "search"]);
        let body = answer(with_json(post, &body)).await?;
        let threads = ThreadRecord::parse_list(&body);
        let threads = threads.ok_or(Error::NotUnderstood { what: "a list of threads" })?;
        // A server that does not know `ids` would list any.
        Ok(threads.into_iter().find(|thread| thread.id == thread_id))
    }

    async fn searched(
        &self,
        search: &ThreadSearch<'_>,
        select: &'static [&'static str],
    ) -> Result<Vec<ThreadRecord>, Error> {
        let &ThreadSearch { metadata, limit, offset } = search;
        let body = ThreadSearchBody {
            metadata,
            limit: limit.clamp(1, MAX_THREAD_PAGE),
            offset,
            // The Python server knows a newer `state_updated_at`, which a change of the metadata
            // leaves; the JavaScript one refuses it.
            sort_by: "updated_at",
            sort_order: "desc",
            select,
        };
        let post = self.request(Operation::Threads, Method::POST, &["threads", "search"]);
        let body = answer(with_json(post, &body)).await?;
        ThreadRecord::parse_list(&body).ok_or(Error::NotUnderstood { what: "a list of threads" })
    }

    /// Changes a thread's metadata: each member of this object takes the place of the one of its
    /// name, and the others stay. Returns whether there is such a thread.
    ///
    /// A null is kept as one: neither server can take a member out.
    pub async fn change_thread(&self, thread_id: &str, metadata: &Json) -> Result<bool, Error> {
        let patch = self.request(Operation::ChangeThread, Method::PATCH, &["threads", thread_id]);
        // Else the whole state comes back. The JavaScript server sends it all the same, and it is
        // not read.
        let patch = patch.header(PREFER, "return=minimal")?;
        match answered(with_json(patch, &Metadata { metadata }).that_may_be_absent()).await {
            Ok(()) => Ok(true),
            Err(Error::Status { code: 404, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Deletes a thread, with its runs, its states and what is under way. Returns whether it was
    /// there.
    pub async fn delete_thread(&self, thread_id: &str) -> Result<bool, Error> {
        let delete = self.request(Operation::DeleteThread, Method::DELETE, &["threads", thread_id]);
        match answered(delete.that_may_be_absent()).await {
            Ok(()) => Ok(true),
            Err(error) if is_no_thread(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Whether the server says that there is no such thread, or that no thread can have this id: the
/// Python server takes UUIDs in any form and answers 422, the JavaScript one those with dashes,
/// and answers 400. Nothing else can be wrong with a request that is nothing but an id.
fn is_no_thread(error: &Error) -> bool {
    matches!(error, Error::Status { code: 404 | 400 | 422, .. })
}

/// The JavaScript server prints over many lines, and what is kept of a state goes out in frames
/// and documents of one line.
fn one_line(body: String) -> String {
    if !body.contains('\n') {
        return body;
    }
    let mut line = String::with_capacity(body.len());
    json::compact(&body, &mut line);
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_that_is_printed_over_many_lines_becomes_one() {
        let printed = "{\n  \"a\": [\n    1,\n    \"b \\n c\"\n  ]\n}";
        assert_eq!(one_line(printed.to_owned()), r#"{"a":[1,"b \n c"]}"#);
        assert_eq!(one_line("{\"a\": 1}".to_owned()), "{\"a\": 1}");
    }
}
