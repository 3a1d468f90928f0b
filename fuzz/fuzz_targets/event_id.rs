//! Any bytes as an event id.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| threadway_fuzz::event_id(data));
