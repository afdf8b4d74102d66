//! What ends a job, and what its end says of calls whose outcome is unknown then. Functions of the job's state and its
//! ledger, which the exhaustive search asks as well.

use aetheris_core::event::{
    EndCause, Event, InvocationOutcome, JobCancelled, JobFailed, JobPaused, PauseReason, StepInDoubt,
};
use aetheris_core::ledger::{LedgerRow, LedgerStatus, LedgerTrigger, Settle};
use aetheris_core::path::StepPath;
use aetheris_core::recovery::{self, StepEvidence};
use aetheris_core::state::{Invocation, InvocationPhase, JobState, StepState};
use aetheris_store::LedgerWrite;

use super::{Amendment, Ledger, deadline_exceeded};
use crate::draft::Fact;

/// Why the outcome of a call stays unknown when its job is ended.
pub(crate) const ENDED_OVER_CALL: &str = "the job was ended while the outcome of the call was unknown";

/// Why the outcome of a call stays unknown beside which a step has failed.
pub(crate) const FAILED_BESIDE_CALL: &str = "the job failed while the outcome of the call was unknown";

/// Why a call is in doubt whose run is gone.
pub(crate) const CRASHED: &str = "the run that called the tool ended before it could record the outcome";

/// The end that was asked for; none where that was not, or only a pause was.
#[must_use]
pub fn asked_end(requested: Option<EndCause>, state: &JobState, ledger: &Ledger) -> Option<Amendment> {
    let end: Event = match requested? {
        EndCause::Cancel => JobCancelled {}.into(),
        EndCause::Deadline => JobFailed { error: deadline_exceeded(), node: None }.into(),
        EndCause::Pause => return None,
    };
    Some(left_open(state, ledger, ENDED_OVER_CALL).and(Fact::of(end)).releasing())
}

/// The job fails, whatever its calls came to.
#[must_use]
pub fn failed(state: &JobState, ledger: &Ledger, failed: JobFailed, reason: &str) -> Amendment {
    left_open(state, ledger, reason).and(Fact::of(failed)).releasing()
}

/// The job is held still. No run looks after its calls from then on: one that must not be repeated and of which nothing is
/// recorded is in doubt, so that it is listed and can be answered while the job is held.
#[must_use]
pub fn held(state: &JobState, ledger: &Ledger, reason: PauseReason) -> Amendment {
    let unseen = aetheris_fault::planted!("pause-hides-open-call");
    let why = match reason {
        PauseReason::Operator => CRASHED,
        PauseReason::Restored => "the backup was made before the outcome of the call was recorded",
    };
    let once = |step: &StepState| step.invocation.as_deref().is_some_and(Invocation::is_open) && !unseen;
    let open = state.steps.iter().filter(|(_, step)| is_open_call(step) && once(step));
    let facts = open.filter_map(|(node, step)| doubted(node, step.invocation.as_deref()?, ledger, why)).collect();
    Amendment { facts, ..Amendment::default() }.and(Fact::of(JobPaused { reason })).releasing()
}

/// That the outcome of every open call is unknown: the job is about to end, and the calls stay in the in-doubt list. Calls
/// that were to be tried again are given up.
#[must_use]
pub(super) fn left_open(state: &JobState, ledger: &Ledger, reason: &str) -> Amendment {
    let facts = open_calls(state, ledger, reason);
    Amendment { facts, settles: unanswered_retries(ledger, state), release: false }
}

/// That the outcome of every open call is unknown.
pub(crate) fn open_calls(state: &JobState, ledger: &Ledger, reason: &str) -> Vec<Fact> {
    let forgotten = aetheris_fault::planted!("open-calls-forgotten");
    let open = state.steps.iter().filter(|(_, step)| !forgotten && is_open_call(step));
    open.filter_map(|(node, step)| doubted(node, step.invocation.as_deref()?, ledger, reason)).collect()
}

