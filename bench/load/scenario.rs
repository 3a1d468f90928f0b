//! The scenarios: each sends the same runs along each path, checks that everything arrived, and
//! adds its figures.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http_body_util::BodyExt;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::client::{self, Fault, Heard, Joined, Live, Progress, Target, Until, Wire};
use crate::join;
use crate::process::Process;
use crate::script::Script;
use crate::table::{Figures, Metric, Path, float, percentile};
use crate::upstream::END;

/// The sizes of the scenarios.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) rounds: usize,
    /// How many streams run at a time, and how long their pace is measured.
    pub(crate) streams: u64,
    pub(crate) window: Duration,
    /// The tokens of each of these streams, and of a single stream, as fast as possible.
    pub(crate) flat_tokens: u64,
    pub(crate) single_tokens: u64,
    pub(crate) idle_runs: usize,
    /// Viewers of one idle run.
    pub(crate) viewers: usize,
    /// Runs of one token, one after the other.
    pub(crate) starts: u64,
    /// Clients that join late or together.
    pub(crate) joins: Option<join::Sizes>,
}

/// The processes, and the figures so far.
pub(crate) struct Bench {
    upstream: Process,
    pub(crate) figures: Figures,
    /// How many runs were started, each on a new thread, how many clients joined one, and how many
    /// tokens all of them must receive.
    pub(crate) runs: u64,
    pub(crate) joins: u64,
    pub(crate) tokens: u64,
}

/// The result of a whole benchmark.
pub(crate) struct Outcome {
    pub(crate) figures: Figures,
    pub(crate) runs: u64,
    pub(crate) joins: u64,
    pub(crate) tokens: u64,
}

/// A path to the upstream, and the process on it.
#[derive(Clone, Copy)]
pub(crate) struct Way<'a> {
    pub(crate) path: Path,
    pub(crate) target: Target,
    gateway: Option<&'a Process>,
}

/// The cost of paced streams: the gateway's CPU time, the number of tokens, and their latency in
/// microseconds.
pub(crate) struct Pace {
    pub(crate) cpu: Duration,
    pub(crate) tokens: u64,
    pub(crate) median: f64,
    pub(crate) p99: f64,
}

/// Runs that are read at the same time.
pub(crate) struct Crowd<T> {
    pub(crate) runs: JoinSet<Result<T, Fault>>,
    pub(crate) progress: Arc<Progress>,
    heard: Vec<T>,
}

/// The interval between two tokens of a stream: 50 tokens a second, as a fast model.
pub(crate) const INTERVAL: Duration = Duration::from_millis(20);
/// How long the streams send beyond the measured time, so that all are active while it lasts: they
/// are started one after the other.
const MARGIN: Duration = Duration::from_secs(3);
/// The first tokens of a stream are not counted, because other streams are still being started.
const FIRST_TOKENS: usize = 25;
/// How many idle runs are started at a time, as by a crowd of users.
const WAVE: usize = 25;
/// The pause before the memory of idle runs is read.
pub(crate) const SETTLE: Duration = Duration::from_secs(1);
/// The pause between the upstream's headers and its first part, which shows who waits for that
/// part.
const FIRST_PART_PAUSE: Duration = Duration::from_millis(20);
/// How often to check whether all streams have reached the target.
pub(crate) const LOOK: Duration = Duration::from_millis(5);

// === impl Bench ===

impl Bench {
    /// A benchmark with an upstream of its own.
    pub(crate) fn new() -> Result<Self, Fault> {
        let upstream = upstream()?;
        Ok(Self { upstream, figures: Figures::default(), runs: 0, joins: 0, tokens: 0 })
    }

    /// Runs every scenario. Returns an error if any token was lost.
    pub(crate) async fn run(mut self, sizes: Sizes) -> Result<Outcome, Fault> {
        let [floor, gateway] = [self.floor()?, self.gateway()?];
        let ways = [self.direct(), Way::floor(&floor), Way::gateway(&gateway)];
        for way in ways {
            self.loss_is_seen(way).await?;
        }
        for _ in 0..sizes.rounds {
            for way in ways {
                self.paced(way, sizes).await?;
            }
            for way in ways {
                self.flat(way, sizes).await?;
            }
            for way in ways {
                self.single(way, sizes).await?;
            }
            for way in ways {
                self.starts(way, sizes).await?;
            }
            // New processes, because freed memory may stay with a process.
            let floor = self.floor()?;
            self.idle(Way::floor(&floor), sizes).await?;
            drop(floor);
            let gateway = self.gateway()?;
            self.idle(Way::gateway(&gateway), sizes).await?;
            drop(gateway);
            let gateway = self.gateway()?;
            self.viewers(Way::gateway(&gateway), sizes).await?;
        }
        if let Some(joins) = sizes.joins {
            self.joins(joins).await?;
        }
        Ok(self.outcome())
    }

