//! Runs the binary as a process and reads its stderr.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc::{self, UnboundedReceiver};

/// How long to wait for a log line, on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// A process of `threadway serve`, or of another command that listens. Dropping it kills the
/// process.
pub(crate) struct Process {
    child: Child,
    pub(crate) address: SocketAddr,
    lines: UnboundedReceiver<String>,
    /// Everything printed so far.
    pub(crate) said: String,
}

/// A temporary file, deleted on drop.
pub(crate) struct File(pub(crate) PathBuf);

// === impl Process ===

impl Process {
    /// Runs `threadway serve` with these options, on a free loopback port unless they name an
    /// address.
    pub(crate) async fn serve(options: &[&str]) -> Self {
        Self::start("serve", options, &[]).await
    }

    /// Runs another command, with these environment variables.
    pub(crate) async fn start(command: &str, options: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut program = Command::new(env!("CARGO_BIN_EXE_threadway"));
        program.arg(command);
        Self::run(program, options, variables).await
    }

    /// Runs `threadway serve` with this much memory of its own to write, in KiB. Address space
    /// is no measure: glibc reserves 64 MiB of it for each thread that allocates.
    pub(crate) async fn limited(kib: usize, options: &[&str]) -> Self {
        let mut shell = Command::new("sh");
        let script = format!("ulimit -d {kib}; exec \"$@\"");
        shell.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_threadway"), "serve"]);
        Self::run(shell, options, &[]).await
    }

    async fn run(mut program: Command, options: &[&str], variables: &[(&str, &str)]) -> Self {
        let here: &[_] =
            if options.contains(&"--listen") { &[] } else { &["--listen", "127.0.0.1:0"] };
        let mut child = program
            .args(here)
            .args(options)
            .env_clear()
            .envs(variables.iter().copied())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = child.stderr.take().unwrap();
        let (sender, lines) = mpsc::unbounded_channel();
        thread::spawn(move || {
            for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
                // The test may be over.
                let _ = sender.send(String::from_utf8_lossy(&line).into_owned());
            }
        });
        let address = SocketAddr::from(([0; 4], 0));
        let mut process = Self { child, address, lines, said: String::new() };
        process.address = process.address_behind("listening on http://").await;
        process
    }

    /// Waits for a line with these words, and returns the address that follows them.
    pub(crate) async fn address_behind(&mut self, words: &str) -> SocketAddr {
        let printed = self.said.lines().find(|line| line.contains(words)).map(str::to_owned);
        let line = match printed {
            Some(line) => line,
            None => self.says(words).await,
        };
        let (_, rest) = line.split_once(words).unwrap();
        let is_part = |c: char| c.is_ascii_digit() || matches!(c, '.' | ':' | '[' | ']');
        rest.split(|c| !is_part(c)).next().unwrap().parse().unwrap()
    }

    /// Waits for a line with these words.
    pub(crate) async fn says(&mut self, words: &str) -> String {
        let said = async {
            loop {
                let line = self.lines.recv().await.expect("the process has ended");
                self.said += &line;
                self.said.push('\n');
                if line.contains(words) {
                    return line;
                }
            }
        };
        let said = tokio::time::timeout(PATIENCE, said).await;
        said.unwrap_or_else(|_| panic!("the process does not print {words:?}:\n{}", self.said))
    }

    pub(crate) fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    /// Stops the process and returns everything that it printed.
    pub(crate) async fn stop(mut self) -> String {
        self.signal("-TERM");
        while let Some(line) = tokio::time::timeout(PATIENCE, self.lines.recv()).await.unwrap() {
            self.said += &line;
            self.said.push('\n');
        }
        assert!(self.child.wait().unwrap().success());
        std::mem::take(&mut self.said)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended by itself, which is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

// === impl File ===

impl File {
    pub(crate) fn new(text: &str) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let file = Self(std::env::temp_dir().join(format!("threadway-test-{process}-{count}")));
        file.write(text);
        file
    }

    pub(crate) fn write(&self, text: &str) {
        std::fs::write(&self.0, text).unwrap();
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
