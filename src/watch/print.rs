//! Turns events into text for a person. Does no IO.
//!
//! A stream that starts over repeats everything. The printer therefore stores what it printed of
//! each message and call, and how much of it the current stream has sent. It prints only what is
//! new, and a line where the text differs. Reasoning, the state, activities, subagents and custom
//! events are not printed.
//!
//! - `messages`: messages and tool calls. `text`: lines, long values and split characters.

mod messages;
mod text;

use indexmap::IndexMap;

use super::event::{Event, Failure, Interrupt, Message, Outcome};
use crate::terminal::harmless;
use messages::{PrintedCall, PrintedMessage};
use text::one_line;

/// How the run ids begin under which the gateway shows an idle thread.
const REST: &str = "connect-";

/// Turns events into text.
#[derive(Debug, Default)]
pub(super) struct Printer {
    /// What was printed, oldest first.
    messages: IndexMap<String, PrintedMessage>,
    calls: IndexMap<String, PrintedCall>,
    /// An upper bound of what is stored: removals are not subtracted.
    stored_bytes: usize,
    /// The current run.
    run: Option<String>,
    /// The previous run.
    ended: Option<String>,
    /// The heading of a run, which is printed only if something follows.
    heading: Option<String>,
    /// The ids of the interrupts that were printed last.
    interrupts: Vec<String>,
    /// The failure that was printed last.
    failure: Option<Failure>,
    /// The message on the last line, if it may continue.
    open_message: Option<String>,
    is_line_empty: bool,
}

// === impl Printer ===

impl Printer {
    /// Appends to `out` what the event adds.
    pub(super) fn print(&mut self, event: &Event, out: &mut String) {
        match event {
            Event::RunStarted { run_id } => self.start_run(run_id, out),
            Event::RunFinished { run_id, outcome, error } => {
                self.finish_run(run_id, outcome, error.as_ref(), out);
            }
            Event::RunError(failure) => self.fail_run(failure, out),
            Event::Start { id, author } => {
                self.message(id, author);
            }
            Event::Delta { id, delta } => {
                self.message(id, "assistant");
                self.append(id, delta, out);
            }
            Event::End { id } => {
                if self.open_message.as_deref() == Some(id) {
                    self.pause(out);
                }
            }
            Event::CallStart { id, name } => {
                self.call(id, name);
            }
            Event::CallArgs { id, delta } => {
                self.stored_bytes += delta.escaped().len();
                self.call(id, "").args.push(delta);
            }
            Event::CallEnd { id } => self.print_call(id, out),
            Event::CallResult(result @ Message { call_id, .. }) => {
                self.print_call(call_id, out);
                self.result(result, out);
            }
            Event::Messages(messages) => self.replace_all(messages, out),
            Event::NoState | Event::Other => {}
        }
        self.drop_oldest();
    }

    /// Ends an open line, because something else is printed on the terminal.
    pub(super) fn pause(&mut self, out: &mut String) {
        if self.open_message.take().is_some() && !self.is_line_empty {
            out.push('\n');
        }
        self.is_line_empty = false;
    }

    fn start_run(&mut self, run_id: &str, out: &mut String) {
        if self.run.as_deref() == Some(run_id) {
            // The stream starts over and the run continues.
            return;
        }
        let is_first = self.run.is_none() && self.ended.is_none();
        if let Some(lost) = self.run.take()
            && self.heading.take().is_none()
            && !lost.starts_with(REST)
        {
            self.line(&format!("--- {}: its end was not seen", heading(&lost)), out);
        }
        self.heading = Some(format!("--- {}", heading(run_id)));
        if is_first || !(run_id.starts_with(REST) || self.ended.as_deref() == Some(run_id)) {
            self.begin_line(out);
        }
        self.run = Some(run_id.to_owned());
    }

    fn finish_run(
        &mut self,
        run_id: &str,
        outcome: &Outcome,
        error: Option<&Failure>,
        out: &mut String,
    ) {
        let (how, interrupts): (_, &[Interrupt]) = match outcome {
            Outcome::Success => ("finished", &[]),
            Outcome::Cancelled => ("was cancelled", &[]),
            Outcome::Interrupt(interrupts) => ("was interrupted", interrupts),
        };
        for Interrupt { id, reason, message } in interrupts {
            if !self.interrupts.contains(id) {
                let message = message.as_deref().map(|m| format!(": {}", one_line(m)));
                let text = message.unwrap_or_default();
                let id = one_line(id);
                self.line(&format!("? {}{text} (interrupt {id})", one_line(reason)), out);
            }
        }
        self.interrupts = interrupts.iter().map(|interrupt| interrupt.id.clone()).collect();
        if let Some(failure) = error
            && self.failure.as_ref() != Some(failure)
        {
            self.line(&format!("! the last run failed: {}", text_of(failure)), out);
        }
        self.failure = error.cloned();
        self.end_run(how, run_id, !run_id.starts_with(REST), out);
    }

    fn fail_run(&mut self, failure: &Failure, out: &mut String) {
        let run_id = self.run.clone().unwrap_or_default();
        if self.failure.as_ref() != Some(failure) {
            self.begin_line(out);
        }
        self.end_run(&format!("failed: {}", text_of(failure)), &run_id, true, out);
        self.interrupts.clear();
        self.failure = Some(failure.clone());
    }

    /// Prints the end of a run. A run that added nothing has no lines at all.
    fn end_run(&mut self, how: &str, run_id: &str, is_told: bool, out: &mut String) {
        self.pause(out);
        if self.heading.take().is_none() && is_told {
            self.line(&format!("--- {} {how}", heading(run_id)), out);
        }
        // What the thread no longer holds.
        self.messages.retain(|_, message| !message.is_missing);
        self.calls.retain(|_, call| !call.is_missing);
        self.ended = Some(run_id.to_owned());
        self.run = None;
    }

    fn line(&mut self, line: &str, out: &mut String) {
        self.begin_line(out);
        out.extend([&*harmless(line), "\n"]);
    }

    fn begin_line(&mut self, out: &mut String) {
        self.pause(out);
        if let Some(heading) = self.heading.take() {
            out.extend([&*harmless(&heading), "\n"]);
        }
    }
}

/// The name of a run in a heading.
fn heading(run_id: &str) -> String {
    let kind = if run_id.starts_with(REST) { "at rest," } else { "run" };
    format!("{kind} {}", one_line(run_id)).trim_end().to_owned()
}

fn text_of(Failure { code, message }: &Failure) -> String {
    let code = code.as_deref().map(|code| format!("{}: ", one_line(code)));
    code.unwrap_or_default() + &one_line(message)
}

#[cfg(test)]
mod tests;
