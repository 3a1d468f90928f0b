//! What an editor is offered without configuration: images and audio that the graph's model takes,
//! the graph's own modes, and its assistants.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::clock::HeldClock;
use crate::support::editor::{CWD, Editor, Setup, open_with};
use crate::support::langgraph::{LangGraph, assistant};
use threadway::sessions::Settings;
use threadway_translate::acp::choice::Mode;
use threadway_translate::acp::permission::Rules;
use threadway_translate::acp::prompt::AcceptedContent;

const GEMINI: &str = "google_genai:gemini-2.5-pro";

fn new_session() -> Value {
    json!({"cwd": CWD, "mcpServers": []})
}

fn initialize() -> Value {
    json!({"protocolVersion": 1, "clientCapabilities": {}})
}

/// The schemas of a graph whose model is this by default.
fn with_model(model: &str) -> Value {
    json!({"context_schema": {"properties": {"model": {"default": model, "type": "string"}}}})
}

/// An assistant that a person made.
fn made(id: &str, graph: &str, name: &str, context: &Value) -> Value {
    json!({"assistant_id": id, "graph_id": graph, "name": name, "metadata": {}, "context": context})
}

async fn server_with(schemas: Value) -> LangGraph {
    let server = LangGraph::start().await;
    server.books().schemas = schemas;
    server
}

/// Whether prompts may hold images, and recordings.
async fn accepts(url: &str, setup: &Setup) -> [bool; 2] {
    let mut editor = Editor::start(url, setup);
    let initialized = editor.call("initialize", initialize()).await;
    editor.ended().await;
    let told = &initialized["agentCapabilities"]["promptCapabilities"];
    assert_eq!(told["embeddedContext"], true);
    ["image", "audio"].map(|kind| told[kind].as_bool().unwrap())
}

fn image() -> Value {
    json!({"type": "image", "data": "AA==", "mimeType": "image/png"})
}

fn audio() -> Value {
    json!({"type": "audio", "data": "BB==", "mimeType": "audio/wav"})
}

fn not_accepted(at: usize, kind: &str, word: &str) -> (i64, String) {
    let message = format!(
        "prompt[{at}]: this agent takes no {kind}, as its promptCapabilities say; if the graph's \
         model takes them, add \"{word}\" to `prompt` under `[acp]` in the config file of threadway"
    );
    (-32602, message)
}

/// Sends a prompt of these blocks, which a run of the server answers. Returns the run's message.
async fn sent(
    server: &mut LangGraph,
    editor: &mut Editor,
    session: &str,
    blocks: &[Value],
) -> Value {
    let params = json!({"sessionId": session, "prompt": blocks});
    let prompt = editor.request("session/prompt", params).await;
    let run = server.run().await;
    let content = run.said()["content"].clone();
    run.ends("success", None).await;
    assert_eq!(editor.until(prompt).await.stop_reason(), "end_turn");
    content
}

// === a slow server ===

#[tokio::test]
async fn a_session_opens_though_the_server_takes_long_to_list_its_agents() {
    let (mut server, mut editor) = open_with(Setup::default()).await;
    server.hold("/assistants/search");
    let clock = HeldClock::pause();
    let opened = editor.request("session/new", new_session()).await;
    let listing = server.held("/assistants/search").await;
    // A page would not wait for as long.
    clock.advance(Duration::from_secs(20)).await;
    server.let_go_of("/assistants/search");
    listing.json(200, &json!([assistant("agent")]).to_string()).await;
    let session = editor.until(opened).await.result();
    assert!(session["sessionId"].is_string(), "{session}");
    editor.ended().await;
}

#[tokio::test]
async fn a_server_that_never_lists_its_agents_opens_no_session() {
    let (mut server, mut editor) = open_with(Setup::default()).await;
    server.hold("/assistants/search");
    let clock = HeldClock::pause();
    let opened = editor.request("session/new", new_session()).await;
    let _listing = server.held("/assistants/search").await;
    clock.advance(Duration::from_secs(30)).await;
    let (code, message) = editor.until(opened).await.error();
    assert_eq!(code, -32603);
    assert!(message.contains("did not answer within 30 s"), "{message}");
    editor.ended().await;
}

// === images and audio ===

