//! Large conversations, states and inputs: the bytes that are read, the peak of memory, and the
//! delay for others.

use std::sync::atomic::Ordering;
use std::time::Duration;

use http_body_util::BodyExt;
use memchr::memmem;
use tokio::time::{Instant, sleep, timeout};

use crate::client::Fault;
use crate::scale::{Rig, head, kib, latency, mib, row};
use crate::script::Script;
use crate::stored::{Mood, Wanted};
use crate::viewer::{Ask, Viewers, open};

/// The sizes of the scenarios.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    /// How many clients load a thread of `page_bytes` at once.
    pub(crate) loads: usize,
    pub(crate) page_bytes: usize,
    /// The number of runs of a thread, and the size of each input.
    pub(crate) runs: usize,
    pub(crate) input_bytes: usize,
    /// How long one client follows the thread.
    pub(crate) look_seconds: u64,
    /// How long one client reads slowly, and the size of the conversation.
    pub(crate) slow_seconds: u64,
    pub(crate) slow_messages: usize,
    /// The size of the state that is translated while other runs stream.
    pub(crate) state_bytes: usize,
    pub(crate) streams: usize,
    pub(crate) tokens: u64,
}

pub(crate) const FULL: Sizes = Sizes {
    loads: 1_000,
    page_bytes: 10_000_000,
    runs: 20,
    input_bytes: 3_600_000,
    look_seconds: 10,
    slow_seconds: 60,
    slow_messages: 23_000,
    state_bytes: 20_000_000,
    streams: 100,
    tokens: 300,
};

pub(crate) const QUICK: Sizes = Sizes {
    loads: 20,
    page_bytes: 200_000,
    runs: 5,
    input_bytes: 50_000,
    look_seconds: 2,
    slow_seconds: 1,
    slow_messages: 500,
    state_bytes: 400_000,
    streams: 10,
    tokens: 100,
};

const UPSTREAM_DELAY_MS: u64 = 500;
const INTERVAL_US: u64 = 20_000;
/// The speed of the slow client.
const SLOW_BYTES_PER_SECOND: u64 = 400_000;

pub(crate) async fn run(sizes: Sizes) -> Result<(), Fault> {
    head("Large conversations, states and inputs");
    loads(sizes).await?;
    inputs(sizes).await?;
    attach().await?;
    slow(sizes).await?;
    beside(sizes).await
}

/// Many clients load one idle thread.
async fn loads(sizes: Sizes) -> Result<(), Fault> {
    let rig = Rig::start()?;
    let state_bytes = sizes.page_bytes / 2;
    let messages = sizes.page_bytes / 2 / 250;
    rig.store(Wanted { state_bytes, ..Wanted::conversation(1, messages) }).await?;
    let before = rig.peak()?;
    rig.counts().await?;
    let began = Instant::now();
    let mut viewers = Viewers::default();
    for _ in 0..sizes.loads {
        viewers.add(rig.address(), Ask::Connect, 1);
    }
    viewers.finish().await?;
    let lasted = began.elapsed();
    let peak = rig.peak()?.saturating_sub(before);
    let reads = rig.counts().await?;
    let (_, reads, bytes) =
        reads.into_iter().find(|(kind, ..)| kind == "state").unwrap_or_default();
    let what =
        format!("{} page loads of a thread of {}", sizes.loads, mib(sizes.page_bytes as u64));
    row(&format!("{what}: reads of its state"), format!("{reads}, {}", mib(bytes)), "one");
    row(&format!("{what}: peak of memory"), mib(peak), "≤ 200 MiB");
    row(&format!("{what}: until all are loaded"), format!("{:.1} s", lasted.as_secs_f64()), "");
    Ok(())
}

/// One client follows a thread whose runs had large inputs.
async fn inputs(sizes: Sizes) -> Result<(), Fault> {
    let rig = Rig::start()?;
    let Sizes { runs, input_bytes, look_seconds, .. } = sizes;
    rig.store(Wanted { runs, input_bytes, ..Wanted::conversation(1, 4) }).await?;
    let mut viewers = Viewers::default();
    viewers.add(rig.address(), Ask::Follow, 1);
    viewers.until(|seen| seen.ends.load(Ordering::Relaxed) == 1).await?;
    rig.counts().await?;
    sleep(Duration::from_secs(look_seconds)).await;
    let looks = rig.counts().await?;
    let (count, bytes) =
        looks.iter().fold((0, 0), |(n, all), (_, count, bytes)| (n + count, all + bytes));
    let what = format!("{runs} runs with inputs of {}, followed", mib(input_bytes as u64));
    row(&format!("{what}: bytes read per request"), kib(bytes / count.max(1)), "≤ 100 KiB");
    viewers.leave().await;
    Ok(())
}

