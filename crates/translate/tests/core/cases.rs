//! The scripted runs that official adapters get wrong, each with the expected result.

use std::fs;

use crate::support::capture::{self, Translated};
use crate::support::judge;
use crate::support::plan::plan;
use crate::support::schema::Schema;
use serde_json::{Value, json};
use threadway_translate::agui::{
    Allowance, Input, LostThread, OnMessage, Projector, RequestPlanner,
};
use threadway_translate::langgraph::{Capabilities, InputKeys, MessagesKey, ThreadState};
use threadway_translate::run::{NewRun, Role, StreamEnd, Translator};

/// A recorded case.
struct Case {
    name: String,
    script: Value,
}

// === impl Case ===

impl Case {
    fn all() -> Vec<Self> {
        let files = fs::read_dir(capture::root().join("cases")).unwrap();
        let mut cases: Vec<_> = files
            .map(|file| {
                let path = file.unwrap().path();
                let script = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
                Self { name: path.file_stem().unwrap().to_string_lossy().into_owned(), script }
            })
            .collect();
        cases.sort_by(|a, b| a.name.cmp(&b.name));
        cases
    }

    fn numbered(number: &str) -> Self {
        Self::all().into_iter().find(|case| case.name.starts_with(number)).unwrap()
    }

    fn input(&self) -> Input {
        let mut input = self.script["input"].clone();
        input["protocolVersion"] = json!("1.0");
        Input::parse(input.to_string().as_bytes()).unwrap()
    }

    fn states(&self) -> Vec<String> {
        let states = self.script["server"]["thread_state_responses"].as_array();
        states.into_iter().flatten().map(Value::to_string).collect()
    }

    /// Translates the run as a gateway does that reads the thread's state again at the end.
    fn translate(&self) -> Translated {
        let mut blocks = Vec::new();
        for part in self.script["upstream"].as_array().into_iter().flatten() {
            let event = part["event"].as_str().unwrap();
            blocks.push(format!("event: {event}\ndata: {}\n\n", part["data"]));
        }
        let mut translator = Translator::new("T", "R");
        let mut out = Vec::new();
        translator.start(&mut out);
        capture::feed(&mut translator, blocks.concat().as_bytes(), &mut out);
        let states = self.states();
        let last = states.get(1).and_then(|state| ThreadState::parse(state));
        let breaks_off = self.name.starts_with("29");
        if let Some(state) = last.filter(|_| !breaks_off) {
            translator.on_state(&state, &mut out);
        }
        translator.on_end(StreamEnd::Complete, &mut out);
        let input = self.input();
        let mut told = capture::project(&out, Projector::new(input.client(), input.held()));
        told.view = translator.view().clone();
        told
    }

    /// The events without state, steps and activities, each in short form.
    fn story(&self) -> Vec<String> {
        let is_told = |name: &str| {
            !["STATE", "STEP", "ACTIVITY"].iter().any(|beside| name.starts_with(beside))
        };
        let line = |event: Value| {
            let name = event["type"].as_str().unwrap().to_owned();
            let about = event["toolCallId"].as_str().or_else(|| event["messageId"].as_str());
            let said = event["delta"].as_str().or_else(|| event["content"].as_str());
            let said = said.or_else(|| event["code"].as_str());
            let words = [Some(name.as_str()), about, said];
            words.into_iter().flatten().collect::<Vec<_>>().join(" ")
        };
        let events = self.translate().events.into_iter();
        events.filter(|event| is_told(event["type"].as_str().unwrap())).map(line).collect()
    }

    /// The body of the upstream run for the case's request.
    fn request(&self) -> (Value, Option<String>) {
        let input = self.input();
        let states = self.states();
        let state = states.first().and_then(|state| ThreadState::parse(state));
        let mut allowance = Allowance::default();
        for key in ["model", "extra"] {
            allowance.allow(key).unwrap();
        }
        allowance.when_lost(LostThread::Restore);
        let run = planned(&input, &allowance, state.as_ref());
        let fork = run.fork_before.clone();
        let body =
            serde_json::to_string(&run.request("agent", Capabilities::default(), None)).unwrap();
        (serde_json::from_str(&body).unwrap(), fork)
    }
}

fn planned(input: &Input, allowance: &Allowance, state: Option<&ThreadState<'_>>) -> NewRun {
    let asking = RequestPlanner {
        input,
        on_message: OnMessage::AskAgain,
        allowance,
        emit: threadway_translate::run::EmitOptions::default(),
        messages_key: &MessagesKey::MESSAGES,
    };
    plan(&asking, state, &InputKeys::Unknown).unwrap().run.expect("a run is started")
}

