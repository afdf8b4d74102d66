//! The facts that more than one decision returns.

use std::collections::BTreeMap;

use aetheris_core::event::{
    BranchStatus, DoubtOutcome, Event, Failure, InDoubtResolved, InvocationOutcome, Items, ModelRecord, NodeFinished,
    NodeSkipped, NodeStarted, Resolver, SkipReason, Source, StepInDoubt, StepResult, ToolInvocationFinished,
};
use aetheris_core::id::NodeId;
use aetheris_core::json::Json;
use aetheris_core::ledger::{LedgerTrigger, Settle};
use aetheris_core::state::Invocation;
use aetheris_store::LedgerWrite;

use super::prepared::{Prepared, TryFailed};
use super::view::View;
use super::{judge, kind};
use crate::draft::Fact;
use crate::names;
use crate::ops::{Known, known_outcome, unanswered};

/// A try begins, unless the step is on its way already.
pub(super) fn start(view: &View<'_>) -> Prepared {
    start_with(view, None)
}

/// The same of a map, which is to work through so many items.
pub(super) fn start_map(view: &View<'_>, items: Items) -> Prepared {
    start_with(view, Some(items))
}

fn start_with(view: &View<'_>, items: Option<Items>) -> Prepared {
    let number = view.try_number();
    if number == view.tries() {
        return Prepared::default();
    }
    let needs = needs(view);
    let turns = view.work.agent().is_some() && view.path.is_outside_loop();
    Prepared::of([Fact::of(NodeStarted { items, needs, turns, ..NodeStarted::new(view.path.clone(), number) })])
}

/// What an eager node sees of those before it, for all of its tries: how those that it needs stand, and which of the others
/// that its templates name are open. Its condition has been asked by then, and is not asked again.
fn needs(view: &View<'_>) -> BTreeMap<NodeId, BranchStatus> {
    if view.tries() > 0 || !view.path.is_whole() || !view.plan.is_eager(&view.node.id) {
        return BTreeMap::new();
    }
    let stands = |node: &NodeId| BranchStatus::of(view.state.node_status(node));
    let others = names::named_in(view.node, view.plan.critic_of(view.node, &view.path))
        .into_iter()
        .filter(|node| stands(node) == BranchStatus::Open);
    others.chain(view.node.needs.iter().cloned()).map(|node| (node.clone(), stands(&node))).collect()
}

pub(super) fn skip(view: &View<'_>, reason: SkipReason) -> Prepared {
    Prepared::of([Fact::of(NodeSkipped { node: view.path.clone(), reason })])
}

/// The step ends well. Its output is recorded here, unless it is recorded elsewhere.
pub(super) fn succeed(view: &View<'_>, output: Option<Json>) -> Prepared {
    let told = output.clone();
    let end = NodeFinished { output, ..NodeFinished::new(view.path.clone(), StepResult::Success) };
    judge::end(view, end, || told.unwrap_or_else(|| names::untold(view.state, &view.rows.effects, &view.path)))
}

/// The same of a pure body: what it took, and what a model used.
pub(super) fn succeed_after(view: &View<'_>, output: Json, model: Option<Box<ModelRecord>>, took_us: u64) -> Prepared {
    let end = NodeFinished::new(view.path.clone(), StepResult::Pure);
    let end = NodeFinished { model, output: Some(output.clone()), took_us: Some(took_us), ..end };
    judge::end(view, end, || output)
}

/// The same of a ledger step, whose output is its effect.
pub(super) fn commit(view: &View<'_>, result: &Json) -> Prepared {
    let end = NodeFinished::new(view.path.clone(), StepResult::SideEffectCommitted);
    judge::end(view, end, || result.clone())
}

pub(super) fn fail_template(view: &View<'_>, what: &str, error: &aetheris_expr::ExprError) -> Prepared {
    fail(view, Failure::new("template_error", format!("{what} cannot be rendered: {error}")))
}

/// The step fails, whatever its retry policy says.
pub(super) fn fail(view: &View<'_>, error: Failure) -> Prepared {
    fail_after(view, StepResult::PermanentFailure, TryFailed::new(error, None, false))
}

/// The same where the job as a whole has used up what it may: it fails whatever its node says.
pub(super) fn fail_job(view: &View<'_>, error: Failure) -> Prepared {
    let failed = TryFailed { of_job: true, ..TryFailed::new(error, None, false) };
    fail_after(view, StepResult::PermanentFailure, failed)
}

/// The step fails with its last try. A call whose outcome is unknown is given up with it.
pub(super) fn fail_after(view: &View<'_>, result: StepResult, failed: TryFailed) -> Prepared {
    let TryFailed { error, given_up, model, of_job, took_us, .. } = failed;
    let told = !of_job && !given_up && kind::agent::is_told(view);
    let absorbed = told || (view.absorbs() && !of_job);
    let error = if view.path.is_critic() && !of_job { judge::critic_failed(view, &error) } else { error };
    let end = NodeFinished::new(view.path.clone(), result);
    let event = NodeFinished { absorbed, error: Some(error), given_up, model, told, took_us, ..end };
    let given_up = view.invocation().and_then(|call| unanswered(&view.rows.ledger, call));
    Prepared::of([match given_up {
        Some(settle) => Fact::with_ledger(event, LedgerWrite::Settle(settle)),
        None => Fact::of(event),
    }])
}

/// What became of a call.
pub(super) fn call_ended(
    view: &View<'_>,
    permit: u32,
    outcome: InvocationOutcome,
    source: Source,
    error: Option<Failure>,
) -> ToolInvocationFinished {
    ToolInvocationFinished { error, node: view.path.clone(), outcome, permit, source }
}

pub(super) fn settle(invocation: &Invocation, trigger: LedgerTrigger) -> LedgerWrite {
    LedgerWrite::Settle(Settle { key: invocation.key, permit_id: invocation.permit_id, trigger })
}

/// The doubt about a call stands at this policy of its tool.
pub(super) fn in_doubt(view: &View<'_>, invocation: &Invocation, policy: u32, reason: &str) -> StepInDoubt {
    let reason = Failure::new("", reason).message;
    StepInDoubt { node: view.path.clone(), permit: invocation.permit, policy, reason }
}

/// A fact that says that a call's outcome is unknown, in the ledger as well unless that knows.
pub(super) fn unknown(view: &View<'_>, invocation: &Invocation, event: impl Into<Event>) -> Fact {
    match known_outcome(&view.rows.ledger, invocation) {
        Known::Doubt => Fact::of(event),
        Known::Nothing | Known::Outcome => Fact::with_ledger(event, settle(invocation, LedgerTrigger::Doubt)),
    }
}

/// The answer to a doubt.
pub(super) fn resolved(
    view: &View<'_>,
    invocation: &Invocation,
    by: Resolver,
    outcome: DoubtOutcome,
) -> InDoubtResolved {
    InDoubtResolved {
        by,
        grounds: None,
        node: view.path.clone(),
        note: None,
        outcome,
        permit: invocation.permit,
        result: None,
        settle_us: None,
        then: None,
    }
}
