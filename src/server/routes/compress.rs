//! Compression of streams by `Accept-Encoding`, where the operator has turned it on.
//!
//! Bytes that are ready are compressed and flushed at once, so that no event waits for the next
//! one. Each stream has an encoder of its own, since earlier bytes are the dictionary of later
//! ones. An encoder takes about 350 kB with any coding: the settings below were chosen for that.

use std::fmt;
use std::io::{self, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use flate2::write::GzEncoder;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, VARY};
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body::Frame;
use zstd::stream::raw::CParameter;

use crate::server::observe::RunIds;
use crate::server::request::weights::weighed;

/// How much of a stream is compressed at a time, in bytes. The rest waits uncompressed, shared with
/// other streams.
const AT_ONCE: usize = 64 * 1024;

/// The window in which repetitions are found, in bits: 32 KiB, the largest of gzip.
const WINDOW_BITS: u8 = 15;

/// Takes 310 kB with this window. Levels from 3 would take 1 MB.
const ZSTD_LEVEL: i32 = 1;

/// On streams of tokens, this level takes no more time than the lowest.
const GZIP_LEVEL: u32 = 6;

/// Whether streams are compressed for clients that ask for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// No.
    #[default]
    Off,
    /// Yes, with the one of zstd and gzip that the client prefers.
    On,
}

/// A content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// RFC 8878.
    Zstd,
    /// RFC 1952.
    Gzip,
}

/// Compresses one stream.
pub struct Compressor(Codec);

enum Codec {
    Zstd(Box<zstd::stream::write::Encoder<'static, Vec<u8>>>),
    Gzip(Box<GzEncoder<Vec<u8>>>),
}

/// The body of a stream, compressed.
struct Compressed {
    body: Body,
    /// Bytes of `body` that are not compressed yet.
    rest: Bytes,
    /// `None` once the end was written.
    compressor: Option<Compressor>,
}

/// Compresses the response to a request, if it is a stream.
pub(in crate::server) async fn compress(
    State(compression): State<Compression>,
    request: Request,
    next: Next,
) -> Response {
    if compression == Compression::Off {
        return next.run(request).await;
    }
    let coding = Coding::accepted(request.headers());
    let mut response = next.run(request).await;
    let is_stream = response.extensions().get::<RunIds>().is_some()
        && response.status() != StatusCode::SWITCHING_PROTOCOLS;
    if !is_stream || response.headers().contains_key(CONTENT_ENCODING) {
        return response;
    }
    // Set without a coding too: a cache may serve the next client, which asks for one.
    response.headers_mut().append(VARY, HeaderValue::from_static("accept-encoding"));
    let Some(coding) = coding else { return response };
    match Compressor::new(coding) {
        Ok(compressor) => {
            let headers = response.headers_mut();
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
            headers.remove(CONTENT_LENGTH);
            response.map(|body| {
                let rest = Bytes::new();
                Body::new(Compressed { body, rest, compressor: Some(compressor) })
            })
        }
        Err(error) => {
            tracing::error!(
                %error,
                coding = coding.name(),
                "a stream is sent uncompressed: its encoder could not be made"
            );
            response
        }
    }
}

// === impl Coding ===

impl Coding {
    /// All codings, by the time that an event takes.
    pub const ALL: [Self; 2] = [Self::Zstd, Self::Gzip];

    /// The name in HTTP headers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
        }
    }

    /// Whether a client accepts this coding. `*` accepts all.
    pub(in crate::server) fn is_accepted(self, headers: &HeaderMap) -> bool {
        let lists = headers.get_all(ACCEPT_ENCODING).iter();
        let names: Vec<_> =
            lists.flat_map(|list| weighed(list.to_str().unwrap_or_default())).collect();
        let weight = |name: &str| names.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        let found = weight(self.name()).or_else(|| weight("*"));
        found.is_some_and(|(_, weight)| *weight > 0)
    }

    /// The coding that a client prefers, of those that it names. `*` names none.
    fn accepted(headers: &HeaderMap) -> Option<Self> {
        let mut best = None;
        for header in headers.get_all(ACCEPT_ENCODING) {
            for (name, weight) in weighed(header.to_str().unwrap_or_default()) {
                let place =
                    Self::ALL.iter().position(|coding| coding.name().eq_ignore_ascii_case(name));
                let Some(place) = place.filter(|_| weight > 0) else { continue };
                let is_better = |(best_weight, best_place): (u16, usize)| {
                    weight > best_weight || (weight == best_weight && place < best_place)
                };
                if best.is_none_or(is_better) {
                    best = Some((weight, place));
                }
            }
        }
        best.and_then(|(_, place)| Self::ALL.get(place).copied())
    }
}

// === impl Compressor ===

