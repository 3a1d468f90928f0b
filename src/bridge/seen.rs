//! What the editor was sent of a session, so that a repeated history shows nothing twice.
//!
//! A new connection loads the session, and the gateway sends the whole conversation again. ACP's
//! messages and calls have ids, and a message is the same text when it is streamed and when it is
//! loaded. So the bridge counts what it has passed on, and passes on only the rest.

mod text;

use std::hash::{DefaultHasher, Hash, Hasher};

use indexmap::{IndexMap, IndexSet};
use serde_json::value::RawValue;

use text::SeenText;
use threadway_translate::json::{self, Json, Members, ObjectWriter};

/// How many messages and calls of a session are known. Older ones are taken for known.
const MAX_KNOWN: usize = 16_384;

/// How many updates without an id are known.
const MAX_OTHERS: usize = 256;

/// Updates that replace the last one of their kind.
const STATES: [&str; 6] = [
    "plan",
    "available_commands_update",
    "current_mode_update",
    "config_option_update",
    "session_info_update",
    "usage_update",
];

/// What the editor was sent of a session.
#[derive(Debug)]
pub(super) struct Seen {
    /// By kind and id.
    messages: IndexMap<(String, String), Message>,
    /// Of each call, the hashes of its members.
    calls: IndexMap<String, IndexMap<String, u64>>,
    /// The hash of the last update of each kind in [`STATES`].
    states: IndexMap<String, u64>,
    /// The hashes of other updates.
    others: IndexSet<u64>,
    /// Whether the editor has the session from its beginning, and all of it is known here.
    is_whole: bool,
    history: History,
}

/// Where the connection is in the history.
#[derive(Debug)]
enum History {
    /// On the first connection nothing is repeated.
    First,
    /// The history is being repeated.
    Repeated {
        /// Whether a known message or call was repeated. What comes before is older than what is
        /// known, and the editor has it.
        has_reached_known: bool,
        /// The last update of each kind in [`STATES`].
        states: IndexMap<String, Json>,
    },
    /// The history was repeated. A run's text may still be.
    Over,
}

#[derive(Debug)]
enum Message {
    /// The person's own prompt, which the editor shows by itself.
    Own,
    Text(Box<SeenText>),
}

/// What to do with an update.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Pass,
    /// Pass these on instead; none if the editor has it.
    Instead(Vec<Json>),
}

// === impl Seen ===

impl Seen {
    /// Nothing is known. `is_whole` if the editor has nothing of the session either.
    pub(super) fn new(is_whole: bool) -> Self {
        Self {
            messages: IndexMap::new(),
            calls: IndexMap::new(),
            states: IndexMap::new(),
            others: IndexSet::new(),
            is_whole,
            history: History::First,
        }
    }

    /// The editor shows a prompt of its own. The gateway repeats it as a message with this id.
    pub(super) fn prompted(&mut self, id: &str) {
        self.messages.insert(("user_message_chunk".to_owned(), id.to_owned()), Message::Own);
        self.forget_oldest();
    }

    /// A new connection is about to repeat the history.
    pub(super) fn repeat(&mut self) {
        for message in self.messages.values_mut() {
            if let Message::Text(text) = message {
                text.repeat();
            }
        }
        let states = IndexMap::new();
        self.history = History::Repeated { has_reached_known: self.is_whole, states };
    }

    /// The history was repeated. Returns the updates that were held back and are news.
    pub(super) fn repeated(&mut self) -> Vec<Json> {
        match std::mem::replace(&mut self.history, History::Over) {
            History::Repeated { states, .. } => {
                let is_news = |(kind, update): (String, Json)| {
                    let hash = hash_of(update.get());
                    (self.states.insert(kind, hash) != Some(hash)).then_some(update)
                };
                states.into_iter().filter_map(is_news).collect()
            }
            first @ History::First => {
                self.history = first;
                Vec::new()
            }
            History::Over => Vec::new(),
        }
    }

