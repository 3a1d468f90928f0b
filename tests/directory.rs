//! What the gateway tells of itself and of the agents behind it: info, readiness, names, keys.

#![cfg(test)]

mod support;

use support::gateway::{Gateway, Response};

#[tokio::test]
async fn it_says_that_it_is_alive() {
    let gateway = Gateway::start().await;
    let request = b"GET /healthz HTTP/1.1\r\nhost: h\r\n\r\n";
    let mut response = Response::to(gateway.address, request).await;
    assert!(response.head.starts_with("HTTP/1.1 200 OK\r\n"), "{}", response.head);
    assert_eq!(response.body().await, "ok\n");
}
