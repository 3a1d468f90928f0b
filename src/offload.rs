//! Work on large values, which runs outside the threads of the runtime.
//!
//! Parsing, comparing or writing 1 MB takes some milliseconds, and no other stream on the thread
//! moves meanwhile. A state may have 64 MiB.

use std::cell::Cell;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;
use tokio::task::block_in_place;

/// Work on at least this many bytes runs outside the runtime's threads.
pub(crate) const LARGE: usize = 1_000_000;

/// How many such works run outside at the same time. Each has memory of its own in the allocator, and
/// some copies of its values. Others wait, and no stream waits with them.
const MAX_OUTSIDE: usize = 2;

static OUTSIDE: Semaphore = Semaphore::const_new(MAX_OUTSIDE);

thread_local! {
    /// Whether this thread does large work. Work inside of it must not wait for a second place.
    static IS_OUTSIDE: Cell<bool> = const { Cell::new(false) };
}

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
    let Ok(runtime) = Handle::try_current() else { return work() };
    if runtime.runtime_flavor() != RuntimeFlavor::MultiThread || IS_OUTSIDE.get() {
        return work();
    }
    block_in_place(|| {
        // The semaphore is never closed.
        let _place = runtime.block_on(OUTSIDE.acquire()).ok();
        let _outside = Outside::begin();
        work()
    })
}

/// Marks the thread, until this is dropped.
struct Outside;

// === impl Outside ===

impl Outside {
    fn begin() -> Self {
        IS_OUTSIDE.set(true);
        Self
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        IS_OUTSIDE.set(false);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, mpsc};

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

    /// More large works than places, each with another inside, on the only thread of a runtime.
    #[test]
    fn a_runtime_goes_on_while_large_works_wait_for_a_place() {
        const WORKS: usize = 3 * MAX_OUTSIDE;
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let (sender, receiver) = mpsc::channel();
        let receiver = Arc::new(std::sync::Mutex::new(receiver));
        let most = Arc::new(AtomicUsize::new(0));
        let done = async {
            let mut works = tokio::task::JoinSet::new();
            for _ in 0..WORKS {
                let (receiver, most) = (Arc::clone(&receiver), Arc::clone(&most));
                works.spawn(async move {
                    offload(LARGE, || {
                        let taken = MAX_OUTSIDE - OUTSIDE.available_permits();
                        most.fetch_max(taken, Ordering::Relaxed);
                        // Each ends only after another task has run.
                        let go: u32 = receiver.lock().unwrap().recv().unwrap();
                        offload(LARGE, || go)
                    })
                });
            }
            works.spawn(async move {
                for _ in 0..WORKS {
                    tokio::task::yield_now().await;
                    sender.send(7).unwrap();
                }
                7
            });
            works.join_all().await
        };
        assert_eq!(runtime.block_on(done), [7; WORKS + 1]);
        assert!(most.load(Ordering::Relaxed) <= MAX_OUTSIDE);
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
