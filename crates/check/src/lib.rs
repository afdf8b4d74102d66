//! The checker: evaluates invariants from what is stored and from what the tools themselves have
//! logged, and from nothing else. It never writes and never repairs.
//!
//! Every invariant says how many cases it examined: one that examined none has proved nothing, and fails
//! a proof unless the caller says that it does not apply to the run ([`Report::excuse`]).
//!
//! Reading order: [`invariant`] (what is checked), [`facts`] (what is read), [`survey`] (by whom), [`witness`] and [`history`]
//! (what others saw), then one file per group, each of them pure functions over [`facts::Dossier`]. [`stream`] and [`calls`] are also
//! what `verify` asks of one job.

mod acknowledged;
mod amiss;
pub mod calls;
pub mod facts;
pub mod history;
pub mod invariant;
mod jobs;
mod log;
mod outcomes;
mod ownership;
mod placing;
mod replay;
pub mod report;
pub mod stream;
pub mod survey;
#[cfg(test)]
mod tests;
mod timers;
mod tools;
mod waits;
pub mod witness;

use aetheris_core::event::Recorded;
use aetheris_store::{EventRow, Store, StoreError};

pub use facts::Dossier;
pub use history::{AckedSignal, ClientHistory, SignalAck, Submission};
pub use invariant::Invariant;
pub use report::{Line, Report};
pub use survey::{Part, Survey};
pub use witness::{WitnessKind, WitnessLine};

use report::Tally;

/// Checks a whole store, one job at a time.
///
/// # Errors
/// The store cannot be read. What is read and contradicts an invariant is in the report instead.
pub async fn check_store(
    store: &dyn Store,
    witness: &[WitnessLine],
    history: &ClientHistory,
) -> Result<Report, StoreError> {
    let survey = Survey::new(witness, history);
    let part = survey.take_part(store).await?;
    survey.conclude(store, vec![part]).await
}

/// Every invariant of one job, in a store of this generation. `witness` are the lines that name it, and whether their log names
/// permits.
fn check_job(
    facts: &Dossier,
    generation: u32,
    witness: (&[WitnessLine], bool),
    history: &ClientHistory,
    tally: &mut Tally,
) {
    let decoded: Vec<_> = facts.events.iter().map(EventRow::decode).collect();
    log::check(facts, &decoded, history, tally);
    let Ok(events) = decoded.into_iter().collect::<Result<Vec<Recorded>, _>>() else {
        // Already told by the log's own check; nothing else can be said of such a job.
        return;
    };
    log::projected(facts, generation, &events, tally);
    ownership::check(facts, &events, tally);
    jobs::check(facts, &events, history, tally);
    waits::check(facts, &events, history, tally);
    timers::check(facts, &events, tally);
    outcomes::check(facts, &events, tally);
    tools::check(facts, &events, witness, tally);
    replay::check(facts, &events, tally);
}
