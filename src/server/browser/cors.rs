//! CORS: the origins whose pages may use the gateway, and the requests that they may send.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, ORIGIN, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use tower_http::cors::{AllowOrigin, CorsLayer};

use super::host::split_port;

/// How long a browser may cache the answer to a preflight. Most conversations need one preflight,
/// and a changed list of origins takes effect soon.
const MAX_AGE: Duration = Duration::from_mins(10);

/// The headers that a page may send, besides those that are configured to be forwarded.
const REQUEST_HEADERS: [HeaderName; 11] = [
    ACCEPT,
    AUTHORIZATION,
    CONTENT_TYPE,
    HeaderName::from_static("last-event-id"),
    // TanStack AI names its run in this header.
    HeaderName::from_static("x-run-id"),
    HeaderName::from_static("acp-connection-id"),
    HeaderName::from_static("acp-session-id"),
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
    HeaderName::from_static("baggage"),
];

/// Which pages of other origins may use the gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Cors {
    /// None.
    #[default]
    Off,
    /// Pages of these origins.
    Origins {
        /// At least one origin.
        origins: Vec<Origin>,
        /// Whether their requests may carry cookies.
        credentials: Credentials,
    },
    /// Pages of all origins, without cookies.
    Any,
}

/// Whether a page's requests may carry what a browser adds by itself, such as cookies. The gateway
/// reads no cookies, but a proxy in front of it may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Credentials {
    /// They may not.
    #[default]
    Omitted,
    /// They may.
    Included,
}

/// An origin, as browsers write it: `https://chat.example.com`, `http://localhost:3000`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin(HeaderValue);

/// Why a list of origins is invalid. Each text says what is expected instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CorsError {
    /// An entry is not an origin.
    #[error(
        "`*`, or origins such as https://chat.example.com: scheme, host and port, in ASCII, without a path"
    )]
    NotAnOrigin,
    /// `*` is listed with other origins.
    #[error("either `*` or a list of origins")]
    AnyAndOthers,
    /// Any web page could act for its visitors.
    #[error("a list of origins, since credentials are allowed; not `*`")]
    AnyWithCredentials,
    /// Credentials are allowed, but no origin is.
    #[error("origins that may send credentials, or no credentials")]
    CredentialsOfNone,
}

/// The page that a request comes from, as `Sec-Fetch-Site` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Site {
    /// A page of the origin that the request is sent to. The browser knows that origin even where a
    /// proxy has changed `Host`.
    Same,
    /// A page of another origin, of the same site or not.
    Other,
    /// No page: a person typed the address. Or the header is missing, because the client is no
    /// browser, or because it reaches the gateway by plain HTTP over a network.
    Unknown,
}

// === impl Cors ===

impl Cors {
    /// Reads a list of origins: an empty list allows none, and `*` allows all.
    pub fn new<'a>(
        origins: impl IntoIterator<Item = &'a str>,
        credentials: Credentials,
    ) -> Result<Self, CorsError> {
        let origins: Vec<_> = origins.into_iter().collect();
        match (origins.as_slice(), credentials) {
            ([], Credentials::Omitted) => Ok(Self::Off),
            ([], Credentials::Included) => Err(CorsError::CredentialsOfNone),
            (["*"], Credentials::Omitted) => Ok(Self::Any),
            (["*"], Credentials::Included) => Err(CorsError::AnyWithCredentials),
            (several, _) if several.contains(&"*") => Err(CorsError::AnyAndOthers),
            (several, credentials) => {
                let origins = several.iter().map(|origin| origin.parse()).collect::<Result<_, _>>();
                Ok(Self::Origins { origins: origins?, credentials })
            }
        }
    }

    /// Whether pages of this origin may use the gateway.
    pub(in crate::server) fn allows(&self, origin: &HeaderValue) -> bool {
        match self {
            Self::Off => false,
            Self::Origins { origins, .. } => origins.iter().any(|known| known.0 == origin),
            Self::Any => true,
        }
    }

    pub(in crate::server) fn listed(&self) -> impl Iterator<Item = &Origin> {
        let origins = match self {
            Self::Origins { origins, .. } => origins.as_slice(),
            Self::Off | Self::Any => &[],
        };
        origins.iter()
    }

    /// The listed origin that somebody may have meant instead of `origin`: one of the same host,
    /// with another port or scheme. All names of this machine count as one host. The most similar
    /// origin is chosen.
    pub(in crate::server) fn near(&self, origin: &Origin) -> Option<&Origin> {
        let (scheme, host, port) = origin.parts();
        let alike =
            self.listed().filter(|known| canonical_host(known.parts().1) == canonical_host(host));
        alike.max_by_key(|known| {
            let (known_scheme, known_host, known_port) = known.parts();
            let likeness = [known_scheme == scheme, known_port == port, known_host == host];
            likeness.into_iter().filter(|is_same| *is_same).count()
        })
    }

    /// Whether requests of pages of other origins may carry cookies.
    pub(in crate::server) fn takes_credentials(&self) -> bool {
        matches!(self, Self::Origins { credentials: Credentials::Included, .. })
    }

    /// The layer that answers preflights and adds CORS headers. `None` where no page is allowed.
    pub(in crate::server) fn layer(&self, forwarded: &[HeaderName]) -> Option<CorsLayer> {
        let (origins, credentials) = match self {
            Self::Off => return None,
            Self::Origins { origins, credentials } => {
                let origins = origins.iter().map(|origin| origin.0.clone());
                (AllowOrigin::list(origins), *credentials == Credentials::Included)
            }
            Self::Any => (AllowOrigin::any(), false),
        };
        let more = forwarded.iter().filter(|name| !REQUEST_HEADERS.contains(name)).cloned();
        let headers: Vec<_> = REQUEST_HEADERS.into_iter().chain(more).collect();
        let layer = CorsLayer::new()
            .allow_origin(origins)
            .allow_methods([Method::GET, Method::POST, Method::PATCH, Method::DELETE])
            .allow_headers(headers)
            .expose_headers([
                RETRY_AFTER,
                HeaderName::from_static("last-event-id"),
                HeaderName::from_static("acp-connection-id"),
            ])
            .max_age(MAX_AGE);
        Some(if credentials { layer.allow_credentials(true) } else { layer })
    }
}

