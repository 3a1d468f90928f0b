//! Recordings: the streams that LangGraph sent, in files that `threadway translate` reads.
//!
//! ```text
//!  driver -- RunRecorder --> commands, at most MAX_QUEUED_BYTES --> a thread --> DIR/run-<run id>.sse
//! ```
//! A file has the bytes as they came. A comment marks each connection that joined the run, since its
//! repeats can only be recognised by their place. Thread states that were read beside the stream are
//! not recorded.
//!
//! A driver never waits for the disk. A recording is abandoned if the disk is too slow or the
//! directory has no room. An incomplete recording ends inside an event, after a comment that says
//! why, so that `translate` reports an incomplete capture.
//!
//! - `writer`: the thread that writes the files. `redact`: removes secrets.

use std::fmt::{self, Display};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use bytes::Bytes;

mod redact;
mod writer;

use writer::{Command, Writer};

/// How many recordings are kept, unless configured otherwise.
pub const DEFAULT_FILES: usize = 100;

/// How many bytes all recordings may have, unless configured otherwise.
pub const DEFAULT_BYTES: usize = 256 * 1024 * 1024;

/// How many bytes may wait for the disk: what a slow one writes in two seconds.
const MAX_QUEUED_BYTES: usize = 16 * 1024 * 1024;

/// The memory of a queued chunk beside its bytes.
const CHUNK_OVERHEAD: usize = 256;

/// The beginning of the comment before the bytes of a connection that joined the run.
pub(super) const JOINED: &str = ": threadway joined the run after ";

/// The text before the time of the server's answer in that comment, in milliseconds of the server's
/// clock.
pub(super) const ANSWERED: &str = "; answered at ";

/// How long the end of the process waits for queued bytes to be written.
const FINISH_PATIENCE: Duration = Duration::from_secs(5);

/// The file that is written at the start to find out whether the directory is writable.
const PROBE: &str = ".threadway-record";

/// Where recordings are kept, and how many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// The directory. It is created if it does not exist.
    pub dir: PathBuf,
    /// How many files there may be.
    pub files: usize,
    /// How many bytes all files together may have.
    pub bytes: usize,
}

/// Records runs. Clones share the directory.
#[derive(Clone)]
pub struct Recorder(Arc<Shared>);

struct Shared {
    commands: Sender<Command>,
    /// How many bytes wait to be written.
    queued: Arc<AtomicUsize>,
    /// The number of the next recording.
    next: AtomicU64,
}

/// Records one reading of a run.
#[derive(Debug)]
pub(super) struct RunRecorder {
    recorder: Recorder,
    number: u64,
    state: RunRecorderState,
    /// The cursor after which the stream was last requested.
    requested_after: String,
}

#[derive(Debug)]
enum RunRecorderState {
    /// There is no file yet, because no bytes have come or the run has no name.
    Buffering {
        secrets: Vec<Vec<u8>>,
        joined: Option<String>,
        chunks: Vec<Bytes>,
    },
    /// There is a file. The chunks wait for the next flush.
    Writing {
        chunks: Vec<Bytes>,
    },
    Closed,
}

// === impl Recorder ===

impl Recorder {
    /// Opens the directory, and starts the thread that writes. Fails if the directory is not
    /// writable.
    pub fn open(recording: &Recording) -> io::Result<Self> {
        writer::create_dir(&recording.dir)?;
        let probe = recording.dir.join(PROBE);
        writer::create_file(&probe)?;
        fs::remove_file(&probe)?;
        let queued = Arc::<AtomicUsize>::default();
        let writer = Writer::new(recording.clone(), Arc::clone(&queued))?;
        let (commands, received) = mpsc::channel();
        std::thread::Builder::new()
            .name("threadway-record".to_owned())
            .spawn(move || writer.run(&received))?;
        Ok(Self(Arc::new(Shared { commands, queued, next: AtomicU64::default() })))
    }

    /// Waits until everything is written, for 5 s at most: the disk may not respond.
    pub fn finish(&self) {
        let (done, written) = mpsc::channel();
        if self.0.commands.send(Command::Finish(done)).is_err()
            || written.recv_timeout(FINISH_PATIENCE).is_err()
        {
            tracing::warn!("could not write the last bytes of the recordings in time");
        }
    }

    /// Begins a recording. `secrets` are the credentials that the upstream is asked with.
    pub(super) fn run(&self, secrets: Vec<Vec<u8>>) -> RunRecorder {
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        let state = RunRecorderState::Buffering { secrets, joined: None, chunks: Vec::new() };
        RunRecorder { recorder: self.clone(), number, state, requested_after: String::new() }
    }

