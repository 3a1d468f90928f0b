//! Whether the stream is known from the run's beginning.

use crate::langgraph::{CallMetadata, Part, PartPayload};

/// Whether the stream is known from the run's beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::run) enum Beginning {
    /// It is, or all messages since are whole.
    #[default]
    Heard,
    /// The run was joined; a stream that begins with `metadata` is whole.
    Unsure {
        /// Whether the stream carries the state.
        has_values: bool,
    },
    /// A message may have begun before the stream was read.
    Missed {
        /// Whether the stream carries the state.
        has_values: bool,
        /// The first superstep that a token came from.
        step: Option<u64>,
    },
}

// === impl Beginning ===

impl Beginning {
    /// Something may be missing before the next part.
    pub(in crate::run) fn missed(has_values: bool) -> Self {
        Self::Missed { has_values, step: None }
    }

    /// Notes the first part of a stream that was joined.
    pub(in crate::run) fn note_first(&mut self, first: &PartPayload<'_>) {
        if let Self::Unsure { has_values } = *self {
            *self = if matches!(first, PartPayload::Metadata { .. }) {
                Self::Heard
            } else {
                Self::missed(has_values)
            };
        }
    }

    /// Notes the first root `values` or `updates` after a join. Before it a message may lack its
    /// beginning; after a superstep every message is whole. Of parallel nodes `updates` show only
    /// one, so they count only if the stream has no `values`.
    pub(in crate::run) fn note_boundary(&mut self, part: &Part<'_>) {
        let Self::Missed { has_values, .. } = *self else { return };
        let is_boundary = matches!(part.body, PartPayload::Values(_))
            || (matches!(part.body, PartPayload::Updates(_)) && !has_values);
        if is_boundary && part.namespace.is_empty() {
            *self = Self::Heard;
        }
    }

    /// Whether a producer's message may lack its beginning. A producer in a later superstep than the
    /// first one heard has begun since.
    pub(in crate::run) fn may_lack(&mut self, origin: &CallMetadata) -> bool {
        let Self::Missed { step, .. } = self else { return false };
        let of_root = origin.step.filter(|_| !origin.checkpoint_ns.contains('|'));
        if let (Some(first), Some(now)) = (*step, of_root)
            && now > first
        {
            *self = Self::Heard;
            return false;
        }
        *step = step.or(of_root);
        true
    }
}
