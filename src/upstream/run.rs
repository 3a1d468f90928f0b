//! Runs: started, joined, listed and cancelled over HTTP.

use http::Method;
use http::header::HeaderName;
use serde::de::IgnoredAny;
use url::Url;
use uuid::Uuid;

use super::list::{ListKind, PageRange};
use super::{AnswerText, Body, Client, Error, OnThreadNotFound, RunStream};
use crate::metrics::Operation;
use crate::offload::offload;
use threadway_translate::json;
use threadway_translate::langgraph::{NewestRuns, RunRecord, RunRequest, Unsupported};

/// The request header with the event after which a stream is joined.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// How many live runs of a thread are listed. One of them runs, the others wait.
const MAX_LIVE_RUNS: usize = 100;

/// The columns of a list of runs. `kwargs` is left out: it holds the whole input of a run, with
/// pictures.
const RUN_COLUMNS: [&str; 4] = ["run_id", "status", "created_at", "metadata"];

/// The same with the inputs of the runs.
const RUN_AND_INPUT_COLUMNS: [&str; 5] = ["run_id", "status", "created_at", "metadata", "kwargs"];

/// Which runs of a thread are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunFilter {
    /// Runs that wait for their turn.
    Pending,
    /// The run that is executing.
    Running,
    /// Runs of any status.
    Any {
        /// The largest number of runs.
        limit: usize,
    },
}

/// Whether the server shows a thread to a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visibility {
    /// The server listed the thread's runs to the caller.
    Visible,
    /// The thread does not exist, or is hidden from the caller.
    Hidden,
}

// === impl Client ===

impl Client {
    /// Starts a run. The run goes on in LangGraph if the stream is dropped.
    pub async fn start_run(
        &self,
        thread_id: &str,
        request: &RunRequest,
    ) -> Result<RunStream, Error> {
        let path = ["threads", thread_id, "runs", "stream"];
        let call = self.call(Operation::StartRun, Method::POST, &path);
        offload(request.bytes(), || call.json(request)).stream().await
    }

    /// Joins the stream of a live run after an event id. `-1` joins at the beginning.
    pub async fn join_run(
        &self,
        thread_id: &str,
        run_id: &str,
        last_event_id: &str,
    ) -> Result<RunStream, Error> {
        let path = ["threads", thread_id, "runs", run_id, "stream"];
        let call = self.call(Operation::JoinRun, Method::GET, &path);
        let mut stream = call.header(LAST_EVENT_ID, last_event_id)?.stream().await?;
        // The JavaScript server names the run only in the response that started it.
        stream.run_id = Some(run_id.to_owned());
        Ok(stream)
    }

    /// The record of a run that exists.
    pub(crate) async fn run_record(
        &self,
        thread_id: &str,
        run_id: &str,
    ) -> Result<RunRecord, Error> {
        let body = self.get(Operation::RunRecord, &["threads", thread_id, "runs", run_id]).await?;
        self.understood(body.read(RunRecord::parse), "a run")
    }

