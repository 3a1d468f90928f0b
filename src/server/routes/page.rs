//! The page: a client of this gateway in the browser. Its sources are in `page/`, and
//! `page/build.mjs` makes the files that are embedded here.
//!
//! The files are the same for everybody and contain no secret. They are served without credentials,
//! since a browser sends none with an address that a person types. The page's requests to `/agui`
//! are checked as any others are.

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

use crate::server::reject;
use crate::server::routes::compress::Coding;

/// Whether the page is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Page {
    /// No.
    #[default]
    Off,
    /// Yes, at `/`.
    On,
}

/// A file of the page.
struct File {
    /// The name below `/page/`. The document itself is at `/`.
    name: &'static str,
    media: &'static str,
    gzip: &'static [u8],
}

/// The page loads and requests nothing but what this gateway serves. No text can become markup,
/// since no trusted type has a policy. `img-src` and `media-src` allow media that a model sent
/// inline; a URL in a model's text is never fetched.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
                      img-src 'self' data: blob:; media-src data: blob:; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

const DOCUMENT: File = File {
    name: "index.html",
    media: "text/html; charset=utf-8",
    gzip: include_bytes!("../../../page/dist/index.html.gz"),
};

const FILES: [File; 4] = [
    File {
        name: "page.js",
        media: "text/javascript; charset=utf-8",
        gzip: include_bytes!("../../../page/dist/page.js.gz"),
    },
    File {
        name: "page.css",
        media: "text/css; charset=utf-8",
        gzip: include_bytes!("../../../page/dist/page.css.gz"),
    },
    File {
        name: "icon.svg",
        media: "image/svg+xml",
        gzip: include_bytes!("../../../page/dist/icon.svg.gz"),
    },
    File {
        name: "licences.txt",
        media: "text/plain; charset=utf-8",
        gzip: include_bytes!("../../../page/dist/licences.txt.gz"),
    },
];

/// The routes of the page, which need no credentials.
pub(in crate::server) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
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
    /// Whether the page's inspector sent a request with this query: `raw=true`.
    pub(in crate::server) fn inspects(self, query: Option<&str>) -> bool {
        let mut pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        self == Self::On && pairs.any(|(key, value)| key == "raw" && value == "true")
    }
}

// === impl File ===

impl File {
    /// The file, compressed if the client accepts that; or 304 if the client has it.
    fn answer(&self, request: &HeaderMap) -> Response {
        let tag = self.tag();
        let mut headers = HeaderMap::new();
        let mut set = |name: HeaderName, value: &'static str| {
            headers.insert(name, HeaderValue::from_static(value));
        };
        // Another version of the gateway has other files of the same names.
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
                tracing::error!(
                    %error,
                    file = self.name,
                    "a file of the page could not be decompressed; please report this"
                );
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
        }
    }

    /// The entity tag. It is weak, since the compressed and the plain file share it.
    fn tag(&self) -> String {
        format!("W/\"{:08x}-{}\"", crc32fast::hash(self.gzip), self.gzip.len())
    }

    fn plain(&self) -> std::io::Result<Vec<u8>> {
        let mut plain = Vec::new();
        GzDecoder::new(self.gzip).read_to_end(&mut plain)?;
        Ok(plain)
    }
}

/// Whether the client has the file with this tag.
fn is_held(request: &HeaderMap, tag: &str) -> bool {
    let held = request.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let opaque = |tag: &str| tag.strip_prefix("W/").unwrap_or(tag).to_owned();
    held.flat_map(|value| value.split(','))
        .map(str::trim)
        .any(|one| one == "*" || opaque(one) == opaque(tag))
}
