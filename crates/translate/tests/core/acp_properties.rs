//! Properties of a session, over generated runs: every update is legal at its position, each text
//! is sent once, each call is announced once and ends, and live and loaded ids are the same.
//!
//! `PROPTEST_CASES` sets the number of runs of each property. A failure prints the smallest run
//! that shows it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::acp::{self, AskedAnew, Session};
use crate::support::acp_schema::Schema;
use crate::support::capture::Capture;
use crate::support::generate::{self, any_end, fold, known_end, run_events};
use proptest::prelude::*;
use serde_json::{Value, json};
use threadway_translate::acp::CallDecision;
use threadway_translate::json::{self, Text, TextBuf};
use threadway_translate::langgraph::Finish;
use threadway_translate::run::{
    self, Action, Call, CallForm, Content, Id, Message, Outcome, Role, RunEvent, StreamEnd,
    Subagent, View, Viewer,
};

/// The number of runs per property, unless `PROPTEST_CASES` overrides it.
const RUNS: u32 = 2_000;

/// One of this many runs is checked by the schema, which is slow.
const SAMPLE: u8 = 20;

thread_local! {
    static SCHEMA: Schema = Schema::load();
}

fn told(events: &[RunEvent]) -> Session {
    acp::project(&mut acp::newcomer(), events)
}

fn is_legal(session: &Session, events: &[RunEvent], roll: u8) -> Result<(), String> {
    session.check()?;
    session.check_statuses(AskedAnew::Never)?;
    if roll == 0 {
        SCHEMA.with(|schema| schema.check(session))?;
    }
    match events.last() {
        Some(RunEvent::Ended { outcome: Outcome::Interrupted(_), .. }) | None => Ok(()),
        Some(_) => session.check_settled(),
    }
}

/// Checks that the session shows all of the view: every text whole but for white space at its ends,
/// every call with its result.
fn shows(session: &Session, view: &View) -> Result<(), String> {
    for (id, text) in acp::to_be_shown(view) {
        let told = session.text_of(&id);
        let is_text = |told: &String| told.trim() == text.trim();
        // A message whose id has changed keeps the one that it was sent under.
        let is_it = |(id, told): (&String, &String)| is_text(told) && view.message(id).is_none();
        if !told.as_ref().is_some_and(is_text) && !session.texts().iter().any(is_it) {
            return Err(format!("{id} is {text:?}, told is {told:?}"));
        }
    }
    let attachments = view.messages().iter().filter(|m| m.attached().is_some());
    for attachment in attachments.filter(|attachment| attachment.agent.is_none()) {
        if told_of(session, &attachment.id) == 0 {
            return Err(format!("{attachment:?} is not sent"));
        }
    }
    let calls = session.calls();
    for call in view.messages().iter().flat_map(|message| &message.calls) {
        let Some(told) = calls.get(&*call.id) else { return Err(format!("{call:?} is not sent")) };
        if view.is_answered(&call.id) && !told.is_settled() {
            return Err(format!("{call:?} has an answer, told is {told:?}"));
        }
    }
    Ok(())
}

/// How many chunks have this id.
fn told_of(session: &Session, id: &str) -> usize {
    let chunks = session.updates.iter();
    chunks.filter(|update| update["messageId"] == id && update["content"].is_object()).count()
}

/// Whether the id is that of a whole text that was sent again. The number after an attachment's id
/// is another one.
fn is_told_anew(id: &str) -> bool {
    id.ends_with(":2") && !id.ends_with(":attachment:2")
}

/// The calls of a session, without the members that depend on when updates were sent.
fn lasting(session: &Session) -> BTreeMap<String, Vec<Value>> {
    let names = ["name", "kind", "status", "content", "rawOutput"];
    let lasting = |call: acp::Shown| names.iter().map(|name| call.get(name).clone()).collect();
    let settled = session.calls().into_iter().filter(|(_, call)| call.is_settled());
    settled.map(|(id, call)| (id, lasting(call))).collect()
}

/// Whether a resync to the run's view contains the whole conversation.
fn holds_all(resync: &[RunEvent]) -> bool {
    !resync.iter().any(|event| matches!(event, RunEvent::Messages(_)))
}

/// Whether one of these messages gets more text.
fn goes_on_with<'a>(
    messages: &[Arc<Message>],
    mut events: impl Iterator<Item = &'a RunEvent>,
) -> bool {
    events.any(|event| {
        let (RunEvent::TextStarted { message_id, .. }
        | RunEvent::ReasoningStarted { message_id, .. }) = event
        else {
            return false;
        };
        messages.iter().any(|message| message.id == *message_id)
    })
}

