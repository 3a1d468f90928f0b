//! Reads any text as an event id. An id that is accepted prints as the same text, in the form of
//! its version. An id that is built of legal parts is accepted.

use threadway::runs::EventId;
use threadway_translate::langgraph::Cursor;

pub(crate) fn check(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        check_text(text);
    }
    check_made(data);
}

fn check_text(text: &str) {
    if let Ok(id) = text.parse::<EventId>() {
        assert!(!id.run_id().is_empty());
        let written = id.to_string();
        assert_eq!(written.parse(), Ok(id.clone()), "{text:?}");
        // An id of the previous version is read, and printed in the current form.
        if text.starts_with("1.") {
            assert!(text.starts_with(&format!("1.{}.", id.run_id())), "{id:?}");
            assert_eq!(id.is_terminal(), text.rsplit('.').nth(2) == Some("end"), "{id:?}");
        } else {
            assert_eq!(written, text);
        }
    }
    if let Ok(cursor) = text.parse::<Cursor>() {
        assert_eq!(cursor.to_string(), text);
    }
}

/// Checks an id that is built of legal parts.
fn check_made(data: &[u8]) {
    let Some((numbers, run_id)) = data.split_at_checked(32) else { return };
    let Ok(run_id) = std::str::from_utf8(run_id) else { return };
    let number = |at: usize| {
        let bytes = numbers.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u32::from_le_bytes)
    };
    let (kind, check) = (number(0), number(4) % 0x1_0000);
    let (attempt, n, partly) = (number(8), number(12), number(16));
    let (time, count) = ((u64::from(number(20)) << 20) | u64::from(number(24)), number(28));
    let place = match kind % 5 {
        0 => "start".to_owned(),
        1 => "close".to_owned(),
        2 => "end".to_owned(),
        3 => time.to_string(),
        _ => format!("{time}-{count}"),
    };
    let partly = if partly == 0 { String::new() } else { format!("-{partly}") };
    let text = format!("1.{run_id}.{attempt}.{place}.{n}{partly}.{check:04x}");
    match text.parse::<EventId>() {
        Ok(id) => {
            check_text(&id.to_string());
            assert_eq!(id.run_id(), run_id);
            assert_eq!(id.is_terminal(), place == "end");
        }
        Err(error) => assert!(run_id.is_empty(), "{text:?}: {error}"),
    }
    check_text(&text);
}
