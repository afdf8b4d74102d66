//! The one loop of what is written to a job from outside its run: it is read, its caller decides, and that is written; where
//! something else was written meanwhile, it is looked at again.

use aetheris_core::id::JobId;
use aetheris_core::job::JobStatus;
use aetheris_core::lease::Guard;
use aetheris_core::limits;
use aetheris_store::{Committed, Purpose, Refusal, UnitOfWork};

use super::Decided;
use crate::Runtime;
use crate::admission::Caller;
use crate::draft::{self, WriteError};
use crate::error::OpError;
use crate::load::ForWrite;
use crate::run;

/// The rounds of one operation on one job, [`limits::CONFLICT_RETRIES_MAX`] at most. A read and one commit where nothing
/// interferes.
pub(super) struct Rounds<'r> {
    caller: Caller,
    job: JobId,
    left: u32,
    rt: &'r Runtime,
    /// The job as the last round has seen it.
    seen: Option<ForWrite>,
}

impl<'r> Rounds<'r> {
    pub(super) fn of(rt: &'r Runtime, job: JobId, caller: Caller) -> Self {
        Self { caller, job, left: limits::CONFLICT_RETRIES_MAX, rt, seen: None }
    }

    /// The job as it is now.
    ///
    /// # Errors
    /// It cannot be read, or it has changed in every round.
    pub(super) async fn look(&mut self) -> Result<ForWrite, OpError> {
        self.left = self.left.checked_sub(1).ok_or(OpError::KeepsChanging(self.job))?;
        self.read().await
    }

    /// Reads the job. One that a restore has held by its row alone, as its events could not be read then, is first held by an
    /// event: what its row says is true before anything is decided.
    async fn read(&mut self) -> Result<ForWrite, OpError> {
        let (rt, store) = (self.rt, self.rt.store.as_ref());
        for _ in 0..limits::CONFLICT_RETRIES_MAX {
            let loaded = match self.seen.take() {
                Some(seen) => Box::pin(seen.again(store, &rt.loads, self.caller)).await?,
                None => Box::pin(ForWrite::read((store, &rt.scope), self.job, &rt.loads, self.caller)).await?,
            };
            if !rt.holds_alone(&loaded.row, &loaded.state).await? {
                return Ok(loaded);
            }
            let draft = loaded.draft(Guard::Outside);
            let Decided::Write(draft, _) = rt.restored(&loaded, draft)? else { return Ok(loaded) };
            let fallback = rt.event_id();
            if self.write(loaded, || draft.unit(Purpose::Pause, fallback), |_| false).await?.is_some()
                && draft.state().status.is_terminal()
            {
                run::note_end(draft.state());
            }
        }
        Err(OpError::KeepsChanging(self.job))
    }

    /// Writes what was decided on what was seen, and tells the job's run of new events, if it is in this process. `None` says
    /// that the job is to be looked at again: something else was written to it meanwhile, or the store refused for what
    /// `outdated` takes for a change of the job.
    ///
    /// # Errors
    /// The store refused it for another reason, or it was not written, or nobody can say.
    pub(super) async fn write(
        &mut self,
        seen: ForWrite,
        mut unit: impl FnMut() -> UnitOfWork,
        outdated: impl FnOnce(&Refusal) -> bool,
    ) -> Result<Option<Committed>, WriteError> {
        let mut told = false;
        let noted = || {
            let unit = unit();
            told = !unit.events.is_empty();
            unit
        };
        match draft::write(self.rt.store.as_ref(), noted).await {
            Ok(committed) => {
                // A step of its run may go on for it, while others are under way.
                if told && seen.state.status == JobStatus::Running && !aetheris_fault::planted!("news-of-children-only")
                {
                    self.rt.store.bus().news(self.job);
                }
                Ok(Some(committed))
            }
            Err(WriteError::Refused(refusal)) if matches!(refusal, Refusal::Sequence { .. }) || outdated(&refusal) => {
                self.seen = Some(seen);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}
