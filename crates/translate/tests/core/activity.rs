//! Activities: the life of a tool call, and the plan.

use crate::support::capture;
use crate::support::generate::{self, ScriptPart, fold, run_events};
use serde_json::{Value, json};
use threadway_translate::agui::Projector;
use threadway_translate::langgraph::ThreadState;
use threadway_translate::run::{
    self, EmitOptions, LastRun, LossReason, Open, Outcome, RunError, RunEvent, StreamEnd,
    Translator, View, Viewer,
};

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
fn a_tool_that_an_earlier_run_has_called_goes_on_with_the_run() {
    // A person has allowed `c`, and the client itself has run `d`.
    let held = [calls(&["c", "d"]), answer("d", "error")];
    let mut more = held.to_vec();
    more.push(answer("c", "success"));
    let parts = [state(&json!({"messages": held})), state(&json!({"messages": more}))];
    let expected = [begins("c", "running"), begins("d", "failed"), becomes("c", "completed")];
    assert_eq!(told(&events(&parts, StreamEnd::Succeeded)), expected);
    // A person has said something instead, so nobody runs the tool any more.
    let person = json!({"type": "human", "id": "h", "content": "never mind"});
    let parts = [state(&json!({"messages": [calls(&["c"]), person]}))];
    assert_eq!(told(&events(&parts, StreamEnd::Succeeded)), [""; 0]);
}

/// A chunk of a model's message in the node `model`.
fn chunk(id: &str, content: &str, call: Option<(&str, &str, &str)>) -> ScriptPart {
    let call =
        call.map(|(id, name, args)| json!({"index": 0, "id": id, "name": name, "args": args}));
    let calls: Vec<_> = call.into_iter().collect();
    let message =
        json!({"type": "AIMessageChunk", "id": id, "content": content, "tool_call_chunks": calls});
    part("messages", &json!([message, origin()]))
}

/// The model's word that a message is complete.
fn last(id: &str) -> ScriptPart {
    let message = json!({"type": "AIMessageChunk", "id": id, "content": "", "tool_call_chunks": [],
                         "chunk_position": "last"});
    part("messages", &json!([message, origin()]))
}

fn origin() -> Value {
    json!({"langgraph_node": "model", "langgraph_checkpoint_ns": "model:t"})
}

fn returns(messages: &[Value]) -> ScriptPart {
    part("updates", &json!({"model": {"messages": messages}}))
}

#[test]
fn a_call_that_no_state_commits_stops_with_its_run_at_the_latest() {
    let base = || state(&json!({"messages": []}));
    let called = || vec![base(), chunk("a", "", Some(("c", "search", "{}"))), last("a")];
    let asked = part("updates", &json!({"__interrupt__": [{"id": "i", "value": 1}]}));
    let said = json!({"type": "ai", "id": "b", "content": "At your service."});
    let answered = state(&json!({"messages": [said]}));
    let again = part("metadata", &json!({"run_id": "R", "attempt": 2}));
    let error = || StreamEnd::Failed(RunError::new("E", "m"));
    let lost = || StreamEnd::Lost { loss: LossReason::Unreadable, message: "gone".to_owned() };
    for (more, end) in [
        // A router reads the call as its structured output.
        (vec![part("updates", &json!({"model": null})), answered], StreamEnd::Succeeded),
        (vec![asked], StreamEnd::Succeeded),
        (vec![again], StreamEnd::Succeeded),
        (vec![], error()),
        (vec![], StreamEnd::Cancelled),
        (vec![], StreamEnd::Gone),
        (vec![], lost()),
    ] {
        let events = events(&[called(), more].concat(), end.clone());
        assert_eq!(told(&events), [begins("c", "running"), becomes("c", "stopped")], "{end:?}");
    }
}

/// How often each call starts on the wire, by the id.
fn starts(events: &[RunEvent]) -> Vec<String> {
    let starts = wire(events).into_iter().filter(|event| event["type"] == "TOOL_CALL_START");
    starts.map(|event| event["toolCallId"].as_str().unwrap().to_owned()).collect()
}

/// The arguments of a call in the end.
fn args(events: &[RunEvent], id: &str) -> String {
    fold(events).call(id).unwrap().1.args.to_text().decode().into_owned()
}

