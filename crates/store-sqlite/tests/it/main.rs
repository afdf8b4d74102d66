//! The SQLite store against the shared contract, and what only a file can get wrong.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

mod batches;
mod beside;
mod differential;
mod file;
mod folder;
mod full;
mod large;
mod migrate;
mod poison;
mod power;
mod reading;
mod refused;
mod sharing;

mod conformance {
    aetheris_store_conformance::conformance_suite!(crate::folder::Folders);
    aetheris_store_conformance::durable_suite!(crate::folder::Folders);
}
