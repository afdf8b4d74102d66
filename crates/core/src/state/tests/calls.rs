//! Events that speak of a ledger step's call.

use super::*;
use crate::event::{CommandCommitted, JobCancelled, JobFailed};
use crate::job::JobStatus;
use crate::ledger::LedgerStatus;
use crate::state::{Doubt, InvocationPhase, Output};
use crate::step::StepStatus;
use crate::time::Span;

fn committed() -> CommandCommitted {
    CommandCommitted { node: "a".into(), result_hash: Hash::of(b"result") }
}

#[test]
fn a_first_permit_brings_the_input_and_its_deadline() {
    let story = Story::called();
    let expected = Invocation {
        answered_late: None,
        class: EffectClass::AtMostOnce,
        deadline: at(350),
        input: json("input"),
        key: IdempotencyKey::from_u128(6),
        lifetime: Span::from_micros(300),
        permit: 1,
        permit_id: PermitId::from_u128(1),
        phase: InvocationPhase::Started,
        tool: "tool".into(),
        tool_version: Some("2".to_owned()),
        unknown: 0,
        unsent: 0,
    };
    assert_eq!(story.invocation(), &expected);
}

#[test]
fn permits_follow_each_other_under_one_key_and_one_input() {
    let out_of_order = "is out of order";
    let started = Story::started();
    says(&started.refuses(ToolInvocationStarted { input: None, ..permit(1) }), out_of_order);
    says(&started.refuses(permit(2)), out_of_order);
    says(&started.refuses(ToolInvocationStarted { input: Some(json("input")), ..permit(2) }), out_of_order);
    let refused = Story::called().then(outcome(1, InvocationOutcome::RefusedRetryable));
    says(&refused.refuses(permit(1)), out_of_order);
    says(&refused.refuses(ToolInvocationStarted { input: None, ..permit(1) }), out_of_order);
    says(&refused.refuses(permit(3)), out_of_order);
    let other = IdempotencyKey::from_u128(7);
    says(&refused.refuses(ToolInvocationStarted { key: other, ..permit(2) }), out_of_order);
    says(&refused.refuses(ToolInvocationStarted { input: Some(json("x")), ..permit(2) }), out_of_order);
    let second = refused.then(permit(2));
    assert_eq!((second.invocation().permit, second.invocation().phase), (2, InvocationPhase::Started));
    assert_eq!((second.invocation().input.clone(), second.invocation().deadline), (json("input"), at(370)));
    assert_eq!(second.invocation().unsent, 0);
}

/// Calls that have not left are counted over all permits of a step: they use up nothing.
#[test]
fn permits_of_which_nothing_has_left_are_counted_over_all() {
    let story = Story::called().then(outcome(1, InvocationOutcome::NotSent));
    assert_eq!(story.invocation().unsent, 1);
    let story = story.then(permit(2)).then(outcome(2, InvocationOutcome::NotSent)).then(permit(3));
    assert_eq!((story.invocation().permit, story.invocation().unsent), (3, 2));
    let story = story.then(outcome(3, InvocationOutcome::RefusedRetryable)).then(permit(4));
    assert_eq!((story.invocation().permit, story.invocation().unsent), (4, 2));
}

/// The ledger refuses these too; a history is refused without one.
#[test]
fn a_further_permit_follows_only_what_the_ledger_allows() {
    let cannot = "the one before it does not allow another";
    says(&Story::called().refuses(permit(2)), cannot);
    for (told, follows) in [
        (InvocationOutcome::Committed, false),
        (InvocationOutcome::RefusedRetryable, true),
        (InvocationOutcome::RefusedPermanent, false),
        (InvocationOutcome::NotSent, true),
        (InvocationOutcome::InDoubt, false),
    ] {
        let story = Story::called().then(outcome(1, told));
        if follows {
            assert_eq!(story.then(permit(2)).invocation().permit, 2);
        } else {
            says(&story.refuses(permit(2)), cannot);
        }
    }
    let happened = Story::in_doubt().then(resolved(1, Resolver::Reconcile, DoubtOutcome::Happened));
    says(&happened.refuses(permit(2)), cannot);
    let disproved = Story::in_doubt().then(resolved(1, Resolver::Operator, DoubtOutcome::DidNotHappen));
    assert_eq!(disproved.then(permit(2)).invocation().permit, 2);
}

