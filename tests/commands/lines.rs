//! The lines that commands print whatever the log filter is: their format, and their URLs.

use serde_json::Value;

use crate::first_steps::{Server, ended, stderr, stdout};
use crate::support::gateway::Response;
use crate::support::process::{File, Process};
use tokio::net::TcpListener;

const AWAY: &str = "http://127.0.0.1:1";

/// The lines of a text, each a JSON object with the fields of a log line.
fn objects(text: &str) -> Vec<Value> {
    let object = |line| {
        let object: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}\n{text}"));
        for field in ["timestamp", "level", "message", "target"] {
            assert!(object[field].is_string(), "{field} in {line}");
        }
        object
    };
    text.lines().map(object).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn with_json_every_line_is_json_from_the_first_to_the_last() {
    let server = Server::answering(200).await;
    let strange = Server::answering(404).await;
    let file = File::new(&format!(
        "log = \"info,json\"\nadmin_listen = \"127.0.0.1:0\"\n\
         cors.origins = [\"http://localhost:3000\"]\nupstreams.a.url = \"{}\"\n\
         upstreams.b.urls = [\"{}\", \"{AWAY}\"]\nupstreams.c.url = \"{AWAY}\"\n",
        server.url, strange.url
    ));
    let upstream = ["--upstream", &*server.url];
    let last = "CopilotKit: runtimeUrl";
    for (command, options, variables, last) in [
        ("serve", &["--config", file.path()][..], &[][..], last),
        ("serve", &[&upstream[..], &["--log", "warn,json"]].concat(), &[], last),
        ("serve", &upstream, &[("THREADWAY_LOG", "json")], last),
        ("demo", &["--log", "json"], &[], "editors: threadway acp"),
    ] {
        let mut process = Process::start(command, options, variables).await;
        process.says(last).await;
        let said = process.stop().await;
        let lines = objects(&said);
        assert!(lines.len() >= 3, "{said}");
        let listening = lines.iter().find(|line| {
            line["message"].as_str().unwrap().starts_with("listening on http://127.0.0.1:")
        });
        let listening = listening.unwrap_or_else(|| panic!("{said}"));
        assert_eq!(
            (&listening["level"], &listening["target"]),
            (&"INFO".into(), &"threadway".into())
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_json_a_command_that_fails_says_so_in_json() {
    let server = Server::answering(200).await;
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let mistaken =
        File::new(&format!("log = \"json\"\nlisten = \"x\"\nupstream.url = \"{AWAY}\"\n"));
    let mistaken = ["--config", mistaken.path()];
    let by_flag = ["--log", "json"];
    let by_variable = [("THREADWAY_LOG", "json")];
    let misspelt = [("THREADWAY_LOG", "json"), ("THREADWAY_LISTN", "1")];
    let upstream = ["--upstream", AWAY];
    for (command, options, variables, code) in [
        // What clap refuses.
        ("serve", &[&["--bogus"][..], &by_flag].concat()[..], &[][..], 64),
        ("serve", &["--log=warn,json", "--bogus"], &[], 64),
        ("serve", &["--bogus"], &by_variable, 64),
        ("nonsense", &[], &by_variable, 64),
        ("watch", &[], &by_variable, 64),
        // What the configuration refuses.
        ("serve", &by_flag, &[], 64),
        ("serve", &["--log", "json,json"], &[], 64),
        ("serve", &mistaken, &[], 64),
        ("check", &mistaken, &[], 64),
        ("acp", &mistaken, &[], 64),
        ("serve", &upstream, &misspelt, 64),
        ("demo", &["--listen", "x"], &by_variable, 64),
        // What fails later.
        ("serve", &[&upstream[..], &by_flag, &["--listen", &taken]].concat(), &[], 1),
        ("demo", &["--listen", &taken], &by_variable, 1),
        ("acp", &[&["--login"][..], &by_flag, &upstream].concat(), &[], 64),
        ("acp", &["--gateway", "x"], &by_variable, 64),
        ("watch", &["T", "--once", "--gateway", AWAY], &by_variable, 1),
        ("translate", &["--to", "acp", "--input", "x"], &by_variable, 64),
        ("translate", &["--to", "agui"], &by_variable, 2),
        ("man", &["nonsense"], &by_variable, 64),
    ] {
        let arguments = [&[command][..], options].concat();
        let output = ended(&arguments, variables).await;
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        let lines = objects(&said);
        assert!(lines.iter().any(|line| line["level"] == "ERROR"), "{arguments:?}: {said}");
    }
    for (url, code, level) in [(&*server.url, 0, "INFO"), (AWAY, 1, "ERROR")] {
        let output = ended(&["check", "--upstream", url, "--log", "json"], &[]).await;
        assert_eq!(output.status.code(), Some(code));
        objects(&stderr(&output));
        let report = objects(&stdout(&output));
        assert!(!report.is_empty() && report.iter().all(|line| line["level"] == level));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn on_all_addresses_the_printed_urls_are_ones_that_a_browser_can_open() {
    let server = Server::answering(200).await;
    for (all, one) in [("0.0.0.0:0", "127.0.0.1"), ("[::]:0", "[::1]")] {
        let listen = ["--listen", all, "--insecure"];
        let admin = ["--admin-listen", all, "--admin-insecure"];
        let serve = [&["--upstream", &server.url, "--page"][..], &listen, &admin].concat();
        let demo = [&listen[..], &["--langgraph-listen", all]].concat();
        for (command, options, last) in
            [("serve", serve, "CopilotKit: runtimeUrl"), ("demo", demo, "editors: threadway acp")]
        {
            let mut process = Process::start(command, &options, &[]).await;
            process.says(last).await;
            let address = process.address;
            let said = process.stop().await;
            let listening =
                format!("listening on http://{one}:{} (and on all other", address.port());
            assert!(said.contains(&listening), "{said}");
            assert!(said.contains(&format!("page: http://{one}:{}/\n", address.port())), "{said}");
            assert!(!said.contains(&format!("http://{}", &all[..all.len() - 1])), "{said}");
        }
    }
    // The URL answers.
    let process = Process::start("demo", &["--listen", "0.0.0.0:0", "--insecure"], &[]).await;
    let request = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let response = Response::to(process.address, request).await;
    assert!(response.head.starts_with("HTTP/1.1 200 "), "{}", response.head);
    process.stop().await;
}

// === the limit of open files ===

/// Serves under `ulimit` with these options. Returns what is printed up to the address, and the
/// process's limits of open files: the soft one and the hard one.
#[cfg(target_os = "linux")]
fn serves_under(ulimit: &str) -> (String, Vec<u64>) {
    use std::io::{BufRead, BufReader};
    let script = format!(
        "ulimit {ulimit} && exec \"$0\" serve --upstream http://127.0.0.1:9 --listen 127.0.0.1:0 \
         --limit-connections 300"
    );
    let mut child = std::process::Command::new("sh")
        .args(["-c", &script, env!("CARGO_BIN_EXE_threadway")])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    while !said.contains("listening on") {
        assert_ne!(lines.read_line(&mut said).unwrap(), 0, "{said}");
    }
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    (said, line.split_whitespace().filter_map(|word| word.parse().ok()).collect())
}

#[cfg(target_os = "linux")]
#[test]
fn the_limit_of_open_files_is_raised_and_one_that_is_too_low_is_named_once() {
    let (said, limits) = serves_under("-Sn 64 && ulimit -Hn 1000");
    assert_eq!(limits, [1000, 1000]);
    assert!(!said.contains("limits.connections"), "{said}");
    let (said, limits) = serves_under("-n 500");
    assert_eq!(limits, [500, 500]);
    let warning = "the process may open 500 files, and `limits.connections` needs 600";
    assert_eq!(said.matches(warning).count(), 1, "{said}");
}

// === the demo ===

#[tokio::test]
async fn the_demos_own_langgraph_answers_to_no_name_that_a_web_site_could_own() {
    let mut demo = Process::start("demo", &[], &[]).await;
    let langgraph = demo.address_behind("LangGraph's own API is at http://").await;
    for (host, status) in [
        (langgraph.to_string(), "200"),
        (format!("localhost:{}", langgraph.port()), "200"),
        ("127.0.0.1".to_owned(), "200"),
        ("localhost".to_owned(), "200"),
        ("evil.example".to_owned(), "403"),
        (format!("evil.example:{}", langgraph.port()), "403"),
    ] {
        let request = format!("GET /ok HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        let response = Response::to(langgraph, request.as_bytes()).await;
        let expected = format!("HTTP/1.1 {status} ");
        assert!(response.head.starts_with(&expected), "{host}: {}", response.head);
    }
}
