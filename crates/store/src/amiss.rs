//! What is amiss in rows that no job's history tells of: how lists find a job, counts, documents, and rows of jobs that are
//! not there. A store says what it has found; whoever asks puts it into words.

use std::collections::BTreeMap;
use std::fmt;

use aetheris_core::id::JobId;
use aetheris_core::job::JobStatus;
use aetheris_core::limits;
use aetheris_core::plan::WaitType;

/// Something that is amiss.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Amiss {
    /// The store's own numbers of jobs per status are not those of the jobs.
    Counts {
        /// Those of the jobs.
        counted: BTreeMap<JobStatus, u64>,
        /// The store's own; none where they cannot be read.
        told: Option<BTreeMap<JobStatus, u64>>,
    },
    /// A document.
    Document {
        /// What is wrong with it.
        fault: DocumentFault,
        /// What it is.
        kind: DocumentKind,
        /// Its name, or its hash.
        name: String,
    },
    /// The job of this number has an id that cannot be read.
    Id(i64),
    /// How lists find a job.
    Job {
        /// What is wrong with it.
        fault: JobFault,
        /// The job.
        job: JobId,
    },
    /// Jobs have numbers below nought. Whoever goes by arrivals does not see them.
    Numbers {
        /// How many.
        count: u64,
        /// The least of the numbers.
        least: i64,
    },
    /// Rows of a job that is not there.
    Stray {
        /// How many.
        count: u64,
        /// The job.
        of: Absent,
        /// What they are.
        what: Leftover,
    },
}

/// What a document is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DocumentKind {
    /// An agent.
    Agent,
    /// A plan.
    Plan,
}

/// What can be wrong with a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DocumentFault {
    /// It does not have its hash.
    Hash,
    /// Its plan is not there.
    Plan,
}

/// What can be wrong with how lists find a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobFault {
    /// A label of this key does not find it.
    Label(String),
    /// Lists do not find it by what it waits for.
    Wait(Option<WaitType>),
}

/// What can be left of a job that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leftover {
    /// Checkpoints.
    Checkpoints,
    /// Recorded effects.
    Effects,
    /// Events.
    Events,
    /// Late evidence.
    Evidence,
    /// Labels, by which lists find it.
    Labels,
    /// Rows of the ledger.
    Ledger,
    /// Signals.
    Signals,
    /// Timers.
    Timers,
}

/// A job that is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Absent {
    /// Its id, or the bytes in its place.
    Id(Result<JobId, Vec<u8>>),
    /// Its number.
    Number(i64),
}

/// Bytes that should be an id and are none, in hex: the first [`limits::UNREADABLE_ID_BYTES_TOLD`].
#[derive(Debug, Clone, Copy)]
pub struct RawId<'a>(pub &'a [u8]);

impl fmt::Display for RawId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().take(limits::UNREADABLE_ID_BYTES_TOLD).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_id_are_told_in_hex_as_far_as_their_bound() {
        assert_eq!(RawId(&[]).to_string(), "");
        assert_eq!(RawId(&[0xab, 0, 9]).to_string(), "ab0009");
        assert_eq!(RawId(&[0; 99]).to_string(), "00".repeat(limits::UNREADABLE_ID_BYTES_TOLD));
    }
}
