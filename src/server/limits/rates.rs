//! Limits of one caller: requests per second, and streams at once.
//!
//! ```text
//!   a request --admit--> counted --stream--> a slot, which its response holds to its end
//!        \                     \
//!         429 too_many_requests 429 too_many_streams
//! ```

use std::collections::HashMap;
use std::fmt;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::server::limits::caller_id::CallerId;
use crate::sync::{Guard, Mutex};

/// How many callers are tracked. Each takes about 150 bytes, and expires when nothing counts
/// against it. Further callers share one entry, so that a flood of callers takes no more memory,
/// and nothing of what the tracked callers have left.
pub(in crate::server) const MAX_CALLERS: usize = 65_536;

/// How many callers are tracked before idle ones are removed.
const FIRST_SWEEP: usize = 1_024;

/// The pause between two sweeps while all entries are taken. A sweep takes a millisecond.
const SWEEP_PAUSE: Duration = Duration::from_secs(1);

/// The limits of one caller. By default there are none: behind a proxy or a backend, all users
/// share one address or one key, and only the operator knows that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// The rate of requests. `None` sets no limit.
    pub requests: Option<RequestRate>,
    /// How many streams may be open at once. `None` sets no limit.
    pub streams: Option<NonZeroUsize>,
}

/// A rate of requests, as a token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRate {
    /// Requests per second, on average.
    pub per_second: NonZeroU32,
    /// Requests at once, after a pause.
    pub burst: NonZeroU32,
}

/// A limit that a caller has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Exceeded {
    /// Too many requests. The next one is admitted after `wait`.
    Requests { wait: Duration },
    /// Too many open streams.
    Streams { limit: usize },
}

/// What a request counts as against the rate of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Charge {
    Request,
    /// A message that cannot be refused for its rate.
    Nothing,
}

/// The requests and streams of each caller. Clones share the counts. A change of the [`Rates`]
/// keeps them.
#[derive(Clone, Default)]
pub(in crate::server) struct Callers(Arc<Mutex<CallerTable>>);

#[derive(Default)]
struct CallerTable {
    callers: HashMap<CallerId, Count>,
    /// The caller of each open stream. `None` for a caller in the shared entry.
    slots: HashMap<SlotId, Option<CallerId>>,
    next_slot: u64,
    /// The shared entry of all callers that are not tracked.
    others: Count,
    /// The number of callers at which the next sweep is done.
    sweep_at: usize,
    swept_at: Option<Instant>,
}

/// The requests and streams of one caller.
#[derive(Clone, Copy, Default)]
struct Count {
    /// When the bucket is full again: each request moves this by the interval of the rate.
    paid_until: Option<Instant>,
    streams: usize,
}

/// One stream of a caller. The slot is released when its last clone is dropped: all turns of a
/// WebSocket use the socket's slot.
#[derive(Clone)]
pub(in crate::server) struct StreamSlot(Arc<Slot>);

struct Slot {
    callers: Callers,
    id: SlotId,
}

/// Identifies a [`StreamSlot`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::server) struct SlotId(u64);

// === impl RequestRate ===

impl RequestRate {
    /// The time between two requests at this rate.
    fn interval(self) -> Duration {
        Duration::from_secs(1) / self.per_second.get()
    }
}

// === impl Callers ===

impl Callers {
    /// Counts a request, unless it exceeds the rate. A refused request does not count.
    pub(in crate::server) fn admit(
        &self,
        identity: &CallerId,
        rate: RequestRate,
    ) -> Result<(), Exceeded> {
        let now = Instant::now();
        let mut counts = self.lock();
        let (count, _) = counts.of(identity, now);
        count.pay(rate, now).map_err(|wait| Exceeded::Requests { wait })
    }

    /// Takes a slot for a stream. It counts without a limit too, since a reload may bring one.
    pub(in crate::server) fn stream(
        &self,
        identity: &CallerId,
        limit: Option<NonZeroUsize>,
    ) -> Result<StreamSlot, Exceeded> {
        let limit = limit.map_or(usize::MAX, NonZeroUsize::get);
        let mut counts = self.lock();
        let (count, is_own) = counts.of(identity, Instant::now());
        if count.streams >= limit {
            return Err(Exceeded::Streams { limit });
        }
        count.streams += 1;
        let id = counts.hold(is_own.then(|| identity.clone()));
        Ok(StreamSlot(Arc::new(Slot { callers: self.clone(), id })))
    }

