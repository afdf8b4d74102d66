//! One step: what recovery decides about it, how a try begins, and what follows one that failed.

use aetheris_core::event::{Failure, NodeRetryScheduled, RequeueReason, SkipReason, StepResult};
use aetheris_core::limits;
use aetheris_core::recovery::{self, Decision, EffectSeen, LedgerSeen, StepEvidence};
use aetheris_core::step::StepStatus;
use aetheris_core::time::Span;

use super::budget::{BUDGET_EXCEEDED, over_budget, over_budget_after, over_memory};
use super::kind::Uses;
use super::prepared::{Body, Next, Prepared, Release, Said, TryFailed};
use super::view::View;
use super::{doubt, facts, give_up, judge, kind, permit};
use crate::draft::Fact;

/// Decides from events, effect and ledger what may be done.
///
/// # Errors
/// What is stored contradicts itself: the job fails, and nothing is run.
pub fn prepare(view: &View<'_>) -> Result<Prepared, Failure> {
    if view.status() == StepStatus::Validating {
        return judge::follow(view);
    }
    let key = view.key();
    let told = view.step().map_or(StepEvidence::NotStarted, recovery::told);
    let effect = view.rows.effects.get(&key).map(|effect| EffectSeen { permit: effect.permit });
    let ledger = view.rows.ledger.get(&key).map(|row| LedgerSeen { permit: row.permit, status: row.status });
    let decision = recovery::decide(told, effect, ledger);
    if let Some(by) = view.state.stopped_by(&view.path) {
        return give_up::give_up(view, &by, &decision);
    }
    match decision {
        Decision::Inject | Decision::Nothing => Ok(Prepared::default()),
        Decision::Run => begin(view),
        Decision::NextTry => next_try(view),
        Decision::EndTry if aetheris_fault::planted!("disproof-gives-a-call") => kind::prepare(view),
        Decision::EndTry => doubt::end_answered_try(view),
        Decision::CatchUp => {
            aetheris_fault::sometimes!(CaughtUp);
            permit::catch_up(view)
        }
        Decision::CatchUpOutcome(outcome) => permit::catch_up_outcome(view, outcome),
        Decision::EnterDoubt if aetheris_fault::planted!("doubt-forgotten") => kind::prepare(view),
        Decision::EnterDoubt => doubt::enter(view, crate::ops::CRASHED),
        Decision::ResumeDoubt => doubt::follow(view),
        Decision::CallAgain => {
            aetheris_fault::sometimes!(CalledAgain);
            match over_budget(view) {
                Some(exceeded) => permit::abandon(view, &exceeded),
                None => kind::prepare(view),
            }
        }
        Decision::Corrupt(why) => Err(view.corrupt(&format!("{why}; nothing was run"))),
    }
}

/// Decides what a body's end means.
///
/// # Errors
/// As [`prepare`].
pub fn conclude(view: &View<'_>, said: Said) -> Result<Prepared, Failure> {
    match said {
        Said::AgentFound(wanted, found) => Ok(kind::job::conclude(view, *wanted, found)),
        Said::Rested => begin_try(view),
        Said::Judged(reached, arrival) => Ok(kind::wait::block(view, *reached, arrival)),
        Said::Model(answer, asked, took) => Ok(kind::answered(view, answer, asked, took)),
        Said::InputChecked(_, misfits) => kind::agent::input_checked(view, &misfits),
        Said::Called(outcome, took) => Ok(kind::tool::conclude(view, outcome, took)),
        Said::Unsent(permit, why) => Ok(permit::discard_unused(view, &permit, why)),
        Said::Permitted(outcome, permit) => permit::conclude(view, &permit, outcome),
        Said::Reconciled(outcome, question, clocks) => doubt::conclude(view, &question, clocks, &outcome),
    }
}

