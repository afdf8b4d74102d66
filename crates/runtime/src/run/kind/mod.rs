//! The kinds of nodes, a file each: what a step of the kind needs done, and what its end means. What a run does by kind is
//! matched here; that a node is a map is asked by whoever looks for its items.

pub(super) mod agent;
mod condition;
mod critic;
pub(crate) mod human;
pub(super) mod job;
pub(super) mod llm;
pub(super) mod map;
pub(super) mod plan;
pub(crate) mod review;
pub(crate) mod rules;
mod sleep;
pub(super) mod tool;
mod transform;
pub(super) mod wait;

use aetheris_core::event::Failure;
use aetheris_core::json::Json;
use aetheris_core::plan::{CompiledPlan, NodeKind};
use aetheris_core::schedule;
use aetheris_core::state::{Blocked, JobState};
use aetheris_expr::{ExprError, Scope};

use super::prepared::{Asked, Prepared};
use super::view::View;
use super::{doubt, values};
use crate::ports::{ModelAnswer, ModelError};

/// What a try of a step begins with, or goes on with.
///
/// # Errors
/// The plan contradicts itself: the job fails, and nothing is run.
pub(super) fn prepare(view: &View<'_>) -> Result<Prepared, Failure> {
    let prepared = match &view.work.kind {
        NodeKind::Agent(agent) => agent::prepare(view, agent),
        NodeKind::Condition => Ok(condition::prepare(view)),
        NodeKind::Critic(critic) => Ok(critic::prepare(view, critic)),
        NodeKind::Job(job) => Ok(job::prepare(view, job)),
        NodeKind::Llm(llm) => Ok(llm::prepare(view, llm)),
        NodeKind::Map(map) => map::prepare(view, map),
        NodeKind::Plan(planner) => Ok(plan::prepare(view, planner)),
        NodeKind::Review => Ok(review::prepare(view)),
        NodeKind::Rules(rules) => Ok(rules::prepare(view, rules)),
        NodeKind::Sleep(duration) => Ok(sleep::prepare(view, *duration)),
        NodeKind::Tool { tool, .. } if view.path.call().is_some() => agent::call(view, tool),
        NodeKind::Tool { input, tool } => tool::prepare(view, tool, || view.value(input)),
        NodeKind::Transform(template) => Ok(transform::prepare(view, template)),
        NodeKind::Wait(wait) => Ok(wait::prepare(view, wait)),
    }?;
    Ok(values::record(view, prepared))
}

/// What the answer of a model means.
pub(super) fn answered(view: &View<'_>, answer: Result<ModelAnswer, ModelError>, asked: Asked, took: u64) -> Prepared {
    match &view.work.kind {
        NodeKind::Agent(agent) => agent::conclude(view, agent, answer, asked, took),
        NodeKind::Critic(_) => critic::conclude(view, answer, asked, took),
        NodeKind::Llm(llm) => llm::conclude(view, llm.schema.as_ref(), answer, asked, took),
        NodeKind::Plan(_) => plan::conclude(view, answer, asked, took),
        NodeKind::Condition
        | NodeKind::Job(_)
        | NodeKind::Map(_)
        | NodeKind::Review
        | NodeKind::Rules(_)
        | NodeKind::Sleep(_)
        | NodeKind::Tool { .. }
        | NodeKind::Transform(_)
        | NodeKind::Wait(_) => {
            aetheris_fault::unreachable!("node `{}` asks no model, and one has answered", view.path)
        }
    }
}

/// Whether a job parks where it waits for this: a person about a doubt, or a wait whose node says so.
pub(super) fn parks(state: &JobState, plan: &CompiledPlan, blocked: &Blocked) -> bool {
    match schedule::step_at(state, plan, &blocked.node).map(|step| &step.work.kind) {
        Some(NodeKind::Wait(wait)) if !blocked.doubt => wait.park,
        Some(_) | None => doubt::parks(blocked.wait_type),
    }
}

/// Which part of a job's budget a step uses up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Uses {
    Calls,
    Tokens,
    Nothing,
}

pub(super) fn uses(view: &View<'_>) -> Uses {
    match &view.work.kind {
        NodeKind::Tool { .. } => Uses::Calls,
        NodeKind::Agent(_) if view.path.is_turn() => Uses::Tokens,
        NodeKind::Critic(_) | NodeKind::Llm(_) | NodeKind::Plan(_) => Uses::Tokens,
        NodeKind::Agent(_)
        | NodeKind::Condition
        | NodeKind::Job(_)
        | NodeKind::Map(_)
        | NodeKind::Review
        | NodeKind::Rules(_)
        | NodeKind::Sleep(_)
        | NodeKind::Transform(_)
        | NodeKind::Wait(_) => Uses::Nothing,
    }
}

/// What a step of the kind is given, for people: a tool's input, a model's question. `None` for kinds that are given nothing.
pub(crate) fn input(kind: &NodeKind, names: Scope<'_>) -> Option<Result<Json, ExprError>> {
    match kind {
        NodeKind::Agent(agent) => Some(llm::question(&agent.prompt, agent.system.as_ref(), names)),
        NodeKind::Tool { input, .. } => Some(aetheris_expr::render(input, names)),
        NodeKind::Critic(critic) => {
            let asking = critic::asking(critic);
            Some(llm::question(&asking.prompt, asking.system.as_ref(), names))
        }
        NodeKind::Job(job) => Some(aetheris_expr::render(&job.message, names)),
        NodeKind::Llm(llm) => Some(llm::question(&llm.prompt, llm.system.as_ref(), names)),
        NodeKind::Plan(planner) => Some(llm::question(&planner.prompt, None, names)),
        NodeKind::Condition
        | NodeKind::Map(_)
        | NodeKind::Review
        | NodeKind::Rules(_)
        | NodeKind::Sleep(_)
        | NodeKind::Transform(_)
        | NodeKind::Wait(_) => None,
    }
}
