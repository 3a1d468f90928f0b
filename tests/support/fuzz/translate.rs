//! Any bytes as a run's stream: whatever it says, each client gets a legal stream, the same in any
//! chunking, and what it comes to is what the translator holds.
//!
//! What is read beside a stream stands in it too, as events whose names begin with `@`: a gap, or
//! a state that the thread had then.

use serde_json::Value;
use serde_json::value::RawValue;
use threadway::runs::{Events, Feed};
use threadway_translate::acp::Projector;
use threadway_translate::acp::permission::{self, Form};
use threadway_translate::agui::{self, Client, RunId, Version};
use threadway_translate::json;
use threadway_translate::langgraph::{Part, ThreadState};
use threadway_translate::run::{
    self, Ask, Interrupt, Loss, Message, Open, Outcome, Role, RunError, RunEvent, StreamEnd,
    Translator, View, Viewer, ViewerMessages,
};
use threadway_translate::sse::{Decoder, Frame};

use super::Dials;
use crate::support::acp::{self, Session};
use crate::support::verify::Verifier;

pub(crate) fn check(stream: &[u8]) {
    let dials = Dials::of(stream);
    let end = end(dials.choose(0, 6));
    check_feed(stream, 1 + dials.choose(1, 70), &end);
    let (translator, events) = run(stream, dials.choose(2, 3), &end);
    check_wires(&events);
    let view = fold(&events);
    check_view(&view, translator.view());
    let places = (dials.choose(3, events.len()), dials.choose(4, events.len()));
    check_gap(&events, places.0.min(places.1), places.0.max(places.1));
}

fn end(choice: usize) -> StreamEnd {
    let error = || RunError::new("E", "m");
    match choice {
        0 => StreamEnd::Complete,
        1 => StreamEnd::Succeeded,
        2 => StreamEnd::Cancelled,
        3 => StreamEnd::Failed(error()),
        4 => StreamEnd::Failed(RunError { message: String::new(), ..error() }),
        _ => StreamEnd::Lost { loss: Loss::Unreadable, message: "gone".to_owned() },
    }
}

/// The whole chain, with the ids of its events: also those are the same in any chunking.
fn check_feed(stream: &[u8], size: usize, end: &StreamEnd) {
    let events = |size: usize| {
        let mut feed = Feed::new("T", None, Some("r1"));
        let mut events = Events::default();
        for chunk in stream.chunks(size) {
            if feed.read(chunk, &mut events).is_err() {
                break;
            }
        }
        feed.end(None, end.clone(), &mut events);
        events
    };
    let whole = events(stream.len().max(1));
    assert_eq!(events(size), whole, "in chunks of {size}");
    check_agui(&whole, agui::Projector::new(client(Version::V1, Some("r1")), Vec::new()));
}

/// The events of a stream with what was read beside it, and the state machine that made them.
fn run(stream: &[u8], joined: usize, end: &StreamEnd) -> (Translator, Vec<RunEvent>) {
    let mut translator = Translator::named("T", Some("R"), "r1");
    if joined > 0 {
        translator = translator.joined(joined == 1);
    }
    let (mut events, mut scratch) = (Vec::new(), String::new());
    let mut decoder = Decoder::new();
    decoder.push(stream);
    while let Ok(Some(frame)) = decoder.next_frame() {
        if !read_beside(&mut translator, &frame, &mut events) {
            translator.on_part(&Part::parse(&frame, &mut scratch), &mut events);
        }
    }
    translator.on_end(end.clone(), &mut events);
    let told = events.len();
    translator.on_end(end.clone(), &mut events);
    assert_eq!(events.len(), told, "a second end says nothing");
    (translator, events)
}

/// Whether a frame is no part of the stream, but was read beside it.
fn read_beside(translator: &mut Translator, frame: &Frame<'_>, events: &mut Vec<RunEvent>) -> bool {
    let data = frame.data.as_deref().unwrap_or_default();
    let state = ThreadState::parse(data);
    let values = state.as_ref().and_then(|state| state.values.as_ref());
    let input = serde_json::from_str::<&RawValue>(data).ok();
    match (frame.event.as_deref().unwrap_or_default(), values, input, &state) {
        ("@gap", ..) => translator.on_gap(data.is_empty(), events),
        ("@base", Some(values), ..) => translator.on_base(values, events),
        ("@checkpoint", Some(values), ..) => translator.on_checkpoint(values, events),
        ("@state", _, _, Some(state)) => translator.on_state(state, events),
        ("@input", _, Some(input), _) => translator.on_input(input, events),
        ("@named", _, Some(input), _) => translator.on_named_input(input, events),
        (name, ..) => return name.starts_with('@'),
    }
    true
}