    /// The record of a run, by an id that a client has sent. `None` if the thread has no such run,
    /// or the server hides it from the caller.
    pub(crate) async fn find_run(
        &self,
        thread_id: &str,
        run_id: &str,
    ) -> Result<Option<RunRecord>, Error> {
        // LangGraph's run ids are UUIDs. Another text, such as `..`, may change the URL's path.
        if Uuid::try_parse(run_id).is_err() {
            return Ok(None);
        }
        let path = ["threads", thread_id, "runs", run_id];
        match self.find(Operation::RunRecord, &path).await {
            Ok(body) => {
                let (is_of_thread, record) = body.read(|body| {
                    let members: json::Members<'_> = serde_json::from_str(body).unwrap_or_default();
                    let thread = members.string("thread_id");
                    (thread.is_none_or(|thread| thread == thread_id), RunRecord::parse(body))
                });
                let record = self.understood(record, "a run")?;
                Ok(Some(record).filter(|record| is_of_thread && record.id == run_id))
            }
            Err(error) if error.is_not_found() || error.shows(Unsupported::FormOfId) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether the server shows a thread to the caller.
    ///
    /// A thread that is not found is an error for a caller whose unknown threads are refused: it
    /// may belong to somebody else.
    pub(crate) async fn visibility(&self, thread_id: &str) -> Result<Visibility, Error> {
        match self.run_list(thread_id, None, 1, &["run_id"]).await {
            Ok(list) if list.read(is_empty) => self.visibility_of_record(thread_id).await,
            Ok(_) => Ok(Visibility::Visible),
            Err(error) if self.reads_as_empty(&error) => Ok(Visibility::Hidden),
            Err(error) => Err(error),
        }
    }

    /// [`visibility`](Self::visibility), by the thread's record. Not every server hides the runs of a
    /// hidden thread: aegra lists none, as for a thread without runs (aegra-api 0.11.0).
    async fn visibility_of_record(&self, thread_id: &str) -> Result<Visibility, Error> {
        match self.find(Operation::ThreadRecord, &["threads", thread_id]).await {
            Ok(_) => Ok(Visibility::Visible),
            Err(error) if self.reads_as_empty(&error) => Ok(Visibility::Hidden),
            Err(error) => Err(error),
        }
    }

    /// Fails if the server hides a thread that has no state and no runs.
    pub(super) async fn check_record(&self, thread_id: &str) -> Result<(), Error> {
        if self.caller().unknown_thread() == OnThreadNotFound::Refused {
            self.visibility_of_record(thread_id).await?;
        }
        Ok(())
    }

    /// Whether an error means that the thread is empty for this caller.
    fn reads_as_empty(&self, error: &Error) -> bool {
        error.is_not_found() && self.caller().unknown_thread() == OnThreadNotFound::Empty
    }

    /// The newest runs of a thread, newest first. Empty if there is no such thread, unless unknown
    /// threads are refused.
    ///
    /// The JavaScript server lists the oldest first (langgraph-api 1.5.1). If the thread has more
    /// runs than the limit, its newest finished runs are then missing.
    ///
    /// The runs lack their input, except on the JavaScript server: see [`Client::whole_run`].
    pub(crate) async fn runs(
        &self,
        thread_id: &str,
        filter: RunFilter,
    ) -> Result<Vec<RunRecord>, Error> {
        let (status, limit) = match filter {
            RunFilter::Pending => (Some("pending"), MAX_LIVE_RUNS),
            RunFilter::Running => (Some("running"), MAX_LIVE_RUNS),
            RunFilter::Any { limit } => (None, limit),
        };
        Ok(self.runs_with(thread_id, status, limit, &RUN_COLUMNS).await?.unwrap_or_default())
    }

    /// The newest runs of any status, newest first, with their inputs.
    pub(crate) async fn runs_with_inputs(
        &self,
        thread_id: &str,
        limit: usize,
    ) -> Result<Vec<RunRecord>, Error> {
        let runs = self.runs_with(thread_id, None, limit, &RUN_AND_INPUT_COLUMNS).await?;
        Ok(runs.unwrap_or_default())
    }

    /// Lists runs of any status as [`runs`](Self::runs) does, and checks the visibility with the
    /// same request: `None` is [`Visibility::Hidden`].
    pub(crate) async fn runs_if_visible(
        &self,
        thread_id: &str,
        limit: usize,
    ) -> Result<Option<Vec<RunRecord>>, Error> {
        self.runs_with(thread_id, None, limit, &RUN_COLUMNS).await
    }

    async fn runs_with(
        &self,
        thread_id: &str,
        status: Option<&str>,
        limit: usize,
        columns: &[&str],
    ) -> Result<Option<Vec<RunRecord>>, Error> {
        match self.run_list(thread_id, status, limit, columns).await {
            Ok(body) => {
                let runs = body.read(RunRecord::parse_list);
                self.understood(runs, "a list of runs").map(Some)
            }
            Err(error) if self.reads_as_empty(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The newest runs of a thread that have begun, in whatever order the server lists them. `None`
    /// if the list may lack the newest.
    pub(crate) async fn newest_runs(&self, thread_id: &str) -> Result<Option<NewestRuns>, Error> {
        let body = self.run_list(thread_id, None, NewestRuns::LIMIT, &RUN_COLUMNS).await?;
        self.understood(body.read(NewestRuns::parse), "a list of runs")
    }

    /// The record of a listed run, with the run's input.
    ///
    /// Returns the run as it was listed if its record is gone. Reading the run then reports that.
    pub(crate) async fn whole_run(
        &self,
        thread_id: &str,
        listed: RunRecord,
    ) -> Result<RunRecord, Error> {
        if listed.has_request {
            return Ok(listed);
        }
        match self.run_record(thread_id, &listed.id).await {
            Err(error) if error.is_not_found() => Ok(listed),
            record => record,
        }
    }

    /// The text of a list of runs with these columns. A server that rejects `select` sends all
    /// columns.
    async fn run_list(
        &self,
        thread_id: &str,
        status: Option<&str>,
        limit: usize,
        columns: &[&str],
    ) -> Result<AnswerText, Error> {
        let call = |page: PageRange, columns: &[&str]| {
            let url = self.run_list_url(thread_id, status, page, columns);
            let call = self.call_url(Operation::Runs, Method::GET, url);
            call.about_thread(thread_id).allow_not_found()
        };
        self.list(ListKind::Runs, columns, PageRange { offset: 0, limit }, call).await
    }

    /// The Python server expects one `select` for each column, and rejects a comma-separated list
    /// (langgraph-api 0.16.7).
    fn run_list_url(
        &self,
        thread_id: &str,
        status: Option<&str>,
        page: PageRange,
        columns: &[&str],
    ) -> Url {
        let mut url = self.base().join(&["threads", thread_id, "runs"]);
        let mut query = url.query_pairs_mut();
        if let Some(status) = status {
            query.append_pair("status", status);
        }
        query.append_pair("limit", &page.limit.to_string());
        if page.offset > 0 {
            query.append_pair("offset", &page.offset.to_string());
        }
        query.extend_pairs(columns.iter().map(|column| ("select", column)));
        drop(query);
        url
    }

    /// The thread's lifecycle stream, which has an event whenever a run begins or ends. `None` if
    /// the server has no such stream, as the JavaScript server.
    pub(crate) async fn thread_lifecycle(&self, thread_id: &str) -> Result<Option<Body>, Error> {
        let mut url = self.base().join(&["threads", thread_id, "stream"]);
        url.query_pairs_mut().append_pair("stream_modes", "lifecycle");
        let call = self.call_url(Operation::ThreadLifecycle, Method::GET, url);
        match call.about_thread(thread_id).allow_not_found().stream().await {
            Ok(stream) => Ok(Some(stream.body)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Cancels a run. What it has committed stays. Returns whether there was such a run.
    pub async fn cancel_run(&self, thread_id: &str, run_id: &str) -> Result<bool, Error> {
        // No `wait`: the JavaScript server reads any value of it as true.
        let path = ["threads", thread_id, "runs", run_id, "cancel"];
        let call = self.call(Operation::CancelRun, Method::POST, &path);
        match call.allow_not_found().text().await {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Whether a list has no item.
fn is_empty(list: &str) -> bool {
    serde_json::from_str::<Vec<IgnoredAny>>(list).is_ok_and(|items| items.is_empty())
}
