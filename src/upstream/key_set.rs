//! Fetches the public keys of a token issuer, with limits in time and size. Redirects are not
//! followed.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use http::Request;
use http::header::ACCEPT;
use url::Url;

use super::http1::Http;
use super::prepared_request::within;
use super::{CONNECT_TIMEOUT, Dialer, Error, SetupError, Tls, response};

/// How long fetching a key set may take. A caller may wait for it.
const KEY_SET_TIMEOUT: Duration = Duration::from_secs(5);

/// The largest key set, in bytes. A key with certificates takes some KiB.
const MAX_KEY_SET_BYTES: usize = 1024 * 1024;

/// Endings of host names that resolve only inside a machine, a network or a cluster.
const PRIVATE_ENDINGS: [&str; 4] = [".localhost", ".internal", ".local", ".svc"];

/// The URL of an issuer's keys: https, or http inside a private network. Whoever can change the
/// answer can make tokens for anybody.
#[derive(Clone, PartialEq, Eq)]
pub struct KeySetUrl(Url);

/// The text is not a [`KeySetUrl`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "an https URL without user and password; http only to an address or a name of a private network"
)]
pub struct NotAKeySetUrl;

/// Why a key set was not fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FetchError(Error);

/// Fetches an issuer's keys. Clones share its connections.
#[derive(Clone, Debug)]
pub(crate) struct KeySets {
    http: Http,
    url: KeySetUrl,
}

// === impl KeySets ===

impl KeySets {
    /// Does not connect yet.
    pub(crate) fn new(url: KeySetUrl, tls: &Tls) -> Result<Self, SetupError> {
        let http = Http::new(Dialer::new(tls)?, CONNECT_TIMEOUT);
        Ok(Self { http, url })
    }

    /// The URL that is fetched.
    pub(crate) fn url(&self) -> &KeySetUrl {
        &self.url
    }

    /// Fetches the key set: the text of a JSON document, not parsed.
    pub(crate) async fn fetch(&self) -> Result<String, FetchError> {
        within(KEY_SET_TIMEOUT, self.read()).await.map_err(FetchError)
    }

    async fn read(&self) -> Result<String, Error> {
        let KeySetUrl(url) = &self.url;
        let mut request = Request::new(Bytes::new());
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static("application/json"));
        let mut response = self.http.send(request, url).await?;
        let code = response.status().as_u16();
        if code != 200 {
            // The issuer's explanation does not belong in the gateway's log.
            return Err(Error::Status { code, detail: String::new(), retry_after: None });
        }
        let mut body = Vec::new();
        response::read(response.body_mut(), MAX_KEY_SET_BYTES, None, &mut body).await?;
        String::from_utf8(body).map_err(|_| Error::NotUnderstood { what: "text" })
    }
}

// === impl KeySetUrl ===

impl FromStr for KeySetUrl {
    type Err = NotAKeySetUrl;

    fn from_str(text: &str) -> Result<Self, NotAKeySetUrl> {
        let url = Url::parse(text).map_err(|_| NotAKeySetUrl)?;
        let host = url.host_str().ok_or(NotAKeySetUrl)?;
        let is_guarded = match url.scheme() {
            "https" => true,
            "http" => is_private(host),
            _ => false,
        };
        let has_user = !url.username().is_empty() || url.password().is_some();
        if is_guarded && !has_user { Ok(Self(url)) } else { Err(NotAKeySetUrl) }
    }
}

/// Whether a host is reached without leaving a private network.
fn is_private(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    match address.map(|address| address.to_canonical()) {
        Ok(IpAddr::V4(address)) => address.is_loopback() || address.is_private(),
        Ok(IpAddr::V6(address)) => address.is_loopback() || address.is_unique_local(),
        Err(_) => !host.contains('.') || PRIVATE_ENDINGS.iter().any(|end| host.ends_with(end)),
    }
}

impl fmt::Display for KeySetUrl {
    /// Leaves out the query, which may hold a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut url = self.0.clone();
        url.set_query(None);
        url.set_fragment(None);
        f.write_str(url.as_str())
    }
}

impl fmt::Display for FetchError {
    /// The words of [`Error`] name the server of nearly all requests, which is LangGraph's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.to_string().replace("LangGraph server", "issuer"))
    }
}

impl fmt::Debug for KeySetUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_fetch_names_the_issuer() {
        let failed = |error| FetchError(error).to_string();
        let status = Error::Status { code: 500, detail: String::new(), retry_after: None };
        assert_eq!(failed(status), "the issuer answered 500");
        let away = Error::Unreachable { reason: "refused".to_owned() };
        assert_eq!(failed(away), "the issuer cannot be reached: refused");
        let text = Error::NotUnderstood { what: "text" };
        assert_eq!(failed(text), "the issuer's answer is not text");
    }

    #[test]
    fn keys_come_from_where_nobody_can_change_them_on_the_way() {
        for text in [
            "https://issuer.example.com/.well-known/jwks.json",
            "https://issuer.example.com/keys?p=policy",
            "http://127.0.0.1:8080/keys",
            "http://[::1]:8080/keys",
            "http://10.1.2.3/keys",
            "http://[fd00::1]/keys",
            "http://keycloak:8080/keys",
            "http://keycloak.auth.svc.cluster.local/keys",
            "http://host.docker.internal/keys",
        ] {
            assert!(text.parse::<KeySetUrl>().is_ok(), "{text}");
        }
        for text in [
            "",
            "issuer.example.com/keys",
            "http://issuer.example.com/keys",
            "http://192.0.2.1/keys",
            "https://user:password@issuer.example.com/keys",
            "file:///srv/keys.json",
            "ftp://issuer.example.com/keys",
        ] {
            assert!(text.parse::<KeySetUrl>().is_err(), "{text}");
        }
        let url: KeySetUrl = "https://h/keys?secret=1#x".parse().unwrap();
        assert_eq!(format!("{url} {url:?}"), "https://h/keys https://h/keys");
    }
}
