//! Why a job is where it is: a function of its row, its state and what else the store holds.

use aetheris_api::{WhyCode, WhyView};
use aetheris_core::event::{EndCause, PauseReason};
use aetheris_core::job::JobStatus;
use aetheris_core::plan::WaitType;
use aetheris_core::state::{JobState, StepState};
use aetheris_core::step::StepStatus;
use aetheris_core::time::Timestamp;
use aetheris_store::{JobFilter, JobRow, Store, StoreError};

use crate::view;

/// The states in which a job stands before later ones of its session.
const OPEN: [JobStatus; 5] =
    [JobStatus::Running, JobStatus::Waiting, JobStatus::Parked, JobStatus::Paused, JobStatus::Pending];

/// What else than the job itself has a say.
#[derive(Debug, Clone, Default)]
pub(crate) struct Around {
    /// An earlier job of the session that has not ended.
    pub(crate) before: Option<JobRow>,
    /// The store's clock.
    pub(crate) now: Timestamp,
    /// Jobs that workers hold.
    pub(crate) running: u64,
}

impl Around {
    /// Looks at what is around a job.
    pub(crate) async fn read(store: &dyn Store, row: &JobRow) -> Result<Self, StoreError> {
        let status = store.status().await?;
        let running = status.jobs.get(&JobStatus::Running).copied().unwrap_or(0);
        let before = match (&row.session, row.status) {
            (Some(_), JobStatus::Pending) => earlier(store, row).await?,
            (Some(_) | None, _) => None,
        };
        Ok(Self { before, now: status.now, running })
    }
}

/// The job of the same session that this one waits for: one that has begun, else the oldest that has not.
async fn earlier(store: &dyn Store, row: &JobRow) -> Result<Option<JobRow>, StoreError> {
    for status in OPEN {
        let filter = JobFilter {
            agent: Some(row.agent.clone()),
            limit: aetheris_core::limits::PAGE_JOBS_MAX,
            session: row.session.clone(),
            statuses: vec![status],
            ..JobFilter::default()
        };
        let others = store.jobs(filter).await?.jobs.into_iter().filter(|other| other.id != row.id);
        let oldest = match status {
            JobStatus::Pending => others.filter(|other| other.id < row.id).min_by_key(|other| other.id),
            _ => others.min_by_key(|other| other.id),
        };
        if oldest.is_some() {
            return Ok(oldest);
        }
    }
    Ok(None)
}

/// The reasons, the one that counts most first. A job is never without one.
pub(crate) fn reasons(row: &JobRow, state: &JobState, around: &Around) -> Vec<WhyView> {
    match row.status {
        JobStatus::Completed | JobStatus::Failed | JobStatus::Cancelled => vec![ended(row)],
        JobStatus::Waiting | JobStatus::Parked => vec![blocked(row, state)],
        JobStatus::Running => vec![held(row, state, around.now)],
        JobStatus::Paused => paused(row),
        JobStatus::Pending => pending(row, state, around),
    }
}

fn paused(row: &JobRow) -> Vec<WhyView> {
    let (reason, since) = row.paused.unwrap_or((PauseReason::Operator, row.updated_at));
    let (code, detail) = match reason {
        PauseReason::Operator => (WhyCode::PausedBy, "somebody has paused it"),
        PauseReason::Restored => (WhyCode::RestoredHold, "the store was restored: look at what it did since, first"),
    };
    let advice = format!("aetheris resume {}", row.id);
    vec![WhyView { code, detail: detail.to_owned(), advice, since, until: None }]
}

fn ended(row: &JobRow) -> WhyView {
    let detail = match &row.error {
        Some((error, Some(node))) => format!("{} at {node}: {}: {}", row.status.as_str(), error.code, error.message),
        Some((error, None)) => format!("{}: {}: {}", row.status.as_str(), error.code, error.message),
        None => row.status.as_str().to_owned(),
    };
    let advice = format!("aetheris trace {}", row.id);
    WhyView { code: WhyCode::Ended, detail, advice, since: row.updated_at, until: None }
}

