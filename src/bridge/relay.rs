//! The IO of the bridge: lines of the editor, frames of the gateway, and time.

use std::io;
use std::pin::{Pin, pin};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, SplitSink};
use futures_util::{FutureExt, Sink, SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{self, Bytes, Message};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::gateway::{OpenError, RemoteGateway};
use super::machine::{Machine, MachineAction};
use crate::sessions::Outbox;
use crate::stdio::{self, Line, Lines, MAX_LINE_BYTES};
use crate::upstream::{Backoff, Seed};
use threadway_translate::acp::destination::Destination;

/// How long a gateway may be away before requests are refused. Editors wait some 20 s for the answer
/// to `initialize`.
pub const PATIENCE: Duration = Duration::from_secs(15);

/// The pause before the first attempt to connect again. It doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// A pause that a gateway asks for becomes longer by up to one part in this many.
const LEAST_JITTER: u32 = 4;

/// The longest pause between two attempts, if the gateway does not ask for a longer one.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How long a connection lasts that counts as a good one. After a shorter one the pauses grow on.
const STABLE: Duration = Duration::from_secs(10);

/// How often a connection is pinged that has nothing to send.
const PING: Duration = Duration::from_secs(20);

/// How long a gateway may be silent before the connection counts as lost. It answers pings.
const SILENCE: Duration = Duration::from_mins(1);

/// How long a gateway may take to open the sessions again.
const RECOVERY_TIMEOUT: Duration = Duration::from_mins(2);

/// How long closing the connection may take at the end.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);

/// The connection to the gateway.
enum GatewayLink<'a> {
    Pause(Pin<Box<tokio::time::Sleep>>),
    Connecting(BoxFuture<'a, Result<Up, OpenError>>),
    Up(Box<Up>),
}

/// An open connection.
struct Up {
    frames: BoxStream<'static, Result<Message, tungstenite::Error>>,
    /// Sends the lines of `outbox`, until it fails or `close` is cancelled.
    sending: BoxFuture<'static, Result<(), tungstenite::Error>>,
    outbox: Outbox,
    close: CancellationToken,
    since: Instant,
    heard_at: Instant,
}

/// What happens on the connection.
enum LinkEvent {
    Retry,
    Opened(Result<Up, OpenError>),
    Said(Message),
    Lost(String),
}

/// The bridge at work.
struct Relay<'a> {
    gateway: &'a RemoteGateway,
    machine: Machine,
    link: GatewayLink<'a>,
    editor: Outbox,
    /// The pauses between attempts to connect.
    pauses: Backoff,
    /// Why the last attempt failed.
    failure: OpenError,
    /// When the gateway has been away for too long.
    give_up_at: Option<Instant>,
    /// When the gateway must have opened the sessions.
    recovered_by: Option<Instant>,
}

/// Bridges one editor to a gateway, until the editor closes stdin or stdout, or `shutdown` is
/// cancelled.
pub async fn relay(
    gateway: &RemoteGateway,
    reader: impl AsyncRead + Unpin,
    writer: impl AsyncWrite + Unpin,
    shutdown: &CancellationToken,
) -> io::Result<()> {
    let editor = Outbox::new();
    let mut writing = pin!(stdio::write(&editor, writer));
    let mut relay = Relay::new(gateway, editor.clone());
    relay.on(LinkEvent::Retry);
    let mut lines = Lines::new(reader);
    let mut ends_at = None;
    let ended = loop {
        let outbox = relay.link.outbox();
        tokio::select! {
            biased;
            // An editor that closed its end of stdout is gone.
            ended = &mut writing => return ended,
            () = shutdown.cancelled() => break Ok(()),
            () = until(ends_at) => break Ok(()),
            () = until(relay.give_up_at) => relay.give_up(),
            () = until(relay.recovered_by) => relay.lost("the sessions were not opened in time"),
            event = relay.link.next(&editor) => relay.on(event),
            line = next_line(&editor, outbox, &mut lines), if ends_at.is_none() => {
                match line {
                    Ok(Some(Line::Whole(at))) => {
                        let line = lines.get(at);
                        // A blank line is ignored without an error.
                        if !line.trim_ascii().is_empty() {
                            relay.machine.editor_said(line);
                        }
                    }
                    Ok(Some(Line::TooLong)) => relay.machine.refuse_line(MAX_LINE_BYTES),
                    Ok(None) => ends_at = Some(Instant::now() + stdio::END_GRACE),
                    Err(error) => break Err(error),
                }
            }
        }
        relay.act();
        if ends_at.is_some() && !relay.machine.has_requests() {
            break Ok(());
        }
    };
    relay.link.close().await;
    let rest = async {
        tokio::select! {
            () = editor.wait_until_written() => {}
            _ = &mut writing => {}
        }
    };
    // The editor may have stopped reading.
    let _ = tokio::time::timeout(stdio::END_GRACE, rest).await;
    ended
}

