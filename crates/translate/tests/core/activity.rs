//! Activities: the life of a tool call, and the plan.

use crate::support::capture;
use crate::support::generate::{self, ScriptPart, fold, run_events};
use serde_json::{Value, json};
use threadway_translate::agui::Projector;
use threadway_translate::run::{self, Emit, Open, RunError, RunEvent, StreamEnd, View, Viewer};

fn part(event: &str, data: &Value) -> ScriptPart {
    ScriptPart::new(event, data)
}

fn state(values: &Value) -> ScriptPart {
    part("values", values)
}

/// Calls of `search` by the model.
fn calls(ids: &[&str]) -> Value {
    let call = |id: &&str| json!({"id": id, "name": "search", "args": {}, "type": "tool_call"});
    let calls: Vec<_> = ids.iter().map(call).collect();
    json!({"type": "ai", "id": "a", "content": "", "tool_calls": calls})
}

fn answer(id: &str, status: &str) -> Value {
    json!({"type": "tool", "id": format!("of-{id}"), "tool_call_id": id, "content": "found",
           "status": status})
}

fn events(parts: &[ScriptPart], end: StreamEnd) -> Vec<RunEvent> {
    let bytes = generate::bytes(parts, false);
    run_events(&bytes, bytes.len().max(1), None, end).1
}

fn wire(events: &[RunEvent]) -> Vec<Value> {
    capture::project(events, Projector::new(capture::newcomer(), Vec::new())).events
}

/// The activities of a stream: the id, and the content or the patch.
fn told(events: &[RunEvent]) -> Vec<String> {
    let of = |event: &Value| {
        let said = if event["type"] == "ACTIVITY_SNAPSHOT" {
            &event["content"]
        } else {
            event.get("patch")?
        };
        Some(format!("{} {said}", event["messageId"].as_str()?))
    };
    let is_activity = |event: &&Value| event["type"].as_str().unwrap().starts_with("ACTIVITY");
    wire(events).iter().filter(is_activity).filter_map(of).collect()
}

