//! The machine in front of a small model of the gateway, cut at every place.

mod model;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{MAX_REQUESTS, MAX_SENDS};
use model::{OLD, World};
use threadway_translate::acp::rpc::{Code, Error};

const INITIALIZE: u64 = 1;
const NEW: u64 = 2;
const LOAD: u64 = 3;

fn opened() -> World {
    let mut world = World::new();
    world.request(INITIALIZE, "initialize", &json!({"protocolVersion": 1}));
    world.request(NEW, "session/new", &json!({"cwd": "/ws", "mcpServers": []}));
    world.request(LOAD, "session/load", &json!({"sessionId": OLD, "cwd": "/ws", "mcpServers": []}));
    world
}

fn prompt(session: &str) -> Value {
    json!({"sessionId": session, "prompt": [{"type": "text", "text": "hi"}]})
}

fn answer(world: &World, id: u64) -> &Value {
    match world.held.answers.get(&id).map(Vec::as_slice) {
        Some([answer]) => answer,
        other => panic!("request {id} has not one answer: {other:?}"),
    }
}

/// What holds at the end, whatever was cut.
fn check(world: &World) {
    for (id, answers) in &world.held.answers {
        assert_eq!(answers.len(), 1, "request {id}: {answers:?}");
    }
    let is_loaded = answer(world, LOAD).get("result").is_some();
    for (id, thread) in &world.graph.threads {
        if id == OLD && !is_loaded {
            continue;
        }
        let mut runs = thread.runs.clone();
        runs.dedup();
        assert_eq!(runs, thread.runs, "a prompt ran twice in {id}");
        for (kind, message, text) in &thread.messages {
            let held = world.held.texts.get(message).map_or("", String::as_str);
            let is_own = *kind == "user_message_chunk" && message != "u0";
            assert_eq!(held, if is_own { "" } else { text }, "{message} of {id}");
        }
    }
    let repeats = world.held.plans.windows(2).filter(|pair| pair[0] == pair[1]).count();
    assert_eq!(repeats, 0, "{:?}", world.held.plans);
}

fn new_session(world: &World) -> Option<String> {
    let made = world.held.answers.get(&NEW)?.first()?;
    Some(made["result"]["sessionId"].as_str()?.to_owned())
}

/// Sends prompts and other requests, one after the other, while the connection is cut as `ops` say.
fn play(ops: &[u8]) {
    let mut world = opened();
    let mut next = 10;
    let mut running: Vec<u64> = Vec::new();
    for op in ops {
        match op % 16 {
            0..=3 => drop(world.up()),
            4..=7 => drop(world.down()),
            8 | 9 => drop(world.tick()),
            10 => world.cut(),
            11 | 12 => world.connect(),
            13 | 14 => {
                running.retain(|id| !world.held.answers.contains_key(id));
                let session = if op % 2 == 0 { Some(OLD.to_owned()) } else { new_session(&world) };
                let load = world.held.answers.get(&LOAD).and_then(|all| all[0].get("result"));
                let is_loaded = load.is_some();
                if let Some(session) = session.filter(|_| running.is_empty() && is_loaded) {
                    next += 1;
                    running.push(next);
                    world.request(next, "session/prompt", &prompt(&session));
                }
            }
            _ => {
                next += 1;
                let mode = json!({"sessionId": OLD, "modeId": "m"});
                let load = world.held.answers.get(&LOAD).and_then(|all| all[0].get("result"));
                match next % 2 {
                    _ if load.is_none() => world.request(next, "session/list", &json!({})),
                    0 => world.request(next, "session/list", &json!({})),
                    _ => world.request(next, "session/set_mode", &mode),
                }
            }
        }
    }
    world.settle();
    for id in [INITIALIZE, NEW, LOAD].into_iter().chain(11..=next) {
        let answer = answer(&world, id);
        // A request may have been refused because the connection was lost each time.
        assert!(answer.get("result").is_some() || answer["error"]["code"] != -32002, "{answer}");
    }
    check(&world);
    let runs: usize = world.graph.threads.values().map(|thread| thread.runs.len()).sum();
    let ended = |(_, answers): &(&u64, &Vec<Value>)| answers[0]["result"]["stopReason"].is_string();
    let answered = world.held.answers.iter().filter(ended).count();
    // A prompt that ran is never reported as one that did not arrive.
    let lost = world.held.answers.values().filter(|answers| {
        answers[0]["error"]["message"]
            .as_str()
            .is_some_and(|text| text.contains("its run is not found"))
    });
    assert_eq!(runs, answered, "{} prompts did not arrive", lost.count());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn wherever_it_is_cut_each_request_has_one_answer_and_nothing_is_shown_twice(
        ops in prop::collection::vec(any::<u8>(), 0..120)
    ) {
        play(&ops);
    }

    #[test]
    fn whatever_the_sides_say_the_machine_does_not_panic(
        lines in prop::collection::vec((any::<bool>(), hostile()), 0..40)
    ) {
        let mut world = opened();
        world.settle();
        for (is_editor, line) in lines {
            if is_editor {
                world.machine.editor_said(line.as_bytes());
            } else {
                world.machine.gateway_said(&line);
            }
            let _ = world.machine.actions();
        }
        world.machine.lost();
        world.machine.connected();
    }
}

