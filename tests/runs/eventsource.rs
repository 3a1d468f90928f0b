//! A standard client of event streams over connections that break: `eventsource-client`, connected
//! by a proxy that cuts it and sends it to another replica each time.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::gateway::{self, Response, THREAD, agents, events_request, serve};
use crate::support::http::client;
use bytes::Bytes;
use eventsource_client::{Client, ClientBuilder, ReconnectOptions, SSE};
use futures_util::StreamExt;
use http_body_util::BodyExt;
use launchdarkly_sdk_transport::{ByteStream, HttpTransport, ResponseFuture, TransportError};
use threadway::server::{self, Limits};
use threadway_demo::{Demo, Pace};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The pause before each token: some tokens are sent while the client waits to reconnect.
const BEAT: Duration = Duration::from_millis(400);

/// After how many bytes of a response, head included, each connection is cut: in the head, in the
/// first events, inside an event, and after the run's end.
const CUTS: &[&[usize]] = &[
    &[700, 1_100, 900],
    &[10, 350, 351, 352, 353, 354, 355, 356, 357, 358, 359, 360],
    &[2_000, 500, 3_000, 450],
    &[1_000, 1_013, 1_029, 1_041, 1_057, 1_067, 1_079],
    &[4_000, 333],
    &[],
];

/// How long a run with all its cuts may take on the paused clock.
const DEADLINE: Duration = Duration::from_mins(10);

/// A scripted LangGraph server, and two gateways in front of it.
struct Replicas {
    upstream: SocketAddr,
    gateways: [SocketAddr; 2],
    /// Cancelling these stops the gateways.
    stops: Vec<CancellationToken>,
    serving: JoinSet<()>,
}

/// A proxy that cuts some of its connections.
struct Cutting {
    address: SocketAddr,
    /// How many bytes of each of the next responses the proxy forwards.
    left: Arc<Mutex<Vec<usize>>>,
    /// The tasks that accept and serve connections.
    _serving: JoinSet<()>,
}

/// An event with its id.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    id: String,
    data: String,
}

/// Plain HTTP, each request on a connection of its own.
#[derive(Clone)]
struct Transport(reqwest::Client);

// === impl Replicas ===

impl Replicas {
    async fn start() -> Self {
        let stop = CancellationToken::new();
        let demo = Demo::new(Pace::new(BEAT), stop.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let upstream = listener.local_addr().unwrap();
        let mut serving = JoinSet::new();
        let (routes, on_stop) = (demo.routes(), stop.clone());
        serving.spawn(async move {
            server::serve(listener, routes, &Limits::default(), on_stop).await;
        });
        let mut replicas = Self { upstream, gateways: [upstream; 2], stops: vec![stop], serving };
        replicas.gateways = [replicas.gateway().await, replicas.gateway().await];
        replicas
    }

    /// Another gateway, which has read nothing yet.
    async fn gateway(&mut self) -> SocketAddr {
        let agents = agents(&[("demo", &format!("http://{}", self.upstream))], &[]);
        let (address, stop, mut serving) = serve(agents, Limits::default()).await;
        self.stops.push(stop);
        self.serving.spawn(async move { while serving.join_next().await.is_some() {} });
        address
    }

    /// Starts a run and disconnects when it has begun; returns the id of the first event.
    async fn run(&self) -> String {
        let input = gateway::input(&["hi"]).to_string();
        let mut response = gateway::post(self.gateways[0], "", &input).await;
        assert_eq!(response.frame().await, "retry: 3000\n\n");
        let started = response.whole_frame().await;
        assert!(started.contains("RUN_STARTED"), "{started}");
        told(&started).id
    }

    /// The events from a gateway that has not read the run, after the run is over.
    async fn uncut(&mut self, after: &str) -> Vec<Told> {
        let gateway = self.gateway().await;
        let request = events_request(&format!("last-event-id: {after}\r\n"), "");
        let mut response = Response::to(gateway, request.as_bytes()).await;
        assert_eq!(response.frame().await, "retry: 3000\n\n");
        let mut events = Vec::new();
        loop {
            match response.whole_frame().await {
                end if end.is_empty() => return events,
                comment if comment.starts_with(':') => {}
                frame => events.push(told(&frame)),
            }
        }
    }
}

/// The event of a frame.
fn told(frame: &str) -> Told {
    let field = |name| frame.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    Told { id: field("id: ").to_owned(), data: field("data: ").to_owned() }
}

// === impl Cutting ===

impl Cutting {
    /// Sends connections to the gateways in turn, and cuts them by this list.
    async fn start(gateways: [SocketAddr; 2], cuts: &[usize]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let left = Arc::new(Mutex::new(cuts.iter().rev().copied().collect::<Vec<_>>()));
        let mut serving = JoinSet::new();
        let taken = Arc::clone(&left);
        serving.spawn(async move {
            let mut open = JoinSet::new();
            // The second gateway comes first, because the first one has the run.
            for gateway in gateways.into_iter().cycle().skip(1) {
                let (client, _) = listener.accept().await.unwrap();
                let limit = taken.lock().unwrap().pop();
                open.spawn(pass(client, gateway, limit));
            }
        });
        Self { address, left, _serving: serving }
    }

