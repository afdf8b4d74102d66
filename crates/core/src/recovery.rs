//! What may be done with a ledger or plain step after anything happened to it: SPEC §5's table as one
//! pure function over what events, effect and ledger say of the current permit. Beside it: what people are told
//! comes next of a doubt.

use crate::event::{DoubtOutcome, InvocationOutcome};
use crate::job::JobStatus;
use crate::ledger::LedgerStatus;
use crate::plan::{DoubtPolicy, EffectClass, WaitType};
use crate::state::{InvocationPhase, StepState};
use crate::step::StepStatus;

/// What the events say of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepEvidence {
    /// Nothing: it has not started.
    NotStarted,
    /// It started, and has no ledger invocation.
    StartedPlain,
    /// Its tool may have been called under this permit, and no outcome is told.
    Called {
        /// The permit.
        permit: u32,
        /// What repeating the call would do.
        class: EffectClass,
    },
    /// Its call under this permit is in doubt, and its policies have begun.
    Doubted {
        /// The permit.
        permit: u32,
    },
    /// The doubt was answered: it happened.
    Happened {
        /// The permit.
        permit: u32,
    },
    /// The doubt was answered: it did not happen. That ended the try, and no further permit was given.
    Disproved {
        /// The permit.
        permit: u32,
        /// What follows where nothing else becomes known of it.
        next: AfterDisproof,
    },
    /// A failed try is over and the next one is due.
    Retryable,
    /// It ended with success.
    Succeeded,
    /// It ended with an error, or was skipped.
    Ended,
}

/// Where a step stands whose doubt was answered by "did not happen".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterDisproof {
    /// The end of the try is not recorded: a history of a build that did not end it.
    EndTry,
    /// The next try is scheduled.
    NextTry,
    /// The next try has begun and has not asked for its permit.
    Begun,
}

/// What the effect store has for the step's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EffectSeen {
    /// The permit that it belongs to.
    pub permit: u32,
}

/// What the ledger has for the step's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerSeen {
    /// The current permit.
    pub permit: u32,
    /// What is known of it.
    pub status: LedgerStatus,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Use the recorded result; run nothing.
    Inject,
    /// It is over; run nothing.
    Nothing,
    /// Run the body. For ledger steps this asks for the next permit first.
    Run,
    /// Start the next try, as the retry policy says.
    NextTry,
    /// Nothing happened: end the try, and let the retry policy decide about a next one.
    EndTry,
    /// Write the missing events from the effect; run nothing.
    CatchUp,
    /// Write this outcome of the ledger into the events, then follow the retry policy.
    CatchUpOutcome(InvocationOutcome),
    /// Record that the outcome is unknown and begin the tool's policies.
    EnterDoubt,
    /// Go on with the tool's policies where they stood.
    ResumeDoubt,
    /// Call again with the same key under the next permit (idempotent tools only).
    CallAgain,
    /// What is stored contradicts itself: stop this job, report, run nothing.
    Corrupt(&'static str),
}

/// What the events of a step say, for [`decide`].
#[must_use]
pub fn told(step: &StepState) -> StepEvidence {
    match step.status {
        StepStatus::Pending => StepEvidence::NotStarted,
        StepStatus::Completed | StepStatus::Validating | StepStatus::Refining | StepStatus::Rejected => {
            StepEvidence::Succeeded
        }
        StepStatus::Failed | StepStatus::Skipped => StepEvidence::Ended,
        StepStatus::Retrying => disproved(step, AfterDisproof::NextTry).unwrap_or(StepEvidence::Retryable),
        StepStatus::Running | StepStatus::Waiting | StepStatus::InDoubt => match &step.invocation {
            None => StepEvidence::StartedPlain,
            Some(invocation) => match invocation.phase {
                InvocationPhase::Started if step.status == StepStatus::InDoubt => {
                    StepEvidence::Doubted { permit: invocation.permit }
                }
                InvocationPhase::Started => StepEvidence::Called { permit: invocation.permit, class: invocation.class },
                InvocationPhase::Resolved(DoubtOutcome::Happened) => {
                    StepEvidence::Happened { permit: invocation.permit }
                }
                InvocationPhase::Resolved(DoubtOutcome::DidNotHappen) => {
                    let next = if step.doubt.is_some() { AfterDisproof::EndTry } else { AfterDisproof::Begun };
                    StepEvidence::Disproved { permit: invocation.permit, next }
                }
                // A further try has started and has not asked for its permit yet.
                InvocationPhase::Finished(_) => StepEvidence::StartedPlain,
                InvocationPhase::Resolved(DoubtOutcome::Unresolved) => {
                    StepEvidence::Doubted { permit: invocation.permit }
                }
            },
        },
    }
}