/// Starts the step, or goes on with one whose block is over or whose plain body was interrupted.
fn begin(view: &View<'_>) -> Result<Prepared, Failure> {
    if view.status() == StepStatus::Pending {
        // A further round, or a part of a loop, is one of work whose condition has held.
        let begins = view.path.round() == 0 && view.path.is_outside_loop();
        if let Some(condition) = view.work.when.as_ref().filter(|_| begins) {
            match view.holds(condition) {
                Ok(true) => {}
                Ok(false) => return Ok(facts::skip(view, SkipReason::Condition)),
                Err(error) => return Ok(facts::fail_template(view, "its condition", &error)),
            }
        }
        if let Some(exceeded) = over_memory(view.memory) {
            return Ok(facts::fail_job(view, exceeded));
        }
    }
    // Since its try began, others may have used up what is left: the permit before may have come to nothing, or the run that
    // asked may have died.
    match over_budget(view).filter(|_| !is_counted(view)) {
        Some(exceeded) => Ok(facts::fail_job(view, exceeded)),
        None => kind::prepare(view),
    }
}

/// Whether the call that a step is about to make is counted already. A pure tool's is, with its try; permits and tokens are not.
fn is_counted(view: &View<'_>) -> bool {
    if aetheris_fault::planted!("unsent-asks-no-budget") {
        return view.tries() > 0;
    }
    let within_try = view.tries() > 0 && view.invocation().is_none();
    within_try && kind::uses(view) == Uses::Calls
}

/// A try has failed: the next one is scheduled durably, or the step fails.
pub fn after_failure(view: &View<'_>, failed: TryFailed) -> Prepared {
    let (tries, policy) = (view.tries(), view.retry());
    let spent = if aetheris_fault::planted!("retry-budget-per-claim") { tries.min(1) } else { tries };
    let again = failed.retryable && policy.allows_another(spent);
    if !again || view.is_stopped() {
        // What would have been tried again is no failure of its own.
        let failed = TryFailed { given_up: failed.given_up || again, ..failed };
        let result = if failed.retryable { StepResult::RetryableFailure } else { StepResult::PermanentFailure };
        return facts::fail_after(view, result, failed);
    }
    let used = failed.model.as_ref().map_or(0, |model| model.usage.total());
    if let Some(exceeded) = kind::agent::over_limit_after(view, used) {
        return facts::fail_after(view, StepResult::PermanentFailure, TryFailed { error: exceeded, ..failed });
    }
    if let Some(exceeded) = over_budget_after(view, used) {
        // No other try will be allowed: nothing is announced, and nobody waits for it.
        let Failure { code, message, .. } = &failed.error;
        let error = Failure::new(BUDGET_EXCEEDED, format!("{}; the last try: {message} ({code})", exceeded.message));
        return facts::fail_after(view, StepResult::PermanentFailure, TryFailed { error, of_job: true, ..failed });
    }
    #[expect(clippy::cast_possible_truncation, reason = "the low half of a random value is as random")]
    let random = view.ids.secret() as u64;
    let delay = policy.delay(tries, random, failed.retry_after);
    let TryFailed { error, model, .. } = failed;
    let node = view.path.clone();
    let scheduled = NodeRetryScheduled { after_us: delay.micros(), error, model, node };
    let scheduled = Prepared::of([Fact::of(scheduled)]);
    aetheris_fault::crash_point!("run.retry.scheduled");
    if delay <= limits::BACKOFF_HELD_MAX {
        aetheris_fault::sometimes!(RetryHeld);
        return scheduled.next(Next::Record);
    }
    if view.state.end_requested.is_some() {
        return scheduled;
    }
    // A long delay holds no slot: the job is given back until it is over.
    scheduled.next(Next::Release(Release::Requeue(delay, RequeueReason::Retry)))
}

/// Waits for what is left of the recorded delay, then starts the next try. Much is left where the job was paused, or
/// its worker stopped, before it could be given back for so long.
fn next_try(view: &View<'_>) -> Result<Prepared, Failure> {
    let left = view.step().filter(|_| !view.rested).map_or(Span::ZERO, |step| step.delay_left(view.state.last_at));
    aetheris_fault::crash_point!("run.retry.due");
    if left > limits::BACKOFF_HELD_MAX && view.state.end_requested.is_none() {
        return Ok(Prepared::default().next(Next::Release(Release::Requeue(left, RequeueReason::Retry))));
    }
    if left > Span::ZERO && !aetheris_fault::planted!("backoff-skipped") {
        return Ok(Prepared::default().perform(Body::Rest(left)));
    }
    begin_try(view)
}

fn begin_try(view: &View<'_>) -> Result<Prepared, Failure> {
    match over_budget(view) {
        Some(exceeded) => Ok(facts::fail_job(view, exceeded)),
        None => kind::prepare(view),
    }
}
