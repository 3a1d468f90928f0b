//! A message on a socket is recorded and admitted as a request is, with the headers of the request
//! that opened the socket. So a key that was revoked fails at the next message.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use http::{HeaderMap, Method, StatusCode};

use crate::metrics::Route;
use crate::server::auth::admit::Arrival;
use crate::server::gateway::{Gateway, RequestContext};
use crate::server::limits::rates::{Charge, StreamSlot};
use crate::server::observe::request_log::RequestFacts;
use crate::server::observe::{Observation, ObservedRequest, OpenSpan, RunIds};
use crate::server::reject::Reject;
use crate::server::request::head::RequestHead;

/// The answer to a message on a socket, once it comes.
pub(in crate::server) type PendingAnswer<T> =
    Pin<Box<dyn Future<Output = Result<T, Reject>> + Send>>;

/// What a socket keeps of the request that opened it. It has no `Debug`, which would print
/// credentials.
#[derive(Clone)]
pub(in crate::server) struct OpeningRequest {
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
    pub(in crate::server) facts: RequestFacts,
}

/// What was done for a message.
#[derive(Debug)]
pub(in crate::server) struct HandledMessage<T> {
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
    opening: OpeningRequest,
    message: SocketMessage,
    handle: impl FnOnce(RequestContext) -> F,
) -> Result<(T, Option<OpenSpan>), Reject>
where
    F: Future<Output = Result<HandledMessage<T>, Reject>>,
{
    let OpeningRequest { mut headers, peer, slot } = opening;
    let SocketMessage { route, path, charge, done, facts } = message;
    let asked = ObservedRequest { method: &Method::POST, path: Some(path), peer, facts };
    let observation = Observation::begin(&gateway.observer, &gateway.log, asked, &mut headers);
    let record = observation.record();
    let handled = async {
        let head = RequestHead::of_turn(&headers, peer);
        let admission = &gateway.admission;
        let arrival = Arrival::OnSocket(slot, charge);
        let admitted = admission.admit(head, arrival, &record).await?;
        let context = RequestContext::new(Arc::clone(&gateway), admitted.clone(), record.clone());
        let handled = handle(context).await;
        let (status, was_asked) = match &handled {
            Ok(handled) => (done, handled.was_asked),
            Err(reject) => (reject.status(), true),
        };
        admitted.settled(admission, status, was_asked)?;
        handled
    };
    match handled.await {
        Ok(HandledMessage { answer, ids, .. }) => {
            Ok((answer, observation.answered(route, done, None, ids.as_ref())))
        }
        Err(reject) => {
            observation.answered(route, reject.status(), Some(&reject.refused()), None);
            Err(reject)
        }
    }
}
