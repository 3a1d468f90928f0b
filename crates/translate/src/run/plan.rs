//! What the plans of both protocols are made of.
//!
//! - `conversation`: a thread's messages, and the calls that wait for a result.
//! - `turn`: the messages that go up, which always continue the conversation legally.

mod conversation;
mod turn;

pub(crate) use conversation::{Conversation, Held, OpenCall, id_of};
pub(crate) use turn::Turn;
