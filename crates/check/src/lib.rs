//! The checker: evaluates invariants from what is stored and from what the tools themselves have
//! logged, and from nothing else. It never writes and never repairs.
//!
//! Every invariant says how many cases it examined: one that examined none has proved nothing, and fails
//! a proof unless the caller says that it does not apply to the run ([`Report::excuse`]).
//!
//! Reading order: [`invariant`] (what is checked), [`facts`] (what is read), [`witness`] and [`history`]
//! (what others saw), then one file per group, each of them pure functions over [`facts::JobFacts`].

mod acknowledged;
pub mod facts;
pub mod history;
pub mod invariant;
mod jobs;
mod log;
mod outcomes;
mod ownership;
mod replay;
pub mod report;
#[cfg(test)]
mod tests;
mod timers;
mod tools;
mod waits;
pub mod witness;

use std::collections::{BTreeMap, BTreeSet};

use aetheris_core::id::{IdempotencyKey, JobId};
use aetheris_store::{ErrorKind, JobFilter, Store, StoreError};

pub use facts::JobFacts;
pub use history::{AckedSignal, ClientHistory, SignalAck, Submission};
pub use invariant::Invariant;
pub use report::{Line, Report};
pub use witness::{WitnessKind, WitnessLine};

use report::Tally;

/// How many doubts one list is asked for.
const DOUBTS_MAX: usize = 1_000_000;

/// Checks a whole store, one job at a time.
///
/// # Errors
/// The store cannot be read. What is read and contradicts an invariant is in the report instead.
pub async fn check_store(
    store: &dyn Store,
    witness: &[WitnessLine],
    history: &ClientHistory,
) -> Result<Report, StoreError> {
    let mut by_job: BTreeMap<JobId, Vec<&WitnessLine>> = BTreeMap::new();
    for line in witness {
        by_job.entry(line.job).or_default().push(line);
    }
    let mut tally = Tally::default();
    let mut seen = BTreeSet::new();
    let mut doubts = BTreeSet::new();
    let mut before = None;
    loop {
        let limit = aetheris_core::limits::PAGE_JOBS_MAX;
        let page = store.jobs(JobFilter { before, limit, ..JobFilter::default() }).await?;
        for row in &page.jobs {
            let facts = match facts::read(store, row.id).await {
                Ok(Some(facts)) => facts,
                Ok(None) => continue,
                Err(error) if error.kind == ErrorKind::Corrupt => {
                    // Whatever is wrong with one job must not hide it, nor all others.
                    tally.case(Invariant::B4, false, || format!("{}: {error}", row.id));
                    seen.insert(row.id);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let lines = by_job.get(&row.id).map_or(&[][..], Vec::as_slice);
            check_job(&facts, lines, history, &mut tally);
            seen.insert(row.id);
            doubts.extend(facts.ledger.iter().filter(|row| aetheris_store::rules::in_doubt(row)).map(|row| row.key));
        }
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    acknowledged::exist(&seen, history, &mut tally);
    tools::known_jobs(&seen, witness, &mut tally);
    let listed: BTreeSet<IdempotencyKey> = store.in_doubt(DOUBTS_MAX).await?.into_iter().map(|row| row.key).collect();
    if history.quiet {
        outcomes::listed(&doubts, &listed, &mut tally);
    }
    Ok(tally.into_report())
}

/// Every invariant of one job. `witness` are the lines that name it.
fn check_job(facts: &JobFacts, witness: &[&WitnessLine], history: &ClientHistory, tally: &mut Tally) {
    log::check(facts, history, tally);
    let Ok(events) = facts.decoded() else {
        // Already told by the log's own check; nothing else can be said of such a job.
        return;
    };
    ownership::check(facts, &events, tally);
    jobs::check(facts, &events, history, tally);
    waits::check(facts, &events, history, tally);
    timers::check(facts, &events, tally);
    outcomes::check(facts, &events, tally);
    tools::check(facts, &events, witness, tally);
    replay::check(facts, &events, tally);
}
