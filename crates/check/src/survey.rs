//! A check of a whole store by as many hands as there are: each takes the next jobs in the order of their arrival,
//! reads all that the store has about them, and counts for itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use aetheris_core::id::{IdempotencyKey, JobId};
use aetheris_core::limits;
use aetheris_store::{ErrorKind, Store, StoreError, rules};

use crate::history::ClientHistory;
use crate::invariant::Invariant;
use crate::report::{Report, Tally};
use crate::witness::WitnessLine;
use crate::{acknowledged, check_job, outcomes, tools};

/// How many doubts one list is asked for.
const DOUBTS_MAX: usize = 1_000_000;

/// What is known beside the store, and how far the check has come.
#[derive(Debug)]
pub struct Survey {
    by_job: BTreeMap<JobId, Vec<WitnessLine>>,
    done: AtomicU64,
    history: ClientHistory,
    /// The first arrival that nobody has taken.
    next: AtomicU64,
    /// The first that is not there.
    of: AtomicU64,
    witness: Vec<WitnessLine>,
}

/// What one hand has found.
#[derive(Debug, Default)]
pub struct Part {
    doubts: BTreeSet<IdempotencyKey>,
    events: u64,
    jobs: u64,
    seen: BTreeSet<JobId>,
    tally: Tally,
}

impl Survey {
    /// With what tools have logged and clients were told; both may be empty.
    #[must_use]
    pub fn new(witness: &[WitnessLine], history: &ClientHistory) -> Self {
        let mut by_job: BTreeMap<JobId, Vec<WitnessLine>> = BTreeMap::new();
        for line in witness {
            by_job.entry(line.job).or_default().push(line.clone());
        }
        Self {
            by_job,
            done: AtomicU64::new(0),
            history: history.clone(),
            next: AtomicU64::new(0),
            of: AtomicU64::new(u64::MAX),
            witness: witness.to_vec(),
        }
    }

    /// How many arrivals are looked at, of how many; unknown before the first look.
    #[must_use]
    pub fn progress(&self) -> (u64, Option<u64>) {
        let of = self.of.load(Ordering::Relaxed);
        (self.done.load(Ordering::Relaxed), (of != u64::MAX).then_some(of))
    }

    /// Takes jobs until there are none left. Several may do it at once.
    ///
    /// # Errors
    /// The store cannot be read. What is read and contradicts an invariant is counted instead.
    pub async fn take_part(&self, store: &dyn Store) -> Result<Part, StoreError> {
        let mut part = Part::default();
        let generation = store.status().await?.generation;
        let step = u64::try_from(limits::DOSSIERS_MAX).unwrap_or(u64::MAX);
        loop {
            let mut from = self.next.fetch_add(step, Ordering::Relaxed);
            let to = from.saturating_add(step);
            while from < to {
                let found = store.dossiers(from, to).await?;
                self.of.store(found.end, Ordering::Relaxed);
                for what in found.amiss {
                    part.tally.case(Invariant::B7, false, || what);
                }
                for job in &found.jobs {
                    self.examine(job, generation, &mut part);
                }
                from = found.next;
                if found.end <= to && from >= found.end {
                    return Ok(part);
                }
            }
            self.done.fetch_add(step, Ordering::Relaxed);
        }
    }

    fn examine(&self, job: &Result<crate::JobFacts, aetheris_store::Unreadable>, generation: u32, part: &mut Part) {
        part.jobs += 1;
        let facts = match job {
            Ok(facts) => facts,
            Err(unreadable) => {
                // Whatever is wrong with one job must not hide it, nor all others.
                part.tally.case(Invariant::B4, false, || format!("{}: {}", unreadable.job, unreadable.error));
                part.seen.insert(unreadable.job);
                return;
            }
        };
        part.events += u64::try_from(facts.events.len()).unwrap_or(0);
        let lines = self.by_job.get(&facts.row.id).map_or(&[][..], Vec::as_slice);
        check_job(facts, generation, lines, &self.history, &mut part.tally);
        // Only who knows more than the store asks later which jobs there were.
        if !self.witness.is_empty() || !self.history.is_empty() {
            part.seen.insert(facts.row.id);
        }
        part.doubts.extend(facts.ledger.iter().filter(|row| rules::in_doubt(row)).map(|row| row.key));
    }

    /// Puts together what all have found.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn conclude(&self, store: &dyn Store, parts: Vec<Part>) -> Result<Report, StoreError> {
        let mut all = Part::default();
        for part in parts {
            all.doubts.extend(part.doubts);
            all.seen.extend(part.seen);
            all.tally.add(part.tally);
            (all.events, all.jobs) = (all.events + part.events, all.jobs + part.jobs);
        }
        acknowledged::exist(&all.seen, &self.history, &mut all.tally);
        tools::known_jobs(&all.seen, &self.witness, &mut all.tally);
        let listed = store.in_doubt(DOUBTS_MAX).await?.into_iter().map(|row| row.key).collect();
        if self.history.quiet {
            outcomes::listed(&all.doubts, &listed, &mut all.tally);
        }
        Ok(all.tally.into_report(all.jobs, all.events))
    }
}

/// Whether an error says that what the store holds is damaged, and not only that it cannot be asked now.
#[must_use]
pub fn is_damage(error: &StoreError) -> bool {
    error.kind == ErrorKind::Corrupt
}
