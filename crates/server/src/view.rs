//! From rows and folded states to answers.

use std::collections::BTreeMap;

use aetheris_api::{
    AgentView, ChildOfStep, ChildView, EventView, EvidenceView, ItemsView, JobErrorView, JobView, KeptView, ParentView,
    PausedView, Raw, StepView, UsageView, WaitingView,
};
use aetheris_core::event::{Failure as Reason, Parent};
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::path::StepPath;
use aetheris_core::plan::{CompiledPlan, EffectClass};
use aetheris_core::projection;
use aetheris_core::recovery::{DoubtStands, doubt_next};
use aetheris_core::state::{Blocked, Child, JobState, StepState};
use aetheris_core::step::StepStatus;
use aetheris_core::time::Timestamp;
use aetheris_runtime::ops::Takes;
use aetheris_store::{AgentRow, ChildRow, EventRow, Evidence, JobRow, KeptHead, WaitRow};

use crate::outline::Outlined;

/// An agent. The file is given only where it is asked for.
#[must_use]
pub fn agent(row: &AgentRow, with_source: bool) -> AgentView {
    AgentView {
        agent: row.agent.agent.clone(),
        deadline: row.agent.deadline,
        description: row.agent.description.clone(),
        hash: row.hash,
        nodes: u32::try_from(row.agent.nodes()).unwrap_or(u32::MAX),
        plan_hash: row.plan_hash,
        planner: row.agent.planner.as_str().to_owned(),
        source: with_source.then(|| row.source.clone()),
        updated_at: row.updated_at,
        version: row.agent.version.clone(),
    }
}

/// A job as lists show it: from its row and the number of the store's life.
#[must_use]
pub fn job_row(row: &JobRow, generation: u32) -> JobView {
    let holder = row.holder.as_ref();
    JobView {
        agent: row.agent.clone(),
        agent_version: row.agent_version.clone(),
        attempt_id: holder.map(|holder| holder.attempt_id),
        created_at: row.created_at,
        end_requested: row.end_requested,
        ended_at: None,
        epoch: row.fence.epoch,
        error: row.error.as_ref().map(|(error, node)| reason(error, node.clone())),
        id: row.id,
        kept: None,
        labels: row.labels.clone(),
        lease_until: holder.map(|holder| holder.lease_until),
        message: None,
        not_before: row.not_before,
        parent: None,
        paused: paused(row, generation),
        priority: row.priority,
        result: None,
        seq: row.seq,
        session_id: row.session.clone(),
        status: row.status,
        steps: None,
        updated_at: row.updated_at,
        usage: None,
        waiting: row.waiting.as_ref().map(|waiting| waiting_of(row.status, waiting, None, None)),
        waits: None,
        worker: holder.map(|holder| holder.worker.clone()),
    }
}

/// Why a job is held still, if it is. That it has not been claimed in this life of the store tells that a backup has
/// brought it, which a restore leaves as it is where an operator has paused it.
#[must_use]
pub fn paused(row: &JobRow, generation: u32) -> Option<PausedView> {
    let before_restore = row.fence.generation < generation;
    row.paused.map(|(reason, since)| PausedView { before_restore, reason, since })
}

/// A job with all that is known of it but its message, its result and when it ended.
#[must_use]
pub(crate) fn job(outlined: &Outlined, plan: Option<&CompiledPlan>, (generation, kept): (u32, &[KeptHead])) -> JobView {
    let (row, state) = (&outlined.row, outlined.state());
    let mut steps = steps(state, plan);
    for (node, answered) in outlined.answers().open(state) {
        if let Some(step) = steps.get_mut(node) {
            step.answered = Some(answered);
        }
    }
    let waits = waits(row.status, state, plan);
    JobView {
        kept: Some(kept.iter().map(self::kept).collect()),
        parent: state.parent.as_ref().map(parent),
        steps: Some(steps),
        usage: Some(usage(state, plan)),
        waiting: waits.first().cloned(),
        waits: Some(waits),
        ..job_row(row, generation)
    }
}

fn steps(state: &JobState, plan: Option<&CompiledPlan>) -> BTreeMap<StepPath, StepView> {
    let untouched = step(&StepState::default(), state.status);
    let planned =
        plan.into_iter().flat_map(CompiledPlan::ordered).map(|node| (StepPath::from(&node.id), untouched.clone()));
    let mut steps: BTreeMap<StepPath, StepView> = planned.collect();
    // Items of a map are told with it, but for those about which somebody is asked.
    let waits = |step: &StepState| matches!(step.status, StepStatus::InDoubt | StepStatus::Waiting);
    let asked = |step: &StepState| waits(step) || step.left_in_doubt(state.status).is_some();
    let told = state.steps.iter().filter(|(path, step)| path.is_whole() || asked(step));
    // The tries are those of the round that counts.
    let tries = |path: &StepPath| state.steps.get(&state.newest_round(path)).map_or(0, |round| round.tries);
    let view = |path: &StepPath, step: &StepState| {
        let attempt = if step.round > 0 { tries(path) } else { step.tries };
        // So is the child.
        let round = state.steps.get(&state.newest_round(path)).unwrap_or(step);
        let child = round.child.as_deref().map(child_of);
        StepView { attempt, child, items: items(state, path), ..self::step(step, state.status) }
    };
    steps.extend(told.map(|(path, step)| (path.clone(), view(path, step))));
    steps
}

/// The job that a step has asked for.
pub(crate) fn child_of(child: &Child) -> ChildOfStep {
    ChildOfStep { agent: child.agent.clone(), job_id: child.id }
}

