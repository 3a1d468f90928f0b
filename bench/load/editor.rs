//! An ACP client at `/acp`, over a WebSocket or over streamable HTTP.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::header::{ACCEPT, CONTENT_TYPE, HOST};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::Response;
use hyper::body::Incoming;
use memchr::memmem;
use serde_json::{Value, json};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use crate::client::Fault;
use crate::listen::connect;

const CONNECTION_ID: &str = "acp-connection-id";
const SESSION_ID: &str = "acp-session-id";

/// How long the client waits for a message.
const PATIENCE: Duration = Duration::from_mins(1);

/// The receive buffer of a client that shall hold little of what it does not read.
const NARROW_BYTES: u32 = 16 * 1024;

/// How a client is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    WebSocket,
    Http,
}

/// A client with one session.
pub(crate) struct Editor {
    line: Line,
    session: String,
    requests: u64,
}

enum Line {
    Socket(Box<WebSocketStream<TcpStream>>),
    Streams(Box<Streams>),
}

/// The streams of a connection over HTTP.
struct Streams {
    address: SocketAddr,
    id: String,
    /// Kept open, although only the response to `session/new` arrives on it.
    connection: Lines,
    session: Option<Lines>,
}

/// The messages of an event stream.
struct Lines {
    response: Response<Incoming>,
    unread: Vec<u8>,
}

// === impl Transport ===

impl std::fmt::Display for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::WebSocket => "WebSocket",
            Self::Http => "streamable HTTP",
        })
    }
}

// === impl Editor ===

impl Editor {
    /// Connects, and opens a session.
    pub(crate) async fn open(transport: Transport, address: SocketAddr) -> Result<Self, Fault> {
        let mut editor = match transport {
            Transport::WebSocket => Self::socket(TcpStream::connect(address).await?).await?,
            Transport::Http => Self::streams(address).await?,
        };
        editor.new_session().await?;
        Ok(editor)
    }

    /// The same, but the kernel buffers little of what the client does not read.
    pub(crate) async fn narrow(address: SocketAddr) -> Result<Self, Fault> {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(NARROW_BYTES)?;
        let mut editor = Self::socket(socket.connect(address).await?).await?;
        editor.new_session().await?;
        Ok(editor)
    }

    /// Connects over a WebSocket, and loads a session. The history is read and dropped.
    pub(crate) async fn again(address: SocketAddr, session: &str) -> Result<Self, Fault> {
        let mut editor = Self::socket(TcpStream::connect(address).await?).await?;
        session.clone_into(&mut editor.session);
        let params = json!({ "sessionId": session, "cwd": "/srv", "mcpServers": [] });
        let id = editor.send("session/load", &params).await?;
        editor.response(id).await?;
        Ok(editor)
    }

    async fn socket(socket: TcpStream) -> Result<Self, Fault> {
        socket.set_nodelay(true)?;
        let url = format!("ws://{}/acp", socket.peer_addr()?);
        let (socket, _) = tokio_tungstenite::client_async(url, socket).await?;
        let line = Line::Socket(Box::new(socket));
        let mut editor = Self { line, session: String::new(), requests: 0 };
        let id = editor.send("initialize", &capabilities()).await?;
        editor.response(id).await?;
        Ok(editor)
    }

    async fn streams(address: SocketAddr) -> Result<Self, Fault> {
        let initialize = request(0, "initialize", &capabilities());
        let response = post(address, &[], &initialize).await?;
        let id = response.headers().get(CONNECTION_ID).ok_or("no id of the connection")?;
        let id = id.to_str()?.to_owned();
        let connection = Lines::open(address, &[(CONNECTION_ID, &id)]).await?;
        let line = Line::Streams(Box::new(Streams { address, id, connection, session: None }));
        Ok(Self { line, session: String::new(), requests: 0 })
    }

    async fn new_session(&mut self) -> Result<(), Fault> {
        let id = self.send("session/new", &json!({ "cwd": "/srv", "mcpServers": [] })).await?;
        let made = self.response(id).await?;
        let session = made.get("sessionId").and_then(Value::as_str).ok_or("no session")?;
        session.clone_into(&mut self.session);
        if let Line::Streams(streams) = &mut self.line {
            let Streams { address, id, session: own, .. } = &mut **streams;
            let headers = [(CONNECTION_ID, &**id), (SESSION_ID, session)];
            *own = Some(Lines::open(*address, &headers).await?);
        }
        Ok(())
    }

    pub(crate) fn session(&self) -> &str {
        &self.session
    }

