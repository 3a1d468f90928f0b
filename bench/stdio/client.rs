//! The client: starts an agent as editors do, prompts it, reads its output as fast as possible, and
//! checks that everything arrives.

use std::collections::HashMap;
use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use memchr::memmem;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::script::Script;
use crate::text::{Hearing, now};
use crate::upstream::lock;

/// Any error: the benchmark prints it and stops.
pub(crate) type Fault = Box<dyn Error + Send + Sync>;

/// How long an agent may run before its output counts as lost.
const PATIENCE: Duration = Duration::from_mins(2);

/// How often to check whether the process has ended.
const LOOK: Duration = Duration::from_millis(5);

/// The size of one read: the capacity of a pipe.
const READ_BYTES: usize = 64 * 1024;

/// The unit of `/proc/PID/stat`: `USER_HZ` is 100 wherever Linux runs.
const TICK: Duration = Duration::from_millis(10);

/// An agent as a subprocess. Dropping it ends the process.
pub(crate) struct Agent {
    child: Arc<Mutex<Child>>,
    id: u32,
    /// Closed at the end.
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    line: Vec<u8>,
    requests: u64,
    /// Dropped when the process needs no time limit any more.
    _watch: Sender<()>,
}

/// The prompts of a measurement.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    /// How many sessions are prompted at once.
    pub(crate) sessions: u64,
    /// How many tokens each session sends, without the last.
    pub(crate) tokens: u64,
    /// The time between two tokens of a session; zero means as fast as they are read.
    pub(crate) interval: Duration,
    /// A token that the upstream omits.
    pub(crate) lost: Option<u64>,
    /// How long the client pauses after half of all tokens.
    pub(crate) pause: Duration,
}

/// The result of a measurement.
pub(crate) struct Told {
    /// How many tokens arrived, in how many updates and bytes.
    pub(crate) tokens: u64,
    pub(crate) updates: u64,
    pub(crate) bytes: u64,
    /// From the prompts to the last of their responses, without the pause.
    pub(crate) took: Duration,
    /// The agent's CPU time, and the peak of its memory since its start.
    pub(crate) cpu: Duration,
    pub(crate) peak_kib: u64,
}

// === impl Asked ===

impl Asked {
    /// One session with one token, at once.
    pub(crate) const ONE: Self = Self {
        sessions: 1,
        tokens: 1,
        interval: Duration::ZERO,
        lost: None,
        pause: Duration::ZERO,
    };
}

// === impl Agent ===

