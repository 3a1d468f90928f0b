//! `threadway watch` as a process, in front of a gateway that the test scripts byte by byte.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::support::upstream::{Exchange, Upstream};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// The time limit of every wait: much longer than the pause before a reconnect.
const DEADLINE: Duration = Duration::from_mins(1);

const EVENTS: &str = "GET /agui/agent/a/threads/T/events?follow=thread";

/// The process, and its output so far.
struct Watch {
    child: Child,
    pieces: mpsc::UnboundedReceiver<Vec<u8>>,
    stdout: Vec<u8>,
    stderr: mpsc::UnboundedReceiver<String>,
}

fn spawn(args: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_threadway"))
        .arg("watch")
        .args(args)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Runs a process to its end; returns its status and its output.
async fn output(args: &[&str]) -> (i32, String, String) {
    Watch::start(args).ended().await
}

// === impl Watch ===

impl Watch {
    fn start(args: &[&str]) -> Self {
        let mut child = spawn(args);
        let (mut stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let (send_piece, pieces) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 8 * 1024];
            while let Ok(length @ 1..) = stdout.read(&mut buffer) {
                let _ = send_piece.send(buffer[..length].to_vec());
            }
        });
        let (send_line, lines) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines() {
                let _ = send_line.send(line.unwrap());
            }
        });
        Self { child, pieces, stdout: Vec::new(), stderr: lines }
    }

    /// A process that follows the thread `T` with the agent `a`, and the stream that it requests.
    async fn follow(gateway: &Upstream, args: &[&str]) -> (Self, Exchange) {
        let url = gateway.url();
        let watch = Self::start(&[&["T", "--agent", "a", "--gateway", &*url], args].concat());
        (watch, connected(gateway).await)
    }

    /// Waits until stdout is exactly this.
    async fn prints(&mut self, expected: &str) {
        while self.stdout != expected.as_bytes() {
            let text = String::from_utf8_lossy(&self.stdout).into_owned();
            assert!(expected.starts_with(&text), "printed {text}\nexpected {expected}");
            let piece = timeout(DEADLINE, self.pieces.recv()).await;
            let piece = piece.unwrap_or_else(|_| panic!("printed only {text}"));
            self.stdout.extend(piece.unwrap_or_else(|| panic!("printed only {text}")));
        }
    }

    /// The next line on stderr.
    async fn says(&mut self) -> String {
        timeout(DEADLINE, self.stderr.recv()).await.unwrap().unwrap()
    }

    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    /// Waits for the end; returns the status and all output.
    async fn ended(mut self) -> (i32, String, String) {
        let (status, mut stdout) = (wait(self.child).await, self.stdout);
        while let Some(piece) = self.pieces.recv().await {
            stdout.extend(piece);
        }
        let mut stderr = Vec::new();
        while let Some(line) = self.stderr.recv().await {
            stderr.push(line);
        }
        let code = status.code().expect("a signal ended it");
        (code, String::from_utf8(stdout).unwrap(), stderr.join("\n"))
    }
}

async fn wait(mut child: Child) -> ExitStatus {
    let id = child.id().to_string();
    let waited = spawn_blocking(move || child.wait().unwrap());
    if let Ok(status) = timeout(DEADLINE, waited).await {
        return status.unwrap();
    }
    Command::new("kill").args(["-KILL", &id]).status().unwrap();
    panic!("it did not end");
}

/// The next stream that the process requests.
async fn connected(gateway: &Upstream) -> Exchange {
    let mut stream = asked(gateway).await;
    stream.begin("").await;
    stream
}

async fn asked(gateway: &Upstream) -> Exchange {
    let exchange = timeout(DEADLINE, gateway.accept()).await.expect("nothing was asked");
    assert_eq!(exchange.line, EVENTS);
    exchange
}

/// An event of a stream.
fn frame(event: &str) -> String {
    format!("data: {event}\n\n")
}

