//! Buffers that serve one event after another, and do not stay as large as the largest.

/// How much room an empty buffer keeps. Tokens take some hundred bytes and most states less than
/// this; a snapshot of 5 MB would else cost each idle viewer 8 MiB until it leaves.
pub const KEPT_BYTES: usize = 64 * 1024;

/// Empties a buffer, and gives its memory back if that is much.
pub fn empty(buffer: &mut Vec<u8>) {
    buffer.clear();
    if buffer.capacity() > KEPT_BYTES {
        *buffer = Vec::new();
    }
}

/// The same for text.
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
