//! The whole translation, from bytes to events, against recordings, schemas and random runs.

#![cfg(test)]

#[path = "../../../../tests/support"]
#[expect(dead_code, reason = "other test binaries use the rest of these")]
mod support {
    //! The part of the gateway's `tests/support` that opens no socket.

    pub(crate) mod acp;
    pub(crate) mod acp_schema;
    pub(crate) mod capture;
    pub(crate) mod evolving;
    pub(crate) mod generate;
    pub(crate) mod judge;
    pub(crate) mod plan;
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
mod below;
mod cases;
mod children;
mod copilotkit;
mod golden;
mod notices;
mod properties;
mod proto;
mod regression;
mod requests;
mod schema_check;
mod sse_properties;
mod stored_decisions;
mod verify;
mod way_up;
