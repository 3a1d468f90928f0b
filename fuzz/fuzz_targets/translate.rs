//! Any bytes as a run's stream, projected for each kind of client.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use threadway_fuzz::mutate;

fuzz_target!(|data: &[u8]| threadway_fuzz::translate(data));

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutate::stream(data, size, max_size, seed)
});
