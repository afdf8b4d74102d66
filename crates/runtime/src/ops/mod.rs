//! Writes from outside a run: no epoch, but the sequence that was seen. Each reads the job, lets the
//! core decide, and writes; where something else was written meanwhile it looks again.

mod cancel;
mod deposit;
mod pause;
mod reclaim;
mod replay;
mod resolve;
mod signal;
mod submit;
mod timer;

pub use aetheris_core::event::Then;
pub use cancel::Cancelled;
pub use deposit::{Deposit, DepositOutcome, Deposited};
pub use pause::{Held, PauseAnswer, ResumeAnswer};
pub use reclaim::{Proof, Reclaimed};
pub use replay::{Books, Compared, RecordedResult, Refold, Replay, Unfolded};
pub(crate) use resolve::not_happened;
pub use resolve::{Resolution, Resolved};
pub use signal::{Signal, SignalAnswer, schema_of};
pub use submit::{Submission, Submitted};
pub(crate) use timer::deadline_exceeded;

use std::collections::BTreeMap;

use aetheris_core::event::{EndCause, Event, Failure, InvocationOutcome, JobCancelled, JobFailed, StepInDoubt};
use aetheris_core::id::{EventId, IdempotencyKey, JobId};
use aetheris_core::job::JobStatus;
use aetheris_core::lease::Guard;
use aetheris_core::ledger::{LedgerRow, LedgerStatus, LedgerTrigger, Settle};
use aetheris_core::limits;
use aetheris_core::path::StepPath;
use aetheris_core::recovery::{self, StepEvidence};
use aetheris_core::state::{Illegal, Invocation, InvocationPhase, JobState, StepState};
use aetheris_store::{Committed, JobRow, LedgerWrite, Purpose, Refusal};

use crate::Runtime;
use crate::admission::Caller;
use crate::draft::{self, Draft, Fact, WriteError};
use crate::error::OpError;
use crate::load::{ForWrite, Loaded};
use crate::run;

/// Why the outcome of a call stays unknown when its job is ended.
pub(crate) const ENDED_OVER_CALL: &str = "the job was ended while the outcome of the call was unknown";

/// The ledger rows of one job.
pub(crate) type Ledger = BTreeMap<IdempotencyKey, LedgerRow>;

/// What an operation makes of a job: something to write, or an answer at once.
enum Plan<T> {
    /// Nothing is to be written.
    Answer(T),
    /// This is to be written; the answer holds when it is.
    Write(Box<Draft>, T),
}

impl Runtime {
    /// Reads a job, lets `decide` draft what follows, and writes it; looks again where the job has
    /// moved on meanwhile. A read and one commit where nothing interferes.
    async fn amend<T>(
        &self,
        (job, caller): (JobId, Caller),
        purpose: Purpose,
        guard: Guard,
        mut decide: impl FnMut(&Loaded, Draft) -> Result<Plan<T>, OpError>,
    ) -> Result<T, OpError> {
        let mut before = None;
        for _ in 0..limits::CONFLICT_RETRIES_MAX {
            let loaded = self.load_for_write(job, caller, before.take()).await?;
            let draft = loaded.draft(guard);
            let (draft, answer) = match decide(&loaded, draft)? {
                Plan::Answer(answer) => return Ok(answer),
                Plan::Write(draft, answer) => (draft, answer),
            };
            aetheris_fault::crash_point!("ops.{}.decided", purpose.as_str());
            match self.send(&draft, purpose).await {
                Ok(_) => {
                    aetheris_fault::crash_point!("ops.{}.written", purpose.as_str());
                    // What is kept with a job that has ended ends it no second time.
                    if draft.state().status.is_terminal() && !loaded.state.status.is_terminal() {
                        run::note_end(draft.state());
                    }
                    if draft.state().end_requested.is_some() {
                        self.store.bus().end_requested(job, draft.state().fence);
                    }
                    return Ok(answer);
                }
                Err(WriteError::Refused(Refusal::Sequence { .. })) => before = Some(loaded),
                Err(error) => return Err(error.into()),
            }
        }
        Err(OpError::KeepsChanging(job))
    }

    /// Reads a job that is to be written to from outside a run. One that a
    /// restore has held by its row alone, as its events could not be read then, is first held by an event: what its row
    /// says is true before anything is decided.
    async fn load_for_write(
        &self,
        job: JobId,
        caller: Caller,
        mut before: Option<ForWrite>,
    ) -> Result<ForWrite, OpError> {
        let store = self.store.as_ref();
        for _ in 0..limits::CONFLICT_RETRIES_MAX {
            let loaded = match before.take() {
                Some(loaded) => Box::pin(loaded.again(store, &self.loads, caller)).await?,
                None => Box::pin(ForWrite::read((store, &self.scope), job, &self.loads, caller)).await?,
            };
            if !self.holds_alone(&loaded.row, &loaded.state).await? {
                return Ok(loaded);
            }
            let draft = loaded.draft(Guard::Outside);
            let Plan::Write(draft, _) = self.held(&loaded, draft)? else { return Ok(loaded) };
            match self.send(&draft, Purpose::Pause).await {
                Ok(_) if draft.state().status.is_terminal() => run::note_end(draft.state()),
                Ok(_) | Err(WriteError::Refused(Refusal::Sequence { .. })) => {}
                Err(error) => return Err(error.into()),
            }
            before = Some(loaded);
        }
        Err(OpError::KeepsChanging(job))
    }