fn begins(id: &str, status: &str) -> String {
    format!(r#"{id}:activity {{"toolCallId":"{id}","toolName":"search","status":"{status}"}}"#)
}

fn becomes(id: &str, status: &str) -> String {
    format!(r#"{id}:activity [{{"op":"replace","path":"/status","value":"{status}"}}]"#)
}

#[test]
fn a_tool_runs_from_its_arguments_to_its_result() {
    let parts = [
        state(&json!({"messages": [calls(&["c", "d"])]})),
        state(
            &json!({"messages": [calls(&["c", "d"]), answer("c", "success"), answer("d", "error")]}),
        ),
    ];
    // The first state is the thread's before the run, so nobody has seen the start of those calls.
    let parts = [&[state(&json!({"messages": []}))], &parts[..]].concat();
    let events = events(&parts, StreamEnd::Succeeded);
    let expected = [
        begins("c", "running"),
        begins("d", "running"),
        becomes("c", "completed"),
        becomes("d", "failed"),
    ];
    assert_eq!(told(&events), expected);
    let wire = wire(&events);
    let failed = wire.iter().find(|event| event["messageId"] == "of-d").unwrap();
    assert_eq!(failed["metadata"], json!({"langgraph": {"status": "error"}}));
    // A failed call alone does not cause a messages snapshot.
    assert!(wire.iter().all(|event| event["type"] != "MESSAGES_SNAPSHOT"), "{wire:#?}");
}

#[test]
fn a_tool_without_a_result_ends_with_its_run() {
    let base = || state(&json!({"messages": []}));
    let called = || state(&json!({"messages": [calls(&["c"])]}));
    let asked = || {
        let action = json!({"name": "search", "args": {}});
        let value = json!({"action_requests": [action], "review_configs": []});
        part("updates", &json!({"__interrupt__": [{"id": "i", "value": value}]}))
    };
    let error = RunError::new("E", "m");
    for (parts, end, status) in [
        (vec![base(), called()], StreamEnd::Succeeded, "requested"),
        (vec![base(), called(), asked()], StreamEnd::Succeeded, "waiting"),
        (vec![base(), called()], StreamEnd::Cancelled, "stopped"),
        (vec![base(), called()], StreamEnd::Failed(error), "stopped"),
    ] {
        let events = events(&parts, end);
        assert_eq!(told(&events), [begins("c", "running"), becomes("c", status)]);
    }
}

#[test]
fn a_result_of_an_earlier_runs_call_is_told_whole() {
    let parts = [
        state(&json!({"messages": [calls(&["c"])]})),
        state(&json!({"messages": [calls(&["c"]), answer("c", "success")]})),
    ];
    assert_eq!(told(&events(&parts, StreamEnd::Succeeded)), [begins("c", "completed")]);
}

#[test]
fn a_task_says_that_a_tool_runs() {
    let call = json!({"id": "c", "name": "search", "args": {}, "type": "tool_call"});
    let task = json!({"id": "t", "name": "tools", "triggers": [],
                      "input": [call]});
    let parts = [state(&json!({"messages": [calls(&["c"])]})), part("tasks", &task)];
    let events = events(&parts, StreamEnd::Cancelled);
    assert_eq!(told(&events), [begins("c", "running"), becomes("c", "stopped")]);
}

#[test]
fn the_plan_is_an_activity_that_changes_with_the_todos() {
    let look = "look at the sea, at the sky and at what is between them";
    let todo = |status: &str| json!([{"content": look, "status": status}]);
    let messages = json!([]);
    let parts = [
        state(&json!({"messages": messages, "files": {}})),
        state(&json!({"messages": messages, "files": {}, "todos": []})),
        state(&json!({"messages": messages, "files": {}, "todos": todo("pending")})),
        state(&json!({"messages": messages, "files": {"a": 1}, "todos": todo("pending")})),
        state(&json!({"messages": messages, "files": {"a": 1}, "todos": todo("completed")})),
    ];
    let expected = [
        &*format!(r#"T:plan {{"todos":[{{"content":"{look}","status":"pending"}}]}}"#),
        r#"T:plan [{"op":"replace","path":"/todos/0/status","value":"completed"}]"#,
    ];
    assert_eq!(told(&events(&parts, StreamEnd::Succeeded)), expected);
}

#[test]
fn who_comes_late_sees_what_goes_on_and_what_has_become_of_what_it_saw() {
    let todos = json!([{"content": "look", "status": "pending"}]);
    let parts = [
        state(&json!({"messages": [], "todos": todos})),
        state(&json!({"messages": [calls(&["c", "d"])], "todos": todos})),
        state(&json!({"messages": [calls(&["c", "d"]), answer("c", "success")], "todos": todos})),
    ];
    let events = events(&parts, StreamEnd::Cancelled);
    let is_result = |event: &RunEvent| matches!(event, RunEvent::CallResult { .. });
    // The position after the result and after the changed activity.
    let at = events.iter().position(is_result).unwrap() + 2;
    let view = fold(&events[..at]);
    let plan = r#"T:plan {"todos":[{"content":"look","status":"pending"}]}"#.to_owned();
    let newcomer = run::resync(&view, Viewer::New, Emit::default()).unwrap();
    assert_eq!(told(&newcomer), [plan.clone(), begins("d", "running")]);
    let mut open = Open::default();
    events[..at - 2].iter().for_each(|event| open.apply(event));
    let straggler = run::resync(&view, Viewer::Lagging(&open), Emit::default()).unwrap();
    assert_eq!(told(&straggler), [plan, begins("c", "completed"), begins("d", "running")]);
    let follower = run::resync(&view, Viewer::Holds(&view), Emit::default()).unwrap();
    assert_eq!(told(&follower), [begins("d", "running")], "it holds the plan");
}

#[test]
fn a_viewer_of_the_earlier_messages_sees_which_of_the_new_results_is_an_error() {
    let parts = [
        state(&json!({"messages": [calls(&["c", "d"])]})),
        state(
            &json!({"messages": [calls(&["c", "d"]), answer("c", "error"), answer("d", "success")]}),
        ),
    ];
    let events = events(&parts, StreamEnd::Succeeded);
    let is_result = |event: &RunEvent| matches!(event, RunEvent::CallResult { .. });
    let before = fold(&events[..events.iter().position(is_result).unwrap()]);
    let view = fold(&events);
    let resync = run::resync(&view, Viewer::Holds(&before), Emit::default()).unwrap();
    assert_eq!(resync.iter().filter(|event| is_result(event)).count(), 2, "results are events");
    // An AG-UI client reads the error of such a result from the activity alone.
    assert_eq!(told(&resync), [begins("c", "failed")]);
}

#[test]
fn a_viewer_of_the_earlier_messages_sees_which_result_of_an_earlier_run_is_an_error() {
    // The run begins with the result, so no activity shows what became of the tool.
    let after = json!({"type": "ai", "id": "b", "content": "", "tool_calls": []});
    let parts = [state(&json!({"messages": [calls(&["c"]), answer("c", "error"), after]}))];
    let view = fold(&events(&parts, StreamEnd::Succeeded));
    let before = View::with(view.messages()[..1].to_vec(), None);
    let resync = run::resync(&view, Viewer::Holds(&before), Emit::default()).unwrap();
    let snapshot = wire(&resync).into_iter().find(|event| event["type"] == "MESSAGES_SNAPSHOT");
    assert_eq!(snapshot.unwrap()["messages"][1]["error"], "found");
}

#[test]
fn a_tool_that_the_client_runs_itself_is_no_activity() {
    for held in [
        json!({"tools": [{"name": "search"}]}),
        json!({"tools": [{"type": "function", "function": {"name": "search"}}]}),
        json!({"ag-ui": {"tools": [{"name": "search"}], "context": []}}),
        json!({"copilotkit": {"actions": [{"name": "search"}]}}),
    ] {
        let with = |messages: Value| {
            let mut values = held.clone();
            values["messages"] = messages;
            state(&values)
        };
        let parts = [with(json!([])), with(json!([calls(&["c"])]))];
        assert_eq!(told(&events(&parts, StreamEnd::Succeeded)), [""; 0], "{held}");
    }
    // The client offers the tool only with the second state.
    let values = |tools: Value, messages: Value| json!({"tools": tools, "messages": messages});
    let parts = [
        state(&values(json!([]), json!([]))),
        state(&values(json!([{"name": "search"}]), json!([]))),
        state(&values(json!([{"name": "search"}]), json!([calls(&["c"])]))),
    ];
    assert_eq!(told(&events(&parts, StreamEnd::Succeeded)), [""; 0]);
}

/// The ids of a client's messages, activities included, by the rules of the official reducer.
fn ids_of_client(events: &[Value]) -> Vec<String> {
    let mut ids: Vec<String> = Vec::new();
    let mut callers = std::collections::HashMap::new();
    let id = |event: &Value, name: &str| event[name].as_str().unwrap_or_default().to_owned();
    for event in events {
        match event["type"].as_str().unwrap() {
            "MESSAGES_SNAPSHOT" => {
                let new: Vec<_> =
                    event["messages"].as_array().unwrap().iter().map(|m| id(m, "id")).collect();
                ids.retain(|held| new.contains(held) || held.ends_with(":activity"));
                for id in new {
                    if !ids.contains(&id) {
                        ids.push(id);
                    }
                }
                for message in event["messages"].as_array().unwrap() {
                    for call in message["toolCalls"].as_array().into_iter().flatten() {
                        callers.insert(id(call, "id"), id(message, "id"));
                    }
                }
            }
            "TOOL_CALL_START" => {
                let caller = id(event, "parentMessageId");
                if !ids.contains(&caller) {
                    ids.push(caller.clone());
                }
                callers.insert(id(event, "toolCallId"), caller);
            }
            "ACTIVITY_SNAPSHOT" => ids.push(id(event, "messageId")),
            "TOOL_CALL_RESULT" => {
                let caller = callers.get(&id(event, "toolCallId"));
                let at = caller.and_then(|caller| ids.iter().position(|id| id == caller));
                let is_result = |id: &&String| id.starts_with("of-");
                let at = at.map_or(ids.len(), |at| {
                    at + 1 + ids.iter().skip(at + 1).take_while(is_result).count()
                });
                ids.insert(at, id(event, "messageId"));
            }
            _ => {}
        }
    }
    ids.retain(|id| !id.ends_with(":activity"));
    ids
}

#[test]
fn activities_between_results_do_not_change_the_order_of_the_conversation() {
    let called = calls(&["c"]);
    let stray = answer("nobody", "success");
    let parts = [
        state(&json!({"messages": []})),
        state(&json!({"messages": [called]})),
        state(&json!({"messages": [called, stray]})),
        state(&json!({"messages": [called, stray, answer("c", "success")]})),
    ];
    let events = events(&parts, StreamEnd::Succeeded);
    // The call's activity is between the message and the stray result, so a client inserts the
    // call's own result before both.
    assert!(told(&events).contains(&begins("c", "running")));
    assert_eq!(ids_of_client(&wire(&events)), ["a", "of-nobody", "of-c"]);
}