fn starts_with(story: &[String], expected: &[&str]) {
    assert_eq!(&story[..expected.len().min(story.len())], expected);
}

#[test]
fn every_case_becomes_the_bytes_that_are_kept_and_is_legal() {
    let schema = Schema::load();
    for case in Case::all() {
        let translated = case.translate();
        judge::legal(&schema, &translated.events)
            .unwrap_or_else(|why| panic!("{}: {why}", case.name));
        let path = capture::root().join("golden/cases").join(format!("{}.sse", case.name));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, &translated.bytes).unwrap();
        }
        assert!(fs::read(&path).unwrap() == translated.bytes, "{} has other bytes", case.name);
    }
}

#[test]
fn every_case_ends_with_the_messages_that_the_thread_holds() {
    for case in Case::all() {
        let states = case.states();
        // Case 29 breaks off, so the thread's content is unknown. Case 37 has message types that
        // AG-UI lacks.
        let is_judged = !case.name.starts_with("29") && !case.name.starts_with("37");
        let Some(state) = states.get(1).filter(|_| is_judged) else { continue };
        let state: Value = serde_json::from_str(state).unwrap();
        let expected = state["values"]["messages"].as_array().into_iter().flatten();
        let expected: Vec<_> =
            expected.map(|m| (judge::string(&m["id"]), judge::text_of(&m["content"]))).collect();
        let view = case.translate().view;
        let is_own = |role| !matches!(role, Role::Reasoning | Role::Attachment);
        let held = view.messages().iter().filter(|message| is_own(message.role));
        let held: Vec<_> =
            held.map(|m| (m.id.to_string(), m.content.text().decode().into_owned())).collect();
        assert_eq!(held, expected, "{}", case.name);
    }
}

#[test]
fn case_01_the_run_keeps_the_clients_id_and_the_state_is_never_the_nodes_delta() {
    let events = Case::numbered("01").translate().events;
    let last = events.last().unwrap();
    assert_eq!(last["runId"], "client-run-1");
    let snapshots = events.iter().filter(|event| event["type"] == "STATE_SNAPSHOT").count();
    assert_eq!(snapshots, 1);
}

#[test]
fn case_02_a_result_has_the_tool_messages_id() {
    let events = Case::numbered("02").translate().events;
    let results: Vec<_> = events.iter().filter(|e| e["type"] == "TOOL_CALL_RESULT").collect();
    assert_eq!(results.len(), 1);
    assert_eq!(results[0]["messageId"], "tm1");
}

#[test]
fn case_03_parallel_calls_keep_apart_and_are_told_once() {
    starts_with(
        &Case::numbered("03").story(),
        &[
            "RUN_STARTED",
            "TOOL_CALL_START call_A",
            "TOOL_CALL_ARGS call_A {\"q\":\"alpha\"}",
            "TOOL_CALL_START call_B",
            "TOOL_CALL_ARGS call_B {\"q\":\"beta\"}",
            "TOOL_CALL_END call_A",
            "TOOL_CALL_END call_B",
            "TOOL_CALL_RESULT call_A ra",
            "TOOL_CALL_RESULT call_B rb",
        ],
    );
}

#[test]
fn case_05_a_call_in_one_chunk_has_its_arguments() {
    starts_with(
        &Case::numbered("05").story(),
        &[
            "RUN_STARTED",
            "TOOL_CALL_START call_1",
            "TOOL_CALL_ARGS call_1 {\"city\":\"Paris\"}",
            "TOOL_CALL_END call_1",
            "TOOL_CALL_RESULT call_1 sunny",
        ],
    );
}

#[test]
fn case_06_a_call_after_text_ends_the_text_and_begins_on_the_same_chunk() {
    starts_with(
        &Case::numbered("06").story(),
        &[
            "RUN_STARTED",
            "TEXT_MESSAGE_START lc_run--m1",
            "TEXT_MESSAGE_CONTENT lc_run--m1 Let me check.",
            "TEXT_MESSAGE_END lc_run--m1",
            "TOOL_CALL_START call_1",
            "TOOL_CALL_ARGS call_1 {\"city\":\"Paris\"}",
            "TOOL_CALL_END call_1",
        ],
    );
}

