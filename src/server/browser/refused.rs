//! Refused pages of other origins: what the page and the operator's log are sent.
//!
//! A browser hides the response to a request that CORS does not allow, but shows that of a
//! preflight. So the response to the preflight says what is wrong, and the log names the origin and
//! the flag that allows it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{ACCESS_CONTROL_REQUEST_METHOD, ORIGIN};
use http::{HeaderMap, Method, StatusCode};
use tokio::time::Instant;

use super::cors::{self, Cors, Origin};
use super::host;
use crate::server::limits::log_limiter::LogLimiter;
use crate::server::reject::Reject;
use crate::server::request::head::RequestHead;
use crate::sync::Mutex;

/// How many refused origins the log names within [`ORIGIN_LOG_PAUSE`]. Clients can invent origins,
/// and must not fill the disk.
pub const MAX_LOGGED_ORIGINS: usize = 64;

/// How long the log does not name an origin again.
pub const ORIGIN_LOG_PAUSE: Duration = Duration::from_mins(10);

/// The longest origin that is logged or sent back. A host name has 253 bytes at most.
const MAX_ORIGIN_BYTES: usize = 300;

/// Logs refused pages, each origin rarely. Clones share their state.
#[derive(Clone, Debug, Default)]
pub(in crate::server) struct PageRefusals {
    /// When each origin was logged last.
    logged: Arc<Mutex<HashMap<String, Instant>>>,
    /// Limits the lines that name no origin.
    unnamed: LogLimiter,
}

/// Answers the preflight of a page that is not allowed. Browsers show the status and the body of
/// that response to a developer.
pub(in crate::server) async fn preflight(
    State((cors, pages)): State<(Cors, PageRefusals)>,
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
    let named = host::named(&RequestHead::of(&head));
    let is_forbidden = named.is_ok_and(|host| cors::is_forbidden(&cors, &head.headers, host));
    if is_forbidden {
        return pages.refuse_page(&cors, &head.headers).into_response();
    }
    next.run(Request::from_parts(head, body)).await
}

// === impl PageRefusals ===

impl PageRefusals {
    /// Refuses a request of a page of another origin, and logs how to allow the page.
    pub(in crate::server) fn refuse_page(&self, cors: &Cors, headers: &HeaderMap) -> Reject {
        let message = match origin_of(headers) {
            PageOrigin::Of(origin) => {
                let allowed = cors.near(&origin);
                self.log_origin(&origin, allowed, cors);
                message(&origin, allowed)
            }
            PageOrigin::Null => {
                self.warn("cross_origin", NULL);
                NULL.to_owned()
            }
            PageOrigin::Unknown => {
                self.warn("cross_origin", UNKNOWN);
                UNKNOWN.to_owned()
            }
        };
        Reject::new(StatusCode::FORBIDDEN, "cross_origin", message)
    }

    /// Refuses a request to a host name that a web site could own.
    pub(in crate::server) fn refuse_host(&self) -> Reject {
        // The client chose the name, so it is not logged. The browser shows it.
        self.warn("wrong_host", "its `host` has to be in `hosts` (--hosts NAME)");
        Reject::wrong_host()
    }

    fn warn(&self, code: &'static str, why: &'static str) {
        if self.unnamed.is_due() {
            tracing::warn!(code, "a request from a web page was refused: {why}");
        }
    }

    fn log_origin(&self, origin: &Origin, allowed: Option<&Origin>, cors: &Cors) {
        let now = Instant::now();
        let count = {
            let mut logged = self.logged.lock();
            logged.retain(|_, at| now < *at + ORIGIN_LOG_PAUSE);
            if logged.len() >= MAX_LOGGED_ORIGINS || logged.contains_key(&origin.to_string()) {
                return;
            }
            logged.insert(origin.to_string(), now);
            logged.len()
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
        if count == MAX_LOGGED_ORIGINS {
            tracing::warn!(
                "pages of {MAX_LOGGED_ORIGINS} origins were refused within {} minutes; no more are \
                 named",
                ORIGIN_LOG_PAUSE.as_secs() / 60
            );
        }
    }
}

/// The message to a page whose browser sends no valid origin.
const UNKNOWN: &str = "the gateway does not answer pages of this origin; have its operator add the \
                       origin to `cors.origins`";

/// The message to a page without an origin of its own.
const NULL: &str = "a page without an origin (`Origin: null`: a file, or a sandboxed frame) \
                       cannot be allowed; serve it over http, and have the gateway's operator add \
                       that origin to `cors.origins`";

/// The origin of a page.
enum PageOrigin {
    /// An origin that can be allowed.
    Of(Origin),
    /// A file, or a sandboxed frame: `Origin: null`.
    Null,
    /// The header is missing or malformed.
    Unknown,
}

fn origin_of(headers: &HeaderMap) -> PageOrigin {
    let mut origins = headers.get_all(ORIGIN).iter();
    let (Some(origin), None) = (origins.next(), origins.next()) else { return PageOrigin::Unknown };
    if origin == "null" {
        return PageOrigin::Null;
    }
    // A malformed origin may contain anything, and is not sent back.
    let text = origin.to_str().ok().filter(|text| text.len() <= MAX_ORIGIN_BYTES);
    text.and_then(|text| text.parse().ok()).map_or(PageOrigin::Unknown, PageOrigin::Of)
}

/// The message to a page of an origin that is not allowed. It names an allowed origin of the same
/// host, which is no secret: anybody can try whether an origin is answered.
fn message(origin: &Origin, allowed: Option<&Origin>) -> String {
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
