//! Generated upstreams: arbitrary parts in arbitrary order, and runs as a server would stream them.

use std::collections::HashMap;
use std::fmt::Debug;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};
use proptest::test_runner::Config;
use serde_json::{Map, Value, json};
use threadway_translate::langgraph::{Part, ThreadState};
use threadway_translate::run::{
    self, LossReason, Open, RunError, RunEvent, StreamEnd, Translator, View, Viewer,
};
use threadway_translate::sse::Decoder;

/// One part of a stream, before it is serialised.
#[derive(Clone, Debug)]
pub(crate) struct ScriptPart {
    pub(crate) event: String,
    pub(crate) data: String,
}

/// A run as a server would stream it in all modes, and its final content.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) parts: Vec<ScriptPart>,
    /// The whole text of each message of an agent.
    pub(crate) texts: Vec<(String, String)>,
    /// The final state without its messages.
    pub(crate) state: Value,
    /// The ids of the final messages.
    pub(crate) messages: Vec<String>,
    /// The attachments of the messages, in order: the id, and the type on AG-UI's wire.
    pub(crate) attached: Vec<(String, &'static str)>,
}

impl ScriptPart {
    pub(crate) fn new(event: &str, data: &Value) -> Self {
        Self { event: event.to_owned(), data: data.to_string() }
    }
}

const NODES: [&str; 3] = ["model", "tools", "child"];
/// The last is the id of another message's attachment.
const IDS: [&str; 5] = ["m0", "m1", "m2", "m3", "m4"];
const CALLS: [&str; 3] = ["c0", "c1", "c2"];
const NAMESPACES: [&str; 4] = ["", "", "child:t9", "child:t9|tools:t8"];

/// The bytes of parts; if `pretty`, with their JSON over many lines.
pub(crate) fn bytes(parts: &[ScriptPart], pretty: bool) -> Vec<u8> {
    let mut lines = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        lines.push(format!("event: {}", part.event));
        let parsed: Option<Value> = serde_json::from_str(&part.data).ok();
        let data = match parsed.filter(|_| pretty) {
            Some(value) => serde_json::to_string_pretty(&value).unwrap(),
            None => part.data.clone(),
        };
        lines.extend(data.lines().map(|line| format!("data: {line}")));
        lines.push(format!("id: {at}-0\n"));
    }
    lines.push(String::new());
    lines.join("\n").into_bytes()
}

// === runs ===

/// The number of runs per property, unless `PROPTEST_CASES` overrides it.
pub(crate) fn config(runs: u32) -> Config {
    // The default reads the environment, which takes precedence.
    let default = Config::default();
    let is_chosen = std::env::var_os("PROPTEST_CASES").is_some();
    let cases = if is_chosen { default.cases } else { runs };
    Config { cases, failure_persistence: None, ..default }
}

/// The view of a client that has applied these events.
pub(crate) fn fold(events: &[RunEvent]) -> View {
    let mut view = View::default();
    for event in events {
        view.apply(event);
    }
    view
}

/// The events for a reader that missed those between two positions; `None` if that reader cannot
/// catch up.
pub(crate) fn with_a_gap(events: &[RunEvent], missed: (Index, Index)) -> Option<Vec<RunEvent>> {
    // The last event is the end, which no reader misses.
    let (a, b) = (missed.0.index(events.len()), missed.1.index(events.len()));
    let (from, to) = (a.min(b), a.max(b));
    let mut open = Open::default();
    for event in &events[..from] {
        open.apply(event);
    }
    let view = fold(&events[..to]);
    let Some(resync) = run::resync(&view, Viewer::Lagging(&open), run::EmitOptions::default())
    else {
        assert!(!view.messages().is_empty());
        assert!(!events[..to].iter().any(|event| matches!(event, RunEvent::Messages(_))));
        return None;
    };
    // A reader that has read nothing receives the start, as all others do.
    let read = if from == 0 { &events[..1] } else { &events[..from] };
    Some(read.iter().chain(&resync).chain(&events[to.max(1)..]).cloned().collect())
}

/// How a stream may end if the run's record could be read.
pub(crate) fn known_end() -> impl Strategy<Value = StreamEnd> {
    prop_oneof![
        Just(StreamEnd::Succeeded),
        Just(StreamEnd::Cancelled),
        Just(StreamEnd::Gone),
        Just(StreamEnd::Failed(RunError::new("E", "m"))),
    ]
}

pub(crate) fn any_end() -> impl Strategy<Value = StreamEnd> {
    prop_oneof![
        known_end(),
        Just(StreamEnd::Complete),
        Just(StreamEnd::Lost { loss: LossReason::Unreadable, message: "gone".to_owned() }),
    ]
}

