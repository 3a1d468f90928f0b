//! A thread's state as LangGraph sends it.

use std::ops::Deref;
use std::sync::Arc;

use super::{AnswerText, Client, Error};
use crate::metrics::{Charge, Held, SMALL};

/// A thread's state. A large one is charged to the caller that it was read for.
#[derive(Clone, Debug)]
pub(crate) struct StateText {
    text: AnswerText,
    charge: Option<Arc<Charge>>,
}

// === impl Client ===

impl Client {
    /// The state of a thread for a client that is to see it: as
    /// [`thread_state`](Self::thread_state), and charged. An error for a caller whose unknown
    /// threads are refused, if the server hides the thread from it.
    pub(crate) async fn shown_state(&self, thread_id: &str) -> Result<Option<StateText>, Error> {
        let Some(text) = self.thread_state(thread_id).await? else {
            self.check_record(thread_id).await?;
            return Ok(None);
        };
        if text.len() <= SMALL {
            return Ok(Some(StateText { text, charge: None }));
        }
        let memory = self.metrics().memory();
        let holder = memory.threads_of(self.caller().holder(memory));
        let mut charge = memory.charge(Held::Thread, holder);
        charge.set(text.len())?;
        Ok(Some(StateText { text, charge: Some(Arc::new(charge)) }))
    }
}

// === impl StateText ===

impl StateText {
    /// The charge, for whoever keeps what was made of the text.
    pub(crate) fn charge(&self) -> Option<Arc<Charge>> {
        self.charge.clone()
    }
}

impl Deref for StateText {
    type Target = AnswerText;

    fn deref(&self) -> &AnswerText {
        &self.text
    }
}