fn disproved(step: &StepState, next: AfterDisproof) -> Option<StepEvidence> {
    let invocation = step.invocation.as_deref()?;
    let disproved = invocation.phase == InvocationPhase::Resolved(DoubtOutcome::DidNotHappen);
    disproved.then_some(StepEvidence::Disproved { permit: invocation.permit, next })
}

/// Decides. An effect or ledger row of an older permit than the events speak of is late evidence, not
/// an outcome, and counts as absent; one of a newer permit contradicts commit A.
#[must_use]
pub fn decide(told: StepEvidence, effect: Option<EffectSeen>, ledger: Option<LedgerSeen>) -> Decision {
    match told {
        StepEvidence::Succeeded => Decision::Inject,
        StepEvidence::Ended => Decision::Nothing,
        StepEvidence::Retryable => Decision::NextTry,
        StepEvidence::NotStarted => match (effect, ledger) {
            (Some(_), _) => Decision::CatchUp,
            (None, None) => Decision::Run,
            (None, Some(_)) => Decision::Corrupt("the ledger has an invocation of a step that never started"),
        },
        StepEvidence::StartedPlain => Decision::Run,
        StepEvidence::Disproved { permit, next } => match (current(permit, effect, ledger), next) {
            (Err(why), _) => Decision::Corrupt(why),
            (Ok((Some(_), _)), _) => Decision::CatchUp,
            (Ok((None, _)), AfterDisproof::EndTry) => Decision::EndTry,
            (Ok((None, _)), AfterDisproof::NextTry) => Decision::NextTry,
            (Ok((None, _)), AfterDisproof::Begun) => Decision::Run,
        },
        StepEvidence::Happened { permit } => match current(permit, effect, ledger) {
            Ok((Some(_), _)) => Decision::CatchUp,
            Ok((None, _)) => Decision::Corrupt("a doubt was answered by \"happened\", and its effect is missing"),
            Err(why) => Decision::Corrupt(why),
        },
        StepEvidence::Called { permit, class } => match current(permit, effect, ledger) {
            Err(why) => Decision::Corrupt(why),
            Ok((Some(_), _)) => Decision::CatchUp,
            Ok((None, status)) => called_without_effect(class, status),
        },
        StepEvidence::Doubted { permit } => match current(permit, effect, ledger) {
            Err(why) => Decision::Corrupt(why),
            Ok((Some(_), _)) => Decision::CatchUp,
            Ok((None, _)) => Decision::ResumeDoubt,
        },
    }
}

fn called_without_effect(class: EffectClass, ledger: Option<LedgerStatus>) -> Decision {
    match ledger {
        Some(LedgerStatus::Committed) => Decision::CatchUp,
        Some(LedgerStatus::RefusedRetryable) => Decision::CatchUpOutcome(InvocationOutcome::RefusedRetryable),
        Some(LedgerStatus::RefusedPermanent) => Decision::CatchUpOutcome(InvocationOutcome::RefusedPermanent),
        Some(LedgerStatus::NotSent) => Decision::CatchUpOutcome(InvocationOutcome::NotSent),
        Some(LedgerStatus::FailedUnresolved) => {
            Decision::Corrupt("the ledger has given up a call that no event speaks of")
        }
        Some(LedgerStatus::Started | LedgerStatus::InDoubt) | None => match class {
            EffectClass::Idempotent => Decision::CallAgain,
            EffectClass::AtMostOnce => Decision::EnterDoubt,
            EffectClass::Pure => Decision::Run,
        },
    }
}

/// What effect and ledger say of exactly this permit.
fn current(
    permit: u32,
    effect: Option<EffectSeen>,
    ledger: Option<LedgerSeen>,
) -> Result<(Option<EffectSeen>, Option<LedgerStatus>), &'static str> {
    if ledger.is_some_and(|row| row.permit > permit) || effect.is_some_and(|seen| seen.permit > permit) {
        return Err("the ledger or the effect store knows a permit that no event speaks of");
    }
    Ok((effect.filter(|seen| seen.permit == permit), ledger.filter(|row| row.permit == permit).map(|row| row.status)))
}

