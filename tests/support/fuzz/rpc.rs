//! Reads any bytes as a line of an ACP client. The answer repeats the line's id byte for byte. A
//! refusal quotes nothing of the line.

use agent_client_protocol_schema::v1::{
    AuthenticateRequest, CancelNotification, CloseSessionRequest, DeleteSessionRequest,
    InitializeRequest, ListSessionsRequest, LoadSessionRequest, NewSessionRequest, PromptRequest,
    ResumeSessionRequest, SetSessionConfigOptionRequest, SetSessionModeRequest,
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use threadway_translate::acp::prompt::{AcceptedContent, Prompt, SlashCommand};
use threadway_translate::acp::rpc::{self, Error, Incoming, Malformed};
use threadway_translate::json::{self, Json};

use super::SECRET;
use super::input::with_secrets;

pub(crate) fn check(line: &[u8]) {
    check_line(line);
    if let Ok(value) = serde_json::from_slice::<Value>(line) {
        for spared in [&["jsonrpc", "method", "type"][..], &["jsonrpc", "method"]] {
            let mut value = value.clone();
            // The agent echoes ids. The code and message of a response are the client's own.
            if let Some(params) = value.get_mut("params") {
                *params = with_secrets(params.take(), spared);
            }
            check_line(value.to_string().as_bytes());
        }
    }
}

fn check_line(line: &[u8]) {
    match Incoming::parse(line) {
        Ok(Incoming::Request { id, method, params }) => {
            check_answer(&rpc::response(&id, &Ok(params.clone())), line);
            check_params(&method, &params);
        }
        Ok(Incoming::Notification { method, params }) => check_params(&method, &params),
        Ok(Incoming::Response { id, result }) => {
            check_answer(&rpc::response(&id, &result), line);
        }
        Err(Malformed { id, error }) => {
            check_refusal(&error);
            check_answer(&rpc::response(&id, &Err(error)), b"{}");
        }
    }
}

/// Checks that the answer is one line of JSON with the id of the request.
fn check_answer(answer: &str, line: &[u8]) {
    let answer = answer.strip_suffix('\n').expect("a line");
    // The printed JSON may take several lines, so only the id is compared.
    let read = |text: &str| {
        let members: json::Members<'_> = serde_json::from_str(text).expect("an object");
        members.get("id").map(|id| id.get().to_owned())
    };
    let line = std::str::from_utf8(line).expect("the line was read");
    let id = read(answer);
    assert!(id.is_some(), "{answer}");
    let sent = read(line);
    assert!(sent.is_none() || sent == id, "{id:?} of {line}");
}

/// Reads the params of each method; any method may arrive with any params.
fn check_params(method: &str, params: &Json) {
    fn read<T: DeserializeOwned>(params: &Json) -> Option<T> {
        match rpc::params("the method", params) {
            Ok(request) => Some(request),
            Err(error) => {
                check_refusal(&error);
                None
            }
        }
    }
    match method {
        "initialize" => drop(read::<InitializeRequest>(params)),
        "authenticate" => drop(read::<AuthenticateRequest>(params)),
        "session/new" => drop(read::<NewSessionRequest>(params)),
        "session/load" => drop(read::<LoadSessionRequest>(params)),
        "session/resume" => drop(read::<ResumeSessionRequest>(params)),
        "session/list" => drop(read::<ListSessionsRequest>(params)),
        "session/close" => drop(read::<CloseSessionRequest>(params)),
        "session/delete" => drop(read::<DeleteSessionRequest>(params)),
        "session/set_mode" => drop(read::<SetSessionModeRequest>(params)),
        "session/set_config_option" => drop(read::<SetSessionConfigOptionRequest>(params)),
        "session/cancel" => drop(read::<CancelNotification>(params)),
        "session/prompt" => {
            if let Some(request) = read::<PromptRequest>(params) {
                check_prompt(&request);
            }
        }
        _ => {}
    }
}

/// Checks that a prompt becomes a message, or is refused without a quote.
fn check_prompt(request: &PromptRequest) {
    let review = SlashCommand {
        name: "review".to_owned(),
        description: String::new(),
        hint: None,
        prompt: Some("Review {args}.".to_owned()),
    };
    let all = AcceptedContent { image: true, audio: true, embedded_context: true };
    let none = AcceptedContent { image: false, audio: false, embedded_context: false };
    for accepts in [all, none] {
        match Prompt::read(&request.prompt, accepts, std::slice::from_ref(&review)) {
            Ok(prompt) => {
                let message = prompt.message("m1");
                let message: Value = serde_json::from_str(message.get()).expect("the text is JSON");
                assert_eq!(message["id"], "m1");
                let content = &message["content"];
                assert!(content.is_string() || content.is_array(), "{message}");
            }
            Err(error) => check_refusal(&error),
        }
    }
}

fn check_refusal(error: &Error) {
    assert!(!format!("{error:?}").contains(SECRET), "the secret is quoted in {error:?}");
}
