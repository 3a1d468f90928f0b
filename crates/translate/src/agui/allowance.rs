//! How much of a client's request goes up: what it may set of its run, and whose messages it may
//! send.

use serde_json::value::RawValue;

use super::input::Input;
use crate::json::{self, Json, Members, ObjectWriter};
use crate::langgraph::Multitask;
use crate::run::Role;

/// The most steps of a graph that a client may ask for, unless the operator says otherwise. A run
/// that names no limit gets LangGraph's own, which was 25 for years; agents that plan take hundreds.
pub const DEFAULT_RECURSION_LIMIT: u64 = 1_000;

/// What of a client's request goes up. Of `forwardedProps.config` that is nothing of `configurable` by default. A graph may read
/// a tenant, a model or a tool's address there, and only its operator knows which are the client's
/// to choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowance {
    keys: Vec<String>,
    recursion_limit: u64,
    /// What becomes of a run on a busy thread, where its client does not say.
    multitask: Option<Multitask>,
    /// What a client may say of that.
    multitasks: Vec<Multitask>,
    /// `None` if the operator does not say.
    system_messages: Option<SystemMessages>,
}

/// What becomes of the system and developer messages that a client sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SystemMessages {
    /// They go up, as all new messages do.
    #[default]
    Send,
    /// They do not: a model follows them more than what a person says, and anybody may write them
    /// who reaches the gateway.
    Drop,
}

/// A text is no name of what a client may set in `configurable`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the name of a graph's own setting, such as model; what LangGraph itself acts on, and what it \
     fills from a request's headers, is not for clients"
)]
pub struct NotForClients;

// === impl Allowance ===

impl Allowance {
    /// Lets a client set one more member of `configurable`.
    pub fn allow(&mut self, key: &str) -> Result<(), NotForClients> {
        if key.is_empty() || is_reserved(key) {
            return Err(NotForClients);
        }
        self.keys.push(key.to_owned());
        Ok(())
    }

    /// Lets a client ask for as many steps at most.
    pub fn limit_recursion(&mut self, most: u64) {
        self.recursion_limit = most;
    }

    /// Has LangGraph do this with a run on a busy thread whose client says nothing of it.
    pub fn when_busy(&mut self, multitask: Multitask) {
        self.multitask = Some(multitask);
    }

    /// Lets a client ask for this on a busy thread.
    pub fn allow_when_busy(&mut self, multitask: Multitask) {
        self.multitasks.push(multitask);
    }

    /// Says what becomes of system and developer messages.
    pub fn take_system_messages(&mut self, policy: SystemMessages) {
        self.system_messages = Some(policy);
    }

    /// What the operator says of system and developer messages, if anything.
    pub fn system_messages(&self) -> Option<SystemMessages> {
        self.system_messages
    }

    /// Whether a client's new messages of this role go up. An assistant message that LangGraph does
    /// not know never does.
    pub(super) fn takes(&self, role: Role) -> bool {
        match role {
            Role::Assistant | Role::Reasoning | Role::Attachment => false,
            Role::User | Role::Tool => true,
            Role::System | Role::Developer => {
                self.system_messages.unwrap_or_default() == SystemMessages::Send
            }
        }
    }

    /// What LangGraph is to do with the request's run on a busy thread.
    pub(super) fn multitask(&self, input: &Input) -> Option<Multitask> {
        self.asked_multitask(input).and_then(Result::ok).or(self.multitask)
    }

    /// Whether a request asks for something on a busy thread that it may not ask for.
    pub fn leaves_multitask_out(&self, input: &Input) -> bool {
        self.asked_multitask(input).is_some_and(|asked| asked.is_err())
    }

    /// What a request asks for on a busy thread: an error if it may not.
    fn asked_multitask(&self, input: &Input) -> Option<Result<Multitask, ()>> {
        let forwarded = json::members(input.forwarded_props.as_deref()?)?;
        let names = ["multitaskStrategy", "multitask_strategy"];
        let asked = names.into_iter().find_map(|name| forwarded.get(name))?;
        if asked.get() == "null" {
            return None;
        }
        let word = json::string(asked);
        let mut known = Multitask::WORDS.into_iter();
        let known = known.find(|(known, _)| word.as_deref() == Some(*known));
        let allowed = known.map(|(_, known)| known).filter(|known| self.multitasks.contains(known));
        Some(allowed.ok_or(()))
    }

    /// What goes up of a request's configuration.
    ///
    /// The rest of `forwardedProps` is left out, not spread into the run: a browser that can name a
    /// webhook makes the server call it.
    pub(super) fn config(&self, input: &Input) -> Option<Json> {
        let config = config(input)?;
        let mut allowed = ObjectWriter::new();
        let limit = config.number("recursion_limit").or_else(|| config.number("recursionLimit"));
        if let Some(limit) = limit {
            let limit = limit.min(self.recursion_limit);
            allowed = allowed.raw("recursion_limit", &limit.to_string());
        }
        let members = configurable(&config);
        let mut kept = members.0.iter().filter(|(key, _)| self.allows(key)).peekable();
        if kept.peek().is_some() {
            let kept = kept.fold(ObjectWriter::new(), |w, (key, value)| w.raw(key, value.get()));
            allowed = allowed.raw("configurable", kept.finish().get());
        }
        (!allowed.is_empty()).then(|| allowed.finish())
    }

    /// How many members of a request's `configurable` do not go up.
    pub fn left_out(&self, input: &Input) -> usize {
        let config = config(input).unwrap_or_default();
        configurable(&config).0.iter().filter(|(key, _)| !self.allows(key)).count()
    }

    fn allows(&self, key: &str) -> bool {
        self.keys.iter().any(|allowed| allowed == key)
    }
}

impl Default for Allowance {
    fn default() -> Self {
        Self {
            keys: Vec::new(),
            recursion_limit: DEFAULT_RECURSION_LIMIT,
            multitask: None,
            multitasks: Vec::new(),
            system_messages: None,
        }
    }
}

fn config(input: &Input) -> Option<Members<'_>> {
    let forwarded: &RawValue = input.forwarded_props.as_deref()?;
    json::members(json::members(forwarded)?.get("config")?)
}

fn configurable<'a>(config: &Members<'a>) -> Members<'a> {
    config.get("configurable").and_then(json::members).unwrap_or_default()
}

/// Whether LangGraph itself acts on a key: another thread, another checkpoint, another user. Or a
/// graph finds a header of its request there, which only a request can set.
fn is_reserved(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    let is_langgraphs = matches!(
        &*key,
        "thread_id" | "thread_ts" | "run_id" | "user_id" | "graph_id" | "assistant_id"
    );
    let beginnings = ["checkpoint", "langgraph_", "__", "x-"];
    is_langgraphs || key == "authorization" || beginnings.iter().any(|b| key.starts_with(b))
}