/// The next line. Waits first until both sides have taken enough of what waits for them.
async fn next_line<R: AsyncRead + Unpin>(
    editor: &Outbox,
    gateway: Option<Outbox>,
    lines: &mut Lines<R>,
) -> io::Result<Option<Line>> {
    editor.wait_until_read().await;
    if let Some(gateway) = gateway {
        gateway.wait_until_read().await;
    }
    lines.next().await
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

// === impl Relay ===

impl<'a> Relay<'a> {
    fn new(gateway: &'a RemoteGateway, editor: Outbox) -> Self {
        let now = Instant::now();
        Self {
            gateway,
            machine: Machine::new(gateway.url().to_string(), Uuid::new_v4()),
            link: GatewayLink::Pause(Box::pin(sleep_until(now))),
            editor,
            pauses: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE, Seed::random()),
            failure: OpenError::Away {
                reason: format!("no connection within {} s", PATIENCE.as_secs()),
                retry_after: None,
            },
            give_up_at: Some(now + PATIENCE),
            recovered_by: None,
        }
    }

    fn on(&mut self, event: LinkEvent) {
        match event {
            LinkEvent::Retry => {
                let gateway = self.gateway;
                let opening = async move { gateway.open().await.map(Up::new) };
                self.link = GatewayLink::Connecting(opening.boxed());
            }
            LinkEvent::Opened(Ok(up)) => {
                self.link = GatewayLink::Up(Box::new(up));
                self.give_up_at = None;
                self.machine.connected();
            }
            LinkEvent::Opened(Err(error)) => {
                tracing::warn!(gateway = %self.gateway.url(), error = %error.explain(self.gateway.url()), "not connected");
                let (refused, retry_after) = match &error {
                    OpenError::Refused(error) => (Some(error.clone()), None),
                    OpenError::Away { retry_after, .. } => (None, *retry_after),
                };
                self.failure = error;
                if let Some(refused) = refused {
                    self.give_up_at = None;
                    self.machine.give_up(refused);
                } else if self.give_up_at.is_none() {
                    // Requests are refused already, now for another reason.
                    self.give_up();
                }
                self.pause(retry_after.unwrap_or_default());
            }
            LinkEvent::Said(Message::Text(text)) => self.machine.gateway_said(&text),
            LinkEvent::Said(Message::Binary(_)) => {
                tracing::warn!("a binary frame of the gateway was ignored; ACP has text frames");
            }
            LinkEvent::Said(Message::Close(frame)) => {
                let why = frame.map_or_else(String::new, |frame| {
                    format!(": {} {}", u16::from(frame.code), frame.reason)
                });
                self.lost(&format!("the gateway has closed it{why}"));
            }
            LinkEvent::Said(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => {}
            LinkEvent::Lost(why) => self.lost(&why),
        }
    }

    /// The connection is lost, or of no use.
    fn lost(&mut self, why: &str) {
        let GatewayLink::Up(up) = &self.link else { return };
        tracing::warn!(gateway = %self.gateway.url(), why, "the connection is lost");
        if up.since.elapsed() >= STABLE {
            self.pauses.reset();
        }
        self.failure = OpenError::Away { reason: why.to_owned(), retry_after: None };
        self.give_up_at = Some(Instant::now() + PATIENCE);
        self.machine.lost();
        self.pause(Duration::ZERO);
    }

    /// Waits before the next attempt, at least for `least`.
    fn pause(&mut self, least: Duration) {
        let pause = self.pauses.next_pause();
        // All editors of a gateway are asked to wait for the same time.
        let jitter = self.pauses.jitter(least / LEAST_JITTER);
        let pause = if least > pause { least + jitter } else { pause };
        self.link = GatewayLink::Pause(Box::pin(tokio::time::sleep(pause)));
    }

    fn give_up(&mut self) {
        self.give_up_at = None;
        self.machine.give_up(self.failure.explain(self.gateway.url()));
    }

    /// Does what the machine wants done.
    fn act(&mut self) {
        // An action may cause others: a closed connection ends requests.
        loop {
            let actions = self.machine.actions();
            if actions.is_empty() {
                break;
            }
            for action in actions {
                match action {
                    MachineAction::ToEditor(line) => {
                        self.editor.put(Destination::Connection, |out| {
                            out.extend_from_slice(line.as_bytes());
                        });
                    }
                    MachineAction::ToGateway(line) => {
                        if let Some(outbox) = self.link.outbox() {
                            outbox.put(Destination::Connection, |out| {
                                out.extend_from_slice(line.as_bytes());
                            });
                        }
                    }
                    MachineAction::Warn(text) => tracing::warn!("{text}"),
                    MachineAction::Disconnect(why) => self.lost(&why),
                }
            }
        }
        let is_recovering = self.machine.is_recovering();
        let limit = || Instant::now() + RECOVERY_TIMEOUT;
        self.recovered_by = is_recovering.then(|| self.recovered_by.unwrap_or_else(limit));
    }
}

// === impl GatewayLink ===

impl GatewayLink<'_> {
    /// The next thing that happens. Cancel safe. Frames are read while the editor has room for them.
    async fn next(&mut self, editor: &Outbox) -> LinkEvent {
        match self {
            Self::Pause(pause) => {
                pause.await;
                LinkEvent::Retry
            }
            Self::Connecting(opening) => LinkEvent::Opened(opening.await),
            Self::Up(up) => up.next(editor).await,
        }
    }

    fn outbox(&self) -> Option<Outbox> {
        match self {
            Self::Up(up) => Some(up.outbox.clone()),
            Self::Pause(_) | Self::Connecting(_) => None,
        }
    }

    /// Sends what waits, and closes the connection.
    async fn close(self) {
        if let Self::Up(mut up) = self {
            up.close.cancel();
            // The gateway notices the end of the connection in any case.
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, &mut up.sending).await;
        }
    }
}

