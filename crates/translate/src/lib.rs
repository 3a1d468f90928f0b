//! Translates the event stream of a LangGraph run to the events of AG-UI and to the updates of ACP.
//!
//! LangGraph servers stream a run as server-sent events.
//! Web clients that speak AG-UI and editors that speak ACP expect other events, in an order that
//! their protocol prescribes.
//! This crate makes the one from the other. It opens no socket, starts no task and reads no clock:
//! bytes go in, and bytes come out. The [`threadway`](https://docs.rs/threadway) gateway is built on it.
//!
//! # One way
//!
//! ```text
//!  LangGraph's bytes                                                        client's bytes
//!       |                                                                        ^
//!       v                                                                        |
//!  sse::Decoder -> langgraph::Part -> run::Translator -> run::RunEvent -> agui::Projector -> sse::encode
//!                                         ^    |                  \-> acp::Projector -> JSON-RPC lines
//!                           run::StreamEnd     +-> run::View
//! ```
//!
//! - [`sse`]: one block of an event stream, decoded and encoded. It knows nothing of LangGraph.
//! - [`langgraph`]: one typed part of a stream, by its event name, and the request bodies that
//!   LangGraph accepts.
//! - [`run`]: what happens in a run, in terms of neither protocol. [`run::Translator`] is the state
//!   machine. [`run::View`] is what a client holds after it has applied all events so far.
//! - [`agui`]: AG-UI's events and inputs, and the projection of a run to them.
//! - [`acp`]: ACP's JSON-RPC messages, prompts and permissions, and the projection of a run to them.
//! - [`json`]: JSON values that keep the bytes they were read from.
//! - [`buffer`]: buffers that shrink after a large event.
//!
//! # Example
//!
//! ```
//! use threadway_translate::agui::{Client, Projector, RunId, Version};
//! use threadway_translate::langgraph::Part;
//! use threadway_translate::run::{StreamEnd, Translator};
//! use threadway_translate::sse::{self, Decoder};
//!
//! # fn main() -> Result<(), sse::DecodeError> {
//! let stream = br#"event: metadata
//! data: {"run_id":"run-1","attempt":1}
//!
//! event: messages
//! data: [{"id":"m1","type":"AIMessageChunk","content":"Hello"},{"langgraph_node":"agent"}]
//!
//! "#;
//! let client = Client {
//!     thread_id: "thread-1".to_owned(),
//!     run_id: RunId::Own("run-1".to_owned()),
//!     parent_run_id: None,
//!     version: Version::V1,
//! };
//! let mut decoder = Decoder::new();
//! let mut translator = Translator::new("thread-1", "run-1");
//! let mut projector = Projector::new(client, Vec::new());
//! let (mut events, mut scratch, mut out) = (Vec::new(), String::new(), Vec::new());
//!
//! translator.start(&mut events);
//! decoder.push(stream);
//! while let Some(frame) = decoder.next_frame()? {
//!     translator.on_part(&Part::parse(&frame, &mut scratch), &mut events);
//! }
//! translator.on_end(StreamEnd::Complete, &mut events);
//! for event in &events {
//!     projector.project(event, &mut |event| {
//!         let mut json = Vec::new();
//!         event.write(&mut json);
//!         sse::encode(&mut out, None, &json);
//!     });
//! }
//! let out = String::from_utf8_lossy(&out);
//! assert!(out.starts_with(r#"data: {"type":"RUN_STARTED","threadId":"thread-1""#));
//! assert!(out.contains(r#""delta":"Hello""#));
//! assert!(out.contains("RUN_FINISHED"));
//! # Ok(())
//! # }
//! ```
//!
//! `examples/translate.rs` does the same for a stream on stdin.
//!
//! # What always holds
//!
//! 1. **Legality.** Whatever parts come, the events are ones that AG-UI 1.0 accepts: one start
//!    first, everything opened closed, one terminal event, nothing after it.
//! 2. **Determinism.** The same parts give the same events with the same ids, in any chunking.
//! 3. **No duplicate text.** A token is sent once, whatever stream modes carry it.
//! 4. **Exactness.** JSON that means nothing to the protocol passes byte for byte.
//! 5. **Totality.** Arbitrary bytes never panic, and what is buffered of them has a named limit.

pub mod acp;
pub mod agui;
pub mod buffer;
pub mod json;
pub mod langgraph;
pub mod run;
pub mod sse;
