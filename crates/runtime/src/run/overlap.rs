//! Work that overlaps with durability.
//!
//! ```text
//! results ─► sent, being written ─────────────────────► written ─► the next unit: all that came meanwhile
//!            transforms, conditions, functions go on
//! ```
//!
//! While a unit of the job is being written, what does not leave this process goes on, on the drafted state. There is one
//! unit of a job on its way at most; all that is known when it has arrived is the next. Whatever can be noticed outside
//! (a call of a tool, a question to a model, an answer, a block, an end) is behind a [`Run::flush`], which awaits both. A
//! crash repeats at most plain bodies whose results were not durable.

use std::sync::{Arc, Mutex, PoisonError};

use aetheris_core::hash::Hash;
use aetheris_store::{Committed, Purpose, Refusal, Store, UnitOfWork};
use futures_util::future::{BoxFuture, poll_immediate};

use super::write::WriteFailed;
use super::{Run, Stop};
use crate::draft::{self, Rebased, WriteError};

/// A unit on its way to the store.
pub(super) struct Sent<'r> {
    unit: Arc<UnitOfWork>,
    /// Never locked: it makes of what only its owner polls something that others may hold a reference to.
    writing: Mutex<Writing<'r>>,
}

type Writing<'r> = BoxFuture<'r, Result<Committed, WriteError>>;

impl<'r> Sent<'r> {
    fn new(store: &'r dyn Store, unit: UnitOfWork) -> Self {
        let unit = Arc::new(unit);
        let sent = Arc::clone(&unit);
        let writing: Writing<'r> = Box::pin(draft::write(store, move || UnitOfWork::clone(&sent)));
        Self { unit, writing: Mutex::new(writing) }
    }

    fn writing(&mut self) -> &mut Writing<'r> {
        self.writing.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Run<'_> {
    /// Sends all that is drafted, unless a unit is still on its way.
    pub(super) async fn send(&mut self) -> Result<Rebased, Stop> {
        if self.look_for_sent().await? == Rebased::Cut {
            return Ok(Rebased::Cut);
        }
        if self.sent.is_some() || !self.draft.has_results() {
            return Ok(Rebased::Whole);
        }
        let Some(unit) = self.draft.send(Purpose::Record, self.rt.event_id()) else {
            return self.flush(Purpose::Record).await;
        };
        self.sent = Some(Sent::new(self.rt.store.as_ref(), unit));
        self.ahead = 0;
        // It is in the store's queue before anything else is done.
        self.look_for_sent().await
    }

    /// Whether the unit on its way, if it has arrived, could be kept whole. Where it could not, what is left of it is written
    /// at once.
    async fn look_for_sent(&mut self) -> Result<Rebased, Stop> {
        let answer = match &mut self.sent {
            Some(sent) => poll_immediate(sent.writing()).await,
            None => None,
        };
        match answer {
            Some(answer) => self.take_arrival(answer).await,
            None => Ok(Rebased::Whole),
        }
    }

    /// Resolves when the unit on its way has arrived; never where there is none. [`Run::take_arrival`] follows.
    pub(super) async fn arrival(&mut self) -> Result<Committed, WriteError> {
        match &mut self.sent {
            Some(sent) => sent.writing().await,
            None => std::future::pending().await,
        }
    }

    /// The unit on its way has arrived with this answer. Where it could not be kept whole, what is left of it is written at
    /// once.
    pub(super) async fn take_arrival(&mut self, answer: Result<Committed, WriteError>) -> Result<Rebased, Stop> {
        let kept = self.landed(answer).await?;
        if kept == Rebased::Cut {
            self.flush(Purpose::Record).await?;
        }
        Ok(kept)
    }

    /// Before the job is read again: a draft is laid onto a newer state only when nothing of it is on its way.
    pub(super) async fn settle_sent(&mut self) -> Result<(), Stop> {
        if self.land().await? == Rebased::Cut {
            self.flush(Purpose::Record).await?;
        }
        Ok(())
    }