#[tokio::test]
async fn images_and_audio_are_accepted_where_the_default_agents_model_takes_them() {
    for (model, expected) in [
        (GEMINI, [true, true]),
        ("anthropic/claude-sonnet-4-5", [true, false]),
        ("openai:gpt-4o", [true, false]),
        ("ollama:llama3", [false, false]),
        ("fast", [false, false]),
    ] {
        let server = server_with(with_model(model)).await;
        assert_eq!(accepts(&server.url, &Setup::default()).await, expected, "{model}");
    }
    let mut server = server_with(with_model("openai:gpt-4o")).await;
    let mut editor = Editor::initialized(&server.url, &Setup::default()).await;
    let session = editor.session().await;
    let content = sent(&mut server, &mut editor, &session, &[image()]).await;
    assert_eq!(content, json!([{"type": "image", "base64": "AA==", "mime_type": "image/png"}]));
    let params = json!({"sessionId": session, "prompt": [image(), audio()]});
    let refused = editor.refused("session/prompt", params).await;
    assert_eq!(refused, not_accepted(1, "audio", "audio"));
    editor.ended().await;
}

#[tokio::test]
async fn only_the_agent_of_new_sessions_counts_and_its_own_model_first() {
    let server = server_with(with_model("ollama:llama3")).await;
    let id = "22222222-2222-4222-8222-222222222222";
    let vision = made(id, "agent", "Aaa", &json!({"model": "openai:gpt-4o"}));
    server.books().assistants.push(vision);
    assert_eq!(accepts(&server.url, &Setup::default()).await, [false, false]);
    let named = Setup { agent: Some(id.to_owned()), ..Setup::default() };
    assert_eq!(accepts(&server.url, &named).await, [true, false]);
    // A new session starts in the first mode, which may have an agent or a model of its own.
    let mode = |assistant: Option<&str>, configurable: Option<&str>| {
        let configurable = configurable.map(|text| threadway_translate::json::raw(text.to_owned()));
        let mode = Mode {
            id: "m".to_owned(),
            name: "M".to_owned(),
            description: None,
            assistant: assistant.map(str::to_owned),
            configurable,
            permissions: Rules::default(),
        };
        Setup {
            settings: Settings { modes: vec![mode], ..Settings::default() },
            ..Setup::default()
        }
    };
    assert_eq!(accepts(&server.url, &mode(Some(id), None)).await, [true, false]);
    let named = format!(r#"{{"model":"{GEMINI}"}}"#);
    assert_eq!(accepts(&server.url, &mode(Some(id), Some(&named))).await, [true, true]);
    let unknown = mode(Some(id), Some(r#"{"model":"fast"}"#));
    assert_eq!(accepts(&server.url, &unknown).await, [false, false]);
}

#[tokio::test]
async fn what_the_configuration_says_is_the_answer_and_nothing_is_asked_for_it() {
    for (image, audio) in [(false, false), (true, false), (false, true)] {
        let server = server_with(with_model(GEMINI)).await;
        let accepts_these = AcceptedContent { image, audio, embedded_context: true };
        let settings = Settings { accepts: Some(accepts_these), ..Settings::default() };
        let setup = Setup { settings, ..Setup::default() };
        assert_eq!(accepts(&server.url, &setup).await, [image, audio]);
        assert!(server.asked("GET /assistants/").is_empty());
        let mut editor = Editor::initialized(&server.url, &setup).await;
        let session = editor.session().await;
        let blocks = if image { [self::audio()] } else { [self::image()] };
        let params = json!({"sessionId": session, "prompt": blocks});
        let (code, message) = editor.refused("session/prompt", params).await;
        assert!(code == -32602 && message.contains("under `[acp]`"), "{code} {message}");
        editor.ended().await;
    }
}

#[tokio::test]
async fn an_upstream_that_does_not_answer_delays_initialize_by_two_seconds() {
    let mut server = server_with(with_model(GEMINI)).await;
    server.hold("/schemas");
    let mut editor = Editor::start(&server.url, &Setup::default());
    let clock = HeldClock::pause();
    let id = editor.request("initialize", initialize()).await;
    let _schemas = server.held("/schemas").await;
    clock.advance(Duration::from_secs(2)).await;
    let initialized = editor.until(id).await.result();
    let told = &initialized["agentCapabilities"]["promptCapabilities"];
    assert_eq!((&told["image"], &told["audio"]), (&json!(false), &json!(false)));
    // Nothing was learned, so the model is asked about again with the first prompt that needs it.
    server.let_go_of("/schemas");
    let session = editor.session().await;
    let content = sent(&mut server, &mut editor, &session, &[audio()]).await;
    assert_eq!(content[0]["type"], "audio");
    editor.ended().await;
    assert_eq!(accepts("http://127.0.0.1:1", &Setup::default()).await, [false, false]);
}

#[tokio::test]
async fn a_session_with_another_model_is_judged_by_that_one() {
    let models = ["ollama:llama3", "openai:gpt-4o"];
    let model = json!({"default": models[0], "enum": models, "type": "string"});
    let schemas = json!({"context_schema": {"properties": {"model": model}}});
    let mut server = server_with(schemas).await;
    let mut editor = Editor::initialized(&server.url, &Setup::default()).await;
    let session = editor.session().await;
    let params = json!({"sessionId": session, "prompt": [image()]});
    let refused = editor.refused("session/prompt", params).await;
    assert_eq!(refused, not_accepted(0, "images", "image"));
    let choice = json!({"sessionId": session, "configId": "config:model", "value": models[1]});
    editor.call("session/set_config_option", choice).await;
    sent(&mut server, &mut editor, &session, &[image()]).await;
    editor.ended().await;
}

// === modes ===

/// A graph with a field `mode`, and one with other modes.
fn with_modes() -> Value {
    let mode = |values: [&str; 2]| {
        let values = values.map(|value| json!({"const": value, "title": value.to_uppercase()}));
        json!({"context_schema": {"properties": {"mode": {"oneOf": values}}}})
    };
    json!({"agent": mode(["act", "plan"]), "other": mode(["slow", "act"]), "none": {}})
}

#[tokio::test]
async fn a_graphs_field_mode_is_the_mode_of_its_sessions() {
    let mut server = server_with(with_modes()).await;
    server.books().assistants.extend(["other", "none"].map(assistant));
    let mut editor = Editor::initialized(&server.url, &Setup::default()).await;
    let opened = editor.call("session/new", new_session()).await;
    let session = opened["sessionId"].as_str().unwrap().to_owned();
    let available = json!([{"id": "act", "name": "ACT"}, {"id": "plan", "name": "PLAN"}]);
    assert_eq!(opened["modes"], json!({"currentModeId": "act", "availableModes": available}));
    let option = &opened["configOptions"][0];
    assert_eq!((&option["id"], &option["category"]), (&json!("config:mode"), &json!("mode")));

    let params = json!({"sessionId": session, "modeId": "plan"});
    let set = editor.request("session/set_mode", params).await;
    assert_eq!(editor.until(set).await.result(), json!({}));
    let update = editor.next().await["params"]["update"].clone();
    assert_eq!(update["sessionUpdate"], "config_option_update");
    assert_eq!(update["configOptions"][0]["currentValue"], "plan");
    let prompt = editor.prompt(&session, "hi").await;
    let run = server.run().await;
    assert_eq!(run.body["config"]["configurable"]["mode"], "plan");
    run.ends("success", None).await;
    editor.until(prompt).await;

    // The option is the same mode, and older clients learn of its change.
    let option =
        |id: &str, value: &str| json!({"sessionId": session, "configId": id, "value": value});
    editor.call("session/set_config_option", option("config:mode", "act")).await;
    let update = editor.next().await["params"]["update"].clone();
    assert_eq!(update, json!({"sessionUpdate": "current_mode_update", "currentModeId": "act"}));
    let params = json!({"sessionId": session, "modeId": "fly"});
    let refused = editor.refused("session/set_mode", params).await;
    assert_eq!(refused, (-32602, "there is no mode `fly`; there are `act`, `plan`".to_owned()));
    // A client cannot learn of new modes, so a mode that it was not offered is not sent to it.
    for (agent, mode) in [("other", Some("slow")), ("none", None)] {
        let changed = editor.call("session/set_config_option", option("assistant", agent)).await;
        let options = changed["configOptions"].as_array().unwrap();
        let found = options.iter().find(|option| option["id"] == "config:mode");
        assert_eq!(found.map(|option| option["currentValue"].as_str().unwrap()), mode, "{agent}");
        let next = editor.request("session/cancel_all", json!({})).await;
        let told = editor.until(next).await;
        assert!(told.updates.is_empty(), "{told:?}");
    }
    editor.ended().await;
}

// === assistants ===

#[tokio::test]
async fn the_graphs_own_assistants_come_first_and_each_has_a_name_of_its_own() {
    let server = LangGraph::start().await;
    let one = "aaaaaaaa-2222-4222-8222-222222222222";
    let two = "bbbbbbbb-2222-4222-8222-222222222222";
    {
        let mut books = server.books();
        let mut described = made(one, "agent", "Untitled", &Value::Null);
        described["description"] = json!("Finds faults");
        books.assistants.push(described);
        books.assistants.push(made(two, "agent", "Untitled", &Value::Null));
        books.assistants.push(made(
            "cccccccc-2222-4222-8222-222222222222",
            "agent",
            "Aaa",
            &json!({}),
        ));
    }
    let mut editor = Editor::initialized(&server.url, &Setup::default()).await;
    let opened = editor.call("session/new", new_session()).await;
    let option = &opened["configOptions"][0];
    assert_eq!((&option["name"], &option["currentValue"]), (&json!("Agent"), &json!("agent")));
    let offered: Vec<_> = option["options"].as_array().unwrap().iter().collect();
    let told: Vec<_> = offered
        .iter()
        .map(|one| (one["name"].as_str().unwrap(), one["description"].as_str().unwrap_or("-")))
        .collect();
    assert_eq!(
        told,
        [
            ("agent", "-"),
            ("Aaa", "Runs the graph agent"),
            ("Untitled (aaaaaaaa)", "Finds faults"),
            ("Untitled (bbbbbbbb)", "Runs the graph agent"),
        ]
    );
    // No commands are made up.
    assert!(opened.get("modes").is_none());
    editor.is_alive().await;
    editor.ended().await;
}

#[tokio::test]
async fn the_modes_of_the_configuration_precede_those_of_the_graph() {
    let (server, mut editor) = open_with(Setup::with_modes(&["ask", "act"])).await;
    server.books().schemas = with_modes();
    let opened = editor.call("session/new", new_session()).await;
    assert_eq!(opened["modes"]["currentModeId"], "ask");
    let options = opened["configOptions"].as_array().unwrap();
    let of_mode: Vec<_> = options.iter().filter(|option| option["category"] == "mode").collect();
    assert_eq!(of_mode.len(), 1);
    assert!(options.iter().any(|option| option["id"] == "config:mode"));
    editor.ended().await;
}

/// The JavaScript server fails so for graphs whose state is no zod object.
#[tokio::test]
async fn a_server_that_describes_no_graph_may_still_name_the_model() {
    let mut server = LangGraph::javascript().await;
    server.books().assistants[0]["config"] = json!({"configurable": {"model": "openai:gpt-4o"}});
    server.hold("/schemas");
    let mut editor = Editor::start(&server.url, &Setup::default());
    let id = editor.request("initialize", initialize()).await;
    server.held("/schemas").await.answer(500, "text/plain", "Internal Server Error").await;
    let initialized = editor.until(id).await.result();
    let told = &initialized["agentCapabilities"]["promptCapabilities"];
    assert_eq!((&told["image"], &told["audio"]), (&json!(true), &json!(false)));
    editor.ended().await;
}

/// The JavaScript server compiles the graph's source for each such request, which takes seconds on
/// a busy machine, and then fails.
#[tokio::test]
async fn the_settings_of_a_graph_are_requested_once_for_several_sessions() {
    let mut server = LangGraph::javascript().await;
    let mut editor = Editor::initialized(&server.url, &Setup::default()).await;
    server.hold("/schemas");
    let first = editor.request("session/new", new_session()).await;
    for _ in 0..2 {
        // One request for the settings, and one for the keys of the input.
        server.held("/schemas").await.answer(500, "text/plain", "Internal Server Error").await;
    }
    assert!(editor.until(first).await.result().get("configOptions").is_none());
    server.let_go_of("/schemas");
    server.books().schemas = with_modes();
    // Not requested again, so not known yet.
    assert!(editor.call("session/new", new_session()).await.get("configOptions").is_none());
    editor.ended().await;
}
