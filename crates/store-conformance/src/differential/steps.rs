//! What the run of a job writes of its steps.

use aetheris_core::event::{Failure, InvocationOutcome, JobFailed, JobWaiting, RequeueReason};
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::lease::Guard;
use aetheris_core::path::StepPath;
use aetheris_core::plan::{EffectClass, WaitType};
use aetheris_core::state::{Invocation, InvocationPhase, JobState};
use aetheris_core::step::StepStatus;
use aetheris_core::time::Span;
use aetheris_store::unit::Purpose;

use super::actions::Written;
use super::kinds;
use super::world::World;

/// The nodes of a small pool whose step and call are in some state.
pub(super) fn nodes(state: &JobState, fits: impl Fn(StepStatus, Option<InvocationPhase>) -> bool) -> Vec<String> {
    let phase = |node: &str| Some(state.steps.get(&node.into())?.invocation.as_deref()?.phase);
    let all = (0..5).map(|n| format!("n{n}"));
    // A call of a loop that has not begun is its turn's.
    let calls = (0..kinds::TURNS).map(kinds::call_of).filter(|call| state.steps.contains_key(&call.as_str().into()));
    all.chain(calls).filter(|node| fits(state.step_status(&StepPath::from(node.as_str())), phase(node))).collect()
}

/// What a worker writes of a job that it holds.
pub(super) fn step_of_run(world: &mut World<'_>, state: JobState) -> Option<Written> {
    if state.status != JobStatus::Running {
        return None;
    }
    if world.random.one_in(3)
        && let Some(written) = kinds::step_of_kind(world, state.clone())
    {
        return Some(written);
    }
    let ending = state.end_requested.is_some() || state.plan.is_none();
    let class = [EffectClass::AtMostOnce, EffectClass::Idempotent][world.random.below(2)];
    let fresh = nodes(&state, |step, _| step == StepStatus::Pending);
    let open = nodes(&state, |step, phase| step == StepStatus::Running && phase == Some(InvocationPhase::Started));
    let step = |node: &String| &state.steps[&node.as_str().into()];
    let again = |node: &String| step(node).invocation.as_deref().is_some_and(Invocation::allows_next_permit);
    let called: Vec<_> = nodes(&state, |step, _| step == StepStatus::Running).into_iter().filter(again).collect();
    let doubtful: Vec<_> = open.iter().filter(|node| step(node).doubt.is_none()).cloned().collect();
    let (choice, place, key) = (world.random.below(17), world.random.below(60), world.random.below(6));
    let one = |of: &[String]| of.get(place % of.len().max(1)).cloned();
    let draft = |purpose| world.draft(state.clone(), purpose, Guard::Run(state.fence));
    let value = Json::new(serde_json::json!({ "value": "ü" }));
    match choice {
        11 if key == 0 => Some(("finish", finish(&state, draft(Purpose::Finish)).done())),
        0 | 1 if !ending => Some(("permit", draft(Purpose::Permit).call(&one(&fresh)?, class).done())),
        2 | 11 if !ending => Some(("permit", draft(Purpose::Permit).permit(&one(&called)?, class).done())),
        3 | 4 => Some(("record", draft(Purpose::Record).committed(&one(&open)?, value).done())),
        5 if !ending => Some(("record", draft(Purpose::Record).step(&one(&fresh)?, value).done())),
        6 | 14..=16 => {
            let outcome = [InvocationOutcome::NotSent, InvocationOutcome::RefusedRetryable];
            let outcome = outcome[usize::from(class == EffectClass::Idempotent)];
            Some(("not_done", draft(Purpose::Record).not_done(&one(&open)?, outcome).done()))
        }
        7 | 12 | 13 => {
            let node = one(&doubtful)?;
            let draft = draft(Purpose::Doubt).doubt(&node);
            let blocks = !ending && class == EffectClass::AtMostOnce;
            Some(("doubt", if blocks { draft.event(doubt_wait(&node)).done() } else { draft.done() }))
        }
        8 | 9 if !ending => {
            let key = format!("k{key}");
            let free = !state.waits.contains_key(&key);
            let draft = free.then(|| draft(Purpose::Block))?;
            Some(("block", draft.wait(&one(&fresh)?, &key, WaitType::Signal, class == EffectClass::Idempotent).done()))
        }
        10 if state.end_requested.is_none() => {
            let after = (class == EffectClass::Idempotent).then_some(Span::from_secs(2));
            Some(("requeue", draft(Purpose::Requeue).requeue(RequeueReason::Retry, after).done()))
        }
        _ => None,
    }
}

pub(super) fn finish(state: &JobState, draft: crate::Draft) -> crate::Draft {
    let ended = state.steps.values().all(|step| step.status.is_terminal());
    if ended && state.end_requested.is_none() && state.plan.is_some() {
        return draft.complete();
    }
    draft.event(JobFailed { error: Failure::new("broken", "it is broken"), node: Some(StepPath::from("n0")) })
}

fn doubt_wait(node: &str) -> JobWaiting {
    JobWaiting {
        correlation_key: None,
        doubt: true,
        node: StepPath::from(node),
        park: true,
        reason: Some("nobody knows".to_owned()),
        wait_type: WaitType::Human,
    }
}
