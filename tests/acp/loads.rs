//! Sessions of other processes: loaded, resumed, and with runs and questions that are still open.

use serde_json::json;

use crate::script::{Play, scripts};

scripts! {

#[tokio::test]
async fn load_sends_the_history_and_then_responds() = r#"
    thread A $kept [$history]
    let $all ["user_message_chunk h1 hi", "agent_message_chunk a1 let me look",
        "tool_call c1 completed", "agent_message_chunk a2 there"]
    # Each load sends the whole conversation again, under the same ids.
    load A; is shown:A $all; alive
    load A; is shown:A $all; alive
    # From here on the updates are new.
    prompt A "and now?" r; r values; r says a3 here; r completes; stop A end_turn
    is shown:A ["agent_message_chunk a3 here"]
"#;

#[tokio::test]
async fn resume_sends_no_history_and_goes_on() = r#"
    thread A $kept [$history]
    resume A; is updates []; alive
    prompt A "and now?" r; r values; r says a3 here; r completes; stop A end_turn
    is shown:A ["agent_message_chunk a3 here"]
"#;

#[tokio::test]
async fn live_run_is_shown_after_the_history_and_a_prompt_waits_for_it() = r#"
    thread A $kept [$history]; live A L
    request x A session/load {"cwd": "/srv/app", "mcpServers": []}
    joined r; r replays; r says a3 live; response x; is response/error none
    is shown:A/0 "user_message_chunk h1 hi"; is shown:A/1 "agent_message_chunk a1 let me look"
    is shown:A/2 "tool_call c1 completed"; is shown:A/3 "agent_message_chunk a2 there"
    prompt A next; r says a3 er; hears er
    is text:A "let me lookthereliveer"; count "POST /threads/$A/runs/stream" 0
    r completes; run s A; is s/input/messages/0/content next
    # No text is sent twice.
    finish s A; is said []
"#;

#[tokio::test]
async fn cancel_stops_a_live_run_that_is_shown() = r#"
    thread A $kept [$history]; live A L
    request x A session/load {"cwd": "/srv/app", "mcpServers": []}
    joined r; r replays; r says a3 live
    response x; is response/error none
    cancel A; cancelled L; r ends interrupted
"#;

#[tokio::test]
async fn cancelled_prompt_behind_a_run_of_others_leaves_that_run_and_settles_its_calls() = r#"
    thread A $kept [$history]; load A
    # The run begins while no session is open.
    live A L
    prompt A next; joined r; r replays
    r calls a3 c2 look {"at": "that"}; r results c2 seen; r says a4 looking; hears looking
    cancel A; stop A cancelled; is statuses:c2 ["failed"]; cancelled
    # That run ends by itself, and the next prompt shows its outcome.
    r recorded success
    prompt A "and now?" s; s completes; stop A end_turn
    is statuses:c2 ["failed", "completed"]
"#;

#[tokio::test]
async fn load_asks_the_open_questions_after_its_response() = r#"
    thread A $kept $waiting
    # The session is not known yet.
    load A; is requests []
    is shown:A/0 "user_message_chunk h1 hi"; is shown:A/1 "agent_message_chunk a1 let me look"
    is shown:A/2 "tool_call c1 completed"; is shown:A/3 "agent_message_chunk a2 there"
    asked q; is q/params/toolCall/toolCallId c2; reply q allow
    run r A; is decisions:r [{"type": "approve"}]
    r says a4 done; hears done; r completes
    turn A thanks
"#;

#[tokio::test]
async fn prompt_withdraws_the_questions_of_a_load() = r#"
    thread A $kept $waiting; load A; asked q
    prompt A wait; withdrawn q
    # The agent asks again for the decision, and then runs the prompt.
    reject_first A wait; is requests []
    # A response that arrives too late changes nothing.
    reply q allow; alive; count "POST /threads/$A/runs/stream" 2
"#;

#[tokio::test]
async fn prompt_in_a_resumed_session_whose_thread_waits_is_asked_about_first() = r"
    thread A $kept $waiting; resume A
    prompt A no; reject_first A no
";

#[tokio::test]
async fn cancel_withdraws_the_questions_of_a_load() = r"
    thread A $kept $waiting; load A; asked q
    cancel A; withdrawn q
";

}

#[tokio::test]
async fn editor_is_asked_about_the_calls_that_are_still_open() {
    let mut play = Play::start("default").await;
    // Another client has decided about the first call, and its decision says more than an editor's
    // could.
    let edited = json!({"type": "edit", "edited_action": {"name": "post", "args": {"to": "b"}}});
    play.steps(
        r#"
        thread A $kept [{"type": "human", "id": "h1", "content": "hi"},
                {"type": "ai", "id": "a1", "content": "", "tool_calls": [
                    {"id": "c1", "name": "send", "args": {}, "type": "tool_call"},
                    {"id": "c2", "name": "delete", "args": {}, "type": "tool_call"}]}]
            [{"id": "i", "value": {"review_configs": [],
                "action_requests": [{"name": "send", "args": {}}, {"name": "delete", "args": {}}]}}]
        live A r"#,
    )
    .await;
    let key = "threadway_answer:0:0";
    let answer = json!({"interrupt": "i", "action": 0, "after": "r", "decision": edited});
    play.change("A", |thread| {
        thread.metadata[key] = answer;
        thread.runs[0]["status"] = json!("success");
    });
    play.steps(&format!(
        r#"
        resume A; prompt A "and now?"
        asked q; is q/params/toolCall/toolCallId c2; reply q allow
        resumed r A {{"i": {{"decisions": [{edited}, {{"type": "approve"}}]}}}}
        is r/metadata/{key} null
        r results c1 done; r results c2 done; r completes
        run r A; is r/input/messages/0/content "and now?"; finish r A"#
    ))
    .await;
    let is_forgotten = |_: &_| play.look(&format!("thread:A/{key}")).is_null();
    play.server.until("it is forgotten", is_forgotten).await;
    play.end().await;
}

/// One event of an idle thread has the whole conversation, and becomes one update for each message.
#[tokio::test]
async fn load_of_more_messages_than_an_event_id_counts_updates_is_whole() {
    const MESSAGES: usize = 66_000;
    let mut play = Play::start("default").await;
    let message = |at: usize| json!({"type": "ai", "id": format!("m{at}"), "content": "x"});
    let messages: Vec<_> = (0..MESSAGES).map(message).collect();
    play.steps(&format!("thread A $kept {}; load A", json!(messages))).await;
    let expected: Vec<_> = (0..MESSAGES).map(|at| format!("m{at} x")).collect();
    assert!(play.look("said") == json!(expected), "{}", play.look("said/65999"));
    play.end().await;
}
