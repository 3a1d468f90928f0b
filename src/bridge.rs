//! An editor's ACP on stdin and stdout, bridged to the `/acp` of a gateway elsewhere.
//!
//! ```text
//!   editor -- lines --> Machine --> outbox -- text frames --> gateway
//!          <-- lines --         <------------ text frames --
//! ```
//! The gateway's sessions are LangGraph threads, so any replica serves them, and a run goes on
//! without its reader. After a lost connection the bridge connects again, introduces the editor,
//! loads its sessions, and sends what was not answered. The editor does not notice.
//!
//! - `machine`: what is known and what follows from it, without IO. `session`: what is remembered of
//!   a session, with the id of the last event that the editor has. `asks`: requests to the editor.
//!   `message`: changed messages.
//! - `gateway`: the gateway's URL and token, and how its WebSocket is opened. `relay`: the IO.

mod asks;
mod gateway;
mod machine;
mod message;
mod relay;
mod session;

pub use gateway::{GatewayUrl, GatewayUrlError, OpenError, RemoteGateway, TokenSource};
pub use relay::{PATIENCE, relay};
