//! Timers: fired exactly once, by whichever process gets there first.

use aetheris_core::event::{EndCause, Failure, JobCancelRequested, TimerFired, TimerId, WaitCompleted, WaitEnd};
use aetheris_core::job::JobStatus;
use aetheris_core::lease::Guard;
use aetheris_core::projection::TimerChange;
use aetheris_store::{Purpose, TimerRow, UnitOfWork};

use super::Plan;
use crate::Runtime;
use crate::admission::Caller;
use crate::draft::Draft;
use crate::error::OpError;
use crate::load::Loaded;

impl Runtime {
    /// Fires a timer that the store has listed as due. Whether it did: someone else may have been first, the wait
    /// may have ended, or the store's clock was set back since, and it is due later. One commit.
    ///
    /// # Errors
    /// [`OpError`]: the job cannot be read or written.
    pub async fn fire(&self, due: &TimerRow) -> Result<bool, OpError> {
        self.fire_as(due, Caller::Process).await
    }

    /// The same, where its job is not large, or nobody in this process is to be waited for.
    ///
    /// # Errors
    /// As [`Runtime::fire`]; [`OpError::Crowded`], where it was to be waited for.
    pub async fn fire_if_free(&self, due: &TimerRow) -> Result<bool, OpError> {
        self.fire_as(due, Caller::Sweep).await
    }

    async fn fire_as(&self, due: &TimerRow, caller: Caller) -> Result<bool, OpError> {
        if aetheris_fault::planted!("timer-deleted-first") {
            let mut unit = UnitOfWork::new(self.event_id(), due.job, Purpose::Timer, Guard::Outside);
            unit.timers.push(TimerChange::Cleared(due.timer.clone()));
            drop(self.store.commit(unit).await);
        }
        let early = aetheris_fault::planted!("timer-fires-early");
        let guard = if early { Guard::Outside } else { Guard::Due(due.due) };
        let fired = self.amend((due.job, caller), Purpose::Timer, guard, |loaded, mut draft| {
            let set = loaded.state.timers.get(&due.timer);
            // It may have been set anew since it was listed: then it is due at another moment.
            if set.is_none_or(|timer| timer.due != due.due && !early) {
                aetheris_fault::sometimes!(TimerLate);
                return Ok(Plan::Answer(false));
            }
            aetheris_fault::sometimes!(TimerFired);
            aetheris_fault::sometimes!(PausedWaitEnded, loaded.state.status == JobStatus::Paused);
            draft.push(self.system.ids.as_ref(), TimerFired { timer: due.timer.clone() })?;
            match &due.timer {
                TimerId::Wait(node) | TimerId::Doubt(node) => {
                    draft.push(self.system.ids.as_ref(), WaitCompleted { by: WaitEnd::Time, node: node.clone() })?;
                }
                TimerId::Deadline => self.deadline_passed(loaded, &mut draft)?,
            }
            Ok(Plan::Write(Box::new(draft), true))
        });
        match fired.await {
            Err(OpError::NotDue(_)) => {
                aetheris_fault::sometimes!(TimerNotDue);
                Ok(false)
            }
            fired => fired,
        }
    }

    fn deadline_passed(&self, loaded: &Loaded, draft: &mut Draft) -> Result<(), OpError> {
        aetheris_fault::sometimes!(DeadlineHit);
        match loaded.state.status {
            JobStatus::Running if loaded.state.end_requested.is_some_and(EndCause::ends) => Ok(()),
            JobStatus::Running => {
                draft.push(self.system.ids.as_ref(), JobCancelRequested { cause: EndCause::Deadline })?;
                Ok(())
            }
            JobStatus::Waiting | JobStatus::Parked if aetheris_fault::planted!("deadline-ignored-while-blocked") => {
                Ok(())
            }
            JobStatus::Pending | JobStatus::Waiting | JobStatus::Parked | JobStatus::Paused => {
                self.doubt_open_calls(
                    &loaded.ledger,
                    draft,
                    "the job's deadline passed while the outcome of the call was unknown",
                )?;
                Ok(self.fail_job(draft, deadline_exceeded())?)
            }
            JobStatus::Completed | JobStatus::Failed | JobStatus::Cancelled => Ok(()),
        }
    }
}

/// Why a job fails at its deadline.
pub(crate) fn deadline_exceeded() -> Failure {
    Failure::new("deadline_exceeded", "the job's deadline passed before it ended")
}
