//! The log's limit, its eviction and its searches.

use super::*;
use crate::runs::event_id::Stage;
use serde_json::value::RawValue;
use threadway_translate::json::Json;
use threadway_translate::run::RunEvent;

fn event(text: &str) -> RunEvent {
    RunEvent::StateSnapshot(Json::from(&*RawValue::from_string(text.to_owned()).unwrap()))
}

fn events(texts: &[&str]) -> Events {
    texts.iter().map(|text| event(text)).collect::<Vec<_>>().into()
}

fn segment(texts: &[&str]) -> Arc<Segment> {
    Segment::new(events(texts).into()).into()
}

fn memory_bytes(texts: &[&str]) -> usize {
    events(texts).memory_bytes()
}

/// The events at a position; `None` at the end of the log.
fn at(log: &RunLog, position: u64) -> Option<Events> {
    match log.at(position) {
        Lookup::Segment(segment) => Some((*segment.events).clone()),
        Lookup::End => None,
        Lookup::Evicted => panic!("position {position} was evicted"),
    }
}

#[test]
fn each_reader_finds_what_it_has_not_read_yet() {
    let mut log = RunLog::new(10_000);
    assert_eq!(at(&log, 0), None);
    drop(log.push(segment(&["1", "2"])));
    drop(log.push(segment(&["3"])));
    assert_eq!(at(&log, 0), Some(events(&["1", "2"])));
    assert_eq!(at(&log, 1), Some(events(&["3"])));
    assert_eq!(at(&log, 2), None);
    assert_eq!(log.end(), 2);
}

#[test]
fn the_oldest_events_make_room_for_the_newest() {
    let mut log = RunLog::new(2 * memory_bytes(&["0"]));
    for text in ["1", "2", "3"] {
        drop(log.push(segment(&[text])));
    }
    assert!(matches!(log.at(0), Lookup::Evicted) && !log.retains_from(0));
    assert_eq!((at(&log, 1), log.end()), (Some(events(&["2"])), 3));
    assert_eq!(log.bytes, 2 * memory_bytes(&["0"]));
    assert_eq!(log.written(), 3 * memory_bytes(&["0"]) as u64);
    log.raise_limit(3 * memory_bytes(&["0"]));
    drop(log.push(segment(&["4"])));
    assert!(log.retains_from(1), "the limit was raised");
}

#[test]
fn a_segment_beyond_the_limit_is_kept_till_the_next() {
    let mut log = RunLog::new(0);
    drop(log.push(segment(&["1"])));
    assert_eq!(at(&log, 0), Some(events(&["1"])));
    drop(log.push(segment(&["2"])));
    assert!(matches!(log.at(0), Lookup::Evicted));
    assert_eq!(log.bytes, memory_bytes(&["2"]));
}

#[test]
fn an_event_is_found_by_its_key_while_it_is_kept() {
    let key = |n| EventKey::at(1, Stage::Close, n);
    let mut log = RunLog::new(2 * memory_bytes(&["1", "2"]));
    for batch in 0..3 {
        let mut events = Events::default();
        events.push(event("1"), Some(key(2 * batch)));
        events.push(event("2"), Some(key(2 * batch + 1)));
        drop(log.push(Segment::new(events.into()).into()));
    }
    let kept = log.retained();
    assert_eq!(kept.find(key(1), 0), None);
    assert_eq!(kept.find(key(2), 1), Some((1, 0)));
    assert_eq!(kept.find(key(5), 0), Some((2, 1)));
    assert_eq!((kept.find(key(2), 2), kept.find(key(5), 9)), (None, None));
    assert_eq!(kept.find(EventKey { check: 1, ..key(5) }, 0), None);
    assert_eq!(kept.last(), Some((2, 1)));
}
