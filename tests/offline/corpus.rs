//! Replays every input of the fuzz corpus through the check of its target.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use crate::support::fuzz;

/// Runs each input of a target. The name of an input that breaks a rule is printed, because the
/// panic's message has only its content.
fn replay(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut files: Vec<_> = fs::read_dir(&folder).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} holds nothing", folder.display());
    let breaks = |file: &&Path| {
        let input = fs::read(file).unwrap();
        catch_unwind(AssertUnwindSafe(|| check(&input))).is_err()
    };
    let broken: Vec<_> = files.iter().map(AsRef::as_ref).filter(breaks).collect();
    assert!(broken.is_empty(), "{target}: {broken:#?}");
}

#[test]
fn streams_of_events_are_read_as_the_standard_says() {
    replay("sse", fuzz::sse::check);
}

#[test]
fn runs_are_legal_whatever_they_say() {
    replay("translate", fuzz::translate::check);
}

#[test]
fn requests_are_refused_without_a_quote_and_send_nothing_up_that_they_may_not() {
    replay("input", fuzz::input::check);
}

#[test]
fn event_ids_are_printed_as_they_were_read() {
    replay("event_id", fuzz::event_id::check);
}

#[test]
fn config_files_are_read_without_telling_a_secret() {
    replay("config", fuzz::config::check);
}

#[test]
fn lines_of_editors_are_refused_without_a_quote() {
    replay("rpc", fuzz::rpc::check);
}
