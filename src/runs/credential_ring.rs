//! The credentials with which something is read for several callers.
//!
//! A caller lends its credentials while it attends. A request is sent with the first credentials of
//! the ring. If the upstream refuses them, the next ones are tried, before anything is concluded for
//! all. So what one caller's credentials open or refuse decides nothing for another caller.
//!
//! ```text
//!   enters: first, since the upstream has just accepted it     refused: last
//!   leaves: removed, unless nobody else is there               barred: removed
//! ```
//! A caller is *barred* once the upstream has refused its credentials and accepted another's. What is
//! read from then on may be more than the caller may see.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;

use crate::sync::Mutex;
use crate::upstream::{Client, Visibility};

/// How many different credentials one ring keeps. A caller beyond them replaces the one that came
/// last: the others have stayed for longer, and the newest was accepted a moment ago.
pub(crate) const MAX_CREDENTIALS: usize = 16;

/// How many different credentials are tried for one request. Callers may come and go meanwhile.
const MAX_TRIED: usize = 2 * MAX_CREDENTIALS;

/// How long the upstream may take to say whether it still refuses credentials. The answer to what was
/// requested waits for it.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(5);

/// The callers for whom something is read. `B` says what a barred caller may still be shown.
#[derive(Debug)]
pub(crate) struct CredentialRing<B> {
    ring: Mutex<Ring<B>>,
    /// Notified when credentials have left.
    left: Notify,
}

#[derive(Debug)]
struct Ring<B> {
    /// In the order in which they are tried.
    entries: Vec<Entry<B>>,
    /// The number of the next entry.
    next: u64,
}

/// Equal credentials have one entry.
#[derive(Debug)]
struct Entry<B> {
    lender: Lender,
    /// How many callers attend with these credentials. The entry of one that has left is kept while
    /// there is no other.
    attending: usize,
    /// Whether the entry stays when its callers have left.
    is_permanent: bool,
    bar: Arc<OnceLock<B>>,
}

/// Credentials of a ring.
#[derive(Clone, Debug)]
pub(crate) struct Lender {
    number: u64,
    /// The upstream with these credentials.
    pub(crate) upstream: Client,
}

/// The attendance of one caller. Its credentials leave the ring with it.
pub(crate) struct Attendance<B> {
    ring: Arc<CredentialRing<B>>,
    lender: Lender,
    bar: Arc<OnceLock<B>>,
}

// === impl CredentialRing ===

impl<B> CredentialRing<B> {
    /// A ring with the credentials of the caller who begins the reading. They are tried last, and
    /// stay if they are permanent. Others are kept until somebody attends.
    pub(crate) fn new(first: Client, is_permanent: bool) -> Self {
        let lender = Lender { number: 0, upstream: first };
        let entry = Entry { lender, attending: 0, is_permanent, bar: Arc::default() };
        let ring = Mutex::new(Ring { entries: vec![entry], next: 1 });
        Self { ring, left: Notify::new() }
    }

    /// Lends the credentials of a caller. The upstream has just shown this caller what is read.
    pub(crate) fn attend(self: &Arc<Self>, upstream: &Client) -> Attendance<B> {
        let access = upstream.access();
        let mut dropped = Vec::new();
        let mut ring = self.ring.lock();
        let known = ring.entries.iter().position(|entry| entry.lender.upstream.access() == access);
        let mut entry = if let Some(index) = known {
            ring.entries.remove(index)
        } else {
            ring.next += 1;
            let lender = Lender { number: ring.next, upstream: upstream.clone() };
            Entry { lender, attending: 0, is_permanent: false, bar: Arc::default() }
        };
        entry.attending += 1;
        let (lender, bar) = (entry.lender.clone(), Arc::clone(&entry.bar));
        let unused = ring.entries.extract_if(.., |entry| !entry.is_used());
        dropped.extend(unused);
        if ring.entries.len() >= MAX_CREDENTIALS
            && let Some(newest) = ring.newest()
        {
            dropped.push(ring.entries.remove(newest));
        }
        ring.entries.insert(0, entry);
        drop(ring);
        Attendance { ring: Arc::clone(self), lender, bar }
    }

    /// The credentials in the order in which they are to be tried; never empty.
    pub(crate) fn lenders(&self) -> Vec<Lender> {
        self.ring.lock().entries.iter().map(|entry| entry.lender.clone()).collect()
    }

