//! `agent` thinks, calls two tools at once, and answers with their results.

use serde_json::{Value, json};

use super::speech::Speech;
use super::{
    Act, Channel, Due, End, Line, LineContent, MESSAGES, NodeContext, Reducer, arg, object,
    open_calls,
};
use crate::state::{Values, messages, text};

pub(super) const PLAN: &str = "PlanMiddleware.before_agent";
const MODEL: &str = "model";
const TOOLS: &str = "tools";
const DONE: &str = "PlanMiddleware.after_agent";

pub(super) const CHANNELS: &[Channel] = &[
    MESSAGES,
    Channel { name: "todos", reducer: Reducer::Last },
    Channel { name: "weather", reducer: Reducer::Last },
    Channel { name: "sources", reducer: Reducer::Append },
];

/// How many beats a tool takes: long enough to be seen running.
const TOOL_BEATS: u32 = 12;

pub(super) fn follow(node: &str, values: &Values) -> Option<Vec<Due>> {
    match node {
        "__start__" => Some(vec![Due::pull(PLAN)]),
        PLAN | TOOLS => Some(vec![Due::pull(MODEL)]),
        MODEL => Some(match open_calls(values) {
            None => vec![Due::pull(DONE)],
            Some(calls) if calls.is_empty() => vec![Due::pull(MODEL)],
            Some(calls) => Due::tools(calls),
        }),
        DONE => Some(vec![]),
        _ => None,
    }
}

pub(super) fn act(due: &Due, node: &NodeContext<'_>) -> Act {
    match due.node {
        PLAN => Act::silent(Some(todos("in_progress", "pending"))),
        DONE => Act::silent(Some(todos("completed", "completed"))),
        TOOLS if due.call()["name"] == "search" => search(due.call(), node),
        TOOLS => get_weather(due.call(), node),
        _ if messages(node.values).last().is_some_and(|last| last["type"] == "tool") => {
            answer(node)
        }
        _ => look_up(node),
    }
}

fn todos(look_up: &str, answer: &str) -> Values {
    object(json!({"todos": [
        {"content": "Look things up", "status": look_up},
        {"content": "Answer", "status": answer},
    ]}))
}

fn look_up(node: &NodeContext<'_>) -> Act {
    let words = node.words();
    let calls = [
        ("get_weather", json!({"city": "Lisbon", "unit": "celsius"})),
        ("search", json!({"query": words, "limit": 2})),
    ];
    Speech::new(node, 1)
        .think("I am a script, so I cannot know. The weather and a search may help, and neither has to wait for the other.")
        .say("Let me look up two things at once.")
        .call(node, &calls)
        .end()
}

fn get_weather(call: &Value, node: &NodeContext<'_>) -> Act {
    let city = arg(call, "city").unwrap_or("Lisbon");
    // Each turn finds other weather, so that the state changes.
    let celsius = 20 + node.turn() % 5;
    let content = format!("Sunny in {city}, {celsius} degrees.");
    let asked = Line {
        after: 2,
        content: LineContent::Custom(
            json!({"tool": "get_weather", "status": "asking", "city": city}),
        ),
    };
    let message = node.tool_message(call, &content, "success");
    let update = json!({
        "messages": [message],
        "weather": {city: {"sky": "sunny", "celsius": celsius}},
    });
    let result = Line { after: TOOL_BEATS, content: LineContent::Message(message) };
    Act { lines: vec![asked, result], pause: 0, end: End::Update(Some(object(update))) }
}

fn search(call: &Value, node: &NodeContext<'_>) -> Act {
    let progress = |after, done: f64| Line {
        after,
        content: LineContent::Custom(
            json!({"tool": "search", "status": "searching", "done": done}),
        ),
    };
    let query = arg(call, "query").unwrap_or_default();
    let content = format!("2 results for \"{query}\": threadway, and LangGraph.");
    let message = node.tool_message(call, &content, "success");
    let update = json!({
        "messages": [message],
        "sources": [
            {"title": "threadway", "turn": node.turn()},
            {"title": "LangGraph", "turn": node.turn()},
        ],
    });
    let lines = vec![
        progress(3, 0.25),
        progress(TOOL_BEATS, 0.75),
        Line { after: TOOL_BEATS, content: LineContent::Message(message) },
    ];
    Act { lines, pause: 0, end: End::Update(Some(object(update))) }
}

fn answer(node: &NodeContext<'_>) -> Act {
    let tools = messages(node.values).iter().rev().take_while(|message| message["type"] == "tool");
    let mut found: Vec<_> = tools.map(text).collect();
    found.reverse();
    let answer = format!(
        "You said: \"{}\". Here is what I found. {} That is all a scripted agent knows.",
        node.words(),
        found.join(" ")
    );
    Speech::new(node, 1).say(&answer).end()
}
