//! Who joins a run that others have started: many at a time, and late.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http_body_util::BodyExt;
use tokio::time::{Instant, sleep, sleep_until};

use crate::client::{self, Fault, Joined, Live, Progress, Until, named};
use crate::kept::Account;
use crate::scenario::{Bench, Crowd, INTERVAL, LOOK, SETTLE, Way, micros};
use crate::script::Script;
use crate::table::{Metric, Path, float, percentile};
use crate::upstream::ACCOUNT;

/// How many join, and how late.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    /// Of one run, within [`RUSH`].
    pub(crate) joiners: u32,
    /// What the run of the late ones has said.
    pub(crate) late_tokens: u64,
    /// How long the gateway is left alone before its memory is read for the last time.
    pub(crate) rest: Duration,
}

/// How long it takes until all have asked to join.
const RUSH: Duration = Duration::from_secs(1);
/// What the run has said that they join.
const SAID: u64 = 50;
/// What a run's first two parts are: its name, and the state that it begins with.
const FIRST_PARTS: usize = 2;
/// What a late joiner may be told beside the messages.
const BESIDE: u64 = 4 * 1024;

// === impl Bench ===

impl Bench {
    /// Runs both scenarios, with an upstream of their own: it keeps their runs.
    pub(crate) async fn joins(&mut self, sizes: Sizes) -> Result<(), Fault> {
        self.renew_upstream()?;
        self.rush(sizes).await?;
        self.late(sizes).await
    }

    /// Starts a run straight on the upstream, for others to join; returns when it has said what
    /// it says at once.
    pub(crate) async fn live(&mut self, script: Script) -> Result<Live, Fault> {
        self.runs += 1;
        let thread = self.runs;
        let script = Script { is_kept: true, ..script };
        let response = client::start(self.direct().target, script, thread).await?;
        let said = if script.is_idle { 0 } else { script.tokens };
        let run = Live { thread, run_id: named(response.headers())?, said };
        while self.account(&run).await?.parts < usize::try_from(said)? + FIRST_PARTS {
            sleep(LOOK).await;
        }
        Ok(run)
    }

    /// Many join one run: how soon each is live, and what they weigh.
    async fn rush(&mut self, sizes: Sizes) -> Result<(), Fault> {
        let gateway = self.gateway()?;
        let way = Way::gateway(&gateway);
        // What a process sets up for its first run is not a joiner's weight.
        self.crowd(way, [Script::SHORT]).finish().await?;
        let run = self.live(speaking(SAID)).await?;
        let before = way.resident()?;
        let mut crowd = Crowd::default();
        let begin = Instant::now();
        for joiner in 0..sizes.joiners {
            let due = begin + RUSH * joiner / sizes.joiners;
            let (target, run, progress) = (way.target, run.clone(), Arc::clone(&crowd.progress));
            crowd.runs.spawn(async move {
                sleep_until(due).await;
                client::join(target, &run, Until::End(None), &progress).await
            });
        }
        let joiners = usize::try_from(sizes.joiners)?;
        crowd.until(|progress| progress.live.load(Ordering::Relaxed) == joiners).await?;
        sleep(SETTLE).await;
        let with_all = way.resident()?;
        let joined = self.heard_out(crowd).await?;
        sleep(sizes.rest).await;
        let after = way.resident()?;

        let joins = self.account(&run).await?.joins.len();
        if joins != 1 {
            return Err(format!("the gateway joined one run {joins} times").into());
        }
        self.figures.add(Metric::RushUpstream, way.path, float(joins as u64));
        let times = |of: fn(&Joined) -> u64| {
            let mut times: Vec<_> = joined.iter().map(|joined| of(joined) - joined.asked).collect();
            [0.5, 0.99].map(|share| percentile(&mut times, share) / 1e6)
        };
        let started = [Metric::RushStartMedian, Metric::RushStartP99];
        let live = [Metric::RushLiveMedian, Metric::RushLiveP99];
        for (metrics, times) in
            [(started, times(|joined| joined.started)), (live, times(|joined| joined.live))]
        {
            for (metric, time) in metrics.into_iter().zip(times) {
                self.figures.add(metric, way.path, time);
            }
        }
        for (metric, resident) in [
            (Metric::RushBefore, before),
            (Metric::RushWithAll, with_all),
            (Metric::RushAfter, after),
        ] {
            self.figures.add(metric, way.path, float(resident) / 1024.0 / 1024.0);
        }
        Ok(())
    }

