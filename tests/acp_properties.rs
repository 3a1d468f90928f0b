//! What must always hold of a session, over generated runs: every update legal where it stands,
//! each text told once, each call announced once and settled, the same ids live and loaded.
//!
//! `PROPTEST_CASES` sets how many runs each property makes. A failure prints the smallest run that
//! shows it.

#![cfg(test)]

mod support;

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::Config;
use serde_json::{Value, json};
use support::acp::{self, Schema, Session};
use support::capture::Capture;
use support::generate::{self, any_end, known_end, run_events};
use threadway::run::{self, Holds, Id, Open, Outcome, RunEvent, StreamEnd, View};

/// Runs per property unless `PROPTEST_CASES` says otherwise.
const RUNS: u32 = 12_000;

/// One of so many is checked by the schema, which takes its time.
const SAMPLE: u8 = 20;

fn config() -> Config {
    // The default reads the environment; what it says wins.
    let default = Config::default();
    let is_chosen = std::env::var_os("PROPTEST_CASES").is_some();
    let cases = if is_chosen { default.cases } else { RUNS };
    Config { cases, failure_persistence: None, ..default }
}

thread_local! {
    static SCHEMA: Schema = Schema::load();
}

fn told(events: &[RunEvent]) -> Session {
    acp::project(&mut acp::newcomer(), events)
}

fn fold(events: &[RunEvent]) -> View {
    let mut view = View::default();
    for event in events {
        view.apply(event);
    }
    view
}

fn is_legal(session: &Session, events: &[RunEvent], roll: u8) -> Result<(), String> {
    session.check()?;
    if roll == 0 {
        SCHEMA.with(|schema| schema.check(session))?;
    }
    match events.last() {
        Some(RunEvent::Ended { outcome: Outcome::Interrupted(_), .. }) | None => Ok(()),
        Some(_) => session.check_settled(),
    }
}

/// Whether the session shows all that the view holds: every text whole, every call with its result.
fn shows(session: &Session, view: &View) -> Result<(), String> {
    for (id, text) in acp::to_be_shown(view) {
        let told = session.text_of(&id);
        if told.as_ref() != Some(&text) {
            return Err(format!("{id} is {text:?}, told is {told:?}"));
        }
    }
    let calls = session.calls();
    for call in view.messages().iter().flat_map(|message| &message.calls) {
        let Some(told) = calls.get(&*call.id) else { return Err(format!("{call:?} is not told")) };
        if view.is_answered(&call.id) && !told.is_settled() {
            return Err(format!("{call:?} has an answer, told is {told:?}"));
        }
    }
    Ok(())
}

