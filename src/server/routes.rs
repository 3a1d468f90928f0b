//! The routes, and the layers in front of them.
//!
//! | route | file | for |
//! |---|---|---|
//! | `POST /agui/agent/{agent}/run` | [`run`] | start a run and stream it |
//! | `GET /agui/agent/{agent}/run`, `.../run/ws` | [`run`] | open a WebSocket for many runs |
//! | `GET /agui/agent/{agent}/run?threadId=T`, `?runId=R` | [`tanstack`] | load a thread, join a run |
//! | `POST /agui/agent/{agent}/connect` | [`connect`] | read a thread, and its live run to the end |
//! | `GET /agui/agent/{agent}/threads/{thread}/events` | [`events`] | the same for an `EventSource`, and later runs |
//! | `GET /agui/events` | [`many`] | what happens on many threads, for an `EventSource` |
//! | `POST /agui/agent/{agent}/stop/{thread}` | [`stop`] | stop a thread's live run |
//! | `GET /agui/threads`, `/agui/threads/{thread}`, .. | [`threads`] | list, name, archive, delete and inspect threads |
//! | `GET /agui/info`, `GET /agui/agent/{agent}/capabilities` | [`info`] | the agents, and what one of them can do |
//! | `GET /acp`, `POST /acp`, `DELETE /acp` | [`acp`] | ACP, over a WebSocket or streamable HTTP |
//! | `POST /agui` | [`single_route`] | all of these by a `method` in the body, for CopilotKit's client |
//! | `GET /`, `GET /page/{file}` | [`page`] | the page, where it is served |
//! | `GET /healthz`, `GET /readyz` | [`health`] | whether the gateway is alive, and ready |
//! | `GET /openapi.json` | [`openapi`] | the routes as OpenAPI: a new route needs an entry in `server/openapi.json` |
//! | `GET /metrics`, on a listener of its own | [`admin`] | metrics for Prometheus |

mod accept;
pub(in crate::server) mod admin;
pub(in crate::server) mod compress;
mod connect;
pub(in crate::server) mod events;
pub(in crate::server) mod health;
mod info;
mod many;
mod openapi;
pub(in crate::server) mod page;
mod run;
mod single_route;
mod stop;
mod tanstack;
pub(in crate::server) mod threads;

use std::sync::Arc;

use axum::extract::{FromRef, Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, patch, post};
use axum::{Extension, Router};
use tower_http::cors::CorsLayer;

use self::compress::Compression;
use self::health::Readiness;
use self::page::Page;
use super::acp;
use super::auth::admit::Arrival;
use super::browser::refused;
use super::connections::Full;
use super::gateway::{Gateway, ReloadReceiver};
use super::observe;
use super::observe::request_log::RequestRecord;
use super::reject::{self, Reject};
use super::request::head::RequestHead;
use super::response::UpstreamNotAsked;

/// What the routes for clients need. A reload makes a new one.
#[derive(Clone, Debug)]
pub(super) struct RoutesState {
    pub(super) gateway: Arc<Gateway>,
    /// For the sockets that are opened.
    pub(super) newest: ReloadReceiver<Gateway>,
    pub(super) acp: Arc<acp::Front>,
    pub(super) newest_acp: ReloadReceiver<acp::Front>,
    pub(super) readiness: Readiness,
    pub(super) page: Page,
}

