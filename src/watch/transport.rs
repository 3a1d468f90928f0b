//! How the event stream's client reaches the gateway: over the HTTP client that is there already.
//!
//! The transport that its makers offer would bring HTTP/2, another TLS and proxies. This one has
//! TLS too, and two limits that the event stream's client lacks: silence, and the size of an event.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use http::HeaderMap;
use http_body_util::BodyExt;
use launchdarkly_sdk_transport::{ByteStream, HttpTransport, ResponseFuture, TransportError};

use threadway_translate::sse::MAX_EVENT_BYTES;

/// How long the gateway may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the gateway may be silent: three of its signs of life, one every 15 s.
pub const SILENCE_TIMEOUT: Duration = Duration::from_secs(45);

/// Requests over reqwest.
#[derive(Clone, Debug)]
pub(super) struct Transport(reqwest::Client);

/// How much of an event has come.
#[derive(Debug, Default)]
struct Open {
    bytes: usize,
    last: u8,
    is_line_empty: bool,
}

/// An event does not end within the limit.
#[derive(Debug, thiserror::Error)]
#[error("an event is longer than {MAX_EVENT_BYTES} bytes")]
struct TooLarge;

// === impl Transport ===

impl Transport {
    /// Sends these headers with each request.
    pub(super) fn new(headers: HeaderMap) -> Result<Self, reqwest::Error> {
        reqwest::Client::builder()
            .default_headers(headers)
            // The event stream's client follows them.
            .redirect(reqwest::redirect::Policy::none())
            // As towards the upstream: no proxy that nobody has asked for.
            .no_proxy()
            .http1_only()
            // A stream takes its connection along; one that was kept could be closed just then.
            .pool_max_idle_per_host(0)
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(SILENCE_TIMEOUT)
            .tcp_nodelay(true)
            .build()
            .map(Self)
    }

    pub(super) fn get(&self, url: &str) -> reqwest::RequestBuilder {
        self.0.get(url)
    }
}

impl HttpTransport for Transport {
    fn request(&self, request: http::Request<Option<Bytes>>) -> ResponseFuture {
        let http = self.0.clone();
        Box::pin(async move {
            let request = request.map(Option::unwrap_or_default);
            let request = reqwest::Request::try_from(request).map_err(TransportError::new)?;
            let response = http.execute(request).await.map_err(TransportError::new)?;
            let (parts, body) = http::Response::<reqwest::Body>::from(response).into_parts();
            let mut open = Open::default();
            let body: ByteStream = Box::pin(body.into_data_stream().map(move |chunk| {
                let chunk = chunk.map_err(TransportError::new)?;
                open.push(&chunk).map_err(TransportError::new)?;
                Ok(chunk)
            }));
            Ok(http::Response::from_parts(parts, body))
        })
    }
}

/// The last cause tells most, and names no URL.
pub(super) fn last_cause(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

// === impl Open ===

impl Open {
    /// Counts what came since the last blank line, which ends an event.
    fn push(&mut self, chunk: &[u8]) -> Result<(), TooLarge> {
        for byte in chunk {
            match byte {
                // The second half of a line end.
                b'\n' if self.last == b'\r' => {}
                b'\n' | b'\r' if self.is_line_empty => self.bytes = 0,
                b'\n' | b'\r' => self.is_line_empty = true,
                _ => self.is_line_empty = false,
            }
            self.bytes += 1;
            self.last = *byte;
        }
        if self.bytes > MAX_EVENT_BYTES { Err(TooLarge) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_blank_line_ends_an_event() {
        for (line_end, counted) in [("\n", 1), ("\r", 1), ("\r\n", 2)] {
            let mut open = Open::default();
            let lines = format!("data: a{line_end}data: b{line_end}");
            open.push(lines.as_bytes()).unwrap();
            assert_eq!(open.bytes, lines.len(), "{line_end:?}");
            // Chunks may end anywhere, also inside of a line end.
            for byte in line_end.bytes() {
                open.push(&[byte]).unwrap();
            }
            assert_eq!(open.bytes, counted, "{line_end:?}");
        }
    }

    #[test]
    fn an_event_that_does_not_end_is_given_up() {
        let mut open = Open::default();
        let chunk = vec![b'x'; MAX_EVENT_BYTES / 4];
        for _ in 0..4 {
            open.push(&chunk).unwrap();
        }
        open.push(b"x").unwrap_err();
    }
}
