//! Reading a request.
//!
//! - [`accept`]: how the client wants its events, by its `Accept` header.
//! - [`body`]: the body, within a size and a time.
//! - [`forward`]: the headers that are sent on to LangGraph.
//! - [`input`]: what run and connect do first with a `RunAgentInput`.
//! - [`last_event`]: the last event that the client has.
//! - [`query`]: parameters of the path and of the query.
//! - [`thread_name`]: a client's name for a thread, and LangGraph's.
//! - [`weights`]: header lists with weights, such as `gzip;q=0.5`.

pub(in crate::server) mod accept;
pub(in crate::server) mod body;
pub(in crate::server) mod forward;
pub(in crate::server) mod input;
pub(in crate::server) mod last_event;
pub(in crate::server) mod query;
pub(in crate::server) mod thread_name;
pub(in crate::server) mod weights;
