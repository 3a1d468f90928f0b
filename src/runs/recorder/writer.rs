//! The thread that writes recordings.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender};

use bytes::Bytes;

use super::redact::{MIN_SECRET, redact};
use super::{Recording, memory_bytes};
use threadway_translate::sse;

/// The longest part of an id that becomes part of a file name. LangGraph's ids have 36 characters.
pub(super) const MAX_ID: usize = 64;

/// How many recordings of one run there may be: each reading of a run makes one.
const MAX_FILES_PER_RUN: usize = 1_000;

/// The beginning and the end of each recording's name. Other files are never removed.
const PREFIX: &str = "run-";
const SUFFIX: &str = ".sse";

/// A command to the thread that writes. `number` names the recording.
pub(super) enum Command {
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
    /// The following bytes come from a connection that joined the run.
    Join {
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

pub(super) struct Writer {
    recording: Recording,
    /// The closed recordings, oldest first, with their sizes.
    closed: VecDeque<(PathBuf, u64)>,
    open: HashMap<u64, OpenFile>,
    /// The size of all recordings, in bytes.
    total: u64,
    queued: Arc<AtomicUsize>,
}

/// A recording that is being written.
struct OpenFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    secrets: Vec<Vec<u8>>,
    /// The beginning of an event whose end has not come.
    rest: Vec<u8>,
}

// === impl Writer ===

impl Writer {
    /// Counts the recordings that the directory already has.
    pub(super) fn new(recording: Recording, queued: Arc<AtomicUsize>) -> io::Result<Self> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&recording.dir)? {
            let entry = entry?;
            // This is the metadata of a link, not of its target.
            let metadata = entry.metadata()?;
            if metadata.is_file() && is_recording(&entry.file_name().to_string_lossy()) {
                found.push((metadata.modified().ok(), entry.path(), metadata.len()));
            }
        }
        found.sort();
        let closed: VecDeque<_> = found.into_iter().map(|(_, path, bytes)| (path, bytes)).collect();
        let total = closed.iter().map(|(_, bytes)| bytes).sum();
        Ok(Self { recording, closed, open: HashMap::new(), total, queued })
    }

    pub(super) fn run(mut self, commands: &Receiver<Command>) {
        while let Ok(command) = commands.recv() {
            self.handle(command);
        }
    }

    pub(super) fn handle(&mut self, command: Command) {
        match command {
            Command::Open { number, id, head } => match self.open(&id, &head) {
                Ok(file) => {
                    self.open.insert(number, file);
                }
                Err(error) => tracing::warn!(%error, "could not open a recording"),
            },
            Command::Secrets { number, secrets } => {
                if let Some(open) = self.open.get_mut(&number) {
                    let long = secrets.into_iter().filter(|secret| secret.len() >= MIN_SECRET);
                    open.secrets.extend(long);
                }
            }
            Command::Write { number, chunks } => {
                self.write(number, &chunks);
                self.queued.fetch_sub(memory_bytes(&chunks), Ordering::Relaxed);
            }
            Command::Join { number, note } => {
                let Some(open) = self.open.get_mut(&number) else { return };
                // The new connection repeats the unfinished event.
                open.rest.clear();
                let comment = comment(&note);
                self.append(number, comment.as_bytes());
            }
            Command::Close { number, note, is_whole } => self.close(number, &note, is_whole),
            Command::Finish(done) => {
                let open: Vec<_> = self.open.keys().copied().collect();
                for number in open {
                    self.close(number, "the gateway ended", false);
                }
                let _ = done.send(());
            }
        }
    }

    /// Creates a file that only its owner may read.
    fn open(&mut self, id: &str, head: &str) -> io::Result<OpenFile> {
        while self.closed.len() + self.open.len() >= self.recording.files {
            if !self.remove_oldest() {
                return Err(io::Error::other("as many runs as `record.files` are being recorded"));
            }
        }
        let id = safe(id);
        for count in 1..=MAX_FILES_PER_RUN {
            let count = if count == 1 { String::new() } else { format!(".{count}") };
            let path = self.recording.dir.join(format!("{PREFIX}{id}{count}{SUFFIX}"));
            match create_file(&path) {
                Ok(mut file) => {
                    let head = comment(head);
                    file.write_all(head.as_bytes())?;
                    let bytes = head.len() as u64;
                    self.total += bytes;
                    let (secrets, rest) = (Vec::new(), Vec::new());
                    return Ok(OpenFile { path, file, bytes, secrets, rest });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other("there are too many recordings of this run"))
    }

    /// Writes the whole events of a stream, so that no secret is split in two.
    fn write(&mut self, number: u64, chunks: &[Bytes]) {
        let Some(open) = self.open.get_mut(&number) else { return };
        let mut from = open.rest.len();
        for chunk in chunks {
            open.rest.extend_from_slice(chunk);
        }
        from = from.saturating_sub(3);
        let whole = end_of_blocks(&open.rest, from);
        if open.rest.len() - whole > sse::MAX_EVENT_BYTES {
            return self.close(number, "an event was too large", false);
        }
        let rest = open.rest.split_off(whole);
        let whole = std::mem::replace(&mut open.rest, rest);
        let whole = redact(&open.secrets, whole);
        self.append(number, &whole);
    }

    /// Appends to a file, after removing old recordings if room is needed.
    fn append(&mut self, number: u64, bytes: &[u8]) {
        let new = bytes.len() as u64;
        while self.total + new > self.recording.bytes as u64 {
            if !self.remove_oldest() {
                let note = "all recordings together reached `record.bytes`";
                tracing::warn!("abandoned a recording: {note}");
                return self.close(number, note, false);
            }
        }
        let Some(open) = self.open.get_mut(&number) else { return };
        match open.file.write_all(bytes) {
            Ok(()) => {
                open.bytes += new;
                self.total += new;
            }
            Err(error) => {
                tracing::warn!(%error, "abandoned a recording: it could not be written");
                self.close(number, "it could not be written", false);
            }
        }
    }

    fn close(&mut self, number: u64, note: &str, is_whole: bool) {
        let Some(mut open) = self.open.remove(&number) else { return };
        let is_whole = is_whole && open.rest.is_empty();
        let mut end = comment(note);
        if !is_whole {
            end.push_str("event: not-whole\n");
        }
        // A failure needs no handling: the file is incomplete then, and an earlier failure was
        // logged.
        if open.file.write_all(end.as_bytes()).is_ok() {
            open.bytes += end.len() as u64;
            self.total += end.len() as u64;
        }
        self.closed.push_back((open.path, open.bytes));
    }

    /// Removes the oldest closed recording, if there is one. Returns whether there was.
    fn remove_oldest(&mut self) -> bool {
        let Some((path, bytes)) = self.closed.pop_front() else { return false };
        if let Err(error) = fs::remove_file(&path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "could not remove an old recording");
        }
        self.total = self.total.saturating_sub(bytes);
        true
    }
}

