//! An ACP client's session, built from the lines that the client receives. The checks fail for an
//! update that is illegal at its position.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value};
use threadway_translate::acp::{self, GraphProfile, Projector};
use threadway_translate::run::{Role, RunEvent, View};

pub(crate) const SESSION: &str = "T";
pub(crate) const CWD: &str = "/srv/app";

/// A session as its client sees it.
#[derive(Debug, Default)]
pub(crate) struct Session {
    /// The lines as they were sent.
    pub(crate) bytes: Vec<u8>,
    pub(crate) updates: Vec<Value>,
}

/// Whether the agent may ask for permission again for a call that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AskedAnew {
    Never,
    Perhaps,
}

/// A tool call as the client shows it after the last update.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Shown {
    pub(crate) members: Map<String, Value>,
}

/// A projector for a client that has received nothing.
pub(crate) fn newcomer() -> Projector {
    Projector::new(Arc::new(GraphProfile::default()), CWD)
}

/// Projects events to the lines of a session.
pub(crate) fn project<'a>(
    projector: &mut Projector,
    events: impl IntoIterator<Item = &'a RunEvent>,
) -> Session {
    let mut session = Session::default();
    for event in events {
        projector.project(event, &mut |update| session.push(update));
    }
    session
}

/// Projects a whole view, for a client that has received nothing.
pub(crate) fn load(view: &View) -> Session {
    project(&mut newcomer(), [&RunEvent::Messages(view.messages().into())])
}

/// The agent's texts in a view that are not blank, by message: those that a client must be shown.
pub(crate) fn to_be_shown(view: &View) -> BTreeMap<String, String> {
    let is_shown = |role| matches!(role, Role::User | Role::Assistant | Role::Reasoning);
    let messages = view.messages().iter();
    let shown = messages.filter(|message| is_shown(message.role) && message.agent.is_none());
    let text = shown.map(|m| (m.id.to_string(), m.content.text().decode().into_owned()));
    text.filter(|(_, text)| !text.is_empty()).collect()
}

// === impl Session ===

impl Session {
    pub(crate) fn push(&mut self, update: &acp::Update<'_>) {
        let before = self.bytes.len();
        acp::notification(SESSION, update, &mut self.bytes);
        let line = &self.bytes[before..];
        let (end, line) = line.split_last().expect("a line");
        assert_eq!(*end, b'\n');
        assert!(!line.contains(&b'\n'), "one line: {}", String::from_utf8_lossy(line));
        // The parser is strict: it refuses half a surrogate pair.
        let mut message: Value = serde_json::from_slice(line).expect("JSON that is strict");
        assert_eq!(message["params"]["sessionId"], SESSION);
        self.updates.push(message["params"]["update"].take());
    }

    /// Appends the updates of `more`.
    pub(crate) fn extend(&mut self, more: Self) {
        self.bytes.extend(more.bytes);
        self.updates.extend(more.updates);
    }

    /// The texts by message id, joined from the chunks of each id.
    pub(crate) fn texts(&self) -> BTreeMap<String, String> {
        let mut texts: BTreeMap<String, String> = BTreeMap::new();
        for update in &self.updates {
            if let (Some(id), Some(text)) =
                (update["messageId"].as_str(), update["content"]["text"].as_str())
            {
                texts.entry(id.to_owned()).or_default().push_str(text);
            }
        }
        texts
    }

    /// The newest text of a message that was sent to the client.
    pub(crate) fn text_of(&self, id: &str) -> Option<String> {
        let texts = self.texts();
        let revised = (2..).map(|n| format!("{id}:{n}")).take_while(|id| texts.contains_key(id));
        let last = revised.last().unwrap_or_else(|| id.to_owned());
        texts.get(&last).cloned()
    }

    /// The tool calls as a client shows them.
    pub(crate) fn calls(&self) -> BTreeMap<String, Shown> {
        let mut calls: BTreeMap<String, Shown> = BTreeMap::new();
        for update in &self.updates {
            if let Some(id) = update["toolCallId"].as_str() {
                let call = calls.entry(id.to_owned()).or_default();
                for (name, value) in update.as_object().unwrap() {
                    call.members.insert(name.clone(), value.clone());
                }
                call.members.remove("sessionUpdate");
            }
        }
        calls
    }

    /// Checks that each update is legal at its position.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.check_statuses(AskedAnew::Perhaps)?;
        let mut announced = BTreeSet::new();
        for update in &self.updates {
            let id = update["toolCallId"].as_str().unwrap_or_default();
            match update["sessionUpdate"].as_str().unwrap_or_default() {
                "tool_call" if !announced.insert(id) => {
                    return Err(format!("{id} is announced a second time: {update}"));
                }
                "tool_call_update" if !announced.contains(id) => {
                    return Err(format!("{id} was not announced: {update}"));
                }
                "user_message_chunk" | "agent_message_chunk" | "agent_thought_chunk"
                    if update["content"]["text"] == "" =>
                {
                    return Err(format!("nothing is said: {update}"));
                }
                _ => {}
            }
            let locations = update["locations"].as_array().into_iter().flatten();
            for location in locations {
                if !location["path"].as_str().is_some_and(|path| path.starts_with('/')) {
                    return Err(format!("a path is absolute: {update}"));
                }
            }
        }
        Ok(())
    }

    /// Checks that the status of a call only advances: pending, in progress, ended. A call that has
    /// ended waits again only if the agent asked again for permission, which no run does by itself.
    pub(crate) fn check_statuses(&self, asked_anew: AskedAnew) -> Result<(), String> {
        let rank = |status: &str| match status {
            "pending" => 0,
            "in_progress" => 1,
            _ => 2,
        };
        let mut ranks = BTreeMap::new();
        for update in &self.updates {
            let Some(id) = update["toolCallId"].as_str() else { continue };
            let before = *ranks.entry(id).or_insert(0);
            let Some(now) = update["status"].as_str().map(rank) else { continue };
            let may_go_back = asked_anew == AskedAnew::Perhaps && before == 2 && now == 0;
            if now < before && !may_go_back {
                return Err(format!("the status of {id} goes back: {update}"));
            }
            ranks.insert(id, now);
        }
        Ok(())
    }

    /// Also checks that no call is still waiting at the end.
    pub(crate) fn check_settled(&self) -> Result<(), String> {
        for (id, call) in self.calls() {
            if !call.is_settled() {
                return Err(format!("{id} is left open: {call:?}"));
            }
        }
        Ok(())
    }
}

// === impl Shown ===

impl Shown {
    pub(crate) fn is_settled(&self) -> bool {
        let status = self.members.get("status").and_then(Value::as_str);
        matches!(status, Some("completed" | "failed"))
    }

    pub(crate) fn get(&self, name: &str) -> &Value {
        self.members.get(name).unwrap_or(&Value::Null)
    }
}
