//! Edge cases of AG-UI: the form of every event, the inputs that clients may send, the upstream
//! requests, and the events of an older client.

use std::sync::Arc;

use crate::support::capture;
use crate::support::generate::{self, ScriptPart};
use crate::support::plan::plan;
use crate::support::schema::Schema;
use serde_json::{Value, json};
use threadway_translate::agui::{
    ActivityContent, Allowance, ClientMessages, Event, Input, InputError, OnMessage, Projector,
    RequestPlanner, ResumeError, SubagentOutcome, SystemMessages, TokenUsage, Version, WireContent,
    WireMessages, WireOutcome,
};
use threadway_translate::json::{self, Text};
use threadway_translate::langgraph::{
    Capabilities, InputKeys, Media, MediaKind, MediaSource, MessagesKey, Multitask, ThreadState,
};
use threadway_translate::run::{self, ContentPart, Id, Planner, Role, RunEvent, StreamEnd};

fn written(event: &Event<'_>) -> Value {
    let mut line = Vec::new();
    event.write(&mut line);
    assert!(!line.contains(&b'\n'));
    serde_json::from_slice(&line).unwrap()
}

#[test]
#[expect(clippy::too_many_lines, reason = "31 events")]
fn every_event_has_the_form_that_the_schema_demands() {
    let text = Text::new("text");
    let value = json::raw("{\"a\":1}".to_owned());
    let (id, name) = ("id", "name");
    let usage = || {
        vec![TokenUsage {
            provider: Some("p"),
            model: None,
            input_tokens: Some(1),
            output_tokens: None,
            total_tokens: None,
            reasoning_tokens: None,
            cached_input_tokens: None,
            cache_write_input_tokens: None,
        }]
    };
    let subagent_run_id = Some("s");
    let events = [
        Event::RunStarted {
            thread_id: id,
            run_id: id,
            protocol_version: "1.0",
            parent_run_id: Some(id),
            metadata: None,
        },
        Event::RunFinished {
            thread_id: id,
            run_id: id,
            result: Some(&value),
            outcome: Some(WireOutcome::Success { pending_tool_call_ids: vec![id] }),
            usage: usage(),
            metadata: None,
        },
        Event::RunFinished {
            thread_id: id,
            run_id: id,
            result: None,
            outcome: Some(WireOutcome::Cancelled),
            usage: Vec::new(),
            metadata: None,
        },
        Event::RunError { message: "m", code: Some("c"), usage: usage(), metadata: None },
        Event::StepStarted { step_name: name, subagent_run_id },
        Event::StepFinished { step_name: name, subagent_run_id },
        Event::TextMessageStart {
            message_id: id,
            role: "user",
            name: Some(&text),
            subagent_run_id,
        },
        Event::TextMessageContent { message_id: id, delta: &text },
        Event::TextMessageEnd { message_id: id },
        Event::TextMessageChunk {
            message_id: Some(id),
            role: Some("assistant"),
            delta: Some(&text),
        },
        Event::ToolCallStart {
            tool_call_id: id,
            tool_call_name: name,
            parent_message_id: Some(id),
            subagent_run_id,
        },
        Event::ToolCallArgs { tool_call_id: id, delta: &text },
        Event::ToolCallEnd { tool_call_id: id },
        Event::ToolCallChunk {
            tool_call_id: Some(id),
            tool_call_name: Some(name),
            parent_message_id: Some(id),
            delta: Some(&text),
        },
        Event::ToolCallResult {
            message_id: id,
            tool_call_id: id,
            content: WireContent::Text(text.clone()),
            role: "tool",
            subagent_run_id,
            metadata: None,
        },
        Event::StateSnapshot { snapshot: &value },
        Event::StateDelta { delta: &[] },
        Event::MessagesSnapshot { messages: WireMessages::none() },
        Event::ActivitySnapshot {
            message_id: id,
            activity_type: name,
            content: ActivityContent::Json(&value),
            replace: Some(false),
            subagent_run_id,
        },
        Event::ActivityDelta { message_id: id, activity_type: name, patch: &[] },
        Event::Raw { event: &value, source: Some("langgraph") },
        Event::Custom { name, value: &value, subagent_run_id },
        Event::ReasoningStart { message_id: id, subagent_run_id },
        Event::ReasoningMessageStart { message_id: id, role: "reasoning", subagent_run_id },
        Event::ReasoningMessageContent { message_id: id, delta: &text },
        Event::ReasoningMessageEnd { message_id: id },
        Event::ReasoningMessageChunk { message_id: Some(id), delta: Some(&text) },
        Event::ReasoningEnd { message_id: id },
        Event::ReasoningEncryptedValue {
            subtype: "message",
            entity_id: id,
            encrypted_value: &text,
        },
        Event::SubagentStarted {
            subagent_run_id: id,
            name,
            description: Some(&text),
            parent_subagent_run_id: Some(id),
            parent_tool_call_id: Some(id),
        },
        Event::SubagentFinished {
            subagent_run_id: id,
            outcome: Some(SubagentOutcome::Suspended { interrupt_ids: vec![id] }),
        },
        Event::SubagentError { subagent_run_id: id, message: "m", code: Some("c") },
    ];
    let schema = Schema::load();
    let mut names = std::collections::BTreeSet::new();
    for event in &events {
        let event = written(event);
        schema.check_event(&event).unwrap_or_else(|why| panic!("{event}: {why}"));
        names.insert(event["type"].as_str().unwrap().to_owned());
    }
    assert_eq!(names.len(), 31);
}

#[test]
fn an_input_is_read_tolerantly_and_refused_with_the_members_name() {
    let with = |changes: Value| {
        let mut body = json!({"threadId": "t", "runId": "r", "messages": []});
        let changes = changes.as_object().unwrap().clone();
        body.as_object_mut().unwrap().extend(changes);
        Input::parse(body.to_string().as_bytes())
    };
    let accepted = [
        json!({}),
        json!({"state": null, "tools": null, "context": null, "forwardedProps": null}),
        json!({"parentRunId": null, "resume": null, "unknown": {"x": 1}}),
        json!({"messages": [{"id": "a", "role": "activity", "content": {}}]}),
        json!({"messages": [{"id": "h", "role": "hologram"}]}),
        json!({"messages": [{"id": "u", "role": "user", "content":
            [{"type": "binary", "mimeType": "image/png", "data": "AA"}, {"type": "unknown"}]}]}),
        json!({"messages": [{"id": "r", "role": "reasoning", "content": "x", "encryptedValue": "e"}]}),
        json!({"messages": [{"id": "a", "role": "assistant", "content": null, "toolCalls":
            [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"x"}}]}]}),
        json!({"resume": [{"interruptId": "i", "status": "resolved", "payload": null}]}),
    ];
    for changes in accepted {
        with(changes.clone()).unwrap_or_else(|why| panic!("{changes}: {why}"));
    }
    let refused = [
        (json!({"threadId": 7}), "`threadId` is not a string"),
        (json!({"runId": null}), "`runId` is missing; a RunAgentInput has one"),
        (
            json!({"threadId": ""}),
            "`threadId` is not an id: it is blank; send the id of a thread or a run",
        ),
        (
            json!({"runId": " \n"}),
            "`runId` is not an id: it is blank; send the id of a thread or a run",
        ),
        (json!({"messages": {}}), "`messages` is not an array"),
        (json!({"messages": ["hi"]}), "`messages[0]` is not an object with id and role"),
        (
            json!({"messages": [{"role": "user"}]}),
            "`messages[0]` is not a message with a string `id` and a string `role`",
        ),
        (
            json!({"resume": [{"interruptId": "i", "status": "maybe"}]}),
            "`resume[0]` is not an entry with `status` \"resolved\" or \"cancelled\"",
        ),
        (json!({"tools": {}}), "`tools` is not an array"),
        (json!({"tools": [{"name": 1}]}), "`tools[0]` is not a tool with a string `name`"),
        (json!({"context": ["x"]}), "`context[0]` is not an object"),
    ];
    for (changes, expected) in refused {
        let why = with(changes.clone()).unwrap_err();
        assert_eq!(why.to_string(), expected, "{changes}");
    }
    assert!(matches!(Input::parse(b"{\"threadId\":"), Err(InputError::NotJson(_))));
    assert_eq!(Input::parse(b"[]").unwrap_err(), InputError::NotAnObject);
    assert_eq!(with(json!({"protocolVersion": "1.0"})).unwrap().version, Version::V1);
    assert_eq!(with(json!({})).unwrap().version, Version::Legacy);
    let parent = |id: &str| with(json!({"parentRunId": id})).unwrap().parent_run_id;
    assert_eq!((parent("p"), parent(""), parent(" ")), (Some("p".to_owned()), None, None));
}

