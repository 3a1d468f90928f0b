//! Turns events into text for a person. Does no IO.
//!
//! A stream that starts over repeats everything. The printer therefore stores what it printed of
//! each message and call, and how much of it the current stream has sent. It prints only what is
//! new, and a line where the text differs.
//!
//! - `messages`: messages and tool calls. `activity`: activities.
//! - `lines`: labels, colours and line ends. `text`: long values and split characters.

mod activity;
mod lines;
mod messages;
mod text;

use indexmap::IndexMap;

use super::event::{Activity, Event, Failure, Interrupt, Operation, Outcome};
use super::state::{Change, State};
use activity::Activities;
use lines::Style;
use text::{one_line, quote};
use threadway_translate::json::TextBuf;

/// How many bytes of messages and calls are stored: as much as the largest snapshot. Beyond that
/// the oldest are dropped and would be printed again.
const MAX_KEPT_BYTES: usize = threadway_translate::sse::MAX_EVENT_BYTES;

/// What a stored message or call counts besides its text.
const ENTRY_BYTES: usize = 256;

/// How many names of subagents are stored for a run.
const MAX_SUBAGENTS: usize = 1_000;

/// How the run ids begin under which the gateway shows an idle thread.
const REST: &str = "connect-";

/// Turns events into text.
#[derive(Debug, Default)]
pub(super) struct Printer {
    has_colours: bool,
    /// What was printed, oldest first.
    messages: IndexMap<String, PrintedMessage>,
    calls: IndexMap<String, PrintedCall>,
    /// An upper bound of what is stored: removals are not subtracted.
    stored_bytes: usize,
    state: State,
    activities: Activities,
    subagents: IndexMap<String, String>,
    /// The current run.
    run: Option<String>,
    /// The previous run.
    ended: Option<String>,
    /// The heading of a run, which is printed only if something follows.
    heading: Option<String>,
    /// Whether the run has started and no snapshot of its messages has arrived.
    is_fresh: bool,
    /// The ids of the interrupts that were printed last.
    interrupts: Vec<String>,
    /// The failure that was printed last.
    failure: Option<Failure>,
    /// The message on the last line, if it may continue.
    open_message: Option<String>,
    is_line_empty: bool,
}

/// What was printed of a message.
#[derive(Debug, Default)]
struct PrintedMessage {
    label: String,
    kind: MessageKind,
    /// The printed text.
    text: String,
    /// How many bytes of it the current stream has sent.
    confirmed: usize,
    /// The first half of a surrogate pair, still escaped.
    half: String,
    /// Whether the last snapshot lacks it.
    is_missing: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum MessageKind {
    #[default]
    Speech,
    Thought,
    Result,
}

/// What was printed of a tool call.
#[derive(Debug, Default)]
struct PrintedCall {
    label: String,
    name: String,
    args: TextBuf,
    /// The printed arguments.
    printed: Option<String>,
    is_missing: bool,
}

// === impl Printer ===

impl Printer {
    pub(super) fn new(has_colours: bool) -> Self {
        Self { has_colours, ..Self::default() }
    }

