//! The AG-UI 1.0 wire: its events and inputs, and the projection of a run to it.
//!
//! The specification is at <https://ag-ui.com/spec/1.0>. The types are tested against the schemas
//! of the official client.
//!
//! From a run to the client:
//! - `event`: the events. `message`, `media`, `activity`: what events carry, as types named
//!   `Wire..` where the run has a type of the same name.
//! - `client`: for whom a stream is. `project`: the events of a run for one client.
//! - `proto`: events in the binary form. `tanstack`: a conversation as `TanStack` AI loads it.
//! - `capabilities`: what an agent can do.
//!
//! From the client to a run:
//! - `input`: the request. `allowance`: what the operator lets a client set.
//! - `request_planner`: the run that a request becomes. `resume`: its answers to interrupts.
//! - `client_keys`: the keys of a graph's state for the client's tools and context. `copilotkit`:
//!   CopilotKit's own names.

mod activity;
mod allowance;
mod capabilities;
mod client;
mod client_keys;
mod copilotkit;
mod event;
mod input;
mod media;
mod message;
mod project;
mod proto;
mod request_planner;
mod resume;
mod tanstack;

pub use activity::ActivityContent;
pub use allowance::{
    Allowance, DEFAULT_RECURSION_LIMIT, LostThread, NotSettableByClients, SystemMessages,
};
pub use capabilities::{AgentDescription, GatewayFeatures, StateSupport, capabilities};
pub use client::{Client, ClientMessages, RunId, Version};
pub use client_keys::ClientProvided;
pub use event::{
    Event, LangGraphMetadata, LastError, Metadata, ResultMetadata, ResultStatus, SubagentOutcome,
    TokenUsage, WireInterrupt, WireOutcome,
};
pub use input::{Input, InputError, Resume, ResumeStatus};
pub use media::{WirePart, WirePartMetadata, WireSource};
pub use message::{WireContent, WireFunction, WireMessage, WireMessages, WireToolCall};
pub use project::Projector;
pub use proto::ProtoEncoder;
pub use request_planner::{OnMessage, RequestPlanner};
pub use resume::ResumeError;
pub use tanstack::{NoSuchMessage, Window, window};

/// The protocol version that the gateway speaks.
pub const PROTOCOL_VERSION: &str = "1.0";
