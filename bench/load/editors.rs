//! Many editors at one gateway over the network, compared with `threadway acp` over stdio: the
//! memory of each, the cost of an update, clients that read nothing, and cut connections while a
//! person is asked.

use std::env;
use std::fs;
use std::net::SocketAddr;
use std::process::{self, Command};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep};

use crate::client::Fault;
use crate::editor::{Editor, Transport};
use crate::process::Process;
use crate::reload::File;
use crate::scale::{Rig, head, kib, latency, mib, row};
use crate::scenario::{INTERVAL, micros};
use crate::script::Script;
use crate::stdio::{Agent, Asked, chunk};
use crate::table::float;
use crate::text::{Hearing, now};

#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    /// How many editors are connected.
    pub(crate) editors: usize,
    /// How many of them send a prompt.
    pub(crate) prompting: usize,
    /// The tokens of each answer, at the pace of a model.
    pub(crate) tokens: u64,
    /// The tokens of each answer that is sent as fast as possible.
    pub(crate) flat_tokens: u64,
    /// How long clients read nothing. The gateway closes a socket that answers no ping.
    pub(crate) pause: Duration,
}

pub(crate) const FULL: Sizes = Sizes {
    editors: 1_000,
    prompting: 100,
    tokens: 300,
    flat_tokens: 20_000,
    pause: Duration::from_secs(8),
};
pub(crate) const QUICK: Sizes = Sizes {
    editors: 50,
    prompting: 10,
    tokens: 30,
    flat_tokens: 2_000,
    pause: Duration::from_secs(1),
};

/// How many editors connect at a time.
const WAVE: usize = 25;
/// How many editors show a question at once: the demo serves at most 50 live runs.
const MOST_ASKED: usize = 40;
/// The pause before memory is read.
const SETTLE: Duration = Duration::from_secs(1);

/// The cost of the updates of all prompts.
struct Cost {
    updates: u64,
    cpu: Duration,
    /// Each token's, in milliseconds: the median and the 99th percentile.
    latency: Option<(f64, f64)>,
}

/// What an editor received in answer to a prompt.
#[derive(Default)]
struct Answer {
    updates: u64,
    latencies: Vec<u64>,
}

pub(crate) async fn run(sizes: Sizes) -> Result<(), Fault> {
    let Sizes { editors, prompting, tokens, flat_tokens, .. } = sizes;
    head(&format!("{editors} editors, {prompting} prompts of {tokens} tokens at once"));
    let stdio = over_stdio(sizes).await?;
    row("CPU per update, stdio", format!("{:.1} µs", stdio.each()), "");
    row("updates, stdio", stdio.updates, "");
    for transport in [Transport::WebSocket, Transport::Http] {
        over_the_network(transport, sizes, stdio.each()).await?;
    }
    head(&format!("{prompting} editors read nothing of {flat_tokens} tokens"));
    unread(sizes).await?;
    let asked = prompting.min(MOST_ASKED);
    head(&format!("{asked} editors are cut off while a person is asked"));
    cut(asked).await
}

/// One process, as an editor starts it, with a session for each prompt.
async fn over_stdio(sizes: Sizes) -> Result<Cost, Fault> {
    let rig = Rig::start()?;
    let upstream = format!("http://{}", rig.upstream.address());
    let asked = Asked {
        sessions: sizes.prompting as u64,
        tokens: sizes.tokens,
        interval: INTERVAL,
        ..Asked::ONE
    };
    let told = spawn_blocking(move || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_threadway"));
        command.args(["acp", "--upstream", &upstream, "--log", "warn"]);
        let mut agent = Agent::start(command)?;
        let told = agent.prompt(asked)?;
        agent.finish()?;
        Ok::<_, Fault>(told)
    });
    let told = told.await??;
    Ok(Cost { updates: told.updates, cpu: told.cpu, latency: None })
}

