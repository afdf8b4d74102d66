//! Evidence: everything here tries to break the runtime and lets the checker decide.
//!
//! [`witness`] is a tool service that keeps its own log. [`drive`] starts real processes, kills or stops
//! them at named points and drives their jobs to the end. [`zoo`] plants known bugs, one at a time, and
//! shows that each is caught. [`chaos`] lets everything go wrong at once, drawn from a seed.

pub mod chaos;
pub mod drive;
pub mod scratch;
pub mod witness;
pub mod zoo;
