//! How much one caller may ask: requests in a time, and streams at once.
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

use super::auth::Identity;
use crate::sync::{Guard, Mutex};

/// How many callers are told apart at once. One takes some 150 bytes, and is forgotten as soon as
/// nothing counts against it. Those beyond share one place: a flood of callers takes neither more
/// memory nor what the others have left.
pub const MAX_CALLERS: usize = 65_536;

/// How many callers are kept before those that may be forgotten are looked for.
const FIRST_SWEEP: usize = 1_024;

/// How often they are looked for while there is no place: it takes a millisecond.
const SWEEP_PAUSE: Duration = Duration::from_secs(1);

/// What one caller may ask. By default all it wants: in front of a proxy or a backend one address
/// or one key is everybody, and only the operator knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// How many requests in a time; `None` for any number.
    pub requests: Option<RequestRate>,
    /// How many streams at once; `None` for any number.
    pub streams: Option<NonZeroUsize>,
}

/// So many requests a second on and on, and so many at once after a rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRate {
    /// How many a second.
    pub per_second: NonZeroU32,
    /// How many at once; one with the next is the least.
    pub burst: NonZeroU32,
}

/// Why a caller has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exceeded {
    /// It has asked too often; the next request may come after this time.
    Requests { wait: Duration },
    /// It has as many streams as it may have.
    Streams { limit: usize },
}

/// What counts against each caller. Clones share it, and it outlives a change of the [`Rates`].
#[derive(Clone, Default)]
pub(super) struct Callers(Arc<Mutex<Counts>>);

#[derive(Default)]
struct Counts {
    callers: HashMap<Identity, Count>,
    /// The caller of each open stream; `None` where the others' place was taken.
    slots: HashMap<SlotId, Option<Identity>>,
    next_slot: u64,
    /// What all callers share for whom there is no place.
    others: Count,
    /// How many callers there are when the next are forgotten.
    sweep_at: usize,
    swept: Option<Instant>,
}

/// What counts against one caller.
#[derive(Clone, Copy, Default)]
struct Count {
    /// When all that it has asked would have been asked, had it kept to the rate.
    paid_until: Option<Instant>,
    streams: usize,
}

/// A caller's place for one stream, given back when its last clone is dropped: a socket holds the
/// place that all its turns stream in.
#[derive(Clone)]
pub(super) struct StreamSlot(Arc<Place>);

struct Place {
    callers: Callers,
    id: SlotId,
}

/// Names a [`StreamSlot`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct SlotId(u64);

// === impl RequestRate ===

impl RequestRate {
    /// The time that one request stands for.
    fn interval(self) -> Duration {
        Duration::from_secs(1) / self.per_second.get()
    }
}

// === impl Callers ===

impl Callers {
    /// Counts a request, if it may be asked now.
    pub(super) fn admit(&self, identity: &Identity, rate: RequestRate) -> Result<(), Exceeded> {
        let now = Instant::now();
        let mut counts = self.lock();
        let (count, _) = counts.of(identity, now);
        count.pay(rate, now).map_err(|wait| Exceeded::Requests { wait })
    }

    /// Takes a place for a stream. Without a limit it is counted too: one may come by a reload.
    pub(super) fn stream(
        &self,
        identity: &Identity,
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
        Ok(StreamSlot(Arc::new(Place { callers: self.clone(), id })))
    }

