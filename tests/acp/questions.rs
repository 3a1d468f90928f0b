//! Approvals and questions of a run: how an editor is asked, and how the run resumes.

use serde_json::json;

use crate::script::{Play, scripts};

scripts! {

// === approvals ===

#[tokio::test]
async fn approval_is_asked_and_answered_in_each_wire_form() = r#"
    rows $form $options
        action_requests ["allow", "allow_always", "edit", "allow_always_tool", "reject",
            "reject_always", "reject_always_tool", "respond"]
        # The JavaScript middleware does not support `respond`.
        actionRequests ["allow", "allow_always", "edit", "allow_always_tool", "reject",
            "reject_always", "reject_always_tool"]
        tool_approval ["allow", "allow_always", "edit", "allow_always_tool", "reject",
            "reject_always", "reject_always_tool", "respond"]
    setup forms; session A
    prompt A hi; replay $form; asked email
    # Each request is about a call that was announced and is pending.
    has shown:A "tool_call call_e -"; has shown:A "tool_call call_d -"
    is email/params/toolCall/toolCallId call_e; is email/params/sessionId "$A"
    is options:email $options
    asked delete; is delete/params/toolCall/toolCallId call_d; is delete/params/sessionId "$A"
    is delete/params/toolCall/rawInput {"path": "/tmp/x"}
    is options:delete ["allow", "allow_always", "reject", "reject_always"]
    reply delete reject; reply email allow
    run r A; is decisions:r [{"type": "approve"}, {"type": "reject"}]; is r/input none
    finish r A; has shown:A "tool_call_update call_e in_progress"
    lacks thread:A acp_always
"#;

#[tokio::test]
async fn approval_asks_for_an_edit_or_a_response_by_a_form() = r#"
    rows $form $option $is_edited $answer $decision
        action_requests edit true {"action": "accept", "content": {"to": "b@example.com", "body": "hi"}}
            {"type": "edit", "edited_action": {"name": "send_email",
                "args": {"to": "b@example.com", "body": "hi"}}}
        action_requests edit false {"action": "decline"} {"type": "reject"}
        action_requests respond false {"action": "accept", "content": {"answer": "not today"}}
            {"type": "respond", "message": "not today"}
        action_requests respond false {"action": "decline"} {"type": "reject"}
        action_requests respond false {"action": "accept", "content": {}} {"type": "reject"}
        actionRequests edit true {"action": "accept", "content": {"to": "b@example.com", "body": "hi"}}
            {"type": "edit", "editedAction": {"name": "send_email",
                "args": {"to": "b@example.com", "body": "hi"}}}
        actionRequests edit false {"action": "decline"} {"type": "reject"}
        tool_approval edit true {"action": "accept", "content": {"to": "b@example.com", "body": "hi"}}
            {"type": "edit", "edited_action": {"name": "send_email",
                "args": {"to": "b@example.com", "body": "hi"}}}
        tool_approval edit false {"action": "decline"} {"type": "reject"}
        tool_approval respond false {"action": "accept", "content": {"answer": "not today"}}
            {"type": "respond", "message": "not today"}
        tool_approval respond false {"action": "decline"} {"type": "reject"}
        tool_approval respond false {"action": "accept", "content": {}} {"type": "reject"}
    setup forms; session A
    prompt A hi; replay $form; asked email; asked delete
    reply delete allow; reply email $option
    asked form; is form/method elicitation/create; is form/params/toolCallId call_e
    reply form $answer
    run r A; is decisions:r/0 $decision; finish r A
    when $is_edited has updates "\"rawInput\":{\"to\":\"b@example.com\",\"body\":\"hi\"}"
    unless $is_edited lacks updates "\"rawInput\":{\"to\":\"b@example.com\",\"body\":\"hi\"}"
"#;

#[tokio::test]
async fn form_that_is_cancelled_cancels_the_turn() = r#"
    setup forms; session A
    write A c q; reply q edit
    asked form; reply form {"action": "cancel"}; stop A cancelled
"#;

#[tokio::test]
async fn permanent_answer_counts_for_the_same_call() = r#"
    rows $always $decision $stored
        allow_always approve allow
        reject_always reject reject
    session A; write A c q; reply q $always
    run r A; is decisions:r [{"type": "$decision"}]
    is always:A/0/name write; is always:A/0/decision $stored; is always:A/1 none
    # The same call in the same turn, with its arguments in another order. It needs no permission.
    r calls n d write {"text": "a", "path": "/srv/app/a.txt"}; r asks_about d
    run r A; is decisions:r [{"type": "$decision"}]
    # Another call needs permission.
    r calls o e write {"path": "/srv/app/b.txt", "text": "a"}; r asks_about e
    asked q; reply q allow; run r A; r completes []; stop A end_turn
    # Another process knows the decision.
    another editor; resume A
    prompt A again r; r calls p f write {"path": "/srv/app/a.txt", "text": "a"}; r asks_about f
    run r A; is decisions:r [{"type": "$decision"}]; finish r A; is requests []
"#;

#[tokio::test]
async fn permanent_answer_about_a_tool_counts_for_its_other_calls_and_no_other_tool() = r#"
    rows $always $decision
        allow_always_tool approve
        reject_always_tool reject
    session A; write A c q; reply q $always; run r A; r completes []; stop A end_turn
    another editor; resume A; let $args {"path": "/srv/app/other.txt", "text": "z"}
    prompt A again r; r calls p f write $args; r asks_about f
    run r A; is decisions:r [{"type": "$decision"}]
    r calls r g write_all $args; r asks_about g
    asked q; reply q allow; run r A; r completes []; stop A end_turn
"#;

#[tokio::test]
async fn rules_of_the_mode_decide_before_the_general_ones() = r#"
    rows $mode $tool $is_asked $decision
        ask write true reject
        ask read_file false approve
        ask delete true reject
        auto write false approve
        auto write_file false approve
        auto read_file false approve
        auto delete true reject
    setup rules; session A
    call A session/set_mode {"modeId": "$mode"}
    prompt A hi r; r calls m c $tool {}; r asks_about c
    when $is_asked asked q; when $is_asked reply q reject
    run r A; is decisions:r [{"type": "$decision"}]
    finish r A; is requests []
"#;

#[tokio::test]
async fn approval_of_a_call_is_pending_until_it_is_allowed() = r#"
    rows $setup $is_asked $answer $result $statuses
        default true allow success ["in_progress", "completed"]
        default true reject error ["failed"]
        # A rule decides.
        auto false allow success ["in_progress", "completed"]
    setup $setup; session A
    prompt A hi r; r calls m c write {"path": "/srv/app/a.txt"}; r asks_about c
    when $is_asked asked q; when $is_asked is q/params/toolCall/status pending
    when $is_asked is statuses:c []; when $is_asked reply q $answer
    run r A; r results c "" $result; r completes; stop A end_turn
    is statuses:c $statuses
"#;

#[tokio::test]
async fn approval_shows_all_that_was_asked() = r#"
    rows $value $schema $answer
        {"action_requests": [{"name": "send", "args": {"to": "all"},
                "description": "This goes to 5,000 customers and cannot be undone."}],
            "review_configs": [{"action_name": "send", "allowed_decisions": ["approve", "reject"]}],
            "risk": "high"}
            null {"decisions": [{"type": "approve"}]}
        {"actionRequests": [{"name": "send", "args": {"to": "all"},
                "description": "This goes to 5,000 customers and cannot be undone."}],
            "reviewConfigs": [{"actionName": "send", "allowedDecisions": ["approve", "reject"]}],
            "risk": "high"}
            null {"decisions": [{"type": "approve"}]}
        {"type": "tool_approval", "tool_call_id": "c", "name": "send", "args": {"to": "all"},
            "description": "This goes to 5,000 customers and cannot be undone.", "risk": "high"}
            {"oneOf": [], "discriminator": {"mapping": {"approve": "", "reject": ""}}}
            {"type": "approve"}
        [{"action_request": {"action": "send", "args": {"to": "all"}},
            "config": {"allow_accept": true, "allow_ignore": true, "allow_edit": false,
                "allow_respond": false},
            "description": "This goes to 5,000 customers and cannot be undone.", "risk": "high"}]
            null [{"type": "accept", "args": null}]
    session A; prompt A hi r; r calls m c send {"to": "all"}
    r asks [{"id": "q", "value": $value, "response_schema": $schema}]
    asked q; is q/method session/request_permission; is q/params/toolCall/toolCallId c
    is options:q ["allow", "allow_always", "allow_always_tool",
        "reject", "reject_always", "reject_always_tool"]
    is q/params/toolCall/content [{"type": "content", "content": {"type": "text",
        "text": "This goes to 5,000 customers and cannot be undone.\n\nrisk: high"}}]
    once q "5,000"
    reply q allow; resumed r A {"q": $answer}; finish r A
"#;

#[tokio::test]
async fn approvals_and_questions_at_once_are_all_asked() = r#"
    session A; let $write {"action_name": "write", "allowed_decisions": ["approve", "edit", "reject"]}
    let $delete {"action_name": "delete", "allowed_decisions": ["approve", "edit", "reject"]}
    let $question {"id": "q", "value": "Which one?"}
    prompt A hi r; r asks [
        {"id": "a", "value": {"review_configs": [$write, $write], "action_requests": [
            {"name": "write", "args": {"path": "1"}}, {"name": "write", "args": {"path": "2"}}]}},
        $question,
        {"id": "b", "value": {"review_configs": [$delete], "action_requests": [
            {"name": "delete", "args": {"path": "3"}}]}}]
    asked one; asked two; asked three
    is one/params/toolCall/rawInput/path "1"; is two/params/toolCall/rawInput/path "2"
    is three/params/toolCall/rawInput/path "3"
    reply three allow; reply two reject; reply one allow
    # The run resumes with the answers so far; the other question stays open.
    resumed r A {"a": {"decisions": [{"type": "approve"}, {"type": "reject"}]},
        "b": {"decisions": [{"type": "approve"}]}}
    r asks [$question]; stop A end_turn; is said ["q Which one?"]
    prompt A this; resumed r A {"q": "this"}; finish r A
"#;

#[tokio::test]
async fn breakpoint_is_asked_about() = r#"
    rows $answer $continues $reason
        allow true end_turn
        reject false cancelled
    session A; prompt A hi r; r values; r sends updates {"__interrupt__": []}
    r ends success {"values": {"messages": [{"type": "human", "id": "h", "content": "hi"}]},
        "next": ["tools"], "tasks": [], "metadata": {"run_id": "$r"},
        "checkpoint": {"checkpoint_id": "after-$r"}}
    asked q; is options:q ["allow", "reject"]; reply q $answer
    when $continues run r A; when $continues is r/command none; when $continues is r/input none
    when $continues r ends success {"values": {}, "next": []}
    stop A $reason
"#;

#[tokio::test]
async fn files_and_terminals_of_an_editor_are_not_used() = r#"
    rows $name $args
        read_file {"path": "/srv/app/a.txt"}
        write_file {"path": "/srv/app/a.txt", "content": "a"}
        edit_file {"path": "/srv/app/a.txt", "old_string": "a", "new_string": "b"}
        delete_file {"path": "/srv/app/a.txt"}
        execute {"command": "ls"}
    session A
    # The editor checks the method of each frame that it reads.
    setup tools
    prompt A "do it" r; r calls m $name $name $args; r results $name done
    r completes; stop A end_turn
    is requests []; has updates completed; lacks updates terminalId
    # The same, after the user has allowed the call.
    prompt A "do it" r; r calls n c2 $name $args; r asks_about c2
    asked q; is q/method session/request_permission; reply q allow
    run r A; r results c2 done; r completes; stop A end_turn
    is requests []; has updates completed; lacks updates terminalId
"#;

// === questions ===

#[tokio::test]
async fn question_is_asked_by_a_form_where_there_are_some() = r#"
    setup forms; session A
    prompt A hi r; r asks [{"id": "q", "value": {"question": "Which one?"}}]
    asked q; is q/method elicitation/create; is q/params/message "Which one?"
    reply q {"action": "accept", "content": {"answer": "this"}}
    resumed r A {"q": "this"}
    # A schema with several fields.
    r asks [{"id": "r", "value": "How?", "response_schema": {"type": "object", "properties": {
        "how": {"type": "string", "enum": ["fast", "well"]}, "often": {"type": "integer"}}}}]
    asked q; reply q {"action": "accept", "content": {"how": "well", "often": 2}}
    resumed r A {"r": {"how": "well", "often": 2}}
    # If the user does not fill in the form, the question is sent as a message.
    r asks [{"id": "s", "value": "And now?"}]
    asked q; reply q {"action": "decline"}; stop A end_turn; is said ["s And now?"]
    prompt A stop; resumed r A {"s": "stop"}; finish r A
"#;

#[tokio::test]
async fn question_is_asked_in_words_where_there_are_no_forms() = r#"
    session A; let $two {"id": "r", "value": "How many?", "response_schema": {"type": "integer"}}
    prompt A hi r; r asks [{"id": "q", "value": {"question": "Which one?"}}, $two]
    stop A end_turn; is said ["q Which one?", "r How many?"]
    # Each prompt answers one question. The repeated question is a message of its own.
    prompt A this; resumed r A {"q": "this"}; r asks [$two]
    stop A end_turn; is said ["r:2 How many?"]
    prompt A "7"; resumed r A {"r": 7}; finish r A
"#;

#[tokio::test]
async fn question_is_asked_with_its_subject() = r#"
    setup forms; session A
    prompt A hi r; r asks [{"id": "q", "value": {"question": "Is this right?",
        "llm_output": "Dear \u001b[8mall,\nhi", "choices": ["yes", "no"]}}]
    asked q; is q/params/message
        "Is this right?\n\nllm_output:\n\nDear \\u{1b}[8mall,\nhi\n\nchoices:\n\n- yes\n- no"
    reply q {"action": "accept", "content": {"answer": "yes"}}; run r A; finish r A
"#;

#[tokio::test]
async fn question_without_an_id_is_answered_by_a_bare_value_and_not_beside_others() = r#"
    session A; prompt A hi r; r asks [{"value": "Which one?"}]; stop A end_turn
    prompt A this; resumed r A "\"this\""; r asks [{"value": "one?"}, {"id": "q", "value": "two?"}]
    response A; has response/error/message "one has no id, so LangGraph cannot tell"
"#;

#[tokio::test]
async fn question_about_an_action_shows_its_arguments() = r#"
    session A; prompt A hi r; r asks [{"id": "q", "value": [{"action_request": {"action": "ask_person",
        "args": {"topic": "tea"}}, "config": {"allow_respond": true}, "description": "Which one?"}]}]
    stop A end_turn
    is said ["q Which one?\n\nask_person:\n\n```json\n{\n  \"topic\": \"tea\"\n}\n```"]
    prompt A green; resumed r A {"q": [{"type": "response", "args": "green"}]}; finish r A
"#;

}