/// The body of the upstream run for a request on a thread with this state.
fn goes_up(input: &Value, state: &Value) -> Result<(Value, Option<String>), ResumeError> {
    goes_up_to(&InputKeys::Undescribed, input, state)
}

/// What a request asks of its thread, at a gateway that asks again what is open.
fn asking<'a>(input: &'a Input, allowance: &'a Allowance) -> RequestPlanner<'a> {
    RequestPlanner {
        input,
        on_message: OnMessage::AskAgain,
        allowance,
        emit: run::EmitOptions::default(),
        messages_key: &MessagesKey::MESSAGES,
    }
}

/// The same for a graph with these input keys.
fn goes_up_to(
    keys: &InputKeys,
    input: &Value,
    state: &Value,
) -> Result<(Value, Option<String>), ResumeError> {
    let mut body = json!({"threadId": "t", "runId": "r", "messages": []});
    body.as_object_mut().unwrap().extend(input.as_object().unwrap().clone());
    let mut allowance = Allowance::default();
    allowance.allow("model").unwrap();
    goes_up_with(&allowance, keys, &body, state)
}

/// The same for a gateway with this allowance.
fn goes_up_with(
    allowance: &Allowance,
    keys: &InputKeys,
    body: &Value,
    state: &Value,
) -> Result<(Value, Option<String>), ResumeError> {
    let input = Input::parse(body.to_string().as_bytes()).unwrap();
    let state = state.to_string();
    let state = ThreadState::parse(&state);
    let Some(run) = plan(&asking(&input, allowance), state.as_ref(), keys)?.run else {
        return Ok((Value::Null, None));
    };
    let fork = run.fork_before.clone();
    let body = serde_json::to_string(&run.request("agent", Capabilities::default(), None)).unwrap();
    Ok((serde_json::from_str(&body).unwrap(), fork))
}

#[test]
fn only_keys_that_the_graph_takes_go_up() {
    let keys = |names: &[&str]| {
        let properties: Value = names
            .iter()
            .map(|name| (*name).to_owned())
            .map(|n| (n, json!({})))
            .collect::<serde_json::Map<_, _>>()
            .into();
        InputKeys::parse(&json!({"input_schema": {"properties": properties}}).to_string()).unwrap()
    };
    let tool = json!({"name": "paint", "description": "Paints.", "parameters": {"type": "object"}});
    let about = json!({"description": "time", "value": "noon"});
    let input = json!({
        "state": {"x": 1, "y": 2, "tools": ["an echo"], "copilotkit": {}},
        "tools": [tool, {"name": "bare"}],
        "context": [about],
    });
    let sent = |keys: &InputKeys, state: &Value| {
        goes_up_to(keys, &input, state).unwrap().0["input"].clone()
    };
    let function = json!({"type": "function", "name": "paint", "function": tool});
    let bare = json!({"type": "function", "name": "bare", "function": {"name": "bare"}});
    // To a graph without a description all state is forwarded, and the gateway adds nothing to it.
    assert_eq!(
        sent(&InputKeys::Undescribed, &json!({})),
        json!({"x": 1, "y": 2, "tools": ["an echo"], "copilotkit": {}, "messages": []})
    );
    // Nothing is assumed about a graph whose keys are unknown.
    assert_eq!(sent(&InputKeys::Unknown, &json!({})), json!({"messages": []}));
    assert_eq!(sent(&keys(&["messages", "x"]), &json!({})), json!({"x": 1, "messages": []}));
    let tools = json!([function, bare]);
    assert_eq!(
        sent(&keys(&["tools", "ag-ui", "copilotkit"]), &json!({})),
        json!({
            "tools": tools,
            "ag-ui": {"tools": tools, "context": [about]},
            "copilotkit": {"actions": tools, "context": [about]},
            "messages": [],
        })
    );
    // State that the thread has already is not sent again, and state that is gone is reset.
    let held = json!({"values": {"tools": tools}});
    assert_eq!(sent(&keys(&["tools"]), &held), json!({"messages": []}));
    let gone = goes_up_to(&keys(&["tools"]), &json!({}), &held).unwrap().0;
    assert_eq!(gone["input"], json!({"tools": [], "messages": []}));
}