// === the wires ===

/// To every client that there is.
fn check_wires(events: &[RunEvent]) {
    for version in [Version::V1, Version::Legacy] {
        let held = ["m0", "m1", "m2"].map(|id| Message::new(id.into(), Role::User).into()).to_vec();
        check_agui(events, agui::Projector::new(client(version, Some("r1")), Vec::new()));
        check_agui(events, agui::Projector::new(client(version, Some("r1")), held));
        check_agui(events, agui::Projector::for_anyone(client(version, None)));
        check_agui(events, agui::Projector::for_returning(client(version, None)));
    }
    check_acp(events);
}

fn client(version: Version, run_id: Option<&str>) -> Client {
    let run_id = run_id.map_or(RunId::Unnamed, |id| RunId::Own(id.to_owned()));
    Client { thread_id: "T".to_owned(), run_id, parent_run_id: None, version }
}

/// Each event is legal where it stands, and all that was opened is closed before the one end.
pub(super) fn check_agui(events: &[RunEvent], mut projector: agui::Projector) {
    let mut told = Vec::new();
    for event in events {
        projector.project(event, &mut |event| {
            let mut line = Vec::new();
            event.write(&mut line);
            told.push(read_json(&line));
        });
    }
    let mut verifier = Verifier::new();
    let (last, others) = told.split_last().expect("a run is told");
    for event in others {
        if let Err(why) = verifier.check(event) {
            panic!("{why}, at {event} in {told:#?}");
        }
        assert!(event["type"] != "RUN_FINISHED" && event["type"] != "RUN_ERROR", "an end");
    }
    let mut end = last.clone();
    if end["type"] == "RUN_ERROR" {
        // By the rules a run that fails may leave things open; ours never does.
        let start = &told[0];
        end = serde_json::json!({
            "type": "RUN_FINISHED", "threadId": start["threadId"], "runId": start["runId"]
        });
    }
    if let Err(why) = verifier.check(&end).and_then(|()| verifier.finish()) {
        panic!("{why}, at the end {last} of {told:#?}");
    }
}

/// Each update is legal where it stands, and no call waits for anything in the end: not either
/// where a person was asked and has not answered.
fn check_acp(events: &[RunEvent]) {
    let mut projector = acp::newcomer();
    let mut session = Session::default();
    let mut emit = |update: &threadway_translate::acp::Update<'_>| {
        let mut line = Vec::new();
        threadway_translate::acp::notification(acp::SESSION, update, &mut line);
        let line = line.strip_suffix(b"\n").expect("a line");
        assert!(!line.contains(&b'\n'), "one line");
        session.updates.push(read_json(line)["params"]["update"].take());
    };
    for event in events {
        projector.project(event, &mut emit);
    }
    if let Some(RunEvent::Ended { outcome: Outcome::Interrupted(interrupts), .. }) = events.last() {
        for interrupt in interrupts {
            ask(interrupt, &mut projector, &mut emit);
        }
        projector.settle(&mut emit);
    }
    if let Err(why) = session.check().and_then(|()| session.check_settled()) {
        panic!("{why}, in {:#?}", session.updates);
    }
}

