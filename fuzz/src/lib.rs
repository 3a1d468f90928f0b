//! The entry points of the fuzz targets: the checks with which the tests replay the corpora, and
//! the mutators that know the form of an input.

pub mod mutate;

#[path = "../../tests/support"]
#[expect(dead_code, reason = "the tests use the rest")]
mod support {
    pub(crate) mod acp;
    pub(crate) mod fuzz;
    pub(crate) mod reading;
    pub(crate) mod verify;
}

/// Any bytes as an event stream.
pub fn sse(data: &[u8]) {
    support::fuzz::sse::check(data);
}

/// Any bytes as a run's stream, projected for each kind of client.
pub fn translate(data: &[u8]) {
    support::fuzz::translate::check(data);
}

/// Any bytes as a client's request.
pub fn input(data: &[u8]) {
    support::fuzz::input::check(data);
}

/// Any bytes as an event id.
pub fn event_id(data: &[u8]) {
    support::fuzz::event_id::check(data);
}

/// Any bytes as a config file.
pub fn config(data: &[u8]) {
    support::fuzz::config::check(data);
}

/// Any bytes as a line of an ACP client.
pub fn rpc(data: &[u8]) {
    support::fuzz::rpc::check(data);
}