/// Something that happens to a call.
#[derive(Clone, Copy, Debug)]
enum Step {
    Start,
    Args,
    End,
    Result {
        is_error: bool,
    },
    /// A snapshot with all calls; this one has its result or not.
    Show {
        is_answered: bool,
    },
    /// A snapshot without calls.
    TakeBack,
    Subagent,
    Ask,
    Decide(CallDecision),
    /// The turn is stopped.
    Settle,
    /// The run ends, and another begins.
    Ended {
        is_interrupted: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        Just(Step::Start),
        Just(Step::Args),
        Just(Step::End),
        any::<bool>().prop_map(|is_error| Step::Result { is_error }),
        any::<bool>().prop_map(|is_answered| Step::Show { is_answered }),
        Just(Step::TakeBack),
        Just(Step::Subagent),
        Just(Step::Ask),
        Just(Step::Decide(CallDecision::Allowed)),
        Just(Step::Decide(CallDecision::Rejected)),
        Just(Step::Settle),
        any::<bool>().prop_map(|is_interrupted| Step::Ended { is_interrupted }),
    ]
}

/// The number of calls in the steps.
const CALLS: usize = 3;

const ARGS: &str = r#"{"command":"ls"}"#;

/// The run events of a step.
fn events_of(step: Step, at: usize) -> Vec<RunEvent> {
    let id = |at: usize| Id::from(format!("c{at}"));
    let (call_id, message_id) = (id(at), Id::from("ai"));
    let text = Content::Text(TextBuf::from(&Text::new("done")));
    match step {
        Step::Start => {
            let name = Id::from("bash");
            vec![RunEvent::CallStarted { call_id, name, message_id, agent: None }]
        }
        Step::Args => vec![RunEvent::CallArgs { call_id, delta: Text::new(ARGS) }],
        Step::End => vec![RunEvent::CallEnded { call_id }],
        Step::Result { is_error } => {
            let message_id = Id::from(format!("r{at}"));
            let content = text;
            vec![RunEvent::CallResult { message_id, call_id, content, is_error, agent: None }]
        }
        Step::Show { is_answered } => {
            let mut ai = Message::new(message_id, Role::Assistant);
            let args = TextBuf::from(&Text::new(ARGS));
            let (name, form) = (Id::from("bash"), CallForm::Valid);
            let call = |at| Call { id: id(at), name: Arc::clone(&name), args: args.clone(), form };
            ai.calls.extend((0..CALLS).map(call));
            let mut result = Message::new(Id::from(format!("r{at}")), Role::Tool);
            result.content = text;
            result.call_id = Some(call_id);
            let messages = [ai].into_iter().chain(is_answered.then_some(result)).map(Arc::new);
            vec![RunEvent::Messages(messages.collect())]
        }
        Step::TakeBack => vec![RunEvent::Messages([].into())],
        Step::Subagent => vec![RunEvent::SubagentStarted(Subagent {
            id: Id::from(format!("s{at}")),
            name: Id::from("helper"),
            parent: None,
            call_id: Some(call_id),
        })],
        Step::Ended { is_interrupted } => {
            let outcome = if is_interrupted {
                Outcome::Interrupted(Vec::new())
            } else {
                Outcome::Finished { pending_calls: Vec::new(), finish: Finish::Done }
            };
            let run = Id::from("R");
            vec![
                RunEvent::Ended { outcome, usage: Vec::new() },
                RunEvent::Started { thread_id: Id::from("T"), run_id: None, name: run },
            ]
        }
        Step::Ask | Step::Decide(_) | Step::Settle => Vec::new(),
    }
}

