//! The suite itself, and what needs no backend to be proved by it: the reference model and the store of faults.

mod clauses;
mod faulty;
mod memory;