    /// Counts a request and its stream against another caller than so far: who really asks is known
    /// only now. The other may have less left than that, and then waits the longer.
    pub(super) fn transfer(
        &self,
        from: &Identity,
        to: &Identity,
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

    /// Nothing that is done under the lock can fail half-way.
    fn lock(&self) -> Guard<'_, Counts> {
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

// === impl Counts ===

impl Counts {
    /// What counts against a caller, and whether that is its own.
    fn of(&mut self, identity: &Identity, now: Instant) -> (&mut Count, bool) {
        if !self.callers.contains_key(identity) && !self.has_place(now) {
            return (&mut self.others, false);
        }
        (self.callers.entry(identity.clone()).or_default(), true)
    }

    /// Notes whose place a new stream takes.
    fn hold(&mut self, holder: Option<Identity>) -> SlotId {
        let id = SlotId(self.next_slot);
        self.next_slot += 1;
        self.slots.insert(id, holder);
        id
    }

    /// Gives a stream's place back; whether it was held.
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

    /// Whether one more caller can be told apart, once those are forgotten that have nothing
    /// against them. The map has doubled since the last time, so that this costs little.
    fn has_place(&mut self, now: Instant) -> bool {
        let is_full = self.callers.len() >= MAX_CALLERS;
        let was_just_swept = self.swept.is_some_and(|swept| now < swept + SWEEP_PAUSE);
        if self.callers.len() >= self.sweep_at.clamp(FIRST_SWEEP, MAX_CALLERS)
            && !(is_full && was_just_swept)
        {
            self.callers.retain(|_, count| !count.is_nothing(now));
            self.sweep_at = self.callers.len() * 2;
            self.swept = Some(now);
        }
        self.callers.len() < MAX_CALLERS
    }
}

// === impl Count ===

impl Count {
    /// Counts a request, or tells how long it has to wait.
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

    /// Takes back what one request was counted for.
    fn refund(&mut self, rate: RequestRate, now: Instant) {
        let paid_until = self.paid_until.and_then(|paid| paid.checked_sub(rate.interval()));
        self.paid_until = paid_until.filter(|paid| *paid > now);
    }

    fn is_nothing(&self, now: Instant) -> bool {
        self.streams == 0 && self.paid_until.is_none_or(|paid| paid <= now)
    }
}

// === impl StreamSlot ===

impl StreamSlot {
    pub(super) fn id(&self) -> SlotId {
        self.0.id
    }
}

impl Drop for Place {
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

    fn caller(name: impl fmt::Display) -> Identity {
        Identity::Key(format!("{name}").into())
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
        // Who is refused is not charged for it.
        for _ in 0..3 {
            assert_eq!(callers.admit(&caller, rate), wait(250));
        }
        advance(249).await;
        assert_eq!(callers.admit(&caller, rate), wait(1));
        advance(1).await;
        assert_eq!(callers.admit(&caller, rate), Ok(()));
        assert_eq!(callers.admit(&caller, rate), wait(250));
        // A long rest is worth one burst, not more.
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
    async fn a_stream_holds_its_place_until_it_is_dropped() {
        let callers = Callers::default();
        let (caller, limit) = (caller("a"), NonZeroUsize::new(2));
        let first = callers.stream(&caller, limit).unwrap();
        let _second = callers.stream(&caller, limit).unwrap();
        let third = callers.stream(&caller, limit).map(|_| ());
        assert_eq!(third, Err(Exceeded::Streams { limit: 2 }));
        // Those that began before there was a limit count as well.
        let _more = callers.stream(&caller, None).unwrap();
        drop(first);
        assert!(callers.stream(&caller, limit).is_err());
        assert!(callers.stream(&caller, NonZeroUsize::new(3)).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_counted_against_one_caller_is_counted_against_another() {
        let callers = Callers::default();
        let (address, key) = (caller("address"), caller("key"));
        let (rate, one) = (rate(1, 2), NonZeroUsize::new(1));
        assert_eq!(callers.admit(&address, rate), Ok(()));
        let slot = callers.stream(&address, one).unwrap();
        callers.transfer(&address, &key, Some(rate), Some(slot.id()));
        // The first has all that it had, and the other less.
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
        // A stream that is over is nobody's any more.
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
            // Those beyond share one burst of the slowest rate.
            let admitted = callers.admit(&caller(at), rate(1, 1));
            assert_eq!(admitted.is_ok(), at <= MAX_CALLERS - 2, "{at}");
        }
        assert_eq!(callers.known(), MAX_CALLERS);
        assert_eq!(callers.admit(&honest, rate(1, 1)), wait(1_000));
        let one = NonZeroUsize::new(1);
        assert!(callers.stream(&reader, one).is_err());
        // When they are idle they are forgotten, and the next one has a place of its own.
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(callers.admit(&caller("next"), rate(1, 1)), Ok(()));
        assert_eq!(callers.known(), 2, "who reads, and the next");
        assert!(callers.stream(&reader, one).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_without_a_place_of_its_own_gives_back_the_others_place() {
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
