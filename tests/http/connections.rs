//! Connections to an upstream: which are reused, which requests are repeated, and when connections
//! close.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use threadway::metrics::Metrics;
use threadway::upstream::{Body, Client, Error, IDLE_TIMEOUT, SILENCE_TIMEOUT};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

use crate::support::clock::HeldClock;
use crate::support::gateway::counted;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n{\"ok\":true}";
const STREAM: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// A server whose connections the test answers itself.
struct Upstream {
    client: Client,
    connections: mpsc::UnboundedReceiver<Connection>,
    made: Arc<AtomicUsize>,
}

struct Connection(TcpStream);

impl Upstream {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let client = Client::new(url.parse().unwrap(), None).unwrap();
        let (sender, connections) = mpsc::unbounded_channel();
        let made = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&made);
        spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                if sender.send(Connection(socket)).is_err() {
                    return;
                }
            }
        });
        Self { client, connections, made }
    }

    async fn connection(&mut self) -> Connection {
        self.connections.recv().await.unwrap()
    }

    /// Joins a run and begins its stream. Returns the connection, its request, and the stream.
    async fn joined(&mut self) -> (Connection, String, Body) {
        let client = self.client.clone();
        let joining = spawn(async move { client.join_run("t", "r", "-1").await.unwrap() });
        let mut connection = self.connection().await;
        let request = connection.request().await.unwrap();
        connection.sends(STREAM).await;
        (connection, request, joining.await.unwrap().body)
    }

    fn made(&self) -> usize {
        self.made.load(Ordering::Relaxed)
    }
}

impl Connection {
    /// The next request with its body; `None` if the client has closed the connection.
    async fn request(&mut self) -> Option<String> {
        let mut request = Vec::new();
        loop {
            let text = String::from_utf8_lossy(&request).into_owned();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                    return Some(text);
                }
            }
            if self.0.read_buf(&mut request).await.unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    async fn sends(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.unwrap();
    }

    /// Sends a chunk of a body.
    async fn chunk(&mut self, text: &str) {
        self.sends(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes()).await;
    }

    /// Answers the next request.
    async fn answers(&mut self) -> String {
        let request = self.request().await.unwrap();
        self.sends(OK).await;
        request
    }

    async fn is_closed(&mut self) -> bool {
        self.0.read(&mut [0]).await.unwrap_or(0) == 0
    }
}

/// Spawns a task that waits for what the test sends.
fn spawn<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    TaskTracker::new().spawn(task)
}

async fn cancel(client: &Client) -> Result<bool, Error> {
    client.cancel_run("t", "r").await
}

#[tokio::test]
async fn requests_one_after_the_other_share_a_connection() {
    let mut upstream = Upstream::start().await;
    let client = upstream.client.clone();
    let asking = spawn(async move {
        for _ in 0..3 {
            client.probe().await.unwrap();
            cancel(&client).await.unwrap();
        }
        client
    });
    let mut connection = upstream.connection().await;
    for _ in 0..3 {
        let get = connection.answers().await;
        assert!(get.starts_with("GET /ok HTTP/1.1\r\n"), "{get}");
        assert!(
            get.contains("\r\nhost: 127.0.0.1:") && get.contains("\r\naccept: */*\r\n"),
            "{get}"
        );
        let post = connection.answers().await;
        assert!(post.starts_with("POST /threads/t/runs/r/cancel HTTP/1.1\r\n"), "{post}");
    }
    asking.await.unwrap();
    assert_eq!(upstream.made(), 1);
}

#[tokio::test]
async fn request_is_open_until_it_is_answered() {
    let metrics = Metrics::default();
    let mut upstream = Upstream::start().await;
    let client = upstream.client.clone().with_metrics(&metrics);
    let open = || counted(&metrics, "upstream_requests_open");
    assert!(open().abs() < 0.5);
    let asking = spawn(async move { client.probe().await });
    let mut connection = upstream.connection().await;
    connection.request().await.unwrap();
    assert!((open() - 1.0).abs() < 0.5);
    connection.sends(OK).await;
    asking.await.unwrap().unwrap();
    assert!(open().abs() < 0.5);
}

#[tokio::test]
async fn requests_at_the_same_time_have_connections_of_their_own() {
    let mut upstream = Upstream::start().await;
    let client = upstream.client.clone();
    let asking = spawn(async move {
        let (one, other) = tokio::join!(client.probe(), cancel(&client));
        one.unwrap();
        other.unwrap();
    });
    let (mut one, mut other) = (upstream.connection().await, upstream.connection().await);
    let (first, second) = (one.request().await.unwrap(), other.request().await.unwrap());
    assert_ne!(first.starts_with("GET"), second.starts_with("GET"));
    other.sends(OK).await;
    one.sends(OK).await;
    asking.await.unwrap();
}

#[tokio::test]
async fn connection_that_the_server_has_closed_takes_no_request() {
    let mut upstream = Upstream::start().await;
    let client = upstream.client.clone();
    let asking = spawn(async move { client.probe().await });
    let mut connection = upstream.connection().await;
    connection.answers().await;
    asking.await.unwrap().unwrap();
    // The next request must succeed whether or not the client's system has noticed the close.
    drop(connection);
    let client = upstream.client.clone();
    let asking = spawn(async move { client.probe().await });
    upstream.connection().await.answers().await;
    asking.await.unwrap().unwrap();
}