#[test]
fn the_graphs_keys_are_asked_for_only_where_they_matter() {
    let needs = |more: Value, state: &str| {
        let mut body = json!({"threadId": "t", "runId": "r", "messages": []});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let input = Input::parse(body.to_string().as_bytes()).unwrap();
        asking(&input, &Allowance::default()).needs_keys(ThreadState::parse(state).as_ref())
    };
    let empty = json!({"state": {"messages": []}, "tools": [], "context": []});
    assert!(!needs(empty.clone(), "{}"));
    assert!(!needs(empty.clone(), r#"{"values":{"x":1}}"#));
    assert!(needs(empty, r#"{"values":{"copilotkit":{}}}"#));
    assert!(needs(json!({"state": {"x": 1}}), "{}"));
    assert!(needs(json!({"tools": [{"name": "t"}]}), "{}"));
    assert!(needs(json!({"context": [{}]}), "{}"));
}

#[test]
fn only_what_is_new_goes_up() {
    let state = json!({"values": {
        "messages": [
            {"type": "human", "id": "u1", "content": [{"type": "text", "text": "hi"}]},
            {"type": "ai", "id": "a1", "content": "yo"},
        ],
        "big": 12_345_678_901_234_567_890_u64, "list": [1], "kept": {"x": 1.0},
    }});
    let input = json!({
        "messages": [
            {"id": "u1", "role": "user", "content": "hi"},
            {"id": "a1", "role": "assistant", "content": "yo"},
            {"id": "local", "role": "assistant", "content": "made up by the client"},
            {"id": "u2", "role": "user", "content": "more", "name": "ann"},
        ],
        // A JavaScript client returns the state like this.
        "state": {"big": 12_345_678_901_234_567_000_u64, "list": [1, 2], "kept": {"x": 1}, "new": null},
    });
    let (body, fork) = goes_up(&input, &state).unwrap();
    assert_eq!(fork, None);
    assert_eq!(
        body["input"],
        json!({
            "list": [1, 2],
            "new": null,
            "messages": [{"type": "human", "id": "u2", "content": "more", "name": "ann"}],
        })
    );
    assert!(body.get("command").is_none());
}

#[test]
fn what_the_thread_has_forgotten_or_never_named_does_not_go_up_again() {
    let nameless = json!({"values": {"messages": [
        {"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"},
    ]}});
    let input = json!({"messages": [
        {"id": "T:m0", "role": "user", "content": "hi"},
        {"id": "T:m1", "role": "assistant", "content": "yo"},
        {"id": "u2", "role": "user", "content": "more"},
    ]});
    let (body, fork) = goes_up(&input, &nameless).unwrap();
    assert_eq!((body["input"]["messages"].as_array().unwrap().len(), fork), (1, None));

    let summarised = json!({"values": {"messages": [
        {"type": "system", "id": "sum", "content": "they said hi"},
        {"type": "ai", "id": "a1", "content": "yo"},
    ]}});
    let input = json!({"messages": [
        {"id": "u1", "role": "user", "content": "hi"},
        {"id": "a1", "role": "assistant", "content": "yo"},
        {"id": "u2", "role": "user", "content": "more"},
    ]});
    let (body, fork) = goes_up(&input, &summarised).unwrap();
    assert_eq!(body["input"]["messages"][0]["id"], "u2");
    assert_eq!((body["input"]["messages"].as_array().unwrap().len(), fork), (1, None));
}

#[test]
fn of_a_history_under_new_ids_the_newest_turn_is_new() {
    let state = json!({"values": {"messages": [
        {"type": "human", "id": "u1", "content": "hi"},
        {"type": "ai", "id": "a1", "content": "yo"},
    ]}});
    let sent = |messages: Value| {
        let (body, fork) = goes_up(&json!({"messages": messages}), &state).unwrap();
        assert_eq!(fork, None);
        let sent = body["input"]["messages"].as_array().unwrap().clone();
        sent.iter().map(|message| message["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let all_new = json!([
        {"id": "x1", "role": "user", "content": "hi"},
        {"id": "x2", "role": "assistant", "content": "yo"},
        {"id": "x3", "role": "user", "content": "more"},
    ]);
    assert_eq!(sent(all_new), ["x3"]);
    // New messages are found by their ids, after the last known one, not by their texts.
    let said_again = json!([
        {"id": "u1", "role": "user", "content": "hi"},
        {"id": "a1", "role": "assistant", "content": "yo"},
        {"id": "x1", "role": "user", "content": "hi"},
    ]);
    assert_eq!(sent(said_again), ["x1"]);
}

#[test]
fn a_message_that_comes_back_as_it_was_shown_is_no_edit() {
    let state = json!({"values": {"messages": [
        {"type": "human", "id": "u1", "content": [
            {"type": "text", "text": "see"}, {"type": "file", "file_id": "file-1"},
        ]},
        {"type": "human", "id": "u2", "content": [{"type": "image", "base64": "AAA"}]},
    ]}});
    let input = json!({"messages": [
        // A client that sends no `protocolVersion` never received the file.
        {"id": "u1", "role": "user", "content": "see"},
        {"id": "u2", "role": "user", "content": [
            {"type": "image", "source": {"type": "data", "value": "AAA", "mimeType": "image/png"}},
        ]},
        {"id": "u3", "role": "user", "content": "more"},
    ]});
    let (body, fork) = goes_up(&input, &state).unwrap();
    assert_eq!((body["input"]["messages"][0]["id"].as_str(), fork), (Some("u3"), None));
}

#[test]
fn a_call_id_that_was_made_unique_goes_up_as_it_was() {
    let input = json!({"messages": [
        {"id": "a2", "role": "assistant", "toolCalls":
            [{"id": "call_0~a2", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        {"id": "t2", "role": "tool", "toolCallId": "call_0~a2", "content": "done"},
        {"id": "t3", "role": "tool", "toolCallId": "natural~tilde", "content": "done"},
    ]});
    let call = |id: &str| json!({"id": id, "name": "f", "args": {}});
    let state = json!({"values": {"messages": [
        {"type": "ai", "id": "a2", "content": "",
         "tool_calls": [call("call_0"), call("natural~tilde")]},
    ]}});
    let (body, _) = goes_up(&input, &state).unwrap();
    let ids: Vec<_> = body["input"]["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["tool_call_id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["call_0", "natural~tilde"]);
}

#[test]
fn answers_go_up_in_the_form_that_the_interrupt_takes() {
    let approval = |actions: &[&str]| {
        json!({
            "action_requests": actions.iter().map(|name| json!({"name": name, "args": {}})).collect::<Vec<_>>(),
            "review_configs": [],
        })
    };
    let state = json!({"values": {}, "next": ["x"], "tasks": [{"interrupts": [
        {"id": "plain", "value": "sure?"},
        {"id": "two", "value": approval(&["send", "delete"])},
        {"id": "one", "value": approval(&["send"])},
        {"id": "js", "value": {"actionRequests": [{"name": "send", "args": {}}], "reviewConfigs": []}},
        {"id": "inbox", "value": [{"action_request": {"action": "send", "args": {}},
            "config": {"allow_accept": true, "allow_edit": true, "allow_respond": true, "allow_ignore": true}}]},
    ]}]});
    let resume = |entries: Value| goes_up(&json!({"resume": entries}), &state);
    let entry = |id: &str, payload: Value| json!({"interruptId": id, "status": "resolved", "payload": payload});
    let cases = [
        (json!([entry("plain", json!({"any": 1}))]), json!({"plain": {"any": 1}})),
        (json!([{"interruptId": "plain", "status": "cancelled"}]), json!({"plain": null})),
        (
            json!([
                entry("two:1", json!({"approved": false, "reason": "no"})),
                entry("two:0", json!({"approved": true}))
            ]),
            json!({"two": {"decisions": [{"type": "approve"}, {"type": "reject", "message": "no"}]}}),
        ),
        (
            json!([entry("one", json!({"approved": true, "editedArgs": {"to": "b"}}))]),
            json!({"one": {"decisions": [{"type": "edit", "edited_action": {"name": "send", "args": {"to": "b"}}}]}}),
        ),
        (
            json!([entry("js", json!({"approved": true, "editedArgs": {"to": "b"}}))]),
            json!({"js": {"decisions": [{"type": "edit", "editedAction": {"name": "send", "args": {"to": "b"}}}]}}),
        ),
        (
            json!([entry("two:0", json!({"type": "respond", "message": "later"})), {"interruptId": "two:1", "status": "cancelled"}]),
            json!({"two": {"decisions": [{"type": "respond", "message": "later"}, {"type": "reject"}]}}),
        ),
        (
            json!([entry("two", json!({"decisions": [{"type": "approve"}, {"type": "approve"}]}))]),
            json!({"two": {"decisions": [{"type": "approve"}, {"type": "approve"}]}}),
        ),
        (
            json!([entry("inbox", json!({"approved": true}))]),
            json!({"inbox": [{"type": "accept", "args": null}]}),
        ),
        (
            json!([entry("inbox", json!({"approved": true, "editedArgs": {"to": "b"}}))]),
            json!({"inbox": [{"type": "edit", "args": {"action": "send", "args": {"to": "b"}}}]}),
        ),
        (
            json!([entry("inbox", json!({"type": "response", "args": "later"}))]),
            json!({"inbox": [{"type": "response", "args": "later"}]}),
        ),
        (
            json!([entry("inbox", json!([{"type": "ignore", "args": null}]))]),
            json!({"inbox": [{"type": "ignore", "args": null}]}),
        ),
    ];
    for (entries, expected) in cases {
        let (body, _) = resume(entries.clone()).unwrap();
        assert_eq!(body["command"]["resume"], expected, "{entries}");
        assert!(body.get("input").is_none());
    }
    let half = json!({"decisions": [{"type": "approve"}]});
    let half = resume(json!([entry("two:1", half)])).unwrap_err();
    assert_eq!(half, ResumeError::HalfAnswered { id: "two".to_owned(), answered: 1, expected: 2 });
    let no_decision = || ResumeError::NoDecision { id: "one".to_owned() };
    for payload in ["null", "{}", "\"no\"", "0", "{\"approved\":\"false\"}", "{\"approved\":null}"]
    {
        let payload = serde_json::from_str(payload).unwrap();
        assert_eq!(resume(json!([entry("one", payload)])).unwrap_err(), no_decision());
    }
    let bare = json!([{"interruptId": "one", "status": "resolved"}]);
    assert_eq!(resume(bare).unwrap_err(), no_decision());
}

/// A thread on which a call waits for approval, next to a call that its client runs itself.
fn waiting_for_approval() -> Value {
    let request = json!({"action_requests": [{"name": "send", "args": {}}], "review_configs": []});
    json!({
        "values": {"kept": 1, "messages": [
            {"id": "u1", "type": "human", "content": "send it"},
            {"id": "a1", "type": "ai", "content": "", "tool_calls": [
                {"id": "call_s", "name": "send", "args": {}},
                {"id": "call_w", "name": "where", "args": {}}]},
        ]},
        "next": ["x"],
        "tasks": [{"interrupts": [{"id": "i", "value": request}]}],
    })
}

/// The input of a client that approves, with further messages and a state.
fn approving(more: &[Value], state: &Value) -> Value {
    let mut messages = vec![
        json!({"id": "u1", "role": "user", "content": "send it"}),
        json!({"id": "a1", "role": "assistant", "content": ""}),
    ];
    messages.extend_from_slice(more);
    json!({"messages": messages, "state": state, "resume":
        [{"interruptId": "i", "status": "resolved", "payload": {"approved": true}}]})
}

fn tool(id: &str, call: &str) -> Value {
    json!({"id": id, "role": "tool", "toolCallId": call, "content": "done"})
}

#[test]
fn what_comes_beside_an_answer_goes_up_before_what_it_answers_goes_on() {
    let thread = waiting_for_approval();
    let update = |more: &[Value], state: Value| {
        let (body, _) = goes_up(&approving(more, &state), &thread).unwrap();
        assert!(body["command"]["resume"]["i"].is_object() && body.get("input").is_none());
        assert_eq!(body["multitask_strategy"], "reject");
        body["command"].get("update").cloned()
    };
    // Nothing new: no message, and the state of the thread.
    assert_eq!(update(&[], json!({})), None);
    assert_eq!(update(&[], json!({"kept": 1, "messages": []})), None);
    // A changed state.
    assert_eq!(update(&[], json!({"kept": 2, "new": [1]})), Some(json!({"kept": 2, "new": [1]})));
    // CopilotKit stores a message about the client's answer, which would answer the call a second
    // time.
    assert_eq!(update(&[tool("t1", "call_s")], json!({})), None);
    // A result for which no call waits would do so too.
    assert_eq!(update(&[tool("t1", "call_gone")], json!({})), None);
    // The result of the client's own call is forwarded once.
    let both = [tool("t1", "call_s"), tool("t2", "call_w"), tool("t3", "call_w")];
    let result = json!({"type": "tool", "id": "t2", "content": "done", "tool_call_id": "call_w",
        "status": "success"});
    assert_eq!(update(&both, json!({"kept": 2})), Some(json!({"kept": 2, "messages": [result]})));
}

#[test]
fn a_message_beside_an_answer_never_comes_between_a_call_and_its_result() {
    let said = json!({"id": "u2", "role": "user", "content": "and hurry"});
    let refused = |thread: &Value, more: &[Value]| goes_up(&approving(more, &json!({})), thread);
    let thread = waiting_for_approval();
    for role in ["user", "system", "developer"] {
        let said = json!({"id": "u2", "role": role, "content": "and hurry"});
        assert_eq!(
            refused(&thread, &[said]).unwrap_err(),
            ResumeError::MessagesBetweenCallAndResult,
            "{role}"
        );
    }
    let with_result = [tool("t2", "call_w"), said.clone()];
    assert_eq!(
        refused(&thread, &with_result).unwrap_err(),
        ResumeError::MessagesBetweenCallAndResult
    );
    // An assistant's message never goes up.
    let own = json!({"id": "a9", "role": "assistant", "content": "hm"});
    assert!(refused(&thread, &[own]).unwrap().0["command"].get("update").is_none());

    // If no call waits, the message is forwarded.
    let mut idle = waiting_for_approval();
    idle["values"]["messages"][1]["tool_calls"] = json!([]);
    let (body, _) = refused(&idle, std::slice::from_ref(&said)).unwrap();
    let expected = json!([{"type": "human", "id": "u2", "content": "and hurry"}]);
    assert_eq!(body["command"]["update"], json!({"messages": expected}));
    // If each call has its result, too.
    let mut answered = waiting_for_approval();
    let messages = answered["values"]["messages"].as_array_mut().unwrap();
    messages.extend(
        ["call_s", "call_w"].map(
            |call| json!({"id": call, "type": "tool", "tool_call_id": call, "content": "done"}),
        ),
    );
    assert!(refused(&answered, std::slice::from_ref(&said)).is_ok());
    // A thread without a conversation gets no messages: everything that the client holds would look
    // new.
    let mut bare = waiting_for_approval();
    bare["values"].as_object_mut().unwrap().remove("messages");
    assert!(refused(&bare, &[said]).unwrap().0["command"].get("update").is_none());
}

#[test]
fn what_comes_beside_the_answer_to_a_breakpoint_goes_up_with_it() {
    let state = json!({"values": {"n": 1}, "next": ["n"], "tasks": []});
    let body = json!({"state": {"n": 2}, "resume":
        [{"interruptId": "t:breakpoint", "status": "resolved"}]});
    let (body, _) = goes_up(&body, &state).unwrap();
    assert_eq!((&body["command"], body.get("input")), (&json!({"update": {"n": 2}}), None));
}

#[test]
fn system_messages_go_up_as_the_operator_says() {
    let message = |id: &str, role: &str| json!({"id": id, "role": role, "content": "obey"});
    let body = json!({"threadId": "t", "runId": "r", "messages":
        [message("s", "system"), message("d", "developer"), message("u", "user")]});
    let sent = |policy: Option<SystemMessages>| {
        let mut allowance = Allowance::default();
        if let Some(policy) = policy {
            allowance.take_system_messages(policy);
        }
        let (body, _) = goes_up_with(&allowance, &InputKeys::Unknown, &body, &json!({})).unwrap();
        let ids = body["input"]["messages"].as_array().unwrap().iter();
        ids.map(|message| message["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for policy in [None, Some(SystemMessages::Send)] {
        assert_eq!(sent(policy), ["s", "d", "u"]);
    }
    assert_eq!(sent(Some(SystemMessages::Drop)), ["u"]);
    // A dropped message causes no refusal: next to an answer no message is left.
    let mut allowance = Allowance::default();
    allowance.take_system_messages(SystemMessages::Drop);
    let mut body = approving(&[message("s", "system")], &json!({}));
    body["threadId"] = json!("t");
    body["runId"] = json!("r");
    let keys = InputKeys::Unknown;
    assert!(goes_up_with(&allowance, &keys, &body, &waiting_for_approval()).is_ok());
}

/// An agent below a graph without a key finds the tools in the run's context.
#[test]
fn a_clients_tools_go_into_the_context_of_a_run_whose_graph_takes_them_there() {
    let sent = |schemas: Value, input: Value| {
        let keys = InputKeys::parse(&schemas.to_string()).unwrap();
        let mut body = json!({"threadId": "t", "runId": "r", "messages": []});
        body.as_object_mut().unwrap().extend(input.as_object().unwrap().clone());
        let input = Input::parse(body.to_string().as_bytes()).unwrap();
        let allowance = Allowance::default();
        let planner = asking(&input, &allowance);
        let context = planner.client_context(&keys);
        (context.map(|context| context.get().to_owned()), planner.losses(&keys))
    };
    let schemas = |input: Value, context: Value| json!({"input_schema": {"properties": input}, "context_schema": context});
    let tools = json!({"tools": [{"name": "f"}], "context": [{"description": "d", "value": "v"}]});
    let expected = r#"{"actions":[{"type":"function","name":"f","function":{"name":"f"}}],"context":[{"description":"d","value":"v"}]}"#;
    let messages = json!({"messages": {}});
    let named = json!({"properties": {"copilotkit": {}}});
    for context in [Value::Null, named] {
        let (context, losses) = sent(schemas(messages.clone(), context), tools.clone());
        assert_eq!(context.as_deref(), Some(expected));
        assert_eq!(losses.len(), 2);
        let only = "the tools of clients reach this graph only as `copilotkit` in the context of \
                    its runs: its input has none of the keys `tools`, `ag-ui`, `copilotkit`";
        assert_eq!(losses[0], only);
    }
    let other = json!({"properties": {"model": {}}});
    let (context, losses) = sent(schemas(messages.clone(), other), tools.clone());
    assert_eq!(context, None);
    assert!(losses[0].starts_with("the tools of clients do not reach this graph: "), "{losses:?}");
    // The graph's own state has them.
    let own = json!({"messages": {}, "copilotkit": {}});
    assert_eq!(sent(schemas(own, Value::Null), tools.clone()), (None, Vec::new()));
    assert_eq!(sent(json!({"input_schema": {"properties": messages}}), tools).0, None);
    let nothing = json!({"tools": [], "context": []});
    assert_eq!(sent(schemas(messages, Value::Null), nothing), (None, Vec::new()));
}

/// A page cuts its text in the middle of an emoji, and sends it with each request.
#[test]
fn text_that_no_server_stores_goes_up_as_the_replacement_character() {
    let sent = |unfit: &str| {
        let body = json!({
            "threadId": "t", "runId": "r",
            "messages": [
                {"id": "c", "role": "tool", "toolCallId": "call", "content": "{\"a\":\"HALF\"}"},
                {"id": "u", "role": "user", "content": [{"type": "text", "text": "cut: HALF"}]},
            ],
            "state": {"HALF": ["HALF"]},
            "tools": [{"name": "f", "description": "HALF", "parameters": {"title": "HALF"}}],
            "context": [{"description": "HALF", "value": "HALF"}],
            "forwardedProps": {"config": {"configurable": {"model": "HALF"}}},
        });
        let body = body.to_string().replace("HALF", unfit);
        let input = Input::parse(body.as_bytes()).unwrap();
        let mut allowance = Allowance::default();
        allowance.allow("model").unwrap();
        let keys = r#"{"input_schema":{"properties":{"\ufffd":{},"copilotkit":{}}}}"#;
        let keys = InputKeys::parse(keys).unwrap();
        let state = r#"{"values":{"messages":[{"type":"ai","id":"a","content":"","tool_calls":
            [{"id":"call","name":"f","args":{}}]}]}}"#;
        let state = ThreadState::parse(state);
        let run = plan(&asking(&input, &allowance), state.as_ref(), &keys).unwrap().run.unwrap();
        serde_json::to_string(&run.request("agent", Capabilities::default(), None)).unwrap()
    };
    // The judge's parser refuses half a pair.
    let whole: Value = serde_json::from_str(&sent("\\ufffd")).unwrap();
    assert_eq!(whole["input"]["messages"][1]["content"], "cut: \u{fffd}");
    for unfit in ["\\ud83d", "\\uDE00", "\\u0000"] {
        let up: Value = serde_json::from_str(&sent(unfit)).unwrap();
        assert_eq!(up, whole, "{unfit}");
    }
    assert!(sent("\\ud83d\\ude00").contains("cut: \\ud83d\\ude00"));
}

#[test]
fn text_that_was_replaced_on_its_way_is_no_edit() {
    for (sent, stored) in [
        ("\\ud83d", "\\ufffd"),
        ("\\u0000", "\\ufffd"),
        // Stored by another program, on a server that replaces nothing.
        ("\\ud83d", "\\ud83d"),
        ("\\u0000", "\\u0000"),
        // The Python server also replaces the escape where it is written out.
        ("\\\\u0000", "\\\\ufffd"),
    ] {
        let state = format!(
            r#"{{"values":{{"messages":[{{"type":"human","id":"u","content":"a{stored}"}},
                {{"type":"ai","id":"a","content":"ho"}}]}}}}"#
        );
        let body = format!(
            r#"{{"threadId":"t","runId":"r","messages":[{{"id":"u","role":"user","content":"a{sent}"}},
                {{"id":"a","role":"assistant","content":"ho"}},{{"id":"v","role":"user","content":"on"}}]}}"#
        );
        let input = Input::parse(body.as_bytes()).unwrap();
        let state = ThreadState::parse(&state);
        let allowance = Allowance::default();
        let plan = plan(&asking(&input, &allowance), state.as_ref(), &InputKeys::Unknown).unwrap();
        assert_eq!(plan.run.unwrap().fork_before, None, "{sent}");
    }
}

