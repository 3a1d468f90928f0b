//! Tests of the gateway without a process and a socket: its docs, the rules of the code base, and
//! the fuzz corpus.

#![cfg(test)]

#[path = "../support"]
#[expect(dead_code, reason = "other test binaries use the rest of these")]
mod support {
    //! The part of `tests/support` that opens no socket.

    pub(crate) mod acp;
    pub(crate) mod acp_schema;
    pub(crate) mod capture;
    pub(crate) mod fuzz;
    pub(crate) mod generate;
    pub(crate) mod judge;
    pub(crate) mod plan;
    pub(crate) mod reading;
    pub(crate) mod reduce;
    pub(crate) mod schema;
    pub(crate) mod verify;
}

mod circles;
mod commands;
mod corpus;
mod emit;
mod errors;
mod first_steps;
mod limits;
mod messages_key;
mod promises;
mod sse_oracle;
mod tidy;
