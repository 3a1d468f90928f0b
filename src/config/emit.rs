//! The tables `emit` and `agents.NAME.emit`: what viewers are sent of runs.

use super::MAX_BYTES;
use super::raw::{Given, Mistake, Mistakes, Raw, ValueKind};
use crate::agents::Emits;
use threadway_translate::run::{Emit, Harness, MessageSnapshots, StateEvents, Subagents};

/// The keys of the table, and the kind of value of each.
pub(super) const KEYS: [(&str, ValueKind); 11] = [
    ("state", ValueKind::Text),
    ("messages", ValueKind::Text),
    ("tool_results", ValueKind::Switch),
    ("max_tool_result_bytes", ValueKind::Number),
    ("max_event_bytes", ValueKind::Number),
    ("reasoning", ValueKind::Text),
    ("steps", ValueKind::Switch),
    ("activities", ValueKind::Switch),
    ("subagents", ValueKind::Text),
    ("raw", ValueKind::Switch),
    ("harness", ValueKind::Text),
];

impl Raw {
    /// What viewers are sent, by default and for agents with a table of their own.
    pub(super) fn emits(&mut self, mistakes: &mut Mistakes) -> Emits {
        let mut default = Emit::default();
        for (key, given) in self.take_all("emit.") {
            mistakes.keep(set(&mut default, &key, given));
        }
        let mut emits = Emits { default, ..Emits::default() };
        for (key, given) in self.take_all("agents.") {
            let Some((agent, option)) = of_agent(&key) else {
                // An alias, which is read elsewhere.
                self.given.insert(format!("agents.{key}"), given);
                continue;
            };
            // An agent's table begins with the values of `emit`.
            let emit = emits.by_agent.entry(agent.to_owned()).or_insert(default);
            mistakes.keep(set(emit, option, given));
        }
        emits
    }
}

/// Splits the part of a key after `agents.` into the agent's name, which may hold dots, and the
/// option.
pub(super) fn of_agent(key: &str) -> Option<(&str, &str)> {
    let (agent, option) = key.rsplit_once(".emit.")?;
    (!agent.is_empty() && kind_of(option).is_some()).then_some((agent, option))
}

/// The kind of value that an option takes.
pub(super) fn kind_of(option: &str) -> Option<ValueKind> {
    KEYS.iter().find(|(known, _)| *known == option).map(|(_, form)| *form)
}

fn set(emit: &mut Emit, option: &str, given: Given) -> Result<(), Mistake> {
    let switch = [("true", true), ("false", false)];
    match option {
        "state" => {
            emit.state = given.one_of(&[
                ("delta", StateEvents::Delta),
                ("initial", StateEvents::Initial),
                ("final", StateEvents::Final),
                ("all", StateEvents::All),
                ("none", StateEvents::None),
            ])?;
        }
        "messages" => {
            emit.messages = given.one_of(&[
                ("when_needed", MessageSnapshots::WhenNeeded),
                ("always", MessageSnapshots::Always),
                ("none", MessageSnapshots::None),
            ])?;
        }
        "tool_results" => emit.tool_results = given.one_of(&switch)?,
        "max_tool_result_bytes" => emit.max_tool_result_bytes = given.between(0, MAX_BYTES)?,
        "max_event_bytes" => emit.max_event_bytes = given.between(0, MAX_BYTES)?,
        "reasoning" => emit.reasoning = given.one_of(&[("show", true), ("hide", false)])?,
        "steps" => emit.steps = given.one_of(&switch)?,
        "activities" => emit.activities = given.one_of(&switch)?,
        "raw" => emit.raw = given.one_of(&switch)?,
        "harness" => {
            emit.harness = given.one_of(&[
                ("notice", Harness::Notice),
                ("show", Harness::Show),
                ("hide", Harness::Hide),
            ])?;
        }
        "subagents" => {
            emit.subagents = given.one_of(&[
                ("attributed", Subagents::Attributed),
                ("inline", Subagents::Inline),
                ("hidden", Subagents::Hidden),
            ])?;
        }
        _ => return Err(given.mistaken("a key of config.toml.example")),
    }
    Ok(())
}