#[test]
fn case_07_a_model_that_does_not_stream_is_told_at_its_end() {
    let case = Case::numbered("07");
    starts_with(
        &case.story(),
        &[
            "RUN_STARTED",
            "TOOL_CALL_START call_1",
            "TOOL_CALL_ARGS call_1 {\"city\": \"Paris\"}".replace(": ", ":").as_str(),
            "TOOL_CALL_END call_1",
            "TOOL_CALL_RESULT call_1 sunny",
        ],
    );
    let events = case.translate().events;
    let call = events.iter().find(|event| event["type"] == "TOOL_CALL_START").unwrap();
    assert_eq!(call["parentMessageId"], "lc_run--m1");
    assert_eq!(events.last().unwrap()["usage"][0]["totalTokens"], 5);
}

#[test]
fn case_10_a_summary_is_one_thought_of_several_paragraphs() {
    let case = Case::numbered("10");
    let story = case.story();
    let thought: String = story
        .iter()
        .filter_map(|line| line.strip_prefix("REASONING_MESSAGE_CONTENT rs_1 "))
        .collect();
    assert_eq!(thought, "AB\nC");
    let held = case.translate().view;
    assert_eq!(held.message("rs_1").unwrap().content.text().decode(), "AB\nC");
}

#[test]
fn cases_12_and_13_interrupts_are_the_outcome() {
    for number in ["12", "13"] {
        let events = Case::numbered(number).translate().events;
        let outcome = &events.last().unwrap()["outcome"];
        assert_eq!(outcome["type"], "interrupt");
        let ids: Vec<_> =
            outcome["interrupts"].as_array().unwrap().iter().map(|i| &i["id"]).collect();
        assert_eq!(ids, ["int-1", "int-2"]);
        assert_eq!(outcome["interrupts"][0]["reason"], "approval");
        assert_eq!(outcome["interrupts"][0]["message"], "Approve?");
        assert!(events.iter().all(|event| event["type"] != "CUSTOM"));
    }
}

#[test]
fn case_15_a_resume_goes_up_by_id_without_input_and_repeats_no_call() {
    let case = Case::numbered("15");
    let (body, _) = case.request();
    assert_eq!(body["command"], json!({"resume": {"int-1": {"approved": true}}}));
    assert!(body.get("input").is_none());
    let story = case.story();
    let told =
        |story: &[String], line: &str| story.iter().filter(|told| told.starts_with(line)).count();
    assert_eq!(told(&story, "TOOL_CALL_RESULT call_1 sunny"), 1, "{story:?}");
    // This client never had the call.
    assert_eq!(told(&story, "TOOL_CALL_START call_1"), 1, "{story:?}");
    assert_eq!(told(&story, "TOOL_CALL_ARGS call_1"), 1, "{story:?}");

    let mut case = case;
    let function = json!({"name": "get_weather", "arguments": "{\"city\":\"Paris\"}"});
    let call = json!({"id": "call_1", "type": "function", "function": function});
    let message = json!({"id": "lc_run--m1", "role": "assistant", "toolCalls": [call]});
    case.script["input"]["messages"].as_array_mut().unwrap().push(message);
    let story = case.story();
    assert_eq!(told(&story, "TOOL_CALL_RESULT call_1 sunny"), 1, "{story:?}");
    for line in ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"] {
        assert_eq!(told(&story, line), 0, "{story:?}");
    }
}

#[test]
fn case_16_several_answers_go_up_in_langgraphs_own_form() {
    let (body, _) = Case::numbered("16").request();
    assert_eq!(body["command"], json!({"resume": {"int-1": "yes", "int-2": null}}));
}

#[test]
fn case_17_a_failure_closes_what_is_open_and_is_the_end() {
    let events = Case::numbered("17").translate().events;
    let names: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let end = names.iter().position(|name| *name == "TEXT_MESSAGE_END").unwrap();
    assert_eq!(names[end..=end + 1], ["TEXT_MESSAGE_END", "STEP_FINISHED"]);
    let last = events.last().unwrap();
    assert_eq!((&last["type"], &last["message"]), (&json!("RUN_ERROR"), &json!("boom")));
    assert_eq!(last["code"], "ValueError");
}

#[test]
fn case_18_a_commands_tool_message_is_a_result_and_messages_never_shrink() {
    let events = Case::numbered("18").translate().events;
    let result = events.iter().find(|event| event["type"] == "TOOL_CALL_RESULT").unwrap();
    assert_eq!(result["messageId"], "tm9");
}

