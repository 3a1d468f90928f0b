//! A turn on a socket.

use std::fmt::Write as _;
use std::future::pending;

use axum::body::Body;
use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt;

use super::routed::{PendingResponse, RouteError};
use crate::server::streams::frames::Frames;

/// A turn, from its request to the end of its stream.
pub(super) struct ActiveTurn {
    pub(super) progress: Progress,
    pub(super) is_replay: bool,
    /// Whether its client was sent any of its events.
    pub(super) has_sent: bool,
    pub(super) frames: Frames,
}

pub(super) enum Progress {
    Requested(PendingResponse),
    Streaming(Body),
}

/// What a turn does next.
pub(super) enum Step {
    Begun(Body),
    Refused(RouteError),
    Bytes(Bytes),
    Over,
}

// === impl ActiveTurn ===

impl ActiveTurn {
    pub(super) fn new(response: PendingResponse, is_replay: bool) -> Self {
        let (progress, frames) = (Progress::Requested(response), Frames::default());
        Self { progress, is_replay, has_sent: false, frames }
    }
}

/// Waits for the next step of a turn; for ever without a turn. May be dropped while it waits.
pub(super) async fn next_step(turn: &mut Option<ActiveTurn>) -> Step {
    match turn.as_mut().map(|turn| &mut turn.progress) {
        None => pending().await,
        Some(Progress::Requested(response)) => match response.await {
            Ok(body) => Step::Begun(body),
            Err(error) => Step::Refused(error),
        },
        Some(Progress::Streaming(body)) => match body.frame().await {
            Some(Ok(frame)) => Step::Bytes(frame.into_data().unwrap_or_default()),
            Some(Err(_)) => Step::Refused(RouteError {
                status: StatusCode::SERVICE_UNAVAILABLE,
                error: "memory_full".to_owned(),
                message: "the gateway has no room for the rest of the stream; read it again later"
                    .to_owned(),
            }),
            None => Step::Over,
        },
    }
}

/// Percent-escapes a text as one segment of a path.
pub(super) fn escaped(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if is_plain(byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}