/// The first client of a new gateway, with a distant upstream.
async fn attach() -> Result<(), Fault> {
    for ask in [Ask::Connect, Ask::Events, Ask::Follow] {
        let rig = Rig::start()?;
        rig.store(Wanted::conversation(1, 4)).await?;
        rig.mood(Mood { delay_ms: UPSTREAM_DELAY_MS, ..Mood::default() }).await?;
        let began = Instant::now();
        let mut viewers = Viewers::default();
        viewers.add(rig.address(), ask, 1);
        viewers.until(|seen| seen.ends.load(Ordering::Relaxed) == 1).await?;
        let what = format!("first attach, upstream of {UPSTREAM_DELAY_MS} ms, {}", name(ask));
        row(&what, format!("{:.2} s", began.elapsed().as_secs_f64()), "≤ 1.1 s");
        viewers.leave().await;
    }
    Ok(())
}

fn name(ask: Ask) -> &'static str {
    match ask {
        Ask::Connect => "`connect`",
        Ask::Events => "`events`",
        Ask::Follow => "`events?follow=thread`",
    }
}

/// One client reads a run slowly, after a long conversation.
async fn slow(sizes: Sizes) -> Result<(), Fault> {
    let rig = Rig::start()?;
    rig.store(Wanted::conversation(1, sizes.slow_messages)).await?;
    rig.run(1, Script { goes_on: true, interval_us: INTERVAL_US, ..Script::SHORT }).await?;
    let mut response = open(rig.address(), Ask::Events, 1).await?;
    let began = Instant::now();
    let (mut read, mut first_content, mut snapshots, mut contents) = (0_u64, None, 0, 0);
    let mut is_first_over = None;
    while began.elapsed() < Duration::from_secs(sizes.slow_seconds) {
        let Ok(Some(frame)) = timeout(Duration::from_secs(1), response.body_mut().frame()).await
        else {
            continue;
        };
        let Ok(bytes) = frame?.into_data() else { continue };
        read += bytes.len() as u64;
        let found = |name: &str| {
            memmem::find_iter(&bytes, format!("\"type\":\"{name}\"").as_bytes()).count()
        };
        snapshots += found("MESSAGES_SNAPSHOT");
        contents += found("TEXT_MESSAGE_CONTENT");
        if contents > 0 && first_content.is_none() {
            first_content = Some(began.elapsed());
        }
        if snapshots > 0 && is_first_over.is_none() {
            is_first_over = Some(began.elapsed());
        }
        let due = Duration::from_micros(read * 1_000_000 / SLOW_BYTES_PER_SECOND);
        sleep(due.saturating_sub(began.elapsed())).await;
    }
    rig.end().await?;
    let seconds = |at: Option<Duration>| {
        at.map_or_else(|| "never".to_owned(), |at| format!("{:.1} s", at.as_secs_f64()))
    };
    let what = format!(
        "slow reader, {} s: {} read, {snapshots} snapshots, {contents} contents",
        sizes.slow_seconds,
        mib(read)
    );
    row(
        &what,
        format!("first content after {}", seconds(first_content)),
        "within 10 s of live after the first snapshot",
    );
    Ok(())
}

/// A large state is translated while other runs stream.
async fn beside(sizes: Sizes) -> Result<(), Fault> {
    let alone = streams(sizes, None).await?;
    let beside = streams(sizes, Some(sizes.state_bytes)).await?;
    let what = format!(
        "latency p99 of {} streams while a state of {} is translated",
        sizes.streams,
        mib(sizes.state_bytes as u64)
    );
    row(
        &what,
        format!("{:.2} ms, {:.2} × {:.2} ms", beside.1, beside.1 / alone.1, alone.1),
        "≤ 2 ×",
    );
    Ok(())
}

/// The latency of many streams' tokens while other clients read a thread of this size.
async fn streams(sizes: Sizes, state: Option<usize>) -> Result<(f64, f64), Fault> {
    let rig = Rig::start()?;
    let large = u64::try_from(sizes.streams)? + 1;
    let mut viewers = Viewers::default();
    for thread in 1..large {
        rig.store(Wanted::conversation(thread, 2)).await?;
        rig.run(thread, Script { tokens: sizes.tokens, interval_us: INTERVAL_US, ..Script::SHORT })
            .await?;
        viewers.add(rig.address(), Ask::Events, thread);
    }
    let mut others = Viewers::default();
    if let Some(state_bytes) = state {
        let messages = state_bytes / 2 / 250;
        rig.store(Wanted { state_bytes: state_bytes / 2, ..Wanted::conversation(large, messages) })
            .await?;
        sleep(Duration::from_secs(1)).await;
        rig.run(large, Script { tokens: 50, interval_us: INTERVAL_US, ..Script::SHORT }).await?;
        others.add(rig.address(), Ask::Events, large);
        others.finish().await?;
    }
    viewers.finish().await?;
    Ok(latency(viewers.leave().await))
}
