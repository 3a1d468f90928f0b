//! What a person reads: events in, text out. Pure.
//!
//! A stream that starts over tells everything again. So what was printed of each message and call
//! is kept by its id, beside how much of it the gateway has told since: only what goes beyond is
//! printed, and where it differs a line says so.

mod activity;
mod text;

use std::collections::HashSet;

use indexmap::IndexMap;

use super::event::{Activity, Event, Failure, Interrupt, Message, Operation, Outcome, Speaker};
use super::state::{Change, Held};
use crate::terminal::harmless;
use activity::Activities;
use text::{decoded, one_line, quote};
use threadway_translate::json::{self, Text, TextBuf};

/// How much of the messages and of the calls is kept to tell what is new: as much as the largest
/// snapshot. Beyond it the oldest are forgotten, and would be printed again.
pub const MAX_KEPT_BYTES: usize = threadway_translate::sse::MAX_EVENT_BYTES;

/// What a kept message or call weighs beside its text.
const ENTRY_BYTES: usize = 256;

/// How many subagents' names are kept in a run.
const MAX_SUBAGENTS: usize = 1_000;

/// What the gateway calls a run that is none: the thread at rest.
const REST: &str = "connect-";

/// Prints events.
#[derive(Debug, Default)]
pub(super) struct Printer {
    has_colours: bool,
    /// What was printed, the oldest first.
    messages: IndexMap<String, Said>,
    calls: IndexMap<String, Call>,
    /// What they weigh, or more: what is taken back is not subtracted.
    kept_bytes: usize,
    state: Held,
    activities: Activities,
    subagents: IndexMap<String, String>,
    /// The run that is being told.
    run: Option<String>,
    /// The run before it.
    ended: Option<String>,
    /// The line at a run's start, where it is printed only if something follows.
    heading: Option<String>,
    /// The run has started, and no snapshot of its messages has come.
    is_fresh: bool,
    /// The interrupts that were printed last.
    asked: Vec<String>,
    /// The failure that was printed last.
    failed: Option<Failure>,
    /// The message that the last line is of, if it may go on.
    speaking: Option<String>,
    is_line_empty: bool,
}

/// A message.
#[derive(Debug, Default)]
struct Said {
    label: String,
    kind: Kind,
    /// What was printed.
    text: String,
    /// How much of it a client holds.
    held: usize,
    /// The first half of a surrogate pair, still escaped.
    half: String,
    /// The last snapshot does not hold it.
    is_missing: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Kind {
    #[default]
    Speech,
    Thought,
    Result,
}

/// A tool call.
#[derive(Debug, Default)]
struct Call {
    label: String,
    name: String,
    args: TextBuf,
    /// The arguments that were printed.
    printed: Option<String>,
    is_missing: bool,
}

/// How a text looks on a terminal.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Style {
    Plain,
    Dim,
    Bold,
    Red,
    Yellow,
}

// === impl Printer ===

impl Printer {
    pub(super) fn new(has_colours: bool) -> Self {
        Self { has_colours, ..Self::default() }
    }

    /// Prints what an event adds.
    pub(super) fn print(&mut self, event: &Event, out: &mut String) {
        match event {
            Event::RunStarted { run_id } => self.start_run(run_id, out),
            Event::RunFinished { run_id, outcome, error } => {
                self.finish_run(run_id, outcome, error.as_ref(), out);
            }
            Event::RunError(failure) => self.fail_run(failure, out),
            Event::Start { id, speaker } => {
                let label = self.label(speaker);
                self.said(id, Kind::Speech, label);
            }
            Event::ThoughtStart { id, subagent } => {
                let label = self.credited("thinking", subagent.as_deref());
                self.said(id, Kind::Thought, label);
            }
            Event::Delta { id, delta } => {
                self.said(id, Kind::Speech, "assistant".to_owned());
                self.grow(id, delta, out);
            }
            Event::ThoughtDelta { id, delta } => {
                self.said(id, Kind::Thought, "thinking".to_owned());
                self.grow(id, delta, out);
            }
            Event::End { id } => {
                if self.speaking.as_deref() == Some(id) {
                    self.end_line(out);
                }
            }
            Event::CallStart { id, name, subagent } => {
                let label = self.credited("->", subagent.as_deref());
                self.call(id, name, label);
            }
            Event::CallArgs { id, delta } => {
                self.kept_bytes += delta.escaped().len();
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
            Event::Messages(messages) => self.replace(messages, out),
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
                let line = format!("subagent {} failed: {}", one_line(name), told(failure));
                self.line(Style::Red, &line, out);
            }
            Event::Other => {}
        }
        self.forget_the_oldest();
    }

    /// Ends a line that is being printed: something else is told on the terminal.
    pub(super) fn pause(&mut self, out: &mut String) {
        self.end_line(out);
    }

