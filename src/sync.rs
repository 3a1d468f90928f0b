//! The mutex of the gateway: a thread holds one at a time.
//!
//! Two threads deadlock when each holds a lock that the other one waits for. That is impossible if
//! no thread waits for a lock while it holds another, and then no lock order is needed. Debug
//! builds, so all tests, panic at a second lock, whether or not two threads meet there. Release
//! builds check nothing.

#[cfg(test)]
pub(crate) mod simulated;

use std::ops::{Deref, DerefMut};
use std::sync::{self, PoisonError};

use tokio_util::task::TaskTracker;

/// A lock that a thread takes only while it holds no other.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(sync::Mutex<T>);

/// Access to the value of a [`Mutex`]. Dropping it releases the lock.
#[derive(Debug)]
pub(crate) struct Guard<'a, T> {
    value: sync::MutexGuard<'a, T>,
    #[cfg(debug_assertions)]
    _alone: held::Alone,
    #[cfg(test)]
    _turn: turns::AtDrop,
}

// === impl Mutex ===

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// Waits for the lock. A panic of an earlier holder is ignored: no change that is made under
    /// these locks can fail half-way.
    ///
    /// # Panics
    ///
    /// In debug builds, if this thread already holds a lock.
    #[track_caller]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        #[cfg(test)]
        turns::pass();
        Guard {
            #[cfg(debug_assertions)]
            _alone: held::Alone::new(),
            value: self.0.lock().unwrap_or_else(PoisonError::into_inner),
            #[cfg(test)]
            _turn: turns::AtDrop,
        }
    }
}

/// Starts a task that `tasks` counts. A simulated runtime of a test decides when the task runs.
#[track_caller]
pub(crate) fn spawn(tasks: &TaskTracker, task: impl Future<Output = ()> + Send + 'static) {
    #[cfg(test)]
    if simulated::is_running() {
        return simulated::spawn(std::panic::Location::caller(), tasks.track_future(task));
    }
    tasks.spawn(task);
}

/// Panics if this thread holds a lock.
#[cfg(debug_assertions)]
#[track_caller]
pub(crate) fn expect_no_lock() {
    let here = std::panic::Location::caller();
    let held = held::taken_at();
    assert_eq!(held.as_deref(), None, "large work begins at {here} while this lock is held");
}

// === impl Guard ===

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

/// Where each thread took the lock that it holds.
#[cfg(debug_assertions)]
mod held {
    use std::cell::Cell;
    use std::panic::Location;

    thread_local! {
        static TAKEN_AT: Cell<Option<&'static Location<'static>>> = const { Cell::new(None) };
    }

    /// Where this thread took the lock that it holds.
    pub(super) fn taken_at() -> Option<String> {
        TAKEN_AT.get().map(Location::to_string)
    }

    /// Proof that the thread holds this lock and no other.
    #[derive(Debug)]
    pub(super) struct Alone;

    impl Alone {
        #[track_caller]
        pub(super) fn new() -> Self {
            let here = Location::caller();
            let first = taken_at();
            assert_eq!(first.as_deref(), None, "a lock is taken at {here} while this one is held");
            TAKEN_AT.set(Some(here));
            Self
        }
    }

    impl Drop for Alone {
        fn drop(&mut self) {
            TAKEN_AT.set(None);
        }
    }
}

/// A hook for tests, called before each lock is taken and after it is released. A test can let
/// another thread run there.
#[cfg(test)]
pub(crate) mod turns {
    use std::cell::Cell;

    thread_local! {
        static PASS: Cell<Option<fn()>> = const { Cell::new(None) };
    }

    /// Sets the hook of this thread.
    pub(crate) fn use_on_this_thread(pass: fn()) {
        PASS.set(Some(pass));
    }

    pub(super) fn pass() {
        if let Some(pass) = PASS.get() {
            pass();
        }
    }

    /// The last field of a guard, so that it is dropped after the lock is released.
    #[derive(Debug)]
    pub(super) struct AtDrop;

    impl Drop for AtDrop {
        fn drop(&mut self) {
            pass();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_lock_after_the_other_may_be_taken() {
        let (one, other) = (Mutex::new(1), Mutex::new(2));
        for _ in 0..2 {
            *one.lock() += 1;
            *other.lock() += 1;
        }
        assert_eq!(*one.lock(), 3);
        assert_eq!(*other.lock(), 4);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "while this one is held")]
    fn no_lock_may_be_taken_while_another_is_held() {
        let (one, other) = (Mutex::new(1), Mutex::new(2));
        let _one = one.lock();
        drop(other.lock());
    }
}