    /// The credentials to try next, after these. Only of callers who still attend: one may have left
    /// while others were tried. `None` after [`MAX_TRIED`], or if all were tried.
    pub(crate) fn untried(&self, tried: &[Lender]) -> Option<Lender> {
        let is_new =
            |entry: &&Entry<B>| !tried.iter().any(|tried| tried.number == entry.lender.number);
        let ring = self.ring.lock();
        let next = ring.entries.iter().find(is_new).filter(|_| tried.len() < MAX_TRIED);
        next.map(|entry| entry.lender.clone())
    }

    /// The upstream has refused these credentials. They are tried last from now on.
    pub(crate) fn refused(&self, lender: &Lender) {
        let mut ring = self.ring.lock();
        if let Some(index) = ring.index(lender) {
            let entry = ring.entries.remove(index);
            ring.entries.push(entry);
        }
    }

    /// Bars the callers with these credentials, which the upstream refuses while it accepts others.
    pub(crate) fn bar(&self, lender: &Lender, bar: B) {
        let mut ring = self.ring.lock();
        let barred = ring.index(lender).filter(|_| ring.entries.len() > 1);
        let barred = barred.map(|index| ring.entries.remove(index));
        drop(ring);
        if let Some(entry) = barred {
            // It is set once: the entry has left the ring.
            let _ = entry.bar.set(bar);
        }
    }

    fn leave(&self, lender: &Lender) {
        let mut ring = self.ring.lock();
        let Some(index) = ring.index(lender) else { return };
        let is_alone = ring.entries.len() == 1;
        let mut left = None;
        if let Some(entry) = ring.entries.get_mut(index) {
            entry.attending = entry.attending.saturating_sub(1);
            if !entry.is_used() && !is_alone {
                left = Some(ring.entries.remove(index));
            }
        }
        drop(ring);
        if left.is_some() {
            self.left.notify_one();
        }
    }

    /// Waits until the credentials of a caller have left.
    pub(crate) async fn left(&self) {
        self.left.notified().await;
    }
}

// === impl Lender ===

impl Lender {
    /// Whether LangGraph can distinguish these credentials from others.
    pub(crate) fn is_personal(&self) -> bool {
        self.upstream.caller().is_personal()
    }
}

// === impl Ring ===

impl<B> Ring<B> {
    fn index(&self, lender: &Lender) -> Option<usize> {
        self.entries.iter().position(|entry| entry.lender.number == lender.number)
    }

    /// The entry that came last, without permanent ones.
    fn newest(&self) -> Option<usize> {
        let entries = self.entries.iter().enumerate().filter(|(_, entry)| !entry.is_permanent);
        entries.max_by_key(|(_, entry)| entry.lender.number).map(|(index, _)| index)
    }
}

// === impl Entry ===

impl<B> Entry<B> {
    fn is_used(&self) -> bool {
        self.is_permanent || self.attending > 0
    }
}

// === impl Attendance ===

impl<B> Attendance<B> {
    /// What the caller may still be shown, if it is barred.
    pub(crate) fn bar(&self) -> Option<&B> {
        self.bar.get()
    }
}

impl<B> Drop for Attendance<B> {
    fn drop(&mut self) {
        self.ring.leave(&self.lender);
    }
}

impl<B> fmt::Debug for Attendance<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Attendance").field(&self.lender.number).finish()
    }
}

