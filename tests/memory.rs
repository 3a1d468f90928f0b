//! What is kept of a run that its client does not read. It is alone in its binary: the bytes that
//! are counted are those of the whole process.

#![cfg(test)]

mod support;

use peak_alloc::PeakAlloc;
use serde_json::json;
use support::gateway::{Gateway, part, values};
use threadway::server::Limits;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const MIB: usize = 1024 * 1024;

#[tokio::test]
async fn a_client_that_does_not_read_costs_no_more_than_the_log() {
    let limits = Limits { log_bytes: 64 * 1024, ..Limits::default() };
    let gateway = Gateway::with(limits).await;
    let (_slow, mut run) = gateway.unread_run().await;
    run.send(part("values", &values(&["hi"]))).await;
    // These are in the log, and in no message and no state.
    let parts = part("custom", &json!("x".repeat(1024))).repeat(64);
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    for _ in 0..64 * MIB / parts.len() {
        run.send(&parts).await;
    }
    // The run was read to its end.
    run.end().await;
    gateway.record("interrupted").await;
    let grown = MEMORY.peak_usage() - before;
    assert!(grown < 2 * MIB, "{grown} bytes were kept");
}
