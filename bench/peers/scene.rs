//! The situations that servers are measured in. Each checks every stream, and reports what failed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::client::Fault;
use crate::script::Script;
use crate::stream::{Ids, Peer, Seen, Stream};
use crate::text::now;
use crate::upstream::lock;
use crate::usage;

/// What to measure.
#[derive(Deserialize)]
pub(crate) struct Plan {
    peer: Peer,
    /// The server's processes.
    processes: Vec<u32>,
    scene: Scene,
    /// The number of the first run. Each run has a thread of its own.
    first: u64,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Scene {
    /// Runs at full speed, at the same time.
    Flat { streams: u64, tokens: u64, lost: Option<u64> },
    /// Runs with one token in each interval, measured while all of them send.
    Paced { streams: u64, interval_us: u64, window_ms: u64, ramp_ms: u64 },
    /// Runs at full speed, one after the other.
    Short { runs: u64, tokens: u64 },
    /// Runs that pause after their first token: what memory they take.
    Idle { streams: u64, ramp_ms: u64, pause_ms: u64 },
    /// Viewers of one run that another client has started.
    Viewers { viewers: u64, interval_us: u64, window_ms: u64, ramp_ms: u64 },
    /// Viewers while the server is killed and started again: of one run, or each of its own.
    Cut { viewers: u64, interval_us: u64, tokens: u64, ramp_ms: u64, is_kept: bool },
}

/// How long a run may take before it counts as lost.
const PATIENCE: Duration = Duration::from_mins(1);
/// How long all streams may take to bring a token, after the last one was started.
const START_PATIENCE: Duration = Duration::from_secs(8);
/// How long streams send beyond the measured time.
const MARGIN: Duration = Duration::from_secs(1);
/// The pause before memory is read.
const SETTLE: Duration = Duration::from_secs(1);
/// The share of the tokens in time below which a server is not waited for.
const HOPELESS: f64 = 0.5;
const LOOK: Duration = Duration::from_millis(5);

/// Streams that are read at the same time.
#[derive(Default)]
struct Crowd {
    reading: JoinSet<Result<(), Fault>>,
    seen: Arc<Seen>,
}

pub(crate) async fn run(plan: Plan) -> Result<Value, Fault> {
    match plan.scene {
        Scene::Flat { streams, tokens, lost } => {
            plan.flat(streams, Script { tokens, lost, ..Script::SHORT }).await
        }
        Scene::Paced { streams, interval_us, window_ms, ramp_ms } => {
            plan.paced(streams, interval_us, window_ms, ramp_ms).await
        }
        Scene::Short { runs, tokens } => plan.short(runs, tokens).await,
        Scene::Idle { streams, ramp_ms, pause_ms } => plan.idle(streams, ramp_ms, pause_ms).await,
        Scene::Viewers { viewers, interval_us, window_ms, ramp_ms } => {
            plan.viewers(viewers, interval_us, window_ms, ramp_ms).await
        }
        Scene::Cut { viewers, interval_us, tokens, ramp_ms, is_kept } => {
            let script = Script { tokens, interval_us, is_kept, ..Script::SHORT };
            plan.cut(viewers, script, ramp_ms).await
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "no figure here comes near 2^52")]
fn float(count: u64) -> f64 {
    count as f64
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

fn millis(nanoseconds: u64) -> f64 {
    float(nanoseconds) / 1e6
}

/// The value below which this share of the sorted values is, in thousandths.
fn quantile(sorted: &[u64], thousandths: usize) -> Option<u64> {
    sorted.get((sorted.len() * thousandths).div_ceil(1_000).checked_sub(1)?).copied()
}

/// The median and the 99th percentile, in milliseconds.
fn spread(mut latencies: Vec<u64>) -> Value {
    latencies.sort_unstable();
    let at = |thousandths| quantile(&latencies, thousandths).map(millis);
    json!({ "p50_ms": at(500), "p99_ms": at(990) })
}

// === impl Crowd ===

impl Crowd {
    /// Waits until this many streams have brought a token; false if that takes too long, or if a
    /// stream has ended before.
    async fn all_speak(&self, streams: u64) -> bool {
        let speak = async {
            while (self.seen.speaking.load(Ordering::Relaxed) as u64) < streams {
                sleep(LOOK).await;
            }
        };
        timeout(START_PATIENCE, speak).await.is_ok()
    }

    /// Ends streams that have brought fewer than half of their tokens in time: their server would
    /// need minutes.
    async fn give_up(&mut self, share: &Value) {
        if share.as_f64().is_none_or(|share| share < HOPELESS) {
            self.reading.shutdown().await;
        }
    }

    /// Waits for the ends of all streams. Reports how many were whole, and the faults of the
    /// others.
    async fn finish(mut self) -> Value {
        let (mut whole, mut faults) = (0_u64, BTreeMap::<String, u64>::new());
        while let Some(read) = self.reading.join_next().await {
            match read.unwrap_or_else(|fault| Err(fault.into())) {
                Ok(()) => whole += 1,
                Err(fault) => *faults.entry(fault.to_string()).or_default() += 1,
            }
        }
        let failed: u64 = faults.values().sum();
        json!({
            "whole": whole, "failed": failed, "faults": faults.into_iter().take(3).collect::<BTreeMap<_, _>>(),
            "snapshots": self.seen.snapshots.load(Ordering::Relaxed),
        })
    }
}

// === impl Plan ===

impl Plan {
    fn start(&self, crowd: &mut Crowd, number: u64, script: Script, pause: Duration) {
        let (peer, seen) = (self.peer.clone(), Arc::clone(&crowd.seen));
        let number = self.first + number;
        crowd.reading.spawn(async move {
            sleep(pause).await;
            timeout(PATIENCE, peer.run(number, script, &seen)).await?
        });
    }

    async fn flat(&self, streams: u64, script: Script) -> Result<Value, Fault> {
        let mut crowd = Crowd::default();
        let (cpu, begin) = (usage::cpu(&self.processes)?, Instant::now());
        for number in 0..streams {
            self.start(&mut crowd, number, script, Duration::ZERO);
        }
        let seen = Arc::clone(&crowd.seen);
        let checks = crowd.finish().await;
        let (cpu, lasted) = (usage::cpu(&self.processes)?.saturating_sub(cpu), begin.elapsed());
        let all = float(streams * script.tokens);
        Ok(json!({
            "rate": all / lasted.as_secs_f64(), "cpu_us": micros(cpu) / all,
            "bytes": float(seen.bytes.load(Ordering::Relaxed)) / all, "checks": checks,
        }))
    }

    /// The CPU, the tokens and the latencies of this time, and what share of the tokens came that
    /// were to come.
    async fn window(
        &self,
        seen: &Seen,
        window_ms: u64,
        wanted: f64,
    ) -> Result<Map<String, Value>, Fault> {
        seen.is_measured.store(true, Ordering::Relaxed);
        let (cpu, tokens) = (usage::cpu(&self.processes)?, seen.tokens.load(Ordering::Relaxed));
        sleep(Duration::from_millis(window_ms)).await;
        let cpu = usage::cpu(&self.processes)?.saturating_sub(cpu);
        let tokens = float(seen.tokens.load(Ordering::Relaxed) - tokens);
        seen.is_measured.store(false, Ordering::Relaxed);
        let spread = spread(std::mem::take(&mut *lock(&seen.latencies)));
        let figures = [
            ("cpu_us", json!(micros(cpu) / tokens)),
            ("share", json!(tokens / wanted)),
            ("latency", spread),
        ];
        Ok(figures.map(|(name, figure)| (name.to_owned(), figure)).into_iter().collect())
    }

    async fn paced(
        &self,
        streams: u64,
        interval_us: u64,
        window_ms: u64,
        ramp_ms: u64,
    ) -> Result<Value, Fault> {
        let lasts = u64::try_from(MARGIN.as_micros())? + (ramp_ms + window_ms) * 1_000;
        let script = Script { tokens: lasts / interval_us, interval_us, ..Script::SHORT };
        let mut crowd = Crowd::default();
        for number in 0..streams {
            // The tokens are spread over the interval, as those of unrelated runs are.
            let script = Script { pause_us: interval_us * number / streams, ..script };
            self.start(
                &mut crowd,
                number,
                script,
                Duration::from_millis(ramp_ms * number / streams),
            );
        }
        sleep(Duration::from_millis(ramp_ms)).await;
        let all_speak = crowd.all_speak(streams).await;
        let wanted = float(streams * window_ms * 1_000) / float(interval_us);
        let mut figures = self.window(&crowd.seen, window_ms, wanted).await?;
        let seen = Arc::clone(&crowd.seen);
        figures.insert("all_speak".to_owned(), all_speak.into());
        crowd.give_up(figures.get("share").unwrap_or(&Value::Null)).await;
        figures.insert("checks".to_owned(), crowd.finish().await);
        let bytes = float(seen.bytes.load(Ordering::Relaxed)) / float(streams * script.tokens);
        figures.insert("bytes".to_owned(), bytes.into());
        Ok(figures.into())
    }

    async fn short(&self, runs: u64, tokens: u64) -> Result<Value, Fault> {
        let cpu = usage::cpu(&self.processes)?;
        let mut done = Crowd::default();
        let mut lasted = Vec::new();
        for number in 0..runs {
            let mut crowd = Crowd::default();
            let begin = now();
            self.start(&mut crowd, number, Script { tokens, ..Script::SHORT }, Duration::ZERO);
            let read = crowd.reading.join_next().await.ok_or("no run was started")?;
            lasted.push(now() - begin);
            done.reading.spawn(async move { read? });
        }
        let cpu = usage::cpu(&self.processes)?.saturating_sub(cpu);
        let checks = done.finish().await;
        Ok(
            json!({ "cpu_ms": micros(cpu) / 1e3 / float(runs), "latency": spread(lasted), "checks": checks }),
        )
    }

    async fn idle(&self, streams: u64, ramp_ms: u64, pause_ms: u64) -> Result<Value, Fault> {
        // The memory that a process sets up for its first runs does not count for a run.
        let mut crowd = Crowd::default();
        for number in 0..10 {
            self.start(&mut crowd, number, Script::SHORT, Duration::ZERO);
        }
        let first = crowd.finish().await;
        let before = usage::resident(&self.processes)?;
        let mut crowd = Crowd::default();
        let script = Script { tokens: 2, interval_us: pause_ms * 1_000, ..Script::SHORT };
        for number in 0..streams {
            self.start(
                &mut crowd,
                10 + number,
                script,
                Duration::from_millis(ramp_ms * number / streams),
            );
        }
        sleep(Duration::from_millis(ramp_ms)).await;
        let all_speak = crowd.all_speak(streams).await;
        sleep(SETTLE).await;
        let with_all = usage::resident(&self.processes)?;
        let are_idle = crowd.seen.tokens.load(Ordering::Relaxed) == streams;
        let checks = crowd.finish().await;
        Ok(json!({
            "kib": (float(with_all) - float(before)) / float(streams), "base_mib": float(before) / 1024.0,
            "all_speak": all_speak && are_idle, "first": first, "checks": checks,
        }))
    }

    async fn viewers(
        &self,
        viewers: u64,
        interval_us: u64,
        window_ms: u64,
        ramp_ms: u64,
    ) -> Result<Value, Fault> {
        let lasts = u64::try_from(MARGIN.as_micros())? + (2 * ramp_ms + window_ms + 2_000) * 1_000;
        let script =
            Script { tokens: lasts / interval_us, interval_us, is_kept: true, ..Script::SHORT };
        let mut ids = Ids::new(self.first);
        let response = self.peer.start(&mut ids, script).await?;
        let mut own = Stream::new(self.peer.wire, Arc::default());
        let mut starting = JoinSet::new();
        starting.spawn(async move {
            own.read(response).await?;
            own.finish(script.tokens)
        });
        sleep(SETTLE).await;
        let before = usage::resident(&self.processes)?;
        let mut crowd = Crowd::default();
        for number in 0..viewers {
            let (peer, seen, ids) = (self.peer.clone(), Arc::clone(&crowd.seen), ids.clone());
            let pause = Duration::from_millis(ramp_ms * number / viewers);
            crowd.reading.spawn(async move {
                sleep(pause).await;
                let mut stream = Stream::new(peer.wire, seen);
                timeout(PATIENCE, async { stream.read(peer.view(&ids, None).await?).await })
                    .await??;
                stream.finish(script.tokens)
            });
        }
        sleep(Duration::from_millis(ramp_ms)).await;
        let all_speak = crowd.all_speak(viewers).await;
        sleep(SETTLE).await;
        let kib = (float(usage::resident(&self.processes)?) - float(before)) / float(viewers);
        let wanted = float(viewers * window_ms * 1_000) / float(interval_us);
        let mut figures = self.window(&crowd.seen, window_ms, wanted).await?;
        figures.insert("kib".to_owned(), kib.into());
        figures.insert("all_speak".to_owned(), all_speak.into());
        crowd.give_up(figures.get("share").unwrap_or(&Value::Null)).await;
        figures.insert("checks".to_owned(), crowd.finish().await);
        let started = match starting.join_next().await.ok_or("nobody started the run")?? {
            Ok(()) => json!("whole"),
            Err(fault) => fault.to_string().into(),
        };
        figures.insert("starter".to_owned(), started);
        Ok(figures.into())
    }

    /// Prints `cut` in the middle of the run. Then somebody kills the server, starts it
    /// again, and writes when it was killed as a line of stdin, in nanoseconds.
    async fn cut(&self, viewers: u64, script: Script, ramp_ms: u64) -> Result<Value, Fault> {
        let middle = Instant::now() + Duration::from_micros(script.tokens * script.interval_us / 2);
        let seen: Arc<Seen> = Arc::default();
        let mut reading = JoinSet::new();
        let mut one = Ids::new(self.first);
        if self.peer.view.is_some() {
            let response = self.peer.start(&mut one, script).await?;
            let mut own = Stream::new(self.peer.wire, Arc::default());
            // The server's death ends this stream too.
            reading.spawn(async move {
                drop(own.read(response).await);
                None
            });
            sleep(SETTLE).await;
        }
        let (told, cut_at) = tokio::sync::watch::channel(u64::MAX);
        for number in 0..viewers {
            let (peer, seen, mut ids, cut_at) =
                (self.peer.clone(), Arc::clone(&seen), one.clone(), cut_at.clone());
            let pause = Duration::from_millis(ramp_ms * number / viewers);
            let own = Ids::new(self.first + 1 + number);
            reading.spawn(async move {
                sleep(pause).await;
                let response = if peer.view.is_some() {
                    peer.view(&ids, None).await
                } else {
                    ids = own;
                    peer.start(&mut ids, script).await
                };
                let mut stream = Stream::new(peer.wire, seen);
                stream.told = Some(cut_at);
                let read = timeout(PATIENCE, peer.follow(response, &ids, &mut stream)).await;
                let read = read.unwrap_or_else(|late| Err(late.into()));
                Some((stream, read))
            });
        }
        sleep(Duration::from_millis(ramp_ms)).await;
        let crowd = Crowd { reading: JoinSet::new(), seen: Arc::clone(&seen) };
        let all_speak = crowd.all_speak(viewers).await;
        sleep_until(middle).await;
        println!("cut");
        let mut line = String::new();
        BufReader::new(tokio::io::stdin()).read_line(&mut line).await?;
        let killed: u64 = line.trim().parse()?;
        told.send_replace(killed);

        let (mut held, mut back, mut whole, mut faults) =
            (0.0, Vec::new(), 0_u64, BTreeMap::<String, u64>::new());
        while let Some(read) = reading.join_next().await {
            let Some((stream, read)) = read? else { continue };
            held += float(stream.hearing.tokens()) / float(script.tokens);
            back.extend(stream.live_at.map(|at| at - killed));
            match read.and_then(|()| stream.finish(script.tokens)) {
                Ok(()) => whole += 1,
                Err(fault) => *faults.entry(fault.to_string()).or_default() += 1,
            }
        }
        back.sort_unstable();
        Ok(json!({
            "viewers": viewers, "all_speak": all_speak, "whole": whole, "held": held / float(viewers),
            "half_s": quantile(&back, 500).map(|ns| millis(ns) / 1e3),
            "all_s": back.last().filter(|_| back.len() as u64 == viewers).map(|ns| millis(*ns) / 1e3),
            "faults": faults.into_iter().take(3).collect::<BTreeMap<_, _>>(),
        }))
    }
}
