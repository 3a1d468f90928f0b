//! The `Accept` header: the format that a client gets, and the refusal if it accepts none.

use crate::support::gateway::{
    Gateway, Response, connect_request, events_request, input, refusal, refused, run_request,
};
use serde_json::json;

const LIST: &str =
    "text/event-stream, application/x-ndjson, application/vnd.ag-ui.event+proto, application/json";

#[tokio::test]
async fn client_that_takes_nothing_of_what_is_sent_starts_nothing() {
    let gateway = Gateway::start().await;
    let message = |list| {
        format!("`accept` allows none of the types that this route serves; name one of {list}")
    };
    let body = input(&["hi"]).to_string();
    for accept in ["text/html", "application/json;q=0", "image/*, text/plain", "nonsense"] {
        let headers = format!("accept: {accept}\r\n");
        let envelope = |method: &str| {
            let body =
                json!({"method": method, "params": {"agentId": "agent"}, "body": input(&["hi"])});
            let body = body.to_string();
            format!(
                "POST /agui HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n{headers}\
                 content-length: {}\r\n\r\n{body}",
                body.len()
            )
        };
        for (request, list) in [
            (run_request("agent", &headers, &body), LIST),
            (connect_request(&headers, &input(&["hi"])), LIST),
            (envelope("agent/run"), LIST),
            (envelope("agent/connect"), LIST),
            (
                events_request(&headers, ""),
                "text/event-stream, application/x-ndjson, application/vnd.ag-ui.event+proto",
            ),
        ] {
            let mut response = Response::to(gateway.address, request.as_bytes()).await;
            let expected = refusal("406 Not Acceptable", "not_acceptable", &message(list));
            assert_eq!(refused(&mut response).await, expected, "{request}");
        }
    }
    // A thread may be followed without end, so the response cannot be an array.
    let request = events_request("accept: application/json\r\n", "");
    let response = Response::to(gateway.address, request.as_bytes()).await;
    assert!(response.head.starts_with("HTTP/1.1 406 "), "{}", response.head);
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn accept_header_of_each_client_gets_a_stream() {
    let gateway = Gateway::start().await;
    let body = input(&["hi"]).to_string();
    let mut open = Vec::new();
    for (accept, expected) in [
        ("", "text/event-stream"),
        ("accept: \r\n", "text/event-stream"),
        // The headers of `HttpAgent`, CopilotKit and an `EventSource`, of `fetch`, and of a
        // browser's address bar.
        ("accept: text/event-stream\r\n", "text/event-stream"),
        ("accept: */*\r\n", "text/event-stream"),
        ("accept: text/html,application/xml;q=0.9,*/*;q=0.8\r\n", "text/event-stream"),
        ("accept: application/json, text/event-stream\r\n", "text/event-stream"),
        ("accept: text/*\r\n", "text/event-stream"),
        ("accept: application/x-ndjson\r\n", "application/x-ndjson"),
        ("accept: application/*\r\n", "application/x-ndjson"),
    ] {
        let request = run_request("agent", accept, &body);
        let (response, run) =
            tokio::join!(Response::to(gateway.address, request.as_bytes()), async {
                gateway.state(None).await;
                gateway.stream().await
            });
        let line = format!("content-type: {expected}\r\n");
        assert!(response.head.contains(&line), "{accept}{}", response.head);
        open.push((response, run));
    }
}
