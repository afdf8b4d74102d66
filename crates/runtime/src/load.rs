//! From stored rows to a job's state.

use std::collections::BTreeMap;
use std::ops::Deref;

use aetheris_core::event::{Recorded, WaitEnd};
use aetheris_core::id::{IdempotencyKey, JobId};
use aetheris_core::json::Json;
use aetheris_core::ledger::LedgerRow;
use aetheris_core::state::{JobState, Output};
use aetheris_store::{EffectRow, Glance, History, JobRow, KeptSignal, Store};
use tokio::sync::OnceCell;

use crate::error::OpError;
use crate::memory;
use crate::room::{self, Asking, Held};
use crate::turn::Turn;

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
        match glance(store, job).await? {
            Glance::Short(history) => Self::fold(*history),
            Glance::Long => Self::read_long(store, job).await,
        }
    }

    /// Reading and folding what is large takes long, and this thread may serve everybody.
    async fn read_long(store: &dyn Store, job: JobId) -> Result<Self, OpError> {
        let history = store.history(job, false).await?.ok_or(OpError::JobNotFound(job))?;
        let folded = tokio::task::spawn_blocking(|| Self::fold(history)).await;
        folded.map_err(|e| OpError::Corrupt(format!("it cannot be folded: {e}")))?
    }
}

/// A job that was read in order to write to it from outside a run. It holds room for what it takes in memory, and a large
/// one the turn to write to it: to be kept until the write has been answered.
#[derive(Debug)]
pub(crate) struct ForWrite {
    loaded: Loaded,
    _memory: Held,
    _turn: Option<Turn>,
}

impl ForWrite {
    /// Reads and folds a job. Of large ones as many are read at once as there are places, and each by one at a time.
    /// Whoever waits for memory or a place has nothing in memory.
    ///
    /// # Errors
    /// As [`Loaded::read`]; or there was no turn, place or memory for a while.
    pub(crate) async fn read(store: &dyn Store, job: JobId, asking: Asking<'_>) -> Result<Self, OpError> {
        let turn = OnceCell::new();
        let read = async || match glance(store, job).await? {
            Glance::Short(history) => Loaded::fold(*history),
            Glance::Long => {
                turn.get_or_try_init(async || asking.turn(job).await.ok_or(OpError::Crowded)).await?;
                let _place = asking.room.folds.take(1, asking.patience).await.ok_or(OpError::Crowded)?;
                Loaded::read_long(store, job).await
            }
        };
        let made = room::made_within(&asking.room.memory, asking.patience, read, Loaded::memory).await?;
        let (loaded, memory) = made.ok_or(OpError::Crowded)?;
        Ok(Self { loaded, _memory: memory, _turn: turn.into_inner() })
    }
}

impl Deref for ForWrite {
    type Target = Loaded;

    fn deref(&self) -> &Loaded {
        &self.loaded
    }
}

/// A job's history from its newest checkpoint on, whatever its length.
///
/// # Errors
/// It does not exist, or cannot be read.
pub(crate) async fn history(store: &dyn Store, job: JobId) -> Result<History, OpError> {
    match glance(store, job).await? {
        Glance::Short(history) => Ok(*history),
        Glance::Long => store.history(job, false).await?.ok_or(OpError::JobNotFound(job)),
    }
}

