//! A change of the state in the form of RFC 6902 (JSON Patch).

use serde::Serialize;

use crate::json::Json;

/// A list of operations, applied in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Patch(pub(super) Vec<Operation>);

/// One operation. `path` is a JSON pointer (RFC 6901).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Operation {
    /// Adds a member, or appends to an array (`/-`).
    Add {
        /// The location.
        path: String,
        /// The new value.
        value: Json,
    },
    /// Replaces a value.
    Replace {
        /// The location.
        path: String,
        /// The new value.
        value: Json,
    },
    /// Removes a member or an element.
    Remove {
        /// The location.
        path: String,
    },
}

// === impl Patch ===

impl Patch {
    /// Whether there are no operations.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The operations.
    pub fn operations(&self) -> &[Operation] {
        &self.0
    }

    pub(super) fn len_on_wire(&self) -> usize {
        self.0.iter().map(Operation::len_on_wire).sum()
    }
}

impl FromIterator<Operation> for Patch {
    fn from_iter<I: IntoIterator<Item = Operation>>(operations: I) -> Self {
        Self(operations.into_iter().collect())
    }
}

// === impl Operation ===

impl Operation {
    pub(super) fn len_on_wire(&self) -> usize {
        /// The bytes of `{"op":"replace","path":"","value":},`.
        const FRAME: usize = 36;
        match self {
            Self::Add { path, value } | Self::Replace { path, value } => {
                FRAME + path.len() + value.get().len()
            }
            Self::Remove { path } => FRAME + path.len(),
        }
    }
}