#[test]
fn case_21_what_arguments_foretell_is_told_before_the_call() {
    let story = Case::numbered("21").story();
    let custom = story.iter().position(|line| line == "CUSTOM").unwrap();
    assert_eq!(story[custom + 1], "TOOL_CALL_START call_9");
    assert_eq!(story.iter().filter(|line| *line == "CUSTOM").count(), 1);
}

#[test]
fn case_23_tuples_alone_tell_two_messages_a_call_and_its_result() {
    starts_with(
        &Case::numbered("23").story(),
        &[
            "RUN_STARTED",
            "TEXT_MESSAGE_START lc_run--m1",
            "TEXT_MESSAGE_CONTENT lc_run--m1 Let me ",
            "TEXT_MESSAGE_CONTENT lc_run--m1 check",
            "TEXT_MESSAGE_END lc_run--m1",
            "TOOL_CALL_START call_1",
            "TOOL_CALL_ARGS call_1 {\"city\":\"Paris\"}",
            "TOOL_CALL_END call_1",
            "TOOL_CALL_RESULT call_1 sunny",
            "TEXT_MESSAGE_START lc_run--m2",
            "TEXT_MESSAGE_CONTENT lc_run--m2 Sunny",
            "TEXT_MESSAGE_END lc_run--m2",
        ],
    );
}

#[test]
fn cases_24_and_25_what_was_edited_or_is_asked_again_forks_the_thread() {
    for (number, text) in [("24", "more"), ("25", "EDITED")] {
        let (body, fork) = Case::numbered(number).request();
        assert_eq!(fork.as_deref(), Some("u2"), "case {number}");
        let messages = body["input"]["messages"].as_array().unwrap();
        assert_eq!(messages.len(), 1);
        assert_eq!((&messages[0]["id"], &messages[0]["content"]), (&json!("u2"), &json!(text)));
    }
}

#[test]
fn case_27_parallel_nodes_speak_in_messages_and_steps_of_their_own() {
    let case = Case::numbered("27");
    let events = case.translate().events;
    let texts = judge::streamed_text(&events);
    assert_eq!(texts["lc_run--A"], "A1A2");
    assert_eq!(texts["lc_run--B"], "B1B2");
    let steps: Vec<_> = events.iter().filter(|event| event["type"] == "STEP_STARTED").collect();
    assert_eq!(steps.len(), 2);
}

#[test]
fn case_29_a_stream_that_breaks_off_is_no_success() {
    let story = Case::numbered("29").story();
    assert!(story.contains(&"TEXT_MESSAGE_END lc_run--m1".to_owned()));
    assert_eq!(story.last().unwrap(), "RUN_ERROR stream_incomplete");
}

#[test]
fn case_30_media_come_down_as_they_are_and_text_blocks_joined() {
    let events = Case::numbered("30").translate().events;
    let snapshot = events.iter().rfind(|event| event["type"] == "MESSAGES_SNAPSHOT").unwrap();
    let [user, assistant, tool] = snapshot["messages"].as_array().unwrap().as_slice() else {
        panic!("{snapshot}")
    };
    assert_eq!(
        user["content"],
        json!([
            {"type": "text", "text": "look"},
            {"type": "image", "source": {"type": "data", "value": "AAA", "mimeType": "image/png"}},
            {"type": "document", "source": {"type": "data", "value": "QQ==", "mimeType": "application/pdf"},
             "metadata": {"filename": "a.pdf"}},
            {"type": "image", "source": {"type": "url", "value": "https://x/y.png"}},
        ])
    );
    assert_eq!(assistant["content"], "one two");
    assert_eq!(assistant["toolCalls"][0]["id"], "call_1");
    assert_eq!(tool["content"], "p1p2");
}

#[test]
fn case_30_media_go_up_as_langchains_standard_blocks() {
    let body = json!({
        "threadId": "t", "runId": "r",
        "messages": [{"id": "u9", "role": "user", "content": [
            {"type": "text", "text": "see"},
            {"type": "image", "source": {"type": "data", "value": "AAA", "mimeType": "image/png"}},
            {"type": "document", "source": {"type": "url", "value": "https://x/a.pdf"},
             "metadata": {"filename": "a.pdf"}},
            {"type": "hologram"},
        ]}],
    });
    let input = Input::parse(body.to_string().as_bytes()).unwrap();
    let run = planned(&input, &Allowance::default(), None);
    let sent = serde_json::to_string(&run.request("agent", Capabilities::default(), None)).unwrap();
    let sent: Value = serde_json::from_str(&sent).unwrap();
    assert_eq!(
        sent["input"]["messages"][0]["content"],
        json!([
            {"type": "text", "text": "see"},
            {"type": "image", "base64": "AAA", "mime_type": "image/png"},
            {"type": "file", "url": "https://x/a.pdf", "filename": "a.pdf"},
        ])
    );
}

