//! The id format of version 1: `1.<run id>.<attempt>.<stage>.<n>.<check>`, with `-<wire_events>` after `n`.

use super::{EventId, EventKey, OLDER_VERSION, Stage};

pub(super) fn read(text: &str) -> Option<EventId> {
    let mut fields = text.rsplitn(5, '.');
    let (check, n, stage) = (fields.next()?, fields.next()?, fields.next()?);
    let (attempt, run_id) = (fields.next()?, fields.next()?);
    let run_id = run_id.strip_prefix(OLDER_VERSION)?.strip_prefix('.')?;
    let (n, wire_events) = n.split_once('-').unwrap_or((n, "0"));
    let stage = match stage {
        "start" => Stage::Start,
        "close" => Stage::Close,
        "end" => Stage::End,
        cursor => Stage::Part(cursor.parse().ok()?),
    };
    let (attempt, n) = (attempt.parse().ok()?, n.parse().ok()?);
    let check = u16::from_str_radix(check, 16).ok()?;
    (!run_id.is_empty()).then_some(EventId {
        run_id: run_id.to_owned(),
        key: EventKey { attempt, stage, n, check },
        wire_events: wire_events.parse().ok()?,
    })
}

pub(super) fn write(id: &EventId) -> String {
    let EventId { run_id, key: EventKey { attempt, stage, n, check }, wire_events } = id;
    let stage = match stage {
        Stage::Start => "start".to_owned(),
        Stage::Part(cursor) => cursor.to_string(),
        Stage::Close => "close".to_owned(),
        Stage::End => "end".to_owned(),
    };
    let wire_events = if *wire_events > 0 { format!("-{wire_events}") } else { String::new() };
    format!("{OLDER_VERSION}.{run_id}.{attempt}.{stage}.{n}{wire_events}.{check:04x}")
}
