//! Crash matrix, race of two workers, bug zoo and `prove`, against real processes.
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

mod golden;
mod life;
mod matrix;
mod prove;
mod race;
mod zoo;

use std::path::PathBuf;

/// The program under test, with its crash points.
fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_aetheris-faulted"))
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(work)
}
