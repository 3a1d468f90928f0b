//! What each message of a client passes, after the checks that all routes share, and before its
//! connection handles it.

use super::Front;
use super::remote::ClientConnection;
use crate::metrics::Charge;
use crate::server::gateway::RequestContext;
use crate::server::observe::request_log::AuditedAction;
use crate::server::reject::Reject;
use http::StatusCode;
use threadway_translate::acp::destination::session_of;
use threadway_translate::acp::method::{AuditAction, Method};
use threadway_translate::acp::rpc::{Code, Error, Incoming};

/// Has the connection handle a message of its caller.
/// `charge` is that of the message.
pub(super) async fn admit(
    context: &RequestContext,
    front: &Front,
    remote: &ClientConnection,
    incoming: Incoming,
    charge: Charge,
) -> Result<(), Reject> {
    context.record.note(|facts| {
        facts.action = action(&incoming);
        facts.thread = session_of(&incoming);
        facts.thread_id.clone_from(&facts.thread);
    });
    if !remote.is_of(context) {
        return Err(unknown_connection());
    }
    let connection = remote.connection();
    connection.called_by(context.caller.clone());
    // A reload may have closed what was open when the client connected.
    if let Incoming::Request { id, method, .. } = &incoming
        && connection.is_initialized()
        && Method::of(method).is_some_and(Method::needs_lists)
        && let Some(service) = &front.service
        && let upstream = service.upstream.client.called_by(&context.caller)
        && let Err(reject) = context.gateway.thread_access.expect(&upstream).await
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
fn action(incoming: &Incoming) -> Option<AuditedAction> {
    match incoming {
        // A client is asked for permissions and answers only.
        Incoming::Response { .. } => Some(AuditedAction::Resume),
        Incoming::Request { method, params, .. } | Incoming::Notification { method, params } => {
            Method::of(method)?.audit_action(params).map(AuditedAction::from)
        }
    }
}

impl From<AuditAction> for AuditedAction {
    fn from(action: AuditAction) -> Self {
        match action {
            AuditAction::Run => Self::Run,
            AuditAction::Connect => Self::Connect,
            AuditAction::Stop => Self::Stop,
            AuditAction::Change => Self::ChangeThread,
            AuditAction::Copy => Self::CopyThread,
            AuditAction::Delete => Self::DeleteThread,
        }
    }
}