    /// Counts a request and its stream against `to` instead of `from`, once the caller is known to
    /// be `to`. This may exceed the limits of `to`, whose next request then waits longer.
    pub(in crate::server) fn transfer(
        &self,
        from: &CallerId,
        to: &CallerId,
        rate: Option<RequestRate>,
        slot: Option<SlotId>,
    ) {
        let now = Instant::now();
        let mut counts = self.lock();
        if let Some(rate) = rate {
            if let Some(count) = counts.callers.get_mut(from) {
                count.refund(rate, now);
            }
            counts.of(to, now).0.charge(rate, now);
        }
        if let Some(slot) = slot
            && counts.release(slot)
        {
            let (count, is_own) = counts.of(to, now);
            count.streams += 1;
            counts.slots.insert(slot, is_own.then(|| to.clone()));
        }
    }

    fn lock(&self) -> Guard<'_, CallerTable> {
        self.0.lock()
    }

    #[cfg(test)]
    fn known(&self) -> usize {
        self.lock().callers.len()
    }
}

impl fmt::Debug for Callers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Callers")
    }
}

// === impl CallerTable ===

impl CallerTable {
    /// The count of a caller, and whether it is the caller's own or the shared one.
    fn of(&mut self, identity: &CallerId, now: Instant) -> (&mut Count, bool) {
        if !self.callers.contains_key(identity) && !self.has_room(now) {
            return (&mut self.others, false);
        }
        (self.callers.entry(identity.clone()).or_default(), true)
    }

    /// Registers the slot of a new stream.
    fn hold(&mut self, holder: Option<CallerId>) -> SlotId {
        let id = SlotId(self.next_slot);
        self.next_slot += 1;
        self.slots.insert(id, holder);
        id
    }

    /// Releases a slot. Returns whether it was held.
    fn release(&mut self, slot: SlotId) -> bool {
        let Some(holder) = self.slots.remove(&slot) else { return false };
        let count = match holder {
            Some(identity) => self.callers.get_mut(&identity),
            None => Some(&mut self.others),
        };
        if let Some(count) = count {
            count.streams = count.streams.saturating_sub(1);
        }
        true
    }

    /// Whether one more caller can be tracked. Removes idle callers first, if the map has doubled
    /// since the last sweep: so a sweep costs little per request.
    fn has_room(&mut self, now: Instant) -> bool {
        let is_full = self.callers.len() >= MAX_CALLERS;
        let was_just_swept = self.swept_at.is_some_and(|swept| now < swept + SWEEP_PAUSE);
        if self.callers.len() >= self.sweep_at.clamp(FIRST_SWEEP, MAX_CALLERS)
            && !(is_full && was_just_swept)
        {
            self.callers.retain(|_, count| !count.is_idle(now));
            self.sweep_at = self.callers.len() * 2;
            self.swept_at = Some(now);
        }
        self.callers.len() < MAX_CALLERS
    }
}

// === impl Count ===

impl Count {
    /// Counts a request, or returns how long it has to wait.
    fn pay(&mut self, rate: RequestRate, now: Instant) -> Result<(), Duration> {
        let interval = rate.interval();
        let paid_until = self.paid_until.map_or(now, |paid| paid.max(now)) + interval;
        let ahead = paid_until - now;
        let wait = ahead.saturating_sub(interval.saturating_mul(rate.burst.get()));
        if wait.is_zero() {
            self.paid_until = Some(paid_until);
            return Ok(());
        }
        Err(wait)
    }

    /// Counts a request that was admitted elsewhere.
    fn charge(&mut self, rate: RequestRate, now: Instant) {
        let paid_until = self.paid_until.map_or(now, |paid| paid.max(now));
        self.paid_until = Some(paid_until + rate.interval());
    }

    /// Takes back one request.
    fn refund(&mut self, rate: RequestRate, now: Instant) {
        let paid_until = self.paid_until.and_then(|paid| paid.checked_sub(rate.interval()));
        self.paid_until = paid_until.filter(|paid| *paid > now);
    }

    fn is_idle(&self, now: Instant) -> bool {
        self.streams == 0 && self.paid_until.is_none_or(|paid| paid <= now)
    }
}

// === impl StreamSlot ===

impl StreamSlot {
    pub(in crate::server) fn id(&self) -> SlotId {
        self.0.id
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.callers.lock().release(self.id);
    }
}