    /// Runs only the scenarios of joining.
    pub(crate) async fn run_joins(
        mut self,
        rounds: usize,
        sizes: join::Sizes,
    ) -> Result<Outcome, Fault> {
        for _ in 0..rounds {
            self.joins(sizes).await?;
        }
        Ok(self.outcome())
    }

    fn outcome(self) -> Outcome {
        let Self { upstream: _, figures, runs, joins, tokens } = self;
        Outcome { figures, runs, joins, tokens }
    }

    /// Checks that a lost token is noticed: otherwise every other result would be worthless.
    async fn loss_is_seen(&mut self, way: Way<'_>) -> Result<(), Fault> {
        let script = Script { tokens: 20, lost: Some(10), ..Script::SHORT };
        let lossy = self.crowd(way, [script]).finish().await;
        let whole = self.crowd(way, [Script { lost: None, ..script }]).finish().await;
        match (lossy, whole) {
            (Err(_), Ok(_)) => Ok(()),
            (Ok(_), _) => Err("a token was lost, and the client did not see it".into()),
            (Err(_), Err(fault)) => Err(fault),
        }
    }

    /// Many streams at the pace of a model: CPU per token, latency.
    async fn paced(&mut self, way: Way<'_>, sizes: Sizes) -> Result<(), Fault> {
        let pace = self.pace(way, sizes.streams, INTERVAL, sizes.window).await?;
        self.add_cpu(Metric::PacedCpu, way, pace.cpu, pace.tokens);
        self.figures.add(Metric::PacedMedian, way.path, pace.median);
        self.figures.add(Metric::PacedP99, way.path, pace.p99);
        Ok(())
    }

    /// Runs this many streams, with one token of each in every interval.
    pub(crate) async fn pace(
        &mut self,
        way: Way<'_>,
        streams: u64,
        interval: Duration,
        window: Duration,
    ) -> Result<Pace, Fault> {
        let interval_us = micros(interval);
        let tokens = micros(window + MARGIN) / interval_us;
        // The tokens are spread over the interval, as those of unrelated runs are.
        let pause = |stream| interval_us * stream / streams;
        let script =
            |stream| Script { tokens, interval_us, pause_us: pause(stream), ..Script::SHORT };
        let mut crowd = self.crowd(way, (0..streams).map(script));
        crowd.until(|progress| progress.speaking.load(Ordering::Relaxed) as u64 == streams).await?;
        let (cpu, before) = (way.cpu()?, crowd.progress.tokens.load(Ordering::Relaxed));
        sleep(window).await;
        let (cpu, after) =
            (way.cpu()?.saturating_sub(cpu), crowd.progress.tokens.load(Ordering::Relaxed));
        let heard = crowd.finish().await?;

        let latencies = heard.iter().flat_map(|heard| heard.latencies.iter().skip(FIRST_TOKENS));
        let mut latencies: Vec<_> = latencies.copied().collect();
        Ok(Pace {
            cpu,
            tokens: after - before,
            median: percentile(&mut latencies, 0.5) / 1e3,
            p99: percentile(&mut latencies, 0.99) / 1e3,
        })
    }

    /// Many streams as fast as possible: CPU per token, with everything that belongs to a run.
    async fn flat(&mut self, way: Way<'_>, sizes: Sizes) -> Result<(), Fault> {
        let Sizes { streams, flat_tokens, .. } = sizes;
        let script = Script { tokens: flat_tokens, ..Script::SHORT };
        let (cpu, begin) = (way.cpu()?, Instant::now());
        self.crowd(way, (0..streams).map(|_| script)).finish().await?;
        let (cpu, lasted) = (way.cpu()?.saturating_sub(cpu), begin.elapsed());

        let tokens = streams * flat_tokens;
        self.add_cpu(Metric::FlatCpu, way, cpu, tokens);
        self.figures.add(Metric::FlatRate, way.path, float(tokens) / lasted.as_secs_f64());
        Ok(())
    }

