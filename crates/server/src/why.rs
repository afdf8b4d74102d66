//! Why a job is where it is: a function of its row, its state and what else the store holds.

use aetheris_api::{AnsweredBy, Command, InDoubtNext, WaitingView, WhyCode, WhyView};
use aetheris_core::event::{DoubtOutcome, EndCause, PauseReason, TimerId};
use aetheris_core::job::JobStatus;
use aetheris_core::path::StepPath;
use aetheris_core::plan::{CompiledPlan, EffectClass, WaitType};
use aetheris_core::recovery::{DoubtNext, DoubtStands, doubt_next};
use aetheris_core::state::{Doubt, JobState, StepState};
use aetheris_core::step::StepStatus;
use aetheris_core::time::Timestamp;
use aetheris_store::{FailedWrite, JobRow, KeptHead, Scope, Store, StoreError};

use crate::outline::Outlined;
use crate::view;

/// What else than the job itself has a say.
#[derive(Debug, Clone, Default)]
pub(crate) struct Around {
    /// The job of its session whose turn it is, if it is an earlier one.
    pub(crate) before: Option<JobRow>,
    /// The last claim that this process made, if it failed; looked at where nobody holds any job.
    pub(crate) failed_claim: Option<FailedWrite>,
    /// The number of the store's life.
    pub(crate) generation: u32,
    /// The signals that are kept for the job.
    pub(crate) kept: Vec<KeptHead>,
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
        let pending = row.status == JobStatus::Pending;
        // A paused one keeps its place.
        let queues = matches!(row.status, JobStatus::Pending | JobStatus::Paused);
        // What is around a job is of its own tenant.
        let scope = Scope::Tenant(row.tenant.clone());
        let before = if queues { store.ahead_in_session(scope.clone(), row.id).await? } else { None };
        let kept = if row.status.is_terminal() { Vec::new() } else { store.kept(scope, row.id).await? };
        let (generation, now) = (status.generation, status.now);
        let around = Self { before, failed_claim: None, generation, kept, now, running };
        if !pending || running > 0 || !around.is_ready(row) {
            return Ok(around);
        }
        Ok(Self { failed_claim: store.health().await?.last_claim, ..around })
    }

    /// Whether nothing keeps a pending job from being claimed.
    fn is_ready(&self, row: &JobRow) -> bool {
        self.before.is_none() && row.not_before.is_none_or(|at| at <= self.now)
    }
}

/// The reasons, the one that counts most first. A job is never without one.
pub(crate) fn reasons(outlined: &Outlined, plan: Option<&CompiledPlan>, around: &Around) -> Vec<WhyView> {
    let (row, state) = (&outlined.row, outlined.state());
    let mut reasons = match row.status {
        JobStatus::Completed | JobStatus::Failed | JobStatus::Cancelled => vec![ended(row, state)],
        JobStatus::Waiting | JobStatus::Parked => blocked(row, state, plan),
        JobStatus::Running => vec![held(row, state, plan, around.now)],
        JobStatus::Paused => paused(outlined, plan, around),
        JobStatus::Pending => pending(row, state, around),
    };
    if let Some(reason) = reasons.first_mut() {
        reason.kept = around.kept.iter().map(view::kept).collect();
    }
    reasons
}