fn parent(parent: &Parent) -> ParentView {
    let Parent { depth: _, job, node, on_parent_end, sessions: _, waits } = parent;
    ParentView { job_id: *job, node_id: node.clone(), on_parent_end: *on_parent_end, waits: *waits }
}

/// A job that another has asked for.
#[must_use]
pub fn child(child: &ChildRow, generation: u32) -> ChildView {
    let ChildRow { node, on_parent_end, row } = child;
    ChildView { job: job_row(row, generation), node_id: node.clone(), on_parent_end: *on_parent_end }
}

/// How the items of a map stand.
fn items(state: &JobState, map: &StepPath) -> Option<ItemsView> {
    let items = state.steps.get(map)?.items.as_deref()?;
    let mut view = ItemsView { count: items.count, ..ItemsView::default() };
    for item in 0..items.begun {
        let Some(step) = state.steps.get(&StepPath::of_item(map.node().clone(), item)) else { continue };
        match step.status {
            StepStatus::Failed if step.given_up => view.given_up += 1,
            StepStatus::Completed => view.completed += 1,
            StepStatus::Failed => view.failed += 1,
            StepStatus::Skipped => view.skipped += 1,
            StepStatus::Pending
            | StepStatus::Running
            | StepStatus::Retrying
            | StepStatus::Waiting
            | StepStatus::InDoubt
            | StepStatus::Validating
            | StepStatus::Refining
            | StepStatus::Rejected => view.open += 1,
        }
    }
    Some(view)
}

fn step(step: &StepState, job: JobStatus) -> StepView {
    StepView {
        answered: None,
        attempt: step.tries,
        child: step.child.as_deref().map(child_of),
        finished_at: step.finished_at,
        items: None,
        left_in_doubt: step.left_in_doubt(job),
        round: (step.round > 0).then_some(step.round),
        started_at: step.started_at,
        status: step.status,
    }
}

/// What a job has used up.
#[must_use]
pub fn usage(state: &JobState, plan: Option<&CompiledPlan>) -> UsageView {
    UsageView { tokens: state.tokens, tool_calls: plan.map_or(0, |plan| u64::from(state.tool_calls(plan))) }
}

/// All that a blocked job waits for, the oldest first, with its times.
#[must_use]
pub fn waits(status: JobStatus, state: &JobState, plan: Option<&CompiledPlan>) -> Vec<WaitingView> {
    let view = |blocked: &Blocked| {
        let waiting = projection::WaitingView::from(blocked);
        let deadline = state.timers.get(&waiting.timer()).map(|timer| timer.due);
        let schema = plan.and_then(|plan| schema_of_wait(plan, Some(state), &waiting));
        WaitingView { schema, ..waiting_of(status, &waiting, Some(blocked.since), Some(deadline)) }
    };
    state.blocks.by_age().into_iter().map(view).collect()
}

/// What the payload of the signal that ends a wait must fit. A doubt is answered in another way.
pub(crate) fn schema_of_wait(
    plan: &CompiledPlan,
    state: Option<&JobState>,
    waiting: &projection::WaitingView,
) -> Option<Json> {
    Takes::at(plan, state, &waiting.node).filter(|_| !waiting.doubt)?.schema.cloned()
}

/// The same of a row that has them beside it.
#[must_use]
pub fn waiting_since(wait: &WaitRow) -> Option<WaitingView> {
    let waiting = wait.row.waiting.as_ref()?;
    Some(waiting_of(wait.row.status, waiting, Some(wait.since), Some(wait.deadline)))
}

fn waiting_of(
    status: JobStatus,
    waiting: &projection::WaitingView,
    since: Option<Timestamp>,
    deadline: Option<Option<Timestamp>>,
) -> WaitingView {
    // No other class has a doubt for which its job waits.
    let next = || doubt_next(status, EffectClass::AtMostOnce, DoubtStands::Blocked(waiting.wait_type));
    WaitingView {
        correlation_key: waiting.correlation_key.clone(),
        deadline,
        doubt: waiting.doubt,
        next: waiting.doubt.then(|| next().into()),
        node_id: waiting.node.clone(),
        reason: waiting.reason.clone(),
        schema: None,
        since,
        wait_type: waiting.wait_type,
    }
}

/// A kept signal.
#[must_use]
pub fn kept(signal: &KeptHead) -> KeptView {
    KeptView { correlation_key: signal.key.clone(), received_at: signal.received_at, wait_type: signal.wait_type }
}

/// Why something failed.
#[must_use]
pub fn reason(error: &Reason, node: Option<StepPath>) -> JobErrorView {
    JobErrorView { code: error.code.clone(), message: error.message.clone(), node_id: node }
}

/// An event with its payload exactly as it is stored.
#[must_use]
pub fn event(row: &EventRow) -> EventView {
    EventView {
        at: row.at,
        epoch: row.fence.epoch,
        generation: row.fence.generation,
        hash: row.hash,
        id: row.id,
        kind: row.kind_name(),
        payload: Raw::from_bytes(&row.payload),
        payload_hash: row.payload_hash,
        schema_version: row.schema_version,
        seq: row.seq,
    }
}

/// What came too late to be an effect.
#[must_use]
pub fn evidence(row: &Evidence) -> EvidenceView {
    EvidenceView {
        at: row.at,
        conflict: row.conflict,
        invocation: row.key,
        node_id: row.node.clone(),
        outcome: row.outcome.clone(),
        permit: row.permit,
    }
}
