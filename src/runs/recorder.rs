//! Recordings: what LangGraph has sent of each run, in files that `threadway translate` reads.
//!
//! ```text
//!  driver -- Tape --> orders, at most MAX_QUEUED_BYTES --> a thread --> DIR/run-<run id>.sse
//! ```
//! What was sent is kept as it came. A comment stands where a connection begins that joins the run:
//! what such a one repeats can only be told by one who knows where it begins. States that were read
//! beside the stream are not in it.
//!
//! A driver never waits for a disk. A recording that the disk is too slow for is given up, and so
//! is one that the directory has no room for. A recording that is not whole ends inside an event,
//! and a comment before it says why; `translate` then reports a capture that is not whole.

use std::collections::{HashMap, VecDeque};
use std::fmt::{self, Display};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use bytes::Bytes;
use memchr::memmem;

use threadway_translate::sse;

/// How many recordings are kept, unless the configuration says otherwise.
pub const DEFAULT_FILES: usize = 100;

/// How many bytes all recordings may have, unless the configuration says otherwise.
pub const DEFAULT_BYTES: usize = 256 * 1024 * 1024;

/// How many bytes may wait for the disk: two seconds of a slow one.
const MAX_QUEUED_BYTES: usize = 16 * 1024 * 1024;

/// What a piece weighs beside its bytes.
const PIECE_BYTES: usize = 256;

/// The longest part of a name that is taken from an id: LangGraph's have 36 characters.
const MAX_ID: usize = 64;

/// How many recordings of one run may be there: a run is recorded anew by each reading of it.
const MAX_TAKES: usize = 1_000;

/// The shortest secret that is looked for: shorter ones are words.
const MIN_SECRET: usize = 16;

/// What stands in a recording where a secret stood.
const REDACTED: &[u8] = b"[redacted by threadway]";

/// How the comment begins that stands before what a connection brings that has joined the run.
pub(super) const JOINED: &str = ": threadway joined the run after ";

/// What stands before the time of the server's answer there, in milliseconds of its clock.
pub(super) const ANSWERED: &str = "; answered at ";

/// How long the end of the process waits for what is still to be written.
const FINISH_PATIENCE: Duration = Duration::from_secs(5);

/// What a recording's name begins with, and ends in. No other file is ever removed.
const PREFIX: &str = "run-";
const SUFFIX: &str = ".sse";

/// The file that is written at the start to see whether one can be.
const PROBE: &str = ".threadway-record";

/// Where recordings are kept, and how many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// The directory. It is made if it is not there.
    pub dir: PathBuf,
    /// How many files there may be.
    pub files: usize,
    /// How many bytes all of them may have.
    pub bytes: usize,
}

/// Records runs. Clones share the directory.
#[derive(Clone)]
pub struct Recorder(Arc<Desk>);

struct Desk {
    orders: Sender<Order>,
    /// How many bytes wait to be written.
    queued: Arc<AtomicUsize>,
    next: AtomicU64,
}

/// The recording of one reading of a run.
#[derive(Debug)]
pub(super) struct Tape {
    recorder: Recorder,
    number: u64,
    state: State,
    /// Behind which id the run was asked for.
    asked: String,
}

#[derive(Debug)]
enum State {
    /// Nothing has come, or the run has no name yet. What has come waits.
    Blank {
        secrets: Vec<Vec<u8>>,
        joined: Option<String>,
        chunks: Vec<Bytes>,
    },
    /// There is a file, and what has come since waits for the end of its turn.
    Rolling {
        chunks: Vec<Bytes>,
    },
    Over,
}

/// What is asked of the thread that writes.
enum Order {
    Open {
        number: u64,
        id: String,
        head: String,
    },
    Secrets {
        number: u64,
        secrets: Vec<Vec<u8>>,
    },
    Write {
        number: u64,
        chunks: Vec<Bytes>,
    },
    /// A connection has joined the run.
    Seam {
        number: u64,
        note: String,
    },
    Close {
        number: u64,
        note: String,
        is_whole: bool,
    },
    Finish(Sender<()>),
}

/// The thread that writes.
struct Writer {
    recording: Recording,
    /// Those that are complete, oldest first, with their sizes.
    kept: VecDeque<(PathBuf, u64)>,
    open: HashMap<u64, Take>,
    /// How many bytes all recordings have.
    total: u64,
    queued: Arc<AtomicUsize>,
}

