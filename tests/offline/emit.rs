//! The options of `[emit]`: the effect of each, and the properties of any combination.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::support::capture::{self, Translated};
use crate::support::generate::{self, any_end, fold, run_events_of};
use crate::support::verify::Verifier;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};
use threadway::runs::{RunDecoder, translate};
use threadway_translate::agui::Projector;
use threadway_translate::langgraph::ThreadState;
use threadway_translate::run::{
    self, EmitOptions, Harness, LastRun, LossReason, MessageSnapshots, Open, Outcome, Role,
    RunEvent, StateEvents, StreamEnd, Subagents, View, Viewer, ViewerMessages,
};

/// The number of runs per property, unless `PROPTEST_CASES` overrides it.
const RUNS: u32 = 1_500;

/// Each value of an option other than the default, with its key and value in the configuration.
fn options() -> Vec<(&'static str, EmitOptions)> {
    let default = EmitOptions::default();
    vec![
        ("state = \"delta\"", default),
        ("state = \"initial\"", EmitOptions { state: StateEvents::Initial, ..default }),
        ("state = \"final\"", EmitOptions { state: StateEvents::Final, ..default }),
        ("state = \"all\"", EmitOptions { state: StateEvents::All, ..default }),
        ("state = \"none\"", EmitOptions { state: StateEvents::None, ..default }),
        ("messages = \"always\"", EmitOptions { messages: MessageSnapshots::Always, ..default }),
        ("messages = \"none\"", EmitOptions { messages: MessageSnapshots::None, ..default }),
        ("tool_results = false", EmitOptions { tool_results: false, ..default }),
        ("max_tool_result_bytes = 20", EmitOptions { max_tool_result_bytes: 20, ..default }),
        ("max_event_bytes = 100", EmitOptions { max_event_bytes: 100, ..default }),
        ("reasoning = \"hide\"", EmitOptions { reasoning: false, ..default }),
        ("steps = false", EmitOptions { steps: false, ..default }),
        ("activities = false", EmitOptions { activities: false, ..default }),
        ("subagents = \"inline\"", EmitOptions { subagents: Subagents::Inline, ..default }),
        ("subagents = \"hidden\"", EmitOptions { subagents: Subagents::Hidden, ..default }),
        ("harness = \"show\"", EmitOptions { harness: Harness::Show, ..default }),
        ("harness = \"hide\"", EmitOptions { harness: Harness::Hide, ..default }),
    ]
}

/// The events of a capture with these options.
fn shown(bytes: &[u8], input: &Value, emit: EmitOptions) -> Translated {
    let mut events = Vec::new();
    let mut decoder = RunDecoder::new("T", Some("R"), None).with_rendering(emit.rendering());
    let mut bytes = bytes;
    let read = translate(&mut bytes, &mut decoder, &mut |more| {
        events.extend_from_slice(more);
        Ok(())
    });
    read.unwrap().unwrap_or_default();
    let events = filtered(run::Filter::new(emit), events, decoder.conversation().as_deref());
    let input = threadway_translate::agui::Input::parse(input.to_string().as_bytes()).unwrap();
    let mut translated = capture::project(&events, Projector::new(input.client(), input.held()));
    translated.view = fold(&events);
    translated
}

/// What viewers see of events that are the last of their run.
fn filtered(
    filter: Option<run::Filter>,
    events: Vec<RunEvent>,
    conversation: Option<&[Arc<run::Message>]>,
) -> Vec<RunEvent> {
    let Some(mut filter) = filter else { return events };
    let mut shown = Vec::new();
    for event in events {
        filter.show(event, &|| conversation.map(<[_]>::to_vec), &mut shown);
    }
    shown
}

/// Captures with reasoning, tools, custom events, changes of the state, and subagents.
const SHOWN: [&str; 4] = [
    "py-0.16.7/agent-combo",
    "py-0.16.7/slow-combo",
    "py-0.16.7/subagent-combo-subgraphs",
    "py-0.16.7/subgraphs-combo-subgraphs",
];

