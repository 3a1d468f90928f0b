//! New connections: TCP, and TLS if the URL asks for it.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use http::Uri;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tower_service::Service;
use url::{Position, Url};

use super::transport_error::SendError;
use super::{CONNECT_TIMEOUT, Error, SetupError, Tls};

/// How long a connection carries nothing before the system probes it, and the pause between probes.
const TCP_KEEPALIVE: Duration = Duration::from_secs(15);

/// How many probes without an answer close a connection.
const TCP_KEEPALIVE_RETRIES: u32 = 3;

/// How long sent data may stay unacknowledged.
#[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection, encrypted or not.
#[cfg(not(test))]
pub(super) type HttpSocket = MaybeHttpsStream<TokioIo<TcpStream>>;

/// The same, or one of a simulated network.
#[cfg(test)]
pub(super) type HttpSocket = crate::sync::simulated::Socket<MaybeHttpsStream<TokioIo<TcpStream>>>;

/// Makes connections to servers. They share one TLS configuration.
#[derive(Clone)]
pub(crate) struct Dialer(HttpsConnector<HttpConnector>);

// === impl Dialer ===

impl Dialer {
    /// Does not connect yet.
    pub(crate) fn new(tls: &Tls) -> Result<Self, SetupError> {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_keepalive(Some(TCP_KEEPALIVE));
        http.set_keepalive_interval(Some(TCP_KEEPALIVE));
        http.set_keepalive_retries(Some(TCP_KEEPALIVE_RETRIES));
        #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
        http.set_tcp_user_timeout(Some(TCP_USER_TIMEOUT));
        Ok(Self(HttpsConnector::from((http, tls.config().map_err(SetupError)?))))
    }

    /// A connection for a protocol other than HTTP, within [`CONNECT_TIMEOUT`]. The URL is http or
    /// https; its path does not matter.
    pub(crate) async fn dial(
        &self,
        url: &Url,
    ) -> Result<impl AsyncRead + AsyncWrite + Unpin + Send + use<>, Error> {
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, self.connect(url)).await;
        match connected {
            Ok(Ok(socket)) => Ok(TokioIo::new(socket)),
            Ok(Err(error)) => Err(SendError::Connect(error).into()),
            Err(_) => Err(SendError::ConnectTimeout { waited: CONNECT_TIMEOUT }.into()),
        }
    }

    pub(super) async fn connect(
        &self,
        url: &Url,
    ) -> Result<HttpSocket, Box<dyn StdError + Send + Sync>> {
        #[cfg(test)]
        if let Some(dialled) = crate::sync::simulated::dial(url.authority()) {
            return Ok(HttpSocket::Simulated(dialled?));
        }
        let mut connector = self.0.clone();
        let uri: Uri = url[..Position::BeforePath].parse()?;
        std::future::poll_fn(|cx| connector.poll_ready(cx)).await?;
        let socket = connector.call(uri).await?;
        #[cfg(test)]
        let socket = socket.into();
        Ok(socket)
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer").finish_non_exhaustive()
    }
}