    /// Appends to `out` what the event adds.
    pub(super) fn print(&mut self, event: &Event, out: &mut String) {
        match event {
            Event::RunStarted { run_id } => self.start_run(run_id, out),
            Event::RunFinished { run_id, outcome, error } => {
                self.finish_run(run_id, outcome, error.as_ref(), out);
            }
            Event::RunError(failure) => self.fail_run(failure, out),
            Event::Start { id, speaker } => {
                let label = self.label(speaker);
                self.message(id, MessageKind::Speech, label);
            }
            Event::ThoughtStart { id, subagent } => {
                let label = self.with_subagent("thinking", subagent.as_deref());
                self.message(id, MessageKind::Thought, label);
            }
            Event::Delta { id, delta } => {
                self.message(id, MessageKind::Speech, "assistant".to_owned());
                self.append(id, delta, out);
            }
            Event::ThoughtDelta { id, delta } => {
                self.message(id, MessageKind::Thought, "thinking".to_owned());
                self.append(id, delta, out);
            }
            Event::End { id } => {
                if self.open_message.as_deref() == Some(id) {
                    self.end_line(out);
                }
            }
            Event::CallStart { id, name, subagent } => {
                let label = self.with_subagent("->", subagent.as_deref());
                self.call(id, name, label);
            }
            Event::CallArgs { id, delta } => {
                self.stored_bytes += delta.escaped().len();
                self.call(id, "", "->".to_owned()).args.push(delta);
            }
            Event::CallEnd { id } => self.print_call(id, out),
            Event::CallResult { id, call_id, content } => {
                self.print_call(call_id, out);
                self.result(id, call_id, content, out);
            }
            Event::State(snapshot) => {
                for Change { path, value } in self.state.replace(snapshot) {
                    self.print_state(&path, "=", value.as_ref().map(|value| value.get()), out);
                }
            }
            Event::StateDelta(operations) => {
                self.state.apply(operations);
                for Operation { op, path, value } in operations {
                    let value = value.as_ref().map(|value| value.get());
                    let list = path.strip_suffix("/-").filter(|_| op == "add");
                    let sign = if list.is_some() { "+" } else { "=" };
                    self.print_state(list.unwrap_or(path), sign, value, out);
                }
            }
            Event::Messages(messages) => self.replace_all(messages, out),
            Event::Custom { name, value } => {
                let line = format!("custom {}: {}", one_line(name), one_line(value.get()));
                self.line(Style::Dim, &line, out);
            }
            Event::Activity { id, activity } => self.activity(id, activity, out),
            Event::ActivityDelta { id, operations } => {
                let line = self.activities.change(id, operations);
                self.activity_line(line, out);
            }
            Event::SubagentStarted { id, name } => self.start_subagent(id, name, out),
            Event::SubagentError { id, failure } => {
                let name = self.subagents.get(id).unwrap_or(id);
                let line = format!("subagent {} failed: {}", one_line(name), text_of(failure));
                self.line(Style::Red, &line, out);
            }
            Event::Other => {}
        }
        self.drop_oldest();
    }

    /// Ends an open line, because something else is printed on the terminal.
    pub(super) fn pause(&mut self, out: &mut String) {
        self.end_line(out);
    }