/// That a call's outcome is unknown, in the ledger as well unless that knows; nothing where the ledger knows the outcome.
fn doubted(node: &StepPath, call: &Invocation, ledger: &Ledger, reason: &str) -> Option<Fact> {
    let event = StepInDoubt { node: node.clone(), permit: call.permit, policy: 0, reason: reason.to_owned() };
    match known_outcome(ledger, call) {
        Known::Nothing => {
            let (key, permit_id) = (call.key, call.permit_id);
            let doubt = LedgerWrite::Settle(Settle { key, permit_id, trigger: LedgerTrigger::Doubt });
            Some(Fact::with_ledger(event, doubt))
        }
        Known::Doubt => Some(Fact::of(event)),
        Known::Outcome => None,
    }
}

/// Idempotent calls of unknown outcome that were to be tried again: nobody will, and nobody is asked.
fn unanswered_retries(ledger: &Ledger, state: &JobState) -> Vec<Settle> {
    let unended = state.steps.values().filter(|step| !step.status.is_terminal());
    unended.filter_map(|step| unanswered(ledger, step.invocation.as_deref()?)).collect()
}

/// How a call is given up that was to be tried again as its outcome is unknown; nothing where it is not, or where its late
/// success is known. A row that says `started` was read before that outcome was written.
pub(crate) fn unanswered(ledger: &Ledger, invocation: &Invocation) -> Option<Settle> {
    let unknown = invocation.phase == InvocationPhase::Finished(InvocationOutcome::InDoubt);
    let row = ledger.get(&invocation.key);
    let undecided = |row: &LedgerRow| matches!(row.status, LedgerStatus::Started | LedgerStatus::InDoubt);
    let still = row.is_none_or(|row| row.permit < invocation.permit || undecided(row));
    let (key, permit_id) = (invocation.key, invocation.permit_id);
    (unknown && still).then_some(Settle { key, permit_id, trigger: LedgerTrigger::GiveUp })
}

/// What a ledger says of a call's newest permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// Nothing, or that it was given: a doubt is recorded in the ledger as well.
    Nothing,
    /// That its outcome is unknown.
    Doubt,
    /// Its outcome.
    Outcome,
}

/// What is known of a call in the ledger. A row of an older permit says nothing about this one.
pub(crate) fn known_outcome(ledger: &Ledger, invocation: &Invocation) -> Known {
    match ledger.get(&invocation.key).filter(|row| row.permit == invocation.permit).map(|row| row.status) {
        None | Some(LedgerStatus::Started) => Known::Nothing,
        Some(LedgerStatus::InDoubt) => Known::Doubt,
        Some(
            LedgerStatus::Committed
            | LedgerStatus::RefusedRetryable
            | LedgerStatus::RefusedPermanent
            | LedgerStatus::NotSent
            | LedgerStatus::FailedUnresolved,
        ) => Known::Outcome,
    }
}

/// Whether a step has made a call of which nothing is told yet.
fn is_open_call(step: &StepState) -> bool {
    match recovery::told(step) {
        StepEvidence::Called { .. } => true,
        StepEvidence::NotStarted
        | StepEvidence::StartedPlain
        | StepEvidence::Doubted { .. }
        | StepEvidence::Happened { .. }
        | StepEvidence::Disproved { .. }
        | StepEvidence::Retryable
        | StepEvidence::Succeeded
        | StepEvidence::Ended => false,
    }
}

#[cfg(test)]
mod tests {
    use aetheris_core::hash::Hash;
    use aetheris_core::id::{IdempotencyKey, JobId, PermitId};
    use aetheris_core::json::Json;
    use aetheris_core::lease::Fence;
    use aetheris_core::plan::EffectClass;
    use aetheris_core::step::StepStatus;
    use aetheris_core::time::{Span, Timestamp};

    use super::*;

