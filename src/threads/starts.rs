//! Runs that are being started: from a client's request until LangGraph has answered it.
//!
//! LangGraph does not list such a run yet. A stop that finds no run waits here until the run is
//! listed.

use std::collections::HashMap;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::key::CallerThread;
use crate::sync::{Guard, Mutex};
use crate::upstream::Client;

/// The runs that are being started. Each belongs to a request in progress, so `limits.connections`
/// bounds them. Clones share them.
///
/// They are listed per caller: the duration of a stop must not reveal what others start.
#[derive(Clone, Debug, Default)]
pub(super) struct Starts(Arc<Mutex<HashMap<CallerThread, Vec<PendingStart>>>>);

/// A run that is being started.
#[derive(Clone, Debug)]
pub(super) struct PendingStart {
    /// The client's id of the run.
    pub(super) name: Arc<str>,
    ended: CancellationToken,
}

/// Lists a run in [`Starts`] until this is dropped.
#[derive(Debug)]
pub(super) struct StartGuard {
    starts: Starts,
    key: CallerThread,
    start: PendingStart,
}

// === impl Starts ===

impl Starts {
    pub(super) fn begin(&self, upstream: &Client, thread_id: &str, name: &str) -> StartGuard {
        let key = CallerThread::new(upstream, thread_id);
        let start = PendingStart { name: Arc::from(name), ended: CancellationToken::new() };
        self.lock().entry(key.clone()).or_default().push(start.clone());
        StartGuard { starts: self.clone(), key, start }
    }

    /// The runs of a thread that are being started, oldest first. With a `name`, those with this id
    /// of the client.
    pub(super) fn of(
        &self,
        upstream: &Client,
        thread_id: &str,
        name: Option<&str>,
    ) -> Vec<PendingStart> {
        let starts = self.lock();
        let all = starts.get(&CallerThread::new(upstream, thread_id)).into_iter().flatten();
        let is_wanted = |start: &&PendingStart| name.is_none_or(|name| *start.name == *name);
        all.filter(is_wanted).cloned().collect()
    }

    fn lock(&self) -> Guard<'_, HashMap<CallerThread, Vec<PendingStart>>> {
        self.0.lock()
    }
}

// === impl PendingStart ===

impl PendingStart {
    /// Waits until LangGraph has answered the request, or the request was given up.
    pub(super) async fn ended(&self) {
        self.ended.cancelled().await;
    }
}

// === impl StartGuard ===

impl Drop for StartGuard {
    fn drop(&mut self) {
        let Self { starts, key, start } = self;
        start.ended.cancel();
        let mut starts = starts.lock();
        if let Some(of_thread) = starts.get_mut(key) {
            of_thread.retain(|start| !start.ended.is_cancelled());
            if of_thread.is_empty() {
                starts.remove(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http::header::AUTHORIZATION;
    use http::{HeaderMap, HeaderValue};

    use super::*;
    use crate::upstream::Caller;

    #[test]
    fn a_start_is_known_to_its_caller_alone() {
        let client = Client::new("http://h".parse().unwrap(), None).unwrap();
        let called_by = |key| {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static(key))]);
            client.called_by(&Caller::new(headers))
        };
        let (alice, bob, starts) = (called_by("alice"), called_by("bob"), Starts::default());
        let _start = starts.begin(&alice, "t", "a");
        assert_eq!(starts.of(&called_by("alice"), "t", None).len(), 1);
        assert!(starts.of(&bob, "t", None).is_empty());
    }

    #[tokio::test]
    async fn a_start_is_known_by_its_thread_and_name_until_it_ends() {
        let (starts, client) = (Starts::default(), Client::new("http://h".parse().unwrap(), None));
        let client = client.unwrap();
        let (first, _other) = (starts.begin(&client, "t", "a"), starts.begin(&client, "u", "a"));
        let second = starts.begin(&client, "t", "b");
        let names = |name| {
            let of_thread = starts.of(&client, "t", name);
            of_thread.iter().map(|start| start.name.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names(None), ["a", "b"]);
        assert_eq!(names(Some("b")), ["b"]);
        let start = starts.of(&client, "t", Some("a")).remove(0);
        let mut ended = std::pin::pin!(start.ended());
        assert!(futures_util::poll!(&mut ended).is_pending());
        drop(first);
        ended.await;
        assert_eq!(names(None), ["b"]);
        drop(second);
        assert_eq!(starts.lock().len(), 1);
    }
}