impl Agent {
    /// Starts an agent, and initialises the connection.
    pub(crate) fn start(mut command: Command) -> Result<Self, Fault> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (stdin, stdout) = child.stdin.take().zip(child.stdout.take()).ok_or("no pipes")?;
        let id = child.id();
        let child = Arc::new(Mutex::new(child));
        let (watch, is_over) = channel::<()>();
        let watched = Arc::clone(&child);
        thread::spawn(move || {
            if is_over.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                // The reader notices the end of the pipe.
                let _ = lock(&watched).kill();
            }
        });
        let stdout = BufReader::with_capacity(READ_BYTES, stdout);
        let line = Vec::new();
        let mut agent =
            Self { child, id, stdin: Some(stdin), stdout, line, requests: 0, _watch: watch };
        let capabilities = json!({ "protocolVersion": 1, "clientCapabilities": {} });
        agent.ask("initialize", &capabilities)?;
        Ok(agent)
    }

    /// Sends the prompts, and reads all updates.
    pub(crate) fn prompt(&mut self, asked: Asked) -> Result<Told, Fault> {
        let Asked { sessions, tokens, interval, lost, pause } = asked;
        let interval_us = u64::try_from(interval.as_micros())?;
        let mut speaking = HashMap::new();
        for _ in 0..sessions {
            let new = self.ask("session/new", &json!({ "cwd": "/srv", "mcpServers": [] }))?;
            let id = new.get("sessionId").and_then(Value::as_str).ok_or("no session")?;
            speaking.insert(id.to_owned(), Hearing::default());
        }
        let script = serde_json::to_string(&Script { tokens, interval_us, lost, ..Script::SHORT })?;
        let cpu_before = self.cpu()?;
        let began = Instant::now();
        let mut prompts = HashMap::new();
        for session in speaking.keys() {
            let prompt = json!([{ "type": "text", "text": script }]);
            let id =
                self.send("session/prompt", &json!({ "sessionId": session, "prompt": prompt }))?;
            prompts.insert(id, session.clone());
        }
        let mut told = Told {
            tokens: 0,
            updates: 0,
            bytes: 0,
            took: Duration::ZERO,
            cpu: Duration::ZERO,
            peak_kib: 0,
        };
        let mut pause = Some(pause).filter(|pause| !pause.is_zero());
        let mut paused = Duration::ZERO;
        while !prompts.is_empty() {
            self.read_line()?;
            let Some((session, text)) = chunk(&self.line)? else {
                let message: Value = serde_json::from_slice(&self.line)?;
                if let Some(session) = message.get("id").and_then(Value::as_u64) {
                    let session = prompts.remove(&session).ok_or("a response to nothing")?;
                    if message.pointer("/result/stopReason") != Some(&json!("end_turn")) {
                        return Err(format!("a prompt was answered: {message}").into());
                    }
                    let hearing = speaking.remove(&session).ok_or("a response twice")?;
                    hearing.finish(Some(tokens))?;
                }
                continue;
            };
            let hearing = speaking.get_mut(session).ok_or("an update behind the response")?;
            told.tokens += hearing.hear(text, now())?;
            told.updates += 1;
            told.bytes += self.line.len() as u64;
            if told.tokens * 2 >= tokens * sessions
                && let Some(pause) = pause.take()
            {
                thread::sleep(pause);
                paused = pause;
            }
        }
        told.took = began.elapsed().saturating_sub(paused);
        told.cpu = self.cpu()?.saturating_sub(cpu_before);
        told.peak_kib = self.peak_kib()?;
        Ok(told)
    }

    /// Closes the agent's stdin, and waits for its end.
    pub(crate) fn finish(mut self) -> Result<(), Fault> {
        drop(self.stdin.take());
        let status = loop {
            if let Some(status) = lock(&self.child).try_wait()? {
                break status;
            }
            thread::sleep(LOOK);
        };
        if status.success() { Ok(()) } else { Err(format!("the agent ended with {status}").into()) }
    }

    fn ask(&mut self, method: &str, params: &Value) -> Result<Value, Fault> {
        let id = self.send(method, params)?;
        loop {
            self.read_line()?;
            let mut message: Value = serde_json::from_slice(&self.line)?;
            if message.get("id").and_then(Value::as_u64) == Some(id) {
                let result = message.get_mut("result").map(Value::take);
                return result.ok_or_else(|| format!("{method}: {message}").into());
            }
        }
    }

    fn send(&mut self, method: &str, params: &Value) -> Result<u64, Fault> {
        self.requests += 1;
        let id = self.requests;
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let stdin = self.stdin.as_mut().ok_or("stdin is closed")?;
        stdin.write_all(format!("{request}\n").as_bytes())?;
        Ok(id)
    }

    fn read_line(&mut self) -> Result<(), Fault> {
        self.line.clear();
        self.stdout.read_until(b'\n', &mut self.line)?;
        if self.line.ends_with(b"\n") { Ok(()) } else { Err("the agent ended too early".into()) }
    }

    /// The CPU time of the process, including threads that have ended.
    fn cpu(&self) -> Result<Duration, Fault> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.id))?;
        // The second field is the name, which may have any characters.
        let (_, fields) = stat.rsplit_once(") ").ok_or("a process without a name")?;
        let mut ticks = 0;
        for field in fields.split(' ').skip(11).take(2) {
            ticks += field.parse::<u32>()?;
        }
        Ok(TICK * ticks)
    }

    fn peak_kib(&self) -> Result<u64, Fault> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
        Ok(kib.ok_or("the process has no VmHWM")?.parse()?)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // The process may have ended by itself, which is fine.
        let mut child = lock(&self.child);
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// The session and the text of a message chunk, cut out without parsing, so that the client is as
/// fast as possible.
pub(crate) fn chunk(line: &[u8]) -> Result<Option<(&str, &str)>, Fault> {
    if memmem::find(line, b"\"sessionUpdate\":\"agent_message_chunk\"").is_none() {
        return Ok(None);
    }
    let line = std::str::from_utf8(line)?;
    let after = |name: &str| {
        let at = memmem::find(line.as_bytes(), name.as_bytes())?;
        let (value, _) = line.get(at + name.len()..)?.split_once('"')?;
        Some(value)
    };
    let found = after("\"sessionId\":\"").zip(after("\"text\":\""));
    Ok(Some(found.ok_or_else(|| format!("a chunk without text: {line}"))?))
}
