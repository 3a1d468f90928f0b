//! The system prompt of an editor, on its way to the graph.

use crate::script::scripts;

scripts! {

#[tokio::test]
async fn a_system_prompt_is_offered_only_with_its_key() = r#"
    rows $setup $offered default none system_prompt {"mode": {"override": {}}}
    setup $setup
    is initialized/agentCapabilities/sessionCapabilities/systemPrompt $offered
"#;

#[tokio::test]
async fn a_system_prompt_goes_into_each_run_however_its_session_was_opened() = r#"
    setup system_prompt; thread A $kept [$history]
    call session/new {"cwd": "/srv/app", "mcpServers": [],
        "systemPrompt": {"mode": "append", "content": [{"type": "text", "text": "new"}]}}
    named B; let $new {"mode": "append", "content": "new"}
    turn B hi; is turn/config/configurable/client_prompt $new
    turn B hi; is turn/config/configurable/client_prompt $new
    let $other {"mode": "override", "content": [{"type": "text", "text": "other"}]}
    call A session/load {"cwd": "/srv/app", "mcpServers": [], "systemPrompt": $other}
    let $given {"mode": "override", "content": "other"}
    turn A hi; is turn/config/configurable/client_prompt $given
    load A; turn A hi; is turn/config/configurable/client_prompt none
    call A session/resume {"cwd": "/srv/app", "mcpServers": [], "systemPrompt": $other}
    turn A hi; is turn/config/configurable/client_prompt $given
    call A session/fork {"cwd": "/srv/app", "mcpServers": [], "systemPrompt": $other}
    named C; turn C hi; is turn/config/configurable/client_prompt $given
    # Each opening names its own.
    resume A; turn A hi; is turn/config/configurable/client_prompt none
"#;

#[tokio::test]
async fn a_system_prompt_that_cannot_be_applied_opens_no_session() = r#"
    rows $setup $mode $why default append acp.system_prompt_key system_prompt replace neither
    setup $setup
    request x session/new {"cwd": "/srv/app", "mcpServers": [],
        "systemPrompt": {"mode": "$mode", "content": [{"type": "text", "text": "s3cr3t"}]}}
    response x; is response/error/code -32602; has response/error/message $why
    lacks response s3cr3t
"#;

}