#[test]
fn each_option_shows_the_bytes_that_are_kept() {
    let mut wrong = Vec::new();
    for name in SHOWN {
        let capture = capture::Capture::named(name);
        for (option, emit) in options() {
            let told = shown(&capture.bytes, &capture.input(), emit);
            let file = option.replace(" = ", "-").replace('"', "");
            let path = capture::root().join("golden/emit").join(format!("{name}/{file}.sse"));
            if std::env::var_os("UPDATE_GOLDEN").is_some() {
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(&path, &told.bytes).unwrap();
            } else if std::fs::read(&path).unwrap_or_default() != told.bytes {
                wrong.push(format!("{name} {option}"));
            }
        }
    }
    assert!(wrong.is_empty(), "these options show other bytes than before: {wrong:#?}");
}

/// The bytes that each option saves or adds, over all captures; the docs have these figures.
#[test]
fn the_page_says_what_each_option_costs() {
    let captures = capture::all();
    let bytes = |emit| -> u32 {
        let bytes = captures.iter().map(|c| shown(&c.bytes, &c.input(), emit).bytes.len());
        u32::try_from(bytes.sum::<usize>()).unwrap()
    };
    let all = bytes(EmitOptions::default());
    let mut table = String::new();
    for (option, emit) in options() {
        let bytes = bytes(emit);
        let percent = f64::from(bytes) / f64::from(all) * 100.0;
        writeln!(table, "| `{option}` | {bytes} | {percent:.1} % |").unwrap();
    }
    let path = capture::root().join("../docs/emit.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once("|---|--:|--:|\n").unwrap();
    let after = rest.find("\n\n").map_or("", |at| &rest[at + 1..]);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, format!("{before}|---|--:|--:|\n{table}{after}")).unwrap();
    } else {
        assert!(rest.starts_with(&table), "docs/emit.md is to say:\n{table}");
    }
}

fn any_emit() -> impl Strategy<Value = EmitOptions> {
    let state = prop_oneof![
        Just(StateEvents::Delta),
        Just(StateEvents::Initial),
        Just(StateEvents::Final),
        Just(StateEvents::All),
        Just(StateEvents::None),
    ];
    let messages = prop_oneof![
        2 => Just(MessageSnapshots::WhenNeeded),
        1 => Just(MessageSnapshots::Always),
        1 => Just(MessageSnapshots::None),
    ];
    let subagents =
        prop_oneof![Just(Subagents::Attributed), Just(Subagents::Inline), Just(Subagents::Hidden),];
    let harness = prop_oneof![Just(Harness::Notice), Just(Harness::Show), Just(Harness::Hide)];
    let limit = || prop_oneof![Just(0_usize), 1..40_usize];
    (state, messages, subagents, harness, any::<[bool; 4]>(), limit(), limit()).prop_map(
        |(
            state,
            messages,
            subagents,
            harness,
            [tool_results, reasoning, steps, activities],
            result,
            event,
        )| EmitOptions {
            state,
            messages,
            tool_results,
            max_tool_result_bytes: result,
            max_event_bytes: event,
            reasoning,
            steps,
            activities,
            subagents,
            raw: false,
            harness,
        },
    )
}

/// A run, and the events of it that are shown.
struct Run {
    truth: View,
    conversation: Option<Vec<Arc<run::Message>>>,
    all: Vec<RunEvent>,
    shown: Vec<RunEvent>,
}

fn run(bytes: &[u8], state: Option<(usize, &str)>, end: StreamEnd, emit: EmitOptions) -> Run {
    let translator = run::Translator::new("T", "R").showing(emit.harness);
    let (translator, all) = run_events_of(translator, bytes, bytes.len().max(1), state, end);
    let conversation = translator.conversation();
    let shown = filtered(run::Filter::new(emit), all.clone(), conversation.as_deref());
    Run { truth: translator.view().clone(), conversation, all, shown }
}

fn is_legal(events: &[Value]) -> Result<(), String> {
    let mut verifier = Verifier::new();
    for event in events {
        verifier.check(event).map_err(|why| format!("{event}: {why}"))?;
    }
    verifier.finish()
}

fn wire(events: &[RunEvent]) -> Vec<Value> {
    capture::project(events, Projector::new(capture::newcomer(), Vec::new())).events
}

