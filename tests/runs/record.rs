//! Recordings of runs, and their translation by `threadway translate`.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::gateway::{
    Gateway, RUN, Response, THREAD, input, part, run_request, token, values,
};
use crate::support::process::{File, Process};
use serde_json::{Value, json};
use threadway::runs::{DEFAULT_BYTES, DEFAULT_FILES, Recorder, Recording};

/// A temporary directory, and the recorder that writes to it.
struct Records {
    dir: PathBuf,
    recorder: Recorder,
}

impl Records {
    fn of(gateway: &Gateway) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(format!("threadway-runs-{process}-{count}"));
        let recording = Recording { dir: dir.clone(), files: DEFAULT_FILES, bytes: DEFAULT_BYTES };
        let recorder = Recorder::open(&recording).unwrap();
        gateway.server.record(recorder.clone());
        Self { dir, recorder }
    }

    /// The only recording.
    fn only(&self) -> String {
        self.recorder.finish();
        let name = format!("run-{RUN}.sse");
        let names = fs::read_dir(&self.dir).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(names.collect::<Vec<_>>(), [&*name]);
        fs::read_to_string(self.dir.join(name)).unwrap()
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Runs `threadway translate` on a recording.
fn translate(recording: &str, input: &Value) -> Output {
    let (recording, input) = (File::new(recording), File::new(&input.to_string()));
    Command::new(env!("CARGO_BIN_EXE_threadway"))
        .args(["translate", "--to", "agui", "--ndjson", "--input", input.path()])
        .args(["--thread-id", THREAD])
        .stdin(Stdio::from(fs::File::open(recording.path()).unwrap()))
        .output()
        .unwrap()
}

fn lines(output: &Output) -> Vec<Value> {
    let text = str::from_utf8(&output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn metadata() -> String {
    part("metadata", &json!({"run_id": RUN, "attempt": 1}))
}

#[tokio::test]
async fn a_recording_translates_to_what_the_client_was_told() {
    let gateway = Gateway::start().await;
    let records = Records::of(&gateway);
    let secret = "secret-of-a-caller-1234";
    let input = input(&["hi"]);
    let header = format!("authorization: Bearer {secret}\r\n");
    let request = run_request("agent", &header, &input.to_string());
    let (mut response, mut run) =
        tokio::join!(Response::to(gateway.address, request.as_bytes()), async {
            gateway.state(None).await;
            gateway.stream().await
        });
    let configurable = json!({"configurable": {"authorization": format!("Bearer {secret}")}});
    let mut sent = vec![
        metadata(),
        part("values", &values(&["hi"])),
        part("checkpoints", &json!({"config": configurable})),
        token("m1", "Hello "),
        token("m1", "world"),
        part("custom", &json!({"progress": 1})),
        part("values", &values(&["hi", "Hello world"])),
    ];
    for part in &sent {
        // An event that arrives in two pieces is recorded as one.
        let (head, tail) = part.split_at(part.len() / 2);
        run.send(head).await;
        run.send(tail).await;
    }
    run.end().await;
    gateway.record("success").await;
    let told = response.rest().await;
    assert_eq!(told.last().unwrap()["type"], "RUN_FINISHED");
    let recording = records.only();
    let translated = translate(&recording, &input);
    assert!(translated.status.success(), "{translated:?}");
    assert_eq!(lines(&translated), told);
    // The recording equals what was sent, without the secrets of the server.
    sent[2] = sent[2].replace(secret, "[redacted by threadway]");
    assert!(recording.contains(&sent.concat()), "{recording}");
    assert!(!recording.contains(secret));
}

#[tokio::test]
async fn a_recording_of_a_lost_connection_goes_on_where_it_was_joined_again() {
    let gateway = Gateway::start().await;
    let records = Records::of(&gateway);
    let (mut response, mut run) = gateway.run().await;
    run.send(format!("id: 1-0\r\n{}", metadata())).await;
    run.send(format!("id: 2-0\r\n{}", part("values", &values(&["hi"])))).await;
    run.send(format!("id: 3-0\r\n{}", token("m1", "Hello "))).await;
    run.send("id: 4-0\r\nevent: mess").await;
    while response.next(1).await[0]["type"] != "TEXT_MESSAGE_CONTENT" {}
    run.cut();
    // The part with the last id is sent again.
    let mut join = gateway.joined_behind("2-0").await;
    join.send(format!("id: 3-0\r\n{}", token("m1", "Hello "))).await;
    join.send(format!("id: 4-0\r\n{}", token("m1", "world"))).await;
    join.send(format!("id: 5-0\r\n{}", part("values", &values(&["hi", "Hello world"])))).await;
    join.end().await;
    gateway.record("success").await;
    let told = response.rest().await;
    assert_eq!(told.last().unwrap()["type"], "RUN_FINISHED");
    let recording = records.only();
    assert!(recording.contains(": threadway joined the run after 2-0"), "{recording}");
    assert!(!recording.contains("event: mess\n"), "{recording}");
    let translated = translate(&recording, &input(&["hi"]));
    assert!(translated.status.success(), "{translated:?}");
    let texts = lines(&translated);
    let texts = texts.iter().filter(|event| event["type"] == "TEXT_MESSAGE_CONTENT");
    let texts: Vec<_> = texts.map(|event| event["delta"].clone()).collect();
    assert_eq!(texts, ["Hello ", "world"]);
}

#[tokio::test]
async fn a_recording_that_the_end_of_the_gateway_cuts_is_not_whole() {
    let gateway = Gateway::start().await;
    let records = Records::of(&gateway);
    let (mut response, mut run) = gateway.run().await;
    run.send(metadata()).await;
    run.send(token("m1", "Hello ")).await;
    response.next(2).await;
    gateway.stop.cancel();
    response.rest().await;
    gateway.stopped().await;
    let recording = records.only();
    assert!(recording.ends_with("event: not-whole\n"), "{recording}");
    let translated = translate(&recording, &input(&["hi"]));
    assert_eq!(translated.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&translated.stderr).contains("the capture is incomplete"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_says_at_the_start_that_runs_are_recorded() {
    let dir = std::env::temp_dir().join(format!("threadway-records-{}", std::process::id()));
    let place = dir.to_str().unwrap();
    let options = ["--upstream", "http://127.0.0.1:1", "--record", place];
    let process = Process::serve(&options).await;
    let said = &process.said;
    assert!(said.contains("the files hold what users and models write"), "{said}");
    assert!(said.contains(place), "{said}");
    process.stop().await;
    // The directory's path is now a file, so it cannot be written to.
    fs::remove_dir_all(&dir).unwrap();
    fs::write(&dir, "a file").unwrap();
    let refused = Command::new(env!("CARGO_BIN_EXE_threadway"))
        .args(["serve", "--listen", "127.0.0.1:0"])
        .args(options)
        .output()
        .unwrap();
    fs::remove_file(&dir).unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--record"), "{refused:?}");
}
