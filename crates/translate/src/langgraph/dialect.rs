//! The stream modes that carry the same messages, each in its own form: dialects.
//!
//! LangGraph streams one message in several modes, and a run may be asked for more than one.
//! Each dialect is a small state machine in a file of its own.
//! All of them yield the same utterances: who speaks, about which message, and which piece.
//!
//! ```text
//!                     event name, data
//!                            |
//!                Part::parse |  asks the dialects in the order of the list: Dialect::read
//!                            v
//!              Body::Said(..)               Body::Values, Updates, Task, ..
//!                    |                                  |
//!   run::Translator  v                                  |
//!           Dialects::utter                             |
//!    tuples | partial | events | protocol               |
//!                    |                                  |
//!                    v Utterance                        v
//!   run::arbiter: the dialect that speaks first keeps the message, whole messages add the rest
//!                    |
//!                    v
//!              run::Brackets  ->  RunEvent
//! ```
//!
//! The machines decide nothing about what is shown.
//! They know neither what other dialects said nor what the client holds: the arbiter does.
