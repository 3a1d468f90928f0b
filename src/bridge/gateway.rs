//! The gateway elsewhere: its URL, its token, and how its WebSocket is opened.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use http::header::{AUTHORIZATION, USER_AGENT};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use url::{Host, Url};

use crate::credentials::Credentials;
use crate::upstream::{self, ApiKey, BaseUrl, BaseUrlError, Dialer, SetupError, Tls};
use threadway_translate::acp::rpc::{Code, Error};
use threadway_translate::json;

/// The route of a gateway that speaks ACP.
const ROUTE: &str = "acp";

/// How long the answer to the opening request may take, after the connection was made.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The largest frame of the gateway, in bytes: twice the longest line of an editor, because JSON may
/// be escaped in another way.
const MAX_FRAME_BYTES: usize = 64 * 1024 * 1024;

/// The longest time that a gateway's `Retry-After` is obeyed.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(5);

/// How many characters of a refusal's reason are shown.
const MAX_REASON_CHARS: usize = 300;

/// The URL of a gateway, without `/acp`: http or https. `ws` and `wss` stand for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayUrl(BaseUrl);

/// Why a text is not a [`GatewayUrl`]. The messages say what is expected instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GatewayUrlError {
    /// The scheme is none of the four.
    #[error("a URL that begins with https://, http://, wss:// or ws://")]
    Scheme,
    /// The rest of the URL is wrong.
    #[error(transparent)]
    Base(BaseUrlError),
}

/// Where the token for a gateway comes from.
#[derive(Clone, Debug)]
pub enum TokenSource {
    /// A flag or a variable.
    Given(ApiKey),
    /// What `--login` has stored, if anything. It is read for each connection.
    Stored(Credentials),
}

/// A gateway elsewhere.
#[derive(Clone, Debug)]
pub struct RemoteGateway {
    url: GatewayUrl,
    token: TokenSource,
    dialer: Dialer,
}

/// Why a WebSocket could not be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// The gateway is away, or busy. It may be back soon.
    Away {
        /// What happened.
        reason: String,
        /// How long the gateway wants to be left alone.
        retry_after: Option<Duration>,
    },
    /// The gateway, or something else at its URL, has refused. A person has to change something.
    Refused(Error),
}

/// A WebSocket to a gateway.
pub(super) type Socket<S> = WebSocketStream<S>;

// === impl GatewayUrl ===

impl GatewayUrl {
    /// The URL without its path, for the store of tokens.
    pub fn base(&self) -> &BaseUrl {
        &self.0
    }

    /// Whether a token would be sent in the clear over a network.
    pub fn is_clear(&self) -> bool {
        let url = self.route();
        let is_local = match url.host() {
            Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        };
        url.scheme() == "http" && !is_local
    }

    /// The URL of the route.
    fn route(&self) -> Url {
        self.0.join(&[ROUTE])
    }
}

impl FromStr for GatewayUrl {
    type Err = GatewayUrlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (scheme, rest) = text.split_once("://").ok_or(GatewayUrlError::Scheme)?;
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "http" | "ws" => "http",
            "https" | "wss" => "https",
            _ => return Err(GatewayUrlError::Scheme),
        };
        // The route itself may be pasted, too.
        let rest = rest.trim_end_matches('/');
        let rest = rest.strip_suffix("/acp").unwrap_or(rest);
        format!("{scheme}://{rest}").parse().map(Self).map_err(GatewayUrlError::Base)
    }
}

impl fmt::Display for GatewayUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

// === impl RemoteGateway ===

impl RemoteGateway {
    /// Does not connect yet. TLS trusts the system's certificates, as for a LangGraph server.
    pub fn new(url: GatewayUrl, token: TokenSource) -> Result<Self, SetupError> {
        Ok(Self { url, token, dialer: Dialer::new(&Tls::default())? })
    }

    /// The gateway's URL.
    pub fn url(&self) -> &GatewayUrl {
        &self.url
    }

    /// Opens a WebSocket and closes it again, to try the token.
    pub async fn probe(&self) -> Result<(), OpenError> {
        let mut socket = self.open().await?;
        // The token was accepted. How the socket ends does not matter.
        let _ = tokio::time::timeout(HANDSHAKE_TIMEOUT, socket.close(None)).await;
        Ok(())
    }

    /// Opens a WebSocket. Redirects are not followed, because they would get the token.
    pub(super) async fn open(
        &self,
    ) -> Result<Socket<impl AsyncRead + AsyncWrite + Unpin + Send + use<>>, OpenError> {
        let route = self.url.route();
        let away = |reason: String| OpenError::Away { reason, retry_after: None };
        let stream = self.dialer.dial(&route).await.map_err(|error| {
            if let upstream::Error::Unreachable { reason } = error {
                return away(reason);
            }
            away(error.to_string())
        })?;
        let address = route.as_str().replacen("http", "ws", 1);
        let mut request = address.into_client_request().map_err(|error| away(error.to_string()))?;
        let headers = request.headers_mut();
        headers.insert(
            USER_AGENT,
            HeaderValue::from_static(concat!("threadway/", env!("CARGO_PKG_VERSION"))),
        );
        if let Some(token) = self.token() {
            headers.insert(AUTHORIZATION, token.bearer());
        }
        let config = WebSocketConfig::default()
            .max_message_size(Some(MAX_FRAME_BYTES))
            .max_frame_size(Some(MAX_FRAME_BYTES));
        let opening = tokio_tungstenite::client_async_with_config(request, stream, Some(config));
        match tokio::time::timeout(HANDSHAKE_TIMEOUT, Box::pin(opening)).await {
            Ok(Ok((socket, response))) => {
                let id = response.headers().get("acp-connection-id");
                let connection_id = id.and_then(|id| id.to_str().ok());
                tracing::info!(gateway = %self.url, connection_id, "connected");
                Ok(socket)
            }
            Ok(Err(tungstenite::Error::Http(response))) => Err(self.refused(&response)),
            Ok(Err(error)) => Err(away(error.to_string())),
            Err(_) => Err(away(format!("no answer within {} s", HANDSHAKE_TIMEOUT.as_secs()))),
        }
    }

