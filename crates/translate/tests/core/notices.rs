//! What LangChain's harness adds to a conversation: messages that nobody typed, and model calls of
//! its own work.

use std::sync::Arc;

use crate::support::capture::{self, Translated};
use crate::support::evolving::is_of_harness;
use crate::support::generate::{self, ScriptPart};
use crate::support::judge;
use crate::support::plan::plan;
use crate::support::reduce::Held;
use crate::support::schema::Schema;
use crate::support::{acp, acp_schema};
use serde_json::{Value, json};
use threadway_translate::acp::{NoticeForms, Projector as AcpProjector};
use threadway_translate::agui::{Allowance, Input, OnMessage, Projector, RequestPlanner};
use threadway_translate::langgraph::{Finish, InputKeys, MessagesKey, ThreadState};
use threadway_translate::run::{
    EmitOptions, Harness, Outcome, RunEvent, Start, StreamEnd, Translator,
};

/// The events of a run that succeeded.
fn run(harness: Harness, parts: &[(&str, Value)]) -> (Vec<RunEvent>, Translator) {
    let parts: Vec<_> = parts
        .iter()
        .map(|(event, data)| ScriptPart { event: (*event).to_owned(), data: data.to_string() })
        .collect();
    let mut translator = Translator::new("T", "R").showing(harness);
    let mut out = Vec::new();
    translator.start(&mut out);
    capture::feed(&mut translator, &generate::bytes(&parts, false), &mut out);
    translator.on_end(StreamEnd::Succeeded, &mut out);
    (out, translator)
}

/// What a client of AG-UI is sent that holds nothing. All of it is legal.
fn told(harness: Harness, parts: &[(&str, Value)]) -> Translated {
    let (events, translator) = run(harness, parts);
    let mut told = capture::project(&events, Projector::new(capture::newcomer(), Vec::new()));
    told.view = translator.view().clone();
    judge::legal(&Schema::load(), &told.events).unwrap();
    told
}

fn typed(id: &str, text: &str) -> Value {
    json!({"type": "human", "id": id, "content": text, "additional_kwargs": {}})
}

fn answered(id: &str, text: &str) -> Value {
    json!({"type": "ai", "id": id, "content": text})
}

/// A message that nobody typed.
fn marked(id: &str, source: &str, text: &str) -> Value {
    json!({"type": "human", "id": id, "content": text, "additional_kwargs": {"lc_source": source}})
}

/// The messages that a client holds in the end: the id, the role, the activity's type, the content.
fn held(told: &Translated) -> Vec<(String, String, Value)> {
    let mut client = Held::default();
    for event in &told.events {
        client.apply(event).unwrap();
    }
    let kind = |message: &Value| {
        let kind = message.get("activityType").unwrap_or_else(|| &message["role"]);
        kind.as_str().unwrap().to_owned()
    };
    let id = |message: &Value| message["id"].as_str().unwrap().to_owned();
    client.messages.iter().map(|m| (id(m), kind(m), m["content"].clone())).collect()
}

fn summarised() -> Vec<(&'static str, Value)> {
    let summary = marked("s1", "summarization", "Here is a summary: old things");
    let before = [typed("h1", "old"), answered("a1", "older"), typed("h2", "new")];
    let removal = json!({"type": "remove", "id": "__remove_all__", "content": ""});
    let node = json!({"langgraph_node": "model", "langgraph_checkpoint_ns": "model:1"});
    vec![
        ("values", json!({"messages": before})),
        (
            "updates",
            json!({"SummarizationMiddleware.before_model":
                {"messages": [removal, summary, typed("h2", "new")]}}),
        ),
        ("values", json!({"messages": [summary, typed("h2", "new")]})),
        ("messages", json!([answered("a2", "the answer"), node])),
        (
            "values",
            json!({"messages": [summary, typed("h2", "new"), answered("a2", "the answer")]}),
        ),
    ]
}

