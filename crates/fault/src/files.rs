//! What is done to a store's files without SQLite, told in its order, so that a test can cut the power in between, or let it
//! fail.

use std::io;
use std::path::Path;

/// One thing that was done, after it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done<'a> {
    /// A file that was not there was made.
    Made(&'a Path),
    /// A file was removed.
    Removed(&'a Path),
    /// A file has another name, in the place of whatever had it.
    Renamed {
        /// The name before.
        from: &'a Path,
        /// The name now.
        to: &'a Path,
    },
    /// A file has this length.
    Resized(&'a Path, u64),
    /// What was written to a file is on the disk.
    Synced(&'a Path),
    /// The names in a folder are on the disk.
    SyncedFolder(&'a Path),
    /// Bytes were written from here on.
    Wrote(&'a Path, u64, &'a [u8]),
}

/// One thing that is about to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked<'a> {
    /// What was written to a file is to be on the disk.
    Sync(&'a Path),
    /// Bytes are to be written.
    Write(&'a Path),
}

/// Asks whoever watches whether it fails.
///
/// # Errors
/// As a test has ordered; none without the feature `faults`.
#[cfg(not(feature = "faults"))]
#[inline]
pub fn ask(_: Asked<'_>) -> io::Result<()> {
    Ok(())
}

/// Tells whoever watches. Without the feature `faults` nobody does.
#[cfg(not(feature = "faults"))]
#[inline]
pub fn tell(_: Done<'_>) {}

#[cfg(feature = "faults")]
pub use watched::{Watcher, ask, tell, watch};

#[cfg(feature = "faults")]
mod watched {
    use std::sync::OnceLock;

    use super::{Asked, Done, io};

    /// Who watches.
    #[derive(Debug, Clone, Copy)]
    pub struct Watcher {
        /// Whether what is about to be done fails.
        pub asked: fn(Asked<'_>) -> io::Result<()>,
        /// What was done.
        pub told: fn(Done<'_>),
    }

    static WATCHER: OnceLock<Watcher> = OnceLock::new();

    /// Has this asked before and told of everything from now on, in every folder of the process. Only the first one is.
    pub fn watch(watcher: Watcher) {
        WATCHER.get_or_init(|| watcher);
    }

    /// Asks whoever watches whether it fails.
    ///
    /// # Errors
    /// As it says.
    pub fn ask(asked: Asked<'_>) -> io::Result<()> {
        WATCHER.get().map_or(Ok(()), |watcher| (watcher.asked)(asked))
    }

    /// Tells whoever watches.
    pub fn tell(done: Done<'_>) {
        if let Some(watcher) = WATCHER.get() {
            (watcher.told)(done);
        }
    }
}