/// The run events of parts that arrive in chunks of one size, with a state read after one of the
/// parts.
pub(crate) fn run_events(
    bytes: &[u8],
    chunk: usize,
    state: Option<(usize, &str)>,
    end: StreamEnd,
) -> (Translator, Vec<RunEvent>) {
    run_events_of(Translator::new("T", "R"), bytes, chunk, state, end)
}

/// The same by a translator that may have options.
pub(crate) fn run_events_of(
    mut translator: Translator,
    bytes: &[u8],
    chunk: usize,
    state: Option<(usize, &str)>,
    end: StreamEnd,
) -> (Translator, Vec<RunEvent>) {
    let (mut out, mut parts) = (Vec::new(), 0);
    let mut decoder = Decoder::new();
    let mut scratch = String::new();
    translator.start(&mut out);
    for bytes in bytes.chunks(chunk) {
        decoder.push(bytes);
        while let Some(frame) = decoder.next_frame().unwrap() {
            translator.on_part(&Part::parse(&frame, &mut scratch), &mut out);
            parts += 1;
            if let Some(state) = state.filter(|(at, _)| *at == parts) {
                translator.on_state(&ThreadState::parse(state.1).unwrap(), &mut out);
            }
        }
    }
    translator.on_end(end.clone(), &mut out);
    translator.on_end(end, &mut out);
    (translator, out)
}

// === parts in any order and of any sense ===

pub(crate) fn any_parts() -> impl Strategy<Value = Vec<ScriptPart>> {
    vec(any_part(), 0..24)
}

fn any_part() -> impl Strategy<Value = ScriptPart> {
    let body = prop_oneof![
        1 => Just(("metadata", json!({"run_id": "R", "attempt": 1}).to_string())),
        4 => values().prop_map(|v| ("values", v.to_string())),
        4 => updates().prop_map(|v| ("updates", v.to_string())),
        10 => (chunk(), origin()).prop_map(|(m, o)| ("messages", json!([m, o]).to_string())),
        4 => (whole(), origin()).prop_map(|(m, o)| ("messages", json!([m, o]).to_string())),
        3 => whole().prop_map(|m| ("messages/partial", json!([m]).to_string())),
        2 => whole().prop_map(|m| ("messages/complete", json!([m]).to_string())),
        1 => (select(&IDS[..]), origin())
            .prop_map(|(id, o)| ("messages/metadata", json!({id: {"metadata": o}}).to_string())),
        4 => model_event().prop_map(|e| ("events", e.to_string())),
        1 => any_json(2).prop_map(|v| ("custom", v.to_string())),
        3 => task().prop_map(|t| ("tasks", t.to_string())),
        3 => protocol().prop_map(|(name, e)| (name, e.to_string())),
        1 => Just(("error", json!({"error": "ValueError", "message": "boom"}).to_string())),
        1 => Just(("checkpoints", "{}".to_owned())),
        1 => ("[a-z]{0,6}", "[ -~]{0,12}").prop_map(|(_, data)| ("nonsense", data)),
        1 => (select(&["values", "updates", "messages", "events", "tasks"][..]), "[ -~]{0,16}")
            .prop_map(|(name, data)| (name, data)),
    ];
    (body, select(&NAMESPACES[..])).prop_map(|((name, data), namespace)| {
        let event =
            if namespace.is_empty() { name.to_owned() } else { format!("{name}|{namespace}") };
        ScriptPart { event, data }
    })
}

fn origin() -> impl Strategy<Value = Value> {
    let path = select(
        &[
            "",
            "model:t1",
            "model:t2",
            "tools:t3",
            "child:t9|model:t4",
            "child:t9|tools:t8|model:t5",
        ][..],
    );
    (select(&NODES[..]), path, 0_u8..20).prop_map(|(node, path, roll)| {
        let mut origin = json!({"langgraph_node": node, "langgraph_checkpoint_ns": path});
        match roll {
            0 => origin["tags"] = json!(["nostream"]),
            1 => origin["emit-messages"] = json!(false),
            2 => origin["emit-tool-calls"] = json!(false),
            3 => origin["lc_agent_name"] = json!("helper"),
            4 => origin["predict_state"] = json!([{"tool": "t"}]),
            5 => origin["lc_source"] = json!("summarization"),
            6 => origin["lc_internal_call"] = json!("00ff"),
            7 => origin["copilotkit:emit-tool-calls"] = json!(["t"]),
            _ => {}
        }
        origin
    })
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![4 => "[a-c ]{0,3}", 1 => "[é😀\"\\\\\n\u{2028}]{1,2}"]
}

