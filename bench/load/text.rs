//! The text of a run: each token contains its index and the time at which it was sent, and the last
//! one is a checksum of all. So a reader can tell which tokens are missing, repeated or out of
//! order, and the latency of each.

use std::time::UNIX_EPOCH;

use crate::client::Fault;

/// The text, as the upstream sends it.
#[derive(Default)]
pub(crate) struct Speech {
    tokens: u64,
    sum: Sum,
    text: String,
}

/// The text, as a client receives it in any pieces.
#[derive(Clone, Default)]
pub(crate) struct Hearing {
    tokens: u64,
    bytes: u64,
    sum: Sum,
    /// The beginning of a token whose end has not arrived.
    half: String,
    is_whole: bool,
    latencies: Vec<u64>,
}

/// FNV-1a, 64 bits: enough to distinguish texts that were not made to collide.
#[derive(Clone, Copy)]
struct Sum(u64);

/// Nanoseconds on the clock that all processes of the machine share.
#[expect(clippy::disallowed_methods, reason = "`Instant` has no value to hand to another process")]
pub(crate) fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

// === impl Speech ===

impl Speech {
    /// The next token.
    pub(crate) fn token(&mut self, now: u64) -> String {
        let token = format!("{}@{now} ", self.tokens);
        self.tokens += 1;
        self.say(token)
    }

    /// The last token.
    pub(crate) fn last(&mut self) -> String {
        let token = format!("{}#{} ", self.tokens, self.sum.0);
        self.say(token)
    }

    /// How many tokens were sent, without the last.
    pub(crate) fn tokens(&self) -> u64 {
        self.tokens
    }

    /// The whole text so far.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    fn say(&mut self, token: String) -> String {
        self.sum.add(&token);
        self.text.push_str(&token);
        token
    }
}

// === impl Hearing ===

impl Hearing {
    /// Reads the next piece of the text; returns how many tokens it completes.
    pub(crate) fn hear(&mut self, piece: &str, now: u64) -> Result<u64, Fault> {
        let before = self.tokens;
        for piece in piece.split_inclusive(' ') {
            self.half.push_str(piece);
            if self.half.ends_with(' ') {
                let token = std::mem::take(&mut self.half);
                self.token(&token, now)?;
                self.half = token;
                self.half.clear();
            }
        }
        Ok(self.tokens - before)
    }

    /// Reads the whole text so far, from the snapshot of a reader that had fallen too far back.
    /// Returns how many of its tokens are new. Their latency is unknown.
    pub(crate) fn catch_up(&mut self, text: &str) -> Result<u64, Fault> {
        let mut heard = Self::default();
        heard.hear(text, 0)?;
        let new = heard.tokens.checked_sub(self.tokens).ok_or("a text that was heard is gone")?;
        heard.latencies = self.take_latencies();
        *self = heard;
        Ok(new)
    }

    /// Reads the whole text so far, and drops what was read before.
    pub(crate) fn hear_anew(&mut self, text: &str) -> Result<(), Fault> {
        *self = Self::default();
        self.hear(text, 0)?;
        Ok(())
    }

    /// How many tokens were received, without the last.
    pub(crate) fn tokens(&self) -> u64 {
        self.tokens
    }

    /// The bytes of these tokens.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The latencies since the last call.
    pub(crate) fn take_latencies(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.latencies)
    }

    /// The latency of each token, if all were received and nothing else. If `tokens` is not given,
    /// the last token has their number.
    pub(crate) fn finish(self, tokens: Option<u64>) -> Result<Vec<u64>, Fault> {
        let Self { tokens: heard, bytes: _, sum: _, half, is_whole, latencies } = self;
        let tokens = tokens.unwrap_or(heard);
        if heard == tokens && is_whole && half.is_empty() {
            return Ok(latencies);
        }
        let end = if is_whole { "with" } else { "without" };
        Err(format!("{heard} of {tokens} tokens came, {end} the last, then {half:?}").into())
    }

    fn token(&mut self, token: &str, now: u64) -> Result<(), Fault> {
        let (tokens, sum) = (self.tokens, self.sum);
        self.bytes += token.len() as u64;
        self.sum.add(token);
        let sent = token.split_once('@').and_then(|(place, sent)| {
            let is_next = place.parse() == Ok(tokens) && !self.is_whole;
            sent.trim_end().parse::<u64>().ok().filter(|_| is_next)
        });
        if let Some(sent) = sent {
            self.tokens += 1;
            self.latencies.push(now.saturating_sub(sent));
        } else if !self.is_whole && token == format!("{tokens}#{} ", sum.0) {
            self.is_whole = true;
        } else {
            return Err(format!("{token:?} came where token {tokens} was to come").into());
        }
        Ok(())
    }
}

// === impl Sum ===

impl Sum {
    fn add(&mut self, text: &str) {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

impl Default for Sum {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}
