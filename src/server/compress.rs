//! Compression of streams, by `Accept-Encoding` and where the operator wants it.
//!
//! What a stream has ready is compressed and flushed at once: no event waits for the next one. Each
//! stream has an encoder of its own, since what it has sent is the dictionary of what follows.
//! An encoder holds some 350 kB, whichever it is: the settings below were chosen for that.

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

use super::observe::About;
use super::websocket::Turn;
use super::weighed::weighed;

/// How much of a stream is compressed at a time: the rest waits uncompressed, and shared with
/// other streams.
const AT_ONCE: usize = 64 * 1024;

/// 32 KiB: how far back a repetition is seen, in bits. gzip has no larger one.
const WINDOW_BITS: u8 = 15;

/// With the small window, 310 kB; from level 3 on it would be 1 MB.
const ZSTD_LEVEL: i32 = 1;

/// From 4 on brotli holds 730 kB, and from 5 on 34 MB.
const BROTLI_QUALITY: u32 = 3;

/// What brotli writes at a time.
const BROTLI_BUFFER: usize = 4 * 1024;

/// Its best ratio costs no more time than the least on streams of tokens.
const GZIP_LEVEL: u32 = 6;

/// Whether streams are compressed for clients that ask for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// None is.
    #[default]
    Off,
    /// Each is, by that of zstd, gzip and brotli that the client likes best.
    On,
}

/// A way to compress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// RFC 8878.
    Zstd,
    /// RFC 7932.
    Brotli,
    /// RFC 1952.
    Gzip,
}

/// Compresses one stream.
pub struct Compressor(Encoder);

enum Encoder {
    Zstd(Box<zstd::stream::write::Encoder<'static, Vec<u8>>>),
    Brotli(Box<brotli::CompressorWriter<Vec<u8>>>),
    Gzip(Box<GzEncoder<Vec<u8>>>),
}

/// The body of a stream, compressed.
struct Compressed {
    body: Body,
    /// What of it is not compressed yet.
    rest: Bytes,
    /// `None` once its end was written.
    compressor: Option<Compressor>,
}

/// Compresses the response to a request, if it is a stream.
pub(super) async fn compress(
    State(compression): State<Compression>,
    request: Request,
    next: Next,
) -> Response {
    // A turn's stream is read by its WebSocket, within the gateway.
    if compression == Compression::Off || request.extensions().get::<Turn>().is_some() {
        return next.run(request).await;
    }
    let coding = Coding::accepted(request.headers());
    let mut response = next.run(request).await;
    let is_stream = response.extensions().get::<About>().is_some()
        && response.status() != StatusCode::SWITCHING_PROTOCOLS;
    if !is_stream || response.headers().contains_key(CONTENT_ENCODING) {
        return response;
    }
    // Also without a coding: the next client may ask for one.
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
            tracing::error!(%error, coding = coding.name(), "a stream goes out uncompressed");
            response
        }
    }
}

// === impl Coding ===

impl Coding {
    /// In the order of what an event costs: brotli takes four times as long as gzip, and saves an
    /// eighth of what is left.
    pub const ALL: [Self; 3] = [Self::Zstd, Self::Gzip, Self::Brotli];

    /// The name in headers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Brotli => "br",
            Self::Gzip => "gzip",
        }
    }

    /// Whether a client takes it: `*` names all.
    pub(super) fn is_accepted(self, headers: &HeaderMap) -> bool {
        let lists = headers.get_all(ACCEPT_ENCODING).iter();
        let names: Vec<_> =
            lists.flat_map(|list| weighed(list.to_str().unwrap_or_default())).collect();
        let weight = |name: &str| names.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        let found = weight(self.name()).or_else(|| weight("*"));
        found.is_some_and(|(_, weight)| *weight > 0)
    }

    /// The one that a client likes best, of those that it names: `*` is no name.
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
    /// For one stream.
    ///
    /// # Errors
    /// zstd's, which has no memory left or does not take its settings.
    pub fn new(coding: Coding) -> io::Result<Self> {
        let out = Vec::new();
        Ok(Self(match coding {
            Coding::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(out, ZSTD_LEVEL)?;
                encoder.set_parameter(CParameter::WindowLog(WINDOW_BITS.into()))?;
                Encoder::Zstd(Box::new(encoder))
            }
            Coding::Brotli => Encoder::Brotli(Box::new(brotli::CompressorWriter::new(
                out,
                BROTLI_BUFFER,
                BROTLI_QUALITY,
                WINDOW_BITS.into(),
            ))),
            Coding::Gzip => {
                let level = flate2::Compression::new(GZIP_LEVEL);
                Encoder::Gzip(Box::new(GzEncoder::new(out, level)))
            }
        }))
    }

    /// Takes bytes in. What it makes of them may wait until it is flushed.
    ///
    /// # Errors
    /// The encoder's own: the stream cannot go on.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.0 {
            Encoder::Zstd(encoder) => encoder.write_all(bytes),
            Encoder::Brotli(encoder) => encoder.write_all(bytes),
            Encoder::Gzip(encoder) => encoder.write_all(bytes),
        }
    }

    /// All that it has made so far: what a decoder needs to give every byte that was taken in.
    ///
    /// # Errors
    /// The encoder's own: the stream cannot go on.
    pub fn flush(&mut self) -> io::Result<Vec<u8>> {
        Ok(std::mem::take(match &mut self.0 {
            Encoder::Zstd(encoder) => {
                encoder.flush()?;
                encoder.get_mut()
            }
            Encoder::Brotli(encoder) => {
                encoder.flush()?;
                encoder.get_mut()
            }
            Encoder::Gzip(encoder) => {
                encoder.flush()?;
                encoder.get_mut()
            }
        }))
    }

    /// The end of the stream.
    ///
    /// # Errors
    /// The encoder's own: the stream has no end.
    pub fn finish(self) -> io::Result<Vec<u8>> {
        match self.0 {
            Encoder::Zstd(encoder) => encoder.finish(),
            Encoder::Brotli(encoder) => Ok(encoder.into_inner()),
            Encoder::Gzip(encoder) => encoder.finish(),
        }
    }
}

impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let coding = match self.0 {
            Encoder::Zstd(_) => Coding::Zstd,
            Encoder::Brotli(_) => Coding::Brotli,
            Encoder::Gzip(_) => Coding::Gzip,
        };
        f.debug_tuple("Compressor").field(&coding).finish()
    }
}

// === impl Compressed ===

impl Compressed {
    /// Takes in what the stream has ready, up to some. Returns what it makes, or `None` at the end.
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
    fn the_coding_is_one_that_the_client_names_and_likes() {
        for (accepted, expected) in [
            ("", None),
            ("identity", None),
            ("*", None),
            ("deflate", None),
            ("gzip", Some(Coding::Gzip)),
            ("gzip, deflate, br, zstd", Some(Coding::Zstd)),
            ("gzip, deflate, br", Some(Coding::Gzip)),
            ("br", Some(Coding::Brotli)),
            ("gzip;q=0.9, br", Some(Coding::Brotli)),
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