/// Checks that the events have nothing that these options exclude.
fn keeps_to(emit: EmitOptions, events: &[Value]) -> Result<(), String> {
    let mut states = 0;
    for event in events {
        let kind = event["type"].as_str().unwrap();
        let is_of_subagent = event.get("subagentRunId").is_some();
        let is_wrong = match kind {
            "STATE_DELTA" => emit.state != StateEvents::Delta,
            "STATE_SNAPSHOT" => {
                states += 1;
                emit.state == StateEvents::None
                    || (emit.state == StateEvents::Initial && states > 1)
                    || (emit.state == StateEvents::Final && states > 1)
            }
            "MESSAGES_SNAPSHOT" => {
                let messages = event["messages"].as_array().unwrap();
                emit.messages == MessageSnapshots::None
                    || messages.iter().any(|m| m["role"] == "reasoning" && !emit.reasoning)
            }
            "TOOL_CALL_RESULT" => !is_short(emit, &event["content"]),
            // An image that a model made is an activity too, but does not show progress.
            kind if kind.starts_with("ACTIVITY") => {
                let of = event["activityType"].as_str();
                matches!(of, Some("threadway.tool" | "threadway.plan")) && !emit.activities
                    || of == Some("threadway.notice") && emit.harness != Harness::Notice
            }
            "STEP_STARTED" | "STEP_FINISHED" => !emit.steps,
            "SUBAGENT_STARTED" | "SUBAGENT_FINISHED" => emit.subagents != Subagents::Attributed,
            "CUSTOM" => {
                emit.max_event_bytes > 0
                    && event["value"].to_string().len() > emit.max_event_bytes
                    && event["value"]["threadway:truncated"].is_null()
            }
            kind => kind.starts_with("REASONING") && !emit.reasoning,
        };
        if is_wrong || (is_of_subagent && emit.subagents != Subagents::Attributed) {
            return Err(event.to_string());
        }
    }
    Ok(())
}

/// Whether a tool's result, without the note about its size, is within the limit.
fn is_short(emit: EmitOptions, content: &Value) -> bool {
    let note = " bytes left out by the gateway";
    match content.as_str() {
        Some(text) if !emit.tool_results => text.is_empty(),
        Some(text) if emit.max_tool_result_bytes > 0 => {
            let shown = text.find(note).and_then(|at| text[..at].rfind('\n'));
            shown.unwrap_or(text.len()) <= emit.max_tool_result_bytes
        }
        Some(_) | None => true,
    }
}

/// Checks the client's final messages and state, as the options allow them.
fn ends_as_promised(emit: EmitOptions, run: &Run, view: &View) -> Result<(), String> {
    let state = |view: &View| -> Value {
        let state = view.state().map(run::State::to_json);
        state.map_or(Value::Null, |state| serde_json::from_str(state.get()).unwrap())
    };
    let (held, truth) = (state(view), state(&run.truth));
    match emit.state {
        StateEvents::None if !held.is_null() => return Err(format!("a state: {held}")),
        StateEvents::Delta | StateEvents::All | StateEvents::Final => {
            if !is_cut_of(emit.max_event_bytes, &held, &truth, true) {
                return Err(format!("the state {held} of {truth}"));
            }
        }
        StateEvents::None | StateEvents::Initial => {}
    }
    let is_lost = matches!(
        run.shown.last(),
        Some(RunEvent::Ended { outcome: Outcome::Failed(run::Failure::Gateway { loss, .. }), .. })
            if *loss != LossReason::Gone
    );
    let Some(conversation) = &run.conversation else { return Ok(()) };
    if is_lost || emit.messages == MessageSnapshots::None {
        return Ok(());
    }
    let is_told = |message: &&Arc<run::Message>| {
        let has_attachments = conversation.iter().any(|other| other.owner() == Some(&*message.id));
        let is_empty = message.role == Role::Assistant
            && message.content.is_empty()
            && message.calls.is_empty()
            && !has_attachments;
        // A subgraph that waits for an answer holds messages of its own.
        let is_hidden = message.agent.is_some() && emit.subagents == Subagents::Hidden;
        !is_hidden && (emit.reasoning || !(is_empty || message.role == Role::Reasoning))
    };
    let expected: Vec<_> = conversation.iter().filter(is_told).collect();
    // A client keeps the messages that no snapshot can delete.
    let has = |role| expected.iter().any(|message| message.role == role);
    let is_own = |role| matches!(role, Role::Reasoning | Role::Attachment) && !has(role);
    let held: Vec<_> = view.messages().iter().filter(|message| !is_own(message.role)).collect();
    let ids = |list: &[&Arc<run::Message>]| {
        list.iter().map(|message| message.id.to_string()).collect::<Vec<_>>()
    };
    if ids(&held) != ids(&expected) {
        return Err(format!("{:?} instead of {:?}", ids(&held), ids(&expected)));
    }
    for (held, expected) in held.iter().zip(&expected) {
        let (shown, whole) = (held.content.text(), expected.content.text());
        let (shown, whole) = (shown.decode(), whole.decode());
        let is_cut =
            held.role == Role::Tool && (!emit.tool_results || emit.max_tool_result_bytes > 0);
        let is_right = if is_cut {
            let shown = shown.find("\n[").map_or(&*shown, |at| &shown[..at]);
            whole.starts_with(shown)
        } else {
            shown == whole
        };
        if !is_right {
            return Err(format!("{shown:?} of {whole:?}"));
        }
    }
    Ok(())
}