#[test]
fn a_message_that_nobody_typed_is_what_the_option_says() {
    let own = |id: &str, role: &str, text: &str| (id.to_owned(), role.to_owned(), json!(text));
    let rest = [own("h2", "user", "new"), own("a2", "assistant", "the answer")];
    let text = "Here is a summary: old things";
    let notice = json!({"source": "summarization", "text": text});
    for (harness, first) in [
        (Harness::Notice, Some(("s1:notice".to_owned(), "threadway.notice".to_owned(), notice))),
        (Harness::Show, Some(own("s1", "user", text))),
        (Harness::Hide, None),
    ] {
        let expected: Vec<_> = first.into_iter().chain(rest.clone()).collect();
        let told = told(harness, &summarised());
        assert_eq!(held(&told), expected, "{harness:?}");
        let is_user = |event: &Value| event["role"] == "user" && event["messageId"] == "s1";
        let streamed = told.events.iter().filter(|event| is_user(event)).count();
        assert_eq!(streamed > 0, harness == Harness::Show, "{harness:?}");
        if harness == Harness::Hide {
            assert!(!String::from_utf8(told.bytes).unwrap().contains("summary"));
        }
    }
}

/// In each place that a message can come from, and with each of LangChain's marks.
#[test]
fn a_marked_message_is_no_persons_wherever_it_comes_from() {
    let node = json!({"langgraph_node": "before", "langgraph_checkpoint_ns": "before:1"});
    for source in ["summarization", "pinned_skill", "rubric_grader", "my_own"] {
        let notice = marked("n1", source, "a whole file");
        let base = || ("values", json!({"messages": [typed("h1", "hi")]}));
        let state = || ("values", json!({"messages": [typed("h1", "hi"), notice.clone()]}));
        let streams = [
            vec![state()],
            vec![base(), state()],
            vec![base(), ("messages", json!([notice, node])), state()],
            vec![base(), ("messages/complete", json!([notice])), state()],
            vec![base(), ("updates", json!({"before": {"messages": [notice]}})), state()],
            vec![
                base(),
                (
                    "events",
                    json!({"event": "on_chain_end", "name": "before", "metadata": node,
                    "data": {"output": {"messages": [notice]}}}),
                ),
                state(),
            ],
        ];
        for stream in streams {
            let told = told(Harness::Notice, &stream);
            let content = json!({"source": source, "text": "a whole file"});
            let expected = [
                ("h1".to_owned(), "user".to_owned(), json!("hi")),
                ("n1:notice".to_owned(), "threadway.notice".to_owned(), content),
            ];
            assert_eq!(held(&told), expected, "{stream:?}");
            let user = told.events.iter().filter(|event| event["role"] == "user");
            assert_eq!(user.count(), 0, "{stream:?}");
        }
    }
}

#[test]
fn only_langchains_public_mark_on_a_human_message_makes_a_notice() {
    let other = |kwargs: Value| json!({"type": "human", "id": "m", "content": "x", "additional_kwargs": kwargs});
    for message in [
        other(json!({"lc_source": null})),
        other(json!({"lc_source": 1})),
        other(json!({"source": "summarization", "lc_data": {}})),
        json!({"type": "human", "id": "m", "content": "x", "lc_source": "summarization"}),
        json!({"type": "human", "id": "m", "content": "x",
            "response_metadata": {"lc_source": "summarization"}}),
    ] {
        let told = told(Harness::Notice, &[("values", json!({"messages": [message]}))]);
        assert_eq!(held(&told)[0].1, "user", "{message}");
    }
    let spoken = json!({"type": "ai", "id": "m", "content": "x",
        "additional_kwargs": {"lc_source": "summarization"}});
    let told = told(Harness::Notice, &[("values", json!({"messages": [spoken]}))]);
    assert_eq!(held(&told)[0].1, "assistant");
}

