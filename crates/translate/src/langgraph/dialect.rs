//! The stream modes that carry the same messages, each in its own form: dialects.
//!
//! LangGraph streams one message in several modes, and a run may be asked for more than one.
//! Each dialect is a small state machine in a file of its own.
//! All of them yield the same events: the producer, the message, and the pieces.
//!
//! ```text
//!                     event name, data
//!                            |
//!                Part::parse |  asks the dialects in the order of the list: Dialect::read
//!                            v
//!              Body::Said(..)               Body::Values, Updates, Task, ..
//!                    |                                  |
//!   run::Translator  v                                  |
//!           Dialects::translate                         |
//!    tuples | partial | events | protocol | bare        |
//!                    |                                  |
//!                    v DialectEvent                     v
//!   run::assembler: the first dialect that brings a message owns it, whole messages add the rest
//!                    |
//!                    v
//!              run::EventWriter  ->  RunEvent
//! ```
//!
//! The machines decide nothing about what is shown.
//! They know neither what other dialects said nor what the client holds: the assembler does.
//!
//! - `dialect_event`: what the machines yield;
//! - `protocol`: the newer streaming protocol;
//! - `bare`: the same without envelopes, as the JavaScript server streams it;
//! - `tuples`: tokens in `messages` tuples;
//! - `partial`: prefixes in `messages/partial`, and the modes beside it;
//! - `events`: LangChain's event stream;
//! - `chunk`: what a message or a chunk of LangChain's says, in whichever mode.

mod bare;
mod chunk;
pub(crate) mod dialect_event;
mod events;
mod partial;
mod protocol;
#[cfg(test)]
mod tests;
mod tuples;

use std::borrow::Cow;
use std::fmt::Debug;

pub(crate) use self::chunk::is_made_up;
use self::dialect_event::DialectEvent;
pub(super) use self::events::may_have_token;
use super::{MessagesKey, Part, PartPayload};

/// Declares what there is once for each dialect, from lines `module: Machine`.
macro_rules! dialects {
    ($($module:ident: $machine:ident,)*) => {
        /// Which dialect.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum DialectName {
            $($machine,)*
        }

        impl DialectName {
            /// Whether the dialect says every message from its beginning.
            pub(crate) fn starts_messages(self) -> bool {
                match self {
                    $(Self::$machine => <$module::$machine as Dialect>::STARTS_MESSAGES,)*
                }
            }

            /// Whether the dialect marks where subgraphs begin and end.
            pub(crate) fn marks_subgraphs(self) -> bool {
                match self {
                    $(Self::$machine => <$module::$machine as Dialect>::MARKS_SUBGRAPHS,)*
                }
            }
        }

        /// A part of one of the dialects. Only the machine of the dialect knows its form.
        #[derive(Debug)]
        pub struct Said<'a>(AnyPart<'a>);

        #[derive(Debug)]
        enum AnyPart<'a> {
            $($machine(<$module::$machine as Dialect>::Part<'a>),)*
        }

        $(
            impl<'a> From<<$module::$machine as Dialect>::Part<'a>> for AnyPart<'a> {
                fn from(part: <$module::$machine as Dialect>::Part<'a>) -> Self {
                    Self::$machine(part)
                }
            }
        )*

        /// The machines of one run.
        #[derive(Debug, Default)]
        pub(crate) struct Dialects {
            $($module: $module::$machine,)*
        }

        impl Dialects {
            /// Yields what a part says, and in which dialect.
            pub(crate) fn translate(
                &mut self,
                said: &Said<'_>,
                namespace: &str,
                key: &MessagesKey,
                mut emit: impl FnMut(DialectName, DialectEvent<'_, '_>),
            ) {
                let context = Context { namespace, key };
                match &said.0 {
                    $(AnyPart::$machine(part) => self.$module.translate(part, context, &mut |event| {
                        emit(DialectName::$machine, event);
                    }),)*
                }
            }

            /// Forgets the messages under way, when a new attempt begins or parts may be missing.
            pub(crate) fn forget(&mut self) {
                $(self.$module.forget();)*
            }
        }

        /// Reads a part that is one of a dialect's.
        pub(super) fn read<'a>(raw: &RawPart<'_, 'a>) -> Option<Part<'a>> {
            None$(.or_else(|| $module::$machine::read(raw)))*
        }
    };
}

// The dialects, in the order in which a part is offered to them: the module, and its machine.
dialects! {
    protocol: Protocol,
    bare: Bare,
    tuples: Tuples,
    partial: Partial,
    events: Events,
}

/// A dialect: how its parts are read, and the machine that turns them into events.
trait Dialect: Default {
    /// One part, read.
    type Part<'a>: Debug;

    /// Whether the dialect says every message from its beginning, even in a stream that was joined
    /// in the middle of the run.
    const STARTS_MESSAGES: bool;

    /// Whether the dialect marks where subgraphs begin and end.
    const MARKS_SUBGRAPHS: bool;

    /// Reads a part; `None` if it is not one of this dialect's.
    fn read<'a>(raw: &RawPart<'_, 'a>) -> Option<Part<'a>>;

    /// Yields what a part says, in order.
    fn translate(
        &mut self,
        part: &Self::Part<'_>,
        context: Context<'_>,
        emit: &mut dyn FnMut(DialectEvent<'_, '_>),
    );

    /// Forgets the messages under way, when a new attempt begins or parts may be missing.
    fn forget(&mut self) {}
}

/// A part before it is read.
pub(super) struct RawPart<'r, 'a> {
    /// The stream mode.
    pub(super) mode: &'r str,
    /// The subgraph that the part comes from.
    pub(super) namespace: Cow<'a, str>,
    /// The JSON, on one line.
    pub(super) data: &'a str,
    /// Under which key of its state the graph keeps its conversation.
    pub(super) key: &'r MessagesKey,
    /// Whether the part is an envelope of the newer protocol.
    pub(super) wrapping: Wrapping,
}

/// Whether a part is an envelope of the newer protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrapping {
    /// It is, if it looks like one.
    Possible,
    /// It is not: what looks like one is a graph's own data.
    Never,
    /// It is what an envelope contains.
    Opened,
}

/// The facts about a part, besides its payload, that a machine may use.
#[derive(Clone, Copy)]
struct Context<'c> {
    /// The subgraph that the part comes from.
    namespace: &'c str,
    /// Under which key of its state the graph keeps its conversation.
    key: &'c MessagesKey,
}

// === impl RawPart ===

impl<'a> RawPart<'_, 'a> {
    /// The part with this body.
    pub(super) fn with(&self, body: PartPayload<'a>) -> Part<'a> {
        let is_mended = matches!(&body, PartPayload::Values(values) if values.is_mended);
        let is_enveloped = self.wrapping == Wrapping::Opened;
        Part { namespace: self.namespace.clone(), body, is_mended, is_enveloped }
    }

    /// The part with what a dialect has read of it; a malformed one of the mode, if that is nothing.
    fn said(&self, part: Option<impl Into<AnyPart<'a>>>, mode: &'static str) -> Part<'a> {
        let said = part.map(|part| PartPayload::Said(Said(part.into())));
        self.with(said.unwrap_or(PartPayload::Malformed(mode)))
    }
}
