//! From stored rows to a job's state.

use std::collections::BTreeMap;
use std::ops::Deref;

use aetheris_core::event::{Recorded, WaitEnd};
use aetheris_core::id::{IdempotencyKey, JobId};
use aetheris_core::json::Json;
use aetheris_core::lease::Guard;
use aetheris_core::ledger::LedgerRow;
use aetheris_core::limits;
use aetheris_core::state::{JobState, Output};
use aetheris_store::{EffectRow, Glance, History, JobRow, KeptSignal, Scope, Store};

use crate::admission::{Admitted, Caller};
use crate::draft::{Draft, LastCheckpoint};
use crate::error::OpError;
use crate::memory;
use crate::room::{self, Held, Loads};

/// A job as it was read in one consistent look.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// Its newest checkpoint.
    pub checkpoint: LastCheckpoint,
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
    /// [`OpError::Corrupt`] where the events cannot be folded, or end elsewhere than the row says.
    pub fn fold(history: History) -> Result<Self, OpError> {
        let corrupt = |why: String| OpError::Corrupt(why);
        let checkpoint = history.checkpoint.as_ref().map(LastCheckpoint::of).unwrap_or_default();
        let mut state = match &history.checkpoint {
            Some(checkpoint) => {
                aetheris_fault::sometimes!(CheckpointRead);
                serde_json::from_slice(&checkpoint.state)
                    .map_err(|e| corrupt(format!("its checkpoint cannot be read: {e}")))?
            }
            None => JobState::new(history.row.id),
        };
        fold_onto(&mut state, &history.events)?;
        same_end(&history.row, &state)?;
        let mut effects = BTreeMap::new();
        take_newest(&mut effects, history.effects);
        let ledger = by_key(history.ledger);
        Ok(Self { checkpoint, effects, kept: history.kept, ledger, row: history.row, state })
    }

    /// Takes in what was written since it was read. Whoever has it was let in to it.
    ///
    /// # Errors
    /// As [`Loaded::read`].
    async fn carry_on(&mut self, store: &dyn Store) -> Result<(), OpError> {
        let (job, since) = (self.row.id, self.row.updated_at);
        let behind =
            store.history_behind(Scope::System, job, self.state.seq, since).await?.ok_or(OpError::JobNotFound(job))?;
        let History { checkpoint: _, effects, events, kept, ledger, row } = behind;
        fold_onto(&mut self.state, &events)?;
        take_newest(&mut self.effects, effects);
        self.ledger = by_key(ledger);
        (self.kept, self.row) = (kept, row);
        same_end(&self.row, &self.state)
    }

    /// A draft of what is written to it from outside a run. It tries no checkpoint where one may be too large: its run knows
    /// when to look at that again.
    pub(crate) fn draft(&self, guard: Guard) -> Draft {
        let mut draft = Draft::new(self.state.clone(), guard, self.checkpoint);
        let due = self.state.seq >= self.checkpoint.due();
        if due && self.memory() > limits::CHECKPOINT_BYTES_MAX {
            draft.make_no_checkpoint();
        }
        draft
    }

    /// About how much memory its values take, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        let steps = self.state.steps.values();
        let outputs = steps.clone().filter_map(|step| step.output.as_ref()).filter_map(inline);
        let payloads = steps.filter_map(|step| step.wait_end.as_deref()).filter_map(payload);
        let effects = self.effects.values().map(|effect| &effect.result);
        memory::given(&self.state, &self.kept) + memory::of(outputs.chain(payloads).chain(effects))
    }

    /// Reads and folds a job.
    ///
    /// # Errors
    /// It does not exist, cannot be read or cannot be folded.
    pub async fn read(store: &dyn Store, scope: &Scope, job: JobId) -> Result<Self, OpError> {
        match glance(store, scope, job).await? {
            Glance::Short(history) => Self::fold(*history),
            Glance::Long => Self::read_long(store, scope, job).await,
        }
    }

    /// Reading and folding what is large takes long, and this thread may serve everybody.
    async fn read_long(store: &dyn Store, scope: &Scope, job: JobId) -> Result<Self, OpError> {
        let history = store.history(scope.clone(), job, false).await?.ok_or(OpError::JobNotFound(job))?;
        let folded = tokio::task::spawn_blocking(|| Self::fold(history)).await;
        folded.map_err(|e| OpError::Corrupt(format!("it cannot be folded: {e}")))?
    }
}

