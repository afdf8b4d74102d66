//! Ledger steps: permission, call, outcome (SPEC §5).

use std::time::Duration;

use aetheris_core::event::{
    CommandCommitted, DoubtOutcome, Failure, InDoubtResolved, InvocationOutcome, NodeFinished, Resolver, Source,
    StepResult, ToolInvocationFinished, ToolInvocationStarted,
};
use aetheris_core::id::{IdempotencyKey, PermitId};
use aetheris_core::json::Json;
use aetheris_core::ledger::{LedgerStatus, LedgerTrigger, PermitNumber, PermitRequest, Settle};
use aetheris_core::limits;
use aetheris_core::plan::{EffectClass, Node, NodeKind, Tool};
use aetheris_core::retry::OnTimeout;
use aetheris_core::state::InvocationPhase;
use aetheris_core::step::StepStatus;
use aetheris_store::{LedgerWrite, NewEffect, Purpose};

use super::doubt::settle;
use super::plain::{call_cancellable, overdue};
use super::step::TryFailed;
use super::{Run, Stop, Turn, unwritten};
use crate::aside::rendered;
use crate::draft::Rebased;
use crate::ops::{Deposit, DepositOutcome};
use crate::passing::pass;
use crate::ports::{ToolCall, ToolOutcome, is_own_want};

/// A permission that this run was given.
struct Permit {
    class: EffectClass,
    id: PermitId,
    key: IdempotencyKey,
    number: u32,
    /// The boot clock before commit A was sent.
    sent_at: Duration,
}

