//! The addresses of an upstream. They lead to one deployment: replicas over one database, or a
//! primary and a standby.
//!
//! A request goes to the first address that works. It goes on to the next only if the server cannot
//! have acted on it. `choice` decides the order, and when an address that failed is tried again.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Method;
use tokio::time::Instant;
use url::Url;

use super::availability::{Availability, HealthSignal};
use super::backoff::Seed;
use super::choice::{AddressSwitch, Choice};
use super::dial::Dialer;
use super::http1::Http;
use super::{BaseUrl, CONNECT_TIMEOUT, Error, OUTAGE_FAILURES, SetupError, Tls};
use crate::metrics::{AddressChange, Answer, Metrics};
use crate::sync::Mutex;

/// The most addresses of one upstream.
pub(crate) const MAX_ADDRESSES: usize = 8;

/// A request that its caller gives up earlier than this does not count as unanswered.
const MIN_WAIT: Duration = Duration::from_secs(2);

/// An address that does not answer a request for so long is not used while another works. A viewer's
/// run waits for a join as long, and gives up after a minute.
const LONG_WAIT: Duration = Duration::from_secs(20);

/// The addresses of a configured upstream. All its clients share them.
pub(super) struct Addresses {
    first: Address,
    others: Box<[Address]>,
    choice: Mutex<Choice>,
    /// Where threads have live runs that this gateway reads, by thread.
    homes: Mutex<HashMap<Arc<str>, LiveRunAddress>>,
}

pub(super) struct Address {
    pub(super) url: BaseUrl,
    pub(super) http: Http,
    availability: Availability,
    /// Whether requests with a caller's credentials may go here.
    gets_callers: AtomicBool,
}

/// Whom and what a request concerns, as far as its address depends on it.
#[derive(Clone, Debug, Default)]
pub(super) struct RoutingKey {
    /// The thread. Not set if there is one address.
    pub(super) thread: Option<Arc<str>>,
    /// Whether the request has a caller's credentials.
    pub(super) has_credentials: bool,
}

/// The address of a thread's live run.
#[derive(Debug)]
struct LiveRunAddress {
    address: usize,
    /// How many values of [`Affinity`] there are.
    users: usize,
}

/// A live run at an address. While this exists, requests about its thread go to that address first.
pub(crate) struct Affinity {
    addresses: Arc<Addresses>,
    thread: Arc<str>,
    address: usize,
}

/// A request without an answer.
struct FailedAttempt<'a> {
    error: &'a Error,
    /// How many failed requests it counts as.
    weight: u32,
    waited: Duration,
}

/// A request that was sent to an address and has no answer yet. Its caller has given it up if this is
/// dropped before [`finish`](Self::finish).
pub(super) struct PendingAttempt {
    addresses: Arc<Addresses>,
    address: usize,
    since: Instant,
    metrics: Metrics,
    is_finished: bool,
}

// === impl Addresses ===

impl Addresses {
    /// Does not connect yet. The addresses of one upstream share [`CONNECT_TIMEOUT`].
    pub(super) fn new(first: BaseUrl, others: Vec<BaseUrl>, tls: &Tls) -> Result<Self, SetupError> {
        let dialer = Dialer::new(tls)?;
        let count = others.len() + 1;
        let timeout = CONNECT_TIMEOUT / u32::try_from(count).unwrap_or(u32::MAX);
        let address = |url: BaseUrl| Address {
            availability: Availability::new(url.to_string()),
            http: Http::new(dialer.clone(), timeout),
            gets_callers: AtomicBool::new(true),
            url,
        };
        let (first, others) = (address(first), others.into_iter().map(address).collect());
        let (choice, homes) = (Mutex::new(Choice::new(count, Seed::random())), Mutex::default());
        Ok(Self { first, others, choice, homes })
    }

    pub(super) fn are_several(&self) -> bool {
        !self.others.is_empty()
    }

    pub(super) fn urls(&self) -> impl Iterator<Item = &BaseUrl> {
        std::iter::once(&self.first).chain(&self.others).map(|address| &address.url)
    }

    /// The address with this index: that of [`urls`](Self::urls).
    pub(super) fn get(&self, index: usize) -> &Address {
        let other = index.checked_sub(1).and_then(|index| self.others.get(index));
        other.unwrap_or(&self.first)
    }

    /// The order in which a request tries the addresses. Empty if none may get it.
    pub(super) fn order(&self, request: &RoutingKey) -> Vec<usize> {
        let mut order = if self.are_several() {
            let thread = request.thread.as_deref();
            let home = thread.and_then(|thread| Some(self.homes.lock().get(thread)?.address));
            self.choice.lock().order(home)
        } else {
            vec![0]
        };
        if request.has_credentials {
            order.retain(|index| self.get(*index).gets_callers.load(Ordering::Relaxed));
        }
        order
    }