/// Asks an editor's person, as far as that is done without them.
fn ask(
    interrupt: &Interrupt,
    projector: &mut Projector,
    emit: &mut dyn FnMut(&threadway_translate::acp::Update<'_>),
) {
    match &interrupt.ask {
        Ask::Approval { actions, form } => {
            for (at, action) in actions.iter().enumerate() {
                let offers = permission::offers(action, true);
                if !offers.is_empty() {
                    projector.ask(&interrupt.id, at, action, emit);
                }
                check_form(&Form::of_edit(action));
                check_form(&Form::of_response(action));
                for prompt in ["yes", "{\"a\":1}"] {
                    if let Some(decision) = permission::answered_by_prompt(action, prompt) {
                        read_json(form.decision(&action.name, &decision).get().as_bytes());
                    }
                }
            }
        }
        Ask::Answer { value, schema } => {
            check_form(&Form::of_question(value, schema.as_deref()));
            for prompt in ["yes", "1", "[\"a\"]"] {
                let answer = permission::answer_of_prompt(prompt, schema.as_deref());
                read_json(answer.get().as_bytes());
            }
        }
        Ask::Breakpoint => {}
    }
}

/// It is a form with fields, and what is filled in is read.
fn check_form(form: &Form) {
    let schema = read_json(form.schema.get().as_bytes());
    assert_eq!(schema["type"], "object", "{schema}");
    assert!(schema["properties"].is_object(), "{schema}");
    for content in ["{}", r#"{"answer":"{}"}"#, r#"{"answer":1}"#, "[]"] {
        let content: &RawValue = serde_json::from_str(content).expect("it is JSON");
        if let Some(answer) = form.read(content) {
            read_json(answer.get().as_bytes());
        }
    }
}

/// Reads what we wrote. It is JSON, if not always such that a value can hold it: numbers may be
/// too large, halves of surrogate pairs may stand alone, and a state may be nested deeply.
fn read_json(line: &[u8]) -> Value {
    serde_json::from_slice(line).unwrap_or_else(|_| match serde_json::from_slice(line) {
        Ok(raw) => lenient(raw, 0),
        Err(error) => panic!("{error}: {}", String::from_utf8_lossy(line)),
    })
}

/// A value as far as one can hold it; what cannot be held is null.
fn lenient(raw: &RawValue, depth: usize) -> Value {
    /// Deeper than anything that is checked.
    const MAX_DEPTH: usize = 16;
    if let Ok(value) = serde_json::from_str(raw.get()) {
        return value;
    }
    if depth == MAX_DEPTH {
        return Value::Null;
    }
    if let Some(members) = json::members(raw) {
        let members = members.0.into_iter();
        return members
            .map(|(name, value)| (name.to_string(), lenient(value, depth + 1)))
            .collect();
    }
    if let Some(items) = json::items(raw) {
        return items.into_iter().map(|item| lenient(item, depth + 1)).collect();
    }
    json::string(raw).map_or(Value::Null, |string| Value::from(&*string))
}

// === what it comes to ===

fn fold(events: &[RunEvent]) -> View {
    let mut view = View::default();
    for event in events {
        view.apply(event);
    }
    view
}

fn check_view(held: &View, truth: &View) {
    let left = run::snapshots(ViewerMessages::Known(held.messages()), truth.messages());
    assert!(left.is_empty(), "held {:#?}, but {:#?}", held.messages(), truth.messages());
    let state = |view: &View| view.state().map(|state| state.to_json().get().to_owned());
    let (held, truth) = (state(held), state(truth));
    assert_eq!(held.is_some(), truth.is_some());
    if let (Some(held), Some(truth)) = (held, truth) {
        let parse = |state: &str| serde_json::from_str::<Value>(state);
        match (parse(&held), parse(&truth)) {
            (Ok(a), Ok(b)) => assert_eq!(a, b, "held {held}, but {truth}"),
            // One that no value can hold was passed on as it is, or opened where it could be.
            (a, b) => assert_eq!(a.is_ok(), b.is_ok(), "held {held}, but {truth}"),
        }
    }
}

/// A reader that misses what lies between two places is brought to where the run is; so is one
/// that comes then.
fn check_gap(events: &[RunEvent], from: usize, to: usize) {
    let mut open = Open::default();
    for event in &events[..from] {
        open.apply(event);
    }
    let before = fold(&events[..from]);
    let before = View::with(before.messages().to_vec(), before.state().cloned());
    let view = fold(&events[..to]);
    for holds in [Viewer::New, Viewer::Holds(&before), Viewer::Lagging(&open)] {
        let Some(resync) = run::resync(&view, holds, run::Emit::default()) else { continue };
        // A reader that has read nothing is told the start, as all others are.
        let read = if matches!(holds, Viewer::Lagging(_)) { from.max(1) } else { 1 };
        let seen: Vec<_> =
            events[..read].iter().chain(&resync).chain(&events[to.max(1)..]).cloned().collect();
        check_agui(&seen, agui::Projector::for_anyone(client(Version::V1, None)));
        check_acp(&seen);
        if matches!(holds, Viewer::Lagging(_)) {
            check_view(&fold(&seen), &fold(events));
        }
    }
}
