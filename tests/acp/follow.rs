//! Runs that others start on the thread of an open session.

use std::time::Duration;

use crate::script::{Play, SOON, scripts};
use crate::support::clock::{HeldClock, within};
use crate::support::editor::CWD;
use crate::support::langgraph::LangGraph;

scripts! {

#[tokio::test]
async fn a_run_of_others_appears_in_an_open_session() = r#"
    thread A $kept [{"type": "human", "id": "h1", "content": "hi"}]; load A
    live A R1; soon joined r; r sends metadata {"run_id": "R1", "attempt": 1}
    r has {"type": "human", "id": "cron1", "content": "every hour"}; r values
    r says m1 "news 1"; soon hears "news 1"
    is shown:A ["user_message_chunk cron1 every hour", "agent_message_chunk m1 news 1"]
    r completes
    live A R2; soon joined s; s sends metadata {"run_id": "R2", "attempt": 1}
    s has {"type": "human", "id": "cron2", "content": "every hour"}; s values
    s says m2 "news 2"; soon hears "news 2"
    is shown:A ["user_message_chunk cron2 every hour", "agent_message_chunk m2 news 2"]
    s completes
    # A prompt goes on from there, and nothing is sent twice.
    prompt A thanks t; t says m9 bye; t completes; stop A end_turn; is said ["m9 bye"]
"#;

#[tokio::test]
async fn an_approval_of_a_run_of_others_is_asked_for_and_withdrawn_when_somebody_answers() = r#"
    thread A $kept [{"type": "human", "id": "h1", "content": "hi"}]; load A
    live A R1; soon joined r; r sends metadata {"run_id": "R1", "attempt": 1}
    r asks [{"id": "i", "value": {"action_requests": [{"name": "send", "args": {"to": "all"}}],
        "review_configs": [{"action_name": "send", "allowed_decisions": ["approve", "reject"]}]}}]
    soon asked q; is q/method session/request_permission
    # Another client answers, and the run goes on.
    live A R2; soon joined s; s sends metadata {"run_id": "R2", "attempt": 1}; s values
    soon withdrawn q; s says m sent; soon hears sent; s ends success
"#;

}

#[tokio::test]
async fn a_session_that_is_closed_or_new_is_not_followed() {
    let mut play = Play::start("default").await;
    play.steps("thread A $kept [$history]; load A; session B; call A session/close {}").await;
    let Play { server, editor, .. } = &mut play;
    let before = server.books().asked.len();
    let clock = HeldClock::pause();
    for _ in 0..100 {
        clock.advance(Duration::from_millis(100)).await;
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
    }
    drop(clock);
    tokio::time::resume();
    editor.is_alive().await;
    assert_eq!(server.books().asked.len(), before);
    // Its next prompt begins it.
    let session = editor.prompted_session(server, CWD).await;
    let clock = HeldClock::pause();
    let reads = |server: &LangGraph| server.asked(&format!("GET /threads/{session}")).len();
    let after = reads(server);
    within(&clock, SOON, server.until("a look", |server| reads(server) > after)).await;
    drop(clock);
    tokio::time::resume();
    play.end().await;
}