fn content() -> impl Strategy<Value = Value> {
    let block = prop_oneof![
        text().prop_map(|t| json!({"type": "text", "text": t, "index": 1})),
        (text(), 0..3).prop_map(|(t, i)| json!({"type": "reasoning", "reasoning": t, "index": i})),
        text().prop_map(|t| json!({"type": "thinking", "thinking": t})),
        (text(), text())
            .prop_map(|(t, s)| json!({"type": "thinking", "thinking": t, "signature": s})),
        Just(json!({"type": "redacted_thinking", "data": "ENC"})),
        text().prop_map(|t| json!({"type": "thinking", "thinking": [{"type": "text", "text": t}]})),
        (text(), 0..2).prop_map(|(t, i)| json!({"type": "reasoning", "id": "rs_1", "index": 0,
            "summary": [{"type": "summary_text", "text": t, "index": i}]})),
        attachment().prop_map(|(_, block)| block),
        any_json(1),
    ];
    prop_oneof![3 => text().prop_map(Value::from), 2 => vec(block, 0..3).prop_map(Value::from)]
}

/// Reasoning that is sent with the content, in the forms of the providers.
fn kwargs() -> impl Strategy<Value = Value> {
    let key = select(&["text", "summary", "signature", "data"][..]);
    let detail = (key, text(), prop::option::of(0..2))
        .prop_map(|(key, t, i)| json!({"type": "reasoning.text", key: t, "index": i}));
    prop_oneof![
        text().prop_map(|t| json!({"reasoning_content": t})),
        text().prop_map(|t| json!({"reasoning": t})),
        (text(), text()).prop_map(|(a, b)| json!({"reasoning": a, "reasoning_content": b})),
        (text(), vec(detail, 0..3))
            .prop_map(|(t, details)| json!({"reasoning_content": t, "reasoning_details": details})),
        any_json(1).prop_map(|any| json!({"reasoning_details": any})),
        text().prop_map(|t| json!({"reasoning": {"id": "rs_1",
            "summary": [{"type": "summary_text", "text": t, "index": 0}]}})),
    ]
}

/// A content block other than text, and its type on AG-UI's wire.
fn attachment() -> impl Strategy<Value = (&'static str, Value)> {
    let data = || select(&["AA==", "AQID", "/+8="][..]);
    prop_oneof![
        Just(("threadway.image", json!({"type": "image", "url": "https://x/y.png"}))),
        data().prop_map(|data| (
            "threadway.image",
            json!({"type": "image_generation_call", "id": "ig_1", "result": data})
        )),
        data().prop_map(|data| (
            "threadway.audio",
            json!({"type": "input_audio", "input_audio": {"data": data, "format": "wav"}})
        )),
        data().prop_map(|data| (
            "threadway.file",
            json!({"type": "file", "base64": data, "mime_type": "text/csv", "filename": "a.csv"})
        )),
        any_json(1).prop_map(|input| (
            "threadway.block",
            json!({"type": "server_tool_use", "id": "st_1", "name": "search", "input": input})
        )),
        select(&["https://x/1", "https://x/2"][..]).prop_map(|url| (
            "threadway.annotations",
            json!({"type": "text", "text": "", "annotations": [{"type": "citation", "url": url}]})
        )),
        Just((
            "threadway.annotations",
            json!({"type": "text", "text": "",
            "citations": [{"type": "char_location", "cited_text": "é", "document_title": "D"}]})
        )),
    ]
}

fn chunk() -> impl Strategy<Value = Value> {
    let call = (
        prop::option::of(0..2),
        prop::option::of(select(&CALLS[..])),
        prop::option::of(select(&["t", "u"][..])),
        prop::option::of("[{}\":a1]{0,4}"),
    );
    let call = call.prop_map(|(index, id, name, args)| {
        json!({"type": "tool_call_chunk", "index": index, "id": id, "name": name, "args": args})
    });
    let id = prop::option::weighted(0.95, select(&IDS[..]));
    (id, content(), vec(call, 0..2), 0_u8..14, kwargs()).prop_map(
        |(id, content, calls, roll, kwargs)| {
            let mut chunk = json!({"type": "AIMessageChunk", "id": id, "content": content,
                "tool_call_chunks": calls});
            match roll {
                0 => chunk["chunk_position"] = json!("last"),
                1 => chunk["response_metadata"] = json!({"finish_reason": "stop"}),
                2 => chunk["usage_metadata"] = json!({"input_tokens": 1, "output_tokens": 2}),
                3..=5 => chunk["additional_kwargs"] = kwargs,
                _ => {}
            }
            chunk
        },
    )
}

