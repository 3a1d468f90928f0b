//! One test for each fault that was found, named after it.

use crate::support::acp;
use crate::support::capture::{self, Translated};
use crate::support::generate::{self, ScriptPart};
use crate::support::judge;
use crate::support::reduce::Held;
use crate::support::schema::Schema;
use serde_json::{Value, json};
use threadway_translate::agui::{Input, Projector};
use threadway_translate::langgraph::ThreadState;
use threadway_translate::run::{LastRun, LossReason, RunEvent, StreamEnd, Translator};

/// Translates the parts of a run that succeeded, for a client that holds these messages.
fn told_to(held: &Value, parts: &[(&str, Value)]) -> Translated {
    told_until(StreamEnd::Succeeded, held, parts)
}

/// Translates the parts of a run with this end.
fn told_until(end: StreamEnd, held: &Value, parts: &[(&str, Value)]) -> Translated {
    let parts: Vec<_> = parts
        .iter()
        .map(|(event, data)| ScriptPart { event: (*event).to_owned(), data: data.to_string() })
        .collect();
    let mut translator = Translator::new("T", "R");
    let mut out = Vec::new();
    translator.start(&mut out);
    capture::feed(&mut translator, &generate::bytes(&parts, false), &mut out);
    translator.on_end(end, &mut out);
    let input = json!({"threadId": "T", "runId": "r", "protocolVersion": "1.0", "messages": held});
    let input = Input::parse(input.to_string().as_bytes()).unwrap();
    let mut told = capture::project(&out, Projector::new(input.client(), input.held()));
    told.view = translator.view().clone();
    told
}

fn told(parts: &[(&str, Value)]) -> Translated {
    told_to(&json!([]), parts)
}

fn chunk(id: &str, content: &Value) -> Value {
    json!({"type": "AIMessageChunk", "id": id, "content": content, "tool_call_chunks": []})
}

fn model(task: &str) -> Value {
    json!({"langgraph_node": "model", "langgraph_checkpoint_ns": format!("model:{task}")})
}

fn names<'a>(told: &'a Translated, prefix: &str) -> Vec<&'a str> {
    let names = told.events.iter().map(|event| event["type"].as_str().unwrap());
    names.filter(|name| name.starts_with(prefix)).collect()
}

/// One member of all events of one type, in order.
fn each<'a>(told: &'a Translated, kind: &str, member: &str) -> Vec<&'a str> {
    let of_kind = told.events.iter().filter(|event| event["type"] == kind);
    of_kind.map(|event| event[member].as_str().unwrap()).collect()
}

fn thoughts(told: &Translated) -> Vec<(String, String)> {
    let messages = told.view.messages().iter();
    let thoughts =
        messages.filter(|message| message.role == threadway_translate::run::Role::Reasoning);
    thoughts.map(|m| (m.id.to_string(), m.content.text().decode().into_owned())).collect()
}

#[test]
fn a_provider_id_on_the_first_chunk_only_makes_one_message() {
    let usage = json!({"input_tokens": 10, "output_tokens": 2});
    let mut last = chunk("lc_run--1", &json!(""));
    last["chunk_position"] = json!("last");
    last["usage_metadata"] = usage.clone();
    let whole =
        json!({"type": "ai", "id": "resp_1", "content": "Hello world", "usage_metadata": usage});
    let told = told(&[
        ("values", json!({"messages": []})),
        ("messages", json!([chunk("resp_1", &json!([])), model("t1")])),
        ("messages", json!([chunk("lc_run--1", &json!("Hello ")), model("t1")])),
        ("messages", json!([chunk("lc_run--1", &json!("world")), model("t1")])),
        ("messages", json!([last, model("t1")])),
        ("updates", json!({"model": {"messages": [whole]}})),
        ("values", json!({"messages": [whole]})),
    ]);
    let texts = judge::streamed_text(&told.events);
    assert_eq!(
        texts.into_iter().collect::<Vec<_>>(),
        [("resp_1".to_owned(), "Hello world".to_owned())]
    );
    assert_eq!(told.events.last().unwrap()["usage"][0]["inputTokens"], 10);
    assert_eq!(names(&told, "MESSAGES"), [""; 0]);
}

/// aegra sends whole messages of a model in the form of chunks.
#[test]
fn a_whole_message_in_the_form_of_a_chunk_takes_no_other_messages_text() {
    let told = told(&[
        ("values", json!({"messages": []})),
        ("messages", json!([chunk("child-pre", &json!("before")), model("t1")])),
        ("messages", json!([chunk("lc_run--1", &json!("Hello ")), model("t1")])),
        ("messages", json!([chunk("lc_run--1", &json!("world")), model("t1")])),
    ]);
    let texts = judge::streamed_text(&told.events);
    let expected = [("child-pre", "before"), ("lc_run--1", "Hello world")];
    assert_eq!(texts, expected.map(|(id, text)| (id.to_owned(), text.to_owned())).into());
}

#[test]
fn blocks_of_one_reasoning_item_are_one_thought() {
    let piece = |index: &str, id: Option<&str>, text: &str| json!([{"type": "reasoning", "index": index, "id": id, "reasoning": text}]);
    let whole = json!({"type": "ai", "id": "m", "content": [
        {"type": "reasoning", "index": "lc_rs_30", "id": "rs_1", "reasoning": "First."},
        {"type": "reasoning", "index": "lc_rs_31", "id": "rs_1", "reasoning": "Second."},
    ]});
    let told = told(&[
        ("values", json!({"messages": []})),
        ("messages", json!([chunk("m", &piece("lc_rs_30", Some("rs_1"), "")), model("t")])),
        ("messages", json!([chunk("m", &piece("lc_rs_30", None, "First.")), model("t")])),
        ("messages", json!([chunk("m", &piece("lc_rs_31", Some("rs_1"), "")), model("t")])),
        ("messages", json!([chunk("m", &piece("lc_rs_31", None, "Second.")), model("t")])),
        ("values", json!({"messages": [whole]})),
    ]);
    assert_eq!(thoughts(&told), [("rs_1".to_owned(), "First.\nSecond.".to_owned())]);
}

#[test]
fn reasoning_that_is_told_twice_is_one_thought() {
    let twice = |text: &str| {
        let mut chunk = chunk("m", &json!([{"type": "reasoning", "reasoning": text, "index": 0}]));
        chunk["additional_kwargs"] = json!({"reasoning_content": text});
        json!([chunk, model("t")])
    };
    let told = told(&[("messages", twice("Let me ")), ("messages", twice("think."))]);
    assert_eq!(thoughts(&told), [("m:reasoning:0".to_owned(), "Let me think.".to_owned())]);
}

