//! The processes that are measured: they are started, observed through `/proc`, and always ended.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::time::Instant;

use crate::client::Fault;

/// How long a process may take to print its address.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// How long a process may take to stop: more than the gateway's grace period.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);
/// How often to check whether a process has stopped.
const STOP_LOOK: Duration = Duration::from_millis(5);

/// A process that serves. Dropping it ends the process.
pub(crate) struct Process {
    child: Child,
    address: SocketAddr,
    /// The LangGraph server of a gateway.
    upstream: Option<SocketAddr>,
    /// The thread that forwards the process's stderr.
    ear: Option<JoinHandle<()>>,
    /// What the process answers on stdout.
    answers: Option<BufReader<ChildStdout>>,
}

// === impl Process ===

impl Process {
    /// Starts a process, and waits until it prints its address.
    pub(crate) fn start(
        name: &'static str,
        program: impl AsRef<OsStr>,
        arguments: &[&str],
    ) -> Result<Self, Fault> {
        Self::spawn(name, program, arguments, Stdio::null())
    }

    /// Starts a process that counts its [`live`](Self::live) data.
    pub(crate) fn start_counted(
        name: &'static str,
        program: impl AsRef<OsStr>,
        arguments: &[&str],
    ) -> Result<Self, Fault> {
        Self::spawn(name, program, arguments, Stdio::piped())
    }

    fn spawn(
        name: &'static str,
        program: impl AsRef<OsStr>,
        arguments: &[&str],
        stdout: Stdio,
    ) -> Result<Self, Fault> {
        let mut child = Command::new(program)
            .args(arguments)
            // The roles of this executable serve until their stdin closes.
            .stdin(Stdio::piped())
            .stdout(stdout)
            .stderr(Stdio::piped())
            .spawn()?;
        let (told, address) = channel();
        let stderr = child.stderr.take();
        let ear = stderr.map(|stderr| thread::spawn(move || listen(name, stderr, &told)));
        // From here on, dropping `process` ends the process.
        let answers = child.stdout.take().map(BufReader::new);
        let address_of_none = SocketAddr::from(([0; 4], 0));
        let mut process = Self { child, address: address_of_none, upstream: None, ear, answers };
        (process.address, process.upstream) = address
            .recv_timeout(START_TIMEOUT)
            .map_err(|_| format!("{name} did not tell where it listens"))?;
        Ok(process)
    }

    /// The address that the process listens on.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of the gateway's LangGraph server.
    pub(crate) fn upstream(&self) -> Option<SocketAddr> {
        self.upstream
    }

    /// The CPU time of the process's live threads. A runtime's threads do not end.
    pub(crate) fn cpu(&self) -> Result<Duration, Fault> {
        let mut nanoseconds = 0;
        for task in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            // "Time spent on the cpu (in nanoseconds)". `stat` counts in steps of 10 ms.
            let schedstat = fs::read_to_string(task?.path().join("schedstat"))?;
            let on_cpu = schedstat.split(' ').next().unwrap_or_default();
            nanoseconds += on_cpu.parse::<u64>()?;
        }
        Ok(Duration::from_nanos(nanoseconds))
    }

    /// How many file descriptors are open.
    pub(crate) fn descriptors(&self) -> Result<usize, Fault> {
        Ok(fs::read_dir(format!("/proc/{}/fd", self.child.id()))?.count())
    }

    /// Sends SIGHUP, so that the gateway reloads its configuration.
    pub(crate) fn hang_up(&self) -> Result<(), Fault> {
        self.signal("-HUP")
    }

    pub(crate) fn signal(&self, signal: &str) -> Result<(), Fault> {
        if Command::new("kill").args([signal, &self.child.id().to_string()]).status()?.success() {
            Ok(())
        } else {
            Err(format!("the process could not be sent {signal}").into())
        }
    }

    /// Sends SIGTERM, and waits for the end.
    pub(crate) fn terminate(mut self) -> Result<ExitStatus, Fault> {
        self.signal("-TERM")?;
        let end = Instant::now() + STOP_TIMEOUT;
        while Instant::now() < end {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            thread::sleep(STOP_LOOK);
        }
        Err("the process did not stop in time".into())
    }

    /// The resident memory, in bytes.
    pub(crate) fn resident(&self) -> Result<u64, Fault> {
        self.memory("VmRSS:")
    }

    /// The bytes that the process has allocated and not freed, if it counts them.
    pub(crate) fn live(&mut self) -> Result<u64, Fault> {
        let (Some(asked), Some(answers)) = (&mut self.child.stdin, &mut self.answers) else {
            return Err("the process does not count its data".into());
        };
        asked.write_all(b"\n")?;
        let mut answer = String::new();
        answers.read_line(&mut answer)?;
        Ok(answer.trim().parse()?)
    }

    /// The peak of the resident memory since the last reset, in bytes.
    pub(crate) fn peak(&self) -> Result<u64, Fault> {
        self.memory("VmHWM:")
    }

    /// Resets the peak to the current memory.
    pub(crate) fn forget_peak(&self) -> Result<(), Fault> {
        Ok(fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5")?)
    }

    fn memory(&self, name: &str) -> Result<u64, Fault> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
        Ok(kib.ok_or_else(|| format!("the process has no {name}"))?.parse::<u64>()? * 1024)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended by itself, which is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(ear) = self.ear.take() {
            let _ = ear.join();
        }
    }
}

/// Reports the address that the process prints, and forwards its other lines.
fn listen(name: &str, stderr: ChildStderr, told: &Sender<(SocketAddr, Option<SocketAddr>)>) {
    let mut address = None;
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        if address.is_none() {
            address = address_after(&line, "listening on http://");
            let upstream = address_after(&line, "in front of http://");
            // If the address comes too late, the receiver is gone.
            address.map(|address| told.send((address, upstream)));
        }
        // Further lines with the address are not forwarded.
        if !address.is_some_and(|address: SocketAddr| line.contains(&address.to_string())) {
            // If stderr is closed, there is no one to report to.
            let _ = writeln!(io::stderr(), "{name}: {line}");
        }
    }
}

fn address_after(line: &str, words: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once(words)?;
    rest.split(' ').next()?.parse().ok()
}
