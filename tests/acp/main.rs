//! Editors: an ACP connection and the threads of its sessions, on scripted LangGraph servers.

#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod messages_key;
mod stdio;
mod threads;
