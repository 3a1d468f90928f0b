//! Memory for a run whose client does not read, and for a client that has read a large event. The
//! test is alone in its binary, because it counts the bytes of the whole process.

#![cfg(test)]

mod support;

use peak_alloc::PeakAlloc;
use serde_json::json;
use support::gateway::{Gateway, RUN, THREAD, input, part, refusal, refused, values};
use threadway::server::Limits;
use threadway::upstream::MAX_ANSWER_BYTES;
use tokio::sync::Mutex;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const MIB: usize = 1024 * 1024;

/// Only one test may count at a time.
static COUNTING: Mutex<()> = Mutex::const_new(());

#[tokio::test]
async fn a_viewer_that_has_read_a_large_snapshot_costs_little() {
    const VIEWERS: usize = 8;
    let _counting = COUNTING.lock().await;
    let gateway = Gateway::start().await;
    let (_first, mut run) = gateway.run().await;
    let large = "x".repeat(5 * MIB);
    run.send(part("values", &values(&["hi", &large]))).await;
    let record = json!([{"run_id": RUN, "status": "running", "metadata": {}, "kwargs": {}}]);
    let mut viewers = Vec::new();
    let mut before = 0;
    for _ in 0..=VIEWERS {
        let script = gateway.runs("limit=100", record.clone());
        let (mut viewer, ()) = tokio::join!(gateway.events(""), script);
        while viewer.frame().await.len() < 5 * MIB {}
        // The bytes that the test itself has read.
        viewer.raw = Vec::new();
        viewer.decoded = Vec::new();
        viewers.push(viewer);
        gateway.settled().await;
        if viewers.len() == 1 {
            before = MEMORY.current_usage();
        }
    }
    let each = (MEMORY.current_usage().saturating_sub(before)) / VIEWERS;
    assert!(each < 128 * 1024, "each viewer keeps {each} bytes");
}

#[tokio::test]
async fn a_client_that_does_not_read_costs_no_more_than_the_log() {
    let _counting = COUNTING.lock().await;
    let limits = Limits { log_bytes: 64 * 1024, ..Limits::default() };
    let gateway = Gateway::with(limits).await;
    let (_slow, mut run) = gateway.unread_run().await;
    run.send(part("values", &values(&["hi"]))).await;
    // These parts are in the log, but in no message and no state.
    let parts = part("custom", &json!("x".repeat(1024))).repeat(64);
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    for _ in 0..64 * MIB / parts.len() {
        run.send(&parts).await;
    }
    // The gateway has read the run to its end.
    run.end().await;
    gateway.record("interrupted").await;
    let grown = MEMORY.peak_usage() - before;
    assert!(grown < 2 * MIB, "{grown} bytes were kept");
}

#[tokio::test]
async fn a_state_without_an_end_is_refused_at_the_limit() {
    const CHUNK: usize = MIB;
    let _counting = COUNTING.lock().await;
    let gateway = Gateway::acquainted().await;
    let chunk = vec![b'1'; CHUNK];
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    let script = async {
        let mut state = gateway.upstream.expect(&format!("GET /threads/{THREAD}/state")).await;
        // The response has no length, and the server does not close it.
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\
                    transfer-encoding: chunked\r\n\r\n";
        state.raw(head).await;
        for _ in 0..MAX_ANSWER_BYTES / CHUNK {
            state.send(&chunk).await;
        }
        state.send("1").await;
        state.closed().await;
    };
    let hi = input(&["hi"]);
    let (mut response, ()) = tokio::join!(gateway.post(&hi), script);
    let grown = MEMORY.peak_usage().saturating_sub(before);
    let message = "the LangGraph server's answer is longer than 67108864 bytes; have the graph \
                   keep less in its state";
    let expected = refusal("502 Bad Gateway", "upstream_too_large", message);
    assert_eq!(refused(&mut response).await, expected);
    gateway.upstream.is_untouched().await;
    // While a buffer grows, its content exists twice.
    assert!(grown < 2 * MAX_ANSWER_BYTES + MIB, "{grown} bytes were kept");
    let kept = MEMORY.current_usage().saturating_sub(before);
    assert!(kept < MIB, "{kept} bytes are still kept");
}