    /// Awaits the unit on its way. [`Rebased::Cut`] says that it could not be kept whole; what ran ahead of it is gone.
    pub(super) async fn land(&mut self) -> Result<Rebased, Stop> {
        match &mut self.sent {
            Some(sent) => {
                let answer = sent.writing().await;
                self.landed(answer).await
            }
            None => Ok(Rebased::Whole),
        }
    }

    async fn landed(&mut self, answer: Result<Committed, WriteError>) -> Result<Rebased, Stop> {
        let Some(Sent { unit, .. }) = self.sent.take() else {
            return Ok(Rebased::Whole);
        };
        let mut answer = answer;
        loop {
            let failed = match answer {
                Ok(committed) => {
                    aetheris_fault::sometimes!(RanAhead, self.draft.len() > unit.events.len());
                    self.sent_written(&committed);
                    return Ok(Rebased::Whole);
                }
                Err(WriteError::Refused(refusal)) => return Box::pin(self.recall(refusal)).await,
                Err(WriteError::Failed(_)) if aetheris_fault::planted!("sent-error-ignored") => {
                    let seq = unit.expected_seq.unwrap_or(0) + u64::try_from(unit.events.len()).unwrap_or(0);
                    self.sent_written(&Committed { at: self.state().last_at, head: Hash::ZERO, seq });
                    return Ok(Rebased::Whole);
                }
                Err(WriteError::Failed(error)) => WriteFailed::Absent(error),
                Err(WriteError::Unknown(error)) => WriteFailed::Unknown(error),
            };
            answer = Box::pin(self.send_again(failed, &unit)).await?;
        }
    }

    /// What becomes of a unit that could not be written while the run went on: from here on the run waits.
    async fn send_again(
        &mut self,
        failed: WriteFailed,
        unit: &UnitOfWork,
    ) -> Result<Result<Committed, WriteError>, Stop> {
        let unit = UnitOfWork { overlaps: false, ..unit.clone() };
        Ok(match self.after_failed_write(failed, &unit).await? {
            Some(committed) => Ok(committed),
            None => draft::write(self.rt.store.as_ref(), || unit.clone()).await,
        })
    }

    /// The unit on its way was refused: what ran ahead of it is dropped, and what it held is laid onto the newer state.
    async fn recall(&mut self, refusal: Refusal) -> Result<Rebased, Stop> {
        aetheris_fault::sometimes!(Recalled);
        self.draft.recall();
        match refusal {
            Refusal::Sequence { .. } => {
                self.look_again().await?;
                // What a call came to meanwhile is among what ran ahead.
                if !aetheris_fault::planted!("outcome-dropped-with-a-recall") {
                    self.deposit_dropped().await?;
                }
                Ok(Rebased::Cut)
            }
            refusal @ (Refusal::Guard(_)
            | Refusal::LeaseExpired
            | Refusal::SignalKept(_)
            | Refusal::Ledger(_)
            | Refusal::Duplicate(_)
            | Refusal::Delivered(_)
            | Refusal::ParentEnded(_)
            | Refusal::KeyConflict(_)
            | Refusal::UnknownJob
            | Refusal::UnknownPlan
            | Refusal::Bound { .. }) => self.refused(refusal).await,
        }
    }

    fn sent_written(&mut self, committed: &Committed) {
        self.note_write();
        self.draft.sent_written(committed);
        self.note_kept();
    }

    /// The run gives up: what became of the unit on its way is known before anybody else writes for it. Where that cannot
    /// be learned, whoever runs the job next reads it.
    pub(super) async fn await_sent(&mut self) {
        let Some(mut sent) = self.sent.take() else { return };
        match sent.writing().await {
            Ok(committed) => self.sent_written(&committed),
            Err(error) => {
                tracing::warn!(job = %self.state().id, %error, "what the run sent last was not written");
            }
        }
    }
}
