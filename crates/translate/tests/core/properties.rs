//! Properties over generated runs: legality, determinism, no duplicate text, convergence,
//! exactness, totality.
//!
//! `PROPTEST_CASES` sets the number of runs of each property. The default is the sample of a check;
//! `./check seeds` makes more. A failure prints the smallest run that shows it.

use std::collections::HashMap;

use crate::support::capture::{self, Capture, Translated};
use crate::support::generate::{self, ScriptPart, any_end, fold, known_end, run_events};
use crate::support::judge;
use crate::support::reduce::Held;
use crate::support::schema::Schema;
use crate::support::verify::Verifier;
use proptest::prelude::*;
use serde_json::{Value, json};
use threadway_translate::agui::{Input, Projector};
use threadway_translate::langgraph::{Part, ThreadState};
use threadway_translate::run::{
    self, Activity, Id, Outcome, RunEvent, StreamEnd, ToolStatus, Translator, View, Viewer,
    ViewerMessages,
};
use threadway_translate::sse::Decoder;

/// The number of runs per property, unless `PROPTEST_CASES` overrides it.
const RUNS: u32 = 4_000;

fn told(events: &[RunEvent]) -> Translated {
    capture::project(events, Projector::new(capture::newcomer(), Vec::new()))
}

fn same_state(a: Option<String>, b: Option<String>) -> bool {
    let parse =
        |state: Option<String>| state.map(|state| serde_json::from_str::<Value>(&state).unwrap());
    parse(a) == parse(b)
}

fn is_legal(events: &[Value]) -> Result<(), String> {
    let mut verifier = Verifier::new();
    for event in events {
        verifier.check(event).map_err(|why| format!("{event}: {why}"))?;
    }
    verifier.finish()
}

/// Whether the message is one of LangGraph's.
fn is_said(message: &run::Message) -> bool {
    !matches!(message.role, run::Role::Reasoning | run::Role::Attachment)
}

/// The messages of the official client after these events.
fn held(mut client: Held, events: &[Value]) -> Vec<Value> {
    for event in events {
        client.apply(event).unwrap();
    }
    client.messages
}

/// The activities of a stream, repetitions included.
fn shown(events: &[Value]) -> Vec<(String, &str)> {
    let is_attached = |event: &&Value| {
        event["type"] == "ACTIVITY_SNAPSHOT" && event["activityType"] != "threadway.tool"
    };
    let activities = events.iter().filter(is_attached);
    let text = |event: &'_ Value, name| event[name].as_str().unwrap().to_owned();
    let shown =
        activities.map(|event| (text(event, "messageId"), event["activityType"].as_str().unwrap()));
    shown.collect()
}

/// The calls whose results are errors and were sent as events, but which nothing marks as failed
/// for an AG-UI client. A result before its call marks nothing: the tool's name is unknown.
fn unseen_errors(events: &[RunEvent]) -> Vec<&Id> {
    let is_shown_by = |event: &RunEvent, id: &Id| {
        if let RunEvent::Activity { activity: Activity::Tool { call_id, status, .. }, .. } = event {
            return call_id == id && *status == ToolStatus::Failed;
        }
        let RunEvent::Messages(messages) = event else { return false };
        let mut messages = messages.iter();
        messages.any(|message| message.call_id.as_ref() == Some(id) && message.error.is_some())
    };
    let mut unseen = Vec::new();
    for (at, event) in events.iter().enumerate() {
        if let RunEvent::CallResult { call_id, is_error: true, .. } = event
            && fold(&events[..at]).call(call_id).is_some()
            && !events.iter().any(|event| is_shown_by(event, call_id))
        {
            unseen.push(call_id);
        }
    }
    unseen
}

