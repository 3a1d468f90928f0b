//! An ACP client on a WebSocket. Checks every frame of both directions against the schema.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::editor::{CWD, Frames, Told};
use super::langgraph::soon;
use super::socket::{Closed, Socket};

/// The path that ACP is served at.
pub(crate) const ACP: &str = "/acp";

/// A client that is connected to a gateway.
pub(crate) struct RemoteEditor {
    pub(crate) socket: Socket,
    frames: Frames,
    /// The id of the last request.
    last: u64,
}

// === impl RemoteEditor ===

impl RemoteEditor {
    /// Opens a socket with these headers. The error is the status and the body of the refusal.
    pub(crate) async fn open(
        address: SocketAddr,
        headers: &[(&'static str, &str)],
    ) -> Result<Self, (u16, Value)> {
        Ok(Self::on(Socket::with(address, ACP, headers).await?))
    }

    pub(crate) fn on(socket: Socket) -> Self {
        Self { socket, frames: Frames::default(), last: 0 }
    }

    /// A client that is initialised.
    pub(crate) async fn initialized(address: SocketAddr, headers: &[(&'static str, &str)]) -> Self {
        let mut editor = Self::open(address, headers).await.unwrap();
        editor.initialize().await;
        editor
    }

    pub(crate) async fn initialize(&mut self) -> Value {
        self.call("initialize", json!({"protocolVersion": 1, "clientCapabilities": {}})).await
    }

    /// Sends a message after checking it.
    pub(crate) async fn send(&mut self, message: &Value) {
        self.frames.sends(message);
        self.socket.send(message).await;
    }

    /// Sends a request and returns its id.
    pub(crate) async fn request(&mut self, method: &str, params: Value) -> u64 {
        self.last += 1;
        let id = self.last;
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.send(&message).await;
        id
    }

    pub(crate) async fn notify(&mut self, method: &str, params: Value) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params})).await;
    }

    /// Answers a request from the agent.
    pub(crate) async fn reply(&mut self, request: &Value, result: Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": request["id"], "result": result})).await;
    }

    /// The next frame, checked, or how the socket was closed.
    pub(crate) async fn next(&mut self) -> Result<Value, Closed> {
        let text = soon("a frame", self.socket.next()).await?;
        Ok(self.frames.comes(&format!("{text}\n")))
    }

    /// The frames up to the response to this request.
    pub(crate) async fn until(&mut self, id: u64) -> Told {
        let (mut updates, mut requests) = (Vec::new(), Vec::new());
        loop {
            let frame = self.next().await.expect("the socket was closed");
            if frame["method"] == "session/update" {
                updates.push(frame["params"].clone());
            } else if frame.get("method").is_some() {
                requests.push(frame);
            } else {
                assert_eq!(frame["id"], id, "another response came first: {frame}");
                return Told { updates, requests, response: frame };
            }
        }
    }

    /// The agent's next request.
    pub(crate) async fn until_asked(&mut self) -> Value {
        loop {
            let frame = self.next().await.expect("the socket was closed");
            match frame["method"].as_str() {
                Some("session/update") => {}
                Some(_) => return frame,
                None => panic!("a response came first: {frame}"),
            }
        }
    }

    /// Reads up to the chunk in which the agent has sent this text.
    pub(crate) async fn until_said(&mut self, text: &str) {
        loop {
            let frame = self.next().await.expect("the socket was closed");
            assert_eq!(frame["method"], "session/update", "{frame}");
            if frame["params"]["update"]["content"]["text"] == text {
                return;
            }
        }
    }

    /// Sends a request and returns its result.
    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params).await;
        self.until(id).await.result()
    }

    /// Sends a request that must be refused; returns the error's code and message.
    pub(crate) async fn refused(&mut self, method: &str, params: Value) -> (i64, String) {
        let id = self.request(method, params).await;
        self.until(id).await.error()
    }

    /// Sends text that must be refused; returns the code of the error, which names no request.
    pub(crate) async fn refused_text(&mut self, text: &str) -> i64 {
        self.socket.say(text).await;
        self.refusal().await
    }

    /// The code of the next frame, which is an error and names no request.
    pub(crate) async fn refusal(&mut self) -> i64 {
        let frame = self.next().await.expect("the socket was closed");
        assert_eq!(frame["id"], Value::Null, "{frame}");
        frame["error"]["code"].as_i64().unwrap()
    }

    /// Opens a session and returns its id.
    pub(crate) async fn session(&mut self) -> String {
        let made = self.call("session/new", json!({"cwd": CWD, "mcpServers": []})).await;
        made["sessionId"].as_str().unwrap().to_owned()
    }

    /// Sends a prompt and returns the id of the request.
    pub(crate) async fn prompt(&mut self, session: &str, text: &str) -> u64 {
        let prompt = json!([{"type": "text", "text": text}]);
        self.request("session/prompt", json!({"sessionId": session, "prompt": prompt})).await
    }

    /// Loads a session. Returns all that came with it.
    pub(crate) async fn load(&mut self, session: &str) -> Told {
        let params = json!({"sessionId": session, "cwd": CWD, "mcpServers": []});
        let id = self.request("session/load", params).await;
        self.until(id).await
    }

    /// Waits for the close. Other frames may come before it.
    pub(crate) async fn closed(&mut self) -> Closed {
        loop {
            if let Err(closed) = self.next().await {
                return closed;
            }
        }
    }
}
