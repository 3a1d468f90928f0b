//! Upstreams that refuse, break, lie or fall silent: what the client is told.

#![cfg(test)]

mod support;

use serde_json::json;
use support::gateway::{
    Gateway, HeldClock, RUN, agents, closed, failed, finished, input, post, refusal, refused,
    serve, token, told, values,
};
use support::upstream::Upstream;
use threadway::server::Limits;
use threadway::upstream::START_TIMEOUT;

// === before the stream ===

#[tokio::test]
async fn an_upstream_that_refuses_connections_is_a_bad_gateway() {
    let closed = Upstream::bind().await.url();
    let agents = agents(&[("default", &closed)], &[]);
    let (address, _stop, _serving) = serve(agents, Limits::default()).await;
    let mut response = post(address, "", &input(&["hi"]).to_string()).await;
    let message = "the LangGraph server cannot be reached: Connection refused (os error 111); \
                   check that it runs, and the upstream's URL";
    let expected = refusal("502 Bad Gateway", "upstream_unreachable", message);
    assert_eq!(refused(&mut response).await, expected);
}

#[tokio::test]
async fn what_the_upstream_refuses_is_refused_in_our_words() {
    let gateway = Gateway::start().await;
    let unknown = "LangGraph knows no agent `agent`; name a graph of the server's langgraph.json \
                   or an assistant's id";
    let unknown = || refusal("404 Not Found", "unknown_agent", unknown);
    let busy = "the thread has a run that is not over; wait for its end or stop it, then send the \
                request again";
    let busy = || refusal("409 Conflict", "thread_busy", busy);
    let html = "the LangGraph server answered with `text/html` instead of an event stream; check \
                that the upstream's URL is that of a LangGraph API server";
    for (status, body, expected) in [
        (404, r#"{"detail":"Thread or assistant not found."}"#, unknown()),
        (404, "Assistant not found", unknown()),
        (422, r#"{"detail":"Invalid assistant: 'agent'. Must be either:\n- ..."}"#, unknown()),
        (409, r#"{"detail":"Thread is already running a task. Wait"}"#, busy()),
        (422, "Thread is already running a task. Wait", busy()),
        (
            401,
            r#"{"detail":"bad key"}"#,
            refusal(
                "401 Unauthorized",
                "unauthorized",
                "the LangGraph server answered 401: bad key; threadway passes no credentials on: \
                 have the server let it in without",
            ),
        ),
        (
            403,
            "",
            refusal(
                "403 Forbidden",
                "forbidden",
                "the LangGraph server answered 403; threadway passes no credentials on: have the \
                 server let it in without",
            ),
        ),
        (
            500,
            "Internal Server Error",
            refusal(
                "502 Bad Gateway",
                "upstream_refused",
                "the LangGraph server answered 500: Internal Server Error; the server's log may \
                 tell more",
            ),
        ),
        (
            307,
            "",
            refusal(
                "502 Bad Gateway",
                "upstream_refused",
                "the LangGraph server answered 307; the server's log may tell more",
            ),
        ),
        (200, "<html>", refusal("502 Bad Gateway", "not_langgraph", html)),
    ] {
        let script = async {
            gateway.state(None).await;
            gateway.upstream.next().await.answer(status, "text/html", body).await;
        };
        let input = input(&["hi"]);
        let (mut response, ()) = tokio::join!(gateway.post(&input), script);
        assert_eq!(refused(&mut response).await, expected, "{status} {body}");
    }
}

#[tokio::test]
async fn half_a_refusal_is_better_than_none_and_not_awaited_for_ever() {
    let gateway = Gateway::start().await;
    let script = async {
        gateway.state(None).await;
        let mut run = gateway.upstream.next().await;
        run.begin_answer(500, "text/plain", "half a", 12).await;
        run.cut();
    };
    let hi = input(&["hi"]);
    let (mut response, ()) = tokio::join!(gateway.post(&hi), script);
    let message = "the LangGraph server answered 500: half a; the server's log may tell more";
    let expected = refusal("502 Bad Gateway", "upstream_refused", message);
    assert_eq!(refused(&mut response).await, expected);

    let script = async {
        gateway.state(None).await;
        let mut run = gateway.upstream.next().await;
        run.begin_answer(500, "text/plain", "half a", 12).await;
        let clock = HeldClock::pause();
        clock.advance(START_TIMEOUT).await;
        (run, clock)
    };
    let answered = async {
        let mut response = gateway.post(&hi).await;
        refused(&mut response).await
    };
    let (told, _open) = tokio::join!(answered, script);
    let message = "the LangGraph server did not answer within 60 s; look at the thread before you \
                   try again: it may have acted";
    assert_eq!(told, refusal("504 Gateway Timeout", "upstream_timeout", message));
}

// === in the stream ===

#[tokio::test]
async fn a_run_whose_stream_ends_in_order_while_it_goes_on_is_lost() {
    let gateway = Gateway::start().await;
    let (mut response, run) = gateway.run().await;
    run.end().await;
    for _ in 0..5 {
        gateway.record("pending").await;
    }
    let message = "the stream of the run ended early; the run goes on in LangGraph";
    assert_eq!(response.body().await, failed(message, "upstream_lost"));
}

#[tokio::test]
async fn a_run_whose_stream_is_cut_while_it_goes_on_is_lost_with_everything_closed() {
    let gateway = Gateway::start().await;
    let (mut response, mut run) = gateway.run().await;
    run.send(token("a", "one")).await;
    assert_eq!(response.frame().await + &response.frame().await, told("a", "one"));
    run.cut();
    gateway.record("running").await;
    let end = response.body().await;
    let (first, last) = end.split_once("\n\n").unwrap();
    assert_eq!(format!("{first}\n\n"), closed("a"));
    assert!(
        last.starts_with(
            r#"data: {"type":"RUN_ERROR","message":"the stream of the run broke off ("#
        )
    );
    assert!(last.ends_with("); the run goes on in LangGraph\",\"code\":\"upstream_lost\"}\n\n"));
}

#[tokio::test]
async fn a_stream_without_its_end_is_made_up_for_by_the_state_of_its_run() {
    let gateway = Gateway::start().await;
    for (run_id, is_made_up_for) in [(RUN, true), ("other", false)] {
        let (mut response, mut run) = gateway.run().await;
        run.send("event: values\r\ndata: {\"half").await;
        run.cut();
        gateway.record("success").await;
        let state = json!({"values": values(&["hi", "you"]), "metadata": {"run_id": run_id}});
        gateway.state(Some(state)).await;
        let body = response.body().await;
        if is_made_up_for {
            assert!(body.contains(r#"{"role":"assistant","id":"m1","content":"you"}"#), "{body}");
            assert!(body.ends_with(&finished("success")), "{body}");
        } else {
            assert!(body.contains("the run itself succeeded: load the thread"), "{body}");
            assert!(body.ends_with("\"code\":\"upstream_lost\"}\n\n"), "{body}");
        }
    }
}
