//! How a run writes: its draft until it is there, and what a refusal means.

use std::time::Duration;

use aetheris_core::event::{Failure, SUCCEEDED_BEFORE};
use aetheris_core::hash::Hash;
use aetheris_core::lease::Guard;
use aetheris_core::ledger::LedgerRefusal;
use aetheris_core::limits;
use aetheris_core::state::JobState;
use aetheris_store::{Committed, Purpose, Refusal, Scope, StoreError, UnitOfWork};

use super::keep::owed_by;
use super::rows::Rows;
use super::{Run, Stop};
use crate::draft::{self, Draft, Rebased, WriteError};
use crate::error::OpError;
use crate::load::Loaded;
use crate::ops::Deposit;

impl Run<'_> {
    /// Writes the draft. A sequence that has moved under a valid fence is folded and the draft laid onto
    /// it; [`Rebased::Cut`] says that not everything could be kept, and what comes next is to be decided
    /// anew.
    ///
    /// Every step of a run may have to write, and carries this about: what is rare in it is boxed.
    pub(super) async fn flush(&mut self, purpose: Purpose) -> Result<Rebased, Stop> {
        let mut result = Rebased::Whole;
        if !aetheris_fault::planted!("flush-beside-sent") {
            result = self.land().await?;
        }
        let mut conflicts = 0;
        let fallback = self.rt.event_id();
        while !self.draft.is_empty() {
            match draft::write(self.rt.store.as_ref(), || self.draft.unit(purpose, fallback)).await {
                Ok(committed) => self.written(&committed),
                Err(WriteError::Refused(Refusal::Sequence { .. })) => {
                    conflicts += 1;
                    if conflicts > limits::CONFLICT_RETRIES_MAX {
                        return Err(self.too_busy());
                    }
                    if self.look_again().await? == Rebased::Cut {
                        result = Rebased::Cut;
                    }
                }
                Err(WriteError::Refused(refusal)) => return Box::pin(self.refused(refusal)).await,
                Err(WriteError::Failed(_)) if aetheris_fault::planted!("append-error-ignored") => {
                    let (at, seq) = (self.state().last_at, self.state().seq);
                    self.written(&Committed { at, head: Hash::ZERO, seq });
                }
                Err(WriteError::Failed(error)) => {
                    Box::pin(self.retry_while_leased(WriteFailed::Absent(error))).await?;
                }
                Err(WriteError::Unknown(error)) => {
                    let unit = Box::new(self.draft.unit(purpose, fallback));
                    let found = Box::pin(self.after_failed_write(WriteFailed::Unknown(error), &unit)).await?;
                    if let Some(committed) = found {
                        self.written(&committed);
                    }
                }
            }
        }
        Ok(result)
    }

    fn written(&mut self, committed: &Committed) {
        self.note_write();
        self.draft.written(committed);
        self.note_kept();
        self.ahead = 0;
    }

    /// Before a unit is sent again: waits, and asks whether it is there where that is unknown, for as long as the lease is
    /// safe. A look that fails says nothing: the unit would be refused for its own events, and taken for somebody else's.
    pub(super) async fn after_failed_write(
        &mut self,
        failed: WriteFailed,
        unit: &UnitOfWork,
    ) -> Result<Option<Committed>, Stop> {
        let unknown = matches!(failed, WriteFailed::Unknown(_));
        let mut failed = failed;
        loop {
            self.retry_while_leased(failed).await?;
            if !unknown {
                return Ok(None);
            }
            match self.rt.store.resolve_unknown(unit).await {
                Err(error) if !aetheris_fault::planted!("failed-look-is-absence") => {
                    failed = WriteFailed::Unknown(error);
                }
                found => return Ok(found.ok().flatten()),
            }
        }
    }

    /// A unit of the run is written, and its facts are still in the draft.
    pub(super) fn note_write(&mut self) {
        self.writes += 1;
        if self.draft.sets_timer() {
            self.rt.store.bus().timer_set();
        }
    }

    /// Of what is known from outside the process, only what is still in the draft is not written.
    pub(super) fn note_kept(&mut self) {
        self.answered &= !self.draft.is_empty();
        if !self.owed.is_empty() && !aetheris_fault::planted!("owed-for-ever") {
            let job = self.state().id;
            let drafted: Vec<Deposit> = self.draft.facts().filter_map(|fact| owed_by(job, fact)).collect();
            self.owed.retain(|owed| drafted.contains(owed) && !aetheris_fault::planted!("owed-until-any-write"));
        }
    }

    /// What a refusal other than a moved sequence means for the run.
    pub(super) async fn refused(&mut self, refusal: Refusal) -> Result<Rebased, Stop> {
        match refusal {
            Refusal::Guard(_) | Refusal::LeaseExpired => {
                aetheris_fault::sometimes!(StaleRefused);
                Err(Stop::Lost)
            }
            Refusal::SignalKept(_) => {
                aetheris_fault::sometimes!(SignalRacedWait);
                self.signals_met += 1;
                if self.signals_met > limits::KEPT_SIGNALS_MET_MAX {
                    let why = "the store keeps a signal for a wait and does not show it";
                    return Err(Stop::Op(OpError::Corrupt(why.to_owned())));
                }
                let state = self.reload().await?;
                self.draft.rebase_unblocked(state);
                self.refresh_names();
                // The newer state may have refused more than the wait.
                self.deposit_dropped().await?;
                Ok(Rebased::Cut)
            }
            // Someone has settled the call in the meantime: a deposit, or an operator.
            Refusal::Ledger(refusal) => {
                aetheris_fault::sometimes!(RunMetSettledLedger);
                let refused = match refusal {
                    // The run waits for that moment, which bounds how often it is refused.
                    LedgerRefusal::CanStillArrive { key, accepted_from } => {
                        self.accepted_from.insert(key, accepted_from);
                        0
                    }
                    LedgerRefusal::Missing(key)
                    | LedgerRefusal::OtherPermit { key, .. }
                    | LedgerRefusal::Succeeded(key)
                    | LedgerRefusal::ArgumentsDiffer(key)
                    | LedgerRefusal::Illegal { key, .. } => {
                        let times = self.ledger_refusals.entry(key).or_default();
                        *times += 1;
                        *times
                    }
                };
                if refused > limits::LEDGER_REFUSALS_MAX {
                    return Err(Stop::Fault(refused_for_good(&refusal)));
                }
                let state = self.reload().await?;
                self.draft = Draft::new(state, Guard::Run(self.lease.fence), self.draft.last_checkpoint());
                self.refresh_names();
                self.deposit_owed().await?;
                Ok(Rebased::Cut)
            }
            Refusal::Sequence { .. }
            | Refusal::Duplicate(_)
            | Refusal::KeyConflict(_)
            | Refusal::Delivered(_)
            | Refusal::ParentEnded(_)
            | Refusal::UnknownJob
            | Refusal::UnknownPlan
            | Refusal::Bound { .. } => Err(Stop::Fault(Failure::new("write_refused", refusal.to_string()))),
        }
    }

    /// A write that failed for want of the store is sent again for as long as the lease is safe; once the worker is to
    /// stop, [`limits::DRAINING_WRITES_MAX`] times at most, and no more at a second request. One that no store can
    /// take is not: the job fails, without it.
    pub(super) async fn retry_while_leased(&mut self, error: WriteFailed) -> Result<(), Stop> {
        let job = self.state().id;
        let error = match error {
            WriteFailed::Absent(error) if is_permanent(&error) => {
                let message = format!("what the job has to write can never be written: {error}");
                return Err(Stop::Fault(Failure::new("write_impossible", message)));
            }
            // It may be there: the next run looks.
            WriteFailed::Unknown(error) if is_permanent(&error) => return Err(Stop::Op(error.into())),
            WriteFailed::Absent(error) | WriteFailed::Unknown(error) => error,
        };
        let draining = self.lease.drain.is_cancelled();
        self.draining_writes += u32::from(draining);
        let given_up = self.lease.abandon.is_cancelled() || self.draining_writes > limits::DRAINING_WRITES_MAX;
        if given_up || !self.lease.is_safe(self.rt.system.clock.as_ref()) {
            return Err(Stop::Op(error.into()));
        }
        tracing::warn!(%job, %error, "a write failed; trying again while the lease lasts");
        tokio::select! {
            biased;
            () = self.lease.lost.cancelled() => Err(Stop::Lost),
            () = self.lease.abandon.cancelled() => Err(Stop::Op(error.into())),
            () = tokio::time::sleep(STORE_RETRY) => Ok(()),
        }
    }

    /// Reads the job again and takes in what others have written: whether what is drafted could be kept whole.
    pub(super) async fn look_again(&mut self) -> Result<Rebased, Stop> {
        let state = self.reload().await?;
        let rebased = self.draft.rebase(state);
        self.refresh_names();
        if rebased == Rebased::Cut {
            Box::pin(self.deposit_dropped()).await?;
        }
        Ok(rebased)
    }

    pub(super) async fn reload(&mut self) -> Result<JobState, Stop> {
        let loaded = Box::pin(Loaded::read(self.rt.store.as_ref(), &Scope::System, self.state().id)).await?;
        if loaded.state.fence != self.lease.fence || loaded.row.holder.is_none() {
            return Err(Stop::Lost);
        }
        if !aetheris_fault::planted!("rows-left-behind") {
            self.rows = Rows { effects: loaded.effects, kept: loaded.kept, ledger: loaded.ledger };
        }
        Ok(loaded.state)
    }
}

