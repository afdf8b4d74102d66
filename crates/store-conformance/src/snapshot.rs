//! Everything that can be read of a store, to be compared.

use aetheris_core::id::{InstanceId, JobId};
use aetheris_core::lease::Fence;
use aetheris_core::limits;

use aetheris_store::{
    AgentRow, DoubtFilter, DoubtRow, DueTimers, EventRow, Evidence, ExpiredLease, History, JobRow, PlanDocument, Store,
    StoreStatus, TimerRow, WriterStats,
};

/// One job.
#[derive(Debug, Clone, PartialEq)]
pub struct JobSnapshot {
    /// What holds it up in its session.
    pub ahead: Option<JobRow>,
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
    /// Agents and their plans.
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
    /// All rows, newest first.
    pub jobs: Vec<JobRow>,
    /// Clock and counts, without what backends count differently.
    pub status: StoreStatus,
}

/// Reads everything of one job.
pub async fn of_job(store: &dyn Store, job: JobId) -> JobSnapshot {
    JobSnapshot {
        ahead: store.ahead_in_session(job).await.unwrap(),
        events: events(store, job).await,
        evidence: store.evidence(job).await.unwrap(),
        folded: store.history(job, false).await.unwrap(),
        full: store.history(job, true).await.unwrap(),
        row: store.job(job).await.unwrap(),
        timers: store.timers(job).await.unwrap(),
    }
}

/// Reads all events of one job, page by page.
pub async fn events(store: &dyn Store, job: JobId) -> Vec<EventRow> {
    let mut all: Vec<EventRow> = Vec::new();
    loop {
        let after = all.last().map_or(0, |row| row.seq);
        let page = store.events(job, after, limits::PAGE_EVENTS_MAX).await.unwrap();
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
    for row in store.agents(None, limits::PAGE_JOBS_MAX).await.unwrap().agents {
        let plan = store.plan(row.agent.plan.hash()).await.unwrap();
        agents.push((row, plan));
    }
    let mut held = Vec::new();
    for instance in instances {
        held.push(store.held_by(*instance, None, limits::SWEEP_ROWS_MAX).await.unwrap());
    }
    let status = store.status().await.unwrap();
    let doubts = async |unresolved| {
        let filter = DoubtFilter { limit: limits::PAGE_JOBS_MAX, unresolved, ..DoubtFilter::default() };
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
        status: StoreStatus { backend: "", durability: String::new(), writer: WriterStats::default(), ..status },
    }
}
