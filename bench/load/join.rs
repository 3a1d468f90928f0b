//! Clients that join another client's run: many at the same time, and late.

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

/// How many clients join, and how late.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    /// Clients of one run, within [`RUSH`].
    pub(crate) joiners: u32,
    /// How many tokens the run has sent that is joined late.
    pub(crate) late_tokens: u64,
    /// The pause before the gateway's memory is read for the last time.
    pub(crate) rest: Duration,
}

/// The time in which all clients join.
const RUSH: Duration = Duration::from_secs(1);
/// How many tokens the run has sent when they join.
const SAID: u64 = 50;
/// The run's first parts: its metadata, and its first state.
const FIRST_PARTS: usize = 2;
/// How many bytes a late client may get besides the messages.
const BESIDE: u64 = 4 * 1024;

// === impl Bench ===

impl Bench {
    /// Runs both scenarios with an upstream of their own, because it stores their runs.
    pub(crate) async fn joins(&mut self, sizes: Sizes) -> Result<(), Fault> {
        self.renew_upstream()?;
        self.rush(sizes).await?;
        self.late(sizes).await
    }

    /// Starts a run directly on the upstream, for others to join. Returns when the run has sent its
    /// first tokens, which it sends at once.
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

    /// Many clients join one run: the time until each has caught up, and their memory.
    async fn rush(&mut self, sizes: Sizes) -> Result<(), Fault> {
        let gateway = self.gateway()?;
        let way = Way::gateway(&gateway);
        // The memory that a process sets up for its first run does not count for a client.
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

    /// One client joins a long run on a gateway that has not read it; then a second one on the same
    /// gateway.
    async fn late(&mut self, sizes: Sizes) -> Result<(), Fault> {
        let [floor, gateway] = [self.floor()?, self.gateway()?];
        let way = Way::gateway(&gateway);
        self.crowd(way, [Script::SHORT]).finish().await?;
        let run = self.live(speaking(sizes.late_tokens)).await?;
        // The same replay directly from the upstream, for comparison.
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

    /// Ends the run, and collects the results of all clients.
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

/// A run that has sent this many tokens, and continues at the pace of a fast model.
fn speaking(tokens: u64) -> Script {
    Script { tokens, interval_us: micros(INTERVAL), goes_on: true, ..Script::SHORT }
}
