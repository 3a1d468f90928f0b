//! Removes secrets from recorded bytes.

use memchr::memmem;

/// The shortest secret that is removed. Shorter ones could be ordinary words.
pub(super) const MIN_SECRET: usize = 16;

/// The text in place of a secret.
const REDACTED: &[u8] = b"[redacted by threadway]";

/// Replaces each occurrence of each secret.
pub(super) fn redact(secrets: &[Vec<u8>], bytes: Vec<u8>) -> Vec<u8> {
    secrets.iter().fold(bytes, |bytes, secret| {
        let mut found = memmem::find_iter(&bytes, secret).peekable();
        if found.peek().is_none() {
            drop(found);
            return bytes;
        }
        let (mut out, mut from) = (Vec::with_capacity(bytes.len()), 0);
        for at in found {
            out.extend_from_slice(bytes.get(from..at).unwrap_or_default());
            out.extend_from_slice(REDACTED);
            from = at + secret.len();
        }
        out.extend_from_slice(bytes.get(from..).unwrap_or_default());
        out
    })
}
