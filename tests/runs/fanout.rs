//! Several readers of one run: what each receives, whenever it joins, leaves or falls too far back.

use std::collections::BTreeMap;

use crate::support::capture::{newcomer, project};
use crate::support::gateway::{RUN, THREAD, part, token, values};
use crate::support::judge;
use crate::support::schema::Schema;
use crate::support::upstream::{Exchange, Upstream};
use serde_json::{Value, json};
use threadway::metrics::Metrics;
use threadway::runs::{DEFAULT_LOG_BYTES, LINGER, OwnerPolicy, RunReader, Runs};
use threadway::upstream::Client;
use threadway_translate::agui::Projector;
use threadway_translate::langgraph::Capabilities;
use threadway_translate::run::{RunEvent, View};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The runs of one replica, in front of a scripted upstream.
struct Replica {
    upstream: Upstream,
    client: Client,
    runs: Runs,
}

/// A reader of a run, and the events that it received.
struct Viewer {
    reader: RunReader,
    told: Vec<RunEvent>,
}

// === impl Replica ===

impl Replica {
    async fn start() -> Self {
        Self::with(DEFAULT_LOG_BYTES).await
    }

    async fn with(log_bytes: usize) -> Self {
        let upstream = Upstream::bind().await;
        let client = Client::new(upstream.url().parse().unwrap(), None).unwrap();
        Self {
            upstream,
            client,
            runs: Runs::new(
                log_bytes,
                OwnerPolicy::Continue,
                Metrics::default(),
                CancellationToken::new(),
            ),
        }
    }

    /// A run that has begun, and its first viewer.
    async fn run(&self) -> (Viewer, Exchange) {
        let path = format!("GET /threads/{THREAD}/runs/{RUN}/stream");
        let (stream, run) = tokio::join!(self.client.join_run(THREAD, RUN, "-1"), async {
            let mut run = self.upstream.expect(&path).await;
            run.begin("").await;
            run
        });
        let reader = self.runs.started(
            self.client.clone(),
            Capabilities::default(),
            THREAD,
            "r1",
            stream.unwrap(),
        );
        (Viewer { reader, told: Vec::new() }, run)
    }

    fn attach(&self) -> Viewer {
        Viewer { reader: self.runs.attach(&self.client, THREAD, RUN).unwrap(), told: Vec::new() }
    }

    /// Checks that the run was stopped and all its resources were released.
    async fn stopped(&self) {
        let record = self.upstream.expect(&format!("GET /threads/{THREAD}/runs/{RUN}")).await;
        self.answer_stopped(record).await;
    }

    async fn answer_stopped(&self, record: Exchange) {
        record.json(200, &json!({"run_id": RUN, "status": "interrupted"}).to_string()).await;
        let state = self.upstream.expect(&format!("GET /threads/{THREAD}/state")).await;
        state.json(404, "{}").await;
    }
}

// === impl Viewer ===

impl Viewer {
    /// Reads once; returns the client's events.
    async fn next(&mut self) -> Vec<Value> {
        let events = self.reader.next().await.unwrap();
        let before = self.wire().len();
        self.told.extend(events.iter().cloned());
        self.wire().split_off(before)
    }

    /// Reads to the end, and checks that the stream is legal and closes all brackets.
    async fn end(&mut self) -> Value {
        while let Some(events) = self.reader.next().await {
            self.told.extend(events.iter().cloned());
        }
        let wire = self.wire();
        judge::closed(&Schema::load(), &wire).unwrap();
        wire.last().unwrap().clone()
    }

    fn wire(&self) -> Vec<Value> {
        project(&self.told, Projector::new(newcomer(), Vec::new())).events
    }

    /// The messages that the client holds.
    fn messages(&self) -> BTreeMap<String, String> {
        let mut view = View::default();
        self.told.iter().for_each(|event| view.apply(event));
        let told = RunEvent::Messages(view.messages().into());
        let wire = project(&[told], Projector::new(newcomer(), Vec::new())).events;
        let messages = wire[0]["messages"].as_array().unwrap();
        messages.iter().map(|m| (judge::string(&m["id"]), judge::string(&m["content"]))).collect()
    }

    fn streamed(&self) -> BTreeMap<String, String> {
        judge::streamed_text(&self.wire())
    }
}

fn texts(texts: &[(&str, &str)]) -> BTreeMap<String, String> {
    texts.iter().map(|(id, text)| ((*id).to_owned(), (*text).to_owned())).collect()
}

fn base() -> String {
    let mut values = values(&["hi"]);
    values["count"] = json!(1);
    part("values", &values)
}

/// A state with this answer.
fn committed(answer: &str) -> String {
    let messages = json!([
        {"id": "m0", "type": "human", "content": "hi"},
        {"id": "a", "type": "ai", "content": answer},
    ]);
    part("values", &json!({"messages": messages, "count": 2}))
}

