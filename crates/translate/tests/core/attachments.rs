//! Output of a model other than text: each provider's form, on both wires, live and from a state.

use std::sync::Arc;

use crate::support::acp::{self, Session};
use crate::support::acp_schema;
use crate::support::capture::{self, Translated};
use crate::support::generate::{self, ScriptPart, fold, run_events};
use crate::support::judge;
use crate::support::plan::plan;
use crate::support::reduce::Held;
use crate::support::schema::Schema;
use proptest::prelude::*;
use serde_json::{Value, json};
use threadway_translate::agui::{Allowance, Input, OnMessage, Projector, RequestPlanner};
use threadway_translate::langgraph::{Capabilities, InputKeys, MessagesKey, ThreadState};
use threadway_translate::run::{
    self, Id, Message, Role, RunConfig, RunEvent, StreamEnd, View, Viewer, ViewerMessages,
};

const PNG: &str = "iVBORw0KGgo=";

#[expect(clippy::needless_pass_by_value, reason = "callers pass a temporary")]
fn ai(id: &str, content: Value) -> Value {
    json!({"type": "ai", "id": id, "content": content, "tool_calls": []})
}

fn human(id: &str) -> Value {
    json!({"type": "human", "id": id, "content": "hi"})
}

fn image() -> Value {
    json!({"type": "image", "base64": PNG, "mime_type": "image/png"})
}

fn values(messages: &[Value]) -> ScriptPart {
    ScriptPart::new("values", &json!({ "messages": messages }))
}

/// The run events of a stream.
fn events(parts: &[ScriptPart]) -> Vec<RunEvent> {
    run_events(&generate::bytes(parts, false), 4096, None, StreamEnd::Succeeded).1
}

/// The events for a newcomer, checked.
fn told(events: &[RunEvent]) -> Vec<Value> {
    let Translated { events, .. } =
        capture::project(events, Projector::new(capture::newcomer(), Vec::new()));
    assert_eq!(judge::legal(&Schema::load(), &events), Ok(()));
    events
}

/// The activities of a stream: type and content.
fn activities(events: &[Value]) -> Vec<(&str, &Value)> {
    let shown = events.iter().filter(|event| event["type"] == "ACTIVITY_SNAPSHOT");
    shown.map(|event| (event["activityType"].as_str().unwrap(), &event["content"])).collect()
}

/// The messages of the official client after these events.
fn held(mut held: Held, events: &[Value]) -> Vec<Value> {
    for event in events {
        held.apply(event).unwrap();
    }
    held.messages
}

/// The ids of the conversation, without the activities of tools.
fn ids(messages: &[Value]) -> Vec<&str> {
    let ids = messages.iter().map(|message| message["id"].as_str().unwrap());
    ids.filter(|id| !id.ends_with(":activity")).collect()
}

/// A whole message of an agent, after the user's, for a newcomer.
fn whole(message: &Value) -> Vec<Value> {
    told(&events(&[values(&[human("u")]), values(&[human("u"), message.clone()])]))
}

