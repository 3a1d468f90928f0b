//! Web pages as clients: which of them the gateway answers.
//!
//! - [`cors`]: the origins whose pages may use the gateway.
//! - [`host`]: the names that the gateway answers to while it has no `auth`.
//! - [`refused`]: what a refused page and the operator's log are sent.

pub(in crate::server) mod cors;
pub(in crate::server) mod host;
pub(in crate::server) mod refused;
