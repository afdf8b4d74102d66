//! What templates of a plan may name, from a job's state.

use std::borrow::Cow;
use std::collections::BTreeMap;

use aetheris_core::id::{IdempotencyKey, NodeId};
use aetheris_core::json::Json;
use aetheris_core::path::StepPath;
use aetheris_core::state::{JobState, Output, StepState};
use aetheris_core::step::StepStatus;
use aetheris_expr::{Context, Ended, JobNames};
use aetheris_store::EffectRow;

/// The names of a job: its message, itself, and how nodes have ended.
#[must_use]
pub fn of(state: &JobState, effects: &BTreeMap<IdempotencyKey, EffectRow>) -> Context {
    let mut nodes = BTreeMap::new();
    // Parts of what a node does have no names of their own.
    for (path, step) in state.steps.iter().filter(|(path, _)| path.is_whole()) {
        if let Some(ended) = ended(step, effects) {
            nodes.insert(path.node().clone(), ended);
        }
    }
    Context {
        early: false,
        env: None,
        input: None,
        job: Some(JobNames { agent: state.agent.clone(), id: state.id, session: state.session.clone() }),
        message: Some(state.message.clone()),
        nodes,
    }
}

/// The output of one node; `null` where it has none.
#[must_use]
pub fn output(state: &JobState, effects: &BTreeMap<IdempotencyKey, EffectRow>, node: &NodeId) -> Json {
    let ended = known(state, effects, &node.into());
    ended.as_ref().and_then(Ended::output).cloned().unwrap_or_else(Json::null)
}

/// How one step has ended, once it has.
pub(crate) fn known(state: &JobState, effects: &BTreeMap<IdempotencyKey, EffectRow>, path: &StepPath) -> Option<Ended> {
    state.steps.get(path).and_then(|step| ended(step, effects))
}

/// What a step sees: what was open when it started is so for all of its tries.
pub(crate) fn seen_by<'n>(names: &'n Context, step: Option<&StepState>) -> Cow<'n, Context> {
    match step.map(|step| &step.open) {
        Some(open) if !open.is_empty() && !aetheris_fault::planted!("late-branch-seen") => {
            let mut seen = names.clone();
            seen.nodes.retain(|node, _| !open.contains(node));
            Cow::Owned(seen)
        }
        Some(_) | None => Cow::Borrowed(names),
    }
}

fn ended(step: &StepState, effects: &BTreeMap<IdempotencyKey, EffectRow>) -> Option<Ended> {
    match step.status {
        StepStatus::Skipped => Some(Ended::Skipped),
        StepStatus::Completed => match &step.output {
            Some(Output::Inline(value)) => Some(Ended::Completed(value.clone())),
            Some(Output::Effect(key)) => effects.get(key).map(|effect| Ended::Completed(effect.result.clone())),
            None => Some(Ended::Completed(Json::null())),
        },
        StepStatus::Failed => step.error.clone().map(Ended::Failed),
        StepStatus::Pending
        | StepStatus::Running
        | StepStatus::Retrying
        | StepStatus::Waiting
        | StepStatus::InDoubt => None,
    }
}

#[cfg(test)]
mod tests {
    use aetheris_core::event::Failure;
    use aetheris_core::id::JobId;

    use super::*;

    /// Whoever goes on with a job names what its run before has named.
    #[test]
    fn nodes_are_named_by_how_they_have_ended() {
        let one = Json::new(1.into());
        let error = Failure::new("no", "never");
        let well = |value: &Json| Some(Ended::Completed(value.clone()));
        let key = IdempotencyKey::from_u128(1);
        let effect = EffectRow { at: Default::default(), key, permit: 1, result: Json::new(2.into()) };
        let effects = BTreeMap::from([(key, effect)]);
        for (status, kept, named) in [
            (StepStatus::Completed, Some(Output::Inline(one.clone())), well(&one)),
            (StepStatus::Completed, Some(Output::Effect(key)), well(&Json::new(2.into()))),
            (StepStatus::Completed, Some(Output::Effect(IdempotencyKey::from_u128(9))), None),
            (StepStatus::Completed, None, well(&Json::null())),
            (StepStatus::Skipped, None, Some(Ended::Skipped)),
            (StepStatus::Failed, None, Some(Ended::Failed(error.clone()))),
            (StepStatus::Running, Some(Output::Inline(one.clone())), None),
            (StepStatus::Pending, None, None),
        ] {
            let mut state = JobState::new(JobId::from_u128(1));
            let step = StepState { error: Some(error.clone()), output: kept, status, ..StepState::default() };
            state.steps.insert("n".into(), step);
            assert_eq!(of(&state, &effects).nodes.get("n"), named.as_ref(), "{status:?}");
            let value = named.as_ref().and_then(Ended::output).cloned();
            assert_eq!(output(&state, &effects, &"n".into()), value.unwrap_or_else(Json::null), "{status:?}");
        }
    }

    /// A branch that has ended since is as open as it was.
    #[test]
    fn what_was_open_when_a_step_started_stays_so_for_it() {
        let mut names = Context::default();
        for node in ["a", "b"] {
            names.nodes.insert(node.into(), Ended::Completed(Json::null()));
        }
        let step = StepState { open: ["a".into()].into(), ..StepState::default() };
        let seen = seen_by(&names, Some(&step));
        assert_eq!(seen.nodes.keys().map(NodeId::as_str).collect::<Vec<_>>(), ["b"]);
        for all in [None, Some(&StepState::default())] {
            assert_eq!(seen_by(&names, all).nodes.len(), 2);
        }
    }
}