#[test]
fn what_a_model_makes_is_an_activity_in_the_form_of_ag_uis_parts() {
    let data = |mime: &str, value: &str| json!({"type": "data", "value": value, "mimeType": mime});
    let url = |value: &str| json!({"type": "url", "value": value});
    for (block, kind, source) in [
        // LangChain's standard blocks, in Python's and in JavaScript's form.
        (image(), "image", data("image/png", PNG)),
        (
            json!({"type": "image", "data": PNG, "mimeType": "image/webp"}),
            "image",
            data("image/webp", PNG),
        ),
        (
            json!({"type": "audio", "base64": "UklG", "mime_type": "audio/mp3"}),
            "audio",
            data("audio/mp3", "UklG"),
        ),
        (json!({"type": "video", "url": "https://x/v.mp4"}), "video", url("https://x/v.mp4")),
        (json!({"type": "video", "fileId": "f1"}), "video", json!({"type": "file", "value": "f1"})),
        (
            json!({"type": "image", "source_type": "base64", "data": PNG, "mime_type": "image/png"}),
            "image",
            data("image/png", PNG),
        ),
        // OpenAI's blocks, of the chat API and of the responses API.
        (
            json!({"type": "image_url", "image_url": {"url": "https://x/y.png"}}),
            "image",
            url("https://x/y.png"),
        ),
        (
            json!({"type": "input_audio", "input_audio": {"data": "UklG", "format": "wav"}}),
            "audio",
            data("audio/wav", "UklG"),
        ),
        (
            json!({"type": "image_generation_call", "id": "ig_1", "result": PNG, "output_format": "jpeg"}),
            "image",
            data("image/jpeg", PNG),
        ),
        // Anthropic's blocks.
        (
            json!({"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": "R0lG"}}),
            "image",
            data("image/gif", "R0lG"),
        ),
        (
            json!({"type": "image", "source": {"type": "file", "file_id": "file_1"}}),
            "image",
            json!({"type": "file", "value": "file_1"}),
        ),
        // Google's blocks.
        (
            json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{PNG}")}}),
            "image",
            data("image/png", PNG),
        ),
        (
            json!({"type": "media", "mime_type": "video/mp4", "data": "AAAA"}),
            "video",
            data("video/mp4", "AAAA"),
        ),
        (
            json!({"type": "media", "mime_type": "application/pdf", "file_uri": "gs://b/a.pdf"}),
            "file",
            json!({"type": "url", "value": "gs://b/a.pdf", "mimeType": "application/pdf"}),
        ),
        (
            json!({"type": "inlineData", "inlineData": {"mimeType": "audio/wav", "data": "UklG"}}),
            "audio",
            data("audio/wav", "UklG"),
        ),
    ] {
        let events = whole(&ai("m", json!([block])));
        let expected = json!({"messageId": "m", "source": source});
        assert_eq!(activities(&events), [(&*format!("threadway.{kind}"), &expected)], "{block}");
    }
    let file =
        json!({"type": "file", "base64": "YQ==", "mime_type": "text/csv", "filename": "a.csv"});
    let events = whole(&ai("m", json!([file])));
    let expected =
        json!({"messageId": "m", "source": data("text/csv", "YQ=="), "filename": "a.csv"});
    assert_eq!(activities(&events), [("threadway.file", &expected)]);
}

#[test]
fn what_stands_beside_the_content_is_shown_too() {
    let mut message = ai("m", json!(""));
    message["additional_kwargs"] = json!({"audio": {"id": "audio_1", "data": "UklG", "expires_at": 1, "transcript": "Hello."}});
    let events = whole(&message);
    let source = json!({"type": "data", "value": "UklG", "mimeType": "audio/wav"});
    let expected = json!({"messageId": "m", "source": source});
    assert_eq!(activities(&events), [("threadway.audio", &expected)]);
    assert_eq!(judge::streamed_text(&events)["m"], "Hello.");

    message["additional_kwargs"] = json!({"refusal": "I will not."});
    assert_eq!(judge::streamed_text(&whole(&message))["m"], "I will not.");
    let refusal = ai("m", json!([{"type": "refusal", "refusal": "Nor this."}]));
    assert_eq!(judge::streamed_text(&whole(&refusal))["m"], "Nor this.");
}