fn whole() -> impl Strategy<Value = Value> {
    let kind = select(&["ai", "ai", "ai", "human", "tool", "tool", "system", "remove", "chat"][..]);
    let call = (select(&CALLS[..]), select(&["t", "u"][..]), any_json(1))
        .prop_map(|(id, name, args)| json!({"id": id, "name": name, "args": {"a": args}}));
    let id = prop::option::weighted(0.9, select(&IDS[..]));
    (kind, id, content(), vec(call, 0..2), select(&CALLS[..]), any::<bool>()).prop_map(
        |(kind, id, content, calls, answers, failed)| {
            let mut message = json!({"type": kind, "id": id, "content": content});
            match kind {
                "ai" => message["tool_calls"] = json!(calls),
                "tool" => {
                    message["tool_call_id"] = json!(answers);
                    message["status"] = json!(if failed { "error" } else { "success" });
                }
                "human" if failed => {
                    message["additional_kwargs"] = json!({"lc_source": "summarization"});
                }
                _ => {}
            }
            message
        },
    )
}

fn interrupts() -> impl Strategy<Value = Value> {
    let interrupt = (select(&["i0", "i1"][..]), any_json(1))
        .prop_map(|(id, value)| json!({"id": id, "value": value}));
    let approval = Just(json!({"id": "i2", "value": {
        "action_requests": [{"name": "t", "args": {"a": 1}}, {"name": "u", "args": {}}],
        "review_configs": [{"action_name": "t", "allowed_decisions": ["approve"]}]}}));
    vec(prop_oneof![interrupt, approval], 0..3).prop_map(Value::from)
}

/// A state in the form of the `values` mode.
pub(crate) fn values() -> impl Strategy<Value = Value> {
    (state(), vec(whole(), 0..4), prop::option::weighted(0.2, interrupts()), 0_u8..10).prop_map(
        |(mut state, messages, interrupts, roll)| {
            if let Some(interrupts) = interrupts {
                state["__interrupt__"] = interrupts;
            }
            if roll > 1 {
                state["messages"] = json!(messages);
            }
            state
        },
    )
}

/// A small state with few keys, so that states both differ and agree.
pub(crate) fn state() -> impl Strategy<Value = Value> {
    let key = select(&["a", "b", "list", "x/y", "m~n", "", "__proto__"][..]);
    vec((key, any_json(2)), 0..4).prop_map(|members| {
        Value::Object(members.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())
    })
}

/// JSON of limited depth.
pub(crate) fn any_json(depth: u32) -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        select(&[0.5_f64, 1e300, -2.25][..]).prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(depth, 12, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            vec(("[ab]", inner), 0..3)
                .prop_map(|members| { Value::Object(members.into_iter().collect::<Map<_, _>>()) }),
        ]
    })
}

fn updates() -> impl Strategy<Value = Value> {
    let delta = prop_oneof![
        vec(whole(), 0..3).prop_map(|messages| json!({"messages": messages})),
        whole().prop_map(|message| json!([{"messages": message}])),
        Just(Value::Null),
        any_json(1),
    ];
    (select(&NODES[..]), delta, prop::option::weighted(0.15, interrupts())).prop_map(
        |(node, delta, interrupts)| match interrupts {
            Some(interrupts) => json!({"__interrupt__": interrupts}),
            None => json!({node: delta}),
        },
    )
}

fn model_event() -> impl Strategy<Value = Value> {
    let event = prop_oneof![
        4 => chunk().prop_map(|c| ("on_chat_model_stream", "Fake", json!({"chunk": c}))),
        2 => whole().prop_map(|m| ("on_chat_model_end", "Fake", json!({"output": m}))),
        1 => whole().prop_map(|m| ("on_tool_end", "t", json!({"output": m}))),
        1 => whole().prop_map(|m| ("on_tool_end", "t", json!({"output": {"update": {"messages": [m]}}}))),
        1 => Just(("on_chain_start", "model", json!({}))),
        1 => whole().prop_map(|m| ("on_chain_end", "model", json!({"output": {"messages": [m]}}))),
        1 => select(&IDS[..]).prop_map(|id| ("on_custom_event", "manually_emit_message",
            json!({"message_id": id, "message": "said", "role": "assistant"}))),
        1 => select(&CALLS[..]).prop_map(|id| ("on_custom_event", "copilotkit_manually_emit_tool_call",
            json!({"id": id, "name": "t", "args": {"a": 1}}))),
        1 => state().prop_map(|s| ("on_custom_event", "manually_emit_state", s)),
    ];
    (event, origin()).prop_map(|((event, name, data), origin)| {
        json!({"event": event, "name": name, "data": data, "metadata": origin})
    })
}