    /// One joins a run that has said much, on a gateway that does not know it; then another one,
    /// on the same.
    async fn late(&mut self, sizes: Sizes) -> Result<(), Fault> {
        let [floor, gateway] = [self.floor()?, self.gateway()?];
        let way = Way::gateway(&gateway);
        self.crowd(way, [Script::SHORT]).finish().await?;
        let run = self.live(speaking(sizes.late_tokens)).await?;
        // The same replay as it comes from the upstream, for scale.
        for way in [self.direct(), Way::floor(&floor)] {
            let progress = Progress::default();
            let joined = client::join(way.target, &run, Until::Live, &progress).await?;
            self.add_late(way.path, Metric::ColdLive, Metric::ColdBytes, &joined);
        }
        let mut crowd = Crowd::default();
        for joiners in 1..=2 {
            let (target, run, progress) = (way.target, run.clone(), Arc::clone(&crowd.progress));
            crowd.runs.spawn(async move {
                client::join(target, &run, Until::End(None), &progress).await
            });
            crowd.until(|progress| progress.live.load(Ordering::Relaxed) == joiners).await?;
        }
        let mut joined = self.heard_out(crowd).await?;
        joined.sort_unstable_by_key(|joined| joined.asked);
        let Account { joins, .. } = self.account(&run).await?;
        let ([_direct, _floor, replayed], [cold, warm]) = (&*joins, &*joined) else {
            return Err("the gateway joined a run more than once".into());
        };

        self.add_late(way.path, Metric::ColdLive, Metric::ColdBytes, cold);
        self.add_late(way.path, Metric::WarmLive, Metric::WarmBytes, warm);
        let share =
            |joined: &Joined| float(joined.bytes.saturating_sub(BESIDE)) / float(joined.messages);
        let after = |later: u64, earlier: u64| (float(later) - float(earlier)) / 1e6;
        for (metric, figure) in [
            (Metric::ColdFirst, after(cold.first, replayed.first)),
            (Metric::ColdStart, after(cold.started, cold.asked)),
            (Metric::ColdLag, after(cold.live, replayed.last)),
            (Metric::LateMessages, float(cold.messages) / 1024.0),
            (Metric::ColdShare, share(cold)),
            (Metric::WarmFirst, after(warm.first, warm.asked)),
            (Metric::WarmShare, share(warm)),
        ] {
            self.figures.add(metric, way.path, figure);
        }
        Ok(())
    }

    fn add_late(&mut self, path: Path, live: Metric, bytes: Metric, joined: &Joined) {
        self.figures.add(live, path, float(joined.live - joined.asked) / 1e6);
        self.figures.add(bytes, path, float(joined.bytes) / 1024.0);
    }

    /// Ends the run, and hears what all have heard of it.
    async fn heard_out(&mut self, crowd: Crowd<Joined>) -> Result<Vec<Joined>, Fault> {
        self.end().await?;
        let progress = Arc::clone(&crowd.progress);
        let joined = crowd.finish().await?;
        self.joins += joined.len() as u64;
        self.tokens += progress.tokens.load(Ordering::Relaxed);
        Ok(joined)
    }

    async fn account(&self, run: &Live) -> Result<Account, Fault> {
        let path = format!("{ACCOUNT}{}", run.run_id);
        let told = client::post(self.direct().target.address, &path, String::new()).await?;
        Ok(serde_json::from_slice(&told.into_body().collect().await?.to_bytes())?)
    }
}

/// A run that has said so much, and goes on as a fast model does.
fn speaking(tokens: u64) -> Script {
    Script { tokens, interval_us: micros(INTERVAL), goes_on: true, ..Script::SHORT }
}
