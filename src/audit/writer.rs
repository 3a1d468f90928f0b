//! The thread that writes the audit log.

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError};

use threadway_translate::json::ObjectWriter;

use super::AuditDestination;
use super::timestamp::{now, timestamp};

/// A command to the thread that writes.
pub(super) enum Command {
    Write(String),
    /// Checks whether the file is to be reopened.
    Wake,
    Finish(Sender<()>),
}

pub(super) struct Writer {
    pub(super) destination: AuditDestination,
    /// `None` for stderr.
    pub(super) file: Option<File>,
    pub(super) is_to_reopen: Arc<AtomicBool>,
    pub(super) dropped: Arc<AtomicU64>,
    pub(super) is_failing: bool,
    /// Whether the last write may have ended inside a line.
    pub(super) is_torn: bool,
}

// === impl Writer ===

impl Writer {
    pub(super) fn run(mut self, commands: &Receiver<Command>) {
        loop {
            let command = match commands.try_recv() {
                Ok(command) => command,
                Err(TryRecvError::Disconnected) => return,
                Err(TryRecvError::Empty) => {
                    // Only with an empty queue: while lines wait, more may be dropped, and the log
                    // would report each time.
                    self.report_dropped();
                    let Ok(command) = commands.recv() else { return };
                    command
                }
            };
            if self.is_to_reopen.swap(false, Ordering::Relaxed) {
                self.reopen();
            }
            match command {
                Command::Write(line) => self.write(&line),
                Command::Wake => {}
                Command::Finish(done) => {
                    // The sender may have stopped waiting.
                    let _ = done.send(());
                }
            }
        }
    }

    /// Opens the file again. If that fails, the open file stays in use.
    fn reopen(&mut self) {
        match self.destination.open() {
            Ok(file) => {
                self.file = file;
                self.is_torn = false;
                tracing::info!(audit_log = %self.destination, "reopened the audit log");
            }
            Err(error) => tracing::error!(
                audit_log = %self.destination,
                %error,
                "could not reopen the audit log; the open file stays in use"
            ),
        }
    }

    /// Writes how many lines were dropped.
    fn report_dropped(&mut self) {
        let dropped = self.dropped.load(Ordering::Relaxed);
        if dropped == 0 {
            return;
        }
        let line = ObjectWriter::new()
            .string("time", &timestamp(now()))
            .string("action", "left_out")
            .raw("lines", &dropped.to_string());
        if self.append(line.finish().get()).is_ok() {
            self.dropped.fetch_sub(dropped, Ordering::Relaxed);
            self.is_failing = false;
            tracing::warn!(
                left_out = dropped,
                "the audit log is written again; some lines were dropped"
            );
        }
    }

    fn write(&mut self, line: &str) {
        if let Err(error) = self.append(line) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            if !self.is_failing {
                self.is_failing = true;
                tracing::error!(
                    audit_log = %self.destination,
                    %error,
                    "could not write to the audit log: lines are dropped"
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
