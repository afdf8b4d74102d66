//! A disk whose power can be cut, for tests of what SQLite keeps on it.
//!
//! A VFS of its own stands between SQLite and the real files: it becomes the default of the process, so that the store
//! under test is opened as in production. In a folder that is [watched](Watched) it writes down everything that is
//! done to the files ([`Tape`]), and fails what it was told to fail. What the store does to its folder without SQLite is
//! told by the store itself ([`aetheris_fault::files`]) and stands on the same tape. From the tape [`Tape::cut`] makes the folder that a power
//! cut at any of its moments could have left: what was synced is there, and of what was not, each sector at random.
//!
//! It is not shipped. What it does not show: a disk that says it has synced and has not, and bytes that change by
//! themselves.

mod cut;
mod tape;
mod vfs;
mod watch;

pub use tape::{Op, Tape};
pub use watch::{Counts, Fault, Kind, Watched};
