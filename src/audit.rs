//! The audit log: who did what on which thread, and whether it was allowed, one JSON object a line.
//!
//! ```text
//!  requests -- lines, at most MAX_QUEUED --> a thread --> a file, or stderr
//! ```
//! A request never waits for the disk. Lines are dropped if the disk is too slow or a write fails.
//! The gateway's own log then reports an error at once. The audit log says how many lines were
//! dropped, as soon as it can be written again.
//!
//! - `writer`: the thread that writes. `timestamp`: the text of a time.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, SyncSender, TrySendError};
use std::time::{Duration, SystemTime};

mod timestamp;
mod writer;

use threadway_translate::json::ObjectWriter;
use timestamp::{now, timestamp};
use writer::{Command, Writer};

/// How many lines may wait to be written. A line has some 300 bytes, or 6 KiB if all its names are
/// full of control characters, so the queue takes 24 MiB at most.
const MAX_QUEUED: usize = 4_096;

/// How many bytes of a client-chosen name a line has.
pub(crate) const MAX_NAME_BYTES: usize = 128;

/// How long the end of the process waits for room in a full queue, and then again for the queued
/// lines to be written.
const FINISH_PATIENCE: Duration = Duration::from_secs(5);

/// How many times the end of the process looks for room in the queue.
const FINISH_TRIES: u32 = 100;

/// The name that means stderr where a file name is expected.
const STDERR: &str = "stderr";

/// Where the audit log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditDestination {
    /// The gateway's stderr, mixed with its log.
    Stderr,
    /// A file, to which lines are appended. It is created for its owner alone if it does not exist.
    File(PathBuf),
}

/// The audit log. Clones write to the same destination.
#[derive(Clone)]
pub struct Audit(Arc<Shared>);

struct Shared {
    commands: SyncSender<Command>,
    is_to_reopen: Arc<AtomicBool>,
    /// How many lines were dropped and not yet reported.
    dropped: Arc<AtomicU64>,
}

/// One action of a caller. Client-chosen names are cut at [`MAX_NAME_BYTES`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    /// The requested action, as one word.
    pub(crate) action: &'a str,
    pub(crate) outcome: AuditOutcome,
    pub(crate) status: Option<u16>,
    pub(crate) code: Option<&'a str>,
    /// The caller, as the gateway's authentication names it.
    pub(crate) caller: Option<&'a str>,
    /// The address from which the request came.
    pub(crate) peer: Option<IpAddr>,
    /// The agent, by the client's name for it.
    pub(crate) agent: Option<&'a str>,
    /// The thread, by the client's name for it.
    pub(crate) thread: Option<&'a str>,
    /// LangGraph's id of the thread.
    pub(crate) thread_id: Option<&'a str>,
    /// LangGraph's id of the run.
    pub(crate) run_id: Option<&'a str>,
}

/// The result of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuditOutcome {
    /// The action was done or begun.
    Allowed,
    /// The action was refused with a status of 4xx.
    Refused,
    /// The action failed with a status of 5xx.
    Failed,
    /// The client left before the answer. The action may have been done.
    Left,
}

// === impl Audit ===

impl Audit {
    /// Opens the audit log, and starts the thread that writes it.
    pub fn open(destination: &AuditDestination) -> io::Result<Self> {
        let (commands, received) = mpsc::sync_channel(MAX_QUEUED);
        let (is_to_reopen, dropped) = <(Arc<AtomicBool>, Arc<AtomicU64>)>::default();
        let writer = Writer {
            file: destination.open()?,
            destination: destination.clone(),
            is_to_reopen: Arc::clone(&is_to_reopen),
            dropped: Arc::clone(&dropped),
            is_failing: false,
            is_torn: false,
        };
        std::thread::Builder::new()
            .name("threadway-audit".to_owned())
            .spawn(move || writer.run(&received))?;
        Ok(Self(Arc::new(Shared { commands, is_to_reopen, dropped })))
    }

    /// Queues a line, or drops it if the queue is full. Never blocks.
    pub(crate) fn write(&self, entry: &Entry<'_>) {
        let line = entry.line(now());
        if self.0.commands.try_send(Command::Write(line)).is_err()
            && self.0.dropped.fetch_add(1, Ordering::Relaxed) == 0
        {
            tracing::error!(
                "the audit log is slower than the requests, or does not respond: lines are dropped"
            );
        }
    }

