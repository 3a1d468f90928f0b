//! One socket, from its opening to its end.
//!
//! One task serves a socket. It reads a turn's events when the client has taken the earlier ones.
//! So a slow client holds no more than its position in the run's log.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep_until};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};
use tokio_util::sync::CancellationToken;

use super::frame::{self, ClientFrame};
use super::message::PendingAnswer;
use super::socket::{End, MAX_REFUSED_FRAMES, Socket};
use super::turn::{self, ActiveTurn, TurnRequest, TurnStep, next_answer, next_step};
use super::{OpenedWebSocket, Replay};
use crate::metrics::Charge;
use crate::offload::offload;
use crate::server::service::run::RunIntent;
use crate::server::streams::last_event::LastEvent;
use crate::server::streams::unread::TRACKED_FROM;
use crate::server::upgrade::Upgraded;
use threadway_translate::json::ObjectWriter;

/// How long a socket may be idle, without a turn. `TanStack` AI's own server has the same limit.
pub const IDLE: Duration = Duration::from_mins(5);

/// How many turns may wait for the end of the present one. A person may send the next message while
/// the last turn is ending.
const MAX_WAITING: usize = 1;

/// A socket that is open.
struct SocketSession {
    socket: Socket,
    opened: OpenedWebSocket,
    shutdown: CancellationToken,
    turn: Option<ActiveTurn>,
    /// The turns that wait, each with the charge of its message.
    waiting: VecDeque<(Utf8Bytes, ClientFrame, Charge)>,
    stopping: Option<PendingAnswer<()>>,
    /// The thread of the last turn.
    thread_id: Option<String>,
    /// The code and message of an error that is sent after the turn's first event.
    pending_error: Option<(String, String)>,
    /// How many frames in a row were refused.
    refused: u32,
    idle_at: Instant,
}

/// How much of a frame of this length is charged.
fn large(length: usize) -> usize {
    if length < TRACKED_FROM { 0 } else { length }
}

/// Serves a socket until its end.
pub(super) async fn serve(opened: OpenedWebSocket, upgraded: Upgraded) {
    let Upgraded { io, read, shutdown } = upgraded;
    let charge = opened.charge.another();
    let socket = Socket::new(io, read, opened.limit, charge).await;
    let session = SocketSession {
        socket,
        opened,
        shutdown,
        turn: None,
        waiting: VecDeque::new(),
        stopping: None,
        thread_id: None,
        pending_error: None,
        refused: 0,
        idle_at: Instant::now() + IDLE,
    };
    Box::pin(session.run()).await;
}

// === impl SocketSession ===

impl SocketSession {
    async fn run(mut self) {
        if let Some(replay) = self.opened.replay.take() {
            self.replay(replay);
        }
        let end = loop {
            match self.step().await {
                Ok(None) => {}
                Ok(Some(end)) => break end,
                Err(error) => break End::of(&error),
            }
        };
        // The turn's run goes on: disconnecting is not stopping.
        self.turn = None;
        self.socket.close(end, &self.shutdown).await;
    }

    /// Waits for the next thing that happens, and handles it. Returns how the socket ends, if it
    /// does.
    async fn step(&mut self) -> Result<Option<End>, Error> {
        if self.turn.is_none() {
            if self.shutdown.is_cancelled() {
                return Ok(Some(End::closed(CloseCode::Away, "the gateway is shutting down")));
            }
            if let Some((text, frame, charge)) = self.waiting.pop_front() {
                self.begin(text, frame, charge);
            }
        }
        let (is_idle, ping_at) = (self.turn.is_none(), self.socket.ping_at());
        tokio::select! {
            step = next_step(&mut self.turn) => self.on_step(step).await,
            stopped = next_answer(&mut self.stopping) => {
                self.stopping = None;
                match stopped {
                    // The end of the run's stream reports the stop.
                    Ok(()) => Ok(None),
                    Err(reject) => self.refuse_frame(reject.code(), reject.message()).await,
                }
            }
            received = self.socket.next() => match received {
                Some(message) => self.receive(message?).await,
                None => Ok(Some(End::Left)),
            },
            () = sleep_until(ping_at) => self.socket.ping().await,
            () = sleep_until(self.idle_at), if is_idle => {
                Ok(Some(End::closed(CloseCode::Normal, "no turn for five minutes")))
            }
            // A turn's stream reports the shutdown itself.
            () = self.shutdown.cancelled(), if is_idle => Ok(None),
        }
    }

    /// Handles a step of the turn.
    async fn on_step(&mut self, step: TurnStep) -> Result<Option<End>, Error> {
        let Some(turn) = &mut self.turn else { return Ok(None) };
        match step {
            TurnStep::Events(events) => {
                // The library copies a frame before it writes it.
                let mut written = self.opened.answers.charge();
                for event in events {
                    turn.has_sent = true;
                    let frame = event.into_bytes();
                    let held = written.set(large(frame.len()));
                    let Ok(frame) = held.and_then(|()| self.opened.answers.hold(frame)) else {
                        let reason = "the gateway has no room for what this socket does not read";
                        return Ok(Some(End::closed(CloseCode::Again, reason)));
                    };
                    if let Ok(text) = Utf8Bytes::try_from(frame) {
                        self.socket.feed(Message::Text(text)).await?;
                    }
                }
                if turn.has_sent
                    && let Some((code, message)) = self.pending_error.take()
                {
                    self.socket.feed(Message::text(frame::error(&code, &message, true))).await?;
                }
                self.socket.flush().await?;
            }
            TurnStep::Refused(reject) => {
                let is_replay = turn.wanted == RunIntent::Replay;
                self.end_turn();
                self.send_error(reject.code(), reject.message(), false).await?;
                if is_replay {
                    return Ok(Some(End::closed(CloseCode::Policy, "there is nothing to resume")));
                }
                if let Some((code, message)) = self.pending_error.take() {
                    self.send_error(&code, &message, false).await?;
                }
            }
            TurnStep::Over => {
                let is_replay = turn.wanted == RunIntent::Replay;
                self.end_turn();
                if is_replay && !self.shutdown.is_cancelled() {
                    return Ok(Some(End::closed(CloseCode::Normal, "the run is over")));
                }
            }
        }
        Ok(None)
    }

