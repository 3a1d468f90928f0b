//! A person's permanent answers, as a session stores them.

use serde_json::value::RawValue;

use crate::acp::permission::{MAX_REMEMBERED, RememberedAnswer};
use crate::json::{self, Json};

/// The permanent answers of a session, at most [`MAX_REMEMBERED`].
///
/// Each is stored under a key of its own, so that two clients can add some at the same time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PermanentAnswers {
    /// The oldest first.
    answers: Vec<RememberedAnswer>,
    /// Where each is stored.
    places: Vec<Place>,
}

/// Where an answer is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    /// A later answer has a higher number.
    number: u64,
    key: String,
}

// === impl PermanentAnswers ===

impl PermanentAnswers {
    /// Reads answers by their keys. An answer that cannot be read is left out.
    pub(super) fn read<'a>(stored: impl Iterator<Item = (&'a str, &'a Json)>) -> Self {
        let answer = |(key, value): (&str, &Json)| {
            let value: &RawValue = value;
            let number = json::members(value)?.number("number").unwrap_or(0);
            let answer: RememberedAnswer = serde_json::from_str(value.get()).ok()?;
            Some((Place { number, key: key.to_owned() }, answer))
        };
        let mut all: Vec<_> = stored.filter_map(answer).collect();
        all.sort_by(|(a, _), (b, _)| (a.number, &a.key).cmp(&(b.number, &b.key)));
        // Clients that add answers at the same time may exceed the limit.
        let surplus = all.len().saturating_sub(MAX_REMEMBERED);
        let (places, answers) = all.into_iter().skip(surplus).unzip();
        Self { answers, places }
    }

    /// The answers with their keys.
    pub(super) fn write(&self) -> impl Iterator<Item = (&str, Json)> {
        self.places.iter().zip(&self.answers).map(|(Place { number, key }, answer)| {
            let answer = serde_json::to_string(answer).unwrap_or_else(|_| "{}".to_owned());
            let number = json::raw(number.to_string());
            (&**key, json::with_member(&json::raw(answer), "number", &number))
        })
    }

    /// The answers, the oldest first.
    pub fn all(&self) -> &[RememberedAnswer] {
        &self.answers
    }

    /// Adds an answer. It replaces an older one about the same calls, and beyond the limit the
    /// oldest.
    pub fn add(&mut self, answer: RememberedAnswer) {
        let number = self.places.last().map_or(0, |last| last.number.saturating_add(1));
        let key = answer.key();
        let replaced = self.answers.iter().position(|known| known.key() == key);
        let is_full = self.answers.len() >= MAX_REMEMBERED;
        let replaced = replaced.or_else(|| is_full.then_some(0));
        let key = match replaced {
            // A server cannot remove a key, so the new answer takes that of the old one.
            Some(at) => {
                self.answers.remove(at);
                self.places.remove(at).key
            }
            None if self.places.iter().any(|place| place.key == key) => format!("{key}-{number}"),
            None => key,
        };
        self.answers.push(answer);
        self.places.push(Place { number, key });
    }

    /// Deletes all answers.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}