fn task() -> impl Strategy<Value = Value> {
    (select(&NODES[..]), select(&["t1", "t2", "t9"][..]), any::<bool>(), interrupts()).prop_map(
        |(name, id, starts, interrupts)| {
            if starts {
                json!({"id": id, "name": name, "input": [{"id": "c0"}], "triggers": []})
            } else {
                json!({"id": id, "name": name, "result": {}, "interrupts": interrupts})
            }
        },
    )
}

fn protocol() -> impl Strategy<Value = (&'static str, Value)> {
    let event = prop_oneof![
        (select(&IDS[..]), select(&["ai", "ai", "tool"][..])).prop_map(|(id, role)| (
            "messages",
            json!({"event": "message-start", "role": role, "id": id})
        )),
        (text(), 0..2).prop_map(|(t, i)| (
            "messages",
            json!({"event": "content-block-delta",
            "index": i, "delta": {"type": "text-delta", "text": t}})
        )),
        (text(), 0..2).prop_map(|(t, i)| (
            "messages",
            json!({"event": "content-block-delta",
            "index": i, "delta": {"type": "reasoning-delta", "reasoning": t}})
        )),
        select(&CALLS[..]).prop_map(|id| (
            "messages",
            json!({"event": "content-block-start",
            "index": 2, "content": {"type": "tool_call_chunk", "id": id, "name": "t", "args": "{"}})
        )),
        Just(("messages", json!({"event": "message-finish", "usage": {"input_tokens": 3}}))),
        select(&["i0", "i1"][..])
            .prop_map(|id| ("input.requested", json!({"interrupt_id": id, "payload": "?"}))),
        any::<bool>().prop_map(|starts| (
            "lifecycle",
            json!({"event": if starts { "started" } else { "completed" }, "graph_name": "helper"})
        )),
    ];
    let namespace = select(vec![vec![], vec!["child:t9"]]);
    (event, namespace, any::<bool>()).prop_map(|((method, data), namespace, is_bare)| {
        // The JavaScript server sends the contents alone.
        if is_bare {
            return (method, data);
        }
        // The server writes `type` first, as `json!` does not reorder keys.
        let envelope = json!({"type": "event", "method": method,
            "params": {"namespace": namespace, "timestamp": 1, "data": data}});
        (method, envelope)
    })
}

// === runs as a server would stream them ===

/// The output of an agent in one turn.
#[derive(Clone, Debug)]
struct Turn {
    tokens: Vec<String>,
    thought: Vec<String>,
    calls: Vec<Vec<String>>,
    attached: Vec<(&'static str, Value)>,
    state: (usize, i32),
}

/// A run, streamed in a random choice of the modes; `values` is always among them.
pub(crate) fn told() -> impl Strategy<Value = Told> {
    let tokens = || vec("[a-d ]{1,3}|[é😀\"\\\\]", 0..4);
    (vec(turn(tokens), 1..4), modes()).prop_map(|(turns, modes)| tell(&turns, &modes))
}

fn turn<S: Strategy<Value = Vec<String>>>(tokens: impl Fn() -> S) -> impl Strategy<Value = Turn> {
    let args = vec("[a-z0-9]{1,4}", 1..3);
    let attached = prop_oneof![2 => Just(Vec::new()), 1 => vec(attachment(), 1..4)];
    (tokens(), tokens(), vec(args, 0..3), attached, (0..3_usize, any::<i32>())).prop_map(
        |(tokens, thought, calls, attached, state)| Turn {
            tokens,
            thought,
            calls,
            attached,
            state,
        },
    )
}

fn modes() -> impl Strategy<Value = Vec<&'static str>> {
    subsequence(vec!["updates", "messages", "partial", "events", "tasks", "custom"], 0..=6)
}

fn tell(turns: &[Turn], modes: &[&str]) -> Told {
    let mut teller = Teller::new(modes, String::new(), Progress::default());
    teller.attempt(turns);
    let texts = teller.texts.into_iter().filter(|text| text.kind == TextKind::Said);
    let texts = texts.map(|text| (text.id, text.text)).collect();
    let Progress { state, messages, .. } = teller.progress;
    let ids = messages.iter().map(|m| m["id"].as_str().unwrap().to_owned()).collect();
    let said = turns.iter().enumerate().map(|(at, turn)| (format!("ai-{at}"), turn));
    let attached = said.flat_map(|(id, turn)| attached_to(&id, turn)).collect();
    Told { parts: teller.parts, texts, state, messages: ids, attached }
}

