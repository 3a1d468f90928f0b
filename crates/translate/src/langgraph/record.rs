//! What LangGraph's records say of runs, threads, assistants and the server.
//!
//! - `run`: `GET /threads/{id}/runs/{id}` and the list of a thread's runs.
//! - `thread`: `GET /threads/{id}` and `POST /threads/search`.
//! - `assistant`: `POST /assistants/search` and `GET /assistants/{id}/schemas`.
//! - `server`: `GET /info`.

mod assistant;
mod run;
mod server;
mod thread;

pub use assistant::{Assistant, GraphKeys, InputKeys};
pub use run::{RunRecord, RunStatus};
pub use server::{Capabilities, Joins, ServerInfo, Unsupported};
pub use thread::{
    ARCHIVED, CLIENT_THREAD_ID, TITLE, ThreadActivity, ThreadMark, ThreadRecord, ThreadStatus,
    headline,
};