/// A model reads only the content of a result.
#[test]
fn a_failed_client_tool_says_why_in_its_content() {
    let sent = |members: Value| {
        let mut message = json!({"id": "m", "role": "tool", "toolCallId": "c"});
        message.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        let asks = json!({"type": "ai", "id": "a", "content": "",
            "tool_calls": [{"id": "c", "name": "f", "args": {}}]});
        let state = json!({"values": {"messages": [asks]}});
        let (up, _) = goes_up(&json!({"messages": [message]}), &state).unwrap();
        let message = &up["input"]["messages"][0];
        (message["content"].clone(), message["status"].as_str().unwrap().to_owned())
    };
    let image = json!({"type": "image", "source": {"type": "data", "value": "AA", "mimeType": "image/png"}});
    let block = json!({"type": "image", "base64": "AA", "mime_type": "image/png"});
    let text = |text: &str| json!({"type": "text", "text": text});
    for (members, content, status) in [
        (json!({"content": "", "error": "no camera"}), json!("no camera"), "error"),
        (json!({"error": "no camera"}), json!("no camera"), "error"),
        (json!({"content": " ", "error": "no camera"}), json!("no camera"), "error"),
        (json!({"content": [], "error": "no camera"}), json!("no camera"), "error"),
        (json!({"content": "tried", "error": "no camera"}), json!("tried\nno camera"), "error"),
        (
            json!({"content": "Error: no camera!", "error": "no camera"}),
            json!("Error: no camera!"),
            "error",
        ),
        (
            json!({"content": [text("tried"), image], "error": "no \"camera\""}),
            json!([text("tried"), block, text("no \"camera\"")]),
            "error",
        ),
        (json!({"content": [image], "error": ""}), json!([block]), "error"),
        (json!({"content": "tried", "error": ""}), json!("tried"), "error"),
        (json!({"content": "", "error": " "}), json!("the tool failed and said nothing"), "error"),
        (json!({"content": "", "error": null}), json!(""), "success"),
        (json!({"content": "done"}), json!("done"), "success"),
    ] {
        assert_eq!(sent(members.clone()), (content, status.to_owned()), "{members}");
    }
}

