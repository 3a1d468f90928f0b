//! Editors: an ACP connection and the threads of its sessions, in front of scripted LangGraph
//! servers.

#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod bridge;
mod children;
mod contact;
mod cursors;
mod follow;
mod fork;
mod given;
mod loads;
mod messages_key;
mod notices;
mod offered;
mod open_calls;
mod person;
mod prompt_end;
mod questions;
mod script;
mod stdio;
mod system_prompt;
mod threads;
mod together;
mod turns;
mod unnamed;
