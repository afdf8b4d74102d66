//! What the writer has done since the store was opened.

use std::sync::atomic::{AtomicU64, Ordering};

use aetheris_store::WriterStats;

use crate::tx::Changes;

/// Counters that the writer raises and everybody reads.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    bytes: AtomicU64,
    commits: AtomicU64,
    rows: AtomicU64,
    units: AtomicU64,
}

impl Stats {
    /// Counts a transaction. One that has written nothing has not been one to the disk.
    pub(crate) fn count(&self, changes: &Changes) {
        if changes.rows == 0 {
            return;
        }
        self.bytes.fetch_add(changes.bytes, Ordering::Relaxed);
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.rows.fetch_add(changes.rows, Ordering::Relaxed);
        self.units.fetch_add(changes.units, Ordering::Relaxed);
    }

    /// The counts.
    pub(crate) fn read(&self) -> WriterStats {
        WriterStats {
            bytes: self.bytes.load(Ordering::Relaxed),
            commits: self.commits.load(Ordering::Relaxed),
            rows: self.rows.load(Ordering::Relaxed),
            units: self.units.load(Ordering::Relaxed),
        }
    }
}
