//! Everything that can be read of a store, to be compared.

use aetheris_core::id::{InstanceId, JobId, TenantId};
use aetheris_core::lease::Fence;
use aetheris_core::limits;

use aetheris_store::{
    AgentRow, ChildRow, DoubtFilter, DoubtRow, DueTimers, EventRow, Evidence, ExpiredLease, History, JobFilter, JobRow,
    PlanDocument, PromiseRow, Scope, Store, StoreStatus, TimerRow, WriterStats,
};

/// Whose jobs the differential runs have.
pub const TENANTS: [&str; 2] = [TenantId::DEFAULT, "other"];

/// One job.
#[derive(Debug, Clone, PartialEq)]
pub struct JobSnapshot {
    /// What holds it up in its session.
    pub ahead: Option<JobRow>,
    /// The jobs that it has asked for.
    pub children: Vec<ChildRow>,
    /// Its events as they are stored.
    pub events: Vec<EventRow>,
    /// What came too late.
    pub evidence: Vec<Evidence>,
    /// What a fold begins with.
    pub folded: Option<History>,
    /// Its rows, and all events.
    pub full: Option<History>,
    /// Its row.
    pub row: Option<JobRow>,
    /// Its timers.
    pub timers: Vec<TimerRow>,
}

/// What is read across jobs.
#[derive(Debug, Clone, PartialEq)]
pub struct Overview {
    /// Agents of both tenants and their plans.
    pub agents: Vec<(AgentRow, Option<PlanDocument>)>,
    /// Calls in doubt.
    pub doubts: Vec<DoubtRow>,
    /// Calls that their job's end has left unresolved.
    pub unresolved: Vec<DoubtRow>,
    /// Due timers.
    pub due: DueTimers,
    /// Expired leases.
    pub expired: Vec<ExpiredLease>,
    /// What each instance holds.
    pub held: Vec<Vec<(JobId, Fence)>>,
    /// Everybody's rows, newest first.
    pub jobs: Vec<JobRow>,
    /// What was promised and is not done.
    pub outbox: Vec<PromiseRow>,
    /// What each tenant is shown of them, and of the calls in doubt.
    pub shown: Vec<(Vec<JobId>, Vec<JobId>)>,
    /// Clock and counts, without what backends count differently.
    pub status: StoreStatus,
}

/// Reads everything of one job.
pub async fn of_job(store: &dyn Store, job: JobId) -> JobSnapshot {
    JobSnapshot {
        ahead: store.ahead_in_session(Scope::System, job).await.unwrap(),
        children: store.children(Scope::System, job, None, limits::PAGE_JOBS_MAX).await.unwrap().children,
        events: events(store, job).await,
        evidence: store.evidence(Scope::System, job).await.unwrap(),
        folded: store.history(Scope::System, job, false).await.unwrap(),
        full: store.history(Scope::System, job, true).await.unwrap(),
        row: store.job(Scope::System, job).await.unwrap(),
        timers: store.timers(Scope::System, job).await.unwrap(),
    }
}

/// Reads all events of one job, page by page.
pub async fn events(store: &dyn Store, job: JobId) -> Vec<EventRow> {
    let mut all: Vec<EventRow> = Vec::new();
    loop {
        let after = all.last().map_or(0, |row| row.seq);
        let page = store.events(Scope::System, job, after, limits::PAGE_EVENTS_MAX).await.unwrap();
        if page.is_empty() {
            return all;
        }
        all.extend(page);
    }
}

/// Reads all rows of jobs.
pub async fn jobs(store: &dyn Store) -> Vec<JobRow> {
    aetheris_store::every_job(store).await.unwrap()
}

/// Reads everything that is across jobs.
pub async fn overview(store: &dyn Store, instances: &[InstanceId]) -> Overview {
    let mut agents = Vec::new();
    let mut shown = Vec::new();
    for tenant in TENANTS.map(TenantId::from) {
        for row in store.agents(tenant.clone(), None, limits::PAGE_JOBS_MAX).await.unwrap().agents {
            let plan = store.plan(row.agent.plan.hash()).await.unwrap();
            agents.push((row, plan));
        }
        let (scope, limit) = (Scope::Tenant(tenant), limits::PAGE_JOBS_MAX);
        let page = store.jobs(JobFilter { limit, scope: scope.clone(), ..JobFilter::default() }).await.unwrap();
        let doubts = store.doubts(DoubtFilter { limit, scope, ..DoubtFilter::default() }).await.unwrap().doubts;
        let of = |doubt: DoubtRow| doubt.call.job;
        shown.push((page.jobs.iter().map(|row| row.id).collect(), doubts.into_iter().map(of).collect()));
    }
    let mut held = Vec::new();
    for instance in instances {
        held.push(store.held_by(*instance, None, limits::SWEEP_ROWS_MAX).await.unwrap());
    }
    let status = store.status().await.unwrap();
    let doubts = async |unresolved| {
        let filter =
            DoubtFilter { limit: limits::PAGE_JOBS_MAX, scope: Scope::System, unresolved, ..DoubtFilter::default() };
        store.doubts(filter).await.unwrap().doubts
    };
    Overview {
        agents,
        doubts: doubts(None).await,
        unresolved: doubts(Some(true)).await,
        due: store.due_timers(None, limits::SWEEP_ROWS_MAX).await.unwrap(),
        expired: store.expired(None, limits::SWEEP_ROWS_MAX).await.unwrap(),
        held,
        jobs: jobs(store).await,
        outbox: store.outbox(None, limits::SWEEP_ROWS_MAX).await.unwrap(),
        shown,
        status: StoreStatus { backend: "", durability: String::new(), writer: WriterStats::default(), ..status },
    }
}
