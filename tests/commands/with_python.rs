//! Tests that run a Python program of the project.

mod registry;
