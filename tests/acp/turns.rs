//! Prompts, what an editor chooses for them, how they end, and how they are cancelled.

use serde_json::json;

use crate::script::{Play, scripts};

// === a turn ===

scripts! {

#[tokio::test]
async fn turn_is_sent_whole_before_its_response() = r#"
    session A; prompt A hi r; r says m "one "; r says m two
    r calls m c look {"at": "it"}; r results c seen; r says n three
    r has {"type": "ai", "id": "n", "content": "three and more"}
    r has {"type": "ai", "id": "o", "content": "four"}
    r completes; stop A end_turn
    is shown:A ["session_info_update", "agent_message_chunk m one ", "agent_message_chunk m two",
        "tool_call c -", "agent_message_chunk n three", "tool_call_update c -",
        "tool_call_update c completed", "agent_message_chunk n  and more",
        "agent_message_chunk o four"]
"#;

#[tokio::test]
async fn prompt_is_refused_while_another_one_runs() = r#"
    session A; prompt A one r
    let $busy "session $A is busy with a prompt; wait for its response, or send `session/cancel`
        and then this request again"
    let $two {"prompt": [{"type": "text", "text": "two"}]}
    refused A session/prompt $two -32600 "$busy"
    # Nor can the session be loaded in the meantime. It is refused at once: the prompt could end
    # while the thread is read, and the client would get its text twice.
    count "GET /threads/$A" 0
    refused A session/load {"cwd": "/srv/app", "mcpServers": []} -32600 "$busy"
    refused A session/resume {"cwd": "/srv/app", "mcpServers": []} -32600 "$busy"
    count "GET /threads/$A" 0
    finish r A; count "POST /threads/$A/runs/stream" 1
    turn A three
"#;

#[tokio::test]
async fn options_of_one_agent_do_not_go_to_another() = r#"
    setup agents; session A
    call A session/set_config_option {"configId": "config:model", "value": "smart"}
    is current:config:model smart
    turn A hi; is turn/config/configurable {"model": "smart"}
    call A session/set_config_option {"configId": "assistant", "value": "b"}
    is current:config:model gpt
    turn A hi; is turn/config/configurable none
    call A session/set_config_option {"configId": "config:model", "value": "claude"}
    is current:config:model claude
    turn A hi; is turn/config/configurable {"model": "claude"}
    call A session/set_config_option {"configId": "assistant", "value": "a"}
    is current:config:model smart
    turn A hi; is turn/config/configurable {"model": "smart"}
    is thread:A/acp_config~1a~1model smart; is thread:A/acp_config~1b~1model claude
    # Another process reads the choices.
    another editor; resume A; is current:config:model smart
"#;

#[tokio::test]
async fn mode_that_is_left_restores_the_chosen_agent() = r#"
    setup planner; session A
    call A session/set_config_option {"configId": "assistant", "value": "b"}
    call A session/set_mode {"modeId": "auto"}; turn A hi; is turn/assistant_id planner
    call A session/set_mode {"modeId": "ask"}; turn A hi; is turn/assistant_id b
    call A session/set_mode {"modeId": "auto"}; turn A hi; is turn/assistant_id planner
    # Another process sets another mode.
    another editor; resume A
    call A session/set_config_option {"configId": "mode", "value": "ask"}; is current:assistant b
"#;

#[tokio::test]
async fn run_that_fails_ends_its_prompt_with_the_reason() = r#"
    session A; prompt A hi r; r calls m c look {}
    r sends error {"error": "ValueError", "message": "no such thing"}; r ends error
    response A; last shown:A "tool_call_update c failed"
    is response/error {"code": -32603, "message": "the run failed: ValueError: no such thing",
        "data": {"details": "no such thing"}}
    # The upstream refuses the run.
    prompt A hi; held h /runs/stream; answer h 500 {"detail":"out of order"}
    response A; is response/error/code -32603; has response/error/message "out of order"
    # The stream breaks off. The gateway joins it again, and the run has failed meanwhile.
    prompt A hi r; r says n one; hears one; r cut
    joined r; r ends error; response A; is response/error/code -32603
"#;

#[tokio::test]
async fn request_that_is_cancelled_is_answered_so() = r#"
    session A; prompt A hi r; r says m one; hears one
    notify $/cancel_request {"requestId": $prompt}; cancelled $r
    r ends interrupted; stop A cancelled
    # Another request.
    hold /threads/search; request x session/list {}; held h /threads/search
    notify $/cancel_request {"requestId": $x}; closed h
    response x; is response/error {"code": -32800, "message": "the request was cancelled"}
    # Ids of requests that have ended, or never existed.
    notify $/cancel_request {"requestId": $x}; notify $/cancel_request {"requestId": $prompt}
    notify $/cancel_request {"requestId": "x"}; notify $/cancel_request {"requestId": null}
"#;

// === cancel ===

#[tokio::test]
async fn cancel_in_mid_stream_stops_this_run_only() = r#"
    session A; session B; prompt A hi r; prompt B ho s
    r says m one; r calls m c look {}; hears one
    cancel A; cancelled $r
    r says n "last words"; r ends interrupted; stop A cancelled
    has shown:A "agent_message_chunk n last words"; last shown:A "tool_call_update c failed"
    # The other session's run continues.
    s says m "still here"; hears "still here"; finish s B
    # The session can be prompted again.
    prompt A again r; r says p yes; finish r A; is said ["p yes"]
"#;

#[tokio::test]
async fn cancel_is_answered_within_a_second_whatever_the_upstream_does() = r#"
    session A; prompt A hi r; r calls m c look {}; r says m one; hears one
    hold /cancel; cancel A; quickly stop A cancelled
    is shown:A ["tool_call_update c failed"]
    alive; held h /cancel; answer h 202 ""; cancelled $r
"#;

#[tokio::test]
async fn cancel_before_the_start_of_its_run_stops_it_then() = r"
    session A; prompt A hi; held h /runs/stream
    cancel A; quickly stop A cancelled; cancelled
    begin h r; cancelled $r
";

#[tokio::test]
async fn cancel_reaches_whatever_a_prompt_waits_for() = r#"
    rows $before $held $runs
        alive "POST /threads" 0
        "turn A first" "GET /threads/" 1
        "turn A first" /state 1
        "turn A first" /runs 1
    session A; $before; hold "$held"; prompt A hi; held h "$held"
    cancel A; quickly stop A cancelled
    release "$held"; closed h; count "POST /threads/$A/runs" $runs
"#;

#[tokio::test]
async fn cancelled_prompt_leaves_what_it_did_not_store_to_the_next_one() = r#"
    rows $thread $open $held
        "session A" alive "POST /threads"
        "thread A {}" "resume A" PATCH
    $thread; $open; hold "$held"
    prompt A "first words"; held h "$held"
    cancel A; stop A cancelled; closed h
    release "$held"; turn A "second words"; is thread:A/title "first words"
"#;

#[tokio::test]
async fn cancel_withdraws_the_questions_of_its_session() = r#"
    session A; session B; write A one q; write B two p
    cancel A; quickly stop A cancelled
    is requests [{"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": $q}}]
    is shown:A ["tool_call_update one failed"]
    # The protocol requires this response of the client; the agent no longer waits for it.
    reply q {"outcome": {"outcome": "cancelled"}}
    # The other request is still open.
    reply p allow; run s B; finish s B
