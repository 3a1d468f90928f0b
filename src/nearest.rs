//! The known name that a misspelt one probably stands for.

/// The longest name that is compared. All names that the gateway itself gives are shorter.
const MAX_NAME_BYTES: usize = 100;

/// The known name that is most similar, if any is similar enough.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = Some(name).filter(|name| name.len() <= MAX_NAME_BYTES)?;
    let distances = known.into_iter().filter_map(|known| {
        // A missing part counts like a small typing error.
        let is_part = name.len() > 2 && (known.contains(name) || name.contains(known));
        let distance = distance(name, known);
        let distance = if is_part { distance.min(2) } else { distance };
        (distance <= known.len() / 3 + 1).then_some((distance, known))
    });
    distances.min().map(|(_, known)| known)
}

/// The Levenshtein distance of two texts, in bytes.
fn distance(one: &str, other: &str) -> usize {
    // The distance of each prefix of `other` from what was read of `one`.
    let mut distances: Vec<usize> = (0..=other.len()).collect();
    for (read, byte) in one.bytes().enumerate() {
        let mut next = vec![read + 1];
        let mut left = read + 1;
        for (pair, other_byte) in distances.windows(2).zip(other.bytes()) {
            let [diagonal, above] = pair else { continue };
            let replaced = diagonal + usize::from(byte != other_byte);
            left = replaced.min(left + 1).min(above + 1);
            next.push(left);
        }
        distances = next;
    }
    distances.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typing_error_finds_its_name_and_another_word_finds_none() {
        let known = ["agent", "support", "a"];
        for (name, expected) in [
            ("agnt", Some("agent")),
            ("supprt-bot", None),
            ("support-bot", Some("support")),
            ("weather", None),
        ] {
            assert_eq!(nearest(name, known), expected, "{name}");
        }
        assert_eq!(nearest(&"a".repeat(MAX_NAME_BYTES + 1), known), None);
    }
}
