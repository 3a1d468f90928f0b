//! `/acp`: ACP for clients elsewhere, over a WebSocket.
//!
//! - `door`: what each message passes before its connection handles it.
//! - `remote`: one client's connection.
//! - `socket`: a connection on a WebSocket.
//!
//! A connection has no rules of its own. Each message on a socket is sent through the gateway's
//! routes as a `POST /acp` with the headers of the request that opened the socket. So authentication,
//! limits and refusals are the same as for other routes, also after a reload, and after a token has
//! expired.
//!
//! ```text
//!  client                  socket                    routes
//!    | a JSON-RPC message --> |  POST /acp -------------> | door --> sessions::Connection
//!    | <-- messages --------- | <------ Outbox ---------- |
//! ```

mod door;
mod remote;
mod socket;

use std::sync::Arc;

use axum::extract::Request;
use axum::response::Response;
use http::header::HeaderName;
use http::{HeaderValue, StatusCode};

pub use socket::IDLE as ACP_IDLE;
pub(super) use socket::{Frame, Opened, serve};

use self::remote::Remote;
use super::auth::Auth;
use super::auth::admit::UpstreamNotAsked;
use super::connections::Peer;
use super::gateway::Call;
use super::reject::Reject;
use super::websocket::{Opening, Upgrade, handshake};
use crate::agents::{Agents, Upstream};
use crate::sessions::{self, Authentication, Outbox, Service, SessionLists, SharedOptions};
use crate::threads::Threads;
use crate::upstream::Caller;
use threadway_translate::run::ErrorDetail;
use tokio_util::task::TaskTracker;

/// The header that names a connection.
const CONNECTION_ID: HeaderName = HeaderName::from_static("acp-connection-id");

/// How ACP clients are served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acp {
    /// The agent of new sessions. `None` for the first that the upstream lists.
    pub agent: Option<String>,
    /// How ACP presents the agents.
    pub settings: sessions::Settings,
}

/// What the connections of a server share, besides its agents.
pub(super) struct Shared {
    pub(super) threads: Threads,
    pub(super) tasks: TaskTracker,
    pub(super) error_detail: ErrorDetail,
}

/// The sessions of one upstream. `None` if there are several upstreams, and no agent says which.
pub(super) fn service(agents: &Agents, acp: Acp, shared: Shared) -> Option<Arc<Service>> {
    let agents = agents.for_editors();
    let Acp { agent, settings } = acp;
    let Shared { threads, tasks, error_detail } = shared;
    let upstream = upstream_of(&agents, agent.as_deref())?.clone();
    let options = SharedOptions { agents, upstream, agent, settings, error_detail, threads, tasks };
    Some(Arc::new(Service::sharing(options)))
}

fn upstream_of<'a>(agents: &'a Agents, agent: Option<&str>) -> Option<&'a Upstream> {
    if let [only] = agents.upstreams() {
        return Some(only);
    }
    let agent = agents.find(agent?, &Caller::default()).ok()?;
    agents.upstream_of(&agent)
}

/// `GET /acp`: opens a WebSocket.
pub(super) async fn open(call: Call, request: Request) -> Result<Response, Reject> {
    let (head, _) = request.into_parts();
    let mut response = match handshake::accept(&head) {
        Ok(response) => response,
        Err(refusal) => return Ok(*refusal),
    };
    handshake::expect_own_credentials(&call.gateway, &head)?;
    let outbox = Outbox::new();
    let (remote, works) = connect(&call, outbox.clone()).await?;
    let slot = call.streams.slot()?;
    let Some(opening) = head.extensions.get::<Opening>() else {
        return Err(Reject::invalid(
            "this connection cannot become a WebSocket; open it over HTTP/1.1",
        ));
    };
    response.headers_mut().insert(CONNECTION_ID, remote.header());
    if !is_checked_by_langgraph(&call) {
        response.extensions_mut().insert(UpstreamNotAsked);
    }
    opening.put(Upgrade::Acp(Opened {
        remote,
        works,
        outbox,
        slot,
        headers: handshake::headers_of_turns(&head.headers),
        peer: head.extensions.get::<Peer>().copied(),
        limit: call.gateway.limits.body_bytes,
    }));
    Ok(response)
}

/// `POST /acp`: a message on a socket.
pub(super) async fn message(call: Call, request: Request) -> Result<Response, Reject> {
    let (head, _) = request.into_parts();
    let Some(frame) = head.extensions.get::<Frame>() else {
        return Err(Reject::invalid("open a WebSocket here, and send its messages on it"));
    };
    let Some(incoming) = frame.take() else {
        return Err(Reject::invalid("the message was handled already"));
    };
    door::admit(&call, &frame.remote, incoming).await?;
    Ok(accepted())
}

/// The response to a message that its connection handles.
fn accepted() -> Response {
    let mut response = Response::default();
    *response.status_mut() = StatusCode::ACCEPTED;
    // The connection's answer says whether LangGraph has accepted the caller.
    response.extensions_mut().insert(UpstreamNotAsked);
    response
}

/// A new connection of a caller, and the work that it gives to its transport.
async fn connect(call: &Call, outbox: Outbox) -> Result<(Remote, remote::Works), Reject> {
    let Some(service) = &call.gateway.acp else {
        return Err(Reject::unknown_agent(
            "with several upstreams, ACP sessions need one of them: have the gateway's operator set \
             `acp.agent` to an agent such as `local:agent`",
        ));
    };
    let upstream = service.upstream.client.called_by(&call.caller);
    if is_checked_by_langgraph(call) {
        // Otherwise nobody would count how often somebody tries credentials here.
        match upstream.assistants(None).await {
            Err(error) if error.is_unauthorized() => {
                return Err(call.upstream_failed(&error, upstream.caller()));
            }
            Ok(_) | Err(_) => {}
        }
    }
    let lists = match call.gateway.thread_access.expect(&upstream).await {
        Ok(()) => SessionLists::Allowed,
        Err(_) => SessionLists::Refused,
    };
    let authentication = Authentication::Caller { caller: call.caller.clone(), lists };
    Ok(Remote::new(call, Arc::clone(service), authentication, outbox))
}

/// Whether LangGraph is the one that checks the caller's credentials.
fn is_checked_by_langgraph(call: &Call) -> bool {
    matches!(call.gateway.admission.auth, Auth::Upstream(_))
}

/// An id as the value of a header.
fn header_value(id: &str) -> HeaderValue {
    HeaderValue::from_str(id).unwrap_or(HeaderValue::from_static(""))
}
