//! Threads and their states, over HTTP.

use std::borrow::Cow;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use http::Method;
use http::header::HeaderName;
use serde::Serialize;
use serde_json::value::RawValue;

use super::list::{ListKind, PageRange};
use super::prepared_request::PreparedRequest;
use super::{AnswerText, Client, Error};
use crate::metrics::Operation;
use threadway_translate::json::{self, Json};
use threadway_translate::langgraph::{
    RunError, ThreadMark, ThreadRecord, ThreadState, Unsupported,
};

/// The request header that asks for a short answer.
const PREFER: HeaderName = HeaderName::from_static("prefer");

/// The largest page of threads. Both servers reject a larger limit.
pub(crate) const MAX_THREAD_PAGE: usize = 1_000;

/// How many states one request reads for the last one of a run. Nearly always it is among the
/// newest.
const PAGE_STATES: usize = 20;

/// How many such pages are read.
const MAX_PAGES: usize = 5;

const STATES: &str = "a list of states";

/// Which threads to list.
#[derive(Clone, Copy, Debug)]
pub struct ThreadSearch<'a> {
    /// An object. A thread matches if its metadata has each of these members with the same value.
    pub metadata: &'a Json,
    /// The largest number of threads, from 1 to `MAX_THREAD_PAGE`.
    pub limit: usize,
    /// How many matching threads to skip.
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
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    select: &'a [&'a str],
}

/// The columns of a page of threads. The state is left out, since it may be large.
const COLUMNS: [&str; 4] = ["thread_id", "metadata", "status", "updated_at"];

/// The columns that change whenever anything happens on a thread.
const MARK_COLUMNS: [&str; 4] = ["thread_id", "status", "updated_at", "state_updated_at"];

/// [`MARK_COLUMNS`], and what shows whether a question is open.
const ACTIVITY_COLUMNS: [&str; 5] =
    ["thread_id", "status", "updated_at", "state_updated_at", "interrupts"];

/// [`COLUMNS`] with all times. The JavaScript server has no `state_updated_at` and leaves it out.
const DATED_COLUMNS: [&str; 6] =
    ["thread_id", "metadata", "status", "created_at", "updated_at", "state_updated_at"];

/// [`DATED_COLUMNS`], and what shows whether a question is open.
const LISTED_COLUMNS: [&str; 7] = [
    "thread_id",
    "metadata",
    "status",
    "created_at",
    "updated_at",
    "state_updated_at",
    "interrupts",
];

/// The body of `POST /threads/search` for threads with these ids.
#[derive(Serialize)]
struct ThreadsById<'a> {
    ids: &'a [&'a str],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    select: &'a [&'a str],
    limit: usize,
}

/// The body of `POST /threads/search` for the threads that changed last.
#[derive(Serialize)]
struct NewestThreads<'a> {
    sort_by: &'static str,
    sort_order: &'static str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    select: &'a [&'a str],
    limit: usize,
    offset: usize,
}

/// The body of `POST /threads/search` for any thread.
#[derive(Serialize)]
struct AnyThread {
    limit: usize,
}

/// The body of a PATCH that sets a thread's metadata.
#[derive(Serialize)]
struct Metadata<'a> {
    metadata: &'a Json,
}

/// The body of `POST /threads/{id}/state` that copies a checkpoint to the end of the thread.
#[derive(Serialize)]
struct CheckpointCopy<'a> {
    values: Option<()>,
    checkpoint_id: &'a str,
    /// LangGraph's name for a copy: no node has it.
    as_node: &'static str,
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

/// The body of `POST /threads` for a thread with a given id.
#[derive(Serialize)]
struct NewThread<'a> {
    thread_id: &'a str,
    if_exists: &'static str,
    metadata: &'a Json,
}

// === impl Client ===

impl Client {
    /// Why the last run of a thread failed. Only the Python server stores this.
    pub(crate) async fn thread_error(&self, thread_id: &str) -> Result<Option<RunError>, Error> {
        let body = self.get(Operation::ThreadRecord, &["threads", thread_id]).await?;
        Ok(body.read(|body| {
            let members: json::Members<'_> = serde_json::from_str(body).unwrap_or_default();
            let error = members.get("error").filter(|error| error.get() != "null");
            error.map(stored_error)
        }))
    }