// === impl LinkEvent ===

impl LinkEvent {
    fn sending_ended(sent: Result<(), tungstenite::Error>) -> Self {
        Self::Lost(match sent {
            Ok(()) => "it was closed".to_owned(),
            Err(error) => error.to_string(),
        })
    }
}

// === impl Up ===

impl Up {
    fn new<S>(socket: WebSocketStream<S>) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sink, frames) = socket.split();
        let (outbox, close) = (Outbox::new(), CancellationToken::new());
        let now = Instant::now();
        Self {
            frames: frames.boxed(),
            sending: send(sink, outbox.clone(), close.clone()).boxed(),
            outbox,
            close,
            since: now,
            heard_at: now,
        }
    }

    async fn next(&mut self, editor: &Outbox) -> LinkEvent {
        let Self { frames, sending, heard_at, .. } = self;
        let room = editor.wait_for_room(Destination::Connection);
        if room.now_or_never().is_none() {
            // While the editor takes nothing, no frame is read, and the gateway is not silent.
            tokio::select! {
                biased;
                () = editor.wait_for_room(Destination::Connection) => *heard_at = Instant::now(),
                sent = &mut *sending => return LinkEvent::sending_ended(sent),
            }
        }
        let silent_at = *heard_at + SILENCE;
        tokio::select! {
            biased;
            frame = frames.next() => match frame {
                Some(Ok(message)) => {
                    *heard_at = Instant::now();
                    LinkEvent::Said(message)
                }
                Some(Err(error)) => LinkEvent::Lost(error.to_string()),
                None => LinkEvent::Lost("the gateway has closed it".to_owned()),
            },
            sent = sending => LinkEvent::sending_ended(sent),
            () = sleep_until(silent_at) => {
                LinkEvent::Lost(format!("nothing came for {} s", SILENCE.as_secs()))
            }
        }
    }
}

/// Sends the lines of an outbox as frames, and pings when there are none.
async fn send<S>(
    mut sink: SplitSink<WebSocketStream<S>, Message>,
    outbox: Outbox,
    close: CancellationToken,
) -> Result<(), tungstenite::Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut bytes = Vec::new();
    loop {
        let is_closing = tokio::select! {
            biased;
            () = outbox.take(&mut bytes) => false,
            () = close.cancelled() => true,
            () = tokio::time::sleep(PING) => {
                sink.send(Message::Ping(Bytes::new())).await?;
                continue;
            }
        };
        if is_closing {
            return sink.close().await;
        }
        feed(&mut sink, &bytes).await?;
        outbox.written();
    }
}

async fn feed(
    sink: &mut (impl Sink<Message, Error = tungstenite::Error> + Unpin),
    bytes: &[u8],
) -> Result<(), tungstenite::Error> {
    for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        // Every line is made of strings.
        let line = String::from_utf8_lossy(line).into_owned();
        sink.feed(Message::text(line)).await?;
    }
    sink.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::TokenSource;

    fn paused(relay: &Relay<'_>) -> Duration {
        match &relay.link {
            GatewayLink::Pause(pause) => pause.deadline() - Instant::now(),
            GatewayLink::Connecting(_) | GatewayLink::Up(_) => panic!("it does not wait"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_attempt_waits_longer_and_for_as_long_as_the_gateway_asks() {
        let url = "http://127.0.0.1:1".parse().unwrap();
        let gateway = RemoteGateway::new(url, TokenSource::Given("t".parse().unwrap())).unwrap();
        let mut relay = Relay::new(&gateway, Outbox::new());
        let away = |retry_after| OpenError::Away { reason: "no".to_owned(), retry_after };
        for whole in [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000] {
            relay.on(LinkEvent::Opened(Err(away(None))));
            let (pause, whole) = (paused(&relay), Duration::from_millis(whole));
            assert!((whole / 2..=whole).contains(&pause), "{pause:?} of {whole:?}");
        }
        let long = Duration::from_secs(100);
        relay.on(LinkEvent::Opened(Err(away(Some(long)))));
        let pause = paused(&relay);
        assert!((long..=long + long / LEAST_JITTER).contains(&pause), "{pause:?}");
        // Requests that waited are refused once, and the next ones at once.
        let initialize = br#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#;
        relay.machine.editor_said(initialize);
        assert!(relay.machine.has_requests());
        relay.give_up();
        assert!(!relay.machine.has_requests());
        relay.machine.editor_said(initialize);
        assert!(!relay.machine.has_requests());
    }
}
