//! Reading a request.
//!
//! - [`forward`]: the headers that are sent on to LangGraph.
//! - [`head`]: what the checks before a route read of it.
//! - [`query`]: parameters of the path and of the query.
//! - [`run_name`]: a client's name for a run.
//! - [`thread_name`]: a client's name for a thread, and LangGraph's.
//! - [`weights`]: header lists with weights, such as `gzip;q=0.5`.

pub(in crate::server) mod forward;
pub(in crate::server) mod head;
pub(in crate::server) mod query;
pub(in crate::server) mod run_name;
pub(in crate::server) mod thread_name;
pub(in crate::server) mod weights;