/// A recording that is being written.
struct Take {
    path: PathBuf,
    file: File,
    bytes: u64,
    secrets: Vec<Vec<u8>>,
    /// The beginning of an event whose end has not come.
    rest: Vec<u8>,
}

// === impl Recorder ===

impl Recorder {
    /// Opens the directory, and starts the thread that writes.
    pub fn open(recording: &Recording) -> io::Result<Self> {
        make(&recording.dir)?;
        // Whether anything may be written there shows now, and not with the first run.
        let probe = recording.dir.join(PROBE);
        create(&probe)?;
        fs::remove_file(&probe)?;
        let queued = Arc::<AtomicUsize>::default();
        let writer = Writer::new(recording.clone(), Arc::clone(&queued))?;
        let (orders, taken) = mpsc::channel();
        std::thread::Builder::new()
            .name("threadway-record".to_owned())
            .spawn(move || writer.run(&taken))?;
        Ok(Self(Arc::new(Desk { orders, queued, next: AtomicU64::default() })))
    }

    /// Waits until all that was recorded is written, but not for a disk that does not answer.
    pub fn finish(&self) {
        let (done, written) = mpsc::channel();
        if self.0.orders.send(Order::Finish(done)).is_err()
            || written.recv_timeout(FINISH_PATIENCE).is_err()
        {
            tracing::warn!("recordings were not written to their end");
        }
    }

    /// A recording of a run, with the secrets that its upstream is asked with.
    pub(super) fn tape(&self, secrets: Vec<Vec<u8>>) -> Tape {
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        let state = State::Blank { secrets, joined: None, chunks: Vec::new() };
        Tape { recorder: self.clone(), number, state, asked: String::new() }
    }

    /// Whether so many bytes more may wait.
    fn takes(&self, bytes: usize) -> bool {
        let most = MAX_QUEUED_BYTES.saturating_sub(bytes);
        let add = |queued| (queued <= most).then_some(queued + bytes);
        self.0.queued.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }

    fn send(&self, order: Order) {
        // Without its thread there is nobody to write it, and that was logged.
        let _ = self.0.orders.send(order);
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recorder")
    }
}

// === impl Tape ===

impl Tape {
    /// Takes in bytes that have come. They are copied by reference.
    pub(super) fn take_in(&mut self, new: &[Bytes]) {
        let weight = weight(new);
        let (State::Blank { chunks, .. } | State::Rolling { chunks }) = &mut self.state else {
            return;
        };
        if self.recorder.takes(weight) {
            chunks.extend_from_slice(new);
        } else {
            tracing::warn!("a recording was given up: the disk is slower than the runs");
            self.close("the disk was slower than the run", false);
        }
    }

    /// Hands over what was taken in. The run is called so by now, if its id is known.
    pub(super) fn flush(&mut self, thread_id: &str, run_id: Option<&str>) {
        let number = self.number;
        match &mut self.state {
            State::Blank { chunks, .. } if chunks.is_empty() => {}
            State::Blank { secrets, joined, chunks } => {
                let (secrets, chunks) = (std::mem::take(secrets), std::mem::take(chunks));
                let how = if joined.is_some() {
                    "; it was joined, and what LangGraph does not keep of its beginning is missing"
                } else {
                    ""
                };
                let joined = joined.take();
                let run = run_id.unwrap_or("without an id");
                let version = env!("CARGO_PKG_VERSION");
                let head = format!("threadway {version}: run {run} of thread {thread_id}{how}");
                let id = run_id.unwrap_or(thread_id).to_owned();
                self.recorder.send(Order::Open { number, id, head });
                self.recorder.send(Order::Secrets { number, secrets });
                if let Some(note) = joined {
                    self.recorder.send(Order::Seam { number, note });
                }
                self.recorder.send(Order::Write { number, chunks });
                self.state = State::Rolling { chunks: Vec::new() };
            }
            State::Rolling { chunks } if chunks.is_empty() => {}
            State::Rolling { chunks } => {
                let chunks = std::mem::take(chunks);
                self.recorder.send(Order::Write { number, chunks });
            }
            State::Over => {}
        }
    }

    /// The run is asked for behind an id, with these secrets.
    pub(super) fn asks(&mut self, cursor: &str, new: Vec<Vec<u8>>) {
        cursor.clone_into(&mut self.asked);
        match &mut self.state {
            State::Blank { secrets, .. } => secrets.extend(new),
            State::Rolling { .. } => {
                self.recorder.send(Order::Secrets { number: self.number, secrets: new });
            }
            State::Over => {}
        }
    }