#[test]
fn an_idempotent_call_is_called_again_while_its_outcome_is_unknown() {
    let idempotent = |number| ToolInvocationStarted { effect: EffectClass::Idempotent, ..permit(number) };
    let open = Story::started().then(idempotent(1));
    assert_eq!(open.clone().then(idempotent(2)).invocation().permit, 2);
    let unknown = open.clone().then(outcome(1, InvocationOutcome::InDoubt));
    assert_eq!(unknown.then(idempotent(2)).invocation().permit, 2);
    let known = open.clone().then(outcome(1, InvocationOutcome::Committed));
    says(&known.refuses(idempotent(2)), "the one before it does not allow another");
    assert_eq!(open.then(retry_scheduled("a")).step("a").status, StepStatus::Retrying);
}

#[test]
fn no_try_follows_a_call_that_is_not_told() {
    says(&Story::called().refuses(retry_scheduled("a")), "the outcome of its call is not told");
    let refused = Story::called().then(outcome(1, InvocationOutcome::RefusedRetryable));
    assert_eq!(refused.then(retry_scheduled("a")).step("a").status, StepStatus::Retrying);
    let disproved = Story::in_doubt().then(resolved(1, Resolver::Operator, DoubtOutcome::DidNotHappen));
    assert_eq!(disproved.then(retry_scheduled("a")).step("a").status, StepStatus::Retrying);
}

#[test]
fn an_outcome_is_told_once_and_of_the_current_permit() {
    let story = Story::called();
    says(&story.refuses(outcome(2, InvocationOutcome::Committed)), "has an outcome already");
    says(
        &story.refuses(ToolInvocationFinished { node: "b".into(), ..outcome(1, InvocationOutcome::Committed) }),
        "no invocation",
    );
    let told = story.then(outcome(1, InvocationOutcome::RefusedPermanent));
    assert_eq!(told.invocation().phase, InvocationPhase::Finished(InvocationOutcome::RefusedPermanent));
    assert_eq!(told.step("a").source, Source::CaughtUp);
    says(&told.refuses(outcome(1, InvocationOutcome::Committed)), "has an outcome already");
}

#[test]
fn the_command_of_a_recorded_effect_is_the_output_of_its_step() {
    says(&Story::called().refuses(committed()), "has no effect");
    let refused = Story::called().then(outcome(1, InvocationOutcome::NotSent));
    says(&refused.refuses(committed()), "has no effect");
    let story = Story::called().then(outcome(1, InvocationOutcome::Committed)).then(committed());
    assert_eq!(story.step("a").output, Some(Output::Effect(IdempotencyKey::from_u128(6))));
    // The end of the step does not put another output in its place.
    let story = story.then(finished("a", StepResult::SideEffectCommitted));
    assert_eq!(story.step("a").output, Some(Output::Effect(IdempotencyKey::from_u128(6))));
}

#[test]
fn a_doubt_goes_through_its_policies_in_order() {
    let not_open = "is not open";
    says(&Story::called().refuses(doubt(2, 0)), not_open);
    says(&Story::called().then(outcome(1, InvocationOutcome::NotSent)).refuses(doubt(1, 0)), not_open);
    says(&Story::called().refuses(doubt(1, 1)), "is not at policy 1");
    let first = Story::in_doubt();
    let expected = Doubt { policy: 0, reason: "reason 0".to_owned(), since: at(60), waited: false };
    assert_eq!((first.step("a").status, first.step("a").doubt.as_deref()), (StepStatus::InDoubt, Some(&expected)));
    for policy in [0, 2] {
        says(&first.refuses(doubt(1, policy)), "is not at policy");
    }
    let second = first.then(doubt(1, 1));
    let expected = Doubt { policy: 1, reason: "reason 1".to_owned(), since: at(60), waited: false };
    assert_eq!(second.step("a").doubt.as_deref(), Some(&expected));
}