    /// Whether a restore has held a job by its row alone ([`JobRow::holds_alone`]).
    async fn holds_alone(&self, row: &JobRow, state: &JobState) -> Result<bool, OpError> {
        // The store is asked only where its row says something else than its events.
        let differs = row.status == JobStatus::Paused && state.status != JobStatus::Paused;
        Ok(differs && row.holds_alone(state, self.store.status().await?.generation))
    }

    async fn send(&self, draft: &Draft, purpose: Purpose) -> Result<Committed, WriteError> {
        let fallback = self.event_id();
        draft::write(self.store.as_ref(), || draft.unit(purpose, fallback)).await
    }

    pub(crate) fn event_id(&self) -> EventId {
        EventId::from_u128(self.system.ids.secret())
    }

    /// Records that the outcome of every open call is unknown: the job is about to end, and the calls
    /// stay in the in-doubt list (SPEC §3).
    pub(crate) fn doubt_open_calls(&self, ledger: &Ledger, draft: &mut Draft, reason: &str) -> Result<(), Illegal> {
        let forgotten = aetheris_fault::planted!("open-calls-forgotten");
        let open = if forgotten { Vec::new() } else { open_calls(draft.state()) };
        for (node, permit) in open {
            let Some(invocation) = draft.state().steps.get(&node).and_then(|step| step.invocation.clone()) else {
                continue;
            };
            let event = StepInDoubt { node, permit, policy: 0, reason: reason.to_owned() };
            match known_outcome(ledger, &invocation) {
                Known::Nothing => {
                    let (key, permit_id) = (invocation.key, invocation.permit_id);
                    let doubt = LedgerWrite::Settle(Settle { key, permit_id, trigger: LedgerTrigger::Doubt });
                    draft.add(self.system.ids.as_ref(), Fact::with_ledger(event, doubt))?;
                }
                Known::Doubt => draft.push(self.system.ids.as_ref(), event)?,
                Known::Outcome => {}
            }
        }
        for settle in unanswered_retries(ledger, draft.state()) {
            draft.also_settle(LedgerWrite::Settle(settle));
        }
        Ok(())
    }

    /// Ends a job in a draft as was asked for; calls whose outcome is unknown stay in the in-doubt list. Whether that was
    /// asked for: where it was not, or only a pause was, nothing is drafted.
    pub(crate) fn end_for(
        &self,
        requested: Option<EndCause>,
        ledger: &Ledger,
        draft: &mut Draft,
    ) -> Result<bool, Illegal> {
        let ends: Event = match requested {
            Some(EndCause::Cancel) => JobCancelled {}.into(),
            Some(EndCause::Deadline) => JobFailed { error: deadline_exceeded(), node: None }.into(),
            Some(EndCause::Pause) | None => return Ok(false),
        };
        self.doubt_open_calls(ledger, draft, ENDED_OVER_CALL)?;
        draft.push(self.system.ids.as_ref(), ends)?;
        draft.release();
        Ok(true)
    }

    /// Fails the job in a draft.
    pub(crate) fn fail_job(&self, draft: &mut Draft, error: Failure) -> Result<(), Illegal> {
        draft.push(self.system.ids.as_ref(), JobFailed { error, node: None })?;
        draft.release();
        Ok(())
    }
}

/// Idempotent calls of unknown outcome that were to be tried again: nobody will, and nobody is asked.
fn unanswered_retries(ledger: &Ledger, state: &JobState) -> Vec<Settle> {
    let unended = state.steps.values().filter(|step| !step.status.is_terminal());
    unended.filter_map(|step| unanswered(ledger, step.invocation.as_ref()?)).collect()
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

fn open_calls(state: &JobState) -> Vec<(StepPath, u32)> {
    let called = |(node, step): (&StepPath, &aetheris_core::state::StepState)| match recovery::told(step) {
        StepEvidence::Called { permit, .. } => Some((node.clone(), permit)),
        StepEvidence::NotStarted
        | StepEvidence::StartedPlain
        | StepEvidence::Doubted { .. }
        | StepEvidence::Happened { .. }
        | StepEvidence::Disproved { .. }
        | StepEvidence::Retryable
        | StepEvidence::Succeeded
        | StepEvidence::Ended => None,
    };
    state.steps.iter().filter_map(called).collect()
}

/// Whether a step's doubt is open.
pub(crate) fn is_open_doubt(step: &StepState) -> bool {
    step.invocation.as_ref().is_some_and(|invocation| invocation.is_doubted(step.status))
}

#[cfg(test)]
mod tests {
    use aetheris_core::hash::Hash;
    use aetheris_core::id::PermitId;
    use aetheris_core::json::Json;
    use aetheris_core::lease::Fence;
    use aetheris_core::plan::EffectClass;
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
}