impl Compressor {
    /// Begins one stream.
    ///
    /// # Errors
    /// zstd fails if there is no memory left, or if it refuses its settings.
    pub fn new(coding: Coding) -> io::Result<Self> {
        let out = Vec::new();
        Ok(Self(match coding {
            Coding::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(out, ZSTD_LEVEL)?;
                encoder.set_parameter(CParameter::WindowLog(WINDOW_BITS.into()))?;
                Codec::Zstd(Box::new(encoder))
            }
            Coding::Gzip => {
                let level = flate2::Compression::new(GZIP_LEVEL);
                Codec::Gzip(Box::new(GzEncoder::new(out, level)))
            }
        }))
    }

    /// Adds bytes. Their compressed form may be held back until [`flush`](Self::flush).
    ///
    /// # Errors
    /// The encoder's own. The stream cannot go on.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.0 {
            Codec::Zstd(encoder) => encoder.write_all(bytes),
            Codec::Gzip(encoder) => encoder.write_all(bytes),
        }
    }

    /// Returns the compressed bytes that were not returned before. A decoder can now decode all
    /// that was written.
    ///
    /// # Errors
    /// The encoder's own. The stream cannot go on.
    pub fn flush(&mut self) -> io::Result<Vec<u8>> {
        Ok(std::mem::take(match &mut self.0 {
            Codec::Zstd(encoder) => {
                encoder.flush()?;
                encoder.get_mut()
            }
            Codec::Gzip(encoder) => {
                encoder.flush()?;
                encoder.get_mut()
            }
        }))
    }

    /// Returns the last bytes of the stream.
    ///
    /// # Errors
    /// The encoder's own. The stream stays without an end.
    pub fn finish(self) -> io::Result<Vec<u8>> {
        match self.0 {
            Codec::Zstd(encoder) => encoder.finish(),
            Codec::Gzip(encoder) => encoder.finish(),
        }
    }
}

impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let coding = match self.0 {
            Codec::Zstd(_) => Coding::Zstd,
            Codec::Gzip(_) => Coding::Gzip,
        };
        f.debug_tuple("Compressor").field(&coding).finish()
    }
}

// === impl Compressed ===

impl Compressed {
    /// Compresses what the stream has ready, up to [`AT_ONCE`]. Returns `None` at the end.
    fn poll_compressed(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Vec<u8>, axum::Error>>> {
        let Some(compressor) = &mut self.compressor else { return Poll::Ready(None) };
        let mut taken = 0;
        while taken < AT_ONCE {
            if self.rest.is_empty() {
                match Pin::new(&mut self.body).poll_frame(cx) {
                    Poll::Ready(Some(Ok(frame))) => {
                        self.rest = frame.into_data().unwrap_or_default();
                        continue;
                    }
                    Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                    Poll::Ready(None) => {
                        let end = self.compressor.take().map(Compressor::finish);
                        return Poll::Ready(end.map(|end| end.map_err(axum::Error::new)));
                    }
                    Poll::Pending if taken == 0 => return Poll::Pending,
                    Poll::Pending => break,
                }
            }
            let part = self.rest.split_to(self.rest.len().min(AT_ONCE - taken));
            compressor.write(&part).map_err(axum::Error::new)?;
            taken += part.len();
        }
        Poll::Ready(Some(compressor.flush().map_err(axum::Error::new)))
    }
}

impl HttpBody for Compressed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let compressed = ready!(self.poll_compressed(cx));
        Poll::Ready(compressed.map(|bytes| bytes.map(|bytes| Frame::data(bytes.into()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_coding_is_the_one_that_the_client_prefers() {
        for (accepted, expected) in [
            ("", None),
            ("identity", None),
            ("*", None),
            ("deflate", None),
            ("gzip", Some(Coding::Gzip)),
            ("gzip, deflate, br, zstd", Some(Coding::Zstd)),
            ("gzip, deflate, br", Some(Coding::Gzip)),
            ("br", None),
            ("gzip;q=0.5, zstd;q=0.9", Some(Coding::Zstd)),
            ("gzip;q=0.1, br", Some(Coding::Gzip)),
            ("GZIP;q=1.0, br;q=0.9, zstd;q=0.2", Some(Coding::Gzip)),
            ("zstd;q=0, br;q=0.000, gzip;q=0.1", Some(Coding::Gzip)),
            ("gzip;q=0", None),
            ("*;q=0.5, gzip;q=0", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(accepted));
            assert_eq!(Coding::accepted(&headers), expected, "{accepted}");
        }
        let mut headers = HeaderMap::new();
        assert_eq!(Coding::accepted(&headers), None);
        for name in ["br;q=0.5", "gzip"] {
            headers.append(ACCEPT_ENCODING, HeaderValue::from_static(name));
        }
        assert_eq!(Coding::accepted(&headers), Some(Coding::Gzip));
    }
}
