//! What each message of a client passes, after the checks that all routes share, and before its
//! connection handles it.

use super::Front;
use super::remote::Remote;
use crate::metrics::Charge;
use crate::server::gateway::Call;
use crate::server::observe::request_log::Action;
use crate::server::reject::Reject;
use http::StatusCode;
use threadway_translate::acp::destination::session_of;
use threadway_translate::acp::method::Method;
use threadway_translate::acp::rpc::{Code, Error, Incoming};
use threadway_translate::json::{self, Json};

/// Has the connection handle a message of its caller.
/// `charge` is that of the message.
pub(super) async fn admit(
    call: &Call,
    front: &Front,
    remote: &Remote,
    incoming: Incoming,
    charge: Charge,
) -> Result<(), Reject> {
    call.record.note(|facts| {
        facts.action = action(&incoming);
        facts.thread = session_of(&incoming);
        facts.thread_id.clone_from(&facts.thread);
    });
    if !remote.is_of(call) {
        return Err(unknown_connection());
    }
    let connection = remote.connection();
    connection.called_by(call.caller.clone());
    // A reload may have closed what was open when the client connected.
    if let Incoming::Request { id, method, .. } = &incoming
        && connection.is_initialized()
        && Method::of(method).is_some_and(Method::needs_lists)
        && let Some(service) = &front.service
        && let upstream = service.upstream.client.called_by(&call.caller)
        && let Err(reject) = call.gateway.thread_access.expect(&upstream).await
    {
        connection.refuse(id, Error::new(Code::MethodNotFound, reject.message()));
        return Ok(());
    }
    remote.give(connection.handle(Ok(incoming), Some(charge)));
    Ok(())
}

/// The response to a connection id that no connection has, or one of another caller.
pub(super) fn unknown_connection() -> Reject {
    let message = "there is no such connection; send `initialize` without `acp-connection-id`, and \
                   load the session again";
    Reject::new(StatusCode::NOT_FOUND, "unknown_connection", message)
}

/// What the audit log calls a message. `None` for one that is not audited.
fn action(incoming: &Incoming) -> Option<Action> {
    match incoming {
        // A client is asked for permissions and answers only.
        Incoming::Response { .. } => Some(Action::Resume),
        Incoming::Request { method, params, .. } | Incoming::Notification { method, params } => {
            audit_action(Method::of(method)?, params)
        }
    }
}

fn audit_action(method: Method, params: &Json) -> Option<Action> {
    match method {
        Method::Prompt => Some(Action::Run),
        Method::LoadSession | Method::ResumeSession => Some(Action::Connect),
        Method::CancelPrompt => Some(Action::Stop),
        Method::SetMode | Method::SetConfigOption => Some(Action::ChangeThread),
        Method::ForkSession => Some(Action::CopyThread),
        Method::DeleteSession => Some(Action::DeleteThread),
        Method::PromptEnd => {
            let cancels = json::members(params).and_then(|params| params.get("cancel"));
            let is_stop = cancels.is_some_and(|cancels| cancels.get() == "true");
            Some(if is_stop { Action::Stop } else { Action::Connect })
        }
        Method::Initialize
        | Method::Authenticate
        | Method::Logout
        | Method::NewSession
        | Method::ListSessions
        | Method::CloseSession
        | Method::CancelRequest => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMPT_END: &str = "_threadway/prompt_end";

    #[test]
    fn each_message_that_changes_or_shows_a_thread_is_audited() {
        for (method, params, expected) in [
            ("session/prompt", "{}", Some(Action::Run)),
            ("session/load", "{}", Some(Action::Connect)),
            ("session/cancel", "{}", Some(Action::Stop)),
            ("session/fork", "{}", Some(Action::CopyThread)),
            (PROMPT_END, "{}", Some(Action::Connect)),
            (PROMPT_END, r#"{"cancel":false}"#, Some(Action::Connect)),
            (PROMPT_END, r#"{"cancel":true}"#, Some(Action::Stop)),
            ("session/list", "{}", None),
        ] {
            let params = json::raw(params.to_owned());
            let incoming = Incoming::Notification { method: method.to_owned(), params };
            assert_eq!(action(&incoming), expected, "{method}");
        }
    }
}
