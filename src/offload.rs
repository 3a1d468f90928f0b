//! Work on large values, which runs outside the threads of the runtime.
//!
//! Parsing, comparing or writing 1 MB takes some milliseconds, and no other stream on the thread
//! moves meanwhile. A state may have 64 MiB.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

/// Work on at least this many bytes runs outside the runtime's threads.
pub(crate) const LARGE: usize = 1_000_000;

/// How many such works run outside at the same time. Each takes a thread, with memory of its own in
/// the allocator, and some copies of its values. More of them run on the runtime's threads.
const MAX_OUTSIDE: usize = 2;

static OUTSIDE: AtomicUsize = AtomicUsize::new(0);

/// One of [`MAX_OUTSIDE`], until it is dropped.
struct Seat(());

/// Does some work on values of this size in bytes. If they are large, the runtime's other tasks go
/// on with another thread meanwhile. A runtime without a second thread does the work itself.
///
/// # Panics
///
/// In debug builds, if the values are large and this thread holds a lock: other threads would wait
/// for it as long as the work takes.
#[track_caller]
pub(crate) fn offload<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes < LARGE {
        return work();
    }
    #[cfg(debug_assertions)]
    crate::sync::expect_no_lock();
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => match Seat::take() {
            Some(_seat) => block_in_place(work),
            None => work(),
        },
        _ => work(),
    }
}

// === impl Seat ===

impl Seat {
    fn take() -> Option<Self> {
        let is_free = |taken: usize| (taken < MAX_OUTSIDE).then_some(taken + 1);
        let taken = OUTSIDE.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_free);
        taken.ok().map(|_| Self(()))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        OUTSIDE.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::sync::Mutex;

    #[test]
    fn the_only_thread_of_a_runtime_goes_on_during_large_work() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let (sender, receiver) = mpsc::channel();
        let work = async move {
            let mut others = tokio::task::JoinSet::new();
            others.spawn(async move { sender.send(7).unwrap() });
            // Returns only if the other task runs meanwhile.
            offload(LARGE, move || receiver.recv().unwrap())
        };
        assert_eq!(runtime.block_on(runtime.spawn(work)).unwrap(), 7);
    }

    #[tokio::test]
    async fn a_runtime_of_one_thread_does_large_work_itself() {
        assert_eq!(offload(LARGE, || 7), 7);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "large work begins at")]
    fn no_lock_is_held_during_large_work() {
        let lock = Mutex::new(1);
        let _held = lock.lock();
        offload(LARGE, || ());
    }
}
