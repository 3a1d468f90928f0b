//! The states of a thread's subgraphs, while they wait for an answer.
//!
//! A thread's state has nothing of them. It names the tasks that wait, and the server sends the states
//! of those that it knows to be subgraphs if it is asked for them. It does not know one that a tool
//! or a function has called, but sends its state for the namespace of the task.

use std::collections::HashSet;

use http::Method;
use serde::Serialize;

use super::thread::one_line;
use super::{AnswerText, Client, Error};
use crate::metrics::Operation;
use threadway_translate::langgraph::{StatesBelow, ThreadState, Unsupported, with_state};

/// How many states of namespaces are read for one thread. A deep agent starts about five subagents
/// at once.
const MAX_NAMESPACES: usize = 16;

/// The body of `POST /threads/{id}/state/checkpoint`.
#[derive(Serialize)]
struct StateAtCheckpointRequest<'a> {
    checkpoint: Namespace<'a>,
}

#[derive(Serialize)]
struct Namespace<'a> {
    checkpoint_ns: &'a str,
}

// === impl Client ===

impl Client {
    /// A thread's state, with those of the tasks that wait. Without those that the server does not
    /// send: the thread is then shown without them.
    pub(super) async fn with_states_below(&self, thread_id: &str, state: AnswerText) -> AnswerText {
        let mut state = state;
        let mut has_asked_for_all = false;
        let mut asked = HashSet::new();
        loop {
            let below = state.read(|state| StatesBelow::of(state, self.messages_key()));
            let read = match below {
                StatesBelow::Lacking if !has_asked_for_all => {
                    has_asked_for_all = true;
                    self.state_with_subgraphs(thread_id).await
                }
                StatesBelow::Whole | StatesBelow::Lacking => return state,
                StatesBelow::Hidden(namespaces) => {
                    let next = namespaces.into_iter().find(|next| !asked.contains(next));
                    let Some(next) = next.filter(|_| asked.len() < MAX_NAMESPACES) else {
                        return state;
                    };
                    let read = self.state_below(thread_id, &next).await;
                    let read =
                        read.map(|inner| inner.and_then(|inner| added(&state, &next, &inner)));
                    asked.insert(next);
                    read
                }
            };
            match read {
                Ok(Some(whole)) => state = whole,
                Ok(None) => {}
                Err(error) => {
                    tracing::debug!(thread_id, %error, "read no states of a thread's subgraphs");
                    return state;
                }
            }
        }
    }

    /// The thread's state with those of its subgraphs.
    async fn state_with_subgraphs(&self, thread_id: &str) -> Result<Option<AnswerText>, Error> {
        let mut url = self.base().join(&["threads", thread_id, "state"]);
        url.query_pairs_mut().append_pair("subgraphs", "true");
        let call = self.call_url(Operation::ThreadState, Method::GET, url);
        Ok(Some(one_line(call.about_thread(thread_id).text().await?)))
    }

    /// The state of a namespace. `None` if the server has none for it.
    async fn state_below(
        &self,
        thread_id: &str,
        namespace: &str,
    ) -> Result<Option<AnswerText>, Error> {
        let path = ["threads", thread_id, "state", "checkpoint"];
        let post = self.call(Operation::ThreadState, Method::POST, &path);
        let at = StateAtCheckpointRequest { checkpoint: Namespace { checkpoint_ns: namespace } };
        let answer = match post.allow_not_found().json(&at).text().await {
            Err(error) if error.shows(Unsupported::StateOfNamespace) => {
                let mut url = self.base().join(&["threads", thread_id, "state"]);
                url.query_pairs_mut().append_pair("checkpoint_ns", namespace);
                let call = self.call_url(Operation::ThreadState, Method::GET, url);
                call.about_thread(thread_id).text().await
            }
            answer => answer,
        };
        match answer {
            Ok(state) => Ok(Some(one_line(state))),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// A thread's state with that of a namespace. `None` if the latter is of another one, or of none: a
/// node that asks by itself has no state of its own.
fn added(state: &AnswerText, namespace: &str, inner: &AnswerText) -> Option<AnswerText> {
    let is_of_namespace = inner.read(|inner| {
        let read = ThreadState::parse(inner)?;
        Some(read.checkpoint_id.is_some() && read.namespace.as_deref() == Some(namespace))
    });
    if is_of_namespace != Some(true) {
        return None;
    }
    let whole = state.read(|state| inner.read(|inner| with_state(state, namespace, inner)));
    whole.map(AnswerText::from)
}