#[tokio::test]
async fn all_readers_come_to_the_same_end_whenever_they_came() {
    let replica = Replica::start().await;
    let (mut first, mut run) = replica.run().await;
    let mut viewers = vec![replica.attach()];
    viewers[0].next().await;
    first.next().await;
    for sent in [base(), token("a", "one "), token("a", "two "), token("a", "three")] {
        run.send(&sent).await;
        first.next().await;
        let mut viewer = replica.attach();
        viewer.next().await;
        viewers.push(viewer);
    }
    run.send(committed("one two three!")).await;
    first.next().await;
    run.end().await;
    let record = replica.upstream.expect(&format!("GET /threads/{THREAD}/runs/{RUN}")).await;
    viewers.push(replica.attach());
    replica.answer_stopped(record).await;

    viewers.push(first);
    for viewer in &mut viewers {
        assert_eq!(viewer.end().await["outcome"], json!({"type": "cancelled"}));
        assert_eq!(viewer.messages(), texts(&[("m0", "hi"), ("a", "one two three!")]));
    }
    let streamed: Vec<_> = viewers.iter().map(Viewer::streamed).collect();
    let whole = "one two three!";
    let seen = [whole, whole, "two three!", "three!", "!"].map(|text| texts(&[("a", text)]));
    assert_eq!(streamed[..5], seen);
    assert_eq!(streamed[5..], [texts(&[]), texts(&[("a", whole)])]);
}

#[tokio::test]
async fn one_who_comes_in_the_middle_of_a_message_gets_the_half_at_once_and_then_the_rest() {
    let replica = Replica::start().await;
    let (mut first, mut run) = replica.run().await;
    first.next().await;
    for sent in [base(), token("a", "one "), token("a", "two ")] {
        run.send(sent).await;
        first.next().await;
    }
    let mut late = replica.attach();
    let conversation = json!([
        {"id": "m0", "role": "user", "content": "hi"},
        {"id": "a", "role": "assistant", "content": "one two "},
    ]);
    assert_eq!(
        json!(late.next().await),
        json!([
            {"type": "RUN_STARTED", "threadId": "T", "runId": "r1", "protocolVersion": "1.0",
             "metadata": {"langgraph": {"thread_id": THREAD, "run_id": RUN}}},
            {"type": "STATE_SNAPSHOT", "snapshot": {"count": 1}},
            {"type": "MESSAGES_SNAPSHOT", "messages": conversation},
            {"type": "TEXT_MESSAGE_START", "messageId": "a", "role": "assistant"},
        ])
    );
    run.send(token("a", "three")).await;
    let rest = json!([{"type": "TEXT_MESSAGE_CONTENT", "messageId": "a", "delta": "three"}]);
    assert_eq!(json!(late.next().await), rest);
    assert_eq!(json!(first.next().await), rest);
    run.send(committed("one two three")).await;
    run.end().await;
    replica.stopped().await;
    for viewer in [&mut first, &mut late] {
        viewer.end().await;
        assert_eq!(viewer.messages(), texts(&[("m0", "hi"), ("a", "one two three")]));
    }
    assert_eq!(late.streamed(), texts(&[("a", "three")]));
}

#[tokio::test]
async fn one_who_comes_before_the_conversation_is_known_gets_the_run_from_its_beginning() {
    let replica = Replica::start().await;
    let (mut first, mut run) = replica.run().await;
    first.next().await;
    run.send(token("a", "one ")).await;
    first.next().await;
    let mut late = replica.attach();
    run.send(token("a", "two")).await;
    run.end().await;
    replica.stopped().await;
    assert_eq!(first.end().await, late.end().await);
    assert_eq!(first.wire(), late.wire());
}

#[tokio::test]
async fn the_upstream_is_read_until_the_last_one_has_left_for_a_while() {
    let replica = Replica::start().await;
    let (mut first, mut run) = replica.run().await;
    first.next().await;
    let mut second = replica.attach();
    second.next().await;
    drop(first);
    run.send(token("a", "one")).await;
    second.next().await;
    let third = replica.attach();
    drop(second);
    run.send(token("a", "two")).await;
    let mut third = third;
    assert_eq!(third.next().await[0]["type"], "RUN_STARTED");
    // From here on the clock advances whenever all tasks wait.
    tokio::time::pause();
    let left = Instant::now();
    drop(third);
    run.closed().await;
    assert!(left.elapsed() >= LINGER);
    assert!(replica.runs.attach(&replica.client, THREAD, RUN).is_none());
    replica.runs.drained().await;
    // The gateway sent no request for the run.
    replica.upstream.is_untouched().await;
}

#[tokio::test]
async fn there_is_no_reading_a_run_that_is_unknown_or_over() {
    let replica = Replica::start().await;
    assert!(replica.runs.attach(&replica.client, THREAD, RUN).is_none());
    let (mut first, run) = replica.run().await;
    assert!(replica.runs.attach(&replica.client, THREAD, "another").is_none());
    assert_eq!(replica.runs.count(), 1);
    run.end().await;
    replica.stopped().await;
    first.end().await;
    assert!(replica.runs.attach(&replica.client, THREAD, RUN).is_none());
    assert_eq!(replica.runs.count(), 0);
}