    /// Sets whether an address gets requests with a caller's credentials. At first each does.
    pub(super) fn entrust(&self, index: usize, is_trusted: bool) {
        self.get(index).gets_callers.store(is_trusted, Ordering::Relaxed);
    }

    /// As [`entrust`](Self::entrust), for each address.
    pub(super) fn entrust_all(&self, is_trusted: bool) {
        for index in 0..=self.others.len() {
            self.entrust(index, is_trusted);
        }
    }

    /// An address that failed and is to be tried now. The caller tries it.
    pub(super) fn take_trial(&self) -> Option<usize> {
        if !self.are_several() {
            return None;
        }
        self.choice.lock().take_trial(Instant::now())
    }

    /// Notes that a live run of a thread is read from an address. `None` if there is no other
    /// address.
    pub(super) fn affinity(
        self: &Arc<Self>,
        thread: Option<Arc<str>>,
        address: usize,
    ) -> Option<Affinity> {
        let thread = thread.filter(|_| self.are_several())?;
        let mut homes = self.homes.lock();
        let home = homes.entry(Arc::clone(&thread)).or_insert(LiveRunAddress { address, users: 0 });
        home.address = address;
        home.users += 1;
        drop(homes);
        Some(Affinity { addresses: Arc::clone(self), thread, address })
    }

    fn note_answer(&self, index: usize, metrics: &Metrics) {
        self.get(index).availability.note_answer();
        let change = self.choice.lock().on_answer(index, Instant::now());
        self.report(change, metrics);
    }

    fn note_failure(&self, index: usize, failure: &FailedAttempt<'_>, metrics: &Metrics) {
        let availability = &self.get(index).availability;
        let is_unavailable = availability.note_failure(&failure.error.to_string(), failure.weight);
        if is_unavailable || failure.waited >= LONG_WAIT {
            let change = self.choice.lock().on_failure(index, Instant::now());
            self.report(change, metrics);
        }
    }

    /// Logs and counts a change of address. The pauses between trials limit how many there are.
    fn report(&self, change: Option<AddressSwitch>, metrics: &Metrics) {
        let Some(AddressSwitch { from, to }) = change else { return };
        let reason = if to < from { AddressChange::Returned } else { AddressChange::Failed };
        metrics.address_changed(reason);
        let (from, url) = (&self.get(from).url, &self.get(to).url);
        match reason {
            AddressChange::Failed => {
                tracing::warn!(%url, %from, "requests now go to {url} instead of {from}");
            }
            AddressChange::Returned => {
                tracing::info!(%url, %from, "requests go to {url} again instead of {from}");
            }
        }
    }
}

impl fmt::Debug for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.urls()).finish()
    }
}

// === impl Address ===

impl Address {
    /// The URL here of what has this URL at the address `base`.
    pub(super) fn url_of(&self, base: &BaseUrl, url: &Url) -> Url {
        if self.url == *base { url.clone() } else { self.url.instead_of(base, url) }
    }
}

// === impl Affinity ===

impl Affinity {
    /// The URL of the address.
    pub(crate) fn url(&self) -> &BaseUrl {
        &self.addresses.get(self.address).url
    }
}

impl Drop for Affinity {
    fn drop(&mut self) {
        let mut homes = self.addresses.homes.lock();
        if let Some(home) = homes.get_mut(&self.thread) {
            home.users = home.users.saturating_sub(1);
            if home.users == 0 {
                homes.remove(&self.thread);
            }
        }
    }
}

impl fmt::Debug for Affinity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Affinity").field(self.url()).finish()
    }
}

// === impl PendingAttempt ===

impl PendingAttempt {
    pub(super) fn begin(addresses: &Arc<Addresses>, address: usize, metrics: &Metrics) -> Self {
        let (addresses, metrics) = (Arc::clone(addresses), metrics.clone());
        Self { addresses, address, since: Instant::now(), metrics, is_finished: false }
    }

    /// Another address has answered in the meantime, so that this one is not used for now.
    pub(super) fn count_as_away(mut self) {
        self.is_finished = true;
        let waited = Duration::from_secs(self.since.elapsed().as_secs());
        self.metrics.upstream_failed(Answer::Timeout);
        self.note_failure(&Error::Timeout { waited }, OUTAGE_FAILURES);
    }

    /// The answer is not needed any more. This says nothing about the address.
    pub(super) fn withdraw(mut self) {
        self.is_finished = true;
    }