/// The attachments of a turn's message, one item each. All annotations are one item, which is last.
fn attached_to(id: &str, turn: &Turn) -> Vec<(String, &'static str)> {
    let is_list = |kind: &&'static str| *kind == "threadway.annotations";
    let kinds = turn.attached.iter().map(|(kind, _)| *kind);
    let list = kinds.clone().find(|kind| is_list(kind));
    let kinds = kinds.filter(|kind| !is_list(kind)).chain(list).enumerate();
    kinds.map(|(at, kind)| (format!("{id}:attachment:{at}"), kind)).collect()
}

// === runs that a server restarts ===

/// The part of a run that a server has committed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Progress {
    /// The state without its messages.
    pub(crate) state: Value,
    pub(crate) messages: Vec<Value>,
    /// The next turn, or the one whose tools run next.
    turn: usize,
    awaits_tools: bool,
}

/// One part, and what the server commits with it.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) part: ScriptPart,
    pub(crate) commits: Option<Progress>,
}

/// A text that is streamed whole.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StreamedText {
    pub(crate) kind: TextKind,
    /// The id of the message or of the call.
    pub(crate) id: String,
    pub(crate) text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextKind {
    Said,
    Thought,
    Args,
}

/// A run that is restarted several times.
#[derive(Clone, Debug)]
pub(crate) struct Tale {
    /// The steps of each attempt. All but the last attempt break off; the last may break off too.
    pub(crate) attempts: Vec<Attempt>,
    /// All texts that any attempt streams.
    pub(crate) texts: Vec<StreamedText>,
    /// The content that is committed at the end.
    pub(crate) truth: Progress,
}

#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    /// The content that was committed before the attempt; `None` if the thread was empty.
    pub(crate) begins_with: Option<Progress>,
    pub(crate) steps: Vec<Step>,
}

/// Where an attempt breaks off, and how much of what was committed is lost.
#[derive(Clone, Debug)]
pub(crate) struct BreakOff {
    at: Index,
    lost_commits: usize,
    /// The next attempt sends only its `metadata` part, and the run is over.
    loses_the_rest: bool,
}

/// Runs that are restarted several times, and how they end: interrupted or not.
pub(crate) fn tale<E: Clone + Debug>(
    restarts: usize,
    end: impl Strategy<Value = E>,
    breaks_off: fn(&E) -> bool,
) -> impl Strategy<Value = (Tale, E)> {
    // Few different tokens, so that equal ones follow each other.
    let tokens = || vec(select(&["a", "a", "b", "ab ", "é😀\""][..]).prop_map(str::to_owned), 0..6);
    let lost = prop_oneof![4 => Just(0_usize), 1 => 1..3_usize, 1 => Just(usize::MAX)];
    let rest = prop::bool::weighted(0.15);
    let restart = (any::<Index>(), lost, rest).prop_map(|(at, lost_commits, loses_the_rest)| {
        BreakOff { at, lost_commits, loses_the_rest }
    });
    let ends = (end, any::<Index>());
    let keeps_ids = prop::bool::weighted(0.1);
    (vec(turn(tokens), 1..4), modes(), vec(restart, 0..=restarts), ends, keeps_ids).prop_map(
        move |(turns, modes, restarts, (end, at), keeps_ids)| {
            let broken = breaks_off(&end).then_some(at);
            (tell_again(&turns, &modes, &restarts, broken, keeps_ids), end)
        },
    )
}

fn tell_again(
    turns: &[Turn],
    modes: &[&str],
    restarts: &[BreakOff],
    last: Option<Index>,
    keeps_ids: bool,
) -> Tale {
    let mut tale = Tale { attempts: Vec::new(), texts: Vec::new(), truth: Progress::default() };
    let mut commits = vec![Progress::default()];
    let mut rest_is_lost = false;
    for attempt in 0..=restarts.len() {
        let start = commits.last().unwrap().clone();
        let begins_with = (commits.len() > 1).then(|| start.clone());
        let tag = if attempt == 0 || keeps_ids { String::new() } else { format!("r{attempt}") };
        let mut teller = Teller::new(modes, tag, start);
        if attempt > 0 {
            teller.opening = format!("again {attempt}: ");
        }
        if rest_is_lost {
            teller.always("metadata", &json!({"run_id": "R", "attempt": 1}));
            tale.attempts.push(Attempt { begins_with, steps: teller.steps() });
            break;
        }
        teller.attempt(turns);
        tale.texts.extend(teller.texts.iter().cloned());
        let mut steps = teller.steps();
        let restart = restarts.get(attempt);
        // The first steps of a run are always streamed.
        let count = steps.len();
        let keep = |at: &Index| 2 + at.index(count - 1);
        match (restart, &last) {
            (Some(restart), _) => steps.truncate(keep(&restart.at)),
            (None, Some(at)) => steps.truncate(keep(at)),
            (None, None) => {}
        }
        commits.extend(steps.iter().filter_map(|step| step.commits.clone()));
        tale.attempts.push(Attempt { begins_with, steps });
        if let Some(restart) = restart {
            let kept = commits.len().saturating_sub(restart.lost_commits).max(1);
            commits.truncate(kept);
            rest_is_lost = restart.loses_the_rest && kept > 1;
        }
    }
    tale.truth = commits.pop().unwrap();
    tale
}

