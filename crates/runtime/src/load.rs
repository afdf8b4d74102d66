//! From stored rows to a job's state.

use std::collections::BTreeMap;

use aetheris_core::event::{Recorded, WaitEnd};
use aetheris_core::id::{IdempotencyKey, JobId};
use aetheris_core::json::Json;
use aetheris_core::ledger::LedgerRow;
use aetheris_core::limits;
use aetheris_core::state::{JobState, Output};
use aetheris_store::{EffectRow, History, JobRow, KeptSignal, Store};

use crate::error::OpError;
use crate::memory;
use crate::room::Room;

/// A job as it was read in one consistent look.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The place of the newest checkpoint; 0 without one.
    pub checkpoint_seq: u64,
    /// Its recorded effects: the newest permit's of each key.
    pub effects: BTreeMap<IdempotencyKey, EffectRow>,
    /// Signals for waits that it has not reached.
    pub kept: Vec<KeptSignal>,
    /// Its ledger rows.
    pub ledger: BTreeMap<IdempotencyKey, LedgerRow>,
    /// Its row.
    pub row: JobRow,
    /// Its folded state.
    pub state: JobState,
}

impl Loaded {
    /// Folds a history.
    ///
    /// # Errors
    /// [`OpError::Corrupt`] where the events cannot be folded.
    pub fn fold(history: History) -> Result<Self, OpError> {
        let corrupt = |why: String| OpError::Corrupt(why);
        let (mut state, checkpoint_seq) = match &history.checkpoint {
            Some(checkpoint) => {
                aetheris_fault::sometimes!(CheckpointRead);
                let state = serde_json::from_slice(&checkpoint.state)
                    .map_err(|e| corrupt(format!("its checkpoint cannot be read: {e}")))?;
                (state, checkpoint.seq)
            }
            None => (JobState::new(history.row.id), 0),
        };
        fold_onto(&mut state, &history.events)?;
        let mut effects: BTreeMap<IdempotencyKey, EffectRow> = BTreeMap::new();
        for effect in history.effects {
            if effects.get(&effect.key).is_none_or(|seen| seen.permit < effect.permit) {
                effects.insert(effect.key, effect);
            }
        }
        let ledger = history.ledger.into_iter().map(|row| (row.key, row)).collect();
        Ok(Self { checkpoint_seq, effects, kept: history.kept, ledger, row: history.row, state })
    }

    /// About how much memory its values take, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        let steps = self.state.steps.values();
        let outputs = steps.clone().filter_map(|step| step.output.as_ref()).filter_map(inline);
        let payloads = steps.filter_map(|step| step.wait_end.as_ref()).filter_map(payload);
        let effects = self.effects.values().map(|effect| &effect.result);
        memory::given(&self.state, &self.kept) + memory::of(outputs.chain(payloads).chain(effects))
    }

    /// Reads and folds a job.
    ///
    /// # Errors
    /// It does not exist, cannot be read or cannot be folded.
    pub async fn read(store: &dyn Store, job: JobId) -> Result<Self, OpError> {
        let history = store.history(job, false).await?.ok_or(OpError::JobNotFound(job))?;
        if is_large(&history) { Self::fold_aside(history).await } else { Self::fold(history) }
    }

    /// The same, with as many large jobs parsed at once as the room has places. Whoever waits for one holds nothing.
    ///
    /// # Errors
    /// As [`Loaded::read`]; or there was no place for a while.
    pub(crate) async fn read_among(store: &dyn Store, job: JobId, folds: &Room) -> Result<Self, OpError> {
        let mut history = store.history(job, false).await?.ok_or(OpError::JobNotFound(job))?;
        if !is_large(&history) {
            return Self::fold(history);
        }
        let mut place = folds.try_one();
        if place.is_none() {
            drop(history);
            place = folds.take(1, limits::ANSWER_PATIENCE).await;
            if place.is_none() {
                return Err(OpError::Crowded);
            }
            history = store.history(job, false).await?.ok_or(OpError::JobNotFound(job))?;
        }
        Self::fold_aside(history).await
    }

    /// Parsing a large state takes long, and this thread may serve everybody.
    async fn fold_aside(history: History) -> Result<Self, OpError> {
        let folded = tokio::task::spawn_blocking(|| Self::fold(history)).await;
        folded.map_err(|e| OpError::Corrupt(format!("its checkpoint cannot be read: {e}")))?
    }
}

fn is_large(history: &History) -> bool {
    history.checkpoint.as_ref().is_some_and(|newest| newest.state.len() > limits::LOOK_BYTES_MAX)
}

fn inline(output: &Output) -> Option<&Json> {
    match output {
        Output::Inline(value) => Some(value),
        // It stands among the effects.
        Output::Effect(_) => None,
    }
}

fn payload(end: &WaitEnd) -> Option<&Json> {
    match end {
        WaitEnd::Signal { payload, .. } => Some(payload),
        WaitEnd::Time => None,
    }
}

fn fold_onto(state: &mut JobState, events: &[Recorded]) -> Result<(), OpError> {
    for recorded in events {
        state.replay(recorded).map_err(|e| OpError::Corrupt(format!("event {}: {e}", recorded.seq)))?;
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use aetheris_core::hash::Hash;
    use aetheris_core::json::Json;
    use aetheris_core::lease::Holder;
    use aetheris_core::projection::Projection;
    use aetheris_core::time::Timestamp;

    use super::*;

    /// The row of a job whose events tell this.
    pub(crate) fn row(state: &JobState) -> JobRow {
        let Projection { end_requested, error, not_before: _, paused: _, plan_hash, status, waiting } =
            Projection::of(state, false);
        let holder = state.owner.clone().map(|owner| Holder {
            attempt_id: owner.attempt_id,
            instance: owner.instance,
            lease_until: Timestamp::default(),
            worker: owner.worker,
        });
        JobRow {
            agent: state.agent.clone(),
            agent_version: state.agent_version.clone(),
            created_at: state.created_at,
            end_requested,
            error,
            fence: state.fence,
            head: Hash::ZERO,
            holder,
            id: state.id,
            labels: state.labels.clone(),
            not_before: state.not_before,
            paused: state.paused.and_then(|paused| Some((paused.reason, paused.since?))),
            plan_hash,
            priority: state.priority,
            seq: state.seq,
            session: state.session.clone(),
            status,
            updated_at: state.last_at,
            waiting,
        }
    }

    /// Whichever comes first: a job goes on with what its newest permit brought.
    #[test]
    fn of_the_effects_of_a_key_the_newest_permits_counts() {
        let state = JobState::new(JobId::from_u128(1));
        let (one, other) = (IdempotencyKey::from_u128(1), IdempotencyKey::from_u128(2));
        let effect =
            |key, permit: u32| EffectRow { at: Timestamp::default(), key, permit, result: Json::new(permit.into()) };
        for effects in [
            vec![effect(one, 1), effect(one, 3), effect(other, 2)],
            vec![effect(other, 2), effect(one, 3), effect(one, 1)],
        ] {
            let history = History {
                checkpoint: None,
                effects,
                events: Vec::new(),
                kept: Vec::new(),
                ledger: Vec::new(),
                row: row(&state),
            };
            let loaded = Loaded::fold(history).unwrap();
            let permits: Vec<(IdempotencyKey, u32)> =
                loaded.effects.iter().map(|(key, effect)| (*key, effect.permit)).collect();
            assert_eq!(permits, [(one, 3), (other, 2)]);
        }
    }
}
