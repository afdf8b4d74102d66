//! A store whose claims and renewals are answered late: they are made at once, and heard of afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aetheris_core::hash::Hash;
use aetheris_core::id::{AgentName, InstanceId, JobId};
use aetheris_core::lease::Fence;
use aetheris_core::ledger::LedgerRow;
use aetheris_store::{
    AgentRow, Boxed, ClaimRequest, Claimed, CommitError, Committed, DueTimers, EventRow, Evidence, Heartbeat, Hints,
    History, JobFilter, JobPage, JobRow, NewAgent, PlanDocument, PutAgent, Renewal, Store, StoreError, StoreStatus,
    TimerRow, UnitOfWork,
};

/// The wrapper. The next claim is answered so much later; the others at once.
pub(super) struct Slow {
    inner: Arc<dyn Store>,
    next_claim_us: AtomicU64,
}

impl Slow {
    pub(super) fn new(inner: Arc<dyn Store>, next_claim: Duration) -> Self {
        let next_claim_us = AtomicU64::new(u64::try_from(next_claim.as_micros()).unwrap_or(u64::MAX));
        Self { inner, next_claim_us }
    }
}

impl std::fmt::Debug for Slow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Slow")
    }
}

impl Store for Slow {
    fn claim(&self, request: ClaimRequest) -> Boxed<'_, Result<Vec<Claimed>, StoreError>> {
        Box::pin(async move {
            let claimed = self.inner.claim(request).await?;
            if !claimed.is_empty() {
                let late = Duration::from_micros(self.next_claim_us.swap(0, Ordering::SeqCst));
                tokio::time::sleep(late).await;
            }
            Ok(claimed)
        })
    }

    fn commit(&self, unit: UnitOfWork) -> Boxed<'_, Result<Committed, CommitError>> {
        self.inner.commit(unit)
    }
    fn settle(&self, unit: &UnitOfWork) -> Boxed<'_, Result<Option<Committed>, StoreError>> {
        self.inner.settle(unit)
    }
    fn heartbeat(&self, request: Heartbeat) -> Boxed<'_, Result<Vec<Renewal>, StoreError>> {
        self.inner.heartbeat(request)
    }
    fn put_agent(&self, agent: NewAgent) -> Boxed<'_, Result<PutAgent, StoreError>> {
        self.inner.put_agent(agent)
    }
    fn delete_agent(&self, name: AgentName) -> Boxed<'_, Result<bool, StoreError>> {
        self.inner.delete_agent(name)
    }
    fn history(&self, job: JobId, full: bool) -> Boxed<'_, Result<Option<History>, StoreError>> {
        self.inner.history(job, full)
    }
    fn job(&self, job: JobId) -> Boxed<'_, Result<Option<JobRow>, StoreError>> {
        self.inner.job(job)
    }
    fn jobs(&self, filter: JobFilter) -> Boxed<'_, Result<JobPage, StoreError>> {
        self.inner.jobs(filter)
    }
    fn events(&self, job: JobId, after: u64, limit: usize) -> Boxed<'_, Result<Vec<EventRow>, StoreError>> {
        self.inner.events(job, after, limit)
    }
    fn agent(&self, name: AgentName) -> Boxed<'_, Result<Option<AgentRow>, StoreError>> {
        self.inner.agent(name)
    }
    fn agents(&self) -> Boxed<'_, Result<Vec<AgentRow>, StoreError>> {
        self.inner.agents()
    }
    fn plan(&self, hash: Hash) -> Boxed<'_, Result<Option<PlanDocument>, StoreError>> {
        self.inner.plan(hash)
    }
    fn in_doubt(&self, limit: usize) -> Boxed<'_, Result<Vec<LedgerRow>, StoreError>> {
        self.inner.in_doubt(limit)
    }
    fn evidence(&self, job: JobId) -> Boxed<'_, Result<Vec<Evidence>, StoreError>> {
        self.inner.evidence(job)
    }
    fn due_timers(&self, limit: usize) -> Boxed<'_, Result<DueTimers, StoreError>> {
        self.inner.due_timers(limit)
    }
    fn timers(&self, job: JobId) -> Boxed<'_, Result<Vec<TimerRow>, StoreError>> {
        self.inner.timers(job)
    }
    fn expired(&self, limit: usize) -> Boxed<'_, Result<Vec<(JobId, Fence)>, StoreError>> {
        self.inner.expired(limit)
    }
    fn held_by(&self, instance: InstanceId, limit: usize) -> Boxed<'_, Result<Vec<(JobId, Fence)>, StoreError>> {
        self.inner.held_by(instance, limit)
    }
    fn status(&self) -> Boxed<'_, Result<StoreStatus, StoreError>> {
        self.inner.status()
    }
    fn hints(&self) -> &Hints {
        self.inner.hints()
    }
}