    /// Opens the file again before the next line is written. It may have been moved away.
    pub(crate) fn reopen(&self) {
        self.0.is_to_reopen.store(true, Ordering::Relaxed);
        // With a full queue the next command has the same effect.
        let _ = self.0.commands.try_send(Command::Wake);
    }

    /// Waits until all lines are written, for 10 s at most: the disk may not respond.
    pub fn finish(&self) {
        let (done, written) = mpsc::channel();
        let mut command = Command::Finish(done);
        for _ in 0..FINISH_TRIES {
            match self.0.commands.try_send(command) {
                Err(TrySendError::Full(refused)) => command = refused,
                Ok(()) | Err(TrySendError::Disconnected(_)) => break,
            }
            std::thread::sleep(FINISH_PATIENCE / FINISH_TRIES);
        }
        if written.recv_timeout(FINISH_PATIENCE).is_err() {
            tracing::error!("could not write the last lines of the audit log in time");
        }
    }
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Audit")
    }
}

// === impl AuditDestination ===

impl AuditDestination {
    fn open(&self) -> io::Result<Option<File>> {
        let Self::File(path) = self else { return Ok(None) };
        let mut options = OpenOptions::new();
        options.append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(path).map(Some)
    }
}

impl FromStr for AuditDestination {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(if text == STDERR { Self::Stderr } else { Self::File(text.into()) })
    }
}

impl fmt::Display for AuditDestination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stderr => f.write_str(STDERR),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

// === impl Entry ===

impl Entry<'_> {
    fn line(&self, now: SystemTime) -> String {
        let Self { action, outcome, status, code, .. } = *self;
        let mut line = ObjectWriter::new()
            .string("time", &timestamp(now))
            .string("action", action)
            .string("outcome", outcome.word());
        if let Some(status) = status {
            line = line.raw("status", &status.to_string());
        }
        let peer = self.peer.map(|peer| peer.to_canonical().to_string());
        for (name, value) in [
            ("code", code),
            ("caller", self.caller),
            ("peer", peer.as_deref()),
            ("agent", self.agent),
            ("thread", self.thread),
            ("thread_id", self.thread_id),
            ("run_id", self.run_id),
        ] {
            if let Some(value) = value {
                line = line.string(name, beginning(value));
            }
        }
        line.finish().get().to_owned()
    }
}

// === impl AuditOutcome ===

impl AuditOutcome {
    /// The result that an HTTP status stands for.
    pub(crate) fn of(status: u16) -> Self {
        match status {
            ..400 => Self::Allowed,
            400..500 => Self::Refused,
            500.. => Self::Failed,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Left => "left",
        }
    }
}

/// The first [`MAX_NAME_BYTES`] of a name, or fewer, to the end of a character.
fn beginning(name: &str) -> &str {
    name.get(..name.floor_char_boundary(MAX_NAME_BYTES)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn a_line_is_one_object_of_bounded_size_whatever_a_client_calls_its_thread() {
        let name = format!("\"\n\u{1b}[31m{}", "\u{1f600}".repeat(1_000));
        let entry = Entry {
            action: "run",
            outcome: AuditOutcome::of(403),
            status: Some(403),
            code: Some("forbidden"),
            caller: None,
            peer: Some("::ffff:192.0.2.7".parse().unwrap()),
            agent: Some(&name),
            thread: Some(&name),
            thread_id: None,
            run_id: None,
        };
        let line = entry.line(UNIX_EPOCH);
        assert!(line.len() < 1_024, "{}", line.len());
        assert!(!line.contains(|character: char| character.is_control()), "{line}");
        let read: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert!(name.starts_with(read["thread"].as_str().unwrap()));
        assert_eq!(read["outcome"], "refused");
        assert_eq!(read["peer"], "192.0.2.7");
        assert!(read.get("caller").is_none() && read.get("run_id").is_none());
    }

    #[test]
    fn a_destination_is_a_file_unless_it_is_stderr() {
        assert_eq!("stderr".parse(), Ok(AuditDestination::Stderr));
        assert_eq!("./stderr".parse(), Ok(AuditDestination::File("./stderr".into())));
    }
}