/// The hold, and what keeps the job from going on once it is let go: an answer counts while it is paused.
fn paused(outlined: &Outlined, plan: Option<&CompiledPlan>, around: &Around) -> Vec<WhyView> {
    let (row, state) = (&outlined.row, outlined.state());
    let (reason, since) = row.paused.unwrap_or((PauseReason::Operator, row.updated_at));
    let (code, detail) = match reason {
        PauseReason::Operator if view::paused(row, around.generation).is_some_and(|paused| paused.before_restore) => (
            WhyCode::RestoredHold,
            "paused by an operator, and not run since a restore: first check what the job did after the backup was taken",
        ),
        PauseReason::Operator => (WhyCode::PausedBy, "paused by an operator"),
        PauseReason::Restored => {
            (WhyCode::RestoredHold, "held after a restore: first check what the job did after the backup was taken")
        }
    };
    let detail = detail.to_owned() + &answered(outlined).unwrap_or_default();
    let mut reasons = vec![WhyView::new(code, detail, &Command::Resume(row.id), since)];
    if row.waiting.is_some() {
        reasons.extend(blocked(row, state, plan));
    } else {
        // Paused before it was parked for its doubts: nothing of the row names them.
        reasons.extend(state.steps.iter().filter_map(|(node, step)| {
            let since = step.doubt.as_deref().map_or(row.updated_at, |doubt| doubt.since);
            let detail = doubted(row, plan, node, step)?;
            Some(WhyView::new(WhyCode::InDoubt, detail, &Command::InDoubtOf(row.id), since))
        }));
        reasons.extend(not_yet(row, state, around));
    }
    reasons
}

/// What the job goes on with: whoever lets it go wants to know.
fn answered(outlined: &Outlined) -> Option<String> {
    let (node, answered) = outlined.answers().open(outlined.state()).max_by_key(|(_, told)| told.at)?;
    let at = answered.at.to_the_second();
    // When a call was made, and whether, is not when somebody has said so.
    Some(match answered.by {
        AnsweredBy::DidNotHappen => format!("; answered at {at}: the call of {node} did not happen"),
        AnsweredBy::Happened => format!("; answered at {at}: the call of {node} happened"),
        AnsweredBy::Signal => format!("; the wait of {node} has ended with a signal at {at}"),
        AnsweredBy::Time => format!("; the wait of {node} has ended with its time at {at}"),
    })
}

/// That a step's call is in doubt, in a job that has not blocked on it.
fn doubted(row: &JobRow, plan: Option<&CompiledPlan>, node: &StepPath, step: &StepState) -> Option<String> {
    let call = step.invocation.as_deref().filter(|call| call.is_doubted(step.status))?;
    let tool = plan.and_then(|plan| plan.tool(&call.tool));
    let policy = tool.zip(step.doubt.as_deref()).and_then(|(tool, doubt)| tool.policy_at(doubt.policy));
    let next = doubt_next(row.status, call.class, DoubtStands::At(policy));
    Some(unknown(node, step.doubt.as_deref(), next))
}

/// That the outcome of a call is unknown, and where nobody need act yet.
fn unknown(node: &StepPath, doubt: Option<&Doubt>, next: DoubtNext) -> String {
    let why = doubt.map(|doubt| format!(": {}", doubt.reason)).unwrap_or_default();
    let by_itself = InDoubtNext::from(next).nothing_to_do().map(|told| format!("; {told}")).unwrap_or_default();
    format!("{node} has made a call whose outcome is unknown{why}{by_itself}")
}

fn ended(row: &JobRow, state: &JobState) -> WhyView {
    let mut detail = match &row.error {
        Some((error, Some(node))) => format!("{} at {node}: {}: {}", row.status.as_str(), error.code, error.message),
        Some((error, None)) => format!("{}: {}: {}", row.status.as_str(), error.code, error.message),
        None => row.status.as_str().to_owned(),
    };
    let open = |step: &StepState| step.left_in_doubt(state.status) == Some(DoubtOutcome::Unresolved);
    let advice = match state.steps.iter().find(|(_, step)| open(step)) {
        Some((node, _)) => {
            detail.push_str(&format!("; the call of {node} is still in doubt"));
            Command::Unresolved(row.id)
        }
        None => Command::Trace(row.id),
    };
    for (node, step) in &state.steps {
        match step.left_in_doubt(state.status) {
            Some(DoubtOutcome::Happened) => detail.push_str(&format!("; the call of {node} happened")),
            Some(DoubtOutcome::DidNotHappen) => detail.push_str(&format!("; the call of {node} did not happen")),
            Some(DoubtOutcome::Unresolved) | None => {}
        }
    }
    let since = state.ended_at.unwrap_or(row.updated_at);
    WhyView::new(WhyCode::Ended, detail, &advice, since)
}