fn whole_of(id: &str, at: &str, turn: &Turn) -> Value {
    let mut blocks = Vec::new();
    if !turn.thought.is_empty() {
        blocks.push(json!({"type": "reasoning", "reasoning": turn.thought.concat(), "index": 0}));
    }
    if !turn.tokens.is_empty() {
        blocks.push(json!({"type": "text", "text": turn.tokens.concat(), "index": 1}));
    }
    blocks.extend(turn.attached.iter().map(|(_, block)| block.clone()));
    let calls = turn.calls.iter().enumerate().map(|(call, args)| {
        json!({"id": format!("call-{at}-{call}"), "name": "t", "args": {"v": args.concat()}})
    });
    json!({"type": "ai", "id": id, "content": blocks, "tool_calls": calls.collect::<Vec<_>>()})
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            state: json!({"k0": 0, "k1": [1], "pad": "................................."}),
            messages: vec![json!({"type": "human", "id": "human-1", "content": "hi"})],
            turn: 0,
            awaits_tools: false,
        }
    }
}

struct Teller<'a> {
    modes: &'a [&'a str],
    /// The suffix of this attempt's ids.
    tag: String,
    /// The first words of each message of this attempt.
    opening: String,
    progress: Progress,
    parts: Vec<ScriptPart>,
    /// By part.
    commits: HashMap<usize, Progress>,
    texts: Vec<StreamedText>,
}