/// LangChain's approval middleware marks the result that it writes for a call.
#[test]
fn a_persons_decision_about_a_call_is_its_result() {
    let call = json!({"type": "ai", "id": "a1", "content": "",
        "tool_calls": [{"id": "c1", "name": "rm", "args": {}}]});
    for (status, decision, acp_status) in
        [("error", "reject", "failed"), ("success", "respond", "completed")]
    {
        let result = json!({"type": "tool", "id": "t1", "tool_call_id": "c1", "status": status,
            "content": "User rejected the tool call for `rm`", "name": "rm",
            "additional_kwargs": {"lc_source": "hitl_interrupt_decision",
                "lc_data": {"decision": decision}}});
        let parts = [
            ("values", json!({"messages": [typed("h1", "hi"), call]})),
            (
                "updates",
                json!({"HumanInTheLoopMiddleware.after_model": {"messages": [call, result]}}),
            ),
            ("values", json!({"messages": [typed("h1", "hi"), call, result]})),
        ];
        for harness in [Harness::Notice, Harness::Hide] {
            let told = told(harness, &parts);
            let results: Vec<_> =
                told.events.iter().filter(|e| e["type"] == "TOOL_CALL_RESULT").collect();
            assert_eq!(results.len(), 1, "{decision}");
            assert_eq!(results[0]["toolCallId"], "c1");
            let failed = results[0]["metadata"]["langgraph"]["status"] == "error";
            assert_eq!(failed, decision == "reject");
            let (events, _) = run(harness, &parts);
            let session = acp::project(&mut acp::newcomer(), &events);
            let status = session.updates.iter().rev().find_map(|update| update.get("status"));
            assert_eq!(status.unwrap(), acp_status, "{decision}");
        }
    }
}

/// A model's call by the harness, in each dialect, with the metadata as given.
fn internal(metadata: &Value) -> Vec<Vec<(&'static str, Value)>> {
    let chunk = json!({"type": "AIMessageChunk", "id": "lc_run--x", "content": "INTERNAL",
        "tool_call_chunks": [{"index": 0, "id": "c9", "name": "choose", "args": "{}"}],
        "usage_metadata": {"input_tokens": 90, "output_tokens": 9},
        "response_metadata": {"finish_reason": "length"}});
    let mut whole = chunk.clone();
    whole["type"] = json!("ai");
    whole["tool_calls"] = json!([{"id": "c9", "name": "choose", "args": {}}]);
    whole.as_object_mut().unwrap().remove("tool_call_chunks");
    let of_event = |event: &str, data: Value| {
        ("events", json!({"event": event, "name": "Fake", "data": data, "metadata": metadata}))
    };
    vec![
        vec![("messages", json!([chunk, metadata]))],
        vec![("messages", json!([whole, metadata]))],
        vec![
            ("messages/metadata", json!({"lc_run--x": {"metadata": metadata}})),
            ("messages/partial", json!([whole])),
            ("messages/complete", json!([whole])),
        ],
        vec![
            of_event("on_chat_model_stream", json!({"chunk": chunk})),
            of_event("on_chat_model_end", json!({"output": whole})),
        ],
    ]
}