/// A write that was not acknowledged, and what is known of it.
pub(super) enum WriteFailed {
    /// Nothing of it is there.
    Absent(StoreError),
    /// It may be there.
    Unknown(StoreError),
}

/// Whether asking again cannot help.
pub(super) fn is_permanent(error: &StoreError) -> bool {
    error.kind.is_permanent() && !aetheris_fault::planted!("unwritable-for-ever")
}

/// Why a call is never permitted. Of a key of which a call has succeeded after it was said not to have happened, that is
/// an end like others; of anything else it contradicts the job's history.
fn refused_for_good(refusal: &LedgerRefusal) -> Failure {
    match refusal {
        LedgerRefusal::Succeeded(_) => {
            let look = "its result is kept as late evidence, which `aetheris trace` shows";
            Failure::new(SUCCEEDED_BEFORE, format!("{refusal}; {look}"))
        }
        LedgerRefusal::CanStillArrive { .. }
        | LedgerRefusal::Missing(_)
        | LedgerRefusal::OtherPermit { .. }
        | LedgerRefusal::ArgumentsDiffer(_)
        | LedgerRefusal::Illegal { .. } => {
            Failure::new("ledger_refused", format!("the ledger keeps refusing what the events call for: {refusal}"))
        }
    }
}

/// The pause before a store that failed is asked again.
pub(super) const STORE_RETRY: Duration = Duration::from_millis(100);
