//! What is read of one job.

use aetheris_core::event::{DecodeError, Recorded};
use aetheris_core::id::JobId;
use aetheris_core::ledger::LedgerRow;
use aetheris_core::limits;
use aetheris_store::{Checkpoint, EffectRow, EventRow, Evidence, JobRow, KeptSignal, Store, StoreError, TimerRow};

/// Everything that a store has about one job.
#[derive(Debug, Clone, PartialEq)]
pub struct JobFacts {
    /// The newest checkpoint.
    pub checkpoint: Option<Checkpoint>,
    /// Recorded effects.
    pub effects: Vec<EffectRow>,
    /// Its events, with their bytes as stored.
    pub events: Vec<EventRow>,
    /// Late evidence.
    pub evidence: Vec<Evidence>,
    /// Signals that wait for their wait.
    pub kept: Vec<KeptSignal>,
    /// Its ledger rows.
    pub ledger: Vec<LedgerRow>,
    /// Its row.
    pub row: JobRow,
    /// Its timers.
    pub timers: Vec<TimerRow>,
}

impl JobFacts {
    /// Its events, understood.
    ///
    /// # Errors
    /// The first one that is not.
    pub fn decoded(&self) -> Result<Vec<Recorded>, DecodeError> {
        self.events.iter().map(EventRow::decode).collect()
    }
}

/// Reads a job, again as long as it is written meanwhile.
///
/// # Errors
/// The store cannot be read.
pub async fn read(store: &dyn Store, job: JobId) -> Result<Option<JobFacts>, StoreError> {
    let mut tries = 0;
    loop {
        let Some(history) = store.history(job, false).await? else { return Ok(None) };
        let events = all_events(store, job).await?;
        let timers = store.timers(job).await?;
        let evidence = store.evidence(job).await?;
        let again = store.job(job).await?;
        tries += 1;
        if again.is_some_and(|row| row == history.row) || tries >= limits::CONFLICT_RETRIES_MAX {
            let (checkpoint, effects, kept) = (history.checkpoint, history.effects, history.kept);
            let (ledger, row) = (history.ledger, history.row);
            return Ok(Some(JobFacts { checkpoint, effects, events, evidence, kept, ledger, row, timers }));
        }
    }
}

async fn all_events(store: &dyn Store, job: JobId) -> Result<Vec<EventRow>, StoreError> {
    let mut events: Vec<EventRow> = Vec::new();
    loop {
        let after = events.last().map_or(0, |event| event.seq);
        let page = store.events(job, after, limits::PAGE_EVENTS_MAX).await?;
        if page.is_empty() {
            return Ok(events);
        }
        events.extend(page);
    }
}
