//! Shared code of the integration tests: scripted servers, clients, and judges that know the wire
//! and share no code with the gateway.

#![allow(dead_code, reason = "each test binary uses a part of this")]

pub(crate) mod acp;
pub(crate) mod acp_schema;
pub(crate) mod capture;
pub(crate) mod clock;
pub(crate) mod editor;
pub(crate) mod evolving;
pub(crate) mod frames;
pub(crate) mod fuzz;
pub(crate) mod gateway;
pub(crate) mod generate;
pub(crate) mod hostile;
pub(crate) mod http;
pub(crate) mod issuer;
pub(crate) mod judge;
pub(crate) mod langgraph;
pub(crate) mod openapi;
pub(crate) mod plan;
pub(crate) mod process;
pub(crate) mod reading;
pub(crate) mod reduce;
pub(crate) mod remote;
pub(crate) mod schema;
pub(crate) mod signer;
pub(crate) mod socket;
pub(crate) mod upstream;
pub(crate) mod verify;