    fn cuts_left(&self) -> usize {
        self.left.lock().unwrap().len()
    }
}

/// Forwards a connection, and this many bytes of the response.
async fn pass(mut client: TcpStream, gateway: SocketAddr, limit: Option<usize>) {
    let mut gateway = TcpStream::connect(gateway).await.unwrap();
    let (mut from_client, mut to_client) = client.split();
    let (from_gateway, mut to_gateway) = gateway.split();
    let limit = limit.map_or(u64::MAX, |limit| limit.try_into().unwrap());
    let mut limited = from_gateway.take(limit);
    tokio::select! {
        // When either side disconnects, the connection ends.
        _ = tokio::io::copy(&mut from_client, &mut to_gateway) => {}
        _ = tokio::io::copy(&mut limited, &mut to_client) => {}
    }
    // Flushing keeps the last bytes: the cut is exactly at the limit.
    let _ = to_client.flush().await;
}

// === impl Transport ===

impl HttpTransport for Transport {
    fn request(&self, request: http::Request<Option<Bytes>>) -> ResponseFuture {
        let http = self.0.clone();
        Box::pin(async move {
            let request = request.map(Option::unwrap_or_default);
            let request = reqwest::Request::try_from(request).map_err(TransportError::new)?;
            let response = http.execute(request).await.map_err(TransportError::new)?;
            let (head, body) = http::Response::<reqwest::Body>::from(response).into_parts();
            let chunks = body.into_data_stream();
            let body: ByteStream = Box::pin(chunks.map(|chunk| chunk.map_err(TransportError::new)));
            Ok(http::Response::from_parts(head, body))
        })
    }
}

/// The events that the client received after an event, over all its connections, until the gateway
/// answers 204; with `follow`, until the run's end. Also returns the number of connections.
async fn follow(address: SocketAddr, query: &str, after: &str) -> (Vec<Told>, usize) {
    let http = client();
    // The gateway's `retry` sets the pause; a factor of 1 keeps it.
    let reconnect = ReconnectOptions::reconnect(true).retry_initial(true).backoff_factor(1).build();
    let url = format!("http://{address}/agui/agent/agent/threads/{THREAD}/events{query}");
    let mut stream = ClientBuilder::for_url(&url)
        .unwrap()
        .last_event_id(after.to_owned())
        .reconnect(reconnect)
        .build_with_transport(Transport(http))
        .stream();
    let (mut events, mut connections) = (Vec::new(), 0);
    while let Some(item) = stream.next().await {
        match item {
            Ok(SSE::Connected(connection)) if connection.response().status() == 204 => break,
            Ok(SSE::Connected(_)) => connections += 1,
            Ok(SSE::Event(event)) => {
                let is_end = event.data.contains("\"type\":\"RUN_FINISHED\"");
                events.push(Told { id: event.id.unwrap_or_default(), data: event.data });
                if is_end && !query.is_empty() {
                    break;
                }
            }
            // A cut: the client reconnects by itself.
            Ok(SSE::Comment(_)) | Err(_) => {}
        }
    }
    (events, connections)
}

#[tokio::test(start_paused = true)]
async fn each_event_comes_once_however_often_the_connection_breaks() {
    for query in ["", "?follow=thread"] {
        for &cuts in CUTS {
            let mut replicas = Replicas::start().await;
            let proxy = Cutting::start(replicas.gateways, cuts).await;
            let started = replicas.run().await;
            let told = tokio::time::timeout(DEADLINE, follow(proxy.address, query, &started));
            let (events, connections) = told.await.expect("it hangs");
            let uncut = replicas.uncut(&started).await;

            let what = format!("{query} {cuts:?}");
            assert_eq!(proxy.cuts_left(), 0, "{what}: it was over before it was cut");
            // A response that is cut in its head does not count.
            let heads = cuts.iter().filter(|cut| **cut < 200).count();
            assert_eq!(connections, cuts.len() + 1 - heads, "{what}");
            assert!(uncut.len() > 50, "{uncut:#?}");
            let ids: HashSet<_> = uncut.iter().map(|event| &*event.id).collect();
            assert_eq!(ids.len(), uncut.len(), "{uncut:#?}");
            assert!(!ids.contains("") && !ids.contains(&*started));
            assert_eq!(events, uncut, "{what}");
        }
    }
}
