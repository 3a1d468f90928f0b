//! `_threadway/prompt_end`: the end of a prompt whose connection was lost.
//!
//! A run goes on without its client. A client that has connected again and loaded the session is
//! shown the rest of the run, and learns here how the prompt has ended. It has named the prompt by
//! an id in `_meta.threadway.promptId` of `session/prompt`, a UUID. That is the name of the prompt's
//! first run and the id of the person's message in the thread, so any replica finds it.

use std::sync::Arc;
use std::time::Duration;

use agent_client_protocol_schema::v1::Meta;
use serde::Deserialize;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::link::ClientLink;
use super::position::META;
use super::session::{Session, Sessions};
use super::turn::{PromptTurn, UpdateFilter, Whose};
use threadway_translate::acp::rpc::{Code, Error};
use threadway_translate::acp::{StopReason, result_of};
use threadway_translate::json::Json;

/// How long a run that is not found may still be on its way through another replica.
const START_GRACE: Duration = Duration::from_secs(1);

/// The params of `_threadway/prompt_end`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PromptEndRequest {
    session_id: String,
    prompt_id: String,
    /// Whether the prompt's run is to be stopped.
    #[serde(default)]
    cancel: bool,
}

/// What `initialize` announces in the `_meta` of the agent's capabilities: this method, and the
/// largest message in bytes that the client may send.
pub(super) fn capability(message_bytes: Option<usize>) -> Meta {
    let limit = message_bytes.map(|bytes| ("maxMessageBytes".to_owned(), json!(bytes)));
    let ours: Meta = [("promptEnd".to_owned(), json!({}))].into_iter().chain(limit).collect();
    Meta::from_iter([(META.to_owned(), ours.into())])
}

/// Waits for the end of a prompt, in a session that is open on this connection. Answers as
/// `session/prompt` does.
pub(super) async fn prompt_end(
    link: &ClientLink,
    sessions: &Sessions,
    request: PromptEndRequest,
) -> Result<Json, Error> {
    let PromptEndRequest { session_id, prompt_id, cancel } = request;
    let session = sessions.get(&session_id)?;
    if !has_run(link, &session, &prompt_id).await? {
        link.service().waiting_prompts.revoke(&session_id, &prompt_id);
        tokio::time::sleep(START_GRACE).await;
        if !has_run(link, &session, &prompt_id).await? {
            let message = format!("session `{session_id}` has no run of prompt `{prompt_id}`");
            return Err(Error::new(Code::NotFound, message));
        }
    }
    if cancel {
        // By its name: the session may show a run of others.
        let upstream = link.upstream();
        let stopped = link.service().threads.stop(&upstream, &session_id, Some(&prompt_id)).await;
        stopped.map_err(|error| link.failed(&error))?;
    }
    let ended = session.detached().run_until_cancelled(Box::pin(end_of(link, &session))).await;
    // The session was closed.
    result_of(ended.unwrap_or(Ok(StopReason::Cancelled))?)
}

async fn has_run(link: &ClientLink, session: &Session, prompt_id: &str) -> Result<bool, Error> {
    if !session.has_thread().await {
        return Ok(false);
    }
    let service = link.service();
    let client = &link.upstream();
    let found = service.threads.has_run(client, &session.id, prompt_id).await;
    found.map_err(|error| link.failed(&error))
}

/// How the run ends that the session shows. If it shows none, the run has ended, or has begun since
/// the session was loaded.
async fn end_of(link: &ClientLink, session: &Arc<Session>) -> Result<StopReason, Error> {
    // Waits for the run that is being shown.
    let mut view = Arc::clone(&session.view).lock_owned().await;
    if let Some(ended) = view.ended.take() {
        return ended;
    }
    let stop = CancellationToken::new();
    session.show(&stop);
    let turn = PromptTurn::new(link.clone(), Arc::clone(session), stop, None);
    let reader = link.read(session).await?;
    let (reader, outcome) =
        turn.send_history(&mut view, reader, UpdateFilter::All, Whose::Own).await?;
    if let Some(outcome) = &outcome
        && let Some(ended) = super::turn::end_of_idle(outcome)
    {
        return ended;
    }
    turn.follow_without_prompt(view, reader, outcome).await;
    session.view.lock().await.ended.take().unwrap_or(Ok(StopReason::EndTurn))
}