proptest! {
    #![proptest_config(generate::config(RUNS))]

    #[test]
    fn a_call_is_in_progress_only_where_somebody_has_allowed_it_or_it_is_seen_to_run(
        steps in prop::collection::vec((0..CALLS, step()), 0..40),
    ) {
        let mut projector = acp::newcomer();
        let mut session = Session::default();
        let mut may_run = [false; CALLS];
        for (at, step) in steps {
            let action = Action {
                name: Text::new("bash"),
                args: json::raw(ARGS.to_owned()),
                description: None,
                decisions: Vec::new(),
                call_id: Some(Id::from(format!("c{at}"))),
                schema: None,
                details: None,
                kept: None,
            };
            let question = Id::from("q");
            may_run[at] |= matches!(step, Step::Decide(CallDecision::Allowed) | Step::Subagent);
            let told = session.updates.len();
            match step {
                Step::Ask => {
                    let call = projector.ask(&question, at, &action, &mut |u| session.push(u));
                    let status = serde_json::to_value(call.status).unwrap();
                    prop_assert!(may_run[at] || status == "pending", "{status}");
                }
                Step::Decide(verdict) => {
                    projector.decide(&question, at, &action, verdict, &mut |u| session.push(u));
                }
                Step::Settle => projector.settle(&mut |update| session.push(update)),
                Step::Start
                | Step::Args
                | Step::End
                | Step::Result { .. }
                | Step::Show { .. }
                | Step::TakeBack
                | Step::Subagent
                | Step::Ended { .. } => {
                    session.extend(acp::project(&mut projector, &events_of(step, at)));
                }
            }
            let name = format!("c{at}");
            for update in &session.updates[told..] {
                let runs = update["status"] == "in_progress";
                prop_assert!(!runs || (may_run[at] && update["toolCallId"] == name), "{update}");
            }
        }
        prop_assert_eq!(session.check(), Ok(()));
        projector.settle(&mut |update| session.push(update));
        prop_assert_eq!(session.check_settled(), Ok(()));
    }

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
        prop_assert!(!texts.keys().any(|id| is_told_anew(id)), "{texts:?}");
        for (id, text) in &script.texts {
            // A subagent's text belongs to its call.
            let told = texts.get(id).map_or("", |text| text);
            prop_assert!(told == text || told.is_empty(), "{id}: {told:?} of {text:?}");
        }
        prop_assert_eq!(shows(&session, translator.view()), Ok(()));
        for (id, kind) in &script.attached {
            // Each source of a text is a chunk.
            let most = if *kind == "threadway.annotations" { 3 } else { 1 };
            prop_assert!((1..=most).contains(&told_of(&session, id)), "{}", id);
        }
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
        prop_assert_eq!(announced.count(), 0, "a history announces each call complete");
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
        let Some(seen) = generate::with_a_gap(&events, missed) else { return Ok(()) };
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
        let Some(seen) = generate::with_a_gap(&events, missed) else { return Ok(()) };
        let session = told(&seen);
        let texts = session.texts();
        prop_assert!(!texts.keys().any(|id| is_told_anew(id)), "{texts:?}");
        let whole = told(&events).texts();
        for (id, text) in acp::to_be_shown(translator.view()) {
            prop_assert_eq!(texts.get(&id), Some(&text));
            prop_assert_eq!(whole.get(&id), Some(&text));
        }
        prop_assert_eq!(lasting(&session), lasting(&told(&events)));
    }

    #[test]
    fn who_loads_the_thread_in_the_middle_of_a_run_is_shown_all_of_it(
        parts in generate::any_parts(),
        at in any::<(prop::sample::Index, prop::sample::Index)>(),
        end in known_end(),
        roll in 0..SAMPLE,
    ) {
        let bytes = generate::bytes(&parts, false);
        let (_, events) = run_events(&bytes, bytes.len().max(1), None, end);
        let (a, b) = (at.0.index(events.len()), at.1.index(events.len()));
        let (loaded, joined) = (fold(&events[..a.min(b)]), a.max(b));
        let view = fold(&events[..joined]);
        // The client receives an earlier state of the thread, then the current run.
        let held = View::with(loaded.messages().to_vec(), loaded.state().cloned());
        for holds in [Viewer::New, Viewer::Holds(&held)] {
            let Some(resync) = run::resync(&view, holds, run::EmitOptions::default()) else { continue };
            // The messages that were sent before are complete: real runs do not continue them,
            // generated ones may.
            let later = &events[joined.max(1)..];
            if holds_all(&resync) && goes_on_with(held.messages(), resync.iter().chain(later)) {
                continue;
            }
            let history = RunEvent::Messages(held.messages().into());
            let mut seen = vec![history, events[0].clone()];
            seen.extend(resync);
            seen.extend(later.iter().cloned());
            let session = told(&seen);
            prop_assert_eq!(is_legal(&session, &seen, roll), Ok(()));
            prop_assert_eq!(shows(&session, &fold(&seen)), Ok(()));
        }
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
        let mut views = Vec::new();
        for parts in [first, second] {
            let bytes = generate::bytes(&parts, false);
            let (_, events) = run_events(&bytes, bytes.len().max(1), None, end.clone());
            session.extend(acp::project(&mut projector, &events));
            prop_assert_eq!(is_legal(&session, &events, roll), Ok(()));
            views.push(fold(&events));
        }
        let [before, after] = &views[..] else { panic!("two runs") };
        // Real runs do not change a message's author, generated ones may.
        let is_changed = |message: &Arc<Message>| {
            before.message(&message.id).is_some_and(|other| other.role != message.role)
        };
        if let Some(held) = held {
            prop_assert!(session.text_of(held).is_none());
        } else if !after.messages().iter().any(is_changed) {
            prop_assert_eq!(shows(&session, after), Ok(()));
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
    "js-1.5.1/agent-messages",
    "py-0.16.7/subagent-messages-tuple-subgraphs",
];