    /// Sends a prompt; returns the id of the request.
    pub(crate) async fn prompt(&mut self, text: &str) -> Result<u64, Fault> {
        let prompt = json!([{ "type": "text", "text": text }]);
        let params = json!({ "sessionId": self.session, "prompt": prompt });
        self.send("session/prompt", &params).await
    }

    /// Answers a request of the agent.
    pub(crate) async fn answer(&mut self, request: &Value, result: &Value) -> Result<(), Fault> {
        let id = request.get("id").ok_or("a request without an id")?;
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "result": result })).await
    }

    /// The next message of the session.
    pub(crate) async fn next(&mut self) -> Result<Bytes, Fault> {
        match timeout(PATIENCE, self.line.next()).await {
            Ok(message) => message,
            Err(_) => Err(format!("session {}: no message came", self.session).into()),
        }
    }

    async fn send(&mut self, method: &str, params: &Value) -> Result<u64, Fault> {
        self.requests += 1;
        self.say(&request(self.requests, method, params)).await?;
        Ok(self.requests)
    }

    async fn say(&mut self, message: &Value) -> Result<(), Fault> {
        match &mut self.line {
            Line::Socket(socket) => Ok(socket.send(Message::text(message.to_string())).await?),
            Line::Streams(streams) => {
                let Streams { address, id, .. } = &**streams;
                let mut headers = vec![(CONNECTION_ID, &**id)];
                headers.extend((!self.session.is_empty()).then_some((SESSION_ID, &*self.session)));
                post(*address, &headers, message).await.map(drop)
            }
        }
    }

    /// The result of a request. Skips what comes before it.
    async fn response(&mut self, id: u64) -> Result<Value, Fault> {
        loop {
            let mut message: Value = serde_json::from_slice(&self.next().await?)?;
            if message.get("method").is_none() && message.get("id") == Some(&json!(id)) {
                let result = message.get_mut("result").map(Value::take);
                return result.ok_or_else(|| message.to_string().into());
            }
        }
    }
}

fn capabilities() -> Value {
    json!({ "protocolVersion": 1, "clientCapabilities": {} })
}

fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

async fn post(
    address: SocketAddr,
    headers: &[(&str, &str)],
    message: &Value,
) -> Result<Response<Incoming>, Fault> {
    let mut request = Request::post("/acp").header(HOST, address.to_string());
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request
        .header(CONTENT_TYPE, "application/json")
        .body(Full::<Bytes>::from(message.to_string()))?;
    let response = connect(address).await?.send_request(request).await?;
    match response.status() {
        StatusCode::OK | StatusCode::ACCEPTED => Ok(response),
        status => Err(format!("{message}: {status}").into()),
    }
}

// === impl Line ===

impl Line {
    async fn next(&mut self) -> Result<Bytes, Fault> {
        match self {
            Self::Socket(socket) => loop {
                match socket.next().await.ok_or("the socket was closed")?? {
                    Message::Text(text) => return Ok(text.into()),
                    Message::Close(frame) => return Err(format!("closed: {frame:?}").into()),
                    Message::Binary(_)
                    | Message::Ping(_)
                    | Message::Pong(_)
                    | Message::Frame(_) => {}
                }
            },
            Self::Streams(streams) => {
                let Streams { session, connection, .. } = &mut **streams;
                session.as_mut().unwrap_or(connection).next().await
            }
        }
    }
}

// === impl Lines ===

impl Lines {
    async fn open(address: SocketAddr, headers: &[(&str, &str)]) -> Result<Self, Fault> {
        let mut request = Request::get("/acp").header(HOST, address.to_string());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.header(ACCEPT, "text/event-stream").body(Full::<Bytes>::default())?;
        let response = connect(address).await?.send_request(request).await?;
        if response.status() == StatusCode::OK {
            return Ok(Self { response, unread: Vec::new() });
        }
        Err(format!("a stream was refused: {}", response.status()).into())
    }

    async fn next(&mut self) -> Result<Bytes, Fault> {
        loop {
            if let Some(end) = memmem::find(&self.unread, b"\n\n") {
                let frame: Vec<_> = self.unread.drain(..end + 2).collect();
                if let Some(data) = frame.strip_prefix(b"data: ") {
                    return Ok(Bytes::copy_from_slice(data.trim_ascii_end()));
                }
                continue;
            }
            let frame = self.response.body_mut().frame().await.ok_or("the stream has ended")??;
            if let Ok(bytes) = frame.into_data() {
                self.unread.extend_from_slice(&bytes);
            }
        }
    }
}
