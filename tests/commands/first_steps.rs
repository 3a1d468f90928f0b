//! The messages for wrong first steps, as docs/troubleshooting.md lists them.

use std::process::{Command, Output};

use crate::support::gateway::{Response, agents, serve};
use crate::support::process::{File, Process};
use crate::support::upstream::Upstream;
use threadway::server::Limits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

const ORIGIN: &str = "http://localhost:5199";

/// A LangGraph server that answers by itself: its `/info`, and a status for all other requests.
pub(crate) struct Server {
    pub(crate) url: String,
    _answering: JoinSet<()>,
}

impl Server {
    pub(crate) async fn answering(status: u16) -> Self {
        Self::in_place_of(Upstream::bind().await, status)
    }

    fn in_place_of(upstream: Upstream, status: u16) -> Self {
        let url = upstream.url();
        let mut answering = JoinSet::new();
        answering.spawn(async move {
            loop {
                let exchange = upstream.next().await;
                match &*exchange.line {
                    "POST /assistants/search" if status == 200 => {
                        exchange.json_if_there(200, ASSISTANTS).await;
                    }
                    line if line.ends_with("/schemas") && status == 200 => {
                        exchange.json_if_there(200, SCHEMAS).await;
                    }
                    _ => exchange.json_if_there(status, r#"{"detail":"no"}"#).await,
                }
            }
        });
        Self { url, _answering: answering }
    }
}

const ASSISTANTS: &str = r#"[{"assistant_id":"fe096781-5601-53d2-b2f6-0d3403f7e9ca",
    "graph_id":"agent","name":"agent","metadata":{"created_by":"system"}}]"#;

const SCHEMAS: &str = r#"{"input_schema":{"properties":{"messages":{}}}}"#;

