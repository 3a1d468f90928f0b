//! What LangGraph servers send and accept, as types.
//!
//! [`Part::parse`] reads one event of a run's stream. The server's other answers have a `parse`
//! each: [`RunRecord`], [`ThreadRecord`], [`ThreadState`], [`Assistant`], [`ServerInfo`].
//! [`RunRequest`] is the body that starts a run. [`Replay`] finds the events that a joined stream
//! repeats.
//!
//! Values borrow from the text that they were read from. JSON without a meaning to this crate is
//! not parsed.
//!
//! The module knows `langgraph-api` 0.16 for Python and 1.5 for JavaScript. It also reads the
//! envelope of the newer streaming protocol, which a join may deliver under the name of a stream
//! mode.
//!
//! The files:
//!
//! - `part`: an event of a stream, by the stream mode that made it.
//! - `dialect`: the stream modes that carry messages, each as a state machine. `copilotkit`: the names
//!   that CopilotKit gives its events and metadata.
//! - `message`, `block`, `media`, `call_metadata`: LangChain's messages, their content, and which model call
//!   they come from. `suppressed`: what of such a call is not streamed. `messages_key`: the key of the state that has the messages.
//! - `values`, `task`, `interrupt`, `run_error`: the other parts of a stream.
//! - `approval`: interrupts that ask whether a tool may be called, and their answers. `stored_decisions`:
//!   answers that wait for others.
//! - `record`, `thread_state`, `config`: runs, threads and assistants. `model`: what their models take.
//! - `request`: a run to start.
//! - `cursor`, `replay`: how a stream is resumed.

mod approval;
mod block;
mod call_metadata;
mod config;
pub(crate) mod copilotkit;
mod cursor;
pub(crate) mod dialect;
mod interrupt;
mod media;
mod message;
mod messages_key;
mod model;
mod part;
mod record;
mod replay;
mod request;
mod run_error;
mod stored_decisions;
mod suppressed;
mod task;
mod thread_state;
mod values;

pub use approval::{Approval, ApprovalForm, ApprovalRequest, Decision};
pub use block::{Block, Reasoning};
pub(crate) use call_metadata::CallMetadata;
pub use config::{ConfigChoice, ConfigField, ConfigKind};
pub use cursor::{Cursor, ParseCursorError};
pub use dialect::Said;
pub use interrupt::RawInterrupt;
pub use media::{Media, MediaKind, MediaSource};
pub use message::{CallChunk, Finish, Message, MessageType, WholeCall};
pub use messages_key::{GraphLevel, MessagesKey, ParseMessagesKeyError};
pub(crate) use model::MODEL_KEYS;
pub use model::ModelInput;
pub use part::{Part, PartPayload, StreamForm, has_values};
pub use record::{
    ARCHIVED, Assistant, CLIENT_THREAD_ID, Capabilities, GraphKeys, InputKeys, Joins, RunRecord,
    RunStatus, ServerInfo, TITLE, ThreadActivity, ThreadMark, ThreadRecord, ThreadStatus,
    Unsupported, headline,
};
pub use replay::{Novelty, Replay, Taken};
pub use request::{Multitask, RunRequest, Start};
pub use run_error::{ErrorDetail, ErrorReport, ErrorSource, RunError};
pub use stored_decisions::{
    BatchDecision, MAX_KEPT_ACTIONS, MAX_KEPT_BYTES, NewestRuns, StoredDecision, StoredDecisions,
};
pub(crate) use suppressed::{Suppressed, SuppressedCalls};
pub use task::Task;
pub(crate) use task::is_internal_node;
pub use thread_state::{
    CheckpointSource, StatesBelow, ThreadState, WaitingTask, Written, with_state,
};
pub use values::{NodeUpdate, Updates, Values};