    /// Decides about an update of the gateway.
    pub(super) fn take(&mut self, update: &RawValue) -> Verdict {
        let members = json::members(update).unwrap_or_default();
        let Some(kind) = members.string("sessionUpdate") else { return Verdict::Pass };
        let is_repeated = matches!(self.history, History::Repeated { .. });
        match &*kind {
            "user_message_chunk" | "agent_message_chunk" | "agent_thought_chunk" => {
                match members.string("messageId") {
                    Some(id) => self.take_chunk((kind.into_owned(), id.into_owned()), update),
                    None if is_repeated => Verdict::Instead(Vec::new()),
                    None => Verdict::Pass,
                }
            }
            "tool_call" | "tool_call_update" => match members.string("toolCallId") {
                Some(id) => self.take_call(&id, &members),
                None => Verdict::Pass,
            },
            kind if STATES.contains(&kind) => self.take_state(kind, update),
            _ => {
                let is_new = self.others.insert(hash_of(update.get()));
                if self.others.len() > MAX_OTHERS {
                    self.others.shift_remove_index(0);
                }
                if is_repeated && !is_new { Verdict::Instead(Vec::new()) } else { Verdict::Pass }
            }
        }
    }

    fn take_chunk(&mut self, key: (String, String), update: &RawValue) -> Verdict {
        let is_known = self.messages.contains_key(&key);
        if self.is_older(is_known) {
            return Verdict::Instead(Vec::new());
        }
        let id = key.1.clone();
        let message = self.messages.entry(key).or_insert_with(|| Message::Text(Box::default()));
        let verdict = match message {
            Message::Own => Verdict::Instead(Vec::new()),
            Message::Text(text) => text.take(&id, update),
        };
        self.forget_oldest();
        verdict
    }

    fn take_call(&mut self, id: &str, members: &Members<'_>) -> Verdict {
        let is_known = self.calls.contains_key(id);
        if self.is_older(is_known) {
            return Verdict::Instead(Vec::new());
        }
        let is_repeated = match self.history {
            History::First => false,
            History::Repeated { .. } => is_known,
            History::Over => {
                is_known && members.string("sessionUpdate").as_deref() == Some("tool_call")
            }
        };
        let known = self.calls.entry(id.to_owned()).or_default();
        let had_status = known.get("status").copied().map_or(0, status_rank);
        let mut news = ObjectWriter::new()
            .string("sessionUpdate", "tool_call_update")
            .string("toolCallId", id);
        let mut has_news = false;
        let about = |name: &str| matches!(name, "sessionUpdate" | "toolCallId");
        for (name, value) in members.0.iter().filter(|(name, _)| !about(name)) {
            let hash = hash_of(value.get());
            // A run's stream that begins again repeats how its calls came to their end.
            if is_repeated && &**name == "status" && status_rank(hash) < had_status {
                continue;
            }
            if known.insert(name.to_string(), hash) != Some(hash) {
                has_news = true;
                news = news.raw(name, value.get());
            }
        }
        self.forget_oldest();
        match (is_repeated, has_news) {
            (false, _) => Verdict::Pass,
            (true, true) => Verdict::Instead(vec![news.finish()]),
            (true, false) => Verdict::Instead(Vec::new()),
        }
    }

    fn take_state(&mut self, kind: &str, update: &RawValue) -> Verdict {
        if let History::Repeated { states, .. } = &mut self.history {
            states.insert(kind.to_owned(), Json::from(update));
            return Verdict::Instead(Vec::new());
        }
        self.states.insert(kind.to_owned(), hash_of(update.get()));
        Verdict::Pass
    }

    /// Whether a repeated message or call is older than everything that is known.
    fn is_older(&mut self, is_known: bool) -> bool {
        match &mut self.history {
            History::Repeated { has_reached_known, .. } => {
                *has_reached_known |= is_known;
                !*has_reached_known
            }
            History::First | History::Over => false,
        }
    }

    fn forget_oldest(&mut self) {
        if self.messages.len() > MAX_KNOWN {
            self.messages.shift_remove_index(0);
            self.is_whole = false;
        }
        if self.calls.len() > MAX_KNOWN {
            self.calls.shift_remove_index(0);
            self.is_whole = false;
        }
    }
}

fn hash_of(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// A call goes on from one status to the next.
fn status_rank(hash: u64) -> u8 {
    let ranks = [(r#""in_progress""#, 1), (r#""completed""#, 2), (r#""failed""#, 2)];
    ranks.into_iter().find(|(status, _)| hash_of(status) == hash).map_or(0, |(_, rank)| rank)
}

#[cfg(test)]
mod tests;