#[tokio::test]
async fn get_that_is_not_answered_on_a_kept_connection_is_sent_once_more_and_a_post_is_not() {
    let mut upstream = Upstream::start().await;
    let client = upstream.client.clone();
    let asking = spawn(async move {
        let first = client.probe().await;
        let again = client.probe().await;
        let post = cancel(&client).await;
        (first, again, post)
    });
    let mut connection = upstream.connection().await;
    connection.answers().await;
    connection.request().await.unwrap();
    drop(connection);
    let mut connection = upstream.connection().await;
    assert!(connection.answers().await.starts_with("GET"));
    assert!(connection.request().await.unwrap().starts_with("POST"));
    drop(connection);
    let (first, again, post) = asking.await.unwrap();
    assert_eq!((first, again), (Ok(()), Ok(())));
    assert!(matches!(post, Err(Error::Interrupted { .. })), "{post:?}");
    assert_eq!(upstream.made(), 2);
}

#[tokio::test]
async fn get_that_is_not_answered_on_a_new_connection_is_not_repeated() {
    let mut upstream = Upstream::start().await;
    let client = upstream.client.clone();
    let asking = spawn(async move { client.probe().await });
    let mut connection = upstream.connection().await;
    connection.request().await.unwrap();
    drop(connection);
    assert!(matches!(asking.await.unwrap(), Err(Error::Interrupted { .. })));
    assert_eq!(upstream.made(), 1);
}

#[tokio::test]
async fn idle_connection_is_closed_after_three_seconds() {
    let clock = HeldClock::pause();
    let mut upstream = Upstream::start().await;
    let client = upstream.client.clone();
    let asking = spawn(async move {
        client.probe().await.unwrap();
        client
    });
    let mut connection = upstream.connection().await;
    connection.answers().await;
    let client = asking.await.unwrap();
    clock.advance(IDLE_TIMEOUT).await;
    assert!(connection.is_closed().await);
    drop(client);
}

#[tokio::test]
async fn stream_that_is_silent_for_ten_minutes_is_given_up() {
    let clock = HeldClock::pause();
    let mut upstream = Upstream::start().await;
    let (mut connection, _, mut body) = upstream.joined().await;
    let mut taken = Vec::new();
    // Each byte restarts the timeout.
    clock.advance(SILENCE_TIMEOUT / 2).await;
    connection.chunk("a").await;
    assert_eq!(body.read(&mut taken).await, Ok(true));
    let mut waiting = spawn(async move { body.read(&mut Vec::new()).await });
    clock.advance(SILENCE_TIMEOUT * 3 / 4).await;
    let early = tokio::select! { biased; ended = &mut waiting => Some(ended), () = std::future::ready(()) => None };
    assert!(early.is_none(), "{early:?}");
    clock.advance(SILENCE_TIMEOUT / 4).await;
    assert_eq!(waiting.await.unwrap(), Err(Error::Timeout { waited: SILENCE_TIMEOUT }));
}

#[tokio::test]
async fn chunks_that_have_come_are_taken_at_once() {
    let mut upstream = Upstream::start().await;
    let (mut connection, request, mut body) = upstream.joined().await;
    assert!(request.contains("\r\nlast-event-id: -1\r\n"), "{request}");
    // One write, so that one read returns them all.
    connection.sends(b"2\r\na\n\r\n2\r\nb\n\r\n2\r\nc\n\r\n").await;
    let mut taken = Vec::new();
    assert_eq!(body.read(&mut taken).await, Ok(true));
    assert_eq!(taken, b"a\nb\nc\n");
    taken.clear();
    connection.chunk("d").await;
    connection.sends(b"0\r\n\r\n").await;
    while body.read(&mut taken).await.unwrap() {}
    assert_eq!(taken, b"d");
    drop(body);
    // The stream has ended in order, so its connection is reused.
    let client = upstream.client.clone();
    let asking = spawn(async move { client.probe().await });
    assert!(connection.answers().await.starts_with("GET /ok"));
    asking.await.unwrap().unwrap();
    assert_eq!(upstream.made(), 1);
}

#[tokio::test]
async fn stream_that_is_dropped_before_its_end_closes_its_connection() {
    let mut upstream = Upstream::start().await;
    let (mut connection, _, body) = upstream.joined().await;
    connection.chunk("a").await;
    drop(body);
    assert!(connection.is_closed().await);
}

#[tokio::test]
async fn chunks_before_a_break_are_taken_first() {
    let mut upstream = Upstream::start().await;
    let (mut connection, _, mut body) = upstream.joined().await;
    connection.sends(b"2\r\na\n\r\n5\r\nb").await;
    drop(connection);
    let mut taken = Vec::new();
    let broken = loop {
        match body.read(&mut taken).await {
            Ok(true) => {}
            ended => break ended,
        }
    };
    assert!(matches!(broken, Err(Error::Interrupted { .. })), "{broken:?}");
    assert_eq!(taken, b"a\nb");
    assert_eq!(body.read(&mut taken).await, Ok(false), "the body ends after that");
}