#[tokio::test]
async fn answer_that_is_none_fails_the_prompt_and_the_next_one_asks_again() {
    let unoffered = "session/request_permission was answered with `edit`, which was not offered";
    let without = "session/request_permission was answered without an outcome";
    let edit = json!({"outcome": {"outcome": "selected", "optionId": "edit"}});
    for (answer, why) in [
        (json!({"result": edit}), unoffered),
        (json!({"result": {}}), without),
        (json!({"result": null}), without),
        (json!({"result": [1]}), without),
        (json!({"result": {"outcome": "selected"}}), without),
        (json!({"error": {"code": -32601, "message": "no such method"}}), "no such method"),
        (json!({"error": {"code": -32000, "message": ""}}), ""),
        (json!({"error": 5}), ""),
    ] {
        let mut play = Play::start("default").await;
        play.steps("session A; write A c q").await;
        let mut message = answer.clone();
        message["jsonrpc"] = json!("2.0");
        message["id"] = play.look("q/id");
        play.editor.raw(format!("{message}\n")).await;
        play.steps("response A; last shown:A \"tool_call_update c failed\"").await;
        let error = play.look("response/error");
        let message = error["message"].as_str().unwrap();
        assert!(error["code"].as_i64() < Some(0) && message.contains(why), "{answer}: {error}");
        // The next prompt is not the answer. The agent asks again, and then runs the prompt.
        play.steps("prompt A \"and now?\"; reject_first A \"and now?\"").await;
        play.end().await;
    }
}

#[tokio::test]
async fn question_in_words_is_cut() {
    let mut play = Play::start("default").await;
    let long = json!({"question": "x".repeat(5_000), "draft": {"to": ["a"]}});
    play.steps(&format!(
        r#"
        session A; prompt A hi r; r asks [{{"id": "q", "value": {{"question": "Is this right?",
            "llm_output": "Dear \u001b[8mall,\nhi", "choices": ["yes", "no"]}}}},
            {{"id": "r", "value": {long}}}]; stop A end_turn"#
    ))
    .await;
    let text =
        "Is this right?\n\nllm_output:\n\nDear \\u{1b}[8mall,\nhi\n\nchoices:\n\n- yes\n- no";
    let rest = "\n\n[cut: the first 4000 of 5000 characters are shown]\n\n\
        draft:\n\n```json\n{\n  \"to\": [\n    \"a\"\n  ]\n}\n```";
    let long = format!("r {}{rest}", "x".repeat(4_000));
    assert_eq!(play.look("said"), json!([format!("q {text}"), long]));
    play.end().await;
}