/// A job that was read in order to write to it from outside a run. What it takes in memory counts, and nobody else in this
/// process writes to it where it is large, until this is dropped: when the write has been answered.
#[derive(Debug)]
pub(crate) struct ForWrite {
    loaded: Box<Loaded>,
    _admitted: Option<Admitted>,
    _memory: Held,
}

impl ForWrite {
    /// Reads and folds a job, a large one when it is admitted. Whoever waits, for that or for memory, has nothing in memory
    /// and keeps nobody from the job.
    ///
    /// # Errors
    /// As [`Loaded::read`]; or it was not admitted, or there was no memory, for as long as the caller waits.
    pub(crate) async fn read(
        (store, scope): (&dyn Store, &Scope),
        job: JobId,
        loads: &Loads,
        caller: Caller,
    ) -> Result<Self, OpError> {
        let read = async || match glance(store, scope, job).await? {
            Glance::Short(history) => Ok::<_, OpError>((Loaded::fold(*history)?, None)),
            Glance::Long => {
                let mut admitted = loads.admission.ask(job, caller).await.ok_or(OpError::Crowded)?;
                let loaded = Loaded::read_long(store, scope, job).await?;
                admitted.read();
                Ok((loaded, Some(admitted)))
            }
        };
        let takes = |(loaded, _): &(Loaded, Option<Admitted>)| loaded.memory();
        let made = room::made_within(loads.memory(caller), caller.patience(), read, takes).await?;
        let ((loaded, admitted), memory) = made.ok_or(OpError::Crowded)?;
        Ok(Self { loaded: Box::new(loaded), _admitted: admitted, _memory: memory })
    }