#[test]
fn annotations_and_citations_are_kept_as_they_are_in_one_list() {
    let openai = r#"{"type":"url_citation","url":"https://x/1","start_index":0,"end_index":1.0}"#;
    let anthropic = r#"{"type":"char_location","cited_text":"gr\u00e9en","document_title":"D"}"#;
    let content = format!(
        r#"[{{"type":"text","text":"The grass is ","annotations":[{openai}]}},
            {{"type":"text","text":"green","citations":[{anthropic}]}},
            {{"type":"text","text":".","annotations":[],"citations":null}}]"#
    );
    let content = content.replace('\n', " ");
    let data = format!(
        r#"{{"messages":[{{"type":"human","id":"u","content":"hi"}},{{"type":"ai","id":"m","content":{content}}}]}}"#
    );
    let part = ScriptPart { event: "values".to_owned(), data };
    let run = events(&[values(&[human("u")]), part]);
    let mut bytes = Vec::new();
    let mut projector = Projector::new(capture::newcomer(), Vec::new());
    for event in &run {
        projector.project(event, &mut |event| event.write(&mut bytes));
    }
    let wire = String::from_utf8(bytes).unwrap();
    assert!(wire.contains(&format!(r#""annotations":[{openai},{anthropic}]"#)), "{wire}");
    let events = told(&run);
    assert_eq!(activities(&events)[0].0, "threadway.annotations");
    assert_eq!(judge::streamed_text(&events)["m"], "The grass is green.");
}

#[test]
fn a_block_of_no_known_form_is_shown_as_it_is_and_calls_stay_hidden() {
    let unknown =
        json!({"type": "server_tool_use", "id": "s", "name": "search", "input": {"q": 1}});
    let wrapped = json!({"type": "non_standard", "value": {"type": "new", "x": [1]}});
    let content = json!([
        unknown, wrapped, null,
        {"type": "tool_use", "id": "c", "name": "t", "input": {}},
        {"type": "tool_call", "id": "c", "name": "t", "args": {}},
        {"type": "invalid_tool_call", "id": "c", "name": "t", "args": "{"},
        {"type": "custom_tool_call", "call_id": "c", "name": "t", "input": "x"},
    ]);
    let events = whole(&ai("m", content));
    let block = |block: &Value| json!({"messageId": "m", "block": block});
    let expected = [("threadway.block", &block(&unknown)), ("threadway.block", &block(&wrapped))];
    assert_eq!(activities(&events), expected);
}

#[test]
fn nothing_is_made_of_chunks_and_nothing_is_told_twice() {
    let origin = json!({"langgraph_node": "model", "langgraph_checkpoint_ns": "model:t"});
    let cut = json!({"type": "image", "base64": "iVBO", "mime_type": "image/png"});
    let chunk =
        json!({"type": "AIMessageChunk", "id": "m", "content": [cut], "tool_call_chunks": []});
    let prefix = ai("m", json!([cut]));
    let message = ai("m", json!([image(), {"type": "text", "text": "Done."}]));
    let parts = [
        values(&[human("u")]),
        ScriptPart::new("messages", &json!([chunk, origin])),
        ScriptPart::new("messages/partial", &json!([prefix])),
        ScriptPart::new("updates", &json!({"model": {"messages": [message]}})),
        ScriptPart::new("messages/complete", &json!([message])),
        values(&[human("u"), message]),
    ];
    let events = told(&events(&parts));
    let shown = activities(&events);
    assert_eq!(shown.len(), 1, "{shown:?}");
    assert_eq!(shown[0].1["source"]["value"], PNG);
    // The message ends before its attachments begin.
    let kinds: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let at = kinds.iter().position(|kind| *kind == "ACTIVITY_SNAPSHOT").unwrap();
    assert_eq!(kinds[at - 1], "TEXT_MESSAGE_END");
}

#[test]
fn an_attachment_stands_behind_its_message_and_the_results_of_its_calls() {
    let mut caller = ai("m", json!([image(), {"type": "text", "text": "Wait."}]));
    caller["tool_calls"] = json!([{"id": "c", "name": "t", "args": {}}]);
    let tool = json!({"type": "tool", "id": "r", "content": "ok", "tool_call_id": "c"});
    let all = [human("u"), caller.clone(), tool.clone(), ai("n", json!([image()]))];
    let parts = [values(&all[..1]), values(&all[..2]), values(&all[..3]), values(&all)];
    let run = events(&parts);
    let live = told(&run);
    let snapshots = live.iter().filter(|event| event["type"] == "MESSAGES_SNAPSHOT");
    assert_eq!(snapshots.count(), 1, "the base: the stream alone brings a client to the end");
    let order = ["u", "m", "r", "m:attachment:0", "n", "n:attachment:0"];
    let mut messages = held(Held::default(), &live);
    // Clients that saw the tool run also have its activity.
    messages.retain(|message| message["activityType"] != "threadway.tool");
    assert_eq!(ids(&messages), order);
    // A client that connects later gets the same.
    let view = fold(&run);
    let late = told(&[
        run[0].clone(),
        RunEvent::Messages(view.messages().into()),
        run.last().unwrap().clone(),
    ]);
    assert_eq!(held(Held::default(), &late), messages);
    // The message stays although only its image is shown: LangGraph has it.
    assert_eq!((&messages[4]["role"], &messages[4]["content"]), (&json!("assistant"), &json!("")));
    assert_eq!(messages[5]["role"], "activity");
}

#[test]
fn older_clients_get_the_same_activities() {
    let message = ai("m", json!([{"type": "image", "source": {"type": "file", "file_id": "f"}}]));
    let run = events(&[values(&[human("u")]), values(&[human("u"), message])]);
    let body = json!({"threadId": "t", "runId": "r", "messages": []});
    let legacy = Input::parse(body.to_string().as_bytes()).unwrap();
    let Translated { events, .. } =
        capture::project(&run, Projector::new(legacy.client(), Vec::new()));
    assert_eq!(activities(&events), activities(&told(&run)));
}

/// The input of a client with this conversation and one more message.
fn next_input(messages: &[Value]) -> Input {
    let sent: Vec<_> = messages.iter().filter(|message| message["role"] != "activity").collect();
    let body = json!({"threadId": "t", "runId": "r2", "protocolVersion": "1.0", "messages": sent});
    Input::parse(body.to_string().as_bytes()).unwrap()
}

#[test]
fn a_client_that_holds_attachments_or_does_not_ends_with_them_in_their_order() {
    let first = [human("u"), ai("m", json!([image(), {"type": "text", "text": "Here."}]))];
    let run = events(&[values(&first[..1]), values(&first)]);
    let user = json!({"id": "v", "role": "user", "content": "hi"});
    let mut shown = held(Held::default(), &told(&run));
    shown.push(user.clone());
    let without: Vec<_> =
        shown.iter().filter(|message| message["role"] != "activity").cloned().collect();
    let input = next_input(&shown);

    let mut all = first.to_vec();
    all.push(human("v"));
    let base = values(&all);
    all.push(ai("n", json!("Bye.")));
    let second = events(&[base, values(&all)]);
    let Translated { events, .. } =
        capture::project(&second, Projector::new(input.client(), input.held()));
    for messages in [shown, without] {
        let state = json!({});
        let after = held(Held { messages, state }, &events);
        assert_eq!(ids(&after), ["u", "m", "m:attachment:0", "v", "n"]);
    }
}

#[test]
fn activities_do_not_go_up_and_their_message_is_not_edited() {
    let state =
        json!({"values": {"messages": [human("u"), ai("m", json!([image()]))]}, "next": []});
    let state = state.to_string();
    let state = ThreadState::parse(&state).unwrap();
    let body = json!({"threadId": "t", "runId": "r", "protocolVersion": "1.0", "messages": [
        {"id": "u", "role": "user", "content": "hi"},
        {"id": "m", "role": "assistant", "content": ""},
        {"id": "m:attachment:0", "role": "activity", "activityType": "threadway.image", "content": {}},
        {"id": "v", "role": "user", "content": "more"},
    ]});
    let input = Input::parse(body.to_string().as_bytes()).unwrap();
    let allowance = Allowance::default();
    let asking = RequestPlanner {
        input: &input,
        on_message: OnMessage::AskAgain,
        allowance: &allowance,
        emit: run::EmitOptions::default(),
        messages_key: &MessagesKey::MESSAGES,
    };
    let run = plan(&asking, Some(&state), &InputKeys::Unknown).unwrap().run.unwrap();
    assert_eq!(run.fork_before, None);
    assert!(matches!(run.configured, RunConfig::Not));
    let request: Value = serde_json::from_str(
        &serde_json::to_string(&run.request("agent", Capabilities::default(), None)).unwrap(),
    )
    .unwrap();
    let sent = &request["input"]["messages"];
    assert_eq!(sent.as_array().unwrap().len(), 1, "{sent}");
    assert_eq!(sent[0]["id"], "v");
}

#[test]
fn what_is_gone_from_the_thread_is_deleted_or_emptied() {
    let image_message = ai("m", json!([image()]));
    let base = values(&[human("u")]);
    let drawn = values(&[human("u"), image_message.clone()]);
    // There is another attachment, so the snapshot deletes the old one.
    let other = values(&[human("u"), ai("n", json!([image()]))]);
    let events_of = |last: &ScriptPart| told(&events(&[base.clone(), drawn.clone(), last.clone()]));
    let messages = held(Held::default(), &events_of(&other));
    assert_eq!(ids(&messages), ["u", "n", "n:attachment:0"]);
    // There is no attachment: a snapshot cannot delete the old one, and shows nothing in its place.
    let none = values(&[human("u"), ai("n", json!("No."))]);
    let messages = held(Held::default(), &events_of(&none));
    let left: Vec<_> = messages.iter().filter(|message| message["role"] == "activity").collect();
    let expected = json!({"id": "m:attachment:0", "role": "activity",
        "activityType": "threadway.empty", "content": {}});
    assert_eq!(left, [&expected]);
}

#[test]
fn a_follower_gets_the_next_runs_attachments_without_a_snapshot() {
    let first = [human("u"), ai("m", json!("Hi."))];
    let told_before = fold(&events(&[values(&first)]));
    let mut all = first.to_vec();
    all.extend([human("v"), ai("n", json!([image(), {"type": "text", "text": "Here."}]))]);
    let run = events(&[values(&all)]);
    let view = fold(&run);
    let resync =
        run::resync(&view, Viewer::Holds(&told_before), run::EmitOptions::default()).unwrap();
    assert!(!resync.iter().any(|event| matches!(event, RunEvent::Messages(_))), "{resync:?}");
    let mut follower: View = told_before.clone();
    for event in &resync {
        follower.apply(event);
    }
    assert_eq!(follower.messages(), view.messages());
    assert!(follower.message("n:attachment:0").is_some());
}

#[test]
fn one_who_comes_back_ends_with_attachments_in_their_order() {
    let all = [human("u"), ai("m", json!([image()])), human("v"), ai("n", json!([image()]))];
    let view = fold(&events(&[values(&all)]));
    let order: Vec<_> = view.messages().iter().map(|message| &message.id).collect();
    let attachments = view.messages().iter().filter(|m| m.role == Role::Attachment).cloned();
    // The client's content may be out of order and incomplete.
    let before = View::with(attachments.collect::<Vec<Arc<Message>>>(), None);
    for viewer in [ViewerMessages::Returning, ViewerMessages::Unknown] {
        let mut client = before.clone();
        for snapshot in run::snapshots(viewer, view.messages()) {
            client.apply(&RunEvent::Messages(snapshot.into()));
        }
        // Of the attachments that the conversation does not have, an empty one may stay.
        let held = client.messages().iter().filter(|message| !message.id.starts_with("threadway:"));
        assert_eq!(held.map(|message| &message.id).collect::<Vec<_>>(), order);
    }
    let empty: Id = Id::from("m:attachment:0");
    assert_eq!(before.message(&empty).unwrap().owner(), Some("m"));
}

/// A client sends its messages along, and not its attachments.
#[test]
fn attachments_of_a_conversation_that_has_changed_are_deleted() {
    let shown = |messages: &[Value]| fold(&events(&[values(messages)]));
    let before = shown(&[human("u"), ai("m", json!([image()])), human("v")]);
    let sent: Vec<_> =
        before.messages().iter().filter(|m| m.role != Role::Attachment).cloned().collect();
    let text = |id: &str| ai(id, json!("text"));
    for now in [
        // Edited, forked, forgotten, and an older copy of the conversation.
        vec![human("u"), text("n"), human("v")],
        vec![human("u")],
        vec![],
        vec![human("t"), text("s"), human("u"), human("v")],
    ] {
        let now = shown(&now);
        let mut client = before.clone();
        for snapshot in run::snapshots(ViewerMessages::Known(&sent), now.messages()) {
            client.apply(&RunEvent::Messages(snapshot.into()));
        }
        let held = client.messages().iter().filter(|message| !message.id.starts_with("threadway:"));
        let held: Vec<_> = held.map(|message| &message.id).collect();
        assert_eq!(held, now.messages().iter().map(|message| &message.id).collect::<Vec<_>>());
    }
    // The same client, which sends only the message that it adds.
    let now = shown(&[human("t"), text("s")]);
    let mut client = before.clone();
    for snapshot in run::snapshots(ViewerMessages::Known(&sent[sent.len() - 1..]), now.messages()) {
        client.apply(&RunEvent::Messages(snapshot.into()));
    }
    assert!(client.messages().iter().all(|message| message.owner() != Some("m")));
    // A client that holds the beginning of the conversation is sent nothing empty.
    let short = shown(&[human("u"), text("m")]);
    let longer = shown(&[human("u"), text("m"), human("v"), text("w")]);
    let snapshots = run::snapshots(ViewerMessages::Known(short.messages()), longer.messages());
    assert_eq!(snapshots, [longer.messages()]);
}

/// A message of each kind, and the empty messages of snapshots: they may stay at all clients.
fn any_messages() -> impl Strategy<Value = Vec<Arc<Message>>> {
    let all = [
        ("u", Role::User),
        ("m", Role::Assistant),
        ("m:reasoning:0", Role::Reasoning),
        ("rs_1", Role::Reasoning),
        ("m:attachment:0", Role::Attachment),
        ("n:attachment:0", Role::Attachment),
        ("threadway:resync", Role::Reasoning),
        ("threadway:resync:2", Role::Reasoning),
        ("threadway:resync:attachment", Role::Attachment),
        ("threadway:resync:attachment:2", Role::Attachment),
    ];
    let all = all.map(|(id, role)| Arc::new(Message::new(Id::from(id), role))).to_vec();
    prop::sample::subsequence(all.clone(), 0..=all.len()).prop_shuffle()
}

proptest! {
    #![proptest_config(generate::config(1_000))]

    /// Snapshots have at most one empty message of a kind, so a conversation has too.
    #[test]
    fn a_client_that_may_hold_anything_ends_with_the_target_in_its_order(
        held in any_messages(),
        target in any_messages(),
    ) {
        let has = |id: &str| target.iter().any(|message| *message.id == *id);
        let empties = ["threadway:resync", "threadway:resync:attachment"];
        prop_assume!(!empties.iter().any(|id| has(id) && has(&format!("{id}:2"))));
        for viewer in
            [ViewerMessages::Known(&held), ViewerMessages::Unknown, ViewerMessages::Returning]
        {
            let mut client = View::with(held.clone(), None);
            for snapshot in run::snapshots(viewer, &target) {
                client.apply(&RunEvent::Messages(snapshot.into()));
            }
            // A client keeps its own messages of a kind that the target lacks.
            let has = |role| {
                let is_optional = matches!(role, Role::Reasoning | Role::Attachment);
                !is_optional || target.iter().any(|message| message.role == role)
            };
            let shown = client.messages().iter().filter(|message| has(message.role));
            prop_assert_eq!(
                shown.map(|message| &message.id).collect::<Vec<_>>(),
                target.iter().map(|message| &message.id).collect::<Vec<_>>(),
                "{:?}", viewer,
            );
        }
    }
}

/// The chunks of an agent's attachments, checked.
fn chunks(session: &Session) -> Vec<Value> {
    session.check().unwrap();
    acp_schema::Schema::load().check(session).unwrap();
    let is_attached = |update: &&Value| {
        update["messageId"].as_str().is_some_and(|id| id.contains(":attachment:"))
    };
    let attached = session.updates.iter().filter(is_attached);
    attached
        .map(|update| {
            assert_eq!(update["sessionUpdate"], "agent_message_chunk");
            update["content"].clone()
        })
        .collect()
}

#[test]
fn an_editor_is_shown_images_recordings_links_and_the_rest_as_text() {
    let content = json!([
        image(),
        {"type": "audio", "base64": "UklG", "mime_type": "audio/wav"},
        {"type": "file", "url": "https://x/a.csv"},
        {"type": "file", "base64": "YQ==", "mime_type": "text/csv", "filename": "a.csv"},
        {"type": "new", "x": "y"},
        {"type": "text", "text": "Said.", "annotations": [
            {"type": "url_citation", "url": "https://x/1", "title": "One"},
            {"type": "url_citation", "url": "https://x/1", "title": "One"},
            {"type": "citation", "title": "A book"},
        ]},
    ]);
    let run = events(&[values(&[human("u")]), values(&[human("u"), ai("m", content)])]);
    let live = acp::project(&mut acp::newcomer(), &run);
    let expected = [
        json!({"type": "image", "data": PNG, "mimeType": "image/png"}),
        json!({"type": "audio", "data": "UklG", "mimeType": "audio/wav"}),
        json!({"type": "resource_link", "name": "a.csv", "uri": "https://x/a.csv",
            "mimeType": "application/octet-stream"}),
        json!({"type": "resource", "resource": {"uri": "attachment:a.csv", "mimeType": "text/csv", "blob": "YQ=="}}),
        json!({"type": "text", "text": "\n```json\n{\"type\":\"new\",\"x\":\"y\"}\n```\n"}),
        json!({"type": "resource_link", "name": "One", "uri": "https://x/1"}),
        json!({"type": "text", "text": "\n[A book]\n"}),
    ];
    assert_eq!(chunks(&live), expected);
    // A client that loads the session later gets the same.
    assert_eq!(chunks(&acp::load(&fold(&run))), expected);
}

/// What an editor is shown of a message that it loads: texts, and attachments by their numbers.
fn loaded(content: &Value) -> Vec<String> {
    // The first state of a run is the thread as it was.
    let run = events(&[values(&[human("u"), ai("m", content.clone())])]);
    let session = acp::project(&mut acp::newcomer(), &run);
    let of_agent = |update: &&Value| update["sessionUpdate"] == "agent_message_chunk";
    let part =
        |update: &Value| match update["messageId"].as_str().unwrap().split_once(":attachment:") {
            Some((_, number)) => number.to_owned(),
            None => update["content"]["text"].as_str().unwrap().to_owned(),
        };
    session.updates.iter().filter(of_agent).map(part).collect()
}

#[test]
fn attachments_are_loaded_in_their_order_and_in_the_text_if_one_is() {
    let text = |text: &str| json!({"type": "text", "text": text});
    let new = || json!({"type": "new", "x": "y"});
    for (content, expected) in [
        (json!([new(), text("a"), image(), new()]), vec!["a", "0", "1", "2"]),
        (json!([text("a"), image(), new()]), vec!["a", "0", "1"]),
        (json!([new(), image(), text("a")]), vec!["a", "0", "1"]),
        (json!([text("a"), image(), text("b")]), vec!["a", "0", "b"]),
        (json!([new(), text("a"), image(), text("b"), new()]), vec!["0", "a", "1", "b", "2"]),
        (json!([image(), new()]), vec!["0", "1"]),
    ] {
        assert_eq!(loaded(&content), expected, "{content}");
    }
}

#[test]
fn a_large_block_is_cut_for_an_editor_and_says_so() {
    let block = json!({"type": "new", "x": "é".repeat(4000)});
    let length = block.to_string().len();
    let run = events(&[values(&[human("u")]), values(&[human("u"), ai("m", json!([block]))])]);
    let shown = chunks(&acp::project(&mut acp::newcomer(), &run));
    let [shown] = &*shown else { panic!("{shown:?}") };
    let text = shown["text"].as_str().unwrap();
    assert!(text.len() < 4200, "{}", text.len());
    assert!(text.contains(&format!("… {} bytes more", length - 4095)), "{text}");
}

#[test]
fn a_file_keeps_the_name_that_its_block_has() {
    let file = |more: Value| {
        let mut block = json!({"type": "file", "base64": "YSxi", "mime_type": "text/csv"});
        block.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        block
    };
    let named = |name: &str| json!({ "filename": name });
    for (block, expected) in [
        (file(named("a.csv")), "a.csv"),
        (file(json!({"extras": named("a.csv")})), "a.csv"),
        (file(json!({"metadata": named("a.csv")})), "a.csv"),
        (file(json!({"filename": "a.csv", "extras": named("b.csv")})), "a.csv"),
        (file(json!({"filename": "", "extras": named("b.csv")})), "b.csv"),
        (file(json!({"filename": null, "extras": named("b.csv")})), "b.csv"),
        (file(json!({"extras": named("a.csv"), "metadata": named("b.csv")})), "a.csv"),
        (
            json!({"type": "file", "file": {"filename": "a.csv", "file_data": "data:text/csv;base64,YSxi"}}),
            "a.csv",
        ),
        (
            json!({"type": "media", "data": "YSxi", "mime_type": "text/csv", "extras": named("a.csv")}),
            "a.csv",
        ),
    ] {
        // An assistant's file.
        let messages = [human("h"), ai("a", json!([{"type": "text", "text": "Here."}, block]))];
        let out = events(&[values(&messages[..1]), values(&messages)]);
        let told = told(&out);
        let [(kind, content)] = &*activities(&told) else { panic!("{told:?}") };
        assert_eq!((*kind, content["filename"].as_str()), ("threadway.file", Some(expected)));
        let session = acp::project(&mut acp::newcomer(), &out);
        let uri = format!("attachment:{expected}");
        let is_file = |update: &&Value| update["content"]["type"] == "resource";
        let file = session.updates.iter().find(is_file).unwrap();
        assert_eq!(file["content"]["resource"]["uri"], uri, "{block}");
        // A person's, and a tool's.
        let person = json!({"type": "human", "id": "p", "content": [block]});
        let call = json!({"type": "ai", "id": "c", "content": "",
            "tool_calls": [{"id": "c1", "name": "t", "args": {}}]});
        let result = json!({"type": "tool", "id": "r", "tool_call_id": "c1", "content": [block]});
        let out = events(&[values(&[person, call, result])]);
        let told = self::told(&out);
        let snapshot = told.iter().find(|event| event["type"] == "MESSAGES_SNAPSHOT").unwrap();
        for at in [0, 2] {
            let name = &snapshot["messages"][at]["content"][0]["metadata"]["filename"];
            assert_eq!(*name, expected, "{block}");
        }
        let session = acp::project(&mut acp::newcomer(), &out);
        let bytes = String::from_utf8(session.bytes).unwrap();
        assert_eq!(bytes.matches(&uri).count(), 2, "{bytes}");
    }
}

#[test]
fn files_without_a_name_have_different_addresses() {
    let file = |data: &str| json!({"type": "file", "base64": data, "mime_type": "text/csv"});
    let three = json!([file("QQ=="), {"type": "text", "text": "and"}, file("Qg=="), file("Qw==")]);
    let call = json!({"type": "ai", "id": "c", "content": "",
        "tool_calls": [{"id": "c1", "name": "t", "args": {}}]});
    let person = json!({"type": "human", "id": "p", "content": three});
    let result = json!({"type": "tool", "id": "r", "tool_call_id": "c1", "content": three});
    for messages in [vec![person], vec![call, result], vec![ai("a", three)]] {
        let out = events(&[values(&messages)]);
        let lines = String::from_utf8(acp::project(&mut acp::newcomer(), &out).bytes).unwrap();
        for uri in ["attachment:file\"", "attachment:file-2\"", "attachment:file-3\""] {
            assert_eq!(lines.matches(uri).count(), 1, "{uri} in {lines}");
        }
    }
}
