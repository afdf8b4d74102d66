//! The suite itself, and what needs no backend to be proved by it: the reference model and the store of faults.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

mod clauses;
mod faulty;
mod memory;