fn started() -> String {
    frame(r#"{"type":"RUN_STARTED","threadId":"T","runId":"R"}"#)
}

fn token(delta: &str) -> String {
    frame(&format!(r#"{{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"{delta}"}}"#))
}

fn messages(content: &str) -> String {
    let message = format!(r#"{{"id":"m","role":"assistant","content":"{content}"}}"#);
    frame(&format!(r#"{{"type":"MESSAGES_SNAPSHOT","messages":[{message}]}}"#))
}

fn finished() -> String {
    frame(r#"{"type":"RUN_FINISHED","threadId":"T","runId":"R","outcome":{"type":"success"}}"#)
}

#[tokio::test]
async fn a_thread_is_followed_by_the_first_agent_and_over_a_cut() {
    let gateway = Upstream::bind().await;
    let url = gateway.url();
    let mut watch = Watch::start(&["T", "--gateway", &url]);
    let info = timeout(DEADLINE, gateway.accept()).await.unwrap();
    assert_eq!(info.line, "GET /agui/info");
    info.json(200, r#"{"version":"1","agents":{"a":{"name":"a"},"b":{}},"mode":"sse"}"#).await;

    let mut stream = connected(&gateway).await;
    stream.send(": welcome\n\nretry: 1000\n\n").await;
    stream.send(started() + &token("One")).await;
    watch.prints("--- run R\nassistant: One").await;
    stream.send(token(" two")).await;
    watch.prints("--- run R\nassistant: One two").await;
    stream.cut();
    let lost = watch.says().await;
    let told = format!("threadway: the connection to {url} was lost (");
    assert!(lost.starts_with(&told) && lost.ends_with("); reconnecting"), "{lost}");

    let mut stream = connected(&gateway).await;
    stream.send(started() + &messages("One two three") + &token(" four")).await;
    assert_eq!(watch.says().await, "threadway: reconnected");
    let printed = "--- run R\nassistant: One two\nassistant: .. three four";
    watch.prints(printed).await;
    // A stream that ends in order is requested again too.
    stream.end().await;
    assert_eq!(
        watch.says().await,
        format!("threadway: the connection to {url} was lost (the stream ended); reconnecting")
    );
    let mut stream = connected(&gateway).await;
    assert_eq!(watch.says().await, "threadway: reconnected");
    stream.send(started() + &messages("One two three four") + &finished()).await;
    let next = r#"{"type":"RUN_STARTED","threadId":"T","runId":"S"}"#;
    stream.send(frame(next) + &messages("One two three four")).await;
    let printed = format!("{printed}\n--- run R finished\n--- run S\n");
    watch.prints(&printed).await;

    watch.signal("-TERM");
    assert_eq!(watch.ended().await, (0, printed, String::new()));
    stream.closed().await;
}

#[tokio::test]
async fn the_events_are_printed_as_they_come() {
    let gateway = Upstream::bind().await;
    let (mut watch, mut stream) = Watch::follow(&gateway, &["--json"]).await;
    let events = [
        r#"{"type":"RUN_STARTED","threadId":"T","runId":"R","protocolVersion":"1.0"}"#,
        r#"{"type":"STATE_SNAPSHOT","snapshot":{"b":1.10,"a":12345678901234567890123}}"#,
        r#"{"type":"NEW_IN_2_0", "x":"\ud83d"}"#,
        r#"{"type":"RUN_FINISHED","threadId":"T","runId":"R"}"#,
    ];
    for event in events {
        stream.send(format!("id: 7\nevent: x\ndata: {event}\n\n: beat\n\ndata: garbage\n\n")).await;
    }
    let lines = events.join("\n") + "\n";
    watch.prints(&lines).await;
    // A stream that starts over is printed again, because it was received again.
    stream.cut();
    connected(&gateway).await.send(frame(events[0])).await;
    let lines = format!("{lines}{}\n", events[0]);
    watch.prints(&lines).await;
    watch.signal("-INT");
    let (code, stdout, stderr) = watch.ended().await;
    assert_eq!((code, stdout), (0, lines));
    assert_eq!(stderr.matches("an event that is not AG-UI was ignored").count(), 4, "{stderr}");
}

#[tokio::test]
async fn garbage_is_passed_over_or_read_anew() {
    let gateway = Upstream::bind().await;
    let url = gateway.url();
    let (mut watch, mut stream) = Watch::follow(&gateway, &[]).await;
    stream.send(started() + &token("One")).await;
    // Data that are no events, and events whose members have wrong types.
    for garbage in [
        "\n\n\r\r\n",
        "data:\n\ndata: null\n\ndata: {\n\ndata: {}\n\ndata: {\"type\":{}}\n\n",
        "data: {\"type\":\"MESSAGES_SNAPSHOT\",\"messages\":{}}\n\n",
        "data: {\"type\":\"TEXT_MESSAGE_CONTENT\",\"messageId\":[],\"delta\":1}\n\n",
        "data: {\"type\":\"STATE_DELTA\",\"delta\":[{\"op\":\"add\"},1]}\n\n",
        "data: {\"type\":\"TOOL_CALL_END\"}\n\n",
    ] {
        stream.send(garbage).await;
    }
    stream.send(messages("One two")).await;
    let mut printed = "--- run R\nassistant: One two".to_owned();
    watch.prints(&printed).await;
    for _ in 0..5 {
        let warning = watch.says().await;
        assert!(warning.contains("an event that is not AG-UI was ignored"), "{warning}");
    }
    // Responses that are no event stream.
    for (garbage, told, more) in [
        (&b"data: \xFF\xFE\n\n"[..], " three", ".. three"),
        (b"foo: bar\n\n", " three four", ".. four"),
        (b"\0\0\xF0\n\n", " three four five", ".. five"),
    ] {
        stream.send(garbage).await;
        assert_eq!(
            watch.says().await,
            format!(
                "threadway: the connection to {url} was lost (it did not send an event stream); \
                 reconnecting"
            )
        );
        stream = connected(&gateway).await;
        assert_eq!(watch.says().await, "threadway: reconnected");
        stream.send(started() + &messages(&format!("One two{told}"))).await;
        printed.extend(["\nassistant: ", more]);
        watch.prints(&printed).await;
    }
    watch.signal("-TERM");
    assert_eq!(watch.ended().await, (0, printed, String::new()));
}

#[tokio::test]
async fn a_refusal_ends_it_with_what_the_gateway_says() {
    let gateway = Upstream::bind().await;
    let url = gateway.url();
    let args = ["T", "--agent", "a", "--gateway", &url];
    let refusal = r#"{"error":"unknown_agent","message":"there is no agent `a`; see /agui/info"}"#;
    let told = "threadway: the gateway answered 404: there is no agent `a`; see /agui/info";
    let (refused, ()) = tokio::join!(output(&args), async {
        asked(&gateway).await.json(404, refusal).await;
    });
    assert_eq!(refused, (1, String::new(), told.to_owned()));

    // If the first attempt fails, the process does not wait for the gateway.
    let (refused, ()) = tokio::join!(output(&args), async {
        asked(&gateway).await.answer(503, "text/html", "<html>").await;
    });
    assert_eq!(refused, (1, String::new(), "threadway: the gateway answered 503".to_owned()));

    // After a first connection it waits for the gateway, until that refuses.
    let (mut watch, stream) = Watch::follow(&gateway, &[]).await;
    stream.end().await;
    watch.says().await;
    asked(&gateway).await.json(503, refusal).await;
    asked(&gateway).await.json(429, refusal).await;
    asked(&gateway).await.json(404, refusal).await;
    assert_eq!(watch.ended().await, (1, String::new(), told.to_owned()));
}

#[tokio::test]
async fn what_is_no_gateway_is_told() {
    let gateway = Upstream::bind().await;
    let url = gateway.url();
    let no_gateway = |reason: &str| {
        (1, String::new(), format!("threadway: {url} is not a threadway gateway: {reason}"))
    };
    let named = ["T", "--gateway", &url, "--agent", "a"];
    let unnamed = &named[..3];
    let (refused, ()) = tokio::join!(output(unnamed), async {
        gateway.accept().await.answer(200, "text/html", "<html>").await;
    });
    assert_eq!(refused, no_gateway("its /agui/info does not list agents"));
    let (refused, ()) = tokio::join!(output(&named), async {
        gateway.accept().await.answer(200, "text/html", "<html>").await;
    });
    assert_eq!(refused, no_gateway("it does not answer with an event stream"));
    let (refused, ()) = tokio::join!(output(unnamed), async {
        gateway.accept().await.json(200, r#"{"agents":{}}"#).await;
    });
    let told = "threadway: the gateway has no agents; `threadway check` shows why";
    assert_eq!(refused, (1, String::new(), told.to_owned()));

    drop(gateway);
    for args in [unnamed, &named] {
        let (code, stdout, stderr) = output(args).await;
        assert_eq!((code, &*stdout), (1, ""));
        let told = format!("threadway: the gateway at {url} cannot be reached: Connection refused");
        assert!(stderr.starts_with(&told), "{stderr}");
    }
}

#[tokio::test]
async fn a_stream_that_is_not_to_be_asked_for_again_is_not() {
    let gateway = Upstream::bind().await;
    let (watch, stream) = Watch::follow(&gateway, &[]).await;
    stream.end().await;
    asked(&gateway).await.answer(204, "text/event-stream", "").await;
    assert_eq!(watch.ended().await.0, 0);
}

#[tokio::test]
async fn the_names_stay_in_their_places() {
    let gateway = Upstream::bind().await;
    let url = format!("{}/base/", gateway.url());
    let args = ["../?x#\n%2e", "--agent", "up:a", "--gateway", &url];
    let ((code, ..), ()) = tokio::join!(output(&args), async {
        let asked = gateway.accept().await;
        assert_eq!(
            asked.line,
            "GET /base/agui/agent/up%3Aa/threads/..%2F%3Fx%23%0A%252e/events?follow=thread"
        );
        asked.json(404, "{}").await;
    });
    assert_eq!(code, 1);
}

#[tokio::test]
async fn a_wrong_command_line_is_told() {
    for (args, told) in [
        (&[".."][..], "threadway: THREAD: expected a name that is not empty, `.` or `..`"),
        (&[""], "threadway: THREAD: expected a name that is not empty, `.` or `..`"),
        (
            &["T", "--agent", "."],
            "threadway: --agent: expected a name that is not empty, `.` or `..`",
        ),
        (
            &["T", "--timeout", "soon"],
            "threadway: --timeout is soon; expected a time such as 30s, 5m or 1h, at most 24h",
        ),
        (
            &["T", "--header", "s3cret"],
            "threadway: --header (THREADWAY_HEADER): expected NAME:VALUE, such as \
             x-api-key:KEY; the variable takes one per line",
        ),
        (
            &["T", "--gateway", "ftp://h/s3cret"],
            "threadway: --gateway (THREADWAY_GATEWAY): expected a URL that begins with http:// or \
             https://",
        ),
        (
            &["T", "--gateway", "http://user:s3cret@h"],
            "threadway: --gateway (THREADWAY_GATEWAY): expected a URL without user, password, query \
             and fragment",
        ),
        (
            &["T", "--gateway", "http://user:s3cret@h:port"],
            "threadway: --gateway (THREADWAY_GATEWAY): expected an absolute URL, as \
             http://127.0.0.1:2024 (invalid port number)",
        ),
    ] {
        assert_eq!(output(args).await, (64, String::new(), told.to_owned()));
    }
}

#[tokio::test]
async fn it_ends_in_silence_when_nobody_reads_it() {
    let gateway = Upstream::bind().await;
    let url = gateway.url();
    let mut child = spawn(&["T", "--agent", "a", "--gateway", &url]);
    drop(child.stdout.take());
    let mut stderr = child.stderr.take().unwrap();
    connected(&gateway).await.send(started()).await;
    assert_eq!(wait(child).await.code(), Some(0));
    let mut told = String::new();
    stderr.read_to_string(&mut told).unwrap();
    assert_eq!(told, "");
}

#[tokio::test]
async fn it_ends_also_while_its_reader_is_stuck() {
    /// More bytes than a pipe holds.
    const LONG: usize = 1024 * 1024;
    let gateway = Upstream::bind().await;
    let url = gateway.url();
    let mut child = spawn(&["T", "--agent", "a", "--gateway", &url]);
    let mut stdout = child.stdout.take().unwrap();
    connected(&gateway).await.send(started() + &messages(&"x".repeat(LONG))).await;
    let mut begin = [0; 9];
    stdout.read_exact(&mut begin).unwrap();
    assert_eq!(&begin, b"--- run R");
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    assert_eq!(wait(child).await.code(), Some(0));
}

/// The stream that `--once` requests.
async fn asked_once(gateway: &Upstream) -> Exchange {
    let exchange = timeout(DEADLINE, gateway.accept()).await.expect("nothing was asked");
    assert_eq!(exchange.line, "GET /agui/agent/a/threads/T/events");
    exchange
}

fn at_rest() -> String {
    let run = r#""threadId":"T","runId":"connect-1""#;
    frame(&format!(r#"{{"type":"RUN_STARTED",{run}}}"#))
        + &frame(&format!(r#"{{"type":"RUN_FINISHED",{run},"outcome":{{"type":"success"}}}}"#))
}

#[tokio::test]
async fn a_thread_of_which_nothing_is_known_is_said_at_once() {
    let gateway = Upstream::bind().await;
    let (mut watch, mut stream) = Watch::follow(&gateway, &[]).await;
    stream.send(at_rest()).await;
    let told =
        "threadway: the thread T is unknown so far; waiting for its first run (ctrl-c exits)";
    assert_eq!(watch.says().await, told);
    // The process waits for the end of the message, and prints the message once.
    stream.send(started() + &token("One")).await;
    stream.cut();
    let mut stream = connected(&gateway).await;
    stream.send(started() + &messages("One") + &finished()).await;
    let next = r#"{"type":"RUN_STARTED","threadId":"T","runId":"connect-2"}"#;
    let end = r#"{"type":"RUN_FINISHED","threadId":"T","runId":"connect-2"}"#;
    stream.send(frame(next) + &frame(end)).await;
    assert!(watch.says().await.contains(" was lost "));
    assert_eq!(watch.says().await, "threadway: reconnected");
    watch.prints("--- at rest, connect-1\n--- run R\nassistant: One\n--- run R finished\n").await;
    watch.signal("-TERM");
    let (code, _, stderr) = watch.ended().await;
    assert_eq!((code, &*stderr), (0, ""));

    let url = gateway.url();
    let args = ["T", "--agent", "a", "--gateway", &url, "--once"];
    let (ended, ()) = tokio::join!(output(&args), async {
        let mut stream = asked_once(&gateway).await;
        stream.begin("").await;
        stream.send(at_rest()).await;
        stream.closed().await;
    });
    let told = "threadway: the thread T is unknown: it does not exist, or you may not see it";
    assert_eq!((ended.0, &*ended.2), (1, told));
}

#[tokio::test]
async fn once_ends_with_what_is_there_or_with_the_run_that_is_under_way() {
    let gateway = Upstream::bind().await;
    let url = gateway.url();
    let args = ["T", "--agent", "a", "--gateway", &url, "--once"];
    let (ended, ()) = tokio::join!(output(&args), async {
        let mut stream = asked_once(&gateway).await;
        stream.begin("").await;
        stream.send(format!("id: 7\n{}{}", started(), token("One"))).await;
        // A run that is cut is resumed.
        stream.cut();
        let mut stream = asked_once(&gateway).await;
        assert!(stream.head.contains("\r\nlast-event-id: 7\r\n"), "{}", stream.head);
        stream.begin("").await;
        stream.send(token(" two") + &finished()).await;
        stream.end().await;
    });
    let printed = "--- run R\nassistant: One\nassistant: .. two\n--- run R finished\n";
    assert_eq!((ended.0, &*ended.1), (0, printed), "{}", ended.2);
}

#[tokio::test]
async fn it_ends_when_its_time_is_over() {
    let gateway = Upstream::bind().await;
    let url = gateway.url();
    for (once, expected) in [(&[][..], 0), (&["--once"], 3)] {
        let args = ["T", "--agent", "a", "--gateway", &url, "--timeout", "200ms"];
        let (ended, _stream) = tokio::join!(output_of([&args[..], once].concat()), async {
            let mut stream = timeout(DEADLINE, gateway.accept()).await.unwrap();
            stream.begin("").await;
            stream
        });
        let told = "threadway: --timeout (200ms) has passed";
        assert_eq!((ended.0, &*ended.2), (expected, told));
    }
}

async fn output_of(args: Vec<&str>) -> (i32, String, String) {
    output(&args).await
}

#[tokio::test]
async fn credentials_go_to_the_gateway_and_to_no_other_place() {
    let gateway = Upstream::bind().await;
    let url = gateway.url();
    let args = ["T", "--gateway", &url, "--api-key", "k3y", "--header", "X-Api-Key: other"];
    let (ended, ()) = tokio::join!(output(&args), async {
        let shows = |exchange: &Exchange| {
            for line in ["authorization: Bearer k3y", "x-api-key: other"] {
                assert!(exchange.head.contains(&format!("\r\n{line}\r\n")), "{}", exchange.head);
            }
        };
        let info = gateway.accept().await;
        shows(&info);
        info.json(200, r#"{"agents":{"a":{}}}"#).await;
        let events = asked(&gateway).await;
        shows(&events);
        events.redirect(307, &format!("{url}/elsewhere")).await;
    });
    assert_eq!((ended.0, &*ended.1), (1, ""));
    assert!(!ended.2.contains("k3y"), "{}", ended.2);
    gateway.is_untouched().await;

    // The environment variable does the same.
    let mut command = Command::new(env!("CARGO_BIN_EXE_threadway"));
    command.args(["watch", "T", "--gateway", &url]).env_clear();
    command.env("THREADWAY_API_KEY", "k3y").env("THREADWAY_HEADER", "x-a: 1\nx-b: 2");
    let (output, ()) = tokio::join!(spawn_blocking(move || command.output().unwrap()), async {
        let info = gateway.accept().await;
        for line in ["authorization: Bearer k3y", "x-a: 1", "x-b: 2"] {
            assert!(info.head.contains(&format!("\r\n{line}\r\n")), "{}", info.head);
        }
        info.json(401, r#"{"error":"invalid_token","message":"the key is none"}"#).await;
    });
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(1));
    let told = "threadway: the gateway answered 401: the key is none\n";
    assert_eq!(String::from_utf8(output.stderr).unwrap(), told);
}