/// What comes next of a call whose outcome is unknown, as people are told it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DoubtNext {
    /// It is made again with the same key; in a paused job once it is resumed.
    CalledAgain,
    /// Its tool's own policies go on by themselves.
    OwnPolicies,
    /// Its tool is asked about it once its job is resumed; a person may answer before.
    AfterResume,
    /// Nothing, until a person answers.
    Person,
}

/// Where the policies of a doubt stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DoubtStands<'p> {
    /// The job has blocked on it, and this ends the wait.
    Blocked(WaitType),
    /// At this policy of the tool's list, which the job is trying or is about to. None where the list is at its end,
    /// has not begun or cannot be read.
    At(Option<&'p DoubtPolicy>),
}

/// What comes next of a call in doubt that nobody has answered.
#[must_use]
pub const fn doubt_next(job: JobStatus, class: EffectClass, stands: DoubtStands<'_>) -> DoubtNext {
    match (job, class) {
        (JobStatus::Completed | JobStatus::Failed | JobStatus::Cancelled, _) => DoubtNext::Person,
        (_, EffectClass::Idempotent | EffectClass::Pure) => DoubtNext::CalledAgain,
        // What only waits finds nothing out, and may be over by then.
        (JobStatus::Paused, EffectClass::AtMostOnce)
            if matches!(stands, DoubtStands::At(Some(DoubtPolicy::Reconcile(_)))) =>
        {
            DoubtNext::AfterResume
        }
        (JobStatus::Pending | JobStatus::Running | JobStatus::Waiting | JobStatus::Parked, EffectClass::AtMostOnce)
            if stands.by_itself() =>
        {
            DoubtNext::OwnPolicies
        }
        (
            JobStatus::Pending | JobStatus::Running | JobStatus::Waiting | JobStatus::Parked | JobStatus::Paused,
            EffectClass::AtMostOnce,
        ) => DoubtNext::Person,
    }
}

