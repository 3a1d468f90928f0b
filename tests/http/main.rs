//! The gateway as an HTTP server: routes, refusals, limits, and the operator's view.

#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod accept;
mod compression;
mod connections;
mod directory;
mod envelope;
mod hostile_http;
mod metrics;
mod openapi;
mod page;
mod requests;
mod server;
mod shutdown;
mod threads;
mod traces;