/// Runs the binary to its end, with these environment variables.
pub(crate) async fn ended(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_threadway"));
    command.args(arguments).env_clear().envs(variables.iter().copied());
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[tokio::test]
async fn a_misspelt_variable_ends_each_command_that_would_read_it() {
    let variable = [("THREADWAY_CORS_ORIGIN", "s3cret")];
    let told = "threadway: THREADWAY_CORS_ORIGIN: expected a variable that threadway reads, such \
                as THREADWAY_CORS_ORIGINS\n";
    for arguments in [
        &["serve", "--upstream", "http://127.0.0.1:1"][..],
        &["check", "--upstream", "http://127.0.0.1:1"],
        &["demo", "--listen", "127.0.0.1:0"],
        &["acp", "--upstream", "http://127.0.0.1:1"],
        &["watch", "T"],
        &["translate", "--to", "agui"],
    ] {
        let output = ended(arguments, &variable).await;
        assert_eq!((output.status.code(), stderr(&output)), (Some(64), told.to_owned()));
    }
    for arguments in [&["man"][..], &["completions", "bash"], &["--version"]] {
        assert!(ended(arguments, &variable).await.status.success(), "{arguments:?}");
    }
}

/// Asks whether a page of [`ORIGIN`] may send requests.
async fn is_let_in(process: &Process) -> bool {
    let request = format!(
        "OPTIONS /agui/info HTTP/1.1\r\nhost: localhost\r\norigin: {ORIGIN}\r\n\
         access-control-request-method: GET\r\n\r\n"
    );
    let response = Response::to(process.address, request.as_bytes()).await;
    response.head.contains(&format!("\r\naccess-control-allow-origin: {ORIGIN}\r\n"))
}

#[tokio::test]
async fn the_demo_lets_pages_in_as_serve_does() {
    let hint = "web pages of other origins are refused; allow one with --cors-origins \
                http://localhost:3000";
    let variables = [("THREADWAY_CORS_ORIGINS", ORIGIN)];
    for (options, variables, expected) in [
        (&[][..], &[][..], false),
        (&["--cors-origins", ORIGIN], &[], true),
        (&[], &variables, true),
    ] {
        let process = Process::start("demo", options, variables).await;
        assert_eq!(is_let_in(&process).await, expected);
        let said = process.stop().await;
        assert_eq!(said.contains(hint), !expected, "{said}");
    }
    for (value, expected) in [
        ("*", "expected a list of origins, since the demo has no `auth`"),
        ("localhost:5199", "expected `*`, or origins such as https://chat.example.com"),
    ] {
        let output = ended(&["demo", "--cors-origins", value], &[]).await;
        assert_eq!(output.status.code(), Some(64));
        let place = format!("--cors-origins (THREADWAY_CORS_ORIGINS) is {value}; ");
        assert!(stderr(&output).contains(&(place + expected)), "{}", stderr(&output));
    }
}

#[tokio::test]
async fn serve_hints_at_origins_where_there_are_none() {
    let hint = "web pages of other origins are refused";
    let url = "http://127.0.0.1:1";
    for (options, expected) in [
        (&["--upstream", url][..], true),
        (&["--upstream", url, "--cors-origins", ORIGIN], false),
        (&["--upstream", url, "--log", "warn"], false),
    ] {
        let said = Process::serve(options).await.stop().await;
        assert_eq!(said.matches(hint).count(), usize::from(expected), "{said}");
    }
}

#[tokio::test]
async fn a_port_alone_is_one_of_this_machine() {
    for form in ["8592", ":8592", "localhost:8592"] {
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = free.local_addr().unwrap().port().to_string();
        drop(free);
        let listen = form.replace("8592", &port);
        let options = ["--upstream", "http://127.0.0.1:1", "--listen", &listen];
        let process = Process::serve(&options).await;
        assert_eq!(process.address.to_string(), format!("127.0.0.1:{port}"), "{form}");
        process.stop().await;
    }
    for wrong in ["localhost", ":", "99999", "8592x", "example.com:8592", ":-1"] {
        let options = ["serve", "--upstream", "http://127.0.0.1:1", "--listen", wrong];
        let output = ended(&options, &[]).await;
        assert_eq!(output.status.code(), Some(64), "{wrong}");
        assert!(stderr(&output).contains("or a port alone"), "{wrong}: {}", stderr(&output));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn check_says_what_does_not_reach_an_agent() {
    let server = Server::answering(200).await;
    let output = ended(&["check", "--upstream", &server.url], &[]).await;
    assert!(output.status.success(), "{}", stdout(&output));
    let told = stdout(&output);
    let [line, tools, context] = &*told.lines().collect::<Vec<_>>() else { panic!("{told}") };
    assert!(line.ends_with(", 1 agent: agent"), "{told}");
    let begins = "upstream default: agent: the ";
    assert!(tools.starts_with(&format!("{begins}tools of clients do not reach this")), "{told}");
    assert!(context.starts_with(&format!("{begins}context of clients does not reach")), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn check_and_serve_say_what_a_server_lacks() {
    let unknown = "a server that threadway does not know";
    for (info, server, lacks) in [
        (r#"{"version":"0.16.7","langgraph_py_version":"1.2.22"}"#, "for Python", 0),
        (r#"{"version":"1.5.1","langgraph_js_version":"1.7.3"}"#, "for JavaScript", 5),
        (r#"{"name":"Aegra","version":"0.11.0"}"#, "an aegra server, version 0.11.0", 4),
        (r#"{"name":"Another","version":"1"}"#, unknown, 6),
    ] {
        let upstream = Server::in_place_of(Upstream::telling(info).await, 200);
        let output = ended(&["check", "--upstream", &upstream.url], &[]).await;
        let told = stdout(&output);
        assert!(output.status.success(), "{told}");
        let first = told.lines().next().unwrap();
        assert!(first.contains(server) && first.ends_with(", 1 agent: agent"), "{told}");
        let limits = told.matches("upstream default: limit of this server: ").count();
        assert_eq!(limits, lacks, "{told}");

        let mut process = Process::serve(&["--upstream", &upstream.url]).await;
        let line = process.says("upstream default: ").await;
        assert!(line.contains(server), "{line}");
        assert_eq!(line.contains("; its limits: "), lacks > 0, "{line}");
        process.stop().await;
    }
    // Without agents it is no server of LangGraph's API.
    let other = Server::in_place_of(Upstream::telling(r#"{"name":"Another"}"#).await, 404);
    let output = ended(&["check", "--upstream", &other.url], &[]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("this is not a LangGraph server"), "{}", stdout(&output));
}

/// A web server that gives every request the same answer, which has no body of its own length.
async fn web_server(head: &'static str, body: &'static str) -> (String, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut answering = JoinSet::new();
    answering.spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut request = [0; 4096];
            let _ = socket.read(&mut request).await;
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 {head}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            );
            let _ = socket.write_all(answer.as_bytes()).await;
        }
    });
    (url, answering)
}

#[tokio::test(flavor = "multi_thread")]
async fn serve_says_what_check_says_of_a_server_that_is_not_langgraphs() {
    const PAGE: &str = "<!doctype html><title>An app</title>";
    let html = "content-type: text/html";
    let later = "; its agents are served once it answers";
    for (head, body, told, later) in [
        ("404 Not Found", PAGE, "is not a LangGraph server (the server answered 404", ""),
        ("404 Not Found", "{}", "is not a LangGraph server (the server answered 404", ""),
        ("405 Method Not Allowed", "", "is not a LangGraph server (the server answered 405)", ""),
        ("200 OK", PAGE, "is not a LangGraph server (the server's answer is not ", ""),
        ("200 OK", "{}", "is not a LangGraph server (the server's answer is not ", ""),
        ("200 OK", "[]", "is not a LangGraph server (the server's answer is not ", ""),
        ("302 Found", "", "is not a LangGraph server (the server answered 302, a redirect)", ""),
        ("500 Oops", "", "does not look like a LangGraph server (the server answered 500)", later),
    ] {
        let head = format!("{head}\r\n{html}").leak();
        let (url, _answering) = web_server(head, body).await;
        let output = ended(&["check", "--upstream", &url], &[]).await;
        let checked = stdout(&output);
        assert_eq!(output.status.code(), Some(1), "{checked}");
        assert!(checked.contains(&format!("upstream default ({url}): this {told}")), "{checked}");

        let mut process = Process::serve(&["--upstream", &url]).await;
        let line = process.says("upstream default: ").await;
        assert!(line.contains(&format!("upstream default: this {told}")), "{line}");
        assert!(line.ends_with(&format!("check the URL and its path{later}")), "{line}");
        process.says("CopilotKit: runtimeUrl").await;
        let said = process.stop().await;
        assert!(!said.contains("limits") && !said.contains("does not know"), "{said}");
    }
}

#[tokio::test]
async fn an_address_in_use_is_perhaps_that_of_another_threadway() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (arguments, flag) in [
        (&["demo", "--listen", &address][..], "--listen"),
        (&["serve", "--upstream", "http://127.0.0.1:1", "--listen", &address], "--listen"),
        (
            &[
                "serve",
                "--upstream",
                "http://127.0.0.1:1",
                "--listen",
                "127.0.0.1:0",
                "--admin-listen",
                &address,
            ],
            "--admin-listen",
        ),
    ] {
        let output = ended(arguments, &[]).await;
        assert_eq!(output.status.code(), Some(1));
        let told = format!(
            "another program listens there, perhaps `threadway demo` or another `threadway serve`: \
             stop it, or choose another address with {flag}\n"
        );
        assert!(stderr(&output).ends_with(&told), "{}", stderr(&output));
    }
}

#[tokio::test]
async fn each_command_tells_its_own_exit_codes() {
    for (command, own, other) in [
        ("serve", "1   the command failed while it ran", "the recording is incomplete"),
        ("check", "1   an upstream cannot be served", "the recording is incomplete"),
        ("translate", "2   the recording is incomplete", "with an upstream"),
    ] {
        let help = stdout(&ended(&[command, "--help"], &[]).await);
        assert!(help.contains(own) && !help.contains(other), "{command}:\n{help}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn serve_says_what_check_says_of_a_key() {
    let of_all = "THREADWAY_UPSTREAM_API_KEY, or `upstream.api_key` in the config file,";
    for status in [401, 403] {
        let server = Server::answering(status).await;
        let upstream = ["--upstream", &*server.url];
        let named = File::new(&format!("upstreams.local.url = \"{}\"", server.url));
        let named = ["--config", named.path()];
        let of_local = "`upstreams.local.api_key` in the config file";
        let key = [("THREADWAY_UPSTREAM_API_KEY", "s3cret")];
        for (options, variables, what, place) in [
            (upstream, &[][..], "requires a key", of_all),
            (upstream, &key, "refuses the key", of_all),
            (named, &[], "requires a key", of_local),
        ] {
            let told = |detail: &str| {
                format!(
                    "it {what} (the LangGraph server answered {status}{detail}); set {place} to a \
                     key that it accepts"
                )
            };
            let output = ended(&[&["check"][..], &options].concat(), variables).await;
            assert_eq!(output.status.code(), Some(1));
            assert!(stdout(&output).contains(&told(": no")), "{}", stdout(&output));
            let mut process = Process::start("serve", &options, variables).await;
            let line = process.says(&told("")).await;
            assert!(line.ends_with("; its agents are served once it accepts the key"), "{line}");
            assert!(!process.stop().await.contains("s3cret"));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_speaks_http_is_told_from_one_that_speaks_https() {
    // The gateway speaks plain http, as LangGraph does.
    let nobody = agents(&[("default", "http://127.0.0.1:1")], &[]);
    let (address, _stop, _serving) = serve(nobody, Limits::default()).await;
    let url = format!("https://{address}");
    let told = "the LangGraph server cannot be reached: it speaks http, not https; write its URL \
                with http://";
    let output = ended(&["check", "--upstream", &url], &[]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains(told), "{}", stdout(&output));
    let mut process = Process::serve(&["--upstream", &url]).await;
    process.says(told).await;
    process.stop().await;

    // A TLS server answers a plain-text request with an alert.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut alerting = JoinSet::new();
    alerting.spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut request = [0; 4096];
            let _ = socket.read(&mut request).await;
            let _ = socket.write_all(&[21, 3, 1, 0, 2, 2, 70]).await;
        }
    });
    let told = "its answer is not HTTP/1.1; if it speaks TLS, write its URL with https://";
    let output = ended(&["check", "--upstream", &url], &[]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains(told), "{}", stdout(&output));
}