impl DoubtStands<'_> {
    /// Whether the tool has something of its own to do before a person is asked.
    const fn by_itself(self) -> bool {
        match self {
            Self::Blocked(WaitType::Timer) | Self::At(Some(DoubtPolicy::Reconcile(_) | DoubtPolicy::Wait(_))) => true,
            Self::Blocked(WaitType::Child | WaitType::Human | WaitType::Signal | WaitType::Webhook)
            | Self::At(Some(DoubtPolicy::Human | DoubtPolicy::Fail) | None) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use EffectClass::{AtMostOnce, Idempotent};
    use LedgerStatus as L;

    const EFFECT: Option<EffectSeen> = Some(EffectSeen { permit: 2 });
    const OLDER: Option<EffectSeen> = Some(EffectSeen { permit: 1 });

    fn ledger(status: L) -> Option<LedgerSeen> {
        Some(LedgerSeen { permit: 2, status })
    }

    fn called(class: EffectClass) -> StepEvidence {
        StepEvidence::Called { permit: 2, class }
    }

    #[test]
    fn finished_with_success_is_injected_whatever_else_is_there() {
        for effect in [None, EFFECT, OLDER] {
            for status in [None].into_iter().chain(L::ALL.map(Some)) {
                assert_eq!(decide(StepEvidence::Succeeded, effect, status.and_then(ledger)), Decision::Inject);
            }
        }
    }

    #[test]
    fn a_retryable_failure_is_tried_again_and_never_injected() {
        assert_eq!(decide(StepEvidence::Retryable, EFFECT, ledger(L::Committed)), Decision::NextTry);
        assert_eq!(decide(StepEvidence::Retryable, None, None), Decision::NextTry);
    }

    #[test]
    fn started_with_an_effect_is_caught_up() {
        for class in [AtMostOnce, Idempotent] {
            for status in [None].into_iter().chain(L::ALL.map(Some)) {
                assert_eq!(decide(called(class), EFFECT, status.and_then(ledger)), Decision::CatchUp);
            }
        }
        assert_eq!(decide(called(AtMostOnce), None, ledger(L::Committed)), Decision::CatchUp);
    }

    #[test]
    fn a_refusal_in_the_ledger_becomes_the_outcome() {
        for (status, outcome) in [
            (L::RefusedRetryable, InvocationOutcome::RefusedRetryable),
            (L::RefusedPermanent, InvocationOutcome::RefusedPermanent),
            (L::NotSent, InvocationOutcome::NotSent),
        ] {
            assert_eq!(decide(called(AtMostOnce), None, ledger(status)), Decision::CatchUpOutcome(outcome));
        }
    }

    #[test]
    fn an_open_call_is_in_doubt_with_the_ledger_or_without() {
        for status in [None, ledger(L::Started), ledger(L::InDoubt)] {
            assert_eq!(decide(called(AtMostOnce), None, status), Decision::EnterDoubt);
            assert_eq!(decide(called(Idempotent), None, status), Decision::CallAgain);
        }
    }

    #[test]
    fn a_doubt_resumes_where_it_stood_until_an_effect_arrives() {
        let told = StepEvidence::Doubted { permit: 2 };
        assert_eq!(decide(told, None, ledger(L::InDoubt)), Decision::ResumeDoubt);
        assert_eq!(decide(told, EFFECT, ledger(L::Committed)), Decision::CatchUp);
        assert_eq!(decide(told, OLDER, ledger(L::InDoubt)), Decision::ResumeDoubt);
    }

    #[test]
    fn plain_steps_and_steps_that_never_started_run() {
        assert_eq!(decide(StepEvidence::StartedPlain, None, None), Decision::Run);
        assert_eq!(decide(StepEvidence::NotStarted, None, None), Decision::Run);
        assert_eq!(decide(StepEvidence::NotStarted, EFFECT, None), Decision::CatchUp);
        assert!(matches!(decide(StepEvidence::NotStarted, None, ledger(L::Started)), Decision::Corrupt(_)));
    }

    #[test]
    fn an_outcome_of_an_older_permit_is_late_evidence_only() {
        assert_eq!(decide(called(AtMostOnce), OLDER, ledger(L::Started)), Decision::EnterDoubt);
        let older = Some(LedgerSeen { permit: 1, status: L::Committed });
        assert_eq!(decide(called(AtMostOnce), None, older), Decision::EnterDoubt);
    }

    #[test]
    fn a_permit_without_its_event_is_corruption() {
        let newer = Some(LedgerSeen { permit: 3, status: L::Started });
        assert!(matches!(decide(called(AtMostOnce), None, newer), Decision::Corrupt(_)));
        assert!(matches!(
            decide(StepEvidence::Happened { permit: 2 }, None, ledger(L::Committed)),
            Decision::Corrupt(_)
        ));
    }

    #[test]
    fn an_answered_doubt_is_caught_up_or_called_again() {
        assert_eq!(decide(StepEvidence::Happened { permit: 2 }, EFFECT, ledger(L::Committed)), Decision::CatchUp);
        for (next, decision) in [
            (AfterDisproof::EndTry, Decision::EndTry),
            (AfterDisproof::NextTry, Decision::NextTry),
            (AfterDisproof::Begun, Decision::Run),
        ] {
            let told = StepEvidence::Disproved { permit: 2, next };
            assert_eq!(decide(told, None, ledger(L::InDoubt)), decision);
            assert_eq!(decide(told, OLDER, ledger(L::InDoubt)), decision);
            assert_eq!(decide(told, EFFECT, ledger(L::Committed)), Decision::CatchUp);
        }
    }

    fn step(status: StepStatus, phase: Option<InvocationPhase>) -> StepState {
        let invocation = phase.map(|phase| crate::state::Invocation {
            answered_late: None,
            class: AtMostOnce,
            deadline: crate::time::Timestamp::default(),
            input: crate::json::Json::null(),
            key: crate::id::IdempotencyKey::from_u128(1),
            lifetime: crate::time::Span::ZERO,
            permit: 2,
            permit_id: crate::id::PermitId::from_u128(1),
            phase,
            tool: "t".into(),
            tool_version: None,
            unknown: 0,
            unsent: 0,
        });
        StepState { invocation: invocation.map(Box::new), status, ..StepState::default() }
    }

    #[test]
    fn what_the_events_of_a_step_say_is_read_from_its_state() {
        use InvocationPhase::{Finished, Resolved, Started};
        use StepStatus as S;
        let disproved = |next| StepEvidence::Disproved { permit: 2, next };
        for (status, expected) in [
            (S::Pending, StepEvidence::NotStarted),
            (S::Completed, StepEvidence::Succeeded),
            (S::Failed, StepEvidence::Ended),
            (S::Skipped, StepEvidence::Ended),
            (S::Retrying, StepEvidence::Retryable),
            (S::Running, StepEvidence::StartedPlain),
            (S::Waiting, StepEvidence::StartedPlain),
        ] {
            assert_eq!(told(&step(status, None)), expected, "{status:?}");
        }
        for (status, phase, expected) in [
            (S::Running, Started, called(AtMostOnce)),
            (S::InDoubt, Started, StepEvidence::Doubted { permit: 2 }),
            (S::Running, Resolved(DoubtOutcome::Happened), StepEvidence::Happened { permit: 2 }),
            (S::Running, Resolved(DoubtOutcome::DidNotHappen), disproved(AfterDisproof::Begun)),
            (S::Retrying, Resolved(DoubtOutcome::DidNotHappen), disproved(AfterDisproof::NextTry)),
            (S::Retrying, Finished(InvocationOutcome::NotSent), StepEvidence::Retryable),
            (S::Failed, Resolved(DoubtOutcome::DidNotHappen), StepEvidence::Ended),
            (S::InDoubt, Resolved(DoubtOutcome::Unresolved), StepEvidence::Doubted { permit: 2 }),
            (S::Running, Finished(InvocationOutcome::NotSent), StepEvidence::StartedPlain),
        ] {
            assert_eq!(told(&step(status, Some(phase))), expected, "{status:?} {phase:?}");
        }
        let doubt = crate::state::Doubt { policy: 0, reason: String::new(), since: Default::default(), waited: false };
        let old =
            StepState { doubt: Some(Box::new(doubt)), ..step(S::Running, Some(Resolved(DoubtOutcome::DidNotHappen))) };
        assert_eq!(told(&old), disproved(AfterDisproof::EndTry));
    }

    #[test]
    fn only_the_current_permit_is_read_and_a_newer_one_is_corruption() {
        let disproved = StepEvidence::Disproved { permit: 2, next: AfterDisproof::NextTry };
        for told in
            [called(AtMostOnce), StepEvidence::Doubted { permit: 2 }, StepEvidence::Happened { permit: 2 }, disproved]
        {
            let newer = Some(EffectSeen { permit: 3 });
            assert!(matches!(decide(told, newer, None), Decision::Corrupt(_)), "{told:?}");
            let row = Some(LedgerSeen { permit: 3, status: L::Committed });
            assert!(matches!(decide(told, EFFECT, row), Decision::Corrupt(_)), "{told:?}");
        }
        let given_up = decide(called(AtMostOnce), None, ledger(L::FailedUnresolved));
        assert!(matches!(given_up, Decision::Corrupt(_)));
        assert_eq!(decide(StepEvidence::Ended, EFFECT, ledger(L::Committed)), Decision::Nothing);
        assert_eq!(decide(called(EffectClass::Pure), None, None), Decision::Run);
    }

    #[test]
    fn what_comes_next_of_a_doubt_is_said_by_its_job_its_class_and_where_its_policies_stand() {
        use DoubtNext::{AfterResume, CalledAgain, OwnPolicies, Person};
        let ask = DoubtPolicy::Reconcile(crate::plan::Reconcile::by("look"));
        let wait = DoubtPolicy::Wait(crate::time::Span::from_secs(5));
        let at = |policy| DoubtStands::At(Some(policy));
        let stands = [
            (at(&ask), OwnPolicies),
            (at(&wait), OwnPolicies),
            (DoubtStands::Blocked(WaitType::Timer), OwnPolicies),
            (at(&DoubtPolicy::Human), Person),
            (DoubtStands::Blocked(WaitType::Human), Person),
            (DoubtStands::Blocked(WaitType::Signal), Person),
            (DoubtStands::Blocked(WaitType::Webhook), Person),
            (at(&DoubtPolicy::Fail), Person),
            (DoubtStands::At(None), Person),
        ];
        for job in JobStatus::ALL {
            for (stands, in_a_job_that_goes_on) in stands {
                let at_most_once = match job {
                    JobStatus::Pending | JobStatus::Running | JobStatus::Waiting | JobStatus::Parked => {
                        in_a_job_that_goes_on
                    }
                    JobStatus::Paused if stands == at(&ask) => AfterResume,
                    JobStatus::Paused | JobStatus::Completed | JobStatus::Failed | JobStatus::Cancelled => Person,
                };
                assert_eq!(doubt_next(job, AtMostOnce, stands), at_most_once, "{job:?} {stands:?}");
                // Nothing of a job that has ended is called again.
                let repeated = if job.is_terminal() { Person } else { CalledAgain };
                for class in [Idempotent, EffectClass::Pure] {
                    assert_eq!(doubt_next(job, class, stands), repeated, "{job:?} {class:?} {stands:?}");
                }
            }
        }
    }
}