/// The client is sent what the thread holds once, and then holds the same.
#[test]
fn the_content_of_a_failed_client_tool_is_corrected_once() {
    let calls = json!({"type": "ai", "id": "a", "content": "",
        "tool_calls": [{"id": "c", "name": "photo", "args": {}}]});
    let result = json!({"type": "tool", "id": "m", "tool_call_id": "c",
        "content": "tried\nno camera", "status": "error"});
    let values = json!({"messages": [calls, result]});
    let snapshots = |held: &Value| {
        let call = json!({"id": "c", "type": "function",
            "function": {"name": "photo", "arguments": "{}"}});
        let asks = json!({"id": "a", "role": "assistant", "toolCalls": [call]});
        let input = json!({"threadId": "T", "runId": "r", "messages": [asks, held]});
        let input = Input::parse(input.to_string().as_bytes()).unwrap();
        let parts = [ScriptPart { event: "values".to_owned(), data: values.to_string() }];
        let bytes = generate::bytes(&parts, false);
        let (_, events) = generate::run_events(&bytes, 64, None, StreamEnd::Succeeded);
        let told = capture::project(&events, Projector::new(input.client(), input.held()));
        let all = told.events.into_iter().filter(|event| event["type"] == "MESSAGES_SNAPSHOT");
        all.map(|event| event["messages"][1].clone()).collect::<Vec<_>>()
    };
    let own = json!({"id": "m", "role": "tool", "toolCallId": "c", "content": "tried", "error": "no camera"});
    let [corrected] = &*snapshots(&own) else { panic!("there is no one snapshot") };
    assert_eq!(corrected["content"], "tried\nno camera");
    assert!(snapshots(corrected).is_empty());
}