"#;

#[tokio::test]
async fn question_that_the_user_closes_cancels_the_turn() = r#"
    session A; write A one q; reply q {"outcome": {"outcome": "cancelled"}}
    stop A cancelled; is requests []; is shown:A ["tool_call_update one failed"]
"#;

#[tokio::test]
async fn cancel_of_nothing_does_nothing() = r"
    session A; cancel A; cancel A
    prompt A hi r; r says m one; finish r A
    cancel A; alive
";

// === the connection ends ===

#[tokio::test]
async fn editor_that_leaves_does_not_stop_its_run() = r"
    session A; prompt A hi r; r says m one; hears one
    leave; r closed
";

#[tokio::test]
async fn editor_that_leaves_stops_its_runs_where_the_operator_wants_that() = r"
    setup cancel_runs; session A; session B
    prompt A hi r; prompt B hi s; r says m one; hears one
    leave; cancelled $r $s
";

#[tokio::test]
async fn editor_that_leaves_stops_the_run_that_is_being_started_too() = r"
    setup cancel_runs; session A
    prompt A hi; held h /runs/stream
    hang_up; stop A cancelled
    begin h r; leave; cancelled $r
";

#[tokio::test]
async fn editor_that_leaves_is_asked_nothing_more() = r#"
    session A; prompt A hi r
    r asks [{"id": "q", "value": {"action_requests": [{"name": "write", "args": {}}],
        "review_configs": [{"action_name": "write",
            "allowed_decisions": ["approve", "edit", "reject"]}]}}]
    asked q; leave; count "POST /threads/$A/runs/stream" 1
"#;

}

#[tokio::test]
async fn sessions_at_once_do_not_mix() {
    let mut play = Play::start("default").await;
    play.steps("session A; session B; prompt A hi r; prompt B ho s").await;
    for at in 0..50 {
        // Both runs use the same message id, in two conversations.
        play.steps(&format!("r says m \"a{at} \"; s says m \"b{at} \"")).await;
    }
    let [one, two] = ["a", "b"]
        .map(|name| (0..50).map(|at| format!("{name}{at} ")).collect::<Vec<_>>().concat());
    play.steps(&format!("finish s B; finish r A; is text:A \"{one}\"; is text:B \"{two}\"")).await;
    play.end().await;
}

#[tokio::test]
async fn prompt_behind_a_choice_runs_with_it() {
    let mut play = Play::start("options").await;
    // Storing the choice takes a while.
    play.steps(
        r#"
        session A; turn A first; hold PATCH
        request x A session/set_config_option {"configId": "config:model", "value": "deep"}
        prompt A hi; held h PATCH"#,
    )
    .await;
    let stored = "acp_config/agent/model";
    play.change("A", |thread| thread.metadata[stored] = json!("deep"));
    play.steps(
        r#"
        answer h 200 {}; response x; is current:config:model deep
        run r A; is r/config {"configurable": {"model": "deep"}}; finish r A"#,
    )
    .await;
    // The choice is stored where every process can read it.
    let kept = play.server.asked("PATCH").pop().unwrap();
    assert_eq!(kept["metadata"], json!({stored: "deep"}));
    play.end().await;
}

#[tokio::test]
async fn run_that_the_upstream_does_not_accept_now_says_when() {
    let mut play = Play::start("default").await;
    play.steps("session A; prompt A hi").await;
    play.server.held("/runs/stream").await.too_many("retry-after: 30\r\n").await;
    play.steps("response A; is response/error/code -32603").await;
    let message = play.look("response/error/message");
    assert!(message.as_str().unwrap().ends_with("slow down; try again in 30 s"), "{message}");
    play.end().await;
}