/// Creates the directory if it does not exist, readable by its owner only.
pub(super) fn create_dir(dir: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}

/// Creates a file. Fails if the name exists, also as a link.
pub(super) fn create_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn is_recording(name: &str) -> bool {
    name.starts_with(PREFIX) && name.ends_with(SUFFIX)
}

/// An id as part of a file name. The server chooses ids, so other characters are replaced: a path
/// must not lead out of the directory.
fn safe(id: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    id.chars().take(MAX_ID).map(|c| if is_plain(c) { c } else { '_' }).collect()
}

/// A comment line of an event stream.
fn comment(text: &str) -> String {
    let text = text.strip_prefix(": ").unwrap_or(text);
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!(": {text}\n\n")
}

/// Where the last empty line ends, if it ends after `from`; else 0.
pub(super) fn end_of_blocks(bytes: &[u8], from: usize) -> usize {
    let is_end = |byte: u8| matches!(byte, b'\n' | b'\r');
    let pairs = bytes.windows(2).enumerate().skip(from).rev();
    let is_empty_line = |(_, pair): &(usize, &[u8])| matches!(pair, [a, b] if is_end(*a) && is_end(*b) && pair != b"\r\n");
    match { pairs }.find(is_empty_line) {
        // The line decoder after a carriage return belongs to the same line end.
        Some((at, [_, b'\r'])) if bytes.get(at + 2) == Some(&b'\n') => at + 3,
        Some((at, _)) => at + 2,
        None => 0,
    }
}
