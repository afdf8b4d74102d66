//! Ledger steps: what asks for a permission, and what an outcome means (SPEC §5). The driver writes the permission before
//! the call leaves.

use aetheris_core::event::{
    CommandCommitted, DoubtOutcome, Failure, InvocationOutcome, Resolver, Source, ToolInvocationStarted,
};
use aetheris_core::id::{IdempotencyKey, ToolName};
use aetheris_core::json::Json;
use aetheris_core::ledger::{LedgerStatus, LedgerTrigger, PermitNumber, PermitRequest, Settle};
use aetheris_core::plan::{EffectClass, Tool};
use aetheris_core::state::InvocationPhase;
use aetheris_core::step::StepStatus;
use aetheris_expr::ExprError;
use aetheris_store::{LedgerWrite, NewEffect};

use super::kind::tool::{self, CameTo};
use super::prepared::{Body, Next, Permit, Prepared, Role, TryFailed};
use super::view::View;
use super::{doubt, facts};
use crate::draft::Fact;
use crate::ports::{ToolCall, ToolOutcome};

/// Asks for the next permission. The input is made with the first one, and is the same under every other.
///
/// # Errors
/// The plan has no such tool.
pub(super) fn ask(
    view: &View<'_>,
    name: &ToolName,
    input: impl FnOnce() -> Result<Json, ExprError>,
) -> Result<Prepared, Failure> {
    let previous = view.invocation();
    let input = match previous {
        Some(invocation) => invocation.input.clone(),
        None => match input() {
            Ok(input) => input,
            Err(error) => return Ok(facts::fail_template(view, "its input", &error)),
        },
    };
    let number = previous.map_or(1, |invocation| invocation.permit.saturating_add(1));
    let call = view.tool_call(name, input)?;
    let (permit, asked) = permission(view, name, &call.tool, &call.input, number);
    let travels = PermitNumber { generation: view.fence.generation, number };
    let call = ToolCall { permit: Some(travels), ..call };
    Ok(facts::start(view).and(asked).perform(Body::Call(Box::new(call), Role::Permit(permit))))
}

fn permission(view: &View<'_>, name: &ToolName, tool: &Tool, input: &Json, number: u32) -> (Permit, Fact) {
    let (node, state, lifetime) = (&view.path, view.state, view.permit_lifetime());
    let mut key = view.key();
    if aetheris_fault::planted!("key-with-attempt") {
        key = IdempotencyKey::derive(state.id, node, view.fence.epoch);
    }
    let id = view.permit_id();
    let event = ToolInvocationStarted {
        effect: tool.effect,
        input: (number == 1).then(|| input.clone()),
        key,
        lifetime_us: lifetime.micros(),
        node: node.clone(),
        permit: number,
        permit_id: id,
        tool: name.clone(),
        tool_version: tool.version.clone(),
    };
    let request = PermitRequest {
        class: tool.effect,
        input_hash: input.hash(),
        key,
        lifetime,
        node: node.clone(),
        permit: number,
        permit_id: id,
        tool: name.clone(),
    };
    let permit = Permit { class: tool.effect, id, key, number };
    (permit, Fact::with_ledger(event, LedgerWrite::Permit(request)))
}

/// An idempotent tool is not called again whose outcome is unknown, as the budget allows no further call: it is given up.
///
/// # Errors
/// The history contradicts itself.
pub(super) fn abandon(view: &View<'_>, exceeded: &Failure) -> Result<Prepared, Failure> {
    let invocation = view.called()?;
    let why = format!("{}, and what became of the last one is unknown", exceeded.message);
    let error = Failure::new("outcome_unknown", crate::ops::CRASHED);
    let ended = facts::call_ended(view, invocation.permit, InvocationOutcome::InDoubt, Source::CaughtUp, Some(error));
    let failed = TryFailed { of_job: true, ..TryFailed::new(Failure::new(&exceeded.code, why), None, false) };
    Ok(Prepared::of([facts::unknown(view, invocation, ended)]).next(Next::TryFailed(failed)))
}

/// Nothing was sent, for a reason of this process: the lease, or the permission's own time, ran short while the
/// permission was written, or no file was left for a connection. That is no failure of the step. The permit is
/// recorded as unused, and the next one follows within the same try.
pub(super) fn discard_unused(view: &View<'_>, permit: &Permit, why: Failure) -> Prepared {
    Prepared::of([failure(view, permit, InvocationOutcome::NotSent, why)])
}

/// What is known after a call; it is durable before any other body of the job that leaves the process begins.
///
/// # Errors
/// The history contradicts itself.
pub(super) fn conclude(view: &View<'_>, permit: &Permit, outcome: ToolOutcome) -> Result<Prepared, Failure> {
    let (told, failed) = match tool::come_to(view, outcome) {
        CameTo::Result(result) => return Ok(effect(view, permit, result)),
        CameTo::Failure(InvocationOutcome::InDoubt, failed) if aetheris_fault::planted!("retry-any-error") => {
            (InvocationOutcome::NotSent, TryFailed { retryable: true, ..failed })
        }
        CameTo::Failure(told, failed) => (told, failed),
    };
    let unknown = told == InvocationOutcome::InDoubt;
    if unknown && permit.class == EffectClass::AtMostOnce && !aetheris_fault::planted!("timeout-is-a-failure") {
        return doubt::enter(view, &failed.error.message);
    }
    aetheris_fault::crash_point!("run.tool.refused");
    let ended = failure(view, permit, told, failed.error.clone());
    Ok(Prepared::of([ended]).next(Next::TryFailed(failed)))
}

