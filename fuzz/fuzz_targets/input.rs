//! Any bytes as a client's request.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use threadway_fuzz::mutate;

fuzz_target!(|data: &[u8]| threadway_fuzz::input(data));

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutate::documents(data, size, max_size, seed)
});
