//! What is done to a store's files without SQLite, told in its order, so that a test can cut the power in between.

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

/// Tells whoever watches. Without the feature `faults` nobody does.
#[cfg(not(feature = "faults"))]
#[inline]
pub fn tell(_: Done<'_>) {}

#[cfg(feature = "faults")]
pub use watched::{tell, watch};

#[cfg(feature = "faults")]
mod watched {
    use std::sync::OnceLock;

    use super::Done;

    static WATCHER: OnceLock<fn(Done<'_>)> = OnceLock::new();

    /// Has this told of everything from now on, in every folder of the process. Only the first one is.
    pub fn watch(watcher: fn(Done<'_>)) {
        WATCHER.get_or_init(|| watcher);
    }

    /// Tells whoever watches.
    pub fn tell(done: Done<'_>) {
        if let Some(watcher) = WATCHER.get() {
            watcher(done);
        }
    }
}
