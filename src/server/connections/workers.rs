//! The runtimes that serve connections: one for each core, each with one thread.
//!
//! The task of a run and those of its viewers wake each other with each token. On one thread that is
//! an entry in a queue. Between two threads of one runtime, each may run either task, and then the
//! caches of its core have nothing of the run.

use std::num::NonZero;
use std::sync::Arc;
use std::{env, io, thread};

use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle, Runtime};

/// The variable that sets the number of threads of any program on tokio.
const THREADS: &str = "TOKIO_WORKER_THREADS";

/// The runtimes that serve connections. A connection stays on one of them, and so does each run that
/// it starts or is the first to read.
///
/// Dropping them ends what runs on all but the first, at its next wait.
#[derive(Debug)]
pub struct Workers {
    first: Worker,
    others: Vec<Worker>,
    /// Those of `others`.
    runtimes: Vec<Runtime>,
}

/// A runtime of one thread.
#[derive(Debug)]
pub(super) struct Worker {
    runtime: Handle,
    /// Each connection holds a clone.
    seats: Arc<()>,
}

/// A connection's place at its worker, until this is dropped.
#[derive(Debug)]
pub(super) struct Seat {
    _seat: Arc<()>,
}

/// The number of threads that the variable asks for.
fn counted(text: &str) -> io::Result<NonZero<usize>> {
    text.parse().map_err(|_| {
        io::Error::other(format!("{THREADS} is {text:?}: set a number above 0, or unset it"))
    })
}

// === impl Workers ===

impl Workers {
    /// A runtime of one thread, for the first worker.
    ///
    /// # Errors
    ///
    /// Those of the operating system.
    pub fn runtime() -> io::Result<Runtime> {
        Builder::new_multi_thread().worker_threads(1).enable_all().build()
    }

    /// One worker: the current runtime.
    ///
    /// # Panics
    ///
    /// Outside of a runtime.
    pub fn current() -> Self {
        Self { first: Worker::here(), others: Vec::new(), runtimes: Vec::new() }
    }

    /// So many workers. The first is the current runtime.
    ///
    /// # Errors
    ///
    /// Those of the operating system.
    ///
    /// # Panics
    ///
    /// Outside of a runtime.
    pub fn new(count: NonZero<usize>) -> io::Result<Self> {
        let runtimes: Vec<_> =
            (1..count.get()).map(|_| Self::runtime()).collect::<Result<_, _>>()?;
        let others = runtimes.iter().map(|runtime| Worker::new(runtime.handle())).collect();
        Ok(Self { first: Worker::here(), others, runtimes })
    }

    /// One worker for each core that this process may use, or as many as `TOKIO_WORKER_THREADS`
    /// says. The first is the current runtime.
    ///
    /// # Errors
    ///
    /// Those of the operating system, and a variable that is no number of threads.
    ///
    /// # Panics
    ///
    /// Outside of a runtime.
    pub fn of_all_cores() -> io::Result<Self> {
        #[expect(clippy::disallowed_methods, reason = "tokio reads it so, for its own runtimes")]
        let wanted = env::var(THREADS).ok();
        let cores = || thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
        Self::new(wanted.map_or_else(|| Ok(cores()), |count| counted(&count))?)
    }

    /// The worker with the fewest connections.
    pub(super) fn least_loaded(&self) -> &Worker {
        let all = self.others.iter();
        all.fold(&self.first, |least, next| if next.load() < least.load() { next } else { least })
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for runtime in self.runtimes.drain(..) {
            // To wait for its thread is not allowed in a task.
            runtime.shutdown_background();
        }
    }
}

// === impl Worker ===

impl Worker {
    fn new(runtime: &Handle) -> Self {
        Self { runtime: runtime.clone(), seats: Arc::default() }
    }

    /// The current runtime.
    fn here() -> Self {
        Self::new(&Handle::current())
    }

    fn load(&self) -> usize {
        Arc::strong_count(&self.seats)
    }

    pub(super) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Moves a socket to this worker, whose tasks alone may then use it.
    pub(super) fn adopt(&self, socket: TcpStream) -> io::Result<(TcpStream, Seat)> {
        let socket = socket.into_std()?;
        let _here = self.runtime.enter();
        let seat = Seat { _seat: Arc::clone(&self.seats) };
        Ok((TcpStream::from_std(socket)?, seat))
    }
}

#[cfg(test)]
mod tests;