    fn end_turn(&mut self) {
        self.turn = None;
        self.idle_at = Instant::now() + IDLE;
    }

    async fn receive(&mut self, message: Message) -> Result<Option<End>, Error> {
        match message {
            Message::Text(text) => match offload(text.len(), || ClientFrame::parse(&text)) {
                Ok(frame) => {
                    let charge = self.socket.take_charge();
                    self.on_frame(text, frame, charge).await
                }
                Err(wrong) => {
                    drop(self.socket.take_charge());
                    self.refuse_frame("invalid_request", &wrong).await
                }
            },
            Message::Binary(_) => {
                drop(self.socket.take_charge());
                let message = "the frame is binary; send JSON as text";
                self.refuse_frame("invalid_request", message).await
            }
            // The library answers a ping with the next write or read.
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => Ok(None),
            Message::Close(_) => Ok(Some(End::Left)),
        }
    }

    async fn on_frame(
        &mut self,
        text: Utf8Bytes,
        frame: ClientFrame,
        charge: Charge,
    ) -> Result<Option<End>, Error> {
        match &frame {
            ClientFrame::KeepAlive => Ok(None),
            ClientFrame::Abort { thread_id, run_id } => {
                self.abort(thread_id.clone(), run_id.as_deref()).await
            }
            ClientFrame::Turn { .. } if self.waiting.len() >= MAX_WAITING => {
                let message = "a turn is under way, and another one waits for its end; send this \
                               one again when a run has ended";
                self.refuse_frame("thread_busy", message).await
            }
            ClientFrame::Turn { .. } => {
                self.refused = 0;
                self.waiting.push_back((text, frame, charge));
                Ok(None)
            }
        }
    }

    /// Starts the turn of a frame.
    fn begin(&mut self, text: Utf8Bytes, frame: ClientFrame, charge: Charge) {
        let ClientFrame::Turn { thread_id, run_id: _, last_event_id } = frame else { return };
        self.thread_id = Some(thread_id);
        let (input, last) = (Bytes::from(text), LastEvent::parse(last_event_id.as_deref()));
        let ask = TurnRequest { input, charge, last, wanted: RunIntent::Run };
        self.turn = Some(ActiveTurn::begin(&self.opened, ask));
    }

    /// Starts a turn that reads the rest of a run.
    fn replay(&mut self, replay: Replay) {
        let Replay { thread_id, run_id, offset } = replay;
        let input = ObjectWriter::new()
            .string("threadId", &thread_id)
            .string("runId", &run_id)
            .raw("messages", "[]")
            .finish();
        self.thread_id = Some(thread_id);
        let (input, charge) = (input.get().to_owned().into(), self.opened.charge.another());
        let last = LastEvent::parse(Some(&offset));
        let ask = TurnRequest { input, charge, last, wanted: RunIntent::Replay };
        self.turn = Some(ActiveTurn::begin(&self.opened, ask));
    }

    /// Stops a run, as the stop route does.
    async fn abort(
        &mut self,
        thread_id: Option<String>,
        run_id: Option<&str>,
    ) -> Result<Option<End>, Error> {
        let is_meant = |frame: &ClientFrame| matches!(frame, ClientFrame::Turn { run_id: waiting, .. } if Some(&**waiting) == run_id);
        if self.waiting.iter().any(|(_, frame, _)| is_meant(frame)) {
            self.waiting.retain(|(_, frame, _)| !is_meant(frame));
            let message = "the turn was aborted before it began";
            return self.refuse_frame("aborted", message).await;
        }
        let Some(thread_id) = thread_id.or_else(|| self.thread_id.clone()) else {
            let message = "no run was started on this socket; name the run's `threadId` too";
            return self.refuse_frame("invalid_request", message).await;
        };
        if self.stopping.is_some() {
            let message = "an abort is under way; wait for the end of its run";
            return self.refuse_frame("thread_busy", message).await;
        }
        self.refused = 0;
        let body = match run_id {
            Some(run_id) => ObjectWriter::new().string("runId", run_id).finish().get().to_owned(),
            None => "{}".to_owned(),
        };
        self.stopping = Some(turn::stop(&self.opened, thread_id, body));
        Ok(None)
    }

    /// Reports a refused frame. Too many of them in a row close the socket.
    async fn refuse_frame(&mut self, code: &str, message: &str) -> Result<Option<End>, Error> {
        self.refused += 1;
        if self.refused > MAX_REFUSED_FRAMES {
            return Ok(Some(End::closed(CloseCode::Policy, "too many frames were refused")));
        }
        match &self.turn {
            // Before the turn's first event, the client would take it for the turn's end.
            Some(turn) if !turn.has_sent => {
                self.pending_error = Some((code.to_owned(), message.to_owned()));
            }
            turn => {
                let is_within_run = turn.is_some();
                self.send_error(code, message, is_within_run).await?;
            }
        }
        Ok(None)
    }

    async fn send_error(
        &mut self,
        code: &str,
        message: &str,
        is_within_run: bool,
    ) -> Result<(), Error> {
        self.socket.feed(Message::text(frame::error(code, message, is_within_run))).await?;
        self.socket.flush().await
    }
}