/// All that it waits for, the oldest first.
fn blocked(row: &JobRow, state: &JobState, plan: Option<&CompiledPlan>) -> Vec<WhyView> {
    let waits = view::waits(row.status, state, plan);
    if waits.is_empty() {
        // Its row says that it waits and not for what: what is stored does not add up.
        let detail = "its record does not say what it waits for";
        return vec![WhyView::new(WhyCode::WaitingSignal, detail, &Command::Verify(row.id), row.updated_at)];
    }
    waits.iter().map(|waiting| waits_for(row, state, waiting)).collect()
}

fn waits_for(row: &JobRow, state: &JobState, waiting: &WaitingView) -> WhyView {
    let node = &waiting.node_id;
    let reason = waiting.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let child = state.steps.get(node).and_then(StepState::awaited_child);
    let watch = Command::Watch(child.filter(|_| waiting.wait_type == WaitType::Child).unwrap_or(row.id));
    let advice = waiting.answer(row.id).unwrap_or(watch);
    let (code, detail) = match (waiting.doubt, waiting.wait_type) {
        (true, _) => {
            let doubt = state.steps.get(node).and_then(|step| step.doubt.as_deref());
            // No other class has a doubt for which its job waits.
            let next = doubt_next(row.status, EffectClass::AtMostOnce, DoubtStands::Blocked(waiting.wait_type));
            (WhyCode::InDoubt, unknown(node, doubt, next))
        }
        (false, WaitType::Human) => (WhyCode::WaitingApproval, format!("{node} waits for a person{reason}")),
        (false, WaitType::Signal) => (WhyCode::WaitingSignal, format!("{node} waits for a signal{reason}")),
        (false, WaitType::Webhook) => (WhyCode::WaitingSignal, format!("{node} waits for a webhook{reason}")),
        (false, WaitType::Child) => (WhyCode::WaitingChild, format!("{node} waits for a child job{reason}")),
        (false, WaitType::Timer) => (WhyCode::WaitingTime, format!("{node} waits for time to pass{reason}")),
    };
    let since = waiting.since.unwrap_or(row.updated_at);
    WhyView { until: waiting.deadline.flatten(), ..WhyView::new(code, detail, &advice, since) }
}

fn held(row: &JobRow, state: &JobState, plan: Option<&CompiledPlan>, now: Timestamp) -> WhyView {
    let advice = Command::Watch(row.id);
    let Some(holder) = &row.holder else {
        let detail = "it is claimed, and its holder is not recorded";
        return WhyView::new(WhyCode::HeldBy, detail, &Command::Verify(row.id), row.updated_at);
    };
    let running: Vec<_> = state.steps.iter().filter(|(_, step)| step.status == StepStatus::Running).collect();
    let since = running.iter().filter_map(|(_, step)| step.started_at).min().unwrap_or(row.updated_at);
    if holder.lease_until <= now {
        let detail = format!("{} has lost its lease; a sweep is about to take the job back", holder.worker);
        return WhyView::new(WhyCode::LeaseExpiredUnreclaimed, detail, &advice, holder.lease_until);
    }
    let named = running.iter().take(STEPS_NAMED).map(|(node, step)| format!("{node}{}", tries(step)));
    let more = running.len().saturating_sub(STEPS_NAMED);
    let more = (more > 0).then(|| format!("{more} more"));
    let doing: Vec<String> = named.chain(more).collect();
    let mut doing = if doing.is_empty() { String::new() } else { format!(" and runs {}", doing.join(", ")) };
    if let Some(unknown) = state.steps.iter().find_map(|(node, step)| doubted(row, plan, node, step)) {
        doing.push_str(&format!("; {unknown}"));
    }
    let ending = match row.end_requested {
        Some(EndCause::Cancel) => "; asked to cancel",
        Some(EndCause::Deadline) => "; its deadline has passed",
        Some(EndCause::Pause) => "; asked to pause",
        None => "",
    };
    let detail = format!("{} holds it{doing}{ending}", holder.worker);
    WhyView { until: Some(holder.lease_until), ..WhyView::new(WhyCode::HeldBy, detail, &advice, since) }
}

