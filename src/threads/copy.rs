//! Copies a thread, with other metadata.

use uuid::Uuid;

use crate::upstream::{Client, Error, ThreadRecord};
use threadway_translate::json::{self, Json};
use threadway_translate::langgraph::ARCHIVED;

/// Why a thread was not copied.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The server has no such route.
    #[error(
        "the LangGraph server copies no threads: it answered {code} to `POST /threads/{{id}}/copy`"
    )]
    Unsupported {
        /// The status of its answer.
        code: u16,
    },
    /// Another request, or the copy itself, failed.
    #[error(transparent)]
    Upstream(#[from] Error),
}

/// Copies a thread, and replaces members of the copy's metadata by those that `change` makes of the
/// copy's metadata. Returns the id of the copy. `None` if the thread does not exist any more.
///
/// With a checkpoint, the copy goes on from there: its newest state is that of the checkpoint.
///
/// A copy that cannot be changed is deleted: lists would show it as its source. The copy of
/// an archived thread is not archived.
pub async fn copy(
    upstream: &Client,
    source: &ThreadRecord,
    checkpoint_id: Option<&str>,
    change: impl FnOnce(&Json) -> Json,
) -> Result<Option<String>, CopyError> {
    let copy = match upstream.copy_thread(&source.id).await {
        Ok(Some(copy)) => copy,
        Ok(None) => return Ok(None),
        Err(Error::Status { code: code @ (404 | 405), .. }) => {
            return Err(CopyError::Unsupported { code });
        }
        Err(error) => return Err(error.into()),
    };
    // The id becomes part of a path upstream.
    let is_uuid = Uuid::try_parse(&copy.id).is_ok_and(|id| id.hyphenated().to_string() == copy.id);
    if !is_uuid {
        return Err(Error::NotUnderstood { what: "the id of a copied thread" }.into());
    }
    let mut metadata = change(&copy.metadata);
    if copy.is_archived() {
        metadata = json::with_member(&metadata, ARCHIVED, &json::raw("false".to_owned()));
    }
    let changed = async {
        if let Some(checkpoint_id) = checkpoint_id {
            upstream.copy_checkpoint(&copy.id, checkpoint_id).await?;
        }
        upstream.change_thread(&copy.id, &metadata).await
    };
    let error = match changed.await {
        Ok(true) => return Ok(Some(copy.id)),
        Ok(false) => Error::NotUnderstood { what: "a copy of the thread" },
        Err(error) => error,
    };
    delete_copy(upstream, &copy.id).await;
    Err(error.into())
}

/// Deletes a copy that nobody uses.
pub async fn delete_copy(upstream: &Client, thread_id: &str) {
    if let Err(error) = upstream.delete_thread(thread_id).await {
        tracing::warn!(thread_id, %error, "the unused copy of a thread was not deleted");
    }
}
