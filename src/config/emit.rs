//! The tables `emit` and `agents.NAME.emit`: what viewers are sent of runs.

use super::keys;
use super::raw::{ConfigError, Given, Raw};
use crate::agents::Emits;
use threadway_translate::run::{EmitOptions, Harness, MessageSnapshots, StateEvents, Subagents};

impl Raw {
    /// What viewers are sent, by default and for agents with a table of their own.
    pub(super) fn emits(&mut self) -> Emits {
        let mut default = EmitOptions::default();
        for (key, given) in self.take_all("emit.") {
            self.keep(set(&mut default, &key, given));
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
            self.keep(set(emit, option, given));
        }
        emits
    }
}

/// Splits the part of a key after `agents.` into the agent's name, which may hold dots, and the
/// option.
pub(super) fn of_agent(key: &str) -> Option<(&str, &str)> {
    let (agent, option) = key.rsplit_once(".emit.")?;
    let is_known = keys::find(&format!("emit.{option}")).is_some();
    (!agent.is_empty() && is_known).then_some((agent, option))
}

fn set(emit: &mut EmitOptions, option: &str, given: Given) -> Result<(), ConfigError> {
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
        "max_tool_result_bytes" => emit.max_tool_result_bytes = given.number()?,
        "max_event_bytes" => emit.max_event_bytes = given.number()?,
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
