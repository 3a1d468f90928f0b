//! threadway stands in front of a LangGraph API server and serves its threads and runs to AG-UI
//! clients, and to editors that speak ACP.
//!
//! A client can attach to a thread at any moment, and ends with exactly the messages and the
//! state that LangGraph holds.
//!
//! # One way
//!
//! ```text
//!  upstream bytes                                                          client bytes
//!       |                                                                       ^
//!       v              PURE: no IO, no clock, no randomness                     |
//!  sse::Decoder -> langgraph::Part -> run::Translator -> run::RunEvent -> agui::Projector -> sse::encode
//!                                         ^    |                 \-> acp::Projector -> JSON-RPC lines
//!                           run::StreamEnd     +-> run::View
//! ```
//!
//! - `buffer`: buffers that shrink after a large event.
//! - [`json`]: values that stay the bytes they came in, text that stays escaped.
//! - [`sse`]: one block of an event stream, both ways. Nothing of LangGraph is known here.
//! - `sync`: the mutex of the gateway. A thread holds one at a time.
//! - [`langgraph`]: one typed part of a stream, by its event name; the bodies that we send.
//! - [`run`]: what happens in a run, in words of neither wire. The [`run::Translator`] is the
//!   state machine, the [`run::View`] its fold: what a client holds. It is the one source of
//!   snapshots.
//! - [`agui`]: the AG-UI wire: its events, its input, and the projection of a run.
//! - [`acp`]: the ACP wire: JSON-RPC, prompts, permissions, choices, and the projection of a run.
//! - [`metrics`]: what is counted, and how Prometheus reads it.
//! - [`upstream`]: LangGraph's API over HTTP. The only place of the gateway that knows the HTTP
//!   client.
//! - [`audit`]: who did what, and whether it was allowed, for the operator.
//! - `flights`: requests that are shared by all who ask for the same at the same time.
//! - [`agents`]: who can be run, under which names.
//! - [`runs`]: the runs being read, from upstream's bytes to the events that each reader pulls.
//! - [`threads`]: what can be done with a thread: its runs are started, read, followed, stopped.
//! - [`server`]: connections, routes, bodies. Like [`sessions`] it does not import [`langgraph`].
//! - [`sessions`]: the ACP agent: what one client asks, its sessions and turns. [`stdio`]: its lines.
//! - [`credentials`]: keys that a person has typed.
//! - [`demo`]: a scripted LangGraph server. It is the other side of the wire, and shares no
//!   understanding of LangGraph with the rest.
//! - [`config`], [`cli`]: what the operator says. [`check`]: whether it will work.
//! - [`telemetry`]: log lines, and traces.
//! - [`editors`]: what to paste into an editor's settings. [`manual`]: completions, manual pages.
//! - [`terminal`]: what a terminal may show of others' text.
//! - [`watch`]: a client in the terminal. It too is the other side of the wire, AG-UI's.
//! - `main`, `commands`: the binary, with a file for each of its commands.
//!
//! A module imports only from lower ranks: buffer, sync < json, sse < langgraph < run < agui, acp,
//! metrics < audit, upstream, demo, flights < agents, credentials, runs < threads < server, sessions < stdio < config,
//! cli, check, editors, manual, telemetry, terminal, watch. Those up to agui, acp and metrics name no IO
//! and no clock.
//! `tests/core/tidy.rs` holds both.
//!
//! # What always holds
//!
//! 1. **Convergence.** What a client holds at the end of a run is what LangGraph holds.
//! 2. **Legality.** Whatever parts come, the stream is one that AG-UI 1.0 accepts: one start
//!    first, everything opened closed, one terminal event, nothing after it.
//! 3. **Determinism.** The same parts give the same events with the same ids, in any chunking.
//! 4. **No duplicate text.** A token is never told twice, whatever modes carry it.
//! 5. **Exactness.** Opaque JSON passes byte for byte.
//! 6. **Totality.** Arbitrary bytes never panic, and what is buffered of them has a named limit. A
//!    run's view grows with its messages, as LangGraph's own state does.
//! 7. **Leaving is not stopping.** A client that goes away never cancels a run.
//!
//! Each has a test of its own; `docs/decisions.md` tells why things are as they are.

pub mod acp;
pub mod agents;
pub mod agui;
pub mod audit;
mod buffer;
pub mod check;
pub mod cli;
pub mod config;
pub mod credentials;
pub mod demo;
pub mod editors;
mod flights;
pub mod json;
pub mod langgraph;
pub mod manual;
pub mod metrics;
pub mod reload;
pub mod run;
pub mod runs;
pub mod server;
pub mod sessions;
pub mod sse;
pub mod stdio;
mod sync;
pub mod telemetry;
pub mod terminal;
pub mod threads;
pub mod upstream;
pub mod watch;
