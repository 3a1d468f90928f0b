//! Access: who may call, what each caller sees, and which secrets are never sent out.

#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod acp;
mod acp_http;
mod audit;
mod callers;
mod credentials;
mod front;
#[cfg(unix)]
mod isolation;
mod many;
mod proof;
#[cfg(unix)]
mod secrets;
mod threads;
mod tls;
mod two_upstreams;
mod until;
mod websocket;
