//! How a run ended, as a table.

use super::*;
use crate::runs::reading::tests::record;
use RunStatus::{Error, Interrupted, Pending, Running, Success, Timeout, Unknown};

/// The run's last state: over, stopped to ask, stopped at a breakpoint, failed.
const OVER: &str = r#"{"values":{},"next":[]}"#;
const ASKS: &str = r#"{"values":{},"next":["a"],
    "tasks":[{"id":"t","name":"a","interrupts":[{"id":"i","value":"sure?"}]}]}"#;
const BREAKS: &str = r#"{"values":{},"next":["a"],"tasks":[{"id":"t","name":"a"}]}"#;
const FAILED: &str = r#"{"values":{},"next":["a"],
    "tasks":[{"id":"t","name":"a","error":"KeyError('of the task')"}]}"#;

const UNEXPLAINED: &str = "failed run_failed: the run failed; LangGraph's log tells why";
const TIMED_OUT: &str = "failed timeout: LangGraph stopped the run at its time limit";

/// A stream that has shown the whole run.
fn whole() -> StreamSummary {
    StreamSummary {
        run_id: Some("R".to_owned()),
        coverage: Coverage::Whole,
        has_begun: true,
        ..StreamSummary::default()
    }
}

fn failure(code: &str, message: &str) -> RunError {
    RunError::parse(&format!(r#"{{"error":"{code}","message":"{message}"}}"#))
}

fn partial() -> StreamSummary {
    StreamSummary { coverage: Coverage::Partial, ..whole() }
}

fn asks() -> StreamSummary {
    StreamSummary { asks: InterruptSeen::AtRoot, ..whole() }
}

fn fails() -> StreamSummary {
    StreamSummary { error: Some(failure("ValueError", "of the stream")), ..whole() }
}

fn unbegun() -> StreamSummary {
    StreamSummary { has_begun: false, ..partial() }
}

fn nothing() -> EndingFacts {
    EndingFacts::default()
}

fn own(state: &str) -> EndingFacts {
    EndingFacts { own: Some(state.to_owned()), ..nothing() }
}

fn of_thread() -> EndingFacts {
    EndingFacts { of_thread: Some(OVER.to_owned()), ..nothing() }
}

fn of_last_run() -> EndingFacts {
    EndingFacts { error: Some(failure("OSError", "of the thread")), ..nothing() }
}

fn stopped(facts: EndingFacts) -> EndingFacts {
    EndingFacts { is_stopped: true, ..facts }
}

fn cut() -> BodyEnd {
    BodyEnd::Cut("reset".to_owned())
}

fn unreadable() -> BodyEnd {
    BodyEnd::Unreadable("no UTF-8".to_owned())
}

/// An end in words.
fn told(ending: &Ending) -> String {
    let end = match &ending.end {
        StreamEnd::Succeeded => "succeeded".to_owned(),
        StreamEnd::Cancelled => "cancelled".to_owned(),
        StreamEnd::Gone => "gone".to_owned(),
        StreamEnd::Failed(error) => format!("failed {}: {}", error.code, error.message),
        StreamEnd::Lost { .. } => "lost".to_owned(),
        other @ (StreamEnd::Complete | StreamEnd::Idle { .. }) => panic!("{other:?}"),
    };
    match &ending.state {
        None => end,
        Some(FinalState::OfRun(_)) => format!("{end}, the run's state"),
        Some(FinalState::OfThread(_)) => format!("{end}, the thread's state"),
    }
}

fn decided(
    seen: &StreamSummary,
    end: &BodyEnd,
    record: &RecordedOutcome,
    facts: EndingFacts,
) -> String {
    match ending(seen, end, record, facts) {
        Ok(EndStatus::Ended(ending)) => told(&ending),
        Ok(EndStatus::Running) => "running".to_owned(),
        Ok(EndStatus::Lagging) => "lagging".to_owned(),
        Ok(other) => panic!("{other:?}"),
        Err(Missing(ending)) => format!("missing: {}", told(&ending)),
    }
}

#[test]
fn a_runs_end_follows_from_its_stream_its_record_and_its_state() {
    let clean = BodyEnd::Clean;
    for (status, seen, end, facts, expected) in [
        (Pending, whole(), clean.clone(), nothing(), "running"),
        (Running, whole(), cut(), nothing(), "running"),
        (Running, whole(), BodyEnd::Refused, nothing(), "running"),
        (Running, whole(), unreadable(), nothing(), "lost"),
        (Running, fails(), clean.clone(), nothing(), "lagging"),
        (Pending, fails(), unreadable(), nothing(), "lagging"),
        (Unknown, whole(), clean.clone(), nothing(), "lost"),
        (Unknown, fails(), clean.clone(), nothing(), "failed ValueError: of the stream"),
        // A run that has succeeded. Its state is only needed if the stream lacks the end.
        (Success, whole(), clean.clone(), nothing(), "succeeded"),
        (Success, partial(), clean.clone(), nothing(), "succeeded"),
        (Success, partial(), clean.clone(), own(OVER), "succeeded, the run's state"),
        (Success, whole(), cut(), own(OVER), "succeeded, the run's state"),
        (Success, whole(), cut(), nothing(), "missing: lost"),
        (Success, whole(), BodyEnd::Refused, nothing(), "missing: lost"),
        (Success, whole(), cut(), of_thread(), "missing: lost"),
        (Success, partial(), clean.clone(), of_thread(), "succeeded"),
        (Success, unbegun(), cut(), of_thread(), "succeeded, the thread's state"),
        (Success, asks(), clean.clone(), nothing(), "succeeded"),
        (Success, fails(), clean.clone(), nothing(), "succeeded"),
        (Success, whole(), clean.clone(), stopped(nothing()), "succeeded"),
        // A run that stops to ask, or was cancelled.
        (Interrupted, whole(), clean.clone(), nothing(), "cancelled"),
        (Interrupted, asks(), clean.clone(), nothing(), "succeeded"),
        (Interrupted, whole(), clean.clone(), own(ASKS), "succeeded, the run's state"),
        (Interrupted, asks(), clean.clone(), own(BREAKS), "succeeded, the run's state"),
        (Interrupted, whole(), clean.clone(), own(BREAKS), "cancelled, the run's state"),
        (Interrupted, asks(), clean.clone(), own(OVER), "cancelled, the run's state"),
        (Interrupted, unbegun(), clean.clone(), of_thread(), "cancelled, the thread's state"),
        // The reason of a failure is in the stream, else in the thread, else in the task.
        (Error, fails(), clean.clone(), of_last_run(), "failed ValueError: of the stream"),
        (Error, whole(), clean.clone(), of_last_run(), "failed OSError: of the thread"),
        (Error, whole(), cut(), own(FAILED), "failed KeyError: of the task, the run's state"),
        (Error, whole(), clean.clone(), own(OVER), "cancelled, the run's state"),
        (Error, whole(), clean.clone(), nothing(), UNEXPLAINED),
        (Error, whole(), clean.clone(), stopped(own(FAILED)), "cancelled, the run's state"),
        (Error, fails(), clean.clone(), stopped(nothing()), "failed ValueError: of the stream"),
        (Timeout, whole(), clean.clone(), nothing(), TIMED_OUT),
        (Timeout, fails(), clean.clone(), nothing(), TIMED_OUT),
    ] {
        let what = format!("{status:?}, {end:?}, {seen:?}, {facts:?}");
        let decided = decided(&seen, &end, &RecordedOutcome::Read(record(status)), facts);
        assert_eq!(decided, expected, "{what}");
    }
}

#[test]
fn without_a_record_the_stream_and_the_thread_decide() {
    let clean = BodyEnd::Clean;
    for (record, seen, facts, expected) in [
        (RecordedOutcome::Unnamed, StreamSummary::default(), nothing(), "lost"),
        (RecordedOutcome::Unnamed, fails(), nothing(), "failed ValueError: of the stream"),
        (RecordedOutcome::Deleted, whole(), of_thread(), "cancelled, the thread's state"),
        (
            RecordedOutcome::Deleted,
            fails(),
            of_thread(),
            "failed ValueError: of the stream, the thread's state",
        ),
        (RecordedOutcome::Deleted, whole(), nothing(), "missing: gone"),
        (RecordedOutcome::Deleted, fails(), nothing(), "missing: failed ValueError: of the stream"),
    ] {
        let what = format!("{record:?}, {seen:?}");
        assert_eq!(decided(&seen, &clean, &record, facts), expected, "{what}");
    }
}

#[test]
fn the_state_is_read_unless_the_stream_has_shown_it() {
    let clean = BodyEnd::Clean;
    for (seen, end, status, need) in [
        (asks(), &clean, Success, StateNeed::None),
        (fails(), &clean, Success, StateNeed::None),
        (whole(), &clean, Success, StateNeed::IfReadable),
        (asks(), &clean, Interrupted, StateNeed::IfReadable),
        (fails(), &clean, Error, StateNeed::IfReadable),
        (asks(), &cut(), Success, StateNeed::Whole),
        (partial(), &clean, Success, StateNeed::Whole),
        (
            StreamSummary { coverage: Coverage::EndMissing, ..asks() },
            &clean,
            Success,
            StateNeed::Whole,
        ),
        (
            StreamSummary { asks: InterruptSeen::MaybeBelow, ..whole() },
            &clean,
            Success,
            StateNeed::IfReadable,
        ),
    ] {
        assert_eq!(state_need(&seen, end, status), need, "{seen:?}, {end:?}, {status:?}");
    }
}

#[test]
fn stored_answers_are_read_for_a_run_that_answers_and_may_ask() {
    let answering = RunRecord { answers: vec!["i".to_owned()], ..record(Success) };
    let asks_batch = StreamSummary { asks_batch: true, ..whole() };
    assert!(needs_kept(&asks_batch, &answering, false));
    assert!(needs_kept(&whole(), &answering, true));
    assert!(!needs_kept(&whole(), &answering, false));
    assert!(!needs_kept(&asks_batch, &record(Success), true));
}

#[test]
fn only_a_whole_stream_that_asks_nothing_confirms_its_own_end() {
    assert!(has_shown_all(&whole(), &BodyEnd::Clean));
    assert!(!has_shown_all(&whole(), &cut()));
    for seen in [partial(), asks(), fails(), StreamSummary { has_begun: false, ..whole() }] {
        assert!(!has_shown_all(&seen, &BodyEnd::Clean), "{seen:?}");
    }
}
