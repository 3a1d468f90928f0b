//! Plans the run of a prompt.
//!
//! A model's provider refuses a conversation in which a person speaks after a call without a result.
//! A run that was stopped or failed inside a tool leaves such a call, and so does a client that does
//! not answer its own tool.

use std::convert::Infallible;

use crate::json::{self, Json, ObjectWriter};
use crate::langgraph::{InputKeys, MessagesKey, Start, ThreadState};
use crate::run::plan::{Conversation, Turn};
use crate::run::{Dropped, Evidence, Need, NewRun, Plan, PlanStep, Planner, Role};

/// The message of a prompt, with the place where the graph takes it.
#[derive(Clone, Debug)]
pub struct PromptMessage {
    /// Its id.
    pub id: String,
    /// The message in LangGraph's form.
    pub message: Json,
    /// The key of the state that holds the graph's conversation.
    pub messages_key: MessagesKey,
}

/// A prompt on a thread. Calls that wait for a result get an error result before the prompt, unless
/// a live run will give them theirs.
#[derive(Clone, Debug)]
pub struct PromptPlanner {
    /// The person's message.
    pub prompt: PromptMessage,
    /// The run. The plan replaces its start.
    pub run: NewRun,
}

// === impl PromptMessage ===

impl PromptMessage {
    /// The input of a run that begins with the prompt alone: for a thread without open calls.
    pub fn input(&self) -> Start {
        self.input_of(&json::array([self.message.get()]))
    }

    fn input_of(&self, messages: &Json) -> Start {
        Start::Input(ObjectWriter::new().raw(self.messages_key.as_str(), messages.get()).finish())
    }
}

// === impl PromptPlanner ===

impl Planner for PromptPlanner {
    type Error = Infallible;

    fn name(&self) -> &str {
        &self.run.name
    }

    fn bytes(&self) -> usize {
        self.prompt.message.get().len()
    }

    fn is_answer(&self) -> bool {
        false
    }

    fn needs_keys(&self, _thread: Option<&ThreadState<'_>>) -> bool {
        false
    }

    fn plan(&self, evidence: &Evidence<'_>, _keys: &InputKeys) -> Result<PlanStep, Infallible> {
        let conversation = Conversation::of(evidence.state);
        let live = match evidence.live {
            None if !conversation.open_calls().is_empty() => {
                return Ok(PlanStep::Needs(Need::Runs));
            }
            live => live.unwrap_or_default(),
        };
        let mut turn = Turn::after(&conversation, live);
        if live.is_empty() {
            turn.abandon_calls();
        }
        // Another run may bring results of the same calls.
        let is_alone = !turn.is_empty();
        let said = turn.say_raw(&self.prompt.id, self.prompt.message.clone());
        let dropped = said.err().map(|why| Dropped::Message { at: 0, role: Role::User, why });
        let start = self.prompt.input_of(&turn.to_json());
        let run = NewRun { start, is_alone, ..self.run.clone() };
        Ok(Plan { dropped: dropped.into_iter().collect(), ..run.into() }.into())
    }
}

#[cfg(test)]
mod tests;
