//! `/acp`: ACP for clients elsewhere, over a WebSocket or over streamable HTTP.
//!
//! - `door`: what each message passes before its connection handles it.
//! - `remote`: one client's connection.
//! - `socket`: a connection on a WebSocket.
//! - `streams`: streamable HTTP. `registry`: its connections, by id.
//!
//! A socket has no rules of its own. Each message on a socket is recorded and admitted as a `POST
//! /acp` is, with the headers of the request that opened the socket. So authentication, limits and
//! refusals are the same as for other routes, also after a reload, and after a token has expired.
//!
//! ```text
//!  client                  socket                    service
//!    | a JSON-RPC message --> |  on_socket ------------> | door --> sessions::Connection
//!    | <-- messages --------- | <------ Outbox --------- |
//! ```

mod door;
mod registry;
mod remote;
mod socket;
mod streams;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::Response;
use http::header::HeaderName;
use http::{HeaderValue, StatusCode};

pub(super) use registry::Registry;
pub use registry::UNREAD;
pub(super) use streams::close;

use self::remote::ClientConnection;
use self::socket::OpenedAcpSocket;
use super::auth::Auth;
use super::gateway::{Gateway, ReloadReceiver, RequestContext};
use super::reject::Reject;
use super::response::UpstreamNotAsked;
use super::upgrade::{Upgrade, is_upgrade};
use super::websocket::handshake;
use crate::agents::{Agents, Upstream};
use crate::metrics::{AcpMeter, Held, Transport};
use crate::sessions::{self, Authentication, Outbox, Service, SessionLists, SharedOptions};
use crate::upstream::Caller;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long a connection may be idle: the client has no request in progress, and sends nothing.
///
/// A connection is idle while its user reads an answer. An idle connection costs a ping now and
/// then. A new connection would have to load its sessions again.
pub const IDLE: Duration = Duration::from_hours(1);

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

/// What the routes of ACP need. A reload makes a new one.
#[derive(Debug)]
pub(super) struct Front {
    gateway: Arc<Gateway>,
    /// The sessions of one upstream. `None` if there are several, and no agent says which.
    service: Option<Arc<Service>>,
    registry: Registry,
    /// The tasks of connections over HTTP.
    tasks: TaskTracker,
    shutdown: CancellationToken,
}

/// What a reload keeps.
#[derive(Clone, Debug)]
pub(super) struct RetainedByReload {
    pub(super) registry: Registry,
    pub(super) tasks: TaskTracker,
    pub(super) shutdown: CancellationToken,
}

// === impl Front ===

impl Front {
    pub(super) fn new(gateway: Arc<Gateway>, acp: Acp, retained: RetainedByReload) -> Self {
        let agents = gateway.agents.for_editors();
        let Acp { agent, settings } = acp;
        let RetainedByReload { registry, tasks, shutdown } = retained;
        let (error_detail, threads) = (gateway.error_detail, gateway.threads.clone());
        let upstream = upstream_of(&agents, agent.as_deref()).cloned();
        let service = upstream.map(|upstream| {
            let tasks = tasks.clone();
            let options =
                SharedOptions { agents, upstream, agent, settings, error_detail, threads, tasks };
            Arc::new(Service::sharing(options))
        });
        Self { gateway, service, registry, tasks, shutdown }
    }
}

fn upstream_of<'a>(agents: &'a Agents, agent: Option<&str>) -> Option<&'a Upstream> {
    if let [only] = agents.upstreams() {
        return Some(only);
    }
    let agent = agents.find(agent?, &Caller::default()).ok()?;
    agents.upstream_of(&agent)
}

/// `GET /acp`: opens a WebSocket, or streams messages.
pub(super) async fn open(
    context: RequestContext,
    State(front): State<Arc<Front>>,
    State(newest): State<ReloadReceiver<Front>>,
    request: Request,
) -> Result<Response, Reject> {
    if !is_upgrade(request.headers()) {
        return streams::stream(&context, &front, &request);
    }
    let (head, _) = request.into_parts();
    let mut response = match handshake::accept(&head) {
        Ok(response) => response,
        Err(refusal) => return Ok(*refusal),
    };
    handshake::expect_own_credentials(&context.gateway, &head)?;
    let outbox = Outbox::new();
    let meter = context.gateway.observer.metrics.acp(Transport::WebSocket);
    let counted = meter.connection();
    let (remote, works) = connect(&context, &front, outbox.clone(), meter).await?;
    let slot = context.streams.slot()?;
    let charge = context.gateway.observer.metrics.memory().charge(Held::Body, remote.holder());
    let Some(upgrade) = head.extensions.get::<Upgrade>() else {
        return Err(Reject::invalid(
            "this connection cannot become a WebSocket; open it over HTTP/1.1",
        ));
    };
    response.headers_mut().insert(CONNECTION_ID, remote.header());
    if !is_checked_by_langgraph(&context) {
        response.extensions_mut().insert(UpstreamNotAsked);
    }
    let opened = OpenedAcpSocket {
        remote,
        works,
        outbox,
        front: newest,
        opening: handshake::opening(&head, slot),
        _counted: counted,
        limit: context.gateway.limits.body_bytes,
        charge,
    };
    upgrade.put(|upgraded| socket::serve(opened, upgraded));
    Ok(response)
}

/// `POST /acp`: a message.
pub(super) async fn message(
    context: RequestContext,
    State(front): State<Arc<Front>>,
    request: Request,
) -> Result<Response, Reject> {
    let (head, body) = request.into_parts();
    Box::pin(streams::message(&context, &front, &head, body)).await
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
async fn connect(
    context: &RequestContext,
    front: &Front,
    outbox: Outbox,
    meter: AcpMeter,
) -> Result<(ClientConnection, remote::RequestFutures), Reject> {
    let Some(service) = &front.service else {
        return Err(Reject::unknown_agent(
            "with several upstreams, ACP sessions need one of them: have the gateway's operator set \
             `acp.agent` to an agent such as `local:agent`",
        ));
    };
    let upstream = service.upstream.client.called_by(&context.caller);
    let mut holder = context.share();
    if is_checked_by_langgraph(context) {
        // Otherwise nobody would count how often somebody tries credentials here.
        match upstream.assistants(None).await {
            Err(error) if error.is_unauthorized() || error.was_not_sent() => {
                return Err(context.upstream_failed(&error, upstream.caller()));
            }
            Ok(_) => {}
            Err(_) => holder = context.holder(),
        }
    }
    let lists = match context.gateway.thread_access.expect(&upstream).await {
        Ok(()) => SessionLists::Allowed,
        Err(_) => SessionLists::Refused,
    };
    let message_bytes = context.gateway.limits.body_bytes;
    let authentication =
        Authentication::Caller { caller: context.caller.clone(), lists, message_bytes };
    let meter = meter.held_by(holder);
    outbox.charged_to(meter.charge(Held::Answer));
    Ok(ClientConnection::new(context, Arc::clone(service), authentication, (outbox, holder), meter))
}

/// Whether LangGraph is the one that checks the caller's credentials.
fn is_checked_by_langgraph(context: &RequestContext) -> bool {
    matches!(context.gateway.admission.auth, Auth::Upstream(_))
}

/// An id as the value of a header.
fn header_value(id: &str) -> HeaderValue {
    HeaderValue::from_str(id).unwrap_or(HeaderValue::from_static(""))
}
