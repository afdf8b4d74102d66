//! One step's turn: what recovery decides, and what its kind does.

use std::time::Duration;

use aetheris_core::event::{
    Failure, ModelRecord, NodeFinished, NodeRetryScheduled, NodeStarted, RequeueReason, SkipReason, StepResult,
};
use aetheris_core::id::IdempotencyKey;
use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::plan::{Node, NodeKind};
use aetheris_core::recovery::{self, Decision, EffectSeen, LedgerSeen, StepEvidence};
use aetheris_core::step::StepStatus;
use aetheris_core::time::Span;
use aetheris_store::{LedgerWrite, Purpose};

use super::plain::failed;
use super::{Run, RunEnd, Stop, Turn};
use crate::aside::rendered;
use crate::draft::Rebased;
use crate::ops::unanswered;

/// The code of a step that its job's budget has ended before a call or a question.
const BUDGET_EXCEEDED: &str = "budget_exceeded";

/// Why a try failed, and what may follow.
pub(super) struct TryFailed {
    pub(super) error: Failure,
    /// What a model used for an answer that could not be taken.
    pub(super) model: Option<ModelRecord>,
    /// Written with the end of the step, if no further try is allowed.
    pub(super) on_exhaustion: Option<LedgerWrite>,
    pub(super) retry_after: Option<Span>,
    pub(super) retryable: bool,
    /// How long the body took, if that is told with the step's end.
    pub(super) took_us: Option<u64>,
}

