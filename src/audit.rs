//! The audit log: who did what on which thread, and whether it was allowed, one JSON object a line.
//!
//! ```text
//!  requests -- lines, at most MAX_QUEUED --> a thread --> a file, or stderr
//! ```
//! A request never waits for the disk. Lines that the disk is too slow for, or that it refuses, are
//! left out: the gateway's own log says so at once, and the audit log says how many as soon as it can.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender, TryRecvError, TrySendError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use threadway_translate::json::ObjectWriter;

/// How many lines may wait to be written. A line has some 300 bytes, and 6 KiB if all its names are
/// full of control characters: 24 MiB at most.
pub const MAX_QUEUED: usize = 4_096;

/// How much a line has of each name that a client chooses, in bytes.
pub const MAX_NAME_BYTES: usize = 128;

/// How long the end of the process waits for a place in a full queue, and then for what is still to
/// be written.
const FINISH_PATIENCE: Duration = Duration::from_secs(5);

/// How often it looks for that place.
const FINISH_TRIES: u32 = 100;

/// The word that stands for stderr where the name of a file is expected.
const STDERR: &str = "stderr";

/// Where the audit log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// The gateway's stderr, between the lines of its log.
    Stderr,
    /// A file, to which lines are appended. It is made if it is not there, for its owner alone.
    File(PathBuf),
}

/// The audit log. Clones write to the same.
#[derive(Clone)]
pub struct Audit(Arc<Shared>);

struct Shared {
    orders: SyncSender<Order>,
    is_to_reopen: Arc<AtomicBool>,
    left_out: Arc<AtomicU64>,
}

/// What somebody did. Names that a client has chosen are cut at [`MAX_NAME_BYTES`].
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// What was asked for, in a word.
    pub action: &'a str,
    /// What became of it.
    pub outcome: Outcome,
    /// The status of the answer, if there was one.
    pub status: Option<u16>,
    /// The stable code of a refusal.
    pub code: Option<&'a str>,
    /// Who asked, as the gateway's authentication names it.
    pub caller: Option<&'a str>,
    /// The address that the request came from.
    pub peer: Option<IpAddr>,
    /// The agent, by the client's name for it.
    pub agent: Option<&'a str>,
    /// The thread, by the client's name for it.
    pub thread: Option<&'a str>,
    /// LangGraph's id of the thread.
    pub thread_id: Option<&'a str>,
    /// LangGraph's id of the run.
    pub run_id: Option<&'a str>,
}

/// What became of what somebody asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was done, or began to be done.
    Allowed,
    /// It was refused: a status of 4xx.
    Refused,
    /// It could not be done: a status of 5xx.
    Failed,
    /// The client left before it was answered; it may have been done.
    Left,
}

/// What is asked of the thread that writes.
enum Order {
    Write(String),
    /// There is something to look at beside the orders.
    Wake,
    Finish(Sender<()>),
}

/// The thread that writes.
struct Writer {
    destination: Destination,
    /// `None` for stderr.
    file: Option<File>,
    is_to_reopen: Arc<AtomicBool>,
    left_out: Arc<AtomicU64>,
    is_failing: bool,
    /// Whether what was written last may end inside a line.
    is_torn: bool,
}

// === impl Audit ===

impl Audit {
    /// Opens the audit log, and starts the thread that writes it.
    pub fn open(destination: &Destination) -> io::Result<Self> {
        let (orders, taken) = mpsc::sync_channel(MAX_QUEUED);
        let (is_to_reopen, left_out) = <(Arc<AtomicBool>, Arc<AtomicU64>)>::default();
        let writer = Writer {
            file: destination.open()?,
            destination: destination.clone(),
            is_to_reopen: Arc::clone(&is_to_reopen),
            left_out: Arc::clone(&left_out),
            is_failing: false,
            is_torn: false,
        };
        std::thread::Builder::new()
            .name("threadway-audit".to_owned())
            .spawn(move || writer.run(&taken))?;
        Ok(Self(Arc::new(Shared { orders, is_to_reopen, left_out })))
    }

    /// Writes a line, unless too many wait already. Never blocks.
    pub fn write(&self, entry: &Entry<'_>) {
        let line = entry.line(now());
        if self.0.orders.try_send(Order::Write(line)).is_err()
            && self.0.left_out.fetch_add(1, Ordering::Relaxed) == 0
        {
            tracing::error!(
                "the audit log is slower than the requests, or does not answer: lines are left out"
            );
        }
    }

    /// Opens the file anew before the next line: it may have been moved away.
    pub fn reopen(&self) {
        self.0.is_to_reopen.store(true, Ordering::Relaxed);
        // If too many orders wait, the next one is as good.
        let _ = self.0.orders.try_send(Order::Wake);
    }

    /// Waits until all lines are written, but not for a disk that does not answer.
    pub fn finish(&self) {
        let (done, written) = mpsc::channel();
        let mut order = Order::Finish(done);
        // There is no place for the order while as many lines wait as may.
        for _ in 0..FINISH_TRIES {
            match self.0.orders.try_send(order) {
                Err(TrySendError::Full(refused)) => order = refused,
                Ok(()) | Err(TrySendError::Disconnected(_)) => break,
            }
            std::thread::sleep(FINISH_PATIENCE / FINISH_TRIES);
        }
        if written.recv_timeout(FINISH_PATIENCE).is_err() {
            tracing::error!("the audit log was not written to its end");
        }
    }
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Audit")
    }
}

