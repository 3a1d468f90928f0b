//! A client that does not read delays neither its run nor another client. When it reads at last, it
//! gets the end of its run.

use std::time::Duration;

use crate::support::clock::HeldClock;
use crate::support::gateway::{
    Gateway, RUN, closed, counted, events, finished, part, token, told, values,
};
use crate::support::judge;
use crate::support::schema::Schema;
use crate::support::upstream::Exchange;
use serde_json::{Value, json};
use threadway::runs::LINGER;
use threadway::server::{GRACE, Limits, WRITE_TIMEOUT};
use tokio::net::TcpStream;

/// More bytes than the sockets between a gateway and a client buffer.
const FLOOD: usize = 24 * 1024 * 1024;

fn limits() -> Limits {
    Limits { log_bytes: 64 * 1024, ..Limits::default() }
}

/// Sends this many bytes in one message, as fast as they are accepted.
async fn flood(run: &mut Exchange, id: &str, bytes: usize) {
    let tokens = token(id, &"x".repeat(1024)).repeat(64);
    for _ in 0..bytes / tokens.len() {
        run.send(&tokens).await;
    }
}

#[tokio::test]
async fn it_is_brought_to_the_end_of_its_run_and_has_held_up_nobody() {
    let gateway = Gateway::with(limits()).await;
    let (mut slow, mut run) = gateway.unread_run().await;
    // No timer matters in this test.
    let _clock = HeldClock::pause();
    run.send(part("values", &values(&["hi"]))).await;
    flood(&mut run, "a", FLOOD / 2).await;

    let (mut other, mut others) = gateway.run().await;
    others.send(token("b", "one")).await;
    assert_eq!(other.frame().await + &other.frame().await, told("b", "one"));

    flood(&mut run, "c", FLOOD / 2).await;
    let messages = json!([
        {"id": "m0", "type": "human", "content": "hi"},
        {"id": "a", "type": "ai", "content": "first"},
        {"id": "c", "type": "ai", "content": "second"},
    ]);
    run.send(part("values", &json!({"messages": messages, "count": 2}))).await;
    run.end().await;
    gateway.record("success").await;
    gateway.state(Some(json!({"metadata": {"run_id": RUN}}))).await;
    others.end().await;
    gateway.record("interrupted").await;
    assert_eq!(other.body().await, closed("b") + &finished("cancelled"));

    // The client reads only now, so all that it gets was already written.
    let (gone, metrics) = (gateway.upstream, gateway.metrics);
    drop(gone);
    let events = events(&slow.body().await);
    judge::closed(&Schema::load(), &events).unwrap();
    let streamed: usize = judge::streamed_text(&events).values().map(String::len).sum();
    assert!(streamed < FLOOD / 2, "{streamed} bytes of text came one by one");
    let last = |kind| -> &Value { events.iter().rfind(|event| event["type"] == kind).unwrap() };
    assert_eq!(last("STATE_SNAPSHOT")["snapshot"], json!({"count": 2}));
    assert_eq!(
        last("MESSAGES_SNAPSHOT")["messages"],
        json!([
            {"id": "m0", "role": "user", "content": "hi"},
            {"id": "a", "role": "assistant", "content": "first"},
            {"id": "c", "role": "assistant", "content": "second"},
        ])
    );
    let end = [
        "TEXT_MESSAGE_END",
        "STATE_SNAPSHOT",
        "MESSAGES_SNAPSHOT",
        "MESSAGES_SNAPSHOT",
        "RUN_FINISHED",
    ];
    let kinds: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert!(kinds.ends_with(&end), "{:?}", kinds.last_chunk::<8>());
    assert!(counted(&metrics, r#"resyncs_total{reason="fell_behind"}"#) > 0.0);
    assert!(counted(&metrics, "missed_batches_total") > 0.0);
}

#[tokio::test]
async fn it_is_told_so_if_the_conversation_was_never_known() {
    let gateway = Gateway::with(limits()).await;
    let (mut slow, mut run) = gateway.unread_run().await;
    flood(&mut run, "a", FLOOD).await;
    run.end().await;
    gateway.record("interrupted").await;
    let events = events(&slow.body().await);
    judge::closed(&Schema::load(), &events).unwrap();
    let message = "the stream was read too slowly; load the thread to see the run";
    let expected = json!({"type": "RUN_ERROR", "message": message, "code": "reader_too_slow"});
    assert_eq!(*events.last().unwrap(), expected);
}

#[tokio::test]
async fn it_does_not_hold_up_the_end_of_the_gateway() {
    let gateway = Gateway::with(limits()).await;
    let (slow, mut run) = gateway.unread_run().await;
    flood(&mut run, "a", FLOOD).await;
    let clock = HeldClock::pause();
    gateway.stop.cancel();
    run.closed().await;
    while TcpStream::connect(gateway.address).await.is_ok() {}
    clock.advance(GRACE).await;
    gateway.stopped().await;
    drop(slow);
}

#[tokio::test]
async fn when_it_leaves_its_run_is_let_go_of() {
    let gateway = Gateway::with(limits()).await;
    let (slow, mut run) = gateway.unread_run().await;
    flood(&mut run, "a", FLOOD).await;
    let clock = HeldClock::pause();
    drop(slow);
    gateway.settled().await;
    clock.advance(LINGER).await;
    run.closed().await;
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn after_two_minutes_without_a_byte_taken_it_is_let_go_of() {
    let gateway = Gateway::with(limits()).await;
    let (_slow, mut run) = gateway.unread_run().await;
    run.send(part("values", &values(&["hi"]))).await;
    flood(&mut run, "a", FLOOD).await;
    let clock = HeldClock::pause();
    // The test cannot see when the first write blocked, so it advances the clock until the limit.
    let (mut passed, mut asked) = (Duration::ZERO, 0);
    while run.lives().await {
        assert!(passed < WRITE_TIMEOUT * 10, "the run is still read");
        clock.advance(LINGER).await;
        passed += LINGER;
        gateway.settled().await;
        // After a minute of heartbeats the gateway asks once whether the run goes on.
        if let Some(record) = gateway.upstream.waiting().await {
            asked += 1;
            record.json(200, &json!({"run_id": RUN, "status": "running"}).to_string()).await;
            gateway.settled().await;
        }
    }
    assert!(passed >= WRITE_TIMEOUT, "{passed:?}");
    assert_eq!(asked, 1);
    gateway.upstream.is_untouched().await;
}
