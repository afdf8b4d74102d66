//! Stores that refuse without end: how often a run asks again before it gives up.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aetheris_core::id::{AgentName, IdempotencyKey, JobId, TenantId};
use aetheris_core::job::JobStatus;
use aetheris_core::ledger::LedgerRefusal;
use aetheris_core::limits;
use aetheris_core::path::StepPath;
use aetheris_store::{
    Boxed, Bus, ClaimRequest, Claimed, CommitError, Committed, Glance, Health, Heartbeat, History, NewAgent, Purpose,
    PutAgent, Refusal, Renewal, Scope, Store, StoreError, UnitOfWork,
};
use serde_json::json;

use crate::world::World;

type Decides = Box<dyn FnMut(&UnitOfWork) -> Option<Refusal> + Send>;

/// Refuses what runs write, where a test says so.
pub(crate) struct Refuses {
    inner: Arc<dyn Store>,
    refusal: Mutex<Decides>,
    times: AtomicU32,
}

impl Refuses {
    /// All that they write for one purpose.
    fn over(world: &World, purpose: Purpose, refusal: impl Fn() -> Refusal + Send + 'static) -> Arc<Self> {
        Self::of(world, move |unit| (unit.purpose == purpose).then(&refusal))
    }

    pub(crate) fn of(world: &World, refusal: impl FnMut(&UnitOfWork) -> Option<Refusal> + Send + 'static) -> Arc<Self> {
        let (inner, refusal) = (Arc::clone(&world.rt.store), Mutex::new(Box::new(refusal) as Decides));
        Arc::new(Self { inner, refusal, times: AtomicU32::new(0) })
    }

    pub(crate) fn times(&self) -> u32 {
        self.times.load(Ordering::Relaxed)
    }

    fn read<'a, T: Send + 'a>(
        &'a self,
        _: &'static str,
        ask: impl FnOnce(&'a dyn Store) -> Boxed<'a, Result<T, StoreError>>,
    ) -> Boxed<'a, Result<T, StoreError>> {
        ask(self.inner.as_ref())
    }
}

impl Store for Refuses {
    fn commit(&self, unit: UnitOfWork) -> Boxed<'_, Result<Committed, CommitError>> {
        let Some(refusal) = (self.refusal.lock().unwrap())(&unit) else { return self.inner.commit(unit) };
        self.times.fetch_add(1, Ordering::Relaxed);
        Box::pin(std::future::ready(Err(CommitError::Refused(refusal))))
    }

    fn resolve_unknown(&self, unit: &UnitOfWork) -> Boxed<'_, Result<Option<Committed>, StoreError>> {
        self.inner.resolve_unknown(unit)
    }

    fn claim(&self, request: ClaimRequest) -> Boxed<'_, Result<Vec<Claimed>, StoreError>> {
        self.inner.claim(request)
    }

    fn heartbeat(&self, request: Heartbeat) -> Boxed<'_, Result<Vec<Renewal>, StoreError>> {
        self.inner.heartbeat(request)
    }

    fn put_agent(&self, agent: NewAgent) -> Boxed<'_, Result<PutAgent, StoreError>> {
        self.inner.put_agent(agent)
    }

    fn delete_agent(&self, tenant: TenantId, name: AgentName) -> Boxed<'_, Result<bool, StoreError>> {
        self.inner.delete_agent(tenant, name)
    }

    aetheris_store::questions_through!(read);

    fn glance(&self, scope: Scope, job: JobId) -> Boxed<'_, Result<Option<Glance>, StoreError>> {
        self.inner.glance(scope, job)
    }

    fn history(&self, scope: Scope, job: JobId, full: bool) -> Boxed<'_, Result<Option<History>, StoreError>> {
        self.inner.history(scope, job, full)
    }

    fn health(&self) -> Boxed<'_, Result<Health, StoreError>> {
        self.inner.health()
    }

    fn bus(&self) -> &Bus {
        self.inner.bus()
    }
}

const HEAD: &str =
    "agent: a\nversion: \"1\"\nplanner: static\ntools:\n  pay: { kind: function, function: f }\nplan:\n  nodes:\n";

/// Somebody else has always written: the run leaves its job to whoever takes it back.
#[tokio::test(start_paused = true)]
async fn a_job_that_changes_whenever_its_run_writes_is_left_after_as_many_tries_as_are_allowed() {
    let world = World::new();
    world.put(&format!("{HEAD}    - {{ id: n, kind: sleep, duration: 1h }}\n")).await;
    let store = Refuses::over(&world, Purpose::Block, || Refusal::Sequence { expected: 0, actual: 0 });
    let first = world.start_over("w", Arc::clone(&store) as _);
    let job = world.submit("a", json!({})).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(store.times(), limits::CONFLICT_RETRIES_MAX + 1);
    assert_eq!(world.state(job).await.status, JobStatus::Running, "its lease ends by itself");
    first.kill();
    let _second = world.start("second");
    world.until(job, &[JobStatus::Waiting, JobStatus::Parked]).await;
}

/// A ledger that contradicts the job's history fails it with the reason.
#[tokio::test(start_paused = true)]
async fn a_permission_that_is_refused_for_ever_fails_its_job_after_as_many_tries_as_are_allowed() {
    let world = World::new();
    world.put(&format!("{HEAD}    - {{ id: n, kind: tool, tool: pay }}\n")).await;
    let key = IdempotencyKey::derive(JobId::from_u128(7), &StepPath::from("n"), 1);
    let missing = move || Refusal::Ledger(LedgerRefusal::Missing(key));
    let store = Refuses::over(&world, Purpose::Permit, missing);
    let _process = world.start_over("w", Arc::clone(&store) as _);
    let job = world.submit("a", json!({})).await;
    assert_eq!(world.done(job).await.status, JobStatus::Failed);
    assert_eq!((store.times(), world.tools.count("pay")), (limits::LEDGER_REFUSALS_MAX + 1, 0));
}

/// A signal that the store says it keeps and never shows.
#[tokio::test(start_paused = true)]
async fn a_wait_that_is_refused_for_a_signal_that_is_not_there_is_left_after_as_many_tries_as_are_allowed() {
    let world = World::new();
    world.put(&format!("{HEAD}    - {{ id: n, kind: wait, wait_type: human, correlation_key: k }}\n")).await;
    let store = Refuses::over(&world, Purpose::Block, || Refusal::SignalKept("k".to_owned()));
    let _process = world.start_over("w", Arc::clone(&store) as _);
    let job = world.submit("a", json!({})).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(store.times(), limits::KEPT_SIGNALS_MET_MAX + 1);
    assert_eq!(world.state(job).await.status, JobStatus::Running, "its lease ends by itself");
}
