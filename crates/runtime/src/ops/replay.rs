//! Replay: the fold again from the first event, compared with what is live. Reported, never repaired.

use aetheris_core::hash::Hash;
use aetheris_core::id::JobId;
use aetheris_core::projection::{self, Projection};
use aetheris_core::state::JobState;
use aetheris_store::{JobRow, TimerRow};

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
            let live = Loaded::read(store, job).await?;
            let (live_seq, live_state_hash, row) = (live.state.seq, live.state.hash(), live.row);
            let timers = store.timers(job).await?;
            let full = store.history(job, true).await?.ok_or(OpError::JobNotFound(job))?;
            let full = Loaded::fold(full)?;
            if full.state.seq != live_seq {
                continue;
            }
            let state_hash = full.state.hash();
            let held = self.holds_alone(&row, &full.state).await?;
            let mut differences = differences(&full.state, &row, held, &timers);
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

/// What a job's row and timers say otherwise than its events. A row that `holds_alone` says for itself that the job is
/// paused.
fn differences(state: &JobState, row: &JobRow, holds_alone: bool, timers: &[TimerRow]) -> Vec<String> {
    let derived = Projection::of(state, false);
    let mut found = Vec::new();
    let mut compare = |what: &str, derived: String, stored: String| {
        if derived != stored {
            found.push(format!("the row's {what} is {stored}, its events say {derived}"));
        }
    };
    if !holds_alone {
        compare("status", derived.status.as_str().to_owned(), row.status.as_str().to_owned());
        let held = state.paused.map(|paused| (paused.reason, paused.since));
        let stored = row.paused.map(|(reason, since)| (reason, Some(since)));
        compare("pause", format!("{held:?}"), format!("{stored:?}"));
        let holder = |worker: Option<String>| worker.unwrap_or_else(|| "nobody".to_owned());
        let told = state.owner.as_ref().map(|owner| owner.attempt_id.to_string());
        let stored = row.holder.as_ref().map(|row| row.attempt_id.to_string());
        compare("holder", holder(told), holder(stored));
    }
    compare("sequence", state.seq.to_string(), row.seq.to_string());
    compare("fence", state.fence.to_string(), row.fence.to_string());
    compare("plan", format!("{:?}", derived.plan_hash), format!("{:?}", row.plan_hash));
    compare("wait", format!("{:?}", derived.waiting), format!("{:?}", row.waiting));
    compare("requested end", format!("{:?}", derived.end_requested), format!("{:?}", row.end_requested));
    compare("error", format!("{:?}", derived.error), format!("{:?}", row.error));
    let told: Vec<String> = projection::timers(state).into_iter().map(|(id, due)| format!("{id} at {due}")).collect();
    let mut stored: Vec<(String, String)> =
        timers.iter().map(|row| (row.timer.to_string(), format!("{} at {}", row.timer, row.due))).collect();
    stored.sort();
    let stored: Vec<String> = stored.into_iter().map(|(_, text)| text).collect();
    let mut told_sorted = told;
    told_sorted.sort();
    compare("timers", told_sorted.join(", "), stored.join(", "));
    found
}