    /// Reserves room for this many bytes in the queue. Returns whether there was room.
    fn reserve(&self, bytes: usize) -> bool {
        let most = MAX_QUEUED_BYTES.saturating_sub(bytes);
        let add = |queued| (queued <= most).then_some(queued + bytes);
        self.0.queued.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }

    fn send(&self, command: Command) {
        // This fails only if the thread has panicked, which was logged.
        let _ = self.0.commands.send(command);
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recorder")
    }
}

// === impl RunRecorder ===

impl RunRecorder {
    /// Buffers bytes of the stream.
    pub(super) fn push(&mut self, new: &[u8]) {
        let memory_bytes = new.len() + CHUNK_OVERHEAD;
        let (RunRecorderState::Buffering { chunks, .. } | RunRecorderState::Writing { chunks }) =
            &mut self.state
        else {
            return;
        };
        if self.recorder.reserve(memory_bytes) {
            chunks.push(Bytes::copy_from_slice(new));
        } else {
            tracing::warn!("abandoned a recording: the disk is slower than the runs");
            self.close("the disk was slower than the run", false);
        }
    }

    /// Hands the buffered bytes to the writing thread. Without a run id, the file is named after
    /// the thread.
    pub(super) fn flush(&mut self, thread_id: &str, run_id: Option<&str>) {
        let number = self.number;
        match &mut self.state {
            RunRecorderState::Buffering { chunks, .. } if chunks.is_empty() => {}
            RunRecorderState::Buffering { secrets, joined, chunks } => {
                let (secrets, chunks) = (std::mem::take(secrets), std::mem::take(chunks));
                let how = if joined.is_some() {
                    "; joined: what LangGraph does not store of the beginning is missing"
                } else {
                    ""
                };
                let joined = joined.take();
                let run = run_id.unwrap_or("without an id");
                let version = env!("CARGO_PKG_VERSION");
                let head = format!("threadway {version}: run {run} of thread {thread_id}{how}");
                let id = run_id.unwrap_or(thread_id).to_owned();
                self.recorder.send(Command::Open { number, id, head });
                self.recorder.send(Command::Secrets { number, secrets });
                if let Some(note) = joined {
                    self.recorder.send(Command::Join { number, note });
                }
                self.recorder.send(Command::Write { number, chunks });
                self.state = RunRecorderState::Writing { chunks: Vec::new() };
            }
            RunRecorderState::Writing { chunks } if chunks.is_empty() => {}
            RunRecorderState::Writing { chunks } => {
                let chunks = std::mem::take(chunks);
                self.recorder.send(Command::Write { number, chunks });
            }
            RunRecorderState::Closed => {}
        }
    }

    /// The stream is requested after this cursor, with these secrets.
    pub(super) fn on_request(&mut self, cursor: &str, new: Vec<Vec<u8>>) {
        cursor.clone_into(&mut self.requested_after);
        match &mut self.state {
            RunRecorderState::Buffering { secrets, .. } => secrets.extend(new),
            RunRecorderState::Writing { .. } => {
                self.recorder.send(Command::Secrets { number: self.number, secrets: new });
            }
            RunRecorderState::Closed => {}
        }
    }

    /// The request was answered. `date` is the time of the server's clock, in milliseconds.
    pub(super) fn on_join(&mut self, date: Option<u64>) {
        let date = date.map(|date| format!("{ANSWERED}{date}")).unwrap_or_default();
        let note = format!("{JOINED}{}{date}", self.requested_after);
        match &mut self.state {
            RunRecorderState::Buffering { joined, .. } => *joined = Some(note),
            RunRecorderState::Writing { .. } => {
                self.recorder.send(Command::Join { number: self.number, note });
            }
            RunRecorderState::Closed => {}
        }
    }

    /// Ends the recording with a comment. `is_whole` is whether the reading ended with the run's
    /// own end.
    pub(super) fn close(&mut self, note: impl Display, is_whole: bool) {
        let state = std::mem::replace(&mut self.state, RunRecorderState::Closed);
        let (RunRecorderState::Buffering { chunks, .. } | RunRecorderState::Writing { chunks }) =
            &state
        else {
            return;
        };
        self.recorder.0.queued.fetch_sub(memory_bytes(chunks), Ordering::Relaxed);
        if let RunRecorderState::Writing { .. } = state {
            let note = note.to_string();
            self.recorder.send(Command::Close { number: self.number, note, is_whole });
        }
    }
}

impl Drop for RunRecorder {
    fn drop(&mut self) {
        self.close("the gateway stopped reading the run", false);
    }
}

/// The bytes of memory that chunks take in the queue.
fn memory_bytes(chunks: &[Bytes]) -> usize {
    chunks.iter().map(|chunk| chunk.len() + CHUNK_OVERHEAD).sum()
}

#[cfg(test)]
mod tests;