/// Those of the refused credentials with which the upstream does not show the thread. It is asked
/// again, after another caller's credentials were accepted: it may have refused everybody for a
/// moment. If it gives no answer in time, the refusal stands.
pub(crate) async fn still_refused(refused: Vec<Lender>, thread_id: &str) -> Vec<Lender> {
    let asked = refused.into_iter().map(|lender| async move {
        #[cfg(test)]
        if let Some(is_shown) = super::driver::is_shown(&lender.upstream).await {
            return (!is_shown).then_some(lender);
        }
        let visibility =
            tokio::time::timeout(CONFIRM_TIMEOUT, lender.upstream.visibility(thread_id));
        let is_shown = matches!(visibility.await, Ok(Ok(Visibility::Visible)));
        (!is_shown).then_some(lender)
    });
    futures_util::future::join_all(asked).await.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};
    use proptest::prelude::*;

    use super::*;
    use crate::upstream::Caller;

    /// What happens to a ring. Numbers name callers.
    #[derive(Clone, Copy, Debug)]
    enum RingEvent {
        Attends(u8),
        /// The oldest attendance of this caller ends.
        Leaves(u8),
        IsRefused(u8),
        IsBarred(u8),
    }

    fn step() -> impl Strategy<Value = RingEvent> {
        // More callers than a ring keeps.
        let caller = || 0..24_u8;
        prop_oneof![
            4 => caller().prop_map(RingEvent::Attends),
            3 => caller().prop_map(RingEvent::Leaves),
            1 => caller().prop_map(RingEvent::IsRefused),
            1 => caller().prop_map(RingEvent::IsBarred),
        ]
    }

    fn upstream() -> Client {
        Client::new("http://127.0.0.1:1".parse().unwrap(), None).unwrap()
    }

    fn caller(upstream: &Client, number: u8) -> Client {
        let key = HeaderValue::from_str(&number.to_string()).unwrap();
        let headers = [(HeaderName::from_static("x-api-key"), key)];
        upstream.called_by(&Caller::new(headers.into_iter().collect()))
    }

    fn number(lender: &Lender) -> u8 {
        let (_, key) = lender.upstream.caller().identifying_headers().next().unwrap();
        std::str::from_utf8(key).unwrap().parse().unwrap()
    }

    proptest! {
        /// Each credential is in the ring once; only of callers who attend, the permanent one, or the
        /// last that were there. Only barred callers and those beyond the limit are missing.
        #[test]
        fn a_ring_has_the_credentials_of_those_who_attend(
            is_permanent: bool,
            steps in proptest::collection::vec(step(), 1..80),
        ) {
            let upstream = upstream();
            let ring = Arc::new(CredentialRing::new(caller(&upstream, 0), is_permanent));
            let mut attending: Vec<(u8, Attendance<()>)> = Vec::new();
            let (mut is_first_barred, mut is_overfull) = (false, false);
            for step in steps {
                let find = |wanted| ring.lenders().into_iter().find(|lender| number(lender) == wanted);
                match step {
                    RingEvent::Attends(wanted) => {
                        attending.push((wanted, ring.attend(&caller(&upstream, wanted))));
                        prop_assert_eq!(ring.lenders().first().map(number), Some(wanted));
                    }
                    RingEvent::Leaves(who) => {
                        if let Some(at) = attending.iter().position(|(number, _)| *number == who) {
                            drop(attending.remove(at));
                        }
                    }
                    RingEvent::IsRefused(who) => {
                        if let Some(lender) = find(who) {
                            ring.refused(&lender);
                            prop_assert_eq!(ring.lenders().last().map(number), Some(who));
                        }
                    }
                    RingEvent::IsBarred(who) => {
                        if let Some(lender) = find(who) {
                            let is_alone = ring.lenders().len() == 1;
                            ring.bar(&lender, ());
                            prop_assert_eq!(find(who).is_some(), is_alone, "others read on, if there are any");
                            is_first_barred |= who == 0 && !is_alone;
                        }
                    }
                }
                let has: Vec<_> = ring.lenders().iter().map(number).collect();
                let mut tried = Vec::new();
                while let Some(next) = ring.untried(&tried) {
                    tried.push(next);
                }
                prop_assert_eq!(&tried.iter().map(number).collect::<Vec<_>>(), &has);
                let mut distinct = has.clone();
                distinct.sort_unstable();
                distinct.dedup();
                prop_assert_eq!(distinct.len(), has.len(), "each once");
                prop_assert!((1..=MAX_CREDENTIALS).contains(&has.len()));
                let attends = |wanted: u8| attending.iter().any(|(number, _)| *number == wanted);
                let stays = |wanted: u8| is_permanent && wanted == 0;
                prop_assert!(has.len() == 1 || has.iter().all(|who| attends(*who) || stays(*who)));
                prop_assert!(!is_permanent || is_first_barred || has.contains(&0));
                is_overfull |= attending.len() >= MAX_CREDENTIALS;
                let is_missing = |(who, attendance): &(u8, Attendance<()>)| {
                    attendance.bar().is_none() && !has.contains(who)
                };
                prop_assert!(is_overfull || !attending.iter().any(is_missing));
            }
        }
    }

    #[test]
    fn whoever_is_barred_and_accepted_again_reads_on() {
        let upstream = upstream();
        let ring = Arc::new(CredentialRing::new(caller(&upstream, 0), true));
        let before = ring.attend(&caller(&upstream, 1));
        let lender = ring.lenders().remove(0);
        ring.bar(&lender, ());
        let after = ring.attend(&caller(&upstream, 1));
        assert_eq!((before.bar(), after.bar()), (Some(&()), None));
        drop(before);
        assert_eq!(ring.lenders().iter().map(number).collect::<Vec<_>>(), [1, 0]);
    }
}
