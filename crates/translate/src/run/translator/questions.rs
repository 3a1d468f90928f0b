//! What the run asks before it goes on.

use crate::langgraph::{self, KeptAnswer};
use crate::run::{Id, Interrupt, View};

/// What the run asks before it goes on.
#[derive(Debug, Default)]
pub(super) struct Questions {
    interrupts: Vec<Interrupt>,
    /// The answers to them that the thread's metadata keep.
    kept: Vec<KeptAnswer>,
    is_at_breakpoint: bool,
}

// === impl Questions ===

impl Questions {
    /// Takes in the interrupts of a part; `None` if the part has no list of them.
    pub(super) fn on_list(&mut self, interrupts: Option<&[langgraph::RawInterrupt<'_>]>) {
        match interrupts {
            // An empty list is a static breakpoint, which is an interrupt too.
            Some([]) => self.stop_at_breakpoint(),
            Some(interrupts) => self.add(interrupts),
            None => {}
        }
    }

    /// Adds the interrupts that are not known.
    pub(super) fn add(&mut self, interrupts: &[langgraph::RawInterrupt<'_>]) {
        for interrupt in interrupts {
            if self.interrupts.iter().all(|known| *known.id != *interrupt.id) {
                self.interrupts.push(Interrupt::of_langgraph(interrupt));
            }
        }
    }

    /// The run has stopped at a static breakpoint.
    pub(super) fn stop_at_breakpoint(&mut self) {
        self.is_at_breakpoint = true;
    }

    /// Adds answers that the thread's metadata keep.
    pub(super) fn keep(&mut self, kept: &[KeptAnswer]) {
        self.kept.extend_from_slice(kept);
    }

    /// Forgets what a void attempt has asked.
    pub(super) fn clear(&mut self) {
        self.interrupts.clear();
        self.is_at_breakpoint = false;
    }

    /// Whether anything is asked.
    pub(super) fn is_open(&self) -> bool {
        self.is_at_breakpoint || !self.interrupts.is_empty()
    }

    /// Whether one question is about several actions, some of which may be answered.
    pub(super) fn has_batch(&self) -> bool {
        self.interrupts.iter().any(Interrupt::is_batch)
    }

    /// The interrupts of the run, each with the calls that it is about.
    pub(super) fn to_interrupts(&self, thread_id: &Id, view: &View) -> Vec<Interrupt> {
        let mut questions = self.interrupts.clone();
        if questions.is_empty() {
            questions.push(Interrupt::breakpoint(thread_id));
        }
        for question in &mut questions {
            question.keep(&self.kept);
            question.ask_some();
            question.find_calls(view);
        }
        questions
    }
}
