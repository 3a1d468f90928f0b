//! Empties buffers for the next event, and frees the memory of large ones.
//!
//! A decoder or an encoder uses one buffer for all its events. Call [`empty`] or [`empty_text`]
//! between two events. Without it the buffer would stay as large as the largest event.

/// The capacity that an emptied buffer keeps, in bytes. Tokens take some hundred bytes, and most
/// states fit too. Without this limit a snapshot of 5 MB would cost each idle viewer 8 MiB until it
/// leaves.
pub const KEPT_BYTES: usize = 64 * 1024;

/// Empties a buffer. If its capacity exceeds [`KEPT_BYTES`], frees it.
pub fn empty(buffer: &mut Vec<u8>) {
    buffer.clear();
    if buffer.capacity() > KEPT_BYTES {
        *buffer = Vec::new();
    }
}

/// Empties a text. If its capacity exceeds [`KEPT_BYTES`], frees it.
pub fn empty_text(text: &mut String) {
    text.clear();
    if text.capacity() > KEPT_BYTES {
        *text = String::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_large_buffer_gives_its_memory_back() {
        let (mut small, mut large) = (vec![0; 1000], vec![0; KEPT_BYTES + 1]);
        empty(&mut small);
        empty(&mut large);
        assert_eq!((small.len(), large.len()), (0, 0));
        assert_eq!((small.capacity() >= 1000, large.capacity()), (true, 0));
        let mut text = "x".repeat(KEPT_BYTES + 1);
        empty_text(&mut text);
        assert_eq!((text.len(), text.capacity()), (0, 0));
    }
}