/// Whether a value equals another one, in which some values were replaced because of their size.
fn is_cut_of(most: usize, held: &Value, truth: &Value, is_state: bool) -> bool {
    if held == truth {
        return true;
    }
    if most > 0 && !is_state && !held["threadway:truncated"].is_null() {
        return truth.to_string().len() > most;
    }
    match (held, truth) {
        (Value::Object(held), Value::Object(truth)) if most > 0 => {
            held.len() == truth.len()
                && held.iter().all(|(key, held)| {
                    truth.get(key).is_some_and(|truth| is_cut_of(most, held, truth, false))
                })
        }
        _ => false,
    }
}

proptest! {
    #![proptest_config(generate::config(RUNS))]

    #[test]
    fn any_options_make_a_legal_stream_that_keeps_to_them(
        parts in generate::any_parts(),
        state in prop::option::of((0..24_usize, generate::state())),
        end in any_end(),
        emit in any_emit(),
    ) {
        let bytes = generate::bytes(&parts, false);
        let state = state.map(|(at, state)| (at, json!({"values": state, "next": []}).to_string()));
        let state = state.as_ref().map(|(at, state)| (*at, state.as_str()));
        let run = run(&bytes, state, end, emit);
        let wire = wire(&run.shown);
        prop_assert_eq!(is_legal(&wire), Ok(()));
        prop_assert_eq!(keeps_to(emit, &wire), Ok(()));
        prop_assert_eq!(ends_as_promised(emit, &run, &fold(&run.shown)), Ok(()));
        let is_based = fold(&run.shown).is_based();
        if emit.messages == MessageSnapshots::Always && is_based {
            let last = wire.iter().rposition(|event| event["type"] == "MESSAGES_SNAPSHOT");
            let said = wire.iter().rposition(|event| event["type"] == "TEXT_MESSAGE_START");
            prop_assert!(last >= said, "the conversation was not sent at the end");
        }
    }

    #[test]
    fn who_missed_some_or_comes_late_ends_as_all_others_do(
        parts in generate::any_parts(),
        at in any::<(Index, Index)>(),
        end in any_end(),
        emit in any_emit(),
    ) {
        let bytes = generate::bytes(&parts, false);
        let run = run(&bytes, None, end, emit);
        let events = &run.shown;
        let fold = |events: &[RunEvent]| {
            // The filter does the same: without snapshots a message does not wait for one.
            let mut view = if emit.messages == MessageSnapshots::None {
                run::Filter::new(emit).map(|filter| View::clone(filter.view())).unwrap()
            } else {
                View::default()
            };
            for event in events {
                view.apply(event);
            }
            view
        };
        let (a, b) = (at.0.index(events.len()), at.1.index(events.len()));
        let (earlier, now) = (a.min(b), a.max(b).max(1));
        let (view, truth) = (fold(&events[..now]), fold(events));
        let before = fold(&events[..earlier]);
        let before = View::with(before.messages().to_vec(), before.state().cloned());
        let mut open = Open::default();
        events[..earlier].iter().for_each(|event| open.apply(event));
        for (holds, told, mut held) in [
            (Viewer::New, 0, View::default()),
            (Viewer::Holds(&before), 0, before.clone()),
            (Viewer::Lagging(&open), earlier, View::default()),
        ] {
            let Some(resync) = run::resync(&view, holds, emit) else { continue };
            let mut seen = events[..told.max(1)].to_vec();
            seen.extend(resync);
            seen.extend(events[now..].iter().cloned());
            let wire = wire(&seen);
            prop_assert_eq!(is_legal(&wire), Ok(()));
            if told == 0 {
                // Generated ids collide: a text may continue a message that was a tool's.
                let emit = EmitOptions { tool_results: true, max_tool_result_bytes: 0, ..emit };
                prop_assert_eq!(keeps_to(emit, &wire), Ok(()));
            }
            for event in &seen {
                held.apply(event);
            }
            if truth.is_based() && emit.messages != MessageSnapshots::None {
                let left = run::snapshots(ViewerMessages::Known(held.messages()), truth.messages());
                prop_assert!(left.is_empty(), "held {:#?}, but the truth is {:#?}", held.messages(), truth.messages());
            }
            let state = |view: &View| {
                view.state().map(|state| serde_json::from_str::<Value>(state.to_json().get()).unwrap())
            };
            if state(&truth).is_some() {
                prop_assert_eq!(state(&held), state(&truth));
            }
        }
    }

    #[test]
    fn an_audience_that_begins_in_the_middle_ends_as_the_options_say(
        parts in generate::any_parts(),
        at in any::<Index>(),
        end in any_end(),
        emit in any_emit(),
    ) {
        let bytes = generate::bytes(&parts, false);
        let run = run(&bytes, None, end, emit);
        let (earlier, later) = run.all.split_at(at.index(run.all.len()).max(1));
        let view = fold(earlier);
        if !view.is_based() && !view.messages().is_empty() {
            // Viewers wait until the conversation is known.
            return Ok(());
        }
        let Some(filter) = run::Filter::joining(emit, &view) else { return Ok(()) };
        let resync = run::resync(filter.view(), Viewer::New, emit).unwrap();
        let mut seen = vec![run.all[0].clone()];
        seen.extend(resync);
        seen.extend(filtered(Some(filter), later.to_vec(), run.conversation.as_deref()));
        let wire = wire(&seen);
        prop_assert_eq!(is_legal(&wire), Ok(()));
        // Generated ids collide: a text may continue a message that was a tool's.
        let promised = EmitOptions { tool_results: true, max_tool_result_bytes: 0, ..emit };
        prop_assert_eq!(keeps_to(promised, &wire), Ok(()));
        if view.is_based() {
            prop_assert_eq!(ends_as_promised(emit, &run, &fold(&seen)), Ok(()));
        }
    }

    #[test]
    fn a_run_at_rest_is_shown_as_the_options_say(
        state in generate::state(),
        emit in any_emit(),
    ) {
        let body = json!({"values": state, "next": [], "tasks": []}).to_string();
        let mut translator = run::Translator::named("T", None, "rest");
        let mut events = Vec::new();
        translator.on_state(&ThreadState::parse(&body).unwrap(), &mut events);
        translator.on_end(StreamEnd::Idle { last: LastRun::Ended }, &mut events);
        let conversation = translator.conversation();
        let all = events.clone();
        let events = filtered(run::Filter::new(emit), events, conversation.as_deref());
        let wire = wire(&events);
        prop_assert_eq!(is_legal(&wire), Ok(()));
        prop_assert_eq!(keeps_to(emit, &wire), Ok(()));
        let run = Run { truth: translator.view().clone(), conversation, all, shown: events };
        let view = fold(&run.shown);
        prop_assert_eq!(ends_as_promised(emit, &run, &view), Ok(()));
        prop_assert_eq!(
            view.state().is_some(),
            run.truth.state().is_some() && emit.state != StateEvents::None
        );
    }
}