    fn call(phase: InvocationPhase) -> Invocation {
        Invocation {
            answered_late: None,
            class: EffectClass::Idempotent,
            deadline: Timestamp::default(),
            input: Json::null(),
            key: IdempotencyKey::from_u128(1),
            lifetime: Span::ZERO,
            permit: 2,
            permit_id: PermitId::from_u128(2),
            phase,
            tool: "t".into(),
            tool_version: None,
            unknown: 0,
            unsent: 0,
        }
    }

    fn ledger(permit: u32, status: LedgerStatus) -> Ledger {
        let row = LedgerRow {
            boot: None,
            class: EffectClass::Idempotent,
            deadline: Timestamp::default(),
            disproved: false,
            fence: Fence::default(),
            input_hash: Hash::ZERO,
            job: JobId::from_u128(1),
            key: IdempotencyKey::from_u128(1),
            lifetime: None,
            node: "n".into(),
            permit,
            permit_id: PermitId::from_u128(u128::from(permit)),
            seen: None,
            status,
            tool: "t".into(),
            updated_at: Timestamp::default(),
        };
        Ledger::from([(row.key, row)])
    }

    /// Nobody calls it again, and nobody is asked: unless its outcome has become known meanwhile.
    #[test]
    fn a_call_of_unknown_outcome_is_given_up_unless_its_outcome_is_known_by_now() {
        let unknown = call(InvocationPhase::Finished(InvocationOutcome::InDoubt));
        let (key, permit_id) = (unknown.key, unknown.permit_id);
        let given_up = Some(Settle { key, permit_id, trigger: LedgerTrigger::GiveUp });
        assert_eq!(unanswered(&Ledger::new(), &unknown), given_up);
        for status in LedgerStatus::ALL {
            let open = matches!(status, LedgerStatus::Started | LedgerStatus::InDoubt);
            assert_eq!(unanswered(&ledger(2, status), &unknown), given_up.filter(|_| open), "{status:?}");
            // What was read before the permit was given says nothing of it.
            assert_eq!(unanswered(&ledger(1, status), &unknown), given_up, "{status:?}");
            for other in [
                InvocationPhase::Started,
                InvocationPhase::Finished(InvocationOutcome::Committed),
                InvocationPhase::Finished(InvocationOutcome::NotSent),
                InvocationPhase::Finished(InvocationOutcome::RefusedRetryable),
            ] {
                assert_eq!(unanswered(&ledger(2, status), &call(other)), None, "{status:?} {other:?}");
            }
        }
    }

    /// What may be repeated is made again when the job goes on: nobody is to find out what became of it.
    #[test]
    fn a_call_that_must_not_be_repeated_is_in_doubt_while_its_job_is_held() {
        let started = call(InvocationPhase::Started);
        let key = started.key;
        for (class, status, told) in [
            (EffectClass::AtMostOnce, StepStatus::Running, &["step_in_doubt", "job_paused"][..]),
            (EffectClass::AtMostOnce, StepStatus::InDoubt, &["job_paused"]),
            (EffectClass::Idempotent, StepStatus::Running, &["job_paused"]),
        ] {
            let invocation = Some(Invocation { class, ..started.clone() });
            let mut state = JobState::new(JobId::from_u128(1));
            state
                .steps
                .insert("n".into(), StepState { invocation: invocation.map(Box::new), status, ..StepState::default() });
            for reason in [PauseReason::Operator, PauseReason::Restored] {
                let held = held(&state, &ledger(2, LedgerStatus::Started), reason);
                let kinds: Vec<_> = held.facts.iter().map(|fact| fact.event.kind().as_str()).collect();
                assert_eq!(kinds, told, "{class:?} {status:?}");
                let settled = held.facts[0].ledger.as_deref().cloned();
                let doubt =
                    LedgerWrite::Settle(Settle { key, permit_id: started.permit_id, trigger: LedgerTrigger::Doubt });
                assert_eq!(settled, (told.len() == 2).then_some(doubt), "{class:?} {status:?}");
                assert!(held.release && held.settles.is_empty());
            }
        }
    }
}
