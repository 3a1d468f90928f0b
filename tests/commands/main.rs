//! The commands of the binary, each run as a process, and the server of `threadway demo`.

#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

#[cfg(unix)]
mod audit;
#[cfg(unix)]
mod configuration;
mod demo;
#[cfg(unix)]
mod first_steps;
#[cfg(unix)]
mod init;
#[cfg(unix)]
mod lines;
mod manual;
#[cfg(target_os = "linux")]
mod memory;
#[cfg(unix)]
mod reload;
mod translate;
#[cfg(unix)]
mod watch;
#[cfg(unix)]
mod with_python;