async fn over_the_network(
    transport: Transport,
    sizes: Sizes,
    stdio_each: f64,
) -> Result<(), Fault> {
    let rig = Rig::start()?;
    // The memory that a process sets up for its first clients does not count for a client.
    let first = open(transport, rig.address(), WAVE).await?;
    let (resident, descriptors) = (rig.gateway.resident()?, rig.gateway.descriptors()?);
    let mut editors = open(transport, rig.address(), sizes.editors).await?;
    sleep(SETTLE).await;
    let grown = rig.gateway.resident()?.saturating_sub(resident);
    let opened = rig.gateway.descriptors()?.saturating_sub(descriptors);
    let count = sizes.editors as u64;
    row(&format!("memory of an idle editor, {transport}"), kib(grown / count), "≤ 64 KiB");
    let each = float(opened as u64) / float(count);
    row(&format!("descriptors of an idle editor, {transport}"), format!("{each:.1}"), "");

    let script = Script { tokens: sizes.tokens, interval_us: micros(INTERVAL), ..Script::SHORT };
    let cpu = rig.gateway.cpu()?;
    let prompting = editors.split_off(editors.len() - sizes.prompting);
    let answers = prompt(prompting, script, Duration::ZERO).await?;
    let cost = Cost::of(answers, rig.gateway.cpu()?.saturating_sub(cpu));
    row(
        &format!("CPU per update, {transport}"),
        format!("{:.1} µs, {:.2} × stdio", cost.each(), cost.each() / stdio_each),
        "≤ 1.5 ×",
    );
    row(&format!("updates, {transport}"), cost.updates, "");
    if let Some((median, p99)) = cost.latency {
        let shown = format!("{median:.1} ms, {p99:.1} ms");
        row(&format!("token latency p50 and p99, {transport}"), shown, "p99 ≤ 25 ms");
    }
    row(&format!("memory of the process, {transport}"), mib(rig.gateway.resident()?), "");
    drop((first, editors));
    Ok(())
}

/// Clients that stop reading in mid-answer, and read the rest later.
async fn unread(sizes: Sizes) -> Result<(), Fault> {
    let rig = Rig::start()?;
    let script = Script { tokens: sizes.flat_tokens, ..Script::SHORT };
    let mut editors = Vec::new();
    for _ in 0..sizes.prompting {
        editors.push(Editor::narrow(rig.address()).await?);
    }
    let before = rig.gateway.resident()?;
    let look = async {
        sleep(sizes.pause.mul_f64(0.9)).await;
        rig.gateway.resident()
    };
    let (answers, held) = tokio::join!(prompt(editors, script, sizes.pause), look);
    answers?;
    let held = held?.saturating_sub(before);
    let each = held / sizes.prompting as u64;
    row("memory of an answer that is not read", kib(each), "≤ 4 MiB");
    row("answers that were whole in the end", sizes.prompting, "all");
    Ok(())
}

/// The cable of each client is cut while it shows a question. The gateway does not see that: the
/// old sockets stay open, and nobody reads them.
async fn cut(count: usize) -> Result<(), Fault> {
    let demo = ["demo", "--listen", "127.0.0.1:0", "--log", "warn"];
    let upstream = Process::start("demo", env!("CARGO_BIN_EXE_threadway"), &demo)?;
    let langgraph = upstream.upstream().ok_or("the demo did not name its LangGraph server")?;
    let file = File(env::temp_dir().join(format!("threadway-editors-{}.toml", process::id())));
    fs::write(&file.0, "[acp]\nagent = \"approval\"\n")?;
    let url = format!("http://{langgraph}");
    let config = file.0.to_string_lossy();
    let gateway = Process::start(
        "threadway",
        env!("CARGO_BIN_EXE_threadway"),
        &[
            "serve",
            "--upstream",
            &url,
            "--listen",
            "127.0.0.1:0",
            "--log",
            "warn",
            "--config",
            &config,
        ],
    )?;
    let address = gateway.address();
    let mut asking = JoinSet::new();
    for _ in 0..count {
        asking.spawn(async move {
            let mut editor = Editor::open(Transport::WebSocket, address).await?;
            editor.prompt("Clean up").await?;
            until_asked(&mut editor).await?;
            Ok::<_, Fault>(editor)
        });
    }
    let mut cut = Vec::new();
    while let Some(editor) = asking.join_next().await {
        cut.push(editor??);
    }
    let mut again = JoinSet::new();
    for editor in &cut {
        let session = editor.session().to_owned();
        again.spawn(async move { resume(address, &session).await });
    }
    let mut waits = Vec::new();
    while let Some(wait) = again.join_next().await {
        waits.push(u64::try_from(wait??.as_nanos())?);
    }
    let asked = waits.len();
    let (median, p99) = latency(waits);
    row("questions that were asked again, and answered", asked, "all");
    row("until asked again, p50 and p99", format!("{median:.0} ms, {p99:.0} ms"), "");
    drop(cut);
    Ok(())
}