#[test]
fn only_time_ends_the_wait_of_a_doubt_and_the_doubt_stays() {
    says(&Story::called().refuses(doubt_waits()), "node `a` is not in doubt");
    let waits = Story::in_doubt().then(timer_set(TimerId::Doubt(node("a")))).then(doubt_waits());
    assert_eq!((waits.0.status, waits.step("a").status), (JobStatus::Waiting, StepStatus::InDoubt));
    assert!(waits.0.blocks.oldest().unwrap().doubt);
    says(&waits.refuses(signalled("a")), "a signal never answers a doubt");
    let over = waits.then(timed_out("a"));
    assert!(over.step("a").doubt.as_deref().unwrap().waited);
    assert_eq!((over.0.status, over.step("a").status), (JobStatus::Pending, StepStatus::InDoubt));
    assert_eq!(over.step("a").wait_end, None);
    assert!(over.0.timers.is_empty());
}

#[test]
fn an_answer_to_a_doubt_says_who_gave_it_and_moves_the_step() {
    says(&Story::in_doubt().refuses(resolved(2, Resolver::Operator, DoubtOutcome::Happened)), "is not in doubt");
    for (by, source) in [
        (Resolver::LateDeposit, Source::CaughtUp),
        (Resolver::Policy, Source::CaughtUp),
        (Resolver::Reconcile, Source::Reconciled),
        (Resolver::Operator, Source::Resolved),
    ] {
        for (outcome, status) in [
            (DoubtOutcome::Happened, StepStatus::Running),
            (DoubtOutcome::DidNotHappen, StepStatus::Running),
            (DoubtOutcome::Unresolved, StepStatus::InDoubt),
        ] {
            let story = Story::in_doubt().then(resolved(1, by, outcome));
            assert_eq!((story.step("a").source, story.step("a").status), (source, status));
            assert_eq!(story.invocation().phase, InvocationPhase::Resolved(outcome));
        }
    }
}

#[test]
fn an_answer_ends_the_wait_for_it() {
    let waits = Story::in_doubt().then(timer_set(TimerId::Doubt(node("a")))).then(doubt_waits());
    let story = waits.then(resolved(1, Resolver::Operator, DoubtOutcome::Happened));
    assert_eq!((story.0.status, story.0.blocks.oldest()), (JobStatus::Pending, None));
    assert!(story.0.timers.is_empty());
}

#[test]
fn after_an_answer_only_what_it_says_can_follow() {
    let happened = Story::in_doubt().then(resolved(1, Resolver::Reconcile, DoubtOutcome::Happened));
    says(&happened.refuses(outcome(1, InvocationOutcome::NotSent)), "has an outcome already");
    let caught_up = happened.then(outcome(1, InvocationOutcome::Committed));
    assert_eq!(caught_up.invocation().phase, InvocationPhase::Finished(InvocationOutcome::Committed));
    let disproved = Story::in_doubt().then(resolved(1, Resolver::Reconcile, DoubtOutcome::DidNotHappen));
    assert!(disproved.step("a").is_disproved() && !Story::in_doubt().step("a").is_disproved());
    says(&disproved.refuses(outcome(1, InvocationOutcome::Committed)), "has an outcome already");
    let again = disproved.then(permit(2));
    assert_eq!((again.step("a").doubt.as_deref(), again.invocation().permit), (None, 2));
    let second = again.then(doubt(2, 0));
    assert_eq!(second.step("a").doubt.as_deref().unwrap().since, at(90));
}

