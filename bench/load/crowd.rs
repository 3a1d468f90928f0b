//! The gateway restarts under followers, in front of an upstream that answers few requests a second.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Request;
use http_body_util::BodyExt;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::client::{Fault, Target, Wire, send, start, thread_id};
use crate::lines::Lines;
use crate::process::Process;
use crate::scale::{Rig, head, row};
use crate::script::Script;
use crate::stored::{Mood, Wanted};
use crate::table::percentile;
use crate::upstream::lock;

/// How many followers there are without `--followers`, each of a thread of its own.
pub(crate) const FOLLOWERS: u64 = 1_200;

/// How many requests the upstream answers in a second.
const PER_SECOND: u32 = 50;

/// How long the followers may take.
const PATIENCE: Duration = Duration::from_secs(400);

/// The pause between two new runs.
const RUN_INTERVAL: Duration = Duration::from_secs(2);

/// How long each follower keeps its first stream: two keep-alives come in that time.
const SETTLE: Duration = Duration::from_secs(32);

/// How often to check whether the gateway has stopped listening.
const LOOK: Duration = Duration::from_millis(100);

/// An `EventSource`'s pause until a stream sets another one.
const RETRY: Duration = Duration::from_secs(3);

/// What the followers have seen.
#[derive(Default)]
struct Seen {
    first: AtomicUsize,
    began: Mutex<Option<Instant>>,
    /// When each was back, in nanoseconds since the restart.
    back: Mutex<Vec<u64>>,
    refused: AtomicUsize,
}

/// One follower, which reconnects as an `EventSource` does.
struct Follower {
    seen: Arc<Seen>,
    gateway: SocketAddr,
    thread: u64,
    last: Option<String>,
    retry: Duration,
    has_thread: bool,
    is_back: bool,
}

pub(crate) async fn run(followers: u64, program: &str) -> Result<(), Fault> {
    let upstream = Process::start("upstream", std::env::current_exe()?, &["upstream"])?;
    let url = format!("http://{}", upstream.address());
    let gateway = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let address = gateway.to_string();
    let arguments = ["serve", "--upstream", &url, "--listen", &address, "--log", "error"];
    let launch = || Process::start("threadway", program, &arguments);
    let mut rig = Rig { upstream, gateway: launch()? };
    rig.store(Wanted { count: followers, ..Wanted::conversation(1, 4) }).await?;

    let seen = Arc::new(Seen::default());
    let mut following = JoinSet::new();
    for thread in 1..=followers {
        following.spawn(Follower::new(&seen, gateway, thread).follow());
        if thread % 50 == 0 {
            sleep(Duration::from_millis(200)).await;
        }
    }
    while seen.first.load(Ordering::Relaxed) < usize::try_from(followers)? {
        sleep(RETRY).await;
    }
    sleep(SETTLE).await;

    rig.gateway.signal("-TERM")?;
    while std::net::TcpStream::connect(gateway).is_ok() {
        sleep(LOOK).await;
    }
    for thread in 1..=followers {
        rig.change(thread).await?;
    }
    rig.mood(Mood { per_second: Some(PER_SECOND), ..Mood::default() }).await?;
    rig.counts().await?;
    let began = Instant::now();
    *lock(&seen.began) = Some(began);
    rig.gateway = launch()?;
    let mut starts = Vec::new();
    let mut new = followers;
    while lock(&seen.back).len() < usize::try_from(followers)? && began.elapsed() < PATIENCE {
        new += 1;
        let asked = Instant::now();
        let target = Target { address: gateway, wire: Wire::Agui };
        match start(target, Script::SHORT, new).await {
            Ok(_) => starts.push(u64::try_from(asked.elapsed().as_nanos())?),
            Err(fault) => eprintln!("a run did not start: {fault}"),
        }
        sleep(RUN_INTERVAL.saturating_sub(asked.elapsed())).await;
    }
    following.shutdown().await;
    let requests: u64 = rig.counts().await?.iter().map(|(_, count, _)| count).sum();
    let mut back = std::mem::take(&mut *lock(&seen.back));

    head(&format!("{followers} followers after a restart, {PER_SECOND} requests/s"));
    row("followers that are back", back.len(), "all");
    for share in [0.1, 0.5, 0.9, 1.0] {
        let seconds = percentile(&mut back, share) / 1e9;
        row(
            &format!("{:.0} % of these after", share * 100.0),
            format!("{seconds:.1} s"),
            "≤ 130 s",
        );
    }
    row("requests to the upstream", requests, "≤ 6,500");
    row("streams that were refused for good", seen.refused.load(Ordering::Relaxed), "0");
    row("new runs", starts.len(), "");
    for share in [0.5, 0.99] {
        let seconds = percentile(&mut starts, share) / 1e9;
        row(
            &format!("start of a new run, p{:.0}", share * 100.0),
            format!("{seconds:.2} s"),
            "≤ 3 s",
        );
    }
    Ok(())
}

// === impl Follower ===

impl Follower {
    fn new(seen: &Arc<Seen>, gateway: SocketAddr, thread: u64) -> Self {
        let seen = Arc::clone(seen);
        let retry = RETRY;
        Self { seen, gateway, thread, last: None, retry, has_thread: false, is_back: false }
    }

    async fn follow(mut self) {
        loop {
            // A connection that is refused, or breaks, is opened again.
            if let Err(fault) = self.read().await
                && fault.to_string().contains("events?follow")
            {
                self.seen.refused.fetch_add(1, Ordering::Relaxed);
                return;
            }
            sleep(self.retry).await;
        }
    }

    async fn read(&mut self) -> Result<(), Fault> {
        let id = thread_id(self.thread);
        let mut request =
            Request::get(format!("/agui/agent/agent/threads/{id}/events?follow=thread"));
        if let Some(last) = &self.last {
            request = request.header("last-event-id", last);
        }
        let mut response = send(self.gateway, request, String::new()).await?;
        let mut lines = Lines::default();
        while let Some(frame) = response.body_mut().frame().await {
            let bytes = frame?.into_data().unwrap_or_default();
            let mut bytes = &*bytes;
            while let Some(line) = lines.next(&mut bytes) {
                self.line(&String::from_utf8_lossy(&line))?;
            }
        }
        Ok(())
    }

    fn line(&mut self, line: &str) -> Result<(), Fault> {
        if let Some(id) = line.strip_prefix("id: ") {
            self.last = Some(id.trim().to_owned());
        } else if let Some(retry) = line.strip_prefix("retry: ") {
            self.retry = Duration::from_millis(retry.trim().parse()?);
        } else if line.contains("\"type\":\"RUN_FINISHED\"") {
            let began = *lock(&self.seen.began);
            if !std::mem::replace(&mut self.has_thread, true) {
                self.seen.first.fetch_add(1, Ordering::Relaxed);
            }
            if let Some(began) = began
                && !std::mem::replace(&mut self.is_back, true)
            {
                let after = u64::try_from(began.elapsed().as_nanos())?;
                lock(&self.seen.back).push(after);
            }
        }
        Ok(())
    }
}
