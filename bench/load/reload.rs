//! Streams that continue while the gateway reloads its configuration.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::Request;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::client::{self, Fault, Progress, Target, Wire};
use crate::process::Process;
use crate::script::Script;

/// The number of streams.
const STREAMS: u64 = 1_000;
/// The tokens of each stream: 20 s at the pace below.
const TOKENS: u64 = 100;
const INTERVAL_US: u64 = 200_000;
/// How often each configuration is loaded.
const ROUNDS: usize = 3;
/// How long a reload may take until it has its effect.
const EFFECT_TIMEOUT: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(10);

const OPEN: &str = "auth.mode = \"none\"\n";
const CLOSED: &str =
    "auth = { mode = \"bearer\", keys = { a = \"0123456789abcdef0123456789abcdef\" } }\n";
const BROKEN: &str = "auth.mode = \"everybody\"\n";

/// Starts the streams, reloads the configuration, and checks that all tokens arrive.
pub(crate) async fn run() -> Result<(), Fault> {
    let upstream = Process::start("upstream", env::current_exe()?, &["upstream"])?;
    let url = format!("http://{}", upstream.address());
    let file = File(env::temp_dir().join(format!("threadway-reload-{}.toml", std::process::id())));
    fs::write(&file.0, OPEN)?;
    let path = file.0.to_str().ok_or("a path that is no text")?;
    let arguments =
        ["serve", "--upstream", &url, "--listen", "127.0.0.1:0", "--config", path, "--log", "off"];
    let gateway = Process::start("threadway", env!("CARGO_BIN_EXE_threadway"), &arguments)?;
    let target = Target { address: gateway.address(), wire: Wire::Agui };

    let script = Script { tokens: TOKENS, interval_us: INTERVAL_US, ..Script::SHORT };
    let progress = Arc::new(Progress::default());
    let mut runs = JoinSet::new();
    for thread in 0..STREAMS {
        let progress = Arc::clone(&progress);
        runs.spawn(async move { client::run(target, script, thread, &progress).await });
    }
    while (progress.speaking.load(Ordering::Relaxed) as u64) < STREAMS {
        if let Some(ended) = runs.try_join_next() {
            ended??;
            return Err("a stream ended before it was reloaded under".into());
        }
        sleep(LOOK).await;
    }
    for _ in 0..ROUNDS {
        reload(&gateway, &file.0, CLOSED)?;
        becomes(target, Door::Closed).await?;
        // An invalid configuration changes nothing.
        reload(&gateway, &file.0, BROKEN)?;
        sleep(LOOK * 10).await;
        becomes(target, Door::Closed).await?;
        reload(&gateway, &file.0, OPEN)?;
        becomes(target, Door::Open).await?;
    }
    if runs.try_join_next().is_some() {
        return Err("a stream ended before the last reload".into());
    }
    let mut ended = 0;
    while let Some(run) = runs.join_next().await {
        run??;
        ended += 1;
    }
    let tokens = progress.tokens.load(Ordering::Relaxed);
    println!(
        "{} reloads under {ended} streams, a third of them of a wrong file: {tokens} tokens, each \
         came once, in order and to its end",
        ROUNDS * 3
    );
    if tokens == STREAMS * TOKENS { Ok(()) } else { Err("tokens were lost".into()) }
}

fn reload(gateway: &Process, file: &Path, text: &str) -> Result<(), Fault> {
    fs::write(file, text)?;
    gateway.hang_up()
}

/// The response to a new request without a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    Open,
    Closed,
}

/// Waits until new requests get this response.
async fn becomes(target: Target, expected: Door) -> Result<(), Fault> {
    let end = Instant::now() + EFFECT_TIMEOUT;
    loop {
        let asked = client::send(target.address, Request::get("/agui/info"), String::new()).await;
        let door = match asked {
            Ok(_) => Door::Open,
            Err(refused) if refused.to_string().contains("401") => Door::Closed,
            Err(fault) => return Err(fault),
        };
        if door == expected {
            return Ok(());
        }
        if Instant::now() > end {
            return Err(format!("the door is {door:?}, and not {expected:?}").into());
        }
        sleep(LOOK).await;
    }
}

/// A temporary file, deleted on drop.
pub(crate) struct File(pub(crate) PathBuf);

impl Drop for File {
    fn drop(&mut self) {
        // If this fails, the system cleans up its temporary files.
        let _ = fs::remove_file(&self.0);
    }
}
