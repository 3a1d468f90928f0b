//! What clients can ask of an agent or a thread, in terms of no transport.
//!
//! - [`run`], [`connect`]: streams of events. [`input`]: the `RunAgentInput` that both begin with.
//! - [`events`]: a stream without an input. [`stop`]: stops a run.
//! - [`info`]: the agents. [`threads`]: lists, changes and inspects threads.
//! - [`tanstack`]: loads a thread and joins a run, for `TanStack` AI's client.
//! - [`body`]: a request's body, read at the expense of its caller.
//!
//! The layers of the routes record and admit a request. [`on_socket`] does the same for a message on
//! a socket, with the headers of the request that opened the socket. So a key that was revoked fails
//! at the next message.

pub(in crate::server) mod body;
pub(in crate::server) mod connect;
pub(in crate::server) mod events;
pub(in crate::server) mod info;
pub(in crate::server) mod input;
pub(in crate::server) mod run;
pub(in crate::server) mod stop;
pub(in crate::server) mod tanstack;
pub(in crate::server) mod threads;

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};

use super::auth::admit::Arrival;
use super::gateway::{Gateway, RequestContext};
use super::limits::rates::{Charge, StreamSlot};
use super::observe::request_log::Facts;
use super::observe::{Asked, Observation, OpenSpan, RunIds};
use super::reject::Reject;
use super::request::head::RequestHead;
use crate::metrics::Route;
use crate::offload::offload;
use threadway_translate::json::Json;

/// The answer to a message on a socket, once it comes.
pub(in crate::server) type PendingAnswer<T> =
    Pin<Box<dyn Future<Output = Result<T, Reject>> + Send>>;

/// What a socket keeps of the request that opened it.
#[derive(Clone, Debug)]
pub(in crate::server) struct SocketContext {
    /// The headers of each of its messages.
    pub(in crate::server) headers: HeaderMap,
    pub(in crate::server) peer: Option<IpAddr>,
    /// The socket's place among the streams of its caller.
    pub(in crate::server) slot: StreamSlot,
}

/// A message on a socket, as it is recorded and counted: like a POST to the route that does the same.
#[derive(Debug)]
pub(in crate::server) struct SocketMessage {
    pub(in crate::server) route: Route,
    /// The route's path.
    pub(in crate::server) path: &'static str,
    /// What the message counts as against the rate of its caller.
    pub(in crate::server) charge: Charge,
    /// The status that stands for success.
    pub(in crate::server) done: StatusCode,
    /// What is known of the message at its beginning.
    pub(in crate::server) facts: Facts,
}

/// What was done for a message.
#[derive(Debug)]
pub(in crate::server) struct Done<T> {
    pub(in crate::server) answer: T,
    /// The thread and the run that the answer is about.
    pub(in crate::server) ids: Option<RunIds>,
    /// Whether LangGraph has seen the caller's credentials.
    pub(in crate::server) was_asked: bool,
}

/// Records and admits a message on a socket, and has it handled. The span lasts as long as the
/// answer is being sent.
pub(in crate::server) async fn on_socket<T, F>(
    gateway: Arc<Gateway>,
    context: SocketContext,
    message: SocketMessage,
    handle: impl FnOnce(RequestContext) -> F,
) -> Result<(T, Option<OpenSpan>), Reject>
where
    F: Future<Output = Result<Done<T>, Reject>>,
{
    let SocketContext { mut headers, peer, slot } = context;
    let SocketMessage { route, path, charge, done, facts } = message;
    let asked = Asked { method: &Method::POST, path: Some(path), peer, facts };
    let observation = Observation::begin(&gateway.observer, &gateway.log, asked, &mut headers);
    let record = observation.record();
    let handled = async {
        let head = RequestHead::of_turn(&headers, peer);
        let admission = &gateway.admission;
        let arrival = Arrival::OnSocket(slot, charge);
        let admitted = admission.admit(head, arrival, &record).await?;
        let call = RequestContext::new(Arc::clone(&gateway), admitted.clone(), record.clone());
        let handled = handle(call).await;
        let (status, was_asked) = match &handled {
            Ok(handled) => (done, handled.was_asked),
            Err(reject) => (reject.status(), true),
        };
        admitted.settled(admission, status, was_asked)?;
        handled
    };
    match handled.await {
        Ok(Done { answer, ids, .. }) => {
            Ok((answer, observation.answered(route, done, None, ids.as_ref())))
        }
        Err(reject) => {
            observation.answered(route, reject.status(), Some(&reject.refused()), None);
            Err(reject)
        }
    }
}

/// A JSON document that may be as large as a thread, and a line break. Its bytes are held as an
/// unread answer.
fn held_json(call: &RequestContext, document: &Json) -> Result<Bytes, Reject> {
    let answers = call.answers();
    let document = document.get();
    Ok(offload(document.len(), || answers.hold(format!("{document}\n").into()))?)
}

/// A boolean as JSON.
pub(in crate::server) fn bool_json(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}
