//! Any bytes as a line of an ACP client.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use threadway_fuzz::mutate;

fuzz_target!(|data: &[u8]| threadway_fuzz::rpc(data));

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutate::line(data, size, max_size, seed)
});