    /// The same job once something else was written to it. A large one keeps its leave and takes in what is new: whoever
    /// began again from nothing would come too late for ever, where its run writes faster than it is read.
    ///
    /// # Errors
    /// As [`ForWrite::read`].
    pub(crate) async fn again(mut self, store: &dyn Store, loads: &Loads, caller: Caller) -> Result<Self, OpError> {
        if self._admitted.is_some() {
            self.loaded.carry_on(store).await?;
            return Ok(self);
        }
        let (job, scope) = (self.row.id, Scope::Tenant(self.row.tenant.clone()));
        drop(self);
        Self::read((store, &scope), job, loads, caller).await
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
pub(crate) async fn history(store: &dyn Store, scope: &Scope, job: JobId) -> Result<History, OpError> {
    match glance(store, scope, job).await? {
        Glance::Short(history) => Ok(*history),
        Glance::Long => store.history(scope.clone(), job, false).await?.ok_or(OpError::JobNotFound(job)),
    }
}

async fn glance(store: &dyn Store, scope: &Scope, job: JobId) -> Result<Glance, OpError> {
    store.glance(scope.clone(), job).await?.ok_or(OpError::JobNotFound(job))
}

fn inline(output: &Output) -> Option<&Json> {
    match output {
        Output::Inline(value) => Some(value),
        // It stands among the effects, or among the outputs of the items.
        Output::Effect(_) | Output::Items => None,
    }
}

fn payload(end: &WaitEnd) -> Option<&Json> {
    match end {
        WaitEnd::Signal { payload, .. } => Some(payload),
        WaitEnd::Dropped | WaitEnd::Time => None,
    }
}

/// Row and events are of one look: where they end apart, nothing could be written behind them.
fn same_end(row: &JobRow, state: &JobState) -> Result<(), OpError> {
    let (told, last) = (row.seq, state.seq);
    let apart = || OpError::Corrupt(format!("its row is at event {told}, and its events end at {last}"));
    (told == last).then_some(()).ok_or_else(apart)
}

/// Of each key the effect of its newest permit.
fn take_newest(effects: &mut BTreeMap<IdempotencyKey, EffectRow>, more: Vec<EffectRow>) {
    for effect in more {
        if effects.get(&effect.key).is_none_or(|seen| seen.permit < effect.permit) {
            effects.insert(effect.key, effect);
        }
    }
}

fn by_key(rows: Vec<LedgerRow>) -> BTreeMap<IdempotencyKey, LedgerRow> {
    rows.into_iter().map(|row| (row.key, row)).collect()
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
    use aetheris_core::event::{
        InvocationOutcome, JobCancelled, NodeStarted, Source, ToolInvocationFinished, ToolInvocationStarted,
    };
    use aetheris_core::hash::Hash;
    use aetheris_core::id::{AttemptId, EventId, InstanceId, PermitId, SignalId, TenantId, WorkerId};
    use aetheris_core::job::JobStatus;
    use aetheris_core::json::Json;
    use aetheris_core::lease::Holder;
    use aetheris_core::ledger::{LedgerTrigger, PermitRequest, Settle};
    use aetheris_core::plan::{Budget, EffectClass, Node, NodeKind, PLAN_SCHEMA_VERSION, Plan};
    use aetheris_core::projection::Projection;
    use aetheris_core::retry::RetryPolicy;
    use aetheris_core::state::StepState;
    use aetheris_core::time::{Span, Timestamp};
    use aetheris_store::faulty::{Fault, FaultKind, FaultPlan, FaultyStore, Op};
    use aetheris_store::memory::MemoryStore;
    use aetheris_store::system::{Clock, ManualClock, System, SystemIds};
    use aetheris_store::{ClaimIds, ClaimRequest, InboxWrite, LedgerWrite, NewAgent, NewEffect, Purpose, UnitOfWork};
    use serde_json::json;
    use tokio::sync::OwnedSemaphorePermit;
    use tokio::time::Instant;

    use crate::Runtime;
    use crate::draft::Fact;
    use crate::ops::{Cancelled, Submission};

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
            tenant: state.tenant.clone(),
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

    #[tokio::test]
    async fn whatever_stands_with_a_job_takes_memory() {
        let (rt, job) = with_message(100).await;
        let mut loaded = Loaded::read(rt.store.as_ref(), &rt.scope, job).await.unwrap();
        let large = || Json::new(json!(vec![json!({ "a": 1 }); 100]));
        let (before, one) = (loaded.memory(), large().memory());
        let (key, at) = (IdempotencyKey::from_u128(1), Timestamp::default());
        let mut step = StepState { output: Some(Output::Inline(large())), ..StepState::default() };
        loaded.state.steps.insert("inline".into(), step.clone());
        assert_eq!(loaded.memory(), before + one);
        step.output = Some(Output::Effect(key));
        step.wait_end = Some(Box::new(WaitEnd::Signal { payload: large(), signal: SignalId::from_u128(1) }));
        loaded.state.steps.insert("woken".into(), step);
        assert_eq!(loaded.memory(), before + 2 * one);
        loaded.effects.insert(key, EffectRow { at, key, permit: 1, result: large() });
        assert_eq!(loaded.memory(), before + 3 * one);
    }

    /// A runtime with one job that waits to be claimed, whose message has so many bytes.
    async fn with_message(bytes: usize) -> (Runtime, JobId) {
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
        let system = System { clock: Arc::clone(&clock), ids: Arc::new(SystemIds) };
        let rt = Runtime::offline(Arc::new(MemoryStore::new(clock)), system);
        let kind = NodeKind::Transform(Json::null());
        let node = Node::new("a", kind);
        let plan = Plan {
            answer: None,
            budget: Budget::default(),
            nodes: vec![node],
            retry: RetryPolicy::default(),
            schema_version: PLAN_SCHEMA_VERSION,
            max_parallel_steps: None,
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
        rt.store
            .put_agent(NewAgent { agent: Arc::new(agent), source: String::new(), tenant: TenantId::default() })
            .await
            .unwrap();
        let message = Some(Json::new("x".repeat(bytes).into()));
        let submission = Submission { message, ..Submission::default() };
        let job = rt.submit(&"a".into(), submission).await.unwrap().job;
        (rt, job)
    }

    async fn read(rt: &Runtime, job: JobId, caller: Caller) -> Result<ForWrite, OpError> {
        ForWrite::read((rt.store.as_ref(), &rt.scope), job, &rt.loads, caller).await
    }

    /// All of the memory of such callers.
    fn memory(rt: &Runtime, caller: Caller) -> Option<OwnedSemaphorePermit> {
        rt.loads.memory(caller).try_take(usize::MAX)
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_job_is_written_to_by_one_at_a_time_and_by_the_process_first() {
        let (rt, job) = with_message(limits::LOOK_BYTES_MAX).await;
        let first = read(&rt, job, Caller::Client).await.unwrap();
        assert!(memory(&rt, Caller::Client).is_none());
        let (client, process) = (read(&rt, job, Caller::Client), read(&rt, job, Caller::Process));
        let (mut client, mut process) = (pin!(client), pin!(process));
        let second = || Instant::now() + Duration::from_secs(1);
        for waiting in [client.as_mut() as Pin<&mut dyn Future<Output = _>>, process.as_mut()] {
            assert!(tokio::time::timeout_at(second(), waiting).await.is_err());
        }
        drop(first);
        let process = process.await.unwrap();
        assert!(tokio::time::timeout_at(second(), client.as_mut()).await.is_err());
        drop(process);
        drop(client.await.unwrap());
        assert!(memory(&rt, Caller::Client).is_some() && memory(&rt, Caller::Process).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_small_job_waits_for_nobody() {
        let (rt, job) = with_message(100).await;
        let _all = [memory(&rt, Caller::Client), memory(&rt, Caller::Process)];
        let first = read(&rt, job, Caller::Client).await.unwrap();
        let started = Instant::now();
        drop(read(&rt, job, Caller::Sweep).await.unwrap());
        drop(first);
        assert_eq!(started.elapsed(), Duration::ZERO);
    }

    /// Until a write has been answered, its job is in memory: it counts, and nobody else writes to it.
    #[tokio::test(start_paused = true)]
    async fn who_writes_to_a_large_job_keeps_leave_and_memory_until_the_store_has_answered() {
        let (rt, job) = with_message(limits::LOOK_BYTES_MAX).await;
        let slow = FaultPlan::none().script(Op::Commit(Purpose::Cancel), [Some(Fault::Delay(Span::from_secs(5)))]);
        let store = Arc::new(FaultyStore::new(Arc::clone(&rt.store), slow));
        let rt = Runtime { store: Arc::clone(&store) as _, ..rt };
        let writing = tokio::spawn({
            let rt = rt.clone();
            async move { rt.cancel(job).await }
        });
        while store.happened(FaultKind::Delay) == 0 {
            tokio::task::yield_now().await;
        }
        assert!(memory(&rt, Caller::Operator).is_none());
        let mut other = pin!(read(&rt, job, Caller::Process));
        assert!(tokio::time::timeout_at(Instant::now() + Duration::from_secs(1), other.as_mut()).await.is_err());
        assert!(!writing.is_finished() && memory(&rt, Caller::Operator).is_none());
        assert_eq!(writing.await.unwrap().unwrap(), Cancelled::Now);
        assert_eq!(other.await.unwrap().state.status, JobStatus::Cancelled);
        assert!(memory(&rt, Caller::Operator).is_some());
    }

    /// Another that asks has it meanwhile, as long as it needs no such memory.
    #[tokio::test(start_paused = true)]
    async fn who_waits_for_memory_keeps_nobody_from_the_job() {
        let (rt, job) = with_message(limits::LOOK_BYTES_MAX).await;
        let all = memory(&rt, Caller::Client).unwrap();
        let mut client = pin!(read(&rt, job, Caller::Client));
        assert!(tokio::time::timeout_at(Instant::now() + Duration::from_secs(1), client.as_mut()).await.is_err());
        drop(read(&rt, job, Caller::Sweep).await.unwrap());
        drop(all);
        drop(client.await.unwrap());
    }

    /// A request waits for a while, and so does what the process owes; a sweep has others to go on with.
    #[tokio::test(start_paused = true)]
    async fn a_sweep_waits_for_nothing() {
        let (rt, job) = with_message(limits::LOOK_BYTES_MAX).await;
        for caller in [Caller::Sweep, Caller::Process, Caller::Operator, Caller::Client] {
            let waited = async || {
                let started = Instant::now();
                assert!(matches!(read(&rt, job, caller).await, Err(OpError::Crowded)), "{caller:?}");
                started.elapsed()
            };
            let patience = if caller == Caller::Sweep { Span::ZERO } else { limits::ANSWER_PATIENCE };
            let all = memory(&rt, caller);
            assert_eq!(waited().await, patience.to_std(), "{caller:?}");
            drop(all);
            let first = rt.loads.admission.ask(job, Caller::Client).await;
            assert_eq!(waited().await, patience.to_std(), "{caller:?}");
            drop(first);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_is_kept_until_the_job_has_been_read() {
        let loads = Loads::default();
        let read = |(rt, job): (Runtime, JobId)| {
            let slow = FaultPlan::none().script(Op::Read, [None, Some(Fault::Delay(Span::from_secs(5)))]);
            let (store, loads) = (FaultyStore::new(rt.store, slow), loads.clone());
            Box::pin(async move { ForWrite::read((&store, &Scope::System), job, &loads, Caller::Client).await })
        };
        let mut reads = Vec::new();
        for _ in 0..limits::LARGE_FOLDS_AT_ONCE {
            assert!(!loads.admission.is_full());
            let mut one = read(with_message(limits::LOOK_BYTES_MAX).await);
            assert!(one.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            reads.push(one);
        }
        assert!(loads.admission.is_full());
        let read = futures_util::future::join_all(reads).await;
        assert!(!loads.admission.is_full() && read.iter().all(Result::is_ok));
    }

    /// A job under a lease, whose call has been permitted and is not settled: the draft that goes on with it, and the permit.
    async fn in_a_call(rt: &Runtime, job: JobId) -> (Draft, Settle) {
        let ids = rt.system.ids.as_ref();
        let pair = ClaimIds { attempt: AttemptId::from_u128(1), event: EventId::from_u128(ids.secret()) };
        let (instance, ttl) = (InstanceId::from_u128(1), Span::from_secs(30));
        let request = ClaimRequest { ids: vec![pair], instance, linger: Span::ZERO, ttl, worker: WorkerId::from("w") };
        let fence = rt.store.claim(request).await.unwrap()[0].fence;
        let state = Loaded::read(rt.store.as_ref(), &Scope::System, job).await.unwrap().state;
        let mut draft = Draft::new(state, Guard::Run(fence), LastCheckpoint::default());
        let (key, permit_id, input) = (IdempotencyKey::from_u128(1), PermitId::from_u128(1), Json::null());
        let started = ToolInvocationStarted {
            effect: EffectClass::AtMostOnce,
            input: Some(input.clone()),
            key,
            lifetime_us: Span::from_secs(10).micros(),
            node: "a".into(),
            permit: 1,
            permit_id,
            tool: "t".into(),
            tool_version: None,
        };
        let request = PermitRequest {
            class: started.effect,
            input_hash: input.hash(),
            key,
            lifetime: Span::from_secs(10),
            node: "a".into(),
            permit: 1,
            permit_id,
            tool: "t".into(),
        };
        draft.push(ids, NodeStarted::new("a", 1)).unwrap();
        draft.add(ids, Fact::with_ledger(started, LedgerWrite::Permit(request))).unwrap();
        let committed = rt.store.commit(draft.unit(Purpose::Permit, EventId::from_u128(1))).await.unwrap();
        draft.written(&committed);
        (draft, Settle { key, permit_id, trigger: LedgerTrigger::Commit })
    }

    /// Whoever is refused for what another has written decides anew on all that the other has written: events, effects,
    /// ledger and kept signals.
    #[tokio::test]
    async fn what_is_carried_on_is_what_is_read_anew() {
        let (rt, job) = with_message(limits::LOOK_BYTES_MAX).await;
        let ids = rt.system.ids.as_ref();
        let (mut draft, settle) = in_a_call(&rt, job).await;
        let before = read(&rt, job, Caller::Client).await.unwrap();
        let old = Loaded::clone(&before);
        let finished = ToolInvocationFinished {
            error: None,
            node: "a".into(),
            outcome: InvocationOutcome::Committed,
            permit: 1,
            source: Source::Executed,
        };
        let effect = NewEffect { key: settle.key, permit: 1, permit_id: settle.permit_id, result: Json::new(json!(7)) };
        draft.add(ids, Fact::with_effect(finished, effect, LedgerWrite::Settle(settle))).unwrap();
        rt.store.commit(draft.unit(Purpose::Record, EventId::from_u128(2))).await.unwrap();
        let mut keeping = UnitOfWork::new(EventId::from_u128(3), job, Purpose::Signal, Guard::Outside);
        keeping.inbox.push(InboxWrite::Receive {
            delivered: false,
            key: "k".to_owned(),
            payload: Json::null(),
            signal: SignalId::from_u128(1),
            wait_type: None,
        });
        rt.store.commit(keeping).await.unwrap();
        let carried = before.again(rt.store.as_ref(), &rt.loads, Caller::Client).await.unwrap();
        let Loaded { checkpoint, effects, kept, ledger, row, state } =
            Loaded::read(rt.store.as_ref(), &rt.scope, job).await.unwrap();
        assert!(old.state != state && old.row != row, "something was written meanwhile");
        assert!(old.effects != effects && old.ledger != ledger && old.kept != kept);
        assert_eq!(carried.checkpoint, checkpoint);
        assert_eq!(carried.effects, effects);
        assert_eq!(carried.kept, kept);
        assert_eq!(carried.ledger, ledger);
        assert_eq!(carried.row, row);
        assert_eq!(carried.state, state);
    }

    /// Each write from outside to such a job would serialize all of it for nothing.
    #[tokio::test]
    async fn a_draft_from_outside_makes_no_checkpoint_that_would_be_too_large() {
        let (rt, job) = with_message(100).await;
        let mut loaded = Loaded::read(rt.store.as_ref(), &rt.scope, job).await.unwrap();
        loaded.state.seq = limits::CHECKPOINT_EVENTS;
        let makes_one = |loaded: &Loaded| {
            let mut draft = loaded.draft(Guard::Outside);
            draft.push(rt.system.ids.as_ref(), JobCancelled {}).unwrap();
            draft.unit(Purpose::Cancel, EventId::from_u128(1)).checkpoint.is_some()
        };
        assert!(makes_one(&loaded));
        let small = vec![json!({ "a": 1 }); 100_000];
        let signal = |n| KeptSignal {
            key: "k".to_owned(),
            payload: Json::new(json!(small)),
            received_at: Timestamp::default(),
            signal: SignalId::from_u128(n),
            wait_type: None,
        };
        loaded.kept = (0..16).map(signal).collect();
        assert!(loaded.memory() > limits::CHECKPOINT_BYTES_MAX);
        assert!(!makes_one(&loaded));
    }
}
