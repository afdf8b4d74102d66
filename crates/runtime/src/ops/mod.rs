//! Writes from outside a run: no epoch, but the sequence that was seen. Each reads the job, decides, and writes; where
//! something else was written meanwhile it looks again ([`rounds`]). What is decided is a function of the job's state and ledger
//! ([`cancelling`], [`pausing`], [`resuming`], [`fired`], [`taken_back`], [`asked_end`], [`failed`], [`held`]), which the
//! exhaustive search asks as well.

mod ahead;
mod amendment;
mod cancel;
mod deliver;
mod deposit;
mod ends;
mod pause;
mod reclaim;
mod replay;
mod resolve;
mod rounds;
mod signal;
mod submit;
mod timer;

pub use aetheris_core::event::Then;
pub use ahead::Takes;
pub use amendment::Amendment;
pub use cancel::{Cancelled, cancelling};
pub use deliver::Delivery;
pub use deposit::{Deposit, DepositOutcome, Deposited, contradicts, is_open};
pub(crate) use ends::{CRASHED, ENDED_OVER_CALL, FAILED_BESIDE_CALL, Known, known_outcome, open_calls, unanswered};
pub use ends::{asked_end, failed, held};
pub use pause::{Held, PauseAnswer, ResumeAnswer, pausing, resuming};
pub use reclaim::{Proof, Reclaimed, taken_back};
pub use replay::{Books, Compared, RecordedResult, Refold, Replay, Unfolded};
pub(crate) use resolve::not_happened;
pub use resolve::{Resolution, Resolved};
use rounds::Rounds;
pub use signal::{Signal, SignalAnswer};
pub use submit::{Submission, Submitted};
use timer::deadline_exceeded;
pub use timer::fired;

use std::collections::BTreeMap;

use aetheris_core::id::{EventId, IdempotencyKey, JobId};
use aetheris_core::job::JobStatus;
use aetheris_core::lease::Guard;
use aetheris_core::ledger::LedgerRow;
use aetheris_core::state::{JobState, StepState};
use aetheris_store::{JobRow, Purpose};

use crate::Runtime;
use crate::admission::Caller;
use crate::draft::Draft;
use crate::error::OpError;
use crate::load::Loaded;
use crate::run;

/// The ledger rows of one job.
pub(crate) type Ledger = BTreeMap<IdempotencyKey, LedgerRow>;

/// What an operation makes of a job: something to write, or an answer at once.
enum Decided<T> {
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
        mut decide: impl FnMut(&Loaded, Draft) -> Result<Decided<T>, OpError>,
    ) -> Result<T, OpError> {
        let mut rounds = Rounds::of(self, job, caller);
        loop {
            let loaded = rounds.look().await?;
            let draft = loaded.draft(guard);
            let (draft, answer) = match decide(&loaded, draft)? {
                Decided::Answer(answer) => return Ok(answer),
                Decided::Write(draft, answer) => (draft, answer),
            };
            aetheris_fault::crash_point!("ops.{}.decided", purpose.as_str());
            // What is kept with a job that has ended ends it no second time.
            let ends = draft.state().status.is_terminal() && !loaded.state.status.is_terminal();
            let fallback = self.event_id();
            if rounds.write(loaded, || draft.unit(purpose, fallback), |_| false).await?.is_some() {
                aetheris_fault::crash_point!("ops.{}.written", purpose.as_str());
                if ends {
                    run::note_end(draft.state());
                }
                if draft.state().end_requested.is_some() {
                    self.store.bus().end_requested(job, draft.state().fence);
                }
                return Ok(answer);
            }
        }
    }

    /// Whether a restore has held a job by its row alone ([`JobRow::holds_alone`]).
    async fn holds_alone(&self, row: &JobRow, state: &JobState) -> Result<bool, OpError> {
        // The store is asked only where its row says something else than its events.
        let differs = row.status == JobStatus::Paused && state.status != JobStatus::Paused;
        Ok(differs && row.holds_alone(state, self.store.status().await?.generation))
    }

    /// What is to be written of a job: an amendment, if there is one, or an answer at once.
    fn decided<T>(&self, mut draft: Draft, (found, answer): (Option<Amendment>, T)) -> Result<Decided<T>, OpError> {
        let Some(amendment) = found else { return Ok(Decided::Answer(answer)) };
        amendment.add_to(&mut draft, self.system.ids.as_ref())?;
        Ok(Decided::Write(Box::new(draft), answer))
    }

    pub(crate) fn event_id(&self) -> EventId {
        EventId::from_u128(self.system.ids.secret())
    }
}

/// Whether a step's doubt is open.
pub(crate) fn is_open_doubt(step: &StepState) -> bool {
    step.invocation.as_deref().is_some_and(|invocation| invocation.is_doubted(step.status))
}
