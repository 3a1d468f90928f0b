//! Live runs on real sockets: connecting, following, losing and resuming them.

#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod addresses;
mod aegra;
mod apart;
mod array;
mod asked;
mod attach;
mod crowd;
mod emit;
mod eventsource;
mod fanout;
mod follow;
mod held;
mod hostile;
mod messages_key;
mod poll;
mod record;
mod repeated;
mod resume;
mod slow;
mod starting;
mod stop;
mod tanstack;
mod upstreams;
mod websocket;
