//! The store in memory: development mode, and the reference model that every backend is compared with.
//!
//! One mutex around plain maps. [`tables`] has what is kept, [`write`] the one door, [`own`] claims and
//! renewals, [`read`] the questions. No rule is made here: they are those of the core and of
//! [`crate::rules`].

mod own;
mod read;
mod tables;
mod write;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aetheris_core::hash::Hash;
use aetheris_core::id::{AgentName, IdempotencyKey, InstanceId, JobId, TenantId};
use aetheris_core::lease::Fence;
use aetheris_core::ledger::LedgerRow;
use aetheris_core::time::Timestamp;
use tokio::sync::Notify;

use crate::claim::{ClaimRequest, Claimed, Heartbeat, Renewal};
use crate::clock::{Look, StoreClock};
use crate::doubt::{DoubtFilter, DoubtPage};
use crate::error::{CommitError, StoreError};
use crate::outbox::{ChildPage, PromiseRow};
use crate::query::{
    AgentPage, AgentRow, Dossiers, DueTimers, EffectRow, EventRow, Evidence, ExpiredLease, Glance, History, JobFilter,
    JobPage, JobRow, KeptHead, NewAgent, PlanDocument, PutAgent, StoreStatus, TimerRow, WaitPage,
};
use crate::system::Clock;
use crate::unit::{Committed, UnitOfWork};
use crate::{Boxed, Bus, Health, Scope, Store};
use tables::Tables;

/// A store that lives as long as its process.
pub struct MemoryStore {
    clock: StoreClock,
    bus: Bus,
    tables: Mutex<Tables>,
    written: Notify,
}

