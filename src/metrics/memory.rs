//! What clients make the gateway hold, in bytes, within one budget.
//!
//! ```text
//!   a body, an unread answer, a session  --Charge-->  the share of its holder, and the whole budget
//! ```
//! Whoever keeps bytes for a client keeps a [`Charge`] with them. So the sum is that of the bytes,
//! and dropping the bytes frees it. A charge that does not fit is refused. Nothing waits for room:
//! the client gets a refusal that asks it to try again.
//!
//! Each caller has a share, so that no caller can use up the budget. All strangers together have a
//! smaller one. A stranger is somebody whose credentials are not checked yet.

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::label::Held;

/// The budget, unless configured otherwise: a quarter of the memory that the chart allows. Bytes
/// that are charged exist up to three times while they are read and sent on.
pub(crate) const DEFAULT_MEMORY_BYTES: usize = 256 * 1024 * 1024;

/// A caller's share of the budget: a quarter.
const SHARE: usize = 4;

/// The share of all strangers together: a sixteenth.
const STRANGERS_SHARE: usize = 16;

/// A charge beyond this size leaves a quarter of each share, and of the budget, to smaller ones.
/// So small requests are served while large ones fill their part.
pub(crate) const SMALL: usize = 64 * 1024;

/// How many large answers of LangGraph are read or converted at the same time. Each may take 64 MiB,
/// and several times that while it is converted.
const PLACES: usize = 4;

/// An answer of LangGraph beyond this size takes a place while it is read.
pub(crate) const LARGE: usize = 1024 * 1024;

/// How many counters callers are counted in. Two callers with the same counter have one share.
const COUNTERS: usize = 4096;

/// The budget. Clones share it.
#[derive(Clone)]
pub(crate) struct Memory(Arc<Shared>);

struct Shared {
    limit: AtomicUsize,
    held: AtomicUsize,
    strangers: AtomicUsize,
    /// The bytes of each caller, by a hash under a key that only this process has.
    callers: Box<[AtomicUsize]>,
    hasher: RandomState,
    /// One gauge for each of [`Held`].
    gauges: [Gauge; 4],
    /// For those who read or convert something large.
    places: Semaphore,
}

/// Whose share a charge is taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ChargedTo {
    /// A caller, by its counter.
    Caller(usize),
    /// Anybody whose credentials are not checked yet.
    Stranger,
}

/// Bytes that are held for a client, until this is dropped.
pub(crate) struct Charge {
    memory: Memory,
    kind: Held,
    holder: ChargedTo,
    bytes: usize,
}

/// There is no room for more bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The holder's share is used up.
    Share,
    /// The budget is used up.
    Budget,
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Share => "the caller's share of limits.memory_bytes is used up",
            Self::Budget => "limits.memory_bytes is used up",
        })
    }
}

impl std::error::Error for Full {}

// === impl Memory ===

impl Memory {
    pub(super) fn new(gauges: &Family<Held, Gauge>) -> Self {
        Self(Arc::new(Shared {
            limit: AtomicUsize::new(DEFAULT_MEMORY_BYTES),
            held: AtomicUsize::new(0),
            strangers: AtomicUsize::new(0),
            callers: iter::repeat_with(AtomicUsize::default).take(COUNTERS).collect(),
            hasher: RandomState::new(),
            gauges: [Held::Body, Held::Answer, Held::Session, Held::Thread]
                .map(|held| gauges.get_or_create(&held).clone()),
            places: Semaphore::new(PLACES),
        }))
    }

    /// Sets the budget, in bytes. What is held already stays.
    pub(crate) fn set_limit(&self, bytes: usize) {
        self.0.limit.store(bytes, Ordering::Relaxed);
    }

    /// The share of a caller.
    pub(crate) fn caller(&self, id: &impl Hash) -> ChargedTo {
        let hash = self.0.hasher.hash_one(id);
        ChargedTo::Caller(usize::try_from(hash % COUNTERS as u64).unwrap_or_default())
    }

    /// The share of a caller's threads. It is apart, so that what a caller follows does not keep it
    /// from sending bodies.
    pub(crate) fn threads_of(&self, holder: ChargedTo) -> ChargedTo {
        match holder {
            ChargedTo::Caller(_) => self.caller(&holder),
            ChargedTo::Stranger => ChargedTo::Stranger,
        }
    }

    /// A charge of no bytes yet.
    pub(crate) fn charge(&self, kind: Held, holder: ChargedTo) -> Charge {
        Charge { memory: self.clone(), kind, holder, bytes: 0 }
    }

    /// Whether a large charge of this holder may still fit.
    pub(crate) fn has_room(&self, holder: ChargedTo) -> Result<(), Full> {
        let (counter, share) = self.share(holder);
        let limit = self.0.limit.load(Ordering::Relaxed);
        let is_below = |counter: &AtomicUsize, most| counter.load(Ordering::Relaxed) < most;
        if !is_below(&self.0.held, large(limit)) {
            return Err(Full::Budget);
        }
        if is_below(counter, large(share)) { Ok(()) } else { Err(Full::Share) }
    }

    /// Waits until something large may be read or converted: until what is returned is dropped.
    /// A task that has a place must not wait for another one.
    pub(crate) async fn place(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed, so this is never `None`.
        self.0.places.acquire().await.ok()
    }

