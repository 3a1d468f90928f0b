//! Subagents of real deep agents as child sessions, as the SDK's types have them.

use std::collections::{BTreeMap, BTreeSet};

use agent_client_protocol::schema::MaybeUndefined;
use agent_client_protocol::v1::schema::{
    ClientCapabilities, LoadSessionRequest, PromptRequest, SessionId, SessionUpdate, StateUpdate,
    StopReason, SubagentCapabilities, ToolCallContent, ToolCallStatus,
};

use super::{CWD, Editor, Scenario, Shown, describe, same, text};

/// What an editor shows of one child session.
#[derive(Debug, Default)]
struct Child {
    title: String,
    states: Vec<&'static str>,
    shown: Shown,
}

/// A session and its child sessions.
#[derive(Debug, Default)]
struct Family {
    own: Shown,
    children: BTreeMap<String, Child>,
    /// The child sessions that the session's own calls name.
    named: BTreeSet<String>,
}

pub async fn play(scenario: Scenario, mut editor: Editor) -> Result<(), String> {
    let capabilities = ClientCapabilities::new().subagents(SubagentCapabilities::new());
    editor.introduce(capabilities).await?;
    let id = editor.new_session(scenario.agent()).await?;
    let answer = editor.agent.send_request(PromptRequest::new(id.clone(), text("{}")));
    let answer = answer.block_task().await.map_err(|error| describe("session/prompt", &error))?;
    same("the stop reason", &answer.stop_reason, &StopReason::EndTurn)?;
    let live = Family::read(&mut editor, &id)?;
    live.check(scenario)?;
    let mut asked: Vec<_> = {
        let next = || editor.asked.try_recv().ok().map(|id| id.to_string());
        std::iter::from_fn(next).collect()
    };
    asked.sort();
    let expected: Vec<_> = match scenario {
        // Each asks once, in its own session.
        Scenario::AskingChildren => live.children.keys().cloned().collect(),
        _ => Vec::new(),
    };
    same("the sessions that asked", &asked, &expected)?;

    let load = editor.agent.send_request(LoadSessionRequest::new(id.clone(), CWD));
    load.block_task().await.map_err(|error| describe("session/load", &error))?;
    let loaded = Family::read(&mut editor, &id)?;
    same("the loaded text", loaded.own.text().as_str(), &live.own.text())?;
    same("the loaded calls", &loaded.own.calls(), &live.own.calls())
}

impl Family {
    /// Reads the updates that preceded the last response.
    fn read(editor: &mut Editor, id: &SessionId) -> Result<Self, String> {
        let mut family = Self::default();
        while let Ok(told) = editor.updates.try_recv() {
            if told.session_id == *id {
                family.apply(told.update);
            } else {
                let child = family.children.get_mut(&*told.session_id.0);
                let child = child.ok_or("an update of a child that was not announced")?;
                child.shown.apply(told.update);
            }
        }
        Ok(family)
    }

    fn apply(&mut self, update: SessionUpdate) {
        let content = match &update {
            SessionUpdate::SubagentUpdate(news) => {
                let child = self.children.entry(news.session_id.to_string()).or_default();
                if let MaybeUndefined::Value(title) = &news.title {
                    child.title.clone_from(title);
                }
                if let MaybeUndefined::Value(state) = &news.state {
                    child.states.push(match state {
                        StateUpdate::Running(_) => "running",
                        StateUpdate::Idle(_) => "idle",
                        StateUpdate::RequiresAction(_) => "requires_action",
                        _ => "unknown",
                    });
                }
                return;
            }
            SessionUpdate::ToolCall(call) => Some(&call.content),
            SessionUpdate::ToolCallUpdate(update) => update.fields.content.as_ref(),
            _ => None,
        };
        for content in content.into_iter().flatten() {
            if let ToolCallContent::Session(child) = content {
                self.named.insert(child.session_id.to_string());
            }
        }
        self.own.apply(update);
    }

    fn check(&self, scenario: Scenario) -> Result<(), String> {
        same("the child sessions", &self.children.len(), &2)?;
        same(
            "the children that calls name",
            &self.named,
            &self.children.keys().cloned().collect(),
        )?;
        let (title, said, asks) = match scenario {
            Scenario::AskingChildren => ("writer", " wrote.", true),
            _ => ("researcher", "Looking up ", false),
        };
        for child in self.children.values() {
            same("the title", child.title.as_str(), title)?;
            let ends = (child.states.first().copied(), child.states.last().copied());
            same("the first and the last state", &ends, &(Some("running"), Some("idle")))?;
            same("whether it asked", &child.states.contains(&"requires_action"), &asks)?;
            let calls = child.shown.calls();
            same("the calls", &calls.len(), &1)?;
            same("whether they are over", &calls[0].1, &ToolCallStatus::Completed)?;
            if !child.shown.text().contains(said) {
                return Err(format!("the child said {:?}", child.shown.text()));
            }
        }
        Ok(())
    }
}