impl MemoryStore {
    /// An empty store on a clock.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock: StoreClock::new(clock), bus: Bus::default(), tables: Mutex::default(), written: Notify::new() }
    }

    /// Begins another generation, as a restore does before it holds jobs: who claims from now on writes with a higher
    /// fence. It holds none.
    pub fn begin_generation(&self) {
        self.tables().restores += 1;
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read<T: Send + 'static>(&self, question: impl FnOnce(&Tables) -> T) -> Boxed<'_, Result<T, StoreError>> {
        let answer = question(&self.tables());
        Box::pin(std::future::ready(Ok(answer)))
    }

    fn write<T>(&self, change: impl FnOnce(&mut Tables, Look) -> T) -> T {
        let mut tables = self.tables();
        let look = self.clock.look(tables.mark);
        change(&mut tables, look)
    }

    fn now(&self, tables: &Tables) -> Timestamp {
        self.clock.look(tables.mark).now
    }

    fn commit_now(&self, unit: UnitOfWork) -> Result<Committed, CommitError> {
        let (job, promises) = (unit.job, !unit.outbox.is_empty());
        let committed = self.write(|tables, look| tables.commit(unit, look))?;
        self.bus.written(job, committed.seq);
        if promises {
            self.bus.promised();
        }
        self.written.notify_waiters();
        Ok(committed)
    }

    /// Claims, or waits for a write or for the next delayed job and tries again.
    async fn claim_within(&self, request: ClaimRequest) -> Result<Vec<Claimed>, StoreError> {
        let until = tokio::time::Instant::now() + request.linger.to_std();
        loop {
            let written = self.written.notified();
            tokio::pin!(written);
            written.as_mut().enable();
            let sent_at = self.clock.clocks().boot();
            let (claimed, next) = self.write(|tables, look| {
                let claimed = tables.claim(&request, look, sent_at)?;
                Ok::<_, StoreError>((claimed, tables.next_claimable(look)))
            })?;
            for job in &claimed {
                let seq = self.tables().jobs.get(&job.job).map_or(0, |job| job.row.seq);
                self.bus.written(job.job, seq);
            }
            let left = until.saturating_duration_since(tokio::time::Instant::now());
            if !claimed.is_empty() || left.is_zero() {
                return Ok(claimed);
            }
            let pause = next.map_or(left, |wait| wait.to_std().max(Duration::from_millis(1)).min(left));
            tokio::select! {
                biased;
                () = written => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MemoryStore")
    }
}

impl Store for MemoryStore {
    fn commit(&self, unit: UnitOfWork) -> Boxed<'_, Result<Committed, CommitError>> {
        Box::pin(async move { self.commit_now(unit) })
    }

    fn resolve_unknown(&self, unit: &UnitOfWork) -> Boxed<'_, Result<Option<Committed>, StoreError>> {
        self.read(|tables| tables.resolve_unknown(unit))
    }

    fn claim(&self, request: ClaimRequest) -> Boxed<'_, Result<Vec<Claimed>, StoreError>> {
        Box::pin(self.claim_within(request))
    }

    fn heartbeat(&self, request: Heartbeat) -> Boxed<'_, Result<Vec<Renewal>, StoreError>> {
        Box::pin(async move {
            let sent_at = self.clock.clocks().boot();
            Ok(self.write(|tables, look| tables.heartbeat(&request, look, sent_at)))
        })
    }

    fn put_agent(&self, agent: NewAgent) -> Boxed<'_, Result<PutAgent, StoreError>> {
        Box::pin(async move { Ok(self.write(|tables, look| tables.put_agent(agent, look))) })
    }

    fn delete_agent(&self, tenant: TenantId, name: AgentName) -> Boxed<'_, Result<bool, StoreError>> {
        Box::pin(async move { Ok(self.write(|tables, look| tables.delete_agent(tenant, name, look))) })
    }

    fn glance(&self, scope: Scope, job: JobId) -> Boxed<'_, Result<Option<Glance>, StoreError>> {
        let answer = self.tables().glance(&scope, job);
        Box::pin(std::future::ready(answer))
    }

    fn history(&self, scope: Scope, job: JobId, full: bool) -> Boxed<'_, Result<Option<History>, StoreError>> {
        let answer = self.tables().history(&scope, job, full);
        Box::pin(std::future::ready(answer))
    }

    fn history_behind(
        &self,
        scope: Scope,
        job: JobId,
        seq: u64,
        since: Timestamp,
    ) -> Boxed<'_, Result<Option<History>, StoreError>> {
        let answer = self.tables().history_behind(&scope, job, seq, since);
        Box::pin(std::future::ready(answer))
    }

    fn dossiers(&self, from: u64, to: u64) -> Boxed<'_, Result<Dossiers, StoreError>> {
        self.read(|tables| tables.dossiers(from, to, self.now(tables)))
    }

    fn job(&self, scope: Scope, job: JobId) -> Boxed<'_, Result<Option<JobRow>, StoreError>> {
        self.read(|tables| tables.job(&scope, job).map(|job| job.row.clone()))
    }

    fn ahead_in_session(&self, scope: Scope, job: JobId) -> Boxed<'_, Result<Option<JobRow>, StoreError>> {
        self.read(|tables| tables.ahead_in_session(&scope, job))
    }

    fn jobs(&self, filter: JobFilter) -> Boxed<'_, Result<JobPage, StoreError>> {
        self.read(|tables| tables.page(&filter))
    }

    fn client_key(
        &self,
        tenant: TenantId,
        agent: AgentName,
        key: String,
    ) -> Boxed<'_, Result<Option<(JobId, Hash)>, StoreError>> {
        self.read(|tables| tables.client_keys.get(&(tenant, agent, key)).copied())
    }

    fn waits(&self, filter: JobFilter) -> Boxed<'_, Result<WaitPage, StoreError>> {
        self.read(|tables| tables.waits(&filter))
    }

    fn effect(
        &self,
        scope: Scope,
        job: JobId,
        key: IdempotencyKey,
    ) -> Boxed<'_, Result<Option<EffectRow>, StoreError>> {
        self.read(|tables| {
            let effects = &tables.job(&scope, job)?.effects;
            effects.range((key, 0)..=(key, u32::MAX)).next_back().map(|(_, effect)| effect.clone())
        })
    }

    fn events(
        &self,
        scope: Scope,
        job: JobId,
        after: u64,
        limit: usize,
    ) -> Boxed<'_, Result<Vec<EventRow>, StoreError>> {
        self.read(|tables| tables.events(&scope, job, after, limit))
    }

    fn agent(&self, tenant: TenantId, name: AgentName) -> Boxed<'_, Result<Option<AgentRow>, StoreError>> {
        self.read(|tables| tables.agents.get(&(tenant, name)).cloned())
    }

    fn agents(
        &self,
        tenant: TenantId,
        after: Option<AgentName>,
        limit: usize,
    ) -> Boxed<'_, Result<AgentPage, StoreError>> {
        self.read(|tables| tables.agent_page(&tenant, after, limit))
    }

    fn plan(&self, hash: Hash) -> Boxed<'_, Result<Option<PlanDocument>, StoreError>> {
        self.read(|tables| tables.plans.get(&hash).map(|plan| PlanDocument { hash, plan: Arc::clone(plan) }))
    }

    fn doubts(&self, filter: DoubtFilter) -> Boxed<'_, Result<DoubtPage, StoreError>> {
        self.read(|tables| tables.doubts(&filter))
    }

    fn in_doubt(&self, limit: usize) -> Boxed<'_, Result<Vec<LedgerRow>, StoreError>> {
        self.read(|tables| tables.in_doubt(limit))
    }

    fn unresolved(&self, limit: usize) -> Boxed<'_, Result<Vec<LedgerRow>, StoreError>> {
        self.read(|tables| tables.unresolved(limit))
    }

    fn kept(&self, scope: Scope, job: JobId) -> Boxed<'_, Result<Vec<KeptHead>, StoreError>> {
        self.read(|tables| tables.kept(&scope, job))
    }

    fn evidence(&self, scope: Scope, job: JobId) -> Boxed<'_, Result<Vec<Evidence>, StoreError>> {
        self.read(|tables| tables.evidence(&scope, job))
    }

    fn children(
        &self,
        scope: Scope,
        job: JobId,
        after: Option<JobId>,
        limit: usize,
    ) -> Boxed<'_, Result<ChildPage, StoreError>> {
        self.read(|tables| tables.children(&scope, job, after, limit))
    }

    fn outbox(&self, after: Option<u64>, limit: usize) -> Boxed<'_, Result<Vec<PromiseRow>, StoreError>> {
        self.read(|tables| tables.outbox(after, limit))
    }

    fn promised(&self, author: JobId, target: JobId) -> Boxed<'_, Result<Vec<PromiseRow>, StoreError>> {
        self.read(|tables| tables.promised(author, target))
    }

    fn due_timers(&self, after: Option<TimerRow>, limit: usize) -> Boxed<'_, Result<DueTimers, StoreError>> {
        self.read(|tables| tables.due_timers(after.as_ref(), limit, self.now(tables)))
    }

    fn timers(&self, scope: Scope, job: JobId) -> Boxed<'_, Result<Vec<TimerRow>, StoreError>> {
        self.read(|tables| tables.timers(&scope, job))
    }

    fn expired(&self, after: Option<ExpiredLease>, limit: usize) -> Boxed<'_, Result<Vec<ExpiredLease>, StoreError>> {
        self.read(|tables| tables.expired(after, limit, self.now(tables)))
    }

    fn held_by(
        &self,
        instance: InstanceId,
        after: Option<JobId>,
        limit: usize,
    ) -> Boxed<'_, Result<Vec<(JobId, Fence)>, StoreError>> {
        self.read(|tables| tables.held_by(instance, after, limit))
    }

    fn status(&self) -> Boxed<'_, Result<StoreStatus, StoreError>> {
        self.read(|tables| tables.status(self.now(tables)))
    }

    fn health(&self) -> Boxed<'_, Result<Health, StoreError>> {
        self.read(|_| Health::good())
    }

    fn bus(&self) -> &Bus {
        &self.bus
    }
}
