//! What is amiss in rows that no job's history tells of: how claims and lists find a job, counts, documents, and rows of
//! jobs that are not there. A store says what it has found; whoever asks puts it into words.

use std::collections::BTreeMap;

use aetheris_core::id::JobId;
use aetheris_core::job::JobStatus;
use aetheris_core::limits;
use aetheris_core::plan::WaitType;
use aetheris_core::time::{Span, Timestamp};

/// The clock can have been so far ahead of what is kept of it.
const CLOCK_SLACK: Span = Span::from_secs(1);

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
        /// Its name, or its hash.
        name: String,
        /// What it is: an agent or a plan.
        what: String,
    },
    /// The job of this number has an id that cannot be read.
    Id(i64),
    /// How a job is found.
    Job {
        /// What is wrong with it.
        fault: JobFault,
        /// The job.
        job: JobId,
    },
    /// Rows of a job that is not there.
    Stray {
        /// How many.
        count: u64,
        /// The job.
        of: Absent,
        /// Where they stand.
        table: String,
    },
}

/// What can be wrong with a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DocumentFault {
    /// It does not have its hash.
    Hash,
    /// Its plan is not there.
    Plan,
}

/// What can be wrong with how a job is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobFault {
    /// A label of this key does not find it.
    Label(String),
    /// Claims do not find it at its time, or before.
    Place(Misplaced),
    /// Lists do not find it by what it waits for.
    Wait(Option<WaitType>),
}

/// A job that is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Absent {
    /// Its id, or the bytes in its place.
    Id(Result<JobId, Vec<u8>>),
    /// Its number.
    Number(i64),
}

/// How claims find a job, and what its row says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placing {
    /// Another job of its session comes first.
    pub behind: bool,
    /// From when on claims find it.
    pub delayed_until: Option<Timestamp>,
    /// Its time.
    pub not_before: Option<Timestamp>,
    /// Whether its status is pending.
    pub pending: bool,
    /// Whether claims find it now.
    pub ready: bool,
}

/// Why a job is not claimed at its time, or before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Misplaced {
    /// Claims find it now, and another job of its session comes first.
    Behind,
    /// Claims find it now, and from a moment on.
    Both,
    /// Claims find it before its time: from this moment on, or now.
    Early {
        /// Its time.
        at: Timestamp,
        /// From when on claims find it.
        from: Option<Timestamp>,
    },
    /// No claim finds it before this moment, which is not its time.
    Late(Timestamp),
    /// No claim finds it.
    Never,
    /// Claims find it, and it is not pending.
    NotPending,
}

impl Placing {
    /// What keeps the job from being claimed at its time and not before, if anything does. It is not asked by way of the
    /// rules that have put the job there: a check is to find what is wrong with them too.
    #[must_use]
    pub fn misplaced(&self, now: Timestamp) -> Option<Misplaced> {
        let latest = now.after(CLOCK_SLACK);
        match (self.pending, self.ready, self.delayed_until) {
            (false, false, None) => None,
            (false, ..) => Some(Misplaced::NotPending),
            (true, true, Some(_)) => Some(Misplaced::Both),
            (true, true, None) if self.behind => Some(Misplaced::Behind),
            (true, true, None) => {
                self.not_before.filter(|at| *at > latest).map(|at| Misplaced::Early { at, from: None })
            }
            (true, false, None) => (!self.behind).then_some(Misplaced::Never),
            (true, false, Some(from)) => {
                if let Some(at) = self.not_before.filter(|at| *at > from) {
                    return Some(Misplaced::Early { at, from: Some(from) });
                }
                // One whose row could not be read is looked at again later than its time.
                let last = self.not_before.unwrap_or(from.min(latest)).max(latest.after(limits::SWEEP_BACKOFF_MAX));
                (from > last).then_some(Misplaced::Late(from))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_000_000_000);

    fn job(pending: bool, ready: bool, delayed_until: Option<Timestamp>) -> Placing {
        Placing { behind: false, delayed_until, not_before: None, pending, ready }
    }

    fn at(seconds: u64) -> Timestamp {
        NOW.after(Span::from_secs(seconds))
    }

    #[test]
    fn a_job_that_claims_find_at_its_time_is_in_its_place() {
        let past = Timestamp::from_micros(5);
        for found in [
            job(false, false, None),
            job(true, true, None),
            Placing { not_before: Some(past), ..job(true, true, None) },
            Placing { behind: true, ..job(true, false, None) },
            Placing { not_before: Some(at(9_000)), ..job(true, false, Some(at(9_000))) },
            Placing { behind: true, not_before: Some(at(9_000)), ..job(true, false, Some(at(9_000))) },
            // Its row could not be read a moment ago.
            Placing { not_before: Some(past), ..job(true, false, Some(at(60))) },
            job(true, false, Some(at(60))),
            // Its time has come, and nobody has asked.
            Placing { not_before: Some(past), ..job(true, false, Some(past)) },
        ] {
            assert_eq!(found.misplaced(NOW), None, "{found:?}");
        }
    }

    #[test]
    fn a_job_that_claims_miss_or_find_too_early_is_told() {
        for (found, misplaced) in [
            (job(false, true, None), Misplaced::NotPending),
            (job(false, false, Some(at(1))), Misplaced::NotPending),
            (job(true, true, Some(at(1))), Misplaced::Both),
            (job(true, false, None), Misplaced::Never),
            (Placing { behind: true, ..job(true, true, None) }, Misplaced::Behind),
            (Placing { not_before: Some(at(9)), ..job(true, true, None) }, Misplaced::Early { at: at(9), from: None }),
            (
                Placing { not_before: Some(at(9)), ..job(true, false, Some(at(8))) },
                Misplaced::Early { at: at(9), from: Some(at(8)) },
            ),
            (Placing { not_before: Some(at(9)), ..job(true, false, Some(at(9_000))) }, Misplaced::Late(at(9_000))),
            (job(true, false, Some(at(9_000))), Misplaced::Late(at(9_000))),
        ] {
            assert_eq!(found.misplaced(NOW), Some(misplaced), "{found:?}");
        }
    }
}