impl Run<'_> {
    pub(super) fn key_of(&self, node: &Node) -> IdempotencyKey {
        if aetheris_fault::planted!("key-without-node") {
            return IdempotencyKey::derive(self.state().id, &"node".into(), 0);
        }
        IdempotencyKey::derive(self.state().id, &node.id, 0)
    }

    /// Decides from events, effect and ledger what may be done, and does it.
    pub(super) async fn turn(&mut self, node: &Node) -> Result<Turn, Stop> {
        let key = self.key_of(node);
        let told = self.state().steps.get(&node.id).map_or(StepEvidence::NotStarted, recovery::told);
        let effect = self.effects.get(&key).map(|effect| EffectSeen { permit: effect.permit });
        let ledger = self.ledger.get(&key).map(|row| LedgerSeen { permit: row.permit, status: row.status });
        match recovery::decide(told, effect, ledger) {
            Decision::Inject | Decision::Nothing => Ok(Turn::Go),
            Decision::Run => self.begin(node).await,
            Decision::NextTry => self.next_try(node).await,
            Decision::EndTry => self.end_answered_try(node).await,
            Decision::CatchUp => {
                aetheris_fault::sometimes!(CaughtUp);
                self.catch_up(node).map(|()| Turn::Go)
            }
            Decision::CatchUpOutcome(outcome) => self.catch_up_outcome(node, outcome).await,
            Decision::EnterDoubt if aetheris_fault::planted!("doubt-forgotten") => self.call_tool(node).await,
            Decision::EnterDoubt => {
                let reason = "the run that called the tool ended before it could record the outcome";
                self.enter_doubt(node, reason).await
            }
            Decision::ResumeDoubt => self.follow_doubt(node).await,
            Decision::CallAgain => {
                aetheris_fault::sometimes!(CalledAgain);
                self.call_again(node).await
            }
            Decision::Corrupt(why) => {
                let message = format!("node `{}`: {why}; nothing was run", node.id);
                Err(Stop::Fault(Failure::new("corrupt_history", message)))
            }
        }
    }

    /// Starts the step, or goes on with one whose block is over or whose plain body was interrupted.
    async fn begin(&mut self, node: &Node) -> Result<Turn, Stop> {
        if self.state().step_status(&node.id) == StepStatus::Pending {
            if let Some(condition) = &node.when {
                match rendered(&self.names, |texts| texts.holds(condition)) {
                    Ok(true) => {}
                    Ok(false) => {
                        self.skip(&node.id, SkipReason::Condition)?;
                        return Ok(Turn::Go);
                    }
                    Err(error) => return self.fail_template(node, "its condition", &error),
                }
            }
            if let Some(exceeded) = self.over_budget(node).or_else(|| self.over_memory()) {
                self.fail_step(node, exceeded, StepResult::PermanentFailure, None)?;
                return Ok(Turn::Go);
            }
        }
        self.work(node).await
    }

    async fn work(&mut self, node: &Node) -> Result<Turn, Stop> {
        match &node.kind {
            NodeKind::Condition => {
                self.start(node)?;
                self.succeed(node, StepResult::Success, Json::new(true.into()), None)
            }
            NodeKind::Transform(template) => match rendered(&self.names, |texts| texts.value(template)) {
                Ok(output) => {
                    self.start(node)?;
                    self.succeed(node, StepResult::Success, output, None)
                }
                Err(error) => self.fail_template(node, "its output", &error),
            },
            NodeKind::Sleep(duration) => self.sleep(node, *duration).await,
            NodeKind::Wait(wait) => self.wait(node, wait).await,
            NodeKind::Llm(llm) => self.ask_model(node, llm).await,
            NodeKind::Tool { tool, input } => match self.plan.tool(tool).map(|tool| tool.effect.is_ledger()) {
                Some(true) => self.call_tool(node).await,
                Some(false) => self.call_pure(node, tool, input).await,
                None => Err(Stop::Fault(Failure::new("unknown_tool", format!("the plan has no tool `{tool}`")))),
            },
        }
    }

    /// Records the start of a try, unless the step is on its way already.
    pub(super) fn start(&mut self, node: &Node) -> Result<(), Stop> {
        let step = self.state().steps.get(&node.id);
        let tries = step.map_or(0, |step| step.tries);
        match step.map_or(StepStatus::Pending, |step| step.status) {
            StepStatus::Pending | StepStatus::Retrying => {
                tracing::debug!(job = %self.state().id, node = %node.id, number = tries + 1, "a step starts");
                self.draft.push(self.ids(), NodeStarted { node: node.id.clone(), number: tries + 1 })?;
                Ok(())
            }
            StepStatus::Running | StepStatus::Waiting | StepStatus::InDoubt => Ok(()),
            StepStatus::Completed | StepStatus::Failed | StepStatus::Skipped => {
                aetheris_fault::unreachable!("node `{}` has ended and is started", node.id)
            }
        }
    }

    /// Records a plain step's result.
    pub(super) fn succeed(
        &mut self,
        node: &Node,
        result: StepResult,
        output: Json,
        model: Option<ModelRecord>,
    ) -> Result<Turn, Stop> {
        self.succeed_after(node, result, output, model, None)
    }

    /// Records a plain step's result, with how long its body took.
    pub(super) fn succeed_after(
        &mut self,
        node: &Node,
        result: StepResult,
        output: Json,
        model: Option<ModelRecord>,
        took_us: Option<u64>,
    ) -> Result<Turn, Stop> {
        tracing::debug!(job = %self.state().id, node = %node.id, took_us, "a step has completed");
        let output_named = output.clone();
        let event = NodeFinished { error: None, model, node: node.id.clone(), output: Some(output), result, took_us };
        self.draft.push(self.ids(), event)?;
        self.name_output(&node.id, output_named);
        Ok(Turn::Go)
    }

    pub(super) fn fail_template(
        &mut self,
        node: &Node,
        what: &str,
        error: &aetheris_expr::ExprError,
    ) -> Result<Turn, Stop> {
        let failure = Failure::new("template_error", format!("{what} cannot be rendered: {error}"));
        self.fail_step(node, failure, StepResult::PermanentFailure, None)?;
        Ok(Turn::Go)
    }

    pub(super) fn fail_step(
        &mut self,
        node: &Node,
        error: Failure,
        result: StepResult,
        ledger: Option<LedgerWrite>,
    ) -> Result<(), Stop> {
        self.fail_step_after(node, result, TryFailed { on_exhaustion: ledger, ..failed(error, None, false) })
    }

    fn fail_step_after(&mut self, node: &Node, result: StepResult, failed: TryFailed) -> Result<(), Stop> {
        let TryFailed { error, model, on_exhaustion, took_us, .. } = failed;
        tracing::debug!(job = %self.state().id, node = %node.id, code = %error.code, reason = %error.message, "a step has failed");
        let event = NodeFinished { error: Some(error), model, node: node.id.clone(), output: None, result, took_us };
        let call = self.state().steps.get(&node.id).and_then(|step| step.invocation.as_ref());
        let given_up = || Some(LedgerWrite::Settle(unanswered(&self.ledger, call?)?));
        match on_exhaustion.or_else(given_up) {
            Some(ledger) => self.draft.push_with_ledger(self.ids(), event, ledger)?,
            None => self.draft.push(self.ids(), event)?,
        }
        Ok(())
    }

    /// A try has failed: the next one is scheduled durably, or the step fails.
    pub(super) async fn after_failure(&mut self, node: &Node, failed: TryFailed) -> Result<Turn, Stop> {
        let tries = self.state().steps.get(&node.id).map_or(0, |step| step.tries);
        let policy = self.plan.retry_of(node).clone();
        let spent = if aetheris_fault::planted!("retry-budget-per-claim") { tries.min(1) } else { tries };
        if !failed.retryable || !policy.allows_another(spent) {
            let result = if failed.retryable { StepResult::RetryableFailure } else { StepResult::PermanentFailure };
            self.fail_step_after(node, result, failed)?;
            return Ok(Turn::Go);
        }
        let used = failed.model.as_ref().map_or(0, |model| model.usage.total());
        if let Some(exceeded) = self.over_budget_after(node, used) {
            // No other try will be allowed: nothing is announced, and nobody waits for it.
            let Failure { code, message, .. } = &failed.error;
            let error =
                Failure::new(BUDGET_EXCEEDED, format!("{}; the last try: {message} ({code})", exceeded.message));
            self.fail_step_after(node, StepResult::PermanentFailure, TryFailed { error, ..failed })?;
            return Ok(Turn::Go);
        }
        #[expect(clippy::cast_possible_truncation, reason = "the low half of a random value is as random")]
        let random = self.ids().secret() as u64;
        let delay = policy.delay(tries, random, failed.retry_after);
        tracing::info!(
            job = %self.state().id, node = %node.id, tries, delay_ms = delay.micros() / 1_000, code = %failed.error.code,
            reason = %failed.error.message, "a step is tried again"
        );
        let TryFailed { error, model, .. } = failed;
        let event = NodeRetryScheduled { after_us: delay.micros(), error, model, node: node.id.clone() };
        self.draft.push(self.ids(), event)?;
        aetheris_fault::crash_point!("run.retry.scheduled");
        if delay <= limits::BACKOFF_HELD_MAX {
            aetheris_fault::sometimes!(RetryHeld);
            self.flush(Purpose::Record).await?;
            return Ok(Turn::Go);
        }
        if self.state().end_requested.is_some() {
            return Ok(Turn::Go);
        }
        self.requeue_until_retry(delay).await
    }

    /// A long delay holds no slot: the job is given back until it is over.
    async fn requeue_until_retry(&mut self, delay: Span) -> Result<Turn, Stop> {
        let requeued =
            aetheris_core::event::JobRequeued { after_us: Some(delay.micros()), reason: RequeueReason::Retry };
        self.draft.push(self.ids(), requeued)?;
        self.draft.release();
        match self.flush(Purpose::Requeue).await? {
            Rebased::Whole => {
                aetheris_fault::sometimes!(RetryReleased);
                Ok(Turn::End(RunEnd::Requeued))
            }
            Rebased::Cut => Ok(Turn::Go),
        }
    }

    /// Waits for what is left of the recorded delay, then starts the next try. Much is left where the job was paused, or
    /// its worker stopped, before it could be given back for so long.
    async fn next_try(&mut self, node: &Node) -> Result<Turn, Stop> {
        let retry_at = self.state().steps.get(&node.id).and_then(|step| step.retry_at);
        let left = retry_at.map_or(Span::ZERO, |at| at.since(self.state().last_at));
        aetheris_fault::crash_point!("run.retry.due");
        if left > limits::BACKOFF_HELD_MAX && self.state().end_requested.is_none() {
            return self.requeue_until_retry(left).await;
        }
        if left > Span::ZERO && !aetheris_fault::planted!("backoff-skipped") {
            self.flush(Purpose::Record).await?;
            tokio::select! {
                biased;
                () = self.lease.interrupted() => return Ok(Turn::Go),
                () = tokio::time::sleep(left.to_std()) => {}
            }
        }
        if let Some(exceeded) = self.over_budget(node) {
            self.fail_step(node, exceeded, StepResult::PermanentFailure, None)?;
            return Ok(Turn::Go);
        }
        self.work(node).await
    }

    pub(super) fn timeout_of(&self, node: &Node) -> Duration {
        self.plan.timeout_of(node, self.rt.settings.step_timeout).to_std()
    }

    /// Why the node may not start, if the job's budget is used up.
    pub(super) fn over_budget(&self, node: &Node) -> Option<Failure> {
        self.over_budget_after(node, 0)
    }

    /// The same where a try has just used so many tokens that no event has told of yet.
    fn over_budget_after(&self, node: &Node, used: u64) -> Option<Failure> {
        let budget = self.plan.plan().budget;
        let tokens = self.state().tokens.saturating_add(used);
        let exceeded = |what: String| Some(Failure::new(BUDGET_EXCEEDED, what));
        match &node.kind {
            NodeKind::Llm(_) => budget
                .max_tokens
                .filter(|max| tokens >= *max)
                .and_then(|max| exceeded(format!("the job has used {tokens} of {max} tokens"))),
            NodeKind::Tool { .. } => budget
                .max_tool_calls
                .map(|max| (self.state().tool_calls(&self.plan), max))
                .filter(|(calls, max)| calls >= max)
                .and_then(|(calls, max)| exceeded(format!("the job has made {calls} of {max} tool calls"))),
            NodeKind::Condition | NodeKind::Sleep(_) | NodeKind::Transform(_) | NodeKind::Wait(_) => None,
        }
    }

    /// Whether the job keeps so much that nothing may be added to it.
    fn over_memory(&self) -> Option<Failure> {
        let max = limits::JOB_MEMORY_MAX;
        (self.memory > max).then(|| {
            let what = format!(
                "its message, what its calls were given and what its steps gave take about {} MiB of memory, and at most {} MiB are kept; keep large data elsewhere and pass on where it is",
                self.memory >> 20,
                max >> 20
            );
            Failure::new("job_too_large", what)
        })
    }

    /// The time a permit lives: its call's timeout and the margin in which the call must leave.
    pub(super) fn permit_lifetime(&self, node: &Node) -> Span {
        Span::from_std(self.timeout_of(node)).plus(limits::PERMIT_MARGIN)
    }
}
