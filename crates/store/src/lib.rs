//! The store port: the one door for writes, claims and renewals, and the reads beside them.
//!
//! Reading order: [`unit`] (what one write is), [`claim`] (ownership), [`query`] (reads), [`error`]
//! (what can go wrong, and what is known then), [`scope`] (on whose behalf), [`decide`] (whether a write is accepted
//! and what it writes, for every backend) and the single [`rules`] that it asks,
//! [`bus`] (wake-ups, which are never facts), [`health`] (what readiness asks), [`clock`] (what a store
//! makes of a host's clocks), [`system`] (the only file that reads clocks and entropy), [`amiss`] (what a check asks for), [`repeats`] (what is
//! not logged again at every look), [`kept`] (a cache bounded by bytes), [`vital`] (what a process cannot live without). [`memory`] is the
//! reference model; [`faulty`] wraps any store with the failures that naive code does not survive.
//! `CONTRACT.md` beside this crate has the numbered clauses that every backend keeps, and the crate
//! `aetheris-store-conformance` proves them.

pub mod amiss;
pub mod bus;
pub mod claim;
pub mod clock;
pub mod decide;
pub mod differences;
pub mod doubt;
pub mod error;
pub mod faulty;
pub mod health;
pub mod kept;
pub mod memory;
pub mod outbox;
pub mod query;
pub mod repeats;
pub mod rules;
pub mod scope;
pub mod system;
mod through;
pub mod unit;
pub mod vital;

use std::future::Future;
use std::pin::Pin;

use aetheris_core::hash::Hash;
use aetheris_core::id::{AgentName, IdempotencyKey, InstanceId, JobId, TenantId};
use aetheris_core::lease::Fence;
use aetheris_core::time::Timestamp;

pub use amiss::Amiss;
pub use bus::Bus;
pub use claim::{ClaimIds, ClaimRequest, Claimed, Heartbeat, LeaseRenewal, Renewal};
pub use differences::{Difference, differences};
pub use doubt::{Asked, DoubtCursor, DoubtFilter, DoubtPage, DoubtRow, Told};
pub use error::{CommitError, ErrorKind, Refusal, StoreError};
pub use health::{FailedWrite, FileHealth, Health, WriterHealth};
pub use outbox::{ChildPage, ChildRow, PromiseRow};
pub use query::{
    AgentPage, AgentRow, BlockedOn, Dossier, Dossiers, DueTimers, EffectRow, EventRow, Evidence, ExpiredLease, Glance,
    History, JobFilter, JobPage, JobRow, KeptHead, KeptSignal, NewAgent, Placing, PlanDocument, PutAgent, StoreStatus,
    TimerRow, Unreadable, WaitPage, WaitRow, WriterStats,
};
pub use scope::Scope;
pub use unit::{
    Checkpoint, ChildOf, Committed, ExpectedSignals, InboxWrite, LeaseChange, LedgerWrite, NewEffect, NewJob, Purpose,
    UnitOfWork,
};

