//! A WebSocket client that shares no code with the gateway.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};

use super::clock::HeldClock;
use super::upstream::Exchange;

/// The client's end of a WebSocket.
pub(crate) struct Socket {
    pub(crate) stream: WebSocketStream<TcpStream>,
    /// The subprotocol that the gateway has chosen.
    pub(crate) protocol: Option<String>,
    /// The id of an ACP connection.
    pub(crate) connection: Option<String>,
}

/// The code and the reason with which the gateway closes a socket.
pub(crate) type Closed = (u16, String);

/// The event of a frame, and its id if it has one.
pub(crate) fn event(text: &str) -> (Option<String>, Value) {
    let mut value: Value = serde_json::from_str(text).unwrap();
    match value.get("id").and_then(Value::as_str).map(str::to_owned) {
        Some(id) if value.get("chunk").is_some() => (Some(id), value["chunk"].take()),
        _ => (None, value),
    }
}

// === impl Socket ===

impl Socket {
    /// Opens a socket on the run route of an agent.
    pub(crate) async fn open(address: SocketAddr) -> Self {
        Self::with(address, "/agui/agent/agent/run", &[]).await.unwrap()
    }

    /// Opens a socket with further headers. The error is the status and the body of the refusal.
    pub(crate) async fn with(
        address: SocketAddr,
        path: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<Self, (u16, Value)> {
        Self::on(TcpStream::connect(address).await.unwrap(), path, headers).await
    }

    /// Opens a socket whose kernel buffers few unread bytes.
    pub(crate) async fn narrow(address: SocketAddr, path: &str) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(16 * 1024).unwrap();
        let socket = socket.connect(address).await.unwrap();
        Self::on(socket, path, &[]).await.unwrap()
    }

    async fn on(
        socket: TcpStream,
        path: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<Self, (u16, Value)> {
        let url = format!("ws://{}{path}", socket.peer_addr().unwrap());
        let mut request = url.into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().append(*name, value.parse().unwrap());
        }
        match tokio_tungstenite::client_async(request, socket).await {
            Ok((stream, response)) => {
                let header = |name| {
                    let value = response.headers().get(name);
                    value.map(|value| value.to_str().unwrap().to_owned())
                };
                let (protocol, connection) =
                    (header("sec-websocket-protocol"), header("acp-connection-id"));
                Ok(Self { stream, protocol, connection })
            }
            Err(Error::Http(response)) => {
                let body = response.body().clone().unwrap_or_default();
                let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
                Err((response.status().as_u16(), body))
            }
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) async fn send(&mut self, frame: &Value) {
        self.say(&frame.to_string()).await;
    }

    pub(crate) async fn say(&mut self, text: &str) {
        self.stream.send(Message::text(text)).await.unwrap();
    }

    /// The next text frame, or how the socket was closed.
    pub(crate) async fn next(&mut self) -> Result<String, Closed> {
        loop {
            match self.stream.next().await {
                Some(Ok(Message::Text(text))) => return Ok(text.as_str().to_owned()),
                Some(Ok(Message::Close(frame))) => {
                    let frame = frame.expect("a close has a code");
                    // The next read sends the closing answer.
                    while self.stream.next().await.is_some() {}
                    return Err((frame.code.into(), frame.reason.as_str().to_owned()));
                }
                Some(Ok(_)) => {}
                other => panic!("the socket broke: {other:?}"),
            }
        }
    }

    /// Reads the next frame; returns whether the socket is still open.
    pub(crate) async fn next_raw(&mut self) -> bool {
        matches!(self.stream.next().await, Some(Ok(_)))
    }

    /// The next event and its id.
    pub(crate) async fn event(&mut self) -> (Option<String>, Value) {
        event(&self.next().await.expect("the socket was closed"))
    }

    /// The next `count` events.
    pub(crate) async fn events(&mut self, count: usize) -> Vec<(Option<String>, Value)> {
        let mut events = Vec::new();
        while events.len() < count {
            events.push(self.event().await);
        }
        events
    }

    /// The events up to the end of a turn.
    pub(crate) async fn turn(&mut self) -> Vec<(Option<String>, Value)> {
        let mut events = Vec::new();
        loop {
            events.push(self.event().await);
            let kind = events.last().unwrap().1["type"].as_str().unwrap();
            if matches!(kind, "RUN_FINISHED" | "RUN_ERROR") {
                return events;
            }
        }
    }

    /// Waits for the close, which must come before any other frame.
    pub(crate) async fn closed(mut self) -> Closed {
        self.next().await.expect_err("a frame came before the close")
    }

    /// Advances the clock until a ping comes, while the upstream sends heartbeats; returns how much
    /// time passed.
    pub(crate) async fn pinged(&mut self, clock: &HeldClock, run: &mut Exchange) -> Duration {
        const STEP: Duration = Duration::from_millis(500);
        let mut passed = Duration::ZERO;
        loop {
            run.send(": heartbeat\r\n\r\n").await;
            tokio::select! {
                biased;
                frame = self.stream.next() => match frame {
                    Some(Ok(Message::Ping(_))) => return passed,
                    other => panic!("no ping came: {other:?}"),
                },
                () = clock.advance(STEP) => passed += STEP,
            }
        }
    }
}

/// A client's frame of at most 125 bytes, masked with zeros.
pub(crate) fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    [&[0x80 | opcode, 0x80 | length, 0, 0, 0, 0], payload].concat()
}

/// The beginning of a client's text frame of `length` bytes.
pub(crate) fn large_frame(length: u64) -> Vec<u8> {
    [&[0x81, 0xff][..], &length.to_be_bytes(), &[0; 4]].concat()
}

/// Sends `bytes` again and again, and reads nothing. Returns after how many bytes the gateway takes
/// no more, or `most`.
pub(crate) async fn flooded(
    address: SocketAddr,
    socket: &mut TcpStream,
    bytes: &[u8],
    most: usize,
) -> usize {
    let (mut sent, mut stuck) = (0, 0);
    while sent < most && stuck < 20 {
        if let Ok(written) = socket.try_write(bytes.get(sent % bytes.len()..).unwrap()) {
            (sent, stuck) = (sent + written, 0);
            continue;
        }
        stuck += 1;
        // An answer on another connection: meanwhile the gateway has run.
        let mut other = TcpStream::connect(address).await.unwrap();
        let request = b"GET /healthz HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n";
        other.write_all(request).await.unwrap();
        other.read_to_end(&mut Vec::new()).await.unwrap();
    }
    sent
}
