//! The page: a client of this gateway for people, in the browser. `page/` has its sources, and
//! `page/build.mjs` makes the files that are embedded here.
//!
//! The files are the same for everybody and hold no secret, so they are served without credentials:
//! a browser cannot send any with the address that a person types. What the page then asks of
//! `/agui` is checked as any other request is.

use std::io::Read;

use axum::Router;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use flate2::read::GzDecoder;
use http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH,
    REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};

use super::compress::Coding;
use super::reject;

/// Whether the page is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Page {
    /// It is not.
    #[default]
    Off,
    /// At `/`.
    On,
}

/// A file of the page.
struct File {
    /// Where it is, below `/page/`; the document itself is `/`.
    name: &'static str,
    media: &'static str,
    gzip: &'static [u8],
}

/// Nothing but what this gateway serves is run, shown or asked. No text can become markup, since no
/// trusted type has a policy. `img-src` and `media-src` allow what a model has made and sent along;
/// an address in a model's words is never fetched.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
                      img-src 'self' data: blob:; media-src data: blob:; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

const DOCUMENT: File = File {
    name: "index.html",
    media: "text/html; charset=utf-8",
    gzip: include_bytes!("../../page/dist/index.html.gz"),
};

const FILES: [File; 4] = [
    File {
        name: "page.js",
        media: "text/javascript; charset=utf-8",
        gzip: include_bytes!("../../page/dist/page.js.gz"),
    },
    File {
        name: "page.css",
        media: "text/css; charset=utf-8",
        gzip: include_bytes!("../../page/dist/page.css.gz"),
    },
    File {
        name: "icon.svg",
        media: "image/svg+xml",
        gzip: include_bytes!("../../page/dist/icon.svg.gz"),
    },
    File {
        name: "licences.txt",
        media: "text/plain; charset=utf-8",
        gzip: include_bytes!("../../page/dist/licences.txt.gz"),
    },
];

/// The routes of the page, with nothing before them.
pub(super) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new().route("/", get(document)).route("/page/{file}", get(file)).with_state(())
}

async fn document(State(()): State<()>, headers: HeaderMap) -> Response {
    DOCUMENT.answer(&headers)
}

async fn file(
    State(()): State<()>,
    Path(name): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    match FILES.iter().find(|file| file.name == name) {
        Some(file) => file.answer(&headers),
        None => reject::unknown_route(uri).await.into_response(),
    }
}

// === impl Page ===

impl Page {
    /// Whether a request with this query is for the inspector of the page: `raw=true`.
    pub(super) fn inspects(self, query: Option<&str>) -> bool {
        let mut pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        self == Self::On && pairs.any(|(key, value)| key == "raw" && value == "true")
    }
}

// === impl File ===

impl File {
    /// The file, compressed where the client takes that, or that it has not changed.
    fn answer(&self, request: &HeaderMap) -> Response {
        let tag = self.tag();
        let mut headers = HeaderMap::new();
        let mut set = |name: HeaderName, value: &'static str| {
            headers.insert(name, HeaderValue::from_static(value));
        };
        // Another version of the gateway has other files under the same names.
        set(CACHE_CONTROL, "no-cache");
        set(VARY, "accept-encoding");
        set(CONTENT_SECURITY_POLICY, POLICY);
        set(X_CONTENT_TYPE_OPTIONS, "nosniff");
        set(X_FRAME_OPTIONS, "DENY");
        set(REFERRER_POLICY, "no-referrer");
        set(HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
        set(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
        if let Ok(value) = HeaderValue::from_str(&tag) {
            headers.insert(ETAG, value);
        }
        if is_held(request, &tag) {
            return (StatusCode::NOT_MODIFIED, headers).into_response();
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.media));
        if Coding::Gzip.is_accepted(request) {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static(Coding::Gzip.name()));
            return (headers, Bytes::from_static(self.gzip)).into_response();
        }
        match self.plain() {
            Ok(plain) => (headers, plain).into_response(),
            Err(error) => {
                tracing::error!(%error, file = self.name, "a file of the page is no gzip");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
        }
    }

    /// Weak, since the compressed file and the plain one have the same.
    fn tag(&self) -> String {
        format!("W/\"{:08x}-{}\"", crc32fast::hash(self.gzip), self.gzip.len())
    }

    fn plain(&self) -> std::io::Result<Vec<u8>> {
        let mut plain = Vec::new();
        GzDecoder::new(self.gzip).read_to_end(&mut plain)?;
        Ok(plain)
    }
}

/// Whether the client has said that it holds the file of this tag.
fn is_held(request: &HeaderMap, tag: &str) -> bool {
    let held = request.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let opaque = |tag: &str| tag.strip_prefix("W/").unwrap_or(tag).to_owned();
    held.flat_map(|value| value.split(','))
        .map(str::trim)
        .any(|one| one == "*" || opaque(one) == opaque(tag))
}