/// An answer comes from outside while nobody holds the job, and ends the try in its own unit.
#[test]
fn a_disproof_from_outside_ends_the_try_of_a_job_that_nobody_holds() {
    let parked = Story::in_doubt().then(doubt_waits());
    let answered = parked.then(resolved(1, Resolver::Operator, DoubtOutcome::DidNotHappen));
    assert_eq!(answered.0.status, JobStatus::Pending);
    says(&answered.refuses(finished("a", StepResult::SideEffectCommitted)), "while its job is pending");
    assert_eq!(answered.clone().then(finished("a", StepResult::PermanentFailure)).step("a").status, StepStatus::Failed);
    let retrying = answered.then(retry_scheduled("a"));
    assert_eq!((retrying.0.status, retrying.step("a").status), (JobStatus::Pending, StepStatus::Retrying));
    let happened = Story::in_doubt().then(doubt_waits()).then(resolved(1, Resolver::Operator, DoubtOutcome::Happened));
    says(&happened.refuses(retry_scheduled("a")), "while its job is pending");
    let begun = retrying.then(claimed()).then(node_started("a", 2));
    assert_eq!(begun.step("a").doubt, None);
}

/// The call's own success takes "did not happen" back, as long as no further permit was given.
#[test]
fn a_late_success_takes_a_disproof_back_and_cancels_the_next_try() {
    let no = || Story::in_doubt().then(resolved(1, Resolver::Reconcile, DoubtOutcome::DidNotHappen));
    let late = resolved(1, Resolver::LateDeposit, DoubtOutcome::Happened);
    for story in [no(), no().then(retry_scheduled("a")), no().then(retry_scheduled("a")).then(node_started("a", 2))] {
        for by in [Resolver::Operator, Resolver::Reconcile, Resolver::Policy] {
            says(&story.refuses(resolved(1, by, DoubtOutcome::Happened)), "is not in doubt");
        }
        says(&story.refuses(resolved(1, Resolver::LateDeposit, DoubtOutcome::Unresolved)), "is not in doubt");
        says(&story.refuses(resolved(2, Resolver::LateDeposit, DoubtOutcome::Happened)), "is not in doubt");
        let taken = story.then(late.clone());
        let step = taken.step("a");
        assert_eq!((step.status, step.retry_at, step.retry_delay), (StepStatus::Running, None, None));
        assert_eq!(taken.invocation().phase, InvocationPhase::Resolved(DoubtOutcome::Happened));
    }
    let again = no().then(permit(2));
    says(&again.refuses(late.clone()), "is not in doubt");
    says(&no().then(finished("a", StepResult::PermanentFailure)).refuses(late), "is not in doubt");
}

/// The job does nothing more; whoever goes on with it later finds the answer.
#[test]
fn an_answer_about_a_call_that_was_left_unresolved_is_kept_after_the_end() {
    let given_up = Story::in_doubt()
        .then(resolved(1, Resolver::Policy, DoubtOutcome::Unresolved))
        .then(finished("a", StepResult::PermanentFailure));
    let yes = resolved(1, Resolver::Operator, DoubtOutcome::Happened);
    says(&given_up.refuses(yes.clone()), "is not in doubt");
    let ended = given_up.then(JobFailed { error: Failure::new("in_doubt_unresolved", "?"), node: Some(node("a")) });
    says(&ended.refuses(resolved(2, Resolver::Operator, DoubtOutcome::Happened)), "is not in doubt");
    says(&ended.refuses(resolved(1, Resolver::Operator, DoubtOutcome::Unresolved)), "is not in doubt");
    says(&ended.refuses(resolved(1, Resolver::Reconcile, DoubtOutcome::Happened)), "is not in doubt");
    for outcome in [DoubtOutcome::Happened, DoubtOutcome::DidNotHappen] {
        let kept = ended.clone().then(resolved(1, Resolver::Operator, outcome));
        assert_eq!(kept.invocation().phase, InvocationPhase::Resolved(outcome));
        assert_eq!((kept.0.status, kept.step("a").status), (JobStatus::Failed, StepStatus::Failed));
        assert_eq!((ended.left(), kept.left()), (Some(DoubtOutcome::Unresolved), Some(outcome)));
        assert_eq!((ended.0.ended_at, kept.0.ended_at), (Some(ended.0.last_at), ended.0.ended_at));
        says(&kept.refuses(yes.clone()), "is not in doubt");
    }
}

