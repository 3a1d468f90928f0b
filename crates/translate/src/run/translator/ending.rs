//! How a run ends.

use super::Translator;
use crate::langgraph::RunError;
use crate::run::{Failure, Id, LossReason, Outcome};

/// How the stream of a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// The body ended, and nobody could be asked how the run ended.
    Complete,
    /// The body ended, and the run's record says that it succeeded.
    Succeeded,
    /// The body ended, and the run's record says that it failed.
    Failed(RunError),
    /// The body ended, and the run's record says that it was stopped.
    Cancelled,
    /// There was no run: the thread is idle.
    Idle {
        /// How its last run ended.
        last: LastRun,
    },
    /// The run may still run, but its stream or its record is out of reach.
    Lost {
        /// Why the gateway does not know how the run goes on.
        loss: LossReason,
        /// What happened.
        message: String,
    },
    /// The server has neither the run nor its thread any more.
    Gone,
}

/// How the last run of an idle thread ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LastRun {
    /// It ran to its end, or the thread never had a run.
    Ended,
    /// It was stopped, or nothing is known of its failure.
    Stopped,
    /// It failed.
    Failed(RunError),
}

impl Translator {
    /// The end of the stream, read together with what the stream said.
    pub(super) fn understand(&self, end: StreamEnd) -> StreamEnd {
        match end {
            StreamEnd::Complete => match &self.error {
                Some(error) => StreamEnd::Failed(error.clone()),
                None if self.assembler.is_mid_sentence() && !self.is_interrupted() => {
                    StreamEnd::Lost {
                        loss: LossReason::Incomplete,
                        message: "the stream broke off in the middle of a message".to_owned(),
                    }
                }
                None => StreamEnd::Succeeded,
            },
            // The stream names the exception, which the record may not.
            StreamEnd::Failed(error) => StreamEnd::Failed(match self.error.clone() {
                Some(own) => RunError { reports: error.reports, ..own },
                None => error,
            }),
            end @ (StreamEnd::Succeeded
            | StreamEnd::Cancelled
            | StreamEnd::Idle { .. }
            | StreamEnd::Lost { .. }
            | StreamEnd::Gone) => end,
        }
    }

    /// The outcome of the run. `open` are the calls that wait for a result.
    pub(super) fn outcome(&self, end: StreamEnd, open: &[Id]) -> Outcome {
        match end {
            StreamEnd::Lost { loss, message } => {
                Outcome::Failed(Failure::Gateway { loss, message })
            }
            StreamEnd::Gone => {
                let message = "LangGraph has neither the run nor its thread any more".to_owned();
                Outcome::Failed(Failure::Gateway { loss: LossReason::Gone, message })
            }
            StreamEnd::Cancelled => Outcome::Cancelled,
            StreamEnd::Failed(error) if is_cancel(&error) => Outcome::Cancelled,
            StreamEnd::Failed(error) => Outcome::Failed(Failure::Graph(error)),
            end if self.ends_interrupted(&end) => {
                let thread_id = &self.ids.thread_id;
                let agents = |namespace: &str| self.assembler.steps.path(namespace);
                Outcome::Interrupted(self.questions.to_interrupts(thread_id, self.view(), agents))
            }
            StreamEnd::Idle { last } => {
                let (pending_calls, error) = match last {
                    LastRun::Ended => (open.to_vec(), None),
                    LastRun::Stopped => (Vec::new(), None),
                    LastRun::Failed(error) => (Vec::new(), Some(error)),
                };
                Outcome::Idle { pending_calls, error }
            }
            StreamEnd::Complete | StreamEnd::Succeeded => {
                Outcome::Finished { pending_calls: open.to_vec(), finish: self.assembler.finish() }
            }
        }
    }

    /// Whether the run waits for an answer at this end.
    pub(super) fn ends_interrupted(&self, end: &StreamEnd) -> bool {
        let is_over =
            matches!(end, StreamEnd::Complete | StreamEnd::Succeeded | StreamEnd::Idle { .. });
        is_over && self.is_interrupted()
    }
}

/// Whether a failure is a cancelled run: the JavaScript server sends one to a joined stream (since
/// 1.4.4 only for `rollback`), and the Python server records one.
fn is_cancel(error: &RunError) -> bool {
    matches!(error.code.as_str(), "UserInterrupt" | "UserRollback")
        || (error.code == "Error" && matches!(error.message.as_str(), "interrupt" | "rollback"))
}
