//! The text of an answer, which may be as large as a thread's state.

use threadway_translate::json;

use crate::offload::offload;

/// The text of an answer. It is read outside the threads of the runtime if it is large, since the
/// only access is [`read`](Self::read).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AnswerText(String);

// === impl AnswerText ===

impl AnswerText {
    /// Reads a body of UTF-8. Other bytes are replaced, and so are numbers that JSON does not have.
    pub(super) fn of(body: Vec<u8>) -> Self {
        let lossy = |body: &[u8]| String::from_utf8_lossy(body).into_owned();
        Self(offload(body.len(), || {
            let text = String::from_utf8(body).unwrap_or_else(|error| lossy(error.as_bytes()));
            json::mend_numbers(&text).unwrap_or(text)
        }))
    }

    /// Passes the text to `read`, which may return parts of it.
    pub(crate) fn read<'a, T>(&'a self, read: impl FnOnce(&'a str) -> T) -> T {
        offload(self.0.len(), || read(&self.0))
    }

    /// The length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The text, for a caller that offloads what it does with it.
    pub(crate) fn into_string(self) -> String {
        self.0
    }
}

impl From<String> for AnswerText {
    fn from(text: String) -> Self {
        Self(text)
    }
}