/// The routes for clients.
pub(super) fn routes(state: RoutesState, compression: Compression) -> Router {
    let RoutesState { gateway, page, .. } = &state;
    let (gateway, page) = (Arc::clone(gateway), *page);
    let compressed = middleware::from_fn_with_state(compression, compress::compress);
    let admitted = middleware::from_fn_with_state(Arc::clone(&gateway), admit);
    let observed = (gateway.observer.clone(), gateway.log.clone());
    let observed = middleware::from_fn_with_state(observed, observe::observe);
    let metrics = gateway.observer.metrics.clone();
    let deferred = middleware::from_fn_with_state(metrics, events::defer);
    let cors = gateway.admission.cors.layer(gateway.admission.forward.names());
    let routes = Router::new()
        .route("/agui/info", get(info::info))
        .route("/agui", post(single_route::single_route))
        .route("/agui/", post(single_route::single_route))
        .route("/agui/agent/{agent}/capabilities", get(info::capabilities))
        .route("/agui/agent/{agent}/run", post(run::run).get(run::socket_or_query))
        .route("/agui/agent/{agent}/run/ws", get(run::socket))
        .route("/agui/agent/{agent}/connect", post(connect::connect))
        .route("/agui/agent/{agent}/threads/{thread}/events", get(events::events))
        .route("/agui/events", get(many::many))
        .route("/agui/agent/{agent}/stop/{thread}", post(stop::stop))
        .route("/acp", get(acp::open).post(acp::message).delete(acp::close))
        .route("/agui/threads", get(threads::list))
        .route("/agui/threads/{thread}", patch(threads::change).delete(threads::delete))
        .route("/agui/threads/{thread}/archive", post(threads::archive))
        .route("/agui/threads/{thread}/{part}", get(threads::inspect))
        .route_layer(compressed)
        .route_layer(admitted)
        .route_layer(deferred)
        .method_not_allowed_fallback(reject::wrong_method);
    // CORS is outside of `admitted`, since a preflight carries no credentials.
    let routes = with_cors(routes, cors);
    let pages = (gateway.admission.cors.clone(), gateway.admission.refused_pages().clone());
    let refused = middleware::from_fn_with_state(pages, refused::preflight);
    let routes = routes.layer(refused);
    let routes = match page {
        Page::On => routes.merge(page::routes()),
        Page::Off => routes,
    };
    routes
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/openapi.json", get(openapi::openapi))
        .method_not_allowed_fallback(reject::wrong_method)
        .fallback(reject::unknown_route)
        .layer(observed)
        .with_state(state)
}

/// Has each request admitted as its caller's.
async fn admit(
    State(gateway): State<Arc<Gateway>>,
    Extension(record): Extension<RequestRecord>,
    request: Request,
    next: Next,
) -> Result<Response, Reject> {
    let (head, body) = request.into_parts();
    let arrival = Arrival::Alone;
    let admitted = gateway.admission.admit(RequestHead::of(&head), arrival, &record).await?;
    let mut request = Request::from_parts(head, body);
    request.extensions_mut().insert(admitted.clone());
    let response = next.run(request).await;
    let was_asked = response.extensions().get::<UpstreamNotAsked>().is_none();
    admitted.settled(&gateway.admission, response.status(), was_asked)?;
    Ok(response)
}

/// Refuses connections for which there is no place. A page can read the refusal, and an
/// `EventSource` survives it.
pub(super) fn full(gateway: &Gateway) -> Full {
    let cors = gateway.admission.cors.layer(gateway.admission.forward.names());
    let metrics = gateway.observer.metrics.clone();
    let deferred = middleware::from_fn_with_state(metrics, events::defer);
    Full::new(|routes| with_cors(routes.layer(deferred.clone()), cors.clone()))
}

macro_rules! state_of_routes {
    ($($field:ident: $type:ty,)*) => {
        $(impl FromRef<RoutesState> for $type {
            fn from_ref(state: &RoutesState) -> Self {
                state.$field.clone()
            }
        })*
    };
}

state_of_routes! {
    gateway: Arc<Gateway>,
    newest: ReloadReceiver<Gateway>,
    acp: Arc<acp::Front>,
    newest_acp: ReloadReceiver<acp::Front>,
    readiness: Readiness,
    page: Page,
}

fn with_cors<S: Clone + Send + Sync + 'static>(
    routes: Router<S>,
    cors: Option<CorsLayer>,
) -> Router<S> {
    match cors {
        Some(cors) => routes.layer(cors),
        None => routes,
    }
}