/// Its step stays as the end has left it: nothing runs in a job that has ended.
#[test]
fn an_answer_about_a_doubt_that_was_open_at_the_end_is_kept_after_it() {
    let waiting = Story::in_doubt().then(doubt_waits());
    assert_eq!((waiting.left(), waiting.0.ended_at), (None, None));
    let ended = waiting.then(JobCancelled {});
    assert_eq!((ended.left(), ended.0.ended_at), (Some(DoubtOutcome::Unresolved), Some(ended.0.last_at)));
    says(&ended.refuses(resolved(1, Resolver::Reconcile, DoubtOutcome::Happened)), "is not in doubt");
    says(&ended.refuses(resolved(1, Resolver::Policy, DoubtOutcome::Unresolved)), "is not in doubt");
    for by in [Resolver::Operator, Resolver::LateDeposit] {
        says(&ended.refuses(resolved(2, by, DoubtOutcome::Happened)), "is not in doubt");
        let kept = ended.clone().then(resolved(1, by, DoubtOutcome::Happened));
        assert_eq!((kept.step("a").status, kept.left()), (StepStatus::InDoubt, Some(DoubtOutcome::Happened)));
        assert_eq!(kept.0.ended_at, ended.0.ended_at);
        says(&kept.refuses(resolved(1, by, DoubtOutcome::Happened)), "is not in doubt");
    }
    let no = ended.then(resolved(1, Resolver::Operator, DoubtOutcome::DidNotHappen));
    assert_eq!((no.step("a").status, no.left()), (StepStatus::InDoubt, Some(DoubtOutcome::DidNotHappen)));
    says(&no.refuses(resolved(1, Resolver::Operator, DoubtOutcome::Happened)), "is not in doubt");
    let late = no.then(resolved(1, Resolver::LateDeposit, DoubtOutcome::Happened));
    assert_eq!((late.step("a").status, late.left()), (StepStatus::InDoubt, Some(DoubtOutcome::Happened)));
}

/// A step with a call of which this is known.
fn with_call(phase: InvocationPhase, status: StepStatus) -> StepState {
    let invocation = Invocation { phase, ..Story::called().invocation().clone() };
    StepState { invocation: Some(Box::new(invocation)), status, ..StepState::default() }
}

/// The ledger rows that fit a step, in the order of the table: status, and whether it is disproved.
fn fitting(step: &StepState, job: JobStatus) -> Vec<(LedgerStatus, bool)> {
    let rows = LedgerStatus::ALL.into_iter().flat_map(|status| [(status, false), (status, true)]);
    rows.filter(|(status, disproved)| step.fits(*status, *disproved, job)).collect()
}

const BEFORE_AND_AFTER_THE_END: [JobStatus; 2] = [JobStatus::Running, JobStatus::Cancelled];

#[test]
fn a_ledger_row_fits_what_the_events_say() {
    use DoubtOutcome as D;
    use InvocationOutcome as I;
    use InvocationPhase::{Finished, Resolved, Started};
    use LedgerStatus as L;
    use StepStatus::{Failed, InDoubt, Retrying, Running};
    let deposited = [
        (L::Started, false),
        (L::Committed, false),
        (L::RefusedRetryable, false),
        (L::RefusedPermanent, false),
        (L::NotSent, false),
        (L::InDoubt, false),
    ];
    let every = &[Running, Retrying, InDoubt, Failed][..];
    for (phase, steps, rows) in [
        (Started, &[Running, Retrying, Failed][..], &deposited[..]),
        (Started, &[InDoubt], &[(L::Committed, false), (L::InDoubt, false)]),
        (Finished(I::Committed), every, &[(L::Committed, false)]),
        (Finished(I::RefusedRetryable), every, &[(L::RefusedRetryable, false)]),
        (Finished(I::RefusedPermanent), every, &[(L::RefusedPermanent, false)]),
        (Finished(I::NotSent), every, &[(L::NotSent, false)]),
        (Resolved(D::Happened), every, &[(L::Committed, false)]),
        (Resolved(D::DidNotHappen), every, &[(L::Committed, false), (L::InDoubt, true)]),
        (Resolved(D::Unresolved), every, &[(L::FailedUnresolved, false)]),
    ] {
        for (status, job) in steps.iter().flat_map(|status| BEFORE_AND_AFTER_THE_END.map(|job| (*status, job))) {
            assert_eq!(fitting(&with_call(phase, status), job), rows, "{phase:?} {status:?} {job:?}");
        }
    }
    assert!(fitting(Story::started().step("a"), JobStatus::Running).is_empty());
}

