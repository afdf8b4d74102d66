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
pub use replay::Replay;
pub(crate) use resolve::not_happened;
pub use resolve::{Resolution, Resolved};
pub use signal::{Signal, SignalAnswer, schema_of};
pub use submit::{Submission, Submitted};
pub(crate) use timer::deadline_exceeded;

use std::collections::BTreeMap;

use aetheris_core::event::{EndCause, Failure, InvocationOutcome, JobFailed, StepInDoubt};
use aetheris_core::id::{EventId, IdempotencyKey, JobId};
use aetheris_core::job::JobStatus;
use aetheris_core::lease::Guard;
use aetheris_core::ledger::{LedgerRow, LedgerStatus, LedgerTrigger, Settle};
use aetheris_core::limits;
use aetheris_core::recovery::{self, Told};
use aetheris_core::state::{Illegal, Invocation, InvocationPhase, JobState, StepState};
use aetheris_store::{Committed, JobRow, LedgerWrite, Purpose, Refusal};

use crate::Runtime;
use crate::draft::{self, Draft, WriteError};
use crate::error::OpError;
use crate::load::Loaded;
use crate::run;

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
        job: JobId,
        purpose: Purpose,
        guard: Guard,
        mut decide: impl FnMut(&Loaded, Draft) -> Result<Plan<T>, OpError>,
    ) -> Result<T, OpError> {
        for _ in 0..limits::CONFLICT_RETRIES_MAX {
            let loaded = self.load_for_write(job).await?;
            let draft = Draft::new(loaded.state.clone(), guard, loaded.checkpoint_seq);
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
                        self.wakeups.end_requested(job, draft.state().fence);
                    }
                    return Ok(answer);
                }
                Err(WriteError::Refused(Refusal::Sequence { .. })) => {}
                Err(WriteError::Refused(refusal)) => return Err(refusal.into()),
                Err(WriteError::Failed(error) | WriteError::Unknown(error)) => return Err(error.into()),
            }
        }
        Err(too_busy(job))
    }

    /// Reads a job that is to be written to from outside a run. One that a restore has held by its row alone, as its
    /// events could not be read then, is first held by an event: what its row says is true before anything is decided.
    async fn load_for_write(&self, job: JobId) -> Result<Loaded, OpError> {
        for _ in 0..limits::CONFLICT_RETRIES_MAX {
            let loaded = Loaded::read(self.store.as_ref(), job).await?;
            if !self.holds_alone(&loaded.row, &loaded.state).await? {
                return Ok(loaded);
            }
            let draft = Draft::new(loaded.state.clone(), Guard::Outside, loaded.checkpoint_seq);
            let Plan::Write(draft, _) = self.held(&loaded, draft)? else { return Ok(loaded) };
            match self.send(&draft, Purpose::Pause).await {
                Ok(_) if draft.state().status.is_terminal() => run::note_end(draft.state()),
                Ok(_) | Err(WriteError::Refused(Refusal::Sequence { .. })) => {}
                Err(WriteError::Refused(refusal)) => return Err(refusal.into()),
                Err(WriteError::Failed(error) | WriteError::Unknown(error)) => return Err(error.into()),
            }
        }
        Err(too_busy(job))
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
            let started = ledger.get(&invocation.key).is_none_or(|row| row.status == LedgerStatus::Started);
            let event = StepInDoubt { node, permit, policy: 0, reason: reason.to_owned() };
            let change = Settle { key: invocation.key, permit_id: invocation.permit_id, trigger: LedgerTrigger::Doubt };
            if started {
                draft.push_with_ledger(self.system.ids.as_ref(), event, LedgerWrite::Settle(change))?;
            }
        }
        for settle in unanswered_retries(ledger, draft.state()) {
            draft.also_settle(LedgerWrite::Settle(settle));
        }
        Ok(())
    }

    /// Fails the job in a draft.
    pub(crate) fn fail_job(&self, draft: &mut Draft, error: Failure) -> Result<(), Illegal> {
        draft.push(self.system.ids.as_ref(), JobFailed { error, node: None })?;
        draft.release();
        Ok(())
    }
}

fn too_busy(job: JobId) -> OpError {
    OpError::StateConflict(format!("job {job} keeps changing; try again"))
}

/// Whether a held job is to end. A pause that was asked for gives way to an end.
fn is_ending(requested: Option<EndCause>) -> bool {
    match requested {
        Some(EndCause::Cancel | EndCause::Deadline) => true,
        Some(EndCause::Pause) | None => false,
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

fn open_calls(state: &JobState) -> Vec<(aetheris_core::id::NodeId, u32)> {
    let called =
        |(node, step): (&aetheris_core::id::NodeId, &aetheris_core::state::StepState)| match recovery::told(step) {
            Told::Called { permit, .. } => Some((node.clone(), permit)),
            Told::NotStarted
            | Told::StartedPlain
            | Told::Doubted { .. }
            | Told::Happened { .. }
            | Told::Disproved { .. }
            | Told::Retryable
            | Told::Succeeded
            | Told::Ended => None,
        };
    state.steps.iter().filter_map(called).collect()
}

/// Whether a step's doubt is open.
pub(crate) fn is_open_doubt(step: &StepState) -> bool {
    step.invocation.as_ref().is_some_and(|invocation| invocation.is_doubted(step.status))
}