/// So many of the steps that run are named.
const STEPS_NAMED: usize = 3;

fn tries(step: &StepState) -> String {
    if step.tries > 1 { format!(", try {}", step.tries) } else { String::new() }
}

fn pending(row: &JobRow, state: &JobState, around: &Around) -> Vec<WhyView> {
    let reasons = not_yet(row, state, around);
    if !reasons.is_empty() {
        return reasons;
    }
    let since = row.not_before.map_or(row.updated_at, |at| at.max(row.updated_at));
    let (code, detail, advice) = match (around.running, &around.failed_claim) {
        (0, Some(failed)) => {
            let detail = format!(
                "it is ready, but no worker holds a job: the last claim here failed {} ago: {}",
                failed.age.rounded(),
                failed.error
            );
            (WhyCode::NoWorker, detail, Command::Worker)
        }
        (0, None) => {
            let detail = "it is ready, but no worker has taken it, and no worker holds any job. Is one running? An idle \
                          worker takes it within its poll_interval";
            (WhyCode::NoWorker, detail.to_owned(), Command::Worker)
        }
        (held, Some(_) | None) => {
            let detail = format!("it is ready and takes the next free slot; workers hold {held} other jobs");
            (WhyCode::NoSlot, detail, Command::Running)
        }
    };
    vec![WhyView::new(code, detail, &advice, since)]
}

/// What keeps a job that nobody holds from being claimed, whether or not it is paused.
fn not_yet(row: &JobRow, state: &JobState, around: &Around) -> Vec<WhyView> {
    let later = row.not_before.filter(|at| *at > around.now).map(|at| later(row, state, at));
    let behind = around.before.as_ref().map(|before| {
        let detail = format!("its session is busy: {} is {} and comes first", before.id, before.status.as_str());
        WhyView::new(WhyCode::SessionBusy, detail, &Command::Why(before.id), row.created_at)
    });
    later.into_iter().chain(behind).collect()
}

/// It is claimable later: after a back-off, or because it was sent so.
fn later(row: &JobRow, state: &JobState, at: Timestamp) -> WhyView {
    if let Some((node, step)) = state.steps.iter().find(|(_, step)| step.status == StepStatus::Retrying) {
        let error = step.error.as_ref().map(|error| format!(": {}: {}", error.code, error.message));
        let detail = format!("try {} of {node} failed and is tried again{}", step.tries, error.unwrap_or_default());
        let reason = WhyView::new(WhyCode::RetryBackoff, detail, &Command::Trace(row.id), row.updated_at);
        return WhyView { until: Some(at), ..reason };
    }
    // The last in their order: behind a map, a loop or a node in rounds, a part of it.
    if let Some((node, _)) =
        state.steps.iter().rfind(|(_, step)| step.status == StepStatus::Running && step.items.is_none())
    {
        let detail = format!(
            "{node} asks a model whose provider may not be asked more for now: its rate or places are used up, or it has said to wait. No try is counted"
        );
        let reason = WhyView::new(WhyCode::RateLimited, detail, &Command::Trace(row.id), row.updated_at);
        return WhyView { until: Some(at), ..reason };
    }
    let deadline = state.timers.get(&TimerId::Deadline).map(|timer| timer.due);
    let Some(deadline) = deadline.filter(|deadline| *deadline <= at) else {
        let reason = WhyView::new(WhyCode::NotBefore, "it was sent for later", &Command::Watch(row.id), row.created_at);
        return WhyView { until: Some(at), ..reason };
    };
    let detail = format!(
        "it is scheduled for {}, not before its deadline, which counts from when it was sent: it will fail without \
         running. Cancel it, and send it again with a longer deadline",
        at.to_the_second()
    );
    let reason = WhyView::new(WhyCode::NotBefore, detail, &Command::Cancel(row.id), row.created_at);
    WhyView { fails: true, until: Some(deadline), ..reason }
}
