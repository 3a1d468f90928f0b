//! Translates the event stream of a LangGraph run to AG-UI events and to ACP updates.
//!
//! A LangGraph server streams a run as server-sent events. Web clients that speak AG-UI, and editors
//! that speak ACP, expect other events, in an order that their protocol prescribes. This crate
//! converts the one to the other.
//!
//! The crate opens no socket, starts no task and reads no clock: you pass bytes in, and get bytes out.
//! It compiles for every target of Rust, including WebAssembly. The
//! [`threadway`](https://docs.rs/threadway) gateway is built on it.
//!
//! # Modules
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
//! - [`sse`] decodes and encodes server-sent events. It knows nothing of LangGraph.
//! - [`langgraph`] has types for what LangGraph servers send and accept.
//! - [`run`] says what happens in a run, in the terms of neither protocol. [`run::Translator`] is the
//!   state machine. [`run::View`] is what a client holds after the events so far.
//! - [`agui`] has AG-UI's events and inputs. [`agui::Projector`] turns run events into AG-UI events.
//! - [`acp`] has ACP's JSON-RPC messages. [`acp::Projector`] turns run events into ACP updates.
//! - [`json`] has JSON values that keep the bytes they were read from.
//! - [`buffer`] empties buffers, and frees the memory of large ones.
//!
//! A module imports only modules above it in this list or from `json` and `buffer`; `agui` and `acp`
//! do not import each other.
//!
//! # Example
//!
//! The input is a stream with two events. The output is an AG-UI stream.
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
//! // The server's record of the run says that it succeeded.
//! translator.on_end(StreamEnd::Succeeded, &mut events);
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
//! `examples/translate.rs` reads a stream on stdin in the same way.
//!
//! In a server, translate each part as it arrives, and send the events to each client through a
//! projector of its own. A client that connects later needs [`run::resync`] first.
//!
//! # Guarantees
//!
//! 1. **Legality.** For any parts, AG-UI 1.0 accepts the events: one start comes first, everything
//!    that opens also closes, and nothing follows the one terminal event.
//! 2. **Determinism.** The same parts give the same events with the same ids, however the bytes are
//!    split into chunks.
//! 3. **No duplicate text.** A token is sent once, even if several stream modes carry it.
//! 4. **Exactness.** JSON without a meaning to the protocol passes byte for byte.
//! 5. **Totality.** No input causes a panic, and everything that is buffered has a named limit.
//!
//! The tests in `tests/core` check each of these with generated streams.

pub mod acp;
pub mod agui;
pub mod buffer;
pub mod json;
pub mod langgraph;
pub mod run;
pub mod sse;
