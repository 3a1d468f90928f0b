//! The text of one message as it was sent to a client, so that nothing is sent twice.
//!
//! A run may retract text: a second attempt starts again, or a node rewrites the state. ACP cannot
//! retract text. So repeated text is compared with the sent text, and only what is new is sent.
//! Text that differs is sent whole under another id.

use std::borrow::Cow;
use std::sync::Arc;

use super::strict;
use crate::json::{Text, TextBuf, whole_pairs};
use crate::run::Id;

/// The text of one message, as it was sent.
#[derive(Debug)]
pub(super) struct SentText {
    /// The id of the message in the updates.
    wire_id: Id,
    /// How many times the text was started, under an id of its own each time.
    revision: u32,
    /// The text that was sent under the id, without the half pair.
    sent: TextBuf,
    /// After a retraction: how many bytes of `sent` the run has repeated so far.
    repeated: Option<usize>,
    /// The first half of a surrogate pair, escaped. It is sent with the second half.
    half: String,
}

/// A piece to send under [`SentText::wire_id`], if there is one.
pub(super) type Piece<'a> = Option<Cow<'a, Text>>;

// === impl SentText ===

impl SentText {
    pub(super) fn new(id: &Id) -> Self {
        Self {
            wire_id: Arc::clone(id),
            revision: 1,
            sent: TextBuf::default(),
            repeated: None,
            half: String::new(),
        }
    }

    pub(super) fn wire_id(&self) -> &str {
        &self.wire_id
    }

    /// Whether any of the text was sent.
    pub(super) fn has_begun(&self) -> bool {
        self.revision > 1 || !self.sent.is_empty() || !self.half.is_empty()
    }

    /// Whether exactly this text was sent. A cheap check for each message of a snapshot.
    pub(super) fn is_sent(&self, text: &TextBuf) -> bool {
        self.repeated.is_none() && self.half.is_empty() && self.sent.escaped() == text.escaped()
    }

    /// Whether exactly this text was sent, also if it was retracted since.
    pub(super) fn was_sent(&self, text: &TextBuf) -> bool {
        self.repeated.is_none_or(|repeated| repeated == 0)
            && self.half.is_empty()
            && self.sent.escaped() == text.escaped()
    }

    /// Whether the run has repeated only a part of the sent text, or has sent half a character.
    pub(super) fn is_unsettled(&self) -> bool {
        self.repeated.is_some() || !self.half.is_empty()
    }

