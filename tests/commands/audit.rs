//! The audit log of a process: SIGHUP reopens the file, and a log line reports when it cannot be
//! written.

use std::fs;
use std::process::Command;

use crate::support::gateway::Response;
use crate::support::process::{File, PATIENCE, Process};
use crate::support::upstream::Upstream;

/// A process with an audit log, after one refusal.
async fn refused(upstream: &Upstream, audit_log: &str) -> Process {
    let process = Process::serve(&["--upstream", &upstream.url(), "--audit-log", audit_log]).await;
    refuse(&process).await;
    process
}

/// Sends a run that is refused.
async fn refuse(process: &Process) {
    let request =
        b"POST /agui/agent/a/run HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n";
    let response = Response::to(process.address, request).await;
    assert!(response.head.starts_with("HTTP/1.1 415"), "{}", response.head);
}

fn lines(path: &str) -> usize {
    fs::read_to_string(path).unwrap().lines().filter(|line| line.contains("not_json")).count()
}

/// Waits until the file has the line of the first refusal, so that the test can rename the file.
async fn first_line(file: &File) {
    let written = async {
        while lines(file.path()) == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, written).await.expect("the line is not written");
}

#[tokio::test]
async fn a_hangup_opens_the_file_anew() {
    let (upstream, file) = (Upstream::bind().await, File::new(""));
    fs::remove_file(&file.0).unwrap();
    let mut process = refused(&upstream, file.path()).await;
    first_line(&file).await;
    let moved = File::new("");
    fs::rename(&file.0, &moved.0).unwrap();
    process.signal("-HUP");
    process.says("reopened the audit log").await;
    refuse(&process).await;
    refuse(&process).await;
    let said = process.stop().await;
    assert_eq!((lines(moved.path()), lines(file.path())), (1, 2), "{said}");
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&file.0).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn a_file_that_cannot_be_opened_again_stays_in_use() {
    let (upstream, file) = (Upstream::bind().await, File::new(""));
    let mut process = refused(&upstream, file.path()).await;
    first_line(&file).await;
    let moved = File::new("");
    fs::rename(&file.0, &moved.0).unwrap();
    fs::create_dir(&file.0).unwrap();
    process.signal("-HUP");
    process.says("could not reopen the audit log").await;
    refuse(&process).await;
    let said = process.stop().await;
    fs::remove_dir(&file.0).unwrap();
    assert_eq!(lines(moved.path()), 2, "{said}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_log_says_when_lines_are_lost() {
    let upstream = Upstream::bind().await;
    let mut process = refused(&upstream, "/dev/full").await;
    let said = process.says("could not write to the audit log: lines are dropped").await;
    assert!(said.contains("ERROR") && said.contains("/dev/full"), "{said}");
    // The request was answered, and so is the next one.
    refuse(&process).await;
    process.stop().await;
}

#[tokio::test]
async fn stderr_has_the_lines_where_it_is_asked_for() {
    let upstream = Upstream::bind().await;
    let mut process = refused(&upstream, "stderr").await;
    let said = process.says(r#""action":"run","outcome":"refused","status":415"#).await;
    assert!(said.starts_with(r#"{"time":""#), "{said}");
    process.stop().await;
}

#[test]
fn a_file_that_cannot_be_written_ends_the_start() {
    let output = Command::new(env!("CARGO_BIN_EXE_threadway"))
        .args(["serve", "--upstream", "http://127.0.0.1:9", "--audit-log", "/no/such/folder/a"])
        .env_clear()
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("is /no/such/folder/a; expected a place that can be written"), "{said}");
}