#[test]
fn a_model_call_of_the_harness_is_not_the_agents_words() {
    let place = json!({"langgraph_node": "before", "langgraph_checkpoint_ns": "before:1"});
    let with = |more: &Value| {
        let mut metadata = place.clone();
        metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        metadata
    };
    for marks in [
        json!({"lc_source": "summarization"}),
        json!({"lc_source": "llmToolSelector"}),
        json!({"lc_source": "toolEmulation"}),
        json!({"lc_internal_call": "00ff"}),
        json!({"lc_source": "tool_selection", "lc_internal_call": "00ff"}),
    ] {
        for stream in internal(&with(&marks)) {
            for (harness, is_shown) in
                [(Harness::Notice, false), (Harness::Hide, false), (Harness::Show, true)]
            {
                let mut parts = vec![("values", json!({"messages": [typed("h1", "hi")]}))];
                parts.extend(stream.clone());
                parts.push(("values", json!({"messages": [typed("h1", "hi")]})));
                let (events, _) = run(harness, &parts);
                let told = told(harness, &parts);
                let text = String::from_utf8(told.bytes.clone()).unwrap();
                assert_eq!(text.contains("INTERNAL"), is_shown, "{marks} {harness:?} {stream:?}");
                assert_eq!(text.contains("choose"), is_shown, "{marks} {harness:?} {stream:?}");
                // It has cost tokens, but not of the agent's context window, and it is not the
                // model that ends the turn.
                let Some(RunEvent::Ended { outcome, usage }) = events.last() else { panic!() };
                assert_eq!(usage.iter().filter_map(|usage| usage.input).sum::<u64>(), 90);
                let Outcome::Finished { finish, .. } = outcome else { panic!("{outcome:?}") };
                let ended = if is_shown { Finish::Length } else { Finish::Done };
                assert_eq!(*finish, ended, "{marks} {harness:?} {stream:?}");
                let spent = events.iter().any(|event| matches!(event, RunEvent::Spent { .. }));
                assert_eq!(spent, is_shown, "{marks} {harness:?} {stream:?}");
                let session = acp::project(&mut acp::newcomer(), &events);
                let text = String::from_utf8(session.bytes).unwrap();
                assert_eq!(text.contains("INTERNAL"), is_shown, "{marks} {harness:?} {stream:?}");
            }
        }
    }
    // A message that the thread keeps is shown, whoever's call has made it.
    let kept = answered("lc_run--x", "INTERNAL");
    let mut parts = vec![("values", json!({"messages": [typed("h1", "hi")]}))];
    parts.extend(internal(&with(&json!({"lc_source": "summarization"}))).remove(1));
    parts.push(("values", json!({"messages": [typed("h1", "hi"), kept]})));
    let told = told(Harness::Notice, &parts);
    assert_eq!(held(&told)[1].2, "INTERNAL");
}

#[test]
fn an_editor_gets_a_notice_in_the_form_that_it_takes() {
    let schema = acp_schema::Schema::load();
    let updates = |compactions, notices, source: &str| {
        let notice = marked("n1", source, "its text");
        let parts = [
            ("values", json!({"messages": [typed("h1", "hi")]})),
            ("updates", json!({"before": {"messages": [notice]}})),
            ("values", json!({"messages": [typed("h1", "hi"), notice]})),
        ];
        let (events, _) = run(Harness::Notice, &parts);
        let forms = NoticeForms { compactions, notices };
        let mut projector = AcpProjector::new(Arc::default(), acp::CWD).noticing(forms);
        projector.hold(&threadway_translate::run::Id::from("h1"));
        let session = acp::project(&mut projector, &events);
        for update in &session.updates {
            schema.check_update(update).unwrap();
        }
        session.updates
    };
    let compaction = json!({"sessionUpdate": "compaction_update", "compactionId": "n1:notice",
        "status": "completed", "summary": [{"type": "text", "text": "its text"}]});
    let notice = |title: &str| {
        json!({"sessionUpdate": "notice", "severity": "info", "title": title,
            "description": "its text"})
    };
    let line = |title: &str| {
        json!({"sessionUpdate": "agent_message_chunk", "messageId": "n1:notice",
            "content": {"type": "text", "text": format!("[{title}]")}})
    };
    let summary = "The model reads a summary of the conversation so far";
    let skill = "The graph has added a message for the model: `pinned_skill`";
    for (compactions, notices, source, expected) in [
        (true, true, "summarization", compaction.clone()),
        (true, false, "summarization", compaction),
        (false, true, "summarization", notice(summary)),
        (false, false, "summarization", line(summary)),
        (true, true, "pinned_skill", notice(skill)),
        (true, false, "pinned_skill", line(skill)),
        (false, false, "pinned_skill", line(skill)),
    ] {
        assert_eq!(updates(compactions, notices, source), [expected], "{source}");
    }
    let long = format!("a\n{}", "x".repeat(100));
    let [update] = &*updates(false, true, &long) else { panic!() };
    let title = update["title"].as_str().unwrap();
    assert!(title.ends_with("x`") && title.contains("`a\\nx") && title.len() < 120, "{title}");
}

