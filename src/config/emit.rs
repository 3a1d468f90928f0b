//! The tables `emit` and `agents.NAME.emit`: what viewers are shown of runs.

use super::MOST_BYTES;
use super::raw::{Form, Given, Mistake, Mistakes, Raw};
use crate::agents::Emits;
use threadway_translate::run::{Emit, MessageSnapshots, StateEvents, Subagents};

/// The keys of the table, and what each takes.
pub(super) const KEYS: [(&str, Form); 10] = [
    ("state", Form::Text),
    ("messages", Form::Text),
    ("tool_results", Form::Switch),
    ("max_tool_result_bytes", Form::Number),
    ("max_event_bytes", Form::Number),
    ("reasoning", Form::Text),
    ("steps", Form::Switch),
    ("activities", Form::Switch),
    ("subagents", Form::Text),
    ("raw", Form::Switch),
];

impl Raw {
    /// What viewers are shown of all agents, and of those that say it themselves.
    pub(super) fn emits(&mut self, mistakes: &mut Mistakes) -> Emits {
        let mut default = Emit::default();
        for (key, given) in self.take_all("emit.") {
            mistakes.keep(set(&mut default, &key, given));
        }
        let mut emits = Emits { default, ..Emits::default() };
        for (key, given) in self.take_all("agents.") {
            let Some((agent, option)) = of_agent(&key) else {
                // An alias: not ours.
                self.given.insert(format!("agents.{key}"), given);
                continue;
            };
            // What an agent does not say itself is said for all.
            let emit = emits.by_agent.entry(agent.to_owned()).or_insert(default);
            mistakes.keep(set(emit, option, given));
        }
        emits
    }
}

/// The agent's name and the option of a key behind `agents.`. The name may hold dots.
pub(super) fn of_agent(key: &str) -> Option<(&str, &str)> {
    let (agent, option) = key.rsplit_once(".emit.")?;
    (!agent.is_empty() && form(option).is_some()).then_some((agent, option))
}

/// What an option takes.
pub(super) fn form(option: &str) -> Option<Form> {
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
        "max_tool_result_bytes" => emit.max_tool_result_bytes = given.between(0, MOST_BYTES)?,
        "max_event_bytes" => emit.max_event_bytes = given.between(0, MOST_BYTES)?,
        "reasoning" => emit.reasoning = given.one_of(&[("show", true), ("hide", false)])?,
        "steps" => emit.steps = given.one_of(&switch)?,
        "activities" => emit.activities = given.one_of(&switch)?,
        "raw" => emit.raw = given.one_of(&switch)?,
        "subagents" => {
            emit.subagents = given.one_of(&[
                ("attributed", Subagents::Attributed),
                ("inline", Subagents::Inline),
                ("hidden", Subagents::Hidden),
            ])?;
        }
        _ => return Err(given.mistaken("a key that config.toml.example shows")),
    }
    Ok(())
}
