//! The end of a run: `RUN_FINISHED` or `RUN_ERROR`, with the tokens that the run has used.

use super::Projector;
use super::interrupt::interrupts;
use crate::agui::client::Version;
use crate::agui::{Event, LangGraphMetadata, LastError, Metadata, TokenUsage, WireOutcome};
use crate::run;

impl Projector {
    /// Emits the terminal event.
    pub(super) fn ended(
        &self,
        outcome: &run::Outcome,
        usage: &[run::Usage],
        emit: &mut dyn FnMut(&Event<'_>),
    ) {
        let usage = usage.iter().map(token_usage).collect();
        let mut metadata = None;
        if let run::Outcome::Idle { error: Some(error), .. } = outcome {
            metadata = Some(failed(&error.code, &error.message, &error.reports));
        }
        let outcome = match (outcome, self.client.version) {
            (run::Outcome::Failed(failure), _) => {
                let (message, code, sources) =
                    (failure.message(), failure.code(), failure.reports());
                let metadata = (!sources.is_empty()).then(|| failed(code, message, sources));
                return emit(&Event::RunError { message, code: Some(code), usage, metadata });
            }
            // Older clients take `RUN_FINISHED` for a success and `RUN_ERROR` for a failure, except
            // that they show an error with the code `abort` as neither.
            (run::Outcome::Cancelled, Version::Legacy) => {
                let message = "the run was cancelled";
                let code = Some("abort");
                return emit(&Event::RunError { message, code, usage, metadata });
            }
            (run::Outcome::Cancelled, Version::V1) => Some(WireOutcome::Cancelled),
            (run::Outcome::Finished { .. } | run::Outcome::Idle { .. }, Version::Legacy) => None,
            (
                run::Outcome::Finished { pending_calls, .. }
                | run::Outcome::Idle { pending_calls, .. },
                Version::V1,
            ) => Some(WireOutcome::Success {
                pending_tool_call_ids: pending_calls.iter().map(|id| &**id).collect(),
            }),
            (run::Outcome::Interrupted(questions), _) => Some(WireOutcome::Interrupt {
                interrupts: questions.iter().flat_map(interrupts).collect(),
            }),
        };
        emit(&Event::RunFinished {
            thread_id: &self.client.thread_id,
            run_id: &self.run_id,
            result: None,
            outcome,
            usage,
            metadata,
        });
    }
}

/// The metadata that says why a run failed.
fn failed<'a>(code: &'a str, message: &'a str, sources: &'a [run::ErrorReport]) -> Metadata<'a> {
    let error = Some(LastError { code, message, sources });
    Metadata { langgraph: LangGraphMetadata { thread_id: None, run_id: None, error } }
}

fn token_usage(usage: &run::Usage) -> TokenUsage<'_> {
    /// The largest integer that JavaScript holds exactly. Larger counts are left out.
    const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;
    let safe = |number: Option<u64>| number.filter(|number| *number <= MAX_SAFE_INTEGER);
    TokenUsage {
        provider: usage.provider.as_deref(),
        model: usage.model.as_deref(),
        input_tokens: safe(usage.input),
        output_tokens: safe(usage.output),
        total_tokens: safe(usage.total),
        reasoning_tokens: safe(usage.reasoning),
        cached_input_tokens: safe(usage.cache_read),
        cache_write_input_tokens: safe(usage.cache_write),
    }
}