impl fmt::Debug for StreamSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StreamSlot")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(name: impl fmt::Display) -> CallerId {
        CallerId::Key(format!("{name}").into())
    }

    fn rate(per_second: u32, burst: u32) -> RequestRate {
        let number = |number| NonZeroU32::new(number).unwrap();
        RequestRate { per_second: number(per_second), burst: number(burst) }
    }

    fn wait(milliseconds: u64) -> Result<(), Exceeded> {
        Err(Exceeded::Requests { wait: Duration::from_millis(milliseconds) })
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_and_then_the_rate_holds() {
        let callers = Callers::default();
        let (caller, rate) = (caller("a"), rate(4, 3));
        let advance = |time| tokio::time::advance(Duration::from_millis(time));
        for _ in 0..3 {
            assert_eq!(callers.admit(&caller, rate), Ok(()));
        }
        // A refused request does not count.
        for _ in 0..3 {
            assert_eq!(callers.admit(&caller, rate), wait(250));
        }
        advance(249).await;
        assert_eq!(callers.admit(&caller, rate), wait(1));
        advance(1).await;
        assert_eq!(callers.admit(&caller, rate), Ok(()));
        assert_eq!(callers.admit(&caller, rate), wait(250));
        // A long pause allows one burst, not more.
        advance(60_000).await;
        for _ in 0..3 {
            assert_eq!(callers.admit(&caller, rate), Ok(()));
        }
        assert_eq!(callers.admit(&caller, rate), wait(250));
    }

    #[tokio::test(start_paused = true)]
    async fn one_caller_takes_nothing_from_another() {
        let callers = Callers::default();
        assert_eq!(callers.admit(&caller("a"), rate(1, 1)), Ok(()));
        assert_eq!(callers.admit(&caller("a"), rate(1, 1)), wait(1_000));
        assert_eq!(callers.admit(&caller("b"), rate(1, 1)), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_holds_its_slot_until_it_is_dropped() {
        let callers = Callers::default();
        let (caller, limit) = (caller("a"), NonZeroUsize::new(2));
        let first = callers.stream(&caller, limit).unwrap();
        let _second = callers.stream(&caller, limit).unwrap();
        let third = callers.stream(&caller, limit).map(|_| ());
        assert_eq!(third, Err(Exceeded::Streams { limit: 2 }));
        // Streams that began before there was a limit count too.
        let _more = callers.stream(&caller, None).unwrap();
        drop(first);
        assert!(callers.stream(&caller, limit).is_err());
        assert!(callers.stream(&caller, NonZeroUsize::new(3)).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_and_its_stream_move_to_another_caller() {
        let callers = Callers::default();
        let (address, key) = (caller("address"), caller("key"));
        let (rate, one) = (rate(1, 2), NonZeroUsize::new(1));
        assert_eq!(callers.admit(&address, rate), Ok(()));
        let slot = callers.stream(&address, one).unwrap();
        callers.transfer(&address, &key, Some(rate), Some(slot.id()));
        // `address` has its whole limit again, and `key` has less.
        assert!(callers.stream(&address, one).is_ok());
        assert!(callers.stream(&key, one).is_err());
        for _ in 0..2 {
            assert_eq!(callers.admit(&address, rate), Ok(()));
        }
        assert_eq!(callers.admit(&address, rate), wait(1_000));
        assert_eq!(callers.admit(&key, rate), Ok(()));
        assert_eq!(callers.admit(&key, rate), wait(1_000));
        let id = slot.id();
        drop(slot);
        assert!(callers.stream(&key, one).is_ok());
        // A slot that was released counts against nobody.
        callers.transfer(&address, &key, None, Some(id));
        assert!(callers.stream(&key, one).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_callers_takes_no_memory_and_gives_nobody_a_new_burst() {
        let callers = Callers::default();
        let (honest, reader) = (caller("honest"), caller("reader"));
        let _slot = callers.stream(&reader, None).unwrap();
        assert_eq!(callers.admit(&honest, rate(1, 1)), Ok(()));
        for at in 0..2 * MAX_CALLERS {
            // Further callers share one burst.
            let admitted = callers.admit(&caller(at), rate(1, 1));
            assert_eq!(admitted.is_ok(), at <= MAX_CALLERS - 2, "{at}");
        }
        assert_eq!(callers.known(), MAX_CALLERS);
        assert_eq!(callers.admit(&honest, rate(1, 1)), wait(1_000));
        let one = NonZeroUsize::new(1);
        assert!(callers.stream(&reader, one).is_err());
        // Idle callers are removed, and the next one is tracked.
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(callers.admit(&caller("next"), rate(1, 1)), Ok(()));
        assert_eq!(callers.known(), 2, "the reader, and the next caller");
        assert!(callers.stream(&reader, one).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_of_an_untracked_caller_releases_the_shared_slot() {
        let callers = Callers::default();
        let slots: Vec<_> =
            (0..MAX_CALLERS).map(|at| callers.stream(&caller(at), None).unwrap()).collect();
        let one = NonZeroUsize::new(1);
        let slot = callers.stream(&caller("x"), one).unwrap();
        assert!(callers.stream(&caller("y"), one).is_err());
        drop(slot);
        assert!(callers.stream(&caller("y"), one).is_ok());
        drop(slots);
        tokio::time::advance(SWEEP_PAUSE).await;
        assert!(callers.stream(&caller("z"), one).is_ok());
        assert_eq!(callers.known(), 1);
    }
}
