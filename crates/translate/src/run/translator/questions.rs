//! What the run asks before it goes on.

use std::collections::HashMap;
use std::sync::Arc;

use crate::langgraph::{self, StoredDecision, ThreadState};
use crate::run::{Id, Interrupt, View};

/// What the run asks before it goes on.
#[derive(Debug, Default)]
pub(super) struct Questions {
    interrupts: Vec<Interrupt>,
    /// By interrupt: the namespace of the graph whose node asks. A question comes up through all
    /// graphs that contain it.
    asking: HashMap<Id, Id>,
    /// The answers to them that the thread's metadata keep.
    kept: Vec<StoredDecision>,
    is_at_breakpoint: bool,
}

// === impl Questions ===

impl Questions {
    /// Takes in the interrupts of a part; `None` if the part has no list of them.
    pub(super) fn on_list(
        &mut self,
        namespace: &str,
        interrupts: Option<&[langgraph::RawInterrupt<'_>]>,
    ) {
        match interrupts {
            // An empty list is a static breakpoint, which is an interrupt too.
            Some([]) => self.stop_at_breakpoint(),
            Some(interrupts) => self.add(namespace, interrupts),
            None => {}
        }
    }

    /// Takes in the questions of a thread's state.
    pub(super) fn on_state(&mut self, state: &ThreadState<'_>) {
        self.add("", &state.interrupts);
        for task in &state.waiting {
            for question in &task.questions {
                self.place(question, &task.namespace);
            }
        }
        self.keep(&state.kept.current);
        if state.is_interrupted() && state.interrupts.is_empty() {
            self.stop_at_breakpoint();
        }
    }

    /// Adds the interrupts that are not known.
    pub(super) fn add(&mut self, namespace: &str, interrupts: &[langgraph::RawInterrupt<'_>]) {
        for interrupt in interrupts {
            self.place(&interrupt.id, namespace);
            if self.interrupts.iter().all(|known| *known.id != *interrupt.id) {
                self.interrupts.push(Interrupt::of_langgraph(interrupt));
            }
        }
    }

    fn place(&mut self, interrupt: &str, namespace: &str) {
        let known = self.asking.get(interrupt);
        if !namespace.is_empty() && known.is_none_or(|known| known.len() < namespace.len()) {
            self.asking.insert(Id::from(interrupt), Id::from(namespace));
        }
    }

    /// The namespaces of the graphs below the root whose nodes ask.
    pub(super) fn asking(&self) -> Vec<Id> {
        let asking = self.interrupts.iter().filter_map(|open| self.asking.get(&open.id));
        asking.map(Arc::clone).collect()
    }

    /// The run has stopped at a static breakpoint.
    pub(super) fn stop_at_breakpoint(&mut self) {
        self.is_at_breakpoint = true;
    }

    /// Adds answers that the thread's metadata keep.
    pub(super) fn keep(&mut self, kept: &[StoredDecision]) {
        self.kept.extend_from_slice(kept);
    }

    /// Forgets what a void attempt has asked.
    pub(super) fn clear(&mut self) {
        self.interrupts.clear();
        self.asking.clear();
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

    /// The interrupts of the run, each with the calls that it is about. `agents` gives the subagents
    /// that a namespace is inside of, the innermost first.
    pub(super) fn to_interrupts(
        &self,
        thread_id: &Id,
        view: &View,
        agents: impl Fn(&str) -> Vec<Id>,
    ) -> Vec<Interrupt> {
        let mut questions = self.interrupts.clone();
        if questions.is_empty() {
            questions.push(Interrupt::breakpoint(thread_id));
        }
        for question in &mut questions {
            question.keep(&self.kept);
            question.ask_some();
            let asking = self.asking.get(&question.id);
            question.find_calls(view, &asking.map(|asking| agents(asking)).unwrap_or_default());
        }
        questions
    }
}