    /// Appends a piece.
    pub(super) fn push<'a>(&mut self, id: &Id, piece: &'a Text) -> Piece<'a> {
        let Some(repeated) = self.repeated else { return self.send(Cow::Borrowed(piece)) };
        let (before, after) = self.sent.escaped().split_at_checked(repeated).unwrap_or_default();
        if let Some(rest) = after.strip_prefix(piece.escaped()) {
            self.repeated = (!rest.is_empty()).then(|| repeated + piece.escaped().len());
            return None;
        }
        let mut all = TextBuf::from(&Text::from_escaped(before));
        all.push(piece);
        self.compare(id, &all.to_text())
    }

    /// Sets the whole text. More may follow.
    pub(super) fn set<'a>(&mut self, id: &Id, whole: &Text) -> Piece<'a> {
        self.half.clear();
        if self.sent.escaped() == whole.escaped() {
            self.repeated = None;
            return None;
        }
        self.compare(id, whole)
    }

    /// The run retracts the text. It may repeat it.
    pub(super) fn retract(&mut self) {
        self.half.clear();
        self.repeated = (!self.sent.is_empty()).then_some(0);
    }

    /// Ends the text. If the run has repeated only a part of the sent text, that part is sent as a
    /// text of its own.
    pub(super) fn end<'a>(&mut self, id: &Id) -> Piece<'a> {
        if !self.half.is_empty() {
            let half = Text::from_escaped(&std::mem::take(&mut self.half));
            self.sent.push(&half);
            return Some(Cow::Owned(strict::text(&half).into_owned()));
        }
        match self.repeated {
            Some(repeated) if repeated > 0 => {
                let said = self.sent.escaped().get(..repeated).unwrap_or_default();
                let said = Text::from_escaped(said);
                self.restart(id, &said)
            }
            Some(_) | None => None,
        }
    }

    /// Sends what a whole text has after the sent text. Restarts the text if it differs.
    fn compare<'a>(&mut self, id: &Id, whole: &Text) -> Piece<'a> {
        if let Some(rest) = self.sent.rest_of(whole) {
            self.repeated = None;
            return self.send(Cow::Owned(rest));
        }
        let mut all = TextBuf::from(whole);
        let Some(rest) = all.rest_of(&self.sent.to_text()) else { return self.restart(id, whole) };
        // Keeps the run's spelling, so that its next pieces can be compared as bytes.
        self.repeated = Some(all.escaped().len());
        all.push(&rest);
        self.sent = all;
        None
    }

    /// Sends a whole text under a new id.
    fn restart<'a>(&mut self, id: &Id, whole: &Text) -> Piece<'a> {
        self.revision += 1;
        self.wire_id = Id::from(format!("{id}:{}", self.revision));
        self.sent = TextBuf::default();
        self.repeated = None;
        self.half.clear();
        self.send(Cow::Owned(whole.clone()))
    }

    fn send<'a>(&mut self, piece: Cow<'a, Text>) -> Piece<'a> {
        let has_escapes = piece.escaped().contains('\\');
        if self.half.is_empty() && !has_escapes {
            self.sent.push(&piece);
            return if piece.is_empty() { None } else { Some(piece) };
        }
        let mut escaped = std::mem::take(&mut self.half);
        escaped.push_str(piece.escaped());
        let (clean, half) = whole_pairs(&escaped);
        let sent = escaped.strip_suffix(half).unwrap_or_default();
        self.sent.push(&Text::from_escaped(sent));
        half.clone_into(&mut self.half);
        if clean.is_empty() {
            return None;
        }
        Some(Cow::Owned(Text::from_escaped(&clean)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends pieces, and records the chunks as `id=text`.
    struct Recorder {
        id: Id,
        text: SentText,
        chunks: Vec<String>,
    }

    impl Recorder {
        fn new() -> Self {
            let id = Id::from("m");
            Self { text: SentText::new(&id), id, chunks: Vec::new() }
        }

        fn note(&mut self, piece: &Piece<'_>) -> &mut Self {
            if let Some(text) = piece {
                self.chunks.push(format!("{}={}", self.text.wire_id(), text.escaped()));
            }
            self
        }

        fn push(&mut self, piece: &str) -> &mut Self {
            let piece = Text::from_escaped(piece);
            let said = self.text.push(&self.id, &piece);
            self.note(&said)
        }

        fn set(&mut self, whole: &str) -> &mut Self {
            let said = self.text.set(&self.id, &Text::from_escaped(whole));
            self.note(&said)
        }

        fn end(&mut self) -> &mut Self {
            let said = self.text.end(&self.id);
            self.note(&said)
        }
    }

    #[test]
    fn the_rest_of_a_text_is_sent_and_a_different_text_is_sent_whole() {
        let mut recorder = Recorder::new();
        recorder.push("ab").push("c").set("abc").set("abcd").set("abcd").push("e").end();
        assert_eq!(recorder.chunks, ["m=ab", "m=c", "m=d", "m=e"]);
        recorder.set("xy").push("z").set("no");
        assert_eq!(recorder.chunks[4..], ["m:2=xy", "m:2=z", "m:3=no"]);
    }

    #[test]
    fn repeated_text_is_not_sent_again() {
        let mut recorder = Recorder::new();
        recorder.push("ab\\u00e9d");
        recorder.text.retract();
        recorder.push("a").push("bé").push("d!").end();
        assert_eq!(recorder.chunks, ["m=ab\\u00e9d", "m=!"]);
        recorder.text.retract();
        recorder.push("a").push("c").push("d").end();
        assert_eq!(recorder.chunks[2..], ["m:2=ac", "m:2=d"]);
        recorder.text.retract();
        recorder.push("ac").end();
        assert_eq!(recorder.chunks[4..], ["m:3=ac"]);
        recorder.text.retract();
        recorder.end();
        assert_eq!(recorder.chunks.len(), 5);
    }

    #[test]
    fn half_a_pair_waits_for_the_other_half() {
        let mut recorder = Recorder::new();
        recorder.push("a\\ud83d").push("\\ude00b").push("\\ud83d").end();
        assert_eq!(recorder.chunks, ["m=a", "m=\\ud83d\\ude00b", "m=\\ufffd"]);
        recorder.set("a😀b\\ud83d");
        assert_eq!(recorder.chunks.len(), 3);
        let mut recorder = Recorder::new();
        recorder.push("\\ud83d").set("😀");
        assert_eq!(recorder.chunks, ["m=😀"]);
    }
}
