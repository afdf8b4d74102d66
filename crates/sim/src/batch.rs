//! Many runs: seeds side by side, cases added up, failures kept.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use aetheris_check::Invariant;
use aetheris_fault::marks::{self, Mark};
use aetheris_plain::evidence::QUERIES;

use crate::processes::Mishaps;
use crate::seed::{self, Backend, Outcome};
use crate::tally::{IDS, IDS_OF_A_FILE};

/// Which seeds are run.
#[derive(Debug, Clone, Copy)]
pub struct Batch {
    /// What keeps the facts.
    pub backend: Backend,
    /// The first seed.
    pub from: u64,
    /// How many.
    pub seeds: u64,
    /// Whether the first failure ends the batch.
    pub stop_at_failure: bool,
    /// On how many threads.
    pub threads: usize,
}

/// What a batch has shown.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Bodies that acted.
    pub bodies: u64,
    /// Cases by invariant.
    pub cases: BTreeMap<&'static str, u64>,
    /// Those of the checker.
    pub checked: BTreeMap<&'static str, u64>,
    /// How many each query of the second checker has looked at.
    pub plain: BTreeMap<&'static str, u64>,
    /// Runs that failed, the first few, by seed.
    pub failures: Vec<Outcome>,
    /// How many failed.
    pub failed: u64,
    /// Jobs.
    pub jobs: u64,
    /// What befell processes.
    pub mishaps: Mishaps,
    /// Seeds run.
    pub seeds: u64,
    /// Virtual time in all.
    pub time: Duration,
}

/// How many failures are kept with their stories.
const FAILURES_KEPT_MAX: usize = 10;

impl Summary {
    fn take(&mut self, outcome: Outcome) {
        self.seeds += 1;
        self.bodies += outcome.bodies;
        self.jobs += outcome.jobs;
        self.mishaps.deaths += outcome.mishaps.deaths;
        self.mishaps.drains += outcome.mishaps.drains;
        self.mishaps.jumps += outcome.mishaps.jumps;
        self.mishaps.stops += outcome.mishaps.stops;
        self.time += outcome.time;
        for (id, cases) in &outcome.tally.cases {
            *self.cases.entry(id).or_default() += cases;
        }
        for (id, cases) in &outcome.tally.checked {
            *self.checked.entry(id).or_default() += cases;
        }
        for (id, cases) in &outcome.tally.plain {
            *self.plain.entry(id).or_default() += cases;
        }
        if !outcome.tally.violations.is_empty() {
            self.failed += 1;
            self.failures.push(outcome);
            self.failures.sort_by_key(|outcome| outcome.seed);
            self.failures.truncate(FAILURES_KEPT_MAX);
        }
    }

    /// What is asked of a store with a file and had no case.
    #[must_use]
    pub fn unexamined_in_the_file(&self, backend: Backend) -> Vec<&'static str> {
        match backend {
            Backend::Memory => Vec::new(),
            Backend::Sqlite => {
                let own = IDS_OF_A_FILE.into_iter().filter(|id| none(&self.cases, id));
                own.chain(QUERIES.iter().map(|(id, _)| id.id()).filter(|id| none(&self.plain, id))).collect()
            }
        }
    }

    /// Invariants of which the batch had no case.
    #[must_use]
    pub fn unexamined(&self) -> Vec<&'static str> {
        let own = IDS.into_iter().filter(|id| none(&self.cases, id));
        let checkers = Invariant::ALL.iter().map(|invariant| invariant.id());
        own.chain(checkers.filter(|id| none(&self.checked, id))).collect()
    }

    /// Marks that this process has never reached.
    #[must_use]
    pub fn unreached() -> Vec<Mark> {
        marks::reached().into_iter().filter(|(_, times)| *times == 0).map(|(mark, _)| mark).collect()
    }
}

fn none(cases: &BTreeMap<&'static str, u64>, id: &str) -> bool {
    cases.get(id).is_none_or(|cases| *cases == 0)
}

/// Runs a batch. `progress` is told how many seeds are done, now and then.
///
/// # Errors
/// A runtime cannot be made.
pub fn run(batch: Batch, progress: impl Fn(u64, u64) + Sync) -> std::io::Result<Summary> {
    seed::watch_panics();
    let (next, stopped) = (AtomicU64::new(0), AtomicBool::new(false));
    let summary = Mutex::new(Summary::default());
    let work = || -> std::io::Result<()> {
        while !stopped.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= batch.seeds {
                break;
            }
            let outcome = seed::run(batch.from + number, batch.backend)?;
            let mut summary = summary.lock().unwrap_or_else(PoisonError::into_inner);
            summary.take(outcome);
            if summary.failed > 0 && batch.stop_at_failure {
                stopped.store(true, Ordering::Relaxed);
            }
            progress(summary.seeds, summary.failed);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..batch.threads.max(1)).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err(std::io::Error::other("a thread of the batch panicked")))
        })
    })?;
    Ok(summary.into_inner().unwrap_or_else(PoisonError::into_inner))
}
