//! Evidence: everything here tries to break the runtime and lets the checker decide.
//!
//! [`witness`] is a tool service that keeps its own log. [`drive`] starts real processes, kills or stops
//! them at named points and drives their jobs to the end. [`zoo`] plants known bugs, one at a time, and
//! shows that each is caught. [`chaos`] lets everything go wrong at once, drawn from a seed. [`soak`] lets nothing go
//! wrong, for a long time. [`golden`] leaves what later builds have to go on with.

pub mod chaos;
pub mod drive;
pub mod golden;
mod http;
pub mod soak;
mod sse;
pub mod witness;
pub mod zoo;

use std::process::ExitCode;

use aetheris_cli::exit::Exit;

/// How the programs of this crate end: as the program under test does where a check has found something wrong.
#[must_use]
pub fn verdict(clean: bool) -> ExitCode {
    if clean { Exit::Done } else { Exit::CheckFailed }.into()
}
