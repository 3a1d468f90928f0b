//! What a client was told of one text, so that nothing is told twice.
//!
//! A run may take back what it said: a second attempt begins again, a state is rewritten. The wire
//! cannot. What comes again is compared with what was told, and only what is new goes out; what
//! differs is told whole under another id.

use std::borrow::Cow;
use std::sync::Arc;

use super::strict;
use crate::json::{Text, TextBuf};
use crate::run::Id;

/// A text on the wire.
#[derive(Debug)]
pub(super) struct Spoken {
    /// The id that it goes by there.
    wire_id: Id,
    /// How often it was told whole.
    revision: u32,
    /// What was told under that id, without the half pair.
    told: TextBuf,
    /// How much of that the run has said, where it is less than all: the rest may be said again.
    heard: Option<usize>,
    /// Half of a surrogate pair, escaped, which waits for the other half.
    half: String,
}

/// What a client is to be told.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Say<'a> {
    /// Nothing.
    Nothing,
    /// More of the text, under [`Spoken::wire_id`].
    More(Cow<'a, Text>),
}

// === impl Spoken ===

impl Spoken {
    pub(super) fn new(id: &Id) -> Self {
        Self {
            wire_id: Arc::clone(id),
            revision: 1,
            told: TextBuf::default(),
            heard: None,
            half: String::new(),
        }
    }

    pub(super) fn wire_id(&self) -> &str {
        &self.wire_id
    }

    /// Whether anything of it was told.
    pub(super) fn has_begun(&self) -> bool {
        self.revision > 1 || !self.told.is_empty() || !self.half.is_empty()
    }

    /// Whether exactly this was told. The cheap question of every snapshot.
    pub(super) fn is_told(&self, text: &TextBuf) -> bool {
        self.heard.is_none() && self.half.is_empty() && self.told.escaped() == text.escaped()
    }

    /// Whether the run has said less than was told, or half a character.
    pub(super) fn is_unsettled(&self) -> bool {
        self.heard.is_some() || !self.half.is_empty()
    }

