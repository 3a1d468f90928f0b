//! threadway stands in front of a LangGraph API server. It serves the server's threads and runs to
//! AG-UI clients, and to editors that speak ACP.
//!
//! A client can connect to a thread at any moment. At the end of a run the client has exactly the
//! messages and the state that LangGraph holds.
//!
//! # Three packages
//!
//! - [`threadway_translate`] (`crates/translate`): LangGraph's bytes in, AG-UI's and ACP's bytes out. It has no runtime,
//!   no sockets and no clock; its `Cargo.toml` names none. All understanding of the three protocols
//!   is there: `langgraph` (stream modes, request bodies), `run` (what happens in a run), `agui`
//!   (AG-UI's events and inputs), `acp` (ACP's updates, prompts and permissions).
//! - `threadway-demo` (`crates/demo`): a scripted LangGraph server, for `threadway demo` and for tests.
//!   It is the other side of the wire, and shares no understanding of LangGraph with the rest.
//! - `threadway`, this package: the gateway and its commands.
//!
//! # One way
//!
//! ```text
//!  LangGraph                                                                        clients
//!     |                                                                                ^
//!     v                 threadway_translate: PURE                                      |
//!  upstream --> runs --> sse -> langgraph -> run::Translator -> RunEvent --> agui --> server
//!                |                                                 \-------> acp  --> sessions, stdio
//!                +-> one task reads each run; any number of readers follow its log
//! ```
//!
//! # Modules
//!
//! - `sync`: the mutex of the gateway. A thread of the process holds one at a time. `offload`: work on
//!   large values, outside the threads of the runtime. `random`: random numbers.
//! - [`metrics`]: what is counted, and how Prometheus reads it.
//! - [`upstream`]: LangGraph's API over HTTP. No other module sends a request to LangGraph.
//! - [`audit`]: who did what, and whether it was allowed, for the operator.
//! - `single_flight`: a request that is sent once for all callers who ask for the same at the same
//!   time.
//! - [`agents`]: which agents can be run, under which names.
//! - [`runs`]: the runs that are being read, from upstream's bytes to the events that each reader
//!   pulls; how often and when a lost stream is retried.
//! - [`threads`]: what can be done with a thread: its runs are started, read, followed, stopped.
//! - [`server`]: connections, credentials, routes, bodies, for AG-UI clients. `server/reject.rs` has
//!   the refusals of requests. Neither [`server`] nor [`sessions`] imports
//!   `threadway_translate::langgraph`.
//! - [`sessions`]: the ACP agent: one client's requests, sessions and turns. [`stdio`]: its lines.
//! - [`bridge`]: the ACP of an editor here, bridged to a gateway elsewhere.
//! - [`credentials`]: upstream keys that `threadway acp --login` has stored.
//! - [`config`], [`cli`]: what the operator sets, by key and by flag. [`check`]: whether it will work.
//!   [`reload`]: a changed file, without a restart. `nearest`: what a misspelt name stands for.
//! - [`telemetry`]: log lines, and traces.
//! - [`editors`]: what to paste into an editor's settings. [`manual`]: completions, manual pages.
//! - [`terminal`]: which characters of other people's text a terminal may show.
//! - [`watch`]: an AG-UI client in the terminal. It too is the other side of the wire.
//! - `main`, `commands`: the binary, with a file for each of its commands.
//!
//! A module imports only from lower ranks: sync < offload, random < metrics < audit, upstream, `single_flight` <
//! agents, credentials, runs < threads < sessions < server, stdio < bridge, config, cli, check,
//! editors, manual, nearest, reload, telemetry, terminal, watch. `tests/offline/tidy.rs` has the ranks, and fails otherwise.
//! The files within a module import each other in one direction only: `tests/offline/circles.rs`.
//!
//! # What always holds
//!
//! 1. **Convergence.** What a client holds at the end of a run is what LangGraph holds.
//! 2. **Legality.** Whatever LangGraph sends, the stream is one that AG-UI 1.0 accepts: one start
//!    first, everything opened closed, one terminal event, nothing after it.
//! 3. **Determinism.** The same parts give the same events with the same ids, in any chunking.
//! 4. **No duplicate text.** A token is sent once, whatever stream modes carry it.
//! 5. **Exactness.** Opaque JSON passes byte for byte.
//! 6. **Totality.** Arbitrary bytes never panic, and what is buffered of them has a named limit. A
//!    run's view grows with its messages, as LangGraph's own state does.
//! 7. **Leaving is not stopping.** A client that disconnects never cancels a run.
//!
//! Each has a test of its own; `docs/decisions.md` says why things are as they are.

pub mod agents;
pub mod audit;
pub mod bridge;
pub mod check;
pub mod cli;
pub mod config;
pub mod credentials;
pub mod editors;
pub mod manual;
pub mod metrics;
mod nearest;
mod offload;
mod random;
pub mod reload;
pub mod runs;
pub mod server;
pub mod sessions;
mod single_flight;
pub mod stdio;
mod sync;
pub mod telemetry;
pub mod terminal;
pub mod threads;
pub mod upstream;
pub mod watch;
