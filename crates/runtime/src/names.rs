//! What templates of a plan may name, from a job's state.

use std::collections::BTreeMap;

use aetheris_core::id::{IdempotencyKey, NodeId};
use aetheris_core::json::Json;
use aetheris_core::path::StepPath;
use aetheris_core::state::{JobState, Output, StepState};
use aetheris_core::step::StepStatus;
use aetheris_expr::{Context, JobNames};
use aetheris_store::EffectRow;

/// The names of a job: its message, itself, and the outputs of nodes that have ended.
#[must_use]
pub fn of(state: &JobState, effects: &BTreeMap<IdempotencyKey, EffectRow>) -> Context {
    let mut nodes = BTreeMap::new();
    // Parts of what a node does have no names of their own.
    for (path, step) in state.steps.iter().filter(|(path, _)| path.is_whole()) {
        if let Some(output) = ended(step, effects) {
            nodes.insert(path.node().clone(), output);
        }
    }
    Context {
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
    known(state, effects, &node.into()).unwrap_or_else(Json::null)
}

/// The output of one step, once it has ended well.
pub(crate) fn known(state: &JobState, effects: &BTreeMap<IdempotencyKey, EffectRow>, path: &StepPath) -> Option<Json> {
    state.steps.get(path).and_then(|step| ended(step, effects))
}

fn ended(step: &StepState, effects: &BTreeMap<IdempotencyKey, EffectRow>) -> Option<Json> {
    match step.status {
        StepStatus::Skipped => Some(Json::null()),
        StepStatus::Completed => match &step.output {
            Some(Output::Inline(value)) => Some(value.clone()),
            Some(Output::Effect(key)) => effects.get(key).map(|effect| effect.result.clone()),
            None => Some(Json::null()),
        },
        StepStatus::Pending
        | StepStatus::Running
        | StepStatus::Retrying
        | StepStatus::Waiting
        | StepStatus::InDoubt
        | StepStatus::Failed => None,
    }
}

#[cfg(test)]
mod tests {
    use aetheris_core::id::JobId;

    use super::*;

    /// Whoever goes on with a job names what its run before has named.
    #[test]
    fn nodes_that_have_ended_well_are_named_and_a_skipped_one_is_nothing() {
        let one = Json::new(1.into());
        let key = IdempotencyKey::from_u128(1);
        let effect = EffectRow { at: Default::default(), key, permit: 1, result: Json::new(2.into()) };
        let effects = BTreeMap::from([(key, effect)]);
        for (status, kept, named) in [
            (StepStatus::Completed, Some(Output::Inline(one.clone())), Some(one.clone())),
            (StepStatus::Completed, Some(Output::Effect(key)), Some(Json::new(2.into()))),
            (StepStatus::Completed, Some(Output::Effect(IdempotencyKey::from_u128(9))), None),
            (StepStatus::Completed, None, Some(Json::null())),
            (StepStatus::Skipped, None, Some(Json::null())),
            (StepStatus::Failed, Some(Output::Inline(one.clone())), None),
            (StepStatus::Running, Some(Output::Inline(one.clone())), None),
            (StepStatus::Pending, None, None),
        ] {
            let mut state = JobState::new(JobId::from_u128(1));
            let step = StepState { output: kept, status, ..StepState::default() };
            state.steps.insert("n".into(), step);
            assert_eq!(of(&state, &effects).nodes.get("n"), named.as_ref(), "{status:?}");
            assert_eq!(output(&state, &effects, &"n".into()), named.unwrap_or_else(Json::null), "{status:?}");
        }
    }
}