/// Checks that each tool follows its state machine and has ended with the run, and that a call
/// starts only while clients do not hold it.
fn check_tools(events: &[RunEvent]) -> Result<(), String> {
    let mut tools: HashMap<&Id, ToolStatus> = HashMap::new();
    let mut view = View::default();
    for event in events {
        if let RunEvent::Activity { activity: Activity::Tool { call_id, status, .. }, .. } = event
            && let Some(before) = tools.insert(call_id, *status)
            && !before.may_become(*status)
        {
            return Err(format!("the tool of {call_id} went from {before:?} to {status:?}"));
        }
        if let RunEvent::CallStarted { call_id, .. } = event
            && view.call(call_id).is_some()
        {
            return Err(format!("{call_id} started twice"));
        }
        view.apply(event);
    }
    match tools.iter().find(|(_, status)| **status == ToolStatus::Running) {
        Some((call_id, _)) => Err(format!("the tool of {call_id} runs after the end")),
        None => Ok(()),
    }
}

proptest! {
    #![proptest_config(generate::config(RUNS))]

    #[test]
    fn each_tool_follows_its_state_machine_to_an_end(
        parts in prop_oneof![generate::any_parts(), generate::told().prop_map(|told| told.parts)],
        state in prop::option::of((0..24_usize, generate::values())),
        end in any_end(),
        joined in any::<prop::sample::Index>(),
    ) {
        let bytes = generate::bytes(&parts, false);
        let state = state.map(|(at, state)| (at, json!({"values": state, "next": []}).to_string()));
        let state = state.as_ref().map(|(at, state)| (*at, state.as_str()));
        let (_, events) = run_events(&bytes, bytes.len().max(1), state, end);
        prop_assert_eq!(check_tools(&events), Ok(()));
        // All viewers end with the same activities.
        let at = joined.index(events.len());
        let (view, truth) = (fold(&events[..at]), fold(&events));
        if let Some(resync) = run::resync(&view, Viewer::New, run::EmitOptions::default()) {
            let late = fold(&[&resync[..], &events[at..]].concat());
            for event in &events {
                let RunEvent::Activity { id, .. } = event else { continue };
                prop_assert_eq!(late.activity(id), truth.activity(id));
            }
        }
    }

    #[test]
    fn any_parts_make_a_legal_stream(
        parts in generate::any_parts(),
        state in prop::option::of((0..24_usize, generate::state())),
        end in any_end(),
        roll in 0..20_u8,
    ) {
        let bytes = generate::bytes(&parts, false);
        let state = state.map(|(at, state)| (at, json!({"values": state, "next": []}).to_string()));
        let state = state.as_ref().map(|(at, state)| (*at, state.as_str()));
        let (_, events) = run_events(&bytes, bytes.len().max(1), state, end);
        let told = told(&events);
        prop_assert_eq!(is_legal(&told.events), Ok(()));
        if roll == 0 {
            let verdict = SCHEMA.with(|schema| judge::legal(schema, &told.events));
            prop_assert_eq!(verdict, Ok(()));
        }
    }

    #[test]
    fn the_same_parts_make_the_same_events_in_any_chunking(
        parts in generate::any_parts(),
        chunk in 1..40_usize,
    ) {
        let bytes = generate::bytes(&parts, false);
        let (_, whole) = run_events(&bytes, bytes.len().max(1), None, StreamEnd::Complete);
        let (_, again) = run_events(&bytes, chunk, None, StreamEnd::Complete);
        prop_assert_eq!(&whole, &again);
        // Pretty-printing changes nothing.
        let (_, pretty) = run_events(&generate::bytes(&parts, true), 64, None, StreamEnd::Complete);
        let is_json = |part: &ScriptPart| serde_json::from_str::<Value>(&part.data).is_ok();
        if parts.iter().all(is_json) {
            prop_assert_eq!(told(&whole).events, told(&pretty).events);
        }
    }

    #[test]
    fn a_run_is_told_once_and_leaves_what_langgraph_holds(script in generate::told()) {
        let bytes = generate::bytes(&script.parts, false);
        let (translator, events) = run_events(&bytes, 4096, None, StreamEnd::Succeeded);
        let told = told(&events);
        let streamed = judge::streamed_text(&told.events);
        for (id, text) in &script.texts {
            prop_assert_eq!(streamed.get(id).cloned().unwrap_or_default(), text.clone());
        }
        let view = translator.view();
        let state: Value = serde_json::from_str(view.state().unwrap().to_json().get()).unwrap();
        prop_assert_eq!(state, script.state);
        let said = view.messages().iter().filter(|message| is_said(message));
        let said: Vec<_> = said.map(|message| message.id.to_string()).collect();
        prop_assert_eq!(said, script.messages);
        prop_assert_eq!(shown(&told.events), script.attached.clone());
        let attached = view.messages().iter().filter(|m| m.role == run::Role::Attachment);
        let attached: Vec<_> = attached.map(|message| message.id.to_string()).collect();
        let ids: Vec<_> = script.attached.into_iter().map(|(id, _)| id).collect();
        prop_assert_eq!(attached, ids);
        let snapshots = told.events.iter().filter(|e| e["type"] == "MESSAGES_SNAPSHOT").count();
        prop_assert!(snapshots <= 1, "the stream alone brings a client to the end");
        prop_assert_eq!(told.events.last().unwrap()["type"].as_str(), Some("RUN_FINISHED"));
    }

    #[test]
    fn whatever_came_before_a_client_ends_with_the_last_state(
        parts in generate::any_parts(),
        last in generate::values(),
        behind in generate::any_parts(),
        end in known_end(),
    ) {
        let mut last = last;
        if last.get("messages").is_none() {
            last["messages"] = json!([]);
        }
        let truth = vec![ScriptPart { event: "values".to_owned(), data: last.to_string() }];
        // The parts that follow may be any, except another state of the run.
        let tells_state = |part: &ScriptPart| {
            part.event == "values" || part.data.contains("manually_emit_state")
        };
        let behind = behind.into_iter().filter(|part| !tells_state(part));
        // The tests of `below` judge runs that a subgraph asks in.
        let asks_below = |part: &ScriptPart| {
            let is_below = part.event.contains('|') || part.data.contains("\"namespace\":[\"");
            is_below && part.data.contains("interrupt")
        };
        let all = parts.into_iter().chain(truth.clone()).chain(behind);
        let all: Vec<_> = all.filter(|part| !asks_below(part)).collect();
        let view = |parts: &[ScriptPart]| {
            let (translator, _) = run_events(&generate::bytes(parts, false), 4096, None, end.clone());
            (translator.view().clone(), translator.shown(None, &Outcome::Cancelled))
        };
        let ((held, digest), (truth, digest_of_truth)) = (view(&all), view(&truth));
        prop_assert_eq!(digest, digest_of_truth, "the same is shown, and the digests differ");
        let left = run::snapshots(ViewerMessages::Known(held.messages()), truth.messages());
        prop_assert!(left.is_empty(), "held {:#?}, but the truth is {:#?}", held.messages(), truth.messages());
        let state = |view: &View| -> Value {
            serde_json::from_str(view.state().unwrap().to_json().get()).unwrap()
        };
        prop_assert_eq!(state(&held), state(&truth));
    }

    #[test]
    fn states_pass_exactly_and_deltas_lead_from_one_to_the_next(
        states in prop::collection::vec(generate::state(), 1..6),
    ) {
        let part = |state: &Value| ScriptPart { event: "values".to_owned(), data: state.to_string() };
        let parts: Vec<_> = states.iter().map(part).collect();
        let bytes = generate::bytes(&parts, false);
        let (translator, events) = run_events(&bytes, 4096, None, StreamEnd::Succeeded);
        let mut held = Value::Null;
        for event in told(&events).events {
            match event["type"].as_str().unwrap() {
                "STATE_SNAPSHOT" => held = event["snapshot"].clone(),
                "STATE_DELTA" => {
                    let patch: json_patch::Patch = serde_json::from_value(event["delta"].clone()).unwrap();
                    json_patch::patch(&mut held, &patch).unwrap();
                }
                _ => {}
            }
        }
        let last = states.last().unwrap();
        prop_assert_eq!(&held, last);
        let viewed = translator.view().state().unwrap().to_json();
        prop_assert_eq!(&serde_json::from_str::<Value>(viewed.get()).unwrap(), last);
    }

    #[test]
    fn a_reader_that_missed_some_is_brought_to_where_the_run_is(
        parts in generate::any_parts(),
        missed in any::<(prop::sample::Index, prop::sample::Index)>(),
        end in any_end(),
    ) {
        let bytes = generate::bytes(&parts, false);
        let (_, events) = run_events(&bytes, bytes.len().max(1), None, end);
        let Some(seen) = generate::with_a_gap(&events, missed) else { return Ok(()) };
        prop_assert_eq!(is_legal(&told(&seen).events), Ok(()));
        let (held, truth) = (fold(&seen), fold(&events));
        let left = run::snapshots(ViewerMessages::Known(held.messages()), truth.messages());
        prop_assert!(left.is_empty(), "held {:#?}, but the truth is {:#?}", held.messages(), truth.messages());
        let state = |view: &View| view.state().map(|state| state.to_json().get().to_owned());
        prop_assert!(same_state(state(&held), state(&truth)));
    }

    #[test]
    fn who_comes_late_holds_in_the_end_what_all_others_do(
        parts in generate::any_parts(),
        at in any::<(prop::sample::Index, prop::sample::Index)>(),
        end in any_end(),
    ) {
        let bytes = generate::bytes(&parts, false);
        let (_, events) = run_events(&bytes, bytes.len().max(1), None, end);
        let (a, b) = (at.0.index(events.len()), at.1.index(events.len()));
        let (earlier, now) = (a.min(b), a.max(b));
        let (view, truth) = (fold(&events[..now]), fold(&events));
        // One client has received nothing, the other an earlier state of the thread.
        let before = fold(&events[..earlier]);
        let before = View::with(before.messages().to_vec(), before.state().cloned());
        for (holds, mut held) in
            [(Viewer::New, View::default()), (Viewer::Holds(&before), before.clone())]
        {
            let Some(resync) = run::resync(&view, holds, run::EmitOptions::default()) else { continue };
            let mut seen = vec![events[0].clone()];
            seen.extend(resync);
            seen.extend(events[now.max(1)..].iter().cloned());
            prop_assert_eq!(is_legal(&told(&seen).events), Ok(()));
            prop_assert_eq!(unseen_errors(&seen), Vec::<&Id>::new());
            for event in &seen {
                held.apply(event);
            }
            if truth.is_based() {
                let left = run::snapshots(ViewerMessages::Known(held.messages()), truth.messages());
                prop_assert!(left.is_empty(), "held {:#?}, but the truth is {:#?}", held.messages(), truth.messages());
            }
            if truth.state().is_some() {
                let state = |view: &View| view.state().map(|state| state.to_json().get().to_owned());
                prop_assert!(same_state(state(&held), state(&truth)));
            }
        }
    }

    #[test]
    fn who_joins_in_the_middle_ends_with_the_last_state_and_is_told_each_text_once(
        script in generate::told(),
        at in any::<(prop::sample::Index, prop::sample::Index)>(),
        has_values in any::<bool>(),
    ) {
        // The state is read after the join, and before any part that comes after it.
        let (joined, read) = (at.0.index(script.parts.len()), at.1.index(script.parts.len()));
        let (joined, read) = (joined.min(read), joined.max(read));
        let state = |parts: &[ScriptPart]| {
            let values = parts.iter().rev().find(|part| part.event == "values");
            let values = values.map_or("{}", |values| &values.data);
            format!(r#"{{"values":{values},"next":[],"tasks":[]}}"#)
        };
        let base = state(&script.parts[..=read]);
        let heard = script.parts[joined..].iter();
        let heard: Vec<_> =
            heard.filter(|part| has_values || part.event != "values").cloned().collect();

        let mut translator = Translator::named("T", Some("R"), "r1").joined(has_values);
        let mut events = Vec::new();
        let based = ThreadState::parse(&base).unwrap();
        translator.on_base(based.values.as_ref().unwrap(), &mut events);
        let (bytes, mut scratch, mut decoder) =
            (generate::bytes(&heard, false), String::new(), Decoder::new());
        decoder.push(&bytes);
        while let Some(frame) = decoder.next_frame().unwrap() {
            translator.on_part(&Part::parse(&frame, &mut scratch), &mut events);
        }
        let last = state(&script.parts);
        translator.on_state(&ThreadState::parse(&last).unwrap(), &mut events);
        translator.on_end(StreamEnd::Succeeded, &mut events);

        let told = told(&events);
        prop_assert_eq!(is_legal(&told.events), Ok(()));
        let streamed = judge::streamed_text(&told.events);
        for (id, text) in &script.texts {
            let streamed = streamed.get(id).map_or("", |text| text);
            prop_assert!(streamed.is_empty() || streamed == text, "{id}: {streamed:?} of {text:?}");
        }
        let view = fold(&events);
        let held = view.messages().iter().filter(|message| is_said(message));
        let held: Vec<_> = held.map(|message| (message.id.to_string(), message)).collect();
        let ids: Vec<_> = held.iter().map(|(id, _)| id.clone()).collect();
        prop_assert_eq!(ids, script.messages);
        for (id, text) in &script.texts {
            let message = held.iter().find(|(held, _)| held == id).unwrap().1;
            let content = message.content.text();
            prop_assert_eq!(&*content.decode(), text);
        }
        let state: Value = serde_json::from_str(view.state().unwrap().to_json().get()).unwrap();
        prop_assert_eq!(state, script.state);
    }

    #[test]
    fn a_client_that_sends_no_activities_ends_with_those_of_the_thread(
        script in generate::told(),
        at in any::<prop::sample::Index>(),
        kept in any::<u32>(),
    ) {
        let is_state = |at: &usize| script.parts[*at].event == "values";
        let states: Vec<_> = (0..script.parts.len()).filter(is_state).collect();
        let from = states[at.index(states.len())];
        let view_of = |parts: &[ScriptPart]| {
            run_events(&generate::bytes(parts, false), 4096, None, StreamEnd::Succeeded)
        };
        let newcomer = |events: &[RunEvent]| held(Held::default(), &told(events).events);
        // The client received an earlier state of the thread, and has kept some of the attachments.
        let shown = newcomer(&view_of(&script.parts[from..=from]).1);
        let is_activity = |message: &Value| message["role"] == "activity";
        // The first attachments of each message: they are sent in order.
        let kept = |message: &&Value| {
            let id = message["id"].as_str().unwrap();
            let Some((owner, number)) = id.rsplit_once(":attachment:") else { return true };
            let owner: u32 = owner.rsplit_once('-').unwrap().1.parse().unwrap();
            number.parse::<u32>().unwrap() < kept >> (2 * owner) & 3
        };
        let messages: Vec<_> = shown.iter().filter(kept).cloned().collect();
        let sent: Vec<_> = messages.iter().filter(|message| !is_activity(message)).collect();
        let input = json!({"threadId": "T", "runId": "r", "protocolVersion": "1.0", "messages": sent});
        let input = Input::parse(input.to_string().as_bytes()).unwrap();

        let (_, events) = view_of(&script.parts[from..]);
        let told = capture::project(&events, Projector::new(input.client(), input.held()));
        prop_assert_eq!(is_legal(&told.events), Ok(()));
        let state = json!({});
        prop_assert_eq!(held(Held { messages, state }, &told.events), newcomer(&events));
    }

    #[test]
    fn garbage_never_panics_and_its_stream_is_legal(
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
        prop_assert_eq!(is_legal(&told(&events).events), Ok(()));
    }
}

const CAPTURES: [&str; 4] = [
    "py-0.16.7/agent-updates",
    "py-0.16.7/hitl-values",
    "js-1.5.1/agent-messages",
    "py-0.16.7/subagent-messages-tuple-subgraphs",
];

thread_local! {
    static SCHEMA: Schema = Schema::load();
}

#[test]
fn opaque_json_passes_byte_for_byte() {
    let raw = [
        r#"{"n":1.10,"big":12345678901234567890123,"e":1E+2,"z":-0.0,"u":"\u00e9\ud83d","k":{"b":1,"a":2}}"#,
        r#"[1.0,[],{},"\/",null]"#,
        r#""text""#,
        "1e400",
    ];
    for value in raw {
        let custom = ScriptPart { event: "custom".to_owned(), data: value.to_owned() };
        let values = ScriptPart { event: "values".to_owned(), data: format!("{{\"k\":{value}}}") };
        let bytes = generate::bytes(&[values, custom], false);
        let (_, events) = run_events(&bytes, 7, None, StreamEnd::Succeeded);
        let told = String::from_utf8(told_bytes(&events)).unwrap();
        assert!(told.contains(&format!("\"value\":{value}}}")), "{value} in {told}");
        assert!(told.contains(&format!("\"snapshot\":{{\"k\":{value}}}}}")), "{value} in {told}");
    }
}

/// Only the bytes, because the judges' parser would refuse half a surrogate pair.
fn told_bytes(events: &[RunEvent]) -> Vec<u8> {
    let mut projector = Projector::new(capture::newcomer(), Vec::new());
    let mut bytes = Vec::new();
    for event in events {
        projector.project(event, &mut |event| event.write(&mut bytes));
    }
    bytes
}

#[test]
fn half_a_surrogate_pair_passes_as_it_is() {
    let chunk = |text: &str| ScriptPart {
        event: "messages".to_owned(),
        data: format!(
            r#"[{{"type":"AIMessageChunk","id":"m","content":"{text}","tool_call_chunks":[]}},{{}}]"#
        ),
    };
    let bytes = generate::bytes(&[chunk("\\ud83d"), chunk("\\ude00")], false);
    let (translator, events) = run_events(&bytes, 64, None, StreamEnd::Succeeded);
    let told = String::from_utf8(told_bytes(&events)).unwrap();
    assert!(told.contains(r#""delta":"\ud83d""#), "{told}");
    assert_eq!(translator.view().message("m").unwrap().content.text().decode(), "😀");
}

#[test]
fn a_client_that_holds_the_base_is_not_told_it_again() {
    let run = |held: Value| {
        let input =
            json!({"threadId": "T", "runId": "r", "protocolVersion": "1.0", "messages": held});
        let input = Input::parse(input.to_string().as_bytes()).unwrap();
        let values = json!({"messages": [{"type": "human", "id": "h", "content": "hi"}]});
        let parts = [ScriptPart { event: "values".to_owned(), data: values.to_string() }];
        let (_, events) =
            run_events(&generate::bytes(&parts, false), 64, None, StreamEnd::Succeeded);
        let told = capture::project(&events, Projector::new(input.client(), input.held()));
        told.events.iter().filter(|event| event["type"] == "MESSAGES_SNAPSHOT").count()
    };
    assert_eq!(run(json!([{"id": "h", "role": "user", "content": "hi"}])), 0);
    assert_eq!(run(json!([{"id": "h", "role": "user", "content": "hi there"}])), 1);
    assert_eq!(run(json!([])), 1);
}
