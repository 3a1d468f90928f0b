//! Prompts in a session whose thread ends with a call that has no result.

use crate::script::scripts;

scripts! {

#[tokio::test]
async fn open_calls_get_error_results_before_the_prompt() = r#"
    let $asked {"type": "ai", "id": "a1", "content": "", "tool_calls": [
        {"id": "c", "name": "search", "args": {}}, {"id": "d", "name": "search", "args": {}}]}
    thread A $kept [{"type": "human", "id": "h1", "content": "hi"}, $asked, $found]; load A
    prompt A "go on"; run r A
    is r/input/messages/0 {"type": "tool", "id": "a1:d:unanswered", "tool_call_id": "d",
        "content": "No result: the person went on without it.", "status": "error"}
    is r/input/messages/1/type human; is r/input/messages/1/content "go on"
    is r/input/messages/2 none
    # A run that began meanwhile may bring the same results.
    is r/multitask_strategy reject
    # The editor learns how the call ended.
    r completes; stop A end_turn; last statuses:d failed
    # The call is closed: the next prompt goes up alone, after one look at the state.
    forget; prompt A "go on" s; is s/input/messages/1 none; is s/multitask_strategy none
    count "GET /threads/$A/state" 2; count "GET /threads/$A/runs?status=running" 1
    count "GET /threads/$A" 3
    finish s A
"#;

#[tokio::test]
async fn a_stopped_run_leaves_no_call_without_a_result() = r#"
    session A; prompt A hi r; r calls a1 c search {}; gets tool_call
    cancel A; cancelled $r; r recorded interrupted; r ends interrupted; stop A cancelled
    prompt A "go on"; run s A; is s/input/messages/0 $unanswered
    is s/input/messages/1/content "go on"; is s/input/messages/2 none; finish s A
"#;

#[tokio::test]
async fn a_live_run_gives_the_results_of_its_calls() = r#"
    thread A $kept []; load A
    # Another client's run has the result, and waits for its turn.
    thread A $kept [$open_call]; pending A R [$found]
    prompt A "go on" r; is r/input/messages/1 none; finish r A
"#;

#[tokio::test]
async fn a_run_that_ends_meanwhile_has_given_the_results() = r#"
    thread A $kept []; load A
    thread A $kept [$open_call]; hold /runs?status=pending
    prompt A "go on"; held h /runs?status=pending
    # The state was read before the run of the call ended. It is read again after the runs.
    thread A $kept [$open_call, $found]; release /runs?status=pending; answer h 200 []
    run r A; is r/input/messages/0/content "go on"; is r/input/messages/1 none; finish r A
"#;

#[tokio::test]
async fn a_prompt_is_planned_anew_if_another_run_comes_first() = r#"
    thread A $kept [$open_call]; load A
    prompt A "go on"; held h /runs/stream; is h/input/messages/0 $unanswered
    # Another client has answered the call.
    thread A $kept [$open_call, $found]
    answer h 409 {"detail": "Thread is already running a task."}
    run r A; is r/input/messages/0/content "go on"; is r/input/messages/1 none
    is r/multitask_strategy none; finish r A
"#;

}