/// A boxed future: beside a disk or a network round trip its allocation is free.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Where facts live. Every method is safe to call from many tasks at once.
///
/// Questions about a job or a list say on whose behalf they are asked ([`Scope`]); names that clients give are names within
/// a tenant. The others are the process's own, and are about everybody.
///
/// Nothing is answered before it is durable. A future of this trait is never to be dropped half-way:
/// a task owns it, and no timeout surrounds it.
pub trait Store: Send + Sync + 'static {
    /// Writes one unit of work of one job: all of it, or nothing.
    ///
    /// # Errors
    /// [`CommitError`] says whether it was refused, has failed, or may have been written.
    fn commit(&self, unit: UnitOfWork) -> Boxed<'_, Result<Committed, CommitError>>;

    /// Whether the unit with these ids was written: the answer to [`CommitError::Unknown`]. It waits for
    /// any write in flight that could still bring it.
    ///
    /// # Errors
    /// The store cannot be asked now.
    fn resolve_unknown(&self, unit: &UnitOfWork) -> Boxed<'_, Result<Option<Committed>, StoreError>>;

    /// Takes ownership of claimable jobs: at most one per id pair given, highest priority first, then
    /// oldest. May linger until some become claimable. The claim is durable when this answers.
    ///
    /// # Errors
    /// The store cannot be asked now; nothing is known to be claimed, and what was claimed all the same
    /// expires.
    fn claim(&self, request: ClaimRequest) -> Boxed<'_, Result<Vec<Claimed>, StoreError>>;

    /// Renews leases: each only where fence and worker match and it has not expired.
    ///
    /// # Errors
    /// The store cannot be asked now; nothing is known of the leases.
    fn heartbeat(&self, request: Heartbeat) -> Boxed<'_, Result<Vec<Renewal>, StoreError>>;

    /// Puts an agent, with its plan document, in place of any of that name of its tenant.
    ///
    /// # Errors
    /// The store cannot be asked now.
    fn put_agent(&self, agent: NewAgent) -> Boxed<'_, Result<PutAgent, StoreError>>;

    /// Takes an agent away; jobs keep their plans. Whether there was one.
    ///
    /// # Errors
    /// The store cannot be asked now.
    fn delete_agent(&self, tenant: TenantId, name: AgentName) -> Boxed<'_, Result<bool, StoreError>>;

    /// All that is needed to fold a job, in one consistent read from its newest checkpoint on, where it is short
    /// ([`LOOK_EVENTS_MAX`](aetheris_core::limits::LOOK_EVENTS_MAX) events,
    /// [`LOOK_BYTES_MAX`](aetheris_core::limits::LOOK_BYTES_MAX) bytes). It waits behind no long read.
    ///
    /// # Errors
    /// The store cannot be asked now, or what it has cannot be read.
    fn glance(&self, scope: Scope, job: JobId) -> Boxed<'_, Result<Option<Glance>, StoreError>>;

    /// All that is needed to fold a job, however long it is, in one consistent read: from its newest checkpoint on, or from
    /// the first event with `full`.
    ///
    /// # Errors
    /// The store cannot be asked now, or what it has cannot be read.
    fn history(&self, scope: Scope, job: JobId, full: bool) -> Boxed<'_, Result<Option<History>, StoreError>>;

    /// What a job has behind an event, in one consistent read: the events, all kept signals and ledger rows, the row, and
    /// of the effects at least those that were recorded at this time or later. No checkpoint.
    ///
    /// # Errors
    /// The store cannot be asked now, or what it has cannot be read.
    fn history_behind(
        &self,
        scope: Scope,
        job: JobId,
        seq: u64,
        since: Timestamp,
    ) -> Boxed<'_, Result<Option<History>, StoreError>>;

    /// Everything about the jobs that came as number `from` and later, below `to`, each as it is at one moment. It may
    /// stop earlier, behind a large one or many: `next` is the first that was not read.
    ///
    /// # Errors
    /// The store cannot be asked now. A job that cannot be read is among the answers.
    fn dossiers(&self, from: u64, to: u64) -> Boxed<'_, Result<Dossiers, StoreError>>;

    /// A job's row.
    ///
    /// # Errors
    /// The store cannot be asked now.
    fn job(&self, scope: Scope, job: JobId) -> Boxed<'_, Result<Option<JobRow>, StoreError>>;

    /// The job that holds this one up in its session: the first unfinished one of them all, if it came before this one.
    ///
    /// # Errors
    /// The store cannot be asked now.
    fn ahead_in_session(&self, scope: Scope, job: JobId) -> Boxed<'_, Result<Option<JobRow>, StoreError>>;

    /// A page of jobs, newest first.
    ///
    /// # Errors
    /// The store cannot be asked now.
    fn jobs(&self, filter: JobFilter) -> Boxed<'_, Result<JobPage, StoreError>>;

    /// The job that a client's key has made, and the hash of the request that made it. A key belongs to an agent of a tenant.
    ///
    /// # Errors
    /// The store cannot be asked now.
    fn client_key(
        &self,
        tenant: TenantId,
        agent: AgentName,
        key: String,
    ) -> Boxed<'_, Result<Option<(JobId, Hash)>, StoreError>>;

    /// A page of blocked jobs, with the times of their waits and without their histories. Of a filter that does not ask
    /// for blocked jobs, those that are.
    ///
    /// # Errors
    /// The store cannot be asked now.
    fn waits(&self, filter: JobFilter) -> Boxed<'_, Result<WaitPage, StoreError>>;

    /// The effect of an invocation: the newest permit's, if it has one.
    ///
    /// # Errors
    /// The store cannot be asked now, or what it has cannot be read.
    fn effect(&self, scope: Scope, job: JobId, key: IdempotencyKey)
    -> Boxed<'_, Result<Option<EffectRow>, StoreError>>;

    /// A page of a job's events, from the one after `after` on: it ends at `limit`, and with the event that brings
    /// its payloads to [`aetheris_core::limits::PAGE_EVENTS_BYTES_MAX`]. An empty one is the last.
    ///
    /// # Errors
    /// The store cannot be asked now.
    fn events(
        &self,
        scope: Scope,
        job: JobId,
        after: u64,
        limit: usize,
    ) -> Boxed<'_, Result<Vec<EventRow>, StoreError>>;

    /// An agent of a tenant.
    ///
    /// # Errors
    /// The store cannot be asked now.
    fn agent(&self, tenant: TenantId, name: AgentName) -> Boxed<'_, Result<Option<AgentRow>, StoreError>>;

    /// A page of a tenant's agents, by name, behind `after`.
    ///
    /// # Errors
    /// The store cannot be asked now.
    fn agents(
        &self,
        tenant: TenantId,
        after: Option<AgentName>,
        limit: usize,
    ) -> Boxed<'_, Result<AgentPage, StoreError>>;

    /// A plan document.
    ///
    /// # Errors
    /// The store cannot be asked now.
    fn plan(&self, hash: Hash) -> Boxed<'_, Result<Option<PlanDocument>, StoreError>>;

    /// A page of calls in doubt, oldest first, each with its job and what that tells of the doubt, without folding it.
    ///
    /// # Errors
    /// The store cannot be asked now.
    fn doubts(&self, filter: DoubtFilter) -> Boxed<'_, Result<DoubtPage, StoreError>>;

    /// Everybody's invocations in doubt, oldest first.
    ///
    /// # Errors
    /// The store cannot be asked now.
    fn in_doubt(&self, limit: usize) -> Boxed<'_, Result<Vec<aetheris_core::ledger::LedgerRow>, StoreError>>;

    /// Everybody's calls whose outcome was left unknown, oldest first: given up, or still in doubt when their job ended.
    ///
    /// # Errors
    /// The store cannot be asked now.
    fn unresolved(&self, limit: usize) -> Boxed<'_, Result<Vec<aetheris_core::ledger::LedgerRow>, StoreError>>;

    /// What arrived for a permit that was not the current one any more.
    ///
    /// # Errors
    /// The store cannot be asked now.
    fn evidence(&self, scope: Scope, job: JobId) -> Boxed<'_, Result<Vec<Evidence>, StoreError>>;

    /// The first [`aetheris_core::limits::KEPT_SHOWN_MAX`] signals of a job that are kept, as they came and without what
    /// they bring.
    ///
    /// # Errors
    /// The store cannot be asked now.
    fn kept(&self, scope: Scope, job: JobId) -> Boxed<'_, Result<Vec<KeptHead>, StoreError>>;

    /// A page of the jobs that a job has asked for, as they were created, behind one of them.
    ///
    /// # Errors
    /// The store cannot be asked now.
    fn children(
        &self,
        scope: Scope,
        job: JobId,
        after: Option<JobId>,
        limit: usize,
    ) -> Boxed<'_, Result<ChildPage, StoreError>>;

    /// What was promised and is not done, oldest first, that after `after` only.
    ///
    /// # Errors
    /// The store cannot be asked now.
    fn outbox(&self, after: Option<u64>, limit: usize) -> Boxed<'_, Result<Vec<PromiseRow>, StoreError>>;

    /// What a job has promised about another and is not done, oldest first.
    ///
    /// # Errors
    /// The store cannot be asked now.
    fn promised(&self, author: JobId, target: JobId) -> Boxed<'_, Result<Vec<PromiseRow>, StoreError>>;

    /// Timers that are due, in the order of their moments, those after `after` only; and when the next one is that
    /// is not due yet.
    ///
    /// # Errors
    /// The store cannot be asked now.
    fn due_timers(&self, after: Option<TimerRow>, limit: usize) -> Boxed<'_, Result<DueTimers, StoreError>>;

    /// A job's timer rows.
    ///
    /// # Errors
    /// The store cannot be asked now.
    fn timers(&self, scope: Scope, job: JobId) -> Boxed<'_, Result<Vec<TimerRow>, StoreError>>;

    /// Leases that have expired, the longest over first, those after `after` only.
    ///
    /// # Errors
    /// The store cannot be asked now.
    fn expired(&self, after: Option<ExpiredLease>, limit: usize) -> Boxed<'_, Result<Vec<ExpiredLease>, StoreError>>;

    /// Jobs held by one instance, by id, those after `after` only.
    ///
    /// # Errors
    /// The store cannot be asked now.
    fn held_by(
        &self,
        instance: InstanceId,
        after: Option<JobId>,
        limit: usize,
    ) -> Boxed<'_, Result<Vec<(JobId, Fence)>, StoreError>>;

    /// The store's clock, counts and settings.
    ///
    /// # Errors
    /// The store cannot be asked now.
    fn status(&self) -> Boxed<'_, Result<StoreStatus, StoreError>>;

    /// Whether each of its parts can do its work now. Never longer than [`aetheris_core::limits::HEALTH_PATIENCE`]
    /// for the writer.
    ///
    /// # Errors
    /// The store cannot be asked now.
    fn health(&self) -> Boxed<'_, Result<Health, StoreError>>;

    /// What the parts of this process tell each other; never facts.
    fn bus(&self) -> &Bus;
}

/// The rows of everybody's jobs, newest first, page by page. For tests and checks: a server asks for one page.
///
/// # Errors
/// [`StoreError`] of any page.
pub async fn every_job(store: &dyn Store) -> Result<Vec<JobRow>, StoreError> {
    let mut jobs = Vec::new();
    let mut before = None;
    loop {
        let limit = aetheris_core::limits::PAGE_JOBS_MAX;
        let page = store.jobs(JobFilter { before, limit, scope: Scope::System, ..JobFilter::default() }).await?;
        jobs.extend(page.jobs);
        before = page.next;
        if before.is_none() {
            return Ok(jobs);
        }
    }
}