#[test]
fn a_client_chooses_what_a_busy_thread_does_within_what_it_may() {
    let mut allowance = Allowance::default();
    let asked = |allowance: &Allowance, forwarded: &Value| {
        let body = json!({"threadId": "t", "runId": "r", "forwardedProps": forwarded,
            "messages": [{"id": "u", "role": "user", "content": "hi"}]});
        let input = Input::parse(body.to_string().as_bytes()).unwrap();
        let (up, _) = goes_up_with(allowance, &InputKeys::Unknown, &body, &json!({})).unwrap();
        let strategy = up.get("multitask_strategy").and_then(Value::as_str).map(str::to_owned);
        (strategy, allowance.leaves_multitask_out(&input))
    };
    let interrupt = json!({"multitaskStrategy": "interrupt"});
    // By default the server decides, and not the client.
    assert_eq!(asked(&allowance, &json!({})), (None, false));
    assert_eq!(asked(&allowance, &interrupt), (None, true));
    allowance.when_busy(Multitask::Enqueue);
    allowance.allow_when_busy(Multitask::Interrupt);
    let word = |word: &str| Some(word.to_owned());
    for (forwarded, expected) in [
        (json!({}), (word("enqueue"), false)),
        (json!({"multitaskStrategy": null}), (word("enqueue"), false)),
        (interrupt, (word("interrupt"), false)),
        (json!({"multitask_strategy": "interrupt"}), (word("interrupt"), false)),
        (json!({"multitaskStrategy": "rollback"}), (word("enqueue"), true)),
        (json!({"multitaskStrategy": "Interrupt"}), (word("enqueue"), true)),
        (json!({"multitaskStrategy": ["interrupt"]}), (word("enqueue"), true)),
        (json!("interrupt"), (word("enqueue"), false)),
    ] {
        assert_eq!(asked(&allowance, &forwarded), expected, "{forwarded}");
    }
}

#[test]
fn a_static_breakpoint_is_passed_by_an_answer_and_kept_by_a_cancel() {
    let breakpoint = |status: &str| json!({"interruptId": "t:breakpoint", "status": status});
    let resume =
        |entries: Value, state: &Value| goes_up(&json!({"resume": entries}), state).unwrap().0;
    let waits = json!({"values": {}, "next": ["x"], "tasks": []});
    let body = resume(json!([breakpoint("resolved")]), &waits);
    assert!(body.get("command").is_none() && body.get("input").is_none());
    assert_eq!(body["metadata"]["threadway_answers"], json!(["t:breakpoint"]));
    assert_eq!(resume(json!([breakpoint("cancelled")]), &waits), Value::Null);
    let passed = json!({"values": {}, "next": [], "tasks": []});
    assert_eq!(resume(json!([breakpoint("resolved")]), &passed), Value::Null);
    // A message at a breakpoint is input, as in LangGraph.
    let message = json!({"messages": [{"id": "u", "role": "user", "content": "hi"}]});
    let (body, _) = goes_up(&message, &waits).unwrap();
    assert_eq!(body["input"]["messages"][0]["id"], "u");
}

#[test]
fn an_abandoned_question_gets_null_which_is_checked_beside_other_answers() {
    let asks = |id: &str| json!({"id": id, "value": "?", "response_schema": {"type": "string"}});
    let state = json!({"values": {}, "tasks": [{"interrupts": [asks("a"), asks("b")]}]});
    let cancelled = json!({"interruptId": "a", "status": "cancelled"});
    let (body, _) = goes_up(&json!({"resume": [cancelled]}), &state).unwrap();
    assert_eq!(body["command"]["resume"], json!({"a": null}));
    let answered = json!({"interruptId": "b", "status": "resolved", "payload": "x"});
    let error = goes_up(&json!({"resume": [answered, cancelled]}), &state).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`resume` answers interrupt a with what its `responseSchema` does not allow: `type` does \
         not hold for the answer"
    );
    // An abandoned approval is a rejection, which is an ordinary decision.
    let action = json!({"name": "send", "args": {}});
    let config = json!({"action_name": "send", "allowed_decisions": ["approve"]});
    let approval = json!({"action_requests": [action], "review_configs": [config]});
    let state = json!({"values": {}, "tasks": [{"interrupts": [{"id": "a", "value": approval}]}]});
    let error = goes_up(&json!({"resume": [cancelled]}), &state).unwrap_err();
    assert_eq!(error, ResumeError::NotAllowed { id: "a".to_owned(), allowed: vec!["approve"] });
}

