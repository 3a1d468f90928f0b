//! Any bytes as a config file.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| threadway_fuzz::config(data));
