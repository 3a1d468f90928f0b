//! The tokens that a run uses, by message while it runs, and by model at its end.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::Id;
use crate::json::Members;
use crate::langgraph::{CallMetadata, Message};

/// The tokens that one model has used in a run. A number that the provider does not report is
/// `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The provider.
    pub provider: Option<Id>,
    /// The model.
    pub model: Option<Id>,
    /// Input tokens, including cached ones.
    pub input: Option<u64>,
    /// Output tokens, including reasoning.
    pub output: Option<u64>,
    /// Input and output tokens.
    pub total: Option<u64>,
    /// Output tokens that were reasoning.
    pub reasoning: Option<u64>,
    /// Input tokens that were read from a cache.
    pub cache_read: Option<u64>,
    /// Input tokens that were written to a cache.
    pub cache_write: Option<u64>,
}

/// The usage of each message of a run.
#[derive(Debug, Default)]
pub(super) struct UsageByMessage {
    order: Vec<Id>,
    by_message: HashMap<Id, Usage>,
    /// Messages of earlier runs, which this run did not pay for.
    excluded: HashSet<Id>,
}

// === impl Usage ===

impl Usage {
    /// The usage that a whole message reports.
    pub(super) fn of(message: &Message<'_>) -> Option<Self> {
        let (provider, model) = message.model();
        let provider = provider.as_deref().map(Id::from);
        let model = model.as_deref().map(Id::from);
        Some(Self { provider, model, ..Self::read(&message.usage()?) })
    }

    fn read(members: &Members<'_>) -> Self {
        let inner = |name, key| {
            members.get(name).and_then(crate::json::members).and_then(|m| m.number(key))
        };
        Self {
            provider: None,
            model: None,
            input: members.number("input_tokens"),
            output: members.number("output_tokens"),
            total: members.number("total_tokens"),
            reasoning: inner("output_token_details", "reasoning"),
            cache_read: inner("input_token_details", "cache_read"),
            cache_write: inner("input_token_details", "cache_creation"),
        }
    }

    fn add(&mut self, other: &Self) {
        let add = |a: &mut Option<u64>, b: Option<u64>| {
            if let Some(b) = b {
                *a = Some(a.unwrap_or(0).saturating_add(b));
            }
        };
        let Self { provider, model, input, output, total, reasoning, cache_read, cache_write } =
            self;
        *provider = provider.take().or_else(|| other.provider.clone());
        *model = model.take().or_else(|| other.model.clone());
        add(input, other.input);
        add(output, other.output);
        add(total, other.total);
        add(reasoning, other.reasoning);
        add(cache_read, other.cache_read);
        add(cache_write, other.cache_write);
    }
}

// === impl UsageByMessage ===

impl UsageByMessage {
    /// Adds the usage on a chunk, and returns the message's sum. `None` if the chunk has none.
    /// Providers may report usage in pieces; LangChain adds them up too.
    pub(super) fn add_chunk(
        &mut self,
        id: &Id,
        message: &Message<'_>,
        origin: Option<&CallMetadata>,
    ) -> Option<Usage> {
        let members = message.usage()?;
        let entry = self.entry(id, message, origin);
        entry.add(&Usage::read(&members));
        Some(entry.clone())
    }

    /// Takes the usage of a whole message, which is a sum already. Returns it if it has changed.
    pub(super) fn set_whole(
        &mut self,
        id: &Id,
        message: &Message<'_>,
        origin: Option<&CallMetadata>,
    ) -> Option<Usage> {
        let members = message.usage()?;
        let entry = self.entry(id, message, origin);
        let before = std::mem::take(entry);
        let (provider, model) = (before.provider.clone(), before.model.clone());
        *entry = Usage { provider, model, ..Usage::read(&members) };
        (*entry != before).then(|| entry.clone())
    }

    /// Takes the usage that the newer protocol sends at the end of a message.
    pub(super) fn set_finish(
        &mut self,
        id: &Id,
        usage: &Members<'_>,
        metadata: Option<&Members<'_>>,
    ) -> Usage {
        let name = |key| metadata?.string(key).map(|name| Id::from(&*name));
        let (provider, model) = (name("model_provider"), name("model_name"));
        let usage = Usage { provider, model, ..Usage::read(usage) };
        self.slot(id).clone_from(&usage);
        usage
    }

    /// Leaves a message out of the run's sums.
    pub(super) fn exclude(&mut self, id: &str) {
        self.excluded.insert(Id::from(id));
    }

    /// The sums for each provider and model, in the order in which the models were first used.
    pub(super) fn sums(&self) -> Vec<Usage> {
        let mut sums: Vec<Usage> = Vec::new();
        let due = self.order.iter().filter(|id| !self.excluded.contains(*id));
        for usage in due.filter_map(|id| self.by_message.get(id)) {
            let same =
                |sum: &&mut Usage| sum.provider == usage.provider && sum.model == usage.model;
            match sums.iter_mut().find(same) {
                Some(sum) => sum.add(usage),
                None => sums.push(usage.clone()),
            }
        }
        sums
    }

    fn entry(
        &mut self,
        id: &Id,
        message: &Message<'_>,
        origin: Option<&CallMetadata>,
    ) -> &mut Usage {
        let (provider, model) = message.model();
        let provider = provider.as_deref().or_else(|| origin?.provider.as_deref()).map(Id::from);
        let model = model.as_deref().or_else(|| origin?.model.as_deref()).map(Id::from);
        let slot = self.slot(id);
        slot.provider = provider.or_else(|| slot.provider.take());
        slot.model = model.or_else(|| slot.model.take());
        slot
    }

    fn slot(&mut self, id: &Id) -> &mut Usage {
        if !self.by_message.contains_key(id) {
            self.order.push(Arc::clone(id));
        }
        self.by_message.entry(Arc::clone(id)).or_default()
    }
}