    /// The JSON of a thread's newest state. `None` if the thread does not exist.
    ///
    /// While the thread waits for an answer below its root, the tasks that wait have the states of
    /// their subgraphs, as far as the server sends these.
    pub(crate) async fn thread_state(&self, thread_id: &str) -> Result<Option<AnswerText>, Error> {
        match self.find(Operation::ThreadState, &["threads", thread_id, "state"]).await {
            Ok(body) => Ok(Some(self.with_states_below(thread_id, one_line(body)).await)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether a thread has this checkpoint. Both servers answer for an unknown one too, with a state
    /// without metadata.
    pub(crate) async fn has_checkpoint(
        &self,
        thread_id: &str,
        checkpoint_id: &str,
    ) -> Result<bool, Error> {
        let path = ["threads", thread_id, "state", checkpoint_id];
        let state = self.find(Operation::ThreadState, &path).await?;
        let metadata = state.read(|state| {
            let members: json::Members<'_> = serde_json::from_str(state).ok()?;
            Some(members.get("metadata").is_some_and(|metadata| metadata.get() != "null"))
        });
        self.understood(metadata, "a thread's state")
    }

    /// The status and time of change of these threads, without those that the server hides from the
    /// caller.
    ///
    /// Takes 1 to [`MAX_THREAD_PAGE`] ids, each a UUID. The servers would list all threads for an
    /// empty list. The JavaScript server has no `state_updated_at` and leaves it out. Only
    /// `with_interrupts` do the marks tell a thread that waits from one whose run was cancelled.
    pub(crate) async fn thread_marks(
        &self,
        ids: &[&str],
        with_interrupts: bool,
    ) -> Result<Vec<ThreadMark>, Error> {
        let select: &[_] = if with_interrupts { &ACTIVITY_COLUMNS } else { &MARK_COLUMNS };
        let body = ThreadsById { ids, select, limit: ids.len() };
        let post = self.call(Operation::PollThreads, Method::POST, &["threads", "search"]);
        let body = post.json(&body).text().await?;
        self.understood(body.read(ThreadMark::parse_list), "a list of threads")
    }

    /// The status and time of change of the threads that changed last, from the newest on, after
    /// `offset` others.
    ///
    /// A server that cannot sort may answer with any order.
    pub(crate) async fn newest_threads(
        &self,
        offset: usize,
        limit: usize,
    ) -> Result<Vec<ThreadMark>, Error> {
        let call = |PageRange { offset, limit }, select| {
            let (sort_by, sort_order) = ("updated_at", "desc");
            let body = NewestThreads { sort_by, sort_order, select, limit, offset };
            self.call(Operation::PollThreads, Method::POST, &["threads", "search"]).json(&body)
        };
        let body =
            self.list(ListKind::Threads, &MARK_COLUMNS, PageRange { offset, limit }, call).await?;
        self.understood(body.read(ThreadMark::parse_list), "a list of threads")
    }

    /// Whether the server lets the caller list threads.
    pub(crate) async fn allows_thread_search(&self) -> Result<bool, Error> {
        match self.search_any_thread().await {
            Ok(()) => Ok(true),
            Err(error) if error.is_unauthorized() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Succeeds if the server lets the caller list threads.
    pub(crate) async fn search_any_thread(&self) -> Result<(), Error> {
        let post = self.call(Operation::Threads, Method::POST, &["threads", "search"]);
        post.json(&AnyThread { limit: 1 }).confirmed().await
    }

    /// The JSON of the last state that a run made. `None` if it made none.
    pub(crate) async fn last_run_state(
        &self,
        thread_id: &str,
        run_id: &str,
    ) -> Result<Option<AnswerText>, Error> {
        let search = HistorySearch { limit: 1, metadata: RunMetadata { run_id } };
        let post =
            self.call(Operation::ThreadHistory, Method::POST, &["threads", thread_id, "history"]);
        match post.json(&search).text().await {
            Ok(body) => {
                let last = body.read(|body| {
                    let states = states(body)?;
                    Some(states.first().map(|state| AnswerText::from(state.get().to_owned())))
                });
                Ok(self.understood(last, STATES)?.map(one_line))
            }
            Err(error) if error.shows(Unsupported::StatesOfRun) => {
                self.find_run_state(thread_id, run_id).await
            }
            Err(error) => Err(error),
        }
    }

    /// [`last_run_state`](Self::last_run_state), found among the thread's newest states. `None` also
    /// if it is older than these.
    async fn find_run_state(
        &self,
        thread_id: &str,
        run_id: &str,
    ) -> Result<Option<AnswerText>, Error> {
        let mut before: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let page = self.history_page(thread_id, before.as_deref(), PAGE_STATES).await?;
            let searched = page.read(|page| StateSearch::of(page, run_id));
            let StateSearch { found, count, oldest } = self.understood(searched, STATES)?;
            if let Some(state) = found {
                return Ok(Some(one_line(state.into())));
            }
            before = oldest;
            if count < PAGE_STATES || before.is_none() {
                break;
            }
        }
        Ok(None)
    }

    /// Creates a thread with this metadata, which must be an object, unless it exists. Returns
    /// `false` if the caller may not create threads.
    pub(crate) async fn create_thread(
        &self,
        thread_id: &str,
        metadata: &Json,
    ) -> Result<bool, Error> {
        let mut answer = self.post_thread(thread_id, metadata).await;
        if let Err(Error::Interrupted { .. }) = answer {
            // The second request changes nothing if the first has had its effect.
            answer = self.post_thread(thread_id, metadata).await;
        }
        match answer {
            Ok(_) => Ok(true),
            // A handler of LangGraph's `auth` chooses the status. A proxy may not have the route.
            Err(Error::Status { code: 401 | 403 | 404 | 405, .. }) => Ok(false),
            // The thread is somebody else's. Other requests get 404 for such a thread.
            Err(Error::Status { code: 409, detail, retry_after }) => {
                Err(Error::Status { code: 404, detail, retry_after })
            }
            Err(error) => Err(error),
        }
    }

    /// The JSON of a page of a thread's states, newest first, that are older than the checkpoint
    /// `before`.
    pub(crate) async fn history_page(
        &self,
        thread_id: &str,
        before: Option<&str>,
        limit: usize,
    ) -> Result<AnswerText, Error> {
        // GET, because the servers disagree about `before` in the body of a POST: the Python server
        // expects an object, the JavaScript server a string (langgraph-api 0.16.7 and 1.5.1).
        let mut url = self.base().join(&["threads", thread_id, "history"]);
        url.query_pairs_mut().append_pair("limit", &limit.to_string());
        if let Some(before) = before {
            url.query_pairs_mut().append_pair("before", before);
        }
        let call = self.call_url(Operation::ThreadHistory, Method::GET, url);
        call.about_thread(thread_id).text().await
    }

    /// Creates a thread with this metadata, which must be an object. Returns the thread as it is if
    /// it exists already: the answer to an earlier request may have been lost.
    pub async fn new_thread(
        &self,
        thread_id: &str,
        metadata: &Json,
    ) -> Result<ThreadRecord, Error> {
        let body = self.post_thread(thread_id, metadata).await?;
        self.understood(body.read(ThreadRecord::parse), "a thread")
    }

    async fn post_thread(&self, thread_id: &str, metadata: &Json) -> Result<AnswerText, Error> {
        let thread = NewThread { thread_id, if_exists: "do_nothing", metadata };
        let request = self.call(Operation::CreateThread, Method::POST, &["threads"]);
        request.json(&thread).text().await
    }

    /// The record of a thread. `None` if the thread does not exist.
    ///
    /// The server sends the whole state with it. [`Client::threads`] does not load states.
    pub async fn thread(&self, thread_id: &str) -> Result<Option<ThreadRecord>, Error> {
        match self.find(Operation::ThreadRecord, &["threads", thread_id]).await {
            Ok(body) => {
                let thread = body.read(|body| ThreadRecord::parse_under(self.messages_key(), body));
                self.understood(thread, "a thread").map(Some)
            }
            Err(error) if is_no_thread(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A page of threads without their states, last changed first.
    pub async fn threads(&self, search: &ThreadSearch<'_>) -> Result<Vec<ThreadRecord>, Error> {
        self.searched(search, &COLUMNS).await
    }

    /// A page of threads as [`threads`](Self::threads) lists them, with the times of creation and
    /// of the last change of the state.
    pub(crate) async fn dated_threads(
        &self,
        search: &ThreadSearch<'_>,
    ) -> Result<Vec<ThreadRecord>, Error> {
        self.searched(search, &DATED_COLUMNS).await
    }

    /// The same, with the questions that are open.
    pub(crate) async fn active_threads(
        &self,
        search: &ThreadSearch<'_>,
    ) -> Result<Vec<ThreadRecord>, Error> {
        self.searched(search, &LISTED_COLUMNS).await
    }

    /// A thread without its state, by its UUID. `None` if the thread does not exist, or the server
    /// hides it from the caller.
    pub(crate) async fn listed_thread(
        &self,
        thread_id: &str,
    ) -> Result<Option<ThreadRecord>, Error> {
        Ok(self.listed_threads(&[thread_id]).await?.into_iter().next())
    }

    /// Threads without their states, by their UUIDs: those that the server shows to the caller.
    pub(crate) async fn listed_threads(&self, ids: &[&str]) -> Result<Vec<ThreadRecord>, Error> {
        let page = PageRange { offset: 0, limit: ids.len() };
        let call = |PageRange { offset, limit }, select| {
            let ids = ids.get(offset..).unwrap_or_default();
            let ids = ids.get(..limit).unwrap_or(ids);
            self.search_threads(&ThreadsById { ids, select, limit })
        };
        let body = self.list(ListKind::Threads, &COLUMNS, page, call).await?;
        let threads = body.read(ThreadRecord::parse_list);
        let mut threads = self.understood(threads, "a list of threads")?;
        // A server that ignores `ids` lists other threads.
        threads.retain(|thread| ids.contains(&&*thread.id));
        Ok(threads)
    }

    async fn searched(
        &self,
        search: &ThreadSearch<'_>,
        columns: &'static [&'static str],
    ) -> Result<Vec<ThreadRecord>, Error> {
        let &ThreadSearch { metadata, limit, offset } = search;
        let page = PageRange { offset, limit: limit.clamp(1, MAX_THREAD_PAGE) };
        let call = |PageRange { offset, limit }, select| {
            self.search_threads(&ThreadSearchBody {
                metadata,
                limit,
                offset,
                // Not `state_updated_at`, which a change of the metadata would leave alone: only
                // the Python server has it, and the JavaScript server rejects it.
                sort_by: "updated_at",
                sort_order: "desc",
                select,
            })
        };
        let body = self.list(ListKind::Threads, columns, page, call).await?;
        self.understood(body.read(ThreadRecord::parse_list), "a list of threads")
    }

    fn search_threads(&self, body: &impl Serialize) -> PreparedRequest {
        self.call(Operation::Threads, Method::POST, &["threads", "search"]).json(body)
    }

    /// Replaces the members of a thread's metadata that this object has. Returns whether the thread
    /// exists.
    ///
    /// A null is stored as null: neither server can remove a member.
    pub async fn change_thread(&self, thread_id: &str, metadata: &Json) -> Result<bool, Error> {
        let patch = self.call(Operation::ChangeThread, Method::PATCH, &["threads", thread_id]);
        // Without this header the servers answer with the whole state. The JavaScript server does
        // so anyway; it is not read.
        let patch = patch.header(PREFER, "return=minimal")?;
        match patch.json(&Metadata { metadata }).allow_not_found().confirmed().await {
            Ok(()) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Copies a thread under a new id, with its checkpoints and its metadata. Its runs are not copied,
    /// and of a live run only the checkpoints that exist. `None` if the thread does not exist, or if
    /// the server hides it from the caller.
    pub async fn copy_thread(&self, thread_id: &str) -> Result<Option<ThreadRecord>, Error> {
        let copy = self.call(Operation::CopyThread, Method::POST, &["threads", thread_id, "copy"]);
        match copy.text().await {
            Ok(body) => self.understood(body.read(ThreadRecord::parse), "a thread").map(Some),
            // Both servers answer 409. A 404 would mean that the server has no such route.
            Err(Error::Status { code: 409, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes a copy of a checkpoint the newest of its thread. It has the same state and the same
    /// parent. A question of the checkpoint is not copied, and neither is the error of a task.
    pub(crate) async fn copy_checkpoint(
        &self,
        thread_id: &str,
        checkpoint_id: &str,
    ) -> Result<(), Error> {
        let path = ["threads", thread_id, "state"];
        let copy = CheckpointCopy { values: None, checkpoint_id, as_node: "__copy__" };
        let call = self.call(Operation::CopyCheckpoint, Method::POST, &path).json(&copy);
        call.text().await.map(drop)
    }

    /// Deletes a thread with its states and runs, live ones too. Returns whether the thread
    /// existed.
    pub async fn delete_thread(&self, thread_id: &str) -> Result<bool, Error> {
        let delete = self.call(Operation::DeleteThread, Method::DELETE, &["threads", thread_id]);
        match delete.allow_not_found().confirmed().await {
            Ok(()) => Ok(true),
            Err(error) if is_no_thread(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// A search for the state that a run made, in a page of states.
struct StateSearch {
    found: Option<String>,
    /// How many states the page has.
    count: usize,
    /// The id of the oldest checkpoint.
    oldest: Option<String>,
}

// === impl StateSearch ===

impl StateSearch {
    /// `None` if the page or one of its states is malformed.
    fn of(page: &str, run_id: &str) -> Option<Self> {
        let states = states(page)?;
        let mut search = Self { found: None, count: states.len(), oldest: None };
        for state in states {
            let parsed = ThreadState::parse(state.get())?;
            if parsed.run_id.as_deref() == Some(run_id) {
                search.found = Some(state.get().to_owned());
                break;
            }
            search.oldest = parsed.checkpoint_id.map(Cow::into_owned);
        }
        Some(search)
    }
}

fn states(body: &str) -> Option<Vec<&RawValue>> {
    serde_json::from_str(body).ok()
}

/// Whether there is no such thread, or no thread can have this id. The request has nothing but an id.
fn is_no_thread(error: &Error) -> bool {
    error.is_not_found() || error.shows(Unsupported::FormOfId)
}

/// The error in a thread's record. langgraph-api 0.7.0 stores its JSON in base64.
fn stored_error(error: &RawValue) -> RunError {
    let decoded = json::string(error).and_then(|text| {
        let mut bytes = vec![0; text.len()]; // the decoded text is shorter
        let length = BASE64_STANDARD.decode_slice(&*text, &mut bytes).ok()?;
        bytes.truncate(length);
        String::from_utf8(bytes).ok().filter(|decoded| decoded.starts_with('{'))
    });
    RunError::parse(decoded.as_deref().unwrap_or_else(|| error.get()))
}

/// Puts JSON on one line. A server may indent it, and the gateway sends states in frames of one
/// line.
pub(super) fn one_line(body: AnswerText) -> AnswerText {
    let line = body.read(|body| {
        body.contains('\n').then(|| {
            let mut line = String::with_capacity(body.len());
            json::compact(body, &mut line);
            AnswerText::from(line)
        })
    });
    line.unwrap_or(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_thread_is_read_from_json_and_from_base64() {
        let said = |error: &str| {
            let error = stored_error(serde_json::from_str(error).unwrap());
            (error.code, error.message)
        };
        let boom = ("ValueError".to_owned(), "boom".to_owned());
        assert_eq!(said(r#"{"error":"ValueError","message":"boom"}"#), boom);
        assert_eq!(said(r#""eyJlcnJvciI6IlZhbHVlRXJyb3IiLCJtZXNzYWdlIjoiYm9vbSJ9""#), boom);
        assert_eq!(said(r#""boom""#), ("Error".to_owned(), "boom".to_owned()));
        assert_eq!(said(r#""YWJj""#), ("Error".to_owned(), "YWJj".to_owned()));
    }

    #[test]
    fn an_indented_state_is_put_on_one_line() {
        let printed = "{\n  \"a\": [\n    1,\n    \"b \\n c\"\n  ]\n}";
        let on_one_line = |text: &str| one_line(AnswerText::from(text.to_owned())).into_string();
        assert_eq!(on_one_line(printed), r#"{"a":[1,"b \n c"]}"#);
        assert_eq!(on_one_line("{\"a\": 1}"), "{\"a\": 1}");
    }
}