    /// The connection that was asked for was answered then, by the server's clock.
    pub(super) fn joins(&mut self, date: Option<u64>) {
        let date = date.map(|date| format!("{ANSWERED}{date}")).unwrap_or_default();
        let note = format!("{JOINED}{}{date}", self.asked);
        match &mut self.state {
            State::Blank { joined, .. } => *joined = Some(note),
            State::Rolling { .. } => {
                self.recorder.send(Order::Seam { number: self.number, note });
            }
            State::Over => {}
        }
    }

    /// The reading is over. A recording is whole if its end is the run's.
    pub(super) fn close(&mut self, note: impl Display, is_whole: bool) {
        let state = std::mem::replace(&mut self.state, State::Over);
        let (State::Blank { chunks, .. } | State::Rolling { chunks }) = &state else { return };
        self.recorder.0.queued.fetch_sub(weight(chunks), Ordering::Relaxed);
        if let State::Rolling { .. } = state {
            let note = note.to_string();
            self.recorder.send(Order::Close { number: self.number, note, is_whole });
        }
    }
}

impl Drop for Tape {
    fn drop(&mut self) {
        self.close("the gateway stopped to read the run", false);
    }
}

// === impl Writer ===

impl Writer {
    /// Counts the recordings that are there already.
    fn new(recording: Recording, queued: Arc<AtomicUsize>) -> io::Result<Self> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&recording.dir)? {
            let entry = entry?;
            // Of the entry itself, not of what a link leads to.
            let metadata = entry.metadata()?;
            if metadata.is_file() && is_recording(&entry.file_name().to_string_lossy()) {
                found.push((metadata.modified().ok(), entry.path(), metadata.len()));
            }
        }
        found.sort();
        let kept: VecDeque<_> = found.into_iter().map(|(_, path, bytes)| (path, bytes)).collect();
        let total = kept.iter().map(|(_, bytes)| bytes).sum();
        Ok(Self { recording, kept, open: HashMap::new(), total, queued })
    }

    fn run(mut self, orders: &Receiver<Order>) {
        while let Ok(order) = orders.recv() {
            self.obey(order);
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Open { number, id, head } => match self.open(&id, &head) {
                Ok(take) => {
                    self.open.insert(number, take);
                }
                Err(error) => tracing::warn!(%error, "a run is not recorded"),
            },
            Order::Secrets { number, secrets } => {
                if let Some(take) = self.open.get_mut(&number) {
                    let long = secrets.into_iter().filter(|secret| secret.len() >= MIN_SECRET);
                    take.secrets.extend(long);
                }
            }
            Order::Write { number, chunks } => {
                self.write(number, &chunks);
                self.queued.fetch_sub(weight(&chunks), Ordering::Relaxed);
            }
            Order::Seam { number, note } => {
                let Some(take) = self.open.get_mut(&number) else { return };
                // It comes again, whole.
                take.rest.clear();
                let comment = comment(&note);
                self.put(number, comment.as_bytes());
            }
            Order::Close { number, note, is_whole } => self.close(number, &note, is_whole),
            Order::Finish(done) => {
                let open: Vec<_> = self.open.keys().copied().collect();
                for number in open {
                    self.close(number, "the gateway ended", false);
                }
                let _ = done.send(());
            }
        }
    }

    /// Begins a file, which only its owner may read.
    fn open(&mut self, id: &str, head: &str) -> io::Result<Take> {
        while self.kept.len() + self.open.len() >= self.recording.files {
            if !self.remove_oldest() {
                return Err(io::Error::other("as many runs as `record.files` are being recorded"));
            }
        }
        let id = safe(id);
        for take in 1..=MAX_TAKES {
            let count = if take == 1 { String::new() } else { format!(".{take}") };
            let path = self.recording.dir.join(format!("{PREFIX}{id}{count}{SUFFIX}"));
            match create(&path) {
                Ok(mut file) => {
                    let head = comment(head);
                    file.write_all(head.as_bytes())?;
                    let bytes = head.len() as u64;
                    self.total += bytes;
                    return Ok(Take { path, file, bytes, secrets: Vec::new(), rest: Vec::new() });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other("there are too many recordings of this run"))
    }

    /// Writes what is whole of a stream: so a secret is never in two pieces.
    fn write(&mut self, number: u64, chunks: &[Bytes]) {
        let Some(take) = self.open.get_mut(&number) else { return };
        let mut from = take.rest.len();
        for chunk in chunks {
            take.rest.extend_from_slice(chunk);
        }
        from = from.saturating_sub(3);
        let whole = end_of_blocks(&take.rest, from);
        if take.rest.len() - whole > sse::MAX_EVENT_BYTES {
            return self.close(number, "an event was too large", false);
        }
        let rest = take.rest.split_off(whole);
        let whole = std::mem::replace(&mut take.rest, rest);
        let whole = without(&take.secrets, whole);
        self.put(number, &whole);
    }

    /// Appends to a file, and makes room for that.
    fn put(&mut self, number: u64, bytes: &[u8]) {
        let new = bytes.len() as u64;
        while self.total + new > self.recording.bytes as u64 {
            if !self.remove_oldest() {
                let note = "all recordings together have come to `record.bytes`";
                tracing::warn!("a recording was given up: {note}");
                return self.close(number, note, false);
            }
        }
        let Some(take) = self.open.get_mut(&number) else { return };
        match take.file.write_all(bytes) {
            Ok(()) => {
                take.bytes += new;
                self.total += new;
            }
            Err(error) => {
                tracing::warn!(%error, "a recording was given up");
                self.close(number, "it could not be written", false);
            }
        }
    }

    fn close(&mut self, number: u64, note: &str, is_whole: bool) {
        let Some(mut take) = self.open.remove(&number) else { return };
        let is_whole = is_whole && take.rest.is_empty();
        let mut end = comment(note);
        if !is_whole {
            end.push_str("event: not-whole\n");
        }
        // What is not written is not whole either, and was logged.
        if take.file.write_all(end.as_bytes()).is_ok() {
            take.bytes += end.len() as u64;
            self.total += end.len() as u64;
        }
        self.kept.push_back((take.path, take.bytes));
    }

    /// Removes the oldest recording that is complete, if there is one.
    fn remove_oldest(&mut self) -> bool {
        let Some((path, bytes)) = self.kept.pop_front() else { return false };
        if let Err(error) = fs::remove_file(&path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "an old recording was not removed");
        }
        self.total = self.total.saturating_sub(bytes);
        true
    }
}