/// Connects again, answers the question, and reads until the agent goes on. Returns how long it
/// took until the question was shown again.
async fn resume(address: SocketAddr, session: &str) -> Result<Duration, Fault> {
    let began = Instant::now();
    let mut editor = Editor::again(address, session).await?;
    let mut question = until_asked(&mut editor).await?;
    let wait = began.elapsed();
    loop {
        let options = question.pointer("/params/options").and_then(Value::as_array);
        let allows = |option: &&Value| option.get("kind") == Some(&json!("allow_once"));
        let option = options.into_iter().flatten().find(allows).ok_or("nothing allows it")?;
        let outcome = json!({ "outcome": "selected", "optionId": option.get("optionId") });
        editor.answer(&question, &json!({ "outcome": outcome })).await?;
        loop {
            let message: Value = serde_json::from_slice(&editor.next().await?)?;
            match message.pointer("/params/update/sessionUpdate").and_then(Value::as_str) {
                Some("agent_message_chunk") => return Ok(wait),
                Some(_) => {}
                // The agent asks about each action.
                None => {
                    question = message;
                    break;
                }
            }
        }
    }
}

async fn until_asked(editor: &mut Editor) -> Result<Value, Fault> {
    loop {
        let message: Value = serde_json::from_slice(&editor.next().await?)?;
        match message.get("method").and_then(Value::as_str) {
            Some("session/update") => {}
            Some("session/request_permission") => return Ok(message),
            _ => return Err(format!("no question came: {message}").into()),
        }
    }
}

async fn open(
    transport: Transport,
    address: SocketAddr,
    count: usize,
) -> Result<Vec<Editor>, Fault> {
    let mut editors = Vec::new();
    while editors.len() < count {
        let mut wave = JoinSet::new();
        for _ in 0..WAVE.min(count - editors.len()) {
            wave.spawn(Editor::open(transport, address));
        }
        while let Some(editor) = wave.join_next().await {
            editors.push(editor??);
        }
    }
    Ok(editors)
}

/// Sends a prompt from each editor, and reads all answers after a pause.
async fn prompt(
    editors: Vec<Editor>,
    script: Script,
    pause: Duration,
) -> Result<Vec<Answer>, Fault> {
    let text = serde_json::to_string(&script)?;
    let mut reading = JoinSet::new();
    for mut editor in editors {
        let text = text.clone();
        reading.spawn(async move {
            let id = editor.prompt(&text).await?;
            sleep(pause).await;
            let answer = Answer::read(&mut editor, id, script.tokens).await;
            answer.map_err(|fault| Fault::from(format!("{}: {fault}", editor.session())))
        });
    }
    let mut answers = Vec::new();
    while let Some(answer) = reading.join_next().await {
        answers.push(answer??);
    }
    Ok(answers)
}

// === impl Answer ===

impl Answer {
    /// Reads up to the response to this prompt. Every token must come once and in order.
    async fn read(editor: &mut Editor, prompt: u64, tokens: u64) -> Result<Self, Fault> {
        let mut hearing = Hearing::default();
        let mut answer = Self::default();
        loop {
            let line = editor.next().await?;
            if let Some((_, text)) = chunk(&line)? {
                hearing.hear(text, now())?;
                answer.updates += 1;
                continue;
            }
            let message: Value = serde_json::from_slice(&line)?;
            if message.get("method").is_some() {
                continue;
            }
            let is_done = message.get("id") == Some(&json!(prompt))
                && message.pointer("/result/stopReason") == Some(&json!("end_turn"));
            if !is_done {
                return Err(format!("the prompt was answered: {message}").into());
            }
            answer.latencies = hearing.finish(Some(tokens))?;
            return Ok(answer);
        }
    }
}

// === impl Cost ===

impl Cost {
    fn of(answers: Vec<Answer>, cpu: Duration) -> Self {
        let updates = answers.iter().map(|answer| answer.updates).sum();
        let latencies = answers.into_iter().flat_map(|answer| answer.latencies).collect();
        Self { updates, cpu, latency: Some(latency(latencies)) }
    }

    /// Microseconds per update.
    fn each(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / float(self.updates)
    }
}