/// An idempotent call of unknown outcome is given up with its step or its job, and not while another try may follow.
#[test]
fn a_row_is_given_up_without_an_event_at_an_end_only() {
    let (committed, unknown) = ((LedgerStatus::Committed, false), (LedgerStatus::InDoubt, false));
    let given_up = (LedgerStatus::FailedUnresolved, false);
    for status in [StepStatus::Running, StepStatus::Retrying, StepStatus::Failed] {
        let step = with_call(InvocationPhase::Finished(InvocationOutcome::InDoubt), status);
        for job in JobStatus::ALL {
            let mut rows = vec![committed, unknown];
            if status == StepStatus::Failed || job.is_terminal() {
                rows.push(given_up);
            }
            assert_eq!(fitting(&step, job), rows, "{status:?} {job:?}");
        }
    }
}

/// About a call that had been given up the answer is kept beside the row; about an open doubt it settles the row.
#[test]
fn the_row_of_a_call_that_was_answered_after_the_end() {
    use LedgerStatus as L;
    let given_up = (L::FailedUnresolved, false);
    for (outcome, told) in [
        (DoubtOutcome::Happened, &[(L::Committed, false)][..]),
        (DoubtOutcome::DidNotHappen, &[(L::Committed, false), (L::InDoubt, true)]),
    ] {
        for (status, class, beside) in [
            (StepStatus::Failed, EffectClass::AtMostOnce, &[given_up][..]),
            (StepStatus::InDoubt, EffectClass::AtMostOnce, &[]),
            // Earlier builds gave not all of them up.
            (StepStatus::Retrying, EffectClass::Idempotent, &[(L::InDoubt, false), given_up]),
            (StepStatus::Failed, EffectClass::Idempotent, &[(L::InDoubt, false), given_up]),
        ] {
            let mut step = with_call(InvocationPhase::Resolved(outcome), status);
            let call = step.invocation.as_deref_mut().unwrap();
            (call.answered_late, call.class) = (Some(outcome), class);
            let mut rows = [told, beside].concat();
            rows.sort_unstable_by_key(|row| (L::ALL.iter().position(|status| *status == row.0), row.1));
            assert_eq!(fitting(&step, JobStatus::Failed), rows, "{outcome:?} {status:?} {class:?}");
        }
    }
}

/// Of a doubt that was answered before, the end leaves nothing; of an idempotent call in its back-off it does.
#[test]
fn what_the_end_of_a_job_leaves_in_doubt() {
    let end = |story: Story| story.then(JobCancelled {}).left();
    let no = || Story::in_doubt().then(resolved(1, Resolver::Operator, DoubtOutcome::DidNotHappen));
    assert_eq!(end(no().then(retry_scheduled("a"))), None);
    let failed = no().then(finished("a", StepResult::PermanentFailure));
    assert_eq!(failed.then(JobFailed { error: Failure::new("code", "why"), node: Some(node("a")) }).left(), None);
    let idempotent = ToolInvocationStarted { effect: EffectClass::Idempotent, ..permit(1) };
    let unknown = Story::started().then(idempotent).then(outcome(1, InvocationOutcome::InDoubt));
    assert_eq!(end(unknown.then(retry_scheduled("a"))), Some(DoubtOutcome::Unresolved));
    assert_eq!(end(Story::started()), None);
}