#[tokio::test]
async fn a_run_that_only_its_stream_names_can_be_read_from_then_on() {
    let replica = Replica::start().await;
    let (stream, mut run) = tokio::join!(replica.client.join_run(THREAD, RUN, "-1"), async {
        let mut run = replica.upstream.next().await;
        run.begin("").await;
        run
    });
    let mut stream = stream.unwrap();
    stream.run_id = None;
    let reader =
        replica.runs.started(replica.client.clone(), Capabilities::default(), THREAD, "r1", stream);
    let mut first = Viewer { reader, told: Vec::new() };
    assert!(replica.runs.attach(&replica.client, THREAD, RUN).is_none());
    run.send(part("metadata", &json!({"run_id": RUN, "attempt": 1}))).await;
    first.next().await;
    let mut late = replica.attach();
    run.end().await;
    replica.stopped().await;
    assert_eq!(first.end().await, late.end().await);
    assert_eq!(first.wire(), late.wire());
}

#[tokio::test]
async fn one_who_falls_behind_is_brought_to_the_run_as_it_stands() {
    // The log keeps only the newest events.
    let replica = Replica::with(1).await;
    let (mut first, mut run) = replica.run().await;
    first.next().await;
    let mut slow = replica.attach();
    slow.next().await;
    for sent in [base(), token("a", "one ")] {
        run.send(sent).await;
        first.next().await;
        slow.next().await;
    }
    for sent in [token("a", "two"), committed("one two"), token("b", "three "), token("b", "four ")]
    {
        run.send(sent).await;
        first.next().await;
    }
    let conversation = json!([
        {"id": "m0", "role": "user", "content": "hi"},
        {"id": "a", "role": "assistant", "content": "one two"},
        {"id": "b", "role": "assistant", "content": "three four "},
    ]);
    assert_eq!(
        json!(slow.next().await),
        json!([
            {"type": "TEXT_MESSAGE_END", "messageId": "a"},
            {"type": "STATE_SNAPSHOT", "snapshot": {"count": 2}},
            // A client keeps its own order of messages, unless it holds none.
            {"type": "MESSAGES_SNAPSHOT", "messages": []},
            {"type": "MESSAGES_SNAPSHOT", "messages": conversation},
            {"type": "TEXT_MESSAGE_START", "messageId": "b", "role": "assistant"},
        ])
    );
    run.send(token("b", "five")).await;
    let rest = json!([{"type": "TEXT_MESSAGE_CONTENT", "messageId": "b", "delta": "five"}]);
    assert_eq!(json!(first.next().await), rest);
    assert_eq!(json!(slow.next().await), rest);
    run.end().await;
    replica.stopped().await;
    assert_eq!(first.end().await, slow.end().await);
    assert_eq!(first.messages(), slow.messages());
    assert_eq!(slow.streamed(), texts(&[("a", "one "), ("b", "five")]));
}

#[tokio::test]
async fn one_who_falls_behind_before_the_conversation_is_known_is_told_so_with_everything_closed() {
    let replica = Replica::with(1).await;
    let (mut first, mut run) = replica.run().await;
    let mut slow = replica.attach();
    for viewer in [&mut first, &mut slow] {
        viewer.next().await;
    }
    let chunk = json!({"type": "AIMessageChunk", "id": "a", "content": "one "});
    let origin = json!({"langgraph_node": "model", "langgraph_checkpoint_ns": "sub:t1|model:t2"});
    run.send(part("messages", &json!([chunk, origin]))).await;
    for viewer in [&mut first, &mut slow] {
        viewer.next().await;
    }
    for text in ["two", "three"] {
        run.send(token("a", text)).await;
        first.next().await;
    }
    let message = "the stream was read too slowly; load the thread to see the run";
    let expected = json!({"type": "RUN_ERROR", "message": message, "code": "reader_too_slow"});
    assert_eq!(slow.end().await, expected);
    // A viewer that joins now waits for the conversation, which never arrives.
    let mut late = replica.attach();
    assert_eq!(late.next().await[0]["type"], "RUN_STARTED");
    // The other viewers are not affected.
    run.end().await;
    replica.stopped().await;
    assert_eq!(late.end().await, expected);
    assert_eq!(first.end().await["outcome"], json!({"type": "cancelled"}));
}

#[tokio::test]
async fn one_who_falls_behind_a_graph_without_messages_is_brought_to_its_state() {
    let replica = Replica::with(1).await;
    let (mut first, mut run) = replica.run().await;
    let mut slow = replica.attach();
    for viewer in [&mut first, &mut slow] {
        viewer.next().await;
    }
    for count in 1..=3 {
        run.send(part("values", &json!({"count": count}))).await;
        first.next().await;
    }
    let state = json!([{"type": "STATE_SNAPSHOT", "snapshot": {"count": 3}}]);
    assert_eq!(json!(slow.next().await), state);
    run.end().await;
    replica.stopped().await;
    for viewer in [&mut first, &mut slow] {
        assert_eq!(viewer.end().await["outcome"], json!({"type": "cancelled"}));
    }
}
