//! Pages of other origins that are refused: what the page is told, and what the operator is.
//!
//! A page's browser hides the answer to a request that CORS does not allow. So the preflight says
//! what is wrong where a developer looks, and the log names the origin and the flag that lets it in.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{ACCESS_CONTROL_REQUEST_METHOD, ORIGIN};
use http::{HeaderMap, Method, StatusCode};
use tokio::time::Instant;

use super::Gateway;
use super::auth;
use super::cors::{self, Cors, Origin};
use super::pace::Pace;
use super::reject::Reject;
use crate::sync::Mutex;

/// How many refused origins are named in the log within [`AGAIN`]. Whoever can connect can invent
/// origins, and no one is to fill a disk.
pub const MAX_NAMED: usize = 64;

/// After how long the log names an origin again.
pub const AGAIN: Duration = Duration::from_mins(10);

/// The longest origin that is repeated. The name of a host has 253 bytes at most.
const MAX_ORIGIN_BYTES: usize = 300;

/// Which refusals were logged. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct RefusedPages {
    /// When each origin was named last.
    named: Arc<Mutex<HashMap<String, Instant>>>,
    /// Of the lines that name none.
    unnamed: Pace,
}

/// Answers the preflight of a page that may not ask. Browsers show its status and its body, where
/// the answer to the request itself is hidden.
pub(super) async fn preflight(
    State(gateway): State<Arc<Gateway>>,
    request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    let is_preflight = request.method() == Method::OPTIONS
        && headers.contains_key(ORIGIN)
        && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    if !is_preflight {
        return next.run(request).await;
    }
    let (head, body) = request.into_parts();
    let admission = &gateway.admission;
    let is_foreign =
        auth::host(&head).is_ok_and(|host| cors::is_foreign(&admission.cors, &head.headers, host));
    if is_foreign {
        return admission.refusals().of_page(&admission.cors, &head.headers).into_response();
    }
    next.run(Request::from_parts(head, body)).await
}

// === impl RefusedPages ===

impl RefusedPages {
    /// Refuses a request of a page of another origin, and logs what lets the page in.
    pub(super) fn of_page(&self, cors: &Cors, headers: &HeaderMap) -> Reject {
        let message = match page(headers) {
            Page::Of(origin) => {
                let allowed = cors.near(&origin);
                self.name(&origin, allowed, cors);
                told(&origin, allowed)
            }
            Page::Nowhere => {
                self.warn("cross_origin", NOWHERE);
                NOWHERE.to_owned()
            }
            Page::Unknown => {
                self.warn("cross_origin", UNKNOWN);
                UNKNOWN.to_owned()
            }
        };
        Reject::new(StatusCode::FORBIDDEN, "cross_origin", message)
    }

    /// Refuses a request under a name that any page could have.
    pub(super) fn of_host(&self) -> Reject {
        let message = "a gateway without `auth` does not answer under a name that any web page \
                       could have; call it by its address or `localhost`, or have its operator \
                       add the name to `hosts`";
        // Not the name: whoever asks chooses it. The page's browser shows it.
        self.warn("wrong_host", "its `host` has to be in `hosts` (--hosts NAME)");
        Reject::new(StatusCode::FORBIDDEN, "wrong_host", message)
    }

    fn warn(&self, code: &'static str, why: &'static str) {
        if self.unnamed.is_due() {
            tracing::warn!(code, "a request was refused as a web page's: {why}");
        }
    }

    fn name(&self, origin: &Origin, allowed: Option<&Origin>, cors: &Cors) {
        let now = Instant::now();
        let named = {
            let mut named = self.named.lock();
            named.retain(|_, at| now < *at + AGAIN);
            if named.len() >= MAX_NAMED || named.contains_key(&origin.to_string()) {
                return;
            }
            named.insert(origin.to_string(), now);
            named.len()
        };
        let beside = allowed.map_or_else(String::new, |allowed| {
            format!(" ({allowed} is allowed, and a browser takes the two for different origins)")
        });
        let known: Vec<_> = cors.listed().chain([origin]).map(Origin::to_string).collect();
        let origins = known.join(",");
        tracing::warn!(
            code = "cross_origin",
            %origin,
            "a page of {origin} was refused{beside}; to let it in, serve with --cors-origins \
             {origins} (`cors.origins` in the config file)"
        );
        if named == MAX_NAMED {
            tracing::warn!(
                "pages of {MAX_NAMED} origins were refused within {} minutes; no more are named",
                AGAIN.as_secs() / 60
            );
        }
    }
}

/// The message to a page whose browser sends no valid origin.
const UNKNOWN: &str = "the gateway does not answer pages of this origin; have its operator add the \
                       origin to `cors.origins`";

/// The message to a page without an origin of its own.
const NOWHERE: &str = "a page without an origin (`Origin: null`: a file, or a sandboxed frame) \
                       cannot be allowed; serve it over http, and have the gateway's operator add \
                       that origin to `cors.origins`";

/// Where a page came from.
enum Page {
    /// A place that can be allowed.
    Of(Origin),
    /// A file, or a frame that its page has cut off.
    Nowhere,
    /// The browser does not say, or what is sent is no origin.
    Unknown,
}

fn page(headers: &HeaderMap) -> Page {
    let mut origins = headers.get_all(ORIGIN).iter();
    let (Some(origin), None) = (origins.next(), origins.next()) else { return Page::Unknown };
    if origin == "null" {
        return Page::Nowhere;
    }
    // What is no origin may hold anything, and is not repeated.
    let text = origin.to_str().ok().filter(|text| text.len() <= MAX_ORIGIN_BYTES);
    text.and_then(|text| text.parse().ok()).map_or(Page::Unknown, Page::Of)
}

/// The message to a page of an origin that is not allowed. It names an allowed origin of the same
/// host. That is no secret: a request that claims this origin is answered.
fn told(origin: &Origin, allowed: Option<&Origin>) -> String {
    match allowed {
        Some(allowed) => format!(
            "{allowed} is allowed; this page came from {origin}, which is another origin to a \
             browser; open the page at {allowed}, or have the gateway's operator add {origin} to \
             --cors-origins (`cors.origins`)"
        ),
        None => format!(
            "the gateway does not answer pages of {origin}; have its operator allow them with \
             --cors-origins {origin} (`cors.origins`)"
        ),
    }
}
