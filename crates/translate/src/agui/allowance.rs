//! What the operator lets a client set: the configuration of its runs, and the roles of its
//! messages.

use serde_json::value::RawValue;

use super::input::Input;
use crate::json::{self, Json, Members, ObjectWriter};
use crate::langgraph::Multitask;
use crate::run::Role;

/// The highest recursion limit, in steps of a graph, that a client may set by default.
///
/// A run without a limit gets LangGraph's own. That was 25 for years, and agents that plan take
/// hundreds of steps.
pub const DEFAULT_RECURSION_LIMIT: u64 = 1_000;

/// What a client may set.
///
/// By default, no member of `configurable` in `forwardedProps.config` goes up. A graph may read a
/// tenant, a model or a tool's address there, and only its operator knows which of them a client
/// may choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowance {
    keys: Vec<String>,
    recursion_limit: u64,
    /// What LangGraph does with a run on a busy thread if the client does not say.
    multitask: Option<Multitask>,
    /// What a client may ask for on a busy thread.
    multitasks: Vec<Multitask>,
    /// `None` if the operator has not set it.
    system_messages: Option<SystemMessages>,
    lost_thread: LostThread,
}

/// What happens to the system and developer messages that a client sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SystemMessages {
    /// They go up like all new messages.
    #[default]
    Send,
    /// They are left out. A model obeys them more than a person's words, and anyone who reaches the
    /// gateway can write them.
    Drop,
}

/// What goes up if the client shows a conversation that LangGraph no longer has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LostThread {
    /// The whole conversation, so that the agent goes on where the person is.
    Restore,
    /// The newest turn of the person. A client could otherwise make up what an agent has said.
    #[default]
    Newest,
}

/// A client may not set this member of `configurable`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the name of a graph's own setting, such as model; what LangGraph itself acts on, and what it \
     fills from a request's headers, is not for clients"
)]
pub struct NotSettableByClients;

// === impl Allowance ===

impl Allowance {
    /// Lets a client set one more member of `configurable`.
    pub fn allow(&mut self, key: &str) -> Result<(), NotSettableByClients> {
        if key.is_empty() || is_reserved(key) {
            return Err(NotSettableByClients);
        }
        self.keys.push(key.to_owned());
        Ok(())
    }

    /// Sets the highest recursion limit that a client may set, in steps.
    pub fn limit_recursion(&mut self, most: u64) {
        self.recursion_limit = most;
    }

    /// Sets what LangGraph does with a run on a busy thread if the client does not say.
    pub fn when_busy(&mut self, multitask: Multitask) {
        self.multitask = Some(multitask);
    }

    /// Lets a client ask for this on a busy thread.
    pub fn allow_when_busy(&mut self, multitask: Multitask) {
        self.multitasks.push(multitask);
    }

    /// Sets what happens to system and developer messages.
    pub fn take_system_messages(&mut self, policy: SystemMessages) {
        self.system_messages = Some(policy);
    }

    /// Sets what goes up if LangGraph has lost a thread.
    pub fn when_lost(&mut self, policy: LostThread) {
        self.lost_thread = policy;
    }

    /// What goes up if LangGraph has lost a thread.
    pub(super) fn lost_thread(&self) -> LostThread {
        self.lost_thread
    }

    /// What happens to system and developer messages. `None` if the operator has not set it.
    pub fn system_messages(&self) -> Option<SystemMessages> {
        self.system_messages
    }

    /// Whether a client's new messages of this role go up. New messages of an
    /// assistant never do.
    pub(super) fn takes(&self, role: Role) -> bool {
        match role {
            Role::Assistant | Role::Reasoning | Role::Attachment => false,
            Role::User | Role::Tool => true,
            Role::System | Role::Developer => {
                self.system_messages.unwrap_or_default() == SystemMessages::Send
            }
        }
    }

    /// What LangGraph does with the request's run on a busy thread.
    pub(super) fn multitask(&self, input: &Input) -> Option<Multitask> {
        self.asked_multitask(input).and_then(Result::ok).or(self.multitask)
    }

    /// Whether the request's wish for a busy thread is ignored, because the client may not have it.
    pub fn leaves_multitask_out(&self, input: &Input) -> bool {
        self.asked_multitask(input).is_some_and(|asked| asked.is_err())
    }

    /// What the request asks for on a busy thread. An error if the client may not ask for it.
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

    /// The part of the request's configuration that goes up.
    ///
    /// Other members of `forwardedProps` never become members of the run request. A browser that
    /// could set a webhook could make the server call any address.
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
            lost_thread: LostThread::default(),
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

/// Whether a key of `configurable` is not the graph's own. LangGraph itself reads the thread, the
/// checkpoint and the user there, and stores a request's headers there.
fn is_reserved(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    let is_langgraphs = matches!(
        &*key,
        "thread_id" | "thread_ts" | "run_id" | "user_id" | "graph_id" | "assistant_id"
    );
    let beginnings = ["checkpoint", "langgraph_", "__", "x-"];
    is_langgraphs || key == "authorization" || beginnings.iter().any(|b| key.starts_with(b))
}