    /// How many bytes are held.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.0.held.load(Ordering::Relaxed)
    }

    fn share(&self, holder: ChargedTo) -> (&AtomicUsize, usize) {
        let Shared { limit, strangers, callers, .. } = &*self.0;
        let limit = limit.load(Ordering::Relaxed);
        match holder {
            ChargedTo::Caller(at) => (callers.get(at).unwrap_or(strangers), limit / SHARE),
            ChargedTo::Stranger => (strangers, limit / STRANGERS_SHARE),
        }
    }

    fn add(&self, charge: &Charge, bytes: usize) -> Result<(), Full> {
        let (counter, share) = self.share(charge.holder);
        let limit = self.0.limit.load(Ordering::Relaxed);
        let is_small = charge.bytes + bytes <= SMALL;
        let most = |all: usize| if is_small { all } else { large(all) };
        let take = |counter: &AtomicUsize, most: usize| {
            let more = |held: usize| held.checked_add(bytes).filter(|held| *held <= most);
            counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
        };
        take(counter, most(share)).map_err(|_| Full::Share)?;
        if take(&self.0.held, most(limit)).is_err() {
            counter.fetch_sub(bytes, Ordering::Relaxed);
            return Err(Full::Budget);
        }
        self.gauge(charge.kind).inc_by(gauged(bytes));
        Ok(())
    }

    fn gauge(&self, kind: Held) -> &Gauge {
        let [body, answer, session, thread] = &self.0.gauges;
        match kind {
            Held::Body => body,
            Held::Answer => answer,
            Held::Session => session,
            Held::Thread => thread,
        }
    }

    fn free(&self, charge: &Charge, bytes: usize) {
        let (counter, _) = self.share(charge.holder);
        counter.fetch_sub(bytes, Ordering::Relaxed);
        self.0.held.fetch_sub(bytes, Ordering::Relaxed);
        self.gauge(charge.kind).dec_by(gauged(bytes));
    }
}

/// How much of a share large charges may take.
fn large(all: usize) -> usize {
    all - all / 4
}

fn gauged(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("held", &self.0.held).finish_non_exhaustive()
    }
}

// === impl Charge ===

impl Charge {
    /// Charges this many bytes in all, instead of those so far. Fewer bytes always fit. If the
    /// bytes do not fit, the charge stays as it is.
    pub(crate) fn set(&mut self, bytes: usize) -> Result<(), Full> {
        match bytes.checked_sub(self.bytes) {
            Some(0) => {}
            Some(more) => self.memory.add(self, more)?,
            None => self.memory.free(self, self.bytes - bytes),
        }
        self.bytes = bytes;
        Ok(())
    }

    /// Another charge of the same holder, of no bytes yet.
    pub(crate) fn another(&self) -> Self {
        self.memory.charge(self.kind, self.holder)
    }

    pub(crate) fn holder(&self) -> ChargedTo {
        self.holder
    }

    /// The bytes that are charged.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.memory.free(self, self.bytes);
    }
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, bytes, .. } = self;
        f.debug_struct("Charge").field("kind", kind).field("bytes", bytes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    const MB: usize = 1024 * 1024;

    /// A budget of 256 MiB: 64 for a caller, 16 for strangers.
    fn memory() -> Memory {
        Metrics::default().memory().clone()
    }

    fn charged(memory: &Memory, holder: ChargedTo, bytes: usize) -> Result<Charge, Full> {
        let mut charge = memory.charge(Held::Body, holder);
        charge.set(bytes).map(|()| charge)
    }

    #[test]
    fn a_share_is_a_part_of_the_budget_and_leaves_room_for_small_charges() {
        let memory = memory();
        for (holder, large) in [(ChargedTo::Caller(1), 48 * MB), (ChargedTo::Stranger, 12 * MB)] {
            let first = charged(&memory, holder, large).unwrap();
            assert_eq!(charged(&memory, holder, SMALL + 1).err(), Some(Full::Share));
            assert_eq!(memory.has_room(holder), Err(Full::Share));
            let small: Vec<_> = iter::repeat_with(|| charged(&memory, holder, SMALL))
                .map_while(Result::ok)
                .collect();
            assert_eq!(small.len() * SMALL, large / 3);
            // Others have their own.
            drop(charged(&memory, ChargedTo::Caller(2), 48 * MB).unwrap());
            drop((first, small));
            assert_eq!((memory.held(), memory.has_room(holder)), (0, Ok(())));
        }
    }

    #[test]
    fn all_shares_together_are_bounded() {
        let memory = memory();
        let holders = (0..).map(|at| charged(&memory, ChargedTo::Caller(at), 48 * MB));
        let charges: Vec<_> = holders.map_while(Result::ok).collect();
        assert_eq!(charges.len(), 4);
        assert_eq!(charged(&memory, ChargedTo::Caller(9), MB).err(), Some(Full::Budget));
        assert_eq!(memory.has_room(ChargedTo::Caller(9)), Err(Full::Budget));
        // What was refused counts nowhere.
        drop(charges);
        drop(charged(&memory, ChargedTo::Caller(9), 48 * MB).unwrap());
        assert_eq!(memory.held(), 0);
        memory.set_limit(4 * MB);
        assert_eq!(charged(&memory, ChargedTo::Caller(9), MB).err(), Some(Full::Share));
    }

    #[test]
    fn a_charge_follows_its_bytes() {
        let memory = memory();
        let mut charge = charged(&memory, ChargedTo::Caller(1), 2 * MB).unwrap();
        charge.set(3 * MB).unwrap();
        assert_eq!((memory.held(), charge.bytes()), (3 * MB, 3 * MB));
        assert_eq!(charge.set(49 * MB), Err(Full::Share));
        charge.set(MB).unwrap();
        assert_eq!(memory.held(), MB);
        let gauge = memory.gauge(Held::Body).get();
        assert_eq!(gauge, gauged(MB));
        drop(charge);
        assert_eq!(memory.held(), 0);
    }
}