    /// Says a piece more.
    pub(super) fn push<'a>(&mut self, id: &Id, piece: &'a Text) -> Say<'a> {
        let Some(heard) = self.heard else { return self.give(Cow::Borrowed(piece)) };
        let (before, behind) = self.told.escaped().split_at_checked(heard).unwrap_or_default();
        if let Some(rest) = behind.strip_prefix(piece.escaped()) {
            self.heard = (!rest.is_empty()).then(|| heard + piece.escaped().len());
            return Say::Nothing;
        }
        let mut all = TextBuf::from(&Text::from_escaped(before));
        all.push(piece);
        self.compare(id, &all.to_text())
    }

    /// The text is this now, all of it. It may be told further.
    pub(super) fn set<'a>(&mut self, id: &Id, whole: &Text) -> Say<'a> {
        self.half.clear();
        if self.told.escaped() == whole.escaped() {
            self.heard = None;
            return Say::Nothing;
        }
        self.compare(id, whole)
    }

    /// The run has taken the text back. It may say it again.
    pub(super) fn take_back(&mut self) {
        self.half.clear();
        self.heard = (!self.told.is_empty()).then_some(0);
    }

    /// The text is complete. What was told and has not been said again is a text of its own.
    pub(super) fn rest<'a>(&mut self, id: &Id) -> Say<'a> {
        if !self.half.is_empty() {
            let half = Text::from_escaped(&std::mem::take(&mut self.half));
            self.told.push(&half);
            return Say::More(Cow::Owned(strict::text(&half).into_owned()));
        }
        match self.heard {
            Some(heard) if heard > 0 => {
                let said = self.told.escaped().get(..heard).unwrap_or_default();
                let said = Text::from_escaped(said);
                self.revise(id, &said)
            }
            Some(_) | None => Say::Nothing,
        }
    }

    fn compare<'a>(&mut self, id: &Id, said: &Text) -> Say<'a> {
        if let Some(rest) = self.told.rest_of(said) {
            self.heard = None;
            return self.give(Cow::Owned(rest));
        }
        let mut all = TextBuf::from(said);
        let Some(rest) = all.rest_of(&self.told.to_text()) else { return self.revise(id, said) };
        // In the spelling of the run, so that what it says next is found as bytes.
        self.heard = Some(all.escaped().len());
        all.push(&rest);
        self.told = all;
        Say::Nothing
    }

    fn revise<'a>(&mut self, id: &Id, whole: &Text) -> Say<'a> {
        self.revision += 1;
        self.wire_id = Id::from(format!("{id}:{}", self.revision));
        self.told = TextBuf::default();
        self.heard = None;
        self.half.clear();
        self.give(Cow::Owned(whole.clone()))
    }

    fn give<'a>(&mut self, piece: Cow<'a, Text>) -> Say<'a> {
        let has_escapes = piece.escaped().contains('\\');
        if self.half.is_empty() && !has_escapes {
            self.told.push(&piece);
            return if piece.is_empty() { Say::Nothing } else { Say::More(piece) };
        }
        let mut escaped = std::mem::take(&mut self.half);
        escaped.push_str(piece.escaped());
        let (clean, half) = strict::whole_pairs(&escaped);
        let given = escaped.strip_suffix(half).unwrap_or_default();
        self.told.push(&Text::from_escaped(given));
        half.clone_into(&mut self.half);
        if clean.is_empty() {
            return Say::Nothing;
        }
        Say::More(Cow::Owned(Text::from_escaped(&clean)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Says pieces, and gives the wire as `id=text` in the order of its chunks.
    struct Ear {
        id: Id,
        spoken: Spoken,
        heard: Vec<String>,
    }

    impl Ear {
        fn new() -> Self {
            let id = Id::from("m");
            Self { spoken: Spoken::new(&id), id, heard: Vec::new() }
        }

        fn note(&mut self, said: &Say<'_>) -> &mut Self {
            if let Say::More(text) = said {
                self.heard.push(format!("{}={}", self.spoken.wire_id(), text.escaped()));
            }
            self
        }

        fn push(&mut self, piece: &str) -> &mut Self {
            let piece = Text::from_escaped(piece);
            let said = self.spoken.push(&self.id, &piece);
            self.note(&said)
        }

        fn set(&mut self, whole: &str) -> &mut Self {
            let said = self.spoken.set(&self.id, &Text::from_escaped(whole));
            self.note(&said)
        }

        fn rest(&mut self) -> &mut Self {
            let said = self.spoken.rest(&self.id);
            self.note(&said)
        }
    }

    #[test]
    fn the_rest_of_a_text_is_told_and_what_differs_is_told_whole() {
        let mut ear = Ear::new();
        ear.push("ab").push("c").set("abc").set("abcd").set("abcd").push("e").rest();
        assert_eq!(ear.heard, ["m=ab", "m=c", "m=d", "m=e"]);
        ear.set("xy").push("z").set("no");
        assert_eq!(ear.heard[4..], ["m:2=xy", "m:2=z", "m:3=no"]);
    }

    #[test]
    fn what_is_said_again_is_not_told_again() {
        let mut ear = Ear::new();
        ear.push("ab\\u00e9d");
        ear.spoken.take_back();
        ear.push("a").push("bé").push("d!").rest();
        assert_eq!(ear.heard, ["m=ab\\u00e9d", "m=!"]);
        ear.spoken.take_back();
        ear.push("a").push("c").push("d").rest();
        assert_eq!(ear.heard[2..], ["m:2=ac", "m:2=d"]);
        ear.spoken.take_back();
        ear.push("ac").rest();
        assert_eq!(ear.heard[4..], ["m:3=ac"]);
        ear.spoken.take_back();
        ear.rest();
        assert_eq!(ear.heard.len(), 5);
    }

    #[test]
    fn half_a_pair_waits_for_the_other_half() {
        let mut ear = Ear::new();
        ear.push("a\\ud83d").push("\\ude00b").push("\\ud83d").rest();
        assert_eq!(ear.heard, ["m=a", "m=\\ud83d\\ude00b", "m=\\ufffd"]);
        ear.set("a😀b\\ud83d");
        assert_eq!(ear.heard.len(), 3);
        let mut ear = Ear::new();
        ear.push("\\ud83d").set("😀");
        assert_eq!(ear.heard, ["m=😀"]);
    }
}