fn weight(chunks: &[Bytes]) -> usize {
    chunks.iter().map(|chunk| chunk.len() + PIECE_BYTES).sum()
}

/// Makes the directory, which only its owner may read, if it is not there.
fn make(dir: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}

/// A file that was not there, nor a link of its name.
fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn is_recording(name: &str) -> bool {
    name.starts_with(PREFIX) && name.ends_with(SUFFIX)
}

/// An id as a part of a file's name. Servers choose ids: nothing of one may lead elsewhere.
fn safe(id: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    id.chars().take(MAX_ID).map(|c| if is_plain(c) { c } else { '_' }).collect()
}

/// A comment of an event stream, which its readers pass over.
fn comment(text: &str) -> String {
    let text = text.strip_prefix(": ").unwrap_or(text);
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!(": {text}\n\n")
}

/// Where the last empty line ends, if it ends behind `from`; else 0.
fn end_of_blocks(bytes: &[u8], from: usize) -> usize {
    let is_end = |byte: u8| matches!(byte, b'\n' | b'\r');
    let pairs = bytes.windows(2).enumerate().skip(from).rev();
    let is_empty_line = |(_, pair): &(usize, &[u8])| matches!(pair, [a, b] if is_end(*a) && is_end(*b) && pair != b"\r\n");
    match { pairs }.find(is_empty_line) {
        // The line feed that belongs to a carriage return belongs to the line, too.
        Some((at, [_, b'\r'])) if bytes.get(at + 2) == Some(&b'\n') => at + 3,
        Some((at, _)) => at + 2,
        None => 0,
    }
}

/// Bytes without secrets.
fn without(secrets: &[Vec<u8>], bytes: Vec<u8>) -> Vec<u8> {
    secrets.iter().fold(bytes, |bytes, secret| {
        let mut found = memmem::find_iter(&bytes, secret).peekable();
        if found.peek().is_none() {
            drop(found);
            return bytes;
        }
        let (mut out, mut from) = (Vec::with_capacity(bytes.len()), 0);
        for at in found {
            out.extend_from_slice(bytes.get(from..at).unwrap_or_default());
            out.extend_from_slice(REDACTED);
            from = at + secret.len();
        }
        out.extend_from_slice(bytes.get(from..).unwrap_or_default());
        out
    })
}

#[cfg(test)]
mod tests;