/// The run that a request on this thread becomes: its messages, and where it forks.
fn planned(thread: &[Value], sent: &[Value], harness: Harness) -> (Vec<String>, Option<String>) {
    let state = json!({"values": {"messages": thread}, "next": [],
        "checkpoint": {"checkpoint_id": "1"}});
    let state = state.to_string();
    let state = ThreadState::parse(&state).unwrap();
    let body = json!({"threadId": "t", "runId": "r", "protocolVersion": "1.0", "messages": sent});
    let input = Input::parse(body.to_string().as_bytes()).unwrap();
    let planner = RequestPlanner {
        input: &input,
        on_message: OnMessage::AskAgain,
        allowance: &Allowance::default(),
        emit: EmitOptions { harness, ..EmitOptions::default() },
        messages_key: &MessagesKey::MESSAGES,
    };
    let plan = plan(&planner, Some(&state), &InputKeys::Undescribed).unwrap();
    let run = plan.run.unwrap();
    let Start::Input(up) = &run.start else { panic!() };
    let up: Value = serde_json::from_str(up.get()).unwrap();
    let up = up["messages"].as_array().unwrap().iter();
    (up.map(|message| message["id"].as_str().unwrap().to_owned()).collect(), run.fork_before)
}

#[test]
fn a_notice_that_a_client_never_got_is_not_one_that_it_deleted() {
    let user = |id: &str, text: &str| json!({"id": id, "role": "user", "content": text});
    let said = |id: &str, text: &str| json!({"id": id, "role": "assistant", "content": text});
    let notice = || marked("n1", "pinned_skill", "a file");
    let (h1, a1) = (typed("h1", "hi"), answered("a1", "yo"));
    let next = ["h2".to_owned()];
    for thread in [
        vec![notice(), h1.clone(), a1.clone()],
        vec![h1.clone(), notice(), a1.clone()],
        vec![h1.clone(), a1.clone(), notice()],
    ] {
        for harness in [Harness::Notice, Harness::Hide] {
            assert!(thread.iter().any(is_of_harness));
            // One more message goes up alone.
            let sent = [user("h1", "hi"), said("a1", "yo"), user("h2", "and?")];
            assert_eq!(planned(&thread, &sent, harness), (next.to_vec(), None));
            // An answer that is to be given again, and an edit, fork as ever.
            let sent = [user("h1", "hi")];
            let again = (vec!["h1".to_owned()], Some("h1".to_owned()));
            assert_eq!(planned(&thread, &sent, harness), again);
            let sent = [user("h1", "ho"), said("a1", "yo")];
            assert_eq!(planned(&thread, &sent, harness), again);
        }
        // A client of an older gateway holds the notice as a person's message.
        let held = thread.iter().map(|message| match message["type"].as_str() {
            Some("ai") => {
                said(message["id"].as_str().unwrap(), message["content"].as_str().unwrap())
            }
            _ => user(message["id"].as_str().unwrap(), message["content"].as_str().unwrap()),
        });
        let sent: Vec<_> = held.chain([user("h2", "and?")]).collect();
        for harness in [Harness::Notice, Harness::Hide, Harness::Show] {
            assert_eq!(planned(&thread, &sent, harness), (next.to_vec(), None), "{thread:?}");
        }
    }
    // A run that failed after the harness had added its message has answered nobody: asking again is
    // no fork.
    let thread = [h1, notice()];
    assert_eq!(planned(&thread, &[user("h1", "hi")], Harness::Notice), (Vec::new(), None));
}

#[test]
fn a_summary_is_no_title_of_a_thread() {
    use threadway_translate::langgraph::ThreadRecord;
    let messages = [marked("s1", "summarization", "Here is a summary"), typed("h1", "my question")];
    let record = json!({"thread_id": "T", "status": "idle", "metadata": {},
        "values": {"messages": messages}});
    let record = ThreadRecord::parse(&record.to_string()).unwrap();
    assert_eq!(record.title().as_deref(), Some("my question"));
}