impl<'a> Teller<'a> {
    fn new(modes: &'a [&'a str], tag: String, progress: Progress) -> Self {
        let (opening, parts) = (String::new(), Vec::new());
        Self { modes, tag, opening, progress, parts, commits: HashMap::new(), texts: Vec::new() }
    }

    fn steps(self) -> Vec<Step> {
        let Self { parts, mut commits, .. } = self;
        let step = |(at, part)| Step { part, commits: commits.remove(&at) };
        parts.into_iter().enumerate().map(step).collect()
    }

    /// Streams the remaining turns of a run.
    fn attempt(&mut self, turns: &[Turn]) {
        self.always("metadata", &json!({"run_id": "R", "attempt": 1}));
        self.commit();
        while let Some(turn) = turns.get(self.progress.turn) {
            if self.progress.awaits_tools {
                self.use_tools();
            } else {
                let mut turn = turn.clone();
                if let Some(token) = turn.tokens.first_mut() {
                    token.insert_str(0, &self.opening);
                }
                self.answer(&turn);
            }
        }
    }

    /// Streams the agent's message.
    fn answer(&mut self, turn: &Turn) {
        let at = self.progress.turn;
        let tag = format!("{at}{}", self.tag);
        let (id, task) = (format!("ai-{tag}"), format!("task-{tag}"));
        self.when(
            "tasks",
            "tasks",
            &json!({"id": task, "name": "model", "input": {}, "triggers": []}),
        );
        self.speak(&id, &tag, turn);
        let ai = whole_of(&id, &tag, turn);
        for (kind, text) in [(TextKind::Said, &turn.tokens), (TextKind::Thought, &turn.thought)] {
            self.texts.push(StreamedText { kind, id: id.clone(), text: text.concat() });
        }
        self.when("updates", "updates", &json!({"model": {"messages": [ai]}}));
        self.when(
            "tasks",
            "tasks",
            &json!({"id": task, "name": "model", "result": {}, "interrupts": []}),
        );
        self.progress.messages.push(ai);
        self.progress.state[format!("k{}", turn.state.0)] = json!(turn.state.1);
        self.progress.awaits_tools = !turn.calls.is_empty();
        self.progress.turn += usize::from(turn.calls.is_empty());
        self.commit();
        self.when("custom", "custom", &json!({"progress": at}));
    }

    /// Streams the answers to the last message's calls.
    fn use_tools(&mut self) {
        let calls = self.progress.messages.last().unwrap()["tool_calls"].clone();
        for call in calls.as_array().unwrap() {
            let call_id = call["id"].as_str().unwrap();
            let id = format!("{}{}", call_id.replace("call-", "tool-"), self.tag);
            let tool = json!({"type": "tool", "id": id, "content": "ok",
                "tool_call_id": call_id, "status": "success", "name": "t"});
            let origin = json!({"langgraph_node": "tools", "langgraph_checkpoint_ns": format!("tools:{id}")});
            self.when("messages", "messages", &json!([tool, origin]));
            self.when("updates", "updates", &json!({"tools": {"messages": [tool]}}));
            self.progress.messages.push(tool);
        }
        (self.progress.awaits_tools, self.progress.turn) = (false, self.progress.turn + 1);
        self.commit();
    }

    fn commit(&mut self) {
        self.commits.insert(self.parts.len(), self.progress.clone());
        let mut values = self.progress.state.clone();
        values["messages"] = json!(self.progress.messages);
        self.always("values", &values);
    }

    fn always(&mut self, event: &str, data: &Value) {
        self.parts.push(ScriptPart { event: event.to_owned(), data: data.to_string() });
    }

    fn when(&mut self, mode: &str, event: &str, data: &Value) {
        if self.modes.contains(&mode) {
            self.always(event, data);
        }
    }

    /// Streams tokens in every mode that carries them: the tuple, the prefix, the event, in this
    /// order.
    fn speak(&mut self, id: &str, tag: &str, turn: &Turn) {
        let path = format!("model:task-{tag}");
        let origin = json!({"langgraph_node": "model", "langgraph_checkpoint_ns": path});
        let mut blocks: Vec<Value> = Vec::new();
        let thought =
            turn.thought.iter().map(|t| json!({"type": "reasoning", "reasoning": t, "index": 0}));
        let text = turn.tokens.iter().map(|t| json!({"type": "text", "text": t, "index": 1}));
        for block in thought.chain(text) {
            let key = if block["type"] == "text" { "text" } else { "reasoning" };
            match blocks.iter_mut().find(|known| known["type"] == block["type"]) {
                Some(known) => {
                    let joined =
                        format!("{}{}", known[key].as_str().unwrap(), block[key].as_str().unwrap());
                    known[key] = json!(joined);
                }
                None => blocks.push(block.clone()),
            }
            let chunk = json!({"type": "AIMessageChunk", "id": id, "content": [block], "tool_call_chunks": []});
            self.token(&chunk, &json!({"type": "ai", "id": id, "content": blocks}), &origin);
        }
        // A chunk may end in the middle of a block; an unfinished block is not shown.
        for (_, block) in &turn.attached {
            let mut cut = block.clone();
            for name in ["base64", "result"] {
                if cut[name].is_string() {
                    cut[name] = json!("A");
                }
            }
            blocks.push(cut.clone());
            let chunk = json!({"type": "AIMessageChunk", "id": id, "content": [cut], "tool_call_chunks": []});
            self.token(&chunk, &json!({"type": "ai", "id": id, "content": blocks}), &origin);
        }
        for (index, args) in turn.calls.iter().enumerate() {
            let spelt = format!("{{\"v\": \"{}\"}}", args.concat());
            let (head, tail) = spelt.split_at(spelt.len() / 2);
            let call_id = format!("call-{tag}-{index}");
            let kind = TextKind::Args;
            self.texts.push(StreamedText { kind, id: call_id.clone(), text: spelt.clone() });
            let fragments =
                [(Some(call_id), Some("t"), ""), (None, None, head), (None, None, tail)];
            for (call_id, name, args) in fragments {
                let fragment = json!({"index": index, "id": call_id, "name": name, "args": args});
                let chunk = json!({"type": "AIMessageChunk", "id": id, "content": "",
                    "tool_call_chunks": [fragment]});
                self.token(&chunk, &json!({"type": "ai", "id": id, "content": blocks}), &origin);
            }
        }
        let last = json!({"type": "AIMessageChunk", "id": id, "content": "", "tool_call_chunks": [],
            "chunk_position": "last"});
        self.when("messages", "messages", &json!([last, origin]));
        self.when(
            "events",
            "events",
            &json!({"event": "on_chat_model_stream", "name": "Fake",
            "data": {"chunk": last}, "metadata": origin}),
        );
    }

    fn token(&mut self, chunk: &Value, prefix: &Value, origin: &Value) {
        self.when("messages", "messages", &json!([chunk, origin]));
        self.when("partial", "messages/partial", &json!([prefix]));
        self.when(
            "events",
            "events",
            &json!({"event": "on_chat_model_stream", "name": "Fake",
            "data": {"chunk": chunk}, "metadata": origin}),
        );
    }
}