/// The calls of a session without what depends on when they were told.
fn lasting(session: &Session) -> BTreeMap<String, Vec<Value>> {
    let names = ["name", "kind", "status", "content", "rawOutput"];
    let lasting = |call: acp::Shown| names.iter().map(|name| call.get(name).clone()).collect();
    let settled = session.calls().into_iter().filter(|(_, call)| call.is_settled());
    settled.map(|(id, call)| (id, lasting(call))).collect()
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_parts_make_legal_updates(
        parts in generate::any_parts(),
        state in prop::option::of((0..24_usize, generate::state())),
        end in any_end(),
        roll in 0..SAMPLE,
    ) {
        let bytes = generate::bytes(&parts, false);
        let state = state.map(|(at, state)| (at, json!({"values": state, "next": []}).to_string()));
        let state = state.as_ref().map(|(at, state)| (*at, state.as_str()));
        let (_, events) = run_events(&bytes, bytes.len().max(1), state, end);
        prop_assert_eq!(is_legal(&told(&events), &events, roll), Ok(()));
    }

    #[test]
    fn whatever_comes_the_session_shows_what_the_view_holds(
        parts in generate::any_parts(),
        end in known_end(),
    ) {
        let bytes = generate::bytes(&parts, false);
        let (translator, events) = run_events(&bytes, bytes.len().max(1), None, end);
        let session = told(&events);
        prop_assert_eq!(shows(&session, translator.view()), Ok(()));
    }

    #[test]
    fn a_run_is_told_once(script in generate::told()) {
        let bytes = generate::bytes(&script.parts, false);
        let (translator, events) = run_events(&bytes, 4096, None, StreamEnd::Succeeded);
        let session = told(&events);
        prop_assert_eq!(is_legal(&session, &events, 1), Ok(()));
        let texts = session.texts();
        prop_assert!(texts.keys().all(|id| !id.ends_with(":2")), "{texts:?}");
        for (id, text) in &script.texts {
            // A subagent's words are its call's affair.
            let told = texts.get(id).map_or("", |text| text);
            prop_assert!(told == text || told.is_empty(), "{id}: {told:?} of {text:?}");
        }
        prop_assert_eq!(shows(&session, translator.view()), Ok(()));
    }

    #[test]
    fn what_is_loaded_is_what_was_told_live(
        script in generate::told(),
    ) {
        let bytes = generate::bytes(&script.parts, false);
        let (translator, events) = run_events(&bytes, 4096, None, StreamEnd::Succeeded);
        let mut projector = acp::newcomer();
        let live = acp::project(&mut projector, &events);
        let again = RunEvent::Messages(translator.view().messages().into());
        prop_assert_eq!(acp::project(&mut projector, [&again]).updates, Vec::<Value>::new());
        let loaded = acp::load(translator.view());
        prop_assert_eq!(loaded.check(), Ok(()));
        let texts = live.texts();
        for (id, text) in loaded.texts() {
            prop_assert_eq!(texts.get(&id), Some(&text));
        }
        let calls = lasting(&live);
        for (id, call) in lasting(&loaded) {
            prop_assert_eq!(calls.get(&id), Some(&call));
        }
        let announced = loaded.updates.iter().filter(|u| u["sessionUpdate"] == "tool_call_update");
        prop_assert_eq!(announced.count(), 0, "a history tells each call at once");
    }

    #[test]
    fn a_reader_that_missed_some_is_told_the_same_in_the_end(
        parts in generate::any_parts(),
        missed in any::<(prop::sample::Index, prop::sample::Index)>(),
        end in known_end(),
        roll in 0..SAMPLE,
    ) {
        let bytes = generate::bytes(&parts, false);
        let (_, events) = run_events(&bytes, bytes.len().max(1), None, end);
        let (a, b) = (missed.0.index(events.len()), missed.1.index(events.len()));
        let (from, to) = (a.min(b), a.max(b));
        let mut open = Open::default();
        for event in &events[..from] {
            open.apply(event);
        }
        let Some(resync) = run::resync(&fold(&events[..to]), Holds::Some(&open)) else {
            return Ok(());
        };
        let read = if from == 0 { &events[..1] } else { &events[..from] };
        let seen: Vec<_> = read.iter().chain(&resync).chain(&events[to.max(1)..]).cloned().collect();
        let session = told(&seen);
        prop_assert_eq!(is_legal(&session, &seen, roll), Ok(()));
        prop_assert_eq!(shows(&session, &fold(&seen)), Ok(()));
    }

    #[test]
    fn a_run_that_was_read_with_a_gap_is_told_once(
        script in generate::told(),
        missed in any::<(prop::sample::Index, prop::sample::Index)>(),
    ) {
        let bytes = generate::bytes(&script.parts, false);
        let (translator, events) = run_events(&bytes, 4096, None, StreamEnd::Succeeded);
        let (a, b) = (missed.0.index(events.len()), missed.1.index(events.len()));
        let (from, to) = (a.min(b), a.max(b));
        let mut open = Open::default();
        for event in &events[..from] {
            open.apply(event);
        }
        let Some(resync) = run::resync(&fold(&events[..to]), Holds::Some(&open)) else {
            return Ok(());
        };
        let read = if from == 0 { &events[..1] } else { &events[..from] };
        let seen: Vec<_> = read.iter().chain(&resync).chain(&events[to.max(1)..]).cloned().collect();
        let session = told(&seen);
        let texts = session.texts();
        prop_assert!(texts.keys().all(|id| !id.ends_with(":2")), "{texts:?}");
        let whole = told(&events).texts();
        for (id, text) in acp::to_be_shown(translator.view()) {
            prop_assert_eq!(texts.get(&id), Some(&text));
            prop_assert_eq!(whole.get(&id), Some(&text));
        }
        prop_assert_eq!(lasting(&session), lasting(&told(&events)));
    }

    #[test]
    fn one_session_takes_run_after_run(
        first in generate::any_parts(),
        second in generate::any_parts(),
        end in known_end(),
        held in prop::option::of(prop::sample::select(&["m0", "m1"][..])),
        roll in 0..SAMPLE,
    ) {
        let mut projector = acp::newcomer();
        if let Some(held) = held {
            projector.hold(&Id::from(held));
        }
        let mut session = Session::default();
        let mut view = View::default();
        for parts in [first, second] {
            let bytes = generate::bytes(&parts, false);
            let (_, events) = run_events(&bytes, bytes.len().max(1), None, end.clone());
            session.extend(acp::project(&mut projector, &events));
            prop_assert_eq!(is_legal(&session, &events, roll), Ok(()));
            view = fold(&events);
        }
        if let Some(held) = held {
            prop_assert!(session.text_of(held).is_none());
        } else {
            prop_assert_eq!(shows(&session, &view), Ok(()));
        }
    }

    #[test]
    fn garbage_never_panics_and_its_updates_are_legal(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        capture in 0..CAPTURES.len(),
        cut in any::<prop::sample::Index>(),
        end in any_end(),
    ) {
        let mut stream = Capture::named(CAPTURES[capture]).bytes;
        stream.truncate(20_000);
        let at = cut.index(stream.len());
        let rest = stream.split_off(at);
        stream.extend_from_slice(&bytes);
        stream.extend_from_slice(&rest);
        let (_, events) = run_events(&stream, 997, None, end);
        prop_assert_eq!(is_legal(&told(&events), &events, 1), Ok(()));
    }
}

const CAPTURES: [&str; 4] = [
    "py-0.16.7/agent-updates",
    "py-0.16.7/hitl-values",
    "js-2.0.0/agent-messages",
    "py-0.16.7/subagent-messages-tuple-subgraphs",
];