#[test]
fn whoever_approves_is_sent_all_that_was_asked() {
    let interrupt = |value: Value| {
        let state = json!({"tasks": [{"interrupts": [{"id": "i", "value": value}]}]});
        let state = state.to_string();
        let state = ThreadState::parse(&state).unwrap();
        let interrupts = state.interrupts.iter().map(run::Interrupt::of_langgraph).collect();
        let outcome = run::Outcome::Interrupted(interrupts);
        let ended = RunEvent::Ended { outcome, usage: Vec::new() };
        let mut sent = Vec::new();
        let mut projector = Projector::new(capture::newcomer(), ClientMessages::Unknown);
        projector.project(&ended, &mut |e| sent.push(written(e)));
        sent[0]["outcome"]["interrupts"][0].clone()
    };
    let asked = interrupt(json!({"review_configs": [], "risk": "high", "action_requests": [
        {"name": "send", "args": {"to": "a"}, "description": "Not to be undone.", "due": 1}]}));
    assert_eq!(asked["message"], "Not to be undone.");
    assert_eq!(asked["metadata"]["langgraph"]["details"], json!({"risk": "high", "due": 1}));
    let asked = interrupt(json!([{"action_request": {"action": "send", "args": {"to": "a"}},
        "config": {"allow_accept": true, "allow_ignore": true}, "description": "Sure?"}]));
    assert_eq!(asked["message"], "Sure?");
    assert_eq!(
        asked["metadata"]["langgraph"],
        json!({"action": "send", "args": {"to": "a"}, "allowed_decisions": ["accept", "ignore"]})
    );
    assert_eq!(
        asked["responseSchema"]["properties"],
        json!({"type": {"enum": ["accept", "ignore"]},
            "args": {"type": ["string", "object", "null"]}})
    );
    let value = json!({"prompt": "Right?", "llm_output": "Dear all"});
    let asked = interrupt(value.clone());
    assert_eq!(asked["message"], "Right?");
    assert_eq!(asked["metadata"]["langgraph"]["value"], value);
}

#[test]
fn an_agent_inbox_request_is_answered_in_its_own_form() {
    let state = json!({"values": {}, "tasks": [{"interrupts": [{"id": "i", "value": [{
        "action_request": {"action": "send", "args": {"to": "a"}},
        "config": {"allow_accept": true, "allow_edit": true, "allow_ignore": true}}]}]}]});
    let native = json!([{"type": "ignore", "args": null}]);
    let edited = json!([{"type": "edit", "args": {"action": "send", "args": {"to": "b"}}}]);
    for (payload, expected) in [
        (json!({"approved": true}), json!([{"type": "accept", "args": null}])),
        (json!({"approved": true, "editedArgs": {"to": "b"}}), edited.clone()),
        (json!({"approved": false}), native.clone()),
        (json!({"type": "ignore", "args": null}), native.clone()),
        (native.clone(), native.clone()),
        (edited.clone(), edited),
    ] {
        let input = json!({"resume": [
            {"interruptId": "i", "status": "resolved", "payload": payload}]});
        let (body, _) = goes_up(&input, &state).unwrap();
        assert_eq!(body["command"]["resume"], json!({"i": expected}), "{payload}");
    }
}

#[test]
fn the_older_hooks_answer_goes_up_as_it_is() {
    let state = json!({"values": {}, "tasks": [{"interrupts": [{"id": "i", "value": "sure?"}]}]});
    for (resume, expected) in [
        (json!("yes"), json!("yes")),
        (json!("{\"approved\":true}"), json!({"approved": true})),
        (json!({"x": 1}), json!({"x": 1})),
    ] {
        let input = json!({"forwardedProps": {"command": {"resume": resume}}});
        let (body, _) = goes_up(&input, &state).unwrap();
        assert_eq!(body["command"]["resume"], expected);
        assert_eq!(body["metadata"]["threadway_answers"], json!(["i"]));
        assert_eq!(goes_up(&input, &json!({})).unwrap().0, Value::Null);
    }
}

#[test]
fn a_question_without_an_id_is_answered_by_a_bare_value_if_it_is_the_only_one() {
    let asks = |value: Value| json!({"interrupts": [{"value": value}]});
    let named = json!({"interrupts": [{"id": "named", "value": "?"}]});
    let ids = |state: &Value| {
        let state = state.to_string();
        let state = ThreadState::parse(&state).unwrap();
        state.interrupts.iter().map(|open| open.id.clone().into_owned()).collect::<Vec<_>>()
    };
    let sent = |state: &Value, at: usize, answer: Value| {
        let mut entry = json!({"interruptId": ids(state)[at], "status": "resolved"});
        entry.as_object_mut().unwrap().extend(answer.as_object().unwrap().clone());
        goes_up(&json!({"resume": [entry]}), state).map(|(body, _)| body)
    };
    let state = json!({"tasks": [asks(json!("Sure?"))]});
    let body = sent(&state, 0, json!({"payload": "yes"})).unwrap();
    assert_eq!(body["command"], json!({"resume": "yes"}));
    assert_eq!(body["metadata"]["threadway_answers"], json!(ids(&state)));
    let approval = json!({"action_requests": [{"name": "send", "args": {}}], "review_configs": []});
    let body = sent(&json!({"tasks": [asks(approval)]}), 0, json!({"payload": true})).unwrap();
    assert_eq!(body["command"]["resume"], json!({"decisions": [{"type": "approve"}]}));
    // Without a payload these are no answers for LangGraph.
    for empty in [json!({"status": "cancelled"}), json!({"payload": null}), json!({"payload": {}})]
    {
        let error = sent(&state, 0, empty).unwrap_err();
        assert!(error.to_string().ends_with("has none; send another answer"), "{error}");
    }

    // With other open interrupts LangGraph could not tell which one a bare value answers.
    let state = json!({"tasks": [asks(json!("one?")), asks(json!("two?")), named]});
    for at in [0, 1] {
        let error = sent(&state, at, json!({"payload": "yes"})).unwrap_err();
        let expected = format!(
            "`resume` answers interrupt {}, which has no id in LangGraph; while the thread asks \
             other questions too, LangGraph cannot tell which one is answered",
            ids(&state)[at]
        );
        assert_eq!(error.to_string(), expected);
    }
    let body = sent(&state, 2, json!({"payload": "yes"})).unwrap();
    assert_eq!(body["command"]["resume"], json!({"named": "yes"}));
    let bare = json!({"forwardedProps": {"command": {"resume": "yes"}}});
    let error = goes_up(&bare, &state).unwrap_err();
    assert!(error.to_string().contains("which has no id in LangGraph"), "{error}");
}