    /// One stream as fast as possible.
    async fn single(&mut self, way: Way<'_>, sizes: Sizes) -> Result<(), Fault> {
        let tokens = sizes.single_tokens;
        let begin = Instant::now();
        self.crowd(way, [Script { tokens, ..Script::SHORT }]).finish().await?;
        let rate = float(tokens) / begin.elapsed().as_secs_f64();
        self.figures.add(Metric::SingleRate, way.path, rate);
        Ok(())
    }

    /// One short run after the other: the time until each starts, and its cost.
    async fn starts(&mut self, way: Way<'_>, sizes: Sizes) -> Result<(), Fault> {
        let runs = sizes.starts;
        let script = Script { pause_us: micros(FIRST_PART_PAUSE), ..Script::SHORT };
        let cpu = way.cpu()?;
        let mut starts = Vec::new();
        for _ in 0..runs {
            let heard = self.crowd(way, [script]).finish().await?;
            starts.extend(heard.iter().map(|heard| heard.start));
        }
        self.add_cpu(Metric::RunCpu, way, way.cpu()?.saturating_sub(cpu), runs);
        self.figures.add(Metric::StartMedian, way.path, percentile(&mut starts, 0.5) / 1e6);
        self.figures.add(Metric::StartP99, way.path, percentile(&mut starts, 0.99) / 1e6);
        Ok(())
    }

    /// Many silent runs with one viewer each: their memory.
    async fn idle(&mut self, way: Way<'_>, sizes: Sizes) -> Result<(), Fault> {
        // The memory that a process sets up for its first run does not count for a run.
        self.crowd(way, [Script::SHORT]).finish().await?;
        let before = way.resident()?;
        let script = Script::idle();
        let mut crowd = Crowd::default();
        for wave in 1..=sizes.idle_runs.div_ceil(WAVE) {
            self.join(&mut crowd, way, std::iter::repeat_n(script, WAVE));
            crowd.until(|progress| progress.started.load(Ordering::Relaxed) == wave * WAVE).await?;
        }
        sleep(SETTLE).await;
        let after = way.resident()?;
        self.end().await?;
        let runs = crowd.finish().await?.len() as u64;

        let grown = float(after.saturating_sub(before)) / 1024.0;
        self.figures.add(Metric::IdleRun, way.path, grown / float(runs));
        self.figures.add(Metric::IdleWhole, way.path, float(after) / 1024.0 / 1024.0);
        Ok(())
    }

    /// Many viewers of one silent run: the memory of each.
    async fn viewers(&mut self, way: Way<'_>, sizes: Sizes) -> Result<(), Fault> {
        let run = self.live(Script::idle()).await?;
        let mut crowd = Crowd::default();
        // The memory that a process sets up for its first viewers does not count for a viewer.
        self.look_on(&mut crowd, way, &run, WAVE).await?;
        let before = way.resident()?;
        for _ in 0..sizes.viewers.div_ceil(WAVE) {
            self.look_on(&mut crowd, way, &run, WAVE).await?;
        }
        sleep(SETTLE).await;
        let after = way.resident()?;
        let viewers = crowd.runs.len() - WAVE;
        self.end().await?;
        crowd.finish().await?;
        let grown = float(after.saturating_sub(before)) / 1024.0;
        self.figures.add(Metric::Viewer, way.path, grown / float(viewers as u64));
        Ok(())
    }

    async fn look_on(
        &mut self,
        crowd: &mut Crowd<Joined>,
        way: Way<'_>,
        run: &Live,
        viewers: usize,
    ) -> Result<(), Fault> {
        for _ in 0..viewers {
            let tokens = Script::idle().tokens;
            self.joins += 1;
            self.tokens += tokens;
            let (target, run, progress) = (way.target, run.clone(), Arc::clone(&crowd.progress));
            crowd.runs.spawn(async move {
                client::join(target, &run, Until::End(Some(tokens)), &progress).await
            });
        }
        let all = crowd.runs.len();
        crowd.until(|progress| progress.live.load(Ordering::Relaxed) == all).await
    }

    /// Ends all runs that wait for that.
    pub(crate) async fn end(&self) -> Result<(), Fault> {
        let ended = client::post(self.upstream.address(), END, String::new()).await?;
        ended.into_body().collect().await?;
        Ok(())
    }

