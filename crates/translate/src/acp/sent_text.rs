//! The text of one message as it was sent to a client, so that nothing is sent twice.
//!
//! A run may retract text: a second attempt starts again, or a node rewrites the state. ACP cannot
//! retract text. So repeated text is compared with the sent text, and only what is new is sent.
//! Text that differs is sent whole under another id. White space at the ends is no difference: nodes
//! trim what has streamed, and a person sees no change.

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
    /// The white space, escaped, that the client holds at the end of the text, if `sent` has other.
    held_end: Option<String>,
    /// After a retraction: how many bytes of `sent` the run has repeated so far.
    repeated: Option<usize>,
    /// The first half of a surrogate pair, escaped. It is sent with the second half.
    half: String,
}

/// White space, as it is escaped.
const SPACES: [&str; 4] = [" ", "\\n", "\\t", "\\r"];

/// A piece to send under [`SentText::wire_id`], if there is one.
pub(super) type Piece<'a> = Option<Cow<'a, Text>>;

// === impl SentText ===

impl SentText {
    pub(super) fn new(id: &Id) -> Self {
        Self {
            wire_id: Arc::clone(id),
            revision: 1,
            sent: TextBuf::default(),
            held_end: None,
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

    /// Whether this text was sent but for white space at its ends, also if it was retracted since.
    pub(super) fn was_sent(&self, text: &TextBuf) -> bool {
        let (sent, text) = (self.sent.escaped(), text.escaped());
        let words = trimmed(text);
        self.repeated.is_none_or(|repeated| repeated == 0)
            && self.half.is_empty()
            && (sent == text || (!words.is_empty() && trimmed(sent) == words))
    }

    /// Whether the run has repeated only a part of the sent text, or has sent half a character.
    pub(super) fn is_unsettled(&self) -> bool {
        self.repeated.is_some() || !self.half.is_empty()
    }

    /// Appends a piece.
    pub(super) fn push<'a>(&mut self, id: &Id, piece: &'a Text) -> Piece<'a> {
        let Some(repeated) = self.repeated else { return self.append(id, Cow::Borrowed(piece)) };
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
                let (said, rest) =
                    self.sent.escaped().split_at_checked(repeated).unwrap_or_default();
                let said = Text::from_escaped(said);
                if trimmed(rest).is_empty() {
                    self.repeated = None;
                    self.replace_space(TextBuf::from(&said));
                    return None;
                }
                self.restart(id, &said)
            }
            Some(_) | None => None,
        }
    }

    /// Sends what a whole text has after the sent text. Restarts the text if it differs.
    fn compare<'a>(&mut self, id: &Id, whole: &Text) -> Piece<'a> {
        if let Some(rest) = self.sent.rest_of(whole) {
            self.repeated = None;
            return self.append(id, Cow::Owned(rest));
        }
        let mut all = TextBuf::from(whole);
        let rest = match all.rest_of(&self.sent.to_text()) {
            Some(rest) => rest,
            None => match Apart::of(&self.sent.decode(), &whole.decode()) {
                Apart::InWords => return self.restart(id, whole),
                Apart::InSpace => {
                    self.repeated = None;
                    self.replace_space(all);
                    return None;
                }
                Apart::WholeGoesOn { before, after } => {
                    self.repeated = None;
                    self.sent = TextBuf::from(&before);
                    return self.append(id, Cow::Owned(after));
                }
                Apart::SentGoesOn(rest) => rest,
            },
        };
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
        self.held_end = None;
        self.repeated = None;
        self.half.clear();
        self.send(Cow::Owned(whole.clone()))
    }

    /// The text is this one, which differs from the sent text in white space at its ends.
    fn replace_space(&mut self, text: TextBuf) {
        let sent = std::mem::replace(&mut self.sent, text);
        let held_end = self.held_end.take();
        let held_end = held_end.unwrap_or_else(|| space_at_end(sent.escaped()).to_owned());
        self.held_end = (held_end != space_at_end(self.sent.escaped())).then_some(held_end);
    }

    /// Sends what follows the sent text. If the client holds other white space at its end, the text
    /// is sent whole under a new id, as soon as more than white space follows.
    fn append<'a>(&mut self, id: &Id, piece: Cow<'a, Text>) -> Piece<'a> {
        let Some(held_end) = &self.held_end else { return self.send(piece) };
        let mut whole = self.sent.clone();
        whole.push(&piece);
        let words = self.sent.escaped().len() - space_at_end(self.sent.escaped()).len();
        let after = whole.escaped().get(words..).unwrap_or_default();
        if let Some(rest) = after.strip_prefix(held_end.as_str()) {
            let rest = Text::from_escaped(rest);
            let held = whole.escaped().strip_suffix(rest.escaped()).unwrap_or_default();
            self.sent = TextBuf::from(&Text::from_escaped(held));
            self.held_end = None;
            return self.send(Cow::Owned(rest));
        }
        if trimmed(after).is_empty() {
            self.sent = whole;
            return None;
        }
        self.restart(id, &whole.to_text())
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