/// Whether a request comes from a page of another origin than its own `host`, and no setting allows
/// that.
///
/// Without CORS a page cannot read the response. But a browser may send the request all the same,
/// and a proxy may add its user's credentials. No page can change `Origin` or `Sec-Fetch-Site`.
///
/// A page of another site can also send a GET without `Origin`, by an image, a frame or a link. The
/// page could not read the response, but the gateway would open a stream for it.
pub(in crate::server) fn is_forbidden(
    cors: &Cors,
    headers: &HeaderMap,
    host: Option<&str>,
) -> bool {
    let site = Site::of(headers);
    let mut origins = headers.get_all(ORIGIN).iter();
    match (origins.next(), origins.next()) {
        (None, _) => site == Site::Other,
        // No browser sends two.
        (Some(_), Some(_)) => true,
        (Some(origin), None) => match site {
            Site::Same => false,
            Site::Other => !cors.allows(origin),
            Site::Unknown => !(is_of_host(origin, host) || cors.allows(origin)),
        },
    }
}

/// Whether a request comes from a page of another origin than its own `host`, allowed or not.
pub(in crate::server) fn is_cross_origin(headers: &HeaderMap, host: Option<&str>) -> bool {
    is_forbidden(&Cors::Off, headers, host)
}

/// Whether an origin belongs to a page that this host serves. A proxy in front may end TLS, so the
/// page's scheme may be `http` or `https`.
fn is_of_host(origin: &HeaderValue, host: Option<&str>) -> bool {
    let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    let (Some((scheme, authority)), Some(host)) = (origin, host) else { return false };
    let is_web = ["http", "https"].iter().any(|known| known.eq_ignore_ascii_case(scheme));
    is_web && authority.eq_ignore_ascii_case(host)
}

// === impl Site ===

impl Site {
    fn of(headers: &HeaderMap) -> Self {
        let mut sites = headers.get_all("sec-fetch-site").iter().map(HeaderValue::as_bytes);
        match (sites.next(), sites.next()) {
            (None, _) | (Some(b"none"), None) => Self::Unknown,
            (Some(b"same-origin"), None) => Self::Same,
            _ => Self::Other,
        }
    }
}

// === impl Origin ===

impl FromStr for Origin {
    type Err = CorsError;

    /// Reads an origin. Its case does not matter, and the scheme's default port is dropped.
    fn from_str(text: &str) -> Result<Self, CorsError> {
        let text = text.to_ascii_lowercase();
        let (scheme, authority) = text.split_once("://").ok_or(CorsError::NotAnOrigin)?;
        let is_scheme = scheme.starts_with(|first: char| first.is_ascii_lowercase())
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
        let (host, port) = split_port(authority);
        let is_port = port
            .is_none_or(|port| port.parse::<u16>().is_ok_and(|number| number.to_string() == port));
        if !is_scheme || !is_host(host) || !is_port {
            return Err(CorsError::NotAnOrigin);
        }
        let port = match (scheme, port) {
            ("http", Some("80")) | ("https", Some("443")) | (_, None) => String::new(),
            (_, Some(port)) => format!(":{port}"),
        };
        let origin = HeaderValue::try_from(format!("{scheme}://{host}{port}"));
        origin.map(Self).map_err(|_| CorsError::NotAnOrigin)
    }
}

impl Origin {
    /// The scheme, the host, and the port unless it is the scheme's default.
    fn parts(&self) -> (&str, &str, Option<&str>) {
        let text = self.0.to_str().unwrap_or_default();
        let (scheme, authority) = text.split_once("://").unwrap_or_default();
        let (host, port) = split_port(authority);
        (scheme, host, port)
    }
}