fn failure(view: &View<'_>, permit: &Permit, told: InvocationOutcome, error: Failure) -> Fact {
    let ended = facts::call_ended(view, permit.number, told, Source::Executed, Some(error));
    Fact::with_ledger(ended, permit.settle(told.settles()))
}

/// The facts of a known effect. They ride with the next commit of this run, which is durable before any other body that
/// leaves the process begins; if the lease is lost first, the effect is deposited.
fn effect(view: &View<'_>, permit: &Permit, result: Json) -> Prepared {
    let ended = facts::call_ended(view, permit.number, InvocationOutcome::Committed, Source::Executed, None);
    aetheris_fault::crash_point!("run.tool.owed");
    let committed = command_committed(view, &result);
    let effect = NewEffect { key: permit.key, permit: permit.number, permit_id: permit.id, result };
    let first = Fact::with_effect(ended, effect, permit.settle(LedgerTrigger::Commit));
    Prepared::of([first]).then(committed)
}

fn command_committed(view: &View<'_>, result: &Json) -> Prepared {
    let (node, result_hash) = (view.path.clone(), result.hash());
    let committed = Fact::of(CommandCommitted { node, result_hash });
    Prepared::of([committed]).then(facts::commit(view, result))
}

/// The missing events, from the recorded effect. Nothing is run.
///
/// # Errors
/// The history contradicts itself.
pub(super) fn catch_up(view: &View<'_>) -> Result<Prepared, Failure> {
    let key = view.key();
    let effect = view.rows.effects.get(&key);
    let effect = effect.ok_or_else(|| view.corrupt("its ledger is committed and its effect is missing"))?;
    let step = view.step().ok_or_else(|| view.corrupt("it has an effect and never started"))?;
    let invocation = step.invocation.as_deref().ok_or_else(|| view.corrupt("it has an effect and was never called"))?;
    let mut source = if step.source == Source::Executed { Source::CaughtUp } else { step.source };
    let disproved =
        step.status != StepStatus::InDoubt && invocation.phase == InvocationPhase::Resolved(DoubtOutcome::DidNotHappen);
    let mut caught_up = Prepared::default();
    if step.status == StepStatus::InDoubt || disproved {
        let resolved = facts::resolved(view, invocation, Resolver::LateDeposit, DoubtOutcome::Happened);
        caught_up = caught_up.and(Fact::of(resolved));
        source = Source::CaughtUp;
    }
    let finished = facts::call_ended(view, invocation.permit, InvocationOutcome::Committed, source, None);
    // A row of an older permit is not this call's: the run has not read the newer one.
    let own = view.rows.ledger.get(&key).filter(|row| row.permit_id == invocation.permit_id);
    let open = own.filter(|row| row.status != LedgerStatus::Committed);
    caught_up = caught_up.and(match open {
        Some(row) => {
            let settle = Settle { key, permit_id: row.permit_id, trigger: LedgerTrigger::Commit };
            Fact::with_ledger(finished, LedgerWrite::Settle(settle))
        }
        None => Fact::of(finished),
    });
    Ok(caught_up.then(command_committed(view, &effect.result)))
}

/// An outcome that only the ledger knows becomes an event, and the retry policy is followed.
///
/// # Errors
/// The history contradicts itself.
pub(super) fn catch_up_outcome(view: &View<'_>, outcome: InvocationOutcome) -> Result<Prepared, Failure> {
    let invocation = view.called()?;
    let (error, retryable) = match outcome {
        InvocationOutcome::NotSent => (Failure::new("not_sent", "the call never left"), true),
        InvocationOutcome::RefusedRetryable => {
            (Failure::new("refused", "the tool refused for now and may accept later"), true)
        }
        InvocationOutcome::RefusedPermanent => (Failure::new("refused", "the tool refused permanently"), false),
        InvocationOutcome::Committed | InvocationOutcome::InDoubt => {
            aetheris_fault::unreachable!("node `{}`: {outcome:?} is not caught up from the ledger alone", view.path)
        }
    };
    let event = facts::call_ended(view, invocation.permit, outcome, Source::CaughtUp, Some(error.clone()));
    Ok(Prepared::of([Fact::of(event)]).next(Next::TryFailed(TryFailed::new(error, None, retryable))))
}

/// What the promise about effects stands on, looked at once more before the call leaves: its permission
/// is written and is the step's newest, the call carries the permission's key, and no effect is known.
pub(super) fn examine(view: &View<'_>, permit: &Permit, call: &ToolCall, written: bool) {
    let (job, node) = (view.state.id, &view.path);
    let invocation = view.invocation();
    aetheris_fault::always!(
        written || aetheris_fault::planted!("call-before-permission"),
        "job {job}, node `{node}`: a call leaves before its permission is written"
    );
    aetheris_fault::always!(
        invocation.is_some_and(|newest| newest.permit_id == permit.id && newest.permit == permit.number),
        "job {job}, node `{node}`: a call leaves under permit {} and {invocation:?} is the newest",
        permit.number
    );
    let new_key = aetheris_fault::planted!("recall-with-new-key");
    let attempt_key = aetheris_fault::planted!("key-with-attempt");
    aetheris_fault::always!(
        call.key == permit.key || new_key || attempt_key,
        "job {job}, node `{node}`: a call leaves with key {} and its permission has {}",
        call.key,
        permit.key
    );
    aetheris_fault::always!(
        !view.rows.effects.contains_key(&permit.key),
        "job {job}, node `{node}`: a call leaves and its effect is recorded"
    );
}

impl Permit {
    fn settle(&self, trigger: LedgerTrigger) -> LedgerWrite {
        LedgerWrite::Settle(Settle { key: self.key, permit_id: self.id, trigger })
    }
}
