//! The binary's warnings and refusals: about a LangGraph server that does not distinguish callers,
//! about non-loopback addresses, and about servers whose names would control a terminal.

use std::process::{Output, Stdio};

use crate::support::gateway::{Response, refused};
use crate::support::issuer::{AUDIENCE, ISSUER, Signer, key_set};
use crate::support::process::{File, PATIENCE, Process};
use crate::support::upstream::Upstream;
use tokio::task::JoinSet;

const ACCEPTS: &str = "the LangGraph server accepts invented credentials in authorization, so every \
                       caller sees every thread";

/// A LangGraph server that answers by itself: its `/info`, its assistants, and the status for
/// requests with credentials.
struct Server {
    url: String,
    _answering: JoinSet<()>,
}

impl Server {
    async fn answering(status: u16) -> Self {
        let info = r#"{"version":"0.16.7","langgraph_py_version":"1.2.22"}"#;
        Self::with(status, info, "agent").await
    }

    async fn with(status: u16, info: &'static str, graph: &'static str) -> Self {
        let upstream = Upstream::bind().await;
        let url = upstream.url();
        let assistants = format!(
            r#"[{{"assistant_id":"fe096781-5601-53d2-b2f6-0d3403f7e9ca","graph_id":"{graph}",
                 "name":"{graph}","metadata":{{"created_by":"system"}}}}]"#
        );
        let mut answering = JoinSet::new();
        answering.spawn(async move {
            loop {
                let exchange = upstream.accept().await;
                match &*exchange.line {
                    "GET /info" => exchange.json_if_there(200, info).await,
                    "POST /assistants/search" => exchange.json_if_there(status, &assistants).await,
                    _ => exchange.json_if_there(status, "[]").await,
                }
            }
        });
        Self { url, _answering: answering }
    }
}

/// Runs the binary to its end. A binary that serves instead is killed, and the test fails.
async fn ended(arguments: &[&str]) -> Output {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_threadway"));
    command.args(arguments).env_clear().stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let id = child.id().to_string();
    let ended = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap());
    let Ok(output) = tokio::time::timeout(PATIENCE, ended).await else {
        std::process::Command::new("kill").args(["-KILL", &id]).status().unwrap();
        panic!("{arguments:?} does not end");
    };
    output.unwrap()
}