#[test]
fn the_older_hooks_answers_by_id_go_up_if_they_are_open_and_allowed() {
    let (open, closed) = ("a".repeat(32), "b".repeat(32));
    let state = json!({"values": {}, "tasks": [{"interrupts": [
        {"id": open, "value": "?", "response_schema": {"type": "integer"}}]}]});
    let sent = |resume: Value| {
        let input = json!({"forwardedProps": {"command": {"resume": resume}}});
        goes_up(&input, &state).map(|(body, _)| body["command"]["resume"].clone())
    };
    assert_eq!(sent(json!({(&*open): 1, (&*closed): 2})).unwrap(), json!({(&*open): 1}));
    assert_eq!(sent(json!({(&*closed): 2})).unwrap(), Value::Null);
    for wrong in [json!({(&*open): "x"}), json!("x")] {
        assert!(matches!(sent(wrong), Err(ResumeError::Mismatch { id, .. }) if id == open));
    }
}

#[test]
fn no_client_chooses_another_thread_or_user_by_its_configuration() {
    let input = json!({"forwardedProps": {"webhook": "http://x", "config": {
        "recursion_limit": 7, "tags": ["x"], "metadata": {"a": 1},
        "configurable": {"model": "m", "thread_id": "other", "checkpoint_id": "c", "user_id": "u",
            "langgraph_auth_user": {}, "thread_ts": "t", "X-Tenant": "other", "Authorization": "a", "__event_streaming_v2": true},
    }}});
    let (body, _) = goes_up(&input, &json!({})).unwrap();
    assert_eq!(body["config"], json!({"recursion_limit": 7, "configurable": {"model": "m"}}));
}

#[test]
fn a_client_sets_only_what_its_operator_allows() {
    let input = json!({"forwardedProps": {"config": {
        "recursionLimit": 1_000_000_000, "configurable": {"model": "m", "tenant_id": "other", "Model": "n"},
    }}});
    let (body, _) = goes_up(&input, &json!({})).unwrap();
    assert_eq!(body["config"], json!({"recursion_limit": 1000, "configurable": {"model": "m"}}));

    let mut body = json!({"threadId": "t", "runId": "r", "messages": []});
    body.as_object_mut().unwrap().extend(input.as_object().unwrap().clone());
    let input = Input::parse(body.to_string().as_bytes()).unwrap();
    let config = |allowance: &Allowance| {
        let run = plan(&asking(&input, allowance), None, &InputKeys::Unknown).unwrap().run.unwrap();
        let body =
            serde_json::to_value(run.request("agent", Capabilities::default(), None)).unwrap();
        body.get("config").cloned()
    };
    // By default only `recursion_limit` is forwarded.
    let mut allowance = Allowance::default();
    assert_eq!(config(&allowance), Some(json!({"recursion_limit": 1000})));
    assert_eq!(allowance.left_out(&input), 3);
    allowance.allow("tenant_id").unwrap();
    allowance.limit_recursion(50);
    let expected = json!({"recursion_limit": 50, "configurable": {"tenant_id": "other"}});
    assert_eq!(config(&allowance), Some(expected));
    for key in [
        "",
        "thread_id",
        "Checkpoint_Id",
        "langgraph_auth_user",
        "__x",
        "X-Tenant",
        "Authorization",
    ] {
        assert!(allowance.allow(key).is_err(), "{key}");
    }
}

/// One event for a client of this version.
fn projected(event: &RunEvent, version: Version) -> Value {
    let client = threadway_translate::agui::Client { version, ..capture::newcomer() };
    let told = capture::project(std::slice::from_ref(event), Projector::new(client, Vec::new()));
    told.events.into_iter().next().unwrap()
}

#[test]
fn an_older_client_gets_what_it_can_take() {
    let ended = |outcome| RunEvent::Ended { outcome, usage: Vec::new() };
    let finished = ended(run::Outcome::Finished {
        pending_calls: vec![Id::from("c")],
        finish: run::Finish::Done,
    });
    let new = projected(&finished, Version::V1);
    assert_eq!(new["outcome"], json!({"type": "success", "pendingToolCallIds": ["c"]}));
    assert!(projected(&finished, Version::Legacy).get("outcome").is_none());

    let cancelled = ended(run::Outcome::Cancelled);
    assert_eq!(projected(&cancelled, Version::V1)["outcome"]["type"], "cancelled");
    let old = projected(&cancelled, Version::Legacy);
    assert_eq!((&old["type"], &old["code"]), (&json!("RUN_ERROR"), &json!("abort")));

    let media = |source| Media { kind: MediaKind::Image, source, mime_type: None, filename: None };
    let parts: Arc<[_]> = [
        ContentPart::Text(Text::new("see")),
        ContentPart::Media(media(MediaSource::File(Text::new("f1")))),
        ContentPart::Media(media(MediaSource::Url(Text::new("https://x")))),
    ]
    .into();
    let result = RunEvent::CallResult {
        message_id: Id::from("t"),
        call_id: Id::from("c"),
        content: run::Content::Parts(Arc::clone(&parts)),
        is_error: false,
        agent: None,
    };
    assert_eq!(projected(&result, Version::V1)["content"].as_array().unwrap().len(), 3);
    assert_eq!(projected(&result, Version::Legacy)["content"], "see");

    let mut user = run::Message::new(Id::from("u"), Role::User);
    user.content = run::Content::Parts(parts);
    let messages = RunEvent::Messages([user.into()].into());
    let kinds = |version| {
        let parts = projected(&messages, version)["messages"][0]["content"].clone();
        let source = |part: &Value| part["source"]["type"].as_str().unwrap_or("text").to_owned();
        parts.as_array().unwrap().iter().map(source).collect::<Vec<_>>()
    };
    assert_eq!(kinds(Version::V1), ["text", "file", "url"]);
    assert_eq!(kinds(Version::Legacy), ["text", "url"]);
}

#[test]
fn a_state_that_is_older_than_the_threads_does_not_go_up() {
    let input = json!({
        "threadId": "T", "runId": "r", "messages": [{"id": "m1", "role": "user", "content": "go"}],
        "state": {"count": 1, "note": {"threadway:truncated": {"bytes": 9000}}, "own": true},
    });
    let input = Input::parse(input.to_string().as_bytes()).unwrap();
    let body = json!({"values": {"count": 2, "note": "long", "messages": []}, "next": []});
    let (body, allowance) = (body.to_string(), Allowance::default());
    let thread = ThreadState::parse(&body);
    let sent = |emit, thread: Option<&ThreadState<'_>>| {
        let asking = RequestPlanner { emit, ..asking(&input, &allowance) };
        let run = plan(&asking, thread, &InputKeys::Undescribed).unwrap().run.unwrap();
        let body =
            serde_json::to_value(run.request("agent", Capabilities::default(), None)).unwrap();
        let mut input = body["input"].clone();
        input.as_object_mut().unwrap().remove("messages");
        input
    };
    let initial =
        run::EmitOptions { state: run::StateEvents::Initial, ..run::EmitOptions::default() };
    // The placeholder of a value that was too large never replaces the value.
    assert_eq!(
        sent(run::EmitOptions::default(), thread.as_ref()),
        json!({"count": 1, "own": true})
    );
    // The client has the state with which an earlier run began.
    assert_eq!(sent(initial, thread.as_ref()), json!({}));
    assert_eq!(sent(initial, None), json!({"count": 1, "own": true}));
}