/// One name for each host: this machine has three.
fn canonical_host(host: &str) -> &str {
    match host {
        "127.0.0.1" | "[::1]" => "localhost",
        other => other,
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.to_str().unwrap_or_default())
    }
}

fn is_host(host: &str) -> bool {
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    if let Some(address) = address {
        return address.parse::<std::net::Ipv6Addr>().is_ok();
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    !host.is_empty() && host.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_read_as_browsers_write_it() {
        for (text, expected) in [
            ("https://chat.example.com", Some("https://chat.example.com")),
            ("HTTPS://Chat.Example.com:443", Some("https://chat.example.com")),
            ("http://h:80", Some("http://h")),
            ("http://localhost:3000", Some("http://localhost:3000")),
            ("https://h:80", Some("https://h:80")),
            ("http://[::1]:3000", Some("http://[::1]:3000")),
            ("http://[::1]", Some("http://[::1]")),
            ("chrome-extension://abcdef", Some("chrome-extension://abcdef")),
            ("", None),
            ("*", None),
            ("null", None),
            ("chat.example.com", None),
            ("://h", None),
            ("1a://h", None),
            ("https://", None),
            ("https://h/", None),
            ("https://h?x", None),
            ("https://u@h", None),
            ("https://*.example.com", None),
            ("https://h:", None),
            ("https://h:080", None),
            ("https://h:65536", None),
            ("https://[::1", None),
            ("https://[x]", None),
            ("https://h\u{e9}", None),
            ("https://h h", None),
            ("https://h\r\nx: y", None),
        ] {
            let origin = text.parse::<Origin>().ok().map(|origin| origin.to_string());
            assert_eq!(origin.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn an_invalid_list_of_origins_is_an_error() {
        let (omitted, included) = (Credentials::Omitted, Credentials::Included);
        let of = |origins: &[&str], credentials| Cors::new(origins.iter().copied(), credentials);
        assert_eq!(of(&[], omitted), Ok(Cors::Off));
        assert_eq!(of(&["*"], omitted), Ok(Cors::Any));
        assert!(matches!(of(&["http://a", "http://b"], included), Ok(Cors::Origins { .. })));
        assert_eq!(of(&["*"], included), Err(CorsError::AnyWithCredentials));
        assert_eq!(of(&["http://a", "*"], omitted), Err(CorsError::AnyAndOthers));
        assert_eq!(of(&[], included), Err(CorsError::CredentialsOfNone));
        assert_eq!(of(&["http://a", "b"], omitted), Err(CorsError::NotAnOrigin));
    }

    #[test]
    fn a_page_of_another_origin_is_forbidden_unless_it_is_allowed() {
        let cors = Cors::new(["https://chat.example.com"], Credentials::Omitted).unwrap();
        let cases: &[(&[(&str, &str)], bool)] = &[
            (&[], false),
            (&[("origin", "http://h:1")], false),
            (&[("origin", "https://H:1")], false),
            (&[("origin", "https://chat.example.com")], false),
            (&[("origin", "https://other.example.com")], true),
            (&[("origin", "http://h")], true),
            (&[("origin", "null")], true),
            (&[("origin", "")], true),
            (&[("origin", "h:1")], true),
            (&[("origin", "http://h:1"), ("origin", "http://h:1")], true),
            (&[("origin", "https://x"), ("sec-fetch-site", "same-origin")], false),
            (&[("origin", "https://x"), ("sec-fetch-site", "same-site")], true),
            (&[("origin", "https://x"), ("sec-fetch-site", "none")], true),
            // The scheme counts.
            (&[("origin", "evil://h:1")], true),
            (&[("origin", "HTTP://h:1")], false),
            (&[("origin", "://h:1")], true),
            // `Sec-Fetch-Site` counts more than a comparison of `Origin` with `Host`.
            (&[("origin", "http://h:1"), ("sec-fetch-site", "cross-site")], true),
            (&[("origin", "http://h:1"), ("sec-fetch-site", "none")], false),
            (&[("origin", "https://chat.example.com"), ("sec-fetch-site", "cross-site")], false),
            // Without an origin.
            (&[("sec-fetch-site", "same-origin")], false),
            (&[("sec-fetch-site", "none")], false),
            (&[("sec-fetch-site", "cross-site")], true),
            (&[("sec-fetch-site", "same-site")], true),
            (&[("sec-fetch-site", "Same-Origin")], true),
            (&[("sec-fetch-site", "same-origin"), ("sec-fetch-site", "same-origin")], true),
        ];
        for (headers, expected) in cases {
            let mut map = HeaderMap::new();
            for (name, value) in *headers {
                map.append(*name, value.parse().unwrap());
            }
            assert_eq!(is_forbidden(&cors, &map, Some("h:1")), *expected, "{headers:?}");
            let is_foreign_anywhere = is_forbidden(&Cors::Any, &map, None);
            let expected = match map.get_all(ORIGIN).iter().count() {
                0 => *expected,
                several => several > 1,
            };
            assert_eq!(is_foreign_anywhere, expected, "{headers:?}");
        }
    }
}