fn hostile() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "session/update",
        "session/prompt",
        "session/load",
        "session/cancel",
        "$/cancel_request",
        "session/request_permission",
        "initialize",
        "session/close",
    ]);
    let update = prop::sample::select(vec![
        json!({"sessionUpdate": "agent_message_chunk", "messageId": "a0", "content": {"type": "text", "text": "é long"}}),
        json!({"sessionUpdate": "agent_message_chunk", "messageId": "a0", "content": {"type": "image"}}),
        json!({"sessionUpdate": "tool_call", "toolCallId": "c", "status": 5}),
        json!({"sessionUpdate": 7}),
        json!([]),
    ]);
    (word, update, prop::option::of(0u64..6), prop::sample::select(vec![OLD, "new-1", "x"]))
        .prop_map(|(method, update, id, session)| {
            let params = json!({"sessionId": session, "update": update, "requestId": id});
            let mut message = json!({"jsonrpc": "2.0", "method": method, "params": params});
            if let Some(id) = id {
                message["id"] = json!(id);
            }
            message.to_string()
        })
}

#[test]
fn every_single_cut_of_a_prompt_is_survived() {
    for cut_at in 0..80 {
        let mut world = opened();
        world.settle();
        world.request(9, "session/prompt", &prompt(OLD));
        let mut steps = 0;
        loop {
            if steps == cut_at {
                world.cut();
                world.connect();
            }
            steps += 1;
            // The run says a piece for every three messages on their way.
            let is_moving = if steps % 4 == 0 { world.tick() } else { world.up() || world.down() };
            if !is_moving && steps > cut_at {
                break;
            }
        }
        world.settle();
        let prompts = world.sent.iter().filter(|line| line["method"] == "session/prompt");
        assert_eq!(prompts.count(), 1, "cut at {cut_at}");
        let answer = answer(&world, 9);
        let ran = world.graph.threads[OLD].runs.len();
        if ran == 1 {
            assert_eq!(answer["result"]["stopReason"], "end_turn", "cut at {cut_at}");
        } else {
            let message = answer["error"]["message"].as_str().unwrap();
            assert!(message.contains("its run is not found"), "{message}");
        }
        check(&world);
    }
}

#[test]
fn a_gateway_that_does_not_find_the_event_repeats_only_the_newest_turn() {
    let mut world = opened();
    world.settle();
    for (id, is_cut) in [(9, false), (10, true)] {
        world.request(id, "session/prompt", &prompt(OLD));
        while world.up() || world.down() {}
        world.tick();
        while world.down() {}
        if is_cut {
            world.is_forgetful = true;
            world.cut();
        }
        world.settle();
        assert_eq!(answer(&world, id)["result"]["stopReason"], "end_turn");
    }
    let texts: Vec<_> = world.held.texts.values().map(String::as_str).collect();
    let mut expected = vec!["long ago", "before", "0 1 2 3 ", "0 0 1 2 3 "];
    expected.sort_unstable();
    let mut texts = texts;
    texts.sort_unstable();
    assert_eq!(texts, expected);
}

#[test]
fn a_session_that_was_never_used_is_made_anew_under_the_same_id() {
    let mut world = opened();
    world.settle();
    let session = new_session(&world).unwrap();
    world.request(7, "session/set_mode", &json!({"sessionId": session, "modeId": "plan"}));
    world.settle();
    world.cut();
    world.settle();
    world.request(8, "session/prompt", &prompt(&session));
    world.settle();
    assert_eq!(answer(&world, 8)["result"]["stopReason"], "end_turn");
    let modes: Vec<_> = world.sent.iter().filter(|l| l["method"] == "session/set_mode").collect();
    assert_eq!(modes[1]["params"], json!({"sessionId": "new-2", "modeId": "plan"}));
    // The editor knows the session by its first id only.
    assert_eq!(world.graph.threads["new-2"].runs.len(), 1);
    check(&world);
    world.cut();
    world.settle();
    check(&world);
}