// === impl Destination ===

impl Destination {
    fn open(&self) -> io::Result<Option<File>> {
        let Self::File(path) = self else { return Ok(None) };
        let mut options = OpenOptions::new();
        options.append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(path).map(Some)
    }
}

impl FromStr for Destination {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(if text == STDERR { Self::Stderr } else { Self::File(text.into()) })
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stderr => f.write_str(STDERR),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

// === impl Writer ===

impl Writer {
    fn run(mut self, orders: &Receiver<Order>) {
        loop {
            let order = match orders.try_recv() {
                Ok(order) => order,
                Err(TryRecvError::Disconnected) => return,
                Err(TryRecvError::Empty) => {
                    // While lines wait, more may be left out: the log would say so again and again.
                    self.catch_up();
                    let Ok(order) = orders.recv() else { return };
                    order
                }
            };
            if self.is_to_reopen.swap(false, Ordering::Relaxed) {
                self.reopen();
            }
            match order {
                Order::Write(line) => self.write(&line),
                Order::Wake => {}
                Order::Finish(done) => {
                    // Who asked may wait no longer.
                    let _ = done.send(());
                }
            }
        }
    }

    /// A file that cannot be opened leaves the old one in use.
    fn reopen(&mut self) {
        match self.destination.open() {
            Ok(file) => {
                self.file = file;
                self.is_torn = false;
                tracing::info!(audit_log = %self.destination, "the audit log was opened again");
            }
            Err(error) => tracing::error!(
                audit_log = %self.destination,
                %error,
                "the audit log cannot be opened again, and the open file stays in use"
            ),
        }
    }

    /// Writes how many lines were left out.
    fn catch_up(&mut self) {
        let left_out = self.left_out.load(Ordering::Relaxed);
        if left_out == 0 {
            return;
        }
        let line = ObjectWriter::new()
            .string("time", &timestamp(now()))
            .string("action", "left_out")
            .raw("lines", &left_out.to_string());
        if self.append(line.finish().get()).is_ok() {
            self.left_out.fetch_sub(left_out, Ordering::Relaxed);
            self.is_failing = false;
            tracing::warn!(left_out, "the audit log is written again: it lacks some lines");
        }
    }

    fn write(&mut self, line: &str) {
        if let Err(error) = self.append(line) {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            if !self.is_failing {
                self.is_failing = true;
                tracing::error!(
                    audit_log = %self.destination,
                    %error,
                    "the audit log cannot be written: lines are left out"
                );
            }
        }
    }

    fn append(&mut self, line: &str) -> io::Result<()> {
        let torn = if self.is_torn { "\n" } else { "" };
        let line = format!("{torn}{line}\n");
        let written = match &mut self.file {
            Some(file) => file.write_all(line.as_bytes()),
            None => io::stderr().lock().write_all(line.as_bytes()),
        };
        self.is_torn = written.is_err();
        written
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

// === impl Outcome ===

impl Outcome {
    /// What an answer with this status means.
    pub fn of(status: u16) -> Self {
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

#[expect(clippy::disallowed_methods, reason = "people compare a line with other logs")]
fn now() -> SystemTime {
    SystemTime::now()
}

/// The beginning of a name.
fn beginning(name: &str) -> &str {
    name.get(..name.floor_char_boundary(MAX_NAME_BYTES)).unwrap_or_default()
}

/// A time as RFC 3339 writes it, in UTC and to the millisecond.
fn timestamp(time: SystemTime) -> String {
    const DAYS_IN_ERA: u64 = 146_097;
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, millis) = (since.as_secs(), since.subsec_millis());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // The civil calendar counted from 1 March of year 0, so that a leap day ends its year.
    let days = days + 719_468;
    let (era, day_of_era) = (days / DAYS_IN_ERA, days % DAYS_IN_ERA);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_by_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.007Z"),
            (951_782_399, "2000-02-28T23:59:59.007Z"),
            (951_782_400, "2000-02-29T00:00:00.007Z"),
            (951_868_800, "2000-03-01T00:00:00.007Z"),
            (1_735_689_599, "2024-12-31T23:59:59.007Z"),
            (1_735_689_600, "2025-01-01T00:00:00.007Z"),
            (4_107_542_400, "2100-03-01T00:00:00.007Z"),
        ] {
            let time = UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_millis(7);
            assert_eq!(timestamp(time), expected, "{seconds}");
        }
    }

    #[test]
    fn a_line_is_one_object_of_bounded_size_whatever_a_client_calls_its_thread() {
        let name = format!("\"\n\u{1b}[31m{}", "\u{1f600}".repeat(1_000));
        let entry = Entry {
            action: "run",
            outcome: Outcome::of(403),
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
        assert_eq!("stderr".parse(), Ok(Destination::Stderr));
        assert_eq!("./stderr".parse(), Ok(Destination::File("./stderr".into())));
    }
}
