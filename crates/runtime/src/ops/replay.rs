//! Replay: the fold again from the first event, compared with what is live. Reported, never repaired.

use aetheris_core::hash::Hash;
use aetheris_core::id::JobId;
use aetheris_core::state::JobState;
use aetheris_store::differences;

use crate::Runtime;
use crate::error::OpError;
use crate::load::Loaded;

/// The result of a replay.
#[derive(Debug, Clone)]
pub struct Replay {
    /// What differs, in words; empty where all is equal.
    pub differences: Vec<String>,
    /// How many events were folded.
    pub events: u64,
    /// Hash of the state that the job goes on from: its newest checkpoint and what follows.
    pub live_state_hash: Hash,
    /// The state as folded from the first event.
    pub state: JobState,
    /// Its hash.
    pub state_hash: Hash,
}

impl Runtime {
    /// Folds a job from its first event and compares the result with the live state, the row and the
    /// timers. Two reads, no outside call, no write.
    ///
    /// # Errors
    /// [`OpError`]: no such job, or its history cannot be read or folded.
    pub async fn replay(&self, job: JobId) -> Result<Replay, OpError> {
        let store = self.store.as_ref();
        for _ in 0..aetheris_core::limits::CONFLICT_RETRIES_MAX {
            // One after the other: a job may be large, and is in memory once.
            let (live_seq, live_state_hash, row) = {
                let live = Loaded::read(store, job).await?;
                (live.state.seq, live.state.hash(), live.row)
            };
            let timers = store.timers(job).await?;
            let full = store.history(job, true).await?.ok_or(OpError::JobNotFound(job))?;
            let full = Loaded::fold(full)?;
            if full.state.seq != live_seq {
                continue;
            }
            let state_hash = full.state.hash();
            let held = self.holds_alone(&row, &full.state).await?;
            let differs = differences(&full.state, &row, held, &timers);
            let mut differences: Vec<String> = differs.iter().map(|differs| format!("the row's {differs}")).collect();
            if state_hash != live_state_hash {
                differences.push(
                    "the state from the newest checkpoint differs from the one folded from the first event".to_owned(),
                );
            }
            return Ok(Replay { differences, events: full.state.seq, live_state_hash, state: full.state, state_hash });
        }
        Err(OpError::StateConflict(format!("job {job} keeps changing; try again")))
    }
}