    fn token(&self) -> Option<ApiKey> {
        match &self.token {
            TokenSource::Given(token) => Some(token.clone()),
            TokenSource::Stored(credentials) => credentials.key(),
        }
    }

    /// Why the gateway did not open a WebSocket, for the person at the editor.
    fn refused(&self, response: &Response<Option<Vec<u8>>>) -> OpenError {
        let url = &self.url;
        let status = response.status();
        let code = status.as_u16();
        let reason = response.body().as_deref().and_then(reason);
        let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => OpenError::Refused(Error::new(
                Code::AuthRequired,
                format!(
                    "{url} answered {code}{reason}: run `threadway acp --gateway {url} \
                         --login` in a terminal, or set THREADWAY_GATEWAY_TOKEN to a token that it \
                         accepts"
                ),
            )),
            StatusCode::TOO_MANY_REQUESTS => OpenError::Away {
                reason: format!("it answered {code}{reason}"),
                retry_after: retry_after(response.headers()),
            },
            _ if status.is_server_error() => OpenError::Away {
                reason: format!("it answered {code}{reason}"),
                retry_after: retry_after(response.headers()),
            },
            _ if status.is_redirection() => OpenError::Refused(Error::internal(format!(
                "{url} redirects to another place, which does not get the token: correct \
                 --gateway (THREADWAY_GATEWAY) to the URL of the gateway itself"
            ))),
            // A proxy in front of the gateway answers like this while the gateway restarts.
            _ => OpenError::Away {
                reason: format!("{url}/{ROUTE} answered {code}{reason}, and opened no WebSocket"),
                retry_after: retry_after(response.headers()),
            },
        }
    }
}

// === impl OpenError ===

impl OpenError {
    /// The error for the requests of an editor.
    pub fn explain(&self, url: &GatewayUrl) -> Error {
        match self {
            Self::Refused(error) => error.clone(),
            Self::Away { reason, .. } => Error::internal(format!(
                "there is no connection to {url} ({reason}): start the gateway there, or correct --gateway \
                 (THREADWAY_GATEWAY); threadway keeps trying"
            )),
        }
    }
}

/// The reason in the body of a refusal, which a gateway writes as JSON.
fn reason(body: &[u8]) -> Option<String> {
    let body: &RawValue = serde_json::from_slice(body).ok()?;
    let reason = json::members(body)?.string("message")?.into_owned();
    Some(reason.chars().filter(|c| !c.is_control()).take(MAX_REASON_CHARS).collect())
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    upstream::retry_after(headers).map(|wait| wait.min(MAX_RETRY_AFTER))
}

#[cfg(test)]
mod tests {
    use http::header::RETRY_AFTER;

    use super::*;

    #[test]
    fn a_url_may_be_that_of_the_route_and_of_the_socket() {
        for (text, base) in [
            ("https://gw.example", "https://gw.example"),
            ("wss://gw.example/", "https://gw.example"),
            ("WS://127.0.0.1:8484/acp", "http://127.0.0.1:8484"),
            ("http://h/prefix/acp/", "http://h/prefix"),
        ] {
            let url: GatewayUrl = text.parse().unwrap();
            assert_eq!(url.to_string(), base);
            assert_eq!(url.route().as_str(), format!("{base}/acp"));
        }
        for text in ["", "gw.example", "ftp://h", "https://u:p@h", "https://h?x=1", "https://"] {
            assert!(text.parse::<GatewayUrl>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_token_is_sent_in_the_clear_on_this_machine_only() {
        let is_clear = |text: &str| text.parse::<GatewayUrl>().unwrap().is_clear();
        for text in ["https://h", "http://127.0.0.1:1", "http://[::1]", "http://localhost"] {
            assert!(!is_clear(text), "{text}");
        }
        for text in ["http://h", "ws://10.0.0.1", "http://localhost.example"] {
            assert!(is_clear(text), "{text}");
        }
    }

    #[test]
    fn a_retry_after_is_limited() {
        let after = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, HeaderValue::from_static(text));
            retry_after(&headers)
        };
        assert_eq!(after("7"), Some(Duration::from_secs(7)));
        assert_eq!(after("99999999999"), Some(MAX_RETRY_AFTER));
        assert_eq!(after("-1"), None);
        assert_eq!(after("Fri, 31 Dec 1999 23:59:59 GMT"), None);
    }
}
