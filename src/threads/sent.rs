//! What runs began with: the inputs of live runs, and the messages in those of recent runs.

use super::past;
use crate::offload::offload;
use crate::upstream::{Client, Error};
use threadway_translate::json::Json;
use threadway_translate::langgraph::{Message, RunRecord, RunStatus};
use threadway_translate::run::{LiveRun, SentMessage};

/// How many of the newest runs are searched for messages. An older message that the graph has
/// removed counts as new.
const MAX_RUNS: usize = 100;

/// How many live runs' inputs are read. Most servers run one run of a thread at a time, and the
/// others are pending.
const MAX_LIVE_RUNS: usize = 10;

/// How many runs that did not succeed are asked for the states that they made. Others count as if
/// they had made one.
const MAX_CHECKS: usize = 5;

/// The live runs with the messages of their inputs.
pub(super) async fn live_runs(
    upstream: &Client,
    thread_id: &str,
    listed: Vec<RunRecord>,
) -> Result<Vec<LiveRun>, Error> {
    let mut live = Vec::new();
    for run in listed.into_iter().take(MAX_LIVE_RUNS) {
        // A list lacks the inputs.
        let run = upstream.whole_run(thread_id, run).await?;
        let messages = offload(input_bytes(&run), || run.messages(upstream.messages_key()));
        live.push(LiveRun { id: run.id, messages });
    }
    Ok(live)
}

fn input_bytes(run: &RunRecord) -> usize {
    run.input.as_ref().map_or(0, |input| input.get().len())
}

/// The messages of these ids in the inputs of the newest runs, the newest first. Those of `made` that
/// no input has are looked for in the newest states.
pub(super) async fn messages(
    upstream: &Client,
    thread_id: &str,
    ids: &[String],
    mut made: Vec<String>,
) -> Result<Vec<SentMessage>, Error> {
    let mut sent = Vec::new();
    let mut checks = 0;
    for run in upstream.runs_with_inputs(thread_id, MAX_RUNS).await? {
        let id_of = |message: &Json| Some(Message::parse(message)?.id()?.into_owned());
        let wanted: Vec<_> = offload(input_bytes(&run), || {
            let messages = run.messages(upstream.messages_key()).into_iter();
            let wanted = messages.filter_map(|message| Some((id_of(&message)?, message)));
            wanted.filter(|(id, _)| ids.contains(id)).collect()
        });
        if wanted.is_empty() {
            continue;
        }
        let is_stored = match run.status {
            RunStatus::Success | RunStatus::Running | RunStatus::Pending => true,
            _ if checks >= MAX_CHECKS => true,
            RunStatus::Error | RunStatus::Timeout | RunStatus::Interrupted | RunStatus::Unknown => {
                checks += 1;
                upstream.last_run_state(thread_id, &run.id).await?.is_some()
            }
        };
        let stored = |(id, message)| SentMessage { id, message, is_stored };
        sent.extend(wanted.into_iter().map(stored));
    }
    made.retain(|id| !sent.iter().any(|sent: &SentMessage| sent.id == *id));
    if !made.is_empty() {
        let found = past::find_messages(upstream, thread_id, &made).await?;
        let stored = |(id, message)| SentMessage { id, message, is_stored: true };
        sent.extend(found.into_iter().map(stored));
    }
    Ok(sent)
}
