//! A thread as one caller sees it.

use crate::upstream::{Client, UpstreamCredentials};
use threadway_translate::langgraph::MessagesKey;
use threadway_translate::run::EmitOptions;

/// A thread of one upstream, for one caller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct CallerThread {
    thread_id: String,
    access: UpstreamCredentials,
}

/// What the result of a look depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LookKey {
    thread: CallerThread,
    messages_key: MessagesKey,
    emit: EmitOptions,
}

// === impl CallerThread ===

impl CallerThread {
    pub(super) fn new(upstream: &Client, thread_id: &str) -> Self {
        Self { thread_id: thread_id.to_owned(), access: upstream.access() }
    }
}

// === impl LookKey ===

impl LookKey {
    pub(super) fn new(upstream: &Client, thread_id: &str, emit: EmitOptions) -> Self {
        let thread = CallerThread::new(upstream, thread_id);
        Self { thread, messages_key: upstream.messages_key().clone(), emit }
    }
}
