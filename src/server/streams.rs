//! Event streams: a run's events as the bytes of a response.
//!
//! - [`wire`]: how events are framed, such as SSE or one JSON document a line.
//! - [`encoder`]: writes the events of one run for one client.
//! - [`outgoing`]: bytes that are ready to be sent, and large parts that streams share.
//! - [`body`]: the response body that pulls events from a run's log.
//! - [`array`]: the events as one JSON array, for clients that cannot read a stream.
//! - [`frames`]: the events one by one, for a socket.
//! - [`many`]: the events and marks of many threads, each with its thread's name.
//! - [`last_event`]: the last event that the client has.
//! - [`retry`]: when an `EventSource` reconnects.
//! - [`silence`]: keep-alives while there are no events.
//! - [`event_stream`]: a reader with its encoder and its slot.
//! - [`unread`]: large parts that were not taken yet: equal ones once, within a budget.
//! - [`whole`]: an answer that is known to its end, in parts.

pub(in crate::server) mod array;
pub(in crate::server) mod body;
pub(in crate::server) mod encoder;
pub(in crate::server) mod event_stream;
pub(in crate::server) mod frames;
pub(in crate::server) mod last_event;
pub(in crate::server) mod many;
pub(in crate::server) mod outgoing;
pub(in crate::server) mod retry;
pub(in crate::server) mod silence;
pub(in crate::server) mod unread;
pub(in crate::server) mod whole;
pub(in crate::server) mod wire;