/// The params of the requests with this method that were sent to the gateway.
fn sent(world: &World, method: &str) -> Vec<Value> {
    let sent = world.sent.iter().filter(|line| line["method"] == method);
    sent.map(|line| line["params"].clone()).collect()
}

fn fork(world: &mut World, id: u64, source: &str) -> String {
    let params = json!({"sessionId": source, "cwd": "/other", "additionalDirectories": ["/lib"]});
    world.request(id, "session/fork", &params);
    world.settle();
    answer(world, id)["result"]["sessionId"].as_str().unwrap().to_owned()
}

#[test]
fn a_fork_is_opened_again_with_its_own_directories() {
    let mut world = opened();
    world.settle();
    let fork = fork(&mut world, 7, OLD);
    world.cut();
    world.settle();
    let opening = json!({"cwd": "/other", "additionalDirectories": ["/lib"], "sessionId": fork,
        "mcpServers": []});
    assert_eq!(sent(&world, "session/resume").iter().collect::<Vec<_>>(), [&opening]);
    world.request(8, "session/prompt", &prompt(&fork));
    world.settle();
    assert_eq!(answer(&world, 8)["result"]["stopReason"], "end_turn");
    world.cut();
    world.settle();
    // The editor has the history of the source: it is not shown again.
    let mut after = opening;
    after["_meta"] = json!({"threadway": {"eventId": "5"}});
    assert_eq!(sent(&world, "session/load").last(), Some(&after));
    check(&world);
    assert_eq!(sent(&world, "session/fork").len(), 1);
}

#[test]
fn a_fork_of_a_session_that_was_never_used_is_made_anew_with_the_settings() {
    let mut world = opened();
    world.settle();
    let source = new_session(&world).unwrap();
    world.request(7, "session/set_mode", &json!({"sessionId": source, "modeId": "plan"}));
    world.settle();
    let fork = fork(&mut world, 8, &source);
    world.cut();
    world.settle();
    // The source was made anew too.
    let made = json!({"cwd": "/other", "additionalDirectories": ["/lib"], "mcpServers": []});
    let news = sent(&world, "session/new");
    assert_eq!((news.len(), news.contains(&made)), (3, true), "{news:?}");
    world.request(9, "session/prompt", &prompt(&fork));
    world.settle();
    assert_eq!(answer(&world, 9)["result"]["stopReason"], "end_turn");
    let modes = sent(&world, "session/set_mode");
    let modes: Vec<_> = modes.iter().map(|params| &params["modeId"]).collect();
    assert_eq!(modes, ["plan", "plan", "plan"]);
    let prompted = sent(&world, "session/prompt")[0]["sessionId"].as_str().unwrap().to_owned();
    assert_eq!((prompted != fork, world.graph.threads[&prompted].runs.len()), (true, 1));
    // The gateway has the source under another id than the editor.
    let second = self::fork(&mut world, 10, &source);
    let asked = sent(&world, "session/fork")[1]["sessionId"].clone();
    assert_eq!((asked == *source, second.starts_with("fork-")), (false, true));
    check(&world);
}

#[test]
fn a_fork_is_not_sent_twice_and_waits_while_the_gateway_is_away() {
    let mut world = opened();
    world.settle();
    world.request(7, "session/fork", &json!({"sessionId": OLD, "cwd": "/other"}));
    while world.up() {}
    world.cut();
    let message = answer(&world, 7)["error"]["message"].as_str().unwrap();
    assert!(message.contains("look whether this was done"), "{message}");
    world.request(8, "session/fork", &json!({"sessionId": OLD, "cwd": "/other"}));
    world.settle();
    assert_eq!(answer(&world, 8)["result"]["sessionId"], "fork-3");
    assert_eq!(sent(&world, "session/fork").len(), 2);
}

#[test]
fn a_prompt_that_was_not_sent_can_be_cancelled() {
    let mut world = opened();
    world.settle();
    world.cut();
    world.request(7, "session/prompt", &prompt(OLD));
    world.notify("session/cancel", &json!({"sessionId": OLD}));
    assert_eq!(answer(&world, 7)["result"]["stopReason"], "cancelled");
    world.request(8, "session/list", &json!({}));
    world.notify("$/cancel_request", &json!({"requestId": 8}));
    assert_eq!(answer(&world, 8)["error"]["code"], -32800);
    world.settle();
    assert!(world.graph.threads[OLD].runs.is_empty());
}

