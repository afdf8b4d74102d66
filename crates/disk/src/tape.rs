//! What was done to the files of a folder, in order.

use std::collections::BTreeMap;
use std::ops::Range;

/// One thing that was done. Names of files are numbered as they first came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// A file that was not there was made.
    Create(usize),
    /// A file was removed; for certain once the folder is synced.
    Delete {
        /// The file.
        file: usize,
        /// Whether the folder was synced at once.
        synced: bool,
    },
    /// Something that the test has put here: what is acknowledged before it has to survive what comes after it.
    Mark(u64),
    /// A file has another name, in the place of whatever had it; for certain once the folder is synced.
    Rename {
        /// The name before.
        from: usize,
        /// The name now.
        to: usize,
    },
    /// What was written to a file before is on the disk. The first sync of a log or journal syncs its folder too.
    Sync {
        /// The file.
        file: usize,
        /// Whether the folder was synced with it.
        folder: bool,
    },
    /// A sync of a file failed: what was written before is there for every process, and the system does not write it again.
    SyncFailed(usize),
    /// The names of all files are on the disk.
    SyncFolder,
    /// A file has this length now.
    Truncate {
        /// The file.
        file: usize,
        /// In bytes.
        length: u64,
    },
    /// Bytes were written.
    Write {
        /// The file.
        file: usize,
        /// From here on.
        at: u64,
        /// These.
        bytes: Vec<u8>,
    },
}

/// What was done to the files of a folder.
#[derive(Debug, Clone, Default)]
pub struct Tape {
    /// The names of the files, as they are numbered.
    pub(crate) names: Vec<String>,
    pub(crate) ops: Vec<Op>,
}

impl Tape {
    /// How many things were done: a cut can come before each and after the last.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Whether nothing was done.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// What was done, in order.
    #[must_use]
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// The number of a file, if anything was done to it.
    #[must_use]
    pub fn file(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| known == name)
    }

    /// The marks before a moment.
    #[must_use]
    pub fn marks(&self, before: usize) -> Vec<u64> {
        let marks = self.ops.iter().take(before).filter_map(|op| match op {
            Op::Mark(mark) => Some(*mark),
            Op::Create(_)
            | Op::Delete { .. }
            | Op::Rename { .. }
            | Op::Sync { .. }
            | Op::SyncFailed(_)
            | Op::SyncFolder
            | Op::Truncate { .. }
            | Op::Write { .. } => None,
        });
        marks.collect()
    }

    /// How often each file was synced within these moments, by name.
    #[must_use]
    pub fn syncs(&self, within: Range<usize>) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for op in self.ops.get(within).unwrap_or_default() {
            if let Op::Sync { file, .. } = op
                && let Some(name) = self.names.get(*file)
            {
                *counts.entry(name.as_str()).or_default() += 1;
            }
        }
        counts
    }

    /// The number of a file.
    pub(crate) fn number(&mut self, name: &str) -> usize {
        self.names.iter().position(|known| known == name).unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        })
    }
}