impl Run<'_> {
    /// Asks for the next permission, durably, and calls.
    pub(super) async fn call_tool(&mut self, node: &Node) -> Result<Turn, Stop> {
        let plan = std::sync::Arc::clone(&self.plan);
        let Some((name, tool)) = plan.tool_of(node) else {
            return Err(Stop::Fault(Failure::new("unknown_tool", format!("node `{}` has no tool", node.id))));
        };
        let previous = self.state().steps.get(&node.id).and_then(|step| step.invocation.clone());
        let input = match &previous {
            Some(invocation) => invocation.input.clone(),
            None => match self.tool_input(node) {
                Ok(input) => input,
                Err(error) => return self.fail_template(node, "its input", &error),
            },
        };
        self.require_safe_lease().await?;
        let number = previous.as_ref().map_or(1, |invocation| invocation.permit.saturating_add(1));
        self.start(node)?;
        if previous.is_none() {
            self.memory += input.memory();
        }
        let permit = self.ask_permission(node, name, tool, &input, number)?;
        let permit = Permit { sent_at: self.rt.system.clock.boot(), ..permit };
        if !aetheris_fault::planted!("call-before-permission") && self.flush(Purpose::Permit).await? == Rebased::Cut {
            return Ok(Turn::Go);
        }
        let Some(call) = self.tool_call(node, name, input) else {
            return Err(Stop::Fault(Failure::new("unknown_tool", format!("the plan has no tool `{name}`"))));
        };
        let travels = PermitNumber { generation: self.lease.fence.generation, number };
        let call = ToolCall { permit: Some(travels), ..call };
        aetheris_fault::crash_point!("run.tool.permitted");
        if let Some(error) = self.too_late(&permit) {
            // The write that was slow is the pause between two permissions.
            tracing::warn!(job = %self.state().id, node = %node.id, error = %error.message, "a call did not leave; asking for another permission");
            return self.give_up_permit(node, &permit, error);
        }
        self.examine_permission(node, &permit, &call);
        match self.call(call, &permit).await {
            Some(outcome) => self.record_outcome(node, &permit, outcome).await,
            None => Ok(Turn::Go),
        }
    }

    /// Calls an idempotent tool again whose outcome is unknown, if the budget allows one more call; else the call
    /// is given up.
    pub(super) async fn call_again(&mut self, node: &Node) -> Result<Turn, Stop> {
        let invocation = self.state().steps.get(&node.id).and_then(|step| step.invocation.clone());
        let (Some(exceeded), Some(invocation)) = (self.over_budget(node), invocation) else {
            return self.call_tool(node).await;
        };
        let why = format!("{}, and what became of the last one is unknown", exceeded.message);
        let exceeded = Failure::new(&exceeded.code, why);
        let event = ToolInvocationFinished {
            error: Some(Failure::new(
                "outcome_unknown",
                "the run that called the tool ended before it could record the outcome",
            )),
            node: node.id.clone(),
            outcome: InvocationOutcome::InDoubt,
            permit: invocation.permit,
            source: Source::CaughtUp,
        };
        self.push_unknown(&invocation, event)?;
        let given_up = settle(&invocation, LedgerTrigger::GiveUp);
        self.fail_step(node, exceeded, StepResult::PermanentFailure, Some(given_up))?;
        Ok(Turn::Go)
    }

    fn tool_input(&self, node: &Node) -> Result<Json, aetheris_expr::ExprError> {
        match &node.kind {
            NodeKind::Tool { input, .. } => rendered(&self.names, |texts| texts.value(input)),
            NodeKind::Condition
            | NodeKind::Llm(_)
            | NodeKind::Sleep(_)
            | NodeKind::Transform(_)
            | NodeKind::Wait(_) => {
                aetheris_fault::unreachable!("node `{}` asks for a permission and has no tool", node.id)
            }
        }
    }

    fn ask_permission(
        &mut self,
        node: &Node,
        name: &aetheris_core::id::ToolName,
        tool: &Tool,
        input: &Json,
        number: u32,
    ) -> Result<Permit, Stop> {
        let mut key = self.key_of(node);
        if aetheris_fault::planted!("key-with-attempt") {
            key = IdempotencyKey::derive(self.state().id, &node.id, self.lease.fence.epoch);
        }
        let permit_id = PermitId::from_u128(self.ids().secret());
        let lifetime = self.permit_lifetime(node);
        let event = ToolInvocationStarted {
            effect: tool.effect,
            input: (number == 1).then(|| input.clone()),
            key,
            lifetime_us: lifetime.micros(),
            node: node.id.clone(),
            permit: number,
            permit_id,
            tool: name.clone(),
            tool_version: tool.version.clone(),
        };
        let request = PermitRequest {
            class: tool.effect,
            input_hash: input.hash(),
            key,
            lifetime,
            node: node.id.clone(),
            permit: number,
            permit_id,
            tool: name.clone(),
        };
        self.draft.push_with_ledger(self.ids(), event, LedgerWrite::Permit(request))?;
        Ok(Permit { class: tool.effect, id: permit_id, key, number, sent_at: Duration::ZERO })
    }

    /// With too little left of the lease nothing new starts: what is known is written, and the run ends as
    /// one that has lost it.
    pub(super) async fn require_safe_lease(&mut self) -> Result<(), Stop> {
        let unchecked = aetheris_fault::planted!("lease-not-checked-before-call");
        if unchecked || self.lease.is_safe(self.rt.system.clock.as_ref()) {
            return Ok(());
        }
        self.flush(Purpose::Record).await?;
        Err(Stop::Lost)
    }

    /// Right before the call leaves: what is left of the lease and of the permit, by this process's
    /// boot clock from the moment commit A was sent.
    fn too_late(&self, permit: &Permit) -> Option<Failure> {
        if aetheris_fault::planted!("lease-not-checked-before-call") {
            return None;
        }
        let spent = self.rt.system.clock.boot().saturating_sub(permit.sent_at);
        if !self.lease.is_safe(self.rt.system.clock.as_ref()) {
            aetheris_fault::sometimes!(LeaseSpentBeforeCall);
            return Some(Failure::new("lease_spent", "too little was left of the lease; nothing was sent"));
        }
        let spent_in_vain = spent >= limits::PERMIT_MARGIN.to_std() && !aetheris_fault::planted!("margin-not-checked");
        spent_in_vain.then(|| {
            aetheris_fault::sometimes!(PermitSpentBeforeCall);
            let message = format!("writing the permission took {} ms; nothing was sent", spent.as_millis());
            Failure::new("permit_spent", message)
        })
    }

    /// What the promise about effects stands on, looked at once more before the call leaves: its permission
    /// is written and is the step's newest, the call carries the permission's key, and no effect is known.
    fn examine_permission(&self, node: &Node, permit: &Permit, call: &ToolCall) {
        let job = self.state().id;
        let invocation = self.state().steps.get(&node.id).and_then(|step| step.invocation.as_ref());
        aetheris_fault::always!(
            self.draft.is_empty() || aetheris_fault::planted!("call-before-permission"),
            "job {job}, node `{}`: a call leaves before its permission is written",
            node.id
        );
        aetheris_fault::always!(
            invocation.is_some_and(|newest| newest.permit_id == permit.id && newest.permit == permit.number),
            "job {job}, node `{}`: a call leaves under permit {} and {invocation:?} is the newest",
            node.id,
            permit.number
        );
        let new_key = aetheris_fault::planted!("recall-with-new-key");
        let attempt_key = aetheris_fault::planted!("key-with-attempt");
        aetheris_fault::always!(
            call.key == permit.key || new_key || attempt_key,
            "job {job}, node `{}`: a call leaves with key {} and its permission has {}",
            node.id,
            call.key,
            permit.key
        );
        aetheris_fault::always!(
            !self.effects.contains_key(&permit.key),
            "job {job}, node `{}`: a call leaves and its effect is recorded",
            node.id
        );
    }

    /// Nothing was sent, for a reason of this process: the lease, or the permission's own time, ran short while the
    /// permission was written, or no file was left for a connection. That is no failure of the step. The permit is
    /// recorded as unused, and the next one follows within the same try.
    fn give_up_permit(&mut self, node: &Node, permit: &Permit, error: Failure) -> Result<Turn, Stop> {
        let event = ToolInvocationFinished {
            error: Some(error),
            node: node.id.clone(),
            outcome: InvocationOutcome::NotSent,
            permit: permit.number,
            source: Source::Executed,
        };
        let unused = Settle { key: permit.key, permit_id: permit.id, trigger: LedgerTrigger::NotSent };
        self.draft.push_with_ledger(self.ids(), event, LedgerWrite::Settle(unused))?;
        self.owe(node, permit, DepositOutcome::Settled(LedgerTrigger::NotSent));
        Ok(Turn::Go)
    }

    /// Calls. What may be called again is dropped when the run is interrupted; an `at_most_once` call is
    /// awaited to its own timeout, and given up only at a second request to stop.
    async fn call(&self, call: ToolCall, permit: &Permit) -> Option<ToolOutcome> {
        aetheris_fault::crash_point!("run.tool.before_call");
        let flight = self.rt.in_flight.leave(permit.id);
        let spent = self.rt.system.clock.boot().saturating_sub(permit.sent_at);
        let limit = call.timeout + grace_after(spent);
        let outcome = match permit.class {
            EffectClass::Pure | EffectClass::Idempotent => call_cancellable(self.rt, self.lease, call, limit).await,
            EffectClass::AtMostOnce => tokio::select! {
                biased;
                outcome = self.rt.tools.call(call) => Some(outcome),
                () = self.lease.abandon.cancelled() => None,
                () = pass(self.rt.system.clock.as_ref(), limit) => Some(overdue(limit)),
            },
        };
        drop(flight);
        aetheris_fault::crash_point!("run.tool.after_call");
        outcome
    }

    /// Records what is known after a call; it is durable before any other body runs.
    async fn record_outcome(&mut self, node: &Node, permit: &Permit, outcome: ToolOutcome) -> Result<Turn, Stop> {
        let on_timeout = self.plan.retry_of(node).on_timeout;
        let (told, trigger, failed) = match outcome {
            ToolOutcome::Done(result) => match Json::checked(result.value().clone()) {
                Ok(result) => return self.record_effect(node, permit, result),
                // It acted, and what it said cannot be kept: only a person can say what the result is.
                Err(error) => {
                    let failure =
                        Failure::new("result_refused", format!("the tool's result cannot be recorded: {error}"));
                    (InvocationOutcome::InDoubt, LedgerTrigger::Doubt, super::plain::failed(failure, None, false))
                }
            },
            ToolOutcome::NotSent { error, .. } if is_own_want(&error) => {
                let turn = self.give_up_permit(node, permit, error.clone())?;
                // Known before the wait: whoever comes after a crash finds no permit that may have been used.
                self.flush(Purpose::Record).await?;
                self.wait_to_leave(node, &error).await;
                return Ok(turn);
            }
            ToolOutcome::NotSent { error, permanent } => {
                (InvocationOutcome::NotSent, LedgerTrigger::NotSent, super::plain::failed(error, None, !permanent))
            }
            ToolOutcome::RefusedRetryable { error, retry_after } => (
                InvocationOutcome::RefusedRetryable,
                LedgerTrigger::RefuseRetryable,
                super::plain::failed(error, retry_after, true),
            ),
            ToolOutcome::RefusedPermanent(error) => (
                InvocationOutcome::RefusedPermanent,
                LedgerTrigger::RefusePermanent,
                super::plain::failed(error, None, false),
            ),
            ToolOutcome::Unknown { error, .. } if aetheris_fault::planted!("retry-any-error") => {
                (InvocationOutcome::NotSent, LedgerTrigger::NotSent, super::plain::failed(error, None, true))
            }
            ToolOutcome::Unknown { error, retry_after, timeout } => {
                let retryable = !(timeout && on_timeout == OnTimeout::Fail);
                (InvocationOutcome::InDoubt, LedgerTrigger::Doubt, super::plain::failed(error, retry_after, retryable))
            }
        };
        let unknown = told == InvocationOutcome::InDoubt;
        if unknown && permit.class == EffectClass::AtMostOnce && !aetheris_fault::planted!("timeout-is-a-failure") {
            return self.enter_doubt(node, &failed.error.message).await;
        }
        self.record_failure(node, permit, (told, trigger), failed).await
    }

    async fn record_failure(
        &mut self,
        node: &Node,
        permit: &Permit,
        (told, trigger): (InvocationOutcome, LedgerTrigger),
        mut failed: TryFailed,
    ) -> Result<Turn, Stop> {
        let settled = |trigger| LedgerWrite::Settle(Settle { key: permit.key, permit_id: permit.id, trigger });
        let event = ToolInvocationFinished {
            error: Some(failed.error.clone()),
            node: node.id.clone(),
            outcome: told,
            permit: permit.number,
            source: Source::Executed,
        };
        self.draft.push_with_ledger(self.ids(), event, settled(trigger))?;
        if told == InvocationOutcome::InDoubt {
            failed.on_exhaustion = Some(settled(LedgerTrigger::GiveUp));
        } else {
            self.owe(node, permit, DepositOutcome::Settled(trigger));
        }
        aetheris_fault::crash_point!("run.tool.refused");
        self.after_failure(node, failed).await
    }

    /// The facts of a known effect. They ride with the next commit of this run, which is durable before any
    /// other body; if the lease is lost first, the effect is deposited.
    fn record_effect(&mut self, node: &Node, permit: &Permit, result: Json) -> Result<Turn, Stop> {
        let effect = NewEffect { key: permit.key, permit: permit.number, permit_id: permit.id, result: result.clone() };
        let commit = Settle { key: permit.key, permit_id: permit.id, trigger: LedgerTrigger::Commit };
        self.owe(node, permit, DepositOutcome::Done(result.clone()));
        self.effects.insert(permit.key, unwritten(&effect));
        let finished = ToolInvocationFinished {
            error: None,
            node: node.id.clone(),
            outcome: InvocationOutcome::Committed,
            permit: permit.number,
            source: Source::Executed,
        };
        self.draft.push_with_effect(self.ids(), finished, effect, LedgerWrite::Settle(commit))?;
        self.commit_command(node, result)?;
        aetheris_fault::crash_point!("run.tool.owed");
        Ok(Turn::Go)
    }

    fn owe(&mut self, node: &Node, permit: &Permit, outcome: DepositOutcome) {
        self.answered = true;
        self.owed.push(Deposit {
            job: self.state().id,
            key: permit.key,
            node: node.id.clone(),
            outcome,
            permit: permit.number,
            permit_id: permit.id,
        });
    }

    fn commit_command(&mut self, node: &Node, result: Json) -> Result<(), Stop> {
        let result_hash = result.hash();
        self.draft.push(self.ids(), CommandCommitted { node: node.id.clone(), result_hash })?;
        let (error, model, output) = (None, None, None);
        let finished = NodeFinished {
            error,
            model,
            node: node.id.clone(),
            output,
            result: StepResult::SideEffectCommitted,
            took_us: None,
        };
        self.draft.push(self.ids(), finished)?;
        self.name_output(&node.id, result);
        Ok(())
    }

    /// Writes the missing events from the recorded effect. Nothing is run.
    pub(super) fn catch_up(&mut self, node: &Node) -> Result<(), Stop> {
        let key = self.key_of(node);
        let missing = |what: &str| Stop::Fault(Failure::new("corrupt_history", format!("node `{}`: {what}", node.id)));
        let effect = self
            .effects
            .get(&key)
            .cloned()
            .ok_or_else(|| missing("its ledger is committed and its effect is missing"))?;
        let step =
            self.state().steps.get(&node.id).cloned().ok_or_else(|| missing("it has an effect and never started"))?;
        let invocation = step.invocation.ok_or_else(|| missing("it has an effect and was never called"))?;
        let mut source = if step.source == Source::Executed { Source::CaughtUp } else { step.source };
        let disproved = step.status != StepStatus::InDoubt
            && invocation.phase == InvocationPhase::Resolved(DoubtOutcome::DidNotHappen);
        if step.status == StepStatus::InDoubt || disproved {
            let (by, outcome) = (Resolver::LateDeposit, DoubtOutcome::Happened);
            let resolved = InDoubtResolved {
                by,
                node: node.id.clone(),
                note: None,
                outcome,
                permit: invocation.permit,
                grounds: None,
                result: None,
                settle_us: None,
                then: None,
            };
            self.draft.push(self.ids(), resolved)?;
            source = Source::CaughtUp;
        }
        let finished = ToolInvocationFinished {
            error: None,
            node: node.id.clone(),
            outcome: InvocationOutcome::Committed,
            permit: invocation.permit,
            source,
        };
        let open = self.ledger.get(&key).filter(|row| row.status != LedgerStatus::Committed);
        match open.map(|row| Settle { key, permit_id: row.permit_id, trigger: LedgerTrigger::Commit }) {
            Some(settle) => self.draft.push_with_ledger(self.ids(), finished, LedgerWrite::Settle(settle))?,
            None => self.draft.push(self.ids(), finished)?,
        }
        self.commit_command(node, effect.result)
    }

    /// Writes an outcome that only the ledger knows into the events, and follows the retry policy.
    pub(super) async fn catch_up_outcome(&mut self, node: &Node, outcome: InvocationOutcome) -> Result<Turn, Stop> {
        let Some(invocation) = self.state().steps.get(&node.id).and_then(|step| step.invocation.clone()) else {
            return Err(Stop::Fault(Failure::new("corrupt_history", format!("node `{}` was never called", node.id))));
        };
        let (error, retryable) = match outcome {
            InvocationOutcome::NotSent => (Failure::new("not_sent", "the call never left"), true),
            InvocationOutcome::RefusedRetryable => {
                (Failure::new("refused", "the tool refused for now and may accept later"), true)
            }
            InvocationOutcome::RefusedPermanent => (Failure::new("refused", "the tool refused permanently"), false),
            InvocationOutcome::Committed | InvocationOutcome::InDoubt => {
                aetheris_fault::unreachable!("node `{}`: {outcome:?} is not caught up from the ledger alone", node.id)
            }
        };
        let event = ToolInvocationFinished {
            error: Some(error.clone()),
            node: node.id.clone(),
            outcome,
            permit: invocation.permit,
            source: Source::CaughtUp,
        };
        self.draft.push(self.ids(), event)?;
        self.after_failure(node, super::plain::failed(error, None, retryable)).await
    }
}

/// How much longer than its timeout a call is awaited when so much of its permission's margin is spent: it is over when
/// its permission is.
fn grace_after(spent: Duration) -> Duration {
    limits::PERMIT_MARGIN.to_std().saturating_sub(spent).min(limits::ADAPTER_GRACE.to_std())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_call_is_awaited_longer_than_its_permission_lives() {
        let spent = [0, 500, 1_000, 1_400, 1_999, 2_000, 9_000].map(Duration::from_millis);
        let grace = [1_000, 1_000, 1_000, 600, 1, 0, 0].map(Duration::from_millis);
        assert_eq!(spent.map(grace_after), grace);
    }
}
