//! Reloading the configuration: what changes, what stays, and the effect of a mistake.

#![cfg(test)]
use crate::support::gateway::{RUN, Response, THREAD, input, token};
use crate::support::process::{File, Process};
use crate::support::upstream::{Exchange, Upstream};

const KEY: &str = "0123456789abcdef0123456789abcdef";

fn open(upstream: &Upstream) -> String {
    format!("upstream.url = \"{}\"\nauth.mode = \"none\"\n", upstream.url())
}

fn closed(upstream: &Upstream) -> String {
    let url = upstream.url();
    format!("upstream.url = \"{url}\"\nauth = {{ mode = \"bearer\", keys.a = \"{KEY}\" }}\n")
}

/// A gateway in front of a scripted upstream, and its configuration file.
async fn serve(options: &[&str]) -> (Process, Upstream, File) {
    let upstream = Upstream::bind().await;
    let file = File::new(&open(&upstream));
    let options = [&["--config", file.path()], options].concat();
    let (process, list) =
        tokio::join!(Process::serve(&options), upstream.expect("POST /assistants/search"));
    list.json(200, "[]").await;
    (process, upstream, file)
}

/// Begins a run; the client has its first event.
async fn run(process: &Process, upstream: &Upstream) -> (Response, Exchange) {
    let body = input(&["hi"]).to_string();
    let request = format!(
        "POST /agui/agent/agent/run HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let (mut response, exchange) =
        tokio::join!(Response::to(process.address, request.as_bytes()), async {
            let state = upstream.expect(&format!("GET /threads/{THREAD}/state")).await;
            state.json(404, "{}").await;
            let mut post = upstream.expect(&format!("POST /threads/{THREAD}/runs/stream")).await;
            post.begin(&format!("content-location: /threads/{THREAD}/runs/{RUN}\r\n")).await;
            post
        });
    assert_eq!(response.next(1).await[0]["type"], "RUN_STARTED");
    (response, exchange)
}

/// The status of a request that is answered without the upstream.
async fn status(process: &Process, headers: &str) -> String {
    let request = format!("POST /agui HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n");
    let response = Response::to(process.address, request.as_bytes()).await;
    response.head.split(' ').nth(1).unwrap().to_owned()
}

#[tokio::test]
async fn a_hangup_changes_who_may_call_and_no_stream() {
    let (mut process, upstream, file) = serve(&[]).await;
    let (mut stream, mut run) = run(&process, &upstream).await;
    // The request has no `content-type`, which is checked only after authentication.
    assert_eq!(status(&process, "").await, "415");
    file.write(&closed(&upstream));
    process.signal("-HUP");
    let told = process.says("configuration reloaded").await;
    assert!(told.contains("auth.keys.a, auth.mode") && !told.contains(KEY), "{told}");
    assert_eq!(status(&process, "").await, "401");
    assert_eq!(status(&process, &format!("authorization: Bearer {KEY}\r\n")).await, "415");
    run.send(token("m", "still here")).await;
    assert_eq!(stream.next(2).await[1]["delta"], "still here");

    file.write("auth.mode = \"everybody\"\n");
    process.signal("-HUP");
    let told = process.says("the new configuration is invalid; the old one stays in use").await;
    assert!(told.contains("--upstream"), "{told}");
    let told = process.says("the new configuration is invalid").await;
    assert!(told.contains("everybody; expected `none` or `bearer`"), "{told}");
    assert_eq!(status(&process, "").await, "401");

    file.write(
        &(open(&upstream)
            + "listen = \"127.0.0.1:1\"\nlimits.log_bytes = 1\n\
        limits.state_reads_per_second = 5\n"),
    );
    process.signal("-HUP");
    for key in ["limits.log_bytes", "limits.state_reads_per_second"] {
        let told = process.says("the change of this key takes effect after a restart").await;
        assert!(told.contains(key), "{told}");
    }
    process.says("configuration reloaded").await;
    assert_eq!(status(&process, "").await, "415");
    run.send(token("m", ", and here")).await;
    assert_eq!(stream.next(1).await[0]["delta"], ", and here");
    process.stop().await;
}

#[tokio::test]
async fn a_hangup_changes_the_key_that_messages_go_up_under() {
    let (mut process, upstream, file) = serve(&[]).await;
    let (_first, exchange) = run(&process, &upstream).await;
    assert!(exchange.body.contains(r#""input":{"messages":["#), "{}", exchange.body);
    file.write(&(open(&upstream) + "upstream.messages_key = \"chat_history\"\n"));
    process.signal("-HUP");
    process.says("configuration reloaded").await;
    let (_second, later) = run(&process, &upstream).await;
    assert!(later.body.contains(r#""input":{"chat_history":["#), "{}", later.body);
    process.stop().await;
}

#[tokio::test]
async fn a_file_that_changes_is_read_again_where_that_is_asked_for() {
    let upstream = Upstream::bind().await;
    let keys = File::new(&format!("a={KEY}\n"));
    let url = upstream.url();
    let file = File::new(&format!(
        "upstream.url = \"{url}\"\nwatch_config = true\nauth = {{ mode = \"bearer\", keys_file = \
         \"{}\" }}\n",
        keys.path()
    ));
    let mut process = Process::serve(&["--config", file.path()]).await;
    let other = KEY.replace('0', "f");
    let shown = format!("authorization: Bearer {other}\r\n");
    assert_eq!(status(&process, &shown).await, "401");
    keys.write(&format!("a={KEY}\nbeside={other}\n"));
    let told = process.says("configuration reloaded").await;
    assert!(told.contains("no key; the files that keys name were read too"), "{told}");
    assert_eq!(status(&process, &shown).await, "415");
    keys.write("a=short\n");
    let told = process.says("the new configuration is invalid").await;
    assert!(!told.contains("short"), "{told}");
    assert_eq!(status(&process, &shown).await, "415");
    process.stop().await;
}

#[tokio::test]
async fn others_are_not_listened_for_unless_something_asks_who_they_are() {
    let upstream = Upstream::bind().await;
    let url = upstream.url();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_threadway"))
        .args(["serve", "--upstream", &url, "--listen", "0.0.0.0:0"])
        .env_clear()
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(64));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(
        told.contains("--listen (THREADWAY_LISTEN) is 0.0.0.0:0; expected a loopback"),
        "{told}"
    );

    let options = ["--upstream", &url, "--listen", "0.0.0.0:0", "--insecure"];
    let process = Process::serve(&options).await;
    let said = process.stop().await;
    assert!(
        said.contains("anyone who can reach this address can use the agents: --insecure"),
        "{said}"
    );
    // On loopback it is nothing special.
    let process = Process::serve(&["--upstream", &url, "--insecure"]).await;
    assert!(!process.stop().await.contains("--insecure"));
}

#[tokio::test]
async fn who_lets_pages_in_is_asked_about_their_system_messages() {
    let upstream = Upstream::bind().await;
    let url = upstream.url();
    let cors = "[cors]\norigins = [\"https://chat.example.com\"]\n";
    let question = "choose --system-messages drop to leave these messages out, or \
                    --system-messages send to allow them (`input.system_messages`";
    for (file, flags, is_asked) in [
        (String::new(), &[][..], false),
        (cors.to_owned(), &[], true),
        (cors.to_owned(), &["--system-messages", "drop"], false),
        (cors.to_owned(), &["--system-messages", "send"], false),
        (format!("input.system_messages = \"send\"\n{cors}"), &[], false),
        (
            format!("auth = {{mode = \"bearer\", keys.a = \"0123456789abcdef\"}}\n{cors}"),
            &[],
            false,
        ),
    ] {
        let path = File::new(&file);
        let options = [&["--upstream", &url, "--config", path.path()], flags].concat();
        let process = Process::serve(&options).await;
        let said = process.stop().await;
        assert_eq!(said.contains(question), is_asked, "{file} {flags:?}\n{said}");
    }
}