    fn start_run(&mut self, run_id: &str, out: &mut String) {
        self.is_fresh = true;
        if self.run.as_deref() == Some(run_id) {
            // The stream starts over, and the run goes on.
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
        self.settle(out);
        let (how, interrupts): (_, &[Interrupt]) = match outcome {
            Outcome::Success => ("finished", &[]),
            Outcome::Cancelled => ("was cancelled", &[]),
            Outcome::Interrupt(interrupts) => ("was interrupted", interrupts),
        };
        for Interrupt { id, reason, message } in interrupts {
            if !self.asked.contains(id) {
                let message = message.as_deref().map(|m| format!(": {}", one_line(m)));
                let told = message.unwrap_or_default();
                let line = format!("? {}{told} (interrupt {})", one_line(reason), one_line(id));
                self.line(Style::Yellow, &line, out);
            }
        }
        self.asked = interrupts.iter().map(|interrupt| interrupt.id.clone()).collect();
        if let Some(failure) = error
            && self.failed.as_ref() != Some(failure)
        {
            self.line(Style::Red, &format!("! the last run failed: {}", told(failure)), out);
        }
        self.failed = error.cloned();
        self.end_run(Style::Bold, how, run_id, out);
    }

    fn fail_run(&mut self, failure: &Failure, out: &mut String) {
        self.settle(out);
        let run_id = self.run.clone().unwrap_or_default();
        if self.failed.as_ref() != Some(failure) {
            self.begin_line(out);
        }
        self.end_run(Style::Red, &format!("failed: {}", told(failure)), &run_id, out);
        self.asked.clear();
        self.failed = Some(failure.clone());
    }

    /// A run that added nothing to what was printed has no lines at all.
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

    /// At a run's end a client holds what the thread holds: what it does not was taken back.
    fn settle(&mut self, out: &mut String) {
        let mut lines = Vec::new();
        self.messages.retain(|_, said| {
            let Said { label, kind, text, held, is_missing, .. } = said;
            if *kind == Kind::Thought {
                return true;
            }
            let cut = text.get(*held..).unwrap_or_default();
            if !cut.is_empty() {
                let from = if *held > 0 { ".." } else { "" };
                lines.push(format!("~ taken back: {label}: {from}{}", quote(cut)));
                text.truncate(*held);
            }
            !*is_missing
        });
        self.calls.retain(|_, call| {
            let Call { label, name, printed, is_missing, .. } = call;
            if *is_missing && printed.is_some() {
                lines.push(format!("~ taken back: {label} {}", one_line(name)));
            }
            !*is_missing
        });
        for line in lines {
            self.line(Style::Yellow, &line, out);
        }
        // A call whose end was never told.
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

    /// The messages are these now, and no others.
    fn replace(&mut self, messages: &[Message], out: &mut String) {
        let is_fresh = std::mem::take(&mut self.is_fresh);
        for said in self.messages.values_mut() {
            // A client keeps its thoughts where a snapshot holds none; one that starts over has
            // none to keep.
            if said.kind != Kind::Thought || is_fresh {
                said.is_missing = true;
                said.held = 0;
                said.half.clear();
            }
        }
        for call in self.calls.values_mut() {
            call.is_missing = true;
            call.args = TextBuf::default();
        }
        let answered: HashSet<_> = messages.iter().filter_map(|m| m.call_id.as_deref()).collect();
        for message in messages {
            let Message { id, speaker, content, calls, call_id, activity } = message;
            let empty = Text::new("");
            let content = content.as_ref().unwrap_or(&empty);
            match &*speaker.role {
                "activity" => {
                    if let Some(activity) = activity {
                        self.activity(id, activity, out);
                    }
                }
                "tool" => {
                    let call_id = call_id.as_deref().unwrap_or_default();
                    self.result(id, call_id, &content.decode(), out);
                }
                "reasoning" => {
                    let label = self.credited("thinking", speaker.subagent.as_deref());
                    self.whole(id, Kind::Thought, label, content, out);
                }
                _ => {
                    let label = self.label(speaker);
                    self.whole(id, Kind::Speech, label, content, out);
                }
            }
            for call in calls {
                let label = self.credited("->", speaker.subagent.as_deref());
                self.kept_bytes += call.args.escaped().len();
                let known = self.call(&call.id, &call.name, label);
                known.args = TextBuf::from(&call.args);
                // One that is still being made has half an object, and its end will be told.
                if answered.contains(&*call.id) || is_json(&call.args.decode()) {
                    self.print_call(&call.id, out);
                }
            }
        }
    }

    /// The whole text of a message, as a snapshot tells it.
    fn whole(&mut self, id: &str, kind: Kind, label: String, text: &Text, out: &mut String) {
        let said = self.said(id, kind, label);
        said.half.clear();
        let whole = decoded(text, &mut said.half);
        if whole.starts_with(&*said.text) {
            let (at, label) = (said.text.len(), said.label.clone());
            said.held = whole.len();
            let new = whole.get(at..).unwrap_or_default();
            said.text.push_str(new);
            self.kept_bytes += new.len();
            self.speak(id, kind, &label, new, at > 0, out);
        } else if said.text.starts_with(&whole) {
            said.held = whole.len();
        } else {
            self.contradict(id, &whole, out);
        }
    }

    /// The next piece of a message.
    fn grow(&mut self, id: &str, delta: &Text, out: &mut String) {
        let Some(said) = self.messages.get_mut(id) else { return };
        let delta = decoded(delta, &mut said.half);
        let (told, ahead) = said.text.split_at_checked(said.held).unwrap_or((&said.text, ""));
        if ahead.starts_with(&delta) {
            said.held += delta.len();
        } else if delta.starts_with(ahead) {
            let (at, kind, label) = (said.text.len(), said.kind, said.label.clone());
            let new = delta.get(ahead.len()..).unwrap_or_default();
            said.text.push_str(new);
            said.held = said.text.len();
            self.kept_bytes += new.len();
            self.speak(id, kind, &label, new, at > 0, out);
        } else {
            let whole = format!("{told}{delta}");
            self.contradict(id, &whole, out);
        }
    }

    /// What was printed of a message does not hold any more.
    fn contradict(&mut self, id: &str, whole: &str, out: &mut String) {
        let Some(said) = self.messages.get_mut(id) else { return };
        let (kind, label) = (said.kind, said.label.clone());
        self.kept_bytes += whole.len();
        said.held = whole.len();
        whole.clone_into(&mut said.text);
        self.line(Style::Yellow, &format!("~ {label} takes that back, and now says:"), out);
        self.speak(id, kind, &label, whole, false, out);
    }

    /// What a tool has given back, on a line.
    fn result(&mut self, id: &str, call_id: &str, content: &str, out: &mut String) {
        let label = match self.calls.get(call_id) {
            Some(Call { name, .. }) => format!("<- {}", one_line(name)),
            None => "<-".to_owned(),
        };
        let is_new = !self.messages.contains_key(id);
        let said = self.said(id, Kind::Result, label);
        said.held = content.len();
        if is_new || said.text != content {
            content.clone_into(&mut said.text);
            let line = format!("  {}: {}", said.label, one_line(content));
            self.kept_bytes += content.len();
            self.line(Style::Plain, &line, out);
        }
    }

    /// A tool call on a line, if it has not been printed like this.
    fn print_call(&mut self, id: &str, out: &mut String) {
        let Some(call) = self.calls.get_mut(id) else { return };
        let args = call.args.to_text().decode().into_owned();
        let is_known = call.printed.as_ref().is_some_and(|old| json::same(old, &args));
        if is_known || call.is_missing {
            return;
        }
        let change = if call.printed.is_some() { " (changed)" } else { "" };
        let Call { label, name, .. } = &*call;
        let line = format!("  {label} {}({}){change}", one_line(name), one_line(&args));
        call.printed = Some(args);
        self.line(Style::Plain, &line, out);
    }

    fn print_state(&mut self, path: &str, sign: &str, value: Option<&str>, out: &mut String) {
        let path = if path.is_empty() { String::new() } else { format!(" {}", one_line(path)) };
        let line = match value {
            Some(value) => format!("state{path} {sign} {}", one_line(value)),
            None => format!("state{path} removed"),
        };
        self.line(Style::Dim, &line, out);
    }

    /// A message by its id; a new one gets the label.
    fn said(&mut self, id: &str, kind: Kind, label: String) -> &mut Said {
        if !self.messages.contains_key(id) {
            self.kept_bytes += ENTRY_BYTES + id.len();
        }
        let new = || Said { label, kind, ..Said::default() };
        let said = self.messages.entry(id.to_owned()).or_insert_with(new);
        said.is_missing = false;
        said
    }

    /// A tool call by its id; a new one gets the name and the label.
    fn call(&mut self, id: &str, name: &str, label: String) -> &mut Call {
        if !self.calls.contains_key(id) {
            self.kept_bytes += ENTRY_BYTES + id.len() + name.len();
        }
        let new = || Call { label, name: name.to_owned(), ..Call::default() };
        let call = self.calls.entry(id.to_owned()).or_insert_with(new);
        call.is_missing = false;
        call
    }

    fn label(&self, speaker: &Speaker) -> String {
        let Speaker { role, name, subagent } = speaker;
        let subagent = subagent.as_deref();
        match name {
            // LangGraph names a subagent's messages by it.
            Some(name) if subagent.and_then(|id| self.subagents.get(id)) != Some(name) => {
                self.credited(&format!("{} ({})", one_line(role), one_line(name)), subagent)
            }
            Some(_) | None => self.credited(&one_line(role), subagent),
        }
    }

    /// A label with the subagent's name, if it is one's.
    fn credited(&self, label: &str, subagent: Option<&str>) -> String {
        match subagent {
            Some(id) => {
                let name = self.subagents.get(id).map_or(id, String::as_str);
                format!("{label} [{}]", one_line(name))
            }
            None => label.to_owned(),
        }
    }

    /// Prints a piece of a message, on its line if that is the last one.
    fn speak(
        &mut self,
        id: &str,
        kind: Kind,
        label: &str,
        text: &str,
        goes_on: bool,
        out: &mut String,
    ) {
        if text.is_empty() {
            return;
        }
        let style = if kind == Kind::Thought { Style::Dim } else { Style::Plain };
        let is_elsewhere = self.speaking.as_deref() != Some(id);
        if is_elsewhere {
            self.begin_line(out);
            let more = if goes_on { ".." } else { "" };
            self.paint(style, &format!("{label}: {more}"), out);
            self.speaking = Some(id.to_owned());
        }
        let mut is_labelled = is_elsewhere;
        for piece in text.split_inclusive('\n') {
            // Without colours each line of a thought says that it is one.
            if self.is_line_empty && kind == Kind::Thought && !is_labelled {
                self.paint(style, &format!("{label}: "), out);
            }
            is_labelled = false;
            let (words, is_ended) = match piece.strip_suffix('\n') {
                Some(words) => (words, true),
                None => (piece, false),
            };
            self.paint(style, words, out);
            out.push_str(if is_ended { "\n" } else { "" });
            self.is_line_empty = is_ended;
        }
    }

    fn line(&mut self, style: Style, line: &str, out: &mut String) {
        self.begin_line(out);
        self.paint(style, line, out);
        out.push('\n');
    }

    fn begin_line(&mut self, out: &mut String) {
        self.end_line(out);
        if let Some(heading) = self.heading.take() {
            self.paint(Style::Bold, &heading, out);
            out.push('\n');
        }
    }

    fn end_line(&mut self, out: &mut String) {
        if self.speaking.take().is_some() && !self.is_line_empty {
            out.push('\n');
        }
        self.is_line_empty = false;
    }

    fn paint(&self, style: Style, text: &str, out: &mut String) {
        let code = match style {
            Style::Plain => "",
            Style::Dim => "2",
            Style::Bold => "1",
            Style::Red => "31",
            Style::Yellow => "33",
        };
        let is_painted = self.has_colours && !code.is_empty() && !text.is_empty();
        if is_painted {
            out.extend(["\x1b[", code, "m"]);
        }
        out.push_str(&harmless(text));
        if is_painted {
            out.push_str("\x1b[0m");
        }
    }

    fn forget_the_oldest(&mut self) {
        if self.kept_bytes <= MAX_KEPT_BYTES {
            return;
        }
        let messages =
            newest(&mut self.messages, |said| said.text.len() + said.label.len() + said.half.len());
        let calls = newest(&mut self.calls, |call| {
            let printed = call.printed.as_ref().map_or(0, String::len);
            call.name.len() + call.label.len() + call.args.escaped().len() + printed
        });
        self.kept_bytes = messages + calls;
    }
}

/// Keeps the newest entries if all are beyond the limit; tells what is kept.
///
/// Half goes at once, so that it is seldom counted.
fn newest<T>(entries: &mut IndexMap<String, T>, weigh: impl Fn(&T) -> usize) -> usize {
    let weigh = |(id, entry): (&String, &T)| ENTRY_BYTES + id.len() + weigh(entry);
    let mut bytes: usize = entries.iter().map(weigh).sum();
    if bytes <= MAX_KEPT_BYTES {
        return bytes;
    }
    let mut forgotten = 0;
    for entry in &*entries {
        if bytes <= MAX_KEPT_BYTES / 2 {
            break;
        }
        bytes -= weigh(entry);
        forgotten += 1;
    }
    entries.drain(..forgotten);
    bytes
}

/// What a run is called.
fn heading(run_id: &str) -> String {
    if run_id.starts_with(REST) {
        format!("at rest, {}", one_line(run_id))
    } else {
        format!("run {}", one_line(run_id)).trim_end().to_owned()
    }
}

fn told(Failure { code, message }: &Failure) -> String {
    match code {
        Some(code) => format!("{}: {}", one_line(code), one_line(message)),
        None => one_line(message).into_owned(),
    }
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

#[cfg(test)]
mod tests;