fn blocked(row: &JobRow, state: &JobState) -> WhyView {
    let Some(waiting) = view::waiting(row, state) else {
        // Its row says that it waits and not for what: what is stored does not add up.
        let detail = "its record does not say what it waits for".to_owned();
        let advice = format!("aetheris verify {}", row.id);
        return WhyView { code: WhyCode::WaitingSignal, detail, advice, since: row.updated_at, until: None };
    };
    let node = &waiting.node_id;
    let reason = waiting.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let key = waiting.correlation_key.as_deref().unwrap_or_default();
    let signal = format!("aetheris signal {} {key} PAYLOAD", row.id);
    let (code, detail, advice) = match (waiting.doubt, waiting.wait_type) {
        (true, _) => {
            let doubt = state.steps.get(node).and_then(|step| step.doubt.as_ref());
            let why = doubt.map(|doubt| format!(": {}", doubt.reason)).unwrap_or_default();
            let detail = format!("{node} has made a call whose outcome is unknown{why}");
            (WhyCode::InDoubt, detail, "aetheris in-doubt".to_owned())
        }
        (false, WaitType::Human) => (WhyCode::WaitingApproval, format!("{node} waits for a person{reason}"), signal),
        (false, WaitType::Signal) => (WhyCode::WaitingSignal, format!("{node} waits for a signal{reason}"), signal),
        (false, WaitType::Webhook) => (WhyCode::WaitingSignal, format!("{node} waits for a webhook{reason}"), signal),
        (false, WaitType::Timer) => {
            let detail = format!("{node} waits for time to pass{reason}");
            (WhyCode::WaitingTime, detail, format!("aetheris watch {}", row.id))
        }
    };
    let since = waiting.since.unwrap_or(row.updated_at);
    WhyView { code, detail, advice, since, until: waiting.deadline }
}

fn held(row: &JobRow, state: &JobState, now: Timestamp) -> WhyView {
    let advice = format!("aetheris watch {}", row.id);
    let Some(holder) = &row.holder else {
        let detail = "it is claimed, and its holder is not recorded".to_owned();
        let advice = format!("aetheris verify {}", row.id);
        return WhyView { code: WhyCode::HeldBy, detail, advice, since: row.updated_at, until: None };
    };
    let step = state.steps.iter().find(|(_, step)| step.status == StepStatus::Running);
    let since = step.and_then(|(_, step)| step.started_at).unwrap_or(row.updated_at);
    if holder.lease_until <= now {
        let detail = format!("{} has lost its lease; a sweep is about to take the job back", holder.worker);
        let since = holder.lease_until;
        return WhyView { code: WhyCode::LeaseExpiredUnreclaimed, detail, advice, since, until: None };
    }
    let doing = step.map(|(node, step)| format!(" and runs {node}{}", tries(step))).unwrap_or_default();
    let ending = match row.end_requested {
        Some(EndCause::Cancel) => "; asked to cancel",
        Some(EndCause::Deadline) => "; its deadline has passed",
        Some(EndCause::Pause) => "; asked to pause",
        None => "",
    };
    let detail = format!("{} holds it{doing}{ending}", holder.worker);
    WhyView { code: WhyCode::HeldBy, detail, advice, since, until: Some(holder.lease_until) }
}

fn tries(step: &StepState) -> String {
    if step.tries > 1 { format!(", try {}", step.tries) } else { String::new() }
}

fn pending(row: &JobRow, state: &JobState, around: &Around) -> Vec<WhyView> {
    let mut reasons = Vec::new();
    if let Some(at) = row.not_before.filter(|at| *at > around.now) {
        reasons.push(later(row, state, at));
    }
    if let Some(before) = &around.before {
        reasons.push(WhyView {
            code: WhyCode::SessionBusy,
            detail: format!("its session is busy: {} is {} and comes first", before.id, before.status.as_str()),
            advice: format!("aetheris why {}", before.id),
            since: row.created_at,
            until: None,
        });
    }
    if !reasons.is_empty() {
        return reasons;
    }
    let since = row.not_before.map_or(row.updated_at, |at| at.max(row.updated_at));
    let (code, detail, advice) = if around.running == 0 {
        let detail = "it is ready, and no worker holds any job: one that runs takes it within its poll_interval";
        (WhyCode::NoWorker, detail.to_owned(), "aetheris worker --config FILE".to_owned())
    } else {
        let held = around.running;
        let detail = format!("it is ready and takes the next free slot; workers hold {held} other jobs");
        (WhyCode::NoSlot, detail, "aetheris jobs --status running".to_owned())
    };
    vec![WhyView { code, detail, advice, since, until: None }]
}

/// It is claimable later: after a back-off, or because it was sent so.
fn later(row: &JobRow, state: &JobState, at: Timestamp) -> WhyView {
    let retrying = state.steps.iter().find(|(_, step)| step.status == StepStatus::Retrying);
    let advice = format!("aetheris trace {}", row.id);
    match retrying {
        Some((node, step)) => {
            let error = step.error.as_ref().map(|error| format!(": {}: {}", error.code, error.message));
            let detail = format!("try {} of {node} failed and is tried again{}", step.tries, error.unwrap_or_default());
            WhyView { code: WhyCode::RetryBackoff, detail, advice, since: row.updated_at, until: Some(at) }
        }
        None => {
            let detail = "it was sent for later".to_owned();
            let advice = format!("aetheris watch {}", row.id);
            WhyView { code: WhyCode::NotBefore, detail, advice, since: row.created_at, until: Some(at) }
        }
    }
}
