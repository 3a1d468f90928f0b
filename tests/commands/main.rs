//! The commands of the binary, each run as a process, and the demo behind one of them.

#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

#[cfg(unix)]
mod audit;
mod demo;
#[cfg(unix)]
mod first_steps;
mod manual;
#[cfg(unix)]
mod reload;
mod translate;
#[cfg(unix)]
mod watch;