/// How a text differs from the sent text, of which it is no prefix and no continuation.
enum Apart {
    /// In white space at the ends.
    InSpace,
    /// In white space at the beginning, and the text has more.
    WholeGoesOn {
        before: Text,
        after: Text,
    },
    /// In white space at the beginning, and the sent text has this more.
    SentGoesOn(Text),
    InWords,
}

impl Apart {
    fn of(sent: &str, whole: &str) -> Self {
        let (shown, said) = (sent.trim_start(), whole.trim_start());
        if shown.trim_end() == said.trim_end() {
            Self::InSpace
        } else if let Some(after) = said.strip_prefix(shown) {
            let before = whole.strip_suffix(after).unwrap_or_default();
            Self::WholeGoesOn { before: Text::new(before), after: Text::new(after) }
        } else if let Some(after) = shown.strip_prefix(said).filter(|_| !said.is_empty()) {
            Self::SentGoesOn(Text::new(after))
        } else {
            Self::InWords
        }
    }
}

/// An escaped text without the white space at its ends.
fn trimmed(mut escaped: &str) -> &str {
    while let Some(rest) = SPACES.iter().find_map(|space| escaped.strip_prefix(space)) {
        escaped = rest;
    }
    escaped.strip_suffix(space_at_end(escaped)).unwrap_or_default()
}

/// The white space at the end of an escaped text.
fn space_at_end(escaped: &str) -> &str {
    // A backslash that is escaped itself is no part of an escape.
    let is_whole = |rest: &str| {
        let backslashes = rest.len() - rest.trim_end_matches('\\').len();
        backslashes.is_multiple_of(2)
    };
    let mut words = escaped;
    while let Some(rest) =
        SPACES.iter().find_map(|space| words.strip_suffix(*space).filter(|rest| is_whole(rest)))
    {
        words = rest;
    }
    escaped.strip_prefix(words).unwrap_or_default()
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

    #[test]
    fn white_space_at_the_ends_is_no_other_text() {
        for (sent, committed) in [
            ("Hello \\n", "Hello"),
            ("Hello", "Hello\\n"),
            ("\\n\\nHello", "Hello"),
            ("Hello", "\\nHello"),
            (" Hello \\t", "\\nHello\\r\\n"),
            ("Hello \\\\n ", "Hello \\\\n"),
        ] {
            let mut recorder = Recorder::new();
            recorder.push(sent).set(committed).end().set(committed).end();
            let added = committed.strip_prefix(sent).filter(|added| !added.is_empty());
            let expected =
                [Some(sent), added].into_iter().flatten().map(|text| format!("m={text}"));
            assert_eq!(recorder.chunks, expected.collect::<Vec<_>>(), "{sent} {committed}");
            assert!(recorder.text.was_sent(&TextBuf::from(&Text::from_escaped(sent))));
            // A second attempt says it in pieces.
            let mut recorder = Recorder::new();
            recorder.push(sent);
            recorder.text.retract();
            for piece in committed.split_inclusive('l') {
                recorder.push(piece);
            }
            recorder.end();
            let said: String =
                recorder.chunks.iter().map(|chunk| chunk.trim_start_matches("m=")).collect();
            assert_eq!(trimmed(&said), trimmed(sent), "{committed}");
        }
        // More text continues what the client holds, or is sent with all that is before it.
        for (pieces, expected) in [
            (["c ", "c", "a"], &["m=c ", "m:2=ca"][..]),
            (["c ", "c", " a"], &["m=c ", "m=a"]),
            (["c ", "c", "\\n"], &["m=c "]),
            (["c \\n", "c", " "], &["m=c \\n"]),
        ] {
            let [sent, committed, more] = pieces;
            for is_pieces in [false, true] {
                let mut recorder = Recorder::new();
                recorder.push(sent).end();
                if is_pieces {
                    recorder.text.retract();
                    recorder.push(committed).end();
                } else {
                    recorder.set(committed);
                }
                recorder.push(more).end();
                assert_eq!(recorder.chunks, expected, "{pieces:?} {is_pieces}");
            }
        }
        let mut recorder = Recorder::new();
        recorder.push("\\nHello").set("Hello world").end().set("Hello\\nworld").end();
        assert_eq!(recorder.chunks, ["m=\\nHello", "m= world", "m:2=Hello\\nworld"]);
        assert!(!recorder.text.was_sent(&TextBuf::from(&Text::new("Hello"))));
    }
}
