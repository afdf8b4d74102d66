//! What templates of a plan may name, from a job's state.

use std::collections::BTreeMap;

use aetheris_core::id::{IdempotencyKey, NodeId};
use aetheris_core::json::Json;
use aetheris_core::state::{JobState, Output, StepState};
use aetheris_core::step::StepStatus;
use aetheris_expr::{JobNames, Scope};
use aetheris_store::EffectRow;

/// The names of a job: its message, itself, and the outputs of nodes that have ended.
#[must_use]
pub fn of(state: &JobState, effects: &BTreeMap<IdempotencyKey, EffectRow>) -> Scope {
    let mut nodes = BTreeMap::new();
    for (node, step) in &state.steps {
        if let Some(output) = ended(step, effects) {
            nodes.insert(node.clone(), output);
        }
    }
    Scope {
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
    state.steps.get(node).and_then(|step| ended(step, effects)).unwrap_or_else(Json::null)
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
