//! What the log tells: of a run one line, without what was said in it; of what an operator is to
//! mend, a warning.

#![cfg(test)]

mod support;

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use support::gateway::{Gateway, RUN, Response, THREAD, input, part, token, values};
use tracing::Level;
use tracing::subscriber::DefaultGuard;

/// What was logged.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    /// What this thread logs up to a level, while the guard is kept.
    fn up_to(level: Level) -> (Self, DefaultGuard) {
        let lines = Self::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .with_max_level(level)
            .with_writer(move || writer.clone())
            .finish();
        (lines, tracing::subscriber::set_default(subscriber))
    }

    /// The lines with this message, each a JSON object.
    fn with(&self, message: &str) -> Vec<Value> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line["message"] == message).collect()
    }
}

#[tokio::test]
async fn a_run_is_one_line_that_tells_nothing_that_was_said() {
    let (lines, _logging) = Lines::up_to(Level::TRACE);
    let gateway = Gateway::start().await;

    let (mut response, mut run) = gateway.run().await;
    let sent = [
        token("a", "s3cret"),
        part("values", &values(&["hi", "s3cret"])),
        part("error", &json!({"error": "ValueError", "message": "s3cret"})),
    ];
    for part in &sent {
        run.send(part).await;
    }
    run.end().await;
    gateway.status("error").await;
    gateway.state(Some(json!({"values": values(&["hi"]), "metadata": {"run_id": RUN}}))).await;
    assert!(response.body().await.contains("RUN_ERROR"));
    gateway.settled().await;

    let ended = lines.with("run ended");
    let [line] = &*ended else { panic!("{ended:#?}") };
    assert_eq!(line["level"], "INFO");
    for (field, value) in [
        ("thread_id", json!(THREAD)),
        ("run_id", json!(RUN)),
        ("outcome", json!("failed")),
        ("code", json!("ValueError")),
        ("bytes", json!(sent.iter().map(String::len).sum::<usize>())),
    ] {
        assert_eq!(line[field], value, "{field} in {line}");
    }
    assert!(line["events"].as_u64().unwrap() > 3, "{line}");
    assert!((0.0..60.0).contains(&line["seconds"].as_f64().unwrap()), "{line}");
    // hyper and the like are not ours to silence, and the gateway logs below `info` too.
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let ours = text.lines().filter(|line| line.contains(r#""target":"threadway"#));
    for line in ours {
        assert!(!line.contains("s3cret"), "{line}");
    }
}

#[tokio::test]
async fn a_page_that_is_refused_is_one_line_for_the_operator() {
    let (lines, _logging) = Lines::up_to(Level::INFO);
    let gateway = Gateway::start().await;
    // Whoever opens a page can have its browser ask as often as it likes.
    for _ in 0..3 {
        let request =
            "GET /agui/info HTTP/1.1\r\nhost: evil.example\r\norigin: http://evil.example\r\n\r\n";
        let response = Response::to(gateway.address, request.as_bytes()).await;
        assert!(response.head.starts_with("HTTP/1.1 403 "), "{}", response.head);
    }
    let message = "a request was refused as a web page's; for wrong_host add the name to `hosts`, \
                   for cross_origin the origin to `cors.origins`";
    let told = lines.with(message);
    assert_eq!(told.len(), 1, "{told:#?}");
    assert_eq!((&told[0]["level"], &told[0]["code"]), (&json!("WARN"), &json!("wrong_host")));
    assert!(!told[0].to_string().contains("evil"), "{}", told[0]);
}

#[tokio::test]
async fn an_agent_whose_keys_cannot_be_read_is_a_warning() {
    let (lines, _logging) = Lines::up_to(Level::INFO);
    let gateway = Gateway::start().await;
    let mut input = input(&["hi"]);
    input["tools"] = json!([{"name": "paint", "description": "Paints", "parameters": {}}]);
    let script = async {
        gateway.state(None).await;
        let search = gateway.upstream.expect("POST /assistants/search").await;
        search.json(500, r#"{"detail":"boom"}"#).await;
        let run = gateway.stream().await;
        let body: Value = serde_json::from_str(&run.body).unwrap();
        let sent = json!([{"type": "human", "id": "m0", "content": "hi"}]);
        assert_eq!(body["input"], json!({"messages": sent}));
        run.end().await;
        gateway.record("interrupted").await;
    };
    let (mut response, ()) = tokio::join!(gateway.post(&input), script);
    response.body().await;
    let message = "only messages go up to this agent: what else it takes is not known";
    let warned = lines.with(message);
    assert_eq!(warned.len(), 1, "{warned:#?}");
    assert_eq!((&warned[0]["level"], &warned[0]["agent"]), (&json!("WARN"), &json!("agent")));
}