/// Runs the binary to its end, and checks its code, and what it has said. Returns what it has said.
async fn ends(arguments: &[&str], code: i32, expected: &[&str]) -> String {
    let Output { status, stdout, stderr } = ended(arguments).await;
    let said = String::from_utf8([stdout, stderr].concat()).unwrap();
    assert_eq!(status.code(), Some(code), "{arguments:?}: {said}");
    for expected in expected {
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn check_fails_before_a_server_that_accepts_what_nobody_has() {
    let signer = Signer::ed25519("k");
    let keys = File::new(&key_set(&[&signer]));
    let jwt = format!(
        "--auth-mode jwt --auth-jwks {} --auth-issuer {ISSUER} --auth-audience {AUDIENCE}",
        keys.path()
    );
    for mode in ["--auth-mode upstream", &jwt] {
        for (status, code, expected) in [
            (200, 1, ACCEPTS),
            (401, 0, "which requires credentials of each caller"),
            (403, 0, "which requires credentials of each caller"),
            (500, 1, "could not check whether it refuses invented credentials"),
        ] {
            let server = Server::answering(status).await;
            let check = ["check", "--upstream", &server.url];
            let mode: Vec<_> = mode.split(' ').collect();
            ends(&[&check[..], &mode].concat(), code, &[expected]).await;
        }
    }
    // If the gateway authenticates callers itself, it does not probe the server.
    let server = Server::answering(200).await;
    ends(&["check", "--upstream", &server.url], 0, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn check_reports_each_address_of_an_upstream() {
    let (good, other) = (Server::answering(200).await, Server::answering(200).await);
    let away = Upstream::bind().await.url();
    for (second, code, expected) in [(&*other.url, 0, "1 agent"), (&*away, 1, "cannot be reached")]
    {
        let file = File::new(&format!("[upstream]\nurls = [\"{}\", \"{second}\"]\n", good.url));
        let said = ends(&["check", "--config", file.path()], code, &[]).await;
        let of = |url: &str| {
            let prefix = format!("upstream default ({url}): ");
            let mut lines = said.lines().filter_map(|line| line.strip_prefix(&*prefix));
            lines.next().unwrap_or_else(|| panic!("{url} is not in\n{said}")).to_owned()
        };
        assert!(of(&good.url).contains("1 agent"), "{said}");
        assert!(of(second).contains(expected), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn check_fails_if_one_address_accepts_what_nobody_has() {
    let (refuses, accepts) = (Server::answering(401).await, Server::answering(200).await);
    let urls = format!("urls = [\"{}\", \"{}\"]", refuses.url, accepts.url);
    let file = File::new(&format!("auth.mode = \"upstream\"\n[upstream]\n{urls}\n"));
    let said = ends(&["check", "--config", file.path()], 1, &[]).await;
    let accepting = said.lines().find(|line| line.contains(ACCEPTS));
    assert!(accepting.is_some_and(|line| line.contains(&accepts.url)), "{said}");
    // Nor does `serve` start where others can reach it.
    let options = ["serve", "--listen", "0.0.0.0:0", "--config", file.path()];
    ends(&options, 1, &[ACCEPTS]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn serve_refuses_or_warns_where_callers_are_not_told_apart() {
    let server = Server::answering(200).await;
    let mode = ["--upstream", &server.url, "--auth-mode", "upstream"];
    let serve = [&["serve", "--listen", "0.0.0.0:0"][..], &mode].concat();
    ends(&serve, 1, &[ACCEPTS, "or pass --insecure"]).await;
    for listen in [&["--listen", "0.0.0.0:0", "--insecure"][..], &["--listen", "127.0.0.1:0"]] {
        let mut process = Process::serve(&[listen, &mode].concat()).await;
        let line = process.says("callers are not distinguished").await;
        assert!(line.contains(ACCEPTS), "{line}");
        process.stop().await;
    }
    // An upstream that authenticates its callers causes no warning. Nor does its refusal to list
    // its agents.
    let server = Server::answering(401).await;
    let options = ["--upstream", &server.url, "--auth-mode", "upstream", "--listen", "0.0.0.0:0"];
    let mut process = Process::serve(&options).await;
    process.says("it requires credentials of each caller").await;
    let said = process.stop().await;
    assert!(!said.contains("not distinguished") && !said.contains("once it answers"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn serve_starts_before_its_upstream_and_lets_nobody_in() {
    let options =
        ["--upstream", "http://127.0.0.1:1", "--auth-mode", "upstream", "--listen", "0.0.0.0:0"];
    let process = Process::serve(&options).await;
    assert!(process.said.contains("it gets no requests of callers before"), "{}", process.said);
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], process.address.port()));
    let request = b"GET /agui/info HTTP/1.1\r\nhost: h\r\nx-api-key: a\r\n\r\n";
    let mut response = Response::to(address, request).await;
    let (status, body) = refused(&mut response).await;
    assert!(status.contains(" 503 ") && body.contains("auth_unproven"), "{status} {body}");
    process.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_that_strangers_reach_need_a_permission() {
    let server = Server::answering(200).await;
    for (arguments, expected) in [
        (
            &["serve", "--upstream", &server.url, "--admin-listen", "0.0.0.0:0"][..],
            "--admin-listen (THREADWAY_ADMIN_LISTEN) is 0.0.0.0:0; expected a loopback address",
        ),
        (
            &["demo", "--listen", "0.0.0.0:0"],
            "--listen (THREADWAY_LISTEN) is 0.0.0.0:0; expected a loopback address",
        ),
        (
            &["demo", "--listen", "127.0.0.1:0", "--langgraph-listen", "[::]:0"],
            "--langgraph-listen is [::]:0; expected a loopback address",
        ),
    ] {
        ends(arguments, 64, &[expected]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_for_others_open_nothing_else() {
    let metrics = ["--admin-listen", "0.0.0.0:0", "--admin-insecure"];
    let mode = ["--listen", "0.0.0.0:0", "--auth-mode", "upstream"];
    let open = Server::answering(200).await;
    let upstream = ["--upstream", &*open.url];
    let serve = [&["serve"][..], &upstream, &mode, &metrics].concat();
    ends(&serve, 1, &[ACCEPTS, "or pass --insecure"]).await;
    // The other permission does not open the metrics.
    let other = ["serve", "--admin-listen", "0.0.0.0:0", "--insecure"];
    ends(&[&other[..], &upstream].concat(), 64, &["or pass --admin-insecure"]).await;

    let guarded = Server::answering(401).await;
    let upstream = ["--upstream", &*guarded.url];
    let mut process = Process::serve(&[&upstream[..], &mode, &metrics].concat()).await;
    let admin = process.address_behind("admin: metrics on http://").await;
    let request = b"GET /metrics HTTP/1.1\r\nhost: h\r\n\r\n";
    let mut response = Response::to(admin, request).await;
    assert!(response.head.starts_with("HTTP/1.1 200 "), "{}", response.head);
    assert!(response.body().await.contains("threadway_open_connections"));
    let request = b"GET /agui/info HTTP/1.1\r\nhost: h\r\nx-api-key: invented\r\n\r\n";
    let mut response = Response::to(process.address, request).await;
    let (status, body) = refused(&mut response).await;
    assert!(status.contains(" 401 "), "{status} {body}");
    let said = process.stop().await;
    let warning = "anyone who can reach this address can read the metrics: --admin-insecure";
    assert!(said.contains(warning), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn server_cannot_control_the_terminal_by_its_names() {
    let info =
        r#"{"version":"\u001b]0;owned\u0007\r\nthreadway: fine","langgraph_py_version":"1"}"#;
    let server = Server::with(200, info, r"a\u001b[2J\r\nthreadway: listening\u202e").await;
    let output = ended(&["check", "--upstream", &server.url]).await;
    let said = String::from_utf8(output.stdout).unwrap();
    let is_harmful = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    assert!(!said.contains(is_harmful) && said.lines().count() == 1, "{said:?}");
    assert!(said.contains(r"\u{1b}]0;owned\u{7}\r\nthreadway: fine"), "{said:?}");
    let mut process = Process::serve(&["--upstream", &server.url]).await;
    process.says("CopilotKit: runtimeUrl").await;
    let said = process.stop().await;
    assert!(said.contains(r"agent a\u{1b}[2J\r\nthreadway: listening\u{202e}: POST"), "{said:?}");
    assert!(!said.contains("\u{1b}[2J") && !said.contains('\u{202e}'), "{said:?}");
}
