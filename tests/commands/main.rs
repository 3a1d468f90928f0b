//! The commands of the binary, each run as a process, and the demo behind one of them.

#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod demo;
#[cfg(unix)]
mod first_steps;
mod manual;
#[cfg(unix)]
mod reload;
mod translate;
#[cfg(unix)]
mod watch;