    fn add_cpu(&mut self, metric: Metric, way: Way<'_>, cpu: Duration, count: u64) {
        if way.gateway.is_some() {
            self.figures.add(metric, way.path, cpu.as_secs_f64() * 1e6 / float(count));
        }
    }

    pub(crate) fn crowd(
        &mut self,
        way: Way<'_>,
        scripts: impl IntoIterator<Item = Script>,
    ) -> Crowd<Heard> {
        let mut crowd = Crowd::default();
        self.join(&mut crowd, way, scripts);
        crowd
    }

    fn join(
        &mut self,
        crowd: &mut Crowd<Heard>,
        way: Way<'_>,
        scripts: impl IntoIterator<Item = Script>,
    ) {
        for script in scripts {
            self.runs += 1;
            self.tokens += script.tokens;
            let (thread, progress) = (self.runs, Arc::clone(&crowd.progress));
            crowd
                .runs
                .spawn(async move { client::run(way.target, script, thread, &progress).await });
        }
    }

    /// Continues with an upstream that knows no run.
    pub(crate) fn renew_upstream(&mut self) -> Result<(), Fault> {
        self.upstream = upstream()?;
        Ok(())
    }

    pub(crate) fn direct(&self) -> Way<'static> {
        let target = Target { address: self.upstream.address(), wire: Wire::LangGraph };
        Way { path: Path::Direct, target, gateway: None }
    }

    pub(crate) fn floor(&self) -> Result<Process, Fault> {
        let upstream = self.upstream.address().to_string();
        Process::start("floor", std::env::current_exe()?, &["floor", &upstream])
    }

    pub(crate) fn gateway(&self) -> Result<Process, Fault> {
        self.gateway_of(env!("CARGO_BIN_EXE_threadway"))
    }

    /// The gateway in this file.
    pub(crate) fn gateway_of(&self, program: &str) -> Result<Process, Fault> {
        let upstream = format!("http://{}", self.upstream.address());
        let arguments =
            ["serve", "--upstream", &upstream, "--listen", "127.0.0.1:0", "--log", "warn"];
        Process::start("threadway", program, &arguments)
    }
}

fn upstream() -> Result<Process, Fault> {
    Process::start("upstream", std::env::current_exe()?, &["upstream"])
}

pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

// === impl Way ===

impl<'a> Way<'a> {
    pub(crate) fn floor(floor: &'a Process) -> Self {
        Self::through(Path::Floor, Wire::LangGraph, floor)
    }

    pub(crate) fn gateway(gateway: &'a Process) -> Self {
        Self::through(Path::Gateway, Wire::Agui, gateway)
    }

    fn through(path: Path, wire: Wire, gateway: &'a Process) -> Self {
        let target = Target { address: gateway.address(), wire };
        Self { path, target, gateway: Some(gateway) }
    }

    /// The gateway's CPU time so far; zero on the direct path.
    pub(crate) fn cpu(&self) -> Result<Duration, Fault> {
        self.gateway.map_or(Ok(Duration::ZERO), Process::cpu)
    }

    pub(crate) fn resident(&self) -> Result<u64, Fault> {
        self.gateway.map_or(Ok(0), Process::resident)
    }
}

// === impl Crowd ===

impl<T: 'static> Crowd<T> {
    /// Waits until the runs have reached a state.
    pub(crate) async fn until(
        &mut self,
        is_so_far: impl Fn(&Progress) -> bool,
    ) -> Result<(), Fault> {
        while !is_so_far(&self.progress) {
            tokio::select! {
                ended = self.runs.join_next() => match ended {
                    Some(heard) => self.heard.push(heard??),
                    None => return Err("all runs ended too soon".into()),
                },
                () = sleep(LOOK) => {}
            }
        }
        Ok(())
    }

    /// The results of all runs; an error if anything is missing.
    pub(crate) async fn finish(mut self) -> Result<Vec<T>, Fault> {
        while let Some(heard) = self.runs.join_next().await {
            self.heard.push(heard??);
        }
        let resyncs = self.progress.resyncs.load(Ordering::Relaxed);
        if resyncs > 0 {
            eprintln!("{resyncs} times a slow reader got a snapshot");
        }
        Ok(self.heard)
    }
}

impl<T> Default for Crowd<T> {
    fn default() -> Self {
        Self { runs: JoinSet::new(), progress: Arc::default(), heard: Vec::new() }
    }
}
