//! Shutdown: the end of the streams, the connections and the process.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::support::clock::HeldClock;
use crate::support::gateway::{Gateway, RUN, Response, THREAD, closed, failed, token, told};
use threadway::server::GRACE;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test]
async fn stop_ends_every_stream_with_a_reason_and_closes_what_is_open() {
    let gateway = Gateway::start().await;
    let (mut silent, first) = gateway.run().await;
    let (mut speaking, mut second) = gateway.run().await;
    second.send(token("a", "one")).await;
    assert_eq!(speaking.frame().await + &speaking.frame().await, told("a", "one"));
    gateway.stop.cancel();
    let reason = "the gateway is shutting down; the run goes on in LangGraph";
    let end = failed(reason, "gateway_shutdown");
    assert_eq!(silent.body().await, end);
    assert_eq!(speaking.body().await, closed("a") + &end);
    first.closed().await;
    second.closed().await;
    // Another process may use the port at once, so the test cannot check that no process listens.
    gateway.stopped().await;
}

#[tokio::test]
async fn stop_also_ends_a_stream_whose_run_is_asked_for() {
    let gateway = Gateway::start().await;
    let (mut response, run) = gateway.run().await;
    run.end().await;
    let record = gateway.upstream.expect(&format!("GET /threads/{THREAD}/runs/{RUN}")).await;
    gateway.stop.cancel();
    assert!(response.body().await.contains("gateway_shutdown"));
    record.closed().await;
    gateway.stopped().await;
}

#[tokio::test]
async fn stop_does_not_wait_for_ever_for_a_client_that_does_not_go_on() {
    let gateway = Gateway::start().await;
    let mut socket = TcpStream::connect(gateway.address).await.unwrap();
    let request = b"POST /agui/agent/a/run HTTP/1.1\r\nhost: h\r\ncontent-length: 9\r\n\
                    content-type: application/json\r\nexpect: 100-continue\r\n\r\n";
    socket.write_all(request).await.unwrap();
    let mut answer = [0; 25];
    socket.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 100 Continue\r\n\r\n");
    // The gateway now waits for a body that does not arrive.
    let clock = HeldClock::pause();
    gateway.stop.cancel();
    while TcpStream::connect(gateway.address).await.is_ok() {}
    clock.advance(GRACE).await;
    gateway.stopped().await;
    assert_eq!(socket.read(&mut answer).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn streams_of_two_hundred_clients_end_at_once_each_with_its_reason() {
    const STREAMS: usize = 200;
    let gateway = Gateway::start().await;
    let mut streams = Vec::new();
    for at in 0..STREAMS {
        let (mut response, mut run) = gateway.run().await;
        // Some streams are silent, some are active, and some have not been read for a while.
        if at % 2 == 0 {
            run.send(token("a", "one")).await;
        }
        if at % 4 == 0 {
            assert_eq!(response.frame().await + &response.frame().await, told("a", "one"));
        }
        streams.push((response, run));
    }
    // While the clock is held, no stream can use any of the grace period.
    let _clock = HeldClock::pause();
    gateway.stop.cancel();
    let reason = "the gateway is shutting down; the run goes on in LangGraph";
    let end = failed(reason, "gateway_shutdown");
    for (at, (mut response, run)) in streams.into_iter().enumerate() {
        let body = response.body().await;
        match at % 4 {
            0 => assert_eq!(body, closed("a") + &end),
            2 => assert!([told("a", "one") + &closed("a") + &end, end.clone()].contains(&body)),
            _ => assert_eq!(body, end),
        }
        response.closed().await;
        run.closed().await;
    }
    gateway.stopped().await;
}

#[tokio::test]
async fn connections_on_which_nothing_is_asked_are_closed_at_once() {
    let gateway = Gateway::start().await;
    let _clock = HeldClock::pause();
    let mut asked =
        Response::to(gateway.address, b"GET /healthz HTTP/1.1\r\nhost: h\r\n\r\n").await;
    assert_eq!(asked.body().await, "ok\n");
    let mut silent = TcpStream::connect(gateway.address).await.unwrap();
    // A response on another connection proves that this one was accepted.
    Response::to(gateway.address, b"GET /healthz HTTP/1.1\r\nhost: h\r\n\r\n").await;
    gateway.stop.cancel();
    asked.closed().await;
    // A reset closes the connection too.
    assert_eq!(silent.read(&mut [0]).await.unwrap_or(0), 0);
    gateway.stopped().await;
}

#[cfg(unix)]
#[test]
fn binary_tells_where_it_listens_and_stops_on_sigterm() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_threadway"))
        .args(["serve", "--upstream", "http://127.0.0.1:1", "--listen", "127.0.0.1:0"])
        .env_clear()
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    // Log lines come between them.
    let mut line = || {
        let mut said = lines.by_ref().map(Result::unwrap);
        said.find(|line| line.starts_with("threadway: ")).unwrap()
    };
    let first = line();
    let address = first.strip_prefix("threadway: listening on http://").unwrap();
    let address = address.strip_suffix(" in front of http://127.0.0.1:1").unwrap().to_owned();
    assert_eq!(line(), format!("threadway: page: http://{address}/"));
    assert_eq!(
        line(),
        "threadway: upstream default: the LangGraph server cannot be reached: Connection refused \
         (os error 111); check that it runs, and that this is its URL; its agents are served once it answers"
    );
    assert_eq!(line(), format!("threadway: CopilotKit: runtimeUrl http://{address}/agui"));
    std::net::TcpStream::connect(&address).unwrap();

    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(output.stdout, b"");
    let log: Vec<_> = lines.map(Result::unwrap).collect();
    assert!(log.last().unwrap().ends_with("stopped: all connections have ended"), "{log:?}");
}