    pub(super) fn finish<T>(mut self, answer: &Result<T, Error>) {
        self.is_finished = true;
        let Err(error) = answer else { return self.note_answer() };
        match HealthSignal::of(error) {
            HealthSignal::Answered => self.note_answer(),
            HealthSignal::Refused => self.note_failure(error, OUTAGE_FAILURES),
            HealthSignal::Unanswered => self.note_failure(error, 1),
        }
    }

    fn note_answer(&self) {
        self.addresses.note_answer(self.address, &self.metrics);
    }

    fn note_failure(&self, error: &Error, weight: u32) {
        let failure = FailedAttempt { error, weight, waited: self.since.elapsed() };
        self.addresses.note_failure(self.address, &failure, &self.metrics);
    }
}

impl Drop for PendingAttempt {
    fn drop(&mut self) {
        let waited = self.since.elapsed();
        if !self.is_finished && waited >= MIN_WAIT {
            self.metrics.upstream_failed(Answer::Timeout);
            let seconds = Duration::from_secs(waited.as_secs());
            self.note_failure(&Error::Timeout { waited: seconds }, 1);
        }
    }
}

/// Whether a request that failed like this may be sent to another address. A server that may have
/// acted on a request must not get it twice: a second POST would start a second run.
pub(super) fn may_go_on(method: &Method, error: &Error) -> bool {
    match HealthSignal::of(error) {
        // Nothing was sent.
        HealthSignal::Refused => true,
        HealthSignal::Unanswered => {
            method == Method::GET && !matches!(error, Error::Timeout { .. })
        }
        HealthSignal::Answered => false,
    }
}

/// Whether an error says nothing about what was requested.
pub(super) fn is_no_answer(error: &Error) -> bool {
    HealthSignal::of(error) != HealthSignal::Answered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_request_on_which_no_server_can_have_acted_goes_on() {
        let reason = || "why".to_owned();
        let status = |code| Error::Status { code, detail: String::new(), retry_after: None };
        for (error, get, post) in [
            (Error::Unreachable { reason: reason() }, true, true),
            (Error::Unproven, true, true),
            (Error::Interrupted { reason: reason() }, true, false),
            (Error::Timeout { waited: MIN_WAIT }, false, false),
            (status(502), true, false),
            (status(503), true, false),
            (status(504), true, false),
            (status(500), false, false),
            (status(429), false, false),
            (status(404), false, false),
            (Error::NotAnEventStream { content_type: reason() }, false, false),
            (Error::NotUnderstood { what: "a run" }, false, false),
            (Error::TooLarge { limit: 1 }, false, false),
        ] {
            assert_eq!(may_go_on(&Method::GET, &error), get, "{error:?}");
            for method in [Method::POST, Method::PATCH, Method::DELETE] {
                assert_eq!(may_go_on(&method, &error), post, "{method} {error:?}");
            }
        }
    }

    #[test]
    fn a_thread_is_at_home_where_its_newest_run_is_until_the_last_run_is_over() {
        let [first, second]: [BaseUrl; 2] =
            ["http://a", "http://b"].map(|url| url.parse().unwrap());
        let addresses = Addresses::new(first, vec![second], &Tls::default()).unwrap();
        let addresses = Arc::new(addresses);
        let affinity = |address| addresses.affinity(Some(Arc::from("T")), address);
        let about = |thread: Option<&str>| {
            addresses.order(&RoutingKey { thread: thread.map(Arc::from), has_credentials: false })
        };
        assert_eq!(about(Some("T")), [0, 1]);
        let one = affinity(1);
        assert_eq!(about(Some("T")), [1, 0]);
        assert_eq!(about(Some("U")), [0, 1]);
        assert_eq!(about(None), [0, 1]);
        let two = affinity(0);
        assert_eq!(about(Some("T")), [0, 1]);
        drop(two);
        drop(one);
        assert!(addresses.homes.lock().is_empty());
    }

    #[test]
    fn credentials_are_sent_only_where_they_are_trusted() {
        for count in [1, 2] {
            let mut urls = ["http://a", "http://b"].map(|url| url.parse().unwrap()).into_iter();
            let (first, others) = (urls.next().unwrap(), urls.take(count - 1).collect());
            let addresses = Addresses::new(first, others, &Tls::default()).unwrap();
            let all: Vec<_> = (0..count).collect();
            let order =
                |has_credentials| addresses.order(&RoutingKey { thread: None, has_credentials });
            assert_eq!(order(true), all);
            addresses.entrust(0, false);
            assert_eq!((order(true), order(false)), (all[1..].to_vec(), all.clone()));
            addresses.entrust(count - 1, false);
            assert_eq!((order(true), order(false)), (vec![], all.clone()));
            addresses.entrust(0, true);
            assert_eq!(order(true), [0]);
        }
    }
}
