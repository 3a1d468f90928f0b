//! Reads any text as an event id. An id that is accepted prints as the same text.

use threadway::runs::EventId;
use threadway_translate::langgraph::Cursor;

pub(crate) fn check(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        check_text(text);
    }
}

fn check_text(text: &str) {
    if let Ok(id) = text.parse::<EventId>() {
        assert!(!id.run_id().is_empty());
        assert_eq!(id.to_string(), text);
    }
    if let Ok(cursor) = text.parse::<Cursor>() {
        assert_eq!(cursor.to_string(), text);
    }
}