#[test]
fn a_prompt_that_is_cancelled_while_the_gateway_is_away_is_stopped_on_the_next_connection() {
    for method in ["session/cancel", "$/cancel_request"] {
        let mut world = opened();
        world.settle();
        world.request(7, "session/prompt", &prompt(OLD));
        while world.up() {}
        world.cut();
        world.notify(method, &json!({"sessionId": OLD, "requestId": 7}));
        world.settle();
        let cancels = world.sent.iter().filter(|line| line["params"]["cancel"] == true);
        assert_eq!(cancels.count(), 1, "{method}");
        // That would stop whatever run the session shows.
        assert!(world.sent.iter().all(|line| line["method"] != "session/cancel"), "{method}");
        assert_eq!(answer(&world, 7)["result"]["stopReason"], "cancelled", "{method}");
    }
}

#[test]
fn a_prompt_ends_although_the_editor_loads_its_session_while_the_gateway_is_away() {
    let mut world = opened();
    world.settle();
    world.request(7, "session/prompt", &prompt(OLD));
    while world.up() {}
    world.cut();
    world.request(8, "session/load", &json!({"sessionId": OLD, "cwd": "/ws", "mcpServers": []}));
    world.settle();
    assert!(answer(&world, 8).get("result").is_some());
    assert_eq!(answer(&world, 7)["result"]["stopReason"], "end_turn");
}

#[test]
fn a_session_is_opened_again_after_a_load_that_was_given_up() {
    let mut world = opened();
    world.settle();
    world.request(7, "session/load", &json!({"sessionId": OLD, "cwd": "/ws", "mcpServers": []}));
    world.cut();
    world.machine.give_up(Error::new(Code::Internal, "there is no connection to http://gw"));
    world.request(9, "session/list", &json!({}));
    assert!(answer(&world, 7).get("error").is_some());
    world.connect();
    world.request(8, "session/prompt", &prompt(OLD));
    world.settle();
    assert_eq!(answer(&world, 8)["result"]["stopReason"], "end_turn");
}

#[test]
fn a_prompt_whose_run_may_go_on_says_so_when_the_gateway_stays_away() {
    let mut world = opened();
    world.settle();
    world.request(7, "session/prompt", &prompt(OLD));
    while world.up() {}
    world.cut();
    world.machine.give_up(Error::new(Code::Internal, "there is no connection to http://gw"));
    world.request(9, "session/list", &json!({}));
    let message = answer(&world, 7)["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("there is no connection to http://gw. If the prompt"), "{message}");
}

#[test]
fn a_gateway_that_stays_away_is_named_in_each_refusal_until_it_is_back() {
    let mut world = World::new();
    world.request(1, "initialize", &json!({"protocolVersion": 1}));
    world.machine.give_up(Error::new(Code::Internal, "http://gw does not answer"));
    world.request(2, "initialize", &json!({"protocolVersion": 1}));
    world.request(3, "session/list", &json!({}));
    for id in [1, 2, 3] {
        assert_eq!(answer(&world, id)["error"]["message"], "http://gw does not answer");
    }
    world.connect();
    world.request(4, "initialize", &json!({"protocolVersion": 1}));
    world.settle();
    assert_eq!(answer(&world, 4)["result"]["protocolVersion"], 1);
}

#[test]
fn a_request_that_closes_each_connection_is_not_sent_for_ever() {
    let mut world = opened();
    world.settle();
    world.request(7, "session/list", &json!({}));
    for _ in 0..MAX_SENDS {
        world.cut();
        world.connect();
        while world.sent.last().unwrap()["method"] != "session/list" && (world.up() || world.down())
        {
        }
    }
    let message = answer(&world, 7)["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("the connection to http://gw was lost 5 times"), "{message}");
}

#[test]
fn the_requests_that_wait_are_limited() {
    let mut world = World::new();
    world.request(0, "initialize", &json!({"protocolVersion": 1}));
    for id in 1..=MAX_REQUESTS as u64 {
        world.request(id, "session/list", &json!({}));
    }
    let refused = answer(&world, MAX_REQUESTS as u64);
    assert_eq!(refused["error"]["code"], -32600, "{refused}");
    let mut world = World::new();
    world.request(0, "initialize", &json!({"protocolVersion": 1}));
    for id in 1..=3 {
        world.request(id, "session/list", &json!({"cwd": "x".repeat(25 * 1024 * 1024)}));
    }
    let message = answer(&world, 3)["error"]["message"].as_str().unwrap();
    assert!(message.contains("bytes of requests wait for http://gw"), "{message}");
}
