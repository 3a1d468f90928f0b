//! Which profile of `Cargo.toml` a benchmark measures.

use std::env;
use std::path::Path;

/// Prints the profile that cargo has built this benchmark and its gateway with.
pub(crate) fn print() {
    let this = env::current_exe().unwrap_or_default();
    // target/PROFILE/deps/NAME
    let folder = this.ancestors().nth(2).and_then(Path::file_name);
    let profile = folder.and_then(|name| name.to_str()).unwrap_or("unknown");
    println!("profile: {profile}");
}