#[test]
fn case_31_only_what_is_allowed_goes_up() {
    let (body, _) = Case::numbered("31").request();
    assert_eq!(body["config"], json!({"configurable": {"model": "m2", "extra": 1}}));
    for key in ["webhook", "multitaskStrategy", "multitask_strategy", "threadMetadata"] {
        assert!(body.get(key).is_none(), "{key} went up");
    }
    assert_eq!(body["metadata"], json!({"threadway_run_id": "client-run-1"}));
    let messages = body["input"]["messages"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let kinds: Vec<_> = messages.iter().map(|m| [text(&m["type"]), text(&m["id"])]).collect();
    let instructions = [["system", "s0"], ["system", "d0"]];
    assert_eq!(
        kinds,
        [&instructions[..], &[["human", "u1"], ["ai", "a1"], ["tool", "t1"]]].concat()
    );
    assert_eq!(messages[1]["additional_kwargs"], json!({"__openai_role__": "developer"}));
    assert_eq!(
        messages[3]["tool_calls"][0],
        json!({"type": "tool_call", "id": "c1", "name": "fe_tool", "args": {"x": 1}})
    );
    assert_eq!(messages[4]["status"], "error");

    // The Python server refuses a run with both `context` and `configurable`.
    let input = Case::numbered("31").input();
    let mut allowance = Allowance::default();
    allowance.allow("model").unwrap();
    allowance.when_lost(LostThread::Restore);
    for server in [Capabilities::default(), Capabilities::PYTHON, Capabilities::JAVASCRIPT] {
        let run = planned(&input, &allowance, None);
        let body = serde_json::to_value(run.request("agent", server, None)).unwrap();
        let mut members: Vec<_> = body.as_object().unwrap().keys().map(String::as_str).collect();
        members.sort_unstable();
        assert_eq!(
            members,
            [
                "assistant_id",
                "config",
                "if_not_exists",
                "input",
                "metadata",
                "on_disconnect",
                "stream_mode",
                "stream_resumable",
                "stream_subgraphs",
            ],
        );
    }
}

#[test]
fn a_run_that_creates_its_thread_titles_it_with_the_users_first_words() {
    let titled = |messages: Value, state: Option<&ThreadState<'_>>| {
        let body = json!({"threadId": "t", "runId": "r", "messages": messages});
        let input = Input::parse(body.to_string().as_bytes()).unwrap();
        planned(&input, &Allowance::default(), state).title
    };
    let said = |role: &str, content: Value| json!({"id": role, "role": role, "content": content});
    let words = said("user", json!(" what\nis this "));
    let parts = said(
        "user",
        json!([{"type": "image", "source": {"type": "url", "value": "u"}}, {"type": "text", "text": "what is this"}]),
    );
    let expected = Some("what is this".to_owned());
    assert_eq!(titled(json!([said("system", json!("be brief")), words]), None), expected);
    assert_eq!(titled(json!([parts]), None), expected);
    assert_eq!(titled(json!([said("user", json!(" ")), parts]), None), expected);
    let long = titled(json!([said("user", json!("x".repeat(70)))]), None).unwrap();
    assert_eq!(long.chars().count(), 60, "{long}");
    assert_eq!(titled(json!([said("system", json!("be brief"))]), None), None);
    assert_eq!(titled(json!([]), None), None);
    let empty = ThreadState::parse(r#"{"values":{},"next":[],"tasks":[]}"#).unwrap();
    assert_eq!(titled(json!([words]), Some(&empty)), None, "the thread exists");
}

#[test]
fn case_32_two_modes_say_a_text_once() {
    let events = Case::numbered("32").translate().events;
    assert_eq!(judge::streamed_text(&events)["lc_run--m1"], "Hi there");
}

#[test]
fn case_37_a_message_of_an_unknown_kind_kills_no_run() {
    let case = Case::numbered("37");
    assert_eq!(case.story().last().unwrap(), "RUN_FINISHED");
}

#[test]
fn case_38_a_tool_output_that_is_no_message_is_no_result() {
    let story = Case::numbered("38").story();
    assert!(story.iter().all(|line| !line.starts_with("TOOL_CALL")), "{story:?}");
    assert_eq!(story.last().unwrap(), "RUN_FINISHED");
}

#[test]
fn case_38_a_tool_that_returns_null_is_no_result_either() {
    let mut case = Case::numbered("38");
    case.script["upstream"][1]["data"]["data"]["output"] = Value::Null;
    let story = case.story();
    assert!(story.iter().all(|line| !line.starts_with("TOOL_CALL")), "{story:?}");
    assert_eq!(story.last().unwrap(), "RUN_FINISHED");
}

#[test]
fn case_40_broken_arguments_in_a_clients_history_stop_nothing() {
    let (body, _) = Case::numbered("40").request();
    assert!(body["input"]["messages"].is_array());
}

#[test]
fn case_43_what_a_node_writes_is_a_custom_event() {
    let events = Case::numbered("43").translate().events;
    let custom = events.iter().find(|event| event["type"] == "CUSTOM").unwrap();
    assert_eq!(custom["value"], json!({"progress": 1}));
}

#[test]
fn case_44_interrupts_are_no_state() {
    let events = Case::numbered("44").translate().events;
    let snapshot = events.iter().find(|event| event["type"] == "STATE_SNAPSHOT").unwrap();
    assert_eq!(snapshot["snapshot"], json!({}));
    assert_eq!(events.last().unwrap()["outcome"]["interrupts"][0]["id"], "i");
}

/// The expected reasoning of a case: `(id, text)`.
fn pairs(value: &Value) -> Vec<(String, String)> {
    let pair = |pair: &Value| (judge::string(&pair[0]), judge::string(&pair[1]));
    value.as_array().into_iter().flatten().map(pair).collect()
}

#[test]
fn every_providers_reasoning_is_told_once_and_needs_no_snapshot() {
    let cases: Vec<_> =
        Case::all().into_iter().filter(|case| case.name.contains("_reasoning_")).collect();
    let mut judged = 0;
    for case in cases.iter().filter(|case| case.script.get("thoughts").is_some()) {
        let told = case.translate();
        let view = told.view.messages().iter();
        let thoughts = view.filter(|message| message.role == Role::Reasoning);
        let (mut texts, mut seals) = (Vec::new(), Vec::new());
        for thought in thoughts {
            let id = thought.id.to_string();
            texts.push((id.clone(), thought.content.text().decode().into_owned()));
            seals
                .extend(thought.sealed.iter().map(|seal| (id.clone(), seal.decode().into_owned())));
        }
        assert_eq!(texts, pairs(&case.script["thoughts"]), "{}", case.name);
        assert_eq!(seals, pairs(&case.script["sealed"]), "{}", case.name);
        let all = || told.events.iter();
        let named = |name: &str| all().filter(|event| event["type"] == name).count();
        assert_eq!(named("REASONING_START"), texts.len(), "{}", case.name);
        assert_eq!(named("MESSAGES_SNAPSHOT"), 0, "{}", case.name);
        let streamed = |name: &str| all().filter(|event| event["type"] == name).collect::<Vec<_>>();
        let deltas = streamed("REASONING_MESSAGE_CONTENT");
        let is_streamed = texts.iter().all(|(_, text)| text.is_empty()) || deltas.len() > 1;
        assert!(is_streamed, "{}: {deltas:?}", case.name);
        judged += 1;
    }
    assert_eq!(judged, 16);
}

#[test]
fn case_61_what_an_assistant_makes_besides_text_comes_whole_and_once() {
    let told = Case::numbered("61").translate().events;
    let is_attached = |event: &&Value| {
        event["type"] == "ACTIVITY_SNAPSHOT" && event["activityType"] != "threadway.tool"
    };
    let ids = told.iter().filter(is_attached);
    let shown: Vec<_> = ids.filter_map(|event| event["messageId"].as_str()).collect();
    let of = |message: &str, at: usize| format!("{message}:attachment:{at}");
    let expected: Vec<_> = (0..5).map(|at| of("m1", at)).chain([of("m2", 0)]).collect();
    assert_eq!(shown, expected);
    assert!(told.iter().all(|event| event["type"] != "MESSAGES_SNAPSHOT"), "{told:#?}");
}