    fn start_run(&mut self, run_id: &str, out: &mut String) {
        self.is_fresh = true;
        if self.run.as_deref() == Some(run_id) {
            // The stream starts over and the run continues.
            return;
        }
        let is_first = self.run.is_none() && self.ended.is_none();
        self.subagents.clear();
        if let Some(lost) = self.run.take()
            && self.heading.take().is_none()
            && !lost.starts_with(REST)
        {
            self.line(Style::Bold, &format!("--- {}: its end was not seen", heading(&lost)), out);
        }
        let line = format!("--- {}", heading(run_id));
        if is_first || !(run_id.starts_with(REST) || self.ended.as_deref() == Some(run_id)) {
            self.line(Style::Bold, &line, out);
        } else {
            self.heading = Some(line);
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
        self.reconcile(out);
        let (how, interrupts): (_, &[Interrupt]) = match outcome {
            Outcome::Success => ("finished", &[]),
            Outcome::Cancelled => ("was cancelled", &[]),
            Outcome::Interrupt(interrupts) => ("was interrupted", interrupts),
        };
        for Interrupt { id, reason, message } in interrupts {
            if !self.interrupts.contains(id) {
                let message = message.as_deref().map(|m| format!(": {}", one_line(m)));
                let text = message.unwrap_or_default();
                let line = format!("? {}{text} (interrupt {})", one_line(reason), one_line(id));
                self.line(Style::Yellow, &line, out);
            }
        }
        self.interrupts = interrupts.iter().map(|interrupt| interrupt.id.clone()).collect();
        if let Some(failure) = error
            && self.failure.as_ref() != Some(failure)
        {
            self.line(Style::Red, &format!("! the last run failed: {}", text_of(failure)), out);
        }
        self.failure = error.cloned();
        self.end_run(Style::Bold, how, run_id, out);
    }

    fn fail_run(&mut self, failure: &Failure, out: &mut String) {
        self.reconcile(out);
        let run_id = self.run.clone().unwrap_or_default();
        if self.failure.as_ref() != Some(failure) {
            self.begin_line(out);
        }
        self.end_run(Style::Red, &format!("failed: {}", text_of(failure)), &run_id, out);
        self.interrupts.clear();
        self.failure = Some(failure.clone());
    }

    /// Prints the end of a run. A run that added nothing has no lines at all.
    fn end_run(&mut self, style: Style, how: &str, run_id: &str, out: &mut String) {
        self.end_line(out);
        let is_silent = self.heading.take().is_some();
        let is_rest = run_id.starts_with(REST) && style != Style::Red;
        if !(is_silent || is_rest) {
            self.line(style, &format!("--- {} {how}", heading(run_id)), out);
        }
        self.ended = Some(run_id.to_owned());
        self.run = None;
        self.subagents.clear();
    }

    /// At the end of a run, reports what was printed and the thread does not hold.
    fn reconcile(&mut self, out: &mut String) {
        let mut lines = Vec::new();
        self.messages.retain(|_, message| {
            let PrintedMessage { label, kind, text, confirmed, is_missing, .. } = message;
            if *kind == MessageKind::Thought {
                return true;
            }
            let cut = text.get(*confirmed..).unwrap_or_default();
            if !cut.is_empty() {
                let from = if *confirmed > 0 { ".." } else { "" };
                lines.push(format!("~ taken back: {label}: {from}{}", quote(cut)));
                text.truncate(*confirmed);
            }
            !*is_missing
        });
        self.calls.retain(|_, call| {
            let PrintedCall { label, name, printed, is_missing, .. } = call;
            if *is_missing && printed.is_some() {
                lines.push(format!("~ taken back: {label} {}", one_line(name)));
            }
            !*is_missing
        });
        for line in lines {
            self.line(Style::Yellow, &line, out);
        }
        // Calls without an end event.
        let calls: Vec<_> = self.calls.keys().cloned().collect();
        for id in calls {
            self.print_call(&id, out);
        }
    }

    fn activity(&mut self, id: &str, activity: &Activity, out: &mut String) {
        let Activity { kind, content } = activity;
        let line = self.activities.replace(id, kind, content);
        self.activity_line(line, out);
    }

    fn activity_line(&mut self, line: Option<String>, out: &mut String) {
        if let Some(line) = line {
            self.line(Style::Dim, &line, out);
        }
    }

    fn start_subagent(&mut self, id: &str, name: &str, out: &mut String) {
        if self.subagents.contains_key(id) {
            return;
        }
        if self.subagents.len() >= MAX_SUBAGENTS {
            self.subagents.shift_remove_index(0);
        }
        self.subagents.insert(id.to_owned(), name.to_owned());
        self.line(Style::Dim, &format!("subagent {}", one_line(name)), out);
    }

    fn print_state(&mut self, path: &str, sign: &str, value: Option<&str>, out: &mut String) {
        let path = if path.is_empty() { String::new() } else { format!(" {}", one_line(path)) };
        let line = match value {
            Some(value) => format!("state{path} {sign} {}", one_line(value)),
            None => format!("state{path} removed"),
        };
        self.line(Style::Dim, &line, out);
    }
}

/// The name of a run in a heading.
fn heading(run_id: &str) -> String {
    if run_id.starts_with(REST) {
        format!("at rest, {}", one_line(run_id))
    } else {
        format!("run {}", one_line(run_id)).trim_end().to_owned()
    }
}

fn text_of(Failure { code, message }: &Failure) -> String {
    match code {
        Some(code) => format!("{}: {}", one_line(code), one_line(message)),
        None => one_line(message).into_owned(),
    }
}

#[cfg(test)]
mod tests;
