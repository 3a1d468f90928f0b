//! Everything that needs no process and no socket: bytes in, events out, and the rules of the house.

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
    pub(crate) mod reading;
    pub(crate) mod reduce;
    pub(crate) mod schema;
    pub(crate) mod verify;
}

mod acp;
mod acp_golden;
mod acp_properties;
mod activity;
mod agui;
mod attachments;
mod cases;
mod corpus;
mod emit;
mod errors;
mod first_steps;
mod golden;
mod kept;
mod messages_key;
mod promises;
mod properties;
mod proto;
mod regression;
mod schema_check;
mod sse_oracle;
mod sse_properties;
mod tidy;
mod verify;
