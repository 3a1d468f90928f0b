//! One part of a LangGraph stream, typed by its SSE event name.
//!
//! A part borrows from its frame; opaque payloads stay raw.
//! Both servers are understood (`langgraph-api` 0.16 for Python, 2.0 for JavaScript), and the
//! newer streaming protocol's envelope where a join delivers it under a legacy name.

mod approval;
mod block;
mod config;
mod cursor;
mod envelope;
mod event;
mod interrupt;
mod kept;
mod media;
mod message;
mod messages_key;
mod origin;
mod part;
mod record;
mod replay;
mod request;
mod run_error;
mod task;
mod thread_state;
mod values;

pub use approval::{Approval, ApprovalForm, ApprovalRequest, Decision};
pub use block::{Block, Reasoning};
pub use config::{ConfigChoice, ConfigField, ConfigKind};
pub use cursor::{Cursor, ParseCursorError};
pub use envelope::Lifecycle;
pub use event::{ModelEvent, ProtocolEvent};
pub use interrupt::RawInterrupt;
pub use kept::{
    BatchDecision, KeptAnswer, KeptAnswers, MAX_KEPT_ACTIONS, MAX_KEPT_BYTES, NewestRuns,
};
pub use media::{Media, MediaKind, MediaSource};
pub use message::{CallChunk, Finish, Message, MessageType, WholeCall};
pub use messages_key::{GraphLevel, MessagesKey, ParseMessagesKeyError};
pub use origin::{Mutes, Origin};
pub use part::{Body, Part};
pub use record::{
    ARCHIVED, Assistant, CLIENT_THREAD_ID, InputKeys, RunRecord, RunStatus, ServerInfo, ServerKind,
    TITLE, ThreadMark, ThreadRecord, ThreadStatus, headline,
};
pub use replay::{Novelty, Replay};
pub use request::{Multitask, RunRequest, Start};
pub use run_error::{ErrorDetail, ErrorReport, ErrorSource, RunError};
pub use task::Task;
pub use thread_state::ThreadState;
pub use values::{NodeUpdate, Updates, Values};