async fn glance(store: &dyn Store, job: JobId) -> Result<Glance, OpError> {
    store.glance(job).await?.ok_or(OpError::JobNotFound(job))
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
    use std::pin::{Pin, pin};
    use std::sync::Arc;
    use std::task::{Context, Waker};
    use std::time::Duration;

    use aetheris_core::agent::{Agent, Planner};
    use aetheris_core::hash::Hash;
    use aetheris_core::json::Json;
    use aetheris_core::lease::Holder;
    use aetheris_core::limits;
    use aetheris_core::plan::{Budget, Node, NodeKind, PLAN_SCHEMA_VERSION, Plan};
    use aetheris_core::projection::Projection;
    use aetheris_core::retry::RetryPolicy;
    use aetheris_core::time::Timestamp;
    use aetheris_store::memory::MemoryStore;
    use aetheris_store::system::{Clock, ManualClock, System, SystemIds};
    use aetheris_store::{NewAgent, Purpose};
    use tokio::sync::OwnedSemaphorePermit;
    use tokio::time::Instant;

    use crate::Runtime;
    use crate::ops::Submission;

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

    /// A runtime with one job that waits to be claimed, whose message has so many bytes.
    async fn with_message(bytes: usize) -> (Runtime, JobId) {
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
        let system = System { clock: Arc::clone(&clock), ids: Arc::new(SystemIds) };
        let rt = Runtime::offline(Arc::new(MemoryStore::new(clock)), system);
        let kind = NodeKind::Transform(Json::null());
        let node = Node { id: "a".into(), kind, needs: Vec::new(), retry: None, timeout: None, when: None };
        let plan = Plan {
            answer: None,
            budget: Budget::default(),
            nodes: vec![node],
            retry: RetryPolicy::default(),
            schema_version: PLAN_SCHEMA_VERSION,
            step_timeout: None,
            tools: BTreeMap::new(),
        };
        let agent = Agent {
            agent: "a".into(),
            deadline: None,
            description: String::new(),
            message_schema: None,
            plan: Arc::new(plan),
            planner: Planner::Static,
            version: "1".to_owned(),
        };
        rt.store.put_agent(NewAgent { agent: Arc::new(agent), source: String::new() }).await.unwrap();
        let message = Some(Json::new("x".repeat(bytes).into()));
        let submission = Submission { message, ..Submission::default() };
        let job = rt.submit(&"a".into(), submission).await.unwrap().job;
        (rt, job)
    }

    async fn read(rt: &Runtime, job: JobId, purpose: Purpose) -> Result<ForWrite, OpError> {
        ForWrite::read(rt.store.as_ref(), job, rt.loads.of(purpose)).await
    }

    /// All of a room of whoever has such a purpose.
    fn all(rt: &Runtime, purpose: Purpose) -> [Option<OwnedSemaphorePermit>; 2] {
        let room = rt.loads.of(purpose).room;
        [room.folds.try_take(usize::MAX), room.memory.try_take(usize::MAX)]
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_job_is_written_to_by_one_at_a_time_and_by_the_process_first() {
        let (rt, job) = with_message(limits::LOOK_BYTES_MAX).await;
        let first = read(&rt, job, Purpose::Signal).await.unwrap();
        let (signal, timer) = (read(&rt, job, Purpose::Signal), read(&rt, job, Purpose::Timer));
        let (mut signal, mut timer) = (pin!(signal), pin!(timer));
        for waiting in [signal.as_mut() as Pin<&mut dyn Future<Output = _>>, timer.as_mut()] {
            assert!(tokio::time::timeout_at(Instant::now() + Duration::from_secs(1), waiting).await.is_err());
        }
        drop(first);
        let timer = timer.await.unwrap();
        assert!(tokio::time::timeout_at(Instant::now() + Duration::from_secs(1), signal.as_mut()).await.is_err());
        drop(timer);
        let signal = signal.await.unwrap();
        assert!(rt.loads.of(Purpose::Signal).room.memory.try_take(usize::MAX).is_none());
        drop(signal);
        assert!(all(&rt, Purpose::Signal).iter().all(Option::is_some));
    }

    /// One that is folded before the first look at it says nothing.
    #[tokio::test(start_paused = true)]
    async fn a_place_is_kept_until_the_job_is_folded() {
        let (rt, job) = with_message(4 * limits::LOOK_BYTES_MAX).await;
        for _ in 0..100 {
            let mut reading = pin!(read(&rt, job, Purpose::Signal));
            if reading.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
                let folds = &rt.loads.of(Purpose::Signal).room.folds;
                assert!(folds.try_take(usize::MAX).is_none());
                let loaded = reading.await.unwrap();
                assert!(folds.try_take(usize::MAX).is_some(), "{}", loaded.row.seq);
                return;
            }
        }
        panic!("always folded at once");
    }

    #[tokio::test(start_paused = true)]
    async fn a_small_job_waits_for_nobody() {
        let (rt, job) = with_message(100).await;
        let _rooms = [all(&rt, Purpose::Signal), all(&rt, Purpose::Timer)];
        let first = read(&rt, job, Purpose::Signal).await.unwrap();
        let started = Instant::now();
        drop(read(&rt, job, Purpose::Signal).await.unwrap());
        drop(first);
        assert_eq!(started.elapsed(), Duration::ZERO);
    }

    /// A request waits for a while, and so does a late outcome; a sweep has others to go on with.
    #[tokio::test(start_paused = true)]
    async fn a_sweep_waits_for_no_place() {
        let (rt, job) = with_message(limits::LOOK_BYTES_MAX).await;
        for part in [0, 1] {
            let waited = async |purpose| {
                let [folds, memory] = all(&rt, purpose);
                let _taken = [folds, memory][part].take();
                let started = Instant::now();
                let refused = read(&rt, job, purpose).await;
                assert!(matches!(refused, Err(OpError::Crowded)), "{purpose:?}");
                started.elapsed()
            };
            for purpose in [Purpose::Timer, Purpose::Reclaim] {
                assert_eq!(waited(purpose).await, Duration::ZERO, "{purpose:?}");
            }
            for purpose in [Purpose::Deposit, Purpose::Signal, Purpose::Cancel] {
                assert_eq!(waited(purpose).await, limits::ANSWER_PATIENCE.to_std(), "{purpose:?}");
            }
        }
    }
}