#[test]
fn reasoning_beside_the_content_goes_on_after_text() {
    let thinks = |text: &str| {
        let mut chunk = chunk("m", &json!(""));
        chunk["additional_kwargs"] = json!({"reasoning_content": text});
        json!([chunk, model("t")])
    };
    let says = |text: &str| json!([chunk("m", &json!(text)), model("t")]);
    let parts = [thinks("A"), says("one "), thinks("B"), says("two")];
    let parts: Vec<_> = parts.into_iter().map(|part| ("messages", part)).collect();
    assert_eq!(thoughts(&told(&parts)), [("m:reasoning:0".to_owned(), "AB".to_owned())]);
}

#[test]
fn a_list_of_lists_is_state_and_no_conversation() {
    let told = told(&[("values", json!({"messages": [["human", "hi"], ["ai", "yo"]]}))]);
    let state = told.view.state().unwrap().to_json();
    assert_eq!(state.get(), r#"{"messages":[["human","hi"],["ai","yo"]]}"#);
    assert_eq!(names(&told, "MESSAGES"), [""; 0]);
}

#[test]
fn steps_end_with_their_superstep_where_nothing_else_tells() {
    let ai = json!({"type": "ai", "id": "a", "content": "x"});
    let told = told(&[
        ("values", json!({"messages": []})),
        ("messages", json!([chunk("a", &json!("x")), model("t1")])),
        ("values", json!({"messages": [ai]})),
        ("messages", json!([chunk("b", &json!("y")), model("t2")])),
    ]);
    let steps: Vec<_> = told.events.iter().filter(|e| e["type"] == "STEP_STARTED").collect();
    assert_eq!(steps.iter().map(|step| &step["stepName"]).collect::<Vec<_>>(), ["model", "model"]);
}

#[test]
fn one_emit_flag_alone_is_obeyed() {
    let mut origin = model("t");
    origin["copilotkit:emit-messages"] = json!(false);
    let event = |name: &str, data: Value| {
        ("events", json!({"event": name, "name": "Fake", "data": data, "metadata": origin}))
    };
    let mut whole = chunk("m", &json!("secret"));
    whole["tool_calls"] = json!([{"id": "c", "name": "t", "args": {}}]);
    let told = told(&[
        event("on_chat_model_stream", json!({"chunk": chunk("m", &json!("secret"))})),
        event("on_chat_model_end", json!({"output": whole})),
    ]);
    assert_eq!(names(&told, "TEXT"), [""; 0]);
    assert_eq!(names(&told, "TOOL_CALL_START").len(), 1);
}

#[test]
fn a_second_attempt_starts_its_subagents_anew() {
    let metadata = ("metadata", json!({"run_id": "R", "attempt": 1}));
    let origin = json!({"langgraph_node": "m", "langgraph_checkpoint_ns": "child:t1|m:t2"});
    let speaks = |id: &str| ("messages|child:t1", json!([chunk(id, &json!("x")), origin]));
    let told = told(&[metadata.clone(), speaks("a"), metadata, speaks("b")]);
    let started = told.events.iter().filter(|event| event["type"] == "SUBAGENT_STARTED");
    let ids: Vec<_> = started.map(|event| event["subagentRunId"].as_str().unwrap()).collect();
    assert_eq!(ids, ["t1", "t1~2"]);
}

/// Two calls of a tool, in one message, and the state with which the subgraph of each begins.
fn subagents_at_once(descriptions: [&str; 2]) -> Vec<(String, Option<String>)> {
    let [one, two] = descriptions;
    let call = |id: &str, text: &str| json!({"id": id, "name": "task", "args": {"kind": "helper", "description": text}});
    let asks = json!({"type": "ai", "id": "m", "content": "", "tool_calls": [call("c1", one), call("c2", two)]});
    let begins = |text: &str| json!({"messages": [{"type": "human", "id": "h", "content": text}]});
    let origin = |task: &str| json!({"langgraph_node": "model", "langgraph_checkpoint_ns": format!("tools:{task}|model:{task}m")});
    let told = told(&[
        ("values", json!({"messages": []})),
        ("updates", json!({"model": {"messages": [asks]}})),
        ("values|tools:t2", begins(two)),
        ("values|tools:t1", begins(one)),
        ("messages|tools:t1", json!([chunk("a", &json!("x")), origin("t1")])),
        ("messages|tools:t2", json!([chunk("b", &json!("y")), origin("t2")])),
    ]);
    let started = told.events.iter().filter(|event| event["type"] == "SUBAGENT_STARTED");
    let of = |event: &Value, member: &str| event[member].as_str().map(str::to_owned);
    started
        .map(|event| (of(event, "subagentRunId").unwrap(), of(event, "parentToolCallId")))
        .collect()
}

#[test]
fn subagents_at_once_work_for_the_calls_that_were_made_with_their_texts() {
    let work = |task: &str, call: &str| (task.to_owned(), Some(call.to_owned()));
    assert_eq!(subagents_at_once(["A \"1\"", "B"]), [work("t1", "c1"), work("t2", "c2")]);
    // Two calls with one text are two calls: the first subgraph has the first.
    assert_eq!(subagents_at_once(["same", "same"]), [work("t1", "c2"), work("t2", "c1")]);
}

#[test]
fn a_subagent_that_begins_in_silence_has_the_name_that_its_call_asks_for() {
    let call =
        json!({"id": "c", "name": "task", "args": {"description": "x", "subagent_type": "helper"}});
    let asks = json!({"type": "ai", "id": "m", "content": "", "tool_calls": [call]});
    let told = told(&[
        ("values", json!({"messages": []})),
        ("updates", json!({"model": {"messages": [asks]}})),
        ("updates|tools:t1", json!({"before": null})),
    ]);
    assert_eq!(each(&told, "SUBAGENT_STARTED", "name"), ["helper"]);
}

#[test]
fn an_attempt_that_begins_behind_a_live_join_is_a_new_one() {
    let told = told(&[
        ("messages", json!([chunk("a", &json!("half an ans")), model("t1")])),
        ("metadata", json!({"run_id": "R", "attempt": 1})),
        ("messages", json!([chunk("b", &json!("whole")), model("t2")])),
    ]);
    let texts = names(&told, "TEXT");
    assert_eq!(texts[..3], ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"]);
}

#[test]
fn fragments_without_an_index_find_their_call_by_its_id() {
    let fragment =
        |id: &str, name: Option<&str>, args: &str| json!({"id": id, "name": name, "args": args});
    let mut first = chunk("m", &json!(""));
    first["tool_call_chunks"] =
        json!([fragment("c1", Some("t"), "{"), fragment("c2", Some("u"), "{")]);
    let mut second = chunk("m", &json!(""));
    second["tool_call_chunks"] = json!([fragment("c1", None, "}"), fragment("c2", None, "}")]);
    let told = told(&[
        ("messages", json!([first, model("t")])),
        ("messages", json!([second, model("t")])),
    ]);
    for call in ["c1", "c2"] {
        let (_, call) = told.view.call(call).unwrap();
        assert_eq!(call.args.to_text().decode(), "{}");
    }
}

#[test]
fn a_call_whose_name_comes_late_still_announces_which_arguments_predict_the_state() {
    let predicted = json!([{"state_key": "draft", "tool": "write", "tool_argument": "text"}]);
    let mut origin = model("t");
    origin["predict_state"] = predicted.clone();
    let fragment = |name: Option<&str>, args: &str| {
        let mut piece = chunk("m", &json!(""));
        let fragment = json!({"id": "c", "index": 0, "name": name, "args": args});
        piece["tool_call_chunks"] = json!([fragment]);
        ("messages", json!([piece, origin]))
    };
    let told = told(&[fragment(None, "{"), fragment(Some("write"), "}"), fragment(None, "")]);
    let custom: Vec<_> = told.events.iter().filter(|event| event["type"] == "CUSTOM").collect();
    assert_eq!(custom.len(), 1, "{custom:?}");
    assert_eq!((&custom[0]["name"], &custom[0]["value"]), (&json!("PredictState"), &predicted));
}

#[test]
fn what_a_resume_tells_again_costs_nothing_again() {
    let said = json!({"type": "ai", "id": "a", "content": "left says",
        "usage_metadata": {"input_tokens": 5, "output_tokens": 5}});
    let told = told(&[
        ("values", json!({"messages": []})),
        ("updates", json!({"left": {"messages": [said]}, "__metadata__": {"cached": true}})),
        ("values", json!({"messages": [said]})),
    ]);
    assert!(told.events.last().unwrap().get("usage").is_none());
    assert_eq!(judge::streamed_text(&told.events)["a"], "left says");
}

#[test]
fn what_a_client_holds_and_the_thread_does_not_goes_even_if_the_stream_left_nothing_to_do() {
    let held = json!([
        {"id": "stale", "role": "user", "content": "gone"},
        {"id": "h", "role": "user", "content": "hi"},
    ]);
    let messages = json!([
        {"type": "human", "id": "h", "content": "hi"},
        {"type": "ai", "id": "a", "content": "yo"},
    ]);
    let told = told_to(
        &held,
        &[
            ("updates", json!({"agent": {"messages": messages}})),
            ("values", json!({"messages": messages})),
        ],
    );
    let last = told.events.iter().rfind(|event| event["type"] == "MESSAGES_SNAPSHOT").unwrap();
    let ids: Vec<_> =
        last["messages"].as_array().unwrap().iter().map(|m| m["id"].clone()).collect();
    assert_eq!(ids, ["h", "a"]);
}

#[test]
fn a_call_comes_back_under_another_owner_by_another_name() {
    let ai = |calls: Value| json!({"type": "ai", "id": "m", "content": "", "tool_calls": calls});
    let call = json!([{"id": "c", "name": "t", "args": {"a": 1}}]);
    // A second attempt withdraws the subagent's call, and the agent makes the same call itself.
    let told = told(&[
        ("messages/complete|child:t", json!([ai(call.clone())])),
        ("values", json!({"messages": [ai(json!([]))]})),
        ("metadata", json!({"run_id": "R", "attempt": 2})),
        ("messages", json!([ai(call), model("model:t2")])),
    ]);
    let starts = told.events.iter().filter(|event| event["type"] == "TOOL_CALL_START");
    let ids: Vec<_> = starts.map(|event| event["toolCallId"].clone()).collect();
    assert_eq!(ids, ["c", "c~m"]);
}

#[test]
fn an_approval_of_the_javascript_middleware_asks_for_each_call() {
    let call = |id: &str, name: &str| json!({"id": id, "name": name, "args": {"a": 1}});
    let ai = json!({"type": "ai", "id": "m", "content": "", "tool_calls": [call("c1", "t"), call("c2", "u")]});
    let action = |name: &str| json!({"name": name, "args": {"a": 1}, "description": "May it?"});
    let allows = |name: &str| json!({"actionName": name, "allowedDecisions": ["approve", "edit"]});
    let asked = json!({"actionRequests": [action("t"), action("u")], "reviewConfigs": [allows("t"), allows("u")]});
    let told = told(&[
        ("values", json!({"messages": [ai]})),
        ("values", json!({"__interrupt__": [{"id": "i", "value": asked}]})),
    ]);
    let interrupts = &told.events.last().unwrap()["outcome"]["interrupts"];
    let of = |key: &str| [&interrupts[0][key], &interrupts[1][key]];
    assert_eq!(of("id"), ["i:0", "i:1"]);
    assert_eq!(of("toolCallId"), ["c1", "c2"]);
    let properties = &interrupts[0]["responseSchema"]["properties"];
    assert_eq!(properties["type"]["enum"], json!(["approve", "edit"]));
    assert_eq!(properties["editedAction"]["type"], "object");
}

#[test]
fn a_name_that_only_the_commit_tells_costs_no_snapshot() {
    let mut chunk = chunk("m", &json!("Hello"));
    chunk["type"] = json!("ai");
    let whole = json!({"type": "ai", "id": "m", "content": "Hello", "name": "model"});
    let told = told(&[
        ("values", json!({"messages": []})),
        ("messages", json!([chunk, model("t1")])),
        ("updates", json!({"model": [{"messages": [whole]}]})),
        ("values", json!({"messages": [whole]})),
    ]);
    assert_eq!(names(&told, "MESSAGES"), [""; 0]);
}

#[test]
fn a_task_with_a_result_waits_for_no_answer() {
    let task = |id: &str, result: Value| json!({"id": id, "name": "ask", "error": null, "interrupts": [{"id": id, "value": "?"}], "result": result});
    let state = json!({"values": {}, "next": ["ask"], "tasks": [task("left", json!({"a": 1})), task("right", json!(null))]});
    let state = state.to_string();
    let interrupts = ThreadState::parse(&state).unwrap().interrupts;
    assert_eq!(interrupts.iter().map(|i| &*i.id).collect::<Vec<_>>(), ["right"]);
}

#[test]
fn questions_without_ids_are_all_asked_and_have_the_same_names_in_the_state() {
    let asks = |value: Value, ns: Value| json!({"value": value, "resumable": true, "ns": ns, "when": "during"});
    // Two tasks of one node whose namespaces differ, and two that cannot be distinguished.
    let tasks = [
        asks(json!("Sure?"), json!(["ask:t1"])),
        asks(json!("Sure?"), json!(["ask:t2"])),
        json!({"value": {"q": [1, "a b"]}}),
        json!({"value": {"q": [1, "a b"]}}),
    ];
    let mut parts = vec![("values", json!({"messages": []}))];
    parts.extend(tasks.iter().map(|task| ("updates", json!({"__interrupt__": [task]}))));
    parts.push(("values", json!({"messages": [], "__interrupt__": tasks})));
    let told = told(&parts);
    let asked = told.events.last().unwrap()["outcome"]["interrupts"].as_array().unwrap().clone();
    let asked: Vec<_> = asked.iter().map(|asked| asked["id"].as_str().unwrap()).collect();
    assert_eq!(asked.len(), tasks.len(), "{asked:?}");

    let tasks: Vec<_> = tasks.iter().map(|task| json!({"interrupts": [task]})).collect();
    // A server may pretty-print its answers.
    for state in [json!({"tasks": tasks}).to_string(), format!("{:#}", json!({"tasks": tasks}))] {
        let state = ThreadState::parse(&state).unwrap();
        let names: Vec<_> = state.interrupts.iter().map(|open| &*open.id).collect();
        assert_eq!(names, asked);
    }
}

#[test]
fn what_comes_with_the_finish_reason_is_told_too() {
    let mut last = chunk("m", &json!("lo"));
    last["tool_call_chunks"] = json!([{"index": 0, "id": "c", "name": "t", "args": "{\"x\":1}"}]);
    last["response_metadata"] = json!({"finish_reason": "tool_calls"});
    last["chunk_position"] = json!("last");
    let call = json!({"id": "c", "name": "t", "args": {"x": 1}});
    let whole = json!({"type": "ai", "id": "m", "content": "Hello", "tool_calls": [call]});
    let told = told(&[
        ("values", json!({"messages": []})),
        ("messages", json!([chunk("m", &json!("Hel")), model("t")])),
        ("messages", json!([last, model("t")])),
        ("values", json!({"messages": [whole]})),
    ]);
    assert_eq!(each(&told, "TEXT_MESSAGE_CONTENT", "delta"), ["Hel", "lo"]);
    assert_eq!(each(&told, "TOOL_CALL_START", "toolCallId"), ["c"]);
    assert_eq!(each(&told, "TOOL_CALL_ARGS", "delta"), [r#"{"x":1}"#]);
    assert_eq!(names(&told, "MESSAGES"), [""; 0]);
}

#[test]
fn a_message_after_a_muted_one_of_the_same_node_has_its_start() {
    for (mark, value) in [("tags", json!(["nostream"])), ("emit-messages", json!(false))] {
        let mut muted = model("t");
        muted[mark] = value;
        let told = told(&[
            ("messages", json!([chunk("internal", &json!("secret")), muted])),
            ("messages", json!([chunk("internal", &json!("secret")), muted])),
            ("messages", json!([chunk("answer", &json!("Hi")), model("t")])),
        ]);
        let expected = ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"];
        assert_eq!(names(&told, "TEXT"), expected, "{mark}");
        for kind in expected {
            assert_eq!(each(&told, kind, "messageId"), ["answer"], "{mark}");
        }
    }
}

#[test]
fn what_is_tagged_nostream_is_shown_in_no_stream_mode() {
    let tags = json!(["nostream"]);
    let mut muted = model("t");
    muted["tags"] = tags.clone();
    let event = |name: &str, data: Value| {
        ("events", json!({"event": name, "tags": tags, "data": data, "metadata": model("t")}))
    };
    let mut calls = chunk("m", &json!("secret"));
    calls["tool_call_chunks"] = json!([{"index": 0, "id": "c", "name": "t", "args": "{}"}]);
    let whole = json!({"type": "ai", "id": "m", "content": "secret"});
    for part in [
        ("messages", json!([calls, muted])),
        ("messages", json!([whole, muted])),
        event("on_chat_model_stream", json!({"chunk": calls})),
        event("on_chat_model_end", json!({"output": whole})),
    ] {
        let told = told(std::slice::from_ref(&part));
        assert_eq!(names(&told, "TEXT"), [""; 0], "{part:?}");
        assert_eq!(names(&told, "TOOL"), [""; 0], "{part:?}");
    }
}

#[test]
fn a_run_that_fails_says_what_it_has_spent() {
    let mut last = chunk("m", &json!("Hi"));
    last["usage_metadata"] = json!({"input_tokens": 10, "output_tokens": 2});
    let parts = [
        ("messages", json!([last, model("t")])),
        ("error", json!({"error": "ValueError", "message": "boom"})),
    ];
    let told = told_until(StreamEnd::Complete, &json!([]), &parts);
    let end = told.events.last().unwrap();
    assert_eq!((&end["type"], &end["code"]), (&json!("RUN_ERROR"), &json!("ValueError")));
    let usage = &end["usage"][0];
    assert_eq!((&usage["inputTokens"], &usage["outputTokens"]), (&json!(10), &json!(2)));
}

#[test]
fn a_signature_in_a_chunk_of_its_own_belongs_to_the_thought_before_it() {
    let piece = |block: Value| ("messages", json!([chunk("m", &json!([block])), model("t")]));
    let told = told(&[
        piece(json!({"type": "thinking", "thinking": "Let me ", "index": 0})),
        piece(json!({"type": "thinking", "thinking": "think.", "index": 0})),
        piece(json!({"type": "thinking", "signature": "SIG", "index": 0})),
        piece(json!({"type": "text", "text": "Hi", "index": 1})),
    ]);
    assert_eq!(thoughts(&told), [("m:reasoning:0".to_owned(), "Let me think.".to_owned())]);
    assert_eq!(each(&told, "REASONING_START", "messageId"), ["m:reasoning:0"]);
    assert_eq!(each(&told, "REASONING_ENCRYPTED_VALUE", "entityId"), ["m:reasoning:0"]);
    assert_eq!(each(&told, "REASONING_ENCRYPTED_VALUE", "encryptedValue"), ["SIG"]);
}

#[test]
fn a_developers_message_stays_one() {
    let held = json!([{"id": "d", "role": "developer", "content": "be brief"}]);
    let committed = json!({"type": "system", "id": "d", "content": "be brief", "additional_kwargs": {"__openai_role__": "developer"}});
    let told = told_to(&held, &[("values", json!({"messages": [committed]}))]);
    assert_eq!(names(&told, "MESSAGES"), [""; 0]);
}

#[test]
fn nesting_that_upstream_chooses_exhausts_no_stack() {
    let depth = 60_000;
    let file = format!("{}1{}", "{\"type\":\"file\",\"file\":".repeat(depth), "}".repeat(depth));
    let namespace = vec!["child:t"; depth].join("|");
    let parts = [
        ScriptPart {
            event: "values".to_owned(),
            data: format!(r#"{{"messages":[{{"type":"human","id":"h","content":[{file}]}}]}}"#),
        },
        ScriptPart {
            event: format!("messages|{namespace}"),
            data: json!([chunk("m", &json!("x")), {}]).to_string(),
        },
    ];
    let bytes = generate::bytes(&parts, false);
    let input = json!({"threadId": "T", "runId": "r", "messages": [], "protocolVersion": "1.0"});
    let translate = move || capture::translate(&bytes, &input);
    let small = std::thread::Builder::new().stack_size(512 * 1024).spawn(translate).unwrap();
    let told = small.join().unwrap();
    assert_eq!(names(&told, "SUBAGENT_STARTED").len(), 32);
}

#[test]
fn a_call_of_a_message_that_changes_hands_gets_an_id_for_each_owner() {
    let calls = |id: &str| {
        let call = json!({"id": "c", "name": "t", "args": {"a": 1}});
        json!({"type": "ai", "id": id, "content": "", "tool_calls": [call]})
    };
    let of = |namespace: &str| {
        let node = "model";
        json!({"langgraph_node": node, "langgraph_checkpoint_ns": namespace, "lc_agent_name": "a"})
    };
    let told = told(&[
        ("messages", json!([calls("m0"), of("")])),
        ("messages", json!([calls("m1"), of("child:t9|model:t4")])),
        ("values", json!({"messages": [{"type": "human", "id": "m1", "content": ""}]})),
        ("metadata", json!({"run_id": "R", "attempt": 1})),
        ("messages", json!([calls("m1"), of("")])),
    ]);
    let started = told.events.iter().filter(|event| event["type"] == "TOOL_CALL_START");
    let ids: Vec<_> = started.map(|event| event["toolCallId"].as_str().unwrap()).collect();
    assert_eq!(ids, ["c", "c~m1", "c~m1~m1"]);
    assert_eq!(judge::legal(&Schema::load(), &told.events), Ok(()));
}

#[test]
fn a_call_ends_before_a_snapshot_takes_its_message_away() {
    let mut translator = Translator::new("T", "R");
    let call = json!({"id": "c", "name": "t", "args": {}});
    let said = json!([{"type": "ai", "id": "m1", "content": "b", "tool_calls": [call]}]);
    let said = ScriptPart { event: "messages/partial".to_owned(), data: said.to_string() };
    let mut events = Vec::new();
    capture::feed(&mut translator, &generate::bytes(&[said], false), &mut events);
    // The thread does not have that message, and the client has not received the thread's content
    // yet.
    let state = json!({"values": {"messages": [{"type": "human", "id": "m0", "content": "hi"}]}});
    let state = state.to_string();
    let state = ThreadState::parse(&state).unwrap();
    translator.on_base(&state.values.unwrap(), &mut events);
    let at = |is: fn(&RunEvent) -> bool| events.iter().position(is).unwrap();
    let ended = at(|event| matches!(event, RunEvent::CallEnded { .. }));
    assert!(ended < at(|event| matches!(event, RunEvent::Messages(_))), "{events:?}");
    // A client that connects now does not get the end of that message later.
    let told = events.len();
    translator.on_end(StreamEnd::Succeeded, &mut events);
    let later = &events[told..];
    assert!(!later.iter().any(|event| matches!(event, RunEvent::CallEnded { .. })), "{later:?}");
}

#[test]
fn a_call_of_a_person_makes_a_message_that_stays_with_its_owner() {
    let call = json!({"id": "c", "name": "t", "args": {"a": 1}});
    let origin = json!({"langgraph_node": "model", "langgraph_checkpoint_ns": ""});
    let emitted = json!({
        "event": "on_custom_event", "name": "copilotkit_manually_emit_tool_call",
        "data": {"id": "c", "name": "t", "args": {"a": 1}}, "metadata": origin,
    });
    let told = told(&[
        ("values", json!({"messages": [{"type": "human", "id": "m1", "content": ""}]})),
        (
            "messages",
            json!([{"type": "ai", "id": "m1", "content": "", "tool_calls": [call]}, origin]),
        ),
        ("metadata", json!({"run_id": "R", "attempt": 1})),
        ("events|child:t9", emitted),
    ]);
    let of = |id: &str| {
        told.events
            .iter()
            .find(|e| e["type"] == "TOOL_CALL_START" && e["toolCallId"] == id)
            .unwrap()
    };
    assert_eq!(of("c~c")["parentMessageId"], "c");
    assert_eq!(of("c~c").get("subagentRunId"), of("c").get("subagentRunId"));
}

#[test]
fn clients_of_a_lost_run_agree_about_the_order_of_results() {
    // A client with the call's activity between the message and the stray result inserts the late
    // result before that result. A client that connected later has no such activity, and inserts
    // after it.
    let call = json!({"id": "c0", "name": "t", "args": {"a": null}});
    let asks = json!({"type": "ai", "id": "m2", "content": "", "tool_calls": [call]});
    let result = |id: Value, call: &str| json!({"type": "tool", "id": id, "content": "", "tool_call_id": call});
    let parts = [
        ("values", json!({"messages": []})),
        ("updates", json!({"model": {"messages": [asks]}})),
        ("updates", json!({"model": {"messages": [result(json!("m0"), "c1")]}})),
        ("values", json!({"messages": [result(Value::Null, "c0")]})),
    ];
    let end = StreamEnd::Lost { loss: LossReason::Unreadable, message: "gone".to_owned() };
    let told = told_until(end, &json!([]), &parts);
    let last = told.events.iter().rfind(|event| event["type"] == "MESSAGES_SNAPSHOT").unwrap();
    let ids = last["messages"].as_array().unwrap().iter().map(|message| message["id"].as_str());
    let held = told.view.messages().iter().map(|message| Some(&*message.id));
    assert!(ids.eq(held), "{last}");
}

#[test]
fn a_javascript_graph_of_the_python_server_speaks_token_by_token_in_events_alone() {
    // If no other mode is requested, the server's runner puts the name of its own mode before each
    // chunk, and the namespace of the root if subgraphs are requested.
    let origin = json!({"langgraph_node": "model", "langgraph_checkpoint_ns": "model:t1"});
    let token = |text: &str| json!({"type": "ai", "id": "m1", "content": text});
    let event = |kind: &str, data: Value| {
        let event =
            json!({"event": kind, "name": "ScriptedModel", "data": data, "metadata": origin});
        ("events", event)
    };
    for before in [json!([]), json!(["debug"]), json!([[], "debug"])] {
        let wrapped = |text: &str| match before.as_array().unwrap().as_slice() {
            [] => token(text),
            words => words.iter().cloned().chain([token(text)]).collect(),
        };
        let told = told(&[
            event("on_chat_model_start", json!({"chunk": ["debug", null]})),
            event("on_chat_model_stream", json!({"chunk": wrapped("one ")})),
            event("on_chat_model_stream", json!({"chunk": wrapped("two")})),
            event("on_chat_model_end", json!({"output": token("one two")})),
        ]);
        assert_eq!(each(&told, "TEXT_MESSAGE_CONTENT", "delta"), ["one ", "two"], "{before}");
    }
}

fn says(id: &str, text: &str) -> (&'static str, Value) {
    ("messages", json!([chunk(id, &json!(text)), model("t")]))
}

fn ends(id: &str) -> (&'static str, Value) {
    let mut last = chunk(id, &json!(""));
    last["chunk_position"] = json!("last");
    ("messages", json!([last, model("t")]))
}

fn ai(id: &str, text: &str) -> Value {
    json!({"type": "ai", "id": id, "content": text})
}

/// The return of the node `model`, and the state after it.
fn commits(messages: &[Value]) -> [(&'static str, Value); 2] {
    let update = json!({"model": {"messages": messages}});
    [("updates", update), ("values", json!({"messages": messages}))]
}

/// The ids and the texts of a client's messages in the end.
fn held(told: &Translated) -> Vec<(String, String)> {
    let text = |m: &threadway_translate::run::Message| m.content.text().decode().into_owned();
    told.view.messages().iter().map(|m| (m.id.to_string(), text(m))).collect()
}

/// All text that was streamed, in order.
fn streamed(told: &Translated) -> String {
    each(told, "TEXT_MESSAGE_CONTENT", "delta").concat()
}

/// All text that an editor is sent of the agent, in order.
fn of_editor(parts: &[(&str, Value)]) -> Vec<String> {
    let parts: Vec<_> = parts.iter().map(|(event, data)| ScriptPart::new(event, data)).collect();
    let bytes = generate::bytes(&parts, false);
    let (_, events) = generate::run_events(&bytes, bytes.len(), None, StreamEnd::Succeeded);
    let mut projector = acp::newcomer();
    let mut said = Vec::new();
    for event in &events {
        projector.project(event, &mut |update| {
            let update = serde_json::to_value(update).unwrap();
            let kind = update["sessionUpdate"].as_str().unwrap_or_default();
            if kind.starts_with("agent_") {
                said.push(update["content"]["text"].as_str().unwrap_or_default().to_owned());
            }
        });
    }
    said
}

#[test]
fn models_that_speak_at_once_in_one_node_stay_apart() {
    let opening = |id: &str| ("messages", json!([chunk(id, &json!([])), model("t")]));
    let base = ("values", json!({"messages": []}));
    for prefix in ["lc_run--", "run--"] {
        let (a, b) = (format!("{prefix}A"), format!("{prefix}B"));
        for (one, other) in [(&a, &b), (&b, &a)] {
            let text =
                |id: &str, of_a: &str, of_b: &str| says(id, if *id == *a { of_a } else { of_b });
            let mut parts = vec![
                base.clone(),
                opening("resp_A"),
                opening("resp_B"),
                text(one, "alpha ", "beta "),
                text(other, "alpha ", "beta "),
                text(one, "one", "two"),
                text(other, "one", "two"),
                ends(one),
                ends(other),
            ];
            parts.extend(commits(&[ai("resp_A", "alpha one"), ai("resp_B", "beta two")]));
            let told = told(&parts);
            let texts = judge::streamed_text(&told.events);
            let mut said: Vec<_> = texts.values().filter(|text| !text.is_empty()).collect();
            said.sort();
            assert_eq!(said, ["alpha one", "beta two"]);
            let expected = [("resp_A", "alpha one"), ("resp_B", "beta two")];
            assert_eq!(held(&told), expected.map(|(id, text)| (id.to_owned(), text.to_owned())));
            let said = of_editor(&parts);
            assert_eq!(said.len(), 4, "{said:?}");
        }
    }
}

#[test]
fn models_of_two_providers_at_once_are_told_apart_by_their_names() {
    let of = |name: &str, mut part: (&'static str, Value)| {
        part.1[1]["ls_model_name"] = json!(name);
        part
    };
    let opening = |id: &str| ("messages", json!([chunk(id, &json!([])), model("t")]));
    let mut parts = vec![
        ("values", json!({"messages": []})),
        of("a", opening("resp_A")),
        of("b", opening("resp_B")),
        of("b", says("lc_run--B", "beta ")),
        of("a", says("lc_run--A", "alpha ")),
        of("b", says("lc_run--B", "two")),
        of("a", says("lc_run--A", "one")),
    ];
    parts.extend(commits(&[ai("resp_A", "alpha one"), ai("resp_B", "beta two")]));
    let texts = judge::streamed_text(&told(&parts).events);
    let expected = [("resp_A", "alpha one"), ("resp_B", "beta two")];
    assert_eq!(texts, expected.map(|(id, text)| (id.to_owned(), text.to_owned())).into());
}

#[test]
fn tokens_that_are_counted_after_the_answer_are_counted_once() {
    let usage = json!({"input_tokens": 100, "output_tokens": 20});
    for prefix in ["lc_run--", "run--"] {
        for is_committed in [true, false] {
            let mut finish = chunk("chatcmpl-1", &json!(""));
            finish["response_metadata"] = json!({"finish_reason": "stop"});
            let id = format!("{prefix}X");
            let mut cost = chunk(&id, &json!(""));
            cost["usage_metadata"] = usage.clone();
            let mut whole = ai("chatcmpl-1", "Hello world");
            whole["usage_metadata"] = usage.clone();
            let mut parts = vec![
                ("values", json!({"messages": []})),
                says("chatcmpl-1", "Hello "),
                says("chatcmpl-1", "world"),
                ("messages", json!([finish, model("t")])),
                ("messages", json!([cost, model("t")])),
                ends(&id),
            ];
            if is_committed {
                parts.extend(commits(&[whole]));
            }
            let end = told(&parts).events.pop().unwrap();
            assert_eq!(end["usage"], json!([{"inputTokens": 100, "outputTokens": 20}]));
        }
    }
}

#[test]
fn a_message_whose_id_changes_is_said_once() {
    let thinks = json!([{"type": "reasoning", "reasoning": "think", "index": 0}]);
    let thought = |id: &str| ("messages", json!([chunk(id, &thinks), model("t")]));
    let whole = json!({"type": "ai", "id": "msg_2",
        "content": [{"type": "reasoning", "reasoning": "think"}, {"type": "text", "text": "answer here"}]});
    let base = ("values", json!({"messages": []}));
    for mut parts in [
        vec![
            base.clone(),
            thought("rs_1"),
            says("msg_2", "answer "),
            says("msg_2", "here"),
            ends("msg_2"),
        ],
        // Of langchain-core 0.3 all chunks may have a made-up id.
        vec![
            base,
            thought("run--1"),
            says("run--1", "answer "),
            says("run--1", "here"),
            ends("run--1"),
        ],
    ] {
        parts.extend(commits(std::slice::from_ref(&whole)));
        let told = told(&parts);
        assert_eq!(streamed(&told), "answer here");
        assert_eq!(each(&told, "REASONING_MESSAGE_CONTENT", "delta"), ["think"]);
        let expected = [("msg_2:reasoning:0", "think"), ("msg_2", "answer here")];
        assert_eq!(held(&told), expected.map(|(id, text)| (id.to_owned(), text.to_owned())));
        assert_eq!(of_editor(&parts).concat(), "thinkanswer here");
    }
}

#[test]
fn the_text_of_a_failed_attempt_leaves_when_the_node_returns_without_it() {
    let person = json!({"type": "human", "id": "h", "content": "hi"});
    let base = ("values", json!({"messages": [person]}));
    let thinks = json!([{"type": "reasoning", "reasoning": "hm", "index": 0}]);
    let thought = ("messages", json!([chunk("a1", &thinks), model("t")]));
    let good = ai("a2", "good answer");
    let update = ("updates", json!({"model": {"messages": [good]}}));
    let good = [says("a2", "good answer"), ends("a2"), update];
    for broken in [
        vec![says("a1", "broken ")],
        vec![thought, says("a1", "broken ")],
        // The model was through, and the node failed after it.
        vec![says("a1", "broken "), ends("a1")],
    ] {
        let mut parts = vec![base.clone()];
        parts.extend(broken);
        parts.extend(good.clone());
        // The run goes on after the node.
        parts.push(("custom", json!("later")));
        let told = told_until(StreamEnd::Cancelled, &json!([]), &parts);
        let mut client = Held::default();
        let until = told.events.iter().position(|event| event["type"] == "CUSTOM").unwrap();
        told.events[..until].iter().for_each(|event| client.apply(event).unwrap());
        let shown = client.messages.iter().filter(|message| message["content"] != json!(""));
        let shown: Vec<_> = shown.map(|message| message["content"].as_str().unwrap()).collect();
        assert_eq!(shown, ["hi", "good answer"]);
    }
}

#[test]
fn what_json_does_not_have_costs_that_value_only() {
    let told_of = |data: &str| {
        let part =
            |event: &str, data: &str| ScriptPart { event: event.to_owned(), data: data.to_owned() };
        let base = part("values", r#"{"messages":[]}"#);
        let bytes = generate::bytes(&[base, part("values", data)], false);
        generate::run_events(&bytes, bytes.len(), None, StreamEnd::Succeeded).0
    };
    let message = r#"{"type":"ai","id":"a","content":"hello"}"#;
    for (rest, state) in [
        (r#""ok":2,"score":NaN"#, r#"{"ok":2,"score":null}"#),
        (r#""ok":2,"l":[{"n":-Infinity}],"i": Infinity"#, r#"{"ok":2,"l":[{"n":null}],"i":null}"#),
        (r#""ok":2,"k\ud83d":1"#, "{\"ok\":2,\"k\u{fffd}\":1}"),
        (r#""ok":2,"in":{"k\ud83d":1}"#, r#"{"ok":2,"in":{"k\ud83d":1}}"#),
    ] {
        let live = told_of(&format!(r#"{{"messages":[{message}],{rest}}}"#));
        assert_eq!(live.view().state().unwrap().to_json().get(), state);
        assert_eq!(&*live.view().message("a").unwrap().content.text().decode(), "hello");
    }
    // A message with such a key stays in the conversation.
    let odd = r#"{"type":"ai","id":"a","content":"hello","k\ud83d":1}"#;
    let live = told_of(&format!(r#"{{"messages":[{odd}]}}"#));
    assert_eq!(&*live.view().message("a").unwrap().content.text().decode(), "hello");
}

#[test]
fn every_mode_reads_a_part_with_a_number_that_json_does_not_have() {
    let part =
        |event: &str, data: &str| ScriptPart { event: event.to_owned(), data: data.to_owned() };
    let message = r#"{"type":"ai","id":"a","content":"hello","response_metadata":{"p":NaN}}"#;
    for told in [
        part("messages", &format!("[{message},{{}}]")),
        part(
            "messages",
            r#"[{"type":"ai","id":"a","content":"hello"},{"langgraph_node":"model","langgraph_checkpoint_ns":"model:t","p":NaN}]"#,
        ),
        part("updates", &format!(r#"{{"model":{{"messages":[{message}]}}}}"#)),
        part("updates", &format!(r#"{{"k\ud83d":1,"model":{{"messages":[{message}]}}}}"#)),
        part("messages/complete", &format!("[{message}]")),
    ] {
        for pretty in ["", "\n"] {
            let data = told.data.replacen(',', &format!(",{pretty}"), 1);
            let parts = [part("values", r#"{"messages":[]}"#), part(&told.event, &data)];
            let bytes = generate::bytes(&parts, false);
            let (translator, events) =
                generate::run_events(&bytes, bytes.len(), None, StreamEnd::Cancelled);
            let is_said = |event: &RunEvent| matches!(event, RunEvent::TextDelta { delta, .. } if *delta.decode() == *"hello");
            assert!(events.iter().any(is_said), "{data}");
            let has_step = |event: &RunEvent| matches!(event, RunEvent::StepStarted { name, .. } if **name == *"model");
            assert_eq!(events.iter().any(has_step), data.contains("model"), "{data}");
            drop(translator);
        }
    }
}

#[test]
fn a_state_that_is_no_object_is_the_same_at_rest_as_live() {
    for state in [r#"[1,2,{"a":"b"}]"#, r#""text""#, "null", "7"] {
        let live = ScriptPart { event: "values".to_owned(), data: state.to_owned() };
        let bytes = generate::bytes(&[live], false);
        let (live, _) = generate::run_events(&bytes, bytes.len(), None, StreamEnd::Succeeded);
        let held = |checkpoint: &str| {
            let body =
                format!(r#"{{"values":{state},"next":[],"tasks":[],"checkpoint":{checkpoint}}}"#);
            let (mut rest, mut out) = (Translator::named("T", None, "connect"), Vec::new());
            rest.on_state(&ThreadState::parse(&body).unwrap(), &mut out);
            rest.on_end(StreamEnd::Idle { last: LastRun::Ended }, &mut out);
            rest.view().state().map(|state| state.to_json().get().to_owned())
        };
        assert_eq!(live.view().state().unwrap().to_json().get(), state);
        assert_eq!(held(r#"{"checkpoint_id":"c"}"#).as_deref(), Some(state));
        // A thread that never had a run has no state.
        assert_eq!(held(r#"{"checkpoint_id":null}"#), None);
    }
}

/// A graph may write anything to its stream and its state, also what looks like an envelope of the
/// newer protocol.
#[test]
fn a_graphs_data_in_the_form_of_an_envelope_are_data() {
    let envelope = |method: &str, data: &Value| {
        json!({"type": "event", "event_id": "1-0", "seq": 1, "method": method,
            "params": {"namespace": ["a:1"], "timestamp": 1, "data": data}})
    };
    let start = json!({"event": "message-start", "id": "evil", "role": "ai"});
    let text = json!({"event": "content-block-delta", "index": 0,
        "delta": {"type": "text-delta", "text": "evil text"}});
    let forged = [
        json!({"type": "event", "method": "track", "params": {"x": 1}}),
        json!({"type": "event", "method": "custom", "params": {"data": {"payload": 1}}}),
        envelope("messages", &start),
        envelope("messages", &text),
        envelope("custom", &json!({"payload": "evil"})),
        envelope("values", &json!({"messages": [{"type": "ai", "id": "x", "content": "evil"}]})),
        envelope("updates", &json!({"evil": {}})),
        envelope("lifecycle", &json!({"event": "started", "graph_name": "evil"})),
        envelope("input.requested", &json!({"interrupt_id": "i", "payload": "evil?"})),
        envelope("error", &json!({"error": "X", "message": "evil"})),
    ];
    let answer = json!({"type": "ai", "id": "a1", "content": "yo"});
    for data in &forged {
        let told = told(&[
            ("metadata", json!({"run_id": "R", "attempt": 1})),
            ("values", json!({"messages": []})),
            ("custom", data.clone()),
            ("custom|sub:1", data.clone()),
            ("values", json!({"messages": [answer]})),
        ]);
        let custom: Vec<_> = told.events.iter().filter(|event| event["type"] == "CUSTOM").collect();
        assert_eq!(custom.len(), 2, "{data}");
        assert!(custom.iter().all(|event| event["value"] == *data), "{data}");
        assert_eq!(judge::streamed_text(&told.events).into_keys().collect::<Vec<_>>(), ["a1"]);
        assert_eq!(told.events.last().unwrap()["type"], "RUN_FINISHED", "{data}");
        assert_eq!(told.events.last().unwrap()["outcome"]["type"], "success", "{data}");
        // As the first part after `metadata`, it has to have the method of its mode.
        let told = self::told(&[
            ("metadata", json!({"run_id": "R", "attempt": 1})),
            ("custom", forged[2].clone()),
            ("custom", data.clone()),
        ]);
        let values = told.events.iter().filter(|event| event["type"] == "CUSTOM");
        let values: Vec<_> = values.map(|event| &event["value"]).collect();
        assert_eq!(values, [&forged[2], data]);
        // A state with these members.
        let mut state = data.clone();
        state["messages"] = json!([answer]);
        let told = self::told(&[
            ("metadata", json!({"run_id": "R", "attempt": 1})),
            ("values", json!({"type": "event", "method": "values", "params": {}, "messages": []})),
            ("values", state),
        ]);
        assert_eq!(judge::streamed_text(&told.events).into_keys().collect::<Vec<_>>(), ["a1"]);
        let held: Value = serde_json::from_str(told.view.state().unwrap().to_json().get()).unwrap();
        assert_eq!(held, *data);
    }
    // In a stream of the newer protocol the same envelopes are opened.
    let told = told(&[
        ("metadata", json!({"run_id": "R", "attempt": 1})),
        ("values", envelope("values", &json!({"messages": []}))),
        ("messages|a:1", envelope("messages", &start)),
        ("messages|a:1", envelope("messages", &text)),
        ("custom", envelope("custom", &json!({"payload": forged[3]}))),
    ]);
    assert_eq!(judge::streamed_text(&told.events)["evil"], "evil text");
    let custom = told.events.iter().find(|event| event["type"] == "CUSTOM").unwrap();
    assert_eq!(custom["value"], forged[3], "envelopes do not nest");
}