#[test]
fn a_node_that_runs_its_tools_itself_shows_each_once() {
    let whole = |args: Value| {
        json!({"type": "ai", "id": "a", "content": "",
               "tool_calls": [{"id": "c", "name": "search", "args": args}]})
    };
    let done = json!({"type": "ai", "id": "b", "content": "Found."});
    let result = answer("c", "success");
    for (spelt, meant) in [("", json!({})), ("{}", json!({})), ("", json!({"q": 1}))] {
        let all = [whole(meant.clone()), result.clone(), done.clone()];
        let parts = [
            state(&json!({"messages": []})),
            chunk("a", "", Some(("c", "search", spelt))),
            last("a"),
            chunk("b", "Found.", None),
            part("messages", &json!([result, origin()])),
            returns(&all),
            state(&json!({"messages": all})),
        ];
        let events = events(&parts, StreamEnd::Complete);
        assert_eq!(told(&events), [begins("c", "running"), becomes("c", "completed")]);
        assert_eq!(starts(&events), ["c"]);
        assert_eq!(args(&events, "c"), meant.to_string());
    }
}

#[test]
fn arguments_that_come_with_the_whole_message_start_no_second_call() {
    let call = |id: &str, q: u8| json!({"id": id, "name": "search", "args": {"q": q}});
    let whole =
        json!({"type": "ai", "id": "a", "content": "", "tool_calls": [call("c", 1), call("d", 2)]});
    let second = json!({"type": "AIMessageChunk", "id": "a", "content": "",
        "tool_call_chunks": [{"index": 1, "id": "d", "name": "search", "args": ""}]});
    let parts = [
        state(&json!({"messages": []})),
        chunk("a", "", Some(("c", "search", ""))),
        part("messages", &json!([second, origin()])),
        last("a"),
        returns(std::slice::from_ref(&whole)),
        state(&json!({"messages": [whole]})),
    ];
    let streamed = events(&parts, StreamEnd::Complete);
    assert_eq!(starts(&streamed), ["c", "d"]);
    let is_snapshot = |event: &&Value| event["type"] == "MESSAGES_SNAPSHOT";
    assert_eq!(wire(&streamed).iter().filter(is_snapshot).count(), 0);
    assert_eq!(
        (args(&streamed, "c"), args(&streamed, "d")),
        (r#"{"q":1}"#.into(), r#"{"q":2}"#.into())
    );
    // The stream may end before the node's return.
    let end = events(&parts[..4], StreamEnd::Complete).pop();
    assert!(
        matches!(end, Some(RunEvent::Ended { outcome: Outcome::Finished { .. }, .. })),
        "{end:?}"
    );
}

#[test]
fn a_result_before_its_call_leaves_the_tool_completed() {
    for (status, shown) in [("success", "completed"), ("error", "failed")] {
        let parts = [
            state(&json!({"messages": []})),
            part("messages", &json!([answer("c", status), origin()])),
            returns(&[calls(&["c"]), answer("c", status)]),
            state(&json!({"messages": [calls(&["c"]), answer("c", status)]})),
        ];
        let events = events(&parts, StreamEnd::Succeeded);
        assert_eq!(told(&events), [begins("c", shown)]);
        assert_eq!(starts(&events), ["c"]);
    }
}

#[test]
fn a_call_that_no_tool_can_run_is_no_work_for_the_client() {
    let invalid =
        |id: &str, args: &str| json!({"id": id, "name": "search", "args": args, "error": "x"});
    let message = |valid: Value, invalid: Value| json!({"type": "ai", "id": "a", "content": "", "tool_calls": valid, "invalid_tool_calls": invalid});
    let nameless = json!({"id": "c", "name": "", "args": {}});
    let valid = json!({"id": "d", "name": "search", "args": {}});
    for whole in [
        message(json!([valid]), json!([invalid("c", "{bad")])),
        message(json!([valid, nameless]), json!([])),
    ] {
        let parts = [state(&json!({"messages": []})), state(&json!({"messages": [whole]}))];
        let live = events(&parts, StreamEnd::Succeeded);
        let told = told(&live);
        assert!(told.contains(&becomes("d", "requested")), "{told:?}");
        assert!(told.iter().all(|told| !(told.starts_with("c:") && told.contains("requested"))));
        let rest = at_rest(&json!({"messages": [whole]}), LastRun::Ended);
        for events in [live, rest] {
            let end = wire(&events).pop().unwrap();
            assert_eq!(end["outcome"]["pendingToolCallIds"], json!(["d"]));
        }
    }
}

/// The events of an idle thread with this state.
fn at_rest(values: &Value, last: LastRun) -> Vec<RunEvent> {
    let state = json!({"values": values, "next": [], "tasks": []}).to_string();
    let (mut translator, mut out) = (Translator::named("T", None, "connect"), Vec::new());
    translator.on_state(&ThreadState::parse(&state).unwrap(), &mut out);
    translator.on_end(StreamEnd::Idle { last }, &mut out);
    out
}

#[test]
fn a_thread_at_rest_has_the_waiting_calls_of_its_last_run() {
    let pending = |events: &[RunEvent]| wire(events).pop().unwrap()["outcome"].clone();
    let (asks, person) = (calls(&["c", "d"]), json!({"type": "human", "id": "h", "content": "x"}));
    let done = json!({"type": "ai", "id": "b", "content": "Done."});
    for (messages, waiting) in [
        (json!([asks]), &["c", "d"][..]),
        (json!([asks, answer("c", "success")]), &["d"]),
        (json!([asks, answer("c", "success"), answer("d", "error")]), &[]),
        (json!([asks, person]), &[]),
        (json!([asks, done]), &[]),
        (json!([]), &[]),
    ] {
        let held = json!({"messages": messages});
        let live = events(&[state(&json!({"messages": []})), state(&held)], StreamEnd::Succeeded);
        let rest = at_rest(&held, LastRun::Ended);
        assert_eq!(pending(&rest), pending(&live));
        let shown: Vec<_> = waiting.iter().map(|id| begins(id, "requested")).collect();
        assert_eq!(told(&rest), shown);
        let ids = pending(&rest).get("pendingToolCallIds").cloned().unwrap_or(json!([]));
        assert_eq!(ids, json!(waiting));
        // A run that did not come to its end leaves no work for the client, live or later.
        for last in [LastRun::Stopped, LastRun::Failed(RunError::new("E", "m"))] {
            let rest = at_rest(&held, last);
            assert_eq!(told(&rest), [""; 0]);
            assert_eq!(pending(&rest), json!({"type": "success"}));
        }
    }
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
    let newcomer = run::resync(&view, Viewer::New, EmitOptions::default()).unwrap();
    assert_eq!(told(&newcomer), [plan.clone(), begins("c", "completed"), begins("d", "running")]);
    let mut open = Open::default();
    events[..at - 2].iter().for_each(|event| open.apply(event));
    let straggler = run::resync(&view, Viewer::Lagging(&open), EmitOptions::default()).unwrap();
    assert_eq!(told(&straggler), [plan, begins("c", "completed"), begins("d", "running")]);
    let follower = run::resync(&view, Viewer::Holds(&view), EmitOptions::default()).unwrap();
    assert_eq!(told(&follower), [""; 0], "it holds them all");
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
    let resync = run::resync(&view, Viewer::Holds(&before), EmitOptions::default()).unwrap();
    assert_eq!(resync.iter().filter(|event| is_result(event)).count(), 2, "results are events");
    // An AG-UI client reads the error of such a result from the activity alone.
    assert_eq!(told(&resync), [begins("c", "failed"), begins("d", "completed")]);
}

#[test]
fn a_viewer_of_the_earlier_messages_sees_which_result_of_an_earlier_run_is_an_error() {
    // The run begins with the result, so no activity shows what became of the tool.
    let after = json!({"type": "ai", "id": "b", "content": "", "tool_calls": []});
    let parts = [state(&json!({"messages": [calls(&["c"]), answer("c", "error"), after]}))];
    let view = fold(&events(&parts, StreamEnd::Succeeded));
    let before = View::with(view.messages()[..1].to_vec(), None);
    let resync = run::resync(&view, Viewer::Holds(&before), EmitOptions::default()).unwrap();
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
