//! The SQLite store against the shared contract, and what only a file can get wrong.

mod batches;
mod file;
mod folder;
mod full;
mod sharing;

mod conformance {
    aetheris_store::conformance_suite!(crate::folder::Folders);
    aetheris_store::durable_suite!(crate::folder::Folders);
}
