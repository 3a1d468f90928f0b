//! Reads any bytes as a run's stream. Each client gets a legal stream, the same in any chunking.
//! The client's content at the end equals the translator's view.
//!
//! Facts that the gateway reads outside of the stream are part of the input too, as events whose names
//! begin with `@`: a gap, or the state of the thread at that time.

use serde_json::Value;
use serde_json::value::RawValue;
use threadway::runs::{Events, RunDecoder};
use threadway_translate::acp::Projector;
use threadway_translate::acp::permission::{self, Form};
use threadway_translate::agui::{self, Client, ClientMessages, RunId, Version};
use threadway_translate::json;
use threadway_translate::langgraph::{Part, ThreadState};
use threadway_translate::run::{
    self, Ask, Interrupt, LossReason, Message, Open, Outcome, Role, RunError, RunEvent, StreamEnd,
    Translator, View, Viewer, ViewerMessages,
};
use threadway_translate::sse::{Decoder, Frame};

use super::Dials;
use crate::support::acp::{self, Session};
use crate::support::verify::Verifier;

pub(crate) fn check(stream: &[u8]) {
    let dials = Dials::of(stream);
    let end = end(dials.choose(0, 6));
    check_decoder(stream, 1 + dials.choose(1, 70), &end);
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
        _ => StreamEnd::Lost { loss: LossReason::Unreadable, message: "gone".to_owned() },
    }
}

/// Checks the whole chain including event ids, which are also the same in any chunking.
fn check_decoder(stream: &[u8], size: usize, end: &StreamEnd) {
    let events = |size: usize| {
        let mut decoder = RunDecoder::new("T", None, Some("r1"));
        let mut events = Events::default();
        for chunk in stream.chunks(size) {
            if decoder.read(chunk, &mut events).is_err() {
                break;
            }
        }
        decoder.end(None, end.clone(), &mut events);
        events
    };
    let whole = events(stream.len().max(1));
    assert_eq!(events(size), whole, "in chunks of {size}");
    check_agui(&whole, agui::Projector::new(client(Version::V1, Some("r1")), Vec::new()));
}

/// The events of a stream and of the facts read outside of it, and the translator that made them.
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
    assert_eq!(events.len(), told, "a second end makes no event");
    (translator, events)
}

/// Handles a frame whose name begins with `@`; returns whether it is one.
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

/// Checks the projection for every kind of client.
fn check_wires(events: &[RunEvent]) {
    for version in [Version::V1, Version::Legacy] {
        let held = ["m0", "m1", "m2"].map(|id| Message::new(id.into(), Role::User).into()).to_vec();
        check_agui(events, agui::Projector::new(client(version, Some("r1")), Vec::new()));
        check_agui(events, agui::Projector::new(client(version, Some("r1")), held));
        check_agui(events, agui::Projector::new(client(version, None), ClientMessages::Unknown));
        check_agui(events, agui::Projector::new(client(version, None), ClientMessages::Returning));
    }
    check_acp(events);
}

fn client(version: Version, run_id: Option<&str>) -> Client {
    let run_id = run_id.map_or(RunId::Unnamed, |id| RunId::Own(id.to_owned()));
    Client { thread_id: "T".to_owned(), run_id, parent_run_id: None, version }
}

/// Checks that each event is legal at its position, and that all brackets close before the one end.
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
    let (last, others) = told.split_last().expect("a run has events");
    for event in others {
        if let Err(why) = verifier.check(event) {
            panic!("{why}, at {event} in {told:#?}");
        }
        assert!(event["type"] != "RUN_FINISHED" && event["type"] != "RUN_ERROR", "an end");
    }
    let mut end = last.clone();
    if end["type"] == "RUN_ERROR" {
        // The rules let a failed run leave brackets open. The gateway never does.
        let start = &told[0];
        end = serde_json::json!({
            "type": "RUN_FINISHED", "threadId": start["threadId"], "runId": start["runId"]
        });
    }
    if let Err(why) = verifier.check(&end).and_then(|()| verifier.finish()) {
        panic!("{why}, at the end {last} of {told:#?}");
    }
}

/// Checks that each update is legal at its position, and that no call waits at the end. A call
/// whose question nobody has answered does not wait either.
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

/// Builds the questions for an editor's user, without their answers.
fn ask(
    interrupt: &Interrupt,
    projector: &mut Projector,
    emit: &mut dyn FnMut(&threadway_translate::acp::Update<'_>),
) {
    match &interrupt.ask {
        Ask::Approval { actions, form } => {
            for (at, action) in actions.iter().enumerate() {
                if permission::has_offers(action, true) {
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

/// Checks that a form has fields, and that its answers can be read.
fn check_form(form: &Form) {
    let schema = read_json(form.schema.get().as_bytes());
    assert_eq!(schema["type"], "object", "{schema}");
    assert!(schema["properties"].is_object(), "{schema}");
    for content in ["{}", r#"{"answer":"{}"}"#, r#"{"answer":1}"#, "[]"] {
        let content: &RawValue = serde_json::from_str(content).expect("the text is JSON");
        if let Some(answer) = form.read(content) {
            read_json(answer.get().as_bytes());
        }
    }
}

/// Reads JSON that the gateway wrote. `Value` cannot hold all of it: numbers may be too large,
/// halves of surrogate pairs may stand alone, and a state may be nested deeply.
fn read_json(line: &[u8]) -> Value {
    serde_json::from_slice(line).unwrap_or_else(|_| match serde_json::from_slice(line) {
        Ok(raw) => lenient(raw, 0),
        Err(error) => panic!("{error}: {}", String::from_utf8_lossy(line)),
    })
}

/// A value as far as `Value` can hold it; the rest is null.
fn lenient(raw: &RawValue, depth: usize) -> Value {
    /// Deeper than any check looks.
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

// === the final content ===

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
            // Neither can be held: the value was forwarded unchanged, or split where that was
            // possible.
            (a, b) => assert_eq!(a.is_ok(), b.is_ok(), "held {held}, but {truth}"),
        }
    }
}

/// Checks that a reader that misses the events between two positions is brought to the run's
/// current content, and so is a reader that joins then.
fn check_gap(events: &[RunEvent], from: usize, to: usize) {
    let mut open = Open::default();
    for event in &events[..from] {
        open.apply(event);
    }
    let before = fold(&events[..from]);
    let before = View::with(before.messages().to_vec(), before.state().cloned());
    let view = fold(&events[..to]);
    for holds in [Viewer::New, Viewer::Holds(&before), Viewer::Lagging(&open)] {
        let Some(resync) = run::resync(&view, holds, run::EmitOptions::default()) else { continue };
        // A reader that has read nothing gets the start, as all others do.
        let read = if matches!(holds, Viewer::Lagging(_)) { from.max(1) } else { 1 };
        let seen: Vec<_> =
            events[..read].iter().chain(&resync).chain(&events[to.max(1)..]).cloned().collect();
        check_agui(&seen, agui::Projector::new(client(Version::V1, None), ClientMessages::Unknown));
        check_acp(&seen);
        if matches!(holds, Viewer::Lagging(_)) {
            check_view(&fold(&seen), &fold(events));
        }
    }
}
